//! Models whose code is Python: they run in worker processes, each with the interpreter of its environment.
//!
//! [`Python`] keeps a [`pool`] for each environment and group, and makes a runtime of a model that a pool has loaded. Inside
//! of a pool, `dispatch` decides which worker runs which call, `process` starts and ends workers, `connection` moves
//! `frame`s, and `message` knows what is in them. `docs/worker-protocol.md` describes the wire.

mod connection;
mod dispatch;
mod environment;
#[cfg(test)]
mod fixtures;
mod frame;
mod message;
mod model;
mod output;
mod pool;
mod process;
mod sdk;
mod stream;

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
use crate::settings::ModelSettings;
use crate::telemetry::exposition::{Expositions, Source};
use crate::telemetry::workers::WorkerMetrics;
use environment::{Environment, EnvironmentError, Environments};
use frame::FrameError;
use message::MessageError;
use pool::Pool;
use process::{Death, Program};
use sdk::SdkError;

/// How long a scrape waits for workers that tell their models' metrics. Scrapes answer within 100 ms whatever models do.
const SCRAPE_PATIENCE: Duration = Duration::from_millis(50);

/// How Python models run, as the server's settings say.
#[derive(Debug, Clone)]
pub struct Options {
    /// Worker processes of each pool; 0 is one, in which plain functions run on the thread of the loop.
    pub workers: usize,
    /// How long a worker has to end its calls when it is stopped.
    pub stop_timeout: Duration,
    /// How long a worker may answer nothing at all; nothing means for ever.
    pub hang_timeout: Option<Duration>,
    /// The interpreter of models without an environment of their own.
    pub interpreter: Option<PathBuf>,
    /// The archive with the environment of those models, if the container names one and `interpreter` none.
    pub environment_tarball: Option<PathBuf>,
    /// Where the environments' archives are unpacked.
    pub environments_dir: PathBuf,
    pub working_directory: PathBuf,
    /// Folders that models may import from, beside their own.
    pub paths: Vec<PathBuf>,
    pub debug: bool,
    /// The models' configuration of Python's `logging`: a dictionary, or the path of a file.
    pub logging: Option<Value>,
    /// The variables of this process.
    pub variables: BTreeMap<String, String>,
    pub metrics: WorkerMetrics,
}

/// The Python models of a server. Clones share them.
#[derive(Debug, Clone)]
pub struct Python(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: Options,
    environments: Environments,
    pools: Mutex<HashMap<PoolKey, Arc<Pool>>>,
    loads: Arc<Semaphore>,
    sdk: tokio::sync::OnceCell<PathBuf>,
}

/// What models must share to be in the same processes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct PoolKey {
    environment: Option<String>,
    group: Option<String>,
    inline: bool,
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
    /// The model's own code failed, or is not there.
    #[error("{message}")]
    Failed { message: String, status: u16 },
    #[error("the route `{path}` of the handler `{handler}` cannot be served: {reason}")]
    Route { handler: String, path: String, reason: String },
    #[error("loading ended with its worker: {death}")]
    Died { death: String },
    /// One of the requests of the setting `warmup` was not answered.
    #[error("the model was loaded but does not answer `warmup[{index}]` of its settings: {reason}")]
    Sample { index: usize, reason: String },
    #[error("the settings are too long: {reason}")]
    TooLarge { reason: String },
    #[error("the worker's answer cannot be read; this is a bug in mlserver: {reason}")]
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

/// Why a call has no answer of the model's.
#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("{0}")]
    Lost(Arc<Death>),
    #[error("no worker runs: {reason}")]
    NoWorker { reason: String },
    #[error("the server is shutting down")]
    Stopping,
}

impl Python {
    pub fn new(options: Options) -> Self {
        // Imports and weights peak while a model loads, so no more of them at once than can make progress.
        let loads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self(Arc::new(Shared {
            options,
            environments: Environments::default(),
            pools: Mutex::default(),
            loads: Arc::new(Semaphore::new(loads)),
            sdk: tokio::sync::OnceCell::new(),
        }))
    }

    /// Returns the interpreter that a model would run with. Its environment is unpacked, if it is packed, and nothing of the
    /// model's is run.
    ///
    /// # Errors
    ///
    /// Fails when there is none, or it does not fit.
    pub async fn interpreter(&self, settings: &ModelSettings) -> Result<PathBuf, PythonLoadError> {
        Ok(self.0.environments.of(settings, &self.0.options).await?.interpreter)
    }

    /// Loads a model, whose metadata say why it is `not_native` if it might have been.
    ///
    /// # Errors
    ///
    /// Fails when there is no interpreter for it, or when its code cannot be imported or does not load.
    pub async fn load(
        &self,
        settings: &ModelSettings,
        not_native: Option<&str>,
    ) -> Result<Arc<dyn Runtime>, PythonLoadError> {
        let Shared { options, .. } = &*self.0;
        let environment = self.0.environments.of(settings, options).await?;
        let key = PoolKey {
            environment: environment.key.clone(),
            group: model::group(settings),
            inline: options.workers == 0 || settings.parallel_workers.is_some_and(|workers| workers <= 0),
        };
        let sdk = self.0.sdk.get_or_try_init(|| sdk::install(&options.variables)).await?;
        loop {
            let pool = self.pool(&key, &environment, sdk);
            match model::load(&pool, settings, not_native).await {
                // The pool's last model has just gone, and with it the pool.
                Err(PythonLoadError::Stopping) if pool.is_closed() && !self.0.loads.is_closed() => {}
                outcome => return outcome,
            }
        }
    }

    fn pool(&self, key: &PoolKey, environment: &Environment, sdk: &Path) -> Arc<Pool> {
        let Shared { options, loads, .. } = &*self.0;
        let mut pools = self.0.pools.lock();
        pools.retain(|_, pool| !pool.is_closed());
        let number = pools.len();
        let make = || {
            let size = if key.inline { 1 } else { options.workers.max(1) };
            let name = match (&key.group, &key.environment) {
                (Some(group), _) => group.clone(),
                (None, Some(_)) => environment.name.clone(),
                (None, None) if key.inline && options.workers > 0 => "inline".to_owned(),
                (None, None) => "default".to_owned(),
            };
            let variables = environment.variables(sdk, options, size);
            Pool::start(pool::Options {
                name: if number == 0 || (key.environment.is_none() && key.group.is_none()) {
                    name
                } else {
                    format!("{name}.{number}")
                },
                program: Program { interpreter: environment.interpreter.clone(), sdk: sdk.to_owned(), variables },
                size,
                inline: key.inline,
                debug: options.debug,
                logging: options.logging.clone(),
                paths: options.paths.clone(),
                hang_timeout: options.hang_timeout,
                stop_timeout: options.stop_timeout,
                loads: Arc::clone(loads),
                metrics: options.metrics.clone(),
            })
        };
        Arc::clone(pools.entry(key.clone()).or_insert_with(make))
    }

    /// Has the worker of a loaded model send `payload` back, without any code of the model's: what the way there costs.
    ///
    /// Returns nothing when no such worker runs.
    pub async fn ping(&self, payload: Bytes) -> Option<Bytes> {
        let pool = self.0.pools.lock().values().next().map(Arc::clone)?;
        pool.ping(payload).await
    }

    /// Returns the metrics that models keep by themselves, as last fetched.
    pub fn expositions(&self) -> &Expositions {
        self.0.options.metrics.expositions()
    }

    /// Ends all workers, after their open calls as far as time allows. Nothing can be loaded afterwards.
    pub async fn stop(&self) {
        self.0.loads.close();
        let pools: Vec<_> = self.0.pools.lock().drain().collect();
        let ends = pools.iter().map(|(_, pool)| pool.end());
        futures_util::future::join_all(ends).await;
    }
}

impl Source for Python {
    fn refresh(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let pools: Vec<_> = self.0.pools.lock().values().map(Arc::clone).collect();
            futures_util::future::join_all(pools.iter().map(|pool| pool.scrape(SCRAPE_PATIENCE))).await;
        })
    }
}
