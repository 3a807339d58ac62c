//! The JSON of KServe's V1 protocol ("Data Plane V1"): `{"instances": [...]}` and `{"predictions": [...]}`.
//!
//! Numbers are read straight into tensors. Their datatype is that of the model's declared input, or follows from the text, as in
//! Python: INT64 for integers, FP64 for numbers of which one has a point or an exponent.

use std::fmt;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use indexmap::IndexMap;

use super::cursor::{Cursor, MAX_DEPTH};
use super::levels::Levels;
use super::limits::JsonLimits;
use super::number::{self, PlainInteger};
use super::reader::{read_data, read_fixed};
use super::v1_tables::{self, Table};
use super::writer::{write_numbers, write_text};
use super::{IrregularData, NonFinite, ReadError, WriteError};
use crate::types::{
    BytesElements, Datatype, InferenceRequest, InferenceResponse, Parameters, Tensor, TensorData, TensorMetadata,
    TensorRule,
};

/// The name of the tensor of requests to models that declare no input, as KServe names it.
const INPUT: &str = "input-0";

/// How many bytes of text a number is expected to take, with its comma.
const TEXT_PER_NUMBER: usize = 8;

/// The content type of texts.
const TEXT: &str = "str";

/// The only key of an object that is binary data in base64.
const BASE64_KEY: &[u8] = b"b64";

/// The keys that may hold the instances of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum V1Key {
    Instances,
    Inputs,
}

impl fmt::Display for V1Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Instances => "instances",
            Self::Inputs => "inputs",
        })
    }
}

/// Why a request of the V1 protocol could not be read. The first words are those of KServe.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum V1Error {
    #[error("Unrecognized request format: {0}")]
    Json(ReadError),
    #[error("Unrecognized request format: expected an object with \"instances\" or \"inputs\"")]
    Missing,
    #[error("Expected \"{key}\" to be a list")]
    NotAList { key: V1Key },
    #[error("\"{key}\": element {index} is not {expected}, as those before it")]
    Mixed { key: V1Key, index: usize, expected: &'static str },
    #[error("\"{key}\": element {index} lacks \"{column}\": all objects must have the same keys")]
    Column { key: V1Key, index: usize, column: String },
    #[error(
        "\"{key}\": \"{column}\" has {found} values, but \"{first}\" has {expected}: all columns must have as many"
    )]
    Rows { key: V1Key, column: String, found: usize, first: String, expected: usize },
    #[error(
        "\"{key}\": a table of {rows} rows and {columns} columns lacks most of its values: send lists of values instead"
    )]
    Sparse { key: V1Key, rows: usize, columns: usize },
    #[error("\"{key}\": the objects have no keys")]
    NoColumns { key: V1Key },
    #[error("\"{key}\": \"b64\" of element {index} is not base64")]
    Base64 { key: V1Key, index: usize },
    /// A value that does not fit a tensor.
    #[error(transparent)]
    Data(ReadError),
}

impl From<ReadError> for V1Error {
    fn from(error: ReadError) -> Self {
        if error.is_mismatch() { Self::Data(error) } else { Self::Json(error) }
    }
}

/// Reads a request, whose `id` and `headers` the transport sets.
///
/// `instances` and `inputs` mean the same; `inputs` wins. Their elements are numbers, booleans or texts, however nested, of one
/// shape; or objects, which become columns: values that are lists are rows, all others are one row each. Other forms of tables are
/// read, too: see [`v1_tables`]. `{"b64": …}` is binary data.
/// `declared` are the inputs that the model declares, if it does.
///
/// # Errors
///
/// Fails with the position and the reason. All errors are mistakes of the client.
pub fn read_v1_request(
    text: &[u8],
    declared: &[TensorMetadata],
    rule: TensorRule,
) -> Result<InferenceRequest, V1Error> {
    let mut cursor = Cursor::of_document(text)?;
    let mut reader = InstancesReader { key: V1Key::Instances, declared, rule, limits: JsonLimits::of_requests() };
    let mut inputs: Option<(V1Key, Instances)> = None;
    if cursor.peek() != Some(b'{') {
        cursor.span()?;
        return Err(V1Error::Missing);
    }
    cursor.object::<V1Error>(|cursor, key| {
        let key = match key {
            b"inputs" => V1Key::Inputs,
            b"instances" if inputs.as_ref().is_none_or(|(key, _)| *key == V1Key::Instances) => V1Key::Instances,
            _ => return Ok(cursor.skip_member(key)?),
        };
        reader.key = key;
        inputs = Some((key, reader.read(cursor)?));
        Ok(())
    })?;
    if cursor.peek().is_some() {
        return Err(cursor.syntax("the end of the request").into());
    }
    let (_, Instances { inputs, is_frame }) = inputs.ok_or(V1Error::Missing)?;
    let parameters = if is_frame { Parameters::of_columns() } else { Parameters::new() };
    Ok(InferenceRequest { parameters, inputs, ..InferenceRequest::default() })
}

/// The tensors of a request.
struct Instances {
    inputs: Vec<Tensor>,
    /// Whether they are the columns of a table.
    is_frame: bool,
}

struct InstancesReader<'a> {
    key: V1Key,
    declared: &'a [TensorMetadata],
    rule: TensorRule,
    limits: JsonLimits,
}

impl InstancesReader<'_> {
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Result<Instances, V1Error> {
        if cursor.peek() != Some(b'[') {
            cursor.span()?;
            return Err(V1Error::NotAList { key: self.key });
        }
        let mut ahead = cursor.clone();
        ahead.position += 1;
        ahead.skip_space();
        if v1_tables::is_table(&ahead) {
            return self.read_table(cursor);
        }
        if ahead.byte() == Some(b'{') {
            return self.read_objects(cursor);
        }
        let (name, datatype) = match self.declared {
            [only] => (only.name.as_str(), only.datatype.parse().ok()),
            _ => (INPUT, None),
        };
        let tensor = read_values(cursor, name, datatype, self.rule)?;
        Ok(Instances { inputs: vec![tensor], is_frame: false })
    }

    fn read_objects(&mut self, cursor: &mut Cursor<'_>) -> Result<Instances, V1Error> {
        let mut blobs = None;
        let mut columns: IndexMap<String, Column> = IndexMap::new();
        let key = self.key;
        let limits = &mut self.limits;
        cursor.array(|cursor, index| {
            if cursor.byte() == Some(b'{') {
                return read_object(cursor, key, index, limits, &mut blobs, &mut columns);
            }
            cursor.span()?;
            Err(V1Error::Mixed { key, index, expected: "an object" })
        })?;
        if let Some(blobs) = blobs {
            let name = self.declared.first().map_or(INPUT, |declared| &declared.name);
            return Ok(Instances { inputs: vec![blobs.into_tensor(name)], is_frame: false });
        }
        if columns.is_empty() {
            return Err(V1Error::NoColumns { key });
        }
        let mut inputs: Vec<Tensor> = Vec::with_capacity(columns.len());
        for (name, column) in columns {
            let tensor = column.into_tensor(&name, self.declared_datatype(&name), self.rule)?;
            let rows = |tensor: &Tensor| tensor.shape.first().copied().unwrap_or(1);
            if let Some(first) = inputs.first().filter(|first| rows(first) != rows(&tensor)) {
                let (found, expected) = (rows(&tensor), rows(first));
                return Err(V1Error::Rows { key, column: name, found, first: first.name.clone(), expected });
            }
            inputs.push(tensor);
        }
        Ok(Instances { inputs, is_frame: true })
    }

    /// Reads tables by row, whose rows follow each other.
    fn read_table(&mut self, cursor: &mut Cursor<'_>) -> Result<Instances, V1Error> {
        let columns = Table::read(cursor, self.key, &mut self.limits)?.into_columns(cursor.text.len())?;
        let read = |(name, text): (String, Vec<u8>)| {
            read_values(&mut Cursor::new(&text), &name, self.declared_datatype(&name), self.rule)
        };
        Ok(Instances { inputs: columns.map(read).collect::<Result<_, _>>()?, is_frame: true })
    }

    fn declared_datatype(&self, column: &str) -> Option<Datatype> {
        self.declared.iter().find(|declared| declared.name == column)?.datatype.parse().ok()
    }
}

/// Reads one of several objects: binary data, or a part of each column.
fn read_object(
    cursor: &mut Cursor<'_>,
    key: V1Key,
    index: usize,
    limits: &mut JsonLimits,
    blobs: &mut Option<Blobs>,
    columns: &mut IndexMap<String, Column>,
) -> Result<(), V1Error> {
    if let Some(blob) = base64_of(cursor)? {
        if !columns.is_empty() {
            return Err(V1Error::Mixed { key, index, expected: "an object of columns" });
        }
        return blobs.get_or_insert_default().push(&blob).ok_or(V1Error::Base64 { key, index });
    }
    if blobs.is_some() {
        return Err(V1Error::Mixed { key, index, expected: "an object with only \"b64\"" });
    }
    let mut present = 0;
    cursor.object::<V1Error>(|cursor, name| {
        let name = std::str::from_utf8(name).map_err(|_| cursor.syntax("a key in UTF-8 before this value"))?;
        if index == 0 && !columns.contains_key(name) {
            limits.add_parts(1)?;
            columns.insert(name.to_owned(), Column::default());
        }
        let Some(column) = columns.get_mut(name) else {
            return Err(V1Error::Column { key, index: 0, column: name.chars().take(100).collect() });
        };
        if column.instances == index + 1 {
            // A key that occurs twice: the last value counts, as in Python.
            column.undo();
            present -= 1;
        }
        present += 1;
        column.push(cursor, key, index)?;
        column.instances = index + 1;
        Ok(())
    })?;
    if present < columns.len() {
        let missing = columns.iter().find(|(_, column)| column.instances != index + 1);
        let column = missing.map(|(name, _)| name.chars().take(100).collect()).unwrap_or_default();
        return Err(V1Error::Column { key, index, column });
    }
    Ok(())
}

/// Reads an object with the only key `b64` and returns its text, or keeps the position.
pub(super) fn base64_of(cursor: &mut Cursor<'_>) -> Result<Option<String>, ReadError> {
    let mut ahead = cursor.clone();
    if !(ahead.take(b'{') && ahead.peek() == Some(b'"')) {
        return Ok(None);
    }
    // Most objects have another key. Only the beginning of it is read here.
    let is_base64 = ahead.text[ahead.position + 1..].starts_with(BASE64_KEY);
    if !is_base64 || ahead.string()?.as_bytes() != BASE64_KEY || !ahead.take(b':') || ahead.peek() != Some(b'"') {
        return Ok(None);
    }
    let text = ahead.string()?.into_owned();
    if !ahead.take(b'}') {
        return Ok(None);
    }
    cursor.position = ahead.position;
    Ok(Some(text))
}

/// Binary data, one after the other.
#[derive(Debug, Default)]
struct Blobs {
    buffer: Vec<u8>,
    spans: Vec<Range<usize>>,
}

impl Blobs {
    /// Appends the decoded text, or returns `None` if it is not base64.
    fn push(&mut self, text: &str) -> Option<()> {
        let start = self.buffer.len();
        BASE64.decode_vec(text, &mut self.buffer).ok()?;
        self.spans.push(start..self.buffer.len());
        Some(())
    }

    fn into_tensor(self, name: &str) -> Tensor {
        let shape = vec![self.spans.len()];
        let elements = BytesElements::new(Bytes::from(self.buffer), self.spans);
        let elements = elements.expect("spans were taken from the buffer's own length");
        Tensor {
            name: name.to_owned(),
            datatype: Datatype::Bytes,
            shape,
            parameters: Parameters::new(),
            data: TensorData::Variable(elements),
            nested: false,
            as_sent: None,
        }
    }
}

/// The values of one key of all objects so far.
#[derive(Debug, Default)]
struct Column {
    /// One list of all values, without its last bracket.
    text: Vec<u8>,
    blobs: Option<Blobs>,
    /// The index of the last object with this key, plus one.
    instances: usize,
    /// The length of `text`, and the number of blobs, before the last object.
    before: (usize, usize),
}

impl Column {
    fn push(&mut self, cursor: &mut Cursor<'_>, key: V1Key, index: usize) -> Result<(), V1Error> {
        self.before = (self.text.len(), self.blobs.as_ref().map_or(0, |blobs| blobs.spans.len()));
        if cursor.peek() == Some(b'{')
            && let Some(blob) = base64_of(cursor)?
        {
            if !self.text.is_empty() {
                return Err(V1Error::Mixed { key, index, expected: "a JSON value" });
            }
            return self.blobs.get_or_insert_default().push(&blob).ok_or(V1Error::Base64 { key, index });
        }
        if self.blobs.is_some() {
            return Err(V1Error::Mixed { key, index, expected: "an object with only \"b64\"" });
        }
        let span = cursor.span()?;
        let rows = match span {
            // A list is rows, without its brackets.
            [b'[', rows @ .., b']'] => rows.trim_ascii(),
            scalar => scalar,
        };
        self.text.push(if self.text.is_empty() { b'[' } else { b',' });
        if rows.is_empty() {
            self.text.pop();
            if self.text.is_empty() {
                self.text.push(b'[');
            }
        } else {
            if self.text.len() > 1 && self.text.ends_with(b"[,") {
                self.text.pop();
            }
            self.text.extend_from_slice(rows);
        }
        Ok(())
    }

    /// Removes the values of the last object.
    fn undo(&mut self) {
        let (text, blobs) = self.before;
        self.text.truncate(text);
        if let Some(kept) = &mut self.blobs {
            kept.spans.truncate(blobs);
            kept.buffer.truncate(kept.spans.last().map_or(0, |span| span.end));
        }
        if blobs == 0 {
            self.blobs = None;
        }
    }

    fn into_tensor(mut self, name: &str, datatype: Option<Datatype>, rule: TensorRule) -> Result<Tensor, V1Error> {
        if let Some(blobs) = self.blobs {
            return Ok(blobs.into_tensor(name));
        }
        if self.text.is_empty() {
            self.text.push(b'[');
        }
        self.text.push(b']');
        read_values(&mut Cursor::new(&self.text), name, datatype, rule)
    }
}

/// Reads a list of numbers, booleans or texts into a tensor: of the declared datatype, or that of the text.
fn read_values(
    cursor: &mut Cursor<'_>,
    name: &str,
    declared: Option<Datatype>,
    rule: TensorRule,
) -> Result<Tensor, V1Error> {
    let label = || name.to_owned();
    let start = cursor.position;
    let mut levels = Levels::NONE;
    // Most numbers take at least as many bytes of text. Memory for more is taken when it is needed.
    let capacity = (cursor.text.len() - cursor.position) / TEXT_PER_NUMBER + 1;
    let datatype = declared.unwrap_or_else(|| guess(cursor));
    let read = match (declared, datatype) {
        (None, Datatype::Int64) => read_fixed::<PlainInteger>(cursor, datatype, capacity, &label, &mut levels),
        _ => read_data(cursor, datatype, capacity, &label, &mut levels),
    };
    let (datatype, data) = match read {
        Ok(data) => (datatype, data),
        Err(ReadError::Element { .. }) if declared.is_none() && datatype == Datatype::Int64 => {
            cursor.position = start;
            levels = Levels::NONE;
            (Datatype::Fp64, read_data(cursor, Datatype::Fp64, capacity, &label, &mut levels)?)
        }
        Err(error @ ReadError::Element { .. }) if datatype == Datatype::Bytes && rule != TensorRule::Strict => {
            // Texts of which some are missing.
            cursor.position = start;
            let json = Bytes::copy_from_slice(cursor.span()?);
            let data = IrregularData::new(json, error.to_string()).ok_or_else(|| error.clone())?;
            let count = data.texts().ok_or(error)?.len();
            let (name, shape) = (name.to_owned(), vec![count]);
            let (parameters, data) = (Parameters::with_content_type(TEXT), TensorData::Irregular(data));
            return Ok(Tensor { name, datatype, shape, parameters, data, nested: false, as_sent: None });
        }
        Err(error) => return Err(error.into()),
    };
    let parameters = if datatype == Datatype::Bytes { Parameters::with_content_type(TEXT) } else { Parameters::new() };
    Ok(Tensor {
        name: name.to_owned(),
        datatype,
        shape: levels.shape(),
        parameters,
        data,
        nested: false,
        as_sent: None,
    })
}

/// Returns the datatype of the first value of a list that is not `null`.
fn guess(cursor: &Cursor<'_>) -> Datatype {
    let mut ahead = cursor.clone();
    let mut depth = 0;
    while depth <= MAX_DEPTH && ahead.take(b'[') {
        depth += 1;
    }
    ahead.skip_space();
    while ahead.literal("null") && ahead.take(b',') {
        ahead.skip_space();
    }
    match ahead.peek() {
        Some(b'"') => Datatype::Bytes,
        Some(b't' | b'f') => Datatype::Bool,
        _ => match number::scan(&ahead.text[ahead.position..]) {
            Some((number, _)) if number.is_integer() => Datatype::Int64,
            _ => Datatype::Fp64,
        },
    }
}

/// Writes the outputs of a response as `{"predictions": …}`.
///
/// One output is written as nested lists; a column (of shape `[n, 1]`) as a list, because runtimes return lists as columns. Several
/// outputs of as many rows are objects, one for each row; others are an object of lists. BYTES that are not UTF-8 are `{"b64": …}`.
///
/// # Errors
///
/// Fails if a float is not finite and `non_finite` forbids that.
pub fn write_v1_response(response: &InferenceResponse, non_finite: NonFinite) -> Result<Vec<u8>, WriteError> {
    let size: usize = response.outputs.iter().map(|output| output.byte_len().saturating_mul(3)).sum();
    let mut text = Vec::with_capacity(64 + size.min(1 << 24));
    text.extend_from_slice(b"{\"predictions\":");
    match &response.outputs[..] {
        [] => text.extend_from_slice(b"[]"),
        [output] => OutputWriter { output, non_finite }.write(&mut text)?,
        outputs => write_several(&mut text, outputs, non_finite)?,
    }
    text.push(b'}');
    Ok(text)
}

/// Writes contributions of features and margins as the answer to `:explain`.
///
/// `contributions` is `[rows, features + 1]` or `[rows, groups, features + 1]`, of which the last value is that of an average row, and
/// the same for all rows: it becomes the `bias`, one number for each group.
///
/// # Errors
///
/// Fails if a float is not finite and `non_finite` forbids that.
pub fn write_v1_explanations(
    contributions: &Tensor,
    margin: &Tensor,
    feature_names: Option<&[String]>,
    non_finite: NonFinite,
) -> Result<Vec<u8>, WriteError> {
    let writer = OutputWriter { output: contributions, non_finite };
    let [rows, ref inner @ ..] = contributions.shape[..] else { return Ok(b"{\"explanations\":{}}".to_vec()) };
    let groups = if inner.len() > 1 { inner[0] } else { 1 };
    let width = inner.last().copied().unwrap_or_default();
    let mut text = Vec::with_capacity(64 + contributions.byte_len().saturating_mul(3).min(1 << 24));
    text.extend_from_slice(b"{\"explanations\":{\"contributions\":");
    write_list(&mut text, rows, |text, row| {
        let group = |text: &mut Vec<u8>, group: usize| {
            let start = (row * groups + group) * width;
            text.push(b'[');
            writer.write_elements(text, start..start + width.saturating_sub(1))?;
            text.push(b']');
            Ok(())
        };
        if inner.len() > 1 { write_list(text, groups, group) } else { group(text, 0) }
    })?;
    text.extend_from_slice(b",\"bias\":");
    let described = if rows == 0 || width == 0 { 0 } else { groups };
    write_list(&mut text, described, |text, group| {
        let bias = (group + 1) * width - 1;
        writer.write_elements(text, bias..bias + 1)
    })?;
    text.extend_from_slice(b",\"feature_names\":");
    match feature_names {
        Some(names) => write_list(&mut text, names.len(), |text, index| {
            write_text(text, &names[index]);
            Ok(())
        })?,
        None => text.extend_from_slice(b"null"),
    }
    text.extend_from_slice(b",\"margin\":");
    OutputWriter { output: margin, non_finite }.write(&mut text)?;
    text.extend_from_slice(b"}}");
    Ok(text)
}

/// Writes a list of so many items.
fn write_list(
    text: &mut Vec<u8>,
    count: usize,
    mut item: impl FnMut(&mut Vec<u8>, usize) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    text.push(b'[');
    for index in 0..count {
        if index > 0 {
            text.push(b',');
        }
        item(text, index)?;
    }
    text.push(b']');
    Ok(())
}

fn write_several(text: &mut Vec<u8>, outputs: &[Tensor], non_finite: NonFinite) -> Result<(), WriteError> {
    let Some(rows) = common_rows(outputs) else {
        text.push(b'{');
        for (index, output) in outputs.iter().enumerate() {
            write_member_name(text, index, output);
            OutputWriter { output, non_finite }.write(text)?;
        }
        text.push(b'}');
        return Ok(());
    };
    text.push(b'[');
    for row in 0..rows {
        text.extend_from_slice(if row > 0 { b",{" } else { b"{" });
        for (index, output) in outputs.iter().enumerate() {
            write_member_name(text, index, output);
            let writer = OutputWriter { output, non_finite };
            let shape = v1_shape(output);
            let length: usize = shape[1..].iter().product();
            writer.write_level(text, &shape[1..], row * length..(row + 1) * length)?;
        }
        text.push(b'}');
    }
    text.push(b']');
    Ok(())
}

/// Returns the number of rows, if all outputs have as many.
pub(super) fn common_rows(outputs: &[Tensor]) -> Option<usize> {
    let rows = outputs.first()?.shape.first().copied();
    let is_alike =
        |output: &Tensor| output.shape.first().copied() == rows && !matches!(output.data, TensorData::Irregular(_));
    rows.filter(|_| outputs.iter().all(is_alike))
}

/// Writes the name of an output as that of a member of an object.
pub(super) fn write_member_name(text: &mut Vec<u8>, index: usize, output: &Tensor) {
    if index > 0 {
        text.push(b',');
    }
    write_text(text, &output.name);
    text.push(b':');
}

/// Returns the shape of an output, without the second dimension of a column.
pub(super) fn v1_shape(output: &Tensor) -> &[usize] {
    match &output.shape[..] {
        [_, 1] => &output.shape[..1],
        shape => shape,
    }
}

struct OutputWriter<'a> {
    output: &'a Tensor,
    non_finite: NonFinite,
}

impl OutputWriter<'_> {
    fn write(&self, text: &mut Vec<u8>) -> Result<(), WriteError> {
        if let TensorData::Irregular(data) = &self.output.data {
            text.extend_from_slice(data.json());
            return Ok(());
        }
        self.write_level(text, v1_shape(self.output), 0..self.output.len())
    }

    /// Writes a range of the elements as lists of a shape.
    fn write_level(&self, text: &mut Vec<u8>, shape: &[usize], range: Range<usize>) -> Result<(), WriteError> {
        let [length, inner @ ..] = shape else { return self.write_elements(text, range) };
        text.push(b'[');
        if inner.is_empty() {
            self.write_elements(text, range)?;
        } else {
            let width: usize = inner.iter().product();
            for index in 0..*length {
                if index > 0 {
                    text.push(b',');
                }
                let start = range.start + index * width;
                self.write_level(text, inner, start..start + width)?;
            }
        }
        text.push(b']');
        Ok(())
    }

    fn write_elements(&self, text: &mut Vec<u8>, range: Range<usize>) -> Result<(), WriteError> {
        let output = self.output;
        match &output.data {
            TensorData::Fixed(bytes) => {
                let width = output.datatype.width().unwrap_or(1);
                let bytes = bytes.get(range.start * width..range.end * width).unwrap_or_default();
                write_numbers(text, bytes, output.datatype, self.non_finite).map_err(|(index, found)| {
                    WriteError::NonFinite { output: output.name.clone(), index: range.start + index, found }
                })
            }
            TensorData::Variable(elements) => {
                for (index, element) in elements.range(range).enumerate() {
                    if index > 0 {
                        text.push(b',');
                    }
                    if let Ok(element) = std::str::from_utf8(element) {
                        write_text(text, element);
                    } else {
                        text.extend_from_slice(b"{\"b64\":\"");
                        text.extend_from_slice(BASE64.encode(element).as_bytes());
                        text.extend_from_slice(b"\"}");
                    }
                }
                Ok(())
            }
            TensorData::Irregular(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn read(text: &str) -> Result<InferenceRequest, V1Error> {
        read_v1_request(text.as_bytes(), &[], TensorRule::AsSent)
    }

    fn message(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    /// Returns name, datatype, shape and values of each tensor.
    fn tensors(text: &str) -> Vec<(String, Datatype, Vec<usize>, Value)> {
        let request = read(text).unwrap();
        let values = |tensor: &Tensor| {
            let response = InferenceResponse { outputs: vec![tensor.clone()], ..InferenceResponse::default() };
            let text = write_v1_response(&response, NonFinite::String).unwrap();
            serde_json::from_slice::<Value>(&text).unwrap()["predictions"].take()
        };
        let all = request.inputs.iter();
        all.map(|tensor| (tensor.name.clone(), tensor.datatype, tensor.shape.clone(), values(tensor))).collect()
    }

    fn one(text: &str) -> (Datatype, Vec<usize>, Value) {
        let mut tensors = tensors(text);
        assert_eq!(tensors.len(), 1);
        let (name, datatype, shape, values) = tensors.remove(0);
        assert_eq!(name, "input-0");
        (datatype, shape, values)
    }

    #[test]
    fn v1_datatype_follows_from_the_text_as_in_python() {
        let cases = [
            ("[[1,2],[3,4]]", Datatype::Int64, vec![2, 2], json!([[1, 2], [3, 4]])),
            ("[[1,2.0],[3,4]]", Datatype::Fp64, vec![2, 2], json!([[1.0, 2.0], [3.0, 4.0]])),
            ("[ 1 , 2e0 ]", Datatype::Fp64, vec![2], json!([1.0, 2.0])),
            ("[5.5, 1]", Datatype::Fp64, vec![2], json!([5.5, 1.0])),
            ("[1,null]", Datatype::Fp64, vec![2], json!([1.0, "NaN"])),
            ("[9223372036854775808]", Datatype::Fp64, vec![1], json!([9_223_372_036_854_775_808.0_f64])),
            ("[true,false]", Datatype::Bool, vec![2], json!([true, false])),
            (r#"["a","\u00e9"]"#, Datatype::Bytes, vec![2], json!(["a", "é"])),
            (r#"[["a"],["b"]]"#, Datatype::Bytes, vec![2, 1], json!(["a", "b"])),
            ("[]", Datatype::Fp64, vec![0], json!([])),
            (r#"[{"b64":"aGk="},{"b64": "//8=" }]"#, Datatype::Bytes, vec![2], json!(["hi", {"b64": "//8="}])),
            ("[[[1],[2]],[[3],[4]]]", Datatype::Int64, vec![2, 2, 1], json!([[[1], [2]], [[3], [4]]])),
        ];
        for (instances, datatype, shape, values) in cases {
            let expected = (datatype, shape, values);
            assert_eq!(one(&format!(r#"{{"instances":{instances}}}"#)), expected, "{instances}");
            assert_eq!(one(&format!(r#" {{"x":[],"inputs" : {instances} }} "#)), expected, "{instances}");
        }
    }

    #[test]
    fn v1_inputs_win_over_instances() {
        for text in [r#"{"instances":[1],"inputs":[2]}"#, r#"{"inputs":[2],"instances":[1]}"#] {
            assert_eq!(one(text).2, json!([2]), "{text}");
        }
    }

    #[test]
    fn v1_objects_become_columns() {
        let text = r#"{"instances":[{"a":1,"b":"x","c":[1.5]},{"b":"y","a":2,"c":[2]}]}"#;
        let column = |name: &str, datatype, values| (name.to_owned(), datatype, vec![2], values);
        let expected = [
            column("a", Datatype::Int64, json!([1, 2])),
            column("b", Datatype::Bytes, json!(["x", "y"])),
            column("c", Datatype::Fp64, json!([1.5, 2.0])),
        ];
        assert_eq!(tensors(text), expected);
        assert_eq!(read(text).unwrap().parameters.content_type(), Some("pd"));
        // Lists are rows, as in a data frame; the last of two values of a key counts.
        let text = r#"{"instances":[{"a":[1,2],"b":[]},{"a":[],"b":[ 3 , 4 ]},{"a":[9],"a":[ ],"b":[]}]}"#;
        let expected = [column("a", Datatype::Int64, json!([1, 2])), column("b", Datatype::Int64, json!([3, 4]))];
        assert_eq!(tensors(text), expected);
        let text = r#"{"instances":[{"image":{"b64":"aGk="},"key":"k"}]}"#;
        let images = tensors(text);
        assert_eq!((images[0].1, &images[0].3), (Datatype::Bytes, &json!(["hi"])));
        let missing = tensors(r#"{"instances":[{"a":"x"},{"a":null}]}"#);
        assert_eq!((missing[0].1, &missing[0].3), (Datatype::Bytes, &json!(["x", null])));
    }

    #[test]
    fn v1_declared_inputs_give_names_and_datatypes() {
        let declare = |name: &str, datatype: &str| TensorMetadata {
            name: name.to_owned(),
            datatype: datatype.to_owned(),
            shape: vec![-1],
            parameters: Parameters::new(),
        };
        let one = [declare("x", "FP32")];
        let request = read_v1_request(br#"{"instances":[[1,2]]}"#, &one, TensorRule::Strict).unwrap();
        assert_eq!((request.inputs[0].name.as_str(), request.inputs[0].datatype), ("x", Datatype::Fp32));
        let error = read_v1_request(br#"{"instances":["a"]}"#, &one, TensorRule::Strict).unwrap_err().to_string();
        assert!(error.starts_with("input `x`: element 0 is not a valid FP32"), "{error}");
        let two = [declare("b", "UINT8"), declare("a", "FP32")];
        let request = read_v1_request(br#"{"instances":[{"a":1,"b":2}]}"#, &two, TensorRule::Strict).unwrap();
        let found: Vec<_> = request.inputs.iter().map(|input| (input.name.as_str(), input.datatype)).collect();
        assert_eq!(found, [("a", Datatype::Fp32), ("b", Datatype::Uint8)]);
    }

    #[test]
    fn v1_tables_by_row_become_columns() {
        let nan = || json!("NaN");
        let cases = [
            // What `DataFrame.to_dict()` gives.
            (
                r#"{"inputs":[{"a":{"0":1.5,"1":2},"b":{"0":3,"1":4}}]}"#,
                vec![("a", Datatype::Fp64, json!([1.5, 2.0])), ("b", Datatype::Int64, json!([3, 4]))],
            ),
            // Rows are matched by their keys, and come in the order in which these occur.
            (
                r#"{"inputs":[{"a":{"x":1,"y":2},"b":{"y":3,"x":4,"z":5}}]}"#,
                vec![("a", Datatype::Fp64, json!([1.0, 2.0, nan()])), ("b", Datatype::Int64, json!([4, 3, 5]))],
            ),
            // Lists of objects: a row each.
            (
                r#"{"instances":[[{"a":1,"b":"u"},{"b":"v","a":2}]]}"#,
                vec![("a", Datatype::Int64, json!([1, 2])), ("b", Datatype::Bytes, json!(["u", "v"]))],
            ),
            (
                r#"{"instances":[[{"a":1},{"b":2}]]}"#,
                vec![("a", Datatype::Fp64, json!([1.0, nan()])), ("b", Datatype::Fp64, json!([nan(), 2.0]))],
            ),
            // The rows of all instances follow each other.
            (
                r#"{"instances":[ [{"a":1}], {"a":{"0":2}}, {"a":[3, 4]}, {"a":5} ]}"#,
                vec![("a", Datatype::Int64, json!([1, 2, 3, 4, 5]))],
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).unwrap().parameters.content_type(), Some("pd"), "{text}");
            let found = tensors(text);
            let found: Vec<_> =
                found.iter().map(|(name, datatype, _, values)| (&**name, *datatype, values.clone())).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn v1_sparse_tables_are_rejected() {
        let rows: Vec<String> = (0..10_000).map(|row| format!(r#"{{"c{row}":1}}"#)).collect();
        let message = message(&format!(r#"{{"instances":[[{}]]}}"#, rows.join(",")));
        assert!(message.contains("a table of 10000 rows and 10000 columns lacks most of its values"), "{message}");
    }

    #[test]
    fn v1_mistakes_are_named() {
        let cases = [
            ("{not", "Unrecognized request format: invalid JSON at byte 1: expected a key in double quotes"),
            ("", "Unrecognized request format: invalid JSON at byte 0: expected a JSON value"),
            ("[1]", r#"Unrecognized request format: expected an object with "instances" or "inputs""#),
            ("{}", r#"Unrecognized request format: expected an object with "instances" or "inputs""#),
            (r#"{"instances":"word"}"#, r#"Expected "instances" to be a list"#),
            (r#"{"inputs":{}}"#, r#"Expected "inputs" to be a list"#),
            (r#"{"instances":[[1,2],[3]]}"#, "input `input-0`: ragged data at element 3"),
            (r#"{"instances":[1,"a"]}"#, "input `input-0`: element 1 is not a valid FP64"),
            (r#"{"instances":["a",1]}"#, "input `input-0`: element 1 is not a valid BYTES"),
            (r#"{"instances":[{"a":1},2]}"#, r#""instances": element 1 is not an object"#),
            (r#"{"instances":[1,{"a":1}]}"#, "input `input-0`: element 1 is not a valid FP64"),
            (r#"{"instances":[{"a":1},{"b":2}]}"#, r#""instances": element 0 lacks "b""#),
            (r#"{"instances":[{"a":1,"b":1},{"b":2}]}"#, r#""instances": element 1 lacks "a""#),
            (r#"{"instances":[{},{}]}"#, r#""instances": the objects have no keys"#),
            (r#"{"instances":[{"a":[1,2],"b":[3]}]}"#, r#""instances": "b" has 1 values, but "a" has 2"#),
            (r#"{"instances":[{"b64":"a"}]}"#, r#""instances": "b64" of element 0 is not base64"#),
            (r#"{"instances":[{"b64":"aGk="},{"a":1}]}"#, r#""instances": element 1 is not an object with only "b64""#),
            (r#"{"instances":[{"a":{"x":{"y":1}}}]}"#, "input `a`: element 0 is not a valid FP64"),
            (r#"{"instances":[{"a":{"0":1}},2]}"#, r#""instances": element 1 is not a table"#),
            (r#"{"instances":[[{"a":1},2]]}"#, r#""instances": element 0 is not a list of objects of columns"#),
            (r#"{"instances":[[{"b64":"aGk="}]]}"#, r#""instances": element 0 is not a list of objects of columns"#),
            (
                r#"{"instances":[{"a":{"0":1},"b":[1]}]}"#,
                r#""instances": element 0 is not an object of columns of one form"#,
            ),
            (r#"{"instances":[{"a":{"0":1}},{"a":[1,2],"b":[3]}]}"#, r#""instances": "b" has 1 values, but "a" has 2"#),
            (r#"{"instances":[[{}]]}"#, r#""instances": the objects have no keys"#),
            (r#"{"instances":[1]} x"#, "Unrecognized request format: invalid JSON at byte 18"),
            (r#"{"instances":[1"#, "Unrecognized request format: invalid JSON at byte 15"),
        ];
        for (text, expected) in cases {
            let message = message(text);
            assert!(message.starts_with(expected), "{text}: {message}");
        }
    }

    #[test]
    fn v1_hostile_bodies_are_rejected_within_limits() {
        let deep = format!(r#"{{"instances":{}}}"#, "[".repeat(100_000));
        assert!(message(&deep).contains("nested deeper than"));
        let deep = format!(r#"{{"instances":[{}1{}]}}"#, r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
        let message = message(&deep);
        assert!(message.len() < 200, "{message}");
        let keys: Vec<String> = (0..70_000).map(|key| format!(r#""{key}":1"#)).collect();
        let wide = format!(r#"{{"instances":[{{{}}}]}}"#, keys.join(","));
        assert!(matches!(read(&wide), Err(V1Error::Data(ReadError::TooManyParts { .. }))));
    }

    fn written(outputs: Vec<Tensor>) -> Value {
        let response = InferenceResponse { outputs, ..InferenceResponse::default() };
        serde_json::from_slice(&write_v1_response(&response, NonFinite::Null).unwrap()).unwrap()
    }

    #[test]
    fn v1_predictions_are_nested_as_their_shape() {
        let tensor =
            |name: &str, shape: &[usize], values: &[i64]| Tensor::from_elements(name, shape.to_vec(), values).unwrap();
        let cases = [
            (vec![], json!([])),
            (vec![tensor("y", &[2, 1], &[0, 2])], json!([0, 2])),
            (vec![tensor("y", &[], &[7])], json!(7)),
            (vec![tensor("y", &[0, 3], &[])], json!([])),
            (vec![tensor("y", &[2, 0], &[])], json!([[], []])),
            (vec![tensor("y", &[1, 2, 2], &[1, 2, 3, 4])], json!([[[1, 2], [3, 4]]])),
            (
                vec![tensor("y", &[2, 1], &[0, 2]), tensor("z", &[2, 2], &[1, 2, 3, 4])],
                json!([{"y": 0, "z": [1, 2]}, {"y": 2, "z": [3, 4]}]),
            ),
            (vec![tensor("y", &[2], &[0, 2]), tensor("z", &[1], &[5])], json!({"y": [0, 2], "z": [5]})),
        ];
        for (outputs, expected) in cases {
            assert_eq!(written(outputs), json!({ "predictions": expected }));
        }
        let response = InferenceResponse {
            outputs: vec![Tensor::from_elements("y", vec![2, 2], &[1.0, 2.0, f64::NAN, 0.0]).unwrap()],
            ..InferenceResponse::default()
        };
        let error = write_v1_response(&response, NonFinite::Error).unwrap_err().to_string();
        assert!(error.starts_with("output `y`: element 2 is NaN"), "{error}");
    }

    proptest! {
        #[test]
        fn v1_reader_never_panics(text in r#"\{"(instances|inputs)":[\[\]{}",:0-9a-e.b64 ]{0,60}\}?"#) {
            let _ = read(&text);
        }

        #[test]
        fn v1_numbers_read_back(rows in 1_usize..6, columns in 2_usize..6, seed in any::<i32>()) {
            let value = |row: usize, column: usize| f64::from(seed) / f64::from(u8::try_from(row * 7 + column * 3 + 1).unwrap());
            let rows: Vec<Vec<f64>> = (0..rows).map(|row| (0..columns).map(|column| value(row, column)).collect()).collect();
            let text = json!({ "instances": rows }).to_string();
            let (datatype, shape, values) = one(&text);
            prop_assert_eq!(datatype, Datatype::Fp64);
            prop_assert_eq!(shape, vec![rows.len(), rows[0].len()]);
            prop_assert_eq!(values, json!(rows));
        }
    }
}
