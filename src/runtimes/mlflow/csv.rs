//! Reads CSV as pandas does: a header line, then rows, with the column types of the signature or inferred ones.

use std::sync::LazyLock;

use super::python::repr;
use super::signature::{ColumnType, InputSchema};
use super::values::{ColumnLabel, ColumnValues, DataFrame, ModelInput, narrow};
use crate::evaluators::sklearn::{Elements, IntType};

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

/// Reads a data frame.
pub(super) fn read(text: &str, schema: &InputSchema) -> Result<ModelInput, CsvError> {
    let pandas = |reason: String| CsvError::Pandas(reason);
    if let InputSchema::Tensor { .. } = schema {
        return Err(pandas("TensorSpec only supports numpy types, use numpy_types() instead".to_owned()));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut rows = reader
        .records()
        .map(|record| record.map_err(|error| CsvError::NotNative(format!("cannot read the CSV: {error}"))));
    let header = rows.next().transpose()?.ok_or_else(|| pandas("No columns to parse from file".to_owned()))?;
    let mut labels: Vec<String> = Vec::with_capacity(header.len());
    let mut seen = std::collections::HashSet::new();
    for (place, name) in header.iter().enumerate() {
        let name = if name.is_empty() { format!("Unnamed: {place}") } else { name.to_owned() };
        if !seen.insert(name.clone()) {
            return Err(CsvError::NotNative(format!("the CSV has two columns {}", repr(&name))));
        }
        labels.push(name);
    }
    let rows = rows.collect::<Result<Vec<_>, _>>()?;
    if let Some((index, row)) = rows.iter().enumerate().find(|(_, row)| row.len() > labels.len()) {
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
    let declared_type = |name: &str| match schema {
        InputSchema::Columns(columns) => columns.iter().find(|column| column.name == name).map(|column| column.kind),
        InputSchema::Any | InputSchema::Tensor { .. } => None,
    };
    let mut columns = Vec::with_capacity(labels.len());
    for (place, name) in labels.iter().enumerate() {
        let cells: Vec<&str> = rows.iter().map(|row| row.get(place).unwrap_or_default()).collect();
        columns.push(match declared_type(name) {
            Some(kind) => cast_column(&cells, kind, place).map_err(CsvError::Pandas)?,
            None => infer_column(&cells),
        });
    }
    let labels = labels.into_iter().map(ColumnLabel::Name).collect();
    Ok(ModelInput::Frame(DataFrame { labels, columns, rows: rows.len() }))
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
        ColumnType::Double => Elements::F64(floats(cells)?.into()),
        ColumnType::Float => Elements::F32(floats(cells)?.into_iter().map(narrow).collect()),
        ColumnType::Boolean => match truths(cells) {
            Some(truths) => Elements::Int(truths.into(), IntType::Bool),
            None => match infer_column(cells) {
                ColumnValues::Typed(Elements::Int(values, _)) => {
                    Elements::Int(values.iter().map(|value| i64::from(*value != 0)).collect(), IntType::Bool)
                }
                ColumnValues::Typed(Elements::F64(values)) if values.iter().all(|value| !value.is_nan()) => {
                    Elements::Int(values.iter().map(|value| i64::from(*value != 0.0)).collect(), IntType::Bool)
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
                ColumnValues::Typed(Elements::F64(values)) if values.iter().all(|value| value.fract() == 0.0) => {
                    values.iter().map(|value| super::values::truncate(*value)).collect()
                }
                ColumnValues::Typed(Elements::F64(_)) => return unsafe_cast("float64"),
                _ if cells.is_empty() => Vec::new().into(),
                _ => {
                    let first = cells.iter().find(|cell| integer(cell).is_none()).copied().unwrap_or_default();
                    return Err(format!("invalid literal for int() with base 10: {}", repr(first)));
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

/// Reads a column of the type that pandas infers.
fn infer_column(cells: &[&str]) -> ColumnValues {
    if cells.is_empty() {
        return ColumnValues::Objects(Vec::new());
    }
    if let Some(values) = cells.iter().map(|cell| integer(cell)).collect::<Option<Vec<_>>>() {
        return ColumnValues::Typed(Elements::Int(values.into(), IntType::I64));
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

fn truths(cells: &[&str]) -> Option<Vec<i64>> {
    let truth = |cell: &&str| match *cell {
        "True" | "TRUE" | "true" => Some(1),
        "False" | "FALSE" | "false" => Some(0),
        _ => None,
    };
    cells.iter().map(truth).collect()
}

fn floats(cells: &[&str]) -> Result<Vec<f64>, String> {
    let read = |cell: &&str| {
        if is_missing(cell) {
            return Ok(f64::NAN);
        }
        float(cell.trim_matches(' ')).ok_or_else(|| format!("could not convert string to float: {}", repr(cell)))
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
