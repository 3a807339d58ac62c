//! The model repository API over REST.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use http::Method;
use mlserver::types::protobuf::messages::{RepositoryModelLoadRequest, ServerReadyRequest};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tonic::{Code, Status};

use crate::support::grpc::{InferenceClient, floats, infer_request, inference_client};
use crate::support::{Answer, Client, Folder, PATIENCE, ServerBuilder, TestServer};

const INDEX: &str = "/v2/repository/index";
const LOAD: &str = "/v2/repository/models/m/load";
const UNLOAD: &str = "/v2/repository/models/m/unload";
const INFER: &str = "/v2/models/m/infer";
const ONE_ROW: &str = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[6.2,2.8,4.8,1.8]}]}"#;

/// A LightGBM model of four features that answers `value` for every row.
fn constant(value: u32) -> String {
    format!(
        "tree\nversion=v4\nnum_class=1\nnum_tree_per_iteration=1\nlabel_index=0\nmax_feature_idx=3\n\
         objective=regression\nfeature_names=a b c d\nfeature_infos=none none none none\n\n\
         Tree=0\nnum_leaves=1\nnum_cat=0\nleaf_value={value}\nshrinkage=1\n\n\nend of trees\n"
    )
}

fn settings(version: Option<&str>) -> String {
    json!({"name": "m", "implementation": "mlserver_lightgbm.LightGBMModel", "parameters": {"version": version, "uri": "./model.bst"}})
        .to_string()
}

/// Replaces the content of the folder with a version of `m`.
fn put(server: &TestServer, folder: &str, version: Option<&str>, model: &str) {
    let path = server.folder.path(folder);
    std::fs::create_dir_all(&path).unwrap();
    std::fs::write(path.join("model.bst"), model).unwrap();
    std::fs::write(path.join("model-settings.json"), settings(version)).unwrap();
}

/// A folder with `m`, which answers 1.
fn one() -> Folder {
    Folder::new().file("m/model.bst", constant(1)).file("m/model-settings.json", settings(None))
}

#[track_caller]
fn value(answer: &Answer) -> f64 {
    answer.ok()["outputs"][0]["data"][0].as_f64().unwrap()
}

#[track_caller]
fn done(answer: &Answer) {
    assert_eq!((answer.status, answer.text()), (200, ""));
}

fn index(client: &Client) -> Vec<Value> {
    client.post(INDEX, "{}").ok().as_array().unwrap().clone()
}

#[test]
fn repository_load_reload_and_unload() {
    let server = ServerBuilder::new(Folder::new()).flag("--allow-empty").start();
    assert_eq!(index(&server), [json!(null); 0]);
    assert_eq!(server.post(LOAD, "").error(404), "Model m not found");
    assert_eq!(server.post(UNLOAD, "").error(404), "Model m not found");
    put(&server, "m", None, &constant(1));
    assert_eq!(index(&server), [json!({"name": "m", "state": "UNAVAILABLE", "reason": ""})]);
    assert_eq!(server.post(INFER, ONE_ROW).error(404), "Model m not found");
    done(&server.post(LOAD, ""));
    assert_eq!(index(&server), [json!({"name": "m", "state": "READY", "reason": ""})]);
    assert!((value(&server.post(INFER, ONE_ROW)) - 1.0).abs() < 1e-6);
    put(&server, "m", None, &constant(2));
    done(&server.post(LOAD, r#"{"parameters": {}}"#));
    assert!((value(&server.post(INFER, ONE_ROW)) - 2.0).abs() < 1e-6);
    done(&server.post(UNLOAD, r#"{"parameters": {"unload_dependents": false}}"#));
    assert_eq!(server.post(INFER, ONE_ROW).error(404), "Model m not found");
    assert_eq!(server.get("/v2/models/m/ready").error(404), "Model m not found");
    assert_eq!(index(&server), [json!({"name": "m", "state": "UNAVAILABLE", "reason": ""})]);
    assert_eq!(server.get("/v2/health/ready").status, 200);
    let log = server.terminate().stdout;
    for line in ["Loaded model 'm'", "Reloaded model 'm'", "Unloaded all versions of model 'm'"] {
        assert!(log.contains(&format!("[mlserver][m] INFO - {line} successfully.")), "{log}");
    }
}

#[test]
fn repository_versions_load_and_unload_together() {
    let folder = Folder::new().file("m/1/model.bst", constant(1)).file("m/1/model-settings.json", settings(Some("1")));
    let server = TestServer::start(folder);
    put(&server, "m/2", Some("2"), &constant(2));
    let state = |version: &str, state: &str| json!({"name": "m", "version": version, "state": state, "reason": ""});
    assert_eq!(index(&server), [state("1", "READY"), state("2", "UNAVAILABLE")]);
    assert_eq!(server.post(INDEX, r#"{"ready": "yes"}"#).ok(), json!([state("1", "READY")]));
    done(&server.post(LOAD, ""));
    assert_eq!(server.post(INFER, ONE_ROW).ok()["model_version"], "2");
    std::fs::remove_dir_all(server.folder.path("m/1")).unwrap();
    done(&server.post(LOAD, ""));
    assert_eq!(server.post("/v2/models/m/versions/1/infer", ONE_ROW).error(404), "Model m with version 1 not found");
    assert_eq!(index(&server), [state("2", "READY")]);
}

#[test]
fn repository_index_accepts_client_bodies() {
    let server = TestServer::start(one());
    for all in ["", "{}", r#"{"ready": null}"#, r#"{"ready": false}"#, r#"{"ready": "on"}"#] {
        assert_eq!(server.post(INDEX, all).ok().as_array().unwrap().len(), 1, "{all}");
    }
    let error = server.post(INDEX, r#"{"ready": 5}"#).error(422);
    assert_eq!(error, "`ready`: expected true or false, found `5`");
    server.post(INDEX, "[]").error(422);
    server.post(INDEX, "{").error(422);
    for path in [INDEX, LOAD, UNLOAD] {
        let answer = server.get(path);
        assert_eq!((answer.status, answer.header("allow")), (405, "POST"), "{path}");
    }
    assert_eq!(server.request(&Method::POST, "/v2/repository/models/m/versions/1/load", &[], b"").status, 404);
}

#[test]
fn repository_failed_reload_keeps_the_old_model() {
    let server = TestServer::start(one());
    put(&server, "m", None, "no model");
    let error = server.post(LOAD, "").error(500);
    let path = server.folder.path("m/model.bst");
    assert!(
        error.starts_with(&format!("`{}` is not a model that can be served natively: ", path.display())),
        "{error}"
    );
    assert!(error.ends_with("; the previous version keeps serving"), "{error}");
    assert!((value(&server.post(INFER, ONE_ROW)) - 1.0).abs() < 1e-6);
    assert_eq!(server.get("/v2/health/ready").status, 200);
    let entry = &index(&server)[0];
    assert_eq!(entry["state"], "READY");
    assert!(error.starts_with(entry["reason"].as_str().unwrap()), "{entry}");
    assert!(server.wait_for_log("Couldn't load model 'm': ").contains("The previous version keeps serving."));

    std::fs::remove_file(&path).unwrap();
    let error = server.post(LOAD, "").error(422);
    assert!(error.starts_with(&format!("Invalid URI specified for model m ({})", path.display())), "{error}");
    std::fs::write(server.folder.path("m/model-settings.json"), "{").unwrap();
    let error = server.post(LOAD, "").error(422);
    assert!(error.contains("is not valid JSON"), "{error}");
    assert!((value(&server.post(INFER, ONE_ROW)) - 1.0).abs() < 1e-6);

    done(&server.post(UNLOAD, ""));
    put(&server, "m", None, "no model");
    let error = server.post(LOAD, "").error(500);
    assert!(!error.contains("still served"), "{error}");
    assert_eq!(server.post(INFER, ONE_ROW).error(404), "Model m not found");
    assert_eq!(server.get("/v2/health/ready").status, 200);
}

#[test]
fn repository_load_waits_for_warm_up() {
    let sample = |columns: usize| {
        let data = vec![1.0; columns];
        json!({"inputs": [{"name": "x", "shape": [1, columns], "datatype": "FP32", "data": data}]})
    };
    let with = |samples: Value| {
        json!({"name": "m", "implementation": "mlserver_lightgbm.LightGBMModel", "warmup": samples}).to_string()
    };
    let server = TestServer::start(one().file("m/model-settings.json", with(json!([sample(4)]))));
    std::fs::write(server.folder.path("m/model-settings.json"), with(json!([sample(4), sample(3)]))).unwrap();
    let error = server.post(LOAD, "").error(500);
    assert!(error.starts_with("the model was loaded but does not answer `warmup[1]` of its settings: "), "{error}");
    server.post(INFER, ONE_ROW).ok();
}

/// A client that sends requests to one model without pause.
trait PredictClient: Send {
    /// Predicts one row, and checks that the server is ready.
    fn ask(&mut self) -> Result<f64, String>;
}

/// A client of a model over REST.
struct RestPredictClient {
    client: Client,
    model: &'static str,
}

impl RestPredictClient {
    fn new(server: &TestServer, model: &'static str) -> Self {
        Self { client: Client::new(server.http), model }
    }
}

impl PredictClient for RestPredictClient {
    fn ask(&mut self) -> Result<f64, String> {
        let answer = self.client.post(&format!("/v2/models/{}/infer", self.model), ONE_ROW);
        let ready = self.client.get("/v2/health/ready").status;
        if (answer.status, ready) == (200, 200) { Ok(value(&answer)) } else { Err(format!("{answer:?}, {ready}")) }
    }
}

/// The same over gRPC.
struct GrpcPredictClient {
    model: &'static str,
    runtime: Runtime,
    client: InferenceClient,
}

impl GrpcPredictClient {
    fn new(server: &TestServer, model: &'static str) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let client = runtime.block_on(inference_client(server.grpc));
        Self { model, runtime, client }
    }

    fn load(&mut self) -> Result<(), Status> {
        let request = RepositoryModelLoadRequest { model_name: "m".to_owned(), ..Default::default() };
        self.runtime.block_on(self.client.repository_model_load(request)).map(drop)
    }
}

impl PredictClient for GrpcPredictClient {
    fn ask(&mut self) -> Result<f64, String> {
        let asked = self.runtime.block_on(async {
            let row = infer_request(self.model, "FP32", &[1, 4], floats(&[6.2, 2.8, 4.8, 1.8]));
            let answer = self.client.model_infer(row).await?.into_inner();
            let ready = self.client.server_ready(ServerReadyRequest {}).await?.into_inner().ready;
            Ok::<_, Status>((answer, ready))
        });
        match asked {
            Ok((answer, true)) => Ok(answer.outputs[0].contents.as_ref().unwrap().fp64_contents[0]),
            other => Err(format!("{other:?}")),
        }
    }
}

/// Sends requests until `stop` is set, and returns how long each took, or the first wrong answer.
fn predict_until(stop: &AtomicBool, client: &mut dyn PredictClient, expected: &[f64]) -> Result<Vec<Duration>, String> {
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let value = client.ask()?;
        times.push(start.elapsed());
        if !expected.iter().any(|wanted| (value - wanted).abs() < 1e-6) {
            return Err(format!("{value} instead of one of {expected:?}"));
        }
    }
    Ok(times)
}

fn percentile(times: &mut [Duration], part: f64) -> Duration {
    times.sort_unstable();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a rank")]
    let rank = ((times.len() - 1) as f64 * part) as usize;
    times[rank]
}

/// Runs `work` concurrently with clients, none of which may fail, and returns how long their requests took.
fn with_load(clients: &mut [Box<dyn PredictClient>], expected: &[f64], work: impl FnOnce()) -> Vec<Duration> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking = |client| scope.spawn(|| predict_until(&stop, client, expected));
        let clients: Vec<_> = clients.iter_mut().map(|client| asking(client.as_mut())).collect();
        // Set even if the work panics, because the scope waits for the clients.
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        stop.store(true, Ordering::Relaxed);
        let times: Result<Vec<_>, _> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        let times = times.unwrap_or_else(|failure| unreachable!("a request failed: {failure}")).concat();
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        times
    })
}

/// Loads `m` a hundred times while clients use it. Every tenth load fails, and the previous model keeps serving.
///
/// Returns how long the clients waited.
fn a_hundred_reloads(
    server: &TestServer,
    clients: &mut [Box<dyn PredictClient>],
    mut load: impl FnMut(bool),
) -> String {
    let own = Client::new(server.http);
    let mut calm = with_load(clients, &[1.0], || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(500) {
            own.get("/v2/health/live").ok();
        }
    });
    let mut busy = with_load(clients, &[0.0, 1.0], || {
        for number in 0_u32..100 {
            if number % 10 == 9 {
                put(server, "m", None, "no model");
                load(false);
            } else {
                put(server, "m", None, &constant(number % 2));
                load(true);
                let answer = f64::from(number % 2);
                assert!((value(&own.post(INFER, ONE_ROW)) - answer).abs() < 1e-6, "{number}");
            }
        }
    });
    assert!(busy.len() > 100, "{} requests are no load", busy.len());
    format!(
        "{} requests, p50 {:?}, p99 {:?}; during 100 reloads {}, p50 {:?}, p99 {:?}",
        calm.len(),
        percentile(&mut calm, 0.5),
        percentile(&mut calm, 0.99),
        busy.len(),
        percentile(&mut busy, 0.5),
        percentile(&mut busy, 0.99)
    )
}

#[test]
fn repository_reload_under_load_loses_no_request() {
    let server = TestServer::start(one());
    let mut clients: Vec<Box<dyn PredictClient>> = Vec::new();
    clients.resize_with(4, || Box::new(RestPredictClient::new(&server, "m")));
    let times = a_hundred_reloads(&server, &mut clients, |works| {
        let answer = server.post(LOAD, "");
        if works { done(&answer) } else { drop(answer.error(500)) }
    });
    println!("{times}");
}

#[test]
fn repository_reload_under_load_loses_no_grpc_call() {
    let server = TestServer::start(one());
    let mut clients: Vec<Box<dyn PredictClient>> = Vec::new();
    clients.resize_with(4, || Box::new(GrpcPredictClient::new(&server, "m")));
    let mut loading = GrpcPredictClient::new(&server, "m");
    let times = a_hundred_reloads(&server, &mut clients, |works| {
        let failure = loading.load().err().map(|status| status.code());
        assert_eq!(failure, (!works).then_some(Code::Internal));
    });
    println!("{times}");
}

/// `m`, as the only step of a graph.
#[test]
fn graph_loses_no_request_while_its_step_is_reloaded() {
    let manifest = json!({
        "apiVersion": "mlops.seldon.io/v1alpha1",
        "kind": "Pipeline",
        "metadata": {"name": "graph"},
        "spec": {"steps": [{"name": "m"}], "output": {"steps": ["m"]}},
    });
    let settings = json!({"name": "graph", "implementation": "mlserver.Graph", "parameters": {"uri": "./graph.json"}});
    let folder =
        one().file("graph/graph.json", manifest.to_string()).file("graph/model-settings.json", settings.to_string());
    let server = TestServer::start(folder);
    let mut clients: Vec<Box<dyn PredictClient>> = Vec::new();
    for _ in 0..2 {
        clients.push(Box::new(RestPredictClient::new(&server, "graph")));
        clients.push(Box::new(GrpcPredictClient::new(&server, "graph")));
    }
    let times = a_hundred_reloads(&server, &mut clients, |works| {
        let answer = server.post(LOAD, "");
        if works { done(&answer) } else { drop(answer.error(500)) }
    });
    println!("{times}");
}

#[test]
fn repository_concurrent_loads_and_unloads_succeed() {
    let server = TestServer::start(one());
    thread::scope(|scope| {
        for _ in 0..4 {
            let client = Client::new(server.http);
            scope.spawn(move || {
                for _ in 0..10 {
                    done(&client.post(LOAD, ""));
                }
            });
        }
        let client = Client::new(server.http);
        scope.spawn(move || {
            for _ in 0..10 {
                assert!([200, 404].contains(&client.post(UNLOAD, "").status));
            }
        });
    });
    done(&server.post(LOAD, ""));
    assert_eq!(index(&server), [json!({"name": "m", "state": "READY", "reason": ""})]);
}

#[test]
fn repository_unload_finishes_requests_in_flight() {
    let server = TestServer::start(one());
    let mut upload = server.connect();
    upload.start_upload(INFER, ONE_ROW.len());
    done(&server.post(UNLOAD, ""));
    assert_eq!(server.post(INFER, ONE_ROW).error(404), "Model m not found");
    upload.write(ONE_ROW);
    assert!((value(&upload.answer()) - 1.0).abs() < 1e-6);
}

#[test]
fn repository_thousand_loads_and_unloads_leak_nothing() {
    let server = TestServer::start(one());
    let cycle = |count: usize| {
        for number in 0..count {
            let name = format!("m{}", number % 7);
            let settings = json!({"name": name, "implementation": "mlserver_lightgbm.LightGBMModel"}).to_string();
            std::fs::write(server.folder.path("m/model-settings.json"), settings).unwrap();
            done(&server.post(&format!("/v2/repository/models/{name}/load"), ""));
            server.post(&format!("/v2/models/{name}/infer"), ONE_ROW).ok();
            done(&server.post(&format!("/v2/repository/models/{name}/unload"), ""));
        }
    };
    done(&server.post(UNLOAD, ""));
    cycle(200);
    let (memory, series) = (server.memory(), server.scrape().text().lines().count());
    cycle(1000);
    let grown = server.memory().saturating_sub(memory);
    assert!(grown < 2048, "{grown} KiB more than the {memory} KiB before");
    assert_eq!(server.scrape().text().lines().count(), series);
    assert!(!server.scrape().text().contains("model=\"m"), "models that are gone have no series");
}

#[test]
fn repository_load_during_shutdown_is_rejected() {
    let settings =
        json!({"name": "m", "implementation": "mlserver_lightgbm.LightGBMModel", "parameters": {"uri": "./pipe"}});
    let folder = one().settings(&json!({"shutdown_grace_period": 25}));
    let pipe = folder.path("m/pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let server = ServerBuilder::new(folder).start();
    std::fs::write(server.folder.path("m/model-settings.json"), settings.to_string()).unwrap();
    let client = Client::new(server.http);
    let loading = thread::spawn(move || client.post(LOAD, ""));
    // A pipe opens for writing once it is read: the load is in flight and waits. The old model is ready.
    let deadline = Instant::now() + PATIENCE;
    let mut writing = OpenOptions::new();
    writing.write(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    let _pipe = loop {
        match writing.open(&pipe) {
            Ok(pipe) => break pipe,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        thread::yield_now();
    };
    assert_eq!(index(&server), [json!({"name": "m", "state": "READY", "reason": ""})]);
    server.post(INFER, ONE_ROW).ok();
    server.signal(Signal::TERM);
    let answer = loading.join().unwrap();
    assert_eq!(answer.error(503), "the server is shutting down; try another one");
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(server.ended().code, Some(0));
}
