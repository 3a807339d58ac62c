//! Requests of the parent, whose tensors are in the tail or in the memory file, and which may be read in pieces.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;

use crate::runtimes::workers::frame::Frame;
#[cfg(fuzzing)]
use crate::runtimes::workers::memory_file::AnswerRegion;
use crate::runtimes::workers::memory_file::{MAX_INPUT_BYTES, MemoryError, MemoryFile, Region};
use crate::runtimes::workers::message::{self, MessageError, ReceivedTensor, Sender};
use crate::types::{InferenceRequest, Parameters, RequestedOutput, Tensor};

/// How many bytes of rows are read and evaluated at a time: few enough for the cache of a core.
const PIECE_BYTES: usize = 160 << 10;
/// The rows of a piece are a multiple of this, so that each piece is aligned.
const PIECE_ROWS: usize = 8;

/// The head of `predict`.
#[derive(Deserialize)]
struct PredictHead<'a> {
    model: u64,
    #[serde(default)]
    id: String,
    #[serde(default)]
    parameters: Parameters,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(borrow, default)]
    inputs: Vec<ReceivedTensor<'a>>,
    #[serde(default)]
    outputs: Option<Vec<OutputHead>>,
    #[serde(default)]
    grpc: bool,
    /// Where the outputs may be written.
    #[serde(default)]
    answer: Option<Region>,
}

#[derive(Deserialize)]
struct OutputHead {
    name: String,
    #[serde(default)]
    parameters: Parameters,
}

/// A request whose head has been read, and whose tensors have not.
pub(super) struct ReceivedRequest<'a> {
    head: PredictHead<'a>,
    tail: Bytes,
}

/// The rows of a request that are evaluated one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pieces {
    rows: usize,
    /// The rows of each piece but the last.
    step: usize,
}

impl Pieces {
    pub(super) fn ranges(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let Self { rows, step } = *self;
        (0..rows).step_by(step).map(move |start| start..rows.min(start.saturating_add(step)))
    }
}

impl<'a> ReceivedRequest<'a> {
    /// Reads the head of a `predict`.
    ///
    /// # Errors
    ///
    /// Fails if it is not one, or if its regions of the memory file are too large or overlap.
    pub(super) fn read(frame: &'a Frame) -> Result<Self, MessageError> {
        let head: PredictHead<'_> = frame.read_head()?;
        check_regions(&head.inputs, head.answer)?;
        Ok(Self { head, tail: frame.tail.clone() })
    }

    /// Returns the number of the model.
    pub(super) const fn model(&self) -> u64 {
        self.head.model
    }

    /// Returns where the outputs may be written.
    pub(super) const fn answer(&self) -> Option<Region> {
        self.head.answer
    }

    /// Returns how many bytes of the memory file [`Self::whole`] copies.
    pub(super) fn copied_bytes(&self) -> usize {
        let sizes = self.head.inputs.iter().filter_map(|input| usize::try_from(input.region()?.size).ok());
        sizes.fold(0, usize::saturating_add)
    }

    /// Reads all tensors.
    ///
    /// # Errors
    ///
    /// Fails if the head does not describe the tail or the memory file.
    pub(super) fn whole(mut self, memory: Option<&MemoryFile>) -> Result<InferenceRequest, MessageError> {
        let mut tail = std::mem::take(&mut self.tail);
        let inputs = std::mem::take(&mut self.head.inputs).into_iter();
        let inputs = inputs.map(|input| read_input(input, memory, &mut tail)).collect::<Result<_, _>>()?;
        Ok(self.with(inputs))
    }

    /// Divides a long request into pieces. Returns `None` if it is short, or if not all inputs are numbers in the memory file with as many
    /// rows, and without values of their own in parameters.
    pub(super) fn pieces(&self) -> Option<Pieces> {
        let mut rows = None;
        let mut row_bytes = 0_usize;
        for input in &self.head.inputs {
            let (of_input, bytes) = input.numeric_rows()?;
            if *rows.get_or_insert(of_input) != of_input {
                return None;
            }
            row_bytes = row_bytes.checked_add(bytes)?;
        }
        let (rows, step) = (rows?, PIECE_BYTES / row_bytes.max(1) / PIECE_ROWS * PIECE_ROWS);
        let step = step.max(PIECE_ROWS);
        (rows > step).then_some(Pieces { rows, step })
    }

    /// Reads some rows of all tensors.
    ///
    /// # Errors
    ///
    /// Fails if they are not in the memory file.
    pub(super) fn piece(&self, rows: &Range<usize>, memory: &MemoryFile) -> Result<InferenceRequest, MessageError> {
        let inputs = self.head.inputs.iter().map(|input| {
            let (_, bytes) = input.numeric_rows().unwrap_or_default();
            read_input(input.slice(rows, bytes), Some(memory), &mut Bytes::new())
        });
        Ok(self.with(inputs.collect::<Result<_, _>>()?))
    }

    /// Returns the request with these inputs.
    fn with(&self, inputs: Vec<Tensor>) -> InferenceRequest {
        let PredictHead { id, parameters, headers, outputs, grpc, .. } = &self.head;
        let headers = headers.iter().filter_map(|(name, value)| {
            Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value.as_bytes()).ok()?))
        });
        let requested = |OutputHead { name, parameters }: &OutputHead| RequestedOutput {
            name: name.clone(),
            parameters: parameters.clone(),
        };
        InferenceRequest {
            id: id.clone(),
            parameters: parameters.clone(),
            headers: headers.collect::<HeaderMap>().into(),
            inputs,
            outputs: outputs.iter().flatten().map(requested).collect(),
            has_outputs: outputs.is_some(),
            from_grpc: *grpc,
            ..InferenceRequest::default()
        }
    }
}

/// Reads a tensor from the memory file or the tail.
fn read_input(
    input: ReceivedTensor<'_>,
    memory: Option<&MemoryFile>,
    tail: &mut Bytes,
) -> Result<Tensor, MessageError> {
    let read = |region| memory.ok_or(MemoryError::NoFile)?.read(region);
    let read = input.region().map(read).transpose().map_err(|source| in_memory(&input, source))?;
    message::decode_tensor_from(input, Sender::Server, read, tail)
}

/// Checks what inputs take of the memory file, and that the answer does not overwrite them.
fn check_regions(inputs: &[ReceivedTensor<'_>], answer: Option<Region>) -> Result<(), MessageError> {
    let mut total = 0_u64;
    for input in inputs {
        let Some(region) = input.region() else { continue };
        total = total.saturating_add(region.size);
        if total > MAX_INPUT_BYTES {
            return Err(in_memory(input, MemoryError::TooLong));
        }
        if answer.is_some_and(|answer| answer.overlaps(region)) {
            return Err(in_memory(input, MemoryError::Overlap { offset: region.offset }));
        }
    }
    Ok(())
}

fn in_memory(input: &ReceivedTensor<'_>, source: MemoryError) -> MessageError {
    MessageError::Memory { name: input.name().to_owned(), source }
}

/// Reads a frame as a request, whole and in pieces, with a memory file that is shorter than many of its regions.
#[cfg(fuzzing)]
pub(super) fn read_for_fuzzing(frame: &Frame) {
    let memory = MemoryFile::for_fuzzing();
    let Ok(request) = ReceivedRequest::read(frame) else { return };
    if let Some(pieces) = request.pieces() {
        for rows in pieces.ranges().take(4) {
            drop(request.piece(&rows, memory));
        }
    }
    if let Some(region) = request.answer() {
        drop(AnswerRegion::new(memory, region).map(|mut region| region.put(9, &[Bytes::from_static(b"an answer")])));
    }
    drop(request.whole(Some(memory)));
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::runtimes::workers::frame::FrameKind;

    fn pieces(inputs: &Value) -> Option<Pieces> {
        let head = json!({"model": 1, "inputs": inputs}).to_string();
        let frame = Frame { kind: FrameKind::Predict, id: 1, head: head.into(), tail: Bytes::new() };
        ReceivedRequest::read(&frame).unwrap().pieces()
    }

    #[test]
    fn long_requests_of_numbers_in_memory_are_divided() {
        let matrix =
            |rows: usize| json!({"name": "x", "datatype": "FP32", "shape": [rows, 20], "size": 80 * rows, "offset": 0});
        assert_eq!(pieces(&json!([matrix(2048)])), None, "one piece");
        let found = pieces(&json!([matrix(5000)])).unwrap();
        assert_eq!(found, Pieces { rows: 5000, step: 2048 });
        assert_eq!(found.ranges().collect::<Vec<_>>(), [0..2048, 2048..4096, 4096..5000]);
        let columns: Vec<Value> = (0..20)
            .map(|_| json!({"name": "x", "datatype": "FP32", "shape": [5000, 1], "size": 20_000, "offset": 0}))
            .collect();
        assert_eq!(pieces(&json!(columns)).unwrap(), found);
        let wide = json!({"name": "x", "datatype": "UINT8", "shape": [100, 1 << 20], "size": 100 << 20, "offset": 0});
        assert_eq!(pieces(&json!([wide])).unwrap().step, 8);
        for (field, value) in [
            ("datatype", json!("BYTES")),
            ("datatype", json!("INT9")),
            ("shape", json!([])),
            ("shape", json!([4999, 20])),
            ("shape", json!([-1, 20])),
            ("shape", json!([5000, u64::MAX])),
            ("json", json!(true)),
            ("sent", json!(4)),
            ("offset", Value::Null),
            ("parameters", json!({"unit": ["cm"]})),
        ] {
            let mut other = matrix(5000);
            other[field] = value;
            assert_eq!(pieces(&json!([matrix(5000), other])), None, "{other}");
        }
        assert_eq!(pieces(&json!([matrix(5000), matrix(4000)])), None);
        assert_eq!(pieces(&json!([])), None);
    }
}
