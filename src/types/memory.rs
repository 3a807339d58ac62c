//! The memory that requests and responses take.

use serde_json::Value;

use super::{InferenceRequest, InferenceResponse, Parameters, RequestedOutput, Tensor};

/// The approximate memory that an allocation takes besides its content, in bytes.
const ALLOCATION: usize = 16;
/// The approximate memory of an entry in a map of parameters besides its key and value, in bytes.
const MEMBER: usize = 48 + ALLOCATION;
/// The approximate memory of a map of headers per value, besides name and value, in bytes.
const HEADER: usize = 64;

impl Tensor {
    /// Returns the memory of the tensor in bytes, with its name, shape and parameters. A buffer that is a slice of a larger one
    /// counts with its own length.
    ///
    /// Takes time in proportion to the size of the parameters, not of the data.
    pub fn memory_bytes(&self) -> usize {
        let allocations = 3 * ALLOCATION;
        let small = self.name.len() + size_of_val(&self.shape[..]) + self.parameters.heap_bytes();
        size_of::<Self>() + allocations + small + self.byte_len()
    }
}

impl Parameters {
    /// Returns the memory that the parameters take besides the struct itself, in bytes.
    fn heap_bytes(&self) -> usize {
        let content_type = self.content_type().map_or(0, str::len);
        content_type + self.others.iter().map(|(key, value)| of_member(key, value)).sum::<usize>()
    }
}

impl RequestedOutput {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + ALLOCATION + self.name.len() + self.parameters.heap_bytes()
    }
}

impl InferenceRequest {
    /// Returns the memory of the request in bytes. See [`Tensor::memory_bytes`].
    pub fn memory_bytes(&self) -> usize {
        let inputs: usize = self.inputs.iter().map(Tensor::memory_bytes).sum();
        let outputs: usize = self.outputs.iter().map(RequestedOutput::memory_bytes).sum();
        size_of::<Self>()
            + self.id.len()
            + self.parameters.heap_bytes()
            + of_headers(&self.headers)
            + inputs
            + outputs
            // Vectors grow by doubling.
            + (self.inputs.capacity() - self.inputs.len()) * size_of::<Tensor>()
            + (self.outputs.capacity() - self.outputs.len()) * size_of::<RequestedOutput>()
    }
}

impl InferenceResponse {
    /// Returns the memory of the response in bytes. See [`Tensor::memory_bytes`].
    pub fn memory_bytes(&self) -> usize {
        let outputs: usize = self.outputs.iter().map(Tensor::memory_bytes).sum();
        size_of::<Self>()
            + self.model_name.len()
            + self.model_version.as_deref().map_or(0, str::len)
            + self.id.len()
            + self.parameters.heap_bytes()
            + of_headers(&self.headers)
            + outputs
    }
}

fn of_headers(headers: &http::HeaderMap) -> usize {
    headers.iter().map(|(name, value)| HEADER + name.as_str().len() + value.len()).sum()
}

fn of_member(key: &str, value: &Value) -> usize {
    MEMBER + key.len() + of_value(value)
}

fn of_value(value: &Value) -> usize {
    let inside = match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => ALLOCATION + text.len(),
        // Vectors grow by doubling.
        Value::Array(items) => {
            let spare = (items.capacity() - items.len()) * size_of::<Value>();
            ALLOCATION + spare + items.iter().map(of_value).sum::<usize>()
        }
        Value::Object(members) => members.iter().map(|(key, value)| of_member(key, value)).sum(),
    };
    size_of::<Value>() + inside
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::json::read_request;

    fn memory(text: &str) -> usize {
        read_request(text.as_bytes(), None).unwrap().request.memory_bytes()
    }

    #[test]
    fn request_memory_counts_what_is_larger_than_its_text() {
        let empty = memory(r#"{"inputs":[]}"#);
        let numbers = vec!["1"; 1000].join(",");
        let numbers = format!(r#"{{"inputs":[{{"name":"x","shape":[-1],"datatype":"FP64","data":[{numbers}]}}]}}"#);
        let found = memory(&numbers) - empty;
        assert!((8000..9500).contains(&found), "{found}");

        let texts = vec![r#""""#; 1000].join(",");
        let texts = format!(r#"{{"inputs":[{{"name":"x","shape":[1000],"datatype":"BYTES","data":[{texts}]}}]}}"#);
        let found = memory(&texts) - empty;
        assert!((16_000..17_500).contains(&found), "each span takes 16 bytes: {found}");

        let zeros = vec!["0"; 1000].join(",");
        let found = memory(&format!(r#"{{"inputs":[],"parameters":{{"a":[{zeros}]}}}}"#)) - empty;
        assert!((72_000..75_000).contains(&found), "each value takes 72 bytes: {found}");

        let small = vec![r#"{"name":"","shape":[-1],"datatype":"FP64","data":[1]}"#; 1000].join(",");
        let found = memory(&format!(r#"{{"inputs":[{small}]}}"#)) - empty;
        assert!(found >= 1000 * (size_of::<Tensor>() + 16), "{found}");
        let body = small.len();
        assert!(found < body * 20, "{found} bytes for a body of {body}");
    }

    #[test]
    fn response_memory_counts_outputs() {
        let output = Tensor::from_elements("y", vec![1000], &[0.5_f64; 1000]).unwrap();
        let two = InferenceResponse { outputs: vec![output.clone(), output], ..InferenceResponse::default() };
        let found = two.memory_bytes() - InferenceResponse::default().memory_bytes();
        assert!((16_000..17_000).contains(&found), "{found}");
    }
}
