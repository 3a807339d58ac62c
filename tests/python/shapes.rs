//! Answers of models in Python: shapes and data arrive as the model gave them.

use serde_json::{Value, json};
use tonic::Code;

use crate::support::Folder;
use crate::support::grpc::{infer_request, inference_client, ints};
use crate::support::python::with_python;

const MODEL: &str = r#"
import json

from mlserver import MLModel
from mlserver.types import InferenceResponse, ResponseOutput


class Given(MLModel):
    """Answers as the parameter `answer` says, and with the shape of its input."""

    async def predict(self, payload):
        tensor = payload.inputs[0]
        seen = ResponseOutput(name="seen", shape=[1], datatype="BYTES", data=[str(list(tensor.shape))])
        given = payload.parameters.model_extra.get("answer") if payload.parameters else None
        output = [] if given is None else [ResponseOutput(name="y", **json.loads(given))]
        more = {"model_version": payload.id} if payload.id.startswith("v") else {}
        return InferenceResponse(model_name="its-own-name", outputs=[seen, *output], **more)
"#;

fn folder() -> Folder {
    let mut folder = Folder::new();
    for (name, more) in [
        ("m", json!({})),
        ("versioned", json!({"parameters": {"version": "2"}})),
        ("batched", json!({"max_batch_size": 4, "max_batch_time": 0.01})),
    ] {
        let mut settings = json!({"name": name, "implementation": "models.Given"});
        settings.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
        let (models, file) = (format!("{name}/models.py"), format!("{name}/model-settings.json"));
        folder = folder.file(&models, MODEL).file(&file, settings.to_string());
    }
    folder
}

fn body(id: &str, answer: &Value, more: &str) -> String {
    let answer = json!(answer.to_string());
    format!(
        r#"{{"id":"{id}","parameters":{{"answer":{answer}{more}}},"inputs":[{{"name":"x","shape":[1],"datatype":"INT8","data":[1]}}]}}"#
    )
}

#[test]
fn python_models_see_any_shape() {
    let Some(server) = with_python(folder()) else { return };
    let server = server.start();
    for (shape, data) in [
        ("[11]", "\"hello world\""),
        ("[4000000000000000,1]", "\"hello world\""),
        ("[3]", "[\"a\",\"b\"]"),
        ("[1,1]", "\"hello world\""),
        ("[2]", "[\"a\",\"b\"]"),
        ("[-1,2]", "[\"a\",\"b\"]"),
        ("[-1,3]", "[\"a\",\"b\"]"),
        ("[-2]", "[\"a\",\"b\"]"),
    ] {
        let input = format!(r#"{{"name":"x","shape":{shape},"datatype":"BYTES","data":{data}}}"#);
        let answer = server.post("/v2/models/m/infer", format!(r#"{{"inputs":[{input}]}}"#)).ok();
        let seen: Value = serde_json::from_str(answer["outputs"][0]["data"][0].as_str().unwrap()).unwrap();
        assert_eq!(seen, serde_json::from_str::<Value>(shape).unwrap());
    }
}

/// Output, the same in the regular form, or the start of the error over gRPC.
fn answers() -> Vec<(Value, Result<Value, &'static str>)> {
    let output =
        |datatype: &str, shape: Value, data: Value| json!({"shape": shape, "datatype": datatype, "data": data});
    vec![
        (output("FP32", json!([2, 2]), json!([[1.5, 2.0], [3.0, 4.0]])), Ok(json!([1.5, 2.0, 3.0, 4.0]))),
        (output("INT64", json!([1, 2, 1]), json!([[[1], [2]]])), Ok(json!([1, 2]))),
        (output("INT64", json!([4]), json!([[1, 2], [3, 4]])), Ok(json!([1, 2, 3, 4]))),
        (output("BYTES", json!([2, 1]), json!([["a"], ["b"]])), Ok(json!(["a", "b"]))),
        (
            output("BYTES", json!([1]), json!([{"label": "a", "score": 0.5}])),
            Ok(json!([r#"{"label":"a","score":0.5}"#])),
        ),
        (output("BYTES", json!([1]), json!({"label": "a"})), Ok(json!([r#"{"label":"a"}"#]))),
        (output("BYTES", json!([2]), json!([1, 2.5])), Ok(json!(["1", "2.5"]))),
        (output("BYTES", json!([1]), json!("a summary")), Ok(json!(["a summary"]))),
        (output("BYTES", json!([224]), json!("a summary")), Ok(json!(["a summary"]))),
        (output("INT64", json!([]), json!(5)), Ok(json!([5]))),
        (output("INT64", json!([-1, 2]), json!([[1, 2]])), Ok(json!([1, 2]))),
        (output("FP64", json!([2]), json!([1.5, null])), Ok(json!([1.5, null]))),
        (output("BYTES", json!([4, 4]), json!(["true", "0.91"])), Err("its shape [4, 4] cannot hold 2 elements")),
        (output("INT64", json!([-1, -1]), json!([1, 2])), Err("its shape [-1, -1] cannot hold 2 elements")),
        (output("INT8", json!([1]), json!([300])), Err("element 0, 300, does not fit INT8")),
        (output("INT8", json!([1]), json!([2.5])), Err("element 0, 2.5, is not a valid INT8")),
        (output("INT8", json!([1]), json!([null])), Err("element 0, None, is not a valid INT8")),
        (output("BOOL", json!([1]), json!([null])), Err("element 0, None, is neither true nor false")),
        (output("BYTES", json!([2]), json!(["a", null])), Err("element 1 is None, which is neither text nor bytes")),
        (output("FP32", json!([1]), json!([1e300])), Err("a number is beyond the range of FP32")),
        (output("FP64", json!([1]), json!(null)), Ok(json!([null]))),
    ]
}

#[test]
fn answers_over_rest_are_those_of_the_model() {
    let Some(server) = with_python(folder()) else { return };
    let server = server.start();
    for (given, regular) in answers() {
        let answer = server.post("/v2/models/m/infer", body("1", &given, "")).ok();
        let output = &answer["outputs"][1];
        for field in ["datatype", "shape", "data"] {
            assert_eq!(output[field], given[field], "{given}");
        }
        assert_eq!(answer["model_name"], "its-own-name");
        // Batched answers are flat. Those without a regular form arrive as they are.
        let batched = server.post("/v2/models/batched/infer", body("1", &given, "")).ok();
        assert_eq!(batched["outputs"][1]["data"], regular.unwrap_or_else(|_| given["data"].clone()), "{given}");
    }
    let log = server.log();
    assert_eq!(log.matches("does not suit its datatype and shape").count(), 2, "once for each model: {log}");
    assert!(log.contains("output 'y' of model 'm'"), "{log}");
}

#[tokio::test]
async fn answers_over_grpc_are_regular() {
    let Some(server) = with_python(folder()) else { return };
    let server = server.start();
    let mut client = inference_client(server.grpc).await;
    for (given, regular) in answers() {
        let mut request = infer_request("m", "INT32", &[1], ints(&[1]));
        let text =
            mlserver::types::protobuf::messages::infer_parameter::ParameterChoice::StringParam(given.to_string());
        let answer = mlserver::types::protobuf::messages::InferParameter { parameter_choice: Some(text) };
        request.parameters.insert("answer".to_owned(), answer);
        match (client.model_infer(request).await, regular) {
            (Ok(answer), Ok(regular)) => {
                let contents = answer.into_inner().outputs[1].contents.clone().unwrap();
                let count = contents.bytes_contents.len()
                    + contents.int64_contents.len()
                    + contents.fp32_contents.len()
                    + contents.fp64_contents.len();
                assert_eq!(count, regular.as_array().unwrap().len(), "{given}");
                let texts: Vec<_> = contents.bytes_contents.iter().map(|text| String::from_utf8_lossy(text)).collect();
                assert!(texts.is_empty() || json!(texts) == regular, "{given}: {texts:?}");
            }
            (Err(status), Err(reason)) => {
                assert_eq!(status.code(), Code::Internal, "{given}: {status}");
                assert!(status.message().starts_with(&format!("output `y`: {reason}")), "{given}: {status}");
            }
            (answer, _) => unreachable!("{given}: {answer:?}"),
        }
    }
}

#[test]
fn version_is_that_of_the_settings_or_of_the_model() {
    let Some(server) = with_python(folder()) else { return };
    let server = server.start();
    let version = |model: &str, id: &str| {
        let answer = server.post(&format!("/v2/models/{model}/infer"), body(id, &answers()[0].0, "")).ok();
        answer["model_version"].as_str().map(str::to_owned)
    };
    assert_eq!(version("m", "v1").as_deref(), Some("v1"));
    assert_eq!(version("m", "1"), None);
    assert_eq!(version("versioned", "v1").as_deref(), Some("2"));
}

#[test]
fn binary_answers_are_regular() {
    let Some(server) = with_python(folder()) else { return };
    let server = server.start();
    let given = json!({"shape": [2, 2], "datatype": "INT8", "data": [[1, 2], [3, 4]]});
    let answer = server.post("/v2/models/m/infer", body("1", &given, r#","binary_data_output":true"#));
    assert!(answer.body.ends_with(&[1, 2, 3, 4]), "{:?}", answer.body);
}
