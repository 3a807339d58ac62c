//! The supervisor of a worker: spawns it, has it load its models, watches it, and restarts it when it exits.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use super::calls::ReplySender;
use super::{LoadState, Pool, PoolModel};
use crate::runtimes::python::connection::{Connection, ConnectionEnd};
use crate::runtimes::python::dispatch::ModelNumber;
use crate::runtimes::python::frame::{Frame, FrameKind, OutgoingFrame, PROTOCOL};
use crate::runtimes::python::message::{self, ErrorHead, FailureKind, HelloHead, LoadedHead, ReadyHead};
use crate::runtimes::python::process::{ExitReason, WorkerExit, WorkerProcess, resident_memory};
use crate::runtimes::python::{CallError, PythonLoadError};

/// How long a process may take from its start to its `ready`, imports of the SDK included.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// How often a worker is pinged and its memory is measured.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// The exit of a worker that has run this long does not count as an early exit.
const STABLE_AFTER: Duration = Duration::from_mins(1);
const FIRST_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(30);
/// After a worker has crashed this many times while it reloads a model, it no longer loads that model.
const MAX_LOAD_CRASHES: u32 = 3;
/// The minimum time for which a call may continue after it was cancelled because of `predict_timeout`.
const CANCEL_GRACE: Duration = Duration::from_millis(500);
/// How long frames that have arrived are still read after the process has exited.
const LAST_FRAMES_TIMEOUT: Duration = Duration::from_millis(100);

/// Why a worker is reaped.
enum RunEnd {
    Connection(ConnectionEnd),
    Exited,
    /// The supervisor kills the worker for this reason.
    Kill(ExitReason),
    /// The pool is being stopped, and `stop_timeout` is over.
    StopTimeout,
}

/// A model that a worker should load, and the samples that warm it up.
struct PendingLoad {
    number: ModelNumber,
    load_frame: OutgoingFrame,
    warmup: Arc<[OutgoingFrame]>,
}

impl Pool {
    /// Keeps a worker running until the pool is stopped.
    pub(super) async fn supervise(self: Arc<Self>, worker: usize) {
        let name = self.worker_name(worker);
        while !self.stop.is_cancelled() {
            let started = Instant::now();
            let exit = self.run_worker(worker, &name).await;
            if self.stop.is_cancelled() {
                break;
            }
            if let Err(error) = &exit {
                error!(worker = name, "Cannot start a worker: {error}");
            }
            let backoff = self.record_exit(worker, &name, &exit, started.elapsed());
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
        self.running.send_modify(|running| *running -= 1);
    }

    /// Runs a worker until it has been reaped, redistributes its calls, and returns how it ended.
    async fn run_worker(&self, worker: usize, name: &str) -> Result<WorkerExit, PythonLoadError> {
        let hello = HelloHead {
            protocol: PROTOCOL,
            worker: name,
            parent: std::process::id(),
            inline: self.options.inline,
            debug: self.options.debug,
            logging: self.options.logging.as_ref(),
            paths: self.options.paths.iter().map(|path| path.to_string_lossy()).collect(),
        };
        let program = &self.options.program;
        let started = OutgoingFrame::new(FrameKind::Hello, message::encode_head(&hello))
            .map_err(PythonLoadError::from)
            .and_then(|hello| {
                WorkerProcess::start(program, name, hello).map_err(|source| PythonLoadError::Start {
                    interpreter: program.interpreter.clone(),
                    source: Arc::new(source),
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
        let measure = || {
            if let Some(bytes) = resident_memory(pid) {
                memory.store(bytes, Ordering::Relaxed);
                self.options.metrics.set_resident(name, bytes);
            }
        };
        let end = {
            let mut connection = pin!(Connection::new(stream, frames).run(|frame| self.receive(worker, frame)));
            let pid = pid.as_raw_nonzero().get().unsigned_abs();
            let watch = pin!(self.watch(worker, name, pid, is_ready, measure));
            let end = tokio::select! {
                end = &mut connection => RunEnd::Connection(end),
                () = process.wait() => RunEnd::Exited,
                end = watch => end,
            };
            if matches!(end, RunEnd::Exited) {
                let _ = tokio::time::timeout(LAST_FRAMES_TIMEOUT, connection).await;
            }
            end
        };
        let kill_reason = match end {
            RunEnd::Connection(ConnectionEnd::Protocol(error)) => {
                error!(worker = name, "{error}");
                Some(ExitReason::Protocol)
            }
            RunEnd::Kill(reason) => Some(reason),
            RunEnd::StopTimeout => Some(ExitReason::Killed),
            RunEnd::Connection(ConnectionEnd::Closed | ConnectionEnd::Io(_)) | RunEnd::Exited => None,
        };
        {
            let mut state = self.state.lock();
            let link = &mut state.links[worker];
            (link.mailbox, link.pid, link.scrape_pending) = (None, None, false);
        }
        let exit = process.reap(name, memory.load(Ordering::Relaxed), kill_reason).await;
        self.redistribute_calls(worker, &process, &exit);
        self.options.metrics.forget_worker(name);
        Ok(exit)
    }

    /// Has a worker load its models, and pings it regularly.
    async fn watch(
        &self,
        worker: usize,
        name: &str,
        pid: u32,
        is_ready: oneshot::Receiver<ReadyHead>,
        measure: impl Fn(),
    ) -> RunEnd {
        match tokio::time::timeout(START_TIMEOUT, is_ready).await {
            Ok(Ok(ready)) if ready.protocol == PROTOCOL => {
                let ReadyHead { python, executable, .. } = ready;
                info!(worker = name, python, executable, "Started a worker.");
            }
            Ok(_) => return RunEnd::Kill(ExitReason::Protocol),
            Err(_) => return RunEnd::Kill(ExitReason::Hung(START_TIMEOUT)),
        }
        {
            let mut state = self.state.lock();
            state.links[worker].pid = Some(pid);
            state.dispatch.worker_up(worker);
        }
        let mut beats = tokio::time::interval(HEARTBEAT);
        beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut ping: Option<(Instant, oneshot::Receiver<Result<Frame, CallError>>)> = None;
        loop {
            while let Some(pending) = self.next_pending_load(worker) {
                tokio::select! {
                    () = self.load(worker, pending) => {}
                    () = self.stop.cancelled() => break,
                }
                ping = None;
            }
            tokio::select! {
                () = self.stop.cancelled() => {
                    self.send_stop(worker);
                    // If the process has not exited by itself by then, it is killed.
                    tokio::time::sleep(self.options.stop_timeout).await;
                    return RunEnd::StopTimeout;
                }
                () = self.wake[worker].notified() => {}
                _ = beats.tick() => {
                    measure();
                    // If the worker dies, metrics since its last scrape are lost.
                    let _ = self.request_metrics(worker);
                    if let Some(limit) = self.exceeded_predict_timeout(worker) {
                        return RunEnd::Kill(ExitReason::TimedOut(limit));
                    }
                    ping = ping.and_then(|(since, mut answer)| {
                        matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty)).then_some((since, answer))
                    });
                    match (&ping, self.options.hang_timeout) {
                        (Some((since, _)), Some(limit)) if since.elapsed() > limit => {
                            return RunEnd::Kill(ExitReason::Hung(limit));
                        }
                        (Some(_), _) => {}
                        (None, _) => {
                            let (reply, answer) = oneshot::channel();
                            self.state.lock().send_to(worker, OutgoingFrame::empty(FrameKind::Ping), reply);
                            ping = Some((Instant::now(), answer));
                        }
                    }
                }
            }
        }
    }

    /// Returns the `predict_timeout` that a call of this worker has exceeded, in spite of having been cancelled.
    fn exceeded_predict_timeout(&self, worker: usize) -> Option<Duration> {
        let state = self.state.lock();
        let now = Instant::now();
        state.dispatch.running_calls(worker).find_map(|(model, since, call)| {
            let limit = state.models.get(&model)?.predict_timeout?;
            // Streams and calls to custom handlers have no timeout.
            (call.frame.kind == FrameKind::Predict && now.saturating_duration_since(since) > limit + CANCEL_GRACE)
                .then_some(limit)
        })
    }

    /// Returns a model that the worker has yet to load.
    fn next_pending_load(&self, worker: usize) -> Option<PendingLoad> {
        let state = self.state.lock();
        let is_pending = |model: &&PoolModel| matches!(model.states.get(&worker), Some(LoadState::Pending { .. }));
        let (&number, model) = state.models.iter().find(|(_, model)| is_pending(model))?;
        Some(PendingLoad { number, load_frame: model.load_frame.clone(), warmup: Arc::clone(&model.warmup) })
    }

    /// Has a worker load a model and records the outcome.
    async fn load(&self, worker: usize, pending: PendingLoad) {
        let number = pending.number;
        let permit = self.options.loads.acquire().await;
        {
            let mut state = self.state.lock();
            if !state.models.contains_key(&number) {
                return;
            }
            state.links[worker].loading = Some(number);
        }
        let outcome = self.load_and_warm_up(worker, pending).await;
        drop(permit);
        // If the worker has exited, `record_exit` updates the state.
        let Some(outcome) = outcome else { return };
        let now = Instant::now();
        let mut state = self.state.lock();
        let state = &mut *state;
        state.links[worker].loading = None;
        let Some(model) = state.models.get_mut(&number) else { return };
        match outcome {
            Ok(loaded) => {
                let link = &mut state.links[worker];
                (link.last_failure, link.failed_starts) = (None, 0);
                if loaded.ready {
                    state.dispatch.add_model(worker, number);
                    model.ready_workers.fetch_add(1, Ordering::AcqRel);
                }
                model.states.insert(worker, LoadState::Loaded(loaded));
            }
            Err(error) => {
                model.states.insert(worker, LoadState::Failed(error));
            }
        }
        let _ = model.changed.send(());
        state.send_queued(worker, now);
    }

    /// Has a worker load a model and answer its warm-up samples. Returns `None` if the worker exits in the meantime.
    async fn load_and_warm_up(
        &self,
        worker: usize,
        PendingLoad { number, load_frame, warmup }: PendingLoad,
    ) -> Option<Result<LoadedHead, PythonLoadError>> {
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
                return Some(Err(PythonLoadError::Warmup { index, reason }));
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
    fn load_failure(&self, number: ModelNumber, frame: &Frame) -> PythonLoadError {
        let ErrorHead { kind, message, status, traceback } = match frame.read_head() {
            Ok(failure) => failure,
            Err(error) => return error.into(),
        };
        if kind == FailureKind::Model
            && let Some(model) = self.state.lock().models.get(&number)
        {
            let (model, version) = (model.name.as_str(), model.version.as_deref());
            error!(model, version, "The model's code failed to load.\n{}", traceback.trim_end());
        }
        PythonLoadError::Failed { message, status }
    }

    fn send_stop(&self, worker: usize) {
        if let Some(mailbox) = &self.state.lock().links[worker].mailbox {
            let _ = mailbox.send((0, OutgoingFrame::empty(FrameKind::Stop)));
        }
    }

    /// Queues the calls of a dead worker for others if they had not begun; answers the others with an error.
    fn redistribute_calls(&self, worker: usize, process: &WorkerProcess, exit: &WorkerExit) {
        let mut lost = Vec::new();
        let mut state = self.state.lock();
        let placed = state.dispatch.worker_down(worker);
        for placed in placed.into_iter().rev() {
            let can_retry = matches!(placed.call.reply, ReplySender::One(_))
                && placed.is_prediction()
                && !process.had_begun(placed.id)
                && !self.stop.is_cancelled();
            if can_retry {
                placed.call.placement.id.store(0, Ordering::Relaxed);
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
    }

    /// Records how a worker ended after it ran for `uptime`, and returns how long to back off before the next start.
    fn record_exit(
        &self,
        worker: usize,
        name: &str,
        exit: &Result<WorkerExit, PythonLoadError>,
        uptime: Duration,
    ) -> Duration {
        let mut state = self.state.lock();
        let state = &mut *state;
        let link = &mut state.links[worker];
        let loading = link.loading.take();
        link.ready = None;
        if uptime >= STABLE_AFTER {
            link.early_exits = 0;
        }
        link.early_exits += 1;
        link.failed_starts += 1;
        let early_exits = link.early_exits;
        let reason = exit.as_ref().map_or("start", |exit| exit.reason.label());
        link.last_failure = Some(exit.as_ref().map_or_else(ToString::to_string, ToString::to_string));
        self.options.metrics.count_restart(&self.options.name, reason);
        if let Ok(exit) = exit {
            let models: Vec<&str> = state
                .models
                .values()
                .filter(|model| matches!(model.states.get(&worker), Some(LoadState::Loaded(_))))
                .map(|model| model.name.as_str())
                .collect();
            log_exit(name, exit, &models);
        }
        let failure = match exit {
            Ok(exit) => PythonLoadError::WorkerExited { exit: exit.to_string() },
            Err(error) => error.clone(),
        };
        for (number, model) in &mut state.models {
            let Some(load_state) = model.states.get_mut(&worker) else { continue };
            // The exit is attributed to the model that was being loaded. If there was none, the start itself failed, which
            // counts for all pending models.
            let is_blamed = loading == Some(*number) || loading.is_none();
            match load_state {
                LoadState::Loaded(loaded) => {
                    if loaded.ready {
                        model.ready_workers.fetch_sub(1, Ordering::AcqRel);
                    }
                    *load_state = LoadState::Pending { crashes: 0 };
                }
                LoadState::Pending { crashes } if is_blamed => {
                    *crashes += 1;
                    if !model.established || *crashes >= MAX_LOAD_CRASHES && loading.is_some() {
                        *load_state = LoadState::Failed(failure.clone());
                    }
                }
                LoadState::Pending { .. } | LoadState::Failed(_) => {}
            }
            let _ = model.changed.send(());
        }
        for call in state.take_unservable_calls() {
            let reason = state.links[worker].last_failure.clone().unwrap_or_default();
            call.reply.send(Err(CallError::NoWorker { reason }));
        }
        if early_exits <= 1 {
            Duration::ZERO
        } else {
            (FIRST_BACKOFF * 2_u32.pow((early_exits - 2).min(10))).min(MAX_BACKOFF)
        }
    }
}

fn log_exit(name: &str, exit: &WorkerExit, models: &[&str]) {
    let (models, lines) = (models.join(", "), exit.last_lines.join("\n"));
    let &WorkerExit { out_of_memory, resident_bytes, pid, reason, .. } = exit;
    warn!(worker = name, models, pid, out_of_memory, resident_bytes, last_lines = lines, "A worker {reason}.");
}
