//! A bare hyper server with TLS: reads each request's body completely and responds to all with the same bytes.
//!
//! `tls_echo ADDRESS FILE CERTIFICATE KEY [NAME:VALUE...]` listens on ADDRESS and answers the content of FILE with the given headers.
//! TLS is set up as in the server: the same versions, provider and protocols. `tls.py` measures the server against it.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::Context;
use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use mlserver::settings::TlsSettings;
use mlserver::tls::{ServerTls, TlsFiles};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// As in the server's executable.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("usage: tls_echo ADDRESS FILE CERTIFICATE KEY [NAME:VALUE...]");
    let (address, file, certificate, key) = (next()?, next()?, next()?, next()?);
    let mut headers = HeaderMap::new();
    for header in arguments {
        let (name, value) = header.split_once(':').with_context(|| format!("`{header}` is not a header"))?;
        headers.insert(HeaderName::try_from(name)?, HeaderValue::try_from(value.trim())?);
    }
    let address: SocketAddr = address.parse().with_context(|| format!("`{address}` is not an address"))?;
    let answer = Bytes::from(std::fs::read(&file).with_context(|| format!("cannot read `{file}`"))?);
    let settings =
        TlsSettings { certificate: Some(certificate.into()), key: Some(key.into()), ..TlsSettings::default() };
    let files = TlsFiles::new(&settings, &std::env::current_dir()?)?.context("TLS is on")?;
    let acceptor = TlsAcceptor::from(ServerTls::start(files)?.current());
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept a connection")?;
        stream.set_nodelay(true).context("cannot set TCP_NODELAY")?;
        let (answer, headers) = (answer.clone(), headers.clone());
        let handshake = acceptor.accept(stream);
        tokio::spawn(async move {
            // A client that disconnects, or only looks whether the port is open, is not an error.
            let Ok(stream) = handshake.await else { return };
            let service = service_fn(move |request| reply(request, answer.clone(), headers.clone()));
            let _disconnected =
                http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

/// Reads the body to its end, then answers.
async fn reply(
    request: Request<Incoming>,
    answer: Bytes,
    headers: HeaderMap,
) -> Result<Response<Full<Bytes>>, Infallible> {
    // The length is used, so that the read is not optimized away.
    let length = request.into_body().collect().await.map_or(0, |body| body.to_bytes().len());
    let mut response = Response::new(Full::new(if length == 0 { Bytes::new() } else { answer }));
    *response.headers_mut() = headers;
    Ok(response)
}
