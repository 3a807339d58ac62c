//! The model repository API: index, load and unload models. Transports translate to and from [`Admin`].
//!
//! A load is one transaction for a name. Every version on disk is loaded and warmed up next to the versions that serve; then,
//! in one step, they replace all versions of the name. If anything fails, the previous versions keep serving. Loads and
//! unloads of one name wait for each other, those of different names do not. An operation continues if its caller disconnects,
//! so that a client may stop waiting for a long load.

mod index;
mod keyed_lock;
mod poll;

use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, Shared, join_all};
use futures_util::{FutureExt, TryFutureExt};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, info, warn};

pub use index::{IndexEntry, IndexState};
pub use poll::Poller;

use crate::registry::{LoadError, ModelFetcher, NotFound, PreparedModel, Registry, chain};
use crate::repository::{Discovery, DiscoveryError, Repository};
use crate::settings::ModelSettings;
use crate::types::RequestErrorKind;
use keyed_lock::KeyedLocks;

/// The maximum number of indexes, loads and unloads that run or wait; more are rejected.
pub const MAX_OPERATIONS: usize = 1024;

/// The maximum number of names whose last error is kept.
const MAX_FAILURES: usize = 1024;

/// The maximum number of concurrent scans of the disk; others wait.
const MAX_SCANS: usize = 2;

/// How old the list of a repository in a store may be for an index.
const MAX_LIST_AGE: Duration = Duration::from_secs(10);

/// The reasons why an index, a load or an unload failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error(transparent)]
    NotFound(#[from] NotFound),
    #[error(transparent)]
    Repository(#[from] DiscoveryError),
    /// The message contains all causes, because it is sent to the client.
    #[error("{}{}", chain(error), if *kept { "; the previous version keeps serving" } else { "" })]
    Load { error: LoadError, kept: bool },
    #[error("the server already has {limit} repository requests in flight; try again later")]
    Overloaded { limit: usize },
    #[error("the server is shutting down; try another one")]
    Stopping,
    #[error("the server failed while handling the request; the log has the details")]
    Panicked(#[from] JoinError),
    /// The error of a load that this one was coalesced with.
    #[error(transparent)]
    Shared(Arc<Self>),
}

impl AdminError {
    /// Returns the kind, which decides the status.
    pub fn kind(&self) -> RequestErrorKind {
        match self {
            Self::Shared(error) => error.kind(),
            Self::NotFound(_) => RequestErrorKind::NotFound,
            Self::Repository(_) | Self::Load { error: LoadError::Artifact(_), .. } => RequestErrorKind::BadRepository,
            Self::Load { .. } => RequestErrorKind::LoadFailed,
            Self::Overloaded { .. } => RequestErrorKind::Overloaded,
            Self::Stopping => RequestErrorKind::Stopping,
            Self::Panicked(_) => RequestErrorKind::Internal,
        }
    }
}

/// The model repository API of a server. Clones share it.
#[derive(Debug, Clone)]
pub struct Admin {
    state: Arc<AdminState>,
}

#[derive(Debug)]
struct AdminState {
    registry: Registry,
    repository: Arc<Repository>,
    fetcher: Option<ModelFetcher>,
    locks: KeyedLocks,
    failures: Mutex<Failures>,
    waiting: Mutex<WaitingLoads>,
    operations: Arc<Semaphore>,
    scans: Arc<Semaphore>,
    stopping: CancellationToken,
}

/// The errors of the last loads, by name and version. Only names that are on disk are kept, and at most [`MAX_FAILURES`]: a
/// custom repository may know any name.
type Failures = BTreeMap<String, BTreeMap<Option<String>, String>>;

/// The loads that have not begun, by name. Later loads of the same name join them.
type WaitingLoads = BTreeMap<String, Shared<BoxFuture<'static, Result<(), Arc<AdminError>>>>>;

impl Admin {
    /// Creates the API that loads models of `repository` into `registry`.
    pub fn new(registry: Registry, repository: Repository) -> Self {
        let state = AdminState {
            registry,
            repository: Arc::new(repository),
            fetcher: None,
            locks: KeyedLocks::default(),
            failures: Mutex::default(),
            waiting: Mutex::default(),
            operations: Arc::new(Semaphore::new(MAX_OPERATIONS)),
            scans: Arc::new(Semaphore::new(MAX_SCANS)),
            stopping: CancellationToken::new(),
        };
        Self { state: Arc::new(state) }
    }

    /// Watches the models that `fetcher` fetches, too.
    ///
    /// # Panics
    ///
    /// Panics if it is shared already.
    #[must_use]
    pub fn with_fetcher(mut self, fetcher: ModelFetcher) -> Self {
        let state = Arc::get_mut(&mut self.state).expect("a server is assembled before its parts are shared");
        state.fetcher = Some(fetcher);
        self
    }

    /// Rejects loads and unloads from now on, and cancels those in flight.
    pub fn stop(&self) {
        self.state.stopping.cancel();
    }

    /// Lists the models that are on disk or loaded; only those that are ready if `only_ready`.
    ///
    /// # Errors
    ///
    /// Fails if too many operations are in flight, or if the repository cannot be read.
    pub async fn index(&self, only_ready: bool) -> Result<Vec<IndexEntry>, AdminError> {
        let _permit = self.state.admit()?;
        if let Some(source) = self.state.repository.source()
            && let Err(error) = source.refresh(MAX_LIST_AGE).await
        {
            // What is loaded can be listed all the same.
            warn!("Couldn't list the repository: {error}. The index has its last known models.");
        }
        let discovery = self.state.scan(None).await?;
        let models = self.state.registry.models();
        let mut entries = index::index(&discovery, &models, &self.state.failures.lock());
        if let Some(fetcher) = &self.state.fetcher {
            for entry in entries.iter_mut().filter(|entry| entry.state == IndexState::Loading) {
                entry.reason = fetcher.progress(&entry.name, entry.version.as_deref()).unwrap_or_default();
            }
        }
        entries.retain(|entry| !only_ready || entry.state == IndexState::Ready);
        Ok(entries)
    }

    /// Loads or reloads every version of a name that is on disk, and unloads the others.
    ///
    /// Returns when they serve. Dropping the future does not cancel the load.
    ///
    /// # Errors
    ///
    /// Fails if there is no such model on disk, if one of its versions does not load, or after [`Admin::stop`]. All previous
    /// versions keep serving then.
    pub async fn load(&self, name: &str) -> Result<(), AdminError> {
        let load = {
            let mut waiting = self.state.waiting.lock();
            if let Some(load) = waiting.get(name) {
                load.clone()
            } else {
                let (state, of_load) = (Arc::clone(&self.state), name.to_owned());
                let load = self.run(async move { state.load(&of_load).await })?;
                let load = load.map_err(Arc::new).boxed().shared();
                waiting.insert(name.to_owned(), load.clone());
                load
            }
        };
        load.await.map_err(|error| Arc::try_unwrap(error).unwrap_or_else(AdminError::Shared))
    }

    /// Unloads every version of a name. Requests that have found one of them finish with it.
    ///
    /// # Errors
    ///
    /// Fails if no version is loaded, or after [`Admin::stop`].
    pub async fn unload(&self, name: &str) -> Result<(), AdminError> {
        let (state, of_unload) = (Arc::clone(&self.state), name.to_owned());
        let unload = {
            // Loads that arrive later must run after this.
            let mut waiting = self.state.waiting.lock();
            let unload = self.run(async move { state.unload(&of_unload).await })?;
            waiting.remove(name);
            unload
        };
        unload.await
    }

    /// Lists a model that the server cannot start with as failed, so that the server is not ready.
    pub fn list_failed(&self, settings: &ModelSettings, reason: String) {
        self.state.registry.announce(settings);
        self.state.registry.fail(settings, reason);
    }

    /// Loads the models that the server starts with, each independently, and returns how many failed.
    ///
    /// Each is loaded as soon as the compute pool has a thread for it. Of several with the same name and version, only the last
    /// is loaded.
    pub async fn load_at_start(&self, models: Vec<ModelSettings>) -> usize {
        let mut names: BTreeMap<String, Vec<ModelSettings>> = BTreeMap::new();
        for settings in last_of_each_version(models) {
            names.entry(settings.name.clone()).or_default().push(settings);
        }
        let mut loads = JoinSet::new();
        for (name, versions) in names {
            let state = Arc::clone(&self.state);
            loads.spawn(async move {
                let _guard = state.locks.lock(&name).await;
                let loaded = join_all(versions.into_iter().map(|settings| state.load_alone(settings))).await;
                loaded.into_iter().filter(|loaded| !loaded).count()
            });
        }
        loads.join_all().await.into_iter().sum()
    }

    /// Runs an operation to its end even if the caller stops waiting, unless the server stops.
    fn run(
        &self,
        operation: impl Future<Output = Result<(), AdminError>> + Send + 'static,
    ) -> Result<impl Future<Output = Result<(), AdminError>> + Send + 'static, AdminError> {
        let stopping = self.state.stopping.clone();
        if stopping.is_cancelled() {
            return Err(AdminError::Stopping);
        }
        let permit = self.state.admit()?;
        let task = tokio::spawn(async move {
            let _permit = permit;
            tokio::select! {
                biased;
                () = stopping.cancelled() => Err(AdminError::Stopping),
                result = operation => result,
            }
        });
        Ok(async move { task.await? })
    }
}

impl AdminState {
    fn admit(&self) -> Result<OwnedSemaphorePermit, AdminError> {
        let permit = Arc::clone(&self.operations).try_acquire_owned();
        permit.map_err(|_| AdminError::Overloaded { limit: MAX_OPERATIONS })
    }

    /// Scans the disk, on a thread that may block, and drops the errors of names that are no longer there. A folder without settings
    /// is a model if it is called `name`, or if one of its name was loaded before.
    async fn scan(&self, name: Option<&str>) -> Result<Discovery, AdminError> {
        let permit = Arc::clone(&self.scans).acquire_owned().await.expect("the semaphore is never closed");
        if let Some(custom) = self.repository.custom() {
            let listed = custom.list().await.map_err(DiscoveryError::from)?;
            return Ok(self.repository.read(listed));
        }
        let repository = Arc::clone(&self.repository);
        let loaded = self.registry.models();
        let without_file = loaded.iter().filter(|model| model.source.is_none()).map(|model| model.name.clone());
        let mut names: BTreeSet<String> = without_file.chain(name.map(str::to_owned)).collect();
        names.extend(self.failures.lock().keys().cloned());
        let scan = move || {
            let discovery = repository.discover_with(names);
            drop(permit);
            discovery
        };
        let discovery = tokio::task::spawn_blocking(scan).await?;
        let on_disk: BTreeSet<&str> = discovery.models.iter().map(|model| model.settings.name.as_str()).collect();
        self.failures.lock().retain(|name, _| on_disk.contains(name.as_str()));
        Ok(discovery)
    }

    async fn load(&self, name: &str) -> Result<(), AdminError> {
        let guard = self.locks.lock(name).await;
        // From here on, the load may have read the disk.
        self.waiting.lock().remove(name);
        let result = self.load_locked(name, None).await;
        drop(guard);
        result.map(drop)
    }

    /// Loads every version of a name, and returns whether they serve: with `expected`, only if the files have this state after the load.
    async fn load_locked(&self, name: &str, expected: Option<blake3::Hash>) -> Result<bool, AdminError> {
        let versions = self.find(name).await?;
        for settings in &versions {
            self.registry.announce_optional(settings);
        }
        let prepared = self.prepare(&versions).await;
        if let Some(expected) = expected
            && self.state_of(&versions).await != Some(expected)
        {
            // What was read may be half of a change.
            for settings in &versions {
                self.registry.withdraw(settings);
            }
            return Ok(false);
        }
        let prepared = prepared.map_err(|(settings, error)| self.roll_back(&versions, settings, error))?;
        let reloaded = self.registry.versions(name).iter().any(|model| model.state.is_ready());
        if let Err(error) = self.registry.replace(name, prepared) {
            // Only graphs have steps, and any of the versions may be the reason.
            let settings = versions.last().expect("a name without versions on disk is not found");
            return Err(self.roll_back(&versions, settings, error.into()));
        }
        self.failures.lock().remove(name);
        for settings in &versions {
            log_loaded(settings, &self.registry, reloaded);
        }
        Ok(true)
    }

    /// Loads all versions, or returns the one that fails.
    async fn prepare<'a>(
        &self,
        versions: &'a [ModelSettings],
    ) -> Result<Vec<PreparedModel>, (&'a ModelSettings, LoadError)> {
        let mut prepared = Vec::with_capacity(versions.len());
        for settings in versions {
            let (registry, to_load) = (self.registry.clone(), settings.clone());
            let model = contained(async move { registry.prepare(to_load).await }).await;
            prepared.push(model.map_err(|error| (settings, error))?);
        }
        Ok(prepared)
    }

    /// Finds the versions of a name on disk.
    ///
    /// Fails if the settings of a version cannot be read: then the list of versions is unreliable, and none must be loaded or
    /// unloaded.
    async fn find(&self, name: &str) -> Result<Vec<ModelSettings>, AdminError> {
        let Discovery { models, errors } = if let Some(custom) = self.repository.custom() {
            self.repository.read(custom.find(name).await.map_err(DiscoveryError::from)?)
        } else {
            if let Some(source) = self.repository.source() {
                source.refresh(Duration::ZERO).await.map_err(DiscoveryError::from)?;
            }
            self.scan(Some(name)).await?
        };
        let loaded = self.registry.versions(name);
        let root = self.repository.root();
        if let Some(error) = errors.into_iter().find(|error| index::concerns(error, name, root, &loaded)) {
            error!(model = name, "Couldn't load model '{name}': {}", chain(&error));
            return Err(error.into());
        }
        let mut versions = Vec::new();
        for model in models.into_iter().filter(|model| model.settings.name == name) {
            for warning in &model.warnings {
                warn!(model = name, "{warning}");
            }
            versions.push(model.settings);
        }
        if versions.is_empty() {
            return Err(NotFound::Model { name: name.to_owned() }.into());
        }
        Ok(last_of_each_version(versions))
    }

    /// Removes the loading state of `versions`, because the one of `settings` failed.
    fn roll_back(&self, versions: &[ModelSettings], settings: &ModelSettings, error: LoadError) -> AdminError {
        let (name, version, reason) = (&settings.name, &settings.parameters.version, chain(&error));
        self.registry.fail(settings, reason.clone());
        for settings in versions {
            self.registry.withdraw(settings);
        }
        let kept = self.registry.versions(name).iter().any(|model| model.state.is_ready());
        let keeps_serving = if kept { " The previous version keeps serving." } else { "" };
        error!(model = name, version = version.as_deref(), "Couldn't load model '{name}': {reason}.{keeps_serving}");
        let mut failures = self.failures.lock();
        if failures.len() >= MAX_FAILURES && !failures.contains_key(name) {
            failures.pop_first();
        }
        failures.insert(name.clone(), BTreeMap::from([(version.clone(), reason)]));
        AdminError::Load { error, kept }
    }

    async fn unload(&self, name: &str) -> Result<(), AdminError> {
        let _guard = self.locks.lock(name).await;
        if !self.registry.remove(name) {
            return Err(NotFound::Model { name: name.to_owned() }.into());
        }
        self.failures.lock().remove(name);
        if let Some(fetcher) = &self.fetcher {
            fetcher.forget(name);
        }
        info!(model = name, "Unloaded all versions of model '{name}' successfully.");
        Ok(())
    }

    /// Loads a single version, logs the result and returns whether it is loaded.
    async fn load_alone(&self, settings: ModelSettings) -> bool {
        let (registry, to_load) = (self.registry.clone(), settings.clone());
        let loaded = contained(async move { registry.load(to_load).await }).await;
        if let Err(error @ LoadError::Panicked(_)) = &loaded {
            self.registry.fail(&settings, chain(error));
        }
        match loaded {
            Ok(_) => {
                log_loaded(&settings, &self.registry, false);
                true
            }
            Err(error) => {
                let (name, version) = (&settings.name, settings.version());
                error!(model = name, version, "Couldn't load model '{name}': {}", chain(&error));
                false
            }
        }
    }
}

/// Runs a load in a task of its own, so that a panic becomes an error. Dropping the future cancels the load.
async fn contained<T: Send + 'static>(
    load: impl Future<Output = Result<T, LoadError>> + Send + 'static,
) -> Result<T, LoadError> {
    let ended = AbortOnDropHandle::new(tokio::spawn(load)).await;
    ended.unwrap_or_else(|panic| Err(LoadError::panicked(panic)))
}

/// Removes all but the last settings of each name and version, and keeps the order.
fn last_of_each_version(models: Vec<ModelSettings>) -> Vec<ModelSettings> {
    let mut positions = BTreeMap::new();
    let mut kept: Vec<ModelSettings> = Vec::with_capacity(models.len());
    for settings in models {
        match positions.entry((settings.name.clone(), settings.parameters.version.clone())) {
            MapEntry::Vacant(position) => {
                position.insert(kept.len());
                kept.push(settings);
            }
            MapEntry::Occupied(position) => {
                let name = &settings.name;
                let ignored = std::mem::replace(&mut kept[*position.get()], settings.clone()).source;
                let ignored = ignored.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
                warn!(
                    model = name,
                    version = settings.version(),
                    "Ignoring `{ignored}`: a later file describes the same model and version."
                );
            }
        }
    }
    kept
}

fn log_loaded(settings: &ModelSettings, registry: &Registry, again: bool) {
    let (name, version) = (&settings.name, settings.version());
    let Ok(model) = registry.find(name, version) else { return };
    let backend = model.metadata.parameters.others.get("backend").and_then(|name| name.as_str());
    let done = if again { "Reloaded" } else { "Loaded" };
    info!(model = name, version, backend, "{done} model '{name}' successfully.");
}
