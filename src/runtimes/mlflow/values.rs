//! What a model is given before its signature is held against it: arrays, data frames and what is neither, as NumPy and
//! pandas make them of JSON and CSV.

use std::fmt::{self, Write};
use std::sync::Arc;

use super::python::{self, Json, parse_float, parse_int, repr, tuple};
use super::signature::Kind;
use crate::evaluators::sklearn::{Elements, IntType};

/// An exception of Python.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Exception {
    pub(super) class: &'static str,
    pub(super) message: String,
}

/// As `repr` writes it.
impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.class, repr(&self.message))
    }
}

const fn exception(class: &'static str, message: String) -> Exception {
    Exception { class, message }
}

/// What a model is given.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Given {
    Array(Array),
    /// A dictionary of arrays.
    Arrays(Vec<(String, Array)>),
    Frame(Frame),
    /// Values that are neither arrays nor columns: the names in them, if it is a dictionary, and their text in Python.
    Other {
        class: &'static str,
        names: Vec<String>,
        text: String,
    },
}

/// An array of any rank; a number alone has none.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Array {
    pub(super) shape: Vec<usize>,
    pub(super) elements: Elements<'static>,
}

/// A data frame.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame {
    pub(super) labels: Vec<Label>,
    pub(super) columns: Vec<Values>,
    pub(super) rows: usize,
}

/// The name of a column, or its place where it has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Label {
    Name(String),
    Place(usize),
}

/// A column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Values {
    Known(Elements<'static>),
    /// Values of several types, or of one that no model takes; as texts, for messages.
    Objects(Vec<String>),
}

/// As `repr` writes it.
impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(&repr(name)),
            Self::Place(place) => place.fmt(f),
        }
    }
}

impl Label {
    /// As `str` writes it.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Place(place) => place.to_string(),
        }
    }

    pub(super) fn is(&self, name: &str) -> bool {
        matches!(self, Self::Name(own) if own == name)
    }
}

impl Array {
    /// Makes an array of a type, as `numpy.array(json, dtype)` does.
    pub(super) fn of(json: &Json, kind: Kind) -> Result<Self, Exception> {
        let (shape, cells) = arranged(json)?;
        Ok(Self { shape, elements: cast(&cells, kind)? })
    }

    /// Makes an array of the type that NumPy finds, or nothing when that is an array of objects.
    pub(super) fn inferred(json: &Json) -> Result<Option<Self>, Exception> {
        let (shape, cells) = arranged(json)?;
        let mut kind = None;
        for cell in &cells {
            let found = match cell {
                Json::Bool(_) => Kind::Boolean,
                Json::Int(_) => Kind::Long,
                Json::Float(_) => Kind::Double,
                Json::Text(_) => Kind::String,
                Json::Null | Json::Big(_) | Json::List(_) | Json::Object(_) => return Ok(None),
            };
            let rank = |kind| [Kind::Boolean, Kind::Long, Kind::Double, Kind::String].iter().position(|k| *k == kind);
            kind = Some(kind.filter(|kind| rank(*kind) >= rank(found)).unwrap_or(found));
        }
        Ok(Some(Self { shape, elements: cast(&cells, kind.unwrap_or(Kind::Double))? }))
    }

    /// Returns the array as the columns of a frame.
    pub(super) fn columns(&self) -> Vec<Elements<'static>> {
        let columns = self.shape.get(1).copied().unwrap_or(1);
        (0..columns).map(|column| take(&self.elements, (column..self.elements.len()).step_by(columns.max(1)))).collect()
    }
}

/// Returns some elements, each of which is there.
pub(super) fn take(elements: &Elements<'_>, places: impl Iterator<Item = usize>) -> Elements<'static> {
    match elements {
        Elements::F32(values) => Elements::F32(places.map(|place| values[place]).collect()),
        Elements::F64(values) => Elements::F64(places.map(|place| values[place]).collect()),
        Elements::Int(values, kind) => Elements::Int(places.map(|place| values[place]).collect(), *kind),
        Elements::Text(values) => Elements::Text(places.map(|place| Arc::clone(&values[place])).collect()),
    }
}

/// Returns the shape of nested lists, and what is in them.
fn arranged(json: &Json) -> Result<(Vec<usize>, Vec<&Json>), Exception> {
    let (shape, whole) = shape(json);
    if !whole {
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

/// Returns the sizes that all lists within have in common, and whether these are all there is.
fn shape(json: &Json) -> (Vec<usize>, bool) {
    let Json::List(items) = json else { return (Vec::new(), true) };
    let mut common: Option<(Vec<usize>, bool)> = None;
    for item in items {
        let (sizes, whole) = shape(item);
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

/// Makes values of a type, as NumPy does of objects.
pub(super) fn cast(cells: &[&Json], kind: Kind) -> Result<Elements<'static>, Exception> {
    Ok(match kind {
        Kind::Boolean => Elements::Int(cells.iter().map(|cell| i64::from(truth(cell))).collect(), IntType::Bool),
        Kind::Double => Elements::F64(cells.iter().map(|cell| float(cell)).collect::<Result<_, _>>()?),
        Kind::Float => Elements::F32(cells.iter().map(|cell| float(cell).map(narrow)).collect::<Result<_, _>>()?),
        Kind::Long => Elements::Int(cells.iter().map(|cell| integer(cell)).collect::<Result<_, _>>()?, IntType::I64),
        Kind::Integer => {
            let within = |cell: &&Json| {
                let value = integer(cell)?;
                let bounds = || exception("OverflowError", format!("Python integer {value} out of bounds for int32"));
                i32::try_from(value).map(i64::from).map_err(|_| bounds())
            };
            Elements::Int(cells.iter().map(within).collect::<Result<_, _>>()?, IntType::I32)
        }
        Kind::String => Elements::Text(cells.iter().map(|cell| cell.text().into()).collect()),
    })
}

/// Makes a column of a type, as pandas does of a column: first it finds a type for the whole column.
pub(super) fn cast_column(cells: &[&Json], kind: Kind) -> Result<Values, Exception> {
    let column = infer(cells);
    if kind == Kind::String {
        // Whatever a column of objects holds stays as it is.
        let texts = cells.iter().all(|cell| matches!(cell, Json::Text(_)));
        return Ok(if texts { Values::Known(cast(cells, kind)?) } else { Values::Objects(shown(cells)) });
    }
    let elements = match (&column, kind) {
        (Values::Known(Elements::F64(values)), Kind::Integer | Kind::Long) => {
            if !values.iter().all(|value| value.is_finite()) {
                let message = "Cannot convert non-finite values (NA or inf) to integer";
                return Err(exception("IntCastingNaNError", message.to_owned()));
            }
            wrapped(&values.iter().copied().map(truncate).collect::<Vec<_>>(), kind)
        }
        (Values::Known(Elements::Int(values, _)), Kind::Integer | Kind::Long) => wrapped(values, kind),
        (Values::Known(Elements::F64(values)), Kind::Boolean) => {
            Elements::Int(values.iter().map(|value| i64::from(*value != 0.0)).collect(), IntType::Bool)
        }
        _ => {
            if cells.iter().any(|cell| matches!(cell, Json::List(_))) && matches!(kind, Kind::Double | Kind::Float) {
                return Err(exception("ValueError", "setting an array element with a sequence.".to_owned()));
            }
            cast(cells, kind)?
        }
    };
    Ok(Values::Known(elements))
}

/// Makes a column of the type that pandas finds.
pub(super) fn infer(cells: &[&Json]) -> Values {
    let (mut bools, mut ints, mut floats, mut nulls, mut texts) = (0, 0, 0, 0, 0);
    for cell in cells {
        match cell {
            Json::Bool(_) => bools += 1,
            Json::Int(_) => ints += 1,
            Json::Float(_) => floats += 1,
            Json::Null => nulls += 1,
            Json::Text(_) => texts += 1,
            Json::Big(_) | Json::List(_) | Json::Object(_) => return Values::Objects(shown(cells)),
        }
    }
    let all = cells.len();
    let kind = if bools == all && all > 0 {
        Kind::Boolean
    } else if ints == all && all > 0 {
        Kind::Long
    } else if ints + floats + nulls == all && ints + floats > 0 {
        Kind::Double
    } else if texts == all && all > 0 {
        Kind::String
    } else {
        return Values::Objects(shown(cells));
    };
    cast(cells, kind).map_or_else(|_| Values::Objects(shown(cells)), Values::Known)
}

fn shown(cells: &[&Json]) -> Vec<String> {
    cells.iter().map(|cell| cell.text()).collect()
}

/// Integers as the type holds them, without what it has no bits for.
fn wrapped(values: &[i64], kind: Kind) -> Elements<'static> {
    #[expect(clippy::cast_possible_truncation, reason = "as pandas casts")]
    match kind {
        Kind::Integer => Elements::Int(values.iter().map(|value| i64::from(*value as i32)).collect(), IntType::I32),
        _ => Elements::Int(values.to_vec().into(), IntType::I64),
    }
}

/// A number without its fraction, as a processor converts it.
#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "the range is checked")]
pub(super) fn truncate(value: f64) -> i64 {
    if value >= i64::MIN as f64 && value < i64::MAX as f64 { value as i64 } else { i64::MIN }
}

#[expect(clippy::cast_possible_truncation, reason = "rounding is what is asked for")]
pub(super) const fn narrow(value: f64) -> f32 {
    value as f32
}

#[expect(clippy::cast_precision_loss, reason = "as Python's float rounds integers")]
fn float(cell: &Json) -> Result<f64, Exception> {
    match cell {
        Json::Null => Ok(f64::NAN),
        Json::Bool(value) => Ok(f64::from(u8::from(*value))),
        Json::Int(value) => Ok(*value as f64),
        Json::Big(digits) => digits.parse().map_err(|_| exception("ValueError", digits.clone())),
        Json::Float(value) => Ok(*value),
        Json::Text(text) => parse_float(text)
            .ok_or_else(|| exception("ValueError", format!("could not convert string to float: {}", repr(text)))),
        Json::List(_) | Json::Object(_) => {
            let message = format!("float() argument must be a string or a real number, not '{}'", cell.class());
            Err(exception("TypeError", message))
        }
    }
}

fn integer(cell: &Json) -> Result<i64, Exception> {
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
        Json::Text(text) => parse_int(text)
            .ok_or_else(|| exception("ValueError", format!("invalid literal for int() with base 10: {}", repr(text)))),
        Json::Null | Json::List(_) | Json::Object(_) => {
            let class = cell.class();
            let message =
                format!("int() argument must be a string, a bytes-like object or a real number, not '{class}'");
            Err(exception("TypeError", message))
        }
    }
}

fn truth(cell: &Json) -> bool {
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

/// How many rows, columns and characters of a line of what was given are shown in a message; more of it is `...`.
const MAX_ROWS: usize = 60;
const MAX_COLUMNS: usize = 20;
const MAX_LINE: usize = 75;

/// As Python's `str` writes it, where that is short and plain: messages repeat what was given.
impl fmt::Display for Given {
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
        f.write_str(text.as_deref().unwrap_or("..."))
    }
}

impl Array {
    /// Writes the array as `repr` does, or, without commas, as `str` does.
    pub(super) fn text(&self, repr: bool) -> Option<String> {
        if self.elements.len() > 1000 || (self.elements.is_empty() && !self.shape.is_empty()) {
            return None;
        }
        let cells = texts(&self.elements, !self.shape.is_empty())?;
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

/// Writes cells in the brackets of a shape, whose lines stand so far from the margin.
fn nested(cells: &[String], shape: &[usize], comma: &str, indent: usize) -> String {
    let Some((_, inner)) = shape.split_first() else { return cells.concat() };
    if inner.is_empty() {
        return format!("[{}]", cells.join(&format!("{comma} ")));
    }
    let size = inner.iter().product::<usize>().max(1);
    let parts: Vec<_> = cells.chunks(size).map(|part| nested(part, inner, comma, indent + 1)).collect();
    let lines = format!("{comma}{}{}", "\n".repeat(inner.len()), " ".repeat(indent));
    format!("[{}]", parts.join(&lines))
}

/// Writes elements as an array of them does, or, alone, as themselves.
fn texts(elements: &Elements<'_>, aligned: bool) -> Option<Vec<String>> {
    let cells: Vec<String> = match elements {
        Elements::F64(values) if aligned => return floats(values, |value| format!("{value:?}")),
        Elements::F32(values) if aligned => {
            let values: Vec<f64> = values.iter().copied().map(f64::from).collect();
            return floats(&values, |value| format!("{:?}", narrow(value)));
        }
        Elements::F64(values) => values.iter().copied().map(python::float).collect(),
        Elements::F32(values) => values.iter().map(|value| format!("{value:?}")).collect(),
        Elements::Int(values, IntType::Bool) => {
            values.iter().map(|value| if *value == 0 { "False" } else { "True" }.to_owned()).collect()
        }
        Elements::Int(values, _) => values.iter().map(ToString::to_string).collect(),
        Elements::Text(values) if aligned => return Some(values.iter().map(|text| repr(text)).collect()),
        Elements::Text(values) => values.iter().map(ToString::to_string).collect(),
    };
    let width = if aligned { cells.iter().map(String::len).max().unwrap_or_default() } else { 0 };
    Some(cells.iter().map(|cell| format!("{cell:>width$}")).collect())
}

/// Writes numbers as an array of them does, unless some would be written with exponents.
fn floats(values: &[f64], write: impl Fn(f64) -> String) -> Option<Vec<String>> {
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

impl Frame {
    fn text(&self) -> Option<String> {
        if self.labels.is_empty() || self.rows == 0 {
            let labels: Vec<_> = self.labels.iter().map(Label::text).collect();
            return Some(format!("Empty DataFrame\nColumns: [{}]\nIndex: []", labels.join(", ")));
        }
        if self.rows > MAX_ROWS || self.labels.len() > MAX_COLUMNS {
            return None;
        }
        let index_width = (self.rows - 1).to_string().len();
        let mut lines: Vec<String> = vec![" ".repeat(index_width)];
        lines.extend((0..self.rows).map(|row| format!("{row:<index_width$}")));
        for (label, column) in self.labels.iter().zip(&self.columns) {
            let cells = match column {
                Values::Known(Elements::F64(values)) => fixed(values)?,
                Values::Known(Elements::F32(values)) => {
                    fixed(&values.iter().copied().map(f64::from).collect::<Vec<_>>())?
                }
                Values::Known(elements) => texts(elements, false)?,
                Values::Objects(texts) => texts.clone(),
            };
            // A sign has the place of the space before a number.
            let numeric = matches!(column, Values::Known(elements) if !matches!(elements, Elements::Text(_)));
            let spaced = |cell: String| if numeric && cell.starts_with('-') { cell } else { format!(" {cell}") };
            let cells: Vec<String> =
                [format!(" {}", label.text())].into_iter().chain(cells.into_iter().map(spaced)).collect();
            let width = cells.iter().map(|text| text.chars().count()).max().unwrap_or_default();
            for (line, cell) in lines.iter_mut().zip(&cells) {
                let _ = write!(line, " {cell:>width$}");
            }
        }
        // Wider ones are folded by pandas.
        lines.iter().all(|line| line.chars().count() <= 80).then(|| lines.join("\n"))
    }
}

/// Writes numbers as a column of a data frame does, unless some would be written with exponents.
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
