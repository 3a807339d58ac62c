//! Uploads to Google Cloud Storage, by sessions of its JSON API.
//!
//! The crate `object_store` sends parts to the XML API. Emulators do not have it, and the crate requests a token for it even if there are no
//! credentials.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use object_store::gcp::GcpCredentialProvider;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::error::{CredentialsError, FetchError};
use super::part::{shortened, store_error};
use super::transport::{PassingFailure, Transport};
use crate::http_client::{HttpStream, Url};

/// The longest answer, in bytes.
const MAX_ANSWER: usize = 64 << 10;

/// Writes objects of a bucket. Each upload is a session, to which pieces are sent one after the other.
pub(super) struct GoogleUploads {
    transport: Transport,
    endpoint: Url,
    /// `None` for requests without a token.
    tokens: Option<GcpCredentialProvider>,
}

impl fmt::Debug for GoogleUploads {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("GoogleUploads").field("endpoint", &self.endpoint.as_str()).finish_non_exhaustive()
    }
}

/// What a store has of an upload.
#[derive(Debug)]
pub(super) enum SessionState {
    /// So many bytes.
    Partial(u64),
    /// The object, with so many bytes if the store tells it.
    Complete(Option<u64>),
    /// Nothing: the session has ended, or was never started.
    Gone,
    /// It is not known, because the request failed. The next request has to ask for it, `retry_after` if the store names a time.
    Unknown { error: FetchError, retry_after: Option<Duration> },
}

impl GoogleUploads {
    /// Prepares uploads to a bucket of the server at `base`.
    ///
    /// # Errors
    ///
    /// Fails if `base` is not a URL.
    pub(super) fn new(
        base: &str,
        bucket: &str,
        transport: Transport,
        tokens: Option<GcpCredentialProvider>,
    ) -> Result<Self, CredentialsError> {
        let bucket = utf8_percent_encode(bucket, NON_ALPHANUMERIC);
        let endpoint = Url::parse(&format!("{base}/upload/storage/v1/b/{bucket}/o"));
        let endpoint = endpoint.map_err(|error| CredentialsError::Store(format!("invalid URL `{base}`: {error}")))?;
        Ok(Self { transport, endpoint, tokens })
    }

    /// Starts a session for an object, and returns its ID.
    pub(super) async fn start(&self, key: &str, credentials: &str) -> Result<String, FetchError> {
        let url = self.url(key, None);
        let headers = self.headers(credentials).await?;
        let response = self.transport.send(&Method::POST, &url, &headers, &Bytes::new()).await?;
        if !response.status.is_success() {
            return Err(refusal(response, credentials).await);
        }
        // Only the ID is taken: an emulator may name a host that this machine cannot reach.
        let location = response.headers.get(LOCATION).and_then(|value| Url::parse(value.to_str().ok()?).ok());
        let id = location
            .and_then(|url| url.query_pairs().find(|(name, _)| name == "upload_id").map(|(_, id)| id.into_owned()));
        id.ok_or_else(|| FetchError::Store("the server started an upload without an ID".to_owned()))
    }

    /// Sends the bytes from `start` on to an object of `size` bytes, once. Without bytes, it asks what the store has.
    pub(super) async fn send(
        &self,
        key: &str,
        id: &str,
        start: u64,
        data: &Bytes,
        size: u64,
        credentials: &str,
    ) -> Result<SessionState, FetchError> {
        let mut headers = self.headers(credentials).await?;
        let range = match data.len() as u64 {
            0 => format!("bytes */{size}"),
            length => format!("bytes {start}-{}/{size}", start + length - 1),
        };
        headers.insert(CONTENT_RANGE, HeaderValue::try_from(range).map_err(|error| other(&error))?);
        let answer = self.transport.send_once(&Method::PUT, &self.url(key, Some(id)), headers, data.clone()).await;
        let failure = PassingFailure::of(&answer);
        let response = match (answer, failure) {
            (Ok(response), Some(PassingFailure { retry_after })) => {
                return Ok(SessionState::Unknown { error: refusal(response, credentials).await, retry_after });
            }
            (Err(error), Some(PassingFailure { retry_after })) => {
                return Ok(SessionState::Unknown { error: error.into(), retry_after });
            }
            (answer, None) => answer?,
        };
        match response.status {
            StatusCode::PERMANENT_REDIRECT => Ok(SessionState::Partial(received(&response.headers))),
            StatusCode::NOT_FOUND | StatusCode::GONE => Ok(SessionState::Gone),
            status if status.is_success() => match response.collect(MAX_ANSWER).await {
                Ok(body) => Ok(SessionState::Complete(object_size(&body))),
                Err(error) => match FetchError::from(error) {
                    error if error.may_pass() => Ok(SessionState::Unknown { error, retry_after: None }),
                    error => Err(error),
                },
            },
            _ => Err(refusal(response, credentials).await),
        }
    }

    /// Ends a session. If that fails, the store ends it after a week.
    pub(super) async fn abort(&self, key: &str, id: &str, credentials: &str) {
        if let Ok(headers) = self.headers(credentials).await {
            let _ = self.transport.send(&Method::DELETE, &self.url(key, Some(id)), &headers, &Bytes::new()).await;
        }
    }

    fn url(&self, key: &str, id: Option<&str>) -> Url {
        let mut url = self.endpoint.clone();
        url.query_pairs_mut().append_pair("uploadType", "resumable").append_pair("name", key);
        if let Some(id) = id {
            url.query_pairs_mut().append_pair("upload_id", id);
        }
        url
    }

    async fn headers(&self, credentials: &str) -> Result<HeaderMap, FetchError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        if let Some(tokens) = &self.tokens {
            let token = tokens.get_credential().await.map_err(|error| store_error(&error, credentials))?;
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.bearer)).map_err(|error| other(&error))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        Ok(headers)
    }
}

/// Returns how many bytes a session has. Without the header, it has none.
fn received(headers: &HeaderMap) -> u64 {
    let range = headers.get(RANGE).and_then(|value| value.to_str().ok());
    let last = range.and_then(|range| range.rsplit_once('-')?.1.parse::<u64>().ok());
    last.map_or(0, |last| last.saturating_add(1))
}

/// Returns the size of the object that an answer describes.
fn object_size(body: &[u8]) -> Option<u64> {
    let object: Value = serde_json::from_slice(body).ok()?;
    object.get("size")?.as_str()?.parse().ok()
}

/// Converts an answer with an error.
async fn refusal(response: HttpStream, credentials: &str) -> FetchError {
    let status = response.status;
    let body = response.collect(MAX_ANSWER).await.unwrap_or_default();
    let message = serde_json::from_slice::<Value>(&body).ok();
    let message = message.as_ref().and_then(|body| body.pointer("/error/message")?.as_str());
    let text = shortened(message.unwrap_or(&String::from_utf8_lossy(&body)));
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            let reason = if text.is_empty() { status.to_string() } else { text };
            FetchError::Denied { credentials: credentials.to_owned(), reason }
        }
        _ => FetchError::Status { status, body: Some(text).filter(|text| !text.is_empty()) },
    }
}

fn other(error: &impl ToString) -> FetchError {
    FetchError::Store(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_tell_how_much_they_have() {
        let of = |range: &'static str| received(&HeaderMap::from_iter([(RANGE, HeaderValue::from_static(range))]));
        assert_eq!(of("bytes=0-8388607"), 8_388_608);
        assert_eq!(of("bytes=0-0"), 1);
        for range in ["", "bytes", "bytes=0-x", "bytes=0-99999999999999999999999"] {
            assert_eq!(of(range), 0, "{range}");
        }
        assert_eq!(received(&HeaderMap::new()), 0);
        assert_eq!(object_size(br#"{"size":"12"}"#), Some(12));
        assert_eq!(object_size(b"OK"), None);
    }
}
