//! The bodies of responses.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::{ActiveRequest, WaitingMark};
use crate::access::InFlightPermit;

/// Over HTTP/2, a response is handed to the connection in parts of at most this many bytes, each of which must be sent within
/// the write timeout.
const PART: usize = 64 * 1024;

/// What a response holds until it has been sent. Transports attach it as an extension.
#[derive(Debug, Clone)]
pub(in crate::server) enum ResponseHold {
    /// The request counts against the limit of its principal.
    Permit(Arc<InFlightPermit>),
    /// The caller has no right that the server knows of.
    WithoutRight(Arc<WaitingMark>),
}

/// The body of a response, whose request is in flight until the body has been sent (over HTTP/1: consumed).
#[derive(Debug)]
pub(in crate::server) struct TrackedBody<B> {
    body: B,
    /// The rest of a frame of which a part has been handed over.
    rest: Bytes,
    request: ActiveRequest,
    _permit: Option<Arc<InFlightPermit>>,
}

/// Bytes of a response over HTTP/2, which are dropped once they have been sent.
struct UnsentBytes {
    bytes: Bytes,
    _request: ActiveRequest,
}

impl AsRef<[u8]> for UnsentBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<B> TrackedBody<B> {
    pub(in crate::server) fn new(body: B, mut request: ActiveRequest, hold: Option<ResponseHold>) -> Self {
        let permit = match hold {
            None => None,
            Some(ResponseHold::Permit(permit)) => Some(permit),
            Some(ResponseHold::WithoutRight(mark)) => {
                request.mark = Some(mark);
                None
            }
        };
        Self { body, rest: Bytes::new(), request, _permit: permit }
    }

    /// Returns the next part of a frame.
    fn part(&mut self, mut bytes: Bytes) -> Frame<Bytes> {
        self.rest = bytes.split_off(bytes.len().min(PART));
        let request = self.request.part();
        Frame::data(Bytes::from_owner(UnsentBytes { bytes, _request: request }))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for TrackedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if !self.request.is_stream() {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        if !self.rest.is_empty() {
            let rest = std::mem::take(&mut self.rest);
            return Poll::Ready(Some(Ok(self.part(rest))));
        }
        Poll::Ready(match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(Ok(frame)) => Some(Ok(match frame.into_data() {
                Ok(data) if !data.is_empty() => self.part(data),
                Ok(data) => Frame::data(data),
                Err(frame) => frame,
            })),
            end => end,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    // hyper derives `content-length` from it.
    fn size_hint(&self) -> SizeHint {
        if self.rest.is_empty() { self.body.size_hint() } else { SizeHint::default() }
    }
}
