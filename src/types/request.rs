//! Inference requests and responses.

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{ByteReservation, Parameters, Priority, Seldom, Tensor, TraceContext};

/// The maximum number of inputs, outputs, raw contents, parameters and their keys in total. Each of them may take only two bytes
/// of the request but a hundred times as much memory, so the limit on the size of requests is not enough.
pub(super) const MAX_PARTS: usize = 1 << 16;

/// An inference request, independent of the transport.
#[derive(Debug, Clone, Default)]
pub struct InferenceRequest {
    /// The client's id, or one that the server generated. Empty if the client sent an empty one.
    pub id: String,
    pub parameters: Parameters,
    /// The headers of the transport, which models see as `parameters.headers`.
    pub headers: Seldom<HeaderMap>,
    pub inputs: Vec<Tensor>,
    /// The outputs that the client requested; empty for the model's default.
    pub outputs: Vec<RequestedOutput>,
    /// Whether the client sent a list of outputs, which may be empty. Models in Python see the difference.
    pub has_outputs: bool,
    /// Whether the request came over gRPC. KServe's models see its parameters as messages.
    pub from_grpc: bool,
    /// The request's priority among others that wait.
    pub priority: Priority,
    /// The server's span of the request, the parent of its other spans; `None` if it is not traced.
    pub trace: Option<TraceContext>,
    /// The memory of the request, where no admission holds it: a request of a stream.
    pub reservation: ByteReservation,
}

impl InferenceRequest {
    /// Returns the credentials of the client that the model sees: requests with others may have other answers.
    pub fn credentials(&self) -> impl Iterator<Item = (&'static str, &HeaderValue)> {
        let headers = &self.headers;
        [AUTHORIZATION, COOKIE].into_iter().flat_map(move |name| {
            let text = if name == AUTHORIZATION { "authorization" } else { "cookie" };
            headers.get_all(name).into_iter().map(move |value| (text, value))
        })
    }

    /// Sets the trace header that the model's code sees to the server's span, in place of the client's.
    pub fn set_trace_header(&mut self) {
        let value = self.trace.and_then(|trace| HeaderValue::try_from(trace.to_string()).ok());
        if let Some(value) = value {
            self.headers.insert(HeaderName::from_static(TraceContext::HEADER), value);
        }
    }
}

/// An output that the client requested by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestedOutput {
    pub name: String,
    pub parameters: Parameters,
}

/// The response of a model.
#[derive(Debug, Clone, Default)]
pub struct InferenceResponse {
    pub model_name: String,
    /// `None` for an unversioned model; the field is then omitted on the wire.
    pub model_version: Option<String>,
    /// Always the request's id.
    pub id: String,
    pub parameters: Parameters,
    /// Headers that the model adds to the transport's response.
    pub headers: Seldom<HeaderMap>,
    pub outputs: Vec<Tensor>,
}
