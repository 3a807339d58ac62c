//! The one table from kinds of errors to HTTP statuses, which Kafka's dead letters carry, too.

use http::StatusCode;

use super::payload::PayloadError;
use crate::inference::InferenceErrorKind;

/// Returns the HTTP status of a kind.
pub(super) fn of_kind(kind: InferenceErrorKind) -> StatusCode {
    match kind {
        InferenceErrorKind::NotFound => StatusCode::NOT_FOUND,
        // The protocol and the original use 400, not 503.
        InferenceErrorKind::NotReady | InferenceErrorKind::BadRequest => StatusCode::BAD_REQUEST,
        InferenceErrorKind::BadRepository => StatusCode::UNPROCESSABLE_ENTITY,
        // A number that is not a valid status becomes 500.
        InferenceErrorKind::Model { status } => {
            StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        }
        InferenceErrorKind::Overloaded | InferenceErrorKind::Stopping | InferenceErrorKind::WorkerLost => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        InferenceErrorKind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        InferenceErrorKind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        InferenceErrorKind::ModelFailed | InferenceErrorKind::LoadFailed | InferenceErrorKind::Internal => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

/// Returns the HTTP status of a payload whose form is not as declared.
pub(super) const fn of_payload(error: &PayloadError) -> StatusCode {
    match error {
        PayloadError::ContentType { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        PayloadError::JsonLength { .. } | PayloadError::JsonBeyondBody { .. } => StatusCode::BAD_REQUEST,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_status_of_rare_kinds() {
        assert_eq!(of_kind(InferenceErrorKind::BadRequest), 400);
        assert_eq!(of_kind(InferenceErrorKind::BadRepository), 422);
        assert_eq!(of_kind(InferenceErrorKind::LoadFailed), 500);
        assert_eq!(of_kind(InferenceErrorKind::Internal), 500);
    }
}
