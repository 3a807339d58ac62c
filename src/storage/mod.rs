//! Models in object stores: what a URI selects, and how it gets into a folder.
//!
//! A [`StorageUri`] names objects. [`Storage::pull`] lists them, fetches them into a hidden folder below the destination, checks their sizes
//! and hashes, and then moves them into place. [`Storage::cached`] does the same below the cache of the server, once for each state of the
//! objects.

mod clients;
mod credentials;
mod download;
mod error;
mod google_uploads;
mod hub;
mod mirror;
mod mlflow;
mod mlflow_reference;
mod objects;
mod part;
mod place;
mod rclone;
mod selection;
mod snapshots;
mod source;
mod transport;
mod upload;
mod uri;
mod web;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clients::Clients;
pub use credentials::Variables;
pub use download::DownloadProgress;
use download::{DownloadLimits, Pins, fetch_all};
pub use error::{CredentialsError, FetchError, StorageError};
pub use mirror::Mirror;
pub use mlflow_reference::{MlflowReference, ModelVersion};
pub use objects::StoredObject;
use place::{Placed, Staging, is_archive};
pub use selection::{MAX_REPOSITORY_OBJECTS, RemoteFile, SelectionError};
use selection::{check_size, matches_any};
pub use snapshots::{LastFetch, OfflinePolicy, SnapshotUse};
use source::Source;
pub use transport::RetryPolicy;
pub use uri::{Location, StorageService, StorageUri, UriError};

use crate::lock_file::{LOCK_FILE, LockFile};

/// The longest time for a list of objects.
const MAX_LISTING: Duration = Duration::from_mins(10);

/// How models are fetched.
#[derive(Debug, Clone)]
pub struct StorageOptions {
    /// The folder of fetched models.
    pub cache: PathBuf,
    /// The longest time without a byte.
    pub idle_timeout: Duration,
    /// The most bytes of a model.
    pub max_bytes: u64,
    /// The most bytes of the cache. Models in use may have more.
    pub cache_bytes: Option<u64>,
    /// How many files are fetched at once.
    pub concurrency: usize,
    pub retries: RetryPolicy,
    /// What happens if a store cannot be reached while the server starts.
    pub offline: OfflinePolicy,
    pub variables: Variables,
}

/// Which of the selected files are fetched, by patterns of their paths in which `*` is any text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileFilter {
    /// Empty for all.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
}

impl FileFilter {
    fn takes(&self, path: &str) -> bool {
        (self.include.is_empty() || matches_any(&self.include, path)) && !matches_any(&self.exclude, path)
    }
}

/// What a pull does besides fetching all files.
#[derive(Debug, Clone, Default)]
pub struct PullOptions {
    pub filter: FileFilter,
    /// Writes the lock of the folder, instead of checking the files with it.
    pub writes_lock: bool,
}

/// What a URI selects.
#[derive(Debug)]
pub struct Listing {
    /// In the order of their paths.
    pub files: Vec<RemoteFile>,
    /// Where the credentials come from.
    pub credentials: String,
}

/// What was fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulled {
    pub files: usize,
    /// Without those that were there from an interrupted run.
    pub bytes: u64,
}

/// Where the files of a URI are.
enum Opened {
    Store(Box<Source>),
    Local(PathBuf),
}

/// A model on this machine.
#[derive(Debug)]
pub struct CachedModel {
    /// Of its only file, or of its folder.
    pub path: PathBuf,
    /// Keeps the model in the cache; `None` if it is not there.
    pub used: Option<SnapshotUse>,
}

/// Fetches models. Clones share their connections.
#[derive(Debug, Clone)]
pub struct Storage(Arc<StorageOptions>, Arc<Clients>);

impl Storage {
    pub fn new(options: StorageOptions) -> Self {
        let clients = Clients::new(options.idle_timeout, options.concurrency, options.retries);
        Self(Arc::new(options), Arc::new(clients))
    }

    /// Returns what happens if a store cannot be reached while the server starts.
    pub fn offline(&self) -> OfflinePolicy {
        self.0.offline
    }

    /// Reads a URI as the environment means it.
    ///
    /// # Errors
    ///
    /// Fails if it is invalid.
    pub fn uri(&self, text: &str) -> Result<StorageUri, StorageError> {
        StorageUri::find(text, &self.0.variables)
    }

    /// Reports whether a text names a remote of rclone.
    pub fn is_remote(&self, text: &str) -> bool {
        StorageUri::is_remote(text, &self.0.variables)
    }

    /// Returns the files that a URI selects, in the order of their paths.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be listed, or selects nothing.
    pub async fn list(&self, uri: &StorageUri, filter: &FileFilter) -> Result<Listing, StorageError> {
        let source = self.open_store(uri).await?;
        let files = self.select(uri, &source, filter).await?;
        Ok(Listing { files, credentials: source.credentials() })
    }

    /// Returns a name of the state of what a URI selects: another one after each change.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be listed.
    pub async fn state(&self, uri: &StorageUri) -> Result<String, StorageError> {
        if let Location::Local(path) = &uri.location {
            return Err(StorageError::Missing { path: path.clone() });
        }
        Ok(snapshots::snapshot_name(&self.list(uri, &FileFilter::default()).await?.files, uri))
    }

    /// Fetches what a URI selects into a folder, which is created. A single archive is unpacked. A path of this machine is linked. If the
    /// folder has a lock, nothing else is fetched than what it names.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be fetched completely. What has been fetched is kept in a hidden folder, and not fetched again.
    pub async fn pull(
        &self,
        uri: &StorageUri,
        destination: &Path,
        options: &PullOptions,
        progress: &DownloadProgress,
    ) -> Result<Pulled, StorageError> {
        let source = match self.open(uri).await? {
            Opened::Store(source) => source,
            Opened::Local(path) if options.writes_lock => return Err(StorageError::LockOfLink { path }),
            Opened::Local(path) => {
                let files = place::link(&path, destination, uri.shown())?;
                return Ok(Pulled { files, bytes: 0 });
            }
        };
        let lock = if options.writes_lock { None } else { LockFile::find(destination)? };
        // A store that changes between the list and the end is fetched once more.
        let mut is_last = false;
        loop {
            let files = self.select(uri, &source, &options.filter).await?;
            match self.fetch(uri, &source, &files, destination, lock.as_ref(), progress).await {
                Err(StorageError::Fetch { source, .. })
                    if matches!(*source, FetchError::Changed { .. }) && !is_last =>
                {
                    is_last = true;
                }
                Ok(placed) => {
                    let files = placed.paths.len();
                    if options.writes_lock {
                        write_lock(destination, placed).await?;
                    }
                    let bytes = progress.bytes.load(std::sync::atomic::Ordering::Relaxed);
                    return Ok(Pulled { files, bytes });
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the path of a model, which is fetched into the cache unless the same state of it is there. With a lock, all of its files are
    /// compared.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be fetched, unless the cache has a state of it that `offline` allows, or if it differs from the lock.
    pub async fn cached(
        &self,
        uri: &StorageUri,
        lock: Option<LockFile>,
        offline: OfflinePolicy,
        progress: &DownloadProgress,
    ) -> Result<CachedModel, StorageError> {
        if let Location::Local(path) = &uri.location {
            return Ok(CachedModel { path: path.clone(), used: None });
        }
        let found = snapshots::fetch(self, uri, lock.as_ref(), offline, progress).await?;
        if let Some(lock) = lock {
            let folder = found.folder.clone();
            blocking(&found.folder, move || Ok(lock.check_files(&folder)?)).await?;
        }
        Ok(CachedModel { path: found.path, used: found.used })
    }

    /// Returns what a start takes from the cache if listing a URI failed with `error`. `None` if it fails with the same error.
    ///
    /// # Errors
    ///
    /// Fails if the files of the cache differ from the lock.
    pub async fn last_fetch(
        &self,
        uri: &StorageUri,
        error: &StorageError,
        lock: Option<LockFile>,
    ) -> Result<Option<LastFetch>, StorageError> {
        if !error.is_outage() || self.offline() == OfflinePolicy::Fail {
            return Ok(None);
        }
        let folder = self.0.cache.join(snapshots::name(uri.cache_key().as_bytes()));
        blocking(&folder.clone(), move || {
            let Some(snapshot) = snapshots::newest(&folder) else { return Ok(None) };
            lock.map_or(Ok(()), |lock| lock.check_files(&snapshot))?;
            Ok(Some(LastFetch::of(&snapshot)))
        })
        .await
    }

    /// Finds the store that has the objects of a URI.
    async fn open_store(&self, uri: &StorageUri) -> Result<Source, StorageError> {
        match self.open(uri).await? {
            Opened::Store(source) => Ok(*source),
            Opened::Local(path) => Err(StorageError::Missing { path }),
        }
    }

    /// Finds the store that has the objects of a URI, or the path of this machine that has its files.
    async fn open(&self, uri: &StorageUri) -> Result<Opened, StorageError> {
        let mut location = uri.location.clone();
        if let Location::Mlflow(reference) = &location {
            let (idle, retries) = (self.1.idle, self.1.retries.clone());
            let read = move |variables: &Variables| credentials::mlflow(variables, idle, retries);
            let mlflow = self.with_credentials("MLflow", read).await?;
            location = mlflow.locate(reference).await.map_err(|error| fetch_error(uri, error))?;
            if let Location::Mlflow(MlflowReference::Artifact { path, .. }) = &location {
                return Ok(Opened::Store(Box::new(Source::Mlflow(mlflow.artifacts(path)))));
            }
        }
        let (remote, clients) = (uri.remote.clone(), Arc::clone(&self.1));
        let service = match &location {
            Location::Bucket { service, .. } => service.title(),
            Location::Hub { .. } => "Hugging Face",
            Location::Http(_) | Location::Mlflow(_) => "the server",
            Location::Local(path) => return Ok(Opened::Local(path.clone())),
        };
        let open = move |variables: &Variables| credentials::open(&location, remote.as_ref(), variables, &clients);
        self.with_credentials(service, open).await.map(|source| Opened::Store(Box::new(source)))
    }

    /// Reads the environment's credentials, which may be in files.
    async fn with_credentials<T: Send + 'static>(
        &self,
        service: &'static str,
        read: impl FnOnce(&Variables) -> Result<T, CredentialsError> + Send + 'static,
    ) -> Result<T, StorageError> {
        let options = Arc::clone(&self.0);
        let read = tokio::task::spawn_blocking(move || read(&options.variables)).await;
        let read = read.map_err(|error| CredentialsError::Store(error.to_string())).flatten();
        read.map_err(|source| StorageError::Credentials { service, source })
    }

    async fn select(
        &self,
        uri: &StorageUri,
        source: &Source,
        filter: &FileFilter,
    ) -> Result<Vec<RemoteFile>, StorageError> {
        let failed = |error| fetch_error(uri, error);
        // Otherwise a store could go on with empty pages.
        let mut files = self.listed(source.list()).await.map_err(failed)?;
        let listed = files.len();
        files.retain(|file| {
            // That of the store protects from nobody who can write to it.
            file.path != LOCK_FILE && filter.takes(&file.path) && uri.filter.takes(&file.path)
        });
        if files.is_empty() {
            return Err(failed(SelectionError::Filtered { listed }.into()));
        }
        check_size(&files, self.0.max_bytes).map_err(|error| failed(error.into()))?;
        if uri.sha256.is_some() && files.len() != 1 {
            return Err(failed(FetchError::Pin { found: files.len() }));
        }
        Ok(files)
    }

    /// Waits for a list of objects, of which only a few are requested at once.
    async fn listed(
        &self,
        list: impl Future<Output = Result<Vec<RemoteFile>, FetchError>>,
    ) -> Result<Vec<RemoteFile>, FetchError> {
        let _permit = self.1.listings.acquire().await;
        let listed = tokio::time::timeout(MAX_LISTING, list).await.unwrap_or(Err(FetchError::Listing));
        if matches!(listed, Err(FetchError::Denied { .. })) {
            self.1.forget();
        }
        listed
    }

    /// Fetches listed files into a folder.
    async fn fetch(
        &self,
        uri: &StorageUri,
        source: &Source,
        files: &[RemoteFile],
        destination: &Path,
        lock: Option<&LockFile>,
        progress: &DownloadProgress,
    ) -> Result<Placed, StorageError> {
        if let Some(lock) = lock {
            lock.check_objects(files.iter().map(|file| (file.path.as_str(), file.size)))?;
        }
        let path = destination.to_owned();
        // Waits for another run with the same destination.
        let staging = blocking(destination, move || Staging::create(&path)).await?;
        staging.check_space(uri, files)?;
        let limits = DownloadLimits { files: self.0.concurrency, bytes: self.0.max_bytes };
        let pins = Pins::new(uri, lock);
        fetch_all(source, files, staging.path(), &pins, limits, progress, &self.1.permits)
            .await
            .map_err(|error| fetch_error(uri, error))?;
        let archive = matches!(files, [file] if is_archive(&file.path));
        let (files, shown) = (files.to_vec(), uri.shown().to_owned());
        blocking(destination, move || if archive { staging.unpack(&files[0], &shown) } else { staging.place(&files) })
            .await
    }
}

/// Runs work that waits for the disk, on a thread for that.
async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    let failed = |error| StorageError::Write { path: path.to_owned(), source: std::io::Error::other(error) };
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

async fn write_lock(destination: &Path, placed: Placed) -> Result<(), StorageError> {
    let folder = destination.to_owned();
    blocking(destination, move || Ok(LockFile::of(&folder, &placed.paths, placed.archive)?.write(&folder)?)).await
}

fn fetch_error(uri: &StorageUri, source: FetchError) -> StorageError {
    StorageError::Fetch { uri: uri.shown().to_owned(), source: Box::new(source) }
}
