//! Payloads in JSON, with binary data after it: what headers declare of them.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName};

/// The header with the number of bytes of JSON in a payload, without compression; binary data follows them.
pub(super) const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

/// A complete payload.
#[derive(Debug)]
pub(super) struct Payload {
    pub(super) json: Bytes,
    /// The bytes after the JSON. `None` if all of it is JSON.
    pub(super) binary: Option<Bytes>,
}

/// A payload that is not what its headers declare.
#[derive(Debug, thiserror::Error)]
pub(super) enum PayloadError {
    #[error("the content type `{found}` is not supported: send application/json or application/octet-stream")]
    ContentType { found: String },
    #[error("the header `{JSON_LENGTH}` is `{found}`, expected one number: the bytes of JSON before the binary data")]
    JsonLength { found: String },
    #[error("the header `{JSON_LENGTH}` is {length}, but the body has {found} bytes")]
    JsonBeyondBody { length: usize, found: usize },
}

impl Payload {
    /// Splits a payload at the end of its JSON, if that is known.
    pub(super) fn split(mut json: Bytes, json_length: Option<usize>) -> Result<Self, PayloadError> {
        let found = json.len();
        let binary = match json_length {
            Some(length) if length > found => return Err(PayloadError::JsonBeyondBody { length, found }),
            Some(length) => Some(json.split_off(length)),
            None => None,
        };
        Ok(Self { json, binary })
    }
}

/// Returns how many bytes of a payload are JSON, if binary data follows them.
pub(super) fn json_length(headers: &HeaderMap) -> Result<Option<usize>, PayloadError> {
    let mut values = headers.get_all(JSON_LENGTH).iter();
    let (first, second) = (values.next(), values.next());
    let Some(value) = first else { return Ok(None) };
    let length = value.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match length.and_then(|text| text.parse().ok()) {
        Some(length) if second.is_none() => Ok(Some(length)),
        _ => {
            let all: Vec<_> =
                headers.get_all(JSON_LENGTH).iter().map(|value| String::from_utf8_lossy(value.as_bytes())).collect();
            Err(PayloadError::JsonLength { found: all.join(", ").chars().take(100).collect() })
        }
    }
}

/// Accepts the media types of JSON, a missing or empty type, and `application/octet-stream`, as which clients of the binary extension
/// also send bodies of JSON alone.
pub(super) fn check_content_type(headers: &HeaderMap) -> Result<(), PayloadError> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    if value == "application/json" {
        return Ok(());
    }
    let text = String::from_utf8_lossy(value.as_bytes());
    let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let known = matches!(essence.as_str(), "" | "application/json" | "application/octet-stream")
        || (essence.starts_with("application/") && essence.ends_with("+json"));
    if known { Ok(()) } else { Err(PayloadError::ContentType { found: text.chars().take(100).collect() }) }
}
