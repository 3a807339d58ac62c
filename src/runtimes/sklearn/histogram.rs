//! Histogram-based gradient boosting.

use super::classes::Family;
use super::data::{Data, Elements, Table};
use super::error::{LoadError, PredictError};
use super::estimator::{About, Evaluate, Method, Methods};
use super::fitted::Fitted;
use super::numerics::{argmax, expit, softmax};
use crate::pickle::Value;

/// Marks a leaf.
const LEAF: u32 = u32::MAX;
/// Rows that go through one tree before the next one is looked at.
const BLOCK: usize = 64;

/// A split, or a leaf.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// Values up to this one go left; of a leaf, its value.
    threshold: f64,
    feature: u32,
    left: u32,
    right: u32,
    missing_left: bool,
}

/// What becomes of the sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Identity,
    Exp,
    /// Probabilities of classes.
    Classes,
}

#[derive(Debug)]
struct Boosted {
    /// In the order in which they are added; each to the sum of its place modulo the number of sums.
    trees: Vec<Vec<Node>>,
    baseline: Vec<f64>,
    features: usize,
    link: Link,
    labels: Option<Elements<'static>>,
}

pub(super) fn classifier(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    match fitted.text("loss")? {
        "log_loss" | "auto" | "binary_crossentropy" | "categorical_crossentropy" => {}
        _ => return Err(fitted.unsupported("loss")),
    }
    let labels = fitted.labels("classes_")?;
    if labels.len() < 2 {
        return Err(fitted.unexpected("classes_", "at least two classes"));
    }
    let sums = if labels.len() == 2 { 1 } else { labels.len() };
    boosted(fitted, Link::Classes, sums, Some(labels))
}

pub(super) fn regressor(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let link = match fitted.text("loss")? {
        "squared_error" | "least_squares" | "absolute_error" | "least_absolute_deviation" | "quantile" => {
            Link::Identity
        }
        "poisson" | "gamma" => Link::Exp,
        _ => return Err(fitted.unsupported("loss")),
    };
    boosted(fitted, link, 1, None)
}

fn boosted(
    fitted: &Fitted<'_>,
    link: Link,
    sums: usize,
    labels: Option<Elements<'static>>,
) -> Result<Family, LoadError> {
    if fitted.get("_preprocessor").is_some() {
        return Err(fitted.unsupported("categorical_features"));
    }
    let features = fitted.size("n_features_in_")?;
    if features == 0 {
        return Err(fitted.unexpected("n_features_in_", "at least one feature"));
    }
    let baseline = fitted.floats_of("_baseline_prediction", sums)?;
    let mut trees = Vec::new();
    for iteration in fitted.items("_predictors")? {
        let own = iteration.items().ok_or_else(|| fitted.unexpected("_predictors", "lists of trees"))?;
        fitted.count("_predictors", sums, own.len())?;
        for tree in own {
            trees.push(tree_of(fitted, tree, features)?);
        }
    }
    let methods = match link {
        Link::Classes => Methods::PREDICT.and(Method::PredictProba).and(Method::DecisionFunction),
        Link::Identity | Link::Exp => Methods::PREDICT,
    };
    Ok(Family::new(methods, features, Boosted { trees, baseline, features, link, labels }))
}

fn tree_of<'a>(fitted: &Fitted<'a>, tree: Value<'a>, features: usize) -> Result<Vec<Node>, LoadError> {
    let tree = fitted.part(tree)?;
    let wanted = || tree.unexpected("nodes", "the nodes of a tree");
    let nodes = tree.need("nodes")?.as_array().ok_or_else(wanted)?;
    tree.spend(nodes.len())?;
    let integers = |name| nodes.field(name).and_then(|numbers| numbers.to_i64()).ok_or_else(wanted);
    let floats = |name| nodes.field(name).map(|numbers| numbers.to_f64()).ok_or_else(wanted);
    if integers("is_categorical")?.iter().any(|&flag| flag != 0) {
        return Err(fitted.unsupported("categorical_features"));
    }
    let (left, right, feature) = (integers("left")?, integers("right")?, integers("feature_idx")?);
    let (leaf, missing) = (integers("is_leaf")?, integers("missing_go_to_left")?);
    let (values, thresholds) = (floats("value")?, floats("num_threshold")?);
    let count = nodes.len();
    let node = |index: usize| {
        if leaf[index] != 0 {
            return Some(Node { threshold: values[index], feature: LEAF, left: 0, right: 0, missing_left: false });
        }
        // Each child stands behind its parent, so that a walk ends.
        let child = |child: i64| {
            let place = usize::try_from(child).ok().filter(|&place| index < place && place < count)?;
            u32::try_from(place).ok()
        };
        let feature = usize::try_from(feature[index]).ok().filter(|&feature| feature < features)?;
        Some(Node {
            threshold: thresholds[index],
            feature: u32::try_from(feature).ok()?,
            left: child(left[index])?,
            right: child(right[index])?,
            missing_left: missing[index] != 0,
        })
    };
    let nodes: Vec<Node> = (0..count).map(node).collect::<Option<_>>().ok_or_else(wanted)?;
    if nodes.is_empty() { Err(wanted()) } else { Ok(nodes) }
}

/// The value of the leaf that a row ends in.
fn leaf(nodes: &[Node], row: &[f64]) -> f64 {
    let mut node = nodes[0];
    while node.feature != LEAF {
        let value = row[node.feature as usize];
        let left = if value.is_nan() { node.missing_left } else { value <= node.threshold };
        node = nodes[if left { node.left } else { node.right } as usize];
    }
    node.threshold
}

impl Boosted {
    fn sums(&self, x: &[f64]) -> Vec<f64> {
        let width = self.baseline.len();
        let mut sums = self.baseline.repeat(x.len() / self.features);
        for (x, sums) in x.chunks(BLOCK * self.features).zip(sums.chunks_mut(BLOCK * width)) {
            for (index, tree) in self.trees.iter().enumerate() {
                let own = sums.iter_mut().skip(index % width).step_by(width);
                for (row, sum) in x.chunks_exact(self.features).zip(own) {
                    *sum += leaf(tree, row);
                }
            }
        }
        sums
    }
}

impl Evaluate for Boosted {
    fn call(&self, method: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        // Missing values are what they are, and infinite ones too.
        let x = about.unchecked(data)?;
        let mut sums = self.sums(&x.to_f64());
        let width = self.baseline.len();
        if self.link == Link::Exp {
            for sum in &mut sums {
                *sum = sum.exp();
            }
        }
        let (Some(labels), false) = (&self.labels, method == Method::DecisionFunction) else {
            return Ok(Data::Table(Table::of_f64(sums, width)));
        };
        Ok(Data::Table(match method {
            Method::PredictProba if width == 1 => {
                let both = sums.iter().map(|&sum| expit(sum)).flat_map(|positive| [1.0 - positive, positive]);
                Table::of_f64(both.collect(), 2)
            }
            Method::PredictProba => {
                sums.chunks_exact_mut(width).for_each(softmax);
                Table::of_f64(sums, width)
            }
            _ if width == 1 => Table::of_column(labels.take(sums.iter().map(|&sum| usize::from(sum > 0.0)))),
            _ => Table::of_column(labels.take(sums.chunks_exact(width).map(argmax))),
        }))
    }

    fn cost(&self) -> u64 {
        self.trees.iter().map(|tree| 8 * u64::from(tree.len().ilog2()) + 5).sum()
    }
}
