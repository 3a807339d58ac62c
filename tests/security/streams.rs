//! Streams whose key is removed, changed or expires while they are open.

use std::fs;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use futures_util::stream::{self, Stream, StreamExt};
use mlserver::access::KeyHash;
use mlserver::types::protobuf::messages::{ModelInferRequest, ModelInferResponse};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming};
use tonic_reflection::pb::v1;

use crate::support::grpc::{channel, infer_request, inference_client, ints};
use crate::support::python::with_python;
use crate::support::{Connection, Folder, ServerBuilder, TestServer};

fn entry(name: &str, others: &Value) -> Value {
    let hash = KeyHash::of(name.as_bytes()).to_string();
    let mut entry = json!({"name": name, "hash": hash, "scopes": ["infer", "read"]});
    entry.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
    entry
}

/// Returns the time in some seconds, as key files have it.
fn in_seconds(seconds: u64) -> String {
    (DateTime::<Utc>::from(SystemTime::now()) + Duration::from_secs(seconds)).to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn builder(folder: Folder, keys: &Value) -> ServerBuilder {
    ServerBuilder::new(folder.file("keys.json", keys.to_string()).settings(&json!({"api_keys_file": "keys.json"})))
}

/// Replaces the keys, and waits until they are used.
fn replace(server: &TestServer, keys: &Value) {
    fs::write(server.folder.path("keys.json"), keys.to_string()).unwrap();
    server.signal(Signal::HUP);
    server.wait_for_log("Reloaded `api_keys_file`");
}

fn request() -> ModelInferRequest {
    infer_request("echo", "INT32", &[1], ints(&[1]))
}

fn authorized<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", "Bearer a".parse().unwrap());
    request
}

async fn open(
    server: &TestServer,
    requests: impl Stream<Item = ModelInferRequest> + Send + 'static,
) -> Streaming<ModelInferResponse> {
    inference_client(server.grpc).await.model_stream_infer(authorized(requests)).await.unwrap().into_inner()
}

/// Returns how many answers a stream has left, and the status of its end.
async fn end(mut answers: Streaming<ModelInferResponse>) -> (usize, Status) {
    let mut count = 0;
    loop {
        match answers.message().await {
            Ok(Some(_)) => count += 1,
            Ok(None) => return (count, Status::ok("")),
            Err(status) => return (count, status),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_grpc_stream_ends_when_its_key_loses_the_right() {
    let table = [
        (json!([]), Code::Unauthenticated, "the key is unknown"),
        (
            json!([entry("a", &json!({"scopes": ["read"]}))]),
            Code::PermissionDenied,
            "`a` does not have the scope `infer`",
        ),
        (
            json!([entry("a", &json!({"models": ["other"]}))]),
            Code::PermissionDenied,
            "`a` may not use the model `echo`",
        ),
        (
            json!([entry("a", &json!({"expires": "2020-01-01T00:00:00Z"}))]),
            Code::Unauthenticated,
            "the key `a` has expired",
        ),
    ];
    for (keys, code, message) in table {
        let server = builder(Folder::new().with_identity("echo"), &json!([entry("a", &json!({}))])).start();
        // One that is silent, and one that is used.
        let mut silent = open(&server, stream::iter([request()]).chain(stream::pending())).await;
        assert!(silent.message().await.unwrap().is_some());
        let (sender, receiver) = mpsc::channel(1);
        let mut used = open(&server, ReceiverStream::new(receiver)).await;
        for _ in 0..2 {
            sender.send(request()).await.unwrap();
            assert!(used.message().await.unwrap().is_some());
        }
        replace(&server, &keys);
        // Fails once the stream has ended.
        let _ = sender.send(request()).await;
        for answers in [silent, used] {
            let (answered, status) = end(answers).await;
            assert_eq!((answered, status.code()), (0, code), "{status}");
            assert!(status.message().contains(message), "{status}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn open_grpc_stream_outlives_the_changes_of_other_keys() {
    let key = entry("a", &json!({}));
    let server = builder(Folder::new().with_identity("echo"), &json!([key, entry("b", &json!({}))])).start();
    let (sender, receiver) = mpsc::channel(1);
    let mut answers = open(&server, ReceiverStream::new(receiver)).await;
    sender.send(request()).await.unwrap();
    assert!(answers.message().await.unwrap().is_some());
    replace(&server, &json!([key]));
    sender.send(request()).await.unwrap();
    assert!(answers.message().await.unwrap().is_some());
    drop(sender);
    assert_eq!(end(answers).await.1.code(), Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_grpc_stream_ends_when_its_key_expires() {
    // Other seconds than those of the start may be needed on a busy machine.
    for seconds in [3, 30] {
        let keys = json!([entry("a", &json!({"expires": in_seconds(seconds)}))]);
        let server = builder(Folder::new().with_identity("echo"), &keys).start();
        let (answered, status) = end(open(&server, stream::iter([request()]).chain(stream::pending())).await).await;
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        if answered == 1 {
            return;
        }
    }
    unreachable!("the key had expired before the stream");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_a_grpc_stream_count_against_the_rate() {
    let rate = json!({"rate_limit": {"requests_per_second": 0.001, "burst": 3}});
    let server = builder(Folder::new().with_identity("echo"), &json!([entry("a", &rate)])).start();
    let (sender, receiver) = mpsc::channel(1);
    let mut answers = open(&server, ReceiverStream::new(receiver)).await;
    for _ in 0..3 {
        sender.send(request()).await.unwrap();
        assert!(answers.message().await.unwrap().is_some());
    }
    sender.send(request()).await.unwrap();
    let (answered, status) = end(answers).await;
    assert_eq!((answered, status.code()), (0, Code::ResourceExhausted), "{status}");
    assert_eq!(status.message(), "`a` has exceeded its rate limit");
    // The rate is that of REST, too.
    let answer = server.request(&http::Method::GET, "/v2", &[("authorization", "Bearer a")], b"");
    assert_eq!(answer.status, 429);
}

#[tokio::test(flavor = "multi_thread")]
async fn open_reflection_ends_when_its_key_is_removed() {
    let server = builder(Folder::new().with_identity("echo"), &json!([entry("a", &json!({}))])).start();
    let request = v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1::server_reflection_request::MessageRequest::ListServices(String::new())),
    };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel(server.grpc).await);
    let requests = stream::iter([request]).chain(stream::pending());
    let mut answers = client.server_reflection_info(authorized(requests)).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
    replace(&server, &json!([]));
    assert!(answers.message().await.ok().flatten().is_none());
}

/// A model whose streams have one answer and no end, and one whose streams have answers without an end.
const MODELS: &str = "
import asyncio
from mlserver import MLModel
from mlserver.types import InferenceResponse

class Silent(MLModel):
    async def predict_stream(self, payloads):
        async for payload in payloads:
            yield InferenceResponse(model_name=self.name, outputs=[])
            await asyncio.Event().wait()

class Endless(MLModel):
    async def predict_stream(self, payloads):
        async for payload in payloads:
            while True:
                yield InferenceResponse(model_name=self.name, outputs=[])
";

#[test]
fn open_event_stream_ends_with_its_key() {
    for class in ["Silent", "Endless"] {
        let settings = json!({"name": "m", "implementation": format!("models.{class}")});
        let folder = Folder::new().file("models.py", MODELS).file("model-settings.json", settings.to_string());
        let settings = json!({"api_keys_file": "keys.json"});
        let folder = folder.file("keys.json", json!([entry("a", &json!({}))]).to_string()).settings(&settings);
        let Some(builder) = with_python(folder) else { return };
        let server = builder.start();
        for (keys, status) in [(json!([entry("a", &json!({"scopes": ["read"]}))]), 403), (json!([]), 401)] {
            let key = if status == 403 { "a" } else { "b" };
            replace_until_used(&server, &json!([entry(key, &json!({}))]), key);
            let mut connection = Connection::open(server.http);
            let body = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[1]}]}"#;
            connection.write(format!(
                "POST /v2/models/m/infer_stream HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            ));
            connection.wait_for_response();
            fs::write(server.folder.path("keys.json"), keys.to_string()).unwrap();
            server.signal(Signal::HUP);
            let events = connection.rest();
            assert!(events.starts_with("HTTP/1.1 200"), "{class}: {events}");
            let (_, error) = events.split_once("event: error\ndata: ").unwrap();
            assert!(error.contains(&format!("\"status\":{status}")), "{class}: {error}");
        }
    }
}

/// Replaces the keys, and waits until one of them is known.
fn replace_until_used(server: &TestServer, keys: &Value, key: &str) {
    fs::write(server.folder.path("keys.json"), keys.to_string()).unwrap();
    server.signal(Signal::HUP);
    crate::support::wait_until("the key is known", || {
        let authorization = format!("Bearer {key}");
        server.request(&http::Method::GET, "/v2", &[("authorization", &authorization)], b"").status == 200
    });
}
