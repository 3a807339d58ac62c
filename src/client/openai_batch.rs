//! Batch files of OpenAI's API.
//!
//! A line of the input is `{"custom_id": …, "method": "POST", "url": "/v1/…", "body": {…}}`. Its line of the output is
//! `{"id": …, "custom_id": …, "response": {"status_code": …, "request_id": …, "body": {…}}, "error": null}`, where `id` has the index
//! of the row. Failed rows have the same keys in another order, so that their lines start differently.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::lines::{InputLine, MAX_LINE};
use crate::remote::{OpenAiAnswer, OpenAiRequest};

/// The start of every line that has an answer,
pub(super) const ANSWER_PREFIX: &[u8] = b"{\"id\":\"batch_req_";
/// and of every line that reports a failure.
pub(super) const FAILURE_PREFIX: &[u8] = b"{\"custom_id\":";
/// What the index of a row follows in the `id` of its line.
const ID_PREFIX: &str = "batch_req_";

/// A line of the input.
#[derive(Deserialize)]
struct BatchLine<'a> {
    custom_id: Option<String>,
    method: Option<String>,
    url: Option<String>,
    #[serde(borrow)]
    body: Option<&'a RawValue>,
}

/// A row's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BatchRow {
    pub(super) custom_id: String,
    pub(super) request: OpenAiRequest,
}

/// Reports whether a file's first line is one of OpenAI's batch files. Returns false if the file cannot be read.
pub fn is_openai_batch(path: &Path) -> bool {
    #[derive(Deserialize)]
    #[expect(dead_code, reason = "only whether they are there counts")]
    struct Keys {
        custom_id: IgnoredAny,
        url: IgnoredAny,
        body: IgnoredAny,
    }
    // Reading from a pipe would take its bytes from the run.
    if !path.is_file() {
        return false;
    }
    let Ok(file) = std::fs::File::open(path) else { return false };
    let first = io::BufReader::new(file.take(MAX_LINE as u64));
    serde_json::Deserializer::from_reader(first).into_iter::<Keys>().next().is_some_and(|line| line.is_ok())
}

/// The result of a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum BatchOutcome<'a> {
    Answered(&'a OpenAiAnswer),
    /// The server has answered with the status of a failure.
    Refused(&'a OpenAiAnswer),
    Failed {
        code: &'a str,
        message: &'a str,
    },
}

/// Reads a line of the input. `model` overrides the model that the line names.
pub(super) fn read_row(line: &InputLine, model: Option<&str>) -> Result<BatchRow, String> {
    let text = match line {
        InputLine::Text(text) => text.trim_ascii(),
        InputLine::TooLong(found) => return Err(format!("the line has {found} bytes, over the limit of {MAX_LINE}")),
    };
    if text.is_empty() {
        return Err("the line is empty".to_owned());
    }
    let BatchLine { custom_id, method, url, body } =
        serde_json::from_slice(text).map_err(|error| format!("the line is not a request of a batch: {error}"))?;
    let custom_id = custom_id.ok_or("`custom_id` is required")?;
    match method.as_deref() {
        None | Some("POST") => {}
        Some(other) => return Err(format!("`method`: `{}`: expected `POST`", other.escape_debug())),
    }
    let path = url.ok_or("`url` is required")?;
    // The line must not choose the server, or leave the API, with the key of the caller.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'/' | b'-' | b'_');
    if !(path.starts_with("/v1/") && path.bytes().all(is_plain) && !path.contains("//")) {
        let expected = "expected the path of a route, such as `/v1/embeddings`";
        return Err(format!("`url`: `{}`: {expected}", path.escape_debug()));
    }
    let body = body.ok_or("`body` is required")?;
    let fields: Result<BTreeMap<String, &RawValue>, _> = serde_json::from_str(body.get());
    let mut fields = fields.map_err(|_| "`body`: expected an object")?;
    if fields.get("stream").is_some_and(|value| !matches!(value.get(), "false" | "null")) {
        return Err("`body.stream`: the answers of a batch are not streamed".to_owned());
    }
    let request = |body: &str| OpenAiRequest {
        id: Uuid::new_v4().to_string(),
        path,
        body: Bytes::copy_from_slice(body.as_bytes()),
    };
    let Some(model) = model else { return Ok(BatchRow { custom_id, request: request(body.get()) }) };
    let model = RawValue::from_string(json!(model).to_string()).map_err(|error| error.to_string())?;
    fields.insert("model".to_owned(), &model);
    let body = serde_json::to_string(&fields).map_err(|error| error.to_string())?;
    Ok(BatchRow { custom_id, request: request(&body) })
}

/// Returns the `custom_id` of a line, even if the rest of it is invalid.
pub(super) fn custom_id(line: &InputLine) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        custom_id: Option<String>,
    }
    let InputLine::Text(text) = line else { return None };
    serde_json::from_slice::<Named>(text).ok()?.custom_id
}

/// Returns the index of the row that a line of the output answers, from its `id`.
pub(super) fn index_of(id: &str) -> Option<u64> {
    id.strip_prefix(ID_PREFIX)?.parse().ok()
}

/// Writes the line of a row at `index` of the input.
pub(super) fn write_line(lines: &mut Vec<u8>, index: u64, custom_id: Option<&str>, outcome: BatchOutcome<'_>) {
    let (id, custom_id) = (format!("\"id\":\"{ID_PREFIX}{index}\""), format!("\"custom_id\":{}", json!(custom_id)));
    let response = |OpenAiAnswer { status, request_id, body }: &OpenAiAnswer| {
        format!("{{\"status_code\":{status},\"request_id\":{},\"body\":{body}}}", json!(request_id))
    };
    let line = match outcome {
        BatchOutcome::Answered(answer) => {
            format!("{{{id},{custom_id},\"response\":{},\"error\":null}}\n", response(answer))
        }
        BatchOutcome::Refused(answer) => {
            format!("{{{custom_id},{id},\"response\":{},\"error\":null}}\n", response(answer))
        }
        BatchOutcome::Failed { code, message } => {
            let error = json!({"code": code, "message": message});
            format!("{{{custom_id},{id},\"response\":null,\"error\":{error}}}\n")
        }
    };
    lines.extend_from_slice(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> InputLine {
        InputLine::Text(text.as_bytes().to_vec())
    }

    fn row(fields: &str) -> String {
        format!(r#"{{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{{"input":"x"}}{fields}}}"#)
    }

    #[test]
    fn openai_batch_rows_keep_their_body() {
        let text = r#"{"custom_id":"a","method":"POST","url":"/v1/embeddings","body":{"model":"m", "x":1e400, "stream":false}}"#;
        let BatchRow { custom_id, request } = read_row(&line(text), None).unwrap();
        assert_eq!((custom_id.as_str(), request.path.as_str()), ("a", "/v1/embeddings"));
        assert_eq!(request.body, r#"{"model":"m", "x":1e400, "stream":false}"#);
        let BatchRow { request, .. } = read_row(&line(text), Some("a\"b")).unwrap();
        assert_eq!(request.body, r#"{"model":"a\"b","stream":false,"x":1e400}"#);
        let BatchRow { request, .. } = read_row(&line(&row("")), Some("m")).unwrap();
        assert_eq!(request.body, r#"{"input":"x","model":"m"}"#);
    }

    #[test]
    fn openai_batch_rows_choose_no_other_server_or_route() {
        for path in [
            "https://evil/v1/embeddings",
            "//evil/v1/embeddings",
            "/v2/repository/models/m/unload",
            "/v1/../v2/repository/index",
            "/v1/%2e%2e/x",
            "/v1//x",
            "/v1/models/m:predict",
            "/v1/embeddings?a=b",
            "",
        ] {
            let text = row("").replace("/v1/embeddings", path);
            let invalid = read_row(&line(&text), None).unwrap_err();
            let expected = format!("`url`: `{path}`: expected the path of a route, such as `/v1/embeddings`");
            assert_eq!(invalid, expected);
        }
    }

    #[test]
    fn openai_batch_invalid_rows_name_the_reason() {
        let message = |text: &str| {
            let invalid = read_row(&line(text), None).unwrap_err();
            (custom_id(&line(text)).unwrap_or_default(), invalid)
        };
        let named = |message: &str| ("a".to_owned(), message.to_owned());
        assert_eq!(message(""), (String::new(), "the line is empty".to_owned()));
        assert_eq!(message("{}"), (String::new(), "`custom_id` is required".to_owned()));
        assert_eq!(message(r#"{"custom_id":"a"}"#), named("`url` is required"));
        assert_eq!(message(&row("").replace("POST", "GET")), named("`method`: `GET`: expected `POST`"));
        assert_eq!(message(r#"{"custom_id":"a","url":"/v1/x"}"#), named("`body` is required"));
        assert_eq!(message(r#"{"custom_id":"a","url":"/v1/x","body":[]}"#), named("`body`: expected an object"));
        let streamed = r#"{"custom_id":"a","url":"/v1/x","body":{"stream":true}}"#;
        assert_eq!(message(streamed), named("`body.stream`: the answers of a batch are not streamed"));
        assert!(message("[1").1.starts_with("the line is not a request of a batch: "));
        let invalid = read_row(&InputLine::TooLong(7), None).unwrap_err();
        assert_eq!(invalid, "the line has 7 bytes, over the limit of 33554432");
    }

    #[test]
    fn openai_batch_lines_have_one_form() {
        let answer = |status| OpenAiAnswer { status, request_id: "r".to_owned(), body: r#"{"a":1}"#.to_owned() };
        let mut lines = Vec::new();
        write_line(&mut lines, 7, Some("x\"y"), BatchOutcome::Answered(&answer(200)));
        write_line(&mut lines, 8, Some("b"), BatchOutcome::Refused(&answer(404)));
        write_line(&mut lines, 9, None, BatchOutcome::Failed { code: "request_failed", message: "no" });
        let lines = String::from_utf8(lines).unwrap();
        let expected = [
            r#"{"id":"batch_req_7","custom_id":"x\"y","response":{"status_code":200,"request_id":"r","body":{"a":1}},"error":null}"#,
            r#"{"custom_id":"b","id":"batch_req_8","response":{"status_code":404,"request_id":"r","body":{"a":1}},"error":null}"#,
            r#"{"custom_id":null,"id":"batch_req_9","response":null,"error":{"code":"request_failed","message":"no"}}"#,
        ];
        assert_eq!(lines.lines().collect::<Vec<_>>(), expected);
        assert!(
            expected[0].as_bytes().starts_with(ANSWER_PREFIX) && expected[2].as_bytes().starts_with(FAILURE_PREFIX)
        );
        assert_eq!((index_of("batch_req_7"), index_of("7"), index_of("batch_req_x")), (Some(7), None, None));
    }

    #[test]
    fn openai_batch_is_recognized_by_its_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.jsonl");
        let is_batch = |text: &str| {
            std::fs::write(&path, text).unwrap();
            is_openai_batch(&path)
        };
        assert!(is_batch(&row("")) && is_batch(&format!("{}\n{{\"inputs\":[]}}\n", row(",\"more\":1"))));
        for other in ["", "{", "[]", r#"{"inputs":[]}"#, r#"{"custom_id":"a","url":"/v1/x"}"#, "\n\n"] {
            assert!(!is_batch(other), "{other}");
        }
        assert!(!is_openai_batch(folder.path()));
    }
}
