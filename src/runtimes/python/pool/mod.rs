//! A pool: workers that run the same interpreter, the models that they have loaded, and the calls to these models.
//!
//! A *supervisor* task owns each worker. It spawns the process, has it load its models, watches it, and restarts it when it
//! exits, with exponential backoff if it exits soon after its start. Requests and supervisors share state behind one lock,
//! which is never held across an `await`. A model is ready on a worker once the worker has answered `load` and the warm-up
//! samples; these are sent through the same queue as calls.

mod calls;
mod scrape;
mod supervisor;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::warn;

pub(super) use calls::OpenCall;

use super::dispatch::{Dispatch, ModelNumber};
use super::frame::{Frame, FrameKind, OutgoingFrame};
use super::message::{self, LoadHead, LoadedHead, ReadyHead};
use super::process::WorkerProgram;
use super::{CallError, PythonLoadError};
use crate::shutdown::supervised;
use crate::telemetry::workers::WorkerMetrics;
use crate::types::InferenceRequest;
use calls::PoolCall;

/// How much longer than `stop_timeout` the memory of a removed model counts, if its worker does not unload it.
const UNLOAD_MARGIN: Duration = Duration::from_secs(2);

/// After this many failed starts in a row, calls fail instead of waiting for the next start.
const MAX_FAILED_STARTS: u32 = 2;

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
    /// How long a worker may be unresponsive before it is killed; `None` means no limit.
    pub(super) hang_timeout: Option<Duration>,
    /// How long a worker that is being stopped has to finish its calls.
    pub(super) stop_timeout: Duration,
    /// Limits the number of concurrent loads, over all pools.
    pub(super) loads: Arc<Semaphore>,
    pub(super) metrics: WorkerMetrics,
}

/// Workers and their models.
#[derive(Debug)]
pub(super) struct Pool {
    options: PoolOptions,
    state: Mutex<PoolState>,
    /// Wakes each supervisor when its worker may have a model to load.
    wake: Vec<Notify>,
    stop: CancellationToken,
    supervisors: Mutex<JoinSet<()>>,
    /// The number of supervisors that have not ended.
    running: watch::Sender<usize>,
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
    links: Vec<WorkerLink>,
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
    /// The model that the worker is loading now.
    loading: Option<ModelNumber>,
    /// Number of exits since the worker last loaded a model.
    failed_starts: u32,
    /// Number of exits in a row before the worker counted as stable.
    early_exits: u32,
    /// Why the worker is not up.
    last_failure: Option<String>,
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
    /// The state of the model on each worker that should load it.
    states: BTreeMap<usize, LoadState>,
    /// Whether all these workers have loaded the model once. From then on, a failure is attributed to the worker.
    established: bool,
    ready_workers: Arc<AtomicUsize>,
    changed: watch::Sender<()>,
}

/// The state of a model on one worker.
#[derive(Debug)]
enum LoadState {
    /// The worker has yet to load the model. It has crashed this often while it did.
    Pending {
        crashes: u32,
    },
    Loaded(LoadedHead),
    Failed(PythonLoadError),
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
        let pool = Arc::new(Self {
            state: Mutex::new(PoolState {
                dispatch: Dispatch::new(size),
                links: std::iter::repeat_with(WorkerLink::default).take(size).collect(),
                models: BTreeMap::new(),
                next_model: 0,
                closed: false,
            }),
            wake: std::iter::repeat_with(Notify::new).take(size).collect(),
            stop: CancellationToken::new(),
            supervisors: Mutex::new(JoinSet::new()),
            running: watch::Sender::new(size),
            options,
        });
        for worker in 0..size {
            let supervisor = Arc::clone(&pool).supervise(worker);
            pool.supervisors.lock().spawn(supervised("supervisor of a worker", supervisor));
        }
        pool
    }

    fn worker_name(&self, worker: usize) -> String {
        format!("{}-{worker}", self.options.name)
    }

    /// Returns how many workers the pool has.
    pub(super) const fn size(&self) -> usize {
        self.wake.len()
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
    ) -> Result<AddedModel, PythonLoadError> {
        let ModelSpec { name, version, settings, source, predict_timeout, warmup } = spec;
        let (number, mut changed) = {
            let mut state = self.state.lock();
            if state.closed {
                return Err(PythonLoadError::Stopping);
            }
            state.next_model += 1;
            let number = state.next_model;
            let load = LoadHead { model: number, settings, source };
            let load_frame = OutgoingFrame::new(FrameKind::Load, message::encode_head(&load))?;
            let warmup = warmup.iter().map(|sample| message::request_frame(FrameKind::Predict, Some(number), sample));
            let warmup = warmup.collect::<Result<_, _>>()?;
            let mut chosen: Vec<usize> = (0..state.links.len()).collect();
            let models = |worker| state.models.values().filter(|model| model.states.contains_key(&worker)).count();
            chosen.sort_by_key(|&worker| models(worker));
            chosen.truncate(workers.max(1));
            let (sender, changed) = watch::channel(());
            state.models.insert(
                number,
                PoolModel {
                    name: name.to_owned(),
                    version: version.map(str::to_owned),
                    load_frame,
                    predict_timeout,
                    warmup,
                    states: chosen.iter().map(|&worker| (worker, LoadState::Pending { crashes: 0 })).collect(),
                    established: false,
                    ready_workers: Arc::default(),
                    changed: sender,
                },
            );
            for &worker in &chosen {
                self.wake[worker].notify_one();
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
                () = self.stop.cancelled() => return Err(PythonLoadError::Stopping),
            }
        }
    }

    /// Returns the outcome of adding a model, or `None` if it is not known yet.
    fn load_outcome(&self, number: ModelNumber) -> Option<Result<AddedModel, PythonLoadError>> {
        let mut state = self.state.lock();
        let model = state.models.get_mut(&number)?;
        let mut last = None;
        for state in model.states.values_mut() {
            match state {
                LoadState::Pending { .. } => return None,
                LoadState::Loaded(loaded) => last = Some(loaded.clone()),
                LoadState::Failed(error) => return Some(Err(std::mem::replace(error, PythonLoadError::Stopping))),
            }
        }
        model.established = true;
        let (loaded, ready_workers) = (last?, Arc::clone(&model.ready_workers));
        Some(Ok(AddedModel { number, loaded, ready_workers }))
    }

    /// Unloads a model from every worker, and closes the pool if it was the last one. Returns `None` if it is not there.
    pub(super) fn remove(&self, number: ModelNumber) -> Option<RemovedModel> {
        let mut state = self.state.lock();
        let model = state.models.remove(&number)?;
        model.ready_workers.store(0, Ordering::Release);
        let mut answers = Vec::new();
        for worker in model.states.into_keys() {
            state.dispatch.remove_model(worker, number);
            // A worker that is not running needs no unload.
            if state.links[worker].mailbox.is_some() {
                let (reply, answer) = oneshot::channel();
                state.send_to(worker, message::unload_frame(number), reply);
                answers.push(answer);
            }
        }
        let ends_workers = state.models.is_empty();
        if ends_workers {
            state.closed = true;
            drop(state);
            self.stop.cancel();
        }
        Some(RemovedModel { answers, ends_workers })
    }

    /// Removes a model, and waits until its workers have unloaded it or have ended, for not much longer than they may take.
    pub(super) async fn unload(self: Arc<Self>, number: ModelNumber) {
        let Some(RemovedModel { answers, ends_workers }) = self.remove(number) else { return };
        let unloaded = async {
            if ends_workers {
                // Fails only if the pool is dropped.
                let _ = self.running.subscribe().wait_for(|running| *running == 0).await;
            } else {
                futures_util::future::join_all(answers).await;
            }
        };
        let limit = self.options.stop_timeout + UNLOAD_MARGIN;
        if tokio::time::timeout(limit, unloaded).await.is_err() {
            warn!(pool = self.options.name, "A model was not unloaded within {} s.", limit.as_secs_f64());
        }
    }

    /// Describes why a model cannot be called on any worker.
    pub(super) fn unavailable_reason(&self, number: ModelNumber) -> String {
        let state = self.state.lock();
        let Some(model) = state.models.get(&number) else { return "the model has been unloaded".to_owned() };
        let worker_failures = model.states.keys().filter_map(|&worker| state.links[worker].last_failure.as_deref());
        let load_failures = model.states.values().filter_map(|state| match state {
            LoadState::Failed(error) => Some(error.to_string()),
            LoadState::Pending { .. } | LoadState::Loaded(_) => None,
        });
        let mut reasons: Vec<String> = worker_failures.map(str::to_owned).chain(load_failures).collect();
        reasons.dedup();
        if reasons.is_empty() { "its worker is starting".to_owned() } else { reasons.join("; ") }
    }

    /// Stops all workers once their open calls have finished or `stop_timeout` is over.
    pub(super) async fn stop(&self) {
        self.state.lock().closed = true;
        self.stop.cancel();
        let mut supervisors = std::mem::take(&mut *self.supervisors.lock());
        while supervisors.join_next().await.is_some() {}
    }
}

impl PoolState {
    /// Returns whether calls to a model would wait for workers that fail to start.
    fn is_unavailable(&self, number: ModelNumber) -> bool {
        self.models.get(&number).is_none_or(|model| {
            model.ready_workers.load(Ordering::Acquire) == 0
                && model.states.iter().all(|(&worker, state)| {
                    matches!(state, LoadState::Failed(_)) || self.links[worker].failed_starts >= MAX_FAILED_STARTS
                })
        })
    }

    /// Removes and returns the queued calls of models that are unavailable.
    fn take_unservable_calls(&mut self) -> Vec<PoolCall> {
        let unavailable: Vec<ModelNumber> =
            self.models.keys().copied().filter(|&number| self.is_unavailable(number)).collect();
        self.dispatch.take_queued(|model, _| unavailable.contains(&model))
    }
}

/// Removes a model when it is dropped, unless it is disarmed.
struct RemovalGuard<'a> {
    pool: &'a Pool,
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
