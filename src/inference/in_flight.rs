//! What is recorded of a request: its metrics, and the time that it took.

use std::time::Duration;

use http::{HeaderName, HeaderValue};
use tokio::time::Instant;

use super::InferenceError;
use super::queued::RequestTiming;
use crate::telemetry::inference::ModelMetrics;
use crate::types::InferenceResponse;

/// The header with the server's timing, which browsers and proxies understand.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Counts a request in flight. If it is dropped before its end, the client has disconnected.
pub(super) struct InFlightRequest<'a> {
    metrics: &'a ModelMetrics,
    pub(super) started: Instant,
    ended: bool,
}

impl<'a> InFlightRequest<'a> {
    pub(super) fn start(metrics: &'a ModelMetrics) -> Self {
        metrics.begin();
        Self { metrics, started: Instant::now(), ended: false }
    }

    /// Leaves the rest of the request to a stream, which counts as in flight by itself.
    pub(super) fn goes_on(mut self) {
        self.ended = true;
    }

    /// Records the result, and returns how long the request took.
    pub(super) fn end<T>(mut self, result: &Result<T, InferenceError>) -> Duration {
        let elapsed = self.started.elapsed();
        self.ended = true;
        self.metrics.record(elapsed, result.is_ok());
        if let Some(reason) = result.as_ref().err().and_then(InferenceError::dropped) {
            self.metrics.count_dropped(reason);
        }
        elapsed
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        self.metrics.end();
        if !self.ended && std::thread::panicking() {
            self.metrics.record(self.started.elapsed(), false);
        } else if !self.ended {
            self.metrics.count_dropped("client_disconnected");
        }
    }
}

/// Adds the header that reports how long the request took, in milliseconds.
pub(super) fn add_server_timing(response: &mut InferenceResponse, timing: RequestTiming, total: Duration) {
    let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
    let (queue, predict, total) = (milliseconds(timing.queue), milliseconds(timing.predict), milliseconds(total));
    let text = format!("queue;dur={queue:.3}, predict;dur={predict:.3}, total;dur={total:.3}");
    if let Ok(value) = HeaderValue::try_from(text) {
        response.headers.append(SERVER_TIMING, value);
    }
}
