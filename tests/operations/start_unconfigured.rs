//! `mlserver start` and the repository API with folders as KServe mounts them: models without `model-settings.json`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::goldens::sklearn_golden;
use crate::support::{Folder, IRIS, ServerBuilder, TestServer, repository_path};

const ONE_ROW: &str = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]}"#;
const INDEX: &str = "/v2/repository/index";

fn iris() -> Vec<u8> {
    fs::read(repository_path("examples/quickstart").join(IRIS).join("model.json")).unwrap()
}

fn lightgbm() -> Vec<u8> {
    fs::read(repository_path("examples/quickstart/breast-cancer-lightgbm/model.bst")).unwrap()
}

fn sklearn() -> Vec<u8> {
    sklearn_golden("1.5.2/linear/labels_text.joblib")
}

/// A folder of MLflow, below `prefix`.
fn mlflow(folder: Folder, prefix: &str) -> Folder {
    let source = repository_path("tests/goldens/mlflow/linear/model");
    fs::read_dir(&source).unwrap().fold(folder, |folder, entry| {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        folder.file(&format!("{prefix}{name}"), fs::read(entry.path()).unwrap())
    })
}

/// Starts a server as a runtime of KServe does: the folder and the model's name are variables.
fn kserve(folder: Folder) -> ServerBuilder {
    let root = folder.root().to_str().unwrap().to_owned();
    ServerBuilder::new(folder).argument("").env("MODELS_DIR", &root).env("MLSERVER_MODEL_NAME", "isvc")
}

#[track_caller]
fn fails(starting: ServerBuilder) -> String {
    let ended = starting.run();
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    ended.stderr
}

#[track_caller]
fn platform_of(server: &TestServer, model: &str) -> Value {
    server.get(&format!("/v2/models/{model}")).ok()["parameters"]["backend"].clone()
}

#[test]
fn start_serves_the_only_model_of_a_folder_under_the_name_of_the_environment() {
    let cases = [
        ("model.joblib", sklearn()),
        ("churn.pkl", sklearn()),
        ("model.bst", lightgbm()),
        ("model.txt", lightgbm()),
        ("model.json", iris()),
        ("iris.JSON", iris()),
    ];
    for (name, content) in cases {
        let server = kserve(Folder::new().file(name, content)).start();
        assert_eq!(platform_of(&server, "isvc"), "native", "{name}");
        server.wait_for_log("Loaded model 'isvc' successfully.");
    }
    let server = kserve(mlflow(Folder::new(), "")).start();
    assert_eq!(platform_of(&server, "isvc"), "native");
}

#[test]
fn start_finds_the_only_model_beside_other_files_and_in_folders() {
    let folder = || Folder::new().file("README.md", "x").file("requirements.txt", "x").file("request.json", "{}");
    for place in ["model.json", "1/model.json", "bucket/path/iris/iris.json"] {
        let server = kserve(folder().file(".cache/other.joblib", "x").file(place, iris())).start();
        let answer = server.post("/v2/models/isvc/infer", ONE_ROW).ok();
        assert_eq!(answer["outputs"][0]["data"], json!([2]), "{place}");
    }
    // The files of an MLflow model are its parts, as are those in folders below a model.
    let server = kserve(mlflow(folder(), "run/artifacts/model/")).start();
    assert_eq!(platform_of(&server, "isvc"), "native");
    let server = kserve(folder().file("model.json", iris()).file("old/model.joblib", sklearn())).start();
    assert_eq!(server.post("/v2/models/isvc/infer", ONE_ROW).status, 200);
}

#[test]
fn start_model_name_argument_overrides_the_environment() {
    for flags in [&["--model-name", "typed"][..], &["--model_name=typed"]] {
        let server = kserve(Folder::new().file("model.json", iris())).flags(flags).start();
        assert_eq!(server.post("/v2/models/typed/infer", ONE_ROW).status, 200, "{flags:?}");
    }
    // It also names a model file, and a folder whose settings do not.
    let folder = Folder::new().file("model.json", iris());
    let server = ServerBuilder::new(folder).argument("model.json").flags(&["--model-name", "typed"]).start();
    server.wait_for_log("Serving `model.json` as model `typed`");
    assert_eq!(server.post("/v2/models/typed/infer", ONE_ROW).status, 200);
    let folder = Folder::new().with_iris("m", &json!({}));
    let server = ServerBuilder::new(folder).flags(&["--model-name", "typed"]).start();
    assert_eq!(server.post("/v2/models/typed/infer", ONE_ROW).status, 200);
    let ended = kserve(Folder::new().file("model.json", iris())).flags(&["--model-name", ""]).run();
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
}

#[test]
fn start_settings_files_take_precedence_over_model_files() {
    let folder = Folder::new().with_iris("m", &json!({"name": "described"})).file("other.joblib", sklearn());
    let server = kserve(folder).start();
    assert_eq!(server.post("/v2/models/described/infer", ONE_ROW).status, 200);
    assert_eq!(server.get("/v2/models/isvc/ready").status, 404);
}

#[test]
fn start_several_models_without_settings_are_an_error_that_lists_them() {
    let folder = || Folder::new().file("a.json", iris()).file("b.joblib", sklearn()).file("c/d.json", iris());
    let stderr = fails(kserve(folder()));
    for part in ["more than one model: `", "/a.json`, `", "/b.joblib`; name the one", "`MLSERVER_MODEL_URI`"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    assert!(!stderr.contains("d.json"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    // Each way to choose one.
    for uri in ["a.json", "./a.json", "c"] {
        let server = kserve(folder()).env("MLSERVER_MODEL_URI", uri).start();
        assert_eq!(server.post("/v2/models/isvc/infer", ONE_ROW).status, 200, "{uri}");
    }
    for implementation in ["mlserver_xgboost.XGBoostModel", "mlserver_xgboost.xgboost.XGBoostModel"] {
        let server = kserve(folder()).env("MLSERVER_MODEL_IMPLEMENTATION", implementation).start();
        assert_eq!(server.post("/v2/models/isvc/infer", ONE_ROW).status, 200);
    }
    let server = kserve(folder()).flags(&["--allow-empty"]).start();
    server.wait_for_log("more than one model");
    let many = (0..2000).fold(Folder::new(), |folder, index| folder.file(&format!("{index:04}.pkl"), "x"));
    let stderr = fails(kserve(many));
    assert!(stderr.contains("/0009.pkl` and 1990 more; name the one"), "{stderr}");
}

#[test]
fn start_implementation_of_the_environment_chooses_the_runtime() {
    let starting = |folder: Folder, implementation: &str| {
        let root = folder.root().to_str().unwrap().to_owned();
        // What KServe sets for its predictors.
        kserve(folder).env("MLSERVER_MODEL_IMPLEMENTATION", implementation).env("MLSERVER_MODEL_URI", &root)
    };
    for (name, implementation, content) in [
        ("model.json", "mlserver_xgboost.XGBoostModel", iris()),
        ("iris.json", "mlserver_xgboost.XGBoostModel", iris()),
        ("sub/iris.json", "mlserver_xgboost.XGBoostModel", iris()),
        ("churn.joblib", "mlserver_sklearn.SKLearnModel", sklearn()),
        ("churn.txt", "mlserver_lightgbm.LightGBMModel", lightgbm()),
    ] {
        let server = starting(Folder::new().file(name, content), implementation).start();
        assert_eq!(platform_of(&server, "isvc"), "native", "{name}");
    }
    let server = starting(mlflow(Folder::new(), "model/"), "mlserver_mlflow.MLflowRuntime").start();
    assert_eq!(platform_of(&server, "isvc"), "native");
    // An InferenceService without the label `modelClass`.
    let server = starting(Folder::new().file("iris.json", iris()), "<no value>").start();
    assert_eq!(server.post("/v2/models/isvc/infer", ONE_ROW).status, 200);
    // A folder without a file of the runtime.
    let ended = starting(Folder::new().file("iris.json", iris()), "mlserver_sklearn.SKLearnModel").run();
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.contains("is a directory without a model file"), "{}", ended.stdout);
}

#[test]
fn start_hostile_folders_are_bounded_and_say_what_is_wrong() {
    // Links to parent folders, and to each other.
    let folder = Folder::new().file("a/b/model.json", iris());
    symlink(folder.root(), folder.path("a/up")).unwrap();
    symlink(folder.path("a"), folder.path("a/b/again")).unwrap();
    symlink(folder.path("one"), folder.path("two")).unwrap();
    symlink(folder.path("two"), folder.path("one")).unwrap();
    let server = kserve(folder).start();
    assert_eq!(server.post("/v2/models/isvc/infer", ONE_ROW).status, 200);
    // A link to itself with the name of a model, and one to nothing.
    for target in ["model.joblib", "nowhere"] {
        let folder = Folder::new();
        symlink(Path::new(target), folder.path("model.joblib")).unwrap();
        let stderr = fails(kserve(folder));
        assert!(stderr.contains("cannot read `") && stderr.contains("model.joblib`"), "{stderr}");
    }
    // Thousands of files that are not models, and folders called as models are.
    let mut folder = Folder::new().file("model.json", iris()).file("folder.joblib/notes", "x");
    for index in 0..3000 {
        folder =
            folder.file(&format!("{index}.txt"), "vocabulary").file(&format!("{index}.json"), r#"{"learners": 1}"#);
    }
    let server = kserve(folder).start();
    assert_eq!(server.post("/v2/models/isvc/infer", ONE_ROW).status, 200);
    // Folders that are nested too deep to be searched, and none at all.
    let deep = Folder::new().file(&format!("{}model.json", "d/".repeat(30)), iris());
    for folder in [deep, Folder::new()] {
        let stderr = fails(kserve(folder));
        assert!(stderr.starts_with("error: no model found in `"), "{stderr}");
    }
    let stderr = fails(kserve(Folder::new().file("x.md", "x")).env("MLSERVER_MODEL_URI", "x.md"));
    assert!(
        stderr.contains("cannot read `") && stderr.contains("`.md` is not the extension of a model file"),
        "{stderr}"
    );
    let stderr = fails(kserve(Folder::new()).env("MLSERVER_MODEL_URI", "nowhere"));
    assert!(stderr.contains("nowhere`: No such file or directory"), "{stderr}");
}

#[test]
fn repository_loads_folders_without_settings_as_the_puller_of_kserve_asks() {
    let folder = Folder::new();
    let root = folder.root().to_str().unwrap().to_owned();
    let server = ServerBuilder::new(folder)
        .argument("")
        .env("MODELS_DIR", &root)
        .env("MLSERVER_MODEL_NAME", "isvc")
        .env("MLSERVER_LOAD_MODELS_AT_STARTUP", "false")
        .start();
    let put = |path: &str, content: Vec<u8>| {
        let path = server.folder.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    let load = |name: &str| server.post(&format!("/v2/repository/models/{name}/load"), "");
    put("one/model.json", iris());
    put("two/pvc/iris.json", iris());
    put("both/a.joblib", sklearn());
    put("both/b.joblib", sklearn());
    put("text/README.md", b"x".to_vec());
    put(".hidden/model.json", iris());
    for name in ["one", "two"] {
        assert_eq!(load(name).status, 200, "{name}");
        let answer = server.post(&format!("/v2/models/{name}/infer"), ONE_ROW).ok();
        assert_eq!((&answer["model_name"], &answer["outputs"][0]["data"]), (&json!(name), &json!([2])));
    }
    let entry = |name: &str| json!({"name": name, "state": "READY", "reason": ""});
    assert_eq!(server.post(INDEX, "{}").ok(), json!([entry("one"), entry("two")]));
    let error = load("both").error(422);
    assert!(error.contains("/both/a.joblib`, `") && error.contains("more than one model"), "{error}");
    for name in
        ["text", "none", ".hidden", "one%2Fmodel.json", "two%2Fpvc", "..%2Fone", ".%2Fone", "%2Ftmp", ".", "%2E%2E"]
    {
        assert_eq!(load(name).status, 404, "{name}");
    }
    // A new download replaces the model, and a failed one does not.
    put("one/model.json", b"{\"learner\": 1}".to_vec());
    assert!(load("one").error(500).ends_with("; the previous version keeps serving"));
    assert_eq!(server.post("/v2/models/one/infer", ONE_ROW).status, 200);
    fs::remove_file(server.folder.path("one/model.json")).unwrap();
    put("one/new.json", iris());
    assert_eq!(load("one").status, 200);
    assert_eq!(server.post("/v2/repository/models/one/unload", "").status, 200);
    assert_eq!(server.post("/v2/models/one/infer", ONE_ROW).status, 404);
    fs::remove_dir_all(server.folder.path("one")).unwrap();
    assert_eq!(load("one").status, 404);
    assert_eq!(server.post(INDEX, "{}").ok(), json!([entry("two")]));
    // Settings take precedence, whatever name they have.
    put("two/model-settings.json", br#"{"name": "other", "implementation": "mlserver_xgboost.XGBoostModel"}"#.to_vec());
    assert_eq!(load("two").status, 404);
}
