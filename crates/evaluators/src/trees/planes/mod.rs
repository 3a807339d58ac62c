//! Evaluates many rows at once, without following any path.
//!
//! The leaves of a tree are numbered from left to right. A split whose test fails rules out all leaves below its first
//! child, and after all splits of the tree have been tested, the row's leaf is the leftmost that is left. The tests do
//! not depend on each other, so the splits can be tested for many rows in parallel: one bit stands for a leaf, one byte
//! (a *plane*) for eight leaves of one row, and the bytes of a block of rows are adjacent, so that the compiler can
//! vectorize over them.
//!
//! The comparisons use bytes as well: for each column the thresholds of the trees are sorted, and a value is replaced
//! by its rank, the number of thresholds that it exceeds. `x <= threshold` is then exactly `rank <= position of the
//! threshold`. Ranks must fit in a byte, so the trees are divided into stages with at most 255 thresholds per column.
//!
//! For categorical splits, the rows of each category are recorded once for each block, with one bit per row. The rows
//! that pass a split are those of any category in its set.

mod draft;

pub(super) use self::draft::{SplitCondition, SplitShape, TreeShape};

use super::scalar::Scalar;
use crate::wide::wide;

/// Number of rows in a block.
pub(super) const ROWS: usize = 64;

/// One byte for each row of a block.
type Bytes = [u8; ROWS];
/// One bit for each row of a block.
type Bits = u64;

/// The bits of each byte, as bytes of ones and zeros.
static SPREAD: [[u8; 8]; 256] = spread();

/// An ensemble in the form for blocks of rows.
#[derive(Debug)]
pub(super) struct Planes<T> {
    stages: Vec<Stage<T>>,
    levels: Vec<Levels>,
    /// Smallest value that is truncated to a category.
    lowest: T,
    /// Estimated nanoseconds for a block, even if few of its rows are used.
    pub(super) cost: usize,
}

/// The categories of one column that some split names.
#[derive(Debug)]
struct Levels {
    column: u32,
    /// Where the rows of category 0 are recorded.
    start: usize,
    /// One more than the highest category.
    count: u32,
}

/// Consecutive trees that share ranks.
#[derive(Debug)]
struct Stage<T> {
    /// Columns, and the end of their thresholds.
    columns: Vec<(u32, u32)>,
    /// Thresholds, in ascending order for each column.
    cuts: Vec<T>,
    trees: Vec<Tree>,
    tests: Vec<PlaneTest>,
    sets: Vec<Set>,
    /// Where the rows of the categories in the sets are recorded.
    members: Vec<u32>,
    /// The values of the leaves, tree by tree from left to right, `width` for each.
    values: Vec<T>,
    /// The number of values of a leaf: one, or one for each output.
    width: usize,
}

/// The end of a tree's part of the stage's lists, which starts where that of the previous tree ends.
#[derive(Debug, Clone, Copy, Default)]
struct Tree {
    output: u32,
    tests: u32,
    sets: u32,
    values: u32,
}

/// The set of a categorical split.
#[derive(Debug)]
struct Set {
    /// The end of its members.
    members: u32,
    /// Where the rows with a missing value are recorded, if they pass.
    missing: Option<u32>,
}

/// The part of a split that concerns one plane.
#[derive(Debug, Clone, Copy)]
struct PlaneTest {
    /// Index into the columns of the stage. Not used if categorical.
    column: u16,
    /// The last rank that passes, or the index of the set within the tree.
    cut: u8,
    categorical: bool,
    plane: u8,
    /// The leaves that remain for rows that do not pass.
    keep: u8,
}

/// Intermediate results for a block of rows, reused for the next block.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// For each category of each column, the rows that have it; after each column, the rows with a missing value.
    rows_of: Vec<Bits>,
    /// The indices in `rows_of` that are not zero.
    noted: Vec<usize>,
    /// For each column of the stage.
    ranks: Vec<Bytes>,
    /// For each set of the tree.
    passing: Vec<Bits>,
}

impl<T: Scalar> Planes<T> {
    /// Adds the trees' sums for up to [`ROWS`] rows of `columns` values to `sums`, which has `outputs` values a row.
    pub(super) fn add(&self, rows: &[T], columns: usize, sums: &mut [T], outputs: usize, scratch: &mut Scratch) {
        self.note_categories(rows, columns, scratch);
        for stage in &self.stages {
            stage.rank(rows, columns, &mut scratch.ranks);
            stage.add(sums, outputs, scratch);
        }
        for noted in scratch.noted.drain(..) {
            scratch.rows_of[noted] = 0;
        }
    }

    fn note_categories(&self, rows: &[T], columns: usize, scratch: &mut Scratch) {
        let size = self.levels.last().map_or(0, |levels| levels.missing() + 1);
        scratch.rows_of.resize(size, 0);
        for levels in &self.levels {
            let values = rows.iter().skip(levels.column as usize).step_by(columns);
            for (row, value) in values.enumerate() {
                let category = value.truncate();
                let at = if value.is_nan() {
                    levels.missing()
                } else if *value >= self.lowest && category < levels.count {
                    levels.start + category as usize
                } else {
                    continue;
                };
                scratch.rows_of[at] |= 1 << row;
                scratch.noted.push(at);
            }
        }
    }
}

impl Levels {
    fn missing(&self) -> usize {
        self.start + self.count as usize
    }
}

impl<T: Scalar> Stage<T> {
    /// Replaces values by ranks, column by column.
    fn rank(&self, rows: &[T], columns: usize, ranks: &mut Vec<Bytes>) {
        ranks.resize(self.columns.len(), [0; ROWS]);
        let mut start = 0;
        for ((column, end), ranks) in self.columns.iter().zip(ranks) {
            let cuts = &self.cuts[start..*end as usize];
            start = *end as usize;
            let values = rows.iter().skip(*column as usize).step_by(columns);
            for (slot, value) in ranks.iter_mut().zip(values) {
                *slot = byte(rank(cuts, *value));
            }
        }
    }

    fn add(&self, sums: &mut [T], outputs: usize, scratch: &mut Scratch) {
        let mut start = Tree::default();
        let mut member = 0;
        for tree in &self.trees {
            let sets = &self.sets[start.sets as usize..tree.sets as usize];
            let tests = &self.tests[start.tests as usize..tree.tests as usize];
            let values = &self.values[start.values as usize..tree.values as usize];
            start = *tree;
            scratch.passing.clear();
            for set in sets {
                let members = &self.members[member..set.members as usize];
                member = set.members as usize;
                let missing = set.missing.map_or(0, |at| scratch.rows_of[at as usize]);
                let rows = members.iter().fold(missing, |rows, at| rows | scratch.rows_of[*at as usize]);
                scratch.passing.push(rows);
            }
            let last = values.len() / self.width - 1;
            let leaves = wide(
                #[inline(always)]
                || leaves(&scratch.ranks, &scratch.passing, tests, last),
            );
            if self.width > 1 {
                for (leaf, sums) in leaves.iter().zip(sums.chunks_exact_mut(outputs)) {
                    let values = &values[usize::from(*leaf) * self.width..][..self.width];
                    for (sum, value) in sums.iter_mut().zip(values) {
                        *sum += *value;
                    }
                }
            } else if outputs == 1 {
                for (leaf, sum) in leaves.iter().zip(&mut *sums) {
                    *sum += values[usize::from(*leaf)];
                }
            } else {
                for (leaf, sums) in leaves.iter().zip(sums.chunks_exact_mut(outputs)) {
                    sums[tree.output as usize] += values[usize::from(*leaf)];
                }
            }
        }
    }
}

/// Evaluates all tests of a tree, sorted by plane, and returns the leaf of each row.
// Inlined like the functions that it calls, because `wide` selects the instruction set.
#[inline(always)]
#[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
fn leaves(ranks: &[Bytes], passing: &[Bits], tests: &[PlaneTest], last: usize) -> Bytes {
    // The remaining leaves in the first plane that has any, and the first leaf of that plane. No test ever rules out
    // the last leaf, so its plane may have no tests; it is the row's leaf if none is left in the other planes.
    let mut found = [0; ROWS];
    let mut leaf = [byte(last); ROWS];
    for tests in tests.chunk_by(|left, right| left.plane == right.plane) {
        let mut left = [0xff; ROWS];
        for &test in tests {
            if test.categorical {
                ask_category(passing[usize::from(test.cut)], test, &mut left);
            } else {
                apply_test(&ranks[usize::from(test.column)], test, &mut left);
            }
        }
        let first = tests[0].plane * 8;
        for row in 0..ROWS {
            let fresh = left[row] & if found[row] == 0 { 0xff } else { 0 };
            found[row] |= fresh;
            leaf[row] ^= (leaf[row] ^ first) & if fresh == 0 { 0 } else { 0xff };
        }
    }
    for row in 0..ROWS {
        let lowest = found[row] & found[row].wrapping_neg();
        let bit = |mask: u8, value: u8| if lowest & mask == 0 { 0 } else { value };
        leaf[row] += bit(0b1010_1010, 1) + bit(0b1100_1100, 2) + bit(0b1111_0000, 4);
    }
    leaf
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
fn apply_test(ranks: &Bytes, test: PlaneTest, left: &mut Bytes) {
    for (left, rank) in left.iter_mut().zip(ranks) {
        let passes = if *rank <= test.cut { 0xff } else { 0 };
        *left &= passes | test.keep;
    }
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
fn ask_category(passing: Bits, test: PlaneTest, left: &mut Bytes) {
    let (octets, _) = left.as_chunks_mut::<8>();
    for (left, bits) in octets.iter_mut().zip(passing.to_le_bytes()) {
        for (left, passes) in left.iter_mut().zip(SPREAD[usize::from(bits)]) {
            *left &= passes | test.keep;
        }
    }
}

/// Returns how many of the thresholds a value exceeds. A missing value exceeds all.
#[inline]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "a missing value exceeds every threshold")]
fn rank<T: Scalar>(cuts: &[T], value: T) -> usize {
    cuts.partition_point(|cut| !(value <= *cut))
}

/// Converts a rank or leaf, which fits because the draft checked it.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a stage has at most 255 thresholds a column and 256 leaves a tree"
)]
fn byte(number: usize) -> u8 {
    number as u8
}

const fn spread() -> [[u8; 8]; 256] {
    let mut table = [[0; 8]; 256];
    let mut index = 0;
    while index < 256 * 8 {
        if (index / 8) >> (index % 8) & 1 == 1 {
            table[index / 8][index % 8] = 0xff;
        }
        index += 1;
    }
    table
}
