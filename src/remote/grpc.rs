//! The client of the gRPC protocol, on the same HTTP client as REST.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, TE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use percent_encoding::percent_decode;
use prost::Message;
use tonic::Code;

use super::printable::server_text;
use super::rest::TransportOptions;
use super::status::{fatal_message, kind_of_status};
use super::{FailureKind, InferenceTarget, Observer, RequestFailure, ResponseStatus, Verbosity};
use crate::http_client::{HttpClient, HttpResponse, Url};
use crate::types::protobuf::messages::{ModelReadyRequest, RepositoryIndexRequest, RepositoryIndexResponse};
use crate::types::protobuf::{read_response, write_request};
use crate::types::{InferenceRequest, InferenceResponse};

/// The size of the header in front of each message: a compression flag and the message's length.
const HEADER: usize = 5;
/// The path of the service, in front of the name of a method.
pub(super) const SERVICE: &str = "/inference.GRPCInferenceService/";
const NOT_GRPC: &str = "the response is not gRPC: is this the server's gRPC port?";
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A model behind the gRPC protocol.
pub struct GrpcClient {
    client: HttpClient,
    infer: Url,
    ready: Url,
    index: Url,
    headers: HeaderMap,
    model: String,
    version: Option<String>,
    binary: bool,
    observer: Arc<dyn Observer>,
}

impl GrpcClient {
    /// # Errors
    ///
    /// Fails if TLS cannot be set up.
    pub fn new(options: TransportOptions, observer: Arc<dyn Observer>) -> Result<Self, RequestFailure> {
        let (client, mut headers) = (options.client(true)?, options.headers());
        let TransportOptions { endpoint, model, version, binary, timeout, .. } = options;
        let method = |name: &str| endpoint.url(&format!("{SERVICE}{name}"));
        set_headers(&mut headers, timeout);
        let (infer, ready, index) = (method("ModelInfer"), method("ModelReady"), method("RepositoryIndex"));
        Ok(Self { client, infer, ready, index, headers, model, version, binary, observer })
    }

    /// Returns the names of the models that the server has ready.
    ///
    /// # Errors
    ///
    /// Fails if the server does not list them.
    pub async fn ready_models(&self) -> Result<BTreeSet<String>, RequestFailure> {
        let request =
            RepositoryIndexRequest { ready: true, ..RepositoryIndexRequest::default() }.encode_to_vec().into();
        let answer = self.call(&self.index, self.headers.clone(), "", vec![request]).await?;
        let index = RepositoryIndexResponse::decode(answer);
        let index = index.map_err(|error| RequestFailure::unreadable(&error.to_string()))?;
        Ok(index.models.into_iter().map(|model| model.name).collect())
    }

    /// Calls a method with a message in chunks.
    async fn call(
        &self,
        method: &Url,
        mut headers: HeaderMap,
        id: &str,
        parts: Vec<Bytes>,
    ) -> Result<Bytes, RequestFailure> {
        if let Ok(id) = HeaderValue::from_str(id) {
            headers.entry(REQUEST_ID).or_insert(id);
        }
        let parts = framed(parts)?;
        let length = parts.iter().map(Bytes::len).sum::<usize>() - HEADER;
        if self.observer.verbosity() == Verbosity::Extra {
            self.observer.trace(format_args!("> {} with {length} bytes", method.path()));
        }
        let answer = self.client.send(Method::POST, method, headers, parts.into_iter().collect()).await?;
        let received = received(&answer, method);
        if self.observer.verbosity() == Verbosity::Extra {
            match &received {
                Ok(message) => self.observer.trace(format_args!("< {} bytes", message.len())),
                Err(failure) => self.observer.trace(format_args!("< {failure}")),
            }
        }
        received
    }
}

impl InferenceTarget for GrpcClient {
    fn infer<'a>(&'a self, request: &'a InferenceRequest) -> BoxFuture<'a, Result<InferenceResponse, RequestFailure>> {
        async move {
            let parts = write_request(&self.model, self.version.as_deref(), request, self.binary, Vec::new())
                .map_err(|error| RequestFailure::new(FailureKind::Rejected, error.to_string()))?;
            let message = self.call(&self.infer, self.headers.clone(), &request.id, parts).await?;
            read_response(&message).map_err(|error| RequestFailure::unreadable(&error.to_string()))
        }
        .boxed()
    }

    fn check_available(&self) -> BoxFuture<'_, Result<(), RequestFailure>> {
        async {
            let (name, version) = (self.model.clone(), self.version.clone().unwrap_or_default());
            let message = ModelReadyRequest { name, version }.encode_to_vec().into();
            match self.call(&self.ready, self.headers.clone(), "", vec![message]).await {
                Err(failure) if failure.kind != FailureKind::Rejected => Err(failure),
                _ => Ok(()),
            }
        }
        .boxed()
    }
}

/// Puts the header in front of a message in chunks.
pub(super) fn framed(mut parts: Vec<Bytes>) -> Result<Vec<Bytes>, RequestFailure> {
    let length: usize = parts.iter().map(Bytes::len).sum();
    let announced = u32::try_from(length).map_err(|_| {
        let message = format!("the request has {length} bytes, over the limit of gRPC (4 GiB)");
        RequestFailure::new(FailureKind::Rejected, message)
    })?;
    let mut header = vec![0; HEADER];
    header[1..].copy_from_slice(&announced.to_be_bytes());
    parts.insert(0, header.into());
    Ok(parts)
}

/// Returns the message in a response.
pub(super) fn received(answer: &HttpResponse, url: &Url) -> Result<Bytes, RequestFailure> {
    let header = |name: &HeaderName| answer.trailers.get(name).or_else(|| answer.headers.get(name));
    if let Some(status) = header(&STATUS)
        && status != "0"
    {
        let code = Code::from_bytes(status.as_bytes());
        let message = header(&MESSAGE)
            .map_or_else(String::new, |text| percent_decode(text.as_bytes()).decode_utf8_lossy().into_owned());
        return Err(failure(code, &message));
    }
    if answer.status != StatusCode::OK || header(&STATUS).is_none() {
        let status = answer.status.as_u16();
        let kind = match kind_of_status(status) {
            FailureKind::Rejected => FailureKind::AllRequests,
            kind => kind,
        };
        let message = fatal_message(status, &answer.headers, url);
        let message = message.unwrap_or_else(|| NOT_GRPC.to_owned());
        let status = Some(ResponseStatus::Http(status));
        return Err(RequestFailure { status, ..RequestFailure::new(kind, message) });
    }
    let wrong = RequestFailure::unreadable;
    match answer.body.split_first_chunk::<HEADER>() {
        Some(([0, length @ ..], rest)) if u32::from_be_bytes(*length) as usize == rest.len() => {
            Ok(answer.body.slice(HEADER..))
        }
        Some(([1, ..], _)) => Err(wrong("it is compressed, although compression was not requested")),
        _ => Err(wrong("it is not a single complete message")),
    }
}

/// Returns the failure that a status means.
fn failure(code: Code, message: &str) -> RequestFailure {
    // Overload and a message over the server's size limit have the same code.
    let is_too_long = code == Code::ResourceExhausted && message.contains("message") && message.contains("than");
    let kind = match code {
        _ if is_too_long => FailureKind::Rejected,
        Code::ResourceExhausted => FailureKind::Overloaded,
        Code::Unavailable | Code::Aborted | Code::Cancelled => FailureKind::Unavailable,
        Code::DeadlineExceeded => FailureKind::TimedOut,
        Code::Unauthenticated | Code::PermissionDenied | Code::NotFound | Code::Unimplemented => {
            FailureKind::AllRequests
        }
        _ => FailureKind::Rejected,
    };
    let message = if message.is_empty() { "the server gave no reason".to_owned() } else { server_text(message) };
    RequestFailure { status: Some(ResponseStatus::Grpc(code)), ..RequestFailure::new(kind, message) }
}

/// Sets the headers that every call has.
pub(super) fn set_headers(headers: &mut HeaderMap, timeout: Duration) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(TIMEOUT, timeout_value(timeout));
}

/// Returns a timeout in the format of `grpc-timeout`: at most eight digits, in milliseconds if they suffice.
fn timeout_value(timeout: Duration) -> HeaderValue {
    let text = match timeout.as_millis() {
        millis if millis < 100_000_000 => format!("{millis}m"),
        _ => format!("{}S", timeout.as_secs().min(99_999_999)),
    };
    HeaderValue::from_str(&text).expect("digits and a letter are a valid header value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grpc_status_maps_to_failure_kind() {
        let kind = |code, message: &str| failure(code, message).kind;
        assert_eq!(kind(Code::ResourceExhausted, "try again later"), FailureKind::Overloaded);
        assert_eq!(kind(Code::ResourceExhausted, "Received message larger than max (9 vs. 4)"), FailureKind::Rejected);
        assert_eq!(kind(Code::Unavailable, ""), FailureKind::Unavailable);
        assert_eq!(kind(Code::DeadlineExceeded, ""), FailureKind::TimedOut);
        assert_eq!(kind(Code::NotFound, ""), FailureKind::AllRequests);
        assert_eq!(kind(Code::InvalidArgument, ""), FailureKind::Rejected);
        assert_eq!(failure(Code::NotFound, "no").to_string(), "no (NOT_FOUND)");
        assert_eq!(failure(Code::NotFound, "\u{1b}[2J").message, "\\u{1b}[2J");
    }

    #[test]
    fn grpc_timeout_fits_into_eight_digits() {
        assert_eq!(timeout_value(Duration::from_millis(1500)), "1500m");
        assert_eq!(timeout_value(Duration::from_secs(1_000_000)), "1000000S");
        assert_eq!(timeout_value(Duration::MAX), "99999999S");
    }
}
