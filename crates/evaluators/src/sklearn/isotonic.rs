//! Isotonic regression.

use std::sync::Arc;

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::spec::{ClassTable, EstimatorSpec};
use super::sub_estimators;
use crate::table::{TableData, to_f32};

pub(super) const CLASSES: ClassTable = &[("isotonic.IsotonicRegression", isotonic)];

/// A piecewise linear function.
#[derive(Debug)]
pub(super) struct Isotonic {
    /// In ascending order.
    x: Vec<f64>,
    y: Vec<f64>,
    single: bool,
    outside: OutOfBounds,
}

/// What happens to numbers outside of the range of the fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutOfBounds {
    Clip,
    Missing,
    Refuse,
}

impl Isotonic {
    pub(super) fn load(fitted: &FittedObject<'_>) -> Result<Self, LoadError> {
        let x = fitted.matrix("X_thresholds_")?;
        let y = fitted.floats_of("y_thresholds_", x.values.len())?;
        if x.values.is_empty() || !x.values.is_sorted() {
            return Err(fitted.unexpected("X_thresholds_", "ascending numbers"));
        }
        let outside = match fitted.text("out_of_bounds")? {
            "clip" => OutOfBounds::Clip,
            "nan" => OutOfBounds::Missing,
            "raise" => OutOfBounds::Refuse,
            _ => return Err(fitted.unsupported("out_of_bounds")),
        };
        // The thresholds may have single precision in the file.
        Ok(Self { x: x.values, y, single: x.single, outside })
    }

    /// Returns the value at a finite number, or `None` outside of the range.
    fn at(&self, number: f64) -> Option<f64> {
        let (first, last) = (self.x[0], self.x[self.x.len() - 1]);
        let number = if self.outside == OutOfBounds::Clip { number.clamp(first, last) } else { number };
        let number = if self.single { f64::from(to_f32(number)) } else { number };
        if self.x.len() == 1 {
            return Some(self.y[0]);
        }
        if number < first || number > last {
            return None;
        }
        let after = self.x.partition_point(|&x| x <= number);
        let before = after.saturating_sub(1);
        if after == self.x.len() {
            return Some(self.y[before]);
        }
        let slope = (self.y[after] - self.y[before]) / (self.x[after] - self.x[before]);
        Some(slope * (number - self.x[before]) + self.y[before])
    }

    pub(super) fn of(&self, numbers: &[f64], class: &Arc<str>) -> Result<Vec<f64>, PredictError> {
        let value = |&number: &f64| {
            if !number.is_finite() {
                return Err(PredictError::NotFinite { class: Arc::clone(class) });
            }
            match self.at(number) {
                Some(value) => Ok(value),
                None if self.outside == OutOfBounds::Missing => Ok(f64::NAN),
                None => Err(PredictError::Range { class: Arc::clone(class) }),
            }
        };
        numbers.iter().map(value).collect()
    }
}

fn isotonic(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    Ok(EstimatorSpec::new(MethodSet::PREDICT.with(EstimatorMethod::Transform), 1, Isotonic::load(fitted)?))
}

impl Evaluate for Isotonic {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let values = self.of(&x.to_f64(), &info.class)?;
        Ok(sub_estimators::table(values, x.rows, 1, self.single))
    }

    fn cost(&self) -> u64 {
        20 + 2 * u64::from(self.x.len().ilog2())
    }
}
