//! `grpc.health.v1` and `grpc.reflection`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use mlserver::runtimes::RuntimeStatus;
use mlserver::settings::ModelSettings;
use mlserver::types::protobuf::messages::ModelReadyRequest;
use rustix::process::Signal;
use serde_json::json;
use tonic::{Code, Streaming};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::pb::{v1, v1alpha};

use crate::support::grpc::{channel, inference_client, unused_runtime};
use crate::support::{EmbeddedServer, Folder, IRIS, ServerBuilder, TestServer};

const INFERENCE: &str = "inference.GRPCInferenceService";
const REPOSITORY: &str = "inference.model_repository.ModelRepositoryService";

fn of(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

async fn next(watch: &mut Streaming<HealthCheckResponse>) -> ServingStatus {
    watch.message().await.unwrap().unwrap().status()
}

#[tokio::test]
async fn health_check_knows_server_services_and_models() {
    let folder = Folder::iris().with_iris("broken", &json!({"name": "broken", "parameters": {"uri": "nowhere"}}));
    let server = ServerBuilder::new(folder).env("MLSERVER_EXIT_ON_LOAD_FAILURE", "false").listen();
    server.wait_for_log("Couldn't load model 'broken'");
    server.wait_for_log("Loaded model 'iris-xgboost'");
    let mut client = HealthClient::new(channel(server.grpc).await);
    let expected = [
        ("", ServingStatus::NotServing),
        (INFERENCE, ServingStatus::NotServing),
        (REPOSITORY, ServingStatus::NotServing),
        ("broken", ServingStatus::NotServing),
        (IRIS, ServingStatus::Serving),
    ];
    for (service, status) in expected {
        assert_eq!(client.check(of(service)).await.unwrap().into_inner().status(), status, "{service}");
    }
    let unknown = client.check(of("nope")).await.unwrap_err();
    assert_eq!((unknown.code(), unknown.message()), (Code::NotFound, "no model or service is named `nope`"));
}

#[tokio::test]
async fn health_watch_reports_loads_and_unloads() {
    let server = TestServer::start(Folder::iris().with_identity("echo"));
    let mut client = HealthClient::new(channel(server.grpc).await);
    let mut whole = client.watch(of("")).await.unwrap().into_inner();
    let mut echo = client.watch(of("echo")).await.unwrap().into_inner();
    assert_eq!(next(&mut whole).await, ServingStatus::Serving);
    assert_eq!(next(&mut echo).await, ServingStatus::Serving);
    server.post("/v2/repository/models/echo/unload", "");
    assert_eq!(next(&mut echo).await, ServingStatus::ServiceUnknown);
    server.post("/v2/repository/models/echo/load", "");
    // The loading state is too short to be seen reliably.
    let mut status = next(&mut echo).await;
    if status == ServingStatus::NotServing {
        status = next(&mut echo).await;
    }
    assert_eq!(status, ServingStatus::Serving);

    server.signal(Signal::TERM);
    assert_eq!(next(&mut whole).await, ServingStatus::NotServing);
    assert_eq!(next(&mut echo).await, ServingStatus::NotServing);
    for mut watch in [whole, echo] {
        assert_eq!(watch.message().await.unwrap_err().code(), Code::Unavailable, "watchers hold up nothing");
    }
    assert_eq!(server.ended().code, Some(0));
}

#[tokio::test]
async fn health_watch_reports_model_ready() {
    let server = EmbeddedServer::serve(unused_runtime()).await;
    let registry = server.inference.registry().clone();
    let mut client = HealthClient::new(channel(server.grpc).await);
    let mut late = client.watch(of("late")).await.unwrap().into_inner();
    let mut whole = client.watch(of("")).await.unwrap().into_inner();
    assert_eq!(next(&mut late).await, ServingStatus::ServiceUnknown);
    assert_eq!(next(&mut whole).await, ServingStatus::Serving);
    let settings = ModelSettings::new("late", "tests.Model");
    registry.announce(&settings);
    assert_eq!(next(&mut late).await, ServingStatus::NotServing);
    assert_eq!(next(&mut whole).await, ServingStatus::NotServing);
    registry.load(settings).await.unwrap();
    assert_eq!(next(&mut late).await, ServingStatus::Serving);
    assert_eq!(next(&mut whole).await, ServingStatus::Serving);
}

#[tokio::test]
async fn health_watch_reports_models_that_become_unavailable_and_return() {
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    let runtime = unused_runtime().status(move || {
        let reason = || RuntimeStatus::Unavailable { reason: "the worker has died".to_owned() };
        if down.load(Ordering::SeqCst) { reason() } else { RuntimeStatus::AVAILABLE }
    });
    let server = EmbeddedServer::serve(runtime).await;
    let mut client = HealthClient::new(channel(server.grpc).await);
    let mut model = client.watch(of("m")).await.unwrap().into_inner();
    let mut whole = client.watch(of("")).await.unwrap().into_inner();
    for status in [ServingStatus::Serving, ServingStatus::NotServing, ServingStatus::Serving] {
        is_down.store(status == ServingStatus::NotServing, Ordering::SeqCst);
        assert_eq!(next(&mut model).await, status);
        assert_eq!(next(&mut whole).await, status);
    }
}

#[tokio::test]
async fn models_are_not_ready_during_shutdown() {
    let server = EmbeddedServer::serve(unused_runtime()).await;
    let mut client = inference_client(server.grpc).await;
    let ready = || ModelReadyRequest { name: "m".to_owned(), version: String::new() };
    assert!(client.model_ready(ready()).await.unwrap().into_inner().ready);
    server.inference.announce_shutdown();
    assert!(!client.model_ready(ready()).await.unwrap().into_inner().ready);
}

#[tokio::test]
async fn open_reflection_stream_does_not_delay_shutdown() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let channel = channel(server.grpc).await;
    let request = v1::server_reflection_request::MessageRequest::ListServices(String::new());
    let request = v1::ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel);
    let requests = stream::iter([request]).chain(stream::pending());
    let mut answers = client.server_reflection_info(requests).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().is_some());
    let stopping = Instant::now();
    server.signal(Signal::TERM);
    assert!(answers.message().await.unwrap().is_none());
    drop((client, answers));
    let ended = server.ended();
    assert!(ended.stdout.ends_with(" INFO - Stopped.\n"), "{}", ended.stdout);
    assert!(stopping.elapsed() < Duration::from_secs(15), "{:?}", stopping.elapsed());
}

#[tokio::test]
async fn reflection_lists_every_service_in_both_versions() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let channel = channel(server.grpc).await;

    let ask = |request| v1::ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let requests = [
        ask(v1::server_reflection_request::MessageRequest::ListServices(String::new())),
        ask(v1::server_reflection_request::MessageRequest::FileContainingSymbol(INFERENCE.to_owned())),
    ];
    let mut client = v1::server_reflection_client::ServerReflectionClient::new(channel.clone());
    let mut answers = client.server_reflection_info(stream::iter(requests)).await.unwrap().into_inner();
    let services = answers.message().await.unwrap().unwrap().message_response;
    let Some(v1::server_reflection_response::MessageResponse::ListServicesResponse(services)) = services else {
        unreachable!("{services:?}")
    };
    let mut names: Vec<_> = services.service.iter().map(|service| service.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", INFERENCE, REPOSITORY]);
    let file = answers.message().await.unwrap().unwrap().message_response;
    let Some(v1::server_reflection_response::MessageResponse::FileDescriptorResponse(file)) = file else {
        unreachable!("{file:?}")
    };
    assert!(!file.file_descriptor_proto[0].is_empty());

    let request = v1alpha::server_reflection_request::MessageRequest::ListServices(String::new());
    let request = v1alpha::ServerReflectionRequest { host: String::new(), message_request: Some(request) };
    let mut client = v1alpha::server_reflection_client::ServerReflectionClient::new(channel);
    let mut answers = client.server_reflection_info(stream::iter([request])).await.unwrap().into_inner();
    assert!(answers.message().await.unwrap().unwrap().message_response.is_some());
}
