//! Models in object stores: what a URI selects, and how it gets into a folder.
//!
//! A [`StorageUri`] names objects. [`Storage::pull`] lists them, fetches them into a hidden folder below the destination, checks their sizes
//! and hashes, and then moves them into place. [`Storage::cached`] does the same below the cache of the server, once for each state of the
//! objects.

mod credentials;
mod download;
mod error;
mod hub;
mod mlflow;
mod mlflow_reference;
mod objects;
mod part;
mod place;
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

pub use credentials::Variables;
pub use download::DownloadProgress;
use download::{DownloadLimits, fetch_all};
pub use error::{CredentialsError, FetchError, StorageError};
pub use mlflow_reference::{MlflowReference, ModelVersion};
pub use objects::StoredObject;
use place::{Staging, is_archive};
pub use selection::{RemoteFile, SelectionError};
use selection::{check_size, matches_any};
pub use snapshots::OfflinePolicy;
use source::Source;
pub use uri::{Location, StorageService, StorageUri, UriError};

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
    /// How many files are fetched at once.
    pub concurrency: usize,
    /// What happens if a store cannot be reached.
    pub offline: OfflinePolicy,
    pub variables: Variables,
}

/// Which of the selected files are fetched, by patterns of their paths in which `*` is any text.
#[derive(Debug, Clone, Default)]
pub struct FileFilter {
    /// Empty for all.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
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

/// Fetches models.
#[derive(Debug, Clone)]
pub struct Storage(Arc<StorageOptions>);

impl Storage {
    pub fn new(options: StorageOptions) -> Self {
        Self(Arc::new(options))
    }

    /// Returns the files that a URI selects, in the order of their paths.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be listed, or selects nothing.
    pub async fn list(&self, uri: &StorageUri, filter: &FileFilter) -> Result<Vec<RemoteFile>, StorageError> {
        match self.open(uri).await? {
            Opened::Store(source) => self.select(uri, &source, filter).await,
            Opened::Local(path) => Err(StorageError::Missing { path }),
        }
    }

    /// Fetches what a URI selects into a folder, which is created. A single archive is unpacked. A path of this machine is linked.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be fetched completely. What has been fetched is kept in a hidden folder, and not fetched again.
    pub async fn pull(
        &self,
        uri: &StorageUri,
        destination: &Path,
        filter: &FileFilter,
        progress: &DownloadProgress,
    ) -> Result<Pulled, StorageError> {
        let source = match self.open(uri).await? {
            Opened::Store(source) => source,
            Opened::Local(path) => {
                let files = place::link(&path, destination, uri.shown())?;
                return Ok(Pulled { files, bytes: 0 });
            }
        };
        // A store that changes between the list and the end is fetched once more.
        let mut is_last = false;
        loop {
            let files = self.select(uri, &source, filter).await?;
            match self.fetch(uri, &source, &files, destination, progress).await {
                Err(StorageError::Fetch { source, .. })
                    if matches!(*source, FetchError::Changed { .. }) && !is_last =>
                {
                    is_last = true;
                }
                done => return done,
            }
        }
    }

    /// Returns the path of a model, which is fetched into the cache unless the same state of it is there.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be fetched and is not in the cache.
    pub async fn cached(&self, uri: &StorageUri, progress: &DownloadProgress) -> Result<PathBuf, StorageError> {
        if let Location::Local(path) = &uri.location {
            return Ok(path.clone());
        }
        snapshots::fetch(self, uri, progress).await
    }

    /// Finds the store that has the objects of a URI, or the path of this machine that has its files.
    async fn open(&self, uri: &StorageUri) -> Result<Opened, StorageError> {
        let idle = self.0.idle_timeout;
        let mut location = uri.location.clone();
        if let Location::Mlflow(reference) = &location {
            let mlflow = self.with_credentials("MLflow", move |variables| credentials::mlflow(variables, idle)).await?;
            location = mlflow.locate(reference).await.map_err(|error| fetch_error(uri, error))?;
            if let Location::Mlflow(MlflowReference::Artifact { path, .. }) = &location {
                return Ok(Opened::Store(Box::new(Source::Mlflow(mlflow.artifacts(path)))));
            }
        }
        let service = match &location {
            Location::Bucket { service, .. } => service.title(),
            Location::Hub { .. } => "Hugging Face",
            Location::Http(_) | Location::Mlflow(_) => "the server",
            Location::Local(path) => return Ok(Opened::Local(path.clone())),
        };
        let open = move |variables: &Variables| credentials::open(&location, variables, idle);
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
        let listed = tokio::time::timeout(MAX_LISTING, source.list()).await;
        let mut files = listed.unwrap_or(Err(FetchError::Listing)).map_err(failed)?;
        let listed = files.len();
        files.retain(|file| {
            (filter.include.is_empty() || matches_any(&filter.include, &file.path))
                && !matches_any(&filter.exclude, &file.path)
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

    /// Fetches listed files into a folder.
    async fn fetch(
        &self,
        uri: &StorageUri,
        source: &Source,
        files: &[RemoteFile],
        destination: &Path,
        progress: &DownloadProgress,
    ) -> Result<Pulled, StorageError> {
        let failed = |error| StorageError::Write { path: destination.to_owned(), source: std::io::Error::other(error) };
        let path = destination.to_owned();
        // Waits for another run with the same destination.
        let staging = tokio::task::spawn_blocking(move || Staging::create(&path)).await.map_err(failed)??;
        staging.check_space(uri, files)?;
        let limits = DownloadLimits { files: self.0.concurrency, bytes: self.0.max_bytes };
        fetch_all(source, files, staging.path(), uri.sha256.as_deref(), limits, progress)
            .await
            .map_err(|error| fetch_error(uri, error))?;
        let archive = matches!(files, [file] if is_archive(&file.path));
        let (files, shown) = (files.to_vec(), uri.shown().to_owned());
        let placed = tokio::task::spawn_blocking(move || {
            if archive { staging.unpack(&files[0], &shown) } else { staging.place(&files) }
        });
        let files = placed.await.map_err(failed)??;
        let bytes = progress.bytes.load(std::sync::atomic::Ordering::Relaxed);
        Ok(Pulled { files, bytes })
    }
}

fn fetch_error(uri: &StorageUri, source: FetchError) -> StorageError {
    StorageError::Fetch { uri: uri.shown().to_owned(), source: Box::new(source) }
}
