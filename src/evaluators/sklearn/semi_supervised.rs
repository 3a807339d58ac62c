//! Self-training classifiers.

use super::classes::{Classes, Family};
use super::delegate::{Delegate, classifier_methods};
use super::error::LoadError;
use super::fitted::Fitted;

pub(super) const CLASSES: Classes = &[("semi_supervised.SelfTrainingClassifier", self_training)];

/// `SelfTrainingClassifier`, which does not transform, whatever is in it.
fn self_training(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let name = if fitted.get("estimator_").is_some() { "estimator_" } else { "base_estimator_" };
    let estimator = fitted.estimator(fitted.need(name)?)?;
    let methods = classifier_methods(&estimator);
    let features = estimator.about.features;
    Ok(Family::composed(methods, features, None, Delegate { estimator }))
}
