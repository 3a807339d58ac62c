//! Writes responses.

use bytemuck::Pod;
use bytes::Bytes;

use super::contents::{self, field_of};
use super::parameters;
use super::wire::{field_len, put_field, put_varint, varint_len};
use crate::types::{BytesElements, Datatype, InferenceResponse, Tensor, TensorData, TensorError};

/// Buffers of at least this many bytes are sent without a copy. Copying a smaller one costs less than another chunk.
const KEPT_FROM: usize = 4 * 1024;

/// Encodes a response as a `ModelInferResponse`. All sizes are known before anything is written.
#[derive(Debug)]
pub struct ResponseEncoder<'r> {
    response: &'r InferenceResponse,
    outputs: Vec<Output>,
    len: usize,
}

/// The data and sizes of one tensor: an output of a response or an input of a request, which have the same message.
#[derive(Debug)]
pub(super) struct Output {
    /// The data in its raw form; `None` if the contents are typed.
    pub(super) raw: Option<Bytes>,
    contents_len: usize,
    pub(super) len: usize,
}

impl<'r> ResponseEncoder<'r> {
    /// Measures a response. With `raw`, or if an output has a datatype without typed contents, the data of all outputs is in
    /// `raw_output_contents`.
    ///
    /// # Errors
    ///
    /// Fails if a BYTES element is too long for the raw form, or if the data of an output has no form but JSON.
    pub fn new(response: &'r InferenceResponse, raw: bool) -> Result<Self, TensorError> {
        let raw = raw || response.outputs.iter().any(|output| is_raw_only(output.datatype));
        let outputs = response.outputs.iter().map(|output| Output::new(output, raw)).collect::<Result<Vec<_>, _>>()?;
        let texts = texts(response).map(|(number, text)| field_len(number, text.len())).sum::<usize>();
        let of_outputs =
            |output: &Output| field_len(5, output.len) + output.raw.as_ref().map_or(0, |raw| field_len(6, raw.len()));
        let len = texts + parameters::len(4, &response.parameters) + outputs.iter().map(of_outputs).sum::<usize>();
        Ok(Self { response, outputs, len })
    }

    /// Returns the length of the message, in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends the message to `buffer`, and returns the chunks to send one after another. Large tensors are separate chunks,
    /// which are not copied.
    pub fn write(self, buffer: Vec<u8>) -> Vec<Bytes> {
        let mut chunks = MessageChunks { done: Vec::new(), open: buffer };
        chunks.open.reserve(self.copied_len());
        for (number, text) in texts(self.response) {
            put_field(&mut chunks.open, number, text.len());
            chunks.open.extend_from_slice(text.as_bytes());
        }
        parameters::write(&mut chunks.open, 4, &self.response.parameters);
        for (tensor, output) in self.response.outputs.iter().zip(&self.outputs) {
            put_field(&mut chunks.open, 5, output.len);
            output.write(tensor, &mut chunks);
        }
        for raw in self.outputs.into_iter().filter_map(|output| output.raw) {
            put_field(&mut chunks.open, 6, raw.len());
            chunks.push(&raw);
        }
        chunks.finish()
    }

    /// Returns the length without the buffers that are not copied.
    fn copied_len(&self) -> usize {
        let kept = |tensor: &Tensor, output: &Output| match (&output.raw, &tensor.data) {
            (Some(raw), _) => raw.len(),
            (None, TensorData::Fixed(bytes)) if is_kept(tensor.datatype) => bytes.len(),
            (None, _) => 0,
        };
        let all = self.response.outputs.iter().zip(&self.outputs).map(|(tensor, output)| kept(tensor, output));
        self.len - all.filter(|&len| len >= KEPT_FROM).sum::<usize>()
    }
}

/// Returns the strings of a response, with the numbers of their fields. Empty ones are omitted, as proto3 requires.
fn texts(response: &InferenceResponse) -> impl Iterator<Item = (u32, &str)> {
    let version = response.model_version.as_deref().unwrap_or_default();
    let all = [(1, response.model_name.as_str()), (2, version), (3, response.id.as_str())];
    all.into_iter().filter(|(_, text)| !text.is_empty())
}

/// Returns the number of bytes of a response that must be converted or copied to write it, rather than sent as they are.
pub fn bytes_to_copy(response: &InferenceResponse, raw: bool) -> usize {
    let is_sent = |output: &&Tensor| match output.datatype {
        Datatype::Bytes => false,
        datatype => raw || is_kept(datatype),
    };
    response.outputs.iter().filter(|output| !is_sent(output)).map(Tensor::byte_len).sum()
}

/// Returns whether a datatype has no typed contents.
pub(super) const fn is_raw_only(datatype: Datatype) -> bool {
    matches!(datatype, Datatype::Fp16 | Datatype::Bf16)
}

/// Returns whether the typed contents of a datatype have the same form as in memory.
const fn is_kept(datatype: Datatype) -> bool {
    matches!(datatype, Datatype::Fp32 | Datatype::Fp64)
}

impl Output {
    pub(super) fn new(tensor: &Tensor, raw: bool) -> Result<Self, TensorError> {
        if let TensorData::Irregular(data) = &tensor.data {
            return Err(data.into());
        }
        let (raw, contents_len) = if raw { (Some(tensor.to_raw()?), 0) } else { (None, contents_len(tensor)) };
        let name = if tensor.name.is_empty() { 0 } else { field_len(1, tensor.name.len()) };
        let datatype = field_len(2, tensor.datatype.name().len());
        let shape = if tensor.shape.is_empty() { 0 } else { field_len(3, shape_len(&tensor.shape)) };
        let parameters = parameters::len(4, &tensor.parameters);
        let len = name + datatype + shape + parameters + field_len(5, contents_len);
        Ok(Self { raw, contents_len, len })
    }

    pub(super) fn write(&self, tensor: &Tensor, chunks: &mut MessageChunks) {
        let buffer = &mut chunks.open;
        if !tensor.name.is_empty() {
            put_field(buffer, 1, tensor.name.len());
            buffer.extend_from_slice(tensor.name.as_bytes());
        }
        let datatype = tensor.datatype.name();
        put_field(buffer, 2, datatype.len());
        buffer.extend_from_slice(datatype.as_bytes());
        if !tensor.shape.is_empty() {
            put_field(buffer, 3, shape_len(&tensor.shape));
            for &dimension in &tensor.shape {
                put_varint(buffer, dimension as u64);
            }
        }
        parameters::write(buffer, 4, &tensor.parameters);
        // Present even if the data is raw, as in the original.
        put_field(buffer, 5, self.contents_len);
        if self.contents_len > 0 {
            write_contents(tensor, chunks);
        }
    }
}

fn shape_len(shape: &[usize]) -> usize {
    shape.iter().map(|&dimension| varint_len(dimension as u64)).sum()
}

fn contents_len(tensor: &Tensor) -> usize {
    let number = field_of(tensor.datatype);
    match &tensor.data {
        TensorData::Fixed(bytes) if bytes.is_empty() => 0,
        TensorData::Fixed(bytes) => field_len(number, packed_len(bytes, tensor.datatype)),
        TensorData::Variable(elements) => elements.iter().map(|element| field_len(number, element.len())).sum(),
        // `Output::new` has refused it.
        TensorData::Irregular(_) => 0,
    }
}

/// Returns the size of the elements in a packed field, in bytes.
fn packed_len(bytes: &[u8], datatype: Datatype) -> usize {
    if is_kept(datatype) {
        return bytes.len();
    }
    let mut len = 0;
    for_each_varint(bytes, datatype, |value| len += varint_len(value));
    len
}

fn write_contents(tensor: &Tensor, chunks: &mut MessageChunks) {
    match &tensor.data {
        TensorData::Variable(elements) => write_bytes(elements, &mut chunks.open),
        TensorData::Irregular(_) => {}
        TensorData::Fixed(bytes) => {
            put_field(&mut chunks.open, field_of(tensor.datatype), packed_len(bytes, tensor.datatype));
            if is_kept(tensor.datatype) {
                chunks.push(bytes);
            } else {
                for_each_varint(bytes, tensor.datatype, |value| put_varint(&mut chunks.open, value));
            }
        }
    }
}

fn write_bytes(elements: &BytesElements, buffer: &mut Vec<u8>) {
    for element in elements.iter() {
        put_field(buffer, contents::BYTES, element.len());
        buffer.extend_from_slice(element);
    }
}

/// Visits the elements of a datatype whose contents are varints.
fn for_each_varint(bytes: &[u8], datatype: Datatype, mut visit: impl FnMut(u64)) {
    match datatype {
        Datatype::Bool => bytes.iter().for_each(|&byte| visit(u64::from(byte != 0))),
        Datatype::Uint8 => bytes.iter().for_each(|&byte| visit(u64::from(byte))),
        Datatype::Uint16 => numbers::<u16>(bytes).for_each(|value| visit(u64::from(value))),
        Datatype::Uint32 => numbers::<u32>(bytes).for_each(|value| visit(u64::from(value))),
        Datatype::Uint64 => numbers::<u64>(bytes).for_each(visit),
        // Negative numbers are varints of 64 bits, regardless of their type.
        Datatype::Int8 => numbers::<i8>(bytes).for_each(|value| visit(i64::from(value).cast_unsigned())),
        Datatype::Int16 => numbers::<i16>(bytes).for_each(|value| visit(i64::from(value).cast_unsigned())),
        Datatype::Int32 => numbers::<i32>(bytes).for_each(|value| visit(i64::from(value).cast_unsigned())),
        Datatype::Int64 => numbers::<i64>(bytes).for_each(|value| visit(value.cast_unsigned())),
        Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64 | Datatype::Bytes => {}
    }
}

/// Iterates over the numbers of a buffer of any alignment.
fn numbers<T: Pod>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

/// The chunks of a message: those that are complete, and the one that is being written.
pub(super) struct MessageChunks {
    pub(super) done: Vec<Bytes>,
    pub(super) open: Vec<u8>,
}

impl MessageChunks {
    pub(super) fn push(&mut self, bytes: &Bytes) {
        if bytes.len() < KEPT_FROM {
            self.open.extend_from_slice(bytes);
        } else {
            self.close();
            self.done.push(bytes.clone());
        }
    }

    fn close(&mut self) {
        if !self.open.is_empty() {
            self.done.push(std::mem::take(&mut self.open).into());
        }
    }

    pub(super) fn finish(mut self) -> Vec<Bytes> {
        self.close();
        self.done
    }
}
