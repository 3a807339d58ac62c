//! What can be wrong with a request's JSON.

use crate::types::{Datatype, TensorError};

/// Why a request could not be read. Nothing of the request is kept.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// The text is not JSON.
    #[error("invalid JSON at byte {offset}: expected {expected}")]
    Syntax { offset: usize, expected: &'static str },
    /// The text is JSON that nests deeper than any tensor does.
    #[error("invalid JSON at byte {offset}: nested deeper than {limit} levels")]
    TooDeep { offset: usize, limit: usize },
    /// A field is there but holds something else.
    #[error("`{path}`: expected {expected}")]
    Type { path: String, expected: &'static str },
    #[error("`{path}` is required")]
    Missing { path: String },
    #[error(
        "`{path}`: unknown datatype `{found}`, expected one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64, BYTES"
    )]
    Datatype { path: String, found: String },
    /// An element is no value of the tensor's datatype.
    #[error("input `{input}`: element {index} is not a valid {datatype}: expected {expected}")]
    Element { input: String, index: usize, datatype: Datatype, expected: &'static str },
    /// Nested arrays that do not make a box.
    #[error("input `{input}`: ragged data at element {index}: all arrays of one level must have the same length")]
    Ragged { input: String, index: usize },
    /// An input asks for more binary data than is left.
    #[error("input `{input}`: `binary_data_size` is {size}, but {left} bytes of binary data are left")]
    BinarySize { input: String, size: usize, left: usize },
    /// An input asks for binary data in a body that is all JSON.
    #[error(
        "input `{input}` has a `binary_data_size`, but the body is JSON alone: the header `inference-header-content-length` says where binary data begins"
    )]
    NoBinaryPart { input: String },
    #[error("{found} bytes of binary data are left that no input's `binary_data_size` asks for")]
    BinaryLeft { found: usize },
    #[error("input `{input}` has both `data` and `binary_data_size`: send one of them")]
    TwoSources { input: String },
    /// Data and shape are each fine but do not agree.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl ReadError {
    /// Tells whether the request was well-formed and only its tensors do not agree with themselves.
    pub const fn is_mismatch(&self) -> bool {
        match self {
            Self::Element { .. }
            | Self::Ragged { .. }
            | Self::BinarySize { .. }
            | Self::NoBinaryPart { .. }
            | Self::BinaryLeft { .. }
            | Self::TwoSources { .. }
            | Self::Tensor(_) => true,
            Self::Syntax { .. }
            | Self::TooDeep { .. }
            | Self::Type { .. }
            | Self::Missing { .. }
            | Self::Datatype { .. } => false,
        }
    }
}
