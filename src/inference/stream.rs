//! The responses to one stream of requests, between the runtime that produces them and the transport that sends them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use futures_core::Stream;
use tokio::time::{Sleep, sleep_until};

use super::validation::ValidationFailure;
use super::{Admission, InferenceError, ModelTarget, log_failure};
use crate::runtimes::ResponseStream;
use crate::types::InferenceResponse;

/// Completes and records the responses of a runtime, and ends the stream at the deadline or an error.
pub(super) struct StreamedResponses {
    target: ModelTarget,
    id: String,
    started: Instant,
    /// When the client stops waiting. `None` if it sets no deadline.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Set if a request was invalid, which ended the requests.
    invalid: ValidationFailure,
    /// `None` once the stream has ended.
    source: Option<(ResponseStream, Admission)>,
}

impl StreamedResponses {
    pub(super) fn new(
        target: ModelTarget,
        id: String,
        responses: ResponseStream,
        invalid: ValidationFailure,
        admission: Admission,
    ) -> Self {
        target.model.metrics(target.with_version).begin();
        let deadline = target.deadline.map(|deadline| Box::pin(sleep_until(deadline)));
        Self { target, id, started: Instant::now(), deadline, invalid, source: Some((responses, admission)) }
    }

    /// Ends the stream: cancels the runtime's work and frees the slot.
    fn end(&mut self, failure: Option<&InferenceError>) {
        self.source = None;
        let metrics = self.target.model.metrics(self.target.with_version);
        metrics.record(self.started.elapsed(), failure.is_none());
        if let Some(reason) = failure.and_then(InferenceError::dropped) {
            metrics.count_dropped(reason);
        }
    }

    fn fail(&mut self, failure: InferenceError) -> Poll<Option<<Self as Stream>::Item>> {
        self.end(Some(&failure));
        log_failure(&self.target.model, &self.id, &failure);
        Poll::Ready(Some(Err(failure)))
    }
}

impl Drop for StreamedResponses {
    fn drop(&mut self) {
        let metrics = self.target.model.metrics(self.target.with_version);
        metrics.end();
        if self.source.is_some() {
            metrics.count_dropped("client_disconnected");
        }
    }
}

impl Stream for StreamedResponses {
    type Item = Result<InferenceResponse, InferenceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some((responses, _)) = &mut this.source else {
            return Poll::Ready(None);
        };
        if let Some(deadline) = &mut this.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return this.fail(InferenceError::Deadline);
        }
        let next = ready!(responses.as_mut().poll_next(context));
        let failure = match next {
            Some(Ok(mut response)) => {
                this.target.complete(this.id.clone(), &mut response);
                return Poll::Ready(Some(Ok(response)));
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
