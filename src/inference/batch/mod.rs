//! Adaptive batching: concurrent requests are predicted together.
//!
//! [`BatchingLoader`] wraps the runtime of each model whose settings enable batching in a [`Batched`] runtime, so that
//! batching comes after the response cache and is the same on all transports. [`merge`](crate::types::merge) merges requests
//! and splits responses, and [`policy`] decides when to send a batch; both are pure. This module is the concurrent part.
//!
//! No task drives a batch. Its callers share one future, which any of them polls. It is dropped, and the prediction with it,
//! when the last of them disconnects. If the model's code fails on a batch, its halves are predicted again, and so on, so that
//! a request cannot make its neighbors fail, and costs them few predictions. All other errors end all requests of the batch.

mod policy;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::Shared;
use http::HeaderMap;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};

use crate::registry::{Loader, RuntimeFuture};
use crate::runtimes::{
    Asked, BoxFuture, CallReply, Description, ModelMemory, Progress, RemoteCall, RequestStream, ResponseStream,
    Runtime, RuntimeError, RuntimeStatus, StepModel, Steps,
};
use crate::settings::ModelSettings;
use crate::shutdown::spawn_supervised;
use crate::telemetry::inference::{BatchMetrics, InferenceMetrics};
use crate::telemetry::traces::{Span, Traces};
use crate::types::merge::{self, BatchKey, BatchShare};
use crate::types::{
    ByteReservation, CustomCall, CustomReply, InferenceRequest, InferenceResponse, Priority, PriorityScheduler,
    QueuePosition, RequestErrorKind, TokenUsage, TraceContext,
};
use policy::{BatchDecision, BatchLimits, BatchPolicy, WaitingGroup};

/// The most bytes of inputs that are merged. Beyond it the copy takes longer than batching saves, and blocks a thread that
/// others wait for. A larger request is predicted alone.
const MAX_BYTES: usize = 4 << 20;

/// Wraps a loader, and batches the requests of models whose settings enable it.
#[derive(Debug)]
pub struct BatchingLoader<L> {
    inner: L,
    metrics: InferenceMetrics,
    traces: Traces,
}

impl<L: Loader> BatchingLoader<L> {
    pub const fn new(inner: L, metrics: InferenceMetrics, traces: Traces) -> Self {
        Self { inner, metrics, traces }
    }
}

impl<L: Loader> Loader for BatchingLoader<L> {
    fn load(&self, settings: ModelSettings) -> RuntimeFuture<'_> {
        let Some(options) = BatchOptions::of(&settings) else { return self.inner.load(settings) };
        Box::pin(async move {
            let (model, version) = (settings.name.clone(), settings.parameters.version.clone());
            let runtime = self.inner.load(settings).await?;
            if let Some(reason) = &runtime.description().not_batched {
                info!(model, version, reason, "The requests of model '{model}' are not batched: {reason}.");
                return Ok(runtime);
            }
            let metrics = self.metrics.of_batches(&model, version.as_deref());
            let (size, seconds) = (options.max_size.get(), options.max_time.as_secs_f64());
            info!(model, version, "Batching up to {size} requests within {seconds} s; streams are not batched.");
            let batched = Batched::new(runtime, options, metrics, self.traces.clone());
            Ok(Arc::new(batched) as Arc<dyn Runtime>)
        })
    }
}

/// The batching settings of a model.
#[derive(Debug, Clone, Copy)]
pub struct BatchOptions {
    /// The maximum number of requests in a batch, independent of their rows.
    pub max_size: NonZeroUsize,
    /// The longest that a request waits for others.
    pub max_time: Duration,
}

impl BatchOptions {
    /// Reads the settings. `None` unless they allow batches of several requests and a time to wait.
    pub fn of(settings: &ModelSettings) -> Option<Self> {
        let max_size = NonZeroUsize::new(settings.max_batch_size).filter(|size| size.get() > 1)?;
        (!settings.max_batch_time.is_zero()).then_some(Self { max_size, max_time: settings.max_batch_time })
    }
}

/// A runtime that predicts the requests of several callers together.
#[derive(Debug)]
pub struct Batched {
    batcher: Arc<Batcher>,
    /// Wakes the batcher when a batch is due.
    _timer: AbortOnDropHandle<()>,
}

impl Batched {
    /// Adds batching to `runtime`. Must be called within a tokio runtime.
    pub fn new(runtime: Arc<dyn Runtime>, options: BatchOptions, metrics: BatchMetrics, traces: Traces) -> Self {
        let limits = BatchLimits { size: options.max_size.get(), time: options.max_time };
        let state = BatcherState {
            policy: BatchPolicy::new(limits, Instant::now()),
            groups: Vec::new(),
            scheduler: PriorityScheduler::default(),
            arrivals: 0,
            due: None,
        };
        let alarm = Arc::new(Notify::new());
        let for_timer = Arc::clone(&alarm);
        let batcher = Arc::new(Batcher { runtime, metrics, traces, state: Mutex::new(state), alarm });
        let timer = spawn_supervised("timer of batches", keep_time(Arc::downgrade(&batcher), for_timer));
        Self { batcher, _timer: AbortOnDropHandle::new(timer) }
    }
}

impl Runtime for Batched {
    fn description(&self) -> &Description {
        self.batcher.runtime.description()
    }

    fn status(&self) -> RuntimeStatus {
        self.batcher.runtime.status()
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), RuntimeError>> {
        self.batcher.runtime.warm_up()
    }

    fn parallelism(&self) -> usize {
        self.batcher.runtime.parallelism()
    }

    fn predict(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
        Box::pin(self.batcher.predict(request, progress))
    }

    fn predict_stream(self: Arc<Self>, requests: RequestStream, progress: Arc<dyn Progress>) -> ResponseStream {
        Arc::clone(&self.batcher.runtime).predict_stream(requests, progress)
    }

    /// Returns false, because requests gather.
    fn answers_at_once(&self, _: Asked<'_>) -> bool {
        false
    }

    fn unload(self: Arc<Self>) -> BoxFuture<'static, ()> {
        let runtime = Arc::clone(&self.batcher.runtime);
        drop(self);
        runtime.unload()
    }

    fn call(
        &self,
        route: usize,
        call: CustomCall,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<CallReply, RuntimeError>> {
        self.batcher.runtime.call(route, call, progress)
    }
}

/// Waiting requests, and the batches that they become.
struct Batcher {
    runtime: Arc<dyn Runtime>,
    metrics: BatchMetrics,
    traces: Traces,
    state: Mutex<BatcherState>,
    /// Notifies the timer that a batch is due earlier.
    alarm: Arc<Notify>,
}

struct BatcherState {
    policy: BatchPolicy,
    /// Groups of requests that may share a batch, those that wait longest first. Admission bounds their number.
    groups: Vec<BatchGroup>,
    /// Decides which of them is sent next.
    scheduler: PriorityScheduler,
    /// Numbers the requests.
    arrivals: u64,
    /// When the next group is due, unless it changes before.
    due: Option<Instant>,
}

/// Requests of one form; never empty.
struct BatchGroup {
    key: BatchKey,
    members: Vec<GroupMember>,
    bytes: usize,
}

/// A request that waits for its batch.
struct GroupMember {
    number: u64,
    request: InferenceRequest,
    progress: Arc<dyn Progress>,
    rows: usize,
    bytes: usize,
    since: Instant,
    slot: oneshot::Sender<BatchSlot>,
}

/// The slot of a request in a batch in flight.
struct BatchSlot {
    prediction: RunningPrediction,
    index: usize,
}

/// A batch in flight, which its callers share. It is cancelled when the last of them is dropped.
type RunningPrediction = Shared<BoxFuture<'static, Arc<BatchOutcome>>>;

/// The outcome of a batch. Each caller takes its own result.
enum BatchOutcome {
    /// The results, by index of the slot.
    Results(Vec<Mutex<Option<PredictionResult>>>),
    /// The model's code failed: the requests are predicted in these parts, each with the index of its first request.
    Split(Vec<(usize, RunningPrediction)>),
}

type PredictionResult = Result<InferenceResponse, RuntimeError>;

impl Batcher {
    async fn predict(
        self: &Arc<Self>,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> Result<InferenceResponse, RuntimeError> {
        let Some(share) = BatchShare::of(&request) else { return self.runtime.predict(request, progress).await };
        if share.bytes > MAX_BYTES {
            let mut response = self.runtime.predict(request, progress).await?;
            merge::split_one(&mut response, share.rows);
            return Ok(response);
        }
        let mut waiting = self.enter(request, progress, share);
        let slot = (&mut waiting.slot).await;
        let BatchSlot { mut prediction, mut index } =
            slot.expect("a request stays in its group until it has a slot or its caller is dropped");
        loop {
            let part = match &*prediction.await {
                BatchOutcome::Results(results) => {
                    return results[index].lock().take().expect("each slot has one caller");
                }
                BatchOutcome::Split(parts) => parts[parts.partition_point(|(first, _)| *first <= index) - 1].clone(),
            };
            (index, prediction) = (index - part.0, part.1);
        }
    }

    /// Adds a request to a group, whose batch may already be in flight when this returns.
    fn enter(
        self: &Arc<Self>,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
        share: BatchShare,
    ) -> QueuedCaller<'_> {
        let now = Instant::now();
        let (sender, slot) = oneshot::channel();
        let mut batches = Vec::new();
        let mut state = self.state.lock();
        self.metrics.observe_queue(state.policy.waiting());
        let BatchShare { key, rows, bytes } = share;
        let number = state.arrivals;
        state.arrivals += 1;
        let member = GroupMember { number, request, progress, rows, bytes, since: now, slot: sender };
        match state.groups.iter().position(|group| group.key == key) {
            Some(index) if state.groups[index].bytes + bytes > MAX_BYTES => {
                batches.push(state.take(index));
                state.groups.push(BatchGroup { key, members: vec![member], bytes });
            }
            Some(index) => {
                state.groups[index].members.push(member);
                state.groups[index].bytes += bytes;
            }
            None => state.groups.push(BatchGroup { key, members: vec![member], bytes }),
        }
        state.policy.arrived();
        self.take_complete(&mut state, now, &mut batches);
        drop(state);
        self.launch(batches);
        QueuedCaller { batcher: self, number, slot }
    }

    /// Takes the groups that are due, and determines when the next one is.
    fn take_complete(&self, state: &mut BatcherState, now: Instant, batches: &mut Vec<Vec<GroupMember>>) {
        let width = self.runtime.parallelism();
        let due = loop {
            let mut next_due: Option<Instant> = None;
            // The groups that may be sent: the first field says whether the policy sends them now.
            let mut ready: Vec<(bool, QueuePosition)> = Vec::new();
            for group in &state.groups {
                let waiting = WaitingGroup { requests: group.members.len(), since: group.since() };
                match state.policy.decide(waiting, width, now) {
                    BatchDecision::Send => ready.push((true, group.position())),
                    BatchDecision::Overdue => ready.push((false, group.position())),
                    BatchDecision::Until(until) => next_due = Some(next_due.map_or(until, |due| due.min(until))),
                    BatchDecision::Busy => {}
                }
            }
            if !ready.iter().any(|(send, _)| *send) {
                break next_due;
            }
            // Full batches are sent to a busy runtime. Groups that are overdue compete with them, so that none starves.
            let chosen = state.scheduler.choose(ready.iter().map(|(_, position)| *position));
            let index = state.groups.iter().position(|group| Some(group.position()) == chosen);
            let Some(index) = index else { break next_due };
            batches.push(state.take(index));
        };
        let sooner = due.is_some_and(|due| state.due.is_none_or(|known| due < known));
        state.due = due;
        if sooner {
            self.alarm.notify_one();
        }
    }

    /// Starts batches: gives their callers slots, which then drive them.
    fn launch(self: &Arc<Self>, batches: Vec<Vec<GroupMember>>) {
        for members in batches {
            let occupies = Arc::new(AtomicBool::new(true));
            let running = RunningBatch {
                batcher: Arc::clone(self),
                requests: members.len(),
                took: None,
                occupies: Arc::clone(&occupies),
            };
            let (mut requests, mut rows, mut progress, mut slots) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
            for member in members {
                requests.push(member.request);
                rows.push(member.rows);
                progress.push(member.progress);
                slots.push(member.slot);
            }
            let all_rows = rows.iter().sum();
            self.metrics.observe_batch(requests.len(), all_rows);
            let traces = requests.iter().filter_map(|request: &InferenceRequest| request.trace);
            let span = self.traces.batch(traces, requests.len(), all_rows);
            let reported = progress.clone();
            let batch_progress = Arc::new(BatchProgress { members: reported, batcher: Arc::downgrade(self), occupies });
            if let Some(span) = &span {
                batch_progress.joined(span.context());
            }
            let members = BatchMembers { requests, rows, progress };
            let prediction: RunningPrediction = run_batch((running, span), members, batch_progress).boxed().shared();
            for (index, slot) in slots.into_iter().enumerate() {
                // Fails only if the caller has just been dropped.
                let _ = slot.send(BatchSlot { prediction: prediction.clone(), index });
            }
        }
    }

    /// Launches the batches that are due.
    fn release(self: &Arc<Self>) {
        let mut batches = Vec::new();
        let mut state = self.state.lock();
        self.take_complete(&mut state, Instant::now(), &mut batches);
        drop(state);
        self.launch(batches);
    }
}

/// Reports the progress of a batch to all its requests, and to the batcher when it yields its slot of the runtime.
#[derive(Debug)]
struct BatchProgress {
    members: Vec<Arc<dyn Progress>>,
    batcher: Weak<Batcher>,
    occupies: Arc<AtomicBool>,
}

impl Progress for BatchProgress {
    fn begin(&self) {
        for progress in &self.members {
            progress.begin();
        }
    }

    fn reserve(&self, bytes: usize) -> Result<(), RuntimeError> {
        // The members share the response, which each of them keeps.
        let share = bytes.div_ceil(self.members.len().max(1));
        self.members.iter().try_for_each(|progress| progress.reserve(share))
    }

    fn yielded(&self) {
        if let Some(batcher) = self.batcher.upgrade() {
            batcher.state.lock().policy.free(&self.occupies);
            batcher.release();
        }
    }

    fn wait_again(&self) {
        for progress in &self.members {
            progress.wait_again();
        }
    }

    fn joined(&self, batch: TraceContext) {
        for progress in &self.members {
            progress.joined(batch);
        }
    }

    /// Only calls of handlers use tokens, and those do not batch.
    fn used(&self, _: TokenUsage) {}

    fn steps(&self) -> Option<Arc<dyn Steps>> {
        let members: Vec<_> = self.members.iter().filter_map(|progress| progress.steps()).collect();
        (!members.is_empty()).then(|| Arc::new(BatchSteps { members }) as Arc<dyn Steps>)
    }

    /// The budget is behind the batches, and adds the memory of the model.
    fn memory(&self) -> Option<Arc<dyn ModelMemory>> {
        None
    }
}

/// Answers the steps of a batch.
///
/// Each is a step of the member that waits longest at the time, so that neither a deadline nor a disconnect of one member ends the
/// prediction of the others.
#[derive(Debug)]
struct BatchSteps {
    /// Those of the members; at least one.
    members: Vec<Arc<dyn Steps>>,
}

impl BatchSteps {
    fn current(&self) -> Arc<dyn Steps> {
        let patience = |steps: &&Arc<dyn Steps>| {
            let deadline = steps.deadline();
            (!steps.has_ended(), deadline.is_none(), deadline)
        };
        Arc::clone(self.members.iter().max_by_key(patience).expect("a batch has members"))
    }
}

impl Steps for BatchSteps {
    fn infer(
        self: Arc<Self>,
        model: &StepModel,
        request: InferenceRequest,
    ) -> BoxFuture<'static, Result<InferenceResponse, RuntimeError>> {
        self.current().infer(model, request)
    }

    fn infer_remote(
        self: Arc<Self>,
        step: String,
        request: InferenceRequest,
        call: RemoteCall,
    ) -> BoxFuture<'static, Result<InferenceResponse, RuntimeError>> {
        self.current().infer_remote(step, request, call)
    }

    fn infer_stream(self: Arc<Self>, model: StepModel, requests: RequestStream) -> ResponseStream {
        self.current().infer_stream(model, requests)
    }

    fn predict_v1(
        self: Arc<Self>,
        model: StepModel,
        headers: HeaderMap,
        body: Bytes,
    ) -> BoxFuture<'static, Result<CustomReply, RuntimeError>> {
        self.current().predict_v1(model, headers, body)
    }

    fn status(&self, error: &RuntimeError) -> u16 {
        self.current().status(error)
    }

    fn detach(&self) {
        self.current().detach();
    }

    fn has_ended(&self) -> bool {
        self.current().has_ended()
    }

    fn deadline(&self) -> Option<Instant> {
        self.current().deadline()
    }

    fn reports_timing(&self) -> bool {
        self.current().reports_timing()
    }

    fn check_limits(&self) -> Result<(), RuntimeError> {
        self.current().check_limits()
    }

    fn reservation(&self) -> ByteReservation {
        self.current().reservation()
    }
}

/// Requests that are predicted together: a batch, or a part of one that has failed.
struct BatchMembers {
    requests: Vec<InferenceRequest>,
    rows: Vec<usize>,
    progress: Vec<Arc<dyn Progress>>,
}

impl BatchMembers {
    /// Removes the requests from `index` on, and returns them.
    fn split_off(&mut self, index: usize) -> Self {
        Self {
            requests: self.requests.split_off(index),
            rows: self.rows.split_off(index),
            progress: self.progress.split_off(index),
        }
    }

    /// Gives every request its own result.
    fn each(&self, mut result: impl FnMut(usize) -> PredictionResult) -> BatchOutcome {
        BatchOutcome::Results((0..self.rows.len()).map(|index| Mutex::new(Some(result(index)))).collect())
    }
}

/// Why a batch failed.
enum BatchFailure {
    /// The model's code failed, perhaps because of one of the requests.
    Requests(String),
    /// The model's response cannot be split: it cannot predict several requests together.
    Response(String),
    /// The reason has nothing to do with the requests.
    Runtime(RuntimeError),
}

/// An error that all requests of a batch share.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
struct SharedFailure(Arc<RuntimeError>);

/// What the parts of a failed batch have in common.
#[derive(Clone)]
struct BatchRetry {
    batcher: Arc<Batcher>,
    /// As many parts are predicted at once as the model predicts batches.
    permits: Arc<Semaphore>,
    trace: Option<TraceContext>,
}

/// Predicts a batch.
async fn run_batch(
    (mut running, mut span): (RunningBatch, Option<Span>),
    mut members: BatchMembers,
    progress: Arc<dyn Progress>,
) -> Arc<BatchOutcome> {
    let batcher = Arc::clone(&running.batcher);
    let started = Instant::now();
    let trace = span.as_ref().map(Span::context);
    let result = predict_together(batcher.runtime.as_ref(), &mut members, progress, trace).await;
    if result.is_ok() {
        running.took = Some(started.elapsed());
    } else if let Some(span) = &mut span {
        span.fail();
    }
    // Launch the next batches before the responses of this one are written.
    drop(running);
    let failure = match result {
        Ok(outcome) => return Arc::new(outcome),
        Err(failure) => failure,
    };
    if !matches!(failure, BatchFailure::Runtime(_)) {
        batcher.metrics.count_failure();
    }
    let permits = Arc::new(Semaphore::new(batcher.runtime.parallelism().max(1)));
    Arc::new(resolve_failure(&BatchRetry { batcher, permits, trace }, members, failure))
}

/// Predicts a part of a failed batch. `twin` is set once the other half of what failed has succeeded.
async fn run_part(retry: BatchRetry, mut members: BatchMembers, twin: Arc<AtomicBool>) -> Arc<BatchOutcome> {
    let permit = retry.permits.acquire().await;
    let failure = if members.rows.len() > 1 && twin.load(Ordering::Acquire) {
        // This half must be the reason, so a prediction of all of it would be in vain.
        BatchFailure::Requests("the other half of the batch succeeded".to_owned())
    } else {
        let progress = Arc::new(BatchProgress {
            members: members.progress.clone(),
            batcher: Arc::downgrade(&retry.batcher),
            occupies: Arc::new(AtomicBool::new(false)),
        });
        match predict_together(retry.batcher.runtime.as_ref(), &mut members, progress, retry.trace).await {
            Ok(outcome) => {
                twin.store(members.rows.len() > 1 || !outcome.is_failure(), Ordering::Release);
                return Arc::new(outcome);
            }
            Err(failure) => failure,
        }
    };
    drop(permit);
    Arc::new(resolve_failure(&retry, members, failure))
}

/// Splits the requests of a failed batch into parts, or fails all of them.
fn resolve_failure(retry: &BatchRetry, mut members: BatchMembers, failure: BatchFailure) -> BatchOutcome {
    let requests = members.rows.len();
    let (size, reason) = match failure {
        BatchFailure::Requests(reason) => (requests.div_ceil(2), reason),
        BatchFailure::Response(reason) => (1, reason),
        BatchFailure::Runtime(error) => {
            let error = SharedFailure(Arc::new(error));
            return members.each(|_| Err(RuntimeError::new(error.0.kind(), error.clone())));
        }
    };
    debug!(requests, reason, "A batch failed; predicting its requests in batches of {size}.");
    for progress in &members.progress {
        progress.wait_again();
    }
    let twin = Arc::new(AtomicBool::new(false));
    let mut parts = Vec::new();
    while !members.rows.is_empty() {
        let rest = members.split_off(size.min(members.rows.len()));
        let part = std::mem::replace(&mut members, rest);
        let first = requests - members.rows.len() - part.rows.len();
        parts.push((first, run_part(retry.clone(), part, Arc::clone(&twin)).boxed().shared()));
    }
    BatchOutcome::Split(parts)
}

/// Predicts requests together. The error of a single request is its result.
async fn predict_together(
    runtime: &dyn Runtime,
    members: &mut BatchMembers,
    progress: Arc<dyn Progress>,
    trace: Option<TraceContext>,
) -> Result<BatchOutcome, BatchFailure> {
    if let ([rows], Some(mut request)) = (members.rows.as_slice(), members.requests.pop_if(|_| members.rows.len() == 1))
    {
        set_trace(&mut request, trace, runtime);
        let mut result = runtime.predict(request, progress).await;
        if let Ok(response) = &mut result {
            merge::split_one(response, *rows);
        }
        return Ok(BatchOutcome::Results(vec![Mutex::new(Some(result))]));
    }
    let merged = merge::merge(&members.requests.iter().collect::<Vec<_>>());
    let inconsistent = || RuntimeError::inconsistent("requests of one form could not be merged");
    let mut merged = merged.ok_or_else(inconsistent).map_err(BatchFailure::Runtime)?;
    set_trace(&mut merged, trace, runtime);
    match runtime.predict(merged, progress).await {
        Ok(response) => {
            let responses = merge::split(&response, &members.rows);
            let responses = responses.map_err(|error| BatchFailure::Response(error.to_string()))?;
            Ok(BatchOutcome::Results(responses.into_iter().map(|response| Mutex::new(Some(Ok(response)))).collect()))
        }
        Err(error) => Err(match error.kind() {
            RequestErrorKind::ModelFailed
            | RequestErrorKind::Rejected { .. }
            | RequestErrorKind::BadRequest
            | RequestErrorKind::NothingRan => BatchFailure::Requests(error.to_string()),
            _ => BatchFailure::Runtime(error),
        }),
    }
}

impl BatchOutcome {
    /// Reports whether the only request has failed.
    fn is_failure(&self) -> bool {
        matches!(self, Self::Results(results) if matches!(&results[..], [result] if matches!(&*result.lock(), Some(Err(_)))))
    }
}

/// Makes the spans of a batch's steps, including those of the model's code, children of its span.
fn set_trace(request: &mut InferenceRequest, trace: Option<TraceContext>, runtime: &dyn Runtime) {
    if trace.is_some() {
        request.trace = trace;
        if runtime.description().reads_headers {
            request.set_trace_header();
        }
    }
}

/// Launches batches when they are due, until the batcher is dropped.
async fn keep_time(batcher: Weak<Batcher>, alarm: Arc<Notify>) {
    loop {
        let Some(due) = batcher.upgrade().map(|batcher| batcher.state.lock().due) else { return };
        let over = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = alarm.notified() => {}
            () = over => {
                if let Some(batcher) = batcher.upgrade() {
                    batcher.release();
                }
            }
        }
    }
}

impl BatcherState {
    /// Takes a group as a batch to launch.
    fn take(&mut self, index: usize) -> Vec<GroupMember> {
        let group = self.groups.remove(index);
        self.policy.sent(group.members.len());
        group.members
    }
}

impl BatchGroup {
    /// Returns the priority of the most urgent request.
    fn priority(&self) -> Priority {
        self.members.iter().map(|member| member.request.priority).min().unwrap_or_default()
    }

    fn position(&self) -> QueuePosition {
        // Groups are never empty.
        let order = self.members.first().map_or(0, |member| member.number);
        QueuePosition { priority: self.priority(), order }
    }

    fn since(&self) -> Instant {
        // Groups are never empty.
        self.members.first().map_or_else(Instant::now, |member| member.since)
    }
}

/// A caller that waits for a slot. If it is dropped before, its request is removed from the group.
struct QueuedCaller<'a> {
    batcher: &'a Batcher,
    number: u64,
    slot: oneshot::Receiver<BatchSlot>,
}

impl Drop for QueuedCaller<'_> {
    fn drop(&mut self) {
        if self.slot.is_terminated() {
            return;
        }
        let mut state = self.batcher.state.lock();
        let removed = state.remove(self.number);
        // Free the request without the lock.
        drop(state);
        drop(removed);
    }
}

impl BatcherState {
    fn remove(&mut self, number: u64) -> Option<GroupMember> {
        for index in 0..self.groups.len() {
            let group = &mut self.groups[index];
            let Some(position) = group.members.iter().position(|member| member.number == number) else { continue };
            let member = group.members.remove(position);
            group.bytes -= member.bytes;
            if group.members.is_empty() {
                self.groups.remove(index);
            }
            self.policy.cancelled();
            return Some(member);
        }
        None
    }
}

/// A batch that the runtime works on. Dropping it records the end of the batch.
struct RunningBatch {
    batcher: Arc<Batcher>,
    requests: usize,
    /// The time of the prediction, once it has succeeded.
    took: Option<Duration>,
    /// Whether it occupies a slot of the runtime.
    occupies: Arc<AtomicBool>,
}

impl Drop for RunningBatch {
    fn drop(&mut self) {
        let mut state = self.batcher.state.lock();
        state.policy.free(&self.occupies);
        state.policy.ended(self.requests, self.took, Instant::now());
        drop(state);
        self.batcher.release();
    }
}

impl fmt::Debug for Batcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Batcher").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
