//! The log must never hold up the server.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::python::with_python;
use crate::support::worker_models::infer;
use crate::support::{Client, Folder, TestServer, announced_address, pause, wait_until, worker_models};

/// Many times what a pipe holds, at about 150 bytes a line.
const REQUESTS: usize = 3000;

#[test]
fn log_reader_that_is_stuck_does_not_stop_requests() {
    let folder = Folder::new().with_identity("m");
    let mut server = Command::new(env!("CARGO_BIN_EXE_mlserver"))
        .args(["start", folder.root().to_str().unwrap()])
        .env_clear()
        .envs([("MLSERVER_HOST", "127.0.0.1"), ("MLSERVER_DEBUG", "true")])
        .envs([("MLSERVER_HTTP_PORT", "0"), ("MLSERVER_GRPC_PORT", "0"), ("MLSERVER_METRICS_PORT", "0")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // Kept open and not read any more, as by a log collector that hangs.
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut log = String::new();
    while !log.contains("Loaded model") {
        assert_ne!(stdout.read_line(&mut log).unwrap(), 0, "{log}");
    }
    let client = Client::new(announced_address(&log, "HTTP").unwrap());
    let mut slowest = Duration::ZERO;
    for _ in 0..REQUESTS {
        let asked = Instant::now();
        assert_eq!(client.get("/v2/models/m").status, 200);
        slowest = slowest.max(asked.elapsed());
    }
    assert!(slowest < Duration::from_secs(20), "a request took {slowest:?}");
    // Lines that nobody reads do not keep the server from ending either.
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    let ended = Instant::now();
    assert!(server.wait().unwrap().success());
    assert!(ended.elapsed() < Duration::from_secs(20), "{:?}", ended.elapsed());
}

#[test]
fn log_reader_that_recovers_sees_how_many_lines_were_dropped() {
    let folder = Folder::new().with_identity("m");
    let mut server = Command::new(env!("CARGO_BIN_EXE_mlserver"))
        .args(["start", folder.root().to_str().unwrap()])
        .env_clear()
        .envs([("MLSERVER_HOST", "127.0.0.1"), ("MLSERVER_DEBUG", "true")])
        .envs([("MLSERVER_HTTP_PORT", "0"), ("MLSERVER_GRPC_PORT", "0"), ("MLSERVER_METRICS_PORT", "0")])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut log = String::new();
    while !log.contains("Loaded model") {
        assert_ne!(stdout.read_line(&mut log).unwrap(), 0, "{log}");
    }
    let client = Client::new(announced_address(&log, "HTTP").unwrap());
    let metrics = Client::new(announced_address(&log, "Metrics").unwrap());
    while metrics.get("/metrics").text().contains("\nlog_lines_dropped_total 0\n") {
        (0..200).for_each(|_| assert_eq!(client.get("/v2/models/m").status, 200));
    }
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        while !line.contains("log lines because their reader was stuck") {
            line.clear();
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0, "the log ended");
        }
        // Read the rest, so that the server is not stuck again.
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        line
    });
    while !reader.is_finished() {
        assert_eq!(client.get("/v2/models/m").status, 200);
    }
    let line = reader.join().unwrap();
    assert!(line.contains("WARNING - Dropped "), "{line}");
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert!(server.wait().unwrap().success());
}

#[test]
fn log_of_failing_requests_is_limited() {
    let Some(server) = worker_models::server(&[("m", "Trouble")], &serde_json::json!({})) else { return };
    let client = Client::new(server.http);
    for _ in 0..100 {
        assert_eq!(infer(&client, "m", "value").status, 500);
    }
    server.wait_for_log("Failed to answer 90 more requests.");
    let count = |text: &str| server.log().matches(text).count();
    let (failures, tracebacks) = (count("ERROR - Failed to answer a request."), count("\n    | Traceback"));
    assert_eq!(
        (failures, tracebacks, count(" ERROR - ")),
        (10, 10, 11),
        "one record for each failure, and their number"
    );
}

#[test]
fn log_has_one_traceback_for_each_failed_request_of_a_batch() {
    let source = "
import os, time
from mlserver import MLModel
from mlserver.types import InferenceResponse

class Picky(MLModel):
    def predict(self, payload):
        numbers = list(payload.inputs[0].data)
        print('rows:', len(numbers))
        while 0 in numbers and not os.path.exists('go'):
            time.sleep(0.01)
        if -1 in numbers:
            raise ValueError('a negative number')
        return InferenceResponse(model_name=self.name, outputs=[])
";
    let settings = serde_json::json!({
        "name": "m", "implementation": "models.Picky", "max_batch_size": 2, "max_batch_time": 60,
    });
    let folder = Folder::new().file("models.py", source).file("model-settings.json", settings.to_string());
    let Some(builder) = with_python(folder) else { return };
    let server = builder.start();
    let post = |number: i64| {
        let input = serde_json::json!({"name": "x", "shape": [1, 1], "datatype": "INT64", "data": [number]});
        server.post("/v2/models/m/infer", serde_json::json!({ "inputs": [input] }).to_string()).status
    };
    let go = server.folder.path("go");
    let mut failed = 0;
    while !server.log().contains("rows: 2") {
        std::thread::scope(|scope| {
            let busy = scope.spawn(|| post(0));
            wait_until("the model is busy", || server.log().matches("rows: 1").count() > 3 * failed);
            // They share a batch if both arrive while the model is busy.
            let (bad, good) = (scope.spawn(|| post(-1)), scope.spawn(|| post(1)));
            pause(Duration::from_millis(300));
            std::fs::write(&go, "").unwrap();
            let codes = [busy, bad, good].map(|thread| thread.join().unwrap());
            assert_eq!(codes, [200, 500, 200]);
        });
        std::fs::remove_file(&go).unwrap();
        failed += 1;
        assert!(failed < 20, "no batch:\n{}", server.log());
    }
    let tracebacks = server.log().matches("\n    | ValueError: a negative number").count();
    assert_eq!(tracebacks, failed, "{}", server.log());
}

#[test]
fn log_has_no_line_for_failures_that_clients_cause() {
    let server = TestServer::start(Folder::new().with_identity("m"));
    let body = r#"{"id":"ID","inputs":[{"name":"x","shape":[1],"datatype":"INT32","data":[1]}]}"#;
    let body = body.replace("ID", &"i".repeat(16 << 10));
    for timeout in ["0", "0.000001"] {
        let headers = [("content-type", "application/json"), ("request-timeout", timeout)];
        (0..20).for_each(|_| drop(server.post_with("/v2/models/m/infer", &headers, &body)));
    }
    assert!(!server.log().contains("ERROR") && server.log().len() < 100_000, "{:.1000}", server.log());
}
