//! The table of supported classes, and the functions that load them.

use super::error::LoadError;
use super::estimator::{Estimator, EstimatorInfo};
use super::fitted::{FittedObject, LIBRARY, LoadContext, SklearnVersion};
use super::spec::{ClassTable, EstimatorSpec, LoadEstimator};
use super::{
    boosters, calibration, cluster, compose, covariance, cross_decomposition, decomposition, discriminant_analysis,
    dummy, ensemble, feature_extraction, feature_selection, frozen, gaussian_process, impute, isotonic,
    kernel_approximation, kernel_ridge, linear_model, manifold, mixture, model_selection, multiclass, multioutput,
    naive_bayes, neighbors, neural_network, pipeline, preprocessing, random_projection, semi_supervised, svm, tree,
};
use crate::pickle::PickleValue;

/// How deeply estimators may be nested: more than any model needs, and few enough for the stack.
const MAX_NESTING: usize = 32;

/// The tables of all modules of scikit-learn, and of the wrappers of other libraries.
const FAMILIES: &[ClassTable] = &[
    boosters::CLASSES,
    calibration::CLASSES,
    cluster::CLASSES,
    compose::CLASSES,
    covariance::CLASSES,
    cross_decomposition::CLASSES,
    decomposition::CLASSES,
    discriminant_analysis::CLASSES,
    dummy::CLASSES,
    ensemble::CLASSES,
    feature_extraction::CLASSES,
    feature_selection::CLASSES,
    frozen::CLASSES,
    gaussian_process::CLASSES,
    impute::CLASSES,
    isotonic::CLASSES,
    kernel_approximation::CLASSES,
    kernel_ridge::CLASSES,
    linear_model::CLASSES,
    manifold::CLASSES,
    mixture::CLASSES,
    model_selection::CLASSES,
    multiclass::CLASSES,
    multioutput::CLASSES,
    naive_bayes::CLASSES,
    neighbors::CLASSES,
    neural_network::CLASSES,
    pipeline::CLASSES,
    preprocessing::CLASSES,
    random_projection::CLASSES,
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
