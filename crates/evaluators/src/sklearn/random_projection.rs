//! Projections onto random components.

use super::decomposition;
use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, TableData};

pub(super) const CLASSES: ClassTable = &[
    ("random_projection.GaussianRandomProjection", decomposition::truncated),
    ("random_projection.SparseRandomProjection", sparse),
];

/// Components most of whose values are zero and are not stored.
#[derive(Debug)]
struct SparseComponents {
    /// Where the values of each component start, and where the last ones end.
    starts: Vec<usize>,
    /// The feature of each value.
    features_of: Vec<usize>,
    values: Vec<f64>,
    features: usize,
}

fn sparse(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let wanted = || fitted.unexpected("components_", "a sparse matrix in rows");
    let matrix = fitted.part(fitted.require("components_")?)?;
    if !matrix.class().ends_with(".csr_matrix") && !matrix.class().ends_with(".csr_array") {
        return Err(wanted());
    }
    let shape: Option<Vec<usize>> =
        matrix.items("_shape")?.into_iter().map(|size| size.as_i64().and_then(|size| size.try_into().ok())).collect();
    let Some(&[components, features]) = shape.as_deref() else { return Err(wanted()) };
    let values = matrix.double_matrix("data")?.values;
    let features_of = matrix.indices("indices", matrix.require("indices")?, features)?;
    let starts = matrix.indices("indptr", matrix.require("indptr")?, values.len().saturating_add(1))?;
    matrix.check_count("indices", values.len(), features_of.len())?;
    matrix.check_count("indptr", components.saturating_add(1), starts.len())?;
    let ends = (starts.first(), starts.last());
    if components == 0 || !starts.is_sorted() || ends != (Some(&0), Some(&values.len())) {
        return Err(wanted());
    }
    let components = SparseComponents { starts, features_of, values, features };
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features, components))
}

impl Evaluate for SparseComponents {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let mut projected = Vec::with_capacity(x.rows * (self.starts.len() - 1));
        for row in x.to_f64().chunks_exact(self.features) {
            projected.extend(self.starts.windows(2).map(|ends| {
                let (features, values) = (&self.features_of[ends[0]..ends[1]], &self.values[ends[0]..ends[1]]);
                features.iter().zip(values).map(|(&feature, value)| row[feature] * value).sum::<f64>()
            }));
        }
        Ok(TableData::Table(DenseTable::of_f64(projected, self.starts.len() - 1)))
    }

    fn cost(&self) -> u64 {
        50 + 2 * self.values.len() as u64
    }
}
