//! The memory that a cached response takes.

use crate::types::{BytesElements, InferenceResponse, TensorData};
use bytes::Bytes;

/// The approximate memory, in bytes, that the cache itself needs for a response.
const OVERHEAD: usize = 512;

/// Estimates the memory of a response, in bytes, after [`detach`].
pub(super) fn of(response: &InferenceResponse) -> usize {
    OVERHEAD + response.memory_bytes()
}

/// Copies tensor data out of the buffers that it borrows from, which may be as large as the whole request.
pub(super) fn detach(response: &mut InferenceResponse) {
    for output in &mut response.outputs {
        match &mut output.data {
            TensorData::Fixed(bytes) => *bytes = Bytes::copy_from_slice(bytes),
            TensorData::Variable(elements) => {
                *elements = elements.iter().collect::<BytesElements>().with_text(elements.is_text());
            }
            TensorData::Irregular(data) => data.detach(),
        }
        if let Some(as_sent) = &mut output.as_sent {
            as_sent.detach();
        }
    }
}
