//! A request between its admission and its answer: what it waits for, how long it may, and what is recorded of it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::{InferenceError, Target};
use crate::registry::{Model, QueueFull};
use crate::runtimes::{Progress, Runtime};
use crate::telemetry::inference::ModelMetrics;
use crate::telemetry::traces::{Part, Traces};
use crate::types::{InferenceRequest, InferenceResponse, Tensor, TraceContext};

/// A request's place with its model, which learns from the runtime how far it has come.
#[derive(Debug)]
struct Ticket {
    model: Arc<Model>,
    with_version: bool,
    bytes: usize,
    stage: Mutex<Stage>,
    trace: Option<TraceContext>,
    traces: Traces,
    /// The batch that it has joined.
    batch: OnceLock<TraceContext>,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// It has a place in the model's queue.
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
struct Place(Arc<Ticket>);

/// How long a request waited and was predicted.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Timing {
    pub(super) queue: Duration,
    pub(super) predict: Duration,
}

impl Ticket {
    fn enter(target: &Target, request: &InferenceRequest) -> Result<Place, QueueFull> {
        let bytes = request.inputs.iter().map(Tensor::byte_len).sum();
        target.model.queue.enter(bytes)?;
        let stage = Mutex::new(Stage::Waiting { since: Instant::now() });
        let ticket = Self {
            model: Arc::clone(&target.model),
            with_version: target.with_version,
            bytes,
            stage,
            trace: request.trace,
            traces: target.traces.clone(),
            batch: OnceLock::new(),
        };
        ticket.metrics().enter_queue();
        Ok(Place(Arc::new(ticket)))
    }

    fn metrics(&self) -> &ModelMetrics {
        self.model.metrics(self.with_version)
    }

    /// Notes how far the request had come, in the trace that it belongs to.
    fn trace(&self, stage: Stage) {
        let (since, waited) = match stage {
            Stage::Waiting { since } => (since, None),
            Stage::Running { since, waited } => (since.checked_sub(waited).unwrap_or(since), Some(since)),
            Stage::Gone => return,
        };
        let now = Instant::now();
        let queue = Part { name: "queue", since, until: waited.unwrap_or(now), batch: None };
        self.traces.part(self.trace, queue);
        if let Some(since) = waited {
            let batch = self.batch.get().copied();
            self.traces.part(self.trace, Part { name: "predict", since, until: now, batch });
        }
    }

    fn leave_queue(&self) {
        self.model.queue.leave(self.bytes);
        self.metrics().leave_queue();
    }
}

impl Progress for Ticket {
    fn begin(&self) {
        let mut stage = self.stage.lock();
        if let Stage::Waiting { since } = *stage {
            let now = Instant::now();
            let waited = now.saturating_duration_since(since);
            *stage = Stage::Running { since: now, waited };
            self.leave_queue();
            self.metrics().record_queue(waited);
        }
    }

    fn wait_again(&self) {
        let mut stage = self.stage.lock();
        if let Stage::Running { .. } = *stage {
            *stage = Stage::Waiting { since: Instant::now() };
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

impl Drop for Place {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut *self.0.stage.lock(), Stage::Gone);
        if let Stage::Waiting { .. } = stage {
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
    target: &Target,
    runtime: &dyn Runtime,
    request: InferenceRequest,
) -> Result<(InferenceResponse, Timing), InferenceError> {
    let place = Ticket::enter(target, &request)?;
    let work = runtime.predict(request, Arc::clone(&place.0) as Arc<dyn Progress>);
    let limits = target.model.timeouts;
    let response = if limits.queue.is_none() && limits.predict.is_none() {
        work.await?
    } else {
        tokio::select! {
            biased;
            outcome = work => outcome?,
            late = overdue(&place.0) => return Err(late),
        }
    };
    let timing = match *place.0.stage.lock() {
        Stage::Running { since, waited } => Timing { queue: waited, predict: since.elapsed() },
        // The runtime had the answer without a prediction.
        Stage::Waiting { since } => Timing { queue: since.elapsed(), predict: Duration::ZERO },
        Stage::Gone => Timing::default(),
    };
    place.0.metrics().record_predict(timing.predict);
    Ok((response, timing))
}

/// Waits until a request has waited or been predicted for too long.
async fn overdue(ticket: &Ticket) -> InferenceError {
    let limits = ticket.model.timeouts;
    loop {
        let now = Instant::now();
        let stage = *ticket.stage.lock();
        // What changes its stage meanwhile has at least the shorter of the limits left.
        let soonest = limits.queue.into_iter().chain(limits.predict).min().map(|limit| now + limit);
        let latest = match stage {
            Stage::Waiting { since } => {
                limits.queue.map(|limit| (since + limit, InferenceError::QueueTimeout { limit }))
            }
            Stage::Running { since, .. } => {
                limits.predict.map(|limit| (since + limit, InferenceError::PredictTimeout { limit }))
            }
            Stage::Gone => None,
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
