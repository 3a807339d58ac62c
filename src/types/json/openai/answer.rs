//! Answers of models that only take tensors.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::request::{RerankTexts, VectorEncoding};
use crate::types::{Datatype, Tensor, TensorData};

/// How the vectors of tokens become one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// The model answers with one vector for each text.
    #[default]
    None,
    /// The vector of the first token.
    Cls,
    /// The mean of all tokens.
    Mean,
}

/// How embeddings are made of an output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VectorOptions {
    pub pooling: Pooling,
    /// Whether vectors are divided by their length.
    pub normalize: bool,
    /// The length that vectors are cut to. They are divided by their length afterwards.
    pub dimensions: Option<usize>,
    pub encoding: VectorEncoding,
}

/// Why an output does not have the form of an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    #[error("output `{name}` has datatype {datatype}, expected numbers, or texts with lists of numbers as JSON")]
    NotNumbers { name: String, datatype: Datatype },
    #[error("output `{name}` has datatype {datatype}, expected BYTES")]
    NotTexts { name: String, datatype: Datatype },
    #[error("output `{name}`: element {index} is not text in UTF-8, or not the JSON that its content type says")]
    Element { name: String, index: usize },
    #[error("output `{name}` has shape {found:?} for {count} texts, expected {expected}")]
    Shape { name: String, found: Vec<usize>, count: usize, expected: &'static str },
    #[error("`dimensions`: expected at most {length}, the length of the model's vectors, found {found}")]
    Dimensions { found: usize, length: usize },
}

const VECTORS: &str = "[texts, numbers], or [texts, tokens, numbers] with the setting `pooling`";

/// The vectors of one text: one, or one for each token.
struct TextVectors<'a> {
    numbers: Cow<'a, [f32]>,
    /// `None` if there is one vector for the text as a whole.
    tokens: Option<usize>,
}

/// Writes one embedding for each of `count` texts.
///
/// # Errors
///
/// Fails if the output does not have as many rows of numbers.
pub fn write_embeddings(
    output: &Tensor,
    options: &VectorOptions,
    count: usize,
    model: &str,
) -> Result<Vec<u8>, OutputError> {
    let mut text = br#"{"object":"list","data":["#.to_vec();
    let mut index = 0_usize;
    for_each_text(output, count, |vectors| {
        if index > 0 {
            text.push(b',');
        }
        text.extend_from_slice(br#"{"object":"embedding","index":"#);
        write(&mut text, &index);
        text.extend_from_slice(br#","embedding":"#);
        let vector = pooled(output, count, vectors, options)?;
        match options.encoding {
            VectorEncoding::Base64 => {
                let bytes: &[u8] = bytemuck::cast_slice(&vector);
                text.push(b'"');
                let start = text.len();
                text.resize(start + bytes.len().div_ceil(3) * 4, 0);
                let written = BASE64.encode_slice(bytes, &mut text[start..]).expect("the space is that of the text");
                text.truncate(start + written);
                text.push(b'"');
            }
            VectorEncoding::Float => write(&mut text, &vector),
        }
        text.push(b'}');
        index += 1;
        Ok(())
    })?;
    text.extend_from_slice(br#"],"model":"#);
    write(&mut text, model);
    text.extend_from_slice(br#","usage":{"prompt_tokens":0,"total_tokens":0}}"#);
    Ok(text)
}

fn shape_error(output: &Tensor, count: usize, expected: &'static str) -> OutputError {
    OutputError::Shape { name: output.name.clone(), found: output.shape.clone(), count, expected }
}

/// Calls `each` with the vectors of each text.
fn for_each_text(
    output: &Tensor,
    count: usize,
    mut each: impl FnMut(TextVectors<'_>) -> Result<(), OutputError>,
) -> Result<(), OutputError> {
    let wrong = || shape_error(output, count, VECTORS);
    if let TensorData::Variable(elements) = &output.data {
        if elements.len() != count {
            return Err(wrong());
        }
        for (index, element) in elements.iter().enumerate() {
            each(vectors_of_json(element).ok_or_else(|| OutputError::Element { name: output.name.clone(), index })?)?;
        }
        return Ok(());
    }
    let numbers = numbers(output)?;
    let (tokens, width) = match output.shape[..] {
        [rows, width] if rows == count => (None, width),
        [rows, tokens, width] if rows == count && tokens > 0 => (Some(tokens), width),
        [width] if count == 1 => (None, width),
        _ => return Err(wrong()),
    };
    let length = tokens.unwrap_or(1) * width;
    if length == 0 {
        return Err(wrong());
    }
    for row in numbers.chunks_exact(length) {
        each(TextVectors { numbers: Cow::Borrowed(row), tokens })?;
    }
    Ok(())
}

/// Reads the vectors of a text that are a list of numbers, or a list of such lists for its tokens, as JSON. Lists of one element around
/// them are ignored, as Hugging Face writes them.
fn vectors_of_json(element: &[u8]) -> Option<TextVectors<'static>> {
    let mut value: Value = serde_json::from_slice(element).ok()?;
    loop {
        match value {
            Value::Array(items)
                if items.len() == 1 && items.iter().all(|item| item.get(0).is_some_and(Value::is_array)) =>
            {
                value = items.into_iter().next()?;
            }
            value if value.get(0)?.is_array() => {
                let rows: Vec<Vec<f32>> = serde_json::from_value(value).ok()?;
                let width = rows.first()?.len();
                if width == 0 || rows.iter().any(|row| row.len() != width) {
                    return None;
                }
                return Some(TextVectors { tokens: Some(rows.len()), numbers: Cow::Owned(rows.concat()) });
            }
            value => {
                let numbers: Vec<f32> = serde_json::from_value(value).ok()?;
                return (!numbers.is_empty()).then_some(TextVectors { numbers: Cow::Owned(numbers), tokens: None });
            }
        }
    }
}

/// Returns the one vector of a text, cut and normalized.
fn pooled<'a>(
    output: &Tensor,
    count: usize,
    vectors: TextVectors<'a>,
    options: &VectorOptions,
) -> Result<Cow<'a, [f32]>, OutputError> {
    let TextVectors { numbers, tokens } = vectors;
    let mut vector = match tokens {
        None => numbers,
        Some(tokens) => {
            let width = numbers.len() / tokens;
            match options.pooling {
                Pooling::None => return Err(shape_error(output, count, VECTORS)),
                Pooling::Cls => Cow::Owned(numbers[..width].to_vec()),
                Pooling::Mean => Cow::Owned(mean(&numbers, width)),
            }
        }
    };
    if let Some(dimensions) = options.dimensions {
        let length = vector.len();
        if dimensions > length {
            return Err(OutputError::Dimensions { found: dimensions, length });
        }
        vector.to_mut().truncate(dimensions);
    }
    if options.normalize || options.dimensions.is_some() {
        normalize(vector.to_mut());
    }
    Ok(vector)
}

/// Returns the mean of vectors of `width` numbers.
fn mean(numbers: &[f32], width: usize) -> Vec<f32> {
    let mut sums = vec![0.0_f64; width];
    for row in numbers.chunks_exact(width) {
        for (sum, &number) in sums.iter_mut().zip(row) {
            *sum += f64::from(number);
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "there are far fewer tokens than 2^52")]
    let count = (numbers.len() / width) as f64;
    #[expect(clippy::cast_possible_truncation, reason = "a mean of FP32 is in its range")]
    sums.into_iter().map(|sum| (sum / count) as f32).collect()
}

/// Divides a vector by its length. A vector of zeros stays as it is.
fn normalize(vector: &mut [f32]) {
    let length = vector.iter().map(|&number| f64::from(number) * f64::from(number)).sum::<f64>().sqrt();
    if length > 0.0 {
        for number in vector {
            #[expect(clippy::cast_possible_truncation, reason = "it is between -1 and 1")]
            let unit = (f64::from(*number) / length) as f32;
            *number = unit;
        }
    }
}

/// Returns the elements of a tensor of numbers in single precision.
fn numbers(tensor: &Tensor) -> Result<Cow<'_, [f32]>, OutputError> {
    fn convert<T: crate::types::Element>(tensor: &Tensor, convert: impl Fn(T) -> f32) -> Option<Cow<'_, [f32]>> {
        Some(Cow::Owned(tensor.elements::<T>()?.iter().map(|&element| convert(element)).collect()))
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "embeddings are FP32")]
    let converted = match tensor.datatype {
        Datatype::Fp32 => tensor.elements::<f32>(),
        Datatype::Fp64 => convert(tensor, |number: f64| number as f32),
        Datatype::Fp16 => convert(tensor, f16::to_f32),
        Datatype::Bf16 => convert(tensor, bf16::to_f32),
        Datatype::Int64 => convert(tensor, |number: i64| number as f32),
        Datatype::Int32 => convert(tensor, |number: i32| number as f32),
        _ => None,
    };
    converted.ok_or_else(|| OutputError::NotNumbers { name: tensor.name.clone(), datatype: tensor.datatype })
}

/// Returns the texts of an output: its elements, or what a pipeline of Hugging Face writes as JSON.
fn texts(output: &Tensor) -> Result<Vec<Cow<'_, str>>, OutputError> {
    let TensorData::Variable(elements) = &output.data else {
        return Err(OutputError::NotTexts { name: output.name.clone(), datatype: output.datatype });
    };
    let is_json = output.parameters.content_type.as_deref().is_some_and(|name| name.starts_with("hg_json"));
    let read = |(index, element)| {
        let text = std::str::from_utf8(element).ok();
        let found = if is_json { text.and_then(generated_text).map(Cow::Owned) } else { text.map(Cow::Borrowed) };
        found.ok_or_else(|| OutputError::Element { name: output.name.clone(), index })
    };
    elements.iter().enumerate().map(read).collect()
}

/// Returns the text that a pipeline of Hugging Face has made, in the first of its answers.
fn generated_text(json: &str) -> Option<String> {
    let mut value: Value = serde_json::from_str(json).ok()?;
    while let Value::Array(items) = value {
        value = items.into_iter().next()?;
    }
    match value {
        Value::String(text) => Some(text),
        Value::Object(mut fields) => {
            ["generated_text", "summary_text", "translation_text", "answer"].iter().find_map(|key| {
                match fields.remove(*key) {
                    Some(Value::String(text)) => Some(text),
                    _ => None,
                }
            })
        }
        _ => None,
    }
}

/// Writes one choice for each of `count` prompts.
///
/// # Errors
///
/// Fails if the output does not have as many texts.
pub fn write_completion(
    output: &Tensor,
    count: usize,
    id: &str,
    created: u64,
    model: &str,
) -> Result<Vec<u8>, OutputError> {
    let texts = texts(output)?;
    if texts.len() != count {
        return Err(shape_error(output, count, "one text for each prompt"));
    }
    let choices: Vec<Value> = texts.iter().enumerate().map(|(index, text)| choice(index, text, Some("stop"))).collect();
    Ok(completion(id, created, model, &choices))
}

/// Writes a chunk of a completion: the next texts of the prompts, or `None` at the end.
///
/// # Errors
///
/// Fails if the output has no texts.
pub fn write_completion_chunk(
    output: Option<&Tensor>,
    count: usize,
    id: &str,
    created: u64,
    model: &str,
) -> Result<Vec<u8>, OutputError> {
    let choices: Vec<Value> = match output {
        Some(output) => texts(output)?.iter().enumerate().map(|(index, text)| choice(index, text, None)).collect(),
        None => (0..count).map(|index| choice(index, "", Some("stop"))).collect(),
    };
    Ok(completion(id, created, model, &choices))
}

fn choice(index: usize, text: &str, finish_reason: Option<&str>) -> Value {
    json!({ "index": index, "text": text, "finish_reason": finish_reason, "logprobs": null })
}

fn completion(id: &str, created: u64, model: &str, choices: &[Value]) -> Vec<u8> {
    let mut text = Vec::new();
    let object = "text_completion";
    write(&mut text, &json!({ "id": id, "object": object, "created": created, "model": model, "choices": choices }));
    text
}

/// Writes the documents of a request by their scores.
///
/// # Errors
///
/// Fails if the output does not have one number for each document.
pub fn write_rerank(output: &Tensor, request: &RerankTexts, id: &str, model: &str) -> Result<Vec<u8>, OutputError> {
    let count = request.documents.len();
    let scores = numbers(output)?;
    if scores.len() != count {
        return Err(shape_error(output, count, "one number for each document"));
    }
    let mut order: Vec<usize> = (0..count).collect();
    // Stable, so that documents of one score stay in their order. Those without a score come last.
    order.sort_by(|&a, &b| match (scores[a].is_nan(), scores[b].is_nan()) {
        (false, false) => scores[b].total_cmp(&scores[a]),
        (a, b) => a.cmp(&b),
    });
    order.truncate(request.top_n.unwrap_or(count));
    let documents: Vec<&[u8]> = request.documents.iter().collect();
    let result = |index: usize| {
        let mut result = json!({ "index": index, "relevance_score": scores[index] });
        if request.return_documents {
            result["document"] = json!({ "text": String::from_utf8_lossy(documents[index]) });
        }
        result
    };
    let results: Vec<Value> = order.into_iter().map(result).collect();
    let mut text = Vec::new();
    write(&mut text, &json!({ "id": id, "model": model, "usage": { "total_tokens": 0 }, "results": results }));
    Ok(text)
}

fn write<T: Serialize + ?Sized>(text: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(text, value).expect("strings, numbers and JSON values always serialize into memory");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{BytesElements, Parameters};

    fn numbers_of(shape: &[usize], numbers: &[f32]) -> Tensor {
        Tensor::from_elements("y", shape.to_vec(), numbers).unwrap()
    }

    fn texts_of(texts: &[&str], content_type: Option<&str>) -> Tensor {
        let elements: BytesElements = texts.iter().collect();
        let parameters =
            Parameters { content_type: content_type.map(|name| name.to_owned().into()), ..Parameters::new() };
        let data = TensorData::Variable(elements);
        let (name, shape) = ("y".to_owned(), vec![texts.len(), 1]);
        Tensor { name, datatype: Datatype::Bytes, shape, parameters, data, nested: false, as_sent: None }
    }

    fn embeddings(output: &Tensor, options: &VectorOptions, count: usize) -> Result<Vec<Value>, OutputError> {
        let text = write_embeddings(output, options, count, "m")?;
        let answer: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!((&answer["object"], &answer["model"]), (&json!("list"), &json!("m")));
        let data = answer["data"].as_array().unwrap().clone();
        for (index, item) in data.iter().enumerate() {
            assert_eq!((&item["object"], &item["index"]), (&json!("embedding"), &json!(index)));
        }
        Ok(data.into_iter().map(|mut item| item["embedding"].take()).collect())
    }

    #[test]
    fn rows_of_an_output_become_embeddings() {
        let options = VectorOptions::default();
        let output = numbers_of(&[2, 3], &[0.1, 2.0, -3.0, 4.0, f32::NAN, 6.0]);
        assert_eq!(embeddings(&output, &options, 2).unwrap(), [json!([0.1, 2.0, -3.0]), json!([4.0, null, 6.0])]);
        let doubles = Tensor::from_elements("y", vec![1, 2], &[0.1_f64, 1e300]).unwrap();
        assert_eq!(embeddings(&doubles, &options, 1).unwrap(), [json!([0.1, null])], "beyond FP32");
        let base64 = VectorOptions { encoding: VectorEncoding::Base64, ..options };
        let written = embeddings(&output, &base64, 2).unwrap();
        let bytes = BASE64.decode(written[0].as_str().unwrap()).unwrap();
        assert_eq!(bytes, [0.1_f32, 2.0, -3.0].map(f32::to_le_bytes).concat());
    }

    #[test]
    fn tokens_are_pooled_and_vectors_cut_and_normalized() {
        let output = numbers_of(&[1, 2, 2], &[3.0, 4.0, 5.0, 0.0]);
        let with = |pooling| VectorOptions { pooling, ..VectorOptions::default() };
        assert_eq!(embeddings(&output, &with(Pooling::Cls), 1).unwrap(), [json!([3.0, 4.0])]);
        assert_eq!(embeddings(&output, &with(Pooling::Mean), 1).unwrap(), [json!([4.0, 2.0])]);
        assert!(matches!(embeddings(&output, &with(Pooling::None), 1), Err(OutputError::Shape { .. })));
        let normal = VectorOptions { normalize: true, ..with(Pooling::Cls) };
        assert_eq!(embeddings(&output, &normal, 1).unwrap(), [json!([0.6, 0.8])]);
        let cut = VectorOptions { dimensions: Some(1), ..with(Pooling::Cls) };
        assert_eq!(embeddings(&output, &cut, 1).unwrap(), [json!([1.0])]);
        let long = VectorOptions { dimensions: Some(3), ..with(Pooling::Cls) };
        assert_eq!(embeddings(&output, &long, 1), Err(OutputError::Dimensions { found: 3, length: 2 }));
        let zeros = numbers_of(&[1, 2], &[0.0, 0.0]);
        assert_eq!(
            embeddings(&zeros, &VectorOptions { normalize: true, ..with(Pooling::None) }, 1).unwrap(),
            [json!([0.0, 0.0])]
        );
    }

    #[test]
    fn outputs_of_another_form_are_refused() {
        let options = VectorOptions::default();
        for shape in [&[4][..], &[1, 4], &[4, 1], &[2, 1, 1, 2]] {
            let error = embeddings(&numbers_of(shape, &[0.0; 4]), &options, 2).unwrap_err();
            assert!(matches!(error, OutputError::Shape { .. }), "{shape:?}: {error}");
        }
        for shape in [&[2, 0][..], &[2, 0, 3], &[2, 3, 0]] {
            assert!(embeddings(&numbers_of(shape, &[]), &options, 2).is_err(), "{shape:?}");
        }
        let flags = Tensor::from_raw("y", Datatype::Bool, vec![1, 1], bytes::Bytes::from_static(&[1])).unwrap();
        assert!(matches!(embeddings(&flags, &options, 1), Err(OutputError::NotNumbers { .. })));
    }

    #[test]
    fn vectors_as_json_are_read_as_hugging_face_writes_them() {
        let cls = VectorOptions { pooling: Pooling::Cls, ..VectorOptions::default() };
        for json in ["[[1, 2], [3, 4]]", "[[[1, 2], [3, 4]]]"] {
            assert_eq!(embeddings(&texts_of(&[json], None), &cls, 1).unwrap(), [json!([1.0, 2.0])], "{json}");
        }
        let none = VectorOptions::default();
        assert_eq!(embeddings(&texts_of(&["[1, 2]"], None), &none, 1).unwrap(), [json!([1.0, 2.0])]);
        for json in ["", "1", "[]", "[[]]", "{}", "[\"a\"]", "[[1], [1, 2]]", "[[[]]]", "[[[1]], [[2]]]"] {
            let error = embeddings(&texts_of(&[json], None), &cls, 1).unwrap_err();
            assert_eq!(error, OutputError::Element { name: "y".to_owned(), index: 0 }, "{json}");
        }
    }

    #[test]
    fn texts_of_an_output_become_choices() {
        let completion = |output: &Tensor, count| {
            let text = write_completion(output, count, "cmpl-1", 5, "m")?;
            Ok::<Value, OutputError>(serde_json::from_slice(&text).unwrap())
        };
        let answer = completion(&texts_of(&["a\"", "b"], None), 2).unwrap();
        let choice = |index, text| json!({"index": index, "text": text, "finish_reason": "stop", "logprobs": null});
        let expected = json!({
            "id": "cmpl-1", "object": "text_completion", "created": 5, "model": "m",
            "choices": [choice(0, "a\""), choice(1, "b")],
        });
        assert_eq!(answer, expected);
        for json in
            [r#"{"generated_text": "a"}"#, r#"[{"generated_text": "a"}]"#, r#"[[{"generated_text": "a"}]]"#, "\"a\""]
        {
            let answer = completion(&texts_of(&[json], Some("hg_jsonlist")), 1).unwrap();
            assert_eq!(answer["choices"][0]["text"], "a", "{json}");
        }
        assert!(matches!(completion(&texts_of(&["a"], None), 2), Err(OutputError::Shape { .. })));
        assert!(matches!(completion(&texts_of(&["[]"], Some("hg_jsonlist")), 1), Err(OutputError::Element { .. })));
        assert!(matches!(completion(&numbers_of(&[1], &[1.0]), 1), Err(OutputError::NotTexts { .. })));
        let last = write_completion_chunk(None, 1, "cmpl-1", 5, "m").unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&last).unwrap()["choices"], json!([choice(0, "")]));
    }

    #[test]
    fn documents_are_sorted_by_score_and_then_by_index() {
        let request = |top_n, return_documents| RerankTexts {
            query: "q".to_owned(),
            documents: ["a", "b", "c", "d"].iter().collect(),
            top_n,
            return_documents,
        };
        let output = numbers_of(&[4, 1], &[f32::NAN, 0.5, 0.9, 0.5]);
        let results = |request: &RerankTexts| {
            let text = write_rerank(&output, request, "id", "m").unwrap();
            serde_json::from_slice::<Value>(&text).unwrap()["results"].as_array().unwrap().clone()
        };
        let order: Vec<_> =
            results(&request(None, true)).iter().map(|result| result["index"].as_u64().unwrap()).collect();
        assert_eq!(order, [2, 1, 3, 0]);
        let one = results(&request(Some(1), false));
        assert_eq!(one, [json!({"index": 2, "relevance_score": 0.9_f32})]);
        assert!(write_rerank(&numbers_of(&[3], &[0.0; 3]), &request(None, true), "id", "m").is_err());
    }
}
