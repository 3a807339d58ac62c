//! Headers that models set: those of the connection, the body and the client do not become headers of responses.

use std::sync::{Arc, Mutex};

use http::{HeaderMap, Method};
use mlserver::types::{InferenceRequest, InferenceResponse};
use prost::Message;
use serde_json::json;

use crate::support::grpc::{Http2, framed, infer_request, ints};
use crate::support::python::with_python;
use crate::support::{Connection, EmbeddedServer, FnRuntime, Folder, TestServer};

const INFER: &str = "/v2/models/m/infer";
const BODY: &str = r#"{"inputs":[{"name":"x","shape":[2],"datatype":"INT32","data":[1,2]}]}"#;

/// A request whose headers break the response if they come back.
fn request(body: &str) -> String {
    format!(
        "POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         authorization: Bearer secret\r\ncookie: a=b\r\nx-own: 1\r\n\r\n{body}",
        body.len()
    )
}

/// Sends two requests on one connection and checks both responses.
fn check_two_requests(mut connection: Connection) {
    for _ in 0..2 {
        connection.write(request(BODY));
        let answer = connection.answer();
        assert_eq!(answer.ok()["outputs"][0]["data"], json!([1, 2]));
        assert_eq!((answer.header("x-own"), answer.header("content-type")), ("1", "application/json"));
        for name in ["authorization", "cookie", "host"] {
            assert!(!answer.headers.contains_key(name), "{name}: {answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_of_the_request_do_not_break_the_response() {
    let mirror = FnRuntime::new(|InferenceRequest { inputs: outputs, headers, .. }| async {
        Ok(InferenceResponse { outputs, headers, ..InferenceResponse::default() })
    });
    let server = EmbeddedServer::serve(mirror).await;
    let address = server.http;
    tokio::task::spawn_blocking(move || check_two_requests(Connection::open(address))).await.unwrap();

    let connection = Http2::connect(server.grpc).await;
    let message = framed(0, &infer_request("m", "INT32", &[2], ints(&[1, 2])).encode_to_vec());
    let headers =
        [("authorization", "Bearer secret"), ("grpc-accept-encoding", "gzip"), ("x-own", "1"), ("cookie", "a=b")];
    let answer = connection.call("/inference.GRPCInferenceService/ModelInfer", &headers, &message).await;
    assert_eq!(answer.end(), (0, String::new()));
    assert_eq!(answer.headers["x-own"], "1");
    for name in ["authorization", "cookie", "te", "host", "grpc-accept-encoding"] {
        assert!(!answer.headers.contains_key(name), "{name}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_do_not_see_credentials_by_default() {
    let last = Arc::new(Mutex::new(HeaderMap::new()));
    let recorded = Arc::clone(&last);
    let runtime = FnRuntime::new(move |request| {
        *recorded.lock().unwrap() = request.headers.into_inner();
        std::future::ready(Ok(InferenceResponse::default()))
    });
    let server = EmbeddedServer::serve(runtime).await;
    let address = server.http;
    let answer = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(address);
        connection.write(request(BODY));
        connection.answer()
    });
    answer.await.unwrap().ok();
    let seen = || {
        let headers = std::mem::take(&mut *last.lock().unwrap());
        assert_eq!(headers["x-own"], "1");
        headers.contains_key("authorization") || headers.contains_key("cookie")
    };
    assert!(!seen());
    let connection = Http2::connect(server.grpc).await;
    let message = framed(0, &infer_request("m", "INT32", &[2], ints(&[1, 2])).encode_to_vec());
    let headers = [("authorization", "Bearer secret"), ("x-own", "1"), ("cookie", "a=b")];
    connection.call("/inference.GRPCInferenceService/ModelInfer", &headers, &message).await;
    assert!(!seen());
}

#[test]
fn python_model_may_answer_with_the_parameters_of_its_request() {
    const MODEL: &str = "
from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput

class Mirror(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        first = payload.inputs[0]
        output = ResponseOutput(name=first.name, shape=first.shape, datatype=first.datatype, data=first.data)
        return InferenceResponse(model_name=self.name, outputs=[output], parameters=payload.parameters)
";
    let settings = json!({"name": "m", "implementation": "models.Mirror"});
    let folder = Folder::new().file("m/models.py", MODEL).file("m/model-settings.json", settings.to_string());
    let Some(server) = with_python(folder) else { return };
    let server = server.start();
    check_two_requests(server.connect());
}

/// Without access control, the credentials are not for this server, so models see them, as in the original.
#[test]
fn python_models_see_credentials_that_are_not_for_the_server() {
    const MODEL: &str = "
from mlserver import MLModel
from mlserver.codecs import StringCodec
from mlserver.types import InferenceRequest, InferenceResponse

class Seen(MLModel):
    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        headers = payload.parameters.headers
        seen = [headers.get(name, '') for name in ('authorization', 'cookie', 'x-own')]
        return InferenceResponse(model_name=self.name, outputs=[StringCodec.encode_output('seen', seen)])
";
    const KEYS: &str = r#"[{"name": "k", "scopes": ["infer"],
        "hash": "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"}]"#;
    let cases = [
        (json!({}), json!({}), ["Bearer secret", "a=b", "1"]),
        (json!({"api_keys_file": "keys.json"}), json!({}), ["", "", "1"]),
        (json!({"api_keys_file": "keys.json", "forward_headers": ["cookie"]}), json!({}), ["", "a=b", "1"]),
        (
            json!({"api_keys_file": "keys.json", "forward_headers": ["authorization"]}),
            json!({}),
            ["Bearer secret", "", "1"],
        ),
        // It may pass them on.
        (json!({}), json!({"predictor_host": "127.0.0.1:9"}), ["", "", "1"]),
        (json!({}), json!({"arguments": ["--model_name=m", "--explainer_host=h"]}), ["", "", "1"]),
        (json!({"forward_headers": ["authorization"]}), json!({"predictor_host": "h"}), ["Bearer secret", "", "1"]),
    ];
    for (server_settings, extra, expected) in cases {
        let settings = json!({"name": "m", "implementation": "models.Seen", "parameters": {"extra": extra}});
        let folder = Folder::new().file("m/models.py", MODEL).file("m/model-settings.json", settings.to_string());
        // As a step of a graph, a model sees the same.
        let graph = json!({
            "apiVersion": "serving.kserve.io/v1alpha1", "kind": "InferenceGraph", "metadata": {"name": "g"},
            "spec": {"nodes": {"root": {"routerType": "Sequence", "steps": [{"serviceName": "m"}]}}},
        });
        let of_graph = json!({"name": "g", "implementation": "mlserver.Graph", "parameters": {"uri": "./graph.json"}});
        let folder = folder.file("g/graph.json", graph.to_string()).file("g/model-settings.json", of_graph.to_string());
        let folder = folder.file("keys.json", KEYS).settings(&server_settings);
        let Some(server) = with_python(folder) else { return };
        let server = server.start();
        for model in ["m", "g"] {
            let mut connection = server.connect();
            connection.write(request(BODY).replace("/v2/models/m/", &format!("/v2/models/{model}/")));
            let answer = connection.answer().ok();
            assert_eq!(answer["outputs"][0]["data"], json!(expected), "{model} {server_settings} {extra}");
        }
    }
}

/// A model of KServe may name the server that it asks in its code, which only its worker knows.
#[test]
fn kserve_models_whose_code_names_a_server_see_listed_credentials() {
    const MODELS: &str = "
import kserve

class Own(kserve.Model):
    predictor_url = 'http://mine'

    def load(self):
        self.ready = True
        return True

    def predict(self, payload, headers=None):
        return {'predictions': [headers.get('authorization', '')]}

class Asking(Own):
    def load(self):
        self.predictor_host = 'h:80'
        return super().load()
";
    for (forwarded, asking) in [(json!([]), ""), (json!(["authorization"]), "Bearer secret")] {
        let folder = ["Own", "Asking"].iter().fold(Folder::new(), |folder, class| {
            let settings = json!({"name": class, "implementation": format!("models.{class}")});
            folder
                .file(&format!("{class}/models.py"), MODELS)
                .file(&format!("{class}/model-settings.json"), settings.to_string())
        });
        let Some(server) = with_python(folder.settings(&json!({"forward_headers": forwarded}))) else { return };
        let server = server.start();
        for (model, expected) in [("Own", "Bearer secret"), ("Asking", asking)] {
            let headers = [("authorization", "Bearer secret")];
            let path = format!("/v1/models/{model}:predict");
            let answer = server.request(&Method::POST, &path, &headers, br#"{"instances": [1]}"#).ok();
            assert_eq!(answer["predictions"], json!([expected]), "{model} {forwarded}");
        }
    }
}

/// A status, and the message of the error; empty if there is none.
type End = (u16, String);

fn message_of(body: &[u8]) -> String {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    body["error"].as_str().unwrap_or_default().to_owned()
}

/// Sends the same head over HTTP/1.1 and HTTP/2 to the REST listener, and over gRPC.
async fn heads(server: &TestServer, query: &str, headers: &[(&'static str, &str)]) -> (End, End, (i32, String)) {
    let lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let lines = lines.concat();
    let head = format!(
        "POST /v2/models/m/infer?{query} HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\ncontent-length: {}\r\n{lines}\r\n{BODY}",
        BODY.len()
    );
    let address = server.http;
    let first = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(address);
        connection.write(head);
        connection.answer()
    });
    let first = first.await.unwrap();
    let json = [&[("content-type", "application/json")], headers].concat();
    let second =
        Http2::connect(server.http).await.call(&format!("/v2/models/m/infer?{query}"), &json, BODY.as_bytes()).await;
    let message = framed(0, &infer_request("m", "INT32", &[2], ints(&[1, 2])).encode_to_vec());
    let method = "/inference.GRPCInferenceService/ModelInfer";
    let method = if query.is_empty() { method.to_owned() } else { format!("{method}?{query}") };
    let third = Http2::connect(server.grpc).await.call(&method, headers, &message).await;
    assert_eq!(third.status, 200);
    ((first.status, message_of(&first.body)), (second.status, message_of(&second.body)), third.end())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_limits_are_the_same_for_every_protocol() {
    let server = TestServer::start(Folder::new().with_identity("m"));
    // A token of a directory with many groups.
    let token = format!("Bearer {}", "a".repeat(48 << 10));
    let (http1, http2, grpc) = heads(&server, "", &[("authorization", &token)]).await;
    assert_eq!((http1, http2, grpc), ((200, String::new()), (200, String::new()), (0, String::new())));

    let token = "a".repeat(80 << 10);
    let (http1, http2, grpc) = heads(&server, "", &[("authorization", &token)]).await;
    for (status, message) in [http1, http2] {
        assert!(
            status == 431
                && message.starts_with("the headers of this message have 8")
                && message.ends_with("more than the limit of 65536"),
            "{status} {message}"
        );
    }
    assert!(grpc.0 == 8 && grpc.1.ends_with("more than the limit of 65536"), "{grpc:?}");

    let names: Vec<&'static str> = (0..97).map(|index| &*format!("x-{index}").leak()).collect();
    let headers: Vec<(&'static str, &str)> = names.into_iter().map(|name| (name, "1")).collect();
    let (http1, http2, grpc) = heads(&server, "", &headers[..80]).await;
    assert_eq!((http1.0, http2.0, grpc.0), (200, 200, 0));
    let (http1, http2, grpc) = heads(&server, "", &headers).await;
    for (status, message) in [http1, http2] {
        assert!(status == 431 && message.ends_with("headers, more than the limit of 96"), "{status} {message}");
    }
    assert!(grpc.0 == 8 && grpc.1.ends_with("headers, more than the limit of 96"), "{grpc:?}");

    let (http1, http2, grpc) = heads(&server, &"q".repeat(40 << 10), &[]).await;
    for (status, message) in [http1, http2] {
        assert!(status == 414 && message.ends_with("more than the limit of 32768"), "{status} {message}");
    }
    assert!(grpc.0 == 8 && grpc.1.starts_with("the path has "), "{grpc:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_with_two_hosts_is_rejected() {
    let server = TestServer::start(Folder::new().with_identity("m"));
    // It is the second one over HTTP/1.1, and the only one over gRPC.
    let (http1, _, grpc) = heads(&server, "", &[("host", "test")]).await;
    assert_eq!(http1, (400, "the request has 2 `Host` headers; only one is allowed".to_owned()));
    assert_eq!(grpc, (0, String::new()));
    let hosts = [("host", "test"), ("host", "test")];
    let code = Http2::connect(server.grpc).await.head("/inference.GRPCInferenceService/ModelInfer", &hosts, b"").await;
    assert_eq!(code, Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn head_beyond_what_the_libraries_read_is_rejected_by_every_protocol() {
    let server = TestServer::start(Folder::new().with_identity("m"));
    let names: Vec<&'static str> = (0..300).map(|index| &*format!("x-{index}").leak()).collect();
    let many: Vec<(&'static str, &str)> = names.into_iter().map(|name| (name, "1")).collect();
    // HTTP/2 and gRPC read any number.
    let [http1, http2, grpc] = raw_heads(&server, &many).await;
    assert_eq!(http1, (431, String::new()));
    assert!(http2.0 == 431 && http2.1.contains("more than the limit of 96"), "{http2:?}");
    assert_eq!(grpc, (200, "8".to_owned()));
    let long = "a".repeat(430 << 10);
    let [http1, http2, grpc] = raw_heads(&server, &[("authorization", &long)]).await;
    // Whether HTTP/1.1 has a body depends on how much arrives at once.
    assert_eq!(http1.0, 431, "{http1:?}");
    assert_eq!([http2, grpc], [(431, String::new()), (431, String::new())]);
    assert_eq!(raw_heads(&server, &[]).await[0].0, 200);
}

/// Returns the status and the body over HTTP/1.1 and HTTP/2, and what a call of gRPC sees.
async fn raw_heads(server: &TestServer, headers: &[(&'static str, &str)]) -> [(u16, String); 3] {
    let lines: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let lines = lines.concat();
    let head = format!("POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n{lines}\r\n{BODY}", BODY.len());
    let address = server.http;
    let first = tokio::task::spawn_blocking(move || {
        let mut connection = Connection::open(address);
        connection.write_if_taken(head);
        connection.answer()
    });
    let first = first.await.unwrap();
    let json = [&[("content-type", "application/json")], headers].concat();
    let second = Http2::connect_with_settings(server.http).await.call(INFER, &json, BODY.as_bytes()).await;
    let message = framed(0, &infer_request("m", "INT32", &[2], ints(&[1, 2])).encode_to_vec());
    let connection = Http2::connect_with_settings(server.grpc).await;
    let third = connection.call("/inference.GRPCInferenceService/ModelInfer", headers, &message).await;
    let text = |body: &[u8]| String::from_utf8_lossy(body).into_owned();
    let status = third.headers.get("grpc-status").map_or("", |value| value.to_str().unwrap());
    [(first.status, text(&first.body)), (second.status, text(&second.body)), (third.status, status.to_owned())]
}
