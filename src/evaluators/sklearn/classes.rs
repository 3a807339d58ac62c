//! The table of supported classes, and the functions that load them.

use std::sync::Arc;

use super::error::LoadError;
use super::estimator::{Estimator, EstimatorInfo, Evaluate, MethodSet};
use super::fitted::{FittedObject, LoadContext, SklearnVersion};
use super::{
    boosters, calibration, cluster, compose, decomposition, discriminant_analysis, ensemble, feature_extraction,
    feature_selection, frozen, impute, isotonic, linear_model, mixture, model_selection, multiclass, multioutput,
    naive_bayes, neighbors, neural_network, pipeline, preprocessing, semi_supervised, svm, tree,
};
use crate::pickle::PickleValue;

/// The library whose version decides how an estimator is evaluated.
pub(super) const LIBRARY: &str = "sklearn";
/// How deeply estimators may be nested: more than any model needs, and few enough for the stack.
const MAX_NESTING: usize = 32;

/// An estimator as its loader returns it, without the names of its class.
#[derive(Debug)]
pub(super) struct EstimatorSpec {
    methods: MethodSet,
    features: Option<usize>,
    /// The class that error messages name, if it is not the estimator's own class.
    path: Option<Arc<str>>,
    /// Whether the columns of a data frame must be those of the fit, in the same order.
    named: bool,
    /// The feature names, if the estimator does not store them where scikit-learn does.
    names: Option<Vec<String>>,
    evaluate: Box<dyn Evaluate>,
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

/// The tables of all modules of scikit-learn, and of the wrappers of other libraries.
const FAMILIES: &[ClassTable] = &[
    boosters::CLASSES,
    calibration::CLASSES,
    cluster::CLASSES,
    compose::CLASSES,
    decomposition::CLASSES,
    discriminant_analysis::CLASSES,
    ensemble::CLASSES,
    feature_extraction::CLASSES,
    feature_selection::CLASSES,
    frozen::CLASSES,
    impute::CLASSES,
    isotonic::CLASSES,
    linear_model::CLASSES,
    mixture::CLASSES,
    model_selection::CLASSES,
    multiclass::CLASSES,
    multioutput::CLASSES,
    naive_bayes::CLASSES,
    neighbors::CLASSES,
    neural_network::CLASSES,
    pipeline::CLASSES,
    preprocessing::CLASSES,
    semi_supervised::CLASSES,
    svm::CLASSES,
    tree::CLASSES,
];

/// Finds the loader of a class by its path. Classes of other libraries are listed by library and name.
fn find(path: &str) -> Option<LoadEstimator> {
    let mut parts = path.split('.');
    let (library, package) = (parts.next()?, parts.next()?);
    let name = parts.next_back()?;
    let package = if library == LIBRARY { package } else { library };
    let same = |known: &str| known.split_once('.') == Some((package, name));
    FAMILIES.iter().copied().flatten().find(|(known, _)| same(known)).map(|&(_, load)| load)
}

/// Builds an estimator and the estimators inside of it. `inherited` is the version of the object that contains it.
pub(super) fn estimator(
    value: PickleValue<'_>,
    context: LoadContext<'_>,
    inherited: Option<SklearnVersion>,
) -> Result<Estimator, LoadError> {
    if context.depth == MAX_NESTING {
        return Err(LoadError::Nesting { limit: MAX_NESTING });
    }
    let found = value.describe();
    let load = find(found).ok_or_else(|| LoadError::Class { found: found.to_owned() })?;
    let fitted = FittedObject::new(value, context, inherited)?;
    // Each estimator has a price, so that a file that names the same one again and again runs out of budget.
    context.budget.spend(64)?;
    let EstimatorSpec { methods, features, path, named, names: own, evaluate } = load(&fitted)?;
    let info = EstimatorInfo {
        class: found.rsplit('.').next().unwrap_or(found).into(),
        path: path.unwrap_or_else(|| found.into()),
        features,
        names: if named && own.is_none() { names(&fitted, features)? } else { own },
        methods,
    };
    Ok(Estimator { info, evaluate })
}

/// Reads the feature names, if the version that wrote the file enforces them.
fn names(fitted: &FittedObject<'_>, features: Option<usize>) -> Result<Option<Vec<String>>, LoadError> {
    if fitted.version() < SklearnVersion(1, 2) || fitted.get("feature_names_in_").is_none() {
        return Ok(None);
    }
    let names = fitted.texts("feature_names_in_")?;
    if let Some(features) = features {
        fitted.check_count("feature_names_in_", features, names.len())?;
    }
    Ok(Some(names))
}
