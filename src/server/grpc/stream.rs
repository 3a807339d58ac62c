//! Answers of several messages: whatever makes them, the deadline, the trailers and the metrics.
//!
//! The next message is made when the connection has room for it, so a client that reads slowly holds back what makes
//! them, and a client that leaves ends it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Response};
use http_body::Frame;
use tokio::time::Sleep;
use tonic::Code;

use super::body::GrpcBody;
use super::deadline;
use super::instrument::Observation;
use super::reply::respond;
use super::status::{self, Status};

/// What makes the messages of an answer.
pub(super) trait MessageSource: Send + 'static {
    /// Makes the next message, in parts, with what comes before it. Nothing is the end, and so is a failure.
    fn next(&mut self) -> impl Future<Output = Option<Result<Vec<Bytes>, Status>>> + Send;

    /// Returns the headers that follow the last message when all went well.
    fn trailers(&mut self) -> HeaderMap {
        HeaderMap::new()
    }
}

/// Starts an answer. Its first message is not waited for: clients may send only when they know that they are heard.
pub(super) fn open(
    source: impl MessageSource,
    limit: Option<Duration>,
    observation: Observation,
) -> Response<GrpcBody> {
    let deadline = limit.map(|limit| Box::pin(tokio::time::sleep(limit)));
    let frames = Frames { work: Some((source, observation)), parts: VecDeque::new(), deadline };
    let frames = stream::unfold(frames, async |mut frames| frames.next().await.map(|frame| (frame, frames)));
    respond(GrpcBody::Stream(Box::pin(frames)))
}

struct Frames<S> {
    /// Nothing once the last message has been made.
    work: Option<(S, Observation)>,
    /// What is left of the current message.
    parts: VecDeque<Bytes>,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S: MessageSource> Frames<S> {
    async fn next(&mut self) -> Option<Frame<Bytes>> {
        if let Some(part) = self.parts.pop_front() {
            return Some(Frame::data(part));
        }
        let (source, observation) = self.work.as_mut()?;
        let next = tokio::select! {
            biased;
            () = passed(self.deadline.as_mut()) => Some(Err(deadline::exceeded())),
            next = source.next() => next,
        };
        let end = match next {
            Some(Ok(parts)) => {
                observation.sent();
                self.parts = parts.into();
                return self.parts.pop_front().map(Frame::data);
            }
            Some(Err(status)) => Err(status),
            None => Ok(source.trailers()),
        };
        let (source, observation) = self.work.take()?;
        // The work ends before the client knows.
        drop(source);
        Some(Frame::trailers(match end {
            Ok(mut trailers) => {
                observation.end(Code::Ok);
                status::write_ok(&mut trailers);
                trailers
            }
            Err(status) => {
                observation.end(status.code);
                let mut trailers = HeaderMap::new();
                status.write(&mut trailers);
                trailers
            }
        }))
    }
}

async fn passed(deadline: Option<&mut Pin<Box<Sleep>>>) {
    match deadline {
        Some(deadline) => deadline.await,
        None => std::future::pending().await,
    }
}
