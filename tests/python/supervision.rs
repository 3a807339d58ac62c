//! What becomes of models and their neighbors after crashes, hangs and failed loads of workers.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::python::with_python;
use crate::support::worker_models::{ClientLoad, folder, has_ended, infer, pid, server, starting, value};
use crate::support::{Client, ServerBuilder, TestServer, pause, repository_path, wait_until};

fn is_ready(server: &TestServer) -> bool {
    server.get("/v2/health/ready").status == 200
}

#[test]
fn failed_reload_after_crash_is_retried_and_reported() {
    let models = [("m", "FailsWhileBroken"), ("n", "Coroutine")];
    let Some(server) = server(&models, &json!({})) else { return };
    let worker = pid(value(&infer(&server, "m", 0)));
    fs::write(server.folder.path("broken"), "").unwrap();
    kill_process(worker, Signal::KILL).unwrap();
    wait_until("not ready", || server.get("/v2/health/ready").text().contains("the store is out of order"));
    let error = infer(&server, "m", 0).error(503);
    assert_eq!(error, "no worker of the model is running; the log has the reason");
    let reason = server.get("/v2/models/m/ready").json()["reason"].to_string();
    assert!(reason.contains("the store is out of order; the load is retried"), "{reason}");
    infer(&server, "n", 0).ok();
    server.wait_for_log("Cannot load the model again; retrying in 2 s.");
    fs::remove_file(server.folder.path("broken")).unwrap();
    wait_until("it is loaded again by itself", || infer(&server, "m", 0).status == 200);
    assert!(is_ready(&server));
}

#[test]
fn call_that_waits_for_a_load_that_returns_false_ends() {
    let Some(server) = server(&[("m", "FalseWhileBroken")], &json!({})) else { return };
    let worker = pid(value(&infer(&server, "m", 0)));
    let (broken, waits) = (server.folder.path("broken"), server.folder.path("loading"));
    fs::write(&broken, "").unwrap();
    kill_process(worker, Signal::KILL).unwrap();
    wait_until("the model loads again", || waits.exists());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| infer(&server, "m", 0));
        let stream = scope.spawn(|| {
            let body = r#"{"inputs":[{"name":"x","shape":[1],"datatype":"INT64","data":[0]}]}"#;
            server.post("/v2/models/m/infer_stream", body)
        });
        // Both wait for the worker, or are refused because it is not up.
        fs::write(server.folder.path("go"), "").unwrap();
        for waiting in [waiting, stream] {
            let error = waiting.join().unwrap().error(503);
            assert_eq!(error, "no worker of the model is running; the log has the reason");
        }
    });
    server.wait_for_log("reason=its `load` returned false");
    fs::remove_file(broken).unwrap();
    wait_until("it is loaded again by itself", || infer(&server, "m", 0).status == 200);
}

#[test]
fn hung_plain_predict_is_detected() {
    let models = [("m", "Plain"), ("n", "Coroutine")];
    let Some(server) = server(&models, &json!({"worker_hang_timeout": 1})) else { return };
    let load = ClientLoad::on(&server, "n", 2, 5);
    let started = Instant::now();
    let error = infer(&server, "m", 600_000).error(503);
    assert!(error.contains("was killed: a call ran for more than 1 s (`worker_hang_timeout`"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    infer(&server, "m", 0).ok();
    load.wait_for(4);
    let outcomes = load.end();
    // Those that ran in the same worker are lost with it.
    let failed = outcomes.iter().filter(|outcome| outcome.answer.status != 200).count();
    assert!(failed <= 2, "{failed} of {} failed", outcomes.len());
}

#[test]
fn plain_predict_with_a_predict_timeout_may_exceed_the_hang_timeout() {
    let folder = folder(&[]).settings(&json!({"worker_hang_timeout": 0.5}));
    let source = fs::read(repository_path("tests/fixtures/workers/models.py")).unwrap();
    let settings = json!({"name": "m", "implementation": "models.Plain", "parameters": {"predict_timeout": 30}});
    let folder = folder.file("m/models.py", source).file("m/model-settings.json", settings.to_string());
    let Some(server) = with_python(folder).map(ServerBuilder::start) else { return };
    infer(&server, "m", 2500).ok();
}

#[test]
fn load_that_hangs_ends_and_is_retried() {
    let models = [("m", "HangsWhileBroken"), ("n", "Coroutine")];
    let Some(server) = server(&models, &json!({"worker_load_timeout": 1})) else { return };
    let worker = pid(value(&infer(&server, "m", 0)));
    fs::write(server.folder.path("broken"), "").unwrap();
    kill_process(worker, Signal::KILL).unwrap();
    server.wait_for_log("a model took more than 1 s to load (`worker_load_timeout`)");
    wait_until("its neighbor is served", || infer(&server, "n", 0).status == 200);
    fs::remove_file(server.folder.path("broken")).unwrap();
    wait_until("it is loaded again", || infer(&server, "m", 0).status == 200);
}

#[test]
fn crashing_model_is_quarantined_and_its_neighbors_answer() {
    let models = [("m", "Trouble"), ("n", "Coroutine"), ("p", "Plain")];
    let Some(server) = starting(&models, &json!({})).map(ServerBuilder::start) else { return };
    let neighbors = [ClientLoad::on(&server, "n", 2, 5), ClientLoad::on(&server, "p", 2, 5)];
    let client = Client::new(server.http);
    for _ in 0..6 {
        let error = infer(&client, "m", "exit").error(503);
        assert!(error.contains("exited with code 3"), "{error}");
        pause(Duration::from_millis(300));
    }
    server.wait_for_log("Moved a model to a worker of its own");
    for load in &neighbors {
        load.wait_for(400);
    }
    let outcomes: Vec<_> = neighbors.into_iter().flat_map(ClientLoad::end).collect();
    let failed = outcomes.iter().filter(|outcome| outcome.answer.status != 200).count();
    assert!(failed * 100 < outcomes.len(), "{failed} of {} failed", outcomes.len());
    let worker = |model: &str, input: Value| {
        let answer = infer(&server, model, input);
        (answer.status == 200).then(|| value(&answer))
    };
    // The last crash may have started a worker for the neighbors that is not ready yet. A neighbor whose calls ran during two crashes,
    // which a busy machine makes likely, may have been moved first.
    wait_until("it has a worker of its own", || {
        let [own, coroutine, plain] = [worker("m", json!("pid")), worker("n", json!(0)), worker("p", json!(0))];
        [&own, &coroutine, &plain].into_iter().all(Option::is_some) && own != coroutine && own != plain
    });
    // Its own worker ends with it.
    let own = pid(value(&infer(&server, "m", "pid")));
    assert_eq!(server.post("/v2/repository/models/m/unload", "").status, 200);
    wait_until("it ends", || has_ended(own));
}

#[test]
fn worker_is_recycled_after_max_requests_without_losing_a_call() {
    let Some(server) = server(&[("m", "Plain")], &json!({"max_requests_per_worker": 50})) else { return };
    let load = ClientLoad::on(&server, "m", 4, 2);
    wait_until("three workers have answered", || load.values().len() >= 3);
    assert!(load.end().iter().all(|outcome| outcome.answer.status == 200));
    wait_until("replaced workers end", || server.scrape().text().contains("reason=\"requests\""));
    assert!(!server.log().contains("WARN"), "{}", server.log());
}

#[test]
fn worker_near_its_memory_limit_is_replaced_without_losing_a_call() {
    let Some(server) = server(&[("m", "Grows")], &json!({"worker_memory_limit": 200 << 20})) else { return };
    let first = value(&infer(&server, "m", 0));
    let load = ClientLoad::on(&server, "m", 2, 0);
    infer(&server, "m", 150).ok();
    wait_until("another worker answers", || value(&infer(&server, "m", 0)) != first);
    load.wait_for(20);
    assert!(load.end().iter().all(|outcome| outcome.answer.status == 200));
    wait_until("the old one ends", || has_ended(pid(first)));
    wait_until("it is counted", || server.scrape().text().contains("reason=\"memory\"} 1"));
}

#[test]
fn worker_over_its_memory_limit_is_killed_with_the_cause() {
    let Some(server) = server(&[("m", "Grows")], &json!({"worker_memory_limit": 200 << 20})) else { return };
    let first = value(&infer(&server, "m", 0));
    let error = infer(&server, "m", 2000).error(503);
    assert!(error.contains("was killed: it used more than 200 MiB of memory (`worker_memory_limit`)"), "{error}");
    assert_ne!(value(&infer(&server, "m", 0)), first);
}

#[test]
fn hung_worker_leaves_the_stacks_of_its_threads() {
    let Some(server) = server(&[("m", "Plain")], &json!({"worker_hang_timeout": 1})) else { return };
    let client = Client::new(server.http);
    thread::spawn(move || infer(&client, "m", 600_000)).join().unwrap().error(503);
    server.wait_for_log("models.py\", line");
    server.wait_for_log("in predict");
}

#[test]
fn load_that_returns_nothing_makes_the_model_ready() {
    let Some(server) = server(&[("m", "ReturnsNothing")], &json!({})) else { return };
    assert_eq!(value(&infer(&server, "m", 0)), 1);
}

#[test]
fn load_never_blocks_other_models() {
    let folder = folder(&[("m", "Coroutine"), ("p", "Plain"), ("slow", "LoadsSlowly"), ("plain", "LoadsSlowlyPlain")]);
    let settings = json!({"load_models_at_startup": false});
    let Some(server) = with_python(folder.settings(&settings)).map(ServerBuilder::start) else { return };
    for model in ["m", "p"] {
        assert_eq!(server.post(&format!("/v2/repository/models/{model}/load"), "").status, 200);
    }
    for slow in ["slow", "plain"] {
        let load = [ClientLoad::on(&server, "m", 1, 0), ClientLoad::on(&server, "p", 1, 0)];
        assert_eq!(server.post(&format!("/v2/repository/models/{slow}/load"), "").status, 200);
        let outcomes: Vec<_> = load.into_iter().flat_map(ClientLoad::end).collect();
        let slowest = outcomes.iter().map(|outcome| outcome.took).max().unwrap();
        assert!(slowest < Duration::from_millis(1500), "{slow}: a call took {slowest:?} of the 2 s");
        infer(&server, slow, 0).ok();
    }
}

/// Returns how many processes named `sleep` have exited and are children of the server, wherever they were started.
fn orphaned_zombies(server: &TestServer) -> usize {
    let parent = fs::read_to_string(format!("/proc/{0}/task/{0}/children", server.process_id())).unwrap();
    let parent = parent.trim().to_owned();
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let states = processes.filter_map(|id| fs::read_to_string(format!("/proc/{id}/stat")).ok());
    states.filter(|stat| stat.contains(&format!("(sleep) Z {parent} "))).count()
}

#[test]
fn orphans_of_models_are_reaped_if_the_server_is_the_first_process() {
    let Some(server) = starting(&[("m", "Orphans")], &json!({})) else { return };
    let Some(server) = server.first_process().map(ServerBuilder::start) else { return };
    infer(&server, "m", 0).ok();
    wait_until("it has ended", || orphaned_zombies(&server) == 1);
    let ended = Instant::now();
    while orphaned_zombies(&server) > 0 {
        assert!(ended.elapsed() < Duration::from_secs(30), "it remains");
        pause(Duration::from_millis(100));
    }
}
