//! `mlserver init`: the projects that it creates have the expected files, and pass their own tests.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::python::python;
use crate::support::scripted::{Reply, ScriptedServer};
use crate::support::{Folder, gzip, mlserver_command, repository_path, run_mlserver};

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[track_caller]
fn succeed(output: &Output) -> &str {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Runs a project's own tests. They are skipped without an interpreter.
fn passes_its_own_tests(template: &str) {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    succeed(&run_mlserver(folder.root(), &["init", "--name", "a-project", "--template", template]));
    let mut command = Command::new(python);
    command.args(["-m", "unittest", "--verbose"]).current_dir(folder.path("a-project"));
    command.env_clear().env("MLSERVER", env!("CARGO_BIN_EXE_mlserver")).env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let ran = command.output().unwrap();
    let log = text(&ran.stderr);
    assert!(ran.status.success(), "{log}");
    assert!(log.contains("test_the_answer_is_the_recorded_one") && log.trim_end().ends_with("\nOK"), "{log}");
}

#[test]
fn init_does_not_take_a_file_as_its_folder() {
    let folder = Folder::new().file("m.json", "{}").file("flow/MLmodel", "flavors: {}");
    for (arguments, expected) in [
        (
            &["init", "m.json"][..],
            "error: cannot create a project in `m.json`: it is a file; `--from FILE` creates a project from",
        ),
        (&["init", "--from", "flow"], "error: the project `flow` must not be inside the model `"),
    ] {
        let output = run_mlserver(folder.root(), arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).starts_with(expected), "{}", text(&output.stderr));
    }
}

// The other templates need packages: see `tests/clients/test_projects.py` and `tests/frameworks`.
#[test]
fn init_sklearn_project_passes_its_own_tests() {
    passes_its_own_tests("sklearn");
}

#[test]
fn init_xgboost_project_passes_its_own_tests() {
    passes_its_own_tests("xgboost");
}

#[test]
fn init_catboost_project_passes_its_own_tests() {
    passes_its_own_tests("catboost");
}

#[test]
fn init_onnx_project_passes_its_own_tests() {
    passes_its_own_tests("onnx");
}

#[test]
fn init_chat_project_passes_its_own_tests() {
    passes_its_own_tests("chat");
}

#[test]
fn init_embeddings_project_passes_its_own_tests() {
    passes_its_own_tests("embeddings");
}

#[test]
fn init_streaming_project_passes_its_own_tests() {
    passes_its_own_tests("streaming");
}

#[test]
fn init_pipeline_project_passes_its_own_tests() {
    passes_its_own_tests("pipeline");
}

#[test]
fn init_kserve_project_passes_its_own_tests() {
    passes_its_own_tests("kserve");
}

#[test]
fn init_kserve_project_passes_doctor() {
    let Some(python) = python() else { return };
    let folder = Folder::new();
    succeed(&run_mlserver(folder.root(), &["init", "--name", "a-project", "--template", "kserve"]));
    let executable = format!("python_executable={}", python.display());
    let ports = ["--http-port", "0", "--grpc-port", "0", "--metrics-port", "0"];
    let arguments = [&["doctor", "a-project", "--set", &executable][..], &ports].concat();
    let output = run_mlserver(folder.root(), &arguments);
    assert!(output.status.success() && !text(&output.stdout).contains("kserve"), "{}", text(&output.stdout));
    // Other modules are still looked for.
    let path = folder.path("a-project/model.py");
    fs::write(&path, format!("import kserve_other\n{}", fs::read_to_string(&path).unwrap())).unwrap();
    let output = run_mlserver(folder.root(), &arguments);
    assert!(!output.status.success() && text(&output.stdout).contains("no module `kserve_other`"));
}

#[test]
fn init_writes_the_project_files() {
    let folder = Folder::new();
    let output = run_mlserver(folder.root(), &["init", "churn"]);
    let mut printed: Vec<_> = succeed(&output).lines().collect();
    printed.sort_unstable();
    let expected = [
        "churn/.github/workflows/test.yml",
        "churn/.gitignore",
        "churn/README.md",
        "churn/answer.json",
        "churn/line.json",
        "churn/model-settings.json",
        "churn/models.py",
        "churn/request.json",
        "churn/requirements.txt",
        "churn/settings.json",
        "churn/test_model.py",
    ];
    assert_eq!(printed, expected);
    assert!(printed.iter().all(|path| folder.path(path).is_file()));
    insta::assert_snapshot!(fs::read_to_string(folder.path("churn/README.md")).unwrap(), @r#"
    # churn

    A model in Python: [`models.py`](models.py) contains the class, `line.json` the data that it loads, and `requirements.txt` the
    packages that it imports.

    ```sh
    python3 -m venv .venv
    . .venv/bin/activate
    pip install --requirement requirements.txt
    ```

    Serve it, with `mlserver` on the PATH:

    ```sh
    mlserver start .
    ```

    Send a request, once `curl --fail localhost:8080/v2/health/ready` succeeds:

    ```sh
    curl localhost:8080/v2/models/churn/infer --header 'Content-Type: application/json' --data @request.json
    ```

    Test it. The tests start their own server on free ports:

    ```sh
    python -m unittest
    ```

    Build an image, and run it:

    ```sh
    mlserver build . --tag churn --check
    docker run --rm --publish 8080:8080 churn
    ```

    `.github/workflows/test.yml` tests every push; the comment at its start describes how to set it up.
    "#);
    insta::assert_snapshot!(fs::read_to_string(folder.path("churn/model-settings.json")).unwrap(), @r#"
    {
      "name": "churn",
      "implementation": "models.Line",
      "inputs": [{"name": "x", "datatype": "FP64", "shape": [-1]}],
      "outputs": [{"name": "y", "datatype": "FP64", "shape": [-1]}],
      "parameters": {"uri": "."}
    }
    "#);
}

#[test]
fn init_name_defaults_to_the_folder() {
    let name_in = |path: &Path| -> String {
        let settings = fs::read(path.join("model-settings.json")).unwrap();
        serde_json::from_slice::<serde_json::Value>(&settings).unwrap()["name"].as_str().unwrap().to_owned()
    };
    let folder = Folder::new();
    succeed(&run_mlserver(folder.root(), &["init"]));
    assert_eq!(name_in(&folder.path("my-model")), "my-model");
    succeed(&run_mlserver(folder.root(), &["init", "here/churn/"]));
    assert_eq!(name_in(&folder.path("here/churn")), "churn");
    succeed(&run_mlserver(folder.root(), &["init", "a folder", "--name", "spam"]));
    assert_eq!(name_in(&folder.path("a folder")), "spam");
    let refused = run_mlserver(folder.root(), &["init", "another folder"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("invalid project name `another folder`"));
    assert!(!folder.path("another folder").exists());
}

#[test]
fn init_existing_files_stay_without_force() {
    let folder = Folder::new().file("churn/models.py", "mine");
    let refused = run_mlserver(folder.root(), &["init", "churn"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(text(&refused.stderr), "error: a file already exists: `churn/models.py`; overwrite with --force\n");
    assert_eq!(fs::read_dir(folder.path("churn")).unwrap().count(), 1);
    succeed(&run_mlserver(folder.root(), &["init", "churn", "--force"]));
    assert_ne!(fs::read_to_string(folder.path("churn/models.py")).unwrap(), "mine");
}

#[test]
fn init_lists_templates_and_rejects_unknown_ones() {
    let folder = Folder::new();
    insta::assert_snapshot!(succeed(&run_mlserver(folder.root(), &["init", "--list"])), @r"
    custom      a custom Python model
    sklearn     a scikit-learn model, served without Python
    xgboost     an XGBoost model, served without Python
    catboost    a CatBoost model, served without Python
    onnx        an ONNX model, served without Python
    huggingface a Hugging Face transformers pipeline
    mlflow      an MLflow model
    streaming   a text model with streaming responses
    chat        a chat model for OpenAI's API
    embeddings  an embedding model for OpenAI's API
    pipeline    a graph of Python steps and a native model
    kserve      a model class of KServe, served without its package
    ");
    let unknown = run_mlserver(folder.root(), &["init", "--template", "sclearn"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(text(&unknown.stderr).contains("unknown template `sclearn`"), "{}", text(&unknown.stderr));
    assert!(!folder.path("my-model").exists());
}

#[test]
fn init_accepts_a_folder_as_template() {
    for (suffix, warns) in [("tera", false), ("jinja", true)] {
        let file = format!("house style/model-settings.json.{suffix}");
        let folder = Folder::new().file(&file, r#"{"name": "{{ name }}"}"#);
        let created = run_mlserver(folder.root(), &["init", "churn", "--template", "house style"]);
        succeed(&created);
        assert_eq!(fs::read_to_string(folder.path("churn/model-settings.json")).unwrap(), r#"{"name": "churn"}"#);
        let warning = "rendered `model-settings.json.jinja` of the template as Tera";
        assert_eq!(text(&created.stderr).contains(warning), warns, "{}", text(&created.stderr));
    }
    let broken = Folder::new().file("t/README.md.tera", "# {{ title }}");
    let refused = run_mlserver(broken.root(), &["init", "churn", "--template", "t"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("title"), "{}", text(&refused.stderr));
    assert!(!broken.path("churn").exists());
}

/// A template of one file, as an archive.
fn template_archive() -> Vec<u8> {
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let data = b"{{ name }} of the web";
    let mut header = tar::Header::new_gnu();
    header.set_size(data.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, "template-main/NAME.tera", &data[..]).unwrap();
    builder.into_inner().unwrap().finish().unwrap()
}

/// Returns standard error of a command that must fail.
#[track_caller]
fn fail(output: &Output) -> &str {
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    text(&output.stderr)
}

#[test]
fn init_template_url_is_downloaded() {
    let server = ScriptedServer::serve(|request| match request.path.as_str() {
        "/main" => Reply::Answer(302, "location: /archive/main?token=1", String::new()),
        _ => Reply::Bytes(200, Vec::new(), template_archive()),
    });
    let folder = Folder::new();
    let url = format!("http://me:s3cret@{}/main", server.address);
    let output = run_mlserver(folder.root(), &["init", "churn", "--template", &url]);
    assert_eq!(succeed(&output), "churn/NAME\n");
    assert_eq!(fs::read_to_string(folder.path("churn/NAME")).unwrap(), "churn of the web");
    let received = server.received();
    let paths: Vec<_> = received.iter().map(|request| request.path.as_str()).collect();
    assert_eq!(paths, ["/main", "/archive/main?token=1"]);
    assert!(received.iter().all(|request| request.header("authorization") == "Basic bWU6czNjcmV0"));
}

#[test]
fn init_template_url_failures_name_it_without_its_password() {
    let server = ScriptedServer::serve(|request| match request.path.as_str() {
        "/page" => Reply::Answer(200, "", "<html>".to_owned()),
        "/loop" => Reply::Answer(302, "location: /loop", String::new()),
        "/file" => Reply::Answer(302, "location: file:///etc/passwd", String::new()),
        _ => Reply::error(404, "no"),
    });
    let folder = Folder::new();
    for (path, expected) in [
        ("page", "is not a template: expected a folder, or a .zip, .tar, .tar.gz or .tgz file"),
        ("none", "the server answered 404 Not Found"),
        ("loop", "more than 5 redirects"),
        ("file", "it redirects without a valid address"),
    ] {
        let url = format!("http://me:s3cret@{}/{path}", server.address);
        let output = run_mlserver(folder.root(), &["init", "churn", "--template", &url]);
        let error = fail(&output);
        assert!(error.contains(expected) && error.contains(&format!("{}/{path}", server.address)), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
    assert!(!folder.path("churn").exists());
    let received = server.received();
    assert_eq!(received.iter().filter(|request| request.path == "/loop").count(), 6);
}

#[test]
fn init_template_url_never_leaves_https() {
    let plain = ScriptedServer::serve(|_| Reply::Bytes(200, Vec::new(), template_archive()));
    let location = format!("location: http://{}/main.tar.gz", plain.address);
    let server = ScriptedServer::serve_tls(move |_| Reply::Bytes(302, vec![location.clone()], Vec::new()));
    let folder = Folder::new();
    let url = format!("https://localhost:{}/", server.address.port());
    let mut command = mlserver_command(folder.root(), &["init", "churn", "--template", &url]);
    command.env("SSL_CERT_FILE", repository_path("tests/fixtures/tls/certificate.pem"));
    let output = command.output().unwrap();
    assert!(fail(&output).contains("which is not encrypted"), "{}", text(&output.stderr));
    assert_eq!(plain.received().len(), 0);
}

#[test]
fn init_template_url_is_limited_in_size() {
    let bomb = gzip(&vec![0; 1 << 20]).repeat(65);
    let server =
        ScriptedServer::serve(move |_| Reply::Bytes(200, vec!["content-encoding: gzip".to_owned()], bomb.clone()));
    let folder = Folder::new();
    let url = format!("http://{}/", server.address);
    let output = run_mlserver(folder.root(), &["init", "churn", "--template", &url]);
    assert!(fail(&output).contains("the response has more than 67108864 bytes"), "{}", text(&output.stderr));
}

#[test]
fn init_url_in_place_of_the_folder_is_rejected() {
    let folder = Folder::new();
    let output = run_mlserver(folder.root(), &["init", "https://example.com/x/y"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(
        error.starts_with("error: FOLDER is the URL `https://example.com/x/y`: pass it with --template"),
        "{error}"
    );
}
