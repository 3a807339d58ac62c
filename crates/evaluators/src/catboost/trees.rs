//! Oblivious and other trees, evaluated for a block of rows at once.
//!
//! Each value becomes a byte for each of its *slots*: its rank among up to 255 borders, or the place of its category among
//! up to 255 categories. A split is then a comparison of bytes, which the compiler vectorizes over the rows of a block.

use super::raw::Trees;
use crate::trees::LoadError;

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
        for (rank, value) in ranks.iter_mut().zip(values) {
            *rank = byte(self.borders.partition_point(|border| *value > *border));
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

/// All trees.
#[derive(Debug)]
pub(super) struct Forest {
    pub(super) dimension: usize,
    tests: Vec<SlotTest>,
    shape: Shape,
    values: Vec<f64>,
}

#[derive(Debug)]
enum Shape {
    /// The depth of each tree.
    Oblivious(Vec<u32>),
    Graphs {
        trees: Vec<Graph>,
        nodes: Vec<Step>,
    },
}

/// A tree that is not oblivious.
#[derive(Debug, Clone, Copy)]
struct Graph {
    root: u32,
    /// The index of its first value.
    first: u32,
}

/// A node: the next nodes, or itself if the walk ends.
#[derive(Debug, Clone, Copy)]
struct Step {
    next: [u32; 2],
    value: u32,
}

impl Forest {
    /// Checks and compiles trees. `test` compiles a split.
    pub(super) fn new(
        trees: &Trees,
        dimension: usize,
        mut test: impl FnMut(i32) -> Result<SlotTest, LoadError>,
    ) -> Result<Self, LoadError> {
        let shape = match &trees.nodes {
            None => Shape::Oblivious(depths(trees, dimension)?),
            Some(nodes) => graphs(trees, nodes, dimension)?,
        };
        let mut tests = Vec::with_capacity(trees.splits.len());
        for (index, &split) in trees.splits.iter().enumerate() {
            let is_leaf = trees.nodes.as_ref().is_some_and(|nodes| nodes[index].left == 0 && nodes[index].right == 0);
            tests.push(if is_leaf { SlotTest::above(0, 0) } else { test(split)? });
        }
        Ok(Self { dimension, tests, shape, values: trees.values.clone() })
    }

    pub(super) fn trees(&self) -> usize {
        match &self.shape {
            Shape::Oblivious(depths) => depths.len(),
            Shape::Graphs { trees, .. } => trees.len(),
        }
    }

    /// Adds the values of each row's leaves to its sums.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is compiled for the instructions of its caller")]
    pub(super) fn add<const N: usize>(&self, ranks: &[[u8; N]], sums: &mut [f64]) {
        self.walk(ranks, |_, first, leaves| {
            let dimension = self.dimension;
            let Some(values) = self.values.get(first..) else { return };
            if dimension == 1 {
                for (sum, leaf) in sums.iter_mut().zip(leaves) {
                    *sum += values[*leaf as usize];
                }
                return;
            }
            for (sums, leaf) in sums.chunks_exact_mut(dimension).zip(leaves) {
                let start = *leaf as usize * dimension;
                for (sum, value) in sums.iter_mut().zip(&values[start..start + dimension]) {
                    *sum += value;
                }
            }
        });
    }

    /// Writes the number of each row's leaf in each tree, row by row.
    pub(super) fn leaves<const N: usize>(&self, ranks: &[[u8; N]], numbers: &mut [i64]) {
        let trees = self.trees();
        self.walk(ranks, |tree, _, leaves| {
            for (number, leaf) in numbers.iter_mut().skip(tree).step_by(trees).zip(leaves) {
                *number = i64::from(*leaf);
            }
        });
    }

    /// Finds the leaf of each row in each tree. Calls `found` with the tree, its first value and the leaves.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "it is compiled for the instructions of its caller")]
    fn walk<const N: usize>(&self, ranks: &[[u8; N]], mut found: impl FnMut(usize, usize, &[u32; N])) {
        match &self.shape {
            Shape::Oblivious(depths) => {
                let (mut tests, mut first) = (&self.tests[..], 0);
                for (tree, depth) in depths.iter().enumerate() {
                    let (own, rest) = tests.split_at(*depth as usize);
                    tests = rest;
                    let leaves = if *depth <= 8 { shallow(ranks, own).map(u32::from) } else { deep(ranks, own) };
                    found(tree, first, &leaves);
                    first += self.dimension << depth;
                }
            }
            Shape::Graphs { trees, nodes } => {
                for (tree, Graph { root, first }) in trees.iter().enumerate() {
                    let mut leaves = [0; N];
                    for (row, leaf) in leaves.iter_mut().enumerate() {
                        let value = self.follow(nodes, *root as usize, ranks, row);
                        *leaf = (value - first) / as_u32(self.dimension);
                    }
                    found(tree, *first as usize, &leaves);
                }
            }
        }
    }

    /// Returns the index of the value of a row's leaf.
    #[inline]
    fn follow<const N: usize>(&self, nodes: &[Step], root: usize, ranks: &[[u8; N]], row: usize) -> u32 {
        let mut node = root;
        loop {
            let test = self.tests[node];
            let passes = ranks.get(test.slot as usize).is_some_and(|ranks| test.passes(ranks[row]));
            let next = nodes[node].next[usize::from(passes)] as usize;
            if next == node {
                return nodes[node].value;
            }
            node = next;
        }
    }

    /// Returns how many nanoseconds a row takes, of a block or alone.
    pub(super) fn cost(&self, is_block: bool) -> usize {
        match &self.shape {
            Shape::Oblivious(depths) => {
                let tested = if is_block { self.tests.len() / 16 } else { self.tests.len() };
                tested + depths.len() * (1 + self.dimension)
            }
            Shape::Graphs { trees, nodes } => {
                let depth = (nodes.len() / trees.len().max(1)).checked_ilog2().unwrap_or(0) as usize + 1;
                trees.len() * (depth * 4 + self.dimension)
            }
        }
    }
}

/// Returns the leaves of a tree of up to eight splits.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the instructions of its caller")]
fn shallow<const N: usize>(ranks: &[[u8; N]], tests: &[SlotTest]) -> [u8; N] {
    let mut leaves = [0_u8; N];
    for (depth, test) in tests.iter().enumerate() {
        let bit = 1 << depth;
        for (leaf, rank) in leaves.iter_mut().zip(&ranks[test.slot as usize]) {
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
const fn as_u32(dimension: usize) -> u32 {
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

/// Checks trees that are not oblivious: nodes lead forward, within their tree.
fn graphs(trees: &Trees, nodes: &[super::raw::Node], dimension: usize) -> Result<Shape, LoadError> {
    let count = nodes.len();
    if trees.splits.len() != count {
        return Err(LoadError::Count { field: "TreeSplits", wanted: count, found: trees.splits.len() });
    }
    let too_large = || LoadError::TooLarge { what: "nodes", count, limit: u32::MAX as usize };
    u32::try_from(count).ok().and(u32::try_from(trees.values.len()).ok()).ok_or_else(too_large)?;
    let (mut steps, mut graphs, mut start) =
        (Vec::with_capacity(count), Vec::with_capacity(trees.sizes.len()), 0_usize);
    for (tree, &size) in trees.sizes.iter().enumerate() {
        let field =
            |field, wanted, found: usize| LoadError::Field { field, wanted, found: format!("{found} in tree {tree}") };
        let end = usize::try_from(size).ok().filter(|size| *size > 0).and_then(|size| start.checked_add(size));
        let end = end.filter(|end| *end <= count).ok_or_else(|| field("TreeSizes", "nodes", count))?;
        let mut first = u32::MAX;
        for (index, node) in (start..end).zip(&nodes[start..end]) {
            let is_leaf = node.left == 0 || node.right == 0;
            if is_leaf {
                let stop = (node.value as usize).saturating_add(dimension);
                if stop > trees.values.len() {
                    return Err(field("NonSymmetricNodeIdToLeafId", "the index of a value", node.value as usize));
                }
                first = first.min(node.value);
            }
            let next = [node.left, node.right].map(|distance| index.saturating_add(distance as usize));
            if next.iter().any(|next| *next >= end) {
                return Err(field("NonSymmetricStepNodes", "a node of the same tree", index));
            }
            steps.push(Step { next: next.map(as_u32), value: node.value });
        }
        for node in nodes[start..end].iter().filter(|node| node.left == 0 || node.right == 0) {
            if !(node.value - first).is_multiple_of(as_u32(dimension)) {
                return Err(field("NonSymmetricNodeIdToLeafId", "the first value of a leaf", node.value as usize));
            }
        }
        graphs.push(Graph { root: as_u32(start), first });
        start = end;
    }
    if start != count {
        return Err(LoadError::Count { field: "NonSymmetricStepNodes", wanted: start, found: count });
    }
    Ok(Shape::Graphs { trees: graphs, nodes: steps })
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
        let slot = Slot { number: 0, borders: [-1.0, 0.0, 0.0, 2.5].into() };
        let mut ranks = [0; 8];
        slot.rank(&[-2.0, -1.0, -0.5, 0.0, 1.0, 2.5, f32::INFINITY, f32::NAN], &mut ranks);
        assert_eq!(ranks, [0, 0, 1, 1, 3, 3, 4, 0]);
    }
}
