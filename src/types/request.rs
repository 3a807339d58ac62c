//! Inference requests and responses.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Parameters, Priority, Tensor, TraceContext};

/// A request for inference, whichever transport brought it.
#[derive(Debug, Clone, Default)]
pub struct InferenceRequest {
    /// The caller's id, or one that the server made. May be empty when the caller sent an empty one.
    pub id: String,
    pub parameters: Parameters,
    /// The transport's headers, which models see as `parameters.headers`.
    pub headers: HeaderMap,
    pub inputs: Vec<Tensor>,
    /// The outputs that the caller asked for; empty means the model's default.
    pub outputs: Vec<RequestedOutput>,
    /// How urgent it is beside others that wait.
    pub priority: Priority,
    /// The span that what happens to it belongs to, when traces are taken.
    pub trace: Option<TraceContext>,
}

impl InferenceRequest {
    /// Puts its trace among the headers, for the model's code, in place of the client's.
    pub fn set_trace_header(&mut self) {
        let value = self.trace.and_then(|trace| HeaderValue::try_from(trace.to_string()).ok());
        if let Some(value) = value {
            self.headers.insert(HeaderName::from_static(TraceContext::HEADER), value);
        }
    }
}

/// An output that the caller asked for by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestedOutput {
    pub name: String,
    pub parameters: Parameters,
}

/// A model's answer.
#[derive(Debug, Clone, Default)]
pub struct InferenceResponse {
    pub model_name: String,
    /// `None` for a model without version, which the wire leaves out.
    pub model_version: Option<String>,
    /// Always the request's id.
    pub id: String,
    pub parameters: Parameters,
    /// Headers that the model wants on the transport's answer.
    pub headers: HeaderMap,
    pub outputs: Vec<Tensor>,
}
