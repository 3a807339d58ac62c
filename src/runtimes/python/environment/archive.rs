//! Packed environments, entry by entry. What is in them comes from strangers: the readers bound what they keep of it.

use std::cell::{Cell, RefCell};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use zip::ZipArchive;

use super::refusal::{Refusal, UnpackError};
use super::tar;

/// Where the format of a tar file shows, and with what.
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");
const MAGIC_BYTES: usize = 262;
/// The longest target of a link.
const MAX_TARGET: u64 = 4096;

/// Something that an archive holds.
pub(super) struct Entry<'a> {
    /// As it is written, whatever that means.
    pub(super) path: &'a Path,
    /// The permissions, the bits above them included.
    pub(super) mode: u32,
    pub(super) kind: Kind,
    pub(super) data: &'a mut dyn Read,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Folder,
    File,
    /// A symbolic link to this.
    Link(PathBuf),
    /// Another name of a file that came before.
    HardLink(PathBuf),
    /// What no environment has, by name.
    Other(&'static str),
}

/// What an archive may hold at most.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) entries: usize,
    /// Once decompressed.
    pub(super) bytes: u64,
}

impl Limits {
    /// Returns the limits of an archive of `size` bytes. Packages shrink to a third of their size or so, bombs to less than
    /// a hundredth.
    pub(super) fn of(size: u64) -> Self {
        Self { entries: 1_000_000, bytes: size.saturating_mul(100).saturating_add(64 << 20).min(64 << 30) }
    }
}

/// Calls `visit` with each entry, in order.
///
/// # Errors
///
/// Fails when the file is no archive, is damaged or holds more than `limits`, and when `visit` fails.
pub(super) fn read(
    mut file: File,
    limits: Limits,
    visit: &mut dyn FnMut(Entry<'_>) -> Result<(), UnpackError>,
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
        [b'B', b'Z', b'h', ..] => Err(UnpackError::Compression("bzip2")),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Err(UnpackError::Compression("xz")),
        _ if start.get(TAR_MAGIC.0..) == Some(TAR_MAGIC.1) => tar::read(buffered, &meter, visit),
        _ => Err(UnpackError::NoArchive),
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
    visit: &mut dyn FnMut(Entry<'_>) -> Result<(), UnpackError>,
) -> Result<(), UnpackError> {
    let damaged = |error| UnpackError::Damaged(io::Error::other(error));
    let mut archive = ZipArchive::new(file).map_err(damaged)?;
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).map_err(damaged)?;
        let name = file.name_raw().to_vec();
        let path = Path::new(OsStr::from_bytes(&name));
        meter.begin(path)?;
        let mode = file.unix_mode().unwrap_or(0o644);
        // The file type that the archive's maker noted; others are devices and the like.
        let (is_folder, file_type) = (file.is_dir(), mode & 0o170_000);
        let mut data = meter.over(&mut file);
        let kind = match file_type {
            _ if is_folder => Kind::Folder,
            0o120_000 => {
                let mut target = Vec::new();
                (&mut data).take(MAX_TARGET).read_to_end(&mut target).map_err(|error| meter.failed(error))?;
                Kind::Link(OsStr::from_bytes(&target).into())
            }
            0 | 0o100_000 => Kind::File,
            _ => Kind::Other("a device, a pipe or a socket"),
        };
        visit(Entry { path, mode, kind, data: &mut data }).map_err(|error| meter.explain(error))?;
    }
    Ok(())
}

/// Counts what comes out of an archive, and stops it at the limits.
#[derive(Debug)]
pub(super) struct Meter {
    limits: Limits,
    entries: Cell<usize>,
    left: Rc<Cell<u64>>,
    /// What is read now.
    entry: RefCell<PathBuf>,
}

impl Meter {
    fn new(limits: Limits) -> Self {
        let left = Rc::new(Cell::new(limits.bytes));
        Self { limits, entries: Cell::new(0), left, entry: RefCell::default() }
    }

    /// Counts an entry.
    pub(super) fn begin(&self, path: &Path) -> Result<(), UnpackError> {
        self.entry.replace(path.to_owned());
        self.entries.set(self.entries.get() + 1);
        if self.entries.get() > self.limits.entries {
            return Err(UnpackError::refused(path, Refusal::TooMany { limit: self.limits.entries }));
        }
        Ok(())
    }

    /// Counts what is read from `reader`.
    pub(super) fn over<R: Read>(&self, reader: R) -> Metered<R> {
        Metered { reader, left: Rc::clone(&self.left) }
    }

    /// Says why reading failed.
    pub(super) fn failed(&self, error: io::Error) -> UnpackError {
        self.explain(UnpackError::Damaged(error))
    }

    /// Names the entry at which the limit was met, when that is what has failed.
    pub(super) fn explain(&self, error: UnpackError) -> UnpackError {
        if self.left.get() > 0 {
            return error;
        }
        let entry = self.entry.take();
        UnpackError::refused(&entry, Refusal::TooLarge { limit: self.limits.bytes })
    }
}

/// A reader that fails when the limit is met.
#[derive(Debug)]
pub(super) struct Metered<R> {
    reader: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read(buffer)?;
        let left = self.left.get().saturating_sub(read as u64);
        self.left.set(left);
        if left == 0 && read > 0 { Err(io::Error::other("the limit of bytes is met")) } else { Ok(read) }
    }
}
