//! CloudEvents in binary and structured mode, on the V1 and V2 protocols.

use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Answer, Folder, ServerBuilder, TestServer};

const PREDICT: &str = "/v1/models/id:predict";
const INFER: &str = "/v2/models/id/infer";
const V1: &str = r#"{"instances":[1,2]}"#;
const V2: &str = r#"{"id":"r","inputs":[{"name":"x","shape":[2],"datatype":"INT64","data":[1,2]}]}"#;
const BINARY: [(&str, &str); 6] = [
    ("ce-specversion", "1.0"),
    ("ce-id", "abc"),
    ("ce-source", "src"),
    ("ce-type", "typ"),
    ("ce-subject", "sub"),
    ("content-type", "application/json"),
];
const STRUCTURED: [(&str, &str); 1] = [("content-type", "application/cloudevents+json; charset=utf-8")];

fn server(variables: &[(&str, &str)]) -> TestServer {
    let builder = ServerBuilder::new(Folder::new().with_identity("id"));
    variables.iter().fold(builder, |builder, (name, value)| builder.env(name, value)).start()
}

fn structured(data: &str) -> String {
    let data: Value = serde_json::from_str(data).unwrap();
    json!({"specversion": "1.0", "id": "abc", "source": "src", "type": "typ", "own": "kept", "data": data}).to_string()
}

/// Returns the attributes of a binary event, without id and time, which are checked.
#[track_caller]
fn attributes(answer: &Answer) -> Vec<(String, String)> {
    let of = |name: &str| answer.header(name).to_owned();
    assert_ne!(Uuid::parse_str(&of("ce-id")).unwrap().to_string(), "abc");
    assert!(chrono::DateTime::parse_from_rfc3339(&of("ce-time")).is_ok(), "{answer:?}");
    let all = answer.headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix("ce-")?;
        Some((name.to_owned(), value.to_str().unwrap().to_owned()))
    });
    let mut all: Vec<_> = all.filter(|(name, _)| name != "id" && name != "time").collect();
    all.sort();
    all
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn binary_v1_event_is_answered_with_one() {
    let server = server(&[]);
    let answer = server.post_with(PREDICT, &BINARY, V1);
    assert_eq!((answer.status, answer.text()), (200, r#"{"predictions":[1,2]}"#));
    assert_eq!(answer.header("content-type"), "application/json");
    let expected =
        [("source", "io.kserve.inference.id"), ("specversion", "1.0"), ("type", "io.kserve.inference.response")];
    assert_eq!(attributes(&answer), pairs(&expected));
    // With one header missing, it is a plain request.
    let answer = server.post_with(PREDICT, &BINARY[1..], V1);
    assert_eq!((answer.status, answer.header("ce-id")), (200, ""));
    // Errors are plain.
    server.post_with(PREDICT, &BINARY, "{").error(400);
}

#[test]
fn structured_v1_event_is_answered_with_one() {
    let server = server(&[]);
    for body in [structured(V1), V1.to_owned()] {
        let answer = server.post_with(PREDICT, &STRUCTURED, &body);
        assert_eq!(answer.header("content-type"), "application/cloudevents+json");
        let event = answer.ok();
        let names: Vec<_> = event.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(names, ["specversion", "id", "source", "type", "time", "data"]);
        assert_eq!(event["data"], json!({"predictions": [1, 2]}));
        assert_eq!((&event["source"], &event["specversion"]), (&json!("io.kserve.inference.id"), &json!("1.0")));
    }
    // The form of an event without its content type: the data counts, and the answer is plain.
    let answer = server.post_with(PREDICT, &[("content-type", "application/json")], structured(V1));
    assert_eq!(answer.text(), r#"{"predictions":[1,2]}"#);
    let encoded = r#"{"specversion":"1.0","id":"i","source":"s","type":"t","data_base64":"eyJpbnN0YW5jZXMiOls3XX0="}"#;
    assert_eq!(server.post_with(PREDICT, &STRUCTURED, encoded).ok()["data"], json!({"predictions": [7]}));
}

#[test]
fn events_of_the_v2_protocol_are_answered_with_events() {
    let server = server(&[]);
    let answer = server.post_with(INFER, &BINARY, V2);
    // The headers of the original, which are an event.
    assert_eq!(answer.ok()["outputs"][0]["data"], json!([1, 2]));
    assert_eq!(answer.header("ce-id"), "r");
    assert_eq!(answer.header("ce-source"), "io.seldon.serving.deployment.mlserver");
    let event = server.post_with(INFER, &STRUCTURED, structured(V2));
    assert!(!event.headers.keys().any(|name| name.as_str().starts_with("ce-")), "{event:?}");
    let event = event.ok();
    assert_eq!(event["data"]["outputs"][0]["data"], json!([1, 2]));
    assert_eq!((&event["data"]["id"], &event["type"]), (&json!("r"), &json!("io.kserve.inference.response")));
}

#[test]
fn binary_tensors_in_the_answer_to_a_structured_event_are_base64() {
    let server = server(&[]);
    let body = V2.replacen('{', r#"{"parameters":{"binary_data_output":true},"#, 1);
    let answer = server.post_with(INFER, &STRUCTURED, structured(&body));
    let length: usize = answer.header("inference-header-content-length").parse().unwrap();
    let event = answer.ok();
    assert_eq!(event["datacontenttype"], json!("application/octet-stream"));
    let data = event["data_base64"].as_str().unwrap();
    let decoded = base64_decode(data);
    assert_eq!(decoded[length..], [1_i64.to_le_bytes(), 2_i64.to_le_bytes()].concat());
}

fn base64_decode(text: &str) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

#[test]
fn variables_choose_the_attributes_of_answers() {
    let server = server(&[("CE_SOURCE", "my.source"), ("CE_TYPE", "my.type"), ("CE_MERGE", "true")]);
    let expected = [("source", "my.source"), ("specversion", "1.0"), ("subject", "sub"), ("type", "my.type")];
    assert_eq!(attributes(&server.post_with(PREDICT, &BINARY, V1)), pairs(&expected));
    let event = server.post_with(PREDICT, &STRUCTURED, structured(V1)).ok();
    assert_eq!(
        (&event["own"], &event["source"], &event["type"]),
        (&json!("kept"), &json!("my.source"), &json!("my.type"))
    );
    let older = structured(V1).replace("\"1.0\"", "\"0.3\"");
    assert_eq!(server.post_with(PREDICT, &STRUCTURED, older).ok()["specversion"], json!("0.3"));
    let answer = server.post_with(INFER, &BINARY, V2);
    let found = ["ce-source", "ce-type", "ce-subject", "ce-id"].map(|name| answer.header(name));
    assert_eq!(found, ["my.source", "my.type", "sub", "r"]);
}

#[test]
fn events_that_cannot_be_read_are_refused() {
    let server = server(&[]);
    for path in [PREDICT, INFER] {
        let batch = [("content-type", "application/cloudevents-batch+json")];
        let message = server.post_with(path, &batch, format!("[{}]", structured(V1))).error(415);
        assert!(message.contains("send each event in a request of its own"), "{message}");
        let incomplete = structured(V1).replace("\"source\":\"src\",", "");
        let message = server.post_with(path, &STRUCTURED, incomplete).error(400);
        assert_eq!(message, "the event lacks `source`, which CloudEvents require");
        server.post_with(path, &STRUCTURED, "{\"specversion\"").error(400);
        let deep = format!(r#"{{"specversion":"1.0","data":{}"#, "[".repeat(1_000_000));
        server.post_with(path, &STRUCTURED, deep).error(400);
    }
}
