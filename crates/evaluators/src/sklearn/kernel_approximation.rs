//! Features whose products approximate kernels.

use std::sync::Arc;

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::kernels;
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{affine, transpose};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, IntType, NumericType, TableData, to_f32};

pub(super) const CLASSES: ClassTable = &[
    ("kernel_approximation.AdditiveChi2Sampler", additive),
    ("kernel_approximation.Nystroem", nystroem),
    ("kernel_approximation.RBFSampler", fourier),
    ("kernel_approximation.SkewedChi2Sampler", skewed),
];

/// Loads `Nystroem`, whose features are combinations of kernels with some rows of the fit.
fn nystroem(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    if fitted.get("kernel_params").is_some() {
        return Err(fitted.unsupported("kernel_params"));
    }
    let normalization = fitted.double_matrix("normalization_")?;
    let weights = transpose(&normalization.values, normalization.rows, normalization.columns);
    kernels::sums(fitted, MethodSet::TRANSFORM, "components_", ("normalization_", weights), None)
}

/// Cosines of random projections: `RBFSampler` and `SkewedChi2Sampler`.
#[derive(Debug)]
struct RandomCosines {
    /// One row for each feature.
    weights: Vec<f64>,
    offset: Vec<f64>,
    scale: f64,
    features: usize,
    /// What is added to rows before their logarithm is projected.
    skewedness: Option<f64>,
}

fn cosines(fitted: &FittedObject<'_>, skewedness: Option<f64>) -> Result<EstimatorSpec, LoadError> {
    let weights = fitted.double_matrix("random_weights_")?;
    let offset = fitted.floats_of("random_offset_", weights.columns)?;
    let scale = (2.0 / fitted.number("n_components")?).sqrt();
    let features = weights.rows;
    let cosines = RandomCosines { weights: weights.values, offset, scale, features, skewedness };
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features, cosines))
}

fn fourier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    cosines(fitted, None)
}

fn skewed(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    cosines(fitted, Some(fitted.number("skewedness")?))
}

impl Evaluate for RandomCosines {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let mut rows = x.to_f64();
        if let Some(skewedness) = self.skewedness {
            let round = |value: f64| if x.is_single() { f64::from(to_f32(value)) } else { value };
            if rows.iter().any(|&value| value <= -skewedness) {
                return Err(PredictError::Range { class: Arc::clone(&info.class) });
            }
            rows.to_mut().iter_mut().for_each(|value| *value = round(round(*value + skewedness).ln()));
        }
        let mut values = affine(&rows, self.features, &self.weights, &self.offset);
        for value in &mut values {
            *value = value.cos() * self.scale;
        }
        Ok(TableData::Table(DenseTable::of_f64(values, self.offset.len())))
    }

    fn cost(&self) -> u64 {
        50 + self.weights.len() as u64 + 20 * self.offset.len() as u64
    }
}

/// `AdditiveChi2Sampler`: samples of the spectrum of the kernel.
#[derive(Debug)]
struct ChiSquaredSamples {
    steps: u32,
    interval: f64,
    features: usize,
}

fn additive(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let steps = fitted.size("sample_steps")?;
    let interval = ["sample_interval_", "_sample_interval", "sample_interval"];
    let interval = match (interval.into_iter().find(|name| fitted.get(name).is_some()), steps) {
        (Some(name), _) => fitted.number(name)?,
        (None, 1) => 0.8,
        (None, 2) => 0.5,
        (None, 3) => 0.4,
        _ => return Err(fitted.unsupported("sample_interval")),
    };
    // Each step returns two columns for each feature; files that ask for more may be damaged.
    let steps = u32::try_from(steps).ok().filter(|steps| (1..=1000).contains(steps));
    let steps = steps.ok_or_else(|| fitted.unsupported("sample_steps"))?;
    let features = fitted.n_features()?;
    // The file has nothing for each feature, so that a damaged count would not be noticed.
    fitted.spend(features.saturating_mul(2 * steps as usize))?;
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features, ChiSquaredSamples { steps, interval, features }))
}

impl ChiSquaredSamples {
    /// Appends the columns of a row: a root for each feature, then for each step the cosine of each feature and the sine of each.
    fn extend(&self, row: &[f64], samples: &mut Vec<f64>) {
        let of_nonzero = |x: f64, sample: &dyn Fn(f64) -> f64| if x == 0.0 { 0.0 } else { sample(x) };
        samples.extend(row.iter().map(|&x| (x * self.interval).sqrt()));
        for step in (1..self.steps).map(f64::from) {
            let damping = (std::f64::consts::PI * step * self.interval).cosh();
            let factor = |x: f64| (2.0 * x * self.interval / damping).sqrt();
            let angle = |x: f64| step * (self.interval * x.ln());
            samples.extend(row.iter().map(|&x| of_nonzero(x, &|x| factor(x) * angle(x).cos())));
            samples.extend(row.iter().map(|&x| of_nonzero(x, &|x| factor(x) * angle(x).sin())));
        }
    }
}

/// Returns the type that NumPy gives an array of the data.
fn numeric(data: &TableData<'_>) -> Option<NumericType> {
    match data {
        TableData::Table(table) => table.elements.numeric(),
        TableData::Frame(frame) => {
            frame.columns.iter().map(Elements::numeric).reduce(|one, other| Some(one?.with(other?))).flatten()
        }
        TableData::Sparse(sparse) => Some(sparse.numeric()),
    }
}

impl Evaluate for ChiSquaredSamples {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let rows = x.to_f64();
        if rows.iter().any(|&value| value < 0.0) {
            return Err(PredictError::Negative { class: Arc::clone(&info.class) });
        }
        let columns = self.features * (2 * self.steps as usize - 1);
        let mut samples = Vec::with_capacity(x.rows * columns);
        for row in rows.chunks_exact(self.features) {
            self.extend(row, &mut samples);
        }
        // As in the original, samples of integers are truncated to integers.
        let numeric = numeric(data).unwrap_or(NumericType::F64);
        let moderate = || rows.iter().all(|&value| value < f64::from(1_u32 << 30));
        if let NumericType::Int(kind) = numeric
            && !(matches!(kind, IntType::I32 | IntType::I64) && moderate())
        {
            return Err(PredictError::NotFloat { class: Arc::clone(&info.class) });
        }
        let elements = numeric.elements(samples);
        Ok(TableData::Table(DenseTable { elements, rows: x.rows, columns }))
    }

    fn cost(&self) -> u64 {
        50 + 50 * self.features as u64 * u64::from(self.steps)
    }
}
