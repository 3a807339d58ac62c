//! A request between its admission and its response: its place in the model's queue, its timeouts, and what is recorded of it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Admission, InferenceError, ModelTarget};
use crate::registry::{QueueFull, RegisteredModel};
use crate::runtimes::{Progress, Runtime, RuntimeError};
use crate::telemetry::inference::ModelMetrics;
use crate::telemetry::traces::{RequestPhase, Traces};
use crate::types::{ByteReservation, InferenceRequest, InferenceResponse, Tensor, TraceContext};

/// A request in the queue of its model or at its runtime, which reports the request's progress to it.
#[derive(Debug)]
struct QueuedRequest {
    model: Arc<RegisteredModel>,
    with_version: bool,
    bytes: usize,
    stage: Mutex<RequestStage>,
    trace: Option<TraceContext>,
    traces: Traces,
    /// The span of the batch that the request has joined.
    batch: OnceLock<TraceContext>,
    /// The bytes of the response, as far as they are known before it is there.
    response: Mutex<ByteReservation>,
}

#[derive(Debug, Clone, Copy)]
enum RequestStage {
    /// The request is in the model's queue.
    Waiting {
        since: Instant,
    },
    Running {
        since: Instant,
        waited: Duration,
    },
    /// The caller has its response, or has stopped waiting.
    Ended,
}

/// Removes a request from its model's queue when its caller has the response or disconnects.
struct QueueGuard(Arc<QueuedRequest>);

/// The time that a request waited, and the time of its prediction.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestTiming {
    pub(super) queue: Duration,
    pub(super) predict: Duration,
}

impl QueuedRequest {
    fn enter(
        target: &ModelTarget,
        request: &InferenceRequest,
        response: ByteReservation,
    ) -> Result<QueueGuard, QueueFull> {
        let bytes = request.inputs.iter().map(Tensor::byte_len).sum();
        target.model.queue.enter(bytes)?;
        let stage = Mutex::new(RequestStage::Waiting { since: Instant::now() });
        let request = Self {
            model: Arc::clone(&target.model),
            with_version: target.with_version,
            bytes,
            stage,
            trace: request.trace,
            traces: target.traces.clone(),
            batch: OnceLock::new(),
            response: Mutex::new(response),
        };
        request.metrics().enter_queue();
        Ok(QueueGuard(Arc::new(request)))
    }

    fn metrics(&self) -> &ModelMetrics {
        self.model.metrics(self.with_version)
    }

    /// Records the stages of the request, up to `stage`, in its trace.
    fn trace(&self, stage: RequestStage) {
        let (since, waited) = match stage {
            RequestStage::Waiting { since } => (since, None),
            RequestStage::Running { since, waited } => (since.checked_sub(waited).unwrap_or(since), Some(since)),
            RequestStage::Ended => return,
        };
        let now = Instant::now();
        let queue = RequestPhase { name: "queue", since, until: waited.unwrap_or(now), batch: None };
        self.traces.record_phase(self.trace, queue);
        if let Some(since) = waited {
            let batch = self.batch.get().copied();
            self.traces.record_phase(self.trace, RequestPhase { name: "predict", since, until: now, batch });
        }
    }

    fn leave_queue(&self) {
        self.model.queue.leave(self.bytes);
        self.metrics().leave_queue();
    }
}

impl Progress for QueuedRequest {
    fn begin(&self) {
        let mut stage = self.stage.lock();
        if let RequestStage::Waiting { since } = *stage {
            let now = Instant::now();
            let waited = now.saturating_duration_since(since);
            *stage = RequestStage::Running { since: now, waited };
            self.leave_queue();
            self.metrics().record_queue(waited);
        }
    }

    fn reserve(&self, bytes: usize) -> Result<(), RuntimeError> {
        Ok(self.response.lock().grow(bytes)?)
    }

    fn wait_again(&self) {
        let mut stage = self.stage.lock();
        if let RequestStage::Running { .. } = *stage {
            *stage = RequestStage::Waiting { since: Instant::now() };
            // It has been admitted, so it returns even if the queue is full by now.
            self.model.queue.return_to(self.bytes);
            self.metrics().enter_queue();
        }
    }

    fn joined(&self, batch: TraceContext) {
        // A request joins at most one batch.
        let _ = self.batch.set(batch);
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut *self.0.stage.lock(), RequestStage::Ended);
        if let RequestStage::Waiting { .. } = stage {
            self.0.leave_queue();
        }
        if self.0.trace.is_some() {
            self.0.trace(stage);
        }
    }
}

/// Queues a request for its model and predicts it, within the timeouts of the model's settings.
///
/// The bytes of the response are added to those that `admission` holds.
///
/// # Errors
///
/// Fails if the model's queue is full, if a timeout passes, or if the prediction fails.
pub(super) async fn predict(
    target: &ModelTarget,
    runtime: &dyn Runtime,
    request: InferenceRequest,
    admission: &mut Admission,
) -> Result<(InferenceResponse, RequestTiming), InferenceError> {
    let guard = QueuedRequest::enter(target, &request, admission.reservation.sibling())?;
    let work = runtime.predict(request, Arc::clone(&guard.0) as Arc<dyn Progress>);
    let limits = target.model.timeouts;
    let response = if limits.queue.is_none() && limits.predict.is_none() {
        work.await?
    } else {
        tokio::select! {
            biased;
            response = work => response?,
            timeout = overdue(&guard.0) => return Err(timeout),
        }
    };
    admission.reservation.merge(std::mem::take(&mut *guard.0.response.lock()));
    let timing = match *guard.0.stage.lock() {
        RequestStage::Running { since, waited } => RequestTiming { queue: waited, predict: since.elapsed() },
        // The runtime responded without a prediction.
        RequestStage::Waiting { since } => RequestTiming { queue: since.elapsed(), predict: Duration::ZERO },
        RequestStage::Ended => RequestTiming::default(),
    };
    guard.0.metrics().record_predict(timing.predict);
    Ok((response, timing))
}

/// Waits until a request exceeds a timeout of its model, and returns the error.
async fn overdue(request: &QueuedRequest) -> InferenceError {
    let limits = request.model.timeouts;
    loop {
        let now = Instant::now();
        let stage = *request.stage.lock();
        // If the request changes its stage in the meantime, at least the shorter of the timeouts remains.
        let soonest = limits.queue.into_iter().chain(limits.predict).min().map(|limit| now + limit);
        let deadline = match stage {
            RequestStage::Waiting { since } => {
                limits.queue.map(|limit| (since + limit, InferenceError::QueueTimeout { limit }))
            }
            RequestStage::Running { since, .. } => {
                limits.predict.map(|limit| (since + limit, InferenceError::PredictTimeout { limit }))
            }
            RequestStage::Ended => None,
        };
        let until = match deadline {
            Some((deadline, timeout)) if now >= deadline => return timeout,
            deadline => deadline.map(|(deadline, _)| deadline).into_iter().chain(soonest).min(),
        };
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}
