//! A JSON object per line, whose keys are columns.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{ColumnTypeGuess, SAMPLE_ROWS, TableBuilder, TableCell, TableColumn, TableRequest, apply_column_types};
use crate::client::lines::{InputLine, LineReader, MAX_LINE};
use crate::types::Datatype;

/// A table of such rows.
pub(in crate::client) struct ObjectTable {
    lines: LineReader,
    columns: Arc<[TableColumn]>,
    /// The rows that datatypes were inferred from, with the bytes of each.
    sample: VecDeque<(InputLine, u64)>,
}

impl ObjectTable {
    pub(in crate::client) fn open(reader: Box<dyn Read + Send>, types: &[(String, Datatype)]) -> io::Result<Self> {
        let mut lines = LineReader::new(reader);
        let (mut sample, mut seen) = (VecDeque::new(), Vec::<(String, ColumnTypeGuess, usize)>::new());
        let mut objects = 0;
        while sample.len() < SAMPLE_ROWS {
            let Some(line) = lines.next()? else { break };
            if let Ok(object) = read(&line.0) {
                objects += 1;
                for (name, value) in &object {
                    let Ok(cell) = cell(value) else { continue };
                    let known = seen.iter().position(|(other, ..)| other == name);
                    let index = known.unwrap_or_else(|| {
                        seen.push((name.clone(), ColumnTypeGuess::default(), 0));
                        seen.len() - 1
                    });
                    seen[index].1.add(cell);
                    seen[index].2 += 1;
                }
            }
            sample.push_back(line);
        }
        let columns = seen.into_iter().map(|(name, mut seen, count)| {
            if count < objects {
                seen.add(TableCell::Missing);
            }
            TableColumn { name, datatype: seen.datatype() }
        });
        let mut columns: Vec<TableColumn> = columns.collect();
        apply_column_types(&mut columns, types)
            .map_err(|message| io::Error::new(io::ErrorKind::InvalidData, message))?;
        Ok(Self { lines, columns: columns.into(), sample })
    }

    /// Returns the next row and the bytes it took, or `None` at the end.
    pub(in crate::client) fn next(&mut self) -> io::Result<Option<(InputLine, u64)>> {
        match self.sample.pop_front() {
            Some(line) => Ok(Some(line)),
            None => self.lines.next(),
        }
    }

    pub(in crate::client) fn columns(&self) -> Arc<[TableColumn]> {
        Arc::clone(&self.columns)
    }
}

fn read(line: &InputLine) -> Result<Map<String, Value>, String> {
    match line {
        InputLine::Text(text) if text.trim_ascii().is_empty() => Err("the line is empty".to_owned()),
        InputLine::Text(text) => {
            serde_json::from_slice(text).map_err(|error| format!("the line is not a JSON object: {error}"))
        }
        InputLine::TooLong(found) => Err(format!("the line has {found} bytes, over the limit of {MAX_LINE}")),
    }
}

fn cell(value: &Value) -> Result<TableCell<'_>, &'static str> {
    match value {
        Value::Null => Ok(TableCell::Missing),
        Value::Bool(value) => Ok(TableCell::Bool(*value)),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Ok(TableCell::Integer(integer)),
            None => Ok(TableCell::Number(number.as_f64().unwrap_or(f64::NAN))),
        },
        Value::String(text) => Ok(TableCell::Text(text)),
        Value::Array(_) => Err("a list"),
        Value::Object(_) => Err("an object"),
    }
}

/// Builds the request for some rows.
pub(in crate::client) fn build_request(columns: &[TableColumn], lines: &[InputLine]) -> TableRequest {
    let mut builder = TableBuilder::new(columns, lines.len());
    'rows: for (position, line) in lines.iter().enumerate() {
        let object = match read(line) {
            Ok(object) => object,
            Err(message) => {
                builder.reject(position, message);
                continue;
            }
        };
        if let Some(key) = object.keys().find(|key| !columns.iter().any(|column| column.name == **key)) {
            builder.reject(
                position,
                format!("unknown key `{key}`: the columns are the keys of the first {SAMPLE_ROWS} rows"),
            );
            continue;
        }
        let mut cells = Vec::with_capacity(columns.len());
        for column in columns {
            match object.get(&column.name).map_or(Ok(TableCell::Missing), cell) {
                Ok(cell) => cells.push(cell),
                Err(found) => {
                    builder.reject(
                        position,
                        format!("`{}` is {found}: expected text, a number, true, false or null", column.name),
                    );
                    continue 'rows;
                }
            }
        }
        builder.row(position, cells.into_iter());
    }
    builder.finish()
}
