//! `PowerTransformer`.

use std::sync::Arc;

use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{Estimator, EstimatorInfo, Evaluate};
use crate::sklearn::fitted::{FittedObject, SklearnVersion};
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::spec::EstimatorSpec;
use crate::table::{DenseTable, NumericType, TableData};

/// Makes features more Gaussian by powers.
#[derive(Debug)]
struct PowerTransformer {
    lambdas: Vec<f64>,
    box_cox: bool,
    /// Whether small differences are computed without loss of precision.
    stable: bool,
    scaler: Option<Estimator>,
}

pub(super) fn power_transformer(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let box_cox = match fitted.text("method")? {
        "box-cox" => true,
        "yeo-johnson" => false,
        _ => return Err(fitted.unsupported("method")),
    };
    let lambdas = fitted.floats("lambdas_")?;
    let features = lambdas.len();
    let scaler = if fitted.flag("standardize")? { Some(fitted.estimator(fitted.require("_scaler")?)?) } else { None };
    if scaler.as_ref().is_some_and(|scaler| {
        !scaler.info.methods.contains(EstimatorMethod::Transform) || scaler.info.features != Some(features)
    }) {
        return Err(fitted.unexpected("_scaler", "a scaler of the same number of features"));
    }
    let stable = fitted.version() >= SklearnVersion(1, 7);
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features, PowerTransformer { lambdas, box_cox, stable, scaler }))
}

impl PowerTransformer {
    fn apply(&self, lambda: f64, x: f64) -> f64 {
        if self.box_cox {
            return if lambda.abs() < 1e-19 { x.ln() } else { (lambda * x.ln()).exp_m1() / lambda };
        }
        let power = |base: f64, exponent: f64| {
            if self.stable { (exponent * base.ln_1p()).exp_m1() } else { (base + 1.0).powf(exponent) - 1.0 }
        };
        if x >= 0.0 {
            if lambda.abs() < f64::EPSILON { x.ln_1p() } else { power(x, lambda) / lambda }
        } else if (lambda - 2.0).abs() > f64::EPSILON {
            -power(-x, 2.0 - lambda) / (2.0 - lambda)
        } else {
            -(-x).ln_1p()
        }
    }
}

impl Evaluate for PowerTransformer {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.numbers(data, true)?;
        let features = self.lambdas.len();
        let values = x.to_f64();
        if self.box_cox && values.iter().any(|&value| value <= 0.0) {
            return Err(PredictError::NotPositive { class: Arc::clone(&info.class) });
        }
        let values = values.iter().enumerate().map(|(index, &value)| self.apply(self.lambdas[index % features], value));
        let numeric = if x.is_single() { NumericType::F32 } else { NumericType::F64 };
        let table = DenseTable { elements: numeric.elements(values.collect()), rows: x.rows, columns: features };
        match &self.scaler {
            Some(scaler) => scaler.call(EstimatorMethod::Transform, &TableData::Table(table)),
            None => Ok(TableData::Table(table)),
        }
    }

    fn cost(&self) -> u64 {
        50 + 60 * self.lambdas.len() as u64
    }
}
