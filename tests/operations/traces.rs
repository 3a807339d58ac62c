//! Traces, as a collector of OpenTelemetry receives them. They need the feature `otel`.

use std::fs;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Response};
use mlserver::types::TraceContext;
use mlserver::types::protobuf::messages::InferTensorContents;
use prost::Message;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tonic::metadata::MetadataValue;

use crate::support::grpc::{infer_request, inference_client};
use crate::support::python::with_python;
use crate::support::worker_models::folder;
use crate::support::{Connection, Folder, ServerBuilder, TestServer, eventually};

/// The parts of OTLP's messages that these tests read.
mod otlp {
    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Export {
        #[prost(message, repeated, tag = "1")]
        pub(super) resource_spans: Vec<ResourceSpans>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct ResourceSpans {
        #[prost(message, optional, tag = "1")]
        pub(super) resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub(super) scope_spans: Vec<ScopeSpans>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Resource {
        #[prost(message, repeated, tag = "1")]
        pub(super) attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct ScopeSpans {
        #[prost(message, repeated, tag = "2")]
        pub(super) spans: Vec<Span>,
    }

    #[expect(clippy::struct_field_names, reason = "it is called so")]
    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Span {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) trace: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub(super) span: Vec<u8>,
        #[prost(bytes = "vec", tag = "4")]
        pub(super) parent: Vec<u8>,
        #[prost(string, tag = "5")]
        pub(super) name: String,
        #[prost(int32, tag = "6")]
        pub(super) kind: i32,
        #[prost(fixed64, tag = "7")]
        pub(super) start: u64,
        #[prost(fixed64, tag = "8")]
        pub(super) end: u64,
        #[prost(message, repeated, tag = "9")]
        pub(super) attributes: Vec<KeyValue>,
        #[prost(message, repeated, tag = "13")]
        pub(super) links: Vec<Link>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct Link {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) trace: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub(super) span: Vec<u8>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct KeyValue {
        #[prost(string, tag = "1")]
        pub(super) key: String,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<AnyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct AnyValue {
        #[prost(string, optional, tag = "1")]
        pub(super) text: Option<String>,
        #[prost(int64, optional, tag = "3")]
        pub(super) number: Option<i64>,
    }
}

use otlp::{KeyValue, Span};

impl Span {
    fn number(&self, key: &str) -> i64 {
        let attribute = self.attributes.iter().find(|attribute| attribute.key == key);
        attribute.unwrap_or_else(|| unreachable!("no {key}: {self:?}")).value.as_ref().unwrap().number.unwrap()
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.attributes.iter().find(|attribute| attribute.key == key)?.value.as_ref()?.text.as_deref()
    }

    fn links(&self) -> Vec<Vec<u8>> {
        self.links.iter().map(|link| link.span.clone()).collect()
    }

    fn context(&self) -> String {
        let trace = u128::from_be_bytes(self.trace.as_slice().try_into().unwrap());
        let span = u64::from_be_bytes(self.span.as_slice().try_into().unwrap());
        TraceContext { trace, span, sampled: true }.to_string()
    }
}

/// A collector that keeps what it receives.
#[derive(Clone, Default)]
struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    resource: Arc<Mutex<Vec<KeyValue>>>,
}

impl Collector {
    /// Starts to listen, and returns the address.
    async fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let collector = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(collector.clone().serve(stream));
            }
        });
        address
    }

    async fn serve(self, stream: TcpStream) {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let collector = self.clone();
            tokio::spawn(async move {
                assert_eq!(request.uri().path(), "/opentelemetry.proto.collector.trace.v1.TraceService/Export");
                let (mut body, mut message) = (request.into_body(), BytesMut::new());
                while let Some(part) = body.data().await {
                    let part = part.unwrap();
                    body.flow_control().release_capacity(part.len()).unwrap();
                    message.extend_from_slice(&part);
                }
                collector.keep(&message[5..]);
                let answer = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
                let mut answer = respond.send_response(answer, false).unwrap();
                answer.send_data(Bytes::from_static(&[0; 5]), false).unwrap();
                let status = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
                answer.send_trailers(status).unwrap();
            });
        }
    }

    fn keep(&self, message: &[u8]) {
        for part in otlp::Export::decode(message).unwrap().resource_spans {
            *self.resource.lock().unwrap() = part.resource.unwrap().attributes;
            self.spans.lock().unwrap().extend(part.scope_spans.into_iter().flat_map(|scope| scope.spans));
        }
    }
}

/// Returns the `traceparent` of a client's span, each in its own trace.
fn client_span(number: u8, sampled: bool) -> String {
    format!("00-{:032x}-{:016x}-{:02x}", 0xaaaa_0000 + u32::from(number), 0xbb00 + u32::from(number), u8::from(sampled))
}

fn send(server: &TestServer, value: u8, sampled: bool) -> Connection {
    let input = json!({"name": "x", "shape": [1], "datatype": "INT64", "data": [value]});
    let body = json!({"inputs": [input]}).to_string();
    let mut connection = server.connect();
    connection.write(format!(
        "POST /v2/models/m/infer HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntraceparent: {}\r\n\
         content-length: {}\r\n\r\n{body}",
        client_span(value, sampled),
        body.len()
    ));
    connection
}

fn waiting(server: &TestServer) -> usize {
    let scrape = server.scrape();
    let series = "model_infer_waiting{model=\"m\",version=\"None\"} ";
    scrape.text().lines().find_map(|line| line.strip_prefix(series)).map_or(0, |count| count.parse().unwrap())
}

fn traced(folder: Folder, address: &str) -> Folder {
    let settings: Value =
        json!({"name": "m", "implementation": "models.Traced", "max_batch_size": 8, "max_batch_time": 60});
    folder.file("m/model-settings.json", settings.to_string()).settings(&json!({"tracing_server": address}))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_contains_queue_batch_predict_and_encode() {
    let collector = Collector::default();
    let address = collector.listen().await;
    let Some(starting) = with_python(traced(folder(&[("m", "Traced")]), &address)) else { return };
    let server = starting.start();
    let mut first = send(&server, 0, true);
    server.wait_for_log("running [0]");
    let mut second = send(&server, 1, true);
    eventually("one waits", || waiting(&server) == 1).await;
    let mut third = send(&server, 2, true);
    eventually("two wait", || waiting(&server) == 2).await;
    fs::write(server.folder.path("go"), "").unwrap();
    let seen =
        |connection: &mut Connection| connection.answer().ok()["outputs"][0]["data"][0].as_str().unwrap().to_owned();
    let seen = [&mut first, &mut second, &mut third].map(seen);
    send(&server, 3, false).answer().ok();
    let mut grpc = inference_client(server.grpc).await;
    let contents = InferTensorContents { int64_contents: vec![4], ..InferTensorContents::default() };
    let mut request = tonic::Request::new(infer_request("m", "INT64", &[1], contents));
    request.metadata_mut().insert("traceparent", MetadataValue::try_from(client_span(4, true)).unwrap());
    grpc.model_infer(request).await.unwrap();
    assert_eq!(server.terminate().code, Some(0));

    let resource = collector.resource.lock().unwrap().clone();
    let service = resource.iter().find(|attribute| attribute.key == "service.name").unwrap();
    assert_eq!(service.value.as_ref().unwrap().text.as_deref(), Some("mlserver"));
    let spans = collector.spans.lock().unwrap().clone();
    let of_trace = |number: u8| -> Vec<&Span> {
        let trace = (0xaaaa_0000_u128 + u128::from(number)).to_be_bytes();
        spans.iter().filter(|span| span.trace == trace).collect()
    };
    assert!(of_trace(3).is_empty(), "its client does not record the trace");
    assert!(spans.iter().all(|span| !span.name.contains("health")), "probes are no requests");
    let one = |number, name: &str| -> Span {
        let found: Vec<&Span> = of_trace(number).into_iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name} of {number}: {spans:#?}");
        found[0].clone()
    };
    let batches = [one(0, "batch"), one(1, "batch")];
    for number in [0, 1, 2] {
        let server = one(number, "POST /v2/models/{model_name}/infer");
        let parent = (0xbb00_u64 + u64::from(number)).to_be_bytes();
        assert_eq!((server.parent.as_slice(), server.kind), (parent.as_slice(), 2));
        assert_eq!(server.number("http.response.status_code"), 200);
        let parts = ["queue", "predict", "encode"].map(|name| one(number, name));
        assert!(parts.iter().all(|part| part.parent == server.span), "{parts:?}");
        let [queue, predict, encode] = &parts;
        let times = [server.start, queue.start, queue.end, predict.end, encode.start, encode.end, server.end];
        // Spans use the wall clock, which differs from the monotonic clock by some microseconds.
        assert!(times.is_sorted_by(|one, two| *one <= two + 1_000_000), "{times:?}");
        assert!(queue.end.abs_diff(predict.start) < 1_000_000);
        let batch = &batches[usize::from(number > 0)];
        assert_eq!(predict.links(), std::slice::from_ref(&batch.span));
        assert_eq!(seen[usize::from(number)], batch.context(), "what the model's code sees");
    }
    let servers = [1, 2].map(|number| one(number, "POST /v2/models/{model_name}/infer").span);
    let [alone, together] = &batches;
    assert_eq!((alone.number("mlserver.batch.requests"), alone.links().len()), (1, 1));
    assert_eq!((together.number("mlserver.batch.requests"), together.number("mlserver.batch.rows")), (2, 2));
    assert_eq!((together.links().as_slice(), &together.parent), (servers.as_slice(), &servers[0]));
    let call = one(4, "inference.GRPCInferenceService/ModelInfer");
    assert_eq!((call.kind, call.number("rpc.grpc.status_code")), (2, 0));
    assert_eq!(one(4, "encode").parent, call.span);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_of_every_protocol_has_the_same_parts() {
    let collector = Collector::default();
    let address = collector.listen().await;
    let server = TestServer::start(Folder::new().with_identity("m").settings(&json!({"tracing_server": address})));
    let body = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT32","data":[1]}]}"#;
    let routes = [
        ("/v2/models/m/infer", "POST /v2/models/{model_name}/infer", body),
        ("/v2/models/m/infer_stream", "POST /v2/models/{model_name}/infer_stream", body),
        ("/v1/models/m:predict", "POST /v1/models/{model_name}:predict", r#"{"instances":[1]}"#),
    ];
    for (number, (path, _, body)) in (0..).zip(routes) {
        let traceparent = client_span(number, true);
        let headers = [("traceparent", traceparent.as_str()), ("content-type", "application/json")];
        assert_eq!(server.post_with(path, &headers, body).status, 200, "{path}");
    }
    let mut grpc = inference_client(server.grpc).await;
    let request = |number| {
        let contents = InferTensorContents { int_contents: vec![1], ..InferTensorContents::default() };
        let mut request = tonic::Request::new(infer_request("m", "INT32", &[1], contents));
        request.metadata_mut().insert("traceparent", MetadataValue::try_from(client_span(number, true)).unwrap());
        request
    };
    grpc.model_infer(request(3)).await.unwrap();
    let stream = request(4).map(|message| tokio_stream::iter([message]));
    let mut responses = grpc.model_stream_infer(stream).await.unwrap().into_inner();
    while responses.message().await.unwrap().is_some() {}
    assert_eq!(server.terminate().code, Some(0));

    let spans = collector.spans.lock().unwrap().clone();
    let calls = ["ModelInfer", "ModelStreamInfer"].map(|name| format!("inference.GRPCInferenceService/{name}"));
    let names = routes.into_iter().map(|(_, name, _)| name.to_owned()).chain(calls);
    for (number, name) in (0_u32..).zip(names) {
        let trace = (0xaaaa_0000_u128 + u128::from(number)).to_be_bytes();
        let of_trace: Vec<&Span> = spans.iter().filter(|span| span.trace == trace).collect();
        let Some(request) = of_trace.iter().find(|span| span.name == name) else { unreachable!("{name}: {spans:#?}") };
        let parts = of_trace.iter().filter(|span| span.parent == request.span);
        let mut parts: Vec<&str> = parts.map(|span| span.name.as_str()).collect();
        parts.sort_unstable();
        let is_stream = name.to_lowercase().contains("stream");
        // A stream is one prediction without a queue.
        let expected: &[&str] = if is_stream { &["encode"] } else { &["encode", "predict", "queue"] };
        assert_eq!(parts, expected, "{name}: {spans:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_names_the_principal_and_not_its_key() {
    let collector = Collector::default();
    let address = collector.listen().await;
    let hash = mlserver::access::KeyHash::of(b"secret").to_string();
    let folder = Folder::new()
        .with_identity("m")
        .settings(&json!({"tracing_server": address, "api_keys_file": "keys.json"}))
        .file("keys.json", json!([{"name": "ci", "hash": hash, "scopes": ["infer"]}]).to_string());
    let server = TestServer::start(folder);
    let body = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT32","data":[1]}]}"#;
    let traceparent = client_span(0, true);
    let headers = [("authorization", "Bearer secret"), ("traceparent", traceparent.as_str())];
    server
        .post_with("/v2/models/m/infer", &[&headers[..], &[("content-type", "application/json")]].concat(), body)
        .ok();
    let mut grpc = inference_client(server.grpc).await;
    let contents = InferTensorContents { int_contents: vec![1], ..InferTensorContents::default() };
    let mut request = tonic::Request::new(infer_request("m", "INT32", &[1], contents));
    request.metadata_mut().insert("authorization", MetadataValue::from_static("Bearer secret"));
    request.metadata_mut().insert("traceparent", MetadataValue::try_from(client_span(1, true)).unwrap());
    grpc.model_infer(request).await.unwrap();
    assert_eq!(server.terminate().code, Some(0));

    let spans = collector.spans.lock().unwrap().clone();
    for name in ["POST /v2/models/{model_name}/infer", "inference.GRPCInferenceService/ModelInfer"] {
        let span = spans.iter().find(|span| span.name == name).unwrap_or_else(|| unreachable!("{name}: {spans:#?}"));
        assert_eq!(span.text("enduser.id"), Some("ci"), "{span:?}");
    }
    assert!(!format!("{spans:?}").contains("secret"), "{spans:#?}");
}

#[test]
fn trace_unreachable_collector_is_ignored() {
    let settings = json!({"tracing_server": "127.0.0.1:1"});
    let server = TestServer::start(Folder::new().with_identity("m").settings(&settings));
    let body = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT32","data":[1]}]}"#;
    server.post("/v2/models/m/infer", body).ok();
    assert_eq!(server.terminate().code, Some(0));
}

#[test]
fn trace_tls_collector_fails_the_start() {
    let settings = json!({"tracing_server": "https://collector:4317"});
    let ended = ServerBuilder::new(Folder::new().with_identity("m").settings(&settings)).run();
    assert_eq!(ended.code, Some(1));
    let message = "cannot send traces to `https://collector:4317` (`tracing_server`): TLS is not supported";
    assert!(ended.stderr.contains(message), "{}", ended.stderr);
}

/// Records of Kafka are requests with a span each, and are batched like others.
#[cfg(feature = "kafka")]
#[test]
fn trace_of_a_kafka_record_has_its_parent_and_its_batch() {
    use crate::support::kafka::{Broker, KafkaRecord};

    let Some(broker) = Broker::shared() else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let collector = Collector::default();
    let address = runtime.block_on(collector.listen());
    let (input, output) = (broker.topic("traced", 1), broker.topic("traced-output", 1));
    let settings = json!({
        "tracing_server": address,
        "kafka_enabled": true,
        "kafka_servers": broker.address(),
        "kafka_topic_input": input,
        "kafka_topic_output": output,
        "kafka_group_id": Broker::unique("traced"),
    });
    let Some(starting) = with_python(traced(folder(&[("m", "Traced")]), &address).settings(&settings)) else { return };
    let server = starting.start();
    let record = |number: u8| {
        KafkaRecord::json(&json!({"inputs": [{"name": "x", "shape": [1, 1], "datatype": "INT64", "data": [number]}]}))
            .with_header("mlserver-model", "m")
            .with_header("traceparent", client_span(number, true))
    };
    // The first one runs alone, because the model is idle. The others wait for it, and run together.
    broker.produce(&input, &[record(0)]);
    server.wait_for_log("running [0]");
    broker.produce(&input, &(1..5).map(record).collect::<Vec<_>>());
    crate::support::wait_until("four records wait", || waiting(&server) == 4);
    fs::write(server.folder.path("go"), "").unwrap();
    let answers = broker.consume(&output, 5);
    assert_eq!(answers.len(), 5);
    assert_eq!(server.terminate().code, Some(0));

    let spans = collector.spans.lock().unwrap().clone();
    let mut batched = Vec::new();
    for number in 0..5_u8 {
        let trace = (0xaaaa_0000_u128 + u128::from(number)).to_be_bytes();
        let parent = (0xbb00_u64 + u64::from(number)).to_be_bytes();
        let of_record: Vec<&Span> = spans.iter().filter(|span| span.trace == trace).collect();
        let process = of_record.iter().find(|span| span.name == format!("{input} process"));
        let process = process.unwrap_or_else(|| unreachable!("{spans:#?}"));
        assert_eq!(process.parent, parent);
        assert!(of_record.iter().any(|span| span.name == "predict" && span.parent == process.span), "{of_record:#?}");
        let spans = of_record.iter().filter(|span| span.name == "batch");
        batched.extend(spans.map(|span| span.number("mlserver.batch.requests")));
    }
    // A batch is a child of its first request.
    assert_eq!(batched, [1, 4]);
}

/// Steps of graphs are children of the request's span, also those of nested graphs, and have the phases of requests.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_of_a_graph_has_a_span_for_each_step() {
    let collector = Collector::default();
    let address = collector.listen().await;
    let pipeline = |steps: &[&str]| {
        let steps: Vec<Value> = steps.iter().map(|step| json!({"name": step})).collect();
        let manifest = json!({
            "apiVersion": "mlops.seldon.io/v1alpha1", "kind": "Pipeline", "metadata": {"name": "pipeline"},
            "spec": {"steps": steps, "output": {"steps": steps.iter().map(|step| &step["name"]).collect::<Vec<_>>()}},
        });
        manifest.to_string()
    };
    let with_graph = |folder: Folder, name: &str, manifest: String| {
        let settings = json!({"name": name, "implementation": "mlserver.Graph", "parameters": {"uri": "./graph.json"}});
        folder
            .file(&format!("{name}/graph.json"), manifest)
            .file(&format!("{name}/model-settings.json"), settings.to_string())
    };
    let folder = with_graph(Folder::new().with_identity("a").with_identity("b"), "inner", pipeline(&["a"]));
    let folder = with_graph(folder, "m", pipeline(&["inner", "b"]));
    let server = TestServer::start(folder.settings(&json!({"tracing_server": address})));
    let outputs = send(&server, 1, true).answer().ok()["outputs"].as_array().unwrap().len();
    assert_eq!(outputs, 2);
    send(&server, 2, false).answer().ok();
    assert_eq!(server.terminate().code, Some(0));

    let spans = collector.spans.lock().unwrap().clone();
    let trace = 0xaaaa_0001_u128.to_be_bytes();
    assert!(spans.iter().all(|span| span.trace == trace), "the second request is not recorded: {spans:#?}");
    let named = |name: &str| -> Span {
        let found: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name}: {spans:#?}");
        found[0].clone()
    };
    let request = named("POST /v2/models/{model_name}/infer");
    let [inner, a, b] = ["step inner", "step a", "step b"].map(named);
    assert_eq!((&inner.parent, &b.parent, &a.parent), (&request.span, &request.span, &inner.span));
    for (step, parent) in [(&inner, &request), (&b, &request), (&a, &inner)] {
        // Spans use the wall clock, which differs from the monotonic clock by some microseconds.
        assert!(step.start + 1_000_000 >= parent.start && step.end <= parent.end + 1_000_000, "{step:?}");
        let phases = spans.iter().filter(|span| span.parent == step.span && span.name == "predict");
        assert_eq!(phases.count(), 1, "{step:?}: {spans:#?}");
    }
}
