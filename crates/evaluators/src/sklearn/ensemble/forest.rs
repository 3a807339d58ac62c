//! Random forests and extremely randomized trees.

use crate::sklearn::error::LoadError;
use crate::sklearn::fitted::{FittedObject, SklearnVersion};
use crate::sklearn::spec::EstimatorSpec;
use crate::sklearn::tree;

/// Loads `RandomForestClassifier` and `ExtraTreesClassifier`.
pub(super) fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    forest(fitted, true)
}

/// Loads `RandomForestRegressor` and `ExtraTreesRegressor`.
pub(super) fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    forest(fitted, false)
}

fn forest(fitted: &FittedObject<'_>, classifier: bool) -> Result<EstimatorSpec, LoadError> {
    let estimators = fitted.items("estimators_")?;
    let first = estimators.first().ok_or_else(|| fitted.unexpected("estimators_", "at least one tree"))?;
    let missing = tree::takes_missing(&fitted.part(*first)?, SklearnVersion(1, 6), SklearnVersion(1, 4));
    tree::mean(fitted, estimators, classifier, missing)
}
