//! Packs archives for tests, hostile ones included.

use tar::{Builder, EntryType, Header};

/// An entry to pack: kind, path, mode, and data or target.
pub(crate) type PackedEntry<'a> = (EntryType, &'a str, u32, &'a str);

pub(crate) const FILE: EntryType = EntryType::Regular;
pub(crate) const LINK: EntryType = EntryType::Symlink;

pub(crate) fn header((kind, path, mode, text): PackedEntry<'_>) -> (Header, Vec<u8>) {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    // `set_path` would refuse the hostile paths.
    let name = &mut header.as_old_mut().name;
    name[..path.len()].copy_from_slice(path.as_bytes());
    let data = if kind == FILE { text.as_bytes() } else { &[] };
    if kind != FILE {
        header.as_old_mut().linkname[..text.len()].copy_from_slice(text.as_bytes());
    }
    header.set_size(data.len() as u64);
    header.set_cksum();
    (header, data.to_vec())
}

pub(crate) fn tar(entries: &[PackedEntry<'_>]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for entry in entries {
        let (header, data) = header(*entry);
        builder.append(&header, data.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}
