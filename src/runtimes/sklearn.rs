//! Requests for scikit-learn's estimators: from tensors to the evaluator and back.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;

use super::columns::ColumnArranger;
use super::native::{NativeModel, Plan};
use super::row_sizes::{RowSizes, rows};
use super::tree_explanations::{self, ExplanationSettings, TreeOutput};
use super::{Explanation, OutputError, RuntimeError};
use crate::codecs::{self, DecodedInputs};
use crate::evaluators::sklearn::{EstimatorExplanation, EstimatorMethod, FittedEstimator, LoadError, PredictError};
use crate::evaluators::table::{DataFrame, DenseTable, Elements, IntType, TableData, TableError};
use crate::evaluators::trees::EnsembleOutput;
use crate::settings::ModelSettings;
use crate::types::{
    BytesElements, Datatype, InferenceRequest, InferenceResponse, Parameters, RequestedOutput, Tensor, TensorData,
};

/// The maximum number of elements of a response that is sparse in Python. It is sent with all its zeros, so a few rows of a
/// large vocabulary could fill the memory. 128 MiB.
const MAX_CELLS: usize = 1 << 24;

/// The content types that numbers cannot be sent as, and texts only as the first.
const TEXT_CODECS: [&str; 3] = ["str", "base64", "datetime"];

/// A loaded estimator.
#[derive(Debug)]
pub(super) struct SklearnModel {
    model: FittedEstimator,
    content_type: Option<String>,
    /// The output of requests that name none.
    default_output: String,
    /// The content types of outputs, from the metadata of the model.
    output_types: HashMap<String, String>,
    row_sizes: RowSizes,
    columns: ColumnArranger,
    explanations: ExplanationSettings,
    /// How the model explains its predictions, if it does.
    explained: Option<EstimatorExplanation>,
}

/// An output of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SklearnOutput {
    /// What a method returns.
    Method(EstimatorMethod),
    /// What explains it.
    Tree(TreeOutput),
}

impl From<TreeOutput> for SklearnOutput {
    fn from(output: TreeOutput) -> Self {
        Self::Tree(output)
    }
}

impl SklearnOutput {
    const fn method(self) -> Option<EstimatorMethod> {
        match self {
            Self::Method(method) => Some(method),
            Self::Tree(_) => None,
        }
    }

    /// Returns the name by which requests ask for it.
    fn name(self) -> &'static str {
        match self {
            Self::Method(method) => method.name(),
            Self::Tree(output) => tree_explanations::name(output.evaluated()).unwrap_or_default(),
        }
    }
}

impl SklearnModel {
    /// Loads a file that `pickle`, `joblib` or `skops` wrote.
    pub(super) fn load(
        file: Bytes,
        settings: &ModelSettings,
        explanations: ExplanationSettings,
    ) -> Result<Self, LoadError> {
        let mut model = FittedEstimator::load(file)?;
        model.set_contribution_limit(explanations.max_bytes);
        let predict_fn = settings.parameters.extra.get("predict_fn").and_then(|name| name.as_str());
        let output_types = settings.outputs.iter().filter_map(|output| {
            let content_type = output.parameters.content_type()?;
            Some((output.name.clone(), content_type.to_owned()))
        });
        Ok(Self {
            explained: model.explanation().ok(),
            model,
            content_type: settings.parameters.content_type.clone(),
            default_output: predict_fn.unwrap_or(EstimatorMethod::Predict.name()).to_owned(),
            output_types: output_types.collect(),
            row_sizes: RowSizes::default(),
            columns: ColumnArranger::new(&settings.name),
            explanations,
        })
    }

    /// Returns how the model explains its predictions, if it does.
    pub(super) fn explanation(&self) -> Option<Explanation> {
        let space = tree_explanations::space(self.explained?.space);
        let is_on = self.explanations.is_on && self.model.check_contributions().is_ok();
        Some(Explanation {
            space: is_on.then(|| space.into()),
            feature_names: self.model.explained_names().map(<[String]>::to_vec).map(Into::into),
        })
    }

    /// Returns the names of the features, if the file has them.
    pub(super) fn features(&self) -> Option<Arc<[String]>> {
        let model = &self.model;
        let names = model.feature_names().or_else(|| model.features_by_position()).or_else(|| model.explained_names());
        names.map(<[String]>::to_vec).map(Into::into)
    }

    /// Returns the outputs to compute, in the requested order.
    fn outputs(&self, request: &InferenceRequest) -> Result<Vec<SklearnOutput>, RuntimeError> {
        let outputs = if request.outputs.is_empty() {
            vec![self.output(&self.default_output)?]
        } else {
            let most = self.model.methods().iter().count() + tree_explanations::count(&request.outputs);
            OutputError::check_count(&request.outputs, most)?;
            request.outputs.iter().map(|output| self.output(&output.name)).collect::<Result<_, _>>()?
        };
        match self.explained {
            Some(explained) => self.explanations.outputs_of(request, outputs, explained.features),
            None => Ok(outputs),
        }
    }

    fn output(&self, name: &str) -> Result<SklearnOutput, RuntimeError> {
        let Some(output) = tree_explanations::output(name) else {
            return Ok(SklearnOutput::Method(self.method(name)?));
        };
        self.model.check_explained(output)?;
        Ok(TreeOutput::Whole(output).into())
    }

    fn method(&self, name: &str) -> Result<EstimatorMethod, RuntimeError> {
        let Some(method) = EstimatorMethod::ALL.into_iter().find(|method| method.name() == name) else {
            let supported = "'predict', 'predict_proba' and 'transform'";
            return Err(OutputError::unsupported("SKLearnModel", supported, name).into());
        };
        if self.model.methods().contains(method) {
            return Ok(method);
        }
        let model = format!("<class '{}'>", self.model.class_path());
        Err(OutputError::Missing { model: model.into(), output: method.name() }.into())
    }

    /// Returns the size of a row of what these methods return, in bytes, or `None` if the model rejects the request.
    fn row_bytes(&self, request: &InferenceRequest, methods: &[EstimatorMethod]) -> Option<usize> {
        let inputs = request.inputs.iter().map(|input| input.slice_rows(0..0)).collect::<Option<_>>()?;
        let none = InferenceRequest { parameters: request.parameters.clone(), inputs, ..InferenceRequest::default() };
        let decoded = codecs::decode_with_text(&none, self.content_type.as_deref()).ok()?;
        let data = data(&decoded, self.model.n_features(), elements).ok()?;
        methods.iter().map(|&method| self.model.row_bytes(method, &data)).sum()
    }

    /// Evaluates an output that explains predictions.
    fn explain(
        &self,
        output: TreeOutput,
        data: &TableData<'_>,
        stop: &AtomicBool,
    ) -> Result<Vec<Tensor>, RuntimeError> {
        let found = self.model.explain(output.evaluated(), data, stop)?;
        tree_explanations::tensors(self.explained, output, data.rows(), found)
    }

    /// Returns the content type of an output: the one that the request or else the metadata specify, if it is valid for the
    /// values. The default for all others is `np`.
    fn content_type_of(
        &self,
        output: SklearnOutput,
        requested: Option<&RequestedOutput>,
        is_text_column: bool,
    ) -> Result<&'static str, RuntimeError> {
        let from_metadata = || self.output_types.get(output.name()).map(String::as_str);
        let wanted = requested.and_then(|output| output.parameters.content_type()).or_else(from_metadata);
        let Some(codec) = TEXT_CODECS.into_iter().find(|&codec| wanted == Some(codec)) else { return Ok("np") };
        if codec == "str" && is_text_column {
            return Ok(codec);
        }
        Err(AnswerError::ContentType { output: output.name(), content_type: codec }.into())
    }
}

impl NativeModel for SklearnModel {
    type Prepared<'r> = Vec<SklearnOutput>;

    /// The result of the last step of a pipeline and that of the one before, or a sparse result and the table that it becomes.
    const COPIES: usize = 2;

    fn plan(&self, request: &InferenceRequest) -> Result<Plan<Vec<SklearnOutput>>, RuntimeError> {
        let outputs = self.outputs(request)?;
        let rows = rows(request);
        let cost = outputs.iter().map(|output| match output {
            SklearnOutput::Method(_) => self.model.estimate(rows),
            SklearnOutput::Tree(output) => self.model.estimate_explained(rows, output.evaluated()),
        });
        let methods: Vec<_> = outputs.iter().filter_map(|output| output.method()).collect();
        let of_methods = match &methods[..] {
            [] => 0,
            methods => self.row_sizes.response_bytes(request, || self.row_bytes(request, methods)),
        };
        let explained = outputs.iter().map(|output| match output {
            SklearnOutput::Method(_) => 0,
            SklearnOutput::Tree(output) => tree_explanations::row_bytes(self.explained, *output).saturating_mul(rows),
        });
        let bytes = explained.fold(of_methods, usize::saturating_add);
        Ok(Plan { cost: cost.fold(Duration::ZERO, Duration::saturating_add), bytes, prepared: outputs })
    }

    fn is_unprepared(&self, outputs: &Vec<SklearnOutput>) -> bool {
        let contributes = |output: &SklearnOutput| match output {
            SklearnOutput::Tree(output) => output.evaluated() == EnsembleOutput::Contributions,
            SklearnOutput::Method(_) => false,
        };
        outputs.iter().any(contributes) && !self.model.has_prepared_contributions()
    }

    fn preparation_bytes(&self) -> usize {
        self.model.contribution_bytes()
    }

    fn answer(
        &self,
        request: &InferenceRequest,
        outputs: Vec<SklearnOutput>,
        stop: &AtomicBool,
    ) -> Result<InferenceResponse, RuntimeError> {
        let decoded = codecs::decode_with_text(request, self.content_type.as_deref())?;
        let decoded = self.columns.arrange(decoded, self.model.features_by_position(), request)?;
        let data = data(&decoded, self.model.n_features(), elements)?;
        let mut tensors: Vec<Tensor> = Vec::with_capacity(outputs.len());
        // Which tensors belong to each output.
        let mut places: Vec<Range<usize>> = Vec::with_capacity(outputs.len());
        for (index, &output) in outputs.iter().enumerate() {
            let start = tensors.len();
            if let Some(same) = outputs[..index].iter().position(|earlier| *earlier == output) {
                // Shares the elements.
                tensors.extend_from_within(places[same].clone());
            } else {
                match output {
                    SklearnOutput::Tree(output) => tensors.extend(self.explain(output, &data, stop)?),
                    SklearnOutput::Method(method) => match self.call(method, &data, stop)? {
                        Answer::Tensor(tensor) => tensors.push(tensor),
                        // The columns of a data frame replace all outputs.
                        Answer::Columns(_) if outputs.len() > 1 => {
                            let names = outputs.iter().map(|output| output.name()).collect();
                            return Err(AnswerError::Columns { method: method.name(), requested: names }.into());
                        }
                        Answer::Columns(columns) => {
                            return Ok(InferenceResponse { outputs: columns, ..InferenceResponse::default() });
                        }
                    },
                }
            }
            for tensor in &mut tensors[start..] {
                let content_type = self.content_type_of(output, request.outputs.get(index), is_text_column(tensor))?;
                tensor.parameters = Parameters::with_content_type(content_type);
            }
            places.push(start..tensors.len());
        }
        Ok(InferenceResponse { outputs: tensors, ..InferenceResponse::default() })
    }
}

/// What a method returns.
enum Answer {
    Tensor(Tensor),
    /// The columns of a data frame.
    Columns(Vec<Tensor>),
}

impl SklearnModel {
    /// Calls a method for all rows.
    fn call(&self, method: EstimatorMethod, data: &TableData<'_>, stop: &AtomicBool) -> Result<Answer, RuntimeError> {
        let table = match self.model.call_until(method, data, stop)? {
            TableData::Table(table) => table,
            TableData::Sparse(sparse) => {
                let (rows, columns) = (sparse.rows(), sparse.columns());
                let error = PredictError::Sparse { method, rows, columns, most: MAX_CELLS };
                sparse.to_table(MAX_CELLS).ok_or(error)?
            }
            TableData::Frame(frame) if frame.names().is_empty() => {
                return Err(PredictError::Objects { method }.into());
            }
            TableData::Frame(frame) => {
                let rows = frame.rows();
                let column = |(name, column): (_, _)| tensor(AsRef::<str>::as_ref(&name), vec![rows, 1], column);
                return Ok(Answer::Columns(frame.into_columns().map(column).collect::<Result<_, _>>()?));
            }
        };
        let shape = vec![table.rows(), table.columns()];
        Ok(Answer::Tensor(tensor(method.name(), shape, table.into_elements())?))
    }
}

/// Returns whether an output is a column of texts.
fn is_text_column(output: &Tensor) -> bool {
    output.datatype == Datatype::Bytes && output.shape.get(1) == Some(&1)
}

/// The reasons why an estimator's output cannot be sent as requested.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    #[error("output `{output}` cannot be sent as `{content_type}`: expected `np`, or `str` for a column of texts")]
    ContentType { output: &'static str, content_type: &'static str },
    #[error("output `{output}` has missing values among its texts, which a tensor cannot hold")]
    MissingText { output: String },
    /// Several outputs were requested, one of which is a data frame.
    #[error(
        "{method} returned columnar data of type <class 'pandas.core.frame.DataFrame'> and {requested:?} were requested. Cannot encode multiple columnar data responses into one response."
    )]
    Columns { method: &'static str, requested: Vec<&'static str> },
}

impl From<AnswerError> for RuntimeError {
    fn from(error: AnswerError) -> Self {
        Self::invalid_request(error)
    }
}

impl From<TableError> for RuntimeError {
    fn from(error: TableError) -> Self {
        Self::invalid_request(error)
    }
}

impl From<PredictError> for RuntimeError {
    fn from(error: PredictError) -> Self {
        Self::invalid_request(error)
    }
}

/// Converts the tensors of a request to a table, with the elements as `elements` converts them.
pub(super) fn data<'a>(
    decoded: &DecodedInputs<'a>,
    features: Option<usize>,
    elements: impl for<'t> Fn(&'t Tensor) -> Elements<'t>,
) -> Result<TableData<'a>, RuntimeError> {
    match decoded {
        DecodedInputs::Array(tensor) => {
            // A list of texts is one column.
            let (rows, columns) = match tensor.shape[..] {
                [rows, columns] => (rows, columns),
                [rows] if tensor.datatype == Datatype::Bytes => (rows, 1),
                _ => {
                    let (input, found) = (tensor.name.clone(), tensor.shape.clone());
                    return Err(codecs::CodecError::Shape { input, found, features: features.unwrap_or(1) }.into());
                }
            };
            Ok(TableData::Table(DenseTable::new(elements(tensor), rows, columns)?))
        }
        DecodedInputs::Frame(columns) => {
            let names = columns.iter().map(|column| Cow::Borrowed(column.name.as_str())).collect();
            let elements = columns.iter().map(|column| elements(column)).collect();
            Ok(TableData::Frame(DataFrame::new(names, elements, decoded.rows())?))
        }
    }
}

/// Returns the elements of a tensor. Numbers of the types that most estimators compute in are borrowed.
pub(super) fn elements(tensor: &Tensor) -> Elements<'_> {
    let int = match tensor.datatype {
        Datatype::Fp32 => return Elements::F32(tensor.elements().unwrap_or_default()),
        Datatype::Fp64 => return Elements::F64(tensor.elements().unwrap_or_default()),
        Datatype::Fp16 => return halves(tensor, half::f16::to_f64),
        Datatype::Bf16 => return halves(tensor, half::bf16::to_f64),
        Datatype::Bytes => return texts(tensor),
        Datatype::Bool => IntType::Bool,
        Datatype::Int8 => IntType::I8,
        Datatype::Int16 => IntType::I16,
        Datatype::Int32 => IntType::I32,
        Datatype::Int64 => IntType::I64,
        Datatype::Uint8 => IntType::U8,
        Datatype::Uint16 => IntType::U16,
        Datatype::Uint32 => IntType::U32,
        Datatype::Uint64 => IntType::U64,
    };
    integers(tensor, int)
}

fn halves<T: crate::types::Element>(tensor: &Tensor, widen: fn(T) -> f64) -> Elements<'_> {
    let values = tensor.elements::<T>().unwrap_or_default();
    Elements::F64(values.iter().copied().map(widen).collect())
}

fn texts(tensor: &Tensor) -> Elements<'_> {
    match &tensor.data {
        TensorData::Variable(bytes) => {
            Elements::Text(bytes.iter().map(|text| String::from_utf8_lossy(text).into()).collect())
        }
        TensorData::Irregular(data) => {
            let texts = data.texts().unwrap_or_default();
            Elements::PartialText(texts.into_iter().map(|text| text.map(Into::into)).collect())
        }
        TensorData::Fixed(_) => Elements::Text(Vec::new()),
    }
}

fn integers(tensor: &Tensor, int: IntType) -> Elements<'_> {
    fn widen<T: crate::types::Element + Into<i64>>(tensor: &Tensor) -> Cow<'_, [i64]> {
        tensor.elements::<T>().unwrap_or_default().iter().copied().map(Into::into).collect()
    }
    let values = match int {
        IntType::I64 => tensor.elements().unwrap_or_default(),
        IntType::I8 => widen::<i8>(tensor),
        IntType::I16 => widen::<i16>(tensor),
        IntType::I32 => widen::<i32>(tensor),
        IntType::U8 => widen::<u8>(tensor),
        IntType::U16 => widen::<u16>(tensor),
        IntType::U32 => widen::<u32>(tensor),
        // No estimator distinguishes integers beyond the range of `i64`, so they may be rounded.
        IntType::U64 => {
            let values = tensor.elements::<u64>().unwrap_or_default();
            let narrowed: Option<_> = values.iter().map(|&value| i64::try_from(value).ok()).collect();
            match narrowed {
                Some(narrowed) => narrowed,
                None => return Elements::F64(values.iter().map(|&value| to_f64(value)).collect()),
            }
        }
        IntType::Bool => match &tensor.data {
            TensorData::Fixed(bytes) => bytes.iter().map(|&byte| i64::from(byte)).collect(),
            TensorData::Variable(_) | TensorData::Irregular(_) => Cow::default(),
        },
    };
    Elements::Int(values, int)
}

#[expect(clippy::cast_precision_loss, reason = "as NumPy's cast of integers to float64")]
const fn to_f64(value: u64) -> f64 {
    value as f64
}

pub(super) fn tensor(name: &str, shape: Vec<usize>, elements: Elements<'_>) -> Result<Tensor, RuntimeError> {
    let tensor = match elements {
        Elements::F32(values) => Tensor::from_values(name, shape, values),
        Elements::F64(values) => Tensor::from_values(name, shape, values),
        Elements::Int(values, IntType::I64) => Tensor::from_values(name, shape, values),
        Elements::Int(values, int) => {
            let (datatype, width) = width(int);
            // Results are values of labels, which fit the type that they were read from.
            let bytes = values.iter().flat_map(|value| value.to_le_bytes().into_iter().take(width));
            Tensor::from_raw(name, datatype, shape, bytes.collect::<Bytes>())
        }
        Elements::PartialText(_) => {
            return Err(AnswerError::MissingText { output: name.to_owned() }.into());
        }
        Elements::Text(values) => {
            let texts: BytesElements = values.iter().map(|text| text.as_bytes()).collect();
            let data = TensorData::Variable(texts.with_text(true));
            let (name, datatype) = (name.to_owned(), Datatype::Bytes);
            let tensor =
                Tensor { name, datatype, shape, parameters: Parameters::new(), data, nested: false, as_sent: None };
            tensor.check().map(|()| tensor)
        }
    };
    tensor.map_err(RuntimeError::inconsistent)
}

/// Returns the datatype of integers, and the number of bytes of each.
const fn width(int: IntType) -> (Datatype, usize) {
    match int {
        IntType::Bool => (Datatype::Bool, 1),
        IntType::I8 => (Datatype::Int8, 1),
        IntType::I16 => (Datatype::Int16, 2),
        IntType::I32 => (Datatype::Int32, 4),
        IntType::I64 => (Datatype::Int64, 8),
        IntType::U8 => (Datatype::Uint8, 1),
        IntType::U16 => (Datatype::Uint16, 2),
        IntType::U32 => (Datatype::Uint32, 4),
        IntType::U64 => (Datatype::Uint64, 8),
    }
}
