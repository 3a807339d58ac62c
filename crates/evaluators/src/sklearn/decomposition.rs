//! Transformers that project rows onto components.

use std::borrow::Cow;

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::{FittedObject, SklearnVersion};
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{affine, transpose};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, TableData, to_f32};

pub(super) const CLASSES: ClassTable = &[
    ("decomposition.FastICA", independent),
    ("decomposition.IncrementalPCA", principal),
    ("decomposition.PCA", principal),
    ("decomposition.TruncatedSVD", truncated),
];

/// `(x - mean) @ weights - offset`, divided by a scale.
#[derive(Debug)]
pub(super) struct Projection {
    /// The mean that is subtracted from rows, and whether the difference is rounded to the precision of the rows.
    mean: Option<(Vec<f64>, bool)>,
    /// One row for each feature.
    weights: Vec<f64>,
    /// The negated offset, which is added to projected rows.
    offset: Vec<f64>,
    scale: Option<Vec<f64>>,
    features: usize,
    /// Whether the weights have single precision; if the input has it too, results are returned in single precision.
    single: bool,
}

impl Projection {
    /// Projects onto `components_`, whose rows are the components: `x @ components.T`.
    fn onto(fitted: &FittedObject<'_>) -> Result<Self, LoadError> {
        let components = fitted.matrix("components_")?;
        let (outputs, features) = (components.rows, components.columns);
        if outputs == 0 || features == 0 {
            return Err(fitted.unexpected("components_", "at least one component"));
        }
        let weights = transpose(&components.values, outputs, features);
        let (offset, single) = (vec![0.0; outputs], components.single);
        Ok(Self { mean: None, weights, offset, scale: None, features, single })
    }

    /// Projects with the first `outputs` columns of `(x - mean) @ weights`.
    pub(super) fn through(weights: &[f64], columns: usize, outputs: usize, mean: Option<Vec<f64>>) -> Self {
        let features = weights.len() / columns.max(1);
        let kept = weights.chunks_exact(columns.max(1)).flat_map(|row| &row[..outputs]).copied().collect();
        let mean = mean.map(|mean| (mean, false));
        Self { mean, weights: kept, offset: vec![0.0; outputs], scale: None, features, single: false }
    }

    pub(super) fn apply(&self, data: &TableData<'_>, info: &EstimatorInfo) -> Result<TableData<'static>, PredictError> {
        if let TableData::Sparse(sparse) = data {
            info.finite_sparse(sparse)?;
            return Ok(TableData::Table(DenseTable::of_f64(
                sparse.affine(&self.weights, &self.offset),
                self.offset.len(),
            )));
        }
        let x = info.finite(data)?;
        let mut rows = x.to_f64();
        if let Some((mean, rounds)) = &self.mean {
            let rounds = *rounds && x.is_single();
            let centerd = rows.chunks_exact(self.features).flat_map(|row| row.iter().zip(mean)).map(|(x, mean)| {
                let difference = x - mean;
                if rounds { f64::from(to_f32(difference)) } else { difference }
            });
            rows = Cow::Owned(centerd.collect());
        }
        let mut values = affine(&rows, self.features, &self.weights, &self.offset);
        let columns = self.offset.len();
        if let Some(scale) = &self.scale {
            for row in values.chunks_exact_mut(columns) {
                row.iter_mut().zip(scale).for_each(|(value, scale)| *value /= scale);
            }
        }
        let elements = if self.single && x.is_single() {
            Elements::F32(values.into_iter().map(to_f32).collect())
        } else {
            Elements::F64(values.into())
        };
        Ok(TableData::Table(DenseTable { elements, rows: x.rows, columns }))
    }
}

fn family(projection: Projection) -> EstimatorSpec {
    EstimatorSpec::new(MethodSet::TRANSFORM, projection.features, projection)
}

fn principal(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let mut projection = Projection::onto(fitted)?;
    let features = projection.features;
    // The result of two single-precision operands has single precision, too.
    let single = projection.single;
    let round = |value: f64| if single { f64::from(to_f32(value)) } else { value };
    let newer = fitted.version() >= SklearnVersion(1, 5);
    if fitted.get("mean_").is_some() {
        let mean = fitted.floats_of("mean_", features)?;
        if newer {
            let center = affine(&mean, features, &projection.weights, &projection.offset);
            projection.offset = center.into_iter().map(|value| -round(value)).collect();
        } else {
            projection.mean = Some((mean, false));
        }
    }
    if fitted.flag("whiten")? {
        let variance = fitted.floats_of("explained_variance_", projection.offset.len())?;
        let smallest = match (newer, projection.single) {
            (false, _) => 0.0,
            (true, false) => f64::EPSILON,
            (true, true) => f64::from(f32::EPSILON),
        };
        projection.scale = Some(variance.into_iter().map(|variance| round(variance.sqrt()).max(smallest)).collect());
    }
    Ok(family(projection))
}

fn truncated(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    Ok(family(Projection::onto(fitted)?))
}

fn independent(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let mut projection = Projection::onto(fitted)?;
    if fitted.get("mean_").is_some() {
        projection.mean = Some((fitted.floats_of("mean_", projection.features)?, true));
    }
    Ok(family(projection))
}

impl Evaluate for Projection {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        self.apply(data, info)
    }

    fn takes_sparse(&self) -> bool {
        self.mean.is_none() && self.scale.is_none() && !self.single
    }

    fn cost(&self) -> u64 {
        50 + self.weights.len() as u64
    }
}
