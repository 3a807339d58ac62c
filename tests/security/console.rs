//! Who sees what in the web console.

use http::Method;
use mlserver::access::KeyHash;
use serde_json::{Value, json};

use crate::support::python::with_python;
use crate::support::{Answer, Client, Folder, ServerBuilder, TestServer, wait_until};

const DATA: &str = "/v2/console/data";

fn entry(name: &str, scopes: &[&str], models: &[&str]) -> Value {
    let hash = KeyHash::of(format!("{name}-key").as_bytes()).to_string();
    json!({"name": name, "hash": hash, "scopes": scopes, "models": models})
}

/// Two models, one of which cannot be loaded.
fn folder() -> Folder {
    let keys = json!([
        entry("read", &["read"], &["*"]),
        entry("infer", &["infer"], &["*"]),
        entry("admin", &["admin"], &["*"]),
        entry("operator", &["read", "admin"], &["*"]),
        entry("team", &["read", "infer", "admin"], &["team-*"]),
    ]);
    let broken = json!({"name": "broken", "implementation": "mlserver_xgboost.XGBoostModel", "parameters": {"uri": "./secret.json"}});
    Folder::new()
        .with_identity("team-echo")
        .file("broken/model-settings.json", broken.to_string())
        .file("keys.json", keys.to_string())
        .settings(&json!({"api_keys_file": "keys.json", "exit_on_load_failure": false}))
}

fn serve() -> TestServer {
    let server = ServerBuilder::new(folder()).listen();
    server.wait_for_log("Couldn't load model 'broken'");
    server.wait_for_log("Loaded model 'team-echo'");
    server
}

fn get(client: &Client, path: &str, key: &str) -> Answer {
    client.request(&Method::GET, path, &[("authorization", &format!("Bearer {key}-key"))], b"")
}

#[test]
fn console_page_is_open_and_its_data_needs_the_scope_read() {
    let server = serve();
    let page = server.get("/v2/console");
    assert_eq!(page.status, 200);
    for path in [DATA, "/v2/console/models/team-echo"] {
        assert_eq!(server.get(path).status, 401);
        for key in ["infer", "admin"] {
            assert!(get(&server, path, key).error(403).ends_with("does not have the scope `read`"), "{path}");
        }
        get(&server, path, "read").ok();
    }
}

#[test]
fn console_shows_reasons_to_administrators_only() {
    let server = serve();
    let seen = |key: &str| {
        let data = get(&server, DATA, key);
        let rights = data.ok()["rights"].clone();
        let rights = ["infer", "change", "details"].map(|right| rights[right] == true);
        (rights, data.text().contains("secret.json"), data.ok()["workers"].is_array())
    };
    assert_eq!(seen("read"), ([false, false, false], false, false));
    assert_eq!(seen("operator"), ([false, true, true], true, true));
    let broken = |key: &str| get(&server, "/v2/console/models/broken", key).ok()["model"].clone();
    assert_eq!((broken("read").get("reason"), &broken("read")["state"]), (None, &json!("FAILED")));
    assert!(broken("operator")["reason"].as_str().unwrap().contains("secret.json"));
}

#[test]
fn console_lists_only_the_models_of_the_key() {
    let server = serve();
    let data = get(&server, DATA, "team").ok();
    assert_eq!((&data["total"], &data["states"]), (&json!(1), &json!({"READY": 1})));
    assert_eq!(data["models"][0]["name"], "team-echo");
    assert_eq!(get(&server, "/v2/console/models/broken", "team").status, 403);
}

const DYING: &str = r#"
import os
import sys
from mlserver import MLModel


class Dying(MLModel):
    async def predict(self, payload):
        print("password: hunter2", file=sys.stderr, flush=True)
        os._exit(3)
"#;

#[test]
fn console_shows_workers_with_their_last_end_to_administrators() {
    let settings = json!({"name": "dying", "implementation": "models.Dying"}).to_string();
    let folder = folder().file("dying/models.py", DYING).file("dying/model-settings.json", settings);
    let Some(server) = with_python(folder) else { return };
    let server = server.listen();
    server.wait_for_log("Loaded model 'dying'");
    let body = br#"{"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}"#;
    let headers = [("authorization", "Bearer infer-key"), ("content-type", "application/json")];
    assert_eq!(server.request(&Method::POST, "/v2/models/dying/infer", &headers, body).status, 503);
    let workers = |key: &str| get(&server, DATA, key).ok()["workers"].clone();
    wait_until("the worker has been started again", || {
        workers("operator")
            .as_array()
            .is_some_and(|all| all.iter().any(|worker| worker["ended"] == 1 && worker["state"] == "running"))
    });
    let all = workers("operator");
    let ended = all.as_array().unwrap().iter().find(|worker| worker["ended"] == 1).unwrap();
    assert!(ended["last_end"]["reason"].as_str().unwrap().contains("hunter2"), "{ended}");
    assert!(ended["pid"].as_u64().is_some() && ended["last_end"]["at"].as_u64() > Some(1_600_000_000), "{ended}");
    assert_eq!(workers("read"), Value::Null);
    // What a worker wrote last may be about a model that the key may not use.
    assert_eq!(workers("team"), json!([]));
}
