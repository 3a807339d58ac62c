//! The one path that all requests take, on all transports.
//!
//! Find the model, admit the request, look up the response cache, predict, record. A caller that drops the future cancels the
//! request at any step, which frees its slot.

mod admission;
mod batch;
mod cache;
mod queued;
mod readiness;
mod steps;
mod stream;
mod validation;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use admission::Admission;
pub use batch::{BatchOptions, Batched, BatchingLoader};
pub use cache::{CacheOptions, ResponseCache};
pub use validation::InvalidInput;

use futures_core::Stream;
use http::{HeaderName, HeaderValue};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;
use tracing::{Level, debug, enabled, error};

use self::readiness::ReadinessQueries;
use crate::compute::{ComputeError, ComputePool};
use crate::registry::{ModelState, NotFound, QueueFull, RegisteredModel, Registry, chain};
use crate::runtimes::{RequestStream, ResponseStream, Runtime, RuntimeError};
use crate::telemetry::inference::ModelMetrics;
use crate::telemetry::traces::Traces;
use crate::types::{
    ByteBudget, CustomCall, CustomReply, InferenceRequest, InferenceResponse, OverBudget, Priority, RequestErrorKind,
    TensorRule, TraceContext,
};
use admission::AdmissionSlots;
use queued::{QueueEntry, RequestTiming};
use steps::{StepScope, StreamProgress};
pub use stream::StreamLimits;
use stream::{IdleTimer, StreamSlots, StreamSource, StreamedResponses};

/// The reason of requests that were dropped because of the byte budget.
const MAX_REQUEST_BYTES: &str = "max_request_bytes_in_flight";

/// The header with the server's timing, which browsers and proxies understand.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// The errors that end a request.
#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    #[error(transparent)]
    NotFound(#[from] NotFound),
    #[error("Model {name}{} is not ready yet.", version.as_deref().map(|v| format!(" with version {v}")).unwrap_or_default())]
    NotReady { name: String, version: Option<String> },
    /// As many requests as the server admits are in flight.
    #[error("the server already has {limit} requests in flight (`max_in_flight`); try again later")]
    Overloaded { limit: usize },
    /// The requests in flight and their responses take too many bytes.
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
    #[error("the server already has {limit} streams open (`max_streams`); try again later")]
    TooManyStreams { limit: usize },
    #[error("`stream_idle_timeout` ({} s) exceeded: no message in either direction", limit.as_secs_f64())]
    StreamIdle { limit: Duration },
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
    /// The model was busy for too long.
    #[error("`queue_timeout` ({} s) exceeded: the model is busy; try again later", limit.as_secs_f64())]
    QueueTimeout { limit: Duration },
    #[error("`predict_timeout` ({} s) exceeded", limit.as_secs_f64())]
    PredictTimeout { limit: Duration },
    #[error("`request_timeout` ({} s) exceeded", limit.as_secs_f64())]
    RequestTimeout { limit: Duration },
    #[error("the client's deadline has passed")]
    Deadline,
    #[error("the server is shutting down; try another one")]
    Stopping,
    /// The inputs differ from those that the model declares.
    #[error(transparent)]
    InvalidInput(#[from] InvalidInput),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Compute(#[from] ComputeError),
    /// The error of an identical request that this one was coalesced with.
    #[error(transparent)]
    Shared(Arc<Self>),
}

impl InferenceError {
    /// Returns the kind, which decides the status.
    pub fn kind(&self) -> RequestErrorKind {
        match self {
            Self::NotFound(_) => RequestErrorKind::NotFound,
            Self::Shared(error) => error.kind(),
            Self::Compute(error) if error.is_overload() => RequestErrorKind::Overloaded,
            Self::Compute(_) => RequestErrorKind::Internal,
            Self::NotReady { .. } => RequestErrorKind::NotReady,
            Self::InvalidInput(_) => RequestErrorKind::BadRequest,
            Self::OverBudget(OverBudget::TooLarge { .. }) => RequestErrorKind::TooLarge,
            Self::Overloaded { .. }
            | Self::OverBudget(OverBudget::InUse { .. })
            | Self::TooManyStreams { .. }
            | Self::QueueFull(_)
            | Self::QueueTimeout { .. } => RequestErrorKind::Overloaded,
            Self::PredictTimeout { .. } | Self::RequestTimeout { .. } | Self::StreamIdle { .. } | Self::Deadline => {
                RequestErrorKind::Timeout
            }
            Self::Stopping => RequestErrorKind::Stopping,
            Self::Runtime(error) => error.kind(),
        }
    }
}

impl InferenceError {
    /// Reports whether the model cannot run now, but may later, whatever the request is.
    pub fn is_unavailable(&self) -> bool {
        self.kind() == RequestErrorKind::Unavailable
    }

    /// Reports whether the client's own deadline has passed.
    pub fn is_deadline(&self) -> bool {
        match self {
            Self::Deadline => true,
            Self::Shared(error) => error.is_deadline(),
            _ => false,
        }
    }

    /// Names what the server or the model has failed at. `None` if the client, or the number of requests, is the reason.
    fn server_fault(&self) -> Option<&'static str> {
        match self.kind() {
            RequestErrorKind::NotFound
            | RequestErrorKind::NotReady
            | RequestErrorKind::BadRequest
            | RequestErrorKind::NothingRan
            | RequestErrorKind::TooLarge
            | RequestErrorKind::OverBudget
            | RequestErrorKind::Overloaded
            | RequestErrorKind::Stopping
            | RequestErrorKind::Rejected { status: ..500 } => None,
            RequestErrorKind::Timeout => {
                self.dropped().filter(|reason| !matches!(*reason, "deadline" | "stream_idle_timeout"))
            }
            RequestErrorKind::BadRepository | RequestErrorKind::LoadFailed => Some("load"),
            RequestErrorKind::Rejected { .. } | RequestErrorKind::ModelFailed => Some("model"),
            RequestErrorKind::WorkerLost | RequestErrorKind::Unavailable => Some("worker"),
            RequestErrorKind::Internal => Some("internal"),
        }
    }

    /// Returns whether the runtime has logged the error, with the traceback of the model's code.
    fn is_logged(&self) -> bool {
        match self {
            Self::Runtime(error) => error.is_logged(),
            Self::Shared(error) => error.is_logged(),
            _ => false,
        }
    }

    /// Returns the reason for metrics if the request was dropped because of overload or a timeout.
    fn dropped(&self) -> Option<&'static str> {
        match self {
            Self::Overloaded { .. } => Some("max_in_flight"),
            Self::OverBudget(_) => Some(MAX_REQUEST_BYTES),
            Self::Runtime(error) if error.kind() == RequestErrorKind::OverBudget => Some(MAX_REQUEST_BYTES),
            Self::TooManyStreams { .. } => Some("max_streams"),
            Self::StreamIdle { .. } => Some("stream_idle_timeout"),
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

/// The responses of one stream. The first error ends it, and dropping it cancels the work.
pub type InferenceStream = ResponseStream<InferenceError>;

/// The phases of the server, in order.
mod phase {
    pub(super) const SERVING: u8 = 0;
    /// Requests are still answered, but the server is not ready.
    pub(super) const SHUTTING_DOWN: u8 = 1;
    pub(super) const STOPPING: u8 = 2;
}

/// The path of requests. Clones share its state.
#[derive(Debug, Clone)]
pub struct Inference {
    registry: Registry,
    slots: AdmissionSlots,
    streams: StreamSlots,
    phase: Arc<AtomicU8>,
    cache: Option<ResponseCache>,
    server_timing: bool,
    strict_tensors: bool,
    traces: Traces,
    /// Reads and writes long bodies of steps.
    compute: ComputePool,
    /// The server is ready only while this is true.
    joined: Option<Arc<AtomicBool>>,
    readiness: ReadinessQueries,
}

/// The model that a request has found, with the request's own constraints.
#[derive(Debug, Clone)]
pub struct ModelTarget {
    pub model: Arc<RegisteredModel>,
    /// Whether the request named the version instead of taking the default.
    with_version: bool,
    /// When the client stops waiting. `None` if it sets no deadline.
    deadline: Option<Instant>,
    traces: Traces,
    /// How many requests this one is a step of.
    depth: usize,
}

impl Inference {
    /// Creates the path to the models of `registry`, for at most `max_in_flight` concurrent requests.
    pub fn new(registry: Registry, max_in_flight: NonZeroUsize) -> Self {
        let phase = Arc::new(AtomicU8::new(phase::SERVING));
        let slots = AdmissionSlots::new(max_in_flight.get());
        let (streams, traces) = (StreamSlots::new(StreamLimits::default()), Traces::default());
        Self {
            registry,
            slots,
            streams,
            phase,
            cache: None,
            server_timing: false,
            strict_tensors: false,
            traces,
            compute: ComputePool::for_this_machine(),
            joined: None,
            readiness: ReadinessQueries::default(),
        }
    }

    /// Sets the limits of streams of responses.
    #[must_use]
    pub fn with_stream_limits(self, limits: StreamLimits) -> Self {
        Self { streams: StreamSlots::new(limits), ..self }
    }

    /// Returns how long a stream may be without a message.
    pub const fn stream_idle_timeout(&self) -> Duration {
        self.streams.idle_timeout()
    }

    /// Limits the memory of all requests in flight and their responses to `budget`. By default, it is unlimited.
    #[must_use]
    pub fn with_byte_budget(self, budget: ByteBudget) -> Self {
        Self { slots: self.slots.with_budget(budget), ..self }
    }

    /// Caches the responses of models whose settings enable it.
    #[must_use]
    pub fn with_cache(self, cache: ResponseCache) -> Self {
        Self { cache: Some(cache), ..self }
    }

    /// Sets whether a response header reports how long the request waited and was predicted.
    #[must_use]
    pub fn with_server_timing(self, server_timing: bool) -> Self {
        Self { server_timing, ..self }
    }

    /// Sets whether models in Python, too, only get tensors whose data has the declared datatype and shape.
    #[must_use]
    pub fn with_strict_tensors(self, strict_tensors: bool) -> Self {
        Self { strict_tensors, ..self }
    }

    /// Records the spans of requests in `traces`.
    #[must_use]
    pub fn with_traces(self, traces: Traces) -> Self {
        Self { traces, ..self }
    }

    /// Reads and writes long bodies of steps on a pool that others use, too.
    #[must_use]
    pub fn with_compute(self, compute: ComputePool) -> Self {
        Self { compute, ..self }
    }

    /// Makes readiness depend on a flag, too: whether a consumer has joined its group. Its owner announces
    /// changes to the registry.
    #[must_use]
    pub fn with_readiness_flag(self, joined: Arc<AtomicBool>) -> Self {
        Self { joined: Some(joined), ..self }
    }

    /// Returns the collector of the spans of requests.
    pub const fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Returns the models that requests can reach.
    pub const fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Announces the shutdown: from now on the server is not ready, but still answers requests.
    pub fn announce_shutdown(&self) {
        self.enter(phase::SHUTTING_DOWN);
    }

    /// Rejects new requests from now on; those in flight continue.
    pub fn stop(&self) {
        self.enter(phase::STOPPING);
    }

    fn enter(&self, phase: u8) {
        self.phase.fetch_max(phase, Ordering::AcqRel);
        self.registry.announce_change();
    }

    /// Reports whether [`Inference::announce_shutdown`] or [`Inference::stop`] has been called, after which the server is not
    /// ready.
    pub fn is_shutting_down(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= phase::SHUTTING_DOWN
    }

    /// Reports whether the server can answer: every model that it was started with is ready, and it is not shutting down.
    pub fn is_ready(&self) -> bool {
        !self.is_shutting_down() && self.has_joined() && self.registry.is_ready()
    }

    /// Reports whether the flag of [`Inference::with_readiness_flag`] is set, or there is none.
    pub fn has_joined(&self) -> bool {
        self.joined.as_ref().is_none_or(|joined| joined.load(Ordering::Acquire))
    }

    /// Reports whether a model can answer, and the server is not shutting down.
    pub fn is_model_ready(&self, model: &RegisteredModel) -> bool {
        !self.is_shutting_down() && model.state.is_ready()
    }

    /// Reports whether a model can answer, as [`Inference::is_model_ready`] does, and its own code agrees.
    pub async fn is_model_ready_now(&self, model: &Arc<RegisteredModel>) -> bool {
        self.is_model_ready(model) && self.own_obstacle(model).await.is_none()
    }

    /// Reports whether the server can answer, as [`Inference::is_ready`] does, and the code of its models agrees.
    pub async fn is_ready_now(&self) -> bool {
        self.is_ready() && self.own_obstacles().await.is_empty()
    }

    /// Reports whether [`Inference::stop`] has been called.
    pub fn is_stopping(&self) -> bool {
        self.phase.load(Ordering::Acquire) >= phase::STOPPING
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.slots.in_use()
    }

    /// Finds the model that a request asks for, before its body is read.
    ///
    /// A request that has its target counts as in flight: [`Inference::stop`] rejects only later ones.
    ///
    /// # Errors
    ///
    /// Fails if the model does not exist, and after [`Inference::stop`].
    pub fn target(&self, name: &str, version: Option<&str>) -> Result<ModelTarget, InferenceError> {
        if self.is_stopping() {
            return Err(InferenceError::Stopping);
        }
        let model = self.registry.find(name, version).inspect_err(|_| self.registry.count_unknown_model())?;
        Ok(ModelTarget {
            model,
            with_version: version.is_some(),
            deadline: None,
            traces: self.traces.clone(),
            depth: 0,
        })
    }

    /// Returns which tensors a model takes. Transports read requests by this rule.
    pub fn tensor_rule(&self, model: &RegisteredModel) -> TensorRule {
        match &model.state {
            ModelState::Ready(runtime) if !self.strict_tensors && !model.validated => runtime.description().tensor_rule,
            ModelState::Ready(_) | ModelState::Loading | ModelState::Failed { .. } => TensorRule::Strict,
        }
    }

    /// Returns the admission of a new request, which has no slot yet.
    pub fn admission(&self) -> Admission {
        self.slots.admission()
    }

    /// Returns the target of a call of one of the model's own routes.
    pub fn custom_target(&self, model: Arc<RegisteredModel>) -> ModelTarget {
        ModelTarget { model, with_version: false, deadline: None, traces: self.traces.clone(), depth: 0 }
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
    /// [`InferenceError::kind`] classifies the error.
    pub async fn infer(
        &self,
        target: &ModelTarget,
        request: InferenceRequest,
        admission: &mut Admission,
    ) -> Result<InferenceResponse, InferenceError> {
        let model = &target.model;
        let id = request.id.clone();
        let in_flight = InFlightRequest::start(model.metrics(target.with_version));
        let result = match target.deadline(in_flight.started) {
            None => self.predict_within_budget(target, request, admission).await,
            Some((deadline, timeout)) => {
                let result =
                    tokio::time::timeout_at(deadline, self.predict_within_budget(target, request, admission)).await;
                result.unwrap_or(Err(timeout))
            }
        };
        let total = in_flight.end(&result);
        match result {
            Ok((mut response, timing)) => {
                target.complete(id, &mut response);
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

    /// Answers a stream of requests. Every response carries `id`.
    ///
    /// The stream holds its slot until it ends or is dropped, and counts as one request. The first error ends it.
    ///
    /// # Errors
    ///
    /// Fails without reading any of the requests if the model cannot answer now. Later errors are items of the stream.
    pub fn infer_stream(
        &self,
        target: &ModelTarget,
        id: String,
        requests: impl Stream<Item = InferenceRequest> + Send + 'static,
        admission: Admission,
    ) -> Result<InferenceStream, InferenceError> {
        let slot = self.streams.admit().map(Some);
        self.open_stream(target, id, requests, admission, slot)
    }

    /// Answers a stream that is a step of another one, which has a slot for streams.
    fn infer_step_stream(
        &self,
        target: &ModelTarget,
        requests: impl Stream<Item = InferenceRequest> + Send + 'static,
        admission: Admission,
    ) -> Result<InferenceStream, InferenceError> {
        self.open_stream(target, String::new(), requests, admission, Ok(None))
    }

    fn open_stream(
        &self,
        target: &ModelTarget,
        id: String,
        requests: impl Stream<Item = InferenceRequest> + Send + 'static,
        mut admission: Admission,
        slot: Result<Option<OwnedSemaphorePermit>, InferenceError>,
    ) -> Result<InferenceStream, InferenceError> {
        let started = Instant::now();
        let model = &target.model;
        let admitted = target.runtime().and_then(|runtime| {
            let slot = slot?;
            self.slots.admit(&mut admission)?;
            Ok((runtime, slot))
        });
        let (runtime, slot) = admitted.inspect_err(|failure| {
            let metrics = model.metrics(target.with_version);
            metrics.record(started.elapsed(), false);
            if let Some(reason) = failure.dropped() {
                metrics.count_dropped(reason);
            }
            log_failure(model, &id, failure);
        })?;
        let invalid = validation::ValidationFailure::default();
        let mut requests: RequestStream = Box::pin(requests);
        if model.validated {
            requests = Box::pin(validation::ValidatedRequests::new(Arc::clone(model), requests, Arc::clone(&invalid)));
        }
        let idle = IdleTimer::new(self.stream_idle_timeout());
        let requests = idle.note_requests(requests);
        let of_request = (Priority::default(), None);
        let steps = self.steps(target, runtime.as_ref(), &mut admission, of_request, target.deadline);
        let responses = Arc::clone(runtime).predict_stream(requests, Arc::new(StreamProgress(steps)));
        let source = StreamSource::new(responses, admission, slot);
        Ok(Box::pin(StreamedResponses::new(target.clone(), id, source, invalid, idle)))
    }

    /// Answers a call of a model's own route, which is at index `route` of its description.
    ///
    /// It is admitted, waits and is limited like a request, but only the transport counts it.
    ///
    /// # Errors
    ///
    /// [`InferenceError::kind`] classifies the error.
    pub async fn call(
        &self,
        target: &ModelTarget,
        route: usize,
        call: CustomCall,
        admission: &mut Admission,
    ) -> Result<CustomReply, InferenceError> {
        let model = &target.model;
        let reply = async {
            if self.is_stopping() && target.depth == 0 {
                return Err(InferenceError::Stopping);
            }
            let ModelState::Ready(runtime) = &model.state else {
                return Err(InferenceError::NotReady { name: model.name.clone(), version: model.version.clone() });
            };
            self.slots.admit(admission)?;
            let entry =
                QueueEntry { bytes: call.body.len(), priority: Priority::default(), trace: None, counted: false };
            let of_request = (Priority::default(), None);
            let deadline = target.deadline(Instant::now()).map(|(deadline, _)| deadline);
            let steps = self.steps(target, runtime.as_ref(), admission, of_request, deadline);
            let work = |progress| runtime.call(route, call, progress);
            let (reply, _) = queued::run(target, entry, admission, steps, work).await?;
            admission.reservation.grow(reply.body.len())?;
            Ok(reply)
        };
        let result = match target.deadline(Instant::now()) {
            None => reply.await,
            Some((deadline, timeout)) => tokio::time::timeout_at(deadline, reply).await.unwrap_or(Err(timeout)),
        };
        result.inspect_err(|failure| log_failure(model, "", failure))
    }

    /// Answers a call as [`Inference::call`] does, and counts it as a request of the model.
    ///
    /// # Errors
    ///
    /// [`InferenceError::kind`] classifies the error.
    pub async fn call_as_request(
        &self,
        target: &ModelTarget,
        route: usize,
        call: CustomCall,
        admission: &mut Admission,
    ) -> Result<CustomReply, InferenceError> {
        let in_flight = InFlightRequest::start(target.model.metrics(target.with_version));
        let result = self.call(target, route, call, admission).await;
        in_flight.end(&result);
        result
    }

    /// Predicts, and reserves the bytes of the response in addition to those of the request.
    async fn predict_within_budget(
        &self,
        target: &ModelTarget,
        request: InferenceRequest,
        admission: &mut Admission,
    ) -> Result<(InferenceResponse, RequestTiming), InferenceError> {
        let request_bytes = admission.reservation.bytes();
        let (response, timing) = self.predict(target, request, admission).await?;
        admission.reservation.resize(request_bytes.saturating_add(response.memory_bytes()))?;
        Ok((response, timing))
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
        let of_request = (request.priority, request.trace);
        match &self.cache {
            Some(cache) if target.model.cached => {
                let (runtime, owned_target) = (Arc::clone(runtime), target.clone());
                // The computation may outlive this caller, and so holds the bytes of its response itself.
                let mut own = admission.nested();
                let steps = self.steps(target, runtime.as_ref(), &mut own, of_request, None);
                let timing = Arc::new(OnceLock::new());
                let predicted = Arc::clone(&timing);
                let work = |request| async move {
                    let (response, timing) =
                        queued::predict(&owned_target, runtime.as_ref(), request, &mut own, steps).await?;
                    // The prediction runs once.
                    let _ = predicted.set(timing);
                    Ok(response)
                };
                // Boxed, so that the futures of requests without the cache stay small.
                let (result, hit) = Box::pin(cache.get_or_predict(&target.model, request, work)).await;
                target.model.metrics(target.with_version).record_cache(hit);
                // A response from the cache has not waited for a prediction of its own.
                Ok((result?, timing.get().copied().unwrap_or_default()))
            }
            _ => {
                let deadline = target.deadline(Instant::now()).map(|(deadline, _)| deadline);
                let steps = self.steps(target, runtime.as_ref(), admission, of_request, deadline);
                queued::predict(target, runtime.as_ref(), request, admission, steps).await
            }
        }
    }

    /// Returns what answers the steps of a request. `None` for models without steps.
    fn steps(
        &self,
        target: &ModelTarget,
        runtime: &dyn Runtime,
        admission: &mut Admission,
        of_request: (Priority, Option<TraceContext>),
        deadline: Option<Instant>,
    ) -> Option<Arc<StepScope>> {
        let description = runtime.description();
        let has_steps = description.has_remote_steps || !description.steps.is_empty();
        has_steps.then(|| StepScope::new(self, target, admission, of_request, deadline))
    }
}

impl ModelTarget {
    /// Sets the time when the client stops waiting.
    #[must_use]
    pub fn with_deadline(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the deadline for the response, and the error if it passes.
    fn deadline(&self, started: Instant) -> Option<(Instant, InferenceError)> {
        let limit = self.model.timeouts.request;
        let by_setting = limit.map(|limit| (started + limit, InferenceError::RequestTimeout { limit }));
        let by_client = self.deadline.map(|deadline| (deadline, InferenceError::Deadline));
        by_setting.into_iter().chain(by_client).min_by_key(|(deadline, _)| *deadline)
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

    /// Sets the fields of a response that the runtime leaves to the server.
    fn complete(&self, id: String, response: &mut InferenceResponse) {
        if response.model_name.is_empty() {
            response.model_name.clone_from(&self.model.name);
        }
        if self.model.version.is_some() || response.model_version.is_none() {
            response.model_version.clone_from(&self.model.version);
        }
        response.id = id;
    }
}

/// Counts a request in flight. If it is dropped before its end, the client has disconnected.
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

    /// Records the result, and returns how long the request took.
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
        if !self.ended && std::thread::panicking() {
            self.metrics.record(self.started.elapsed(), false);
        } else if !self.ended {
            self.metrics.count_dropped("client_disconnected");
        }
    }
}

/// Adds the header that reports how long the request took, in milliseconds.
fn add_server_timing(response: &mut InferenceResponse, timing: RequestTiming, total: Duration) {
    let milliseconds = |duration: Duration| duration.as_secs_f64() * 1e3;
    let (queue, predict, total) = (milliseconds(timing.queue), milliseconds(timing.predict), milliseconds(total));
    let text = format!("queue;dur={queue:.3}, predict;dur={predict:.3}, total;dur={total:.3}");
    if let Ok(value) = HeaderValue::try_from(text) {
        response.headers.append(SERVER_TIMING, value);
    }
}

/// Logs the error of a request. Errors that clients cause, or that only say that there are too many of them, are DEBUG lines;
/// metrics count them. The others are ERROR lines, of which a model has a limited number. Failures of a model's code have been
/// logged by its runtime.
fn log_failure(model: &RegisteredModel, id: &str, failure: &InferenceError) {
    let (name, version) = (model.name.as_str(), model.version.as_deref());
    let Some(kind) = failure.server_fault() else {
        if enabled!(Level::DEBUG) {
            debug!(model = name, version, request_id = id, reason = chain(failure), "Rejected a request.");
        }
        return;
    };
    if failure.is_logged() {
        return;
    }
    let label = (name.to_owned(), version.map(str::to_owned));
    let summarize = move |suppressed| {
        let (model, version) = label;
        error!(model, version, kind, "Failed to answer {suppressed} more requests.");
    };
    if model.failure_log.allows(kind, summarize) {
        error!(model = name, version, request_id = id, reason = chain(failure), "Failed to answer a request.");
    }
}
