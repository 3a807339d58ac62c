//! Fetches the models of object stores before they are loaded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{LoadError, Loader, RuntimeFuture};
use crate::families::{ModelFamily, NativeEvaluator};
use crate::lock_file::LockFile;
use crate::repository::FolderSource;
use crate::runtimes::{Implementation, Runtime};
use crate::settings::{ModelSettings, StorageSettings};

/// Gives models whose URI names an object store a path of this machine, and then to another loader.
#[derive(Debug)]
pub struct FetchingLoader<L> {
    loader: L,
    fetcher: ModelFetcher,
}

impl<L: Loader> FetchingLoader<L> {
    pub const fn new(loader: L, fetcher: ModelFetcher) -> Self {
        Self { loader, fetcher }
    }
}

impl<L: Loader> Loader for FetchingLoader<L> {
    fn load(&self, settings: ModelSettings) -> RuntimeFuture<'_> {
        Box::pin(async move {
            let folder = locked_folder(&settings);
            let lock = folder.as_deref().map_or(Ok(None), LockFile::find).map_err(LoadError::Lock)?;
            let is_remote = remote_uri(&settings, &self.fetcher).is_some();
            match (lock, folder) {
                (Some(lock), Some(folder)) if !is_remote => {
                    check_files(lock, folder).await?;
                    self.loader.load(settings).await
                }
                (lock, _) => {
                    let (settings, used) = self.fetcher.localize(settings, lock).await?;
                    let runtime = self.loader.load(settings).await?;
                    self.fetcher.keep(used, &runtime);
                    Ok(runtime)
                }
            }
        })
    }
}

/// Compares the files of a folder with its lock.
async fn check_files(lock: LockFile, folder: PathBuf) -> Result<(), LoadError> {
    let check = move || lock.check_files(&folder);
    tokio::task::spawn_blocking(check).await.map_err(LoadError::panicked)?.map_err(LoadError::Lock)
}

/// Returns the folder that may have a lock: that of the settings, or of the model's file or folder if it has no settings.
fn locked_folder(settings: &ModelSettings) -> Option<PathBuf> {
    if let Some(folder) = settings.folder() {
        return Some(folder.to_owned());
    }
    let path = Path::new(settings.parameters.uri.as_deref().filter(|uri| !uri.contains("://"))?);
    if path.is_dir() { Some(path.to_owned()) } else { path.parent().map(Path::to_owned) }
}

/// Returns the URI of a model that the server fetches. Classes of users get their URI as it is, as in the original, since they may
/// read it themselves.
fn remote_uri<'a>(settings: &'a ModelSettings, fetcher: &ModelFetcher) -> Option<&'a str> {
    let uri = settings.parameters.uri.as_deref()?;
    let is_ours = ModelFamily::of(&settings.implementation).is_some();
    (is_ours && fetcher.is_store(uri) && !fetcher.leaves_to_mlflow(settings, uri)).then_some(uri)
}

/// Reports whether MLflow loads a model, which resolves URIs of its own.
fn is_mlflow(settings: &ModelSettings) -> bool {
    Implementation::of(settings).is_ok_and(|found| found == Implementation::Native(NativeEvaluator::Mlflow))
}

/// A model of an object store, before it is fetched.
#[derive(Debug)]
pub struct RemoteModel {
    /// Without credentials.
    pub uri: String,
    pub files: usize,
    /// Of all files whose sizes the store tells.
    pub bytes: u64,
    pub availability: Availability,
}

/// Where the files of a model can be had.
#[derive(Debug)]
pub enum Availability {
    Store {
        /// Where its credentials come from.
        credentials: String,
    },
    /// The cache has the last fetch, which a start uses, since the store cannot be reached.
    Cache { outage: String },
}

/// A model on this machine.
#[derive(Debug)]
pub struct FetchedModel {
    pub path: PathBuf,
    /// Keeps it in the cache.
    _used: SnapshotUse,
}

/// What keeps a model in the cache.
#[cfg(feature = "storage")]
type SnapshotUse = Vec<crate::storage::SnapshotUse>;
#[cfg(not(feature = "storage"))]
type SnapshotUse = ();

#[cfg(feature = "storage")]
pub use with_storage::ModelFetcher;
#[cfg(not(feature = "storage"))]
pub use without_storage::ModelFetcher;

#[cfg(feature = "storage")]
mod with_storage {
    use std::sync::Weak;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use parking_lot::Mutex;
    use tracing::{debug, info};

    use super::{
        Arc, Availability, BTreeMap, FetchedModel, FolderSource, LoadError, LockFile, ModelSettings, Path, PathBuf,
        RemoteModel, Runtime, SnapshotUse, StorageSettings, can_be_created, is_mlflow, locked_folder, remote_uri,
    };
    use crate::registry::chain;
    use crate::registry::store_repository::{ModelObjects, StoreRepository};
    use crate::repository::{disk_state, is_mlflow_uri};
    use crate::settings::StorageOffline;
    use crate::storage::{
        DownloadProgress, FileFilter, LastFetch, Listing, Location, OfflinePolicy, RetryPolicy, SnapshotUse as InUse,
        Storage, StorageError, StorageOptions, StorageUri, Variables,
    };
    use crate::telemetry::downloads::DownloadMetrics;
    use crate::telemetry::metrics::Registry as MetricsRegistry;

    /// Fetches models into the cache.
    #[derive(Debug, Clone)]
    pub struct ModelFetcher {
        storage: Storage,
        /// Whether the address of MLflow's tracking server begins with `http://` or `https://`.
        has_tracking_server: bool,
        /// Where the models are, if the repository is in a store.
        repository: Option<Arc<StoreRepository>>,
        /// Whether the models that the server starts with are being loaded. Only they may be of an old state.
        is_starting: Arc<AtomicBool>,
        metrics: DownloadMetrics,
        running: Arc<Mutex<Vec<RunningFetch>>>,
        /// What keeps the fetched models in the cache, as long as they are loaded.
        in_use: Arc<Mutex<Vec<LoadedFetch>>>,
    }

    /// A fetched model that is loaded.
    #[derive(Debug)]
    struct LoadedFetch {
        /// What keeps its files in the cache.
        _used: SnapshotUse,
        runtime: Weak<dyn Runtime>,
    }

    /// A fetch that has not ended.
    #[derive(Debug)]
    struct RunningFetch {
        model: String,
        version: Option<String>,
        progress: Arc<DownloadProgress>,
    }

    /// Ends a fetch, also if its load is cancelled.
    struct EndOfFetch<'a> {
        fetcher: &'a ModelFetcher,
        model: &'a str,
        progress: Arc<DownloadProgress>,
        began: Instant,
    }

    impl Drop for EndOfFetch<'_> {
        fn drop(&mut self) {
            self.fetcher.running.lock().retain(|running| !Arc::ptr_eq(&running.progress, &self.progress));
            let bytes = self.progress.bytes.load(Ordering::Relaxed);
            if bytes > 0 {
                self.fetcher.metrics.count(self.model, bytes, self.began.elapsed());
            }
        }
    }

    impl ModelFetcher {
        /// Creates a fetcher, with the variables of the environment, which have the credentials.
        pub fn new(settings: &StorageSettings, variables: BTreeMap<String, String>) -> Self {
            Self::with_retries(RetryPolicy::FETCH, settings, variables)
        }

        /// Creates a fetcher for a command that reports what is wrong: it does not wait for stores that do not respond.
        pub fn for_diagnosis(settings: &StorageSettings, variables: BTreeMap<String, String>) -> Self {
            Self::with_retries(RetryPolicy::LOOK, settings, variables)
        }

        fn with_retries(retries: RetryPolicy, settings: &StorageSettings, variables: BTreeMap<String, String>) -> Self {
            let tracking = variables.get("MLFLOW_TRACKING_URI").map(|uri| uri.to_ascii_lowercase()).unwrap_or_default();
            let has_tracking_server = tracking.starts_with("http://") || tracking.starts_with("https://");
            let storage = Storage::new(StorageOptions { retries, ..storage_options(settings, variables) });
            let is_starting = Arc::new(AtomicBool::new(true));
            Self {
                storage,
                has_tracking_server,
                repository: None,
                is_starting,
                metrics: DownloadMetrics::default(),
                running: Arc::default(),
                in_use: Arc::default(),
            }
        }

        /// Reports whether a text names objects of a store.
        pub fn is_store(&self, uri: &str) -> bool {
            crate::repository::is_store_uri(uri) || self.storage.is_remote(uri)
        }

        /// Reports whether MLflow itself finds a model: in folders and databases.
        pub(super) fn leaves_to_mlflow(&self, settings: &ModelSettings, uri: &str) -> bool {
            is_mlflow_uri(uri) && !self.has_tracking_server && is_mlflow(settings)
        }

        /// Returns the URI of a model that is fetched.
        pub fn uri<'a>(&self, settings: &'a ModelSettings) -> Option<&'a str> {
            remote_uri(settings, self)
        }

        /// Lists what is fetched for a model. `None` if its files are on this machine.
        ///
        /// # Errors
        ///
        /// Fails if its URI is invalid, or its objects cannot be listed.
        pub async fn look(&self, settings: &ModelSettings) -> Result<Option<RemoteModel>, LoadError> {
            let objects = self.repository.as_ref().map(|repository| repository.objects(settings)).transpose()?;
            let ModelObjects { folder, artifact, is_inside } = objects.unwrap_or_default();
            let uri = remote_uri(settings, self).map(|uri| self.storage.uri(uri)).transpose().map_err(failed)?;
            let lock = match (&uri, locked_folder(settings)) {
                (Some(_), Some(folder)) => LockFile::find(&folder).map_err(LoadError::Lock)?,
                _ => None,
            };
            let mut found: Option<RemoteModel> = None;
            for (uri, is_counted, lock) in [(folder, true, None), (artifact, !is_inside, None), (uri, true, lock)]
                .into_iter()
                .filter_map(|(uri, is, lock)| Some((uri?, is, lock)))
            {
                // The cache has what is inside with its folder.
                let is_cached =
                    found.as_ref().is_some_and(|found| matches!(found.availability, Availability::Cache { .. }));
                if is_cached && !is_counted {
                    continue;
                }
                let (files, bytes, availability) = self.look_at(&uri, lock).await?;
                match &mut found {
                    Some(found) if is_counted => {
                        (found.files, found.bytes) = (found.files + files, found.bytes.saturating_add(bytes));
                        if let Availability::Cache { .. } = availability {
                            found.availability = availability;
                        }
                    }
                    Some(_) => {}
                    None => {
                        found = Some(RemoteModel { uri: uri.shown().to_owned(), files, bytes, availability });
                    }
                }
            }
            Ok(found)
        }

        /// Returns how many files and bytes a URI selects. If the store cannot be reached, those that a start takes from the cache.
        async fn look_at(
            &self,
            uri: &StorageUri,
            lock: Option<LockFile>,
        ) -> Result<(usize, u64, Availability), LoadError> {
            let error = match self.storage.list(uri, &FileFilter::default()).await {
                Ok(Listing { files, credentials }) => {
                    let bytes = files.iter().filter_map(|file| file.size).fold(0, u64::saturating_add);
                    return Ok((files.len(), bytes, Availability::Store { credentials }));
                }
                Err(error) => error,
            };
            match self.storage.last_fetch(uri, &error, lock).await.map_err(failed)? {
                Some(LastFetch { files, bytes }) => Ok((files, bytes, Availability::Cache { outage: chain(&error) })),
                None => Err(failed(error)),
            }
        }

        /// Fetches what a URI selects, unless the cache has it.
        ///
        /// # Errors
        ///
        /// Fails if it cannot be fetched, or differs from the lock.
        pub async fn fetch(&self, uri: &str, lock: Option<LockFile>) -> Result<FetchedModel, LoadError> {
            let uri = self.storage.uri(uri).map_err(failed)?;
            let (offline, progress) = (self.storage.offline(), DownloadProgress::default());
            let cached = self.storage.cached(&uri, lock, offline, &progress).await.map_err(failed)?;
            Ok(FetchedModel { path: cached.path, _used: cached.used.into_iter().collect() })
        }

        /// Keeps a model in the cache while its runtime exists.
        pub(super) fn keep(&self, used: SnapshotUse, runtime: &Arc<dyn Runtime>) {
            let mut in_use = self.in_use.lock();
            in_use.retain(|loaded| loaded.runtime.strong_count() > 0);
            if !used.is_empty() {
                in_use.push(LoadedFetch { _used: used, runtime: Arc::downgrade(runtime) });
            }
        }

        /// Registers the metrics of fetches.
        #[must_use]
        pub fn with_metrics(self, registry: &mut MetricsRegistry) -> Self {
            Self { metrics: DownloadMetrics::register(registry), ..self }
        }

        /// Drops what is known of the fetches of a model that has been unloaded.
        pub fn forget(&self, model: &str) {
            self.metrics.remove(model);
        }

        /// Describes the progress of the fetch of a model, such as `downloading 1.2 of 4.1 GB`. `None` if it is not being fetched.
        pub fn progress(&self, model: &str, version: Option<&str>) -> Option<String> {
            let running = self.running.lock();
            let mut of_model =
                running.iter().filter(|running| running.model == model && running.version.as_deref() == version);
            let progress = &of_model.next()?.progress;
            let done = progress.bytes.load(Ordering::Relaxed);
            let total = progress.bytes_total.load(Ordering::Relaxed);
            // Not while the store is listed.
            (done.max(total) > 0).then(|| described(done, total))
        }

        /// Has later loads fail if their store cannot be reached.
        pub fn end_start(&self) {
            self.is_starting.store(false, Ordering::Relaxed);
        }

        /// Takes models from a repository in a store, whose settings files appear in `folder`.
        ///
        /// # Errors
        ///
        /// Fails if the store cannot be listed.
        pub async fn open_repository(&mut self, uri: &str, folder: &Path) -> Result<Arc<dyn FolderSource>, LoadError> {
            let uri = self.storage.uri(uri).map_err(failed)?;
            let (storage, offline) = (self.storage.clone(), self.storage.offline());
            let repository = StoreRepository::open(storage, uri, folder, offline).await.map_err(failed)?;
            Ok(Arc::clone(self.repository.insert(Arc::new(repository))) as Arc<dyn FolderSource>)
        }

        /// Returns what is not read in the store of the repository, if there is one and has it.
        pub fn repository_warning(&self) -> Option<String> {
            self.repository.as_ref()?.warning()
        }

        /// Returns the settings with a path of this machine, and what keeps it there.
        ///
        /// # Errors
        ///
        /// Fails if the model cannot be fetched, or differs from the lock.
        pub async fn localize(
            &self,
            mut settings: ModelSettings,
            lock: Option<LockFile>,
        ) -> Result<(ModelSettings, SnapshotUse), LoadError> {
            // Models that were unloaded need not be kept.
            self.in_use.lock().retain(|loaded| loaded.runtime.strong_count() > 0);
            let mut used = Vec::new();
            if let Some(repository) = &self.repository {
                settings = repository.localize(settings, self, &mut used).await?;
            }
            let Some(uri) = remote_uri(&settings, self) else { return Ok((settings, used)) };
            let uri = self.storage.uri(uri).map_err(failed)?;
            let path = self.fetch_model(&uri, lock, &settings, &mut used).await?;
            settings.parameters.uri = Some(path.to_string_lossy().into_owned());
            Ok((settings, used))
        }

        /// Reports whether a model's URI names a store.
        pub fn is_remote(&self, settings: &ModelSettings) -> bool {
            remote_uri(settings, self).is_some()
        }

        /// Returns a hash of the objects that a model's URI selects now, or `None` if they cannot be listed.
        pub async fn state(&self, settings: &ModelSettings) -> Option<blake3::Hash> {
            let uri = self.storage.uri(remote_uri(settings, self)?).ok()?;
            if let Location::Local(path) = uri.location {
                return tokio::task::spawn_blocking(move || disk_state(&path)).await.ok();
            }
            let state = self.storage.state(&uri).await;
            if let Err(error) = &state {
                let model = settings.name.as_str();
                debug!(model, "Couldn't look for changes of model '{model}': {}", chain(error));
            }
            Some(blake3::hash(state.ok()?.as_bytes()))
        }

        /// Returns the path in the cache of what a URI of a model selects, and adds what keeps it there to `used`.
        pub(in crate::registry) async fn fetch_model(
            &self,
            uri: &StorageUri,
            lock: Option<LockFile>,
            settings: &ModelSettings,
            used: &mut Vec<InUse>,
        ) -> Result<PathBuf, LoadError> {
            let (model, version) = (settings.name.as_str(), settings.version());
            info!(model, version, "Model '{model}' is fetched from `{}`.", uri.shown());
            let is_starting = self.is_starting.load(Ordering::Relaxed);
            let offline = if is_starting { self.storage.offline() } else { OfflinePolicy::Fail };
            let progress = Arc::new(DownloadProgress::default());
            self.running.lock().push(RunningFetch {
                model: model.to_owned(),
                version: version.map(str::to_owned),
                progress: Arc::clone(&progress),
            });
            let _end = EndOfFetch { fetcher: self, model, progress: Arc::clone(&progress), began: Instant::now() };
            let cached = self.storage.cached(uri, lock, offline, &progress).await.map_err(failed)?;
            used.extend(cached.used);
            Ok(cached.path)
        }
    }

    fn failed(source: StorageError) -> LoadError {
        LoadError::Fetch { source: Box::new(source) }
    }

    /// Describes how many bytes are there, of how many; a total of 0 is not known.
    fn described(done: u64, total: u64) -> String {
        const UNITS: [(u64, &str); 4] = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1000, "kB"), (1, "bytes")];
        let (size, unit) = UNITS.into_iter().find(|(size, _)| total.max(done) >= *size).unwrap_or((1, "bytes"));
        // In tenths.
        let text = |bytes: u64| {
            let tenths = u128::from(bytes) * 10 / u128::from(size);
            if size == 1 { bytes.to_string() } else { format!("{}.{}", tenths / 10, tenths % 10) }
        };
        match total {
            0 => format!("downloading {} {unit}", text(done)),
            _ => format!("downloading {} of {} {unit}", text(done), text(total)),
        }
    }

    /// Converts the settings.
    pub fn storage_options(settings: &StorageSettings, variables: BTreeMap<String, String>) -> StorageOptions {
        let of_user = || {
            let cache = variables.get("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
            let cache = cache
                .or_else(|| Some(PathBuf::from(variables.get("HOME").filter(|path| !path.is_empty())?).join(".cache")));
            let cache = cache.map(|cache| cache.join("mlserver/models")).filter(|cache| can_be_created(cache));
            cache.unwrap_or_else(|| std::env::temp_dir().join("mlserver-models"))
        };
        StorageOptions {
            // Absolute, because workers may have another working directory.
            cache: std::path::absolute(settings.cache.clone().unwrap_or_else(of_user)).unwrap_or_else(|_| of_user()),
            idle_timeout: settings.idle_timeout,
            max_bytes: settings.max_bytes,
            cache_bytes: settings.cache_max_bytes,
            concurrency: settings.concurrency.get(),
            retries: RetryPolicy::FETCH,
            offline: match settings.offline {
                StorageOffline::Use => OfflinePolicy::Use,
                StorageOffline::Fail => OfflinePolicy::Fail,
            },
            variables: Variables(variables),
        }
    }

    #[cfg(test)]
    mod tests {
        use super::described;

        #[test]
        fn progress_has_the_unit_of_the_whole() {
            assert_eq!(described(1_230_000_000, 4_160_000_000), "downloading 1.2 of 4.1 GB");
            assert_eq!(described(999, 2_000_000), "downloading 0.0 of 2.0 MB");
            assert_eq!(described(5, 10), "downloading 5 of 10 bytes");
            assert_eq!(described(1500, 0), "downloading 1.5 kB");
        }
    }
}

/// Reports whether this user may create a folder. The users of containers often have a home without that right.
#[cfg(feature = "storage")]
fn can_be_created(folder: &Path) -> bool {
    let existing = folder.ancestors().find(|folder| folder.exists());
    existing.is_some_and(|folder| rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok())
}

#[cfg(feature = "storage")]
pub use with_storage::storage_options;

#[cfg(not(feature = "storage"))]
mod without_storage {
    use super::{
        Arc, BTreeMap, FetchedModel, FolderSource, LoadError, LockFile, ModelSettings, Path, RemoteModel, Runtime,
        SnapshotUse, StorageSettings, is_mlflow, remote_uri,
    };
    use crate::telemetry::metrics::Registry as MetricsRegistry;

    /// Refuses models of object stores, since this executable cannot fetch them.
    #[derive(Debug, Clone)]
    pub struct ModelFetcher(());

    impl ModelFetcher {
        /// Creates a fetcher.
        pub fn new(_: &StorageSettings, _: BTreeMap<String, String>) -> Self {
            Self(())
        }

        /// Creates a fetcher.
        pub fn for_diagnosis(_: &StorageSettings, _: BTreeMap<String, String>) -> Self {
            Self(())
        }

        /// Registers no metrics.
        #[must_use]
        pub const fn with_metrics(self, _: &mut MetricsRegistry) -> Self {
            self
        }

        /// Has no effect, since nothing is fetched.
        pub const fn forget(&self, _: &str) {}

        /// Returns no progress.
        pub const fn progress(&self, _: &str, _: Option<&str>) -> Option<String> {
            None
        }

        /// Has no effect, since nothing is fetched.
        pub const fn end_start(&self) {}

        /// Reports whether a model's URI names a store that is listed: never.
        pub const fn is_remote(&self, _: &ModelSettings) -> bool {
            false
        }

        /// Returns no state.
        #[expect(clippy::unused_async, reason = "with the feature, it lists a store")]
        pub async fn state(&self, _: &ModelSettings) -> Option<blake3::Hash> {
            None
        }

        /// Refuses the repository.
        ///
        /// # Errors
        ///
        /// Fails always.
        #[expect(clippy::unused_async, reason = "with the feature, it fetches")]
        pub async fn open_repository(&mut self, uri: &str, _: &Path) -> Result<Arc<dyn FolderSource>, LoadError> {
            Err(LoadError::WithoutStorage { uri: uri.to_owned() })
        }

        /// Returns the settings as they are.
        ///
        /// # Errors
        ///
        /// Fails if the model would be fetched.
        #[expect(clippy::unused_async, reason = "with the feature, it fetches")]
        pub async fn localize(
            &self,
            settings: ModelSettings,
            lock: Option<LockFile>,
        ) -> Result<(ModelSettings, SnapshotUse), LoadError> {
            match remote_uri(&settings, self) {
                Some(uri) if lock.is_some() || !is_mlflow(&settings) => {
                    Err(LoadError::WithoutStorage { uri: uri.to_owned() })
                }
                _ => Ok((settings, ())),
            }
        }

        /// Reports whether a text names objects of a store.
        pub fn is_store(&self, uri: &str) -> bool {
            crate::repository::is_store_uri(uri)
        }

        /// Leaves nothing to MLflow that it would fetch.
        #[expect(clippy::unused_self, reason = "with the feature, it has the address of the tracking server")]
        pub(super) const fn leaves_to_mlflow(&self, _: &ModelSettings, _: &str) -> bool {
            false
        }

        /// Returns the URI of a model that would be fetched.
        pub fn uri<'a>(&self, settings: &'a ModelSettings) -> Option<&'a str> {
            remote_uri(settings, self).filter(|_| !is_mlflow(settings))
        }

        /// Refuses to look at a store.
        #[expect(clippy::unused_async, reason = "with the feature, it lists")]
        pub async fn look(&self, settings: &ModelSettings) -> Result<Option<RemoteModel>, LoadError> {
            match self.uri(settings) {
                Some(uri) => Err(LoadError::WithoutStorage { uri: uri.to_owned() }),
                None => Ok(None),
            }
        }

        /// Returns no warning.
        pub const fn repository_warning(&self) -> Option<String> {
            None
        }

        /// Refuses to fetch.
        #[expect(clippy::unused_async, reason = "with the feature, it fetches")]
        pub async fn fetch(&self, uri: &str, _: Option<LockFile>) -> Result<FetchedModel, LoadError> {
            Err(LoadError::WithoutStorage { uri: uri.to_owned() })
        }

        #[expect(clippy::unused_self, reason = "with the feature, it holds something")]
        pub(super) fn keep(&self, (): (), _: &Arc<dyn Runtime>) {}
    }
}
