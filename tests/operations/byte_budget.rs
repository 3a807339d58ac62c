//! The byte budget: a limit on the memory of all requests in flight and their responses.

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use tonic::Code;

use crate::support::grpc::{inference_client, raw_request};
use crate::support::{Folder, TestServer, gzip, wait_until};

const INFER: &str = "/v2/models/echo/infer";
const LIMIT: usize = 4 << 20;
const SMALL: &str = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT32","data":[1]}]}"#;

fn server() -> TestServer {
    TestServer::start(Folder::new().with_identity("echo").settings(&json!({"max_request_bytes_in_flight": LIMIT})))
}

fn in_flight(server: &TestServer) -> usize {
    let scrape = server.scrape();
    let line = scrape.text().lines().find_map(|line| line.strip_prefix("request_bytes_in_flight ")).unwrap();
    line.parse().unwrap()
}

/// JSON followed by binary data: a request of `bytes` bytes of UINT8.
fn binary(bytes: usize) -> (String, Vec<u8>) {
    let parameters = format!(r#""parameters":{{"binary_data_size":{bytes}}}"#);
    let json = format!(
        r#"{{"inputs":[{{"name":"x","shape":[{bytes}],"datatype":"UINT8",{parameters}}}],"parameters":{{"binary_data_output":true}}}}"#
    );
    let length = json.len().to_string();
    (length, [json.into_bytes(), vec![7; bytes]].concat())
}

fn head(length: usize) -> String {
    format!("POST {INFER} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n")
}

#[test]
fn byte_budget_rejects_body_before_it_is_read() {
    let server = server();
    let mut connection = server.connect();
    // No byte of the body is sent.
    connection.write(head(LIMIT + 1));
    let message = connection.answer().error(413);
    let expected = format!(
        "the request and its response take {} bytes, more than `max_request_bytes_in_flight` ({LIMIT})",
        LIMIT + 1
    );
    assert_eq!(message, expected);

    let mut uploads: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for upload in &mut uploads {
        upload.start_upload(INFER, 2 << 20);
        upload.write(vec![b' '; 1 << 20]);
    }
    wait_until("three bodies have arrived in part", || in_flight(&server) == 3 << 20);
    let mut late = server.connect();
    late.write(head(2 << 20));
    let answer = late.answer();
    let expected = format!(
        "the requests in flight already take {} of the {LIMIT} bytes of `max_request_bytes_in_flight`; try again later",
        3 << 20
    );
    assert_eq!((answer.error(503), answer.header("retry-after")), (expected, "1"));
    server.post(INFER, SMALL).ok();
    assert!(server.scrape().text().contains("\nrequest_bytes_limit 4194304\n"));

    drop(uploads);
    wait_until("the bytes of uploads that ended are free", || in_flight(&server) == 0);
    let (length, body) = binary(1 << 20);
    let headers = [("inference-header-content-length", length.as_str())];
    assert_eq!(server.post_with(INFER, &headers, &body).status, 200);
    assert_eq!(in_flight(&server), 0);
}

#[test]
fn request_timeout_header_limits_the_wait_for_the_body() {
    let server = server();
    let mut connection = server.connect();
    connection.write(format!(
        "POST {INFER} HTTP/1.1\r\nhost: x\r\nrequest-timeout: 0.1\r\ncontent-length: 1000000\r\n\r\n{{"
    ));
    assert_eq!(connection.answer().error(504), "the client's deadline has passed");
}

#[test]
fn byte_budget_counts_declared_sizes_only_when_they_arrive() {
    let server = server();
    let mut idle: Vec<_> = (0..100).map(|_| server.connect()).collect();
    for upload in &mut idle {
        upload.start_upload(INFER, 3 << 20);
        upload.write("{");
    }
    wait_until("the first bytes have arrived", || in_flight(&server) == 100);
    server.post(INFER, SMALL).ok();
}

#[test]
fn byte_budget_counts_decompressed_and_parsed_bytes() {
    let server = server();
    let bomb = gzip(&vec![b' '; 32 << 20]);
    assert!(bomb.len() < 64 << 10);
    let message = server.post_with(INFER, &[("content-encoding", "gzip")], &bomb).error(413);
    assert!(message.contains("`max_request_bytes_in_flight`"), "{message}");

    // A number of two bytes of text takes eight bytes as FP64.
    let numbers = vec!["0"; 700_000].join(",");
    let body = format!(r#"{{"inputs":[{{"name":"x","shape":[700000],"datatype":"FP64","data":[{numbers}]}}]}}"#);
    assert!(body.len() < LIMIT / 2);
    let message = server.post(INFER, &body).error(413);
    assert!(message.contains("`max_request_bytes_in_flight`"), "{message}");
    assert_eq!(in_flight(&server), 0);
}

#[test]
fn byte_budget_counts_responses_that_are_not_read() {
    let server = server();
    let (length, body) = binary(3 << 19);
    let mut slow = TcpStream::connect(server.http).unwrap();
    slow.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    let head = format!(
        "POST {INFER} HTTP/1.1\r\nhost: x\r\ninference-header-content-length: {length}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.into_bytes(), body].concat();
    // The buffers of both sockets take several responses. The next one waits in the server, which then reads no more.
    let sent = (0..100).take_while(|_| slow.write_all(&request).is_ok()).count();
    assert!(sent < 100);
    assert!(in_flight(&server) >= 3 << 19, "a response has not been read");
    server.post(INFER, SMALL).ok();
    drop(slow);
    wait_until("the bytes of a client that left are free", || in_flight(&server) == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn byte_budget_applies_to_grpc() {
    let server = tokio::task::spawn_blocking(server).await.unwrap();
    let mut client = inference_client(server.grpc).await;
    let request = |bytes: usize| raw_request("echo", "UINT8", &[i64::try_from(bytes).unwrap()], vec![7; bytes]);
    client.model_infer(request(1 << 20)).await.unwrap();
    let status = client.model_infer(request(LIMIT)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("more than `max_request_bytes_in_flight` (4194304)"), "{}", status.message());
    // The request fits, but not together with its response.
    let status = client.model_infer(request(3 << 20)).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let server = &server;
    assert_eq!(tokio::task::block_in_place(|| in_flight(server)), 0);
}

/// `PolynomialFeatures(degree=3)` for 100 features, which has 176,851 columns.
const WIDE: &[u8] = b"\x80\x02csklearn.preprocessing._polynomial\nPolynomialFeatures\nq\x00)\x81q\x01}q\x02(X\x06\x00\x00\x00degreeq\x03K\x03X\x10\x00\x00\x00interaction_onlyq\x04\x89X\x0c\x00\x00\x00include_biasq\x05\x88X\x05\x00\x00\x00orderq\x06X\x01\x00\x00\x00Cq\x07X\x0e\x00\x00\x00n_features_in_q\x08KdX\x0b\x00\x00\x00_min_degreeq\x09K\x00X\x0b\x00\x00\x00_max_degreeq\nK\x03X\x12\x00\x00\x00n_output_features_q\x0bJ\xd3\xb2\x02\x00X\x0b\x00\x00\x00_n_out_fullq\x0cJ\xd3\xb2\x02\x00X\x10\x00\x00\x00_sklearn_versionq\x0dX\x05\x00\x00\x001.9.1q\x0eub.";

/// The budget covers the copies that are made while a wide answer is computed and encoded.
#[test]
fn wide_answers_stay_within_the_budget_while_they_are_computed_and_encoded() {
    const BUDGET: u64 = 256 << 20;
    let settings = json!({"name": "wide", "implementation": "mlserver_sklearn.SKLearnModel",
        "parameters": {"uri": "./model.pkl"}});
    let folder = Folder::new()
        .file("wide/model.pkl", WIDE)
        .file("wide/model-settings.json", settings.to_string())
        .settings(&json!({"max_request_bytes_in_flight": BUDGET}));
    let server = TestServer::start(folder);
    let rows = vec![vec![0.1; 100]; 40];
    let request = json!({"outputs": [{"name": "transform"}],
        "inputs": [{"name": "x", "datatype": "FP64", "shape": [40, 100], "data": rows}]});
    let request = request.to_string();
    let infer = || server.post("/v2/models/wide/infer", &request);
    let before = server.memory();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..20).map(|_| scope.spawn(|| infer().status)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(statuses.contains(&200) && statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
    let grown = server.peak_memory().saturating_sub(before) << 10;
    assert!(grown < BUDGET + (64 << 20), "{} MiB with a budget of {} MiB", grown >> 20, BUDGET >> 20);
}
