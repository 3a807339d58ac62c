//! Compiles raw trees into a forest.

use std::cell::RefCell;
use std::collections::HashMap;

use super::raw::{RawBooster, RawModel, RawTree, RawTrees, XgboostVersion};
use crate::trees::compile::{CategorySet, Compiler, ForestShape, LeafValue, LoadedNode, SplitTest, TreeStatistics};
use crate::trees::error::{LoadError, TreeFault, quote};
use crate::trees::forest::{FeatureView, Forest};
use crate::trees::scalar::Scalar;

/// Categories from here on are invalid, because an `f32` cannot represent all of them.
const CATEGORIES: i64 = 1 << 24;

/// Compiles the trees up to the best round. `base` holds the margins that the outputs start from.
pub(super) fn compile(model: &RawModel, raw: &RawTrees, base: &[f32]) -> Result<Forest<f32>, LoadError> {
    let outputs = base.len();
    let count = raw.trees.len();
    if raw.tree_info.len() != count {
        return Err(LoadError::Count { field: "tree_info", wanted: count, found: raw.tree_info.len() });
    }
    if let Some(weights) = raw.weight_drop.as_ref().filter(|weights| weights.len() != count) {
        return Err(LoadError::Count { field: "weight_drop", wanted: count, found: weights.len() });
    }
    let vector = raw.trees.iter().any(|tree| tree.leaf_vector > 1);
    let width = if vector { outputs } else { 1 };
    let used = match &model.attributes.best_iteration {
        Some(best) => trees_until(best, raw, if vector { 1 } else { outputs })?,
        None => count,
    };
    let mut compiler = Compiler::new(&ForestShape { features: model.num_feature, outputs, width, tiny: 0.0 });
    for (index, tree) in raw.trees[..used].iter().enumerate() {
        let output = usize::try_from(raw.tree_info[index]).unwrap_or(usize::MAX);
        let scale = Scale {
            weight: raw.weight_drop.as_ref().map(|weights| weights[index]),
            base: if vector { base } else { base.get(output..).unwrap_or_default() },
            by_difference: model.version >= XgboostVersion(1, 4),
        };
        let view = TreeView::new(tree, width, &scale).map_err(|fault| fault.in_tree(index))?;
        let covers = Some(&tree.sum_hessian[..]).filter(|covers| covers.len() == tree.left.len());
        let statistics = TreeStatistics { covers, first_leaf: 0 };
        compiler.add(tree.left.len(), raw.tree_info[index], statistics, |node| view.describe(node))?;
    }
    Ok(compiler.finish())
}

impl RawModel {
    /// Returns whether that version of the library sums the trees from zero and then adds the base.
    pub(super) fn adds_base_last(&self) -> bool {
        let RawBooster::Trees(trees) = &self.booster else { return false };
        self.version < if trees.weight_drop.is_some() { XgboostVersion(1, 4) } else { XgboostVersion(1, 3) }
    }
}

/// How `dart` scales the leaves of a tree.
struct Scale<'a> {
    weight: Option<f32>,
    /// The initial sums of the tree's outputs; there may be more of them.
    base: &'a [f32],
    /// Whether the contribution of a tree is the difference of two sums, which rounds it, as it is since 1.4.
    by_difference: bool,
}

impl Scale<'_> {
    /// Returns the contribution of a leaf's value to the `index`th of the tree's outputs.
    fn apply(&self, index: usize, value: f32) -> f32 {
        let Some(weight) = self.weight else { return value };
        match self.base.get(index) {
            Some(base) if self.by_difference => ((base + value) - base) * weight,
            _ => value * weight,
        }
    }
}

/// Returns the number of trees up to and including the round `best`.
fn trees_until(best: &str, raw: &RawTrees, outputs: usize) -> Result<usize, LoadError> {
    let field = "best_iteration";
    let found = || quote(best);
    if best == "-1" {
        // Written if no round was run.
        return Ok(raw.trees.len());
    }
    let rounds = best.trim().parse::<usize>().ok();
    let rounds = rounds.and_then(|best| best.checked_add(1)).ok_or_else(|| LoadError::Field {
        field,
        wanted: "a round's number",
        found: found(),
    })?;
    let used = match &raw.iteration_indptr {
        Some(starts) => starts.get(rounds).and_then(|start| usize::try_from(*start).ok()),
        None => rounds.checked_mul(raw.num_parallel_tree).and_then(|trees| trees.checked_mul(outputs)),
    };
    used.filter(|used| *used <= raw.trees.len()).ok_or_else(|| LoadError::Field {
        field,
        wanted: "a round of the file",
        found: found(),
    })
}

/// A raw tree that has been checked.
struct TreeView<'a> {
    tree: &'a RawTree,
    /// The number of values in a leaf.
    width: usize,
    /// The start and number of the categories of each node.
    categories: HashMap<usize, (usize, usize)>,
    /// The scaled vectors of the leaves.
    vectors: Vec<f32>,
    /// The vectors that have been used. A second leaf with the same vector would let a small file expand to a large
    /// model.
    given: RefCell<Vec<bool>>,
    scale: &'a Scale<'a>,
}

impl<'a> TreeView<'a> {
    fn new(tree: &'a RawTree, width: usize, scale: &'a Scale<'a>) -> Result<Self, TreeFault> {
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
            vectors = weights.iter().enumerate().map(|(at, value)| scale.apply(at % width, *value)).collect();
        }
        let given = RefCell::new(vec![false; vectors.len() / width]);
        Ok(Self { tree, width, categories: category_ranges(tree)?, vectors, given, scale })
    }

    fn describe(&self, node: usize) -> Result<LoadedNode<'_, f32>, TreeFault> {
        let tree = self.tree;
        let (left, right) = (tree.left[node], tree.right[node]);
        if left == -1 {
            return self.leaf(node).map(LoadedNode::Leaf);
        }
        let feature = tree.feature[node];
        let missing_left = tree.default_left[node] != 0;
        if tree.split_type.get(node).is_none_or(|kind| *kind == 0) {
            let threshold = tree.condition[node].below();
            let test = SplitTest::AtMost { threshold, view: FeatureView::Plain, missing: missing_left };
            return Ok(LoadedNode::Split { feature, test, children: [left, right] });
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
        let test = SplitTest::Among { categories, lowest: 0.0, missing: !missing_left };
        Ok(LoadedNode::Split { feature, test, children: [right, left] })
    }

    fn leaf(&self, node: usize) -> Result<LeafValue<'_, f32>, TreeFault> {
        if self.width == 1 {
            return Ok(LeafValue::Value(self.scale.apply(0, self.tree.condition[node])));
        }
        let (field, index) = match self.tree.leaf_weights {
            Some(_) => ("right_children", self.tree.right[node]),
            None => ("base_weights", i64::try_from(node).unwrap_or(i64::MAX)),
        };
        let fresh = usize::try_from(index).ok().filter(|index| {
            self.given.borrow_mut().get_mut(*index).is_some_and(|given| !std::mem::replace(given, true))
        });
        let wanted = "the index of an unused leaf vector";
        let fresh = fresh.ok_or(TreeFault::Field { field, wanted, found: index.to_string() })?;
        Ok(LeafValue::Vector(&self.vectors[fresh * self.width..][..self.width]))
    }
}

/// Reads the range of categories of each node.
fn category_ranges(tree: &RawTree) -> Result<HashMap<usize, (usize, usize)>, TreeFault> {
    let splits = tree.categories_nodes.len();
    check_count("categories_segments", splits, tree.categories_segments.len())?;
    check_count("categories_sizes", splits, tree.categories_sizes.len())?;
    let found = tree.categories.len();
    let mut ranges = HashMap::new();
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
        // Sets do not overlap in files of the library. In a hostile file they could multiply the memory.
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
