//! The responses to one stream of requests, between the runtime that produces them and the transport that sends them.

use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::StreamExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::validation::ValidationFailure;
use super::{Admission, InferenceError, ModelTarget, log_failure};
use crate::runtimes::{RequestStream, RuntimeError};
use crate::types::InferenceResponse;

/// The limits of streams.
#[derive(Debug, Clone, Copy)]
pub struct StreamLimits {
    /// The maximum number of open streams. It should be lower than the number of slots, which other requests need.
    pub max_streams: NonZeroUsize,
    /// How long a stream may be without a message in either direction.
    pub idle_timeout: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        let max_streams = const { NonZeroUsize::new(128).expect("it is not zero") };
        Self { max_streams, idle_timeout: Duration::from_mins(5) }
    }
}

/// The slots of streams, which each stream takes in addition to that of its admission. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct StreamSlots {
    semaphore: Arc<Semaphore>,
    limits: StreamLimits,
}

impl StreamSlots {
    pub(super) fn new(limits: StreamLimits) -> Self {
        let slots = limits.max_streams.get().min(Semaphore::MAX_PERMITS);
        Self { semaphore: Arc::new(Semaphore::new(slots)), limits }
    }

    pub(super) const fn idle_timeout(&self) -> Duration {
        self.limits.idle_timeout
    }

    /// Takes a slot at once, or fails.
    pub(super) fn admit(&self) -> Result<OwnedSemaphorePermit, InferenceError> {
        let limit = self.limits.max_streams.get();
        Arc::clone(&self.semaphore).try_acquire_owned().map_err(|_| InferenceError::TooManyStreams { limit })
    }
}

/// Measures how long a stream has been without a message.
pub(super) struct IdleTimer {
    limit: Duration,
    activity: Arc<StreamActivity>,
    timer: Pin<Box<Sleep>>,
}

/// When the last message of a stream was seen.
struct StreamActivity {
    started: Instant,
    /// Milliseconds from the start.
    last: AtomicU64,
}

impl StreamActivity {
    fn note(&self) {
        let milliseconds = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(milliseconds, Ordering::Relaxed);
    }
}

impl IdleTimer {
    pub(super) fn new(limit: Duration) -> Self {
        let activity = StreamActivity { started: Instant::now(), last: AtomicU64::new(0) };
        Self { limit, activity: Arc::new(activity), timer: Box::pin(sleep(limit)) }
    }

    /// Counts the requests of a stream as activity.
    pub(super) fn note_requests(&self, requests: RequestStream) -> RequestStream {
        let activity = Arc::clone(&self.activity);
        Box::pin(requests.inspect(move |_| activity.note()))
    }

    /// Completes once the stream has been idle for too long.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.timer.as_mut().poll(context).is_ready() {
            let last = self.activity.started + Duration::from_millis(self.activity.last.load(Ordering::Relaxed));
            let end = last + self.limit;
            if Instant::now() >= end {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(end);
        }
        Poll::Pending
    }
}

/// What a runtime produces for a stream.
pub(super) trait StreamItem: Sized + Unpin {
    /// Adds what the runtime does not know.
    fn complete(&mut self, target: &ModelTarget, id: &str);
}

impl StreamItem for InferenceResponse {
    fn complete(&mut self, target: &ModelTarget, id: &str) {
        target.complete(id.to_owned(), self);
    }
}

/// A piece of a reply, which the handler has made as the client gets it.
impl StreamItem for Bytes {
    fn complete(&mut self, _: &ModelTarget, _: &str) {}
}

/// Items of a runtime. The stream ends after the first error.
type RuntimeStream<T> = Pin<Box<dyn Stream<Item = Result<T, RuntimeError>> + Send>>;

/// The items of a runtime, and what the stream holds until it ends.
pub(super) struct StreamSource<T> {
    items: RuntimeStream<T>,
    _admission: Admission,
    /// `None` for a step of another stream, which has one.
    _slot: Option<OwnedSemaphorePermit>,
}

impl<T> StreamSource<T> {
    pub(super) const fn new(items: RuntimeStream<T>, admission: Admission, slot: Option<OwnedSemaphorePermit>) -> Self {
        Self { items, _admission: admission, _slot: slot }
    }
}

/// Completes and records the items of a runtime, and ends the stream at the deadline or an error.
pub(super) struct RecordedStream<T> {
    target: ModelTarget,
    id: String,
    /// When the request began, if the metrics of inference count it.
    counted: Option<Instant>,
    /// When the client stops waiting. `None` if it sets no deadline.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Set if a request was invalid, which ended the requests.
    invalid: ValidationFailure,
    idle: IdleTimer,
    /// `None` once the stream has ended.
    source: Option<StreamSource<T>>,
}

impl<T> RecordedStream<T> {
    pub(super) fn new(
        target: ModelTarget,
        id: String,
        counted: Option<Instant>,
        source: StreamSource<T>,
        invalid: ValidationFailure,
        idle: IdleTimer,
    ) -> Self {
        if counted.is_some() {
            target.model.metrics(target.with_version).begin();
        }
        let deadline = target.deadline.map(|deadline| Box::pin(sleep_until(deadline)));
        Self { target, id, counted, deadline, invalid, idle, source: Some(source) }
    }

    /// Ends the stream: cancels the runtime's work and frees the slot.
    fn end(&mut self, failure: Option<&InferenceError>) {
        self.source = None;
        let Some(started) = self.counted else { return };
        let metrics = self.target.model.metrics(self.target.with_version);
        metrics.record(started.elapsed(), failure.is_none());
        if let Some(reason) = failure.and_then(InferenceError::dropped) {
            metrics.count_dropped(reason);
        }
    }

    fn fail(&mut self, failure: InferenceError) -> Poll<Option<Result<T, InferenceError>>> {
        self.end(Some(&failure));
        log_failure(&self.target.model, &self.id, &failure);
        Poll::Ready(Some(Err(failure)))
    }
}

impl<T> Drop for RecordedStream<T> {
    fn drop(&mut self) {
        let Some(started) = self.counted else { return };
        let metrics = self.target.model.metrics(self.target.with_version);
        metrics.end();
        if self.source.is_some() && std::thread::panicking() {
            metrics.record(started.elapsed(), false);
        } else if self.source.is_some() {
            metrics.count_dropped("client_disconnected");
        }
    }
}

impl<T: StreamItem> Stream for RecordedStream<T> {
    type Item = Result<T, InferenceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some(StreamSource { items, .. }) = &mut this.source else {
            return Poll::Ready(None);
        };
        if let Some(deadline) = &mut this.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return this.fail(InferenceError::Deadline);
        }
        let Poll::Ready(next) = items.as_mut().poll_next(context) else {
            return match this.idle.poll(context) {
                Poll::Ready(()) => this.fail(InferenceError::StreamIdle { limit: this.idle.limit }),
                Poll::Pending => Poll::Pending,
            };
        };
        let failure = match next {
            Some(Ok(mut item)) => {
                this.idle.activity.note();
                item.complete(&this.target, &this.id);
                return Poll::Ready(Some(Ok(item)));
            }
            // A model may fail because its requests ended early: report the reason for that instead.
            next => match (this.invalid.get(), next) {
                (Some(invalid), _) => InferenceError::from(invalid.clone()),
                (None, Some(Err(error))) => error.into(),
                (None, _) => {
                    this.end(None);
                    return Poll::Ready(None);
                }
            },
        };
        this.fail(failure)
    }
}
