//! MLflow's models of scikit-learn, XGBoost, LightGBM, `CatBoost` and ONNX, evaluated natively.
//!
//! A folder's `MLmodel` names the library, the artifact and the signature of a model (`description`). A request, in the V2
//! protocol or in MLflow's own (`scoring`), is converted to the values that Python would pass to the model (`values`),
//! checked against the signature (`enforce`), and answered by one of the evaluators (`evaluator`), or by a graph of ONNX, which takes
//! and returns several arrays (`onnx_flavor`). If the server cannot do
//! one of these steps exactly as MLflow does, it refuses: the model at load, so that Python serves it, or else the request.
//! JSON, numbers and messages of `/invocations` are formatted as by Python (`python`). `protocol` is the same protocol in front of
//! graphs, which take tensors.

mod csv;
mod description;
mod enforce;
mod evaluator;
mod onnx_flavor;
mod protocol;
mod python;
mod scoring;
mod signature;
#[cfg(test)]
mod tests;
mod values;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use self::description::{Flavor, ModelDescription};
use self::enforce::InputError;
use self::evaluator::{Evaluator, Nesting, Prediction};
use self::onnx_flavor::{OnnxFlavor, OnnxGraph};
pub(super) use self::protocol::MlflowProtocol;
use self::signature::{InputSchema, Signature};
use self::values::{ColumnLabel, ColumnValues, DataFrame, ModelInput, NdArray};
use super::columns::ColumnArranger;
use super::describe;
use super::native::{Native, NativeModel, Plan};
use super::row_sizes::{RowSizes, rows};
use super::sklearn::{elements, tensor};
use super::tree_explanations::{self, ExplanationSettings, TreeOutput};
use super::{
    Description as RuntimeDescription, Explanation, FileDescription, ModelFile, OutputError, Progress, Runtime,
    RuntimeError,
};
use crate::codecs::{self, DecodedInputs};
use crate::compute::ComputePool;
use crate::evaluators::sklearn::EstimatorExplanation;
use crate::evaluators::table::Elements;
use crate::evaluators::trees::EnsembleOutput;
use crate::families::NativeEvaluator;
use crate::settings::ModelSettings;
use crate::types::{
    CustomCall, CustomReply, CustomRoute, InferenceRequest, InferenceResponse, ModelMetadata, Parameters, PathTemplate,
    Tensor,
};

/// The largest `MLmodel` that is read, in bytes: 16 MiB is enough for the signature of a hundred thousand columns.
const MAX_DESCRIPTION: u64 = 16 << 20;

/// Signatures with more elements get no example.
const MAX_EXAMPLE_ELEMENTS: usize = 10_000;

/// Bodies that are longer, in bytes, are read on another thread: a body of this length takes about as long as a short prediction.
const INLINE_BODY: usize = 8 << 10;

/// The name of a model's output. The Python runtime uses the same name.
const OUTPUT: &str = "output-1";

/// The routes of a model. A route's number is its index.
const ROUTES: [(Method, &str); 4] =
    [(Method::GET, "/ping"), (Method::GET, "/health"), (Method::GET, "/version"), (Method::POST, "/invocations")];

/// Why a model is not evaluated natively.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    /// The server does not support the model natively, but MLflow may.
    #[error("{0}")]
    Refused(String),
    /// The model is inconsistent, so that MLflow could not load it either.
    #[error("{0}")]
    Damaged(String),
    #[error(transparent)]
    Estimator(crate::evaluators::sklearn::LoadError),
    /// A model of `XGBoost`, `LightGBM` or `CatBoost`.
    #[error(transparent)]
    Trees(crate::evaluators::trees::LoadError),
    #[error(transparent)]
    Onnx(crate::evaluators::onnx::LoadError),
}

impl LoadError {
    /// Returns whether Python may be able to load the model.
    pub(super) fn is_refusal(&self) -> bool {
        match self {
            Self::Refused(_) => true,
            Self::Damaged(_) => false,
            Self::Estimator(error) => error.is_refusal(),
            Self::Trees(error) => error.is_refusal(),
            Self::Onnx(error) => error.is_refusal(),
        }
    }

    /// Returns the error with the path of the artifact.
    fn at(self, path: &Path) -> super::LoadError {
        super::LoadError::Artifact { path: path.to_owned(), unsupported: self.is_refusal(), source: self.into() }
    }
}

/// A loaded model.
#[derive(Debug)]
pub(super) struct MlflowModel {
    model: EnforcedModel,
    content_type: Option<String>,
    row_sizes: RowSizes,
    explanations: ExplanationSettings,
    /// How the model explains its predictions, if it does.
    explained: Option<EstimatorExplanation>,
}

/// A model with its signature, without the settings of requests.
#[derive(Debug)]
struct EnforcedModel {
    name: String,
    version: String,
    signature: Signature,
    evaluator: Evaluator,
    columns: ColumnArranger,
}

impl EnforcedModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Predicts all rows. `are_named` says that the names of columns were given on purpose.
    fn predict(&self, input: &ModelInput, are_named: bool, stop: &AtomicBool) -> Result<Prediction, InputError> {
        if let Some(row) = self.one_row(input) {
            let data = enforce::enforce(&row, &self.signature.input)?;
            return self.evaluator.predict(&data, stop).map(Prediction::of_list);
        }
        let input = self.arranged(input, are_named)?;
        let data = enforce::enforce(&input, &self.signature.input)?;
        self.evaluator.predict(&data, stop)
    }

    /// Returns the row that `CatBoost` takes an array of one dimension for.
    fn one_row(&self, input: &ModelInput) -> Option<ModelInput> {
        let (ModelInput::Array(NdArray { shape, elements }), InputSchema::Any, Evaluator::CatBoost { .. }) =
            (input, &self.signature.input, &self.evaluator)
        else {
            return None;
        };
        let [columns] = shape[..] else { return None };
        Some(ModelInput::Array(NdArray { shape: vec![1, columns], elements: elements.clone() }))
    }

    /// Evaluates an output that explains predictions.
    fn explain(
        &self,
        output: TreeOutput,
        explained: Option<EstimatorExplanation>,
        (input, are_named): (&ModelInput, bool),
        stop: &AtomicBool,
    ) -> Result<Result<Vec<Tensor>, RuntimeError>, InputError> {
        let row = self.one_row(input);
        let input = self.arranged(row.as_ref().unwrap_or(input), are_named)?;
        let data = enforce::enforce(&input, &self.signature.input)?;
        let found = self.evaluator.explain(output.evaluated(), &data, stop)?;
        Ok(tree_explanations::tensors(explained, output, data.rows(), found))
    }

    /// Puts the columns of a frame into the order of the features, if neither a signature nor the library does that.
    fn arranged<'i>(&self, input: &'i ModelInput, are_named: bool) -> Result<Cow<'i, ModelInput>, InputError> {
        let (ModelInput::Frame(frame), InputSchema::Any, Some(features)) =
            (input, &self.signature.input, self.evaluator.features_by_position())
        else {
            return Ok(Cow::Borrowed(input));
        };
        let names: Option<Vec<&str>> = frame.labels.iter().map(ColumnLabel::name).collect();
        let Some(names) = names.filter(|names| names.len() == features.len()) else {
            return Ok(Cow::Borrowed(input));
        };
        let order = self.columns.order(names.into_iter(), features, are_named);
        match order.map_err(|error| InputError::Model(error.to_string()))? {
            Some(order) => Ok(Cow::Owned(ModelInput::Frame(DataFrame {
                labels: order.iter().map(|&index| frame.labels[index].clone()).collect(),
                columns: order.iter().map(|&index| frame.columns[index].clone()).collect(),
                rows: frame.rows,
            }))),
            None => Ok(Cow::Borrowed(input)),
        }
    }
}

fn custom_route((method, path): (Method, &str)) -> Result<CustomRoute, String> {
    let template = PathTemplate::new(path).map_err(|error| error.to_string())?;
    Ok(CustomRoute { method, template })
}

/// Returns the path of `MLmodel`: in the folder `path`, or `path` itself if it is a file.
fn mlmodel_path(path: &Path) -> PathBuf {
    if path.is_dir() { path.join("MLmodel") } else { path.to_owned() }
}

/// What predicts.
#[derive(Debug)]
enum LoadedModel {
    Table(Evaluator),
    Graph(OnnxGraph),
}

/// Reads a folder's `MLmodel`, and the model that it describes. Returns the bytes of its artifact, too.
fn read_model(folder: &Path) -> Result<(ModelDescription, LoadedModel, Bytes), super::LoadError> {
    let path = mlmodel_path(folder);
    let failed = |source: LoadError| source.at(&path);
    let unreadable = |source| super::LoadError::Read { path: path.clone(), source };
    let size = std::fs::metadata(&path).map_err(unreadable)?.len();
    if size > MAX_DESCRIPTION {
        let reason = format!("its size of {size} bytes exceeds the limit of {MAX_DESCRIPTION}");
        return Err(failed(LoadError::Refused(reason)));
    }
    let text = std::fs::read_to_string(&path).map_err(unreadable)?;
    let description = ModelDescription::read(path.parent().unwrap_or(folder), &text).map_err(failed)?;
    let bytes: Bytes = super::implementation::read(&description.artifact, "the artifact that MLmodel names")?.into();
    let model = if description.flavor == Flavor::Onnx {
        OnnxGraph::load(&description, &bytes).map(LoadedModel::Graph)
    } else {
        Evaluator::load(&description, &bytes).map(LoadedModel::Table)
    };
    Ok((description, model.map_err(failed)?, bytes))
}

/// Loads a model from its folder, as a runtime.
pub(super) fn serve(
    folder: &Path,
    settings: &ModelSettings,
    compute: &ComputePool,
) -> Result<Arc<dyn Runtime>, super::LoadError> {
    let (description, model, _) = read_model(folder)?;
    Ok(match model {
        LoadedModel::Table(evaluator) => {
            let (model, description) = MlflowModel::new(folder, settings, description, evaluator)?;
            Arc::new(Native::new(model, description, compute.clone()))
        }
        LoadedModel::Graph(graph) => {
            let (model, description) = OnnxFlavor::new(folder, settings, description, graph)?;
            Arc::new(Native::new(model, description, compute.clone()))
        }
    })
}

/// Returns what all models of MLflow have in common for the server.
fn runtime_description(
    folder: &Path,
    settings: &ModelSettings,
    signature: &Signature,
) -> Result<RuntimeDescription, super::LoadError> {
    let routes = ROUTES.into_iter().map(custom_route).collect::<Result<_, _>>();
    Ok(RuntimeDescription {
        metadata: Some(metadata(settings, signature)),
        routes: routes.map_err(|error| LoadError::Refused(error).at(&mlmodel_path(folder)))?,
        v1: None,
        file: Some(ModelFile { evaluator: NativeEvaluator::Mlflow, path: folder.to_owned() }),
        ..RuntimeDescription::native()
    })
}

/// Returns the content type of requests that name none.
fn default_content_type(description: &RuntimeDescription) -> Option<String> {
    let metadata = description.metadata.as_ref()?;
    metadata.parameters.content_type().map(str::to_owned)
}

/// Describes the model in a folder with an `MLmodel`, and whether it is evaluated natively.
pub(super) fn describe(folder: &Path) -> Result<FileDescription, super::LoadError> {
    match read_model(folder) {
        Ok((description, model, artifact_bytes)) => {
            let ModelDescription { artifact, predict_fn, version, signature, .. } = description;
            let title = format!(
                "MLflow model\nartifact: {}\npredict_fn: {predict_fn}\nsignature: {}",
                artifact.display(),
                signature.input,
            );
            let examples = match &signature.input {
                InputSchema::Any => match &model {
                    LoadedModel::Table(_) => vec![describe::row("FP64", &[json!(0.0)])],
                    LoadedModel::Graph(graph) => graph.example().into_iter().collect(),
                },
                InputSchema::Columns(columns) => {
                    let inputs: Vec<Value> = columns
                        .iter()
                        .map(|column| {
                            let (datatype, value) = column.kind.example();
                            describe::column(&column.name, datatype, &value)
                        })
                        .collect();
                    vec![json!({"parameters": {"content_type": "pd"}, "inputs": inputs})]
                }
                InputSchema::Tensor { kind, shape } => {
                    let (datatype, value) = kind.0.example();
                    let shape: Vec<usize> = shape.iter().map(|size| usize::try_from(*size).unwrap_or(1)).collect();
                    let count = shape.iter().try_fold(1_usize, |count, size| count.checked_mul(*size));
                    let count = count.filter(|count| *count <= MAX_EXAMPLE_ELEMENTS);
                    let data = count.map(|count| vec![value; count]);
                    let input =
                        data.map(|data| json!({"name": "x", "shape": shape, "datatype": datatype, "data": data}));
                    input.map(|input| json!({"inputs": [input]})).into_iter().collect()
                }
            };
            // With a signature, MLflow itself finds columns by name, and needs all of them.
            let ((columns, unread_columns), features) = match &model {
                LoadedModel::Table(evaluator) if matches!(signature.input, InputSchema::Any) => {
                    (evaluator.columns(&artifact_bytes), evaluator.features_by_position())
                }
                LoadedModel::Table(_) | LoadedModel::Graph(_) => (<_>::default(), None),
            };
            Ok(FileDescription {
                title,
                version: Some(format!("mlflow {version}")),
                not_native: None,
                inputs: signature.inputs,
                columns,
                unread_columns,
                found_by_name: describe::found_by_name(features),
                outputs: match &model {
                    LoadedModel::Table(_) => vec![OUTPUT.to_owned()],
                    LoadedModel::Graph(graph) => graph.output_names(),
                },
                examples,
            })
        }
        Err(super::LoadError::Artifact { source, .. }) => Ok(describe::refused("MLflow model".to_owned(), &source)),
        Err(error) => Err(error),
    }
}

impl MlflowModel {
    fn new(
        folder: &Path,
        settings: &ModelSettings,
        ModelDescription { version, signature, .. }: ModelDescription,
        mut evaluator: Evaluator,
    ) -> Result<(Self, RuntimeDescription), super::LoadError> {
        let explanations = ExplanationSettings::of(settings)?;
        evaluator.set_contribution_limit(explanations.max_bytes);
        let explained = evaluator.explanation();
        let description = RuntimeDescription {
            explanation: explained.map(|explained| Explanation {
                space: (explanations.is_on && evaluator.has_contributions())
                    .then(|| tree_explanations::space(explained.space).into()),
                feature_names: evaluator.explained_names().map(Into::into),
            }),
            ..runtime_description(folder, settings, &signature)?
        };
        let content_type = default_content_type(&description);
        let model = EnforcedModel {
            columns: ColumnArranger::new(&settings.name),
            name: settings.name.clone(),
            version,
            signature,
            evaluator,
        };
        Ok((Self { model, content_type, row_sizes: RowSizes::default(), explanations, explained }, description))
    }

    /// Decodes a request as the Python runtime does.
    fn model_input(&self, request: &InferenceRequest) -> Result<ModelInput, RuntimeError> {
        let default = self.content_type.as_deref();
        match request.parameters.content_type().or(default) {
            Some("np" | "pd" | "str") => model_input(request, default),
            other => Err(unsupported_content_type(other, "`np`, `pd` or `str`", "`np` or `pd`")),
        }
    }

    /// Returns the size of a row of the response to a request, in bytes, or `None` if the model rejects the request.
    fn row_bytes(&self, request: &InferenceRequest) -> Option<usize> {
        let inputs = request.inputs.iter().map(|input| input.slice_rows(0..1)).collect::<Option<_>>()?;
        let first = InferenceRequest { parameters: request.parameters.clone(), inputs, ..InferenceRequest::default() };
        let input = self.model_input(&first).ok()?;
        self.model.evaluator.row_bytes(&enforce::enforce(&input, &self.model.signature.input).ok()?)
    }

    /// Returns the outputs to compute, in the requested order; `None` is the prediction. Requested outputs are ignored, as the original
    /// does, unless one explains the prediction, which the original never had.
    fn outputs(&self, request: &InferenceRequest) -> Result<Vec<Option<TreeOutput>>, RuntimeError> {
        let explains = tree_explanations::count(&request.outputs);
        let outputs = if explains > 0 {
            OutputError::check_count(&request.outputs, 1 + explains)?;
            let of_name = |name: &str| match (tree_explanations::output(name), name) {
                (Some(output), _) => Ok(Some(TreeOutput::Whole(output))),
                (None, OUTPUT | "predict") => Ok(None),
                (None, other) => {
                    let supported = "'predict', 'contributions', 'margin' and 'leaf'";
                    Err(OutputError::unsupported("MLflowRuntime", supported, other))
                }
            };
            request.outputs.iter().map(|output| of_name(&output.name)).collect::<Result<_, _>>()?
        } else {
            vec![self.explanations.default_output.filter(|_| request.outputs.is_empty()).map(TreeOutput::Whole)]
        };
        match self.explained {
            Some(explained) => self.explanations.outputs_of(request, outputs, explained.features),
            None => Ok(outputs),
        }
    }

    fn invocations(&self, call: &CustomCall, stop: &AtomicBool) -> CustomReply {
        scoring::answer(&self.model, &body_type(call), &call.body, stop)
    }
}

/// Returns the error of a request with a content type that is not among the expected ones, or with none.
fn unsupported_content_type(found: Option<&str>, expected: &str, to_set: &str) -> RuntimeError {
    let message = match found {
        Some(other) => format!(
            "unsupported content type `{}`: expected {expected}, because the server evaluates this model natively",
            python::echo_name(other)
        ),
        None => format!("the model has no signature: set the request's `content_type` to {to_set}"),
    };
    RuntimeError::rejected(400, message)
}

/// Decodes an array, or a data frame if the content type is `pd`. `default` is the content type of the model.
fn model_input(request: &InferenceRequest, default: Option<&str>) -> Result<ModelInput, RuntimeError> {
    match codecs::decode_with_text(request, default)? {
        DecodedInputs::Array(tensor) => {
            let is_list = request.parameters.content_type().or(default) == Some("str");
            let shape = if is_list { vec![tensor.len()] } else { tensor.shape.clone() };
            Ok(ModelInput::Array(NdArray { shape, elements: owned_elements(tensor) }))
        }
        DecodedInputs::Frame(columns) => {
            let rows = columns.first().map_or(0, |column| column.len());
            let column = |column: &&Tensor| match column.shape[..] {
                [_] | [_, 1] => ColumnValues::Typed(owned_elements(column)),
                _ => ColumnValues::Objects(vec!["[...]".to_owned(); rows]),
            };
            Ok(ModelInput::Frame(DataFrame {
                labels: columns.iter().map(|column| ColumnLabel::Name(column.name.clone())).collect(),
                columns: columns.iter().map(column).collect(),
                rows,
            }))
        }
    }
}

/// Returns the error of a request that the model or its signature rejects.
fn input_error(error: InputError, input: &ModelInput, schema: &InputSchema) -> RuntimeError {
    let message = match error {
        InputError::Schema(reason) => {
            format!("Failed to enforce schema of data '{input}' with schema '{schema}'. Error: {reason}")
        }
        InputError::Model(reason) | InputError::Internal(reason) => reason,
        InputError::NotNative(reason) => format!("the server evaluates this model natively, and {reason}"),
    };
    RuntimeError::rejected(400, message)
}

/// Returns the content type of a body, empty if there is none.
fn body_type(call: &CustomCall) -> Cow<'_, str> {
    call.headers.get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes())).unwrap_or_default()
}

fn owned_elements(tensor: &Tensor) -> Elements<'static> {
    let elements = elements(tensor);
    let count = elements.len();
    values::take(&elements, 0..count)
}

/// Returns the model's metadata. Its signature overrides the inputs, outputs and content type of the settings.
fn metadata(settings: &ModelSettings, signature: &Signature) -> ModelMetadata {
    let schema_content_type = match signature.input {
        InputSchema::Any => None,
        InputSchema::Columns(_) => Some("pd"),
        InputSchema::Tensor { .. } => Some("np"),
    };
    let mut metadata = ModelMetadata::declared(settings);
    if let Some(content_type) = schema_content_type {
        if metadata.parameters.content_type.is_some() || !settings.inputs.is_empty() || !settings.outputs.is_empty() {
            let model = &settings.name;
            tracing::warn!(
                model,
                "The model's signature overrides the inputs, outputs and content type of its settings."
            );
        }
        metadata.inputs.clone_from(&signature.inputs);
        metadata.parameters = Parameters::with_content_type(content_type);
    }
    if !signature.outputs.is_empty() {
        metadata.outputs.clone_from(&signature.outputs);
    }
    metadata
}

impl NativeModel for MlflowModel {
    type Prepared<'r> = Vec<Option<TreeOutput>>;

    const COPIES: usize = 2;

    fn plan(&self, request: &InferenceRequest) -> Result<Plan<Vec<Option<TreeOutput>>>, RuntimeError> {
        let outputs = self.outputs(request)?;
        let (rows, evaluator) = (rows(request), &self.model.evaluator);
        let (mut cost, mut bytes) = (Duration::ZERO, 0_usize);
        for output in &outputs {
            let (more_cost, more_bytes) = match output {
                None => (evaluator.estimate(rows), self.row_sizes.response_bytes(request, || self.row_bytes(request))),
                Some(output) => (
                    evaluator.estimate_explained(rows, output.evaluated()),
                    tree_explanations::row_bytes(self.explained, *output).saturating_mul(rows),
                ),
            };
            cost = cost.saturating_add(more_cost);
            bytes = bytes.saturating_add(more_bytes);
        }
        Ok(Plan { cost, bytes, prepared: outputs })
    }

    fn is_unprepared(&self, outputs: &Vec<Option<TreeOutput>>) -> bool {
        let wanted = outputs.iter().flatten().any(|output| output.evaluated() == EnsembleOutput::Contributions);
        wanted && !self.model.evaluator.has_prepared_contributions()
    }

    fn preparation_bytes(&self) -> usize {
        self.model.evaluator.contribution_bytes()
    }

    fn answer(
        &self,
        request: &InferenceRequest,
        wanted: Vec<Option<TreeOutput>>,
        stop: &AtomicBool,
    ) -> Result<InferenceResponse, RuntimeError> {
        let input = self.model_input(request)?;
        let are_named = request.parameters.has_named_columns();
        let refused = |error| input_error(error, &input, &self.model.signature.input);
        let mut parameters = Parameters::with_content_type("np");
        let mut outputs = Vec::with_capacity(wanted.len());
        for output in wanted {
            if let Some(output) = output {
                let found = self.model.explain(output, self.explained, (&input, are_named), stop);
                outputs.extend(found.map_err(refused)??);
                continue;
            }
            let prediction = self.model.predict(&input, are_named, stop).map_err(refused)?;
            let is_scalar = prediction.nesting == Nesting::Scalar;
            let is_text = is_scalar && matches!(prediction.elements, Elements::Text(_));
            let shape = if is_scalar && !is_text { vec![1] } else { vec![prediction.rows, prediction.columns] };
            let mut output = tensor(OUTPUT, shape, prediction.elements)?;
            output.parameters = Parameters::with_content_type(if is_text { "str" } else { "np" });
            // The response has the content type of the prediction.
            parameters.clone_from(&output.parameters);
            outputs.push(output);
        }
        Ok(InferenceResponse { parameters, outputs, ..InferenceResponse::default() })
    }

    fn call_cost(&self, route: usize, call: &CustomCall) -> Duration {
        match route_path(route) {
            Some("/invocations") if call.body.len() > INLINE_BODY => Duration::MAX,
            // Estimates the number of rows, at 16 bytes each.
            Some("/invocations") => self.model.evaluator.estimate(call.body.len() / 16),
            _ => Duration::ZERO,
        }
    }

    fn call(
        &self,
        route: usize,
        call: &CustomCall,
        _: &dyn Progress,
        stop: &AtomicBool,
    ) -> Result<CustomReply, RuntimeError> {
        match route_path(route) {
            Some("/invocations") => Ok(self.invocations(call, stop)),
            _ => probe(route, &self.model.version),
        }
    }
}

/// Answers a call of a route without a body. `version` is that of MLflow.
fn probe(route: usize, version: &str) -> Result<CustomReply, RuntimeError> {
    let text = match route_path(route) {
        Some("/version") => version.to_owned(),
        Some(_) => "\n".to_owned(),
        None => return Err(RuntimeError::no_route(route)),
    };
    Ok(scoring::reply(StatusCode::OK, "application/json", text))
}

fn route_path(route: usize) -> Option<&'static str> {
    ROUTES.get(route).map(|(_, path)| *path)
}
