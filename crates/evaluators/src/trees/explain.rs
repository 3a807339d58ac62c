//! Contributions of features to the sums of a forest.

use super::data::InputRows;
use super::error::NoContributions;
use super::forest::Forest;
use super::scalar::Scalar;
use crate::contributions::{ContributionTable, ExplainedTrees, LANES, Scratch};

/// Fewer remaining rows than this are evaluated one by one, more of them side by side.
const SIDE_BY_SIDE: usize = 3;

impl<T: Scalar> ExplainedTrees for Forest<T> {
    fn cover(&self, node: u32) -> f64 {
        self.covers.as_ref().map_or(f64::NAN, |covers| covers[node as usize].into())
    }

    fn split(&self, node: u32) -> Option<(u32, [u32; 2])> {
        let (first, column) = self.split_at(node as usize)?;
        // Slots were counted in 32 bits.
        let first = u32::try_from(first).ok()?;
        Some((self.columns[column].feature, [first, first + 1]))
    }

    fn extend_with_leaf(&self, node: u32, values: &mut Vec<f64>) {
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
    ) -> Result<ContributionTable, NoContributions> {
        self.check_contributions()?;
        let trees = self.groups.iter().flat_map(|group| {
            group.roots.into_iter().zip(group.outputs.map(|output| output as usize)).take(group.trees)
        });
        Ok(ContributionTable::new([features, self.outputs, 1], self, trees, limit)?)
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
        let width = self.outputs * (input.features + 1);
        let mut found = vec![0.0; rows * width];
        if input.features > 0 {
            let (mut many, mut one) = (None, None);
            let mut start = 0;
            while start < rows && !input.is_stopped() {
                let left = rows - start;
                let count = if left < SIDE_BY_SIDE { 1 } else { left.min(LANES) };
                let values = &input.values[start * input.features..][..count * input.features];
                let found = &mut found[start * width..][..count * width];
                if count == 1 {
                    self.explain(
                        table,
                        values,
                        input,
                        found,
                        one.get_or_insert_with(|| Block::<T, 1>::new(self, table)),
                    );
                } else {
                    self.explain(
                        table,
                        values,
                        input,
                        found,
                        many.get_or_insert_with(|| Block::<T, LANES>::new(self, table)),
                    );
                }
                start += count;
            }
        }
        for found in found.chunks_exact_mut(width) {
            let outputs = found.chunks_exact_mut(input.features + 1).zip(base.iter().zip(&table.expected));
            for (found, (base, expected)) in outputs {
                found[input.features] = base + expected;
            }
        }
        found
    }

    /// Evaluates up to `L` rows side by side.
    fn explain<const L: usize, S: Copy, F: Fn(S) -> T>(
        &self,
        table: &ContributionTable,
        values: &[S],
        input: &InputRows<'_, S, F>,
        found: &mut [f64],
        Block { columns, row, totals, scratch }: &mut Block<T, L>,
    ) {
        let features = input.features;
        let mut count = 0;
        for (lane, source) in values.chunks_exact(features).enumerate() {
            self.lay_out(source, &input.convert, row);
            for (column, value) in columns.iter_mut().zip(&*row) {
                column[lane] = *value;
            }
            count += 1;
        }
        totals.fill([0.0; L]);
        table.add(|slot| self.test(slot as usize, columns), totals, scratch, || !input.is_stopped());
        for (lane, found) in found.chunks_exact_mut(self.outputs * (features + 1)).enumerate().take(count) {
            for (found, totals) in found.chunks_exact_mut(features + 1).zip(totals.chunks_exact(features)) {
                for (found, total) in found.iter_mut().zip(totals) {
                    *found = total[lane];
                }
            }
        }
    }
}

/// The memory of an evaluation of rows side by side.
struct Block<T, const L: usize> {
    columns: Vec<[T; L]>,
    row: Vec<T>,
    totals: Vec<[f64; L]>,
    scratch: Scratch<L>,
}

impl<T: Scalar, const L: usize> Block<T, L> {
    fn new(forest: &Forest<T>, table: &ContributionTable) -> Self {
        let columns = forest.columns.len();
        Self {
            columns: vec![[T::NAN; L]; columns],
            row: vec![T::NAN; columns],
            totals: vec![[0.0; L]; table.totals()],
            scratch: table.scratch(),
        }
    }
}
