//! Urgent requests run before others that wait, over every transport.

use std::fs;

use mlserver::types::protobuf::messages::InferTensorContents;
use serde_json::{Value, json};
use tonic::metadata::MetadataValue;

use crate::support::grpc::{infer_request, inference_client};
use crate::support::worker_models::server;
use crate::support::{Connection, TestServer, eventually};

const INFER: &str = "/v2/models/m/infer";

/// Sends a request of one number, with a parameter and a header that may be empty.
fn send(server: &TestServer, value: i64, parameters: &Value, header: &str) -> Connection {
    let input = json!({"name": "x", "shape": [1], "datatype": "INT64", "data": [value]});
    let body = json!({"parameters": parameters, "inputs": [input]}).to_string();
    let mut connection = server.connect();
    connection.write(format!(
        "POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{header}content-length: {}\r\n\r\n{body}",
        body.len()
    ));
    connection
}

fn waiting(server: &TestServer) -> usize {
    let scrape = server.scrape();
    let line =
        scrape.text().lines().find_map(|line| line.strip_prefix("model_infer_waiting{model=\"m\",version=\"None\"} "));
    line.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn priority_urgent_requests_run_first_over_every_transport() {
    let Some(server) = server(&[("m", "Gated")], &json!({})) else { return };
    let none = json!({});
    let mut sent = vec![send(&server, 0, &none, "")];
    server.wait_for_log("running 0");
    // Each request is queued before the next one is sent.
    let mut queue = Vec::new();
    let bulk = json!({"priority": 10});
    for (value, parameters, header) in [
        (101, &bulk, ""),
        (102, &none, "request-priority: 10\r\n"),
        (51, &none, ""),
        (52, &json!({"priority": 0}), ""),
        (53, &json!({"priority": "a word of the model's own"}), ""),
        (21, &json!({"priority": 2}), ""),
        (11, &json!({"priority": 9}), "request-priority: 1\r\n"),
    ] {
        sent.push(send(&server, value, parameters, header));
        queue.push(value);
        eventually("it waits", || waiting(&server) == queue.len()).await;
    }
    let mut grpc = inference_client(server.grpc).await;
    let contents = InferTensorContents { int64_contents: vec![12], ..InferTensorContents::default() };
    let mut request = tonic::Request::new(infer_request("m", "INT64", &[1], contents));
    request.metadata_mut().insert("request-priority", MetadataValue::from_static("1"));
    let call = tokio::spawn(async move { grpc.model_infer(request).await.unwrap() });
    eventually("it waits", || waiting(&server) == queue.len() + 1).await;

    fs::write(server.folder.path("go"), "").unwrap();
    for mut connection in sent {
        connection.answer().ok();
    }
    call.await.unwrap();
    // An answer may arrive before the worker's log line.
    server.wait_for_log("running 102");
    let log = server.log();
    // The log also says where the server is running.
    let numbers = log.lines().filter_map(|line| line.split_once("running ")?.1.split_whitespace().next()?.parse().ok());
    let order: Vec<i64> = numbers.collect();
    assert_eq!(order, [0, 11, 12, 21, 51, 52, 53, 101, 102]);
}

#[test]
fn priority_invalid_header_answers_400() {
    let server = TestServer::start(crate::support::Folder::new().with_identity("m"));
    let body = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT32","data":[1]}]}"#;
    let answer = server.post_with(INFER, &[("content-type", "application/json"), ("request-priority", "high")], body);
    assert_eq!(answer.error(400), "`request-priority` is `high`, expected an integer from 1 (the most urgent) to 10");
}
