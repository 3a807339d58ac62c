//! What the loader of a class returns.

use std::sync::Arc;

use super::error::LoadError;
use super::estimator::Evaluate;
use super::fitted::FittedObject;
use super::method::MethodSet;

/// An estimator as its loader returns it, without the names of its class.
#[derive(Debug)]
pub(super) struct EstimatorSpec {
    pub(super) methods: MethodSet,
    pub(super) features: Option<usize>,
    /// The class that error messages name, if it is not the estimator's own class.
    pub(super) path: Option<Arc<str>>,
    /// Whether the columns of a data frame must be those of the fit, in the same order.
    pub(super) named: bool,
    /// The feature names, if the estimator does not store them where scikit-learn does.
    pub(super) names: Option<Vec<String>>,
    pub(super) evaluate: Box<dyn Evaluate>,
}

impl EstimatorSpec {
    /// Creates an estimator that takes rows of `features` numbers.
    pub(super) fn new(methods: MethodSet, features: usize, evaluate: impl Evaluate + 'static) -> Self {
        Self::composed(methods, Some(features), None, evaluate)
    }

    /// Creates an estimator made of others, which may not know its number of features.
    pub(super) fn composed(
        methods: MethodSet,
        features: Option<usize>,
        path: Option<Arc<str>>,
        evaluate: impl Evaluate + 'static,
    ) -> Self {
        Self { methods, features, path, named: true, names: None, evaluate: Box::new(evaluate) }
    }

    /// Turns off the check of feature names, for estimators that find the columns of data frames by name.
    pub(super) fn without_names(self) -> Self {
        Self { named: false, ..self }
    }

    /// Sets the names of the features.
    pub(super) fn with_names(self, names: Option<Vec<String>>) -> Self {
        Self { names, ..self }
    }
}

pub(super) type LoadEstimator = fn(&FittedObject<'_>) -> Result<EstimatorSpec, LoadError>;

/// Classes by package and name, with their loaders. The modules between package and name moved over time, so they are
/// left out.
pub(super) type ClassTable = &'static [(&'static str, LoadEstimator)];
