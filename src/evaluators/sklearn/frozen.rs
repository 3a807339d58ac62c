//! Frozen estimators.

use super::classes::{ClassTable, EstimatorSpec};
use super::delegate;
use super::error::LoadError;
use super::fitted::FittedObject;

pub(super) const CLASSES: ClassTable = &[("frozen.FrozenEstimator", frozen)];

fn frozen(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    delegate::delegate(fitted, "estimator")
}
