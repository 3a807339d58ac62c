//! Models in Python that report the process and interpreter that they run in.

use std::collections::BTreeSet;
use std::fs;
use std::thread;

use serde_json::{Value, json};

use super::{Client, Folder, TestServer, repository_path};

/// Creates a folder with such models, by name and additional settings.
pub(crate) fn process_models(models: &[(&str, Value)]) -> Folder {
    let source = fs::read(repository_path("tests/fixtures/environments/models.py")).unwrap();
    models.iter().fold(Folder::new(), |folder, (name, settings)| {
        let mut all = json!({"name": name, "implementation": "models.Where"});
        all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        if all["parameters"].get("queue_target").is_none() {
            // On a busy machine, concurrent calls wait for longer than the default allows.
            all["parameters"]["queue_target"] = json!(0);
        }
        folder.file(&format!("{name}/models.py"), &source).file(&format!("{name}/model-settings.json"), all.to_string())
    })
}

/// Returns what a model reports about its process.
#[track_caller]
pub(crate) fn ask(client: &Client, model: &str, milliseconds: u64) -> Value {
    let input = json!({"name": "x", "shape": [1], "datatype": "INT64", "data": [milliseconds]});
    let body = json!({"inputs": [input]}).to_string();
    let answer = client.post(&format!("/v2/models/{model}/infer"), body).ok();
    serde_json::from_str(answer["outputs"][0]["data"][0].as_str().unwrap()).unwrap()
}

/// Sends `count` concurrent requests to a model, each of which occupies its worker for so many milliseconds.
pub(crate) fn calls(server: &TestServer, model: &str, count: usize, milliseconds: u64) -> Vec<Value> {
    let calls: Vec<_> = (0..count)
        .map(|_| {
            let (client, model) = (Client::new(server.http), model.to_owned());
            thread::spawn(move || ask(&client, &model, milliseconds))
        })
        .collect();
    calls.into_iter().map(|call| call.join().unwrap()).collect()
}

/// Returns the ids of the processes that answer a model's requests.
pub(crate) fn processes(server: &TestServer, model: &str) -> BTreeSet<i64> {
    // Each call takes long enough to need every worker.
    calls(server, model, 12, 100).iter().map(|answer| answer["pid"].as_i64().unwrap()).collect()
}
