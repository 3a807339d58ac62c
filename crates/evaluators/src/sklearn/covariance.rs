//! Outliers by their Mahalanobis distance.

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{affine, dot};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, IntType, TableData};

pub(super) const CLASSES: ClassTable = &[("covariance.EllipticEnvelope", envelope)];

#[derive(Debug)]
struct Envelope {
    location: Vec<f64>,
    precision: Vec<f64>,
    offset: f64,
}

fn envelope(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let precision = fitted.double_matrix("precision_")?;
    let features = precision.columns;
    fitted.check_count("precision_", features, precision.rows)?;
    let location = fitted.floats_of("location_", features)?;
    let envelope = Envelope { location, precision: precision.values, offset: fitted.number("offset_")? };
    Ok(EstimatorSpec::new(MethodSet::PREDICT.with(EstimatorMethod::DecisionFunction), features, envelope))
}

impl Evaluate for Envelope {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let features = self.location.len();
        let zeros = vec![0.0; features];
        let decision = |row: &[f64]| {
            let difference: Vec<f64> = row.iter().zip(&self.location).map(|(x, center)| x - center).collect();
            let distance = dot(&difference, &affine(&difference, features, &self.precision, &zeros)).sqrt();
            -(distance * distance) - self.offset
        };
        let decisions = x.to_f64().chunks_exact(features).map(decision).collect::<Vec<_>>();
        Ok(TableData::Table(if method == EstimatorMethod::Predict {
            let inside = decisions.iter().map(|&decision| if decision >= 0.0 { 1 } else { -1 }).collect();
            DenseTable::of_column(Elements::Int(inside, IntType::I64))
        } else {
            DenseTable::of_f64(decisions, 1)
        }))
    }

    fn cost(&self) -> u64 {
        50 + self.precision.len() as u64
    }
}
