//! The compression formats in which joblib writes pickles.

use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;

use super::PickleError;

/// How a file is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionFormat {
    /// Not compressed.
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

/// How many decompressed bytes are allowed for each byte of a file. A model may compress well, but not better than
/// this.
const RATIO: usize = 200;
/// The decompressed size that every file may have.
const FLOOR: usize = 256 << 20;
/// The decompressed size that no file may exceed.
const CEILING: usize = 8 << 30;
/// The limit on the memory of an LZMA dictionary, in KiB: slightly above that of the highest preset, 9.
const LZMA_MEMORY: u32 = 128 << 10;

impl CompressionFormat {
    /// Detects the format from the first bytes of a file, as joblib does. File names are unreliable.
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

/// Decompresses a file, or returns it unchanged.
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

/// Reads to the end, or returns `None` if there are more than `limit` bytes.
fn read(reader: impl Read, limit: usize) -> io::Result<Option<Bytes>> {
    let mut bytes = Vec::new();
    reader.take(limit as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= limit).then(|| bytes.into()))
}
