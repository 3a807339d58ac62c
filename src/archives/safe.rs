//! Folders that only this user can write to.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns whether the content of a folder can be trusted: the user of this process or root owns it, and nobody else can write to it.
pub fn is_safe_folder(folder: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(folder)
        .is_ok_and(|metadata| metadata.is_dir() && [user, 0].contains(&metadata.uid()) && metadata.mode() & 0o022 == 0)
}
