//! Shapes that are not those of the data: rejected for every family of models, by whatever way a request comes.

use mlserver::types::protobuf::messages::{InferTensorContents, ModelInferRequest};
use serde_json::json;
use tonic::Code;

use crate::support::goldens::sklearn_golden;
use crate::support::grpc::{floats, infer_request, inference_client, raw_request};
use crate::support::{Folder, IRIS, TestServer, repository_path};

/// How much memory rejected requests may leave allocated, in KiB. Far below what their shapes declare.
const LITTLE: u64 = 16 * 1024;

/// The models, the datatype of their input, and its number of columns.
const MODELS: [(&str, &str, usize); 7] = [
    (IRIS, "FP32", 4),
    ("batched", "FP32", 4),
    ("sklearn", "BYTES", 3),
    ("sklearn-numbers", "FP32", 4),
    ("mlflow", "FP32", 3),
    ("identity", "FP32", 4),
    ("step", "FP32", 4),
];

fn folder() -> Folder {
    let sklearn = |folder: Folder, name: &str, case: &str| {
        let settings = json!({"name": name, "implementation": "mlserver_sklearn.SKLearnModel",
            "parameters": {"uri": "./model.joblib", "extra": {"backend": "native", "predict_fn": "transform"}}});
        let folder = folder.file(&format!("{name}/model.joblib"), sklearn_golden(case));
        folder.file(&format!("{name}/model-settings.json"), settings.to_string())
    };
    let mlflow = json!({"name": "mlflow", "implementation": "mlserver_mlflow.MLflowRuntime",
        "parameters": {"uri": "./model", "extra": {"backend": "native"}}});
    let step = json!({"name": "step", "implementation": "mlserver.Select",
        "parameters": {"extra": {"outputs": [{"input": "x", "columns": [3, 2, 1, 0], "name": "predict"}]}}});
    let mut folder = Folder::iris()
        .file("step/model-settings.json", step.to_string())
        .with_identity("identity")
        .with_iris("batched", &json!({"name": "batched", "max_batch_size": 8, "max_batch_time": 0.01}));
    folder = sklearn(folder, "sklearn", "1.9.1/encode/one_hot_str.joblib");
    folder = sklearn(folder, "sklearn-numbers", "1.9.1/linear/logistic_2.joblib");
    for file in ["MLmodel", "model.pkl"] {
        let content = std::fs::read(repository_path(&format!("tests/goldens/mlflow/linear/model/{file}"))).unwrap();
        folder = folder.file(&format!("mlflow/model/{file}"), content);
    }
    folder.file("mlflow/model-settings.json", mlflow.to_string())
}

/// Shapes that one row of data does not have.
fn wrong_shapes(columns: usize) -> [Vec<i64>; 6] {
    let columns = i64::try_from(columns).unwrap();
    [
        vec![2, columns],
        vec![columns - 1],
        vec![4_000_000_000_000_000, columns],
        vec![0, columns],
        vec![],
        vec![i64::MAX, i64::MAX],
    ]
}

#[tokio::test]
async fn wrong_shapes_are_rejected_for_every_family_and_transport() {
    let server = TestServer::start(folder());
    let before = server.peak_memory();
    let mut client = inference_client(server.grpc).await;
    for (model, datatype, columns) in MODELS {
        let path = format!("/v2/models/{model}/infer");
        let data = if datatype == "BYTES" { json!(vec!["a"; columns]) } else { json!(vec![0.5; columns]) };
        let raw = if datatype == "BYTES" { b"\x01\0\0\0a".repeat(columns) } else { vec![0; 4 * columns] };
        for shape in wrong_shapes(columns) {
            for content_type in ["np", "pd"] {
                let parameters = json!({"content_type": content_type});
                let text = |inputs: String| format!(r#"{{"parameters":{parameters},"inputs":[{inputs}]}}"#);
                let input = |fields: String| text(format!(r#"{{"name":"x",{fields}}}"#));
                let declared = format!(r#""shape":{},"datatype":"{datatype}""#, json!(shape));
                let bodies = [
                    input(format!(r#"{declared},"data":{data}"#)),
                    input(format!(r#""data":{data},{declared}"#)),
                    input(format!(r#"{declared},"data":[{data}]"#)),
                ];
                for body in bodies {
                    let answer = server.post(&path, &body);
                    assert_eq!(answer.status, 400, "{model} {body}: {}", answer.text());
                }
                let head = input(format!(r#"{declared},"parameters":{{"binary_data_size":{}}}"#, raw.len()));
                let length = head.len().to_string();
                let headers = [
                    ("content-type", "application/octet-stream"),
                    ("inference-header-content-length", length.as_str()),
                ];
                let answer = server.post_with(&path, &headers, [head.as_bytes(), &raw].concat());
                assert_eq!(answer.status, 400, "{model} {head}: {}", answer.text());
            }
            let typed = if datatype == "BYTES" {
                InferTensorContents { bytes_contents: vec!["a".into(); columns], ..InferTensorContents::default() }
            } else {
                floats(&vec![0.5; columns])
            };
            let requests: [ModelInferRequest; 2] =
                [infer_request(model, datatype, &shape, typed), raw_request(model, datatype, &shape, raw.clone())];
            for request in requests {
                let status = client.model_infer(request).await.unwrap_err();
                assert_eq!(status.code(), Code::InvalidArgument, "{model} {shape:?}: {status}");
            }
        }
        // The exception for Python models.
        for shape in ["[3]", "[3,3]", "[4000000000000000,1]", "[0]"] {
            let body = format!(r#"{{"inputs":[{{"name":"x","shape":{shape},"datatype":"BYTES","data":"a"}}]}}"#);
            let answer = server.post(&path, &body);
            assert_eq!(answer.status, 400, "{model} {body}: {}", answer.text());
        }
        // Rows without values: no data is missing, but there may be any number of them.
        if model != "identity" {
            let body = format!(
                r#"{{"inputs":[{{"name":"x","shape":[1000000000000000,0],"datatype":"{datatype}","data":[]}}]}}"#
            );
            server.post(&path, &body).error(400);
        }
    }
    let grown = server.peak_memory() - before;
    assert!(grown < LITTLE, "{grown} KiB");
    assert_eq!(server.get("/v2/health/ready").status, 200);
    let row = json!({"inputs": [{"name": "x", "shape": [1, 3], "datatype": "BYTES", "data": ["a", "b", "c"]}]});
    assert!([200, 400].contains(&server.post("/v2/models/sklearn/infer", row.to_string()).status));
}

#[test]
fn many_repeated_outputs_are_rejected_by_every_family() {
    let server = TestServer::start(folder());
    let rows = 1000;
    for (model, datatype, columns) in MODELS.into_iter().filter(|(model, ..)| *model != "mlflow") {
        let element = if datatype == "BYTES" { "\"a\"" } else { "0.5" };
        let data = vec![element; rows * columns].join(",");
        let name = match model {
            "identity" => "x",
            "sklearn" => "transform",
            _ => "predict",
        };
        let ask = |count: usize| {
            let outputs = vec![format!(r#"{{"name":"{name}"}}"#); count].join(",");
            let input = format!(r#"{{"name":"x","shape":[{rows},{columns}],"datatype":"{datatype}","data":[{data}]}}"#);
            server
                .post(&format!("/v2/models/{model}/infer"), format!(r#"{{"inputs":[{input}],"outputs":[{outputs}]}}"#))
        };
        for count in [4, 60_000] {
            let error = ask(count).error(400);
            let wanted = format!("{count} outputs are requested, of which `{name}` more than once, but the model has ");
            assert!(error.starts_with(&wanted), "{model}: {error}");
        }
        let once = ask(1);
        // The encoder has not been fitted with `a`.
        assert!(once.status == 200 || model == "sklearn", "{model}: {}", once.text());
    }
}
