//! The folder that an archive becomes.
//!
//! Folders and files are written first, into a folder in which there is no link yet, so that nothing can be written through
//! one. Links come last, once it is known where each of them leads.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use super::archive::{Entry, Kind};
use super::refusal::{Refusal, UnpackError};
use super::relocate::VENV_FILE;

/// How many links in a row are followed, as by the kernel.
const MAX_HOPS: usize = 40;

/// A folder that is being filled.
#[derive(Debug)]
pub(super) struct Tree<'a> {
    root: &'a Path,
    /// Paths of symbolic links below the root, and where they lead.
    links: BTreeMap<PathBuf, PathBuf>,
    files: u64,
    bytes: u64,
}

/// What a tree has become.
#[derive(Debug)]
pub(super) struct Filled {
    /// Links to the interpreter that a virtual environment was made with, which have not been made; see `relocate`.
    pub(super) interpreters: BTreeMap<PathBuf, PathBuf>,
    pub(super) files: u64,
    pub(super) bytes: u64,
}

impl<'a> Tree<'a> {
    /// Fills `root`, an empty folder.
    pub(super) const fn new(root: &'a Path) -> Self {
        Self { root, links: BTreeMap::new(), files: 0, bytes: 0 }
    }

    /// Takes an entry in.
    ///
    /// # Errors
    ///
    /// Fails when the entry is refused or cannot be written.
    pub(super) fn put(&mut self, entry: Entry<'_>) -> Result<(), UnpackError> {
        let Entry { path: written, mode, kind, data } = entry;
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
        if let Kind::Folder = kind {
            return fs::create_dir_all(&full).map_err(failed);
        }
        if let Some(parent) = full.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        match kind {
            Kind::Other(what) => return Err(refused(Refusal::Kind(what))),
            Kind::Link(target) => {
                if self.links.insert(path, target).is_some() {
                    return Err(refused(Refusal::Taken));
                }
            }
            Kind::HardLink(target) => {
                let missing = || refused(Refusal::HardLink { target: target.clone() });
                let file = self.root.join(relative(&target).map_err(|_| missing())?);
                if !fs::symlink_metadata(&file).is_ok_and(|metadata| metadata.is_file()) {
                    return Err(missing());
                }
                fs::hard_link(file, &full).map_err(failed)?;
            }
            Kind::File | Kind::Folder => {
                if mode & 0o6000 != 0 {
                    return Err(refused(Refusal::SetId));
                }
                // As tar does, and venv-pack needs: a later entry of the same name counts.
                if fs::symlink_metadata(&full).is_ok_and(|there| there.is_file()) {
                    fs::remove_file(&full).map_err(failed)?;
                }
                // Of the permissions only this one means anything here.
                let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
                let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&full);
                self.bytes += copy(data, &mut file.map_err(failed)?, &full)?;
                self.files += 1;
            }
        }
        Ok(())
    }

    /// Makes the links.
    ///
    /// # Errors
    ///
    /// Fails when one of them leads out of the folder.
    pub(super) fn finish(mut self) -> Result<Filled, UnpackError> {
        let interpreters: BTreeMap<_, _> =
            self.links.extract_if(.., |path, target| is_foreign_interpreter(self.root, path, target)).collect();
        for (path, target) in &self.links {
            let refused = |reason| UnpackError::refused(path, reason);
            check(&self.links, path, target).map_err(refused)?;
        }
        for (path, target) in &self.links {
            let full = self.root.join(path);
            symlink(target, &full).map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => UnpackError::refused(path, Refusal::Taken),
                _ => UnpackError::Write { path: full.clone(), source },
            })?;
        }
        Ok(Filled { interpreters, files: self.files, bytes: self.bytes })
    }
}

/// Copies a file, telling apart which side fails.
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

/// Returns a path without its detours, when it stays below where it starts.
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

/// Tells whether a link is what a virtual environment has to the interpreter that it was made with: the one kind of link
/// that may lead outside, because it is not followed but replaced.
fn is_foreign_interpreter(root: &Path, path: &Path, target: &Path) -> bool {
    let is_python = |path: &Path| {
        let version = path.file_name().and_then(|name| name.to_str()?.strip_prefix("python"));
        version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
    };
    let folder = path.parent().filter(|bin| bin.file_name().is_some_and(|name| name == "bin")).and_then(Path::parent);
    let in_venv = folder.is_some_and(|folder| root.join(folder).join(VENV_FILE).is_file());
    in_venv && target.is_absolute() && is_python(path) && is_python(target)
}

/// Follows a link as the kernel will, and fails when it leaves the folder on its way.
fn check(links: &BTreeMap<PathBuf, PathBuf>, path: &Path, target: &Path) -> Result<(), Refusal> {
    let outside = || Refusal::LinkOutside { target: target.to_owned() };
    let mut place = path.parent().map(Path::to_owned).unwrap_or_default();
    // What is still to be walked, the next component last.
    let mut ahead = reversed(target);
    let mut hops = 1;
    while let Some(component) = ahead.pop() {
        match component {
            Step::Root => return Err(outside()),
            Step::Up => {
                if !place.pop() {
                    return Err(outside());
                }
            }
            Step::Into(name) => {
                place.push(name);
                if let Some(target) = links.get(&place) {
                    hops += 1;
                    if hops > MAX_HOPS {
                        return Err(Refusal::LinkLoop);
                    }
                    place.pop();
                    ahead.extend(reversed(target));
                }
            }
        }
    }
    Ok(())
}

#[derive(Debug)]
enum Step<'a> {
    Root,
    Up,
    Into(&'a std::ffi::OsStr),
}

fn reversed(path: &Path) -> Vec<Step<'_>> {
    let steps = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(Step::Into(name)),
        Component::CurDir => None,
        Component::ParentDir => Some(Step::Up),
        Component::RootDir | Component::Prefix(_) => Some(Step::Root),
    });
    let mut steps: Vec<_> = steps.collect();
    steps.reverse();
    steps
}
