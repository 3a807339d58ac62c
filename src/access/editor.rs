//! Changes of the file of keys, one at a time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{KeyFile, KeyFileError, MAX_KEY_FILE};
use crate::file_access;
use crate::reload::{SettingFile, SettingFileError};

/// How long to wait for another process that changes the file.
const PATIENCE: Duration = Duration::from_secs(10);
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(20);
/// Only the owner may read a new file.
const NEW_MODE: u32 = 0o600;

/// Why the file of keys could not be changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyEditError {
    #[error(transparent)]
    Read(#[from] SettingFileError),
    #[error("cannot use `{}`: {error}", path.display())]
    Invalid { path: PathBuf, error: KeyFileError },
    #[error("cannot write `{}`: {error}", path.display())]
    Write { path: PathBuf, error: io::Error },
    #[error(
        "cannot change `{}`: a new file would have another owner, group or mode ({error}), so a server could not read it: run the command \
         as the owner of the file or as root",
        path.display()
    )]
    Access { path: PathBuf, error: io::Error },
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
        replace(&target, &folder, file.to_text().as_bytes())?;
        Ok(())
    }
}

fn wait_for(lock: &File, path: &Path) -> Result<(), KeyEditError> {
    let began = Instant::now();
    loop {
        match flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK | Errno::INTR) if began.elapsed() < PATIENCE => {
                #[expect(clippy::disallowed_methods, reason = "a command without an async runtime may block")]
                std::thread::sleep(BETWEEN_ATTEMPTS);
            }
            Err(Errno::WOULDBLOCK | Errno::INTR) => {
                return Err(KeyEditError::Locked { path: path.to_owned() });
            }
            Err(error) => return Err(KeyEditError::Write { path: path.to_owned(), error: error.into() }),
        }
    }
}

/// Replaces a file at once. What decides who may read it stays: owner, group, mode and access-control list.
fn replace(target: &Path, folder: &Path, text: &[u8]) -> Result<(), KeyEditError> {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    let failed = |error| KeyEditError::Write { path: target.to_owned(), error };
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(NEW_MODE).open(&temporary).map_err(failed)?;
        file.write_all(text).map_err(failed)?;
        if let Ok(replaced) = File::open(target) {
            file_access::keep_all(&file, &replaced)
                .map_err(|error| KeyEditError::Access { path: target.to_owned(), error })?;
        }
        file.sync_all().and_then(|()| fs::rename(&temporary, target)).map_err(failed)
    };
    let written = write();
    if written.is_err() {
        // It may not have been created.
        let _ = fs::remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::thread;

    use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};

    use super::*;
    use crate::access::{KeyEntry, KeyHash, Scope};
    use crate::file_access::ACCESS_LIST;

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

    /// The access-control list `user::rw-, user:65534:r--, group::---, mask::r--, other::---`, as the kernel stores it.
    fn list_for_another_user() -> Vec<u8> {
        const NO_ID: u32 = u32::MAX;
        let entries: [(u16, u16, u32); 5] =
            [(0x01, 6, NO_ID), (0x02, 4, 65_534), (0x04, 0, NO_ID), (0x10, 4, NO_ID), (0x20, 0, NO_ID)];
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(rights.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn key_file_keeps_owner_group_mode_and_access_list() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys.json");
        add(&path, "first").unwrap();
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)).unwrap();
        } else {
            eprintln!("not root: the file is not given to another user");
        }
        for mode in [0o640, 0o600, 0o440] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let before = fs::metadata(&path).unwrap();
            add(&path, &format!("{mode}")).unwrap();
            let after = fs::metadata(&path).unwrap();
            assert_ne!(before.ino(), after.ino(), "the file is replaced at once");
            assert_eq!((before.uid(), before.gid(), before.mode()), (after.uid(), after.gid(), after.mode()));
        }
        let list = list_for_another_user();
        let file = File::open(&path).unwrap();
        match fsetxattr(&file, ACCESS_LIST, &list, XattrFlags::empty()) {
            Err(Errno::NOTSUP) => return eprintln!("the file system has no access-control lists"),
            set => set.unwrap(),
        }
        add(&path, "with a list").unwrap();
        let mut kept = [0; 256];
        let length = fgetxattr(File::open(&path).unwrap(), ACCESS_LIST, &mut kept[..]).unwrap();
        assert_eq!(&kept[..length], list);
    }
}
