//! `mlserver start`: startup, logs and shutdown.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{BREAST_CANCER, Connection, Folder, IRIS, ServerBuilder, ServerExit, TestServer, repository_path};

const INFER: &str = "/v2/models/iris-xgboost/infer";
const ONE_ROW: &str = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]}"#;

/// Removes the parts of log lines and errors that differ from run to run.
fn plain(text: &str, folder: &str) -> String {
    let lines = text.lines().map(|line| {
        let is_log = line.len() > 24 && line.as_bytes()[19] == b',' && line.as_bytes()[4] == b'-';
        if is_log { format!("[TIME]{}\n", &line[23..]) } else { format!("{line}\n") }
    });
    lines.collect::<String>().replace(folder, "[DIR]")
}

/// Runs a server that exits by itself, and returns its status and output.
fn run(starting: ServerBuilder, folder: &str) -> String {
    let ServerExit { code, stdout, stderr } = starting.run();
    let code = code.unwrap();
    let text = format!("status: {code}\n--- stdout\n{stdout}--- stderr\n{stderr}");
    let known_ports = |line: &str| match line.split_once("http://127.0.0.1:") {
        Some((before, address)) => {
            let end = address.find(|c: char| !c.is_ascii_digit()).unwrap_or(address.len());
            format!("{before}http://127.0.0.1:[PORT]{}\n", &address[end..])
        }
        None => format!("{line}\n"),
    };
    plain(&text, folder).lines().map(known_ports).collect()
}

fn run_in(folder: Folder) -> String {
    let root = folder.root().to_str().unwrap().to_owned();
    run(ServerBuilder::new(folder), &root)
}

/// A folder with the iris model, whose artifact is a pipe: the load ends when the test has written the model.
fn slow_iris() -> (Folder, PathBuf) {
    let settings = json!({"implementation": "mlserver_xgboost.XGBoostModel", "parameters": {"uri": "./pipe"}});
    let folder = Folder::new().file("slow/model-settings.json", settings.to_string());
    let pipe = folder.path("slow/pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    (folder, pipe)
}

fn write_model(pipe: &PathBuf) {
    let artifact = fs::read(repository_path("examples/quickstart/iris-xgboost/model.json")).unwrap();
    fs::OpenOptions::new().write(true).open(pipe).unwrap().write_all(&artifact).unwrap();
}

// ---------------------------------------------------------------------------------------------- coming up

#[test]
fn start_quickstart_serves_and_exits_with_0() {
    let server = TestServer::quickstart();
    let root = server.folder.root().to_str().unwrap().to_owned();
    let (http, grpc, metrics) = (server.http.to_string(), server.grpc.to_string(), server.metrics.unwrap().to_string());
    // Models are ready before the log line appears.
    for model in ["breast-cancer-lightgbm", "iris-xgboost"] {
        server.wait_for_log(&format!("Loaded model '{model}' successfully."));
    }
    let ended = server.terminate();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
    let log = plain(&ended.stdout, &root).replace(&http, "[HTTP]");
    let log = log.replace(&grpc, "[GRPC]").replace(&metrics, "[METRICS]");
    let mut lines: Vec<&str> = log.lines().collect();
    // Models are loaded concurrently.
    lines[4..6].sort_unstable();
    insta::assert_snapshot!(lines.join("\n"), @r"
    [TIME] [mlserver] INFO - HTTP server running on http://[HTTP]
    [TIME] [mlserver] INFO - gRPC server running on http://[GRPC]
    [TIME] [mlserver] INFO - Metrics server running on http://[METRICS]
    [TIME] [mlserver] INFO - Prometheus scraping endpoint can be accessed on http://[METRICS]/metrics
    [TIME] [mlserver][breast-cancer-lightgbm:v1.0.0] INFO - Loaded model 'breast-cancer-lightgbm' successfully. backend=native
    [TIME] [mlserver][iris-xgboost:v1.0.0] INFO - Loaded model 'iris-xgboost' successfully. backend=native
    [TIME] [mlserver] INFO - Received SIGTERM: answering the requests in flight, for at most 30 s.
    [TIME] [mlserver] INFO - Stopped.
    ");
}

#[test]
fn start_port_in_use_is_one_error_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    for (variable, purpose) in
        [("MLSERVER_HTTP_PORT", "HTTP"), ("MLSERVER_GRPC_PORT", "gRPC"), ("MLSERVER_METRICS_PORT", "metrics")]
    {
        let ended = ServerBuilder::new(Folder::quickstart()).env(variable, &port).run();
        assert_eq!(ended.code, Some(1));
        let expected = format!("error: the {purpose} server cannot listen on 127.0.0.1:{port}: ");
        assert!(ended.stderr.starts_with(&expected), "{}", ended.stderr);
        let setting = format!("or change `{}_port`\n", purpose.to_lowercase());
        assert!(ended.stderr.ends_with(&setting), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    }
}

#[test]
fn start_foreign_host_is_an_error() {
    let ended = ServerBuilder::new(Folder::quickstart()).env("MLSERVER_HOST", "192.0.2.1").run();
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.starts_with("error: the HTTP server cannot listen on 192.0.2.1:0: "), "{}", ended.stderr);
}

#[test]
fn start_invalid_settings_lists_every_problem() {
    let settings = json!({"http_port": "many", "debug": 7, "server_name": null, "gzip_enabled": "maybe"});
    insta::assert_snapshot!(run_in(Folder::quickstart().settings(&settings)), @r#"
    status: 1
    --- stdout
    --- stderr
    error: 4 problems with the settings
      `debug` in `[DIR]/settings.json`: expected true or false, found `7`
      `server_name` in `[DIR]/settings.json`: expected a string, found `null`
      `http_port` in `[DIR]/settings.json`: expected an integer from 0 to 65535, found `"many"`
      `gzip_enabled` in `[DIR]/settings.json`: expected true or false, found `"maybe"`
    "#);
    insta::assert_snapshot!(run_in(Folder::quickstart().file("settings.json", "{\"debug\": tru}")), @r"
    status: 1
    --- stdout
    --- stderr
    error: `[DIR]/settings.json` is not valid JSON: expected ident at line 1 column 14
    ");
}

#[test]
fn start_strict_rejects_unknown_keys() {
    let folder = Folder::quickstart().settings(&json!({"gprc_port": 1}));
    let root = folder.root().to_str().unwrap().to_owned();
    insta::assert_snapshot!(run(ServerBuilder::new(folder).flag("--strict"), &root), @r"
    status: 1
    --- stdout
    --- stderr
    error: unknown key `gprc_port` in `[DIR]/settings.json` (did you mean `grpc_port`?)
    ");
    let folder = Folder::quickstart().with_iris("odd", &json!({"implementatoin": "x"}));
    let root = folder.root().to_str().unwrap().to_owned();
    insta::assert_snapshot!(run(ServerBuilder::new(folder).flag("--strict"), &root), @r"
    status: 1
    --- stdout
    [TIME] [mlserver] ERROR - failed to load the model settings at `[DIR]/odd/model-settings.json`: unknown key `implementatoin` in `[DIR]/odd/model-settings.json` (did you mean `implementation`?)
    --- stderr
    error: not every model in `[DIR]` can be read
    ");
}

#[test]
fn start_unknown_key_is_a_warning_without_strict() {
    let server = TestServer::start(Folder::iris().settings(&json!({"gprc_port": 1})));
    let line = server.wait_for_log("gprc_port");
    assert!(line.contains(" WARNING - unknown key `gprc_port`") && line.contains("grpc_port"), "{line}");
}

#[cfg(not(feature = "kafka"))]
#[test]
fn start_kafka_enabled_needs_the_feature() {
    let folder = Folder::iris().settings(&json!({"kafka_enabled": true}));
    let root = folder.root().to_str().unwrap().to_owned();
    insta::assert_snapshot!(run(ServerBuilder::new(folder), &root), @r"
    status: 1
    --- stdout
    --- stderr
    error: `kafka_enabled` is true, but this `mlserver` was built without the feature `kafka`: use the one of the Python wheel or of the container image, or build it with `cargo build --release --features kafka`
    ");
}

#[cfg(feature = "kafka")]
#[test]
fn start_rejects_settings_of_kafka_that_contradict_each_other() {
    let folder = Folder::iris().settings(&json!({"kafka_enabled": true, "kafka_topic_input": "a,mlserver-output"}));
    let root = folder.root().to_str().unwrap().to_owned();
    insta::assert_snapshot!(run(ServerBuilder::new(folder), &root), @r"
    status: 1
    --- stdout
    --- stderr
    error: `kafka_topic_output` is `mlserver-output`, which `kafka_topic_input` reads: the server would read what it writes; use another topic
    ");
    let folder = Folder::iris().settings(&json!({"kafka_enabled": true, "kafka_config": {"group.id": "mine"}}));
    let root = folder.root().to_str().unwrap().to_owned();
    insta::assert_snapshot!(run(ServerBuilder::new(folder), &root), @r"
    status: 1
    --- stdout
    --- stderr
    error: the Kafka property `group.id` cannot be set, because the server depends on its value: set `kafka_group_id` instead
    ");
}

#[test]
fn start_load_models_at_startup_false_loads_nothing() {
    let server = TestServer::start(Folder::iris().settings(&json!({"load_models_at_startup": false})));
    assert_eq!(server.post(INFER, ONE_ROW).error(404), "Model iris-xgboost not found");
    assert!(!server.log().contains("Loaded model"));
}

#[test]
fn start_model_from_the_environment_is_served() {
    let folder = Folder::new().with_iris("elsewhere", &json!({}));
    fs::remove_file(folder.path("elsewhere/model-settings.json")).unwrap();
    let server = ServerBuilder::new(folder)
        .env("MLSERVER_MODEL_IMPLEMENTATION", "mlserver_xgboost.XGBoostModel")
        .env("MLSERVER_MODEL_NAME", "from-env")
        .env("MLSERVER_MODEL_URI", "elsewhere/model.json")
        .env("MLSERVER_MODEL_VERSION", "v7")
        .start();
    let answer = server.post("/v2/models/from-env/infer", ONE_ROW).ok();
    assert_eq!((&answer["model_name"], &answer["model_version"]), (&json!("from-env"), &json!("v7")));
}

#[test]
fn start_env_file_is_read_from_the_working_directory() {
    let server = TestServer::start(Folder::iris().file(".env", "MLSERVER_SERVER_NAME=from-file\n"));
    assert_eq!(server.get("/v2").ok()["name"], "from-file");
}

#[test]
fn start_model_name_defaults_to_the_folder() {
    let folder = Folder::new().with_iris("a/b/deep", &json!({})).with_iris("a", &json!({"name": "other"}));
    let server = TestServer::start(folder);
    assert_eq!(server.post("/v2/models/deep/infer", ONE_ROW).ok()["model_name"], "deep");
    assert_eq!(server.post("/v2/models/other/infer", ONE_ROW).ok()["model_name"], "other");
    server.wait_for_log("model name `other` differs from the name of its folder");
}

#[test]
fn start_highest_version_is_the_default() {
    let version = |version: &str| json!({"name": "m", "parameters": {"version": version}});
    let folder =
        Folder::new().with_iris("m/2", &version("2")).with_iris("m/10", &version("10")).with_iris("m/9", &version("9"));
    let server = TestServer::start(folder);
    assert_eq!(server.post("/v2/models/m/infer", ONE_ROW).ok()["model_version"], "10");
    for asked in ["2", "9", "10"] {
        let answer = server.post(&format!("/v2/models/m/versions/{asked}/infer"), ONE_ROW).ok();
        assert_eq!(answer["model_version"], asked);
        let answer = server.post(&format!("/v2/models/m/infer?model_version={asked}"), ONE_ROW).ok();
        assert_eq!(answer["model_version"], asked);
    }
    assert_eq!(server.post("/v2/models/m/versions/3/infer", ONE_ROW).error(404), "Model m with version 3 not found");
}

#[test]
fn start_model_without_version_is_the_default() {
    let folder = Folder::new()
        .with_iris("m/1", &json!({"name": "m", "parameters": {"version": "1"}}))
        .with_iris("m/plain", &json!({"name": "m"}));
    let server = TestServer::start(folder);
    let answer = server.post("/v2/models/m/infer", ONE_ROW).ok();
    let keys: Vec<_> = answer.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["model_name", "id", "parameters", "outputs"]);
}

#[test]
fn start_duplicate_name_and_version_loads_the_later() {
    let twice = |platform: &str| json!({"name": "m", "platform": platform, "parameters": {"version": "1"}});
    let folder = Folder::new().with_iris("a", &twice("first")).with_iris("b", &twice("second"));
    let server = TestServer::start(folder);
    let ignored = server.wait_for_log("Ignoring ");
    assert!(
        ignored.contains("/a/model-settings.json`: a later file describes the same model and version."),
        "{ignored}"
    );
    // The model is ready before the log line appears.
    server.wait_for_log("Loaded model 'm' successfully.");
    assert_eq!(server.log().matches("Loaded model 'm' successfully.").count(), 1);
    assert_eq!(server.get("/v2/models/m").ok()["platform"], "second");
    assert_eq!(server.post("/v2/models/m/infer", ONE_ROW).ok()["model_version"], "1");
}

// -------------------------------------------------------------------------------------------- models that fail

/// Iris and a model with a truncated artifact.
fn half_broken() -> Folder {
    let artifact = fs::read(repository_path("examples/quickstart/iris-xgboost/model.json")).unwrap();
    Folder::iris().with_iris("broken", &json!({})).file("broken/model.json", &artifact[..artifact.len() / 2])
}

#[test]
fn start_failed_load_exits() {
    let shown = run_in(half_broken());
    let [broken, summary] = ["Couldn't load model 'broken': ", "Some of the models failed to load during startup!"];
    assert!(shown.starts_with("status: 1\n"), "{shown}");
    assert!(
        shown.contains("[mlserver][broken] ERROR - Couldn't load model 'broken': `[DIR]/broken/model.json` "),
        "{shown}"
    );
    assert!(shown.contains(broken) && shown.contains(summary), "{shown}");
    let stderr = shown.split("--- stderr\n").nth(1).unwrap();
    assert_eq!(stderr, "error: 1 model failed to load; `exit_on_load_failure` false serves the others\n");
}

#[test]
fn start_failed_load_names_file_or_setting() {
    let cases: [(&str, Value, &str, &str); 6] = [
        (
            "a missing artifact",
            json!({"parameters": {"uri": "./none.json"}}),
            "",
            "Invalid URI specified for model m ([DIR]/m/none.json)",
        ),
        (
            "a folder without a model",
            json!({"parameters": {"uri": "./empty"}}),
            "",
            "`[DIR]/m/empty` is a directory without a model file: expected one of model.bst, model.json, model.ubj",
        ),
        (
            "no model at all",
            json!({"parameters": {"uri": "./file"}}),
            "hello",
            "`[DIR]/m/file` is not a model that can be served natively: ",
        ),
        (
            "an empty artifact",
            json!({"parameters": {"uri": "./file"}}),
            "",
            "`[DIR]/m/file` is not a model that can be served natively: ",
        ),
        (
            "a remote artifact",
            json!({"parameters": {"uri": "s3://bucket/model.json"}}),
            "",
            "cannot fetch `s3://bucket/model.json`",
        ),
        (
            "a custom runtime",
            json!({"implementation": "models.Custom"}),
            "",
            "no Python interpreter found: looked next to the executable",
        ),
    ];
    for (what, settings, content, expected) in cases {
        let folder = Folder::new().with_iris("m", &settings).file("m/file", content).file("m/empty/readme", "");
        let shown = run_in(folder);
        assert!(shown.starts_with("status: 1\n"), "{what}: {shown}");
        assert!(
            shown.contains(&format!("[mlserver][m] ERROR - Couldn't load model 'm': {expected}")),
            "{what}: {shown}"
        );
    }
}

#[test]
fn start_exit_on_load_failure_false_serves_the_others() {
    let server = ServerBuilder::new(half_broken().settings(&json!({"exit_on_load_failure": false}))).listen();
    server.wait_for_log("Some of the models failed to load during startup!");
    server.wait_for_log("Loaded model 'iris-xgboost' successfully.");

    assert_eq!(server.get("/v2/health/live").ok(), json!({"live": true}));
    let ready = server.get("/v2/health/ready");
    assert_eq!((ready.status, ready.header("content-type")), (400, "application/json"));
    let ready = ready.json();
    assert_eq!((&ready["ready"], &ready["error"]), (&json!(false), &json!("1 of 2 models are not ready")));
    let [broken, iris] = &ready["models"].as_array().unwrap()[..] else { unreachable!("{ready}") };
    assert_eq!(iris, &json!({"name": IRIS, "version": "v1.0.0", "state": "READY", "reason": ""}));
    assert_eq!((&broken["name"], &broken["state"]), (&json!("broken"), &json!("FAILED")));
    let file = server.folder.path("broken/model.json");
    assert!(broken["reason"].as_str().unwrap().contains(file.to_str().unwrap()), "{broken}");

    assert_eq!(server.post("/v2/models/broken/infer", ONE_ROW).error(400), "Model broken is not ready yet.");
    assert_eq!(server.get("/v2/models/broken").ok()["name"], "broken");
    let readiness = server.get("/v2/models/broken/ready");
    assert_eq!((readiness.status, &readiness.json()["state"]), (400, &json!("FAILED")));
    assert_eq!(server.get("/v2/models/iris-xgboost/ready").ok(), json!({"name": IRIS, "ready": true}));
    server.post(INFER, ONE_ROW).ok();
    assert_eq!(server.terminate().code, Some(0));
}

#[test]
fn start_unreadable_model_settings_skip_only_that_model() {
    let folder = Folder::iris().file("bad/model-settings.json", "{").file("none/model-settings.json", "{}");
    let server = ServerBuilder::new(folder).env("MLSERVER_EXIT_ON_LOAD_FAILURE", "false").listen();
    let bad = server.wait_for_log("bad/model-settings.json");
    assert!(bad.contains(" ERROR - failed to load the model settings at "), "{bad}");
    assert_eq!(bad.matches("is not valid JSON").count(), 1, "{bad}");
    assert!(server.wait_for_log("none/model-settings.json").contains("`implementation` is missing"));
    server.wait_for_log("Loaded model 'iris-xgboost'");
    server.post(INFER, ONE_ROW).ok();
}

#[test]
fn start_is_not_ready_while_loading() {
    let (folder, pipe) = slow_iris();
    let server = ServerBuilder::new(folder).listen();
    assert_eq!(server.get("/v2/health/live").status, 200);
    let ready = server.get("/v2/health/ready");
    assert_eq!(ready.status, 400);
    let expected = json!({
        "ready": false,
        "error": "1 of 1 models are not ready",
        "models": [{"name": "slow", "state": "LOADING", "reason": "the model is loading"}],
    });
    assert_eq!(ready.json(), expected);
    assert_eq!(server.get("/v2/models/slow/ready").status, 400);
    assert_eq!(server.get("/v2/models/slow").ok()["name"], "slow");
    assert_eq!(server.post("/v2/models/slow/infer", ONE_ROW).error(400), "Model slow is not ready yet.");
    write_model(&pipe);
    server.wait_until_ready();
    server.post("/v2/models/slow/infer", ONE_ROW).ok();
}

#[test]
fn shutdown_signal_while_loading_exits() {
    let (folder, _pipe) = slow_iris();
    let server = ServerBuilder::new(folder).listen();
    assert_eq!(server.get("/v2/health/ready").status, 400);
    assert_eq!(server.terminate().code, Some(0));
}

// ------------------------------------------------------------------------------------------------------ ending

#[test]
fn shutdown_on_every_termination_signal() {
    for (signal, name) in [(Signal::INT, "SIGINT"), (Signal::TERM, "SIGTERM"), (Signal::QUIT, "SIGQUIT")] {
        let server = TestServer::start(Folder::iris());
        server.signal(signal);
        let ended = server.ended();
        assert_eq!(ended.code, Some(0), "{name}");
        assert!(ended.stdout.contains(&format!("Received {name}: ")), "{}", ended.stdout);
        assert!(ended.stdout.ends_with(" INFO - Stopped.\n"), "{}", ended.stdout);
    }
}

#[test]
fn shutdown_answers_requests_in_flight() {
    let server = TestServer::start(Folder::iris());
    let mut upload = server.connect();
    upload.start_upload(INFER, ONE_ROW.len());
    let (first, second) = ONE_ROW.split_at(30);
    upload.write(first);
    server.signal(Signal::TERM);
    server.wait_for_log("Received SIGTERM: answering the requests in flight");
    upload.write(second);
    let answer = upload.answer().ok();
    assert_eq!(answer["outputs"][0]["data"], json!([2]));
    assert_eq!(upload.rest(), "", "the connection is closed after the answer");
    assert_eq!(server.ended().code, Some(0));
}

#[test]
fn shutdown_answers_a_long_computation() {
    let rows = 5000;
    let numbers = vec!["1.5"; rows * 4].join(",");
    let body = format!(r#"{{"inputs":[{{"name":"x","shape":[{rows},4],"datatype":"FP32","data":[{numbers}]}}]}}"#);
    let server = TestServer::start(Folder::iris());
    let mut upload = server.connect();
    upload.start_upload(INFER, body.len());
    upload.write(&body);
    server.signal(Signal::TERM);
    assert_eq!(upload.answer().ok()["outputs"][0]["shape"], json!([rows, 1]));
    assert_eq!(server.ended().code, Some(0));
}

#[test]
fn shutdown_drain_rejects_new_requests() {
    let server = TestServer::start(Folder::iris());
    let mut upload = server.connect();
    upload.start_upload(INFER, ONE_ROW.len());
    let mut idle = server.connect();
    idle.write("GET /v2/health/live HTTP/1.1\r\nhost: test\r\n\r\n");
    assert_eq!(idle.answer().status, 200);
    server.signal(Signal::TERM);
    server.wait_for_log("Received SIGTERM");
    assert_eq!(idle.rest(), "", "idle connections are closed");
    let mut late = server.connect();
    late.write(format!("POST {INFER} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n\r\n{ONE_ROW}", ONE_ROW.len()));
    let refused = late.answer();
    assert_eq!(refused.error(503), "the server is shutting down; try another one");
    assert_eq!((refused.header("connection"), refused.header("retry-after")), ("close", "1"));
    assert_eq!(late.rest(), "");
    upload.write(ONE_ROW);
    upload.answer().ok();
    let address = server.http;
    assert_eq!(server.ended().code, Some(0));
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn shutdown_delay_answers_but_is_not_ready() {
    let delay = json!({"shutdown_delay": 4});
    let server = TestServer::start(Folder::iris().settings(&delay));
    let signalled = Instant::now();
    server.signal(Signal::TERM);
    server.wait_for_log("Received SIGTERM: not ready; answering requests for 4 s, then those in flight");
    assert_eq!(server.get("/v2/health/ready").json()["error"], "the server is shutting down");
    assert_eq!(server.get("/v2/models/iris-xgboost/ready").json()["reason"], "the server is shutting down");
    assert_eq!(server.get("/v2/health/live").status, 200);
    server.post(INFER, ONE_ROW).ok();
    let ended = server.ended();
    assert_eq!(ended.code, Some(0));
    assert!((4.0..30.0).contains(&signalled.elapsed().as_secs_f64()), "{:?}", signalled.elapsed());
}

#[test]
fn shutdown_grace_period_limits_the_drain() {
    let server = TestServer::start(Folder::iris().settings(&json!({"shutdown_grace_period": 0.1})));
    let mut upload = server.connect();
    upload.start_upload(INFER, ONE_ROW.len());
    let ended = server.terminate();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.contains(" WARNING - Stopped with "), "{}", ended.stdout);
}

#[test]
fn shutdown_second_signal_exits_immediately() {
    let server = TestServer::start(Folder::iris());
    let mut upload = server.connect();
    upload.start_upload(INFER, ONE_ROW.len());
    server.signal(Signal::TERM);
    server.wait_for_log("Received SIGTERM");
    server.signal(Signal::INT);
    let ended = server.ended();
    assert_eq!(ended.code, Some(3));
    assert!(ended.stderr.starts_with("error: stopped at once by a second signal (SIGINT)"), "{}", ended.stderr);
}

#[test]
fn shutdown_half_open_connections_wait_for_the_header_timeout_only() {
    let server =
        TestServer::start(Folder::iris().settings(&json!({"shutdown_grace_period": 25, "http_header_timeout": 0.2})));
    let _silent = server.connect();
    let mut half = server.connect();
    half.write("POST /v2/models/iris-xgboost/infer HTTP/1.1\r\nhost:");
    server.post(INFER, ONE_ROW).ok();
    let ended = server.terminate();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.ends_with(" INFO - Stopped.\n"), "{}", ended.stdout);
}

#[test]
fn shutdown_frozen_clients_do_not_delay_exit() {
    // The preface of every HTTP/2 client and empty SETTINGS. Then this client never acknowledges anything.
    let http2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let server = TestServer::start(Folder::iris().settings(&json!({"shutdown_grace_period": 25})));
    let mut frozen = [server.http, server.grpc, server.metrics.unwrap()].map(Connection::open);
    for connection in &mut frozen {
        connection.write(http2);
    }
    let mut half = server.connect();
    half.write(format!("POST {INFER} HTTP/1.1\r\nhost:"));
    let mut upload = server.connect();
    upload.start_upload(INFER, ONE_ROW.len());
    server.signal(Signal::TERM);
    server.wait_for_log("Received SIGTERM");

    let [http, grpc, metrics] = &mut frozen;
    for connection in [http, grpc, &mut half] {
        connection.rest_bytes();
    }
    assert!(!server.log().contains("Stopped"), "{}", server.log());
    // A connection with a request in flight stays open, although it has been silent for as long.
    upload.write(ONE_ROW);
    upload.answer().ok();
    // Metrics are answered until the end.
    metrics.rest_bytes();
    let ended = server.ended();
    assert_eq!(ended.code, Some(0));
    assert!(ended.stdout.ends_with(" INFO - Stopped.\n"), "{}", ended.stdout);
}

// ------------------------------------------------------------------------------------------------------- logs

#[test]
fn log_plain_lines_name_model_and_version() {
    let server = TestServer::quickstart();
    let line = server.wait_for_log("Loaded model 'breast-cancer-lightgbm'");
    let (time, rest) = line.split_at(23);
    chrono::NaiveDateTime::parse_from_str(time, "%Y-%m-%d %H:%M:%S,%3f").unwrap();
    assert_eq!(
        rest,
        format!(
            " [mlserver][{BREAST_CANCER}:v1.0.0] INFO - Loaded model '{BREAST_CANCER}' successfully. backend=native"
        )
    );
}

#[test]
fn log_structured_lines_are_json() {
    let folder =
        half_broken().settings(&json!({"use_structured_logging": true, "exit_on_load_failure": false, "debug": true}));
    let server = ServerBuilder::new(folder).listen();
    server.wait_for_log("Some of the models failed to load during startup!");
    server.post(INFER, ONE_ROW).ok();
    let bad = r#"{"id":"a\"b\nc","inputs":[]}"#;
    server.post(INFER, bad).error(400);
    let ended = server.terminate();
    let lines: Vec<Value> = ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &lines {
        let keys: Vec<_> = line.as_object().unwrap().keys().take(4).cloned().collect();
        assert_eq!(keys, ["time", "name", "level", "message"], "{line}");
        assert!(["mlserver", "mlserver.rest"].contains(&line["name"].as_str().unwrap()), "{line}");
    }
    let loaded = lines.iter().find(|line| line["message"] == "Loaded model 'iris-xgboost' successfully.").unwrap();
    assert_eq!((&loaded["model_name"], &loaded["model_version"]), (&json!(IRIS), &json!("v1.0.0")));
    let refused = lines.iter().find(|line| line["message"] == "Rejected a request.").unwrap();
    assert_eq!((&refused["request_id"], &refused["model_name"]), (&json!("a\"b\nc"), &json!(IRIS)));
}

#[test]
fn log_debug_logs_every_request() {
    let quiet = TestServer::start(Folder::iris());
    quiet.post(INFER, ONE_ROW).ok();
    let ended = quiet.terminate();
    assert!(!ended.stdout.contains(INFER), "{}", ended.stdout);

    let server = TestServer::start(Folder::iris().settings(&json!({"debug": true})));
    server.post(INFER, ONE_ROW).ok();
    let line = server.wait_for_log(INFER);
    for part in ["[mlserver.rest] DEBUG", "POST", "200"] {
        assert!(line.contains(part), "{line}");
    }
    server.get("/v2/models/nope").error(404);
    server.wait_for_log("/v2/models/nope");
}

#[test]
fn log_closed_stdout_does_not_end_the_server() {
    let folder = Folder::iris().settings(&json!({"debug": true}));
    let server = ServerBuilder::new(folder).close_stdout_after("Loaded model").start();
    for _ in 0..10 {
        server.post(INFER, ONE_ROW).ok();
    }
    let ended = server.terminate();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""));
}

#[test]
fn start_models_folder_from_the_environment() {
    let folder = Folder::iris();
    let path = folder.root().to_str().unwrap().to_owned();
    let server = ServerBuilder::new(folder).argument("").env("MODELS_DIR", &path).start();
    server.get("/v2/models/iris-xgboost/ready").ok();
    // MLServer's own variable takes precedence over KServe's.
    let folder = Folder::iris();
    let path = folder.root().to_str().unwrap().to_owned();
    let starting = ServerBuilder::new(folder).argument("").env("MODELS_DIR", "nowhere");
    let server = starting.env("MLSERVER_MODELS_DIR", &path).start();
    server.get("/v2/models/iris-xgboost/ready").ok();
    let ended = ServerBuilder::new(Folder::new()).argument("").run();
    assert_eq!(ended.code, Some(2));
    let expected =
        "error: missing FOLDER: neither `MLSERVER_MODELS_DIR` nor `MODELS_DIR` is set; pass a folder or a model file\n";
    assert_eq!(ended.stderr, expected);
}
