//! The bodies of responses: messages, then the trailers that end the call.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use http_body::Frame;

use crate::server::BodyFailure;
use crate::server::respond::BodyChunks;

/// The body of a response that is being sent.
pub enum GrpcBody {
    /// The complete body.
    Buffered(BufferedBody),
    /// The next frame is produced when the connection has room for it.
    Stream(Pin<Box<dyn Stream<Item = Frame<Bytes>> + Send>>),
    /// The body of a tonic service.
    Tonic(tonic::body::Body),
}

/// A complete body, and the trailers after it.
#[derive(Debug, Default)]
pub struct BufferedBody {
    pub(super) chunks: BodyChunks,
    pub(super) trailers: Option<HeaderMap>,
}

impl Default for GrpcBody {
    fn default() -> Self {
        Self::Buffered(BufferedBody::default())
    }
}

impl http_body::Body for GrpcBody {
    type Data = Bytes;
    type Error = BodyFailure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFailure>>> {
        match &mut *self {
            Self::Buffered(BufferedBody { chunks, trailers }) => {
                let Ok(chunk) = ready!(Pin::new(chunks).poll_frame(context)).transpose();
                Poll::Ready(chunk.or_else(|| trailers.take().map(Frame::trailers)).map(Ok))
            }
            Self::Stream(frames) => {
                let frame = ready!(frames.as_mut().poll_next(context));
                Poll::Ready(frame.map(Ok))
            }
            Self::Tonic(body) => Pin::new(body).poll_frame(context).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Buffered(BufferedBody { chunks, trailers }) => chunks.is_end_stream() && trailers.is_none(),
            Self::Stream(_) => false,
            Self::Tonic(body) => body.is_end_stream(),
        }
    }
}
