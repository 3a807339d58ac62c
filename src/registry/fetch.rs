//! Fetches the models of object stores before they are loaded.

use std::collections::BTreeMap;

use super::{LoadError, Loader, RuntimeFuture};
use crate::families::ModelFamily;
use crate::repository::FolderSource;
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
            let settings = self.fetcher.localize(settings).await?;
            self.loader.load(settings).await
        })
    }
}

/// Returns the URI of a model that the server fetches. Classes of users get their URI as it is, as in the original, since they may
/// read it themselves.
fn remote_uri(settings: &ModelSettings) -> Option<&str> {
    let uri = settings.parameters.uri.as_deref()?;
    let is_ours = ModelFamily::of(&settings.implementation).is_some();
    (is_ours && crate::repository::is_store_uri(uri)).then_some(uri)
}

#[cfg(feature = "storage")]
pub use with_storage::ModelFetcher;
#[cfg(not(feature = "storage"))]
pub use without_storage::ModelFetcher;

#[cfg(feature = "storage")]
mod with_storage {
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tracing::{debug, info};

    use super::{BTreeMap, FolderSource, LoadError, ModelSettings, StorageSettings, remote_uri};
    use crate::registry::chain;
    use crate::registry::store_repository::StoreRepository;
    use crate::repository::disk_state;
    use crate::settings::StorageOffline;
    use crate::storage::{DownloadProgress, Location, OfflinePolicy, Storage, StorageOptions, StorageUri, Variables};

    /// Fetches models into the cache.
    #[derive(Debug, Clone)]
    pub struct ModelFetcher {
        storage: Storage,
        /// Where the models are, if the repository is in a store.
        repository: Option<Arc<StoreRepository>>,
        /// Whether the models that the server starts with are being loaded. Only they may be of an old state.
        is_starting: Arc<AtomicBool>,
    }

    impl ModelFetcher {
        /// Creates a fetcher, with the variables of the environment, which have the credentials.
        pub fn new(settings: &StorageSettings, variables: BTreeMap<String, String>) -> Self {
            let storage = Storage::new(storage_options(settings, variables));
            Self { storage, repository: None, is_starting: Arc::new(AtomicBool::new(true)) }
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
            let failed = |source| LoadError::Fetch { source: Box::new(source) };
            let uri = StorageUri::parse(uri).map_err(|error| failed(error.into()))?;
            let (storage, offline) = (self.storage.clone(), self.storage.offline());
            let repository = StoreRepository::open(storage, uri, folder, offline).await.map_err(failed)?;
            Ok(Arc::clone(self.repository.insert(Arc::new(repository))) as Arc<dyn FolderSource>)
        }

        /// Returns the settings with a path of this machine.
        pub(super) async fn localize(&self, mut settings: ModelSettings) -> Result<ModelSettings, LoadError> {
            if let Some(repository) = &self.repository {
                settings = repository.localize(settings, self).await?;
            }
            let Some(uri) = remote_uri(&settings) else { return Ok(settings) };
            let uri = StorageUri::parse(uri).map_err(|error| LoadError::Fetch { source: Box::new(error.into()) })?;
            let path = self.fetch(&uri, &settings).await?;
            settings.parameters.uri = Some(path.to_string_lossy().into_owned());
            Ok(settings)
        }

        /// Reports whether a model's URI names a store.
        #[expect(clippy::unused_self, reason = "without the feature, no fetcher fetches")]
        pub fn is_remote(&self, settings: &ModelSettings) -> bool {
            remote_uri(settings).is_some()
        }

        /// Returns a hash of the objects that a model's URI selects now, or `None` if they cannot be listed.
        pub async fn state(&self, settings: &ModelSettings) -> Option<blake3::Hash> {
            let uri = StorageUri::parse(remote_uri(settings)?).ok()?;
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

        /// Returns the path in the cache of what a URI selects.
        pub(in crate::registry) async fn fetch(
            &self,
            uri: &StorageUri,
            settings: &ModelSettings,
        ) -> Result<PathBuf, LoadError> {
            let (model, version) = (settings.name.as_str(), settings.version());
            info!(model, version, "Model '{model}' is fetched from `{}`.", uri.shown());
            let is_starting = self.is_starting.load(Ordering::Relaxed);
            let offline = if is_starting { self.storage.offline() } else { OfflinePolicy::Fail };
            let path = self.storage.cached(uri, offline, &DownloadProgress::default()).await;
            path.map_err(|source| LoadError::Fetch { source: Box::new(source) })
        }
    }

    /// Converts the settings.
    pub fn storage_options(settings: &StorageSettings, variables: BTreeMap<String, String>) -> StorageOptions {
        let of_user = || {
            let cache = variables.get("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
            let cache = cache
                .or_else(|| Some(PathBuf::from(variables.get("HOME").filter(|path| !path.is_empty())?).join(".cache")));
            cache.map_or_else(|| std::env::temp_dir().join("mlserver-models"), |cache| cache.join("mlserver/models"))
        };
        StorageOptions {
            // Absolute, because workers may have another working directory.
            cache: std::path::absolute(settings.cache.clone().unwrap_or_else(of_user)).unwrap_or_else(|_| of_user()),
            idle_timeout: settings.idle_timeout,
            max_bytes: settings.max_bytes,
            concurrency: settings.concurrency.get(),
            offline: match settings.offline {
                StorageOffline::Use => OfflinePolicy::Use,
                StorageOffline::Fail => OfflinePolicy::Fail,
            },
            variables: Variables(variables),
        }
    }
}

#[cfg(feature = "storage")]
pub use with_storage::storage_options;

#[cfg(not(feature = "storage"))]
mod without_storage {
    use std::path::Path;
    use std::sync::Arc;

    use super::{BTreeMap, FolderSource, LoadError, ModelSettings, StorageSettings, remote_uri};
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

        /// Has no effect, since nothing is fetched.
        #[expect(clippy::unused_self, reason = "with the feature, it changes later loads")]
        pub const fn end_start(&self) {}

        /// Reports whether a model's URI names a store that is listed: never.
        #[expect(clippy::unused_self, reason = "with the feature, it fetches")]
        pub const fn is_remote(&self, _: &ModelSettings) -> bool {
            false
        }

        /// Returns no state.
        #[expect(clippy::unused_self, clippy::unused_async, reason = "with the feature, it lists a store")]
        pub async fn state(&self, _: &ModelSettings) -> Option<blake3::Hash> {
            None
        }

        /// Refuses the repository.
        ///
        /// # Errors
        ///
        /// Fails always.
        #[expect(clippy::unused_async, clippy::needless_pass_by_ref_mut, reason = "with the feature, it fetches")]
        pub async fn open_repository(&mut self, uri: &str, _: &Path) -> Result<Arc<dyn FolderSource>, LoadError> {
            Err(LoadError::WithoutStorage { uri: uri.to_owned() })
        }

        #[expect(clippy::unused_async, reason = "with the feature, it fetches")]
        pub(super) async fn localize(&self, settings: ModelSettings) -> Result<ModelSettings, LoadError> {
            // MLflow resolves URIs of its own.
            let is_mlflow = || {
                let implementation = Implementation::of(&settings);
                implementation.is_ok_and(|found| found == Implementation::Native(NativeEvaluator::Mlflow))
            };
            match remote_uri(&settings) {
                Some(uri) if !is_mlflow() => Err(LoadError::WithoutStorage { uri: uri.to_owned() }),
                _ => Ok(settings),
            }
        }
    }
}
