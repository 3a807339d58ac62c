//! Unpacked environments: each archive once, by what is in it, into a folder that later servers use again.
//!
//! `DIR/HASH` is the environment of an archive, complete once it holds the file `COMPLETE`. A lock on `DIR/.lock` keeps
//! other servers out meanwhile, and what one that was killed has left is made anew.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tracing::info;

use super::archive::{self, Limits};
use super::refusal::UnpackError;
use super::relocate::{RelocateError, VENV_FILE, settle};
use super::tree::{Filled, Tree};

/// Marks what has been unpacked to its end.
const COMPLETE: &str = ".mlserver-unpacked";
const LOCK: &str = ".lock";
/// Bytes of the hash that name a folder: short enough for the first lines of scripts.
const NAME_BYTES: usize = 16;

/// Why there is no environment from an archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error(transparent)]
    Relocate(#[from] RelocateError),
    #[error("cannot use `{}` (`environments_dir`)", path.display())]
    Folder { path: PathBuf, source: io::Error },
}

/// The archives of a server.
#[derive(Debug, Default)]
pub(super) struct Archives {
    /// One archive at a time: they are large, and models that share one wait for it here. There are as many entries as
    /// paths that settings name.
    known: Mutex<HashMap<PathBuf, (Stamp, Unpacked)>>,
}

/// An environment that came out of an archive.
#[derive(Debug, Clone)]
pub(super) struct Unpacked {
    /// Names the content.
    pub(super) hash: String,
    pub(super) folder: PathBuf,
}

/// Tells whether a file has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        let (device, inode) = (metadata.dev(), metadata.ino());
        Ok(Self { device, inode, size: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) })
    }
}

impl Archives {
    /// Returns the environment in the archive `path`, unpacked below `dir`. `search` are folders with interpreters.
    ///
    /// # Errors
    ///
    /// Fails when the archive cannot be read or is refused, and when its environment cannot run here.
    pub(super) async fn unpack(&self, path: &Path, dir: &Path, search: &[PathBuf]) -> Result<Unpacked, ArchiveError> {
        let mut known = self.known.lock().await;
        let stamp = Stamp::of(path).map_err(UnpackError::Read)?;
        if let Some((of, unpacked)) = known.get(path)
            && *of == stamp
            && unpacked.folder.is_dir()
        {
            return Ok(unpacked.clone());
        }
        let unpacked = unpack(path.to_owned(), dir.to_owned(), search).await?;
        known.insert(path.to_owned(), (stamp, unpacked.clone()));
        Ok(unpacked)
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
        // Models import from a worker with another working directory, perhaps.
        let dir = dir.canonicalize().map_err(failed(&dir))?;
        let lock = lock(&dir.join(LOCK)).map_err(failed(&dir))?;
        let root = dir.join(&hash);
        if root.join(COMPLETE).is_file() {
            return Ok((hash, root, None, lock));
        }
        match fs::remove_dir_all(&root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&root)(error)),
            _ => {}
        }
        DirBuilder::new().mode(0o700).create(&root).map_err(failed(&root))?;
        let filled = fill(&archive, &root).inspect_err(|_| discard(&root))?;
        Ok((hash, root, Some(filled), lock))
    });
    let (hash, root, filled, _lock) = filling.await.expect("unpacking does not panic")?;
    let folder = environment_in(&root);
    if let Some(Filled { interpreters, files, bytes }) = filled {
        let inside = folder.strip_prefix(&root).unwrap_or(Path::new(""));
        let links = interpreters.into_iter();
        let links = links.filter_map(|(path, target)| Some((path.strip_prefix(inside).ok()?.to_owned(), target)));
        settle(&folder, &links.collect(), search).await.inspect_err(|_| discard(&root))?;
        let complete = root.join(COMPLETE);
        fs::write(&complete, "").map_err(|source| UnpackError::Write { path: complete, source })?;
        let seconds = started.elapsed().as_secs_f64();
        info!(files, bytes, "Unpacked `{shown}` into `{}` in {seconds:.1} s.", root.display());
    }
    Ok(Unpacked { hash, folder })
}

fn fill(archive: &Path, root: &Path) -> Result<Filled, UnpackError> {
    let file = File::open(archive)?;
    let limits = Limits::of(file.metadata()?.len());
    let mut tree = Tree::new(root);
    archive::read(file, limits, &mut |entry| tree.put(entry))?;
    tree.finish()
}

/// Removes what is of no use. The next attempt removes what this one could not.
fn discard(root: &Path) {
    let _ = fs::remove_dir_all(root);
}

/// Waits for the lock, which ends with the file.
fn lock(path: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path)?;
    match file.lock() {
        // Not every file system has locks; the folder is then this server's alone, or somebody's own risk.
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

/// Returns the folder of the environment: an archive may hold it in a folder of its own.
fn environment_in(root: &Path) -> PathBuf {
    let is_environment = |folder: &Path| folder.join("bin").is_dir() || folder.join(VENV_FILE).is_file();
    let children = fs::read_dir(root).into_iter().flatten().filter_map(Result::ok);
    let mut children = children.map(|entry| entry.path()).filter(|path| !path.ends_with(COMPLETE));
    match (children.next(), children.next()) {
        (Some(only), None) if !is_environment(root) && is_environment(&only) => only,
        _ => root.to_owned(),
    }
}
