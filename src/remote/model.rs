//! Models of other servers: the remote steps of inference graphs.
//!
//! A request is sent once. It is sent again only if no connection could be made, so that no server has seen it.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use parking_lot::Mutex;
use tokio::time::Instant;
use tonic::Code;

use super::printable::server_text;
use super::rest::{BINARY, JSON, JSON_LENGTH};
use super::{FailureKind, MAX_ANSWER, RequestFailure, ResponseStatus, RetryPolicy, grpc, rest};
use crate::compute::{ComputeError, ComputePool};
use crate::http_client::{HttpClient, HttpError, HttpOptions, HttpResponse, Url, take_credentials};
use crate::types::json::{data_text_memory, write_request};
use crate::types::{
    ByteReservation, ForwardedCredentials, InferenceRequest, InferenceResponse, OverBudget, Priority, StepDepth,
    Tensor, TensorRule, TraceContext, protobuf,
};

/// The timeout of a request without a deadline.
pub const REMOTE_TIMEOUT: Duration = Duration::from_mins(10);

/// The timeout of one attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often a connection is attempted for one request.
const BACKOFF: RetryPolicy = RetryPolicy { attempts: NonZeroU32::new(3).expect("it is not zero") };

/// From how many bytes on a body is written or read on the compute pool: about a tenth of a millisecond of work.
const LONG_BODY: usize = 64 << 10;

/// The header of REST with the timeout, in seconds.
const REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("request-timeout");

/// The headers of the caller that are passed on. Others may be secrets that are meant for this server only.
const FORWARDED: [HeaderName; 3] =
    [StepDepth::HEADER, HeaderName::from_static("x-request-id"), HeaderName::from_static(TraceContext::HEADER)];

/// The other servers that this process sends requests to. Clones share their connections.
#[derive(Debug, Clone)]
pub struct RemoteServers {
    clients: Arc<Mutex<HashMap<ServerKey, Weak<HttpClient>>>>,
    compute: ComputePool,
    forwarded: ForwardedCredentials,
}

/// What a pool of connections is for: scheme, host and port, and whether it uses HTTP/2 with prior knowledge.
type ServerKey = (String, bool);

/// The address of a model of another server.
#[derive(Debug)]
pub struct RemoteAddress {
    /// Without user name and password.
    url: Url,
    /// The user name and the password.
    authorization: Option<HeaderValue>,
    protocol: RemoteProtocol,
}

#[derive(Debug)]
enum RemoteProtocol {
    Rest,
    Grpc { model: String, version: Option<String> },
}

/// Why an address is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the address is invalid, expected `http://`, `https://`, `grpc://` or `grpcs://`, a host, and optionally a port and a path"
)]
pub struct RemoteAddressError;

/// A model of another server.
#[derive(Debug)]
pub struct RemoteModel {
    client: Arc<HttpClient>,
    compute: ComputePool,
    address: RemoteAddress,
    forwarded: ForwardedCredentials,
}

/// Why a remote model has not answered.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// No connection could be made, so the server has not seen the request.
    #[error("{0}")]
    Unreachable(String),
    #[error("{0}")]
    TimedOut(String),
    /// The server answered with an error.
    #[error("{message}")]
    Answer { status: u16, message: String },
    /// The answer is not one of the protocol, or it is incomplete.
    #[error("{0}")]
    InvalidAnswer(String),
    /// The request has no form in the protocol.
    #[error("{0}")]
    InvalidRequest(String),
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// The request or its answer takes more memory than is free.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
}

/// A request as it is sent.
struct WrittenRequest {
    headers: HeaderMap,
    body: Vec<Bytes>,
}

impl RemoteAddress {
    /// Parses an address. One with a path is used as it is. Without a path, `model` and `version` name the model.
    ///
    /// # Errors
    ///
    /// Fails if the address is invalid.
    pub fn parse(address: &str, model: &str, version: Option<&str>) -> Result<Self, RemoteAddressError> {
        let (scheme, rest) = address.split_once("://").ok_or(RemoteAddressError)?;
        let (scheme, is_grpc) = match scheme.to_ascii_lowercase().as_str() {
            "http" => ("http", false),
            "https" => ("https", false),
            "grpc" => ("http", true),
            "grpcs" => ("https", true),
            _ => return Err(RemoteAddressError),
        };
        let url = Some(rest).filter(|rest| !rest.starts_with('/'));
        let url = url.and_then(|rest| Url::parse(&format!("{scheme}://{rest}")).ok());
        let mut url = url.ok_or(RemoteAddressError)?;
        url.set_fragment(None);
        let authorization = take_credentials(&mut url);
        if url.path() == "/" {
            let of_rest = || rest::model_path(model, version) + "/infer";
            url.set_path(&if is_grpc { format!("{}ModelInfer", grpc::SERVICE) } else { of_rest() });
        }
        let protocol = if is_grpc {
            RemoteProtocol::Grpc { model: model.to_owned(), version: version.map(str::to_owned) }
        } else {
            RemoteProtocol::Rest
        };
        Ok(Self { url, authorization, protocol })
    }
}

/// Writes the address without user name, password and query, which may be secrets.
impl fmt::Display for RemoteAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut url = self.url.clone();
        url.set_query(None);
        url.fmt(formatter)
    }
}

impl RemoteServers {
    /// Long bodies are written and read on `compute`. `forwarded` are the credentials of callers that are passed on.
    pub fn new(compute: ComputePool, forwarded: ForwardedCredentials) -> Self {
        Self { clients: Arc::default(), compute, forwarded }
    }

    /// Returns the model at an address, without connecting to it.
    ///
    /// # Errors
    ///
    /// Fails if TLS cannot be set up.
    pub fn model(&self, address: RemoteAddress) -> Result<RemoteModel, HttpError> {
        let http2 = matches!(address.protocol, RemoteProtocol::Grpc { .. });
        let (client, compute) = (self.client(&address.url, http2)?, self.compute.clone());
        Ok(RemoteModel { client, compute, address, forwarded: self.forwarded })
    }

    /// Returns the client of a server, which all of its models share.
    fn client(&self, url: &Url, http2: bool) -> Result<Arc<HttpClient>, HttpError> {
        let key = (url.origin().ascii_serialization(), http2);
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&key).and_then(Weak::upgrade) {
            return Ok(client);
        }
        let options =
            HttpOptions { connect_timeout: CONNECT_TIMEOUT, http2, ..HttpOptions::new(REMOTE_TIMEOUT, MAX_ANSWER) };
        let client = Arc::new(HttpClient::new(url, &options)?);
        clients.retain(|_, client| client.strong_count() > 0);
        clients.insert(key, Arc::downgrade(&client));
        Ok(client)
    }
}

impl RemoteModel {
    /// Returns the address of the model.
    pub const fn address(&self) -> &RemoteAddress {
        &self.address
    }

    /// Sends a request, and waits for the answer until `deadline`, or for [`REMOTE_TIMEOUT`]. Dropping the future cancels the
    /// request. `reservation` holds what is sent, then what has arrived, and finally the answer.
    ///
    /// # Errors
    ///
    /// Fails if there is no answer, if the answer is an error, if its tensors do not match their shapes, or if there is no memory for it.
    pub async fn infer(
        &self,
        mut request: InferenceRequest,
        deadline: Option<Instant>,
        reservation: &mut ByteReservation,
    ) -> Result<InferenceResponse, RemoteError> {
        let deadline = deadline.unwrap_or_else(|| Instant::now() + REMOTE_TIMEOUT);
        let priority = request.priority;
        request.set_trace_header();
        let mut headers = self.forwarded_headers(&request.headers);
        let mut written = reservation.sibling();
        written.grow(self.written_size(&request))?;
        let WrittenRequest { headers: of_body, body } = self.write(request).await?;
        headers.extend(of_body);
        let answer = self.send(headers, body, deadline, reservation).await?;
        drop(written);
        self.read(answer, priority, reservation).await
    }

    /// Returns the memory that the body of a request takes besides its tensors.
    fn written_size(&self, request: &InferenceRequest) -> usize {
        match self.address.protocol {
            RemoteProtocol::Rest => request.inputs.iter().map(data_text_memory).sum(),
            RemoteProtocol::Grpc { .. } => 0,
        }
    }

    fn forwarded_headers(&self, of_caller: &HeaderMap) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for name in FORWARDED {
            if let Some(value) = of_caller.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        for (is_listed, name) in [(self.forwarded.authorization, AUTHORIZATION), (self.forwarded.cookie, COOKIE)] {
            if is_listed && let Some(value) = of_caller.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        if let Some(value) = &self.address.authorization {
            headers.insert(AUTHORIZATION, value.clone());
        }
        headers
    }

    async fn write(&self, request: InferenceRequest) -> Result<WrittenRequest, RemoteError> {
        let size: usize = request.inputs.iter().map(Tensor::byte_len).sum();
        let priority = request.priority;
        let written = match &self.address.protocol {
            RemoteProtocol::Rest => self.work(size, priority, move || written_json(&request)).await?,
            RemoteProtocol::Grpc { model, version } => {
                let (model, version) = (model.clone(), version.clone());
                self.work(size, priority, move || written_message(&model, version.as_deref(), &request)).await?
            }
        };
        written.map_err(RemoteError::InvalidRequest)
    }

    async fn read(
        &self,
        answer: HttpResponse,
        priority: Priority,
        reservation: &mut ByteReservation,
    ) -> Result<InferenceResponse, RemoteError> {
        let (size, url) = (answer.body.len(), self.address.url.clone());
        // Until it has been read, the body and its tensors are in memory.
        reservation.grow(size)?;
        let read = match self.address.protocol {
            RemoteProtocol::Rest => self.work(size, priority, move || rest::received(&answer, &url)).await?,
            RemoteProtocol::Grpc { .. } => {
                let read = move || {
                    let message = grpc::received(&answer, &url)?;
                    protobuf::read_response(&message).map_err(|error| RequestFailure::unreadable(&error.to_string()))
                };
                self.work(size, priority, read).await?
            }
        };
        let response = read.map_err(RemoteError::from)?;
        // Texts may be missing, as in the answers of models on this server.
        if let Err(error) = TensorRule::MissingText.check(&response.outputs) {
            let failure = RequestFailure::unreadable(&error.to_string());
            return Err(RemoteError::InvalidAnswer(failure.message));
        }
        reservation.resize(response.memory_bytes())?;
        Ok(response)
    }

    /// Does work on a body: on the compute pool, if the body is long.
    async fn work<T: Send + 'static>(
        &self,
        size: usize,
        priority: Priority,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ComputeError> {
        if size >= LONG_BODY { self.compute.run_at(priority, work).await } else { Ok(work()) }
    }

    /// Sends a request, and connects again if that fails.
    async fn send(
        &self,
        headers: HeaderMap,
        body: Vec<Bytes>,
        deadline: Instant,
        reservation: &mut ByteReservation,
    ) -> Result<HttpResponse, RemoteError> {
        for attempt in 1.. {
            let timeout = deadline.saturating_duration_since(Instant::now());
            if timeout.is_zero() {
                break;
            }
            let headers = self.with_timeout(headers.clone(), timeout);
            let body = body.iter().cloned().collect();
            let sent =
                self.client.send_within(timeout, Method::POST, &self.address.url, headers, body, reservation).await;
            let unreachable = match sent {
                Ok(answer) => return Ok(answer),
                Err(error @ HttpError::Connect { .. }) => server_text(&error.to_string()),
                Err(error) => return Err(error.into()),
            };
            let failure = RequestFailure::new(FailureKind::Unreachable, "");
            let wait = BACKOFF.wait(attempt, &failure).map(|wait| Instant::now() + wait);
            match wait.filter(|until| *until < deadline) {
                Some(until) => tokio::time::sleep_until(until).await,
                None => return Err(RemoteError::Unreachable(unreachable)),
            }
        }
        Err(RemoteError::TimedOut("the deadline of the request has passed".to_owned()))
    }

    fn with_timeout(&self, mut headers: HeaderMap, timeout: Duration) -> HeaderMap {
        match self.address.protocol {
            RemoteProtocol::Rest => {
                let seconds = format!("{:.3}", timeout.as_secs_f64());
                let value = HeaderValue::try_from(seconds).expect("digits and a point are a valid header value");
                headers.insert(REQUEST_TIMEOUT, value);
            }
            RemoteProtocol::Grpc { .. } => grpc::set_headers(&mut headers, timeout),
        }
        headers
    }
}

/// Writes a request of the REST protocol. It is JSON, which every server reads, unless a tensor has bytes that JSON cannot hold.
fn written_json(request: &InferenceRequest) -> Result<WrittenRequest, String> {
    let (written, is_binary) = match write_request(request, false) {
        Ok(written) => (written, false),
        Err(_) => (write_request(request, true).map_err(|error| error.to_string())?, true),
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, if is_binary { BINARY } else { JSON });
    if is_binary {
        headers.insert(JSON_LENGTH, written.json.len().into());
    }
    let body = std::iter::once(Bytes::from(written.json)).chain(written.binary).collect();
    Ok(WrittenRequest { headers, body })
}

/// Writes a call of the gRPC protocol. Its tensors are raw, which is exact for every datatype, and copies nothing.
fn written_message(model: &str, version: Option<&str>, request: &InferenceRequest) -> Result<WrittenRequest, String> {
    let message = protobuf::write_request(model, version, request, true, Vec::new());
    let message = message.map_err(|error| error.to_string())?;
    let body = grpc::framed(message).map_err(|failure| failure.message)?;
    Ok(WrittenRequest { headers: HeaderMap::new(), body })
}

impl From<HttpError> for RemoteError {
    fn from(error: HttpError) -> Self {
        let message = server_text(&error.to_string());
        match error {
            HttpError::Connect { .. } => Self::Unreachable(message),
            HttpError::TimedOut { .. } => Self::TimedOut(message),
            HttpError::OverBudget(error) => Self::OverBudget(error),
            _ => Self::InvalidAnswer(message),
        }
    }
}

/// The failure of an answer.
impl From<RequestFailure> for RemoteError {
    fn from(failure: RequestFailure) -> Self {
        let status = match failure.status {
            // gRPC has one code for overload and for a request that is too large.
            Some(ResponseStatus::Grpc(Code::ResourceExhausted)) if failure.kind == FailureKind::Rejected => 413,
            Some(status) => status.http(),
            None => 0,
        };
        match status {
            400..=599 => Self::Answer { status, message: failure.message },
            _ => Self::InvalidAnswer(failure.message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> RemoteServers {
        RemoteServers::new(ComputePool::for_this_machine(), ForwardedCredentials::default())
    }

    fn address(text: &str) -> RemoteAddress {
        RemoteAddress::parse(text, "m", None).unwrap()
    }

    fn url(text: &str) -> Option<String> {
        RemoteAddress::parse(text, "my model", Some("v1")).ok().map(|address| address.to_string())
    }

    #[test]
    fn remote_address_without_path_names_the_model() {
        let rest = "http://h:1/v2/models/my%20model/versions/v1/infer";
        for address in ["http://h:1", "http://h:1/", "HTTP://me:pw@h:1#x"] {
            assert_eq!(url(address).as_deref(), Some(rest), "{address}");
        }
        let grpc = "http://h:1/inference.GRPCInferenceService/ModelInfer";
        assert_eq!(url("grpc://h:1").as_deref(), Some(grpc));
        assert_eq!(url("http://h/a/b?token=s3cret").as_deref(), Some("http://h/a/b"), "the query is hidden");
        for address in ["h:1", "ftp://h", "http://", "http:///a", "http://h:99999", "grpc://a b"] {
            assert_eq!(url(address), None, "{address}");
        }
    }

    #[test]
    fn remote_models_of_a_server_share_its_connections() {
        let servers = servers();
        let model = |text| servers.model(address(text)).unwrap();
        let (first, second) = (model("http://h:1"), model("http://u:p@h:1/other"));
        assert!(Arc::ptr_eq(&first.client, &second.client));
        assert!(!Arc::ptr_eq(&first.client, &model("grpc://h:1").client), "HTTP/2 needs connections of its own");
        assert!(!Arc::ptr_eq(&first.client, &model("http://h:2").client));
        drop((first, second));
        model("http://h:3");
        assert_eq!(servers.clients.lock().len(), 1, "clients without models are closed");
    }

    #[test]
    fn remote_model_forwards_only_listed_headers() {
        let names =
            ["authorization", "x-request-id", "traceparent", "request-depth", "cookie", "x-api-key", "content-length"];
        let caller: HeaderMap =
            names.iter().map(|name| (HeaderName::from_static(name), HeaderValue::from_static("caller"))).collect();
        let both = ForwardedCredentials { authorization: true, cookie: true };
        let none = ForwardedCredentials::default();
        let forwarded = |text, forwarded| {
            let servers = RemoteServers::new(ComputePool::for_this_machine(), forwarded);
            servers.model(address(text)).unwrap().forwarded_headers(&caller)
        };
        let headers = forwarded("http://h", both);
        assert_eq!(headers.len(), 5, "{headers:?}");
        assert!(FORWARDED.iter().chain(&[AUTHORIZATION, COOKIE]).all(|name| headers[name] == "caller"));
        let headers = forwarded("http://h", none);
        assert!(headers.len() == 3 && !headers.contains_key(AUTHORIZATION), "{headers:?}");
        assert_eq!(forwarded("http://me:pw@h", none)[AUTHORIZATION], "Basic bWU6cHc=", "the address has credentials");
    }

    #[test]
    fn remote_failure_keeps_the_status_of_an_error() {
        let status = |kind, status| {
            let failure = RequestFailure { status: Some(status), ..RequestFailure::new(kind, "no") };
            match RemoteError::from(failure) {
                RemoteError::Answer { status, .. } => Some(status),
                _ => None,
            }
        };
        assert_eq!(status(FailureKind::Rejected, ResponseStatus::Http(418)), Some(418));
        assert_eq!(status(FailureKind::Rejected, ResponseStatus::Http(200)), None);
        assert_eq!(status(FailureKind::Fatal, ResponseStatus::Http(302)), None);
        assert_eq!(status(FailureKind::AllRequests, ResponseStatus::Grpc(Code::NotFound)), Some(404));
        let exhausted = ResponseStatus::Grpc(Code::ResourceExhausted);
        assert_eq!(status(FailureKind::Rejected, exhausted), Some(413));
        assert_eq!(status(FailureKind::Overloaded, exhausted), Some(503));
    }
}
