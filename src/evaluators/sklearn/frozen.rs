//! Frozen estimators.

use super::classes::{Classes, Family};
use super::delegate;
use super::error::LoadError;
use super::fitted::Fitted;

pub(super) const CLASSES: Classes = &[("frozen.FrozenEstimator", frozen)];

fn frozen(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    delegate::delegate(fitted, "estimator")
}
