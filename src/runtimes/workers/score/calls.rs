//! The models and open calls of a native worker.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::MAX_THREADS;
use super::messages::{self, Load, RouteCall, Unload};
use crate::compute::{COMPUTATIONS, ComputePool};
use crate::families::NativeEvaluator;
use crate::runtimes::workers::frame::{Frame, FrameError, FrameKind, OutgoingFrame, PAGE_BYTES};
use crate::runtimes::workers::message::FailureKind;
use crate::runtimes::{
    Implementation, LoadError, ModelMemory, Progress, Runtime, RuntimeError, Steps, load_native, load_onnx_in_worker,
};
use crate::settings::{ModelSettings, SettingsSources};
use crate::types::{TokenUsage, TraceContext};

/// The frame that ends a call.
type FinalFrame = Result<OutgoingFrame, FrameError>;

/// The models and open calls.
#[derive(Debug)]
pub(super) struct Calls(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Frames for the parent. `None` once the last one has been sent.
    mailbox: Mutex<Option<UnboundedSender<(u64, OutgoingFrame)>>>,
    /// Where calls that have begun are recorded, if the parent wants to know.
    page: Option<Arc<File>>,
    compute: ComputePool,
    models: Mutex<HashMap<u64, Arc<dyn Runtime>>>,
    /// The calls whose final frames have not been sent.
    open: Mutex<BTreeMap<u64, CancellationToken>>,
    /// Ends with the last open call.
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Calls {
    pub(super) fn new(
        mailbox: UnboundedSender<(u64, OutgoingFrame)>,
        page: Option<File>,
        compute: ComputePool,
    ) -> Self {
        Self(Arc::new(Shared {
            mailbox: Mutex::new(Some(mailbox)),
            page: page.map(Arc::new),
            compute,
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
                drop(removed);
                shared.send(frame.id, Ok(OutgoingFrame::empty(FrameKind::Done)));
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
        shared.open.lock().insert(id, cancel.clone());
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

    fn model(&self, number: u64) -> Option<Arc<dyn Runtime>> {
        self.models.lock().get(&number).map(Arc::clone)
    }

    async fn load(&self, frame: &Frame) -> FinalFrame {
        let load: Load = match frame.read_head() {
            Ok(load) => load,
            Err(error) => return Ok(invalid(&error.to_string())),
        };
        let (number, compute) = (load.model, self.compute.clone());
        let loaded = self.compute.run(move || read(load, &compute)).await;
        let runtime = match loaded {
            Ok(Ok(runtime)) => runtime,
            Ok(Err(error)) => return Ok(error),
            Err(error) => return Ok(messages::error_frame(FailureKind::Model, 500, &error.to_string())),
        };
        if let Err(error) = runtime.warm_up().await {
            return Ok(messages::failure_frame(&error));
        }
        let loaded = messages::loaded_frame(runtime.description(), self.compute.width())?;
        self.models.lock().insert(number, runtime);
        Ok(loaded)
    }

    async fn predict(&self, frame: &Frame) -> FinalFrame {
        let (number, request) = match messages::read_request(frame) {
            Ok(read) => read,
            Err(error) => return Ok(invalid(&error.to_string())),
        };
        let Some(runtime) = self.model(number) else { return Ok(no_model(number)) };
        // The parent has checked them, too, but this process does not depend on it.
        if let Err(error) = runtime.description().tensor_rule.check(&request.inputs) {
            return Ok(messages::failure_frame(&RuntimeError::invalid_request(error)));
        }
        let outcome = runtime.predict(request, self.progress(frame.id)).await;
        outcome.map_or_else(|error| Ok(messages::failure_frame(&error)), |response| messages::answer_frame(&response))
    }

    async fn call(&self, frame: &Frame) -> FinalFrame {
        let (number, route, call) = match messages::read_call(frame) {
            Ok(Some(RouteCall { model, route, call })) => (model, route, call),
            Ok(None) => return Ok(invalid("the call names no route")),
            Err(error) => return Ok(invalid(&error.to_string())),
        };
        let Some(runtime) = self.model(number) else { return Ok(no_model(number)) };
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
