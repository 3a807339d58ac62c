//! What was given, held against a signature: columns found, their types widened, everything else refused in MLflow's words.

use std::borrow::Cow;

use super::python::{list, repr, tuple};
use super::signature::{Column, Input, Kind, TensorKind, dtype};
use super::values::{Array, Frame, Given, Label, Values};
use crate::evaluators::sklearn::{self, DenseTable, Elements, IntType, TableData};

/// Why a model cannot be given something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is not what the signature says; the reason that MLflow tells.
    Schema(String),
    /// The model would fail with it.
    Model(String),
    /// It is more than the server knows to do as Python does it.
    NotNative(String),
}

/// Returns what the model gets.
pub(super) fn enforce(given: &Given, input: &Input) -> Result<TableData<'static>, Refusal> {
    match input {
        Input::Anything => anything(given),
        Input::Columns(columns) => {
            let frame = frame(given)?;
            named(&frame, columns)
        }
        Input::Tensor { kind, shape } => tensor(given, *kind, shape).map(TableData::Table),
    }
}

fn not_native(reason: &str) -> Refusal {
    Refusal::NotNative(format!("{reason} (`parameters.extra.backend`: `python` gives it to the model)"))
}

/// Without a signature the model gets what came.
fn anything(given: &Given) -> Result<TableData<'static>, Refusal> {
    match given {
        Given::Array(array) => match array.shape[..] {
            [rows, columns] => Ok(TableData::Table(DenseTable { elements: array.elements.clone(), rows, columns })),
            [rows] if matches!(array.elements, Elements::Text(_)) => {
                Ok(TableData::Table(DenseTable { elements: array.elements.clone(), rows, columns: 1 }))
            }
            _ => {
                Err(Refusal::Model(format!("it takes rows and columns, but the array has the shape {:?}", array.shape)))
            }
        },
        Given::Frame(frame) => {
            let mut columns = Vec::with_capacity(frame.columns.len());
            for (label, column) in frame.labels.iter().zip(&frame.columns) {
                let Values::Known(elements) = column else {
                    return Err(not_native(&format!("column {label} has missing texts, or values of several types")));
                };
                columns.push(elements.clone());
            }
            // pandas calls columns without names by their numbers, which are no names to the libraries either.
            if frame.labels.iter().any(|label| matches!(label, Label::Place(_))) {
                return unnamed(&columns, frame.rows);
            }
            let names = frame.labels.iter().map(|label| Cow::Owned(label.text())).collect();
            Ok(TableData::Frame(sklearn::DataFrame { names, columns, rows: frame.rows }))
        }
        Given::Arrays(_) | Given::Other { .. } => {
            Err(Refusal::Model("it takes an array or a data frame, not a dictionary or a list of them".to_owned()))
        }
    }
}

/// Makes one array of columns without names, of the type that holds them all.
fn unnamed(columns: &[Elements<'static>], rows: usize) -> Result<TableData<'static>, Refusal> {
    let table = |elements| Ok(TableData::Table(DenseTable { elements, rows, columns: columns.len() }));
    let interleaved = |value: &dyn Fn(usize, usize) -> f64| {
        (0..rows)
            .flat_map(|row| (0..columns.len()).map(move |column| (row, column)))
            .map(|(r, c)| value(r, c))
            .collect()
    };
    if let [column] = columns {
        return table(column.clone());
    }
    if columns.iter().any(|column| matches!(column, Elements::Text(_))) {
        return Err(not_native("columns of text have no names"));
    }
    if columns.iter().all(|column| matches!(column, Elements::Int(_, IntType::I64))) {
        let cell = |row: usize, column: usize| match &columns[column] {
            Elements::Int(values, _) => values[row],
            _ => 0,
        };
        let cells = (0..rows).flat_map(|row| (0..columns.len()).map(move |column| (row, column)));
        return table(Elements::Int(cells.map(|(row, column)| cell(row, column)).collect(), IntType::I64));
    }
    #[expect(clippy::cast_precision_loss, reason = "as NumPy's cast of integers to float64")]
    table(Elements::F64(interleaved(&|row, column| match &columns[column] {
        Elements::F64(values) => values[row],
        Elements::F32(values) => f64::from(values[row]),
        Elements::Int(values, _) => values[row] as f64,
        Elements::Text(_) => f64::NAN,
    })))
}

/// Returns what was given as a data frame.
fn frame(given: &Given) -> Result<Cow<'_, Frame>, Refusal> {
    let frame = match given {
        Given::Frame(frame) => return Ok(Cow::Borrowed(frame)),
        Given::Array(array) => {
            if array.shape.len() > 2 {
                return Err(Refusal::Schema(format!("Must pass 2-d input. shape={}", tuple(&array.shape))));
            }
            let columns: Vec<_> = array.columns().into_iter().map(Values::Known).collect();
            let labels = (0..columns.len()).map(Label::Place).collect();
            Frame { labels, columns, rows: array.shape.first().copied().unwrap_or(1) }
        }
        Given::Arrays(arrays) => of_arrays(arrays)?,
        Given::Other { names, .. } => {
            let labels = names.iter().cloned().map(Label::Name).collect();
            let columns = names.iter().map(|_| Values::Objects(Vec::new())).collect();
            Frame { labels, columns, rows: 1 }
        }
    };
    Ok(Cow::Owned(frame))
}

/// Makes a frame of arrays; a number alone fills its column.
fn of_arrays(arrays: &[(String, Array)]) -> Result<Frame, Refusal> {
    let mut lengths = arrays.iter().filter_map(|(_, array)| array.shape.first().copied());
    let rows = lengths.next().unwrap_or(1);
    if lengths.any(|length| length != rows) {
        let reason = "This model contains a column-based signature, which suggests a DataFrame input. There was an error casting the input data to a DataFrame: All arrays must be of the same length";
        return Err(Refusal::Schema(reason.to_owned()));
    }
    let column = |array: &Array| match array.shape.len() {
        0 => Values::Known(super::values::take(&array.elements, std::iter::repeat_n(0, rows))),
        1 => Values::Known(array.elements.clone()),
        _ => Values::Objects(vec!["[...]".to_owned(); rows]),
    };
    Ok(Frame {
        labels: arrays.iter().map(|(name, _)| Label::Name(name.clone())).collect(),
        columns: arrays.iter().map(|(_, array)| column(array)).collect(),
        rows,
    })
}

fn named(frame: &Frame, columns: &[Column]) -> Result<TableData<'static>, Refusal> {
    let place = |column: &Column| frame.labels.iter().position(|label| label.is(&column.name));
    let missing: Vec<_> = columns.iter().filter(|column| place(column).is_none()).map(|c| repr(&c.name)).collect();
    if !missing.is_empty() {
        let known = |label: &&Label| !columns.iter().any(|column| label.is(&column.name));
        let extra: Vec<_> = frame.labels.iter().filter(known).map(ToString::to_string).collect();
        let reason = format!("Model is missing inputs {}.", list(missing.into_iter()));
        let extra = if extra.is_empty() {
            String::new()
        } else {
            format!(" Note that there were extra inputs: {}.", list(extra.into_iter()))
        };
        return Err(Refusal::Schema(reason + &extra));
    }
    let mut found = Vec::with_capacity(columns.len());
    for column in columns {
        let values = place(column).and_then(|place| frame.columns.get(place));
        let values =
            values.ok_or_else(|| Refusal::Schema(format!("Model is missing inputs [{}].", repr(&column.name))))?;
        found.push(typed(column, values)?);
    }
    let names = columns.iter().map(|column| Cow::Owned(column.name.clone())).collect();
    Ok(TableData::Frame(sklearn::DataFrame { names, columns: found, rows: frame.rows }))
}

/// Widens a column to the type that the signature says, where no value changes by that.
fn typed(column: &Column, values: &Values) -> Result<Elements<'static>, Refusal> {
    let incompatible = |found: &str| {
        let (name, wanted) = (&column.name, column.kind.numpy());
        let reason = format!("Incompatible input types for column {name}. Can not safely convert {found} to {wanted}.");
        Refusal::Schema(reason)
    };
    let Values::Known(elements) = values else {
        if column.kind == Kind::String {
            let reason = format!("column {} has values that are no texts", repr(&column.name));
            return Err(not_native(&reason));
        }
        return Err(incompatible("object"));
    };
    let (found, kind, width) = dtype(elements);
    if found == column.kind.pandas() {
        return Ok(elements.clone());
    }
    let (wanted_kind, wanted_width) = match column.kind {
        Kind::Boolean => (b'b', 1),
        Kind::Integer => (b'i', 4),
        Kind::Long => (b'i', 8),
        Kind::Float => (b'f', 4),
        Kind::Double => (b'f', 8),
        Kind::String => (b'U', 0),
    };
    let widens = match (kind, wanted_kind) {
        (b'u', b'i') => width < wanted_width,
        (b'i' | b'u', b'f') if column.kind == Kind::Double => width <= 6,
        _ => kind == wanted_kind && width <= wanted_width,
    };
    // Which are the same in all types, unlike other integers of 64 bits.
    let zeros_and_ones =
        || matches!(elements, Elements::Int(values, IntType::I64) if values.iter().all(|v| matches!(v, 0 | 1)));
    if widens || (wanted_kind == b'f' && zeros_and_ones()) {
        return Ok(widened(elements, column.kind));
    }
    let whole = |values: &[f64]| values.iter().all(|v| v.is_nan() || v.fract() == 0.0);
    let hint = matches!(elements, Elements::F64(values) if values.iter().any(|v| v.is_nan()) && whole(values));
    if hint && wanted_kind == b'i' {
        let Refusal::Schema(reason) = incompatible(found) else { return Err(incompatible(found)) };
        return Err(Refusal::Schema(format!("{reason}{INTEGER_HINT}")));
    }
    Err(incompatible(found))
}

/// What MLflow says to clients whose integers have become floats.
const INTEGER_HINT: &str = " Hint: the type mismatch is likely caused by missing values. Integer columns in python can not represent missing values and are therefore encoded as floats. The best way to avoid this problem is to infer the model schema based on a realistic data sample (training dataset) that includes missing values. Alternatively, you can declare integer columns as doubles (float64) whenever these columns may have missing values. See `Handling Integers With Missing Values <https://www.mlflow.org/docs/latest/models.html#handling-integers-with-missing-values>`_ for more details.";

#[expect(clippy::cast_precision_loss, reason = "what is too wide has been refused")]
fn widened(elements: &Elements<'_>, kind: Kind) -> Elements<'static> {
    match (elements, kind) {
        (Elements::F32(values), _) => Elements::F64(values.iter().copied().map(f64::from).collect()),
        (Elements::Int(values, _), Kind::Double) => Elements::F64(values.iter().map(|value| *value as f64).collect()),
        (Elements::Int(values, _), Kind::Float) => Elements::F32(values.iter().map(|value| *value as f32).collect()),
        (Elements::Int(values, _), Kind::Integer) => Elements::Int(values.to_vec().into(), IntType::I32),
        (Elements::Int(values, _), _) => Elements::Int(values.to_vec().into(), IntType::I64),
        (Elements::F64(values), _) => Elements::F64(values.to_vec().into()),
        (Elements::Text(values), _) => Elements::Text(values.clone()),
    }
}

fn tensor(given: &Given, kind: TensorKind, shape: &[i64]) -> Result<DenseTable<'static>, Refusal> {
    let array = match given {
        Given::Array(array) => Cow::Borrowed(array),
        Given::Frame(frame) => Cow::Owned(of_frame(frame, shape)?),
        Given::Arrays(_) | Given::Other { .. } => {
            let class = if let Given::Other { class, .. } = given { class } else { "dict" };
            return Err(Refusal::Schema(format!(
                "This model contains a tensor-based model signature with no input names, which suggests a numpy array input or a pandas dataframe input with proper column values, but an input of type <class '{class}'> was found."
            )));
        }
    };
    let fits = |(wanted, found): (&i64, &usize)| *wanted == -1 || usize::try_from(*wanted) == Ok(*found);
    if array.shape.len() != shape.len() || !shape.iter().zip(&array.shape).all(fits) {
        let (found, wanted) = (tuple(&array.shape), tuple(shape));
        return Err(Refusal::Schema(format!("Shape of input {found} does not match expected shape {wanted}.")));
    }
    let (found, wanted) = (dtype(&array.elements).0, kind.0.numpy());
    if found != wanted {
        let found = if found == "object" { "<U" } else { found };
        return Err(Refusal::Schema(format!("dtype of input {found} does not match expected dtype {wanted}")));
    }
    match array.shape[..] {
        [rows, columns] => Ok(DenseTable { elements: array.elements.clone(), rows, columns }),
        _ => Err(Refusal::Model(format!("it takes rows and columns, but the array has the shape {:?}", array.shape))),
    }
}

/// Returns a frame as an array of the type of its columns, which is one.
fn of_frame(frame: &Frame, shape: &[i64]) -> Result<Array, Refusal> {
    let (rows, width) = (frame.rows, frame.columns.len());
    if rows == 0 || width == 0 {
        return Err(Refusal::Schema("Input DataFrame is empty.".to_owned()));
    }
    if width == 1 {
        if !matches!(shape, [-1] | [-1, 1]) {
            return Err(Refusal::Schema(format!(
                "The input pandas dataframe column 'None' contains scalar values, which requires the shape to be (-1,) or (-1, 1), but got tensor spec shape of {}.",
                tuple(shape)
            )));
        }
    } else if !matches!(shape, [-1, columns] if usize::try_from(*columns) == Ok(width)) {
        return Err(Refusal::Schema(format!(
            "This model contains a model signature with an unnamed input. Since the input data is a pandas DataFrame containing multiple columns, the input shape must be of the structure (-1, number_of_dataframe_columns). Instead, the input DataFrame passed had {width} columns and an input shape of {} with all values within the DataFrame of scalar type. Please adjust the passed in DataFrame to match the expected structure",
            tuple(shape)
        )));
    }
    let cells = || (0..rows).flat_map(|row| (0..width).map(move |column| (row, column)));
    let mut floats = Vec::new();
    let mut singles = Vec::new();
    let mut integers = Vec::new();
    let mut kind = IntType::I64;
    for (row, column) in cells() {
        match &frame.columns[column] {
            Values::Known(Elements::F64(values)) => floats.push(values[row]),
            Values::Known(Elements::F32(values)) => singles.push(values[row]),
            Values::Known(Elements::Int(values, own)) => {
                integers.push(values[row]);
                kind = *own;
            }
            Values::Known(Elements::Text(_)) | Values::Objects(_) => {
                return Err(not_native("a data frame has values that are no numbers"));
            }
        }
    }
    let elements = match rows * width {
        all if floats.len() == all => Elements::F64(floats.into()),
        all if singles.len() == all => Elements::F32(singles.into()),
        all if integers.len() == all => Elements::Int(integers.into(), kind),
        _ => return Err(not_native("a data frame has columns of several types")),
    };
    let shape = if shape.len() == 1 { vec![rows] } else { vec![rows, width] };
    Ok(Array { shape, elements })
}
