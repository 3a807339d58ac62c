//! Partial least squares: projections and predictions of standardized rows.

use super::decomposition::Projection;
use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::{FittedMatrix, FittedObject, SklearnVersion};
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::transpose;
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::TableData;

pub(super) const CLASSES: ClassTable = &[
    ("cross_decomposition.CCA", regression),
    ("cross_decomposition.PLSCanonical", regression),
    ("cross_decomposition.PLSRegression", regression),
    ("cross_decomposition.PLSSVD", decomposition),
];

#[derive(Debug)]
struct PartialLeastSquares {
    scores: Projection,
    /// `PLSSVD` does not predict.
    predictions: Option<Projection>,
}

/// Reads means and deviations of the features, and the matrix that standardized rows are multiplied with.
fn standardized(
    fitted: &FittedObject<'_>,
    rotations: &'static str,
) -> Result<(Vec<f64>, Vec<f64>, FittedMatrix), LoadError> {
    let rotations = fitted.double_matrix(rotations)?;
    let mean = fitted.floats_of("_x_mean", rotations.rows)?;
    let deviation = fitted.floats_of("_x_std", rotations.rows)?;
    Ok((mean, deviation, rotations))
}

fn regression(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let (mean, deviation, rotations) = standardized(fitted, "x_rotations_")?;
    let version = fitted.version();
    // Two versions hid the coefficients behind a property that warned.
    let name = if version >= SklearnVersion(1, 1) && version < SklearnVersion(1, 3) { "_coef_" } else { "coef_" };
    let coefficients = fitted.double_matrix(name)?;
    let (weights, targets) = if version < SklearnVersion(1, 1) {
        (coefficients.values, coefficients.columns)
    } else {
        let FittedMatrix { values, rows, columns, .. } = coefficients;
        (transpose(&values, rows, columns), rows)
    };
    fitted.check_count(name, mean.len() * targets, weights.len())?;
    let intercept = if version < SklearnVersion(1, 1) { "_y_mean" } else { "intercept_" };
    let offset = fitted.floats_of(intercept, targets)?;
    // Since 1.5, the coefficients contain the division.
    let divisor = Some(deviation.clone()).filter(|_| version < SklearnVersion(1, 5));
    let predictions = Projection::standardized((mean.clone(), true), divisor, weights, offset);
    let features = mean.len();
    let scores =
        Projection::standardized((mean, true), Some(deviation), rotations.values, vec![0.0; rotations.columns]);
    let methods = MethodSet::TRANSFORM.with(EstimatorMethod::Predict);
    Ok(EstimatorSpec::new(methods, features, PartialLeastSquares { scores, predictions: Some(predictions) }))
}

fn decomposition(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let (mean, deviation, weights) = standardized(fitted, "x_weights_")?;
    let features = mean.len();
    let scores = Projection::standardized((mean, false), Some(deviation), weights.values, vec![0.0; weights.columns]);
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features, PartialLeastSquares { scores, predictions: None }))
}

impl Evaluate for PartialLeastSquares {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        match &self.predictions {
            Some(predictions) if method == EstimatorMethod::Predict => predictions.apply(data, info),
            _ => self.scores.apply(data, info),
        }
    }

    fn cost(&self) -> u64 {
        self.scores.cost()
    }
}
