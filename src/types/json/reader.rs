//! Reads requests from JSON.

use std::ops::Range;

use bytes::Bytes;
use half::{bf16, f16};

use super::ReadError;
use super::binary::{self, BinaryOutputs, BinaryPart};
use super::cursor::{Cursor, MAX_DEPTH};
use super::form::{ElementData, irregular, keep_form, narrowed};
use super::levels::Levels;
use super::limits::JsonLimits;
use super::number::{self, Bool, JsonElement};
use crate::types::{
    BytesElements, Datatype, InferenceRequest, Parameters, RequestedOutput, Tensor, TensorData, TensorError, TensorRule,
};

/// The minimum size of an element in the text (a digit and a comma), so that a declared shape cannot reserve more memory
/// than the text could fill.
const TEXT_PER_ELEMENT: usize = 2;

/// The number of elements to reserve memory for if a dimension is open.
const OPEN_CAPACITY: usize = 1024;

/// A parsed request, with the parts that only the transport uses.
#[derive(Debug, Clone, Default)]
pub struct JsonRequest {
    /// The request; its `id` and `headers` are empty, and set by the transport.
    pub request: InferenceRequest,
    /// The client's id, if the request has one.
    pub id: Option<String>,
    /// The outputs that the client requests as binary data.
    pub binary_outputs: BinaryOutputs,
}

/// Reads an inference request whose tensors must be regular. `binary` is the data after the JSON, or `None` if the whole
/// body is JSON.
///
/// Tensors with binary data are slices of it. Unknown keys are ignored.
///
/// # Errors
///
/// Fails with the position and the reason. [`ReadError::is_mismatch`] distinguishes tensors that contradict themselves from
/// malformed requests.
pub fn read_request(text: &[u8], binary: Option<Bytes>) -> Result<JsonRequest, ReadError> {
    read_request_with(text, binary, TensorRule::Strict)
}

/// Reads an inference request as [`read_request`] does, with a rule for tensors.
///
/// # Errors
///
/// See [`read_request`].
pub fn read_request_with(text: &[u8], binary: Option<Bytes>, rule: TensorRule) -> Result<JsonRequest, ReadError> {
    let mut cursor = Cursor::of_document(text)?;
    let mut tensors = TensorReader::new(binary, JsonLimits::of_requests(), rule);
    tensors.keeps_doubles = rule == TensorRule::AsSent;
    let mut parsed = JsonRequest::default();
    let mut inputs = None;
    if cursor.peek() != Some(b'{') {
        return Err(match cursor.span() {
            Ok(_) => ReadError::Type { path: "request".to_owned(), expected: "a JSON object" },
            Err(error) => error,
        });
    }
    cursor.object::<ReadError>(|cursor, key| {
        match key {
            b"id" => parsed.id = optional(cursor, |cursor| string(cursor, || "id".to_owned()))?,
            b"parameters" => {
                parsed.request.parameters = parameters(cursor, &mut tensors.limits, || "parameters".to_owned())?;
            }
            b"inputs" => inputs = Some(tensors.read_tensors(cursor, "inputs")?),
            b"outputs" => {
                let (limits, binary) = (&mut tensors.limits, &mut parsed.binary_outputs);
                let outputs = optional(cursor, |cursor| read_outputs(cursor, limits, binary))?;
                parsed.request.has_outputs = outputs.is_some();
                parsed.request.outputs = outputs.unwrap_or_default();
            }
            _ => cursor.skip_member(key)?,
        }
        Ok(())
    })?;
    if cursor.peek().is_some() {
        return Err(cursor.syntax("the end of the request"));
    }
    parsed.request.inputs = inputs.ok_or_else(|| ReadError::Missing { path: "inputs".to_owned() })?;
    tensors.binary.finish()?;
    parsed.binary_outputs.take_all(&mut parsed.request.parameters)?;
    Ok(parsed)
}

fn read_outputs(
    cursor: &mut Cursor<'_>,
    limits: &mut JsonLimits,
    binary: &mut BinaryOutputs,
) -> Result<Vec<RequestedOutput>, ReadError> {
    want(cursor, b'[', || "outputs".to_owned(), "an array")?;
    let mut outputs = Vec::new();
    cursor.array::<ReadError>(|cursor, index| {
        let path = |field: &str| format!("outputs[{index}]{field}");
        limits.add_parts(1)?;
        want(cursor, b'{', || path(""), "an object")?;
        let mut name = None;
        let mut output = RequestedOutput::default();
        cursor.object::<ReadError>(|cursor, key| {
            match key {
                b"name" => name = Some(string(cursor, || path(".name"))?),
                b"parameters" => output.parameters = parameters(cursor, limits, || path(".parameters"))?,
                _ => cursor.skip_member(key)?,
            }
            Ok(())
        })?;
        output.name = name.ok_or_else(|| ReadError::Missing { path: path(".name") })?;
        binary.take_one(&output.name, &mut output.parameters, path)?;
        outputs.push(output);
        Ok(())
    })?;
    Ok(outputs)
}

/// The state of an input's data while the input is read.
enum InputData<'a> {
    Absent,
    /// The position of the text, because the datatype has not been read yet.
    Text(Cursor<'a>),
    /// The data, and the position of its text.
    Read(ElementData, Cursor<'a>),
}

/// Reads the tensors of one body.
pub(super) struct TensorReader {
    /// The data after the JSON.
    pub(super) binary: BinaryPart,
    pub(super) limits: JsonLimits,
    rule: TensorRule,
    /// Whether floats are also kept in double precision, in which models in Python see those of clients.
    keeps_doubles: bool,
}

impl TensorReader {
    pub(super) fn new(binary: Option<Bytes>, limits: JsonLimits, rule: TensorRule) -> Self {
        Self { binary: BinaryPart::new(binary), limits, rule, keeps_doubles: false }
    }

    /// Reads an array of tensors. `list` is its name in messages.
    pub(super) fn read_tensors(
        &mut self,
        cursor: &mut Cursor<'_>,
        list: &'static str,
    ) -> Result<Vec<Tensor>, ReadError> {
        want(cursor, b'[', || list.to_owned(), "an array")?;
        let mut tensors = Vec::new();
        cursor.array::<ReadError>(|cursor, index| {
            self.limits.add_parts(1)?;
            tensors.push(self.read_tensor(cursor, list, index)?);
            Ok(())
        })?;
        Ok(tensors)
    }

    fn read_tensor(
        &mut self,
        cursor: &mut Cursor<'_>,
        list: &'static str,
        position: usize,
    ) -> Result<Tensor, ReadError> {
        let path = |field: &str| format!("{list}[{position}]{field}");
        want(cursor, b'{', || path(""), "an object")?;
        let mut name = None;
        let mut shape = None;
        let mut datatype = None;
        let mut input_parameters = Parameters::new();
        let mut data = InputData::Absent;
        let mut levels = Levels::NONE;
        cursor.object::<ReadError>(|cursor, key| {
            match key {
                b"name" => name = Some(string(cursor, || path(".name"))?),
                b"shape" => shape = Some(read_shape(cursor, &path)?),
                b"datatype" => datatype = Some(read_datatype(cursor, &path)?),
                b"parameters" => input_parameters = parameters(cursor, &mut self.limits, || path(".parameters"))?,
                b"data" => {
                    let start = cursor.clone();
                    data = if let Some(datatype) = datatype {
                        let label = || label(name.as_deref(), position);
                        let read = self.read_data(cursor, datatype, shape.as_deref(), &label, &mut levels)?;
                        InputData::Read(read, start)
                    } else {
                        cursor.span()?;
                        InputData::Text(start)
                    };
                }
                _ => cursor.skip_member(key)?,
            }
            Ok(())
        })?;

        let missing = |field| ReadError::Missing { path: path(field) };
        let label_text = || label(name.as_deref(), position);
        let datatype = datatype.ok_or_else(|| missing(".datatype"))?;
        let shape = shape.ok_or_else(|| missing(".shape"))?;
        let size = binary::take_size(&mut input_parameters, path)?;
        let (ElementData { data, doubles }, text) = match (data, size) {
            (InputData::Absent, Some(size)) => {
                let name = label_text();
                (TensorData::from_raw(&name, datatype, self.binary.take(&name, size)?)?.into(), None)
            }
            (InputData::Absent, None) => return Err(missing(".data")),
            (_, Some(_)) => return Err(ReadError::TwoSources { input: label_text() }),
            (InputData::Read(data, start), None) => (data, Some(start)),
            (InputData::Text(start), None) => {
                let mut cursor = start.clone();
                let data = self.read_data(&mut cursor, datatype, Some(&shape), &label_text, &mut levels)?;
                (data, Some(start))
            }
        };
        let name = name.ok_or_else(|| missing(".name"))?;
        let parameters = input_parameters;
        let mut tensor = Tensor { name, datatype, shape: Vec::new(), parameters, data, nested: false, as_sent: None };
        if let Some(doubles) = doubles {
            tensor.as_sent_mut().doubles = Some(doubles);
        }
        match self.rule {
            TensorRule::Strict => {
                tensor.shape = tensor.resolve_shape(&shape)?;
                tensor.check()?;
            }
            TensorRule::MissingText => {
                tensor.shape = tensor.resolve_shape(&shape)?;
                check_texts(&tensor)?;
            }
            TensorRule::AsSent => keep_form(&mut tensor, &shape, text, &levels)?,
        }
        Ok(tensor)
    }

    /// Reads data, which stays JSON if it does not have the datatype and the rule allows that.
    #[inline]
    fn read_data(
        &self,
        cursor: &mut Cursor<'_>,
        datatype: Datatype,
        shape: Option<&[i64]>,
        label: &impl Fn() -> String,
        levels: &mut Levels,
    ) -> Result<ElementData, ReadError> {
        let start = cursor.position;
        let capacity = capacity(shape, cursor);
        if self.keeps_doubles && matches!(datatype, Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32) {
            let read = read_data(cursor, Datatype::Fp64, capacity, label, levels);
            if let Ok(TensorData::Fixed(doubles)) = read
                && let Some(narrowed) = narrowed(&doubles, datatype)
            {
                return Ok(narrowed);
            }
            // It fails again below, with the message for its own datatype.
            cursor.position = start;
            *levels = Levels::NONE;
        }
        let error = match read_data(cursor, datatype, capacity, label, levels) {
            Ok(data) => return Ok(data.into()),
            Err(error) => error,
        };
        let may_be_irregular = match error {
            ReadError::Element { .. } => {
                self.rule == TensorRule::AsSent || self.rule == TensorRule::MissingText && datatype == Datatype::Bytes
            }
            ReadError::Ragged { .. } | ReadError::TooDeep { .. } => self.rule == TensorRule::AsSent,
            _ => false,
        };
        if !may_be_irregular {
            return Err(error);
        }
        cursor.position = start;
        irregular(cursor, error.to_string()).map(|data| data.map(ElementData::from).ok_or(error))?
    }
}

/// Checks a tensor that may be a column of texts of which some are missing.
fn check_texts(tensor: &Tensor) -> Result<(), TensorError> {
    let is_column = matches!(tensor.shape[..], [_] | [_, 1]);
    match &tensor.data {
        TensorData::Irregular(data)
            if is_column && data.texts().is_some_and(|texts| texts.len() == tensor.shape[0]) =>
        {
            Ok(())
        }
        _ => tensor.check(),
    }
}

/// Returns the name of the input in messages: its own, or its position if that is not known yet.
fn label(name: Option<&str>, position: usize) -> String {
    name.map_or_else(|| format!("#{position}"), str::to_owned)
}

/// Returns the number of elements to reserve memory for: as many as the shape declares, limited by the remaining text. With
/// an open dimension these are few, because a request may have many such tensors in little text.
fn capacity(shape: Option<&[i64]>, cursor: &Cursor<'_>) -> usize {
    let limit = (cursor.text.len() - cursor.position) / TEXT_PER_ELEMENT + 1;
    let declared = shape.unwrap_or_default().iter().try_fold(1_usize, |count, &dimension| {
        usize::try_from(dimension).ok().and_then(|dimension| count.checked_mul(dimension))
    });
    declared.unwrap_or(OPEN_CAPACITY).min(limit)
}

fn read_shape(cursor: &mut Cursor<'_>, path: &impl Fn(&str) -> String) -> Result<Vec<i64>, ReadError> {
    const EXPECTED: &str = "an integer";
    want(cursor, b'[', || path(".shape"), "an array of integers")?;
    let mut shape = Vec::new();
    cursor.array::<ReadError>(|cursor, index| {
        let wrong = || ReadError::Type { path: path(&format!(".shape[{index}]")), expected: EXPECTED };
        let dimension = if cursor.byte() == Some(b'"') {
            i64::from_text(&cursor.string()?)
        } else if let Some((number, length)) = number::scan(&cursor.text[cursor.position..]) {
            cursor.position += length;
            i64::from_number(number)
        } else if cursor.literal("true") {
            Some(1)
        } else if cursor.literal("false") {
            Some(0)
        } else {
            cursor.span()?;
            None
        };
        shape.push(dimension.ok_or_else(wrong)?);
        if shape.len() > MAX_DEPTH {
            return Err(ReadError::TooDeep { offset: cursor.position, limit: MAX_DEPTH });
        }
        Ok(())
    })?;
    Ok(shape)
}

fn read_datatype(cursor: &mut Cursor<'_>, path: &impl Fn(&str) -> String) -> Result<Datatype, ReadError> {
    want(cursor, b'"', || path(".datatype"), "a string")?;
    let name = cursor.string()?;
    name.parse().map_err(|_| ReadError::Datatype { path: path(".datatype"), found: name.chars().take(40).collect() })
}

/// Reads data of the datatype, and the form of its arrays into `levels`.
pub(super) fn read_data(
    cursor: &mut Cursor<'_>,
    datatype: Datatype,
    capacity: usize,
    label: &impl Fn() -> String,
    levels: &mut Levels,
) -> Result<TensorData, ReadError> {
    match datatype {
        Datatype::Bool => read_fixed::<Bool>(cursor, datatype, capacity, label, levels),
        Datatype::Uint8 => read_fixed::<u8>(cursor, datatype, capacity, label, levels),
        Datatype::Uint16 => read_fixed::<u16>(cursor, datatype, capacity, label, levels),
        Datatype::Uint32 => read_fixed::<u32>(cursor, datatype, capacity, label, levels),
        Datatype::Uint64 => read_fixed::<u64>(cursor, datatype, capacity, label, levels),
        Datatype::Int8 => read_fixed::<i8>(cursor, datatype, capacity, label, levels),
        Datatype::Int16 => read_fixed::<i16>(cursor, datatype, capacity, label, levels),
        Datatype::Int32 => read_fixed::<i32>(cursor, datatype, capacity, label, levels),
        Datatype::Int64 => read_fixed::<i64>(cursor, datatype, capacity, label, levels),
        Datatype::Fp16 => read_fixed::<f16>(cursor, datatype, capacity, label, levels),
        Datatype::Bf16 => read_fixed::<bf16>(cursor, datatype, capacity, label, levels),
        Datatype::Fp32 => read_fixed::<f32>(cursor, datatype, capacity, label, levels),
        Datatype::Fp64 => read_fixed::<f64>(cursor, datatype, capacity, label, levels),
        Datatype::Bytes => {
            let mut sink = BytesSink { buffer: Vec::new(), spans: Vec::new(), datatype, label };
            walk(cursor, &mut sink, levels)?;
            sink.spans.shrink_to_fit();
            sink.buffer.shrink_to_fit();
            let elements = BytesElements::new(Bytes::from(sink.buffer), sink.spans)
                .expect("spans were taken from the buffer's own length");
            Ok(TensorData::Variable(elements.with_text(true)))
        }
    }
}

pub(super) fn read_fixed<T: JsonElement>(
    cursor: &mut Cursor<'_>,
    datatype: Datatype,
    capacity: usize,
    label: &impl Fn() -> String,
    levels: &mut Levels,
) -> Result<TensorData, ReadError> {
    let width = datatype.width().expect("only BYTES has no width, and it is read elsewhere");
    let buffer = Vec::with_capacity(capacity * width);
    let element = std::marker::PhantomData;
    let mut sink = FixedSink::<T, _> { buffer, datatype, label, is_converted: false, element };
    walk(cursor, &mut sink, levels)?;
    levels.is_converted |= sink.is_converted;
    // `Bytes` would keep what is reserved beyond the elements.
    sink.buffer.shrink_to_fit();
    Ok(TensorData::Fixed(Bytes::from(sink.buffer)))
}

/// Collects the elements of one tensor.
trait Sink {
    /// Reads one element, which is not an array.
    fn element(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReadError>;

    /// The number of elements so far.
    fn count(&self) -> usize;

    fn ragged(&self) -> ReadError;

    /// Reads elements of the usual form, each followed by a comma and at most one space, and returns the position of the
    /// first that differs.
    fn usual(&mut self, _text: &[u8], position: usize) -> usize {
        position
    }

    /// Reads consecutive elements and commas, starting before an element.
    #[inline]
    fn run(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReadError> {
        loop {
            cursor.position = self.usual(cursor.text, cursor.position);
            if cursor.peek() == Some(b'[') {
                return Err(self.ragged());
            }
            self.element(cursor)?;
            if !cursor.take(b',') {
                return Ok(());
            }
            cursor.skip_space();
        }
    }
}

struct FixedSink<'l, T, L> {
    buffer: Vec<u8>,
    datatype: Datatype,
    label: &'l L,
    /// See [`Levels::is_converted`].
    is_converted: bool,
    element: std::marker::PhantomData<T>,
}

impl<T: JsonElement, L: Fn() -> String> FixedSink<'_, T, L> {
    /// Reads an element that is not a number.
    #[cold]
    fn other(cursor: &mut Cursor<'_>) -> Result<Option<T>, ReadError> {
        Ok(match cursor.byte() {
            Some(b'"') => T::from_text(&cursor.string()?),
            _ if cursor.literal("null") => T::from_null(),
            _ if cursor.literal("true") => T::from_bool(true),
            _ if cursor.literal("false") => T::from_bool(false),
            _ => {
                cursor.span()?;
                None
            }
        })
    }

    #[cold]
    fn wrong(&self) -> ReadError {
        ReadError::Element {
            input: (self.label)(),
            index: self.count(),
            datatype: self.datatype,
            expected: T::EXPECTED,
        }
    }
}

impl<T: JsonElement, L: Fn() -> String> Sink for FixedSink<'_, T, L> {
    #[inline]
    fn element(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReadError> {
        let element = if let Some((number, length)) = number::scan(&cursor.text[cursor.position..]) {
            cursor.position += length;
            self.is_converted |= self.datatype == Datatype::Bool;
            T::from_number(number)
        } else {
            self.is_converted |= self.datatype != Datatype::Bool || cursor.byte() == Some(b'"');
            Self::other(cursor)?
        };
        element.ok_or_else(|| self.wrong())?.push(&mut self.buffer);
        Ok(())
    }

    #[inline]
    fn usual(&mut self, text: &[u8], mut position: usize) -> usize {
        while let Some((element, length)) = text[position..].first_chunk().and_then(T::read_usual) {
            let end = position + length;
            if text.get(end) != Some(&b',') {
                break;
            }
            element.push(&mut self.buffer);
            position = end + 1 + usize::from(text.get(end + 1) == Some(&b' '));
        }
        position
    }

    fn count(&self) -> usize {
        self.buffer.len() / size_of::<T>()
    }

    #[cold]
    fn ragged(&self) -> ReadError {
        ReadError::Ragged { input: (self.label)(), index: self.count() }
    }
}

struct BytesSink<'l, L> {
    buffer: Vec<u8>,
    spans: Vec<Range<usize>>,
    datatype: Datatype,
    label: &'l L,
}

impl<L: Fn() -> String> Sink for BytesSink<'_, L> {
    fn element(&mut self, cursor: &mut Cursor<'_>) -> Result<(), ReadError> {
        if cursor.byte() != Some(b'"') {
            cursor.span()?;
            let (input, index, datatype) = ((self.label)(), self.count(), self.datatype);
            return Err(ReadError::Element { input, index, datatype, expected: "a string" });
        }
        let text = cursor.string()?;
        let start = self.buffer.len();
        self.buffer.extend_from_slice(text.as_bytes());
        self.spans.push(start..self.buffer.len());
        Ok(())
    }

    fn count(&self) -> usize {
        self.spans.len()
    }

    #[cold]
    fn ragged(&self) -> ReadError {
        ReadError::Ragged { input: (self.label)(), index: self.count() }
    }
}

/// Reads a scalar, a flat array, or nested arrays that must not be ragged.
fn walk(cursor: &mut Cursor<'_>, sink: &mut impl Sink, levels: &mut Levels) -> Result<(), ReadError> {
    if levels.lengths[0].is_some() {
        // `data` occurs twice.
        *levels = Levels::NONE;
    }
    if cursor.peek() != Some(b'[') {
        return sink.element(cursor);
    }
    walk_array(cursor, sink, levels, 0)
}

fn walk_array(
    cursor: &mut Cursor<'_>,
    sink: &mut impl Sink,
    levels: &mut Levels,
    level: usize,
) -> Result<(), ReadError> {
    cursor.expect(b'[', "an array")?;
    let first = sink.count();
    let mut length = 0;
    match cursor.peek() {
        Some(b']') => {}
        Some(b'[') => {
            if levels.leaf.is_some_and(|leaf| leaf <= level) {
                return Err(sink.ragged());
            }
            if level + 1 == MAX_DEPTH {
                return Err(ReadError::TooDeep { offset: cursor.position, limit: MAX_DEPTH });
            }
            loop {
                if cursor.peek() != Some(b'[') {
                    return Err(sink.ragged());
                }
                walk_array(cursor, sink, levels, level + 1)?;
                length += 1;
                if !cursor.take(b',') {
                    break;
                }
            }
        }
        _ => {
            if *levels.leaf.get_or_insert(level) != level {
                return Err(sink.ragged());
            }
            sink.run(cursor)?;
            length = sink.count() - first;
        }
    }
    cursor.expect(b']', "`,` or `]`")?;
    if *levels.lengths[level].get_or_insert(length) == length { Ok(()) } else { Err(sink.ragged()) }
}

pub(super) fn want(
    cursor: &mut Cursor<'_>,
    opening: u8,
    path: impl FnOnce() -> String,
    expected: &'static str,
) -> Result<(), ReadError> {
    if cursor.peek() == Some(opening) {
        return Ok(());
    }
    cursor.span()?;
    Err(ReadError::Type { path: path(), expected })
}

pub(super) fn optional<'a, T>(
    cursor: &mut Cursor<'a>,
    read: impl FnOnce(&mut Cursor<'a>) -> Result<T, ReadError>,
) -> Result<Option<T>, ReadError> {
    if cursor.literal("null") { Ok(None) } else { read(cursor).map(Some) }
}

pub(super) fn string(cursor: &mut Cursor<'_>, path: impl FnOnce() -> String) -> Result<String, ReadError> {
    want(cursor, b'"', path, "a string")?;
    Ok(cursor.string()?.into_owned())
}

pub(super) fn parameters(
    cursor: &mut Cursor<'_>,
    limits: &mut JsonLimits,
    path: impl FnOnce() -> String,
) -> Result<Parameters, ReadError> {
    if cursor.literal("null") {
        return Ok(Parameters::new());
    }
    want(cursor, b'{', path, "an object or null")?;
    let offset = cursor.position;
    let span = cursor.span()?;
    if span.len() == 2 {
        return Ok(Parameters::given());
    }
    limits.add_parameters(span.len())?;
    // The span is valid JSON, but it may still be too deep, or contain a number out of the range of a double.
    let parameters: Parameters = serde_json::from_slice(span).map_err(|error| {
        if error.to_string().starts_with("recursion limit") {
            ReadError::TooDeep { offset, limit: 127 }
        } else {
            ReadError::Syntax { offset, expected: "numbers within the range of a double" }
        }
    })?;
    limits.add_parts(parameters.keys())?;
    Ok(parameters)
}

#[cfg(test)]
mod tests;
