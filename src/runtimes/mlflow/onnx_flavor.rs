//! MLflow's flavor `onnx`: what its class around a session of onnxruntime feeds to a graph, and returns.
//!
//! A data frame becomes one array of the type that its columns have in common, or for a graph with several inputs a list for each of
//! them. Its predictions are a data frame, whose columns are the flattened outputs. An array, or a dictionary of arrays, is fed as it
//! is, and its predictions are a dictionary. Doubles become singles where the graph takes those; no other type is converted.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::description::ModelDescription;
use super::enforce::{self, InputError, not_native};
use super::protocol::{write_key, write_nested, write_sequence};
use super::python::{self, write_float};
use super::scoring::{self, ScoringError, write_cell};
use super::signature::{InputSchema, Signature};
use super::values::{ColumnValues, DataFrame, ModelInput, NdArray};
use super::{
    INLINE_BODY, LoadError, RuntimeDescription, body_type, default_content_type, elements, input_error, model_input,
    owned_elements, probe, route_path, runtime_description, tensor, unsupported_content_type,
};
use crate::codecs;
use crate::evaluators::onnx::{
    self, DeclaredDimension, ElementType, EvaluateError, Labels, OnnxModel, Shape, TensorFault, ValueInfo,
};
use crate::evaluators::table::{Elements, IntType};
use crate::runtimes::describe::example_input;
use crate::runtimes::native::{NativeModel, Plan, with_copies};
use crate::runtimes::onnx::{ExternalFiles, evaluate_error, not_batched, output};
use crate::runtimes::{LoadError as RuntimeLoadError, Progress, RuntimeError};
use crate::settings::ModelSettings;
use crate::types::{
    CustomCall, CustomReply, InferenceRequest, InferenceResponse, Parameters, RequestErrorKind, Tensor,
};

/// The content types of requests: of an array, of a data frame, and of a dictionary of arrays.
const CONTENT_TYPES: &str = "`np`, `pd` or `dict`";

/// The bytes of a value that is read from a request and converted: once in the type of the request, and once in the widest one.
const READ_BYTES: usize = 2 * size_of::<f64>();

/// A loaded graph, of the operators of tables.
#[derive(Debug)]
pub(super) struct OnnxGraph {
    model: OnnxModel,
    /// The positions of all outputs.
    outputs: Vec<usize>,
}

/// A loaded model.
#[derive(Debug)]
pub(super) struct OnnxFlavor {
    name: String,
    version: String,
    signature: Signature,
    content_type: Option<String>,
    graph: OnnxGraph,
}

/// The prediction of a graph.
#[derive(Debug)]
struct GraphPrediction {
    outputs: Vec<GraphOutput>,
    /// Whether it is a data frame, whose columns are the flattened outputs. Otherwise it is a dictionary of arrays.
    is_frame: bool,
}

/// One output of a graph.
#[derive(Debug)]
struct GraphOutput {
    /// The elements, with a name. The shape is that of the protocol.
    tensor: Tensor,
    /// The shape in the graph.
    shape: Vec<usize>,
    /// The keys of the maps that the output is a list of, and the column of each, sorted as onnxruntime does.
    keys: Option<Vec<(Key, usize)>>,
}

/// The key of a map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Integer(i64),
    Text(String),
}

/// Why a graph does not answer.
#[derive(Debug)]
enum GraphError {
    Input(InputError),
    Evaluate(EvaluateError),
    /// There is no memory for the values of the graph.
    Memory(RuntimeError),
}

impl From<InputError> for GraphError {
    fn from(error: InputError) -> Self {
        Self::Input(error)
    }
}

impl From<EvaluateError> for GraphError {
    fn from(error: EvaluateError) -> Self {
        Self::Evaluate(error)
    }
}

/// The type of numbers in NumPy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberType {
    Single,
    Double,
    Integer(IntType),
}

impl OnnxGraph {
    pub(super) fn load(description: &ModelDescription, file: &[u8]) -> Result<Self, LoadError> {
        let refused = |reason: String| Err(LoadError::Refused(reason));
        if description.predict_fn != "predict" {
            return refused(format!("`predict_fn` is `{}`", description.predict_fn));
        }
        let external = ExternalFiles::new(&description.artifact);
        let model = match OnnxModel::load(file, &|range| external.read(range)) {
            Ok(model) => model,
            // onnxruntime finds data in more places, such as outside of the folder.
            Err(error @ onnx::LoadError::Tensor { problem: TensorFault::External(_), .. }) => {
                return refused(error.to_string());
            }
            Err(error) => return Err(LoadError::Onnx(error)),
        };
        if let Some(half) = model.interface().inputs.iter().find(|input| input.element == ElementType::F16) {
            return refused(format!("input `{}` of its graph is of type float16", half.name));
        }
        let outputs = (0..model.interface().outputs.len()).collect();
        Ok(Self { model, outputs })
    }

    fn inputs(&self) -> &[ValueInfo] {
        &self.model.interface().inputs
    }

    pub(super) fn output_names(&self) -> Vec<String> {
        self.model.interface().outputs.iter().map(|output| output.name.clone()).collect()
    }

    /// Returns a request of one row that a model without a signature may answer.
    pub(super) fn example(&self) -> Option<Value> {
        let inputs = self.inputs().iter().map(example_input).collect::<Option<Vec<_>>>()?;
        Some(json!({"parameters": {"content_type": "dict"}, "inputs": inputs}))
    }

    /// Plans an evaluation of all outputs. Returns `None` if the graph rejects the shapes.
    fn plan(&self, shapes: &[Option<Shape>]) -> Option<onnx::Plan> {
        let given = self.inputs().iter().zip(shapes).map(|(input, shape)| Some((input.element, (*shape)?)));
        self.model.plan(&given.collect::<Option<Vec<_>>>()?, &self.outputs).ok()
    }

    /// Estimates how long a number of rows takes.
    fn estimate(&self, rows: usize) -> Option<Duration> {
        let size = |dimension: (usize, &DeclaredDimension)| match dimension {
            (_, DeclaredDimension::Fixed(size)) => *size,
            (0, _) => rows,
            _ => 1,
        };
        let shape = |input: &ValueInfo| {
            Shape::new(&input.dimensions.as_ref()?.iter().enumerate().map(size).collect::<Vec<_>>())
        };
        let shapes: Vec<_> = self.inputs().iter().map(shape).collect();
        self.plan(&shapes).map(|plan| plan.cost)
    }

    /// Evaluates all outputs, after `reserve` has reserved the memory of the values.
    fn evaluate(
        &self,
        input: ModelInput,
        reserve: &dyn Fn(usize) -> Result<(), RuntimeError>,
        stop: &AtomicBool,
    ) -> Result<GraphPrediction, GraphError> {
        let is_frame = matches!(input, ModelInput::Frame(_));
        let values = self.feeds(input)?;
        let given: Vec<_> = values.iter().map(|value| (value.element_type(), *value.shape())).collect();
        let plan = self.model.plan(&given, &self.outputs)?;
        reserve(planned_bytes(&plan, given.iter().map(|(_, shape)| shape))).map_err(GraphError::Memory)?;
        let results = self.model.evaluate(&plan, values, stop)?;
        let declared = &self.model.interface().outputs;
        let outputs = declared.iter().zip(results).map(|(declared, result)| GraphOutput::new(declared, result));
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        if is_frame && outputs.iter().any(|output| output.len() != outputs[0].len()) {
            return Err(InputError::Model(
                "its outputs have several lengths, which the columns of a data frame cannot have: send an array"
                    .to_owned(),
            )
            .into());
        }
        Ok(GraphPrediction { outputs, is_frame })
    }

    /// Returns the tensor of each input of the graph.
    fn feeds(&self, input: ModelInput) -> Result<Vec<onnx::Tensor<'static>>, InputError> {
        let inputs = self.inputs();
        match input {
            ModelInput::Array(array) => {
                if let [declared] = inputs {
                    return Ok(vec![feed(declared, array)?]);
                }
                let names = python::list(inputs.iter().map(|input| python::repr(&input.name)));
                Err(InputError::Internal(format!(
                    "Unable to map numpy array input to the expected model input. Numpy arrays can only be used as input for MLflow ONNX models that have a single input. This model requires {} inputs. Please pass in data as either a dictionary or a DataFrame with the following tensors: {names}.",
                    inputs.len()
                )))
            }
            ModelInput::Arrays(mut arrays) => {
                let is_known = |name: &str| inputs.iter().any(|input| input.name == name);
                if let Some((other, _)) = arrays.iter().find(|(name, _)| !is_known(name)) {
                    return Err(InputError::Model(format!("it has no input `{}`", python::echo_name(other))));
                }
                let take = |declared: &ValueInfo| {
                    let position = arrays.iter().position(|(name, _)| *name == declared.name);
                    let position = position.ok_or_else(|| missing(declared))?;
                    feed(declared, arrays.swap_remove(position).1)
                };
                inputs.iter().map(take).collect()
            }
            ModelInput::Frame(frame) => match inputs {
                [declared] => {
                    let all: Vec<_> = frame.columns.iter().collect();
                    let elements = joined(&all, frame.rows, declared.element)?;
                    Ok(vec![feed(declared, NdArray { shape: vec![frame.rows, all.len()], elements })?])
                }
                _ => inputs.iter().map(|declared| feed_column(declared, &frame)).collect(),
            },
            ModelInput::Other { class: "dict", .. } => {
                Err(not_native("the fields `messages`, `prompt` and `input` are not supported"))
            }
            ModelInput::Other { class, .. } => {
                Err(InputError::Model(format!("it takes an array, a data frame or a dictionary, not a {class}")))
            }
        }
    }
}

/// Returns the bytes of the values of a graph, and of those that were read for its inputs.
fn planned_bytes<'s>(plan: &onnx::Plan, inputs: impl Iterator<Item = &'s Shape>) -> usize {
    let read = inputs.map(Shape::count).fold(0, usize::saturating_add);
    plan.bytes.saturating_add(read.saturating_mul(READ_BYTES))
}

fn missing(declared: &ValueInfo) -> InputError {
    InputError::Model(format!("its input `{}` is missing", declared.name))
}

/// Returns the tensor of one of several inputs: the column of its name. Columns that share the name are a matrix.
fn feed_column(declared: &ValueInfo, frame: &DataFrame) -> Result<onnx::Tensor<'static>, InputError> {
    let own = frame.labels.iter().zip(&frame.columns).filter(|(label, _)| label.name() == Some(&declared.name));
    let own: Vec<_> = own.map(|(_, column)| column).collect();
    let shape = match own.len() {
        0 => return Err(missing(declared)),
        1 => vec![frame.rows],
        columns => vec![frame.rows, columns],
    };
    feed(declared, NdArray { shape, elements: joined(&own, frame.rows, declared.element)? })
}

/// Returns the tensor of an input.
fn feed(declared: &ValueInfo, NdArray { shape, elements }: NdArray) -> Result<onnx::Tensor<'static>, InputError> {
    let failed = |reason: &str| InputError::Model(format!("input `{}` of its graph {reason}", declared.name));
    let elements = match (elements, declared.element) {
        (Elements::F32(values), ElementType::F32) => onnx::Elements::F32(values.into()),
        (Elements::F64(values), ElementType::F64) => onnx::Elements::F64(values.into()),
        (Elements::F64(values), ElementType::F32) => {
            onnx::Elements::F32(values.iter().copied().map(super::values::narrow).collect::<Vec<f32>>().into())
        }
        (Elements::Int(values, kind), wanted) if element_type(kind) == wanted => integers(values, kind),
        (Elements::Text(values), ElementType::Text) => {
            let texts = values.iter().map(|text| Bytes::copy_from_slice(text.as_bytes()));
            onnx::Elements::Text(texts.collect::<Vec<_>>().into())
        }
        (Elements::PartialText(_), ElementType::Text) => return Err(missing_texts()),
        (other, wanted) => {
            let found = super::signature::dtype(&other).0;
            return Err(failed(&format!("takes values of type {wanted}, not of type {found}")));
        }
    };
    let shape = Shape::new(&shape).ok_or_else(|| failed(&format!("has at most {} dimensions", onnx::MAX_RANK)))?;
    onnx::Tensor::new(shape, elements).ok_or_else(|| failed("has another number of values than its shape"))
}

fn missing_texts() -> InputError {
    not_native("a column of strings has missing ones, or values that are not strings")
}

const fn element_type(kind: IntType) -> ElementType {
    match kind {
        IntType::Bool => ElementType::Bool,
        IntType::I8 => ElementType::I8,
        IntType::I16 => ElementType::I16,
        IntType::I32 => ElementType::I32,
        IntType::I64 => ElementType::I64,
        IntType::U8 => ElementType::U8,
        IntType::U16 => ElementType::U16,
        IntType::U32 => ElementType::U32,
        IntType::U64 => ElementType::U64,
    }
}

/// Returns integers in their own type, which they fit.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the values have been read from this type")]
fn integers(values: Cow<'static, [i64]>, kind: IntType) -> onnx::Elements<'static> {
    fn each<T>(values: &[i64], convert: impl Fn(i64) -> T) -> onnx::Buffer<'static, T> {
        values.iter().copied().map(convert).collect::<Vec<T>>().into()
    }
    match kind {
        IntType::Bool => onnx::Elements::Bool(each(&values, |value| value != 0)),
        IntType::I8 => onnx::Elements::I8(each(&values, |value| value as i8)),
        IntType::I16 => onnx::Elements::I16(each(&values, |value| value as i16)),
        IntType::I32 => onnx::Elements::I32(each(&values, |value| value as i32)),
        IntType::I64 => onnx::Elements::I64(values.into()),
        IntType::U8 => onnx::Elements::U8(each(&values, |value| value as u8)),
        IntType::U16 => onnx::Elements::U16(each(&values, |value| value as u16)),
        IntType::U32 => onnx::Elements::U32(each(&values, |value| value as u32)),
        IntType::U64 => onnx::Elements::U64(each(&values, i64::cast_unsigned)),
    }
}

/// Joins the columns of a frame, row by row, in the type that they have in common in pandas.
fn joined(columns: &[&ColumnValues], rows: usize, wanted: ElementType) -> Result<Elements<'static>, InputError> {
    let mut typed = Vec::with_capacity(columns.len());
    for column in columns {
        match column {
            ColumnValues::Typed(elements) => typed.push(Cow::Borrowed(elements)),
            // A column without values is one of objects, too.
            ColumnValues::Objects(values) if values.is_empty() => typed.push(Cow::Owned(Elements::Text(Vec::new()))),
            ColumnValues::Objects(_) if wanted == ElementType::Text => return Err(missing_texts()),
            ColumnValues::Objects(values) if values.iter().any(|value| is_unsigned(value)) => {
                return Err(not_native("a column has integers beyond INT64"));
            }
            ColumnValues::Objects(_) => return Err(not_numbers(wanted)),
        }
    }
    if let [column] = &typed[..] {
        return Ok(column.clone().into_owned());
    }
    let kinds: Option<Vec<NumberType>> = typed.iter().map(|column| NumberType::of(column)).collect();
    let mut kinds = kinds.unwrap_or_default().into_iter();
    let common = kinds.next().and_then(|first| kinds.try_fold(first, NumberType::joined));
    let cells = || (0..rows).flat_map(|row| typed.iter().map(move |column| (column.as_ref(), row)));
    let Some(common) = common else {
        // An array of objects, which onnxruntime takes for one of strings.
        if wanted != ElementType::Text {
            return Err(not_numbers(wanted));
        }
        let texts: Option<Vec<_>> = cells().map(|(column, row)| python_text(column, row).map(Into::into)).collect();
        return texts.map(Elements::Text).ok_or_else(missing_texts);
    };
    Ok(match common {
        NumberType::Double => Elements::F64(cells().map(|(column, row)| number(column, row)).collect()),
        NumberType::Single => {
            Elements::F32(cells().map(|(column, row)| super::values::narrow(number(column, row))).collect())
        }
        NumberType::Integer(kind) => {
            let cell = |(column, row): (&Elements<'_>, usize)| match column {
                Elements::Int(values, _) => values[row],
                _ => 0,
            };
            Elements::Int(cells().map(cell).collect(), kind)
        }
    })
}

/// Returns whether a text is an integer that only fits in 64 bits without a sign.
fn is_unsigned(text: &str) -> bool {
    text.parse::<i64>().is_err() && text.parse::<u64>().is_ok()
}

fn not_numbers(wanted: ElementType) -> InputError {
    InputError::Model(format!("its graph takes values of type {wanted}, but a column has values of several types"))
}

/// Returns a number as a double.
#[expect(clippy::cast_precision_loss, reason = "as NumPy's cast of integers to float64")]
fn number(column: &Elements<'_>, row: usize) -> f64 {
    match column {
        Elements::F32(values) => f64::from(values[row]),
        Elements::F64(values) => values[row],
        Elements::Int(values, _) => values[row] as f64,
        Elements::Text(_) | Elements::PartialText(_) => f64::NAN,
    }
}

/// Returns a value as Python's `str` writes it, or `None` for a missing text.
fn python_text(column: &Elements<'_>, row: usize) -> Option<String> {
    match column {
        Elements::Text(values) => Some(values[row].to_string()),
        Elements::PartialText(values) => values[row].as_ref().map(ToString::to_string),
        Elements::Int(values, IntType::Bool) => Some(if values[row] == 0 { "False" } else { "True" }.to_owned()),
        Elements::Int(values, _) => Some(values[row].to_string()),
        Elements::F32(_) | Elements::F64(_) => Some(python::float(number(column, row))),
    }
}

impl NumberType {
    /// Returns the type of the numbers of a column, `None` for strings.
    fn of(column: &Elements<'_>) -> Option<Self> {
        match column {
            Elements::F32(_) => Some(Self::Single),
            Elements::F64(_) => Some(Self::Double),
            Elements::Int(_, kind) => Some(Self::Integer(*kind)),
            Elements::Text(_) | Elements::PartialText(_) => None,
        }
    }

    /// Returns the type that has the values of both, as pandas finds it. Booleans and numbers only have objects in common.
    fn joined(self, other: Self) -> Option<Self> {
        if self == other {
            return Some(self);
        }
        Some(match (self, other) {
            (Self::Integer(IntType::Bool), _) | (_, Self::Integer(IntType::Bool)) => return None,
            (Self::Double, _) | (_, Self::Double) => Self::Double,
            (Self::Single, Self::Integer(kind)) | (Self::Integer(kind), Self::Single) => {
                if element_type(kind).width() <= 2 { Self::Single } else { Self::Double }
            }
            (Self::Single, Self::Single) => Self::Single,
            (Self::Integer(one), Self::Integer(two)) => joined_integers(one, two),
        })
    }
}

/// Returns the type that has the integers of both types.
fn joined_integers(one: IntType, two: IntType) -> NumberType {
    let is_signed = |kind| matches!(kind, IntType::I8 | IntType::I16 | IntType::I32 | IntType::I64);
    let width = |kind| element_type(kind).width();
    let (wide, narrow) = if width(one) >= width(two) { (one, two) } else { (two, one) };
    if is_signed(wide) == is_signed(narrow) || (is_signed(wide) && width(wide) > width(narrow)) {
        return NumberType::Integer(wide);
    }
    match width(wide) {
        1 => NumberType::Integer(IntType::I16),
        2 => NumberType::Integer(IntType::I32),
        4 => NumberType::Integer(IntType::I64),
        _ => NumberType::Double,
    }
}

impl GraphOutput {
    fn new(declared: &ValueInfo, result: onnx::Tensor<'_>) -> Result<Self, InputError> {
        let shape = result.shape().dimensions().to_vec();
        let inconsistent = |error: RuntimeError| InputError::Model(error.to_string());
        let tensor = output(declared.name.clone(), result, None).map_err(inconsistent)?;
        Ok(Self { tensor, shape, keys: declared.labels.as_ref().map(sorted_keys) })
    }

    /// Returns the number of values of the output as a list.
    fn len(&self) -> usize {
        match &self.keys {
            Some(_) => self.maps(),
            None => self.shape.iter().product(),
        }
    }

    /// Returns the number of maps.
    fn maps(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Writes a value of the output as a list. `cells` are its elements.
    fn write(&self, text: &mut String, cells: &Elements<'_>, index: usize) {
        let Some(keys) = &self.keys else { return write_cell(text, cells, index) };
        let width: usize = self.shape.iter().skip(1).product();
        write_sequence(text, '{', '}', keys, |text, (key, column)| {
            match key {
                Key::Integer(key) => write_key(text, &key.to_string()),
                Key::Text(key) => write_key(text, key),
            }
            write_cell(text, cells, index * width + column);
        });
    }

    /// Writes the output as MLflow writes the array, or the list of maps.
    fn write_array(&self, text: &mut String) {
        let cells = elements(&self.tensor);
        let maps = [self.maps()];
        let shape = if self.keys.is_some() { &maps[..] } else { &self.shape };
        write_nested(text, shape, 0, &|text, index| self.write(text, &cells, index));
    }

    /// Returns the output in the V2 protocol: as the codec of data frames writes a column, or that of arrays an array.
    fn into_tensor(self, is_frame: bool) -> Result<Tensor, RuntimeError> {
        if self.keys.is_some() {
            let cells = elements(&self.tensor);
            let maps = (0..self.maps()).map(|index| self.json(&cells, index).into()).collect();
            let mut tensor = tensor(&self.tensor.name, vec![self.maps(), 1], Elements::Text(maps))?;
            tensor.parameters = Parameters::with_content_type("pd_json");
            return Ok(tensor);
        }
        let count = self.len();
        let mut tensor = self.tensor;
        if is_frame {
            tensor.shape = vec![count, 1];
            let is_text = tensor.datatype == crate::types::Datatype::Bytes;
            tensor.parameters = if is_text { Parameters::with_content_type("str") } else { Parameters::new() };
        } else if self.shape.is_empty() {
            tensor.shape = vec![1];
        }
        Ok(tensor)
    }

    /// Returns a map as compact JSON. JSON has no missing numbers, which become `null`.
    fn json(&self, cells: &Elements<'_>, index: usize) -> String {
        let width: usize = self.shape.iter().skip(1).product();
        let mut text = "{".to_owned();
        for (position, (key, column)) in self.keys.iter().flatten().enumerate() {
            let key = match key {
                Key::Integer(key) => key.to_string(),
                Key::Text(key) => key.clone(),
            };
            text.push_str(if position > 0 { "," } else { "" });
            text.push_str(&json!(key).to_string());
            text.push(':');
            match number(cells, index * width + column) {
                value if value.is_finite() => write_float(&mut text, value),
                _ => text.push_str("null"),
            }
        }
        text.push('}');
        text
    }
}

/// Returns keys in the order of the maps of onnxruntime, which are sorted. Of equal keys, the last one counts.
fn sorted_keys(labels: &Labels) -> Vec<(Key, usize)> {
    let keys: Vec<Key> = match labels {
        Labels::Integers(labels) => labels.iter().copied().map(Key::Integer).collect(),
        Labels::Texts(labels) => labels.iter().cloned().map(Key::Text).collect(),
    };
    let last: std::collections::BTreeMap<_, _> = keys.into_iter().zip(0..).collect();
    last.into_iter().collect()
}

impl GraphPrediction {
    /// Writes it as MLflow's scoring server does.
    fn text(&self) -> String {
        let mut text = "{\"predictions\": ".to_owned();
        let write_name = |text: &mut String, output: &GraphOutput| write_key(text, &output.tensor.name);
        if self.is_frame {
            let cells: Vec<_> = self.outputs.iter().map(|output| elements(&output.tensor)).collect();
            let rows = self.outputs.first().map_or(0, GraphOutput::len);
            write_sequence(&mut text, '[', ']', 0..rows, |text, row| {
                write_sequence(text, '{', '}', self.outputs.iter().zip(&cells), |text, (output, cells)| {
                    write_name(text, output);
                    output.write(text, cells, row);
                });
            });
        } else {
            write_sequence(&mut text, '{', '}', &self.outputs, |text, output| {
                write_name(text, output);
                output.write_array(text);
            });
        }
        text.push('}');
        text
    }

    fn into_response(self) -> Result<InferenceResponse, RuntimeError> {
        let parameters = Parameters::with_content_type(if self.is_frame { "pd" } else { "dict" });
        let outputs = self.outputs.into_iter().map(|output| output.into_tensor(self.is_frame));
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        Ok(InferenceResponse { parameters, outputs, ..InferenceResponse::default() })
    }
}

impl OnnxFlavor {
    pub(super) fn new(
        folder: &Path,
        settings: &ModelSettings,
        ModelDescription { version, signature, .. }: ModelDescription,
        graph: OnnxGraph,
    ) -> Result<(Self, RuntimeDescription), RuntimeLoadError> {
        let interface = graph.model.interface();
        let is_column = |output: &&ValueInfo| match output.dimensions.as_deref() {
            Some([_] | [_, DeclaredDimension::Fixed(1)]) => true,
            _ => output.labels.is_some(),
        };
        let wide = interface.outputs.iter().find(|output| !is_column(output));
        let wide = wide.filter(|_| !matches!(signature.input, InputSchema::Tensor { .. }));
        let wide = wide.map(|output| {
            let name = &output.name;
            format!("its output `{name}` may have several values for each row, which data frames get below each other")
        });
        let description = RuntimeDescription {
            not_batched: not_batched(&interface.inputs, &interface.outputs).or(wide),
            ..runtime_description(folder, settings, &signature)?
        };
        let content_type = default_content_type(&description);
        Ok((Self { name: settings.name.clone(), version, signature, content_type, graph }, description))
    }

    /// Returns the content type of a request.
    fn content_type<'r>(&'r self, request: &'r InferenceRequest) -> Option<&'r str> {
        request.parameters.content_type().or(self.content_type.as_deref())
    }

    /// Decodes a request as the Python runtime does.
    fn model_input(&self, request: &InferenceRequest) -> Result<ModelInput, RuntimeError> {
        match self.content_type(request) {
            Some("np" | "pd" | "str") => model_input(request, self.content_type.as_deref()),
            Some("dict") => {
                let array = |input: &Tensor| {
                    let array = NdArray { shape: input.shape.clone(), elements: owned_elements(input) };
                    (input.name.clone(), array)
                };
                Ok(ModelInput::Arrays(codecs::decode_named(request)?.iter().map(array).collect()))
            }
            other => Err(unsupported_content_type(other, CONTENT_TYPES, CONTENT_TYPES)),
        }
    }

    /// Returns the shapes that the inputs of the graph get from a request.
    fn shapes(&self, request: &InferenceRequest) -> Vec<Option<Shape>> {
        let first = request.inputs.first();
        let rows = first.map_or(0, Tensor::len);
        let shape = |input: &ValueInfo| match (self.content_type(request), &self.signature.input) {
            (Some("pd"), _) if self.graph.inputs().len() > 1 => Shape::of_list(rows),
            (Some("pd"), InputSchema::Columns(columns)) => Shape::of_matrix(rows, columns.len()),
            (Some("pd"), _) => Shape::of_matrix(rows, request.inputs.len()),
            (Some("str"), _) => Shape::of_list(rows),
            (Some("dict"), _) => {
                let own = request.inputs.iter().find(|tensor| tensor.name == input.name)?;
                Shape::new(&own.shape)
            }
            _ => Shape::new(&first?.shape),
        };
        self.graph.inputs().iter().map(shape).collect()
    }

    fn predict(
        &self,
        input: &ModelInput,
        reserve: &dyn Fn(usize) -> Result<(), RuntimeError>,
        stop: &AtomicBool,
    ) -> Result<GraphPrediction, GraphError> {
        let values = enforce::enforce_values(input, &self.signature.input)?;
        self.graph.evaluate(values.into_owned(), reserve, stop)
    }

    fn invocations(
        &self,
        call: &CustomCall,
        progress: &dyn Progress,
        stop: &AtomicBool,
    ) -> Result<CustomReply, RuntimeError> {
        let schema = &self.signature.input;
        let input = match scoring::read_body(schema, &body_type(call), &call.body) {
            Ok(input) => input,
            Err(error) => return Ok(error.logged_reply(&self.name)),
        };
        // As much as for a request of the V2 protocol, whose size is known before it is read.
        let reserve = |bytes| progress.reserve(with_copies(bytes, Self::COPIES));
        let error = match self.predict(&input, &reserve, stop) {
            Ok(prediction) => {
                return Ok(scoring::reply(http::StatusCode::OK, "application/json", prediction.text()));
            }
            Err(GraphError::Evaluate(error)) if error.is_too_large() => {
                return Err(RuntimeError::new(RequestErrorKind::TooLarge, error));
            }
            Err(GraphError::Memory(error)) => return Err(error),
            Err(GraphError::Evaluate(error)) => InputError::Model(error.to_string()),
            Err(GraphError::Input(error)) => error,
        };
        Ok(ScoringError::of_input(error, &input, schema, &self.name).logged_reply(&self.name))
    }
}

impl NativeModel for OnnxFlavor {
    type Prepared<'r> = ();

    const COPIES: usize = 2;

    fn plan(&self, request: &InferenceRequest) -> Result<Plan<()>, RuntimeError> {
        let shapes = self.shapes(request);
        let read: usize = shapes.iter().flatten().map(Shape::count).fold(0, usize::saturating_add);
        let read_cost = Duration::from_nanos(u64::try_from(read).unwrap_or(u64::MAX));
        let (cost, bytes) = self.graph.plan(&shapes).map_or((Duration::ZERO, 0), |plan| {
            (plan.cost.saturating_add(read_cost), planned_bytes(&plan, shapes.iter().flatten()))
        });
        Ok(Plan { cost, bytes, prepared: () })
    }

    fn answer(&self, request: &InferenceRequest, (): (), stop: &AtomicBool) -> Result<InferenceResponse, RuntimeError> {
        let input = self.model_input(request)?;
        // The plan has been reserved.
        match self.predict(&input, &|_| Ok(()), stop) {
            Ok(prediction) => prediction.into_response(),
            Err(GraphError::Memory(error)) => Err(error),
            Err(GraphError::Evaluate(error)) => Err(evaluate_error(error)),
            Err(GraphError::Input(error)) => Err(input_error(error, &input, &self.signature.input)),
        }
    }

    fn call_cost(&self, route: usize, call: &CustomCall) -> Duration {
        match route_path(route) {
            Some("/invocations") if call.body.len() > INLINE_BODY => Duration::MAX,
            // Estimates the number of rows, at 16 bytes each.
            Some("/invocations") => self.graph.estimate(call.body.len() / 16).unwrap_or(Duration::MAX),
            _ => Duration::ZERO,
        }
    }

    fn call(
        &self,
        route: usize,
        call: &CustomCall,
        progress: &dyn Progress,
        stop: &AtomicBool,
    ) -> Result<CustomReply, RuntimeError> {
        match route_path(route) {
            Some("/invocations") => self.invocations(call, progress, stop),
            _ => probe(route, &self.version),
        }
    }
}
