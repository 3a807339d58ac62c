//! Responses of several messages: their source, the deadline, the trailers and the metrics.
//!
//! The next message is produced when the connection has room for it, so a slow client slows down the source, and a client
//! that disconnects ends it.

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
use crate::server::panic_boundary;

/// Produces the messages of a response.
pub(super) trait MessageSource: Send + 'static {
    /// Returns the next message with its header, in chunks. The stream ends with `None` or an error.
    fn next(&mut self) -> impl Future<Output = Option<Result<Vec<Bytes>, Status>>> + Send;

    /// Returns the headers that follow the last message of a successful stream.
    fn trailers(&mut self) -> HeaderMap {
        HeaderMap::new()
    }
}

/// Starts a response without waiting for its first message: some clients send only after they have received headers.
pub(super) fn open(
    source: impl MessageSource,
    limit: Option<Duration>,
    observation: Observation,
) -> Response<GrpcBody> {
    let deadline = limit.map(|limit| Box::pin(tokio::time::sleep(limit)));
    let frames = Frames { work: Some((source, observation)), chunks: VecDeque::new(), deadline };
    let frames = stream::unfold(frames, async |mut frames| frames.next().await.map(|frame| (frame, frames)));
    respond(GrpcBody::Stream(Box::pin(frames)))
}

struct Frames<S> {
    /// `None` once the last message has been produced.
    work: Option<(S, Observation)>,
    /// The remaining chunks of the current message.
    chunks: VecDeque<Bytes>,
    deadline: Option<Pin<Box<Sleep>>>,
}

impl<S: MessageSource> Frames<S> {
    async fn next(&mut self) -> Option<Frame<Bytes>> {
        if let Some(chunk) = self.chunks.pop_front() {
            return Some(Frame::data(chunk));
        }
        let (source, observation) = self.work.as_mut()?;
        let next = tokio::select! {
            biased;
            () = passed(self.deadline.as_mut()) => Some(Err(deadline::exceeded())),
            next = panic_boundary::contain(observation.method(), source.next()) => {
                next.unwrap_or_else(|panicked| Some(Err(panicked.into())))
            }
        };
        let end = match next {
            Some(Ok(chunks)) => {
                observation.sent();
                self.chunks = chunks.into();
                return self.chunks.pop_front().map(Frame::data);
            }
            Some(Err(status)) => Err(status),
            None => Ok(source.trailers()),
        };
        let (source, observation) = self.work.take()?;
        // End the work before the client sees the end.
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
