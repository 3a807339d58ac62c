//! Models whose code is Python: they run in worker processes, each with the interpreter of its environment.
//!
//! [`Python`] keeps a [`pool`] for each environment and group, and turns a model that a pool has loaded into a runtime.
//! Inside a pool, `dispatch` decides which worker runs which call, `process` spawns and reaps workers, `connection` moves
//! `frame`s, and `message` encodes and decodes their content. `docs/worker-protocol.md` describes the wire format.

mod answer;
mod check;
mod connection;
mod dispatch;
mod environment;
#[cfg(test)]
mod fixtures;
mod frame;
#[cfg(fuzzing)]
pub mod fuzzing;
mod memory_group;
mod message;
mod model;
mod output;
mod pool;
mod process;
mod reply;
mod script;
mod sdk;
mod stream;
mod supervision;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Semaphore;

use super::Runtime;
use crate::compute::ComputePool;
use crate::settings::{ModelSettings, WorkerSettings};
use crate::telemetry::exposition::{Expositions, MetricsSource};
use crate::telemetry::workers::WorkerMetrics;
pub use check::{StaticFinding, StaticFindingLevel};
pub use environment::PythonVersion;
use environment::{Environment, EnvironmentError, Environments};
use frame::FrameError;
use message::MessageError;
use pool::{Pool, PoolOptions};
use process::{WorkerExit, WorkerProgram};
pub use script::{SCRIPT_IMPLEMENTATION, ScriptDescription, ScriptError};
use sdk::SdkError;

/// How long a scrape waits for the workers' metrics. Scrapes answer within 100 ms whatever the models do.
const SCRAPE_TIMEOUT: Duration = Duration::from_millis(50);

/// How Python models run, from the server's settings.
#[derive(Debug, Clone, Default)]
pub struct PythonOptions {
    pub workers: WorkerSettings,
    /// The archive with the environment of models without one of their own. Used only if `python_executable` is `None`.
    pub environment_tarball: Option<PathBuf>,
    pub working_directory: PathBuf,
    /// Folders that models may import from, in addition to their own.
    pub paths: Vec<PathBuf>,
    pub debug: bool,
    /// The configuration of Python's `logging` for models: a dictionary, or the path of a file.
    pub logging: Option<Value>,
    /// The environment variables of this process.
    pub variables: BTreeMap<String, String>,
    pub metrics: WorkerMetrics,
    /// The threads that write and read long frames.
    pub compute: ComputePool,
}

/// The Python worker pools of a server. Clones share them.
#[derive(Debug, Clone)]
pub struct Python(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: PythonOptions,
    environments: Environments,
    pools: Mutex<HashMap<PoolKey, Arc<Pool>>>,
    loads: Arc<Semaphore>,
    sdk: tokio::sync::OnceCell<PathBuf>,
}

/// Models with equal keys run in the same processes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PoolKey {
    environment: Option<String>,
    group: Option<String>,
    inline: bool,
    /// Environment variables that only these models have.
    variables: BTreeMap<String, String>,
}

/// Why a Python model could not be loaded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PythonLoadError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error(transparent)]
    Sdk(#[from] SdkError),
    #[error("cannot start the interpreter `{}`", interpreter.display())]
    Start { interpreter: PathBuf, source: Arc<io::Error> },
    /// The model's own code failed, or cannot be imported.
    #[error("{message}")]
    Failed { message: String, status: u16 },
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

impl From<PythonLoadError> for super::LoadError {
    fn from(error: PythonLoadError) -> Self {
        Self::Python(Box::new(error))
    }
}

impl From<MessageError> for PythonLoadError {
    fn from(error: MessageError) -> Self {
        Self::Message { reason: error.to_string() }
    }
}

impl From<FrameError> for PythonLoadError {
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

impl Python {
    pub fn new(options: PythonOptions) -> Self {
        // CPU and memory use peak while a model loads, so at most one load per core runs at a time.
        let loads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self(Arc::new(Shared {
            options,
            environments: Environments::default(),
            pools: Mutex::default(),
            loads: Arc::new(Semaphore::new(loads)),
            sdk: tokio::sync::OnceCell::new(),
        }))
    }

    /// Returns the threads that write and read long frames, which the server shares.
    pub fn compute(&self) -> &ComputePool {
        &self.0.options.compute
    }

    /// Returns the variables of the server's environment.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.0.options.variables
    }

    /// Returns the interpreter that a model would run with. Unpacks a packed environment, but runs no code of the model.
    ///
    /// # Errors
    ///
    /// Fails if there is no interpreter, or none that is compatible.
    pub async fn interpreter(&self, settings: &ModelSettings) -> Result<PathBuf, PythonLoadError> {
        Ok(self.0.environments.of(settings, &self.0.options).await?.interpreter)
    }

    /// Loads a model. `not_native`, if given, is the reason why it is not evaluated natively, for its metadata.
    ///
    /// # Errors
    ///
    /// Fails if the model has no interpreter, or if its code cannot be imported or does not load.
    pub async fn load(
        &self,
        settings: &ModelSettings,
        not_native: Option<&str>,
    ) -> Result<Arc<dyn Runtime>, PythonLoadError> {
        let Shared { options, .. } = &*self.0;
        let environment = self.0.environments.of(settings, options).await?;
        let key = PoolKey {
            environment: environment.key.clone(),
            group: model::pool_group(settings),
            inline: options.workers.parallel_workers == 0
                || settings.parallel_workers.is_some_and(|workers| workers <= 0),
            variables: settings.variables.clone(),
        };
        let sdk = self.0.sdk.get_or_try_init(|| sdk::install(&options.variables)).await?;
        loop {
            let pool = self.pool(&key, &settings.name, &environment, sdk);
            match model::load(&pool, settings, not_native, &options.compute).await {
                // The pool's last model was unloaded in the meantime, which closed the pool: try again with a new pool.
                Err(PythonLoadError::Stopping) if pool.is_closed() && !self.0.loads.is_closed() => {}
                outcome => return outcome,
            }
        }
    }

    fn pool(&self, key: &PoolKey, model: &str, environment: &Environment, sdk: &Path) -> Arc<Pool> {
        let Shared { options, loads, .. } = &*self.0;
        let mut pools = self.0.pools.lock();
        pools.retain(|_, pool| !pool.is_closed());
        let number = pools.len();
        let make = || {
            let size = if key.inline { 1 } else { options.workers.parallel_workers.max(1) };
            let name = match (&key.group, &key.environment) {
                (Some(group), _) => group.clone(),
                (None, _) if !key.variables.is_empty() => model.to_owned(),
                (None, Some(_)) => environment.name.clone(),
                (None, None) if key.inline && options.workers.parallel_workers > 0 => "inline".to_owned(),
                (None, None) => "default".to_owned(),
            };
            let set = environment.variables(sdk, options, size);
            // Those that the server sets itself describe this machine.
            let own = key.variables.iter().filter(|(name, _)| set.iter().all(|(other, _)| other != name));
            let own = own.map(|(name, value)| (Cow::Owned(name.clone()), Some(value.into())));
            let variables = set.iter().map(|(name, value)| (Cow::Borrowed(*name), value.clone())).chain(own).collect();
            Pool::start(PoolOptions {
                name: if number == 0 || (key.environment.is_none() && key.group.is_none() && key.variables.is_empty()) {
                    name
                } else {
                    format!("{name}.{number}")
                },
                program: WorkerProgram { interpreter: environment.interpreter.clone(), sdk: sdk.to_owned(), variables },
                size,
                inline: key.inline,
                debug: options.debug,
                logging: options.logging.clone(),
                paths: options.paths.clone(),
                workers: options.workers.clone(),
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

impl MetricsSource for Python {
    fn refresh(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let pools: Vec<_> = self.0.pools.lock().values().map(Arc::clone).collect();
            futures_util::future::join_all(pools.iter().map(|pool| pool.scrape(SCRAPE_TIMEOUT))).await;
        })
    }
}
