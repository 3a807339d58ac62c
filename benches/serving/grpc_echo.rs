//! A bare tonic service: reads each message completely and responds to all with the same bytes.
//!
//! `grpc_echo ADDRESS FILE [NAME:VALUE...]` listens on ADDRESS and answers the message in FILE with the given metadata. It
//! is what `infer_grpc.py` measures the server against: what a generated service does around its method, but messages are
//! neither read nor written, and nothing is recorded.

use std::convert::Infallible;
use std::env;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::Context as _;
use bytes::{Buf, BufMut, Bytes};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::server::{Grpc, NamedService};
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tower::{Service, service_fn};

/// The longest message, as MLServer's clients set it.
const LIMIT: usize = 64 << 20;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = env::args().skip(1);
    let (Some(address), Some(file)) = (arguments.next(), arguments.next()) else {
        anyhow::bail!("usage: grpc_echo ADDRESS FILE [NAME:VALUE...]");
    };
    let mut headers = http::HeaderMap::new();
    for header in arguments {
        let (name, value) = header.split_once(':').with_context(|| format!("`{header}` is no header"))?;
        headers.insert(http::HeaderName::try_from(name)?, http::HeaderValue::try_from(value.trim())?);
    }
    let address: SocketAddr = address.parse().with_context(|| format!("`{address}` is no address"))?;
    let message = Bytes::from(std::fs::read(&file).with_context(|| format!("cannot read `{file}`"))?);
    let service = Echo { message, metadata: MetadataMap::from_headers(headers) };
    // HTTP/1 is for clients that wait until this listens.
    let mut server = Server::builder().accept_http1(true);
    server.add_service(service).serve(address).await.with_context(|| format!("cannot serve on {address}"))
}

#[derive(Clone)]
struct Echo {
    message: Bytes,
    metadata: MetadataMap,
}

impl NamedService for Echo {
    const NAME: &'static str = "inference.GRPCInferenceService";
}

impl Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let echo = self.clone();
        let method = service_fn(move |request: Request<Bytes>| {
            let Self { message, metadata } = echo.clone();
            async move {
                // The length is used, so that the read is not optimized away.
                if request.get_ref().is_empty() {
                    return Err(Status::invalid_argument("the message is empty"));
                }
                Ok(Response::from_parts(metadata, message, tonic::Extensions::default()))
            }
        });
        Box::pin(async move {
            let mut grpc = Grpc::new(Raw).max_decoding_message_size(LIMIT).max_encoding_message_size(LIMIT);
            Ok(grpc.unary(method, request).await)
        })
    }
}

/// Messages as bytes.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
