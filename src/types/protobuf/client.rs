//! The client's side: writes requests and reads responses.

use bytes::Bytes;
use serde_json::Map;

use super::reader::{Input, PartCounter};
use super::wire::{Cursor, field_len, put_field};
use super::writer::{MessageChunks, Output, is_raw_only};
use super::{ReadError, parameters};
use crate::types::{InferenceRequest, InferenceResponse, Parameters, RequestedOutput, Tensor, TensorError, TensorRule};

/// Appends a `ModelInferRequest` to `buffer`, and returns the chunks to send one after another. Large tensors are separate
/// chunks, which are not copied.
///
/// With `raw`, or if an input has a datatype without typed contents, the data of all inputs is in `raw_input_contents`, and
/// the data of the response is raw, too. Parameters that have no form on the wire are omitted.
///
/// # Errors
///
/// Fails if a BYTES element is too long for the raw form, or if the data of an input has no form but JSON.
pub fn write_request(
    model_name: &str,
    model_version: Option<&str>,
    request: &InferenceRequest,
    raw: bool,
    buffer: Vec<u8>,
) -> Result<Vec<Bytes>, TensorError> {
    let inputs: Vec<_> = request.inputs.iter().map(Tensor::text_as_element).collect();
    let raw = raw || request.inputs.iter().any(|input| is_raw_only(input.datatype));
    let mut chunks = MessageChunks { done: Vec::new(), open: buffer };
    for (number, text) in [(1, model_name), (2, model_version.unwrap_or_default()), (3, &request.id)] {
        if !text.is_empty() {
            put_text(&mut chunks.open, number, text);
        }
    }
    parameters::write(&mut chunks.open, 4, &request.parameters);
    let mut raws = Vec::new();
    for tensor in &inputs {
        let input = Output::new(tensor, raw)?;
        put_field(&mut chunks.open, 5, input.len);
        input.write(tensor, &mut chunks);
        raws.extend(input.raw);
    }
    for RequestedOutput { name, parameters } in &request.outputs {
        put_field(&mut chunks.open, 6, field_len(1, name.len()) + parameters::len(2, parameters));
        put_text(&mut chunks.open, 1, name);
        parameters::write(&mut chunks.open, 2, parameters);
    }
    for raw in raws {
        put_field(&mut chunks.open, 7, raw.len());
        chunks.push(&raw);
    }
    Ok(chunks.finish())
}

fn put_text(buffer: &mut Vec<u8>, number: u32, text: &str) {
    put_field(buffer, number, text.len());
    buffer.extend_from_slice(text.as_bytes());
}

/// Reads a `ModelInferResponse`. Tensors are slices of it if their elements have the same form on the wire as in memory.
///
/// # Errors
///
/// Fails with the position and the reason.
pub fn read_response(message: &Bytes) -> Result<InferenceResponse, ReadError> {
    let mut response = InferenceResponse::default();
    let mut of_response = Map::new();
    let (mut outputs, mut raw) = (Vec::new(), Vec::new());
    let mut counted = PartCounter(0);
    let mut fields = Cursor::new(message, 0);
    while let Some(field) = fields.field()? {
        match field.number {
            1 => field.text()?.clone_into(&mut response.model_name),
            2 => response.model_version = Some(field.text()?.to_owned()).filter(|version| !version.is_empty()),
            3 => field.text()?.clone_into(&mut response.id),
            4 => counted.parameter(&field, &mut of_response)?,
            5 => {
                counted.add()?;
                outputs.push(Input::read(&field, &mut counted)?);
            }
            6 => {
                counted.add()?;
                raw.push(message.slice_ref(field.bytes()?));
            }
            _ => {}
        }
    }
    response.parameters = Parameters::from(of_response);
    let (found, wanted) = (raw.len(), outputs.len());
    let mut raw = raw.into_iter();
    for (index, output) in outputs.into_iter().enumerate() {
        let tensor = output.tensor(message, index, found > 0, &mut || raw.next(), TensorRule::AsSent)?;
        response.outputs.push(tensor.ok_or(ReadError::RawCount { found, wanted })?);
    }
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::protobuf::{ResponseEncoder, read_request};
    use crate::types::{BytesElements, Datatype, TensorData};
    use half::f16;
    use serde_json::json;

    fn tensors() -> Vec<Tensor> {
        let texts = TensorData::Variable(["a", "bc"].iter().collect::<BytesElements>());
        let (name, datatype, shape) = ("t".to_owned(), Datatype::Bytes, vec![2, 1]);
        let mut numbers = Tensor::from_elements("n", vec![2, 1], &[-1_i64, 300]).unwrap();
        numbers.parameters = Parameters::with_content_type("np");
        // Long enough to be a separate chunk.
        let long = Tensor::from_elements("l", vec![2, 1000], &[0.5_f64; 2000]).unwrap();
        vec![
            numbers,
            Tensor { name, datatype, shape, parameters: Parameters::new(), data: texts, nested: false, as_sent: None },
            long,
        ]
    }

    #[test]
    fn written_requests_are_read_by_the_server() {
        let request = InferenceRequest {
            id: "i".to_owned(),
            parameters: Map::from_iter([("k".to_owned(), json!(7))]).into(),
            inputs: tensors(),
            outputs: vec![RequestedOutput { name: "o".to_owned(), parameters: Parameters::with_content_type("np") }],
            ..InferenceRequest::default()
        };
        for raw in [false, true] {
            let message = write_request("m", Some("v"), &request, raw, Vec::new()).unwrap().concat();
            let read = read_request(&message.into()).unwrap();
            assert_eq!((read.model_name.as_str(), read.model_version.as_deref(), read.raw), ("m", Some("v"), raw));
            assert_eq!((&read.request.id, &read.request.parameters), (&request.id, &request.parameters));
            assert_eq!((&read.request.inputs, &read.request.outputs), (&request.inputs, &request.outputs));
        }
        let halves = Tensor::from_elements("h", vec![1, 1], &[f16::ONE]).unwrap();
        let request = InferenceRequest { inputs: vec![halves], ..InferenceRequest::default() };
        let message = write_request("m", None, &request, false, Vec::new()).unwrap().concat();
        assert!(read_request(&message.into()).unwrap().raw, "FP16 has no typed contents");
    }

    #[test]
    fn responses_of_the_server_are_read() {
        let response = InferenceResponse {
            model_name: "m".to_owned(),
            id: "i".to_owned(),
            parameters: Map::from_iter([("k".to_owned(), json!("v"))]).into(),
            outputs: tensors(),
            ..InferenceResponse::default()
        };
        for raw in [false, true] {
            let message: Bytes = ResponseEncoder::new(&response, raw).unwrap().write(Vec::new()).concat().into();
            let read = read_response(&message).unwrap();
            assert_eq!((read.model_name.as_str(), read.model_version, read.id.as_str()), ("m", None, "i"));
            assert_eq!((&read.parameters, &read.outputs), (&response.parameters, &response.outputs));
        }
        assert!(read_response(&Bytes::from_static(b"\x0a\x05ab")).is_err());
    }
}
