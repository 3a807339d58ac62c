//! `SelfTrainingClassifier`.

use super::delegate::{Delegate, classifier_methods};
use super::error::LoadError;
use super::fitted::FittedObject;
use super::spec::{ClassTable, EstimatorSpec};

pub(super) const CLASSES: ClassTable = &[("semi_supervised.SelfTrainingClassifier", self_training)];

/// Loads `SelfTrainingClassifier`, which has no `transform` even if the estimator inside of it has one.
fn self_training(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let name = if fitted.get("estimator_").is_some() { "estimator_" } else { "base_estimator_" };
    let estimator = fitted.estimator(fitted.require(name)?)?;
    let methods = classifier_methods(&estimator);
    let features = estimator.info.features;
    Ok(EstimatorSpec::composed(methods, features, None, Delegate { estimator }))
}
