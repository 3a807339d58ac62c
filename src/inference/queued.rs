//! A request between its admission and its response: its place in the model's queue, its timeouts, and what is recorded of it.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::steps::StepScope;
use super::{Admission, InferenceError, ModelTarget};
use crate::registry::{QueueFull, RegisteredModel};
use crate::runtimes::{Asked, BoxFuture, ModelMemory, Progress, RuntimeError, Steps};
use crate::telemetry::inference::ModelMetrics;
use crate::telemetry::traces::{RequestPhase, Traces};
use crate::types::{ByteReservation, InferenceRequest, Priority, Tensor, TokenUsage, TraceContext};

/// A request in the queue of its model or at its runtime, which reports the request's progress to it.
#[derive(Debug)]
struct QueuedRequest {
    model: Arc<RegisteredModel>,
    with_version: bool,
    bytes: usize,
    priority: Priority,
    stage: Mutex<RequestStage>,
    trace: Option<TraceContext>,
    traces: Traces,
    /// The span of the batch that the request has joined.
    batch: OnceLock<TraceContext>,
    /// The bytes of the response, as far as they are known before it is there.
    response: Mutex<ByteReservation>,
    /// Whether the metrics of inference count it.
    counted: bool,
    /// Answers its steps. `None` for models without steps.
    steps: Option<Arc<StepScope>>,
}

/// What the queue of a model has to know of a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct QueueEntry {
    pub(super) bytes: usize,
    pub(super) priority: Priority,
    pub(super) trace: Option<TraceContext>,
    /// Whether the metrics of inference count it: those of calls of a model's own routes do not.
    pub(super) counted: bool,
}

impl QueueEntry {
    pub(super) fn of(request: &InferenceRequest) -> Self {
        let bytes = request.inputs.iter().map(Tensor::byte_len).sum();
        Self { bytes, priority: request.priority, trace: request.trace, counted: true }
    }
}

#[derive(Debug, Clone, Copy)]
enum RequestStage {
    /// The request is in the model's queue. It has waited `before` that for a prediction that came to nothing.
    Waiting {
        since: Instant,
        before: Duration,
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
    fn enter<'r>(
        target: &ModelTarget,
        entry: QueueEntry,
        response: ByteReservation,
        steps: Option<Arc<StepScope>>,
        asked: impl FnOnce() -> Asked<'r>,
    ) -> Result<QueueGuard, QueueFull> {
        let QueueEntry { bytes, priority, trace, counted } = entry;
        if let Err(full) = target.model.queue.enter(bytes, priority) {
            // The work is estimated only now, since most queues are not full.
            let is_answered = target.runtime().is_ok_and(|runtime| runtime.answers_at_once(asked()));
            if !is_answered {
                return Err(full);
            }
            target.model.queue.enter_anyway(bytes, priority);
        }
        let stage = Mutex::new(RequestStage::Waiting { since: Instant::now(), before: Duration::ZERO });
        let request = Self {
            model: Arc::clone(&target.model),
            with_version: target.with_version,
            bytes,
            priority,
            stage,
            trace,
            traces: target.traces.clone(),
            batch: OnceLock::new(),
            response: Mutex::new(response),
            counted,
            steps,
        };
        if let Some(metrics) = request.metrics() {
            metrics.enter_queue();
        }
        Ok(QueueGuard(Arc::new(request)))
    }

    fn metrics(&self) -> Option<&ModelMetrics> {
        self.counted.then(|| self.model.metrics(self.with_version))
    }

    /// Records the stages of the request, up to `stage`, in its trace.
    fn trace(&self, stage: RequestStage) {
        let (since, waited) = match stage {
            RequestStage::Waiting { since, .. } => (since, None),
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
}

impl Progress for QueuedRequest {
    fn begin(&self) {
        let mut stage = self.stage.lock();
        if let RequestStage::Waiting { since, before } = *stage {
            let now = Instant::now();
            let waited = now.saturating_duration_since(since);
            *stage = RequestStage::Running { since: now, waited: before + waited };
            self.model.queue.begin(self.bytes, self.priority, now);
            if let Some(metrics) = self.metrics() {
                metrics.leave_queue();
                metrics.record_queue(waited);
            }
        }
    }

    fn reserve(&self, bytes: usize) -> Result<(), RuntimeError> {
        Ok(self.response.lock().grow(bytes)?)
    }

    /// A request takes no place of its own in the runtime.
    fn yielded(&self) {}

    fn wait_again(&self) {
        let mut stage = self.stage.lock();
        if let RequestStage::Running { waited, .. } = *stage {
            *stage = RequestStage::Waiting { since: Instant::now(), before: waited };
            // It has been admitted, so it returns even if the queue is full by now.
            self.model.queue.enter_anyway(self.bytes, self.priority);
            if let Some(metrics) = self.metrics() {
                metrics.enter_queue();
            }
        }
    }

    fn joined(&self, batch: TraceContext) {
        // A request joins at most one batch.
        let _ = self.batch.set(batch);
    }

    fn used(&self, tokens: TokenUsage) {
        self.model.metrics(self.with_version).record_tokens(tokens);
    }

    fn steps(&self) -> Option<Arc<dyn Steps>> {
        self.steps.clone().map(|scope| scope as Arc<dyn Steps>)
    }

    fn memory(&self) -> Option<Arc<dyn ModelMemory>> {
        None
    }
}

impl Drop for QueueGuard {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut *self.0.stage.lock(), RequestStage::Ended);
        if let RequestStage::Waiting { .. } = stage {
            self.0.model.queue.leave(self.0.bytes, self.0.priority);
            if let Some(metrics) = self.0.metrics() {
                metrics.leave_queue();
            }
        }
        if self.0.trace.is_some() {
            self.0.trace(stage);
        }
        if let Some(steps) = &self.0.steps {
            steps.end();
        }
    }
}

/// Queues a request for a model and does its work, within the timeouts of the model's settings.
///
/// # Errors
///
/// Fails if the model's queue is full, if a timeout passes, or if the work fails.
pub(super) async fn run<'a, R, T>(
    target: &ModelTarget,
    entry: QueueEntry,
    admission: &mut Admission,
    steps: Option<Arc<StepScope>>,
    request: R,
    asked: impl FnOnce(&R) -> Asked<'_>,
    work: impl FnOnce(R, Arc<dyn Progress>) -> BoxFuture<'a, Result<T, RuntimeError>>,
) -> Result<(T, RequestTiming), InferenceError> {
    let guard = QueuedRequest::enter(target, entry, admission.reservation.sibling(), steps, || asked(&request))?;
    let work = work(request, Arc::clone(&guard.0) as Arc<dyn Progress>);
    // If the response is ready at the first poll, `overdue` is not polled, and sets no timer.
    let response = tokio::select! {
        biased;
        response = work => response?,
        overdue = overdue(&guard.0) => return Err(overdue),
    };
    admission.reservation.merge(std::mem::take(&mut *guard.0.response.lock()));
    let timing = match *guard.0.stage.lock() {
        RequestStage::Running { since, waited } => RequestTiming { queue: waited, predict: since.elapsed() },
        // The runtime responded without a prediction.
        RequestStage::Waiting { since, before } => {
            RequestTiming { queue: before + since.elapsed(), predict: Duration::ZERO }
        }
        RequestStage::Ended => RequestTiming::default(),
    };
    if let Some(metrics) = guard.0.metrics() {
        metrics.record_predict(timing.predict);
    }
    target.model.queue.served(timing.predict);
    Ok((response, timing))
}

/// Waits until a request exceeds a timeout of its model, or its queue sheds it, and returns the error.
async fn overdue(request: &QueuedRequest) -> InferenceError {
    let (limits, queue) = (request.model.timeouts, &request.model.queue);
    loop {
        let now = Instant::now();
        let stage = *request.stage.lock();
        // If the request changes its stage in the meantime, at least the shorter of the timeouts remains.
        let soonest = limits.queue.into_iter().chain(limits.predict).min().map(|limit| now + limit);
        let deadline = match stage {
            RequestStage::Waiting { since, before } => {
                limits.queue.map(|limit| (since + limit.saturating_sub(before), InferenceError::QueueTimeout { limit }))
            }
            RequestStage::Running { since, .. } => {
                limits.predict.map(|limit| (since + limit, InferenceError::PredictTimeout { limit }))
            }
            RequestStage::Ended => None,
        };
        let shed = match stage {
            RequestStage::Waiting { since, .. } if queue.min_patience().is_some() => {
                match queue.keep(now.saturating_duration_since(since)) {
                    Ok(patience) => now.checked_add(patience),
                    Err(overloaded) => return overloaded.into(),
                }
            }
            _ => None,
        };
        let until = match deadline {
            Some((deadline, timeout)) if now >= deadline => return timeout,
            deadline => deadline.map(|(deadline, _)| deadline).into_iter().chain(soonest).chain(shed).min(),
        };
        match until {
            Some(until) => tokio::time::sleep_until(until).await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::{Admission, Inference};
    use crate::registry::{FnLoader, Registry};
    use crate::runtimes::{FnRuntime, Runtime};
    use crate::settings::ModelSettings;
    use crate::telemetry::inference::InferenceMetrics;
    use crate::telemetry::metrics::Registry as MetricsRegistry;
    use crate::types::InferenceResponse;
    use std::num::NonZeroUsize;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    /// Each request waits, runs for some time, waits again, and is never answered.
    fn waits_again(waits: Duration, runs: Duration) -> FnRuntime {
        FnRuntime::with_progress(move |_, progress| async move {
            tokio::time::sleep(waits).await;
            progress.begin();
            tokio::time::sleep(runs).await;
            progress.wait_again();
            std::future::pending().await
        })
    }

    async fn serve(runtime: impl Runtime, change: impl FnOnce(&mut ModelSettings)) -> Inference {
        let metrics = InferenceMetrics::register(&mut MetricsRegistry::default());
        let registry = Registry::new(FnLoader::fixed(runtime), metrics);
        let mut settings = ModelSettings::new("m", "tests.Model");
        change(&mut settings);
        registry.load(settings).await.unwrap();
        Inference::new(registry, NonZeroUsize::new(4096).unwrap())
    }

    async fn ask(inference: &Inference) -> Result<InferenceResponse, InferenceError> {
        let target = inference.target("m", None)?;
        inference.infer(&target, InferenceRequest::default(), &mut Admission::new()).await
    }

    #[tokio::test(start_paused = true)]
    async fn queue_timeout_continues_when_a_request_waits_again() {
        let inference =
            serve(waits_again(ms(300), ms(1000)), |settings| settings.parameters.queue_timeout = Some(ms(500))).await;
        let started = Instant::now();
        let error = ask(&inference).await.unwrap_err();
        assert!(matches!(error, InferenceError::QueueTimeout { .. }), "{error}");
        // The prediction itself does not count.
        assert!(started.elapsed().abs_diff(ms(1500)) < ms(5), "{:?}", started.elapsed());
    }
}
