//! Answers with 16 MiB of JSON and more, which are written while they are sent.

use std::io::Read;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use crate::support::grpc::Http2;
use crate::support::{Answer, Connection, Folder, TestServer, wait_until};

const INFER: &str = "/v2/models/echo/infer";

/// Numbers whose text is estimated at more than 16 MiB.
const WIDE: usize = 6_000_000;

fn server(settings: &Value) -> TestServer {
    TestServer::start(Folder::new().with_identity("echo").settings(settings))
}

/// Returns the body of a request with binary data, and the length of its JSON.
fn binary(datatype: &str, shape: &[usize], data: &[u8], outputs: &Value) -> (Vec<u8>, String) {
    let input =
        json!({"name": "x", "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": data.len()}});
    let small = json!({"name": "small", "datatype": "INT8", "shape": [3], "data": [1, 2, 3]});
    let head = json!({"id": "i", "inputs": [input, small], "outputs": outputs}).to_string();
    let length = head.len().to_string();
    ([head.as_bytes(), data].concat(), length)
}

fn wide_bytes(count: usize) -> Vec<u8> {
    (0..=u8::MAX).cycle().take(count).collect()
}

/// Sends a request over a connection of its own, whose answers are not decompressed.
fn send(server: &TestServer, (body, length): &(Vec<u8>, String), headers: &[(&str, &str)]) -> Connection {
    let mut connection = server.connect();
    let more = headers.iter().flat_map(|(name, value)| [*name, ": ", *value, "\r\n"]).collect::<String>();
    connection.write(format!(
        "POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-type: application/octet-stream\r\n{more}\
         inference-header-content-length: {length}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    ));
    connection.write(body);
    connection
}

fn ask(server: &TestServer, request: &(Vec<u8>, String), headers: &[(&str, &str)]) -> Answer {
    send(server, request, headers).answer()
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut plain).unwrap();
    plain
}

/// Returns the JSON that answers a request for one wide tensor, and a small one.
fn expected(data: &[u8]) -> String {
    let numbers: Vec<String> = data.iter().map(u8::to_string).collect();
    format!(
        r#"{{"model_name":"echo","id":"i","parameters":{{}},"outputs":[{{"name":"x","shape":[{},2],"datatype":"UINT8","data":[{}]}},{{"name":"small","shape":[3],"datatype":"INT8","data":[1,2,3]}}]}}"#,
        data.len() / 2,
        numbers.join(",")
    )
}

#[test]
fn wide_answers_are_sent_in_pieces() {
    let server = server(&json!({}));
    let data = wide_bytes(WIDE);
    let request = binary("UINT8", &[WIDE / 2, 2], &data, &json!([]));
    let expected = expected(&data);
    let answer = ask(&server, &request, &[]);
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"));
    assert_eq!((answer.header("content-length"), answer.header("transfer-encoding")), ("", "chunked"));
    assert!(answer.header("ce-source").contains("seldon"), "{:?}", answer.headers);
    assert!(answer.body == expected.as_bytes());

    let compressed = ask(&server, &request, &[("accept-encoding", "gzip")]);
    assert_eq!((compressed.header("content-encoding"), compressed.header("vary")), ("gzip", "accept-encoding"));
    assert!(compressed.body.len() < WIDE && gunzip(&compressed.body) == expected.as_bytes());

    // One that is not wide has a length.
    let narrow = binary("UINT8", &[1000, 2], &data[..2000], &json!([]));
    assert_ne!(ask(&server, &narrow, &[]).header("content-length"), "");
    let metrics = server.scrape();
    let count = r#"path="/v2/models/{model_name}/infer",status_code="200"} 3"#;
    assert!(metrics.text().contains(count), "{}", metrics.text());
}

#[tokio::test]
async fn wide_answers_are_complete_over_http_1_0_and_2() {
    let server = server(&json!({}));
    let data = wide_bytes(WIDE);
    let (body, length) = binary("UINT8", &[WIDE / 2, 2], &data, &json!([]));
    let expected = expected(&data);
    let mut old = server.connect();
    old.write(format!(
        "POST {INFER} HTTP/1.0\r\ncontent-type: application/octet-stream\r\ninference-header-content-length: {length}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    ));
    old.write(&body);
    let answer = String::from_utf8(old.rest_bytes()).unwrap();
    let (head, received) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
    assert!(!head.contains("transfer-encoding") && !head.contains("content-length"), "{head}");
    assert!(received == expected);

    let headers = [("content-type", "application/octet-stream"), ("inference-header-content-length", length.as_str())];
    let answer = Http2::connect(server.http).await.call(INFER, &headers, &body).await;
    assert!(answer.status == 200 && answer.body == expected.as_bytes());
}

#[test]
fn wide_answers_may_have_binary_data_after_them() {
    let server = server(&json!({}));
    let data = wide_bytes(WIDE);
    let outputs = json!([{"name": "x"}, {"name": "small", "parameters": {"binary_data": true}}]);
    let request = binary("UINT8", &[WIDE], &data, &outputs);
    let plain = ask(&server, &request, &[]);
    assert_eq!(plain.header("content-type"), "application/octet-stream");
    assert_eq!(plain.header("transfer-encoding"), "chunked");
    let compressed = ask(&server, &request, &[("accept-encoding", "gzip")]);
    for (answer, body) in [(&plain, plain.body.clone()), (&compressed, gunzip(&compressed.body))] {
        let length: usize = answer.header("inference-header-content-length").parse().unwrap();
        assert_eq!(body[length..], [1, 2, 3]);
        let json: Value = serde_json::from_slice(&body[..length]).unwrap();
        assert!(json["outputs"][0]["data"] == json!(data));
        assert_eq!(json["outputs"][1]["parameters"], json!({"binary_data_size": 3}));
    }
}

#[test]
fn wide_predictions_of_v1_and_events_are_sent_in_pieces() {
    let server = server(&json!({}));
    let numbers: Vec<usize> = (0..100).collect();
    let one = json!(vec![&numbers; 8000]).to_string();
    let row: serde_json::Map<String, Value> =
        numbers.iter().map(|&number| (format!("c{number}"), number.into())).collect();
    let several = json!(vec![row; 8000]).to_string();
    for instances in [&one, &several] {
        let answer = server.post("/v1/models/echo:predict", format!(r#"{{"instances":{instances}}}"#));
        assert_eq!((answer.status, answer.header("content-length")), (200, ""));
        assert!(answer.text() == format!(r#"{{"predictions":{instances}}}"#));
    }
    let structured = [("content-type", "application/cloudevents+json")];
    let event = |data: &str| format!(r#"{{"specversion":"1.0","id":"abc","source":"src","type":"typ","data":{data}}}"#);
    let body = event(&format!(r#"{{"instances":{one}}}"#));
    let answer = server.post_with("/v1/models/echo:predict", &structured, body);
    assert_eq!((answer.status, answer.header("content-length")), (200, ""));
    assert_eq!(answer.header("content-type"), "application/cloudevents+json");
    assert!(answer.text().starts_with(r#"{"specversion":"1.0","id":"#));
    assert!(answer.text().ends_with(&format!(r#""data":{{"predictions":{one}}}}}"#)));

    let flat = json!(vec![7; 800_000]).to_string();
    let tensor = format!(r#"{{"name":"x","shape":[800000],"datatype":"INT64","data":{flat}}}"#);
    let body = event(&format!(r#"{{"id":"r","inputs":[{tensor}]}}"#));
    let answer = server.post_with(INFER, &structured, body);
    assert_eq!((answer.status, answer.header("content-length")), (200, ""));
    assert!(answer.text().contains(r#""type":"io.kserve.inference.response""#));
    assert!(answer.text().ends_with(&format!(r#""outputs":[{tensor}]}}}}"#)));
}

#[test]
fn wide_answers_that_json_cannot_hold_are_errors() {
    let server = server(&json!({"non_finite_json": "error"}));
    let mut numbers = vec![0.5_f32; 2_000_000];
    numbers[1_999_999] = f32::NAN;
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let answer = ask(&server, &binary("FP32", &[2_000_000], &numbers, &json!([])), &[]);
    assert!(answer.error(500).starts_with("output `x`: element 1999999 is NaN"), "{answer:?}");
    let element = vec![0xff; 18 << 20];
    let raw = [&u32::try_from(element.len()).unwrap().to_le_bytes()[..], &element].concat();
    let answer = ask(&server, &binary("BYTES", &[1], &raw, &json!([])), &[]);
    assert!(answer.error(500).starts_with("output `x`: element 0 is not UTF-8"), "{answer:?}");
}

fn bytes_in_flight(server: &TestServer) -> usize {
    let scrape = server.scrape();
    let line = scrape.text().lines().find_map(|line| line.strip_prefix("request_bytes_in_flight ")).unwrap();
    line.parse().unwrap()
}

/// Sends a request and waits for the first byte of its answer, which is not read.
fn unread(server: &TestServer, request: &(Vec<u8>, String)) -> Connection {
    let connection = send(server, request, &[]);
    connection.wait_for_response();
    connection
}

#[test]
fn unread_wide_answers_take_the_memory_of_their_tensors() {
    let server = server(&json!({}));
    let size = 16 << 20;
    let request = binary("UINT8", &[size], &vec![200; size], &json!([]));
    let before = server.memory();
    let mut answers: Vec<_> = (0..8).map(|_| unread(&server, &request)).collect();
    let more = server.memory().saturating_sub(before) >> 10;
    // Their tensors take 128, and their text would take 470 more.
    assert!(more < 256, "eight answers take {more} MiB");
    let held = bytes_in_flight(&server);
    assert!(held >= 8 * size && held < 8 * (size + (2 << 20)), "{held}");
    // They are complete when they are read.
    let answer = answers.remove(0).answer();
    assert!(answer.status == 200 && answer.body.len() > 4 * size && answer.body.ends_with(b",\"data\":[1,2,3]}]}"));
    drop(answers);
    wait_until("the bytes of clients that left are free", || bytes_in_flight(&server) == 0);
}

#[test]
fn wide_answer_that_is_not_read_ends_after_the_timeout() {
    let server = server(&json!({"http_write_timeout": 0.3}));
    let size = 16 << 20;
    let mut connection = unread(&server, &binary("UINT8", &[size], &vec![200; size], &json!([])));
    wait_until("its bytes are free", || bytes_in_flight(&server) == 0);
    let received = connection.rest_bytes();
    assert!(received.len() < 4 * size && !received.ends_with(b"0\r\n\r\n"));
}
