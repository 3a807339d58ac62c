//! Why a request has no answer, and whether to retry it.

use std::fmt;
use std::time::Duration;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestFailure {
    pub kind: FailureKind,
    /// The server's message, or what happened to the connection.
    pub message: String,
    /// The status of the response, if there was one: the HTTP status code, or the name of the gRPC code.
    pub status: Option<String>,
    /// The server's `Retry-After`.
    pub retry_after: Option<Duration>,
}

/// What a failure means for the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection can be made.
    Unreachable,
    /// The connection ended, or the timeout passed, before the answer came.
    ConnectionLost,
    /// The server is overloaded.
    Overloaded,
    /// The server, or a proxy in front of it, cannot answer now.
    Unavailable,
    /// The model is unknown, or the caller is not authorized: every request may fail.
    AllRequests,
    /// The request was rejected; a retry cannot help.
    Rejected,
}

impl FailureKind {
    /// Reports whether a retry of the same request may succeed.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Unreachable | Self::ConnectionLost | Self::Overloaded | Self::Unavailable)
    }

    /// Reports whether some of the rows may be answered although all of them together are not.
    pub const fn may_be_caused_by_one_row(self) -> bool {
        matches!(self, Self::ConnectionLost | Self::Unavailable | Self::Rejected)
    }
}

impl RequestFailure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), status: None, retry_after: None }
    }
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.status {
            Some(status) => write!(f, "{} ({status})", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for RequestFailure {}

/// Returns the message of an error, followed by those of its causes that it does not contain.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = cause.source();
    }
    text
}
