//! Answers to JSON.

use bytemuck::Pod;
use half::{bf16, f16};
use serde::Serialize;

use crate::types::{BytesElements, Datatype, InferenceResponse, Parameters, Tensor, TensorData};

/// Why an answer has no JSON form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// JSON is text, so bytes must be UTF-8.
    #[error("output `{output}`: element {index} is not UTF-8, which JSON needs; encode it as base64")]
    NotUtf8 { output: String, index: usize },
}

/// Writes an answer as compact JSON.
///
/// Keys come in the original's order. Floats are the shortest text that reads back as the same value of their own type;
/// NaN and infinities are `null`. A parameter that is `null` is left out, and so is an absent version.
///
/// # Errors
///
/// Fails when a BYTES element is not UTF-8.
pub fn write_response(response: &InferenceResponse) -> Result<Vec<u8>, WriteError> {
    let mut text = Vec::with_capacity(256 + response.outputs.iter().map(text_size).sum::<usize>());
    text.extend_from_slice(b"{\"model_name\":");
    write_value(&mut text, &response.model_name);
    if let Some(version) = &response.model_version {
        text.extend_from_slice(b",\"model_version\":");
        write_value(&mut text, version);
    }
    text.extend_from_slice(b",\"id\":");
    write_value(&mut text, &response.id);
    text.extend_from_slice(b",\"parameters\":");
    write_parameters(&mut text, &response.parameters);
    text.extend_from_slice(b",\"outputs\":[");
    for (index, output) in response.outputs.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        write_tensor(&mut text, output)?;
    }
    text.extend_from_slice(b"]}");
    Ok(text)
}

/// A guess at the text's length that rarely needs a second allocation.
fn text_size(tensor: &Tensor) -> usize {
    64 + match &tensor.data {
        TensorData::Fixed(bytes) => bytes.len() * 3,
        TensorData::Variable(elements) => elements.iter().map(|element| element.len() + 4).sum(),
    }
}

fn write_tensor(text: &mut Vec<u8>, tensor: &Tensor) -> Result<(), WriteError> {
    text.extend_from_slice(b"{\"name\":");
    write_value(text, &tensor.name);
    text.extend_from_slice(b",\"shape\":[");
    let mut digits = itoa::Buffer::new();
    separated(text, &tensor.shape, |text, &dimension| text.extend_from_slice(digits.format(dimension).as_bytes()));
    text.extend_from_slice(b"],\"datatype\":\"");
    text.extend_from_slice(tensor.datatype.name().as_bytes());
    text.push(b'"');
    if !tensor.parameters.is_empty() {
        text.extend_from_slice(b",\"parameters\":");
        write_parameters(text, &tensor.parameters);
    }
    text.extend_from_slice(b",\"data\":[");
    match &tensor.data {
        TensorData::Variable(elements) => write_bytes(text, elements, &tensor.name)?,
        TensorData::Fixed(bytes) => write_numbers(text, bytes, tensor.datatype),
    }
    text.extend_from_slice(b"]}");
    Ok(())
}

fn write_numbers(text: &mut Vec<u8>, bytes: &[u8], datatype: Datatype) {
    match datatype {
        Datatype::Bool => separated(text, bytes, |text, &byte| {
            text.extend_from_slice(if byte == 0 { b"false" } else { b"true" });
        }),
        Datatype::Uint8 => write_integers::<u8>(text, bytes),
        Datatype::Uint16 => write_integers::<u16>(text, bytes),
        Datatype::Uint32 => write_integers::<u32>(text, bytes),
        Datatype::Uint64 => write_integers::<u64>(text, bytes),
        Datatype::Int8 => write_integers::<i8>(text, bytes),
        Datatype::Int16 => write_integers::<i16>(text, bytes),
        Datatype::Int32 => write_integers::<i32>(text, bytes),
        Datatype::Int64 => write_integers::<i64>(text, bytes),
        Datatype::Fp16 => write_floats::<f16, f32>(text, bytes, f16::to_f32),
        Datatype::Bf16 => write_floats::<bf16, f32>(text, bytes, bf16::to_f32),
        Datatype::Fp32 => write_floats::<f32, f32>(text, bytes, |value| value),
        Datatype::Fp64 => write_floats::<f64, f64>(text, bytes, |value| value),
        // A BYTES tensor's elements are never `Fixed`.
        Datatype::Bytes => {}
    }
}

fn write_integers<T: Pod + itoa::Integer>(text: &mut Vec<u8>, bytes: &[u8]) {
    let mut digits = itoa::Buffer::new();
    separated(text, numbers::<T>(bytes), |text, value| {
        text.extend_from_slice(digits.format(value).as_bytes());
    });
}

fn write_floats<T: Pod, F: zmij::Float + Into<f64> + Copy>(text: &mut Vec<u8>, bytes: &[u8], widen: impl Fn(T) -> F) {
    let mut digits = zmij::Buffer::new();
    separated(text, numbers::<T>(bytes), |text, value| {
        let value = widen(value);
        if Into::<f64>::into(value).is_finite() {
            text.extend_from_slice(digits.format_finite(value).as_bytes());
        } else {
            text.extend_from_slice(b"null");
        }
    });
}

/// Iterates over the numbers of a buffer of any alignment.
fn numbers<T: Pod>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

fn write_bytes(text: &mut Vec<u8>, elements: &BytesElements, output: &str) -> Result<(), WriteError> {
    for (index, element) in elements.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        let element =
            std::str::from_utf8(element).map_err(|_| WriteError::NotUtf8 { output: output.to_owned(), index })?;
        write_value(text, element);
    }
    Ok(())
}

/// Parameters without those that are `null`.
fn write_parameters(text: &mut Vec<u8>, parameters: &Parameters) {
    text.push(b'{');
    let present = parameters.others.iter().filter(|(_, value)| !value.is_null());
    if let Some(content_type) = parameters.content_type() {
        text.extend_from_slice(b"\"content_type\":");
        write_value(text, content_type);
        if present.clone().next().is_some() {
            text.push(b',');
        }
    }
    separated(text, present, |text, (key, value)| {
        write_value(text, key);
        text.push(b':');
        write_value(text, value);
    });
    text.push(b'}');
}

/// Writes items with commas between them.
#[inline]
fn separated<I: IntoIterator>(text: &mut Vec<u8>, items: I, mut write: impl FnMut(&mut Vec<u8>, I::Item)) {
    let mut items = items.into_iter();
    if let Some(first) = items.next() {
        write(text, first);
    }
    for item in items {
        text.push(b',');
        write(text, item);
    }
}

fn write_value<T: Serialize + ?Sized>(text: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(text, value).expect("strings and JSON values always serialise into memory");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::json::read_request;
    use proptest::prelude::*;

    fn response(outputs: Vec<Tensor>) -> InferenceResponse {
        InferenceResponse { model_name: "m".to_owned(), id: "i".to_owned(), outputs, ..InferenceResponse::default() }
    }

    fn text(response: &InferenceResponse) -> String {
        String::from_utf8(write_response(response).unwrap()).unwrap()
    }

    #[test]
    fn keys_come_in_the_original_order() {
        let mut tensor = Tensor::from_elements("total", vec![1, 1], &[6_i64]).unwrap();
        tensor.parameters = Parameters::with_content_type("np");
        let mut response = response(vec![tensor]);
        response.model_version = Some("v1.0".to_owned());
        response.parameters = serde_json::from_str(r#"{"other":1,"gone":null,"o":{"a":null}}"#).unwrap();
        assert_eq!(
            text(&response),
            r#"{"model_name":"m","model_version":"v1.0","id":"i","parameters":{"other":1,"o":{"a":null}},"outputs":[{"name":"total","shape":[1,1],"datatype":"INT64","parameters":{"content_type":"np"},"data":[6]}]}"#
        );
    }

    #[test]
    fn floats_are_the_shortest_of_their_own_type() {
        let numbers = [1.1_f32, 0.0, -0.0, 1e20, f32::NAN, f32::INFINITY, f32::MIN_POSITIVE];
        let tensor = Tensor::from_elements("x", vec![7], &numbers).unwrap();
        let text = text(&response(vec![tensor]));
        assert!(text.contains(r#""data":[1.1,0.0,-0.0,1e+20,null,null,1.1754944e-38]"#), "{text}");
        let tensor = Tensor::from_elements("x", vec![2], &[f16::from_f32(0.1), f16::MAX]).unwrap();
        let text = self::text(&response(vec![tensor]));
        assert!(text.contains(r#""data":[0.099975586,65504.0]"#), "{text}");
    }

    #[test]
    fn bytes_are_text_or_an_error() {
        let tensor = |elements: &[&[u8]]| Tensor {
            name: "x".to_owned(),
            datatype: Datatype::Bytes,
            shape: vec![elements.len()],
            parameters: Parameters::new(),
            data: TensorData::Variable(elements.iter().collect()),
        };
        assert!(text(&response(vec![tensor(&[b"a\"", "é".as_bytes()])])).contains(r#""data":["a\"","é"]"#));
        let error = write_response(&response(vec![tensor(&[b"a", b"\xff"])])).unwrap_err();
        assert_eq!(error.to_string(), "output `x`: element 1 is not UTF-8, which JSON needs; encode it as base64");
    }

    fn reread(tensor: &Tensor) -> Tensor {
        let text = text(&response(vec![tensor.clone()]));
        let request = text.replace("\"outputs\"", "\"inputs\"");
        read_request(request.as_bytes()).unwrap().0.inputs.remove(0)
    }

    proptest! {
        #[test]
        fn fp32_reads_back(values in proptest::collection::vec(any::<f32>().prop_filter("finite", |v| v.is_finite()), 0..40)) {
            let tensor = Tensor::from_elements("x", vec![values.len()], &values).unwrap();
            prop_assert_eq!(reread(&tensor), tensor);
        }

        #[test]
        fn fp16_reads_back(bits in proptest::collection::vec(any::<u16>(), 0..40)) {
            let values: Vec<f16> = bits.into_iter().map(f16::from_bits).filter(|v| v.is_finite()).collect();
            let tensor = Tensor::from_elements("x", vec![values.len()], &values).unwrap();
            prop_assert_eq!(reread(&tensor), tensor);
        }

        #[test]
        fn integers_read_back(values in proptest::collection::vec(any::<i64>(), 0..40), unsigned in any::<u64>()) {
            let tensor = Tensor::from_elements("x", vec![values.len()], &values).unwrap();
            prop_assert_eq!(reread(&tensor), tensor);
            let tensor = Tensor::from_elements("x", vec![1], &[unsigned]).unwrap();
            prop_assert_eq!(reread(&tensor), tensor);
        }

        #[test]
        fn text_reads_back(values in proptest::collection::vec(".*", 0..10)) {
            let elements = values.iter().map(String::as_bytes).collect();
            let tensor = Tensor {
                name: "é\"\n".to_owned(),
                datatype: Datatype::Bytes,
                shape: vec![values.len()],
                parameters: Parameters::new(),
                data: TensorData::Variable(elements),
            };
            prop_assert_eq!(reread(&tensor), tensor);
        }
    }
}
