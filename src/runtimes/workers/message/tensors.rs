//! Tensors in frames: their heads, and their bytes in the tail or in the memory file.

use std::borrow::Cow;
use std::ops::Range;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::error::MessageError;
use crate::runtimes::workers::memory_file::{AnswerRegion, MemoryError, Region};
use crate::types::json::IrregularData;
use crate::types::{BytesElements, Datatype, Parameters, Tensor, TensorData, short};

/// Each tensor starts at a multiple of this in a tail, in bytes.
const ALIGNMENT: usize = 8;
static PADDING: [u8; ALIGNMENT] = [0; ALIGNMENT];

#[derive(Serialize)]
pub(in crate::runtimes::workers) struct TensorHead<'a> {
    name: &'a str,
    datatype: Datatype,
    shape: &'a [usize],
    /// The shape with its negative dimensions.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_shape: Option<&'a [i64]>,
    #[serde(skip_serializing_if = "Parameters::is_absent")]
    parameters: &'a Parameters,
    size: usize,
    /// Where the bytes are in the memory file, if they are not in the tail.
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    /// The size of the data as JSON, which follows the elements.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent: Option<usize>,
    /// Whether the elements are in double precision, in place of the datatype's own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    doubles: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<usize>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    text: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    nested: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    json: bool,
    /// Why JSON data of an input has no regular form.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

pub(in crate::runtimes::workers) fn encode_tensor<'a>(tensor: &'a Tensor, tail: &mut Vec<Bytes>) -> TensorHead<'a> {
    let Tensor { name, datatype, shape, parameters, data, nested, as_sent } = tensor;
    let as_sent = as_sent.as_deref();
    let doubles = tensor.doubles();
    let (size, count, text) = match data {
        TensorData::Fixed(bytes) => {
            let bytes = doubles.unwrap_or(bytes);
            tail.push(bytes.clone());
            (bytes.len(), None, false)
        }
        TensorData::Variable(elements) => {
            let bytes = offsets_and_elements(elements);
            let size = bytes.len();
            tail.push(bytes);
            (size, Some(elements.len()), elements.is_text())
        }
        TensorData::Irregular(data) => {
            tail.push(data.json().clone());
            (data.json().len(), None, false)
        }
    };
    pad(size, tail);
    let json = matches!(data, TensorData::Irregular(_));
    let sent = as_sent.and_then(|as_sent| as_sent.data.as_ref()).filter(|_| !json).map(|data| {
        tail.push(data.clone());
        pad(data.len(), tail);
        data.len()
    });
    TensorHead {
        name,
        datatype: *datatype,
        shape,
        sent_shape: as_sent.and_then(|as_sent| as_sent.shape.as_deref()),
        parameters,
        size,
        offset: None,
        sent,
        doubles: doubles.is_some() && !json,
        count,
        text,
        nested: *nested,
        json,
        reason: match data {
            TensorData::Irregular(data) => Some(data.reason()).filter(|reason| !reason.is_empty()),
            TensorData::Fixed(_) | TensorData::Variable(_) => None,
        },
    }
}

/// Does the same, but puts the bytes of the tensor into a region of the memory file if they fit there.
///
/// # Errors
///
/// Fails if the file has become too short.
pub(in crate::runtimes::workers) fn encode_tensor_into<'a>(
    tensor: &'a Tensor,
    region: &mut AnswerRegion<'_>,
    tail: &mut Vec<Bytes>,
) -> Result<TensorHead<'a>, MemoryError> {
    let mut chunks = Vec::with_capacity(2);
    let mut head = encode_tensor(tensor, &mut chunks);
    // Its JSON follows the elements.
    head.offset = if head.sent.is_none() { region.put(head.size, &chunks)? } else { None };
    if head.offset.is_none() {
        tail.append(&mut chunks);
    }
    Ok(head)
}

/// Fills up a part of a tail to the next multiple of the alignment.
fn pad(size: usize, tail: &mut Vec<Bytes>) {
    let padding = size.next_multiple_of(ALIGNMENT) - size;
    if padding > 0 {
        tail.push(Bytes::from_static(&PADDING[..padding]));
    }
}

fn offsets_and_elements(elements: &BytesElements) -> Bytes {
    let length: usize = elements.iter().map(<[u8]>::len).sum();
    let mut bytes = BytesMut::with_capacity(4 * (elements.len() + 1) + length);
    let mut end = 0_u32;
    bytes.put_u32_le(end);
    for element in elements.iter() {
        // Does not saturate: payloads are limited to far less than 4 GiB.
        end = end.saturating_add(u32::try_from(element.len()).unwrap_or(u32::MAX));
        bytes.put_u32_le(end);
    }
    for element in elements.iter() {
        bytes.extend_from_slice(element);
    }
    bytes.freeze()
}

#[derive(Clone, Deserialize)]
pub(in crate::runtimes::workers) struct ReceivedTensor<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    datatype: Cow<'a, str>,
    /// May have negative dimensions.
    shape: Vec<i128>,
    #[serde(default)]
    parameters: Parameters,
    size: usize,
    /// Where the bytes are in the memory file, if they are not in the tail.
    #[serde(default)]
    offset: Option<u64>,
    /// The size of the data as JSON, which follows the elements.
    #[serde(default)]
    sent: Option<usize>,
    count: Option<usize>,
    #[serde(default)]
    text: bool,
    #[serde(default)]
    nested: bool,
    #[serde(default)]
    json: bool,
    /// Why JSON data has no regular form.
    #[serde(default, borrow)]
    reason: Option<Cow<'a, str>>,
}

impl ReceivedTensor<'_> {
    pub(in crate::runtimes::workers) fn name(&self) -> &str {
        &self.name
    }

    /// Returns where its bytes are in the memory file, if they are there.
    pub(in crate::runtimes::workers) fn region(&self) -> Option<Region> {
        Some(Region { offset: self.offset?, size: self.size as u64 })
    }

    /// Returns how many rows it has, and the bytes of each, if it is a regular tensor of numbers in the memory file, whose parameters
    /// hold for all of its rows.
    pub(in crate::runtimes::workers) fn numeric_rows(&self) -> Option<(usize, usize)> {
        self.offset?;
        if self.json || self.sent.is_some() || !self.parameters.others.is_empty() {
            return None;
        }
        let width = self.datatype.parse::<Datatype>().ok()?.width()?;
        let (&rows, trailing) = self.shape.split_first()?;
        let rows = usize::try_from(rows).ok()?;
        let bytes = trailing.iter().try_fold(width, |bytes, &count| bytes.checked_mul(usize::try_from(count).ok()?))?;
        (bytes > 0 && rows.checked_mul(bytes)? == self.size).then_some((rows, bytes))
    }

    /// Returns some of the rows of such a tensor, each of which has so many bytes.
    pub(in crate::runtimes::workers) fn slice(&self, rows: &Range<usize>, row_bytes: usize) -> Self {
        let mut part = self.clone();
        if let Some(count) = part.shape.first_mut() {
            *count = rows.len() as i128;
        }
        part.size = rows.len().saturating_mul(row_bytes);
        let skipped = rows.start.saturating_mul(row_bytes) as u64;
        part.offset = self.offset.map(|offset| offset.saturating_add(skipped));
        part
    }
}

/// The end of the connection that sent a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtimes::workers) enum Sender {
    Server,
    Worker,
}

pub(in crate::runtimes::workers) fn decode_tensor(
    tensor: ReceivedTensor<'_>,
    sender: Sender,
    tail: &mut Bytes,
) -> Result<Tensor, MessageError> {
    if tensor.offset.is_some() {
        return Err(MessageError::Memory { name: tensor.name.into_owned(), source: MemoryError::NoFile });
    }
    decode_tensor_from(tensor, sender, None, tail)
}

/// Reads a tensor whose bytes have been read from the memory file, or are in the tail.
pub(in crate::runtimes::workers) fn decode_tensor_from(
    tensor: ReceivedTensor<'_>,
    sender: Sender,
    read: Option<Bytes>,
    tail: &mut Bytes,
) -> Result<Tensor, MessageError> {
    let ReceivedTensor { name, datatype, shape: sent_shape, parameters, size, offset: _, sent, count, text, .. } =
        tensor;
    let ReceivedTensor { nested, json, reason, .. } = tensor;
    let name = name.into_owned();
    let mut take = |size: usize| {
        if size > tail.len() {
            return Err(MessageError::OutOfBounds { name: name.clone() });
        }
        let bytes = tail.split_to(size);
        tail.advance((size.next_multiple_of(ALIGNMENT) - size).min(tail.len()));
        Ok(bytes)
    };
    let bytes = read.map_or_else(|| take(size), Ok)?;
    let sent = sent.map(take).transpose()?;
    let Ok(datatype) = datatype.parse::<Datatype>() else {
        return Err(MessageError::Datatype { name, datatype: datatype.into_owned() });
    };
    let data = if json {
        let reason = match (reason, sender) {
            // The server says it as its client is to read it.
            (Some(reason), Sender::Server) => reason.into_owned(),
            (reason, _) => {
                let reason =
                    reason.unwrap_or_else(|| format!("the data is not {datatype}, and only JSON can hold it").into());
                format!("output `{}`: {reason}", short(&name))
            }
        };
        let data = IrregularData::new(bytes, reason).ok_or_else(|| MessageError::Json { name: name.clone() })?;
        TensorData::Irregular(data)
    } else if datatype == Datatype::Bytes {
        let elements = count.and_then(|count| decode_elements(bytes, count));
        TensorData::Variable(elements.ok_or_else(|| MessageError::OutOfBounds { name: name.clone() })?.with_text(text))
    } else {
        TensorData::Fixed(bytes)
    };
    let mut tensor = Tensor { name, datatype, shape: Vec::new(), parameters, data, nested, as_sent: None };
    if let Some(data) = sent {
        if IrregularData::new(data.clone(), "").is_none() {
            return Err(MessageError::Json { name: tensor.name });
        }
        tensor.as_sent_mut().data = Some(data);
    }
    let shape: Option<_> = sent_shape.iter().map(|&dimension| usize::try_from(dimension).ok()).collect();
    tensor.shape = if let Some(shape) = shape {
        shape
    } else {
        let limited =
            |&dimension: &i128| i64::try_from(dimension).unwrap_or(if dimension < 0 { i64::MIN } else { i64::MAX });
        let sent_shape: Vec<i64> = sent_shape.iter().map(limited).collect();
        let resolved = tensor.resolve_shape(&sent_shape);
        tensor.as_sent_mut().shape = Some(sent_shape);
        if json { resolved.unwrap_or_else(|_| vec![tensor.len()]) } else { resolved? }
    };
    if json {
        return Ok(tensor);
    }
    // One string may have any shape: the original's manual answers with the length of a document as its shape.
    if tensor.datatype == Datatype::Bytes && tensor.len() == 1 {
        return Ok(tensor);
    }
    tensor.check()?;
    Ok(tensor)
}

fn decode_elements(mut bytes: Bytes, count: usize) -> Option<BytesElements> {
    let offsets_size = count.checked_add(1)?.checked_mul(4)?;
    if offsets_size > bytes.len() {
        return None;
    }
    let offsets = bytes.split_to(offsets_size);
    let offset = |index: usize| {
        let at = 4 * index;
        offsets[at..at + 4].try_into().map_or(usize::MAX, |four| u32::from_le_bytes(four) as usize)
    };
    let spans = (0..count).map(|index| offset(index)..offset(index + 1)).collect();
    BytesElements::new(bytes, spans)
}
