//! Contributions of features to the raw values of a model without categories.
//!
//! The library walks an oblivious tree from its last split to its first. The order matters, because the cover ratios of a path depend on
//! it. Leaves that no training row has reached have the value 0, and so has a split above such leaves only, whose ratios are not known.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::PredictError;
use super::columns::Column;
use super::evaluator::{Block, Evaluator};
use super::objective::Objective;
use super::trees::{Forest, Shape, SlotTest, Step, as_u32};
use crate::contributions::{ContributionTable, ExplainedRows, ExplainedTrees, LANES, TableError, TableExtent};
use crate::trees::NoContributions;

/// The library takes smaller weights for 0, up to a rounding error.
const LEAST_WEIGHT: f64 = 1e-12;

/// The trees of a model, prepared for contributions.
#[derive(Debug)]
pub(super) struct Explainer {
    table: ContributionTable,
    /// The test of each split.
    tests: Vec<SlotTest>,
}

/// A split of a tree. The children are splits, or leaves after all splits.
#[derive(Debug, Clone, Copy)]
struct Split {
    test: SlotTest,
    feature: u32,
    /// For rows that pass, and for others.
    children: [u32; 2],
    cover: f64,
}

/// The splits of all trees, followed by their leaves.
struct Nodes<'f> {
    forest: &'f Forest,
    weights: &'f [f64],
    splits: Vec<Split>,
    roots: Vec<u32>,
}

impl Explainer {
    /// Returns the number of bytes that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.table.bytes.saturating_add(size_of_val(&self.tests[..]))
    }
}

impl ExplainedTrees for Nodes<'_> {
    fn cover(&self, _: usize, node: u32) -> f64 {
        let node = node as usize;
        self.splits.get(node).map_or_else(|| self.weights[node - self.splits.len()], |split| split.cover)
    }

    fn split(&self, _: usize, node: u32) -> Option<(u32, [u32; 2])> {
        let split = self.splits.get(node as usize)?;
        (split.cover > 0.0).then_some((split.feature, split.children))
    }

    fn extend_with_leaf(&self, _: usize, node: u32, values: &mut Vec<f64>) {
        let dimension = self.forest.dimension;
        match (node as usize).checked_sub(self.splits.len()) {
            Some(leaf) => {
                values.extend_from_slice(&self.forest.values[leaf * dimension..][..dimension]);
            }
            // No training row has reached the split, so that all leaves below it are 0.
            None => values.extend(std::iter::repeat_n(0.0, dimension)),
        }
    }
}

impl<'f> Nodes<'f> {
    /// Lists the splits of all trees. `feature` returns the feature that a slot has values of.
    fn new(
        forest: &'f Forest,
        weights: &'f [f64],
        feature: impl Fn(SlotTest) -> u32,
        limit: usize,
    ) -> Result<Self, NoContributions> {
        let count = match &forest.shape {
            Shape::Oblivious { depths, .. } => depths.iter().map(|depth| (1_usize << depth) - 1).sum(),
            Shape::Graphs { nodes, .. } => nodes.iter().filter(|step| !is_leaf(step)).count(),
        };
        if count.saturating_mul(size_of::<Split>()) > limit || u32::try_from(count + weights.len()).is_err() {
            return Err(TableError::TooLarge { limit }.into());
        }
        let mut nodes = Self { forest, weights, splits: Vec::with_capacity(count), roots: Vec::new() };
        match &forest.shape {
            Shape::Oblivious { depths, tests } => nodes.add_oblivious(depths, tests, count, feature),
            Shape::Graphs { nodes: steps, trees } => {
                let mut ends = trees.iter().skip(1).map(|tree| tree.root as usize).chain([steps.len()]);
                // Trees are in order, without gaps.
                for (tree, graph) in trees.iter().enumerate() {
                    let end = ends.next().unwrap_or(steps.len());
                    let root = nodes.add_graph(steps, graph.root as usize..end, count, &feature);
                    nodes.roots.push(root.ok_or(NoContributions::SharedNodes { tree })?);
                }
            }
        }
        Ok(nodes)
    }

    fn add_oblivious(&mut self, depths: &[u32], tests: &[SlotTest], count: usize, feature: impl Fn(SlotTest) -> u32) {
        let (mut tests, mut first) = (tests, count);
        for &depth in depths {
            let (own, rest) = tests.split_at(depth as usize);
            tests = rest;
            let start = self.splits.len();
            // The root is number 1, and the children of number n are 2n and 2n + 1.
            let splits = (1_usize << depth) - 1;
            let child =
                |number: usize| as_u32(if number > splits { first + number - splits - 1 } else { start + number - 1 });
            self.roots.push(child(1));
            for (level, test) in own.iter().rev().enumerate() {
                for number in 1 << level..2 << level {
                    let children = [child(2 * number + 1), child(2 * number)];
                    self.splits.push(Split { test: *test, feature: feature(*test), children, cover: 0.0 });
                }
            }
            for split in (start..start + splits).rev() {
                self.sum_cover(split, count);
            }
            first += 1 << depth;
        }
    }

    /// Adds a tree that is not oblivious, and returns its root, or `None` if several nodes lead to the same one.
    ///
    /// If leaves have different depths, the library's contributions do not add up to the raw value. These do, by the same definition.
    fn add_graph(
        &mut self,
        steps: &[Step],
        range: Range<usize>,
        count: usize,
        feature: impl Fn(SlotTest) -> u32,
    ) -> Option<u32> {
        let own = &steps[range.clone()];
        let start = self.splits.len();
        // The node of each step, and whether another step leads to it.
        let mut nodes = vec![(0_u32, false); own.len()];
        let mut split = start;
        for (step, node) in own.iter().zip(&mut nodes) {
            if is_leaf(step) {
                node.0 = self.leaf(step, count)?;
            } else {
                node.0 = as_u32(split);
                split += 1;
            }
        }
        for (step, index) in own.iter().zip(0..).filter(|(step, _)| !is_leaf(step)) {
            let mut children = [0; 2];
            for (child, next) in children.iter_mut().rev().zip(step.next) {
                let next = next as usize - range.start;
                *child = if next == index {
                    // A walk may end at a node that has one child.
                    self.leaf(step, count)?
                } else if next > index && !std::mem::replace(&mut nodes[next].1, true) {
                    nodes[next].0
                } else {
                    return None;
                };
            }
            self.splits.push(Split { test: step.test, feature: feature(step.test), children, cover: 0.0 });
        }
        for split in (start..self.splits.len()).rev() {
            self.sum_cover(split, count);
        }
        nodes.first().map(|node| node.0)
    }

    /// Returns the node of the leaf that a walk ends in at a step.
    fn leaf(&self, step: &Step, count: usize) -> Option<u32> {
        let leaf = step.value as usize / self.forest.dimension;
        let is_leaf = (step.value as usize).is_multiple_of(self.forest.dimension) && leaf < self.weights.len();
        is_leaf.then(|| as_u32(count + leaf))
    }

    /// Sets the cover of a split to the sum of its children, whose covers are known.
    fn sum_cover(&mut self, split: usize, count: usize) {
        let cover = |node: u32| match (node as usize).checked_sub(count) {
            Some(leaf) => self.weights[leaf],
            None => self.splits[node as usize].cover,
        };
        let [passing, failing] = self.splits[split].children.map(cover);
        self.splits[split].cover = failing + passing;
    }
}

/// Returns whether every walk that reaches a node ends there.
fn is_leaf(step: &Step) -> bool {
    step.next[0] == step.next[1]
}

impl Evaluator {
    /// Checks quickly whether the model may have contributions.
    pub(super) fn check_contributions(&self) -> Result<(), NoContributions> {
        if self.has_categories() {
            return Err(NoContributions::Categories);
        }
        match &self.objective {
            Objective::Uncertainty => {
                return Err(NoContributions::Outputs("the loss function is `RMSEWithUncertainty`"));
            }
            Objective::MultiClass { labels, visible, .. } if !visible.iter().copied().eq(0..labels.len()) => {
                return Err(NoContributions::Outputs("a class had no training rows"));
            }
            _ => {}
        }
        if self.scale.to_bits() != 1.0_f64.to_bits() {
            return Err(NoContributions::Scale(self.scale.to_string()));
        }
        if self.weights.is_empty() {
            return Err(NoContributions::NoCovers);
        }
        Ok(())
    }

    /// Prepares the trees. `column` returns the column of a feature.
    pub(super) fn explainer(
        &self,
        columns: usize,
        column: impl Fn(usize) -> u32,
        limit: usize,
        extent: TableExtent,
    ) -> Result<Explainer, NoContributions> {
        self.check_contributions()?;
        let is_weight = |weight: f64| weight == 0.0 || weight.is_finite() && weight >= LEAST_WEIGHT;
        // The library adds the rows of a call to such weights, so that a row would affect the contributions of the others.
        let mut leaves = self.weights.iter().zip(self.forest.values.chunks(self.forest.dimension)).enumerate();
        let has_value = |values: &[f64]| values.iter().any(|value| *value != 0.0);
        if let Some((leaf, _)) = leaves.find(|(_, (weight, values))| **weight == 0.0 && has_value(values)) {
            return Err(NoContributions::EmptyLeaf { leaf });
        }
        if let Some((leaf, weight)) = self.weights.iter().enumerate().find(|(_, weight)| !is_weight(**weight)) {
            return Err(NoContributions::LeafWeight { leaf, weight: weight.to_string() });
        }
        let mut features = vec![0; self.slots];
        for numbers in &self.numbers {
            for slot in &numbers.slots {
                features[slot.number as usize] = column(numbers.feature);
            }
        }
        // The rows that are side by side. The number of columns is that of the last feature, which a file merely declares.
        let totals = columns.saturating_mul(self.forest.dimension).saturating_mul(LANES * size_of::<f64>());
        let explainer = match limit.checked_sub(totals) {
            Some(rest) => self.prepare(columns, &features, rest, extent),
            None => Err(TableError::TooLarge { limit }.into()),
        };
        explainer.map_err(|error| match error {
            NoContributions::Table(TableError::TooLarge { .. }) => TableError::TooLarge { limit }.into(),
            error => error,
        })
    }

    /// Prepares the trees with at most `limit` bytes. `features` has the column that each slot has values of.
    fn prepare(
        &self,
        columns: usize,
        features: &[u32],
        limit: usize,
        extent: TableExtent,
    ) -> Result<Explainer, NoContributions> {
        let nodes = Nodes::new(&self.forest, &self.weights, |test| features[test.slot as usize], limit)?;
        let dimension = self.forest.dimension;
        let rest = limit.saturating_sub(size_of_val(&nodes.splits[..]));
        let roots = nodes.roots.iter().map(|root| (*root, 0));
        let table = ContributionTable::new([columns, dimension, dimension], &nodes, roots, rest, extent)?;
        Ok(Explainer { table, tests: nodes.splits.iter().map(|split| split.test).collect() })
    }

    /// Estimates how many nanoseconds the contributions of this many rows take.
    pub(super) fn contribution_cost(&self, rows: usize) -> usize {
        // Each edge of the search takes about a nanosecond a point, and there are two for each leaf.
        let points = self.forest.depth().min(self.numbers.len()).div_ceil(2).max(1);
        (2 * self.forest.values.len()).saturating_mul(points).saturating_mul(rows)
    }

    /// Returns for each row and raw value the contributions of the columns, and then the sum of the bias and the expected values of
    /// the trees.
    pub(super) fn contributions(
        &self,
        explainer: &Explainer,
        input: &[Column<'_>],
        rows: usize,
        stop: &AtomicBool,
    ) -> Result<Vec<f64>, PredictError> {
        self.check_unused(input, rows)?;
        let request = RequestRows { evaluator: self, explainer, input, stop, failure: RefCell::default() };
        let found = explainer.table.explain(&request, rows, &self.bias);
        if let Some(failure) = request.failure.into_inner() {
            return Err(failure);
        }
        if stop.load(Ordering::Relaxed) { Err(PredictError::Cancelled) } else { Ok(found) }
    }
}

/// The rows of a request.
struct RequestRows<'a> {
    evaluator: &'a Evaluator,
    explainer: &'a Explainer,
    input: &'a [Column<'a>],
    stop: &'a AtomicBool,
    /// Why a row cannot be evaluated, which stops the evaluation.
    failure: RefCell<Option<PredictError>>,
}

impl ExplainedRows for RequestRows<'_> {
    type Block<const L: usize> = Block<L>;

    fn block<const L: usize>(&self) -> Block<L> {
        Block::new(self.evaluator)
    }

    fn fill<const L: usize>(&self, rows: Range<usize>, block: &mut Block<L>) {
        if let Err(error) = self.evaluator.rank(self.input, rows.start, rows.len(), block) {
            self.failure.replace(Some(error));
        }
    }

    fn test<const L: usize>(&self, block: &Block<L>, _: usize, node: u32) -> [u64; L] {
        let test = self.explainer.tests[node as usize];
        block.ranks[test.slot as usize].map(|rank| if test.passes(rank) { u64::MAX } else { 0 })
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.failure.borrow().is_some()
    }
}
