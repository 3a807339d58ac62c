//! Mirrors of repositories: folders of this machine with the small files of a store that say which models it has.
//!
//! A mirror is `CACHE/URI/STATE`, as a model of the cache, and is never changed. Files that two states share are fetched once. Of some files
//! only the beginning is there, and of most nothing.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use futures_util::{StreamExt, TryStreamExt, stream};
use tracing::warn;

use super::download::staged_name;
use super::error::{FetchError, StorageError};
use super::place::write_error;
use super::selection::RemoteFile;
use super::snapshots::{OfflinePolicy, PARTIAL, SnapshotUse, create, newest, open_folder, snapshot_name};
use super::source::Source;
use super::uri::StorageUri;
use super::{Storage, fetch_error};
use crate::archives::is_safe_folder;
use crate::http_client::HttpError;

/// The most files of a mirror.
const MAX_MIRRORED: usize = 10_000;
/// How many of them are fetched at once.
const CONCURRENCY: usize = 8;
/// How often the beginning of a file is fetched, if connections break.
const ATTEMPTS: usize = 4;
/// The folder with the files of all states.
const FILES: &str = ".files";

/// A mirror of a repository.
#[derive(Debug)]
pub struct Mirror {
    pub folder: PathBuf,
    /// Keeps the folder in the cache.
    pub used: SnapshotUse,
    /// All objects of the repository, in the order of their paths. `None` if the store could not be reached.
    pub files: Option<Vec<RemoteFile>>,
}

impl Storage {
    /// Lists the objects below a URI, and fetches the files that `wanted` names by their indices, each with the most bytes that are needed
    /// of it.
    ///
    /// Returns the last mirror, with a warning, if the store cannot be reached and `offline` allows it.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be listed, has more than [`MAX_REPOSITORY_OBJECTS`](super::MAX_REPOSITORY_OBJECTS) objects, or a file cannot
    /// be fetched.
    pub async fn mirror(
        &self,
        uri: &StorageUri,
        wanted: impl FnOnce(&[RemoteFile]) -> Vec<(usize, u64)>,
        offline: OfflinePolicy,
    ) -> Result<Mirror, StorageError> {
        let (folder, _lock) = open_folder(self, &format!("{}\0repository", uri.cache_key())).await?;
        let listed = async {
            let source = self.open_store(uri).await?;
            let files = self.listed(source.list_repository()).await.map_err(|error| fetch_error(uri, error))?;
            Ok::<_, StorageError>((source, files))
        };
        let (source, files) = match listed.await {
            Ok(listed) => listed,
            Err(error) => {
                let last = if error.is_outage() && offline == OfflinePolicy::Use { newest(&folder) } else { None };
                let folder = last.ok_or(error)?;
                warn!("`{}` cannot be reached; its last known models are used (`storage_offline`).", uri.shown());
                return Ok(Mirror { used: SnapshotUse::begin(&folder)?, folder, files: None });
            }
        };
        let mut wanted = wanted(&files);
        if wanted.len() > MAX_MIRRORED {
            warn!("`{}` has more than {MAX_MIRRORED} files of settings; the others are not read.", uri.shown());
            wanted.truncate(MAX_MIRRORED);
        }
        let wanted: Vec<_> = wanted.into_iter().map(|(index, limit)| (&files[index], limit)).collect();
        let wanted = without_conflicts(&wanted);
        let folder = self.build(uri, &source, &folder, &wanted).await?;
        Ok(Mirror { used: SnapshotUse::begin(&folder)?, folder, files: Some(files) })
    }

    /// Returns the folder of a state, which is built unless it is there.
    async fn build(
        &self,
        uri: &StorageUri,
        source: &Source,
        folder: &Path,
        wanted: &[(&RemoteFile, u64)],
    ) -> Result<PathBuf, StorageError> {
        let state: Vec<RemoteFile> = wanted
            .iter()
            .map(|(file, limit)| RemoteFile { path: format!("{}\0{limit}", file.path), ..(*file).clone() })
            .collect();
        let mirror = folder.join(snapshot_name(&state, uri));
        if !is_safe_folder(&mirror) {
            let files = folder.join(FILES);
            create(&files)?;
            let fetches = wanted.iter().map(|(file, limit)| {
                let path = files.join(file_name(file, *limit));
                async move { fetch_beginning(source, file, *limit, &path).await }
            });
            let fetches: Vec<_> = fetches.collect();
            let done: Result<(), FetchError> = stream::iter(fetches).buffer_unordered(CONCURRENCY).try_collect().await;
            done.map_err(|error| fetch_error(uri, error))?;
            let names: Vec<_> =
                wanted.iter().map(|(file, limit)| (file.path.clone(), file_name(file, *limit))).collect();
            let (folder, of_state) = (folder.to_owned(), mirror.clone());
            let built = tokio::task::spawn_blocking(move || assemble(&folder, &names, &of_state)).await;
            built.map_err(|error| write_error(&mirror)(io::Error::other(error)))??;
        }
        let _ = fs::File::open(&mirror).and_then(|folder| folder.set_modified(SystemTime::now()));
        Ok(mirror)
    }
}

/// Removes the files below another file, which no folder can have.
fn without_conflicts<'a>(wanted: &[(&'a RemoteFile, u64)]) -> Vec<(&'a RemoteFile, u64)> {
    let paths: BTreeSet<&Path> = wanted.iter().map(|(file, _)| Path::new(&file.path)).collect();
    let is_below = |path: &Path| path.ancestors().skip(1).any(|ancestor| paths.contains(ancestor));
    wanted.iter().copied().filter(|(file, _)| !is_below(Path::new(&file.path))).collect()
}

fn file_name(file: &RemoteFile, limit: u64) -> String {
    format!("{}-{limit}", staged_name(file))
}

/// Writes at most `limit` bytes of an object into a file, unless it is there.
async fn fetch_beginning(source: &Source, file: &RemoteFile, limit: u64, path: &Path) -> Result<(), FetchError> {
    if file.etag.is_some() && path.exists() {
        return Ok(());
    }
    let failed = |source| FetchError::Write { path: path.to_owned(), source };
    let mut attempt = 1;
    let content = loop {
        match read_beginning(source, file, limit).await {
            Err(error) if error.may_pass() && attempt < ATTEMPTS => attempt += 1,
            read => break read?,
        }
    };
    let partial = path.with_extension("partial");
    tokio::fs::write(&partial, content).await.map_err(failed)?;
    tokio::fs::rename(&partial, path).await.map_err(failed)
}

async fn read_beginning(source: &Source, file: &RemoteFile, limit: u64) -> Result<Vec<u8>, FetchError> {
    let needed = file.size.unwrap_or(limit).min(limit);
    let mut content = Vec::new();
    if needed == 0 {
        return Ok(content);
    }
    let range = (file.size != Some(needed)).then_some(0..needed);
    let mut part = source.read(file, range).await?;
    let limit = usize::try_from(needed).unwrap_or(usize::MAX);
    while content.len() < limit {
        let Some(bytes) = part.next().await? else { break };
        let rest = limit - content.len();
        content.extend_from_slice(&bytes[..bytes.len().min(rest)]);
    }
    if file.size.is_some() && content.len() < limit {
        let cause = format!("{} of {limit} bytes arrived", content.len());
        return Err(FetchError::Http(HttpError::Truncated { server: "the store".to_owned(), cause }));
    }
    Ok(content)
}

/// Builds the folder of a state from fetched files, and removes those that it does not need.
fn assemble(folder: &Path, names: &[(String, String)], mirror: &Path) -> Result<(), StorageError> {
    let (files, partial) = (folder.join(FILES), folder.join(PARTIAL));
    match fs::remove_dir_all(&partial) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(write_error(&partial)(error)),
        _ => create(&partial)?,
    }
    for (path, name) in names {
        let (target, from) = (partial.join(path), files.join(name));
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).map_err(write_error(parent))?;
        }
        // Some file systems have no hard links.
        let placed = fs::hard_link(&from, &target).or_else(|_| fs::copy(&from, &target).map(drop));
        placed.map_err(write_error(&target))?;
    }
    fs::rename(&partial, mirror).map_err(write_error(mirror))?;
    let needed: BTreeSet<&str> = names.iter().map(|(_, name)| name.as_str()).collect();
    for entry in fs::read_dir(&files).into_iter().flatten().filter_map(Result::ok) {
        if !entry.file_name().to_str().is_some_and(|name| needed.contains(name)) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> RemoteFile {
        RemoteFile {
            key: path.to_owned(),
            path: path.to_owned(),
            size: Some(1),
            etag: Some("1".to_owned()),
            hash: None,
        }
    }

    #[test]
    fn files_below_files_are_left_out() {
        let files = [file("a"), file("a-b"), file("a/c"), file("d/e/f"), file("d/e-f")];
        let wanted: Vec<_> = files.iter().map(|file| (file, 1)).collect();
        let kept = without_conflicts(&wanted);
        let kept: Vec<_> = kept.iter().map(|(file, _)| file.path.as_str()).collect();
        assert_eq!(kept, ["a", "a-b", "d/e/f", "d/e-f"]);
    }

    #[test]
    fn states_share_their_files() {
        let root = tempfile::tempdir().unwrap();
        let files = root.path().join(FILES);
        fs::create_dir(&files).unwrap();
        fs::write(files.join("1"), "one").unwrap();
        fs::write(files.join("2"), "two").unwrap();
        let names = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(path, name)| ((*path).to_owned(), (*name).to_owned())).collect()
        };
        assemble(root.path(), &names(&[("m/a", "1"), ("b", "2")]), &root.path().join("first")).unwrap();
        assemble(root.path(), &names(&[("m/a", "1")]), &root.path().join("second")).unwrap();
        assert_eq!(fs::read_to_string(root.path().join("first/b")).unwrap(), "two");
        assert_eq!(fs::read_to_string(root.path().join("second/m/a")).unwrap(), "one");
        assert!(files.join("1").exists() && !files.join("2").exists());
    }
}
