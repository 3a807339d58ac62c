//! A pool: workers that run the same interpreter, the models they have, and the calls for them.
//!
//! A *keeper* task owns each worker. It starts the process, has it load the models that the pool wants there, watches it,
//! and starts it again when it has ended, with growing pauses when it does not live long. What requests and keepers share is
//! behind one lock that is never held across a wait. A model is ready on a worker once its `load` has been answered there,
//! through the queue that its calls take.

mod calls;
mod keeper;
mod scrape;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(super) use calls::OpenCall;

use super::PythonLoadError;
use super::dispatch::{Dispatch, ModelNumber};
use super::frame::{Kind, Outgoing};
use super::message::{self, Load, Loaded, Ready};
use super::process::Program;
use crate::telemetry::workers::WorkerMetrics;
use crate::types::InferenceRequest;
use calls::Call;

/// After this many failed starts in a row, calls do not wait for the next one.
const HOPELESS: u32 = 2;

/// What a pool is made of.
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// How logs and messages call it.
    pub(super) name: String,
    pub(super) program: Program,
    pub(super) size: usize,
    /// Plain functions run on the thread of the worker's loop.
    pub(super) inline: bool,
    pub(super) debug: bool,
    pub(super) logging: Option<Value>,
    /// Folders to import from, behind the SDK.
    pub(super) paths: Vec<std::path::PathBuf>,
    /// Nothing when a worker may be silent for ever.
    pub(super) hang_timeout: Option<Duration>,
    /// How long a worker has to end its calls when it is stopped.
    pub(super) stop_timeout: Duration,
    /// Bounds the models that are being loaded at once, over all pools.
    pub(super) loads: Arc<Semaphore>,
    pub(super) metrics: WorkerMetrics,
}

/// Workers and their models.
#[derive(Debug)]
pub(super) struct Pool {
    options: Options,
    state: Mutex<State>,
    /// Wakes each keeper: there may be something to load.
    wake: Vec<Notify>,
    stop: CancellationToken,
    keepers: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct State {
    dispatch: Dispatch<Call>,
    links: Vec<Link>,
    models: BTreeMap<ModelNumber, Model>,
    next_model: ModelNumber,
    closed: bool,
}

/// What is known of a worker's process.
#[derive(Debug, Default)]
struct Link {
    mailbox: Option<mpsc::UnboundedSender<(u64, Outgoing)>>,
    ready: Option<oneshot::Sender<Ready>>,
    /// Its process, once that is ready.
    pid: Option<u32>,
    /// It has not answered the last `scrape`.
    asked_for_metrics: bool,
    /// Changes when it has.
    told_metrics: watch::Sender<()>,
    /// The model that it loads now.
    loading: Option<ModelNumber>,
    /// Starts in a row that came to nothing.
    failures: u32,
    /// Ends in a row of workers that did not live long.
    deaths: u32,
    /// Why it is not up.
    trouble: Option<String>,
}

#[derive(Debug)]
struct Model {
    name: String,
    version: Option<String>,
    frame: Outgoing,
    /// How long a call may run; nothing is for ever.
    limit: Option<Duration>,
    /// Requests that a worker answers before it takes calls.
    samples: Arc<[Outgoing]>,
    on: BTreeMap<usize, On>,
    /// It has been loaded by every worker once, so that a failure from now on is the worker's.
    established: bool,
    ready: Arc<AtomicUsize>,
    changed: watch::Sender<()>,
}

/// What a model is on one worker.
#[derive(Debug)]
enum On {
    /// Workers have died this often while they loaded it here.
    Wanted {
        deaths: u32,
    },
    Loaded(Loaded),
    Failed(PythonLoadError),
}

/// A model to be loaded.
#[derive(Debug)]
pub(super) struct WantedModel<'a> {
    pub(super) name: &'a str,
    pub(super) version: Option<&'a str>,
    /// As `model-settings.json` would have them, resolved.
    pub(super) settings: &'a Value,
    /// The path of that file.
    pub(super) source: Option<&'a str>,
    /// How long a call may run before its worker is replaced; nothing is for ever.
    pub(super) limit: Option<Duration>,
    /// Requests that every worker answers before it takes calls.
    pub(super) samples: &'a [InferenceRequest],
}

/// A model that every worker it was meant for has loaded.
#[derive(Debug)]
pub(super) struct AddedModel {
    pub(super) number: ModelNumber,
    pub(super) loaded: Loaded,
    /// On how many workers it can be called now.
    pub(super) ready: Arc<AtomicUsize>,
}

impl Pool {
    /// Makes a pool whose workers start now.
    pub(super) fn start(options: Options) -> Arc<Self> {
        let size = options.size.max(1);
        let pool = Arc::new(Self {
            state: Mutex::new(State {
                dispatch: Dispatch::new(size),
                links: std::iter::repeat_with(Link::default).take(size).collect(),
                models: BTreeMap::new(),
                next_model: 0,
                closed: false,
            }),
            wake: std::iter::repeat_with(Notify::new).take(size).collect(),
            stop: CancellationToken::new(),
            keepers: Mutex::new(JoinSet::new()),
            options,
        });
        for worker in 0..size {
            let keeper = Arc::clone(&pool).keep(worker);
            pool.keepers.lock().spawn(keeper);
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

    /// Tells whether the pool takes no further models.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    // Models

    /// Loads a model on `workers` of the workers (on all when there are fewer), those with the fewest models.
    ///
    /// # Errors
    ///
    /// Fails when one of them cannot load it; no worker keeps it then.
    pub(super) async fn add(
        self: &Arc<Self>,
        wanted: WantedModel<'_>,
        workers: usize,
    ) -> Result<AddedModel, PythonLoadError> {
        let WantedModel { name, version, settings, source, limit, samples } = wanted;
        let (number, mut changed) = {
            let mut state = self.state.lock();
            if state.closed {
                return Err(PythonLoadError::Stopping);
            }
            state.next_model += 1;
            let number = state.next_model;
            let load = Load { model: number, settings, source };
            let frame = Outgoing::new(Kind::Load, message::head(&load))?;
            let samples = samples.iter().map(|sample| message::request(Kind::Predict, Some(number), sample));
            let samples = samples.collect::<Result<_, _>>()?;
            let mut places: Vec<usize> = (0..state.links.len()).collect();
            let models = |worker| state.models.values().filter(|model| model.on.contains_key(&worker)).count();
            places.sort_by_key(|&worker| models(worker));
            places.truncate(workers.max(1));
            let (sender, changed) = watch::channel(());
            state.models.insert(
                number,
                Model {
                    name: name.to_owned(),
                    version: version.map(str::to_owned),
                    frame,
                    limit,
                    samples,
                    on: places.iter().map(|&worker| (worker, On::Wanted { deaths: 0 })).collect(),
                    established: false,
                    ready: Arc::default(),
                    changed: sender,
                },
            );
            for &worker in &places {
                self.wake[worker].notify_one();
            }
            (number, changed)
        };
        // Whoever gives up waiting leaves no model behind.
        let guard = Removal { pool: self, number: Some(number) };
        loop {
            if let Some(outcome) = self.outcome(number) {
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

    /// Returns what became of a model that is being added, once that is known.
    fn outcome(&self, number: ModelNumber) -> Option<Result<AddedModel, PythonLoadError>> {
        let mut state = self.state.lock();
        let model = state.models.get_mut(&number)?;
        let mut last = None;
        for on in model.on.values_mut() {
            match on {
                On::Wanted { .. } => return None,
                On::Loaded(loaded) => last = Some(loaded.clone()),
                On::Failed(error) => return Some(Err(std::mem::replace(error, PythonLoadError::Stopping))),
            }
        }
        model.established = true;
        let (loaded, ready) = (last?, Arc::clone(&model.ready));
        Some(Ok(AddedModel { number, loaded, ready }))
    }

    /// Takes a model away from every worker, and ends the pool when it was the last.
    pub(super) fn remove(&self, number: ModelNumber) {
        let mut state = self.state.lock();
        let Some(model) = state.models.remove(&number) else { return };
        model.ready.store(0, Ordering::Release);
        for worker in model.on.into_keys() {
            state.dispatch.remove_model(worker, number);
            if state.links[worker].mailbox.is_some() {
                // Nobody waits for the answer; a worker that has gone needs no unload.
                let (reply, _) = oneshot::channel();
                state.send_to(worker, message::unload(number), reply);
            }
        }
        if state.models.is_empty() {
            state.closed = true;
            drop(state);
            self.stop.cancel();
        }
    }

    /// Says why a model cannot be called on any worker.
    pub(super) fn trouble(&self, number: ModelNumber) -> String {
        let state = self.state.lock();
        let Some(model) = state.models.get(&number) else { return "the model has been unloaded".to_owned() };
        let troubles = model.on.keys().filter_map(|&worker| state.links[worker].trouble.as_deref());
        let failed = model.on.values().filter_map(|on| match on {
            On::Failed(error) => Some(error.to_string()),
            On::Wanted { .. } | On::Loaded(_) => None,
        });
        let mut reasons: Vec<String> = troubles.map(str::to_owned).chain(failed).collect();
        reasons.dedup();
        if reasons.is_empty() { "its worker is starting".to_owned() } else { reasons.join("; ") }
    }

    /// Ends all workers: their open calls first, as far as time allows.
    pub(super) async fn end(&self) {
        self.state.lock().closed = true;
        self.stop.cancel();
        let mut keepers = std::mem::take(&mut *self.keepers.lock());
        while keepers.join_next().await.is_some() {}
    }
}

impl State {
    /// Tells whether calls for a model would wait for a worker that does not start.
    fn is_hopeless(&self, number: ModelNumber) -> bool {
        self.models.get(&number).is_none_or(|model| {
            model.ready.load(Ordering::Acquire) == 0
                && model
                    .on
                    .iter()
                    .all(|(&worker, on)| matches!(on, On::Failed(_)) || self.links[worker].failures >= HOPELESS)
        })
    }

    fn take_hopeless(&mut self) -> Vec<Call> {
        let hopeless: Vec<ModelNumber> =
            self.models.keys().copied().filter(|&number| self.is_hopeless(number)).collect();
        self.dispatch.take_waiting(|model, _| hopeless.contains(&model))
    }
}

/// Takes a model away again unless it is disarmed.
struct Removal<'a> {
    pool: &'a Pool,
    number: Option<ModelNumber>,
}

impl Removal<'_> {
    fn disarm(mut self) {
        self.number = None;
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.pool.remove(number);
        }
    }
}
