//! Work in proportion to a request never keeps a thread that serves: no poll of a task takes more than 20 ms of processor time.
//!
//! The executable of the tests logs longer polls. It is not optimized, and takes about ten times as long as a release: five times the limit
//! is still stricter. `MLSERVER_TEST_LONGEST_POLL` sets another limit, in milliseconds.

use mlserver::types::protobuf::messages::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
use mlserver::types::protobuf::messages::{InferParameter, InferTensorContents, ModelInferRequest};
use prost::Message;
use serde_json::{Value, json};

use crate::support::grpc::{Http2, framed, infer_request, raw_request};
use crate::support::{Folder, ServerBuilder, TestServer};

const LONG: &str = "A task ran without a pause. milliseconds=";

/// The limit for an executable that is not optimized, in milliseconds.
const LIMIT: f64 = 100.0;

/// Returns the limit: that of `MLSERVER_TEST_LONGEST_POLL`, which is 20 for an optimized executable.
fn limit() -> f64 {
    let named = std::env::vars_os().find(|(name, _)| name == "MLSERVER_TEST_LONGEST_POLL").map(|(_, limit)| limit);
    named.map_or(LIMIT, |limit| limit.to_str().and_then(|limit| limit.parse().ok()).unwrap())
}

fn graph(nodes: &Value) -> String {
    json!({"apiVersion": "serving.kserve.io/v1alpha1", "kind": "InferenceGraph", "metadata": {"name": "g"},
        "spec": {"nodes": nodes}})
    .to_string()
}

fn with_graph(folder: Folder, name: &str, nodes: &Value) -> Folder {
    let settings = json!({"name": name, "implementation": "mlserver.Graph", "parameters": {"uri": "./graph.yaml"}});
    folder
        .file(&format!("{name}/graph.yaml"), graph(nodes))
        .file(&format!("{name}/model-settings.json"), settings.to_string())
}

fn start(folder: Folder) -> TestServer {
    ServerBuilder::new(folder.settings(&json!({"debug": true}))).start()
}

/// Requires that no poll since `before` bytes of the log was long.
#[track_caller]
fn require_no_long_polls(server: &TestServer, what: &str, before: usize) -> usize {
    let log = server.log();
    let polls = log[before..].lines().filter_map(|line| line.split_once(LONG)?.1.parse::<f64>().ok());
    let longest = polls.fold(0.0, f64::max);
    assert!(longest < limit(), "{what}: a poll took {longest} ms of processor time");
    log.len()
}

fn select(folder: Folder, name: &str) -> Folder {
    let extra = json!({"outputs": [{"name": "y", "input": "x"}]});
    let settings = json!({"name": name, "implementation": "mlserver.Select", "parameters": {"extra": extra}});
    folder.file(&format!("{name}/model-settings.json"), settings.to_string())
}

/// Returns a request with one binary tensor of `size` bytes, and the length of its JSON.
fn binary(size: usize) -> (Vec<u8>, String) {
    let head = json!({"inputs": [{"name": "x", "datatype": "UINT8", "shape": [size],
        "parameters": {"binary_data_size": size}}], "parameters": {"binary_data_output": true}});
    let head = head.to_string();
    let length = head.len().to_string();
    let mut body = head.into_bytes();
    body.resize(body.len() + size, 0);
    (body, length)
}

#[test]
fn conditions_on_large_tensors_leave_threads_free() {
    let switch = |condition: &str| {
        json!({"root": {"routerType": "Switch", "steps": [{"serviceName": "a", "condition": condition},
            {"name": "b", "serviceName": "a", "condition": "inputs"}]}})
    };
    let folder = select(Folder::new(), "a");
    let folder = with_graph(folder, "by-data", &switch("inputs.0.data.#(==5)#|#"));
    let folder = with_graph(folder, "by-name", &switch("inputs.#(name==\"nope\")"));
    let folder = with_graph(folder, "by-parameter", &switch("parameters.kind"));
    let server = start(folder);
    let mut seen = server.log().len();
    for (model, size, status) in [
        ("by-name", 16 << 20, 200),
        ("by-parameter", 16 << 20, 200),
        ("by-data", 200_000, 200),
        ("by-data", 16 << 20, 422),
    ] {
        let (body, length) = binary(size);
        let headers =
            [("content-type", "application/octet-stream"), ("inference-header-content-length", length.as_str())];
        let answer = server.post_with(&format!("/v2/models/{model}/infer"), &headers, &body);
        assert_eq!(
            answer.status,
            status,
            "{model}: {}",
            String::from_utf8_lossy(&answer.body[..200.min(answer.body.len())])
        );
        seen = require_no_long_polls(&server, model, seen);
    }
}

#[test]
fn nested_graphs_pause_end_at_their_deadline_and_are_limited() {
    let ensemble = |steps: &[&str]| {
        let steps: Vec<_> = steps
            .iter()
            .enumerate()
            .map(|(index, step)| json!({"name": format!("s{index}"), "serviceName": step}))
            .collect();
        json!({"root": {"routerType": "Ensemble", "steps": steps}})
    };
    let mut folder = select(Folder::new(), "a");
    folder = with_graph(folder, "wide", &ensemble(&["a"; 900]));
    folder = with_graph(folder, "wider", &ensemble(&["wide"; 10]));
    folder = with_graph(folder, "widest", &ensemble(&["wide"; 30]));
    folder = with_graph(folder, "n0", &ensemble(&["a", "a"]));
    for level in 1..14 {
        let below = format!("n{}", level - 1);
        folder = with_graph(folder, &format!("n{level}"), &ensemble(&[&below, &below]));
    }
    let server = start(folder);
    let request = json!({"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [1]}]}).to_string();
    let infer = |model: &str, timeout: &str| {
        server.post_with(
            &format!("/v2/models/{model}/infer"),
            &[("content-type", "application/json"), ("request-timeout", timeout)],
            &request,
        )
    };
    let seen = server.log().len();
    assert_eq!(infer("wider", "600").status, 200);
    let seen = require_no_long_polls(&server, "an ensemble of ensembles", seen);
    for model in ["widest", "n13"] {
        let answer = infer(model, "600");
        assert!(answer.error(508).contains("more than 10000 steps"), "{answer:?}");
        // Steps that the deadline ends are not left out of the answer, as those that fail are. An optimized executable takes less than
        // 50 ms for 10,000 steps.
        for milliseconds in 1..=8 {
            let answer = infer(model, &format!("0.00{milliseconds}"));
            assert_eq!(answer.status, 504, "{model} within {milliseconds} ms: {answer:?}");
        }
    }
    require_no_long_polls(&server, "nested ensembles", seen);
}

const REST: &str = "application/json";

/// Requests that ask for much work in one respect each, for models of several kinds. More bytes take as long without a pause.
#[test]
fn large_requests_of_every_kind_leave_threads_free() {
    let folder = Folder::new()
        .with_identity("echo")
        .with_iris("iris", &json!({"name": "iris"}))
        .with_iris("batched", &json!({"name": "batched", "max_batch_size": 8, "max_batch_time": 0.01}))
        .with_iris("cached", &json!({"name": "cached", "cache_enabled": true}));
    let folder = select(folder, "select");
    let sequence = json!({"root": {"routerType": "Sequence", "steps": [{"serviceName": "select"}]}});
    let folder = with_graph(folder, "graph", &sequence);
    let settings = json!({"debug": true, "cache_enabled": true, "server_timing": true});
    let server = ServerBuilder::new(folder.settings(&settings)).start();
    let rows = |count: usize| vec![[5.1, 3.5, 1.4, 0.2]; count];
    let tensor = |name: &str, datatype: &str, shape: Value, data: Value| json!({"name": name, "datatype": datatype, "shape": shape, "data": data});
    let v2 = |inputs: Value| json!({"inputs": inputs}).to_string();
    let numbers = v2(json!([tensor("x", "FP32", json!([100_000, 4]), json!(rows(100_000)))]));
    let flat = v2(json!([tensor("x", "INT64", json!([500_000]), json!(vec![7; 500_000]))]));
    let texts = v2(json!([tensor("x", "BYTES", json!([150_000]), json!(vec!["abcdefgh"; 150_000]))]));
    let ragged = v2(json!([tensor("x", "FP32", json!([3]), json!(vec![vec![1; 3]; 50_000]))]));
    let many: Vec<Value> =
        (0..15_000).map(|index| tensor(&format!("x{index}"), "INT8", json!([1]), json!([1]))).collect();
    let many = v2(json!(many));
    let parameters = (0..20_000).map(|index| (format!("p{index}"), json!(index)));
    let parameters: serde_json::Map<String, Value> = parameters.collect();
    let parameters =
        json!({"parameters": parameters, "inputs": [tensor("x", "FP32", json!([1, 4]), json!(rows(1)))]}).to_string();
    let outputs: Vec<Value> = (0..30_000).map(|index| json!({"name": format!("y{index}")})).collect();
    let outputs = json!({"outputs": outputs, "inputs": [tensor("x", "FP32", json!([1, 4]), json!(rows(1)))]});
    let outputs = outputs.to_string();
    let invalid = "[".repeat(2 << 20);
    let v1 = json!({"instances": rows(100_000)}).to_string();
    let records: Vec<Value> = (0..20_000).map(|row| json!({"a": row, "b": "text", "c": [1, 2, 3]})).collect();
    let v1_records = json!({"instances": records}).to_string();
    let bodies = [
        ("numbers", &numbers),
        ("flat", &flat),
        ("texts", &texts),
        ("ragged", &ragged),
        ("many", &many),
        ("parameters", &parameters),
        ("outputs", &outputs),
        ("invalid", &invalid),
    ];
    let mut seen = server.log().len();
    let mut longest = Vec::new();
    let mut note = |what: String| {
        let log = server.log();
        let polls = log[seen..].lines().filter_map(|line| line.split_once(LONG)?.1.parse::<f64>().ok());
        longest.push((polls.fold(0.0, f64::max), what));
        seen = log.len();
    };
    for (name, body) in bodies {
        for model in ["echo", "iris", "batched", "cached", "select", "graph"] {
            server.post(&format!("/v2/models/{model}/infer"), body);
            note(format!("{name} to {model}"));
        }
        server.post("/v2/models/iris/infer_stream", body);
        note(format!("{name} as a stream"));
    }
    for (name, body) in [("numbers", &v1), ("records", &v1_records), ("invalid", &invalid)] {
        for model in ["echo", "iris"] {
            server.post(&format!("/v1/models/{model}:predict"), body);
            note(format!("V1: {name} to {model}"));
            let event = [
                ("content-type", REST),
                ("ce-specversion", "1.0"),
                ("ce-id", "1"),
                ("ce-source", "s"),
                ("ce-type", "t"),
            ];
            server.post_with(&format!("/v1/models/{model}:predict"), &event, body);
            note(format!("V1 event: {name} to {model}"));
        }
    }
    longest.retain(|(time, _)| *time > 0.0);
    longest.retain(|(time, _)| *time > limit());
    assert!(longest.is_empty(), "polls took this many milliseconds of processor time: {longest:#?}");
}

/// Returns the models that requests over gRPC are sent to.
fn models() -> Folder {
    let folder = Folder::new()
        .with_identity("echo")
        .with_iris("iris", &json!({"name": "iris"}))
        .with_iris("batched", &json!({"name": "batched", "max_batch_size": 8, "max_batch_time": 0.01}));
    select(folder, "select")
}

/// Adds a field with a length to a message.
fn with_field(mut message: Vec<u8>, number: u8, bytes: &[u8]) -> Vec<u8> {
    message.push(number << 3 | 2);
    prost::encoding::encode_varint(bytes.len() as u64, &mut message);
    message.extend_from_slice(bytes);
    message
}

/// Returns a request whose numbers are fields of their own, which is allowed for numbers that are usually packed.
fn unpacked(request: &ModelInferRequest, field: &[u8], count: usize) -> Vec<u8> {
    let mut outer = request.clone();
    let tensor = with_field(outer.inputs.remove(0).encode_to_vec(), 5, &field.repeat(count));
    with_field(outer.encode_to_vec(), 5, &tensor)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_grpc_requests_of_every_kind_leave_threads_free() {
    let server = start(models());
    let inputs: Vec<InferInputTensor> = (0..15_000)
        .map(|index| InferInputTensor {
            name: format!("x{index}"),
            datatype: "INT8".to_owned(),
            shape: vec![1],
            ..InferInputTensor::default()
        })
        .collect();
    let raw = vec![vec![1_u8].into(); inputs.len()];
    let parameters = || (0..15_000).map(|index| (format!("p{index}"), InferParameter::default())).collect();
    let outputs = (0..15_000)
        .map(|index| InferRequestedOutputTensor { name: format!("y{index}"), ..InferRequestedOutputTensor::default() });
    let row = raw_request("", "FP32", &[1, 4], vec![0; 16]);
    let numbers = |datatype: &str| infer_request("", datatype, &[400_000], InferTensorContents::default());
    let mut of_tensor = row.clone();
    of_tensor.inputs[0].parameters = parameters();
    let texts = InferTensorContents {
        bytes_contents: vec![b"abcdefgh".as_slice().into(); 50_000],
        ..InferTensorContents::default()
    };
    let messages = [
        (
            "tensors",
            ModelInferRequest { inputs: inputs.clone(), raw_input_contents: raw.clone(), ..row.clone() }
                .encode_to_vec(),
        ),
        ("raw contents", ModelInferRequest { raw_input_contents: raw, ..row.clone() }.encode_to_vec()),
        ("parameters", ModelInferRequest { parameters: parameters(), ..row.clone() }.encode_to_vec()),
        ("parameters of a tensor", of_tensor.encode_to_vec()),
        ("outputs", ModelInferRequest { outputs: outputs.collect(), ..row.clone() }.encode_to_vec()),
        ("numbers", unpacked(&numbers("FP32"), &[6 << 3 | 5, 0, 0, 0, 0], 400_000)),
        ("doubles", unpacked(&numbers("FP64"), &[7 << 3 | 1, 0, 0, 0, 0, 0, 0, 0, 0], 400_000)),
        ("integers", unpacked(&numbers("INT8"), &[2 << 3, 1], 400_000)),
        ("texts", infer_request("", "BYTES", &[50_000], texts).encode_to_vec()),
        (
            "unknown fields",
            with_field(row.encode_to_vec(), 15, b"").into_iter().chain([15 << 3 | 2, 0].repeat(1 << 20)).collect(),
        ),
        ("a name", ModelInferRequest { id: "i".repeat(4 << 20), ..row.clone() }.encode_to_vec()),
        (
            "a malformed end",
            ModelInferRequest { inputs, ..row.clone() }.encode_to_vec().into_iter().chain([0xff]).collect(),
        ),
    ];
    let connection = Http2::connect(server.grpc).await;
    let (mut seen, mut longest) = (server.log().len(), Vec::new());
    for (name, message) in messages {
        for model in ["echo", "iris", "batched", "select"] {
            // The last name of a message counts.
            let message = framed(0, &with_field(message.clone(), 1, model.as_bytes()));
            for method in ["ModelInfer", "ModelStreamInfer"] {
                let path = format!("/inference.GRPCInferenceService/{method}");
                connection.call(&path, &[], &message).await;
                let log = server.log();
                let polls = log[seen..].lines().filter_map(|line| line.split_once(LONG)?.1.parse::<f64>().ok());
                longest.push((polls.fold(0.0, f64::max), format!("{name} to {model}, {method}")));
                seen = log.len();
            }
        }
    }
    longest.retain(|(time, _)| *time > limit());
    assert!(longest.is_empty(), "polls took this many milliseconds of processor time: {longest:#?}");
}
