//! Decision trees, and sums and means over several trees for ensembles.

use std::borrow::Cow;
use std::hint::select_unpredictable;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::error::{LoadError, PredictError, Unexplained};
use super::estimator::{ContributionSpace, EstimatorInfo, Evaluate, Explain};
use super::explain::{Contributions, ExplainedTree, SummedTrees, contribution_cost};
use super::fitted::{FittedObject, SklearnVersion};
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{argmax, normalize};
use super::spec::{ClassTable, EstimatorSpec};
use crate::pickle::{NumpyArray, PickleValue};
use crate::table::{DenseTable, Elements, FloatValues, TableData, to_f32};
use crate::trees::{EnsembleOutput, NoContributions, PredictedValues, Prediction};

pub(super) const CLASSES: ClassTable = &[
    ("tree.DecisionTreeClassifier", classifier),
    ("tree.DecisionTreeRegressor", regressor),
    ("tree.ExtraTreeClassifier", classifier),
    ("tree.ExtraTreeRegressor", regressor),
];

/// Set in a node's feature if missing values go left.
const MISSING_LEFT: u32 = 1 << 31;
/// How many rows go through a tree before the next tree is evaluated.
const BLOCK: usize = 64;
/// How many rows or trees are walked in lockstep, so that their memory accesses overlap.
const LANES: usize = 8;

/// A split or a leaf.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// The largest value that goes left. The file has double precision; for single-precision values the test is the
    /// same.
    threshold: f32,
    /// The feature, and whether missing values go left.
    feature: u32,
    /// The left and the right child. Both children of a leaf are the leaf itself.
    children: [u32; 2],
}

/// One tree. Each child comes after its parent, so every walk ends.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// For each node that is a leaf, where its values start.
    starts: Vec<u32>,
    /// `width` numbers for each leaf.
    values: Vec<f64>,
    width: usize,
    /// The depth of the tree.
    depth: usize,
    /// For each node, the weight of the training rows that reach it. Empty if the file does not have it.
    covers: Vec<f64>,
}

/// Trees with the same features and the same width.
#[derive(Debug)]
pub(super) struct Trees {
    all: Vec<Tree>,
    features: usize,
    pub(super) width: usize,
}

/// What leaves contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LeafKind {
    /// Values that are used unchanged.
    Values,
    /// Sample weights, which are converted to fractions.
    Weights,
    /// Path lengths: the depth of the leaf, plus the expected depth of a tree of its samples.
    Paths,
}

/// Returns the average path length of a tree that isolates this many samples, by the formula of isolation forests.
pub(super) fn average_path_length(samples: f64) -> f64 {
    if samples <= 1.0 {
        return 0.0;
    }
    if samples <= 2.0 {
        return 1.0;
    }
    2.0 * ((samples - 1.0).ln() + std::f64::consts::EULER_GAMMA) - 2.0 * (samples - 1.0) / samples
}

/// Rounds down to single precision, so that `x <= threshold` is the same for every single-precision `x`.
fn round_down(threshold: f64) -> f32 {
    let rounded = to_f32(threshold);
    if f64::from(rounded) > threshold { rounded.next_down() } else { rounded }
}

impl Tree {
    /// Reads the `tree_` of a fitted tree.
    fn load(fitted: &FittedObject<'_>, features: usize, leaves: LeafKind) -> Result<Self, LoadError> {
        let tree = fitted.part(fitted.require("tree_")?)?;
        let wanted = || tree.unexpected("nodes", "the nodes of a tree");
        let nodes = tree.require("nodes")?.as_array().ok_or_else(wanted)?;
        let fields = NodeFields::read(nodes).ok_or_else(wanted)?;
        let count = nodes.len();
        let array = tree.require("values")?.as_array();
        let shape = array.map(|array| array.shape.as_slice());
        let Some(&[rows, outputs, classes]) = shape else {
            return Err(tree.unexpected("values", "an array of three dimensions"));
        };
        tree.check_count("values", count, rows)?;
        let width = outputs.saturating_mul(classes);
        let values = tree.floats("values")?;
        if count == 0 || width == 0 || values.len() != count.saturating_mul(width) {
            return Err(wanted());
        }
        let (values, width) = if leaves == LeafKind::Paths {
            (nodes.field("n_node_samples").ok_or_else(wanted)?.to_f64(), 1)
        } else {
            (values, width)
        };
        Self::build(&fields, &values, width, features, leaves).ok_or_else(wanted)
    }

    fn build(fields: &NodeFields, values: &[f64], width: usize, features: usize, leaves: LeafKind) -> Option<Self> {
        let count = fields.left.len();
        let mut depths = vec![0_u32; count];
        let (nodes, starts) = (Vec::with_capacity(count), vec![0; count]);
        let covers = if leaves == LeafKind::Paths { Vec::new() } else { fields.covers.clone() };
        let mut tree = Self { nodes, starts, values: Vec::new(), width, depth: 0, covers };
        for index in 0..count {
            let (left, right) = (fields.left[index], fields.right[index]);
            if left == -1 {
                let start = u32::try_from(tree.values.len()).ok()?;
                let own = &values[index * width..(index + 1) * width];
                tree.values.extend_from_slice(own);
                if leaves == LeafKind::Weights && own.iter().sum::<f64>() != 0.0 {
                    normalize(&mut tree.values[start as usize..]);
                }
                let own_place = u32::try_from(index).ok()?;
                tree.nodes.push(Node { threshold: 0.0, feature: 0, children: [own_place; 2] });
                tree.starts[index] = start;
                if leaves == LeafKind::Paths {
                    let length = f64::from(depths[index] + 1) + average_path_length(own[0]) - 1.0;
                    tree.values[start as usize] = length;
                }
                tree.depth = tree.depth.max(depths[index] as usize);
                continue;
            }
            let behind = |child: i64| usize::try_from(child).ok().filter(|&child| index < child && child < count);
            for child in [behind(left)?, behind(right)?] {
                // It would have two parents.
                if depths[child] > 0 {
                    return None;
                }
                depths[child] = depths[index] + 1;
            }
            let feature = u32::try_from(fields.feature[index]).ok()?;
            if feature as usize >= features || feature >= MISSING_LEFT {
                return None;
            }
            let missing_left = fields.missing_left.as_ref().is_some_and(|flags| flags[index] != 0);
            tree.nodes.push(Node {
                threshold: round_down(fields.threshold[index]),
                feature: if missing_left { feature | MISSING_LEFT } else { feature },
                children: [u32::try_from(left).ok()?, u32::try_from(right).ok()?],
            });
        }
        Some(tree)
    }

    /// Returns the values of a leaf.
    fn values(&self, leaf: u32) -> &[f64] {
        let start = self.starts[leaf as usize] as usize;
        &self.values[start..start + self.width]
    }
}

impl Node {
    /// Returns the child that a row goes to.
    fn next(&self, row: &[f32]) -> u32 {
        let left = self.goes_left(row[(self.feature & !MISSING_LEFT) as usize]);
        select_unpredictable(left, self.children[0], self.children[1])
    }

    /// Returns whether rows with this value of the feature go to the left child.
    #[expect(clippy::needless_bitwise_bool, reason = "a branch would be mispredicted at every other node")]
    fn goes_left(&self, value: f32) -> bool {
        (value <= self.threshold) | (value.is_nan() & (self.feature & MISSING_LEFT != 0))
    }
}

impl ExplainedTree for Tree {
    type Value = f32;

    fn cover(&self, node: u32) -> f64 {
        self.covers.get(node as usize).copied().unwrap_or(f64::NAN)
    }

    fn split(&self, node: u32) -> Option<(u32, [u32; 2])> {
        let Node { feature, children, .. } = self.nodes[node as usize];
        (children[0] != node).then_some((feature & !MISSING_LEFT, children))
    }

    fn goes_first(&self, node: u32, value: f32) -> bool {
        self.nodes[node as usize].goes_left(value)
    }

    fn leaf(&self, node: u32) -> &[f64] {
        self.values(node)
    }
}

/// Returns the leaf that each row ends in, each in its own tree.
fn leaves<const N: usize>(trees: [&Tree; N], rows: [&[f32]; N]) -> [u32; N] {
    let mut places = [0; N];
    loop {
        let mut moved = false;
        for lane in 0..N {
            let next = trees[lane].nodes[places[lane] as usize].next(rows[lane]);
            moved |= next != places[lane];
            places[lane] = next;
        }
        if !moved {
            return places;
        }
    }
}

/// The fields of all nodes.
struct NodeFields {
    left: Vec<i64>,
    right: Vec<i64>,
    feature: Vec<i64>,
    threshold: Vec<f64>,
    missing_left: Option<Vec<i64>>,
    /// Empty if there are none.
    covers: Vec<f64>,
}

impl NodeFields {
    fn read(nodes: &NumpyArray) -> Option<Self> {
        let integers = |name| nodes.field(name)?.to_i64();
        Some(Self {
            left: integers("left_child")?,
            right: integers("right_child")?,
            feature: integers("feature")?,
            threshold: nodes.field("threshold")?.to_f64(),
            missing_left: integers("missing_go_to_left"),
            covers: nodes.field("weighted_n_node_samples").map(|covers| covers.to_f64()).unwrap_or_default(),
        })
    }
}

impl Trees {
    /// Reads the `tree_` of every estimator.
    pub(super) fn load<'a>(
        fitted: &FittedObject<'a>,
        estimators: impl IntoIterator<Item = PickleValue<'a>>,
        features: usize,
        leaves: LeafKind,
    ) -> Result<Self, LoadError> {
        let mut trees: Vec<Tree> = Vec::new();
        for estimator in estimators {
            let tree = Tree::load(&fitted.part(estimator)?, features, leaves)?;
            let width = trees.first().map_or(tree.width, |first| first.width);
            fitted.check_count("estimators_", width, tree.width)?;
            trees.push(tree);
        }
        let width = trees.first().ok_or_else(|| fitted.unexpected("estimators_", "at least one tree"))?.width;
        Ok(Self { all: trees, features, width })
    }

    /// Reads the trees of an isolation forest, whose values are path lengths. A tree refers to features by their
    /// positions in its subset.
    pub(super) fn paths<'a>(
        fitted: &FittedObject<'a>,
        estimators: Vec<PickleValue<'a>>,
        subsets: &[Vec<usize>],
        features: usize,
    ) -> Result<Self, LoadError> {
        let mut trees = Self { all: Vec::with_capacity(estimators.len()), features, width: 1 };
        for (estimator, subset) in estimators.into_iter().zip(subsets) {
            let mut tree = Tree::load(&fitted.part(estimator)?, subset.len(), LeafKind::Paths)?;
            // A tree with all features has them in their original order.
            if subset.len() != features {
                for place in 0..tree.nodes.len() {
                    let node = tree.nodes[place];
                    if node.children[0] as usize == place {
                        continue;
                    }
                    let feature = subset[(node.feature & !MISSING_LEFT) as usize];
                    let feature = u32::try_from(feature).ok().filter(|&feature| feature < MISSING_LEFT);
                    let feature = feature.ok_or_else(|| fitted.unexpected("n_features_in_", "fewer features"))?;
                    tree.nodes[place].feature = feature | node.feature & MISSING_LEFT;
                }
            }
            trees.all.push(tree);
        }
        if trees.all.is_empty() {
            return Err(fitted.unexpected("estimators_", "at least one tree"));
        }
        Ok(trees)
    }

    /// Adds the values of every tree, times `scale`, to the `width` sums of each row.
    pub(super) fn add(&self, x: &[f32], sums: &mut [f64], scale: f64) {
        let blocks = x.chunks(BLOCK * self.features).zip(sums.chunks_mut(BLOCK * self.width));
        for (x, sums) in blocks {
            let whole = x.len() / self.features / LANES * LANES;
            let (many, few) = x.split_at(whole * self.features);
            let (many_sums, few_sums) = sums.split_at_mut(whole * self.width);
            for tree in &self.all {
                let groups = many.chunks_exact(LANES * self.features);
                for (rows, sums) in groups.zip(many_sums.chunks_exact_mut(LANES * self.width)) {
                    let row = |lane: usize| &rows[lane * self.features..(lane + 1) * self.features];
                    let leaves = leaves([tree; LANES], std::array::from_fn(row));
                    for (leaf, sums) in leaves.into_iter().zip(sums.chunks_exact_mut(self.width)) {
                        add_scaled(sums, tree.values(leaf), scale);
                    }
                }
            }
            for (row, sums) in few.chunks_exact(self.features).zip(few_sums.chunks_exact_mut(self.width)) {
                self.add_one(row, sums, scale);
            }
        }
    }

    /// Adds the values of every tree for one row, which is walked through several trees in lockstep.
    fn add_one(&self, row: &[f32], sums: &mut [f64], scale: f64) {
        let (groups, rest) = self.all.as_chunks::<LANES>();
        for group in groups {
            let leaves = leaves(group.each_ref(), [row; LANES]);
            for (tree, leaf) in group.iter().zip(leaves) {
                add_scaled(sums, tree.values(leaf), scale);
            }
        }
        for tree in rest {
            let [leaf] = leaves([tree], [row]);
            add_scaled(sums, tree.values(leaf), scale);
        }
    }

    /// Returns the mean over all trees.
    fn mean(&self, x: &[f32], rows: usize) -> Vec<f64> {
        let mut sums = vec![0.0; rows * self.width];
        self.add(x, &mut sums, 1.0);
        #[expect(clippy::cast_precision_loss, reason = "as NumPy divides")]
        let count = self.all.len() as f64;
        if self.all.len() > 1 {
            for sum in &mut sums {
                *sum /= count;
            }
        }
        sums
    }

    pub(super) fn cost(&self) -> u64 {
        self.all.iter().map(|tree| 4 * tree.depth as u64 + 5).sum()
    }

    /// Returns all trees.
    pub(super) fn all(&self) -> impl Iterator<Item = &Tree> {
        self.all.iter()
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    /// Checks that contributions have what they need.
    pub(super) fn check_covers(&self) -> Result<(), NoContributions> {
        let has_covers = |tree: &Tree| tree.covers.len() == tree.nodes.len();
        if self.all.iter().all(has_covers) { Ok(()) } else { Err(NoContributions::NoCovers) }
    }

    /// Returns how many nodes each tree has, and how deep it is.
    pub(super) fn sizes(&self) -> impl Iterator<Item = [usize; 2]> {
        self.all.iter().map(|tree| [tree.nodes.len(), tree.depth])
    }

    /// Writes the number of the leaf in each tree. Those of a row begin every `row` numbers, and are `step` numbers apart.
    pub(super) fn write_leaves(&self, x: &[f32], found: &mut [i32], [row, step]: [usize; 2]) {
        for (number, tree) in self.all.iter().enumerate() {
            let mut own = found.iter_mut().skip(number * step).step_by(row);
            let groups = x.chunks_exact(LANES * self.features);
            let rest = groups.remainder();
            // Nodes were counted in 32 bits, and the numbers of sums as well as of nodes fit the library's integers.
            let number = |leaf: u32| i32::try_from(leaf).unwrap_or(i32::MAX);
            for rows in groups {
                let row = |lane: usize| &rows[lane * self.features..(lane + 1) * self.features];
                let leaves = leaves([tree; LANES], std::array::from_fn(row));
                leaves.into_iter().zip(own.by_ref()).for_each(|(leaf, own)| *own = number(leaf));
            }
            for (row, own) in rest.chunks_exact(self.features).zip(own) {
                let [leaf] = leaves([tree], [row]);
                *own = number(leaf);
            }
        }
    }
}

/// Adds numbers times a scale.
fn add_scaled(sums: &mut [f64], values: &[f64], scale: f64) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += scale * value;
    }
}

/// Returns rows in the precision of trees. They must be finite; some versions and parameters allow missing values.
pub(super) fn rows<'d>(
    data: &'d TableData<'_>,
    info: &EstimatorInfo,
    missing: bool,
) -> Result<Cow<'d, [f32]>, PredictError> {
    let rows = unchecked(data, info)?;
    let fits = rows.iter().all(|value| value.is_finite() || missing && value.is_nan());
    if fits { Ok(rows) } else { Err(PredictError::NotFinite { class: Arc::clone(&info.class) }) }
}

/// Returns rows in the precision of trees, without checking them.
pub(super) fn unchecked<'d>(data: &'d TableData<'_>, info: &EstimatorInfo) -> Result<Cow<'d, [f32]>, PredictError> {
    let matrix = info.unchecked(data)?;
    Ok(match matrix.floats {
        FloatValues::F32(values) => values,
        FloatValues::F64(values) => values.iter().copied().map(to_f32).collect(),
    })
}

/// Returns whether a tree with these parameters accepts missing values.
pub(super) fn takes_missing(tree: &FittedObject<'_>, random: SklearnVersion, best: SklearnVersion) -> bool {
    let since = if tree.text_if("splitter") == Some("random") { random } else { best };
    let criterion = tree.text_if("criterion").unwrap_or_default();
    let suits = ["gini", "entropy", "log_loss", "squared_error", "friedman_mse", "poisson"].contains(&criterion);
    tree.version() >= since && suits && tree.get("monotonic_cst").is_none()
}

/// A tree, or the mean of several trees.
#[derive(Debug)]
struct MeanOfTrees {
    trees: Trees,
    /// Classifiers only.
    labels: Option<Elements<'static>>,
    missing: bool,
    contributions: Contributions,
}

/// Loads `DecisionTreeClassifier` and `ExtraTreeClassifier`.
fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let missing = takes_missing(fitted, SklearnVersion(1, 6), SklearnVersion(1, 3));
    mean(fitted, vec![fitted.value()], true, missing)
}

/// Loads `DecisionTreeRegressor` and `ExtraTreeRegressor`.
fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let missing = takes_missing(fitted, SklearnVersion(1, 6), SklearnVersion(1, 3));
    mean(fitted, vec![fitted.value()], false, missing)
}

pub(super) fn mean<'a>(
    fitted: &FittedObject<'a>,
    estimators: Vec<PickleValue<'a>>,
    classifier: bool,
    missing: bool,
) -> Result<EstimatorSpec, LoadError> {
    let features = fitted.n_features()?;
    let outputs = fitted.size("n_outputs_")?;
    if classifier && outputs != 1 {
        return Err(fitted.unsupported("n_outputs_"));
    }
    let leaves =
        if classifier && fitted.version() < SklearnVersion(1, 4) { LeafKind::Weights } else { LeafKind::Values };
    let trees = Trees::load(fitted, estimators, features, leaves)?;
    let (labels, methods) = if classifier {
        let labels = fitted.labels("classes_")?;
        fitted.check_count("classes_", trees.width, labels.len())?;
        (Some(labels), MethodSet::PREDICT.with(EstimatorMethod::PredictProba))
    } else {
        (None, MethodSet::PREDICT)
    };
    Ok(EstimatorSpec::new(
        methods,
        features,
        MeanOfTrees { trees, labels, missing, contributions: Contributions::default() },
    ))
}

impl Evaluate for MeanOfTrees {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = rows(data, info, self.missing)?;
        let means = self.trees.mean(&x, data.rows());
        Ok(TableData::Table(match &self.labels {
            Some(labels) if method == EstimatorMethod::Predict => {
                DenseTable::of_column(labels.take(means.chunks_exact(self.trees.width).map(argmax)))
            }
            _ => DenseTable::of_f64(means, self.trees.width),
        }))
    }

    fn cost(&self) -> u64 {
        self.trees.cost()
    }

    fn explained<'a>(&'a self, info: &'a EstimatorInfo) -> Result<(&'a dyn Explain, &'a EstimatorInfo), Unexplained> {
        Ok((self, info))
    }

    fn limit_contributions(&mut self, bytes: usize) {
        self.contributions.limit = bytes;
    }
}

impl MeanOfTrees {
    fn summed(&self) -> SummedTrees<'_, Tree> {
        let Trees { features, width, .. } = self.trees;
        let trees = self.trees.all().map(|tree| (tree, 0)).collect();
        #[expect(clippy::cast_precision_loss, reason = "as NumPy divides")]
        let scale = 1.0 / self.trees.count() as f64;
        SummedTrees { trees, scale, features, sums: width, width }
    }
}

impl Explain for MeanOfTrees {
    fn space(&self) -> ContributionSpace {
        if self.labels.is_some() { ContributionSpace::Probability } else { ContributionSpace::Prediction }
    }

    fn features(&self) -> usize {
        self.trees.features
    }

    fn sums(&self) -> usize {
        self.trees.width
    }

    fn leaves(&self) -> Option<[usize; 2]> {
        Some([self.trees.count(), 1])
    }

    fn check(&self) -> Result<(), NoContributions> {
        self.trees.check_covers()
    }

    fn is_prepared(&self) -> bool {
        self.contributions.is_prepared()
    }

    fn contribution_bytes(&self) -> usize {
        if self.check().is_ok() { self.contributions.bytes(&self.summed()) } else { 0 }
    }

    fn cost(&self) -> u64 {
        contribution_cost(self.trees.sizes(), self.trees.features, self.trees.width)
    }

    fn explain(
        &self,
        output: EnsembleOutput,
        data: &TableData<'_>,
        info: &EstimatorInfo,
        stop: &AtomicBool,
    ) -> Result<Prediction, PredictError> {
        let width = self.trees.width;
        let x = rows(data, info, self.missing)?;
        Ok(match output {
            EnsembleOutput::Leaf => {
                let columns = self.trees.count();
                let mut found = vec![0; data.rows() * columns];
                self.trees.write_leaves(&x, &mut found, [columns, 1]);
                Prediction { values: PredictedValues::I32(found), columns }
            }
            EnsembleOutput::Contributions => {
                self.check().map_err(|error| info.no_contributions(error))?;
                self.contributions.predict(&self.summed(), &x, &vec![0.0; width], (info, stop))?
            }
            _ => Prediction { values: PredictedValues::F64(self.trees.mean(&x, data.rows())), columns: width },
        })
    }
}
