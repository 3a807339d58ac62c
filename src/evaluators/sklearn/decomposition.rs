//! Transformers that project rows onto components.

use std::borrow::Cow;

use super::classes::{Classes, Family};
use super::data::{Data, Elements, Table, to_f32};
use super::error::{LoadError, PredictError};
use super::estimator::{About, Evaluate, Method, Methods};
use super::fitted::{Fitted, Version};
use super::numerics::{affine, transpose};

pub(super) const CLASSES: Classes = &[
    ("decomposition.FastICA", independent),
    ("decomposition.IncrementalPCA", principal),
    ("decomposition.PCA", principal),
    ("decomposition.TruncatedSVD", truncated),
];

/// `(x - mean) @ weights - offset`, divided by a scale.
#[derive(Debug)]
pub(super) struct Projection {
    /// What is subtracted from rows, and whether the difference keeps their precision.
    mean: Option<(Vec<f64>, bool)>,
    /// A row for each feature.
    weights: Vec<f64>,
    /// What is subtracted from projected rows, negative.
    offset: Vec<f64>,
    scale: Option<Vec<f64>>,
    features: usize,
    /// Whether the file has single precision, so that inputs of single precision have answers of that.
    single: bool,
}

impl Projection {
    /// `x @ components.T`; the components are rows.
    fn onto(fitted: &Fitted<'_>) -> Result<Self, LoadError> {
        let components = fitted.matrix("components_")?;
        let (outputs, features) = (components.rows, components.columns);
        if outputs == 0 || features == 0 {
            return Err(fitted.unexpected("components_", "at least one component"));
        }
        let weights = transpose(&components.values, outputs, features);
        let (offset, single) = (vec![0.0; outputs], components.single);
        Ok(Self { mean: None, weights, offset, scale: None, features, single })
    }

    /// `(x - mean) @ weights`, of which the first `outputs` columns count.
    pub(super) fn through(weights: &[f64], columns: usize, outputs: usize, mean: Option<Vec<f64>>) -> Self {
        let features = weights.len() / columns.max(1);
        let kept = weights.chunks_exact(columns.max(1)).flat_map(|row| &row[..outputs]).copied().collect();
        let mean = mean.map(|mean| (mean, false));
        Self { mean, weights: kept, offset: vec![0.0; outputs], scale: None, features, single: false }
    }

    pub(super) fn apply(&self, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        if let Data::Sparse(sparse) = data {
            about.finite_sparse(sparse)?;
            return Ok(Data::Table(Table::of_f64(sparse.affine(&self.weights, &self.offset), self.offset.len())));
        }
        let x = about.finite(data)?;
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
        Ok(Data::Table(Table { elements, rows: x.rows, columns }))
    }
}

fn family(projection: Projection) -> Family {
    Family::new(Methods::TRANSFORM, projection.features, projection)
}

fn principal(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let mut projection = Projection::onto(fitted)?;
    let features = projection.features;
    // What is made of two numbers of single precision has it too.
    let single = projection.single;
    let round = |value: f64| if single { f64::from(to_f32(value)) } else { value };
    let newer = fitted.version() >= Version(1, 5);
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

fn truncated(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    Ok(family(Projection::onto(fitted)?))
}

fn independent(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let mut projection = Projection::onto(fitted)?;
    if fitted.get("mean_").is_some() {
        projection.mean = Some((fitted.floats_of("mean_", projection.features)?, true));
    }
    Ok(family(projection))
}

impl Evaluate for Projection {
    fn call(&self, _: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        self.apply(data, about)
    }

    fn takes_sparse(&self) -> bool {
        self.mean.is_none() && self.scale.is_none() && !self.single
    }

    fn cost(&self) -> u64 {
        50 + self.weights.len() as u64
    }
}
