//! Compiles the trees of a loader.
//!
//! Loaders describe one node at a time, and the compiler walks from the root. This is the only place that follows a
//! tree before its structure is checked, so it finds children out of range, cycles and shared nodes for every format.

use std::collections::HashMap;

use super::error::{LoadError, TreeFault};
use super::forest::{
    Categories, FeatureView, Forest, ForestColumn, LinearLeaf, LinearLeaves, NONE, Node, NodeIndex, Nodes,
    SplitCategories, TreeGroup,
};
use super::planes::{Planes, SplitCondition, SplitShape, TreeShape};
use super::scalar::Scalar;

/// The offset of a leaf. The test of a leaf fails, which adds one, so minus one leads back to the leaf.
const LEAF: u32 = u32::MAX;

/// A node as a loader describes it.
pub(super) enum LoadedNode<'a, T> {
    /// Goes to `children[0]` if `test` holds.
    Split {
        feature: i64,
        test: SplitTest<'a, T>,
        children: [i64; 2],
    },
    Leaf(LeafValue<'a, T>),
}

/// The test of a split.
pub(super) enum SplitTest<'a, T> {
    /// Whether the value is at most the threshold.
    AtMost { threshold: T, view: FeatureView, missing: bool },
    /// Whether the value, truncated, is one of the categories. Values below `lowest` are in no category.
    Among { categories: CategorySet<'a>, lowest: T, missing: bool },
}

/// A set of categories.
pub(super) enum CategorySet<'a> {
    /// A list in any order.
    List(Vec<u32>),
    /// One bit for each category, starting at 0.
    Bits(&'a [u32]),
}

/// The value of a leaf.
pub(super) enum LeafValue<'a, T> {
    /// A number for the tree's output.
    Value(T),
    /// A number for every output.
    Vector(&'a [T]),
    /// A linear model, and a fallback for rows that it cannot be applied to.
    Linear { constant: T, terms: Vec<(i64, T)>, fallback: T },
}

/// What a file says of a tree beside what predictions need.
#[derive(Debug, Clone, Copy)]
pub(super) struct TreeStatistics<'a, T> {
    /// For each node, the number of training rows that reach it or the sum of their weights, if the file has them.
    pub(super) covers: Option<&'a [T]>,
    /// The index of the node that is leaf 0, if leaves have numbers of their own.
    pub(super) first_leaf: usize,
}

/// Compiles trees one after the other.
pub(super) struct Compiler<T> {
    features: usize,
    outputs: usize,
    width: usize,
    tiny: T,
    nodes: Vec<Node<T, u32>>,
    values: Vec<T>,
    columns: Vec<ForestColumn<T>>,
    column_of: HashMap<(u32, FeatureView, bool), u32>,
    set_of: Vec<u32>,
    sets: Vec<SplitCategories<T>>,
    words: Vec<u32>,
    leaf_of: Vec<u32>,
    leaves: Vec<LinearLeaf<T>>,
    terms: Vec<(u32, T)>,
    covers: Option<Vec<T>>,
    leaf_ids: Vec<u32>,
    trees: Vec<Tree>,
}

/// The properties of a forest, apart from its trees.
pub(super) struct ForestShape<T> {
    /// The number of features of a row.
    pub(super) features: usize,
    /// The number of sums that the trees add to.
    pub(super) outputs: usize,
    /// The number of values in a leaf: one, or the number of outputs.
    pub(super) width: usize,
    /// Values up to this magnitude count as zero.
    pub(super) tiny: T,
}

struct Tree {
    root: u32,
    output: u32,
    deep: usize,
    categorical: bool,
}

/// A node that has a slot but no content yet.
struct Pending {
    node: usize,
    slot: usize,
    depth: usize,
}

impl<T: Scalar> Compiler<T> {
    /// Starts a forest without trees.
    pub(super) fn new(shape: &ForestShape<T>) -> Self {
        Self {
            features: shape.features,
            outputs: shape.outputs,
            width: shape.width,
            tiny: shape.tiny,
            nodes: Vec::new(),
            values: Vec::new(),
            columns: Vec::new(),
            column_of: HashMap::new(),
            set_of: Vec::new(),
            sets: Vec::new(),
            words: Vec::new(),
            leaf_of: Vec::new(),
            leaves: Vec::new(),
            terms: Vec::new(),
            covers: Some(Vec::new()),
            leaf_ids: Vec::new(),
            trees: Vec::new(),
        }
    }

    /// Adds the tree of `count` nodes whose root is node 0, and returns how many of them are reachable.
    pub(super) fn add<'a>(
        &mut self,
        count: usize,
        output: i64,
        statistics: TreeStatistics<'_, T>,
        mut describe: impl FnMut(usize) -> Result<LoadedNode<'a, T>, TreeFault>,
    ) -> Result<usize, LoadError> {
        let index = self.trees.len();
        self.add_tree(count, output, statistics, &mut describe).map_err(|fault| match fault {
            CompileFault::Tree(fault) => fault.in_tree(index),
            CompileFault::Whole(error) => error,
        })
    }

    /// Packs the trees into a forest.
    pub(super) fn finish(self) -> Forest<T> {
        let planes = Planes::new(self.trees.iter().map(|tree| self.shape(tree)));
        let groups: Vec<TreeGroup> = self.trees.chunks(Forest::<T>::LANES).map(group).collect();
        let categories =
            (!self.sets.is_empty()).then_some(Categories { set_of: self.set_of, sets: self.sets, words: self.words });
        let linear = (!self.leaves.is_empty()).then_some(LinearLeaves {
            leaf_of: self.leaf_of,
            leaves: self.leaves,
            terms: self.terms,
        });
        Forest {
            nodes: narrow(&self.nodes).map_or_else(|| Nodes::Wide(self.nodes), Nodes::Narrow),
            values: self.values,
            width: self.width,
            outputs: self.outputs,
            row_cost: Forest::<T>::estimate_row(&groups, self.columns.len()),
            groups,
            columns: self.columns,
            planes,
            tiny: self.tiny,
            categories,
            linear,
            covers: self.covers,
            leaf_ids: self.leaf_ids,
        }
    }

    fn add_tree<'a>(
        &mut self,
        count: usize,
        output: i64,
        TreeStatistics { covers, first_leaf }: TreeStatistics<'_, T>,
        describe: &mut impl FnMut(usize) -> Result<LoadedNode<'a, T>, TreeFault>,
    ) -> Result<usize, CompileFault> {
        if count == 0 {
            return Err(TreeFault::Empty.into());
        }
        let output = u32::try_from(output)
            .ok()
            .filter(|output| (*output as usize) < self.outputs)
            .ok_or(TreeFault::OutputOutOfRange { output, outputs: self.outputs })?;
        let sets_before = self.sets.len();
        if covers.is_none() {
            self.covers = None;
        }
        let root = self.reserve(1)?;
        let mut seen = vec![false; count];
        seen[0] = true;
        let mut reached = 1;
        let mut deep = 0;
        let mut pending = std::collections::VecDeque::from([Pending { node: 0, slot: root, depth: 0 }]);
        while let Some(Pending { node, slot, depth }) = pending.pop_front() {
            if let (Some(all), Some(covers)) = (&mut self.covers, covers) {
                all[slot] = covers.get(node).copied().unwrap_or(T::NAN);
            }
            match describe(node)? {
                LoadedNode::Leaf(leaf) => {
                    self.leaf_ids[slot] = index_of(node.saturating_sub(first_leaf), "leaves")?;
                    self.put_leaf(node, slot, leaf)?;
                    deep = deep.max(depth);
                }
                LoadedNode::Split { feature, test, children } => {
                    let mut found = [0; 2];
                    for (found, child) in found.iter_mut().zip(children) {
                        *found = check_child(&mut seen, node, child)?;
                    }
                    reached += 2;
                    let first = self.reserve(2)?;
                    if self.put_split(node, slot, first, feature, test)? {
                        found.swap(0, 1);
                    }
                    let children = found.into_iter().zip([first, first + 1]);
                    pending.extend(children.map(|(node, slot)| Pending { node, slot, depth: depth + 1 }));
                }
            }
        }
        self.trees.push(Tree {
            root: index_of(root, "nodes")?,
            output,
            deep,
            categorical: self.sets.len() > sets_before,
        });
        Ok(reached)
    }

    /// Returns the form of a tree for many rows, if it has one.
    fn shape(&self, tree: &Tree) -> Option<TreeShape<T>> {
        enum Step {
            Enter(usize),
            /// The first child of a split is finished.
            Passed(usize),
        }
        if !self.leaves.is_empty() {
            return None;
        }
        let width = self.width;
        let mut shape = TreeShape { output: tree.output, splits: Vec::new(), values: Vec::new(), width };
        let mut steps = vec![Step::Enter(tree.root as usize)];
        while let Some(step) = steps.pop() {
            match step {
                Step::Passed(split) => shape.splits[split].first.end = shape.leaves(),
                Step::Enter(slot) => {
                    let Node { threshold, column, offset } = self.nodes[slot];
                    if offset == LEAF {
                        shape.values.extend_from_slice(&self.values[slot * width..][..width]);
                        continue;
                    }
                    let first = slot + offset as usize;
                    steps.extend([Step::Enter(first + 1), Step::Passed(shape.splits.len()), Step::Enter(first)]);
                    let leaves = shape.leaves();
                    let condition = self.split_condition(slot, threshold);
                    shape.splits.push(SplitShape { column, condition, first: leaves..leaves });
                }
            }
        }
        Some(shape)
    }

    /// Returns the condition of the split at a slot.
    fn split_condition(&self, slot: usize, threshold: T) -> SplitCondition<T> {
        let Some(set) = self.sets.get(self.set_of[slot] as usize) else {
            // A test that never holds is membership in the empty set.
            let never = SplitCondition::Among { categories: Vec::new(), missing: false, lowest: T::ZERO };
            return if threshold.is_nan() { never } else { SplitCondition::AtMost(threshold) };
        };
        let words = &self.words[set.start as usize..][..set.len as usize];
        let bits = words.iter().zip(0..).flat_map(|(word, index)| {
            let set_bits = (0..32).filter(move |bit| word >> bit & 1 == 1);
            set_bits.map(move |bit| set.base + index * 32 + bit)
        });
        let categories = if set.sparse { words.to_vec() } else { bits.collect() };
        SplitCondition::Among { categories, missing: set.missing, lowest: set.lowest }
    }

    /// Reserves `count` adjacent nodes, and returns the slot of the first.
    fn reserve(&mut self, count: usize) -> Result<usize, LoadError> {
        let first = self.nodes.len();
        let end = first + count;
        if i32::try_from(end).is_err() {
            return Err(LoadError::TooLarge { what: "nodes", count: end, limit: i32::MAX as usize });
        }
        self.nodes.resize(end, Node { threshold: T::NAN, column: 0, offset: LEAF });
        self.values.resize(end * self.width, T::ZERO);
        self.set_of.resize(end, NONE);
        self.leaf_of.resize(end, NONE);
        self.leaf_ids.resize(end, NONE);
        if let Some(covers) = &mut self.covers {
            covers.resize(end, T::NAN);
        }
        Ok(first)
    }

    fn put_leaf(&mut self, node: usize, slot: usize, leaf: LeafValue<'_, T>) -> Result<(), CompileFault> {
        // The slot was reserved as a node whose test never holds and that leads to itself, so only its value is
        // missing.
        let value = match leaf {
            LeafValue::Value(value) => value,
            LeafValue::Vector(vector) => {
                self.values[slot * self.width..][..self.width].copy_from_slice(vector);
                return Ok(());
            }
            LeafValue::Linear { constant, terms, fallback } => {
                let start = index_of(self.terms.len(), "linear terms")?;
                for (feature, coefficient) in terms {
                    let feature = self.feature(node, feature)?;
                    let column = self.column(feature, FeatureView::Plain, false)?;
                    self.terms.push((column, coefficient));
                }
                let end = index_of(self.terms.len(), "linear terms")?;
                self.leaf_of[slot] = index_of(self.leaves.len(), "linear leaves")?;
                self.leaves.push(LinearLeaf { constant, start, end });
                fallback
            }
        };
        self.values[slot * self.width..][..self.width].fill(value);
        Ok(())
    }

    /// Writes a split whose children are at `first`, and returns whether they have to be swapped.
    fn put_split(
        &mut self,
        node: usize,
        slot: usize,
        first: usize,
        feature: i64,
        test: SplitTest<'_, T>,
    ) -> Result<bool, CompileFault> {
        let feature = self.feature(node, feature)?;
        let (threshold, column, turned) = match test {
            SplitTest::AtMost { threshold, view, missing } => {
                let turned = missing && view != FeatureView::MissingIsZero;
                // x > t sends the row to the second child. So does -x < -t, which a missing value fails.
                let threshold = if turned { (-threshold).below() } else { threshold };
                (threshold, self.column(feature, view, turned)?, turned)
            }
            SplitTest::Among { categories, lowest, missing } => {
                let set = self.set(categories, lowest, missing)?;
                self.set_of[slot] = index_of(self.sets.len(), "sets of categories")?;
                self.sets.push(set);
                (T::NAN, self.column(feature, FeatureView::Plain, false)?, false)
            }
        };
        let offset = u32::from_offset(i64::try_from(first - slot).unwrap_or(i64::MAX)).ok_or(LoadError::TooLarge {
            what: "nodes",
            count: first,
            limit: i32::MAX as usize,
        })?;
        self.nodes[slot] = Node { threshold, column, offset };
        Ok(turned)
    }

    fn feature(&self, node: usize, feature: i64) -> Result<u32, TreeFault> {
        u32::try_from(feature)
            .ok()
            .filter(|feature| (*feature as usize) < self.features)
            .ok_or(TreeFault::FeatureOutOfRange { node, feature, features: self.features })
    }

    /// Finds or adds a column.
    fn column(&mut self, feature: u32, view: FeatureView, turned: bool) -> Result<u32, LoadError> {
        if let Some(column) = self.column_of.get(&(feature, view, turned)) {
            return Ok(*column);
        }
        let column = index_of(self.columns.len(), "columns")?;
        let sign = if turned { -T::ONE } else { T::ONE };
        self.columns.push(ForestColumn { feature, view, sign });
        self.column_of.insert((feature, view, turned), column);
        Ok(column)
    }

    /// Stores a set as bits or, if it has few and distant members, as a list.
    fn set(&mut self, categories: CategorySet<'_>, lowest: T, missing: bool) -> Result<SplitCategories<T>, LoadError> {
        let start = self.words.len();
        let mut base = 0;
        let mut sparse = false;
        match categories {
            CategorySet::Bits(words) => self.words.extend_from_slice(words),
            CategorySet::List(mut list) => {
                list.sort_unstable();
                let (Some(lowest_category), Some(highest)) = (list.first().copied(), list.last().copied()) else {
                    return Ok(SplitCategories { start: 0, len: 0, base: 0, sparse: false, missing, lowest });
                };
                base = lowest_category / 32 * 32;
                let span = ((highest - base) / 32 + 1) as usize;
                sparse = span > 4 * list.len() + 16;
                if sparse {
                    self.words.extend(list);
                } else {
                    self.words.resize(start + span, 0);
                    for category in list {
                        let bit = category - base;
                        self.words[start + bit as usize / 32] |= 1 << (bit % 32);
                    }
                }
            }
        }
        let len = index_of(self.words.len() - start, "categories")?;
        Ok(SplitCategories { start: index_of(start, "categories")?, len, base, sparse, missing, lowest })
    }
}

/// A damaged tree, or a model that is too large.
enum CompileFault {
    Tree(TreeFault),
    Whole(LoadError),
}

impl From<TreeFault> for CompileFault {
    fn from(fault: TreeFault) -> Self {
        Self::Tree(fault)
    }
}

impl From<LoadError> for CompileFault {
    fn from(error: LoadError) -> Self {
        Self::Whole(error)
    }
}

/// Checks the index of a child, and that no other node has the child.
fn check_child(seen: &mut [bool], node: usize, child: i64) -> Result<usize, TreeFault> {
    let nodes = seen.len();
    let out_of_range = TreeFault::ChildOutOfRange { node, child, nodes };
    let Some(index) = usize::try_from(child).ok().filter(|index| *index < nodes) else {
        return Err(out_of_range);
    };
    if std::mem::replace(&mut seen[index], true) {
        return Err(TreeFault::Shared { node, child: index });
    }
    Ok(index)
}

/// Converts an index to its stored form, which excludes [`NONE`].
fn index_of(index: usize, what: &'static str) -> Result<u32, LoadError> {
    let limit = NONE as usize - 1;
    u32::try_from(index).ok().filter(|index| *index != NONE).ok_or(LoadError::TooLarge { what, count: index, limit })
}

fn group(trees: &[Tree]) -> TreeGroup {
    let lane = |index: usize| trees.get(index).unwrap_or(&trees[0]);
    TreeGroup {
        roots: std::array::from_fn(|index| lane(index).root),
        outputs: std::array::from_fn(|index| lane(index).output),
        trees: trees.len(),
        deep: trees.iter().map(|tree| tree.deep).max().unwrap_or(0),
        categorical: trees.iter().any(|tree| tree.categorical),
    }
}

/// Returns the same nodes with half the index width, if they fit.
fn narrow<T: Scalar>(nodes: &[Node<T, u32>]) -> Option<Vec<Node<T, u16>>> {
    nodes
        .iter()
        .map(|node| {
            Some(Node {
                threshold: node.threshold,
                column: u16::from_column(node.column as usize)?,
                offset: u16::from_offset(i64::from(node.offset.cast_signed()))?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{CategorySet, Compiler, ForestShape, LeafValue, LoadedNode, SplitTest, TreeStatistics};
    use crate::trees::forest::{FeatureView, Nodes};

    type Node = Option<(i64, [i64; 2])>;

    const WITHOUT: TreeStatistics<'static, f32> = TreeStatistics { covers: None, first_leaf: 0 };

    /// Compiles a tree of splits; `None` is a leaf.
    fn add(nodes: &[Node], output: i64) -> Result<usize, String> {
        let mut compiler = Compiler::new(&ForestShape { features: 2, outputs: 1, width: 1, tiny: 0.0 });
        let describe = |node: usize| {
            Ok(match nodes[node] {
                Some((feature, children)) => {
                    let test = SplitTest::AtMost { threshold: 0.5_f32, view: FeatureView::Plain, missing: false };
                    LoadedNode::Split { feature, test, children }
                }
                None => LoadedNode::Leaf(LeafValue::Value(1.0)),
            })
        };
        compiler.add(nodes.len(), output, WITHOUT, describe).map_err(|error| error.to_string())
    }

    #[test]
    fn damaged_tree_is_rejected() {
        assert_eq!(add(&[Some((1, [1, 2])), None, None], 0), Ok(3));
        assert_eq!(add(&[None, None, None], 0), Ok(1));
        let error = |nodes: &[Node]| add(nodes, 0).unwrap_err();
        assert_eq!(error(&[]), "tree 0: it has no nodes");
        assert_eq!(error(&[Some((0, [1, 3])), None, None]), "tree 0: node 0 has child 3, but there are 3 nodes");
        assert_eq!(error(&[Some((0, [1, -7])), None]), "tree 0: node 0 has child -7, but there are 2 nodes");
        assert_eq!(error(&[Some((0, [1, 1])), None]), "tree 0: node 1 is reached twice, the second time from node 0");
        let cycle = [Some((0, [1, 2])), Some((0, [0, 2])), None];
        assert_eq!(error(&cycle), "tree 0: node 0 is reached twice, the second time from node 1");
        assert_eq!(error(&[Some((2, [1, 2])), None, None]), "tree 0: node 0 tests feature 2, but there are 2 features");
        assert_eq!(
            error(&[Some((-1, [1, 2])), None, None]),
            "tree 0: node 0 tests feature -1, but there are 2 features"
        );
        assert_eq!(add(&[None], 1).unwrap_err(), "tree 0: it adds to output 1, but there are 1 outputs");
    }

    #[test]
    fn long_chain_fits_narrow_nodes() {
        let depth = 40_000;
        let mut compiler = Compiler::new(&ForestShape { features: 1, outputs: 1, width: 1, tiny: 0.0 });
        let describe = |node: usize| {
            let child = i64::try_from(node + 1).unwrap();
            let test = SplitTest::AtMost { threshold: 0.5_f32, view: FeatureView::Plain, missing: true };
            let children = [child, child + depth];
            let leaf = node >= usize::try_from(depth).unwrap();
            Ok(if leaf {
                LoadedNode::Leaf(LeafValue::Value(1.0))
            } else {
                LoadedNode::Split { feature: 0, test, children }
            })
        };
        assert_eq!(compiler.add(2 * 40_000 + 1, 0, WITHOUT, describe).unwrap(), 80_001);
        // Nodes are stored by depth, so even here a child is close to its parent.
        let forest = compiler.finish();
        assert!(matches!(forest.nodes, Nodes::Narrow(_)));
        assert!(forest.planes.is_none());
    }

    #[test]
    fn distant_categories_are_stored_as_list() {
        let mut compiler = Compiler::new(&ForestShape { features: 1, outputs: 1, width: 1, tiny: 0.0_f32 });
        let mut set = |list: &[u32]| compiler.set(CategorySet::List(list.to_vec()), 0.0, false).unwrap();
        let near = set(&[70, 64, 99]);
        assert_eq!((near.sparse, near.base, near.len), (false, 64, 2));
        let far = set(&[16_000_000, 3]);
        assert_eq!((far.sparse, far.len), (true, 2));
        assert_eq!(set(&[]).len, 0);
    }
}
