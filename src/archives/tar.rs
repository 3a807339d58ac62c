//! Reads the entries of a tar file.
//!
//! The extension headers for long names (GNU and pax) are read here, because the crate keeps them in memory without a limit.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tar::{Archive, EntryType};

use super::read::{ArchiveEntry, EntryKind, Meter};
use super::refusal::{Refusal, UnpackError};

/// The longest extension header that is kept, in bytes: names of a few thousand bytes, and other attributes.
const MAX_HEADER: usize = 256 << 10;

/// The extension headers that precede an entry.
#[derive(Debug, Default)]
struct ExtendedHeader {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    /// Describes a feature that this reader does not support.
    unsupported: Option<&'static str>,
}

/// Calls `visit` with each entry, in order.
pub(super) fn read(
    reader: impl Read,
    meter: &Meter,
    visit: &mut dyn FnMut(ArchiveEntry<'_>) -> Result<(), UnpackError>,
) -> Result<(), UnpackError> {
    let failed = |error| meter.read_error(error);
    let mut archive = Archive::new(meter.wrap(reader));
    let mut extended = ExtendedHeader::default();
    for entry in archive.entries().map_err(failed)?.raw(true) {
        let mut entry = entry.map_err(failed)?;
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => extended.path = Some(long_name(&mut entry, meter)?),
            EntryType::GNULongLink => extended.target = Some(long_name(&mut entry, meter)?),
            EntryType::XHeader => {
                let size = entry.header().entry_size().map_err(failed)?;
                read_pax(&header_data(&mut entry, size, meter)?, &mut extended);
            }
            // Comments of the tool that created the archive.
            EntryType::XGlobalHeader => {}
            _ => {
                let ExtendedHeader { path, target, unsupported } = std::mem::take(&mut extended);
                let header = entry.header().clone();
                let path = path.map_or_else(|| header.path_bytes(), Cow::Owned);
                let target = target.or_else(|| header.link_name_bytes().map(Cow::into_owned)).unwrap_or_default();
                let target = || Path::new(OsStr::from_bytes(&target)).to_owned();
                let kind = match kind {
                    _ if let Some(unsupported) = unsupported => EntryKind::Other(unsupported),
                    // In the old tar format, folders are regular entries whose name ends with a slash.
                    EntryType::Regular if path.ends_with(b"/") => EntryKind::Folder,
                    EntryType::Regular | EntryType::Continuous => EntryKind::File,
                    EntryType::Directory => EntryKind::Folder,
                    EntryType::Symlink => EntryKind::Link(target()),
                    EntryType::Link => EntryKind::HardLink(target()),
                    EntryType::Char | EntryType::Block => EntryKind::Other("a device"),
                    EntryType::Fifo => EntryKind::Other("a pipe"),
                    EntryType::GNUSparse => EntryKind::Other("a sparse file"),
                    _ => EntryKind::Other("of an unsupported kind"),
                };
                let path = Path::new(OsStr::from_bytes(&path));
                meter.begin_entry(path)?;
                let mode = header.mode().map_err(failed)?;
                visit(ArchiveEntry { path, mode, kind, data: &mut entry }).map_err(|error| meter.explain(error))?;
            }
        }
    }
    // Reads to the end, where the checksum of the compressed data is.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(failed)?;
    Ok(())
}

fn header_data(data: &mut impl Read, size: u64, meter: &Meter) -> Result<Vec<u8>, UnpackError> {
    let mut bytes = Vec::new();
    data.take(MAX_HEADER as u64).read_to_end(&mut bytes).map_err(|error| meter.read_error(error))?;
    if size > MAX_HEADER as u64 {
        let start = String::from_utf8_lossy(&bytes[..64]).into_owned();
        return Err(UnpackError::refused(Path::new(&start), Refusal::LongName { limit: MAX_HEADER }));
    }
    Ok(bytes)
}

fn long_name<R: Read>(entry: &mut tar::Entry<'_, R>, meter: &Meter) -> Result<Vec<u8>, UnpackError> {
    let size = entry.header().entry_size().map_err(|error| meter.read_error(error))?;
    let mut name = header_data(entry, size, meter)?;
    while name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

/// Reads records of the form `LENGTH KEY=VALUE\n`, up to the first malformed one.
fn read_pax(mut records: &[u8], extended: &mut ExtendedHeader) {
    while let Some((record, rest)) = pax_record(records) {
        records = rest;
        let Some(equals) = record.iter().position(|byte| *byte == b'=') else { return };
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        match key {
            b"path" => extended.path = Some(value.to_vec()),
            b"linkpath" => extended.target = Some(value.to_vec()),
            // Written only if the size does not fit in the regular header.
            b"size" => extended.unsupported = Some("a file of more than 8 GiB"),
            _ if key.starts_with(b"GNU.sparse") => extended.unsupported = Some("a sparse file"),
            _ => {}
        }
    }
}

/// Splits the first record from the rest.
fn pax_record(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = records.iter().position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&records[..space]).ok()?.parse().ok()?;
    let record = records.get(space + 1..length)?.strip_suffix(b"\n")?;
    Some((record, &records[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn read_pax_stops_at_first_malformed_record() {
        let mut extended = ExtendedHeader::default();
        read_pax(b"11 path=abc\n16 linkpath=d e\n20 mtime=1234567.89\n99 path=x\n", &mut extended);
        // The first record's length is off by one, so nothing is read.
        assert_eq!(extended.path, None);
        read_pax(b"12 path=abc\n16 linkpath=d e\n20 mtime=1234567.89\n99 path=x\n", &mut extended);
        assert_eq!(extended.path.as_deref(), Some(b"abc".as_slice()));
        assert_eq!(extended.target.as_deref(), Some(b"d e".as_slice()));
        assert_eq!(extended.unsupported, None);
        for broken in [b"".as_slice(), b"0 \n", b"1 ", b"5", b"18446744073709551615 a=b\n", b"4 ab\n", b"\xff a=b\n"] {
            read_pax(broken, &mut extended);
        }
    }
}
