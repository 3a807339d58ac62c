//! The models and open calls of `mlserver score`.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use futures_util::future;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::MAX_THREADS;
use super::located::{LocatedModel, ModelLocation, ModelOpener, PredictionFailure};
use super::messages::{self, AnswerError, Load, RouteCall, Unload};
use super::pieces;
use super::request::ReceivedRequest;
use crate::compute::{COMPUTATIONS, ComputePool};
use crate::families::NativeEvaluator;
use crate::runtimes::native::CancelOnDrop;
use crate::runtimes::workers::frame::{Frame, FrameError, FrameKind, OutgoingFrame, PAGE_BYTES, SLOTS};
use crate::runtimes::workers::memory_file::{AnswerRegion, MemoryError, MemoryFile, Region};
use crate::runtimes::workers::message::FailureKind;
use crate::runtimes::{
    Implementation, LoadError, ModelMemory, Progress, Runtime, RuntimeError, Steps, load_native, load_onnx_in_worker,
};
use crate::settings::{ModelSettings, SettingsSources};
use crate::types::{InferenceRequest, InferenceResponse, Priority, TokenUsage, TraceContext};

/// The frame that ends a call.
type FinalFrame = Result<OutgoingFrame, FrameError>;

/// What the calls of a worker use.
#[derive(Debug)]
pub(super) struct CallOptions {
    /// Where calls that have begun are recorded, if the parent wants to know.
    pub(super) page: Option<File>,
    /// Where the parent puts tensors, if it shares memory.
    pub(super) memory: Option<MemoryFile>,
    pub(super) compute: ComputePool,
    pub(super) opener: Arc<dyn ModelOpener>,
}

/// A loaded model.
#[derive(Debug, Clone)]
enum ScoredModel {
    /// A native one, whose settings the parent has sent.
    Native(Arc<dyn Runtime>),
    /// Any, which was opened at its location.
    Located(Arc<dyn LocatedModel>),
}

/// The models and open calls.
#[derive(Debug)]
pub(super) struct Calls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Frames for the parent. `None` once the last one has been sent.
    mailbox: Mutex<Option<UnboundedSender<(u64, OutgoingFrame)>>>,
    /// Where calls that have begun are recorded, if the parent wants to know.
    page: Option<Arc<File>>,
    memory: Option<Arc<MemoryFile>>,
    compute: ComputePool,
    opener: Arc<dyn ModelOpener>,
    models: Mutex<HashMap<u64, ScoredModel>>,
    /// The calls whose final frames have not been sent.
    open: Mutex<BTreeMap<u64, CancellationToken>>,
    /// Ends with the last open call.
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Calls {
    pub(super) fn new(mailbox: UnboundedSender<(u64, OutgoingFrame)>, options: CallOptions) -> Self {
        let CallOptions { page, memory, compute, opener } = options;
        Self(Arc::new(Shared {
            mailbox: Mutex::new(Some(mailbox)),
            page: page.map(Arc::new),
            memory: memory.map(Arc::new),
            compute,
            opener,
            models: Mutex::default(),
            open: Mutex::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Closes the mailbox once the parent has said `stop` and the last call has ended. The connection ends when it is empty.
    pub(super) async fn stop(&self) {
        self.0.stop.cancelled().await;
        self.0.tasks.close();
        self.0.tasks.wait().await;
        let models = std::mem::take(&mut *self.0.models.lock());
        future::join_all(models.into_values().map(ScoredModel::close)).await;
        self.0.mailbox.lock().take();
    }

    /// Handles a frame of the parent. Frames of kinds that native workers have no use for are ignored.
    pub(super) fn receive(&self, frame: Frame) {
        let shared = &self.0;
        match frame.kind {
            FrameKind::Stop => shared.stop.cancel(),
            FrameKind::Cancel => {
                if let Some(cancel) = shared.open.lock().get(&frame.id) {
                    cancel.cancel();
                }
            }
            FrameKind::Ping => {
                let open = shared.open.lock().keys().copied().collect();
                shared.send(frame.id, messages::pong_frame(open, frame.tail));
            }
            FrameKind::Scrape => shared.send(0, messages::exposition_frame()),
            FrameKind::Unload => {
                let removed = frame.read_head().ok().and_then(|Unload { model }| shared.models.lock().remove(&model));
                self.open(frame.id, async {
                    if let Some(removed) = removed {
                        removed.close().await;
                    }
                    Ok(OutgoingFrame::empty(FrameKind::Done))
                });
            }
            FrameKind::Load => self.open(frame.id, {
                let shared = Arc::clone(shared);
                async move { shared.load(&frame).await }
            }),
            FrameKind::Predict => self.open(frame.id, {
                let shared = Arc::clone(shared);
                async move { shared.predict(&frame).await }
            }),
            FrameKind::Call => self.open(frame.id, {
                let shared = Arc::clone(shared);
                async move { shared.call(&frame).await }
            }),
            _ => {}
        }
    }

    /// Runs a call, and sends its final frame once it has ended. A cancelled call has ended when its computation has.
    fn open(&self, id: u64, work: impl Future<Output = FinalFrame> + Send + 'static) {
        let (shared, cancel) = (Arc::clone(&self.0), CancellationToken::new());
        {
            let mut open = shared.open.lock();
            if open.len() >= SLOTS {
                drop(open);
                return shared.send(id, Ok(invalid(&format!("{SLOTS} calls are open already: wait for an answer"))));
            }
            open.insert(id, cancel.clone());
        }
        let computations = TaskTracker::new();
        let work = COMPUTATIONS.scope(computations.token(), work);
        self.0.tasks.spawn(async move {
            let ended = tokio::select! {
                biased;
                frame = work => frame,
                () = cancel.cancelled() => Ok(messages::error_frame(FailureKind::Cancelled, 500, "the call was cancelled")),
            };
            computations.close();
            computations.wait().await;
            shared.open.lock().remove(&id);
            shared.send(id, ended);
        });
    }
}

impl Shared {
    /// Sends a frame to the parent.
    fn send(&self, id: u64, frame: FinalFrame) {
        let frame = frame.unwrap_or_else(|error| messages::error_frame(FailureKind::Model, 500, &error.to_string()));
        // Fails only if the connection has ended, and then the process does.
        if let Some(mailbox) = &*self.mailbox.lock() {
            let _ = mailbox.send((id, frame));
        }
    }

    fn model(&self, number: u64) -> Option<ScoredModel> {
        self.models.lock().get(&number).cloned()
    }

    async fn load(&self, frame: &Frame) -> FinalFrame {
        let mut load: Load = match frame.read_head() {
            Ok(load) => load,
            Err(error) => return Ok(invalid(&error.to_string())),
        };
        let number = load.model;
        let (model, loaded) = match load.location.take() {
            Some(location) => {
                let location = ModelLocation { location, name: load.name, version: load.version };
                match self.opener.open(location, self.compute.clone()).await {
                    Ok(model) => {
                        let loaded = messages::located_frame(model.description())?;
                        (ScoredModel::Located(model), loaded)
                    }
                    Err(reason) => return Ok(messages::error_frame(FailureKind::Model, 500, &reason)),
                }
            }
            None => match self.load_settings(load).await {
                Ok(runtime) => {
                    let loaded = messages::loaded_frame(runtime.description(), self.compute.width())?;
                    (ScoredModel::Native(runtime), loaded)
                }
                Err(failure) => return Ok(failure),
            },
        };
        let replaced = self.models.lock().insert(number, model);
        if let Some(replaced) = replaced {
            replaced.close().await;
        }
        Ok(loaded)
    }

    /// Loads a native model. Fails with the frame that answers `load`.
    async fn load_settings(&self, load: Load) -> Result<Arc<dyn Runtime>, OutgoingFrame> {
        let compute = self.compute.clone();
        let loaded = self.compute.run(move || read(load, &compute)).await;
        let runtime = loaded.map_err(|error| messages::error_frame(FailureKind::Model, 500, &error.to_string()))??;
        runtime.warm_up().await.map_err(|error| messages::failure_frame(&error))?;
        Ok(runtime)
    }

    async fn predict(&self, frame: &Frame) -> FinalFrame {
        let request = match ReceivedRequest::read(frame) {
            Ok(request) => request,
            Err(error) => return Ok(invalid(&error.to_string())),
        };
        let (number, region) = (request.model(), request.answer());
        let Some(model) = self.model(number) else { return Ok(no_model(number)) };
        if let Err(error) = self.answer_region(region) {
            return Ok(error);
        }
        let progress = self.progress(frame.id);
        if let (ScoredModel::Located(located), Some(memory)) = (&model, &self.memory)
            && located.description().has_independent_rows
            && located.description().splits_rows
            && request.pieces().is_some()
        {
            progress.begin();
            if let Some(response) = self.predict_in_pieces(frame, memory, located).await {
                return self.answer(&response, region);
            }
        }
        let request = match self.read_whole(frame, &request).await {
            Ok(request) => request,
            Err(failure) => return Ok(failure),
        };
        match model.predict(request, progress).await {
            Ok(response) => self.answer(&response, region),
            Err(failure) => Ok(failure),
        }
    }

    /// Answers a long request on a thread that computes. Returns `None` if it must be answered as one.
    async fn predict_in_pieces(
        &self,
        frame: &Frame,
        memory: &Arc<MemoryFile>,
        model: &Arc<dyn LocatedModel>,
    ) -> Option<InferenceResponse> {
        let cancel = CancelOnDrop::default();
        let (stop, handle) = (Arc::clone(&cancel.0), Handle::current());
        let (frame, memory, model) = (frame.clone(), Arc::clone(memory), Arc::clone(model));
        let answer = move || pieces::answer(&frame, &memory, model.as_ref(), &handle, &stop);
        // If it cannot be computed now, the request says why when it is answered as one.
        self.compute.run(answer).await.ok().flatten()
    }

    /// Reads all tensors of a request. Fails with the frame that answers the call.
    async fn read_whole(
        &self,
        frame: &Frame,
        request: &ReceivedRequest<'_>,
    ) -> Result<InferenceRequest, OutgoingFrame> {
        let (frame, memory, copied) = (frame.clone(), self.memory.clone(), request.copied_bytes());
        let read = move || ReceivedRequest::read(&frame).and_then(|request| request.whole(memory.as_deref()));
        match self.compute.run_sized(copied, Priority::default(), read).await {
            Ok(read) => read.map_err(|error| invalid(&error.to_string())),
            Err(error) => Err(messages::error_frame(FailureKind::Model, 500, &error.to_string())),
        }
    }

    /// Creates the frame of a response, of which outputs are written to a region that is checked again.
    fn answer(&self, response: &InferenceResponse, region: Option<Region>) -> FinalFrame {
        let region = match self.answer_region(region) {
            Ok(region) => region,
            Err(error) => return Ok(error),
        };
        match messages::answer_frame(response, region) {
            Err(AnswerError::Memory(error)) => Ok(invalid(&error.to_string())),
            Err(AnswerError::Frame(error)) => Err(error),
            Ok(frame) => Ok(frame),
        }
    }

    /// Returns where an answer may be written. Fails with the frame that answers the call.
    fn answer_region(&self, region: Option<Region>) -> Result<Option<AnswerRegion<'_>>, OutgoingFrame> {
        let Some(region) = region else { return Ok(None) };
        let found = self.memory.as_ref().ok_or(MemoryError::NoFile);
        let found = found.and_then(|memory| AnswerRegion::new(memory, region));
        found.map(Some).map_err(|error| invalid(&format!("cannot write the answer: {error}")))
    }

    async fn call(&self, frame: &Frame) -> FinalFrame {
        let (number, route, call) = match messages::read_call(frame) {
            Ok(Some(RouteCall { model, route, call })) => (model, route, call),
            Ok(None) => return Ok(invalid("the call names no route")),
            Err(error) => return Ok(invalid(&error.to_string())),
        };
        let Some(model) = self.model(number) else { return Ok(no_model(number)) };
        // A model at a location has no routes in its `loaded` frame.
        let ScoredModel::Native(runtime) = model else { return Ok(invalid("the model has no routes")) };
        let outcome = match runtime.call(route, call, self.progress(frame.id)).await {
            Ok(reply) => reply.whole(|_| Ok(())).await,
            Err(error) => Err(error),
        };
        outcome.map_or_else(|error| Ok(messages::failure_frame(&error)), messages::reply_frame)
    }

    fn progress(&self, id: u64) -> Arc<dyn Progress> {
        Arc::new(CallProgress { page: self.page.as_ref().map(Arc::clone), id })
    }
}

impl ScoredModel {
    /// Answers a request. Fails with the frame that answers the call.
    async fn predict(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> Result<InferenceResponse, OutgoingFrame> {
        let rule = match self {
            Self::Native(runtime) => runtime.description().tensor_rule,
            Self::Located(model) => model.description().tensor_rule,
        };
        // The parent may have checked them, too, but this process does not depend on it.
        let checked = rule.check(&request.inputs).map_err(RuntimeError::invalid_request);
        checked.map_err(|error| messages::failure_frame(&error))?;
        match self {
            Self::Native(runtime) => {
                let outcome = runtime.predict(request, progress).await;
                outcome.map_err(|error| messages::failure_frame(&error))
            }
            Self::Located(model) => {
                progress.begin();
                let outcome = model.predict(request).await;
                outcome
                    .map_err(|PredictionFailure { kind, message }| messages::prediction_failure_frame(kind, &message))
            }
        }
    }

    async fn close(self) {
        match self {
            Self::Native(_) => {}
            Self::Located(model) => model.close().await,
        }
    }
}

/// Reads a model. Fails with the frame that answers `load`.
fn read(load: Load, compute: &ComputePool) -> Result<Arc<dyn Runtime>, OutgoingFrame> {
    let Load { settings, source, artifact, .. } = load;
    let sources = SettingsSources::empty();
    let loaded = ModelSettings::from_repository(settings, source.map(Into::into), &sources, false);
    let settings = loaded.map_err(|error| invalid(&error.to_string()))?.settings;
    let refused = |error: LoadError| messages::load_failure_frame(&error);
    let Implementation::Native(evaluator) = Implementation::of(&settings).map_err(refused)? else {
        return Err(refused(LoadError::NotNative { implementation: settings.implementation }));
    };
    let artifact = Path::new(artifact.as_deref().unwrap_or_default());
    let loaded = match evaluator {
        NativeEvaluator::Onnx => load_onnx_in_worker(&settings, artifact, compute, network_threads(&settings, compute)),
        _ => load_native(evaluator, &settings, artifact, compute),
    };
    loaded.map_err(refused)
}

/// Returns how many threads one prediction of a network uses: as onnxruntime would if the settings say it, else all of the worker.
fn network_threads(settings: &ModelSettings, compute: &ComputePool) -> usize {
    let options = settings.parameters.extra.get("session_options");
    let threads = options.and_then(|options| options.get("intra_op_num_threads")?.as_u64());
    let threads = threads.and_then(|threads| usize::try_from(threads).ok()).filter(|threads| *threads > 0);
    threads.map_or(compute.width(), |threads| threads.min(MAX_THREADS))
}

fn invalid(message: &str) -> OutgoingFrame {
    messages::error_frame(FailureKind::Request, 500, message)
}

fn no_model(number: u64) -> OutgoingFrame {
    invalid(&format!("the worker has no model {number}"))
}

/// Records that a call has begun.
#[derive(Debug)]
struct CallProgress {
    page: Option<Arc<File>>,
    id: u64,
}

impl Progress for CallProgress {
    fn begin(&self) {
        if let Some(page) = &self.page {
            let offset = self.id * 8 % PAGE_BYTES as u64;
            // If it cannot be written, the parent may run the call again if this process dies.
            let _ = page.write_all_at(&self.id.to_le_bytes(), offset);
        }
    }

    fn reserve(&self, _bytes: usize) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn yielded(&self) {}

    fn wait_again(&self) {}

    fn joined(&self, _batch: TraceContext) {}

    fn used(&self, _tokens: TokenUsage) {}

    fn steps(&self) -> Option<Arc<dyn Steps>> {
        None
    }

    fn memory(&self) -> Option<Arc<dyn ModelMemory>> {
        None
    }
}
