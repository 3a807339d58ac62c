//! Writes responses and requests as JSON, with binary data after it.

use std::ops::Range;

use bytemuck::Pod;
use bytes::Bytes;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use super::binary::{self, BinaryOutputs};
use super::cursor::plain_length;
use super::float::{self, Float};
use crate::types::{
    BytesElements, Datatype, InferenceRequest, InferenceResponse, Parameters, Tensor, TensorData, TensorError,
};

/// The number of floats that are written at a time, which bounds the space that is reserved for them.
const FLOATS: usize = 64;

/// The representation of NaN and infinities, which JSON does not have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NonFinite {
    /// `null` for each, as in the original.
    #[default]
    Null,
    /// `"NaN"`, `"Infinity"` and `"-Infinity"`.
    String,
    /// None: the response is an error.
    Error,
}

/// How a response is written.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    pub binary: BinaryOutputs,
    pub non_finite: NonFinite,
}

/// A body that has been written: JSON, and the binary data after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonBody {
    pub json: Vec<u8>,
    /// The data of each binary tensor in its raw form, in the order of the tensors. Only BYTES are copied.
    pub binary: Vec<Bytes>,
}

/// Why a response or request cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// JSON is text, so BYTES must be UTF-8.
    #[error(
        "output `{output}`: element {index} is not UTF-8, which JSON requires; request binary data or encode it as base64"
    )]
    NotUtf8 { output: String, index: usize },
    #[error(
        "output `{output}`: element {index} is {found}, which JSON cannot represent; request binary data, or set \
         `non_finite_json` to `null` or `string`"
    )]
    NonFinite { output: String, index: usize, found: &'static str },
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

/// Writes a response as compact JSON.
///
/// Keys are in the original's order. Floats are the shortest text that reads back as the same value of their own type.
/// Parameters that are `null` are omitted, and so is an absent version.
///
/// # Errors
///
/// Fails if a BYTES element in JSON is not UTF-8, if one in binary data is too long for its prefix, or if a float is not
/// finite and `options` forbid that.
pub fn write_response(response: &InferenceResponse, options: &WriteOptions) -> Result<JsonBody, WriteError> {
    let is_json = |output: &&Tensor| !options.binary.wants(&output.name) || is_irregular(output);
    let size: usize = response.outputs.iter().filter(is_json).map(data_text_size).sum();
    let mut text = Vec::with_capacity(256 + 128 * response.outputs.len() + size);
    let mut binary = Vec::new();
    write_response_head(&mut text, response);
    for (index, output) in response.outputs.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        if options.binary.wants(&output.name) && !is_irregular(output) {
            let data = output.to_raw()?;
            write_tensor_head(&mut text, output, Some(data.len()));
            binary.push(data);
        } else {
            write_tensor_head(&mut text, output, None);
            text.extend_from_slice(b",\"data\":");
            write_data(&mut text, output, options.non_finite)?;
        }
        text.push(b'}');
    }
    text.extend_from_slice(b"]}");
    Ok(JsonBody { json: text, binary })
}

/// Writes everything of a response that precedes its outputs.
#[inline]
pub(super) fn write_response_head(text: &mut Vec<u8>, response: &InferenceResponse) {
    text.extend_from_slice(b"{\"model_name\":");
    write_text(text, &response.model_name);
    if let Some(version) = &response.model_version {
        text.extend_from_slice(b",\"model_version\":");
        write_text(text, version);
    }
    text.extend_from_slice(b",\"id\":");
    write_text(text, &response.id);
    text.extend_from_slice(b",\"parameters\":");
    write_parameters(text, &response.parameters, None);
    text.extend_from_slice(b",\"outputs\":[");
}

/// Writes a request as compact JSON, as a client sends it. With `binary`, the data of all inputs follows the JSON, and the
/// outputs are requested as binary data.
///
/// # Errors
///
/// Fails if a BYTES element in JSON is not UTF-8, or if one in binary data is too long for its prefix.
pub fn write_request(request: &InferenceRequest, binary: bool) -> Result<JsonBody, WriteError> {
    let size: usize = if binary { 0 } else { request.inputs.iter().map(data_text_size).sum() };
    let mut text = Vec::with_capacity(128 + 128 * request.inputs.len() + size);
    let mut parts = Vec::new();
    text.extend_from_slice(b"{\"id\":");
    write_text(&mut text, &request.id);
    if binary || !request.parameters.is_absent() {
        text.extend_from_slice(b",\"parameters\":");
        write_parameters(&mut text, &request.parameters, None);
        if binary {
            // Reopens the object for one more member. Its text is `{` or `{…`, since `null`s are omitted.
            text.pop();
            let separator: &[u8] = if text.ends_with(b"{") { b"" } else { b"," };
            text.extend_from_slice(separator);
            write_text(&mut text, binary::OUTPUTS);
            text.extend_from_slice(b":true}");
        }
    }
    text.extend_from_slice(b",\"inputs\":[");
    for (index, input) in request.inputs.iter().enumerate() {
        if index > 0 {
            text.push(b',');
        }
        if binary && !is_irregular(input) {
            let data = input.to_raw()?;
            write_tensor_head(&mut text, input, Some(data.len()));
            parts.push(data);
        } else {
            write_tensor_head(&mut text, input, None);
            text.extend_from_slice(b",\"data\":");
            // Strings, because JSON has no infinities, and `null` would not distinguish them from NaN.
            write_data(&mut text, input, NonFinite::String)?;
        }
        text.push(b'}');
    }
    text.push(b']');
    if request.has_outputs || !request.outputs.is_empty() {
        text.extend_from_slice(b",\"outputs\":[");
        separated(&mut text, &request.outputs, |text, output| {
            text.extend_from_slice(b"{\"name\":");
            write_text(text, &output.name);
            if !output.parameters.is_absent() {
                text.extend_from_slice(b",\"parameters\":");
                write_parameters(text, &output.parameters, None);
            }
            text.push(b'}');
        });
        text.push(b']');
    }
    text.push(b'}');
    Ok(JsonBody { json: text, binary: parts })
}

/// Writes parameters as JSON.
pub fn write_parameters_text(parameters: &Parameters) -> String {
    let mut text = Vec::new();
    write_parameters(&mut text, parameters, None);
    into_text(text)
}

/// Writes a tensor without its data as a JSON object.
pub fn write_tensor_text(tensor: &Tensor) -> String {
    let mut text = Vec::new();
    write_tensor_head(&mut text, tensor, None);
    text.push(b'}');
    into_text(text)
}

/// Returns the data of a tensor as the client or the model sent it as JSON, if that is kept.
pub fn sent_text(tensor: &Tensor) -> Option<&str> {
    let sent = match &tensor.data {
        TensorData::Irregular(data) => data.json(),
        TensorData::Fixed(_) | TensorData::Variable(_) => sent_data(tensor)?,
    };
    std::str::from_utf8(sent).ok()
}

/// Writes the data of a tensor as JSON. Floats that JSON does not have become strings.
///
/// # Errors
///
/// Fails if a BYTES element is not UTF-8.
pub fn write_data_text(tensor: &Tensor) -> Result<String, WriteError> {
    let mut text = Vec::with_capacity(data_text_size(tensor));
    write_data(&mut text, tensor, NonFinite::String)?;
    Ok(into_text(text))
}

fn into_text(text: Vec<u8>) -> String {
    String::from_utf8(text).expect("JSON is written as UTF-8")
}

/// Estimates the length of the data of a tensor as JSON, so that a second allocation is rare.
fn data_text_size(tensor: &Tensor) -> usize {
    if let Some(data) = sent_data(tensor) {
        return data.len();
    }
    match &tensor.data {
        // These are written as FP32 are.
        TensorData::Fixed(bytes) if matches!(tensor.datatype, Datatype::Fp16 | Datatype::Bf16) => bytes.len() * 6,
        TensorData::Fixed(bytes) => bytes.len() * 3,
        TensorData::Variable(elements) => elements.iter().map(|element| element.len() + 4).sum(),
        TensorData::Irregular(data) => data.json().len(),
    }
}

/// Estimates the memory of the data of a tensor as JSON, at once: for texts without looking at them.
pub fn data_text_memory(tensor: &Tensor) -> usize {
    match &tensor.data {
        TensorData::Variable(_) if sent_data(tensor).is_none() => tensor.byte_len(),
        TensorData::Variable(_) | TensorData::Fixed(_) | TensorData::Irregular(_) => data_text_size(tensor),
    }
}

/// Returns the data of a tensor as the model or the client gave it, if its regular form differs.
pub(super) fn sent_data(tensor: &Tensor) -> Option<&Bytes> {
    tensor.as_sent.as_ref()?.data.as_ref()
}

/// Reports whether the data of a tensor has no other form than JSON.
pub(super) const fn is_irregular(tensor: &Tensor) -> bool {
    matches!(tensor.data, TensorData::Irregular(_))
}

/// Writes everything of a tensor but its data, and leaves the object open. `binary_size` is the size of binary data.
pub(super) fn write_tensor_head(text: &mut Vec<u8>, tensor: &Tensor, binary_size: Option<usize>) {
    text.extend_from_slice(b"{\"name\":");
    write_text(text, &tensor.name);
    text.extend_from_slice(b",\"shape\":[");
    let mut digits = itoa::Buffer::new();
    if let Some(shape) =
        tensor.as_sent.as_ref().and_then(|as_sent| as_sent.shape.as_ref()).filter(|_| binary_size.is_none())
    {
        separated(text, shape, |text, &dimension| text.extend_from_slice(digits.format(dimension).as_bytes()));
    } else {
        separated(text, &tensor.shape, |text, &dimension| text.extend_from_slice(digits.format(dimension).as_bytes()));
    }
    text.extend_from_slice(b"],\"datatype\":\"");
    text.extend_from_slice(tensor.datatype.name().as_bytes());
    text.push(b'"');
    if !tensor.parameters.is_absent() || binary_size.is_some() {
        text.extend_from_slice(b",\"parameters\":");
        write_parameters(text, &tensor.parameters, binary_size);
    }
}

fn write_data(text: &mut Vec<u8>, tensor: &Tensor, non_finite: NonFinite) -> Result<(), WriteError> {
    if let Some(data) = sent_data(tensor) {
        text.extend_from_slice(data);
        return Ok(());
    }
    if let TensorData::Irregular(data) = &tensor.data {
        text.extend_from_slice(data.json());
        return Ok(());
    }
    // Rows without elements would not be bounded by the data.
    let shape = if tensor.nested && !tensor.is_empty() { &tensor.shape[..] } else { &[tensor.len()] };
    write_rows(text, shape, 0, &mut |text, elements| match &tensor.data {
        TensorData::Variable(all) => write_bytes(text, all, elements, &tensor.name),
        TensorData::Fixed(bytes) => {
            let width = tensor.datatype.width().unwrap_or(1);
            let first = elements.start;
            write_numbers(text, &bytes[elements.start * width..elements.end * width], tensor.datatype, non_finite)
                .map_err(|(index, found)| WriteError::NonFinite {
                    output: tensor.name.clone(),
                    index: first + index,
                    found,
                })
        }
        TensorData::Irregular(_) => Ok(()),
    })
}

/// Writes arrays that are nested as in a shape. `first` is the index of their first element, and `write` writes those of one row.
fn write_rows(
    text: &mut Vec<u8>,
    shape: &[usize],
    first: usize,
    write: &mut impl FnMut(&mut Vec<u8>, Range<usize>) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    text.push(b'[');
    match shape {
        [] => {}
        [count] => write(text, first..first + count)?,
        [count, inner @ ..] => {
            let step: usize = inner.iter().product();
            for row in 0..*count {
                if row > 0 {
                    text.push(b',');
                }
                write_rows(text, inner, first + row * step, write)?;
            }
        }
    }
    text.push(b']');
    Ok(())
}

/// The index and name of a float that cannot be written.
pub(super) type Refused = (usize, &'static str);

pub(super) fn write_numbers(
    text: &mut Vec<u8>,
    bytes: &[u8],
    datatype: Datatype,
    non_finite: NonFinite,
) -> Result<(), Refused> {
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
        Datatype::Fp16 => return write_floats(text, bytes, non_finite, f16::to_f32),
        Datatype::Bf16 => return write_floats(text, bytes, non_finite, bf16::to_f32),
        Datatype::Fp32 => return write_floats(text, bytes, non_finite, |value: f32| value),
        Datatype::Fp64 => return write_floats(text, bytes, non_finite, |value: f64| value),
        // A BYTES tensor's elements are never `Fixed`.
        Datatype::Bytes => {}
    }
    Ok(())
}

fn write_integers<T: Pod + itoa::Integer>(text: &mut Vec<u8>, bytes: &[u8]) {
    let mut digits = itoa::Buffer::new();
    separated(text, numbers::<T>(bytes), |text, value| {
        text.extend_from_slice(digits.format(value).as_bytes());
    });
}

/// Writes floats, up to the first that cannot be written.
fn write_floats<T: Pod, F: Float>(
    text: &mut Vec<u8>,
    bytes: &[u8],
    non_finite: NonFinite,
    widen: impl Fn(T) -> F,
) -> Result<(), Refused> {
    let start = text.len();
    let mut index = 0;
    for block in bytes.chunks(FLOATS * size_of::<T>()) {
        // Each text is written directly to its position, in space that is reserved for the longest ones.
        let mut end = text.len();
        text.resize(end + block.len() / size_of::<T>() * float::SPACE, 0);
        for value in numbers::<T>(block).map(&widen) {
            let place = text[end..].first_chunk_mut().expect("there is space for each float of the block");
            let length = match value.write(place) {
                Some(length) => length,
                None => write_non_finite(value.into(), non_finite, place)
                    .ok_or_else(|| (index, name_of_non_finite(value.into())))?,
            };
            place[length] = b',';
            end += length + 1;
            index += 1;
        }
        text.truncate(end);
    }
    if text.len() > start {
        // Removes the last comma.
        text.pop();
    }
    Ok(())
}

/// Writes the representation of a value that is not finite and returns its length, or `None` if it is an error.
#[cold]
fn write_non_finite(value: f64, non_finite: NonFinite, place: &mut [u8; float::SPACE]) -> Option<usize> {
    let quoted;
    let text = match non_finite {
        NonFinite::Null => "null",
        NonFinite::String => {
            quoted = format!("\"{}\"", name_of_non_finite(value));
            &quoted
        }
        NonFinite::Error => return None,
    };
    place[..text.len()].copy_from_slice(text.as_bytes());
    Some(text.len())
}

/// Returns the name that reads back as the value, except that sign and payload of NaN are lost.
const fn name_of_non_finite(value: f64) -> &'static str {
    if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "Infinity"
    } else {
        "-Infinity"
    }
}

/// Iterates over the numbers of a buffer of any alignment.
fn numbers<T: Pod>(bytes: &[u8]) -> impl Iterator<Item = T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned)
}

/// Returns the first float that is not finite.
pub(super) fn find_non_finite(bytes: &[u8], datatype: Datatype) -> Option<Refused> {
    fn find<T: Pod>(bytes: &[u8], widen: impl Fn(T) -> f64) -> Option<Refused> {
        let mut values = numbers::<T>(bytes).map(widen).enumerate();
        values.find(|(_, value)| !value.is_finite()).map(|(index, value)| (index, name_of_non_finite(value)))
    }

    match datatype {
        Datatype::Fp16 => find(bytes, f16::to_f64),
        Datatype::Bf16 => find(bytes, bf16::to_f64),
        Datatype::Fp32 => find(bytes, |value: f32| value.into()),
        Datatype::Fp64 => find(bytes, |value: f64| value),
        _ => None,
    }
}

fn write_bytes(
    text: &mut Vec<u8>,
    all: &BytesElements,
    elements: Range<usize>,
    output: &str,
) -> Result<(), WriteError> {
    let first = elements.start;
    for (index, element) in elements.clone().zip(all.range(elements)) {
        if index > first {
            text.push(b',');
        }
        let element =
            std::str::from_utf8(element).map_err(|_| WriteError::NotUtf8 { output: output.to_owned(), index })?;
        write_text(text, element);
    }
    Ok(())
}

/// Writes parameters, without those that are `null`, and the size of binary data in place of any that the model set.
fn write_parameters(text: &mut Vec<u8>, parameters: &Parameters, binary_size: Option<usize>) {
    let start = text.len();
    text.push(b'{');
    if let Some(content_type) = parameters.content_type() {
        text.extend_from_slice(b"\"content_type\":");
        write_text(text, content_type);
        text.push(b',');
    }
    for (key, value) in parameters.others.iter().filter(|(key, value)| !value.is_null() && *key != binary::SIZE) {
        write_text(text, key);
        text.push(b':');
        write_value(text, value);
        text.push(b',');
    }
    if let Some(size) = binary_size {
        write_text(text, binary::SIZE);
        text.push(b':');
        write_value(text, &size);
        text.push(b',');
    }
    // The closing brace replaces the last comma, if there is one.
    if text.len() > start + 1 {
        text.pop();
    }
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

/// Writes a string. Most have nothing to escape.
pub(super) fn write_text(text: &mut Vec<u8>, value: &str) {
    if plain_length(value.as_bytes()).is_some() {
        return write_value(text, value);
    }
    text.reserve(value.len() + 2);
    text.push(b'"');
    text.extend_from_slice(value.as_bytes());
    text.push(b'"');
}

pub(super) fn write_value<T: Serialize + ?Sized>(text: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(text, value).expect("strings and JSON values always serialize into memory");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::RequestedOutput;
    use crate::types::json::{IrregularData, read_request};
    use proptest::prelude::*;

    fn response(outputs: Vec<Tensor>) -> InferenceResponse {
        InferenceResponse { model_name: "m".to_owned(), id: "i".to_owned(), outputs, ..InferenceResponse::default() }
    }

    fn text(response: &InferenceResponse) -> String {
        let JsonBody { json, binary } = write_response(response, &WriteOptions::default()).unwrap();
        assert!(binary.is_empty());
        String::from_utf8(json).unwrap()
    }

    proptest! {
        #[test]
        fn text_is_written_as_by_serde_json(value in "([a-z]|\\PC|[\"\\\\\x00-\x1f\x7f]){0,30}") {
            let mut text = Vec::new();
            write_text(&mut text, &value);
            prop_assert_eq!(String::from_utf8(text).unwrap(), serde_json::to_string(&value).unwrap());
        }
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
            nested: false,
            as_sent: None,
        };
        assert!(text(&response(vec![tensor(&[b"a\"", "é".as_bytes()])])).contains(r#""data":["a\"","é"]"#));
        let error = write_response(&response(vec![tensor(&[b"a", b"\xff"])]), &WriteOptions::default()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "output `x`: element 1 is not UTF-8, which JSON requires; request binary data or encode it as base64"
        );
    }

    #[test]
    fn non_finite_floats_are_written_as_the_options_choose() {
        let write = |tensor: Tensor, non_finite| {
            let options = WriteOptions { non_finite, ..WriteOptions::default() };
            write_response(&response(vec![tensor]), &options).map(|written| String::from_utf8(written.json).unwrap())
        };
        let numbers = [1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let halves = numbers.map(f16::from_f64);
        for tensor in [
            Tensor::from_elements("x", vec![4], &numbers).unwrap(),
            Tensor::from_elements("x", vec![4], &halves).unwrap(),
        ] {
            let text = write(tensor.clone(), NonFinite::Null).unwrap();
            assert!(text.contains(r#""data":[1.0,null,null,null]"#), "{text}");
            let text = write(tensor.clone(), NonFinite::String).unwrap();
            assert!(text.contains(r#""data":[1.0,"NaN","Infinity","-Infinity"]"#), "{text}");
            let error = write(tensor, NonFinite::Error).unwrap_err().to_string();
            assert!(error.starts_with("output `x`: element 1 is NaN, which JSON cannot represent"), "{error}");
        }
    }

    #[test]
    fn binary_outputs_follow_the_json() {
        let mut first = Tensor::from_elements("a", vec![2], &[1_u16, 2]).unwrap();
        first.parameters = serde_json::from_str(r#"{"content_type":"np","binary_data_size":9}"#).unwrap();
        let second = Tensor::from_elements("b", vec![1], &[f32::NAN]).unwrap();
        let third = Tensor { name: "c".to_owned(), ..first.clone() };
        let mut binary = BinaryOutputs::all(true);
        let mut parameters = serde_json::from_str(r#"{"binary_data":false}"#).unwrap();
        binary.take_one("c", &mut parameters, str::to_owned).unwrap();
        let options = WriteOptions { binary, non_finite: NonFinite::Error };
        let kept = first.to_raw().unwrap().as_ptr();
        let JsonBody { json, binary } = write_response(&response(vec![first, second, third]), &options).unwrap();
        let expected = concat!(
            r#"{"model_name":"m","id":"i","parameters":{},"outputs":["#,
            r#"{"name":"a","shape":[2],"datatype":"UINT16","parameters":{"content_type":"np","binary_data_size":4}},"#,
            r#"{"name":"b","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}},"#,
            r#"{"name":"c","shape":[2],"datatype":"UINT16","parameters":{"content_type":"np"},"data":[1,2]}]}"#
        );
        assert_eq!(String::from_utf8(json).unwrap(), expected);
        assert_eq!(binary, [Bytes::from_static(&[1, 0, 2, 0]), Bytes::copy_from_slice(&f32::NAN.to_le_bytes())]);
        assert_eq!(binary[0].as_ptr(), kept, "not copied");
    }

    #[test]
    fn irregular_data_is_written_as_it_is() {
        let json = Bytes::from_static(br#"["a", null]"#);
        let mut tensor = Tensor::from_elements("x", vec![2], &[1_u8, 2]).unwrap();
        tensor.data = TensorData::Irregular(IrregularData::new(json, "").unwrap());
        let expected = r#""outputs":[{"name":"x","shape":[2],"datatype":"UINT8","data":["a", null]}]}"#;
        for all in [false, true] {
            let options = WriteOptions { binary: BinaryOutputs::all(all), ..WriteOptions::default() };
            let written = write_response(&response(vec![tensor.clone()]), &options).unwrap();
            let text = String::from_utf8(written.json).unwrap();
            assert!(text.ends_with(expected) && written.binary.is_empty(), "{text}");
            let request = InferenceRequest { inputs: vec![tensor.clone()], ..InferenceRequest::default() };
            let written = write_request(&request, all).unwrap();
            let text = String::from_utf8(written.json).unwrap();
            assert!(text.ends_with(&expected.replace("outputs", "inputs")) && written.binary.is_empty(), "{text}");
        }
    }

    #[test]
    fn requests_read_back() {
        let texts = TensorData::Variable(["a", "\"b\n"].iter().collect::<BytesElements>());
        let (name, datatype, shape) = ("t".to_owned(), Datatype::Bytes, vec![2]);
        let texts = Tensor {
            name,
            datatype,
            shape,
            parameters: Parameters::with_content_type("str"),
            data: texts,
            nested: false,
            as_sent: None,
        };
        let floats = Tensor::from_elements("f", vec![1, 3], &[0.1_f32, f32::NEG_INFINITY, -0.0]).unwrap();
        for parameters in ["{}", r#"{"gone":null}"#, r#"{"content_type":"pd","k":[1]}"#] {
            let request = InferenceRequest {
                id: "i".to_owned(),
                parameters: serde_json::from_str(parameters).unwrap(),
                inputs: vec![texts.clone(), floats.clone()],
                outputs: vec![RequestedOutput {
                    name: "o".to_owned(),
                    parameters: Parameters::with_content_type("np"),
                }],
                ..InferenceRequest::default()
            };
            for binary in [false, true] {
                let written = write_request(&request, binary).unwrap();
                let bytes = binary.then(|| Bytes::from(written.binary.concat()));
                let read = read_request(&written.json, bytes).unwrap();
                assert_eq!(read.id.as_deref(), Some("i"));
                assert_eq!((&read.request.inputs, &read.request.outputs), (&request.inputs, &request.outputs));
                assert_eq!(read.request.parameters.others.get("k"), request.parameters.others.get("k"));
                assert_eq!(read.binary_outputs.wants("o"), binary);
            }
        }
    }

    fn reread(tensor: &Tensor) -> Tensor {
        let text = text(&response(vec![tensor.clone()]));
        let request = text.replace("\"outputs\"", "\"inputs\"");
        read_request(request.as_bytes(), None).unwrap().request.inputs.remove(0)
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
                nested: false,
                as_sent: None,
            };
            prop_assert_eq!(reread(&tensor), tensor);
        }
    }
}
