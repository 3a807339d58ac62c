//! Random forests and extremely randomized trees.

use crate::evaluators::sklearn::classes::Family;
use crate::evaluators::sklearn::error::LoadError;
use crate::evaluators::sklearn::fitted::{Fitted, Version};
use crate::evaluators::sklearn::tree;

/// Random forests and extremely randomised trees that classify.
pub(super) fn classifier(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    forest(fitted, true)
}

/// Random forests and extremely randomised trees of numbers.
pub(super) fn regressor(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    forest(fitted, false)
}

fn forest(fitted: &Fitted<'_>, classifier: bool) -> Result<Family, LoadError> {
    let estimators = fitted.items("estimators_")?;
    let first = estimators.first().ok_or_else(|| fitted.unexpected("estimators_", "at least one tree"))?;
    let missing = tree::takes_missing(&fitted.part(*first)?, Version(1, 6), Version(1, 4));
    tree::mean(fitted, estimators, classifier, missing)
}
