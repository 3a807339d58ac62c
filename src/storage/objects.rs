//! Objects that are read by ranges instead of fetched as a whole, and written from a file of this machine.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;

use super::error::{FetchError, StorageError};
use super::part::store_error;
use super::selection::{RemoteFile, SelectionError, matches_any};
use super::snapshots::{create, name};
use super::source::{Bucket, Source, object_path};
use super::transport::{ATTEMPTS, Transport};
use super::uri::{Location, StorageUri};
use super::{Storage, fetch_error};

/// The folder of the cache for what is written to objects.
const ANSWERS: &str = ".answers";

/// An object whose ranges can be read.
#[derive(Clone)]
pub struct StoredObject {
    source: Arc<Source>,
    file: RemoteFile,
    size: u64,
    /// The URI of the object as it may be shown.
    shown: String,
}

impl fmt::Debug for StoredObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("StoredObject").field(&self.shown).finish()
    }
}

impl Storage {
    /// Returns the objects of a URI, in the order of their paths: those that a URI selects, or, if its last part has a `*`,
    /// those of the folder with such names. Names that start with `_` or `.` are skipped below a folder, as other readers of
    /// tables do.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be listed or read by ranges, or nothing is selected.
    pub async fn objects(&self, uri: &StorageUri) -> Result<Vec<StoredObject>, StorageError> {
        let (folder, pattern) = with_pattern(uri);
        let source = self.open_store(&folder).await?;
        let failed = |error: FetchError| fetch_error(uri, error);
        let listed = self.listed(source.list()).await;
        let mut files = listed.map_err(failed)?;
        if !source.has_ranges() {
            return Err(failed(FetchError::NoRanges));
        }
        let key = folder_key(&folder);
        let is_one = matches!(&files[..], [file] if key.is_none_or(|key| key == file.key));
        let listed = files.len();
        files.retain(|file| {
            let name = file.path.rsplit('/').next().unwrap_or_default();
            match &pattern {
                Some(pattern) => !file.path.contains('/') && matches_any(std::slice::from_ref(pattern), &file.path),
                None => is_one || !name.starts_with(['_', '.']),
            }
        });
        if files.is_empty() {
            let pattern = pattern.unwrap_or_else(|| "*".to_owned());
            return Err(failed(SelectionError::Pattern { pattern, listed }.into()));
        }
        let source = Arc::new(source);
        let object = |file: RemoteFile| {
            let shown = shown_object(&folder, &file);
            let size = file.size.ok_or_else(|| failed(FetchError::NoRanges))?;
            Ok(StoredObject { source: Arc::clone(&source), file, size, shown })
        };
        files.into_iter().map(object).collect()
    }

    /// Returns when an object was written; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Fails if the URI does not name an object of a bucket, or the store cannot be asked.
    pub async fn modified(&self, uri: &StorageUri) -> Result<Option<SystemTime>, StorageError> {
        let bucket = self.bucket(uri).await?;
        bucket.modified(&bucket.key).await.map_err(|error| fetch_error(uri, error))
    }

    /// Returns a folder of this machine for a file that is written to an object later: always the same one for an object.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be created, or another user can write to it.
    pub fn answers_folder(&self, uri: &StorageUri) -> Result<PathBuf, StorageError> {
        let answers = self.0.cache.join(ANSWERS);
        let folder = answers.join(name(uri.cache_key().as_bytes()));
        for folder in [&self.0.cache, &answers, &folder] {
            create(folder)?;
        }
        Ok(folder)
    }

    /// Opens the bucket of an object that is written.
    pub(super) async fn bucket(&self, uri: &StorageUri) -> Result<Bucket, StorageError> {
        match &uri.location {
            Location::Bucket { key, .. } if !key.is_empty() => {}
            _ => return Err(StorageError::NotWritable { uri: uri.shown().to_owned() }),
        }
        match self.open_store(uri).await? {
            Source::Bucket(bucket) => Ok(bucket),
            _ => Err(StorageError::NotWritable { uri: uri.shown().to_owned() }),
        }
    }
}

impl StoredObject {
    /// Returns the path below the folder of the URI.
    pub fn path(&self) -> &str {
        &self.file.path
    }

    /// Returns the URI as it may be shown.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// In bytes.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns when the object was written; `None` if the store does not tell.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be asked.
    pub async fn modified(&self) -> Result<Option<SystemTime>, StorageError> {
        let Source::Bucket(bucket) = &*self.source else { return Ok(None) };
        bucket.modified(&self.file.key).await.map_err(|error| self.error(error))
    }

    /// Reads a range of the object.
    ///
    /// # Errors
    ///
    /// Fails if the object is not the listed one any more, or after the last retry.
    pub async fn read(&self, range: Range<u64>) -> Result<Bytes, StorageError> {
        let needed = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        // It grows with what arrives.
        let mut data = Vec::new();
        let mut failures = 0;
        loop {
            let before = data.len();
            let Err(error) = self.read_rest(&range, needed, &mut data).await else { return Ok(data.into()) };
            failures = if data.len() > before { 1 } else { failures + 1 };
            if !error.may_pass() || failures == ATTEMPTS || (!self.file.continues() && !data.is_empty()) {
                return Err(self.error(error));
            }
            tokio::time::sleep(Transport::pause(failures - 1)).await;
        }
    }

    async fn read_rest(&self, range: &Range<u64>, needed: usize, data: &mut Vec<u8>) -> Result<(), FetchError> {
        if data.len() == needed {
            return Ok(());
        }
        let mut part = self.source.read(&self.file, Some(range.start + data.len() as u64..range.end)).await?;
        while data.len() < needed {
            let Some(bytes) = part.next().await? else { return Err(FetchError::truncated(data.len(), needed)) };
            let taken = bytes.len().min(needed - data.len());
            data.extend_from_slice(&bytes[..taken]);
        }
        Ok(())
    }

    fn error(&self, source: FetchError) -> StorageError {
        StorageError::Fetch { uri: self.shown.clone(), source: Box::new(source) }
    }
}

impl Bucket {
    async fn modified(&self, key: &str) -> Result<Option<SystemTime>, FetchError> {
        match object_store::ObjectStoreExt::head(&*self.store, &object_path(key)?).await {
            Ok(found) => Ok(Some(found.last_modified.into())),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(store_error(&error, &self.credentials)),
        }
    }
}

/// Splits the last part of a key from the URI of its folder if it has a `*`.
fn with_pattern(uri: &StorageUri) -> (StorageUri, Option<String>) {
    let mut folder = uri.clone();
    let (Location::Bucket { key, .. } | Location::Hub { key, .. }) = &mut folder.location else {
        return (folder, None);
    };
    let (parent, last) = key.rsplit_once('/').unwrap_or(("", key));
    if !last.contains('*') {
        return (folder, None);
    }
    let (parent, last) = (parent.to_owned(), last.to_owned());
    *key = parent;
    (folder, Some(last))
}

/// Returns the key of a URI; `None` if it names one file.
fn folder_key(uri: &StorageUri) -> Option<&str> {
    match &uri.location {
        Location::Bucket { key, .. } | Location::Hub { key, .. } => Some(key),
        _ => None,
    }
}

fn shown_object(folder: &StorageUri, file: &RemoteFile) -> String {
    match &folder.location {
        Location::Bucket { service, bucket, .. } => format!("{}://{bucket}/{}", service.scheme(), file.key),
        Location::Hub { repository, .. } => format!("hf://{repository}/{}", file.key),
        _ => folder.shown().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_patterns_are_the_last_part_of_a_key() {
        let split = |text: &str| {
            let (folder, pattern) = with_pattern(&StorageUri::parse(text).unwrap());
            (folder_key(&folder).unwrap_or_default().to_owned(), pattern)
        };
        assert_eq!(split("s3://b/in/part-*.parquet"), ("in".to_owned(), Some("part-*.parquet".to_owned())));
        assert_eq!(split("s3://b/*"), (String::new(), Some("*".to_owned())));
        assert_eq!(split("s3://b/in/a.csv"), ("in/a.csv".to_owned(), None));
        assert_eq!(split("https://h/a*"), (String::new(), None));
    }
}
