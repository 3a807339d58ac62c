//! Gaussian mixtures.

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::{FittedObject, SklearnVersion};
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{argmax, digamma, dot, exp_normalize, transpose};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, IntType, TableData, to_f32};

pub(super) const CLASSES: ClassTable =
    &[("mixture.BayesianGaussianMixture", bayesian), ("mixture.GaussianMixture", plain)];

#[derive(Debug)]
struct GaussianMixture {
    components: Vec<Component>,
    features: usize,
    /// Whether sums of squares are rounded to single precision if the input has it.
    rounds: bool,
}

#[derive(Debug)]
struct Component {
    shape: Precision,
    /// The logarithm of the determinant.
    determinant: f64,
    /// The remaining terms: the logarithm of the weight, and the corrections of variational inference.
    constant: f64,
}

/// The precision of a component, from which the squared distance of a row is computed.
#[derive(Debug)]
enum Precision {
    /// A square matrix, in column-major order, and the mean times the matrix.
    Matrix { columns: Vec<f64>, center: Vec<f64> },
    /// `constant - 2 x . linear + x^2 . squares`, as scikit-learn computes it.
    Diagonal { constant: f64, linear: Vec<f64>, squares: Vec<f64> },
    /// The same with one square for all features.
    Sphere { constant: f64, linear: Vec<f64>, square: f64 },
}

fn plain(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let weights = fitted.floats("weights_")?;
    let constants = weights.iter().map(|weight| weight.ln()).collect();
    family(fitted, constants)
}

fn bayesian(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let means = fitted.matrix("means_")?;
    let (count, features) = (means.rows, means.columns);
    let weights = match fitted.text("weight_concentration_prior_type")? {
        "dirichlet_process" => dirichlet_process_weights(fitted, count)?,
        "dirichlet_distribution" => {
            let concentration = fitted.floats_of("weight_concentration_", count)?;
            let whole = digamma(concentration.iter().sum());
            concentration.into_iter().map(|each| digamma(each) - whole).collect()
        }
        _ => return Err(fitted.unsupported("weight_concentration_prior_type")),
    };
    // If components share a covariance, there is one number of degrees of freedom.
    let freedom = fitted.floats("degrees_of_freedom_")?;
    let freedom = if freedom.len() == 1 { vec![freedom[0]; count] } else { freedom };
    fitted.check_count("degrees_of_freedom_", count, freedom.len())?;
    let precision = fitted.floats_of("mean_precision_", count)?;
    fitted.spend(count.saturating_mul(features))?;
    #[expect(clippy::cast_precision_loss, reason = "a count of features")]
    let dimensions = features as f64;
    let constant = |component: usize| {
        let freedom = freedom[component];
        let mut lambda = dimensions * 2.0_f64.ln();
        let mut place = 0.0;
        for _ in 0..features {
            lambda += digamma(0.5 * (freedom - place));
            place += 1.0;
        }
        let correction = 0.5 * (lambda - dimensions / precision[component]) - 0.5 * dimensions * freedom.ln();
        weights[component] + correction
    };
    family(fitted, (0..count).map(constant).collect())
}

/// Returns the expected logarithms of the weights of a Dirichlet process.
fn dirichlet_process_weights(fitted: &FittedObject<'_>, count: usize) -> Result<Vec<f64>, LoadError> {
    let wanted = || fitted.unexpected("weight_concentration_", "two arrays with a number for each component");
    let both = fitted.items("weight_concentration_")?;
    let [first, second] = both[..] else { return Err(wanted()) };
    let (first, second) =
        (fitted.matrix_of("weight_concentration_", first)?, fitted.matrix_of("weight_concentration_", second)?);
    if first.values.len() != count || second.values.len() != count {
        return Err(wanted());
    }
    let mut before = 0.0;
    let mut weights = Vec::with_capacity(count);
    for (a, b) in first.values.iter().zip(&second.values) {
        let whole = digamma(a + b);
        weights.push(digamma(*a) - whole + before);
        before += digamma(*b) - whole;
    }
    Ok(weights)
}

/// Reads means and precisions. `constants` has one number for each component.
fn family(fitted: &FittedObject<'_>, constants: Vec<f64>) -> Result<EstimatorSpec, LoadError> {
    let means = fitted.matrix("means_")?;
    let features = means.columns;
    fitted.check_count("means_", constants.len(), means.rows)?;
    if means.values.is_empty() {
        return Err(fitted.unexpected("means_", "at least one component"));
    }
    let kind = fitted.text("covariance_type")?;
    let each = match kind {
        "full" | "tied" => features.checked_mul(features),
        "diag" => Some(features),
        "spherical" => Some(1),
        _ => return Err(fitted.unsupported("covariance_type")),
    };
    let total = each.and_then(|each| each.checked_mul(if kind == "tied" { 1 } else { means.rows }));
    let total = total.ok_or_else(|| fitted.unexpected("precisions_cholesky_", "as many numbers as components need"))?;
    let precisions = fitted.floats_of("precisions_cholesky_", total)?;
    // A tied matrix is copied for each component.
    fitted.spend(means.rows.saturating_mul(total))?;
    let size = total / if kind == "tied" { 1 } else { means.rows };
    let components = means.values.chunks_exact(features).zip(constants).enumerate();
    let components = components.map(|(index, (mean, constant))| {
        let start = if kind == "tied" { 0 } else { index * size };
        let (shape, determinant) = shape(kind, mean, &precisions[start..start + size]);
        Component { shape, determinant, constant }
    });
    let components = components.collect();
    let mixture = GaussianMixture { components, features, rounds: fitted.version() >= SklearnVersion(1, 7) };
    Ok(EstimatorSpec::new(MethodSet::PREDICT.with(EstimatorMethod::PredictProba), features, mixture))
}

/// Returns the precision of a component, and the logarithm of its determinant.
fn shape(kind: &str, mean: &[f64], precision: &[f64]) -> (Precision, f64) {
    let features = mean.len();
    if let "full" | "tied" = kind {
        let columns = transpose(precision, features, features);
        let center = columns.chunks_exact(features).map(|column| dot(mean, column)).collect();
        let determinant = precision.iter().step_by(features + 1).map(|value| value.ln()).sum();
        return (Precision::Matrix { columns, center }, determinant);
    }
    let precision = if kind == "spherical" { vec![precision[0]; features] } else { precision.to_vec() };
    let squares: Vec<f64> = precision.iter().map(|value| value * value).collect();
    let linear: Vec<f64> = mean.iter().zip(&squares).map(|(mean, square)| mean * square).collect();
    let constant = mean.iter().zip(&squares).map(|(mean, square)| mean * mean * square).sum();
    let determinant = precision.iter().map(|value| value.ln()).sum();
    if kind == "spherical" {
        return (Precision::Sphere { constant, linear, square: squares[0] }, determinant);
    }
    (Precision::Diagonal { constant, linear, squares }, determinant)
}

impl Component {
    /// Returns the logarithm of the component's weight plus that of its density at a row.
    fn log(&self, row: &[f64], single: bool, rounds: bool) -> f64 {
        let square = |x: &f64| if single { f64::from(to_f32(x * x)) } else { x * x };
        #[expect(clippy::cast_precision_loss, reason = "a count of features")]
        let normal = row.len() as f64 * std::f64::consts::TAU.ln();
        let half = match &self.shape {
            Precision::Matrix { columns, center } => {
                let each =
                    columns.chunks_exact(row.len()).zip(center).map(|(column, center)| dot(row, column) - center);
                let sum: f64 = each.map(|value| value * value).sum();
                if rounds { f64::from(-0.5 * (to_f32(normal) + to_f32(sum))) } else { -0.5 * (normal + sum) }
            }
            Precision::Diagonal { constant, linear, squares } => {
                let squared: f64 = row.iter().zip(squares).map(|(x, by)| square(x) * by).sum();
                -0.5 * (normal + (constant - 2.0 * dot(row, linear) + squared))
            }
            Precision::Sphere { constant, linear, square: by } => {
                let squared: f64 = row.iter().map(square).sum();
                -0.5 * (normal + (constant - 2.0 * dot(row, linear) + squared * by))
            }
        };
        half + self.determinant + self.constant
    }
}

impl Evaluate for GaussianMixture {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let single = x.is_single();
        let rounds = self.rounds && single;
        let values = x.to_f64();
        let rows = values.chunks_exact(self.features);
        let logs = rows.flat_map(|row| self.components.iter().map(move |component| component.log(row, single, rounds)));
        let mut logs: Vec<f64> = logs.collect();
        let count = self.components.len();
        if method == EstimatorMethod::Predict {
            let nearest = logs.chunks_exact(count).map(|row| i64::try_from(argmax(row)).unwrap_or(i64::MAX));
            return Ok(TableData::Table(DenseTable::of_column(Elements::Int(nearest.collect(), IntType::I64))));
        }
        for row in logs.chunks_exact_mut(count) {
            exp_normalize(row);
        }
        Ok(TableData::Table(DenseTable::of_f64(logs, count)))
    }

    fn cost(&self) -> u64 {
        let component = |component: &Component| match &component.shape {
            Precision::Matrix { columns, .. } => columns.len() as u64,
            Precision::Diagonal { linear, .. } | Precision::Sphere { linear, .. } => 2 * linear.len() as u64,
        };
        50 + self.components.iter().map(component).sum::<u64>()
    }
}
