//! Fetches the models of object stores before they are loaded.

use std::collections::BTreeMap;

use super::{LoadError, Loader, RuntimeFuture};
use crate::families::{ModelFamily, NativeEvaluator};
use crate::runtimes::Implementation;
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

/// Reports whether MLflow loads a model, which resolves URIs of its own.
fn is_mlflow(settings: &ModelSettings) -> bool {
    Implementation::of(settings).is_ok_and(|found| found == Implementation::Native(NativeEvaluator::Mlflow))
}

#[cfg(feature = "storage")]
pub use with_storage::ModelFetcher;
#[cfg(not(feature = "storage"))]
pub use without_storage::ModelFetcher;

#[cfg(feature = "storage")]
mod with_storage {
    use std::path::PathBuf;

    use tracing::info;

    use super::{BTreeMap, LoadError, ModelSettings, StorageSettings, is_mlflow, remote_uri};
    use crate::repository::is_mlflow_uri;
    use crate::settings::StorageOffline;
    use crate::storage::{DownloadProgress, OfflinePolicy, Storage, StorageOptions, StorageUri, Variables};
    use crate::types::without_credentials;

    /// Fetches models into the cache.
    #[derive(Debug, Clone)]
    pub struct ModelFetcher {
        storage: Storage,
        /// The address of MLflow's tracking server is one of HTTP.
        has_tracking_server: bool,
    }

    impl ModelFetcher {
        /// Creates a fetcher, with the variables of the environment, which have the credentials.
        pub fn new(settings: &StorageSettings, variables: BTreeMap<String, String>) -> Self {
            let tracking = variables.get("MLFLOW_TRACKING_URI").map(|uri| uri.to_ascii_lowercase()).unwrap_or_default();
            let has_tracking_server = tracking.starts_with("http://") || tracking.starts_with("https://");
            Self { storage: Storage::new(storage_options(settings, variables)), has_tracking_server }
        }

        /// Returns the settings with a path of this machine.
        pub(super) async fn localize(&self, mut settings: ModelSettings) -> Result<ModelSettings, LoadError> {
            let Some(uri) = remote_uri(&settings) else { return Ok(settings) };
            // MLflow itself finds its models in folders and databases.
            if is_mlflow_uri(uri) && !self.has_tracking_server && is_mlflow(&settings) {
                return Ok(settings);
            }
            let shown = without_credentials(uri);
            let failed = |source| LoadError::Fetch { source: Box::new(source) };
            let uri = StorageUri::parse(uri).map_err(|error| failed(error.into()))?;
            let (model, version) = (settings.name.as_str(), settings.version());
            info!(model, version, "Model '{model}' is fetched from `{shown}`.");
            let path = self.storage.cached(&uri, &DownloadProgress::default()).await.map_err(failed)?;
            settings.parameters.uri = Some(path.to_string_lossy().into_owned());
            Ok(settings)
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
    use super::{BTreeMap, LoadError, ModelSettings, StorageSettings, is_mlflow, remote_uri};

    /// Refuses models of object stores, since this executable cannot fetch them.
    #[derive(Debug, Clone)]
    pub struct ModelFetcher(());

    impl ModelFetcher {
        /// Creates a fetcher.
        pub fn new(_: &StorageSettings, _: BTreeMap<String, String>) -> Self {
            Self(())
        }

        #[expect(clippy::unused_async, reason = "with the feature, it fetches")]
        pub(super) async fn localize(&self, settings: ModelSettings) -> Result<ModelSettings, LoadError> {
            match remote_uri(&settings) {
                Some(uri) if !is_mlflow(&settings) => Err(LoadError::WithoutStorage { uri: uri.to_owned() }),
                _ => Ok(settings),
            }
        }
    }
}
