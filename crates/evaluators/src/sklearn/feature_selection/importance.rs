//! Feature importances, by which `SelectFromModel` selects features.

use crate::pickle::PickleValue;
use crate::sklearn::error::LoadError;
use crate::sklearn::fitted::{FittedObject, SklearnVersion};
use crate::sklearn::numerics::pairwise_sum;

/// Returns the importance of each feature to `estimator`, as the selector `fitted` requests it.
pub(super) fn importances(fitted: &FittedObject<'_>, estimator: PickleValue<'_>) -> Result<Vec<f64>, LoadError> {
    let part = fitted.part(estimator)?;
    let coefficients = part.get("coef_").is_some();
    match fitted.text_if("importance_getter") {
        None if fitted.get("importance_getter").is_none() => {}
        Some("auto") => {}
        Some("coef_") if coefficients => {}
        Some("feature_importances_") if !coefficients => {}
        _ => return Err(fitted.unsupported("importance_getter")),
    }
    if !coefficients {
        return ensemble_importances(&part);
    }
    let matrix = part.matrix("coef_")?;
    let flat = part.require("coef_")?.as_array().is_some_and(|array| array.shape.len() == 1);
    if flat {
        return Ok(matrix.values.into_iter().map(f64::abs).collect());
    }
    let order = if fitted.get("norm_order").is_some() { fitted.number("norm_order")? } else { 1.0 };
    let column = |place: usize| matrix.values.iter().skip(place).step_by(matrix.columns).map(|value| value.abs());
    let norm = |place: usize| {
        if order.is_infinite() && order > 0.0 {
            Some(column(place).fold(0.0, f64::max))
        } else if order.total_cmp(&1.0).is_eq() {
            Some(column(place).sum())
        } else if order.total_cmp(&2.0).is_eq() {
            Some(column(place).map(|value| value * value).sum::<f64>().sqrt())
        } else {
            None
        }
    };
    let norms: Option<Vec<f64>> = (0..matrix.columns).map(norm).collect();
    norms.ok_or_else(|| fitted.unsupported("norm_order"))
}

/// Returns how much each feature lowers the impurity of trees.
fn ensemble_importances(part: &FittedObject<'_>) -> Result<Vec<f64>, LoadError> {
    let class = part.class().rsplit('.').next().unwrap_or_default();
    match class {
        "DecisionTreeClassifier" | "DecisionTreeRegressor" | "ExtraTreeClassifier" | "ExtraTreeRegressor" => {
            Ok(tree_importances(part, true)?.0)
        }
        "RandomForestClassifier" | "RandomForestRegressor" | "ExtraTreesClassifier" | "ExtraTreesRegressor" => {
            average(part, part.items("estimators_")?, true)
        }
        "GradientBoostingClassifier" | "GradientBoostingRegressor" => average(part, part.items("estimators_")?, false),
        _ => Err(LoadError::Parameter {
            class: part.class().to_owned(),
            parameter: "feature_importances_",
            value: "computed by the estimator".to_owned(),
        }),
    }
}

/// Returns the average over the trees that have splits, normalized to sum to one.
fn average(part: &FittedObject<'_>, trees: Vec<PickleValue<'_>>, normalized: bool) -> Result<Vec<f64>, LoadError> {
    let mut sums: Vec<f64> = Vec::new();
    for tree in trees {
        let (importances, nodes) = tree_importances(&part.part(tree)?, normalized)?;
        sums.resize(sums.len().max(importances.len()), 0.0);
        if nodes > 1 {
            sums.iter_mut().zip(&importances).for_each(|(sum, importance)| *sum += importance);
        }
    }
    Ok(shares(sums))
}

fn shares(mut values: Vec<f64>) -> Vec<f64> {
    let total: f64 = values.iter().sum();
    if total > 0.0 {
        for value in &mut values {
            *value /= total;
        }
    }
    values
}

/// Returns the importances of one tree, and how many nodes it has.
fn tree_importances(part: &FittedObject<'_>, normalized: bool) -> Result<(Vec<f64>, usize), LoadError> {
    let tree = part.part(part.require("tree_")?)?;
    let wanted = || tree.unexpected("nodes", "the nodes of a tree");
    let features = tree.value().arguments().first().and_then(|count| count.as_i64());
    let features = features.and_then(|count| usize::try_from(count).ok()).ok_or_else(wanted)?;
    let nodes = tree.require("nodes")?.as_array().ok_or_else(wanted)?;
    tree.spend(nodes.len().saturating_mul(5).saturating_add(features))?;
    let integers = |name| nodes.field(name).and_then(|numbers| numbers.to_i64()).ok_or_else(wanted);
    let floats = |name| nodes.field(name).map(|numbers| numbers.to_f64()).ok_or_else(wanted);
    let (left, right, feature) = (integers("left_child")?, integers("right_child")?, integers("feature")?);
    let (impurity, weight) = (floats("impurity")?, floats("weighted_n_node_samples")?);
    let mut importances = vec![0.0; features];
    let share = |node: i64| {
        let node = usize::try_from(node).ok()?;
        Some(weight.get(node)? * impurity.get(node)?)
    };
    for node in 0..nodes.len() {
        if left[node] == -1 {
            continue;
        }
        let slot = usize::try_from(feature[node]).ok().and_then(|feature| importances.get_mut(feature));
        let (left, right) = (share(left[node]).ok_or_else(wanted)?, share(right[node]).ok_or_else(wanted)?);
        *slot.ok_or_else(wanted)? += weight[node] * impurity[node] - left - right;
    }
    let root = weight.first().copied().ok_or_else(wanted)?;
    for importance in &mut importances {
        *importance /= root;
    }
    let importances = if normalized { shares(importances) } else { importances };
    Ok((importances, nodes.len()))
}

/// Returns the importance that a feature needs to be selected.
pub(super) fn threshold(
    fitted: &FittedObject<'_>,
    estimator: PickleValue<'_>,
    scores: &[f64],
) -> Result<f64, LoadError> {
    let Some(threshold) = fitted.get("threshold") else {
        return Ok(if prefers_zeros(fitted, estimator)? { 1e-5 } else { mean(scores) });
    };
    if let Some(number) = threshold.as_f64() {
        return Ok(number);
    }
    let text = threshold.as_str().ok_or_else(|| fitted.unsupported("threshold"))?;
    let (scale, reference) = text.split_once('*').map_or((None, text), |(scale, reference)| (Some(scale), reference));
    let reference = match reference.trim() {
        "mean" => mean(scores),
        "median" => median(scores),
        _ => return Err(fitted.unsupported("threshold")),
    };
    match scale {
        None => Ok(reference),
        Some(scale) => {
            let scale: f64 = scale.trim().parse().map_err(|_| fitted.unsupported("threshold"))?;
            Ok(scale * reference)
        }
    }
}

/// Returns whether the estimator was fitted so that unimportant features have coefficients of zero.
fn prefers_zeros(fitted: &FittedObject<'_>, estimator: PickleValue<'_>) -> Result<bool, LoadError> {
    let part = fitted.part(estimator)?;
    let class = part.class().rsplit('.').next().unwrap_or_default();
    if part.text_if("penalty") == Some("l1") || class.contains("Lasso") {
        return Ok(true);
    }
    let one = |attribute: &'static str| {
        let all = if part.get(attribute).is_some() { part.floats(attribute)? } else { Vec::new() };
        // NumPy's `isclose`.
        Ok::<_, LoadError>(!all.is_empty() && all.iter().all(|value| (value - 1.0).abs() <= 1e-8 + 1e-5))
    };
    let version = fitted.version();
    match class {
        "ElasticNet" if version >= SklearnVersion(1, 1) => one("l1_ratio"),
        "ElasticNetCV" if version >= SklearnVersion(1, 1) => one("l1_ratio_"),
        "LogisticRegression" if version >= SklearnVersion(1, 8) => one("l1_ratio"),
        "LogisticRegressionCV" if version >= SklearnVersion(1, 8) => one("l1_ratio_"),
        _ => Ok(false),
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of features")]
fn mean(values: &[f64]) -> f64 {
    pairwise_sum(values) / values.len() as f64
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (Some(&upper), 0) => f64::midpoint(sorted[middle - 1], upper),
        (Some(&only), _) => only,
        (None, _) => f64::NAN,
    }
}
