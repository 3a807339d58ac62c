//! Clients of the gRPC server: generated ones, and raw connections for requests that they would never send.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request};
use mlserver::runtimes::RuntimeError;
use mlserver::types::protobuf::messages::model_infer_request::InferInputTensor;
use mlserver::types::protobuf::messages::{InferTensorContents, ModelInferRequest};
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

use super::{FnRuntime, PATIENCE};

/// The generated clients.
#[expect(clippy::doc_markdown, unreachable_pub, reason = "generated")]
pub(crate) mod clients {
    include!("generated/inference.rs");

    pub(crate) mod model_repository {
        include!("generated/model_repository.rs");
    }
}

pub(crate) type InferenceClient = clients::grpc_inference_service_client::GrpcInferenceServiceClient<Channel>;
pub(crate) type RepositoryClient =
    clients::model_repository::model_repository_service_client::ModelRepositoryServiceClient<Channel>;

/// The largest message that these clients send or receive, in bytes.
const CLIENT_LIMIT: usize = 256 << 20;

pub(crate) async fn channel(address: SocketAddr) -> Channel {
    let endpoint = Endpoint::try_from(format!("http://{address}")).unwrap();
    endpoint.connect_timeout(PATIENCE).connect().await.unwrap()
}

pub(crate) async fn inference_client(address: SocketAddr) -> InferenceClient {
    let client = InferenceClient::new(channel(address).await);
    client.max_decoding_message_size(CLIENT_LIMIT).max_encoding_message_size(CLIENT_LIMIT)
}

/// Makes a request of one input, `x`, for the model.
pub(crate) fn infer_request(
    model: &str,
    datatype: &str,
    shape: &[i64],
    contents: InferTensorContents,
) -> ModelInferRequest {
    let input = InferInputTensor {
        name: "x".to_owned(),
        datatype: datatype.to_owned(),
        shape: shape.to_vec(),
        contents: Some(contents),
        ..InferInputTensor::default()
    };
    ModelInferRequest { model_name: model.to_owned(), inputs: vec![input], ..ModelInferRequest::default() }
}

/// Makes a request of one raw input, `x`, for the model.
pub(crate) fn raw_request(model: &str, datatype: &str, shape: &[i64], bytes: impl Into<Bytes>) -> ModelInferRequest {
    let mut request = infer_request(model, datatype, shape, InferTensorContents::default());
    request.raw_input_contents = vec![bytes.into()];
    request
}

/// Contents of INT8 to INT32.
pub(crate) fn ints(values: &[i32]) -> InferTensorContents {
    InferTensorContents { int_contents: values.to_vec(), ..InferTensorContents::default() }
}

pub(crate) fn floats(values: &[f32]) -> InferTensorContents {
    InferTensorContents { fp32_contents: values.to_vec(), ..InferTensorContents::default() }
}

/// A raw HTTP/2 connection.
pub(crate) struct Http2(h2::client::SendRequest<Bytes>);

/// A response, with the trailers among the headers.
#[derive(Debug)]
pub(crate) struct Http2Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Http2 {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        // A response that is not read leaves room for the others.
        Self::handshake(address, h2::client::Builder::new().initial_connection_window_size(8 << 20)).await
    }

    /// Connects, and waits for the settings of the server. Before them, a client sends frames of 16 KiB, of which a head
    /// may have only a few.
    pub(crate) async fn connect_with_settings(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, mut connection) = h2::client::handshake(stream).await.unwrap();
        let mut pings = connection.ping_pong().unwrap();
        tokio::spawn(connection);
        tokio::time::timeout(PATIENCE, pings.ping(h2::Ping::opaque())).await.unwrap().unwrap();
        Self(sender)
    }

    /// Connects as a client that receives at most `window` bytes of each response before it reads them.
    pub(crate) async fn connect_with_window(address: SocketAddr, window: u32) -> Self {
        Self::handshake(address, h2::client::Builder::new().initial_window_size(window)).await
    }

    async fn handshake(address: SocketAddr, builder: &h2::client::Builder) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = builder.handshake(stream).await.unwrap();
        // The task ends with the connection.
        tokio::spawn(connection);
        Self(sender)
    }

    /// Sends a call whose body is `bytes`, and returns the body of the response before any of it is read.
    pub(crate) async fn open(&self, path: &str, bytes: &[u8]) -> h2::RecvStream {
        let request = Request::post(format!("http://test{path}")).header("content-type", "application/grpc");
        let mut sender = self.0.clone().ready().await.unwrap();
        let (response, mut stream) = sender.send_request(request.body(()).unwrap(), false).unwrap();
        stream.send_data(Bytes::copy_from_slice(bytes), true).unwrap();
        tokio::time::timeout(PATIENCE, response).await.unwrap().unwrap().into_body()
    }

    /// Sends a call whose body begins with `bytes` and does not end, and waits for nothing.
    pub(crate) async fn begin(&self, path: &str, bytes: &[u8]) -> (h2::client::ResponseFuture, h2::SendStream<Bytes>) {
        let request = Request::post(format!("http://test{path}")).header("content-type", "application/grpc");
        let mut sender = self.0.clone().ready().await.unwrap();
        let (response, mut stream) = sender.send_request(request.body(()).unwrap(), false).unwrap();
        stream.send_data(Bytes::copy_from_slice(bytes), false).unwrap();
        (response, stream)
    }

    /// Sends a request without a body, and returns the body of the response before any of it is read.
    pub(crate) async fn send(&self, request: Request<()>) -> h2::RecvStream {
        let mut sender = self.0.clone().ready().await.unwrap();
        let (response, _) = sender.send_request(request, true).unwrap();
        tokio::time::timeout(PATIENCE, response).await.unwrap().unwrap().into_body()
    }

    /// Sends a request whose body begins with `bytes` and does not end, and reads the response.
    pub(crate) async fn unfinished(&self, request: Request<()>, bytes: &[u8]) -> Http2Answer {
        let mut sender = self.0.clone().ready().await.unwrap();
        let (response, mut stream) = sender.send_request(request, false).unwrap();
        stream.send_data(Bytes::copy_from_slice(bytes), false).unwrap();
        let answer = Http2Answer::read(response).await;
        drop(stream);
        answer
    }

    /// Sends a call whose body is `bytes`, and returns the code if the response begins with one.
    pub(crate) async fn head(&self, path: &str, headers: &[(&'static str, &str)], bytes: &[u8]) -> Option<i32> {
        let mut request = Request::post(format!("http://test{path}")).header("content-type", "application/grpc");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut sender = self.0.clone().ready().await.unwrap();
        let (response, mut stream) = sender.send_request(request.body(()).unwrap(), false).unwrap();
        // Fails if the server has rejected the call before the body arrives.
        let _ = stream.send_data(Bytes::copy_from_slice(bytes), true);
        let response = tokio::time::timeout(PATIENCE, response).await.unwrap().unwrap();
        response.headers().get("grpc-status").map(|code| code.to_str().unwrap().parse().unwrap())
    }

    /// Sends a call whose body is `bytes`, with headers that override the usual ones, and reads the response.
    pub(crate) async fn call(&self, path: &str, headers: &[(&'static str, &str)], bytes: &[u8]) -> Http2Answer {
        let mut request = Request::post(format!("http://test{path}")).body(()).unwrap();
        let usual = [("content-type", "application/grpc"), ("te", "trailers")];
        for (name, value) in usual.iter().chain(headers) {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        let mut sender = self.0.clone().ready().await.unwrap();
        let (response, mut stream) = sender.send_request(request, false).unwrap();
        // Fails if the server has rejected the call before the body arrives.
        let _ = stream.send_data(Bytes::copy_from_slice(bytes), true);
        Http2Answer::read(response).await
    }
}

impl Http2Answer {
    async fn read(response: h2::client::ResponseFuture) -> Self {
        let response = tokio::time::timeout(PATIENCE, response).await.unwrap().unwrap();
        let (parts, mut incoming) = response.into_parts();
        let (mut headers, mut body) = (parts.headers, Vec::new());
        while let Some(data) = incoming.data().await {
            let data = data.unwrap();
            incoming.flow_control().release_capacity(data.len()).unwrap();
            body.extend_from_slice(&data);
        }
        headers.extend(incoming.trailers().await.unwrap().unwrap_or_default());
        Self { status: parts.status.as_u16(), headers, body }
    }

    /// Returns the code and the message that the call ended with.
    pub(crate) fn end(&self) -> (i32, String) {
        let text = |name: &str| self.headers.get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
        (text("grpc-status").parse().unwrap(), text("grpc-message"))
    }
}

/// Puts the five-byte gRPC prefix in front of a message.
pub(crate) fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[flag], length.as_slice(), message].concat()
}

/// A runtime that is never used to predict.
pub(crate) fn unused_runtime() -> FnRuntime {
    FnRuntime::new(|_| std::future::ready(Err(RuntimeError::no_request())))
}

/// Never answers. `alive` is cloned for as long as a request waits.
pub(crate) fn never_answers(alive: &Arc<()>) -> FnRuntime {
    let alive = Arc::clone(alive);
    FnRuntime::new(move |_| {
        let alive = Arc::clone(&alive);
        async move {
            std::future::pending::<()>().await;
            drop(alive);
            Err(RuntimeError::no_request())
        }
    })
}
