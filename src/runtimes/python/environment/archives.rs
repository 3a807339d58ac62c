//! Unpacks environments. Each archive is unpacked once, by the hash of its content, into a folder that later servers reuse.
//!
//! `DIR/HASH` is the environment of an archive. It is complete once it contains the file [`COMPLETE`]. Its interpreter runs with the rights of
//! the server, so it is used only if it belongs to the server's user or to root, and only its owner can write to it. A lock on `DIR/.lock`
//! excludes other servers while an archive is unpacked. The incomplete folder of a server that was killed is unpacked again.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tracing::info;

use super::relocate::{RelocateError, VENV_FILE, relocate};
use crate::archives::{self, ArchiveLimits, TreeWriter, UnpackError, UnpackedTree, is_safe_folder};

/// Marks a folder as completely unpacked.
const COMPLETE: &str = ".mlserver-unpacked";
const LOCK: &str = ".lock";
/// How many bytes of the hash are in a folder's name. Its path must be short enough for the first line of a script.
const NAME_BYTES: usize = 16;

/// Why the environment in an archive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error(transparent)]
    Relocate(#[from] RelocateError),
    #[error("cannot use `{}` (`environments_dir`)", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error(
        "cannot use `{}` (`environments_dir`): another user owns it or can write to it; remove it, or set `environments_dir` to a folder \
         that only this user can write to",
        path.display()
    )]
    Foreign { path: PathBuf },
}

/// The archives of a server.
#[derive(Debug, Default)]
pub(super) struct Archives {
    /// Locked while an archive is unpacked: archives are large, so they are unpacked one at a time, and models that share
    /// one wait here. Has at most one entry for each path in the settings.
    unpacked: Mutex<HashMap<PathBuf, (FileStamp, Unpacked)>>,
}

/// An unpacked environment.
#[derive(Debug, Clone)]
pub(super) struct Unpacked {
    /// The hash of the archive's content.
    pub(super) hash: String,
    pub(super) folder: PathBuf,
}

/// The metadata of a file by which changes are detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl FileStamp {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        let (device, inode) = (metadata.dev(), metadata.ino());
        Ok(Self { device, inode, size: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) })
    }
}

impl Archives {
    /// Returns the environment in the archive `path`, unpacked below `dir`. `search` lists folders that may contain
    /// interpreters.
    ///
    /// # Errors
    ///
    /// Fails if the archive cannot be read or is refused, or if its environment cannot run on this machine.
    pub(super) async fn unpack(&self, path: &Path, dir: &Path, search: &[PathBuf]) -> Result<Unpacked, ArchiveError> {
        let mut all_unpacked = self.unpacked.lock().await;
        let stamp = FileStamp::of(path).map_err(UnpackError::Read)?;
        if let Some((stamp_then, unpacked)) = all_unpacked.get(path)
            && *stamp_then == stamp
            && unpacked.folder.is_dir()
        {
            return Ok(unpacked.clone());
        }
        let unpacked = unpack(path.to_owned(), dir.to_owned(), search).await?;
        all_unpacked.insert(path.to_owned(), (stamp, unpacked.clone()));
        Ok(unpacked)
    }
}

/// Takes the right to write from the group of a folder of this user. A volume for a group (`fsGroup` of Kubernetes) adds it at each mount.
fn keep_others_out(folder: &Path) {
    let Ok(metadata) = fs::symlink_metadata(folder) else { return };
    let is_own = metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw();
    if is_own && metadata.mode() & 0o022 == 0o020 {
        // Otherwise the environment is unpacked again.
        let _ = fs::set_permissions(folder, fs::Permissions::from_mode(metadata.mode() & 0o755));
    }
}

async fn unpack(archive: PathBuf, dir: PathBuf, search: &[PathBuf]) -> Result<Unpacked, ArchiveError> {
    let started = Instant::now();
    let shown = archive.display().to_string();
    let filling = spawn_blocking(move || {
        let hash = hash(&archive).map_err(UnpackError::Read)?;
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| ArchiveError::Folder { path, source }
        };
        fs::create_dir_all(&dir).map_err(failed(&dir))?;
        // Made absolute, because a worker may have another working directory.
        let dir = dir.canonicalize().map_err(failed(&dir))?;
        let lock = lock(&dir.join(LOCK)).map_err(failed(&dir))?;
        let root = dir.join(&hash);
        keep_others_out(&root);
        let is_safe = is_safe_folder(&root);
        if is_safe && root.join(COMPLETE).is_file() {
            return Ok((hash, root, None, lock));
        }
        match fs::remove_dir_all(&root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) if !is_safe => return Err(ArchiveError::Foreign { path: root }),
            removed => removed.map_err(failed(&root))?,
        }
        DirBuilder::new().mode(0o700).create(&root).map_err(failed(&root))?;
        let filled = fill(&archive, &root).inspect_err(|_| remove_partial(&root))?;
        Ok((hash, root, Some(filled), lock))
    });
    let (hash, root, filled, _lock) = filling.await.expect("unpacking does not panic")?;
    let folder = environment_in(&root);
    if let Some(UnpackedTree { left_out: interpreters, files, bytes }) = filled {
        let inside = folder.strip_prefix(&root).unwrap_or(Path::new(""));
        let links = interpreters.into_iter();
        let links = links.filter_map(|(path, target)| Some((path.strip_prefix(inside).ok()?.to_owned(), target)));
        relocate(&folder, &links.collect(), search).await.inspect_err(|_| remove_partial(&root))?;
        let complete = root.join(COMPLETE);
        fs::write(&complete, "").map_err(|source| UnpackError::Write { path: complete, source })?;
        let seconds = started.elapsed().as_secs_f64();
        info!(files, bytes, "Unpacked `{shown}` into `{}` in {seconds:.1} s.", root.display());
    }
    Ok(Unpacked { hash, folder })
}

pub(super) fn fill(archive: &Path, root: &Path) -> Result<UnpackedTree, UnpackError> {
    let file = File::open(archive)?;
    let limits = ArchiveLimits::of(file.metadata()?.len());
    let mut tree = TreeWriter::leaving_out(root, is_foreign_interpreter);
    archives::read(file, limits, &mut |entry| tree.write(entry))?;
    tree.finish()
}

/// Returns whether a link leads from a virtual environment to the interpreter that it was created with. This is the only
/// kind of link that may lead out of the folder, because it is replaced and never followed.
fn is_foreign_interpreter(root: &Path, path: &Path, target: &Path) -> bool {
    let is_python = |path: &Path| {
        let version = path.file_name().and_then(|name| name.to_str()?.strip_prefix("python"));
        version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
    };
    let folder = path.parent().filter(|bin| bin.file_name().is_some_and(|name| name == "bin")).and_then(Path::parent);
    let in_venv = folder.is_some_and(|folder| root.join(folder).join(VENV_FILE).is_file());
    in_venv && target.is_absolute() && is_python(path) && is_python(target)
}

/// Removes an incomplete folder. The next attempt to unpack removes whatever is left.
fn remove_partial(root: &Path) {
    let _ = fs::remove_dir_all(root);
}

/// Waits for the lock, which is released when the file is closed.
fn lock(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match file.lock() {
        // Some file systems have no locks. Concurrent servers that share the folder are not supported there.
        Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(error),
        _ => Ok(file),
    }
}

fn hash(path: &Path) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    let hash = hasher.finalize();
    Ok(hash.to_hex()[..2 * NAME_BYTES].to_owned())
}

/// Returns the folder of the environment: either the root of the archive or its only subfolder.
fn environment_in(root: &Path) -> PathBuf {
    let is_environment = |folder: &Path| folder.join("bin").is_dir() || folder.join(VENV_FILE).is_file();
    let children = fs::read_dir(root).into_iter().flatten().filter_map(Result::ok);
    let mut children = children.map(|entry| entry.path()).filter(|path| !path.ends_with(COMPLETE));
    match (children.next(), children.next()) {
        (Some(only), None) if !is_environment(root) && is_environment(&only) => only,
        _ => root.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_of_a_virtual_environment_to_its_interpreter_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let is_foreign =
            |path: &str, target: &str| is_foreign_interpreter(folder.path(), Path::new(path), Path::new(target));
        assert!(!is_foreign("bin/python3", "/usr/bin/python3"), "not a virtual environment");
        fs::write(folder.path().join(VENV_FILE), "home = /usr/bin").unwrap();
        assert!(is_foreign("bin/python3", "/usr/bin/python3") && is_foreign("bin/python", "/opt/bin/python3.11"));
        for (path, target) in [("bin/python", "/bin/sh"), ("lib/python", "/bin/python3"), ("bin/python", "python3")] {
            assert!(!is_foreign(path, target), "{path} {target}");
        }
    }

    #[test]
    fn folder_that_a_volume_opens_to_its_group_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        for (before, safe) in [(0o700, true), (0o2770, true), (0o777, false), (0o702, false)] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(before)).unwrap();
            keep_others_out(folder.path());
            assert_eq!(is_safe_folder(folder.path()), safe, "{before:o}");
        }
    }
}
