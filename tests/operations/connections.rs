//! Connections that send nothing, send slowly, or do not read: they are closed, and other clients do not notice them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Request;
use prost::Message;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tonic::Code;

use crate::support::grpc::{Http2, framed, infer_request, inference_client, ints, raw_request};
use crate::support::{Client, Connection, Folder, PATIENCE, ServerBuilder, TestServer, skipped, wait_until};

const INFER: &str = "/v2/models/echo/infer";
const GRPC_INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
const BODY: &str = r#"{"inputs":[{"name":"x","shape":[2],"datatype":"INT32","data":[1,2]}]}"#;

/// The preface of every HTTP/2 client and empty SETTINGS.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A server with the model `echo`.
fn echo(settings: &serde_json::Value) -> TestServer {
    TestServer::start(Folder::new().with_identity("echo").settings(settings))
}

/// Reads the value of a metric.
fn metric(server: &TestServer, name: &str) -> f64 {
    let text = server.scrape();
    let line = text.text().lines().find(|line| line.starts_with(name) && line[name.len()..].starts_with(' '));
    line.map_or(0.0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

#[test]
fn connections_without_a_request_are_closed_on_every_listener() {
    let server = echo(&json!({"http_header_timeout": 0.4}));
    for address in [server.http, server.grpc, server.metrics.unwrap()] {
        for start in [b"".as_slice(), b"P", b"PRI * HTTP/2.0\r\n", b"GET /v2 HTTP/1.1\r\nhost:"] {
            let mut connection = Connection::open(address);
            let opened = Instant::now();
            connection.write(start);
            assert_eq!(connection.rest_bytes(), b"", "{address} {start:?}");
            let waited = opened.elapsed();
            assert!(waited > Duration::from_millis(300) && waited < Duration::from_secs(20), "{waited:?}");
        }
    }
    let closed = metric(&server, r#"connections_closed_total{reason="header_timeout"}"#);
    assert!((closed - 12.0).abs() < f64::EPSILON, "{closed}");
}

#[test]
fn idle_connections_are_closed_after_the_keep_alive_timeout() {
    let server = echo(&json!({"http_keep_alive_timeout": 0.6, "http_header_timeout": 20}));
    let mut connection = server.connect();
    connection.write("GET /v2 HTTP/1.1\r\nhost: test\r\n\r\n");
    connection.answer().ok();
    let answered = Instant::now();
    assert_eq!(connection.rest_bytes(), b"");
    assert!(answered.elapsed() > Duration::from_millis(400), "{:?}", answered.elapsed());

    // An HTTP/2 client is told before.
    let mut connection = Connection::open(server.grpc);
    connection.write(HTTP2);
    let bytes = connection.rest_bytes();
    assert!(bytes.windows(5).any(|frame| frame == [8, 7, 0, 0, 0]), "no GOAWAY: {bytes:x?}");
}

#[test]
fn good_clients_are_answered_among_2000_idle_connections() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if maximum.is_some_and(|maximum| maximum < 3000) {
        return skipped("the limit on open files is too low");
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let server = ServerBuilder::new(Folder::new().with_identity("echo")).open_files(1024).start();
    let idle: Vec<TcpStream> = (0..2000)
        .map(|number| TcpStream::connect(if number % 2 == 0 { server.http } else { server.grpc }).unwrap())
        .collect();
    let started = Instant::now();
    Client::new(server.http).post(INFER, BODY).ok();
    assert_eq!(Client::new(server.http).get("/v2/health/ready").status, 200);
    assert_eq!(Client::new(server.metrics.unwrap()).get("/metrics").status, 200);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert!(server.descriptors() < 1024);
    let evicted = metric(&server, r#"connections_closed_total{reason="evicted"}"#);
    assert!(evicted >= 1000.0, "{evicted}");

    // The oldest have been closed.
    let mut first = idle.into_iter().next().unwrap();
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(first.read(&mut [0]).unwrap_or(0), 0);
}

#[test]
fn idle_connections_are_evicted_if_the_system_has_no_descriptors_left() {
    let folder = Folder::new().with_identity("echo").settings(&json!({"max_connections": 100_000}));
    let server = ServerBuilder::new(folder).open_files(256).start();
    server.wait_for_log("the process may only open 256 files");
    let idle: Vec<_> = (0..400).map(|_| TcpStream::connect(server.http).unwrap()).collect();
    Client::new(server.http).post(INFER, BODY).ok();
    let line = server.wait_for_log("Cannot accept connections");
    assert!(line.contains("WARNING") && line.contains("Too many open files"), "{line}");
    assert!(metric(&server, "accept_errors_total") >= 1.0);
    drop(idle);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_beyond_the_limit_are_closed_while_all_others_are_busy() {
    let server = echo(&json!({"max_connections": 2}));
    let request = framed(0, &raw_request("echo", "UINT8", &[1000], vec![0; 1000]).encode_to_vec());
    let mut busy = Vec::new();
    for _ in 0..2 {
        // The response is in flight, because the window takes only a part of it.
        let connection = Http2::connect_with_window(server.grpc, 10).await;
        busy.push((connection.open(GRPC_INFER, &request).await, connection));
    }
    let mut rejected = server.connect();
    assert_eq!(rejected.rest_bytes(), b"");
    let line = server.wait_for_log("new connections:");
    assert!(line.contains("WARNING") && line.contains("Closed 1 new connections: 2 are open, and each"), "{line}");
    drop(busy);
    wait_until("there is room again", || {
        TcpStream::connect(server.http).is_ok_and(|mut stream| {
            stream.write_all(b"GET /v2 HTTP/1.1\r\nhost: test\r\n\r\n").is_ok()
                && stream.read(&mut [0]).unwrap_or(0) == 1
        })
    });
}

// ------------------------------------------------------------------------------------------------------ bodies

#[test]
fn request_body_that_stops_or_drips_answers_408() {
    let server = echo(&json!({"http_body_timeout": 0.4}));
    let mut stopped = server.connect();
    stopped.start_upload(INFER, 1000);
    stopped.write("{");
    let answer = stopped.answer();
    let error = answer.error(408);
    assert!(error.starts_with("the body ended early: received 1 bytes of the request body in 0.4 s: "), "{error}");
    assert_eq!(answer.header("connection"), "close");
    let mut dripping = server.connect();
    dripping.start_upload(INFER, 1000);
    let started = Instant::now();
    for _ in 0..20 {
        dripping.write_if_taken(" ");
        crate::support::pause(Duration::from_millis(50));
    }
    let error = dripping.answer().error(408);
    assert!(error.contains("at 1024 bytes per second"), "{error}");
    assert!(started.elapsed() < PATIENCE);
}

#[tokio::test]
async fn unfinished_bodies_over_http2_end_with_408_or_deadline_exceeded() {
    let server = echo(&json!({"http_body_timeout": 0.4}));
    let rest = Request::post(format!("http://test{INFER}")).header("content-type", "application/json");
    let connection = Http2::connect(server.http).await;
    let answer = connection.unfinished(rest.body(()).unwrap(), b"{").await;
    assert_eq!(answer.status, 408, "{answer:?}");

    let call = Request::post(format!("http://test{GRPC_INFER}")).header("content-type", "application/grpc");
    let connection = Http2::connect(server.grpc).await;
    let answer = connection.unfinished(call.body(()).unwrap(), &[0, 0, 0]).await;
    let (code, message) = answer.end();
    assert_eq!(code, Code::DeadlineExceeded as i32, "{message}");
    assert!(message.contains("http_body_timeout"), "{message}");
    // The connection still works.
    let request = framed(0, &infer_request("echo", "INT32", &[2], ints(&[1, 2])).encode_to_vec());
    assert_eq!(connection.call(GRPC_INFER, &[], &request).await.end().0, 0);
}

#[test]
fn announced_body_that_never_comes_does_not_delay_an_error() {
    let server = echo(&json!({}));
    let mut connection = server.connect();
    let started = Instant::now();
    connection.write("POST /nothing HTTP/1.1\r\nhost: test\r\ncontent-length: 100\r\n\r\n");
    let answer = connection.answer();
    assert_eq!(answer.status, 404);
    // The connection waits for the rest of a short body, for a second.
    assert_eq!(connection.rest_bytes(), b"");
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}

// --------------------------------------------------------------------------------------------------- responses

/// Sends a request whose response has more bytes than the buffers of both sockets hold.
fn write_large(connection: &mut Connection) {
    let length = 40 << 20;
    let head = format!(
        r#"{{"inputs":[{{"name":"x","shape":[{length}],"datatype":"UINT8","parameters":{{"binary_data_size":{length}}}}}],"parameters":{{"binary_data_output":true}}}}"#
    );
    connection.write(format!(
        "POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-type: application/octet-stream\r\n\
         inference-header-content-length: {}\r\ncontent-length: {}\r\n\r\n{head}",
        head.len(),
        head.len() + length
    ));
    connection.write(vec![0; length]);
}

#[test]
fn response_that_is_not_read_frees_its_slot_over_http1() {
    let server = echo(&json!({"http_write_timeout": 2, "max_in_flight": 1}));
    let mut connection = server.connect();
    write_large(&mut connection);
    // Before that, a request that asks whether the slot is taken could take it.
    connection.wait_for_response();
    server.post(INFER, BODY).error(503);
    wait_until("the slot is free again", || server.post(INFER, BODY).status == 200);
    let closed = metric(&server, r#"connections_closed_total{reason="write_timeout"}"#);
    assert!((closed - 1.0).abs() < f64::EPSILON, "{closed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_that_is_not_read_resets_its_stream_over_http2() {
    let server = echo(&json!({"http_write_timeout": 2, "max_in_flight": 1}));
    let connection = Http2::connect(server.grpc).await;
    let large = framed(0, &raw_request("echo", "UINT8", &[1 << 20], vec![0; 1 << 20]).encode_to_vec());
    let mut unread = connection.open(GRPC_INFER, &large).await;
    let small = framed(0, &infer_request("echo", "INT32", &[2], ints(&[1, 2])).encode_to_vec());
    let other = Http2::connect(server.grpc).await;
    assert_eq!(other.call(GRPC_INFER, &[], &small).await.end().0, Code::ResourceExhausted as i32);
    // The connection continues, with a free slot.
    assert_eq!(connection.call(GRPC_INFER, &[], &small).await.end().0, 0);
    let error = loop {
        match unread.data().await {
            Some(Ok(_)) => {}
            end => break end.and_then(Result::err),
        }
    };
    assert_eq!(error.and_then(|error| error.reason()), Some(h2::Reason::CANCEL));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_bytes_that_are_not_read_free_their_slot_over_http2() {
    let server = echo(&json!({"http_write_timeout": 2, "max_in_flight": 1}));
    // The window takes some bytes of the only part of the response, so that the rest waits in the connection.
    let connection = Http2::connect_with_window(server.grpc, 10).await;
    let request = framed(0, &raw_request("echo", "UINT8", &[1000], vec![0; 1000]).encode_to_vec());
    let _unread = connection.open(GRPC_INFER, &request).await;
    let mut client = inference_client(server.grpc).await;
    let started = Instant::now();
    loop {
        let answer = client.model_infer(infer_request("echo", "INT32", &[2], ints(&[1, 2]))).await;
        match answer {
            Ok(_) => break,
            Err(status) => assert_eq!(status.code(), Code::ResourceExhausted, "{status}"),
        }
        assert!(started.elapsed() < PATIENCE, "the slot is still taken");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn response_that_is_read_slowly_is_sent_completely() {
    let server = echo(&json!({"http_write_timeout": 1}));
    let connection = Http2::connect(server.grpc).await;
    let length = 600_000;
    let request = framed(0, &raw_request("echo", "UINT8", &[length], vec![7; 600_000]).encode_to_vec());
    let mut response = connection.open(GRPC_INFER, &request).await;
    let (mut received, started) = (0, Instant::now());
    while let Some(data) = response.data().await {
        let data: Bytes = data.unwrap();
        received += data.len();
        response.flow_control().release_capacity(data.len()).unwrap();
        // Slower than the write timeout allows for the whole response, faster than it allows for any part.
        while started.elapsed().as_secs_f64() * 300_000.0 < f64::from(u32::try_from(received).unwrap()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert!(received > 600_000 && started.elapsed() > Duration::from_secs(2), "{received}");
    assert_eq!(response.trailers().await.unwrap().unwrap()["grpc-status"], "0");
}
