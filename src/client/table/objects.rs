//! A JSON object in each line, whose keys are columns.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Builder, Cell, Column, SAMPLE, Seen, with_types};
use crate::client::lines::{Line, Lines, MAX_LINE};
use crate::client::request::Bad;
use crate::types::{Datatype, InferenceRequest};

/// A file of such rows.
pub(in crate::client) struct Objects {
    lines: Lines,
    columns: Arc<[Column]>,
    /// The rows from which types were told, with the bytes of each.
    sample: VecDeque<(Line, u64)>,
}

impl Objects {
    pub(in crate::client) fn open(reader: Box<dyn Read + Send>, types: &[(String, Datatype)]) -> io::Result<Self> {
        let mut lines = Lines::new(reader);
        let (mut sample, mut seen) = (VecDeque::new(), Vec::<(String, Seen, usize)>::new());
        let mut objects = 0;
        while sample.len() < SAMPLE {
            let Some(line) = lines.next()? else { break };
            if let Ok(object) = read(&line.0) {
                objects += 1;
                for (name, value) in &object {
                    let Ok(cell) = cell(value) else { continue };
                    let known = seen.iter().position(|(other, ..)| other == name);
                    let index = known.unwrap_or_else(|| {
                        seen.push((name.clone(), Seen::default(), 0));
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
                seen.add(Cell::Missing);
            }
            Column { name, datatype: seen.datatype() }
        });
        let mut columns: Vec<Column> = columns.collect();
        with_types(&mut columns, types).map_err(|message| io::Error::new(io::ErrorKind::InvalidData, message))?;
        Ok(Self { lines, columns: columns.into(), sample })
    }

    /// Returns the next row and the bytes it took; nothing at the end.
    pub(in crate::client) fn next(&mut self) -> io::Result<Option<(Line, u64)>> {
        match self.sample.pop_front() {
            Some(line) => Ok(Some(line)),
            None => self.lines.next(),
        }
    }

    pub(in crate::client) fn columns(&self) -> Arc<[Column]> {
        Arc::clone(&self.columns)
    }
}

fn read(line: &Line) -> Result<Map<String, Value>, String> {
    match line {
        Line::Text(text) if text.trim_ascii().is_empty() => Err("the line is empty".to_owned()),
        Line::Text(text) => {
            serde_json::from_slice(text).map_err(|error| format!("the line is no JSON object: {error}"))
        }
        Line::TooLong(found) => Err(format!("the line has {found} bytes, more than the {MAX_LINE} that are read")),
    }
}

fn cell(value: &Value) -> Result<Cell<'_>, &'static str> {
    match value {
        Value::Null => Ok(Cell::Missing),
        Value::Bool(value) => Ok(Cell::Bool(*value)),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Ok(Cell::Integer(integer)),
            None => Ok(Cell::Number(number.as_f64().unwrap_or(f64::NAN))),
        },
        Value::String(text) => Ok(Cell::Text(text)),
        Value::Array(_) => Err("a list"),
        Value::Object(_) => Err("an object"),
    }
}

/// Makes columns of rows.
pub(in crate::client) fn prepare(columns: &[Column], lines: &[Line]) -> (InferenceRequest, Vec<usize>, Vec<Bad>) {
    let mut builder = Builder::new(columns, lines.len());
    'rows: for (place, line) in lines.iter().enumerate() {
        let object = match read(line) {
            Ok(object) => object,
            Err(message) => {
                builder.refuse(place, message);
                continue;
            }
        };
        if let Some(key) = object.keys().find(|key| !columns.iter().any(|column| column.name == **key)) {
            builder.refuse(place, format!("`{key}` is no key of the first {SAMPLE} rows, which tell the columns"));
            continue;
        }
        let mut cells = Vec::with_capacity(columns.len());
        for column in columns {
            match object.get(&column.name).map_or(Ok(Cell::Missing), cell) {
                Ok(cell) => cells.push(cell),
                Err(found) => {
                    builder.refuse(
                        place,
                        format!("`{}` is {found}: expected text, a number, true, false or null", column.name),
                    );
                    continue 'rows;
                }
            }
        }
        builder.row(place, cells.into_iter());
    }
    builder.finish()
}
