//! MLflow's models of scikit-learn, XGBoost and LightGBM, evaluated natively.
//!
//! A folder's `MLmodel` says which library wrote what artifact, and with which signature (`description`). A request, over
//! the V2 protocol or over MLflow's own (`scoring`), becomes what Python would give to the model (`values`), is held against
//! the signature (`enforce`), and is answered by one of the evaluators (`evaluator`). Whatever of that is not as MLflow does
//! it is refused: the model at load, so that Python serves it, or else the request.

mod csv;
mod description;
mod enforce;
mod evaluator;
mod python;
mod scoring;
mod signature;
mod values;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};

use self::description::Description;
use self::enforce::Refusal;
use self::evaluator::{Answer, Evaluator};
use self::signature::{Input, Signature};
use self::values::{Array, Frame, Given, Label, Values};
use super::sklearn::{elements, tensor};
use super::{
    BoxFuture, Description as RuntimeDescription, Progress, RequestStream, ResponseStream, Runtime, RuntimeError,
    RuntimeStatus, answer_first, ready,
};
use crate::codecs::{self, Decoded};
use crate::compute::ComputePool;
use crate::evaluators::sklearn::Elements;
use crate::settings::ModelSettings;
use crate::types::{
    CustomCall, CustomReply, CustomRoute, InferenceRequest, InferenceResponse, ModelMetadata, Parameters, PathTemplate,
    Tensor, TensorMetadata,
};

/// The largest `MLmodel` that is read, in bytes: 16 MiB, which is the signature of a hundred thousand columns.
const MAX_DESCRIPTION: u64 = 16 << 20;

/// Predictions that are estimated to take no longer run where the request is: handing them to another thread takes up to
/// as long, and a connection's other work can wait that long.
const INLINE: Duration = Duration::from_micros(50);

/// Longer bodies are read on another thread: these take about as long as `INLINE`.
const INLINE_BODY: usize = 8 << 10;

/// The output of a model, as the Python runtime names it.
const OUTPUT: &str = "output-1";

/// The routes of a model, in the order of their numbers.
const ROUTES: [(Method, &str); 4] =
    [(Method::GET, "/ping"), (Method::GET, "/health"), (Method::GET, "/version"), (Method::POST, "/invocations")];

/// Why a model is not evaluated natively.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    /// It is more than the server evaluates as MLflow does.
    #[error("{0}")]
    Refused(String),
    /// It does not fit together, so that MLflow could not load it either.
    #[error("{0}")]
    Damaged(String),
    #[error(transparent)]
    Estimator(crate::evaluators::sklearn::LoadError),
    #[error(transparent)]
    Trees(crate::evaluators::trees::LoadError),
}

impl LoadError {
    /// Tells whether Python may be able to load the model.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Refused(_) => true,
            Self::Damaged(_) => false,
            Self::Estimator(error) => error.is_refusal(),
            Self::Trees(error) => error.is_refusal(),
        }
    }

    /// Returns the error of the artifact at `path`.
    fn at(self, path: &Path) -> super::LoadError {
        super::LoadError::Artifact { path: path.to_owned(), unsupported: self.is_refusal(), source: self.into() }
    }
}

/// A loaded model. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct MlflowModel {
    model: Arc<Model>,
    content_type: Option<Arc<str>>,
    description: Arc<RuntimeDescription>,
    compute: ComputePool,
}

/// What a model is, without its settings.
#[derive(Debug)]
struct Model {
    name: String,
    version: String,
    signature: Signature,
    evaluator: Evaluator,
}

impl Model {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn predict(&self, given: &Given) -> Result<Answer, Refusal> {
        let data = enforce::enforce(given, &self.signature.input)?;
        self.evaluator.predict(&data)
    }
}

/// Where the `MLmodel` of a path is: in the folder, or the path itself.
fn description_of(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("MLmodel") } else { path.to_owned() }
}

/// Reads a folder's `MLmodel`, and the model that it describes.
fn read(folder: &Path) -> Result<(Description, Evaluator), super::LoadError> {
    let path = description_of(folder);
    let failed = |source: LoadError| source.at(&path);
    let unreadable = |source| super::LoadError::Read { path: path.clone(), source };
    let size = std::fs::metadata(&path).map_err(unreadable)?.len();
    if size > MAX_DESCRIPTION {
        return Err(failed(LoadError::Refused(format!("it has {size} bytes, more than {MAX_DESCRIPTION}"))));
    }
    let text = std::fs::read_to_string(&path).map_err(unreadable)?;
    let description = Description::read(path.parent().unwrap_or(folder), &text).map_err(failed)?;
    let bytes = super::native::read(&description.artifact, "the artifact that MLmodel names")?;
    let evaluator = Evaluator::load(&description, bytes).map_err(failed)?;
    Ok((description, evaluator))
}

/// Tells what a folder with an `MLmodel` holds, and whether it is evaluated natively.
pub(super) fn inspect(folder: &Path) -> Result<String, super::LoadError> {
    match read(folder) {
        Ok((description, _)) => {
            let Description { artifact, predict_fn, version, signature, .. } = description;
            let names = |tensors: &[TensorMetadata]| {
                tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>().join(", ")
            };
            Ok(format!(
                "MLflow model (mlflow {version})\nartifact: {}\npredict_fn: {predict_fn}\nsignature: {}\noutputs: {}\nserved natively: yes",
                artifact.display(),
                signature.input,
                names(&signature.outputs)
            ))
        }
        Err(super::LoadError::Artifact { source, .. }) => Ok(format!("MLflow model\nserved natively: no, {source}")),
        Err(error) => Err(error),
    }
}

impl MlflowModel {
    /// Loads a model from its folder.
    pub(super) fn load(
        folder: &Path,
        settings: &ModelSettings,
        compute: &ComputePool,
    ) -> Result<Self, super::LoadError> {
        let (Description { version, signature, .. }, evaluator) = read(folder)?;
        let failed = |source: LoadError| source.at(&description_of(folder));
        let metadata = metadata(settings, &signature);
        let content_type = metadata.parameters.content_type().map(Arc::from);
        let template = |text| PathTemplate::new(text).map_err(|error| failed(LoadError::Refused(error.to_string())));
        let route = |(method, path)| Ok(CustomRoute { method, template: template(path)? });
        let description = RuntimeDescription {
            metadata: Some(metadata),
            routes: ROUTES.into_iter().map(route).collect::<Result<_, super::LoadError>>()?,
            ..RuntimeDescription::native()
        };
        let model = Model { name: settings.name.clone(), version, signature, evaluator };
        Ok(Self { model: Arc::new(model), content_type, description: Arc::new(description), compute: compute.clone() })
    }

    fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// Reads a request as the Python runtime does.
    fn given(&self, request: &InferenceRequest) -> Result<Given, RuntimeError> {
        let content_type = request.parameters.content_type().or(self.content_type());
        match content_type {
            Some("np" | "pd" | "str") => {}
            Some(other) => {
                let message = format!(
                    "the server evaluates this model natively, and takes the content types `np`, `pd` and `str`, not `{other}`"
                );
                return Err(RuntimeError::rejected(400, message));
            }
            None => {
                let message = "the model has no signature: say what the request is by its content type, `np` or `pd`";
                return Err(RuntimeError::rejected(400, message));
            }
        }
        match codecs::decode_with_text(request, self.content_type())? {
            Decoded::Array(tensor) => {
                let shape = if content_type == Some("str") { vec![tensor.len()] } else { tensor.shape.clone() };
                Ok(Given::Array(Array { shape, elements: owned(tensor) }))
            }
            Decoded::Frame(columns) => {
                let rows = columns.first().map_or(0, |column| column.len());
                let column = |column: &&Tensor| match column.shape[..] {
                    [_] | [_, 1] => Values::Known(owned(column)),
                    _ => Values::Objects(vec!["[...]".to_owned(); rows]),
                };
                Ok(Given::Frame(Frame {
                    labels: columns.iter().map(|column| Label::Name(column.name.clone())).collect(),
                    columns: columns.iter().map(column).collect(),
                    rows,
                }))
            }
        }
    }

    fn answer(&self, request: &InferenceRequest) -> Result<InferenceResponse, RuntimeError> {
        let given = self.given(request)?;
        let answer = self.model.predict(&given).map_err(|refusal| {
            let message = match refusal {
                Refusal::Schema(reason) => {
                    let schema = &self.model.signature.input;
                    format!("Failed to enforce schema of data '{given}' with schema '{schema}'. Error: {reason}")
                }
                Refusal::Model(reason) => reason,
                Refusal::NotNative(reason) => format!("the server evaluates this model natively, and {reason}"),
            };
            RuntimeError::rejected(400, message)
        })?;
        let mut output = tensor(OUTPUT, vec![answer.rows, answer.columns], answer.elements)?;
        output.parameters = Parameters::with_content_type("np");
        let parameters = Parameters::with_content_type("np");
        Ok(InferenceResponse { parameters, outputs: vec![output], ..InferenceResponse::default() })
    }

    fn invocations(&self, call: &CustomCall) -> CustomReply {
        let content_type = call.headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
        scoring::answer(&self.model, content_type.as_deref().unwrap_or_default(), &call.body)
    }
}

fn owned(tensor: &Tensor) -> Elements<'static> {
    let elements = elements(tensor);
    let count = elements.len();
    values::take(&elements, 0..count)
}

/// What the model says about itself: its signature takes the place of what the settings say.
fn metadata(settings: &ModelSettings, signature: &Signature) -> ModelMetadata {
    let declared = |tensors: &[crate::settings::TensorMetadata]| {
        let tensors = tensors.iter().map(|tensor| TensorMetadata {
            name: tensor.name.clone(),
            datatype: tensor.datatype.clone(),
            shape: tensor.shape.clone(),
            parameters: Parameters::from(tensor.parameters.clone()),
        });
        tensors.collect()
    };
    let own = match signature.input {
        Input::Anything => None,
        Input::Columns(_) => Some("pd".to_owned()),
        Input::Tensor { .. } => Some("np".to_owned()),
    };
    let known = settings.parameters.content_type.as_ref();
    if own.is_some() && (known.is_some() || !settings.inputs.is_empty() || !settings.outputs.is_empty()) {
        let model = &settings.name;
        tracing::warn!(model, "The model's signature replaces the inputs, outputs and content type of its settings.");
    }
    let inputs = if own.is_some() { signature.inputs.clone() } else { declared(&settings.inputs) };
    let outputs = if signature.outputs.is_empty() { declared(&settings.outputs) } else { signature.outputs.clone() };
    let content_type = own.or_else(|| known.cloned());
    ModelMetadata {
        name: settings.name.clone(),
        versions: settings.versions.clone(),
        platform: settings.platform.clone(),
        inputs,
        outputs,
        parameters: content_type.map(Parameters::with_content_type).unwrap_or_default(),
    }
}

impl Runtime for MlflowModel {
    fn description(&self) -> &RuntimeDescription {
        &self.description
    }

    fn status(&self) -> RuntimeStatus {
        RuntimeStatus::AVAILABLE
    }

    fn parallelism(&self) -> usize {
        self.compute.width()
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), RuntimeError>> {
        ready(Ok(()))
    }

    fn predict(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
        progress.begin();
        Box::pin(async move {
            let rows = request.inputs.first().and_then(|input| input.shape.first()).copied().unwrap_or(1);
            if self.model.evaluator.estimate(rows) <= INLINE {
                return self.answer(&request);
            }
            let (model, priority) = (self.clone(), request.priority);
            self.compute.run_at(priority, move || model.answer(&request)).await.map_err(RuntimeError::panicked)?
        })
    }

    fn predict_stream(self: Arc<Self>, requests: RequestStream) -> ResponseStream {
        answer_first(self, requests)
    }

    fn call(&self, route: usize, call: CustomCall) -> BoxFuture<'_, Result<CustomReply, RuntimeError>> {
        Box::pin(async move {
            let text = match ROUTES.get(route).map(|(_, path)| *path) {
                Some("/invocations") => {
                    // A row is no shorter than a few bytes.
                    if call.body.len() <= INLINE_BODY && self.model.evaluator.estimate(call.body.len() / 16) <= INLINE {
                        return Ok(self.invocations(&call));
                    }
                    let model = self.clone();
                    let answer = self.compute.run(move || model.invocations(&call)).await;
                    return answer.map_err(RuntimeError::panicked);
                }
                Some("/version") => self.model.version.clone(),
                Some(_) => "\n".to_owned(),
                None => return Err(RuntimeError::no_route(route)),
            };
            Ok(scoring::reply(StatusCode::OK, "application/json", text))
        })
    }
}
