//! Hyperparameter searches, and classifiers with a decision threshold.

use std::sync::Arc;

use super::delegate;
use super::error::{LoadError, PredictError};
use super::estimator::{Estimator, EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::method::EstimatorMethod;
use super::spec::{ClassTable, EstimatorSpec};
use super::sub_estimators;
use crate::pickle::PickleValue;
use crate::table::{DenseTable, Elements, IntType, TableData};

pub(super) const CLASSES: ClassTable = &[
    ("model_selection.FixedThresholdClassifier", fixed_threshold),
    ("model_selection.GridSearchCV", search),
    ("model_selection.HalvingGridSearchCV", search),
    ("model_selection.HalvingRandomSearchCV", search),
    ("model_selection.RandomizedSearchCV", search),
    ("model_selection.TunedThresholdClassifierCV", tuned_threshold),
];

/// Loads `GridSearchCV` and similar searches.
fn search(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    delegate::delegate(fitted, "best_estimator_")
}

/// A binary classifier with its own decision threshold.
#[derive(Debug)]
struct ThresholdClassifier {
    estimator: Estimator,
    /// The method that returns the scores.
    method: EstimatorMethod,
    /// The lowest score of the class that high scores stand for.
    least: f64,
    labels: Elements<'static>,
    /// Whether high scores stand for the first class.
    first: bool,
}

fn fixed_threshold(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let estimator = threshold_estimator(fitted)?;
    let method = response_method(fitted, &estimator)?;
    let threshold = match fitted.text_if("threshold") {
        Some("auto") => {
            if method == EstimatorMethod::PredictProba {
                0.5
            } else {
                0.0
            }
        }
        _ => fitted.number("threshold")?,
    };
    let label = fitted.get("pos_label");
    let positive = label.map(|label| self::label(label).ok_or_else(|| fitted.unsupported("pos_label"))).transpose()?;
    with_threshold(fitted, estimator, method, threshold, positive.as_ref())
}

fn tuned_threshold(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let estimator = threshold_estimator(fitted)?;
    let method = response_method(fitted, &estimator)?;
    let threshold = fitted.number("best_threshold_")?;
    let labels = threshold_labels(fitted)?;
    let positive = positive_label(&fitted.part(fitted.require("_curve_scorer")?)?, &labels)?;
    with_threshold(fitted, estimator, method, threshold, positive.as_ref())
}

/// Returns the positive class of a scorer's metric, if it has one: the one that was configured, or the metric's
/// default.
fn positive_label(scorer: &FittedObject<'_>, labels: &Elements<'_>) -> Result<Option<Elements<'static>>, LoadError> {
    if let Some(configured) = scorer.require("_kwargs")?.get("pos_label").filter(|configured| !configured.is_none()) {
        return label(configured).map(Some).ok_or_else(|| scorer.unexpected("_kwargs", "a label"));
    }
    let one = Elements::Int(vec![1].into(), IntType::I64);
    // If 1 is the second class or no class, the default of the metric makes no difference.
    if sub_estimators::positions(&one, labels).is_none_or(|places| places != [0]) {
        return Ok(None);
    }
    let metric = scorer.require("_score_func")?.describe();
    match metric.rsplit('.').next().unwrap_or_default() {
        "f1_score" | "fbeta_score" | "jaccard_score" | "precision_score" | "recall_score" => Ok(Some(one)),
        "accuracy_score" | "balanced_accuracy_score" | "cohen_kappa_score" | "matthews_corrcoef" => Ok(None),
        _ => Err(scorer.unsupported("_score_func")),
    }
}

fn threshold_estimator(fitted: &FittedObject<'_>) -> Result<Estimator, LoadError> {
    let name = if fitted.get("estimator_").is_some() { "estimator_" } else { "estimator" };
    fitted.estimator(fitted.require(name)?)
}

/// Reads the labels of the classifier that the threshold is applied to.
fn threshold_labels(fitted: &FittedObject<'_>) -> Result<Elements<'static>, LoadError> {
    let name = if fitted.get("estimator_").is_some() { "estimator_" } else { "estimator" };
    let labels = sub_estimators::labels(fitted, fitted.require(name)?);
    labels.filter(|labels| labels.len() == 2).ok_or_else(|| fitted.unexpected(name, "a classifier of two classes"))
}

/// Returns the method that the scores are read from.
fn response_method(fitted: &FittedObject<'_>, estimator: &Estimator) -> Result<EstimatorMethod, LoadError> {
    let has = |method| estimator.info.methods.contains(method);
    match fitted.text("response_method")? {
        "auto" | "predict_proba" if has(EstimatorMethod::PredictProba) => Ok(EstimatorMethod::PredictProba),
        "auto" | "decision_function" if has(EstimatorMethod::DecisionFunction) => Ok(EstimatorMethod::DecisionFunction),
        _ => Err(fitted.unsupported("response_method")),
    }
}

fn with_threshold(
    fitted: &FittedObject<'_>,
    estimator: Estimator,
    method: EstimatorMethod,
    least: f64,
    positive: Option<&Elements<'_>>,
) -> Result<EstimatorSpec, LoadError> {
    let labels = threshold_labels(fitted)?;
    let first = match positive {
        None => false,
        Some(label) => {
            let place = sub_estimators::positions(label, &labels).and_then(|places| places.first().copied());
            place.ok_or_else(|| fitted.unexpected("pos_label", "one of the classes"))? == 0
        }
    };
    let methods = delegate::classifier_methods(&estimator).with(EstimatorMethod::Predict);
    let features = estimator.info.features;
    Ok(EstimatorSpec::composed(
        methods,
        features,
        None,
        ThresholdClassifier { estimator, method, least, labels, first },
    ))
}

impl Evaluate for ThresholdClassifier {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        _: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        if method != EstimatorMethod::Predict {
            return self.estimator.call(method, data);
        }
        let scores = if self.first && self.method == EstimatorMethod::PredictProba {
            let both = self.estimator.numbers_of(self.method, data, 2)?;
            both.values.chunks_exact(2).map(|pair| pair[0]).collect()
        } else {
            let scores = self.estimator.score(self.method, data)?.values;
            if self.first { scores.into_iter().map(|score| -score).collect() } else { scores }
        };
        // From the threshold on it is the class that high scores stand for, below it the other one.
        let place = |&score: &f64| usize::from((score >= self.least) != self.first);
        Ok(TableData::Table(DenseTable::of_column(self.labels.take(scores.iter().map(place)))))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        self.estimator.evaluate.cost()
    }
}

/// Returns one label as an array of length one.
fn label(value: PickleValue<'_>) -> Option<Elements<'static>> {
    if let Some(text) = value.as_str() {
        return Some(Elements::Text(vec![Arc::from(text)]));
    }
    if let Some(flag) = value.as_bool() {
        return Some(Elements::Int(vec![i64::from(flag)].into(), IntType::Bool));
    }
    if let Some(integer) = value.as_i64() {
        return Some(Elements::Int(vec![integer].into(), IntType::I64));
    }
    value.as_f64().map(|number| Elements::F64(vec![number].into()))
}
