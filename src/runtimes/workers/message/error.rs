//! Why the content of a worker's frame is invalid.

use super::MAX_HEADERS;
use crate::runtimes::workers::frame::FrameKind;
use crate::runtimes::workers::memory_file::MemoryError;
use crate::types::TensorError;

/// Why the content of a worker's frame is invalid.
#[derive(Debug, thiserror::Error)]
pub(in crate::runtimes::workers) enum MessageError {
    #[error("cannot read the head of a `{kind:?}` frame")]
    Head { kind: FrameKind, source: serde_json::Error },
    #[error("output `{name}` has unknown datatype `{datatype}`")]
    Datatype { name: String, datatype: String },
    #[error("output `{name}` is longer than its frame")]
    OutOfBounds { name: String },
    #[error("cannot read input `{name}`: {source}")]
    Memory { name: String, source: MemoryError },
    #[error("the data of output `{name}` is not JSON, nests deeper than 127 levels, or has a number beyond a double")]
    Json { name: String },
    #[error(transparent)]
    Tensor(#[from] TensorError),
    #[error("the handler returned status {status}, expected 200 to 999")]
    Status { status: u16 },
    #[error("the handler returned an invalid header: `{name}`")]
    Header { name: String },
    #[error("the model returned {found} headers, more than the limit of {MAX_HEADERS}")]
    TooManyHeaders { found: usize },
}

impl MessageError {
    /// Returns whether the model's code caused the error, not the worker.
    pub(in crate::runtimes::workers) const fn is_of_model(&self) -> bool {
        match self {
            Self::Tensor(_)
            | Self::Json { .. }
            | Self::Status { .. }
            | Self::Header { .. }
            | Self::TooManyHeaders { .. } => true,
            Self::Head { .. } | Self::Datatype { .. } | Self::OutOfBounds { .. } | Self::Memory { .. } => false,
        }
    }
}
