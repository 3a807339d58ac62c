//! The metrics server: names, labels, and exact counts.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, stream};
use mlserver::types::protobuf::messages::{ModelInferRequest, ServerLiveRequest, model_repository as old};
use prost::Message;
use serde_json::{Value, json};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::grpc::{Http2, RepositoryClient, channel, framed, infer_request, inference_client, ints};
use crate::support::{Client, Folder, ServerBuilder, TestServer, eventually};

const INFER: &str = "/v2/models/iris-xgboost/infer";
const ONE_ROW: &str = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]}"#;

/// The metrics of a scrape, parsed strictly: anything but the classic Prometheus text format fails.
#[derive(Debug, Default)]
struct Scrape {
    /// Type by family.
    types: BTreeMap<String, String>,
    helps: BTreeMap<String, String>,
    samples: BTreeMap<Sample, f64>,
}

/// A name and its labels, sorted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
}

impl Scrape {
    fn of(server: &TestServer) -> Self {
        let answer = server.scrape();
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("content-type"), "text/plain; version=1.0.0; charset=utf-8");
        Self::parse(answer.text())
    }

    fn parse(text: &str) -> Self {
        let mut scrape = Self::default();
        let mut family = String::new();
        assert!(text.ends_with('\n'));
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(scrape.helps.insert(name.to_owned(), help.to_owned()).is_none(), "{name} is repeated");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(["counter", "gauge", "histogram", "summary"].contains(&kind), "{line}");
                assert!(scrape.types.insert(name.to_owned(), kind.to_owned()).is_none(), "{name} is typed twice");
                assert!(scrape.helps.contains_key(name), "{name} has no help");
                name.clone_into(&mut family);
            } else {
                let (sample, value) = parse_sample(line);
                let suffixes: &[&str] = match scrape.types[&family].as_str() {
                    "histogram" => &["_bucket", "_sum", "_count"],
                    "summary" => &["_sum", "_count"],
                    _ => &[""],
                };
                assert!(
                    suffixes.iter().any(|suffix| sample.name == format!("{family}{suffix}")),
                    "{line} is not of {family}"
                );
                assert!(scrape.samples.insert(sample, value).is_none(), "{line} comes twice");
            }
        }
        scrape.check_histograms();
        scrape
    }

    /// Checks that buckets increase, that there is a bucket without a bound, and that it equals the count.
    fn check_histograms(&self) {
        for (family, _) in self.types.iter().filter(|(_, kind)| *kind == "histogram") {
            let mut series: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
            for (sample, value) in self.samples.iter().filter(|(sample, _)| sample.name == format!("{family}_bucket")) {
                let mut labels = sample.labels.clone();
                let bound = labels.remove("le").unwrap();
                series.entry(labels).or_default().push((bound.replace("+Inf", "inf").parse().unwrap(), *value));
            }
            for (labels, mut buckets) in series {
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(buckets.is_sorted_by(|a, b| a.1 <= b.1), "{family} {labels:?} {buckets:?}");
                let (bound, last) = buckets.last().unwrap();
                assert!(bound.is_infinite());
                let count = &self.samples[&Sample { name: format!("{family}_count"), labels }];
                assert!((count - last).abs() < 0.5);
            }
        }
    }

    /// Returns a sample's value, or `None` if there is no such sample.
    fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        self.samples.get(&Sample { name: name.to_owned(), labels }).copied()
    }

    #[track_caller]
    fn count(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let value = self.get(name, labels).unwrap_or_else(|| unreachable!("no {name} {labels:?} in {self:#?}"));
        assert!(value >= 0.0 && value.fract() == 0.0);
        format!("{value}").parse().unwrap()
    }

    /// Returns the label sets of a name, each as `name=value` in order.
    fn label_sets(&self, name: &str) -> BTreeSet<String> {
        let of_name = self.samples.keys().filter(|sample| sample.name == name);
        of_name
            .map(|sample| {
                sample.labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
            })
            .collect()
    }
}

fn parse_sample(line: &str) -> (Sample, f64) {
    let legal = |name: &str| {
        !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
            && !name.starts_with(|c: char| c.is_ascii_digit())
    };
    let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
    assert!(legal(name), "{line}");
    let mut labels = BTreeMap::new();
    let mut rest = rest;
    if let Some(mut inside) = rest.strip_prefix('{') {
        loop {
            let (label, after) = inside.split_once("=\"").unwrap();
            assert!(legal(label), "{line}");
            let (value, after) = quoted(after);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            if let Some(after) = after.strip_prefix('}') {
                rest = after;
                break;
            }
            inside = after.strip_prefix(',').unwrap();
        }
    }
    let value = rest.strip_prefix(' ').unwrap().parse().unwrap();
    (Sample { name: name.to_owned(), labels }, value)
}

/// Reads up to the closing quote and returns the remaining text.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((index, character)) = characters.next() {
        match character {
            '"' => return (value, &text[index + 1..]),
            '\\' => value.push(match characters.next().unwrap().1 {
                'n' => '\n',
                escaped => escaped,
            }),
            other => value.push(other),
        }
    }
    unreachable!("no closing quote in {text}")
}

const NO_VERSION: [(&str, &str); 2] = [("model", "iris-xgboost"), ("version", "None")];
const WITH_VERSION: [(&str, &str); 2] = [("model", "iris-xgboost"), ("version", "v1.0.0")];
const UNKNOWN: [(&str, &str); 2] = [("model", "<unknown>"), ("version", "None")];

/// The labels of REST metrics.
fn route<'a>(method: &'a str, path: &'a str, status: &'a str) -> [(&'a str, &'a str); 4] {
    [("app_name", "mlserver"), ("method", method), ("path", path), ("status_code", status)]
}

/// The labels of a gRPC call.
fn rpc<'a>(kind: &'a str, service: &'a str, method: &'a str) -> [(&'a str, &'a str); 3] {
    [("grpc_type", kind), ("grpc_service", service), ("grpc_method", method)]
}

/// The labels of a gRPC call that has ended.
fn ended<'a>(call: [(&'a str, &'a str); 3], code: &'a str) -> [(&'a str, &'a str); 4] {
    [call[0], call[1], call[2], ("grpc_code", code)]
}

const INFERENCE: &str = "inference.GRPCInferenceService";

fn numbered(number: i32) -> ModelInferRequest {
    infer_request("echo", "INT32", &[1], ints(&[number]))
}

#[tokio::test]
async fn metrics_count_grpc_calls() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let mut client = inference_client(server.grpc).await;
    for number in 0..5 {
        client.model_infer(numbered(number)).await.unwrap();
    }
    for _ in 0..3 {
        client.model_infer(infer_request("nope", "INT32", &[1], ints(&[1]))).await.unwrap_err();
    }
    for _ in 0..2 {
        client.model_infer(infer_request("echo", "INT32", &[2], ints(&[1]))).await.unwrap_err();
    }
    client.server_live(ServerLiveRequest {}).await.unwrap();
    let old = old::RepositoryIndexRequest::default();
    RepositoryClient::new(channel(server.grpc).await).repository_index(old).await.unwrap();
    HealthClient::new(channel(server.grpc).await).check(HealthCheckRequest::default()).await.unwrap();

    let scrape = Scrape::of(&server);
    let [started, handled, seconds] =
        ["grpc_server_started_total", "grpc_server_handled_total", "grpc_server_handling_seconds_count"];
    let infer = rpc("UNARY", INFERENCE, "ModelInfer");
    assert_eq!((scrape.count(started, &infer), scrape.count(seconds, &infer)), (10, 10));
    for (code, count) in [("OK", 5), ("NOT_FOUND", 3), ("INVALID_ARGUMENT", 2)] {
        assert_eq!(scrape.count(handled, &ended(infer, code)), count, "{code}");
    }
    assert!(scrape.get("grpc_server_handling_seconds_sum", &infer).unwrap() > 0.0);
    for call in [
        rpc("UNARY", INFERENCE, "ServerLive"),
        rpc("UNARY", "inference.model_repository.ModelRepositoryService", "RepositoryIndex"),
        rpc("UNARY", "grpc.health.v1.Health", "Check"),
    ] {
        let found =
            (scrape.count(started, &call), scrape.count(handled, &ended(call, "OK")), scrape.count(seconds, &call));
        assert_eq!(found, (1, 1, 1), "{call:?}");
    }
    let echo = [("model", "echo"), ("version", "None")];
    assert_eq!(scrape.count("model_infer_request_success_total", &echo), 5);
    assert_eq!(scrape.count("model_infer_request_failure_total", &UNKNOWN), 3);
    for name in ["grpc_server_msg_received_total", "grpc_server_msg_sent_total"] {
        assert_eq!(scrape.label_sets(name), BTreeSet::new(), "single messages are not counted");
    }
}

#[tokio::test]
async fn metrics_count_grpc_streams_and_messages() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let mut client = inference_client(server.grpc).await;
    let call = rpc("BIDI_STREAMING", INFERENCE, "ModelStreamInfer");
    let messages =
        |scrape: &Scrape| ["received", "sent"].map(|way| scrape.count(&format!("grpc_server_msg_{way}_total"), &call));
    let mut exchange = async |requests: Vec<ModelInferRequest>| {
        let mut answers = client.model_stream_infer(stream::iter(requests)).await.unwrap().into_inner();
        while let Ok(Some(_)) = answers.message().await {}
    };
    exchange((0..4).map(numbered).collect()).await;
    assert_eq!(messages(&Scrape::of(&server)), [4, 4]);
    // The second request is invalid; the first one has been answered.
    exchange(vec![numbered(0), infer_request("echo", "INT32", &[2], ints(&[1]))]).await;
    assert_eq!(messages(&Scrape::of(&server)), [6, 5]);
    exchange(vec![]).await;

    // A client that disconnects early: its connection closes with its async runtime.
    let address = server.grpc;
    let leaving = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let requests = stream::iter([numbered(1)]).chain(stream::pending());
            let mut answers = inference_client(address).await.model_stream_infer(requests).await.unwrap().into_inner();
            answers.message().await.unwrap().unwrap();
        });
    });
    leaving.join().unwrap();
    let is_told = || Scrape::of(&server).get("grpc_server_handled_total", &ended(call, "CANCELLED")).is_some();
    eventually("the server sees that the client has left", is_told).await;
    let scrape = Scrape::of(&server);
    assert_eq!(messages(&scrape), [7, 6]);
    assert_eq!(scrape.count("grpc_server_started_total", &call), 4);
    assert_eq!(scrape.count("grpc_server_handling_seconds_count", &call), 4);
    for (code, count) in [("OK", 1), ("INVALID_ARGUMENT", 2), ("CANCELLED", 1)] {
        assert_eq!(scrape.count("grpc_server_handled_total", &ended(call, code)), count, "{code}");
    }
}

#[tokio::test]
async fn metrics_unknown_grpc_names_add_no_labels() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let connection = Http2::connect(server.grpc).await;
    for index in 0..20 {
        connection.call(&format!("/inference.GRPCInferenceService/Nope{index}"), &[], b"").await;
        connection.call(&format!("/nope{index}/ModelInfer"), &[], b"").await;
        let request = infer_request(&format!("nope{index}"), "INT32", &[1], ints(&[1])).encode_to_vec();
        connection.call("/inference.GRPCInferenceService/ModelInfer", &[], &framed(0, &request)).await;
    }
    let scrape = Scrape::of(&server);
    assert_eq!(scrape.label_sets("grpc_server_started_total").len(), 1, "{scrape:#?}");
    assert_eq!(scrape.count("model_infer_request_failure_total", &UNKNOWN), 20);
    assert_eq!(scrape.label_sets("model_infer_request_failure_total").len(), 2, "{scrape:#?}");
}

#[tokio::test]
async fn metrics_names_types_and_help_match_the_original() {
    let server = TestServer::start(Folder::iris().with_identity("echo"));
    server.post(INFER, ONE_ROW).ok();
    let mut answers =
        inference_client(server.grpc).await.model_stream_infer(stream::iter([numbered(1)])).await.unwrap().into_inner();
    while answers.message().await.unwrap().is_some() {}
    let scrape = Scrape::of(&server);
    let families: Vec<_> =
        scrape.types.iter().map(|(name, kind)| format!("{name} {kind}: {}", scrape.helps[name])).collect();
    insta::assert_snapshot!(families.join("\n"), @r"
    accept_errors_total counter: Connections that could not be accepted
    connections_open gauge: Open connections of all listeners
    grpc_server_handled_total counter: Total number of RPCs completed on the server, regardless of success or failure.
    grpc_server_handling_seconds histogram: Histogram of response latency (seconds) of gRPC that had been application-level handled by the server.
    grpc_server_msg_received_total counter: Total number of RPC stream messages received on the server.
    grpc_server_msg_sent_total counter: Total number of gRPC stream messages sent by the server.
    grpc_server_started_total counter: Total number of RPCs started on the server.
    log_lines_dropped_total counter: Log lines dropped because their reader was stuck or too slow
    model_infer_in_flight gauge: Requests in flight
    model_infer_predict_seconds histogram: Duration of predictions, in seconds
    model_infer_queue_seconds histogram: Time from admission to the start of the prediction, in seconds
    model_infer_request_duration summary: Model infer request duration
    model_infer_request_duration_seconds histogram: Time from admission to the response of the model, in seconds
    model_infer_request_failure_total counter: Model infer request failure count
    model_infer_request_success_total counter: Model infer request success count
    model_infer_waiting gauge: Requests that wait for their prediction
    parallel_request_queue histogram: counter of request queue size for workers
    request_bytes_in_flight gauge: Memory of requests in flight and their responses
    request_bytes_limit gauge: Limit on the memory of requests in flight and their responses
    rest_server_request_duration_seconds histogram: HTTP request duration, in seconds
    rest_server_requests_in_progress gauge: Total HTTP requests currently in progress
    rest_server_requests_total counter: Total HTTP requests
    ");
}

#[test]
fn metrics_counts_are_exact() {
    let server = TestServer::start(Folder::iris());
    for _ in 0..7 {
        server.post(INFER, ONE_ROW).ok();
    }
    for _ in 0..3 {
        server.post("/v2/models/iris-xgboost/versions/v1.0.0/infer", ONE_ROW).ok();
    }
    server.post(&format!("{INFER}?model_version=v1.0.0"), ONE_ROW).ok();
    // A rejection by the model counts as a failed inference, an earlier rejection only as a request.
    for _ in 0..2 {
        server.post(INFER, ONE_ROW.replace("[1,4]", "[4,1]")).error(400);
    }
    server.post(INFER, "{").error(422);
    server.post("/v2/models/nope/infer", ONE_ROW).error(404);
    server.get("/v2").ok();

    let scrape = Scrape::of(&server);
    let [success, failure] = ["model_infer_request_success_total", "model_infer_request_failure_total"];
    let duration = "model_infer_request_duration_count";
    let latency = "model_infer_request_duration_seconds_count";
    assert_eq!(scrape.count(success, &NO_VERSION), 7);
    assert_eq!(scrape.count(success, &WITH_VERSION), 4);
    assert_eq!(scrape.count(failure, &NO_VERSION), 2);
    assert_eq!(scrape.count(failure, &WITH_VERSION), 0);
    for name in [duration, latency] {
        assert_eq!(scrape.count(name, &NO_VERSION), 9);
        assert_eq!(scrape.count(name, &WITH_VERSION), 4);
    }
    assert!(scrape.get("model_infer_request_duration_sum", &NO_VERSION).unwrap() > 0.0);

    let [infer, versioned] =
        ["/v2/models/{model_name}/infer", "/v2/models/{model_name}/versions/{model_version}/infer"];
    for name in ["rest_server_requests_total", "rest_server_request_duration_seconds_count"] {
        assert_eq!(scrape.count(name, &route("POST", infer, "200")), 8);
        assert_eq!(scrape.count(name, &route("POST", infer, "400")), 2);
        assert_eq!(scrape.count(name, &route("POST", infer, "422")), 1);
        assert_eq!(scrape.count(name, &route("POST", infer, "404")), 1);
        assert_eq!(scrape.count(name, &route("POST", versioned, "200")), 3);
        assert_eq!(scrape.count(name, &route("GET", "/v2", "200")), 1);
    }
}

#[test]
fn metrics_unknown_paths_add_no_labels() {
    let server = TestServer::start(Folder::iris());
    for index in 0..20 {
        server.post(&format!("/v2/models/nope{index}/infer"), ONE_ROW).error(404);
        server.post(&format!("/v2/models/iris-xgboost/versions/{index}/infer"), ONE_ROW).error(404);
        server.get(&format!("/nothing/{index}")).error(404);
        server.request(&http::Method::from_bytes(format!("M{index}").as_bytes()).unwrap(), "/v2", &[], b"").error(405);
    }
    let scrape = Scrape::of(&server);
    assert_eq!(scrape.count("model_infer_request_failure_total", &UNKNOWN), 40);
    let sets = scrape.label_sets("model_infer_request_failure_total");
    let expected =
        ["model=<unknown> version=None", "model=iris-xgboost version=None", "model=iris-xgboost version=v1.0.0"];
    assert_eq!(sets.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    // Two routes, and none for unknown paths or methods.
    assert_eq!(scrape.label_sets("rest_server_requests_total").len(), 2, "{scrape:#?}");
    assert!(scrape.label_sets("rest_server_requests_in_progress").len() <= 2, "{scrape:#?}");
}

#[test]
fn metrics_skip_health_routes_and_redirects() {
    let server = TestServer::start(Folder::iris());
    server.get("/v2/health/live").ok();
    server.get("/v2/health/ready").ok();
    assert_eq!(server.get("/v2/").status, 307);
    let _ = server.scrape();
    assert_eq!(Scrape::of(&server).label_sets("rest_server_requests_total"), BTreeSet::new());
}

#[test]
fn metrics_gauge_requests_in_progress() {
    let server = TestServer::start(Folder::iris());
    let in_progress = |scrape: &Scrape| {
        scrape.count("rest_server_requests_in_progress", &[("app_name", "mlserver"), ("method", "POST")])
    };
    let mut uploads: Vec<_> = (0..3).map(|_| server.connect()).collect();
    for upload in &mut uploads {
        upload.start_upload(INFER, ONE_ROW.len());
    }
    assert_eq!(in_progress(&Scrape::of(&server)), 3);
    for upload in &mut uploads {
        upload.write(ONE_ROW);
        upload.answer().ok();
    }
    assert_eq!(in_progress(&Scrape::of(&server)), 0);

    // A disconnected client's request is no longer in progress once the server has noticed.
    let mut gone = server.connect();
    gone.start_upload(INFER, ONE_ROW.len());
    assert_eq!(in_progress(&Scrape::of(&server)), 1);
    drop(gone);
    let noticed = (0..10_000).any(|_| in_progress(&Scrape::of(&server)) == 0);
    assert!(noticed);
    assert_eq!(Scrape::of(&server).count("model_infer_request_success_total", &NO_VERSION), 3);
}

#[test]
fn metrics_counts_are_exact_under_concurrency() {
    let server = TestServer::start(Folder::iris());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..25).for_each(|_| drop(server.post(INFER, ONE_ROW).ok())));
        }
    });
    let scrape = Scrape::of(&server);
    assert_eq!(scrape.count("model_infer_request_success_total", &NO_VERSION), 200);
    assert_eq!(scrape.count("model_infer_request_duration_count", &NO_VERSION), 200);
}

#[test]
fn metrics_endpoint_and_prefix_are_configurable() {
    let settings = json!({"metrics_endpoint": "/own/path", "metrics_rest_server_prefix": "mine"});
    let server = TestServer::start(Folder::iris().settings(&settings));
    server.get("/v2").ok();
    let metrics = Client::new(server.metrics.unwrap());
    assert!(server.wait_for_log("Prometheus scraping endpoint").ends_with("/own/path"));
    let scrape = Scrape::parse(metrics.get("/own/path").text());
    assert_eq!(scrape.count("mine_requests_total", &route("GET", "/v2", "200")), 1);
    assert!(scrape.types.keys().all(|name| !name.starts_with("rest_server")));
    metrics.get("/metrics").error(404);
}

#[test]
fn metrics_server_has_no_other_routes() {
    let server = TestServer::start(Folder::iris());
    let metrics = Client::new(server.metrics.unwrap());
    metrics.get("/").error(404);
    metrics.get("/v2/health/live").error(404);
    let answer = metrics.post("/metrics", "");
    answer.error(405);
    assert_eq!(answer.header("allow"), "GET,HEAD");
    server.get("/metrics").error(404);
}

#[test]
fn metrics_empty_endpoint_disables_the_server() {
    let by_variable = ServerBuilder::new(Folder::iris()).env("MLSERVER_METRICS_ENDPOINT", "").start();
    assert!(by_variable.metrics.is_none());
    by_variable.post(INFER, ONE_ROW).ok();
    let ended = by_variable.terminate();
    assert!(!ended.stdout.contains("Metrics server"), "{}", ended.stdout);
}

#[test]
fn metrics_labels_are_escaped() {
    let name = "a\"b\\c";
    let folder = Folder::new().with_iris("odd", &json!({"name": name}));
    let server = TestServer::start(folder);
    server.post("/v2/models/a%22b%5Cc/infer", ONE_ROW).ok();
    let scrape = Scrape::of(&server);
    assert_eq!(scrape.count("model_infer_request_success_total", &[("model", name), ("version", "None")]), 1);
}

#[test]
fn metrics_answer_during_drain() {
    let server = TestServer::start(Folder::iris());
    let mut upload = server.connect();
    upload.start_upload(INFER, ONE_ROW.len());
    server.signal(rustix::process::Signal::TERM);
    server.wait_for_log("Received SIGTERM");
    let in_progress = [("app_name", "mlserver"), ("method", "POST")];
    assert_eq!(Scrape::of(&server).count("rest_server_requests_in_progress", &in_progress), 1);
    upload.write(ONE_ROW);
    let answer: Value = upload.answer().ok();
    assert_eq!(answer["model_name"], "iris-xgboost");
    assert_eq!(server.ended().code, Some(0));
}
