//! Data that does not have its datatype or shape, which models in Python get, and may send, as it is.

use std::fmt::Write as _;

use futures_util::stream;
use mlserver::types::protobuf::messages::infer_parameter::ParameterChoice;
use mlserver::types::protobuf::messages::{InferParameter, InferTensorContents, ModelInferRequest};
use serde_json::{Value, json};
use tonic::Code;

use crate::support::grpc::{floats, infer_request, inference_client, ints};
use crate::support::python::with_python;
use crate::support::{Folder, TestServer};

const MODEL: &str = r#"
import json

from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput

CALLS = []


class Seen(MLModel):
    """Answers with the number of calls, and what the model sees of its first input."""

    async def predict(self, payload):
        tensor = payload.inputs[0]
        CALLS.append(tensor.name)
        seen = [len(CALLS), list(tensor.shape), repr(getattr(tensor.data, "root", tensor.data))]
        outputs = [ResponseOutput(name="seen", shape=[1], datatype="BYTES", data=[json.dumps(seen)])]
        return InferenceResponse(model_name=self.name, outputs=outputs)

    async def predict_stream(self, payloads):
        async for payload in payloads:
            yield await self.predict(payload)


class Answers(MLModel):
    """Answers with data that has no other form than JSON."""

    async def predict(self, payload):
        numbers = ResponseOutput(name="numbers", shape=[2, 2], datatype="FP32", data="[[1.0, 2.0], [3.0, 4.0]]")
        texts = ResponseOutput(name="texts", shape=[3], datatype="BYTES", data=["a", None, "b"])
        return InferenceResponse(model_name=self.name, outputs=[numbers, texts])
"#;

fn folder(settings: &Value) -> Folder {
    let model = |name: &str, implementation: &str, more: Value| {
        let mut settings = json!({"name": name, "implementation": implementation});
        settings.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        settings.to_string()
    };
    let sample = json!({"inputs": [{"name": "warm", "shape": [1], "datatype": "BYTES", "data": ["a", null]}]});
    Folder::new()
        .settings(settings)
        .file("seen/models.py", MODEL)
        .file(
            "seen/model-settings.json",
            model("seen", "models.Seen", json!({"warmup": [sample], "cache_enabled": true})),
        )
        .file("answers/models.py", MODEL)
        .file("answers/model-settings.json", model("answers", "models.Answers", json!({})))
        .file("checked/models.py", MODEL)
        .file(
            "checked/model-settings.json",
            model(
                "checked",
                "models.Seen",
                json!({"inputs": [{"name": "x", "datatype": "BYTES", "shape": [-1]}],
                    "parameters": {"validate_inputs": true}}),
            ),
        )
        .file("batched/models.py", MODEL)
        .file(
            "batched/model-settings.json",
            model("batched", "models.Seen", json!({"max_batch_size": 8, "max_batch_time": 5.0})),
        )
}

fn start(settings: &Value) -> Option<TestServer> {
    Some(with_python(folder(settings))?.start())
}

fn body(shape: &str, datatype: &str, data: &str) -> String {
    format!(r#"{{"inputs":[{{"name":"x","shape":{shape},"datatype":"{datatype}","data":{data}}}]}}"#)
}

/// Returns shape and data that the model has seen.
fn seen(text: &str) -> String {
    let seen: Value = serde_json::from_str(text).unwrap();
    format!("{} {}", seen[1], seen[2].as_str().unwrap())
}

#[test]
fn python_models_see_data_as_it_was_sent() {
    let Some(server) = start(&json!({"parallel_workers": 1})) else { return };
    let cases = [
        ("[2,1]", "BYTES", r#"["a",null]"#),
        ("[4]", "BYTES", r#"["a",1,2.5,true]"#),
        ("[2]", "BYTES", r#"[{"a":[1,null]},"b"]"#),
        ("[1]", "BYTES", r#"{"a":1}"#),
        ("[2,11]", "BYTES", r#"["hello world","bye"]"#),
        ("[1]", "BYTES", r#"["a","b","c"]"#),
        ("[11]", "BYTES", r#""hello world""#),
        ("[1]", "BYTES", r#""hello""#),
        ("[2]", "BYTES", r#"[["a","b"],["c"]]"#),
        ("[1]", "INT64", "[1,2,3]"),
        ("[1]", "INT64", "[1.5]"),
        ("[2]", "INT64", "[true,false]"),
        ("[1]", "INT8", "[300]"),
        ("[2]", "BOOL", "[true,null]"),
        ("[1]", "FP32", r#"["x"]"#),
        ("[1]", "FP32", "[1e39]"),
        ("[1]", "FP64", r#""text""#),
        ("[5]", "INT32", "[[1,2],[3,4]]"),
        ("[2,2]", "INT32", "[[1,2],[3,4]]"),
        ("[4]", "INT32", "[1,2,3,4]"),
    ];
    let mut shown = String::new();
    for (shape, datatype, data) in cases {
        let answer = server.post("/v2/models/seen/infer", body(shape, datatype, data)).ok();
        let text = answer["outputs"][0]["data"][0].as_str().unwrap();
        writeln!(shown, "{datatype} {shape} {data} -> {}", seen(text)).unwrap();
    }
    insta::assert_snapshot!(shown, @r#"
    BYTES [2,1] ["a",null] -> [2,1] ['a', None]
    BYTES [4] ["a",1,2.5,true] -> [4] ['a', 1, 2.5, True]
    BYTES [2] [{"a":[1,null]},"b"] -> [2] [{'a': [1, None]}, 'b']
    BYTES [1] {"a":1} -> [1] {'a': 1}
    BYTES [2,11] ["hello world","bye"] -> [2,11] ['hello world', 'bye']
    BYTES [1] ["a","b","c"] -> [1] ['a', 'b', 'c']
    BYTES [11] "hello world" -> [11] 'hello world'
    BYTES [1] "hello" -> [1] 'hello'
    BYTES [2] [["a","b"],["c"]] -> [2] [['a', 'b'], ['c']]
    INT64 [1] [1,2,3] -> [1] [1, 2, 3]
    INT64 [1] [1.5] -> [1] [1.5]
    INT64 [2] [true,false] -> [2] [True, False]
    INT8 [1] [300] -> [1] [300]
    BOOL [2] [true,null] -> [2] [True, None]
    FP32 [1] ["x"] -> [1] ['x']
    FP32 [1] [1e39] -> [1] [1e+39]
    FP64 [1] "text" -> [1] 'text'
    INT32 [5] [[1,2],[3,4]] -> [5] [[1, 2], [3, 4]]
    INT32 [2,2] [[1,2],[3,4]] -> [2,2] [[1, 2], [3, 4]]
    INT32 [4] [1,2,3,4] -> [4] [1, 2, 3, 4]
    "#);

    // Events are answered, too.
    let events = server.post("/v2/models/seen/infer_stream", body("[1]", "BYTES", r#"["a",null]"#));
    assert!(events.text().contains(r"['a', None]"), "{}", events.text());
    // What is no JSON, or what Python could not read, is still refused.
    server.post("/v2/models/seen/infer", body("[1]", "BYTES", "[null,]")).error(422);
    server.post("/v2/models/seen/infer", body("[1]", "FP64", "[1e400]")).error(400);
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    server.post("/v2/models/seen/infer", body("[1]", "FP64", &deep)).error(422);
}

#[test]
fn irregular_requests_are_neither_batched_nor_mistaken_for_others() {
    let Some(server) = start(&json!({"parallel_workers": 1, "cache_enabled": true})) else { return };
    let infer = |model: &str, data: &str| {
        let answer = server.post(&format!("/v2/models/{model}/infer"), body("[2]", "BYTES", data)).ok();
        answer["outputs"][0]["data"][0].as_str().unwrap().to_owned()
    };
    // At once: a batch would wait five seconds for others.
    let started = std::time::Instant::now();
    assert_eq!(seen(&infer("batched", r#"["a",null]"#)), "[2] ['a', None]");
    assert!(started.elapsed() < std::time::Duration::from_secs(5));
    let first = infer("seen", r#"["a",null]"#);
    assert_eq!(infer("seen", r#"["a",null]"#), first, "from the cache");
    assert_ne!(infer("seen", r#"["a","null"]"#), first);
    assert_ne!(infer("seen", r#"["a",1]"#), first);
}

#[test]
fn strict_tensors_refuse_them_for_python_models() {
    let Some(server) = start(&json!({"parallel_workers": 1, "strict_tensors": true})) else { return };
    for (shape, datatype, data, reason) in [
        ("[2]", "BYTES", r#"["a",null]"#, "input `x`: element 1 is not a valid BYTES: expected a string"),
        ("[1]", "BYTES", r#"["a","b"]"#, "tensor `x` of shape [1] needs 1 elements, but 2 were given"),
        ("[5]", "BYTES", r#""hello""#, "tensor `x` of shape [5] needs 5 elements, but 1 were given"),
        ("[1]", "BOOL", "[2]", "input `x`: element 0 is not a valid BOOL: expected true, false, 1 or 0"),
    ] {
        let error = server.post("/v2/models/seen/infer", body(shape, datatype, data)).error(400);
        assert_eq!(error, reason);
    }
    server.post("/v2/models/seen/infer", body("[1]", "BYTES", r#""hello""#)).ok();
}

#[test]
fn validated_inputs_are_regular() {
    let Some(server) = start(&json!({"parallel_workers": 1})) else { return };
    server.post("/v2/models/checked/infer", body("[2]", "BYTES", r#"["a","b"]"#)).ok();
    let error = server.post("/v2/models/checked/infer", body("[2]", "BYTES", r#"["a",null]"#)).error(400);
    assert_eq!(error, "input `x`: element 1 is not a valid BYTES: expected a string");
}

fn texts(elements: &[&[u8]]) -> InferTensorContents {
    let bytes_contents = elements.iter().map(|&element| element.to_vec().into()).collect();
    InferTensorContents { bytes_contents, ..InferTensorContents::default() }
}

#[tokio::test]
async fn grpc_keeps_shapes_that_are_not_those_of_the_data() {
    for strict in [false, true] {
        let Some(server) = start(&json!({"parallel_workers": 1, "strict_tensors": strict})) else { return };
        let mut client = inference_client(server.grpc).await;
        let cases: [(ModelInferRequest, &str); 3] = [
            (infer_request("seen", "BYTES", &[59], texts(&[b"\xff{}"])), r"[59] [b'\xff{}']"),
            (infer_request("seen", "INT32", &[1], ints(&[1, 2, 3])), "[1] [1, 2, 3]"),
            (infer_request("seen", "FP32", &[2, 2], floats(&[0.5])), "[2,2] [0.5]"),
        ];
        for (request, wanted) in cases {
            let name = format!("{request:?}");
            let answer = client.model_infer(request.clone()).await;
            let mut streamed = client.model_stream_infer(stream::iter([request])).await.unwrap().into_inner();
            let streamed = streamed.message().await;
            if strict {
                for status in [answer.unwrap_err(), streamed.unwrap_err()] {
                    assert_eq!(status.code(), Code::InvalidArgument, "{name}: {status}");
                    assert!(status.message().starts_with("tensor `x` of shape"), "{status}");
                }
                continue;
            }
            for answer in [answer.unwrap().into_inner(), streamed.unwrap().unwrap()] {
                let output = &answer.outputs[0];
                let text = output.contents.as_ref().map_or_else(
                    || answer.raw_output_contents[0][4..].to_vec(),
                    |contents| match &contents.bytes_contents[..] {
                        [text] => text.to_vec(),
                        _ => answer.raw_output_contents[0][4..].to_vec(),
                    },
                );
                assert_eq!(seen(std::str::from_utf8(&text).unwrap()), wanted, "{name}");
            }
        }
    }
}

#[tokio::test]
async fn answers_in_json_are_sent_over_rest_and_refused_over_grpc() {
    let Some(server) = start(&json!({"parallel_workers": 1})) else { return };
    let request = body("[1]", "INT8", "[1]");
    for parameters in ["{}", r#"{"binary_data_output":true}"#] {
        let request = request.replacen('{', &format!(r#"{{"parameters":{parameters},"#), 1);
        let answer = server.post("/v2/models/answers/infer", request).ok();
        let data: Vec<_> = (0..2).map(|index| answer["outputs"][index]["data"].clone()).collect();
        assert_eq!(data, [json!("[[1.0, 2.0], [3.0, 4.0]]"), json!(["a", null, "b"])]);
    }
    let mut client = inference_client(server.grpc).await;
    let raw = InferParameter { parameter_choice: Some(ParameterChoice::BoolParam(true)) };
    let mut request = infer_request("answers", "INT32", &[1], ints(&[1]));
    request.parameters.insert("any".to_owned(), raw);
    let status = client.model_infer(request).await.unwrap_err();
    let reason = "output `numbers`: element 0, '[[1.0, 2.0], [3.0, 4.0]]', is not a valid FP32";
    assert_eq!(status.code(), Code::Internal);
    assert!(status.message().starts_with(reason), "{status}");
}
