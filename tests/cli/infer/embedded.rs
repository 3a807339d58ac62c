//! Models that run in the command's own process.

use std::fs;

use serde_json::{Value, json};

use super::{IRISES, InferCommand, irises, without_inference_id};
use crate::support::process_models::process_models;
use crate::support::python::python;
use crate::support::{Folder, IRIS, TestServer};

#[test]
fn infer_embedded_model_matches_the_server() {
    let server = TestServer::quickstart();
    let folder = server.folder.root().to_str().unwrap().to_owned();
    let address = server.http.to_string();
    let ask = |aim: &[&str]| -> Vec<Value> {
        let infer = InferCommand::new(irises(50)).flags(aim).flags(&["-i", "in.jsonl", "-o", "out.jsonl", "-s", "8"]);
        infer.run().lines(0).into_iter().map(without_inference_id).collect()
    };
    let expected = ask(&["-u", &address, "-m", IRIS]);
    assert_eq!(expected[1]["outputs"][0]["data"][0], IRISES[1].1);
    assert_eq!(ask(&["--embedded", &folder, "-m", IRIS]), expected);
    assert_eq!(ask(&["--embedded", &folder, "-m", IRIS, "--model-version", "v1.0.0"]), expected);
}

#[test]
fn infer_asks_a_server_unless_embedded_is_given() {
    let folder = Folder::quickstart();
    let root = folder.root().to_str().unwrap();
    // Nothing listens on this port.
    let address = "127.0.0.1:1";
    let model = format!("{root}/{IRIS}");
    let flags = ["-m", &model, "-u", address, "-r", "1", "-i", "in.jsonl", "-o", "out.jsonl"];
    let ran = InferCommand::new(irises(1)).flags(&flags).run();
    assert_eq!(ran.code, Some(1), "a folder in --model-name does not replace the server: {}", ran.stderr);
    let target = format!("target: model `{model}` of the server at http://{address} (REST)\n");
    assert!(ran.stderr.starts_with(&target), "{}", ran.stderr);
    let hint =
        format!("hint: `{model}` is also a folder with a model; `--embedded {model}` loads it without a server\n");
    assert!(ran.stderr.ends_with(&hint), "{}", ran.stderr);

    let embedded = ["--embedded", &model, "-i", "in.jsonl", "-o", "out.jsonl"];
    let ran = InferCommand::new(irises(1)).flags(&embedded).run();
    assert_eq!(ran.lines(0).len(), 1);
    let target = format!("target: the model of the folder `{model}`, in this process\n");
    assert!(ran.stderr.starts_with(&target), "{}", ran.stderr);
    assert_eq!(InferCommand::new(irises(1)).flags(&embedded).flags(&["--quiet"]).run().stderr, "");
}

#[test]
fn infer_embedded_rejects_flags_for_servers() {
    for flags in [
        &["--url", "h:1"][..],
        &["--transport", "grpc"],
        &["--request-headers", "a: b"],
        &["--use-ssl"],
        &["--insecure"],
        &["--http2"],
        &["--binary-data"],
    ] {
        let infer =
            InferCommand::new("").flags(&["--embedded", "models", "-i", "in.jsonl", "-o", "out.jsonl"]).flags(flags);
        let ran = infer.run();
        assert_eq!(ran.code, Some(2), "{flags:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("cannot be used with"), "{}", ran.stderr);
    }
}

#[test]
fn infer_embedded_unknown_model_is_rejected() {
    let folder = Folder::quickstart();
    let root = folder.root().to_str().unwrap();
    for (flags, message) in [
        (
            &["--embedded", root][..],
            "has several models: choose one with --model-name (breast-cancer-lightgbm, iris-xgboost)",
        ),
        (&["--embedded", root, "-m", "nope"], "has no model `nope`; it has breast-cancer-lightgbm, iris-xgboost"),
        (&["--embedded", root, "-m", IRIS, "--model-version", "v9"], "has no model `iris-xgboost` with version `v9`"),
        (&["--embedded", "/nowhere"], "`/nowhere` does not exist: pass the folder of the models, or a model file"),
    ] {
        let ran = InferCommand::new(irises(1)).flags(flags).flags(&["-i", "in.jsonl", "-o", "out.jsonl"]).run();
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.contains(message), "{}", ran.stderr);
    }
}

#[test]
fn infer_embedded_names_what_to_pass() {
    let folder = Folder::new().file("flow/MLmodel", "flavors: {}").file("none/readme.txt", "hello");
    let at = |name: &str| folder.path(name).to_str().unwrap().to_owned();
    for (path, expected) in [
        (
            at("flow"),
            format!("pass a folder with `model-settings.json`, or a model file, such as `{}`\n", at("flow/MLmodel")),
        ),
        (at("none"), "pass a folder with `model-settings.json`, or a model file\n".to_owned()),
        (
            at("none/readme.txt"),
            format!("target: the model of the file `{}`, in this process\n", at("none/readme.txt")),
        ),
    ] {
        let ran = InferCommand::new("").flags(&["--embedded", &path, "-i", "in.jsonl", "-o", "out.jsonl"]).run();
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
    }
}

#[test]
fn infer_embedded_bad_rows_fail_alone() {
    let folder = Folder::iris();
    let input =
        irises(1) + &json!({"inputs": [{"name": "a", "shape": [1], "datatype": "FP32", "data": [1]}]}).to_string();
    let infer = InferCommand::new(input).flags(&[
        "--embedded",
        folder.root().to_str().unwrap(),
        "-i",
        "in.jsonl",
        "-o",
        "out.jsonl",
    ]);
    let lines = infer.run().lines(4);
    assert_eq!(lines[0]["outputs"][0]["data"][0], IRISES[0].1);
    assert_eq!(lines[1]["error"]["msg"], "input `a` has the shape [1], but this model expects [rows, 4]");
}

#[test]
fn infer_embedded_python_model_answers() {
    let folder = process_models(&[("where", json!({}))]);
    let Some(interpreter) = python() else { return };
    let input = json!({"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [1]}]}).to_string() + "\n";
    let infer = InferCommand::new(input.repeat(5))
        .flags(&["--embedded", folder.root().to_str().unwrap(), "-i", "in.jsonl", "-o", "out.jsonl"])
        .env("PATH", "/usr/bin:/bin")
        .env("MLSERVER_PYTHON_EXECUTABLE", interpreter.to_str().unwrap());
    let infer = infer.env("XDG_CACHE_HOME", crate::support::repository_path("target/test-cache").to_str().unwrap());
    let lines = infer.run().lines(0);
    assert_eq!(lines.len(), 5);
    assert!(lines.iter().all(|line| line["outputs"][0]["data"][0].as_str().unwrap().contains("pid")), "{lines:?}");
}

#[test]
fn infer_embedded_takes_a_model_file() {
    let folder = Folder::iris();
    let model = folder.path(&format!("{IRIS}/model.json"));
    let embedded = ["--embedded", model.to_str().unwrap(), "-i", "in.jsonl", "-o", "out.jsonl"];
    let answers = InferCommand::new(irises(2)).flags(&embedded).run().lines(0);
    assert_eq!((answers.len(), &answers[1]["model_name"]), (2, &json!("model")));
}

#[test]
fn infer_embedded_reports_warnings_of_the_load() {
    let manifest = json!({
        "apiVersion": "machinelearning.seldon.io/v1",
        "kind": "SeldonDeployment",
        "metadata": {"name": "several"},
        "spec": {"predictors": [{"name": "default", "graph": {
            "name": "echo",
            "children": [{"name": IRIS, "type": "MODEL"}, {"name": "other", "type": "MODEL"}],
        }}]},
    });
    let identity = |name: &str| json!({"name": name, "implementation": "mlserver_identity.IdentityModel"}).to_string();
    let folder = Folder::iris()
        .file("echo/model-settings.json", identity("echo"))
        .file("other/model-settings.json", identity("other"))
        .file("several/graph.yaml", manifest.to_string())
        .file(
            "several/model-settings.json",
            r#"{"name": "several", "implementation": "mlserver.Graph", "parameters": {"uri": "./graph.yaml"}}"#,
        );
    let root = folder.root().to_str().unwrap();
    let flags = ["--embedded", root, "-m", "several", "-i", "in.jsonl", "-o", "out.jsonl"];
    let ran = InferCommand::new(irises(2)).flags(&flags).run();
    assert_eq!(ran.lines(0).len(), 2);
    let warning = ran.stderr.lines().find(|line| line.starts_with("warning: ")).unwrap_or_default();
    assert!(warning.starts_with("warning: model `several`: "), "{}", ran.stderr);
    assert!(
        warning.ends_with("several children without a `COMBINER`; the answer of the first one is used"),
        "{warning}"
    );
    assert_eq!(InferCommand::new(irises(2)).flags(&flags).flags(&["--quiet"]).run().stderr, "");
}

/// Adds a graph of two steps.
fn with_graph(folder: Folder, name: &str, [first, second]: [&str; 2], extra: &Value) -> Folder {
    let steps = json!([{"name": first}, {"name": second, "inputs": [first]}]);
    let manifest = json!({
        "apiVersion": "mlops.seldon.io/v1alpha1",
        "kind": "Pipeline",
        "metadata": {"name": name},
        "spec": {"steps": steps, "output": {"steps": [second]}},
    });
    let parameters = json!({"uri": "./graph.yaml", "extra": extra});
    let settings = json!({"name": name, "implementation": "mlserver.Graph", "parameters": parameters});
    folder
        .file(&format!("models/{name}/graph.yaml"), manifest.to_string())
        .file(&format!("models/{name}/model-settings.json"), settings.to_string())
}

#[test]
fn infer_embedded_graph_loads_its_steps() {
    let extra = json!({"steps": {"second": {"folder": "../../elsewhere"}}});
    let broken = json!({"name": "broken", "implementation": "mlserver_xgboost.XGBoostModel"}).to_string();
    let folder = Folder::new().with_identity("models/first").with_identity("elsewhere");
    let first = fs::read_to_string(folder.path("models/first/model-settings.json")).unwrap();
    let folder = folder.file("models/first/model-settings.json", first.replace("models/first", "first"));
    let folder = with_graph(folder, "graph", ["first", "second"], &extra);
    // Nothing asks the broken model.
    let folder =
        with_graph(folder, "outer", ["first", "graph"], &json!({})).file("models/broken/model-settings.json", broken);
    let models = folder.path("models");
    let input = json!({"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [7]}]}).to_string() + "\n";
    let run = |model: &str| {
        let flags = ["--embedded", models.to_str().unwrap(), "-m", model, "-i", "in.jsonl", "-o", "out.jsonl"];
        InferCommand::new(&input).flags(&flags).run()
    };
    for model in ["graph", "outer"] {
        let lines = run(model).lines(0);
        assert_eq!(lines[0]["outputs"][0]["data"], json!([7]), "{lines:?}");
    }
    let error = run("broken").stderr;
    assert!(error.contains("cannot load model `broken` of"), "{error}");
}
