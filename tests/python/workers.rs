//! Models in Python: worker processes, and the requests of workers that fail.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use mlserver::types::protobuf::messages::InferTensorContents;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::grpc::{infer_request, inference_client};
use crate::support::python::python;
use crate::support::worker_models::{SOON, folder, has_ended, infer, pid, send, server, starting, value};
use crate::support::{Answer, Client, Folder, ServerBuilder, TestServer, pause, repository_path, wait_until};

#[test]
fn silent_streams_leave_calls_of_a_worker() {
    let Some(server) = server(&[("stream", "Stream"), ("m", "Coroutine")], &json!({})) else { return };
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut streams = Vec::new();
        for _ in 0..3 {
            let mut client = inference_client(server.grpc).await;
            for _ in 0..100 {
                let request = infer_request(
                    "stream",
                    "INT64",
                    &[1],
                    InferTensorContents { int64_contents: vec![1], ..Default::default() },
                );
                let silent = futures_util::stream::iter([request]).chain(futures_util::stream::pending());
                let mut answers = client.model_stream_infer(silent).await.unwrap().into_inner();
                if answers.message().await.is_ok() {
                    streams.push(answers);
                }
            }
        }
        assert_eq!(streams.len(), 128);
        let began = Instant::now();
        let client = server.clone();
        tokio::task::spawn_blocking(move || value(&infer(&client, "m", 1))).await.unwrap();
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    });
}

#[test]
fn python_predict_may_be_coroutine_plain_or_blocking() {
    let models = [("coroutine", "Coroutine"), ("plain", "Plain"), ("blocking", "Blocking"), ("late", "Metadata")];
    let Some(server) = server(&models, &json!({})) else { return };
    for (model, _) in &models[..3] {
        assert!(value(&infer(&server, model, 1)) > 0, "{model}");
    }
    let metadata = server.get("/v2/models/late").ok();
    assert_eq!(metadata["inputs"], json!([{"name": "late", "datatype": "INT64", "shape": [-1]}]));
    assert_eq!(metadata["parameters"], json!({"backend": "python"}));
}

#[test]
fn python_exceptions_map_to_status_codes() {
    let models = [("m", "Trouble"), ("unready", "NotReady")];
    let Some(server) = starting(&models, &json!({})) else { return };
    let server = server.listen();
    server.wait_for_log("Loaded model 'm'");
    server.wait_for_log("Loaded model 'unready'");
    assert_eq!(infer(&server, "m", "mlserver").error(418), "no tea");
    assert_eq!(infer(&server, "m", "inference").error(400), "boom");
    assert_eq!(infer(&server, "m", "value").error(500), "builtins.ValueError: boom");
    server.wait_for_log("ValueError: boom");
    assert_eq!(infer(&server, "m", "none").error(500), "Model 'm' returned no predictions after inference");
    assert_eq!(
        infer(&server, "m", "dict").error(500),
        "builtins.TypeError: predict returned a dict, expected an InferenceResponse"
    );
    assert_eq!(infer(&server, "unready", 1).error(400), "Model unready is not ready yet.");
    let readiness = server.get("/v2/health/ready");
    assert_eq!(
        (readiness.status, readiness.json()["models"][1]["reason"].as_str()),
        (400, Some("its `load` returned false"))
    );
}

#[test]
fn worker_death_fails_its_calls_with_the_cause() {
    let Some(server) = server(&[("m", "Trouble")], &json!({})) else { return };
    for (what, cause) in [("exit", "exited with code 3"), ("segv", "was terminated by SIGSEGV")] {
        // The request waits for the next worker if there is none.
        assert_eq!(value(&infer(&server, "m", "metrics")), 1);
        let started = Instant::now();
        let error = infer(&server, "m", what).error(503);
        assert!(error.contains(cause), "{error}");
        assert!(started.elapsed() < SOON, "{what} took {:?}", started.elapsed());
        // The line may contain secrets of others. The log has it.
        assert!(!error.contains("about to leave") && !error.contains("line"), "{error}");
    }
    assert_eq!(value(&infer(&server, "m", "metrics")), 1);
    let log = server.log();
    assert!(log.contains("A worker was terminated by SIGSEGV. worker=default-0 models=m"), "{log}");
    assert!(log.contains("last_lines=\"about to leave\"") || log.contains("last_lines=about to leave"), "{log}");
    let metrics = server.scrape();
    let metrics = metrics.text();
    assert!(metrics.contains("worker_restarts_total{pool=\"default\",reason=\"exit\"} 1"), "{metrics}");
    // No count is lost with a worker.
    assert!(metrics.contains("tests_observed_count{model_name=\"m\",model_version=\"\"} 3"), "{metrics}");
}

#[test]
fn system_exit_of_model_ends_only_its_call() {
    let Some(server) = server(&[("m", "Trouble")], &json!({})) else { return };
    let error = infer(&server, "m", "sys.exit").error(500);
    assert_eq!(error, "builtins.SystemExit: 4");
    assert_eq!(value(&infer(&server, "m", "metrics")), 1);
    assert!(!server.log().contains("A worker exited"));
}

#[test]
fn worker_killed_loses_only_its_calls() {
    let Some(server) = server(&[("m", "Blocking")], &json!({"parallel_workers": 2})) else { return };
    // Long enough that no calls are sent ahead of time: the answers of calls that arrive together leave together, and are lost together.
    let victim = pid(value(&infer(&server, "m", 10)));
    let clients: Vec<_> = (0..8)
        .map(|_| {
            let client = Client::new(server.http);
            thread::spawn(move || (0..20).map(|_| infer(&client, "m", 10)).collect::<Vec<_>>())
        })
        .collect();
    let answered = || {
        let metrics = server.scrape();
        let is_total = |line: &&str| line.starts_with("model_infer_request_success_total{model=\"m\"");
        metrics.text().lines().find(is_total).and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
    };
    wait_until("the workers to be busy", || answered() > Some(4.0));
    kill_process(victim, Signal::KILL).unwrap();
    let answers: Vec<_> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    // A busy machine may make one worker so slow that requests are shed.
    let shed = answers.iter().filter(|answer| answer.text().contains("`queue_target`")).count();
    let lost: Vec<_> = answers.iter().filter(|answer| answer.status == 503).map(|answer| answer.error(503)).collect();
    let answered = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(answered + lost.len(), 160, "{lost:?}");
    assert!(lost.len() - shed <= 1, "only one was inside, but these were lost: {lost:?}");
}

#[test]
fn worker_none_alive_is_not_ready() {
    let Some(python) = python() else { return };
    let folder = folder(&[("m", "Coroutine")]).settings(&json!({"python_executable": "./python"}));
    std::os::unix::fs::symlink(&python, folder.path("python")).unwrap();
    let server = ServerBuilder::new(folder).start();
    let worker = pid(value(&infer(&server, "m", 0)));
    fs::remove_file(server.folder.path("python")).unwrap();
    kill_process(worker, Signal::KILL).unwrap();
    let killed = Instant::now();
    wait_until("not ready", || server.get("/v2/health/ready").status == 400);
    assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    wait_until("nothing waits for a worker that cannot start", || infer(&server, "m", 0).status == 503);
    let error = infer(&server, "m", 0).error(503);
    assert_eq!(error, "no worker of the model is running; the log has the reason");
    let readiness = server.get("/v2/models/m/ready").json();
    assert_eq!(readiness["state"], "UNAVAILABLE", "{readiness}");
    assert!(readiness["reason"].to_string().contains("cannot start `"), "{readiness}");
    std::os::unix::fs::symlink(&python, server.folder.path("python")).unwrap();
    server.wait_until_ready();
    assert_ne!(pid(value(&infer(&server, "m", 0))), worker);
}

#[test]
fn worker_hang_timeout_replaces_the_worker() {
    let Some(server) = server(&[("m", "Trouble")], &json!({"worker_hang_timeout": 1})) else { return };
    let error = infer(&server, "m", "hang").error(503);
    assert!(error.contains("was killed: unresponsive for more than 1 s (`worker_hang_timeout`)"), "{error}");
    assert_eq!(value(&infer(&server, "m", "metrics")), 1);
}

#[test]
fn worker_out_of_memory_is_reported() {
    let Some(server) = server(&[("m", "Trouble")], &json!({})) else { return };
    let answer = infer(&server, "m", "memory");
    assert!([500, 503].contains(&answer.status), "{answer:?}");
    assert_eq!(answer.error(500), "builtins.MemoryError: ");
}

#[test]
fn python_load_failure_reports_the_reason() {
    let cases = [
        ("models.FailsToLoad", "Couldn't load model 'm': builtins.RuntimeError: load boom"),
        ("models.ExitsInLoad", "the worker exited while it loaded the model: worker default-0"),
        ("models.Absent", "cannot import implementation `models.Absent`: module `models`"),
        ("nowhere.Model", "cannot import implementation `nowhere.Model`: there is no module `nowhere`, neither in `"),
        ("Model", "cannot import implementation `Model`: `Model` is not an import path"),
    ];
    for (implementation, reason) in cases {
        let settings = json!({"name": "m", "implementation": implementation});
        let Some(python) = python() else { return };
        let source = fs::read(repository_path("tests/fixtures/workers/models.py")).unwrap();
        let folder = Folder::new().file("m/models.py", source).file("m/model-settings.json", settings.to_string());
        let ended = ServerBuilder::new(folder).env("MLSERVER_PYTHON_EXECUTABLE", python.to_str().unwrap()).run();
        assert_eq!(ended.code, Some(1), "{}", ended.stdout);
        assert!(ended.stdout.contains(reason), "{implementation}: {}", ended.stdout);
    }
}

#[test]
fn python_quick_calls_do_not_wait_for_a_slow_one() {
    let Some(server) = server(&[("m", "Blocking")], &json!({"parallel_workers": 2})) else { return };
    // It runs for longer than any client here waits.
    let mut slow = server.connect();
    send(&mut slow, "infer", &json!(600_000));
    wait_until("it is there", || {
        server.scrape().text().contains("model_infer_in_flight{model=\"m\",version=\"None\"} 1\n")
    });
    for _ in 0..50 {
        infer(&server, "m", 0).ok();
    }
}

#[test]
fn python_coroutines_overlap_and_plain_functions_do_not_block_them() {
    let Some(server) = server(&[("m", "Coroutine"), ("plain", "Plain")], &json!({})) else { return };
    let client = Client::new(server.http);
    // It runs until the server is killed.
    let _plain = thread::spawn(move || infer(&client, "plain", 600_000));
    let started = Instant::now();
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let client = Client::new(server.http);
            thread::spawn(move || infer(&client, "m", 2000).status)
        })
        .collect();
    assert!(calls.into_iter().all(|call| call.join().unwrap() == 200));
    // One after the other, they would take 40 s.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn python_client_disconnect_cancels_predict() {
    for class in ["Cancelled", "CancelledPlain"] {
        let Some(server) = server(&[("m", class)], &json!({})) else { return };
        let mut connection = server.connect();
        send(&mut connection, "infer", &json!(1));
        server.wait_for_log("begun");
        drop(connection);
        server.wait_for_log("saw the cancellation");
    }
}

#[test]
fn python_prints_and_log_records_name_model_and_request() {
    let Some(server) = server(&[("m", "Trouble")], &json!({"use_structured_logging": true})) else { return };
    infer(&server, "m", "print").ok();
    let line = |text: &str| -> Value { serde_json::from_str(&server.wait_for_log(text)).unwrap() };
    let printed = line("printed by the model");
    assert_eq!(printed["model_name"], "m");
    assert_eq!((&printed["request_id"], &printed["level"]), (&json!("r1"), &json!("INFO")));
    assert_eq!(line("complained by the model")["level"], "WARNING");
    assert_eq!(line("written by the process")["worker"], "default-0");
    assert_eq!(line("logged by the model")["level"], "WARNING");
    assert!(!server.log().contains("not to be seen"));
}

#[test]
fn shutdown_ends_workers_and_their_children() {
    let Some(server) = server(&[("m", "Parent")], &json!({})) else { return };
    let answer = infer(&server, "m", 0).ok();
    let data = answer["outputs"][0]["data"].clone();
    let (worker, child) = (pid(data[0].as_i64().unwrap()), pid(data[1].as_i64().unwrap()));
    let ended = server.terminate();
    assert_eq!(ended.code, Some(0));
    wait_until("the worker ends", || has_ended(worker));
    wait_until("its child ends", || has_ended(child));
}

#[test]
fn worker_ends_when_the_server_is_killed() {
    let Some(server) = server(&[("m", "Trouble")], &json!({"parallel_workers": 2})) else { return };
    let first = pid(value(&infer(&server, "m", "pid")));
    // One of them runs code that never checks for signals.
    let mut connection = server.connect();
    send(&mut connection, "infer", &json!("hang"));
    let second = pid(value(&infer(&server, "m", "pid")));
    server.signal(Signal::KILL);
    drop(connection);
    wait_until("the first ends", || has_ended(first));
    wait_until("the second ends", || has_ended(second));
}

#[test]
fn shutdown_kills_a_worker_that_does_not_stop() {
    let settings = json!({"parallel_workers_timeout": 1, "shutdown_grace_period": 0.2});
    let Some(server) = server(&[("m", "Slow")], &settings) else { return };
    let mut connection = server.connect();
    send(&mut connection, "infer", &json!(1));
    server.wait_for_log("begun");
    let started = Instant::now();
    assert_eq!(server.terminate().code, Some(0));
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn python_stream_is_generated_as_it_is_read() {
    let Some(server) = server(&[("m", "Stream"), ("plain", "PlainStream")], &json!({"parallel_workers": 2})) else {
        return;
    };
    let stream = |model: &str, count: i64| {
        let body = json!({"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [count]}]});
        server.post(&format!("/v2/models/{model}/infer_stream"), body.to_string())
    };
    let numbers = |answer: &Answer| -> Vec<i64> {
        let events = answer.text().split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        events
            .filter_map(|event| serde_json::from_str::<Value>(event).unwrap()["outputs"][0]["data"][0].as_i64())
            .collect()
    };
    assert_eq!(numbers(&stream("m", 5)), [0, 1, 2, 3, 4]);
    assert_eq!(numbers(&stream("plain", 0)), [0, 1, 2]);
    let failed = stream("m", 20);
    assert_eq!(numbers(&failed), (0..13).collect::<Vec<_>>());
    assert!(failed.text().contains("thirteen"), "{}", failed.text());
}

#[test]
fn python_stream_client_disconnect_cancels_it() {
    let Some(server) = server(&[("m", "Endless")], &json!({})) else { return };
    let mut connection = server.connect();
    send(&mut connection, "infer_stream", &json!(1));
    server.wait_for_log("making 3");
    drop(connection);
    server.wait_for_log("stream ended");
}

#[test]
fn python_stream_slow_reader_pauses_it() {
    let Some(server) = server(&[("m", "Endless")], &json!({})) else { return };
    let mut connection = server.connect();
    // Each answer holds a mebibyte, so that the socket's buffers are full after a few.
    send(&mut connection, "infer_stream", &json!(1 << 17));
    server.wait_for_log("making 3");
    wait_until("the model stops", || {
        let before = server.log().matches("making").count();
        pause(Duration::from_millis(300));
        before == server.log().matches("making").count()
    });
    let made = server.log().matches("making").count();
    assert!(made < 100, "{made} answers were made for a reader that read none");
    drop(connection);
    server.wait_for_log("stream ended");
}

#[test]
fn python_logging_settings_apply_to_models() {
    let quiet = json!({"version": 1, "disable_existing_loggers": false, "loggers": {"mlserver": {"level": "ERROR"}}});
    let Some(quieted) = server(&[("m", "Trouble")], &json!({"logging_settings": quiet})) else { return };
    infer(&quieted, "m", "print").ok();
    infer(&quieted, "m", "print").ok();
    // Prints share the pipe with records, so those of the first request have arrived.
    wait_until("both have printed", || quieted.log().matches("complained by the model").count() == 2);
    assert!(!quieted.log().contains("logged by the model"), "{}", quieted.log());
    let Some(warned) = server(&[("m", "Trouble")], &json!({"logging_settings": {"version": 2}})) else { return };
    infer(&warned, "m", "print").ok();
    warned.wait_for_log("Cannot apply `logging_settings`");
    warned.wait_for_log("logged by the model");
}

/// Returns a server of the model `m` with its own parameters, or `None` without an interpreter.
fn server_with(class: &str, parameters: &Value, settings: &Value) -> Option<TestServer> {
    let python = python()?;
    let model = json!({"implementation": format!("models.{class}"), "parameters": parameters});
    let folder = folder(&[("m", class)]).file("m/model-settings.json", model.to_string()).settings(settings);
    let starting = ServerBuilder::new(folder).env("PATH", "/usr/bin:/bin");
    let cache = repository_path("target/test-cache");
    fs::create_dir_all(&cache).unwrap();
    let starting = starting.env("XDG_CACHE_HOME", cache.to_str().unwrap());
    Some(starting.env("MLSERVER_PYTHON_EXECUTABLE", python.to_str().unwrap()).start())
}

#[test]
fn predict_timeout_kills_the_worker() {
    for class in ["Plain", "Blocking"] {
        let Some(server) = server_with(class, &json!({"predict_timeout": 0.2}), &json!({})) else { return };
        let first = value(&infer(&server, "m", 1));
        let started = Instant::now();
        let message = infer(&server, "m", 60_000).error(504);
        assert_eq!(message, "`predict_timeout` (0.2 s) exceeded");
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
        server.wait_for_log("was killed: a prediction took more than 0.2 s (`predict_timeout`)");
        let second = value(&infer(&server, "m", 1));
        assert_ne!(first, second, "another process");
        let restarts = r#"worker_restarts_total{pool="default",reason="timeout"} 1"#;
        assert!(server.scrape().text().lines().any(|line| line == restarts));
    }
}

#[test]
fn predict_timeout_keeps_a_worker_that_cancels() {
    let Some(server) = server_with("Coroutine", &json!({"predict_timeout": 0.2}), &json!({})) else { return };
    let first = value(&infer(&server, "m", 1));
    infer(&server, "m", 60_000).error(504);
    pause(Duration::from_secs(2));
    assert_eq!(first, value(&infer(&server, "m", 1)));
}

#[test]
fn worker_queue_full_rejects_calls() {
    let settings = json!({"overload_as_429": true});
    let Some(server) = server_with("Plain", &json!({"max_queue_requests": 2}), &settings) else { return };
    let mut connections: Vec<_> = (0..3).map(|_| server.connect()).collect();
    let waiting = |count: usize| {
        let line = format!(r#"model_infer_waiting{{model="m",version="None"}} {count}"#);
        server.scrape().text().lines().any(|found| found == line)
    };
    let in_flight = |count: usize| {
        let line = format!(r#"model_infer_in_flight{{model="m",version="None"}} {count}"#);
        server.scrape().text().lines().any(|found| found == line)
    };
    for (index, connection) in connections.iter_mut().enumerate() {
        send(connection, "infer", &json!(1000));
        wait_until("it is in flight", || in_flight(index + 1) && waiting(index));
    }
    let refused = infer(&server, "m", 1);
    assert_eq!(refused.header("retry-after"), "1");
    assert!(refused.error(429).contains("`max_queue_requests`"));
    for connection in &mut connections {
        connection.answer().ok();
    }
    assert!(waiting(0) && in_flight(0));
    let dropped = r#"model_infer_dropped_total{model="m",reason="queue_requests",version="None"} 1"#;
    assert!(server.scrape().text().lines().any(|line| line == dropped), "{}", server.scrape().text());
}
