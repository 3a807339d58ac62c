//! Which classes are evaluated, and by what.

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

/// The library whose versions estimators are answered as.
pub(super) const LIBRARY: &str = "sklearn";
/// Estimators within estimators; more than any model has, and little enough for the stack.
const MAX_NESTING: usize = 32;

/// What a family makes of a fitted object.
#[derive(Debug)]
pub(super) struct EstimatorSpec {
    methods: MethodSet,
    features: Option<usize>,
    /// What errors call the estimator, where that is not its own class.
    path: Option<Arc<str>>,
    /// Whether the columns of a data frame have to be those of the fit, in their order.
    named: bool,
    /// What they were called, if the estimator does not say so where scikit-learn does.
    names: Option<Vec<String>>,
    evaluate: Box<dyn Evaluate>,
}

impl EstimatorSpec {
    /// An estimator of rows of `features` numbers.
    pub(super) fn new(methods: MethodSet, features: usize, evaluate: impl Evaluate + 'static) -> Self {
        Self::composed(methods, Some(features), None, evaluate)
    }

    /// An estimator made of others, which may not know how many features there are.
    pub(super) fn composed(
        methods: MethodSet,
        features: Option<usize>,
        path: Option<Arc<str>>,
        evaluate: impl Evaluate + 'static,
    ) -> Self {
        Self { methods, features, path, named: true, names: None, evaluate: Box::new(evaluate) }
    }

    /// The same, for an estimator that finds the columns of data frames by name.
    pub(super) fn without_names(self) -> Self {
        Self { named: false, ..self }
    }

    /// The same, for an estimator whose features have these names.
    pub(super) fn with_names(self, names: Option<Vec<String>>) -> Self {
        Self { names, ..self }
    }
}

pub(super) type LoadEstimator = fn(&FittedObject<'_>) -> Result<EstimatorSpec, LoadError>;

/// Classes by package and name, and what reads them; the modules between package and name moved over time.
pub(super) type ClassTable = &'static [(&'static str, LoadEstimator)];

/// What is evaluated: the table of each of scikit-learn's modules.
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

/// Finds what evaluates a class of scikit-learn, or of another library that has none of its packages.
fn find(path: &str) -> Option<LoadEstimator> {
    let mut parts = path.split('.');
    let (library, package) = (parts.next()?, parts.next()?);
    let name = parts.next_back()?;
    let package = if library == LIBRARY { package } else { library };
    let same = |known: &str| known.split_once('.') == Some((package, name));
    FAMILIES.iter().copied().flatten().find(|(known, _)| same(known)).map(|&(_, load)| load)
}

/// Builds an estimator, which may hold others. `inherited` is the version of what it is a part of.
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
    // Each estimator has its own price, so that one that is named again and again ends somewhere.
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

/// The names of the features, where the version that wrote the file insists on them.
fn names(fitted: &FittedObject<'_>, features: Option<usize>) -> Result<Option<Vec<String>>, LoadError> {
    if fitted.version() < SklearnVersion(1, 2) || fitted.get("feature_names_in_").is_none() {
        return Ok(None);
    }
    let names = fitted.texts("feature_names_in_")?;
    if let Some(features) = features {
        fitted.count("feature_names_in_", features, names.len())?;
    }
    Ok(Some(names))
}
