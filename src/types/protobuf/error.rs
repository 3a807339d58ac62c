//! Errors in messages.

use crate::types::{Datatype, TensorError, short};

/// Why a request or response could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The bytes are not a valid message, or one of another type.
    #[error("invalid message at byte {offset}: expected {expected}")]
    Malformed { offset: usize, expected: &'static str },
    #[error("invalid message at byte {offset}: {wanted} bytes are declared, but {left} are left")]
    Truncated { offset: usize, wanted: usize, left: usize },
    #[error("the request has more than {limit} inputs, outputs, raw contents and parameters in total")]
    TooManyParts { limit: usize },
    #[error("input `{short_input}`: the shape has more than {limit} dimensions", short_input = short(.input))]
    TooManyDimensions { input: String, limit: usize },
    #[error(
        "input `{short_input}`: unknown datatype `{found}`, expected one of BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64, FP16, BF16, FP32, FP64, BYTES", short_input = short(.input)
    )]
    Datatype { input: String, found: String },
    /// An element is not a value of the tensor's datatype.
    #[error("input `{short_input}`: element {index} is not a valid {datatype}: expected {expected}", short_input = short(.input))]
    Element { input: String, index: usize, datatype: Datatype, expected: &'static str },
    /// Numbers for BYTES, or bytes for numbers.
    #[error("input `{short_input}` is {datatype}, but its contents are `{field}`: send `{expected}` or `raw_input_contents`", short_input = short(.input))]
    Field { input: String, datatype: Datatype, field: &'static str, expected: &'static str },
    #[error("input `{short_input}` has both `{first}` and `{second}`: send one of them", short_input = short(.input))]
    TwoFields { input: String, first: &'static str, second: &'static str },
    #[error("`raw_input_contents` has {found} entries for {wanted} inputs without contents")]
    RawCount { found: usize, wanted: usize },
    /// Data and shape are both valid but do not match.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}
