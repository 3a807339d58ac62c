//! Calls the estimators inside of an estimator, and converts their results.

use std::borrow::Cow;
use std::sync::Arc;

use super::error::{LoadError, PredictError};
use super::estimator::{Estimator, EstimatorInfo};
use super::fitted::FittedObject;
use super::method::EstimatorMethod;
use crate::pickle::PickleValue;
use crate::table::{DenseTable, Elements, FloatValues, TableData, to_f32};

/// The numeric result of an estimator, in row-major order.
#[derive(Debug)]
pub(super) struct NumericAnswer {
    pub(super) values: Vec<f64>,
    pub(super) columns: usize,
    /// Whether the numbers have single precision.
    pub(super) single: bool,
}

impl NumericAnswer {
    /// Returns the numbers as a table of the same precision.
    pub(super) fn table(self) -> TableData<'static> {
        let rows = self.values.len() / self.columns.max(1);
        table(self.values, rows, self.columns, self.single)
    }
}

/// Creates a table of double or single precision.
pub(super) fn table(values: Vec<f64>, rows: usize, columns: usize, single: bool) -> TableData<'static> {
    let elements =
        if single { Elements::F32(values.into_iter().map(to_f32).collect()) } else { Elements::F64(values.into()) };
    TableData::Table(DenseTable { elements, rows, columns })
}

impl Estimator {
    /// Calls `method` and returns numbers.
    pub(super) fn numbers(&self, method: EstimatorMethod, data: &TableData<'_>) -> Result<NumericAnswer, PredictError> {
        numbers(&self.call(method, data)?, self, data.rows())
    }

    /// Calls `method` and returns this many numbers for each row.
    pub(super) fn numbers_of(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        wanted: usize,
    ) -> Result<NumericAnswer, PredictError> {
        let answer = self.numbers(method, data)?;
        if answer.columns == wanted {
            return Ok(answer);
        }
        Err(PredictError::Part { class: Arc::clone(&self.info.class), wanted, found: answer.columns })
    }

    /// Returns the method for binary scores: `decision_function`, else `predict_proba`, else `predict`.
    pub(super) const fn scoring(&self) -> EstimatorMethod {
        if self.info.methods.contains(EstimatorMethod::DecisionFunction) {
            EstimatorMethod::DecisionFunction
        } else if self.info.methods.contains(EstimatorMethod::PredictProba) {
            EstimatorMethod::PredictProba
        } else {
            EstimatorMethod::Predict
        }
    }

    /// Returns one number for each row: a prediction, a binary score, or the probability of the second class.
    pub(super) fn score(&self, method: EstimatorMethod, data: &TableData<'_>) -> Result<NumericAnswer, PredictError> {
        if method != EstimatorMethod::PredictProba {
            return self.numbers_of(method, data, 1);
        }
        let both = self.numbers_of(method, data, 2)?;
        let values = both.values.chunks_exact(2).map(|pair| pair[1]).collect();
        Ok(NumericAnswer { values, columns: 1, single: both.single })
    }

    /// Returns the positions of the predicted labels in `labels`.
    pub(super) fn predicted_positions(
        &self,
        data: &TableData<'_>,
        labels: &Elements<'_>,
    ) -> Result<Vec<usize>, PredictError> {
        let unknown = || PredictError::Label { class: Arc::clone(&self.info.class) };
        let answer = self.call(EstimatorMethod::Predict, data)?;
        let TableData::Table(DenseTable { elements, rows, columns: 1 }) = &answer else { return Err(unknown()) };
        if *rows != data.rows() {
            return Err(unknown());
        }
        positions(elements, labels).ok_or_else(unknown)
    }
}

/// Converts the result of an estimator for `rows` rows to numbers.
pub(super) fn numbers(
    answer: &TableData<'_>,
    estimator: &Estimator,
    rows: usize,
) -> Result<NumericAnswer, PredictError> {
    let matrix = estimator.info.unchecked(answer)?;
    if matrix.rows != rows || matrix.columns == 0 {
        return Err(PredictError::Part { class: Arc::clone(&estimator.info.class), wanted: 1, found: 0 });
    }
    Ok(NumericAnswer { columns: matrix.columns, single: matrix.is_single(), values: matrix.to_f64().into_owned() })
}

/// Concatenates results for the same rows by column, in single precision if all of them have it.
pub(super) fn hstack(answers: &[NumericAnswer], rows: usize) -> NumericAnswer {
    let columns = answers.iter().map(|answer| answer.columns).sum();
    let mut values = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        for answer in answers {
            values.extend_from_slice(&answer.values[row * answer.columns..(row + 1) * answer.columns]);
        }
    }
    NumericAnswer { values, columns, single: answers.iter().all(|answer| answer.single) }
}

/// Returns the positions of values in `labels`, or `None` if one is missing.
pub(super) fn positions(values: &Elements<'_>, labels: &Elements<'_>) -> Option<Vec<usize>> {
    match (values, labels) {
        (Elements::Text(values), Elements::Text(labels)) => {
            values.iter().map(|value| labels.iter().position(|label| label == value)).collect()
        }
        (Elements::Text(_), _) | (_, Elements::Text(_)) => None,
        _ => {
            let (values, labels) = (values.floats()?, labels.floats()?);
            #[expect(clippy::float_cmp, reason = "labels are compared exactly")]
            values.iter().map(|value| labels.iter().position(|label| label == value)).collect()
        }
    }
}

/// Returns what `check_array` makes of an input: an array without names, with its numbers unchanged, sparse or dense.
pub(super) fn check_array<'d>(data: &'d TableData<'_>, info: &EstimatorInfo) -> Result<TableData<'d>, PredictError> {
    match data {
        TableData::Table(table) => return Ok(TableData::Table(table.borrowed())),
        TableData::Sparse(sparse) => return Ok(TableData::Sparse(sparse.clone())),
        TableData::Frame(_) => {}
    }
    let matrix = info.unchecked(data)?;
    let (rows, columns) = (matrix.rows, matrix.columns);
    let elements = match matrix.floats {
        FloatValues::F32(values) => Elements::F32(values),
        FloatValues::F64(values) => Elements::F64(values),
    };
    Ok(TableData::Table(DenseTable { elements, rows, columns }))
}

impl DenseTable<'_> {
    /// Borrows a table without copying its numbers.
    fn borrowed(&self) -> DenseTable<'_> {
        let elements = match &self.elements {
            Elements::F32(values) => Elements::F32(Cow::Borrowed(values)),
            Elements::F64(values) => Elements::F64(Cow::Borrowed(values)),
            Elements::Int(values, kind) => Elements::Int(Cow::Borrowed(values), *kind),
            Elements::Text(values) => Elements::Text(values.clone()),
            Elements::PartialText(values) => Elements::PartialText(values.clone()),
        };
        DenseTable { elements, rows: self.rows, columns: self.columns }
    }
}

/// Loads the estimators of a list, of which there must be at least one.
pub(super) fn sub_estimators(fitted: &FittedObject<'_>, attribute: &'static str) -> Result<Vec<Estimator>, LoadError> {
    let members = fitted.items(attribute)?;
    if members.is_empty() {
        return Err(fitted.unexpected(attribute, "at least one estimator"));
    }
    members.into_iter().map(|member| fitted.estimator(member)).collect()
}

/// Returns the total cost of estimators for one row.
pub(super) fn cost<'e>(members: impl IntoIterator<Item = &'e Estimator>) -> u64 {
    members.into_iter().map(|member| member.evaluate.cost()).fold(50, u64::saturating_add)
}

/// Finds the class labels of an estimator in any of the attributes that may hold them.
pub(super) fn labels(fitted: &FittedObject<'_>, estimator: PickleValue<'_>) -> Option<Elements<'static>> {
    let mut value = estimator;
    // No deeper than estimators may be nested, because an object may contain itself.
    for _ in 0..32 {
        if let Some(labels) = value.attribute("classes_").filter(|labels| !labels.is_none()) {
            return fitted.elements(labels);
        }
        let inner = |name| value.attribute(name).filter(|inner: &PickleValue<'_>| !inner.is_none());
        value = match inner("steps") {
            Some(steps) => steps.items()?.last()?.items()?.get(1).copied()?,
            None => ["best_estimator_", "label_binarizer_", "_label_binarizer", "estimator_", "estimator"]
                .into_iter()
                .find_map(inner)?,
        };
    }
    None
}

/// Returns the class labels as indices below `limit`, if they are numbers.
pub(super) fn numbered_labels(
    fitted: &FittedObject<'_>,
    labels: Option<Elements<'_>>,
    limit: usize,
) -> Option<Vec<usize>> {
    fitted.spend(limit).ok()?;
    let all: Vec<i64> = (0..i64::try_from(limit).ok()?).collect();
    positions(&labels?, &Elements::Int(all.into(), crate::table::IntType::I64))
}
