//! A JSON object per line, whose keys are columns.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::{
    ColumnTypeGuess, SAMPLE_PAUSE, SAMPLE_ROWS, SAMPLE_TEXT, TableBuilder, TableCell, TableColumn, TableRequest,
    apply_column_types, are_typed,
};
use crate::client::lines::{InputBytes, InputLine, LineReader, MAX_LINE};
use crate::types::Datatype;

/// A table of such rows.
pub(in crate::client) struct ObjectTable {
    lines: LineReader,
    columns: Arc<[TableColumn]>,
    /// The rows that datatypes were inferred from, with the bytes of each.
    sample: VecDeque<(InputLine, u64)>,
}

impl ObjectTable {
    pub(in crate::client) fn open(reader: Box<dyn InputBytes>, types: &[(String, Datatype)]) -> io::Result<Self> {
        let mut lines = LineReader::new(reader);
        let (mut sample, mut seen) = (VecDeque::new(), Vec::<(String, ColumnTypeGuess, usize)>::new());
        let (mut indexes, mut objects, mut text) = (HashMap::new(), 0, 0);
        while sample.len() < SAMPLE_ROWS && text < SAMPLE_TEXT && (objects == 0 || lines.wait(SAMPLE_PAUSE)) {
            let Some(line) = lines.next()? else { break };
            let mut is_typed = false;
            if let Ok(JsonRow(fields)) = read(&line.0) {
                objects += 1;
                is_typed = objects == 1 && are_typed(fields.iter().map(|(name, _)| &**name), types);
                for (name, value) in &fields {
                    let Ok(value) = FieldValue::of(value) else { continue };
                    let index = *indexes.entry(name.clone().into_owned()).or_insert_with_key(|name: &String| {
                        seen.push((name.clone(), ColumnTypeGuess::default(), 0));
                        seen.len() - 1
                    });
                    seen[index].1.add(value.cell());
                    seen[index].2 += 1;
                }
            }
            if let InputLine::Text(line) = &line.0 {
                text += line.len();
            }
            sample.push_back(line);
            if is_typed {
                break;
            }
        }
        let columns = seen.into_iter().map(|(name, mut seen, count)| {
            if count < objects {
                seen.add(TableCell::Missing);
            }
            TableColumn { name, datatype: seen.datatype(), inferred: true }
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

/// The keys and values of a row, in order. Numbers keep their text, as parsing them might round them.
struct JsonRow<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonRow<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(transparent)]
        struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Vec<(Cow<'de, str>, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut fields = Vec::new();
                while let Some((Key(key), value)) = map.next_entry()? {
                    fields.push((key, value));
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(Fields).map(JsonRow)
    }
}

/// A value that a column can hold.
#[derive(Debug, Clone)]
enum FieldValue<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    Text(Cow<'a, str>),
}

impl<'a> FieldValue<'a> {
    /// Returns the value of valid JSON, or what it is instead.
    fn of(raw: &'a RawValue) -> Result<Self, &'static str> {
        let text = raw.get();
        Ok(match text.as_bytes().first() {
            Some(b'[') => return Err("a list"),
            Some(b'{') => return Err("an object"),
            Some(b'n') => Self::Null,
            Some(b't') => Self::Bool(true),
            Some(b'f') => Self::Bool(false),
            Some(b'"') => match serde_json::from_str::<&str>(text) {
                Ok(plain) => Self::Text(Cow::Borrowed(plain)),
                // It has escapes.
                Err(_) => Self::Text(Cow::Owned(serde_json::from_str(text).map_err(|_| "invalid text")?)),
            },
            _ => Self::Number(text),
        })
    }

    fn cell(&self) -> TableCell<'_> {
        match self {
            Self::Null => TableCell::Missing,
            Self::Bool(value) => TableCell::Bool(*value),
            Self::Number(text) => TableCell::Number(text),
            Self::Text(text) => TableCell::Text(text),
        }
    }
}

fn read(line: &InputLine) -> Result<JsonRow<'_>, String> {
    match line {
        InputLine::Text(text) if text.trim_ascii().is_empty() => Err("the line is empty".to_owned()),
        InputLine::Text(text) => {
            serde_json::from_slice(text).map_err(|error| format!("the line is not a JSON object: {error}"))
        }
        InputLine::TooLong(found) => Err(format!("the line has {found} bytes, over the limit of {MAX_LINE}")),
    }
}

/// Builds the request for some rows.
pub(in crate::client) fn build_request(columns: &[TableColumn], lines: &[InputLine]) -> TableRequest {
    let mut builder = TableBuilder::new(columns, lines.len());
    let indexes: HashMap<&str, usize> =
        columns.iter().enumerate().map(|(index, column)| (column.name.as_str(), index)).collect();
    let mut values = Vec::new();
    for (position, line) in lines.iter().enumerate() {
        match read(line).and_then(|row| row_values(&row, columns, &indexes, &mut values).map(|()| row)) {
            Ok(_) => {
                let cells = values.iter().map(|value| value.as_ref().map_or(TableCell::Missing, FieldValue::cell));
                builder.row(position, cells);
            }
            Err(message) => builder.reject(position, message),
        }
    }
    builder.finish()
}

/// Collects the value of each column.
fn row_values<'a>(
    JsonRow(fields): &JsonRow<'a>,
    columns: &[TableColumn],
    indexes: &HashMap<&str, usize>,
    values: &mut Vec<Option<FieldValue<'a>>>,
) -> Result<(), String> {
    values.clear();
    values.resize(columns.len(), None);
    for (place, (key, value)) in fields.iter().enumerate() {
        // Most rows have their keys in the order of the first one.
        let expected = columns.get(place).is_some_and(|column| column.name == **key).then_some(place);
        let Some(index) = expected.or_else(|| indexes.get(&**key).copied()) else {
            return Err(format!(
                "unknown key `{key}`: the columns are the keys of the first rows, {SAMPLE_ROWS} at most"
            ));
        };
        let value = FieldValue::of(value)
            .map_err(|found| format!("`{key}` is {found}: expected text, a number, true, false or null"))?;
        if values[index].replace(value).is_some() {
            return Err(format!("the key `{key}` is there twice"));
        }
    }
    Ok(())
}
