//! The JSON form of requests and responses, for servers and for clients (Open Inference protocol, "HTTP/REST").
//!
//! Tensor data never becomes a value tree: numbers are read from text directly into the typed buffer, nested arrays are
//! flattened while reading, and responses are written from the buffer. Data may also follow the JSON in its raw form.

mod binary;
mod cursor;
mod decimal;
mod error;
mod float;
mod irregular;
mod limits;
mod number;
mod reader;
mod response;
mod writer;

pub use binary::BinaryOutputs;
pub use error::ReadError;
pub use irregular::IrregularData;
pub use reader::{JsonRequest, read_request, read_request_with};
pub use response::read_response;
pub use writer::{JsonBody, NonFinite, WriteError, WriteOptions, write_request, write_response};
