//! Callers without a right do not lock out others: they hold no connection, no bytes and no waiting request that a caller with a
//! key needs.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use http::{Method, Request};
use mlserver::access::KeyHash;
use serde_json::{Value, json};
use tonic::{Code, Status, Streaming};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use crate::support::grpc::{Http2, channel, framed};
use crate::support::{Answer, Client, Connection, Folder, PATIENCE, ServerBuilder, TestServer};

const INFER: &str = "/v2/models/echo/infer";
const BODY: &str = r#"{"inputs":[{"name":"x","shape":[2],"datatype":"INT32","data":[1,2]}]}"#;
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const LIVE: &str = "/inference.GRPCInferenceService/ServerLive";
const KEY: (&str, &str) = ("authorization", "Bearer ci-key");

/// How long a caller with a key may wait on a busy machine: much less than any of the timeouts that would end the attack.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A server with the model `echo` and one key.
fn serve(settings: &Value) -> TestServer {
    let hash = KeyHash::of(b"ci-key").to_string();
    let keys = json!([{"name": "ci", "hash": hash, "scopes": ["infer", "read"]}]);
    let mut all = json!({"api_keys_file": "keys.json"});
    all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    ServerBuilder::new(Folder::new().with_identity("echo").file("keys.json", keys.to_string()).settings(&all)).start()
}

/// Sends a request with the key over a new connection.
fn infer(server: &TestServer) -> Answer {
    Client::new(server.http).post_with(INFER, &[KEY, ("content-type", "application/json")], BODY)
}

#[track_caller]
fn assert_served_at_once(server: &TestServer, attack: &str) {
    for _ in 0..5 {
        let began = Instant::now();
        infer(server).ok();
        assert!(began.elapsed() < AT_ONCE, "{attack}: {:?}", began.elapsed());
        let began = Instant::now();
        assert_eq!(Client::new(server.http).get("/v2/health/live").status, 200, "{attack}");
        assert!(began.elapsed() < AT_ONCE, "{attack}: {:?}", began.elapsed());
    }
}

/// Begins a watch over a connection of its own.
async fn watch(server: &TestServer) -> Streaming<HealthCheckResponse> {
    let mut client = HealthClient::new(channel(server.grpc).await);
    let mut watch = client.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    watch
}

async fn end(watch: &mut Streaming<HealthCheckResponse>) -> Status {
    tokio::time::timeout(PATIENCE, watch.message()).await.expect("the watch ends").unwrap_err()
}

const LIMIT: usize = 12;

#[test]
fn caller_with_key_is_answered_beside_silent_senders() {
    let began = Instant::now();
    let server = serve(&json!({"max_connections": LIMIT}));
    let heads = [
        ("no byte", String::new()),
        ("a part of a head", "POST /v2 HTTP/1.1\r\nhost:".to_owned()),
        (
            "a refused request without its body",
            format!("POST {INFER} HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n"),
        ),
        (
            "a wrong key",
            format!("POST {INFER} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer x\r\ncontent-length: 1000\r\n\r\n"),
        ),
        ("an unknown path", "POST /nothing HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n".to_owned()),
        ("a probe with a body", "GET /v2/health/live HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n".to_owned()),
        ("/ping with a body", "GET /ping HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n".to_owned()),
        ("chunks", format!("POST {INFER} HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n")),
        (
            "a body of the key that does not end",
            format!("POST {INFER} HTTP/1.1\r\nhost: a\r\n{}: {}\r\ncontent-length: 1000\r\n\r\n", KEY.0, KEY.1),
        ),
    ];
    for (attack, head) in heads {
        let mut connections: Vec<Connection> = (0..2 * LIMIT).map(|_| server.connect()).collect();
        for connection in &mut connections {
            connection.write_if_taken(&head);
        }
        assert_served_at_once(&server, attack);
    }
    let line = server.wait_for_log("`max_connections`");
    assert!(line.contains("WARNING") && line.contains("to make room for new ones: 12 are open"), "{line}");
    let minutes = usize::try_from(began.elapsed().as_secs() / 60).unwrap();
    let log = server.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("`max_connections`")).collect();
    assert!(lines.len() <= 1 + minutes, "one line a minute, in {:?}: {lines:#?}", began.elapsed());
}

#[test]
fn caller_with_key_is_answered_without_access_control_beside_unfinished_bodies() {
    let folder = Folder::new().with_identity("echo").settings(&json!({"max_connections": LIMIT}));
    let server = TestServer::start(folder);
    let mut connections: Vec<Connection> = (0..LIMIT).map(|_| server.connect()).collect();
    for connection in &mut connections {
        connection.write_if_taken(format!("POST {INFER} HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{{"));
    }
    assert_served_at_once(&server, "unfinished bodies");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caller_with_key_is_answered_beside_watchers_and_unfinished_messages() {
    let server = serve(&json!({"max_connections": LIMIT}));
    let mut watches = Vec::new();
    for _ in 0..LIMIT {
        watches.push(watch(&server).await);
    }
    assert_served_at_once(&server, "watches");

    let unfinished = [0, 0, 0, 0, 100, 1];
    for path in [LIVE, "/grpc.health.v1.Health/Check", "/inference.GRPCInferenceService/ModelReady", WATCH] {
        let mut calls = Vec::new();
        for _ in 0..LIMIT {
            let connection = Http2::connect(server.grpc).await;
            calls.push((connection.begin(path, &unfinished).await, connection));
        }
        assert_served_at_once(&server, path);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn caller_with_key_is_answered_beside_unread_refusals() {
    let server = serve(&json!({"max_connections": LIMIT}));
    let mut calls = Vec::new();
    for _ in 0..LIMIT {
        // The response has more bytes than the window, so that its stream does not end.
        let connection = Http2::connect_with_window(server.http, 1).await;
        let request = Request::get(format!("http://test{INFER}")).body(()).unwrap();
        calls.push((connection.send(request).await, connection));
    }
    assert_served_at_once(&server, "unread refusals");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evicted_watches_end_with_unavailable() {
    let server = serve(&json!({"max_connections": 4}));
    let mut watches = Vec::new();
    for _ in 0..4 {
        watches.push(watch(&server).await);
    }
    infer(&server).ok();
    let status = end(&mut watches[0]).await;
    let expected = "the server has too many watches or connections; try again later";
    assert_eq!((status.code(), status.message()), (Code::Unavailable, expected));
    // The connection of the request is idle, and is evicted before the other watches.
    infer(&server).ok();
    let others = tokio::time::timeout(Duration::from_millis(200), watches[1].message()).await;
    assert!(others.is_err(), "{others:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_are_limited_per_connection_and_in_all() {
    let server = serve(&json!({}));
    let mut first = watch(&server).await;
    let mut connections = Vec::new();
    for _ in 0..1024 / 16 {
        let connection = Http2::connect(server.grpc).await;
        for _ in 0..16 {
            connections.push(connection.open(WATCH, &framed(0, b"")).await);
        }
        let (code, message) = connection.call(WATCH, &[], &framed(0, b"")).await.end();
        assert_eq!(code, Code::ResourceExhausted as i32, "{message}");
        assert_eq!(message, "the connection has 16 watches, which is the limit");
    }
    assert_eq!(end(&mut first).await.code(), Code::Unavailable, "the oldest watch makes room");
    let mut last = watch(&server).await;
    let stays = tokio::time::timeout(Duration::from_millis(200), last.message()).await;
    assert!(stays.is_err(), "{stays:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn open_methods_have_no_share_of_the_budget_of_predictions() {
    let server = serve(&json!({"max_request_bytes_in_flight": 8_000_000}));
    let mut calls = Vec::new();
    for _ in 0..10 {
        let connection = Http2::connect(server.grpc).await;
        for path in [LIVE, "/grpc.health.v1.Health/Check", WATCH, LIVE, LIVE, LIVE, LIVE] {
            // All but the last bytes of a message of a million.
            let mut message = framed(0, &vec![0; 1_000_000]);
            message.truncate(message.len() - 60);
            calls.push(connection.begin(path, &message).await);
        }
        // Names that end after a while.
        let mut message = framed(0, &[0; 4000]);
        message.truncate(3900);
        for _ in 0..40 {
            calls.push(connection.begin(LIVE, &message).await);
        }
        let (code, message) = connection.call(LIVE, &[], &framed(0, &[0; 5000])).await.end();
        assert_eq!((code, &*message), (8, "the message has 5000 bytes, more than the 4096 that this method allows"));
    }
    assert_served_at_once(&server, "unfinished messages");
    let connection = Http2::connect(server.grpc).await;
    assert_eq!(connection.call(LIVE, &[], &framed(0, b"")).await.end().0, 0, "a whole message needs no budget");
}

#[test]
fn refusal_is_sent_before_the_body_is_discarded() {
    let server = serve(&json!({}));
    for (expect, begins) in [("", "HTTP/1.1 401 "), ("expect: 100-continue\r\n", "HTTP/1.1 401 ")] {
        for (headers, body) in [
            ("content-length: 100\r\n", ""),
            ("transfer-encoding: chunked\r\n", "3\r\nabc\r\n"),
            ("content-length: 10000000\r\n", "abc"),
        ] {
            let mut connection = server.connect();
            let began = Instant::now();
            let body = if expect.is_empty() { body } else { "" };
            connection.write(format!("POST {INFER} HTTP/1.1\r\nhost: a\r\n{expect}{headers}\r\n{body}"));
            let text = connection.rest();
            assert!(text.starts_with(begins), "{expect}{headers}: {text}");
            assert!(began.elapsed() < Duration::from_secs(4), "{headers}: {:?}", began.elapsed());
        }
    }
    // A short body that comes after the refusal: the connection is used again.
    let mut connection = server.connect();
    connection.write(format!("POST {INFER} HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", BODY.len()));
    assert_eq!(connection.answer().status, 401);
    connection.write(format!("{BODY}GET /v2 HTTP/1.1\r\nhost: a\r\n{}: {}\r\n\r\n", KEY.0, KEY.1));
    assert_eq!(connection.answer().status, 200);
}

#[test]
fn curl_sees_the_refusal_of_a_body_over_http1_and_http2() {
    let server = serve(&json!({}));
    let data = server.folder.path("data");
    for length in [10, 60_000, 100_000, 3_000_000] {
        std::fs::write(&data, vec![b' '; length]).unwrap();
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let url = format!("http://{}{INFER}", server.http);
            let mut curl = Command::new("curl");
            curl.args([
                "--silent",
                "--max-time",
                "30",
                "--noproxy",
                "*",
                "--write-out",
                "%{http_code}",
                "--output",
                "/dev/null",
            ]);
            curl.args([version, "--data-binary", &format!("@{}", data.display()), &url]).stdin(Stdio::null());
            let output = curl.output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stdout), "401", "{version} {length} {output:?}");
        }
    }
}

/// An issuer that accepts connections and does not answer.
fn silent_issuer() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    thread::spawn(move || {
        let streams: Vec<_> = listener
            .incoming()
            .map(|stream| {
                let stream: TcpStream = stream.unwrap();
                thread::spawn(move || (&stream).read_to_end(&mut Vec::new()))
            })
            .collect();
        drop(streams);
    });
    url
}

#[test]
fn issuer_that_does_not_answer_holds_only_a_few_callers_with_tokens() {
    let settings = json!({
        "jwt_issuer": "https://issuer.example", "jwt_audience": "mlserver", "jwks_url": silent_issuer(), "max_connections": 40,
    });
    let server = serve(&settings);
    // `{"alg":"EdDSA","kid":"a"}`, `{}` and a signature.
    let token = format!("eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.e30.{}", "A".repeat(86));
    let head = format!("GET /v2 HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\n\r\n");
    let began = Instant::now();
    let mut callers: Vec<Connection> = (0..35).map(|_| server.connect()).collect();
    for caller in &mut callers {
        caller.write(&head);
    }
    assert_served_at_once(&server, "tokens");
    let mut at_once = 0;
    for caller in &mut callers {
        let answer = caller.answer();
        let message = answer.error(503);
        assert_eq!(message, "the keys of the issuer (`jwks_url`) cannot be fetched now; try again");
        assert_eq!(answer.header("retry-after"), "2");
        at_once += 1;
    }
    assert_eq!(at_once, 35);
    assert!(began.elapsed() < Duration::from_secs(9), "{:?}", began.elapsed());
    let over_grpc = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let connection = Http2::connect(server.grpc).await;
        let path = "/inference.GRPCInferenceService/ServerMetadata";
        connection.call(path, &[("authorization", &format!("Bearer {token}"))], &framed(0, b"")).await.end()
    });
    assert_eq!(over_grpc.0, Code::Unavailable as i32, "{}", over_grpc.1);
    // Callers with keys do not wait for the issuer.
    let began = Instant::now();
    assert_eq!(Client::new(server.http).request(&Method::GET, "/v2", &[KEY], b"").status, 200);
    assert!(began.elapsed() < AT_ONCE);
}
