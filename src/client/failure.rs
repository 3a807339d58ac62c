//! Why a request has no answer, and what to do about it.

use std::fmt;
use std::time::Duration;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestFailure {
    pub kind: FailureKind,
    /// What the server says, or what happened to the connection.
    pub message: String,
    /// The status, when there was an answer: of HTTP, or of gRPC by name.
    pub status: Option<String>,
    /// How long the server wants to be left alone.
    pub retry_after: Option<Duration>,
}

/// What a failure means for the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection can be made.
    Unreachable,
    /// The connection ended, or time was up, before the answer came.
    ConnectionLost,
    /// The server has too much to do.
    Overloaded,
    /// The server, or something before it, cannot answer now.
    Unavailable,
    /// The model is unknown or the caller is: it may be the same for every request.
    AllRequests,
    /// This request will never be answered.
    Rejected,
}

impl FailureKind {
    /// Tells whether the same request may be answered another time.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Unreachable | Self::ConnectionLost | Self::Overloaded | Self::Unavailable)
    }

    /// Tells whether a part of the rows may be answered although all together are not.
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

/// Returns the text of an error with those of its causes that it does not contain.
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
