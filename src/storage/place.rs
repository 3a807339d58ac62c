//! The hidden folder that files are fetched into, and the last steps: moving them into place, or unpacking them.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

use super::download::staged_name;
use super::error::StorageError;
use super::selection::RemoteFile;
use super::uri::StorageUri;
use crate::archives::{self, ArchiveLimits, TreeWriter, UnpackError};
use crate::lock_file::LockedFile;

/// The folder below the destination that has the files until all are complete.
pub(super) const STAGE: &str = ".mlserver-pull";
/// The most entries of an archive.
const MAX_ENTRIES: usize = 100_000;
/// The names of archives.
const ARCHIVES: [&str; 8] = [".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tzst", ".zip"];

/// Reports whether a file is an archive, by its name.
pub(super) fn is_archive(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ARCHIVES.iter().any(|end| name.ends_with(end))
}

/// The files that were moved into place.
#[derive(Debug)]
pub(super) struct Placed {
    /// Below the destination.
    pub(super) paths: Vec<String>,
    /// The archive that they come from.
    pub(super) archive: Option<LockedFile>,
}

/// The hidden folder of a destination.
#[derive(Debug)]
pub(super) struct Staging {
    destination: PathBuf,
    path: PathBuf,
    /// Excludes other runs with the same destination.
    _lock: File,
}

impl Staging {
    /// Creates the folder, or takes over that of an interrupted run. Waits for another run with the same destination.
    pub(super) fn create(destination: &Path) -> Result<Self, StorageError> {
        fs::create_dir_all(destination).map_err(write_error(destination))?;
        let path = destination.join(STAGE);
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(write_error(&path)(error)),
            // A link could lead elsewhere.
            _ if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) => {}
            _ => return Err(write_error(&path)(io::Error::other("it is not a folder"))),
        }
        let lock = wait_for_lock(&path.join(".lock")).map_err(write_error(&path))?;
        Ok(Self { destination: destination.to_owned(), path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Checks that the files fit, as far as their sizes are known.
    pub(super) fn check_space(&self, uri: &StorageUri, files: &[RemoteFile]) -> Result<(), StorageError> {
        let missing = |file: &RemoteFile| {
            let there = fs::metadata(self.path.join(staged_name(file))).map_or(0, |metadata| metadata.len());
            file.size.unwrap_or(0).saturating_sub(there)
        };
        let needed = files.iter().map(missing).fold(0, u64::saturating_add);
        let Ok(status) = rustix::fs::statvfs(&self.path) else { return Ok(()) };
        let free = status.f_bavail.saturating_mul(status.f_frsize);
        if needed > free {
            return Err(StorageError::NoSpace {
                uri: uri.shown().to_owned(),
                needed,
                free,
                path: self.destination.clone(),
            });
        }
        Ok(())
    }

    /// Moves the files to their paths below the destination.
    pub(super) fn place(self, files: &[RemoteFile]) -> Result<Placed, StorageError> {
        for file in files {
            let target = self.destination.join(&file.path);
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent).map_err(write_error(parent))?;
            }
            let staged = self.path.join(staged_name(file));
            // The staged name stays until all are in place, so that an interrupted run need not fetch them again.
            let link = self.path.join(".link");
            let _ = fs::remove_file(&link);
            let moved = match fs::hard_link(&staged, &link) {
                Ok(()) => fs::rename(&link, &target),
                // Some file systems have no hard links.
                Err(_) => fs::rename(&staged, &target),
            };
            moved.map_err(write_error(&target))?;
        }
        self.finish()?;
        Ok(Placed { paths: files.iter().map(|file| file.path.clone()).collect(), archive: None })
    }

    /// Unpacks the only file.
    pub(super) fn unpack(self, file: &RemoteFile, uri: &str) -> Result<Placed, StorageError> {
        let failed = |source| StorageError::Unpack { uri: uri.to_owned(), source };
        let archive =
            File::open(self.path.join(staged_name(file))).map_err(|error| failed(UnpackError::Read(error)))?;
        let size = archive.metadata().map_err(|error| failed(UnpackError::Read(error)))?.len();
        let root = self.path.join("unpacked");
        match fs::remove_dir_all(&root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(write_error(&root)(error)),
            _ => fs::create_dir(&root).map_err(write_error(&root))?,
        }
        let mut tree = TreeWriter::new(&root);
        let limits = ArchiveLimits { entries: MAX_ENTRIES, ..ArchiveLimits::of(size) };
        let read = archives::read(archive, limits, &mut |entry| tree.write(entry));
        read.and_then(|()| tree.finish()).map_err(failed)?;
        let mut paths = Vec::new();
        files_below(&root, "", &mut paths)?;
        paths.sort_unstable();
        let archive = LockedFile { path: file.path.clone(), ..LockedFile::read(&self.path, &staged_name(file))? };
        merge(&root, &self.destination)?;
        self.finish()?;
        Ok(Placed { paths, archive: Some(archive) })
    }

    fn finish(self) -> Result<(), StorageError> {
        fs::remove_dir_all(&self.path).map_err(write_error(&self.path))?;
        // The names are as durable as the bytes.
        let _ = File::open(&self.destination).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

/// Collects the paths of the files below a folder, with `/`. Links are left out: they lead to other files of it.
fn files_below(folder: &Path, prefix: &str, paths: &mut Vec<String>) -> Result<(), StorageError> {
    for entry in fs::read_dir(folder).map_err(write_error(folder))? {
        let entry = entry.map_err(write_error(folder))?;
        let kind = entry.file_type().map_err(write_error(folder))?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if kind.is_dir() {
            files_below(&entry.path(), &format!("{path}/"), paths)?;
        } else if kind.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}

/// Moves the content of a folder into another one, whose files of the same names are replaced.
fn merge(from: &Path, to: &Path) -> Result<(), StorageError> {
    for entry in fs::read_dir(from).map_err(write_error(from))? {
        let entry = entry.map_err(write_error(from))?;
        let target = to.join(entry.file_name());
        let is_folder = entry.file_type().map_err(write_error(from))?.is_dir();
        if is_folder && fs::symlink_metadata(&target).is_ok_and(|metadata| metadata.is_dir()) {
            merge(&entry.path(), &target)?;
        } else {
            fs::rename(entry.path(), &target).map_err(write_error(&target))?;
        }
    }
    Ok(())
}

/// Links the content of a path of this machine into a folder, and returns how many entries it has: what KServe's initializer does.
pub(super) fn link(path: &Path, destination: &Path, uri: &str) -> Result<usize, StorageError> {
    let path = path.canonicalize().map_err(|_| StorageError::Missing { path: path.to_owned() })?;
    fs::create_dir_all(destination).map_err(write_error(destination))?;
    if destination.canonicalize().is_ok_and(|destination| destination == path) {
        return Ok(0);
    }
    let sources = if path.is_dir() {
        let entries = fs::read_dir(&path).map_err(write_error(&path))?;
        entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(write_error(&path))?
    } else {
        vec![path]
    };
    for source in &sources {
        let target = destination.join(source.file_name().unwrap_or_default());
        match symlink(source, &target) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read_link(&target).is_ok_and(|there| there == *source) {
                    continue;
                }
                return Err(StorageError::Occupied { path: target, uri: uri.to_owned() });
            }
            linked => linked.map_err(write_error(&target))?,
        }
    }
    Ok(sources.len())
}

/// Opens the file of a lock, which is created.
pub(super) fn open_lock(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).open(path)
}

/// Waits for the lock of a file, which is released when the file is closed.
pub(super) fn wait_for_lock(path: &Path) -> io::Result<File> {
    let file = open_lock(path)?;
    match file.lock() {
        // Some file systems have no locks. Concurrent runs that share the folder are not supported there.
        Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(error),
        _ => Ok(file),
    }
}

pub(super) fn write_error(path: &Path) -> impl Fn(io::Error) -> StorageError + use<> {
    let path = path.to_owned();
    move |source| StorageError::Write { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archives::packing::{FILE, LINK, tar};

    fn file(path: &str) -> RemoteFile {
        RemoteFile { key: path.to_owned(), path: path.to_owned(), size: Some(1), etag: None, hash: None }
    }

    #[test]
    fn staged_files_are_moved_into_place_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let files = [file("a"), file("sub/b")];
        let staging = Staging::create(folder.path()).unwrap();
        for file in &files {
            fs::write(staging.path().join(staged_name(file)), &file.path).unwrap();
        }
        fs::write(folder.path().join("a"), "old").unwrap();
        assert_eq!(staging.place(&files).unwrap().paths, ["a", "sub/b"]);
        assert_eq!(fs::read_to_string(folder.path().join("a")).unwrap(), "a");
        assert_eq!(fs::read_to_string(folder.path().join("sub/b")).unwrap(), "sub/b");
        assert!(!folder.path().join(STAGE).exists());
    }

    #[test]
    fn staged_archives_are_unpacked_beside_what_is_there() {
        let outside = tempfile::tempdir().unwrap();
        let folder = outside.path().join("in");
        let unpack = |bytes: &[u8]| {
            let staging = Staging::create(&folder).unwrap();
            fs::write(staging.path().join(staged_name(&file("m.tar"))), bytes).unwrap();
            staging.unpack(&file("m.tar"), "s3://b/m.tar")
        };
        fs::create_dir_all(folder.join("d")).unwrap();
        fs::write(folder.join("d/other"), "kept").unwrap();
        let placed = unpack(&tar(&[(FILE, "d/a", 0o644, "A"), (FILE, "b", 0o644, "B")])).unwrap();
        assert_eq!(
            (&placed.paths[..], placed.archive.unwrap().path.as_str()),
            (&["b".to_owned(), "d/a".to_owned()][..], "m.tar")
        );
        assert_eq!(fs::read_to_string(folder.join("d/a")).unwrap(), "A");
        assert_eq!(fs::read_to_string(folder.join("d/other")).unwrap(), "kept");
        for hostile in [tar(&[(FILE, "../x", 0o644, "")]), tar(&[(LINK, "l", 0o777, "/etc")])] {
            let error = unpack(&hostile).unwrap_err();
            assert_eq!(error.to_string(), "cannot unpack `s3://b/m.tar`");
        }
        assert!(!outside.path().join("x").exists());
    }

    #[test]
    fn paths_of_this_machine_are_linked() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(from.path().join("m.json"), "{}").unwrap();
        for _ in 0..2 {
            assert_eq!(link(from.path(), to.path(), "file:///m").unwrap(), 1);
        }
        assert_eq!(fs::read_to_string(to.path().join("m.json")).unwrap(), "{}");
        let one = tempfile::tempdir().unwrap();
        assert_eq!(link(&from.path().join("m.json"), one.path(), "file:///m").unwrap(), 1);
        fs::write(one.path().join("other"), "").unwrap();
        fs::write(from.path().join("other"), "").unwrap();
        assert!(matches!(link(from.path(), one.path(), "file:///m"), Err(StorageError::Occupied { .. })));
        assert!(matches!(link(Path::new("/none"), one.path(), "x"), Err(StorageError::Missing { .. })));
    }

    #[test]
    fn archives_are_known_by_their_names() {
        assert!(is_archive("m.tar.gz") && is_archive("M.ZIP") && is_archive("a/b.tgz"));
        assert!(!is_archive("m.gz") && !is_archive("zip"));
    }
}
