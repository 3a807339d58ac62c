//! Contributions of features to the sums of a forest.

use std::ops::Range;

use super::data::InputRows;
use super::error::NoContributions;
use super::forest::Forest;
use super::scalar::Scalar;
use crate::contributions::{ContributionTable, ExplainedRows, ExplainedTrees, TableExtent};

impl<T: Scalar> ExplainedTrees for Forest<T> {
    fn cover(&self, _: usize, node: u32) -> f64 {
        self.covers.as_ref().map_or(f64::NAN, |covers| covers[node as usize].into())
    }

    fn split(&self, _: usize, node: u32) -> Option<(u32, [u32; 2])> {
        let (first, column) = self.split_at(node as usize)?;
        // Slots were counted in 32 bits.
        let first = u32::try_from(first).ok()?;
        Some((self.columns[column].feature, [first, first + 1]))
    }

    fn extend_with_leaf(&self, _: usize, node: u32, values: &mut Vec<f64>) {
        values.push(self.values[node as usize].into());
    }
}

impl<T: Scalar> Forest<T> {
    /// Checks whether the file has what contributions need.
    pub(super) fn check_contributions(&self) -> Result<(), NoContributions> {
        if self.linear.is_some() {
            return Err(NoContributions::LinearLeaves);
        }
        if self.width > 1 {
            return Err(NoContributions::VectorLeaves);
        }
        if self.covers.is_none() {
            return Err(NoContributions::NoCovers);
        }
        Ok(())
    }

    /// Prepares the trees for contributions to the sums of rows of this many features.
    pub(super) fn contribution_table(
        &self,
        features: usize,
        limit: usize,
        extent: TableExtent,
    ) -> Result<ContributionTable, NoContributions> {
        self.check_contributions()?;
        let trees = self.groups.iter().flat_map(|group| {
            group.roots.into_iter().zip(group.outputs.map(|output| output as usize)).take(group.trees)
        });
        Ok(ContributionTable::new([features, self.outputs, 1], self, trees, limit, extent)?)
    }

    /// Returns for each row and output the contributions of the features, and then the sum of `base` and the expected values of the
    /// trees. The result is of no use if it was stopped.
    pub(super) fn contributions<S: Copy, F: Fn(S) -> T>(
        &self,
        table: &ContributionTable,
        base: &[f64],
        rows: usize,
        input: &InputRows<'_, S, F>,
    ) -> Vec<f64> {
        table.explain(&ForestRows { forest: self, input }, rows, base)
    }
}

/// Rows that a forest tests.
struct ForestRows<'a, T, S, F> {
    forest: &'a Forest<T>,
    input: &'a InputRows<'a, S, F>,
}

/// The columns of rows side by side, and memory for a row.
struct Block<T, const L: usize> {
    columns: Vec<[T; L]>,
    row: Vec<T>,
}

impl<T: Scalar, S: Copy, F: Fn(S) -> T> ExplainedRows for ForestRows<'_, T, S, F> {
    type Block<const L: usize> = Block<T, L>;

    fn block<const L: usize>(&self) -> Block<T, L> {
        let columns = self.forest.columns.len();
        Block { columns: vec![[T::NAN; L]; columns], row: vec![T::NAN; columns] }
    }

    fn fill<const L: usize>(&self, rows: Range<usize>, Block { columns, row }: &mut Block<T, L>) {
        let features = self.input.features;
        let values = &self.input.values[rows.start * features..rows.end * features];
        for (lane, source) in values.chunks_exact(features).enumerate() {
            self.forest.lay_out(source, &self.input.convert, row);
            for (column, value) in columns.iter_mut().zip(&*row) {
                column[lane] = *value;
            }
        }
    }

    fn test<const L: usize>(&self, block: &Block<T, L>, _: usize, node: u32) -> [u64; L] {
        self.forest.test(node as usize, &block.columns)
    }

    fn is_stopped(&self) -> bool {
        self.input.is_stopped()
    }
}
