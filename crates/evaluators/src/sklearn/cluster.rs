//! Clusters: centers of which the nearest decides, and groups of features.

use std::sync::Arc;

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::neighbors::Metric;
use super::spec::{ClassTable, EstimatorSpec};
use crate::pickle::PickleValue;
use crate::table::{DenseTable, Elements, IntType, TableData, to_f32};

pub(super) const CLASSES: ClassTable = &[
    ("cluster.AffinityPropagation", affinity),
    ("cluster.Birch", birch),
    ("cluster.BisectingKMeans", bisecting),
    ("cluster.FeatureAgglomeration", agglomeration),
    ("cluster.KMeans", means),
    ("cluster.MeanShift", shift),
    ("cluster.MiniBatchKMeans", means),
];

#[derive(Debug)]
struct Centers {
    /// One row for each center.
    rows: Vec<f64>,
    features: usize,
    /// The answer for each center.
    labels: Elements<'static>,
    /// The tree whose leaves are the centers, if they are found through one.
    tree: Option<Vec<BisectingNode>>,
    /// Whether the centers have single precision; if the input has it too, distances are returned in single precision.
    single: bool,
}

/// A node of a tree of clusters.
#[derive(Debug)]
struct BisectingNode {
    center: Vec<f64>,
    next: BisectingStep,
}

#[derive(Debug, Clone, Copy)]
enum BisectingStep {
    Label(i64),
    /// The children, which are after the node.
    Nearer(usize, usize),
}

/// Reads centers. Their labels are `labels`, or their indices as integers of a type.
fn centers(
    fitted: &FittedObject<'_>,
    attribute: &'static str,
    labels: impl FnOnce(usize) -> Result<Elements<'static>, LoadError>,
) -> Result<Centers, LoadError> {
    let centers = fitted.matrix(attribute)?;
    if centers.values.is_empty() || i32::try_from(centers.rows).is_err() {
        return Err(fitted.unexpected(attribute, "centers"));
    }
    let labels = labels(centers.rows)?;
    let (features, single) = (centers.columns, centers.single);
    Ok(Centers { rows: centers.values, features, labels, tree: None, single })
}

/// Returns the index of each center as its label.
fn indices(count: usize, kind: IntType) -> Elements<'static> {
    Elements::Int((0_i64..).take(count).collect(), kind)
}

fn means(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let centers = centers(fitted, "cluster_centers_", |count| Ok(indices(count, IntType::I32)))?;
    Ok(EstimatorSpec::new(MethodSet::PREDICT.with(EstimatorMethod::Transform), centers.features, centers))
}

fn shift(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let centers = centers(fitted, "cluster_centers_", |count| Ok(indices(count, IntType::I64)))?;
    Ok(EstimatorSpec::new(MethodSet::PREDICT, centers.features, centers))
}

/// Loads `AffinityPropagation`, which predicts if it was fitted with rows instead of affinities.
fn affinity(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    if fitted.text("affinity")? != "euclidean" {
        return Err(fitted.unsupported("affinity"));
    }
    shift(fitted)
}

/// Loads `Birch`, whose subclusters belong to clusters.
fn birch(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let centers = centers(fitted, "subcluster_centers_", |count| {
        let labels = fitted.labels("subcluster_labels_")?;
        fitted.check_count("subcluster_labels_", count, labels.len())?;
        Ok(labels)
    })?;
    Ok(EstimatorSpec::new(MethodSet::PREDICT.with(EstimatorMethod::Transform), centers.features, centers))
}

/// Loads `BisectingKMeans`, whose clusters are found through a tree. Its centers are relative to the mean of the fit.
fn bisecting(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let mut centers = centers(fitted, "cluster_centers_", |count| Ok(indices(count, IntType::I32)))?;
    let (clusters, features) = (centers.labels.len(), centers.features);
    let mean = match fitted.get("_X_mean") {
        Some(_) => fitted.floats_of("_X_mean", features)?,
        None => vec![0.0; features],
    };
    let mut nodes: Vec<BisectingNode> = Vec::new();
    let mut waiting: Vec<PickleValue<'_>> = vec![fitted.require("_bisecting_tree")?];
    while let Some(&value) = waiting.get(nodes.len()) {
        // A node may be a part of others many times.
        fitted.spend(features.saturating_add(64))?;
        let node = fitted.record(value, "_BisectingTree")?;
        let next = if let (Some(left), Some(right)) = (node.get("left"), node.get("right")) {
            waiting.extend([left, right]);
            BisectingStep::Nearer(waiting.len() - 2, waiting.len() - 1)
        } else {
            let label = node.size("label")?;
            if label >= clusters {
                return Err(node.unexpected("label", "a cluster"));
            }
            BisectingStep::Label(i64::try_from(label).unwrap_or_default())
        };
        let center = node.floats_of("center", features)?;
        nodes.push(BisectingNode {
            center: center.iter().zip(&mean).map(|(center, mean)| center + mean).collect(),
            next,
        });
    }
    centers.tree = Some(nodes);
    Ok(EstimatorSpec::new(MethodSet::PREDICT.with(EstimatorMethod::Transform), features, centers))
}

impl Centers {
    /// Returns the squared distance to each center.
    fn distances(&self, row: &[f64]) -> impl Iterator<Item = f64> {
        self.rows.chunks_exact(self.features).map(|center| Metric::SquaredEuclidean.reduced(row, center))
    }

    fn nearest(&self, row: &[f64]) -> usize {
        let (mut nearest, mut smallest) = (0, f64::INFINITY);
        for (index, distance) in self.distances(row).enumerate() {
            if distance < smallest {
                (nearest, smallest) = (index, distance);
            }
        }
        nearest
    }

    /// Predicts the label of each row.
    fn predict(&self, rows: &[f64]) -> Elements<'static> {
        let rows = rows.chunks_exact(self.features);
        match &self.tree {
            None => self.labels.take(rows.map(|row| self.nearest(row))),
            Some(tree) => Elements::Int(rows.map(|row| descend(tree, row)).collect(), IntType::I32),
        }
    }
}

/// Returns the label of the leaf that is reached through the nearer child each time.
fn descend(tree: &[BisectingNode], row: &[f64]) -> i64 {
    let distance = |node: usize| Metric::SquaredEuclidean.reduced(row, &tree[node].center);
    let mut node = 0;
    loop {
        match tree[node].next {
            BisectingStep::Label(label) => return label,
            BisectingStep::Nearer(left, right) => node = if distance(left) <= distance(right) { left } else { right },
        }
    }
}

impl Evaluate for Centers {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let values = x.to_f64();
        if method == EstimatorMethod::Predict {
            // The library itself fails for a tree of another precision than the rows.
            if self.tree.is_some() && x.is_single() != self.single {
                return Err(PredictError::Precision { class: Arc::clone(&info.class) });
            }
            return Ok(TableData::Table(DenseTable::of_column(self.predict(&values))));
        }
        let rows = values.chunks_exact(self.features);
        let distances = rows.flat_map(|row| self.distances(row)).map(f64::sqrt);
        let elements = if self.single && x.is_single() {
            Elements::F32(distances.map(to_f32).collect())
        } else {
            Elements::F64(distances.collect())
        };
        Ok(TableData::Table(DenseTable { elements, rows: x.rows, columns: self.rows.len() / self.features }))
    }

    fn cost(&self) -> u64 {
        50 + self.rows.len() as u64
    }
}

/// The means of groups of features.
#[derive(Debug)]
struct FeatureGroups {
    /// The group of each feature.
    groups: Vec<usize>,
    /// How many features each group has.
    sizes: Vec<f64>,
}

fn agglomeration(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let pooling = fitted.require("pooling_func")?.global();
    if !pooling.is_some_and(|path| path.starts_with("numpy.") && path.rsplit('.').next() == Some("mean")) {
        return Err(fitted.unsupported("pooling_func"));
    }
    let features = fitted.n_features()?;
    let groups = fitted.indices("labels_", fitted.require("labels_")?, features)?;
    fitted.check_count("labels_", features, groups.len())?;
    let mut sizes = vec![0.0; groups.iter().max().map_or(0, |last| last + 1)];
    for &group in &groups {
        sizes[group] += 1.0;
    }
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features, FeatureGroups { groups, sizes }))
}

impl Evaluate for FeatureGroups {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let columns = self.sizes.len();
        let mut means = vec![0.0; x.rows * columns];
        for (row, means) in x.to_f64().chunks_exact(self.groups.len()).zip(means.chunks_exact_mut(columns)) {
            row.iter().zip(&self.groups).for_each(|(value, &group)| means[group] += value);
            means.iter_mut().zip(&self.sizes).for_each(|(mean, size)| *mean /= size);
        }
        Ok(TableData::Table(DenseTable::of_f64(means, columns)))
    }

    fn cost(&self) -> u64 {
        50 + 2 * self.groups.len() as u64
    }
}
