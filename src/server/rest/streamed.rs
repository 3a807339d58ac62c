//! Responses whose bodies are sent while they are made.
//!
//! The next chunk is made when the connection has room for it, so a slow client slows down the model, and a client that disconnects ends
//! the work. The response ends with an error when its key is removed or expires.

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, StatusCode, Uri};

use super::errors::RequestError;
use super::respond::{ResponseAborted, ResponseBody};
use crate::access::{Refusal, StreamRight};
use crate::server::{access_control, panic_boundary};

/// Writes an error as the last chunk of a body. Its second argument is whether overload is answered with 429.
///
/// `None` if the body has no form for errors: its connection is reset.
pub(super) type LastChunk = fn(&RequestError, bool) -> Option<Bytes>;

/// A response of which the first chunk is available, or whose model has ended without one.
pub(super) struct Streamed {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    /// They end after the first error.
    pub(super) chunks: BoxStream<'static, Result<Bytes, RequestError>>,
    pub(super) right: Option<StreamRight>,
    pub(super) last: LastChunk,
}

impl Streamed {
    /// Creates the response that sends the chunks. `end` is called after the last one.
    pub(super) fn respond(
        self,
        overload_as_429: bool,
        uri: Uri,
        end: impl FnOnce(StatusCode) + Send + 'static,
    ) -> http::Response<ResponseBody> {
        let Self { status, headers, chunks, right, last } = self;
        let end: Box<dyn FnOnce(StatusCode) + Send> = Box::new(end);
        let right_lost = access_control::right_lost(right);
        let rest = RestOfBody { overload_as_429, status, chunks: Some(chunks), right_lost, last, uri, end };
        let chunks = stream::unfold(rest, RestOfBody::next);
        let mut response = http::Response::new(ResponseBody::Stream(Box::pin(chunks)));
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        response
    }
}

/// The chunks that have not been sent.
struct RestOfBody {
    overload_as_429: bool,
    status: StatusCode,
    /// `None` after an error.
    chunks: Option<BoxStream<'static, Result<Bytes, RequestError>>>,
    /// Ends when the response has lost its right.
    right_lost: BoxFuture<'static, Refusal>,
    last: LastChunk,
    uri: Uri,
    end: Box<dyn FnOnce(StatusCode) + Send>,
}

impl RestOfBody {
    async fn next(mut self) -> Option<(Result<Bytes, ResponseAborted>, Self)> {
        let Self { chunks, right_lost, uri, .. } = &mut self;
        let work = async {
            let chunks = chunks.as_mut()?;
            tokio::select! {
                biased;
                refusal = right_lost => Some(Err(refusal.into())),
                chunk = chunks.next() => chunk,
            }
        };
        let next = panic_boundary::contain(uri.path(), work).await;
        let Some(chunk) = next.unwrap_or_else(|panicked| Some(Err(panicked.into()))) else {
            // The status has been sent, even if an error followed.
            (self.end)(self.status);
            return None;
        };
        let chunk = chunk.or_else(|error| {
            self.chunks = None;
            (self.last)(&error, self.overload_as_429).ok_or(ResponseAborted)
        });
        Some((chunk, self))
    }
}
