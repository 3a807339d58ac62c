//! Reads tables and turns their rows into requests.
//!
//! Each column becomes an input of shape `[rows, 1]` with the column's name, as the content type `pd` expects. Text has no types: a
//! column gets the narrowest datatype that fits its first rows ([`SAMPLE_ROWS`]), or the one that the user specifies. A value never
//! changes silently: one that its datatype cannot hold makes its row fail.

pub(super) mod csv;
mod npy;
pub(super) mod objects;
#[cfg(feature = "parquet")]
mod parquet;

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;

use super::fingerprint::RowFingerprint;
use super::row::InvalidRow;
use crate::types::{BytesElements, Datatype, InferenceRequest, Parameters, Tensor, TensorData};

pub(super) use csv::CsvTable;
pub(super) use npy::NpyTable;
pub(super) use objects::ObjectTable;
#[cfg(feature = "parquet")]
pub(super) use parquet::{ParquetRows, ParquetTable};

/// How many rows datatypes are inferred from.
pub(super) const SAMPLE_ROWS: usize = 1000;
/// The limit on the text of these rows, in bytes, not counting the last one. There are fewer of them if they are long.
const SAMPLE_TEXT: usize = 4 << 20;
/// How long the input may pause, after its first row, before datatypes are inferred from the rows that have arrived.
const SAMPLE_PAUSE: Duration = Duration::from_secs(1);
/// Integers of fewer digits are exact in FP64.
const MAX_EXACT_DIGITS: usize = 15;

/// The texts that stand for a missing value, as in pandas.
const MISSING_VALUES: [&str; 12] =
    ["", "NA", "N/A", "#N/A", "NaN", "nan", "-nan", "null", "NULL", "None", "<NA>", "n/a"];

/// A value in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TableCell<'a> {
    Missing,
    Bool(bool),
    /// The text of a JSON number.
    Number(&'a str),
    /// Text of a file without types.
    Untyped(&'a str),
    Text(&'a str),
}

/// The name and the datatype of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableColumn {
    pub(super) name: String,
    pub(super) datatype: Datatype,
    /// The datatype was inferred, not specified by the user.
    pub(super) inferred: bool,
}

/// Why a cell has no place in its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CellError {
    /// It is not a value of the datatype.
    Invalid,
    /// It is a number beyond the datatype's range.
    OutOfRange,
    /// It is an integer that FP64 would round, in a column whose datatype was inferred.
    LosesDigits,
}

/// What the rows so far show about a column's datatype.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ColumnTypeGuess {
    kind: GuessedKind,
    missing: bool,
    /// There are negative integers.
    negative: bool,
    /// There are integers that only UINT64 can hold.
    large: bool,
    /// How many values were numbers, and how many were text.
    numbers: usize,
    texts: usize,
    /// The row of the first text, if the caller records it.
    pub(super) first_text: Option<usize>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum GuessedKind {
    #[default]
    Nothing,
    Bool,
    Integer,
    Number,
    Text,
}

impl ColumnTypeGuess {
    pub(super) fn add(&mut self, cell: TableCell<'_>) {
        let kind = match cell {
            TableCell::Missing => {
                self.missing = true;
                return;
            }
            TableCell::Untyped(text) if MISSING_VALUES.contains(&text) => {
                self.missing = true;
                return;
            }
            TableCell::Bool(_) => GuessedKind::Bool,
            TableCell::Text(_) => GuessedKind::Text,
            TableCell::Number(text) => self.number(text).unwrap_or(GuessedKind::Number),
            TableCell::Untyped(text) => match text.trim() {
                text if as_bool(text).is_some() => GuessedKind::Bool,
                text => self.number(text).unwrap_or(GuessedKind::Text),
            },
        };
        match kind {
            GuessedKind::Integer | GuessedKind::Number => self.numbers += 1,
            GuessedKind::Text => self.texts += 1,
            GuessedKind::Nothing | GuessedKind::Bool => {}
        }
        self.kind = match (self.kind, kind) {
            (GuessedKind::Nothing, kind) => kind,
            (before, kind) if before == kind => kind,
            (GuessedKind::Integer | GuessedKind::Number, GuessedKind::Integer | GuessedKind::Number) => {
                GuessedKind::Number
            }
            _ => GuessedKind::Text,
        };
    }

    /// Returns the kind of a number, or `None` for other text.
    fn number(&mut self, text: &str) -> Option<GuessedKind> {
        if let Ok(value) = text.parse::<i64>() {
            self.negative |= value < 0;
            return Some(GuessedKind::Integer);
        }
        if text.parse::<u64>().is_ok() {
            self.large = true;
            return Some(GuessedKind::Integer);
        }
        text.parse::<f64>().is_ok().then_some(GuessedKind::Number)
    }

    /// Reports whether there is text.
    pub(super) const fn has_text(self) -> bool {
        self.texts > 0
    }

    /// Returns a warning if most values are numbers, and a few others make the whole column text.
    pub(super) fn warning(self, name: &str) -> Option<String> {
        let row = self.first_text.filter(|_| self.texts < self.numbers)?;
        let column = if name.contains(' ') { format!("'{name}=FP64'") } else { format!("{name}=FP64") };
        Some(format!(
            "column `{name}` is sent as text (BYTES), because row {row} has no number there; with `--column-type {column}`, only \
             such rows fail"
        ))
    }

    /// Returns the datatype that holds all values so far.
    pub(super) const fn datatype(self) -> Datatype {
        match (self.kind, self.missing) {
            (GuessedKind::Nothing | GuessedKind::Number, _) | (GuessedKind::Integer, true) => Datatype::Fp64,
            (GuessedKind::Integer, false) => match (self.large, self.negative) {
                (false, _) => Datatype::Int64,
                (true, false) => Datatype::Uint64,
                // No integer datatype holds both.
                (true, true) => Datatype::Fp64,
            },
            (GuessedKind::Bool, false) => Datatype::Bool,
            (GuessedKind::Bool, true) | (GuessedKind::Text, _) => Datatype::Bytes,
        }
    }
}

fn as_bool(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// Replaces inferred datatypes by those that the user specifies.
pub(super) fn apply_column_types(columns: &mut [TableColumn], types: &[(String, Datatype)]) -> Result<(), String> {
    for (name, datatype) in types {
        let Some(column) = columns.iter_mut().find(|column| column.name == *name) else {
            let names: Vec<_> = columns.iter().map(|column| column.name.as_str()).take(20).collect();
            return Err(format!("no column `{name}` (from --column-type); the columns are {}", names.join(", ")));
        };
        (column.datatype, column.inferred) = (*datatype, false);
    }
    Ok(())
}

/// Reports whether the user specifies the datatypes of exactly these columns, so that there is nothing to infer.
fn are_typed<'a>(names: impl Iterator<Item = &'a str>, types: &[(String, Datatype)]) -> bool {
    let mut open: HashSet<&str> = types.iter().map(|(name, _)| name.as_str()).collect();
    names.into_iter().all(|name| open.remove(name)) && open.is_empty()
}

/// Rejects columns of the same name.
fn check_unique<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(format!("there are two columns `{name}`: rename or remove one of them"));
        }
    }
    Ok(())
}

/// Builds a request from rows.
pub(super) struct TableBuilder<'s> {
    columns: &'s [TableColumn],
    values: Vec<ColumnBytes>,
    /// The positions of the rows that were added.
    positions: Vec<usize>,
    invalid: Vec<InvalidRow>,
}

/// The request for the rows of a table.
#[derive(Debug)]
pub(super) struct TableRequest {
    pub(super) request: InferenceRequest,
    /// The positions of its rows in the batch.
    pub(super) positions: Vec<usize>,
    pub(super) invalid: Vec<InvalidRow>,
}

impl TableRequest {
    /// Returns the fingerprint of each row of the batch.
    pub(super) fn fingerprints(&self) -> Vec<RowFingerprint> {
        let valid = self.positions.len().max(1);
        let of_row = |row: usize| {
            let cells = self.request.inputs.iter().flat_map(|tensor| -> Vec<&[u8]> {
                let mut cells = vec![tensor.name.as_bytes()];
                match &tensor.data {
                    TensorData::Fixed(bytes) => {
                        let width = bytes.len() / valid;
                        cells.extend(bytes.get(row * width..(row + 1) * width));
                    }
                    TensorData::Variable(elements) => {
                        let width = elements.len() / valid;
                        cells.extend(elements.range(row * width..(row + 1) * width));
                    }
                    // Tables have none.
                    TensorData::Irregular(_) => {}
                }
                cells
            });
            RowFingerprint::of(cells)
        };
        let mut fingerprints: BTreeMap<usize, RowFingerprint> =
            self.positions.iter().enumerate().map(|(row, &position)| (position, of_row(row))).collect();
        for invalid in &self.invalid {
            fingerprints.insert(invalid.position, RowFingerprint::of([invalid.message.as_bytes()]));
        }
        fingerprints.into_values().collect()
    }
}

#[derive(Default)]
struct ColumnBytes {
    bytes: Vec<u8>,
    /// The elements of BYTES, unused for other datatypes.
    spans: Vec<Range<usize>>,
}

impl<'s> TableBuilder<'s> {
    pub(super) fn new(columns: &'s [TableColumn], rows: usize) -> Self {
        let values = columns.iter().map(|column| {
            let bytes = Vec::with_capacity(column.datatype.width().unwrap_or(16) * rows);
            ColumnBytes { bytes, spans: Vec::new() }
        });
        Self { columns, values: values.collect(), positions: Vec::with_capacity(rows), invalid: Vec::new() }
    }

    /// Adds a row, which has a cell for each column, or records that it is invalid.
    pub(super) fn row<'a>(&mut self, position: usize, cells: impl Iterator<Item = TableCell<'a>>) {
        for ((column, values), cell) in self.columns.iter().zip(&mut self.values).zip(cells) {
            let Err(reason) = values.push(column, cell) else { continue };
            let found = match cell {
                TableCell::Missing => "a missing value".to_owned(),
                TableCell::Bool(value) => format!("`{value}`"),
                TableCell::Untyped(text) | TableCell::Text(text) | TableCell::Number(text) => {
                    format!("`{}`", text.chars().take(40).collect::<String>())
                }
            };
            let TableColumn { name, datatype, inferred } = column;
            let message = match reason {
                CellError::Invalid if !inferred => format!("column `{name}`: {found} is not a valid {datatype}"),
                CellError::Invalid => {
                    format!("column `{name}`: {found} is not a valid {datatype}; set its datatype with `--column-type`")
                }
                CellError::OutOfRange => {
                    format!(
                        "column `{name}`: {found} is out of the range of {datatype}; set its datatype with `--column-type`"
                    )
                }
                CellError::LosesDigits => loses_digits(name, &found),
            };
            self.reject(position, message);
            return;
        }
        self.positions.push(position);
    }

    /// Records that a row is invalid.
    pub(super) fn reject(&mut self, position: usize, message: String) {
        // Remove the cells of the row that were added already.
        let rows = self.positions.len();
        for (column, values) in self.columns.iter().zip(&mut self.values) {
            match column.datatype.width() {
                Some(width) => values.bytes.truncate(rows * width),
                None => values.spans.truncate(rows),
            }
        }
        self.invalid.push(InvalidRow { position, id: None, message });
    }

    /// Returns the request for all rows that were added.
    pub(super) fn finish(self) -> TableRequest {
        let rows = self.positions.len();
        let inputs = self.columns.iter().zip(self.values).map(|(column, values)| {
            let (data, parameters) = match column.datatype {
                Datatype::Bytes => {
                    let elements = BytesElements::new(values.bytes.into(), values.spans);
                    let elements = elements.expect("the spans are within the buffer").with_text(true);
                    (TensorData::Variable(elements), Parameters::with_content_type("str"))
                }
                _ => (TensorData::Fixed(Bytes::from(values.bytes)), Parameters::new()),
            };
            Tensor {
                name: column.name.clone(),
                datatype: column.datatype,
                shape: vec![rows, 1],
                parameters,
                data,
                nested: false,
                as_sent: None,
            }
        });
        let inputs = inputs.collect();
        let request = InferenceRequest { parameters: Parameters::of_columns(), inputs, ..InferenceRequest::default() };
        TableRequest { request, positions: self.positions, invalid: self.invalid }
    }
}

impl TableRequest {
    /// Creates the request for inputs that have `rows` rows; `frame` if they are the columns of a data frame.
    pub(super) fn of_tensors(inputs: Vec<Tensor>, rows: usize, frame: bool) -> Self {
        let parameters = if frame { Parameters::of_columns() } else { Parameters::new() };
        let request = InferenceRequest { parameters, inputs, ..InferenceRequest::default() };
        Self { request, positions: (0..rows).collect(), invalid: Vec::new() }
    }

    /// Returns the number of rows, including those that are invalid.
    pub(super) const fn rows(&self) -> usize {
        self.positions.len() + self.invalid.len()
    }
}

/// Returns the message for an integer that a column of FP64 would round.
fn loses_digits(name: &str, found: &str) -> String {
    format!(
        "column `{name}`: {found} would lose digits as FP64, the column's inferred datatype; set its datatype with \
         `--column-type` (FP64 allows the rounding, BYTES keeps the text)"
    )
}

impl ColumnBytes {
    fn push(&mut self, column: &TableColumn, cell: TableCell<'_>) -> Result<(), CellError> {
        macro_rules! put {
            ($value:expr) => {
                self.bytes.extend_from_slice(&$value.to_le_bytes())
            };
        }
        macro_rules! put_integer {
            ($type:ty) => {
                put!(<$type>::try_from(integer(cell)?).map_err(|_| CellError::OutOfRange)?)
            };
        }
        match column.datatype {
            Datatype::Fp64 => {
                let value: f64 = number(cell, f64::NAN, f64::is_finite)?;
                if column.inferred && !is_exact(cell, value) {
                    return Err(CellError::LosesDigits);
                }
                put!(value);
            }
            Datatype::Fp32 => put!(number(cell, f32::NAN, f32::is_finite)?),
            Datatype::Int64 => put_integer!(i64),
            Datatype::Int32 => put_integer!(i32),
            Datatype::Int16 => put_integer!(i16),
            Datatype::Int8 => put_integer!(i8),
            Datatype::Uint64 => put_integer!(u64),
            Datatype::Uint32 => put_integer!(u32),
            Datatype::Uint16 => put_integer!(u16),
            Datatype::Uint8 => put_integer!(u8),
            Datatype::Bool => self.bytes.push(u8::from(match cell {
                TableCell::Bool(value) => value,
                TableCell::Untyped(text) => as_bool(text.trim()).ok_or(CellError::Invalid)?,
                _ => return Err(CellError::Invalid),
            })),
            Datatype::Bytes => {
                let start = self.bytes.len();
                match cell {
                    TableCell::Missing => {}
                    TableCell::Bool(value) => self.bytes.extend_from_slice(value.to_string().as_bytes()),
                    TableCell::Untyped(text) | TableCell::Text(text) | TableCell::Number(text) => {
                        self.bytes.extend_from_slice(text.as_bytes());
                    }
                }
                self.spans.push(start..self.bytes.len());
            }
            Datatype::Fp16 | Datatype::Bf16 => return Err(CellError::Invalid),
        }
        Ok(())
    }
}

/// Reads a floating-point number at its own precision: parsing FP32 as FP64 first would round twice.
fn number<T: FromStr + Copy>(cell: TableCell<'_>, nan: T, is_finite: fn(T) -> bool) -> Result<T, CellError> {
    let text = match cell {
        TableCell::Missing => return Ok(nan),
        TableCell::Untyped(text) if MISSING_VALUES.contains(&text) => return Ok(nan),
        TableCell::Untyped(text) => text.trim(),
        TableCell::Number(text) => text,
        TableCell::Bool(_) | TableCell::Text(_) => return Err(CellError::Invalid),
    };
    let value: T = text.parse().map_err(|_| CellError::Invalid)?;
    // Only the words `inf` and `infinity` stand for infinity.
    if !is_finite(value) && text.contains(|letter: char| letter.is_ascii_digit()) {
        return Err(CellError::OutOfRange);
    }
    Ok(value)
}

/// Reports whether a cell is not an integer, or one that `value` holds exactly.
fn is_exact(cell: TableCell<'_>, value: f64) -> bool {
    let (TableCell::Untyped(text) | TableCell::Number(text)) = cell else { return true };
    let digits = text.trim().trim_start_matches(['+', '-']).trim_start_matches('0');
    let is_long_integer = digits.len() > MAX_EXACT_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    !is_long_integer || format!("{:.0}", value.abs()) == digits
}

fn integer(cell: TableCell<'_>) -> Result<i128, CellError> {
    match cell {
        TableCell::Untyped(text) | TableCell::Number(text) => {
            let text = text.trim();
            // Most integers have 64 bits, which are faster to parse.
            text.parse::<i64>().map(i128::from).or_else(|_| text.parse()).map_err(|_| CellError::Invalid)
        }
        TableCell::Missing | TableCell::Bool(_) | TableCell::Text(_) => Err(CellError::Invalid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datatype(cells: &[&'static str]) -> Datatype {
        let mut seen = ColumnTypeGuess::default();
        for cell in cells {
            seen.add(TableCell::Untyped(cell));
        }
        seen.datatype()
    }

    #[test]
    fn column_datatype_is_the_narrowest() {
        assert_eq!(datatype(&["1", "-2"]), Datatype::Int64);
        assert_eq!(datatype(&["1", ""]), Datatype::Fp64, "integers have no missing values");
        assert_eq!(datatype(&["1", "2.5", "1e3", "NA"]), Datatype::Fp64);
        assert_eq!(datatype(&["99999999999999999999"]), Datatype::Fp64);
        assert_eq!(datatype(&["true", "False"]), Datatype::Bool);
        assert_eq!(datatype(&["true", ""]), Datatype::Bytes);
        assert_eq!(datatype(&["1", "a"]), Datatype::Bytes);
        assert_eq!(datatype(&["", "NaN"]), Datatype::Fp64);
        assert_eq!(datatype(&["18446744073709551615", "0"]), Datatype::Uint64);
        assert_eq!(datatype(&["18446744073709551615", "-1"]), Datatype::Fp64);
        assert_eq!(datatype(&["9223372036854775807", "-1"]), Datatype::Int64);
    }

    #[test]
    fn table_builder_invalid_row_leaves_no_cells() {
        let column = |name: &str, datatype| TableColumn { name: name.to_owned(), datatype, inferred: true };
        let columns = [column("a", Datatype::Int64), column("t", Datatype::Bytes), column("f", Datatype::Fp64)];
        let mut builder = TableBuilder::new(&columns, 4);
        builder.row(0, [TableCell::Untyped("1"), TableCell::Untyped("x"), TableCell::Untyped("")].into_iter());
        builder.row(1, [TableCell::Untyped("2"), TableCell::Untyped("y"), TableCell::Untyped("z")].into_iter());
        builder.reject(2, "short".to_owned());
        builder.row(3, [TableCell::Number("-3"), TableCell::Missing, TableCell::Number("0.5")].into_iter());
        let TableRequest { request, positions, invalid } = builder.finish();
        assert_eq!(positions, [0, 3]);
        let message = "column `f`: `z` is not a valid FP64; set its datatype with `--column-type`";
        assert_eq!(
            invalid.iter().map(|row| (row.position, row.message.as_str())).collect::<Vec<_>>(),
            [(1, message), (2, "short")]
        );
        assert!(request.inputs.iter().all(|input| input.check().is_ok() && input.shape == [2, 1]));
        assert_eq!(request.inputs[0].elements::<i64>().unwrap().as_ref(), [1, -3]);
        let TensorData::Variable(texts) = &request.inputs[1].data else { unreachable!() };
        assert_eq!(texts.iter().collect::<Vec<_>>(), [b"x".as_slice(), b""]);
        let floats = request.inputs[2].elements::<f64>().unwrap();
        assert!(floats[0].is_nan() && floats[1].to_bits() == 0.5_f64.to_bits());
    }

    #[test]
    fn column_types_override_inferred_types() {
        let mut columns = vec![TableColumn { name: "a".to_owned(), datatype: Datatype::Int64, inferred: true }];
        apply_column_types(&mut columns, &[("a".to_owned(), Datatype::Fp32)]).unwrap();
        assert_eq!((columns[0].datatype, columns[0].inferred), (Datatype::Fp32, false));
        let error = apply_column_types(&mut columns, &[("b".to_owned(), Datatype::Fp32)]).unwrap_err();
        assert_eq!(error, "no column `b` (from --column-type); the columns are a");
    }

    #[test]
    fn table_values_never_change_silently() {
        let message = |datatype, inferred, cell| {
            let columns = [TableColumn { name: "a".to_owned(), datatype, inferred }];
            let mut builder = TableBuilder::new(&columns, 1);
            builder.row(0, std::iter::once(cell));
            builder.finish().invalid.pop().map(|row| row.message)
        };
        let (untyped, json) = (TableCell::Untyped, TableCell::Number);
        let out_of_range = |text: &str, datatype: &str| {
            format!("column `a`: `{text}` is out of the range of {datatype}; set its datatype with `--column-type`")
        };
        for cell in [untyped("1e400"), json("1e400")] {
            assert_eq!(message(Datatype::Fp64, false, cell), Some(out_of_range("1e400", "FP64")));
        }
        for cell in [untyped(" -1e39 "), json("-1e39")] {
            assert!(message(Datatype::Fp32, false, cell).is_some());
        }
        assert_eq!(message(Datatype::Fp32, true, untyped("-inf")), None, "infinity in words is valid");
        assert_eq!(message(Datatype::Fp64, true, untyped("Infinity")), None);
        for text in ["9007199254740993", "-9007199254740993", "18446744073709551617"] {
            assert_eq!(message(Datatype::Fp64, true, untyped(text)), Some(loses_digits("a", &format!("`{text}`"))));
            assert_eq!(message(Datatype::Fp64, false, json(text)), None, "the user asks for FP64");
        }
        for text in
            ["9007199254740992", "+09007199254740994", "0.12345678901234567890", "1e300", "00000000000000000001"]
        {
            assert_eq!(message(Datatype::Fp64, true, untyped(text)), None, "{text}");
        }
        assert_eq!(message(Datatype::Uint64, false, untyped("18446744073709551615")), None);
        let large = "18446744073709551616";
        assert_eq!(message(Datatype::Uint64, false, json(large)), Some(out_of_range(large, "UINT64")));
        assert_eq!(message(Datatype::Int8, false, json("-129")), Some(out_of_range("-129", "INT8")));
    }

    #[test]
    fn column_names_must_be_unique() {
        assert_eq!(check_unique(["a", "b"].into_iter()), Ok(()));
        let error = "there are two columns `a`: rename or remove one of them";
        assert_eq!(check_unique(["a", "b", "a"].into_iter()), Err(error.to_owned()));
    }
}
