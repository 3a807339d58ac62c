//! The answers of one stream of requests, between the runtime that makes them and the transport that takes them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use futures_core::Stream;
use tokio::time::{Sleep, sleep_until};

use super::validation::Refusal;
use super::{Admission, InferenceError, ModelTarget, log_failure};
use crate::runtimes::ResponseStream;
use crate::types::InferenceResponse;

/// Names, counts and ends the answers of a runtime.
pub(super) struct StreamedAnswers {
    target: ModelTarget,
    id: String,
    started: Instant,
    /// Ends when the client has stopped waiting, if it has said when.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Holds why the last request was not handed on, when it was not.
    refusal: Refusal,
    /// Nothing once the stream has ended.
    source: Option<(ResponseStream, Admission)>,
}

impl StreamedAnswers {
    pub(super) fn new(
        target: ModelTarget,
        id: String,
        answers: ResponseStream,
        refusal: Refusal,
        admission: Admission,
    ) -> Self {
        target.model.metrics(target.with_version).begin();
        let deadline = target.deadline.map(|deadline| Box::pin(sleep_until(deadline)));
        Self { target, id, started: Instant::now(), deadline, refusal, source: Some((answers, admission)) }
    }

    /// Ends the stream: the runtime stops, and the slot is free.
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

impl Drop for StreamedAnswers {
    fn drop(&mut self) {
        let metrics = self.target.model.metrics(self.target.with_version);
        metrics.end();
        if self.source.is_some() {
            metrics.count_dropped("client_disconnected");
        }
    }
}

impl Stream for StreamedAnswers {
    type Item = Result<InferenceResponse, InferenceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some((answers, _)) = &mut this.source else {
            return Poll::Ready(None);
        };
        if let Some(deadline) = &mut this.deadline
            && deadline.as_mut().poll(context).is_ready()
        {
            return this.fail(InferenceError::Deadline);
        }
        let next = ready!(answers.as_mut().poll_next(context));
        let failure = match next {
            Some(Ok(mut response)) => {
                this.target.sign(&this.id, &mut response);
                return Poll::Ready(Some(Ok(response)));
            }
            // A model may fail because its requests ended where they did: the reason for that says more.
            next => match (this.refusal.get(), next) {
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
