//! What models and workers report of their failures is for the log and for administrators.

use mlserver::access::KeyHash;
use prost::Message;
use serde_json::{Value, json};

use crate::support::grpc::{Http2, framed, infer_request, ints};
use crate::support::python::with_python;
use crate::support::{Answer, Folder, TestServer, wait_until};

const SECRET: &str = "postgres://app:hunter2@db";

const MODELS: &str = r#"
import os
import sys
from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput


class Broken(MLModel):
    async def load(self):
        raise RuntimeError("cannot connect to postgres://app:hunter2@db")


class Dying(MLModel):
    async def predict(self, payload):
        print("cannot connect: postgres://app:hunter2@db", file=sys.stderr, flush=True)
        os._exit(3)


class Stream(MLModel):
    async def predict_stream(self, payloads):
        async for payload in payloads:
            output = ResponseOutput(name="y", shape=[1], datatype="INT64", data=[1])
            yield InferenceResponse(model_name=self.name, outputs=[output])


class Crashing(MLModel):
    async def predict(self, payload):
        postgres = "postgres://app:hunter2@db"
        import ctypes
        ctypes.string_at(0)
"#;

fn server() -> Option<TestServer> {
    let entry = |name: &str, scopes: &[&str]| json!({"name": name, "hash": KeyHash::of(format!("{name}-key").as_bytes()).to_string(), "scopes": scopes});
    let mut one = entry("one", &["infer"]);
    one["models"] = json!(["str*"]);
    let keys = json!([one, entry("admin", &["admin", "read"]), entry("read", &["read"]), entry("infer", &["infer"])]);
    let model =
        |name: &str, class: &str| json!({"name": name, "implementation": format!("models.{class}")}).to_string();
    let mut folder = Folder::new()
        .file("keys.json", keys.to_string())
        .settings(&json!({"api_keys_file": "keys.json", "exit_on_load_failure": false}));
    for (name, class) in [("broken", "Broken"), ("dying", "Dying"), ("crashing", "Crashing"), ("stream", "Stream")] {
        folder = folder
            .file(&format!("{name}/models.py"), MODELS)
            .file(&format!("{name}/model-settings.json"), model(name, class));
    }
    Some(with_python(folder)?.listen())
}

fn get(server: &TestServer, path: &str, key: Option<&str>) -> Answer {
    let authorization = format!("Bearer {}-key", key.unwrap_or_default());
    let headers: Vec<_> = key.iter().map(|_| ("authorization", authorization.as_str())).collect();
    server.request(&http::Method::GET, path, &headers, b"")
}

#[test]
fn diagnostics_are_for_administrators() {
    let Some(server) = server() else { return };
    server.wait_for_log("Couldn't load model 'broken'");
    server.wait_for_log("Loaded model 'dying'");
    server.wait_for_log("Loaded model 'crashing'");
    for path in ["/v2/health/ready", "/v2/models/broken/ready", "/v1/models/broken"] {
        for key in [None, Some("read"), Some("infer"), Some("wrong")] {
            let text = get(&server, path, key).text().to_owned();
            assert!(!text.contains("hunter2") && text.contains("broken"), "{path} {key:?}: {text}");
        }
    }
    assert!(get(&server, "/v2/health/ready", None).text().contains(r#""state":"#), "states are for everybody");
    for path in ["/v2/health/ready", "/v2/models/broken/ready"] {
        let text = get(&server, path, Some("admin")).text().to_owned();
        assert!(text.contains(SECRET), "{path}: {text}");
    }
    let index = |key: &str| -> Value {
        server.post_with("/v2/repository/index", &[("authorization", &format!("Bearer {key}-key"))], "{}").ok()
    };
    assert!(!index("read").to_string().contains("hunter2"));
    assert!(index("admin").to_string().contains(SECRET));
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let connection = Http2::connect(server.grpc).await;
        for (key, sees) in [("read", false), ("admin", true)] {
            let key = format!("Bearer {key}-key");
            let path = "/inference.GRPCInferenceService/RepositoryIndex";
            let answer = connection.call(path, &[("authorization", &key)], &framed(0, b"")).await;
            let response =
                mlserver::types::protobuf::messages::RepositoryIndexResponse::decode(&answer.body[5..]).unwrap();
            let reasons: String = response.models.into_iter().map(|model| model.reason).collect();
            assert_eq!(reasons.contains(SECRET), sees, "{reasons}");
        }
    });
    // The last line, and the stack that a crashing interpreter writes.
    for model in ["dying", "crashing", "broken"] {
        let body = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[1]}]}"#;
        let headers = [("authorization", "Bearer infer-key"), ("content-type", "application/json")];
        let answer = server.post_with(&format!("/v2/models/{model}/infer"), &headers, body);
        let text = answer.text();
        assert!(answer.status >= 400 && !text.contains("hunter2") && !text.contains("line"), "{model}: {text}");
    }
    wait_until("the log has the line", || server.log().contains("cannot connect: postgres://app:hunter2@db"));
}

#[test]
fn later_message_of_a_stream_needs_a_key_for_its_model() {
    let Some(server) = server() else { return };
    server.wait_for_log("Loaded model 'stream'");
    let message = |model: &str| framed(0, &infer_request(model, "INT32", &[1], ints(&[1])).encode_to_vec());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let path = "/inference.GRPCInferenceService/ModelStreamInfer";
        let connection = Http2::connect(server.grpc).await;
        for (key, second, code) in [
            ("one", "stream", 0),
            ("one", "", 0),
            ("one", "dying", 7),
            ("one", "unknown", 7),
            ("infer", "dying", 0),
            ("infer", "unknown", 0),
        ] {
            let messages = [message("stream"), message(second)].concat();
            let key = format!("Bearer {key}-key");
            let answer = connection.call(path, &[("authorization", &key)], &messages).await;
            assert_eq!(answer.end().0, code, "{key} {second}: {:?}", answer.end());
        }
    });
}
