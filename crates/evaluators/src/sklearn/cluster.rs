//! K-means clustering.

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::neighbors::Metric;
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, IntType, TableData, to_f32};

pub(super) const CLASSES: ClassTable = &[("cluster.KMeans", means), ("cluster.MiniBatchKMeans", means)];

#[derive(Debug)]
struct KMeans {
    centers: Vec<f64>,
    features: usize,
    /// Whether the centers have single precision; if the input has it too, distances are returned in single precision.
    single: bool,
}

fn means(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let centers = fitted.matrix("cluster_centers_")?;
    if centers.values.is_empty() || i32::try_from(centers.rows).is_err() {
        return Err(fitted.unexpected("cluster_centers_", "centers"));
    }
    let features = centers.columns;
    let clusters = KMeans { centers: centers.values, features, single: centers.single };
    Ok(EstimatorSpec::new(MethodSet::PREDICT.with(EstimatorMethod::Transform), features, clusters))
}

impl KMeans {
    /// Returns the squared distance to each center.
    fn distances(&self, row: &[f64]) -> impl Iterator<Item = f64> {
        self.centers.chunks_exact(self.features).map(|center| Metric::SquaredEuclidean.reduced(row, center))
    }

    fn nearest(&self, row: &[f64]) -> i64 {
        let (mut nearest, mut smallest) = (0, f64::INFINITY);
        for (index, distance) in (0_i64..).zip(self.distances(row)) {
            if distance < smallest {
                (nearest, smallest) = (index, distance);
            }
        }
        nearest
    }
}

impl Evaluate for KMeans {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let values = x.to_f64();
        let rows = values.chunks_exact(self.features);
        if method == EstimatorMethod::Predict {
            let nearest = rows.map(|row| self.nearest(row)).collect();
            return Ok(TableData::Table(DenseTable::of_column(Elements::Int(nearest, IntType::I32))));
        }
        let distances = rows.flat_map(|row| self.distances(row)).map(f64::sqrt);
        let elements = if self.single && x.is_single() {
            Elements::F32(distances.map(to_f32).collect())
        } else {
            Elements::F64(distances.collect())
        };
        Ok(TableData::Table(DenseTable { elements, rows: x.rows, columns: self.centers.len() / self.features }))
    }

    fn cost(&self) -> u64 {
        50 + self.centers.len() as u64
    }
}
