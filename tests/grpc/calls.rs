//! Every call except inference.

use mlserver::types::protobuf::messages::infer_parameter::ParameterChoice;
use mlserver::types::protobuf::messages::model_repository as old;
use mlserver::types::protobuf::messages::{
    ModelMetadataRequest, ModelMetadataResponse, ModelReadyRequest, RepositoryIndexRequest, RepositoryModelLoadRequest,
    RepositoryModelUnloadRequest, ServerLiveRequest, ServerMetadataRequest, ServerReadyRequest,
};
use serde_json::json;
use tonic::{Code, Status};

use crate::support::grpc::{RepositoryClient, channel, inference_client};
use crate::support::{Folder, IRIS, ServerBuilder, TestServer};

#[track_caller]
fn fails(result: Result<impl Sized, Status>, code: Code, message: &str) {
    let status = result.err().unwrap();
    assert_eq!((status.code(), status.message()), (code, message));
}

#[tokio::test]
async fn server_metadata_is_answered() {
    let folder = Folder::iris().settings(&json!({"server_name": "mine", "server_version": "7", "extensions": ["a"]}));
    let server = TestServer::start(folder);
    let mut client = inference_client(server.grpc).await;
    assert!(client.server_live(ServerLiveRequest {}).await.unwrap().into_inner().live);
    assert!(client.server_ready(ServerReadyRequest {}).await.unwrap().into_inner().ready);
    let metadata = client.server_metadata(ServerMetadataRequest {}).await.unwrap().into_inner();
    assert_eq!((metadata.name.as_str(), metadata.version.as_str()), ("mine", "7"));
    let over_rest = server.get("/v2").ok();
    assert_eq!(json!(metadata.extensions), over_rest["extensions"]);
}

#[tokio::test]
async fn model_metadata_is_answered() {
    let settings = json!({
        "name": "m", "implementation": "mlserver_identity.IdentityModel", "platform": "p", "versions": ["one"],
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4], "parameters": {"content_type": "np", "f": 1.5}}],
        "parameters": {"version": "v1", "content_type": "np"}
    });
    let server = TestServer::start(Folder::new().file("m/model-settings.json", settings.to_string()));
    let mut client = inference_client(server.grpc).await;
    let ask = |name: &str, version: &str| ModelMetadataRequest { name: name.to_owned(), version: version.to_owned() };
    for version in ["", "v1"] {
        let ModelMetadataResponse { name, versions, platform, inputs, outputs, parameters } =
            client.model_metadata(ask("m", version)).await.unwrap().into_inner();
        assert_eq!((name.as_str(), platform.as_str()), ("m", "p"));
        assert_eq!((versions, outputs), (vec!["one".to_owned()], Vec::new()));
        assert_eq!((inputs[0].name.as_str(), inputs[0].datatype.as_str()), ("x", "FP32"));
        assert_eq!(inputs[0].shape, [-1, 4]);
        assert_eq!(inputs[0].parameters.keys().collect::<Vec<_>>(), ["content_type", "f"]);
        let backend = parameters["backend"].parameter_choice.clone();
        assert_eq!(backend, Some(ParameterChoice::StringParam("native".to_owned())));
        assert!(parameters.contains_key("content_type"));
    }
    fails(client.model_metadata(ask("nope", "")).await, Code::NotFound, "Model nope not found");
    fails(client.model_metadata(ask("m", "3")).await, Code::NotFound, "Model m with version 3 not found");
}

#[tokio::test]
async fn readiness_matches_rest() {
    let folder = Folder::iris().with_iris("broken", &json!({"name": "broken", "parameters": {"uri": "nowhere"}}));
    let server = ServerBuilder::new(folder).env("MLSERVER_EXIT_ON_LOAD_FAILURE", "false").listen();
    server.wait_for_log("Couldn't load model 'broken'");
    server.wait_for_log("Loaded model 'iris-xgboost'");
    let mut client = inference_client(server.grpc).await;
    assert!(!client.server_ready(ServerReadyRequest {}).await.unwrap().into_inner().ready);
    for (name, expected) in [(IRIS, true), ("broken", false)] {
        let request = ModelReadyRequest { name: name.to_owned(), version: String::new() };
        assert_eq!(client.model_ready(request).await.unwrap().into_inner().ready, expected, "{name}");
    }
    let request = ModelReadyRequest { name: "nope".to_owned(), version: "1".to_owned() };
    fails(client.model_ready(request).await, Code::NotFound, "Model nope with version 1 not found");
}

#[tokio::test]
async fn repository_lists_loads_and_unloads_models() {
    let server = TestServer::start(Folder::iris().with_identity("echo"));
    let mut client = inference_client(server.grpc).await;
    let unload = |name: &str| RepositoryModelUnloadRequest { model_name: name.to_owned(), ..Default::default() };
    let load = |name: &str| RepositoryModelLoadRequest { model_name: name.to_owned(), ..Default::default() };
    client.repository_model_unload(unload("echo")).await.unwrap();
    fails(client.repository_model_unload(unload("echo")).await, Code::NotFound, "Model echo not found");

    let all = client.repository_index(RepositoryIndexRequest::default()).await.unwrap().into_inner().models;
    let lines: Vec<_> = all.iter().map(|line| [line.name.as_str(), &line.version, &line.state, &line.reason]).collect();
    assert_eq!(lines, [["echo", "", "UNAVAILABLE", ""], [IRIS, "v1.0.0", "READY", ""]]);
    let ready = RepositoryIndexRequest { ready: true, ..RepositoryIndexRequest::default() };
    let ready = client.repository_index(ready).await.unwrap().into_inner().models;
    assert_eq!(ready, all[1..]);

    client.repository_model_load(load("echo")).await.unwrap();
    fails(client.repository_model_load(load("nope")).await, Code::NotFound, "Model nope not found");
    std::fs::write(server.folder.path("echo/model-settings.json"), "{").unwrap();
    let status = client.repository_model_load(load("echo")).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    assert!(status.message().contains("echo/model-settings.json"), "{status:?}");
}

#[tokio::test]
async fn deprecated_repository_service_still_answers() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let mut client = RepositoryClient::new(channel(server.grpc).await);
    let unload = old::RepositoryModelUnloadRequest { model_name: "echo".to_owned(), ..Default::default() };
    client.repository_model_unload(unload.clone()).await.unwrap();
    fails(client.repository_model_unload(unload).await, Code::NotFound, "Model echo not found");
    let load = old::RepositoryModelLoadRequest { model_name: "echo".to_owned(), ..Default::default() };
    client.repository_model_load(load).await.unwrap();
    let lines = client.repository_index(old::RepositoryIndexRequest::default()).await.unwrap().into_inner().models;
    assert_eq!((lines[0].name.as_str(), lines[0].state.as_str()), ("echo", "READY"));
}
