//! Checks inputs against a signature: finds columns, widens their types, and rejects everything else with MLflow's messages.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::python::{echo, echo_name, list, repr, tuple};
use super::signature::{ColumnSpec, ColumnType, InputSchema, TensorType, dtype};
use super::values::{ColumnLabel, ColumnValues, DataFrame, ModelInput, NdArray};
use crate::evaluators::table::{self, DenseTable, Elements, IntType, TableData};

/// Why an input is rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum InputError {
    /// The input does not match the signature. Contains MLflow's reason.
    Schema(String),
    /// The model would fail on the input.
    Model(String),
    /// MLflow itself refuses the input as an error of the server's. Contains its reason.
    Internal(String),
    /// The server cannot process the input natively in the same way as Python.
    NotNative(String),
}

/// Checks an input against the schema, and returns the data for the model.
pub(super) fn enforce(input: &ModelInput, schema: &InputSchema) -> Result<TableData<'static>, InputError> {
    match schema {
        InputSchema::Any => enforce_nothing(input),
        InputSchema::Columns(columns) => {
            let frame = to_frame(input)?;
            let found = enforce_columns(&frame, columns)?;
            let names = columns.iter().map(|column| Cow::Owned(column.name.clone())).collect();
            table_of_columns(names, found, frame.rows)
        }
        InputSchema::Tensor { kind, shape } => {
            let NdArray { shape, elements } = enforce_tensor(input, *kind, shape)?;
            match shape[..] {
                [rows, columns] => table(elements, rows, columns).map(TableData::Table),
                _ => {
                    Err(InputError::Model(format!("it takes rows and columns, but the array has the shape {shape:?}")))
                }
            }
        }
    }
}

/// Checks an input as [`enforce`] does, for a model that takes arrays of any shape, and dictionaries of them.
pub(super) fn enforce_values<'i>(
    input: &'i ModelInput,
    schema: &InputSchema,
) -> Result<Cow<'i, ModelInput>, InputError> {
    Ok(match schema {
        InputSchema::Any => Cow::Borrowed(input),
        InputSchema::Columns(columns) => {
            let frame = to_frame(input)?;
            let found = enforce_columns(&frame, columns)?;
            Cow::Owned(ModelInput::Frame(DataFrame {
                labels: columns.iter().map(|column| ColumnLabel::Name(column.name.clone())).collect(),
                columns: found.into_iter().map(ColumnValues::Typed).collect(),
                rows: frame.rows,
            }))
        }
        InputSchema::Tensor { kind, shape } => Cow::Owned(ModelInput::Array(enforce_tensor(input, *kind, shape)?)),
    })
}

pub(super) fn not_native(reason: &str) -> InputError {
    InputError::NotNative(format!("{reason} (set `parameters.extra.backend` to `python` to use MLflow itself)"))
}

fn table(elements: Elements<'static>, rows: usize, columns: usize) -> Result<DenseTable<'static>, InputError> {
    DenseTable::new(elements, rows, columns).map_err(|error| InputError::Model(error.to_string()))
}

fn table_of_columns(
    names: Vec<Cow<'static, str>>,
    columns: Vec<Elements<'static>>,
    rows: usize,
) -> Result<TableData<'static>, InputError> {
    let frame = table::DataFrame::new(names, columns, rows);
    frame.map(TableData::Frame).map_err(|error| InputError::Model(error.to_string()))
}

/// Returns the data of an input to a model without a signature.
fn enforce_nothing(input: &ModelInput) -> Result<TableData<'static>, InputError> {
    match input {
        ModelInput::Array(array) => match array.shape[..] {
            [rows, columns] => table(array.elements.clone(), rows, columns).map(TableData::Table),
            [rows] if matches!(array.elements, Elements::Text(_)) => {
                table(array.elements.clone(), rows, 1).map(TableData::Table)
            }
            _ => Err(InputError::Model(format!(
                "it takes rows and columns, but the array has the shape {:?}",
                array.shape
            ))),
        },
        ModelInput::Frame(frame) => {
            let mut columns = Vec::with_capacity(frame.columns.len());
            for (label, column) in frame.labels.iter().zip(&frame.columns) {
                let ColumnValues::Typed(elements) = column else {
                    return Err(not_native(&format!("column {label} has missing strings, or values of several types")));
                };
                columns.push(elements.clone());
            }
            // pandas labels columns without names by their index, which the libraries do not treat as names either.
            if frame.labels.iter().any(|label| matches!(label, ColumnLabel::Index(_))) {
                return unnamed_columns(&columns, frame.rows);
            }
            let names = frame.labels.iter().map(|label| Cow::Owned(label.text())).collect();
            table_of_columns(names, columns, frame.rows)
        }
        ModelInput::Arrays(_) | ModelInput::Other { .. } => {
            Err(InputError::Model("it takes an array or a data frame, not a dictionary or a list of them".to_owned()))
        }
    }
}

/// Joins columns without names into one array of their common type.
fn unnamed_columns(columns: &[Elements<'static>], rows: usize) -> Result<TableData<'static>, InputError> {
    let table = |elements| table(elements, rows, columns.len()).map(TableData::Table);
    let interleaved = |value: &dyn Fn(usize, usize) -> f64| {
        (0..rows)
            .flat_map(|row| (0..columns.len()).map(move |column| (row, column)))
            .map(|(r, c)| value(r, c))
            .collect()
    };
    if let [column] = columns {
        return table(column.clone());
    }
    if columns.iter().any(|column| matches!(column, Elements::Text(_) | Elements::PartialText(_))) {
        return Err(not_native("columns of strings have no names"));
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
        Elements::Text(_) | Elements::PartialText(_) => f64::NAN,
    })))
}

/// Converts an input to a data frame.
fn to_frame(input: &ModelInput) -> Result<Cow<'_, DataFrame>, InputError> {
    let frame = match input {
        ModelInput::Frame(frame) => return Ok(Cow::Borrowed(frame)),
        ModelInput::Array(array) => {
            if array.shape.len() > 2 {
                return Err(InputError::Schema(format!("Must pass 2-d input. shape={}", tuple(&array.shape))));
            }
            let columns: Vec<_> = array.columns().into_iter().map(ColumnValues::Typed).collect();
            let labels = (0..columns.len()).map(ColumnLabel::Index).collect();
            DataFrame { labels, columns, rows: array.shape.first().copied().unwrap_or(1) }
        }
        ModelInput::Arrays(arrays) => frame_of_arrays(arrays)?,
        ModelInput::Other { names, .. } => {
            let labels = names.iter().cloned().map(ColumnLabel::Name).collect();
            let columns = names.iter().map(|_| ColumnValues::Objects(Vec::new())).collect();
            DataFrame { labels, columns, rows: 1 }
        }
    };
    Ok(Cow::Owned(frame))
}

/// Builds a frame whose columns are arrays. A scalar fills its column.
fn frame_of_arrays(arrays: &[(String, NdArray)]) -> Result<DataFrame, InputError> {
    let mut lengths = arrays.iter().filter_map(|(_, array)| array.shape.first().copied());
    let rows = lengths.next().unwrap_or(1);
    if lengths.any(|length| length != rows) {
        let reason = "This model contains a column-based signature, which suggests a DataFrame input. There was an error casting the input data to a DataFrame: All arrays must be of the same length";
        return Err(InputError::Schema(reason.to_owned()));
    }
    let column = |array: &NdArray| match array.shape.len() {
        0 => ColumnValues::Typed(super::values::take(&array.elements, std::iter::repeat_n(0, rows))),
        1 => ColumnValues::Typed(array.elements.clone()),
        _ => ColumnValues::Objects(vec!["[...]".to_owned(); rows]),
    };
    Ok(DataFrame {
        labels: arrays.iter().map(|(name, _)| ColumnLabel::Name(name.clone())).collect(),
        columns: arrays.iter().map(|(_, array)| column(array)).collect(),
        rows,
    })
}

/// The most extra inputs that a message names; their text is cut, too.
const MAX_EXTRA: usize = 1000;

/// Returns the columns of the signature, in its order and types.
fn enforce_columns(frame: &DataFrame, columns: &[ColumnSpec]) -> Result<Vec<Elements<'static>>, InputError> {
    // In linear time: a request may have as many columns as fit in its body.
    let mut positions = HashMap::with_capacity(frame.labels.len());
    let mut twice = HashSet::new();
    for (index, label) in frame.labels.iter().enumerate() {
        if let ColumnLabel::Name(name) = label
            && positions.insert(name.as_str(), index).is_some()
        {
            twice.insert(name.as_str());
        }
    }
    let position = |column: &ColumnSpec| positions.get(column.name.as_str()).copied();
    let missing: Vec<_> = columns.iter().filter(|column| position(column).is_none()).map(|c| repr(&c.name)).collect();
    if !missing.is_empty() {
        let wanted: HashSet<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        let is_extra =
            |label: &&ColumnLabel| !matches!(label, ColumnLabel::Name(name) if wanted.contains(name.as_str()));
        let extra: Vec<_> = frame.labels.iter().filter(is_extra).take(MAX_EXTRA + 1).map(ToString::to_string).collect();
        let reason = format!("Model is missing inputs {}.", list(missing.into_iter()));
        let extra = if extra.is_empty() {
            String::new()
        } else {
            format!(" Note that there were extra inputs: {}.", echo(&list(extra.into_iter())))
        };
        return Err(InputError::Schema(reason + &extra));
    }
    let mut found = Vec::with_capacity(columns.len());
    for column in columns {
        let values = position(column).and_then(|position| frame.columns.get(position));
        let values =
            values.ok_or_else(|| InputError::Schema(format!("Model is missing inputs [{}].", repr(&column.name))))?;
        if twice.contains(column.name.as_str()) {
            // pandas returns a frame in place of a column.
            let name = repr(&echo_name(&column.name));
            return Err(InputError::Schema(format!("The data frame has the column {name} more than once.")));
        }
        found.push(widen_column(column, values)?);
    }
    Ok(found)
}

/// Converts a column to the type in the signature if every value of its type can be converted without loss.
fn widen_column(column: &ColumnSpec, values: &ColumnValues) -> Result<Elements<'static>, InputError> {
    let incompatible = |found: &str| {
        let (name, wanted) = (&column.name, column.kind.numpy());
        let reason = format!("Incompatible input types for column {name}. Can not safely convert {found} to {wanted}.");
        InputError::Schema(reason)
    };
    let ColumnValues::Typed(elements) = values else {
        if column.kind == ColumnType::String {
            let reason = format!("column {} has values that are not strings", repr(&column.name));
            return Err(not_native(&reason));
        }
        return Err(incompatible("object"));
    };
    let (found, kind, width) = dtype(elements);
    if found == column.kind.pandas() {
        return Ok(elements.clone());
    }
    let (wanted_kind, wanted_width) = match column.kind {
        ColumnType::Boolean => (b'b', 1),
        ColumnType::Integer => (b'i', 4),
        ColumnType::Long => (b'i', 8),
        ColumnType::Float => (b'f', 4),
        ColumnType::Double => (b'f', 8),
        ColumnType::String => (b'U', 0),
    };
    let widens = match (kind, wanted_kind) {
        (b'u', b'i') => width < wanted_width,
        (b'i' | b'u', b'f') if column.kind == ColumnType::Double => width <= 6,
        _ => kind == wanted_kind && width <= wanted_width,
    };
    // 0 and 1 are exact in all types, unlike other integers of 64 bits.
    let zeros_and_ones =
        || matches!(elements, Elements::Int(values, IntType::I64) if values.iter().all(|v| matches!(v, 0 | 1)));
    if widens || (wanted_kind == b'f' && zeros_and_ones()) {
        return Ok(widen(elements, column.kind));
    }
    let whole = |values: &[f64]| values.iter().all(|v| v.is_nan() || v.fract() == 0.0);
    let hint = matches!(elements, Elements::F64(values) if values.iter().any(|v| v.is_nan()) && whole(values));
    if hint && wanted_kind == b'i' {
        let InputError::Schema(reason) = incompatible(found) else { return Err(incompatible(found)) };
        return Err(InputError::Schema(format!("{reason}{INTEGER_HINT}")));
    }
    Err(incompatible(found))
}

/// MLflow's hint to clients whose integers have become floats.
const INTEGER_HINT: &str = " Hint: the type mismatch is likely caused by missing values. Integer columns in python can not represent missing values and are therefore encoded as floats. The best way to avoid this problem is to infer the model schema based on a realistic data sample (training dataset) that includes missing values. Alternatively, you can declare integer columns as doubles (float64) whenever these columns may have missing values. See `Handling Integers With Missing Values <https://www.mlflow.org/docs/latest/models.html#handling-integers-with-missing-values>`_ for more details.";

#[expect(clippy::cast_precision_loss, reason = "types that are too wide have been rejected")]
fn widen(elements: &Elements<'_>, kind: ColumnType) -> Elements<'static> {
    match (elements, kind) {
        (Elements::F32(values), _) => Elements::F64(values.iter().copied().map(f64::from).collect()),
        (Elements::Int(values, _), ColumnType::Double) => {
            Elements::F64(values.iter().map(|value| *value as f64).collect())
        }
        (Elements::Int(values, _), ColumnType::Float) => {
            Elements::F32(values.iter().map(|value| *value as f32).collect())
        }
        (Elements::Int(values, _), ColumnType::Integer) => Elements::Int(values.to_vec().into(), IntType::I32),
        (Elements::Int(values, _), _) => Elements::Int(values.to_vec().into(), IntType::I64),
        (Elements::F64(values), _) => Elements::F64(values.to_vec().into()),
        (Elements::Text(values), _) => Elements::Text(values.clone()),
        (Elements::PartialText(values), _) => Elements::PartialText(values.clone()),
    }
}

fn enforce_tensor(input: &ModelInput, kind: TensorType, shape: &[i64]) -> Result<NdArray, InputError> {
    let array = match input {
        ModelInput::Array(array) => Cow::Borrowed(array),
        ModelInput::Frame(frame) => Cow::Owned(array_of_frame(frame, kind, shape)?),
        ModelInput::Arrays(_) | ModelInput::Other { .. } => {
            let class = if let ModelInput::Other { class, .. } = input { class } else { "dict" };
            return Err(InputError::Schema(format!(
                "This model contains a tensor-based model signature with no input names, which suggests a numpy array input or a pandas dataframe input with proper column values, but an input of type <class '{class}'> was found."
            )));
        }
    };
    let fits = |(wanted, found): (&i64, &usize)| *wanted == -1 || usize::try_from(*wanted) == Ok(*found);
    if array.shape.len() != shape.len() || !shape.iter().zip(&array.shape).all(fits) {
        let (found, wanted) = (tuple(&array.shape), tuple(shape));
        return Err(InputError::Schema(format!("Shape of input {found} does not match expected shape {wanted}.")));
    }
    let (found, wanted) = (dtype(&array.elements).0, kind.0.numpy());
    if found != wanted {
        let found = if found == "object" { "<U" } else { found };
        return Err(InputError::Schema(format!("dtype of input {found} does not match expected dtype {wanted}")));
    }
    Ok(array.into_owned())
}

/// Converts a frame whose columns have one common type to an array.
/// A single one is converted to the type of the signature, as by NumPy.
fn array_of_frame(frame: &DataFrame, kind: TensorType, shape: &[i64]) -> Result<NdArray, InputError> {
    let (rows, width) = (frame.rows, frame.columns.len());
    if rows == 0 || width == 0 {
        return Err(InputError::Schema("Input DataFrame is empty.".to_owned()));
    }
    if width == 1 {
        if !matches!(shape, [-1] | [-1, 1]) {
            return Err(InputError::Schema(format!(
                "The input pandas dataframe column 'None' contains scalar values, which requires the shape to be (-1,) or (-1, 1), but got tensor spec shape of {}.",
                tuple(shape)
            )));
        }
        if let ColumnValues::Typed(elements) = &frame.columns[0]
            && let Some(elements) = super::values::cast_numbers(elements, kind.0)
        {
            let shape = if shape.len() == 1 { vec![rows] } else { vec![rows, 1] };
            return Ok(NdArray { shape, elements });
        }
    } else if !matches!(shape, [-1, columns] if usize::try_from(*columns) == Ok(width)) {
        return Err(InputError::Schema(format!(
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
            ColumnValues::Typed(Elements::F64(values)) => floats.push(values[row]),
            ColumnValues::Typed(Elements::F32(values)) => singles.push(values[row]),
            ColumnValues::Typed(Elements::Int(values, own)) => {
                integers.push(values[row]);
                kind = *own;
            }
            ColumnValues::Typed(Elements::Text(_) | Elements::PartialText(_)) | ColumnValues::Objects(_) => {
                return Err(not_native("a data frame has values that are not numbers"));
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
    Ok(NdArray { shape, elements })
}
