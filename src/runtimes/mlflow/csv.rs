//! Reads CSV as pandas does: a header line, then rows, with the column types of the signature or inferred ones.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::LazyLock;

use super::python::{echo, echo_name, repr};
use super::signature::{ColumnType, InputSchema};
use super::values::{ColumnLabel, ColumnValues, DataFrame, ModelInput, check_cells, narrow, truncated_cast};
use crate::evaluators::table::{Elements, IntType};

/// Why CSV cannot be read as a data frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CsvError {
    /// Contains the message of pandas.
    Pandas(String),
    /// The server cannot read it natively in the same way as pandas.
    NotNative(String),
}

/// The cells that pandas reads as missing values.
const MISSING: [&str; 19] = [
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
];

/// The most columns of CSV. A column takes a byte of the body, but a few hundred of memory.
const MAX_COLUMNS: usize = 1 << 17;

/// Reads a data frame.
pub(super) fn read(text: &str, schema: &InputSchema) -> Result<ModelInput, CsvError> {
    let pandas = |reason: String| CsvError::Pandas(reason);
    if let InputSchema::Tensor { .. } = schema {
        return Err(pandas("TensorSpec only supports numpy types, use numpy_types() instead".to_owned()));
    }
    let mut table = CsvTable::read(text)?;
    if table.rows.is_empty() {
        return Err(pandas("No columns to parse from file".to_owned()));
    }
    let labels = labels(&table)?;
    let header = table.rows.remove(0);
    if let Some((index, row)) = table.rows.iter().enumerate().find(|(_, row)| row.len() > labels.len()) {
        // If the first row is longer than the header, pandas treats its first field as an index. This is not supported,
        // because it cannot be distinguished from a mistake.
        let line = index + 2;
        let (wanted, found) = (labels.len(), row.len());
        return Err(match index {
            0 => CsvError::NotNative(format!("line {line} of the CSV has {found} fields, but its header has {wanted}")),
            _ => pandas(format!(
                "Error tokenizing data. C error: Expected {wanted} fields in line {line}, saw {found}\n"
            )),
        });
    }
    check_cells(table.rows.len(), labels.len(), table.ends.len() - header.len()).map_err(CsvError::NotNative)?;
    let declared: HashMap<&str, ColumnType> = match schema {
        InputSchema::Columns(columns) => {
            columns.iter().rev().map(|column| (column.name.as_str(), column.kind)).collect()
        }
        InputSchema::Any | InputSchema::Tensor { .. } => HashMap::new(),
    };
    let mut columns = Vec::with_capacity(labels.len());
    for (place, name) in labels.iter().enumerate() {
        let cells: Vec<&str> = table.rows.iter().map(|row| table.cell(row, place).unwrap_or_default()).collect();
        columns.push(match declared.get(name.as_str()) {
            Some(&kind) => cast_column(&cells, kind, place).map_err(CsvError::Pandas)?,
            None => infer_column(&cells),
        });
    }
    let labels = labels.into_iter().map(ColumnLabel::Name).collect();
    Ok(ModelInput::Frame(DataFrame { labels, columns, rows: table.rows.len() }))
}

/// Returns the names of the columns, from the first row.
fn labels(table: &CsvTable) -> Result<Vec<String>, CsvError> {
    let Some(header) = table.rows.first() else { return Ok(Vec::new()) };
    if header.len() > MAX_COLUMNS {
        let found = header.len();
        return Err(CsvError::NotNative(format!("the CSV has {found} columns, more than the limit of {MAX_COLUMNS}")));
    }
    let mut labels = Vec::with_capacity(header.len());
    let mut seen = HashSet::with_capacity(header.len());
    for place in 0..header.len() {
        let name = match table.cell(header, place) {
            None | Some("") => format!("Unnamed: {place}"),
            Some(name) => name.to_owned(),
        };
        if !seen.insert(name.clone()) {
            return Err(CsvError::NotNative(format!("the CSV has two columns {}", repr(&echo_name(&name)))));
        }
        labels.push(name);
    }
    Ok(labels)
}

/// The fields of CSV. A record of its own for each row would take a hundred times as much memory as a short row.
#[derive(Default)]
struct CsvTable {
    /// All fields, one after the other.
    text: String,
    /// The end of each field in the text.
    ends: Vec<usize>,
    /// The fields of each row.
    rows: Vec<Range<usize>>,
}

impl CsvTable {
    fn read(text: &str) -> Result<Self, CsvError> {
        let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        let mut record = csv::StringRecord::new();
        let mut table = Self { text: String::with_capacity(text.len()), ..Self::default() };
        loop {
            let more = reader.read_record(&mut record);
            if !more.map_err(|error| CsvError::NotNative(format!("cannot read the CSV: {error}")))? {
                return Ok(table);
            }
            let first = table.ends.len();
            for field in &record {
                table.text.push_str(field);
                table.ends.push(table.text.len());
            }
            table.rows.push(first..table.ends.len());
        }
    }

    /// Returns the field of a row in a column, or `None` if the row is shorter.
    fn cell(&self, row: &Range<usize>, place: usize) -> Option<&str> {
        let index = row.start.checked_add(place).filter(|index| row.contains(index))?;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or_default();
        self.text.get(start..*self.ends.get(index)?)
    }
}

fn is_missing(cell: &str) -> bool {
    MISSING.contains(&cell)
}

/// Reads a column of a declared type.
fn cast_column(cells: &[&str], kind: ColumnType, place: usize) -> Result<ColumnValues, String> {
    let unsafe_cast = |found: &str| {
        let wanted = kind.pandas();
        Err(format!("cannot safely convert passed user dtype of {wanted} for {found} dtyped data in column {place}"))
    };
    let elements = match kind {
        ColumnType::String if cells.iter().any(|cell| is_missing(cell)) => return Ok(objects(cells)),
        ColumnType::String => Elements::Text(cells.iter().map(|cell| (*cell).into()).collect()),
        ColumnType::Double => Elements::F64(truths_or_floats(cells)?.into()),
        ColumnType::Float => Elements::F32(truths_or_floats(cells)?.into_iter().map(narrow).collect()),
        ColumnType::Boolean => match truths(cells) {
            Some(truths) => Elements::Int(truths.into(), IntType::Bool),
            None => match infer_column(cells) {
                // Only what is exact: 0 and 1.
                ColumnValues::Typed(Elements::Int(values, _)) if values.iter().any(|value| !matches!(value, 0 | 1)) => {
                    return unsafe_cast("int64");
                }
                ColumnValues::Typed(Elements::Int(values, _)) => Elements::Int(values, IntType::Bool),
                ColumnValues::Typed(Elements::F64(values)) if values.iter().all(|value| !value.is_nan()) => {
                    let truths = truncated_cast(&values, ColumnType::Long);
                    match truths {
                        Elements::Int(truths, _)
                            if truths.iter().all(|truth| matches!(truth, 0 | 1))
                                && is_exact(&values, &Elements::Int(truths.clone(), IntType::I64)) =>
                        {
                            Elements::Int(truths, IntType::Bool)
                        }
                        _ => return unsafe_cast("float64"),
                    }
                }
                ColumnValues::Typed(Elements::F64(_)) => {
                    return Err(format!("Bool column has NA values in column {place}"));
                }
                _ => return unsafe_cast("object"),
            },
        },
        ColumnType::Integer | ColumnType::Long => {
            if cells.iter().any(|cell| is_missing(cell)) {
                return Err(format!("Integer column has NA values in column {place}"));
            }
            let values = match infer_column(cells) {
                ColumnValues::Typed(Elements::Int(values, _)) => values,
                ColumnValues::Typed(Elements::F64(values)) => {
                    let integers = truncated_cast(&values, kind);
                    if !is_exact(&values, &integers) {
                        return unsafe_cast("float64");
                    }
                    return Ok(ColumnValues::Typed(integers));
                }
                _ if cells.is_empty() => Vec::new().into(),
                // pandas wraps integers of 64 bits without a sign if they become shorter ones.
                _ if kind == ColumnType::Integer && cells.iter().all(|cell| unsigned(cell).is_some()) => {
                    cells.iter().filter_map(|cell| unsigned(cell)).map(u64::cast_signed).collect()
                }
                _ => {
                    let first = cells.iter().find(|cell| integer(cell).is_none()).copied().unwrap_or_default();
                    return Err(format!("invalid literal for int() with base 10: {}", repr(&echo(first))));
                }
            };
            #[expect(clippy::cast_possible_truncation, reason = "as pandas casts")]
            match kind {
                ColumnType::Integer => {
                    Elements::Int(values.iter().map(|value| i64::from(*value as i32)).collect(), IntType::I32)
                }
                _ => Elements::Int(values, IntType::I64),
            }
        }
    };
    Ok(ColumnValues::Typed(elements))
}

/// Returns whether numbers are the integers that they were converted to.
#[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "as pandas compares them")]
fn is_exact(values: &[f64], integers: &Elements<'_>) -> bool {
    matches!(integers, Elements::Int(integers, _) if values.iter().zip(&integers[..]).all(|(value, integer)| *value == *integer as f64))
}

/// Reads a column of the type that pandas infers.
fn infer_column(cells: &[&str]) -> ColumnValues {
    if cells.is_empty() {
        return ColumnValues::Objects(Vec::new());
    }
    if let Some(values) = cells.iter().map(|cell| integer(cell)).collect::<Option<Vec<_>>>() {
        return ColumnValues::Typed(Elements::Int(values.into(), IntType::I64));
    }
    // pandas reads integers of 64 bits without a sign, which are not supported.
    if cells.iter().all(|cell| unsigned(cell).is_some()) {
        return objects(cells);
    }
    // Integers of more than 64 bits stay strings.
    let wide = |cell: &&str| integer(cell).is_none() && is_digits(cell);
    if !cells.iter().any(wide)
        && let Ok(values) = floats(cells)
    {
        return ColumnValues::Typed(Elements::F64(values.into()));
    }
    match truths(cells) {
        Some(truths) => ColumnValues::Typed(Elements::Int(truths.into(), IntType::Bool)),
        None if cells.iter().any(|cell| is_missing(cell)) => objects(cells),
        None => ColumnValues::Typed(Elements::Text(cells.iter().map(|cell| (*cell).into()).collect())),
    }
}

fn objects(cells: &[&str]) -> ColumnValues {
    ColumnValues::Objects(cells.iter().map(|cell| if is_missing(cell) { "NaN" } else { cell }.to_owned()).collect())
}

fn is_digits(cell: &str) -> bool {
    let digits = cell.trim_matches(' ').trim_start_matches(['+', '-']);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn integer(cell: &str) -> Option<i64> {
    if is_digits(cell) { cell.trim_matches(' ').parse().ok() } else { None }
}

fn unsigned(cell: &str) -> Option<u64> {
    if is_digits(cell) { cell.trim_matches(' ').parse().ok() } else { None }
}

fn truths(cells: &[&str]) -> Option<Vec<i64>> {
    let truth = |cell: &&str| match *cell {
        "True" | "TRUE" | "true" => Some(1),
        "False" | "FALSE" | "false" => Some(0),
        _ => None,
    };
    cells.iter().map(truth).collect()
}

/// Reads numbers, or truths only, which pandas converts to numbers.
fn truths_or_floats(cells: &[&str]) -> Result<Vec<f64>, String> {
    match truths(cells) {
        Some(truths) => Ok(truths.into_iter().map(|truth| if truth == 0 { 0.0 } else { 1.0 }).collect()),
        None => floats(cells),
    }
}

fn floats(cells: &[&str]) -> Result<Vec<f64>, String> {
    let read = |cell: &&str| {
        if is_missing(cell) {
            return Ok(f64::NAN);
        }
        float(cell.trim_matches(' ')).ok_or_else(|| format!("could not convert string to float: {}", repr(&echo(cell))))
    };
    cells.iter().map(read).collect()
}

/// Returns a power of ten, each of which is the nearest number.
fn power_of_ten(exponent: i32) -> f64 {
    static POWERS: LazyLock<Vec<f64>> =
        LazyLock::new(|| (0..=308).filter_map(|exponent| format!("1e{exponent}").parse().ok()).collect());
    usize::try_from(exponent).ok().and_then(|exponent| POWERS.get(exponent)).copied().unwrap_or(f64::INFINITY)
}

/// Parses a number as pandas does: reads the digits as an integer, and scales it by a power of ten. With more than 15
/// digits, the last bit may differ from that of the nearest number.
fn float(text: &str) -> Option<f64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let signed = |value: f64| if negative { -value } else { value };
    if digits.eq_ignore_ascii_case("inf") || digits.eq_ignore_ascii_case("infinity") {
        return Some(signed(f64::INFINITY));
    }
    let (mut number, mut count, mut exponent) = (0.0_f64, 0_u32, 0_i32);
    let bytes = digits.as_bytes();
    let mut at = 0;
    let mut read_digits = |at: &mut usize, fraction: bool| {
        while let Some(digit) = bytes.get(*at).filter(|byte| byte.is_ascii_digit()) {
            if count < 17 {
                number = number * 10.0 + f64::from(digit - b'0');
                count += 1;
                exponent -= i32::from(fraction);
            } else if !fraction {
                exponent = exponent.saturating_add(1);
            }
            *at += 1;
        }
    };
    read_digits(&mut at, false);
    if bytes.get(at) == Some(&b'.') {
        at += 1;
        read_digits(&mut at, true);
    }
    if count == 0 {
        return None;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        let power: i32 = digits[at + 1..].parse().ok()?;
        exponent = exponent.saturating_add(power);
        at = bytes.len();
    }
    if at < bytes.len() {
        return None;
    }
    let scaled = match exponent {
        309.. => f64::INFINITY * number.signum(),
        1..=308 => number * power_of_ten(exponent),
        -308..=0 => number / power_of_ten(-exponent),
        _ if exponent < -616 => 0.0,
        _ => number / power_of_ten(-308 - exponent) / 1e308,
    };
    Some(signed(scaled))
}
