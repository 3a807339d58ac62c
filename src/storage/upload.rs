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
use super::transport::{ATTEMPTS, Transport};
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
    /// The names of the parts that the store has, from the first on. Empty for a session, which is asked.
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
        let upload = |record, is_continued| Upload {
            bucket: &bucket,
            target: &target,
            file,
            record_path: &record_path,
            record,
            is_continued,
        };
        if let Some(record) = continued {
            match upload(record, true).run(sent).await {
                // The store has dropped it.
                Err(UploadError::Gone) => sent.store(0, Ordering::Relaxed),
                done => return done.map_err(|error| error.at(file, &failed)),
            }
        } else {
            self.abort_upload(uri, file).await;
        }
        let start = async || {
            let id = match &bucket.uploads {
                Uploads::Parts(store) => {
                    let id = store.create_multipart(&target).await;
                    id.map_err(|error| failed(store_error(&error, &bucket.credentials)))?
                }
                Uploads::Sessions(google) => {
                    google.start(target.as_ref(), &bucket.credentials).await.map_err(failed)?
                }
            };
            let record = UploadRecord { id, size, part, modified, parts: Vec::new() };
            write_record(&record_path, &record).map_err(write_error(&record_path))?;
            Ok::<_, StorageError>(upload(record, false))
        };
        let mut done = start().await?.run(sent).await;
        // Google asks for another session after one that has ended by itself.
        if matches!((&done, &bucket.uploads), (Err(UploadError::Gone), Uploads::Sessions(_))) {
            sent.store(0, Ordering::Relaxed);
            done = start().await?.run(sent).await;
        }
        done.map_err(|error| error.at(file, &failed))
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
    /// Whether an earlier run began it.
    is_continued: bool,
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
        match &self.bucket.uploads {
            Uploads::Parts(store) => {
                let done = self.record.parts.len() as u64 * self.record.part;
                sent.fetch_add(done.min(self.record.size), Ordering::Relaxed);
                self.send_parts(&**store, sent).await?;
            }
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
    ///
    /// After a failure, and in a session of an earlier run, the store is asked first what it has: it keeps a part of a piece, and may have
    /// completed the object although its answer was lost.
    async fn send_pieces(&self, google: &GoogleUploads, sent: &AtomicU64) -> Result<(), UploadError> {
        let (size, piece) = (self.record.size, self.record.part);
        let (key, credentials) = (self.target.as_ref(), self.bucket.credentials.as_str());
        let put = async |start: u64, length: u64| {
            let data = read_part(self.file.to_owned(), start, length).await.map_err(UploadError::File)?;
            google.send(key, &self.record.id, start, &data, size, credentials).await.map_err(UploadError::Store)
        };
        let (mut at, mut furthest, mut failures) = (0, 0, 0);
        let mut asks = self.is_continued;
        loop {
            let length = if asks { 0 } else { piece.min(size - at) };
            let pause = match put(at, length).await? {
                SessionState::Complete(found) => {
                    let found = found.unwrap_or(size);
                    sent.fetch_add(size - furthest, Ordering::Relaxed);
                    let wrong = FetchError::Size { key: key.to_owned(), expected: size, found };
                    return if found == size { Ok(()) } else { Err(UploadError::Store(wrong)) };
                }
                SessionState::Gone => return Err(UploadError::Gone),
                SessionState::Partial(next) if next > size => return Err(UploadError::Gone),
                SessionState::Partial(next) => {
                    let was_sent = !std::mem::take(&mut asks);
                    at = next;
                    if next > furthest {
                        sent.fetch_add(next - furthest, Ordering::Relaxed);
                        (furthest, failures) = (next, 0);
                        continue;
                    }
                    if !was_sent {
                        continue;
                    }
                    // A session that takes nothing is as good as gone.
                    if failures + 1 == ATTEMPTS {
                        return Err(UploadError::Gone);
                    }
                    None
                }
                SessionState::Unknown { error, .. } if failures + 1 == ATTEMPTS => {
                    return Err(UploadError::Store(error));
                }
                SessionState::Unknown { retry_after, .. } => {
                    asks = true;
                    retry_after
                }
            };
            tokio::time::sleep(pause.unwrap_or_else(|| Transport::pause(failures))).await;
            failures += 1;
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
