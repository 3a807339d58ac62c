//! More models than fit into the memory budget.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::python::with_python;
use crate::support::worker_models::{self, has_ended, infer, pid, value};
use crate::support::{Client, Folder, ServerBuilder, TestServer};

const ONE_ROW: &str = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]}"#;
const NAMES: [&str; 4] = ["m1", "m2", "m3", "m4"];
const OUT: &str = "evicted; loads on the next request";

/// Four models of 100 bytes each, in space for two.
fn folder() -> Folder {
    let settings = json!({"models_max_bytes": 250});
    let model = json!({"parameters": {"memory_bytes": 100}});
    NAMES.iter().fold(Folder::new().settings(&settings), |folder, name| folder.with_iris(name, &model))
}

/// Name, state and reason of each model.
fn index(server: &TestServer) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let index = server.post("/v2/repository/index", "{}").ok();
    let entries = index.as_array().unwrap().iter();
    entries.map(|entry| (text(&entry["name"]), text(&entry["state"]), text(&entry["reason"]))).collect()
}

fn metric(server: &TestServer, name: &str) -> u64 {
    let scrape = server.scrape();
    let line = scrape.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap().to_owned();
    line.parse().unwrap()
}

#[test]
fn memory_budget_evicted_model_loads_on_request() {
    let server = ServerBuilder::new(folder()).flag("--strict").start();
    let entries = index(&server);
    assert!(entries.iter().all(|(_, state, _)| state == "READY"), "{entries:?}");
    assert_eq!(entries.iter().filter(|(.., reason)| reason == OUT).count(), 2, "{entries:?}");
    assert_eq!(server.get("/v2/health/ready").status, 200);
    for name in NAMES.iter().chain(&NAMES) {
        assert_eq!(server.get(&format!("/v2/models/{name}/ready")).status, 200);
        let answer = server.post(&format!("/v2/models/{name}/infer"), ONE_ROW).ok();
        assert_eq!((&answer["model_name"], &answer["outputs"][0]["data"]), (&json!(name), &json!([2])));
        assert!(metric(&server, "models_memory_bytes") <= 200);
    }
    let asked_last: Vec<_> = index(&server).into_iter().filter(|(.., reason)| reason.is_empty()).collect();
    assert_eq!(asked_last.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>(), ["m3", "m4"]);
    assert_eq!(metric(&server, "models_memory_budget_bytes"), 250);
    // Two did not fit at startup; each of the eight requests except the first two was for an evicted model.
    assert!(metric(&server, "models_loaded_on_demand_total") >= 6);
    assert!(metric(&server, "models_evicted_total") >= 8);

    // A reload uses the memory of the model that it replaces.
    let loaded = server.post("/v2/repository/models/m1/load", "");
    assert_eq!((loaded.status, loaded.text()), (200, ""));
    server.post("/v2/models/m1/infer", ONE_ROW).ok();
    assert_eq!(server.post("/v2/repository/models/m1/unload", "").status, 200);
    assert_eq!(metric(&server, "models_memory_bytes"), 100);
}

#[test]
fn memory_budget_includes_contributions() {
    const EXPLAINED: &str = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}],"outputs":[{"name":"contributions"}]}"#;
    let start = |bytes: u64| {
        let folder = Folder::new().settings(&json!({"models_max_bytes": bytes}));
        let model = json!({"parameters": {"memory_bytes": 100}});
        TestServer::start(["m1", "m2"].iter().fold(folder, |folder, name| folder.with_iris(name, &model)))
    };
    let explain = |server: &TestServer, name| server.post(&format!("/v2/models/{name}/infer"), EXPLAINED);
    let server = start(1 << 30);
    let wanted = explain(&server, "m1").ok()["outputs"].clone();
    let needed = metric(&server, "models_memory_bytes") - 200;
    assert!(needed > 1000, "{needed} bytes");
    explain(&server, "m1").ok();
    assert_eq!(metric(&server, "models_memory_bytes"), 200 + needed, "they are prepared once");

    // One model at a time can be explained.
    let server = start(150 + needed);
    for name in ["m1", "m2", "m1"] {
        assert_eq!(explain(&server, name).ok()["outputs"], wanted);
        let in_memory = index(&server).into_iter().filter(|(.., reason)| reason.is_empty());
        assert_eq!(in_memory.map(|(name, ..)| name).collect::<Vec<_>>(), [name]);
        assert_eq!(metric(&server, "models_memory_bytes"), 100 + needed);
    }

    // Predictions need less memory.
    let server = start(99 + needed);
    let message = explain(&server, "m1").error(400);
    assert!(message.contains(&format!("needs {needed} bytes for it beside its own 100")), "{message}");
    assert!(message.contains("models_max_bytes"), "{message}");
    server.post("/v2/models/m1/infer", ONE_ROW).ok();
}

#[test]
fn memory_budget_failed_load_after_eviction_is_not_ready() {
    let server = TestServer::start(folder());
    for name in ["m1", "m2", "m3"] {
        server.post(&format!("/v2/models/{name}/infer"), ONE_ROW).ok();
    }
    fs::write(server.folder.path("m1/model.json"), "{").unwrap();
    let message = server.post("/v2/models/m1/infer", ONE_ROW).error(503);
    assert_eq!(message, "the model cannot be loaded; the log has the reason");
    let file = server.folder.path("m1/model.json");
    let [(_, state, reason), ..] = &index(&server)[..] else { unreachable!() };
    assert_eq!(state, "UNAVAILABLE");
    assert!(reason.contains(file.to_str().unwrap()), "{reason}");
    assert_eq!(server.get("/v2/models/m1/ready").status, 400);
    assert_eq!(server.get("/v2/health/ready").status, 400);
    server.post("/v2/models/m2/infer", ONE_ROW).ok();
}

#[test]
fn memory_budget_too_large_model_does_not_load() {
    let folder = folder().with_iris("large", &json!({"parameters": {"memory_bytes": 251}}));
    let ended = ServerBuilder::new(folder).run();
    assert_eq!(ended.code, Some(1));
    let reason = "Couldn't load model 'large': the model needs 251 bytes (`memory_bytes`), but pinned models take 0 of the 250 bytes of `models_max_bytes`";
    assert!(ended.stdout.contains(reason), "{}", ended.stdout);
}

#[test]
fn memory_budget_waits_for_workers_of_evicted_models() {
    // Each model has a worker of its own, and there is memory for one of them.
    let folder = worker_models::folder(&[("a", "Trouble"), ("b", "Trouble")]);
    let folder = ["a", "b"].iter().fold(folder, |folder, name| {
        let parameters = json!({"memory_bytes": 100, "inference_pool_gid": name});
        let settings = json!({"name": name, "implementation": "models.Trouble", "parameters": parameters});
        folder.file(&format!("{name}/model-settings.json"), settings.to_string())
    });
    let settings = json!({"models_max_bytes": 150, "parallel_workers": 1});
    let Some(starting) = with_python(folder.settings(&settings)) else { return };
    let server = starting.start();
    let client = Client::new(server.http);
    let mut before = None;
    for name in ["a", "b", "a", "b"] {
        let asked = Instant::now();
        let worker = pid(value(&infer(&client, name, "pid")));
        assert!(asked.elapsed() < Duration::from_secs(6), "it waited for longer than the other worker took to end");
        if let Some(before) = before.replace(worker) {
            assert!(has_ended(before), "the model was loaded before the other one's worker had ended");
        }
    }
}
