//! Object stores without the feature `storage`. With it, `tests/storage` tests them.

use std::fs;

use crate::support::run_mlserver;

#[test]
fn pull_names_the_missing_feature() {
    let folder = tempfile::tempdir().unwrap();
    let output = run_mlserver(folder.path(), &["pull", "s3://models/iris", "iris"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    let expected = "error: cannot fetch models: this executable was built without the feature `storage`; install a wheel or a release";
    assert!(stderr.starts_with(expected), "{stderr}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn start_names_the_missing_feature_for_a_model_of_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let settings = r#"{"name": "iris", "implementation": "mlserver_xgboost.XGBoostModel",
        "parameters": {"uri": "s3://me:hush@models/iris"}}"#;
    fs::write(folder.path().join("model-settings.json"), settings).unwrap();
    let ports = r#"{"host": "127.0.0.1", "http_port": 0, "grpc_port": 0, "metrics_endpoint": ""}"#;
    fs::write(folder.path().join("settings.json"), ports).unwrap();
    let output = run_mlserver(folder.path(), &["start", "."]);
    let log = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(
        log.contains(
            "cannot fetch `s3://<hidden>@models/iris`: this executable was built without the feature `storage`"
        ),
        "{log}"
    );
    assert!(!log.contains("hush"), "{log}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn commands_name_the_missing_feature_for_a_repository_of_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let ports = ["--host", "127.0.0.1", "--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"];
    let start = [&["start"], &ports[..]].concat();
    let infer = ["infer", "-i", "in.csv", "-o", "-", "--embedded"];
    for command in [&start[..], &["doctor"], &["config", "show"], &infer] {
        let output = run_mlserver(folder.path(), &[command, &["s3://me:hush@models/all"]].concat());
        let log = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let expected = "this executable was built without the feature `storage`; install a wheel or a release";
        assert!(log.contains(expected) && log.contains("`s3://<hidden>@models/all`"), "{log}");
        assert!(!log.contains("hush"), "{log}");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn file_uris_are_paths() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("settings.json"), r#"{"http_port": 7}"#).unwrap();
    let uri = format!("file://{}", folder.path().display());
    let output = run_mlserver(folder.path(), &["config", "show", &uri]);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(printed.lines().any(|line| line.contains("http_port") && line.contains('7')), "{printed}");
    let output = run_mlserver(folder.path(), &["start", &format!("{uri}/none")]);
    let expected = format!("error: `{}/none` does not exist", folder.path().display());
    assert!(String::from_utf8(output.stderr).unwrap().starts_with(&expected));
}
