//! What evaluates models.
//!
//! A [`Runtime`] answers requests for one loaded model. [`Implementation::of`] decides which runtime that is: native when
//! the implementation and the artifact allow it.

mod identity;
mod mlflow;
mod progress;
pub mod python;
mod sklearn;
mod trees;

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use futures_core::Stream;
use futures_util::{StreamExt, stream};
use serde_json::Value;

use self::sklearn::SklearnModel;
use self::trees::TreeModel;
use crate::codecs::CodecError;
use crate::compute::ComputePool;
use crate::evaluators;
use crate::settings::ModelSettings;
use crate::types::{CustomCall, CustomReply, CustomRoute, InferenceRequest, InferenceResponse, ModelMetadata};
use identity::Identity;
use mlflow::MlflowModel;

pub use self::trees::Family;
pub use progress::Progress;

/// The largest artifact that is read into memory, in bytes.
pub const MAX_ARTIFACT_BYTES: u64 = 8 << 30;

/// A future that any runtime may return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The requests of one stream, in the order in which the client sent them. It ends when the client has no more.
pub type RequestStream = Pin<Box<dyn Stream<Item = InferenceRequest> + Send>>;

/// The answers of one stream. The first error is its end.
pub type ResponseStream<E = RuntimeError> = Pin<Box<dyn Stream<Item = Result<InferenceResponse, E>> + Send>>;

/// A loaded model.
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// Returns the name under which metadata and logs show what evaluates the model.
    fn backend(&self) -> &'static str;

    /// Tells whether `predict` looks at the headers of requests; if not, the server does not prepare them.
    fn reads_headers(&self) -> bool {
        true
    }

    /// Does what would otherwise make the first request slow. Called once, before any request.
    ///
    /// # Errors
    ///
    /// A model that fails is not served.
    fn warm_up(&self) -> BoxFuture<'_, Result<(), RuntimeError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Tells whether everything that evaluates the model has answered the samples of its setting `warmup` already.
    fn is_warm(&self) -> bool {
        false
    }

    /// Returns what the model says about itself, if that is more than its settings do.
    fn metadata(&self) -> Option<&ModelMetadata> {
        None
    }

    /// Says why the model cannot answer now although it has been loaded; nothing while it can.
    fn not_ready(&self) -> Option<String> {
        None
    }

    /// Says what else there is to know of a model that can answer; mostly nothing.
    fn remark(&self) -> Option<String> {
        None
    }

    /// Returns how many predictions run beside each other, without one waiting for another; at least 1.
    ///
    /// More may be asked for. Adaptive batching keeps as many batches under way.
    fn parallelism(&self) -> usize {
        1
    }

    /// Answers one request.
    ///
    /// The answer's name, version and id are set by the caller. Dropping the future abandons the answer, though not
    /// always the work.
    fn predict(&self, request: InferenceRequest) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>>;

    /// Answers one request as [`Runtime::predict`] does, and says when it begins to.
    ///
    /// For runtimes in which requests wait; the others begin at once.
    fn predict_watched(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
        progress.begin();
        self.predict(request)
    }

    /// Answers a stream of requests, with as many answers as the model likes.
    ///
    /// The next answer is made when it is asked for, and dropping the stream ends the work: that is what back-pressure
    /// and clients that leave come to. A model without a way of its own answers the first request, as the original does.
    fn predict_stream(self: Arc<Self>, requests: RequestStream) -> ResponseStream {
        answer_first(self, requests)
    }

    /// Returns the routes that the model answers beside those of the protocol.
    fn custom_routes(&self) -> &[CustomRoute] {
        &[]
    }

    /// Answers a call of one of its routes, which `route` is the place of. Dropping the future abandons the answer.
    fn call(&self, route: usize, _call: CustomCall) -> BoxFuture<'_, Result<CustomReply, RuntimeError>> {
        let reason = format!("the model has no route {route}");
        Box::pin(std::future::ready(Err(RuntimeError::Inconsistent(reason.into()))))
    }
}

/// Answers the first request of a stream, and no other.
fn answer_first<R: Runtime + ?Sized>(runtime: Arc<R>, mut requests: RequestStream) -> ResponseStream {
    Box::pin(stream::once(async move {
        match requests.next().await {
            Some(request) => runtime.predict(request).await,
            None => Err(RuntimeError::NoRequest),
        }
    }))
}

/// Why a model could not answer.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The request cannot be read as this model reads requests.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The request asks for an output that the runtime does not have.
    #[error("{runtime} only supports {supported} as outputs ({found} was received)")]
    UnsupportedOutput { runtime: &'static str, supported: &'static str, found: String },
    /// The request asks for an output that this model does not have. The lone quote is the original's.
    #[error("{model} models do not support '{output}")]
    ModelWithoutOutput { model: Cow<'static, str>, output: &'static str },
    /// An output is wanted with a content type that does not suit it.
    #[error("output `{output}` cannot be sent as `{content_type}`: expected `np`, or `str` for a column of texts")]
    OutputType { output: &'static str, content_type: &'static str },
    /// An estimator cannot take the request's values.
    #[error(transparent)]
    Estimator(#[from] evaluators::sklearn::PredictError),
    /// Several outputs were asked for, one of which is a data frame.
    #[error(
        "{method} returned columnar data of type <class 'pandas.core.frame.DataFrame'> and {requested:?} were requested. Cannot encode multiple columnar data responses into one response."
    )]
    Columns { method: &'static str, requested: Vec<&'static str> },
    /// A stream of requests ended before its first.
    #[error("the stream of requests is empty: expected at least one")]
    NoRequest,
    /// The model says that it is not ready, though its code has loaded.
    #[error("Model {name}{} is not ready yet.", version.as_deref().map(|v| format!(" with version {v}")).unwrap_or_default())]
    NotReady { name: String, version: Option<String> },
    /// The model refused the request, with a text and a status that are meant for the client.
    #[error("{message}")]
    Model { status: u16, message: String },
    /// The model's code raised an exception that it did not mean for the client.
    #[error("{message}")]
    Exception { message: String },
    /// The process that was answering the request has ended.
    #[error("the request was lost: {0}")]
    WorkerLost(String),
    /// No process can answer the request, nor will one soon.
    #[error("no worker of the model runs: {reason}")]
    NoWorker { reason: String },
    /// The model had been put out of memory, and cannot be loaded now.
    #[error("the model cannot be loaded: {reason}")]
    NotLoaded { reason: String },
    #[error("the server is shutting down; try another one")]
    Stopping,
    /// The model's own code gave up; our bug.
    #[error("the prediction ended unexpectedly; the log has the details")]
    Panicked(#[source] tokio::task::JoinError),
    /// The evaluator contradicts the checks before it; our bug.
    #[error("the model refused a request that had been checked: {0}")]
    Inconsistent(Box<dyn std::error::Error + Send + Sync>),
}

/// Why a model could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("implementation `{implementation}` is not served natively, as `parameters.extra.backend` asks for")]
    NotNative { implementation: String },
    #[error(transparent)]
    Python(#[from] python::PythonLoadError),
    #[error("`parameters.extra.backend` is `{found}`, expected `native`, `python` or `auto`")]
    Backend { found: String },
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("`{}` is a directory without a model file: expected one of {expected}", path.display())]
    Directory { path: PathBuf, expected: &'static str },
    #[error("`{}` has {size} bytes, more than the {MAX_ARTIFACT_BYTES} that are read", path.display())]
    TooLarge { path: PathBuf, size: u64 },
    #[error("`{}` is not a model that can be served natively", path.display())]
    Artifact { path: PathBuf, source: evaluators::trees::LoadError },
    #[error("`{}` is not a model that can be served natively", path.display())]
    Estimator { path: PathBuf, source: evaluators::sklearn::LoadError },
    #[error("`{}` is not a model that can be served natively", path.display())]
    Mlflow { path: PathBuf, source: mlflow::LoadError },
}

impl LoadError {
    /// Tells whether the artifact may well be right, and only more than the native runtime can do.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Artifact { source, .. } => source.is_refusal(),
            Self::Estimator { source, .. } => source.is_refusal(),
            Self::Mlflow { source, .. } => source.is_refusal(),
            _ => false,
        }
    }
}

/// Which runtime serves a model, as its `implementation` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    /// Answers with its inputs; needs no artifact.
    Identity,
    /// A tree ensemble that is evaluated by the server itself.
    Trees(Family),
    /// An estimator of scikit-learn that is evaluated by the server itself.
    Sklearn,
    /// A model that MLflow saved, of a library whose models are evaluated by the server itself.
    Mlflow,
    /// Code in Python, which runs in worker processes.
    Python,
}

impl Implementation {
    /// Returns what the settings ask for.
    ///
    /// # Errors
    ///
    /// Fails when no runtime serves the implementation, or not with the backend that `parameters.extra.backend` asks for.
    pub fn of(settings: &ModelSettings) -> Result<Self, LoadError> {
        let backend = Backend::of(settings)?;
        let native = match settings.implementation.as_str() {
            "mlserver_identity.IdentityModel" => Some(Self::Identity),
            "mlserver_xgboost.XGBoostModel" | "mlserver_xgboost.xgboost.XGBoostModel" => {
                Some(Self::Trees(Family::XgBoost))
            }
            "mlserver_lightgbm.LightGBMModel" | "mlserver_lightgbm.lightgbm.LightGBMModel" => {
                Some(Self::Trees(Family::LightGbm))
            }
            "mlserver_sklearn.SKLearnModel" | "mlserver_sklearn.sklearn.SKLearnModel" => Some(Self::Sklearn),
            "mlserver_mlflow.MLflowRuntime" | "mlserver_mlflow.runtime.MLflowRuntime" => Some(Self::Mlflow),
            _ => None,
        };
        match (native, backend) {
            (_, Backend::Python) | (None, Backend::Auto) => Ok(Self::Python),
            (Some(native), Backend::Native | Backend::Auto) => Ok(native),
            (None, Backend::Native) => Err(LoadError::NotNative { implementation: settings.implementation.clone() }),
        }
    }
}

/// What `parameters.extra.backend` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// The server itself when it can, else Python.
    Auto,
    Native,
    Python,
}

impl Backend {
    /// Returns what the settings ask for, [`Self::Auto`] if nothing.
    ///
    /// # Errors
    ///
    /// Fails when it is none of the names.
    pub fn of(settings: &ModelSettings) -> Result<Self, LoadError> {
        match settings.parameters.extra.get("backend") {
            None | Some(Value::Null) => Ok(Self::Auto),
            Some(Value::String(backend)) if backend == "auto" => Ok(Self::Auto),
            Some(Value::String(backend)) if backend == "native" => Ok(Self::Native),
            Some(Value::String(backend)) if backend == "python" => Ok(Self::Python),
            Some(other) => {
                let found = other.as_str().map_or_else(|| other.to_string(), str::to_owned);
                Err(LoadError::Backend { found })
            }
        }
    }
}

/// Returns the runtime that answers with its inputs.
pub fn identity() -> Arc<dyn Runtime> {
    Arc::new(Identity)
}

/// Loads a tree ensemble from its artifact. Reads files and computes: call it on a thread that may block.
///
/// # Errors
///
/// [`LoadError`] names the file or the setting, and the reason.
pub fn load_trees(
    family: Family,
    settings: &ModelSettings,
    artifact: &Path,
    compute: &ComputePool,
) -> Result<Arc<dyn Runtime>, LoadError> {
    let bytes = read(artifact, family.well_known_names())?;
    let model = family.load(&bytes).map_err(|source| LoadError::Artifact { path: artifact.to_owned(), source })?;
    Ok(Arc::new(TreeModel::new(family, model, settings, compute.clone())))
}

/// Loads an estimator of scikit-learn from its artifact. Reads files and computes: call it on a thread that may block.
///
/// # Errors
///
/// [`LoadError`] names the file, and what in it is not evaluated natively.
pub fn load_sklearn(
    settings: &ModelSettings,
    artifact: &Path,
    compute: &ComputePool,
) -> Result<Arc<dyn Runtime>, LoadError> {
    let bytes = read_sklearn(artifact)?;
    let model = evaluators::sklearn::FittedEstimator::load(bytes.into());
    let model = model.map_err(|source| LoadError::Estimator { path: artifact.to_owned(), source })?;
    Ok(Arc::new(SklearnModel::new(model, settings, compute.clone())))
}

/// Loads a model that MLflow saved from its folder. Reads files and computes: call it on a thread that may block.
///
/// # Errors
///
/// [`LoadError`] names the file, and what in it is not evaluated natively.
pub fn load_mlflow(
    settings: &ModelSettings,
    folder: &Path,
    compute: &ComputePool,
) -> Result<Arc<dyn Runtime>, LoadError> {
    Ok(Arc::new(MlflowModel::load(folder, settings, compute)?))
}

/// Tells what a folder that MLflow saved holds, and whether it is evaluated natively.
///
/// # Errors
///
/// Fails when its `MLmodel` or its artifact cannot be read.
pub fn inspect_mlflow(folder: &Path) -> Result<String, LoadError> {
    mlflow::inspect(folder)
}

/// Reads an artifact of scikit-learn.
///
/// # Errors
///
/// Fails when the file cannot be read, or is larger than [`MAX_ARTIFACT_BYTES`].
pub fn read_sklearn(path: &Path) -> Result<Vec<u8>, LoadError> {
    read(path, self::sklearn::WELL_KNOWN_NAMES)
}

/// Reads a whole file, or a named pipe until its writer closes it.
fn read(path: &Path, expected: &'static str) -> Result<Vec<u8>, LoadError> {
    let failed = |source| LoadError::Read { path: path.to_owned(), source };
    let too_large = |size| LoadError::TooLarge { path: path.to_owned(), size };
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Err(LoadError::Directory { path: path.to_owned(), expected });
    }
    if metadata.len() > MAX_ARTIFACT_BYTES {
        return Err(too_large(metadata.len()));
    }
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    let size = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    bytes.try_reserve_exact(size).map_err(|error| failed(error.into()))?;
    // The size of what is no regular file shows only at its end.
    file.take(MAX_ARTIFACT_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
    match bytes.len() as u64 {
        size if size > MAX_ARTIFACT_BYTES => Err(too_large(size)),
        _ => Ok(bytes),
    }
}
