//! Which classes are evaluated, and by what.

use std::sync::Arc;

use super::error::LoadError;
use super::estimator::{About, Estimator, Evaluate, Methods};
use super::fitted::{Context, Fitted, Version};
use super::{
    bayes, boosted, calibrate, cluster, compose, decomposition, discretize, discriminant, encode, ensemble, expand,
    function, histogram, impute, linear, meta, mixture, multiclass, multioutput, neighbors, neural, scale, select, svm,
    tree, vectorize,
};
use crate::pickle::Value;

/// The library whose versions estimators are answered as.
pub(super) const LIBRARY: &str = "sklearn";
/// Estimators within estimators; more than any model has, and little enough for the stack.
const MAX_NESTING: usize = 32;

/// What a family makes of a fitted object.
#[derive(Debug)]
pub(super) struct Family {
    methods: Methods,
    features: Option<usize>,
    /// What errors call the estimator, where that is not its own class.
    path: Option<Arc<str>>,
    /// Whether the columns of a data frame have to be those of the fit, in their order.
    named: bool,
    /// What they were called, if the estimator does not say so where scikit-learn does.
    names: Option<Vec<String>>,
    evaluate: Box<dyn Evaluate>,
}

impl Family {
    /// An estimator of rows of `features` numbers.
    pub(super) fn new(methods: Methods, features: usize, evaluate: impl Evaluate + 'static) -> Self {
        Self::composed(methods, Some(features), None, evaluate)
    }

    /// An estimator made of others, which may not know how many features there are.
    pub(super) fn composed(
        methods: Methods,
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

pub(super) type Load = fn(&Fitted<'_>) -> Result<Family, LoadError>;

/// Classes by package and name, and what reads them; the modules between package and name moved over time.
pub(super) type Classes = &'static [(&'static str, Load)];

/// What is evaluated: a table for each family that has its own.
const FAMILIES: &[Classes] = &[
    CLASSES,
    boosted::CLASSES,
    calibrate::CLASSES,
    cluster::CLASSES,
    decomposition::CLASSES,
    discretize::CLASSES,
    discriminant::CLASSES,
    encode::CLASSES,
    ensemble::CLASSES,
    expand::CLASSES,
    function::CLASSES,
    impute::CLASSES,
    meta::CLASSES,
    mixture::CLASSES,
    multiclass::CLASSES,
    multioutput::CLASSES,
    neighbors::CLASSES,
    select::CLASSES,
    vectorize::CLASSES,
];

const CLASSES: Classes = &[
    ("compose.ColumnTransformer", compose::columns),
    ("ensemble.ExtraTreesClassifier", tree::forest_classifier),
    ("ensemble.ExtraTreesRegressor", tree::forest_regressor),
    ("ensemble.GradientBoostingClassifier", tree::boosting_classifier),
    ("ensemble.GradientBoostingRegressor", tree::boosting_regressor),
    ("ensemble.HistGradientBoostingClassifier", histogram::classifier),
    ("ensemble.HistGradientBoostingRegressor", histogram::regressor),
    ("ensemble.RandomForestClassifier", tree::forest_classifier),
    ("ensemble.RandomForestRegressor", tree::forest_regressor),
    ("linear_model.ARDRegression", linear::regressor),
    ("linear_model.BayesianRidge", linear::regressor),
    ("linear_model.ElasticNet", linear::regressor),
    ("linear_model.ElasticNetCV", linear::regressor),
    ("linear_model.GammaRegressor", linear::log_link),
    ("linear_model.HuberRegressor", linear::regressor),
    ("linear_model.Lars", linear::regressor),
    ("linear_model.LarsCV", linear::regressor),
    ("linear_model.Lasso", linear::regressor),
    ("linear_model.LassoCV", linear::regressor),
    ("linear_model.LassoLars", linear::regressor),
    ("linear_model.LassoLarsCV", linear::regressor),
    ("linear_model.LassoLarsIC", linear::regressor),
    ("linear_model.LinearRegression", linear::regressor),
    ("linear_model.LogisticRegression", linear::logistic),
    ("linear_model.LogisticRegressionCV", linear::logistic),
    ("linear_model.MultiTaskElasticNet", linear::regressor),
    ("linear_model.MultiTaskElasticNetCV", linear::regressor),
    ("linear_model.MultiTaskLasso", linear::regressor),
    ("linear_model.MultiTaskLassoCV", linear::regressor),
    ("linear_model.OrthogonalMatchingPursuit", linear::regressor),
    ("linear_model.OrthogonalMatchingPursuitCV", linear::regressor),
    ("linear_model.PassiveAggressiveClassifier", linear::classifier),
    ("linear_model.PassiveAggressiveRegressor", linear::regressor),
    ("linear_model.Perceptron", linear::classifier),
    ("linear_model.PoissonRegressor", linear::log_link),
    ("linear_model.QuantileRegressor", linear::regressor),
    ("linear_model.RANSACRegressor", compose::ransac),
    ("linear_model.Ridge", linear::regressor),
    ("linear_model.RidgeCV", linear::regressor),
    ("linear_model.RidgeClassifier", linear::classifier),
    ("linear_model.RidgeClassifierCV", linear::classifier),
    ("linear_model.SGDClassifier", linear::sgd_classifier),
    ("linear_model.SGDOneClassSVM", linear::one_class),
    ("linear_model.SGDRegressor", linear::regressor),
    ("linear_model.TheilSenRegressor", linear::regressor),
    ("linear_model.TweedieRegressor", linear::tweedie),
    ("model_selection.GridSearchCV", compose::search),
    ("model_selection.HalvingGridSearchCV", compose::search),
    ("model_selection.HalvingRandomSearchCV", compose::search),
    ("model_selection.RandomizedSearchCV", compose::search),
    ("naive_bayes.BernoulliNB", bayes::bernoulli),
    ("naive_bayes.ComplementNB", bayes::complement),
    ("naive_bayes.GaussianNB", bayes::gaussian),
    ("naive_bayes.MultinomialNB", bayes::multinomial),
    ("neural_network.MLPClassifier", neural::classifier),
    ("neural_network.MLPRegressor", neural::regressor),
    ("pipeline.FeatureUnion", compose::union),
    ("pipeline.Pipeline", compose::pipeline),
    ("preprocessing.Binarizer", scale::binarizer),
    ("preprocessing.MaxAbsScaler", scale::max_abs),
    ("preprocessing.MinMaxScaler", scale::min_max),
    ("preprocessing.Normalizer", scale::normalizer),
    ("preprocessing.RobustScaler", scale::robust),
    ("preprocessing.StandardScaler", scale::standard),
    ("svm.LinearSVC", linear::classifier),
    ("svm.LinearSVR", linear::regressor),
    ("svm.NuSVC", svm::classifier),
    ("svm.NuSVR", svm::regressor),
    ("svm.OneClassSVM", svm::one_class),
    ("svm.SVC", svm::classifier),
    ("svm.SVR", svm::regressor),
    ("tree.DecisionTreeClassifier", tree::tree_classifier),
    ("tree.DecisionTreeRegressor", tree::tree_regressor),
    ("tree.ExtraTreeClassifier", tree::tree_classifier),
    ("tree.ExtraTreeRegressor", tree::tree_regressor),
];

/// Finds what evaluates a class of scikit-learn, or of another library that has none of its packages.
fn find(path: &str) -> Option<Load> {
    let mut parts = path.split('.');
    let (library, package) = (parts.next()?, parts.next()?);
    let name = parts.next_back()?;
    let package = if library == LIBRARY { package } else { library };
    let same = |known: &str| known.split_once('.') == Some((package, name));
    FAMILIES.iter().copied().flatten().find(|(known, _)| same(known)).map(|&(_, load)| load)
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
    let Family { methods, features, path, named, names: own, evaluate } = load(&fitted)?;
    let about = About {
        class: found.rsplit('.').next().unwrap_or(found).into(),
        path: path.unwrap_or_else(|| found.into()),
        features,
        names: if named && own.is_none() { names(&fitted, features)? } else { own },
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
