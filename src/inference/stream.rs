//! The answers of one stream of requests, between the runtime that makes them and the transport that takes them.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use futures_core::Stream;
use tokio::sync::OwnedSemaphorePermit;

use super::{InferenceError, Target, log_failure};
use crate::runtimes::ResponseStream;
use crate::types::InferenceResponse;

/// Names, counts and ends the answers of a runtime.
pub(super) struct Answers {
    target: Target,
    id: String,
    started: Instant,
    /// Nothing once the stream has ended.
    source: Option<(ResponseStream, OwnedSemaphorePermit)>,
}

impl Answers {
    pub(super) fn new(target: Target, id: String, answers: ResponseStream, permit: OwnedSemaphorePermit) -> Self {
        Self { target, id, started: Instant::now(), source: Some((answers, permit)) }
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
        Poll::Ready(match ready!(answers.as_mut().poll_next(context)) {
            Some(Ok(mut response)) => {
                this.target.sign(&this.id, &mut response);
                Some(Ok(response))
            }
            Some(Err(error)) => {
                this.end(false);
                let failure = InferenceError::from(error);
                log_failure(&this.target.model, &this.id, &failure);
                Some(Err(failure))
            }
            None => {
                this.end(true);
                None
            }
        })
    }
}
