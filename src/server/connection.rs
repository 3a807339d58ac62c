//! What a connection is doing, so that one that does nothing does not hold up the end of the server.
//!
//! Closing a connection in order takes both sides: an HTTP/2 client acknowledges the end, an HTTP/1 client sends the rest of
//! the head that it has begun. Clients that are frozen, or that have vanished without a word, never do.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a connection of a server that has left may do nothing.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Looks at a connection during [`PATIENCE`].
const LOOKS: u32 = 20;

/// What happens on one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Requests that have come and whose answers have not been handed to the connection as a whole.
    requests: AtomicUsize,
    /// Bytes that the system has taken: an answer may be on its way long after its request has ended.
    written: AtomicU64,
}

/// A request that is being answered, until it is dropped.
#[derive(Debug)]
pub(super) struct ActiveRequest(Arc<Activity>);

impl Activity {
    pub(super) fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.requests.fetch_add(1, Ordering::AcqRel);
        ActiveRequest(Arc::clone(self))
    }

    /// Returns once the server has left and nothing has happened for [`PATIENCE`]: no request, and no byte that was sent.
    ///
    /// What the client sends does not count: it could go on for ever without a request.
    pub(super) async fn abandoned(&self, left: CancellationToken) {
        left.cancelled().await;
        let mut quiet_since = Instant::now();
        let mut written = self.written.load(Ordering::Relaxed);
        while quiet_since.elapsed() < PATIENCE {
            tokio::time::sleep(PATIENCE / LOOKS).await;
            let now_written = self.written.load(Ordering::Relaxed);
            if self.requests.load(Ordering::Acquire) > 0 || now_written != written {
                quiet_since = Instant::now();
                written = now_written;
            }
        }
    }
}

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The body of an answer, whose request is under way until all of it has been taken.
#[derive(Debug)]
pub(super) struct TrackedBody<B> {
    body: B,
    _request: ActiveRequest,
}

impl<B> TrackedBody<B> {
    pub(super) const fn new(body: B, active: ActiveRequest) -> Self {
        Self { body, _request: active }
    }
}

impl<B: Body + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    // From which the length of the answer is told.
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection's stream, which counts the bytes that it sends. `I` is a socket, or TLS over one.
#[derive(Debug)]
pub(super) struct CountedStream<I> {
    stream: I,
    activity: Arc<Activity>,
}

impl<I> CountedStream<I> {
    pub(super) const fn new(stream: I, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    fn note(&self, sent: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &sent {
            self.activity.written.fetch_add(*bytes as u64, Ordering::Relaxed);
        }
        sent
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for CountedStream<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for CountedStream<I> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.note(sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.note(sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_what_does_nothing_after_the_end_is_abandoned() {
        let (activity, left) = (Arc::new(Activity::default()), CancellationToken::new());
        let cut = tokio::spawn({
            let (activity, left) = (Arc::clone(&activity), left.clone());
            async move { activity.abandoned(left).await }
        });
        let minute = Duration::from_mins(1);
        tokio::time::sleep(minute).await;
        assert!(!cut.is_finished(), "the server is there");

        left.cancel();
        let request = activity.begin();
        tokio::time::sleep(minute).await;
        assert!(!cut.is_finished(), "a request is being answered");

        drop(request);
        for _ in 0..20 {
            tokio::time::sleep(PATIENCE * 9 / 10).await;
            activity.written.fetch_add(1, Ordering::Relaxed);
        }
        assert!(!cut.is_finished(), "its answer is being sent");

        let quiet_since = Instant::now();
        cut.await.unwrap();
        let waited = quiet_since.elapsed();
        assert!((PATIENCE..PATIENCE * 6 / 5).contains(&waited), "{waited:?}");
    }
}
