//! The one path that every request takes, whichever transport brought it.
//!
//! Find the model, take a permit, look whether the answer is known, ask the runtime, record. A caller that drops the future leaves the path wherever it is,
//! and its permit is free again.

mod admission;
mod batch;
mod cache;
mod queued;
mod stream;
mod validation;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

pub use admission::Admission;
pub use batch::{BatchOptions, Batched, BatchingLoader};
pub use cache::{CacheOptions, ResponseCache};
pub use validation::InvalidInput;

use futures_core::Stream;
use http::{HeaderName, HeaderValue};
use tokio::task::JoinError;
use tokio::time::Instant;
use tracing::{debug, error};

use crate::registry::{ModelState, NotFound, QueueFull, RegisteredModel, Registry, chain};
use crate::runtimes::{RequestStream, ResponseStream, Runtime, RuntimeError, RuntimeErrorKind};
use crate::telemetry::inference::ModelMetrics;
use crate::telemetry::traces::Traces;
use crate::types::{CustomCall, CustomReply, InferenceRequest, InferenceResponse};
use admission::Slots;
use queued::RequestTiming;

/// Times of the server, as browsers and proxies read them.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Why a request was not answered.
#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    #[error(transparent)]
    NotFound(#[from] NotFound),
    #[error("Model {name}{} is not ready yet.", version.as_deref().map(|v| format!(" with version {v}")).unwrap_or_default())]
    NotReady { name: String, version: Option<String> },
    /// As many requests as the server admits are under way.
    #[error("the server is answering {limit} requests already, as many as `max_in_flight` admits; try again later")]
    Overloaded { limit: usize },
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
    /// The model had no time for the request.
    #[error("the request has waited for the model for {} s, as long as `queue_timeout` lets; try again later", limit.as_secs_f64())]
    QueueTimeout { limit: Duration },
    #[error("the prediction took longer than the {} s that `predict_timeout` lets", limit.as_secs_f64())]
    PredictTimeout { limit: Duration },
    #[error("the answer took longer than the {} s that `request_timeout` lets", limit.as_secs_f64())]
    RequestTimeout { limit: Duration },
    #[error("the deadline that the client set has passed")]
    Deadline,
    #[error("the server is shutting down; try another one")]
    Stopping,
    /// The inputs are not those that the model declares.
    #[error(transparent)]
    InvalidInput(#[from] InvalidInput),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error("the server failed while handling the request; the log has the details")]
    Panicked(#[source] JoinError),
    /// The failure of an identical request, which this one has waited for.
    #[error(transparent)]
    Shared(Arc<Self>),
}

/// The kinds of failure. Each transport has one table from these to its own statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InferenceErrorKind {
    NotFound,
    NotReady,
    /// The request cannot be answered by this model, however often it is sent.
    BadRequest,
    /// The repository does not hold what a model's settings say, or settings that cannot be read.
    BadRepository,
    /// A model is there and does not load.
    LoadFailed,
    Overloaded,
    /// There was no answer in the time for it.
    Late,
    Stopping,
    /// The model's code chose this status for its refusal.
    Model {
        status: u16,
    },
    /// The model's code failed.
    ModelFailed,
    /// The process that ran the model has ended, or none runs, or the model cannot be loaded again.
    WorkerLost,
    /// Our bug.
    Internal,
}

impl InferenceError {
    /// Returns the kind, which decides the status.
    pub fn kind(&self) -> InferenceErrorKind {
        match self {
            Self::NotFound(_) => InferenceErrorKind::NotFound,
            Self::Shared(error) => error.kind(),
            Self::Panicked(_) => InferenceErrorKind::Internal,
            Self::NotReady { .. } => InferenceErrorKind::NotReady,
            Self::InvalidInput(_) => InferenceErrorKind::BadRequest,
            Self::Overloaded { .. } | Self::QueueFull(_) | Self::QueueTimeout { .. } => InferenceErrorKind::Overloaded,
            Self::PredictTimeout { .. } | Self::RequestTimeout { .. } | Self::Deadline => InferenceErrorKind::Late,
            Self::Stopping => InferenceErrorKind::Stopping,
            Self::Runtime(error) => match error.kind() {
                RuntimeErrorKind::InvalidRequest => InferenceErrorKind::BadRequest,
                RuntimeErrorKind::NotReady => InferenceErrorKind::NotReady,
                RuntimeErrorKind::Rejected { status } => InferenceErrorKind::Model { status },
                RuntimeErrorKind::Exception => InferenceErrorKind::ModelFailed,
                RuntimeErrorKind::WorkerLost | RuntimeErrorKind::Unavailable => InferenceErrorKind::WorkerLost,
                RuntimeErrorKind::Stopping => InferenceErrorKind::Stopping,
                RuntimeErrorKind::Internal => InferenceErrorKind::Internal,
            },
        }
    }
}

impl InferenceError {
    /// Returns a word for metrics when the request was given up because of the load or the time.
    fn dropped(&self) -> Option<&'static str> {
        match self {
            Self::Overloaded { .. } => Some("max_in_flight"),
            Self::QueueFull(full) => Some(full.reason()),
            Self::QueueTimeout { .. } => Some("queue_timeout"),
            Self::PredictTimeout { .. } => Some("predict_timeout"),
            Self::RequestTimeout { .. } => Some("request_timeout"),
            Self::Deadline => Some("deadline"),
            Self::Shared(error) => error.dropped(),
            _ => None,
        }
    }
}

/// The answers of one stream. The first error is its end, and dropping it ends the work.
pub type InferenceStream = ResponseStream<InferenceError>;

/// The life of the server, in its order.
mod phase {
    pub(super) const SERVING: u8 = 0;
    /// Answers, and is not ready.
    pub(super) const LEAVING: u8 = 1;
    pub(super) const STOPPING: u8 = 2;
}

/// The path of requests. Clones share it.
#[derive(Debug, Clone)]
pub struct Inference {
    registry: Registry,
    slots: Slots,
    phase: Arc<AtomicU8>,
    cache: Option<ResponseCache>,
    server_timing: bool,
    traces: Traces,
}

/// A model that a request has found, and how it asked.
#[derive(Debug, Clone)]
pub struct ModelTarget {
    pub model: Arc<RegisteredModel>,
    /// The request named the version, rather than taking the default.
    with_version: bool,
    /// When the client stops waiting, if it says so.
    deadline: Option<Instant>,
    traces: Traces,
}

impl Inference {
    /// Makes the path to the models of `registry`, for at most `max_in_flight` requests at once.
    pub fn new(registry: Registry, max_in_flight: NonZeroUsize) -> Self {
        let phase = Arc::new(AtomicU8::new(phase::SERVING));
        let slots = Slots::new(max_in_flight.get());
        let traces = Traces::default();
        Self { registry, slots, phase, cache: None, server_timing: false, traces }
    }

    /// Keeps the answers of the models whose settings ask for it.
    #[must_use]
    pub fn with_cache(self, cache: ResponseCache) -> Self {
        Self { cache: Some(cache), ..self }
    }

    /// Tells clients in a header how long their requests waited and were predicted.
    #[must_use]
    pub fn with_server_timing(self, server_timing: bool) -> Self {
        Self { server_timing, ..self }
    }

    /// Notes what requests do, for a collector of traces.
    #[must_use]
    pub fn with_traces(self, traces: Traces) -> Self {
        Self { traces, ..self }
    }

    /// Returns where the spans of requests go.
    pub const fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Returns the models that requests can reach.
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Says that the server is about to stop: it is not ready from now on, and answers as before.
    pub fn leave(&self) {
        self.enter(phase::LEAVING);
    }

    /// Refuses requests from now on; those under way go on.
    pub fn stop(&self) {
        self.enter(phase::STOPPING);
    }

    fn enter(&self, phase: u8) {
        self.phase.fetch_max(phase, Ordering::AcqRel);
        self.registry.announce_change();
    }

    /// Tells whether [`Inference::leave`] or [`Inference::stop`] has been called, after which the server is not ready.
    pub fn is_leaving(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= phase::LEAVING
    }

    /// Tells whether [`Inference::stop`] has been called.
    pub fn is_stopping(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= phase::STOPPING
    }

    /// Returns the number of requests under way.
    pub fn in_flight(&self) -> usize {
        self.slots.in_use()
    }

    /// Finds the model that a request asks for, before its body is read.
    ///
    /// A request that has its target counts as under way: [`Inference::stop`] refuses only those after it.
    ///
    /// # Errors
    ///
    /// Fails when there is no such model, and once the server stops.
    pub fn target(&self, name: &str, version: Option<&str>) -> Result<ModelTarget, InferenceError> {
        if self.is_stopping() {
            return Err(InferenceError::Stopping);
        }
        let model = self.registry.find(name, version).inspect_err(|_| self.registry.count_unknown_model())?;
        Ok(ModelTarget { model, with_version: version.is_some(), deadline: None, traces: self.traces.clone() })
    }

    /// Waits until the server has a slot for a request, for callers that would rather wait than be rejected.
    ///
    /// # Errors
    ///
    /// Fails if the server stops first.
    pub async fn wait_for_slot(&self, admission: &mut Admission) -> Result<(), InferenceError> {
        self.slots.wait(admission).await
    }

    /// Answers a request. It takes a slot of the server unless `admission` has one; keep `admission` until the response has
    /// been sent.
    ///
    /// # Errors
    ///
    /// [`InferenceError::kind`] tells the kinds of failure apart.
    pub async fn infer(
        &self,
        target: &ModelTarget,
        request: InferenceRequest,
        admission: &mut Admission,
    ) -> Result<InferenceResponse, InferenceError> {
        let model = &target.model;
        let id = request.id.clone();
        let in_flight = InFlightRequest::start(model.metrics(target.with_version));
        let result = match target.latest(in_flight.started) {
            None => self.predict(target, request, admission).await,
            Some((latest, late)) => {
                let in_time = tokio::time::timeout_at(latest, self.predict(target, request, admission)).await;
                in_time.unwrap_or(Err(late))
            }
        };
        let total = in_flight.end(&result);
        match result {
            Ok((mut response, timing)) => {
                target.sign(&id, &mut response);
                if self.server_timing {
                    add_server_timing(&mut response, timing, total);
                }
                Ok(response)
            }
            Err(failure) => {
                log_failure(model, &id, &failure);
                Err(failure)
            }
        }
    }

    /// Answers a stream of requests. Every answer carries `id`.
    ///
    /// The stream holds its permit until it ends or is dropped, and counts as one request. The first error ends it.
    ///
    /// # Errors
    ///
    /// Fails, and reads none of the requests, when the model cannot answer now. What fails later is an item of the stream.
    pub fn infer_stream(
        &self,
        target: &ModelTarget,
        id: String,
        requests: impl Stream<Item = InferenceRequest> + Send + 'static,
        mut admission: Admission,
    ) -> Result<InferenceStream, InferenceError> {
        let started = Instant::now();
        let model = &target.model;
        let admitted = target.runtime().and_then(|runtime| self.slots.admit(&mut admission).map(|()| runtime));
        let runtime = admitted.inspect_err(|failure| {
            model.metrics(target.with_version).record(started.elapsed(), false);
            log_failure(model, &id, failure);
        })?;
        let refusal = validation::Refusal::default();
        let mut requests: RequestStream = Box::pin(requests);
        if model.validated {
            requests = Box::pin(validation::Validated::new(Arc::clone(model), requests, Arc::clone(&refusal)));
        }
        let answers = Arc::clone(runtime).predict_stream(requests);
        Ok(Box::pin(stream::StreamedAnswers::new(target.clone(), id, answers, refusal, admission)))
    }

    /// Answers a call of a model's own route, which `place` is the place of.
    ///
    /// It is admitted like a request, and counted by the transport alone.
    ///
    /// # Errors
    ///
    /// [`InferenceError::kind`] tells the kinds of failure apart.
    pub async fn call(
        &self,
        model: &RegisteredModel,
        place: usize,
        call: CustomCall,
        admission: &mut Admission,
    ) -> Result<CustomReply, InferenceError> {
        let answer = async {
            if self.is_stopping() {
                return Err(InferenceError::Stopping);
            }
            let ModelState::Ready(runtime) = &model.state else {
                return Err(InferenceError::NotReady { name: model.name.clone(), version: model.version.clone() });
            };
            self.slots.admit(admission)?;
            Ok(runtime.call(place, call).await?)
        };
        answer.await.inspect_err(|failure| log_failure(model, "", failure))
    }

    async fn predict(
        &self,
        target: &ModelTarget,
        request: InferenceRequest,
        admission: &mut Admission,
    ) -> Result<(InferenceResponse, RequestTiming), InferenceError> {
        let runtime = target.runtime()?;
        if target.model.validated {
            validation::check(&target.model.metadata.inputs, &request.inputs)?;
        }
        self.slots.admit(admission)?;
        match &self.cache {
            Some(cache) if target.model.cached => {
                let (runtime, for_work) = (Arc::clone(runtime), target.clone());
                let work = |request| async move { Ok(queued::predict(&for_work, runtime.as_ref(), request).await?.0) };
                // Boxed, so that requests without the cache do not carry its state.
                let (result, hit) = Box::pin(cache.answer(&target.model, request, work)).await;
                target.model.metrics(target.with_version).record_cache(hit);
                Ok((result?, RequestTiming::default()))
            }
            _ => queued::predict(target, runtime.as_ref(), request).await,
        }
    }
}

impl ModelTarget {
    /// Gives the request a time after which its client does not wait any more.
    #[must_use]
    pub fn with_deadline(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Returns when the answer must be there, and what it means when it is not.
    fn latest(&self, started: Instant) -> Option<(Instant, InferenceError)> {
        let limit = self.model.timeouts.request;
        let by_setting = limit.map(|limit| (started + limit, InferenceError::RequestTimeout { limit }));
        let by_client = self.deadline.map(|deadline| (deadline, InferenceError::Deadline));
        by_setting.into_iter().chain(by_client).min_by_key(|(latest, _)| *latest)
    }

    fn runtime(&self) -> Result<&Arc<dyn Runtime>, InferenceError> {
        let Self { model, with_version, .. } = self;
        match &model.state {
            ModelState::Ready(runtime) => Ok(runtime),
            ModelState::Loading | ModelState::Failed { .. } => {
                let version = model.version.clone().filter(|_| *with_version);
                Err(InferenceError::NotReady { name: model.name.clone(), version })
            }
        }
    }

    /// Completes an answer of the model with what the runtime leaves to the server.
    fn sign(&self, id: &str, response: &mut InferenceResponse) {
        response.model_name.clone_from(&self.model.name);
        response.model_version.clone_from(&self.model.version);
        id.clone_into(&mut response.id);
    }
}

/// A request that is being answered; when it is dropped before its end, the client has left.
struct InFlightRequest<'a> {
    metrics: &'a ModelMetrics,
    started: Instant,
    ended: bool,
}

impl<'a> InFlightRequest<'a> {
    fn start(metrics: &'a ModelMetrics) -> Self {
        metrics.begin();
        Self { metrics, started: Instant::now(), ended: false }
    }

    /// Records the outcome, and returns how long it took.
    fn end<T>(mut self, result: &Result<T, InferenceError>) -> Duration {
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
        if !self.ended {
            self.metrics.count_dropped("client_disconnected");
        }
    }
}

/// Tells how long the request took, in milliseconds.
fn add_server_timing(response: &mut InferenceResponse, timing: RequestTiming, total: Duration) {
    let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
    let (queue, predict, total) = (milliseconds(timing.queue), milliseconds(timing.predict), milliseconds(total));
    let text = format!("queue;dur={queue:.3}, predict;dur={predict:.3}, total;dur={total:.3}");
    if let Ok(value) = HeaderValue::try_from(text) {
        response.headers.append(SERVER_TIMING, value);
    }
}

fn log_failure(model: &RegisteredModel, id: &str, failure: &InferenceError) {
    let (name, version) = (model.name.as_str(), model.version.as_deref());
    let reason = chain(failure);
    if matches!(failure.kind(), InferenceErrorKind::BadRequest | InferenceErrorKind::Model { status: ..500 }) {
        debug!(model = name, version, request_id = id, reason, "Refused a request.");
    } else {
        error!(model = name, version, request_id = id, reason, "Failed to answer a request.");
    }
}
