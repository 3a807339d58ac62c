//! Tree ensembles of ONNX, as its operators describe them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::AtomicBool;

use super::compile::{Compiler, ForestShape, LeafValue, LoadedNode, SplitTest, TreeStatistics};
use super::data::InputRows;
use super::error::{LoadError, TreeFault};
use super::forest::{FeatureView, Forest};
use super::scalar::Scalar;

/// How often a walk looks whether it is to stop, in rows.
const ROWS: usize = 64;

/// How a split compares a value with its threshold. Missing values go to the second child, unless the node says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BranchMode {
    AtMost,
    Below,
    AtLeast,
    Above,
    Equal,
    NotEqual,
    Member,
}

/// How the weights of the leaves of all trees become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Aggregate {
    Sum,
    Average,
    Min,
    Max,
}

/// A node of a tree. Children are indices of the same tree, whose root is node 0.
#[derive(Debug, Clone)]
pub(crate) enum EnsembleNode<T> {
    Split {
        feature: i64,
        mode: BranchMode,
        threshold: T,
        /// The part of the ensemble's members, for [`BranchMode::Member`].
        members: Range<usize>,
        /// The child if the comparison holds, and the one if it does not.
        children: [usize; 2],
        /// Whether a missing value goes to the first child.
        missing: bool,
    },
    /// Weights for targets: a part of the ensemble's weights.
    Leaf(Range<usize>),
}

/// Trees, before they are checked.
#[derive(Debug)]
pub(crate) struct Ensemble<T> {
    pub(crate) trees: Vec<Vec<EnsembleNode<T>>>,
    /// Targets and weights.
    pub(crate) weights: Vec<(usize, T)>,
    pub(crate) members: Vec<T>,
    pub(crate) targets: usize,
    pub(crate) aggregate: Aggregate,
}

/// Trees that can be evaluated.
#[derive(Debug)]
pub(crate) struct CompiledEnsemble<T> {
    evaluator: Evaluator<T>,
    targets: usize,
    /// One more than the last feature that a split reads.
    features: usize,
    trees: usize,
    aggregate: Aggregate,
    /// Whether every row has a weight for each target; `None` if that depends on the row.
    scored: Vec<Option<bool>>,
}

#[derive(Debug)]
enum Evaluator<T> {
    /// In the compiled form of all libraries.
    Forest(Box<Forest<T>>),
    /// Node by node: for comparisons and aggregates that the compiled form does not have.
    Walk(Ensemble<T>),
}

impl<T: Scalar> CompiledEnsemble<T> {
    /// Checks trees and compiles them.
    pub(crate) fn new(ensemble: Ensemble<T>) -> Result<Self, LoadError> {
        let features = ensemble.check()?;
        let (targets, trees, aggregate) = (ensemble.targets, ensemble.trees.len(), ensemble.aggregate);
        let scored = ensemble.scored();
        let is_walk = matches!(aggregate, Aggregate::Min | Aggregate::Max)
            || ensemble.trees.iter().flatten().any(|node| {
                matches!(
                    node,
                    EnsembleNode::Split { mode: BranchMode::Equal | BranchMode::NotEqual | BranchMode::Member, .. }
                )
            });
        let evaluator =
            if is_walk { Evaluator::Walk(ensemble) } else { Evaluator::Forest(Box::new(ensemble.compile(features)?)) };
        Ok(Self { evaluator, targets, features, trees, aggregate, scored })
    }

    /// Returns the number of targets.
    pub(crate) const fn targets(&self) -> usize {
        self.targets
    }

    /// Returns how many features a row needs at least.
    pub(crate) const fn features(&self) -> usize {
        self.features
    }

    /// Returns whether every row has a weight for a target, `None` if that depends on the row.
    pub(crate) fn is_scored(&self, target: usize) -> Option<bool> {
        self.scored.get(target).copied().flatten()
    }

    /// Estimates how many nanoseconds this many rows take.
    pub(crate) fn cost(&self, rows: usize) -> usize {
        match &self.evaluator {
            Evaluator::Forest(forest) => forest.cost(rows),
            Evaluator::Walk(ensemble) => {
                let nodes: usize = ensemble.trees.iter().map(Vec::len).sum();
                rows.saturating_mul(self.trees.saturating_mul(20).min(nodes.saturating_mul(4)))
            }
        }
    }

    /// Aggregates the weights of each row of `columns` values into `sums`, which are zeros: `targets` for each row.
    ///
    /// Rows are as long as [`Self::features`] at least. Without a weight, a target stays 0.
    pub(crate) fn aggregate<S: Copy>(
        &self,
        values: &[S],
        columns: usize,
        convert: impl Fn(S) -> T,
        stop: &AtomicBool,
        sums: &mut [T],
    ) {
        let input = InputRows { values, features: columns, convert, stop: Some(stop) };
        match &self.evaluator {
            Evaluator::Forest(forest) => forest.add(&input, sums),
            Evaluator::Walk(ensemble) => ensemble.walk_all(&input, sums),
        }
        if self.aggregate == Aggregate::Average {
            #[expect(clippy::cast_precision_loss, reason = "trees fit in memory")]
            let count = self.trees as f64;
            for sum in sums {
                // Rounded once to double and once to single precision, which is the quotient in single precision.
                *sum = T::from_f64((*sum).into() / count);
            }
        }
    }
}

impl<T: Scalar> Ensemble<T> {
    /// Checks children, features, targets and thresholds, and returns one more than the last feature.
    fn check(&self) -> Result<usize, LoadError> {
        let mut features = 0;
        for (index, nodes) in self.trees.iter().enumerate() {
            let mut seen = vec![false; nodes.len()];
            let mut pending = vec![0];
            while let Some(node) = pending.pop() {
                let found = nodes.get(node).ok_or_else(|| missing(node).in_tree(index))?;
                if std::mem::replace(&mut seen[node], true) {
                    return Err(fault("child", "a node that has one parent", node).in_tree(index));
                }
                match found {
                    EnsembleNode::Leaf(weights) => {
                        let targets = &self.weights[weights.clone()];
                        let mut own = HashSet::with_capacity(targets.len());
                        for (target, _) in targets {
                            if *target >= self.targets {
                                return Err(fault("target", "one of the targets", *target).in_tree(index));
                            }
                            if !own.insert(*target) {
                                let name = format!("two weights for target {target}");
                                return Err(LoadError::Unsupported { what: "leaf with", name });
                            }
                        }
                    }
                    EnsembleNode::Split { feature, threshold, children, .. } => {
                        let place = usize::try_from(*feature).ok().filter(|feature| *feature < i32::MAX as usize);
                        let place = place
                            .ok_or_else(|| fault("feature", "the number of a feature", *feature).in_tree(index))?;
                        features = features.max(place + 1);
                        if threshold.is_nan() {
                            return Err(LoadError::Unsupported { what: "threshold", name: "NaN".to_owned() });
                        }
                        pending.extend(children);
                    }
                }
            }
        }
        Ok(features)
    }

    /// Returns for each target whether it has a weight in the leaves of each row, `None` if in some only.
    fn scored(&self) -> Vec<Option<bool>> {
        let mut scored = vec![Some(false); self.targets];
        let mut counts: HashMap<usize, usize> = HashMap::new();
        for tree in &self.trees {
            counts.clear();
            let mut leaves = 0;
            for node in tree {
                let EnsembleNode::Leaf(weights) = node else { continue };
                leaves += 1;
                for (target, _) in &self.weights[weights.clone()] {
                    *counts.entry(*target).or_insert(0) += 1;
                }
            }
            for (target, count) in &counts {
                if let Some(slot) = scored.get_mut(*target)
                    && *slot != Some(true)
                {
                    *slot = (*count == leaves).then_some(true);
                }
            }
        }
        scored
    }

    fn compile(&self, features: usize) -> Result<Forest<T>, LoadError> {
        let outputs: Vec<Option<usize>> = self.trees.iter().map(|tree| self.only_target(tree)).collect();
        let width = if outputs.iter().all(Option::is_some) { 1 } else { self.targets };
        // Every leaf has a place for each target, also for those that it has no weight for.
        let leaves = self.trees.iter().map(Vec::len).fold(0_usize, usize::saturating_add);
        let (count, limit) = (leaves.saturating_mul(width), 64 * (self.weights.len() + leaves));
        if count > limit {
            return Err(LoadError::TooLarge { what: "weights", count, limit });
        }
        let mut compiler = Compiler::new(&ForestShape { features, outputs: self.targets, width, tiny: T::ZERO });
        for (tree, output) in self.trees.iter().zip(outputs) {
            let output = i64::try_from(output.unwrap_or(0)).unwrap_or(i64::MAX);
            let statistics = TreeStatistics { covers: None, first_leaf: 0 };
            let vectors = self.vectors(tree, width);
            compiler.add(tree.len(), output, statistics, |node| {
                Self::describe(&tree[node], &vectors[node * width..][..width])
            })?;
        }
        Ok(compiler.finish())
    }

    /// Returns the only target of the leaves of a tree, if there is one.
    fn only_target(&self, tree: &[EnsembleNode<T>]) -> Option<usize> {
        if self.targets == 1 {
            return Some(0);
        }
        let weights = tree.iter().filter_map(|node| match node {
            EnsembleNode::Leaf(weights) => Some(&self.weights[weights.clone()]),
            EnsembleNode::Split { .. } => None,
        });
        let mut only = None;
        for weights in weights {
            let [(target, _)] = weights else { return None };
            if *only.get_or_insert(*target) != *target {
                return None;
            }
        }
        only
    }

    /// Returns the values of each node of a tree, which are 0 except for leaves.
    fn vectors(&self, tree: &[EnsembleNode<T>], width: usize) -> Vec<T> {
        let mut vectors = vec![T::ZERO; tree.len() * width];
        for (node, vector) in tree.iter().zip(vectors.chunks_mut(width)) {
            if let EnsembleNode::Leaf(weights) = node {
                for (target, weight) in &self.weights[weights.clone()] {
                    // The targets of leaves that no row reaches are not checked.
                    if let Some(place) = vector.get_mut(if width == 1 { 0 } else { *target }) {
                        *place = *weight;
                    }
                }
            }
        }
        vectors
    }

    #[expect(clippy::unnecessary_wraps, reason = "the compiler takes descriptions that may fail")]
    fn describe<'a>(node: &EnsembleNode<T>, vector: &'a [T]) -> Result<LoadedNode<'a, T>, TreeFault> {
        let EnsembleNode::Split { feature, mode, threshold, children, missing, .. } = node else {
            return Ok(LoadedNode::Leaf(LeafValue::Vector(vector)));
        };
        // `x >= t` is the opposite of `x < t`, which is `x <= below(t)`; a missing value is in neither.
        let (threshold, is_swapped) = match mode {
            BranchMode::Below => (threshold.below(), false),
            BranchMode::AtLeast => (threshold.below(), true),
            BranchMode::Above => (*threshold, true),
            _ => (*threshold, false),
        };
        let [holds, fails] = children.map(|child| i64::try_from(child).unwrap_or(i64::MAX));
        let children = if is_swapped { [fails, holds] } else { [holds, fails] };
        let missing = if is_swapped { !missing } else { *missing };
        let test = SplitTest::AtMost { threshold, view: FeatureView::Plain, missing };
        Ok(LoadedNode::Split { feature: *feature, test, children })
    }

    fn walk_all<S: Copy, F: Fn(S) -> T>(&self, input: &InputRows<'_, S, F>, sums: &mut [T]) {
        let mut scored = vec![false; self.targets];
        for (row, sums) in sums.chunks_mut(self.targets).enumerate() {
            if row % ROWS == 0 && input.is_stopped() {
                return;
            }
            let values = &input.values[row * input.features..][..input.features];
            scored.fill(false);
            for tree in &self.trees {
                for (target, weight) in &self.weights[self.leaf(tree, values, &input.convert)] {
                    let sum = &mut sums[*target];
                    let is_first = !std::mem::replace(&mut scored[*target], true);
                    *sum = match self.aggregate {
                        Aggregate::Sum | Aggregate::Average => *sum + *weight,
                        Aggregate::Min if is_first || *weight < *sum => *weight,
                        Aggregate::Max if is_first || *weight > *sum => *weight,
                        Aggregate::Min | Aggregate::Max => *sum,
                    };
                }
            }
        }
    }

    /// Returns the weights of the leaf at which a row arrives.
    fn leaf<S: Copy>(&self, tree: &[EnsembleNode<T>], row: &[S], convert: impl Fn(S) -> T) -> Range<usize> {
        let mut node = 0;
        loop {
            match &tree[node] {
                EnsembleNode::Leaf(weights) => return weights.clone(),
                EnsembleNode::Split { feature, mode, threshold, members, children, missing } => {
                    let value = convert(row[usize::try_from(*feature).unwrap_or_default()]);
                    let holds = match mode {
                        BranchMode::AtMost => value <= *threshold,
                        BranchMode::Below => value < *threshold,
                        BranchMode::AtLeast => value >= *threshold,
                        BranchMode::Above => value > *threshold,
                        BranchMode::Equal => value == *threshold,
                        BranchMode::NotEqual => value != *threshold,
                        BranchMode::Member => self.members[members.clone()].contains(&value),
                    };
                    node = children[usize::from(!(holds || *missing && value.is_nan()))];
                }
            }
        }
    }
}

fn fault<F: ToString + Copy>(field: &'static str, wanted: &'static str, found: F) -> TreeFault {
    TreeFault::Field { field, wanted, found: found.to_string() }
}

fn missing(node: usize) -> TreeFault {
    fault("child", "a node of the tree", node)
}

/// The attributes of the nodes of the first operators for trees.
#[derive(Debug)]
pub(crate) struct NodeColumns<'a, T> {
    pub(crate) tree_ids: &'a [i64],
    pub(crate) node_ids: &'a [i64],
    pub(crate) features: &'a [i64],
    /// `None` for leaves.
    pub(crate) modes: &'a [Option<BranchMode>],
    pub(crate) thresholds: &'a [T],
    pub(crate) holds: &'a [i64],
    pub(crate) fails: &'a [i64],
    /// Empty if no missing value goes to the first child.
    pub(crate) missing: &'a [i64],
}

/// The attributes of their weights.
#[derive(Debug)]
pub(crate) struct WeightColumns<'a, T> {
    pub(crate) tree_ids: &'a [i64],
    pub(crate) node_ids: &'a [i64],
    pub(crate) targets: &'a [i64],
    pub(crate) weights: &'a [T],
}

impl<T: Scalar> Ensemble<T> {
    /// Reads trees whose nodes and weights are columns. The first node of a tree is its root.
    pub(crate) fn of_columns(
        nodes: &NodeColumns<'_, T>,
        weights: &WeightColumns<'_, T>,
        targets: usize,
        aggregate: Aggregate,
    ) -> Result<Self, LoadError> {
        nodes.check()?;
        weights.check()?;
        // Where each node is: its tree, and its place in it.
        let mut places: HashMap<(i64, i64), (usize, usize)> = HashMap::with_capacity(nodes.node_ids.len());
        let mut starts: Vec<usize> = Vec::new();
        for (at, key) in nodes.tree_ids.iter().zip(nodes.node_ids).enumerate() {
            if at == 0 || nodes.tree_ids[at - 1] != *key.0 {
                starts.push(at);
            }
            let tree = starts.len() - 1;
            if places.insert((*key.0, *key.1), (tree, at - starts[tree])).is_some() {
                return Err(fault("nodes_nodeids", "a number that no other node of the tree has", *key.1).in_tree(tree));
            }
        }
        let mut seen_trees = HashSet::new();
        if let Some(again) = starts.iter().find(|start| !seen_trees.insert(nodes.tree_ids[**start])) {
            let name = nodes.tree_ids[*again].to_string();
            return Err(LoadError::Unsupported { what: "tree whose nodes are apart, number", name });
        }
        let (sorted, of_leaves) = sort_weights(weights, &places)?;
        let mut trees = Vec::with_capacity(starts.len());
        for (tree, start) in starts.iter().enumerate() {
            let end = starts.get(tree + 1).copied().unwrap_or(nodes.node_ids.len());
            let child = |id: i64| match places.get(&(nodes.tree_ids[*start], id)) {
                Some((of, place)) if *of == tree => Ok(*place),
                _ => Err(fault("child", "a node of the tree", id).in_tree(tree)),
            };
            let mut list = Vec::with_capacity(end - start);
            for at in *start..end {
                list.push(match nodes.modes[at] {
                    None => EnsembleNode::Leaf(of_leaves.get(&(tree, at - start)).cloned().unwrap_or(0..0)),
                    Some(mode) => EnsembleNode::Split {
                        feature: nodes.features[at],
                        mode,
                        threshold: nodes.thresholds[at],
                        members: 0..0,
                        children: [child(nodes.holds[at])?, child(nodes.fails[at])?],
                        missing: nodes.missing.get(at).is_some_and(|missing| *missing == 1),
                    },
                });
            }
            trees.push(list);
        }
        Ok(Self { trees, weights: sorted, members: Vec::new(), targets, aggregate })
    }
}

impl<T> NodeColumns<'_, T> {
    fn check(&self) -> Result<(), LoadError> {
        let wanted = self.node_ids.len();
        let lengths = [
            ("nodes_treeids", self.tree_ids.len()),
            ("nodes_featureids", self.features.len()),
            ("nodes_modes", self.modes.len()),
            ("nodes_values", self.thresholds.len()),
            ("nodes_truenodeids", self.holds.len()),
            ("nodes_falsenodeids", self.fails.len()),
        ];
        let wrong = lengths.into_iter().find(|(_, found)| *found != wanted);
        let missing = ("nodes_missing_value_tracks_true", self.missing.len());
        match wrong.or_else(|| (missing.1 != 0 && missing.1 != wanted).then_some(missing)) {
            Some((field, found)) => Err(LoadError::Count { field, wanted, found }),
            None => Ok(()),
        }
    }
}

impl<T> WeightColumns<'_, T> {
    fn check(&self) -> Result<(), LoadError> {
        let wanted = self.weights.len();
        let lengths = [
            ("treeids of weights", self.tree_ids.len()),
            ("nodeids of weights", self.node_ids.len()),
            ("ids of weights", self.targets.len()),
        ];
        match lengths.into_iter().find(|(_, found)| *found != wanted) {
            Some((field, found)) => Err(LoadError::Count { field, wanted, found }),
            None => Ok(()),
        }
    }
}

/// The weights of leaves side by side, and the part of each leaf by its tree and place.
type SortedWeights<T> = (Vec<(usize, T)>, HashMap<(usize, usize), Range<usize>>);

/// Puts the weights of each leaf side by side, in their order in the file.
fn sort_weights<T: Scalar>(
    weights: &WeightColumns<'_, T>,
    places: &HashMap<(i64, i64), (usize, usize)>,
) -> Result<SortedWeights<T>, LoadError> {
    let mut order = Vec::with_capacity(weights.weights.len());
    for (at, (tree, node)) in weights.tree_ids.iter().zip(weights.node_ids).enumerate() {
        let wrong = || LoadError::Field {
            field: "nodeids of weights",
            wanted: "a node of a tree",
            found: format!("node {node} of tree {tree}"),
        };
        order.push((*places.get(&(*tree, *node)).ok_or_else(wrong)?, at));
    }
    order.sort_unstable();
    let mut sorted = Vec::with_capacity(order.len());
    let mut of_leaves: HashMap<(usize, usize), Range<usize>> = HashMap::new();
    for (leaf, at) in order {
        let target = usize::try_from(weights.targets[at]).map_err(|_| LoadError::Field {
            field: "ids of weights",
            wanted: "the number of a target",
            found: weights.targets[at].to_string(),
        })?;
        of_leaves.entry(leaf).or_insert(sorted.len()..sorted.len()).end = sorted.len() + 1;
        sorted.push((target, weights.weights[at]));
    }
    Ok((sorted, of_leaves))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_leaves_without_a_parent_are_ignored() {
        let trees = vec![vec![EnsembleNode::Leaf(0..2), EnsembleNode::Leaf(2..3)]];
        let weights = vec![(0, 1.5_f32), (2, 2.5), (9, 1.0)];
        let ensemble = Ensemble { trees, weights, members: Vec::new(), targets: 3, aggregate: Aggregate::Sum };
        let compiled = CompiledEnsemble::new(ensemble).unwrap();
        let mut sums = [0.0; 3];
        compiled.aggregate(&[0.0_f32], 1, |value| value, &AtomicBool::new(false), &mut sums);
        assert_eq!(sums.map(f32::to_bits), [1.5_f32, 0.0, 2.5].map(f32::to_bits));
    }
}
