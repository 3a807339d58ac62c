//! The responses of calls with one message.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};
use prost::Message;

use super::body::{BufferedBody, GrpcBody};
use super::message::{self, MessageLimit};
use super::status::{self, GRPC, Status};
use crate::inference::Admission;
use crate::server::respond::BodyChunks;

/// A message and the headers that follow it.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// The message with its header, in chunks.
    pub(super) chunks: Vec<Bytes>,
    pub(super) trailers: HeaderMap,
    /// Held until the message has been sent.
    pub(super) admission: Admission,
}

impl Reply {
    /// Encodes a generated message as a reply.
    pub(super) fn new(message: &impl Message, limit: MessageLimit) -> Result<Self, Status> {
        Ok(Self { chunks: vec![encode(message, limit)?], trailers: HeaderMap::new(), admission: Admission::new() })
    }

    pub(super) fn response(mut self) -> Response<GrpcBody> {
        status::write_ok(&mut self.trailers);
        respond(GrpcBody::Buffered(BufferedBody {
            chunks: BodyChunks::from_all(self.chunks).with_admission(self.admission),
            trailers: Some(self.trailers),
        }))
    }
}

/// Encodes a generated message with its header.
pub(super) fn encode(message: &impl Message, limit: MessageLimit) -> Result<Bytes, Status> {
    let length = message.encoded_len();
    let mut bytes = message::header(length, limit)?;
    bytes.reserve_exact(length);
    message.encode_raw(&mut bytes);
    Ok(bytes.into())
}

/// Starts a response.
pub(super) fn respond(body: GrpcBody) -> Response<GrpcBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}
