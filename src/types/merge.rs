//! Merges several requests into one, and splits the response to it. Pure: no clock, no I/O.
//!
//! Requests may share a batch if they have the same [`BatchKey`]: the model then sees the same request as if one client had
//! sent all rows at once. The custom parameters of inputs, which may differ between clients, become lists with one value per
//! request. If a parameter of an output is a list with one value per request or per row, it is split again.
//!
//! Requests with different credentials do not share a batch, if the model sees them: its answer may be for their owner only.

use std::ops::Range;

use http::HeaderMap;
use serde_json::Value;

use super::{ByteReservation, InferenceRequest, InferenceResponse, Parameters, StepDepth, Tensor, TensorData};

/// The properties that requests must have in common to share a batch, serialized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchKey(Box<[u8]>);

/// The share of one request in a batch.
#[derive(Debug, Clone)]
pub struct BatchShare {
    pub key: BatchKey,
    /// The first dimension of all inputs of the request; at least 1.
    pub rows: usize,
    /// The size of all inputs, in bytes.
    pub bytes: usize,
}

/// The error for a response that cannot be split.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("output `{output}` has the shape {shape:?} and {elements} elements, expected {rows} rows, as in the batch")]
pub struct SplitError {
    output: String,
    shape: Vec<usize>,
    elements: usize,
    rows: usize,
}

impl BatchShare {
    /// Returns the share of a request in a batch, or `None` if it cannot be batched: its inputs have no rows or different
    /// numbers of rows, one is irregular, or one of their parameters is a list, which would look like the values of several requests.
    pub fn of(request: &InferenceRequest) -> Option<Self> {
        let rows = request.inputs.first()?.rows().filter(|&rows| rows > 0)?;
        let mut key = BatchKeyWriter::default();
        let mut bytes = 0;
        key.number(request.inputs.len());
        for input in &request.inputs {
            // Rows without values take no memory, so their number has no limit.
            if input.rows() != Some(rows) || input.is_empty() || input.check().is_err() {
                return None;
            }
            bytes += input.byte_len();
            key.input(input)?;
        }
        key.parameters(&request.parameters);
        // Requests of different depths do not hide each other's from the servers that they are sent to.
        key.number(StepDepth::of(&request.headers).0);
        key.number(request.credentials().count());
        for (name, value) in request.credentials() {
            key.text(name);
            key.bytes(value.as_bytes());
        }
        for output in &request.outputs {
            key.text(&output.name);
            key.parameters(&output.parameters);
        }
        Some(Self { key: BatchKey(key.0.into()), rows, bytes })
    }
}

/// Serializes a key unambiguously: everything of variable length is preceded by its length.
#[derive(Default)]
struct BatchKeyWriter(Vec<u8>);

impl BatchKeyWriter {
    fn number(&mut self, number: usize) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    fn parameters(&mut self, parameters: &Parameters) {
        if parameters.is_empty() {
            self.number(0);
            return;
        }
        let text = serde_json::to_string(parameters).expect("parameters are JSON values under texts");
        self.text(&text);
    }

    fn input(&mut self, input: &Tensor) -> Option<()> {
        self.text(&input.name);
        self.text(input.datatype.name());
        let is_text = matches!(&input.data, TensorData::Variable(elements) if elements.is_text());
        self.number(usize::from(is_text));
        self.number(usize::from(input.nested));
        self.number(input.shape.len());
        for &dimension in &input.shape[1..] {
            self.number(dimension);
        }
        let Parameters { content_type, others, .. } = &input.parameters;
        self.number(usize::from(content_type.is_some()));
        self.text(content_type.as_deref().unwrap_or_default());
        self.number(others.len());
        for (key, value) in others.iter() {
            if value.is_array() {
                return None;
            }
            self.text(key);
        }
        Some(())
    }
}

/// Merges requests that have the same key into one. Their values are in the order of the requests.
///
/// The merged request has no id, and only those headers that are identical in all requests, so that a model does not mistake
/// one client for another.
///
/// Returns `None` if the keys differ.
pub fn merge(requests: &[&InferenceRequest]) -> Option<InferenceRequest> {
    let first = requests.first()?;
    let merge_input = |(index, input): (usize, &Tensor)| {
        let parts: Vec<&Tensor> = requests.iter().map(|request| request.inputs.get(index)).collect::<Option<_>>()?;
        let mut merged = Tensor::concat_rows(&parts)?;
        if parts.len() > 1 {
            for (key, value) in merged.parameters.others.written().into_iter().flatten() {
                let values = parts.iter().map(|part| part.parameters.others.get(key).cloned());
                *value = Value::Array(values.collect::<Option<_>>()?);
            }
        }
        debug_assert_eq!(merged.name, input.name);
        Some(merged)
    };
    Some(InferenceRequest {
        reservation: ByteReservation::default(),
        id: String::new(),
        parameters: first.parameters.clone(),
        headers: common_headers(requests).into(),
        inputs: first.inputs.iter().enumerate().map(merge_input).collect::<Option<_>>()?,
        outputs: first.outputs.clone(),
        has_outputs: first.has_outputs,
        from_grpc: requests.iter().all(|request| request.from_grpc),
        // The other requests of the batch must not delay an urgent one.
        priority: requests.iter().map(|request| request.priority).min().unwrap_or_default(),
        trace: None,
    })
}

fn common_headers(requests: &[&InferenceRequest]) -> HeaderMap {
    let Some((first, others)) = requests.split_first() else { return HeaderMap::new() };
    let mut common = HeaderMap::new();
    for name in first.headers.keys() {
        let values = || first.headers.get_all(name);
        if others.iter().all(|other| other.headers.get_all(name) == values()) {
            for value in values() {
                common.append(name, value.clone());
            }
        }
    }
    common
}

/// Splits the response to a batch into one response per request. `rows` is the number of rows of each request.
///
/// # Errors
///
/// Fails if an output does not have one row for each row of the batch.
pub fn split(response: &InferenceResponse, rows: &[usize]) -> Result<Vec<InferenceResponse>, SplitError> {
    let all = rows.iter().sum();
    let mut start = 0;
    let responses = rows.iter().enumerate().map(|(index, &rows_of_one)| {
        let slice = BatchSlice { index, requests: rows.len(), rows: start..start + rows_of_one, all };
        start += rows_of_one;
        let part = |output: &Tensor| {
            let whole = output.rows() == Some(all);
            let mut part = whole.then(|| output.slice_rows(slice.rows.clone())).flatten().ok_or_else(|| {
                let (output, shape, elements) = (output.name.clone(), output.shape.clone(), output.len());
                SplitError { output, shape, elements, rows: all }
            })?;
            slice.restrict(&mut part.parameters);
            part.make_flat();
            Ok(part)
        };
        Ok(InferenceResponse {
            outputs: response.outputs.iter().map(part).collect::<Result<_, _>>()?,
            parameters: response.parameters.clone(),
            headers: response.headers.clone(),
            ..InferenceResponse::default()
        })
    });
    responses.collect()
}

/// Treats the response to a single request as [`split`] treats those of several, so that a response does not depend on
/// whether the request was batched.
pub fn split_one(response: &mut InferenceResponse, rows: usize) {
    let slice = BatchSlice { index: 0, requests: 1, rows: 0..rows, all: rows };
    for output in &mut response.outputs {
        slice.restrict(&mut output.parameters);
        output.make_flat();
    }
}

/// The position of a request within a batch.
struct BatchSlice {
    index: usize,
    requests: usize,
    rows: Range<usize>,
    /// The rows of the whole batch.
    all: usize,
}

impl BatchSlice {
    /// Replaces each list by the part that belongs to the request.
    fn restrict(&self, parameters: &mut Parameters) {
        let Some(others) = parameters.others.written() else { return };
        others.retain(|_, value| match value {
            Value::Array(list) => match self.part(list) {
                ListPart::Whole => true,
                ListPart::Own(part) => {
                    *value = part;
                    true
                }
                ListPart::Absent => false,
            },
            _ => true,
        });
    }

    fn part(&self, list: &[Value]) -> ListPart {
        let length = list.len();
        if length == 0 || (length > self.requests && length != self.all) {
            ListPart::Whole
        } else if length <= self.requests {
            // A list that is too short holds the values of the first requests, as the original's manual shows.
            list.get(self.index).map_or(ListPart::Absent, |value| ListPart::Own(value.clone()))
        } else if self.rows.len() == 1 {
            ListPart::Own(list[self.rows.start].clone())
        } else {
            ListPart::Own(Value::Array(list[self.rows.clone()].to_vec()))
        }
    }
}

/// The part of a list that belongs to a request.
enum ListPart {
    Own(Value),
    /// The list has neither one value per request nor one per row, so every request gets all of it.
    Whole,
    Absent,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(headers: &[(&'static str, String)], output: &str) -> InferenceRequest {
        let mut request = InferenceRequest {
            inputs: vec![Tensor::from_elements("x", vec![1], &[1_i64]).unwrap()],
            outputs: vec![crate::types::RequestedOutput { name: output.to_owned(), parameters: Parameters::new() }],
            ..InferenceRequest::default()
        };
        for (name, value) in headers {
            request.headers.append(*name, value.parse().unwrap());
        }
        request
    }

    proptest! {
        #[test]
        fn requests_share_a_batch_only_with_the_same_credentials(
            one in headers(), two in headers(), outputs in ("(authorization|y)", "(authorization|y)"),
        ) {
            let (first, second) = (request(&one, &outputs.0), request(&two, &outputs.1));
            let credentials = |request: &InferenceRequest| {
                request.credentials().map(|(name, value)| (name, value.clone())).collect::<Vec<_>>()
            };
            let is_same = credentials(&first) == credentials(&second) && outputs.0 == outputs.1;
            let share = |request: &InferenceRequest| BatchShare::of(request).unwrap().key;
            prop_assert_eq!(share(&first) == share(&second), is_same);
            if is_same {
                let merged = merge(&[&first, &second]).unwrap();
                prop_assert_eq!(credentials(&merged), credentials(&first), "the model sees them");
            }
        }
    }

    fn headers() -> impl Strategy<Value = Vec<(&'static str, String)>> {
        let name = prop_oneof![Just("authorization"), Just("cookie"), Just("x-request-id")];
        proptest::collection::vec((name, "(a|b|)"), 0..3)
    }
}
