//! `mlserver.lock`: the sizes and SHA-256 hashes of a model's files, so that no other content is fetched or loaded.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use ring::digest;
use serde::{Deserialize, Serialize};

/// The name of the file, in the folder of a model.
pub const LOCK_FILE: &str = "mlserver.lock";
/// The version of the format.
const VERSION: u32 = 1;
/// The longest lock file, in bytes: room for 10,000 files with long paths.
const MAX_BYTES: u64 = 64 << 20;
/// How much is read at once.
const PIECE: usize = 1 << 20;

/// The files of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockFile {
    version: u32,
    /// The archive that is fetched, if the files come from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    archive: Option<LockedFile>,
    files: Vec<LockedFile>,
}

/// A file of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LockedFile {
    /// Below the model's folder, with `/`.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// In lower-case hexadecimal digits.
    pub sha256: String,
}

/// Why a lock file cannot be used, or what differs from it.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("`{}` is not a lock file: {reason}", path.display())]
    Invalid { path: PathBuf, reason: String },
    #[error(
        "`{path}` {difference} `{LOCK_FILE}`; if the change is intended, write it again with `mlserver pull --lock`"
    )]
    Differs { path: String, difference: String },
}

impl LockError {
    fn differs(path: &str, difference: impl Into<String>) -> Self {
        Self::Differs { path: path.to_owned(), difference: difference.into() }
    }
}

impl LockedFile {
    /// Reads a file below a folder. Its size is that of the bytes that were read.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read.
    pub fn read(folder: &Path, path: &str) -> Result<Self, LockError> {
        let file = folder.join(path);
        let read = || {
            let mut reader = File::open(&file)?;
            let (mut context, mut size) = (digest::Context::new(&digest::SHA256), 0);
            let mut piece = vec![0; PIECE];
            loop {
                match reader.read(&mut piece)? {
                    0 => return io::Result::Ok((size, hex(context.finish().as_ref()))),
                    length => {
                        context.update(&piece[..length]);
                        size += length as u64;
                    }
                }
            }
        };
        let (size, sha256) = read().map_err(|source| LockError::Read { path: file.clone(), source })?;
        Ok(Self { path: path.to_owned(), size, sha256 })
    }
}

impl LockFile {
    /// Creates the lock of files in a folder, and of the archive that they come from.
    ///
    /// # Errors
    ///
    /// Fails if a file cannot be read.
    pub fn of(folder: &Path, paths: &[String], archive: Option<LockedFile>) -> Result<Self, LockError> {
        let files = paths.iter().map(|path| LockedFile::read(folder, path)).collect::<Result<_, _>>()?;
        Ok(Self { version: VERSION, archive, files })
    }

    /// Reads the lock of a folder. `None` if it has none.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read, or is not a lock file.
    pub fn find(folder: &Path) -> Result<Option<Self>, LockError> {
        let path = folder.join(LOCK_FILE);
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|source| LockError::Read { path: path.clone(), source })?,
        };
        let mut text = Vec::new();
        file.take(MAX_BYTES + 1)
            .read_to_end(&mut text)
            .map_err(|source| LockError::Read { path: path.clone(), source })?;
        let invalid = |reason: String| LockError::Invalid { path: path.clone(), reason };
        if text.len() as u64 > MAX_BYTES {
            return Err(invalid(format!("it has more than {MAX_BYTES} bytes")));
        }
        let lock: Self = serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
        lock.check().map_err(invalid)?;
        Ok(Some(lock))
    }

    /// Writes the lock into a folder, in place of an older one.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), LockError> {
        let path = folder.join(LOCK_FILE);
        let partial = folder.join(format!(".{LOCK_FILE}.partial"));
        serde_json::to_vec_pretty(self)
            .map_err(io::Error::from)
            .and_then(|text| fs::write(&partial, text))
            .and_then(|()| fs::rename(&partial, &path))
            .map_err(|source| LockError::Write { path, source })
    }

    /// Returns the objects of the store: the archive, or the files.
    pub fn objects(&self) -> &[LockedFile] {
        self.archive.as_ref().map_or(&self.files, std::slice::from_ref)
    }

    /// Compares the objects that a store lists, with their sizes as far as they are known.
    ///
    /// # Errors
    ///
    /// Fails if one is missing, is not named, or has another size.
    pub fn check_objects<'a>(&self, found: impl IntoIterator<Item = (&'a str, Option<u64>)>) -> Result<(), LockError> {
        let mut missing: BTreeMap<_, _> =
            self.objects().iter().map(|object| (object.path.as_str(), object.size)).collect();
        for (path, size) in found {
            let expected = missing.remove(path).ok_or_else(|| LockError::differs(path, "is not named in"))?;
            if let Some(size) = size.filter(|size| *size != expected) {
                let difference = format!("has {size} bytes, not the {expected} in");
                return Err(LockError::differs(path, difference));
            }
        }
        match missing.first_key_value() {
            Some((path, _)) => Err(LockError::differs(path, "does not exist, but is named in")),
            None => Ok(()),
        }
    }

    /// Compares all named files of a folder. Other files may be there.
    ///
    /// # Errors
    ///
    /// Fails at the first that is missing or differs.
    pub fn check_files(&self, folder: &Path) -> Result<(), LockError> {
        for expected in &self.files {
            let path = &expected.path;
            let length = match fs::metadata(folder.join(path)) {
                Ok(metadata) if metadata.is_file() => metadata.len(),
                Ok(_) => return Err(LockError::differs(path, "is not a file, but is named in")),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(LockError::differs(path, "does not exist, but is named in"));
                }
                Err(source) => return Err(LockError::Read { path: folder.join(path), source }),
            };
            if length != expected.size {
                let difference = format!("has {length} bytes, not the {} in", expected.size);
                return Err(LockError::differs(path, difference));
            }
            let found = LockedFile::read(folder, path)?;
            if found != *expected {
                let difference = format!("has the SHA-256 {}, not the {} in", found.sha256, expected.sha256);
                return Err(LockError::differs(path, difference));
            }
        }
        Ok(())
    }

    /// Checks what was read from a file.
    fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            return Err(format!("it has the version {}, and this server reads {VERSION}", self.version));
        }
        if self.files.is_empty() {
            return Err("it names no files".to_owned());
        }
        for file in self.files.iter().chain(&self.archive) {
            let is_inside = Path::new(&file.path).components().all(|part| matches!(part, Component::Normal(_)));
            if !is_inside || file.path.is_empty() {
                return Err(format!("`{}` is not a path inside of the folder", file.path));
            }
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            if file.sha256.len() != 64 || !file.sha256.bytes().all(is_digit) {
                return Err(format!("the `sha256` of `{}` does not have 64 lower-case hexadecimal digits", file.path));
            }
        }
        Ok(())
    }
}

/// Returns lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let mut digits = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, LockFile) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        fs::write(folder.path().join("model.json"), "{}").unwrap();
        fs::write(folder.path().join("sub/b"), "hello").unwrap();
        let lock = LockFile::of(folder.path(), &["model.json".to_owned(), "sub/b".to_owned()], None).unwrap();
        (folder, lock)
    }

    #[test]
    fn lock_is_what_was_written() {
        let (folder, lock) = folder();
        assert_eq!(LockFile::find(folder.path()).unwrap(), None);
        lock.write(folder.path()).unwrap();
        assert_eq!(LockFile::find(folder.path()).unwrap(), Some(lock.clone()));
        assert_eq!(lock.files[1].sha256, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
        assert_eq!(lock.objects(), lock.files);
        let archive = LockedFile::read(folder.path(), "model.json").unwrap();
        let of_archive = LockFile { archive: Some(archive.clone()), ..lock };
        assert_eq!(of_archive.objects(), [archive]);
    }

    #[test]
    fn lock_refuses_files_that_differ() {
        let (folder, lock) = folder();
        let at = |name: &str| folder.path().join(name);
        lock.check_files(folder.path()).unwrap();
        fs::write(at("other"), "x").unwrap();
        lock.check_files(folder.path()).unwrap();
        let check = || lock.check_files(folder.path()).unwrap_err().to_string();
        fs::write(at("model.json"), "[]").unwrap();
        assert!(check().starts_with("`model.json` has the SHA-256 4f53cda1"), "{}", check());
        fs::write(at("model.json"), "{ }").unwrap();
        assert!(check().starts_with("`model.json` has 3 bytes, not the 2 in `mlserver.lock`; if"), "{}", check());
        fs::remove_file(at("model.json")).unwrap();
        assert!(check().starts_with("`model.json` does not exist"), "{}", check());
        fs::create_dir(at("model.json")).unwrap();
        assert!(check().starts_with("`model.json` is not a file"), "{}", check());
    }

    #[test]
    fn lock_refuses_objects_that_differ() {
        let (_folder, lock) = folder();
        let check = |found: &[(&str, Option<u64>)]| lock.check_objects(found.iter().copied());
        check(&[("sub/b", Some(5)), ("model.json", None)]).unwrap();
        for (found, expected) in [
            (vec![("model.json", Some(2))], "`sub/b` does not exist"),
            (vec![("model.json", Some(3)), ("sub/b", Some(5))], "`model.json` has 3 bytes, not the 2"),
            (vec![("model.json", Some(2)), ("sub/b", Some(5)), ("evil.pkl", Some(1))], "`evil.pkl` is not named"),
            (vec![("model.json", Some(2)), ("model.json", Some(2))], "`model.json` is not named"),
        ] {
            let error = check(&found).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn lock_refuses_damaged_files() {
        let (folder, lock) = folder();
        let text = serde_json::to_string(&lock).unwrap();
        let find = |text: &str| {
            fs::write(folder.path().join(LOCK_FILE), text).unwrap();
            LockFile::find(folder.path()).unwrap_err().to_string()
        };
        for (from, to, reason) in [
            ("\"version\":1", "\"version\":2", "it has the version 2"),
            ("model.json", "../model.json", "is not a path inside of the folder"),
            ("model.json", "/etc/passwd", "is not a path inside of the folder"),
            ("2cf2", "2CF2", "does not have 64 lower-case hexadecimal digits"),
            ("\"files\"", "\"others\"", "unknown field `others`"),
        ] {
            let error = find(&text.replace(from, to));
            assert!(error.contains(reason), "{error}");
        }
        assert!(find(r#"{"version":1,"files":[]}"#).ends_with("it names no files"));
        assert!(find("").contains("is not a lock file"));
    }
}
