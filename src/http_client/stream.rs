//! A response whose body is read while it arrives.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use reqwest::Response;
use tokio::time::{Instant, Sleep, sleep};

use super::{HttpError, last_cause};

/// A response with the rest of its body. It fails if no byte arrives for the time limit; there is none on the whole.
#[derive(Debug)]
pub struct HttpStream {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: reqwest::Body,
    server: String,
    idle: Duration,
    /// When the body has been idle for too long.
    deadline: Pin<Box<Sleep>>,
}

impl HttpStream {
    pub(super) fn new(response: Response, server: String, idle: Duration) -> Self {
        let (head, body) = http::Response::from(response).into_parts();
        let deadline = Box::pin(sleep(idle));
        Self { status: head.status, headers: head.headers, body, server, idle, deadline }
    }

    /// Waits for the next bytes of the body. `None` means that it is complete.
    ///
    /// # Errors
    ///
    /// Fails if the body ends early, or nothing arrives within the time limit.
    pub async fn next(&mut self) -> Result<Option<Bytes>, HttpError> {
        while let Some(frame) = self.frame().await {
            match frame?.into_data() {
                Ok(data) if !data.is_empty() => return Ok(Some(data)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Reads the rest of the body.
    ///
    /// # Errors
    ///
    /// Fails as [`HttpStream::next`] does, and if the body has more than `limit` bytes.
    pub async fn collect(mut self, limit: usize) -> Result<Vec<u8>, HttpError> {
        let mut body = Vec::new();
        while let Some(data) = self.next().await? {
            if body.len() + data.len() > limit {
                return Err(HttpError::TooLarge { limit });
            }
            body.extend_from_slice(&data);
        }
        Ok(body)
    }
}

impl Body for HttpStream {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            let idle = self.idle;
            self.deadline.as_mut().reset(Instant::now() + idle);
            let truncated =
                |error: reqwest::Error| HttpError::Truncated { server: self.server.clone(), cause: last_cause(&error) };
            return Poll::Ready(frame.map(|frame| frame.map_err(truncated)));
        }
        ready!(self.deadline.as_mut().poll(context));
        let cause = format!("nothing arrived for {} s", self.idle.as_secs_f64());
        Poll::Ready(Some(Err(HttpError::Truncated { server: self.server.clone(), cause })))
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
