//! Compiles a text model, and evaluates it like the booster of the library.

use super::objective::Link;
use super::text::{Document, Section};
use crate::contributions::ContributionTable;
use crate::trees::compile::{CategorySet, Compiler, ForestShape, LeafValue, LoadedNode, SplitTest, TreeStatistics};
use crate::trees::data::{FeatureMatrix, FeatureValues, PredictedValues, Prediction};
use crate::trees::error::{LoadError, TreeFault, quote};
use crate::trees::forest::{FeatureView, Forest};
use crate::trees::scalar::Scalar;

/// The library's `1e-35f`. Values up to it count as zero.
const TINY: f64 = 1e-35_f32 as f64;

/// A compiled model.
#[derive(Debug)]
pub(in crate::trees) struct Evaluator {
    forest: Forest<f64>,
    /// What sums are divided by in a random forest.
    iterations: Option<f64>,
    link: Link,
}

/// Loads a model with at most this many rounds, and the names of its features.
pub(in crate::trees) fn load(bytes: &[u8], rounds: Option<usize>) -> Result<(Evaluator, Vec<String>), LoadError> {
    // The library treats the file as bytes. Names of features and parameters, such as paths, are in the encoding of the program that wrote
    // them; what the trees consist of is ASCII.
    let text = String::from_utf8_lossy(bytes);
    let Document { header, mut trees } = Document::parse(&text)?;
    let features = number_of_features(&header)?;
    if header.get("num_tree_per_iteration").is_none() {
        // The library takes a number of its own.
        return Err(LoadError::Unsupported { what: "a model", name: "without `num_tree_per_iteration`".to_owned() });
    }
    let outputs: usize = header.number("num_tree_per_iteration")?;
    // A file without trees may have several outputs; with trees, there is at least one tree for each output.
    if outputs == 0 || outputs > bytes.len() {
        return Err(LoadError::TooLarge { what: "outputs", count: outputs, limit: bytes.len() });
    }
    if let Some(sizes) = header.get("tree_sizes") {
        let wanted = sizes.split_ascii_whitespace().count();
        if wanted < trees.len() {
            // The library uses the first trees only.
            let name = format!("with {wanted} sizes for {} trees", trees.len());
            return Err(LoadError::Unsupported { what: "a model", name });
        }
        if wanted != trees.len() {
            return Err(LoadError::Count { field: "Tree", wanted, found: trees.len() });
        }
    }
    if let Some(rounds) = rounds {
        trees.truncate(rounds.saturating_mul(outputs));
    }
    // Linear trees came with 3.2. Since then every tree has the flag.
    let old = trees.iter().all(|tree| tree.get("is_linear").is_none());
    let link = Link::parse(header.get("objective"), outputs, old)?;
    let mut compiler = Compiler::new(&ForestShape { features, outputs, width: 1, tiny: TINY });
    for (index, section) in trees.iter().enumerate() {
        let in_tree = |fault: TreeFault| fault.in_tree(index);
        let tree = Tree::parse(section).map_err(in_tree)?;
        let nodes = tree.values.len() * 2 - 1;
        let output = i64::try_from(index % outputs).unwrap_or(i64::MAX);
        let statistics = TreeStatistics { covers: tree.covers.as_deref(), first_leaf: tree.decisions.len() };
        let reached = compiler.add(nodes, output, statistics, |node| tree.describe(node))?;
        if reached < nodes {
            return Err(TreeFault::Unreachable { found: nodes - reached, nodes }.in_tree(index));
        }
    }
    let iterations = header.get("average_output").map(|_| as_divisor((trees.len() / outputs).max(1)));
    let names = feature_names(&header, features)?;
    Ok((Evaluator { forest: compiler.finish(), iterations, link }, names))
}

impl Evaluator {
    pub(in crate::trees) fn cost(&self, rows: usize) -> usize {
        self.forest.cost(rows)
    }

    /// Returns the sums of all trees, even for a random forest.
    pub(in crate::trees) fn margins(&self, rows: FeatureMatrix<'_>) -> Prediction {
        Prediction { values: PredictedValues::F64(self.sums(rows)), columns: self.forest.outputs }
    }

    /// Returns what `predict` of the booster returns.
    pub(in crate::trees) fn predict(&self, rows: FeatureMatrix<'_>) -> Prediction {
        let mut sums = self.sums(rows);
        if let Some(iterations) = self.iterations {
            for sum in &mut sums {
                *sum /= iterations;
            }
        }
        self.link.apply(&mut sums, self.forest.outputs);
        Prediction { values: PredictedValues::F64(sums), columns: self.forest.outputs }
    }

    /// Returns the trees, for their contributions.
    pub(in crate::trees) fn forest(&self) -> &Forest<f64> {
        &self.forest
    }

    /// Returns the contributions to the sums of all trees, even for a random forest.
    pub(in crate::trees) fn contributions(&self, table: &ContributionTable, rows: FeatureMatrix<'_>) -> Prediction {
        let base = vec![0.0; self.forest.outputs];
        let count = rows.rows();
        let values = match rows.values() {
            FeatureValues::F32(values) => {
                self.forest.contributions(table, &base, count, &rows.input(values, f64::from_f32))
            }
            FeatureValues::F64(values) => {
                self.forest.contributions(table, &base, count, &rows.input(values, f64::from_f64))
            }
        };
        Prediction { values: PredictedValues::F64(values), columns: self.forest.outputs * (rows.columns() + 1) }
    }

    /// Returns the number of the leaf in each tree.
    pub(in crate::trees) fn leaves(&self, rows: FeatureMatrix<'_>) -> Prediction {
        let values = match rows.values() {
            FeatureValues::F32(values) => self.forest.leaves(rows.rows(), &rows.input(values, f64::from_f32)),
            FeatureValues::F64(values) => self.forest.leaves(rows.rows(), &rows.input(values, f64::from_f64)),
        };
        Prediction { values: PredictedValues::I32(values), columns: self.forest.trees() }
    }

    fn sums(&self, rows: FeatureMatrix<'_>) -> Vec<f64> {
        let mut sums = vec![0.0; rows.rows() * self.forest.outputs];
        match rows.values() {
            FeatureValues::F32(values) => self.forest.add(&rows.input(values, f64::from_f32), &mut sums),
            FeatureValues::F64(values) => self.forest.add(&rows.input(values, f64::from_f64), &mut sums),
        }
        sums
    }
}

/// One tree. Splits are numbered first, then leaves.
struct Tree {
    features: Vec<i64>,
    thresholds: Vec<f64>,
    decisions: Vec<u8>,
    left: Vec<i64>,
    right: Vec<i64>,
    values: Vec<f64>,
    /// The words of each set of categories.
    sets: Vec<Vec<u32>>,
    /// The sets that have been used. A second split with the same set would let a small file expand to a large model.
    given: std::cell::RefCell<Vec<bool>>,
    /// The number of training rows that reach each split and each leaf.
    covers: Option<Vec<f64>>,
    /// For each leaf of a linear tree: constant, features and coefficients.
    linear: Option<Vec<LinearModel>>,
}

struct LinearModel {
    constant: f64,
    terms: Vec<(i64, f64)>,
}

impl Tree {
    fn parse(section: &Section<'_>) -> Result<Self, TreeFault> {
        let leaves: usize = section.tree_number("num_leaves")?;
        if leaves == 0 {
            return Err(TreeFault::Empty);
        }
        let values = section.list("leaf_value", leaves)?;
        let linear = match section.get("is_linear").map(str::trim) {
            Some("1") => Some(linear_models(section, leaves)?),
            None | Some("0") => None,
            // Any other number is linear, too, for the library.
            Some(other) => return Err(TreeFault::Unsupported { what: "is_linear", name: quote(other) }),
        };
        let splits = leaves - 1;
        let mut tree = Self {
            features: Vec::new(),
            thresholds: Vec::new(),
            decisions: Vec::new(),
            left: Vec::new(),
            right: Vec::new(),
            values,
            sets: Vec::new(),
            given: std::cell::RefCell::default(),
            covers: counts(section, leaves),
            linear,
        };
        // The arrays of a constant tree are empty or missing.
        if splits > 0 {
            tree.features = section.list("split_feature", splits)?;
            tree.thresholds = section.list("threshold", splits)?;
            tree.decisions = decisions(section, splits)?;
            tree.left = section.list("left_child", splits)?;
            tree.right = section.list("right_child", splits)?;
            if section.get("num_cat").is_some_and(|count| count.trim() != "0") {
                tree.sets = category_sets(section)?;
                tree.given.replace(vec![false; tree.sets.len()]);
            }
        }
        Ok(tree)
    }

    fn describe(&self, node: usize) -> Result<LoadedNode<'_, f64>, TreeFault> {
        let Some(decision) = self.decisions.get(node) else {
            return Ok(LoadedNode::Leaf(self.leaf(node - self.decisions.len())));
        };
        let children = [self.left[node], self.right[node]].map(|child| self.number(child));
        let feature = self.features[node];
        let threshold = self.thresholds[node];
        if decision & 1 == 1 {
            let found = threshold;
            let words = self.set(threshold).ok_or_else(|| {
                let wanted = "the index of an unused set of categories";
                TreeFault::Field { field: "threshold", wanted, found: found.to_string() }
            })?;
            // Truncation is toward zero, so values above -1 count as category 0.
            let lowest = (-1.0_f64).next_up();
            let test = SplitTest::Among { categories: CategorySet::Bits(words), lowest, missing: false };
            return Ok(LoadedNode::Split { feature, test, children });
        }
        let view = match decision >> 2 & 3 {
            0 => FeatureView::MissingIsZero,
            1 => FeatureView::ZeroIsMissing,
            2 => FeatureView::Plain,
            _ => {
                let (field, wanted) = ("decision_type", "a known rule for missing values");
                return Err(TreeFault::Field { field, wanted, found: decision.to_string() });
            }
        };
        let test = SplitTest::AtMost { threshold, view, missing: decision & 2 == 2 };
        Ok(LoadedNode::Split { feature, test, children })
    }

    /// Converts the index of a child. Negative ones are leaves.
    fn number(&self, child: i64) -> i64 {
        let splits = i64::try_from(self.decisions.len()).unwrap_or(i64::MAX);
        if child < 0 {
            splits.saturating_add(!child)
        } else if child < splits {
            child
        } else {
            -1
        }
    }

    fn leaf(&self, leaf: usize) -> LeafValue<'_, f64> {
        let fallback = self.values[leaf];
        match &self.linear {
            Some(models) => {
                let LinearModel { constant, terms } = &models[leaf];
                LeafValue::Linear { constant: *constant, terms: terms.clone(), fallback }
            }
            None => LeafValue::Value(fallback),
        }
    }

    fn set(&self, threshold: f64) -> Option<&[u32]> {
        if threshold < 0.0 || threshold.is_nan() {
            return None;
        }
        let index = threshold.truncate() as usize;
        let already = std::mem::replace(self.given.borrow_mut().get_mut(index)?, true);
        self.sets.get(index).filter(|_| !already).map(Vec::as_slice)
    }
}

/// Reads how each split decides.
fn decisions(section: &Section<'_>, splits: usize) -> Result<Vec<u8>, TreeFault> {
    if section.get("decision_type").is_none() {
        // The library takes all splits for numeric ones.
        return Err(TreeFault::Unsupported { what: "a tree", name: "without `decision_type`".to_owned() });
    }
    let wide: Vec<i64> = section.list("decision_type", splits)?;
    let narrow = |decision: i64| {
        // The library keeps the low byte. With both bits of the rule for missing values, it applies none.
        let known =
            u8::try_from(decision).ok().filter(|decision| decision & 0b1111_0000 == 0 && decision >> 2 & 3 != 3);
        known.ok_or_else(|| TreeFault::Unsupported { what: "decision_type", name: decision.to_string() })
    };
    wide.into_iter().map(narrow).collect()
}

/// Reads how many training rows reach each split and each leaf, if the file says so.
fn counts(section: &Section<'_>, leaves: usize) -> Option<Vec<f64>> {
    if leaves == 1 {
        // The counts of a constant tree are missing, and not needed.
        return Some(vec![1.0]);
    }
    let mut counts = section.list("internal_count", leaves - 1).ok()?;
    counts.extend(section.list::<f64>("leaf_count", leaves).ok()?);
    Some(counts)
}

/// Reads the sets of all categorical splits.
fn category_sets(section: &Section<'_>) -> Result<Vec<Vec<u32>>, TreeFault> {
    let boundaries: Vec<i64> = section.list_of_any_length("cat_boundaries")?;
    let words: Vec<u32> = section.list_of_any_length("cat_threshold")?;
    let mut sets = Vec::new();
    let mut position = 0;
    for (node, pair) in boundaries.windows(2).enumerate() {
        let (start, end) = (pair[0], pair[1]);
        let out_of_range = TreeFault::CategoriesOutOfRange { node, start, end, found: words.len() };
        // Each set begins where the previous one ends.
        let stop = usize::try_from(end).ok().filter(|_| usize::try_from(start) == Ok(position));
        let Some(set) = stop.and_then(|stop| words.get(position..stop)) else { return Err(out_of_range) };
        sets.push(set.to_vec());
        position += set.len();
    }
    Ok(sets)
}

/// Reads the linear models of all leaves.
fn linear_models(section: &Section<'_>, leaves: usize) -> Result<Vec<LinearModel>, TreeFault> {
    // The library takes missing constants for 0.
    let constants: Vec<f64> =
        if section.get("leaf_const").is_some() { section.list("leaf_const", leaves)? } else { vec![0.0; leaves] };
    let counts: Vec<usize> = section.list("num_features", leaves)?;
    let total = counts.iter().fold(0, |sum: usize, count| sum.saturating_add(*count));
    let features: Vec<i64> = section.list("leaf_features", total)?;
    let coefficients: Vec<f64> = section.list("leaf_coeff", total)?;
    let mut terms = features.into_iter().zip(coefficients);
    let models = constants.into_iter().zip(counts);
    Ok(models.map(|(constant, count)| LinearModel { constant, terms: terms.by_ref().take(count).collect() }).collect())
}

fn number_of_features(header: &Section<'_>) -> Result<usize, LoadError> {
    let last: i64 = header.number("max_feature_idx")?;
    usize::try_from(last.saturating_add(1)).map_err(|_| LoadError::Field {
        field: "max_feature_idx",
        wanted: "a feature",
        found: last.to_string(),
    })
}

fn feature_names(header: &Section<'_>, features: usize) -> Result<Vec<String>, LoadError> {
    let names = header.get("feature_names").ok_or(LoadError::MissingField { field: "feature_names" })?;
    // Other white space is part of a name.
    let names: Vec<String> = names.split(' ').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.len() == features {
        return Ok(names);
    }
    Err(LoadError::Count { field: "feature_names", wanted: features, found: names.len() })
}

#[expect(clippy::cast_precision_loss, reason = "a count of iterations is far below 2^52")]
fn as_divisor(iterations: usize) -> f64 {
    iterations as f64
}
