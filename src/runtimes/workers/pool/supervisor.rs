//! The supervisor of a worker: spawns it, has it load its models, watches it, and restarts it when it exits.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::OptionFuture;
use rustix::process::Pid;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use super::calls::ReplySender;
use super::{Pool, PoolState};
use crate::platform::MEMORY_INTERVAL;
use crate::runtimes::workers::connection::{Connection, ConnectionEnd, LAST_FRAMES_TIMEOUT};
use crate::runtimes::workers::dispatch::{ModelNumber, ModelThreads};
use crate::runtimes::workers::frame::{Frame, FrameKind, OutgoingFrame, PROTOCOL};
use crate::runtimes::workers::message::{self, ErrorHead, FailureKind, HelloHead, LoadedHead, PongHead, ReadyHead};
use crate::runtimes::workers::process::{CallsPage, ExitReason, WorkerExit, WorkerProcess, resident_memory};
use crate::runtimes::workers::supervision::{LoadResult, WorkerEnd};
use crate::runtimes::workers::{CallError, WorkerLoadError};

/// How long a process may take from its start to its `ready`, imports of the SDK included.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// How often a worker is pinged and its calls are checked.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A worker that uses more than this percentage of its memory limit is replaced.
const SOFT_MEMORY_PERCENT: u64 = 80;
/// How often a call that had not begun when its worker died is sent to another one. Reading it may be what ends workers.
const MAX_RETRIES: usize = 2;
/// The minimum time for which a call may continue after it was cancelled because of `predict_timeout`.
const CANCEL_GRACE: Duration = Duration::from_millis(500);

/// Why a worker is reaped.
enum RunEnd {
    Connection(ConnectionEnd),
    Exited,
    /// The supervisor kills the worker for this reason. If a call of a certain model is the reason, it is named.
    Kill(ExitReason, Option<ModelNumber>),
    /// The pool is being stopped, and `parallel_workers_timeout` is over.
    StopTimeout,
}

/// A ping that a worker has not answered.
struct Ping {
    id: u64,
    at: Instant,
    answer: oneshot::Receiver<Result<Frame, CallError>>,
}

/// A model that a worker should load, and the samples that warm it up.
struct PendingLoad {
    number: ModelNumber,
    load_frame: OutgoingFrame,
    warmup: Arc<[OutgoingFrame]>,
}

impl Pool {
    /// Keeps a worker running until the pool is stopped, or until the worker has been replaced.
    pub(super) async fn supervise(self: Arc<Self>, worker: usize) {
        let name = self.worker_name(worker);
        while !self.stop.is_cancelled() {
            let started = Instant::now();
            let (exit, suspects) = match self.run_worker(worker, &name).await {
                Ok((exit, suspects)) => (Ok(exit), suspects),
                Err(error) => {
                    error!(worker = name, "Cannot start a worker: {error}");
                    (Err(error), Vec::new())
                }
            };
            if self.stop.is_cancelled() {
                break;
            }
            let Some(backoff) = self.record_exit(worker, &name, &exit, suspects, started.elapsed()) else { return };
            tokio::select! {
                () = tokio::time::sleep(backoff) => {}
                () = self.stop.cancelled() => {}
            }
        }
        let mut state = self.state.lock();
        let placed = state.dispatch.worker_down(worker);
        let queued = state.dispatch.take_queued(|_, _| true);
        drop(state);
        for call in placed.into_iter().map(|placed| placed.call).chain(queued) {
            call.reply.send(Err(CallError::Stopping));
        }
    }

    /// Runs a worker until it has been reaped, redistributes its calls, and returns how it ended and which models may have
    /// caused it.
    async fn run_worker(
        self: &Arc<Self>,
        worker: usize,
        name: &str,
    ) -> Result<(WorkerExit, Vec<ModelNumber>), WorkerLoadError> {
        let hello = HelloHead {
            protocol: PROTOCOL,
            worker: name,
            parent: std::process::id(),
            inline: self.options.inline,
            debug: self.options.debug,
            logging: self.options.logging.as_ref(),
            paths: self.options.paths.iter().map(|path| path.to_string_lossy()).collect(),
            threads: self.options.threads,
            memory_limit: self.options.threads.and(self.options.workers.worker_memory_limit),
        };
        let program = &self.options.program;
        let started = OutgoingFrame::new(FrameKind::Hello, message::encode_head(&hello))
            .map_err(WorkerLoadError::from)
            .and_then(|hello| {
                WorkerProcess::start(program, name, hello, self.options.workers.worker_memory_limit).map_err(|source| {
                    WorkerLoadError::Start { program: program.executable.clone(), source: Arc::new(source) }
                })
            });
        let (mut process, stream) = started?;
        let pid = process.pid();
        let (mailbox, frames) = mpsc::unbounded_channel();
        let (ready, is_ready) = oneshot::channel();
        {
            let mut state = self.state.lock();
            let link = &mut state.links[worker];
            link.mailbox = Some(mailbox);
            link.ready = Some(ready);
        }
        let memory = AtomicU64::new(0);
        let page = process.page();
        let mut connection = Box::pin(Connection::new(stream, frames).run(|frame| self.receive(worker, frame)));
        let end = {
            let watch = pin!(self.watch(worker, name, pid, is_ready, &page, &memory));
            let end = tokio::select! {
                end = &mut connection => RunEnd::Connection(end),
                () = process.wait() => RunEnd::Exited,
                end = watch => end,
            };
            if matches!(end, RunEnd::Exited) {
                let _ = tokio::time::timeout(LAST_FRAMES_TIMEOUT, &mut connection).await;
            }
            end
        };
        let (kill_reason, culprit) = match end {
            RunEnd::Connection(ConnectionEnd::Protocol(error)) => {
                error!(worker = name, "{error}");
                (Some(ExitReason::Protocol), None)
            }
            RunEnd::Kill(reason, culprit) => (Some(reason), culprit),
            RunEnd::StopTimeout => (Some(ExitReason::Killed), None),
            RunEnd::Connection(ConnectionEnd::Closed | ConnectionEnd::Io(_)) | RunEnd::Exited => (None, None),
        };
        {
            let mut state = self.state.lock();
            let link = &mut state.links[worker];
            (link.mailbox, link.pid, link.scrape_pending) = (None, None, false);
        }
        if kill_reason.is_some_and(ExitReason::leaves_stacks) {
            process.write_stacks().await;
        }
        // A worker exits when its connection is closed, possibly before it has written its stacks.
        drop(connection);
        let exit = process.reap(name, memory.load(Ordering::Relaxed), kill_reason).await;
        let suspects = self.redistribute_calls(worker, &page, &exit);
        self.options.metrics.forget_worker(name);
        Ok((exit, culprit.map_or(suspects, |culprit| vec![culprit])))
    }

    /// Has a worker load its models, and checks it regularly. Returns when it is to be reaped.
    async fn watch(
        self: &Arc<Self>,
        worker: usize,
        name: &str,
        pid: Pid,
        is_ready: oneshot::Receiver<ReadyHead>,
        page: &CallsPage,
        memory: &AtomicU64,
    ) -> RunEnd {
        match tokio::time::timeout(START_TIMEOUT, is_ready).await {
            Ok(Ok(ready)) if ready.protocol == PROTOCOL => {
                let ReadyHead { python, executable, .. } = ready;
                info!(worker = name, python, executable, "Started a worker.");
            }
            Ok(_) => return RunEnd::Kill(ExitReason::Protocol, None),
            Err(_) => return RunEnd::Kill(ExitReason::Hung(START_TIMEOUT), None),
        }
        let wake = {
            let mut state = self.state.lock();
            state.links[worker].pid = Some(pid.as_raw_nonzero().get().unsigned_abs());
            state.dispatch.worker_up(worker);
            Arc::clone(&state.links[worker].wake)
        };
        let ticks = |interval| {
            let mut ticks = tokio::time::interval(interval);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            ticks
        };
        let mut beats = ticks(HEARTBEAT);
        let mut memory_ticks = ticks(MEMORY_INTERVAL);
        let limits_memory = self.options.workers.worker_memory_limit.is_some();
        let mut ping: Option<Ping> = None;
        // Calls of other models are watched while a model loads.
        let mut load = pin!(OptionFuture::from(None));
        let mut is_loading = false;
        loop {
            if !is_loading && self.has_pending_load(worker) {
                load.set(Some(self.load(worker)).into());
                is_loading = true;
            }
            self.unload_idle_models(worker);
            self.replace_worn_worker(worker);
            if self.is_drained(worker) {
                return self.stop_worker(worker).await;
            }
            tokio::select! {
                () = self.stop.cancelled() => return self.stop_worker(worker).await,
                ended = &mut load, if is_loading => {
                    load.set(None.into());
                    is_loading = false;
                    // A load may block the event loop.
                    ping = None;
                    if let Some(Some(reason)) = ended {
                        return RunEnd::Kill(reason, None);
                    }
                }
                () = wake.notified() => {}
                _ = memory_ticks.tick(), if limits_memory => {
                    let measured = measure(pid, memory).await;
                    if let Some(end) = measured.and_then(|bytes| self.exceeded_memory(worker, bytes)) {
                        return end;
                    }
                }
                _ = beats.tick() => {
                    if let Some(bytes) = measure(pid, memory).await {
                        self.options.metrics.set_resident(name, bytes);
                    }
                    // If the worker dies, metrics since its last scrape are lost.
                    let _ = self.request_metrics(worker);
                    if let Some(end) = self.exceeded_call_timeout(worker, page) {
                        return end;
                    }
                    if let Some(sent) = &mut ping {
                        match sent.answer.try_recv() {
                            Ok(Ok(answer)) => {
                                self.end_lost_calls(worker, name, sent.id, &answer);
                                ping = None;
                            }
                            Ok(Err(_)) | Err(oneshot::error::TryRecvError::Closed) => ping = None,
                            Err(oneshot::error::TryRecvError::Empty) => {}
                        }
                    }
                    match (&ping, self.options.workers.worker_hang_timeout) {
                        (Some(sent), Some(limit)) if sent.at.elapsed() > limit && !is_loading => {
                            return RunEnd::Kill(ExitReason::Hung(limit), None);
                        }
                        (Some(_), _) => {}
                        (None, _) => {
                            let (reply, answer) = oneshot::channel();
                            let sent = self.state.lock().send_to(worker, OutgoingFrame::empty(FrameKind::Ping), reply);
                            ping = sent.map(|id| Ping { id, at: Instant::now(), answer });
                        }
                    }
                }
            }
        }
    }

    /// Has a worker exit, which it does once its calls have ended.
    async fn stop_worker(&self, worker: usize) -> RunEnd {
        if let Some(mailbox) = &self.state.lock().links[worker].mailbox {
            let _ = mailbox.send((0, OutgoingFrame::empty(FrameKind::Stop)));
        }
        // If the process has not exited by itself by then, it is killed.
        tokio::time::sleep(self.options.workers.parallel_workers_timeout).await;
        RunEnd::StopTimeout
    }

    /// Returns whether a worker is being drained and has no more calls.
    fn is_drained(&self, worker: usize) -> bool {
        let state = self.state.lock();
        state.supervision.is_draining(worker) && state.dispatch.open_predictions(worker) == 0
    }

    /// Unloads the models that the worker should no longer have, once their calls have ended.
    fn unload_idle_models(&self, worker: usize) {
        let mut state = self.state.lock();
        let state = &mut *state;
        let dispatch = &state.dispatch;
        let idle: Vec<ModelNumber> =
            state.links[worker].unloads.extract_if(.., |model| !dispatch.has_calls_of(worker, *model)).collect();
        for model in idle {
            // Nobody waits for the answer.
            let (reply, _) = oneshot::channel();
            state.send_to(worker, message::unload_frame(model), reply);
        }
    }

    /// Starts a successor of a worker that has answered as many predictions as it may.
    fn replace_worn_worker(self: &Arc<Self>, worker: usize) {
        let mut state = self.state.lock();
        let is_worn = self
            .options
            .workers
            .max_requests_per_worker
            .is_some_and(|limit| state.dispatch.ended_predictions(worker) >= limit);
        if is_worn {
            self.replace(&mut state, worker, "requests");
        }
    }

    fn replace(self: &Arc<Self>, state: &mut PoolState, worker: usize, reason: &'static str) {
        state.links[worker].replace_reason = Some(reason);
        state.supervision.replace(worker, Instant::now());
        self.apply(state);
    }

    /// Compares the resident memory of a worker with its limits, in bytes: starts a successor of a worker that is near it,
    /// and returns how to end one that has exceeded it.
    fn exceeded_memory(self: &Arc<Self>, worker: usize, resident: u64) -> Option<RunEnd> {
        let limit = self.options.workers.worker_memory_limit?;
        if resident > limit {
            return Some(RunEnd::Kill(ExitReason::OverMemoryLimit(limit), None));
        }
        if resident > limit / 100 * SOFT_MEMORY_PERCENT {
            self.replace(&mut self.state.lock(), worker, "memory");
        }
        None
    }

    /// Returns how to end a worker with a call that has exceeded its model's `predict_timeout` in spite of having been
    /// cancelled, or that has occupied a thread for longer than `worker_hang_timeout`.
    fn exceeded_call_timeout(&self, worker: usize, page: &CallsPage) -> Option<RunEnd> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let now = Instant::now();
        state.dispatch.observe_begun(worker, now, |id| page.had_begun(id));
        state.dispatch.running_calls(worker).find_map(|running| {
            // Streams have no timeout, and calls to custom handlers no `predict_timeout`.
            let kind = running.call.frame.kind;
            let predict_timeout =
                state.models.get(&running.model)?.predict_timeout.filter(|_| kind == FrameKind::Predict);
            let elapsed = now.saturating_duration_since(running.since);
            let reason = match (predict_timeout, self.options.workers.worker_hang_timeout) {
                (Some(limit), _) => (elapsed > limit + CANCEL_GRACE).then_some(ExitReason::TimedOut(limit)),
                (None, Some(limit)) => {
                    let is_hung = running.occupies_thread && kind != FrameKind::Stream && elapsed > limit;
                    is_hung.then_some(ExitReason::HungCall(limit))
                }
                (None, None) => None,
            };
            // A call that has not begun waits for one that hangs, of the same model.
            reason.map(|reason| RunEnd::Kill(reason, Some(running.model)))
        })
    }

    /// Ends the calls that a worker no longer knows, so that they do not occupy it forever.
    fn end_lost_calls(&self, worker: usize, name: &str, ping: u64, answer: &Frame) {
        let Ok(PongHead { open }) = answer.read_head() else { return };
        let mut state = self.state.lock();
        let now = Instant::now();
        let lost = state.dispatch.lost_calls(worker, ping, &open);
        let calls: Vec<_> = lost.into_iter().filter_map(|id| state.dispatch.finish(worker, id, now)).collect();
        if calls.is_empty() {
            return;
        }
        state.send_queued(worker, now);
        drop(state);
        error!(worker = name, "The worker has lost {} calls; this is a bug in mlserver.", calls.len());
        for call in calls {
            call.reply.send(Err(CallError::Lost { worker: name.to_owned() }));
        }
    }

    fn has_pending_load(&self, worker: usize) -> bool {
        self.state.lock().supervision.next_load(worker, Instant::now()).is_some()
    }

    /// Has a worker load the next model and records the outcome. Returns why the worker must be killed, if it must.
    async fn load(self: &Arc<Self>, worker: usize) -> Option<ExitReason> {
        let permit = self.options.loads.acquire().await;
        let pending = {
            let mut state = self.state.lock();
            let number = state.supervision.next_load(worker, Instant::now())?;
            state.supervision.load_begun(worker, number);
            let model = state.models.get(&number)?;
            PendingLoad { number, load_frame: model.load_frame.clone(), warmup: Arc::clone(&model.warmup) }
        };
        let number = pending.number;
        let load = self.load_and_warm_up(worker, pending);
        let outcome = match self.options.workers.worker_load_timeout {
            Some(limit) => match tokio::time::timeout(limit, load).await {
                Ok(outcome) => outcome,
                Err(_) => return Some(ExitReason::LoadTimedOut(limit)),
            },
            None => load.await,
        };
        drop(permit);
        // If the worker has exited, `record_exit` updates the state.
        let outcome = outcome?;
        let now = Instant::now();
        let mut state = self.state.lock();
        let state = &mut *state;
        let outcome = match outcome {
            Ok(loaded) if !loaded.ready && state.supervision.was_ready(number) => Err(WorkerLoadError::ReturnedFalse),
            outcome => outcome,
        };
        let threads = outcome
            .as_ref()
            .ok()
            .filter(|loaded| loaded.ready)
            .map(|loaded| ModelThreads { own_loop: loaded.own_loop, threads: loaded.threads });
        let failure = outcome.as_ref().err().map(ToString::to_string);
        let outcome = outcome.map(|loaded| {
            let ready = loaded.ready;
            (loaded, ready)
        });
        match state.supervision.load_ended(worker, number, outcome, now) {
            LoadResult::Kept => {
                if let Some(threads) = threads {
                    state.dispatch.add_model(worker, number, threads);
                }
            }
            LoadResult::Retried(backoff) => {
                if let Some(model) = state.models.get(&number) {
                    let (name, version) = (model.name.as_str(), model.version.as_deref());
                    let (worker, reason) = (self.worker_name(worker), failure.unwrap_or_default());
                    warn!(
                        worker,
                        model = name,
                        version,
                        reason,
                        "Cannot load the model again; retrying in {} s.",
                        backoff.as_secs()
                    );
                }
            }
            LoadResult::Discarded => state.links[worker].unloads.push(number),
        }
        self.apply(state);
        state.send_queued(worker, now);
        state.reject_unservable_calls();
        None
    }

    /// Has a worker load a model and answer its warm-up samples. Returns `None` if the worker exits in the meantime.
    async fn load_and_warm_up(
        &self,
        worker: usize,
        PendingLoad { number, load_frame, warmup }: PendingLoad,
    ) -> Option<Result<LoadedHead, WorkerLoadError>> {
        let answer = self.request(worker, load_frame).await?;
        if answer.kind != FrameKind::Loaded {
            return Some(Err(self.load_failure(number, &answer)));
        }
        let loaded = match answer.read_head::<LoadedHead>() {
            Ok(loaded) => loaded,
            Err(error) => return Some(Err(error.into())),
        };
        let samples: &[OutgoingFrame] = if loaded.ready { &warmup } else { &[] };
        for (index, sample) in samples.iter().enumerate() {
            let answer = self.request(worker, sample.clone()).await?;
            if answer.kind == FrameKind::Error {
                let reason = self.load_failure(number, &answer).to_string();
                return Some(Err(WorkerLoadError::Warmup { index, reason }));
            }
        }
        Some(Ok(loaded))
    }

    /// Sends a frame to a worker, outside of the queue of calls, and waits for the answer. Returns `None` if the worker
    /// exits first.
    async fn request(&self, worker: usize, frame: OutgoingFrame) -> Option<Frame> {
        let (reply, answer) = oneshot::channel();
        self.state.lock().send_to(worker, frame, reply);
        answer.await.ok()?.ok()
    }

    /// Converts the error frame of a failed load, and logs the traceback.
    fn load_failure(&self, number: ModelNumber, frame: &Frame) -> WorkerLoadError {
        let ErrorHead { kind, message, status, traceback } = match frame.read_head() {
            Ok(failure) => failure,
            Err(error) => return error.into(),
        };
        if kind == FailureKind::Unsupported {
            return WorkerLoadError::Unsupported { message };
        }
        if kind == FailureKind::Model
            && !traceback.is_empty()
            && let Some(model) = self.state.lock().models.get(&number)
        {
            let (model, version) = (model.name.as_str(), model.version.as_deref());
            error!(model, version, "The model's code failed to load.\n{}", traceback.trim_end());
        }
        WorkerLoadError::Failed { message, status }
    }

    /// Queues the calls of a dead worker for others if they had not begun; answers the others with an error. Returns the
    /// models whose calls may have caused the death: those that ran, or if there are none, those that waited for something;
    /// first those of which the worker has answered the fewest calls.
    fn redistribute_calls(&self, worker: usize, page: &CallsPage, exit: &WorkerExit) -> Vec<ModelNumber> {
        let mut lost = Vec::new();
        let (mut running, mut waiting) = (BTreeSet::new(), BTreeSet::new());
        let mut state = self.state.lock();
        let ended: BTreeMap<ModelNumber, u64> =
            state.models.keys().map(|&model| (model, state.dispatch.ended_calls_of(worker, model))).collect();
        let placed = state.dispatch.worker_down(worker);
        for mut placed in placed.into_iter().rev() {
            let had_begun = page.had_begun(placed.id);
            if placed.is_prediction() && had_begun {
                if placed.occupies_lane() { &mut running } else { &mut waiting }.insert(placed.model());
            }
            placed.call.lost_workers += 1;
            let can_retry = placed.call.lost_workers <= MAX_RETRIES
                && matches!(placed.call.reply, ReplySender::One(_))
                && placed.is_prediction()
                && !had_begun
                && !self.stop.is_cancelled();
            if can_retry {
                placed.call.wait_again();
                state.dispatch.requeue_at_front(placed);
            } else {
                lost.push(placed.call);
            }
        }
        let now = Instant::now();
        for other in 0..state.links.len() {
            state.send_queued(other, now);
        }
        drop(state);
        let exit = Arc::new(exit.clone());
        for call in lost {
            call.reply.send(Err(CallError::WorkerLost(Arc::clone(&exit))));
        }
        let mut suspects: Vec<ModelNumber> = if running.is_empty() { waiting } else { running }.into_iter().collect();
        suspects.sort_by_key(|model| ended.get(model));
        suspects
    }

    /// Records how a worker ended after it ran for `uptime`. Returns how long to back off before the next start, or `None`
    /// if it is not to be started again.
    fn record_exit(
        self: &Arc<Self>,
        worker: usize,
        name: &str,
        exit: &Result<WorkerExit, WorkerLoadError>,
        suspects: Vec<ModelNumber>,
        uptime: Duration,
    ) -> Option<Duration> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let replaced = state.links[worker].replace_reason.filter(|_| !state.supervision.is_permanent(worker));
        state.links[worker].ready = None;
        let label = replaced.unwrap_or_else(|| exit.as_ref().map_or("start", |exit| exit.reason.label()));
        self.options.metrics.count_restart(&self.options.name, label);
        if let Ok(exit) = exit {
            if state.supervision.is_draining(worker) && exit.reason == ExitReason::Exit(0) {
                info!(worker = name, pid = exit.pid, "Ended a worker that was replaced.");
            } else {
                let loaded = state.supervision.loaded_models(worker);
                let models: Vec<_> = loaded.filter_map(|model| Some(state.models.get(&model)?.name.as_str())).collect();
                log_exit(name, exit, &models);
            }
        }
        let error = match exit {
            Ok(exit) => WorkerLoadError::WorkerExited { exit: format!("{exit:#}") },
            Err(error) => error.clone(),
        };
        state.ends.entry(worker).or_default().add(exit.as_ref());
        let reason = exit.as_ref().map_or_else(ToString::to_string, ToString::to_string);
        let end = WorkerEnd { suspects, uptime, error, reason };
        let backoff = state.supervision.worker_ended(worker, end, Instant::now());
        self.apply(state);
        state.reject_unservable_calls();
        backoff
    }
}

/// Returns the resident memory of a process, in bytes, and keeps it for the report of its end.
async fn measure(pid: Pid, memory: &AtomicU64) -> Option<u64> {
    let bytes = resident_memory(pid).await?;
    memory.store(bytes, Ordering::Relaxed);
    Some(bytes)
}

fn log_exit(name: &str, exit: &WorkerExit, models: &[&str]) {
    let (models, lines) = (models.join(", "), exit.last_lines.join("\n"));
    let &WorkerExit { out_of_memory, resident_bytes, pid, reason, .. } = exit;
    warn!(worker = name, models, pid, out_of_memory, resident_bytes, last_lines = lines, "A worker {reason}.");
}
