//! The contributions of many rows, some of them side by side.

use std::ops::Range;

use super::LANES;
use super::kernel::Scratch;
use super::table::ContributionTable;

/// Fewer remaining rows than this are evaluated one by one, more of them side by side.
const SIDE_BY_SIDE: usize = 3;

/// The rows of a request, and how a model tests them.
pub(crate) trait ExplainedRows {
    /// `L` rows side by side.
    type Block<const L: usize>;

    /// Returns memory for `L` rows.
    fn block<const L: usize>(&self) -> Self::Block<L>;

    /// Puts at most `L` rows into a block. What the other lanes have does not matter.
    fn fill<const L: usize>(&self, rows: Range<usize>, block: &mut Self::Block<L>);

    /// Returns all bits of the rows that go to the first child of a split. See
    /// [`ExplainedTrees`](super::table::ExplainedTrees) for the numbers of trees and nodes.
    fn test<const L: usize>(&self, block: &Self::Block<L>, tree: usize, node: u32) -> [u64; L];

    /// Returns whether the evaluation is to stop.
    fn is_stopped(&self) -> bool;
}

impl ContributionTable {
    /// Returns for each row and output the contributions of the features, and then the sum of `base` and the expected values of the
    /// trees. `base` has a number for each output, or none. The result is of no use if it was stopped.
    pub(crate) fn explain(&self, rows: &impl ExplainedRows, count: usize, base: &[f64]) -> Vec<f64> {
        let width = self.outputs * (self.features + 1);
        let mut found = vec![0.0; count * width];
        if self.features > 0 {
            let (mut many, mut one) = (None, None);
            let mut start = 0;
            while start < count && !rows.is_stopped() {
                let left = count - start;
                let end = start + if left < SIDE_BY_SIDE { 1 } else { left.min(LANES) };
                let found = &mut found[start * width..end * width];
                if end - start == 1 {
                    self.explain_block(rows, start..end, found, one.get_or_insert_with(|| self.memory::<1, _>(rows)));
                } else {
                    let memory = many.get_or_insert_with(|| self.memory::<LANES, _>(rows));
                    self.explain_block(rows, start..end, found, memory);
                }
                start = end;
            }
        }
        for found in found.chunks_exact_mut(width) {
            let outputs = found.chunks_exact_mut(self.features + 1).zip(&self.expected);
            for (output, (found, expected)) in outputs.enumerate() {
                found[self.features] = base.get(output).copied().unwrap_or(0.0) + expected;
            }
        }
        found
    }

    fn memory<const L: usize, R: ExplainedRows>(&self, rows: &R) -> Memory<L, R::Block<L>> {
        Memory { block: rows.block(), totals: vec![[0.0; L]; self.totals()], scratch: self.scratch() }
    }

    /// Evaluates up to `L` rows side by side.
    fn explain_block<const L: usize, R: ExplainedRows>(
        &self,
        rows: &R,
        range: Range<usize>,
        found: &mut [f64],
        Memory { block, totals, scratch }: &mut Memory<L, R::Block<L>>,
    ) {
        rows.fill(range, block);
        totals.fill([0.0; L]);
        self.add(|tree, node| rows.test(block, tree, node), totals, scratch, || !rows.is_stopped());
        for (lane, found) in found.chunks_exact_mut(self.outputs * (self.features + 1)).enumerate() {
            for (found, totals) in found.chunks_exact_mut(self.features + 1).zip(totals.chunks_exact(self.features)) {
                for (found, total) in found.iter_mut().zip(totals) {
                    *found = total[lane];
                }
            }
        }
    }
}

/// The memory of an evaluation of rows side by side.
struct Memory<const L: usize, B> {
    block: B,
    totals: Vec<[f64; L]>,
    scratch: Scratch<L>,
}
