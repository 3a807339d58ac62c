//! Linear models: `X @ coef_.T + intercept_`, and the link function of each class.

use super::delegate::Delegate;
use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::{FittedObject, SklearnVersion};
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{affine, argmax, expit, normalize, softmax, transpose};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, FloatMatrix, FloatValues, IntType, NumericType, TableData, to_f32};

pub(super) const CLASSES: ClassTable = &[
    ("linear_model.ARDRegression", regressor),
    ("linear_model.BayesianRidge", regressor),
    ("linear_model.ElasticNet", regressor),
    ("linear_model.ElasticNetCV", regressor),
    ("linear_model.GammaRegressor", log_link),
    ("linear_model.HuberRegressor", regressor),
    ("linear_model.Lars", regressor),
    ("linear_model.LarsCV", regressor),
    ("linear_model.Lasso", regressor),
    ("linear_model.LassoCV", regressor),
    ("linear_model.LassoLars", regressor),
    ("linear_model.LassoLarsCV", regressor),
    ("linear_model.LassoLarsIC", regressor),
    ("linear_model.LinearRegression", regressor),
    ("linear_model.LogisticRegression", logistic),
    ("linear_model.LogisticRegressionCV", logistic),
    ("linear_model.MultiTaskElasticNet", regressor),
    ("linear_model.MultiTaskElasticNetCV", regressor),
    ("linear_model.MultiTaskLasso", regressor),
    ("linear_model.MultiTaskLassoCV", regressor),
    ("linear_model.OrthogonalMatchingPursuit", regressor),
    ("linear_model.OrthogonalMatchingPursuitCV", regressor),
    ("linear_model.PassiveAggressiveClassifier", classifier),
    ("linear_model.PassiveAggressiveRegressor", regressor),
    ("linear_model.Perceptron", classifier),
    ("linear_model.PoissonRegressor", log_link),
    ("linear_model.QuantileRegressor", regressor),
    ("linear_model.RANSACRegressor", ransac),
    ("linear_model.Ridge", regressor),
    ("linear_model.RidgeCV", regressor),
    ("linear_model.RidgeClassifier", classifier),
    ("linear_model.RidgeClassifierCV", classifier),
    ("linear_model.SGDClassifier", sgd_classifier),
    ("linear_model.SGDOneClassSVM", one_class),
    ("linear_model.SGDRegressor", regressor),
    ("linear_model.TheilSenRegressor", regressor),
    ("linear_model.TweedieRegressor", tweedie),
];

/// Coefficients and intercepts.
#[derive(Debug)]
pub(super) struct Linear {
    /// One row for each feature.
    weights: Vec<f64>,
    intercept: Vec<f64>,
    features: usize,
    /// Whether the coefficients have single precision; if the input has it too, results are returned in single
    /// precision.
    single: bool,
}

impl Linear {
    fn load(fitted: &FittedObject<'_>) -> Result<Self, LoadError> {
        let coefficients = fitted.matrix("coef_")?;
        let (outputs, features) = (coefficients.rows, coefficients.columns);
        if outputs == 0 || features == 0 {
            return Err(fitted.unexpected("coef_", "coefficients"));
        }
        let intercept = fitted.floats("intercept_")?;
        // Without an intercept the attribute is a single zero for any number of outputs.
        let intercept = if intercept.len() == 1 { vec![intercept[0]; outputs] } else { intercept };
        fitted.check_count("intercept_", outputs, intercept.len())?;
        let weights = transpose(&coefficients.values, outputs, features);
        Ok(Self { weights, intercept, features, single: coefficients.single })
    }

    const fn outputs(&self) -> usize {
        self.intercept.len()
    }

    /// Returns a score for each output of each row.
    fn scores(&self, x: &FloatMatrix<'_>) -> Vec<f64> {
        match &x.floats {
            FloatValues::F32(values) => affine(values, self.features, &self.weights, &self.intercept),
            FloatValues::F64(values) => affine(values, self.features, &self.weights, &self.intercept),
        }
    }

    /// Returns a score for each output of each row, and whether the rows have single precision. Fails if the input is
    /// not finite.
    fn score(&self, data: &TableData<'_>, info: &EstimatorInfo) -> Result<(Vec<f64>, bool), PredictError> {
        if let TableData::Sparse(sparse) = data {
            info.finite_sparse(sparse)?;
            return Ok((sparse.affine(&self.weights, &self.intercept), sparse.numeric() == NumericType::F32));
        }
        let x = info.unchecked(data)?;
        let scores = self.scores(&x);
        // A number that is not finite makes the sum not finite, even when multiplied by zero. So most inputs need no
        // second check.
        if !scores.iter().fold(true, |all, score| all & score.is_finite()) {
            info.check_finite(&x, false)?;
        }
        Ok((scores, x.is_single()))
    }

    /// Creates a table in the precision that NumPy would return.
    fn table(&self, values: Vec<f64>, columns: usize, single: bool) -> TableData<'static> {
        let rows = values.len() / columns.max(1);
        let elements = if self.single && single {
            Elements::F32(values.into_iter().map(to_f32).collect())
        } else {
            Elements::F64(values.into())
        };
        TableData::Table(DenseTable { elements, rows, columns })
    }

    const fn cost(&self) -> u64 {
        20 + self.weights.len() as u64
    }
}

/// What is applied to a score.
#[derive(Debug, Clone, Copy)]
enum Link {
    Identity,
    Exp,
}

/// A linear model that predicts numbers.
#[derive(Debug)]
struct Regressor {
    linear: Linear,
    link: Link,
}

/// How a classifier turns scores into probabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probabilities {
    None,
    /// The logistic function of each score; with more than two classes, normalized to sum to one.
    OneVsRest,
    Softmax,
    /// Two classes, whose scores are the negated score and the score.
    SoftmaxOfTwo,
    ModifiedHuber,
}

/// A linear model that predicts classes.
#[derive(Debug)]
pub(super) struct Classifier {
    linear: Linear,
    labels: Elements<'static>,
    probabilities: Probabilities,
}

/// Separates inliers from outliers.
#[derive(Debug)]
struct OneClass {
    linear: Linear,
}

pub(super) fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    regressor_with(fitted, Link::Identity)
}

fn regressor_with(fitted: &FittedObject<'_>, link: Link) -> Result<EstimatorSpec, LoadError> {
    let linear = Linear::load(fitted)?;
    Ok(EstimatorSpec::new(MethodSet::PREDICT, linear.features, Regressor { linear, link }))
}

/// `PoissonRegressor` and `GammaRegressor`.
fn log_link(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    regressor_with(fitted, Link::Exp)
}

fn tweedie(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let link = match fitted.text("link")? {
        "identity" => Link::Identity,
        "auto" if fitted.number("power")? <= 0.0 => Link::Identity,
        "auto" | "log" => Link::Exp,
        _ => return Err(fitted.unsupported("link")),
    };
    regressor_with(fitted, link)
}

fn logistic(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let linear = Linear::load(fitted)?;
    let liblinear = fitted.text_if("solver").is_some_and(|solver| {
        solver == "liblinear" || solver == "newton-cholesky" && fitted.version() < SklearnVersion(1, 6)
    });
    let two = linear.outputs() == 1;
    let probabilities = match fitted.text_if("multi_class") {
        Some("ovr" | "warn") => Probabilities::OneVsRest,
        None if liblinear => Probabilities::OneVsRest,
        None | Some("auto" | "deprecated") if two || liblinear => Probabilities::OneVsRest,
        Some("multinomial") if two => Probabilities::SoftmaxOfTwo,
        None | Some("auto" | "deprecated" | "multinomial") => Probabilities::Softmax,
        Some(_) => return Err(fitted.unsupported("multi_class")),
    };
    classifier_with(fitted, linear, probabilities)
}

fn sgd_classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let probabilities = match fitted.text("loss")? {
        "log_loss" | "log" => Probabilities::OneVsRest,
        "modified_huber" => Probabilities::ModifiedHuber,
        _ => Probabilities::None,
    };
    classifier_with(fitted, Linear::load(fitted)?, probabilities)
}

/// Loads the classifier of a linear discriminant analysis.
pub(super) fn discriminant(fitted: &FittedObject<'_>) -> Result<(Classifier, MethodSet, usize), LoadError> {
    let linear = Linear::load(fitted)?;
    let probabilities = if linear.outputs() == 1 { Probabilities::OneVsRest } else { Probabilities::Softmax };
    classifier_of(fitted, linear, probabilities)
}

/// Loads a linear classifier without probabilities.
pub(super) fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    classifier_with(fitted, Linear::load(fitted)?, Probabilities::None)
}

fn classifier_with(
    fitted: &FittedObject<'_>,
    linear: Linear,
    probabilities: Probabilities,
) -> Result<EstimatorSpec, LoadError> {
    let (classifier, methods, features) = classifier_of(fitted, linear, probabilities)?;
    Ok(EstimatorSpec::new(methods, features, classifier))
}

/// Loads a classifier. Returns also its methods and its number of features.
fn classifier_of(
    fitted: &FittedObject<'_>,
    linear: Linear,
    probabilities: Probabilities,
) -> Result<(Classifier, MethodSet, usize), LoadError> {
    let labels = labels(fitted)?;
    let classes = if linear.outputs() == 1 { 2 } else { linear.outputs() };
    fitted.check_count("classes_", classes, labels.len())?;
    let methods = MethodSet::PREDICT
        .with(EstimatorMethod::DecisionFunction)
        .with_if(probabilities != Probabilities::None, EstimatorMethod::PredictProba);
    let features = linear.features;
    Ok((Classifier { linear, labels, probabilities }, methods, features))
}

/// Reads the labels of the classes, which ridge classifiers used to store in their binarizer.
fn labels(fitted: &FittedObject<'_>) -> Result<Elements<'static>, LoadError> {
    let Some(binarizer) = fitted.get("_label_binarizer") else { return fitted.labels("classes_") };
    let binarizer = fitted.part(binarizer)?;
    if binarizer.text_if("y_type_").is_some_and(|kind| kind.starts_with("multilabel")) {
        return Err(binarizer.unsupported("y_type_"));
    }
    binarizer.labels("classes_")
}

/// Loads `SGDOneClassSVM`, whose offset is the negated intercept.
fn one_class(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let coefficients = fitted.matrix("coef_")?;
    let offset = fitted.floats_of("offset_", 1)?;
    fitted.check_count("coef_", coefficients.columns, coefficients.values.len())?;
    let features = coefficients.columns;
    let intercept = offset.iter().map(|offset| -offset).collect();
    let linear = Linear { weights: coefficients.values, intercept, features, single: coefficients.single };
    let methods = MethodSet::PREDICT.with(EstimatorMethod::DecisionFunction);
    Ok(EstimatorSpec::new(methods, features, OneClass { linear }))
}

/// Loads `RANSACRegressor`, of which only `predict` is supported.
fn ransac(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let estimator = fitted.estimator(fitted.require("estimator_")?)?;
    let features = estimator.info.features;
    Ok(EstimatorSpec::composed(MethodSet::PREDICT, features, None, Delegate { estimator }))
}

impl Evaluate for Regressor {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let (mut scores, single) = self.linear.score(data, info)?;
        if let Link::Exp = self.link {
            for score in &mut scores {
                *score = score.exp();
            }
        }
        Ok(self.linear.table(scores, self.linear.outputs(), single))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        self.linear.cost()
    }
}

impl Evaluate for Classifier {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let (scores, single) = self.linear.score(data, info)?;
        let outputs = self.linear.outputs();
        Ok(match method {
            EstimatorMethod::DecisionFunction => self.linear.table(scores, outputs, single),
            EstimatorMethod::PredictProba => {
                let probabilities = self.probabilities.of(scores, outputs);
                self.linear.table(probabilities, self.labels.len(), single)
            }
            _ => TableData::Table(DenseTable::of_column(predict(&self.labels, &scores, outputs))),
        })
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        self.linear.cost() + 20 * self.labels.len() as u64
    }
}

/// Returns the label of each row of scores.
pub(super) fn predict(labels: &Elements<'_>, scores: &[f64], outputs: usize) -> Elements<'static> {
    if outputs == 1 {
        return labels.take(scores.iter().map(|&score| usize::from(score > 0.0)));
    }
    labels.take(scores.chunks_exact(outputs).map(argmax))
}

impl Probabilities {
    /// Turns scores into a probability for each class.
    fn of(self, mut scores: Vec<f64>, outputs: usize) -> Vec<f64> {
        if outputs == 1 {
            return scores.into_iter().flat_map(|score| self.of_two(score)).collect();
        }
        for row in scores.chunks_exact_mut(outputs) {
            match self {
                Self::Softmax | Self::SoftmaxOfTwo => softmax(row),
                Self::ModifiedHuber => {
                    for score in row.iter_mut() {
                        *score = f64::midpoint(score.clamp(-1.0, 1.0), 1.0);
                    }
                    normalize_or_uniform(row);
                }
                Self::OneVsRest | Self::None => {
                    for score in row.iter_mut() {
                        *score = expit(*score);
                    }
                    normalize_or_uniform(row);
                }
            }
        }
        scores
    }

    fn of_two(self, score: f64) -> [f64; 2] {
        match self {
            Self::Softmax | Self::SoftmaxOfTwo => {
                let mut both = [-score, score];
                softmax(&mut both);
                both
            }
            Self::ModifiedHuber => {
                let positive = f64::midpoint(score.clamp(-1.0, 1.0), 1.0);
                [1.0 - positive, positive]
            }
            Self::OneVsRest | Self::None => {
                let positive = expit(score);
                [1.0 - positive, positive]
            }
        }
    }
}

/// Normalizes to a sum of one. If all values are zero, the classes are equally likely.
fn normalize_or_uniform(row: &mut [f64]) {
    if row.iter().all(|value| *value == 0.0) {
        row.fill(1.0);
    }
    normalize(row);
}

impl Evaluate for OneClass {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let (scores, single) = self.linear.score(data, info)?;
        if method == EstimatorMethod::DecisionFunction {
            return Ok(self.linear.table(scores, 1, single));
        }
        let inside = scores.iter().map(|&score| if score >= 0.0 { 1 } else { -1 });
        Ok(TableData::Table(DenseTable::of_column(Elements::Int(inside.collect(), IntType::I32))))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        self.linear.cost()
    }
}
