//! Many rows at once, without following any path.
//!
//! A tree's leaves are numbered from left to right. A split whose test fails rules out all leaves below its first child, and
//! once every split of the tree has been asked, the row's leaf is the leftmost that is left. No answer depends on
//! another, so the splits can be asked for many rows in parallel: one bit stands for a leaf, one byte (a *plane*) for eight
//! leaves of one row, and the bytes of a block of rows stand side by side for the compiler to vectorize over.
//!
//! Bytes are compared as well, not numbers: for each column the thresholds of the trees are sorted, and a value is
//! replaced by its rank, how many thresholds it exceeds. `x <= threshold` is then `rank <= position of the threshold`,
//! exactly. Ranks must fit a byte, so the trees are divided into stages with at most 255 thresholds to a column.
//!
//! For a categorical split it is noted once for each block which rows are of which category, a bit for each row. The rows
//! that pass the split are those of any category in its set.

mod draft;

pub(super) use self::draft::{SplitCondition, SplitShape, TreeShape};

use super::scalar::Scalar;

/// Rows in a block.
pub(super) const ROWS: usize = 64;

/// One byte for each row of a block.
type Bytes = [u8; ROWS];
/// One bit for each row of a block.
type Bits = u64;

/// For each byte, its bits as bytes of ones and zeros.
static SPREAD: [[u8; 8]; 256] = spread();

/// An ensemble in the form for blocks of rows.
#[derive(Debug)]
pub(super) struct Planes<T> {
    stages: Vec<Stage<T>>,
    levels: Vec<Levels>,
    /// Smallest value that is truncated to a category.
    lowest: T,
    /// About how many nanoseconds a block takes, however few of its rows are used.
    pub(super) cost: usize,
}

/// The categories of one column that some split names.
#[derive(Debug)]
struct Levels {
    column: u32,
    /// Where the rows of category 0 are noted.
    start: usize,
    /// One more than the highest category.
    count: u32,
}

/// Consecutive trees that share ranks.
#[derive(Debug)]
struct Stage<T> {
    /// Columns, and where their thresholds end.
    columns: Vec<(u32, u32)>,
    /// Ascending in each column.
    cuts: Vec<T>,
    trees: Vec<Tree>,
    questions: Vec<PlaneTest>,
    sets: Vec<Set>,
    /// Which categories are in the sets: where their rows are noted.
    members: Vec<u32>,
    /// The leaves' values, tree by tree from left to right.
    values: Vec<T>,
}

/// A tree's share of a stage's lists ends here, and starts where that of the tree before ends.
#[derive(Debug, Clone, Copy, Default)]
struct Tree {
    output: u32,
    questions: u32,
    sets: u32,
    values: u32,
}

/// The set of a categorical split.
#[derive(Debug)]
struct Set {
    /// Where its members end.
    members: u32,
    /// Where the rows with a missing value are noted, if they pass.
    missing: Option<u32>,
}

/// A split, as far as it concerns one plane.
#[derive(Debug, Clone, Copy)]
struct PlaneTest {
    /// Index into the columns of the stage; not used if categorical.
    column: u16,
    /// The last rank that passes, or the index of the set among those of the tree.
    cut: u8,
    categorical: bool,
    plane: u8,
    /// The leaves that stay in rows that do not pass.
    keep: u8,
}

/// What is known about a block of rows; reused for the next.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// For each category of each column the rows that are of it, and after each column those with a missing value.
    rows_of: Vec<Bits>,
    /// What in `rows_of` is not zero.
    noted: Vec<usize>,
    /// By column of the stage.
    ranks: Vec<Bytes>,
    /// By set of the tree.
    passing: Vec<Bits>,
}

impl<T: Scalar> Planes<T> {
    /// Adds the trees' sums for up to [`ROWS`] rows of `columns` values to `sums`, which has `outputs` values a row.
    pub(super) fn add(
        &self,
        (rows, columns): (&[T], usize),
        (sums, outputs): (&mut [T], usize),
        scratch: &mut Scratch,
    ) {
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
            let questions = &self.questions[start.questions as usize..tree.questions as usize];
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
            let leaves = leaves(&scratch.ranks, &scratch.passing, questions, values.len() - 1);
            if outputs == 1 {
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

/// Asks all questions of a tree, sorted by plane, and returns the leaf of each row.
#[inline]
fn leaves(ranks: &[Bytes], passing: &[Bits], questions: &[PlaneTest], last: usize) -> Bytes {
    // What is left in the first plane that has a leaf left, and the first leaf of that plane. No question ever rules out
    // the last leaf, so its plane may have none; it is the row's leaf if nothing is left in the others.
    let mut found = [0; ROWS];
    let mut leaf = [byte(last); ROWS];
    for questions in questions.chunk_by(|left, right| left.plane == right.plane) {
        let mut left = [0xff; ROWS];
        for &question in questions {
            if question.categorical {
                ask_category(passing[usize::from(question.cut)], question, &mut left);
            } else {
                ask(&ranks[usize::from(question.column)], question, &mut left);
            }
        }
        let first = questions[0].plane * 8;
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

#[inline]
fn ask(ranks: &Bytes, question: PlaneTest, left: &mut Bytes) {
    for (left, rank) in left.iter_mut().zip(ranks) {
        let passes = if *rank <= question.cut { 0xff } else { 0 };
        *left &= passes | question.keep;
    }
}

#[inline]
fn ask_category(passing: Bits, question: PlaneTest, left: &mut Bytes) {
    let (octets, _) = left.as_chunks_mut::<8>();
    for (left, bits) in octets.iter_mut().zip(passing.to_le_bytes()) {
        for (left, passes) in left.iter_mut().zip(SPREAD[usize::from(bits)]) {
            *left &= passes | question.keep;
        }
    }
}

/// How many of the thresholds a value exceeds; a missing value exceeds all.
#[inline]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "a missing value exceeds every threshold")]
fn rank<T: Scalar>(cuts: &[T], value: T) -> usize {
    cuts.partition_point(|cut| !(value <= *cut))
}

/// A rank or a leaf, which the draft has seen to fit.
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
