//! Native steps before and after models: `mlserver.Select`, `mlserver.Map` and `mlserver.Concat`.
//!
//! A step is described by `parameters.extra` of its settings and needs neither an artifact nor Python. It computes each of its outputs from
//! tensors of the request by one [`Operation`]. Signatures come first: the datatype and shape of every output, and the memory that it takes,
//! are known and checked before anything is computed.

mod concat;
mod error;
mod map;
mod numbers;
mod reader;
mod select;
mod signature;
mod table;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use self::concat::concat;
pub use self::error::StepSettingsError;
use self::error::{SettingProblem, StepError, listed, names_of};
use self::map::MapOperation;
use self::reader::SettingReader;
use self::signature::Signature;
use super::native::{Native, NativeModel, Plan};
use super::{Description, LoadError, OutputError, RuntimeError};
use crate::compute::ComputePool;
use crate::settings::ModelSettings;
use crate::types::{
    Datatype, InferenceRequest, InferenceResponse, ModelMetadata, Parameters, Tensor, TensorData, TensorMetadata, short,
};

/// The key of the step's settings.
const EXTRA: &str = "parameters.extra";

/// The keys of `parameters.extra` that any model may have.
const COMMON_KEYS: [&str; 2] = ["backend", "explainer"];

/// The time that an element takes, of inputs and results together, in nanoseconds.
const ELEMENT_COST: u64 = 12;

/// The bytes of texts that take as long to copy as an element of numbers.
const BYTES_PER_ELEMENT: usize = 64;

/// The number of rows, or of elements, after which a computation finds out whether anybody waits for it.
const BLOCK: usize = 4 << 10;

/// Reads the outputs of a step from `parameters.extra`.
type ReadOutputs = fn(&SettingReader<'_>) -> Result<Vec<StepOutput>, SettingProblem>;

/// The steps, by their implementation.
const STEPS: [(&str, ReadOutputs); 3] =
    [("mlserver.Select", select::outputs), ("mlserver.Map", map::outputs), ("mlserver.Concat", concat::outputs)];

/// An output of a step.
#[derive(Debug)]
struct StepOutput {
    name: String,
    inputs: StepInputs,
    operation: Operation,
}

/// The tensors from which an output is computed.
#[derive(Debug)]
enum StepInputs {
    Named(Vec<String>),
    /// All of the request, in its order.
    All,
}

/// How an output is computed.
#[derive(Debug)]
enum Operation {
    /// The input itself.
    Pass,
    /// Columns of the input.
    Columns(Vec<i64>),
    /// The input after each of the operations.
    Map(Vec<MapOperation>),
    /// All inputs, joined.
    Concat { axis: usize },
}

/// A step that is served as a model.
#[derive(Debug)]
pub(super) struct NativeStep {
    outputs: Vec<StepOutput>,
}

/// The outputs that a request asks for, and what they take.
#[derive(Debug, Default)]
pub(super) struct StepPlan {
    outputs: Vec<PlannedOutput>,
    /// The size of the response and of everything that is computed on the way.
    memory: usize,
    /// The elements that are read and written.
    work: usize,
}

/// An output that a request asks for.
#[derive(Debug)]
struct PlannedOutput {
    /// Its index in the model.
    output: usize,
    /// The indices of its inputs in the request.
    inputs: Vec<usize>,
    /// The signatures of the result of each operation. The last one is that of the output.
    signatures: Vec<Signature>,
}

impl NativeStep {
    /// Reads a step from the settings of its model.
    ///
    /// # Errors
    ///
    /// Fails with the first setting that is not as it should be.
    pub(super) fn serve(settings: &ModelSettings, compute: ComputePool) -> Result<Native<Self>, LoadError> {
        let (step, description) = Self::load(settings)?;
        Ok(Native::new(step, description, compute))
    }

    fn load(settings: &ModelSettings) -> Result<(Self, Description), LoadError> {
        let implementation = &settings.implementation;
        let Some((_, read)) = STEPS.iter().find(|(name, _)| name == implementation) else {
            return Err(LoadError::NotNative { implementation: implementation.clone() });
        };
        let at_file =
            |problem: SettingProblem| StepSettingsError { file: settings.source.clone(), problem: problem.into() };
        let mut extra = settings.parameters.extra.clone();
        extra.retain(|key, _| !COMMON_KEYS.contains(&key.as_str()));
        let outputs = read(&SettingReader::object(EXTRA, &extra)).map_err(at_file)?;
        check_batching(settings, &outputs).map_err(at_file)?;
        let metadata = declared_metadata(settings, &outputs)
            .map_err(|reason| at_file(SettingProblem::Declared { key: EXTRA, reason }))?;
        Ok((Self { outputs }, Description { metadata, ..Description::native() }))
    }
}

impl NativeModel for NativeStep {
    type Prepared<'r> = StepPlan;

    /// Every message of a stream is a request.
    const ANSWERS_STREAMS: bool = true;

    /// Finds the inputs of the requested outputs, and checks them.
    fn plan(&self, request: &InferenceRequest) -> Result<Plan<StepPlan>, RuntimeError> {
        let requested: Vec<usize> = if request.outputs.is_empty() {
            (0..self.outputs.len()).collect()
        } else {
            OutputError::check_count(&request.outputs, self.outputs.len())?;
            let numbers: HashMap<&str, usize> =
                self.outputs.iter().enumerate().map(|(number, output)| (output.name.as_str(), number)).collect();
            let number = |name: &str| {
                numbers.get(name).copied().ok_or_else(|| StepError::NoOutput {
                    output: short(name).to_owned(),
                    available: listed(self.outputs.iter().map(|output| output.name.as_str())),
                })
            };
            request.outputs.iter().map(|output| number(&output.name)).collect::<Result<_, _>>()?
        };
        // Of several inputs with the same name, the first counts.
        let mut inputs: HashMap<&str, usize> = HashMap::with_capacity(request.inputs.len());
        for (index, input) in request.inputs.iter().enumerate() {
            inputs.entry(&input.name).or_insert(index);
        }
        let mut plan = StepPlan::default();
        for number in requested {
            plan.add(number, &self.outputs[number], request, &inputs)?;
        }
        let work = u64::try_from(plan.work).unwrap_or(u64::MAX);
        let cost = Duration::from_nanos(work.saturating_mul(ELEMENT_COST));
        Ok(Plan { cost, bytes: plan.memory, prepared: plan })
    }

    fn answer(
        &self,
        request: &InferenceRequest,
        plan: StepPlan,
        stop: &AtomicBool,
    ) -> Result<InferenceResponse, RuntimeError> {
        let mut outputs: Vec<Tensor> = Vec::with_capacity(plan.outputs.len());
        for (index, planned) in plan.outputs.iter().enumerate() {
            let earlier = plan.outputs[..index].iter().position(|earlier| earlier.output == planned.output);
            // An output that is requested twice shares the elements.
            let tensor = match earlier {
                Some(earlier) => outputs[earlier].clone(),
                None => self.outputs[planned.output].compute(planned, &request.inputs, stop)?,
            };
            tensor.check().map_err(RuntimeError::inconsistent)?;
            outputs.push(tensor);
        }
        Ok(InferenceResponse { outputs, ..InferenceResponse::default() })
    }
}

impl StepPlan {
    /// Adds an output, after checking its inputs.
    fn add(
        &mut self,
        number: usize,
        output: &StepOutput,
        request: &InferenceRequest,
        by_name: &HashMap<&str, usize>,
    ) -> Result<(), StepError> {
        let find = |name: &String| {
            let missing = || StepError::NoInput { input: short(name).to_owned(), available: names_of(&request.inputs) };
            by_name.get(name.as_str()).copied().ok_or_else(missing)
        };
        let inputs: Vec<usize> = match &output.inputs {
            StepInputs::Named(names) => names.iter().map(find).collect::<Result<_, _>>()?,
            StepInputs::All => (0..request.inputs.len()).collect(),
        };
        let tensors = inputs.iter().map(|&index| &request.inputs[index]);
        let signed: Vec<_> = tensors.clone().map(|tensor| (tensor.name.as_str(), Signature::of(tensor))).collect();
        let signatures = output.signatures(&signed)?;
        let read: usize = tensors.clone().map(Tensor::len).sum();
        let input_bytes: usize = tensors.map(Tensor::byte_len).sum();
        let mut elements = read;
        for (stage, signature) in signatures.iter().enumerate() {
            let written = signature.elements(&output.name)?.unwrap_or_default();
            let bytes = output.stage_bytes(stage, signature, written, read, input_bytes);
            self.memory = self.memory.saturating_add(bytes);
            // The texts of the other operations are shared.
            let copied =
                if matches!(output.operation, Operation::Concat { .. }) { bytes / BYTES_PER_ELEMENT } else { 0 };
            if !matches!(output.operation, Operation::Pass) {
                self.work = self.work.saturating_add(elements).saturating_add(written).saturating_add(copied);
            }
            elements = written;
        }
        self.outputs.push(PlannedOutput { output: number, inputs, signatures });
        Ok(())
    }
}

impl StepOutput {
    /// Returns the signatures of the results of all operations.
    ///
    /// # Errors
    ///
    /// Fails if an operation does not apply to its input.
    fn signatures(&self, inputs: &[(&str, Signature)]) -> Result<Vec<Signature>, StepError> {
        if let Operation::Concat { axis } = self.operation {
            return Ok(vec![concat::signature(&self.name, inputs, axis)?]);
        }
        let Some((input, signature)) = inputs.first() else { return Err(StepError::NoInputs) };
        match &self.operation {
            Operation::Columns(positions) => Ok(vec![select::signature(input, signature.clone(), positions)?]),
            Operation::Map(operations) => {
                let mut signature = signature.clone();
                let next = |operation: &MapOperation| {
                    signature = operation.signature(input, &self.name, signature.clone())?;
                    Ok(signature.clone())
                };
                operations.iter().map(next).collect()
            }
            Operation::Pass | Operation::Concat { .. } => Ok(vec![signature.clone()]),
        }
    }

    /// Returns the memory of a result, in bytes. Texts are estimated.
    fn stage_bytes(
        &self,
        stage: usize,
        signature: &Signature,
        elements: usize,
        read: usize,
        input_bytes: usize,
    ) -> usize {
        let texts = match &self.operation {
            Operation::Pass => return input_bytes,
            _ if signature.datatype != Datatype::Bytes => 0,
            Operation::Concat { .. } => return input_bytes,
            // As long as those of the input on average.
            Operation::Columns(_) => return input_bytes.checked_div(read).unwrap_or_default().saturating_mul(elements),
            Operation::Map(operations) => operations[stage].text_bytes(elements),
        };
        signature.element_bytes().saturating_mul(elements).saturating_add(texts)
    }

    /// Computes the output from inputs of the request.
    fn compute(&self, planned: &PlannedOutput, inputs: &[Tensor], stop: &AtomicBool) -> Result<Tensor, RuntimeError> {
        let inputs: Vec<&Tensor> = planned.inputs.iter().map(|&index| &inputs[index]).collect();
        let inconsistent = || RuntimeError::inconsistent("an operation without a signature");
        let tensor = |signature: &Signature, parameters: Parameters, data: TensorData| {
            let shape = signature.known_shape().ok_or_else(inconsistent)?;
            let (name, datatype) = (self.name.clone(), signature.datatype);
            Ok(Tensor { name, datatype, shape, parameters, data, nested: false, as_sent: None })
        };
        let (&first, signature) = inputs.first().zip(planned.signatures.last()).ok_or_else(inconsistent)?;
        match &self.operation {
            Operation::Pass => Ok(Tensor { name: self.name.clone(), ..first.clone() }),
            Operation::Columns(positions) => {
                tensor(signature, first.parameters.clone(), select::columns(first, positions, stop)?)
            }
            Operation::Map(operations) => {
                let mut mapped: Option<Tensor> = None;
                for (operation, signature) in operations.iter().zip(&planned.signatures) {
                    let data = operation.apply(&first.name, mapped.as_ref().unwrap_or(first), stop)?;
                    let content_type = if signature.datatype == Datatype::Bytes { "str" } else { "np" };
                    mapped = Some(tensor(signature, Parameters::with_content_type(content_type), data)?);
                }
                mapped.ok_or_else(inconsistent)
            }
            Operation::Concat { axis } => {
                let shape = signature.known_shape().ok_or_else(inconsistent)?;
                let data = concat(&inputs, signature.datatype, &shape, *axis, stop)?;
                tensor(signature, joined_parameters(&inputs, signature.datatype), data)
            }
        }
    }
}

/// Returns the parameters of joined tensors: of texts, the content type that they have in common.
fn joined_parameters(inputs: &[&Tensor], datatype: Datatype) -> Parameters {
    if datatype != Datatype::Bytes {
        return Parameters::with_content_type("np");
    }
    let content_type = inputs.first().and_then(|input| input.parameters.content_type());
    match content_type {
        Some(common) if inputs.iter().all(|input| input.parameters.content_type() == Some(common)) => {
            Parameters::with_content_type(common.to_owned())
        }
        _ => Parameters::new(),
    }
}

/// Checks that a step that batches does not join the rows of different requests.
fn check_batching(settings: &ModelSettings, outputs: &[StepOutput]) -> Result<(), SettingProblem> {
    let joins_rows = outputs.iter().any(|output| matches!(output.operation, Operation::Concat { axis: 0 }));
    if joins_rows && settings.max_batch_size > 1 {
        return Err(SettingProblem::Value {
            key: format!("{EXTRA}.axis"),
            found: format!("`0`, although `max_batch_size` is {}", settings.max_batch_size),
            expected: "another axis, since requests of a batch are joined along axis 0, or `max_batch_size` 0"
                .to_owned(),
        });
    }
    Ok(())
}

/// Derives the outputs from the inputs that the settings declare. Returns `None` if they declare no inputs, or outputs as well: then their
/// metadata are all there is.
///
/// # Errors
///
/// Fails if the step cannot take the declared inputs.
fn declared_metadata(settings: &ModelSettings, outputs: &[StepOutput]) -> Result<Option<ModelMetadata>, StepError> {
    let inputs: Option<Vec<(&str, Signature)>> =
        settings.inputs.iter().map(|input| Some((input.name.as_str(), Signature::declared(input)?))).collect();
    let Some(inputs) = inputs.filter(|inputs| !inputs.is_empty()) else { return Ok(None) };
    let mut derived = Vec::with_capacity(outputs.len());
    for output in outputs {
        let find = |name: &String| {
            let missing = || StepError::NoInput {
                input: short(name).to_owned(),
                available: listed(inputs.iter().map(|(name, _)| *name)),
            };
            inputs.iter().find(|(input, _)| input == name).cloned().ok_or_else(missing)
        };
        let signed = match &output.inputs {
            StepInputs::Named(names) => names.iter().map(find).collect::<Result<_, _>>()?,
            StepInputs::All => inputs.clone(),
        };
        let signatures = output.signatures(&signed)?;
        let Some(signature) = signatures.last() else { continue };
        derived.push(TensorMetadata {
            name: output.name.clone(),
            datatype: signature.datatype.name().to_owned(),
            shape: signature.dimensions(),
            parameters: Parameters::new(),
        });
    }
    if !settings.outputs.is_empty() {
        return Ok(None);
    }
    Ok(Some(ModelMetadata { outputs: derived, ..ModelMetadata::declared(settings) }))
}

/// Reports whether nobody waits for the answer any more.
fn is_stopped(stop: &AtomicBool) -> bool {
    stop.load(Ordering::Relaxed)
}

fn check_stop(stop: &AtomicBool) -> Result<(), StepError> {
    if is_stopped(stop) { Err(StepError::Stopped) } else { Ok(()) }
}
