//! Why a request has no answer, and whether to retry it.

use std::fmt;
use std::time::Duration;

use super::printable::server_text;
use super::{OpenAiAnswer, ResponseStatus};
use crate::http_client::HttpError;

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestFailure {
    pub kind: FailureKind,
    /// The server's message, or what happened to the connection.
    pub message: String,
    /// The status of the response, if there was one.
    pub status: Option<ResponseStatus>,
    /// The server's `Retry-After`.
    pub retry_after: Option<Duration>,
    /// The whole response, if the request was one of OpenAI's API.
    pub answer: Option<Box<OpenAiAnswer>>,
}

/// What a failure means for the next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection can be made.
    Unreachable,
    /// The connection ended before the answer came.
    ConnectionLost,
    /// The timeout passed before the answer came.
    TimedOut,
    /// The server is overloaded.
    Overloaded,
    /// The server, or a proxy in front of it, cannot answer now.
    Unavailable,
    /// The model is unknown, or the caller is not authorized: every request may fail.
    AllRequests,
    /// No request can be answered: the address, a proxy or the options are wrong.
    Fatal,
    /// The request was rejected; a retry cannot help.
    Rejected,
    /// Two servers gave different answers.
    Different,
}

impl FailureKind {
    /// Reports whether a retry of the same request may succeed.
    pub const fn is_retryable(self) -> bool {
        matches!(self, Self::Unreachable | Self::ConnectionLost | Self::TimedOut | Self::Overloaded | Self::Unavailable)
    }

    /// Reports whether some of the rows may be answered although all of them together are not.
    pub const fn may_be_caused_by_one_row(self) -> bool {
        matches!(self, Self::ConnectionLost | Self::TimedOut | Self::Unavailable | Self::Rejected | Self::Different)
    }
}

impl RequestFailure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), status: None, retry_after: None, answer: None }
    }

    /// Creates the failure of a response that cannot be read. The reason may contain text of the server.
    pub(super) fn unreadable(reason: &str) -> Self {
        let reason = server_text(reason);
        Self::new(FailureKind::Rejected, format!("cannot read the server's response: {reason}"))
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

impl From<HttpError> for RequestFailure {
    fn from(error: HttpError) -> Self {
        let kind = match error {
            HttpError::Setup { .. } | HttpError::Pem { .. } => FailureKind::Fatal,
            HttpError::Connect { .. } => FailureKind::Unreachable,
            HttpError::TimedOut { .. } => FailureKind::TimedOut,
            HttpError::Lost { .. } | HttpError::Truncated { .. } => FailureKind::ConnectionLost,
            HttpError::TooLarge { .. } | HttpError::Encoding { .. } | HttpError::OverBudget(_) => FailureKind::Rejected,
        };
        let hint = match &error {
            HttpError::Setup { cause } if cause.contains("CA certificates") => {
                "; install them (`ca-certificates`), or name a file with `--ca FILE`"
            }
            HttpError::Connect { cause, .. } if cause.contains("certificate") => {
                "; `--ca FILE` trusts another issuer, `--insecure` skips the verification"
            }
            HttpError::Lost { cause, .. } if cause.contains("CertificateRequired") => {
                "; `--cert FILE` presents a client certificate"
            }
            HttpError::TooLarge { .. } => ": send fewer rows per request",
            _ => "",
        };
        // A certificate may contain any text.
        Self::new(kind, server_text(&error.to_string()) + hint)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn http_error_maps_to_failure_kind() {
        let (server, cause) = ("h:1".to_owned(), "invalid peer certificate: UnknownIssuer".to_owned());
        let timed_out = HttpError::TimedOut { server: server.clone(), timeout: Duration::from_millis(1500) };
        let failure = RequestFailure::from(timed_out);
        assert_eq!(
            (failure.kind, failure.to_string().as_str()),
            (FailureKind::TimedOut, "no response from h:1 within 1.5 s")
        );
        let failure = RequestFailure::from(HttpError::Connect { server: server.clone(), cause, hint: None });
        assert_eq!(failure.kind, FailureKind::Unreachable);
        assert!(failure.message.ends_with("; `--ca FILE` trusts another issuer, `--insecure` skips the verification"));
        let cause = "received fatal alert: CertificateRequired".to_owned();
        let failure = RequestFailure::from(HttpError::Lost { server, cause });
        assert_eq!(failure.kind, FailureKind::ConnectionLost);
        assert!(failure.message.ends_with("; `--cert FILE` presents a client certificate"), "{failure}");
    }
}
