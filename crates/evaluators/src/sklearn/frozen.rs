//! Frozen estimators.

use super::delegate;
use super::error::LoadError;
use super::fitted::FittedObject;
use super::spec::{ClassTable, EstimatorSpec};

pub(super) const CLASSES: ClassTable = &[("frozen.FrozenEstimator", frozen)];

fn frozen(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    delegate::delegate(fitted, "estimator")
}
