//! Estimators within estimators: what they are asked, and what their answers are taken for.

use std::borrow::Cow;
use std::sync::Arc;

use super::data::{Data, Elements, Floats, Table, to_f32};
use super::error::{LoadError, PredictError};
use super::estimator::{About, Estimator, Method};
use super::fitted::Fitted;
use crate::pickle::Value;

/// Numbers that an estimator answered, row by row.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) values: Vec<f64>,
    pub(super) columns: usize,
    /// Whether they have single precision.
    pub(super) single: bool,
}

impl Answer {
    /// The numbers as a table, of the precision that they have.
    pub(super) fn table(self) -> Data<'static> {
        let rows = self.values.len() / self.columns.max(1);
        table(self.values, (rows, self.columns), self.single)
    }
}

/// A table of double or single precision.
pub(super) fn table(values: Vec<f64>, (rows, columns): (usize, usize), single: bool) -> Data<'static> {
    let elements =
        if single { Elements::F32(values.into_iter().map(to_f32).collect()) } else { Elements::F64(values.into()) };
    Data::Table(Table { elements, rows, columns })
}

impl Estimator {
    /// Answers `method` as numbers.
    pub(super) fn numbers(&self, method: Method, data: &Data<'_>) -> Result<Answer, PredictError> {
        numbers(&self.call(method, data)?, self, data.rows())
    }

    /// Answers `method` as so many numbers for each row.
    pub(super) fn numbers_of(&self, method: Method, data: &Data<'_>, wanted: usize) -> Result<Answer, PredictError> {
        let answer = self.numbers(method, data)?;
        if answer.columns == wanted {
            return Ok(answer);
        }
        Err(PredictError::Part { class: Arc::clone(&self.about.class), wanted, found: answer.columns })
    }

    /// What scores of two classes are answered by: what a classifier decides by, or what anything else predicts.
    pub(super) const fn scoring(&self) -> Method {
        if self.about.methods.contains(Method::DecisionFunction) {
            Method::DecisionFunction
        } else if self.about.methods.contains(Method::PredictProba) {
            Method::PredictProba
        } else {
            Method::Predict
        }
    }

    /// A number for each row: a prediction, the score of two classes, or the probability of the second one.
    pub(super) fn score(&self, method: Method, data: &Data<'_>) -> Result<Answer, PredictError> {
        if method != Method::PredictProba {
            return self.numbers_of(method, data, 1);
        }
        let both = self.numbers_of(method, data, 2)?;
        let values = both.values.chunks_exact(2).map(|pair| pair[1]).collect();
        Ok(Answer { values, columns: 1, single: both.single })
    }

    /// Where each row's predicted label is among `labels`.
    pub(super) fn places(&self, data: &Data<'_>, labels: &Elements<'_>) -> Result<Vec<usize>, PredictError> {
        let unknown = || PredictError::Label { class: Arc::clone(&self.about.class) };
        let answer = self.call(Method::Predict, data)?;
        let Data::Table(Table { elements, rows, columns: 1 }) = &answer else { return Err(unknown()) };
        if *rows != data.rows() {
            return Err(unknown());
        }
        positions(elements, labels).ok_or_else(unknown)
    }
}

/// What an estimator answered for so many rows, as numbers.
pub(super) fn numbers(answer: &Data<'_>, estimator: &Estimator, rows: usize) -> Result<Answer, PredictError> {
    let matrix = estimator.about.unchecked(answer)?;
    if matrix.rows != rows || matrix.columns == 0 {
        return Err(PredictError::Part { class: Arc::clone(&estimator.about.class), wanted: 1, found: 0 });
    }
    Ok(Answer { columns: matrix.columns, single: matrix.is_single(), values: matrix.to_f64().into_owned() })
}

/// Answers for the same rows, side by side; in single precision if all of them are.
pub(super) fn beside(answers: &[Answer], rows: usize) -> Answer {
    let columns = answers.iter().map(|answer| answer.columns).sum();
    let mut values = Vec::with_capacity(rows * columns);
    for row in 0..rows {
        for answer in answers {
            values.extend_from_slice(&answer.values[row * answer.columns..(row + 1) * answer.columns]);
        }
    }
    Answer { values, columns, single: answers.iter().all(|answer| answer.single) }
}

/// Where each of some values is among `labels`; `None` if one is not there.
pub(super) fn positions(values: &Elements<'_>, labels: &Elements<'_>) -> Option<Vec<usize>> {
    match (values, labels) {
        (Elements::Text(values), Elements::Text(labels)) => {
            values.iter().map(|value| labels.iter().position(|label| label == value)).collect()
        }
        (Elements::Text(_), _) | (_, Elements::Text(_)) => None,
        _ => {
            let (values, labels) = (values.floats()?, labels.floats()?);
            #[expect(clippy::float_cmp, reason = "labels are equal or are other labels")]
            values.iter().map(|value| labels.iter().position(|label| label == value)).collect()
        }
    }
}

/// What `check_array` makes of an input: an array without names, its numbers as they are, sparse ones too.
pub(super) fn plain<'d>(data: &'d Data<'_>, about: &About) -> Result<Data<'d>, PredictError> {
    match data {
        Data::Table(table) => return Ok(Data::Table(table.borrowed())),
        Data::Sparse(sparse) => return Ok(Data::Sparse(sparse.clone())),
        Data::Frame(_) => {}
    }
    let matrix = about.unchecked(data)?;
    let (rows, columns) = (matrix.rows, matrix.columns);
    let elements = match matrix.floats {
        Floats::F32(values) => Elements::F32(values),
        Floats::F64(values) => Elements::F64(values),
    };
    Ok(Data::Table(Table { elements, rows, columns }))
}

impl Table<'_> {
    /// The same table; numbers are not copied.
    fn borrowed(&self) -> Table<'_> {
        let elements = match &self.elements {
            Elements::F32(values) => Elements::F32(Cow::Borrowed(values)),
            Elements::F64(values) => Elements::F64(Cow::Borrowed(values)),
            Elements::Int(values, kind) => Elements::Int(Cow::Borrowed(values), *kind),
            Elements::Text(values) => Elements::Text(values.clone()),
        };
        Table { elements, rows: self.rows, columns: self.columns }
    }
}

/// The estimators of a list, of which there is at least one.
pub(super) fn sub_estimators(fitted: &Fitted<'_>, attribute: &'static str) -> Result<Vec<Estimator>, LoadError> {
    let members = fitted.items(attribute)?;
    if members.is_empty() {
        return Err(fitted.unexpected(attribute, "at least one estimator"));
    }
    members.into_iter().map(|member| fitted.estimator(member)).collect()
}

/// The work of all, for one row.
pub(super) fn cost<'e>(members: impl IntoIterator<Item = &'e Estimator>) -> u64 {
    members.into_iter().map(|member| member.evaluate.cost()).fold(50, u64::saturating_add)
}

/// The labels of the classes that an estimator tells apart, wherever its class keeps them.
pub(super) fn labels(fitted: &Fitted<'_>, estimator: Value<'_>) -> Option<Elements<'static>> {
    let mut value = estimator;
    // As deep as estimators may be nested, and no deeper: an object may hold itself.
    for _ in 0..32 {
        if let Some(labels) = value.attribute("classes_").filter(|labels| !labels.is_none()) {
            return fitted.elements(labels);
        }
        let inner = |name| value.attribute(name).filter(|inner: &Value<'_>| !inner.is_none());
        value = match inner("steps") {
            Some(steps) => steps.items()?.last()?.items()?.get(1).copied()?,
            None => ["best_estimator_", "label_binarizer_", "_label_binarizer", "estimator_", "estimator"]
                .into_iter()
                .find_map(inner)?,
        };
    }
    None
}

/// The labels of classes that are numbered.
pub(super) fn numbered(fitted: &Fitted<'_>, labels: Option<Elements<'_>>, limit: usize) -> Option<Vec<usize>> {
    fitted.spend(limit).ok()?;
    let all: Vec<i64> = (0..i64::try_from(limit).ok()?).collect();
    positions(&labels?, &Elements::Int(all.into(), super::data::Int::I64))
}
