//! Writes the graph that the engine reads: the format of ONNX, with the weights beside it.

use half::f16;

use super::plan::{EngineAttribute, EngineNode, NetworkPlan, State, Value, engine_type};
use crate::onnx::constant::{self, ReadExternal};
use crate::onnx::error::LoadError;
use crate::onnx::flatten::ValueId;
use crate::onnx::proto::TensorProto;
use crate::onnx::tensor::{ElementType, Elements, Shape, Tensor};
use crate::onnx::{DeclaredDimension, ValueInfo};

/// The version of the operators, which the engine reads by their attributes.
const OPSET: u64 = 21;
/// The version of the format.
const IR_VERSION: u64 = 10;

/// A graph for the engine.
#[derive(Debug)]
pub(super) struct EngineFile {
    pub(super) model: Vec<u8>,
    /// The bytes of each constant, by the name of a file that the model refers to.
    pub(super) weights: Vec<(String, Vec<u8>)>,
}

/// Returns the name of a value.
pub(super) fn name(id: ValueId) -> String {
    format!("v{id}")
}

/// A message of protocol buffers.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn integer(&mut self, field: u64, value: u64) {
        self.varint(field << 3);
        self.varint(value);
    }

    fn float(&mut self, field: u64, value: f32) {
        self.varint(field << 3 | 5);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn text(&mut self, field: u64, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.bytes(field, &message.0);
    }
}

/// Writes a plan. Weights are read.
pub(super) fn write(plan: &NetworkPlan<'_, '_>, external: ReadExternal<'_>) -> Result<EngineFile, LoadError> {
    let mut graph = Message::default();
    for node in &plan.nodes {
        graph.message(1, &write_node(node));
    }
    let mut is_written = vec![false; plan.values.len()];
    let of_nodes = plan.nodes.iter().flat_map(|node| node.inputs.iter().flatten());
    let mut weights = Vec::new();
    for id in of_nodes.chain(plan.outputs.iter().map(|(id, _)| id)) {
        let Some(Value { element, state, .. }) = &plan.values[*id] else { continue };
        if std::mem::replace(&mut is_written[*id], true) {
            continue;
        }
        let (shape, bytes) = match state {
            State::Constant(tensor) => (*tensor.shape(), bytes_of(tensor)),
            State::Weight(proto, shape) => (*shape, weight(proto, *element, external)?),
            State::Deferred | State::Computed => continue,
        };
        let file = format!("{id}.data");
        graph.message(5, &write_constant(*id, *element, &shape, &file, bytes.len()));
        weights.push((file, bytes));
    }
    for (id, info) in &plan.inputs {
        graph.message(11, &write_value(*id, info));
    }
    is_written.fill(false);
    for (id, info) in &plan.outputs {
        if !std::mem::replace(&mut is_written[*id], true) {
            graph.message(12, &write_value(*id, &ValueInfo { dimensions: None, ..info.clone() }));
        }
    }
    let mut opset = Message::default();
    opset.integer(2, OPSET);
    let mut model = Message::default();
    model.integer(1, IR_VERSION);
    model.message(7, &graph);
    model.message(8, &opset);
    Ok(EngineFile { model: model.0, weights })
}

/// Returns the number of the engine's type.
const fn number(element: ElementType) -> u64 {
    match engine_type(element) {
        ElementType::U8 => 2,
        ElementType::I8 => 3,
        ElementType::I32 => 6,
        _ => 1,
    }
}

fn write_node(node: &EngineNode<'_>) -> Message {
    let mut message = Message::default();
    for (field, values) in [(1, &node.inputs), (2, &node.outputs)] {
        for id in values {
            message.text(field, &id.map(name).unwrap_or_default());
        }
    }
    message.text(3, &node.name);
    message.text(4, node.operator);
    for (name, value) in &node.attributes {
        let mut attribute = Message::default();
        attribute.text(1, name);
        let kind = match value {
            EngineAttribute::Float(value) => {
                attribute.float(2, *value);
                1
            }
            EngineAttribute::Int(value) => {
                attribute.integer(3, value.cast_unsigned());
                2
            }
            EngineAttribute::Text(value) => {
                attribute.bytes(4, value);
                3
            }
            EngineAttribute::Tensor(value) => {
                let mut tensor = Message::default();
                tensor.integer(2, number(value.element_type()));
                tensor.bytes(9, &bytes_of(value));
                attribute.message(5, &tensor);
                4
            }
            EngineAttribute::Floats(values) => {
                for value in values {
                    attribute.float(7, *value);
                }
                6
            }
            EngineAttribute::Ints(values) => {
                for value in values {
                    attribute.integer(8, value.cast_unsigned());
                }
                7
            }
        };
        attribute.integer(20, kind);
        message.message(5, &attribute);
    }
    message
}

fn write_constant(id: ValueId, element: ElementType, shape: &Shape, file: &str, length: usize) -> Message {
    let mut tensor = Message::default();
    for size in shape.dimensions() {
        tensor.integer(1, *size as u64);
    }
    tensor.integer(2, number(element));
    tensor.text(8, &name(id));
    for (key, value) in [("location", file), ("offset", "0"), ("length", &length.to_string())] {
        let mut entry = Message::default();
        entry.text(1, key);
        entry.text(2, value);
        tensor.message(13, &entry);
    }
    tensor.integer(14, 1);
    tensor
}

fn write_value(id: ValueId, info: &ValueInfo) -> Message {
    let mut tensor = Message::default();
    tensor.integer(1, number(info.element));
    if let Some(dimensions) = &info.dimensions {
        let mut shape = Message::default();
        for dimension in dimensions {
            let mut size = Message::default();
            match dimension {
                DeclaredDimension::Fixed(value) => size.integer(1, *value as u64),
                DeclaredDimension::Named(name) => size.text(2, name),
                DeclaredDimension::Unknown => {}
            }
            shape.message(1, &size);
        }
        tensor.message(2, &shape);
    }
    let mut kind = Message::default();
    kind.message(1, &tensor);
    let mut value = Message::default();
    value.text(1, &name(id));
    value.message(2, &kind);
    value
}

/// Reads an initializer in the engine's type.
fn weight(proto: &TensorProto<'_>, element: ElementType, external: ReadExternal<'_>) -> Result<Vec<u8>, LoadError> {
    if engine_type(element) == element
        && cfg!(target_endian = "little")
        && let Some(bytes) = constant::raw_bytes(proto, external)?
    {
        return Ok(bytes);
    }
    Ok(bytes_of(&constant::read(proto, external)?))
}

/// Returns the elements in the engine's type, and in the order of bytes of this machine.
fn bytes_of(tensor: &Tensor<'_>) -> Vec<u8> {
    let limits = i64::from(i32::MIN)..=i64::from(i32::MAX);
    // Constants outside of 32 bits are refused before.
    let narrow =
        |value: &i64| i32::try_from(*value).unwrap_or(if value < limits.start() { i32::MIN } else { i32::MAX });
    match tensor.elements() {
        Elements::F16(values) => values.iter().copied().map(f16::to_f32).flat_map(f32::to_ne_bytes).collect(),
        Elements::F32(values) => values.iter().copied().flat_map(f32::to_ne_bytes).collect(),
        Elements::I32(values) => values.iter().copied().flat_map(i32::to_ne_bytes).collect(),
        Elements::I64(values) => values.iter().map(narrow).flat_map(i32::to_ne_bytes).collect(),
        Elements::Bool(values) => values.iter().map(|value| i32::from(*value)).flat_map(i32::to_ne_bytes).collect(),
        Elements::I8(values) => values.iter().copied().flat_map(i8::to_ne_bytes).collect(),
        Elements::U8(values) => values.to_vec(),
        Elements::F64(_)
        | Elements::I16(_)
        | Elements::U16(_)
        | Elements::U32(_)
        | Elements::U64(_)
        | Elements::Text(_) => Vec::new(),
    }
}
