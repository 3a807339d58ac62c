//! Models that run in worker processes: those whose code is Python, each with the interpreter of its environment, and those that
//! this executable evaluates in a process of its own (`mlserver score`).
//!
//! [`Workers`] keeps a [`pool`] for each program and group, and turns a model that a pool has loaded into a runtime.
//! Inside a pool, `dispatch` decides which worker runs which call, `process` spawns and reaps workers, `connection` moves
//! `frame`s, and `message` encodes and decodes their content, of which `memory_file` holds long tensors. `score` is the worker's end in Rust. `docs/worker-protocol.md`
//! describes the wire format.

mod answer;
mod connection;
mod dispatch;
#[cfg(test)]
mod fixtures;
mod frame;
#[cfg(fuzzing)]
pub mod fuzzing;
mod memory_file;
mod message;
mod model;
mod native;
mod output;
mod pool;
mod process;
mod reply;
pub mod score;
mod stream;
mod supervision;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::Runtime;
use crate::compute::ComputePool;
use crate::settings::WorkerSettings;
use crate::telemetry::exposition::{Expositions, MetricsSource};
use crate::telemetry::workers::{WorkerMetrics, WorkerReport, WorkerSource};
use frame::FrameError;
use message::MessageError;
pub(super) use model::{ModelToLoad, pool_group};
use pool::{Pool, PoolOptions};
use process::WorkerExit;
pub(super) use process::WorkerProgram;

/// How long a scrape waits for the workers' metrics. Scrapes answer within 100 ms whatever the models do.
const SCRAPE_TIMEOUT: Duration = Duration::from_millis(50);

/// How workers run, from the server's settings.
#[derive(Debug, Clone, Default)]
pub struct WorkerOptions {
    pub settings: WorkerSettings,
    /// Folders that models may import from, in addition to their own.
    pub paths: Vec<PathBuf>,
    pub debug: bool,
    /// The configuration of Python's `logging` for models: a dictionary, or the path of a file.
    pub logging: Option<Value>,
    pub metrics: WorkerMetrics,
    /// The threads that write and read long frames.
    pub compute: ComputePool,
}

/// The worker pools of a server. Clones share them.
#[derive(Debug, Clone)]
pub struct Workers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: WorkerOptions,
    pools: Mutex<HashMap<PoolKey, Arc<Pool>>>,
    loads: Arc<Semaphore>,
}

/// Models with equal keys run in the same processes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct PoolKey {
    /// The Python environment, if it is not the server's own.
    pub(super) environment: Option<String>,
    pub(super) group: Option<String>,
    pub(super) inline: bool,
    /// Environment variables that only these models have.
    pub(super) variables: BTreeMap<String, String>,
    /// The memory of a worker in bytes, if the model has a limit of its own.
    pub(super) memory_limit: Option<u64>,
    /// Whether this executable evaluates the models.
    pub(super) is_native: bool,
}

impl PoolKey {
    /// Returns whether the pool is the one of models without settings of their own.
    fn is_default(&self) -> bool {
        self.environment.is_none() && self.group.is_none() && self.variables.is_empty() && self.memory_limit.is_none()
    }
}

/// A pool that is started unless there is one with its key.
#[derive(Debug)]
pub(super) struct NewPool {
    pub(super) key: PoolKey,
    /// Its name in logs.
    pub(super) name: String,
    pub(super) program: WorkerProgram,
    pub(super) size: usize,
    /// How many native predictions a worker runs at a time, if the model says it.
    pub(super) threads: Option<usize>,
}

/// Why a model could not be loaded in workers.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WorkerLoadError {
    #[error("cannot start `{}`", program.display())]
    Start { program: PathBuf, source: Arc<io::Error> },
    /// The model's own code failed, or cannot be imported, or its file cannot be read.
    #[error("{message}")]
    Failed { message: String, status: u16 },
    /// The file may be valid, but needs what its native evaluator lacks.
    #[error("{message}")]
    Unsupported { message: String },
    /// `load` of a model that was ready has returned false in another process.
    #[error("its `load` returned false")]
    ReturnedFalse,
    #[error("cannot serve route `{path}` of handler `{handler}`: {reason}")]
    Route { handler: String, path: String, reason: String },
    #[error("the worker exited while it loaded the model: {exit}")]
    WorkerExited { exit: String },
    /// The model failed on one of the sample requests of its setting `warmup`.
    #[error("the model was loaded but does not answer `warmup[{index}]` of its settings: {reason}")]
    Warmup { index: usize, reason: String },
    #[error("the settings are too long: {reason}")]
    TooLarge { reason: String },
    #[error("cannot read the worker's answer; this is a bug in mlserver: {reason}")]
    Message { reason: String },
    #[error("the server is shutting down")]
    Stopping,
}

impl From<MessageError> for WorkerLoadError {
    fn from(error: MessageError) -> Self {
        Self::Message { reason: error.to_string() }
    }
}

impl From<FrameError> for WorkerLoadError {
    fn from(error: FrameError) -> Self {
        Self::TooLarge { reason: error.to_string() }
    }
}

/// Why a call got no answer from the model.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("{0}")]
    WorkerLost(Arc<WorkerExit>),
    #[error("worker {worker} lost the call")]
    Lost { worker: String },
    #[error("no worker is running: {reason}")]
    NoWorker { reason: String },
    #[error("the server is shutting down")]
    Stopping,
}

impl Workers {
    pub fn new(options: WorkerOptions) -> Self {
        // CPU and memory use peak while a model loads, so at most one load per core runs at a time.
        let loads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self(Arc::new(Shared { options, pools: Mutex::default(), loads: Arc::new(Semaphore::new(loads)) }))
    }

    /// Returns the threads that write and read long frames, which the server shares.
    pub fn compute(&self) -> &ComputePool {
        &self.0.options.compute
    }

    /// Loads a model in the pool that `pool` describes.
    pub(super) async fn load(
        &self,
        pool: NewPool,
        model: ModelToLoad<'_>,
    ) -> Result<Arc<dyn Runtime>, WorkerLoadError> {
        loop {
            let found = self.pool(&pool);
            match model::load(&found, model, &self.0.options.compute).await {
                // The pool's last model was unloaded in the meantime, which closed the pool: try again with a new pool.
                Err(WorkerLoadError::Stopping) if found.is_closed() && !self.0.loads.is_closed() => {}
                outcome => return outcome,
            }
        }
    }

    fn pool(&self, new: &NewPool) -> Arc<Pool> {
        let Shared { options, loads, pools } = &*self.0;
        let mut pools = pools.lock();
        pools.retain(|_, pool| !pool.is_closed());
        let number = pools.len();
        let NewPool { key, name, program, size, threads } = new;
        let used: usize = pools.values().filter_map(|pool| pool.threads()).sum();
        let make = || {
            let mut workers = options.settings.clone();
            workers.worker_memory_limit = key.memory_limit.or(workers.worker_memory_limit);
            Pool::start(PoolOptions {
                name: if number == 0 || key.is_default() { name.clone() } else { format!("{name}.{number}") },
                program: program.clone(),
                size: *size,
                inline: key.inline,
                debug: options.debug,
                logging: options.logging.clone(),
                paths: options.paths.clone(),
                threads: key.is_native.then(|| threads.unwrap_or_else(|| native::threads_left(used))),
                workers,
                loads: Arc::clone(loads),
                metrics: options.metrics.clone(),
            })
        };
        Arc::clone(pools.entry(key.clone()).or_insert_with(make))
    }

    /// Sends `payload` to a worker and returns its echo, without running any code of a model: measures the round trip.
    ///
    /// Returns `None` if no worker is running.
    pub async fn ping(&self, payload: Bytes) -> Option<Bytes> {
        let pool = self.0.pools.lock().values().next().map(Arc::clone)?;
        pool.ping(payload).await
    }

    /// Returns the metrics that models keep themselves, as of the last scrape.
    pub fn expositions(&self) -> &Expositions {
        self.0.options.metrics.expositions()
    }

    /// Stops all workers once their open calls have finished or `parallel_workers_timeout` is over. Nothing can be loaded afterwards.
    pub async fn stop(&self) {
        self.0.loads.close();
        let pools: Vec<_> = self.0.pools.lock().drain().collect();
        let stops = pools.iter().map(|(_, pool)| pool.stop());
        futures_util::future::join_all(stops).await;
    }
}

impl MetricsSource for Workers {
    fn refresh(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let pools: Vec<_> = self.0.pools.lock().values().map(Arc::clone).collect();
            futures_util::future::join_all(pools.iter().map(|pool| pool.scrape(SCRAPE_TIMEOUT))).await;
        })
    }
}

impl WorkerSource for Workers {
    fn reports(&self) -> Vec<WorkerReport> {
        let pools: Vec<_> = self.0.pools.lock().values().map(Arc::clone).collect();
        let mut reports: Vec<_> = pools.iter().flat_map(|pool| pool.reports()).collect();
        reports.sort_by(|one, other| one.name.cmp(&other.name));
        reports
    }
}
