//! Compiles a model: nodes become operators, and those of constants become constants.

use std::collections::{HashMap, HashSet};

use super::constant::{self, ReadExternal};
use super::error::{LoadError, NodeFault};
use super::flatten::{FlatModel, FlatNode, ValueId, flatten};
use super::fold::Folding;
use super::graph::{Graph, Source, Step};
use super::node::{Built, InputSpec, NodeSpec};
use super::proto::{AttributeValue, Dimension, GraphProto, ModelProto, ValueProto, ValueType};
use super::tables;
use super::tensor::{ElementType, Tensor};
use super::{DeclaredDimension, GraphInterface, Labels, ValueInfo};

/// The operator that makes a map for each row, which is a tensor with labels here.
const ZIP_MAP: &str = "ZipMap";

/// A compiled graph, and what its file says about its inputs and outputs.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) graph: Graph,
    pub(super) interface: GraphInterface,
}

/// What is known of a value while the model is compiled.
#[derive(Debug, Clone, Copy)]
struct Compiling {
    element: ElementType,
    source: Source,
}

struct Builder<'m, 'a> {
    flat: &'m FlatModel<'a>,
    values: Vec<Option<Compiling>>,
    labels: HashMap<ValueId, Labels>,
    constants: Vec<Tensor<'static>>,
    steps: Vec<Step>,
    slots: usize,
    folding: Folding,
}

/// Compiles a model.
pub(super) fn compile(model: &ModelProto<'_>, external: ReadExternal<'_>) -> Result<Compiled, LoadError> {
    let graph = model.graph.as_ref().ok_or(LoadError::NoGraph)?;
    let flat = flatten(model)?;
    let order = flat.flat.order(&flat.outputs)?;
    // The first fault of a node is reported in the order of their computation, after all names of operators.
    for node in &order {
        let node = &flat.flat.nodes[*node];
        if tables::find(node.domain, node.operator).is_none() && !is_zip_map(node) {
            return Err(node_error(node, NodeFault::Operator));
        }
    }
    let mut builder = Builder {
        values: vec![None; flat.flat.names.len()],
        flat: &flat,
        labels: HashMap::new(),
        constants: Vec::new(),
        steps: Vec::new(),
        slots: 0,
        folding: Folding::new(),
    };
    let inputs = builder.inputs(graph)?;
    builder.initializers(graph, &order, external)?;
    for node in &order {
        builder.node(&flat.flat.nodes[*node])?;
    }
    let outputs = builder.outputs(graph)?;
    let mut operators: Vec<String> = order
        .iter()
        .map(|node| &flat.flat.nodes[*node])
        .map(|node| {
            if node.domain.is_empty() { node.operator.to_owned() } else { format!("{}.{}", node.domain, node.operator) }
        })
        .collect();
    operators.sort_unstable();
    operators.dedup();
    let elements = inputs.iter().map(|input| input.element).collect();
    let sources = flat.outputs.iter().filter_map(|output| builder.values[*output]).map(|value| value.source).collect();
    let mut compiled = Graph {
        steps: builder.steps,
        constants: builder.constants,
        slots: builder.slots,
        inputs: elements,
        outputs: sources,
    };
    release_early(&mut compiled);
    Ok(Compiled { graph: compiled, interface: GraphInterface { inputs, outputs, operators } })
}

/// Returns whether a node makes maps.
fn is_zip_map(node: &FlatNode<'_>) -> bool {
    node.domain == "ai.onnx.ml" && node.operator == ZIP_MAP
}

pub(super) fn node_error(node: &FlatNode<'_>, problem: NodeFault) -> LoadError {
    LoadError::Node {
        node: node.name.clone(),
        operator: node.operator.to_owned(),
        opset: node.opset,
        problem: Box::new(problem),
    }
}

impl Builder<'_, '_> {
    fn new_slot(&mut self, id: Option<ValueId>, element: ElementType) -> usize {
        let slot = self.slots;
        self.slots += 1;
        if let Some(id) = id {
            self.values[id] = Some(Compiling { element, source: Source::Slot(slot) });
        }
        slot
    }

    fn new_constant(&mut self, id: ValueId, tensor: Tensor<'static>) {
        let source = Source::Constant(self.constants.len());
        self.values[id] = Some(Compiling { element: tensor.element_type(), source });
        self.constants.push(tensor);
    }

    /// Declares the inputs that are not initializers.
    fn inputs(&mut self, graph: &GraphProto<'_>) -> Result<Vec<ValueInfo>, LoadError> {
        let mut inputs = Vec::new();
        let initializers: HashSet<ValueId> = self.flat.initializers.iter().copied().collect();
        for (input, id) in graph.inputs.iter().zip(&self.flat.inputs) {
            if initializers.contains(id) {
                continue;
            }
            let info = declared_value("input", input)?;
            self.new_slot(Some(*id), info.element);
            inputs.push(info);
        }
        Ok(inputs)
    }

    /// Reads the initializers that some node or output uses.
    fn initializers(
        &mut self,
        graph: &GraphProto<'_>,
        order: &[usize],
        external: ReadExternal<'_>,
    ) -> Result<(), LoadError> {
        let mut used = vec![false; self.values.len()];
        let of_nodes = order.iter().flat_map(|node| self.flat.flat.nodes[*node].inputs.iter().flatten());
        for id in of_nodes.chain(&self.flat.outputs) {
            used[*id] = true;
        }
        for (tensor, id) in graph.initializers.iter().zip(&self.flat.initializers) {
            if used[*id] {
                let tensor = constant::read(tensor, external)?;
                self.new_constant(*id, tensor);
            }
        }
        Ok(())
    }

    fn node(&mut self, node: &FlatNode<'_>) -> Result<(), LoadError> {
        let problem = if is_zip_map(node) { self.zip_map(node) } else { self.operator(node) };
        problem.map_err(|problem| node_error(node, problem))
    }

    fn operator(&mut self, node: &FlatNode<'_>) -> Result<(), NodeFault> {
        let constructor = tables::find(node.domain, node.operator).ok_or(NodeFault::Operator)?;
        if node.inputs.iter().flatten().any(|id| self.labels.contains_key(id)) {
            return Err(NodeFault::InputType { found: "map".to_owned() });
        }
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (index, id) in node.inputs.iter().enumerate() {
            let Some(id) = id else {
                inputs.push(None);
                continue;
            };
            let value = self.values[*id].ok_or(NodeFault::MissingInput { index })?;
            let constant = match value.source {
                Source::Constant(constant) => self.constants.get(constant),
                Source::Slot(_) => None,
            };
            inputs.push(Some(InputSpec { element: value.element, value: constant }));
        }
        let sources: Vec<Option<Source>> =
            node.inputs.iter().map(|id| id.and_then(|id| self.values[id]).map(|value| value.source)).collect();
        let spec = NodeSpec::new(node.operator, node.opset, inputs, node.outputs.len(), &node.attributes);
        let Built { operator, outputs } = constructor(&spec)?;
        if let Some(name) = spec.unused_attribute() {
            return Err(NodeFault::UnknownAttribute { name: name.to_owned() });
        }
        if node.outputs.len() > outputs.len() {
            return Err(NodeFault::Count { what: "outputs", found: node.outputs.len(), wanted: outputs.len() });
        }
        if sources.iter().flatten().all(|source| matches!(source, Source::Constant(_))) {
            let constants: Vec<Option<&Tensor<'static>>> = sources
                .iter()
                .map(|source| match source {
                    Some(Source::Constant(constant)) => self.constants.get(*constant),
                    _ => None,
                })
                .collect();
            let values = self.folding.fold(operator.as_ref(), &constants)?;
            for (id, tensor) in node.outputs.iter().zip(values) {
                if let Some(id) = id {
                    self.new_constant(*id, tensor);
                }
            }
            return Ok(());
        }
        let names = node.outputs.iter().copied().chain(std::iter::repeat(None));
        let outputs =
            outputs.into_iter().zip(names).map(|(element, id)| (self.new_slot(id, element), element)).collect();
        self.steps.push(Step {
            name: node.name.clone(),
            title: node.operator.to_owned(),
            operator,
            inputs: sources,
            outputs,
            last_used: Vec::new(),
        });
        Ok(())
    }

    /// Gives a value the labels of a node that makes maps of it.
    fn zip_map(&mut self, node: &FlatNode<'_>) -> Result<(), NodeFault> {
        let [Some(input)] = node.inputs[..] else {
            return Err(NodeFault::Count { what: "inputs", found: node.inputs.len(), wanted: 1 });
        };
        let [Some(output)] = node.outputs[..] else {
            return Err(NodeFault::Count { what: "outputs", found: node.outputs.len(), wanted: 1 });
        };
        let value = self.values[input].ok_or(NodeFault::MissingInput { index: 0 })?;
        if value.element != ElementType::F32 || self.labels.contains_key(&input) {
            return Err(NodeSpec::type_fault(value.element));
        }
        let labels = node.attributes.iter().find_map(|attribute| match (&attribute.name, &attribute.value) {
            (&"classlabels_int64s", AttributeValue::Ints(labels)) => Some(Labels::Integers(labels.clone())),
            (&"classlabels_strings", AttributeValue::Texts(labels)) => {
                let text = |label: &&[u8]| String::from_utf8_lossy(label).into_owned();
                Some(Labels::Texts(labels.iter().map(text).collect()))
            }
            _ => None,
        });
        let labels = labels.ok_or_else(|| NodeFault::Damaged("it has no labels".to_owned()))?;
        self.labels.insert(output, labels);
        self.values[output] = Some(value);
        Ok(())
    }

    /// Describes the outputs of the graph.
    fn outputs(&self, graph: &GraphProto<'_>) -> Result<Vec<ValueInfo>, LoadError> {
        let mut outputs = Vec::new();
        for (output, id) in graph.outputs.iter().zip(&self.flat.outputs) {
            let undefined = || LoadError::Undefined { name: output.name.to_owned() };
            let value = self.values[*id].ok_or_else(undefined)?;
            let labels = self.labels.get(id).cloned();
            let mut info = match &labels {
                // A map has no shape; the tensor has a column for each label.
                Some(labels) => ValueInfo {
                    name: output.name.to_owned(),
                    element: value.element,
                    dimensions: Some(vec![DeclaredDimension::Unknown, DeclaredDimension::Fixed(labels.len())]),
                    labels: None,
                },
                None if matches!(output.value, ValueType::None) => {
                    ValueInfo { name: output.name.to_owned(), element: value.element, dimensions: None, labels: None }
                }
                None => declared_value("output", output)?,
            };
            if info.element != value.element {
                let found = format!("{}, but the graph computes {}", info.element, value.element);
                return Err(LoadError::ValueType { what: "output", name: info.name, found });
            }
            info.labels = labels;
            outputs.push(info);
        }
        Ok(outputs)
    }
}

/// Reads the type and the dimensions of an input or output.
pub(super) fn declared_value(what: &'static str, value: &ValueProto<'_>) -> Result<ValueInfo, LoadError> {
    let refuse = |found| LoadError::ValueType { what, name: value.name.to_owned(), found };
    let (number, dimensions) = match &value.value {
        ValueType::Tensor(number, dimensions) => (*number, dimensions),
        ValueType::None => return Err(refuse("unknown".to_owned())),
        ValueType::SequenceOfMaps => return Err(refuse("sequence of maps".to_owned())),
        ValueType::Other(found) => return Err(refuse((*found).to_owned())),
    };
    let element = ElementType::of_number(number).ok_or_else(|| refuse(ElementType::name_of(number)))?;
    let dimension = |dimension: &Dimension<'_>| match dimension {
        // Some exporters write 0 or -1 for what they do not know.
        Dimension::Fixed(size) => match usize::try_from(*size) {
            Ok(size) if size > 0 => DeclaredDimension::Fixed(size),
            _ => DeclaredDimension::Unknown,
        },
        Dimension::Named(name) => DeclaredDimension::Named((*name).to_owned()),
        Dimension::Unknown => DeclaredDimension::Unknown,
    };
    let dimensions = dimensions.as_ref().map(|list| list.iter().map(dimension).collect());
    Ok(ValueInfo { name: value.name.to_owned(), element, dimensions, labels: None })
}

/// Notes after which step each slot is no longer read, so that its memory can be used again.
fn release_early(graph: &mut Graph) {
    let mut is_read = vec![false; graph.slots];
    for output in &graph.outputs {
        if let Source::Slot(slot) = output {
            is_read[*slot] = true;
        }
    }
    for step in graph.steps.iter_mut().rev() {
        for source in step.inputs.iter().flatten() {
            if let Source::Slot(slot) = source
                && !is_read[*slot]
            {
                is_read[*slot] = true;
                step.last_used.push(*slot);
            }
        }
    }
}
