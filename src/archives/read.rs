//! Reads archives entry by entry. The readers limit how much they keep in memory.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bzip2::bufread::MultiBzDecoder;
use flate2::read::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::StreamingDecoder;
use zip::ZipArchive;

use super::refusal::{Refusal, UnpackError};
use super::tar;

/// The offset and the bytes that identify a tar file.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");
const MAGIC_BYTES: usize = 262;
/// The most memory of an xz dictionary, in KiB: above that of the highest preset, 9.
const XZ_MEMORY: u32 = 128 << 10;
/// The longest target of a link.
const MAX_TARGET: u64 = 4096;

/// An entry of an archive.
pub struct ArchiveEntry<'a> {
    /// The path as it is written in the archive, not validated.
    pub path: &'a Path,
    /// The permissions, including the set-user-ID, set-group-ID and sticky bits.
    pub mode: u32,
    pub kind: EntryKind,
    pub data: &'a mut dyn Read,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    Folder,
    File,
    /// A symbolic link to this target.
    Link(PathBuf),
    /// A hard link to an earlier file.
    HardLink(PathBuf),
    /// A kind that is refused, with a description.
    Other(&'static str),
}

/// The limits on the content of an archive.
#[derive(Debug, Clone, Copy)]
pub struct ArchiveLimits {
    pub entries: usize,
    /// Total size after decompression.
    pub bytes: u64,
}

impl ArchiveLimits {
    /// Returns the limits of an archive of `size` bytes. Packages compress to about a third of their size, decompression
    /// bombs to less than a hundredth.
    pub fn of(size: u64) -> Self {
        Self { entries: 1_000_000, bytes: size.saturating_mul(100).saturating_add(64 << 20).min(64 << 30) }
    }
}

/// Calls `visit` with each entry, in order.
///
/// # Errors
///
/// Fails if the file is not an archive, is damaged or exceeds `limits`, or if `visit` fails.
pub fn read(
    mut file: File,
    limits: ArchiveLimits,
    visit: &mut dyn FnMut(ArchiveEntry<'_>) -> Result<(), UnpackError>,
) -> Result<(), UnpackError> {
    let mut start = [0; MAGIC_BYTES];
    let length = fill(&mut file, &mut start)?;
    file.rewind()?;
    let start = &start[..length];
    let meter = Meter::new(limits);
    let buffered = BufReader::with_capacity(128 << 10, file);
    match start {
        [0x1f, 0x8b, ..] => tar::read(MultiGzDecoder::new(buffered), &meter, visit),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            let decoder =
                StreamingDecoder::new(buffered).map_err(|error| UnpackError::Damaged(io::Error::other(error)))?;
            tar::read(decoder, &meter, visit)
        }
        [b'P', b'K', 3 | 5, 4 | 6, ..] => read_zip(buffered, &meter, visit),
        [b'B', b'Z', b'h', ..] => tar::read(MultiBzDecoder::new(buffered), &meter, visit),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            tar::read(XzReader::new_mem_limit(buffered, true, XZ_MEMORY), &meter, visit)
        }
        _ if start.get(TAR_MAGIC.0..) == Some(TAR_MAGIC.1) => tar::read(buffered, &meter, visit),
        _ => Err(UnpackError::NotAnArchive),
    }
}

fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..])? {
            0 => break,
            read => length += read,
        }
    }
    Ok(length)
}

fn read_zip(
    file: impl Read + Seek,
    meter: &Meter,
    visit: &mut dyn FnMut(ArchiveEntry<'_>) -> Result<(), UnpackError>,
) -> Result<(), UnpackError> {
    let damaged = |error| UnpackError::Damaged(io::Error::other(error));
    let mut archive = ZipArchive::new(file).map_err(damaged)?;
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).map_err(damaged)?;
        let name = file.name_raw().to_vec();
        let path = Path::new(OsStr::from_bytes(&name));
        meter.begin_entry(path)?;
        let mode = file.unix_mode().unwrap_or(0o644);
        // The file type, if the archive records it.
        let (is_folder, file_type) = (file.is_dir(), mode & 0o170_000);
        let mut data = meter.wrap(&mut file);
        let kind = match file_type {
            _ if is_folder => EntryKind::Folder,
            0o120_000 => {
                let mut target = Vec::new();
                (&mut data).take(MAX_TARGET).read_to_end(&mut target).map_err(|error| meter.read_error(error))?;
                EntryKind::Link(OsStr::from_bytes(&target).into())
            }
            0 | 0o100_000 => EntryKind::File,
            _ => EntryKind::Other("a device, a pipe or a socket"),
        };
        visit(ArchiveEntry { path, mode, kind, data: &mut data }).map_err(|error| meter.explain(error))?;
    }
    Ok(())
}

/// Counts the entries and bytes of an archive, and stops reading at the limits.
#[derive(Debug)]
pub(super) struct Meter {
    limits: ArchiveLimits,
    entries: Cell<usize>,
    bytes_left: Rc<Cell<u64>>,
    /// The path of the entry that is being read.
    entry: RefCell<PathBuf>,
}

impl Meter {
    fn new(limits: ArchiveLimits) -> Self {
        let bytes_left = Rc::new(Cell::new(limits.bytes));
        Self { limits, entries: Cell::new(0), bytes_left, entry: RefCell::default() }
    }

    /// Counts an entry.
    pub(super) fn begin_entry(&self, path: &Path) -> Result<(), UnpackError> {
        self.entry.replace(path.to_owned());
        self.entries.set(self.entries.get() + 1);
        if self.entries.get() > self.limits.entries {
            return Err(UnpackError::refused(path, Refusal::TooMany { limit: self.limits.entries }));
        }
        Ok(())
    }

    /// Wraps `reader` so that its bytes are counted.
    pub(super) fn wrap<R: Read>(&self, reader: R) -> MeteredReader<R> {
        MeteredReader { reader, bytes_left: Rc::clone(&self.bytes_left) }
    }

    /// Converts the error of a read.
    pub(super) fn read_error(&self, error: io::Error) -> UnpackError {
        self.explain(UnpackError::Damaged(error))
    }

    /// Replaces `error` with one that names the current entry, if the limit of bytes is the cause.
    pub(super) fn explain(&self, error: UnpackError) -> UnpackError {
        if self.bytes_left.get() > 0 {
            return error;
        }
        let entry = self.entry.take();
        UnpackError::refused(&entry, Refusal::TooLarge { limit: self.limits.bytes })
    }
}

/// A reader that fails when the limit is reached.
#[derive(Debug)]
pub(super) struct MeteredReader<R> {
    reader: R,
    bytes_left: Rc<Cell<u64>>,
}

impl<R: Read> Read for MeteredReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        let left = self.bytes_left.get().saturating_sub(read as u64);
        self.bytes_left.set(left);
        if left == 0 && read > 0 { Err(io::Error::other("the limit of bytes is reached")) } else { Ok(read) }
    }
}
