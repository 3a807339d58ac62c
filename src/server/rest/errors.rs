//! The HTTP statuses of errors.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::body::BodyError;
use super::caller::CallerError;
use super::event_stream;
use super::respond::{self, Response};
use crate::access::Refusal;
use crate::admin::AdminError;
use crate::compute::ComputeError;
use crate::inference::InferenceError;
use crate::server::deadline::DeadlineError;
use crate::server::panic_boundary::RequestPanicked;
use crate::server::priority::PriorityError;
use crate::server::{SlowBody, access_control, status};
use crate::types::json::openai::OpenAiError;
use crate::types::json::{EventError, ReadError, V1Error, WriteError};
use crate::types::text::TextError;
use crate::types::{OverBudget, RequestErrorKind};

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
    #[error(transparent)]
    OpenAi(Box<OpenAiError>),
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

impl From<OpenAiError> for RequestError {
    fn from(error: OpenAiError) -> Self {
        Self::OpenAi(Box::new(error))
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
            Self::Deadline(_) | Self::Priority(_) | Self::V1(_) | Self::Event(_) | Self::OpenAi(_) => {
                StatusCode::BAD_REQUEST
            }
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

    pub(super) fn response(&self, format: ErrorFormat, overload_as_429: bool) -> Response {
        let (mut response, usual) = match format {
            ErrorFormat::V2 => (respond::error(self.status(overload_as_429), &self.to_string()), self.status(false)),
            ErrorFormat::OpenAi => {
                let status = self.openai_status(overload_as_429);
                (respond::json(status, &self.openai_body(status)), self.openai_status(false))
            }
        };
        if usual == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// The form of the errors of a route.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ErrorFormat {
    /// `{"error": "…"}`, the form of every other route.
    #[default]
    V2,
    /// That of OpenAI's API.
    OpenAi,
}

impl ErrorFormat {
    /// Creates the response of an error that ends a request before its handler.
    pub(super) fn error(self, status: StatusCode, message: &str) -> Response {
        match self {
            Self::V2 => respond::error(status, message),
            Self::OpenAi => respond::json(status, &openai_error(status, message, None)),
        }
    }
}

/// Returns the body of an error of OpenAI's API, whose clients choose the exception by the status, and show `code` and `param`.
fn openai_error(status: StatusCode, message: &str, param: Option<&str>) -> Value {
    let (kind, code) = match status {
        StatusCode::UNAUTHORIZED => ("invalid_request_error", Some("invalid_api_key")),
        StatusCode::FORBIDDEN => ("permission_error", None),
        StatusCode::TOO_MANY_REQUESTS => ("rate_limit_error", Some("rate_limit_exceeded")),
        StatusCode::SERVICE_UNAVAILABLE => ("server_error", Some("overloaded")),
        StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => ("server_error", Some("timeout")),
        StatusCode::NOT_FOUND if param == Some("model") => ("invalid_request_error", Some("model_not_found")),
        status if status.is_server_error() => ("server_error", None),
        _ => ("invalid_request_error", None),
    };
    json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
}

impl RequestError {
    /// Returns the status on routes of OpenAI's API, where 400 and 422 are not told apart, and clients ask again only after 503.
    fn openai_status(&self, overload_as_429: bool) -> StatusCode {
        match self.status(overload_as_429) {
            StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
            _ if self.is_kind(RequestErrorKind::NotReady) => StatusCode::SERVICE_UNAVAILABLE,
            status => status,
        }
    }

    fn is_kind(&self, kind: RequestErrorKind) -> bool {
        matches!(self, Self::Inference(error) if error.kind() == kind)
    }

    fn openai_body(&self, status: StatusCode) -> Value {
        let param = match self {
            Self::OpenAi(error) => error.param,
            _ if self.is_kind(RequestErrorKind::NotFound) => Some("model"),
            _ => None,
        };
        openai_error(status, &self.to_string(), param)
    }

    /// Writes the error as the last event of a stream of OpenAI's API.
    pub(super) fn openai_event(&self, overload_as_429: bool) -> Bytes {
        event_stream::data(self.openai_body(self.openai_status(overload_as_429)).to_string().as_bytes())
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
            let response = error.response(ErrorFormat::V2, false);
            assert_eq!(response.status(), status, "{error:?}");
            assert_eq!(response.headers().contains_key(RETRY_AFTER), status == 503, "{error:?}");
        }
        let overloaded = RequestError::from(InferenceError::Overloaded { limit: 1 }).response(ErrorFormat::V2, true);
        assert_eq!((overloaded.status().as_u16(), overloaded.headers().contains_key(RETRY_AFTER)), (429, true));
        assert_eq!(RequestError::from(InferenceError::Stopping).response(ErrorFormat::V2, true).status(), 503);
    }
}
