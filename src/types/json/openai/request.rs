//! Requests: the fields that the server needs, and their texts for models that take tensors.
//!
//! Only the model knows the other fields, which it gets as they are. Values are walked over and not kept, so that a body takes no memory
//! besides its own.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::types::{BytesElements, OpenAiApi, text};

/// Why a request is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OpenAiError {
    pub message: String,
    /// The field that is invalid. `None` if the body as a whole is.
    pub param: Option<&'static str>,
}

impl OpenAiError {
    /// Creates the error of a field.
    pub fn of(param: &'static str, expected: impl fmt::Display) -> Self {
        Self { message: format!("`{param}`: {expected}"), param: Some(param) }
    }
}

/// What the server needs to know of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenAiHead {
    pub model: String,
    /// Whether the answer is sent while it is made.
    pub stream: bool,
    /// How embeddings are written.
    pub encoding: VectorEncoding,
    /// The length that embeddings are cut to, if the request sets it.
    pub dimensions: Option<usize>,
}

/// How numbers of embeddings are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VectorEncoding {
    #[default]
    Float,
    /// Base64 of little-endian FP32.
    Base64,
}

/// The texts of a request to rank documents.
#[derive(Debug, Clone, PartialEq)]
pub struct RerankTexts {
    pub query: String,
    pub documents: BytesElements,
    /// The most results to return. `None` for all.
    pub top_n: Option<usize>,
    /// Whether results have their document.
    pub return_documents: bool,
}

/// The values of the fields that the server knows. Of a field that occurs twice, the last value counts, as in Python.
#[derive(Debug, Default)]
struct Fields<'a> {
    model: Option<&'a RawValue>,
    stream: Option<&'a RawValue>,
    messages: Option<&'a RawValue>,
    prompt: Option<&'a RawValue>,
    input: Option<&'a RawValue>,
    encoding_format: Option<&'a RawValue>,
    dimensions: Option<&'a RawValue>,
    query: Option<&'a RawValue>,
    documents: Option<&'a RawValue>,
    top_n: Option<&'a RawValue>,
    return_documents: Option<&'a RawValue>,
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Fields::default();
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    let field = match &*key {
                        "model" => &mut fields.model,
                        "stream" => &mut fields.stream,
                        "messages" => &mut fields.messages,
                        "prompt" => &mut fields.prompt,
                        "input" => &mut fields.input,
                        "encoding_format" => &mut fields.encoding_format,
                        "dimensions" => &mut fields.dimensions,
                        "query" => &mut fields.query,
                        "documents" => &mut fields.documents,
                        "top_n" => &mut fields.top_n,
                        "return_documents" => &mut fields.return_documents,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    let value = map.next_value::<&'de RawValue>()?;
                    *field = (value.get() != "null").then_some(value);
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// Reads what the server needs of a request, and checks that the model gets what the endpoint is for.
///
/// # Errors
///
/// Fails if the body is not an object, or if such a field is absent or of another type.
pub fn read_head(api: OpenAiApi, body: &[u8]) -> Result<OpenAiHead, OpenAiError> {
    let fields = read_fields(body)?;
    let model: String = required("model", fields.model, "expected the name of a model")?;
    let stream = optional("stream", fields.stream, "expected true or false")?.unwrap_or_default();
    let mut head = OpenAiHead { model, stream, encoding: VectorEncoding::Float, dimensions: None };
    match api {
        OpenAiApi::ChatCompletions => {
            let expected = "expected a list of at least one object";
            required::<Objects>("messages", fields.messages, expected)?;
        }
        OpenAiApi::Completions => {
            walk("prompt", fields.prompt, &mut |_| {})?;
        }
        OpenAiApi::Embeddings => {
            let form = walk("input", fields.input, &mut |_| {})?;
            if form == (InputForm::Text { is_empty: true }) {
                return Err(OpenAiError::of("input", "it is empty"));
            }
            head.encoding =
                match optional::<Cow<'_, str>>("encoding_format", fields.encoding_format, ENCODINGS)?.as_deref() {
                    None | Some("float") => VectorEncoding::Float,
                    Some("base64") => VectorEncoding::Base64,
                    Some(_) => return Err(OpenAiError::of("encoding_format", ENCODINGS)),
                };
            head.dimensions = positive("dimensions", fields.dimensions)?;
        }
        OpenAiApi::Rerank => {
            required::<Cow<'_, str>>("query", fields.query, "expected a text")?;
            documents(fields.documents, &mut |_| {})?;
            limit("top_n", fields.top_n)?;
            optional::<bool>("return_documents", fields.return_documents, "expected true or false")?;
        }
    }
    Ok(head)
}

const ENCODINGS: &str = "expected `float` or `base64`";

/// Reads the texts of `prompt` or `input`, for a model that takes them as a tensor.
///
/// # Errors
///
/// Fails if they are lists of tokens.
pub fn read_texts(api: OpenAiApi, body: &[u8]) -> Result<BytesElements, OpenAiError> {
    let fields = read_fields(body)?;
    let (param, value) =
        if api == OpenAiApi::Completions { ("prompt", fields.prompt) } else { ("input", fields.input) };
    let mut texts = Texts::default();
    let form = walk(param, value, &mut |text| texts.push(&text))?;
    if form == InputForm::Tokens {
        return Err(OpenAiError::of(param, "the model takes texts; lists of tokens are not supported"));
    }
    Ok(texts.into_elements())
}

/// Reads the texts of a request to rank documents.
///
/// # Errors
///
/// Fails where [`read_head`] does.
pub fn read_rerank(body: &[u8]) -> Result<RerankTexts, OpenAiError> {
    let fields = read_fields(body)?;
    let mut texts = Texts::default();
    documents(fields.documents, &mut |text| texts.push(&text))?;
    Ok(RerankTexts {
        query: required("query", fields.query, "expected a text")?,
        documents: texts.into_elements(),
        top_n: limit("top_n", fields.top_n)?,
        return_documents: optional("return_documents", fields.return_documents, "expected true or false")?
            .unwrap_or(true),
    })
}

/// Texts in one buffer.
#[derive(Default)]
struct Texts {
    buffer: Vec<u8>,
    spans: Vec<Range<usize>>,
}

impl Texts {
    fn push(&mut self, text: &str) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(text.as_bytes());
        self.spans.push(start..self.buffer.len());
    }

    fn into_elements(self) -> BytesElements {
        let elements = BytesElements::new(self.buffer.into(), self.spans);
        elements.expect("the spans are those of the buffer").with_text(true)
    }
}

fn read_fields(body: &[u8]) -> Result<Fields<'_>, OpenAiError> {
    let refused = |reason: &dyn fmt::Display| {
        let message = format!("the body is not a JSON object with the fields of this endpoint: {reason}");
        OpenAiError { message, param: None }
    };
    let text = text::without_mark(body).map_err(|error| refused(&error))?;
    serde_json::from_slice(text).map_err(|error| refused(&error))
}

fn optional<'a, T: Deserialize<'a>>(
    param: &'static str,
    value: Option<&'a RawValue>,
    expected: &str,
) -> Result<Option<T>, OpenAiError> {
    let Some(value) = value else { return Ok(None) };
    serde_json::from_str(value.get()).map(Some).map_err(|_| OpenAiError::of(param, expected))
}

fn required<'a, T: Deserialize<'a>>(
    param: &'static str,
    value: Option<&'a RawValue>,
    expected: &str,
) -> Result<T, OpenAiError> {
    optional(param, value, expected)?.ok_or_else(|| OpenAiError::of(param, format_args!("it is missing; {expected}")))
}

fn positive(param: &'static str, value: Option<&RawValue>) -> Result<Option<usize>, OpenAiError> {
    let expected = "expected an integer of at least 1";
    let number: Option<u64> = optional(param, value, expected)?;
    match number {
        Some(0) => Err(OpenAiError::of(param, expected)),
        number => Ok(number.map(|number| usize::try_from(number).unwrap_or(usize::MAX))),
    }
}

/// Reads the most items to return: 0 stands for all, as in vLLM.
fn limit(param: &'static str, value: Option<&RawValue>) -> Result<Option<usize>, OpenAiError> {
    let number: Option<u64> = optional(param, value, "expected an integer of at least 0")?;
    Ok(number.filter(|&number| number > 0).map(|number| usize::try_from(number).unwrap_or(usize::MAX)))
}

/// A list of at least one object, of which nothing is kept.
struct Objects;

impl<'de> Deserialize<'de> for Objects {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectsVisitor;

        impl<'de> Visitor<'de> for ObjectsVisitor {
            type Value = Objects;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of objects")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Objects, A::Error> {
                let mut count = 0_usize;
                while items.next_element::<AnyObject>()?.is_some() {
                    count += 1;
                }
                if count == 0 { Err(A::Error::custom("it is empty")) } else { Ok(Objects) }
            }
        }

        deserializer.deserialize_seq(ObjectsVisitor)
    }
}

/// An object, of which nothing is kept.
struct AnyObject;

impl<'de> Deserialize<'de> for AnyObject {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;

        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = AnyObject;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AnyObject, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(AnyObject)
            }
        }

        deserializer.deserialize_map(ObjectVisitor)
    }
}

/// The form of `prompt` and `input`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InputForm {
    Text {
        is_empty: bool,
    },
    Texts,
    /// A list of tokens, or several.
    Tokens,
}

/// What an item of a list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemForm {
    Text,
    Token,
    Tokens,
}

/// Walks over `prompt` or `input`, and calls `each` with every text.
fn walk<'a>(
    param: &'static str,
    value: Option<&'a RawValue>,
    each: &mut dyn FnMut(Cow<'a, str>),
) -> Result<InputForm, OpenAiError> {
    const EXPECTED: &str =
        "expected a text, a list of texts, a list of tokens or a list of such lists, and at least one of them";
    let value = value.ok_or_else(|| OpenAiError::of(param, format_args!("it is missing; {EXPECTED}")))?;
    let mut deserializer = serde_json::Deserializer::from_str(value.get());
    InputWalk { each }.deserialize(&mut deserializer).map_err(|_| OpenAiError::of(param, EXPECTED))
}

/// Walks over `documents`, and calls `each` with every text.
fn documents<'a>(value: Option<&'a RawValue>, each: &mut dyn FnMut(Cow<'a, str>)) -> Result<(), OpenAiError> {
    const EXPECTED: &str = "expected a list of at least one text, or of objects with `text`";
    let value = value.ok_or_else(|| OpenAiError::of("documents", format_args!("it is missing; {EXPECTED}")))?;
    let mut deserializer = serde_json::Deserializer::from_str(value.get());
    DocumentsWalk { each }.deserialize(&mut deserializer).map_err(|_| OpenAiError::of("documents", EXPECTED))
}

struct InputWalk<'w, 'a> {
    each: &'w mut dyn FnMut(Cow<'a, str>),
}

impl<'a> DeserializeSeed<'a> for InputWalk<'_, 'a> {
    type Value = InputForm;

    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<InputForm, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for InputWalk<'_, 'a> {
    type Value = InputForm;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("texts or tokens")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<InputForm, E> {
        (self.each)(Cow::Borrowed(text));
        Ok(InputForm::Text { is_empty: text.is_empty() })
    }

    fn visit_str<E>(self, text: &str) -> Result<InputForm, E> {
        (self.each)(Cow::Owned(text.to_owned()));
        Ok(InputForm::Text { is_empty: text.is_empty() })
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<InputForm, A::Error> {
        let mut form = None;
        while let Some(item) = items.next_element_seed(ItemWalk { each: &mut *self.each })? {
            if form.is_some_and(|form| form != item) {
                return Err(A::Error::custom("the items are of several types"));
            }
            form = Some(item);
        }
        match form {
            None => Err(A::Error::custom("it is empty")),
            Some(ItemForm::Text) => Ok(InputForm::Texts),
            Some(ItemForm::Token | ItemForm::Tokens) => Ok(InputForm::Tokens),
        }
    }
}

struct ItemWalk<'w, 'a> {
    each: &'w mut dyn FnMut(Cow<'a, str>),
}

impl<'a> DeserializeSeed<'a> for ItemWalk<'_, 'a> {
    type Value = ItemForm;

    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<ItemForm, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for ItemWalk<'_, 'a> {
    type Value = ItemForm;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text, a token or a list of tokens")
    }

    fn visit_borrowed_str<E>(self, text: &'a str) -> Result<ItemForm, E> {
        (self.each)(Cow::Borrowed(text));
        Ok(ItemForm::Text)
    }

    fn visit_str<E>(self, text: &str) -> Result<ItemForm, E> {
        (self.each)(Cow::Owned(text.to_owned()));
        Ok(ItemForm::Text)
    }

    fn visit_u64<E>(self, _: u64) -> Result<ItemForm, E> {
        Ok(ItemForm::Token)
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut tokens: A) -> Result<ItemForm, A::Error> {
        let mut count = 0_usize;
        while tokens.next_element::<u64>()?.is_some() {
            count += 1;
        }
        if count == 0 { Err(A::Error::custom("a list of tokens is empty")) } else { Ok(ItemForm::Tokens) }
    }
}

struct DocumentsWalk<'w, 'a> {
    each: &'w mut dyn FnMut(Cow<'a, str>),
}

impl<'a> DeserializeSeed<'a> for DocumentsWalk<'_, 'a> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'a> Visitor<'a> for DocumentsWalk<'_, 'a> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of documents")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut items: A) -> Result<(), A::Error> {
        let mut count = 0_usize;
        while let Some(Document(text)) = items.next_element()? {
            (self.each)(text);
            count += 1;
        }
        if count == 0 { Err(A::Error::custom("it is empty")) } else { Ok(()) }
    }
}

/// A text, or an object with one.
struct Document<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Document<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct DocumentVisitor;

        impl<'de> Visitor<'de> for DocumentVisitor {
            type Value = Document<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a text or an object with `text`")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Document<'de>, E> {
                Ok(Document(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Document<'de>, E> {
                Ok(Document(Cow::Owned(text.to_owned())))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document<'de>, A::Error> {
                let mut text = None;
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    if key == "text" {
                        text = Some(map.next_value::<Cow<'de, str>>()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                text.map(Document).ok_or_else(|| A::Error::missing_field("text"))
            }
        }

        deserializer.deserialize_any(DocumentVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OpenAiApi::{ChatCompletions, Completions, Embeddings, Rerank};

    fn param(api: OpenAiApi, body: &str) -> Result<(), Option<&'static str>> {
        read_head(api, body.as_bytes()).map(drop).map_err(|error| error.param)
    }

    #[test]
    fn fields_that_the_server_needs_are_checked_and_named() {
        let table: &[(OpenAiApi, &str, Option<&str>)] = &[
            (ChatCompletions, r#"{"messages": [{}]}"#, Some("model")),
            (ChatCompletions, r#"{"model": 1, "messages": [{}]}"#, Some("model")),
            (ChatCompletions, r#"{"model": null, "messages": [{}]}"#, Some("model")),
            (ChatCompletions, r#"{"model": "m"}"#, Some("messages")),
            (ChatCompletions, r#"{"model": "m", "messages": []}"#, Some("messages")),
            (ChatCompletions, r#"{"model": "m", "messages": {}}"#, Some("messages")),
            (ChatCompletions, r#"{"model": "m", "messages": "hi"}"#, Some("messages")),
            (ChatCompletions, r#"{"model": "m", "messages": [{}, "hi"]}"#, Some("messages")),
            (ChatCompletions, r#"{"model": "m", "messages": [{}], "stream": 1}"#, Some("stream")),
            (ChatCompletions, r#"{"model": "m", "messages": [{}], "stream": "true"}"#, Some("stream")),
            (Completions, r#"{"model": "m"}"#, Some("prompt")),
            (Completions, r#"{"model": "m", "prompt": []}"#, Some("prompt")),
            (Completions, r#"{"model": "m", "prompt": [[]]}"#, Some("prompt")),
            (Completions, r#"{"model": "m", "prompt": 1}"#, Some("prompt")),
            (Completions, r#"{"model": "m", "prompt": {}}"#, Some("prompt")),
            (Completions, r#"{"model": "m", "prompt": ["a", 1]}"#, Some("prompt")),
            (Completions, r#"{"model": "m", "prompt": [1, [1]]}"#, Some("prompt")),
            (Completions, r#"{"model": "m", "prompt": [1.5]}"#, Some("prompt")),
            (Completions, r#"{"model": "m", "prompt": [-1]}"#, Some("prompt")),
            (Completions, r#"{"model": "m", "prompt": [["a"]]}"#, Some("prompt")),
            (Completions, r#"{"model": "m", "prompt": [null]}"#, Some("prompt")),
            (Embeddings, r#"{"model": "m", "input": ""}"#, Some("input")),
            (Embeddings, r#"{"model": "m", "input": []}"#, Some("input")),
            (Embeddings, r#"{"model": "m", "input": "a", "encoding_format": "hex"}"#, Some("encoding_format")),
            (Embeddings, r#"{"model": "m", "input": "a", "encoding_format": 1}"#, Some("encoding_format")),
            (Embeddings, r#"{"model": "m", "input": "a", "dimensions": 0}"#, Some("dimensions")),
            (Embeddings, r#"{"model": "m", "input": "a", "dimensions": -1}"#, Some("dimensions")),
            (Embeddings, r#"{"model": "m", "input": "a", "dimensions": 1.5}"#, Some("dimensions")),
            (Rerank, r#"{"model": "m", "documents": ["a"]}"#, Some("query")),
            (Rerank, r#"{"model": "m", "query": 1, "documents": ["a"]}"#, Some("query")),
            (Rerank, r#"{"model": "m", "query": "q"}"#, Some("documents")),
            (Rerank, r#"{"model": "m", "query": "q", "documents": []}"#, Some("documents")),
            (Rerank, r#"{"model": "m", "query": "q", "documents": "a"}"#, Some("documents")),
            (Rerank, r#"{"model": "m", "query": "q", "documents": [1]}"#, Some("documents")),
            (Rerank, r#"{"model": "m", "query": "q", "documents": [{}]}"#, Some("documents")),
            (Rerank, r#"{"model": "m", "query": "q", "documents": [{"text": 1}]}"#, Some("documents")),
            (Rerank, r#"{"model": "m", "query": "q", "documents": ["a"], "top_n": -1}"#, Some("top_n")),
            (Rerank, r#"{"model": "m", "query": "q", "documents": ["a"], "top_n": 1.5}"#, Some("top_n")),
            (
                Rerank,
                r#"{"model": "m", "query": "q", "documents": ["a"], "return_documents": 1}"#,
                Some("return_documents"),
            ),
        ];
        for (api, body, expected) in table {
            assert_eq!(param(*api, body), Err(*expected), "{body}");
        }
        let valid: &[(OpenAiApi, &str)] = &[
            (ChatCompletions, r#"{"model": "m", "messages": [{"role": "user"}], "stream": null, "top_k": [{"a": 1}]}"#),
            (Completions, r#"{"model": "m", "prompt": ""}"#),
            (Completions, r#"{"model": "m", "prompt": ["a", "\u00e9"]}"#),
            (Completions, r#"{"model": "m", "prompt": [1, 2]}"#),
            (Completions, r#"{"model": "m", "prompt": [[1], [2, 3]]}"#),
            (Embeddings, r#"{"model": "m", "input": ["a"], "encoding_format": null, "dimensions": null}"#),
            (Rerank, r#"{"model": "m", "query": "", "documents": ["a", {"text": "b", "other": []}]}"#),
            (Rerank, r#"{"model": "m", "query": "q", "documents": ["a"], "top_n": 0}"#),
        ];
        for (api, body) in valid {
            assert_eq!(param(*api, body), Ok(()), "{body}");
        }
    }

    #[test]
    fn bodies_that_are_no_objects_are_errors_without_a_field() {
        let deep =
            format!("{{\"model\": \"m\", \"prompt\": \"a\", \"x\": {}1{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(param(Completions, &deep), Ok(()), "nothing of it is kept");
        for body in ["", "null", "[]", "1", "\"a\"", "{", "{\"model\": \"m\"", "{\"model\": NaN}", "{}x"] {
            assert_eq!(param(Completions, body), Err(None), "{body}");
        }
        assert_eq!(param(Completions, "\u{feff}{}"), Err(Some("model")), "the object has none");
        assert_eq!(param(Completions, "\u{feff}\u{feff}{}"), Err(None));
        assert_eq!(read_head(Completions, b"{\"model\": \"\xff\"}").unwrap_err().param, None);
    }

    #[test]
    fn the_last_of_fields_with_one_name_counts() {
        let head = read_head(Completions, br#"{"model": 1, "model": "b", "prompt": 1, "prompt": "x", "stream": true}"#);
        let expected =
            OpenAiHead { model: "b".to_owned(), stream: true, encoding: VectorEncoding::Float, dimensions: None };
        assert_eq!(head.unwrap(), expected);
    }

    #[test]
    fn texts_become_elements() {
        let texts = |body: &str| {
            let texts = read_texts(Embeddings, body.as_bytes())?;
            Ok::<_, OpenAiError>(
                texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(texts(r#"{"input": "a\n"}"#).unwrap(), ["a\n"]);
        assert_eq!(texts(r#"{"input": ["a", "", "\u00e9"]}"#).unwrap(), ["a", "", "é"]);
        for tokens in ["[1]", "[[1]]"] {
            let error = texts(&format!(r#"{{"input": {tokens}}}"#)).unwrap_err();
            assert!(error.message.contains("lists of tokens are not supported"), "{error}");
        }
        let body = br#"{"query": "q", "documents": ["a", {"text": "b"}], "top_n": 1, "return_documents": false}"#;
        let rerank = read_rerank(body).unwrap();
        let documents: Vec<&[u8]> = rerank.documents.iter().collect();
        assert_eq!(
            (&*rerank.query, documents, rerank.top_n, rerank.return_documents),
            ("q", vec![&b"a"[..], b"b"], Some(1), false)
        );
        let all = read_rerank(br#"{"query": "q", "documents": ["a"], "top_n": 0}"#).unwrap();
        assert_eq!(all.top_n, None);
    }
}
