//! The compiled form of a tree ensemble, and its evaluation.
//!
//! Every split of either library becomes the same test, `x <= threshold`: the first child if it holds, the second if it
//! does not. The two children are adjacent, so the next node is the position of the first child plus the outcome of the
//! test, and a step has no branch to mispredict. A leaf is a node whose threshold is NaN, so that its test never holds,
//! and whose "second child" is the leaf itself, so that a walk stays there. Several trees can therefore be walked in
//! lockstep, and the processor overlaps their memory accesses.
//!
//! Missing values cost nothing in the walk. NaN fails every test and goes to the second child. A split that sends
//! missing values to the first child is negated when it is compiled: it tests `-x`, with its children swapped. The
//! other rules of `LightGBM` (a missing value counts as zero; a zero counts as missing) become [`FeatureView`]s of a
//! feature. A row is laid out once, with one column for each view of a feature that some split tests, and the walk
//! reads these columns.

use super::data::InputRows;
use super::planes::{Planes, ROWS, Scratch};
use super::scalar::Scalar;

/// How many trees are walked in lockstep.
const LANES: usize = 6;
/// Nanoseconds per step of a walk that may meet a categorical split. Other steps take about one.
const CATEGORICAL: usize = 4;
/// Bytes of nodes that a block of rows goes through before the next nodes are read.
const CACHED: usize = 64 * 1024;
/// Steps that are taken before checking whether all lanes have arrived. Many paths are longer.
const USUAL: usize = 8;
/// Steps between two such checks.
const STRIDE: usize = 2;
/// Marks a slot without a set of categories, or without a linear leaf.
pub(super) const NONE: u32 = u32::MAX;

/// How a column is made from a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum FeatureView {
    /// The value; NaN is missing.
    Plain,
    /// The value, or zero if it is missing.
    MissingIsZero,
    /// The value, or missing if it is zero.
    ZeroIsMissing,
}

/// One column of a laid-out row.
#[derive(Debug, Clone, Copy)]
pub(super) struct ForestColumn<T> {
    pub(super) feature: u32,
    pub(super) view: FeatureView,
    /// 1, or -1 for a negated split.
    pub(super) sign: T,
}

/// A split or a leaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node<T, I> {
    pub(super) threshold: T,
    pub(super) column: I,
    /// The distance from this node to its first child; -1 in a leaf.
    pub(super) offset: I,
}

/// Node indices in the smaller of two widths that the model fits in.
pub(super) trait NodeIndex: Copy {
    fn column(self) -> usize;
    fn offset(self) -> usize;
    /// Packs a column index, if it fits.
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
pub(super) struct SplitCategories<T> {
    /// The start of the set among the words.
    pub(super) start: u32,
    /// The number of words.
    pub(super) len: u32,
    /// The category that the first bit stands for. Not used if sparse.
    pub(super) base: u32,
    /// Whether the words are sorted categories instead of bits.
    pub(super) sparse: bool,
    /// Whether a missing value goes to the first child, too.
    pub(super) missing: bool,
    /// Smallest value that is truncated to a category.
    pub(super) lowest: T,
}

/// Categorical splits, separate from the nodes.
#[derive(Debug)]
pub(super) struct Categories<T> {
    /// The index of each slot's set, or [`NONE`].
    pub(super) set_of: Vec<u32>,
    pub(super) sets: Vec<SplitCategories<T>>,
    pub(super) words: Vec<u32>,
}

/// A leaf with a linear model of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinearLeaf<T> {
    pub(super) constant: T,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// Linear leaves, separate from the nodes.
#[derive(Debug)]
pub(super) struct LinearLeaves<T> {
    /// The index of each slot's leaf, or [`NONE`].
    pub(super) leaf_of: Vec<u32>,
    pub(super) leaves: Vec<LinearLeaf<T>>,
    /// Columns and coefficients.
    pub(super) terms: Vec<(u32, T)>,
}

/// Trees that are walked in lockstep; the last group may have fewer than [`LANES`].
#[derive(Debug)]
pub(super) struct TreeGroup {
    /// The roots of the trees. Unused lanes repeat the first.
    pub(super) roots: [u32; LANES],
    /// The output that each tree adds to.
    pub(super) outputs: [u32; LANES],
    pub(super) trees: usize,
    /// The length of the longest path.
    pub(super) deep: usize,
    /// Whether any split is categorical.
    pub(super) categorical: bool,
}

/// A compiled ensemble.
#[derive(Debug)]
pub(super) struct Forest<T> {
    pub(super) nodes: Nodes<T>,
    /// The values of leaves, `width` values for each slot.
    pub(super) values: Vec<T>,
    /// The number of values in a leaf: one, or one for each output.
    pub(super) width: usize,
    pub(super) outputs: usize,
    pub(super) groups: Vec<TreeGroup>,
    /// Estimated nanoseconds for a row alone.
    pub(super) row_cost: usize,
    pub(super) columns: Vec<ForestColumn<T>>,
    /// The same trees in the form for many rows, if they fit it.
    pub(super) planes: Option<Planes<T>>,
    /// Values up to this magnitude count as zero.
    pub(super) tiny: T,
    pub(super) categories: Option<Categories<T>>,
    pub(super) linear: Option<LinearLeaves<T>>,
    /// For each slot, the number of training rows that reach it or the sum of their weights, if the file has them.
    pub(super) covers: Option<Vec<T>>,
    /// For each slot that is a leaf, its number in the file.
    pub(super) leaf_ids: Vec<u32>,
}

impl<T: Scalar> Forest<T> {
    /// The number of trees in a group.
    pub(super) const LANES: usize = LANES;

    /// Adds the trees' sums for each row of `input` to `sums`, which has [`Self::outputs`] values a row.
    ///
    /// Trees are added one after the other in their order, as in both libraries, so that rounding is the same.
    pub(super) fn add<S: Copy, F: Fn(S) -> T>(&self, input: &InputRows<'_, S, F>, sums: &mut [T]) {
        match &self.nodes {
            Nodes::Narrow(nodes) => self.add_rows(nodes, input, sums),
            Nodes::Wide(nodes) => self.add_rows(nodes, input, sums),
        }
    }

    /// Returns the number of trees.
    pub(super) fn trees(&self) -> usize {
        self.groups.iter().map(|group| group.trees).sum()
    }

    /// Estimates how many nanoseconds the contributions of this many rows take.
    pub(super) fn contribution_cost(&self, rows: usize) -> usize {
        // Of the nodes of a tree, most are edges of the search, and each takes about a nanosecond a point.
        let deepest = self.groups.iter().map(|group| group.deep).max().unwrap_or_default();
        let points = deepest.min(self.columns.len()).div_ceil(2).max(1);
        (self.values.len() / self.width).saturating_mul(points).saturating_mul(rows)
    }

    /// Estimates how many nanoseconds this many rows take.
    pub(super) fn cost(&self, rows: usize) -> usize {
        let walk = self.row_cost.saturating_mul(rows);
        let blocks = self.planes.as_ref().map_or(usize::MAX, |planes| planes.cost.saturating_mul(rows.div_ceil(ROWS)));
        walk.min(blocks)
    }

    /// Estimates how many nanoseconds a row of this many columns takes.
    pub(super) fn estimate_row(groups: &[TreeGroup], columns: usize) -> usize {
        let steps = |group: &TreeGroup| group.deep * group.trees * if group.categorical { CATEGORICAL } else { 1 };
        groups.iter().map(steps).sum::<usize>() + columns
    }

    fn add_rows<I: NodeIndex, S: Copy, F: Fn(S) -> T>(
        &self,
        nodes: &[Node<T, I>],
        input: &InputRows<'_, S, F>,
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
        let mut scratch = Scratch::default();
        let mut block = vec![T::NAN; columns * ROWS.min(rows)];
        let blocks = input.values.chunks(ROWS * features).zip(sums.chunks_mut(ROWS * self.outputs));
        for (source, sums) in blocks {
            if input.is_stopped() {
                return;
            }
            for (source, row) in source.chunks_exact(features).zip(block.chunks_exact_mut(columns)) {
                self.lay_out(source, &input.convert, row);
            }
            let rows = block.chunks_exact(columns);
            let count = sums.len() / self.outputs;
            if let Some(planes) = self.planes.as_ref().filter(|planes| planes.cost < self.row_cost * count) {
                planes.add(&block[..count * columns], columns, sums, self.outputs, &mut scratch);
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

    /// Returns how many groups of average size fit in the cache.
    fn groups_cached<I>(&self) -> usize {
        let slots = self.values.len() / self.width;
        let bytes = slots * (size_of::<Node<T, I>>() + size_of::<T>() * self.width);
        (CACHED * self.groups.len() / bytes.max(1)).max(1)
    }

    /// Lays out the columns of one row.
    pub(super) fn lay_out<S: Copy>(&self, source: &[S], convert: impl Fn(S) -> T, row: &mut [T]) {
        for (slot, column) in row.iter_mut().zip(&self.columns) {
            let raw = convert(source[column.feature as usize]);
            let value = if raw.abs() <= self.tiny { T::ZERO } else { raw };
            let viewed = match column.view {
                FeatureView::Plain => value,
                FeatureView::MissingIsZero => {
                    if value.is_nan() {
                        T::ZERO
                    } else {
                        value
                    }
                }
                FeatureView::ZeroIsMissing => {
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
    fn walk<I: NodeIndex>(&self, nodes: &[Node<T, I>], groups: &[TreeGroup], row: &[T], sums: &mut [T]) {
        for group in groups {
            self.collect(group, self.arrive(nodes, group, row), row, sums);
        }
    }

    /// Returns the leaves that a row arrives at in a group of trees.
    #[inline]
    fn arrive<I: NodeIndex>(&self, nodes: &[Node<T, I>], group: &TreeGroup, row: &[T]) -> [usize; LANES] {
        let mut slots = group.roots.map(|root| root as usize);
        match &self.categories {
            Some(categories) if group.categorical => {
                advance(group, &mut slots, |slot| categories.step(nodes, row, slot));
            }
            _ => advance(group, &mut slots, |slot| step(nodes, row, slot)),
        }
        slots
    }

    /// Returns the numbers of the leaves that each row arrives at, one for each tree, or fewer rows if it was stopped.
    pub(super) fn leaves<S: Copy, F: Fn(S) -> T>(&self, rows: usize, input: &InputRows<'_, S, F>) -> Vec<i32> {
        let mut found = Vec::with_capacity(rows.saturating_mul(self.trees()));
        let mut row = vec![T::NAN; self.columns.len().max(1)];
        for index in 0..rows {
            if index.is_multiple_of(ROWS) && input.is_stopped() {
                break;
            }
            self.lay_out(&input.values[index * input.features..][..input.features], &input.convert, &mut row);
            for group in &self.groups {
                let slots = match &self.nodes {
                    Nodes::Narrow(nodes) => self.arrive(nodes, group, &row),
                    Nodes::Wide(nodes) => self.arrive(nodes, group, &row),
                };
                let ids = slots.iter().take(group.trees).map(|slot| self.leaf_ids[*slot]);
                found.extend(ids.map(|id| i32::try_from(id).unwrap_or(i32::MAX)));
            }
        }
        found
    }

    /// Returns for the split at a slot all bits of the rows that go to its first child. The columns of `L` rows are side by side.
    pub(super) fn test<const L: usize>(&self, slot: usize, columns: &[[T; L]]) -> [u64; L] {
        let bits = |holds: bool| if holds { u64::MAX } else { 0 };
        let set = self.categories.as_ref().and_then(|all| Some((all, all.sets.get(all.set_of[slot] as usize)?)));
        let (threshold, column) = match &self.nodes {
            Nodes::Narrow(nodes) => (nodes[slot].threshold, nodes[slot].column.column()),
            Nodes::Wide(nodes) => (nodes[slot].threshold, nodes[slot].column.column()),
        };
        match set {
            Some((all, set)) => columns[column].map(|value| bits(all.contains(set, value))),
            None => columns[column].map(|value| bits(value <= threshold)),
        }
    }

    /// Returns the first child of the split at a slot, and the column that it tests, or `None` if it is a leaf.
    pub(super) fn split_at(&self, slot: usize) -> Option<(usize, usize)> {
        let (offset, column) = match &self.nodes {
            Nodes::Narrow(nodes) => (nodes[slot].offset.offset(), nodes[slot].column.column()),
            Nodes::Wide(nodes) => (nodes[slot].offset.offset(), nodes[slot].column.column()),
        };
        (offset != usize::MAX).then(|| (slot.wrapping_add(offset), column))
    }

    /// Adds the values of the leaves that a group has arrived at.
    #[inline]
    fn collect(&self, group: &TreeGroup, slots: [usize; LANES], row: &[T], sums: &mut [T]) {
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
        } else if group.trees == LANES {
            // Unrolled, because the number is known.
            for (slot, output) in slots.iter().zip(&group.outputs) {
                sums[*output as usize] += self.values[*slot];
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
    fn step<I: NodeIndex>(&self, nodes: &[Node<T, I>], row: &[T], slot: usize) -> usize {
        let set = self.set_of[slot];
        if set == NONE {
            return step(nodes, row, slot);
        }
        let node = &nodes[slot];
        let first = self.contains(&self.sets[set as usize], row[node.column.column()]);
        slot.wrapping_add(node.offset.offset()).wrapping_add(usize::from(!first))
    }

    #[inline]
    fn contains(&self, set: &SplitCategories<T>, value: T) -> bool {
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
    /// Evaluates the linear model of a leaf. Returns `None` if it has none, or if an input is missing.
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

impl NodeIndex for u16 {
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

impl NodeIndex for u32 {
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
fn advance(group: &TreeGroup, slots: &mut [usize; LANES], step: impl Fn(usize) -> usize) {
    let advance_by_one = |slots: &mut [usize; LANES]| {
        for slot in slots {
            *slot = step(*slot);
        }
    };
    let usual = group.deep.min(USUAL);
    for _ in 0..usual {
        advance_by_one(slots);
    }
    for taken in usual..group.deep {
        let before = *slots;
        advance_by_one(slots);
        // Only a lane that has arrived does not move. Checking after every step costs more than it saves.
        if taken % STRIDE == 0 && *slots == before {
            break;
        }
    }
}

/// Moves one lane by one step.
#[inline]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "a NaN on either side goes to the second child")]
fn step<T: Scalar, I: NodeIndex>(nodes: &[Node<T, I>], row: &[T], slot: usize) -> usize {
    let node = &nodes[slot];
    let second = !(row[node.column.column()] <= node.threshold);
    slot.wrapping_add(node.offset.offset()).wrapping_add(usize::from(second))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, Strategy, any, prop, prop_assert_eq, prop_oneof, proptest};

    use super::{FeatureView, Forest};
    use crate::trees::compile::{CategorySet, Compiler, ForestShape, LeafValue, LoadedNode, SplitTest, TreeStatistics};
    use crate::trees::data::InputRows;

    const FEATURES: usize = 4;
    const OUTPUTS: usize = 2;
    const TINY: f64 = 1e-3;

    /// A tree that is evaluated in the most obvious way.
    #[derive(Debug, Clone)]
    enum Node {
        /// A value for each output. If leaves have one value, it is the first.
        Leaf([f64; OUTPUTS]),
        Numeric {
            feature: usize,
            threshold: f64,
            view: FeatureView,
            missing: bool,
            children: Box<[Self; 2]>,
        },
        Category {
            feature: usize,
            set: Vec<u32>,
            missing: bool,
            children: Box<[Self; 2]>,
        },
    }

    impl Node {
        fn evaluate(&self, row: &[f64]) -> [f64; OUTPUTS] {
            let prepared = |feature: usize| if row[feature].abs() <= TINY { 0.0 } else { row[feature] };
            let (first, children) = match self {
                Self::Leaf(value) => return *value,
                Self::Numeric { feature, threshold, view, missing, children } => {
                    let mut x = prepared(*feature);
                    match view {
                        FeatureView::MissingIsZero if x.is_nan() => x = 0.0,
                        FeatureView::ZeroIsMissing if x == 0.0 => x = f64::NAN,
                        _ => {}
                    }
                    (if x.is_nan() { *missing } else { x <= *threshold }, children)
                }
                Self::Category { feature, set, missing, children } => {
                    let x = prepared(*feature);
                    let is = |category: &u32| f64::from(*category) <= x && x < f64::from(*category) + 1.0;
                    let known = set.iter().any(is);
                    (if x.is_nan() { *missing } else { known }, children)
                }
            };
            children[usize::from(!first)].evaluate(row)
        }

        /// Numbers the nodes, root first.
        fn flatten<'a>(&'a self, nodes: &mut Vec<(&'a Self, [i64; 2])>) -> i64 {
            let index = nodes.len();
            nodes.push((self, [-1; 2]));
            if let Self::Numeric { children, .. } | Self::Category { children, .. } = self {
                let [first, second] = &**children;
                nodes[index].1 = [first.flatten(nodes), second.flatten(nodes)];
            }
            i64::try_from(index).unwrap()
        }
    }

    fn value() -> impl Strategy<Value = f64> {
        let grid = (-8..8_i32).prop_map(|step| f64::from(step) / 2.0);
        let special =
            prop::sample::select(vec![f64::NAN, 0.0, -0.0, 1e-4, -1e-4, f64::INFINITY, f64::NEG_INFINITY, 1e300]);
        prop_oneof![3 => grid, 1 => special, 1 => (0..70_u32).prop_map(f64::from)]
    }

    fn tree() -> impl Strategy<Value = Node> {
        let leaf = prop::array::uniform2(-1000..1000_i32)
            .prop_map(|values| Node::Leaf(values.map(|value| f64::from(value) * 0.1)));
        leaf.prop_recursive(7, 120, 2, |inner| {
            let view = prop_oneof![
                Just(FeatureView::Plain),
                Just(FeatureView::MissingIsZero),
                Just(FeatureView::ZeroIsMissing)
            ];
            let children = [inner.clone(), inner];
            let set = prop::collection::vec(prop_oneof![4 => 0..70_u32, 1 => 0..5000_u32], 0..6);
            let threshold = value().prop_filter("a number", |threshold| !threshold.is_nan());
            let numeric = (0..FEATURES, threshold, view, any::<bool>(), children.clone()).prop_map(
                |(feature, threshold, view, missing, children)| Node::Numeric {
                    feature,
                    threshold,
                    view,
                    // A missing value counts as zero, so it cannot go another way than zero.
                    missing: if view == FeatureView::MissingIsZero { 0.0 <= threshold } else { missing },
                    children: Box::new(children),
                },
            );
            let category = (0..FEATURES, set, any::<bool>(), children).prop_map(|(feature, set, missing, children)| {
                Node::Category { feature, set, missing, children: Box::new(children) }
            });
            prop_oneof![3 => numeric, 1 => category]
        })
    }

    /// Compiles trees whose leaves have one value, or one for each output.
    fn compile(trees: &[Node], width: usize) -> Forest<f64> {
        let mut compiler = Compiler::new(&ForestShape { features: FEATURES, outputs: OUTPUTS, width, tiny: TINY });
        for (index, tree) in trees.iter().enumerate() {
            let mut nodes = Vec::new();
            tree.flatten(&mut nodes);
            let output = i64::try_from(index % OUTPUTS).unwrap();
            let statistics = TreeStatistics { covers: None, first_leaf: 0 };
            let reached = compiler.add(nodes.len(), output, statistics, |node| {
                let (node, children) = nodes[node];
                let (feature, test) = match node {
                    Node::Leaf([value, _]) if width == 1 => return Ok(LoadedNode::Leaf(LeafValue::Value(*value))),
                    Node::Leaf(values) => return Ok(LoadedNode::Leaf(LeafValue::Vector(values))),
                    Node::Numeric { feature, threshold, view, missing, .. } => {
                        (feature, SplitTest::AtMost { threshold: *threshold, view: *view, missing: *missing })
                    }
                    Node::Category { feature, set, missing, .. } => {
                        let categories = CategorySet::List(set.clone());
                        (feature, SplitTest::Among { categories, lowest: 0.0, missing: *missing })
                    }
                };
                Ok(LoadedNode::Split { feature: i64::try_from(*feature).unwrap(), test, children })
            });
            assert_eq!(reached.unwrap(), nodes.len());
        }
        compiler.finish()
    }

    fn sums(forest: &Forest<f64>, values: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; values.len() / FEATURES * OUTPUTS];
        forest.add(&InputRows { values, features: FEATURES, convert: |value| value, stop: None }, &mut sums);
        sums
    }

    proptest! {
        #[test]
        fn forest_matches_naive_evaluation(
            trees in prop::collection::vec(tree(), 0..15),
            rows in prop::collection::vec(prop::array::uniform4(value()), 1..150),
            width in prop::sample::select(vec![1, OUTPUTS]),
        ) {
            let expected: Vec<f64> = rows
                .iter()
                .flat_map(|row| {
                    let mut sums = [0.0; OUTPUTS];
                    for (index, tree) in trees.iter().enumerate() {
                        let values = tree.evaluate(row);
                        if width == 1 {
                            sums[index % OUTPUTS] += values[0];
                        } else {
                            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                        }
                    }
                    sums
                })
                .collect();
            let values = rows.concat();
            let mut forest = compile(&trees, width);
            let planes = forest.planes.take();
            prop_assert_eq!(&sums(&forest, &values), &expected);
            for (row, expected) in rows.iter().zip(expected.chunks(OUTPUTS)) {
                prop_assert_eq!(sums(&forest, row), expected);
            }
            let mut planes = planes.expect("small trees can have planes");
            planes.cost = 0;
            forest.planes = Some(planes);
            prop_assert_eq!(&sums(&forest, &values), &expected);
        }
    }

    #[test]
    fn planes_start_new_stage_after_255_thresholds() {
        let stump = |threshold: i32| Node::Numeric {
            feature: 0,
            threshold: f64::from(threshold),
            view: FeatureView::Plain,
            missing: threshold % 3 == 0,
            children: Box::new([Node::Leaf([1.0, 0.0]), Node::Leaf([f64::from(threshold), 0.0])]),
        };
        let trees: Vec<Node> = (0..1500).map(stump).collect();
        let mut forest = compile(&trees, 1);
        forest.planes.as_mut().unwrap().cost = 0;
        let values: Vec<f64> = (-10..1600).flat_map(|x| [f64::from(x), 0.0, 0.0, 0.0]).collect();
        for (row, found) in values.chunks(FEATURES).zip(sums(&forest, &values).chunks(OUTPUTS)) {
            let expected =
                |output| trees.iter().skip(output).step_by(2).fold(0.0, |sum, tree| sum + tree.evaluate(row)[0]);
            assert_eq!(found, [expected(0), expected(1)]);
        }
    }
}
