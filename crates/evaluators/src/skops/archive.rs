//! Zip archives, of the forms that Python's `zipfile` writes.
//!
//! This reader is stricter than most: an archive whose entries repeat, overlap, are encrypted or have names that leave it is
//! rejected as a whole, since different programs would see different files in it.

use std::collections::HashMap;
use std::io::Read;

use bytes::Bytes;
use flate2::Crc;
use flate2::read::DeflateDecoder;

use super::SkopsError;

/// How many decompressed bytes are allowed for each byte of a file.
const RATIO: usize = 200;
/// The decompressed size that every file may have.
const FLOOR: usize = 256 << 20;
/// The decompressed size that no file may exceed.
const CEILING: usize = 8 << 30;
/// The objects that each byte of a file may become, besides [`FREE_OBJECTS`]. In a schema they take hundreds of bytes, which
/// rarely compress to less than ten.
const OBJECTS_PER_BYTE: usize = 16;
/// The objects that every file may have.
const FREE_OBJECTS: usize = 1 << 20;
/// The limit on objects in a file.
const MAX_OBJECTS: usize = 1 << 25;

const LOCAL_HEADER: &[u8] = b"PK\x03\x04";
const CENTRAL_HEADER: &[u8] = b"PK\x01\x02";
const END: &[u8] = b"PK\x05\x06";
const END_64: &[u8] = b"PK\x06\x06";
const LOCATOR_64: &[u8] = b"PK\x06\x07";
/// The bytes of each of these records, without names and other fields of any length.
const LOCAL_LENGTH: usize = 30;
const CENTRAL_LENGTH: usize = 46;
const END_LENGTH: usize = 22;
const END_64_LENGTH: usize = 56;
const LOCATOR_64_LENGTH: usize = 20;
/// The longest comment of an archive.
const MAX_COMMENT: usize = 0xffff;
/// What stands in a field of 32 bits whose value is in the extra field of large files.
const IN_EXTRA_FIELD: u64 = 0xffff_ffff;
/// The identifier of that extra field.
const LARGE_FILE: u16 = 1;

/// Flags of an entry.
const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
const UTF_8: u16 = 1 << 11;

/// How much a file may become.
#[derive(Debug, Clone)]
pub(super) struct Limits {
    /// The limit on all decompressed bytes.
    bytes: usize,
    /// How many of them are left.
    left: usize,
    /// The limit on the values of the schema, and on the objects of the graph.
    pub(super) objects: usize,
}

impl Limits {
    pub(super) fn new(file: usize) -> Self {
        let bytes = file.saturating_mul(RATIO).saturating_add(FLOOR).min(CEILING);
        let objects = file.saturating_mul(OBJECTS_PER_BYTE).saturating_add(FREE_OBJECTS).min(MAX_OBJECTS);
        Self { bytes, left: bytes, objects }
    }

    fn spend(&mut self, bytes: usize) -> Result<(), SkopsError> {
        self.left = self.left.checked_sub(bytes).ok_or(SkopsError::TooLarge { limit: self.bytes })?;
        Ok(())
    }
}

/// A zip archive in memory.
#[derive(Debug)]
pub(super) struct Archive {
    file: Bytes,
    entries: HashMap<String, Entry>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    deflated: bool,
    checksum: u32,
    size: u64,
    /// The range of its bytes in the file. It has been checked.
    start: usize,
    end: usize,
}

/// A row of the central directory.
struct CentralRow<'a> {
    name: &'a [u8],
    flags: u16,
    method: u16,
    checksum: u32,
    compressed: u64,
    size: u64,
    offset: u64,
}

impl Archive {
    /// Reads the central directory, and checks all entries. Their content is not read.
    pub(super) fn open(file: Bytes) -> Result<Self, SkopsError> {
        let directory = Directory::find(&file)?;
        let mut rest = &file[directory.start..directory.end];
        let mut entries = HashMap::new();
        let mut places = Vec::new();
        while !rest.is_empty() {
            let row;
            (row, rest) = CentralRow::take(rest)?;
            let name = row.name()?;
            let (begins, entry) = row.locate(name, &file[..directory.start])?;
            places.push((begins, entry.end));
            if entries.insert(name.to_owned(), entry).is_some() {
                return Err(SkopsError::UnusualEntry { entry: name.to_owned(), what: "is there twice" });
            }
        }
        if entries.len() as u64 != directory.count {
            return Err(SkopsError::UnusualArchive { what: "it does not have as many entries as it declares" });
        }
        places.sort_unstable();
        if places.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err(SkopsError::UnusualArchive { what: "its entries overlap" });
        }
        Ok(Self { file, entries })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Returns the names of all entries, sorted.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<_> = self.entries.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Returns the content of an entry, which shares the memory of the file if it is not compressed.
    pub(super) fn read(&self, name: &str, limits: &mut Limits) -> Result<Bytes, SkopsError> {
        let entry = self.entries.get(name).ok_or_else(|| SkopsError::Missing { entry: name.to_owned() })?;
        let damaged = |what| SkopsError::Entry { entry: name.to_owned(), what };
        let stored = self.file.slice(entry.start..entry.end);
        let content = if entry.deflated {
            let size = usize::try_from(entry.size).unwrap_or(usize::MAX);
            limits.spend(size)?;
            let mut content = Vec::new();
            // Not more than it declares, which may be more than the memory.
            let limit = entry.size.saturating_add(1);
            let inflated = DeflateDecoder::new(&stored[..]).take(limit).read_to_end(&mut content);
            inflated.map_err(|_| damaged("it cannot be decompressed"))?;
            content.into()
        } else {
            stored
        };
        if content.len() as u64 != entry.size {
            let what = "does not have the size that is declared";
            return Err(SkopsError::UnusualEntry { entry: name.to_owned(), what });
        }
        let mut checksum = Crc::new();
        checksum.update(&content);
        if checksum.sum() != entry.checksum {
            return Err(damaged("its checksum is wrong"));
        }
        Ok(content)
    }
}

/// Where the central directory is.
struct Directory {
    start: usize,
    end: usize,
    count: u64,
}

impl Directory {
    fn find(file: &[u8]) -> Result<Self, SkopsError> {
        let end = end_record(file).ok_or(SkopsError::Archive { what: "it has no end" })?;
        let record = &file[end..];
        let (disk, first_disk) = (u16_at(record, 4), u16_at(record, 6));
        let (own_count, count) = (u16_at(record, 8), u16_at(record, 10));
        if disk != Some(0) || first_disk != Some(0) || own_count != count {
            return Err(SkopsError::UnusualArchive { what: "it is a part of several" });
        }
        let (count, size, offset) = (count.map(u64::from), u32_at(record, 12), u32_at(record, 16));
        let small = Self::of(count, size.map(u64::from), offset.map(u64::from), end);
        let Some(locator) = end.checked_sub(LOCATOR_64_LENGTH).filter(|&at| file[at..].starts_with(LOCATOR_64)) else {
            return small;
        };
        // An archive of many entries has another record before that one, with fields of 64 bits.
        let record = locator.checked_sub(END_64_LENGTH).filter(|&at| file[at..].starts_with(END_64));
        let Some(at) = record.filter(|&at| u64_at(file, locator + 8) == Some(at as u64)) else {
            return Err(SkopsError::UnusualArchive { what: "the record of large archives is not before its locator" });
        };
        let record = &file[at..];
        Self::of(u64_at(record, 32), u64_at(record, 40), u64_at(record, 48), at)
    }

    /// Checks that the directory is directly before the record that describes it: nothing is before the archive or between its
    /// parts.
    fn of(count: Option<u64>, size: Option<u64>, offset: Option<u64>, end: usize) -> Result<Self, SkopsError> {
        let (Some(count), Some(size), Some(offset)) = (count, size, offset) else {
            return Err(SkopsError::Archive { what: "its end is incomplete" });
        };
        match (usize::try_from(offset), offset.checked_add(size)) {
            (Ok(start), Some(found)) if found == end as u64 => Ok(Self { start, end, count }),
            _ => Err(SkopsError::UnusualArchive { what: "its directory is not where it is declared to be" }),
        }
    }
}

/// Returns where the last record of the archive is: before a comment of the length that it declares.
fn end_record(file: &[u8]) -> Option<usize> {
    let last = file.len().checked_sub(END_LENGTH)?;
    let ends = |&at: &usize| {
        let comment = u16_at(file, at + 20).map(usize::from);
        file[at..].starts_with(END) && comment == Some(last - at)
    };
    (last.saturating_sub(MAX_COMMENT)..=last).rev().find(ends)
}

impl<'a> CentralRow<'a> {
    /// Takes the first row of a directory.
    fn take(directory: &'a [u8]) -> Result<(Self, &'a [u8]), SkopsError> {
        Self::parse(directory).ok_or(SkopsError::Archive { what: "its directory is incomplete" })
    }

    fn parse(directory: &'a [u8]) -> Option<(Self, &'a [u8])> {
        if !directory.starts_with(CENTRAL_HEADER) {
            return None;
        }
        let length = |at| u16_at(directory, at).map(usize::from);
        let (name, extra, comment) = (length(28)?, length(30)?, length(32)?);
        let after = directory.get(CENTRAL_LENGTH..)?;
        let (name, after) = after.split_at_checked(name)?;
        let (mut extra, after) = after.split_at_checked(extra)?;
        let mut row = Self {
            name,
            flags: u16_at(directory, 8)?,
            method: u16_at(directory, 10)?,
            checksum: u32_at(directory, 16)?,
            compressed: u32_at(directory, 20)?.into(),
            size: u32_at(directory, 24)?.into(),
            offset: u32_at(directory, 42)?.into(),
        };
        while let (Some(kind), Some(length)) = (u16_at(extra, 0), u16_at(extra, 2)) {
            let field;
            (field, extra) = extra[4..].split_at_checked(length.into())?;
            if kind == LARGE_FILE {
                row.set_large(field)?;
            }
        }
        Some((row, after.get(comment..)?))
    }

    /// Reads the numbers that do not fit into 32 bits. Only those are in the field, in this order.
    fn set_large(&mut self, field: &[u8]) -> Option<()> {
        let mut numbers = field.chunks_exact(8).map(|number| u64_at(number, 0));
        for value in [&mut self.size, &mut self.compressed, &mut self.offset] {
            if *value == IN_EXTRA_FIELD {
                *value = numbers.next().flatten()?;
            }
        }
        Some(())
    }

    /// Returns the name, if it is one within the archive.
    fn name(&self) -> Result<&'a str, SkopsError> {
        let name = std::str::from_utf8(self.name).ok().filter(|name| name.is_ascii() || self.flags & UTF_8 != 0);
        let Some(name) = name else {
            return Err(SkopsError::UnusualArchive { what: "an entry has a name that is not in UTF-8" });
        };
        let text = || name.escape_debug().to_string();
        if name.contains(char::is_control) {
            return Err(SkopsError::UnusualEntry { entry: text(), what: "has control characters in its name" });
        }
        let leaves = name.is_empty()
            || name.starts_with('/')
            || name.contains(['\\', ':'])
            || name.split('/').any(|part| part == "..");
        if leaves {
            return Err(SkopsError::UnusualEntry { entry: text(), what: "is a path out of it" });
        }
        Ok(name)
    }

    /// Finds the content of an entry in the part of the file before the directory. Returns where its local header begins, too.
    fn locate(&self, name: &str, file: &[u8]) -> Result<(usize, Entry), SkopsError> {
        let unusual = |what| SkopsError::UnusualEntry { entry: name.to_owned(), what };
        if self.flags & ENCRYPTED != 0 {
            return Err(unusual("is encrypted"));
        }
        if !matches!(self.method, 0 | 8) {
            return Err(unusual("is compressed by another method than deflate"));
        }
        let begins = usize::try_from(self.offset).ok().filter(|&at| at <= file.len());
        let header = begins.map(|at| (at, &file[at..])).filter(|(_, header)| header.starts_with(LOCAL_HEADER));
        let damaged = || SkopsError::Entry { entry: name.to_owned(), what: "it is not where it is declared to be" };
        let (begins, header) = header.ok_or_else(damaged)?;
        let length = |at| u16_at(header, at).map(usize::from);
        let (Some(name_length), Some(extra)) = (length(26), length(28)) else { return Err(damaged()) };
        if header.get(LOCAL_LENGTH..LOCAL_LENGTH + name_length) != Some(self.name) {
            return Err(unusual("has two names"));
        }
        if u16_at(header, 8) != Some(self.method) {
            return Err(unusual("is compressed in two ways"));
        }
        let start = begins + LOCAL_LENGTH + name_length + extra;
        let end = usize::try_from(self.compressed).ok().and_then(|compressed| start.checked_add(compressed));
        let end = end.filter(|&end| end <= file.len()).ok_or_else(|| unusual("reaches into the directory"))?;
        let (deflated, checksum, size) = (self.method == 8, self.checksum, self.size);
        Ok((begins, Entry { deflated, checksum, size, start, end }))
    }
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk::<N>().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes_at(bytes, at).map(u64::from_le_bytes)
}
