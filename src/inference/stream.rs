//! The answers of one stream of requests, between the runtime that makes them and the transport that takes them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use futures_core::Stream;
use tokio::sync::OwnedSemaphorePermit;

use super::validation::Refusal;
use super::{InferenceError, Target, log_failure};
use crate::runtimes::ResponseStream;
use crate::types::InferenceResponse;

/// Names, counts and ends the answers of a runtime.
pub(super) struct Answers {
    target: Target,
    id: String,
    started: Instant,
    /// Holds why the last request was not handed on, when it was not.
    refusal: Refusal,
    /// Nothing once the stream has ended.
    source: Option<(ResponseStream, OwnedSemaphorePermit)>,
}

impl Answers {
    pub(super) fn new(
        target: Target,
        id: String,
        answers: ResponseStream,
        refusal: Refusal,
        permit: OwnedSemaphorePermit,
    ) -> Self {
        Self { target, id, started: Instant::now(), refusal, source: Some((answers, permit)) }
    }

    /// Ends the stream: the runtime stops, the permit is free.
    fn end(&mut self, success: bool) {
        self.source = None;
        self.target.model.metrics(self.target.with_version).record(self.started.elapsed(), success);
    }
}

impl Stream for Answers {
    type Item = Result<InferenceResponse, InferenceError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let Some((answers, _)) = &mut this.source else {
            return Poll::Ready(None);
        };
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
                    this.end(true);
                    return Poll::Ready(None);
                }
            },
        };
        this.end(false);
        log_failure(&this.target.model, &this.id, &failure);
        Poll::Ready(Some(Err(failure)))
    }
}
