//! The model repository API: what is there, load it, unload it. Transports translate to and from [`Admin`].
//!
//! A load is one transaction for a name. Every version on disk is loaded and warmed beside what serves now; then, in one
//! step, they are the versions of the name, and those that are no longer on disk are gone. When anything fails, nothing
//! has changed. Loads and unloads of one name wait for each other, those of different names do not. One that has started
//! goes on when its caller leaves, as a caller that gives up waiting for a long load would have it.

mod index;
mod names;

use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

pub use index::{IndexEntry, IndexState};

use crate::inference::InferenceErrorKind;
use crate::registry::{LoadError, NotFound, Registry, chain};
use crate::repository::{Discovery, DiscoveryError, Repository};
use crate::settings::ModelSettings;
use names::Names;

/// How many indexes, loads and unloads are under way or waiting at once; more are refused.
pub const MAX_OPERATIONS: usize = 1024;

/// How many of them look at the disk at once; the others wait.
const MAX_SCANS: usize = 2;

/// Why an index, a load or an unload failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error(transparent)]
    NotFound(#[from] NotFound),
    #[error(transparent)]
    Repository(#[from] DiscoveryError),
    /// The reason is in the text as a whole: for a client, it is the answer.
    #[error("{}{}", chain(error), if *kept { "; what was loaded before is still served" } else { "" })]
    Load { error: LoadError, kept: bool },
    #[error("the server is busy with {limit} requests for its repository already; try again later")]
    Overloaded { limit: usize },
    #[error("the server is shutting down; try another one")]
    Stopping,
    #[error("the server failed while handling the request; the log has the details")]
    Panicked(#[from] JoinError),
}

impl AdminError {
    /// Returns the kind, which decides the status.
    pub const fn kind(&self) -> InferenceErrorKind {
        match self {
            Self::NotFound(_) => InferenceErrorKind::NotFound,
            Self::Repository(_) | Self::Load { error: LoadError::Artifact(_), .. } => InferenceErrorKind::BadRepository,
            Self::Load { .. } => InferenceErrorKind::LoadFailed,
            Self::Overloaded { .. } => InferenceErrorKind::Overloaded,
            Self::Stopping => InferenceErrorKind::Stopping,
            Self::Panicked(_) => InferenceErrorKind::Internal,
        }
    }
}

/// The model repository API of a server. Clones share it.
#[derive(Debug, Clone)]
pub struct Admin {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    registry: Registry,
    repository: Arc<Repository>,
    names: Names,
    failures: Mutex<Failures>,
    operations: Arc<Semaphore>,
    scans: Arc<Semaphore>,
    stopping: CancellationToken,
}

/// Why the last load of a name and version failed. Only names that are on disk are kept.
type Failures = BTreeMap<String, BTreeMap<Option<String>, String>>;

impl Admin {
    /// Makes the API by which the models of `repository` come into `registry`.
    pub fn new(registry: Registry, repository: Repository) -> Self {
        let shared = Shared {
            registry,
            repository: Arc::new(repository),
            names: Names::default(),
            failures: Mutex::default(),
            operations: Arc::new(Semaphore::new(MAX_OPERATIONS)),
            scans: Arc::new(Semaphore::new(MAX_SCANS)),
            stopping: CancellationToken::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Refuses loads and unloads from now on, and gives up those under way.
    pub fn stop(&self) {
        self.shared.stopping.cancel();
    }

    /// Lists what is on disk now and what is loaded, only what is ready if so asked.
    ///
    /// # Errors
    ///
    /// Fails when too many ask at once.
    pub async fn index(&self, only_ready: bool) -> Result<Vec<IndexEntry>, AdminError> {
        let _permit = self.shared.admit()?;
        let discovery = self.shared.scan().await?;
        let models = self.shared.registry.models();
        let mut entries = index::index(&discovery, &models, &self.shared.failures.lock());
        entries.retain(|entry| !only_ready || entry.state == IndexState::Ready);
        Ok(entries)
    }

    /// Loads every version of a name that is on disk now, again if it is loaded already, and unloads the others.
    ///
    /// Returns when they serve. Dropping the future does not end the load.
    ///
    /// # Errors
    ///
    /// Fails when there is no such model on disk, when one of its versions does not load, or once the server stops. Then
    /// what served before serves on, all of it.
    pub async fn load(&self, name: &str) -> Result<(), AdminError> {
        let (shared, name) = (Arc::clone(&self.shared), name.to_owned());
        self.run(async move { shared.load(&name).await }).await
    }

    /// Unloads every version of a name. Requests that have found one of them are answered by it.
    ///
    /// # Errors
    ///
    /// Fails when no version is loaded, or once the server stops.
    pub async fn unload(&self, name: &str) -> Result<(), AdminError> {
        let (shared, name) = (Arc::clone(&self.shared), name.to_owned());
        self.run(async move { shared.unload(&name).await }).await
    }

    /// Loads the models with which the server starts, each on its own, and returns how many failed.
    ///
    /// Each is loaded as soon as the compute pool has a thread for it. Of those that share name and version only the last
    /// is loaded.
    pub async fn load_at_start(&self, models: Vec<ModelSettings>) -> usize {
        let mut names: BTreeMap<String, Vec<ModelSettings>> = BTreeMap::new();
        for settings in last_of_each_version(models) {
            names.entry(settings.name.clone()).or_default().push(settings);
        }
        let mut loads = JoinSet::new();
        for (name, versions) in names {
            let shared = Arc::clone(&self.shared);
            loads.spawn(async move {
                let _turn = shared.names.turn(&name).await;
                let loaded = join_all(versions.into_iter().map(|settings| shared.load_alone(settings))).await;
                loaded.into_iter().filter(|loaded| !loaded).count()
            });
        }
        loads.join_all().await.into_iter().sum()
    }

    /// Runs an operation to its end, whether or not the caller waits for it, unless the server stops.
    async fn run(
        &self,
        operation: impl Future<Output = Result<(), AdminError>> + Send + 'static,
    ) -> Result<(), AdminError> {
        let permit = self.shared.admit()?;
        let stopping = self.shared.stopping.clone();
        let task = tokio::spawn(async move {
            let _permit = permit;
            tokio::select! {
                biased;
                () = stopping.cancelled() => Err(AdminError::Stopping),
                result = operation => result,
            }
        });
        task.await?
    }
}

impl Shared {
    fn admit(&self) -> Result<OwnedSemaphorePermit, AdminError> {
        let permit = Arc::clone(&self.operations).try_acquire_owned();
        permit.map_err(|_| AdminError::Overloaded { limit: MAX_OPERATIONS })
    }

    /// Looks at the disk, on a thread that may block, and forgets the failures of names that are not there any more.
    async fn scan(&self) -> Result<Discovery, AdminError> {
        let permit = Arc::clone(&self.scans).acquire_owned().await.expect("the semaphore is never closed");
        if let Some(custom) = self.repository.custom() {
            let listed = custom.list().await.map_err(DiscoveryError::from)?;
            return Ok(self.repository.read(listed));
        }
        let repository = Arc::clone(&self.repository);
        let scan = move || {
            let discovery = repository.discover();
            drop(permit);
            discovery
        };
        let discovery = tokio::task::spawn_blocking(scan).await?;
        let on_disk: BTreeSet<&str> = discovery.models.iter().map(|model| model.settings.name.as_str()).collect();
        self.failures.lock().retain(|name, _| on_disk.contains(name.as_str()));
        Ok(discovery)
    }

    async fn load(&self, name: &str) -> Result<(), AdminError> {
        let _turn = self.names.turn(name).await;
        let versions = self.find(name).await?;
        for settings in &versions {
            self.registry.announce_optional(settings);
        }
        let mut prepared = Vec::with_capacity(versions.len());
        for settings in &versions {
            match self.registry.prepare(settings.clone()).await {
                Ok(model) => prepared.push(model),
                Err(error) => return Err(self.give_up(&versions, settings, error)),
            }
        }
        let reloaded = self.registry.versions(name).iter().any(|model| model.state.is_ready());
        self.registry.replace(name, prepared);
        self.failures.lock().remove(name);
        for settings in &versions {
            log_loaded(settings, &self.registry, reloaded);
        }
        Ok(())
    }

    /// Finds the versions of a name on disk.
    ///
    /// A version whose settings cannot be read is no reason to take the name for smaller than it is: then nothing is
    /// loaded, and nothing unloaded.
    async fn find(&self, name: &str) -> Result<Vec<ModelSettings>, AdminError> {
        let Discovery { models, errors } = match self.repository.custom() {
            Some(custom) => self.repository.read(custom.find(name).await.map_err(DiscoveryError::from)?),
            None => self.scan().await?,
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

    /// Takes back that `versions` are loading, because the one of `settings` failed.
    fn give_up(&self, versions: &[ModelSettings], settings: &ModelSettings, error: LoadError) -> AdminError {
        let (name, version, reason) = (&settings.name, &settings.parameters.version, chain(&error));
        self.registry.fail(settings, reason.clone());
        for settings in versions {
            self.registry.withdraw(settings);
        }
        let kept = self.registry.versions(name).iter().any(|model| model.state.is_ready());
        let goes_on = if kept { " What was loaded before is still served." } else { "" };
        error!(model = name, version = version.as_deref(), "Couldn't load model '{name}': {reason}.{goes_on}");
        self.failures.lock().insert(name.clone(), BTreeMap::from([(version.clone(), reason)]));
        AdminError::Load { error, kept }
    }

    async fn unload(&self, name: &str) -> Result<(), AdminError> {
        let _turn = self.names.turn(name).await;
        if !self.registry.remove(name) {
            return Err(NotFound::Model { name: name.to_owned() }.into());
        }
        self.failures.lock().remove(name);
        info!(model = name, "Unloaded all versions of model '{name}' successfully.");
        Ok(())
    }

    /// Loads a version on its own, logs how that went and tells whether it is loaded.
    async fn load_alone(&self, settings: ModelSettings) -> bool {
        match self.registry.load(settings.clone()).await {
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

/// Keeps the order, and of the settings of one name and version only the last.
fn last_of_each_version(models: Vec<ModelSettings>) -> Vec<ModelSettings> {
    let mut places = BTreeMap::new();
    let mut kept: Vec<ModelSettings> = Vec::with_capacity(models.len());
    for settings in models {
        match places.entry((settings.name.clone(), settings.parameters.version.clone())) {
            MapEntry::Vacant(place) => {
                place.insert(kept.len());
                kept.push(settings);
            }
            MapEntry::Occupied(place) => {
                let name = &settings.name;
                let ignored = std::mem::replace(&mut kept[*place.get()], settings.clone()).source;
                let ignored = ignored.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
                warn!(
                    model = name,
                    version = settings.version(),
                    "Ignored `{ignored}`: a later file describes it too."
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
