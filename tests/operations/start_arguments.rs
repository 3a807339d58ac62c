//! The arguments of `mlserver start`: settings, the port file, model files, and folders without models.

use std::fs;

use http::Method;
use serde_json::{Value, json};

use crate::support::goldens::sklearn_golden;
use crate::support::{Folder, IRIS, ServerBuilder, repository_path, run_mlserver, wait_until};

const ONE_ROW: &str = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]}"#;

fn iris_artifact() -> Vec<u8> {
    fs::read(repository_path("examples/quickstart").join(IRIS).join("model.json")).unwrap()
}

/// Runs a start that fails, and returns its exit code and its message.
fn failing(server: ServerBuilder) -> (Option<i32>, String) {
    let ended = server.run();
    (ended.code, ended.stderr)
}

#[test]
fn start_arguments_take_precedence_over_file_and_environment() {
    let folder = Folder::iris().settings(&json!({"server_name": "file", "server_version": "file", "debug": true}));
    let server = ServerBuilder::new(folder)
        .env("MLSERVER_SERVER_VERSION", "environment")
        .flags(&["--set", "server_name=first", "--set", "server_name=last", "--set", "server_version=argument"])
        .flags(&["--log-level", "warning", "--set", "extensions=[\"a\", \"b\"]", "--no-debug"])
        .start();
    let metadata = server.get("/v2").ok();
    assert_eq!((&metadata["name"], &metadata["version"]), (&json!("last"), &json!("argument")));
    assert_eq!(metadata["extensions"], json!(["binary_tensor_data", "a", "b"]));
    let ended = server.terminate();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "a quiet server logs nothing");
}

#[test]
fn start_ports_and_host_have_shorthands() {
    // The file sets ports that cannot be bound.
    let folder =
        Folder::iris().settings(&json!({"host": "192.0.2.1", "http_port": 1, "grpc_port": 1, "metrics_port": 1}));
    let server = ServerBuilder::new(folder)
        .flags(&["--host", "127.0.0.1", "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"])
        .start();
    assert_eq!(server.get("/v2/health/ready").status, 200);
    assert_eq!(server.scrape().status, 200);
}

#[test]
fn start_invalid_arguments_say_what_is_expected() {
    let cases = [
        (&["--set", "http_port"][..], 2, "expected KEY=VALUE"),
        (&["--set", "http_prot=1"], 1, "unknown key `http_prot` from argument `--set` (did you mean `http_port`?)"),
        (&["--set", "cors_settings.max_aeg=1"], 1, "(did you mean `cors_settings.max_age`?)"),
        (&["--set", "http_port=99999"], 1, "`http_port` from argument `--set`: expected an integer from 0 to 65535"),
        (&["--set", "parallel_workers=-1"], 1, "expected an integer from 0 to 4294967295, found `\"-1\"`"),
        (&["--set", "extensions=a,b"], 1, "expected a list of strings as JSON, found `a,b`"),
        (
            &["--set", "server_name=null", "--set", "http_port=null"],
            1,
            "expected an integer from 0 to 65535, found `\"null\"`",
        ),
        (&["--parallel-workers", "-1"], 2, "-1"),
        (&["--log-level", "loud"], 2, "debug, info, warning, error"),
    ];
    for (flags, code, expected) in cases {
        let (found, stderr) = failing(ServerBuilder::new(Folder::iris()).flags(flags));
        assert_eq!(found, Some(code), "{flags:?}: {stderr}");
        assert!(stderr.contains(expected), "{flags:?}: {stderr}");
    }
}

#[test]
fn start_negative_counts_in_files_are_rejected_with_their_range() {
    for key in ["parallel_workers", "parallel_workers_timeout", "cache_size"] {
        let (code, stderr) = failing(ServerBuilder::new(Folder::iris().settings(&json!({key: -1}))));
        assert_eq!(code, Some(1), "{key}");
        assert!(
            stderr.contains(&format!("`{key}` in ")) && stderr.contains("expected an integer from 0 to "),
            "{stderr}"
        );
    }
}

#[test]
fn start_null_switches_a_setting_off() {
    let folder = Folder::iris().settings(&json!({"cors_settings": {"allow_origins": ["*"]}}));
    let server = ServerBuilder::new(folder).flags(&["--set", "cors_settings=null"]).start();
    let answer = server.request(&Method::GET, "/v2", &[("Origin", "https://a.example")], b"");
    assert!(answer.ok().is_object() && !answer.headers.contains_key("access-control-allow-origin"));
}

#[test]
fn config_show_takes_the_same_arguments() {
    let folder = Folder::iris();
    let arguments = ["config", "show", ".", "--format", "json", "--set", "http_port=9", "--grpc-port", "7"];
    let output = run_mlserver(folder.root(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let settings = &shown["server"]["settings"];
    assert_eq!(settings["http_port"], json!({"value": 9, "source": {"kind": "argument", "name": "--set"}}));
    assert_eq!(settings["grpc_port"], json!({"value": 7, "source": {"kind": "argument", "name": "--grpc-port"}}));
}

#[test]
fn start_port_file_has_every_address_when_the_models_are_ready() {
    let folder = Folder::iris();
    let path = folder.path("ports.json");
    fs::write(&path, "of an earlier server").unwrap();
    let server = ServerBuilder::new(folder).flags(&["--port-file", "ports.json", "--set", "admin_port=0"]).listen();
    wait_until("the port file", || fs::read_to_string(&path).is_ok_and(|text| text.starts_with('{')));
    // Nobody has to wait for readiness any more.
    assert_eq!(server.post("/v2/models/iris-xgboost/infer", ONE_ROW).status, 200);
    let ports: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let ports = ports.as_object().unwrap();
    assert_eq!(ports.keys().collect::<Vec<_>>(), ["http", "grpc", "metrics", "admin"]);
    assert_eq!(ports["http"], server.http.to_string());
    assert_eq!(ports["grpc"], server.grpc.to_string());
    assert_eq!(ports["metrics"], server.metrics.unwrap().to_string());
}

#[test]
fn start_port_file_is_not_written_by_a_failed_start() {
    let folder = Folder::new().with_iris("m", &json!({})).file("m/model.json", "{");
    let root = folder.root().to_owned();
    let builder = ServerBuilder::new(folder).flags(&["--port-file", "ports.json"]);
    // The folder must outlive the server.
    let (code, names) = builder.run_then(|ended| {
        let names: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        (ended.code, names)
    });
    assert_eq!((code, names), (Some(1), vec!["m".into()]));
    let (code, stderr) = failing(ServerBuilder::new(Folder::iris()).flags(&["--port-file", "none/ports.json"]));
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: cannot write the port file `none/ports.json`"), "{stderr}");
}

#[test]
fn start_folder_that_does_not_exist_is_an_error() {
    let (code, stderr) = failing(ServerBuilder::new(Folder::new()).argument("nowhere").flags(&["--allow-empty"]));
    assert_eq!(code, Some(1));
    assert_eq!(stderr, "error: `nowhere` does not exist: pass the folder of the models, or a model file\n");
    let (code, stderr) =
        failing(ServerBuilder::new(Folder::new()).argument("").env("MLSERVER_MODELS_DIR", "/no/models"));
    assert_eq!(code, Some(1));
    assert!(stderr.starts_with("error: `/no/models`, which `MLSERVER_MODELS_DIR` names, does not exist"), "{stderr}");
}

#[test]
fn start_folder_without_models_needs_allow_empty() {
    for folder in [Folder::new(), Folder::new().file("m/model.json", iris_artifact()).settings(&json!({}))] {
        let (code, stderr) = failing(ServerBuilder::new(folder));
        assert_eq!(code, Some(1));
        assert!(stderr.starts_with("error: no model found in `") && stderr.contains("`--allow-empty`"), "{stderr}");
    }
    let server = ServerBuilder::new(Folder::new()).flags(&["--allow-empty"]).start();
    server.wait_for_log("contains no model settings: no model is served.");
    assert_eq!(server.get("/v2/health/ready").status, 200);
}

#[test]
fn start_folder_with_only_a_model_file_names_it() {
    let mlflow = Folder::new().file("MLmodel", "flavors: {}").file("model.ubj", "x");
    let text = Folder::new().file("notes.txt", "hello").file("request.json", r#"{"inputs": []}"#);
    let churn = Folder::new().file("churn.json", iris_artifact()).file("a.txt", "hello");
    for (folder, file) in [(mlflow, Some("MLmodel")), (churn, Some("churn.json")), (text, None)] {
        let expected =
            file.map(|file| format!("/{file} serves a model file; `--allow-empty`").replace(" serves", "` serves"));
        let (code, stderr) = failing(ServerBuilder::new(folder));
        assert_eq!(code, Some(1));
        assert!(expected.is_none_or(|expected| stderr.contains(&expected)), "{stderr}");
        assert_eq!(stderr.contains("serves a model file"), file.is_some(), "{stderr}");
    }
}

#[test]
fn start_settings_that_cannot_be_read_are_a_failed_load() {
    let folder = || Folder::iris().file("broken/model-settings.json", "{");
    let (code, stderr) = failing(ServerBuilder::new(folder()));
    assert_eq!(code, Some(1));
    assert_eq!(stderr, "error: 1 model failed to load; `exit_on_load_failure` false serves the others\n");

    let server = ServerBuilder::new(folder()).flags(&["--set", "exit_on_load_failure=false"]).listen();
    server.wait_for_log("Some of the models failed to load during startup!");
    assert_eq!(server.post("/v2/models/iris-xgboost/infer", ONE_ROW).status, 200);
    assert_eq!(server.get("/v2/health/ready").status, 400, "ready means that every model can answer");
    let index = server.post("/v2/repository/index", "{}").ok();
    let broken = index.as_array().unwrap().iter().find(|model| model["name"] == "broken").unwrap();
    assert_eq!(broken["state"], "UNAVAILABLE");
    assert!(broken["reason"].as_str().unwrap().contains("is not valid JSON"), "{broken}");

    // The advice to serve the others is left out if there are none.
    let (_, stderr) = failing(ServerBuilder::new(Folder::new().file("broken/model-settings.json", "{")));
    assert_eq!(stderr, "error: 1 model failed to load\n");
}

#[test]
fn start_serves_a_model_file_under_its_stem() {
    let folder = Folder::new().file("churn.v2.json", iris_artifact()).settings(&json!({"server_name": "beside"}));
    let server = ServerBuilder::new(folder).argument("churn.v2.json").start();
    let line = server.wait_for_log("Serving `churn.v2.json`");
    assert!(
        line.ends_with("as model `churn.v2` with `mlserver_xgboost.XGBoostModel`: it is a file of XGBoost."),
        "{line}"
    );
    assert_eq!(server.post("/v2/models/churn.v2/infer", ONE_ROW).ok()["model_name"], "churn.v2");
    assert_eq!(server.get("/v2").ok()["name"], "beside");
    // It can be reloaded like any other.
    assert_eq!(server.post("/v2/repository/models/churn.v2/load", "").status, 200);
    assert_eq!(server.post("/v2/repository/models/other/load", "").status, 404);
}

#[test]
fn start_knows_model_files_of_every_native_family() {
    let lightgbm = fs::read(repository_path("examples/quickstart/breast-cancer-lightgbm/model.bst")).unwrap();
    for name in ["m.bst", "m.txt"] {
        let server = ServerBuilder::new(Folder::new().file(name, &lightgbm)).argument(name).start();
        server.wait_for_log("it is a file of LightGBM.");
        assert_eq!(server.get("/v2/models/m/ready").status, 200);
    }
    let sklearn = sklearn_golden("1.5.2/linear/labels_text.joblib");
    let server = ServerBuilder::new(Folder::new().file("m.joblib", sklearn)).argument("m.joblib").start();
    server.wait_for_log("it is a file of scikit-learn.");
    assert_eq!(server.get("/v2/models/m/ready").status, 200);
}

#[test]
fn start_other_files_are_rejected() {
    let cases = [
        (
            "notes.md",
            "`.md` is not the extension of a model file; model files are called *.joblib, *.pickle, *.pkl, *.skops (scikit-learn)",
        ),
        ("model", "its name has no extension"),
        ("model-settings.json", "`model-settings.json` contains settings, not a model: pass its folder"),
    ];
    for (name, expected) in cases {
        let (code, stderr) = failing(ServerBuilder::new(Folder::new().file(name, "{}")).argument(name));
        assert_eq!(code, Some(1), "{name}");
        assert!(stderr.contains(expected), "{name}: {stderr}");
    }
    // A file that is cut off is a failed load.
    let half = iris_artifact();
    let folder = Folder::new().file("cut.json", &half[..half.len() / 2]);
    let (code, stderr) = failing(ServerBuilder::new(folder).argument("cut.json"));
    assert_eq!((code, stderr.as_str()), (Some(1), "error: 1 model failed to load\n"));
}
