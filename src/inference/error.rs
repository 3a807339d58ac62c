//! The errors that end a request, and how they are logged.

use std::sync::Arc;
use std::time::Duration;

use tracing::{Level, debug, enabled, error};

use super::InvalidInput;
use crate::compute::ComputeError;
use crate::registry::{NotFound, QueueFull, RegisteredModel, chain};
use crate::runtimes::RuntimeError;
use crate::types::{OverBudget, RequestErrorKind};

/// The reason of requests that were dropped because of the byte budget.
const MAX_REQUEST_BYTES: &str = "max_request_bytes_in_flight";

/// The errors that end a request.
#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    #[error(transparent)]
    NotFound(#[from] NotFound),
    #[error("Model {name}{} is not ready yet.", version.as_deref().map(|v| format!(" with version {v}")).unwrap_or_default())]
    NotReady { name: String, version: Option<String> },
    /// As many requests as the server admits are in flight.
    #[error("the server already has {limit} requests in flight (`max_in_flight`); try again later")]
    Overloaded { limit: usize },
    /// The requests in flight and their responses take too many bytes.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    #[error("the server already has {limit} streams open (`max_streams`); try again later")]
    TooManyStreams { limit: usize },
    #[error("`stream_idle_timeout` ({} s) exceeded: no message in either direction", limit.as_secs_f64())]
    StreamIdle { limit: Duration },
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
    /// The model was busy for too long.
    #[error("`queue_timeout` ({} s) exceeded: the model is busy; try again later", limit.as_secs_f64())]
    QueueTimeout { limit: Duration },
    #[error("`predict_timeout` ({} s) exceeded", limit.as_secs_f64())]
    PredictTimeout { limit: Duration },
    #[error("`request_timeout` ({} s) exceeded", limit.as_secs_f64())]
    RequestTimeout { limit: Duration },
    #[error("the client's deadline has passed")]
    Deadline,
    #[error("the server is shutting down; try another one")]
    Stopping,
    /// The inputs differ from those that the model declares.
    #[error(transparent)]
    InvalidInput(#[from] InvalidInput),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// The error of an identical request that this one was coalesced with.
    #[error(transparent)]
    Shared(Arc<Self>),
}

impl InferenceError {
    /// Returns the kind, which decides the status.
    pub fn kind(&self) -> RequestErrorKind {
        match self {
            Self::NotFound(_) => RequestErrorKind::NotFound,
            Self::Shared(error) => error.kind(),
            Self::Compute(error) if error.is_overload() => RequestErrorKind::Overloaded,
            Self::Compute(_) => RequestErrorKind::Internal,
            Self::NotReady { .. } => RequestErrorKind::NotReady,
            Self::InvalidInput(_) => RequestErrorKind::BadRequest,
            Self::OverBudget(OverBudget::TooLarge { .. }) => RequestErrorKind::TooLarge,
            Self::Overloaded { .. }
            | Self::OverBudget(OverBudget::InUse { .. })
            | Self::TooManyStreams { .. }
            | Self::QueueFull(_)
            | Self::QueueTimeout { .. } => RequestErrorKind::Overloaded,
            Self::PredictTimeout { .. } | Self::RequestTimeout { .. } | Self::StreamIdle { .. } | Self::Deadline => {
                RequestErrorKind::Timeout
            }
            Self::Stopping => RequestErrorKind::Stopping,
            Self::Runtime(error) => error.kind(),
        }
    }
}

impl InferenceError {
    /// Reports whether the model can run no request now, but may be able to later.
    pub fn is_unavailable(&self) -> bool {
        self.kind() == RequestErrorKind::Unavailable
    }

    /// Reports whether the client's own deadline has passed.
    pub fn is_deadline(&self) -> bool {
        match self {
            Self::Deadline => true,
            Self::Shared(error) => error.is_deadline(),
            _ => false,
        }
    }

    /// Names what the server or the model has failed at. `None` if the client, or the number of requests, is the reason.
    fn server_fault(&self) -> Option<&'static str> {
        match self.kind() {
            RequestErrorKind::NotFound
            | RequestErrorKind::NotReady
            | RequestErrorKind::BadRequest
            | RequestErrorKind::NothingRan
            | RequestErrorKind::TooLarge
            | RequestErrorKind::OverBudget
            | RequestErrorKind::Overloaded
            | RequestErrorKind::Stopping
            | RequestErrorKind::Rejected { status: ..500 } => None,
            RequestErrorKind::Timeout => {
                self.dropped().filter(|reason| !matches!(*reason, "deadline" | "stream_idle_timeout"))
            }
            RequestErrorKind::BadRepository | RequestErrorKind::LoadFailed => Some("load"),
            RequestErrorKind::Rejected { .. } | RequestErrorKind::ModelFailed => Some("model"),
            RequestErrorKind::WorkerLost | RequestErrorKind::Unavailable => Some("worker"),
            RequestErrorKind::Internal => Some("internal"),
        }
    }

    /// Returns the error of the runtime, if there is one.
    pub(super) fn of_runtime(&self) -> Option<&RuntimeError> {
        match self {
            Self::Runtime(error) => Some(error),
            Self::Shared(error) => error.of_runtime(),
            _ => None,
        }
    }

    /// Returns the reason for metrics if the request was dropped because of overload or a timeout.
    pub(super) fn dropped(&self) -> Option<&'static str> {
        match self {
            Self::Overloaded { .. } => Some("max_in_flight"),
            Self::OverBudget(_) => Some(MAX_REQUEST_BYTES),
            Self::Runtime(error) if error.kind() == RequestErrorKind::OverBudget => Some(MAX_REQUEST_BYTES),
            Self::TooManyStreams { .. } => Some("max_streams"),
            Self::StreamIdle { .. } => Some("stream_idle_timeout"),
            Self::QueueFull(full) => Some(full.reason()),
            Self::QueueTimeout { .. } => Some("queue_timeout"),
            Self::PredictTimeout { .. } => Some("predict_timeout"),
            Self::RequestTimeout { .. } => Some("request_timeout"),
            Self::Deadline => Some("deadline"),
            Self::Shared(error) => error.dropped(),
            _ => None,
        }
    }
}

/// Logs the error of a request. Errors that clients cause, or that only say that there are too many of them, are DEBUG lines;
/// metrics count them. The others are ERROR lines, of which a model has a limited number. Failures of a model's code have been
/// logged by its runtime.
pub(super) fn log_failure(model: &RegisteredModel, id: &str, failure: &InferenceError) {
    let (name, version) = (model.name.as_str(), model.version.as_deref());
    let Some(kind) = failure.server_fault() else {
        if enabled!(Level::DEBUG) {
            debug!(model = name, version, request_id = id, reason = chain(failure), "Rejected a request.");
        }
        return;
    };
    let of_runtime = failure.of_runtime();
    if of_runtime.is_some_and(RuntimeError::mark_logged) {
        return;
    }
    let label = (name.to_owned(), version.map(str::to_owned));
    let summarize = move |suppressed| {
        let (model, version) = label;
        error!(model, version, kind, "Failed to answer {suppressed} more requests.");
    };
    if model.failure_log.allows(kind, summarize) {
        let reason = chain(failure);
        match of_runtime.map_or("", RuntimeError::traceback) {
            "" => error!(model = name, version, request_id = id, reason, "Failed to answer a request."),
            traceback => {
                error!(model = name, version, request_id = id, reason, "Failed to answer a request.\n{traceback}");
            }
        }
    }
}
