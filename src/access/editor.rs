//! Changes of the file of keys, one at a time.

use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use super::{KeyFile, KeyFileError, MAX_KEY_FILE};
use crate::reload::{SettingFile, SettingFileError};

/// How long to wait for another process that changes the file.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);
/// Only the owner may read the file.
const MODE: u32 = 0o600;

/// Why the file of keys could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyEditError {
    #[error(transparent)]
    Read(#[from] SettingFileError),
    #[error("cannot use `{}`: {error}", path.display())]
    Invalid { path: PathBuf, error: KeyFileError },
    #[error("cannot write `{}`: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error("cannot change `{}`: another process is changing it", path.display())]
    Locked { path: PathBuf },
}

impl KeyFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Fails if it is missing or invalid.
    pub fn read(path: &Path) -> Result<Self, KeyEditError> {
        let text = SettingFile::new("api_keys_file", Path::new(""), path, MAX_KEY_FILE).read()?;
        Self::parse(&text).map_err(|error| KeyEditError::Invalid { path: path.to_owned(), error })
    }

    /// Changes a file, which is created if it is missing. While `change` runs, no other process changes the file; a server
    /// sees the file either before or after the change.
    ///
    /// # Errors
    ///
    /// Fails if `change` does, or if the file cannot be read or written.
    pub fn edit<E: From<KeyEditError>>(path: &Path, change: impl FnOnce(&mut Self) -> Result<(), E>) -> Result<(), E> {
        let write = |error| KeyEditError::Write { path: path.to_owned(), error };
        // A link stays a link.
        let target = if path.is_symlink() { fs::canonicalize(path).map_err(write)? } else { path.to_owned() };
        let folder = match target.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            _ => PathBuf::from("."),
        };
        // The lock is that of the folder, because the file is replaced.
        let lock = File::open(&folder).map_err(write)?;
        wait_for(&lock, path)?;
        let mut file = if target.exists() { Self::read(&target)? } else { Self::default() };
        change(&mut file)?;
        file.check().map_err(|error| KeyEditError::Invalid { path: path.to_owned(), error })?;
        replace(&target, &folder, file.to_text().as_bytes()).map_err(write)?;
        Ok(())
    }
}

fn wait_for(lock: &File, path: &Path) -> Result<(), KeyEditError> {
    let began = Instant::now();
    loop {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) if began.elapsed() < PATIENCE => {
                #[expect(clippy::disallowed_methods, reason = "a command without an async runtime may block")]
                std::thread::sleep(BETWEEN_ATTEMPTS);
            }
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {
                return Err(KeyEditError::Locked { path: path.to_owned() });
            }
            Err(error) => return Err(KeyEditError::Write { path: path.to_owned(), error: error.into() }),
        }
    }
}

/// Replaces a file at once.
fn replace(target: &Path, folder: &Path, text: &[u8]) -> io::Result<()> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    let written = write_private(&temporary, text).and_then(|()| fs::rename(&temporary, target));
    if written.is_err() {
        // It may not have been created.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn write_private(path: &Path, text: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(text)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::access::{KeyEntry, KeyHash, Scope};

    fn add(path: &Path, name: &str) -> Result<(), KeyEditError> {
        let entry = KeyEntry {
            name: name.to_owned(),
            hash: KeyHash::of(name.as_bytes()),
            scopes: vec![Scope::Infer],
            models: None,
            expires: None,
            rate_limit: None,
            max_in_flight: None,
        };
        KeyFile::edit(path, |file| {
            file.0.push(entry);
            Ok(())
        })
    }

    #[test]
    fn key_file_edits_are_private_and_none_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        thread::scope(|scope| {
            for thread in 0..8 {
                let path = &path;
                scope.spawn(move || (0..10).for_each(|key| add(path, &format!("{thread}-{key}")).unwrap()));
            }
        });
        assert_eq!(KeyFile::read(&path).unwrap().0.len(), 80);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
        let link = folder.path().join("link.json");
        std::os::unix::fs::symlink("keys.json", &link).unwrap();
        add(&link, "through a link").unwrap();
        assert!(link.is_symlink());
        assert_eq!(KeyFile::read(&path).unwrap().0.len(), 81);
        assert!(matches!(add(&path, "0-0"), Err(KeyEditError::Invalid { .. })));
        fs::write(&path, "damaged").unwrap();
        assert!(matches!(add(&path, "new"), Err(KeyEditError::Invalid { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"damaged");
    }
}
