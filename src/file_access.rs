//! The owner, the group and the mode of files that are replaced by name: they decide who may read the new file.

use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};

use rustix::fs::{XattrFlags, fgetxattr, fremovexattr, fsetxattr};
use rustix::io::Errno;

/// What the owner of a file may always do with it, so that it can be written again.
pub const OWNER_ACCESS: u32 = 0o600;

/// The extended attribute with the access-control list of POSIX, and the most bytes of one.
pub const ACCESS_LIST: &str = "system.posix_acl_access";
const MAX_ACCESS_LIST: usize = 64 << 10;

/// Returns how to open a file for writing that replaces another one, if there is one: nobody else can open it before it has the access of
/// that one.
pub fn options_for(replaced: Option<&Metadata>) -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(if replaced.is_some() { OWNER_ACCESS } else { 0o666 });
    options
}

/// Gives a file the mode of the one that it replaces, and its group and owner where that is permitted. The owner may always write.
///
/// # Errors
///
/// Fails if others could do more with the file than with the one that it replaces.
pub fn keep_where_permitted(file: &File, replaced: &Metadata) -> io::Result<()> {
    let found = file.metadata()?;
    // Only root may give a file away, but its owner may choose one of their groups.
    let has_group = found.gid() == replaced.gid() || fchown(file, None, Some(replaced.gid())).is_ok();
    let mode = (replaced.mode() & 0o777) | OWNER_ACCESS;
    // The rights of another group are not those of this one.
    let mode = if has_group { mode } else { mode & !0o070 | (mode & 0o007) << 3 };
    let found_mode = found.mode() & 0o777;
    if found_mode != mode {
        let changed = file.set_permissions(Permissions::from_mode(mode));
        // Not every file system has modes, and a file of another user may be narrower than this.
        if found_mode & !mode != 0 {
            changed?;
        }
    }
    let _ = fchown(file, Some(replaced.uid()), None);
    Ok(())
}

/// Gives a file the owner, the group, the mode and the access-control list of the one that it replaces.
///
/// # Errors
///
/// Fails if one of them cannot be kept.
pub fn keep_all(file: &File, replaced: &File) -> io::Result<()> {
    let (found, wanted) = (file.metadata()?, replaced.metadata()?);
    let differing = |found: u32, wanted: u32| (found != wanted).then_some(wanted);
    let (owner, group) = (differing(found.uid(), wanted.uid()), differing(found.gid(), wanted.gid()));
    if owner.or(group).is_some() {
        fchown(file, owner, group)?;
    }
    file.set_permissions(Permissions::from_mode(wanted.mode() & 0o777))?;
    let mut list = vec![0; MAX_ACCESS_LIST];
    match fgetxattr(replaced, ACCESS_LIST, &mut list) {
        Ok(length) => fsetxattr(file, ACCESS_LIST, &list[..length], XattrFlags::empty())?,
        // A new file may have the default list of its folder.
        Err(Errno::NODATA) => match fremovexattr(file, ACCESS_LIST) {
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP) => {}
            Err(error) => return Err(error.into()),
        },
        Err(Errno::NOTSUP) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}
