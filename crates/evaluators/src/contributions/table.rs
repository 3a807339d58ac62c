//! The trees of a model in the order of a depth-first search, with what each edge multiplies by.

use std::collections::HashMap;
use std::sync::Arc;

use thiserror::Error;

use super::LANES;
use super::quadrature::{Point, rule};

/// Marks an edge without an earlier split on its feature.
pub(super) const NONE: u32 = u32::MAX;

/// The trees of a model, as its evaluator knows them. Trees have numbers in the order in which a table is made of them, and nodes have
/// numbers of the model's choice.
pub(crate) trait ExplainedTrees {
    /// Returns the number of training rows that reach a node, or the sum of their weights.
    fn cover(&self, tree: usize, node: u32) -> f64;

    /// Returns the feature of a split and its children, or `None` if the node is a leaf.
    fn split(&self, tree: usize, node: u32) -> Option<(u32, [u32; 2])>;

    /// Adds the values of a leaf: one, which is added to the output of the tree, or one for each output.
    fn extend_with_leaf(&self, tree: usize, node: u32, values: &mut Vec<f64>);
}

/// Why a model has no contributions.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TableError {
    /// A split that no training row has reached, or that has numbers which are none.
    #[error("node {node} of tree {tree} has the cover {cover}, and its children {first} and {second}")]
    Cover {
        /// The index of the tree.
        tree: usize,
        /// The index of the node, in the order of the evaluator.
        node: u32,
        /// The number of training rows or the sum of their weights, as text.
        cover: String,
        /// That of the first child.
        first: String,
        /// That of the second child.
        second: String,
    },
    /// The table would be larger than allowed.
    #[error("the table of contributions would have more than {limit} bytes")]
    TooLarge {
        /// The most bytes that it may have.
        limit: usize,
    },
}

/// A step of the depth-first search.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// To a child that is a split.
    Enter(u32),
    /// To a child that is a leaf, and back. The second number is the index of its first value.
    Leaf(u32, u32),
    /// Back from a child that is a split.
    Leave(u32),
}

/// A link from a split to a child. Edges `2 * k` and `2 * k + 1` belong to the `k`th split of a tree.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) feature: u32,
    /// The last edge above that belongs to a split on the same feature, or [`NONE`].
    pub(super) previous: u32,
    /// The number of edges above.
    pub(super) depth: u32,
    /// The cover ratio of the feature's splits on the path.
    pub(super) ratio: f64,
    /// What replaces the factor of the previous edge by that of this one if a row passes neither. 1 without a previous edge.
    pub(super) neither: f64,
}

/// What an edge multiplies by at a point of the quadrature.
#[derive(Debug, Clone, Copy)]
pub(super) struct Factor {
    /// If the row passes the previous edge only.
    pub(super) failed: f64,
    /// If the row passes both.
    pub(super) passed: f64,
    /// What a sum is multiplied by to get the contribution of the feature, if the row passes.
    pub(super) contributed: f64,
}

/// A tree.
#[derive(Debug)]
pub(super) struct TreeTable {
    pub(super) output: usize,
    /// The node of each split.
    pub(super) splits: Vec<u32>,
    pub(super) edges: Vec<Edge>,
    pub(super) steps: Vec<Step>,
    pub(super) values: Vec<f64>,
    pub(super) depth: usize,
    /// For each edge, one for each point.
    pub(super) factors: Vec<Factor>,
    /// What a sum is multiplied by at each point if the row does not pass an edge.
    pub(super) missed: Arc<[f64]>,
}

/// The trees of a model, prepared for contributions.
#[derive(Debug)]
pub(crate) struct ContributionTable {
    pub(super) trees: Vec<TreeTable>,
    pub(super) features: usize,
    pub(super) outputs: usize,
    /// The number of values of a leaf.
    pub(super) width: usize,
    /// The sum of the expected values of all trees, by output.
    pub(crate) expected: Vec<f64>,
    pub(crate) bytes: usize,
}

/// What is prepared of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TableExtent {
    /// All of it.
    Whole,
    /// Its number of bytes, without its trees.
    Bytes,
}

/// The rules of quadrature that a model needs, by number of points.
type Rules = HashMap<usize, (Vec<Point>, Arc<[f64]>)>;

impl ContributionTable {
    /// Prepares trees, each given by its root and its output.
    ///
    /// `width` is the number of values of a leaf: one, or the number of outputs. With [`TableExtent::Bytes`], the table only has its size,
    /// and no more memory is taken than for one tree.
    ///
    /// # Errors
    ///
    /// Fails if a split has no cover, or if the table and what an evaluation needs beside it would have more than `limit` bytes.
    pub(crate) fn new(
        [features, outputs, width]: [usize; 3],
        model: &impl ExplainedTrees,
        trees: impl IntoIterator<Item = (u32, usize)>,
        limit: usize,
        extent: TableExtent,
    ) -> Result<Self, TableError> {
        let mut table = Self { trees: Vec::new(), features, outputs, width, expected: vec![0.0; outputs], bytes: 0 };
        let mut rules = Rules::new();
        for (index, (root, output)) in trees.into_iter().enumerate() {
            let expected = &mut table.expected[output..][..width];
            let mut search = Search::new(index, limit.saturating_sub(table.bytes), expected);
            search.run(root, model).map_err(|error| error.with_limit(limit))?;
            let bytes = search.bytes().map_err(|error| error.with_limit(limit))?;
            table.bytes = table.bytes.saturating_add(bytes);
            if extent == TableExtent::Whole {
                table.trees.push(search.finish(output, &mut rules));
            }
        }
        Ok(table)
    }
}

impl TableError {
    fn with_limit(self, limit: usize) -> Self {
        if matches!(self, Self::TooLarge { .. }) { Self::TooLarge { limit } } else { self }
    }
}

/// What is found in a depth-first search.
struct Search<'e> {
    tree: usize,
    limit: usize,
    expected: &'e mut [f64],
    splits: Vec<u32>,
    edges: Vec<Edge>,
    steps: Vec<Step>,
    values: Vec<f64>,
    depth: usize,
    /// The last edge of each feature on the path.
    last: HashMap<u32, u32>,
    /// The most features on a path.
    most: usize,
}

/// A node to visit, or an edge to leave.
enum Visit {
    Node { node: u32, edge: u32, weight: f64, depth: u32 },
    Leave(u32),
}

impl<'e> Search<'e> {
    fn new(tree: usize, limit: usize, expected: &'e mut [f64]) -> Self {
        let (splits, edges, steps, values) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { tree, limit, expected, splits, edges, steps, values, depth: 0, last: HashMap::new(), most: 0 }
    }

    fn run(&mut self, root: u32, model: &impl ExplainedTrees) -> Result<(), TableError> {
        let mut visits = vec![Visit::Node { node: root, edge: NONE, weight: 1.0, depth: 0 }];
        while let Some(visit) = visits.pop() {
            match visit {
                Visit::Leave(edge) => self.leave(edge),
                Visit::Node { node, edge, weight, depth } => {
                    let Some((feature, children)) = model.split(self.tree, node) else {
                        self.leaf(edge, node, weight, model)?;
                        continue;
                    };
                    if edge != NONE {
                        self.enter(edge);
                        visits.push(Visit::Leave(edge));
                    }
                    let ratios = self.ratios(
                        node,
                        model.cover(self.tree, node),
                        children.map(|child| model.cover(self.tree, child)),
                    )?;
                    let first = self.split(node, feature, ratios, depth)?;
                    let side = |side: usize, edge| Visit::Node {
                        node: children[side],
                        edge,
                        weight: weight * ratios[side],
                        depth: depth + 1,
                    };
                    visits.extend([side(1, first + 1), side(0, first)]);
                }
            }
        }
        Ok(())
    }

    /// Returns the cover ratios of a split.
    fn ratios(&self, node: u32, cover: f64, [first, second]: [f64; 2]) -> Result<[f64; 2], TableError> {
        let is_cover = |cover: f64| cover.is_finite() && cover >= 0.0;
        if is_cover(cover) && cover > 0.0 && is_cover(first) && is_cover(second) && first + second > 0.0 {
            let ratios = [first / cover, second / cover];
            if ratios.iter().all(|ratio| ratio.is_finite()) {
                return Ok(ratios);
            }
        }
        let [cover, first, second] = [cover, first, second].map(|cover| cover.to_string());
        Err(TableError::Cover { tree: self.tree, node, cover, first, second })
    }

    /// Adds a split, and returns its first edge.
    fn split(&mut self, node: u32, feature: u32, ratios: [f64; 2], depth: u32) -> Result<u32, TableError> {
        let too_large = TableError::TooLarge { limit: self.limit };
        let first = u32::try_from(self.edges.len()).ok().filter(|first| *first < NONE - 1).ok_or(too_large.clone())?;
        let previous = self.last.get(&feature).copied().unwrap_or(NONE);
        let above = self.edges.get(previous as usize).map_or(1.0, |edge| edge.ratio);
        self.splits.push(node);
        self.edges.extend(ratios.map(|ratio| {
            let ratio = above * ratio;
            // Without a row that passes above, the factor above is zero, and stays so.
            let neither = if previous == NONE || above == 0.0 { 1.0 } else { ratio / above };
            Edge { feature, previous, depth, ratio, neither }
        }));
        // The least that the table takes for a split: its edges with one point, its steps, and a leaf.
        let least = size_of::<u32>() + 2 * (size_of::<Edge>() + size_of::<Factor>() + size_of::<Step>());
        if self.splits.len().saturating_mul(least) > self.limit {
            return Err(too_large);
        }
        self.depth = self.depth.max(depth as usize + 1);
        Ok(first)
    }

    fn enter(&mut self, edge: u32) {
        self.steps.push(Step::Enter(edge));
        self.last.insert(self.edges[edge as usize].feature, edge);
    }

    fn leave(&mut self, edge: u32) {
        self.steps.push(Step::Leave(edge));
        let Edge { feature, previous, .. } = self.edges[edge as usize];
        if previous == NONE {
            self.last.remove(&feature);
        } else {
            self.last.insert(feature, previous);
        }
    }

    fn leaf(&mut self, edge: u32, node: u32, weight: f64, model: &impl ExplainedTrees) -> Result<(), TableError> {
        let start = self.values.len();
        model.extend_with_leaf(self.tree, node, &mut self.values);
        for (expected, value) in self.expected.iter_mut().zip(&self.values[start..]) {
            *expected += value * weight;
        }
        if edge == NONE {
            return Ok(());
        }
        let features = self.last.len() + usize::from(!self.last.contains_key(&self.edges[edge as usize].feature));
        self.most = self.most.max(features);
        let start = u32::try_from(start).map_err(|_| TableError::TooLarge { limit: self.limit })?;
        self.steps.push(Step::Leaf(edge, start));
        Ok(())
    }

    /// Returns the number of points of the quadrature.
    fn points(&self) -> usize {
        self.most.div_ceil(2).max(1)
    }

    /// Returns the size of the tree in the table.
    fn bytes(&self) -> Result<usize, TableError> {
        let points = self.points();
        let for_points = self.edges.len().saturating_mul(size_of::<Factor>());
        // Beside the table, an evaluation keeps products and sums of all lanes for each edge of a path.
        let beside = (self.depth + 1).saturating_mul(2 * LANES * size_of::<f64>());
        let bytes = for_points.saturating_add(beside).saturating_mul(points);
        if bytes.saturating_add(size_of_val(&self.values[..])) > self.limit {
            return Err(TableError::TooLarge { limit: self.limit });
        }
        Ok(size_of::<TreeTable>()
            + size_of_val(&self.splits[..])
            + size_of_val(&self.edges[..])
            + size_of_val(&self.steps[..])
            + size_of_val(&self.values[..])
            + for_points * points)
    }

    fn finish(self, output: usize, rules: &mut Rules) -> TreeTable {
        let points = self.points();
        let (rule, missed) = rules.entry(points).or_insert_with(|| {
            let rule = rule(points);
            let missed = rule.iter().map(|point| -point.weight / (1.0 - point.at)).collect();
            (rule, missed)
        });
        let mut factors = Vec::with_capacity(self.edges.len() * points);
        for edge in &self.edges {
            let above = self.edges.get(edge.previous as usize);
            factors.extend(rule.iter().map(|point| {
                let failed = (1.0 - point.at) * edge.ratio;
                let passed = point.at + failed;
                let before = above.map_or(1.0, |above| point.at + (1.0 - point.at) * above.ratio);
                let contributed = (1.0 - edge.ratio) * point.weight / passed;
                Factor { failed: failed / before, passed: passed / before, contributed }
            }));
        }
        TreeTable {
            output,
            splits: self.splits,
            edges: self.edges,
            steps: self.steps,
            values: self.values,
            depth: self.depth,
            factors,
            missed: Arc::clone(missed),
        }
    }
}
