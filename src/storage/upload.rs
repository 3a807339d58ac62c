//! Writes files of this machine to objects: in pieces, of which an interrupted upload keeps those that are complete.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStoreExt, PutPayload};
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

use super::Storage;
use super::error::{FetchError, StorageError};
use super::google_uploads::{GoogleUploads, SessionState};
use super::part::store_error;
use super::place::write_error;
use super::source::{Bucket, Uploads, object_path};
use super::uri::StorageUri;

/// The size of a part, in bytes. Large files have larger parts.
const PART: u64 = 8 << 20;
/// The most parts of an object: that of S3.
const MAX_PARTS: u64 = 10_000;
/// How many parts are sent at once.
const PARTS_AT_ONCE: usize = 4;
/// The size of a piece of a session, in bytes: a multiple of 256 KiB, as Google requires.
const PIECE: u64 = 2 * PART;
/// The end of the name of the file that records an upload.
const RECORD: &str = ".upload";
/// The longest record, in bytes.
const MAX_RECORD: u64 = 4 << 20;

/// An upload that has begun. It belongs to one state of the file.
#[derive(Debug, Serialize, Deserialize)]
struct UploadRecord {
    id: String,
    /// The size of the file and of a part, in bytes.
    size: u64,
    part: u64,
    /// When the file was written, in nanoseconds since 1970.
    modified: u128,
    /// The names of the parts that the store has, from the first on. Pieces of a session have empty names.
    parts: Vec<String>,
}

impl Storage {
    /// Writes a file to an object, which appears when it is complete. An interrupted upload of the same file is continued.
    /// `sent` counts bytes.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read or the store does not take it. The parts that it has taken are kept for the next
    /// attempt.
    pub async fn upload(&self, uri: &StorageUri, file: &Path, sent: &AtomicU64) -> Result<(), StorageError> {
        let bucket = self.bucket(uri).await?;
        let failed = |source| StorageError::Upload { uri: uri.shown().to_owned(), source: Box::new(source) };
        let target = object_path(&bucket.key).map_err(failed)?;
        let metadata = fs::metadata(file).map_err(write_error(file))?;
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let (size, modified) = (metadata.len(), modified.unwrap_or_default().as_nanos());
        let part = match bucket.uploads {
            Uploads::Parts(_) => size.div_ceil(MAX_PARTS).max(PART),
            Uploads::Sessions(_) => PIECE,
        };
        if matches!(bucket.uploads, Uploads::Parts(_)) && size <= part {
            let data = read_part(file.to_owned(), 0, size).await.map_err(write_error(file))?;
            let put = bucket.store.put(&target, PutPayload::from(data)).await;
            put.map_err(|error| failed(store_error(&error, &bucket.credentials)))?;
            sent.fetch_add(size, Ordering::Relaxed);
            return Ok(());
        }
        let record_path = record_of(file);
        let continued = read_record(&record_path);
        let continued =
            continued.filter(|record| (record.size, record.part, record.modified) == (size, part, modified));
        if let Some(record) = continued {
            let upload = Upload { bucket: &bucket, target: &target, file, record_path: &record_path, record };
            match upload.run(sent).await {
                // The store has dropped it.
                Err(UploadError::Gone) => sent.store(0, Ordering::Relaxed),
                done => return done.map_err(|error| error.at(file, &failed)),
            }
        } else {
            self.abort_upload(uri, file).await;
        }
        let id = match &bucket.uploads {
            Uploads::Parts(store) => {
                let id = store.create_multipart(&target).await;
                id.map_err(|error| failed(store_error(&error, &bucket.credentials)))?
            }
            Uploads::Sessions(google) => google.start(target.as_ref(), &bucket.credentials).await.map_err(failed)?,
        };
        let record = UploadRecord { id, size, part, modified, parts: Vec::new() };
        write_record(&record_path, &record).map_err(write_error(&record_path))?;
        let upload = Upload { bucket: &bucket, target: &target, file, record_path: &record_path, record };
        upload.run(sent).await.map_err(|error| error.at(file, &failed))
    }

    /// Gives up an interrupted upload of a file, so that the store drops its parts. Parts that the store does not drop are left
    /// to its rules.
    pub async fn abort_upload(&self, uri: &StorageUri, file: &Path) {
        let path = record_of(file);
        let Some(record) = read_record(&path) else { return };
        if let Ok(bucket) = self.bucket(uri).await
            && let Ok(target) = object_path(&bucket.key)
        {
            match &bucket.uploads {
                Uploads::Parts(store) => drop(store.abort_multipart(&target, &record.id).await),
                Uploads::Sessions(google) => google.abort(target.as_ref(), &record.id, &bucket.credentials).await,
            }
        }
        // A leftover record is of no state that a later file has.
        let _ = fs::remove_file(path);
    }
}

/// An upload that has begun.
struct Upload<'a> {
    bucket: &'a Bucket,
    target: &'a ObjectPath,
    file: &'a Path,
    record_path: &'a Path,
    record: UploadRecord,
}

enum UploadError {
    /// The store does not know the upload.
    Gone,
    Store(FetchError),
    File(io::Error),
}

impl UploadError {
    fn at(self, file: &Path, failed: &impl Fn(FetchError) -> StorageError) -> StorageError {
        match self {
            Self::Gone => failed(FetchError::Store("the store has dropped the upload".to_owned())),
            Self::Store(error) => failed(error),
            Self::File(error) => write_error(file)(error),
        }
    }

    fn of_store(error: &object_store::Error, bucket: &Bucket) -> Self {
        match error {
            object_store::Error::NotFound { .. } => Self::Gone,
            error => Self::Store(store_error(error, &bucket.credentials)),
        }
    }
}

impl Upload<'_> {
    async fn run(mut self, sent: &AtomicU64) -> Result<(), UploadError> {
        let done = self.record.parts.len() as u64 * self.record.part;
        sent.fetch_add(done.min(self.record.size), Ordering::Relaxed);
        match &self.bucket.uploads {
            Uploads::Parts(store) => self.send_parts(&**store, sent).await?,
            Uploads::Sessions(google) => self.send_pieces(google, sent).await?,
        }
        // The object is complete; a leftover record is not continued.
        let _ = fs::remove_file(self.record_path);
        Ok(())
    }

    /// Sends parts, several at once.
    async fn send_parts(&mut self, store: &dyn MultipartStore, sent: &AtomicU64) -> Result<(), UploadError> {
        let (size, length, id) = (self.record.size, self.record.part, self.record.id.clone());
        let first = self.record.parts.len();
        let count = usize::try_from(size.div_ceil(length)).unwrap_or(usize::MAX);
        let (bucket, target, file) = (self.bucket, self.target, self.file);
        let parts = (first..count).map(|index| {
            let (id, file) = (&id, file.to_owned());
            async move {
                let start = index as u64 * length;
                let data = read_part(file, start, length.min(size - start)).await.map_err(UploadError::File)?;
                let bytes = data.len() as u64;
                let part = store.put_part(target, id, index, PutPayload::from(data)).await;
                Ok((part.map_err(|error| UploadError::of_store(&error, bucket))?, bytes))
            }
        });
        let mut parts = stream::iter(parts).buffered(PARTS_AT_ONCE);
        while let Some(part) = parts.next().await {
            let (PartId { content_id }, bytes) = part?;
            sent.fetch_add(bytes, Ordering::Relaxed);
            self.record.parts.push(content_id);
            write_record(self.record_path, &self.record).map_err(UploadError::File)?;
        }
        drop(parts);
        let parts = self.record.parts.iter().map(|id| PartId { content_id: id.clone() }).collect();
        match store.complete_multipart(target, &id, parts).await {
            // A lost answer to an earlier attempt.
            Err(object_store::Error::NotFound { .. })
                if bucket.store.head(target).await.is_ok_and(|found| found.size == size) => {}
            completed => drop(completed.map_err(|error| UploadError::of_store(&error, bucket))?),
        }
        Ok(())
    }

    /// Sends pieces to a session, one after the other. The last one completes the object.
    async fn send_pieces(&mut self, google: &GoogleUploads, sent: &AtomicU64) -> Result<(), UploadError> {
        let (size, length) = (self.record.size, self.record.part);
        let (key, credentials) = (self.target.as_ref(), self.bucket.credentials.as_str());
        loop {
            let start = self.record.parts.len() as u64 * length;
            let end = size.min(start.saturating_add(length));
            let data = read_part(self.file.to_owned(), start, end.saturating_sub(start)).await;
            let mut data = data.map_err(UploadError::File)?;
            let mut at = start;
            // The store may take a part of a piece only.
            while at < end || size == 0 {
                let state = google.send(key, &self.record.id, at, &data, size, credentials).await;
                match state.map_err(UploadError::Store)? {
                    SessionState::Complete(found) => {
                        let found = found.unwrap_or(size);
                        sent.fetch_add(end - at, Ordering::Relaxed);
                        let wrong = FetchError::Size { key: key.to_owned(), expected: size, found };
                        return if found == size { Ok(()) } else { Err(UploadError::Store(wrong)) };
                    }
                    SessionState::Partial(next) if next > at && next <= end => {
                        sent.fetch_add(next - at, Ordering::Relaxed);
                        data = data.slice(usize::try_from(next - at).unwrap_or(usize::MAX)..);
                        at = next;
                    }
                    SessionState::Partial(_) | SessionState::Gone => return Err(UploadError::Gone),
                }
            }
            if at == start {
                // All pieces were sent, but the object is not complete.
                return Err(UploadError::Gone);
            }
            self.record.parts.push(String::new());
            write_record(self.record_path, &self.record).map_err(UploadError::File)?;
        }
    }
}

async fn read_part(file: PathBuf, start: u64, length: u64) -> io::Result<Bytes> {
    let read = move || {
        let mut file = File::open(file)?;
        file.seek(SeekFrom::Start(start))?;
        let mut data = Vec::new();
        file.take(length).read_to_end(&mut data)?;
        if data.len() as u64 == length { Ok(data.into()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    };
    spawn_blocking(read).await.map_err(io::Error::other).flatten()
}

fn record_of(file: &Path) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(RECORD);
    path.into()
}

fn read_record(path: &Path) -> Option<UploadRecord> {
    let length = fs::metadata(path).ok()?.len();
    if length > MAX_RECORD {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write_record(path: &Path, record: &UploadRecord) -> io::Result<()> {
    let mut next = path.as_os_str().to_owned();
    next.push(".next");
    fs::write(&next, serde_json::to_vec(record)?)?;
    fs::rename(&next, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upload_records_survive_and_invalid_ones_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = record_of(&folder.path().join("a.jsonl"));
        assert!(read_record(&path).is_none());
        let record =
            UploadRecord { id: "u".to_owned(), size: 20, part: 8, modified: 1 << 60, parts: vec!["a".to_owned()] };
        write_record(&path, &record).unwrap();
        let found = read_record(&path).unwrap();
        assert_eq!((found.id, found.parts, found.modified), ("u".to_owned(), vec!["a".to_owned()], 1 << 60));
        fs::write(&path, "{").unwrap();
        assert!(read_record(&path).is_none());
    }
}
