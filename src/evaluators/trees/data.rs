//! Input rows and predictions.

use super::error::PredictError;

/// A borrowed matrix in row-major order.
#[derive(Debug, Clone, Copy)]
pub struct FeatureMatrix<'a> {
    values: FeatureValues<'a>,
    rows: usize,
    columns: usize,
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
}

impl<'a> FeatureMatrix<'a> {
    /// Creates a matrix of `rows` times `columns` values.
    pub fn new(values: FeatureValues<'a>, rows: usize, columns: usize) -> Result<Self, PredictError> {
        let found = values.len();
        if rows.checked_mul(columns) == Some(found) {
            Ok(Self { values, rows, columns })
        } else {
            Err(PredictError::Shape { rows, columns, found })
        }
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
        InputRows { values, features: self.columns, convert }
    }

    /// Returns all values.
    pub fn values(&self) -> FeatureValues<'a> {
        self.values
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
