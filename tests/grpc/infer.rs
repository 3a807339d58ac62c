//! `ModelInfer`.

use std::fmt::Write;

use mlserver::types::protobuf::messages::infer_parameter::ParameterChoice;
use mlserver::types::protobuf::messages::model_infer_request::InferRequestedOutputTensor;
use mlserver::types::protobuf::messages::{InferParameter, InferTensorContents, ModelInferRequest, ModelInferResponse};
use prost::Message;
use tonic::Code;

use crate::support::grpc::{Http2, floats, framed, infer_request, inference_client, ints, raw_request};
use crate::support::{Folder, IRIS, TestServer};

const INFER: &str = "/inference.GRPCInferenceService/ModelInfer";
const ROW: [f32; 4] = [6.2, 2.8, 4.8, 1.8];

#[tokio::test]
async fn infer_answer_matches_rest() {
    let server = TestServer::start(Folder::iris());
    let over_rest = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]}"#;
    let over_rest = server.post(&format!("/v2/models/{IRIS}/infer"), over_rest).ok();
    let class = over_rest["outputs"][0]["data"][0].as_i64().unwrap();

    let mut client = inference_client(server.grpc).await;
    for version in ["", "v1.0.0"] {
        let mut request = infer_request(IRIS, "FP32", &[1, 4], floats(&ROW));
        version.clone_into(&mut request.model_version);
        let answer = client.model_infer(request).await.unwrap().into_inner();
        assert_eq!(
            (answer.model_name.as_str(), answer.model_version.as_str(), answer.id.as_str()),
            (IRIS, "v1.0.0", "")
        );
        let output = &answer.outputs[0];
        assert_eq!(
            (output.name.as_str(), output.datatype.as_str(), &output.shape[..]),
            ("predict", "INT64", &[1, 1][..])
        );
        assert_eq!(output.contents.as_ref().unwrap().int64_contents, [class]);
        let content_type = output.parameters["content_type"].parameter_choice.clone();
        assert_eq!(content_type, Some(ParameterChoice::StringParam("np".to_owned())));
        assert!(answer.raw_output_contents.is_empty());
    }
    let raw = raw_request(IRIS, "FP32", &[1, 4], ROW.map(f32::to_le_bytes).concat());
    let answer = client.model_infer(raw).await.unwrap().into_inner();
    assert_eq!(answer.raw_output_contents, [class.to_le_bytes().to_vec()], "raw in, raw out");
    assert_eq!(answer.outputs[0].contents, Some(InferTensorContents::default()));
}

#[tokio::test]
async fn infer_large_tensors_round_trip() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let mut client = inference_client(server.grpc).await;
    let values: Vec<f32> = (0..60_000_u16).cycle().take(300_000).map(f32::from).collect();
    let raw: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let request = raw_request("echo", "FP32", &[1000, 300], raw.clone());
    let answer = client.model_infer(request).await.unwrap().into_inner();
    assert!(answer.raw_output_contents == [raw]);
    let request = infer_request("echo", "FP32", &[-1], floats(&values));
    let answer = client.model_infer(request).await.unwrap().into_inner();
    assert!(answer.outputs[0].contents.as_ref().unwrap().fp32_contents == values);
    // These have to be converted.
    let values: Vec<i32> = (-100_000..100_000).collect();
    let request = infer_request("echo", "INT32", &[-1], ints(&values));
    let answer = client.model_infer(request).await.unwrap().into_inner();
    assert!(answer.outputs[0].contents.as_ref().unwrap().int_contents == values);
    let strings: Vec<_> = (0..50_000).map(|number: u32| number.to_string().into()).collect();
    let contents = InferTensorContents { bytes_contents: strings.clone(), ..InferTensorContents::default() };
    let answer = client.model_infer(infer_request("echo", "BYTES", &[-1], contents)).await.unwrap().into_inner();
    assert!(answer.outputs[0].contents.as_ref().unwrap().bytes_contents == strings);
}

#[tokio::test]
async fn infer_parameters_and_requested_outputs_reach_the_model() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let mut client = inference_client(server.grpc).await;
    let choice = |choice| InferParameter { parameter_choice: Some(choice) };
    let parameters = [
        ("b", choice(ParameterChoice::BoolParam(true))),
        ("i", choice(ParameterChoice::Int64Param(-5))),
        ("s", choice(ParameterChoice::StringParam("é".to_owned()))),
        ("d", choice(ParameterChoice::DoubleParam(0.1))),
        ("u", choice(ParameterChoice::Uint64Param(u64::MAX))),
        ("none", InferParameter { parameter_choice: None }),
        ("headers", choice(ParameterChoice::StringParam("forged".to_owned()))),
    ];
    let mut request = infer_request("echo", "INT32", &[1], ints(&[1]));
    request.id = "my-id".to_owned();
    request.parameters = parameters.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    request.inputs[0].parameters = request.parameters.clone();
    let mut other = request.inputs[0].clone();
    "y".clone_into(&mut other.name);
    request.inputs.push(other);
    request.outputs = vec![InferRequestedOutputTensor { name: "y".to_owned(), ..Default::default() }];
    let answer = client.model_infer(request).await.unwrap().into_inner();
    assert_eq!((answer.id.as_str(), answer.outputs.len(), answer.outputs[0].name.as_str()), ("my-id", 1, "y"));
    assert_eq!(
        answer.parameters.keys().collect::<Vec<_>>(),
        ["b", "d", "i", "s", "u"],
        "null has no form, headers are ours"
    );
    assert_eq!(answer.outputs[0].parameters.keys().collect::<Vec<_>>(), ["b", "d", "headers", "i", "s", "u"]);
    assert_eq!(answer.parameters["d"].parameter_choice, Some(ParameterChoice::DoubleParam(0.1)));
}

#[tokio::test]
async fn infer_response_headers_become_trailers() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let connection = Http2::connect(server.grpc).await;
    let mut request = infer_request("echo", "INT32", &[1], ints(&[1]));
    request.id = "my-id".to_owned();
    let answer = connection.call(INFER, &[], &framed(0, &request.encode_to_vec())).await;
    assert_eq!((answer.status, answer.end()), (200, (0, String::new())));
    let ours: String =
        answer.headers.iter().filter(|(name, _)| *name != "date").fold(String::new(), |mut text, (name, value)| {
            writeln!(text, "{name}: {}", value.to_str().unwrap()).unwrap();
            text
        });
    let mut lines: Vec<_> = ours.lines().collect();
    lines.sort_unstable();
    let expected = [
        "ce-endpoint: echo",
        "ce-id: my-id",
        "ce-inferenceservicename: mlserver",
        "ce-modelid: echo",
        "ce-requestid: my-id",
        "ce-source: io.seldon.serving.deployment.mlserver",
        "ce-specversion: 0.3",
        "ce-type: io.seldon.serving.inference.response",
        "content-type: application/grpc",
        "grpc-status: 0",
    ];
    assert_eq!(lines, expected);
    let length = u32::from_be_bytes(answer.body[1..5].try_into().unwrap());
    assert_eq!((answer.body[0], usize::try_from(length).unwrap()), (0, answer.body.len() - 5));
    assert_eq!(ModelInferResponse::decode(&answer.body[5..]).unwrap().id, "my-id");

    let failed = connection.call(INFER, &[], &framed(0, &ModelInferRequest::default().encode_to_vec())).await;
    assert_eq!(failed.end(), (5, "Model  not found".to_owned()));
    assert!(failed.body.is_empty() && !failed.headers.keys().any(|name| name.as_str().starts_with("ce-")));
}

#[tokio::test]
async fn infer_bad_requests_have_distinct_status_codes() {
    let server = TestServer::start(Folder::iris());
    let mut client = inference_client(server.grpc).await;
    let mut version = infer_request(IRIS, "FP32", &[1, 4], floats(&ROW));
    "3".clone_into(&mut version.model_version);
    let mut output = infer_request(IRIS, "FP32", &[1, 4], floats(&ROW));
    output.outputs = vec![InferRequestedOutputTensor { name: "nope".to_owned(), ..Default::default() }];
    let invalid = Code::InvalidArgument;
    let table = [
        (infer_request("nope", "FP32", &[1, 4], floats(&ROW)), Code::NotFound, "Model nope not found"),
        (version, Code::NotFound, "Model iris-xgboost with version 3 not found"),
        (
            infer_request(IRIS, "INT99", &[1], ints(&[1])),
            invalid,
            "input `x`: unknown datatype `INT99`, expected one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64, BYTES",
        ),
        (
            infer_request(IRIS, "FP32", &[2, 3], floats(&ROW)),
            invalid,
            "tensor `x` of shape [2, 3] needs 6 elements, but 4 were given",
        ),
        (
            output,
            invalid,
            "XGBoostModel only supports 'predict', 'predict_proba', 'contributions', 'margin' and 'leaf' as outputs (nope was received)",
        ),
    ];
    for (request, code, message) in table {
        let status = client.model_infer(request).await.unwrap_err();
        assert_eq!((status.code(), status.message()), (code, message));
    }
}
