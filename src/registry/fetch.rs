//! Fetches the models of object stores before they are loaded.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{LoadError, Loader, RuntimeFuture};
use crate::families::ModelFamily;
use crate::lock_file::LockFile;
use crate::runtimes::Runtime;
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
    (ModelFamily::of(&settings.implementation).is_some() && fetcher.is_store(uri)).then_some(uri)
}

/// A model of an object store, before it is fetched.
#[derive(Debug)]
pub struct RemoteModel {
    /// Without credentials.
    pub uri: String,
    pub files: usize,
    /// Of all files whose sizes the store tells.
    pub bytes: u64,
    /// Where the credentials come from.
    pub credentials: String,
}

/// A model on this machine.
#[derive(Debug)]
pub struct FetchedModel {
    pub path: PathBuf,
    used: SnapshotUse,
}

/// What keeps a model in the cache.
#[cfg(feature = "storage")]
type SnapshotUse = Option<crate::storage::SnapshotUse>;
#[cfg(not(feature = "storage"))]
type SnapshotUse = ();

#[cfg(feature = "storage")]
pub use with_storage::ModelFetcher;
#[cfg(not(feature = "storage"))]
pub use without_storage::ModelFetcher;

#[cfg(feature = "storage")]
mod with_storage {
    use std::sync::Weak;

    use parking_lot::Mutex;
    use tracing::info;

    use super::{
        Arc, BTreeMap, FetchedModel, LoadError, LockFile, ModelSettings, PathBuf, RemoteModel, Runtime, SnapshotUse,
        StorageSettings, can_be_created, remote_uri,
    };
    use crate::settings::StorageOffline;
    use crate::storage::{
        DownloadProgress, FileFilter, OfflinePolicy, SnapshotUse as InUse, Storage, StorageError, StorageOptions,
        Variables,
    };
    use crate::types::without_credentials;

    /// Fetches models into the cache.
    #[derive(Debug, Clone)]
    pub struct ModelFetcher {
        storage: Storage,
        /// What keeps the fetched models in the cache, as long as they are loaded: one for each loaded model.
        in_use: Arc<Mutex<Vec<(InUse, Weak<dyn Runtime>)>>>,
    }

    impl ModelFetcher {
        /// Creates a fetcher, with the variables of the environment, which have the credentials.
        pub fn new(settings: &StorageSettings, variables: BTreeMap<String, String>) -> Self {
            Self { storage: Storage::new(storage_options(settings, variables)), in_use: Arc::default() }
        }

        /// Reports whether a text names objects of a store.
        pub fn is_store(&self, uri: &str) -> bool {
            crate::repository::is_store_uri(uri) || self.storage.is_remote(uri)
        }

        /// Lists what a URI selects.
        ///
        /// # Errors
        ///
        /// Fails if the URI is invalid, or its objects cannot be listed.
        pub async fn look(&self, uri: &str) -> Result<RemoteModel, LoadError> {
            let uri = self.storage.uri(uri).map_err(failed)?;
            let listing = self.storage.list(&uri, &FileFilter::default()).await.map_err(failed)?;
            Ok(RemoteModel {
                uri: uri.shown().to_owned(),
                files: listing.files.len(),
                bytes: listing.files.iter().filter_map(|file| file.size).fold(0, u64::saturating_add),
                credentials: listing.credentials,
            })
        }

        /// Fetches what a URI selects, unless the cache has it.
        ///
        /// # Errors
        ///
        /// Fails if it cannot be fetched, or differs from the lock.
        pub async fn fetch(&self, uri: &str, lock: Option<LockFile>) -> Result<FetchedModel, LoadError> {
            let uri = self.storage.uri(uri).map_err(failed)?;
            let cached = self.storage.cached(&uri, lock, &DownloadProgress::default()).await.map_err(failed)?;
            Ok(FetchedModel { path: cached.path, used: cached.used })
        }

        /// Keeps a model in the cache while its runtime exists.
        pub(super) fn keep(&self, used: SnapshotUse, runtime: &Arc<dyn Runtime>) {
            let mut in_use = self.in_use.lock();
            in_use.retain(|(_, runtime)| runtime.strong_count() > 0);
            in_use.extend(used.map(|used| (used, Arc::downgrade(runtime))));
        }

        /// Returns the settings with a path of this machine, and what keeps it there.
        pub(super) async fn localize(
            &self,
            mut settings: ModelSettings,
            lock: Option<LockFile>,
        ) -> Result<(ModelSettings, SnapshotUse), LoadError> {
            // Models that were unloaded need not be kept.
            self.in_use.lock().retain(|(_, runtime)| runtime.strong_count() > 0);
            let Some(uri) = remote_uri(&settings, self) else { return Ok((settings, None)) };
            let shown = without_credentials(uri);
            let (model, version) = (settings.name.as_str(), settings.version());
            info!(model, version, "Model '{model}' is fetched from `{shown}`.");
            let fetched = self.fetch(uri, lock).await?;
            settings.parameters.uri = Some(fetched.path.to_string_lossy().into_owned());
            Ok((settings, fetched.used))
        }
    }

    fn failed(source: StorageError) -> LoadError {
        LoadError::Fetch { source: Box::new(source) }
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
            offline: match settings.offline {
                StorageOffline::Use => OfflinePolicy::Use,
                StorageOffline::Fail => OfflinePolicy::Fail,
            },
            variables: Variables(variables),
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
        Arc, BTreeMap, FetchedModel, LoadError, LockFile, ModelSettings, RemoteModel, Runtime, SnapshotUse,
        StorageSettings, remote_uri,
    };
    use crate::families::NativeEvaluator;
    use crate::runtimes::Implementation;

    /// Refuses models of object stores, since this executable cannot fetch them.
    #[derive(Debug, Clone)]
    pub struct ModelFetcher(());

    impl ModelFetcher {
        /// Creates a fetcher.
        pub fn new(_: &StorageSettings, _: BTreeMap<String, String>) -> Self {
            Self(())
        }

        #[expect(clippy::unused_async, reason = "with the feature, it fetches")]
        pub(super) async fn localize(
            &self,
            settings: ModelSettings,
            lock: Option<LockFile>,
        ) -> Result<(ModelSettings, SnapshotUse), LoadError> {
            // MLflow resolves URIs of its own.
            let is_mlflow = || {
                let implementation = Implementation::of(&settings);
                implementation.is_ok_and(|found| found == Implementation::Native(NativeEvaluator::Mlflow))
            };
            match remote_uri(&settings, self) {
                Some(uri) if lock.is_some() || !is_mlflow() => Err(LoadError::WithoutStorage { uri: uri.to_owned() }),
                _ => Ok((settings, ())),
            }
        }

        /// Reports whether a text names objects of a store.
        #[expect(clippy::unused_self, reason = "with the feature, it has the remotes of rclone")]
        pub fn is_store(&self, uri: &str) -> bool {
            crate::repository::is_store_uri(uri)
        }

        /// Refuses to look at a store.
        #[expect(clippy::unused_async, clippy::unused_self, reason = "with the feature, it lists")]
        pub async fn look(&self, uri: &str) -> Result<RemoteModel, LoadError> {
            Err(LoadError::WithoutStorage { uri: uri.to_owned() })
        }

        /// Refuses to fetch.
        #[expect(clippy::unused_async, clippy::unused_self, reason = "with the feature, it fetches")]
        pub async fn fetch(&self, uri: &str, _: Option<LockFile>) -> Result<FetchedModel, LoadError> {
            Err(LoadError::WithoutStorage { uri: uri.to_owned() })
        }

        #[expect(clippy::unused_self, reason = "with the feature, it holds something")]
        pub(super) fn keep(&self, (): (), _: &Arc<dyn Runtime>) {}
    }
}
