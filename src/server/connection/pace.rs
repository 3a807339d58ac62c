//! Time limits for the bodies of requests.
//!
//! A timer is set only if the server has to wait for a body, so those that arrive with their heads cost nothing. While it waits, the request
//! is marked as waiting.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use super::{Connection, TooManyWatches, WaitingMark};
use crate::server::{BodyFailure, RequestBody};

/// Beyond its idle limit, a body must arrive at this many bytes per second on average.
const MIN_RATE: u64 = 1024;

/// How fast a body must arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyPace {
    /// No longer than this without a byte, and at [`MIN_RATE`] on average after that time.
    Steady { idle: Duration },
    /// The rest of the body within this time.
    Within { limit: Duration },
    /// The first message of a stream: the time for it is limited elsewhere.
    FirstMessage,
    /// The later messages, whose number and time are limited elsewhere. Between them, the request does not only wait: answers may be on
    /// their way.
    LaterMessages,
}

/// A request body whose pace a transport can change.
pub trait PacedRequestBody: RequestBody<Error = BodyFailure> {
    /// Sets how fast the rest of the body must arrive.
    fn set_pace(&mut self, pace: BodyPace);

    /// Returns the address of the client.
    fn peer(&self) -> Option<SocketAddr>;

    /// Marks the request as only waiting until the result is dropped. `None` if it has no connection, or is marked.
    fn mark_waiting(&self) -> Option<WaitingMark>;

    /// Marks the request as one of a caller without a right that the server knows of, as long as the body or the result exists.
    /// The result belongs to the response.
    fn without_right(&mut self) -> Option<Arc<WaitingMark>>;

    /// Registers what ends a watch, which is a request without a right, when its connection is evicted.
    ///
    /// # Errors
    ///
    /// Fails if the connection has too many watches.
    fn add_watch(&self, ended: &Arc<Notify>) -> Result<(), TooManyWatches>;

    /// Gives the rest of the body, which is to be discarded, this much time. Until then, the request only waits.
    fn begin_discard(&mut self, limit: Duration);

    /// Reports whether the client has been asked for the body, as `expect: 100-continue` demands.
    fn is_asked_for(&self) -> bool;
}

/// A body that did not arrive in time.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(in crate::server) enum SlowBody {
    #[error(
        "received {received} bytes of the request body in {:.1} s: a body may pause for {} s (`http_body_timeout`), and must \
         otherwise arrive at {MIN_RATE} bytes per second",
        waited.as_secs_f64(),
        idle.as_secs_f64()
    )]
    Slow { received: u64, waited: Duration, idle: Duration },
    #[error("the rest of the request body did not arrive within {} s", limit.as_secs_f64())]
    Unread { limit: Duration },
}

/// A request body that fails if it arrives too slowly. Only the time for which the server waits counts.
///
/// Requests are moved often, so what few bodies have is on the heap.
#[derive(Debug)]
pub struct PacedBody<B> {
    body: B,
    pace: BodyPace,
    received: u64,
    /// How long the server has waited for the body, without the current wait.
    waited: Duration,
    waiting: Option<Box<Waiting>>,
    failed: Option<Box<SlowBody>>,
    /// `None` without a connection.
    connection: Option<Arc<Connection>>,
    /// Set if the request only waits, also while no byte is waited for.
    mark: Option<Arc<WaitingMark>>,
}

/// The server waits for more bytes.
#[derive(Debug)]
struct Waiting {
    since: Instant,
    /// `None` if the time is limited elsewhere.
    timer: Option<Pin<Box<Sleep>>>,
    _mark: Option<WaitingMark>,
}

impl<B> PacedBody<B> {
    pub const fn new(body: B, idle: Duration) -> Self {
        let pace = BodyPace::Steady { idle };
        Self {
            body,
            pace,
            received: 0,
            waited: Duration::ZERO,
            waiting: None,
            failed: None,
            connection: None,
            mark: None,
        }
    }

    /// Returns the body as one that a connection receives.
    pub(in crate::server) fn on(self, connection: &Arc<Connection>) -> Self {
        Self { connection: Some(Arc::clone(connection)), ..self }
    }

    fn mark_wait(&self) -> Option<WaitingMark> {
        self.connection.as_ref().filter(|_| self.mark.is_none()).map(WaitingMark::new)
    }

    /// Returns the remaining time for the next bytes, and the error when it has passed. `None` if the time is unlimited.
    fn patience(&self) -> Option<(Duration, SlowBody)> {
        let received = self.received;
        match self.pace {
            BodyPace::FirstMessage | BodyPace::LaterMessages => None,
            BodyPace::Within { limit } => Some((limit.saturating_sub(self.waited), SlowBody::Unread { limit })),
            BodyPace::Steady { idle } => {
                let total = idle.saturating_add(Duration::from_secs(received / MIN_RATE));
                let rest = total.saturating_sub(self.waited).min(idle);
                Some((rest, SlowBody::Slow { received, waited: self.waited + rest, idle }))
            }
        }
    }

    /// Ends a wait.
    fn resume(&mut self) {
        if let Some(waiting) = self.waiting.take() {
            self.waited += waiting.since.elapsed();
        }
    }

    /// Continues to wait, or returns the error if that has taken too long.
    fn wait(&mut self, context: &mut Context<'_>) -> Poll<SlowBody> {
        if self.pace == BodyPace::LaterMessages {
            return Poll::Pending;
        }
        let limit = self.patience();
        if self.waiting.is_none() {
            let timer = limit.map(|(patience, _)| Box::pin(tokio::time::sleep(patience)));
            self.waiting = Some(Box::new(Waiting { since: Instant::now(), timer, _mark: self.mark_wait() }));
        }
        let timer = self.waiting.as_mut().and_then(|waiting| waiting.timer.as_mut());
        match timer.zip(limit) {
            Some((timer, (_, error))) => timer.as_mut().poll(context).map(|()| error),
            None => Poll::Pending,
        }
    }
}

impl<B: RequestBody> PacedRequestBody for PacedBody<B> {
    fn set_pace(&mut self, pace: BodyPace) {
        self.resume();
        (self.pace, self.waited) = (pace, Duration::ZERO);
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.connection.as_ref()?.peer
    }

    fn mark_waiting(&self) -> Option<WaitingMark> {
        self.mark_wait()
    }

    fn without_right(&mut self) -> Option<Arc<WaitingMark>> {
        let connection = self.connection.as_ref()?;
        let mark = self.mark.get_or_insert_with(|| {
            connection.without_right.fetch_add(1, Ordering::Relaxed);
            Arc::new(WaitingMark::new(connection))
        });
        Some(Arc::clone(mark))
    }

    fn add_watch(&self, ended: &Arc<Notify>) -> Result<(), TooManyWatches> {
        let counted = self.connection.as_ref().zip(self.mark.as_ref());
        counted.map_or(Ok(()), |(connection, mark)| connection.add_watch(mark, ended))
    }

    fn begin_discard(&mut self, limit: Duration) {
        self.set_pace(BodyPace::Within { limit });
        self.mark = self.connection.as_ref().map(|connection| Arc::new(WaitingMark::of_rest(connection)));
    }

    fn is_asked_for(&self) -> bool {
        self.received > 0 || self.waiting.is_some() || !self.waited.is_zero()
    }
}

impl<B: RequestBody> Body for PacedBody<B> {
    type Data = Bytes;
    type Error = BodyFailure;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFailure>>> {
        let this = &mut *self;
        if let Some(failed) = &this.failed {
            return Poll::Ready(Some(Err((**failed).into())));
        }
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(frame) => {
                this.resume();
                if let Some(Ok(data)) = frame.as_ref().map(|frame| frame.as_ref().map(Frame::data_ref)) {
                    this.received += data.map_or(0, |data| data.len() as u64);
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
            Poll::Pending => this.wait(context).map(|error| {
                this.failed = Some(Box::new(error));
                Some(Err(error.into()))
            }),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.failed.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::{BodyExt, StreamBody};

    use super::*;

    const IDLE: Duration = Duration::from_secs(30);

    /// A body of frames of `size` bytes, each after `pause`.
    fn body(count: usize, size: usize, pause: Duration) -> PacedBody<impl RequestBody> {
        let frames = stream::unfold(0, move |sent| async move {
            tokio::time::sleep(pause).await;
            (sent < count).then(|| (Ok::<_, BodyFailure>(Frame::data(Bytes::from(vec![0; size]))), sent + 1))
        });
        PacedBody::new(StreamBody::new(Box::pin(frames)), IDLE)
    }

    async fn read(body: PacedBody<impl RequestBody>) -> Result<usize, String> {
        body.collect().await.map(|all| all.to_bytes().len()).map_err(|error| error.to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn body_that_stops_is_ended_after_the_idle_limit() {
        let started = Instant::now();
        let error = read(body(2, 5000, Duration::from_secs(31))).await.unwrap_err();
        assert!(error.starts_with("received 0 bytes of the request body in 30.0 s: "), "{error}");
        assert!(started.elapsed() < IDLE + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn body_that_drips_is_ended_although_it_is_never_idle() {
        let started = Instant::now();
        let error = read(body(100_000, 10, Duration::from_secs(1))).await.unwrap_err();
        assert_eq!(
            error,
            "received 300 bytes of the request body in 30.0 s: a body may pause for 30 s (`http_body_timeout`), and must \
             otherwise arrive at 1024 bytes per second"
        );
        assert!(started.elapsed() < IDLE + Duration::from_secs(2));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_body_above_the_minimum_rate_is_read_completely() {
        assert_eq!(read(body(200, 2048, Duration::from_secs(1))).await, Ok(200 * 2048));
    }

    #[tokio::test(start_paused = true)]
    async fn rest_of_a_body_has_a_limit_in_total() {
        let mut rest = body(100, 5000, Duration::from_secs(1));
        rest.set_pace(BodyPace::Within { limit: Duration::from_secs(5) });
        assert_eq!(read(rest).await.unwrap_err(), "the rest of the request body did not arrive within 5 s");
        let mut stream = body(2, 1, Duration::from_mins(10));
        stream.set_pace(BodyPace::LaterMessages);
        assert_eq!(read(stream).await, Ok(2));
    }
}
