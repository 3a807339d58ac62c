//! Errors in the JSON of requests and responses.

use crate::types::text::TextError;
use crate::types::{Datatype, TensorError, short};

/// Why a request could not be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// The text is not JSON.
    #[error("invalid JSON at byte {offset}: expected {expected}")]
    Syntax { offset: usize, expected: &'static str },
    /// The text is in another encoding.
    #[error("invalid JSON: {0}")]
    Encoding(TextError),
    /// The JSON nests deeper than any tensor.
    #[error("invalid JSON at byte {offset}: nested deeper than {limit} levels")]
    TooDeep { offset: usize, limit: usize },
    /// A field has a value of the wrong type.
    #[error("`{path}`: expected {expected}")]
    Type { path: String, expected: &'static str },
    #[error("`{path}` is required")]
    Missing { path: String },
    #[error(
        "`{path}`: unknown datatype `{found}`, expected one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64, BYTES"
    )]
    Datatype { path: String, found: String },
    /// An element is not a value of the tensor's datatype.
    #[error("input `{short_input}`: element {index} is not a valid {datatype}: expected {expected}", short_input = short(.input))]
    Element { input: String, index: usize, datatype: Datatype, expected: &'static str },
    /// Nested arrays of one level differ in length.
    #[error("input `{short_input}`: ragged data at element {index}: all arrays of one level must have the same length", short_input = short(.input))]
    Ragged { input: String, index: usize },
    /// An input declares more binary data than is left.
    #[error("input `{short_input}`: `binary_data_size` is {size}, but {left} bytes of binary data are left", short_input = short(.input))]
    BinarySize { input: String, size: usize, left: usize },
    /// An input declares binary data, but the whole body is JSON.
    #[error(
        "input `{short_input}` has a `binary_data_size`, but the whole body is JSON: set the header `inference-header-content-length` to the length of the JSON", short_input = short(.input)
    )]
    NoBinaryPart { input: String },
    #[error("{found} bytes of binary data belong to no input: check each `binary_data_size`")]
    BinaryLeft { found: usize },
    #[error("input `{short_input}` has both `data` and `binary_data_size`: send one of them", short_input = short(.input))]
    TwoSources { input: String },
    #[error("the request has more than {limit} inputs, outputs and parameters in total")]
    TooManyParts { limit: usize },
    #[error("the parameters of the request are longer than {limit} bytes of JSON in total: send long data as an input")]
    ParametersTooLong { limit: usize },
    /// Data and shape are both valid but do not match.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl ReadError {
    /// Returns whether the request is well-formed, but the data of a tensor does not match its shape or datatype, or there is
    /// too much of something.
    pub const fn is_mismatch(&self) -> bool {
        match self {
            Self::Element { .. }
            | Self::Ragged { .. }
            | Self::BinarySize { .. }
            | Self::NoBinaryPart { .. }
            | Self::BinaryLeft { .. }
            | Self::TwoSources { .. }
            | Self::TooManyParts { .. }
            | Self::ParametersTooLong { .. }
            | Self::Tensor(_) => true,
            Self::Syntax { .. }
            | Self::TooDeep { .. }
            | Self::Type { .. }
            | Self::Missing { .. }
            | Self::Encoding(_)
            | Self::Datatype { .. } => false,
        }
    }
}
