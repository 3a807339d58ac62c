//! The HTTP client of both transports: keep-alive connections, TLS, timeouts.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

use super::failure::error_chain;
use super::{Endpoint, FailureKind, MAX_ANSWER, RequestFailure};

/// How often HTTP/2 connections with requests in flight are probed.
const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// The options of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionOptions {
    /// The timeout for connecting, and for each response from the start of its request.
    pub(super) timeout: Duration,
    /// Skips the verification of certificates.
    pub(super) insecure: bool,
    /// Uses HTTP/2 with prior knowledge. Otherwise HTTP/2 is used if TLS negotiates it.
    pub(super) http2: bool,
}

/// An HTTP client for one server.
#[derive(Clone)]
pub(super) struct HttpConnection {
    client: Client<HttpsConnector<HttpConnector>, BodyChunks>,
    timeout: Duration,
}

/// A complete response.
pub(super) struct HttpResponse {
    pub(super) status: http::StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    pub(super) trailers: HeaderMap,
}

impl HttpConnection {
    /// # Errors
    ///
    /// Fails if the trusted certificates of this machine cannot be read.
    pub(super) fn new(endpoint: &Endpoint, options: ConnectionOptions) -> Result<Self, RequestFailure> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(options.timeout));
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls(endpoint, options.insecure)?).https_or_http();
        let connector = if options.http2 {
            builder.enable_http2().wrap_connector(connector)
        } else {
            builder.enable_all_versions().wrap_connector(connector)
        };
        let client = Client::builder(TokioExecutor::new())
            .http2_only(options.http2)
            .http2_adaptive_window(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .pool_timer(TokioTimer::new())
            .timer(TokioTimer::new())
            .build(connector);
        Ok(Self { client, timeout: options.timeout })
    }

    /// Sends a request and waits for the complete response.
    pub(super) async fn send(&self, request: Request<BodyChunks>) -> Result<HttpResponse, RequestFailure> {
        let host = request.uri().authority().map_or_else(String::new, ToString::to_string);
        let answer = async {
            let response = self.client.request(request).await.map_err(|error| {
                let text = error_chain(&error);
                if !error.is_connect() {
                    return RequestFailure::new(
                        FailureKind::ConnectionLost,
                        format!("no response from {host}: {text}"),
                    );
                }
                let hint = if text.contains("certificate") { "; `--insecure` skips the verification" } else { "" };
                RequestFailure::new(FailureKind::Unreachable, format!("cannot connect to {host}: {text}{hint}"))
            })?;
            receive(response, &host).await
        };
        tokio::time::timeout(self.timeout, answer).await.unwrap_or_else(|_| {
            let message = format!("no response from {host} within {} s", self.timeout.as_secs_f64());
            Err(RequestFailure::new(FailureKind::ConnectionLost, message))
        })
    }
}

async fn receive(response: Response<Incoming>, host: &str) -> Result<HttpResponse, RequestFailure> {
    let (head, mut body) = response.into_parts();
    let (mut first, mut rest, mut trailers) = (None::<Bytes>, BytesMut::new(), HeaderMap::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            RequestFailure::new(
                FailureKind::ConnectionLost,
                format!("the response of {host} ended early: {}", error_chain(&error)),
            )
        })?;
        match frame.into_data() {
            Ok(data) => {
                let size = first.as_ref().map_or(0, Bytes::len) + rest.len() + data.len();
                if size > MAX_ANSWER {
                    let message = format!("the response has more than {MAX_ANSWER} bytes: send fewer rows per request");
                    return Err(RequestFailure::new(FailureKind::Rejected, message));
                }
                // Most responses come in one frame, which is not copied.
                if first.is_none() { first = Some(data) } else { rest.extend_from_slice(&data) }
            }
            Err(frame) => trailers = frame.into_trailers().unwrap_or_default(),
        }
    }
    let body = match first {
        Some(first) if rest.is_empty() => first,
        first => [&first.unwrap_or_default()[..], &rest].concat().into(),
    };
    Ok(HttpResponse { status: head.status, headers: head.headers, body, trailers })
}

fn tls(endpoint: &Endpoint, insecure: bool) -> Result<ClientConfig, RequestFailure> {
    let provider = Arc::new(ring::default_provider());
    let failed = |error: &dyn std::error::Error| {
        RequestFailure::new(FailureKind::Unreachable, format!("cannot set up TLS: {}", error_chain(error)))
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| failed(&error))?;
    if insecure || !endpoint.is_tls() {
        let verifier = Arc::new(AcceptAnyCertificate(provider));
        return Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
    }
    let builder = builder.with_native_roots().map_err(|error| failed(&error))?;
    Ok(builder.with_no_client_auth())
}

/// Accepts any certificate, as `--insecure` asks for. The connection is encrypted, but the server's identity is unknown.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A body in several chunks, none of which is copied.
#[derive(Debug)]
pub(super) struct BodyChunks(VecDeque<Bytes>);

impl FromIterator<Bytes> for BodyChunks {
    fn from_iter<I: IntoIterator<Item = Bytes>>(parts: I) -> Self {
        Self(parts.into_iter().filter(|part| !part.is_empty()).collect())
    }
}

impl Body for BodyChunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|part| Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|part| part.len() as u64).sum())
    }
}
