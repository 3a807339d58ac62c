//! Faults of Python workers under load: which calls are lost, and what is reported.
//!
//! The simple cases (exit, signal, hang, memory, a failing load) are in `workers`; here they happen under traffic and
//! in combination.

use std::collections::HashSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use mlserver::platform::ADOPTS_ORPHANS;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::support::python::with_python;
use crate::support::worker_models::{
    ClientLoad, Outcome, SOON, children, folder, has_ended, infer, pid, send, server, starting, value,
};
use crate::support::{Client, ServerBuilder, TestServer, pause, repository_path, wait_until};

/// Checks that all were answered, or failed with 503 and `cause` soon after `killed`, and returns how many failed.
#[track_caller]
fn count_lost(outcomes: &[Outcome], killed: Instant, cause: &str) -> usize {
    let failed = outcomes.iter().filter(|outcome| outcome.answer.status != 200);
    failed
        .map(|Outcome { at, answer, .. }| {
            let error = answer.error(503);
            assert!(error.contains(cause), "{error}");
            let late = at.saturating_duration_since(killed);
            assert!(late < SOON, "answered {late:?} after the kill");
        })
        .count()
}

/// Returns the processes of all `count` workers once each has answered.
fn workers(server: &TestServer, count: usize) -> HashSet<Pid> {
    let mut found = HashSet::new();
    wait_until("every worker answers", || {
        // Concurrently, so that one worker cannot take all.
        let clients: Vec<_> = (0..count)
            .map(|_| {
                let client = Client::new(server.http);
                thread::spawn(move || infer(&client, "m", 20))
            })
            .collect();
        found.extend(clients.into_iter().map(|client| pid(value(&client.join().unwrap()))));
        found.len() >= count
    });
    found
}

fn is_ready(server: &TestServer) -> bool {
    server.get("/v2/health/ready").status == 200
}

#[test]
fn worker_killed_under_load_loses_only_its_calls() {
    // Blocking code runs one call at a time; waiting coroutines overlap.
    for (class, clients, inside) in [("Blocking", 8, 1), ("Plain", 8, 1), ("Coroutine", 32, 32)] {
        let Some(server) = server(&[("m", class)], &json!({"parallel_workers": 2})) else { return };
        let victim = *workers(&server, 2).iter().next().unwrap();
        let load = ClientLoad::on(&server, "m", clients, 10);
        load.wait_for(2 * clients);
        let killed = Instant::now();
        kill_process(victim, Signal::KILL).unwrap();
        load.wait_for(4 * clients);
        let lost = count_lost(&load.end(), killed, "was terminated by SIGKILL");
        assert!(lost <= inside, "{class}: {lost} were lost, {inside} may have been inside");
        assert!(is_ready(&server), "one worker is enough");
        assert!(!workers(&server, 2).contains(&victim));
    }
}

#[test]
fn worker_all_killed_under_load_recovers() {
    let Some(server) = server(&[("m", "Blocking")], &json!({"parallel_workers": 2})) else { return };
    let victims = workers(&server, 2);
    let load = ClientLoad::on(&server, "m", 8, 10);
    load.wait_for(16);
    let killed = Instant::now();
    for victim in &victims {
        kill_process(*victim, Signal::KILL).unwrap();
    }
    wait_until("not ready", || !is_ready(&server));
    assert!(killed.elapsed() < SOON, "{:?}", killed.elapsed());
    // Queued and new calls are answered by the replacement workers.
    load.wait_for(32);
    wait_until("ready again", || is_ready(&server));
    let outcomes = load.end();
    assert!(count_lost(&outcomes, killed, "was terminated by SIGKILL") <= victims.len());
    assert!(victims.is_disjoint(&workers(&server, 2)));
    let metrics = server.scrape();
    assert!(metrics.text().contains("worker_restarts_total{pool=\"default\",reason=\"signal\"} 2"), "{metrics:?}");
}

#[test]
fn worker_hang_under_load_loses_only_its_calls() {
    let settings = json!({"parallel_workers": 2, "worker_hang_timeout": 1});
    let Some(server) = server(&[("m", "Blocking")], &settings) else { return };
    let load = ClientLoad::on(&server, "m", 4, 5);
    load.wait_for(8);
    let started = Instant::now();
    let error = infer(&server, "m", 600_000).error(503);
    assert!(error.contains("unresponsive for more than 1 s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let failed = load.end().into_iter().filter(|outcome| outcome.answer.status != 200).count();
    assert_eq!(failed, 0, "others do not pay for it");
}

#[test]
fn worker_death_kills_its_children() {
    let Some(server) = server(&[("m", "Parent")], &json!({})) else { return };
    let data = infer(&server, "m", 0).ok()["outputs"][0]["data"].clone();
    let (worker, child) = (pid(data[0].as_i64().unwrap()), pid(data[1].as_i64().unwrap()));
    kill_process(worker, Signal::KILL).unwrap();
    wait_until("its child ends", || has_ended(child));
    assert_ne!(pid(value(&infer(&server, "m", 0))), worker);
}

/// Returns the worker of the model `Ancestor`, and the processes that it has started.
fn family(server: &TestServer) -> (Pid, Vec<Pid>) {
    let answer = infer(server, "m", 0).ok();
    let ids = answer["outputs"][0]["data"].as_array().unwrap().iter().map(|id| pid(id.as_i64().unwrap()));
    let mut ids = ids.collect::<Vec<_>>();
    let worker = ids.remove(0);
    assert!(ids.iter().all(|&process| !has_ended(process)), "{ids:?}");
    if !ADOPTS_ORPHANS {
        // With another environment and another session, nothing says whose it is: it would remain.
        kill_process(ids[2], Signal::KILL).unwrap();
    }
    (worker, ids)
}

fn wait_for_the_end_of(processes: &[Pid]) {
    for (index, &process) in processes.iter().enumerate() {
        wait_until(&format!("process {index} ends"), || has_ended(process));
    }
}

#[test]
fn worker_death_kills_all_processes_that_it_has_started() {
    for signal in [Signal::KILL, Signal::ABORT] {
        let Some(server) = server(&[("m", "Ancestor"), ("n", "Coroutine")], &json!({})) else { return };
        let (worker, mut processes) = family(&server);
        // With another environment and another session, nothing says whose it is once its parent is dead.
        let stranger = processes.remove(2);
        kill_process(worker, signal).unwrap();
        wait_for_the_end_of(&processes);
        wait_until("the model is loaded again", || infer(&server, "m", 0).status == 200);
        let (second, of_second) = family(&server);
        assert_ne!(second, worker);
        assert_eq!(server.terminate().code, Some(0));
        wait_for_the_end_of(&of_second);
        wait_for_the_end_of(&[stranger]);
    }
}

#[test]
#[cfg_attr(portable, ignore = "daemons of models remain after a forced end where the server cannot adopt orphans")]
fn unload_and_forced_end_kill_all_processes_of_a_model() {
    let Some(server) = server(&[("m", "Ancestor")], &json!({})) else { return };
    let (_, processes) = family(&server);
    assert_eq!(server.post("/v2/repository/models/m/unload", "").status, 200);
    wait_for_the_end_of(&processes);
    assert_eq!(server.post("/v2/repository/models/m/load", "").status, 200);
    let (worker, mut processes) = family(&server);
    processes.push(worker);
    let mut upload = server.connect();
    upload.start_upload("/v2/models/m/infer", 100);
    server.signal(Signal::INT);
    server.wait_for_log("answering the requests in flight");
    server.signal(Signal::INT);
    assert_eq!(server.ended().code, Some(3));
    wait_for_the_end_of(&processes);
}

#[test]
fn processes_that_a_script_has_started_before_the_server_outlive_it() {
    let Some(builder) = starting(&[("m", "Ancestor")], &json!({})) else { return };
    let server = builder.shell("(sleep 1000 & sleep 1000) & echo $! > helper; exec \"$@\"").start();
    let (_, processes) = family(&server);
    let helper = fs::read_to_string(server.folder.path("helper")).unwrap();
    let helper = pid(helper.trim().parse().unwrap());
    let of_helper = children(helper.as_raw_nonzero().get().unsigned_abs());
    server.signal(Signal::TERM);
    wait_for_the_end_of(&processes);
    wait_until("the server ends", || has_ended(pid(server.process_id().into())));
    assert!(!of_helper.is_empty());
    for helper in of_helper.into_iter().chain([helper]) {
        assert!(!has_ended(helper));
        kill_process(helper, Signal::KILL).unwrap();
    }
}

#[test]
fn worker_crash_loop_does_not_block_other_models() {
    let Some(server) = server(&[("m", "Coroutine"), ("once", "LoadsOnce")], &json!({})) else { return };
    let worker = pid(value(&infer(&server, "m", 0)));
    kill_process(worker, Signal::KILL).unwrap();
    wait_until("the other model is served again", || {
        let answer = infer(&server, "m", 0);
        answer.status == 200 && pid(value(&answer)) != worker
    });
    wait_until("this one is given up", || server.get("/v2/models/once/ready").status == 400);
    let error = infer(&server, "once", 0).error(503);
    assert_eq!(error, "no worker of the model is running; the log has the reason");
    let reason = server.get("/v2/models/once/ready").json()["reason"].to_string();
    assert!(reason.contains("exited with code 6"), "{reason}");
    // The last of its deaths may be so recent that the worker is still starting.
    wait_until("the other model is served", || server.get("/v2/models/m/ready").status == 200);
    assert!(!is_ready(&server), "one of the models cannot answer");
    fs::remove_file(server.folder.path("loaded")).unwrap();
    assert_eq!(server.post("/v2/repository/models/once/load", "").status, 200);
    infer(&server, "once", 0).ok();
    assert!(is_ready(&server));
}

#[test]
fn worker_restart_import_error_is_reported() {
    let Some(server) = server(&[("m", "Coroutine")], &json!({})) else { return };
    let worker = pid(value(&infer(&server, "m", 0)));
    fs::write(server.folder.path("m/models.py"), "import nothing_of_the_kind\n").unwrap();
    kill_process(worker, Signal::KILL).unwrap();
    wait_until("not ready", || !is_ready(&server));
    wait_until("the reason is known", || server.get("/v2/health/ready").text().contains("nothing_of_the_kind"));
    let error = infer(&server, "m", 0).error(503);
    assert_eq!(error, "no worker of the model is running; the log has the reason");
    fs::copy(repository_path("tests/fixtures/workers/models.py"), server.folder.path("m/models.py")).unwrap();
    assert_eq!(server.post("/v2/repository/models/m/load", "").status, 200);
    infer(&server, "m", 0).ok();
}

#[test]
fn worker_never_runs_a_cancelled_call() {
    let Some(server) = server(&[("m", "Recorder")], &json!({})) else { return };
    let client = Client::new(server.http);
    let slow = thread::spawn(move || infer(&client, "m", 500).status);
    server.wait_for_log("running 500");
    let mut queued = server.connect();
    send(&mut queued, "infer", &json!(77));
    pause(Duration::from_millis(100));
    drop(queued);
    pause(Duration::from_millis(50));
    assert_eq!(value(&infer(&server, "m", 1)), 1);
    assert_eq!(slow.join().unwrap(), 200);
    assert!(!server.log().contains("running 77"), "{}", server.log());
}

#[test]
fn worker_shutdown_answers_running_and_queued_calls() {
    let Some(server) = server(&[("m", "Recorder")], &json!({})) else { return };
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let client = Client::new(server.http);
            thread::spawn(move || infer(&client, "m", 200).status)
        })
        .collect();
    server.wait_for_log("running 200");
    // The other three arrive within the 200 ms that this one takes.
    pause(Duration::from_millis(100));
    let ended = server.terminate();
    assert_eq!(ended.code, Some(0), "{}", ended.stdout);
    assert_eq!(calls.into_iter().map(|call| call.join().unwrap()).collect::<Vec<_>>(), [200; 4]);
}

#[test]
fn worker_death_is_one_log_line() {
    let settings = json!({"use_structured_logging": true});
    let Some(server) = starting(&[("m", "Trouble"), ("n", "Plain")], &settings).map(ServerBuilder::start) else {
        return;
    };
    let error = infer(&server, "m", "exit").error(503);
    assert!(error.starts_with("the request was lost: worker default-0 (process "), "{error}");
    let line = server.wait_for_log("A worker exited with code 3.");
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["worker"], "default-0", "{line}");
    let models: HashSet<&str> = line["models"].as_str().unwrap().split(", ").collect();
    assert_eq!(models, ["m", "n"].into(), "{line}");
    assert_eq!(line["last_lines"], "about to leave", "{line}");
    assert_eq!(line["out_of_memory"], false, "{line}");
    assert!(line["pid"].as_i64().is_some() && line["resident_bytes"].as_u64().is_some(), "{line}");
}

#[test]
fn worker_concurrent_loads_are_limited_to_the_cores() {
    let cores = thread::available_parallelism().unwrap().get();
    let models: Vec<String> = (0..cores + 2).map(|number| format!("m{number}")).collect();
    let models: Vec<(&str, &str)> = models.iter().map(|name| (name.as_str(), "Loading")).collect();
    // Each model has its own process, so that only the limit serializes their loads.
    let folder = models.iter().fold(folder(&models), |folder, (name, _)| {
        let settings = json!({
            "name": name, "implementation": "models.Loading",
            "parameters": {"autogenerate_inference_pool_gid": true},
        });
        folder.file(&format!("{name}/model-settings.json"), settings.to_string())
    });
    let Some(server) = with_python(folder).map(ServerBuilder::start) else { return };
    let loads = fs::read_to_string(server.folder.path("loads.txt")).unwrap();
    assert_eq!(loads.lines().count(), 2 * models.len());
    let (mut now, mut most) = (0, 0);
    for line in loads.lines() {
        now = if line == "begin" { now + 1 } else { now - 1 };
        most = most.max(now);
    }
    assert!(most <= cores, "{most} loaded at once on {cores} cores");
}

/// A kernel control group that limits the total memory of its processes; removed on drop.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Creates a group, or reports why this machine cannot.
    fn new(limit: u64) -> Option<Self> {
        let name = format!("mlserver-test-{}", std::process::id());
        let made = [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")].map(
            |(root, file)| -> std::io::Result<Self> {
                let group = Self(Path::new(root).join(&name));
                fs::create_dir(&group.0)?;
                // If the file does not already exist, the group does not control memory.
                fs::OpenOptions::new().write(true).open(group.0.join(file))?.write_all(limit.to_string().as_bytes())?;
                Ok(group)
            },
        );
        let errors: Vec<_> = made.iter().filter_map(|made| made.as_ref().err().map(ToString::to_string)).collect();
        let group = made.into_iter().find_map(Result::ok);
        if group.is_none() {
            #[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
            {
                eprintln!("SKIPPED: no control group for memory can be made here: {}", errors.join("; "));
            }
        }
        group
    }

    fn add(&self, process: i64) {
        fs::write(self.0.join("cgroup.procs"), process.to_string()).unwrap();
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // Possible only once its processes are gone, which the kernel notices a moment later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            pause(Duration::from_millis(20));
        }
    }
}

#[test]
#[cfg_attr(portable, ignore = "the portable form of `platform` sees no control groups")]
fn worker_killed_by_oom_is_reported_and_replaced() {
    // Dropped last, because it contains the server's processes.
    let Some(group) = MemoryGroup::new(160 << 20) else { return };
    let Some(server) = server(&[("m", "Trouble")], &json!({})) else { return };
    let worker = value(&infer(&server, "m", "pid"));
    group.add(i64::from(server.process_id()));
    group.add(worker);
    let message = infer(&server, "m", "eat").error(503);
    let expected = "was terminated by SIGKILL, while the kernel killed processes to free memory";
    assert!(message.contains(expected), "{message}");
    wait_until("another worker answers", || {
        let answer = infer(&server, "m", "pid");
        answer.status == 200 && value(&answer) != worker
    });
}
