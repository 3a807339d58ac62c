//! The compiled form of a tree ensemble, and the walk over it.
//!
//! Every split of either library becomes the same test, `x <= threshold`: the first child if it holds, the second if it
//! does not. The two children stand side by side, so the next node is the position of the first child plus the outcome of
//! the test, and a step has no branch to mispredict. A leaf is a node whose threshold is NaN, so that its test never holds,
//! and whose "second child" is the leaf itself: a walk that has arrived stays there. So several trees can be walked in
//! lockstep, and the processor overlaps their memory accesses.
//!
//! Missing values cost nothing in the walk. A NaN fails every test and goes to the second child. A split that wants it in
//! the first one is turned around when it is compiled: it tests `-x`, with its children swapped. The other rules of
//! `LightGBM` (a missing value counts as zero; a zero counts as missing) become [`View`]s of a feature. A row is laid out
//! once, with one column for each view of a feature that some split tests, and after that the walk reads columns.

use super::data::Input;
use super::planes::{Planes, ROWS};
use super::scalar::Scalar;

/// Trees that are walked in lockstep.
const LANES: usize = 8;
/// Node bytes that a block of rows goes through before the next ones are touched.
const CACHED: usize = 64 * 1024;
/// Steps between two looks whether all lanes have arrived.
const STRIDE: usize = 2;
/// Marks a slot without a set of categories, or without a linear leaf.
pub(super) const NONE: u32 = u32::MAX;

/// How a column is made from a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum View {
    /// The value; NaN is missing.
    Plain,
    /// The value, and zero where it is missing.
    MissingIsZero,
    /// The value, and missing where it is zero.
    ZeroIsMissing,
}

/// One column of a laid-out row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column<T> {
    pub(super) feature: u32,
    pub(super) view: View,
    /// One, or minus one for a split that was turned around.
    pub(super) sign: T,
}

/// A split or a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<T, I> {
    pub(super) threshold: T,
    pub(super) column: I,
    /// From this node to its first child; -1 in a leaf.
    pub(super) offset: I,
}

/// Node indices in the smaller of two widths that fits the model.
pub(super) trait Index: Copy {
    fn column(self) -> usize;
    fn offset(self) -> usize;
    /// Packs a column, if it fits.
    fn from_column(column: usize) -> Option<Self>;
    /// Packs an offset, if it fits.
    fn from_offset(offset: i64) -> Option<Self>;
}

/// All nodes of all trees.
#[derive(Debug)]
pub(super) enum Nodes<T> {
    Narrow(Vec<Node<T, u16>>),
    Wide(Vec<Node<T, u32>>),
}

/// A set of categories that a split sends to its first child.
#[derive(Debug, Clone, Copy)]
pub(super) struct Set<T> {
    /// Where it starts among the words.
    pub(super) start: u32,
    /// How many words it has.
    pub(super) len: u32,
    /// Which category the first bit stands for; not used if sparse.
    pub(super) base: u32,
    /// Whether the words are sorted categories instead of bits.
    pub(super) sparse: bool,
    /// Whether a missing value goes to the first child too.
    pub(super) missing: bool,
    /// Smallest value that is truncated to a category.
    pub(super) lowest: T,
}

/// Categorical splits, beside the nodes.
#[derive(Debug)]
pub(super) struct Categories<T> {
    /// For each slot the index of its set, or [`NONE`].
    pub(super) set_of: Vec<u32>,
    pub(super) sets: Vec<Set<T>>,
    pub(super) words: Vec<u32>,
}

/// A leaf with a linear model of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinearLeaf<T> {
    pub(super) constant: T,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// Linear leaves, beside the nodes.
#[derive(Debug)]
pub(super) struct LinearLeaves<T> {
    /// For each slot the index of its leaf, or [`NONE`].
    pub(super) leaf_of: Vec<u32>,
    pub(super) leaves: Vec<LinearLeaf<T>>,
    /// Column and coefficient.
    pub(super) terms: Vec<(u32, T)>,
}

/// Trees that are walked in lockstep; the last group may have fewer than [`LANES`].
#[derive(Debug)]
pub(super) struct Group {
    /// Where the trees start; unused lanes repeat the first.
    pub(super) roots: [u32; LANES],
    /// The output that each adds to.
    pub(super) outputs: [u32; LANES],
    pub(super) trees: usize,
    /// Steps that every path needs.
    pub(super) shallow: usize,
    /// Steps that no path exceeds.
    pub(super) deep: usize,
    /// Whether some split is categorical.
    pub(super) categorical: bool,
}

/// A compiled ensemble.
#[derive(Debug)]
pub(super) struct Forest<T> {
    pub(super) nodes: Nodes<T>,
    /// The value of a slot that is a leaf, `width` values a slot.
    pub(super) values: Vec<T>,
    /// Values in a leaf: one, or one for each output.
    pub(super) width: usize,
    pub(super) outputs: usize,
    pub(super) groups: Vec<Group>,
    pub(super) columns: Vec<Column<T>>,
    /// The same trees for many rows, if they can have that form.
    pub(super) planes: Option<Planes<T>>,
    /// Values up to this size count as zero.
    pub(super) tiny: T,
    pub(super) categories: Option<Categories<T>>,
    pub(super) linear: Option<LinearLeaves<T>>,
}

impl<T: Scalar> Forest<T> {
    /// How many trees make a group.
    pub(super) const LANES: usize = LANES;

    /// Adds the trees' sums for each row of `input` to `sums`, which has [`Self::outputs`] values a row.
    ///
    /// Trees are added one after the other in their order, as both libraries do, so that rounding is the same.
    pub(super) fn add<S: Copy, F: Fn(S) -> T>(&self, input: &Input<'_, S, F>, sums: &mut [T]) {
        match &self.nodes {
            Nodes::Narrow(nodes) => self.add_rows(nodes, input, sums),
            Nodes::Wide(nodes) => self.add_rows(nodes, input, sums),
        }
    }

    /// Steps that one row takes at most.
    pub(super) fn steps(&self) -> usize {
        self.groups.iter().map(|group| group.deep * group.trees).sum()
    }

    fn add_rows<I: Index, S: Copy, F: Fn(S) -> T>(
        &self,
        nodes: &[Node<T, I>],
        input: &Input<'_, S, F>,
        sums: &mut [T],
    ) {
        let features = input.features;
        if features == 0 {
            // Without features all trees are single leaves.
            let row = [T::NAN];
            for sums in sums.chunks_exact_mut(self.outputs) {
                self.walk(nodes, &self.groups, &row, sums);
            }
            return;
        }
        // A row has at least one column, because a leaf reads one too.
        let columns = self.columns.len().max(1);
        let rows = input.values.len() / features;
        let steps = self.steps();
        let mut block = vec![T::NAN; columns * ROWS.min(rows)];
        let blocks = input.values.chunks(ROWS * features).zip(sums.chunks_mut(ROWS * self.outputs));
        for (source, sums) in blocks {
            for (source, row) in source.chunks_exact(features).zip(block.chunks_exact_mut(columns)) {
                self.lay_out(source, &input.convert, row);
            }
            let rows = block.chunks_exact(columns);
            let count = sums.len() / self.outputs;
            if let Some(planes) = self.planes.as_ref().filter(|planes| planes.cost < steps * count) {
                planes.add(&block[..count * columns], columns, sums, self.outputs);
            } else if count == 1 {
                for (row, sums) in rows.zip(sums.chunks_exact_mut(self.outputs)) {
                    self.walk(nodes, &self.groups, row, sums);
                }
            } else {
                for groups in self.groups.chunks(self.groups_cached::<I>()) {
                    for (row, sums) in rows.clone().zip(sums.chunks_exact_mut(self.outputs)) {
                        self.walk(nodes, groups, row, sums);
                    }
                }
            }
        }
    }

    /// How many groups of average size fit in the cache.
    fn groups_cached<I>(&self) -> usize {
        let slots = self.values.len() / self.width;
        let bytes = slots * (size_of::<Node<T, I>>() + size_of::<T>() * self.width);
        (CACHED * self.groups.len() / bytes.max(1)).max(1)
    }

    /// Makes the columns of one row.
    fn lay_out<S: Copy>(&self, source: &[S], convert: impl Fn(S) -> T, row: &mut [T]) {
        for (slot, column) in row.iter_mut().zip(&self.columns) {
            let raw = convert(source[column.feature as usize]);
            let value = if raw.abs() <= self.tiny { T::ZERO } else { raw };
            let viewed = match column.view {
                View::Plain => value,
                View::MissingIsZero => {
                    if value.is_nan() {
                        T::ZERO
                    } else {
                        value
                    }
                }
                View::ZeroIsMissing => {
                    if value == T::ZERO {
                        T::NAN
                    } else {
                        value
                    }
                }
            };
            *slot = viewed * column.sign;
        }
    }

    /// Walks one row through some groups of trees.
    fn walk<I: Index>(&self, nodes: &[Node<T, I>], groups: &[Group], row: &[T], sums: &mut [T]) {
        for group in groups {
            let mut slots = group.roots.map(|root| root as usize);
            match &self.categories {
                Some(categories) if group.categorical => {
                    advance(group, &mut slots, |slot| categories.step(nodes, row, slot));
                }
                _ => advance(group, &mut slots, |slot| step(nodes, row, slot)),
            }
            self.collect(group, slots, row, sums);
        }
    }

    /// Adds the values of the leaves where a group has arrived.
    #[inline]
    fn collect(&self, group: &Group, slots: [usize; LANES], row: &[T], sums: &mut [T]) {
        let arrived = slots.into_iter().zip(group.outputs).take(group.trees);
        if let Some(linear) = &self.linear {
            for (slot, output) in arrived {
                sums[output as usize] += linear.value(slot, row).unwrap_or(self.values[slot]);
            }
        } else if self.width > 1 {
            for (slot, _) in arrived {
                let values = &self.values[slot * self.width..][..self.width];
                for (sum, value) in sums.iter_mut().zip(values) {
                    *sum += *value;
                }
            }
        } else {
            for (slot, output) in arrived {
                sums[output as usize] += self.values[slot];
            }
        }
    }
}

impl<T: Scalar> Categories<T> {
    #[inline]
    fn step<I: Index>(&self, nodes: &[Node<T, I>], row: &[T], slot: usize) -> usize {
        let set = self.set_of[slot];
        if set == NONE {
            return step(nodes, row, slot);
        }
        let node = &nodes[slot];
        let first = self.contains(&self.sets[set as usize], row[node.column.column()]);
        slot.wrapping_add(node.offset.offset()).wrapping_add(usize::from(!first))
    }

    #[inline]
    fn contains(&self, set: &Set<T>, value: T) -> bool {
        if value.is_nan() {
            return set.missing;
        }
        if value < set.lowest {
            return false;
        }
        let category = value.truncate();
        let words = &self.words[set.start as usize..][..set.len as usize];
        if set.sparse {
            return words.binary_search(&category).is_ok();
        }
        let bit = category.wrapping_sub(set.base);
        words.get(bit as usize / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1)
    }
}

impl<T: Scalar> LinearLeaves<T> {
    /// The leaf's linear model; nothing if it has none, or if an input of it is missing.
    #[inline]
    fn value(&self, slot: usize, row: &[T]) -> Option<T> {
        let leaf = self.leaves.get(self.leaf_of[slot] as usize)?;
        let mut sum = leaf.constant;
        for &(column, coefficient) in &self.terms[leaf.start as usize..leaf.end as usize] {
            let value = row[column as usize];
            if value.is_nan() {
                return None;
            }
            sum += coefficient * value;
        }
        Some(sum)
    }
}

impl Index for u16 {
    #[inline]
    fn column(self) -> usize {
        usize::from(self)
    }

    #[inline]
    #[expect(clippy::cast_sign_loss, reason = "added with wrap-around, so that it may be negative")]
    fn offset(self) -> usize {
        isize::from(self.cast_signed()) as usize
    }

    fn from_column(column: usize) -> Option<Self> {
        Self::try_from(column).ok()
    }

    fn from_offset(offset: i64) -> Option<Self> {
        i16::try_from(offset).ok().map(i16::cast_unsigned)
    }
}

impl Index for u32 {
    #[inline]
    fn column(self) -> usize {
        self as usize
    }

    #[inline]
    #[expect(clippy::cast_sign_loss, reason = "added with wrap-around, so that it may be negative")]
    fn offset(self) -> usize {
        self.cast_signed() as isize as usize
    }

    fn from_column(column: usize) -> Option<Self> {
        Self::try_from(column).ok()
    }

    fn from_offset(offset: i64) -> Option<Self> {
        i32::try_from(offset).ok().map(i32::cast_unsigned)
    }
}

/// Moves every lane to its leaf.
#[inline]
fn advance(group: &Group, slots: &mut [usize; LANES], step: impl Fn(usize) -> usize) {
    for _ in 0..group.shallow {
        *slots = slots.map(&step);
    }
    let mut left = group.deep - group.shallow;
    while left > 0 {
        for _ in 0..STRIDE {
            *slots = slots.map(&step);
        }
        left = left.saturating_sub(STRIDE);
    }
}

/// One step of one lane.
#[inline]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "a NaN on either side goes to the second child")]
fn step<T: Scalar, I: Index>(nodes: &[Node<T, I>], row: &[T], slot: usize) -> usize {
    let node = &nodes[slot];
    let second = !(row[node.column.column()] <= node.threshold);
    slot.wrapping_add(node.offset.offset()).wrapping_add(usize::from(second))
}
