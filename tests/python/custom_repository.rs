//! A custom repository, which the setting `model_repository_implementation` names.

use std::fs;

use serde_json::json;

use crate::support::python::python;
use crate::support::{Answer, Folder, ServerBuilder, repository_path};

fn starting(listing: &str, more: &serde_json::Value) -> Option<ServerBuilder> {
    let python = python()?;
    let source = |name: &str| fs::read(repository_path(&format!("tests/fixtures/workers/{name}"))).unwrap();
    let mut settings = json!({
        "model_repository_implementation": "repositories.Listing",
        "model_repository_implementation_args": {"listing": "models.txt"},
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let folder = Folder::new()
        .file("repositories.py", source("repositories.py"))
        .file("models.py", source("models.py"))
        .file("models.txt", listing)
        // In a folder that is not searched.
        .file("hidden/model-settings.json", r#"{"implementation": "models.Identity"}"#)
        .settings(&settings);
    Some(ServerBuilder::new(folder).env("MLSERVER_PYTHON_EXECUTABLE", python.to_str().unwrap()))
}

fn names(index: &Answer) -> Vec<(String, String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let entries = index.ok();
    let entries = entries.as_array().unwrap().iter();
    entries.map(|entry| (text(&entry["name"]), text(&entry["version"]), text(&entry["state"]))).collect()
}

fn entry(name: &str, version: &str, state: &str) -> (String, String, String) {
    (name.to_owned(), version.to_owned(), state.to_owned())
}

#[test]
fn custom_repository_serves_what_it_lists_and_finds() {
    let Some(starting) = starting(r#"[["a", "1"], ["a", "2"], ["b", null]]"#, &json!({})) else { return };
    let server = starting.start();
    let infer = |path: &str| {
        let answer = server.post(&format!("/v2/models/{path}/infer"), r#"{"inputs": []}"#).ok();
        serde_json::from_value::<Vec<String>>(answer["outputs"][0]["data"].clone()).unwrap()
    };
    assert_eq!(infer("a/versions/1"), ["a", "1", "somewhere", "a"]);
    assert_eq!(infer("a"), ["a", "2", "somewhere", "a"]);
    assert_eq!(infer("b"), ["b", "", "somewhere", "b"]);
    let index = || names(&server.post("/v2/repository/index", "{}"));
    assert_eq!(index(), [entry("a", "1", "READY"), entry("a", "2", "READY"), entry("b", "", "READY")]);

    // A model that `find` returns need not be listed.
    assert_eq!(server.post("/v2/repository/models/extra-c/load", "").status, 200);
    assert_eq!(infer("extra-c"), ["extra-c", "", "somewhere", "extra-c"]);
    assert!(server.post("/v2/repository/index", "{}").text().contains("the repository no longer lists it"));
    assert_eq!(server.post("/v2/repository/models/d/load", "").error(404), "Model d not found");

    fs::write(server.folder.path("models.txt"), r#"[["a", "2"], ["d", null], ["broken", null]]"#).unwrap();
    assert_eq!(server.post("/v2/repository/models/d/load", "").status, 200);
    assert_eq!(server.post("/v2/repository/models/a/load", "").status, 200);
    let error = server.post("/v2/repository/models/broken/load", "").error(500);
    assert!(error.contains("there is no module `nowhere`"), "{error}");
    server.post("/v2/models/a/versions/1/infer", r#"{"inputs": []}"#).error(404);

    fs::write(server.folder.path("models.txt"), "no JSON").unwrap();
    let error = server.post("/v2/repository/index", "{}").error(422);
    assert!(error.starts_with("the model repository failed: json.decoder.JSONDecodeError: "), "{error}");
    assert_eq!(server.post("/v2/repository/models/a/load", "").status, 422);
    assert_eq!(infer("a"), ["a", "2", "somewhere", "a"], "nothing has changed");
}

#[test]
fn custom_repository_invalid_class_fails_the_start() {
    let cases = [
        (json!({}), "no JSON", "the model repository failed: json.decoder.JSONDecodeError"),
        (json!({"model_repository_implementation": "nowhere.Repository"}), "[]", "No module named 'nowhere'"),
        (json!({"model_repository_implementation_args": {"unknown": 1}}), "[]", "AssertionError: {'unknown': 1}"),
    ];
    for (settings, listing, reason) in cases {
        let Some(starting) = starting(listing, &settings) else { return };
        let ended = starting.run();
        assert_eq!(ended.code, Some(1), "{}", ended.stdout);
        assert!(ended.stderr.contains(reason) || ended.stdout.contains(reason), "{}{}", ended.stdout, ended.stderr);
    }
}
