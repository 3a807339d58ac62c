//! The keeper of a worker: starts it, has it load what it should, watches it, and starts it again when it has ended.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tracing::{error, info, warn};

use super::calls::Reply;
use super::{Model, On, Pool};
use crate::runtimes::python::connection::{Connection, Ended};
use crate::runtimes::python::dispatch::ModelNumber;
use crate::runtimes::python::frame::{Frame, Kind, Outgoing, PROTOCOL};
use crate::runtimes::python::message::{self, Failure, FailureKind, Hello, Loaded, Ready};
use crate::runtimes::python::process::{Death, How, Process, resident};
use crate::runtimes::python::{CallError, PythonLoadError};

/// How long a process may take from its start to its `ready`, imports of the SDK included.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// How often workers are asked whether they answer, and their memory is measured.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A worker that lives this long has not failed because of its start.
const STABLE: Duration = Duration::from_mins(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After this many deaths of a worker while it loads a model again, that worker does without the model.
const LOAD_DEATHS: u32 = 3;
/// How long a call may go on after it was cancelled because of its model's limit, at least.
const CANCELLATION: Duration = Duration::from_millis(500);
/// How long what has arrived is still read after the process has ended.
const LAST_FRAMES: Duration = Duration::from_millis(100);

/// Why a worker's session is over.
enum Over {
    Connection(Ended),
    Exited,
    Decided(How),
    /// The pool is being stopped, and the worker's time is over.
    Stopped,
}

impl Pool {
    /// Keeps a worker alive until the pool ends.
    pub(super) async fn keep(self: Arc<Self>, worker: usize) {
        let name = self.worker_name(worker);
        while !self.stop.is_cancelled() {
            let started = Instant::now();
            let ended = self.session(worker, &name).await;
            if self.stop.is_cancelled() {
                break;
            }
            if let Err(error) = &ended {
                error!(worker = name, "Cannot start a worker: {error}");
            }
            let pause = self.bury(worker, &name, &ended, started.elapsed());
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => {}
            }
        }
        let mut state = self.state.lock();
        let placed = state.dispatch.down(worker);
        let waiting = state.dispatch.take_waiting(|_, _| true);
        drop(state);
        for call in placed.into_iter().map(|placed| placed.call).chain(waiting) {
            call.reply.send(Err(CallError::Stopping));
        }
    }

    /// Runs a worker from start to end, and returns how it ended and its calls that can go elsewhere are there already.
    async fn session(&self, worker: usize, name: &str) -> Result<Death, PythonLoadError> {
        let hello = Hello {
            protocol: PROTOCOL,
            worker: name,
            parent: std::process::id(),
            inline: self.options.inline,
            debug: self.options.debug,
            logging: self.options.logging.as_ref(),
            paths: self.options.paths.iter().map(|path| path.to_string_lossy()).collect(),
        };
        let program = &self.options.program;
        let started =
            Outgoing::new(Kind::Hello, message::head(&hello)).map_err(PythonLoadError::from).and_then(|hello| {
                Process::start(program, name, hello).map_err(|source| PythonLoadError::Start {
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
            if let Some(bytes) = resident(pid) {
                memory.store(bytes, Ordering::Relaxed);
                self.options.metrics.set_resident(name, bytes);
            }
        };
        let over = {
            let mut connection = pin!(Connection::new(stream, frames).run(|frame| self.receive(worker, frame)));
            let supervision =
                pin!(self.supervise(worker, (name, pid.as_raw_nonzero().get().unsigned_abs()), is_ready, measure));
            let over = tokio::select! {
                ended = &mut connection => Over::Connection(ended),
                () = process.ended() => Over::Exited,
                over = supervision => over,
            };
            if matches!(over, Over::Exited) {
                let _ = tokio::time::timeout(LAST_FRAMES, connection).await;
            }
            over
        };
        let decided = match over {
            Over::Connection(Ended::Protocol(error)) => {
                error!(worker = name, "{error}");
                Some(How::Protocol)
            }
            Over::Decided(how) => Some(how),
            Over::Stopped => Some(How::Killed),
            Over::Connection(Ended::Closed | Ended::Io(_)) | Over::Exited => None,
        };
        {
            let mut state = self.state.lock();
            let link = &mut state.links[worker];
            (link.mailbox, link.pid, link.asked_for_metrics) = (None, None, false);
        }
        let death = process.end(name, memory.load(Ordering::Relaxed), decided).await;
        self.release(worker, &process, &death);
        self.options.metrics.forget_worker(name);
        Ok(death)
    }

    /// Lets a worker load what it should, and watches it.
    async fn supervise(
        &self,
        worker: usize,
        (name, pid): (&str, u32),
        is_ready: oneshot::Receiver<Ready>,
        measure: impl Fn(),
    ) -> Over {
        match tokio::time::timeout(START_TIMEOUT, is_ready).await {
            Ok(Ok(ready)) if ready.protocol == PROTOCOL => {
                let Ready { python, executable, .. } = ready;
                info!(worker = name, python, executable, "Started a worker.");
            }
            Ok(_) => return Over::Decided(How::Protocol),
            Err(_) => return Over::Decided(How::Hung(START_TIMEOUT)),
        }
        {
            let mut state = self.state.lock();
            state.links[worker].pid = Some(pid);
            state.dispatch.up(worker);
        }
        let mut beats = tokio::time::interval(HEARTBEAT);
        beats.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut asked: Option<(Instant, oneshot::Receiver<Result<Frame, CallError>>)> = None;
        loop {
            while let Some((number, frame, samples)) = self.next_to_load(worker) {
                tokio::select! {
                    () = self.load(worker, number, frame, &samples) => {}
                    () = self.stop.cancelled() => break,
                }
                asked = None;
            }
            tokio::select! {
                () = self.stop.cancelled() => {
                    self.tell_to_stop(worker);
                    // The process ends by itself before this is over, or is killed then.
                    tokio::time::sleep(self.options.stop_timeout).await;
                    return Over::Stopped;
                }
                () = self.wake[worker].notified() => {}
                _ = beats.tick() => {
                    measure();
                    // When it dies, what its models have counted since is lost.
                    let _ = self.ask_for_metrics(worker);
                    if let Some(limit) = self.overrun(worker) {
                        return Over::Decided(How::Overran(limit));
                    }
                    asked = asked.and_then(|(since, mut answer)| {
                        matches!(answer.try_recv(), Err(oneshot::error::TryRecvError::Empty)).then_some((since, answer))
                    });
                    match (&asked, self.options.hang_timeout) {
                        (Some((since, _)), Some(limit)) if since.elapsed() > limit => {
                            return Over::Decided(How::Hung(limit));
                        }
                        (Some(_), _) => {}
                        (None, _) => {
                            let (reply, answer) = oneshot::channel();
                            self.state.lock().send_to(worker, Outgoing::bare(Kind::Ping), reply);
                            asked = Some((Instant::now(), answer));
                        }
                    }
                }
            }
        }
    }

    /// Returns the limit that a call has exceeded, although it was cancelled when that was reached.
    fn overrun(&self, worker: usize) -> Option<Duration> {
        let state = self.state.lock();
        let now = Instant::now();
        state.dispatch.running(worker).find_map(|(model, since, call)| {
            let limit = state.models.get(&model)?.limit?;
            // Streams and calls of other handlers last as long as they like.
            (call.frame.kind == Kind::Predict && now.saturating_duration_since(since) > limit + CANCELLATION)
                .then_some(limit)
        })
    }

    /// Returns a model that the worker should have and has not.
    fn next_to_load(&self, worker: usize) -> Option<(ModelNumber, Outgoing, Arc<[Outgoing]>)> {
        let state = self.state.lock();
        let wanted = |model: &&Model| matches!(model.on.get(&worker), Some(On::Wanted { .. }));
        let (number, model) = state.models.iter().find(|(_, model)| wanted(model))?;
        Some((*number, model.frame.clone(), Arc::clone(&model.samples)))
    }

    async fn load(&self, worker: usize, number: ModelNumber, frame: Outgoing, samples: &[Outgoing]) {
        let permit = self.options.loads.acquire().await;
        {
            let mut state = self.state.lock();
            if !state.models.contains_key(&number) {
                return;
            }
            state.links[worker].loading = Some(number);
        }
        let outcome = self.load_and_warm(worker, number, frame, samples).await;
        drop(permit);
        // When the worker has ended, what follows from that happens where it is buried.
        let Some(outcome) = outcome else { return };
        let now = Instant::now();
        let mut state = self.state.lock();
        let state = &mut *state;
        state.links[worker].loading = None;
        let Some(model) = state.models.get_mut(&number) else { return };
        match outcome {
            Ok(loaded) => {
                let link = &mut state.links[worker];
                (link.trouble, link.failures) = (None, 0);
                if loaded.ready {
                    state.dispatch.add_model(worker, number);
                    model.ready.fetch_add(1, Ordering::AcqRel);
                }
                model.on.insert(worker, On::Loaded(loaded));
            }
            Err(error) => {
                model.on.insert(worker, On::Failed(error));
            }
        }
        let _ = model.changed.send(());
        state.pump(worker, now);
    }

    /// Has a worker load a model and answer its samples. Returns nothing when the worker ends meanwhile.
    async fn load_and_warm(
        &self,
        worker: usize,
        number: ModelNumber,
        frame: Outgoing,
        samples: &[Outgoing],
    ) -> Option<Result<Loaded, PythonLoadError>> {
        let answer = self.ask(worker, frame).await?;
        if answer.kind != Kind::Loaded {
            return Some(Err(self.load_failure(number, &answer)));
        }
        let loaded = match answer.read::<Loaded>() {
            Ok(loaded) => loaded,
            Err(error) => return Some(Err(error.into())),
        };
        let samples = if loaded.ready { samples } else { &[] };
        for (index, sample) in samples.iter().enumerate() {
            let answer = self.ask(worker, sample.clone()).await?;
            if answer.kind == Kind::Error {
                let reason = self.load_failure(number, &answer).to_string();
                return Some(Err(PythonLoadError::Sample { index, reason }));
            }
        }
        Some(Ok(loaded))
    }

    /// Sends a worker a frame that is no call, and waits for the answer. Returns nothing when the worker ends first.
    async fn ask(&self, worker: usize, frame: Outgoing) -> Option<Frame> {
        let (reply, answer) = oneshot::channel();
        self.state.lock().send_to(worker, frame, reply);
        answer.await.ok()?.ok()
    }

    /// Reads why a model's code did not load. The traceback goes to the log.
    fn load_failure(&self, number: ModelNumber, frame: &Frame) -> PythonLoadError {
        let Failure { kind, message, status, traceback } = match frame.read() {
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

    fn tell_to_stop(&self, worker: usize) {
        if let Some(mailbox) = &self.state.lock().links[worker].mailbox {
            let _ = mailbox.send((0, Outgoing::bare(Kind::Stop)));
        }
    }

    /// Gives the calls of a dead worker to others, or ends them.
    fn release(&self, worker: usize, process: &Process, death: &Death) {
        let mut lost = Vec::new();
        let mut state = self.state.lock();
        let placed = state.dispatch.down(worker);
        for placed in placed.into_iter().rev() {
            let again = matches!(placed.call.reply, Reply::One(_))
                && placed.is_prediction()
                && !process.had_begun(placed.id)
                && !self.stop.is_cancelled();
            if again {
                placed.call.place.id.store(0, Ordering::Relaxed);
                state.dispatch.return_to_front(placed);
            } else {
                lost.push(placed.call);
            }
        }
        let now = Instant::now();
        for other in 0..state.links.len() {
            state.pump(other, now);
        }
        drop(state);
        let death = Arc::new(death.clone());
        for call in lost {
            call.reply.send(Err(CallError::Lost(Arc::clone(&death))));
        }
    }

    /// Notes how a worker ended, and returns how long to wait before the next one.
    fn bury(&self, worker: usize, name: &str, ended: &Result<Death, PythonLoadError>, lived: Duration) -> Duration {
        let mut state = self.state.lock();
        let state = &mut *state;
        let link = &mut state.links[worker];
        let loading = link.loading.take();
        link.ready = None;
        if lived >= STABLE {
            link.deaths = 0;
        }
        link.deaths += 1;
        link.failures += 1;
        let deaths = link.deaths;
        let reason = ended.as_ref().map_or("start", |death| death.how.reason());
        link.trouble = Some(ended.as_ref().map_or_else(ToString::to_string, ToString::to_string));
        self.options.metrics.count_restart(&self.options.name, reason);
        if let Ok(death) = ended {
            let models: Vec<&str> = state
                .models
                .values()
                .filter(|model| matches!(model.on.get(&worker), Some(On::Loaded(_))))
                .map(|model| model.name.as_str())
                .collect();
            log_death(name, death, &models);
        }
        let failure = match ended {
            Ok(death) => PythonLoadError::Died { death: death.to_string() },
            Err(error) => error.clone(),
        };
        for (number, model) in &mut state.models {
            let Some(on) = model.on.get_mut(&worker) else { continue };
            // Nothing to blame but the model that was being loaded, or the start itself.
            let blamed = loading == Some(*number) || loading.is_none();
            match on {
                On::Loaded(loaded) => {
                    if loaded.ready {
                        model.ready.fetch_sub(1, Ordering::AcqRel);
                    }
                    *on = On::Wanted { deaths: 0 };
                }
                On::Wanted { deaths } if blamed => {
                    *deaths += 1;
                    if !model.established || *deaths >= LOAD_DEATHS && loading.is_some() {
                        *on = On::Failed(failure.clone());
                    }
                }
                On::Wanted { .. } | On::Failed(_) => {}
            }
            let _ = model.changed.send(());
        }
        let hopeless = state.take_hopeless();
        for call in hopeless {
            let reason = state.links[worker].trouble.clone().unwrap_or_default();
            call.reply.send(Err(CallError::NoWorker { reason }));
        }
        if deaths <= 1 { Duration::ZERO } else { (FIRST_PAUSE * 2_u32.pow((deaths - 2).min(10))).min(LONGEST_PAUSE) }
    }
}

fn log_death(name: &str, death: &Death, models: &[&str]) {
    let (models, lines) = (models.join(", "), death.last_lines.join("\n"));
    let (out_of_memory, resident_bytes, pid) = (death.out_of_memory, death.resident, death.pid);
    warn!(worker = name, models, pid, out_of_memory, resident_bytes, last_lines = lines, "A worker {}.", death.how);
}
