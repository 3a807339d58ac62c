//! Models in Python that tell where they run.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::thread;

use serde_json::{Value, json};

use super::{Client, Folder, Starting, TestServer, repository_path};
use crate::workers::python;

/// A folder with such models: names, and settings beside name and implementation.
pub(crate) fn where_models(models: &[(&str, Value)]) -> Folder {
    let source = fs::read(repository_path("tests/fixtures/environments/models.py")).unwrap();
    models.iter().fold(Folder::new(), |folder, (name, settings)| {
        let mut all = json!({"name": name, "implementation": "models.Where"});
        all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
        folder.file(&format!("{name}/models.py"), &source).file(&format!("{name}/model-settings.json"), all.to_string())
    })
}

/// A server of this folder, or nothing without an interpreter.
pub(crate) fn with_python(folder: Folder) -> Option<Starting> {
    Some(Starting::new(folder).python(&python()?))
}

impl Starting {
    /// Sets what a server needs to run models in Python.
    pub(crate) fn python(self, python: &Path) -> Self {
        let cache = repository_path("target/test-cache");
        fs::create_dir_all(&cache).unwrap();
        self.env("XDG_CACHE_HOME", cache.to_str().unwrap())
            .env("PATH", "/usr/bin:/bin")
            .env("MLSERVER_PYTHON_EXECUTABLE", python.to_str().unwrap())
    }
}

/// Asks a model where it runs.
#[track_caller]
pub(crate) fn ask(client: &Client, model: &str, milliseconds: u64) -> Value {
    let input = json!({"name": "x", "shape": [1], "datatype": "INT64", "data": [milliseconds]});
    let body = json!({"inputs": [input]}).to_string();
    let answer = client.post(&format!("/v2/models/{model}/infer"), body).ok();
    serde_json::from_str(answer["outputs"][0]["data"][0].as_str().unwrap()).unwrap()
}

/// Returns the processes that answer a model's requests.
pub(crate) fn processes(server: &TestServer, model: &str) -> BTreeSet<i64> {
    // Each holds its worker for so long that every worker is needed.
    let calls: Vec<_> = (0..12)
        .map(|_| {
            let (client, model) = (Client::new(server.http), model.to_owned());
            thread::spawn(move || ask(&client, &model, 100)["pid"].as_i64().unwrap())
        })
        .collect();
    calls.into_iter().map(|call| call.join().unwrap()).collect()
}
