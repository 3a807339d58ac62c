//! The inputs of models before they are checked against the signature: arrays, data frames and other values, as NumPy and
//! pandas create them from JSON and CSV.

use std::fmt::{self, Write};
use std::sync::Arc;

use super::python::{self, Json, echo, echo_name, parse_float, parse_int, repr, tuple};
use super::signature::ColumnType;
use crate::evaluators::table::{Elements, IntType};

/// An exception of Python.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PythonException {
    pub(super) class: &'static str,
    pub(super) message: String,
}

/// Formats the exception as `repr` does.
impl fmt::Display for PythonException {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.class, repr(&self.message))
    }
}

const fn exception(class: &'static str, message: String) -> PythonException {
    PythonException { class, message }
}

/// The input of a model.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ModelInput {
    Array(NdArray),
    /// A dictionary of arrays.
    Arrays(Vec<(String, NdArray)>),
    Frame(DataFrame),
    /// A value that is neither an array nor a data frame, with its keys if it is a dictionary, and its text in Python.
    Other {
        class: &'static str,
        names: Vec<String>,
        text: String,
    },
}

/// An array of any rank. A scalar has rank 0.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NdArray {
    pub(super) shape: Vec<usize>,
    pub(super) elements: Elements<'static>,
}

/// A data frame.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DataFrame {
    pub(super) labels: Vec<ColumnLabel>,
    pub(super) columns: Vec<ColumnValues>,
    pub(super) rows: usize,
}

/// The name of a column, or its index if it has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ColumnLabel {
    Name(String),
    Index(usize),
}

/// The values of a column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ColumnValues {
    Typed(Elements<'static>),
    /// Values of several types, or of a type that no model takes, as strings for messages.
    Objects(Vec<String>),
}

/// Formats the label as `repr` does.
impl fmt::Display for ColumnLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(&repr(&echo_name(name))),
            Self::Index(index) => index.fmt(f),
        }
    }
}

impl ColumnLabel {
    /// Returns the name, or `None` if the column has none.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Name(name) => Some(name),
            Self::Index(_) => None,
        }
    }

    /// Formats the label as `str` does.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Index(index) => index.to_string(),
        }
    }
}

impl NdArray {
    /// Creates an array of a given type, as `numpy.array(json, dtype)` does.
    pub(super) fn with_type(json: &Json, kind: ColumnType) -> Result<Self, PythonException> {
        let (shape, cells) = flatten_lists(json)?;
        Ok(Self { shape, elements: cast(&cells, kind)? })
    }

    /// Creates an array of the type that NumPy infers. Returns `None` if that is an array of objects.
    pub(super) fn with_inferred_type(json: &Json) -> Result<Option<Self>, PythonException> {
        let (shape, cells) = flatten_lists(json)?;
        let mut kind = None;
        for cell in &cells {
            let found = match cell {
                Json::Bool(_) => ColumnType::Boolean,
                Json::Int(_) => ColumnType::Long,
                Json::Float(_) => ColumnType::Double,
                Json::Text(_) => ColumnType::String,
                Json::Null | Json::Big(_) | Json::List(_) | Json::Object(_) => return Ok(None),
            };
            let rank = |kind| {
                [ColumnType::Boolean, ColumnType::Long, ColumnType::Double, ColumnType::String]
                    .iter()
                    .position(|k| *k == kind)
            };
            kind = Some(kind.filter(|kind| rank(*kind) >= rank(found)).unwrap_or(found));
        }
        Ok(Some(Self { shape, elements: cast(&cells, kind.unwrap_or(ColumnType::Double))? }))
    }

    /// Returns the array as the columns of a frame.
    pub(super) fn columns(&self) -> Vec<Elements<'static>> {
        let columns = self.shape.get(1).copied().unwrap_or(1);
        (0..columns).map(|column| take(&self.elements, (column..self.elements.len()).step_by(columns.max(1)))).collect()
    }
}

/// Returns the elements at some indices, all of which must be within bounds.
pub(super) fn take(elements: &Elements<'_>, indices: impl Iterator<Item = usize>) -> Elements<'static> {
    match elements {
        Elements::F32(values) => Elements::F32(indices.map(|index| values[index]).collect()),
        Elements::F64(values) => Elements::F64(indices.map(|index| values[index]).collect()),
        Elements::Int(values, kind) => Elements::Int(indices.map(|index| values[index]).collect(), *kind),
        Elements::Text(values) => Elements::Text(indices.map(|index| Arc::clone(&values[index])).collect()),
        Elements::PartialText(values) => Elements::PartialText(indices.map(|index| values[index].clone()).collect()),
    }
}

/// Returns the shape of nested lists and their items, flattened.
fn flatten_lists(json: &Json) -> Result<(Vec<usize>, Vec<&Json>), PythonException> {
    let (shape, homogeneous) = common_shape(json);
    if !homogeneous {
        let message = format!(
            "setting an array element with a sequence. The requested array has an inhomogeneous shape after {} dimensions. The detected shape was {} + inhomogeneous part.",
            shape.len(),
            tuple(&shape)
        );
        return Err(exception("ValueError", message));
    }
    let mut cells = Vec::new();
    flatten(json, &mut cells);
    Ok((shape, cells))
}

fn flatten<'a>(json: &'a Json, cells: &mut Vec<&'a Json>) {
    match json {
        Json::List(items) => items.iter().for_each(|item| flatten(item, cells)),
        cell => cells.push(cell),
    }
}

/// Returns the dimensions that all nested lists have in common, and whether these are all dimensions.
fn common_shape(json: &Json) -> (Vec<usize>, bool) {
    let Json::List(items) = json else { return (Vec::new(), true) };
    let mut common: Option<(Vec<usize>, bool)> = None;
    for item in items {
        let (sizes, whole) = common_shape(item);
        common = Some(match common {
            None => (sizes, whole),
            Some((known, all)) if known == sizes => (known, all && whole),
            Some((mut known, _)) => {
                let same = known.iter().zip(&sizes).take_while(|(a, b)| a == b).count();
                known.truncate(same);
                (known, false)
            }
        });
    }
    let (mut sizes, whole) = common.unwrap_or((Vec::new(), true));
    sizes.insert(0, items.len());
    (sizes, whole)
}

/// Converts values to a type, as NumPy converts objects.
pub(super) fn cast(cells: &[&Json], kind: ColumnType) -> Result<Elements<'static>, PythonException> {
    Ok(match kind {
        ColumnType::Boolean => Elements::Int(cells.iter().map(|cell| i64::from(truth(cell))).collect(), IntType::Bool),
        ColumnType::Double => Elements::F64(cells.iter().map(|cell| float(cell)).collect::<Result<_, _>>()?),
        ColumnType::Float => Elements::F32(cells.iter().map(|cell| float(cell).map(narrow)).collect::<Result<_, _>>()?),
        ColumnType::Long => {
            Elements::Int(cells.iter().map(|cell| integer(cell)).collect::<Result<_, _>>()?, IntType::I64)
        }
        ColumnType::Integer => {
            let within = |cell: &&Json| {
                let value = integer(cell)?;
                let bounds = || exception("OverflowError", format!("Python integer {value} out of bounds for int32"));
                i32::try_from(value).map(i64::from).map_err(|_| bounds())
            };
            Elements::Int(cells.iter().map(within).collect::<Result<_, _>>()?, IntType::I32)
        }
        ColumnType::String => Elements::Text(cells.iter().map(|cell| cell.text().into()).collect()),
    })
}

/// Converts a column to a type, as pandas does: it first infers a type for the whole column.
pub(super) fn cast_column(cells: &[&Json], kind: ColumnType) -> Result<ColumnValues, PythonException> {
    let column = infer(cells);
    if kind == ColumnType::String {
        // The values in a column of objects stay as they are.
        let texts = cells.iter().all(|cell| matches!(cell, Json::Text(_)));
        return Ok(if texts {
            ColumnValues::Typed(cast(cells, kind)?)
        } else {
            ColumnValues::Objects(to_texts(cells))
        });
    }
    if matches!(kind, ColumnType::Integer | ColumnType::Long)
        && let Some(values) = unsigned(cells)
    {
        return Ok(ColumnValues::Typed(wrapping_cast(&values, kind)));
    }
    let elements = match (&column, kind) {
        (ColumnValues::Typed(Elements::F64(values)), ColumnType::Integer | ColumnType::Long) => {
            if !values.iter().all(|value| value.is_finite()) {
                let message = "Cannot convert non-finite values (NA or inf) to integer";
                return Err(exception("IntCastingNaNError", message.to_owned()));
            }
            truncated_cast(values, kind)
        }
        (ColumnValues::Typed(Elements::Int(values, _)), ColumnType::Integer | ColumnType::Long) => {
            wrapping_cast(values, kind)
        }
        (ColumnValues::Typed(Elements::F64(values)), ColumnType::Boolean) => {
            Elements::Int(values.iter().map(|value| i64::from(*value != 0.0)).collect(), IntType::Bool)
        }
        _ => {
            if cells.iter().any(|cell| matches!(cell, Json::List(_)))
                && matches!(kind, ColumnType::Double | ColumnType::Float)
            {
                return Err(exception("ValueError", "setting an array element with a sequence.".to_owned()));
            }
            cast(cells, kind)?
        }
    };
    Ok(ColumnValues::Typed(elements))
}

/// Creates a column of the type that pandas infers.
pub(super) fn infer(cells: &[&Json]) -> ColumnValues {
    let (mut bools, mut ints, mut floats, mut nulls, mut texts) = (0, 0, 0, 0, 0);
    for cell in cells {
        match cell {
            Json::Bool(_) => bools += 1,
            Json::Int(_) => ints += 1,
            Json::Float(_) => floats += 1,
            Json::Null => nulls += 1,
            Json::Text(_) => texts += 1,
            Json::Big(_) | Json::List(_) | Json::Object(_) => return ColumnValues::Objects(to_texts(cells)),
        }
    }
    let all = cells.len();
    let kind = if bools == all && all > 0 {
        ColumnType::Boolean
    } else if ints == all && all > 0 {
        ColumnType::Long
    } else if ints + floats + nulls == all && ints + floats > 0 {
        ColumnType::Double
    } else if texts == all && all > 0 {
        ColumnType::String
    } else {
        return ColumnValues::Objects(to_texts(cells));
    };
    cast(cells, kind).map_or_else(|_| ColumnValues::Objects(to_texts(cells)), ColumnValues::Typed)
}

/// Returns integers of which some are beyond 63 bits, all of which pandas reads as 64 bits without a sign, as those with one.
fn unsigned(cells: &[&Json]) -> Option<Vec<i64>> {
    let has_big = cells.iter().any(|cell| matches!(cell, Json::Big(_)));
    let value = |cell: &&Json| match cell {
        Json::Int(value) => u64::try_from(*value).ok(),
        Json::Big(digits) => digits.parse().ok(),
        _ => None,
    };
    if has_big { cells.iter().map(|cell| value(cell).map(u64::cast_signed)).collect() } else { None }
}

fn to_texts(cells: &[&Json]) -> Vec<String> {
    cells.iter().map(|cell| cell.text()).collect()
}

/// Converts integers to a type, discarding the bits that do not fit.
fn wrapping_cast(values: &[i64], kind: ColumnType) -> Elements<'static> {
    #[expect(clippy::cast_possible_truncation, reason = "as pandas casts")]
    match kind {
        ColumnType::Integer => {
            Elements::Int(values.iter().map(|value| i64::from(*value as i32)).collect(), IntType::I32)
        }
        _ => Elements::Int(values.to_vec().into(), IntType::I64),
    }
}

/// Converts numbers to a type of integers, as NumPy does: without their fraction, and those out of range to the least integer.
pub(super) fn truncated_cast(values: &[f64], kind: ColumnType) -> Elements<'static> {
    let integers = values.iter().copied().map(truncate);
    match kind {
        ColumnType::Integer => {
            let narrow = |value| i64::from(i32::try_from(value).unwrap_or(i32::MIN));
            Elements::Int(integers.map(narrow).collect(), IntType::I32)
        }
        _ => Elements::Int(integers.collect(), IntType::I64),
    }
}

/// Converts numbers to a type of numbers, as NumPy does. Returns `None` if there are strings.
#[expect(clippy::cast_precision_loss, reason = "as NumPy rounds integers")]
pub(super) fn cast_numbers(elements: &Elements<'_>, kind: ColumnType) -> Option<Elements<'static>> {
    let doubles: Vec<f64> = match elements {
        Elements::F64(values) => values.to_vec(),
        Elements::F32(values) => values.iter().copied().map(f64::from).collect(),
        Elements::Int(values, _) if matches!(kind, ColumnType::Integer | ColumnType::Long) => {
            return Some(wrapping_cast(values, kind));
        }
        Elements::Int(values, _) => values.iter().map(|value| *value as f64).collect(),
        Elements::Text(_) | Elements::PartialText(_) => return None,
    };
    match kind {
        ColumnType::Integer | ColumnType::Long => Some(truncated_cast(&doubles, kind)),
        ColumnType::Float => Some(Elements::F32(doubles.into_iter().map(narrow).collect())),
        ColumnType::Double => Some(Elements::F64(doubles.into())),
        ColumnType::Boolean | ColumnType::String => None,
    }
}

/// Discards the fraction of a number, as the processor's conversion does: numbers out of range become `i64::MIN`.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "the range is checked")]
pub(super) fn truncate(value: f64) -> i64 {
    if value >= i64::MIN as f64 && value < i64::MAX as f64 { value as i64 } else { i64::MIN }
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is intended")]
pub(super) const fn narrow(value: f64) -> f32 {
    value as f32
}

#[expect(clippy::cast_precision_loss, reason = "as Python's float rounds integers")]
fn float(cell: &Json) -> Result<f64, PythonException> {
    match cell {
        Json::Null => Ok(f64::NAN),
        Json::Bool(value) => Ok(f64::from(u8::from(*value))),
        Json::Int(value) => Ok(*value as f64),
        Json::Big(digits) => digits.parse().map_err(|_| exception("ValueError", echo(digits).into_owned())),
        Json::Float(value) => Ok(*value),
        Json::Text(text) => parse_float(text).ok_or_else(|| {
            exception("ValueError", format!("could not convert string to float: {}", repr(&echo(text))))
        }),
        Json::List(_) | Json::Object(_) => {
            let message = format!("float() argument must be a string or a real number, not '{}'", cell.class());
            Err(exception("TypeError", message))
        }
    }
}

fn integer(cell: &Json) -> Result<i64, PythonException> {
    let large = || exception("OverflowError", "Python int too large to convert to C long".to_owned());
    match cell {
        Json::Bool(value) => Ok(i64::from(*value)),
        Json::Int(value) => Ok(*value),
        Json::Big(_) => Err(large()),
        Json::Float(value) if value.is_nan() => {
            Err(exception("ValueError", "cannot convert float NaN to integer".to_owned()))
        }
        Json::Float(value) if value.is_infinite() => {
            Err(exception("OverflowError", "cannot convert float infinity to integer".to_owned()))
        }
        Json::Float(value) => match truncate(*value) {
            i64::MIN => Err(large()),
            value => Ok(value),
        },
        Json::Text(text) => parse_int(text).ok_or_else(|| {
            exception("ValueError", format!("invalid literal for int() with base 10: {}", repr(&echo(text))))
        }),
        Json::Null | Json::List(_) | Json::Object(_) => {
            let class = cell.class();
            let message =
                format!("int() argument must be a string, a bytes-like object or a real number, not '{class}'");
            Err(exception("TypeError", message))
        }
    }
}

pub(super) fn truth(cell: &Json) -> bool {
    match cell {
        Json::Null => false,
        Json::Bool(value) => *value,
        Json::Int(value) => *value != 0,
        Json::Big(_) => true,
        Json::Float(value) => *value != 0.0,
        Json::Text(text) => !text.is_empty(),
        Json::List(items) => !items.is_empty(),
        Json::Object(entries) => !entries.is_empty(),
    }
}

/// Limits on the rows, columns and characters per line of an input that a message shows. Larger inputs are shown as `...`.
const MAX_ROWS: usize = 60;
const MAX_COLUMNS: usize = 20;
const MAX_LINE: usize = 75;
/// The width of a frame that pandas shows without wrapping it, in characters.
const MAX_FRAME_LINE: usize = 80;
/// The most columns of an empty frame that a message shows; their text is cut, too.
const MAX_LABELS: usize = 1000;

/// Formats the input as Python's `str` does if it is short and simple, because messages contain it.
impl fmt::Display for ModelInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Array(array) => array.text(false),
            Self::Arrays(arrays) => {
                let entries = arrays.iter().map(|(name, array)| {
                    let text = match (array.shape.is_empty(), &array.elements) {
                        (false, _) => array.text(true),
                        (true, Elements::Text(texts)) => texts.first().map(|text| format!("np.str_({})", repr(text))),
                        (true, Elements::Int(_, IntType::Bool)) => array.text(false).map(|text| format!("np.{text}_")),
                        (true, other) => {
                            let name = super::signature::dtype(other).0;
                            array.text(false).map(|text| format!("np.{name}({text})"))
                        }
                    };
                    Some(format!("{}: {}", repr(name), text?))
                });
                entries.collect::<Option<Vec<_>>>().map(|entries| format!("{{{}}}", entries.join(", ")))
            }
            Self::Frame(frame) => frame.text(),
            Self::Other { text, .. } => (text.len() <= 1000).then(|| text.clone()),
        };
        f.write_str(&echo(text.as_deref().unwrap_or("...")))
    }
}

impl NdArray {
    /// Formats the array as `repr` does, or, without commas, as `str` does.
    pub(super) fn text(&self, repr: bool) -> Option<String> {
        if self.elements.len() > 1000 || (self.elements.is_empty() && !self.shape.is_empty()) {
            return None;
        }
        let cells = format_elements(&self.elements, !self.shape.is_empty())?;
        let (comma, indent) = if repr { (",", 6) } else { ("", 0) };
        let text = nested(&cells, &self.shape, comma, indent + 1);
        if text.lines().any(|line| line.len() > MAX_LINE - indent - 2) {
            return None;
        }
        match &self.elements {
            _ if !repr => Some(text),
            Elements::F64(_) | Elements::Int(_, IntType::I64 | IntType::Bool) => Some(format!("array({text})")),
            Elements::Text(texts) => {
                let width = texts.iter().map(|text| text.chars().count()).max().unwrap_or_default();
                Some(format!("array({text}, dtype='<U{}')", width.max(1)))
            }
            other => Some(format!("array({text}, dtype={})", super::signature::dtype(other).0)),
        }
    }
}

/// Formats cells in the nested brackets of a shape. `indent` is the indentation of lines after the first.
fn nested(cells: &[String], shape: &[usize], comma: &str, indent: usize) -> String {
    let Some((_, inner)) = shape.split_first() else { return cells.concat() };
    if inner.is_empty() {
        return format!("[{}]", cells.join(&format!("{comma} ")));
    }
    let size = inner.iter().product::<usize>().max(1);
    let items: Vec<_> = cells.chunks(size).map(|item| nested(item, inner, comma, indent + 1)).collect();
    let separator = format!("{comma}{}{}", "\n".repeat(inner.len()), " ".repeat(indent));
    format!("[{}]", items.join(&separator))
}

/// Formats elements, aligned as in an array of them, or each by itself.
fn format_elements(elements: &Elements<'_>, aligned: bool) -> Option<Vec<String>> {
    let cells: Vec<String> = match elements {
        Elements::F64(values) if aligned => return aligned_floats(values, |value| format!("{value:?}")),
        Elements::F32(values) if aligned => {
            let values: Vec<f64> = values.iter().copied().map(f64::from).collect();
            return aligned_floats(&values, |value| format!("{:?}", narrow(value)));
        }
        Elements::F64(values) => values.iter().copied().map(python::float).collect(),
        Elements::F32(values) => values.iter().map(|value| format!("{value:?}")).collect(),
        Elements::Int(values, IntType::Bool) => {
            values.iter().map(|value| if *value == 0 { "False" } else { "True" }.to_owned()).collect()
        }
        Elements::Int(values, _) => values.iter().map(ToString::to_string).collect(),
        Elements::Text(values) if aligned => return Some(values.iter().map(|text| repr(text)).collect()),
        Elements::Text(values) => values.iter().map(ToString::to_string).collect(),
        Elements::PartialText(values) => {
            values.iter().map(|value| value.as_deref().unwrap_or("nan").to_owned()).collect()
        }
    };
    let width = if aligned { cells.iter().map(String::len).max().unwrap_or_default() } else { 0 };
    Some(cells.iter().map(|cell| format!("{cell:>width$}")).collect())
}

/// Formats numbers as in an array of them. Returns `None` if NumPy would use exponents.
fn aligned_floats(values: &[f64], write: impl Fn(f64) -> String) -> Option<Vec<String>> {
    let sizes = || values.iter().map(|value| value.abs()).filter(|size| size.is_finite() && *size > 0.0);
    let (least, most) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    if most >= 1e8 || (most > 0.0 && (least < 1e-4 || most / least > 1000.0)) {
        return None;
    }
    let parts: Vec<(String, String)> = values
        .iter()
        .map(|value| {
            if !value.is_finite() {
                return (python::float(*value), String::new());
            }
            let text = write(*value);
            let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
            if fraction.len() > 8 {
                let text = format!("{value:.8}");
                let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
                return (whole.to_owned(), fraction.trim_end_matches('0').to_owned());
            }
            (whole.to_owned(), fraction.trim_end_matches('0').to_owned())
        })
        .collect();
    let finite = || parts.iter().zip(values).filter(|(_, value)| value.is_finite()).map(|(parts, _)| parts);
    let left = finite().map(|(whole, _)| whole.len()).max().unwrap_or_default();
    let right = finite().map(|(_, fraction)| fraction.len()).max().unwrap_or_default();
    let other = parts.iter().zip(values).filter(|(_, value)| !value.is_finite()).map(|((text, _), _)| text.len()).max();
    let left = left.max(other.unwrap_or_default().saturating_sub(right + 1));
    let width = left + 1 + right;
    let cell = |((whole, fraction), value): (&(String, String), &f64)| {
        if value.is_finite() { format!("{whole:>left$}.{fraction:<right$}") } else { format!("{whole:>width$}") }
    };
    Some(parts.iter().zip(values).map(cell).collect())
}

/// The cells of a frame that are always accepted.
const FREE_CELLS: usize = 1 << 20;
/// The most cells of a larger frame for each value in the body.
const CELLS_PER_VALUE: usize = 4;

/// Checks that a frame would not have far more cells than its body has values: a few bytes may add a column, or a row, of missing
/// values.
pub(super) fn check_cells(rows: usize, columns: usize, values: usize) -> Result<(), String> {
    let limit = values.saturating_mul(CELLS_PER_VALUE).max(FREE_CELLS);
    if rows.saturating_mul(columns) <= limit {
        return Ok(());
    }
    Err(format!(
        "a table of {rows} rows and {columns} columns with {values} values has too many missing ones: send fewer rows at once"
    ))
}

impl DataFrame {
    fn text(&self) -> Option<String> {
        if self.labels.is_empty() || self.rows == 0 {
            let labels: Vec<_> = self.labels.iter().take(MAX_LABELS).map(ColumnLabel::text).collect();
            return Some(format!("Empty DataFrame\nColumns: [{}]\nIndex: []", labels.join(", ")));
        }
        if self.rows > MAX_ROWS || self.labels.len() > MAX_COLUMNS {
            return None;
        }
        let index_width = (self.rows - 1).to_string().len();
        let mut line_width = index_width;
        let mut lines: Vec<String> = vec![" ".repeat(index_width)];
        lines.extend((0..self.rows).map(|row| format!("{row:<index_width$}")));
        for (label, column) in self.labels.iter().zip(&self.columns) {
            let cells = match column {
                ColumnValues::Typed(Elements::F64(values)) => fixed(values)?,
                ColumnValues::Typed(Elements::F32(values)) => {
                    fixed(&values.iter().copied().map(f64::from).collect::<Vec<_>>())?
                }
                ColumnValues::Typed(elements) => format_elements(elements, false)?,
                ColumnValues::Objects(texts) => texts.clone(),
            };
            // A minus sign replaces the space before a number.
            let numeric = matches!(column, ColumnValues::Typed(elements) if !matches!(elements, Elements::Text(_)));
            let spaced = |cell: String| if numeric && cell.starts_with('-') { cell } else { format!(" {cell}") };
            let cells: Vec<String> =
                [format!(" {}", label.text())].into_iter().chain(cells.into_iter().map(spaced)).collect();
            let width = cells.iter().map(|text| text.chars().count()).max().unwrap_or_default();
            line_width += 1 + width;
            // pandas wraps frames that are wider. Rust does not format texts with more than 65,535 characters.
            if line_width > MAX_FRAME_LINE {
                return None;
            }
            for (line, cell) in lines.iter_mut().zip(&cells) {
                let _ = write!(line, " {cell:>width$}");
            }
        }
        Some(lines.join("\n"))
    }
}

/// Formats numbers as in a column of a data frame. Returns `None` if pandas would use exponents.
fn fixed(values: &[f64]) -> Option<Vec<String>> {
    if values.iter().any(|value| value.is_infinite() || value.abs() >= 1e5 || (*value != 0.0 && value.abs() < 1e-4)) {
        return None;
    }
    let mut cells: Vec<String> = values.iter().map(|value| format!("{value:.6}")).collect();
    let trimmable = |cell: &String| cell == "NaN" || (cell.ends_with('0') && !cell.ends_with(".0"));
    while cells.iter().any(|cell| cell != "NaN") && cells.iter().all(trimmable) {
        cells.iter_mut().filter(|cell| *cell != "NaN").for_each(|cell| cell.truncate(cell.len() - 1));
    }
    Some(cells)
}
