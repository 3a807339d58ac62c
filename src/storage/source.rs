//! The stores behind one interface: list what a URI selects, and read a part of an object.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::StreamExt;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectMeta, ObjectStore, ObjectStoreExt};
use tracing::warn;

use super::error::FetchError;
use super::google_uploads::GoogleUploads;
use super::hub::Hub;
use super::mlflow::MlflowArtifacts;
use super::part::{Part, PartBytes, store_error};
use super::selection::{
    MAX_OBJECTS, MAX_REPOSITORY_OBJECTS, RemoteFile, SelectionError, select, select_one, select_repository, siblings,
};
use super::transport::{DeclaredHash, ObjectRead};
use super::web::Web;

/// How many objects are looked at to say what is beside a missing key.
const MAX_LOOKED_AT: usize = 1000;

/// A store, and what a URI selects in it.
#[derive(Debug)]
pub(super) enum Source {
    Bucket(Bucket),
    Hub(Hub),
    Web(Web),
    Mlflow(MlflowArtifacts),
}

/// Objects of a bucket.
pub(super) struct Bucket {
    pub store: Arc<dyn ObjectStore>,
    pub uploads: Uploads,
    pub key: String,
    /// Where the credentials come from, for errors.
    pub credentials: String,
}

/// How the objects of a bucket are written.
#[derive(Clone)]
pub(super) enum Uploads {
    /// In parts.
    Parts(Arc<dyn MultipartStore>),
    /// By Google's sessions.
    Sessions(Arc<GoogleUploads>),
}

impl fmt::Debug for Bucket {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Bucket").field("store", &self.store).field("key", &self.key).finish_non_exhaustive()
    }
}

impl Source {
    /// Returns the files that the URI selects, in the order of their paths.
    pub(super) async fn list(&self) -> Result<Vec<RemoteFile>, FetchError> {
        match self {
            Self::Bucket(bucket) => bucket.list().await,
            Self::Hub(hub) => hub.list().await,
            Self::Web(web) => Ok(select_one(web.look().await?)?),
            Self::Mlflow(artifacts) => artifacts.list().await,
        }
    }

    /// Returns where the credentials come from.
    pub(super) fn credentials(&self) -> String {
        match self {
            Self::Bucket(bucket) => bucket.credentials.clone(),
            Self::Hub(hub) if hub.token.is_some() => "the token of the hub".to_owned(),
            Self::Web(web) if !web.headers.is_empty() => "the headers for this host".to_owned(),
            Self::Mlflow(artifacts) => artifacts.credentials(),
            Self::Hub(_) | Self::Web(_) => "no credentials".to_owned(),
        }
    }

    /// Returns the files of a repository of models, in the order of their paths; none if nothing is below the URI.
    pub(super) async fn list_repository(&self) -> Result<Vec<RemoteFile>, FetchError> {
        match self {
            Self::Bucket(bucket) => bucket.list_repository().await,
            Self::Hub(hub) => hub.list().await,
            Self::Mlflow(artifacts) => artifacts.list().await,
            Self::Web(_) => Err(FetchError::OneFile),
        }
    }

    /// Reports whether parts of a file can be read without what is before them.
    pub(super) fn has_ranges(&self) -> bool {
        match self {
            Self::Bucket(_) | Self::Hub(_) => true,
            Self::Web(web) => web.has_ranges.load(Ordering::Relaxed),
            // The server fetches a whole artifact for each request.
            Self::Mlflow(_) => false,
        }
    }

    /// Opens a part of a file. Fails with [`FetchError::Changed`] if the file is not the listed one any more.
    pub(super) async fn read(&self, file: &RemoteFile, range: Option<Range<u64>>) -> Result<Part, FetchError> {
        match self {
            Self::Bucket(bucket) => bucket.read(file, range).await,
            Self::Hub(hub) => hub.read(file, range).await,
            Self::Web(web) => web.read(file, range).await,
            Self::Mlflow(artifacts) => artifacts.read(file, range).await,
        }
    }
}

impl Bucket {
    async fn list(&self) -> Result<Vec<RemoteFile>, FetchError> {
        if !self.key.is_empty() {
            match self.store.head(&object_path(&self.key)?).await {
                // An empty object may stand for the folder.
                Ok(found) if found.size > 0 => return Ok(select_one(remote_file(found))?),
                // Without the right to list, a missing key is a denied one. The listing tells.
                Ok(_) | Err(object_store::Error::NotFound { .. } | object_store::Error::PermissionDenied { .. }) => {}
                Err(error) => return Err(store_error(&error, &self.credentials)),
            }
        }
        // Some of them may be skipped, but not most.
        let objects = self.objects(2 * MAX_OBJECTS).await?.ok_or(SelectionError::TooMany)?;
        match select(&self.key, objects) {
            Err(SelectionError::Nothing { key, .. }) => {
                let siblings = siblings(&key, &self.keys_beside(&key).await);
                Err(SelectionError::Nothing { key, siblings }.into())
            }
            selected => Ok(selected?),
        }
    }

    async fn list_repository(&self) -> Result<Vec<RemoteFile>, FetchError> {
        let objects = self.objects(MAX_REPOSITORY_OBJECTS).await?.ok_or(SelectionError::TooManyInRepository)?;
        let (files, unsafe_keys) = select_repository(&self.key, objects);
        if unsafe_keys > 0 {
            warn!("{unsafe_keys} objects of the repository are not looked at: their keys are not safe paths.");
        }
        if files.is_empty()
            && !self.key.is_empty()
            && self.store.head(&object_path(&self.key)?).await.is_ok_and(|found| found.size > 0)
        {
            return Err(FetchError::OneFile);
        }
        Ok(files)
    }

    /// Returns all objects with the key as a prefix, or `None` if there are more than `most`.
    async fn objects(&self, most: usize) -> Result<Option<Vec<RemoteFile>>, FetchError> {
        let prefix = if self.key.is_empty() { None } else { Some(object_path(&self.key)?) };
        let mut listing = self.store.list(prefix.as_ref());
        let mut objects = Vec::new();
        while let Some(found) = listing.next().await {
            objects.push(remote_file(found.map_err(|error| store_error(&error, &self.credentials))?));
            if objects.len() > most {
                return Ok(None);
            }
        }
        Ok(Some(objects))
    }

    /// Returns the first keys in the folder of a key, or none if they cannot be listed.
    async fn keys_beside(&self, key: &str) -> Vec<String> {
        let folder = key.rsplit_once('/').and_then(|(folder, _)| object_path(folder).ok());
        let mut listing = self.store.list(folder.as_ref()).take(MAX_LOOKED_AT);
        let mut keys = Vec::new();
        while let Some(Ok(found)) = listing.next().await {
            keys.push(found.location.to_string());
        }
        keys
    }

    async fn read(&self, file: &RemoteFile, range: Option<Range<u64>>) -> Result<Part, FetchError> {
        let mut options =
            GetOptions { if_match: file.etag.clone(), range: range.map(GetRange::Bounded), ..GetOptions::default() };
        options.extensions.insert(ObjectRead);
        let answer = self.store.get_opts(&object_path(&file.key)?, options).await.map_err(|error| match error {
            object_store::Error::Precondition { .. } | object_store::Error::NotFound { .. } => {
                FetchError::Changed { key: file.key.clone() }
            }
            error => store_error(&error, &self.credentials),
        })?;
        // Not every store compares the tag. Azure's listings have it without quotes.
        let tag = |tag: &Option<String>| tag.as_deref().map(|tag| tag.trim_matches('"').to_owned());
        if file.etag.is_some() && tag(&answer.meta.e_tag) != tag(&file.etag) {
            return Err(FetchError::Changed { key: file.key.clone() });
        }
        let hash = answer.extensions.get::<DeclaredHash>().map(|declared| declared.0.clone());
        Ok(Part { hash, kept: None, bytes: PartBytes::Store(answer.into_stream()) })
    }
}

pub(super) fn object_path(key: &str) -> Result<Path, FetchError> {
    let reason = "is not the path of an object: it has an empty part, `.` or `..`";
    Path::parse(key).map_err(|_| SelectionError::Key { key: key.to_owned(), reason }.into())
}

fn remote_file(found: ObjectMeta) -> RemoteFile {
    let key = found.location.to_string();
    RemoteFile { key, path: String::new(), size: Some(found.size), etag: found.e_tag, hash: None }
}
