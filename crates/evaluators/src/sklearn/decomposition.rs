//! Transformers that project rows onto components.
//!
//! `NMF` and the like are left to Python: they iterate until the change of all rows of a request together is small, so that an answer
//! depends on the other rows.

use std::borrow::Cow;

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::{FittedMatrix, FittedObject, SklearnVersion};
use super::kernels::{self, KernelCentering};
use super::latent_dirichlet;
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{affine, solve_positive, transpose};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, TableData, to_f32};

pub(super) const CLASSES: ClassTable = &[
    ("decomposition.FactorAnalysis", factors),
    ("decomposition.FastICA", independent),
    ("decomposition.IncrementalPCA", principal),
    ("decomposition.KernelPCA", kernel_principal),
    ("decomposition.LatentDirichletAllocation", latent_dirichlet::load),
    ("decomposition.MiniBatchSparsePCA", sparse),
    ("decomposition.PCA", principal),
    ("decomposition.SparsePCA", sparse),
    ("decomposition.TruncatedSVD", truncated),
    ("neighbors.NeighborhoodComponentsAnalysis", truncated),
];

/// How many components a system of equations may have that is solved when a model is loaded: solving takes time in proportion to the
/// third power.
const MOST_SOLVED: usize = 1000;

/// `(x - mean) / divisor @ weights - offset`, divided by a scale.
#[derive(Debug)]
pub(super) struct Projection {
    /// The mean that is subtracted from rows, and whether the difference is rounded to the precision of the rows.
    mean: Option<(Vec<f64>, bool)>,
    /// What the difference is divided by. The quotient is rounded as the difference is.
    divisor: Option<Vec<f64>>,
    /// One row for each feature.
    weights: Vec<f64>,
    /// The negated offset, which is added to projected rows.
    offset: Vec<f64>,
    scale: Option<Vec<f64>>,
    features: usize,
    /// Whether the weights have single precision; if the input has it too, results are returned in single precision.
    single: bool,
}

impl Projection {
    /// Projects onto `components_`, whose rows are the components: `x @ components.T`.
    fn onto(fitted: &FittedObject<'_>) -> Result<Self, LoadError> {
        let components = fitted.matrix("components_")?;
        let (outputs, features) = (components.rows, components.columns);
        if outputs == 0 || features == 0 {
            return Err(fitted.unexpected("components_", "at least one component"));
        }
        let weights = transpose(&components.values, outputs, features);
        let (offset, single) = (vec![0.0; outputs], components.single);
        Ok(Self { mean: None, divisor: None, weights, offset, scale: None, features, single })
    }

    /// Projects rows from which a mean is subtracted, and which are then divided. Both results are rounded to the precision of the
    /// rows if `rounds`. The offset is added at the end.
    pub(super) fn standardized(
        (mean, rounds): (Vec<f64>, bool),
        divisor: Option<Vec<f64>>,
        weights: Vec<f64>,
        offset: Vec<f64>,
    ) -> Self {
        let features = mean.len();
        Self { mean: Some((mean, rounds)), divisor, weights, offset, scale: None, features, single: false }
    }

    /// Projects with the first `outputs` columns of `(x - mean) @ weights`.
    pub(super) fn through(weights: &[f64], columns: usize, outputs: usize, mean: Option<Vec<f64>>) -> Self {
        let features = weights.len() / columns.max(1);
        let kept = weights.chunks_exact(columns.max(1)).flat_map(|row| &row[..outputs]).copied().collect();
        let mean = mean.map(|mean| (mean, false));
        Self { mean, divisor: None, weights: kept, offset: vec![0.0; outputs], scale: None, features, single: false }
    }

    pub(super) fn apply(&self, data: &TableData<'_>, info: &EstimatorInfo) -> Result<TableData<'static>, PredictError> {
        if let TableData::Sparse(sparse) = data {
            info.finite_sparse(sparse)?;
            return Ok(TableData::Table(DenseTable::of_f64(
                sparse.affine(&self.weights, &self.offset),
                self.offset.len(),
            )));
        }
        let x = info.finite(data)?;
        let mut rows = x.to_f64();
        if let Some((mean, rounds)) = &self.mean {
            let rounds = *rounds && x.is_single();
            let centerd = rows.chunks_exact(self.features).flat_map(|row| row.iter().zip(mean)).map(|(x, mean)| {
                let difference = x - mean;
                if rounds { f64::from(to_f32(difference)) } else { difference }
            });
            rows = Cow::Owned(centerd.collect());
            if let Some(divisor) = &self.divisor {
                for row in rows.to_mut().chunks_exact_mut(self.features) {
                    for (value, divisor) in row.iter_mut().zip(divisor) {
                        *value /= divisor;
                        if rounds {
                            *value = f64::from(to_f32(*value));
                        }
                    }
                }
            }
        }
        let mut values = affine(&rows, self.features, &self.weights, &self.offset);
        let columns = self.offset.len();
        if let Some(scale) = &self.scale {
            for row in values.chunks_exact_mut(columns) {
                row.iter_mut().zip(scale).for_each(|(value, scale)| *value /= scale);
            }
        }
        let elements = if self.single && x.is_single() {
            Elements::F32(values.into_iter().map(to_f32).collect())
        } else {
            Elements::F64(values.into())
        };
        Ok(TableData::Table(DenseTable { elements, rows: x.rows, columns }))
    }
}

fn family(projection: Projection) -> EstimatorSpec {
    EstimatorSpec::new(MethodSet::TRANSFORM, projection.features, projection)
}

fn principal(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let mut projection = Projection::onto(fitted)?;
    let features = projection.features;
    // The result of two single-precision operands has single precision, too.
    let single = projection.single;
    let round = |value: f64| if single { f64::from(to_f32(value)) } else { value };
    let newer = fitted.version() >= SklearnVersion(1, 5);
    if fitted.get("mean_").is_some() {
        let mean = fitted.floats_of("mean_", features)?;
        if newer {
            let center = affine(&mean, features, &projection.weights, &projection.offset);
            projection.offset = center.into_iter().map(|value| -round(value)).collect();
        } else {
            projection.mean = Some((mean, false));
        }
    }
    if fitted.flag("whiten")? {
        let variance = fitted.floats_of("explained_variance_", projection.offset.len())?;
        let smallest = match (newer, projection.single) {
            (false, _) => 0.0,
            (true, false) => f64::EPSILON,
            (true, true) => f64::from(f32::EPSILON),
        };
        projection.scale = Some(variance.into_iter().map(|variance| round(variance.sqrt()).max(smallest)).collect());
    }
    Ok(family(projection))
}

pub(super) fn truncated(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    Ok(family(Projection::onto(fitted)?))
}

fn independent(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let mut projection = Projection::onto(fitted)?;
    if fitted.get("mean_").is_some() {
        projection.mean = Some((fitted.floats_of("mean_", projection.features)?, true));
    }
    Ok(family(projection))
}

/// Loads `KernelPCA`.
fn kernel_principal(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let (name, weights, centering) = kernel_weights(fitted)?;
    kernels::sums(fitted, MethodSet::TRANSFORM, "X_fit_", (name, weights), Some(centering))
}

/// Reads the scaled eigenvectors of `KernelPCA`, one row for each row of the fit, with the name of their attribute. Before 1.0, they and
/// the eigenvalues had other names.
pub(super) fn kernel_weights(
    fitted: &FittedObject<'_>,
) -> Result<(&'static str, Vec<f64>, KernelCentering), LoadError> {
    let newer = fitted.get("eigenvectors_").is_some();
    let (name, values) = if newer { ("eigenvectors_", "eigenvalues_") } else { ("alphas_", "lambdas_") };
    let vectors = fitted.double_matrix(name)?;
    let values = fitted.floats_of(values, vectors.columns)?;
    // Components without variance are zero.
    let scaled = |(vector, value): (&f64, &f64)| if *value == 0.0 { 0.0 } else { vector / value.sqrt() };
    let weights = vectors.values.chunks_exact(vectors.columns).flat_map(|row| row.iter().zip(&values).map(scaled));
    let centerer = fitted.inner(fitted.require("_centerer")?)?;
    let of_rows = centerer.floats_of("K_fit_rows_", vectors.rows)?;
    Ok((name, weights.collect(), KernelCentering { of_rows, of_all: centerer.number("K_fit_all_")? }))
}

/// Loads `FactorAnalysis`, whose factors are the expected ones of a row: `inverse(1 + C C' / noise) C / noise`.
fn factors(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let components = solvable(fitted)?;
    let noise = fitted.floats_of("noise_variance_", components.columns)?;
    let rows = components.values.chunks_exact(components.columns);
    let scaled: Vec<f64> = rows.flat_map(|row| row.iter().zip(&noise).map(|(value, noise)| value / noise)).collect();
    regressed(fitted, &components, scaled, 1.0)
}

/// Loads `SparsePCA`, whose components are not orthogonal: a row's coordinates are those of a ridge regression.
fn sparse(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let alpha = fitted.number("ridge_alpha")?;
    // Without a penalty, the equations may have no single solution.
    if alpha.is_nan() || alpha <= 0.0 {
        return Err(fitted.unsupported("ridge_alpha"));
    }
    let components = solvable(fitted)?;
    let scaled = components.values.clone();
    regressed(fitted, &components, scaled, alpha)
}

/// Reads components of which there are few enough to solve equations.
fn solvable(fitted: &FittedObject<'_>) -> Result<FittedMatrix, LoadError> {
    let components = fitted.double_matrix("components_")?;
    if components.rows > MOST_SOLVED {
        return Err(fitted.unexpected("components_", "at most 1000 components"));
    }
    fitted.spend(components.rows * components.rows)?;
    Ok(components)
}

/// Projects onto `inverse(scaled C' + alpha) scaled`.
fn regressed(
    fitted: &FittedObject<'_>,
    components: &FittedMatrix,
    mut scaled: Vec<f64>,
    alpha: f64,
) -> Result<EstimatorSpec, LoadError> {
    let (count, features) = (components.rows, components.columns);
    let mut products = affine(&scaled, features, &transpose(&components.values, count, features), &vec![0.0; count]);
    products.iter_mut().step_by(count + 1).for_each(|value| *value += alpha);
    if !solve_positive(&mut products, count, &mut scaled) {
        return Err(fitted.unexpected("components_", "equations with one solution"));
    }
    let mean = fitted.floats_of("mean_", features)?;
    let weights = transpose(&scaled, count, features);
    Ok(family(Projection::through(&weights, count, count, Some(mean))))
}

impl Evaluate for Projection {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        self.apply(data, info)
    }

    fn takes_sparse(&self) -> bool {
        self.mean.is_none() && self.scale.is_none() && !self.single
    }

    fn cost(&self) -> u64 {
        50 + self.weights.len() as u64
    }
}
