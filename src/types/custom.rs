//! Custom routes of models, and the plain HTTP requests and responses that they handle.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use regex_lite::{Captures, Regex};
use serde::{Deserialize, Serialize};

/// A route that a model defines.
#[derive(Debug, Clone)]
pub struct CustomRoute {
    pub method: Method,
    pub template: PathTemplate,
}

/// What a request of KServe's V1 protocol asks a model for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum V1Verb {
    Predict,
    Explain,
    /// Not a request: the server asks whether the model is ready.
    Ready,
}

/// The indexes with which a runtime's `call` answers requests of KServe's V1 protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct V1Handlers {
    pub predict: usize,
    pub explain: usize,
    /// Answers whether the model is ready: 200, or another status and the reason.
    pub ready: Option<usize>,
}

/// An endpoint of OpenAI's API that a model may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OpenAiApi {
    ChatCompletions,
    Completions,
    Embeddings,
    Rerank,
}

impl OpenAiApi {
    pub const ALL: [Self; 4] = [Self::ChatCompletions, Self::Completions, Self::Embeddings, Self::Rerank];
}

/// The indexes with which a runtime's `call` answers requests of OpenAI's API. A model may answer some of them only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenAiHandlers {
    pub chat_completions: Option<usize>,
    pub completions: Option<usize>,
    pub embeddings: Option<usize>,
    pub rerank: Option<usize>,
}

impl OpenAiHandlers {
    pub const NONE: Self = Self { chat_completions: None, completions: None, embeddings: None, rerank: None };

    /// Returns the index of the handler of an endpoint.
    pub const fn get(&self, api: OpenAiApi) -> Option<usize> {
        match api {
            OpenAiApi::ChatCompletions => self.chat_completions,
            OpenAiApi::Completions => self.completions,
            OpenAiApi::Embeddings => self.embeddings,
            OpenAiApi::Rerank => self.rerank,
        }
    }

    /// Reports whether the model answers no endpoint.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }
}

/// How many tokens a model says that a request took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct TokenUsage {
    #[serde(default)]
    pub prompt_tokens: u64,
    #[serde(default)]
    pub completion_tokens: u64,
}

/// A request to a custom route.
#[derive(Debug, Clone)]
pub struct CustomCall {
    pub method: Method,
    /// Percent-decoded, without the server's root path.
    pub path: String,
    /// The names and values of the template's parameters, in their order.
    pub parameters: Vec<(String, String)>,
    /// The text after the question mark, not decoded; empty if there is none.
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// The model's response to such a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomReply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A path with parameters: `/items/{id}`, `/files/{name:path}`.
///
/// A parameter matches one segment or a part of one, unless its converter differs: `int` and `float` match digits, `uuid`
/// a UUID, `path` everything, including slashes.
#[derive(Debug, Clone)]
pub struct PathTemplate {
    text: String,
    parameters: Vec<String>,
    pattern: Regex,
    sample: String,
}

/// Why a path template is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("it does not begin with `/`")]
    NoSlash,
    #[error("it has the parameter `{name}` twice")]
    Twice { name: String },
    #[error("it has the unknown converter `{found}`, expected `str`, `int`, `float`, `uuid` or `path`")]
    Converter { found: String },
    #[error("it cannot be matched: {reason}")]
    Pattern { reason: String },
}

impl PathTemplate {
    /// Parses a template.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a path, or if one of its parameters is invalid.
    pub fn new(text: &str) -> Result<Self, TemplateError> {
        if !text.starts_with('/') {
            return Err(TemplateError::NoSlash);
        }
        let parameter = Regex::new(r"\{([a-zA-Z_][a-zA-Z0-9_]*)(?::([a-zA-Z_][a-zA-Z0-9_]*))?\}")
            .map_err(|error| TemplateError::Pattern { reason: error.to_string() })?;
        let (mut pattern, mut sample) = ("^".to_owned(), String::new());
        let mut parameters: Vec<String> = Vec::new();
        let mut end = 0;
        let group = |captures: &Captures<'_>, index| captures.get(index).map_or("", |found| found.as_str()).to_owned();
        for captures in parameter.captures_iter(text) {
            let Some(whole) = captures.get(0) else { continue };
            let literal = &text[end..whole.start()];
            end = whole.end();
            let (name, converter) = (group(&captures, 1), group(&captures, 2));
            let (values, example) = match converter.as_str() {
                "" | "str" => ("[^/]+", "x"),
                "int" => ("[0-9]+", "1"),
                "float" => (r"[0-9]+(?:\.[0-9]+)?", "1.0"),
                "uuid" => {
                    ("[0-9a-fA-F]{8}-?(?:[0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}", "00000000-0000-0000-0000-000000000000")
                }
                "path" => (".*", "x"),
                _ => return Err(TemplateError::Converter { found: converter }),
            };
            if parameters.contains(&name) {
                return Err(TemplateError::Twice { name });
            }
            pattern.push_str(&regex_lite::escape(literal));
            pattern.push('(');
            pattern.push_str(values);
            pattern.push(')');
            sample.push_str(literal);
            sample.push_str(example);
            parameters.push(name);
        }
        pattern.push_str(&regex_lite::escape(&text[end..]));
        pattern.push('$');
        sample.push_str(&text[end..]);
        let pattern = Regex::new(&pattern).map_err(|error| TemplateError::Pattern { reason: error.to_string() })?;
        Ok(Self { text: text.to_owned(), parameters, pattern, sample })
    }

    /// Returns the name and value of each parameter in `path`, which is already decoded, or `None` if it does not match.
    pub fn matches(&self, path: &str) -> Option<Vec<(String, String)>> {
        let captures = self.pattern.captures(path)?;
        let values = captures.iter().skip(1).map(|value| value.map_or("", |value| value.as_str()).to_owned());
        Some(self.parameters.iter().cloned().zip(values).collect())
    }

    /// Returns the template as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns an example of a path that the template matches.
    pub fn sample(&self) -> &str {
        &self.sample
    }
}

impl fmt::Display for PathTemplate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn values(template: &str, path: &str) -> Option<Vec<String>> {
        let template = PathTemplate::new(template).unwrap();
        assert!(template.matches(template.sample()).is_some());
        Some(template.matches(path)?.into_iter().map(|(_, value)| value).collect())
    }

    #[test]
    fn path_template_parameters_match_what_their_converter_accepts() {
        let cases: [(&str, &str, Option<&[&str]>); 13] = [
            ("/a.b", "/a.b", Some(&[])),
            ("/a.b", "/axb", None),
            ("/a", "/a/", None),
            ("/items/{id}", "/items/5", Some(&["5"])),
            ("/items/{id}", "/items/", None),
            ("/items/{id}", "/items/a/b", None),
            ("/items/{id:int}", "/items/x", None),
            ("/items/{id:float}", "/items/1.5", Some(&["1.5"])),
            ("/files/{name:path}", "/files/a/b c/d", Some(&["a/b c/d"])),
            ("/files/{name:path}", "/files/", Some(&[""])),
            ("/f-{a}-{b}.txt", "/f-a-b-c.txt", Some(&["a-b", "c"])),
            ("/{id:uuid}", "/00000000-0000-0000-0000-00000000000g", None),
            ("/{{id}}", "/{5}", Some(&["5"])),
        ];
        for (template, path, expected) in cases {
            let found = values(template, path);
            assert_eq!(
                found.as_deref(),
                expected.map(|values| values.iter().map(|&v| v.to_owned()).collect::<Vec<_>>()).as_deref(),
                "{template} {path}"
            );
        }
    }

    #[test]
    fn path_template_rejects_invalid_text_with_reason() {
        assert_eq!(PathTemplate::new("a").unwrap_err(), TemplateError::NoSlash);
        assert_eq!(PathTemplate::new("/{a}/{a}").unwrap_err(), TemplateError::Twice { name: "a".to_owned() });
        let converter = PathTemplate::new("/{a:slug}").unwrap_err();
        assert_eq!(converter, TemplateError::Converter { found: "slug".to_owned() });
    }
}
