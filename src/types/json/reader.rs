//! Reads requests from JSON.

use std::ops::Range;

use bytes::Bytes;
use half::{bf16, f16};

use super::binary::{self, BinaryOutputs, BinaryPart};
use super::cursor::{Cursor, MAX_DEPTH};
use super::limits::JsonLimits;
use super::number::{self, Bool, JsonElement};
use super::{IrregularData, ReadError};
use crate::types::{
    BytesElements, Datatype, InferenceRequest, Parameters, RequestedOutput, Tensor, TensorData, TensorError,
    TensorRule, short,
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

/// Data that has been read.
struct ElementData {
    data: TensorData,
    /// The elements in double precision, if the datatype has rounded one of them.
    doubles: Option<Bytes>,
}

impl From<TensorData> for ElementData {
    fn from(data: TensorData) -> Self {
        Self { data, doubles: None }
    }
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

/// Rounds doubles to the elements of a shorter float, to the nearest. Returns `None` if one of them is beyond its range.
fn narrowed(doubles: &Bytes, datatype: Datatype) -> Option<ElementData> {
    fn convert<const N: usize>(doubles: &[u8], narrow: impl Fn(f64) -> ([u8; N], f64)) -> Option<(Bytes, bool)> {
        // Without a branch, so that several elements are converted at once.
        let (mut is_exact, mut is_beyond) = (true, false);
        let convert = |&double: &[u8; 8]| {
            let double = f64::from_le_bytes(double);
            let (element, read) = narrow(double);
            is_beyond |= read.is_infinite() & double.is_finite();
            is_exact &= (read.to_bits() == double.to_bits()) | double.is_nan();
            element
        };
        let elements: Vec<[u8; N]> = doubles.as_chunks().0.iter().map(convert).collect();
        (!is_beyond).then(|| (elements.into_flattened().into(), is_exact))
    }
    #[expect(clippy::cast_possible_truncation, reason = "to round it")]
    let single = |double: f64| double as f32;
    let (buffer, is_exact) = match datatype {
        Datatype::Fp16 => convert(doubles, |double| {
            let element = f16::from_f64(double);
            (element.to_le_bytes(), element.to_f64())
        }),
        Datatype::Bf16 => convert(doubles, |double| {
            let element = bf16::from_f64(double);
            (element.to_le_bytes(), element.to_f64())
        }),
        _ => convert(doubles, |double| (single(double).to_le_bytes(), f64::from(single(double)))),
    }?;
    Some(ElementData { data: TensorData::Fixed(buffer), doubles: (!is_exact).then(|| doubles.clone()) })
}

/// Sets what models in Python see of the form of regular data, or makes the data irregular if its form would be lost.
///
/// `sent` is the shape in the request. `text` is before the data, unless that was binary.
fn keep_form(tensor: &mut Tensor, sent: &[i64], text: Option<Cursor<'_>>, levels: &Levels) -> Result<(), ReadError> {
    if sent.iter().any(|&dimension| dimension < 0) {
        tensor.as_sent_mut().shape = Some(sent.to_vec());
    }
    let checked = match tensor.resolve_shape(sent) {
        Ok(shape) => {
            tensor.shape = shape;
            tensor.check()
        }
        Err(error @ TensorError::Inference { .. }) if text.is_some() => {
            tensor.shape = vec![tensor.len()];
            Err(error)
        }
        Err(error) => return Err(error.into()),
    };
    if matches!(tensor.data, TensorData::Irregular(_)) {
        return Ok(());
    }
    // Binary data must have the length of its shape, for models in Python, too.
    let Some(mut text) = text else { return checked.map_err(ReadError::from) };
    let depth = levels.depth();
    tensor.nested = depth > 1 && checked.is_ok() && levels.have(&tensor.shape);
    let is_open = matches!(checked, Err(TensorError::Inference { .. }));
    // A flat list of elements needs no shape, but one value without a list, and lists in lists, do.
    if depth == 0 || is_open || (depth > 1 && checked.is_err()) {
        let reason = checked.err().map_or_else(|| one_value(&tensor.name), |error| error.to_string());
        if let Some(data) = irregular(&mut text, reason)? {
            tensor.data = data;
            tensor.as_sent_mut().doubles = None;
        }
    } else if (depth > 1 && !tensor.nested) || levels.is_converted {
        let json = Bytes::copy_from_slice(text.span()?);
        // Not if Python could not read it.
        if IrregularData::new(json.clone(), "").is_some() {
            tensor.as_sent_mut().data = Some(json);
        }
    }
    Ok(())
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

fn one_value(input: &str) -> String {
    format!("input `{}`: the data is one value, expected an array", short(input))
}

/// Reads any JSON as irregular data, or returns `None` if Python could not read it.
#[cold]
fn irregular(cursor: &mut Cursor<'_>, reason: String) -> Result<Option<TensorData>, ReadError> {
    let json = Bytes::copy_from_slice(cursor.span()?);
    Ok(IrregularData::new(json, reason).map(TensorData::Irregular))
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

/// The lengths of the arrays of each level, given by the first array of that level.
pub(super) struct Levels {
    lengths: [Option<usize>; MAX_DEPTH],
    /// The level whose arrays hold elements.
    leaf: Option<usize>,
    /// Whether an element has another JSON type than its datatype: `null` or text among numbers, a number in BOOL.
    is_converted: bool,
}

impl Levels {
    pub(super) const NONE: Self = Self { lengths: [None; MAX_DEPTH], leaf: None, is_converted: false };

    /// Returns how many arrays are around each element.
    fn depth(&self) -> usize {
        self.lengths.iter().take_while(|length| length.is_some()).count()
    }

    /// Returns the lengths of the arrays of all levels: the shape of the data.
    pub(super) fn shape(&self) -> Vec<usize> {
        self.lengths.iter().map_while(|length| *length).collect()
    }

    /// Reports whether the arrays have these lengths.
    fn have(&self, shape: &[usize]) -> bool {
        self.depth() == shape.len() && shape.iter().zip(&self.lengths).all(|(&wanted, &length)| length == Some(wanted))
    }
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
mod tests {
    use super::*;
    use crate::types::AsSent;
    use proptest::prelude::*;
    use serde_json::Value;

    fn read(text: &str) -> Result<InferenceRequest, ReadError> {
        read_request(text.as_bytes(), None).map(|parsed| parsed.request)
    }

    fn input(fields: &str) -> Result<Tensor, ReadError> {
        read(&format!(r#"{{"inputs":[{{"name":"x",{fields}}}]}}"#)).map(|request| request.inputs[0].clone())
    }

    fn message(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    fn input_message(fields: &str) -> String {
        input(fields).unwrap_err().to_string()
    }

    fn texts(tensor: &Tensor) -> Vec<&str> {
        match &tensor.data {
            TensorData::Variable(elements) => elements.iter().map(|e| std::str::from_utf8(e).unwrap()).collect(),
            TensorData::Fixed(_) | TensorData::Irregular(_) => panic!("not BYTES"),
        }
    }

    #[test]
    fn read_request_reads_all_fields() {
        let text = r#" {"id":"a\"b","unknown":{"deep":[1,{"x":null}]},"parameters":{"content_type":"np","k":[1,2.5]},
            "inputs":[{"name":"x","shape":[1,3],"datatype":"INT32","parameters":{"a":1},"data":[1, 2 ,3]}],
            "outputs":[{"name":"predict","parameters":null},{"name":"y","other":1}]} "#;
        let JsonRequest { request, id, .. } = read_request(text.as_bytes(), None).unwrap();
        assert_eq!(id.as_deref(), Some("a\"b"));
        assert_eq!(request.parameters.content_type(), Some("np"));
        assert_eq!(request.inputs[0].shape, [1, 3]);
        assert_eq!(request.inputs[0].elements::<i32>().unwrap().as_ref(), [1, 2, 3]);
        assert_eq!(request.inputs[0].parameters.others["a"], 1);
        let names: Vec<_> = request.outputs.iter().map(|output| output.name.as_str()).collect();
        assert_eq!(names, ["predict", "y"]);
    }

    #[test]
    fn absent_id_differs_from_empty_id() {
        let id = |text: &str| read_request(text.as_bytes(), None).unwrap().id;
        assert_eq!(id(r#"{"inputs":[]}"#), None);
        assert_eq!(id(r#"{"id":null,"inputs":[]}"#), None);
        assert_eq!(id(r#"{"id":"","inputs":[]}"#).as_deref(), Some(""));
    }

    #[test]
    fn data_may_come_before_its_datatype() {
        let tensor = input(r#""data":[[1,2],[3,4]],"shape":[2,2],"datatype":"FP64""#).unwrap();
        assert_eq!(tensor.elements::<f64>().unwrap().as_ref(), [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn nested_data_is_flattened_and_must_not_be_ragged() {
        let tensor = input(r#""shape":[2,1,2],"datatype":"UINT8","data":[[[1,2]], [[3,4]]]"#).unwrap();
        assert_eq!(tensor.elements::<u8>().unwrap().as_ref(), [1, 2, 3, 4]);
        for (data, index) in
            [("[[1,2],[3]]", 3), ("[1,[2]]", 1), ("[[1],2]", 1), ("[[1],[[2]]]", 1), ("[[[1]],[2]]", 1)]
        {
            let message = input_message(&format!(r#""shape":[3],"datatype":"UINT8","data":{data}"#));
            let expected =
                format!("input `x`: ragged data at element {index}: all arrays of one level must have the same length");
            assert_eq!(message, expected, "{data}");
        }
    }

    #[test]
    fn shapes_are_lax_as_the_original_and_infer_one_dimension() {
        let shape =
            |shape: &str| input(&format!(r#""shape":{shape},"datatype":"INT8","data":[1,2,3,4]"#)).map(|t| t.shape);
        assert_eq!(shape(r#"["2",2.0,true]"#).unwrap(), [2, 2, 1]);
        assert_eq!(shape("[-1,2]").unwrap(), [2, 2]);
        assert_eq!(shape("[4]").unwrap(), [4]);
        assert_eq!(shape("[2.5]").unwrap_err().to_string(), "`inputs[0].shape[0]`: expected an integer");
        assert_eq!(shape("4").unwrap_err().to_string(), "`inputs[0].shape`: expected an array of integers");
        for bad in ["[-1,-1]", "[-1,3]", "[-2,2]", "[-1,0]"] {
            assert!(matches!(shape(bad), Err(ReadError::Tensor(TensorError::Inference { .. }))), "{bad}");
        }
        assert_eq!(input(r#""shape":[],"datatype":"INT8","data":[5]"#).unwrap().shape, Vec::<usize>::new());
        assert_eq!(input(r#""shape":[1],"datatype":"INT8","data":5"#).unwrap().len(), 1);
        assert_eq!(input(r#""shape":[0,3],"datatype":"INT8","data":[]"#).unwrap().len(), 0);
    }

    #[test]
    fn invalid_elements_are_reported_by_index() {
        let message = input_message(r#""shape":[3],"datatype":"INT8","data":[1,2,300]"#);
        assert_eq!(message, "input `x`: element 2 is not a valid INT8: expected an integer from -128 to 127");
        for (datatype, data) in [
            ("INT64", "[1.9]"),
            ("INT32", "[null]"),
            ("UINT8", "[-1]"),
            ("FP32", "[1e39]"),
            ("FP64", "[1e400]"),
            ("FP16", "[70000]"),
            ("BOOL", "[2]"),
            ("BOOL", "[\"a\"]"),
            ("FP32", "[{}]"),
            ("FP32", "[true]"),
            ("BYTES", "[1]"),
            ("BYTES", "[null]"),
        ] {
            let result = input(&format!(r#""shape":[1],"datatype":"{datatype}","data":{data}"#));
            assert!(matches!(result, Err(ReadError::Element { index: 0, .. })), "{datatype} {data}: {result:?}");
        }
    }

    #[test]
    fn floats_take_null_and_the_names_of_special_values() {
        let data = r#"[null,"NaN","Infinity","-Infinity","5.5"]"#;
        let tensor = input(&format!(r#""shape":[5],"datatype":"FP32","data":{data}"#)).unwrap();
        let elements = tensor.elements::<f32>().unwrap();
        assert!(elements[0].is_nan() && elements[1].is_nan());
        assert_eq!(elements[2..], [f32::INFINITY, f32::NEG_INFINITY, 5.5]);
    }

    #[test]
    fn strings_become_bytes() {
        let tensor = input(r#""shape":[2,1],"datatype":"BYTES","data":[["é\n"],["\u20ac"]]"#).unwrap();
        assert_eq!(texts(&tensor), ["é\n", "€"]);
    }

    fn read_as_sent(fields: &str) -> Result<Tensor, ReadError> {
        let text = format!(r#"{{"inputs":[{{"name":"x",{fields}}}]}}"#);
        read_request_with(text.as_bytes(), None, TensorRule::AsSent).map(|mut read| read.request.inputs.remove(0))
    }

    #[test]
    fn data_of_another_datatype_or_form_is_kept_as_json() {
        for (datatype, shape, data, reason) in [
            ("BYTES", "[2,1]", r#"["a", null]"#, "input `x`: element 1 is not a valid BYTES: expected a string"),
            ("BYTES", "[1]", r#"{"a":[1]}"#, "input `x`: element 0 is not a valid BYTES: expected a string"),
            ("INT8", "[1]", "[300]", "input `x`: element 0 is not a valid INT8: expected an integer from -128 to 127"),
            ("BOOL", "[1]", "[ null ]", "input `x`: element 0 is not a valid BOOL: expected true, false, 1 or 0"),
            (
                "FP32",
                "[3]",
                "[[1,2],[3]]",
                "input `x`: ragged data at element 3: all arrays of one level must have the same length",
            ),
            ("INT8", "[5]", "[[1,2],[3,4]]", "tensor `x` of shape [5] needs 5 elements, but 4 were given"),
            ("BYTES", "[11]", r#""hello""#, "tensor `x` of shape [11] needs 11 elements, but 1 were given"),
            ("BYTES", "[1]", r#""hello""#, "input `x`: the data is one value, expected an array"),
        ] {
            let orders = [
                format!(r#""shape":{shape},"datatype":"{datatype}","data":{data}"#),
                format!(r#""data":{data},"datatype":"{datatype}","shape":{shape}"#),
            ];
            for fields in orders {
                let tensor = read_as_sent(&fields).unwrap();
                let TensorData::Irregular(irregular) = &tensor.data else { panic!("{fields}: {tensor:?}") };
                assert_eq!((irregular.json().as_ref(), irregular.reason()), (data.as_bytes(), reason), "{fields}");
                assert_eq!(tensor.check(), Err(TensorError::Irregular { reason: reason.into() }));
                assert_eq!(serde_json::to_string(&tensor.shape).unwrap(), shape);
                assert!(!tensor.nested);
            }
        }
        let open = read_as_sent(r#""shape":[-1,2],"datatype":"BYTES","data":[["a",null],["b","c"]]"#).unwrap();
        assert_eq!((open.shape, open.data == TensorData::Variable(BytesElements::default())), (vec![2, 2], false));
    }

    #[test]
    fn flat_data_of_another_shape_is_kept_with_it() {
        for (shape, data) in
            [("[2,11]", r#"["a","b"]"#), ("[1]", r#"["a","b"]"#), ("[4000000000000000,1]", r#"["a","b"]"#)]
        {
            let fields = format!(r#""shape":{shape},"datatype":"BYTES","data":{data}"#);
            assert!(matches!(input(&fields), Err(ReadError::Tensor(TensorError::Count { .. }))), "{shape}");
            let tensor = read_as_sent(&fields).unwrap();
            assert_eq!(texts(&tensor), ["a", "b"]);
            assert_eq!(serde_json::to_string(&tensor.shape).unwrap(), shape);
        }
        let message = |fields: &str| read_as_sent(fields).unwrap_err().to_string();
        let open = read_as_sent(r#""shape":[-1,3],"datatype":"INT8","data":[1,2]"#).unwrap();
        assert!(open.check().unwrap_err().to_string().contains("cannot be inferred"));
        assert_eq!(open.as_sent.unwrap().shape, Some(vec![-1, 3]));
        let huge = message(r#""shape":[9223372036854775807,3],"datatype":"INT8","data":[1,2]"#);
        assert!(huge.contains("more elements than memory can address"), "{huge}");
    }

    #[test]
    fn the_form_that_regular_data_loses_is_kept() {
        let as_sent = |datatype: &str, shape: &str, data: &str| {
            let tensor = read_as_sent(&format!(r#""shape":{shape},"datatype":"{datatype}","data":{data}"#)).unwrap();
            tensor.check().unwrap();
            tensor.as_sent.map(|as_sent| *as_sent)
        };
        let json =
            |text: &'static str| Some(AsSent { data: Some(Bytes::from_static(text.as_bytes())), ..AsSent::default() });
        assert_eq!(as_sent("INT8", "[4]", "[[1,2],[3,4]]"), json("[[1,2],[3,4]]"));
        assert_eq!(as_sent("FP64", "[2]", r#"[null,"NaN"]"#), json(r#"[null,"NaN"]"#));
        assert_eq!(as_sent("BOOL", "[2]", "[true,0]"), json("[true,0]"));
        let shape = Some(AsSent { shape: Some(vec![-1, 2]), ..AsSent::default() });
        assert_eq!(as_sent("INT8", "[-1,2]", "[[1,2],[3,4]]"), shape);
        let doubles = [1.1_f64, 2.0].iter().flat_map(|double| double.to_le_bytes()).collect::<Vec<_>>();
        for datatype in ["FP32", "FP16", "BF16"] {
            let found = as_sent(datatype, "[2]", "[1.1,2]").unwrap();
            assert_eq!(found, AsSent { doubles: Some(doubles.clone().into()), ..AsSent::default() }, "{datatype}");
            assert_eq!(as_sent(datatype, "[2]", "[1.5,2]"), None, "{datatype}: nothing is rounded");
        }
        for (datatype, data) in
            [("FP64", "[1.1,2]"), ("BOOL", "[true,false]"), ("BYTES", r#"["a","b"]"#), ("INT8", "[1,2]")]
        {
            assert_eq!(as_sent(datatype, "[2]", data), None, "{datatype}");
        }
    }

    #[test]
    fn nested_data_is_marked_if_the_shape_is_that_of_its_arrays() {
        let nested = |shape: &str, data: &str| {
            read_as_sent(&format!(r#""shape":{shape},"datatype":"INT8","data":{data}"#)).map(|tensor| tensor.nested)
        };
        assert_eq!(nested("[2,2]", "[[1,2],[3,4]]"), Ok(true));
        assert_eq!(nested("[-1,2]", "[[1,2],[3,4]]"), Ok(true));
        assert_eq!(nested("[2,1,2]", "[[[1,2]],[[3,4]]]"), Ok(true));
        for (shape, data) in [("[2,2]", "[1,2,3,4]"), ("[4]", "[[1,2],[3,4]]"), ("[1,4]", "[[1,2],[3,4]]")] {
            assert_eq!(nested(shape, data), Ok(false), "{shape} {data}");
        }
        let twice = r#""shape":[2],"datatype":"INT8","data":[[1],[2]],"data":[1,2]"#;
        assert!(!read_as_sent(twice).unwrap().nested, "the last data counts");
        let native = input(r#""shape":[1,2],"datatype":"INT8","data":[[1,2]]"#).unwrap();
        assert!(!native.nested, "only Python sees the form");
    }

    #[test]
    fn data_that_python_could_not_read_is_refused() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        let read = |data: &str| read_as_sent(&format!(r#""shape":[1],"datatype":"INT64","data":{data}"#));
        assert!(read(&nested(127)).is_ok());
        assert!(matches!(read(&nested(128)), Err(ReadError::TooDeep { .. })));
        assert!(matches!(read("[1e400]"), Err(ReadError::Element { .. })));
        assert!(matches!(read("[null,1e400]"), Err(ReadError::Element { .. })));
        assert!(matches!(read("[null,]"), Err(ReadError::Syntax { .. })));
        assert!(matches!(read(r#"["\ud800"]"#), Err(ReadError::Syntax { .. })));
    }

    #[test]
    fn open_dimensions_keep_no_reserved_memory() {
        let tensor = input(r#""shape":[-1],"datatype":"FP64","data":[1,2,3]"#).unwrap();
        let TensorData::Fixed(bytes) = tensor.data else { unreachable!("numbers") };
        // Without a spare capacity, the buffer becomes the vector that it was made from.
        assert_eq!(Vec::from(bytes).capacity(), 24);
    }

    #[test]
    fn parameters_are_limited_in_size_and_number() {
        let long = "x".repeat(600_000);
        let two = format!(
            r#"{{"parameters":{{"a":"{long}"}},"inputs":[{{"name":"x","shape":[1],"datatype":"INT8","parameters":{{"b":"{long}"}},"data":[1]}}]}}"#
        );
        let error = read(&two).unwrap_err();
        assert_eq!(error, ReadError::ParametersTooLong { limit: 1 << 20 });
        assert_eq!(
            error.to_string(),
            "the parameters of the request are longer than 1048576 bytes of JSON in total: send long data as an input"
        );
        let many = |count: usize| {
            let keys = (0..count).map(|key| format!(r#""{key}":0"#)).collect::<Vec<_>>().join(",");
            read(&format!(r#"{{"inputs":[],"parameters":{{"nested":[{{{keys}}}]}}}}"#))
        };
        assert!(many(65_535).is_ok());
        assert_eq!(many(65_536).unwrap_err(), ReadError::TooManyParts { limit: 65_536 });
    }

    #[test]
    fn inputs_and_outputs_are_limited_in_number() {
        let outputs = |count: usize| {
            let outputs = vec![r#"{"name":"y"}"#; count].join(",");
            let inputs = vec![r#"{"name":"x","shape":[1],"datatype":"INT8","data":[1]}"#; 65_536 - 10].join(",");
            read(&format!(r#"{{"inputs":[{inputs}],"outputs":[{outputs}]}}"#))
        };
        assert!(outputs(10).is_ok());
        assert_eq!(outputs(11).unwrap_err(), ReadError::TooManyParts { limit: 65_536 });
    }

    #[test]
    fn counts_must_agree_with_the_shape() {
        let message = input_message(r#""shape":[2,3],"datatype":"INT8","data":[1,2,3]"#);
        assert_eq!(message, "tensor `x` of shape [2, 3] needs 6 elements, but 3 were given");
        let message = input_message(r#""shape":[1000000000000],"datatype":"FP64","data":[1]"#);
        assert_eq!(message, "tensor `x` of shape [1000000000000] needs 1000000000000 elements, but 1 were given");
        let message =
            input_message(r#""shape":[4611686018427387904,4611686018427387904],"datatype":"FP64","data":[1]"#);
        assert!(message.contains("more elements than memory"), "{message}");
    }

    #[test]
    fn errors_contain_the_path() {
        assert_eq!(message("[]"), "`request`: expected a JSON object");
        assert_eq!(message("null"), "`request`: expected a JSON object");
        assert_eq!(message("{}"), "`inputs` is required");
        assert_eq!(message(r#"{"inputs":{}}"#), "`inputs`: expected an array");
        assert_eq!(message(r#"{"inputs":[1]}"#), "`inputs[0]`: expected an object");
        assert_eq!(message(r#"{"id":1,"inputs":[]}"#), "`id`: expected a string");
        assert_eq!(message(r#"{"parameters":[],"inputs":[]}"#), "`parameters`: expected an object or null");
        assert_eq!(message(r#"{"inputs":[],"outputs":[{}]}"#), "`outputs[0].name` is required");
        assert_eq!(input_message(r#""shape":[1],"datatype":"INT8""#), "`inputs[0].data` is required");
        assert_eq!(input_message(r#""shape":[1],"data":[1]"#), "`inputs[0].datatype` is required");
        assert_eq!(input_message(r#""datatype":"INT8","data":[1]"#), "`inputs[0].shape` is required");
        assert!(
            input_message(r#""shape":[1],"datatype":"INT99","data":[1]"#)
                .starts_with("`inputs[0].datatype`: unknown datatype `INT99`")
        );
        assert_eq!(
            message(r#"{"inputs":[{"shape":[1],"datatype":"INT8","data":[1]}]}"#),
            "`inputs[0].name` is required"
        );
    }

    #[test]
    fn invalid_json_is_rejected_with_offset() {
        for (text, offset) in [
            ("", 0),
            ("{", 1),
            ("{not", 1),
            (r#"{"inputs":[]"#, 12),
            (r#"{"inputs":[]}x"#, 13),
            (r#"{"inputs":[],}"#, 13),
            (r#"{"a":nul}"#, 5),
            (r#"{"inputs":[{"name":"x","datatype":"FP32","data":[1,]}]}"#, 51),
            (r#"{"inputs":[{"name":"x","datatype":"FP32","data":[01]}]}"#, 49),
            (r#"{"inputs":[{"name":"x","datatype":"FP32","data":[NaN]}]}"#, 49),
            (r#"{"inputs":[{"name":"x","datatype":"FP32","data":[1 2]}]}"#, 51),
            ("{\"a\u{1}\":1}", 1),
        ] {
            match read(text) {
                Err(ReadError::Syntax { offset: found, .. }) => assert_eq!(found, offset, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        let invalid_utf8 = b"{\"id\":\"\xff\",\"inputs\":[]}";
        assert!(matches!(read_request(invalid_utf8, None), Err(ReadError::Syntax { offset: 7, expected: "UTF-8" })));
    }

    /// Returns values that tensors have, and others.
    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-2..3_i8).prop_map(Value::from),
            (-1e3..1e3_f64).prop_map(Value::from),
            ".{0,3}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                3 => proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                1 => proptest::collection::btree_map(".{0,2}", inner, 0..3)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    fn read_binary(inputs: &str, binary: &'static [u8]) -> Result<JsonRequest, ReadError> {
        read_request(format!(r#"{{"inputs":[{inputs}]}}"#).as_bytes(), Some(Bytes::from_static(binary)))
    }

    #[test]
    fn binary_inputs_take_their_bytes_in_order() {
        let inputs = r#"{"name":"a","parameters":{"binary_data_size":4,"k":1},"shape":[2],"datatype":"INT16"},
            {"name":"b","shape":[2],"datatype":"INT16","data":[7,8]},
            {"name":"c","shape":[-1],"datatype":"BYTES","parameters":{"binary_data_size":5}},
            {"name":"d","shape":[0,3],"datatype":"FP64","parameters":{"binary_data_size":0}}"#;
        let inputs = read_binary(inputs, b"\x01\0\x02\0\x01\0\0\0x").unwrap().request.inputs;
        assert_eq!(inputs[0].elements::<i16>().unwrap().as_ref(), [1, 2]);
        assert_eq!(inputs[1].elements::<i16>().unwrap().as_ref(), [7, 8]);
        assert_eq!((texts(&inputs[2]), &inputs[2].shape), (vec!["x"], &vec![1]));
        assert!(inputs[3].is_empty());
        let parameters: Vec<_> = inputs.iter().map(|input| serde_json::to_string(&input.parameters).unwrap()).collect();
        assert_eq!(parameters, [r#"{"k":1}"#, "{}", "{}", "{}"]);
    }

    #[test]
    fn binary_data_that_does_not_fit_inputs_is_rejected() {
        let message = |inputs: &str| read_binary(inputs, b"\x01\0\0\0x").unwrap_err().to_string();
        let sized = |datatype: &str, shape: &str, size: &str| {
            message(&format!(
                r#"{{"name":"x","shape":{shape},"datatype":"{datatype}","parameters":{{"binary_data_size":{size}}}}}"#
            ))
        };
        let size = "`inputs[0].parameters.binary_data_size`: expected a number of bytes, 0 or more";
        for wrong in ["-1", "1.5", "\"4\"", "true", "[4]", "1e30"] {
            assert_eq!(sized("UINT8", "[4]", wrong), size, "{wrong}");
        }
        assert_eq!(
            sized("UINT8", "[6]", "6"),
            "input `x`: `binary_data_size` is 6, but 5 bytes of binary data are left"
        );
        let most = u64::MAX.to_string();
        assert!(sized("UINT8", "[6]", &most).ends_with("but 5 bytes of binary data are left"));
        assert_eq!(
            sized("UINT8", "[4]", "4"),
            "1 bytes of binary data belong to no input: check each `binary_data_size`"
        );
        assert_eq!(sized("UINT8", "[4]", "5"), "tensor `x` of shape [4] needs 4 elements, but 5 were given");
        assert_eq!(sized("UINT8", "[-1,2]", "5").split(": ").next(), Some("input `x`"));
        assert_eq!(sized("BYTES", "[2,2]", "5"), "tensor `x` of shape [2, 2] needs 4 elements, but 1 were given");
        assert_eq!(sized("BYTES", "[1]", "null"), "`inputs[0].data` is required");
        let both = r#"{"name":"x","shape":[1],"datatype":"UINT8","data":[1],"parameters":{"binary_data_size":1}}"#;
        assert_eq!(message(both), "input `x` has both `data` and `binary_data_size`: send one of them");
        let json = read(&format!(r#"{{"inputs":[{}]}}"#, both.replace(r#""data":[1],"#, ""))).unwrap_err();
        assert!(matches!(json, ReadError::NoBinaryPart { .. }), "{json}");
    }

    #[test]
    fn binary_output_parameters_are_removed_from_the_request() {
        let text = r#"{"inputs":[],"outputs":[{"name":"a","parameters":{"binary_data":false,"k":1}},{"name":"b"},
            {"name":"c","parameters":{"binary_data":null}}],"parameters":{"binary_data_output":true,"k":2}}"#;
        let JsonRequest { request, binary_outputs, .. } = read_request(text.as_bytes(), None).unwrap();
        assert_eq!(["a", "b", "c", "d"].map(|name| binary_outputs.wants(name)), [false, true, true, true]);
        assert_eq!(serde_json::to_string(&request.parameters).unwrap(), r#"{"k":2}"#);
        assert_eq!(serde_json::to_string(&request.outputs[0].parameters).unwrap(), r#"{"k":1}"#);
        for (wrong, path) in [
            (r#"{"inputs":[],"parameters":{"binary_data_output":1}}"#, "parameters.binary_data_output"),
            (
                r#"{"inputs":[],"outputs":[{"parameters":{"binary_data":"yes"},"name":"a"}]}"#,
                "outputs[0].parameters.binary_data",
            ),
        ] {
            assert_eq!(message(wrong), format!("`{path}`: expected true or false"));
        }
    }

    #[test]
    fn deep_nesting_is_an_error() {
        let deep = "[".repeat(100_000);
        assert!(matches!(read(&deep), Err(ReadError::Syntax { .. })));
        assert!(matches!(read(&format!(r#"{{"x":{deep}"#)), Err(ReadError::Syntax { .. })));
        let closed = format!("{deep}{}", "]".repeat(100_000));
        assert!(
            read(&format!(r#"{{"x":{closed},"inputs":[]}}"#)).is_ok(),
            "unknown keys are skipped without recursion"
        );
        assert!(matches!(read(&format!(r#"{{"parameters":{{"x":{closed}}}}}"#)), Err(ReadError::TooDeep { .. })));
        assert!(matches!(input(&format!(r#""datatype":"INT8","data":{deep}"#)), Err(ReadError::TooDeep { .. })));
        let shape = vec!["1"; 100].join(",");
        assert!(matches!(input(&format!(r#""shape":[{shape}]"#)), Err(ReadError::TooDeep { .. })));
    }

    #[test]
    fn a_declared_shape_reserves_no_more_than_the_text_can_hold() {
        let text = "[1,2,3]";
        assert_eq!(capacity(Some(&[1 << 40]), &Cursor::new(text.as_bytes())), 4);
        assert_eq!(capacity(Some(&[3]), &Cursor::new(text.as_bytes())), 3);
        assert_eq!(capacity(Some(&[-1, i64::MAX]), &Cursor::new(text.as_bytes())), 4);
        let long = "1,".repeat(1 << 20);
        assert_eq!(capacity(Some(&[-1]), &Cursor::new(long.as_bytes())), OPEN_CAPACITY);
    }

    proptest! {
        #[test]
        fn read_request_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_request(&bytes, None);
            let _ = read_request(&bytes, Some(Bytes::copy_from_slice(&bytes)));
        }

        #[test]
        fn read_request_never_panics_on_mutated_requests(at in 0_usize..140, byte in any::<u8>(), cut in 0_usize..140) {
            let mut text = br#"{"id":"q","inputs":[{"name":"x","shape":[2,2],"datatype":"FP32","data":[[1.5,-2e3],[null,4]]}],"outputs":[{"name":"predict"}]}"#.to_vec();
            let length = text.len();
            text[at % length] = byte;
            text.truncate(cut.max(1));
            let _ = read_request(&text, None);
        }

        #[test]
        fn any_json_is_read_as_a_tensor_or_kept(
            data in any_json(),
            datatype in proptest::sample::select(&Datatype::ALL[..]),
            shape in proptest::collection::vec(0..4_i64, 0..3),
            first in any::<bool>(),
        ) {
            let head = format!(r#""shape":{},"datatype":"{datatype}""#, serde_json::to_string(&shape).unwrap());
            let text = serde_json::to_string(&data).unwrap();
            let fields = if first { format!(r#""data":{text},{head}"#) } else { format!(r#"{head},"data":{text}"#) };
            let tensor = read_as_sent(&fields).unwrap();
            let strict = input(&fields);
            match &tensor.data {
                TensorData::Irregular(irregular) => {
                    prop_assert_eq!(serde_json::from_slice::<Value>(irregular.json()).unwrap(), data);
                    let is_one_value = !text.starts_with('[');
                    prop_assert!(strict.is_err() || is_one_value, "{:?}", strict);
                    prop_assert!(tensor.check().is_err());
                }
                _ if tensor.check().is_ok() => {
                    prop_assert_eq!(Tensor { nested: false, as_sent: None, ..tensor }, strict.unwrap());
                }
                _ => {
                    let is_count = matches!(strict, Err(ReadError::Tensor(TensorError::Count { .. })));
                    prop_assert!(is_count, "{:?}", strict);
                }
            }
        }

        #[test]
        fn floats_read_as_serde_json_reads(values in proptest::collection::vec(any::<f64>().prop_filter("finite", |v| v.is_finite()), 0..50)) {
            let data = serde_json::to_string(&values).unwrap();
            let tensor = input(&format!(r#""shape":[{}],"datatype":"FP64","data":{data}"#, values.len())).unwrap();
            let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&tensor.elements::<f64>().unwrap()), bits(&values));
        }
    }
}
