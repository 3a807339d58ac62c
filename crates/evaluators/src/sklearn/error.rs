//! Why an artifact is not evaluated natively, and why a request cannot be answered.

use std::sync::Arc;

use thiserror::Error;

use super::method::EstimatorMethod;
use crate::pickle::PickleError;
use crate::skops::SkopsError;
use crate::trees::{self, NoContributions};

/// An artifact that is damaged, or that contains something that is not evaluated natively.
#[derive(Debug, Error)]
pub enum LoadError {
    #[error(transparent)]
    Pickle(#[from] PickleError),
    #[error(transparent)]
    Skops(#[from] SkopsError),
    /// The file is not an estimator, or an object that has to be an estimator is something else.
    #[error("expected a scikit-learn estimator, found `{found}`")]
    Class { found: String },
    /// Older files are untested, and the format of newer ones is not known yet.
    #[error("`{class}` was written by scikit-learn {found}; versions 0.24 to 1.9 are evaluated natively")]
    Version { class: String, found: String },
    #[error("`{class}` has no attribute `{attribute}`: it was not fitted, or the file is damaged")]
    Missing { class: String, attribute: &'static str },
    #[error("`{attribute}` of `{class}`: expected {wanted}, found `{found}`")]
    Attribute { class: String, attribute: &'static str, wanted: &'static str, found: String },
    #[error("`{attribute}` of `{class}` has {found} values instead of {wanted}")]
    Count { class: String, attribute: &'static str, wanted: usize, found: usize },
    /// A parameter has a value that would be evaluated inexactly, or not at all.
    #[error("`{class}` with `{parameter}` = `{value}` is not evaluated natively")]
    Parameter { class: String, parameter: &'static str, value: String },
    /// Python would call the attribute instead of the method.
    #[error(
        "`{class}` has an attribute `{method}`, which replaces a method of the class, so it is not evaluated natively"
    )]
    Method { class: String, method: String },
    /// The booster of another library inside of the estimator was rejected.
    #[error("`{class}`: {error}")]
    Booster { class: String, error: Box<trees::LoadError> },
    #[error("estimators are nested more than {limit} levels deep")]
    Nesting { limit: usize },
    /// The same arrays are referenced again and again, more often than the size of the file allows.
    #[error("the model would need much more memory than the size of its file")]
    TooLarge,
}

impl LoadError {
    /// Returns whether Python may be able to load the artifact: it is not damaged, only not supported natively.
    pub const fn is_refusal(&self) -> bool {
        match self {
            Self::Pickle(
                PickleError::Truncated { .. }
                | PickleError::Opcode { .. }
                | PickleError::Text { .. }
                | PickleError::Decompress { .. },
            ) => false,
            Self::Skops(error) => error.is_refusal(),
            _ => true,
        }
    }
}

/// Why an estimator does not explain its predictions.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unexplained {
    /// It has no trees, or combines them in another way.
    #[error(
        "scikit-learn's decision trees, extra trees, random forests, gradient boosting and histogram boosting have it, and the \
         models of XGBoost and LightGBM"
    )]
    Class,
    /// The model sees other features than those of the request.
    #[error(
        "its last step sees transformed features, not those of the request; serve the last step as a model of its own, and send it \
         transformed features"
    )]
    Pipeline,
    /// The sums start with predictions of a model that is not constant.
    #[error("its sums start with predictions of `{class}`, to which features contribute, too")]
    Start {
        /// The class of the initial estimator.
        class: String,
    },
}

/// A request that a model cannot answer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PredictError {
    #[error("`{class}` takes {wanted} features, but each row has {found}")]
    Features { class: Arc<str>, wanted: usize, found: usize },
    #[error("column {index} is `{found}`, but `{class}` was fitted with `{wanted}` in that position")]
    FeatureName { class: Arc<str>, index: usize, found: String, wanted: String },
    #[error("`{class}` needs the column `{name}`, which is missing")]
    MissingColumn { class: Arc<str>, name: String },
    /// Columns are selected by name, and an array has no names.
    #[error("`{class}` finds columns by name: send a data frame, with the content type `pd`")]
    NotFrame { class: Arc<str> },
    #[error("`{class}` does not accept missing or infinite values")]
    NotFinite { class: Arc<str> },
    #[error("`{class}` takes numbers, but the input has text")]
    Text { class: Arc<str> },
    /// A sparse result is sent as a dense tensor.
    #[error("`{method}` returns {rows} rows of {columns} numbers, more than {most} in total: send fewer rows at once")]
    Sparse { method: EstimatorMethod, rows: usize, columns: usize, most: usize },
    #[error("`{method}` returns both text and numbers, which a tensor cannot hold")]
    Objects { method: EstimatorMethod },
    #[error("column {column} has a value that `{class}` was not fitted with")]
    UnknownCategory { class: Arc<str>, column: usize },
    #[error("column {column} has missing values, but had none when `{class}` was fitted")]
    NewMissing { class: Arc<str>, column: usize },
    #[error("column {column} has values beyond the knots of `{class}`")]
    BeyondKnots { class: Arc<str>, column: usize },
    #[error("`{class}` accepts only positive numbers")]
    NotPositive { class: Arc<str> },
    #[error("`{class}` does not accept negative numbers")]
    Negative { class: Arc<str> },
    /// Integers of this type would overflow, or be truncated in a way that is not reproduced.
    #[error(
        "`{class}` is evaluated natively for FP64, FP32 and moderate INT64 or INT32, but not for other integers: send FP64"
    )]
    NotFloat { class: Arc<str> },
    #[error(
        "`{class}` takes numbers of the precision that it was fitted with: send FP64 instead of FP32, or the reverse"
    )]
    Precision { class: Arc<str> },
    #[error("`{class}` is not evaluated natively for single precision: send FP64")]
    NotDouble { class: Arc<str> },
    #[error("`{class}` takes one text per row")]
    NotText { class: Arc<str> },
    #[error("`{class}` is not evaluated natively for sparse rows")]
    NotDense { class: Arc<str> },
    #[error("a row has no neighbors within the radius of `{class}`, which has no outlier label")]
    NoNeighbors { class: Arc<str> },
    /// A nested estimator does not return what the outer one needs: the parts of the file do not fit together.
    #[error("`{class}` returns {found} columns, but the model that contains it needs {wanted}")]
    Part { class: Arc<str>, wanted: usize, found: usize },
    /// A nested estimator predicts a class that the outer one does not know.
    #[error("`{class}` predicts a class that the model that contains it does not know")]
    Label { class: Arc<str> },
    /// The estimator is configured to fail outside of the range that it was fitted on.
    #[error("the input is outside of the range that `{class}` was fitted on")]
    Range { class: Arc<str> },
    /// The result is a list of tables.
    #[error("`{method}` of `{class}` returns a list of tables, which a response cannot hold")]
    Several { class: Arc<str>, method: EstimatorMethod },
    /// The model does not explain its predictions.
    #[error("`{class}` has no output `{output}`: {reason}")]
    Unexplained { class: Arc<str>, output: &'static str, reason: Unexplained },
    /// The model lacks what contributions need.
    #[error("`{class}` has no contributions: {error}")]
    NoContributions { class: Arc<str>, error: NoContributions },
    /// Leaves have no numbers.
    #[error("`{class}` has no numbers of leaves")]
    NoLeaves { class: Arc<str> },
    /// The caller does not wait for the result anymore.
    #[error("the prediction was cancelled")]
    Cancelled,
    #[error("`{class}` models do not support `{method}`")]
    Method { class: Arc<str>, method: EstimatorMethod },
}
