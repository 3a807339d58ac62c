//! A pool: workers that run the same interpreter, the models that they have loaded, and the calls to these models.
//!
//! A *supervisor* task owns each worker. It spawns the process, has it load its models, watches it, and restarts it when it
//! exits. What follows from the end of a worker or from a failed load is decided in `supervision`, whose actions
//! [`Pool::apply`] performs. Requests and supervisors share state behind one lock, which is never held across an `await`.
//! A model is ready on a worker once the worker has answered `load` and the warm-up samples; these are sent through the
//! same queue as calls.

mod calls;
mod report;
mod scrape;
mod steps;
mod supervisor;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

pub(super) use calls::OpenCall;

use super::dispatch::{Dispatch, ModelNumber};
use super::frame::{Frame, FrameKind, OutgoingFrame};
use super::message::{self, LoadHead, LoadedHead, ReadyHead};
use super::process::WorkerProgram;
use super::supervision::{Action, Supervision};
use super::{CallError, WorkerLoadError};
use crate::settings::WorkerSettings;
use crate::shutdown::supervised;
use crate::telemetry::workers::WorkerMetrics;
use crate::types::InferenceRequest;
use calls::PoolCall;
use report::WorkerEnds;

/// How much longer than `parallel_workers_timeout` the memory of a removed model counts, if its worker does not unload it.
const UNLOAD_MARGIN: Duration = Duration::from_secs(2);

/// The configuration of a pool.
#[derive(Debug, Clone)]
pub(super) struct PoolOptions {
    /// The pool's name in logs and messages.
    pub(super) name: String,
    pub(super) program: WorkerProgram,
    pub(super) size: usize,
    /// Whether plain functions run on the thread of the worker's event loop.
    pub(super) inline: bool,
    pub(super) debug: bool,
    pub(super) logging: Option<Value>,
    /// Folders to import from, after the SDK.
    pub(super) paths: Vec<std::path::PathBuf>,
    /// How many native predictions a worker runs at a time. `None` for workers of Python.
    pub(super) threads: Option<usize>,
    pub(super) workers: WorkerSettings,
    /// Limits the number of concurrent loads, over all pools.
    pub(super) loads: Arc<Semaphore>,
    pub(super) metrics: WorkerMetrics,
}

/// Workers and their models.
#[derive(Debug)]
pub(super) struct Pool {
    options: PoolOptions,
    state: Mutex<PoolState>,
    stop: CancellationToken,
    supervisors: TaskTracker,
}

/// A model that has been removed, and is being unloaded.
#[derive(Debug)]
pub(super) struct RemovedModel {
    /// The answers of its workers.
    answers: Vec<oneshot::Receiver<Result<Frame, CallError>>>,
    /// Whether it was the pool's last model, so that the workers end.
    ends_workers: bool,
}

#[derive(Debug)]
struct PoolState {
    dispatch: Dispatch<PoolCall>,
    supervision: Supervision<LoadedHead, WorkerLoadError>,
    links: Vec<WorkerLink>,
    /// The ends of workers that are not to be replaced by others, by index.
    ends: BTreeMap<usize, WorkerEnds>,
    models: BTreeMap<ModelNumber, PoolModel>,
    next_model: ModelNumber,
    closed: bool,
}

/// The state of a worker's process and of the connection to it.
#[derive(Debug, Default)]
struct WorkerLink {
    mailbox: Option<mpsc::UnboundedSender<(u64, OutgoingFrame)>>,
    ready: Option<oneshot::Sender<ReadyHead>>,
    /// The process id, once the worker is ready.
    pid: Option<u32>,
    /// Whether the worker has yet to answer the last `scrape`.
    scrape_pending: bool,
    /// Changes when it answers.
    scraped: watch::Sender<()>,
    /// Wakes the supervisor when there is something to do.
    wake: Arc<Notify>,
    /// Models to unload once their open calls have ended.
    unloads: Vec<ModelNumber>,
    /// Why the worker is being replaced, as a value of the metrics' label `reason`.
    replace_reason: Option<&'static str>,
}

#[derive(Debug)]
struct PoolModel {
    name: String,
    version: Option<String>,
    load_frame: OutgoingFrame,
    /// How long a prediction may run before its worker is replaced; `None` means no limit.
    predict_timeout: Option<Duration>,
    /// Sample requests that a worker answers before it takes calls.
    warmup: Arc<[OutgoingFrame]>,
    ready_workers: Arc<AtomicUsize>,
    changed: watch::Sender<()>,
}

/// A model to load.
#[derive(Debug)]
pub(super) struct ModelSpec<'a> {
    pub(super) name: &'a str,
    pub(super) version: Option<&'a str>,
    /// The resolved settings, in the form of `model-settings.json`.
    pub(super) settings: &'a Value,
    /// The path of that file.
    pub(super) source: Option<&'a str>,
    /// The file or folder of a model that is evaluated natively.
    pub(super) artifact: Option<&'a str>,
    /// How long a prediction may run before its worker is replaced; `None` means no limit.
    pub(super) predict_timeout: Option<Duration>,
    /// Sample requests that every worker answers before it takes calls.
    pub(super) warmup: &'a [InferenceRequest],
}

/// A model that all its workers have loaded.
#[derive(Debug)]
pub(super) struct AddedModel {
    pub(super) number: ModelNumber,
    pub(super) loaded: LoadedHead,
    /// The number of workers on which the model can be called now.
    pub(super) ready_workers: Arc<AtomicUsize>,
}

impl Pool {
    /// Creates a pool and starts its workers.
    pub(super) fn start(options: PoolOptions) -> Arc<Self> {
        let size = options.size.max(1);
        let supervision = Supervision::new(size, !options.inline);
        let pool = Arc::new(Self {
            state: Mutex::new(PoolState {
                dispatch: Dispatch::new(size),
                supervision,
                links: Vec::new(),
                ends: BTreeMap::new(),
                models: BTreeMap::new(),
                next_model: 0,
                closed: false,
            }),
            stop: CancellationToken::new(),
            supervisors: TaskTracker::new(),
            options,
        });
        pool.apply(&mut pool.state.lock());
        pool
    }

    /// Performs what `supervision` has decided, and publishes where models are ready.
    fn apply(self: &Arc<Self>, state: &mut PoolState) {
        for action in state.supervision.take_actions() {
            match action {
                Action::Start(worker) => {
                    while state.links.len() <= worker {
                        state.links.push(WorkerLink::default());
                        if state.links.len() > self.size() {
                            state.dispatch.add_worker();
                        }
                    }
                    state.links[worker] = WorkerLink::default();
                    let supervisor = Arc::clone(self).supervise(worker);
                    self.supervisors.spawn(supervised("supervisor of a worker", supervisor));
                }
                Action::Unload { worker, model } => {
                    state.dispatch.remove_model(worker, model);
                    state.links[worker].unloads.push(model);
                    state.links[worker].wake.notify_one();
                }
                Action::Drain(worker) => {
                    state.dispatch.drain_worker(worker);
                    state.links[worker].wake.notify_one();
                }
                Action::ReportQuarantine { worker, model } => {
                    if let Some(model) = state.models.get(&model) {
                        warn!(
                            worker = self.worker_name(worker),
                            model = model.name,
                            version = model.version,
                            "Moved a model to a worker of its own: it has ended workers that it shared, twice within a minute."
                        );
                    }
                    state.links[worker].wake.notify_one();
                }
            }
        }
        for (&number, model) in &state.models {
            model.ready_workers.store(state.supervision.ready_workers(number), Ordering::Release);
            model.changed.send_replace(());
        }
    }

    fn worker_name(&self, worker: usize) -> String {
        format!("{}-{worker}", self.options.name)
    }

    /// Returns how many shared workers the pool has.
    pub(super) fn size(&self) -> usize {
        self.options.size.max(1)
    }

    /// Returns how many native predictions a worker runs at a time. `None` for workers of Python.
    pub(super) const fn threads(&self) -> Option<usize> {
        self.options.threads
    }

    /// Returns whether the pool takes no further models.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    // Models

    /// Loads a model on the `workers` workers with the fewest models, or on all workers if the pool has fewer.
    ///
    /// # Errors
    ///
    /// Fails if one of them cannot load it. The model is then unloaded from all workers.
    pub(super) async fn add(
        self: &Arc<Self>,
        spec: ModelSpec<'_>,
        workers: usize,
    ) -> Result<AddedModel, WorkerLoadError> {
        let ModelSpec { name, version, settings, source, artifact, predict_timeout, warmup } = spec;
        let (number, mut changed) = {
            let mut state = self.state.lock();
            if state.closed {
                return Err(WorkerLoadError::Stopping);
            }
            state.next_model += 1;
            let number = state.next_model;
            let load = LoadHead { model: number, settings, source, artifact };
            let load_frame = OutgoingFrame::new(FrameKind::Load, message::encode_head(&load))?;
            let warmup = warmup.iter().map(|sample| message::request_frame(FrameKind::Predict, Some(number), sample));
            let warmup = warmup.collect::<Result<_, _>>()?;
            let (sender, changed) = watch::channel(());
            state.models.insert(
                number,
                PoolModel {
                    name: name.to_owned(),
                    version: version.map(str::to_owned),
                    load_frame,
                    predict_timeout,
                    warmup,
                    ready_workers: Arc::default(),
                    changed: sender,
                },
            );
            state.supervision.add_model(number, workers);
            for worker in state.supervision.workers_of(number) {
                state.links[worker].wake.notify_one();
            }
            (number, changed)
        };
        // If the load fails or this future is dropped, the model is removed again.
        let guard = RemovalGuard { pool: self, number: Some(number) };
        loop {
            if let Some(outcome) = self.load_outcome(number) {
                let added = outcome?;
                guard.disarm();
                return Ok(added);
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = self.stop.cancelled() => return Err(WorkerLoadError::Stopping),
            }
        }
    }

    /// Returns the outcome of adding a model, or `None` if it is not known yet.
    fn load_outcome(&self, number: ModelNumber) -> Option<Result<AddedModel, WorkerLoadError>> {
        let mut state = self.state.lock();
        let outcome = state.supervision.outcome(number)?;
        let ready_workers = Arc::clone(&state.models.get(&number)?.ready_workers);
        Some(outcome.map(|loaded| AddedModel { number, loaded, ready_workers }))
    }

    /// Unloads a model from every worker, and closes the pool if it was the last one. Returns `None` if it is not there.
    pub(super) fn remove(self: &Arc<Self>, number: ModelNumber) -> Option<RemovedModel> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let model = state.models.remove(&number)?;
        model.ready_workers.store(0, Ordering::Release);
        let mut answers = Vec::new();
        for worker in state.supervision.remove_model(number) {
            state.dispatch.remove_model(worker, number);
            // A worker that is not running needs no unload.
            if state.links[worker].mailbox.is_some() {
                let (reply, answer) = oneshot::channel();
                state.send_to(worker, message::unload_frame(number), reply);
                answers.push(answer);
            }
        }
        let ends_workers = !state.supervision.has_models();
        if ends_workers {
            state.closed = true;
            self.stop.cancel();
        } else {
            self.apply(state);
        }
        Some(RemovedModel { answers, ends_workers })
    }

    /// Removes a model, and waits until its workers have unloaded it or have ended, for not much longer than they may take.
    pub(super) async fn unload(self: Arc<Self>, number: ModelNumber) {
        let Some(RemovedModel { answers, ends_workers }) = self.remove(number) else { return };
        let unloaded = async {
            if ends_workers {
                self.supervisors.close();
                self.supervisors.wait().await;
            } else {
                futures_util::future::join_all(answers).await;
            }
        };
        let limit = self.options.workers.parallel_workers_timeout + UNLOAD_MARGIN;
        if tokio::time::timeout(limit, unloaded).await.is_err() {
            warn!(pool = self.options.name, "A model was not unloaded within {} s.", limit.as_secs_f64());
        }
    }

    /// Describes why a model cannot be called on any worker.
    pub(super) fn unavailable_reason(&self, number: ModelNumber) -> String {
        self.state.lock().unavailable_reason(number)
    }

    /// Stops all workers once their open calls have finished or `parallel_workers_timeout` is over.
    pub(super) async fn stop(&self) {
        self.state.lock().closed = true;
        self.stop.cancel();
        self.supervisors.close();
        self.supervisors.wait().await;
    }
}

impl PoolState {
    /// Describes why a model cannot be called on any worker.
    fn unavailable_reason(&self, number: ModelNumber) -> String {
        if !self.supervision.has_model(number) {
            return "the model has been unloaded".to_owned();
        }
        let (workers, loads) = self.supervision.failures(number);
        let loads = loads.into_iter().map(|error| format!("{error}; the load is retried"));
        let mut reasons: Vec<String> = workers.into_iter().map(str::to_owned).chain(loads).collect();
        reasons.dedup();
        if reasons.is_empty() { "its worker is starting".to_owned() } else { reasons.join("; ") }
    }

    /// Fails the queued calls of models that no worker can run, nor will soon.
    fn reject_unservable_calls(&mut self) {
        let unavailable: Vec<ModelNumber> =
            self.models.keys().copied().filter(|&number| self.supervision.is_unavailable(number)).collect();
        for call in self.dispatch.take_queued(|model, _| unavailable.contains(&model)) {
            let reason = self.unavailable_reason(call.model);
            call.reply.send(Err(CallError::NoWorker { reason }));
        }
    }
}

/// Removes a model when it is dropped, unless it is disarmed.
struct RemovalGuard<'a> {
    pool: &'a Arc<Pool>,
    number: Option<ModelNumber>,
}

impl RemovalGuard<'_> {
    fn disarm(mut self) {
        self.number = None;
    }
}

impl Drop for RemovalGuard<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            drop(self.pool.remove(number));
        }
    }
}
