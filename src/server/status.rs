//! The HTTP statuses of payloads that cannot be read.

use http::StatusCode;

use super::payload::PayloadError;

/// Returns the HTTP status of a payload whose form is not as declared.
pub(super) const fn of_payload(error: &PayloadError) -> StatusCode {
    match error {
        PayloadError::ContentType { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        PayloadError::JsonLength { .. } | PayloadError::JsonBeyondBody { .. } => StatusCode::BAD_REQUEST,
    }
}
