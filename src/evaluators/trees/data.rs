//! Rows that go in, and predictions that come out.

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
/// Integers and booleans of any width are to be cast to `f32` before: both libraries read them so. A missing value is a
/// NaN.
#[derive(Debug, Clone, Copy)]
pub enum FeatureValues<'a> {
    /// Single precision.
    F32(&'a [f32]),
    /// Double precision.
    F64(&'a [f64]),
}

/// Which of a model's answers is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnsembleOutput {
    /// What `predict` of the Python runtime answers.
    Predict,
    /// Class probabilities.
    PredictProba,
    /// The sum over all trees, before any transformation.
    Margin,
}

/// A model's answer, in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// One row of values for each row that went in.
    pub values: PredictedValues,
    /// Values to a row.
    pub columns: usize,
}

/// The elements of a prediction; the variant is the datatype.
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

/// Rows as an evaluator reads them.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputRows<'a, S, F> {
    pub(super) values: &'a [S],
    /// Values in a row.
    pub(super) features: usize,
    pub(super) convert: F,
}

impl<'a> FeatureMatrix<'a> {
    /// Makes a matrix of `rows` times `columns` values.
    pub fn new(values: FeatureValues<'a>, rows: usize, columns: usize) -> Result<Self, PredictError> {
        let found = values.len();
        if rows.checked_mul(columns) == Some(found) {
            Ok(Self { values, rows, columns })
        } else {
            Err(PredictError::Shape { rows, columns, found })
        }
    }

    /// How many rows there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many values a row has.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The rows for an evaluator: some of the values, and how each becomes a number of the evaluator's type.
    pub(super) fn input<S, F>(&self, values: &'a [S], convert: F) -> InputRows<'a, S, F> {
        InputRows { values, features: self.columns, convert }
    }

    /// All values.
    pub fn values(&self) -> FeatureValues<'a> {
        self.values
    }
}

impl FeatureValues<'_> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
