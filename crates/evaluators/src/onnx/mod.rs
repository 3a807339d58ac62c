//! ONNX models: tables, evaluated natively.
//!
//! An [`OnnxModel`] is loaded from the bytes of a file and evaluates its graph. The operators are all of `ai.onnx.ml`, and
//! the tensor operators that exporters of tables write around them; a graph with any other operator is refused by name.
//!
//! Files are untrusted. The reader (`wire`, `proto`, `constant`) borrows from the file and checks every declared count against
//! the bytes that are there. `flatten` numbers the values, expands functions, and orders the nodes. `build` makes an operator
//! of each node, with its attributes and types checked, and computes the nodes of constants, within limits. Before an
//! evaluation, `graph` infers the shapes of all values from those of the inputs, so that the memory is known before anything is
//! allocated; while it runs, `run` counts it. Operators are in `tables`.
//!
//! Where onnxruntime differs from the text of the standard, operators follow onnxruntime. Places are named in `tables`.

mod build;
mod constant;
mod error;
#[cfg(test)]
mod fixtures;
mod flatten;
mod fold;
#[cfg(test)]
mod goldens;
mod graph;
#[cfg(feature = "networks")]
pub mod networks;
mod node;
mod proto;
mod run;
mod tables;
mod tensor;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::atomic::AtomicBool;

use self::build::Compiled;
pub use self::constant::{ExternalRange, ReadExternal};
pub use self::error::{EvaluateError, Fault, LoadError, NodeFault, TensorFault};
pub use self::graph::Plan;
use self::proto::ModelProto;
pub use self::tensor::{Buffer, Element, ElementType, Elements, MAX_RANK, Shape, Tensor};
pub use self::wire::WireError;

/// The largest file, in bytes: protocol buffers have no larger messages.
pub const MAX_FILE_BYTES: usize = i32::MAX as usize;

/// A compiled model.
#[derive(Debug)]
pub struct OnnxModel {
    compiled: Compiled,
    info: ModelInfo,
}

/// What a file says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelInfo {
    pub ir_version: i64,
    /// The domains of operators and their versions. The default domain is `ai.onnx`.
    pub opsets: Vec<(String, i64)>,
    pub producer_name: String,
    pub producer_version: String,
    pub domain: String,
    pub model_version: i64,
    /// Custom metadata.
    pub metadata: Vec<(String, String)>,
}

/// What a graph takes and gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphInterface {
    /// The inputs that are not initializers.
    pub inputs: Vec<ValueInfo>,
    pub outputs: Vec<ValueInfo>,
    /// The names of the operators that outputs need, sorted; those of other domains than `ai.onnx` with their domain.
    pub operators: Vec<String>,
}

/// An input or output of a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueInfo {
    pub name: String,
    pub element: ElementType,
    /// The declared dimensions, or `None` if the file does not say how many there are.
    pub dimensions: Option<Vec<DeclaredDimension>>,
    /// The label of each column, for an output that is a list of maps in ONNX (`ZipMap`).
    pub labels: Option<Labels>,
}

/// A declared dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeclaredDimension {
    Fixed(usize),
    /// The same size wherever the name occurs.
    Named(String),
    Unknown,
}

/// The keys of maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Labels {
    Integers(Vec<i64>),
    Texts(Vec<String>),
}

impl Labels {
    /// Returns the number of labels.
    pub const fn len(&self) -> usize {
        match self {
            Self::Integers(labels) => labels.len(),
            Self::Texts(labels) => labels.len(),
        }
    }

    /// Returns whether there are no labels.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ModelInfo {
    /// Reads what a file says about itself, also if its graph is not evaluated natively.
    ///
    /// # Errors
    ///
    /// Fails if the file is not an ONNX model.
    pub fn read(file: &[u8]) -> Result<Self, LoadError> {
        Ok(Self::of(&ModelProto::read(file)?))
    }

    fn of(model: &ModelProto<'_>) -> Self {
        let domain = |domain: &str| if domain.is_empty() { "ai.onnx".to_owned() } else { domain.to_owned() };
        let mut opsets: Vec<(String, i64)> = Vec::new();
        for opset in &model.opsets {
            let opset = (domain(opset.domain), opset.version);
            // Some exporters name a domain twice.
            if !opsets.contains(&opset) {
                opsets.push(opset);
            }
        }
        Self {
            ir_version: model.ir_version,
            opsets,
            producer_name: model.producer_name.to_owned(),
            producer_version: model.producer_version.to_owned(),
            domain: model.domain.to_owned(),
            model_version: model.model_version,
            metadata: model.metadata.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        }
    }
}

impl OnnxModel {
    /// Loads a model from the bytes of its file. Data in other files are read by `external`.
    ///
    /// # Errors
    ///
    /// [`LoadError`] names the node, or the tensor, and what is not evaluated natively.
    pub fn load(file: &[u8], external: ReadExternal<'_>) -> Result<Self, LoadError> {
        if file.len() > MAX_FILE_BYTES {
            return Err(LoadError::FileSize { bytes: file.len(), limit: MAX_FILE_BYTES });
        }
        let model = ModelProto::read(file)?;
        Ok(Self { compiled: build::compile(&model, external)?, info: ModelInfo::of(&model) })
    }

    /// Returns what the file says about itself.
    pub const fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Returns its inputs, outputs and operators.
    pub const fn interface(&self) -> &GraphInterface {
        &self.compiled.interface
    }

    /// Plans the evaluation of some outputs, given by their positions, for inputs of these types and shapes.
    ///
    /// # Errors
    ///
    /// Fails if the inputs do not fit the declared ones, or an operator. Time is in proportion to the number of nodes.
    pub fn plan(&self, inputs: &[(ElementType, Shape)], outputs: &[usize]) -> Result<Plan, EvaluateError> {
        check_inputs(&self.compiled.interface.inputs, inputs)?;
        let shapes: Vec<Shape> = inputs.iter().map(|(_, shape)| *shape).collect();
        self.compiled.graph.plan(&shapes, outputs)
    }

    /// Evaluates outputs that were planned, in their order, until `stop` is set.
    ///
    /// # Errors
    ///
    /// Fails if an operator cannot be applied to the data, if the memory of values whose size depends on data exceeds the plan, or if
    /// an output has another number of columns than of labels.
    pub fn evaluate<'v>(
        &'v self,
        plan: &Plan,
        inputs: Vec<Tensor<'v>>,
        stop: &AtomicBool,
    ) -> Result<Vec<Tensor<'v>>, EvaluateError> {
        let outputs = self.compiled.graph.evaluate(plan, inputs, stop)?;
        for (position, output) in plan.outputs().iter().zip(&outputs) {
            self.compiled.interface.outputs[*position].check_labels(output.shape())?;
        }
        Ok(outputs)
    }
}

/// Checks that tensors have the declared types and dimensions.
fn check_inputs(declared: &[ValueInfo], inputs: &[(ElementType, Shape)]) -> Result<(), EvaluateError> {
    if inputs.len() != declared.len() {
        return Err(EvaluateError::InputCount { found: inputs.len(), wanted: declared.len() });
    }
    declared.iter().zip(inputs).try_for_each(|(declared, (element, shape))| declared.check(*element, shape))
}

impl ValueInfo {
    /// Checks that a tensor has the declared type and dimensions.
    fn check(&self, element: ElementType, shape: &Shape) -> Result<(), EvaluateError> {
        if element != self.element {
            return Err(EvaluateError::InputType { name: self.name.clone(), found: element, wanted: self.element });
        }
        let Some(dimensions) = &self.dimensions else { return Ok(()) };
        let fits = |(declared, found): (&DeclaredDimension, &usize)| match declared {
            DeclaredDimension::Fixed(size) => size == found,
            DeclaredDimension::Named(_) | DeclaredDimension::Unknown => true,
        };
        if dimensions.len() != shape.rank() || !dimensions.iter().zip(shape.dimensions()).all(fits) {
            let wanted = dimensions.iter().map(|dimension| match dimension {
                DeclaredDimension::Fixed(size) => size.to_string(),
                DeclaredDimension::Named(_) | DeclaredDimension::Unknown => "-1".to_owned(),
            });
            let wanted = format!("[{}]", wanted.collect::<Vec<_>>().join(", "));
            return Err(EvaluateError::InputShape { name: self.name.clone(), found: Box::new(*shape), wanted });
        }
        Ok(())
    }

    /// Checks that a tensor has a label for each column.
    fn check_labels(&self, shape: &Shape) -> Result<(), EvaluateError> {
        let Some(labels) = self.labels.as_ref().map(Labels::len) else { return Ok(()) };
        if shape.dimensions().last() == Some(&labels) {
            return Ok(());
        }
        Err(EvaluateError::Labels { name: self.name.clone(), labels, found: Box::new(*shape) })
    }

    /// Returns whether the first dimension can have any size.
    pub fn is_batched(&self) -> bool {
        let first = self.dimensions.as_ref().and_then(|dimensions| dimensions.first());
        matches!(first, Some(DeclaredDimension::Named(_) | DeclaredDimension::Unknown))
    }
}
