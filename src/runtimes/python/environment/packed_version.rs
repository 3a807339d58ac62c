//! The version of Python of a packed environment, from the names of its files.

use std::fs::File;
use std::path::{Component, Path};

use super::interpreter::{OLDEST, PythonVersion};
use crate::archives::{self, ArchiveLimits, UnpackError};

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
        let _ = archives::read(file, ArchiveLimits::of(metadata.len()), &mut |entry| {
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::archives::packing::{FILE, LINK, PackedEntry, tar};
    use crate::fixtures::gzip;

    #[test]
    fn packed_version_is_that_of_the_first_name() {
        let version = |bytes: &[u8]| {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            file.write_all(bytes).unwrap();
            PythonVersion::of_archive(file.path()).map(|version| version.to_string())
        };
        let of = |entries: &[PackedEntry<'_>]| version(&gzip(&tar(entries)));
        let others = [
            (FILE, "bin/conda-unpack", 0o755, "#!/usr/bin/env python"),
            (FILE, "conda-meta/python-dateutil-2.9.0-pyhd3_0.json", 0o644, "{}"),
            (FILE, "conda-meta/python_abi-3.11-5_cp311.json", 0o644, "{}"),
            (LINK, "bin/python", 0o755, "python3.10"),
            (LINK, "lib/python3.1", 0o755, "python3.10"),
            (FILE, "share/python3.9/x", 0o644, ""),
            (FILE, "lib/python3/x", 0o644, ""),
            (FILE, "lib/python2.7/x", 0o644, ""),
        ];
        assert_eq!(of(&others), None);
        for name in [
            "bin/python3.10",
            "./bin/python3.10-config",
            "lib/python3.10/os.py",
            "conda-meta/python-3.10.14-hd12c33a_0_cpython.json",
        ] {
            let found = [&others[..], &[(FILE, name, 0o644, "x"), (FILE, "lib/python3.12/os.py", 0o644, "")]].concat();
            assert_eq!(of(&found).as_deref(), Some("3.10"), "{name}");
            // Only the start of the archive is read.
            let start = tar(&found[..found.len() - 1]);
            assert_eq!(version(&start[..start.len() - 1024]).as_deref(), Some("3.10"), "{name}");
        }
        assert_eq!(version(b"PK\x03\x04 is damaged"), None);
        assert_eq!(PythonVersion::of_archive(Path::new("/nonexistent")), None);
        assert_eq!(PythonVersion::of_archive(Path::new("/dev")), None);
    }
}
