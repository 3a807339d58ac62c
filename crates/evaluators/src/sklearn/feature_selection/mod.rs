//! Feature selection.

mod importance;

use super::error::{LoadError, PredictError};
use super::estimator::{Estimator, EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::spec::{ClassTable, EstimatorSpec};
use crate::pickle::NumpyArray;
use crate::table::TableData;

pub(super) const CLASSES: ClassTable = &[
    ("feature_selection.GenericUnivariateSelect", generic),
    ("feature_selection.RFE", recursive),
    ("feature_selection.RFECV", recursive),
    ("feature_selection.SelectFdr", discovery),
    ("feature_selection.SelectFpr", positive),
    ("feature_selection.SelectFromModel", model),
    ("feature_selection.SelectFwe", family_wise),
    ("feature_selection.SelectKBest", best),
    ("feature_selection.SelectPercentile", percentile),
    ("feature_selection.SequentialFeatureSelector", sequential),
    ("feature_selection.VarianceThreshold", variance),
];

/// The selected features, and the estimator that makes predictions from them, if there is one.
#[derive(Debug)]
struct Selection {
    places: Vec<usize>,
    estimator: Option<Estimator>,
}

fn family(mask: &[bool], estimator: Option<Estimator>) -> EstimatorSpec {
    let places = mask.iter().enumerate().filter(|(_, kept)| **kept).map(|(place, _)| place).collect();
    let own = estimator.as_ref().map_or(MethodSet::NONE, |estimator| estimator.info.methods);
    let methods = own.with(EstimatorMethod::Transform);
    EstimatorSpec::new(methods, mask.len(), Selection { places, estimator })
}

fn variance(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let threshold = fitted.number("threshold")?;
    let variances = fitted.floats("variances_")?;
    Ok(family(&variances.iter().map(|&variance| variance > threshold).collect::<Vec<_>>(), None))
}

/// Reads the scores that features are compared by. A missing score is the lowest.
fn scores(fitted: &FittedObject<'_>) -> Result<Vec<f64>, LoadError> {
    let scores = fitted.floats("scores_")?;
    Ok(scores.into_iter().map(|score| if score.is_nan() { f64::MIN } else { score }).collect())
}

fn best(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    best_of(fitted, "k")
}

fn best_of(fitted: &FittedObject<'_>, parameter: &'static str) -> Result<EstimatorSpec, LoadError> {
    let scores = scores(fitted)?;
    if fitted.text_if(parameter) == Some("all") {
        return Ok(family(&vec![true; scores.len()], None));
    }
    let count = fitted.size(parameter)?.min(scores.len());
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&one, &other| scores[one].total_cmp(&scores[other]));
    let mut mask = vec![false; scores.len()];
    for &place in &order[scores.len() - count..] {
        mask[place] = true;
    }
    Ok(family(&mask, None))
}

fn percentile(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    percentile_of(fitted, "percentile")
}

fn percentile_of(fitted: &FittedObject<'_>, parameter: &'static str) -> Result<EstimatorSpec, LoadError> {
    let share = fitted.number(parameter)?;
    let scores = scores(fitted)?;
    if scores.is_empty() || !(0.0..=100.0).contains(&share) {
        return Err(fitted.unexpected(parameter, "a percentage of features"));
    }
    if share.total_cmp(&100.0).is_eq() || share == 0.0 {
        return Ok(family(&vec![share > 0.0; scores.len()], None));
    }
    let threshold = quantile(&scores, (100.0 - share) / 100.0);
    let mut mask: Vec<bool> = scores.iter().map(|&score| score > threshold).collect();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of features"
    )]
    let most = (scores.len() as f64 * share / 100.0) as usize;
    let left = most.saturating_sub(mask.iter().filter(|kept| **kept).count());
    let ties = scores.iter().enumerate().filter(|(_, score)| score.total_cmp(&threshold).is_eq());
    for (place, _) in ties.take(left) {
        mask[place] = true;
    }
    Ok(family(&mask, None))
}

/// Returns NumPy's quantile of numbers, of which there is at least one.
fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "a count of features")]
    let place = share * (sorted.len() - 1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place among features")]
    let index = (place.floor() as usize).min(sorted.len() - 1);
    let (low, high) = (sorted[index], sorted[(index + 1).min(sorted.len() - 1)]);
    let between = place - place.floor();
    if between >= 0.5 { high - (high - low) * (1.0 - between) } else { low + (high - low) * between }
}

/// Selects the features whose p-values are below a limit, which may depend on the p-values.
fn below(
    fitted: &FittedObject<'_>,
    limit: impl Fn(&[f64]) -> Option<f64>,
    inclusive: bool,
) -> Result<EstimatorSpec, LoadError> {
    let values = fitted.floats("pvalues_")?;
    let limit = limit(&values);
    let kept = |&value: &f64| limit.is_some_and(|limit| value < limit || inclusive && value <= limit);
    Ok(family(&values.iter().map(kept).collect::<Vec<_>>(), None))
}

fn positive(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let alpha = fitted.number("alpha")?;
    below(fitted, |_| Some(alpha), false)
}

#[expect(clippy::cast_precision_loss, reason = "counts of features")]
fn discovery_of(fitted: &FittedObject<'_>, alpha: f64) -> Result<EstimatorSpec, LoadError> {
    let limit = |values: &[f64]| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let step = alpha / values.len() as f64;
        let within = sorted.iter().enumerate().filter(|(place, value)| **value <= step * (place + 1) as f64);
        within.map(|(_, &value)| value).next_back()
    };
    below(fitted, limit, true)
}

fn discovery(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    discovery_of(fitted, fitted.number("alpha")?)
}

#[expect(clippy::cast_precision_loss, reason = "a count of features")]
fn family_wise_of(fitted: &FittedObject<'_>, alpha: f64) -> Result<EstimatorSpec, LoadError> {
    below(fitted, |values| Some(alpha / values.len() as f64), false)
}

fn family_wise(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    family_wise_of(fitted, fitted.number("alpha")?)
}

fn generic(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    match fitted.text("mode")? {
        "percentile" => percentile_of(fitted, "param"),
        "k_best" => best_of(fitted, "param"),
        "fpr" => {
            let alpha = fitted.number("param")?;
            below(fitted, |_| Some(alpha), false)
        }
        "fdr" => discovery_of(fitted, fitted.number("param")?),
        "fwe" => family_wise_of(fitted, fitted.number("param")?),
        _ => Err(fitted.unsupported("mode")),
    }
}

/// Reads the mask of the features that the fit selected.
fn support(fitted: &FittedObject<'_>) -> Result<Vec<bool>, LoadError> {
    let mask =
        fitted.require("support_")?.as_array().and_then(NumpyArray::numbers).and_then(|numbers| numbers.to_i64());
    let mask = mask.ok_or_else(|| fitted.unexpected("support_", "a mask of features"))?;
    fitted.spend(mask.len())?;
    Ok(mask.into_iter().map(|kept| kept != 0).collect())
}

fn recursive(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let mask = support(fitted)?;
    let estimator = fitted.estimator(fitted.require("estimator_")?)?;
    let kept = mask.iter().filter(|kept| **kept).count();
    if estimator.info.features.is_some_and(|features| features != kept) {
        return Err(fitted.unexpected("support_", "as many features as the estimator has"));
    }
    Ok(family(&mask, Some(estimator)))
}

fn sequential(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    Ok(family(&support(fitted)?, None))
}

fn model(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let prefit = fitted.flag("prefit")? && fitted.get("estimator_").is_none();
    let estimator = fitted.require(if prefit { "estimator" } else { "estimator_" })?;
    let scores = importance::importances(fitted, estimator)?;
    let threshold = importance::threshold(fitted, estimator, &scores)?;
    let mut mask = vec![true; scores.len()];
    // Since 1.1 the number may be the result of a function, which is stored in a separate attribute.
    let attribute = if fitted.get("max_features_").is_some() { "max_features_" } else { "max_features" };
    if fitted.get(attribute).is_some() {
        let most = fitted.size(attribute)?;
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&one, &other| scores[other].total_cmp(&scores[one]));
        mask.fill(false);
        for &place in order.iter().take(most) {
            mask[place] = true;
        }
    }
    for (kept, &score) in mask.iter_mut().zip(&scores) {
        *kept &= score >= threshold;
    }
    Ok(family(&mask, None))
}

impl Evaluate for Selection {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        _: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let selected = data.select(&self.places);
        match (&self.estimator, method) {
            (
                Some(estimator),
                EstimatorMethod::Predict | EstimatorMethod::PredictProba | EstimatorMethod::DecisionFunction,
            ) => estimator.call(method, &super::concatenate::hstack(&[selected], data.rows())),
            _ => Ok(super::concatenate::hstack(&[selected], data.rows())),
        }
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        20 + self.places.len() as u64 + self.estimator.as_ref().map_or(0, |estimator| estimator.evaluate.cost())
    }
}
