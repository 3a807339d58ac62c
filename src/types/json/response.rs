//! Reads responses from JSON, for clients.

use bytes::Bytes;

use super::ReadError;
use super::cursor::Cursor;
use super::limits::JsonLimits;
use super::reader::{TensorReader, optional, parameters, string, want};
use crate::types::{InferenceResponse, TensorRule};

/// Reads a response. `binary` is the data after the JSON, or `None` if the whole body is JSON.
///
/// Tensors with binary data are slices of it. Unknown keys are ignored, and a missing name, version or id is empty.
///
/// # Errors
///
/// Fails with the position and the reason.
pub fn read_response(text: &[u8], binary: Option<Bytes>) -> Result<InferenceResponse, ReadError> {
    let mut cursor = Cursor::of_document(text)?;
    let mut tensors = TensorReader::new(binary, JsonLimits::of_responses(), TensorRule::AsSent);
    let mut response = InferenceResponse::default();
    let mut outputs = None;
    want(&mut cursor, b'{', || "response".to_owned(), "a JSON object")?;
    cursor.object::<ReadError>(|cursor, key| {
        let text = |cursor: &mut Cursor<'_>, path: &str| optional(cursor, |cursor| string(cursor, || path.to_owned()));
        match key {
            b"model_name" => response.model_name = text(cursor, "model_name")?.unwrap_or_default(),
            b"model_version" => response.model_version = text(cursor, "model_version")?,
            b"id" => response.id = text(cursor, "id")?.unwrap_or_default(),
            b"parameters" => {
                response.parameters = parameters(cursor, &mut tensors.limits, || "parameters".to_owned())?;
            }
            b"outputs" => outputs = Some(tensors.read_tensors(cursor, "outputs")?),
            _ => cursor.skip_member(key)?,
        }
        Ok(())
    })?;
    if cursor.peek().is_some() {
        return Err(cursor.syntax("the end of the response"));
    }
    response.outputs = outputs.ok_or_else(|| ReadError::Missing { path: "outputs".to_owned() })?;
    tensors.binary.finish()?;
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::json::{BinaryOutputs, WriteOptions, write_response};
    use crate::types::{BytesElements, Datatype, Parameters, Tensor, TensorData};

    fn response() -> InferenceResponse {
        let texts = TensorData::Variable(["a", "\u{e9}\n"].iter().collect::<BytesElements>().with_text(true));
        let text = Tensor {
            name: "text".to_owned(),
            datatype: Datatype::Bytes,
            shape: vec![2, 1],
            parameters: Parameters::with_content_type("str"),
            data: texts,
            nested: false,
            as_sent: None,
        };
        InferenceResponse {
            model_name: "m".to_owned(),
            model_version: Some("v1".to_owned()),
            id: "i".to_owned(),
            outputs: vec![Tensor::from_elements("total", vec![2, 1], &[1.5_f32, -0.1]).unwrap(), text],
            ..InferenceResponse::default()
        }
    }

    #[test]
    fn read_response_reverses_write_response() {
        for binary in [false, true] {
            let options = WriteOptions { binary: BinaryOutputs::all(binary), ..WriteOptions::default() };
            let written = write_response(&response(), &options).unwrap();
            let bytes = binary.then(|| Bytes::from(written.binary.concat()));
            let read = read_response(&written.json, bytes).unwrap();
            let expected = response();
            assert_eq!(read.outputs, expected.outputs);
            assert_eq!((read.model_name, read.model_version, read.id), ("m".into(), Some("v1".into()), "i".into()));
        }
    }

    #[test]
    fn read_response_errors_contain_the_path() {
        let message = |text: &str| read_response(text.as_bytes(), None).unwrap_err().to_string();
        assert_eq!(message("[]"), "`response`: expected a JSON object");
        assert_eq!(message("{}"), "`outputs` is required");
        assert_eq!(message(r#"{"outputs":[]} x"#), "invalid JSON at byte 15: expected the end of the response");
        assert_eq!(
            message(r#"{"outputs":[{"name":"x","datatype":"FP32","data":[1]}]}"#),
            "`outputs[0].shape` is required"
        );
        let null = r#"{"model_name":null,"id":null,"outputs":[]}"#;
        assert_eq!(read_response(null.as_bytes(), None).unwrap().id, "");
    }
}
