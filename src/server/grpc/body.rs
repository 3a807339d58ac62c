//! The bodies of answers: messages, then the trailers that end the call.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_core::Stream;
use http::HeaderMap;
use http_body::Frame;

use crate::server::BodyFailure;
use crate::server::respond::BodyChunks;

/// The body of an answer on its way to the client.
pub enum GrpcBody {
    /// Everything is there already.
    WholeBody(WholeBody),
    /// The next frame is made when the connection has room for it.
    Stream(Pin<Box<dyn Stream<Item = Frame<Bytes>> + Send>>),
    /// Another's.
    Tonic(tonic::body::Body),
}

/// A body that is there already.
#[derive(Debug, Default)]
pub struct WholeBody {
    pub(super) parts: BodyChunks,
    pub(super) trailers: Option<HeaderMap>,
}

impl Default for GrpcBody {
    fn default() -> Self {
        Self::WholeBody(WholeBody::default())
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
            Self::WholeBody(WholeBody { parts, trailers }) => {
                let Ok(part) = ready!(Pin::new(parts).poll_frame(context)).transpose();
                Poll::Ready(part.or_else(|| trailers.take().map(Frame::trailers)).map(Ok))
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
            Self::WholeBody(WholeBody { parts, trailers }) => parts.is_end_stream() && trailers.is_none(),
            Self::Stream(_) => false,
            Self::Tonic(body) => body.is_end_stream(),
        }
    }
}
