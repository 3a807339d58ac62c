//! Finds the rows of a fit that are nearest to another row.
//!
//! Of rows at the same distance, scikit-learn keeps those that its search happens to meet first, or that leave its heap
//! last. To return the same rows, this search does the same: it walks the same trees, which are in the file, in the
//! same order, and uses a heap of the same shape.

use std::ops::Range;

use super::screening::{self, DistanceScreen};
use crate::pickle::{NumpyArray, PickleValue};
use crate::sklearn::error::LoadError;
use crate::sklearn::fitted::FittedObject;
use crate::sklearn::numerics::lanes;
use crate::wide::wide;

/// A distance metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::sklearn) enum Metric {
    Euclidean,
    SquaredEuclidean,
    Manhattan,
    Chebyshev,
    Minkowski(f64),
    Cosine,
}

impl Metric {
    /// Returns the metric of this name. `p` is the parameter of "minkowski".
    pub(in crate::sklearn) fn of(name: &str, p: f64) -> Option<Self> {
        Some(match name {
            "euclidean" | "l2" => Self::Euclidean,
            "sqeuclidean" => Self::SquaredEuclidean,
            "manhattan" | "l1" | "cityblock" => Self::Manhattan,
            "chebyshev" | "infinity" => Self::Chebyshev,
            "cosine" => Self::Cosine,
            "minkowski" | "p" if p.total_cmp(&1.0).is_eq() => Self::Manhattan,
            "minkowski" | "p" if p.total_cmp(&2.0).is_eq() => Self::Euclidean,
            "minkowski" | "p" if p == f64::INFINITY => Self::Chebyshev,
            "minkowski" | "p" if p > 0.0 => Self::Minkowski(p),
            _ => return None,
        })
    }

    /// Returns a number that grows with the distance and is cheaper to compute.
    pub(in crate::sklearn) fn reduced(self, x: &[f64], y: &[f64]) -> f64 {
        let differences = || x.iter().zip(y).map(|(x, y)| (x - y).abs());
        match self {
            Self::Euclidean | Self::SquaredEuclidean => squares(x, y),
            Self::Manhattan => differences().sum(),
            Self::Chebyshev => differences().fold(0.0, f64::max),
            Self::Minkowski(p) => differences().map(|difference| difference.powf(p)).sum(),
            Self::Cosine => {
                let length = |row: &[f64]| {
                    let length = row.iter().map(|value| value * value).sum::<f64>().sqrt();
                    if length == 0.0 { 1.0 } else { length }
                };
                let (of_x, of_y) = (length(x), length(y));
                let product: f64 = x.iter().zip(y).map(|(x, y)| (x / of_x) * (y / of_y)).sum();
                (1.0 - product).clamp(0.0, 2.0)
            }
        }
    }

    fn distance(self, reduced: f64) -> f64 {
        match self {
            Self::Euclidean => reduced.sqrt(),
            Self::Minkowski(p) => reduced.powf(1.0 / p),
            _ => reduced,
        }
    }

    fn reduce(self, distance: f64) -> f64 {
        match self {
            Self::Euclidean => distance * distance,
            Self::Minkowski(p) => distance.powf(p),
            _ => distance,
        }
    }

    /// Returns the exponent of a metric that k-d trees support.
    const fn exponent(self) -> f64 {
        match self {
            Self::Manhattan => 1.0,
            Self::Minkowski(p) => p,
            Self::Chebyshev => f64::INFINITY,
            Self::Euclidean | Self::SquaredEuclidean | Self::Cosine => 2.0,
        }
    }
}

/// Returns the sum of squared differences, in the order in which scikit-learn's trees add them.
fn squares(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| (x - y) * (x - y)).sum()
}

/// A row of the fit, and its distance.
#[derive(Debug, Clone, Copy)]
pub(in crate::sklearn) struct Neighbor {
    pub(in crate::sklearn) row: usize,
    pub(in crate::sklearn) distance: f64,
}

/// The rows of a fit.
#[derive(Debug)]
pub(in crate::sklearn) struct FittedRows {
    values: Vec<f64>,
    features: usize,
    metric: Metric,
    tree: Option<Tree>,
    /// Rules out rows in a brute-force search.
    screen: Option<DistanceScreen>,
}

/// A k-d tree or ball tree, as scikit-learn built it. The children of node `i` are `2i + 1` and `2i + 2`.
#[derive(Debug)]
struct Tree {
    /// The rows, in the order of the leaves.
    order: Vec<usize>,
    nodes: Vec<Node>,
    bounds: Bounds,
}

#[derive(Debug)]
struct Node {
    start: usize,
    end: usize,
    leaf: bool,
    radius: f64,
}

/// The bounds of each node.
#[derive(Debug)]
enum Bounds {
    Boxes { low: Vec<f64>, high: Vec<f64> },
    Balls { centers: Vec<f64> },
}

impl FittedRows {
    /// Reads what `fit` of a nearest-neighbor model stored.
    pub(in crate::sklearn) fn read(fitted: &FittedObject<'_>) -> Result<Self, LoadError> {
        let x = fitted.matrix("_fit_X")?;
        if x.values.is_empty() {
            return Err(fitted.unexpected("_fit_X", "rows"));
        }
        let parameters = fitted.require("effective_metric_params_")?;
        let p = parameters.get("p").and_then(PickleValue::as_f64).unwrap_or(2.0);
        let weighted = parameters.get("w").is_some_and(|weights| !weights.is_none());
        let metric = fitted.text_if("effective_metric_").and_then(|name| Metric::of(name, p));
        let metric = metric.filter(|_| !weighted).ok_or_else(|| fitted.unsupported("effective_metric_"))?;
        let mut points = Self { values: x.values, features: x.columns, metric, tree: None, screen: None };
        points.tree = match fitted.text("_fit_method")? {
            "brute" => {
                if points.is_euclidean() {
                    fitted.spend(DistanceScreen::size(points.len(), points.features))?;
                    points.screen = DistanceScreen::new(&points.values, points.features);
                }
                None
            }
            "kd_tree" | "ball_tree" => Some(points.read_tree(fitted)?),
            _ => return Err(fitted.unsupported("_fit_method")),
        };
        Ok(points)
    }

    fn read_tree(&self, fitted: &FittedObject<'_>) -> Result<Tree, LoadError> {
        let tree = fitted.part(fitted.require("_tree")?)?;
        let wanted = || fitted.unexpected("_tree", "a search tree over the rows of the fit");
        let state = tree.value().state().and_then(PickleValue::items).ok_or_else(wanted)?;
        let [_, order, nodes, bounds, ..] = state[..] else { return Err(wanted()) };
        let order = order.as_array().and_then(|order| order.numbers()?.to_i64()).ok_or_else(wanted)?;
        let row = |row: i64| usize::try_from(row).ok().filter(|&row| row < self.len());
        let order: Vec<usize> = order.into_iter().map(row).collect::<Option<_>>().ok_or_else(wanted)?;
        let table = nodes.as_array().ok_or_else(wanted)?;
        let count = table.len();
        fitted.spend(order.len().saturating_add(count.saturating_mul(4)))?;
        let integers = |name| table.field(name).and_then(|numbers| numbers.to_i64()).ok_or_else(wanted);
        let (starts, ends, leaves) = (integers("idx_start")?, integers("idx_end")?, integers("is_leaf")?);
        let radii = table.field("radius").ok_or_else(wanted)?.to_f64();
        let node = |index: usize| {
            let (start, end) = (usize::try_from(starts[index]).ok()?, usize::try_from(ends[index]).ok()?);
            let leaf = leaves[index] != 0;
            // Every walk ends, because each step at least doubles the index; leaves span existing rows.
            let sound = start <= end && end <= order.len() && (leaf || 2 * index + 2 < count);
            sound.then_some(Node { start, end, leaf, radius: radii[index] })
        };
        let nodes: Vec<Node> = (0..count).map(node).collect::<Option<_>>().ok_or_else(wanted)?;
        let bounds = bounds.as_array().and_then(NumpyArray::numbers).ok_or_else(wanted)?.to_f64();
        fitted.spend(bounds.len())?;
        let wide = count.checked_mul(self.features).filter(|_| count > 0).ok_or_else(wanted)?;
        // The class is the function that creates the tree, whose path contains its module.
        let balls = tree.class().contains("_ball_tree");
        if bounds.len() != wide * if balls { 1 } else { 2 } || self.metric == Metric::Cosine {
            return Err(wanted());
        }
        let bounds = if balls {
            Bounds::Balls { centers: bounds }
        } else {
            let (low, high) = bounds.split_at(wide);
            Bounds::Boxes { low: low.to_vec(), high: high.to_vec() }
        };
        Ok(Tree { order, nodes, bounds })
    }

    pub(in crate::sklearn) const fn features(&self) -> usize {
        self.features
    }

    pub(in crate::sklearn) const fn len(&self) -> usize {
        self.values.len() / self.features
    }

    /// Estimates the time of a search for the nearest rows, in nanoseconds.
    pub(in crate::sklearn) fn nearest_cost(&self) -> u64 {
        let (rows, features) = (self.len() as u64, self.features as u64);
        if self.has_tree() {
            500 + 50 * features * u64::from(rows.ilog2() + 1)
        } else {
            100 + rows * (3 + features / 8)
        }
    }

    pub(super) const fn has_tree(&self) -> bool {
        self.tree.is_some()
    }

    pub(in crate::sklearn) fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.features..(row + 1) * self.features]
    }

    const fn is_euclidean(&self) -> bool {
        matches!(self.metric, Metric::Euclidean | Metric::SquaredEuclidean)
    }

    /// Computes the reduced distances of the rows in a range.
    fn reduced(&self, row: &[f64], range: Range<usize>, distances: &mut [f64]) {
        let rows = self.values[range.start * self.features..range.end * self.features].chunks_exact(self.features);
        // Without a tree, scikit-learn adds the squares in an order that depends on the machine.
        if self.tree.is_none() && self.is_euclidean() {
            wide(
                #[inline(always)]
                || {
                    for (other, distance) in rows.clone().zip(&mut *distances) {
                        *distance = lanes(row, other, |x, y| (x - y) * (x - y));
                    }
                },
            );
        } else {
            for (other, distance) in rows.zip(distances) {
                *distance = self.metric.reduced(row, other);
            }
        }
    }

    /// Calls `visit` with every row of the fit and its reduced distance.
    fn all(&self, row: &[f64], mut visit: impl FnMut(f64, usize)) {
        let mut distances = [0.0; 64];
        for start in (0..self.len()).step_by(distances.len()) {
            let range = start..self.len().min(start + distances.len());
            self.reduced(row, range.clone(), &mut distances);
            range.zip(distances).for_each(|(index, distance)| visit(distance, index));
        }
    }

    /// Calls `visit` with the `count` nearest rows of each row of `x`, nearest first. The fit has at least `count`
    /// rows.
    pub(in crate::sklearn) fn nearest(&self, x: &[f64], count: usize, mut visit: impl FnMut(&[Neighbor])) {
        let (mut heap, mut found) = (Heap::new(count), Vec::with_capacity(count));
        let mut rest = x;
        if let Some(screen) = &self.screen {
            let (groups, after) = x.split_at(x.len() - x.len() % (screening::GROUP * self.features));
            rest = after;
            let mut heaps = Vec::new();
            // So few that the block and a panel of the fit stay in the cache.
            for block in groups.chunks(8 * screening::GROUP * self.features) {
                heaps.resize(block.len() / self.features, Heap::new(count));
                heaps.iter_mut().for_each(Heap::clear);
                let row = |index: usize| &block[index * self.features..(index + 1) * self.features];
                screen.pairs(
                    block,
                    &mut heaps,
                    |heaps, query| heaps[query].largest(),
                    |heaps, query, index| {
                        let mut distance = [0.0];
                        self.reduced(row(query), index..index + 1, &mut distance);
                        heaps[query].push(distance[0], index);
                    },
                );
                for heap in &mut heaps {
                    self.sort(&mut heap.entries, &mut found);
                    visit(&found);
                }
            }
        }
        for row in rest.chunks_exact(self.features) {
            heap.clear();
            match &self.tree {
                Some(tree) => {
                    let query = Query { points: self, tree, row };
                    query.search(0, query.bound(0), &mut heap);
                }
                None => self.all(row, |distance, index| heap.push(distance, index)),
            }
            self.sort(&mut heap.entries, &mut found);
            visit(&found);
        }
    }

    /// Calls `visit` with all rows within `radius` of each row of `x`, nearest first.
    pub(in crate::sklearn) fn within(&self, x: &[f64], radius: f64, mut visit: impl FnMut(&[Neighbor])) {
        let radius = self.metric.reduce(radius);
        let (mut entries, mut found) = (Vec::new(), Vec::new());
        for row in x.chunks_exact(self.features) {
            entries.clear();
            self.all(row, |distance, index| {
                if distance <= radius {
                    entries.push((distance, index));
                }
            });
            self.sort(&mut entries, &mut found);
            visit(&found);
        }
    }

    fn sort(&self, entries: &mut [(f64, usize)], found: &mut Vec<Neighbor>) {
        entries.sort_by(|(x, _), (y, _)| x.total_cmp(y));
        let neighbor = |&(reduced, row): &(f64, usize)| Neighbor { row, distance: self.metric.distance(reduced) };
        found.clear();
        found.extend(entries.iter().map(neighbor));
    }
}

/// A row whose neighbors are searched for.
#[derive(Clone, Copy)]
struct Query<'a> {
    points: &'a FittedRows,
    tree: &'a Tree,
    row: &'a [f64],
}

impl Query<'_> {
    /// Returns a lower bound on the reduced distance of the rows of a node.
    fn bound(self, node: usize) -> f64 {
        let Query { points, tree, row } = self;
        let span = node * points.features..(node + 1) * points.features;
        match &tree.bounds {
            Bounds::Boxes { low, high } => {
                let outside = row.iter().zip(&low[span.clone()]).zip(&high[span]).map(|((x, low), high)| {
                    let (below, above) = (low - x, x - high);
                    0.5 * ((below + below.abs()) + (above + above.abs()))
                });
                let exponent = points.metric.exponent();
                if exponent.is_infinite() {
                    outside.fold(0.0, f64::max)
                } else if exponent.total_cmp(&2.0).is_eq() {
                    outside.map(|distance| distance * distance).sum()
                } else {
                    outside.map(|distance| distance.powf(exponent)).sum()
                }
            }
            Bounds::Balls { centers } => {
                let distance = points.metric.distance(points.metric.reduced(row, &centers[span]));
                points.metric.reduce((distance - tree.nodes[node].radius).max(0.0))
            }
        }
    }

    /// Searches a node of which no row is nearer than `bound`, the nearer child first.
    fn search(self, node: usize, bound: f64, heap: &mut Heap) {
        let Query { points, tree, row } = self;
        let Node { start, end, leaf, .. } = tree.nodes[node];
        if bound > heap.largest() {
            return;
        }
        if leaf {
            for &index in &tree.order[start..end] {
                heap.push(points.metric.reduced(row, points.row(index)), index);
            }
            return;
        }
        let (first, second) = (2 * node + 1, 2 * node + 2);
        let (first_bound, second_bound) = (self.bound(first), self.bound(second));
        if first_bound <= second_bound {
            self.search(first, first_bound, heap);
            self.search(second, second_bound, heap);
        } else {
            self.search(second, second_bound, heap);
            self.search(first, first_bound, heap);
        }
    }
}

/// The nearest rows so far, with the farthest of them on top.
#[derive(Debug, Clone)]
struct Heap {
    entries: Vec<(f64, usize)>,
}

impl Heap {
    /// Creates a heap of `count` places, of which there is at least one, all of them infinitely far.
    fn new(count: usize) -> Self {
        Self { entries: vec![(f64::INFINITY, 0); count] }
    }

    fn clear(&mut self) {
        self.entries.fill((f64::INFINITY, 0));
    }

    fn largest(&self) -> f64 {
        self.entries[0].0
    }

    /// Replaces the farthest row if this one is nearer.
    fn push(&mut self, reduced: f64, row: usize) {
        if reduced >= self.largest() {
            return;
        }
        let entries = &mut self.entries;
        let mut place = 0;
        loop {
            let (left, right) = (2 * place + 1, 2 * place + 2);
            let Some(&(of_left, _)) = entries.get(left) else { break };
            let of_right = entries.get(right).map_or(f64::NEG_INFINITY, |&(reduced, _)| reduced);
            let (child, of_child) = if of_left >= of_right { (left, of_left) } else { (right, of_right) };
            if of_child <= reduced {
                break;
            }
            entries[place] = entries[child];
            place = child;
        }
        entries[place] = (reduced, row);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn points(values: Vec<f64>, features: usize, screened: bool) -> FittedRows {
        let screen = screened.then(|| DistanceScreen::new(&values, features)).flatten();
        assert_eq!(screen.is_some(), screened);
        FittedRows { values, features, metric: Metric::Euclidean, tree: None, screen }
    }

    fn nearest(points: &FittedRows, x: &[f64], count: usize) -> Vec<(usize, u64)> {
        let mut all = Vec::new();
        points.nearest(x, count, |found| {
            all.extend(found.iter().map(|found| (found.row, found.distance.to_bits())));
        });
        all
    }

    /// Generates few different numbers, so that many rows are equally far, with offsets and scales that make rounding
    /// matter.
    fn numbers(count: usize) -> impl Strategy<Value = Vec<f64>> {
        let number = (0..4_u8).prop_map(f64::from);
        let (offset, scale) =
            (prop_oneof![Just(0.0), Just(1e9), Just(-1e16)], prop_oneof![Just(1.0), Just(0.1), Just(1e-170)]);
        (prop::collection::vec(number, count), offset, scale)
            .prop_map(|(numbers, offset, scale)| numbers.into_iter().map(|number| number * scale + offset).collect())
    }

    proptest! {
        /// Screening changes neither which rows are found, nor their order, nor any bit of a distance.
        #[test]
        fn screening_does_not_change_neighbors(
            (features, fit, x) in (1..20_usize, 1..60_usize, 1..30_usize)
                .prop_flat_map(|(features, rows, asked)| (Just(features), numbers(rows * features), numbers(asked * features))),
            count in 1..8_usize,
        ) {
            let count = count.min(fit.len() / features);
            let plain = nearest(&points(fit.clone(), features, false), &x, count);
            prop_assert_eq!(plain, nearest(&points(fit, features, true), &x, count));
        }
    }

    #[test]
    fn screening_is_skipped_if_products_overflow() {
        assert!(DistanceScreen::new(&[1.0, 1e160], 2).is_none());
        assert!(DistanceScreen::new(&[1.0, f64::NAN], 2).is_none());
        let fit: Vec<f64> = (0..40_u8).map(f64::from).collect();
        let mut x: Vec<f64> = (0..24_u8).map(f64::from).collect();
        x[5] = 1e200;
        x[6] = f64::MAX;
        x[9] = f64::MAX;
        let (plain, screened) = (points(fit.clone(), 2, false), points(fit, 2, true));
        assert_eq!(nearest(&plain, &x, 3), nearest(&screened, &x, 3));
    }

    #[test]
    fn screening_rules_out_most_rows() {
        let number = |index: u32| f64::from(index.wrapping_mul(2_654_435_761) >> 20);
        let fit: Vec<f64> = (0..8000).map(number).collect();
        let screen = DistanceScreen::new(&fit, 8).unwrap();
        let x: Vec<f64> = (8000..8048).map(number).collect();
        let farthest = nearest(&points(fit, 8, false), &x, 5).chunks(5).map(|row| f64::from_bits(row[4].1)).collect();
        let mut visited = 0;
        let (limit, visit) =
            (|limits: &Vec<f64>, row: usize| limits[row] * limits[row], |_: &mut _, _, _| visited += 1);
        screen.pairs(&x, &mut { farthest }, limit, visit);
        assert_eq!(visited, 6 * 5);
    }
}
