//! Writes the entries of an archive into a folder.
//!
//! Folders and files are written first, while the folder contains no links, so that nothing can be written through one.
//! Links are created last, after each of them has been followed to its target.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use super::read::{ArchiveEntry, EntryKind};
use super::refusal::{Refusal, UnpackError};

/// How many links in a row are followed; the kernel has the same limit.
const MAX_HOPS: usize = 40;

/// Writes the entries of an archive into an empty folder.
#[derive(Debug)]
pub struct TreeWriter<'a> {
    root: &'a Path,
    /// Reports which links are not created, by the root, the path below it, and the target.
    is_left_out: fn(&Path, &Path, &Path) -> bool,
    /// Symbolic links, by their paths below the root, and their targets.
    links: BTreeMap<PathBuf, PathBuf>,
    files: u64,
    bytes: u64,
}

/// The result of unpacking an archive.
#[derive(Debug)]
pub struct UnpackedTree {
    /// The links that were not created, because the caller creates them with other targets.
    pub left_out: BTreeMap<PathBuf, PathBuf>,
    pub files: u64,
    pub bytes: u64,
}

impl<'a> TreeWriter<'a> {
    /// Creates a writer for `root`, an empty folder.
    pub fn new(root: &'a Path) -> Self {
        Self::leaving_out(root, |_, _, _| false)
    }

    /// Creates a writer that does not create some links, which are never followed and may lead out of the folder: those for which
    /// `is_left_out` returns true for the folder, the path below it, and the target.
    pub const fn leaving_out(root: &'a Path, is_left_out: fn(&Path, &Path, &Path) -> bool) -> Self {
        Self { root, is_left_out, links: BTreeMap::new(), files: 0, bytes: 0 }
    }

    /// Writes an entry. Links are only remembered until [`Self::finish`].
    ///
    /// # Errors
    ///
    /// Fails if the entry is refused or cannot be written.
    pub fn write(&mut self, entry: ArchiveEntry<'_>) -> Result<(), UnpackError> {
        let ArchiveEntry { path: written, mode, kind, data } = entry;
        let refused = |reason| UnpackError::refused(written, reason);
        let path = relative(written).map_err(refused)?;
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let full = self.root.join(&path);
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => refused(Refusal::Taken),
            _ => UnpackError::Write { path: full.clone(), source },
        };
        if let EntryKind::Folder = kind {
            return fs::create_dir_all(&full).map_err(failed);
        }
        if let Some(parent) = full.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        match kind {
            EntryKind::Other(what) => return Err(refused(Refusal::Kind(what))),
            EntryKind::Link(target) => {
                if self.links.insert(path, target).is_some() {
                    return Err(refused(Refusal::Taken));
                }
            }
            EntryKind::HardLink(target) => {
                let missing = || refused(Refusal::HardLink { target: target.clone() });
                let file = self.root.join(relative(&target).map_err(|_| missing())?);
                if !fs::symlink_metadata(&file).is_ok_and(|metadata| metadata.is_file()) {
                    return Err(missing());
                }
                fs::hard_link(file, &full).map_err(failed)?;
            }
            EntryKind::File | EntryKind::Folder => {
                if mode & 0o6000 != 0 {
                    return Err(refused(Refusal::SetId));
                }
                // A later entry replaces an earlier one of the same name, as with tar. venv-pack relies on it.
                if fs::symlink_metadata(&full).is_ok_and(|there| there.is_file()) {
                    fs::remove_file(&full).map_err(failed)?;
                }
                // Of the permissions, only the executable bit is kept.
                let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
                let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&full);
                self.bytes += copy(data, &mut file.map_err(failed)?, &full)?;
                self.files += 1;
            }
        }
        Ok(())
    }

    /// Creates the links.
    ///
    /// # Errors
    ///
    /// Fails if one of them leads out of the folder.
    pub fn finish(mut self) -> Result<UnpackedTree, UnpackError> {
        let left_out: BTreeMap<_, _> =
            self.links.extract_if(.., |path, target| (self.is_left_out)(self.root, path, target)).collect();
        for (path, target) in &self.links {
            let refused = |reason| UnpackError::refused(path, reason);
            check_link(&self.links, path, target).map_err(refused)?;
        }
        for (path, target) in &self.links {
            let full = self.root.join(path);
            symlink(target, &full).map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => UnpackError::refused(path, Refusal::Taken),
                _ => UnpackError::Write { path: full.clone(), source },
            })?;
        }
        Ok(UnpackedTree { left_out, files: self.files, bytes: self.bytes })
    }
}

/// Copies a file. Errors distinguish between reading and writing.
fn copy(data: &mut dyn io::Read, file: &mut fs::File, path: &Path) -> Result<u64, UnpackError> {
    let (mut buffer, mut copied) = (vec![0; 128 << 10], 0);
    loop {
        match data.read(&mut buffer).map_err(UnpackError::Damaged)? {
            0 => return Ok(copied),
            read => {
                io::Write::write_all(file, &buffer[..read])
                    .map_err(|source| UnpackError::Write { path: path.to_owned(), source })?;
                copied += read as u64;
            }
        }
    }
}

/// Returns a path without `.` components. Refuses absolute paths and paths with `..`.
fn relative(path: &Path) -> Result<PathBuf, Refusal> {
    path.components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(Ok(name)),
            Component::CurDir => None,
            Component::ParentDir => Some(Err(Refusal::Outside)),
            Component::RootDir | Component::Prefix(_) => Some(Err(Refusal::Absolute)),
        })
        .collect()
}

/// Follows a link as the kernel would, and fails if it leaves the folder at any step.
fn check_link(links: &BTreeMap<PathBuf, PathBuf>, path: &Path, target: &Path) -> Result<(), Refusal> {
    let outside = || Refusal::LinkOutside { target: target.to_owned() };
    let mut position = path.parent().map(Path::to_owned).unwrap_or_default();
    // The steps that remain, in reverse order.
    let mut steps = reversed_steps(target);
    let mut hops = 1;
    while let Some(step) = steps.pop() {
        match step {
            PathStep::Root => return Err(outside()),
            PathStep::Up => {
                if !position.pop() {
                    return Err(outside());
                }
            }
            PathStep::Into(name) => {
                position.push(name);
                if let Some(target) = links.get(&position) {
                    hops += 1;
                    if hops > MAX_HOPS {
                        return Err(Refusal::LinkLoop);
                    }
                    position.pop();
                    steps.extend(reversed_steps(target));
                }
            }
        }
    }
    Ok(())
}

#[derive(Debug)]
enum PathStep<'a> {
    Root,
    Up,
    Into(&'a std::ffi::OsStr),
}

fn reversed_steps(path: &Path) -> Vec<PathStep<'_>> {
    let steps = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(PathStep::Into(name)),
        Component::CurDir => None,
        Component::ParentDir => Some(PathStep::Up),
        Component::RootDir | Component::Prefix(_) => Some(PathStep::Root),
    });
    let mut steps: Vec<_> = steps.collect();
    steps.reverse();
    steps
}
