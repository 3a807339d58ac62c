//! The compressed forms in which joblib writes pickles.

use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;

use super::PickleError;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionFormat {
    /// Not at all.
    Plain,
    Zlib,
    Gzip,
    Bzip2,
    Xz,
    Lzma,
    Lz4,
}

impl fmt::Display for CompressionFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "plain",
            Self::Zlib => "zlib",
            Self::Gzip => "gzip",
            Self::Bzip2 => "bzip2",
            Self::Xz => "xz",
            Self::Lzma => "lzma",
            Self::Lz4 => "lz4",
        })
    }
}

/// A small file may hold a large model that compresses well, but not this many bytes more for each of its own.
const RATIO: usize = 200;
/// What every file may have when decompressed.
const FLOOR: usize = 256 << 20;
/// What none may.
const CEILING: usize = 8 << 30;
/// Memory that an LZMA dictionary may take, in KiB: that of the highest preset, 9, and some.
const LZMA_MEMORY: u32 = 128 << 10;

impl CompressionFormat {
    /// Tells the format by a file's first bytes, as joblib does; names say nothing.
    pub fn of(bytes: &[u8]) -> Self {
        match bytes {
            [0x78, ..] => Self::Zlib,
            [0x1f, 0x8b, ..] => Self::Gzip,
            [b'B', b'Z', b'h', ..] => Self::Bzip2,
            [0xfd, b'7', b'z', b'X', b'Z', ..] => Self::Xz,
            [0x5d, 0x00, 0x00, ..] => Self::Lzma,
            [0x04, 0x22, 0x4d, 0x18, ..] => Self::Lz4,
            _ => Self::Plain,
        }
    }
}

/// Decompresses a file, or returns it as it is.
pub(super) fn open(file: Bytes) -> Result<(Bytes, CompressionFormat), PickleError> {
    if file.starts_with(b"ZF") {
        return Err(PickleError::OldJoblib);
    }
    let format = CompressionFormat::of(&file);
    let limit = file.len().saturating_mul(RATIO).saturating_add(FLOOR).min(CEILING);
    let failed = |source| PickleError::Decompress { format, source };
    let inner = match format {
        CompressionFormat::Plain => return Ok((file, format)),
        CompressionFormat::Zlib => read(flate2::read::ZlibDecoder::new(&file[..]), limit),
        CompressionFormat::Gzip => read(flate2::read::MultiGzDecoder::new(&file[..]), limit),
        CompressionFormat::Bzip2 => read(bzip2::read::MultiBzDecoder::new(&file[..]), limit),
        CompressionFormat::Xz => read(lzma_rust2::XzReader::new_mem_limit(&file[..], true, LZMA_MEMORY), limit),
        CompressionFormat::Lzma => {
            let reader = lzma_rust2::LzmaReader::new_mem_limit(&file[..], LZMA_MEMORY, None).map_err(failed)?;
            read(reader, limit)
        }
        CompressionFormat::Lz4 => read(lz4_flex::frame::FrameDecoder::new(&file[..]), limit),
    };
    match inner.map_err(failed)? {
        Some(bytes) => Ok((bytes, format)),
        None => Err(PickleError::TooLarge { format, limit }),
    }
}

/// Reads to the end, or returns nothing when that is further away than `limit`.
fn read(reader: impl Read, limit: usize) -> io::Result<Option<Bytes>> {
    let mut bytes = Vec::new();
    reader.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= limit).then(|| bytes.into()))
}
