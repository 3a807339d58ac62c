//! Checks a graph against the rules, and makes the nodes that the engine computes.
//!
//! The engine knows four types: FP32 (also for FP16), 32-bit integers (also for INT64 and BOOL), INT8 and UINT8. It sees no
//! file, but the nodes of a plan, whose differences to onnxruntime are removed here: an operator is refused, or replaced by
//! others. `ranges` makes sure that INT64 fits in 32 bits.

use std::collections::HashSet;

use super::ranges;
use super::rules::{self, Check, Effect, Output, Rule, Slot};
use crate::onnx::ValueInfo;
use crate::onnx::build::{declared_value, node_error};
use crate::onnx::constant::{self, ReadExternal};
use crate::onnx::error::{LoadError, NodeFault, TensorFault};
use crate::onnx::flatten::{FlatModel, FlatNode, ValueId};
use crate::onnx::fold::Folding;
use crate::onnx::node::{Built, InputSpec, NodeSpec};
use crate::onnx::proto::{AttributeProto, AttributeValue, GraphProto, ModelProto, TensorProto, ValueType};
use crate::onnx::tables;
use crate::onnx::tensor::{Element, ElementType, Elements, Shape, Tensor};

/// The most inputs, and the most outputs.
const MAX_VALUES: usize = 4096;
/// The most elements that a constant may ask an operator to make.
const MAX_ELEMENTS: i64 = 1 << 28;
/// The largest integer of an attribute such as `pads`.
const MAX_ATTRIBUTE: i64 = 1 << 16;
/// Constants of more bytes are left to the engine, if an operator does not make larger ones of them.
const MAX_FOLDED: usize = 1 << 20;
/// The types of values.
pub(super) const ELEMENTS: &[ElementType] = &[
    ElementType::F16,
    ElementType::F32,
    ElementType::I32,
    ElementType::I64,
    ElementType::Bool,
    ElementType::I8,
    ElementType::U8,
];

/// What the engine is to compute.
#[derive(Debug)]
pub(super) struct NetworkPlan<'m, 'a> {
    pub(super) nodes: Vec<EngineNode<'a>>,
    pub(super) values: Vec<Option<Value<'m, 'a>>>,
    pub(super) inputs: Vec<(ValueId, ValueInfo)>,
    pub(super) outputs: Vec<(ValueId, ValueInfo)>,
    /// The operators of the file, sorted.
    pub(super) operators: Vec<String>,
    /// The largest absolute value that INT64 inputs may have.
    pub(super) input_limit: i64,
}

/// A value of the graph.
#[derive(Debug, Clone)]
pub(super) struct Value<'m, 'a> {
    pub(super) element: ElementType,
    /// Its number in the engine's graph.
    pub(super) id: ValueId,
    pub(super) state: State<'m, 'a>,
    /// Whether it depends on constants and on the sizes of tensors only.
    pub(super) is_size: bool,
}

/// When a value is known.
#[derive(Debug, Clone)]
pub(super) enum State<'m, 'a> {
    Constant(Tensor<'static>),
    /// An initializer that is read when the engine is loaded.
    Weight(&'m TensorProto<'a>, Shape),
    /// A constant that the engine computes.
    Deferred,
    Computed,
}

/// A node of the engine's graph.
#[derive(Debug)]
pub(super) struct EngineNode<'a> {
    /// The node of the file that it stands for.
    pub(super) name: String,
    pub(super) title: &'a str,
    pub(super) opset: i64,
    pub(super) operator: &'a str,
    pub(super) inputs: Vec<Option<ValueId>>,
    pub(super) outputs: Vec<Option<ValueId>>,
    pub(super) attributes: Vec<(&'a str, EngineAttribute<'a>)>,
    pub(super) effect: Effect,
    /// The inputs whose integers the outputs consist of.
    pub(super) numbers: Vec<ValueId>,
}

#[derive(Debug)]
pub(super) enum EngineAttribute<'a> {
    Int(i64),
    Float(f32),
    Text(&'a [u8]),
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Tensor(Tensor<'static>),
}

/// Returns a value's type in the engine.
pub(super) const fn engine_type(element: ElementType) -> ElementType {
    match element {
        ElementType::F16 => ElementType::F32,
        ElementType::I64 | ElementType::Bool => ElementType::I32,
        other => other,
    }
}

pub(super) const fn is_float(element: ElementType) -> bool {
    matches!(element, ElementType::F16 | ElementType::F32)
}

pub(super) const fn is_integer(element: ElementType) -> bool {
    matches!(element, ElementType::I32 | ElementType::I64)
}

pub(super) struct Planner<'m, 'a, 'e> {
    flat: &'m FlatModel<'a>,
    external: ReadExternal<'e>,
    /// Whether the weights are read where the plan depends on them: a plan that is only checked does without.
    pub(super) reads_weights: bool,
    pub(super) values: Vec<Option<Value<'m, 'a>>>,
    pub(super) nodes: Vec<EngineNode<'a>>,
    folding: Folding,
}

/// Checks a model.
pub(super) fn plan<'m, 'a>(
    model: &'m ModelProto<'a>,
    flat: &'m FlatModel<'a>,
    external: ReadExternal<'_>,
    reads_weights: bool,
) -> Result<NetworkPlan<'m, 'a>, LoadError> {
    let graph = model.graph.as_ref().ok_or(LoadError::NoGraph)?;
    for (what, count) in [("inputs", graph.inputs.len()), ("outputs", graph.outputs.len())] {
        if count > MAX_VALUES + graph.initializers.len() {
            return Err(LoadError::Limit { what, limit: MAX_VALUES });
        }
    }
    let order = flat.flat.order(&flat.outputs)?;
    let nodes = || order.iter().map(|node| &flat.flat.nodes[*node]);
    if let Some(node) = nodes().find(|node| !is_known(node)) {
        return Err(node_error(node, NodeFault::Operator));
    }
    let values = vec![None; flat.flat.names.len()];
    let mut planner = Planner { flat, external, reads_weights, values, nodes: Vec::new(), folding: Folding::new() };
    let inputs = planner.inputs(graph)?;
    planner.initializers(graph, &order)?;
    for node in nodes() {
        planner.node(node).map_err(|problem| node_error(node, problem))?;
    }
    let outputs = planner.outputs(graph)?;
    let mut operators: Vec<String> = nodes().map(|node| node.operator.to_owned()).collect();
    operators.sort_unstable();
    operators.dedup();
    let Planner { values, nodes, .. } = planner;
    let input_limit = ranges::input_limit(&nodes, &values)?;
    Ok(NetworkPlan { nodes, values, inputs, outputs, operators, input_limit })
}

/// Returns whether the operator of a node has a rule, or disappears from the graph.
fn is_known(node: &FlatNode<'_>) -> bool {
    node.domain.is_empty() && (matches!(node.operator, "Constant" | "Dropout") || rules::find(node.operator).is_some())
}

impl<'m, 'a> Planner<'m, 'a, '_> {
    fn inputs(&mut self, graph: &GraphProto<'_>) -> Result<Vec<(ValueId, ValueInfo)>, LoadError> {
        let initializers: HashSet<ValueId> = self.flat.initializers.iter().copied().collect();
        let mut inputs = Vec::new();
        for (input, id) in graph.inputs.iter().zip(&self.flat.inputs) {
            if initializers.contains(id) {
                continue;
            }
            let info = declared_value("input", input)?;
            if !ELEMENTS.contains(&info.element) {
                return Err(LoadError::ValueType { what: "input", name: info.name, found: info.element.to_string() });
            }
            self.values[*id] = Some(Value { element: info.element, id: *id, state: State::Computed, is_size: false });
            inputs.push((*id, info));
        }
        Ok(inputs)
    }

    /// Declares the initializers that some node or output uses. Integers are read, since they may be sizes.
    fn initializers(&mut self, graph: &'m GraphProto<'a>, order: &[usize]) -> Result<(), LoadError> {
        let of_nodes = order.iter().flat_map(|node| self.flat.flat.nodes[*node].inputs.iter().flatten());
        let used: HashSet<ValueId> = of_nodes.chain(&self.flat.outputs).copied().collect();
        for (tensor, id) in graph.initializers.iter().zip(&self.flat.initializers) {
            if !used.contains(id) {
                continue;
            }
            let (element, shape) = constant::declared(tensor)?;
            let state = match element {
                ElementType::I64 | ElementType::I32 | ElementType::Bool => {
                    State::Constant(constant::read(tensor, self.external)?)
                }
                element if ELEMENTS.contains(&element) => State::Weight(tensor, shape),
                element => {
                    let problem = TensorFault::Type { found: element.to_string() };
                    return Err(LoadError::Tensor { name: tensor.name.to_owned(), problem });
                }
            };
            self.values[*id] = Some(Value { element, id: *id, state, is_size: true });
        }
        Ok(())
    }

    fn outputs(&self, graph: &GraphProto<'_>) -> Result<Vec<(ValueId, ValueInfo)>, LoadError> {
        let mut outputs = Vec::new();
        for (output, id) in graph.outputs.iter().zip(&self.flat.outputs) {
            let undefined = || LoadError::Undefined { name: output.name.to_owned() };
            let value = self.values[*id].as_ref().ok_or_else(undefined)?;
            let info = if matches!(output.value, ValueType::None) {
                ValueInfo { name: output.name.to_owned(), element: value.element, dimensions: None, labels: None }
            } else {
                declared_value("output", output)?
            };
            if info.element != value.element {
                let found = format!("{}, but the graph computes {}", info.element, value.element);
                return Err(LoadError::ValueType { what: "output", name: info.name, found });
            }
            if let State::Constant(tensor) = &value.state
                && let Some(value) = wide_number(tensor)
            {
                return Err(LoadError::Tensor { name: info.name, problem: TensorFault::Wide { value } });
            }
            outputs.push((value.id, info));
        }
        Ok(outputs)
    }

    /// Returns the value of a node's input that must be there.
    fn value(&self, node: &FlatNode<'_>, index: usize) -> Result<&Value<'m, 'a>, NodeFault> {
        let id = node.inputs.get(index).copied().flatten();
        id.and_then(|id| self.values[id].as_ref()).ok_or(NodeFault::MissingInput { index })
    }

    fn node(&mut self, node: &'m FlatNode<'a>) -> Result<(), NodeFault> {
        if node.operator == "Dropout" {
            return self.dropout(node);
        }
        let values: Vec<Option<Value<'m, 'a>>> = node
            .inputs
            .iter()
            .enumerate()
            .map(|(index, id)| id.map(|_| self.value(node, index).cloned()).transpose())
            .collect::<Result<_, _>>()?;
        let is_constant = values.iter().flatten().all(|value| !matches!(value.state, State::Computed));
        let rule = rules::find(node.operator);
        if is_constant && !leaves_to_engine(rule, &values) {
            match self.fold(node, &values) {
                Err(fault) if fault.is_refusal() && rule.is_some_and(|rule| rule.shrinks) => {}
                folded => return folded,
            }
        }
        let rule = rule.ok_or(NodeFault::Operator)?;
        self.engine_node(node, rule, values, is_constant)
    }

    /// Computes a node of constants as tables do.
    fn fold(&mut self, node: &FlatNode<'_>, values: &[Option<Value<'m, 'a>>]) -> Result<(), NodeFault> {
        let refuse = || NodeFault::Unsupported("to compute it from constants".to_owned());
        let constructor = tables::find("", node.operator).ok_or_else(refuse)?;
        let mut inputs = Vec::with_capacity(values.len());
        for value in values {
            inputs.push(match value {
                None => None,
                Some(value) => Some(self.tensor(value)?.ok_or_else(refuse)?),
            });
        }
        let specs = inputs
            .iter()
            .map(|input| input.as_ref().map(|value| InputSpec { element: value.element_type(), value: Some(value) }));
        let spec = NodeSpec::new(node.operator, node.opset, specs.collect(), node.outputs.len(), &node.attributes);
        let Built { operator, .. } = constructor(&spec)?;
        if let Some(name) = spec.unused_attribute() {
            return Err(NodeFault::UnknownAttribute { name: name.to_owned() });
        }
        let inputs: Vec<Option<&Tensor<'static>>> = inputs.iter().map(Option::as_ref).collect();
        let results = self.folding.fold(operator.as_ref(), &inputs)?;
        for (id, tensor) in node.outputs.iter().zip(results) {
            let Some(id) = id else { continue };
            let element = tensor.element_type();
            if !ELEMENTS.contains(&element) {
                return Err(NodeSpec::type_fault(element));
            }
            self.values[*id] = Some(Value { element, id: *id, state: State::Constant(tensor), is_size: true });
        }
        Ok(())
    }

    /// Passes the input on, as outside of training.
    fn dropout(&mut self, node: &FlatNode<'_>) -> Result<(), NodeFault> {
        let value = self.value(node, 0)?.clone();
        if !is_float(value.element) {
            return Err(NodeSpec::type_fault(value.element));
        }
        let trains = node.inputs.get(2).copied().flatten().and_then(|id| self.values[id].as_ref());
        let is_off = trains.is_none_or(|value| match &value.state {
            State::Constant(tensor) => tensor.values::<bool>().is_some_and(|flags| flags.iter().all(|flag| !flag)),
            _ => false,
        });
        if !is_off || node.outputs.iter().skip(1).any(Option::is_some) {
            return Err(NodeFault::Unsupported("training".to_owned()));
        }
        if let Some(output) = node.outputs.first().copied().flatten() {
            self.values[output] = Some(value);
        }
        Ok(())
    }

    /// Adds a node that its rule allows.
    fn engine_node(
        &mut self,
        node: &'m FlatNode<'a>,
        rule: &'static Rule,
        mut values: Vec<Option<Value<'m, 'a>>>,
        is_constant: bool,
    ) -> Result<(), NodeFault> {
        if node.opset < rule.since || node.opset > rule.until {
            return Err(NodeFault::Unsupported(format!("opset {} of it", node.opset)));
        }
        while values.last().is_some_and(Option::is_none) {
            values.pop();
        }
        let (element, numbers) = check_inputs(rule, &values)?;
        let attributes = check_attributes(rule, node)?;
        check_sizes(rule, &values)?;
        let is_size = rule.effect == Effect::Sizes || values.iter().flatten().all(|value| value.is_size);
        let mut outputs = Vec::new();
        for (index, id) in node.outputs.iter().enumerate() {
            let variadic = node.operator == "Split";
            let output = rule.outputs.get(index).or_else(|| rule.outputs.last().filter(|_| variadic));
            let Some(id) = id else {
                outputs.push(None);
                continue;
            };
            let element = match output {
                Some(Output::T) => element,
                Some(Output::Of(element)) => *element,
                Some(Output::Like(input)) => values
                    .get(*input)
                    .and_then(Option::as_ref)
                    .map(|value| value.element)
                    .ok_or(NodeFault::MissingInput { index: *input })?,
                None | Some(Output::Refused) => {
                    return Err(NodeFault::Unsupported(format!("output {index}")));
                }
            };
            let state = if is_constant { State::Deferred } else { State::Computed };
            self.values[*id] = Some(Value { element, id: *id, state, is_size });
            outputs.push(Some(*id));
        }
        let is_slice = node.operator == "Slice";
        let mut inputs = Vec::with_capacity(values.len());
        for (index, value) in values.iter().enumerate() {
            inputs.push(match value {
                Some(value) => Some(self.narrow(value, is_slice && matches!(index, 1 | 2))?),
                None => None,
            });
        }
        let engine_node = EngineNode {
            name: node.name.clone(),
            title: node.operator,
            opset: node.opset,
            operator: node.operator,
            inputs,
            outputs,
            attributes,
            effect: rule.effect,
            numbers,
        };
        self.rewrite(node, engine_node, &values)
    }

    /// Returns the number of a value. Integers of constants must fit in 32 bits, or may be cut to them.
    fn narrow(&mut self, value: &Value<'m, 'a>, may_cut: bool) -> Result<ValueId, NodeFault> {
        let State::Constant(tensor) = &value.state else { return Ok(value.id) };
        let Some(number) = wide_number(tensor) else { return Ok(value.id) };
        let Elements::I64(numbers) = tensor.elements() else { return Ok(value.id) };
        if !may_cut {
            let name = self.flat.flat.names.get(value.id).copied().unwrap_or_default();
            return Err(NodeFault::Unsupported(format!("the number {number} of `{name}`, outside of int32,")));
        }
        let cut = |number: &i64| (*number).clamp(i64::from(i32::MIN), i64::from(i32::MAX));
        let (shape, numbers) = (*tensor.shape(), numbers.iter().map(cut).collect::<Vec<i64>>());
        self.constant_of(shape, numbers)
    }

    /// Reads a constant, if it is known before the engine computes it.
    pub(super) fn tensor(&self, value: &Value<'_, '_>) -> Result<Option<Tensor<'static>>, NodeFault> {
        match &value.state {
            State::Constant(tensor) => Ok(Some(tensor.clone())),
            State::Weight(tensor, _) => {
                let read = constant::read(tensor, self.external);
                read.map(Some).map_err(|error| NodeFault::Damaged(error.to_string()))
            }
            State::Deferred | State::Computed => Ok(None),
        }
    }

    pub(super) fn new_value(&mut self, element: ElementType, state: State<'m, 'a>, is_size: bool) -> ValueId {
        let id = self.values.len();
        self.values.push(Some(Value { element, id, state, is_size }));
        id
    }

    /// Adds a constant of values, as many as the shape has.
    pub(super) fn constant_of<T: Element>(&mut self, shape: Shape, values: Vec<T>) -> Result<ValueId, NodeFault> {
        Ok(self.constant(Tensor::of(shape, values).ok_or_else(inconsistent)?))
    }

    fn constant(&mut self, tensor: Tensor<'static>) -> ValueId {
        self.new_value(tensor.element_type(), State::Constant(tensor), true)
    }
}

/// Returns whether the engine computes a node of constants: large ones, if they do not become larger.
fn leaves_to_engine(rule: Option<&Rule>, values: &[Option<Value<'_, '_>>]) -> bool {
    let bytes = |value: &Value<'_, '_>| match &value.state {
        State::Constant(tensor) => tensor.byte_len(),
        State::Weight(_, shape) => shape.count().saturating_mul(value.element.width()),
        State::Deferred | State::Computed => MAX_FOLDED,
    };
    let total = values.iter().flatten().map(bytes).fold(0, usize::saturating_add);
    let has_table = rule.is_none_or(|rule| tables::find("", rule.name).is_some());
    rule.is_some_and(|rule| rule.shrinks) && (total >= MAX_FOLDED || !has_table)
}

pub(super) fn inconsistent() -> NodeFault {
    NodeFault::Damaged("a constant has another number of elements than its shape".to_owned())
}

/// Returns the first number of a tensor that does not fit in 32 bits.
pub(super) fn wide_number(tensor: &Tensor<'_>) -> Option<i64> {
    tensor.values::<i64>()?.iter().copied().find(|number| i32::try_from(*number).is_err())
}

/// Checks the types of inputs. Returns the type of the operator, and the inputs that have it.
fn check_inputs(rule: &Rule, values: &[Option<Value<'_, '_>>]) -> Result<(ElementType, Vec<ValueId>), NodeFault> {
    let most = if rule.variadic { usize::MAX } else { rule.inputs.len() };
    let found = values.len();
    if found > most {
        return Err(NodeFault::Count { what: "inputs", found, wanted: most });
    }
    if let Some(index) = (0..rule.least).find(|index| values.get(*index).is_none_or(Option::is_none)) {
        return Err(NodeFault::MissingInput { index });
    }
    let (mut shared, mut numbers) = (None, Vec::new());
    for (index, value) in values.iter().enumerate() {
        let Some(value) = value else { continue };
        let types = match rule.inputs.get(index).or(rule.inputs.last()) {
            Some(Slot::T) => {
                numbers.push(value.id);
                if shared.is_some_and(|shared| shared != value.element) {
                    return Err(NodeSpec::type_fault(value.element));
                }
                shared = Some(value.element);
                rule.types
            }
            Some(Slot::Of(types)) => *types,
            Some(Slot::Refused) | None => return Err(NodeFault::Unsupported(format!("input {index}"))),
        };
        if !rules::contains(types, value.element) {
            return Err(NodeSpec::type_fault(value.element));
        }
    }
    // Only the output of `ConstantOfShape` has its type.
    Ok((shared.unwrap_or(ElementType::F32), numbers))
}

/// Checks the attributes of a node, and returns them.
fn check_attributes<'a>(rule: &Rule, node: &FlatNode<'a>) -> Result<Vec<(&'a str, EngineAttribute<'a>)>, NodeFault> {
    let mut attributes = Vec::new();
    for AttributeProto { name, value, .. } in &node.attributes {
        let unknown = || NodeFault::UnknownAttribute { name: (*name).to_owned() };
        let (_, check) = rule.attributes.iter().find(|(known, _)| known == name).ok_or_else(unknown)?;
        let refused = || NodeFault::Unsupported(format!("this value of attribute `{name}`"));
        if attributes.iter().any(|(known, _)| known == name) {
            return Err(NodeFault::Attribute { name: (*name).to_owned(), problem: "it occurs twice".to_owned() });
        }
        let is_allowed = match (check, value) {
            (Check::Any, _) => true,
            (Check::Int(wanted), AttributeValue::Int(found)) => wanted == found,
            (Check::Float(wanted), AttributeValue::Float(found)) => wanted.to_bits() == found.to_bits(),
            (Check::Small, AttributeValue::Int(found)) => found.unsigned_abs() <= MAX_ATTRIBUTE.unsigned_abs(),
            (Check::Small, AttributeValue::Ints(found)) => {
                found.iter().all(|number| number.unsigned_abs() <= MAX_ATTRIBUTE.unsigned_abs())
            }
            (Check::Ones, AttributeValue::Ints(found)) => found.iter().all(|number| *number == 1),
            (Check::Text(wanted), AttributeValue::Text(found)) => {
                wanted.iter().any(|wanted| wanted.as_bytes() == *found)
            }
            (Check::Texts(wanted), AttributeValue::Texts(found)) => {
                found.len() % wanted.len() == 0
                    && found.iter().zip(wanted.iter().cycle()).all(|(found, wanted)| wanted.as_bytes() == *found)
            }
            _ => false,
        };
        if !is_allowed {
            return Err(refused());
        }
        attributes.push((
            *name,
            match value {
                AttributeValue::Int(value) => EngineAttribute::Int(*value),
                AttributeValue::Float(value) => EngineAttribute::Float(*value),
                AttributeValue::Text(value) => EngineAttribute::Text(value),
                AttributeValue::Ints(values) => EngineAttribute::Ints(values.clone()),
                AttributeValue::Floats(values) => EngineAttribute::Floats(values.clone()),
                // Checked to be the default.
                AttributeValue::Texts(_) => continue,
                // Read where the operator is rewritten.
                AttributeValue::Tensor(_) if *name == "value" => continue,
                AttributeValue::Tensor(_) | AttributeValue::None | AttributeValue::Other => return Err(refused()),
            },
        ));
    }
    Ok(attributes)
}

/// Checks that a constant does not ask for more elements than any model needs.
fn check_sizes(rule: &Rule, values: &[Option<Value<'_, '_>>]) -> Result<(), NodeFault> {
    let Some(first) = rule.sizes else { return Ok(()) };
    for value in values.iter().skip(first).flatten() {
        let State::Constant(tensor) = &value.state else { continue };
        let Some(sizes) = tensor.integers() else { continue };
        let product = sizes.iter().try_fold(1_i64, |product, size| product.checked_mul(size.checked_abs()?.max(1)));
        if product.is_none_or(|product| product > MAX_ELEMENTS) {
            return Err(NodeFault::Unsupported(format!("a constant that asks for more than {MAX_ELEMENTS} elements")));
        }
    }
    Ok(())
}
