//! Short load tests; `benches/serving/load.py` does the same for longer.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::python::with_python;
use crate::support::worker_models::folder;
use crate::support::{Client, Folder, PATIENCE, TestServer, pause, wait_until};

/// The duration of a prediction of any batch size, in milliseconds.
const PREDICT: u64 = 200;
/// The batch size, and the limit of the queue.
const BATCH: usize = 4;
const QUEUE: usize = 8;

/// The time to work through a full queue.
const QUEUE_TIME: Duration = Duration::from_millis(PREDICT * (QUEUE / BATCH) as u64);

fn infer(client: &Client) -> u16 {
    let body = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[200]}]}"#;
    client.post("/v2/models/m/infer", body).status
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

#[test]
fn overload_answers_503_and_serves_accepted_in_time() {
    // Much shorter than a prediction: batches stay open anyway until the model is free.
    let settings = json!({
        "name": "m", "implementation": "models.Rows", "max_batch_size": BATCH, "max_batch_time": 0.01,
        "parameters": {"max_queue_requests": QUEUE},
    });
    let folder = folder(&[("m", "Rows")]).file("m/model-settings.json", settings.to_string());
    let Some(starting) = with_python(folder) else { return };
    let server = starting.start();
    let alone = |_| {
        let asked = Instant::now();
        assert_eq!(infer(&Client::new(server.http)), 200);
        asked.elapsed()
    };
    let unloaded = percentile(&mut (0..3).map(alone).collect::<Vec<_>>(), 50);

    let (stop, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (accepted, probes) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let memory = thread::scope(|scope| {
        // Ten times as many clients as the model and its queue can hold, which together request ten times its
        // throughput. Rejected clients wait a little, so that they do not take the CPU from the worker.
        for _ in 0..10 * (QUEUE + BATCH) {
            scope.spawn(|| {
                let client = Client::new(server.http);
                while !stop.load(Ordering::Relaxed) {
                    let asked = Instant::now();
                    match infer(&client) {
                        200 => accepted.lock().unwrap().push(asked.elapsed()),
                        503 => {
                            refused.fetch_add(1, Ordering::Relaxed);
                            pause(Duration::from_millis(500));
                        }
                        other => unreachable!("{other}"),
                    }
                }
            });
        }
        scope.spawn(|| {
            let (rest, metrics) = (Client::new(server.http), Client::new(server.metrics.unwrap()));
            while !stop.load(Ordering::Relaxed) {
                for (client, path) in [(&rest, "/v2/health/ready"), (&metrics, "/metrics")] {
                    let asked = Instant::now();
                    assert_eq!(client.get(path).status, 200);
                    probes.lock().unwrap().push(asked.elapsed());
                }
                pause(Duration::from_millis(20));
            }
        });
        pause(Duration::from_millis(1500));
        let before = server.memory();
        pause(Duration::from_millis(2500));
        let after = server.memory();
        stop.store(true, Ordering::Relaxed);
        (before, after)
    });

    let (mut accepted, refused) = (accepted.into_inner().unwrap(), refused.into_inner());
    assert!(accepted.len() > BATCH * 4, "{} were answered", accepted.len());
    assert!(refused > accepted.len(), "{refused} were refused, {} answered", accepted.len());
    let (p99, bound) = (percentile(&mut accepted, 99), unloaded * 3 + QUEUE_TIME);
    assert!(p99 < bound, "{p99:?}, with {unloaded:?} unloaded and {QUEUE_TIME:?} in the queue");
    let probe = percentile(&mut probes.into_inner().unwrap(), 90);
    assert!(probe < Duration::from_millis(100), "{probe:?} for health and metrics");
    let (before, after) = memory;
    assert!(after <= before + 1024, "{before} KiB, then {after} KiB");
    assert_eq!(server.terminate().code, Some(0));
}

/// A model that predicts 20 requests a second, and 400 clients that come back a second after they were rejected.
#[test]
fn overload_with_default_settings_answers_every_caller_in_time() {
    let folder = folder(&[("m", "Rows")]).settings(&json!({"parallel_workers": 1}));
    let Some(starting) = with_python(folder) else { return };
    let server = starting.start();
    let body = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[50]}]}"#;
    let post = |client: &Client| client.post("/v2/models/m/infer", body).status;
    let client = Client::new(server.http);
    let started = Instant::now();
    (0..10).for_each(|_| assert_eq!(post(&client), 200));
    let alone = started.elapsed() / 10;

    let duration = Duration::from_secs(10);
    let (answered, rejected, slowest) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Duration::ZERO));
    let before = server.memory();
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..400 {
            scope.spawn(|| {
                let client = Client::new(server.http);
                while started.elapsed() < duration {
                    let asked = Instant::now();
                    let status = post(&client);
                    let took = asked.elapsed();
                    let mut slowest = slowest.lock().unwrap();
                    *slowest = took.max(*slowest);
                    drop(slowest);
                    match status {
                        200 => answered.fetch_add(1, Ordering::Relaxed),
                        503 => {
                            pause(Duration::from_secs(1));
                            rejected.fetch_add(1, Ordering::Relaxed)
                        }
                        other => unreachable!("{other}"),
                    };
                }
            });
        }
    });
    let (answered, rejected) = (answered.into_inner(), rejected.into_inner());
    let slowest = slowest.into_inner().unwrap();
    let after = server.memory();
    println!("{slowest:?} at most; {answered} answered, {rejected} rejected; {before} KiB, then {after} KiB");
    assert!(slowest < Duration::from_secs(3), "a caller waited for {slowest:?}");
    let capacity = duration.as_secs_f64() / alone.as_secs_f64();
    let used = f64::from(u32::try_from(answered).unwrap()) / capacity;
    assert!(used > 0.8, "{answered} answered of {capacity}");
    assert!(rejected > answered * 3, "{answered} answered, {rejected} rejected");
    assert!(after <= before + (50 << 10), "{before} KiB, then {after} KiB");
}

/// Sends one of several kinds of requests, by number; most are invalid.
fn mixed(server: &TestServer, client: &Client, number: usize) {
    let good = r#"{"inputs":[{"name":"x","shape":[3],"datatype":"FP32","data":[1,2,3]}]}"#;
    let infer = "/v2/models/echo/infer";
    match number % 8 {
        0 | 1 => assert_eq!(client.post(infer, good).status, 200),
        2 => assert_eq!(client.post(infer, &good[..40]).status, 422),
        3 => assert_eq!(client.post(infer, good.replace("[3]", "[4]")).status, 400),
        4 => assert_eq!(client.post(&format!("/v2/models/unknown-{number}/infer"), good).status, 404),
        5 => assert_eq!(client.get(&format!("/v2/nothing/{number}")).status, 404),
        // Clients that disconnect in the middle of their request, and before its response.
        other => {
            let mut connection = TcpStream::connect(server.http).unwrap();
            let sent = if other == 6 { &good[..20] } else { good };
            let length = good.len();
            let request = format!("POST {infer} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n{sent}");
            connection.write_all(request.as_bytes()).unwrap();
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

fn mix(server: &TestServer, requests: usize) {
    thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let client = Client::new(server.http);
                (0..requests / 4).for_each(|number| mixed(server, &client, number * 4 + thread));
            });
        }
    });
}

#[test]
fn errors_and_disconnects_leak_nothing() {
    let server = TestServer::start(Folder::new().with_identity("echo"));
    let idle = server.descriptors();
    let after = |requests| {
        mix(&server, requests);
        wait_until("every connection ends", || server.descriptors() <= idle);
        server.memory()
    };
    // The first requests allocate memory that is reused.
    let warm = after(4000);
    let end = after(8000);
    assert!(end <= warm + warm / 20 + 512, "{warm} KiB, then {end} KiB");
    let scrape = server.scrape();
    assert!(scrape.text().contains("model_infer_in_flight{model=\"echo\",version=\"None\"} 0\n"), "{}", scrape.text());
}

#[test]
fn short_requests_are_answered_while_the_queue_is_full_of_long_ones() {
    let settings = json!({"name": "iris", "parameters": {"max_queue_requests": 1}});
    let server = TestServer::start(Folder::new().with_iris("iris", &settings));
    let rows = 100_000;
    let head = json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [rows, 4],
        "parameters": {"binary_data_size": rows * 16}}], "parameters": {"binary_data_output": true}});
    let head = head.to_string();
    let length = head.len().to_string();
    let long = [head.as_bytes(), &vec![0; rows * 16]].concat();
    let short = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[5.1,3.5,1.4,0.2]}]}"#;
    let invalid = r#"{"inputs":[{"name":"x","shape":[1,3],"datatype":"FP32","data":[5.1,3.5,1.4]}]}"#;
    let row = json!({"instances": [[5.1, 3.5, 1.4, 0.2]]}).to_string();
    // So that some long ones wait on every machine.
    let clients = 3 * thread::available_parallelism().map_or(1, usize::from) + 4;
    let (refused, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let is_done = || refused.load(Ordering::Relaxed) >= 20 && answered.load(Ordering::Relaxed) >= 300;
    let deadline = Instant::now() + PATIENCE;
    thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| {
                let client = Client::new(server.http);
                let headers = [("inference-header-content-length", length.as_str())];
                while !is_done() && Instant::now() < deadline {
                    let answer = client.post_with("/v2/models/iris/infer", &headers, &long);
                    match answer.status {
                        200 => {}
                        503 => {
                            assert!(answer.text().contains("`max_queue_requests`"), "{answer:?}");
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                        other => unreachable!("{other}"),
                    }
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let client = Client::new(server.http);
                while !is_done() && Instant::now() < deadline {
                    assert_eq!(client.post("/v2/models/iris/infer", short).status, 200);
                    assert_eq!(client.post("/v2/models/iris/infer", invalid).status, 400);
                    assert_eq!(client.post("/v1/models/iris:predict", &row).status, 200);
                    answered.fetch_add(3, Ordering::Relaxed);
                }
            });
        }
    });
    assert!(is_done(), "{refused:?} long requests were refused, {answered:?} short ones answered");
}
