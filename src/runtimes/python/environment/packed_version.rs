//! The version of Python of a packed environment, from the names of its files.

use std::fs::File;
use std::path::{Component, Path};

use super::archive::{self, ArchiveLimits};
use super::interpreter::{OLDEST, PythonVersion};
use super::refusal::UnpackError;

impl PythonVersion {
    /// Returns the version of a packed environment, which the name of a file has: `bin/python3.10`, `lib/python3.10/…`, or conda's record
    /// of its package `python`. Reads the archive up to the first of them, and unpacks nothing.
    ///
    /// `None` if it is not an archive that can be read, or has no version that models can run in.
    pub fn of_archive(path: &Path) -> Option<Self> {
        // Opening a pipe would block.
        let metadata = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let file = File::open(path).ok()?;
        let mut found = None;
        // The error ends the reading after the first version. Any other one means that the archive is damaged behind the names so far.
        let _ = archive::read(file, ArchiveLimits::of(metadata.len()), &mut |entry| {
            found = named_by(entry.path);
            if found.is_some() { Err(UnpackError::NotAnArchive) } else { Ok(()) }
        });
        found
    }
}

/// Returns the version that a path of an environment names. Conda also has links such as `lib/python3.1`, for 3.10.
fn named_by(path: &Path) -> Option<PythonVersion> {
    let mut parts = path.components().filter(|part| *part != Component::CurDir);
    let mut part = || parts.next()?.as_os_str().to_str();
    let version = match (part()?, part()?) {
        ("bin" | "lib", name) => name.strip_prefix("python")?,
        ("conda-meta", name) => name.strip_prefix("python-")?.strip_suffix(".json")?,
        _ => return None,
    };
    PythonVersion::parse(version).filter(|version| *version >= OLDEST)
}
