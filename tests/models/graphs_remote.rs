//! Steps of inference graphs that are models of other servers.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use crate::support::grpc::{floats, infer_request, inference_client, never_answers};
use crate::support::scripted::{Received, Reply, ScriptedServer};
use crate::support::{
    Answer, EmbeddedServer, Folder, PATIENCE, ServerBuilder, TestServer, pause, repository_path, wait_until,
};

/// A Pipeline of Seldon Core 2 with these steps one after the other, each with its URL.
pub(crate) fn graph(folder: Folder, name: &str, steps: &[(&str, &str)]) -> Folder {
    let listed = steps.iter().enumerate().map(|(index, (step, _))| match index {
        0 => json!({"name": step}),
        _ => json!({"name": step, "inputs": [steps[index - 1].0]}),
    });
    let manifest = json!({
        "apiVersion": "mlops.seldon.io/v1alpha1",
        "kind": "Pipeline",
        "metadata": {"name": "pipeline"},
        "spec": {"steps": listed.collect::<Vec<_>>(), "output": {"steps": [steps.last().unwrap().0]}},
    });
    let remote = steps.iter().filter(|(_, url)| !url.is_empty());
    let options: serde_json::Map<_, _> = remote.map(|(step, url)| ((*step).to_owned(), json!({"url": url}))).collect();
    let settings = json!({
        "name": name,
        "implementation": "mlserver.Graph",
        "parameters": {"uri": "./graph.yaml", "extra": {"steps": options}},
    });
    folder
        .file(&format!("{name}/graph.yaml"), manifest.to_string())
        .file(&format!("{name}/model-settings.json"), settings.to_string())
}

fn start(folder: Folder) -> TestServer {
    ServerBuilder::new(folder).start()
}

/// Starts a server with one graph, whose only step is `step` at `url`.
fn start_graph(step: &str, url: &str) -> TestServer {
    start(graph(Folder::new(), "graph", &[(step, url)]))
}

const REQUEST: &str = r#"{"id": "r", "inputs": [{"name": "x", "shape": [2], "datatype": "INT64", "data": [1, 2]}]}"#;

fn infer(server: &TestServer, model: &str) -> Answer {
    server.post(&format!("/v2/models/{model}/infer"), REQUEST)
}

/// The URLs of a server's model over both protocols, without and with a path.
fn urls(server: &TestServer, model: &str) -> [(&'static str, String); 4] {
    let (http, grpc) = (server.http, server.grpc);
    [
        ("rest", format!("http://{http}")),
        ("rest-path", format!("http://{http}/v2/models/{model}/infer")),
        ("grpc", format!("grpc://{grpc}")),
        ("grpc-path", format!("grpc://{grpc}/inference.GRPCInferenceService/ModelInfer")),
    ]
}

/// An address where no server listens.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn remote_steps_pass_every_datatype_over_both_protocols() {
    let remote = start(Folder::new().with_identity("echo"));
    let urls = urls(&remote, "echo");
    let folder = urls.iter().fold(Folder::new(), |folder, (name, url)| graph(folder, name, &[("echo", url)]));
    let server = start(folder);
    let mut inputs: Vec<Value> = [
        ("BOOL", json!([true, false])),
        ("UINT8", json!([0, 255])),
        ("UINT16", json!([0, 65535])),
        ("UINT32", json!([0, 4_294_967_295_u32])),
        ("UINT64", json!([0, u64::MAX])),
        ("INT8", json!([-128, 127])),
        ("INT16", json!([-32768, 32767])),
        ("INT32", json!([i32::MIN, i32::MAX])),
        ("INT64", json!([i64::MIN, i64::MAX])),
        ("FP16", json!([-1.5, 65504.0])),
        ("FP32", json!([0.1, -3.5e38_f64 / 2.0])),
        ("FP64", json!([0.1, 1.797e308])),
        ("BYTES", json!(["", "é\n\"\u{1f600}"])),
    ]
    .into_iter()
    .map(|(datatype, data)| json!({"name": datatype, "shape": [2], "datatype": datatype, "data": data}))
    .collect();
    let large: Vec<f64> = (0..40_000).map(|number| f64::from(number) / 7.0).collect();
    inputs.push(json!({"name": "large", "shape": [200, 200], "datatype": "FP64", "data": large}));
    let request = json!({"parameters": {"k": "v"}, "inputs": inputs}).to_string();
    let expected = remote.post("/v2/models/echo/infer", &request).ok();
    assert_eq!(expected["outputs"].as_array().unwrap().len(), 14);
    for (name, _) in &urls {
        let answer = server.post(&format!("/v2/models/{name}/infer"), &request).ok();
        assert_eq!(answer["outputs"], expected["outputs"], "{name}");
        assert_eq!(answer["model_name"], json!(name));
    }
    // Bytes that are not UTF-8 have no form in JSON.
    let json = r#"{"parameters":{"binary_data_output":true},"inputs":[{"name":"x","shape":[1],"datatype":"BYTES","parameters":{"binary_data_size":7}}]}"#;
    let body = [json.as_bytes(), b"\x03\x00\x00\x00\xff\xfe\x00"].concat();
    let length = json.len().to_string();
    let headers = [("inference-header-content-length", length.as_str()), ("content-type", "application/octet-stream")];
    for (name, _) in &urls {
        let answer = server.post_with(&format!("/v2/models/{name}/infer"), &headers, &body);
        assert!(answer.status == 200 && answer.body.ends_with(b"\x03\x00\x00\x00\xff\xfe\x00"), "{name}: {answer:?}");
    }
    let metrics = server.scrape();
    let metrics = metrics.text();
    assert!(metrics.contains(r#"graph_step_duration_seconds_count{graph="grpc",step="echo"} 2"#), "{metrics}");
    assert!(!metrics.contains(r#"model="echo""#), "the server has no such model");
}

#[test]
fn remote_step_errors_keep_status_and_message() {
    let missing = json!({"outputs": [{"name": "y", "input": "missing"}]});
    let settings = json!({"name": "select", "implementation": "mlserver.Select", "parameters": {"extra": missing}});
    let remote = start(Folder::new().file("select/model-settings.json", settings.to_string()));
    let statuses = ScriptedServer::serve(|received| match received.path.as_str() {
        "/teapot" => Reply::Answer(418, "", r#"{"error": {"message": "short and stout"}}"#.to_owned()),
        "/busy" => Reply::Answer(503, "retry-after: 60", r#"{"error": "busy"}"#.to_owned()),
        "/moved" => Reply::Answer(302, "location: http://elsewhere/", String::new()),
        "/text" => Reply::Answer(200, "", "hello".to_owned()),
        "/closed" => Reply::CloseConnection,
        _ => received.echo(),
    });
    let closed = free_address();
    let scripted = |path| format!("http://me:s3cret@{}{path}", statuses.address);
    let refused = format!("step \"s\": cannot connect to {closed}: connection refused; is the server running?");
    let in_remote = |text: &str| format!("step \"{text}");
    let rest = format!("http://{}", remote.http);
    let grpc = format!("grpc://{}", remote.grpc);
    let cases: [(&str, String, u16, &str); 12] = [
        ("select", rest.clone(), 400, &in_remote("select\": the input `missing` is missing (found `x`)")),
        ("select", grpc.clone(), 400, &in_remote("select\": the input `missing` is missing (found `x`)")),
        ("unknown", rest, 404, &in_remote("unknown\": Model unknown not found")),
        ("unknown", grpc, 404, &in_remote("unknown\": Model unknown not found")),
        ("s", scripted("/teapot"), 418, r#"step "s": short and stout"#),
        ("s", scripted("/busy"), 503, "step \"s\": busy"),
        ("s", scripted("/moved"), 502, "step \"s\": the server redirects to http://elsewhere/: use that address"),
        ("s", scripted("/text"), 502, "step \"s\": cannot read the server's response: "),
        ("s", scripted("/closed"), 502, &format!("step \"s\": no response from {}: ", statuses.address)),
        ("s", format!("grpc://{}", statuses.address), 502, "step \"s\": "),
        ("s", format!("http://{closed}"), 503, &refused),
        ("s", format!("grpc://{closed}"), 503, &refused),
    ];
    let folder = cases
        .iter()
        .enumerate()
        .fold(Folder::new(), |folder, (index, (step, url, ..))| graph(folder, &format!("g{index}"), &[(step, url)]));
    let server = start(folder);
    assert_eq!(server.get("/v2/health/ready").status, 200, "readiness does not depend on other servers");
    let metadata = server.get("/v2/models/g4").ok();
    let shown = format!("http://{}/teapot", statuses.address);
    assert_eq!(metadata["parameters"]["steps"], json!([{"name": "s", "model": "s", "url": shown}]));
    for (index, (step, url, status, message)) in cases.iter().enumerate() {
        let before = statuses.received().len();
        let error = infer(&server, &format!("g{index}")).error(*status);
        assert!(error.starts_with(message), "{step} at {url}: {error}");
        assert!(statuses.received().len() <= before + 1, "{url}: a request that was sent is not sent again");
    }
}

#[test]
fn remote_step_with_invalid_url_is_a_load_error() {
    for url in ["http://h:99999/", "ftp://h"] {
        let ended = ServerBuilder::new(graph(Folder::new(), "graph", &[("s", url)])).run();
        assert!(ended.code == Some(1) && ended.stdout.contains("expected `http://`, `https://`"), "{}", ended.stdout);
    }
    let settings = r#"{"name": "graph", "implementation": "mlserver.Graph", "parameters": {"uri": "./graph.yaml",
        "extra": {"steps": {"s": {"url": "http://h", "folder": "../s"}}}}}"#;
    let folder = graph(Folder::new(), "graph", &[("s", "")]).file("graph/model-settings.json", settings);
    let ended = ServerBuilder::new(folder).run();
    let expected = "parameters.extra.steps.s: `url` and `folder` are set, expected one of them";
    assert!(ended.code == Some(1) && ended.stdout.contains(expected), "{}", ended.stdout);
}

#[tokio::test(flavor = "multi_thread")]
async fn remote_step_has_the_deadline_of_the_request() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let hanging = ScriptedServer::serve(move |received| {
        // Ends with the test.
        let _ = released.lock().unwrap().recv();
        received.echo()
    });
    let slow = EmbeddedServer::serve(never_answers(&Arc::new(()))).await;
    let folder = graph(Folder::new(), "rest", &[("s", &format!("http://{}", hanging.address))]);
    let server = start(graph(folder, "grpc", &[("m", &format!("grpc://{}", slow.grpc))]));
    for model in ["rest", "grpc"] {
        let started = Instant::now();
        let headers = [("request-timeout", "0.5"), ("content-type", "application/json")];
        let answer = server.post_with(&format!("/v2/models/{model}/infer"), &headers, REQUEST);
        answer.error(504);
        assert!(started.elapsed() < PATIENCE / 2, "{model}: {:?}", started.elapsed());
    }
    let passed_on: f64 = hanging.received()[0].header("request-timeout").parse().unwrap();
    assert!(passed_on > 0.0 && passed_on <= 0.5, "{passed_on}");
    wait_until("the request of the other server has ended", || slow.inference.in_flight() == 0);
    drop(release);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_graph_cancels_its_remote_steps() {
    let alive = Arc::new(());
    let slow = EmbeddedServer::serve(never_answers(&alive)).await;
    for url in [format!("http://{}", slow.http), format!("grpc://{}", slow.grpc)] {
        let server = start_graph("m", &url);
        let mut connection = server.connect();
        connection.write(format!(
            "POST /v2/models/graph/infer HTTP/1.1\r\nhost: test\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{REQUEST}",
            REQUEST.len()
        ));
        wait_until("the other server has the request", || Arc::strong_count(&alive) == 3);
        drop(connection);
        let is_cancelled = || slow.inference.in_flight() == 0 && Arc::strong_count(&alive) == 2;
        wait_until("the other server's request is cancelled", is_cancelled);
    }
}

#[test]
fn remote_steps_forward_listed_headers_and_share_connections() {
    let echo = ScriptedServer::serve(Received::echo);
    let url = format!("http://{}", echo.address);
    let folder = graph(Folder::new(), "a", &[("s", &url)]);
    let folder = graph(folder, "b", &[("first", &url), ("second", &format!("{url}/at/this/path"))]);
    let forwarded = json!({"forward_headers": ["authorization"]});
    let server = start(folder.with_identity("unused").settings(&forwarded));
    let headers = [
        ("content-type", "application/json"),
        ("authorization", "Bearer t0ken"),
        ("x-request-id", "id-7"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("cookie", "session=1"),
        ("x-own", "1"),
    ];
    for model in ["a", "b", "a"] {
        assert_eq!(server.post_with(&format!("/v2/models/{model}/infer"), &headers, REQUEST).status, 200);
    }
    let received = echo.received();
    let paths: Vec<&str> = received.iter().map(|received| received.path.as_str()).collect();
    assert_eq!(paths, ["/v2/models/s/infer", "/v2/models/first/infer", "/at/this/path", "/v2/models/s/infer"]);
    assert_eq!(echo.connections(), 1);
    for request in &received {
        for (name, value) in &headers[1..4] {
            assert_eq!(request.header(name), *value);
        }
        assert_eq!((request.header("cookie"), request.header("x-own")), ("", ""));
        assert_eq!(request.json()["id"], "r");
        let timeout: f64 = request.header("request-timeout").parse().unwrap();
        assert!(timeout > 570.0 && timeout <= 600.0, "without a deadline: {timeout}");
    }
}

/// Models on this server see the credentials of callers without access control. That does not make them known to other servers.
#[test]
fn remote_steps_do_not_get_credentials_that_are_not_listed() {
    let echo = ScriptedServer::serve(Received::echo);
    let server = start_graph("s", &format!("http://{}", echo.address));
    let headers = [("content-type", "application/json"), ("authorization", "Bearer t0ken"), ("cookie", "session=1")];
    assert_eq!(server.post_with("/v2/models/graph/infer", &headers, REQUEST).status, 200);
    let received = &echo.received()[0];
    assert_eq!((received.header("authorization"), received.header("cookie")), ("", ""));
    assert_eq!(received.header("request-depth"), "1");
}

#[test]
fn remote_server_may_restart_between_requests() {
    let mut remote = start(Folder::new().with_identity("echo"));
    let addresses = (remote.http, remote.grpc);
    let folder = graph(Folder::new(), "rest", &[("echo", &format!("http://{}", remote.http))]);
    let server = start(graph(folder, "grpc", &[("echo", &format!("grpc://{}", remote.grpc))]));
    for round in 0..3 {
        for model in ["rest", "grpc"] {
            assert_eq!(infer(&server, model).ok()["outputs"][0]["data"], json!([1, 2]), "{model} in round {round}");
        }
        // Killed, not stopped: nothing closes its connections in order.
        drop(remote);
        remote = ServerBuilder::new(Folder::new().with_identity("echo"))
            .env("MLSERVER_HTTP_PORT", &addresses.0.port().to_string())
            .env("MLSERVER_GRPC_PORT", &addresses.1.port().to_string())
            .start();
    }
}

/// Starts the server of a step a little after the request, and returns whether it was reached.
fn reaches_late_server() -> bool {
    let address = free_address();
    let server = start_graph("s", &format!("http://{address}"));
    let answer = std::thread::spawn(move || infer(&server, "graph"));
    // After the first attempt; the others follow 250 and 750 milliseconds after it, or later.
    pause(Duration::from_millis(100));
    let _echo = ScriptedServer::serve_at(TcpListener::bind(address).unwrap(), Received::echo);
    answer.join().unwrap().status == 200
}

#[test]
fn remote_server_that_starts_within_the_attempts_is_reached() {
    // On a busy machine, the server may start after the last attempt.
    assert!((0..5).any(|_| reaches_late_server()));
    let started = Instant::now();
    infer(&start_graph("s", &format!("http://{}", free_address())), "graph").error(503);
    assert!(started.elapsed() >= Duration::from_millis(750), "three attempts: {:?}", started.elapsed());
}

#[test]
fn inference_graph_calls_service_urls() {
    let rename = |name: &str, from: &str, to: &str| {
        let extra = json!({"outputs": [{"name": to, "input": from}]});
        json!({"name": name, "implementation": "mlserver.Select", "parameters": {"extra": extra}}).to_string()
    };
    let remote = start(
        Folder::new()
            .file("first/model-settings.json", rename("first", "x", "y"))
            .file("second/model-settings.json", rename("second", "y", "z")),
    );
    let manifest = format!(
        "apiVersion: serving.kserve.io/v1alpha1
kind: InferenceGraph
metadata:
  name: graph
spec:
  nodes:
    root:
      routerType: Sequence
      steps:
        - serviceUrl: http://{}/v2/models/first/infer
          name: a
        - serviceUrl: grpc://{}
          name: second
          data: $response
          dependency: Hard
",
        remote.http, remote.grpc
    );
    let settings = r#"{"name": "graph", "implementation": "mlserver.Graph", "parameters": {"uri": "./graph.yaml"}}"#;
    let folder = Folder::new().file("graph/graph.yaml", manifest).file("graph/model-settings.json", settings);
    let server = start(folder.settings(&json!({"server_timing": true})));
    let answer = infer(&server, "graph");
    let timing = answer.header("server-timing").to_owned();
    assert_eq!(answer.ok()["outputs"][0], json!({"name": "z", "shape": [2], "datatype": "INT64", "data": [1, 2]}));
    assert!(timing.contains("step;desc=\"a\"") && timing.contains("step;desc=\"second\""), "{timing}");
}

#[test]
fn remote_last_step_of_a_stream_answers_once() {
    let remote = start(Folder::new().with_identity("echo"));
    for (name, url) in urls(&remote, "echo") {
        let server = start_graph("echo", &url);
        let answer = server.post("/v2/models/graph/infer_stream", REQUEST);
        let events: Vec<Value> =
            answer.text().lines().filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok()).collect();
        assert_eq!(events.len(), 1, "{name}: {}", answer.text());
        assert_eq!(events[0]["outputs"][0]["data"], json!([1, 2]));
        let unknown = start_graph("unknown", &url.replace("echo", "unknown"));
        let answer = unknown.post("/v2/models/graph/infer_stream", REQUEST);
        assert!(answer.text().contains("step \\\"unknown\\\": Model unknown not found"), "{}", answer.text());
    }
}

#[tokio::test]
async fn remote_step_of_a_call_over_grpc_has_its_metadata() {
    let echo = ScriptedServer::serve(Received::echo);
    let folder = graph(Folder::new(), "graph", &[("s", &format!("http://{}", echo.address))]);
    let server = start(folder.settings(&json!({"forward_headers": ["authorization"]})));
    let mut client = inference_client(server.grpc).await;
    let mut request = tonic::Request::new(infer_request("graph", "FP32", &[2], floats(&[0.5, 1.5])));
    request.metadata_mut().insert("authorization", "Bearer t0ken".parse().unwrap());
    let response = client.model_infer(request).await.unwrap().into_inner();
    assert_eq!((response.model_name.as_str(), response.outputs[0].shape.as_slice()), ("graph", &[2][..]));
    assert_eq!(echo.received()[0].header("authorization"), "Bearer t0ken");
}

#[test]
fn remote_answers_count_against_the_byte_budget() {
    let answer = json!({"outputs": [{"name": "y", "shape": [1], "datatype": "BYTES", "data": ["a".repeat(2 << 20)]}]});
    let answer = answer.to_string();
    let large = ScriptedServer::serve(move |_| Reply::Answer(200, "", answer.clone()));
    let folder = graph(Folder::new(), "graph", &[("s", &format!("http://{}", large.address))]);
    let server = start(folder.settings(&json!({"max_request_bytes_in_flight": 1 << 20})));
    let error = infer(&server, "graph").error(413);
    assert!(error.starts_with("step \"s\": ") && error.contains("max_request_bytes_in_flight"), "{error}");
    assert_eq!(server.request(&Method::GET, "/v2/health/live", &[], b"").status, 200);
}

/// The memory of answers is reserved while they arrive: those that do not fit are not received to their end.
#[test]
fn remote_answers_are_reserved_as_they_arrive() {
    let plain = json!({"outputs": [{"name": "y", "shape": [1], "datatype": "BYTES", "data": ["a".repeat(48 << 20)]}]});
    let plain = plain.to_string();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(plain.as_bytes()).unwrap();
    let compressed = encoder.finish().unwrap();
    assert!(compressed.len() < 1 << 20);
    let large = ScriptedServer::serve(move |received| match received.path.as_str() {
        "/gzip" => Reply::Bytes(200, vec!["content-encoding: gzip".to_owned()], compressed.clone()),
        _ => Reply::Answer(200, "", plain.clone()),
    });
    for path in ["/plain", "/gzip"] {
        let folder = graph(Folder::new(), "graph", &[("s", &format!("http://{}{path}", large.address))]);
        let server = start(folder.settings(&json!({"max_request_bytes_in_flight": 4 << 20})));
        let before = server.peak_memory();
        let error = infer(&server, "graph").error(413);
        assert!(error.starts_with("step \"s\": ") && error.contains("max_request_bytes_in_flight"), "{error}");
        let more = server.peak_memory() - before;
        assert!(more < 24 << 10, "{path}: {more} KiB for an answer that does not fit");
    }
}

#[test]
fn remote_answer_whose_shape_does_not_match_its_data_is_refused() {
    for (data, reason) in [(json!([1]), "1000000000"), (json!([[1, 2], [3]]), "ragged data"), (json!("a"), "expected")]
    {
        let answer = json!({"outputs": [{"name": "y", "shape": [1_000_000_000], "datatype": "INT64", "data": data}]})
            .to_string();
        let wrong = ScriptedServer::serve(move |_| Reply::Answer(200, "", answer.clone()));
        let server = start_graph("s", &format!("http://{}", wrong.address));
        let error = infer(&server, "graph").error(502);
        assert!(error.contains("cannot read the server's response") && error.contains(reason), "{error}");
    }
}

/// Two servers whose graphs ask each other: the load of each is right, so only the depth ends a request.
#[tokio::test(flavor = "multi_thread")]
async fn servers_that_ask_each_other_are_stopped_at_the_depth_limit() {
    for scheme in ["http", "grpc"] {
        let second_address = free_address();
        let first = start_graph("there", &format!("{scheme}://{second_address}"));
        let own = if scheme == "http" { first.http } else { first.grpc };
        let port = second_address.port().to_string();
        let variable = if scheme == "http" { "MLSERVER_HTTP_PORT" } else { "MLSERVER_GRPC_PORT" };
        let folder = graph(Folder::new(), "there", &[("graph", &format!("{scheme}://{own}"))]);
        let second = ServerBuilder::new(folder).env(variable, &port).start();
        let started = Instant::now();
        let error = infer(&first, "graph");
        if scheme == "http" {
            assert!(error.error(508).contains("more than 16 levels deep"), "{error:?}");
        }
        let mut client = inference_client(first.grpc).await;
        let request = infer_request("graph", "FP32", &[2], floats(&[0.5, 1.5]));
        let status = client.model_infer(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status}");
        assert!(started.elapsed() < PATIENCE);
        let count = |server: &TestServer, model: &str| {
            let metrics = server.scrape();
            let line = format!("graph_step_duration_seconds_count{{graph=\"{model}\"");
            let line = metrics.text().lines().find(|text| text.starts_with(&line)).map(str::to_owned).unwrap();
            line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()
        };
        assert_eq!(count(&first, "graph") + count(&second, "there"), 2 * 16, "{scheme}: two requests");
    }
}

#[test]
fn remote_step_trusts_the_certificates_of_ssl_cert_file() {
    let echo = ScriptedServer::serve_tls(Received::echo);
    let url = format!("https://localhost:{}", echo.address.port());
    let certificate = repository_path("tests/fixtures/tls/certificate.pem");
    let folder = || graph(Folder::new(), "graph", &[("s", &url)]);
    let trusting = ServerBuilder::new(folder()).env("SSL_CERT_FILE", certificate.to_str().unwrap()).start();
    assert_eq!(infer(&trusting, "graph").ok()["outputs"][0]["data"], json!([1, 2]));
}

#[test]
fn remote_steps_trust_a_self_signed_certificate_that_is_named() {
    let settings = json!({"tls_certificate": "server.pem", "tls_key": "server.key"});
    let folder = Folder::new().with_identity("echo").with_self_signed_certificate().settings(&settings);
    let remote = ServerBuilder::new(folder).listen();
    remote.wait_for_log("Loaded model");
    let certificate = remote.folder.path("server.pem");
    let serve = |scheme: &str, port: u16, certificate: Option<&str>| {
        let folder = graph(Folder::new(), "graph", &[("echo", &format!("{scheme}://localhost:{port}"))]);
        let starting = ServerBuilder::new(folder).env("NO_PROXY", "*");
        certificate.into_iter().fold(starting, |starting, path| starting.env("SSL_CERT_FILE", path)).start()
    };
    for (scheme, port) in [("https", remote.http.port()), ("grpcs", remote.grpc.port())] {
        let trusting = serve(scheme, port, certificate.to_str());
        assert_eq!(infer(&trusting, "graph").ok()["outputs"][0]["data"], json!([1, 2]), "{scheme}");
        let answer = infer(&serve(scheme, port, None), "graph");
        assert!(answer.status >= 500, "{scheme}: {answer:?}");
    }
}
