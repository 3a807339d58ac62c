//! The response cache: hits, misses, coalescing, eviction and expiry.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt, stream};
use mlserver::compute::ComputePool;
use mlserver::inference::{Admission, CacheOptions, Inference, InferenceError, ResponseCache};
use mlserver::registry::Registry;
use mlserver::runtimes::RuntimeError;
use mlserver::settings::ModelSettings;
use mlserver::telemetry::inference::InferenceMetrics;
use mlserver::telemetry::metrics::{self, Registry as MetricsRegistry};
use mlserver::types::{InferenceRequest, InferenceResponse, RequestErrorKind, Tensor};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::support::grpc::{floats, infer_request, inference_client, raw_request};
use crate::support::{Answer, FnLoader, FnRuntime, Folder, TestServer};

/// Answers with its inputs once the gate opens, and fails if the first input is `fail`.
#[derive(Debug, Clone, Default)]
struct Counting {
    asked: Arc<AtomicUsize>,
    answered: Arc<AtomicUsize>,
    /// If there is one, requests wait for it.
    gate: Option<Arc<Notify>>,
    /// Cloned for as long as a request is in flight.
    alive: Arc<()>,
}

impl Counting {
    fn runtime(&self) -> FnRuntime {
        let state = self.clone();
        FnRuntime::new(move |request| {
            state.asked.fetch_add(1, Ordering::SeqCst);
            let Self { answered, gate, alive, .. } = state.clone();
            async move {
                if let Some(gate) = gate {
                    gate.notified().await;
                }
                drop(alive);
                answered.fetch_add(1, Ordering::SeqCst);
                if request.inputs.first().is_some_and(|input| input.name == "fail") {
                    return Err(RuntimeError::no_request());
                }
                let InferenceRequest { inputs: outputs, headers, .. } = request;
                Ok(InferenceResponse { outputs, headers, ..InferenceResponse::default() })
            }
        })
    }
}

struct Harness {
    model: Counting,
    inference: Inference,
    metrics: MetricsRegistry,
}

impl Harness {
    async fn new() -> Self {
        Self::with(Counting::default(), 100, 1 << 20, None).await
    }

    async fn gated() -> Self {
        let model = Counting { gate: Some(Arc::new(Notify::new())), ..Counting::default() };
        Self::with(model, 100, 1 << 20, None).await
    }

    /// Serves `m` and version 2 of `n`, which are cached, and `plain`, which is not.
    async fn with(model: Counting, entries: usize, max_bytes: usize, ttl: Option<Duration>) -> Self {
        let mut metrics = MetricsRegistry::default();
        let registry = Registry::new(FnLoader::fixed(model.runtime()), InferenceMetrics::register(&mut metrics));
        let (entries, max_bytes) = (NonZeroUsize::new(entries).unwrap(), NonZeroUsize::new(max_bytes).unwrap());
        let options = CacheOptions { entries, max_bytes, ttl };
        let cache = ResponseCache::new(options, ComputePool::for_this_machine(), &mut metrics);
        for (name, version, cached) in [("m", None, true), ("n", Some("2"), true), ("plain", None, false)] {
            let mut settings = ModelSettings::new(name, "tests.Model");
            settings.parameters.version = version.map(str::to_owned);
            settings.cache_enabled = cached;
            registry.load(settings).await.unwrap();
        }
        let inference = Inference::new(registry, NonZeroUsize::new(100).unwrap()).with_cache(cache);
        Self { model, inference, metrics }
    }

    async fn ask(&self, name: &str, request: InferenceRequest) -> Result<InferenceResponse, InferenceError> {
        let target = self.inference.target(name, None).unwrap();
        self.inference.infer(&target, request, &mut Admission::new()).await
    }

    fn asked(&self) -> usize {
        self.model.asked.load(Ordering::SeqCst)
    }

    fn metric(&self, name: &str) -> usize {
        let text = metrics::text(&self.metrics).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| unreachable!("{text}"));
        line.trim().parse().unwrap()
    }
}

fn request(id: &str, input: &str, bytes: usize) -> InferenceRequest {
    let input = Tensor::from_elements(input, vec![bytes], &vec![1_u8; bytes]).unwrap();
    InferenceRequest { id: id.to_owned(), inputs: vec![input], ..InferenceRequest::default() }
}

#[tokio::test]
async fn cache_miss_reports_its_prediction_time() {
    let harness = Harness::gated().await;
    let inference = harness.inference.clone().with_server_timing(true);
    let target = inference.target("m", None).unwrap();
    let gate = Arc::clone(harness.model.gate.as_ref().unwrap());
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(60)).await;
        gate.notify_one();
    });
    let mut timings = Vec::new();
    for id in ["a", "b"] {
        let response = inference.infer(&target, request(id, "x", 8), &mut Admission::new()).await.unwrap();
        let timing = response.headers["server-timing"].to_str().unwrap().to_owned();
        let (_, predict) = timing.split_once("predict;dur=").unwrap();
        timings.push(predict.split_once(',').unwrap().0.parse::<f64>().unwrap());
    }
    assert!(timings[0] >= 50.0 && timings[1] < 50.0, "{timings:?}");
}

#[tokio::test]
async fn cache_hit_uses_the_request_id() {
    let harness = Harness::new().await;
    let first = harness.ask("m", request("a", "x", 3)).await.unwrap();
    let mut other = request("b", "x", 3);
    other.headers.insert("x-client", "another".parse().unwrap());
    let again = harness.ask("m", other).await.unwrap();
    assert_eq!((first.id.as_str(), again.id.as_str(), again.model_name.as_str()), ("a", "b", "m"));
    assert_eq!((harness.asked(), first.outputs), (1, again.outputs));
    // Another model, other data, another name or other parameters make another key.
    let again = harness.ask("n", request("a", "x", 3)).await.unwrap();
    assert_eq!((again.model_name.as_str(), again.model_version.as_deref()), ("n", Some("2")));
    harness.ask("m", request("a", "x", 4)).await.unwrap();
    harness.ask("m", request("a", "y", 3)).await.unwrap();
    let mut other = request("a", "x", 3);
    other.parameters.others.insert("temperature".to_owned(), json!(0.5));
    harness.ask("m", other).await.unwrap();
    assert_eq!(harness.asked(), 5);
    // Naming the default version gives the same model.
    let target = harness.inference.target("n", Some("2")).unwrap();
    harness.inference.infer(&target, request("a", "x", 3), &mut Admission::new()).await.unwrap();
    assert_eq!(harness.asked(), 5);
    let of = |kind: &str, labels: &str| harness.metric(&format!("model_infer_cache_{kind}_total{{{labels}}}"));
    assert_eq!((of("hits", r#"model="m",version="None""#), of("misses", r#"model="m",version="None""#)), (1, 4));
    assert_eq!((of("hits", r#"model="n",version="2""#), of("misses", r#"model="n",version="None""#)), (1, 1));
    assert_eq!(harness.metric("response_cache_entries"), 5);
}

#[tokio::test]
async fn cached_response_has_no_headers_of_another_caller() {
    let harness = Harness::new().await;
    let mut first = request("a", "x", 3);
    first.headers.insert("x-client", "secret".parse().unwrap());
    assert!(!harness.ask("plain", first.clone()).await.unwrap().headers.is_empty());
    harness.ask("m", first).await.unwrap();
    let hit = harness.ask("m", request("b", "x", 3)).await.unwrap();
    assert_eq!((harness.asked(), hit.headers.len()), (2, 0));
}

#[tokio::test]
async fn cached_response_is_for_callers_with_the_same_credentials() {
    let harness = Harness::new().await;
    let with = |token: &str| {
        let mut request = request("a", "x", 3);
        request.headers.insert("authorization", token.parse().unwrap());
        request
    };
    for (token, asked) in [("Bearer one", 1), ("Bearer two", 2), ("Bearer one", 2)] {
        harness.ask("m", with(token)).await.unwrap();
        assert_eq!(harness.asked(), asked, "{token}");
    }
    harness.ask("m", request("a", "x", 3)).await.unwrap();
    assert_eq!(harness.asked(), 3, "without credentials");
}

#[tokio::test]
async fn cache_skips_streams_and_models_without_it() {
    let harness = Harness::new().await;
    for _ in 0..2 {
        harness.ask("plain", request("a", "x", 3)).await.unwrap();
    }
    assert_eq!(harness.asked(), 2);
    let target = harness.inference.target("m", None).unwrap();
    for _ in 0..2 {
        let requests = stream::iter([request("a", "x", 3)]);
        let answers = harness.inference.infer_stream(&target, "a".to_owned(), requests, Admission::new()).unwrap();
        assert_eq!(answers.collect::<Vec<_>>().await.len(), 1);
    }
    assert_eq!((harness.asked(), harness.metric("response_cache_entries")), (4, 0));
}

#[tokio::test]
async fn cache_coalesces_concurrent_identical_requests() {
    let harness = Harness::gated().await;
    let calls = (0..20).map(|number| harness.ask("m", request(&number.to_string(), "x", 3)));
    let mut calls = Box::pin(join_all(calls));
    assert!(calls.as_mut().now_or_never().is_none());
    assert_eq!(harness.asked(), 1);
    harness.model.gate.as_ref().unwrap().notify_one();
    for (number, answer) in calls.await.into_iter().enumerate() {
        assert_eq!(answer.unwrap().id, number.to_string());
    }
    assert_eq!(harness.asked(), 1);
}

#[tokio::test]
async fn cache_disconnect_does_not_cancel_coalesced_requests() {
    let harness = Harness::gated().await;
    let idle = Arc::strong_count(&harness.model.alive);
    let mut first = Box::pin(harness.ask("m", request("first", "x", 3)));
    assert!(first.as_mut().now_or_never().is_none());
    let mut second = Box::pin(harness.ask("m", request("second", "x", 3)));
    assert!(second.as_mut().now_or_never().is_none());
    drop(first);
    harness.model.gate.as_ref().unwrap().notify_one();
    assert_eq!(second.await.unwrap().id, "second");
    assert_eq!((harness.asked(), harness.model.answered.load(Ordering::SeqCst)), (1, 1));

    // When the last one disconnects, the prediction is cancelled.
    let callers: Vec<_> = (0..3)
        .map(|_| {
            let mut caller = Box::pin(harness.ask("m", request("", "y", 3)));
            assert!(caller.as_mut().now_or_never().is_none());
            caller
        })
        .collect();
    assert_eq!((harness.asked(), Arc::strong_count(&harness.model.alive)), (2, idle + 1));
    drop(callers);
    assert_eq!(Arc::strong_count(&harness.model.alive), idle);
    let mut next = Box::pin(harness.ask("m", request("next", "y", 3)));
    assert!(next.as_mut().now_or_never().is_none());
    assert_eq!(harness.asked(), 3);
    harness.model.gate.as_ref().unwrap().notify_one();
    assert_eq!(next.await.unwrap().id, "next");
}

#[tokio::test]
async fn cache_error_reaches_coalesced_requests_and_is_not_cached() {
    let harness = Harness::gated().await;
    let mut calls = Box::pin(join_all((0..3).map(|_| harness.ask("m", request("a", "fail", 3)))));
    assert!(calls.as_mut().now_or_never().is_none());
    harness.model.gate.as_ref().unwrap().notify_one();
    for answer in calls.await {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), RequestErrorKind::BadRequest);
        assert_eq!(error.to_string(), "the stream of requests is empty: expected at least one");
    }
    assert_eq!(harness.asked(), 1);
    harness.model.gate.as_ref().unwrap().notify_one();
    harness.ask("m", request("a", "fail", 3)).await.unwrap_err();
    assert_eq!((harness.asked(), harness.metric("response_cache_entries")), (2, 0));
}

#[tokio::test]
async fn cache_evicts_least_recently_used() {
    let harness = Harness::with(Counting::default(), 3, 1 << 20, None).await;
    for input in ["a", "b", "c", "a", "d"] {
        harness.ask("m", request("", input, 3)).await.unwrap();
    }
    assert_eq!((harness.asked(), harness.metric("response_cache_entries")), (4, 3));
    for input in ["a", "c", "d"] {
        harness.ask("m", request("", input, 3)).await.unwrap();
    }
    assert_eq!(harness.asked(), 4);
    harness.ask("m", request("", "b", 3)).await.unwrap();
    assert_eq!(harness.asked(), 5);
}

#[tokio::test]
async fn cache_memory_is_limited() {
    let harness = Harness::with(Counting::default(), 100, 100_000, None).await;
    for number in 0..50 {
        harness.ask("m", request("", &format!("x{number}"), 9_000)).await.unwrap();
        assert!(harness.metric("response_cache_bytes") <= 100_000);
    }
    let entries = harness.metric("response_cache_entries");
    assert!((9..=11).contains(&entries), "{entries}");
    // A response that is larger than the cache is answered, but neither cached nor a reason to evict.
    let answer = harness.ask("m", request("", "large", 200_000)).await.unwrap();
    assert_eq!((answer.outputs[0].byte_len(), harness.metric("response_cache_entries")), (200_000, entries));
    // Long inputs are hashed on another thread.
    let asked = harness.asked();
    for _ in 0..2 {
        harness.ask("m", request("", "larger", 2_000_000)).await.unwrap();
    }
    assert_eq!(harness.asked(), asked + 2);
}

#[tokio::test]
async fn cache_entry_expires() {
    let harness = Harness::with(Counting::default(), 100, 1 << 20, Some(Duration::from_millis(20))).await;
    harness.ask("m", request("", "x", 3)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(30)).await;
    harness.ask("m", request("", "x", 3)).await.unwrap();
    assert_eq!(harness.asked(), 2);
}

#[tokio::test]
async fn cache_reload_clears_the_entries() {
    let harness = Harness::new().await;
    harness.ask("m", request("", "x", 3)).await.unwrap();
    let mut settings = ModelSettings::new("m", "tests.Model");
    settings.cache_enabled = true;
    harness.inference.registry().load(settings).await.unwrap();
    for _ in 0..2 {
        harness.ask("m", request("", "x", 3)).await.unwrap();
    }
    assert_eq!(harness.asked(), 2);
}

// -------------------------------------------------------------------------------------------------- by settings

fn infer(server: &TestServer, name: &str, id: &str) -> Answer {
    let input = json!({"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]});
    server.post(&format!("/v2/models/{name}/infer"), json!({"id": id, "inputs": [input]}).to_string())
}

fn series(server: &TestServer) -> Vec<String> {
    let text = server.scrape().text().to_owned();
    text.lines().filter(|line| line.contains("_cache_") && !line.starts_with('#')).map(str::to_owned).collect()
}

#[test]
fn cache_needs_server_and_model_setting() {
    let model = |cached: bool| {
        json!({"implementation": "mlserver_identity.IdentityModel", "cache_enabled": cached}).to_string()
    };
    let folder = |server: Value| {
        Folder::new()
            .file("a/model-settings.json", model(true))
            .file("b/model-settings.json", model(true))
            .file("c/model-settings.json", model(false))
            .settings(&server)
    };
    let server = TestServer::start(folder(json!({"cache_enabled": true})));
    for (name, id) in [("a", "1"), ("a", "2"), ("b", "3"), ("c", "4"), ("c", "5")] {
        let answer = infer(&server, name, id);
        let body = answer.ok();
        assert_eq!((&body["model_name"], &body["id"]), (&json!(name), &json!(id)));
        assert_eq!((answer.header("ce-modelid"), answer.header("ce-id")), (name, id));
        assert_eq!(body["outputs"][0]["data"], json!([1.0, 2.0]));
    }
    let mut series = series(&server);
    series.retain(|line| !line.starts_with("response_cache_bytes"));
    series.sort();
    let expected = [
        r#"model_infer_cache_hits_total{model="a",version="None"} 1"#,
        r#"model_infer_cache_hits_total{model="b",version="None"} 0"#,
        r#"model_infer_cache_misses_total{model="a",version="None"} 1"#,
        r#"model_infer_cache_misses_total{model="b",version="None"} 1"#,
        "response_cache_entries 2",
    ];
    assert_eq!(series, expected);

    for settings in [json!({}), json!({"cache_enabled": true, "cache_size": 0})] {
        let server = TestServer::start(folder(settings));
        infer(&server, "a", "1").ok();
        infer(&server, "a", "2").ok();
        assert!(!server.scrape().text().contains("response_cache_entries"));
    }
}

#[tokio::test]
async fn cache_is_shared_by_transports() {
    let model = json!({"implementation": "mlserver_identity.IdentityModel", "cache_enabled": true}).to_string();
    let folder = Folder::new().file("a/model-settings.json", model).settings(&json!({"cache_enabled": true}));
    let server = TestServer::start(folder);
    infer(&server, "a", "1").ok();
    let mut client = inference_client(server.grpc).await;
    let numbers = [1.0_f32, 2.0];
    let mut typed = infer_request("a", "FP32", &[2], floats(&numbers));
    "2".clone_into(&mut typed.id);
    let raw = raw_request("a", "FP32", &[2], numbers.map(f32::to_le_bytes).concat());
    for request in [typed, raw] {
        let (id, is_raw) = (request.id.clone(), !request.raw_input_contents.is_empty());
        let answer = client.model_infer(request).await.unwrap().into_inner();
        assert_eq!((answer.id, answer.raw_output_contents.len()), (id, usize::from(is_raw)), "in its own form");
        let expected: &[f32] = if is_raw { &[] } else { &numbers };
        assert_eq!(answer.outputs[0].contents.as_ref().unwrap().fp32_contents, expected);
    }
    let counts = series(&server);
    for line in ["hits_total{model=\"a\",version=\"None\"} 2", "misses_total{model=\"a\",version=\"None\"} 1"] {
        assert!(counts.contains(&format!("model_infer_cache_{line}")), "{counts:?}");
    }
}
