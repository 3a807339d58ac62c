//! Fetches files into a folder: several at once, large ones in parts, and after an interruption only what is missing.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, future, stream};
use md5::{Digest, Md5};
use parking_lot::Mutex;
use ring::digest;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;

use super::error::FetchError;
use super::part::Part;
use super::selection::{ContentHash, RemoteFile};
use super::source::Source;
use super::transport::{ATTEMPTS, Transport};
use super::uri::StorageUri;
use crate::http_client::HttpError;
use crate::lock_file::{LockFile, hex};

/// The size of a part of a large file, in bytes, and how many are fetched at once.
const PART: u64 = 8 << 20;
const PARTS: usize = 4;
/// How many parts of all files are fetched at once, for each file that is, and besides.
const PARTS_OF_FILES: usize = 2;
const PARTS_BESIDES: usize = 2;
/// A file of more bytes is fetched in parts.
const LARGE: u64 = 32 << 20;
/// How many bytes are kept before they are written.
const BATCH: usize = 1 << 20;

/// What has been fetched so far.
#[derive(Debug, Default)]
pub struct DownloadProgress {
    pub files: AtomicU64,
    pub files_total: AtomicU64,
    pub bytes: AtomicU64,
    /// 0 if it is unknown.
    pub bytes_total: AtomicU64,
}

/// The limits of a download.
#[derive(Debug, Clone, Copy)]
pub(super) struct DownloadLimits {
    /// How many files are fetched at once.
    pub(super) files: usize,
    /// The most bytes of all files together.
    pub(super) bytes: u64,
}

/// Limits what is fetched at once, of all models together. The parts are what takes memory.
#[derive(Debug)]
pub(super) struct FetchPermits {
    files: Semaphore,
    parts: Arc<Semaphore>,
}

impl FetchPermits {
    /// Allows so many files at once, and their parts.
    pub(super) fn new(files: usize) -> Self {
        // More would have no use, and a semaphore has a limit of its own.
        let files = files.clamp(1, Semaphore::MAX_PERMITS / 4);
        let parts = PARTS.max(PARTS_OF_FILES * files + PARTS_BESIDES);
        Self { files: Semaphore::new(files), parts: Arc::new(Semaphore::new(parts)) }
    }
}

/// The SHA-256 that files must have, besides those that the store tells.
#[derive(Debug)]
pub(super) struct Pins<'a> {
    /// Of the only file.
    uri: Option<&'a str>,
    lock: BTreeMap<&'a str, &'a str>,
}

/// The SHA-256 that a file must have.
#[derive(Debug, Clone, Copy)]
struct Pin<'a> {
    /// In lower-case hexadecimal digits.
    sha256: &'a str,
    /// Who says so.
    teller: &'static str,
}

impl<'a> Pins<'a> {
    pub(super) fn new(uri: &'a StorageUri, lock: Option<&'a LockFile>) -> Self {
        let objects = lock.map_or(&[][..], LockFile::objects).iter();
        let lock = objects.map(|object| (object.path.as_str(), object.sha256.as_str())).collect();
        Self { uri: uri.sha256.as_deref(), lock }
    }

    fn of(&self, file: &RemoteFile) -> Option<Pin<'a>> {
        let of_uri = self.uri.map(|sha256| Pin { sha256, teller: "the URI pins" });
        let of_lock =
            || self.lock.get(file.path.as_str()).map(|sha256| Pin { sha256, teller: "`mlserver.lock` has for" });
        of_uri.or_else(of_lock)
    }
}

/// Fetches all files into `stage`, under the names of [`staged_name`]. Those that are there already are not fetched again. Each needs one of
/// the `permits`, which all models share.
pub(super) async fn fetch_all(
    source: &Source,
    files: &[RemoteFile],
    stage: &Path,
    pins: &Pins<'_>,
    limits: DownloadLimits,
    progress: &DownloadProgress,
    permits: &FetchPermits,
) -> Result<(), FetchError> {
    progress.files_total.store(files.len() as u64, Ordering::Relaxed);
    let total = files.iter().map(|file| file.size).sum::<Option<u64>>();
    progress.bytes_total.store(total.unwrap_or(0), Ordering::Relaxed);
    let fetches = files.iter().cloned().map(|file| {
        let path = stage.join(staged_name(&file));
        let pin = pins.of(&file);
        async move {
            let _permit = permits.files.acquire().await;
            let parts = &permits.parts;
            FileFetch { source, file, path, pin, limit: limits.bytes, progress, parts }.run().await
        }
    });
    stream::iter(fetches).buffer_unordered(limits.files.max(1)).try_collect().await
}

/// Returns the name of a file while it is fetched: another one for each state of the object, so that a rest never continues another file.
pub(super) fn staged_name(file: &RemoteFile) -> String {
    let mut hasher = blake3::Hasher::new();
    let size = file.size.map(|size| size.to_string()).unwrap_or_default();
    for part in [file.key.as_str(), &file.path, &size, file.etag.as_deref().unwrap_or_default()] {
        hasher.update(part.as_bytes()).update(&[0]);
    }
    hasher.finalize().to_hex()[..32].to_owned()
}

/// The fetch of one file.
struct FileFetch<'a> {
    source: &'a Source,
    file: RemoteFile,
    path: PathBuf,
    pin: Option<Pin<'a>>,
    limit: u64,
    progress: &'a DownloadProgress,
    parts: &'a Arc<Semaphore>,
}

impl FileFetch<'_> {
    async fn run(self) -> Result<(), FetchError> {
        let partial = self.open().await?;
        self.count(partial.lock().length)?;
        let (mut failures, mut length) = (0, partial.lock().length);
        while let Err(error) = self.fetch_rest(&partial).await {
            let now = partial.lock().length;
            failures = if now > length { 0 } else { failures };
            length = now;
            failures += 1;
            // The rest of a file that cannot be continued would be that of another state.
            if !error.may_pass() || failures == ATTEMPTS || (!self.file.continues() && now > 0) {
                return Err(error);
            }
            tokio::time::sleep(Transport::pause(failures - 1)).await;
        }
        self.blocking(&partial, PartialFile::sync).await?;
        let checked = self.check(&partial.lock());
        if checked.is_err() {
            // The next attempt must not continue a file with wrong bytes.
            let _ = fs::remove_file(&self.path);
        }
        self.progress.files.fetch_add(1, Ordering::Relaxed);
        checked
    }

    async fn open(&self) -> Result<Arc<Mutex<PartialFile>>, FetchError> {
        let (path, resumes) = (self.path.clone(), self.file.continues());
        let (size, kind) = (self.file.size, self.file.hash.clone().map(|hash| HashKind::of(&hash)));
        let pinned = self.pin.is_some();
        let open = move || {
            let mut partial = PartialFile::open(&path, resumes, size)?;
            if let Some(kind) = kind {
                partial.start_hash(kind, size)?;
            }
            if pinned {
                partial.start_pin()?;
            }
            io::Result::Ok(partial)
        };
        let partial = spawn_blocking(open).await.map_err(io::Error::other).flatten();
        Ok(Arc::new(Mutex::new(partial.map_err(|source| self.write_error(source))?)))
    }

    async fn fetch_rest(&self, partial: &Arc<Mutex<PartialFile>>) -> Result<(), FetchError> {
        let start = partial.lock().length;
        match self.file.size {
            Some(size) if start == size => Ok(()),
            Some(size) if size - start > LARGE && self.source.has_ranges() && self.file.continues() => {
                self.fetch_parts(partial, start..size).await
            }
            Some(size) => {
                let range = (start > 0).then_some(start..size);
                self.fetch_stream(partial, range).await
            }
            None => self.fetch_stream(partial, None).await,
        }
    }

    /// Writes what arrives, in order.
    async fn fetch_stream(
        &self,
        partial: &Arc<Mutex<PartialFile>>,
        range: Option<Range<u64>>,
    ) -> Result<(), FetchError> {
        let mut part = self.source.read(&self.file, range).await?;
        self.learn(partial, part.hash.take()).await?;
        loop {
            let mut batch = Batch::default();
            let end = batch.fill(&mut part, BATCH).await;
            self.write(partial, batch).await?;
            if end? {
                break;
            }
        }
        let found = partial.lock().length;
        match self.file.size {
            // The connection was closed early.
            Some(expected) if found < expected => Err(FetchError::Http(HttpError::Truncated {
                server: "the store".to_owned(),
                cause: format!("{found} of {expected} bytes arrived"),
            })),
            _ => Ok(()),
        }
    }

    /// Fetches several parts at once, and writes them in order. Of the first one, what arrives is written at once, so that memory only has
    /// the others.
    async fn fetch_parts(&self, partial: &Arc<Mutex<PartialFile>>, range: Range<u64>) -> Result<(), FetchError> {
        let permits = [Arc::new(Semaphore::new(PARTS)), Arc::clone(self.parts)];
        let (parts, mut written) = mpsc::unbounded_channel();
        let starts = (range.start..range.end).step_by(usize::try_from(PART).unwrap_or(usize::MAX));
        let end = range.end;
        // The channel of parts is closed with the stream.
        let begun = stream::iter(starts).then(move |start| {
            let ([of_file, of_all], parts) = (permits.clone(), parts.clone());
            async move {
                // The permits of a part are free when the part has been written. Parts begin in order, so that the one that is written
                // next always has its permits.
                let permits = (of_file.acquire_owned().await, of_all.acquire_owned().await);
                let (sender, received) = mpsc::unbounded_channel();
                let _ = parts.send((received, permits));
                (start..end.min(start + PART), sender)
            }
        });
        let read = async {
            begun.for_each_concurrent(PARTS, async |(range, sender)| self.read_part(range, &sender).await).await;
            Ok(())
        };
        let write = async {
            while let Some((received, _permits)) = written.recv().await {
                self.write_part(partial, received).await?;
            }
            Ok(())
        };
        future::try_join(read, write).await.map(drop)
    }

    /// Passes on what arrives of a part. The receiver may be gone, after a failure of an earlier part.
    async fn read_part(&self, range: Range<u64>, sender: &UnboundedSender<PartEvent>) {
        let read = async {
            let needed = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            let mut part = self.source.read(&self.file, Some(range)).await?;
            if let Some(hash) = part.hash.take() {
                let _ = sender.send(PartEvent::Hash(hash));
            }
            let mut found = 0;
            while let Some(data) = part.next().await? {
                found += data.len();
                if found > needed {
                    break;
                }
                let _ = sender.send(PartEvent::Bytes(data));
            }
            if found == needed { Ok(()) } else { Err(FetchError::truncated(found, needed)) }
        };
        if let Err(error) = read.await {
            let _ = sender.send(PartEvent::Failure(error));
        }
    }

    /// Writes what arrives of a part.
    async fn write_part(
        &self,
        partial: &Arc<Mutex<PartialFile>>,
        mut received: UnboundedReceiver<PartEvent>,
    ) -> Result<(), FetchError> {
        let mut batch = Batch::default();
        while let Some(event) = received.recv().await {
            match event {
                PartEvent::Hash(hash) => self.learn(partial, Some(hash)).await?,
                PartEvent::Bytes(data) => {
                    batch.push(data);
                    if batch.bytes >= BATCH {
                        self.write(partial, std::mem::take(&mut batch)).await?;
                    }
                }
                PartEvent::Failure(error) => {
                    self.write(partial, batch).await?;
                    return Err(error);
                }
            }
        }
        self.write(partial, batch).await
    }

    /// Remembers the hash that a response tells.
    async fn learn(&self, partial: &Arc<Mutex<PartialFile>>, hash: Option<ContentHash>) -> Result<(), FetchError> {
        let Some(hash) = hash else { return Ok(()) };
        {
            let mut partial = partial.lock();
            if partial.hasher.is_some() {
                partial.told = Some(hash);
                return Ok(());
            }
        }
        let size = self.file.size;
        self.blocking(partial, move |partial| {
            partial.start_hash(HashKind::of(&hash), size)?;
            partial.told = Some(hash);
            Ok(())
        })
        .await
    }

    async fn write(&self, partial: &Arc<Mutex<PartialFile>>, batch: Batch) -> Result<(), FetchError> {
        if batch.bytes == 0 {
            return Ok(());
        }
        self.count(batch.bytes as u64)?;
        self.blocking(partial, move |partial| partial.append(&batch)).await
    }

    fn count(&self, bytes: u64) -> Result<(), FetchError> {
        let before = self.progress.bytes.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.limit { Err(FetchError::TooLarge { limit: self.limit }) } else { Ok(()) }
    }

    async fn blocking(
        &self,
        partial: &Arc<Mutex<PartialFile>>,
        work: impl FnOnce(&mut PartialFile) -> io::Result<()> + Send + 'static,
    ) -> Result<(), FetchError> {
        let partial = Arc::clone(partial);
        let done = spawn_blocking(move || work(&mut partial.lock())).await.map_err(io::Error::other).flatten();
        done.map_err(|source| self.write_error(source))
    }

    fn write_error(&self, source: io::Error) -> FetchError {
        FetchError::Write { path: self.path.clone(), source }
    }

    /// Compares the size and the hashes of a complete file.
    fn check(&self, partial: &PartialFile) -> Result<(), FetchError> {
        let key = || self.file.key.clone();
        if let Some(expected) = self.file.size.filter(|size| *size != partial.length) {
            return Err(FetchError::Size { key: key(), expected, found: partial.length });
        }
        let listed = self.file.hash.as_ref().or(partial.told.as_ref());
        if let (Some(expected), Some(hasher)) = (listed, &partial.hasher) {
            let (kind, expected) = (HashKind::of(expected).name(), hash_text(expected));
            let found = hasher.clone().finish();
            if found != expected {
                return Err(FetchError::Hash { key: key(), kind, expected, found, teller: "the store told" });
            }
        }
        if let (Some(expected), Some(pin)) = (self.pin, &partial.pin) {
            let found = hex(pin.clone().finish().as_ref());
            if found != expected.sha256 {
                let (expected, teller) = (expected.sha256.to_owned(), expected.teller);
                return Err(FetchError::Hash { key: key(), kind: "SHA-256", expected, found, teller });
            }
        }
        Ok(())
    }
}

/// What happens to a part while it is fetched.
enum PartEvent {
    /// The response tells the hash of the whole object.
    Hash(ContentHash),
    Bytes(Bytes),
    /// The rest of the part does not arrive.
    Failure(FetchError),
}

/// Bytes that are written together.
#[derive(Default)]
struct Batch {
    pieces: Vec<Bytes>,
    bytes: usize,
}

impl Batch {
    /// Reads at least `enough` bytes, if there are as many, and reports whether the part has ended.
    async fn fill(&mut self, part: &mut Part, enough: usize) -> Result<bool, FetchError> {
        while self.bytes < enough {
            let Some(data) = part.next().await? else { return Ok(true) };
            self.push(data);
        }
        Ok(false)
    }

    fn push(&mut self, data: Bytes) {
        self.bytes += data.len();
        self.pieces.push(data);
    }
}

/// A file that is being fetched. Its bytes are the beginning of the object.
struct PartialFile {
    file: File,
    length: u64,
    hasher: Option<FileHasher>,
    /// What the store told about the object.
    told: Option<ContentHash>,
    pin: Option<digest::Context>,
}

impl PartialFile {
    /// Opens a file, or begins a new one if it cannot be continued.
    fn open(path: &Path, resumes: bool, size: Option<u64>) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(!resumes).open(path)?;
        let mut length = file.metadata()?.len();
        if size.is_none_or(|size| length > size) {
            file.set_len(0)?;
            length = 0;
        }
        file.seek(SeekFrom::Start(length))?;
        Ok(Self { file, length, hasher: None, told: None, pin: None })
    }

    fn append(&mut self, batch: &Batch) -> io::Result<()> {
        for piece in &batch.pieces {
            self.file.write_all(piece)?;
            self.length += piece.len() as u64;
            if let Some(hasher) = &mut self.hasher {
                hasher.update(piece);
            }
            if let Some(pin) = &mut self.pin {
                pin.update(piece);
            }
        }
        Ok(())
    }

    /// Begins a hash, with what the file has already.
    fn start_hash(&mut self, kind: HashKind, size: Option<u64>) -> io::Result<()> {
        let mut hasher = FileHasher::new(kind, size.unwrap_or(0));
        self.read_again(|piece| hasher.update(piece))?;
        self.hasher = Some(hasher);
        Ok(())
    }

    fn start_pin(&mut self) -> io::Result<()> {
        let mut pin = digest::Context::new(&digest::SHA256);
        self.read_again(|piece| pin.update(piece))?;
        self.pin = Some(pin);
        Ok(())
    }

    fn read_again(&mut self, mut visit: impl FnMut(&[u8])) -> io::Result<()> {
        if self.length == 0 {
            return Ok(());
        }
        self.file.seek(SeekFrom::Start(0))?;
        let mut buffer = vec![0; BATCH];
        loop {
            match self.file.read(&mut buffer)? {
                0 => break,
                read => visit(&buffer[..read]),
            }
        }
        self.file.seek(SeekFrom::Start(self.length))?;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }
}

#[derive(Debug, Clone, Copy)]
enum HashKind {
    Md5,
    Sha256,
    GitBlob,
}

impl HashKind {
    const fn of(hash: &ContentHash) -> Self {
        match hash {
            ContentHash::Md5(_) => Self::Md5,
            ContentHash::Sha256(_) => Self::Sha256,
            ContentHash::GitBlob(_) => Self::GitBlob,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
            Self::GitBlob => "Git hash",
        }
    }
}

#[derive(Clone)]
enum FileHasher {
    Md5(Md5),
    Ring(digest::Context),
}

impl FileHasher {
    fn new(kind: HashKind, size: u64) -> Self {
        match kind {
            HashKind::Md5 => Self::Md5(Md5::new()),
            HashKind::Sha256 => Self::Ring(digest::Context::new(&digest::SHA256)),
            HashKind::GitBlob => {
                let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
                context.update(format!("blob {size}\0").as_bytes());
                Self::Ring(context)
            }
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Md5(hasher) => hasher.update(bytes),
            Self::Ring(context) => context.update(bytes),
        }
    }

    fn finish(self) -> String {
        match self {
            Self::Md5(hasher) => hex(&hasher.finalize()),
            Self::Ring(context) => hex(context.finish().as_ref()),
        }
    }
}

fn hash_text(hash: &ContentHash) -> String {
    match hash {
        ContentHash::Md5(bytes) => hex(bytes),
        ContentHash::Sha256(bytes) => hex(bytes),
        ContentHash::GitBlob(bytes) => hex(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_of_a_resumed_file_are_those_of_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, "hel").unwrap();
        for (kind, expected) in [
            (HashKind::Md5, "5d41402abc4b2a76b9719d911017c592"),
            (HashKind::Sha256, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"),
            // As `git hash-object` prints it.
            (HashKind::GitBlob, "b6fc4c620b67d95f953a5c1c1230aaab5db5a1b0"),
        ] {
            let mut partial = PartialFile::open(&path, true, Some(5)).unwrap();
            partial.file.set_len(3).unwrap();
            partial.length = 3;
            partial.file.seek(SeekFrom::Start(3)).unwrap();
            partial.start_hash(kind, Some(5)).unwrap();
            partial.append(&Batch { pieces: vec![Bytes::from_static(b"lo")], bytes: 2 }).unwrap();
            assert_eq!(partial.hasher.unwrap().finish(), expected, "{kind:?}");
            assert_eq!(fs::read_to_string(&path).unwrap(), "hello");
        }
    }

    #[test]
    fn files_continue_only_if_they_are_the_same_object() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let length = |resumes, size| {
            fs::write(&path, "12345").unwrap();
            PartialFile::open(&path, resumes, size).unwrap().length
        };
        assert_eq!(length(true, Some(10)), 5);
        assert_eq!(length(true, Some(4)), 0, "it is longer than the object");
        assert_eq!(length(false, Some(10)), 0, "the object has no tag");
        assert_eq!(length(true, None), 0);
        let file = |etag: &str| RemoteFile {
            key: "k".to_owned(),
            path: "k".to_owned(),
            size: Some(1),
            etag: Some(etag.to_owned()),
            hash: None,
        };
        assert_ne!(staged_name(&file("a")), staged_name(&file("b")));
        assert_eq!(staged_name(&file("a")), staged_name(&file("a")));
    }
}
