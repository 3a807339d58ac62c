//! Requests for ONNX models: from tensors to the evaluator and back.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use half::{bf16, f16};
use serde_json::{Value, json};

use super::native::{NativeModel, Plan};
use super::{LoadError, RuntimeError};
use crate::evaluators::onnx::{
    self, DeclaredDimension, Element as OnnxElement, ElementType, Elements, EvaluateError, ExternalRange, Labels,
    OnnxModel, Shape, ValueInfo,
};
use crate::settings::ModelSettings;
use crate::types::{
    BytesElements, Datatype, Element, InferenceRequest, InferenceResponse, ModelMetadata, Parameters, RequestErrorKind,
    RequestedOutput, Tensor, TensorData, TensorMetadata, short,
};

/// The output of requests that name none: the first one of the graph.
pub(super) const PREDICT: &str = "predict";
/// What metadata name as the platform of a model whose settings do not.
const PLATFORM: &str = "onnx";
/// How many times the size of a file with external data may be read, since tensors may share their data.
const READS: u64 = 2;
/// The content type of tables.
const FRAME: &str = "pd";

/// A loaded model.
#[derive(Debug)]
pub(super) struct OnnxRuntime {
    model: OnnxModel,
    content_type: Option<String>,
}

/// What was read from a request.
#[derive(Debug)]
pub(super) struct Prepared<'r> {
    /// The tensor of each input of the graph.
    inputs: Vec<(&'r Tensor, Shape)>,
    /// The outputs: their positions, and their names in the response.
    outputs: Vec<(usize, String)>,
    plan: onnx::Plan,
}

/// Why a request does not fit a model.
#[derive(Debug, thiserror::Error)]
enum OnnxRequestError {
    /// The words of the runtime that the `Python` class follows.
    #[error(
        "Model expects input(s) named {wanted} but received {found}. Missing: {missing}",
        wanted = list(.wanted), found = list(.found), missing = list(.missing)
    )]
    Missing { wanted: Vec<String>, found: Vec<String>, missing: Vec<String> },
    #[error("OnnxModel only supports 'predict' or model outputs ({found} was received)")]
    Output { found: String },
    #[error("input `{input}` is {found}, but the model has {wanted} there: send that")]
    Datatype { input: String, found: Datatype, wanted: Datatype },
    #[error("input `{input}` has the shape {shape:?}: an ONNX tensor has at most {} dimensions", onnx::MAX_RANK)]
    Rank { input: String, shape: Vec<usize> },
    #[error("{found} outputs are requested, but the model has {available}: request each once")]
    TooMany { found: usize, available: usize },
    #[error("the input `{input}` occurs twice")]
    Twice { input: String },
}

impl From<OnnxRequestError> for RuntimeError {
    fn from(error: OnnxRequestError) -> Self {
        Self::invalid_request(error)
    }
}

/// Writes names as Python shows a list of them.
fn list(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("'{}'", short(name))).collect();
    format!("[{}]", quoted.join(", "))
}

impl OnnxRuntime {
    /// Loads the model of a file's bytes, and the data in other files of its folder.
    pub(super) fn load(path: &Path, file: &[u8], settings: &ModelSettings) -> Result<Self, LoadError> {
        let external = ExternalFiles::new(path);
        let model = OnnxModel::load(file, &|range| external.read(range)).map_err(|error| LoadError::Artifact {
            path: path.to_owned(),
            unsupported: error.is_refusal(),
            source: error.into(),
        })?;
        Ok(Self { model, content_type: settings.parameters.content_type.clone() })
    }

    /// Returns the metadata of the file, with those of the settings where they have some.
    pub(super) fn metadata(&self, settings: &ModelSettings) -> ModelMetadata {
        let declared = ModelMetadata::declared(settings);
        let own = |given: Vec<TensorMetadata>, values: &[ValueInfo]| {
            if given.is_empty() { values.iter().map(tensor_metadata).collect() } else { given }
        };
        let mut parameters = declared.parameters;
        let info = self.model.info();
        let opsets: serde_json::Map<String, Value> =
            info.opsets.iter().map(|(domain, version)| (domain.clone(), json!(version))).collect();
        let mut set = |name: &str, value: Value| {
            parameters.others.insert(name.to_owned(), value);
        };
        set("opset", Value::Object(opsets));
        let producer = [info.producer_name.as_str(), info.producer_version.as_str()].join(" ");
        if !producer.trim().is_empty() {
            set("producer", json!(producer.trim()));
        }
        if !info.metadata.is_empty() {
            let entries = info.metadata.iter().map(|(key, value)| (key.clone(), json!(value)));
            set("metadata", Value::Object(entries.collect()));
        }
        ModelMetadata {
            platform: if declared.platform.is_empty() { PLATFORM.to_owned() } else { declared.platform },
            inputs: own(declared.inputs, self.model.inputs()),
            outputs: own(declared.outputs, self.model.outputs()),
            parameters,
            ..declared
        }
    }

    /// Returns why requests cannot be joined along their first dimension, `None` if they can.
    pub(super) fn not_batched(&self) -> Option<String> {
        not_batched(&self.model)
    }

    /// Returns the positions of outputs to compute, and their names in the response.
    fn outputs(&self, request: &InferenceRequest) -> Result<Vec<(usize, String)>, RuntimeError> {
        let outputs = self.model.outputs();
        if request.outputs.is_empty() {
            return Ok(vec![(0, PREDICT.to_owned())]);
        }
        let available = outputs.len() + 1;
        if request.outputs.len() > available {
            return Err(OnnxRequestError::TooMany { found: request.outputs.len(), available }.into());
        }
        let of_name = |RequestedOutput { name, .. }: &RequestedOutput| {
            let own = outputs.iter().position(|output| output.name == *name);
            let position = own.or_else(|| (name == PREDICT).then_some(0));
            match position {
                Some(position) => Ok((position, name.clone())),
                None => Err(OnnxRequestError::Output { found: short(name).to_owned() }.into()),
            }
        };
        request.outputs.iter().map(of_name).collect()
    }

    /// Finds the tensor of each input of the graph.
    fn inputs<'r>(&self, request: &'r InferenceRequest) -> Result<Vec<(&'r Tensor, Shape)>, RuntimeError> {
        let names = |missing: &dyn Fn(&ValueInfo) -> bool| {
            self.model.inputs().iter().filter(|input| missing(input)).map(|input| input.name.clone()).collect()
        };
        let find = |name: &str| request.inputs.iter().find(|tensor| tensor.name == name);
        let mut inputs = Vec::with_capacity(self.model.inputs().len());
        for declared in self.model.inputs() {
            let Some(tensor) = find(&declared.name) else {
                let found = request.inputs.iter().map(|input| short(&input.name).to_owned()).collect();
                let missing = names(&|input| find(&input.name).is_none());
                return Err(OnnxRequestError::Missing { wanted: names(&|_| true), found, missing }.into());
            };
            if request.inputs.iter().filter(|other| other.name == declared.name).nth(1).is_some() {
                return Err(OnnxRequestError::Twice { input: short(&declared.name).to_owned() }.into());
            }
            tensor.check().map_err(RuntimeError::invalid_request)?;
            let is_column = self.is_frame(request) && tensor.shape.len() == 1 && is_matrix(declared);
            let shape = if is_column { Shape::new(&[tensor.shape[0], 1]) } else { Shape::new(&tensor.shape) };
            let (input, sizes) = (short(&tensor.name).to_owned(), tensor.shape.clone());
            inputs.push((tensor, shape.ok_or(OnnxRequestError::Rank { input, shape: sizes })?));
        }
        Ok(inputs)
    }

    /// Returns whether inputs are columns of a table.
    fn is_frame(&self, request: &InferenceRequest) -> bool {
        request.parameters.content_type().or(self.content_type.as_deref()) == Some(FRAME)
    }
}

/// Returns whether an input is a matrix, so that a column of a table becomes one of one column.
fn is_matrix(input: &ValueInfo) -> bool {
    input.dimensions.as_ref().is_some_and(|dimensions| dimensions.len() == 2)
}

/// Returns why requests to a model cannot be joined along their first dimension, `None` if they can.
pub(super) fn not_batched(model: &OnnxModel) -> Option<String> {
    let fixed = |what: &str, values: &[ValueInfo]| {
        let value = values.iter().find(|value| !value.is_batched())?;
        Some(format!("the first dimension of its {what} `{}` is fixed", value.name))
    };
    fixed("input", model.inputs()).or_else(|| fixed("output", model.outputs()))
}

/// Returns the datatype of the protocol.
pub(super) const fn datatype(element: ElementType) -> Datatype {
    match element {
        ElementType::F16 => Datatype::Fp16,
        ElementType::F32 => Datatype::Fp32,
        ElementType::F64 => Datatype::Fp64,
        ElementType::I8 => Datatype::Int8,
        ElementType::I16 => Datatype::Int16,
        ElementType::I32 => Datatype::Int32,
        ElementType::I64 => Datatype::Int64,
        ElementType::U8 => Datatype::Uint8,
        ElementType::U16 => Datatype::Uint16,
        ElementType::U32 => Datatype::Uint32,
        ElementType::U64 => Datatype::Uint64,
        ElementType::Bool => Datatype::Bool,
        ElementType::Text => Datatype::Bytes,
    }
}

/// Describes an input or output; -1 stands for a dimension of any size.
pub(super) fn tensor_metadata(value: &ValueInfo) -> TensorMetadata {
    let size = |dimension: &DeclaredDimension| match dimension {
        DeclaredDimension::Fixed(size) => i64::try_from(*size).unwrap_or(i64::MAX),
        DeclaredDimension::Named(_) | DeclaredDimension::Unknown => -1,
    };
    TensorMetadata {
        name: value.name.clone(),
        datatype: datatype(value.element).name().to_owned(),
        shape: value.dimensions.as_ref().map_or_else(|| vec![-1], |dimensions| dimensions.iter().map(size).collect()),
        parameters: Parameters::default(),
    }
}

impl NativeModel for OnnxRuntime {
    type Prepared<'r> = Prepared<'r>;

    fn plan<'r>(&self, request: &'r InferenceRequest) -> Result<Plan<Prepared<'r>>, RuntimeError> {
        let outputs = self.outputs(request)?;
        let inputs = self.inputs(request)?;
        let mut given = Vec::with_capacity(inputs.len());
        let (mut bytes, mut cost) = (0_usize, Duration::ZERO);
        for ((tensor, shape), declared) in inputs.iter().zip(self.model.inputs()) {
            check_datatype(tensor, declared.element)?;
            given.push((declared.element, *shape));
            if tensor.datatype != datatype(declared.element) || declared.element == ElementType::Text {
                bytes = bytes.saturating_add(shape.count().saturating_mul(declared.element.width()));
                cost = cost.saturating_add(Duration::from_nanos(u64::try_from(shape.count()).unwrap_or(u64::MAX)));
            }
        }
        let positions: Vec<usize> = outputs.iter().map(|(position, _)| *position).collect();
        let plan = self.model.plan(&given, &positions).map_err(evaluate_error)?;
        bytes = bytes.saturating_add(plan.bytes);
        Ok(Plan { cost: cost.saturating_add(plan.cost), bytes, prepared: Prepared { inputs, outputs, plan } })
    }

    fn answer(
        &self,
        _: &InferenceRequest,
        Prepared { inputs, outputs, plan }: Prepared<'_>,
        stop: &AtomicBool,
    ) -> Result<InferenceResponse, RuntimeError> {
        let mut values = Vec::with_capacity(inputs.len());
        for ((tensor, shape), declared) in inputs.into_iter().zip(self.model.inputs()) {
            let elements = elements(tensor, declared.element)?;
            let value = onnx::Tensor::new(shape, elements);
            values.push(value.ok_or_else(|| RuntimeError::inconsistent("a tensor has another number of elements"))?);
        }
        let results = self.model.evaluate(&plan, values, stop).map_err(evaluate_error)?;
        let labels = |position: usize| self.model.outputs().get(position).and_then(|output| output.labels.as_ref());
        let named = outputs.into_iter().zip(results);
        let outputs = named.map(|((position, name), result)| output(name, result, labels(position)));
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        Ok(InferenceResponse { outputs, ..InferenceResponse::default() })
    }
}

/// Returns the error of an evaluation: a fault of the request, or too little memory for it.
fn evaluate_error(error: EvaluateError) -> RuntimeError {
    if error.is_too_large() {
        return RuntimeError::new(RequestErrorKind::TooLarge, error);
    }
    RuntimeError::invalid_request(error)
}

/// Checks that a tensor has numbers where the model takes numbers, and text where it takes text.
fn check_datatype(tensor: &Tensor, wanted: ElementType) -> Result<(), RuntimeError> {
    if (tensor.datatype == Datatype::Bytes) == (wanted == ElementType::Text) {
        return Ok(());
    }
    let (input, found, wanted) = (short(&tensor.name).to_owned(), tensor.datatype, datatype(wanted));
    Err(OnnxRequestError::Datatype { input, found, wanted }.into())
}

/// A number of the protocol, which converts to all types of a graph.
trait Numeric: Element {
    fn to_f64(self) -> f64;

    fn to_i64(self) -> i64;
}

macro_rules! numeric {
    ($($type:ty),*) => { $(
        impl Numeric for $type {
            #[expect(clippy::allow_attributes, reason = "not every type needs every exception")]
            #[allow(clippy::cast_precision_loss, clippy::cast_lossless, reason = "rounds, as NumPy")]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[expect(clippy::allow_attributes, reason = "not every type needs every exception")]
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_possible_wrap,
                clippy::cast_lossless,
                reason = "fractions are cut, and integers wrap, as in NumPy"
            )]
            fn to_i64(self) -> i64 {
                self as i64
            }
        }
    )* };
}
numeric!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

impl Numeric for f16 {
    fn to_f64(self) -> f64 {
        Self::to_f64(self)
    }

    fn to_i64(self) -> i64 {
        self.to_f32().to_i64()
    }
}

impl Numeric for bf16 {
    fn to_f64(self) -> f64 {
        Self::to_f64(self)
    }

    fn to_i64(self) -> i64 {
        self.to_f32().to_i64()
    }
}

/// Returns the elements of a tensor in the type of a graph's input. Elements of that type are borrowed.
fn elements(tensor: &Tensor, wanted: ElementType) -> Result<Elements<'_>, RuntimeError> {
    let elements = match tensor.datatype {
        Datatype::Bytes => match &tensor.data {
            TensorData::Variable(texts) => Some(Bytes::wrap(texts.slices().collect::<Vec<Bytes>>().into())),
            TensorData::Fixed(_) | TensorData::Irregular(_) => None,
        },
        Datatype::Bool => bools(tensor, wanted),
        Datatype::Fp16 => converted::<f16>(tensor, wanted),
        Datatype::Bf16 => converted::<bf16>(tensor, wanted),
        Datatype::Fp32 => converted::<f32>(tensor, wanted),
        Datatype::Fp64 => converted::<f64>(tensor, wanted),
        Datatype::Int8 => converted::<i8>(tensor, wanted),
        Datatype::Int16 => converted::<i16>(tensor, wanted),
        Datatype::Int32 => converted::<i32>(tensor, wanted),
        Datatype::Int64 => converted::<i64>(tensor, wanted),
        Datatype::Uint8 => converted::<u8>(tensor, wanted),
        Datatype::Uint16 => converted::<u16>(tensor, wanted),
        Datatype::Uint32 => converted::<u32>(tensor, wanted),
        Datatype::Uint64 => converted::<u64>(tensor, wanted),
    };
    elements.ok_or_else(|| RuntimeError::inconsistent("a tensor has no elements of its datatype"))
}

/// Returns the elements of a tensor of flags.
fn bools(tensor: &Tensor, wanted: ElementType) -> Option<Elements<'_>> {
    let TensorData::Fixed(bytes) = &tensor.data else { return None };
    if wanted == ElementType::Bool {
        let flags: Vec<bool> = bytes.iter().map(|byte| *byte != 0).collect();
        return Some(bool::wrap(flags.into()));
    }
    convert(Cow::Borrowed(&bytes[..]), wanted)
}

fn converted<T: Numeric>(tensor: &Tensor, wanted: ElementType) -> Option<Elements<'_>> {
    convert(tensor.elements::<T>()?, wanted)
}

/// Returns numbers in another type. Those of the same type are not copied.
fn convert<T: Numeric>(values: Cow<'_, [T]>, wanted: ElementType) -> Option<Elements<'_>> {
    /// Returns the numbers as they are, if they have the type, or else each of them converted.
    fn to<T: Numeric, U: Element + OnnxElement>(values: Cow<'_, [T]>, convert: impl Fn(T) -> U) -> Elements<'_> {
        if T::DATATYPE != U::DATATYPE {
            return U::wrap(values.iter().map(|value| convert(*value)).collect::<Vec<U>>().into());
        }
        let same = match values {
            Cow::Borrowed(values) => {
                bytemuck::try_cast_slice(values).map_or_else(|_| Vec::new().into(), onnx::Buffer::Borrowed)
            }
            Cow::Owned(values) => bytemuck::try_cast_vec(values).unwrap_or_default().into(),
        };
        U::wrap(same)
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "integers wrap, as in NumPy")]
    Some(match wanted {
        ElementType::F16 => to::<T, f16>(values, |value| f16::from_f64(value.to_f64())),
        ElementType::F32 => to::<T, f32>(values, |value| value.to_f64() as f32),
        ElementType::F64 => to::<T, f64>(values, Numeric::to_f64),
        ElementType::I8 => to::<T, i8>(values, |value| value.to_i64() as i8),
        ElementType::I16 => to::<T, i16>(values, |value| value.to_i64() as i16),
        ElementType::I32 => to::<T, i32>(values, |value| value.to_i64() as i32),
        ElementType::I64 => to::<T, i64>(values, Numeric::to_i64),
        ElementType::U8 => to::<T, u8>(values, |value| value.to_i64() as u8),
        ElementType::U16 => to::<T, u16>(values, |value| value.to_i64() as u16),
        ElementType::U32 => to::<T, u32>(values, |value| value.to_i64() as u32),
        ElementType::U64 => to::<T, u64>(values, |value| value.to_i64().cast_unsigned()),
        ElementType::Bool => {
            let flags: Vec<bool> = values.iter().map(|value| value.to_f64() != 0.0).collect();
            bool::wrap(flags.into())
        }
        ElementType::Text => return None,
    })
}

/// Makes a tensor of the protocol of an output. A list becomes a matrix of one column, as by NumPy's codec, and a scalar a list.
fn output(name: String, result: onnx::Tensor<'_>, labels: Option<&Labels>) -> Result<Tensor, RuntimeError> {
    let mut shape = result.shape().dimensions().to_vec();
    if shape.len() < 2 {
        // A scalar is a list of one number.
        shape.push(1);
    }
    let tensor = match result.into_elements() {
        Elements::F16(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::F32(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::F64(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::I8(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::I16(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::I32(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::I64(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::U8(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::U16(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::U32(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::U64(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::Bool(values) => {
            let bytes: Vec<u8> = values.iter().map(|value| u8::from(*value)).collect();
            Tensor::from_raw(name, Datatype::Bool, shape, bytes.into())
        }
        Elements::Text(values) => {
            let is_text = values.iter().all(|text| std::str::from_utf8(text).is_ok());
            let texts: BytesElements = values.iter().collect();
            let data = TensorData::Variable(texts.with_text(is_text));
            let parameters = Parameters::new();
            let tensor =
                Tensor { name, datatype: Datatype::Bytes, shape, parameters, data, nested: false, as_sent: None };
            tensor.check().map(|()| tensor)
        }
    };
    let mut tensor = tensor.map_err(RuntimeError::inconsistent)?;
    tensor.parameters = Parameters::with_content_type("np");
    if let Some(labels) = labels {
        let labels = match labels {
            Labels::Integers(labels) => json!(labels),
            Labels::Texts(labels) => json!(labels),
        };
        tensor.parameters.others.insert("labels".to_owned(), labels);
    }
    Ok(tensor)
}

/// The files in which a model keeps data. They are in its folder, or below it.
#[derive(Debug)]
pub(super) struct ExternalFiles {
    folder: PathBuf,
    /// The folders that no file may leave, also by links: that of the model's path, and that of the file that it links to.
    roots: Vec<PathBuf>,
    /// The file that was read last, its size, and how many more bytes may be read of it.
    last: Mutex<Option<OpenFile>>,
}

#[derive(Debug)]
struct OpenFile {
    location: String,
    file: File,
    size: u64,
    left: u64,
}

impl ExternalFiles {
    /// Describes the files of the model at a path.
    pub(super) fn new(model: &Path) -> Self {
        let folder = model.parent().map(Path::to_owned).unwrap_or_default();
        let resolved = [
            fs::canonicalize(&folder).ok(),
            fs::canonicalize(model).ok().and_then(|file| Some(file.parent()?.to_owned())),
        ];
        Self { folder, roots: resolved.into_iter().flatten().collect(), last: Mutex::new(None) }
    }

    /// Reads data. Returns why it does not: the end of a sentence.
    pub(super) fn read(&self, range: &ExternalRange<'_>) -> Result<Bytes, String> {
        let shown = range.location.escape_debug();
        let mut last = self.last.lock().map_err(|_| "the file cannot be read".to_owned())?;
        if last.as_ref().is_none_or(|open| open.location != range.location) {
            *last = Some(self.open(range.location)?);
        }
        let Some(open) = last.as_mut() else { return Err("the file cannot be read".to_owned()) };
        let length = range.length.unwrap_or(open.size.saturating_sub(range.offset));
        let end = range.offset.checked_add(length).filter(|end| *end <= open.size);
        if end.is_none() {
            return Err(format!(
                "`{shown}` has {} bytes, but {length} bytes are expected at {}",
                open.size, range.offset
            ));
        }
        open.left =
            open.left.checked_sub(length).ok_or_else(|| format!("`{shown}` would be read more than {READS} times"))?;
        let failed = |error: std::io::Error| format!("`{shown}` cannot be read: {error}");
        let mut bytes = Vec::new();
        let size = usize::try_from(length).map_err(|_| format!("`{shown}` is too large"))?;
        bytes.try_reserve_exact(size).map_err(|_| format!("there is no memory for `{shown}`"))?;
        open.file.seek(SeekFrom::Start(range.offset)).map_err(failed)?;
        (&open.file).take(length).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() == size { Ok(bytes.into()) } else { Err(format!("`{shown}` became shorter while it was read")) }
    }

    fn open(&self, location: &str) -> Result<OpenFile, String> {
        let shown = location.escape_debug();
        let path = Path::new(location);
        let is_below = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !is_below || location.contains('\0') {
            return Err(format!("`{shown}` is not in the folder of the model or below it"));
        }
        let failed = |error: std::io::Error| format!("`{shown}` cannot be read: {error}");
        let resolved = fs::canonicalize(self.folder.join(path)).map_err(failed)?;
        if !self.roots.iter().any(|root| resolved.starts_with(root)) {
            return Err(format!("`{shown}` is a link that leaves the folder of the model"));
        }
        let metadata = fs::metadata(&resolved).map_err(failed)?;
        if !metadata.is_file() {
            return Err(format!("`{shown}` is not a regular file"));
        }
        let file = File::open(&resolved).map_err(failed)?;
        let size = metadata.len();
        Ok(OpenFile { location: location.to_owned(), file, size, left: size.saturating_mul(READS) })
    }
}
