//! The answers of calls with one message.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, Response};
use prost::Message;

use super::body::{GrpcBody, WholeBody};
use super::message::{self, Limit};
use super::status::{self, GRPC, Status};
use crate::inference::Admission;
use crate::server::respond::BodyChunks;

/// A message and the headers that follow it.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// The message with what comes before it, in parts.
    pub(super) parts: Vec<Bytes>,
    pub(super) trailers: HeaderMap,
    /// Ends when the message has been sent.
    pub(super) admission: Admission,
}

impl Reply {
    /// Makes the reply of a generated message.
    pub(super) fn new(message: &impl Message, limit: Limit) -> Result<Self, Status> {
        Ok(Self { parts: vec![encode(message, limit)?], trailers: HeaderMap::new(), admission: Admission::new() })
    }

    pub(super) fn response(mut self) -> Response<GrpcBody> {
        status::write_ok(&mut self.trailers);
        respond(GrpcBody::WholeBody(WholeBody {
            parts: BodyChunks::from_all(self.parts).with_admission(self.admission),
            trailers: Some(self.trailers),
        }))
    }
}

/// Writes a generated message with what comes before it.
pub(super) fn encode(message: &impl Message, limit: Limit) -> Result<Bytes, Status> {
    let length = message.encoded_len();
    let mut bytes = message::header(length, limit)?;
    bytes.reserve_exact(length);
    message.encode_raw(&mut bytes);
    Ok(bytes.into())
}

/// Starts an answer.
pub(super) fn respond(body: GrpcBody) -> Response<GrpcBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, GRPC);
    response
}
