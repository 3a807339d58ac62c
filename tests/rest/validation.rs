//! The setting `validate_inputs`: requests are checked against the inputs that a model declares.

use futures_util::stream;
use serde_json::json;

use crate::support::grpc::{floats, infer_request, inference_client};
use crate::support::{Folder, TestServer};

/// Serves a model with one declared input, `x`.
fn serve(validate: bool) -> TestServer {
    let settings = json!({
        "name": "m",
        "implementation": "mlserver_identity.IdentityModel",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 2]}],
        "parameters": {"validate_inputs": validate},
    });
    TestServer::start(Folder::new().file("m/model-settings.json", settings.to_string()))
}

fn request(name: &str, shape: &[usize]) -> String {
    let data = vec![1.0; shape.iter().product()];
    json!({"inputs": [{"name": name, "datatype": "FP32", "shape": shape, "data": data}]}).to_string()
}

#[test]
fn validate_inputs_mismatch_answers_400() {
    let server = serve(true);
    for path in ["/v2/models/m/infer", "/v2/models/m/generate"] {
        assert_eq!(server.post(path, request("x", &[3, 2])).ok()["outputs"][0]["shape"], json!([3, 2]), "{path}");
        assert_eq!(
            server.post(path, request("x", &[2, 3])).error(400),
            "the input `x` has shape [2, 3]; the model takes [-1, 2], where -1 is any size",
            "{path}"
        );
        assert_eq!(server.post(path, request("z", &[3, 2])).error(400), "the model has no input `z`; it takes `x`");
    }
    let answer = server.post("/v2/models/m/infer_stream", request("x", &[2]));
    assert_eq!(answer.error(400), "the input `x` has shape [2]; the model takes [-1, 2], where -1 is any size");
    let metrics = server.scrape();
    assert!(metrics.text().contains(r#"model_infer_request_failure_total{model="m",version="None"} 5"#));
}

#[test]
fn validate_inputs_off_leaves_it_to_the_model() {
    let server = serve(false);
    assert_eq!(server.post("/v2/models/m/infer", request("z", &[3])).ok()["outputs"][0]["name"], "z");
}

#[tokio::test]
async fn validate_inputs_mismatch_ends_the_stream() {
    let server = serve(true);
    let mut client = inference_client(server.grpc).await;
    let good = infer_request("m", "FP32", &[1, 2], floats(&[1.0, 2.0]));
    let bad = infer_request("m", "FP32", &[2, 1], floats(&[1.0, 2.0]));

    let status = client.model_infer(bad.clone()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);

    let requests = stream::iter([good.clone(), good.clone(), bad, good]);
    let mut answers = client.model_stream_infer(requests).await.unwrap().into_inner();
    for _ in 0..2 {
        assert_eq!(answers.message().await.unwrap().unwrap().outputs[0].shape, [1, 2]);
    }
    let status = answers.message().await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert_eq!(status.message(), "the input `x` has shape [2, 1]; the model takes [-1, 2], where -1 is any size");
}
