//! `mlserver inspect` and `init --from`: what a model file contains, with an example that a server answers.

use std::fs;

use serde_json::Value;

use crate::support::goldens::{framework_models, golden_archives, sklearn_golden};
use crate::support::{Folder, IRIS, ServerBuilder, mlserver_command, repository_path, run_mlserver};

fn inspect(folder: &Folder, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = run_mlserver(folder.root(), &[&["inspect"], arguments].concat());
    (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

fn quickstart(file: &str) -> Vec<u8> {
    fs::read(repository_path("examples/quickstart").join(file)).unwrap()
}

/// Serves a model file, and returns the answer to the example that `inspect` prints for it.
#[track_caller]
fn answer_to_example(folder: Folder, file: &'static str, name: &str) -> Value {
    let (code, request, error) = inspect(&folder, &[file, "--example"]);
    assert_eq!(code, Some(0), "{error}");
    let server = ServerBuilder::new(folder).argument(file).start();
    server.post(&format!("/v2/models/{name}/infer"), request).ok()
}

#[test]
fn inspect_shows_what_a_request_needs() {
    let folder = Folder::new().file("churn.json", quickstart("iris-xgboost/model.json"));
    let (code, text, error) = inspect(&folder, &["churn.json"]);
    assert_eq!(code, Some(0), "{error}");
    let kib = text.lines().find(|line| line.starts_with("memory: about ")).unwrap().to_owned();
    insta::assert_snapshot!(text.replace(&kib, "[MEMORY]"), @r#"
    XGBoost classifier
    written by: XGBoost 3.2
    outputs: predict, predict_proba
    served natively: yes
    [MEMORY]
    inputs:
      x FP32 [-1, 4]
    outputs of the example:
      predict INT64 [-1, 1]
    example:
      curl localhost:8080/v2/models/churn/infer -H 'Content-Type: application/json' -d '{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[0.0,0.0,0.0,0.0]}]}'
    "#);
}

#[test]
fn inspect_prints_json() {
    let folder = Folder::new().file("m.bst", quickstart("breast-cancer-lightgbm/model.bst"));
    let (_, text, _) = inspect(&folder, &["m.bst", "--format", "json"]);
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&found["native"], &found["family"]), (&Value::from(true), &Value::from("LightGBM")));
    assert_eq!(found["written_by"], "LightGBM, in format v4");
    assert_eq!(found["columns"].as_array().unwrap().len(), 30);
    assert_eq!(found["inputs"][0]["shape"], serde_json::json!([-1, 30]));
    assert_eq!(found["example_outputs"][0]["name"], "predict");
}

#[test]
fn inspect_names_the_columns_that_a_pipeline_drops() {
    let model = sklearn_golden("1.5.2/compose/frame_names.joblib");
    let folder = Folder::new().file("m.joblib", model);
    let (_, text, _) = inspect(&folder, &["m.joblib", "--format", "json"]);
    let found: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(found["columns"], serde_json::json!(["one", "two", "three", "four", "five"]));
    assert_eq!(found["unread_columns"], serde_json::json!(["three", "five"]));
    let (_, text, _) = inspect(&folder, &["m.joblib"]);
    assert!(text.contains("  of which a data frame may lack three, five\n"), "{text}");
    let without = Folder::new().file("m.joblib", sklearn_golden("1.5.2/compose/frame_remainder.joblib"));
    let (_, text, _) = inspect(&without, &["m.joblib", "--format", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["unread_columns"], serde_json::json!([]));
    // A server answers without them.
    let column = |name: &str| serde_json::json!({"name": name, "shape": [1, 1], "datatype": "FP64", "data": [1.5]});
    let inputs = ["one", "two", "four"].map(column);
    let request = serde_json::json!({"parameters": {"content_type": "pd"}, "inputs": inputs});
    let server = ServerBuilder::new(folder).argument("m.joblib").start();
    let answer = server.post("/v2/models/m/infer", request.to_string()).ok();
    assert_eq!(answer["outputs"][0]["shape"], serde_json::json!([1, 1]));
}

#[test]
fn inspect_names_the_columns_of_pickled_lightgbm_models() {
    // The names are only in LightGBM's text, and not an attribute of the wrapper.
    for version in ["0.24.2", "1.9.1"] {
        let model = sklearn_golden(&format!("{version}/wrappers/lgbm_frame.pickle"));
        let folder = Folder::new().file("m.pickle", model);
        let (_, text, _) = inspect(&folder, &["m.pickle", "--format", "json"]);
        let found: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["native"], true, "{version}");
        assert_eq!(found["columns"], serde_json::json!(["one", "two", "three", "four"]), "{version}");
        assert_eq!(found["unread_columns"], serde_json::json!([]), "{version}");
    }
}

#[test]
fn inspect_examples_are_answered_by_a_server() {
    for (file, source) in [("m.json", "iris-xgboost/model.json"), ("m.txt", "breast-cancer-lightgbm/model.bst")] {
        let answer = answer_to_example(Folder::new().file(file, quickstart(source)), file, "m");
        assert_eq!(answer["outputs"][0]["shape"][0], 1, "{file}");
    }
    for case in ["compose/pipeline_forest", "linear/labels_text"] {
        let folder = Folder::new().file("m.joblib", sklearn_golden(&format!("1.5.2/{case}.joblib")));
        let answer = answer_to_example(folder, "m.joblib", "m");
        assert!(answer["outputs"].is_array(), "{case}: {answer}");
    }
}

#[test]
fn inspect_finds_examples_for_nearly_all_estimators() {
    let archives = golden_archives("sklearn");
    let newest = archives.last().unwrap();
    let (mut with, mut without) = (0, Vec::new());
    for name in newest.names().filter(|name| name.ends_with(".joblib")) {
        let folder = Folder::new().file("m.joblib", newest.file(name));
        let (code, text, error) = inspect(&folder, &["m.joblib", "--format", "json"]);
        assert_eq!(code, Some(0), "{name}: {error}");
        let found: Value = serde_json::from_str(&text).unwrap();
        if found["native"] == true && found["example"].is_null() {
            without.push(name.to_owned());
        } else {
            with += 1;
        }
    }
    assert!(with > 50 && without.len() * 20 < with, "{} without an example, {with} with: {without:?}", without.len());
}

#[test]
fn inspect_reads_folders_with_settings() {
    let folder = Folder::iris();
    let (code, text, error) = inspect(&folder, &[IRIS]);
    assert_eq!(code, Some(0), "{error}");
    assert!(text.starts_with("XGBoost ") && text.contains("/v2/models/iris-xgboost/infer"), "{text}");
}

#[test]
fn inspect_names_the_output_of_an_mlflow_model_as_its_answer_does() {
    for model in ["linear", "column", "xgboost_booster"] {
        let mut folder = Folder::new();
        let source = repository_path("tests/goldens/mlflow").join(model).join("model");
        for entry in fs::read_dir(source).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            folder = folder.file(&format!("flow/{name}"), fs::read(&path).unwrap());
        }
        let (code, text, error) = inspect(&folder, &["flow", "--format", "json"]);
        assert_eq!(code, Some(0), "{model}: {error}");
        let inspected: Value = serde_json::from_str(&text).unwrap();
        let answer = answer_to_example(folder, "flow/MLmodel", "flow");
        assert_eq!(inspected["outputs"], serde_json::json!([answer["outputs"][0]["name"]]), "{model}: {text}");
    }
}

#[test]
fn inspect_says_why_there_is_no_example() {
    let models = framework_models("mlflow");
    let free = models.names().filter(|name| name.starts_with("free/"));
    let folder = free.fold(Folder::new(), |folder, name| folder.file(name, models.file(name)));
    let (code, _, error) = inspect(&folder, &["free/model", "--example"]);
    assert_eq!(code, Some(1));
    assert!(error.starts_with("error: no example for `free/model`: the model is not served natively: "), "{error}");
}

#[test]
fn inspect_rejects_what_is_no_model() {
    let folder = Folder::new().file("m.cbm", "CBM1").file("a.txt", "hello").file("b.md", "").file("c/x", "");
    let folder = folder.file("own/model-settings.json", r#"{"implementation": "models.Own"}"#);
    for (path, expected) in [
        ("m.cbm", "file ends at byte 4, inside the core of the model"),
        ("a.txt", "a.txt"),
        ("b.md", "`.md` is not the extension of a model file"),
        (
            "c",
            "`c` is a folder without `MLmodel` or `model-settings.json`: pass a model file, or the folder of one model",
        ),
        ("own", "/own`: its implementation `models.Own` is not the runtime of a model file; `mlserver doctor "),
        ("none.json", "it cannot be read: No such file or directory"),
    ] {
        let (code, _, error) = inspect(&folder, &[path]);
        assert_eq!(code, Some(1), "{path}");
        assert!(error.contains(expected), "{path}: {error}");
    }
}

#[test]
fn init_from_a_model_file_makes_a_project_that_passes_its_test() {
    let folder = Folder::new().file("churn.json", quickstart("iris-xgboost/model.json"));
    let output = run_mlserver(folder.root(), &["init", "--from", "churn.json"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    for file in ["churn.json", "model-settings.json", "request.json", "answer.json", "README.md", "test_model.py"] {
        assert!(printed.lines().any(|line| line == format!("churn/{file}")), "{file}: {printed}");
        assert!(folder.path(&format!("churn/{file}")).is_file(), "{file}");
    }
    let readme = fs::read_to_string(folder.path("churn/README.md")).unwrap();
    assert!(
        readme.starts_with("# churn\n\nA model of XGBoost, in `churn.json`, evaluated without Python.\n"),
        "{readme}"
    );
    let Some(python) = crate::support::python::python() else { return };
    let mut test = std::process::Command::new(python);
    test.args(["-m", "unittest"]).current_dir(folder.path("churn")).env("MLSERVER", env!("CARGO_BIN_EXE_mlserver"));
    let output = test.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // It is not overwritten.
    let again = run_mlserver(folder.root(), &["init", "--from", "churn.json"]);
    assert_eq!(again.status.code(), Some(1));
}

#[test]
fn init_from_a_model_for_python_has_no_example() {
    // An objective that is not evaluated natively.
    let model = String::from_utf8(quickstart("iris-xgboost/model.json")).unwrap();
    let folder = Folder::new().file("m.json", model.replace("multi:softprob", "rank:own"));
    let output = mlserver_command(folder.root(), &["init", "project", "--from", "m.json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(folder.path("project/m.json").is_file());
    assert!(!folder.path("project/test_model.py").exists() && !folder.path("project/request.json").exists());
    let readme = fs::read_to_string(folder.path("project/README.md")).unwrap();
    assert!(readme.contains("`pip install 'mlserver[xgboost]'`"), "{readme}");
}
