//! Contributions against the definition of the Shapley value.

#![expect(clippy::cast_precision_loss, reason = "counts of the tests are small")]

use proptest::prelude::{Strategy, prop, prop_oneof, proptest};

use super::table::{Edge, Factor, Step, TreeTable};
use super::{ContributionTable, ExplainedTrees, TableError, TableExtent};

const FEATURES: usize = 8;

/// A node of a tree: a leaf's value, or a feature, a threshold and two children. With the number of training rows.
#[derive(Debug, Clone)]
enum Node {
    Leaf(f64, f64),
    Split(usize, f64, f64, Box<[Self; 2]>),
}

/// The nodes of a tree in the order of a search, root first.
struct Nodes<'a>(Vec<(&'a Node, [u32; 2])>);

impl Node {
    fn cover(&self) -> f64 {
        let (Self::Leaf(_, cover) | Self::Split(_, _, cover, _)) = self;
        *cover
    }

    fn goes_first(row: &[f64; FEATURES], feature: usize, threshold: f64) -> bool {
        row[feature] <= threshold
    }

    /// Returns the expected value if only these features are known.
    fn expected(&self, row: &[f64; FEATURES], known: u32) -> f64 {
        match self {
            Self::Leaf(value, _) => *value,
            Self::Split(feature, threshold, cover, children) => {
                if known >> feature & 1 == 1 {
                    return children[usize::from(!Self::goes_first(row, *feature, *threshold))].expected(row, known);
                }
                children.iter().map(|child| child.cover() / cover * child.expected(row, known)).sum()
            }
        }
    }

    /// Returns the Shapley value of each feature by its definition, and the expected value.
    fn shapley(&self, row: &[f64; FEATURES]) -> Vec<f64> {
        let factorial = |n: u32| (1..=n).map(f64::from).product::<f64>();
        let count = u32::try_from(FEATURES).unwrap();
        let values: Vec<f64> = (0..1 << FEATURES).map(|known| self.expected(row, known)).collect();
        let mut found: Vec<f64> = (0..FEATURES)
            .map(|feature| {
                let without = (0..1_usize << FEATURES).filter(|known| known >> feature & 1 == 0);
                let part = |known: usize| {
                    let size = known.count_ones();
                    let weight = factorial(size) * factorial(count - size - 1) / factorial(count);
                    weight * (values[known | 1 << feature] - values[known])
                };
                without.map(part).sum()
            })
            .collect();
        found.push(values[0]);
        found
    }

    fn flatten<'a>(&'a self, nodes: &mut Nodes<'a>) -> u32 {
        let index = nodes.0.len();
        nodes.0.push((self, [0; 2]));
        if let Self::Split(_, _, _, children) = self {
            let [first, second] = &**children;
            nodes.0[index].1 = [first.flatten(nodes), second.flatten(nodes)];
        }
        u32::try_from(index).unwrap()
    }

    /// Sets the covers of splits to the sums of their leaves.
    fn with_covers(self) -> Self {
        match self {
            Self::Split(feature, threshold, _, children) => {
                let children = children.map(Self::with_covers);
                let cover = children.iter().map(Self::cover).sum();
                Self::Split(feature, threshold, cover, Box::new(children))
            }
            leaf @ Self::Leaf(..) => leaf,
        }
    }

    fn has_cover(&self) -> bool {
        match self {
            Self::Split(_, _, cover, children) => *cover > 0.0 && children.iter().all(Self::has_cover),
            Self::Leaf(..) => true,
        }
    }
}

trait Map2<T> {
    fn map(self, function: fn(T) -> T) -> [T; 2];
}

impl<T> Map2<T> for Box<[T; 2]> {
    fn map(self, function: fn(T) -> T) -> [T; 2] {
        let [first, second] = *self;
        [function(first), function(second)]
    }
}

impl ExplainedTrees for Nodes<'_> {
    fn cover(&self, _: usize, node: u32) -> f64 {
        self.0[node as usize].0.cover()
    }

    fn split(&self, _: usize, node: u32) -> Option<(u32, [u32; 2])> {
        let (node, children) = &self.0[node as usize];
        let Node::Split(feature, ..) = node else { return None };
        Some((u32::try_from(*feature).unwrap(), *children))
    }

    fn extend_with_leaf(&self, _: usize, node: u32, values: &mut Vec<f64>) {
        let Node::Leaf(value, _) = self.0[node as usize].0 else { unreachable!("a leaf") };
        values.push(*value);
    }
}

/// The same trees with two values for a leaf.
struct Pairs<'a>(Nodes<'a>);

impl ExplainedTrees for Pairs<'_> {
    fn cover(&self, tree: usize, node: u32) -> f64 {
        self.0.cover(tree, node)
    }

    fn split(&self, tree: usize, node: u32) -> Option<(u32, [u32; 2])> {
        self.0.split(tree, node)
    }

    fn extend_with_leaf(&self, tree: usize, node: u32, values: &mut Vec<f64>) {
        self.0.extend_with_leaf(tree, node, values);
        values.push(3.0 - 2.0 * values[values.len() - 1]);
    }
}

fn table(tree: &Node, limit: usize) -> Result<(ContributionTable, Nodes<'_>), TableError> {
    let mut nodes = Nodes(Vec::new());
    tree.flatten(&mut nodes);
    let prepare = |extent| ContributionTable::new([FEATURES, 1, 1], &nodes, [(0, 0)], limit, extent);
    let measured = prepare(TableExtent::Bytes).map(|table| (table.bytes, table.trees.len()));
    let table = prepare(TableExtent::Whole);
    assert_eq!(measured, table.as_ref().map(|table| (bytes(&table.trees), 0)).map_err(Clone::clone));
    table.map(|table| (table, nodes))
}

/// Returns the bytes that trees take.
fn bytes(trees: &[TreeTable]) -> usize {
    let of_tree = |tree: &TreeTable| {
        let edges = tree.edges.len() * size_of::<Edge>() + tree.factors.len() * size_of::<Factor>();
        let steps = tree.steps.len() * size_of::<Step>() + tree.splits.len() * size_of::<u32>();
        size_of::<TreeTable>() + edges + steps + tree.values.len() * size_of::<f64>()
    };
    trees.iter().map(of_tree).sum()
}

/// Returns the contributions of `L` rows.
fn contributions<const L: usize>(tree: &Node, rows: &[[f64; FEATURES]; L]) -> Vec<Vec<f64>> {
    let (table, nodes) = table(tree, usize::MAX).unwrap();
    let test = |_: usize, node: u32| {
        let Node::Split(feature, threshold, ..) = nodes.0[node as usize].0 else { unreachable!("a split") };
        rows.each_ref().map(|row| if Node::goes_first(row, *feature, *threshold) { u64::MAX } else { 0 })
    };
    let mut totals = vec![[0.0; L]; table.totals()];
    table.add(test, &mut totals, &mut table.scratch(), || true);
    let of_row = |lane| totals.iter().map(|total| total[lane]).chain([table.expected[0]]).collect();
    (0..L).map(of_row).collect()
}

fn tree() -> impl Strategy<Value = Node> {
    let leaf = (-100..100_i32, prop_oneof![6 => 1..50_i32, 1 => 0..1_i32]);
    let leaf = leaf.prop_map(|(value, cover)| Node::Leaf(f64::from(value) / 7.0, f64::from(cover)));
    leaf.prop_recursive(9, 160, 2, |inner| {
        (0..FEATURES, -3..3_i32, [inner.clone(), inner]).prop_map(|(feature, threshold, children)| {
            Node::Split(feature, f64::from(threshold), 0.0, Box::new(children))
        })
    })
    .prop_map(Node::with_covers)
    .prop_filter("each split has training rows", Node::has_cover)
}

fn row() -> impl Strategy<Value = [f64; FEATURES]> {
    prop::array::uniform8(prop_oneof![5 => (-4..4_i32).prop_map(f64::from), 1 => prop::sample::select(vec![f64::NAN])])
}

proptest! {
    #[test]
    fn contributions_are_shapley_values(tree in tree(), rows in prop::array::uniform8(row())) {
        let largest = |values: &[f64]| values.iter().fold(15.0_f64, |most, value| most.max(value.abs()));
        let side_by_side = contributions(&tree, &rows);
        for (row, found) in rows.iter().zip(&side_by_side) {
            let wanted = tree.shapley(row);
            let scale = largest(&wanted);
            let alone = contributions(&tree, &[*row]);
            for (values, what) in [(found, "side by side"), (&alone[0], "alone")] {
                for (found, wanted) in values.iter().zip(&wanted) {
                    assert!((found - wanted).abs() <= 1e-12 * scale, "{what}: {values:?} instead of {wanted:?}");
                }
            }
        }
    }
}

proptest! {
    /// With several values for a leaf, each sum has the contributions that it has alone.
    #[test]
    fn leaves_of_several_values_contribute_to_each_sum(tree in tree(), row in row()) {
        let mut nodes = Nodes(Vec::new());
        tree.flatten(&mut nodes);
        let pairs = Pairs(nodes);
        // Two trees, of which the second is the first one again.
        let table = ContributionTable::new([FEATURES, 2, 2], &pairs, [(0, 0), (0, 0)], usize::MAX, TableExtent::Whole).unwrap();
        let test = |_: usize, node: u32| {
            let Node::Split(feature, threshold, ..) = pairs.0.0[node as usize].0 else { unreachable!("a split") };
            [if Node::goes_first(&row, *feature, *threshold) { u64::MAX } else { 0 }]
        };
        let mut totals = vec![[0.0; 1]; table.totals()];
        table.add(test, &mut totals, &mut table.scratch(), || true);
        let alone = tree.shapley(&row);
        let scale = alone.iter().fold(15.0_f64, |most, value| most.max(value.abs()));
        let found = |sum: usize, feature: usize| match feature {
            FEATURES => table.expected[sum],
            _ => totals[sum * FEATURES + feature][0],
        };
        for (feature, wanted) in alone.iter().enumerate() {
            let of_constant = if feature == FEATURES { 3.0 } else { 0.0 };
            for (sum, wanted) in [(0, 2.0 * wanted), (1, 2.0 * (of_constant - 2.0 * wanted))] {
                let found = found(sum, feature);
                assert!((found - wanted).abs() <= 4e-12 * scale, "{sum} {feature}: {found} instead of {wanted}");
            }
        }
    }
}

/// Returns a chain of splits that test the features in turn.
fn chain(depth: usize, cover: impl Fn(usize) -> f64) -> (Vec<Link>, f64) {
    let links = (0..depth).map(|at| Link { feature: at, cover: cover(at), leaf: cover(at) - cover(at + 1) }).collect();
    (links, cover(depth))
}

struct Link {
    feature: usize,
    cover: f64,
    leaf: f64,
}

/// Split `k` is node `2 * k`, its leaf `2 * k + 1`. Built without recursion.
struct Chain(Vec<Link>, f64);

impl ExplainedTrees for Chain {
    fn cover(&self, _: usize, node: u32) -> f64 {
        let at = node as usize / 2;
        match self.0.get(at) {
            None => self.1,
            Some(link) if node.is_multiple_of(2) => link.cover,
            Some(link) => link.leaf,
        }
    }

    fn split(&self, _: usize, node: u32) -> Option<(u32, [u32; 2])> {
        let link = self.0.get(node as usize / 2).filter(|_| node.is_multiple_of(2))?;
        Some((u32::try_from(link.feature).unwrap(), [node + 1, node + 2]))
    }

    fn extend_with_leaf(&self, _: usize, _: u32, values: &mut Vec<f64>) {
        values.push(1.0);
    }
}

#[test]
fn deep_trees_are_exact_or_too_large() {
    let features = 300;
    let (links, last) = chain(features, |at| 1000.0 - 2.0 * at as f64);
    let chain = Chain(links, last);
    let table = ContributionTable::new([features, 1, 1], &chain, [(0, 0)], 1 << 30, TableExtent::Whole).unwrap();
    // All leaves have the same value, so nothing depends on any feature.
    let mut totals = vec![[0.0; 1]; features];
    table.add(|_, _| [u64::MAX], &mut totals, &mut table.scratch(), || true);
    assert!(totals.iter().all(|total| total[0].abs() < 1e-12), "{totals:?}");
    assert!((table.expected[0] - 1.0).abs() < 1e-12);
    let (links, last) = self::chain(100_000, |at| 1e6 - at as f64);
    let chain = Chain(links, last);
    let found = ContributionTable::new([100_000, 1, 1], &chain, [(0, 0)], 1 << 30, TableExtent::Whole);
    assert_eq!(found.unwrap_err(), TableError::TooLarge { limit: 1 << 30 });
}

#[test]
fn covers_that_are_none_are_refused_by_name() {
    let leaf = |cover| Node::Leaf(1.0, cover);
    let split = |cover, first, second| Node::Split(0, 0.0, cover, Box::new([leaf(first), leaf(second)]));
    for (cover, first, second) in [
        (0.0, 0.0, 0.0),
        (f64::NAN, 1.0, 1.0),
        (1.0, f64::NAN, 1.0),
        (3.0, -1.0, 4.0),
        (2.0, 0.0, 0.0),
        (f64::INFINITY, 1.0, 1.0),
        (1e-320, 1e300, 1.0),
    ] {
        let tree = split(cover, first, second);
        let error = table(&tree, usize::MAX).map(drop).unwrap_err();
        assert!(matches!(error, TableError::Cover { tree: 0, node: 0, .. }), "{error}");
    }
    let tree = split(2.0, 1.0, 1.0);
    let small = table(&tree, 100).map(drop).unwrap_err();
    assert_eq!(small.to_string(), "the table of contributions would have more than 100 bytes");
    assert!(table(&tree, 4000).is_ok());
}
