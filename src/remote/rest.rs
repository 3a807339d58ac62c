//! The client of the REST protocol.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;

use super::printable::{server_bytes, server_text};
use super::status::{fatal_message, header_text, kind_of_status, retry_after};
use super::{Endpoint, FailureKind, InferenceTarget, MAX_ANSWER, Observer, RequestFailure, ResponseStatus, Verbosity};
use crate::http_client::{BodyChunks, HttpClient, HttpOptions, HttpResponse, Url};
use crate::types::json::{read_response, write_request};
use crate::types::{InferenceRequest, InferenceResponse};

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const BINARY: HeaderValue = HeaderValue::from_static("application/octet-stream");
pub(super) const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");
/// The headers with the request's id, for the server's logs.
pub(super) const IDS: [HeaderName; 2] =
    [HeaderName::from_static("x-request-id"), HeaderName::from_static("seldon-puid")];

/// A model behind the REST protocol.
pub struct RestClient {
    client: HttpClient,
    infer: Url,
    ready: Url,
    index: Url,
    headers: HeaderMap,
    binary: bool,
    observer: Arc<dyn Observer>,
}

/// The options of both transports.
#[derive(Debug, Clone)]
pub struct TransportOptions {
    pub endpoint: Endpoint,
    pub model: String,
    /// `None` for the default version.
    pub version: Option<String>,
    /// Sent with each request.
    pub headers: HeaderMap,
    /// Sends tensors as binary data instead of text.
    pub binary: bool,
    /// The timeout for connecting, and for each response.
    pub timeout: Duration,
    /// Skips the verification of certificates.
    pub insecure: bool,
    /// A PEM file of root certificates that are trusted besides those of the system.
    pub ca: Option<PathBuf>,
    /// A PEM file of the client's certificate, and one of its key if that is in another file.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Uses HTTP/2 with prior knowledge.
    pub http2: bool,
}

impl TransportOptions {
    /// Connects nothing yet.
    pub(super) fn client(&self, http2: bool) -> Result<HttpClient, RequestFailure> {
        let options = HttpOptions {
            http2,
            insecure: self.insecure,
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            ..HttpOptions::new(self.timeout, MAX_ANSWER)
        };
        Ok(HttpClient::new(&self.endpoint.url("/"), &options)?)
    }

    /// Returns the headers of each request. A header that the user has set overrides the credentials in the address.
    pub(super) fn headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        if let Some(value) = self.endpoint.authorization() {
            headers.entry(AUTHORIZATION).or_insert_with(|| value.clone());
        }
        headers
    }
}

impl RestClient {
    /// # Errors
    ///
    /// Fails if TLS cannot be set up.
    pub fn new(options: TransportOptions, observer: Arc<dyn Observer>) -> Result<Self, RequestFailure> {
        let (client, mut headers) = (options.client(options.http2)?, options.headers());
        let TransportOptions { endpoint, model, version, binary, .. } = options;
        let path = model_path(&model, version.as_deref());
        headers.entry(CONTENT_TYPE).or_insert(if binary { BINARY } else { JSON });
        let (infer, ready) = (endpoint.url(&format!("{path}/infer")), endpoint.url(&format!("{path}/ready")));
        let index = endpoint.url("/v2/repository/index");
        Ok(Self { client, infer, ready, index, headers, binary, observer })
    }

    /// Returns the names of the models that the server has ready.
    ///
    /// # Errors
    ///
    /// Fails if the server does not list them.
    pub async fn ready_models(&self) -> Result<BTreeSet<String>, RequestFailure> {
        #[derive(Deserialize)]
        struct IndexLine {
            name: String,
        }
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, JSON);
        let body = std::iter::once(Bytes::from_static(br#"{"ready":true}"#)).collect();
        let answer = self.client.send(Method::POST, &self.index, headers, body).await?;
        if answer.status != StatusCode::OK {
            return Err(failure(&answer, &self.index));
        }
        let lines = serde_json::from_slice::<Vec<IndexLine>>(&answer.body);
        let lines = lines.map_err(|error| RequestFailure::unreadable(&error.to_string()))?;
        Ok(lines.into_iter().map(|line| line.name).collect())
    }

    async fn send(&self, request: &InferenceRequest) -> Result<InferenceResponse, RequestFailure> {
        let written = write_request(request, self.binary)
            .map_err(|error| RequestFailure::new(FailureKind::Rejected, error.to_string()))?;
        let mut headers = self.headers.clone();
        add_ids(&mut headers, &request.id);
        if self.binary {
            headers.insert(JSON_LENGTH, written.json.len().into());
        }
        show(&*self.observer, '>', &headers, &written.json);
        let body = std::iter::once(Bytes::from(written.json)).chain(written.binary).collect();
        let answer = self.client.send(Method::POST, &self.infer, headers, body).await?;
        show(&*self.observer, '<', &answer.headers, &answer.body);
        received(&answer, &self.infer)
    }
}

/// Adds the headers with the request's id, unless the user has set them.
pub(super) fn add_ids(headers: &mut HeaderMap, id: &str) {
    let Ok(id) = HeaderValue::from_str(id) else { return };
    for name in IDS {
        headers.entry(name).or_insert_with(|| id.clone());
    }
}

/// Shows what is sent or received, if that is asked for.
pub(super) fn show(observer: &dyn Observer, direction: char, headers: &HeaderMap, body: &[u8]) {
    if observer.verbosity() < Verbosity::Extra {
        return;
    }
    for (name, value) in headers {
        observer.trace(format_args!("{direction} {name}: {}", header_text(name, value)));
    }
    observer.trace(format_args!("{direction} {}", server_bytes(body)));
}

impl InferenceTarget for RestClient {
    fn infer<'a>(&'a self, request: &'a InferenceRequest) -> BoxFuture<'a, Result<InferenceResponse, RequestFailure>> {
        self.send(request).boxed()
    }

    fn check_available(&self) -> BoxFuture<'_, Result<(), RequestFailure>> {
        async {
            let (headers, body) = (self.headers.clone(), BodyChunks::default());
            let answer = self.client.send(Method::GET, &self.ready, headers, body).await?;
            // A server without this route does not implement the protocol. Not being ready is not a reason to give up: the
            // response to a request shows whether the model can answer it.
            match failure(&answer, &self.ready) {
                failure if answer.status != StatusCode::OK && failure.kind != FailureKind::Rejected => Err(failure),
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

/// Returns the path of a model, without a trailing slash.
pub(super) fn model_path(model: &str, version: Option<&str>) -> String {
    let escape = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string().replace("%2D", "-");
    let version = version.map(|version| format!("/versions/{}", escape(version))).unwrap_or_default();
    format!("/v2/models/{}{version}", escape(model))
}

/// Returns the response in an answer, or the failure that its status means.
pub(super) fn received(answer: &HttpResponse, url: &Url) -> Result<InferenceResponse, RequestFailure> {
    if answer.status == StatusCode::OK { read(answer) } else { Err(failure(answer, url)) }
}

fn read(answer: &HttpResponse) -> Result<InferenceResponse, RequestFailure> {
    let wrong = |reason: String| RequestFailure {
        status: Some(ResponseStatus::Http(answer.status.as_u16())),
        ..RequestFailure::unreadable(&reason)
    };
    let (json, binary) = match answer.headers.get(JSON_LENGTH) {
        None => (answer.body.clone(), None),
        Some(length) => {
            let length = length.to_str().ok().and_then(|text| text.parse::<usize>().ok());
            let length = length.filter(|length| *length <= answer.body.len());
            let length = length.ok_or_else(|| wrong(format!("`{JSON_LENGTH}` is not a length within the body")))?;
            (answer.body.slice(..length), Some(answer.body.slice(length..)))
        }
    };
    read_response(&json, binary).map_err(|error| wrong(error.to_string()))
}

/// Returns the failure that a status other than 200 means.
pub(super) fn failure(answer: &HttpResponse, url: &Url) -> RequestFailure {
    let status = answer.status.as_u16();
    RequestFailure {
        kind: kind_of_status(status),
        message: fatal_message(status, &answer.headers, url).unwrap_or_else(|| message(&answer.body)),
        status: Some(ResponseStatus::Http(status)),
        retry_after: retry_after(&answer.headers),
        answer: None,
    }
}

/// Returns the message in the body of a failure: `{"error": …}`, `{"error": {"message": …}}`, `{"detail": …}`, or any other text.
pub(super) fn message(body: &[u8]) -> String {
    let value = serde_json::from_slice::<Value>(body).ok();
    let field = value.as_ref().and_then(|value| ["error", "detail"].iter().find_map(|key| value.get(key)));
    let field = field.map(|field| field.get("message").unwrap_or(field));
    match field {
        Some(Value::String(text)) => server_text(text),
        Some(other) => server_text(&other.to_string()),
        None if body.is_empty() => "the server gave no reason".to_owned(),
        None => server_bytes(body.trim_ascii()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_failure_message_is_found_in_every_body() {
        assert_eq!(message(br#"{"error":"no"}"#), "no");
        assert_eq!(message(br#"{"detail":[{"loc":["a"]}]}"#), r#"[{"loc":["a"]}]"#);
        assert_eq!(message(br#"{"error":{"message":"no","code":null}}"#), "no");
        assert_eq!(message(b"<html>\n"), "<html>");
        assert_eq!(message(b""), "the server gave no reason");
    }

    #[test]
    fn rest_failure_message_is_printable() {
        assert_eq!(message(br#"{"error":"a\u001b[2J"}"#), "a\\u{1b}[2J");
        assert_eq!(message(&[b'x'; 5000]).chars().count(), 2001);
    }

    #[test]
    fn rest_status_maps_to_failure_kind() {
        let kind = |status: u16, retry: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            headers.extend(retry.map(|value| (http::header::RETRY_AFTER, HeaderValue::from_static(value))));
            let status = StatusCode::from_u16(status).unwrap();
            let answer = HttpResponse { status, headers, body: Bytes::new(), trailers: HeaderMap::new() };
            let failure = failure(&answer, &Url::parse("http://h/").unwrap());
            (failure.kind, failure.retry_after)
        };
        assert_eq!(kind(503, Some("7")), (FailureKind::Overloaded, Some(Duration::from_secs(7))));
        assert_eq!(kind(429, Some("soon")), (FailureKind::Overloaded, None));
        assert_eq!(kind(502, None).0, FailureKind::Unavailable);
        assert_eq!(kind(404, None).0, FailureKind::AllRequests);
        for status in [400, 413, 422, 500] {
            assert_eq!(kind(status, None).0, FailureKind::Rejected, "{status}");
        }
    }
}
