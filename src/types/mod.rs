//! What travels between clients, the server and models: tensors, requests, responses and metadata.
//!
//! Every way in ends in these types and every way out starts from them. They know nothing of transports, models or I/O;
//! [`json`] and [`protobuf`] hold their forms on the wire. Names and rules are those of the Open Inference (V2) protocol.

mod custom;
mod datatype;
pub mod json;
pub mod merge;
mod metadata;
mod parameters;
mod priority;
pub mod protobuf;
mod raw;
mod request;
mod rows;
mod shape;
mod tensor;
mod trace;

pub use custom::{CustomCall, CustomReply, CustomRoute, PathTemplate, TemplateError};
pub use datatype::Datatype;
pub use metadata::{ModelMetadata, ServerMetadata, TensorMetadata};
pub use parameters::Parameters;
pub use priority::{Priority, PriorityQueue, PriorityScheduler, QueuePosition};
pub use request::{InferenceRequest, InferenceResponse, RequestedOutput};
pub use tensor::{BytesElements, Element, Tensor, TensorData, TensorError};
pub use trace::TraceContext;
