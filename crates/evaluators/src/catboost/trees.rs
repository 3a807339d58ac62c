//! Oblivious and other trees, evaluated for a block of rows at once.
//!
//! Each value becomes a byte for each of its *slots*: its rank among up to 255 borders, or the place of its category among
//! up to 255 categories. A split is then a comparison of bytes, which the compiler vectorizes over the rows of a block.

use std::slice;

use pulp::bytemuck::cast_slice;
use pulp::{Arch, Simd, WithSimd};

use super::raw::{Node, Trees};
use crate::trees::LoadError;
use crate::wide::wide;

/// How many borders or categories a slot has, so that a rank is a byte.
pub(super) const SLOT: usize = 255;
/// The number of rows in a block.
pub(super) const ROWS: usize = 64;

/// Some borders of a feature.
#[derive(Debug)]
pub(super) struct Slot {
    /// The number among all slots.
    pub(super) number: u32,
    pub(super) borders: Box<[f32]>,
}

impl Slot {
    /// Replaces values by ranks: how many of the borders each exceeds. NaN exceeds none.
    #[inline]
    pub(super) fn rank<const N: usize>(&self, values: &[f32; N], ranks: &mut [u8; N]) {
        if N == ROWS {
            return Arch::new().dispatch(Counting { borders: &self.borders, values, ranks });
        }
        for (rank, value) in ranks.iter_mut().zip(values) {
            *rank = byte(self.borders.partition_point(|border| *value > *border));
        }
    }

    /// Returns how many nanoseconds a row takes, of a block or alone.
    pub(super) const fn cost(&self, is_block: bool) -> usize {
        if is_block { 1 + self.borders.len() / 32 } else { 5 }
    }
}

/// Ranks the values of a block by comparing them with all borders, a register of values at a time. Without branches, that is
/// quicker than a search in each row.
struct Counting<'a> {
    borders: &'a [f32],
    /// As many as fill registers of every size.
    values: &'a [f32],
    ranks: &'a mut [u8],
}

impl WithSimd for Counting<'_> {
    type Output = ();

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is compiled for the instructions of its caller")]
    fn with_simd<S: Simd>(self, simd: S) {
        let (values, _) = S::as_simd_f32s(self.values);
        let (none, one) = (simd.splat_u32s(0), simd.splat_u32s(1));
        for (values, ranks) in values.iter().zip(self.ranks.chunks_exact_mut(S::U32_LANES)) {
            let mut counts = none;
            for border in self.borders {
                let exceeds = simd.less_than_f32s(simd.splat_f32s(*border), *values);
                counts = simd.add_u32s(counts, simd.select_u32s(exceeds, one, none));
            }
            for (rank, count) in ranks.iter_mut().zip(cast_slice::<S::u32s, u32>(slice::from_ref(&counts))) {
                *rank = byte(*count as usize);
            }
        }
    }
}

/// Converts a rank or the place of a category.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "a slot has at most 255 borders or categories")]
pub(super) const fn byte(number: usize) -> u8 {
    number as u8
}

/// A split as a comparison of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotTest {
    pub(super) slot: u32,
    mask: u8,
    least: u8,
}

impl SlotTest {
    /// Tests whether a value exceeds the border in this place of a slot.
    pub(super) fn above(slot: u32, border: usize) -> Self {
        Self { slot, mask: 0, least: byte(border + 1) }
    }

    /// Tests whether a category is the one in this place of a slot.
    pub(super) fn equal(slot: u32, category: usize) -> Self {
        // Only the byte itself becomes 255.
        Self { slot, mask: !byte(category + 1), least: u8::MAX }
    }

    #[inline]
    pub(super) fn passes(self, rank: u8) -> bool {
        rank ^ self.mask >= self.least
    }
}

/// The depth up to which the number of a leaf is a byte.
const SHALLOW: u32 = 8;
/// How many trees of one row are evaluated at once: as many as a block has rows.
const TREES: usize = ROWS;
/// The number of slots that a row evaluated alone has, so that the number of a slot is a byte. The last one is empty.
const ROW_SLOTS: usize = 256;
/// The last one, whose rank is 0.
const EMPTY_SLOT: usize = ROW_SLOTS - 1;
/// How many trees add their values at once, so that sums are read and written less often. They are added in the order of trees.
const TOGETHER: usize = 8;
/// How many rows walk a tree that is not oblivious at once, so that their memory accesses overlap.
const WALKERS: usize = 8;

/// All trees.
#[derive(Debug)]
pub(super) struct Forest {
    pub(super) dimension: usize,
    pub(super) shape: Shape,
    /// The values of leaves, followed by zeros: a table of 256 values begins at every tree.
    pub(super) values: Vec<f64>,
    /// All trees for rows that are evaluated alone. Empty if there are others than shallow oblivious trees with one value for
    /// each leaf, or too many slots.
    groups: Vec<TreeGroup>,
}

/// Up to [`TREES`] shallow oblivious trees.
#[derive(Debug)]
struct TreeGroup {
    /// The tests at each depth. A tree without one has a test that no row passes.
    tests: Vec<TestColumn>,
    /// Where the values of each tree begin.
    starts: Vec<usize>,
}

/// The tests of all trees of a group at one depth.
#[derive(Debug)]
struct TestColumn {
    slots: [u8; TREES],
    masks: [u8; TREES],
    least: [u8; TREES],
}

/// The ranks of a row, for each slot.
struct RowRanks([u8; ROW_SLOTS]);

#[derive(Debug)]
pub(super) enum Shape {
    /// The depth of each tree, and all splits.
    Oblivious {
        depths: Vec<u32>,
        tests: Vec<SlotTest>,
    },
    Graphs {
        trees: Vec<Graph>,
        nodes: Vec<Step>,
    },
}

/// A tree that is not oblivious.
#[derive(Debug, Clone, Copy)]
pub(super) struct Graph {
    pub(super) root: u32,
    /// The index of its first value.
    first: u32,
    /// The most steps from the root.
    depth: u32,
}

/// A node: its split, and the next nodes. The node itself is next if the walk ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) test: SlotTest,
    pub(super) next: [u32; 2],
    pub(super) value: u32,
}

impl Forest {
    /// Checks and compiles trees. `test` compiles a split.
    pub(super) fn new(
        trees: &Trees,
        dimension: usize,
        mut test: impl FnMut(i32) -> Result<SlotTest, LoadError>,
    ) -> Result<Self, LoadError> {
        let shape = match &trees.nodes {
            None => Shape::Oblivious {
                depths: depths(trees, dimension)?,
                tests: trees.splits.iter().map(|split| test(*split)).collect::<Result<_, _>>()?,
            },
            Some(nodes) => graphs(trees, nodes, dimension, test)?,
        };
        let values = trees.values.iter().copied().chain([0.0; 1 << SHALLOW]).collect();
        let groups = match &shape {
            Shape::Oblivious { depths, tests } if dimension == 1 => TreeGroup::all(depths, tests),
            _ => Vec::new(),
        };
        Ok(Self { dimension, shape, values, groups })
    }

    pub(super) fn trees(&self) -> usize {
        match &self.shape {
            Shape::Oblivious { depths, .. } => depths.len(),
            Shape::Graphs { trees, .. } => trees.len(),
        }
    }

    /// Adds the values of each row's leaves to its sums.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is compiled for the instructions of its caller")]
    pub(super) fn add<const N: usize>(&self, ranks: &[[u8; N]], sums: &mut [f64]) {
        if let ([sum], false) = (&mut *sums, N != 1 || self.groups.is_empty()) {
            let ranks = RowRanks::new(ranks.as_flattened());
            for group in &self.groups {
                *sum = group.add(&ranks, &self.values, *sum);
            }
            return;
        }
        let dimension = self.dimension;
        if let (Shape::Oblivious { depths, tests }, 1) = (&self.shape, dimension)
            && depths.iter().all(|depth| *depth <= SHALLOW)
        {
            self.add_single(depths, tests, ranks, sums);
            return;
        }
        let rows = sums.len() / dimension;
        self.walk(ranks, rows, |_, first, leaves| {
            let Some(values) = self.values.get(first..) else { return };
            for (sums, leaf) in sums.chunks_exact_mut(dimension).zip(leaves) {
                let start = *leaf as usize * dimension;
                for (sum, value) in sums.iter_mut().zip(&values[start..start + dimension]) {
                    *sum += value;
                }
            }
        });
    }

    /// Adds the values of shallow oblivious trees with one value for each leaf.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is compiled for the instructions of its caller")]
    fn add_single<const N: usize>(&self, depths: &[u32], tests: &[SlotTest], ranks: &[[u8; N]], sums: &mut [f64]) {
        let (mut tests, mut first) = (tests, 0);
        let mut next = |depth: u32| {
            let (own, rest) = tests.split_at(depth as usize);
            tests = rest;
            let values = self.values.get(first..).and_then(|values| values.first_chunk::<{ 1 << SHALLOW }>());
            first += 1 << depth;
            (values.unwrap_or(&[0.0; 1 << SHALLOW]), shallow(ranks, own))
        };
        let (groups, rest) = depths.as_chunks::<TOGETHER>();
        for depth in groups {
            // Not `map`, which is not inlined.
            let group = [
                next(depth[0]),
                next(depth[1]),
                next(depth[2]),
                next(depth[3]),
                next(depth[4]),
                next(depth[5]),
                next(depth[6]),
                next(depth[7]),
            ];
            for (row, sum) in sums.iter_mut().enumerate().take(N) {
                let value = |(values, leaves): &(&[f64; 1 << SHALLOW], [u8; N])| values[usize::from(leaves[row])];
                *sum = group.iter().fold(*sum, |sum, tree| sum + value(tree));
            }
        }
        for depth in rest {
            let (values, leaves) = next(*depth);
            for (sum, leaf) in sums.iter_mut().zip(leaves) {
                *sum += values[usize::from(leaf)];
            }
        }
    }

    /// Writes the number of each row's leaf in each tree, row by row.
    pub(super) fn leaves<const N: usize>(&self, ranks: &[[u8; N]], numbers: &mut [i64]) {
        let trees = self.trees();
        self.walk(ranks, numbers.len() / trees.max(1), |tree, _, leaves| {
            for (number, leaf) in numbers.iter_mut().skip(tree).step_by(trees).zip(leaves) {
                *number = i64::from(*leaf);
            }
        });
    }

    /// Finds the leaf of each row in each tree. Calls `found` with the tree, its first value and the leaves.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is compiled for the instructions of its caller")]
    fn walk<const N: usize>(&self, ranks: &[[u8; N]], rows: usize, mut found: impl FnMut(usize, usize, &[u32; N])) {
        match &self.shape {
            Shape::Oblivious { depths, tests } => {
                let (mut tests, mut first) = (&tests[..], 0);
                for (tree, depth) in depths.iter().enumerate() {
                    let (own, rest) = tests.split_at(*depth as usize);
                    tests = rest;
                    let leaves = if *depth <= SHALLOW { shallow(ranks, own).map(u32::from) } else { deep(ranks, own) };
                    found(tree, first, &leaves);
                    first += self.dimension << depth;
                }
            }
            Shape::Graphs { trees, nodes } => {
                for (tree, graph) in trees.iter().enumerate() {
                    let mut leaves = [0; N];
                    for (group, leaves) in leaves.chunks_mut(WALKERS).enumerate().take(rows.div_ceil(WALKERS)) {
                        follow(nodes, *graph, ranks, group * WALKERS, leaves);
                        for leaf in leaves {
                            *leaf = (*leaf - graph.first) / as_u32(self.dimension);
                        }
                    }
                    found(tree, graph.first as usize, &leaves);
                }
            }
        }
    }

    /// Returns the most splits on the path of a row through a tree.
    pub(super) fn depth(&self) -> usize {
        let deepest = match &self.shape {
            Shape::Oblivious { depths, .. } => depths.iter().max().copied(),
            Shape::Graphs { trees, .. } => trees.iter().map(|tree| tree.depth).max(),
        };
        deepest.unwrap_or(0) as usize
    }

    /// Returns how many nanoseconds a row takes, of a block or alone.
    pub(super) fn cost(&self, is_block: bool) -> usize {
        match &self.shape {
            Shape::Oblivious { depths, tests } => {
                let (tests, trees) = (tests.len(), depths.len() * self.dimension);
                match (is_block, self.groups.is_empty()) {
                    (true, false) => tests / 32 + trees / 3,
                    (true, true) => tests / 16 + trees,
                    (false, false) => tests / 2 + trees,
                    (false, true) => tests + trees,
                }
            }
            Shape::Graphs { trees, .. } => trees.iter().map(|tree| tree.depth as usize * 2 + self.dimension).sum(),
        }
    }
}

impl TreeGroup {
    /// Returns all trees in groups, or nothing if some are too deep or there are too many slots.
    fn all(depths: &[u32], tests: &[SlotTest]) -> Vec<Self> {
        let are_shallow = depths.iter().all(|depth| *depth <= SHALLOW);
        if !are_shallow || tests.iter().any(|test| test.slot as usize >= EMPTY_SLOT) {
            return Vec::new();
        }
        let (mut rest, mut start) = (tests, 0);
        let groups = depths.chunks(TREES).map(|depths| {
            let deepest = depths.iter().max().copied().unwrap_or_default();
            let mut group = Self { tests: (0..deepest).map(|_| TestColumn::EMPTY).collect(), starts: Vec::new() };
            for (tree, depth) in depths.iter().enumerate() {
                let (own, others) = rest.split_at(*depth as usize);
                rest = others;
                for (column, test) in group.tests.iter_mut().zip(own) {
                    column.set(tree, *test);
                }
                group.starts.push(start);
                start += 1 << depth;
            }
            group
        });
        groups.collect()
    }

    /// Adds the values of a row's leaves to a sum, in the order of the trees.
    fn add(&self, ranks: &RowRanks, values: &[f64], sum: f64) -> f64 {
        // Not with the widest instructions: single bytes are collected more quickly without them.
        let used = self.starts.len().next_multiple_of(16).min(TREES);
        let mut found = [[0; TREES]; SHALLOW as usize];
        for (found, column) in found.iter_mut().zip(&self.tests) {
            for (found, slot) in found.iter_mut().zip(&column.slots[..used]) {
                *found = ranks.0[usize::from(*slot)];
            }
        }
        let leaves = wide(
            #[inline(always)]
            || {
                let mut leaves = [0_u8; TREES];
                for (depth, (column, found)) in self.tests.iter().zip(&found).enumerate() {
                    for (tree, leaf) in leaves.iter_mut().enumerate() {
                        let passes = found[tree] ^ column.masks[tree] >= column.least[tree];
                        *leaf |= if passes { 1 << depth } else { 0 };
                    }
                }
                leaves
            },
        );
        self.starts.iter().zip(leaves).fold(sum, |sum, (start, leaf)| sum + values[start + usize::from(leaf)])
    }
}

impl TestColumn {
    /// Tests that no row passes.
    #[expect(clippy::cast_possible_truncation, reason = "it is 255")]
    const EMPTY: Self = Self { slots: [EMPTY_SLOT as u8; TREES], masks: [0; TREES], least: [u8::MAX; TREES] };

    #[expect(clippy::cast_possible_truncation, reason = "numbers of slots are below that of the empty one")]
    const fn set(&mut self, tree: usize, test: SlotTest) {
        self.slots[tree] = test.slot as u8;
        self.masks[tree] = test.mask;
        self.least[tree] = test.least;
    }
}

impl RowRanks {
    fn new(ranks: &[u8]) -> Self {
        let mut all = [0; ROW_SLOTS];
        let known = ranks.len().min(EMPTY_SLOT);
        all[..known].copy_from_slice(&ranks[..known]);
        Self(all)
    }
}

/// Walks a tree with rows from `start` on, and writes the index of the value of each row's leaf.
#[inline]
fn follow<const N: usize>(nodes: &[Step], graph: Graph, ranks: &[[u8; N]], start: usize, leaves: &mut [u32]) {
    let mut at = [graph.root; WALKERS];
    let at = &mut at[..leaves.len()];
    for _ in 0..graph.depth {
        for (row, at) in (start..).zip(&mut *at) {
            let Step { test, next, .. } = nodes[*at as usize];
            *at = next[usize::from(test.passes(ranks[test.slot as usize][row]))];
        }
    }
    for (leaf, at) in leaves.iter_mut().zip(at) {
        *leaf = nodes[*at as usize].value;
    }
}

/// Returns the leaves of a tree of up to eight splits.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the instructions of its caller")]
fn shallow<const N: usize>(ranks: &[[u8; N]], tests: &[SlotTest]) -> [u8; N] {
    let mut leaves = [0_u8; N];
    for (depth, test) in tests.iter().enumerate() {
        let bit = 1 << depth;
        let ranks = &ranks[test.slot as usize];
        for (leaf, rank) in leaves.iter_mut().zip(ranks) {
            *leaf |= if rank ^ test.mask >= test.least { bit } else { 0 };
        }
    }
    leaves
}

/// Returns the leaves of a tree of any depth.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the instructions of its caller")]
fn deep<const N: usize>(ranks: &[[u8; N]], tests: &[SlotTest]) -> [u32; N] {
    let mut leaves = [0_u32; N];
    for (depth, test) in tests.iter().enumerate() {
        for (leaf, rank) in leaves.iter_mut().zip(&ranks[test.slot as usize]) {
            *leaf |= u32::from(test.passes(*rank)) << depth;
        }
    }
    leaves
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the dimension is at most the number of values, whose indices are u32"
)]
pub(super) const fn as_u32(dimension: usize) -> u32 {
    dimension as u32
}

/// Checks the depths of oblivious trees.
fn depths(trees: &Trees, dimension: usize) -> Result<Vec<u32>, LoadError> {
    let (mut depths, mut splits, mut values) = (Vec::with_capacity(trees.sizes.len()), 0_usize, 0_usize);
    for &size in &trees.sizes {
        let depth = u32::try_from(size).ok().filter(|depth| *depth < 32);
        let depth = depth.ok_or_else(|| LoadError::Field {
            field: "TreeSizes",
            wanted: "a depth below 32",
            found: size.to_string(),
        })?;
        let leaves = 1_usize.checked_shl(depth).and_then(|leaves| leaves.checked_mul(dimension));
        values = values.saturating_add(leaves.unwrap_or(usize::MAX));
        splits = splits.saturating_add(depth as usize);
        depths.push(depth);
    }
    if splits != trees.splits.len() {
        return Err(LoadError::Count { field: "TreeSplits", wanted: splits, found: trees.splits.len() });
    }
    if values != trees.values.len() {
        return Err(LoadError::Count { field: "LeafValues", wanted: values, found: trees.values.len() });
    }
    Ok(depths)
}

/// Checks and compiles trees that are not oblivious: nodes lead forward, within their tree.
fn graphs(
    trees: &Trees,
    nodes: &[Node],
    dimension: usize,
    mut test: impl FnMut(i32) -> Result<SlotTest, LoadError>,
) -> Result<Shape, LoadError> {
    let count = nodes.len();
    if trees.splits.len() != count {
        return Err(LoadError::Count { field: "TreeSplits", wanted: count, found: trees.splits.len() });
    }
    let too_large = || LoadError::TooLarge { what: "nodes", count, limit: u32::MAX as usize };
    u32::try_from(count).ok().and(u32::try_from(trees.values.len()).ok()).ok_or_else(too_large)?;
    let (mut steps, mut graphs, mut start) =
        (Vec::with_capacity(count), Vec::with_capacity(trees.sizes.len()), 0_usize);
    for (tree, &size) in trees.sizes.iter().enumerate() {
        let end = usize::try_from(size).ok().filter(|size| *size > 0).and_then(|size| start.checked_add(size));
        let end = end.filter(|end| *end <= count).ok_or_else(|| damaged("TreeSizes", "nodes", size, tree))?;
        let own = &nodes[start..end];
        let leaves = own.iter().filter(|node| node.left == 0 || node.right == 0);
        let first = leaves.clone().map(|node| node.value).min().unwrap_or_default();
        for node in leaves {
            let is_inside = (node.value as usize).saturating_add(dimension) <= trees.values.len();
            if !is_inside || !(node.value - first).is_multiple_of(as_u32(dimension)) {
                return Err(damaged("NonSymmetricNodeIdToLeafId", "the first value of a leaf", node.value, tree));
            }
        }
        for (index, node) in (start..end).zip(own) {
            let next = [node.left, node.right].map(|distance| index.saturating_add(distance as usize));
            if next.iter().any(|next| *next >= end) {
                return Err(damaged("NonSymmetricStepNodes", "a node of the same tree", index, tree));
            }
            let is_leaf = node.left == 0 && node.right == 0;
            let test = if is_leaf { SlotTest::above(0, 0) } else { test(trees.splits[index])? };
            steps.push(Step { test, next: next.map(as_u32), value: node.value });
        }
        graphs.push(Graph { root: as_u32(start), first, depth: depth(&steps[start..end], start) });
        start = end;
    }
    if start != count {
        return Err(LoadError::Count { field: "NonSymmetricStepNodes", wanted: start, found: count });
    }
    Ok(Shape::Graphs { trees: graphs, nodes: steps })
}

fn damaged(field: &'static str, wanted: &'static str, found: impl std::fmt::Display, tree: usize) -> LoadError {
    LoadError::Field { field, wanted, found: format!("{found} in tree {tree}") }
}

/// Returns the most steps from the first node, which is at `start`. Nodes lead forward.
fn depth(nodes: &[Step], start: usize) -> u32 {
    let mut depths = vec![0_u32; nodes.len()];
    for (index, node) in nodes.iter().enumerate().rev() {
        let next = node.next.map(|next| next as usize - start);
        let deepest = next.iter().filter(|next| **next > index).map(|next| depths[*next] + 1).max();
        depths[index] = deepest.unwrap_or(0);
    }
    depths.first().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_compare_bytes() {
        for rank in 0..=u8::MAX {
            for place in 0..SLOT {
                assert_eq!(SlotTest::above(0, place).passes(rank), usize::from(rank) > place);
                assert_eq!(SlotTest::equal(0, place).passes(rank), usize::from(rank) == place + 1);
            }
        }
    }

    #[test]
    fn ranks_count_the_borders_below_a_value() {
        let values =
            [-2.0, -1.0, -0.5, -0.0, 0.0, 1.0, 2.5, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE];
        for count in [0, 1, 4, 17, 254, SLOT] {
            let mut borders: Vec<f32> = [-1.0, 0.0, 0.0, 2.5].into_iter().cycle().take(count).collect();
            borders.sort_by(f32::total_cmp);
            let slot = Slot { number: 0, borders: borders.into() };
            let values: [f32; ROWS] = std::array::from_fn(|row| values[row % values.len()]);
            let mut ranks = [7; ROWS];
            slot.rank(&values, &mut ranks);
            for (value, rank) in values.into_iter().zip(ranks) {
                let expected = slot.borders.iter().filter(|border| value > **border).count();
                assert_eq!(usize::from(rank), expected, "{value} among {count} borders");
                let mut alone = [7];
                slot.rank(&[value], &mut alone);
                assert_eq!(alone[0], rank, "{value} among {count} borders, alone");
            }
        }
    }

    /// A forest whose splits are `test`, with different values in all leaves.
    fn forest(depths: &[i32], dimension: usize, test: impl FnMut(i32) -> SlotTest) -> Forest {
        let splits = depths.iter().sum::<i32>();
        let leaves: usize = depths.iter().map(|depth| dimension << depth).sum();
        // Sums of them are rounded, so that the order of additions shows.
        let values = std::iter::successors(Some(0.1_f64), |value| Some((value * 1.7 + 0.3) % 1.9));
        let trees = Trees {
            splits: (0..splits).collect(),
            sizes: depths.to_vec(),
            values: values.take(leaves).collect(),
            ..Trees::default()
        };
        let mut test = test;
        Forest::new(&trees, dimension, |split| Ok(test(split))).unwrap()
    }

    /// What the values of all trees add up to, tree by tree and split by split.
    fn sums(forest: &Forest, ranks: impl Fn(u32) -> u8) -> Vec<f64> {
        let Shape::Oblivious { depths, tests } = &forest.shape else { unreachable!() };
        let (mut tests, mut first, mut sums) = (tests.iter(), 0, vec![0.0; forest.dimension]);
        for depth in depths {
            let mut leaf = 0;
            for (bit, test) in tests.by_ref().take(*depth as usize).enumerate() {
                leaf |= usize::from(test.passes(ranks(test.slot))) << bit;
            }
            for (sum, value) in sums.iter_mut().zip(&forest.values[first + leaf * forest.dimension..]) {
                *sum += value;
            }
            first += forest.dimension << depth;
        }
        sums
    }

    #[test]
    fn sums_are_those_of_trees_one_by_one() {
        let depths = [6, 0, 8, 3, 1, 7, 2, 5, 4];
        for count in [0, 1, 7, 8, 9, 63, 64, 65, 130] {
            for (slots, dimension, deepest) in
                [(1, 1, 8), (40, 1, 8), (255, 1, 8), (256, 1, 8), (40, 3, 8), (40, 1, 10)]
            {
                let mut depths: Vec<i32> = depths.into_iter().cycle().take(count).collect();
                if let Some(last) = depths.last_mut().filter(|_| deepest > 8) {
                    *last = deepest;
                }
                let forest = forest(&depths, dimension, |split| {
                    let (number, place) = (split.unsigned_abs(), split.unsigned_abs() as usize * 31 % SLOT);
                    let test = if number.is_multiple_of(3) { SlotTest::equal } else { SlotTest::above };
                    test(number * 7 % slots, place)
                });
                let rank = |slot: u32, row: usize| byte((slot as usize * 89 + row * 53 + 255) % 256);
                let expected: Vec<Vec<f64>> = (0..ROWS).map(|row| sums(&forest, |slot| rank(slot, row))).collect();
                let ranks: Vec<[u8; ROWS]> =
                    (0..slots).map(|slot| std::array::from_fn(|row| rank(slot, row))).collect();
                for rows in [1, 5, ROWS] {
                    let mut found = vec![0.0; rows * dimension];
                    forest.add(&ranks, &mut found);
                    assert_eq!(found, expected[..rows].concat(), "{count} trees, {slots} slots, {rows} rows");
                }
                for (row, expected) in expected.iter().enumerate() {
                    let ranks: Vec<[u8; 1]> = (0..slots).map(|slot| [rank(slot, row)]).collect();
                    let mut found = vec![0.0; dimension];
                    forest.add(&ranks, &mut found);
                    assert_eq!(&found, expected, "{count} trees, {slots} slots, row {row} alone");
                }
            }
        }
    }

    #[test]
    fn rows_alone_are_evaluated_in_groups_of_shallow_trees() {
        let groups =
            |depths: &[i32], dimension, slot| forest(depths, dimension, |_| SlotTest::above(slot, 0)).groups.len();
        assert_eq!((groups(&[6; 65], 1, 0), groups(&[8], 1, 254)), (2, 1));
        assert_eq!((groups(&[9], 1, 0), groups(&[6], 2, 0), groups(&[6], 1, 255)), (0, 0, 0));
    }
}
