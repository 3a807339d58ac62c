//! The entries of a tar file.
//!
//! The headers that make names longer (GNU's and those of pax) are read here, because the crate keeps them whatever their
//! length.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use tar::{Archive, EntryType};

use super::archive::{Entry, Kind, Meter};
use super::refusal::{Refusal, UnpackError};

/// The longest header that is kept: names of a few thousand bytes, and attributes beside them.
const MAX_HEADER: usize = 256 << 10;

/// What headers before an entry say about it.
#[derive(Debug, Default)]
struct Extended {
    path: Option<Vec<u8>>,
    target: Option<Vec<u8>>,
    /// What the reader does not follow.
    unknown: Option<&'static str>,
}

/// Calls `visit` with each entry, in order.
pub(super) fn read(
    reader: impl Read,
    meter: &Meter,
    visit: &mut dyn FnMut(Entry<'_>) -> Result<(), UnpackError>,
) -> Result<(), UnpackError> {
    let failed = |error| meter.failed(error);
    let mut archive = Archive::new(meter.over(reader));
    let mut extended = Extended::default();
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
            // Comments of whoever made the archive.
            EntryType::XGlobalHeader => {}
            _ => {
                let Extended { path, target, unknown } = std::mem::take(&mut extended);
                let header = entry.header().clone();
                let path = path.map_or_else(|| header.path_bytes(), Cow::Owned);
                let target = target.or_else(|| header.link_name_bytes().map(Cow::into_owned)).unwrap_or_default();
                let target = || Path::new(OsStr::from_bytes(&target)).to_owned();
                let kind = match kind {
                    _ if let Some(unknown) = unknown => Kind::Other(unknown),
                    // Before there was a kind for folders, the name told them.
                    EntryType::Regular if path.ends_with(b"/") => Kind::Folder,
                    EntryType::Regular | EntryType::Continuous => Kind::File,
                    EntryType::Directory => Kind::Folder,
                    EntryType::Symlink => Kind::Link(target()),
                    EntryType::Link => Kind::HardLink(target()),
                    EntryType::Char | EntryType::Block => Kind::Other("a device"),
                    EntryType::Fifo => Kind::Other("a pipe"),
                    EntryType::GNUSparse => Kind::Other("a sparse file"),
                    _ => Kind::Other("of a kind that no environment has"),
                };
                let path = Path::new(OsStr::from_bytes(&path));
                meter.begin(path)?;
                let mode = header.mode().map_err(failed)?;
                visit(Entry { path, mode, kind, data: &mut entry }).map_err(|error| meter.explain(error))?;
            }
        }
    }
    // The checksum of what was compressed comes at the end.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(failed)?;
    Ok(())
}

fn header_data(data: &mut impl Read, size: u64, meter: &Meter) -> Result<Vec<u8>, UnpackError> {
    let mut bytes = Vec::new();
    data.take(MAX_HEADER as u64).read_to_end(&mut bytes).map_err(|error| meter.failed(error))?;
    if size > MAX_HEADER as u64 {
        let start = String::from_utf8_lossy(&bytes[..64]).into_owned();
        return Err(UnpackError::refused(Path::new(&start), Refusal::LongName { limit: MAX_HEADER }));
    }
    Ok(bytes)
}

fn long_name<R: Read>(entry: &mut tar::Entry<'_, R>, meter: &Meter) -> Result<Vec<u8>, UnpackError> {
    let size = entry.header().entry_size().map_err(|error| meter.failed(error))?;
    let mut name = header_data(entry, size, meter)?;
    while name.last() == Some(&0) {
        name.pop();
    }
    Ok(name)
}

/// Reads records of the form `LENGTH KEY=VALUE\n`, up to the first that has another.
fn read_pax(mut records: &[u8], extended: &mut Extended) {
    while let Some((record, rest)) = pax_record(records) {
        records = rest;
        let Some(equals) = record.iter().position(|byte| *byte == b'=') else { return };
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        match key {
            b"path" => extended.path = Some(value.to_vec()),
            b"linkpath" => extended.target = Some(value.to_vec()),
            // Written only where the header's own field is too short.
            b"size" => extended.unknown = Some("a file of more than 8 GiB"),
            _ if key.starts_with(b"GNU.sparse") => extended.unknown = Some("a sparse file"),
            _ => {}
        }
    }
}

/// Splits a record from those behind it.
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
    fn pax_records_are_read_up_to_the_first_that_is_none() {
        let mut extended = Extended::default();
        read_pax(b"11 path=abc\n16 linkpath=d e\n20 mtime=1234567.89\n99 path=x\n", &mut extended);
        // The first record's length is off by one, so nothing is read.
        assert_eq!(extended.path, None);
        read_pax(b"12 path=abc\n16 linkpath=d e\n20 mtime=1234567.89\n99 path=x\n", &mut extended);
        assert_eq!(extended.path.as_deref(), Some(b"abc".as_slice()));
        assert_eq!(extended.target.as_deref(), Some(b"d e".as_slice()));
        assert_eq!(extended.unknown, None);
        for broken in [b"".as_slice(), b"0 \n", b"1 ", b"5", b"18446744073709551615 a=b\n", b"4 ab\n", b"\xff a=b\n"] {
            read_pax(broken, &mut extended);
        }
    }
}
