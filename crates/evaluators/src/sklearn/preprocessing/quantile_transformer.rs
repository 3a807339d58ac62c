//! `QuantileTransformer`.

use std::sync::Arc;

use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{EstimatorInfo, Evaluate};
use crate::sklearn::fitted::FittedObject;
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::numerics::{interpolate, normal_quantile};
use crate::sklearn::spec::EstimatorSpec;
use crate::table::{DenseTable, NumericType, TableData, to_f32};

/// Maps each number to its quantile in the fit, uniformly or normally distributed.
#[derive(Debug)]
struct QuantileTransformer {
    /// The value at each quantile of each feature, in ascending order.
    values: Vec<Vec<f64>>,
    /// The quantiles, as fractions.
    references: Vec<f64>,
    normal: bool,
}

/// The smallest distance from 0 and 1 of the quantiles of the normal distribution.
const BOUND: f64 = 1e-7;

pub(super) fn quantile_transformer(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let normal = match fitted.text("output_distribution")? {
        "normal" => true,
        "uniform" => false,
        _ => return Err(fitted.unsupported("output_distribution")),
    };
    let table = fitted.matrix("quantiles_")?;
    let references = fitted.floats_of("references_", table.rows)?;
    if table.values.is_empty() {
        return Err(fitted.unexpected("quantiles_", "at least one quantile"));
    }
    let column = |feature: usize| table.values.iter().skip(feature).step_by(table.columns).copied().collect();
    let values = (0..table.columns).map(column).collect();
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, table.columns, QuantileTransformer { values, references, normal }))
}

impl QuantileTransformer {
    fn apply(&self, feature: usize, x: f64, single: bool) -> f64 {
        if x.is_nan() {
            return x;
        }
        let round = |value: f64| if single { f64::from(to_f32(value)) } else { value };
        let quantiles = &self.values[feature];
        let (first, last) = (quantiles[0], quantiles[quantiles.len() - 1]);
        let (below, above) = if self.normal {
            (round(x - round(BOUND)) < first, round(x + round(BOUND)) > last)
        } else {
            (x.total_cmp(&first).is_eq(), x.total_cmp(&last).is_eq())
        };
        let share = if below {
            0.0
        } else if above {
            1.0
        } else {
            // Interpolates in both directions: if quantiles repeat, each direction finds another end.
            let up = interpolate(x, quantiles.len(), |at| (quantiles[at], self.references[at]));
            let down = interpolate(-x, quantiles.len(), |at| {
                let at = quantiles.len() - 1 - at;
                (-quantiles[at], -self.references[at])
            });
            round(0.5 * (up - down))
        };
        if !self.normal {
            return share;
        }
        let most = BOUND - f64::EPSILON;
        normal_quantile(share).clamp(normal_quantile(most), normal_quantile(1.0 - most))
    }
}

impl Evaluate for QuantileTransformer {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        if matches!(data, TableData::Sparse(_)) {
            // Zeros that are not stored stay zeros, unlike those that are stored.
            return Err(PredictError::NotDense { class: Arc::clone(&info.class) });
        }
        let x = info.numbers(data, true)?;
        let features = self.values.len();
        let single = x.is_single();
        let values = x.to_f64();
        let values = values.iter().enumerate().map(|(index, &value)| self.apply(index % features, value, single));
        let numeric = if single { NumericType::F32 } else { NumericType::F64 };
        Ok(TableData::Table(DenseTable {
            elements: numeric.elements(values.collect()),
            rows: x.rows,
            columns: features,
        }))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        50 + 100 * self.values.len() as u64
    }
}
