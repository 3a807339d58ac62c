//! The cache of fetched models: `CACHE/URI/SNAPSHOT`, where the names are hashes of the URI and of the listing. A snapshot is complete once it has
//! its name. Servers that share the folder wait for each other at a lock of the URI.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tracing::{info, warn};

use super::download::DownloadProgress;
use super::error::StorageError;
use super::place::{STAGE, is_archive, lock, write_error};
use super::selection::RemoteFile;
use super::uri::StorageUri;
use super::{FileFilter, Opened, Storage};
use crate::archives::is_safe_folder;

/// How many digits of a hash are in a name.
const NAME: usize = 32;
/// The folder of a snapshot that is not complete.
const PARTIAL: &str = ".partial";

/// What happens if a store cannot be reached and the cache has the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OfflinePolicy {
    /// The newest model of the cache is used, with a warning.
    #[default]
    Use,
    Fail,
}

/// Returns the path of a model in the cache.
pub(super) async fn fetch(
    storage: &Storage,
    uri: &StorageUri,
    progress: &DownloadProgress,
) -> Result<PathBuf, StorageError> {
    let folder = storage.0.cache.join(name(uri.cache_key().as_bytes()));
    create(&storage.0.cache)?;
    create(&folder)?;
    let path = folder.join(".lock");
    let locked = tokio::task::spawn_blocking(move || lock(&path)).await.map_err(io::Error::other).flatten();
    let _lock = locked.map_err(write_error(&folder))?;
    let listed = async {
        let source = match storage.open(uri).await? {
            Opened::Store(source) => source,
            Opened::Local(path) => return Ok(Err(path)),
        };
        let files = storage.select(uri, &source, &FileFilter::default()).await?;
        Ok(Ok((source, files)))
    };
    let (source, files) = match listed.await {
        Ok(Ok(listed)) => listed,
        Ok(Err(path)) => return Ok(path),
        Err(error) => {
            let is_outage = matches!(&error, StorageError::Fetch { source, .. } if source.is_outage());
            let newest = if is_outage && storage.0.offline == OfflinePolicy::Use { newest(&folder) } else { None };
            let snapshot = newest.ok_or(error)?;
            warn!("`{}` cannot be reached; the model of the last fetch is used (`storage_offline`).", uri.shown());
            return Ok(content(&snapshot));
        }
    };
    let snapshot = folder.join(snapshot_name(&files, uri));
    if !is_safe_folder(&snapshot) {
        let partial = folder.join(PARTIAL);
        clean(&partial)?;
        storage.fetch(uri, &source, &files, &partial, progress).await?;
        fs::rename(&partial, &snapshot).map_err(write_error(&snapshot))?;
        let bytes = progress.bytes.load(std::sync::atomic::Ordering::Relaxed);
        info!(files = files.len(), bytes, "Fetched `{}`.", uri.shown());
    }
    // By this time, the newest is known.
    let _ = fs::File::open(&snapshot).and_then(|folder| folder.set_modified(SystemTime::now()));
    Ok(match &files[..] {
        [file] if !is_archive(&file.path) => snapshot.join(&file.path),
        _ => content(&snapshot),
    })
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

fn newest(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let snapshots = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'));
    let dated = snapshots.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())));
    dated.filter(|(_, path)| is_safe_folder(path)).max().map(|(_, path)| path)
}

/// Returns the name of a folder of the cache.
pub(super) fn name(text: &[u8]) -> String {
    blake3::hash(text).to_hex()[..NAME].to_owned()
}

fn snapshot_name(files: &[RemoteFile], uri: &StorageUri) -> String {
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
}
