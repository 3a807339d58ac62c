//! Tracks the activity of connections, so that an idle one does not delay shutdown.
//!
//! Closing a connection gracefully takes both sides: an HTTP/2 client acknowledges the end, an HTTP/1 client sends the rest of
//! the head that it has begun. Clients that are frozen, or that have disappeared without closing, never do.

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

/// How long a connection may be idle once the server is shutting down.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the activity of a connection is checked during [`IDLE_TIMEOUT`].
const IDLE_CHECKS: u32 = 20;

/// What happens on one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Requests whose complete responses have not been handed to the connection yet.
    requests: AtomicUsize,
    /// Bytes that the system has accepted: a response may still be in transit long after its request has ended.
    written: AtomicU64,
}

/// Counts a request as in flight until it is dropped.
#[derive(Debug)]
pub(super) struct ActiveRequest(Arc<Activity>);

impl Activity {
    pub(super) fn begin(self: &Arc<Self>) -> ActiveRequest {
        self.requests.fetch_add(1, Ordering::AcqRel);
        ActiveRequest(Arc::clone(self))
    }

    /// Returns once the server is shutting down and the connection has been idle for [`IDLE_TIMEOUT`]: no request in flight,
    /// and no byte sent.
    ///
    /// Bytes from the client do not count: it could keep sending without ever completing a request.
    pub(super) async fn idle_after(&self, stop: CancellationToken) {
        stop.cancelled().await;
        let mut quiet_since = Instant::now();
        let mut written = self.written.load(Ordering::Relaxed);
        while quiet_since.elapsed() < IDLE_TIMEOUT {
            tokio::time::sleep(IDLE_TIMEOUT / IDLE_CHECKS).await;
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

/// The body of a response, whose request is in flight until the body has been consumed.
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

    // hyper derives `content-length` from it.
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The stream of a connection, which counts the bytes that it sends. `I` is a socket, or TLS over one.
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
    async fn connection_is_idle_only_without_requests_and_writes_after_stop() {
        let (activity, stop) = (Arc::new(Activity::default()), CancellationToken::new());
        let idle = tokio::spawn({
            let (activity, stop) = (Arc::clone(&activity), stop.clone());
            async move { activity.idle_after(stop).await }
        });
        let minute = Duration::from_mins(1);
        tokio::time::sleep(minute).await;
        assert!(!idle.is_finished(), "the server is running");

        stop.cancel();
        let request = activity.begin();
        tokio::time::sleep(minute).await;
        assert!(!idle.is_finished(), "a request is in flight");

        drop(request);
        for _ in 0..20 {
            tokio::time::sleep(IDLE_TIMEOUT * 9 / 10).await;
            activity.written.fetch_add(1, Ordering::Relaxed);
        }
        assert!(!idle.is_finished(), "its response is being sent");

        let quiet_since = Instant::now();
        idle.await.unwrap();
        let waited = quiet_since.elapsed();
        assert!((IDLE_TIMEOUT..IDLE_TIMEOUT * 6 / 5).contains(&waited), "{waited:?}");
    }
}
