//! The kinds of failures of requests, from the runtime of a model to every transport.

use http::StatusCode;

/// What a failure means for the client. Each transport has one table from these to its own statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestErrorKind {
    /// The model does not exist, or another model that it asks does not.
    NotFound,
    /// The model is being loaded, or its code reports that it is not ready.
    NotReady,
    /// The model cannot answer this request; retrying does not help.
    BadRequest,
    /// The repository lacks what a model's settings refer to, or contains settings that cannot be read.
    BadRepository,
    /// A model exists but does not load.
    LoadFailed,
    /// The request or its response takes more memory than any may.
    TooLarge,
    /// The response would take more memory than is free now.
    OverBudget,
    /// Too many requests wait or are in flight, or a step was rejected because of overload.
    Overloaded,
    /// There was no response before a timeout or the client's deadline.
    Timeout,
    /// The server is shutting down.
    Stopping,
    /// No step of a graph answers the request: it fulfills no condition.
    NothingRan,
    /// The model's code rejected the request with a message and this status, which are meant for the client.
    Rejected { status: u16 },
    /// The model's code failed in a way that is not meant for the client.
    ModelFailed,
    /// The process that was answering the request has ended.
    WorkerLost,
    /// No process can answer the request, or the model is not in memory and cannot be loaded.
    Unavailable,
    /// A bug of the server.
    Internal,
}

impl RequestErrorKind {
    /// Returns the HTTP status, which Kafka's dead letters and the steps of models in Python carry, too.
    pub fn http_status(self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            // The protocol and the original use 400, not 503.
            Self::NotReady | Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::BadRepository | Self::NothingRan => StatusCode::UNPROCESSABLE_ENTITY,
            // A number that is not a valid status becomes 500.
            Self::Rejected { status } => StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
            Self::OverBudget | Self::Overloaded | Self::Stopping | Self::WorkerLost | Self::Unavailable => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Self::ModelFailed | Self::LoadFailed | Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Reports whether fewer requests at a time would have prevented the failure.
    pub const fn is_overload(self) -> bool {
        matches!(self, Self::OverBudget | Self::Overloaded)
    }
}

/// Returns an error and its causes as one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
