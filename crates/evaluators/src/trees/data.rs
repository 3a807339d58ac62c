//! Input rows and predictions.

use std::sync::atomic::{AtomicBool, Ordering};

use super::error::PredictError;

/// A borrowed matrix in row-major order.
#[derive(Debug, Clone, Copy)]
pub struct FeatureMatrix<'a> {
    values: FeatureValues<'a>,
    rows: usize,
    columns: usize,
    stop: Option<&'a AtomicBool>,
}

/// The elements of a matrix.
///
/// Integers and booleans of any width must be cast to `f32` first, as both libraries do. NaN is a missing value.
#[derive(Debug, Clone, Copy)]
pub enum FeatureValues<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Double precision.
    F64(&'a [f64]),
}

/// Which output of a model is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnsembleOutput {
    /// What `predict` of the Python library returns.
    Predict,
    /// Class probabilities.
    PredictProba,
    /// The sum over all trees, before any transformation.
    Margin,
    /// The contribution of each feature to the sum, and then the sum of an average row; all of an output before the next output.
    Contributions,
    /// The number of the leaf that a row arrives at, for each tree.
    Leaf,
}

/// The output of a model, in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// One row of values for each input row.
    pub values: PredictedValues,
    /// Number of values in a row.
    pub columns: usize,
}

/// The values of a prediction. The variant is the datatype.
#[derive(Debug, Clone, PartialEq)]
pub enum PredictedValues {
    /// `INT32`
    I32(Vec<i32>),
    /// `INT64`
    I64(Vec<i64>),
    /// `FP32`
    F32(Vec<f32>),
    /// `FP64`
    F64(Vec<f64>),
}

/// Rows in the form that an evaluator reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputRows<'a, S, F> {
    pub(super) values: &'a [S],
    /// Number of values in a row.
    pub(super) features: usize,
    pub(super) convert: F,
    /// Stops the evaluation when it is set.
    pub(super) stop: Option<&'a AtomicBool>,
}

impl<S, F> InputRows<'_, S, F> {
    /// Returns whether the evaluation is to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }
}

impl<'a> FeatureMatrix<'a> {
    /// Creates a matrix of `rows` times `columns` values.
    pub fn new(values: FeatureValues<'a>, rows: usize, columns: usize) -> Result<Self, PredictError> {
        let found = values.len();
        if rows.checked_mul(columns) == Some(found) {
            Ok(Self { values, rows, columns, stop: None })
        } else {
            Err(PredictError::Shape { rows, columns, found })
        }
    }

    /// Sets a flag that stops the evaluation: it is checked before each block of rows.
    #[must_use]
    pub const fn until(self, stop: &'a AtomicBool) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Returns whether the evaluation is to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of values in a row.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Returns rows for an evaluator: some of the values, and their conversion to the evaluator's type.
    pub(super) fn input<S, F>(&self, values: &'a [S], convert: F) -> InputRows<'a, S, F> {
        InputRows { values, features: self.columns, convert, stop: self.stop }
    }

    /// Returns all values.
    pub fn values(&self) -> FeatureValues<'a> {
        self.values
    }
}

impl Prediction {
    /// Adds the rows of another prediction of the same model and output.
    pub(crate) fn append(&mut self, other: Self) {
        match (&mut self.values, other.values) {
            (PredictedValues::I32(own), PredictedValues::I32(values)) => own.extend(values),
            (PredictedValues::I64(own), PredictedValues::I64(values)) => own.extend(values),
            (PredictedValues::F32(own), PredictedValues::F32(values)) => own.extend(values),
            (PredictedValues::F64(own), PredictedValues::F64(values)) => own.extend(values),
            // An output has one type.
            _ => {}
        }
    }

    /// Returns the size of a row in a response, in bytes.
    pub(super) const fn row_width(&self) -> usize {
        let width = match &self.values {
            PredictedValues::I32(_) | PredictedValues::F32(_) => 4,
            PredictedValues::I64(_) | PredictedValues::F64(_) => 8,
        };
        self.columns * width
    }
}

impl FeatureValues<'_> {
    /// Returns the number of values.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
