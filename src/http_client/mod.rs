//! The HTTP client: REST and gRPC requests of `mlserver infer` and of the remote steps of graphs, and downloads.
//!
//! It is `reqwest` with the policies that all of its users share: the proxies of the environment, no automatic redirects, limits on
//! the size and the time of each response, and errors that name the server and the last cause.

mod address;
mod body;
mod stream;
mod tls;

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::uri::Scheme;
use http::{HeaderMap, Method, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper_util::client::proxy::matcher::Matcher;
use reqwest::redirect::Policy;
use reqwest::{Client, Request, Response};

pub use address::{server_name, take_credentials};
pub use body::BodyChunks;
pub use reqwest::Url;
pub use stream::HttpStream;

use crate::types::{ByteReservation, OverBudget, ReceivedBytes};

/// How often HTTP/2 connections with requests in flight are probed.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
const USER_AGENT: &str = concat!("mlserver/", env!("CARGO_PKG_VERSION"));

/// The options of a client.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// The timeout for connecting.
    pub connect_timeout: Duration,
    /// The timeout for each response from the start of its request.
    pub timeout: Duration,
    /// The longest response body, in bytes, also after it has been decoded.
    pub max_body: usize,
    /// Uses HTTP/2 with prior knowledge. Otherwise HTTP/2 is used if TLS negotiates it.
    pub http2: bool,
    /// Skips the verification of certificates.
    pub insecure: bool,
    /// A PEM file of root certificates that are trusted besides those of the system.
    pub ca: Option<PathBuf>,
    /// A PEM file of the client's certificate.
    pub certificate: Option<PathBuf>,
    /// A PEM file of its key, if it is in another file.
    pub key: Option<PathBuf>,
}

impl HttpOptions {
    /// Returns options with one timeout, for connecting and for each response, that trust what the system trusts.
    pub const fn new(timeout: Duration, max_body: usize) -> Self {
        Self {
            connect_timeout: timeout,
            timeout,
            max_body,
            http2: false,
            insecure: false,
            ca: None,
            certificate: None,
            key: None,
        }
    }
}

/// An HTTP client for one server.
#[derive(Debug, Clone)]
pub struct HttpClient {
    client: Client,
    timeout: Duration,
    max_body: usize,
    /// The server, and the proxy in front of it, for errors.
    server: String,
}

/// A complete response.
#[derive(Debug)]
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub trailers: HeaderMap,
}

/// Why there is no response.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    #[error("cannot set up TLS: {cause}")]
    Setup { cause: String },
    #[error("cannot read the {what} in `{}`: {cause}", path.display())]
    Pem { what: &'static str, path: PathBuf, cause: String },
    #[error("cannot connect to {server}: {cause}{}", hint.map(|hint| format!("; {hint}")).unwrap_or_default())]
    Connect { server: String, cause: String, hint: Option<&'static str> },
    #[error("no response from {server} within {} s", timeout.as_secs_f64())]
    TimedOut { server: String, timeout: Duration },
    #[error("no response from {server}: {cause}")]
    Lost { server: String, cause: String },
    #[error("the response of {server} ended early: {cause}")]
    Truncated { server: String, cause: String },
    #[error("the response has more than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("cannot decode the response of {server}: {cause}")]
    Encoding { server: String, cause: String },
    /// The response takes more memory than is free.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
}

impl HttpClient {
    /// Creates a client for the server of `url`.
    ///
    /// # Errors
    ///
    /// Fails if a certificate cannot be read, or TLS cannot be set up.
    pub fn new(url: &Url, options: &HttpOptions) -> Result<Self, HttpError> {
        // A proxy would have to speak HTTP/2 without TLS, too, which none does.
        let direct = options.http2 && url.scheme() == "http";
        let proxy = if direct { None } else { proxy_of(url) };
        let is_tls_proxy = proxy.as_ref().is_some_and(|proxy| proxy.scheme() == Some(&Scheme::HTTPS));
        let needs_roots = url.scheme() == "https" || is_tls_proxy;
        let mut builder = Client::builder()
            .user_agent(USER_AGENT)
            .redirect(Policy::none())
            // Callers decide about retries, and no copies of requests are kept for them.
            .retry(reqwest::retry::never())
            .connect_timeout(options.connect_timeout)
            .http2_adaptive_window(true)
            .http2_keep_alive_interval(KEEP_ALIVE);
        if options.http2 {
            builder = builder.http2_prior_knowledge();
        }
        if direct {
            builder = builder.no_proxy();
        }
        let builder = tls::configure(builder, options, needs_roots)?;
        let client = builder.build().map_err(|error| HttpError::Setup { cause: last_cause(&error) })?;
        let server = server_name(url);
        let server = match proxy.as_ref().and_then(Uri::authority) {
            Some(proxy) => format!("{server} through the proxy {proxy}"),
            None => server,
        };
        Ok(Self { client, timeout: options.timeout, max_body: options.max_body, server })
    }

    /// Sends a request and waits for the complete response.
    ///
    /// # Errors
    ///
    /// Fails if there is no complete response within the timeout and the limit on its size.
    pub async fn send(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: BodyChunks,
    ) -> Result<HttpResponse, HttpError> {
        self.send_within(self.timeout, method, url, headers, body, &mut ByteReservation::default()).await
    }

    /// Sends a request as [`HttpClient::send`] does, within another timeout. `reservation` grows with each frame of the response's body,
    /// and holds the body afterwards.
    ///
    /// # Errors
    ///
    /// Fails if the response is not complete within the timeout, exceeds the limit on its size, or does not fit into the budget of memory.
    pub async fn send_within(
        &self,
        timeout: Duration,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: BodyChunks,
        reservation: &mut ByteReservation,
    ) -> Result<HttpResponse, HttpError> {
        let answer = async {
            let response = self.execute(method, url, headers, body).await?;
            self.receive(response, reservation).await
        };
        self.within(timeout, answer).await
    }

    /// Sends a request and waits for the head of the response, within the timeout. The body is read by the caller; the timeout is then the
    /// longest time without a byte.
    ///
    /// # Errors
    ///
    /// Fails if the server does not respond within the timeout.
    pub async fn open(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: BodyChunks,
    ) -> Result<HttpStream, HttpError> {
        let response = self.within(self.timeout, self.execute(method, url, headers, body)).await?;
        Ok(HttpStream::new(response, self.server.clone(), self.timeout))
    }

    async fn execute(
        &self,
        method: Method,
        url: &Url,
        headers: HeaderMap,
        body: BodyChunks,
    ) -> Result<Response, HttpError> {
        let mut request = Request::new(method, url.clone());
        *request.headers_mut() = headers;
        *request.body_mut() = body.into_body();
        self.client.execute(request).await.map_err(|error| self.failure(&error))
    }

    async fn within<T>(
        &self,
        timeout: Duration,
        answer: impl Future<Output = Result<T, HttpError>>,
    ) -> Result<T, HttpError> {
        let timed_out = || HttpError::TimedOut { server: self.server.clone(), timeout };
        tokio::time::timeout(timeout, answer).await.unwrap_or_else(|_| Err(timed_out()))
    }

    async fn receive(&self, response: Response, reservation: &mut ByteReservation) -> Result<HttpResponse, HttpError> {
        let (head, mut body) = http::Response::from(response).into_parts();
        let (mut received, mut trailers) = (ReceivedBytes::default(), HeaderMap::new());
        let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let expected = announced.unwrap_or(self.max_body).min(self.max_body);
        while let Some(frame) = body.frame().await {
            let frame = frame
                .map_err(|error| HttpError::Truncated { server: self.server.clone(), cause: last_cause(&error) })?;
            match frame.into_data() {
                Ok(data) => {
                    if received.len() + data.len() > self.max_body {
                        return Err(HttpError::TooLarge { limit: self.max_body });
                    }
                    reservation.grow(data.len())?;
                    received.push(data, expected);
                }
                Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
            }
        }
        let body = received.into_bytes();
        let body = match head.headers.get(CONTENT_ENCODING) {
            Some(encoding) if !body.is_empty() => {
                body::decode(encoding, body, self.max_body, &self.server, reservation).await?
            }
            _ => body,
        };
        Ok(HttpResponse { status: head.status, headers: head.headers, body, trailers })
    }

    fn failure(&self, error: &reqwest::Error) -> HttpError {
        let (server, cause) = (self.server.clone(), last_cause(error));
        if error.is_connect() {
            HttpError::Connect { server, hint: hint(error, &cause), cause }
        } else {
            HttpError::Lost { server, cause }
        }
    }
}

/// Returns the proxy in front of a server, without its password.
fn proxy_of(url: &Url) -> Option<Uri> {
    Some(Matcher::from_system().intercept(&url.as_str().parse().ok()?)?.uri().clone())
}

/// Returns the causes of an error, from the outermost to the innermost one.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// Returns the message of the innermost cause: the outer ones only say that something has failed.
fn last_cause(error: &(dyn Error + 'static)) -> String {
    plain(&causes(error).last().unwrap_or(error).to_string())
}

/// Returns a message of the operating system or of rustls without its number or label, and without a capital letter.
fn plain(message: &str) -> String {
    let message = message.strip_prefix("unexpected error: ").unwrap_or(message);
    let message = message.split(" (os error ").next().unwrap_or(message);
    let mut letters = message.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => first.to_lowercase().chain(letters).collect(),
        _ => message.to_owned(),
    }
}

/// Returns what the user may check when a connection cannot be made.
fn hint(error: &reqwest::Error, cause: &str) -> Option<&'static str> {
    let refused = |error: &(dyn Error + 'static)| {
        error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    match cause {
        _ if causes(error).any(refused) => Some("is the server running?"),
        _ if cause.contains("lookup address") => Some("is the host name right?"),
        _ if cause.contains("InvalidContentType") => Some("does the server use TLS on this port?"),
        _ if cause.contains("proxy authorization") => Some("add USER:PASSWORD@ to the address of the proxy"),
        _ if cause.contains("tunnel error") => Some("does the proxy allow connections to this server?"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_error_names_the_last_cause_in_plain_words() {
        assert_eq!(plain("Connection refused (os error 111)"), "connection refused");
        assert_eq!(plain("invalid peer certificate: UnknownIssuer"), "invalid peer certificate: UnknownIssuer");
        assert_eq!(plain("unexpected error: No CA certificates"), "no CA certificates");
        assert_eq!(plain("TLS"), "TLS");
        assert_eq!(plain(""), "");
        let error = HttpError::TooLarge { limit: 7 };
        assert_eq!(last_cause(&error), "the response has more than 7 bytes");
    }

    #[tokio::test]
    async fn http_refused_connection_asks_whether_the_server_runs() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url = Url::parse(&format!("http://{free}/")).unwrap();
        let options = HttpOptions { http2: true, ..HttpOptions::new(Duration::from_secs(20), 10) };
        let client = HttpClient::new(&url, &options).unwrap();
        let error = client.send(Method::GET, &url, HeaderMap::new(), BodyChunks::default()).await.unwrap_err();
        let expected = format!("cannot connect to {free}: connection refused; is the server running?");
        assert_eq!(error.to_string(), expected);
    }
}
