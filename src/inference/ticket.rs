//! A request between its admission and its answer: what it waits for, how long it may, and what is recorded of it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

use super::{InferenceError, Target};
use crate::registry::{Model, QueueFull};
use crate::runtimes::{Progress, Runtime};
use crate::telemetry::inference::ModelMetrics;
use crate::types::{InferenceRequest, InferenceResponse, Tensor};

/// A request's place in the queue of its model. Dropped, it is free.
#[derive(Debug)]
struct Ticket {
    model: Arc<Model>,
    with_version: bool,
    bytes: usize,
    entered: Instant,
    begun: OnceLock<Instant>,
}

/// How long a request waited and was predicted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Timing {
    pub(super) queue: Duration,
    pub(super) predict: Duration,
}

impl Ticket {
    fn enter(target: &Target, request: &InferenceRequest) -> Result<Arc<Self>, QueueFull> {
        let bytes = request.inputs.iter().map(Tensor::byte_len).sum();
        target.model.queue.enter(bytes)?;
        let model = Arc::clone(&target.model);
        let ticket =
            Self { model, with_version: target.with_version, bytes, entered: Instant::now(), begun: OnceLock::new() };
        ticket.metrics().enter_queue();
        Ok(Arc::new(ticket))
    }

    fn metrics(&self) -> &ModelMetrics {
        self.model.metrics(self.with_version)
    }

    fn leave_queue(&self) {
        self.model.queue.leave(self.bytes);
        self.metrics().leave_queue();
    }
}

impl Progress for Ticket {
    fn begin(&self) {
        let now = Instant::now();
        if self.begun.set(now).is_ok() {
            self.leave_queue();
            self.metrics().record_queue(now.saturating_duration_since(self.entered));
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.begun.get().is_none() {
            self.leave_queue();
        }
    }
}

/// Has a model predict, once it has time for the request, and no longer than its settings let.
///
/// # Errors
///
/// Fails when too much waits for the model, when the time is over, and as the model does.
pub(super) async fn predict(
    target: &Target,
    runtime: &dyn Runtime,
    request: InferenceRequest,
) -> Result<(InferenceResponse, Timing), InferenceError> {
    let ticket = Ticket::enter(target, &request)?;
    let work = runtime.predict_watched(request, Arc::clone(&ticket) as Arc<dyn Progress>);
    let limits = target.model.timeouts;
    let outcome = if limits.queue.is_none() && limits.predict.is_none() {
        work.await?
    } else {
        tokio::select! {
            biased;
            outcome = work => outcome?,
            late = overdue(&ticket) => return Err(late),
        }
    };
    let begun = ticket.begun.get().copied().unwrap_or(ticket.entered);
    let timing = Timing { queue: begun.saturating_duration_since(ticket.entered), predict: begun.elapsed() };
    ticket.metrics().record_predict(timing.predict);
    Ok((outcome, timing))
}

/// Waits until a request has waited or been predicted for too long.
async fn overdue(ticket: &Ticket) -> InferenceError {
    let limits = ticket.model.timeouts;
    loop {
        let now = Instant::now();
        let until = match (ticket.begun.get(), limits.predict, limits.queue) {
            (Some(&begun), Some(limit), _) if now >= begun + limit => return InferenceError::PredictTimeout { limit },
            (Some(&begun), Some(limit), _) => begun + limit,
            (Some(_), None, _) | (None, None, None) => return std::future::pending().await,
            (None, _, Some(limit)) if now >= ticket.entered + limit => return InferenceError::QueueTimeout { limit },
            // It may begin at any time from now on, so that this is early enough to look again.
            (None, Some(predict), Some(queue)) => (ticket.entered + queue).min(now + predict),
            (None, None, Some(queue)) => ticket.entered + queue,
            (None, Some(predict), None) => now + predict,
        };
        tokio::time::sleep_until(until).await;
    }
}
