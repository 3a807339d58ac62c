//! Which classes are evaluated, and by what.

use std::sync::Arc;

use super::error::LoadError;
use super::estimator::{About, Estimator, Evaluate, Methods};
use super::fitted::{Context, Fitted, Version};
use super::linear;
use crate::pickle::Value;

/// Estimators within estimators; more than any model has, and little enough for the stack.
const MAX_NESTING: usize = 32;

/// What a family makes of a fitted object.
#[derive(Debug)]
pub(super) struct Family {
    methods: Methods,
    features: Option<usize>,
    evaluate: Box<dyn Evaluate>,
}

impl Family {
    /// An estimator of rows of `features` numbers.
    pub(super) fn new(methods: Methods, features: usize, evaluate: impl Evaluate + 'static) -> Self {
        Self { methods, features: Some(features), evaluate: Box::new(evaluate) }
    }
}

type Load = fn(&Fitted<'_>) -> Result<Family, LoadError>;

/// The classes by package and name; the modules between them moved over time.
const CLASSES: &[(&str, &[(&str, Load)])] = &[
    (
        "linear_model",
        &[
            ("ARDRegression", linear::regressor),
            ("BayesianRidge", linear::regressor),
            ("ElasticNet", linear::regressor),
            ("ElasticNetCV", linear::regressor),
            ("GammaRegressor", linear::log_link),
            ("HuberRegressor", linear::regressor),
            ("Lars", linear::regressor),
            ("LarsCV", linear::regressor),
            ("Lasso", linear::regressor),
            ("LassoCV", linear::regressor),
            ("LassoLars", linear::regressor),
            ("LassoLarsCV", linear::regressor),
            ("LassoLarsIC", linear::regressor),
            ("LinearRegression", linear::regressor),
            ("LogisticRegression", linear::logistic),
            ("LogisticRegressionCV", linear::logistic),
            ("MultiTaskElasticNet", linear::regressor),
            ("MultiTaskElasticNetCV", linear::regressor),
            ("MultiTaskLasso", linear::regressor),
            ("MultiTaskLassoCV", linear::regressor),
            ("OrthogonalMatchingPursuit", linear::regressor),
            ("OrthogonalMatchingPursuitCV", linear::regressor),
            ("PassiveAggressiveClassifier", linear::classifier),
            ("PassiveAggressiveRegressor", linear::regressor),
            ("Perceptron", linear::classifier),
            ("PoissonRegressor", linear::log_link),
            ("QuantileRegressor", linear::regressor),
            ("Ridge", linear::regressor),
            ("RidgeCV", linear::regressor),
            ("RidgeClassifier", linear::classifier),
            ("RidgeClassifierCV", linear::classifier),
            ("SGDClassifier", linear::sgd_classifier),
            ("SGDOneClassSVM", linear::one_class),
            ("SGDRegressor", linear::regressor),
            ("TheilSenRegressor", linear::regressor),
            ("TweedieRegressor", linear::tweedie),
        ],
    ),
    ("svm", &[("LinearSVC", linear::classifier), ("LinearSVR", linear::regressor)]),
];

/// Finds what evaluates a class of scikit-learn.
fn find(path: &str) -> Option<Load> {
    let mut parts = path.split('.');
    let (library, package) = (parts.next()?, parts.next()?);
    let name = parts.next_back()?;
    let (_, classes) = CLASSES.iter().find(|(known, _)| library == "sklearn" && *known == package)?;
    classes.iter().find(|(known, _)| *known == name).map(|&(_, load)| load)
}

/// Builds an estimator, which may hold others. `inherited` is the version of what it is a part of.
pub(super) fn estimator(
    value: Value<'_>,
    context: Context<'_>,
    inherited: Option<Version>,
) -> Result<Estimator, LoadError> {
    if context.depth == MAX_NESTING {
        return Err(LoadError::Nesting { limit: MAX_NESTING });
    }
    let found = value.describe();
    let load = find(found).ok_or_else(|| LoadError::Class { found: found.to_owned() })?;
    let fitted = Fitted::new(value, context, inherited)?;
    // Each estimator has its own price, so that one that is named again and again ends somewhere.
    context.budget.spend(64)?;
    let Family { methods, features, evaluate } = load(&fitted)?;
    let about = About {
        class: found.rsplit('.').next().unwrap_or(found).into(),
        path: Arc::from(found),
        features,
        names: names(&fitted, features)?,
        methods,
    };
    Ok(Estimator { about, evaluate })
}

/// The names of the features, where the version that wrote the file insists on them.
fn names(fitted: &Fitted<'_>, features: Option<usize>) -> Result<Option<Vec<String>>, LoadError> {
    if fitted.version() < Version(1, 2) || fitted.get("feature_names_in_").is_none() {
        return Ok(None);
    }
    let names = fitted.texts("feature_names_in_")?;
    if let Some(features) = features {
        fitted.count("feature_names_in_", features, names.len())?;
    }
    Ok(Some(names))
}
