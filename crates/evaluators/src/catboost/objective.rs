//! What the loss function of a model makes of its raw values: labels, probabilities and other predictions.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use super::raw::{Labels, ModelInfo};
use crate::trees::LoadError;
use crate::trees::error::quote;

/// The losses whose predictions are the raw values.
const RAW: [&str; 29] = [
    "Cox",
    "Expectile",
    "GroupQuantile",
    "Huber",
    "LambdaMart",
    "LogCosh",
    "LogLinQuantile",
    "Lq",
    "MAE",
    "MAPE",
    "MultiQuantile",
    "MultiRMSE",
    "MultiRMSEWithMissingValues",
    "NumErrors",
    "PairLogit",
    "PairLogitPairwise",
    "Quantile",
    "QueryCrossEntropy",
    "QueryRMSE",
    "QuerySoftMax",
    "RMSE",
    "RMSPE",
    "SMAPE",
    "StochasticFilter",
    "StochasticRank",
    "SurvivalAft",
    "YetiRank",
    "YetiRankPairwise",
    "MedianAbsoluteError",
];

/// How raw values become predictions.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Objective {
    /// Raw values.
    Raw,
    /// The exponent of the raw value.
    Exponent,
    /// The mean, and the variance, whose logarithm is twice the raw value.
    Uncertainty,
    /// One of two labels. The second if the raw value is above the threshold.
    Binary { labels: Labels, threshold: f64 },
    /// One of several labels: that of the largest raw value.
    MultiClass {
        labels: Labels,
        /// The label of each raw value.
        visible: Vec<usize>,
        /// Whether probabilities are independent of each other.
        is_one_vs_all: bool,
    },
    /// For each label, whether it applies.
    MultiLabel { threshold: f64 },
}

#[derive(Deserialize)]
struct Params {
    loss_function: Option<Loss>,
}

#[derive(Deserialize)]
struct Loss {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct ClassParams {
    #[serde(default)]
    class_label_type: String,
    #[serde(default)]
    class_names: Vec<Value>,
    #[serde(default)]
    class_to_label: Vec<f64>,
    #[serde(default)]
    classes_count: i64,
}

impl Objective {
    /// Reads what the metadata say. `most` limits the number of classes.
    pub(super) fn read(info: &ModelInfo, dimension: usize, most: usize) -> Result<Self, LoadError> {
        let loss = match &info.params {
            Some(params) => {
                serde_json::from_str::<Params>(params).map_err(LoadError::Json)?.loss_function.map(|loss| loss.kind)
            }
            None => None,
        };
        let unsupported = |what| LoadError::Unsupported { what, name: quote(loss.as_deref().unwrap_or("none")) };
        let is_raw = loss.as_deref().is_none_or(|loss| RAW.contains(&loss));
        let Some(classes) = &info.class_params else {
            return match loss.as_deref() {
                _ if is_raw => Ok(Self::Raw),
                Some("Poisson" | "Tweedie") if dimension == 1 => Ok(Self::Exponent),
                Some("RMSEWithUncertainty") if dimension == 2 => Ok(Self::Uncertainty),
                Some("Logloss" | "CrossEntropy" | "Focal" | "MultiClass" | "MultiClassOneVsAll") => {
                    Err(unsupported("a model without classes of the loss function"))
                }
                _ => Err(unsupported("loss function")),
            };
        };
        let classes: ClassParams = serde_json::from_str(classes).map_err(LoadError::Json)?;
        let labels = classes.labels(most)?;
        let threshold = threshold(info.threshold.as_deref())?;
        match loss.as_deref() {
            Some("Logloss" | "CrossEntropy" | "Focal") if dimension == 1 && labels.len() == 2 => {
                Ok(Self::Binary { labels, threshold })
            }
            Some(loss @ ("MultiClass" | "MultiClassOneVsAll")) if dimension > 1 => {
                let visible = classes.visible(&labels, dimension)?;
                Ok(Self::MultiClass { labels, visible, is_one_vs_all: loss == "MultiClassOneVsAll" })
            }
            Some("MultiLogloss" | "MultiCrossEntropy") if dimension > 1 && labels.len() == dimension => {
                Ok(Self::MultiLabel { threshold })
            }
            _ => Err(unsupported("loss function")),
        }
    }

    /// Returns the number of raw values that a row has for users, which includes classes without training data.
    pub(super) fn columns(&self, dimension: usize) -> usize {
        match self {
            Self::MultiClass { labels, .. } => labels.len(),
            _ => dimension,
        }
    }

    /// Returns whether there are probabilities.
    pub(super) fn is_classifier(&self) -> bool {
        matches!(self, Self::Binary { .. } | Self::MultiClass { .. } | Self::MultiLabel { .. })
    }

    /// Moves the raw values of each row to the places of their classes. Classes without training data have minus infinity.
    pub(super) fn external(&self, raw: Vec<f64>, dimension: usize) -> Vec<f64> {
        let Self::MultiClass { labels, visible, .. } = self else { return raw };
        let is_same = visible.len() == labels.len() && visible.iter().enumerate().all(|(index, place)| index == *place);
        if is_same {
            return raw;
        }
        let mut moved = vec![f64::NEG_INFINITY; raw.len() / dimension * labels.len()];
        for (moved, raw) in moved.chunks_exact_mut(labels.len()).zip(raw.chunks_exact(dimension)) {
            for (place, value) in visible.iter().zip(raw) {
                moved[*place] = *value;
            }
        }
        moved
    }

    /// Returns probabilities for raw values, and how many a row has.
    pub(super) fn probabilities(&self, mut raw: Vec<f64>, columns: usize) -> (Vec<f64>, usize) {
        match self {
            Self::Binary { .. } => {
                let both = raw.into_iter().flat_map(|value| {
                    let probability = sigmoid(value);
                    [1.0 - probability, probability]
                });
                (both.collect(), 2)
            }
            Self::MultiClass { is_one_vs_all: false, .. } => {
                raw.chunks_exact_mut(columns).for_each(softmax);
                (raw, columns)
            }
            _ => {
                for value in &mut raw {
                    *value = sigmoid(*value);
                }
                (raw, columns)
            }
        }
    }
}

impl ClassParams {
    fn labels(&self, most: usize) -> Result<Labels, LoadError> {
        let field = |wanted, found: String| LoadError::Field { field: "class_params", wanted, found: quote(&found) };
        if self.class_names.is_empty() {
            let count = usize::try_from(self.classes_count).unwrap_or(0);
            if count > most {
                return Err(LoadError::TooLarge { what: "classes", count, limit: most });
            }
            if count > 0 {
                return Ok(Labels::Integers((0..self.classes_count).collect()));
            }
        }
        let numbers: Vec<Value> = self.class_to_label.iter().map(|label| (*label).into()).collect();
        let names = if self.class_names.is_empty() { &numbers } else { &self.class_names };
        let wrong = || field("class names of the declared type", self.class_label_type.clone());
        let labels = match self.class_label_type.as_str() {
            "Integer" => Labels::Integers(names.iter().map(integer).collect::<Option<_>>().ok_or_else(wrong)?),
            "Float" => Labels::Floats(names.iter().map(Value::as_f64).collect::<Option<_>>().ok_or_else(wrong)?),
            "Boolean" => Labels::Booleans(names.iter().map(Value::as_bool).collect::<Option<_>>().ok_or_else(wrong)?),
            "String" => {
                let texts = names.iter().map(|name| name.as_str().map(Arc::from));
                Labels::Texts(texts.collect::<Option<_>>().ok_or_else(wrong)?)
            }
            other => return Err(LoadError::Unsupported { what: "type of class labels", name: quote(other) }),
        };
        Ok(labels)
    }

    /// Returns the label of each raw value.
    fn visible(&self, labels: &Labels, dimension: usize) -> Result<Vec<usize>, LoadError> {
        let found = self.class_to_label.len();
        if found != dimension {
            return Err(LoadError::Count { field: "class_to_label", wanted: dimension, found });
        }
        if self.class_names.is_empty() && self.classes_count == 0 {
            return Ok((0..dimension).collect());
        }
        let mut is_used = vec![false; labels.len()];
        let places = self.class_to_label.iter().map(|&label| {
            let place =
                whole(label).and_then(|place| usize::try_from(place).ok()).filter(|place| *place < labels.len());
            place.filter(|place| !std::mem::replace(&mut is_used[*place], true)).ok_or_else(|| LoadError::Field {
                field: "class_to_label",
                wanted: "different classes",
                found: label.to_string(),
            })
        });
        places.collect()
    }
}

fn integer(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| value.as_f64().and_then(whole))
}

/// Returns a number without fraction as an integer.
#[expect(clippy::cast_possible_truncation, reason = "the number is a small integer")]
fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < 1e15).then_some(number as i64)
}

/// Returns the raw value above which the second label is predicted.
fn threshold(probability: Option<&str>) -> Result<f64, LoadError> {
    let Some(text) = probability else { return Ok(0.0) };
    let probability = text.trim().parse::<f64>().ok().filter(|probability| *probability > 0.0 && *probability < 1.0);
    let probability = probability
        .ok_or_else(|| LoadError::Unsupported { what: "binclass_probability_threshold", name: quote(text) })?;
    Ok(-(1.0 / probability - 1.0).ln())
}

/// Returns the square of the exponent, as the library computes it.
pub(super) fn variance(value: f64) -> f64 {
    (2.0 * value).exp()
}

fn sigmoid(value: f64) -> f64 {
    1.0 / (1.0 + (-value).exp())
}

fn softmax(values: &mut [f64]) {
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for value in &mut *values {
        *value = (*value - most).exp();
        sum += *value;
    }
    for value in values {
        *value /= sum;
    }
}

/// Returns the index of the largest value, the first of equal ones.
pub(super) fn argmax(values: &[f64]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}
