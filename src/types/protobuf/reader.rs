//! Reads requests.

use bytes::Bytes;
use serde_json::{Map, Value as Json};

use super::contents::Contents;
use super::wire::{Cursor, WireField, WireValue};
use super::{ReadError, parameters};
use crate::types::request::MAX_PARTS;
use crate::types::shape::MAX_DIMENSIONS;
use crate::types::tensor::element_count;
use crate::types::{
    BytesElements, Datatype, InferenceRequest, Parameters, RequestedOutput, Tensor, TensorData, TensorError, TensorRule,
};

/// A parsed request, with the parts that only the transport uses.
#[derive(Debug, Clone, Default)]
pub struct ProtobufRequest {
    pub model_name: String,
    /// `None` for the default version.
    pub model_version: Option<String>,
    /// The request; its `headers` are empty, and set by the transport. The id is empty if there is none.
    pub request: InferenceRequest,
    /// Whether the request uses `raw_input_contents`, and so requests raw outputs.
    pub raw: bool,
}

/// Reads a `ModelInferRequest`. Tensors are slices of it if their elements have the same form on the wire as in memory.
///
/// # Errors
///
/// Fails with the position and the reason.
pub fn read_request(message: &Bytes) -> Result<ProtobufRequest, ReadError> {
    read_request_with(message, TensorRule::Strict)
}

/// Reads a `ModelInferRequest` as [`read_request`] does, with a rule for tensors.
///
/// # Errors
///
/// See [`read_request`].
pub fn read_request_with(message: &Bytes, rule: TensorRule) -> Result<ProtobufRequest, ReadError> {
    let envelope = Envelope::read(message)?;
    let mut parsed = ProtobufRequest {
        model_name: envelope.model_name.to_owned(),
        model_version: (!envelope.model_version.is_empty()).then(|| envelope.model_version.to_owned()),
        request: InferenceRequest {
            id: envelope.id.to_owned(),
            parameters: Parameters::from(envelope.parameters),
            outputs: envelope.outputs,
            ..InferenceRequest::default()
        },
        raw: !envelope.raw.is_empty(),
    };
    let found = envelope.raw.len();
    let mut raw = envelope.raw.into_iter();
    let mut wanted = 0;
    for (index, input) in envelope.inputs.into_iter().enumerate() {
        let mut take_raw = || {
            wanted += 1;
            raw.next().map(|bytes| message.slice_ref(bytes))
        };
        // An input without data is rejected below, when the number of such inputs is known.
        if let Some(tensor) = input.tensor(message, index, found > 0, &mut take_raw, rule)? {
            parsed.request.inputs.push(tensor);
        }
    }
    if found > 0 && wanted != found {
        return Err(ReadError::RawCount { found, wanted });
    }
    Ok(parsed)
}

/// The most fields that are looked at to estimate the work of reading a message, which takes some microseconds.
const MAX_ESTIMATED: usize = 1024;

/// From which length on a name or another text counts as work, in bytes.
const LONG_TEXT: usize = 1024;

/// Estimates how many bytes of a `ModelInferRequest` must be checked, copied or converted to read it, rather than kept. They are all bytes of
/// a message with many fields.
pub fn bytes_to_convert(message: &[u8]) -> usize {
    // A malformed message is rejected when it is read, at the same field.
    estimate(message).unwrap_or_default()
}

fn estimate(message: &[u8]) -> Result<usize, ReadError> {
    let (mut converted, mut raw, mut is_raw_checked) = (0, 0, false);
    let mut looked_at = 0;
    let mut fields = Cursor::new(message, 0);
    while let Some(field) = fields.field()? {
        looked_at += 1;
        match (field.number, field.value) {
            (5, WireValue::Bytes(_)) => {
                let (mut datatype, mut contents) = (&b""[..], Contents::default());
                let mut fields = field.message()?;
                while let Some(field) = fields.field()?.filter(|_| looked_at <= MAX_ESTIMATED) {
                    looked_at += 1;
                    match (field.number, field.value) {
                        (2, WireValue::Bytes(bytes)) => datatype = bytes,
                        (5, WireValue::Bytes(_)) => contents.add(field.message()?),
                        (_, WireValue::Bytes(bytes)) if bytes.len() >= LONG_TEXT => converted += bytes.len(),
                        _ => {}
                    }
                }
                let datatype = datatype.get(..datatype.len().min(8)).and_then(|name| std::str::from_utf8(name).ok());
                let datatype = datatype.unwrap_or_default();
                converted += contents.bytes_to_convert(datatype);
                is_raw_checked |= matches!(datatype, "BYTES" | "BOOL");
            }
            (7, WireValue::Bytes(bytes)) => raw += bytes.len(),
            (_, WireValue::Bytes(bytes)) if bytes.len() >= LONG_TEXT => converted += bytes.len(),
            _ => {}
        }
        if looked_at > MAX_ESTIMATED {
            return Ok(message.len());
        }
    }
    Ok(converted + if is_raw_checked { raw } else { 0 })
}

/// A request whose tensors have not been read yet.
#[derive(Default)]
struct Envelope<'a> {
    model_name: &'a str,
    model_version: &'a str,
    id: &'a str,
    parameters: Map<String, Json>,
    inputs: Vec<Input<'a>>,
    outputs: Vec<RequestedOutput>,
    raw: Vec<&'a [u8]>,
}

/// Counts the parts of a message, to limit them.
pub(super) struct PartCounter(pub(super) usize);

impl PartCounter {
    pub(super) fn add(&mut self) -> Result<(), ReadError> {
        self.0 += 1;
        if self.0 > MAX_PARTS { Err(ReadError::TooManyParts { limit: MAX_PARTS }) } else { Ok(()) }
    }

    pub(super) fn parameter(
        &mut self,
        field: &WireField<'_>,
        parameters: &mut Map<String, Json>,
    ) -> Result<(), ReadError> {
        self.add()?;
        parameters::read(field, parameters)
    }
}

impl<'a> Envelope<'a> {
    fn read(message: &'a [u8]) -> Result<Self, ReadError> {
        let mut envelope = Self::default();
        let mut parts = PartCounter(0);
        let mut fields = Cursor::new(message, 0);
        while let Some(field) = fields.field()? {
            match field.number {
                1 => envelope.model_name = field.text()?,
                2 => envelope.model_version = field.text()?,
                3 => envelope.id = field.text()?,
                4 => parts.parameter(&field, &mut envelope.parameters)?,
                5 => {
                    parts.add()?;
                    envelope.inputs.push(Input::read(&field, &mut parts)?);
                }
                6 => {
                    parts.add()?;
                    envelope.outputs.push(read_output(&field, &mut parts)?);
                }
                7 => {
                    parts.add()?;
                    envelope.raw.push(field.bytes()?);
                }
                _ => {}
            }
        }
        Ok(envelope)
    }
}

fn read_output(field: &WireField<'_>, parts: &mut PartCounter) -> Result<RequestedOutput, ReadError> {
    let mut output = RequestedOutput::default();
    let mut output_parameters = Map::new();
    let mut fields = field.message()?;
    while let Some(field) = fields.field()? {
        match field.number {
            1 => field.text()?.clone_into(&mut output.name),
            2 => parts.parameter(&field, &mut output_parameters)?,
            _ => {}
        }
    }
    output.parameters = output_parameters.into();
    Ok(output)
}

/// An input of a request, or an output of a response, whose data has not been read yet.
pub(super) struct Input<'a> {
    name: &'a str,
    datatype: &'a str,
    shape: Vec<i64>,
    parameters: Map<String, Json>,
    contents: Contents<'a>,
}

impl<'a> Input<'a> {
    pub(super) fn read(field: &WireField<'a>, parts: &mut PartCounter) -> Result<Self, ReadError> {
        let mut input =
            Self { name: "", datatype: "", shape: Vec::new(), parameters: Map::new(), contents: Contents::default() };
        let mut fields = field.message()?;
        while let Some(field) = fields.field()? {
            match field.number {
                1 => input.name = field.text()?,
                2 => input.datatype = field.text()?,
                3 => input.add_dimensions(&field)?,
                4 => parts.parameter(&field, &mut input.parameters)?,
                5 => {
                    parts.add()?;
                    input.contents.add(field.message()?);
                }
                _ => {}
            }
        }
        Ok(input)
    }

    fn add_dimensions(&mut self, field: &WireField<'_>) -> Result<(), ReadError> {
        let mut packed = match field.value {
            WireValue::Bytes(bytes) => Cursor::new(bytes, field.offset),
            _ => return self.add_dimension(field.varint()?),
        };
        while let Some(dimension) = packed.packed_varint()? {
            self.add_dimension(dimension)?;
        }
        Ok(())
    }

    fn add_dimension(&mut self, dimension: u64) -> Result<(), ReadError> {
        if self.shape.len() == MAX_DIMENSIONS {
            return Err(ReadError::TooManyDimensions { input: self.name.to_owned(), limit: MAX_DIMENSIONS });
        }
        self.shape.push(dimension.cast_signed());
        Ok(())
    }

    /// Reads the data, from the contents or the next raw entry. Returns `None` if that entry is missing.
    pub(super) fn tensor(
        self,
        message: &Bytes,
        index: usize,
        has_raw: bool,
        take_raw: &mut impl FnMut() -> Option<Bytes>,
        rule: TensorRule,
    ) -> Result<Option<Tensor>, ReadError> {
        let label = if self.name.is_empty() { format!("#{index}") } else { self.name.to_owned() };
        let unknown = || ReadError::Datatype { input: label.clone(), found: self.datatype.chars().take(40).collect() };
        let datatype: Datatype = self.datatype.parse().map_err(|_| unknown())?;
        let contents = self.contents.read(message, datatype, self.count(), &label)?;
        let is_typed = contents.is_some();
        let data = match contents {
            Some(data) => data,
            None if has_raw => match take_raw() {
                Some(bytes) => TensorData::from_raw(&label, datatype, bytes)?,
                None => return Ok(None),
            },
            None if datatype == Datatype::Bytes => TensorData::Variable(BytesElements::default()),
            None => TensorData::Fixed(Bytes::new()),
        };
        let parameters = Parameters::from(self.parameters);
        let mut tensor =
            Tensor { name: label, datatype, shape: Vec::new(), parameters, data, nested: false, as_sent: None };
        tensor.shape = tensor.resolve_shape(&self.shape)?;
        match tensor.check() {
            // Raw contents must have the length of their shape, for models in Python, too; so must missing ones.
            Err(TensorError::Count { .. }) if is_typed && rule == TensorRule::AsSent => {}
            checked => checked?,
        }
        self.name.clone_into(&mut tensor.name);
        Ok(Some(tensor))
    }

    /// Returns the number of elements that the shape declares, or `usize::MAX` if a dimension is unknown.
    fn count(&self) -> usize {
        let known: Option<Vec<usize>> = self.shape.iter().map(|&dimension| usize::try_from(dimension).ok()).collect();
        known.and_then(|shape| element_count(&shape)).unwrap_or(usize::MAX)
    }
}
