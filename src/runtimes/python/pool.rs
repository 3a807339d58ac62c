//! A pool: workers that run the same interpreter, the models they have, and the calls for them.
//!
//! A *keeper* task owns each worker. It starts the process, has it load the models that the pool wants there, watches it,
//! and starts it again when it has ended, with growing pauses when it does not live long. What requests and keepers share is
//! behind one lock that is never held across a wait. A model is ready on a worker once its `load` has been answered there,
//! through the queue that its calls take.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::connection::{Connection, Ended};
use super::dispatch::{Dispatch, Lane, ModelNumber, Purpose, Sent};
use super::frame::{Frame, Kind, Outgoing, PROTOCOL};
use super::message::{self, Failure, FailureKind, Hello, Load, Loaded, Metrics, Ready};
use super::process::{Death, How, Process, Program, resident};
use super::{CallError, PythonLoadError};
use crate::runtimes::Progress;
use crate::telemetry::workers::WorkerMetrics;
use crate::types::{InferenceRequest, Priority};

/// How long a process may take from its start to its `ready`, imports of the SDK included.
const START_TIMEOUT: Duration = Duration::from_mins(1);
/// How often workers are asked whether they answer, and their memory is measured.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// A worker that lives this long has not failed because of its start.
const STABLE: Duration = Duration::from_mins(1);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// After this many failed starts in a row, calls do not wait for the next one.
const HOPELESS: u32 = 2;
/// After this many deaths of a worker while it loads a model again, that worker does without the model.
const LOAD_DEATHS: u32 = 3;
/// How long a call may go on after it was cancelled because of its model's limit, at least.
const CANCELLATION: Duration = Duration::from_millis(500);
/// How long what has arrived is still read after the process has ended.
const LAST_FRAMES: Duration = Duration::from_millis(100);

/// What a pool is made of.
#[derive(Debug, Clone)]
pub(super) struct Options {
    /// How logs and messages call it.
    pub(super) name: String,
    pub(super) program: Program,
    pub(super) size: usize,
    /// Plain functions run on the thread of the worker's loop.
    pub(super) inline: bool,
    pub(super) debug: bool,
    pub(super) logging: Option<Value>,
    /// Folders to import from, behind the SDK.
    pub(super) paths: Vec<std::path::PathBuf>,
    /// Nothing when a worker may be silent for ever.
    pub(super) hang_timeout: Option<Duration>,
    /// How long a worker has to end its calls when it is stopped.
    pub(super) stop_timeout: Duration,
    /// Bounds the models that are being loaded at once, over all pools.
    pub(super) loads: Arc<Semaphore>,
    pub(super) metrics: WorkerMetrics,
}

/// Workers and their models.
#[derive(Debug)]
pub(super) struct Pool {
    options: Options,
    state: Mutex<State>,
    /// Wakes each keeper: there may be something to load.
    wake: Vec<Notify>,
    stop: CancellationToken,
    keepers: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct State {
    dispatch: Dispatch<Call>,
    links: Vec<Link>,
    models: BTreeMap<ModelNumber, Model>,
    next_model: ModelNumber,
    closed: bool,
}

/// What is known of a worker's process.
#[derive(Debug, Default)]
struct Link {
    mailbox: Option<mpsc::UnboundedSender<(u64, Outgoing)>>,
    ready: Option<oneshot::Sender<Ready>>,
    /// The model that it loads now.
    loading: Option<ModelNumber>,
    /// Starts in a row that came to nothing.
    failures: u32,
    /// Ends in a row of workers that did not live long.
    deaths: u32,
    /// Why it is not up.
    trouble: Option<String>,
}

#[derive(Debug)]
struct Model {
    name: String,
    version: Option<String>,
    frame: Outgoing,
    /// How long a call may run; nothing is for ever.
    limit: Option<Duration>,
    /// Requests that a worker answers before it takes calls.
    samples: Arc<[Outgoing]>,
    on: BTreeMap<usize, On>,
    /// It has been loaded by every worker once, so that a failure from now on is the worker's.
    established: bool,
    ready: Arc<AtomicUsize>,
    changed: watch::Sender<()>,
}

/// What a model is on one worker.
#[derive(Debug)]
enum On {
    /// Workers have died this often while they loaded it here.
    Wanted {
        deaths: u32,
    },
    Loaded(Loaded),
    Failed(PythonLoadError),
}

/// A call, as the pool keeps it.
#[derive(Debug)]
struct Call {
    frame: Outgoing,
    reply: Reply,
    place: Arc<Place>,
    progress: Arc<dyn Progress>,
}

#[derive(Debug)]
enum Reply {
    One(oneshot::Sender<Result<Frame, CallError>>),
    /// Bounded by the credit that the reader gives.
    Many(mpsc::UnboundedSender<Result<Frame, CallError>>),
}

/// Where a call is; written under the pool's lock.
#[derive(Debug, Default)]
struct Place {
    worker: AtomicUsize,
    /// 0 while it waits.
    id: AtomicU64,
}

/// A call that somebody waits for; dropping it cancels the call.
#[derive(Debug)]
pub(super) struct OpenCall {
    pool: Arc<Pool>,
    place: Arc<Place>,
    over: bool,
}

/// A model to be loaded.
#[derive(Debug)]
pub(super) struct WantedModel<'a> {
    pub(super) name: &'a str,
    pub(super) version: Option<&'a str>,
    /// As `model-settings.json` would have them, resolved.
    pub(super) settings: &'a Value,
    /// The path of that file.
    pub(super) source: Option<&'a str>,
    /// How long a call may run before its worker is replaced; nothing is for ever.
    pub(super) limit: Option<Duration>,
    /// Requests that every worker answers before it takes calls.
    pub(super) samples: &'a [InferenceRequest],
}

/// A model that every worker it was meant for has loaded.
#[derive(Debug)]
pub(super) struct AddedModel {
    pub(super) number: ModelNumber,
    pub(super) loaded: Loaded,
    /// On how many workers it can be called now.
    pub(super) ready: Arc<AtomicUsize>,
}

/// Why a worker's session is over.
enum Over {
    Connection(Ended),
    Exited,
    Decided(How),
    /// The pool is being stopped, and the worker's time is over.
    Stopped,
}

impl Pool {
    /// Makes a pool whose workers start now.
    pub(super) fn start(options: Options) -> Arc<Self> {
        let size = options.size.max(1);
        let pool = Arc::new(Self {
            state: Mutex::new(State {
                dispatch: Dispatch::new(size),
                links: std::iter::repeat_with(Link::default).take(size).collect(),
                models: BTreeMap::new(),
                next_model: 0,
                closed: false,
            }),
            wake: std::iter::repeat_with(Notify::new).take(size).collect(),
            stop: CancellationToken::new(),
            keepers: Mutex::new(JoinSet::new()),
            options,
        });
        for worker in 0..size {
            let keeper = Arc::clone(&pool).keep(worker);
            pool.keepers.lock().spawn(keeper);
        }
        pool
    }

    fn worker_name(&self, worker: usize) -> String {
        format!("{}-{worker}", self.options.name)
    }

    /// Returns how many workers the pool has.
    pub(super) const fn size(&self) -> usize {
        self.wake.len()
    }

    /// Tells whether the pool takes no further models.
    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    // Models

    /// Loads a model on `workers` of the workers (on all when there are fewer), those with the fewest models.
    ///
    /// # Errors
    ///
    /// Fails when one of them cannot load it; no worker keeps it then.
    pub(super) async fn add(
        self: &Arc<Self>,
        wanted: WantedModel<'_>,
        workers: usize,
    ) -> Result<AddedModel, PythonLoadError> {
        let WantedModel { name, version, settings, source, limit, samples } = wanted;
        let (number, mut changed) = {
            let mut state = self.state.lock();
            if state.closed {
                return Err(PythonLoadError::Stopping);
            }
            state.next_model += 1;
            let number = state.next_model;
            let load = Load { model: number, settings, source };
            let frame = Outgoing::new(Kind::Load, message::head(&load))?;
            let samples = samples.iter().map(|sample| message::request(Kind::Predict, Some(number), sample));
            let samples = samples.collect::<Result<_, _>>()?;
            let mut places: Vec<usize> = (0..state.links.len()).collect();
            let models = |worker| state.models.values().filter(|model| model.on.contains_key(&worker)).count();
            places.sort_by_key(|&worker| models(worker));
            places.truncate(workers.max(1));
            let (sender, changed) = watch::channel(());
            state.models.insert(
                number,
                Model {
                    name: name.to_owned(),
                    version: version.map(str::to_owned),
                    frame,
                    limit,
                    samples,
                    on: places.iter().map(|&worker| (worker, On::Wanted { deaths: 0 })).collect(),
                    established: false,
                    ready: Arc::default(),
                    changed: sender,
                },
            );
            for &worker in &places {
                self.wake[worker].notify_one();
            }
            (number, changed)
        };
        // Whoever gives up waiting leaves no model behind.
        let guard = Removal { pool: self, number: Some(number) };
        loop {
            if let Some(outcome) = self.outcome(number) {
                let added = outcome?;
                guard.disarm();
                return Ok(added);
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = self.stop.cancelled() => return Err(PythonLoadError::Stopping),
            }
        }
    }

    /// Returns what became of a model that is being added, once that is known.
    fn outcome(&self, number: ModelNumber) -> Option<Result<AddedModel, PythonLoadError>> {
        let mut state = self.state.lock();
        let model = state.models.get_mut(&number)?;
        let mut last = None;
        for on in model.on.values_mut() {
            match on {
                On::Wanted { .. } => return None,
                On::Loaded(loaded) => last = Some(loaded.clone()),
                On::Failed(error) => return Some(Err(std::mem::replace(error, PythonLoadError::Stopping))),
            }
        }
        model.established = true;
        let (loaded, ready) = (last?, Arc::clone(&model.ready));
        Some(Ok(AddedModel { number, loaded, ready }))
    }

    /// Takes a model away from every worker, and ends the pool when it was the last.
    pub(super) fn remove(&self, number: ModelNumber) {
        let mut state = self.state.lock();
        let Some(model) = state.models.remove(&number) else { return };
        model.ready.store(0, Ordering::Release);
        for worker in model.on.into_keys() {
            state.dispatch.remove_model(worker, number);
            if state.links[worker].mailbox.is_some() {
                // Nobody waits for the answer; a worker that has gone needs no unload.
                let (reply, _) = oneshot::channel();
                state.send_to(worker, message::unload(number), reply);
            }
        }
        if state.models.is_empty() {
            state.closed = true;
            drop(state);
            self.stop.cancel();
        }
    }

    /// Says why a model cannot be called on any worker.
    pub(super) fn trouble(&self, number: ModelNumber) -> String {
        let state = self.state.lock();
        let Some(model) = state.models.get(&number) else { return "the model has been unloaded".to_owned() };
        let troubles = model.on.keys().filter_map(|&worker| state.links[worker].trouble.as_deref());
        let failed = model.on.values().filter_map(|on| match on {
            On::Failed(error) => Some(error.to_string()),
            On::Wanted { .. } | On::Loaded(_) => None,
        });
        let mut reasons: Vec<String> = troubles.map(str::to_owned).chain(failed).collect();
        reasons.dedup();
        if reasons.is_empty() { "its worker is starting".to_owned() } else { reasons.join("; ") }
    }

    // Calls

    /// Sends a call whose answer is one frame.
    ///
    /// # Errors
    ///
    /// Fails when no worker can run it, or the one that ran it ended. Dropping the future cancels the call.
    pub(super) async fn call(
        self: &Arc<Self>,
        purpose: Purpose,
        frame: Outgoing,
        progress: Arc<dyn Progress>,
    ) -> Result<Frame, CallError> {
        let (reply, answer) = oneshot::channel();
        let mut open = self.submit(purpose, (frame, Reply::One(reply)), progress)?;
        let answer = answer.await.unwrap_or(Err(CallError::Stopping));
        open.over = true;
        answer
    }

    /// Sends a call whose answers are many frames, the last of which is an `end` or an `error`.
    pub(super) fn open(
        self: &Arc<Self>,
        model: ModelNumber,
        priority: Priority,
        frame: Outgoing,
    ) -> Result<(OpenCall, mpsc::UnboundedReceiver<Result<Frame, CallError>>), CallError> {
        let (reply, answers) = mpsc::unbounded_channel();
        let purpose = Purpose { model, lane: Lane::Loop, priority };
        Ok((self.submit(purpose, (frame, Reply::Many(reply)), Arc::new(()))?, answers))
    }

    fn submit(
        self: &Arc<Self>,
        purpose: Purpose,
        (frame, reply): (Outgoing, Reply),
        progress: Arc<dyn Progress>,
    ) -> Result<OpenCall, CallError> {
        let place = Arc::<Place>::default();
        let call = Call { frame, reply, place: Arc::clone(&place), progress };
        let mut state = self.state.lock();
        if state.closed {
            return Err(CallError::Stopping);
        }
        if state.is_hopeless(purpose.model) {
            drop(state);
            return Err(CallError::NoWorker { reason: self.trouble(purpose.model) });
        }
        let sent = state.dispatch.submit(purpose, call, Instant::now());
        self.options.metrics.observe_queue(state.open_calls());
        if let Some(sent) = sent {
            state.send(sent);
        }
        drop(state);
        Ok(OpenCall { pool: Arc::clone(self), place, over: false })
    }

    /// Has the first worker send `payload` back from its loop.
    pub(super) async fn ping(&self, payload: Bytes) -> Option<Bytes> {
        let frame = Outgoing::with_tail(Kind::Ping, Bytes::new(), vec![payload]).ok()?;
        let (reply, answer) = oneshot::channel();
        self.state.lock().send_to(0, frame, reply);
        answer.await.ok()?.ok().map(|frame| frame.tail)
    }

    /// Takes a frame from a worker.
    fn receive(&self, worker: usize, frame: Frame) {
        let now = Instant::now();
        match frame.kind {
            Kind::Metrics => match frame.read::<Metrics>() {
                Ok(metrics) => self.options.metrics.observe(metrics.observed),
                Err(error) => error!("{}: {error}", self.worker_name(worker)),
            },
            Kind::Ready => {
                let ready = self.state.lock().links[worker].ready.take();
                if let (Some(sender), Ok(ready)) = (ready, frame.read()) {
                    // Fails only when the keeper has given up.
                    let _ = sender.send(ready);
                }
            }
            Kind::Yielded => {
                let mut state = self.state.lock();
                state.dispatch.yielded(worker, frame.id, now);
                state.pump(worker, now);
            }
            _ => {
                let mut state = self.state.lock();
                let ends = match state.dispatch.open(worker, frame.id) {
                    Some(Call { reply: Reply::Many(answers), .. }) => {
                        if matches!(frame.kind, Kind::End | Kind::Error) {
                            true
                        } else {
                            // Fails only when the reader has gone; its cancellation is under way.
                            let _ = answers.send(Ok(frame));
                            return;
                        }
                    }
                    Some(_) => true,
                    None => false,
                };
                if !ends {
                    return;
                }
                let call = state.dispatch.finish(worker, frame.id, now);
                state.pump(worker, now);
                drop(state);
                if let Some(call) = call {
                    call.reply.send(Ok(frame));
                }
            }
        }
    }

    // Workers

    /// Keeps a worker alive until the pool ends.
    async fn keep(self: Arc<Self>, worker: usize) {
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
            let supervision = pin!(self.supervise(worker, name, is_ready, measure));
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
        self.state.lock().links[worker].mailbox = None;
        let death = process.end(name, memory.load(Ordering::Relaxed), decided).await;
        self.release(worker, &process, &death);
        self.options.metrics.forget_worker(name);
        Ok(death)
    }

    /// Lets a worker load what it should, and watches it.
    async fn supervise(
        &self,
        worker: usize,
        name: &str,
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
        self.state.lock().dispatch.up(worker);
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

    /// Ends all workers: their open calls first, as far as time allows.
    pub(super) async fn end(&self) {
        self.state.lock().closed = true;
        self.stop.cancel();
        let mut keepers = std::mem::take(&mut *self.keepers.lock());
        while keepers.join_next().await.is_some() {}
    }
}

fn log_death(name: &str, death: &Death, models: &[&str]) {
    let (models, lines) = (models.join(", "), death.last_lines.join("\n"));
    let (out_of_memory, resident_bytes, pid) = (death.out_of_memory, death.resident, death.pid);
    warn!(worker = name, models, pid, out_of_memory, resident_bytes, last_lines = lines, "A worker {}.", death.how);
}

impl State {
    fn open_calls(&self) -> usize {
        (0..self.links.len()).map(|worker| self.dispatch.open_calls(worker)).sum::<usize>() + self.dispatch.waiting()
    }

    /// Hands a call that has its place to the connection.
    fn send(&self, sent: Sent) {
        let Some(call) = self.dispatch.open(sent.worker, sent.id) else { return };
        call.place.worker.store(sent.worker, Ordering::Relaxed);
        call.place.id.store(sent.id, Ordering::Relaxed);
        call.progress.begin();
        if let Some(mailbox) = &self.links[sent.worker].mailbox {
            // Fails only when the connection has ended, and then the call's end is under way.
            let _ = mailbox.send((sent.id, call.frame.clone()));
        }
    }

    /// Sends a call that is no prediction to one worker. The reply is dropped when it cannot be sent.
    fn send_to(&mut self, worker: usize, frame: Outgoing, reply: oneshot::Sender<Result<Frame, CallError>>) {
        let call = Call { frame, reply: Reply::One(reply), place: Arc::default(), progress: Arc::new(()) };
        if let Ok(sent) = self.dispatch.submit_to(worker, call, Instant::now()) {
            self.send(sent);
        }
    }

    /// Sends what waits for this worker and can run now.
    fn pump(&mut self, worker: usize, now: Instant) {
        while let Some(sent) = self.dispatch.next(worker, now) {
            self.send(sent);
        }
    }

    /// Tells whether calls for a model would wait for a worker that does not start.
    fn is_hopeless(&self, number: ModelNumber) -> bool {
        self.models.get(&number).is_none_or(|model| {
            model.ready.load(Ordering::Acquire) == 0
                && model
                    .on
                    .iter()
                    .all(|(&worker, on)| matches!(on, On::Failed(_)) || self.links[worker].failures >= HOPELESS)
        })
    }

    fn take_hopeless(&mut self) -> Vec<Call> {
        let hopeless: Vec<ModelNumber> =
            self.models.keys().copied().filter(|&number| self.is_hopeless(number)).collect();
        self.dispatch.take_waiting(|model, _| hopeless.contains(&model))
    }
}

impl Reply {
    fn send(self, outcome: Result<Frame, CallError>) {
        // Fails only when nobody waits any more.
        match self {
            Self::One(reply) => drop(reply.send(outcome)),
            Self::Many(replies) => drop(replies.send(outcome)),
        }
    }
}

impl OpenCall {
    /// Sends a further frame of a stream to where the stream is. Does nothing once that has ended.
    pub(super) fn send(&self, frame: Outgoing) {
        let state = self.pool.state.lock();
        let (worker, id) = (self.place.worker.load(Ordering::Relaxed), self.place.id.load(Ordering::Relaxed));
        if state.dispatch.open(worker, id).is_some()
            && let Some(mailbox) = &state.links[worker].mailbox
        {
            let _ = mailbox.send((id, frame));
        }
    }

    /// Notes that the call has ended, so that there is nothing to cancel.
    pub(super) fn end(&mut self) {
        self.over = true;
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut state = self.pool.state.lock();
        let (worker, id) = (self.place.worker.load(Ordering::Relaxed), self.place.id.load(Ordering::Relaxed));
        if id == 0 {
            let taken = state.dispatch.take_waiting(|_, call| Arc::ptr_eq(&call.place, &self.place));
            drop(state);
            drop(taken);
        } else if state.dispatch.open(worker, id).is_some()
            && let Some(mailbox) = &state.links[worker].mailbox
        {
            let _ = mailbox.send((id, Outgoing::bare(Kind::Cancel)));
        }
    }
}

/// Takes a model away again unless it is disarmed.
struct Removal<'a> {
    pool: &'a Pool,
    number: Option<ModelNumber>,
}

impl Removal<'_> {
    fn disarm(mut self) {
        self.number = None;
    }
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.pool.remove(number);
        }
    }
}
