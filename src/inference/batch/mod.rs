//! Adaptive batching: concurrent requests are predicted together.
//!
//! [`BatchingLoader`] wraps the runtime of each model whose settings enable batching in a [`Batched`] runtime, so that
//! batching comes after the response cache and is the same on all transports. [`merge`](crate::types::merge) merges requests
//! and splits responses, and [`policy`] decides when to send a batch; both are pure. This module is the concurrent part.
//!
//! No task drives a batch. Its callers share one future, which any of them polls. It is dropped, and the prediction with it,
//! when the last of them disconnects. If a batch fails, its requests are predicted again one by one, so that a request cannot
//! make its neighbors fail.

mod policy;

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::Shared;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, info};

use crate::registry::{Loader, RuntimeFuture};
use crate::runtimes::{
    BoxFuture, Description, Progress, RequestStream, ResponseStream, Runtime, RuntimeError, RuntimeStatus,
};
use crate::settings::ModelSettings;
use crate::shutdown::spawn_supervised;
use crate::telemetry::inference::{BatchMetrics, InferenceMetrics};
use crate::telemetry::traces::{Span, Traces};
use crate::types::merge::{self, BatchKey, BatchShare};
use crate::types::{CustomCall, CustomReply, InferenceRequest, InferenceResponse, Priority, TraceContext};
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

    fn predict_stream(self: Arc<Self>, requests: RequestStream) -> ResponseStream {
        Arc::clone(&self.batcher.runtime).predict_stream(requests)
    }

    fn call(&self, route: usize, call: CustomCall) -> BoxFuture<'_, Result<CustomReply, RuntimeError>> {
        self.batcher.runtime.call(route, call)
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
    /// The batch failed: its requests are predicted alone, one at a time.
    Failed(Semaphore),
}

type PredictionResult = Result<InferenceResponse, RuntimeError>;

impl Batcher {
    async fn predict(
        self: &Arc<Self>,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> Result<InferenceResponse, RuntimeError> {
        let Some(share) = BatchShare::of(&request) else { return self.runtime.predict(request, progress).await };
        let rows = share.rows;
        if share.bytes > MAX_BYTES {
            return self.predict_alone(request, progress, rows).await;
        }
        let mut waiting = self.enter(request.clone(), Arc::clone(&progress), share);
        let slot = (&mut waiting.slot).await;
        let BatchSlot { prediction, index } =
            slot.expect("a request stays in its group until it has a slot or its caller is dropped");
        match &*prediction.await {
            BatchOutcome::Results(results) => results[index].lock().take().expect("each slot has one caller"),
            BatchOutcome::Failed(semaphore) => {
                progress.wait_again();
                let _permit = semaphore.acquire().await;
                self.predict_alone(request, progress, rows).await
            }
        }
    }

    async fn predict_alone(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
        rows: usize,
    ) -> Result<InferenceResponse, RuntimeError> {
        let mut response = self.runtime.predict(request, progress).await?;
        merge::split_one(&mut response, rows);
        Ok(response)
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
        let mut due: Option<Instant> = None;
        // A runtime with a free slot takes the most urgent group. No group waits longer than its time, so none starves.
        let mut order: Vec<usize> = (0..state.groups.len()).collect();
        order.sort_by_key(|&index| (state.groups[index].priority(), state.groups[index].since()));
        for index in order {
            let group = &mut state.groups[index];
            let waiting = WaitingGroup { requests: group.members.len(), since: group.since() };
            match state.policy.decide(waiting, width, now) {
                BatchDecision::Send => {
                    state.policy.sent(waiting.requests);
                    batches.push(std::mem::take(&mut group.members));
                }
                BatchDecision::Until(until) => due = Some(due.map_or(until, |due| due.min(until))),
                BatchDecision::Busy => {}
            }
        }
        state.groups.retain(|group| !group.members.is_empty());
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
            let (mut requests, mut rows, mut slots) = (Vec::new(), Vec::new(), Vec::new());
            let mut all = Vec::new();
            for member in members {
                requests.push(member.request);
                all.push(member.progress);
                rows.push(member.rows);
                slots.push(member.slot);
            }
            let all_rows = rows.iter().sum();
            self.metrics.observe_batch(requests.len(), all_rows);
            let members = requests.iter().filter_map(|request: &InferenceRequest| request.trace);
            let span = self.traces.batch(members, requests.len(), all_rows);
            let progress = Arc::new(BatchProgress { members: all, batcher: Arc::downgrade(self), occupies });
            if let Some(span) = &span {
                progress.joined(span.context());
            }
            let prediction: RunningPrediction = run_batch((running, span), requests, progress, rows).boxed().shared();
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
}

/// Predicts a batch.
async fn run_batch(
    (mut running, mut span): (RunningBatch, Option<Span>),
    mut requests: Vec<InferenceRequest>,
    progress: Arc<dyn Progress>,
    rows: Vec<usize>,
) -> Arc<BatchOutcome> {
    let runtime = Arc::clone(&running.batcher.runtime);
    let started = Instant::now();
    let trace = span.as_ref().map(Span::context);
    let outcome = if requests.len() == 1 {
        set_trace(&mut requests[0], trace, runtime.as_ref());
        let mut result = runtime.predict(requests.remove(0), progress).await;
        if let Ok(response) = &mut result {
            merge::split_one(response, rows[0]);
            running.took = Some(started.elapsed());
        }
        BatchOutcome::Results(vec![Mutex::new(Some(result))])
    } else {
        let responses = match predict_merged(runtime.as_ref(), requests, progress, trace).await {
            Ok(response) => {
                running.took = Some(started.elapsed());
                merge::split(&response, &rows).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        match responses {
            Ok(responses) => {
                BatchOutcome::Results(responses.into_iter().map(|response| Mutex::new(Some(Ok(response)))).collect())
            }
            Err(reason) => {
                let requests = rows.len();
                debug!(requests, reason, "A batch failed; predicting its requests one by one.");
                running.batcher.metrics.count_failure();
                if let Some(span) = &mut span {
                    span.fail();
                }
                BatchOutcome::Failed(Semaphore::new(1))
            }
        }
    };
    // Launch the next batches before the responses of this one are written.
    drop(running);
    Arc::new(outcome)
}

async fn predict_merged(
    runtime: &dyn Runtime,
    requests: Vec<InferenceRequest>,
    progress: Arc<dyn Progress>,
    trace: Option<TraceContext>,
) -> Result<InferenceResponse, RuntimeError> {
    let merged = merge::merge(&requests.iter().collect::<Vec<_>>());
    drop(requests);
    let mut merged = merged.ok_or_else(|| RuntimeError::inconsistent("requests of one form could not be merged"))?;
    set_trace(&mut merged, trace, runtime);
    runtime.predict(merged, progress).await
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
