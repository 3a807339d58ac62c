//! The cache of fetched models: `CACHE/URI/SNAPSHOT`, where the names are hashes of the URI and of the listing. A snapshot is complete once it has
//! its name. Servers that share the folder wait for each other at a lock of the URI. A snapshot in use has a shared lock, and is never
//! removed.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tracing::{info, warn};

use super::download::DownloadProgress;
use super::error::StorageError;
use super::place::{STAGE, is_archive, open_lock, wait_for_lock, write_error};
use super::selection::RemoteFile;
use super::uri::StorageUri;
use super::{FileFilter, Opened, Storage, blocking};
use crate::archives::is_safe_folder;
use crate::lock_file::LockFile;

/// How many digits of a hash are in a name.
const NAME: usize = 32;
/// The folder of a snapshot that is not complete.
pub(super) const PARTIAL: &str = ".partial";
/// The folder of a snapshot that is being removed.
const REMOVED: &str = ".removed";

/// What happens if a store cannot be reached and the cache has the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OfflinePolicy {
    /// The newest model of the cache is used, with a warning.
    #[default]
    Use,
    Fail,
}

/// A model in the cache.
#[derive(Debug)]
pub(super) struct Snapshot {
    /// Of the model: its only file, or its folder.
    pub(super) path: PathBuf,
    pub(super) folder: PathBuf,
    /// `None` if it is not in the cache.
    pub(super) used: Option<SnapshotUse>,
}

/// What the cache has of a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LastFetch {
    pub files: usize,
    pub bytes: u64,
}

impl LastFetch {
    /// Counts the files of a snapshot.
    pub(super) fn of(snapshot: &Path) -> Self {
        let mut found = Self::default();
        for entry in fs::read_dir(snapshot).into_iter().flatten().filter_map(Result::ok) {
            let below = match entry.metadata() {
                Ok(metadata) if metadata.is_dir() => Self::of(&entry.path()),
                metadata => Self { files: 1, bytes: metadata.map_or(0, |metadata| metadata.len()) },
            };
            found = Self { files: found.files + below.files, bytes: found.bytes.saturating_add(below.bytes) };
        }
        found
    }
}

/// Keeps a snapshot in the cache, as long as it exists.
#[derive(Debug)]
pub struct SnapshotUse {
    _lock: File,
}

impl SnapshotUse {
    /// The caller has the lock of the snapshot's URI.
    pub(super) fn begin(snapshot: &Path) -> Result<Self, StorageError> {
        let path = lock_of(snapshot);
        let lock = open_lock(&path).and_then(|file| match file.lock_shared() {
            Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(error),
            _ => Ok(file),
        });
        Ok(Self { _lock: lock.map_err(write_error(&path))? })
    }
}

/// Returns the path of a snapshot's lock, beside it.
fn lock_of(snapshot: &Path) -> PathBuf {
    let name = snapshot.file_name().unwrap_or_default().to_string_lossy();
    snapshot.with_file_name(format!(".{name}.lock"))
}

/// Returns a model in the cache.
pub(super) async fn fetch(
    storage: &Storage,
    uri: &StorageUri,
    lock: Option<&LockFile>,
    offline: OfflinePolicy,
    progress: &DownloadProgress,
) -> Result<Snapshot, StorageError> {
    let (folder, _lock) = open_folder(storage, uri.cache_key()).await?;
    let listed = async {
        let source = match storage.open(uri).await? {
            Opened::Store(source) => source,
            Opened::Local(path) => return Ok(Err(path)),
        };
        let files = storage.select(uri, &source, &FileFilter::default()).await?;
        Ok::<_, StorageError>(Ok((source, files)))
    };
    let (source, files) = match listed.await {
        Ok(Ok(listed)) => listed,
        Ok(Err(path)) => {
            let folder = if path.is_dir() { path.clone() } else { path.parent().unwrap_or(&path).to_owned() };
            return Ok(Snapshot { path, folder, used: None });
        }
        Err(error) => {
            let is_used = error.is_outage() && offline == OfflinePolicy::Use;
            let newest = if is_used { newest(&folder) } else { None };
            let snapshot = newest.ok_or(error)?;
            warn!("`{}` cannot be reached; the model of the last fetch is used (`storage_offline`).", uri.shown());
            let used = Some(SnapshotUse::begin(&snapshot)?);
            return Ok(Snapshot { path: content(&snapshot), folder: snapshot, used });
        }
    };
    if let Some(lock) = lock {
        lock.check_objects(files.iter().map(|file| (file.path.as_str(), file.size)))?;
    }
    let snapshot = folder.join(snapshot_name(&files, uri));
    if !is_safe_folder(&snapshot) {
        let partial = folder.join(PARTIAL);
        clean(&partial)?;
        let needed = files.iter().filter_map(|file| file.size).fold(0, u64::saturating_add);
        make_room(storage, &folder, needed).await?;
        storage.fetch(uri, &source, &files, &partial, lock, progress).await?;
        fs::rename(&partial, &snapshot).map_err(write_error(&snapshot))?;
        let used = SnapshotUse::begin(&snapshot)?;
        // An archive has become larger.
        make_room(storage, &folder, 0).await?;
        drop(used);
        let bytes = progress.bytes.load(std::sync::atomic::Ordering::Relaxed);
        info!(files = files.len(), bytes, "Fetched `{}`.", uri.shown());
    }
    // By this time, the newest is known.
    let _ = fs::File::open(&snapshot).and_then(|folder| folder.set_modified(SystemTime::now()));
    let path = match &files[..] {
        [file] if !is_archive(&file.path) => snapshot.join(&file.path),
        _ => content(&snapshot),
    };
    let used = Some(SnapshotUse::begin(&snapshot)?);
    Ok(Snapshot { path, folder: snapshot, used })
}

/// Removes models that were not used for the longest time, until `needed` more bytes fit. The caller has the lock of `held`, the folder of
/// its URI.
async fn make_room(storage: &Storage, held: &Path, needed: u64) -> Result<(), StorageError> {
    let Some(limit) = storage.0.cache_bytes else { return Ok(()) };
    let (cache, held) = (storage.0.cache.clone(), held.to_owned());
    blocking(&storage.0.cache, move || {
        let left = evict(&cache, &held, limit.saturating_sub(needed))?;
        if left.saturating_add(needed) > limit {
            warn!(
                "The cache `{}` gets {} bytes, more than `storage_cache_max_bytes`, {limit}: its other models are in use.",
                cache.display(),
                left.saturating_add(needed)
            );
        }
        Ok(())
    })
    .await
}

/// Removes the folders that were not used for the longest time, until the cache has at most `limit` bytes, and returns how many it has.
fn evict(cache: &Path, held: &Path, limit: u64) -> Result<u64, StorageError> {
    let mut found = Vec::new();
    // Hidden folders are not those of URIs.
    let is_uri = |folder: &PathBuf| !folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    for uri in folders(cache)?.into_iter().filter(is_uri) {
        for folder in folders(&uri)? {
            let modified = fs::metadata(&folder).and_then(|metadata| metadata.modified());
            found.push((modified.unwrap_or(SystemTime::UNIX_EPOCH), bytes_of(&folder), folder));
        }
    }
    found.sort();
    let mut total = found.iter().fold(0_u64, |total, (_, bytes, _)| total.saturating_add(*bytes));
    for (_, bytes, folder) in found {
        if total <= limit {
            break;
        }
        // The rest of an earlier removal goes with the first one of its URI.
        if !folder.exists() {
            total -= bytes;
        } else if remove(&folder, held)? {
            info!(bytes, "Removed `{}` from the cache, which has `storage_cache_max_bytes`.", folder.display());
            total -= bytes;
        }
    }
    Ok(total)
}

/// Removes a folder of the cache unless it is in use, and reports whether it did.
fn remove(folder: &Path, held: &Path) -> Result<bool, StorageError> {
    let Some(uri) = folder.parent() else { return Ok(false) };
    let is_partial = folder.file_name().is_some_and(|name| name == PARTIAL);
    // What is being fetched belongs to the caller.
    if uri == held && is_partial {
        return Ok(false);
    }
    let uri_lock = if uri == held { None } else { try_lock(&uri.join(".lock"))? };
    if uri != held && uri_lock.is_none() {
        return Ok(false);
    }
    let lock = lock_of(folder);
    let Some(_lock) = try_lock(&lock)? else { return Ok(false) };
    // A crash must not leave half a model.
    let removed = uri.join(REMOVED);
    if folder != removed {
        let _ = fs::remove_dir_all(&removed);
        fs::rename(folder, &removed).map_err(write_error(folder))?;
    }
    fs::remove_dir_all(&removed).map_err(write_error(&removed))?;
    let _ = fs::remove_file(lock);
    Ok(true)
}

/// Returns an exclusive lock, or `None` if another one is held.
fn try_lock(path: &Path) -> Result<Option<File>, StorageError> {
    let file = open_lock(path).map_err(write_error(path))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        // Without locks, what is in use is not known.
        Err(_) => Ok(None),
    }
}

/// Returns the folders in a folder that only this user can write to.
fn folders(folder: &Path) -> Result<Vec<PathBuf>, StorageError> {
    let entries = fs::read_dir(folder).map_err(write_error(folder))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| is_safe_folder(path)).collect())
}

/// Returns the bytes of the files below a folder.
fn bytes_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.fold(0, u64::saturating_add)
}

/// Creates the folder of a key in the cache, and waits for its lock, which is released when the file is dropped.
pub(super) async fn open_folder(storage: &Storage, key: &str) -> Result<(PathBuf, fs::File), StorageError> {
    let folder = storage.0.cache.join(name(key.as_bytes()));
    create(&storage.0.cache)?;
    create(&folder)?;
    let path = folder.join(".lock");
    let locked = tokio::task::spawn_blocking(move || wait_for_lock(&path)).await.map_err(io::Error::other).flatten();
    let lock = locked.map_err(write_error(&folder))?;
    Ok((folder, lock))
}

/// Removes what an interrupted run moved into place: it may be of another state. What it fetched stays, under names of its state.
fn clean(partial: &Path) -> Result<(), StorageError> {
    let entries = match fs::read_dir(partial) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return create(partial),
        entries => entries.map_err(write_error(partial))?,
    };
    for entry in entries.filter_map(Result::ok).filter(|entry| entry.file_name() != STAGE) {
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(write_error(&path))?;
    }
    Ok(())
}

/// Returns the only file of a snapshot, or its folder.
fn content(snapshot: &Path) -> PathBuf {
    let mut entries = fs::read_dir(snapshot).into_iter().flatten().filter_map(Result::ok);
    match (entries.next(), entries.next()) {
        (Some(only), None) if only.file_type().is_ok_and(|kind| kind.is_file()) => only.path(),
        _ => snapshot.to_owned(),
    }
}

/// Creates a folder that only this user can write to, or checks that an existing one is.
pub(super) fn create(folder: &Path) -> Result<(), StorageError> {
    if is_safe_folder(folder) {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent).map_err(write_error(parent))?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(write_error(folder)(io::Error::other(
            "another user owns it or can write to it; remove it, or set `storage_cache` to another folder",
        ))),
        created => created.map_err(write_error(folder)),
    }
}

pub(super) fn newest(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let snapshots = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let dated = snapshots.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())));
    dated.filter(|(_, path)| is_safe_folder(path)).max().map(|(_, path)| path)
}

/// Returns the name of a folder of the cache.
pub(super) fn name(text: &[u8]) -> String {
    blake3::hash(text).to_hex()[..NAME].to_owned()
}

pub(super) fn snapshot_name(files: &[RemoteFile], uri: &StorageUri) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(uri.sha256.as_deref().unwrap_or_default().as_bytes());
    for file in files {
        let size = file.size.map(|size| size.to_string()).unwrap_or_default();
        for part in [file.path.as_str(), &size, file.etag.as_deref().unwrap_or_default()] {
            hasher.update(part.as_bytes()).update(&[0]);
        }
        if file.etag.is_none() {
            // A change would not be noticed, so each fetch is a state of its own.
            hasher.update(uuid::Uuid::new_v4().as_bytes());
        }
    }
    hasher.finalize().to_hex()[..NAME].to_owned()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn snapshots_differ_by_the_state_of_the_objects() {
        let uri = StorageUri::parse("s3://b/m").unwrap();
        let file = |path: &str, etag: &str| RemoteFile {
            key: path.to_owned(),
            path: path.to_owned(),
            size: Some(1),
            etag: Some(etag.to_owned()),
            hash: None,
        };
        let of = |files: &[RemoteFile]| snapshot_name(files, &uri);
        assert_eq!(of(&[file("a", "1")]), of(&[file("a", "1")]));
        assert_ne!(of(&[file("a", "1")]), of(&[file("a", "2")]));
        assert_ne!(of(&[file("a", "1")]), of(&[file("b", "1")]));
    }

    #[test]
    fn caches_of_other_users_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("cache/x");
        create(&folder).unwrap();
        create(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(create(&folder).unwrap_err().to_string().starts_with("cannot write"));
    }

    #[test]
    fn newest_snapshot_is_found() {
        let root = tempfile::tempdir().unwrap();
        for (name, seconds) in [("a", 10), ("b", 30), ("c", 20), (PARTIAL, 40)] {
            let folder = root.path().join(name);
            create(&folder).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            fs::File::open(&folder).unwrap().set_modified(time).unwrap();
        }
        assert_eq!(newest(root.path()), Some(root.path().join("b")));
    }

    fn snapshot(cache: &Path, uri: &str, name: &str, seconds: u64, bytes: usize) -> PathBuf {
        for folder in [cache.to_owned(), cache.join(uri), cache.join(uri).join(name)] {
            create(&folder).unwrap();
        }
        let folder = cache.join(uri).join(name);
        fs::write(folder.join("model"), vec![0; bytes]).unwrap();
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
        File::open(&folder).unwrap().set_modified(time).unwrap();
        folder
    }

    #[test]
    fn models_that_were_not_used_for_the_longest_time_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let cache = root.path().join("cache");
        let (old, used) = (snapshot(&cache, "a", "1", 10, 100), snapshot(&cache, "a", "2", 20, 100));
        let (partial, new) = (snapshot(&cache, "b", PARTIAL, 30, 100), snapshot(&cache, "c", "1", 40, 100));
        let held = cache.join("c");
        let there = || [&old, &used, &partial, &new].map(|folder| folder.exists());
        assert_eq!(evict(&cache, &held, 400).unwrap(), 400);
        assert_eq!(there(), [true; 4]);
        let using = SnapshotUse::begin(&used).unwrap();
        assert_eq!(evict(&cache, &held, 399).unwrap(), 300);
        assert_eq!(there(), [false, true, true, true]);
        // Also what was fetched by a run that was interrupted, unless another run continues it.
        let fetching = wait_for_lock(&cache.join("b/.lock")).unwrap();
        assert_eq!(evict(&cache, &held, 250).unwrap(), 200);
        assert_eq!(there(), [false, true, true, false]);
        drop(fetching);
        assert_eq!(evict(&cache, &held, 150).unwrap(), 100);
        assert_eq!(evict(&cache, &held, 0).unwrap(), 100);
        assert_eq!(there(), [false, true, false, false]);
        drop(using);
        assert_eq!(evict(&cache, &held, 0).unwrap(), 0);
        assert_eq!(there(), [false; 4]);
    }

    #[test]
    fn what_is_being_fetched_is_not_removed() {
        let root = tempfile::tempdir().unwrap();
        let cache = root.path().join("cache");
        let (partial, old) = (snapshot(&cache, "a", PARTIAL, 10, 100), snapshot(&cache, "a", "1", 20, 100));
        // A crash while it was removed.
        let removed = snapshot(&cache, "a", REMOVED, 30, 100);
        assert_eq!(evict(&cache, &cache.join("a"), 0).unwrap(), 100);
        assert!(partial.exists() && !old.exists() && !removed.exists());
    }
}
