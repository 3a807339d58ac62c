//! From a raw model to answers as the library's scikit-learn wrapper gives them.

use super::linear::Linear;
use super::objective::{Link, argmax, softmax};
use super::raw::{RawBooster, RawModel, RawTree, RawTrees};
use crate::runtimes::trees::Kind;
use crate::runtimes::trees::compile::{CategorySet, Compiler, Leaf, Shape, Source, Test};
use crate::runtimes::trees::data::{Matrix, Prediction, Scores, Values};
use crate::runtimes::trees::error::{LoadError, TreeFault, quote};
use crate::runtimes::trees::forest::{Forest, View};
use crate::runtimes::trees::scalar::Scalar;

/// Categories from here on are none, because an `f32` cannot tell them apart.
const CATEGORIES: i64 = 1 << 24;

/// A compiled model.
#[derive(Debug)]
pub(in crate::runtimes::trees) struct Evaluator {
    booster: Booster,
    /// Where each output's sum starts.
    base: Vec<f32>,
    link: Link,
    /// At least 2.
    classes: usize,
    kind: Kind,
}

#[derive(Debug)]
enum Booster {
    Trees(Box<Forest<f32>>),
    Linear(Linear),
}

impl Evaluator {
    /// Compiles a model that was read from a file of `size` bytes.
    pub(in crate::runtimes::trees) fn new(model: RawModel, size: usize) -> Result<Self, LoadError> {
        let link = Link::of(&model.objective)?;
        let kind = match model.attributes.estimator_type.as_deref() {
            None | Some("regressor") => Kind::Regressor,
            Some("classifier") => Kind::Classifier,
            Some(other) => {
                return Err(LoadError::Unsupported { what: "estimator type", name: quote(other) });
            }
        };
        let outputs = model.num_class.max(model.num_target).max(1);
        // Each output takes some bytes of the file, so a larger number is a lie that would cost memory.
        if outputs > size {
            return Err(LoadError::TooLarge { what: "outputs", count: outputs, limit: size });
        }
        let to_margin = |score: &f32| if model.base_is_margin { *score } else { link.margin(*score) };
        let mut base: Vec<f32> = model.base_score.iter().map(to_margin).collect();
        if base.len() != 1 && base.len() != outputs {
            return Err(LoadError::Count { field: "base_score", wanted: outputs, found: base.len() });
        }
        let booster = match model.booster {
            RawBooster::Trees(trees) => {
                let best = model.attributes.best_iteration.as_deref();
                Booster::Trees(Box::new(compile(&trees, model.num_feature, outputs, best)?))
            }
            RawBooster::Linear { weights } => {
                Booster::Linear(Linear::new(weights, model.num_feature, outputs, base[0])?)
            }
        };
        base.resize(outputs, base[0]);
        Ok(Self { booster, base, link, classes: model.num_class.max(2), kind })
    }

    pub(in crate::runtimes::trees) fn kind(&self) -> Kind {
        self.kind
    }

    pub(in crate::runtimes::trees) fn steps(&self) -> usize {
        match &self.booster {
            Booster::Trees(forest) => forest.steps(),
            Booster::Linear(linear) => linear.steps(),
        }
    }

    /// The sums of all trees, in single precision.
    pub(in crate::runtimes::trees) fn margins(&self, rows: Matrix<'_>) -> Prediction {
        let outputs = self.base.len();
        let mut margins = self.base.repeat(rows.rows());
        match (&self.booster, rows.values()) {
            (Booster::Trees(forest), Values::F32(values)) => {
                forest.add(&rows.input(values, f32::from_f32), &mut margins);
            }
            (Booster::Trees(forest), Values::F64(values)) => {
                forest.add(&rows.input(values, f32::from_f64), &mut margins);
            }
            (Booster::Linear(linear), values) => {
                for (index, margins) in margins.chunks_exact_mut(outputs).enumerate() {
                    let range = index * rows.columns()..(index + 1) * rows.columns();
                    match values {
                        Values::F32(values) => linear.margins(&values[range], f32::from_f32, margins),
                        Values::F64(values) => {
                            linear.margins(&values[range], f32::from_f64, margins);
                        }
                    }
                }
            }
        }
        Prediction { values: Scores::F32(margins), columns: outputs }
    }

    /// What the booster predicts: transformed margins.
    fn predictions(&self, rows: Matrix<'_>) -> (Vec<f32>, usize) {
        let margins = self.margins(rows);
        let columns = margins.columns;
        let Scores::F32(mut values) = margins.values else { unreachable!("margins are in single precision") };
        if self.link == Link::Argmax {
            return (values.chunks_exact(columns).map(|row| as_float(argmax(row))).collect(), 1);
        }
        self.link.apply(&mut values, columns);
        (values, columns)
    }

    /// What `predict` of the wrapper returns.
    pub(in crate::runtimes::trees) fn predict(&self, rows: Matrix<'_>) -> Prediction {
        let (values, columns) = self.predictions(rows);
        if self.kind == Kind::Regressor {
            return Prediction { values: Scores::F32(values), columns };
        }
        if columns > 1 && self.classes != 2 {
            let labels = values.chunks_exact(columns).map(|row| as_label(argmax(row)));
            return Prediction { values: Scores::I64(labels.collect()), columns: 1 };
        }
        if columns > 1 {
            let labels = values.iter().map(|value| if *value > 0.5 { 1.0 } else { 0.0 });
            return Prediction { values: Scores::F64(labels.collect()), columns };
        }
        let values = if self.link == Link::Argmax {
            Scores::I32(values.into_iter().map(truncate).collect())
        } else {
            Scores::I64(values.into_iter().map(|value| i64::from(value > 0.5)).collect())
        };
        Prediction { values, columns: 1 }
    }

    /// What `predict_proba` of the wrapper returns, if the model is a classifier.
    pub(in crate::runtimes::trees) fn probabilities(&self, rows: Matrix<'_>) -> Prediction {
        if self.link == Link::Argmax {
            let mut margins = self.margins(rows);
            if let Scores::F32(values) = &mut margins.values {
                values.chunks_exact_mut(margins.columns).for_each(softmax);
            }
            return margins;
        }
        let (values, columns) = self.predictions(rows);
        if columns > 1 {
            return Prediction { values: Scores::F32(values), columns };
        }
        let both = values.into_iter().flat_map(|value| [1.0 - value, value]).collect();
        Prediction { values: Scores::F32(both), columns: 2 }
    }
}

/// Compiles the trees up to the best round.
fn compile(raw: &RawTrees, features: usize, outputs: usize, best: Option<&str>) -> Result<Forest<f32>, LoadError> {
    let count = raw.trees.len();
    if raw.tree_info.len() != count {
        return Err(LoadError::Count { field: "tree_info", wanted: count, found: raw.tree_info.len() });
    }
    if let Some(weights) = raw.weight_drop.as_ref().filter(|weights| weights.len() != count) {
        return Err(LoadError::Count { field: "weight_drop", wanted: count, found: weights.len() });
    }
    let vector = raw.trees.iter().any(|tree| tree.leaf_vector > 1);
    let width = if vector { outputs } else { 1 };
    let used = match best {
        Some(best) => trees_until(best, raw, if vector { 1 } else { outputs })?,
        None => count,
    };
    let mut compiler = Compiler::new(&Shape { features, outputs, width, tiny: 0.0 });
    for (index, tree) in raw.trees[..used].iter().enumerate() {
        let weight = raw.weight_drop.as_ref().map_or(1.0, |weights| weights[index]);
        let in_tree = |fault: TreeFault| fault.in_tree(index);
        let view = TreeView::new(tree, width, weight).map_err(in_tree)?;
        compiler.add(tree.left.len(), raw.tree_info[index], |node| view.describe(node))?;
    }
    Ok(compiler.finish())
}

/// How many trees there are up to and including the round `best`.
fn trees_until(best: &str, raw: &RawTrees, outputs: usize) -> Result<usize, LoadError> {
    let field = "best_iteration";
    let found = || quote(best);
    let rounds = best
        .trim()
        .parse::<usize>()
        .ok()
        .and_then(|best| best.checked_add(1))
        .ok_or_else(|| LoadError::Field { field, wanted: "a round's number", found: found() })?;
    let used = match &raw.iteration_indptr {
        Some(starts) => starts.get(rounds).and_then(|start| usize::try_from(*start).ok()),
        None => rounds.checked_mul(raw.num_parallel_tree).and_then(|trees| trees.checked_mul(outputs)),
    };
    used.filter(|used| *used <= raw.trees.len()).ok_or_else(|| LoadError::Field {
        field,
        wanted: "a round that the file has",
        found: found(),
    })
}

/// A checked raw tree.
struct TreeView<'a> {
    tree: &'a RawTree,
    /// Values in a leaf.
    width: usize,
    /// Where the categories of a node start and how many there are.
    categories: std::collections::HashMap<usize, (usize, usize)>,
    /// The leaves' vectors, with the tree's weight applied.
    vectors: Vec<f32>,
    /// Which vectors have been given out. A second leaf with the same would let a small file grow large.
    given: std::cell::RefCell<Vec<bool>>,
    weight: f32,
}

impl<'a> TreeView<'a> {
    fn new(tree: &'a RawTree, width: usize, weight: f32) -> Result<Self, TreeFault> {
        let nodes = tree.left.len();
        let lengths = [
            ("right_children", tree.right.len()),
            ("split_indices", tree.feature.len()),
            ("split_conditions", tree.condition.len()),
            ("default_left", tree.default_left.len()),
            ("split_type", if tree.split_type.is_empty() { nodes } else { tree.split_type.len() }),
        ];
        for (field, found) in lengths {
            check_count(field, nodes, found)?;
        }
        let mut vectors = Vec::new();
        if width > 1 {
            check_count("size_leaf_vector", width, tree.leaf_vector)?;
            let weights = if let Some(weights) = &tree.leaf_weights {
                weights
            } else {
                check_count("base_weights", nodes.saturating_mul(width), tree.base_weights.len())?;
                &tree.base_weights
            };
            vectors = weights.iter().map(|value| value * weight).collect();
        }
        let given = std::cell::RefCell::new(vec![false; vectors.len() / width]);
        Ok(Self { tree, width, categories: category_ranges(tree)?, vectors, given, weight })
    }

    fn describe(&self, node: usize) -> Result<Source<'_, f32>, TreeFault> {
        let tree = self.tree;
        let (left, right) = (tree.left[node], tree.right[node]);
        if left == -1 {
            return self.leaf(node).map(Source::Leaf);
        }
        let feature = tree.feature[node];
        let missing_left = tree.default_left[node] != 0;
        if tree.split_type.get(node).is_none_or(|kind| *kind == 0) {
            let threshold = tree.condition[node].below();
            let test = Test::AtMost { threshold, view: View::Plain, missing: missing_left };
            return Ok(Source::Split { feature, test, children: [left, right] });
        }
        let (start, size) = self.categories.get(&node).copied().unwrap_or_default();
        let list = tree.categories[start..start + size].iter().map(|category| {
            u32::try_from(*category).ok().filter(|_| *category < CATEGORIES).ok_or_else(|| {
                let found = category.to_string();
                TreeFault::Field { field: "categories", wanted: "a category below 2^24", found }
            })
        });
        let categories = CategorySet::List(list.collect::<Result<_, _>>()?);
        // A category that is in the set goes right.
        let test = Test::Among { categories, lowest: 0.0, missing: !missing_left };
        Ok(Source::Split { feature, test, children: [right, left] })
    }

    fn leaf(&self, node: usize) -> Result<Leaf<'_, f32>, TreeFault> {
        if self.width == 1 {
            return Ok(Leaf::Value(self.tree.condition[node] * self.weight));
        }
        let (field, index) = match self.tree.leaf_weights {
            Some(_) => ("right_children", self.tree.right[node]),
            None => ("base_weights", i64::try_from(node).unwrap_or(i64::MAX)),
        };
        let fresh = usize::try_from(index).ok().filter(|index| {
            self.given.borrow_mut().get_mut(*index).is_some_and(|given| !std::mem::replace(given, true))
        });
        let wanted = "the index of a leaf vector of its own";
        let fresh = fresh.ok_or(TreeFault::Field { field, wanted, found: index.to_string() })?;
        Ok(Leaf::Vector(&self.vectors[fresh * self.width..][..self.width]))
    }
}

/// Reads which node has which categories.
fn category_ranges(tree: &RawTree) -> Result<std::collections::HashMap<usize, (usize, usize)>, TreeFault> {
    let splits = tree.categories_nodes.len();
    check_count("categories_segments", splits, tree.categories_segments.len())?;
    check_count("categories_sizes", splits, tree.categories_sizes.len())?;
    let found = tree.categories.len();
    let mut ranges = std::collections::HashMap::new();
    let mut total = 0;
    let segments = tree.categories_segments.iter().zip(&tree.categories_sizes);
    for (&node, (&start, &size)) in tree.categories_nodes.iter().zip(segments) {
        let nodes = tree.left.len();
        let node = usize::try_from(node).ok().filter(|node| *node < nodes).ok_or_else(|| TreeFault::Field {
            field: "categories_nodes",
            wanted: "a node",
            found: node.to_string(),
        })?;
        let end = start.saturating_add(size);
        let out_of_range = TreeFault::CategoriesOutOfRange { node, start, end, found };
        let (Ok(start), Ok(size)) = (usize::try_from(start), usize::try_from(size)) else {
            return Err(out_of_range);
        };
        // Sets do not overlap in the library's files; in a hostile one they could multiply the memory.
        total += size.min(found + 1);
        if start.checked_add(size).is_none_or(|end| end > found) || total > found {
            return Err(out_of_range);
        }
        ranges.insert(node, (start, size));
    }
    let without = (0..tree.split_type.len())
        .find(|node| tree.split_type[*node] != 0 && tree.left[*node] != -1 && !ranges.contains_key(node));
    if without.is_some() {
        return Err(TreeFault::Count { field: "categories_nodes", wanted: splits + 1, found: splits });
    }
    Ok(ranges)
}

fn check_count(field: &'static str, wanted: usize, found: usize) -> Result<(), TreeFault> {
    if found == wanted { Ok(()) } else { Err(TreeFault::Count { field, wanted, found }) }
}

/// A class index as the library's own prediction has it.
#[expect(clippy::cast_precision_loss, reason = "a class index is small, and the library rounds it too")]
fn as_float(class: usize) -> f32 {
    class as f32
}

#[expect(clippy::cast_possible_wrap, reason = "an index into memory fits")]
fn as_label(class: usize) -> i64 {
    class as i64
}

#[expect(clippy::cast_possible_truncation, reason = "the wrapper truncates too")]
fn truncate(class: f32) -> i32 {
    class as i32
}
