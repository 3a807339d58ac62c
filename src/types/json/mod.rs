//! The JSON form of requests and responses, for servers and for clients (Open Inference protocol, "HTTP/REST").
//!
//! Tensor data never becomes a value tree: numbers are read from text directly into the typed buffer, nested arrays are
//! flattened while reading, and responses are written from the buffer. Data may also follow the JSON in its raw form.

mod binary;
mod cursor;
mod decimal;
mod error;
mod event;
mod float;
mod form;
mod irregular;
mod levels;
mod limits;
mod number;
pub mod openai;
mod pieces;
mod reader;
mod response;
mod v1;
mod v1_tables;
mod writer;

pub use binary::BinaryOutputs;
pub use error::ReadError;
pub use event::{EventData, EventError, StructuredEvent, read_event, write_event};
pub use irregular::IrregularData;
pub use pieces::{AnswerForm, PIECE, ResponsePieces};
pub use reader::{JsonRequest, read_request, read_request_with};
pub use response::read_response;
pub use v1::{V1Error, V1Key, read_v1_request, write_v1_explanations, write_v1_response};
pub use writer::{
    JsonBody, NonFinite, WriteError, WriteOptions, data_text_memory, sent_text, write_data_text, write_parameters_text,
    write_request, write_response, write_tensor_text,
};
