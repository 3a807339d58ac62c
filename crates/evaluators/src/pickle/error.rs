//! Why a file could not be read as a pickle.

use std::io;

use thiserror::Error;

use super::CompressionFormat;

/// A file that is damaged, that needs something only Python can do, or that is too large.
#[derive(Debug, Error)]
pub enum PickleError {
    #[error("file ends at byte {offset}, inside {reading}")]
    Truncated { offset: usize, reading: &'static str },
    #[error("byte {offset}: opcode 0x{opcode:02x} is not in pickle protocols 0 to 5")]
    Opcode { offset: usize, opcode: u8 },
    /// A page, a pointer or a message that was saved in place of the model.
    #[error(
        "the file is text, not a pickle: it begins with \"{start}\"; put the model's own file there, which a download or a clone may have left out"
    )]
    Text { start: String },
    #[error("byte {offset}: expected {wanted}")]
    Malformed { offset: usize, wanted: &'static str },
    /// A pickle may call any Python function, and few of them only build data.
    #[error("byte {offset}: the file calls `{name}`, which is not known to only build data")]
    Call { offset: usize, name: String },
    #[error("byte {offset}: {what} cannot be read without Python")]
    Unsupported { offset: usize, what: &'static str },
    #[error("byte {offset}: more than {limit} {what}")]
    TooMany { offset: usize, what: &'static str, limit: usize },
    #[error("the {format} stream cannot be decompressed")]
    Decompress { format: CompressionFormat, source: io::Error },
    #[error("the {format} stream decompresses to more than {limit} bytes")]
    TooLarge { format: CompressionFormat, limit: usize },
    #[error(
        "the file was written by joblib before 0.10, which stored arrays in separate files; save it again with a newer version"
    )]
    OldJoblib,
}

impl PickleError {
    /// Returns whether the bytes are not those of a pickle, or of a damaged one.
    pub(super) const fn is_damage(&self) -> bool {
        matches!(self, Self::Truncated { .. } | Self::Opcode { .. } | Self::Malformed { .. })
    }
}
