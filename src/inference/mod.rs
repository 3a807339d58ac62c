//! The one path that all requests take, on all transports.
//!
//! Find the model, admit the request, look up the response cache, predict, record. A caller that drops the future cancels the
//! request at any step, which frees its slot.

mod admission;
mod batch;
mod cache;
mod error;
mod in_flight;
mod lifecycle;
mod queued;
mod readiness;
mod steps;
mod stream;
mod target;
mod validation;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub use admission::Admission;
pub use batch::{BatchOptions, Batched, BatchingLoader};
pub use cache::{CacheOptions, ResponseCache};
pub use error::InferenceError;
pub use target::ModelTarget;
pub use validation::InvalidInput;

use futures_core::Stream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use self::readiness::ReadinessQueries;
use crate::compute::ComputePool;
use crate::registry::{ModelState, RegisteredModel, Registry};
use crate::runtimes::{Asked, BoxFuture, CallReply, Explanation, RequestStream, ResponseStream, Runtime};
use crate::telemetry::traces::Traces;
use crate::types::{
    ByteBudget, CustomCall, ForwardedCredentials, InferenceRequest, InferenceResponse, Priority, StepDepth, TensorRule,
};
use admission::AdmissionSlots;
use error::log_failure;
use in_flight::{InFlightRequest, add_server_timing};
use lifecycle::phase;
use queued::{QueueEntry, RequestTiming};
use steps::{StepOrigin, StepScope, StreamProgress};
pub use stream::StreamLimits;
use stream::{IdleTimer, RecordedStream, StreamSlots, StreamSource};

/// The responses of one stream. The first error ends it, and dropping it cancels the work.
pub type InferenceStream = ResponseStream<InferenceError>;

/// The answer to a call of a model's handler.
pub type HandlerReply = CallReply<InferenceError>;

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
    /// The credentials that models get as steps which pass requests on to other servers.
    forwarded: ForwardedCredentials,
    traces: Traces,
    /// Reads and writes long bodies of steps.
    compute: ComputePool,
    /// The server is ready only while this is true.
    joined: Option<Arc<AtomicBool>>,
    readiness: ReadinessQueries,
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
            forwarded: ForwardedCredentials::default(),
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

    /// Sets the credentials of callers that other servers get. By default, they get none.
    #[must_use]
    pub fn with_forwarded(self, forwarded: ForwardedCredentials) -> Self {
        Self { forwarded, ..self }
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
        self.target_in_flight(name, version)
    }

    /// Finds the model of a request that is in flight already, for callers that stop by rules of their own. [`Inference::stop`] does not
    /// reject it.
    ///
    /// # Errors
    ///
    /// Fails if the model does not exist.
    pub fn target_in_flight(&self, name: &str, version: Option<&str>) -> Result<ModelTarget, InferenceError> {
        let model = self.registry.find(name, version).inspect_err(|_| self.registry.count_unknown_model())?;
        Ok(ModelTarget {
            model,
            with_version: version.is_some(),
            deadline: None,
            traces: self.traces.clone(),
            depth: 0,
            steps: None,
        })
    }

    /// Returns which tensors a model takes. Transports read requests by this rule.
    pub fn tensor_rule(&self, model: &RegisteredModel) -> TensorRule {
        match &model.state {
            ModelState::Ready(runtime) if !self.strict_tensors && !model.validated => runtime.description().tensor_rule,
            ModelState::Ready(_) | ModelState::Loading | ModelState::Failed { .. } => TensorRule::Strict,
        }
    }

    /// Returns how a model explains its predictions by itself, if it does.
    pub fn explanation<'m>(&self, model: &'m RegisteredModel) -> Option<&'m Explanation> {
        match &model.state {
            ModelState::Ready(runtime) => runtime.description().explanation.as_ref(),
            ModelState::Loading | ModelState::Failed { .. } => None,
        }
    }

    /// Returns the admission of a new request, which has no slot yet.
    pub fn admission(&self) -> Admission {
        self.slots.admission()
    }

    /// Returns the target of a call of one of the model's own routes.
    pub fn custom_target(&self, model: Arc<RegisteredModel>) -> ModelTarget {
        ModelTarget { model, with_version: false, deadline: None, traces: self.traces.clone(), depth: 0, steps: None }
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
            None => self.predict(target, request, admission).await,
            Some((deadline, timeout)) => {
                // Boxed, so that the futures of requests without a deadline stay small.
                let predicted = Box::pin(self.predict(target, request, admission));
                tokio::time::timeout_at(deadline, predicted).await.unwrap_or(Err(timeout))
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
        let origin = || StepOrigin { deadline: target.deadline, is_stream: true, ..StepOrigin::default() };
        let steps = self.steps(target, runtime.as_ref(), &mut admission, origin);
        let responses = Arc::clone(runtime).predict_stream(requests, Arc::new(StreamProgress(steps)));
        let source = StreamSource::new(responses, admission, slot);
        Ok(Box::pin(RecordedStream::new(target.clone(), id, Some(started), source, invalid, idle)))
    }

    /// Answers a call of a model's own route, which is at index `route` of its description.
    ///
    /// It is admitted, waits and is limited like a request, but only the transport counts it. A reply that is sent while it is made takes
    /// the admission, and a slot for streams; it is limited like a stream of responses.
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
    ) -> Result<HandlerReply, InferenceError> {
        self.answer_call(target, route, call, admission, None).await
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
    ) -> Result<HandlerReply, InferenceError> {
        let in_flight = InFlightRequest::start(target.model.metrics(target.with_version));
        let result = self.answer_call(target, route, call, admission, Some(in_flight.started)).await;
        if let Ok(CallReply { rest: Some(_), .. }) = &result {
            target.record_first_chunk(in_flight.started.elapsed());
            in_flight.goes_on();
        } else {
            in_flight.end(&result);
        }
        result
    }

    async fn answer_call(
        &self,
        target: &ModelTarget,
        route: usize,
        call: CustomCall,
        admission: &mut Admission,
        counted: Option<Instant>,
    ) -> Result<HandlerReply, InferenceError> {
        let model = &target.model;
        let id = call.headers.get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
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
            let (headers, deadline) = (Some(&call.headers), target.deadline_now());
            let origin = || StepOrigin { headers, deadline, ..StepOrigin::default() };
            let steps = self.steps(target, runtime.as_ref(), admission, origin);
            let scope = steps.clone();
            let work = |call, progress| -> BoxFuture<'_, _> {
                let called = runtime.call(route, call, progress);
                let Some(scope) = scope else { return called };
                Box::pin(async move {
                    let reply = called.await?;
                    Ok(if reply.rest.is_some() { scope.until_end_of(reply) } else { reply })
                })
            };
            let run = queued::run(target, entry, admission, steps, call, |call| Asked::Call(route, call), work);
            let (CallReply { reply, rest }, _) = run.await?;
            admission.reservation.grow(reply.body.len())?;
            let Some(rest) = rest else { return Ok(reply.into()) };
            let slot = self.streams.admit()?;
            let emptied = Admission::holding(admission.reservation.sibling());
            let source = StreamSource::new(rest, std::mem::replace(admission, emptied), Some(slot));
            let idle = IdleTimer::new(self.stream_idle_timeout());
            let no_requests = validation::ValidationFailure::default();
            let rest = RecordedStream::new(target.clone(), id.clone(), counted, source, no_requests, idle);
            Ok(CallReply { reply, rest: Some(Box::pin(rest)) })
        };
        let result = match target.deadline(Instant::now()) {
            None => reply.await,
            Some((deadline, timeout)) => tokio::time::timeout_at(deadline, reply).await.unwrap_or(Err(timeout)),
        };
        result.inspect_err(|failure| log_failure(model, &id, failure))
    }

    /// Predicts, and reserves the bytes of the response in addition to those of the request.
    async fn predict(
        &self,
        target: &ModelTarget,
        request: InferenceRequest,
        admission: &mut Admission,
    ) -> Result<(InferenceResponse, RequestTiming), InferenceError> {
        let request_bytes = admission.reservation.bytes();
        let runtime = target.runtime()?;
        if target.model.validated {
            validation::check(&target.model.metadata.inputs, &request.inputs)?;
        }
        self.slots.admit(admission)?;
        let entry = QueueEntry::of(&request);
        let (response, timing) = match &self.cache {
            // A request of another server might wait for one that leads to it.
            Some(cache) if target.model.cached && StepDepth::of(&request.headers).0 == 0 => {
                // Boxed, so that the futures of requests without the cache stay small.
                Box::pin(self.find_or_predict(cache, target, runtime, request, admission)).await?
            }
            _ => {
                let origin = || StepOrigin { deadline: target.deadline_now(), ..StepOrigin::of(&request) };
                let steps = self.steps(target, runtime.as_ref(), admission, origin);
                let work = |request, progress| runtime.predict(request, progress);
                queued::run(target, entry, admission, steps, request, |request| Asked::Request(request), work).await?
            }
        };
        admission.reservation.resize(request_bytes.saturating_add(response.memory_bytes()))?;
        Ok((response, timing))
    }

    /// Takes the response from the cache, or predicts it for all callers with the same request.
    async fn find_or_predict(
        &self,
        cache: &ResponseCache,
        target: &ModelTarget,
        runtime: &Arc<dyn Runtime>,
        request: InferenceRequest,
        admission: &mut Admission,
    ) -> Result<(InferenceResponse, RequestTiming), InferenceError> {
        let (runtime, owned_target) = (Arc::clone(runtime), target.clone());
        // The computation may outlive this caller, and so holds the bytes of its response itself.
        let mut own = admission.nested();
        let steps = self.steps(target, runtime.as_ref(), &mut own, || StepOrigin::of(&request));
        let timing = Arc::new(OnceLock::new());
        let predicted = Arc::clone(&timing);
        let work = |request: InferenceRequest| async move {
            let entry = QueueEntry::of(&request);
            let work = |request, progress| runtime.predict(request, progress);
            let run =
                queued::run(&owned_target, entry, &mut own, steps, request, |request| Asked::Request(request), work);
            let (response, timing) = run.await?;
            // The prediction runs once.
            let _ = predicted.set(timing);
            Ok(response)
        };
        let (result, hit) = cache.get_or_predict(&target.model, request, work).await;
        target.model.metrics(target.with_version).record_cache(hit);
        // A response from the cache has not waited for a prediction of its own.
        Ok((result?, timing.get().copied().unwrap_or_default()))
    }

    /// Returns what answers the steps of a request. `None` for models without steps.
    fn steps<'o>(
        &self,
        target: &ModelTarget,
        runtime: &dyn Runtime,
        admission: &mut Admission,
        origin: impl FnOnce() -> StepOrigin<'o>,
    ) -> Option<Arc<StepScope>> {
        let description = runtime.description();
        let has_steps = description.has_remote_steps || !description.steps.is_empty();
        has_steps.then(|| StepScope::new(self, target, admission, origin()))
    }
}
