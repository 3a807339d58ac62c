//! Which processes run which models.

use std::collections::BTreeSet;
use std::time::Instant;

use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::support::process_models::{ask, calls, process_models, processes};
use crate::support::python::with_python;
use crate::support::worker_models::{children, has_ended, pid};
use crate::support::{PATIENCE, TestServer, wait_until};

fn server(models: &[(&str, Value)], settings: &Value) -> Option<TestServer> {
    Some(with_python(process_models(models).settings(settings))?.start())
}

/// The children of a server.
fn workers(server: i64) -> BTreeSet<i64> {
    children(server.try_into().unwrap()).into_iter().map(|process| process.as_raw_nonzero().get().into()).collect()
}

#[test]
fn pool_parallel_workers_0_runs_in_one_process() {
    let Some(server) = server(&[("a", json!({})), ("b", json!({}))], &json!({"parallel_workers": 0})) else { return };
    let (a, b) = (ask(&server, "a", 0), ask(&server, "b", 0));
    assert_eq!((&a["main_thread"], &a["pid"]), (&json!(true), &b["pid"]));
    assert_eq!(processes(&server, "a").len(), 1);
}

#[test]
fn pool_model_with_parallel_workers_0_has_its_own_process() {
    let models = [("a", json!({})), ("alone", json!({"parallel_workers": 0}))];
    let Some(server) = server(&models, &json!({})) else { return };
    let (a, alone) = (ask(&server, "a", 0), ask(&server, "alone", 0));
    assert_eq!((&a["main_thread"], &alone["main_thread"]), (&json!(false), &json!(true)));
    assert_ne!(a["pid"], alone["pid"]);
}

#[test]
fn pool_every_worker_has_every_model_and_its_share_of_cores() {
    let Some(server) = server(&[("a", json!({})), ("b", json!({}))], &json!({"parallel_workers": 3})) else { return };
    let used = processes(&server, "a");
    assert_eq!(used.len(), 3);
    assert_eq!(used, processes(&server, "b"));
    let answer = ask(&server, "a", 0);
    assert_eq!(used, workers(answer["server"].as_i64().unwrap()));
    let cores = std::thread::available_parallelism().unwrap().get();
    assert_eq!(answer["threads"], (cores / 3).max(1).to_string());
}

#[test]
fn pool_omp_num_threads_of_the_server_reaches_the_workers() {
    let folder = process_models(&[("a", json!({}))]).settings(&json!({"parallel_workers": 2}));
    let Some(starting) = with_python(folder) else { return };
    let server = starting.env("OMP_NUM_THREADS", "7").start();
    assert_eq!(ask(&server, "a", 0)["threads"], "7");
}

#[test]
fn pool_every_worker_warms_up_before_it_takes_calls() {
    let sample = |value: i64| json!({"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [value]}]});
    let models = [("a", json!({"warmup": [sample(0), sample(1)]}))];
    let Some(server) = server(&models, &json!({"parallel_workers": 2})) else { return };
    let answers = calls(&server, "a", 2, 300);
    let of = |process: i64| answers.iter().find(|answer| answer["pid"] == process).unwrap()["calls"].clone();
    let used: Vec<i64> = answers.iter().map(|answer| answer["pid"].as_i64().unwrap()).collect();
    assert_ne!(used[0], used[1]);
    assert_eq!((of(used[0]), of(used[1])), (json!(3), json!(3)));
    // So does a replacement worker.
    kill_process(pid(used[0]), Signal::KILL).unwrap();
    wait_until("the worker ends", || has_ended(pid(used[0])));
    let again =
        || calls(&server, "a", 2, 300).into_iter().find(|answer| !used.contains(&answer["pid"].as_i64().unwrap()));
    let answer = std::iter::repeat_with(again).take(20).flatten().next();
    assert_eq!(answer.unwrap()["calls"], 3);

    let folder = process_models(&[("a", json!({"warmup": [sample(0), sample(-1)]}))]);
    let ended = with_python(folder).unwrap().run();
    let expected =
        "the model was loaded but does not answer `warmup[1]` of its settings: builtins.ValueError: no time for this";
    assert_eq!(ended.code, Some(1));
    assert!(ended.stdout.contains(expected), "{}", ended.stdout);
}

#[test]
fn pool_model_workers_limits_its_workers() {
    let wanted = |workers: usize| json!({"parameters": {"workers": workers}});
    let models = [("a", wanted(1)), ("b", wanted(1)), ("c", wanted(2)), ("d", wanted(9))];
    let Some(server) = server(&models, &json!({"parallel_workers": 3})) else { return };
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|model| processes(&server, model));
    assert_eq!([a.len(), b.len(), c.len(), d.len()], [1, 1, 2, 3]);
    assert!(a.is_subset(&d) && b.is_subset(&d) && c.is_subset(&d));
    server.wait_for_log("`workers` is 9, but the pool has only 3");
}

#[test]
fn pool_single_worker_models_spread_over_the_pool() {
    let models = ["a", "b", "c"].map(|name| (name, json!({"parameters": {"workers": 1}})));
    let Some(server) = server(&models, &json!({"parallel_workers": 3})) else { return };
    let used: BTreeSet<i64> = models.iter().flat_map(|(name, _)| processes(&server, name)).collect();
    assert_eq!(used.len(), 3);
}

#[test]
fn pool_inference_group_ends_with_its_last_model() {
    let group = json!({"parameters": {"inference_pool_gid": "g"}});
    let own = json!({"parameters": {"autogenerate_inference_pool_gid": true}});
    let models = [("g1", group.clone()), ("g2", group), ("own1", own.clone()), ("own2", own), ("free", json!({}))];
    let Some(server) = server(&models, &json!({"parallel_workers": 2})) else { return };
    let [g1, g2, own1, own2, free] = ["g1", "g2", "own1", "own2", "free"].map(|model| processes(&server, model));
    assert_eq!(g1, g2);
    let pools = [&g1, &own1, &own2, &free];
    assert!(pools.iter().all(|pool| pool.len() == 2), "{pools:?}");
    let all: BTreeSet<i64> = pools.into_iter().flatten().copied().collect();
    assert_eq!(all.len(), 8, "{pools:?}");
    let of_server = || workers(ask(&server, "free", 0)["server"].as_i64().unwrap());
    assert_eq!(of_server(), all);

    let tell = |model: &str, action: &str| {
        let path = format!("/v2/repository/models/{model}/{action}");
        assert_eq!(server.post(&path, "").status, 200);
    };
    tell("g1", "unload");
    assert!(g2.contains(&ask(&server, "g2", 0)["pid"].as_i64().unwrap()));
    tell("g2", "unload");
    wait_until("the group's workers end", || g1.iter().all(|process| has_ended(pid(*process))));
    assert_eq!(of_server(), &all - &g1);
    // The pool is created again with its model.
    tell("g1", "load");
    let again = processes(&server, "g1");
    assert_eq!((again.len(), again.is_disjoint(&all)), (2, true));
    assert_eq!(processes(&server, "free"), free);

    let started = Instant::now();
    assert_eq!(server.terminate().code, Some(0));
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
}
