//! Many rows at once, without following any path.
//!
//! A tree's leaves are numbered from left to right. A split whose test fails rules out all leaves below its first child, and
//! once every split of the tree has been asked, the row's leaf is the leftmost that is left. No answer depends on
//! another, so the splits can be asked for many rows in parallel: one bit stands for a leaf, one byte (a *plane*) for eight
//! leaves of one row, and the bytes of a block of rows stand side by side for the compiler to vectorise over.
//!
//! Bytes are compared as well, not numbers: for each column the thresholds of the trees are sorted, and a value is
//! replaced by its rank, how many thresholds it exceeds. `x <= threshold` is then `rank <= position of the threshold`,
//! exactly. Ranks must fit a byte, so the trees are divided into stages with at most 255 thresholds to a column.

use super::scalar::Scalar;

/// Rows in a block.
pub(super) const ROWS: usize = 64;
/// Most thresholds in a column of a stage.
const CUTS: usize = 255;
/// Most leaves of a tree. Beyond that, following a path is faster than asking every split.
const LEAVES: usize = 256;

/// One byte for each row of a block.
type Bytes = [u8; ROWS];

/// An ensemble in the form for blocks of rows.
#[derive(Debug)]
pub(super) struct Planes<T> {
    stages: Vec<Stage<T>>,
    /// What a block costs, however few of its rows are used, in walk steps.
    pub(super) cost: usize,
}

/// Consecutive trees that share ranks.
#[derive(Debug)]
struct Stage<T> {
    /// Columns, and where their thresholds start.
    columns: Vec<(u32, u32)>,
    /// Ascending in each column.
    cuts: Vec<T>,
    trees: Vec<Tree>,
    questions: Vec<Question>,
    /// The leaves' values, tree by tree from left to right.
    values: Vec<T>,
}

#[derive(Debug)]
struct Tree {
    output: u32,
    /// Where the questions and the values end; they start where those of the tree before end.
    questions: u32,
    values: u32,
}

/// A split, as far as it concerns one plane. Questions are sorted by plane.
#[derive(Debug, Clone, Copy)]
struct Question {
    /// Index into the columns of the stage.
    column: u16,
    plane: u8,
    /// The leaves that stay if the rank exceeds the cut.
    keep: u8,
    cut: u8,
}

/// A tree as it is given to [`Planes::new`].
pub(super) struct TreeShape<T> {
    pub(super) output: u32,
    pub(super) splits: Vec<SplitShape<T>>,
    /// The leaves' values from left to right.
    pub(super) values: Vec<T>,
}

/// A split, and the leaves below its first child.
pub(super) struct SplitShape<T> {
    pub(super) column: u32,
    pub(super) threshold: T,
    pub(super) first: std::ops::Range<usize>,
}

impl<T: Scalar> Planes<T> {
    /// Makes the form of some trees of one value a leaf, if every tree can have it.
    pub(super) fn new(trees: impl Iterator<Item = Option<TreeShape<T>>>) -> Option<Self> {
        let mut stages = Vec::new();
        let mut draft = Draft::default();
        for tree in trees {
            let tree = tree.filter(TreeShape::is_possible)?;
            if !draft.admit(&tree) {
                stages.push(std::mem::take(&mut draft).finish()?);
                draft.admit(&tree);
            }
            draft.trees.push(tree);
        }
        stages.push(draft.finish()?);
        let cost = stages.iter().map(Stage::cost).sum();
        Some(Self { stages, cost })
    }

    /// Adds the trees' sums for up to [`ROWS`] rows of `columns` values to `sums`, which has `outputs` values a row.
    pub(super) fn add(&self, rows: &[T], columns: usize, sums: &mut [T], outputs: usize) {
        let mut ranks: Vec<Bytes> = Vec::new();
        for stage in &self.stages {
            stage.rank(rows, columns, &mut ranks);
            stage.add(&ranks, sums, outputs);
        }
    }
}

impl<T: Scalar> TreeShape<T> {
    fn is_possible(&self) -> bool {
        let never_holds = |split: &SplitShape<T>| split.threshold.is_nan();
        self.values.len() <= LEAVES && !self.splits.iter().any(never_holds)
    }
}

/// A stage that still grows.
struct Draft<T> {
    /// Column and its thresholds in ascending order, by column.
    cuts: Vec<(u32, Vec<T>)>,
    trees: Vec<TreeShape<T>>,
}

impl<T> Default for Draft<T> {
    fn default() -> Self {
        Self { cuts: Vec::new(), trees: Vec::new() }
    }
}

impl<T: Scalar> Draft<T> {
    /// Adds a tree's thresholds; if they do not fit, leaves everything as it was and returns false.
    fn admit(&mut self, tree: &TreeShape<T>) -> bool {
        let mut added: Vec<(u32, T)> = Vec::new();
        for split in &tree.splits {
            let column = match self.cuts.binary_search_by_key(&split.column, |entry| entry.0) {
                Ok(column) => column,
                Err(column) => {
                    self.cuts.insert(column, (split.column, Vec::new()));
                    column
                }
            };
            let columns = self.cuts.len();
            let cuts = &mut self.cuts[column].1;
            let at = rank(cuts, split.threshold);
            if cuts.get(at) == Some(&split.threshold) {
                continue;
            }
            if cuts.len() == CUTS || columns > usize::from(u16::MAX) {
                for (column, threshold) in added {
                    if let Ok(column) = self.cuts.binary_search_by_key(&column, |entry| entry.0) {
                        self.cuts[column].1.retain(|cut| *cut != threshold);
                    }
                }
                return false;
            }
            cuts.insert(at, split.threshold);
            added.push((split.column, split.threshold));
        }
        true
    }

    fn finish(mut self) -> Option<Stage<T>> {
        self.cuts.retain(|(_, cuts)| !cuts.is_empty());
        let mut stage = Stage {
            columns: Vec::new(),
            cuts: Vec::new(),
            trees: Vec::new(),
            questions: Vec::new(),
            values: Vec::new(),
        };
        for tree in self.trees {
            let before = stage.questions.len();
            for split in &tree.splits {
                let column = self.cuts.binary_search_by_key(&split.column, |entry| entry.0).ok()?;
                let cut = u8::try_from(rank(&self.cuts[column].1, split.threshold)).ok()?;
                let column = u16::try_from(column).ok()?;
                let last = split.first.end.checked_sub(1)?;
                for plane in split.first.start / 8..=last / 8 {
                    let ruled_out = (plane * 8..plane * 8 + 8).filter(|leaf| split.first.contains(leaf));
                    let keep = !ruled_out.fold(0, |bits, leaf| bits | 1 << (leaf % 8));
                    stage.questions.push(Question { column, plane: u8::try_from(plane).ok()?, keep, cut });
                }
            }
            stage.questions[before..].sort_by_key(|question| (question.plane, question.column));
            stage.values.extend_from_slice(&tree.values);
            stage.trees.push(Tree {
                output: tree.output,
                questions: u32::try_from(stage.questions.len()).ok()?,
                values: u32::try_from(stage.values.len()).ok()?,
            });
        }
        for (column, cuts) in self.cuts {
            stage.cuts.extend_from_slice(&cuts);
            stage.columns.push((column, u32::try_from(stage.cuts.len()).ok()?));
        }
        Some(stage)
    }
}

impl<T: Scalar> Stage<T> {
    /// The cost of a block, in steps of a walk: measured.
    fn cost(&self) -> usize {
        self.columns.len() * ROWS * 5 + self.questions.len() * 3 + self.trees.len() * ROWS / 2
    }

    /// Replaces values by ranks, column by column.
    fn rank(&self, rows: &[T], columns: usize, ranks: &mut Vec<Bytes>) {
        ranks.resize(self.columns.len(), [0; ROWS]);
        let mut start = 0;
        for ((column, end), ranks) in self.columns.iter().zip(ranks) {
            let end = *end as usize;
            let cuts = &self.cuts[start..end];
            start = end;
            let values = rows.iter().skip(*column as usize).step_by(columns);
            for (slot, value) in ranks.iter_mut().zip(values) {
                *slot = rank(cuts, *value) as u8;
            }
        }
    }

    fn add(&self, ranks: &[Bytes], sums: &mut [T], outputs: usize) {
        let (mut question, mut value) = (0, 0);
        for tree in &self.trees {
            let questions = &self.questions[question..tree.questions as usize];
            let values = &self.values[value..tree.values as usize];
            (question, value) = (tree.questions as usize, tree.values as usize);
            let leaves = leaves(ranks, questions, values.len() - 1);
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

/// Asks all questions of a tree and returns the leaf of each row.
#[inline]
fn leaves(ranks: &[Bytes], questions: &[Question], last: usize) -> Bytes {
    // What is left in the first plane that has a leaf left, and the first leaf of that plane. No question ever rules out
    // the last leaf, so its plane may have none; it is the row's leaf if nothing is left in the others.
    let mut found = [0; ROWS];
    let mut leaf = [last as u8; ROWS];
    for questions in questions.chunk_by(|left, right| left.plane == right.plane) {
        let mut left = [0xff; ROWS];
        for question in questions {
            ask(&ranks[usize::from(question.column)], question, &mut left);
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
fn ask(ranks: &Bytes, question: &Question, left: &mut Bytes) {
    for (left, rank) in left.iter_mut().zip(ranks) {
        let holds = if *rank <= question.cut { 0xff } else { 0 };
        *left &= holds | question.keep;
    }
}

/// How many of the thresholds a value exceeds; a missing value exceeds all.
#[inline]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "a missing value exceeds every threshold")]
fn rank<T: Scalar>(cuts: &[T], value: T) -> usize {
    cuts.partition_point(|cut| !(value <= *cut))
}
