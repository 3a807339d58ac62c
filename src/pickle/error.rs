//! Why a file could not be read as a pickle.

use std::io;

use thiserror::Error;

use super::CompressionFormat;

/// A file that is damaged, that needs something only Python can do, or that is too large.
#[derive(Debug, Error)]
pub enum PickleError {
    #[error("file ends at byte {offset}, inside {reading}")]
    Truncated { offset: usize, reading: &'static str },
    #[error("byte {offset}: opcode 0x{opcode:02x} is in none of the pickle protocols 0 to 5")]
    Opcode { offset: usize, opcode: u8 },
    #[error("byte {offset}: expected {wanted}")]
    Malformed { offset: usize, wanted: &'static str },
    /// A pickle may call any Python function, and few of them only build data.
    #[error("byte {offset}: the file calls `{name}`, which is not among the functions that this reader takes for data")]
    Call { offset: usize, name: String },
    #[error("byte {offset}: {what} cannot be read without Python")]
    Unsupported { offset: usize, what: &'static str },
    #[error("byte {offset}: more than {limit} {what}")]
    TooMany { offset: usize, what: &'static str, limit: usize },
    #[error("the {format} stream cannot be decompressed")]
    Decompress { format: CompressionFormat, source: io::Error },
    #[error("the {format} stream has more than {limit} bytes when decompressed")]
    TooLarge { format: CompressionFormat, limit: usize },
    #[error("the file was written by joblib before 0.10, which kept arrays in files beside it; write it again")]
    OldJoblib,
}
