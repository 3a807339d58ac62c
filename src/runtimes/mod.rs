//! Runtimes: adapters between requests and loaded models.
//!
//! A [`Runtime`] answers requests for one loaded model. [`Implementation::of`] decides which runtime that is: a native
//! evaluator if the implementation and the artifact allow it, else Python workers.

mod catboost;
mod columns;
mod describe;
mod error;
mod fn_runtime;
mod graph;
mod identity;
mod implementation;
mod mlflow;
mod native;
mod native_steps;
mod onnx;
mod progress;
pub mod python;
mod row_sizes;
mod sklearn;
mod steps;
mod tree_explanations;
mod trees;
pub mod workers;

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};

use crate::families::NativeEvaluator;
use crate::types::{
    CustomCall, CustomReply, CustomRoute, InferenceRequest, InferenceResponse, ModelMetadata, OpenAiHandlers,
    TensorRule, V1Handlers,
};

pub use describe::FileDescription;
use error::OutputError;
pub use error::{FamilyError, LoadError, RuntimeError};
pub use fn_runtime::FnRuntime;
pub use graph::{GraphResources, load_graph};
pub use implementation::{Backend, Implementation, MAX_ARTIFACT_BYTES, load_native, load_onnx_in_worker, or_network};
pub use native_steps::StepSettingsError;
pub use progress::{ModelMemory, Progress};
pub use steps::{MAX_STEP_DEPTH, MAX_STEPS, ModelDirectory, RemoteAnswer, RemoteCall, RequiredStep, StepModel, Steps};

/// A future that any runtime may return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The requests of one stream, in the order in which the client sent them. It ends after the client's last request.
pub type RequestStream = Pin<Box<dyn Stream<Item = InferenceRequest> + Send>>;

/// The responses of one stream. It ends after the first error.
pub type ResponseStream<E = RuntimeError> = Pin<Box<dyn Stream<Item = Result<InferenceResponse, E>> + Send>>;

/// The rest of a reply's body, in pieces of at most [`MAX_CHUNK_BYTES`]. It ends after the first error, and dropping it cancels the call.
pub type ReplyChunks<E = RuntimeError> = Pin<Box<dyn Stream<Item = Result<Bytes, E>> + Send>>;

/// The longest piece of a reply that is sent while it is made, in bytes.
pub const MAX_CHUNK_BYTES: usize = 64 << 10;

/// The answer to a call of a handler.
pub struct CallReply<E = RuntimeError> {
    /// Status, headers, and the body or its beginning.
    pub reply: CustomReply,
    /// The rest of the body, if the handler sends it while it makes it.
    pub rest: Option<ReplyChunks<E>>,
}

impl<E: 'static> CallReply<E> {
    /// Keeps `held` until the last piece of the body has been taken, or the rest of it has been dropped.
    #[must_use]
    pub fn holding(self, held: impl Send + 'static) -> Self {
        let keep = |rest: ReplyChunks<E>| -> ReplyChunks<E> {
            Box::pin(rest.inspect(move |_| {
                let _ = &held;
            }))
        };
        Self { reply: self.reply, rest: self.rest.map(keep) }
    }

    /// Waits for the rest of the body. `reserve` is called with the number of bytes of each piece, before it is kept.
    ///
    /// # Errors
    ///
    /// Fails if the handler fails before the end, or if `reserve` does.
    pub async fn whole(self, mut reserve: impl FnMut(usize) -> Result<(), E>) -> Result<CustomReply, E> {
        let Self { mut reply, rest } = self;
        if let Some(mut rest) = rest {
            let mut body = Vec::from(reply.body);
            while let Some(chunk) = rest.next().await {
                let chunk = chunk?;
                reserve(chunk.len())?;
                body.extend_from_slice(&chunk);
            }
            reply.body = body.into();
        }
        Ok(reply)
    }
}

impl<E> From<CustomReply> for CallReply<E> {
    fn from(reply: CustomReply) -> Self {
        Self { reply, rest: None }
    }
}

/// What a model is asked.
#[derive(Debug, Clone, Copy)]
pub enum Asked<'a> {
    Request(&'a InferenceRequest),
    /// A call of the route with an index; see [`Runtime::call`].
    Call(usize, &'a CustomCall),
}

/// A loaded model.
///
/// No method has a default, so that a runtime that wraps another one cannot forget to forward one: the compiler complains.
/// What does not change while the model is loaded is data, in its [`Description`].
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// Returns the description of the model, which never changes.
    fn description(&self) -> &Description;

    /// Returns whether the model can answer now.
    fn status(&self) -> RuntimeStatus;

    /// Returns how many predictions run concurrently without waiting for each other; at least 1.
    ///
    /// More may be requested. Adaptive batching keeps as many batches in flight.
    fn parallelism(&self) -> usize;

    /// Does what would otherwise make the first request slow. Called once, before any request.
    ///
    /// # Errors
    ///
    /// A model that fails to warm up is not served.
    fn warm_up(&self) -> BoxFuture<'_, Result<(), RuntimeError>>;

    /// Answers one request, and reports to `progress` when the prediction begins.
    ///
    /// The caller sets the name, version and id of the response. Dropping the future cancels the request, though not always
    /// the work.
    fn predict(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>>;

    /// Returns whether the model answers at the first poll, without another thread and without waiting. Then the request does not wait in
    /// the model's queue, and is answered even if the queue is full.
    fn answers_at_once(&self, asked: Asked<'_>) -> bool;

    /// Drops this reference to the runtime. If it is the last one, the future ends when the memory of the model is free, or when
    /// it has taken longer than it may.
    fn unload(self: Arc<Self>) -> BoxFuture<'static, ()>;

    /// Answers a stream of requests with any number of responses.
    ///
    /// The next response is computed when the stream is polled, which is how backpressure reaches the model. Dropping the
    /// stream cancels the work, as when a client disconnects. Models that do not stream [answer the first request](answer_first), as
    /// the original does. `progress` leads to the steps of the stream.
    fn predict_stream(self: Arc<Self>, requests: RequestStream, progress: Arc<dyn Progress>) -> ResponseStream;

    /// Answers a call of one of the routes, or handlers of the V1 protocol or OpenAI's API, in the description; `route` is its index.
    /// Dropping the future, and later the rest of the reply, cancels the call.
    fn call(
        &self,
        route: usize,
        call: CustomCall,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<CallReply, RuntimeError>>;
}

/// The properties of a loaded model, which never change while it is loaded.
#[derive(Debug, Clone)]
pub struct Description {
    /// What evaluates the model, for metadata and logs: `native` or `python`.
    pub backend: &'static str,
    /// Which tensors the model takes.
    pub tensor_rule: TensorRule,
    /// Whether `predict` reads the headers of requests. If not, the server does not prepare them.
    pub reads_headers: bool,
    /// Whether everything that evaluates the model answers the samples of its setting `warmup` by itself, as each Python
    /// worker does before it takes a call.
    pub answers_warmup: bool,
    /// The metadata that the model itself declares. `None` if the settings are all there is.
    pub metadata: Option<ModelMetadata>,
    /// The model's own routes, besides those of the protocol.
    pub routes: Vec<CustomRoute>,
    /// Where [`Runtime::call`] takes bodies of KServe's V1 protocol. `None` for models that only take tensors.
    pub v1: Option<V1Handlers>,
    /// Where [`Runtime::call`] takes bodies of OpenAI's API.
    pub openai: OpenAiHandlers,
    /// The models that it asks to answer a request. The server rejects a model whose steps lead back to it.
    pub steps: Vec<StepModel>,
    /// The steps without which it cannot answer. Its own status is theirs if there are any.
    pub required_steps: Vec<RequiredStep>,
    /// Whether it also asks models of other servers.
    pub has_remote_steps: bool,
    /// Whether its code passes requests on to other servers, as it says itself once it is loaded.
    pub asks_servers: bool,
    /// How the model explains its predictions by itself, if it does.
    pub explanation: Option<Explanation>,
    /// The names of the features of a row, in order, if the file of a native model has them.
    pub features: Option<Arc<[String]>>,
    /// Why requests cannot be joined along their first dimension, for the log. `None` if they can, or if that is not known.
    pub not_batched: Option<String>,
    /// HTML that shows how it is made of other models, for the page of its documentation.
    pub drawing: Option<Arc<str>>,
    /// What a native model was loaded from. `None` for those that need no file.
    pub file: Option<ModelFile>,
}

/// The file or folder of a model, and what reads it.
#[derive(Debug, Clone)]
pub struct ModelFile {
    pub evaluator: NativeEvaluator,
    pub path: PathBuf,
}

impl Description {
    /// Describes a model that a native evaluator serves: without headers, metadata or routes of its own.
    pub const fn native() -> Self {
        Self::native_with(TensorRule::Strict)
    }

    /// Describes such a model that takes the tensors of a rule.
    pub const fn native_with(tensor_rule: TensorRule) -> Self {
        Self {
            backend: "native",
            tensor_rule,
            reads_headers: false,
            answers_warmup: false,
            metadata: None,
            routes: Vec::new(),
            v1: None,
            openai: OpenAiHandlers::NONE,
            steps: Vec::new(),
            required_steps: Vec::new(),
            has_remote_steps: false,
            asks_servers: false,
            explanation: None,
            features: None,
            not_batched: None,
            drawing: None,
            file: None,
        }
    }
}

/// How a model explains its predictions by itself: with the outputs `contributions` and `margin`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Explanation {
    /// What the contributions add up to: `margin`, the sum of the trees before its transformation. `None` if the model has no
    /// contributions, or if they are switched off.
    pub space: Option<Cow<'static, str>>,
    /// The names of the features, if the file has them.
    pub feature_names: Option<Arc<[String]>>,
}

/// Whether a loaded model can answer now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeStatus {
    /// It can. The remark is shown in the index of models.
    Available { remark: Option<String> },
    /// It cannot.
    Unavailable { reason: String },
}

impl RuntimeStatus {
    pub const AVAILABLE: Self = Self::Available { remark: None };

    pub const fn is_available(&self) -> bool {
        matches!(self, Self::Available { .. })
    }

    /// Returns why the model cannot answer, or `None` if it can.
    pub fn into_reason(self) -> Option<String> {
        match self {
            Self::Available { .. } => None,
            Self::Unavailable { reason } => Some(reason),
        }
    }
}

/// Answers the first request of a stream, and no other.
fn answer_first<R: Runtime + ?Sized>(
    runtime: Arc<R>,
    mut requests: RequestStream,
    progress: Arc<dyn Progress>,
) -> ResponseStream {
    Box::pin(stream::once(async move {
        match requests.next().await {
            Some(request) => runtime.predict(request, progress).await,
            None => Err(RuntimeError::no_request()),
        }
    }))
}

/// Returns a future that is ready.
fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}
