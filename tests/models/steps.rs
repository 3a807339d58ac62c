//! Native steps as clients and operators see them: `mlserver.Select`, `mlserver.Map` and `mlserver.Concat`.

use std::fs;
use std::thread;

use mlserver::types::Datatype;
use serde_json::{Value, json};

use crate::support::grpc::{floats, infer_request, inference_client, raw_request};
use crate::support::{Folder, ServerBuilder, TestServer, repository_path, run_mlserver};

/// Adds a step to a folder.
fn with_step(folder: Folder, name: &str, class: &str, extra: &Value, more: &Value) -> Folder {
    let mut settings = json!({"name": name, "implementation": class, "parameters": {"extra": extra}});
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    folder.file(&format!("{name}/model-settings.json"), settings.to_string())
}

fn label() -> Value {
    json!({"outputs": [{"input": "scores", "name": "label", "apply": ["argmax", {"table": ["no", "maybe", "yes"]}]}]})
}

fn folder() -> Folder {
    let select = json!({"outputs": [{"input": "x", "columns": [-1, 0], "name": "ends"}, {"input": "t"}]});
    let folder = with_step(Folder::new(), "select", "mlserver.Select", &select, &json!({}));
    let folder = with_step(folder, "label", "mlserver.Map", &label(), &json!({}));
    let declared = json!({"inputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, 3]}]});
    let folder = with_step(folder, "declared", "mlserver.Map", &label(), &declared);
    let batched = json!({"max_batch_size": 64, "max_batch_time": 0.02});
    let folder = with_step(folder, "batched", "mlserver.Map", &label(), &batched);
    with_step(folder, "concat", "mlserver.Concat", &json!({"name": "all"}), &json!({}))
}

fn scores(rows: &[[f32; 3]]) -> String {
    json!({"inputs": [{"name": "scores", "datatype": "FP32", "shape": [rows.len(), 3], "data": rows}]}).to_string()
}

#[tokio::test]
async fn steps_answer_over_every_transport() {
    let server = TestServer::start(folder());
    let request = json!({"inputs": [
        {"name": "x", "datatype": "FP16", "shape": [2, 3], "data": [1, 2, 3, 4, 5, 6.5]},
        {"name": "t", "datatype": "BYTES", "shape": [1], "parameters": {"content_type": "str"}, "data": ["as it is"]},
    ]});
    let answer = server.post("/v2/models/select/infer", request.to_string()).ok();
    let expected = json!([
        {"name": "ends", "datatype": "FP16", "shape": [2, 2], "data": [3.0, 1.0, 6.5, 4.0]},
        {"name": "t", "datatype": "BYTES", "shape": [1], "parameters": {"content_type": "str"}, "data": ["as it is"]},
    ]);
    assert_eq!(answer["outputs"], expected);

    let labels = server.post("/v2/models/label/infer", scores(&[[0.1, 0.7, 0.2], [0.0, 0.0, 1.0]])).ok();
    let expected = json!([{"name": "label", "datatype": "BYTES", "shape": [2, 1], "parameters": {"content_type": "str"},
        "data": ["maybe", "yes"]}]);
    assert_eq!(labels["outputs"], expected);

    let mut client = inference_client(server.grpc).await;
    let mut typed = infer_request("label", "FP32", &[1, 3], floats(&[0.1, 0.7, 0.2]));
    typed.inputs[0].name = "scores".to_owned();
    let answer = client.model_infer(typed).await.unwrap().into_inner();
    assert_eq!((answer.outputs[0].datatype.as_str(), answer.outputs[0].shape.as_slice()), ("BYTES", &[1, 1][..]));
    let text = answer.outputs[0].contents.as_ref().map(|contents| contents.bytes_contents.concat());
    assert_eq!(text.unwrap_or_default(), b"maybe");

    let mut raw = raw_request("concat", "INT16", &[2], vec![1, 0, 0xff, 0xff]);
    let mut second = raw.inputs[0].clone();
    (second.name, second.datatype) = ("y".to_owned(), "UINT16".to_owned());
    raw.inputs.push(second);
    raw.raw_input_contents.push(vec![2, 0, 0xff, 0xff].into());
    let answer = client.model_infer(raw).await.unwrap().into_inner();
    assert_eq!((answer.outputs[0].datatype.as_str(), answer.outputs[0].shape.as_slice()), ("INT32", &[2, 2][..]));
    let expected: Vec<u8> = [1_i32, 2, -1, 65535].iter().flat_map(|value| value.to_le_bytes()).collect();
    assert_eq!(answer.raw_output_contents, [expected]);
}

#[test]
fn select_and_concat_take_every_datatype_over_rest() {
    let server = TestServer::start(folder());
    for datatype in Datatype::ALL {
        let data = match datatype {
            Datatype::Bool => json!([true, false]),
            Datatype::Bytes => json!(["a", "b"]),
            Datatype::Fp16 | Datatype::Bf16 | Datatype::Fp32 | Datatype::Fp64 => json!([0.5, 2.0]),
            _ => json!([1, 2]),
        };
        let input = |name: &str| json!({"name": name, "datatype": datatype.name(), "shape": [1, 2], "data": data});
        let request = json!({"inputs": [input("x"), input("t")]}).to_string();
        let selected = server.post("/v2/models/select/infer", &request).ok();
        assert_eq!(selected["outputs"][0]["data"], json!([data[1], data[0]]), "{datatype}");
        let joined = server.post("/v2/models/concat/infer", &request).ok();
        assert_eq!(joined["outputs"][0]["data"], json!([data[0], data[1], data[0], data[1]]), "{datatype}");
        assert_eq!(joined["outputs"][0]["datatype"], datatype.name());
    }
}

#[test]
fn steps_reject_requests_that_do_not_fit() {
    let server = TestServer::start(folder());
    let error = server
        .post("/v2/models/label/infer", r#"{"inputs":[{"name":"x","datatype":"FP32","shape":[1,3],"data":[1,2,3]}]}"#);
    assert_eq!(error.error(400), "the input `scores` is missing (found `x`)");
    let error = server.post("/v2/models/label/infer", r#"{"inputs":[]}"#);
    assert_eq!(error.error(400), "the input `scores` is missing (found none)");
    let error = server.post(
        "/v2/models/label/infer",
        r#"{"inputs":[{"name":"scores","datatype":"FP32","shape":[3],"data":[1,2,3]}]}"#,
    );
    assert_eq!(
        error.error(400),
        "the input `scores` has the shape [3], but `argmax` needs at least two dimensions: rows and columns"
    );
}

#[test]
fn batched_steps_answer_each_request_with_its_rows() {
    let server = TestServer::start(folder());
    let rows = [[0.1, 0.7, 0.2], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]];
    let labels = ["maybe", "no", "yes"];
    thread::scope(|scope| {
        let clients: Vec<_> = (0..24)
            .map(|client: usize| {
                let server = &server;
                scope.spawn(move || {
                    let chosen: Vec<usize> = (0..=client % 3).map(|row| (row + client) % 3).collect();
                    let request: Vec<[f32; 3]> = chosen.iter().map(|&row| rows[row]).collect();
                    let answer = server.post("/v2/models/batched/infer", scores(&request)).ok();
                    let expected: Vec<&str> = chosen.iter().map(|&row| labels[row]).collect();
                    assert_eq!(answer["outputs"][0]["data"], json!(expected));
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
    });
}

#[test]
fn steps_declare_outputs_that_follow_from_declared_inputs() {
    let server = TestServer::start(folder());
    let metadata = server.get("/v2/models/declared").ok();
    assert_eq!(metadata["inputs"], json!([{"name": "scores", "datatype": "FP32", "shape": [-1, 3]}]));
    assert_eq!(metadata["outputs"], json!([{"name": "label", "datatype": "BYTES", "shape": [-1, 1]}]));
    assert_eq!(metadata["parameters"]["backend"], "native");
    assert_eq!(server.get("/v2/models/label").ok()["outputs"], json!([]));
}

#[test]
fn step_responses_are_limited_by_the_byte_budget() {
    let categories: Vec<usize> = (0..50_000).collect();
    let wide = json!({"outputs": [{"input": "x", "apply": [{"one_hot": categories}]}]});
    let folder = with_step(Folder::new(), "wide", "mlserver.Map", &wide, &json!({}));
    let server = TestServer::start(folder.settings(&json!({"max_request_bytes_in_flight": 64 << 20})));
    let request = |rows: usize| {
        json!({"inputs": [{"name": "x", "datatype": "UINT8", "shape": [rows], "data": vec![7; rows]}]}).to_string()
    };
    let before = server.peak_memory();
    let answer = server.post("/v2/models/wide/infer", request(100_000));
    assert_eq!(answer.status, 413, "{}", answer.text());
    assert!(server.peak_memory() - before < 16 * 1024, "20 GB have not been allocated");
    assert_eq!(server.post("/v2/models/wide/infer", request(1)).ok()["outputs"][0]["shape"], json!([1, 50_000]));
}

#[test]
fn commands_accept_folders_of_steps_without_python() {
    let folder = folder();
    let root = folder.root().to_str().unwrap();
    let dockerfile = run_mlserver(folder.root(), &["dockerfile", root]);
    assert!(dockerfile.status.success());
    let text = fs::read_to_string(folder.path("Dockerfile")).unwrap();
    assert!(text.contains("5 native models, no Python needed"), "{text}");
    let doctor = run_mlserver(folder.root(), &["doctor", root]);
    let text = String::from_utf8(doctor.stdout).unwrap();
    assert!(text.contains("model `label` is native"), "{text}");
    let inspect = run_mlserver(folder.root(), &["inspect", folder.path("label").to_str().unwrap()]);
    let text = String::from_utf8(inspect.stderr).unwrap();
    assert!(text.contains("its implementation `mlserver.Map` is not the runtime of a model file"), "{text}");
}

#[test]
fn invalid_steps_are_found_by_every_command() {
    let folder = with_step(Folder::new(), "s", "mlserver.Select", &json!({"outputs": [{"inputs": "x"}]}), &json!({}));
    let root = folder.root().to_str().unwrap().to_owned();
    let expected = "`parameters.extra.outputs[0].inputs` is unknown, expected `input`, `columns`, `name`";
    for arguments in [["dockerfile", &root], ["doctor", &root]] {
        let output = run_mlserver(folder.root(), &arguments);
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        assert!(!output.status.success() && text.contains(expected), "{arguments:?}: {text}");
    }
    let exit = ServerBuilder::new(folder).run();
    let log = [exit.stdout, exit.stderr].concat();
    assert!(exit.code != Some(0) && log.contains(&format!("s/model-settings.json`: {expected}")), "{log}");
}

/// Runs the pipeline of `examples/graph-ensemble`, and its steps one after the other.
#[test]
fn example_ensemble_answers_as_the_real_libraries() {
    let example = repository_path("examples/graph-ensemble");
    let read = |name: &str| -> Value { serde_json::from_slice(&fs::read(example.join(name)).unwrap()).unwrap() };
    let server = ServerBuilder::new(Folder::new()).argument(example.to_str().unwrap()).start();
    let infer = |model: &str, request: &Value| {
        server.post(&format!("/v2/models/{model}/infer"), request.to_string()).ok()["outputs"].clone()
    };
    let renamed = |output: &Value, name: &str| {
        let mut input = output.clone();
        input["name"] = json!(name);
        input
    };
    let request = read("request.json");
    let benign = infer("benign", &json!({"inputs": infer("sklearn-tumor", &request)}));
    let inputs = [
        renamed(&infer("xgboost-tumor", &request)[0], "xgboost"),
        renamed(&infer("lightgbm-tumor", &request)[0], "lightgbm"),
        benign[0].clone(),
    ];
    let joined = infer("joined", &json!({"inputs": inputs}));
    let verdict = infer("verdict", &json!({"inputs": joined}));
    let expected = &read("answer.json")["outputs"];
    let numbers = |output: &Value| -> Vec<f64> { serde_json::from_value(output["data"].clone()).unwrap() };
    for answer in [verdict, infer("ensemble", &request)] {
        let (found, wanted) = (numbers(&answer[0]), numbers(&expected[0]));
        assert!(found.len() == 3 && found.iter().zip(&wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-6));
        for field in ["name", "shape", "datatype", "data"] {
            assert_eq!(answer[1][field], expected[1][field]);
        }
    }
}
