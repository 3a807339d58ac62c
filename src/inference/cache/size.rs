//! The memory that a cached response takes.

use bytes::Bytes;
use serde_json::Value;

use crate::types::{InferenceResponse, Parameters, Tensor, TensorData};

/// The approximate memory, in bytes, that the cache itself needs for a response.
const OVERHEAD: usize = 512;

/// Estimates the memory of a response, in bytes, after [`detach`].
pub(super) fn of(response: &InferenceResponse) -> usize {
    let outputs: usize = response.outputs.iter().map(of_tensor).sum();
    let headers: usize = response.headers.iter().map(|(name, value)| 64 + name.as_str().len() + value.len()).sum();
    OVERHEAD + size_of_val(response) + outputs + headers + of_parameters(&response.parameters)
}

/// Copies tensor data out of the buffers that it borrows from, which may be as large as the whole request.
pub(super) fn detach(response: &mut InferenceResponse) {
    for output in &mut response.outputs {
        match &mut output.data {
            TensorData::Fixed(bytes) => *bytes = Bytes::copy_from_slice(bytes),
            TensorData::Variable(elements) => *elements = elements.iter().collect(),
        }
    }
}

fn of_tensor(tensor: &Tensor) -> usize {
    let spans = match &tensor.data {
        TensorData::Fixed(_) => 0,
        TensorData::Variable(elements) => elements.len() * size_of::<std::ops::Range<usize>>(),
    };
    let plain = size_of_val(tensor) + tensor.name.len() + size_of_val(&tensor.shape[..]);
    plain + tensor.byte_len() + spans + of_parameters(&tensor.parameters)
}

fn of_parameters(parameters: &Parameters) -> usize {
    let content_type = parameters.content_type().map_or(0, str::len);
    content_type + parameters.others.iter().map(|(key, value)| of_member(key, value)).sum::<usize>()
}

/// Estimates the memory of a key, a value, and their entry in the map.
fn of_member(key: &str, value: &Value) -> usize {
    48 + key.len() + of_value(value)
}

fn of_value(value: &Value) -> usize {
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(of_value).sum(),
        Value::Object(members) => members.iter().map(|(key, value)| of_member(key, value)).sum(),
    };
    size_of::<Value>() + inside
}
