//! Estimators that hand everything to another one.

use super::classes::Family;
use super::data::Data;
use super::error::{LoadError, PredictError};
use super::estimator::{About, Estimator, Evaluate, Method, Methods};
use super::fitted::Fitted;

/// Searches and others that hand everything to the estimator they found.
#[derive(Debug)]
pub(super) struct Delegate {
    pub(super) estimator: Estimator,
}

pub(super) fn delegate(fitted: &Fitted<'_>, attribute: &'static str) -> Result<Family, LoadError> {
    let estimator = fitted.estimator(fitted.need(attribute)?)?;
    let (methods, features) = (estimator.about.methods, estimator.about.features);
    Ok(Family::composed(methods, features, None, Delegate { estimator }))
}

impl Evaluate for Delegate {
    fn call(&self, method: Method, data: &Data<'_>, _: &About) -> Result<Data<'static>, PredictError> {
        self.estimator.call(method, data)
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        self.estimator.evaluate.cost()
    }
}

/// What classifiers can be asked, of what there is.
pub(super) fn classifier_methods(estimator: &Estimator) -> Methods {
    [Method::Predict, Method::PredictProba, Method::DecisionFunction]
        .into_iter()
        .fold(Methods::NONE, |methods, method| methods.and_if(estimator.about.methods.contains(method), method))
}
