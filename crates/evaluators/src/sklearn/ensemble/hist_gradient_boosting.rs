//! Histogram-based gradient boosting.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::pickle::PickleValue;
use crate::sklearn::error::{LoadError, PredictError, Unexplained};
use crate::sklearn::estimator::{ContributionSpace, Estimator, EstimatorInfo, Evaluate, Explain};
use crate::sklearn::explain::{Contributions, ExplainedTree, SummedTrees, contribution_cost};
use crate::sklearn::fitted::{FittedObject, SklearnVersion};
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::numerics::{argmax, expit, softmax};
use crate::sklearn::spec::EstimatorSpec;
use crate::table::{DenseTable, Elements, TableData};
use crate::trees::{EnsembleOutput, NoContributions, PredictedValues, Prediction};

/// How many rows go through a tree before the next tree is evaluated.
const BLOCK: usize = 64;
/// How many rows are walked in lockstep, so that their memory accesses overlap.
const LANES: usize = 8;

/// A split or a leaf.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// The largest value that goes left or, in a leaf, the leaf's value.
    threshold: f64,
    feature: u32,
    /// The left and the right child. Both children of a leaf are the leaf itself.
    children: [u32; 2],
    missing_left: bool,
    /// The number of training rows.
    cover: u32,
    /// The index of the set that goes left, for a categorical split; otherwise `NUMERIC`.
    set: u32,
}

/// Marks a numeric split.
const NUMERIC: u32 = u32::MAX;

/// A set of categories, which are numbers below 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CategorySet([u32; 8]);

impl CategorySet {
    /// Creates a set from its eight words, if they are valid.
    fn of(words: &[i64]) -> Option<Self> {
        let words: Vec<u32> = words.iter().map(|&word| u32::try_from(word).ok()).collect::<Option<_>>()?;
        words.try_into().ok().map(Self)
    }

    fn add(&mut self, category: u8) {
        self.0[usize::from(category / 32)] |= 1 << (category % 32);
    }

    const fn has(&self, category: u8) -> bool {
        self.0[(category / 32) as usize] >> (category % 32) & 1 == 1
    }
}

/// One tree. Each child comes after its parent, so every walk ends.
#[derive(Debug)]
struct Tree {
    nodes: Vec<Node>,
    /// The sets that go left at categorical splits.
    sets: Vec<CategorySet>,
    /// Whether negative categories are missing values, as they have been since 1.3.
    negative_missing: bool,
    depth: usize,
}

/// How sums become predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Link {
    Identity,
    Exp,
    /// Sums become probabilities of classes.
    Classes,
}

#[derive(Debug)]
struct HistGradientBoosting {
    /// All trees, in the order in which they are added. A tree's sum is its index modulo the number of sums.
    trees: Vec<Tree>,
    baseline: Vec<f64>,
    features: usize,
    /// Encodes the categorical features as numbers and moves them to the front, since 1.4.
    encoder: Option<Estimator>,
    /// For each feature of the trees, its place in a row before it is encoded. `None` if the file does not say.
    places: Option<Vec<usize>>,
    names: Option<Vec<String>>,
    link: Link,
    labels: Option<Elements<'static>>,
    contributions: Contributions,
}

pub(super) fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
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

pub(super) fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
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
    fitted: &FittedObject<'_>,
    link: Link,
    sums: usize,
    labels: Option<Elements<'static>>,
) -> Result<EstimatorSpec, LoadError> {
    let encoder = fitted.get("_preprocessor").map(|encoder| fitted.estimator(encoder)).transpose()?;
    if encoder.as_ref().is_some_and(|encoder| !encoder.info.methods.contains(EstimatorMethod::Transform)) {
        return Err(fitted.unexpected("_preprocessor", "a transformer"));
    }
    let features = fitted.size("n_features_in_")?;
    if features == 0 {
        return Err(fitted.unexpected("n_features_in_", "at least one feature"));
    }
    let baseline = fitted.floats_of("_baseline_prediction", sums)?;
    let known = known_categories(fitted, features)?;
    let mut trees = Vec::new();
    for iteration in fitted.items("_predictors")? {
        let own = iteration.items().ok_or_else(|| fitted.unexpected("_predictors", "lists of trees"))?;
        fitted.check_count("_predictors", sums, own.len())?;
        for tree in own {
            trees.push(tree_of(fitted, tree, &known)?);
        }
    }
    let methods = match link {
        Link::Classes => MethodSet::PREDICT.with(EstimatorMethod::PredictProba).with(EstimatorMethod::DecisionFunction),
        Link::Identity | Link::Exp => MethodSet::PREDICT,
    };
    let with_encoder = encoder.is_some();
    let places = if with_encoder { places(fitted, features) } else { Some((0..features).collect()) };
    let names = fitted.texts("feature_names_in_").ok().filter(|names| names.len() == features);
    let contributions = Contributions::default();
    let boosted =
        HistGradientBoosting { trees, baseline, features, encoder, places, names, link, labels, contributions };
    // The encoder selects its columns by itself.
    let family = EstimatorSpec::composed(methods, if with_encoder { None } else { Some(features) }, None, boosted);
    Ok(if with_encoder { family.without_names() } else { family })
}

/// Returns the place of each feature of the trees in a row that is not encoded: categories come first.
fn places(fitted: &FittedObject<'_>, features: usize) -> Option<Vec<usize>> {
    let categorical = fitted.sizes("is_categorical_", features).ok()?;
    let (first, last): (Vec<usize>, Vec<usize>) = (0..features).partition(|&feature| categorical[feature] != 0);
    Some(first.into_iter().chain(last).collect())
}

/// Reads the categories that each feature had in the fit, or `None` for a numeric feature.
fn known_categories(fitted: &FittedObject<'_>, features: usize) -> Result<Vec<Option<CategorySet>>, LoadError> {
    let Some(mapper) = fitted.get("_bin_mapper") else { return Ok(vec![None; features]) };
    let mapper = fitted.part(mapper)?;
    let categorical = mapper.sizes("is_categorical_", features)?;
    let thresholds = mapper.items("bin_thresholds_")?;
    mapper.check_count("bin_thresholds_", features, thresholds.len())?;
    let set = |(flag, values): (usize, PickleValue<'_>)| {
        if flag == 0 {
            return Ok(None);
        }
        let mut set = CategorySet([0; 8]);
        let values = values.as_array().and_then(|values| values.numbers().map(|numbers| numbers.to_f64()));
        for value in values.ok_or_else(|| mapper.unexpected("bin_thresholds_", "categories"))? {
            set.add(category(value));
        }
        Ok(Some(set))
    };
    categorical.into_iter().zip(thresholds).map(set).collect()
}

/// Converts a number to a category: the processor's cast to an integer, of which the lowest byte is kept.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the library truncates too")]
fn category(value: f64) -> u8 {
    let fits = value > f64::from(i32::MIN) - 1.0 && value < f64::from(i32::MAX) + 1.0;
    if fits { value as i32 as u8 } else { 0 }
}

/// Returns the set that goes left at a categorical split: the split's own categories, and the unknown ones if missing
/// values go left.
fn left_categories(left: CategorySet, known: CategorySet, missing_left: bool) -> CategorySet {
    if missing_left { CategorySet(std::array::from_fn(|word| left.0[word] | !known.0[word])) } else { left }
}

fn tree_of<'a>(
    fitted: &FittedObject<'a>,
    tree: PickleValue<'a>,
    known: &[Option<CategorySet>],
) -> Result<Tree, LoadError> {
    let tree = fitted.part(tree)?;
    let wanted = || tree.unexpected("nodes", "the nodes of a tree");
    let nodes = tree.require("nodes")?.as_array().ok_or_else(wanted)?;
    tree.spend(nodes.len())?;
    let integers = |name| nodes.field(name).and_then(|numbers| numbers.to_i64()).ok_or_else(wanted);
    let floats = |name| nodes.field(name).map(|numbers| numbers.to_f64()).ok_or_else(wanted);
    let (categorical, places) = (integers("is_categorical")?, integers("bitset_idx")?);
    let words = match tree.get("raw_left_cat_bitsets") {
        Some(words) => words.as_array().and_then(|words| words.numbers()?.to_i64()).ok_or_else(wanted)?,
        None => Vec::new(),
    };
    fitted.spend(words.len())?;
    let mut sets = Vec::new();
    let (left, right, feature) = (integers("left")?, integers("right")?, integers("feature_idx")?);
    let (leaf, missing, covers) = (integers("is_leaf")?, integers("missing_go_to_left")?, integers("count")?);
    let (values, thresholds) = (floats("value")?, floats("num_threshold")?);
    let count = nodes.len();
    let mut depths = vec![0_usize; count];
    let node = |index: usize| {
        let cover = u32::try_from(covers[index]).ok()?;
        if leaf[index] != 0 {
            let children = [u32::try_from(index).ok()?; 2];
            return Some(Node {
                threshold: values[index],
                feature: 0,
                children,
                missing_left: false,
                cover,
                set: NUMERIC,
            });
        }
        // Each child comes after its parent, so every walk ends.
        let mut child = |child: i64| {
            let place = usize::try_from(child).ok().filter(|&place| index < place && place < count)?;
            // A second parent would make it no tree.
            (depths[place] == 0).then(|| depths[place] = depths[index] + 1)?;
            u32::try_from(place).ok()
        };
        let feature = usize::try_from(feature[index]).ok().filter(|&feature| feature < known.len())?;
        let missing_left = missing[index] != 0;
        let mut set = NUMERIC;
        if categorical[index] != 0 {
            let place = usize::try_from(places[index]).ok()?.checked_mul(8)?;
            let left = CategorySet::of(words.get(place..place.checked_add(8)?)?)?;
            set = u32::try_from(sets.len()).ok()?;
            sets.push(left_categories(left, known[feature]?, missing_left));
        }
        Some(Node {
            threshold: thresholds[index],
            feature: u32::try_from(feature).ok()?,
            children: [child(left[index])?, child(right[index])?],
            missing_left,
            cover,
            set,
        })
    };
    let nodes: Vec<Node> = (0..count).map(node).collect::<Option<_>>().ok_or_else(wanted)?;
    let depth = depths.into_iter().max().ok_or_else(wanted)?;
    Ok(Tree { nodes, sets, negative_missing: fitted.version() >= SklearnVersion(1, 3), depth })
}

impl Tree {
    /// Returns the values of the leaves that rows end in.
    fn leaves<const N: usize>(&self, rows: [&[f64]; N]) -> [f64; N] {
        if self.sets.is_empty() {
            return self.walk(rows, |node, value| {
                let left = (value <= node.threshold) | value.is_nan() & node.missing_left;
                node.children[usize::from(!left)]
            });
        }
        self.walk(rows, |node, value| node.children[usize::from(!self.goes_left(node, value))])
    }

    /// Returns whether rows with this value of the feature go to the left child of a split.
    fn goes_left(&self, node: &Node, value: f64) -> bool {
        if value.is_nan() {
            node.missing_left
        } else if node.set == NUMERIC {
            value <= node.threshold
        } else if value < 0.0 && self.negative_missing {
            node.missing_left
        } else {
            self.sets[node.set as usize].has(category(value))
        }
    }

    /// Walks from node to node until no row moves.
    fn walk<const N: usize>(&self, rows: [&[f64]; N], next: impl Fn(&Node, f64) -> u32) -> [f64; N] {
        let mut places = [0; N];
        loop {
            let mut moved = false;
            for (place, row) in places.iter_mut().zip(rows) {
                let node = &self.nodes[*place as usize];
                let now = next(node, row[node.feature as usize]);
                moved |= now != *place;
                *place = now;
            }
            if !moved {
                return places.map(|place| self.nodes[place as usize].threshold);
            }
        }
    }
}

impl ExplainedTree for Tree {
    type Value = f64;

    fn cover(&self, node: u32) -> f64 {
        f64::from(self.nodes[node as usize].cover)
    }

    fn split(&self, node: u32) -> Option<(u32, [u32; 2])> {
        let Node { feature, children, .. } = self.nodes[node as usize];
        (children[0] != node).then_some((feature, children))
    }

    fn goes_first(&self, node: u32, value: f64) -> bool {
        self.goes_left(&self.nodes[node as usize], value)
    }

    fn leaf(&self, node: u32) -> &[f64] {
        std::slice::from_ref(&self.nodes[node as usize].threshold)
    }
}

impl HistGradientBoosting {
    /// Returns rows as the trees take them. Missing and infinite values are allowed.
    fn rows(&self, data: &TableData<'_>, info: &EstimatorInfo) -> Result<Vec<f64>, PredictError> {
        let numbered;
        let data = match &self.encoder {
            Some(encoder) => {
                numbered = encoder.call(EstimatorMethod::Transform, data)?;
                &numbered
            }
            None => data,
        };
        let x = info.unchecked(data)?;
        if x.columns != self.features {
            let (class, wanted) = (Arc::clone(&info.class), self.features);
            return Err(PredictError::Features { class, wanted, found: x.columns });
        }
        Ok(x.to_f64().into_owned())
    }

    fn summed(&self) -> SummedTrees<'_, Tree> {
        let (sums, features) = (self.baseline.len(), self.features);
        let trees = self.trees.iter().enumerate().map(|(index, tree)| (tree, index % sums)).collect();
        SummedTrees { trees, scale: 1.0, features, sums, width: 1 }
    }

    /// Returns the contributions of the features in the order of the request.
    fn contributions(
        &self,
        x: &[f64],
        (info, stop): (&EstimatorInfo, &AtomicBool),
    ) -> Result<Prediction, PredictError> {
        let features = self.features;
        let places = self.places.as_ref().ok_or_else(|| info.no_contributions(NoContributions::NoPlaces))?;
        let mut prediction = self.contributions.predict(&self.summed(), x, &self.baseline, (info, stop))?;
        if let (Some(_), PredictedValues::F64(found)) = (&self.encoder, &mut prediction.values) {
            let mut own = vec![0.0; features];
            for found in found.chunks_exact_mut(features + 1) {
                own.copy_from_slice(&found[..features]);
                for (&place, &value) in places.iter().zip(&own) {
                    found[place] = value;
                }
            }
        }
        Ok(prediction)
    }

    fn sums(&self, x: &[f64]) -> Vec<f64> {
        let width = self.baseline.len();
        let mut sums = self.baseline.repeat(x.len() / self.features);
        for (x, sums) in x.chunks(BLOCK * self.features).zip(sums.chunks_mut(BLOCK * width)) {
            for (index, tree) in self.trees.iter().enumerate() {
                let mut own = sums.iter_mut().skip(index % width).step_by(width);
                let groups = x.chunks_exact(LANES * self.features);
                let rest = groups.remainder();
                for rows in groups {
                    let row = |lane: usize| &rows[lane * self.features..(lane + 1) * self.features];
                    let values = tree.leaves::<LANES>(std::array::from_fn(row));
                    values.into_iter().zip(own.by_ref()).for_each(|(value, sum)| *sum += value);
                }
                for (row, sum) in rest.chunks_exact(self.features).zip(own) {
                    let [value] = tree.leaves([row]);
                    *sum += value;
                }
            }
        }
        sums
    }
}

impl Evaluate for HistGradientBoosting {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let mut sums = self.sums(&self.rows(data, info)?);
        let width = self.baseline.len();
        if self.link == Link::Exp {
            for sum in &mut sums {
                *sum = sum.exp();
            }
        }
        let (Some(labels), false) = (&self.labels, method == EstimatorMethod::DecisionFunction) else {
            return Ok(TableData::Table(DenseTable::of_f64(sums, width)));
        };
        Ok(TableData::Table(match method {
            EstimatorMethod::PredictProba if width == 1 => {
                let both = sums.iter().map(|&sum| expit(sum)).flat_map(|positive| [1.0 - positive, positive]);
                DenseTable::of_f64(both.collect(), 2)
            }
            EstimatorMethod::PredictProba => {
                sums.chunks_exact_mut(width).for_each(softmax);
                DenseTable::of_f64(sums, width)
            }
            _ if width == 1 => DenseTable::of_column(labels.take(sums.iter().map(|&sum| usize::from(sum > 0.0)))),
            _ => DenseTable::of_column(labels.take(sums.chunks_exact(width).map(argmax))),
        }))
    }

    fn cost(&self) -> u64 {
        let encoder = self.encoder.as_ref().map_or(0, |encoder| encoder.evaluate.cost());
        encoder + self.trees.iter().map(|tree| 8 * u64::from(tree.nodes.len().ilog2()) + 5).sum::<u64>()
    }

    fn explained<'a>(&'a self, info: &'a EstimatorInfo) -> Result<(&'a dyn Explain, &'a EstimatorInfo), Unexplained> {
        Ok((self, info))
    }

    fn limit_contributions(&mut self, bytes: usize) {
        self.contributions.limit = bytes;
    }
}

impl Explain for HistGradientBoosting {
    fn space(&self) -> ContributionSpace {
        ContributionSpace::Margin
    }

    fn features(&self) -> usize {
        self.features
    }

    fn sums(&self) -> usize {
        self.baseline.len()
    }

    fn leaves(&self) -> Option<[usize; 2]> {
        None
    }

    fn feature_names(&self) -> Option<&[String]> {
        self.names.as_deref()
    }

    fn check(&self) -> Result<(), NoContributions> {
        if self.places.is_some() { Ok(()) } else { Err(NoContributions::NoPlaces) }
    }

    fn is_prepared(&self) -> bool {
        self.contributions.is_prepared()
    }

    fn contribution_bytes(&self) -> usize {
        if self.check().is_ok() { self.contributions.bytes(&self.summed()) } else { 0 }
    }

    fn cost(&self) -> u64 {
        let trees = self.trees.iter().map(|tree| [tree.nodes.len(), tree.depth]);
        let encoder = self.encoder.as_ref().map_or(0, |encoder| encoder.evaluate.cost());
        contribution_cost(trees, self.features, 1).saturating_add(encoder)
    }

    fn explain(
        &self,
        output: EnsembleOutput,
        data: &TableData<'_>,
        info: &EstimatorInfo,
        stop: &AtomicBool,
    ) -> Result<Prediction, PredictError> {
        let x = self.rows(data, info)?;
        let sums = self.baseline.len();
        let (values, columns) = match output {
            EnsembleOutput::Contributions => return self.contributions(&x, (info, stop)),
            EnsembleOutput::Leaf => return Err(PredictError::NoLeaves { class: Arc::clone(&info.class) }),
            _ => (self.sums(&x), sums),
        };
        Ok(Prediction { values: PredictedValues::F64(values), columns })
    }
}
