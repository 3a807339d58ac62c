//! Contributions of features to the sums of trees.

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::error::PredictError;
use super::estimator::EstimatorInfo;
use crate::contributions::{ContributionTable, ExplainedRows, ExplainedTrees, TableExtent};
use crate::trees::{DEFAULT_CONTRIBUTION_LIMIT, NoContributions, PredictedValues, Prediction};

/// A tree whose splits test one feature each.
pub(super) trait ExplainedTree {
    /// The type of the features.
    type Value: Copy + Default;

    /// Returns the number of training rows that reach a node, or the sum of their weights.
    fn cover(&self, node: u32) -> f64;

    /// Returns the feature of a split and its children, or `None` if the node is a leaf.
    fn split(&self, node: u32) -> Option<(u32, [u32; 2])>;

    /// Returns whether rows with this value of the feature go to the first child of a split.
    fn goes_first(&self, node: u32, value: Self::Value) -> bool;

    /// Returns the values of a leaf.
    fn leaf(&self, node: u32) -> &[f64];
}

/// The trees whose leaves are added up.
#[derive(Debug)]
pub(super) struct SummedTrees<'m, T> {
    /// Each with the sum that it is added to, or the first of them.
    pub(super) trees: Vec<(&'m T, usize)>,
    /// What the values of leaves are multiplied by.
    pub(super) scale: f64,
    pub(super) features: usize,
    pub(super) sums: usize,
    /// How many values a leaf has: one, or one for each sum.
    pub(super) width: usize,
}

impl<T: ExplainedTree> ExplainedTrees for SummedTrees<'_, T> {
    fn cover(&self, tree: usize, node: u32) -> f64 {
        self.trees[tree].0.cover(node)
    }

    fn split(&self, tree: usize, node: u32) -> Option<(u32, [u32; 2])> {
        self.trees[tree].0.split(node)
    }

    fn extend_with_leaf(&self, tree: usize, node: u32, values: &mut Vec<f64>) {
        values.extend(self.trees[tree].0.leaf(node).iter().map(|value| self.scale * value));
    }
}

/// The table of contributions of a model, which the first request for them prepares.
#[derive(Debug)]
pub(super) struct Contributions {
    table: OnceLock<Result<ContributionTable, NoContributions>>,
    /// The most bytes that the table may have.
    pub(super) limit: usize,
}

impl Default for Contributions {
    fn default() -> Self {
        Self { table: OnceLock::new(), limit: DEFAULT_CONTRIBUTION_LIMIT }
    }
}

impl Contributions {
    /// Returns whether the table has been prepared, or is known not to exist.
    pub(super) fn is_prepared(&self) -> bool {
        self.table.get().is_some()
    }

    /// Returns the number of bytes of the table, 0 if the model has none. Takes as long as preparing it.
    pub(super) fn bytes<T: ExplainedTree>(&self, model: &SummedTrees<'_, T>) -> usize {
        self.prepare(model, TableExtent::Bytes).map_or(0, |table| table.bytes)
    }

    fn prepare<T: ExplainedTree>(
        &self,
        model: &SummedTrees<'_, T>,
        extent: TableExtent,
    ) -> Result<ContributionTable, NoContributions> {
        let shape = [model.features, model.sums, model.width];
        let roots = model.trees.iter().map(|(_, sum)| (0, *sum));
        Ok(ContributionTable::new(shape, model, roots, self.limit, extent)?)
    }

    /// Returns what [`Contributions::of`] returns, as an output of an estimator.
    pub(super) fn predict<T: ExplainedTree>(
        &self,
        model: &SummedTrees<'_, T>,
        rows: &[T::Value],
        start: &[f64],
        (info, stop): (&EstimatorInfo, &AtomicBool),
    ) -> Result<Prediction, PredictError> {
        let found = self.of(model, rows, start, stop).map_err(|error| info.no_contributions(error))?;
        Ok(Prediction { values: PredictedValues::F64(found), columns: model.sums * (model.features + 1) })
    }

    /// Returns for each row and sum the contributions of the features, and then the sum of `start` and the expected values of the
    /// trees.
    pub(super) fn of<T: ExplainedTree>(
        &self,
        model: &SummedTrees<'_, T>,
        rows: &[T::Value],
        start: &[f64],
        stop: &AtomicBool,
    ) -> Result<Vec<f64>, NoContributions> {
        let prepare = || self.prepare(model, TableExtent::Whole);
        let table = self.table.get_or_init(prepare).as_ref().map_err(Clone::clone)?;
        Ok(table.explain(&Rows { model, values: rows, stop }, rows.len() / model.features.max(1), start))
    }
}

/// Estimates the time for the contributions of a row in nanoseconds, from the number of nodes and the depth of each tree.
pub(super) fn contribution_cost(trees: impl Iterator<Item = [usize; 2]>, features: usize, width: usize) -> u64 {
    // Most nodes are edges of the search, and each takes about a nanosecond a point of the quadrature and a value of a leaf.
    let costs = trees.map(|[nodes, depth]| nodes.saturating_mul(depth.min(features).div_ceil(2).max(1)));
    let cost = costs.fold(0, usize::saturating_add).saturating_mul(width);
    u64::try_from(cost).unwrap_or(u64::MAX)
}

/// The rows of a request.
struct Rows<'a, 'm, T: ExplainedTree> {
    model: &'a SummedTrees<'m, T>,
    values: &'a [T::Value],
    stop: &'a AtomicBool,
}

impl<T: ExplainedTree> ExplainedRows for Rows<'_, '_, T> {
    /// For each feature, its values in the rows.
    type Block<const L: usize> = Vec<[T::Value; L]>;

    fn block<const L: usize>(&self) -> Self::Block<L> {
        vec![[T::Value::default(); L]; self.model.features]
    }

    fn fill<const L: usize>(&self, rows: Range<usize>, block: &mut Self::Block<L>) {
        let features = self.model.features;
        let rows = &self.values[rows.start * features..rows.end * features];
        for (lane, row) in rows.chunks_exact(features).enumerate() {
            for (column, value) in block.iter_mut().zip(row) {
                column[lane] = *value;
            }
        }
    }

    fn test<const L: usize>(&self, block: &Self::Block<L>, tree: usize, node: u32) -> [u64; L] {
        let tree = self.model.trees[tree].0;
        let Some((feature, _)) = tree.split(node) else { return [0; L] };
        block[feature as usize].map(|value| if tree.goes_first(node, value) { u64::MAX } else { 0 })
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
