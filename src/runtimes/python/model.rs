//! A Python model as a runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use serde_json::{Map, Value, json};
use tracing::{error, warn};

use super::dispatch::{Lane, ModelNumber, Purpose};
use super::frame::{Frame, Kind};
use super::message::{self, Failure, FailureKind, Handler};
use super::pool::{AddedModel, Pool, WantedModel};
use super::stream::Answers;
use super::{CallError, PythonLoadError};
use crate::runtimes::{
    BoxFuture, Description, Progress, RequestStream, ResponseStream, Runtime, RuntimeError, RuntimeErrorKind,
    RuntimeStatus, answer_first, ready,
};
use crate::settings::ModelSettings;
use crate::types::json::read_request;
use crate::types::{CustomCall, CustomReply, CustomRoute, InferenceRequest, InferenceResponse, PathTemplate, Priority};

/// A model that the workers of a pool have loaded. Dropping it unloads it.
#[derive(Debug)]
pub(super) struct PythonModel {
    name: String,
    version: Option<String>,
    pub(super) pool: Arc<Pool>,
    pub(super) number: ModelNumber,
    /// Where `predict` runs.
    lane: Lane,
    /// It has a way of its own to answer streams.
    streams: bool,
    description: Description,
    /// The handler behind each route of the description.
    handlers: Vec<Handler>,
    /// What its `load` returned.
    loaded: bool,
    /// On how many workers it can be called now.
    ready: Arc<AtomicUsize>,
}

/// Loads a model in `pool`.
pub(super) async fn load(
    pool: &Arc<Pool>,
    settings: &ModelSettings,
    not_native: Option<&str>,
) -> Result<Arc<dyn Runtime>, PythonLoadError> {
    let source = settings.source.as_deref().map(|path| path.to_string_lossy());
    let (name, version) = (settings.name.as_str(), settings.version());
    let limit = settings.parameters.predict_timeout;
    let samples = samples(settings)?;
    let wanted = settings.parameters.workers.unwrap_or(pool.size());
    if wanted > pool.size() {
        warn!(model = name, version, "`workers` is {wanted}, but its pool has {} (`parallel_workers`).", pool.size());
    }
    let settings = settings_value(settings);
    let source = source.as_deref();
    let model = WantedModel { name, version, settings: &settings, source, limit, samples: &samples };
    let added = pool.add(model, wanted).await?;
    let AddedModel { number, mut loaded, ready } = added;
    if let Some(reason) = not_native {
        loaded.metadata.parameters.others.insert("backend_reason".to_owned(), reason.into());
    }
    let mut model = PythonModel {
        name: name.to_owned(),
        version: version.map(str::to_owned),
        pool: Arc::clone(pool),
        number,
        lane: if loaded.plain { Lane::Thread(number) } else { Lane::Loop },
        streams: loaded.streams,
        description: Description {
            backend: "python",
            reads_headers: true,
            answers_warmup: true,
            metadata: Some(loaded.metadata),
            routes: Vec::new(),
        },
        handlers: loaded.handlers,
        loaded: loaded.ready,
        ready,
    };
    // From here on the model is unloaded when it is dropped, also when a route of it is wrong.
    model.description.routes = model.handlers.iter().map(route).collect::<Result<_, _>>()?;
    Ok(Arc::new(model))
}

fn route(handler: &Handler) -> Result<CustomRoute, PythonLoadError> {
    let Handler { name, path, method, .. } = handler;
    let wrong = |reason: String| PythonLoadError::Route { handler: name.clone(), path: path.clone(), reason };
    let template = PathTemplate::new(path).map_err(|error| wrong(error.to_string()))?;
    let method = Method::from_bytes(method.as_bytes()).map_err(|_| wrong(format!("`{method}` is no HTTP method")))?;
    Ok(CustomRoute { method, template })
}

/// Reads the requests of the setting `warmup`.
fn samples(settings: &ModelSettings) -> Result<Vec<InferenceRequest>, PythonLoadError> {
    let read = |(index, sample): (usize, &Value)| {
        let read = read_request(sample.to_string().as_bytes(), None);
        let unreadable = |error| format!("the sample is not a valid inference request: {error}");
        read.map(|incoming| incoming.request)
            .map_err(|error| PythonLoadError::Sample { index, reason: unreadable(error) })
    };
    settings.warmup.iter().enumerate().map(read).collect()
}

/// Returns the group of models that share a pool, when the model names one or wants one of its own.
pub(super) fn group(settings: &ModelSettings) -> Option<String> {
    let parameters = &settings.parameters;
    let own = || parameters.autogenerate_inference_pool_gid.then(|| uuid::Uuid::new_v4().to_string());
    parameters.inference_pool_gid.clone().or_else(own)
}

/// Returns the resolved settings as `model-settings.json` would have them.
fn settings_value(settings: &ModelSettings) -> Value {
    let tensors = |tensors: &[crate::settings::TensorMetadata]| -> Vec<Value> {
        tensors
            .iter()
            .map(|tensor| {
                json!({
                    "name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape,
                    "parameters": tensor.parameters,
                })
            })
            .collect()
    };
    let parameters = &settings.parameters;
    let path = |path: &Option<std::path::PathBuf>| path.as_ref().map(|path| path.to_string_lossy().into_owned());
    let mut known: Map<String, Value> = parameters.extras.clone();
    let fields = json!({
        "uri": parameters.uri,
        "version": parameters.version,
        "content_type": parameters.content_type,
        "format": parameters.format,
        "environment_tarball": path(&parameters.environment_tarball),
        "environment_path": path(&parameters.environment_path),
        "inference_pool_gid": parameters.inference_pool_gid,
        "extra": parameters.extra,
    });
    if let Value::Object(fields) = fields {
        known.extend(fields);
    }
    json!({
        "name": settings.name,
        "implementation": settings.implementation,
        "platform": settings.platform,
        "versions": settings.versions,
        "inputs": tensors(&settings.inputs),
        "outputs": tensors(&settings.outputs),
        "max_batch_size": settings.max_batch_size,
        "max_batch_time": settings.max_batch_time.as_secs_f64(),
        "parameters": known,
        "cache_enabled": settings.cache_enabled,
        "parallel_workers": settings.parallel_workers,
        "warm_workers": settings.warm_workers,
    })
}

impl PythonModel {
    pub(super) fn check_ready(&self) -> Result<(), RuntimeError> {
        if self.loaded {
            return Ok(());
        }
        let version = self.version.as_deref().map(|version| format!(" with version {version}")).unwrap_or_default();
        Err(RuntimeError::new(RuntimeErrorKind::NotReady, format!("Model {}{version} is not ready yet.", self.name)))
    }

    /// Tells an answer from a failure, whose traceback goes to the log.
    pub(super) fn outcome(&self, request: &str, frame: Frame) -> Result<Frame, RuntimeError> {
        if frame.kind != Kind::Error {
            return Ok(frame);
        }
        let failure: Failure = frame.read().map_err(inconsistent)?;
        let Failure { kind, message, status, traceback } = failure;
        if kind != FailureKind::Mlserver && !traceback.is_empty() {
            let (model, version) = (self.name.as_str(), self.version.as_deref());
            error!(model, version, request_id = request, "The model's code failed.\n{}", traceback.trim_end());
        }
        Err(match kind {
            FailureKind::Mlserver => RuntimeError::rejected(status, message),
            FailureKind::Model => RuntimeError::exception(message),
            FailureKind::Cancelled | FailureKind::Request => RuntimeError::inconsistent(message),
        })
    }
}

impl Runtime for PythonModel {
    fn description(&self) -> &Description {
        &self.description
    }

    fn status(&self) -> RuntimeStatus {
        if !self.loaded {
            RuntimeStatus::Unavailable { reason: "its `load` returned false".to_owned() }
        } else if self.ready.load(Ordering::Acquire) == 0 {
            RuntimeStatus::Unavailable { reason: self.pool.trouble(self.number) }
        } else {
            RuntimeStatus::AVAILABLE
        }
    }

    /// As many as there are workers: one runs one piece of Python at a time.
    fn parallelism(&self) -> usize {
        self.ready.load(Ordering::Acquire).max(1)
    }

    /// Workers warm up by themselves: see [`Description::answers_warmup`].
    fn warm_up(&self) -> BoxFuture<'_, Result<(), RuntimeError>> {
        ready(Ok(()))
    }

    fn predict(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
        Box::pin(async move {
            self.check_ready()?;
            let frame = message::request(Kind::Predict, Some(self.number), &request).map_err(inconsistent)?;
            let (id, priority) = (request.id, request.priority);
            drop(request.inputs);
            let purpose = Purpose { model: self.number, lane: self.lane, priority };
            let frame = self.pool.call(purpose, frame, progress).await?;
            let frame = self.outcome(&id, frame)?;
            message::response(&frame).map_err(inconsistent)
        })
    }

    fn predict_stream(self: Arc<Self>, requests: RequestStream) -> ResponseStream {
        if self.streams { Answers::of(self, requests) } else { answer_first(self, requests) }
    }

    fn call(&self, route: usize, call: CustomCall) -> BoxFuture<'_, Result<CustomReply, RuntimeError>> {
        Box::pin(async move {
            self.check_ready()?;
            let handler = self.handlers.get(route).ok_or_else(|| RuntimeError::no_route(route))?;
            let id = call.headers.get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
            let frame = message::call(self.number, &handler.name, call).map_err(inconsistent)?;
            let lane = if handler.plain { Lane::Thread(self.number) } else { Lane::Loop };
            let purpose = Purpose { model: self.number, lane, priority: Priority::default() };
            let frame = self.pool.call(purpose, frame, Arc::new(())).await?;
            let frame = self.outcome(&id, frame)?;
            // A status or header that HTTP does not have is the model's.
            message::reply(&frame).map_err(|error| RuntimeError::exception(error.to_string()))
        })
    }
}

/// Takes a frame that cannot be written or read for what it is: our bug.
pub(super) fn inconsistent(error: impl std::error::Error + Send + Sync + 'static) -> RuntimeError {
    RuntimeError::inconsistent(error)
}

impl Drop for PythonModel {
    fn drop(&mut self) {
        self.pool.remove(self.number);
    }
}

impl From<CallError> for RuntimeError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Lost(death) => Self::new(RuntimeErrorKind::WorkerLost, format!("the request was lost: {death}")),
            CallError::NoWorker { reason } => {
                Self::new(RuntimeErrorKind::Unavailable, format!("no worker of the model runs: {reason}"))
            }
            CallError::Stopping => Self::stopping(),
        }
    }
}
