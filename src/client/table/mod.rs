//! Reads tables and turns their rows into requests.
//!
//! Each column becomes an input of shape `[rows, 1]` with the column's name, as the content type `pd` expects. Text has no types: a
//! column gets the narrowest datatype that fits its first [`SAMPLE_ROWS`] rows, or the one that the user specifies.

pub(super) mod csv;
mod npy;
pub(super) mod objects;
#[cfg(feature = "parquet")]
mod parquet;

use std::ops::Range;

use bytes::Bytes;

use super::request::InvalidRow;
use crate::types::{BytesElements, Datatype, InferenceRequest, Parameters, Tensor, TensorData};

pub(super) use csv::CsvTable;
pub(super) use npy::NpyTable;
pub(super) use objects::ObjectTable;
#[cfg(feature = "parquet")]
pub(super) use parquet::ParquetTable;

/// How many rows datatypes are inferred from.
pub(super) const SAMPLE_ROWS: usize = 1000;

/// The texts that stand for a missing value, as in pandas.
const MISSING_VALUES: [&str; 12] =
    ["", "NA", "N/A", "#N/A", "NaN", "nan", "-nan", "null", "NULL", "None", "<NA>", "n/a"];

/// A value in a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TableCell<'a> {
    Missing,
    Bool(bool),
    Integer(i64),
    Number(f64),
    /// Text of a file without types.
    Untyped(&'a str),
    Text(&'a str),
}

/// The name and the datatype of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TableColumn {
    pub(super) name: String,
    pub(super) datatype: Datatype,
}

/// What the rows so far show about a column's datatype.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ColumnTypeGuess {
    kind: GuessedKind,
    missing: bool,
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
            TableCell::Integer(_) => GuessedKind::Integer,
            TableCell::Number(_) => GuessedKind::Number,
            TableCell::Text(_) => GuessedKind::Text,
            TableCell::Untyped(text) => match text.trim() {
                text if text.parse::<i64>().is_ok() => GuessedKind::Integer,
                text if text.parse::<f64>().is_ok() => GuessedKind::Number,
                text if as_bool(text).is_some() => GuessedKind::Bool,
                _ => GuessedKind::Text,
            },
        };
        self.kind = match (self.kind, kind) {
            (GuessedKind::Nothing, kind) => kind,
            (before, kind) if before == kind => kind,
            (GuessedKind::Integer | GuessedKind::Number, GuessedKind::Integer | GuessedKind::Number) => {
                GuessedKind::Number
            }
            _ => GuessedKind::Text,
        };
    }

    /// Returns the datatype that holds all values so far.
    pub(super) const fn datatype(self) -> Datatype {
        match (self.kind, self.missing) {
            (GuessedKind::Nothing | GuessedKind::Number, _) | (GuessedKind::Integer, true) => Datatype::Fp64,
            (GuessedKind::Integer, false) => Datatype::Int64,
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
        column.datatype = *datatype;
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
            if values.push(column.datatype, cell).is_none() {
                let found = match cell {
                    TableCell::Missing => "a missing value".to_owned(),
                    TableCell::Bool(value) => format!("`{value}`"),
                    TableCell::Integer(value) => format!("`{value}`"),
                    TableCell::Number(value) => format!("`{value}`"),
                    TableCell::Untyped(text) | TableCell::Text(text) => {
                        format!("`{}`", text.chars().take(40).collect::<String>())
                    }
                };
                let TableColumn { name, datatype } = column;
                self.reject(
                    position,
                    format!(
                        "column `{name}`: {found} is not a valid {datatype}; set its datatype with `--column-type`"
                    ),
                );
                return;
            }
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
            }
        });
        let inputs = inputs.collect();
        let request =
            InferenceRequest { parameters: Parameters::with_content_type("pd"), inputs, ..InferenceRequest::default() };
        TableRequest { request, positions: self.positions, invalid: self.invalid }
    }
}

impl ColumnBytes {
    fn push(&mut self, datatype: Datatype, cell: TableCell<'_>) -> Option<()> {
        macro_rules! put {
            ($value:expr) => {
                self.bytes.extend_from_slice(&$value.to_le_bytes())
            };
        }
        match datatype {
            Datatype::Fp64 => put!(number(cell)?),
            Datatype::Fp32 => put!(match cell {
                // Parsing as FP64 first would round twice.
                TableCell::Untyped(text) if !MISSING_VALUES.contains(&text) => text.trim().parse::<f32>().ok()?,
                #[expect(clippy::cast_possible_truncation, reason = "the datatype asks for it")]
                cell => number(cell)? as f32,
            }),
            Datatype::Int64 => put!(integer(cell)?),
            Datatype::Int32 => put!(i32::try_from(integer(cell)?).ok()?),
            Datatype::Int16 => put!(i16::try_from(integer(cell)?).ok()?),
            Datatype::Int8 => put!(i8::try_from(integer(cell)?).ok()?),
            Datatype::Uint64 => put!(u64::try_from(integer(cell)?).ok()?),
            Datatype::Uint32 => put!(u32::try_from(integer(cell)?).ok()?),
            Datatype::Uint16 => put!(u16::try_from(integer(cell)?).ok()?),
            Datatype::Uint8 => put!(u8::try_from(integer(cell)?).ok()?),
            Datatype::Bool => self.bytes.push(u8::from(match cell {
                TableCell::Bool(value) => value,
                TableCell::Untyped(text) => as_bool(text.trim())?,
                _ => return None,
            })),
            Datatype::Bytes => {
                let start = self.bytes.len();
                match cell {
                    TableCell::Missing => {}
                    TableCell::Bool(value) => self.bytes.extend_from_slice(value.to_string().as_bytes()),
                    TableCell::Integer(value) => self.bytes.extend_from_slice(value.to_string().as_bytes()),
                    TableCell::Number(value) => self.bytes.extend_from_slice(value.to_string().as_bytes()),
                    TableCell::Untyped(text) | TableCell::Text(text) => self.bytes.extend_from_slice(text.as_bytes()),
                }
                self.spans.push(start..self.bytes.len());
            }
            Datatype::Fp16 | Datatype::Bf16 => return None,
        }
        Some(())
    }
}

fn number(cell: TableCell<'_>) -> Option<f64> {
    match cell {
        TableCell::Missing => Some(f64::NAN),
        #[expect(clippy::cast_precision_loss, reason = "a column of mixed numbers has FP64")]
        TableCell::Integer(value) => Some(value as f64),
        TableCell::Number(value) => Some(value),
        TableCell::Untyped(text) if MISSING_VALUES.contains(&text) => Some(f64::NAN),
        TableCell::Untyped(text) => text.trim().parse().ok(),
        TableCell::Bool(_) | TableCell::Text(_) => None,
    }
}

fn integer(cell: TableCell<'_>) -> Option<i64> {
    match cell {
        TableCell::Integer(value) => Some(value),
        TableCell::Untyped(text) => text.trim().parse().ok(),
        TableCell::Missing | TableCell::Bool(_) | TableCell::Number(_) | TableCell::Text(_) => None,
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
    }

    #[test]
    fn table_builder_invalid_row_leaves_no_cells() {
        let column = |name: &str, datatype| TableColumn { name: name.to_owned(), datatype };
        let columns = [column("a", Datatype::Int64), column("t", Datatype::Bytes), column("f", Datatype::Fp64)];
        let mut builder = TableBuilder::new(&columns, 4);
        builder.row(0, [TableCell::Untyped("1"), TableCell::Untyped("x"), TableCell::Untyped("")].into_iter());
        builder.row(1, [TableCell::Untyped("2"), TableCell::Untyped("y"), TableCell::Untyped("z")].into_iter());
        builder.reject(2, "short".to_owned());
        builder.row(3, [TableCell::Integer(-3), TableCell::Missing, TableCell::Number(0.5)].into_iter());
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
        let mut columns = vec![TableColumn { name: "a".to_owned(), datatype: Datatype::Int64 }];
        apply_column_types(&mut columns, &[("a".to_owned(), Datatype::Fp32)]).unwrap();
        assert_eq!(columns[0].datatype, Datatype::Fp32);
        let error = apply_column_types(&mut columns, &[("b".to_owned(), Datatype::Fp32)]).unwrap_err();
        assert_eq!(error, "no column `b` (from --column-type); the columns are a");
    }
}
