//! `mlserver doctor`: problems are found without starting a server or running a model's code.

use std::net::TcpListener;
use std::process::Output;

use serde_json::json;

use crate::support::python::python;
use crate::support::{Folder, mlserver_command};

fn doctor(folder: &Folder, variables: &[(&str, &str)]) -> Output {
    let mut command = mlserver_command(folder.root(), &["doctor", folder.root().to_str().unwrap()]);
    // Free ports, unless the settings override them; and no Docker engine.
    for name in ["MLSERVER_HTTP_PORT", "MLSERVER_GRPC_PORT", "MLSERVER_METRICS_PORT"] {
        command.env(name, "0");
    }
    command.env("MLSERVER_HOST", "127.0.0.1").env("DOCKER_HOST", "unix:///no/such/engine.sock");
    command.envs(variables.iter().copied()).output().unwrap()
}

/// Returns the findings, without the folder's path.
fn findings(folder: &Folder, output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let text = text.replace(folder.root().canonicalize().unwrap().to_str().unwrap(), "[DIR]");
    text.replace(folder.root().to_str().unwrap(), "[DIR]")
}

#[test]
fn doctor_folder_without_problems_passes() {
    let folder = Folder::quickstart();
    let output = doctor(&folder, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    insta::assert_snapshot!(findings(&folder, &output), @r"
    ok       server settings in `[DIR]` (`mlserver config show` prints them)
    ok       port 0 for HTTP is free
    ok       port 0 for gRPC is free
    ok       port 0 for metrics is free
    ok       model `breast-cancer-lightgbm` is native
    ok       model `iris-xgboost` is native
    warning  `mlserver build` does not work: no Docker engine responds at `unix:///no/such/engine.sock`: start one, or set `DOCKER_HOST`
    ");
}

#[test]
fn doctor_every_problem_has_a_hint() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let folder = Folder::iris()
        .settings(&json!({"http_port": port, "gprc_port": 1}))
        .file("broken/model-settings.json", "{")
        .file("lost/model-settings.json", r#"{"name": "lost", "implementation": "mlserver_lightgbm.LightGBMModel", "parameters": {"uri": "gone.bst"}}"#)
        .file("own/model-settings.json", r#"{"name": "own", "implementation": "models.Own", "parameters": {"environment_path": "/no/such/env"}}"#);
    let output = doctor(&folder, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stderr.clone()).unwrap(), "error: found 4 problems\n");
    let found = findings(&folder, &output).replace(&port.to_string(), "[PORT]");
    insta::assert_snapshot!(found, @r"
    warning  settings: unknown key `gprc_port` in `[DIR]/settings.json` (did you mean `grpc_port`?)
    ok       server settings in `[DIR]` (`mlserver config show` prints them)
    problem  the HTTP server cannot listen on 127.0.0.1:[PORT]: Address already in use (os error 98); stop the process using it, or change `http_port`
    ok       port 0 for gRPC is free
    ok       port 0 for metrics is free
    problem  failed to load the model settings at `[DIR]/broken/model-settings.json`: `[DIR]/broken/model-settings.json` is not valid JSON: EOF while parsing an object at line 1 column 1
    ok       model `iris-xgboost` is native
    problem  cannot load model `lost`: Invalid URI specified for model lost ([DIR]/lost/gone.bst): no such file or directory; its folder contains model-settings.json
    problem  model `own` runs in Python: cannot use `environment_path` /no/such/env: No such file or directory (os error 2)
    warning  `mlserver build` does not work: no Docker engine responds at `unix:///no/such/engine.sock`: start one, or set `DOCKER_HOST`
    ");
}

#[test]
fn doctor_python_models_report_their_interpreter() {
    let Some(python) = python() else { return };
    let folder = Folder::new().file("model-settings.json", r#"{"name": "own", "implementation": "models.Own"}"#);
    // The folder has no code of the model to run.
    let output = doctor(&folder, &[("MLSERVER_PYTHON_EXECUTABLE", python.to_str().unwrap())]);
    assert_eq!(output.status.code(), Some(0));
    let expected = format!("ok       model `own` runs in Python, with `{}`\n", python.display());
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(found.contains(&expected), "{found}");
    let output = doctor(&folder, &[("MLSERVER_PYTHON_EXECUTABLE", "/no/such/python")]);
    assert_eq!(output.status.code(), Some(1));
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(found.contains("problem  model `own` runs in Python: cannot run `/no/such/python`"), "{found}");
}

#[test]
fn doctor_empty_folder_suggests_next_steps() {
    let folder = Folder::new();
    let output = doctor(&folder, &[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(findings(&folder, &output).contains("warning  no models found: create one with `mlserver init [DIR]`"));
}
