//! Models in Python that `tests/fixtures/workers/models.py` defines, and the workers that run them.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use mlserver::platform;
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};

use super::python::with_python;
use super::{Answer, Client, Connection, Folder, ServerBuilder, TestServer, repository_path, wait_until};

/// A request in a worker that dies is answered within this time.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Creates a folder with models of `tests/fixtures/workers/models.py`, by name and class.
pub(crate) fn folder(models: &[(&str, &str)]) -> Folder {
    let source = fs::read(repository_path("tests/fixtures/workers/models.py")).unwrap();
    models.iter().fold(Folder::new(), |folder, (name, class)| {
        let settings = json!({"name": name, "implementation": format!("models.{class}")});
        folder
            .file(&format!("{name}/models.py"), &source)
            .file(&format!("{name}/model-settings.json"), settings.to_string())
    })
}

/// Returns a server of these models, or `None` without an interpreter.
pub(crate) fn starting(models: &[(&str, &str)], settings: &Value) -> Option<ServerBuilder> {
    with_python(folder(models).settings(settings))
}

pub(crate) fn server(models: &[(&str, &str)], settings: &Value) -> Option<TestServer> {
    Some(starting(models, settings)?.start())
}

pub(crate) fn infer(client: &Client, model: &str, value: impl Into<Value>) -> Answer {
    let value = value.into();
    let datatype = if value.is_string() { "BYTES" } else { "INT64" };
    let body = json!({"id": "r1", "inputs": [{"name": "x", "shape": [1], "datatype": datatype, "data": [value]}]});
    client.post(&format!("/v2/models/{model}/infer"), body.to_string())
}

/// Sends a request for `m` without waiting for the response.
pub(crate) fn send(connection: &mut Connection, action: &str, value: &Value) {
    let datatype = if value.is_string() { "BYTES" } else { "INT64" };
    let body = json!({"inputs": [{"name": "x", "shape": [1], "datatype": datatype, "data": [value]}]}).to_string();
    let head = format!("POST /v2/models/m/{action} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n");
    connection.write(format!("{head}content-length: {}\r\n\r\n{body}", body.len()));
}

/// Returns the first element of a response.
#[track_caller]
pub(crate) fn value(answer: &Answer) -> i64 {
    answer.ok()["outputs"][0]["data"][0].as_i64().unwrap()
}

pub(crate) fn pid(number: i64) -> Pid {
    Pid::from_raw(i32::try_from(number).unwrap()).unwrap()
}

pub(crate) fn has_ended(process: Pid) -> bool {
    test_kill_process(process).is_err() || is_zombie(process).unwrap_or(true)
}

/// Reports whether a process has exited and has not been reaped, or `None` if it does not exist.
pub(crate) fn is_zombie(process: Pid) -> Option<bool> {
    let rows = platform::processes_of(&BTreeSet::from([process.as_raw_nonzero().get()]));
    rows.first().map(|row| row.is_zombie)
}

/// Returns the processes that a process has started, and which run.
pub(crate) fn children(parent: u32) -> Vec<Pid> {
    let rows = platform::processes().into_iter().filter(|row| row.parent.unsigned_abs() == parent && !row.is_zombie);
    rows.filter_map(|row| Pid::from_raw(row.id)).collect()
}

/// The response to one request, and when it arrived.
pub(crate) struct Outcome {
    pub(crate) at: Instant,
    pub(crate) took: Duration,
    pub(crate) answer: Answer,
}

/// Clients that send one request after the other until they are stopped.
pub(crate) struct ClientLoad {
    stop: Arc<AtomicBool>,
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    clients: Vec<thread::JoinHandle<()>>,
}

impl ClientLoad {
    pub(crate) fn on(server: &TestServer, model: &'static str, clients: usize, milliseconds: i64) -> Self {
        let (stop, outcomes) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Outcome>>>::default());
        let clients = (0..clients)
            .map(|_| {
                let (stop, outcomes, client) = (Arc::clone(&stop), Arc::clone(&outcomes), Client::new(server.http));
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let started = Instant::now();
                        let answer = infer(&client, model, milliseconds);
                        let at = Instant::now();
                        outcomes.lock().unwrap().push(Outcome { at, took: at - started, answer });
                    }
                })
            })
            .collect();
        Self { stop, outcomes, clients }
    }

    pub(crate) fn count(&self) -> usize {
        self.outcomes.lock().unwrap().len()
    }

    /// Waits until `more` further requests have been answered.
    pub(crate) fn wait_for(&self, more: usize) {
        let wanted = self.count() + more;
        wait_until("the load goes on", || self.count() >= wanted);
    }

    /// Returns the values of all answers so far, which are the process ids of workers for most models. Every request must have succeeded.
    pub(crate) fn values(&self) -> HashSet<i64> {
        self.outcomes.lock().unwrap().iter().map(|outcome| value(&outcome.answer)).collect()
    }

    /// Stops the load and returns the outcome of every request that was sent.
    pub(crate) fn end(self) -> Vec<Outcome> {
        self.stop.store(true, Ordering::Relaxed);
        for client in self.clients {
            client.join().unwrap();
        }
        std::mem::take(&mut *self.outcomes.lock().unwrap())
    }
}
