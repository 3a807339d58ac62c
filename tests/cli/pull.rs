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
