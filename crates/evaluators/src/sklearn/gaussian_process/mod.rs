//! Gaussian processes.
//!
//! A regressor that interpolates rows almost without noise has weights that are large and cancel each other. Then the last
//! bits of its kernels decide digits of its predictions, on every machine in another way. Such a model is left to Python.

mod kernels;

use self::kernels::GaussianKernel;
use super::delegate::Delegate;
use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::{FittedMatrix, FittedObject};
use super::kernels::is_precise;
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{affine, dot, erf, solve_lower};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, TableData};

pub(super) const CLASSES: ClassTable = &[
    ("gaussian_process.GaussianProcessClassifier", classifier),
    ("gaussian_process.GaussianProcessRegressor", regressor),
    ("gaussian_process._BinaryGaussianProcessClassifierLaplace", binary),
];

#[derive(Debug)]
struct Regressor {
    kernel: GaussianKernel,
    /// One row for each row of the fit, one column for each output.
    weights: Vec<f64>,
    rows: usize,
    features: usize,
    /// The mean and deviation of each output, by which targets were normalized.
    mean: Vec<f64>,
    deviation: Vec<f64>,
}

/// Reads a kernel, and the rows of the fit.
fn process(fitted: &FittedObject<'_>) -> Result<(GaussianKernel, FittedMatrix), LoadError> {
    let train = fitted.double_matrix("X_train_")?;
    Ok((GaussianKernel::read(fitted, &train)?, train))
}

fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let (kernel, train) = process(fitted)?;
    let (rows, features) = (train.rows, train.columns);
    let weights = fitted.floats("alpha_")?;
    let outputs = weights.len() / rows;
    fitted.check_count("alpha_", outputs.max(1) * rows, weights.len())?;
    let of_outputs = |attribute| {
        let values = fitted.floats(attribute)?;
        let values = if values.len() == 1 { vec![values[0]; outputs] } else { values };
        fitted.check_count(attribute, outputs, values.len())?;
        Ok::<_, LoadError>(values)
    };
    let (mean, deviation) = (of_outputs("_y_train_mean")?, of_outputs("_y_train_std")?);
    if !is_precise(&train, &weights, outputs, |row| kernel.of(row, rows)) {
        return Err(fitted.unexpected("alpha_", "smaller numbers: these cancel each other, and lose digits"));
    }
    let regressor = Regressor { kernel, weights, rows, features, mean, deviation };
    Ok(EstimatorSpec::new(MethodSet::PREDICT, features, regressor))
}

impl Evaluate for Regressor {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let outputs = self.mean.len();
        let zeros = vec![0.0; outputs];
        let mut predictions = Vec::with_capacity(x.rows * outputs);
        for row in x.to_f64().chunks_exact(self.features) {
            let sums = affine(&self.kernel.of(row, self.rows), self.rows, &self.weights, &zeros);
            let of_targets = self.mean.iter().zip(&self.deviation);
            predictions.extend(sums.iter().zip(of_targets).map(|(sum, (mean, deviation))| deviation * sum + mean));
        }
        Ok(TableData::Table(DenseTable::of_f64(predictions, outputs)))
    }

    fn cost(&self) -> u64 {
        50 + self.kernel.cost(self.rows) + self.weights.len() as u64
    }
}

/// Loads `GaussianProcessClassifier`: the process of two classes, or a one-vs-rest or one-vs-one classifier of such processes.
fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let estimator = fitted.estimator(fitted.require("base_estimator_")?)?;
    let methods = MethodSet::PREDICT
        .with_if(estimator.info.methods.contains(EstimatorMethod::PredictProba), EstimatorMethod::PredictProba);
    let features = estimator.info.features;
    Ok(EstimatorSpec::composed(methods, features, None, Delegate { estimator }))
}

/// A process of two classes, approximated by Laplace's method.
#[derive(Debug)]
struct Binary {
    kernel: GaussianKernel,
    rows: usize,
    features: usize,
    /// The targets minus their probabilities.
    residuals: Vec<f64>,
    /// The roots of the curvatures of the likelihood.
    curvatures: Vec<f64>,
    /// The lower triangle of the Cholesky factor.
    lower: Vec<f64>,
    labels: Elements<'static>,
}

fn binary(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let (kernel, train) = process(fitted)?;
    let (rows, features) = (train.rows, train.columns);
    let targets = fitted.floats_of("y_train_", rows)?;
    let probabilities = fitted.floats_of("pi_", rows)?;
    let residuals = targets.iter().zip(probabilities).map(|(target, probability)| target - probability).collect();
    let curvatures = fitted.floats_of("W_sr_", rows)?;
    let lower = fitted.double_matrix("L_")?;
    fitted.check_count("L_", rows, lower.rows)?;
    fitted.check_count("L_", rows, lower.columns)?;
    let labels = fitted.labels("classes_")?;
    fitted.check_count("classes_", 2, labels.len())?;
    let binary = Binary { kernel, rows, features, residuals, curvatures, lower: lower.values, labels };
    Ok(EstimatorSpec::new(MethodSet::PREDICT.with(EstimatorMethod::PredictProba), features, binary))
}

impl Binary {
    /// Returns the probability of the second class.
    fn probability(&self, row: &[f64]) -> f64 {
        // The logistic function as a sum of error functions (Williams and Barber, 1998): their widths and weights.
        const WIDTHS: [f64; 5] = [0.41, 0.4, 0.37, 0.44, 0.39];
        const WEIGHTS: [f64; 5] =
            [-1_854.821_415_1, 3_516.898_936_46, 221.293_467_12, 128.123_238_05, -2_010.494_226_54];
        let kernels = self.kernel.of(row, self.rows);
        let mean = dot(&kernels, &self.residuals);
        let mut explained: Vec<f64> =
            kernels.iter().zip(&self.curvatures).map(|(kernel, root)| root * kernel).collect();
        solve_lower(&self.lower, self.rows, &mut explained);
        let variance = self.kernel.variance(row) - dot(&explained, &explained);
        let precision = 1.0 / (2.0 * variance);
        let term = |(width, weight): (f64, f64)| {
            let reach = width * mean * (precision / (precision + width * width)).sqrt();
            let integral = (std::f64::consts::PI / precision).sqrt() * erf(reach)
                / (2.0 * (variance * 2.0 * std::f64::consts::PI).sqrt());
            weight * integral
        };
        let integrals: f64 = WIDTHS.into_iter().zip(WEIGHTS).map(term).sum();
        integrals + 0.5 * WEIGHTS.iter().sum::<f64>()
    }
}

impl Evaluate for Binary {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let x = x.to_f64();
        let rows = x.chunks_exact(self.features);
        Ok(TableData::Table(if method == EstimatorMethod::PredictProba {
            let both = rows.map(|row| self.probability(row)).flat_map(|positive| [1.0 - positive, positive]);
            DenseTable::of_f64(both.collect(), 2)
        } else {
            let mean = |row: &[f64]| dot(&self.kernel.of(row, self.rows), &self.residuals);
            DenseTable::of_column(self.labels.take(rows.map(|row| usize::from(mean(row) > 0.0))))
        }))
    }

    fn cost(&self) -> u64 {
        50 + self.kernel.cost(self.rows) + self.lower.len() as u64 / 2
    }
}
