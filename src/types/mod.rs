//! The data that clients, the server and models exchange: tensors, requests, responses and metadata.
//!
//! Every transport reads requests into these types and writes responses from them. They do not depend on transports, models
//! or I/O; [`json`] and [`protobuf`] hold their wire formats. Names and rules are those of the Open Inference (V2) protocol.

mod backoff;
pub(crate) mod byte_budget;
mod credentials;
mod custom;
mod datatype;
mod depth;
mod failure;
pub mod html;
pub mod json;
mod memory;
pub mod merge;
mod metadata;
mod parameters;
mod priority;
pub mod protobuf;
mod raw;
mod received;
mod request;
mod rows;
mod secret;
mod seldom;
mod shape;
mod shedding;
mod tensor;
pub mod text;
mod trace;

pub use backoff::Backoff;
pub use byte_budget::{ByteBudget, ByteReservation, OverBudget};
pub use credentials::ForwardedCredentials;
pub use custom::{
    CustomCall, CustomReply, CustomRoute, OpenAiApi, OpenAiHandlers, PathTemplate, TemplateError, TokenUsage,
    V1Handlers, V1Verb,
};
pub use datatype::Datatype;
pub use depth::StepDepth;
pub use failure::{RequestErrorKind, chain};
pub use metadata::{ModelMetadata, ServerMetadata, TensorMetadata};
pub use parameters::Parameters;
pub use priority::{Priority, PriorityQueue, PriorityScheduler, QueuePosition};
pub use received::ReceivedBytes;
pub use request::{InferenceRequest, InferenceResponse, RequestedOutput};
pub use secret::{HIDDEN, Properties, Secret, is_secret_property, with_hidden_credentials, without_credentials};
pub use seldom::Seldom;
pub use shedding::{LoadShedder, Overload};
pub use tensor::{AsSent, BytesElements, Element, Tensor, TensorData, TensorError, TensorRule, short};
pub use trace::TraceContext;

/// The longest name of a topic of Kafka, in bytes.
pub const LONGEST_TOPIC: usize = 249;
