//! `mlserver doctor`: problems are found without starting a server or running a model's code, and each of them keeps `start` from
//! becoming ready.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::models::columns;
use crate::support::python::python;
use crate::support::{Folder, ServerBuilder, mlserver_command, repository_path};

fn doctor_command(folder: &Folder, arguments: &[&str]) -> Command {
    let mut command = mlserver_command(folder.root(), &[&["doctor"], arguments].concat());
    for name in ["MLSERVER_HTTP_PORT", "MLSERVER_GRPC_PORT", "MLSERVER_METRICS_PORT"] {
        command.env(name, "0");
    }
    command.env("MLSERVER_HOST", "127.0.0.1");
    command
}

fn doctor(folder: &Folder, variables: &[(&str, &str)]) -> Output {
    doctor_command(folder, &[folder.root().to_str().unwrap()]).envs(variables.iter().copied()).output().unwrap()
}

/// Returns the findings, without the folder's path and the machine's memory.
fn findings(folder: &Folder, output: &Output) -> String {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let text = text.replace(folder.root().canonicalize().unwrap().to_str().unwrap(), "[DIR]");
    text.replace(folder.root().to_str().unwrap(), "[DIR]")
}

/// Checks that `doctor` finds a problem in a folder with a model in Python, and that `start` fails there, too.
#[track_caller]
fn is_found_and_fails(folder: Folder, python: &Path, expected: &str) {
    let output = doctor(&folder, &[("MLSERVER_PYTHON_EXECUTABLE", python.to_str().unwrap())]);
    let found = findings(&folder, &output);
    assert!(found.lines().any(|line| line.starts_with("problem") && line.contains(expected)), "{expected}:\n{found}");
    assert_eq!(output.status.code(), Some(1), "{found}");
    let ended = ServerBuilder::new(folder).env("MLSERVER_PYTHON_EXECUTABLE", python.to_str().unwrap()).run();
    assert_eq!(ended.code, Some(1), "{expected}: `start` becomes ready: {}", ended.stdout);
}

fn own_model(source: &str) -> Folder {
    let settings = r#"{"name": "m", "implementation": "models.Own"}"#;
    Folder::new().file("m/model-settings.json", settings).file("m/models.py", source)
}

const OWN: &str = "from mlserver import MLModel\n\nclass Own(MLModel):\n    async def predict(self, payload):\n        return payload\n";

#[test]
fn doctor_folder_without_problems_passes() {
    let folder = Folder::quickstart();
    let output = doctor(&folder, &[]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    insta::assert_snapshot!(findings(&folder, &output), @r"
    ok       server settings in `[DIR]` (`mlserver config show` prints them)
    ok       any free port is used for HTTP
    ok       any free port is used for gRPC
    ok       any free port is used for metrics
    ok       model `breast-cancer-lightgbm` is native
    note     model `breast-cancer-lightgbm`: columns of tables are found by the names of its features, such as `mean_radius`, in any order; MLServer 1.7.1 takes them by position
    ok       model `iris-xgboost` is native
    ");
    let output = doctor_command(&folder, &["iris-xgboost/model.json"]).output().unwrap();
    assert!(findings(&folder, &output).contains("ok       model `model` is native"), "a model file is examined, too");
}

#[test]
fn doctor_every_problem_has_a_hint() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let lost =
        r#"{"name": "lost", "implementation": "mlserver_lightgbm.LightGBMModel", "parameters": {"uri": "gone.bst"}}"#;
    let own = r#"{"name": "own", "implementation": "models.Own", "parameters": {"environment_path": "/no/such/env"}}"#;
    let folder = Folder::iris()
        .settings(&json!({"http_port": port, "gprc_port": 1, "metrics_dir": "/tmp/metrics"}))
        .file("broken/model-settings.json", "{")
        .file("lost/model-settings.json", lost)
        .file("own/model-settings.json", own);
    let output = doctor(&folder, &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stderr.clone()).unwrap(), "error: found 4 problems\n");
    let owner = format!("(process {})", std::process::id());
    let found = findings(&folder, &output);
    let by_whom = found.lines().find(|line| line.contains("Address already in use")).unwrap().to_owned();
    assert!(by_whom.contains(&owner) && by_whom.ends_with("stop it, or change `http_port`"), "{by_whom}");
    let found: Vec<&str> = found.lines().filter(|line| !line.contains("Address already in use")).collect();
    insta::assert_snapshot!(found.join("\n"), @"
    warning  settings: `metrics_dir` in `[DIR]/settings.json` has no effect: the server keeps all metrics in its own process
    warning  settings: unknown key `gprc_port` in `[DIR]/settings.json` (did you mean `grpc_port`?)
    ok       server settings in `[DIR]` (`mlserver config show` prints them)
    ok       any free port is used for gRPC
    ok       any free port is used for metrics
    problem  failed to load the model settings at `[DIR]/broken/model-settings.json`: `[DIR]/broken/model-settings.json` is not valid JSON: EOF while parsing an object at line 1 column 1
    ok       model `iris-xgboost` is native
    problem  cannot load model `lost`: Invalid URI specified for model lost ([DIR]/lost/gone.bst): no such file or directory; its folder contains model-settings.json
    problem  model `own` runs in Python: cannot use `environment_path` /no/such/env: No such file or directory (os error 2)
    ");
}

#[test]
fn doctor_finds_two_settings_for_one_port() {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
    let folder = Folder::iris().settings(&json!({"http_port": free, "grpc_port": free}));
    let output = doctor(&folder, &[]);
    let found = findings(&folder, &output);
    assert!(found.contains("`http_port` is the same port: change `grpc_port`"), "{found}");
    assert_eq!(ServerBuilder::new(folder).run().code, Some(1));
}

#[test]
fn doctor_finds_what_keeps_python_models_from_loading() {
    let Some(python) = python() else { return };
    let cases = [
        (own_model(&OWN.replace("class Own", "class Onw")), "has no `Own` (did you mean `Onw`?)"),
        (own_model(&format!("import torhc\n{OWN}")), "models.py`, line 1: no module `torhc`; install it for `"),
        (
            own_model(&format!("import helper\n{OWN}")).file("m/helper.py", "from os import path\nimport torhc.nn"),
            "helper.py`, line 2: no module `torhc`",
        ),
        (own_model("def broken(:\n"), "models.py`, line 1: "),
        (
            own_model(OWN).file("m/model-settings.json", r#"{"implementation": "modles.Own"}"#),
            "; check the name, or put `modles.py` there",
        ),
        (own_model(OWN).file("m/model-settings.json", r#"{"implementation": "Own"}"#), "`Own` is not an import path"),
        (
            Folder::new()
                .file("m/model-settings.json", r#"{"implementation": "mlserver_xgboost.XGBModel"}"#)
                .file("m/model.json", "{}"),
            "has no `XGBModel`",
        ),
        (
            Folder::new()
                .file(
                    "m/model-settings.json",
                    r#"{"implementation": "mlserver_catboost.CatboostModel", "parameters": {"extra": {"backend": "python"}}}"#,
                )
                .file("m/model.cbm", "x"),
            "its runtime needs the module `catboost`",
        ),
        (
            Folder::new().file(
                "m/model-settings.json",
                r#"{"implementation": "mlserver_catboost.CatboostModel", "parameters": {"uri": "none.cbm"}}"#,
            ),
            "no such file or directory; its folder contains model-settings.json",
        ),
    ];
    for (folder, expected) in cases {
        is_found_and_fails(folder, &python, expected);
    }
}

#[test]
fn doctor_passes_python_models_that_load() {
    let Some(python) = python() else { return };
    let guarded = format!(
        "try:\n    import torhc\nexcept ImportError:\n    torhc = None\n\n{OWN}\n    def lazy(self):\n        import torhc\n"
    );
    let packaged = OWN.replace("from mlserver import MLModel\n", "from mlserver import MLModel\nfrom .part import x\n");
    let folders = [
        own_model(OWN),
        own_model(&guarded),
        own_model("from other import *\n").file("m/other.py", OWN),
        own_model("from other import Own\n").file("m/other.py", OWN),
        own_model("")
            .file("m/model-settings.json", r#"{"implementation": "pack.inner.Own"}"#)
            .file("m/pack/__init__.py", "")
            .file("m/pack/inner.py", packaged)
            .file("m/pack/part.py", "x = 1"),
        own_model("raise SystemError('never run by doctor')"),
    ];
    let count = folders.len();
    for (index, folder) in folders.into_iter().enumerate() {
        // The last one only shows that nothing is run: its class is missing.
        let loads = index + 1 < count;
        let output = doctor(&folder, &[("MLSERVER_PYTHON_EXECUTABLE", python.to_str().unwrap())]);
        let found = findings(&folder, &output);
        assert_eq!(output.status.code(), Some(u8::from(!loads).into()), "{index}: {found}");
        assert!(!found.contains("never run"), "{found}");
        if loads {
            assert!(found.contains(&format!("runs in Python, with `{}`\n", python.display())), "{found}");
            ServerBuilder::new(folder).env("MLSERVER_PYTHON_EXECUTABLE", python.to_str().unwrap()).start();
        }
    }
}

#[test]
fn doctor_interpreter_that_is_missing_is_a_problem() {
    let folder = own_model(OWN);
    let output = doctor(&folder, &[("MLSERVER_PYTHON_EXECUTABLE", "/no/such/python")]);
    assert_eq!(output.status.code(), Some(1));
    let found = findings(&folder, &output);
    assert!(found.contains("problem  model `m` runs in Python: cannot run `/no/such/python`"), "{found}");
}

#[test]
fn doctor_reports_what_a_load_would_log() {
    let folder = own_model(OWN);
    let output = doctor(&folder, &[("MLSERVER_ENV_TARBALL", "missing.tar.gz")]);
    let found = findings(&folder, &output);
    let expected = "/missing.tar.gz` (`MLSERVER_ENV_TARBALL`) does not exist";
    let lines: Vec<&str> = found.lines().filter(|line| line.contains("missing.tar.gz")).collect();
    assert_eq!(lines.len(), 1, "{found}");
    assert!(lines[0].starts_with("warning  `") && lines[0].ends_with(expected), "{found}");
}

#[test]
fn doctor_requirements_that_are_not_met_are_warnings() {
    let Some(python) = python() else { return };
    let folder = own_model(OWN)
        .file("m/requirements.txt", "# comment\nno-such-package>=1\n--pre\nother; python_version < '3'\n");
    let output = doctor(&folder, &[("MLSERVER_PYTHON_EXECUTABLE", python.to_str().unwrap())]);
    let found = findings(&folder, &output);
    assert_eq!(output.status.code(), Some(0), "{found}");
    // Some interpreters have neither `packaging` nor `pip`, which parse requirements.
    let parses = Command::new(&python).args(["-c", "import packaging.requirements"]).output().unwrap().status.success()
        || Command::new(&python)
            .args(["-c", "import pip._vendor.packaging.requirements"])
            .output()
            .unwrap()
            .status
            .success();
    let expected = "m/requirements.txt` requires `no-such-package>=1`, which is not installed for `";
    assert_eq!(found.contains(expected), parses, "{found}");
    assert!(!found.contains("other"), "{found}");
}

#[test]
fn doctor_problems_of_models_that_are_not_loaded_are_warnings() {
    let folder =
        Folder::iris().file("broken/model-settings.json", "{").settings(&json!({"load_models_at_startup": false}));
    let output = doctor(&folder, &[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(findings(&folder, &output).contains("warning  failed to load the model settings"));
    ServerBuilder::new(folder).start();
}

#[test]
fn doctor_warns_of_another_executable_in_the_path() {
    let script = "#!/usr/bin/python3\nimport sys\nfrom mlserver.cli import main\nsys.exit(main())\n";
    let folder = Folder::iris().file("bin/mlserver", script);
    fs::set_permissions(folder.path("bin/mlserver"), fs::Permissions::from_mode(0o755)).unwrap();
    let output = doctor(&folder, &[("PATH", folder.path("bin").to_str().unwrap())]);
    assert_eq!(output.status.code(), Some(0));
    let expected = "warning  the command `mlserver` is `[DIR]/bin/mlserver`, a script of Seldon's Python package";
    assert!(findings(&folder, &output).contains(expected), "{}", findings(&folder, &output));
}

#[test]
fn doctor_reports_a_model_that_is_described_twice() {
    let settings = json!({
        "name": "iris-xgboost",
        "implementation": "mlserver_xgboost.XGBoostModel",
        "parameters": {"uri": "../iris-xgboost/model.json", "version": "v1.0.0"},
    });
    let folder = Folder::iris().file("zzz/model-settings.json", settings.to_string());
    let output = doctor(&folder, &[]);
    assert_eq!(output.status.code(), Some(0));
    let found = findings(&folder, &output);
    let expected =
        "warning  ignoring `[DIR]/iris-xgboost/model-settings.json`: a later file describes the same model and version";
    assert!(found.contains(expected), "{found}");
    assert_eq!(found.matches("model `iris-xgboost` is native").count(), 1, "{found}");
}

#[test]
fn doctor_notes_what_changes_for_the_models_of_the_folder() {
    let unnamed = fs::read_to_string(repository_path("tests/fixtures/columns/lightgbm.txt")).unwrap();
    let unnamed = unnamed.replace("feature_names=a b_b c d\n", "feature_names=Column_0 Column_1 Column_2 Column_3\n");
    assert!(unnamed.contains("Column_3"));
    let settings = r#"{"implementation": "mlserver_lightgbm.LightGBMModel", "parameters": {"uri": "./model.txt"}}"#;
    let folder = columns::folder().file("unnamed/model.txt", unnamed).file("unnamed/model-settings.json", settings);
    let notes = |output: &Output| {
        let text = String::from_utf8(output.stdout.clone()).unwrap();
        text.lines().filter(|line| line.starts_with("note ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let output = doctor(&folder, &[]);
    assert_eq!(output.status.code(), Some(0));
    let expected = |model: &str| {
        format!(
            "note     model `{model}`: columns of tables are found by the names of its features, such as `a`, in any order; "
        )
    };
    let found = notes(&output);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with(&expected("lightgbm")) && found[1].starts_with(&expected("mlflow")), "{found:?}");

    let Some(python) = python() else { return };
    let python = [("MLSERVER_PYTHON_EXECUTABLE", python.to_str().unwrap())];
    let reads = "from mlserver import MLModel\nfrom helper import user\n\nclass Own(MLModel):\n    # authorization, cookie\n    \
        async def predict(self, payload):\n        user(payload.parameters.headers)\n        return payload\n";
    let helper = "def user(headers):\n    return headers.get('Authorization') or headers.get('authorization')\n";
    let batching = r#"{"name": "m", "implementation": "models.Own", "max_batch_size": 8, "max_batch_time": 0.1}"#;
    let own = |settings: &Value| {
        let key = mlserver::access::KeyHash::of(b"a").to_string();
        let folder = own_model(reads)
            .file("m/helper.py", helper)
            .file("m/model-settings.json", batching)
            .file("keys.json", json!([{"name": "ci", "hash": key, "scopes": ["infer"]}]).to_string())
            .settings(settings);
        fs::set_permissions(folder.path("keys.json"), fs::Permissions::from_mode(0o600)).unwrap();
        folder
    };
    let folder = own(&json!({"api_keys_file": "keys.json"}));
    let output = doctor(&folder, &python);
    assert_eq!(output.status.code(), Some(0));
    let found = notes(&output).join("\n").replace(folder.root().canonicalize().unwrap().to_str().unwrap(), "[DIR]");
    insta::assert_snapshot!(found, @"
    note     model `m`: `[DIR]/m/helper.py`, line 2: names the header `authorization`, which models do not see, unlike in MLServer 1.7.1: if the model needs it, list it in the setting `forward_headers`
    note     model `m`: with `max_batch_size` 8, the data of its answers is flat and must have their datatype; without adaptive batching, answers have the nesting that the model gives them
    ");
    let json: Value = serde_json::from_slice(
        &doctor_command(&folder, &[".", "--format", "json"]).envs(python).output().unwrap().stdout,
    )
    .unwrap();
    assert_eq!((&json["warnings"], &json["problems"]), (&json!(0), &json!(0)), "notes are neither: {json}");
    // What the settings forward is no change, and models without such habits have no notes.
    let forwards = json!({"api_keys_file": "keys.json", "forward_headers": ["authorization"]});
    assert_eq!(notes(&doctor(&own(&forwards), &python)).len(), 1, "only the batches");
    assert_eq!(notes(&doctor(&own(&json!({})), &python)).len(), 1, "without access control, models see all headers");
    assert!(notes(&doctor(&own_model(OWN), &python)).is_empty());
    assert!(notes(&doctor(&Folder::iris(), &[])).is_empty());
}

#[test]
fn doctor_empty_and_missing_folders_suggest_next_steps() {
    let folder = Folder::new();
    let output = doctor(&folder, &[]);
    assert_eq!(output.status.code(), Some(1), "`start` fails without models");
    assert!(findings(&folder, &output).contains("problem  no models found: create one with `mlserver init [DIR]`"));
    let output = doctor_command(&folder, &["nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(findings(&folder, &output).contains("problem  `nowhere` does not exist"));
}

#[test]
fn doctor_takes_settings_and_prints_json() {
    let folder = Folder::iris();
    let arguments = [".", "--format", "json", "--set", "cors_settings={\"allow_origin_regex\": \"(\"}", "--image"];
    let output =
        doctor_command(&folder, &arguments).env("DOCKER_HOST", "unix:///no/such/engine.sock").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["problems"], &found["warnings"]), (&json!(1), &json!(1)), "{found}");
    let text = |level: &str| {
        let all = found["findings"].as_array().unwrap();
        all.iter().find(|finding| finding["level"] == level).unwrap()["text"].as_str().unwrap().to_owned()
    };
    assert!(text("problem").contains("allow_origin_regex"), "{found}");
    assert!(text("warning").starts_with("`mlserver build` does not work: "), "{found}");
}

#[test]
fn doctor_compares_models_and_workers_with_the_memory() {
    let Some(python) = python() else { return };
    let settings = r#"{"implementation": "models.Own", "parameters": {"uri": "./weights"}}"#;
    let folder = own_model(OWN).file("m/model-settings.json", settings).file("m/weights", vec![0; 1 << 20]);
    // A mebibyte in each of a thousand million processes is more than any machine has.
    let arguments = [".", "--set", "parallel_workers=1000000000"];
    let output = doctor_command(&folder, &arguments).env("MLSERVER_PYTHON_EXECUTABLE", &python).output().unwrap();
    let found = findings(&folder, &output);
    let expected = "the files of 0 native models and 1 models in 1000000000 worker processes take 1000000000 of ";
    let line = found.lines().find(|line| line.contains(expected)).unwrap_or_else(|| unreachable!("{found}"));
    assert!(
        line.starts_with("warning") && line.ends_with("use fewer `parallel_workers`, or set `models_max_bytes`"),
        "{line}"
    );
    assert_eq!(output.status.code(), Some(0), "{found}");
    // With one worker, there is enough.
    let output = doctor_command(&folder, &["."]).env("MLSERVER_PYTHON_EXECUTABLE", &python).output().unwrap();
    assert!(!findings(&folder, &output).contains("the files of"), "{}", findings(&folder, &output));
}

#[test]
fn doctor_finds_what_keeps_kafka_from_starting() {
    let settings = json!({"kafka_enabled": true, "kafka_topic_input": "a,mlserver-output"});
    let folder = Folder::quickstart().settings(&settings);
    let output = doctor(&folder, &[]);
    let found = findings(&folder, &output);
    let expected =
        if cfg!(feature = "kafka") { "`kafka_topic_output` is `mlserver-output`" } else { "`kafka_enabled` is true" };
    assert!(found.contains(&format!("problem  settings: {expected}")), "{found}");
    assert_eq!(output.status.code(), Some(1), "{found}");
}
