//! Estimators that delegate every call to another estimator.

use super::error::{LoadError, PredictError, Unexplained};
use super::estimator::{Estimator, EstimatorInfo, Evaluate, Explain};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::spec::EstimatorSpec;
use crate::table::TableData;

/// An estimator that passes every call to the estimator inside of it.
#[derive(Debug)]
pub(super) struct Delegate {
    pub(super) estimator: Estimator,
}

pub(super) fn delegate(fitted: &FittedObject<'_>, attribute: &'static str) -> Result<EstimatorSpec, LoadError> {
    let estimator = fitted.estimator(fitted.require(attribute)?)?;
    let (methods, features) = (estimator.info.methods, estimator.info.features);
    Ok(EstimatorSpec::composed(methods, features, None, Delegate { estimator }))
}

impl Evaluate for Delegate {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        _: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        self.estimator.call(method, data)
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn features_by_position(&self) -> Option<&[String]> {
        self.estimator.evaluate.features_by_position()
    }

    fn explained<'a>(&'a self, _: &'a EstimatorInfo) -> Result<(&'a dyn Explain, &'a EstimatorInfo), Unexplained> {
        self.estimator.evaluate.explained(&self.estimator.info)
    }

    fn limit_contributions(&mut self, bytes: usize) {
        self.estimator.evaluate.limit_contributions(bytes);
    }

    fn cost(&self) -> u64 {
        self.estimator.evaluate.cost()
    }
}

/// Returns which of the methods of classifiers an estimator has.
pub(super) fn classifier_methods(estimator: &Estimator) -> MethodSet {
    [EstimatorMethod::Predict, EstimatorMethod::PredictProba, EstimatorMethod::DecisionFunction]
        .into_iter()
        .fold(MethodSet::NONE, |methods, method| methods.with_if(estimator.info.methods.contains(method), method))
}
