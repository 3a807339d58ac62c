//! A bare hyper server: reads each request's body completely and responds to all with the same bytes.
//!
//! `echo ADDRESS FILE [NAME:VALUE...]` listens on ADDRESS and answers the content of FILE with the given headers. It is
//! what `run.py` measures the server against: nothing is parsed, routed or logged, so no server on hyper can be much
//! faster.

use std::convert::Infallible;
use std::env;
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
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let (Some(address), Some(file)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: echo ADDRESS FILE [NAME:VALUE...]");
    };
    let mut headers = HeaderMap::new();
    for header in arguments {
        let (name, value) = header.split_once(':').with_context(|| format!("`{header}` is no header"))?;
        headers.insert(HeaderName::try_from(name)?, HeaderValue::try_from(value.trim())?);
    }
    let address: SocketAddr = address.parse().with_context(|| format!("`{address}` is no address"))?;
    let answer = Bytes::from(std::fs::read(&file).with_context(|| format!("cannot read `{file}`"))?);
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept a connection")?;
        stream.set_nodelay(true).context("cannot set TCP_NODELAY")?;
        let (answer, headers) = (answer.clone(), headers.clone());
        tokio::spawn(async move {
            let service = service_fn(move |request| reply(request, answer.clone(), headers.clone()));
            // A client that goes away is no error here.
            let _gone =
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
