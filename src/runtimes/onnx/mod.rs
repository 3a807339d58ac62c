//! Requests for ONNX models: from tensors to the evaluator and back.

mod engine;
mod external;
mod tensors;

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Value, json};

pub(super) use self::engine::Place;
use self::engine::{Engine, EnginePlan};
pub(super) use self::external::ExternalFiles;
use self::tensors::elements;
pub(super) use self::tensors::output;
use super::native::{NativeModel, Plan};
use super::{LoadError, RuntimeError};
use crate::evaluators::onnx::{self, DeclaredDimension, ElementType, EvaluateError, GraphInterface, Shape, ValueInfo};
use crate::settings::ModelSettings;
use crate::types::{
    Datatype, InferenceRequest, InferenceResponse, ModelMetadata, Parameters, RequestErrorKind, RequestedOutput,
    Tensor, TensorMetadata, short,
};

/// The output of requests that name none: the first one of the graph.
pub(super) const PREDICT: &str = "predict";
/// What metadata name as the platform of a model whose settings do not.
const PLATFORM: &str = "onnx";
/// The content type of tables.
const FRAME: &str = "pd";

/// A loaded model.
#[derive(Debug)]
pub(super) struct OnnxRuntime {
    model: Engine,
    content_type: Option<String>,
}

/// What was read from a request.
#[derive(Debug)]
pub(super) struct Prepared<'r> {
    /// The tensor of each input of the graph.
    inputs: Vec<(&'r Tensor, Shape)>,
    /// The outputs: their positions, and their names in the response.
    outputs: Vec<(usize, String)>,
    plan: EnginePlan,
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
    pub(super) fn load(path: &Path, file: &[u8], settings: &ModelSettings, place: Place) -> Result<Self, LoadError> {
        let external = ExternalFiles::new(path);
        let model = Engine::load(file, &|range| external.read(range), place).map_err(|error| artifact(path, error))?;
        Ok(Self { model, content_type: settings.parameters.content_type.clone() })
    }

    /// Checks whether a file that is not a model of tables is a network that a worker evaluates, and returns what it takes and
    /// gives. Weights are not loaded.
    pub(super) fn check_network(path: &Path, file: &[u8]) -> Result<GraphInterface, LoadError> {
        let external = ExternalFiles::new(path);
        engine::check_network(file, &|range| external.read(range)).map_err(|error| artifact(path, error))
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
            inputs: own(declared.inputs, &self.model.interface().inputs),
            outputs: own(declared.outputs, &self.model.interface().outputs),
            parameters,
            ..declared
        }
    }

    /// Returns why requests cannot be joined along their first dimension, `None` if they can.
    pub(super) fn not_batched(&self) -> Option<String> {
        not_batched(&self.model.interface().inputs, &self.model.interface().outputs)
    }

    /// Returns the positions of outputs to compute, and their names in the response.
    fn outputs(&self, request: &InferenceRequest) -> Result<Vec<(usize, String)>, RuntimeError> {
        let outputs = &self.model.interface().outputs;
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
            self.model
                .interface()
                .inputs
                .iter()
                .filter(|input| missing(input))
                .map(|input| input.name.clone())
                .collect()
        };
        let find = |name: &str| request.inputs.iter().find(|tensor| tensor.name == name);
        let mut inputs = Vec::with_capacity(self.model.interface().inputs.len());
        for declared in &self.model.interface().inputs {
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

fn artifact(path: &Path, error: onnx::LoadError) -> LoadError {
    LoadError::Artifact { path: path.to_owned(), unsupported: error.is_refusal(), source: error.into() }
}

/// Returns whether an input is a matrix, so that a column of a table becomes one of one column.
fn is_matrix(input: &ValueInfo) -> bool {
    input.dimensions.as_ref().is_some_and(|dimensions| dimensions.len() == 2)
}

/// Returns why requests to a model cannot be joined along their first dimension, `None` if they can.
pub(super) fn not_batched(inputs: &[ValueInfo], outputs: &[ValueInfo]) -> Option<String> {
    let fixed = |what: &str, values: &[ValueInfo]| {
        let value = values.iter().find(|value| !value.is_batched())?;
        Some(format!("the first dimension of its {what} `{}` is fixed", value.name))
    };
    fixed("input", inputs).or_else(|| fixed("output", outputs))
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
        for ((tensor, shape), declared) in inputs.iter().zip(&self.model.interface().inputs) {
            check_datatype(tensor, declared.element)?;
            given.push((declared.element, *shape));
            if tensor.datatype != datatype(declared.element) || declared.element == ElementType::Text {
                bytes = bytes.saturating_add(shape.count().saturating_mul(declared.element.width()));
                cost = cost.saturating_add(Duration::from_nanos(u64::try_from(shape.count()).unwrap_or(u64::MAX)));
            }
        }
        let positions: Vec<usize> = outputs.iter().map(|(position, _)| *position).collect();
        let plan = self.model.plan(&given, &positions).map_err(evaluate_error)?;
        bytes = bytes.saturating_add(plan.bytes());
        Ok(Plan { cost: cost.saturating_add(plan.cost()), bytes, prepared: Prepared { inputs, outputs, plan } })
    }

    fn answer(
        &self,
        _: &InferenceRequest,
        Prepared { inputs, outputs, plan }: Prepared<'_>,
        stop: &AtomicBool,
    ) -> Result<InferenceResponse, RuntimeError> {
        let mut values = Vec::with_capacity(inputs.len());
        for ((tensor, shape), declared) in inputs.into_iter().zip(&self.model.interface().inputs) {
            let elements = elements(tensor, declared.element)?;
            let value = onnx::Tensor::new(shape, elements);
            values.push(value.ok_or_else(|| RuntimeError::inconsistent("a tensor has another number of elements"))?);
        }
        let results = self.model.evaluate(&plan, values, stop).map_err(evaluate_error)?;
        let labels =
            |position: usize| self.model.interface().outputs.get(position).and_then(|output| output.labels.as_ref());
        let named = outputs.into_iter().zip(results);
        let outputs = named.map(|((position, name), result)| output(name, result, labels(position)));
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        Ok(InferenceResponse { outputs, ..InferenceResponse::default() })
    }
}

/// Returns the error of an evaluation: a fault of the request, or too little memory for it.
pub(super) fn evaluate_error(error: EvaluateError) -> RuntimeError {
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

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;
    #[cfg(feature = "onnx")]
    use crate::runtimes::native::NEVER;

    /// Returns a network of the golden cases.
    fn network(name: &str) -> Vec<u8> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens/onnx_networks/networks.jsonl.gz");
        let mut text = String::new();
        GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
        let mut cases = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let case = cases.find(|case| case["name"] == name).unwrap();
        let digits = case["model"].as_str().unwrap().as_bytes().as_chunks::<2>().0;
        digits.iter().map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()).collect()
    }

    fn load(file: &[u8], place: Place) -> Result<OnnxRuntime, LoadError> {
        let settings = ModelSettings::new("network", "mlserver_onnx.OnnxModel");
        OnnxRuntime::load(Path::new("model.onnx"), file, &settings, place)
    }

    #[test]
    fn network_is_refused_by_a_server_by_the_name_of_its_operator() {
        let error = load(&network("lstm-0"), Place::Server).unwrap_err();
        let shown = format!("{:#}", anyhow::Error::from(error));
        assert!(shown.contains("(LSTM, opset 17): the operator is not evaluated natively"), "{shown}");
    }

    #[test]
    #[cfg(not(feature = "onnx"))]
    fn network_names_the_feature_that_is_missing() {
        let file = network("lstm-0");
        for error in [
            OnnxRuntime::check_network(Path::new("model.onnx"), &file).unwrap_err(),
            load(&file, Place::Worker { threads: 1 }).unwrap_err(),
        ] {
            let shown = format!("{:#}", anyhow::Error::from(error));
            assert!(shown.contains("built without the feature `onnx`"), "{shown}");
        }
    }

    #[test]
    #[cfg(feature = "onnx")]
    fn network_is_answered_by_a_worker() {
        let file = network("lstm-0");
        OnnxRuntime::check_network(Path::new("model.onnx"), &file).unwrap();
        let model = load(&file, Place::Worker { threads: 1 }).unwrap();
        assert_eq!(model.not_batched(), None);
        let tokens = Tensor::from_elements("tokens", vec![2, 3], &[1_i64, 2, 3, 4, 5, 6]).unwrap();
        let mut request = InferenceRequest { inputs: vec![tokens], ..InferenceRequest::default() };
        let plan = model.plan(&request).unwrap();
        let response = model.answer(&request, plan.prepared, &NEVER).unwrap();
        assert_eq!((response.outputs[0].name.as_str(), &response.outputs[0].shape[..]), (PREDICT, &[2, 3][..]));
        request.inputs = vec![Tensor::from_elements("tokens", vec![1, 1], &[1_i64 << 40]).unwrap()];
        let plan = model.plan(&request).unwrap();
        let error = model.answer(&request, plan.prepared, &NEVER).unwrap_err();
        assert_eq!(error.kind(), RequestErrorKind::BadRequest);
        assert!(error.to_string().starts_with("input `tokens` has the number 1099511627776"), "{error}");
    }

    #[test]
    #[cfg(feature = "onnx")]
    fn network_that_nothing_evaluates_is_refused_by_name() {
        let mut file = network("lstm-0");
        let place = file.windows(4).position(|bytes| bytes == b"LSTM").unwrap();
        file[place..place + 4].copy_from_slice(b"RNNX");
        let error = OnnxRuntime::check_network(Path::new("model.onnx"), &file).unwrap_err();
        let shown = format!("{:#}", anyhow::Error::from(error));
        assert!(shown.contains("(RNNX, opset 17): the operator is not evaluated natively"), "{shown}");
    }
}
