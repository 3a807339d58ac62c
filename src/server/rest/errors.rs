//! The HTTP statuses of errors.

use std::borrow::Cow;

use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};

use super::body::BodyError;
use super::caller::CallerError;
use super::respond::{self, Response};
use crate::access::Refusal;
use crate::admin::AdminError;
use crate::compute::ComputeError;
use crate::inference::InferenceError;
use crate::server::deadline::DeadlineError;
use crate::server::panic_boundary::RequestPanicked;
use crate::server::priority::PriorityError;
use crate::server::{SlowBody, access_control, status};
use crate::types::OverBudget;
use crate::types::json::{EventError, ReadError, V1Error, WriteError};
use crate::types::text::TextError;

/// All errors that end a request.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error(transparent)]
    Body(#[from] BodyError),
    #[error(transparent)]
    Read(#[from] ReadError),
    // Boxed, so that the results of ordinary requests stay small.
    #[error(transparent)]
    V1(Box<V1Error>),
    #[error(transparent)]
    Event(Box<EventError>),
    /// In the words of another protocol.
    #[error("{message}")]
    Other { status: StatusCode, message: Cow<'static, str> },
    #[error(transparent)]
    Deadline(#[from] DeadlineError),
    #[error(transparent)]
    Priority(#[from] PriorityError),
    #[error(transparent)]
    Inference(#[from] InferenceError),
    #[error(transparent)]
    Admin(#[from] AdminError),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Compute(#[from] ComputeError),
    #[error(transparent)]
    Caller(#[from] CallerError),
    #[error(transparent)]
    Refused(Box<Refusal>),
    #[error(transparent)]
    RequestPanicked(#[from] RequestPanicked),
}

/// The reasons why the body of an index request is invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum IndexError {
    #[error("the body is not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the body is not valid JSON: {0}")]
    Encoding(TextError),
    #[error("the body must be a JSON object, such as {{}} or {{\"ready\": true}}")]
    NoObject,
    #[error("`ready`: expected true or false, found `{found}`")]
    Ready { found: String },
}

impl From<V1Error> for RequestError {
    fn from(error: V1Error) -> Self {
        Self::V1(Box::new(error))
    }
}

impl From<EventError> for RequestError {
    fn from(error: EventError) -> Self {
        Self::Event(Box::new(error))
    }
}

impl From<Refusal> for RequestError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(Box::new(refusal))
    }
}

impl From<OverBudget> for RequestError {
    fn from(error: OverBudget) -> Self {
        Self::Inference(error.into())
    }
}

impl RequestError {
    /// Creates an error in the words of another protocol.
    pub(super) fn other(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self::Other { status, message: message.into() }
    }

    /// Returns the status, which for overload is a setting.
    pub(super) fn status(&self, overload_as_429: bool) -> StatusCode {
        match self {
            _ if overload_as_429 && self.is_overload() => StatusCode::TOO_MANY_REQUESTS,
            Self::Body(error) => match error {
                BodyError::TooLarge { .. }
                | BodyError::Ratio(_)
                | BodyError::OverBudget(OverBudget::TooLarge { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
                BodyError::OverBudget(OverBudget::InUse { .. }) => StatusCode::SERVICE_UNAVAILABLE,
                BodyError::Compute(error) if error.is_overload() => StatusCode::SERVICE_UNAVAILABLE,
                BodyError::Compute(_) => StatusCode::INTERNAL_SERVER_ERROR,
                BodyError::Interrupted(reason) if reason.is::<SlowBody>() => StatusCode::REQUEST_TIMEOUT,
                BodyError::Interrupted(_) | BodyError::Compression { .. } => StatusCode::BAD_REQUEST,
                BodyError::Encoding { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
                BodyError::Payload(error) => status::of_payload(error),
            },
            Self::Read(ReadError::ParametersTooLong { .. }) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Read(error) if error.is_mismatch() => StatusCode::BAD_REQUEST,
            Self::Read(_) | Self::Index(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Event(error) if matches!(**error, EventError::Batch { .. }) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Deadline(_) | Self::Priority(_) | Self::V1(_) | Self::Event(_) => StatusCode::BAD_REQUEST,
            Self::Caller(error) => error.status(),
            Self::Refused(refusal) => access_control::status(refusal),
            Self::Other { status, .. } => *status,
            Self::Inference(error) => error.kind().http_status(),
            Self::Admin(error) => error.kind().http_status(),
            Self::Compute(error) if error.is_overload() => StatusCode::SERVICE_UNAVAILABLE,
            Self::Write(_) | Self::Compute(_) | Self::RequestPanicked(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn is_overload(&self) -> bool {
        match self {
            Self::Inference(error) => error.kind().is_overload(),
            Self::Admin(error) => error.kind().is_overload(),
            Self::Body(BodyError::OverBudget(OverBudget::InUse { .. })) => true,
            Self::Body(BodyError::Compute(error)) | Self::Compute(error) => error.is_overload(),
            _ => false,
        }
    }

    pub(super) fn response(&self, overload_as_429: bool) -> Response {
        let mut response = respond::error(self.status(overload_as_429), &self.to_string());
        if self.status(false) == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::NotFound;
    use crate::server::payload::PayloadError;

    #[tokio::test]
    async fn http_status_is_defined_for_every_error() {
        let panic = || tokio::spawn(async { panic!("boom") });
        let table: Vec<(RequestError, u16)> = vec![
            (BodyError::TooLarge { limit: 1 }.into(), 413),
            (BodyError::OverBudget(OverBudget::TooLarge { bytes: 2, limit: 1 }).into(), 413),
            (BodyError::OverBudget(OverBudget::InUse { in_use: 2, limit: 3 }).into(), 503),
            (BodyError::Compression { encoding: "gzip", error: std::io::Error::other("bad") }.into(), 400),
            (BodyError::from(PayloadError::JsonLength { found: "x".to_owned() }).into(), 400),
            (BodyError::from(PayloadError::JsonBeyondBody { length: 2, found: 1 }).into(), 400),
            (BodyError::Interrupted("gone".into()).into(), 400),
            (BodyError::Encoding { found: "br".to_owned() }.into(), 415),
            (BodyError::from(PayloadError::ContentType { found: "text/plain".to_owned() }).into(), 422),
            (DeadlineError { found: "soon".to_owned() }.into(), 400),
            (PriorityError { found: "high".to_owned() }.into(), 400),
            (ReadError::Missing { path: "inputs".to_owned() }.into(), 422),
            (ReadError::Ragged { input: "x".to_owned(), index: 0 }.into(), 400),
            (ReadError::TooManyParts { limit: 1 }.into(), 400),
            (ReadError::ParametersTooLong { limit: 1 }.into(), 413),
            (InferenceError::NotFound(NotFound::Model { name: "m".to_owned() }).into(), 404),
            (InferenceError::NotReady { name: "m".to_owned(), version: None }.into(), 400),
            (InferenceError::Overloaded { limit: 1 }.into(), 503),
            (InferenceError::OverBudget(OverBudget::TooLarge { bytes: 2, limit: 1 }).into(), 413),
            (InferenceError::OverBudget(OverBudget::InUse { in_use: 2, limit: 3 }).into(), 503),
            (InferenceError::Deadline.into(), 504),
            (InferenceError::Stopping.into(), 503),
            (AdminError::NotFound(NotFound::Model { name: "m".to_owned() }).into(), 404),
            (AdminError::Overloaded { limit: 1 }.into(), 503),
            (AdminError::Stopping.into(), 503),
            (IndexError::Ready { found: "5".to_owned() }.into(), 422),
            (ReadError::BinaryLeft { found: 1 }.into(), 400),
            (V1Error::Missing.into(), 400),
            (EventError::NoData.into(), 400),
            (EventError::Batch { found: "application/cloudevents-batch+json".to_owned() }.into(), 415),
            (WriteError::NotUtf8 { output: "o".to_owned(), index: 0 }.into(), 500),
            (WriteError::NonFinite { output: "o".to_owned(), index: 0, found: "NaN" }.into(), 500),
            (ComputeError::Panicked(panic().await.unwrap_err()).into(), 500),
            (ComputeError::Full { limit: 1 }.into(), 503),
        ];
        for (error, status) in table {
            let response = error.response(false);
            assert_eq!(response.status(), status, "{error:?}");
            assert_eq!(response.headers().contains_key(RETRY_AFTER), status == 503, "{error:?}");
        }
        let overloaded = RequestError::from(InferenceError::Overloaded { limit: 1 }).response(true);
        assert_eq!((overloaded.status().as_u16(), overloaded.headers().contains_key(RETRY_AFTER)), (429, true));
        assert_eq!(RequestError::from(InferenceError::Stopping).response(true).status(), 503);
    }
}
