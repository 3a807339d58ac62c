//! `mlserver dockerfile`: the files that it writes for different folders.

use std::fs;
use std::process::{Command, Output};

use crate::support::goldens::framework_models;
use crate::support::{Folder, run_mlserver};

fn dockerfile(folder: &Folder, flags: &[&str]) -> Output {
    run_mlserver(".", &[&["dockerfile", folder.root().to_str().unwrap()], flags].concat())
}

/// Returns the Dockerfile, without the parts that differ from version to version.
#[track_caller]
fn written(folder: &Folder, flags: &[&str]) -> String {
    let output = dockerfile(folder, flags);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let path = folder.path("Dockerfile");
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().next(), path.to_str());
    fs::read_to_string(path).unwrap().replace(env!("CARGO_PKG_VERSION"), "[VERSION]")
}

fn custom() -> Folder {
    Folder::new()
        .file("model-settings.json", r#"{"name": "own", "implementation": "models.Own"}"#)
        .file("models.py", "")
}

#[test]
fn dockerfile_native_models_contains_only_the_server() {
    insta::assert_snapshot!(written(&Folder::quickstart(), &[]));
    insta::assert_snapshot!(written(&Folder::iris(), &["--base", "gcr.io/distroless/static"]));
}

#[test]
fn dockerfile_requirements_uses_slim_python() {
    let folder = custom().file("requirements.txt", "numpy\n");
    insta::assert_snapshot!(written(&folder, &[]));
    insta::assert_snapshot!(written(&folder, &["--base", "company/python:3.11", "--server", "company/mlserver:1"]));
}

#[test]
fn dockerfile_local_requirements_copies_the_whole_folder() {
    insta::assert_snapshot!(written(&custom().file("requirements.txt", "./wheels/own.whl\n"), &[]));
}

#[test]
fn dockerfile_code_without_requirements_uses_the_base_python() {
    insta::assert_snapshot!(written(&custom(), &[]));
}

#[test]
fn dockerfile_conda_only_for_conda_files() {
    let folder = custom().file("environment.yml", "").file("conda.yaml", "").file("requirements.txt", "numpy\n");
    insta::assert_snapshot!(written(&folder, &[]));
}

#[test]
fn dockerfile_base_follows_the_models_needs() {
    let why = |folder: &Folder| written(folder, &[]).lines().next().unwrap().to_owned();
    let ranks = framework_models("xgboost").file("ranks/model.json").to_vec();
    let refused = Folder::new().file("model.json", ranks).file(
        "model-settings.json",
        r#"{"name": "r", "implementation": "mlserver_xgboost.XGBoostModel", "parameters": {"uri": "model.json"}}"#,
    );
    let python = r#"{"name": "p", "implementation": "mlserver_identity.IdentityModel", "parameters": {"extra": {"backend": "python"}}}"#;
    let cases = [
        (Folder::new(), "the server alone, as the folder holds no models"),
        (Folder::new().file("handlers.py", ""), "code in Python"),
        (Folder::new().file("requirements.txt", ""), "code in Python"),
        (Folder::new().with_identity("one"), "a native model, so without Python"),
        (Folder::iris().with_identity("one"), "2 native models, so without Python"),
        (Folder::iris().file("p/model-settings.json", python), "model `p`, which runs in Python"),
        (refused, "model `r`, which runs in Python: estimator type `ranker` is not supported"),
        (
            Folder::iris().file("settings.json", r#"{"model_repository_implementation": "own.Repository"}"#),
            "the model repository `own.Repository`, which runs in Python",
        ),
    ];
    for (folder, expected) in cases {
        assert_eq!(why(&folder), format!("# Made by `mlserver dockerfile` [VERSION], for {expected}."));
    }
}

#[test]
fn dockerfile_unneeded_packages_are_skipped_with_a_note() {
    let output = dockerfile(&Folder::iris().file("requirements.txt", "xgboost\n"), &[]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.starts_with("warning: every model is native, so no package is installed"), "{stderr}");
}

#[test]
fn dockerfile_writes_dockerignore_on_request() {
    let folder = Folder::iris();
    written(&folder, &[]);
    assert!(!folder.path("Dockerfile.dockerignore").exists());
    written(&folder, &["-i"]);
    insta::assert_snapshot!(fs::read_to_string(folder.path("Dockerfile.dockerignore")).unwrap());
}

#[test]
fn dockerfile_invalid_folder_is_rejected() {
    let damaged = Folder::iris().file("iris-xgboost/model.json", "{");
    let cases = [
        (damaged, "model `iris-xgboost` cannot be loaded"),
        (Folder::new().file("model-settings.json", "{"), "failed to load the model settings at"),
    ];
    for (folder, expected) in cases {
        let output = dockerfile(&folder, &[]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr.contains(expected), "{stderr}");
        assert!(!folder.path("Dockerfile").exists());
    }
    let nowhere = Command::new(env!("CARGO_BIN_EXE_mlserver")).args(["dockerfile", "/no/where"]).output().unwrap();
    assert_eq!(String::from_utf8(nowhere.stderr).unwrap(), "error: `/no/where` is not a folder\n");
}
