//! Decision trees, and ensembles that average them or add them up.

use std::borrow::Cow;
use std::hint::select_unpredictable;
use std::sync::Arc;

use super::classes::Family;
use super::data::{Data, Elements, Table};
use super::error::{LoadError, PredictError};
use super::estimator::{About, Estimator, Evaluate, Method, Methods};
use super::fitted::{Fitted, Version};
use super::numerics::{argmax, expit, normalize, softmax};
use crate::pickle::{Array, Value};

/// Set beside a feature when missing values go left.
const MISSING_LEFT: u32 = 1 << 31;
/// Rows that go through one tree before the next one is looked at.
const BLOCK: usize = 64;
/// Walks that go on side by side, so that one need not wait for another's memory.
const LANES: usize = 8;

/// A split, or a leaf.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// Values up to this one go left. The file has double precision; among single ones this is the same test.
    threshold: f32,
    /// The feature, and whether missing values go left.
    feature: u32,
    /// The nodes on the left and on the right; a leaf has itself.
    children: [u32; 2],
}

/// One tree. Each child stands behind its parent, so that a walk ends.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// Where the values of each node start, if it is a leaf.
    starts: Vec<u32>,
    /// `width` numbers for each leaf.
    values: Vec<f64>,
    width: usize,
    /// How deep the tree is.
    depth: usize,
}

/// Trees of the same features and the same width.
#[derive(Debug)]
pub(super) struct Trees {
    all: Vec<Tree>,
    features: usize,
    width: usize,
}

/// What the leaves of classifiers hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    /// Numbers that are what they are.
    Values,
    /// Weights of samples, which become fractions.
    Weights,
    /// How far a row has come, and how far it would go among as many samples as the leaf has.
    Paths,
}

/// How many splits so many samples need on average until each is alone, as isolation forests reckon.
pub(super) fn expected_path(samples: f64) -> f64 {
    if samples <= 1.0 {
        return 0.0;
    }
    if samples <= 2.0 {
        return 1.0;
    }
    2.0 * ((samples - 1.0).ln() + std::f64::consts::EULER_GAMMA) - 2.0 * (samples - 1.0) / samples
}

/// Rounds down to single precision: `x <= threshold` stays the same for every single-precision `x`.
fn round_down(threshold: f64) -> f32 {
    let rounded = super::data::to_f32(threshold);
    if f64::from(rounded) > threshold { rounded.next_down() } else { rounded }
}

impl Tree {
    /// Reads the `tree_` of a fitted tree.
    fn load(fitted: &Fitted<'_>, features: usize, leaves: Leaves) -> Result<Self, LoadError> {
        let tree = fitted.part(fitted.need("tree_")?)?;
        let wanted = || tree.unexpected("nodes", "the nodes of a tree");
        let nodes = tree.need("nodes")?.as_array().ok_or_else(wanted)?;
        let fields = Fields::read(nodes).ok_or_else(wanted)?;
        let count = nodes.len();
        let array = tree.need("values")?.as_array();
        let shape = array.map(|array| array.shape.as_slice());
        let Some(&[rows, outputs, classes]) = shape else {
            return Err(tree.unexpected("values", "an array of three dimensions"));
        };
        tree.count("values", count, rows)?;
        let width = outputs.saturating_mul(classes);
        let values = tree.floats("values")?;
        if count == 0 || width == 0 || values.len() != count.saturating_mul(width) {
            return Err(wanted());
        }
        let (values, width) = if leaves == Leaves::Paths {
            (nodes.field("n_node_samples").ok_or_else(wanted)?.to_f64(), 1)
        } else {
            (values, width)
        };
        Self::build(&fields, &values, width, (features, leaves)).ok_or_else(wanted)
    }

    fn build(fields: &Fields, values: &[f64], width: usize, (features, leaves): (usize, Leaves)) -> Option<Self> {
        let count = fields.left.len();
        let mut depths = vec![0_u32; count];
        let (nodes, starts) = (Vec::with_capacity(count), vec![0; count]);
        let mut tree = Self { nodes, starts, values: Vec::new(), width, depth: 0 };
        for index in 0..count {
            let (left, right) = (fields.left[index], fields.right[index]);
            if left == -1 {
                let start = u32::try_from(tree.values.len()).ok()?;
                let own = &values[index * width..(index + 1) * width];
                tree.values.extend_from_slice(own);
                if leaves == Leaves::Weights && own.iter().sum::<f64>() != 0.0 {
                    normalize(&mut tree.values[start as usize..]);
                }
                let own_place = u32::try_from(index).ok()?;
                tree.nodes.push(Node { threshold: 0.0, feature: 0, children: [own_place; 2] });
                tree.starts[index] = start;
                if leaves == Leaves::Paths {
                    let length = f64::from(depths[index] + 1) + expected_path(own[0]) - 1.0;
                    tree.values[start as usize] = length;
                }
                tree.depth = tree.depth.max(depths[index] as usize);
                continue;
            }
            let behind = |child: i64| usize::try_from(child).ok().filter(|&child| index < child && child < count);
            for child in [behind(left)?, behind(right)?] {
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

    /// The values of a leaf.
    fn values(&self, leaf: u32) -> &[f64] {
        let start = self.starts[leaf as usize] as usize;
        &self.values[start..start + self.width]
    }
}

impl Node {
    /// Where a value goes from here.
    #[expect(clippy::needless_bitwise_bool, reason = "a branch would be guessed wrong at every other node")]
    fn next(&self, row: &[f32]) -> u32 {
        let value = row[(self.feature & !MISSING_LEFT) as usize];
        let left = (value <= self.threshold) | (value.is_nan() & (self.feature & MISSING_LEFT != 0));
        select_unpredictable(left, self.children[0], self.children[1])
    }
}

/// The leaf that each row ends in, each in its own tree.
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
struct Fields {
    left: Vec<i64>,
    right: Vec<i64>,
    feature: Vec<i64>,
    threshold: Vec<f64>,
    missing_left: Option<Vec<i64>>,
}

impl Fields {
    fn read(nodes: &Array) -> Option<Self> {
        let integers = |name| nodes.field(name)?.to_i64();
        Some(Self {
            left: integers("left_child")?,
            right: integers("right_child")?,
            feature: integers("feature")?,
            threshold: nodes.field("threshold")?.to_f64(),
            missing_left: integers("missing_go_to_left"),
        })
    }
}

impl Trees {
    /// Reads trees, each the `tree_` of an estimator.
    fn load<'a>(
        fitted: &Fitted<'a>,
        estimators: impl IntoIterator<Item = Value<'a>>,
        features: usize,
        leaves: Leaves,
    ) -> Result<Self, LoadError> {
        let mut trees: Vec<Tree> = Vec::new();
        for estimator in estimators {
            let tree = Tree::load(&fitted.part(estimator)?, features, leaves)?;
            let width = trees.first().map_or(tree.width, |first| first.width);
            fitted.count("estimators_", width, tree.width)?;
            trees.push(tree);
        }
        let width = trees.first().ok_or_else(|| fitted.unexpected("estimators_", "at least one tree"))?.width;
        Ok(Self { all: trees, features, width })
    }

    /// Reads the trees of an isolation forest, whose values are lengths of paths. Each tree knows its features by their
    /// places in its subset.
    pub(super) fn paths<'a>(
        fitted: &Fitted<'a>,
        estimators: Vec<Value<'a>>,
        subsets: &[Vec<usize>],
        features: usize,
    ) -> Result<Self, LoadError> {
        let mut trees = Self { all: Vec::with_capacity(estimators.len()), features, width: 1 };
        for (estimator, subset) in estimators.into_iter().zip(subsets) {
            let mut tree = Tree::load(&fitted.part(estimator)?, subset.len(), Leaves::Paths)?;
            // A tree that was given all features was given them in their order.
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

    /// Adds the values of every tree, `scale` times, to the row's `width` sums.
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

    /// Adds the values of every tree for one row, which goes through several trees at once.
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

    /// The mean over all trees.
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
}

/// Adds numbers times a scale.
fn add_scaled(sums: &mut [f64], values: &[f64], scale: f64) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += scale * value;
    }
}

/// Reads `n_features_in_`, which older trees call otherwise.
fn features(fitted: &Fitted<'_>) -> Result<usize, LoadError> {
    let name = if fitted.get("n_features_in_").is_some() { "n_features_in_" } else { "n_features_" };
    match fitted.size(name)? {
        0 => Err(fitted.unexpected(name, "at least one feature")),
        features => Ok(features),
    }
}

/// Rows in the precision of trees, in which they have to be finite; some versions and parameters take missing values.
pub(super) fn rows<'d>(data: &'d Data<'_>, about: &About, missing: bool) -> Result<Cow<'d, [f32]>, PredictError> {
    let rows = unchecked(data, about)?;
    let fits = rows.iter().all(|value| value.is_finite() || missing && value.is_nan());
    if fits { Ok(rows) } else { Err(PredictError::NotFinite { class: Arc::clone(&about.class) }) }
}

/// Rows in the precision of trees, whatever numbers they have.
pub(super) fn unchecked<'d>(data: &'d Data<'_>, about: &About) -> Result<Cow<'d, [f32]>, PredictError> {
    let matrix = about.unchecked(data)?;
    Ok(match matrix.floats {
        super::data::Floats::F32(values) => values,
        super::data::Floats::F64(values) => values.iter().copied().map(super::data::to_f32).collect(),
    })
}

/// Whether a tree of these parameters takes missing values.
fn takes_missing(tree: &Fitted<'_>, random: Version, best: Version) -> bool {
    let since = if tree.text_if("splitter") == Some("random") { random } else { best };
    let criterion = tree.text_if("criterion").unwrap_or_default();
    let suits = ["gini", "entropy", "log_loss", "squared_error", "friedman_mse", "poisson"].contains(&criterion);
    tree.version() >= since && suits && tree.get("monotonic_cst").is_none()
}

/// A tree or a mean of trees.
#[derive(Debug)]
struct Mean {
    trees: Trees,
    /// Of classifiers.
    labels: Option<Elements<'static>>,
    missing: bool,
}

/// `DecisionTreeClassifier` and `ExtraTreeClassifier`.
pub(super) fn tree_classifier(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let missing = takes_missing(fitted, Version(1, 6), Version(1, 3));
    mean(fitted, vec![fitted.value()], true, missing)
}

/// `DecisionTreeRegressor` and `ExtraTreeRegressor`.
pub(super) fn tree_regressor(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let missing = takes_missing(fitted, Version(1, 6), Version(1, 3));
    mean(fitted, vec![fitted.value()], false, missing)
}

/// Random forests and extremely randomised trees that classify.
pub(super) fn forest_classifier(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    forest(fitted, true)
}

/// Random forests and extremely randomised trees of numbers.
pub(super) fn forest_regressor(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    forest(fitted, false)
}

fn forest(fitted: &Fitted<'_>, classifier: bool) -> Result<Family, LoadError> {
    let estimators = fitted.items("estimators_")?;
    let first = estimators.first().ok_or_else(|| fitted.unexpected("estimators_", "at least one tree"))?;
    let missing = takes_missing(&fitted.part(*first)?, Version(1, 6), Version(1, 4));
    mean(fitted, estimators, classifier, missing)
}

fn mean<'a>(
    fitted: &Fitted<'a>,
    estimators: Vec<Value<'a>>,
    classifier: bool,
    missing: bool,
) -> Result<Family, LoadError> {
    let features = features(fitted)?;
    let outputs = fitted.size("n_outputs_")?;
    if classifier && outputs != 1 {
        return Err(fitted.unsupported("n_outputs_"));
    }
    let leaves = if classifier && fitted.version() < Version(1, 4) { Leaves::Weights } else { Leaves::Values };
    let trees = Trees::load(fitted, estimators, features, leaves)?;
    let (labels, methods) = if classifier {
        let labels = fitted.labels("classes_")?;
        fitted.count("classes_", trees.width, labels.len())?;
        (Some(labels), Methods::PREDICT.and(Method::PredictProba))
    } else {
        (None, Methods::PREDICT)
    };
    Ok(Family::new(methods, features, Mean { trees, labels, missing }))
}

impl Evaluate for Mean {
    fn call(&self, method: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let x = rows(data, about, self.missing)?;
        let means = self.trees.mean(&x, data.rows());
        Ok(Data::Table(match &self.labels {
            Some(labels) if method == Method::Predict => {
                Table::of_column(labels.take(means.chunks_exact(self.trees.width).map(argmax)))
            }
            _ => Table::of_f64(means, self.trees.width),
        }))
    }

    fn cost(&self) -> u64 {
        self.trees.cost()
    }
}

/// How gradient boosting turns sums into answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// Numbers.
    Regression,
    /// Two classes, one sum.
    Binomial,
    /// Two classes by the exponential loss of `AdaBoost`.
    Exponential,
    /// A sum for each class.
    Multinomial,
}

/// `GradientBoostingClassifier` and `GradientBoostingRegressor`.
#[derive(Debug)]
struct Boosted {
    /// Those that add to each sum.
    trees: Vec<Trees>,
    learning_rate: f64,
    start: Start,
    loss: Loss,
    labels: Option<Elements<'static>>,
    version: Version,
    features: usize,
}

/// What the sums start from.
#[derive(Debug)]
enum Start {
    Zero,
    /// The same for each row.
    Constant(Vec<f64>),
    /// What another estimator answers.
    Estimator(Box<Estimator>),
}

pub(super) fn boosting_classifier(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let labels = fitted.labels("classes_")?;
    let loss = match fitted.text("loss")? {
        "deviance" | "log_loss" if labels.len() == 2 => Loss::Binomial,
        "deviance" | "log_loss" if labels.len() > 2 => Loss::Multinomial,
        "exponential" if labels.len() == 2 => Loss::Exponential,
        _ => return Err(fitted.unsupported("loss")),
    };
    boosting(fitted, loss, Some(labels))
}

pub(super) fn boosting_regressor(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    boosting(fitted, Loss::Regression, None)
}

fn boosting(fitted: &Fitted<'_>, loss: Loss, labels: Option<Elements<'static>>) -> Result<Family, LoadError> {
    let features = features(fitted)?;
    let sums = if loss == Loss::Multinomial { labels.as_ref().map_or(1, Elements::len) } else { 1 };
    let estimators = fitted.items("estimators_")?;
    let stages = estimators.chunks_exact(sums);
    fitted.count("estimators_", stages.len() * sums, estimators.len())?;
    let mut trees = Vec::with_capacity(sums);
    for sum in 0..sums {
        let own = estimators.iter().copied().skip(sum).step_by(sums);
        let own = Trees::load(fitted, own, features, Leaves::Values)?;
        fitted.count("estimators_", 1, own.width)?;
        trees.push(own);
    }
    let learning_rate = fitted.number("learning_rate")?;
    let start = start(fitted, loss, sums)?;
    let methods = match loss {
        Loss::Regression => Methods::PREDICT,
        _ => Methods::PREDICT.and(Method::PredictProba).and(Method::DecisionFunction),
    };
    let version = fitted.version();
    Ok(Family::new(methods, features, Boosted { trees, learning_rate, start, loss, labels, version, features }))
}

/// Reads `init_`: a dummy that always answers the same, any other estimator, or nothing.
fn start(fitted: &Fitted<'_>, loss: Loss, sums: usize) -> Result<Start, LoadError> {
    let init = fitted.need("init_")?;
    if init.as_str() == Some("zero") {
        return Ok(Start::Zero);
    }
    let class = init.class().unwrap_or_default();
    if class.starts_with("sklearn.dummy.Dummy") {
        let dummy = fitted.part(init)?;
        let predictions = match loss {
            Loss::Regression => dummy.floats_of("constant_", 1)?,
            _ => dummy.floats("class_prior_")?,
        };
        let wanted = if loss == Loss::Multinomial { sums } else { predictions.len().min(2) };
        fitted.count("init_", wanted, predictions.len())?;
        if matches!(loss, Loss::Binomial | Loss::Exponential) {
            fitted.count("init_", 2, predictions.len())?;
        }
        return Ok(Start::Constant(loss.link(&predictions, fitted.version())));
    }
    let estimator = fitted.estimator(init)?;
    let method = if loss == Loss::Regression { Method::Predict } else { Method::PredictProba };
    if estimator.about.methods.contains(method) {
        Ok(Start::Estimator(Box::new(estimator)))
    } else {
        Err(fitted.unsupported("init_"))
    }
}

impl Loss {
    /// What the sums of a row start from, when another estimator answers `predictions`.
    fn link(self, predictions: &[f64], version: Version) -> Vec<f64> {
        let epsilon = if version < Version(1, 6) { f64::from(f32::EPSILON) } else { f64::EPSILON };
        let clip = |probability: f64| probability.clamp(epsilon, 1.0 - epsilon);
        let logit = |probability: f64| (probability / (1.0 - probability)).ln();
        match self {
            Self::Regression => predictions.to_vec(),
            Self::Binomial => predictions.iter().skip(1).map(|&p| logit(clip(p))).collect(),
            Self::Exponential => predictions.iter().skip(1).map(|&p| 0.5 * logit(clip(p))).collect(),
            Self::Multinomial => {
                let mut logs: Vec<f64> = predictions.iter().map(|&p| clip(p).ln()).collect();
                if version >= Version(1, 4) {
                    #[expect(clippy::cast_precision_loss, reason = "as NumPy's mean")]
                    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
                    for log in &mut logs {
                        *log -= mean;
                    }
                }
                logs
            }
        }
    }
}

impl Boosted {
    /// The sums of every row.
    fn sums(&self, x: &[f32], rows: usize) -> Result<Vec<f64>, PredictError> {
        let width = self.trees.len();
        let mut sums = match &self.start {
            Start::Zero => vec![0.0; rows * width],
            Start::Constant(start) => start.repeat(rows),
            Start::Estimator(estimator) => self.ask(estimator, x, rows)?,
        };
        if width == 1 {
            self.trees[0].add(x, &mut sums, self.learning_rate);
            return Ok(sums);
        }
        let mut own = vec![0.0; rows];
        for (index, trees) in self.trees.iter().enumerate() {
            own.iter_mut().zip(sums.iter().skip(index).step_by(width)).for_each(|(own, &sum)| *own = sum);
            trees.add(x, &mut own, self.learning_rate);
            sums.iter_mut().skip(index).step_by(width).zip(&own).for_each(|(sum, &own)| *sum = own);
        }
        Ok(sums)
    }

    fn ask(&self, estimator: &Estimator, x: &[f32], rows: usize) -> Result<Vec<f64>, PredictError> {
        let columns = self.features;
        let table = Data::Table(Table { elements: Elements::F32(x.into()), rows, columns });
        let method = if self.loss == Loss::Regression { Method::Predict } else { Method::PredictProba };
        let answer = estimator.call(method, &table)?;
        let class = || Arc::clone(&estimator.about.class);
        let matrix = answer.matrix().ok_or_else(|| PredictError::Text { class: class() })?;
        let wanted = self.labels.as_ref().map_or(1, Elements::len);
        if matrix.columns != wanted {
            return Err(PredictError::Features { class: class(), wanted, found: matrix.columns });
        }
        let predictions = matrix.to_f64();
        Ok(predictions.chunks_exact(matrix.columns).flat_map(|row| self.loss.link(row, self.version)).collect())
    }
}

impl Evaluate for Boosted {
    fn call(&self, method: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let x = rows(data, about, false)?;
        let mut sums = self.sums(&x, data.rows())?;
        let width = self.trees.len();
        let Some(labels) = &self.labels else { return Ok(Data::Table(Table::of_f64(sums, width))) };
        Ok(Data::Table(match (method, self.loss) {
            (Method::DecisionFunction, _) => Table::of_f64(sums, width),
            (Method::PredictProba, Loss::Multinomial) => {
                sums.chunks_exact_mut(width).for_each(softmax);
                Table::of_f64(sums, width)
            }
            (Method::PredictProba, loss) => {
                let scale = if loss == Loss::Exponential { 2.0 } else { 1.0 };
                let both = sums.iter().map(|sum| expit(scale * sum)).flat_map(|positive| [1.0 - positive, positive]);
                Table::of_f64(both.collect(), 2)
            }
            (_, Loss::Multinomial) => Table::of_column(labels.take(sums.chunks_exact(width).map(argmax))),
            // Zero was the first class until 1.3, and is the second since.
            _ if self.version < Version(1, 4) => {
                Table::of_column(labels.take(sums.iter().map(|&sum| usize::from(sum > 0.0))))
            }
            _ => Table::of_column(labels.take(sums.iter().map(|&sum| usize::from(sum >= 0.0)))),
        }))
    }

    fn cost(&self) -> u64 {
        let start = match &self.start {
            Start::Estimator(estimator) => estimator.evaluate.cost(),
            Start::Zero | Start::Constant(_) => 0,
        };
        start + self.trees.iter().map(Trees::cost).sum::<u64>()
    }
}
