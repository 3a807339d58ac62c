//! Models in Python that tell where they run.

use std::collections::BTreeSet;
use std::fs;
use std::thread;

use serde_json::{Value, json};

use super::{Client, Folder, TestServer, repository_path};

/// A folder with such models: names, and settings beside name and implementation.
pub(crate) fn where_models(models: &[(&str, Value)]) -> Folder {
    let source = fs::read(repository_path("tests/fixtures/environments/models.py")).unwrap();
    models.iter().fold(Folder::new(), |folder, (name, settings)| {
        let mut all = json!({"name": name, "implementation": "models.Where"});
        all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        folder.file(&format!("{name}/models.py"), &source).file(&format!("{name}/model-settings.json"), all.to_string())
    })
}

/// Asks a model where it runs.
#[track_caller]
pub(crate) fn ask(client: &Client, model: &str, milliseconds: u64) -> Value {
    let input = json!({"name": "x", "shape": [1], "datatype": "INT64", "data": [milliseconds]});
    let body = json!({"inputs": [input]}).to_string();
    let answer = client.post(&format!("/v2/models/{model}/infer"), body).ok();
    serde_json::from_str(answer["outputs"][0]["data"][0].as_str().unwrap()).unwrap()
}

/// Asks a model `count` times at once, each time holding its worker for so many milliseconds.
pub(crate) fn calls(server: &TestServer, model: &str, count: usize, milliseconds: u64) -> Vec<Value> {
    let calls: Vec<_> = (0..count)
        .map(|_| {
            let (client, model) = (Client::new(server.http), model.to_owned());
            thread::spawn(move || ask(&client, &model, milliseconds))
        })
        .collect();
    calls.into_iter().map(|call| call.join().unwrap()).collect()
}

/// Returns the processes that answer a model's requests.
pub(crate) fn processes(server: &TestServer, model: &str) -> BTreeSet<i64> {
    // Each call takes so long that every worker is needed.
    calls(server, model, 12, 100).iter().map(|answer| answer["pid"].as_i64().unwrap()).collect()
}
