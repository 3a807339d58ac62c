//! A request between its admission and its answer: what it waits for, how long it may, and what is recorded of it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{InferenceError, ModelTarget};
use crate::registry::{QueueFull, RegisteredModel};
use crate::runtimes::{Progress, Runtime};
use crate::telemetry::inference::ModelMetrics;
use crate::telemetry::traces::{RequestPhase, Traces};
use crate::types::{InferenceRequest, InferenceResponse, Tensor, TraceContext};

/// A request's guard with its model, which learns from the runtime how far it has come.
#[derive(Debug)]
struct QueuedRequest {
    model: Arc<RegisteredModel>,
    with_version: bool,
    bytes: usize,
    stage: Mutex<RequestStage>,
    trace: Option<TraceContext>,
    traces: Traces,
    /// The batch that it has joined.
    batch: OnceLock<TraceContext>,
}

#[derive(Debug, Clone, Copy)]
enum RequestStage {
    /// It has a guard in the model's queue.
    Waiting {
        since: Instant,
    },
    Running {
        since: Instant,
        waited: Duration,
    },
    /// Nobody waits for the answer any more.
    Gone,
}

/// Takes a request out of its model's queue when its caller has its answer, or has left.
struct QueueGuard(Arc<QueuedRequest>);

/// How long a request waited and was predicted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RequestTiming {
    pub(super) queue: Duration,
    pub(super) predict: Duration,
}

impl QueuedRequest {
    fn enter(target: &ModelTarget, request: &InferenceRequest) -> Result<QueueGuard, QueueFull> {
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
        };
        request.metrics().enter_queue();
        Ok(QueueGuard(Arc::new(request)))
    }

    fn metrics(&self) -> &ModelMetrics {
        self.model.metrics(self.with_version)
    }

    /// Notes how far the request had come, in the trace that it belongs to.
    fn trace(&self, stage: RequestStage) {
        let (since, waited) = match stage {
            RequestStage::Waiting { since } => (since, None),
            RequestStage::Running { since, waited } => (since.checked_sub(waited).unwrap_or(since), Some(since)),
            RequestStage::Gone => return,
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

    fn wait_again(&self) {
        let mut stage = self.stage.lock();
        if let RequestStage::Running { .. } = *stage {
            *stage = RequestStage::Waiting { since: Instant::now() };
            // It has been admitted, however many wait by now.
            self.model.queue.return_to(self.bytes);
            self.metrics().enter_queue();
        }
    }

    fn joined(&self, batch: TraceContext) {
        // The first one is the only one.
        let _ = self.batch.set(batch);
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut *self.0.stage.lock(), RequestStage::Gone);
        if let RequestStage::Waiting { .. } = stage {
            self.0.leave_queue();
        }
        if self.0.trace.is_some() {
            self.0.trace(stage);
        }
    }
}

/// Has a model predict, once it has time for the request, and no longer than its settings let.
///
/// # Errors
///
/// Fails when too much waits for the model, when the time is over, and as the model does.
pub(super) async fn predict(
    target: &ModelTarget,
    runtime: &dyn Runtime,
    request: InferenceRequest,
) -> Result<(InferenceResponse, RequestTiming), InferenceError> {
    let guard = QueuedRequest::enter(target, &request)?;
    let work = runtime.predict(request, Arc::clone(&guard.0) as Arc<dyn Progress>);
    let limits = target.model.timeouts;
    let response = if limits.queue.is_none() && limits.predict.is_none() {
        work.await?
    } else {
        tokio::select! {
            biased;
            outcome = work => outcome?,
            late = overdue(&guard.0) => return Err(late),
        }
    };
    let timing = match *guard.0.stage.lock() {
        RequestStage::Running { since, waited } => RequestTiming { queue: waited, predict: since.elapsed() },
        // The runtime had the answer without a prediction.
        RequestStage::Waiting { since } => RequestTiming { queue: since.elapsed(), predict: Duration::ZERO },
        RequestStage::Gone => RequestTiming::default(),
    };
    guard.0.metrics().record_predict(timing.predict);
    Ok((response, timing))
}

/// Waits until a request has waited or been predicted for too long.
async fn overdue(request: &QueuedRequest) -> InferenceError {
    let limits = request.model.timeouts;
    loop {
        let now = Instant::now();
        let stage = *request.stage.lock();
        // What changes its stage meanwhile has at least the shorter of the limits left.
        let soonest = limits.queue.into_iter().chain(limits.predict).min().map(|limit| now + limit);
        let latest = match stage {
            RequestStage::Waiting { since } => {
                limits.queue.map(|limit| (since + limit, InferenceError::QueueTimeout { limit }))
            }
            RequestStage::Running { since, .. } => {
                limits.predict.map(|limit| (since + limit, InferenceError::PredictTimeout { limit }))
            }
            RequestStage::Gone => None,
        };
        let until = match latest {
            Some((latest, late)) if now >= latest => return late,
            latest => latest.map(|(latest, _)| latest).into_iter().chain(soonest).min(),
        };
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}
