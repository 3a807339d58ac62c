//! Networks of ONNX, computed by the crate `rten`.
//!
//! The engine reads no file: our own reader does, with its limits and checks, `plan` checks each node against the `rules`, and
//! `write` writes the graph that the engine reads. A graph is refused by name unless the engine computes what onnxruntime
//! does.
//!
//! The engine bounds neither memory nor time, so that it belongs in a process of its own: a server only calls
//! [`Network::check`].

mod plan;
mod quantized;
mod ranges;
mod rewrite;
mod rules;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use half::f16;
use rten::{Model, ModelOptions, NodeId, RunOptions, ThreadPool, Value, ValueOrView, ValueView};
use rten_tensor::{AsView, Layout};

use self::plan::NetworkPlan;
use super::constant::ReadExternal;
use super::error::{EvaluateError, LoadError};
use super::flatten::flatten;
use super::proto::ModelProto;
use super::tensor::{ElementType, Elements, Shape, Tensor};
use super::{GraphInterface, MAX_FILE_BYTES, ModelInfo, ValueInfo, check_inputs};

/// A network that is ready to be evaluated.
pub struct Network {
    engine: Model,
    threads: Arc<ThreadPool>,
    info: ModelInfo,
    interface: GraphInterface,
    input_ids: Vec<NodeId>,
    output_ids: Vec<NodeId>,
    input_limit: i64,
}

impl fmt::Debug for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Network").field("interface", &self.interface).finish_non_exhaustive()
    }
}

impl Network {
    /// Checks whether a network can be loaded, without its weights and without the engine, and returns what it takes and gives.
    ///
    /// # Errors
    ///
    /// [`LoadError`] names the node, or the tensor, and what is not evaluated natively.
    pub fn check(file: &[u8], external: ReadExternal<'_>) -> Result<GraphInterface, LoadError> {
        let model = read(file)?;
        let flat = flatten(&model)?;
        plan::plan(&model, &flat, external, false).map(interface)
    }

    /// Loads a network from the bytes of its file. Data in other files are read by `external`. The engine uses as many
    /// threads as given.
    ///
    /// # Errors
    ///
    /// As [`Self::check`], or if the engine cannot load the graph.
    pub fn load(file: &[u8], external: ReadExternal<'_>, threads: usize) -> Result<Self, LoadError> {
        let model = read(file)?;
        let flat = flatten(&model)?;
        let plan = plan::plan(&model, &flat, external, true)?;
        let written = write::write(&plan, external)?;
        let mut options = ModelOptions::with_all_ops();
        for (name, bytes) in written.weights {
            options.external_data(&name, bytes);
        }
        let engine =
            caught(|| options.load(written.model)).and_then(|loaded| loaded.map_err(|error| error.to_string()));
        let engine = engine.map_err(LoadError::Network)?;
        let ids = |values: &[(usize, ValueInfo)]| {
            let found: Option<Vec<NodeId>> = values.iter().map(|(id, _)| engine.find_node(&write::name(*id))).collect();
            found.ok_or_else(|| LoadError::Network("an input or output is missing in its graph".to_owned()))
        };
        let (input_ids, output_ids) = (ids(&plan.inputs)?, ids(&plan.outputs)?);
        Ok(Self {
            engine,
            threads: Arc::new(ThreadPool::with_num_threads(threads.max(1))),
            info: ModelInfo::of(&model),
            input_ids,
            output_ids,
            input_limit: plan.input_limit,
            interface: interface(plan),
        })
    }

    /// Returns what the file says about itself.
    pub const fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Returns its inputs, outputs and operators.
    pub const fn interface(&self) -> &GraphInterface {
        &self.interface
    }

    /// Checks inputs of these types and shapes.
    ///
    /// # Errors
    ///
    /// Fails if they do not fit the declared ones.
    pub fn check_inputs(&self, inputs: &[(ElementType, Shape)]) -> Result<(), EvaluateError> {
        check_inputs(&self.interface.inputs, inputs)
    }

    /// Evaluates outputs, given by their positions. An evaluation that has begun is not stopped: its process is ended.
    ///
    /// # Errors
    ///
    /// Fails if the inputs do not fit the declared ones, or if the engine cannot apply an operator to them.
    pub fn evaluate(
        &self,
        inputs: &[Tensor<'_>],
        outputs: &[usize],
        stop: &AtomicBool,
    ) -> Result<Vec<Tensor<'static>>, EvaluateError> {
        let shapes: Vec<(ElementType, Shape)> =
            inputs.iter().map(|input| (input.element_type(), *input.shape())).collect();
        self.check_inputs(&shapes)?;
        if stop.load(Ordering::Relaxed) {
            return Err(EvaluateError::Cancelled);
        }
        let mut given = Vec::with_capacity(inputs.len());
        for ((tensor, declared), id) in inputs.iter().zip(&self.interface.inputs).zip(&self.input_ids) {
            given.push((*id, self.input(tensor, &declared.name)?));
        }
        let mut wanted: Vec<NodeId> = outputs.iter().map(|output| self.output_ids[*output]).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let options = RunOptions::default().with_thread_pool(Some(Arc::clone(&self.threads)));
        let results = caught(|| self.engine.run(given, &wanted, Some(options)));
        let results = results.and_then(|results| results.map_err(|error| error.to_string()));
        let results = results.map_err(EvaluateError::Network)?;
        let mut tensors = Vec::with_capacity(wanted.len());
        for (id, value) in wanted.iter().zip(results) {
            let info = outputs.iter().find(|output| self.output_ids[**output] == *id);
            let info = info.map(|output| &self.interface.outputs[*output]).ok_or_else(no_output)?;
            tensors.push(output_tensor(value, info)?);
        }
        let tensor = |output: &usize| {
            let position = wanted.binary_search(&self.output_ids[*output]).map_err(|_| no_output())?;
            tensors.get(position).cloned().ok_or_else(no_output)
        };
        outputs.iter().map(tensor).collect()
    }

    /// Returns a tensor in the engine's type.
    fn input<'t>(&self, tensor: &'t Tensor<'_>, name: &str) -> Result<ValueOrView<'t>, EvaluateError> {
        let shape = tensor.shape().dimensions();
        let failed = |error: &dyn fmt::Display| EvaluateError::Network(error.to_string());
        macro_rules! view {
            ($values:expr) => {
                ValueView::from_shape(shape, &$values[..]).map(ValueOrView::from).map_err(|error| failed(&error))
            };
        }
        macro_rules! owned {
            ($values:expr) => {
                Value::from_shape(shape, $values).map(ValueOrView::from).map_err(|error| failed(&error))
            };
        }
        match tensor.elements() {
            Elements::F32(values) => view!(values),
            Elements::I32(values) => view!(values),
            Elements::I8(values) => view!(values),
            Elements::U8(values) => view!(values),
            Elements::F16(values) => owned!(values.iter().copied().map(f16::to_f32).collect::<Vec<f32>>()),
            Elements::Bool(values) => owned!(values.iter().copied().map(i32::from).collect::<Vec<i32>>()),
            Elements::I64(values) => {
                let limit = self.input_limit;
                let narrow = |value: &i64| {
                    let fitting = i32::try_from(*value).ok().filter(|_| value.unsigned_abs() <= limit.unsigned_abs());
                    let (name, value) = (name.to_owned(), *value);
                    fitting.ok_or(EvaluateError::InputRange { name, value, limit })
                };
                owned!(values.iter().map(narrow).collect::<Result<Vec<i32>, _>>()?)
            }
            other => Err(EvaluateError::Network(format!("inputs of type {}", other.element_type()))),
        }
    }
}

fn read(file: &[u8]) -> Result<ModelProto<'_>, LoadError> {
    if file.len() > MAX_FILE_BYTES {
        return Err(LoadError::FileSize { bytes: file.len(), limit: MAX_FILE_BYTES });
    }
    ModelProto::read(file)
}

/// Calls the engine. A panic becomes an error.
fn caught<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        format!("an operator failed: {}", text.unwrap_or("no reason was given"))
    })
}

fn no_output() -> EvaluateError {
    EvaluateError::Network("it has no such output".to_owned())
}

/// Makes a tensor of the declared type of an output of the engine.
/// Returns what a planned network takes and gives.
fn interface(plan: NetworkPlan<'_, '_>) -> GraphInterface {
    let infos = |values: Vec<(usize, ValueInfo)>| values.into_iter().map(|(_, info)| info).collect();
    GraphInterface { inputs: infos(plan.inputs), outputs: infos(plan.outputs), operators: plan.operators }
}

fn output_tensor(value: Value, info: &ValueInfo) -> Result<Tensor<'static>, EvaluateError> {
    let failed = |problem: &str| EvaluateError::Network(format!("output `{}`: {problem}", info.name));
    let shape = Shape::new(&value.shape()).ok_or_else(|| failed("it has too many dimensions"))?;
    let tensor = match (info.element, value) {
        (ElementType::F32, Value::FloatTensor(values)) => Tensor::of(shape, values.into_data()),
        (ElementType::F16, Value::FloatTensor(values)) => {
            Tensor::of(shape, values.iter().map(|value| f16::from_f32(*value)).collect())
        }
        (ElementType::I32, Value::Int32Tensor(values)) => Tensor::of(shape, values.into_data()),
        (ElementType::I64, Value::Int32Tensor(values)) => {
            // A floating-point number outside of INT32 became the first or the last of it.
            if values.iter().any(|value| matches!(*value, i32::MIN | i32::MAX)) {
                return Err(EvaluateError::OutputRange { name: info.name.clone() });
            }
            Tensor::of(shape, values.iter().copied().map(i64::from).collect())
        }
        (ElementType::Bool, Value::Int32Tensor(values)) => {
            Tensor::of(shape, values.iter().map(|value| *value != 0).collect())
        }
        (ElementType::I8, Value::Int8Tensor(values)) => Tensor::of(shape, values.into_data()),
        (ElementType::U8, Value::UInt8Tensor(values)) => Tensor::of(shape, values.into_data()),
        _ => None,
    };
    tensor.ok_or_else(|| failed("it has another type"))
}
