//! The runtime of a model in workers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Method;
use serde_json::{Map, Value, json};
use tracing::warn;

use super::WorkerLoadError;
use super::answer::{checked, invalid_response, too_long};
use super::dispatch::{CallTarget, ModelNumber};
use super::frame::{FrameKind, OutgoingFrame};
use super::message::{self, HandlerInfo, NativeHead};
use super::pool::{AddedModel, ModelSpec, Pool};
use super::reply::{CHUNKS_AHEAD, HandlerReply};
use super::stream::AnswerStream;
use crate::compute::ComputePool;
use crate::runtimes::{
    Asked, BoxFuture, CallReply, Description, Progress, RequestStream, ResponseStream, Runtime, RuntimeError,
    RuntimeStatus, StepModel, answer_first, ready,
};
use crate::settings::ModelSettings;
use crate::types::json::read_request_with;
use crate::types::{
    CustomCall, CustomRoute, InferenceRequest, InferenceResponse, OpenAiApi, OpenAiHandlers, PathTemplate, Priority,
    RequestErrorKind, TensorMetadata, TensorRule, V1Handlers, V1Verb,
};

/// A model that the workers of a pool have loaded. Dropping it unloads it.
#[derive(Debug)]
pub(super) struct WorkerModel {
    name: String,
    version: Option<String>,
    pub(super) pool: Arc<Pool>,
    pub(super) number: ModelNumber,
    /// Whether `predict` is a plain function.
    plain: bool,
    /// How many calls of `predict` a worker runs at a time.
    threads: usize,
    /// Whether the model implements `predict_stream`.
    streams: bool,
    description: Description,
    /// The handlers of the description's routes, in the same order, and then those of the V1 protocol and OpenAI's API.
    handlers: Vec<HandlerInfo>,
    /// The return value of the model's `load`.
    loaded: bool,
    /// The number of workers on which the model can be called now.
    ready_workers: Arc<AtomicUsize>,
    compute: ComputePool,
}

/// A model to load in workers.
#[derive(Debug, Clone, Copy)]
pub(in crate::runtimes) struct ModelToLoad<'a> {
    pub(in crate::runtimes) settings: &'a ModelSettings,
    /// The file or folder of a model that is evaluated natively.
    pub(in crate::runtimes) artifact: Option<&'a Path>,
    /// Why a model in Python is not evaluated natively, for its metadata.
    pub(in crate::runtimes) not_native: Option<&'a str>,
}

/// Loads a model in `pool`.
pub(super) async fn load(
    pool: &Arc<Pool>,
    model: ModelToLoad<'_>,
    compute: &ComputePool,
) -> Result<Arc<dyn Runtime>, WorkerLoadError> {
    let ModelToLoad { settings, artifact, not_native } = model;
    let artifact = artifact.map(|path| path.to_string_lossy());
    let source = settings.source.as_deref().map(|path| path.to_string_lossy());
    let (name, version) = (settings.name.as_str(), settings.version());
    let predict_timeout = settings.parameters.predict_timeout;
    // Native workers do not warm up by themselves: the server does, with the samples that their models accept.
    let warmup = if artifact.is_some() { Vec::new() } else { warmup_requests(settings)? };
    let workers = settings.parameters.workers.unwrap_or(pool.size());
    if workers > pool.size() {
        warn!(
            model = name,
            version,
            "`workers` is {workers}, but the pool has only {} workers (`parallel_workers`).",
            pool.size()
        );
    }
    let settings = settings_value(settings);
    let (source, artifact) = (source.as_deref(), artifact.as_deref());
    let model = ModelSpec { name, version, settings: &settings, source, artifact, predict_timeout, warmup: &warmup };
    let added = pool.add(model, workers).await?;
    let AddedModel { number, mut loaded, ready_workers } = added;
    // Those of routes come first, so that the indexes of both lists agree.
    loaded.handlers.sort_by_key(|handler| !handler.is_route());
    if let (Some(reason), Some(metadata)) = (not_native, &mut loaded.metadata) {
        metadata.parameters.others.insert("backend_reason".to_owned(), reason.into());
    }
    let mut model = WorkerModel {
        name: name.to_owned(),
        version: version.map(str::to_owned),
        pool: Arc::clone(pool),
        number,
        plain: loaded.plain,
        threads: if loaded.plain { loaded.threads.max(1) } else { 1 },
        streams: loaded.streams,
        description: Description {
            metadata: loaded.metadata,
            v1: v1_handlers(&loaded.handlers),
            openai: openai_handlers(&loaded.handlers),
            steps: loaded.steps.into_iter().map(StepModel::new).collect(),
            asks_servers: loaded.asks_servers,
            ..loaded.native.map_or_else(python_description, native_description)
        },
        handlers: loaded.handlers,
        loaded: loaded.ready,
        ready_workers,
        compute: compute.clone(),
    };
    // From here on, dropping the model unloads it, also if one of its routes is invalid.
    let routes = model.handlers.iter().filter(|handler| handler.is_route());
    model.description.routes = routes.map(custom_route).collect::<Result<_, _>>()?;
    Ok(Arc::new(model))
}

/// Describes what all models in Python have in common.
fn python_description() -> Description {
    Description {
        backend: "python",
        reads_headers: true,
        answers_warmup: true,
        ..Description::native_with(TensorRule::AsSent)
    }
}

fn native_description(head: NativeHead) -> Description {
    let NativeHead { tensor_rule, reads_headers, explanation, not_batched } = head;
    Description { reads_headers, explanation, not_batched, ..Description::native_with(tensor_rule) }
}

/// Returns the indexes of the handlers of the V1 protocol, if the model has both.
fn v1_handlers(handlers: &[HandlerInfo]) -> Option<V1Handlers> {
    let index = |verb| handlers.iter().position(|handler| handler.v1 == Some(verb));
    Some(V1Handlers { predict: index(V1Verb::Predict)?, explain: index(V1Verb::Explain)?, ready: index(V1Verb::Ready) })
}

/// Returns the indexes of the handlers of OpenAI's API.
fn openai_handlers(handlers: &[HandlerInfo]) -> OpenAiHandlers {
    let index = |api| handlers.iter().position(|handler| handler.openai == Some(api));
    OpenAiHandlers {
        chat_completions: index(OpenAiApi::ChatCompletions),
        completions: index(OpenAiApi::Completions),
        embeddings: index(OpenAiApi::Embeddings),
        rerank: index(OpenAiApi::Rerank),
    }
}

fn custom_route(handler: &HandlerInfo) -> Result<CustomRoute, WorkerLoadError> {
    let HandlerInfo { name, path, method, .. } = handler;
    let invalid = |reason: String| WorkerLoadError::Route { handler: name.clone(), path: path.clone(), reason };
    let template = PathTemplate::new(path).map_err(|error| invalid(error.to_string()))?;
    let method = Method::from_bytes(method.as_bytes());
    let method = method.map_err(|_| invalid(format!("invalid HTTP method `{}`", handler.method)))?;
    Ok(CustomRoute { method, template })
}

/// Reads the requests of the setting `warmup`.
fn warmup_requests(settings: &ModelSettings) -> Result<Vec<InferenceRequest>, WorkerLoadError> {
    let read = |(index, sample): (usize, &Value)| {
        let read = read_request_with(sample.to_string().as_bytes(), None, TensorRule::AsSent);
        let invalid = |error| format!("the sample is not a valid inference request: {error}");
        read.map(|incoming| incoming.request).map_err(|error| WorkerLoadError::Warmup { index, reason: invalid(error) })
    };
    settings.warmup.iter().enumerate().map(read).collect()
}

/// Returns the group of models that share a pool, if the model names one or asks for a pool of its own.
pub(in crate::runtimes) fn pool_group(settings: &ModelSettings) -> Option<String> {
    let parameters = &settings.parameters;
    let own = || parameters.autogenerate_inference_pool_gid.then(|| uuid::Uuid::new_v4().to_string());
    parameters.inference_pool_gid.clone().or_else(own)
}

/// Returns the resolved settings in the form of `model-settings.json`.
fn settings_value(settings: &ModelSettings) -> Value {
    let tensors = |tensors: &[TensorMetadata]| -> Vec<Value> {
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
        "threads": parameters.threads.unwrap_or(1),
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

impl WorkerModel {
    pub(super) fn check_ready(&self) -> Result<(), RuntimeError> {
        if self.loaded {
            return Ok(());
        }
        let version = self.version.as_deref().map(|version| format!(" with version {version}")).unwrap_or_default();
        Err(RuntimeError::new(RequestErrorKind::NotReady, format!("Model {}{version} is not ready yet.", self.name)))
    }
}

impl Runtime for WorkerModel {
    fn description(&self) -> &Description {
        &self.description
    }

    fn status(&self) -> RuntimeStatus {
        if !self.loaded {
            RuntimeStatus::Unavailable { reason: "its `load` returned false".to_owned() }
        } else if self.ready_workers.load(Ordering::Acquire) == 0 {
            RuntimeStatus::Unavailable { reason: self.pool.unavailable_reason(self.number) }
        } else {
            RuntimeStatus::AVAILABLE
        }
    }

    /// Returns how many calls the ready workers run at a time.
    fn parallelism(&self) -> usize {
        self.ready_workers.load(Ordering::Acquire).max(1) * self.threads
    }

    /// Does nothing, because workers warm up by themselves: see [`Description::answers_warmup`].
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
            let priority = request.priority;
            let frame = predict_frame(&self.compute, self.number, request).await?;
            let target = CallTarget { model: self.number, plain: self.plain, priority };
            let frame = self.pool.call(target, frame, progress).await?;
            let frame = checked(frame)?;
            let size = message::parsed_bytes(&frame);
            let read = move || message::read_response(&frame).map_err(invalid_response);
            self.compute.run_sized(size, priority, read).await?
        })
    }

    fn predict_stream(self: Arc<Self>, requests: RequestStream, progress: Arc<dyn Progress>) -> ResponseStream {
        if self.streams { AnswerStream::open(self, requests, progress) } else { answer_first(self, requests, progress) }
    }

    fn answers_at_once(&self, _: Asked<'_>) -> bool {
        false
    }

    fn unload(self: Arc<Self>) -> BoxFuture<'static, ()> {
        // Others may still use the model, which is then unloaded when they drop it.
        match Arc::try_unwrap(self) {
            Ok(model) => Box::pin(Arc::clone(&model.pool).unload(model.number)),
            Err(_) => ready(()),
        }
    }

    fn call(
        &self,
        route: usize,
        call: CustomCall,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<CallReply, RuntimeError>> {
        Box::pin(async move {
            self.check_ready()?;
            let handler = self.handlers.get(route).ok_or_else(|| RuntimeError::no_route(route))?;
            let frame = message::call_frame(self.number, &handler.name, call, CHUNKS_AHEAD).map_err(too_long)?;
            let target = CallTarget { model: self.number, plain: handler.plain, priority: Priority::default() };
            let (call, frames) = self.pool.open(target, frame, Arc::clone(&progress))?;
            let handler = HandlerReply { call, frames, progress, taken: 0 };
            handler.read().await
        })
    }
}

/// Writes the frame of a request, which it frees.
async fn predict_frame(
    compute: &ComputePool,
    model: ModelNumber,
    request: InferenceRequest,
) -> Result<OutgoingFrame, RuntimeError> {
    let (priority, size) = (request.priority, message::copied_bytes(&request));
    let write = move || message::request_frame(FrameKind::Predict, Some(model), &request).map_err(too_long);
    compute.run_sized(size, priority, write).await?
}

impl Drop for WorkerModel {
    fn drop(&mut self) {
        drop(self.pool.remove(self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{BytesElements, Datatype, Parameters, Tensor, TensorData};
    use std::num::NonZeroUsize;

    fn texts(count: usize) -> InferenceRequest {
        let elements: BytesElements = (0..count).map(|index| index.to_string()).collect();
        let input = Tensor {
            name: "x".to_owned(),
            datatype: Datatype::Bytes,
            shape: vec![count],
            parameters: Parameters::new(),
            data: TensorData::Variable(elements),
            nested: false,
            as_sent: None,
        };
        InferenceRequest { id: "r".to_owned(), inputs: vec![input], ..InferenceRequest::default() }
    }

    #[tokio::test]
    async fn long_frames_are_written_on_the_compute_pool() {
        let compute = ComputePool::new(NonZeroUsize::MIN);
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let busy = tokio::spawn({
            let compute = compute.clone();
            async move { compute.run(move || gate.recv().is_err()).await }
        });
        tokio::task::yield_now().await;
        let numbers = Tensor::from_elements("x", vec![1 << 20], &vec![0.0_f32; 1 << 20]).unwrap();
        let numbers = InferenceRequest { inputs: vec![numbers], ..InferenceRequest::default() };
        for quick in [texts(100), numbers] {
            let mut frame = Box::pin(predict_frame(&compute, 1, quick));
            assert!(futures_util::poll!(&mut frame).is_ready(), "it is written at once, without a copy of its tensors");
        }
        let mut frame = Box::pin(predict_frame(&compute, 1, texts(20_000)));
        assert!(futures_util::poll!(&mut frame).is_pending());
        drop(release);
        frame.await.unwrap();
        assert!(busy.await.unwrap().unwrap());
    }
}
