//! The JSON form of requests and responses (Open Inference protocol, "HTTP/REST").
//!
//! Tensor data never becomes a value tree: numbers go from text straight into the typed buffer, nested arrays are
//! flattened on the way, and answers are written from the buffer.

mod cursor;
mod error;
mod number;
mod reader;
mod writer;

pub use error::ReadError;
pub use reader::read_request;
pub use writer::{WriteError, write_response};
