//! The messages of an ONNX file, as far as tables need them. They borrow from the file.
//!
//! The numbers of fields are those of `onnx.proto` (ONNX 1.19, IR version 12).

use super::error::{LoadError, TensorFault};
use super::wire::{Field, WireError, fields};

/// The most nodes of a model, with those of its functions.
pub(super) const MAX_NODES: usize = 100_000;
/// The longest name, in bytes.
pub(super) const MAX_NAME: usize = 4096;
/// The most attributes of a node.
const MAX_ATTRIBUTES: usize = 256;
/// The most opsets of a model or function.
const MAX_OPSETS: usize = 256;
/// The most inputs and outputs of the graph, and functions.
const MAX_ENTRIES: usize = 100_000;

/// A model.
#[derive(Debug, Default)]
pub(super) struct ModelProto<'a> {
    pub(super) ir_version: i64,
    pub(super) producer_name: &'a str,
    pub(super) producer_version: &'a str,
    pub(super) domain: &'a str,
    pub(super) model_version: i64,
    pub(super) graph: Option<GraphProto<'a>>,
    pub(super) opsets: Vec<Opset<'a>>,
    pub(super) metadata: Vec<(&'a str, &'a str)>,
    pub(super) functions: Vec<FunctionProto<'a>>,
}

/// The version of a domain's operators.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Opset<'a> {
    pub(super) domain: &'a str,
    pub(super) version: i64,
}

#[derive(Debug, Default)]
pub(super) struct GraphProto<'a> {
    pub(super) nodes: Vec<NodeProto<'a>>,
    pub(super) initializers: Vec<TensorProto<'a>>,
    pub(super) inputs: Vec<ValueProto<'a>>,
    pub(super) outputs: Vec<ValueProto<'a>>,
}

/// A function of the model, which nodes call like an operator.
#[derive(Debug, Default)]
pub(super) struct FunctionProto<'a> {
    pub(super) domain: &'a str,
    pub(super) name: &'a str,
    pub(super) inputs: Vec<&'a str>,
    pub(super) outputs: Vec<&'a str>,
    /// Attributes that have a default.
    pub(super) defaults: Vec<AttributeProto<'a>>,
    pub(super) nodes: Vec<NodeProto<'a>>,
    pub(super) opsets: Vec<Opset<'a>>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct NodeProto<'a> {
    pub(super) name: &'a str,
    pub(super) operator: &'a str,
    pub(super) domain: &'a str,
    pub(super) inputs: Vec<&'a str>,
    pub(super) outputs: Vec<&'a str>,
    pub(super) attributes: Vec<AttributeProto<'a>>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct AttributeProto<'a> {
    pub(super) name: &'a str,
    pub(super) value: AttributeValue<'a>,
    /// The attribute of the function's call that this one stands for.
    pub(super) reference: Option<&'a str>,
}

#[derive(Debug, Clone, Default)]
pub(super) enum AttributeValue<'a> {
    #[default]
    None,
    Float(f32),
    Int(i64),
    Text(&'a [u8]),
    Tensor(TensorProto<'a>),
    Floats(Vec<f32>),
    Ints(Vec<i64>),
    Texts(Vec<&'a [u8]>),
    /// Graphs, types, sparse tensors, and lists of tensors.
    Other,
}

#[derive(Debug, Clone, Default)]
pub(super) struct TensorProto<'a> {
    pub(super) name: &'a str,
    pub(super) dimensions: Vec<i64>,
    pub(super) data_type: i64,
    pub(super) data: TensorData<'a>,
    pub(super) is_segmented: bool,
    /// The keys and values of data in another file, if it is there.
    pub(super) external: Option<Vec<(&'a str, &'a str)>>,
}

#[derive(Debug, Clone, Default)]
pub(super) enum TensorData<'a> {
    #[default]
    None,
    Raw(&'a [u8]),
    Floats(Vec<f32>),
    Doubles(Vec<f64>),
    /// Of `int32_data`, `int64_data` or `uint64_data`.
    Integers(Vec<i64>),
    Texts(Vec<&'a [u8]>),
}

/// An input or output of a graph.
#[derive(Debug, Default)]
pub(super) struct ValueProto<'a> {
    pub(super) name: &'a str,
    pub(super) value: ValueType<'a>,
}

#[derive(Debug, Default)]
pub(super) enum ValueType<'a> {
    /// The file does not say, as it may for outputs.
    #[default]
    None,
    /// The number of the element type, and the dimensions if the rank is known.
    Tensor(i64, Option<Vec<Dimension<'a>>>),
    /// A sequence of maps, which `ZipMap` returns.
    SequenceOfMaps,
    Other(&'static str),
}

/// A declared dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dimension<'a> {
    Fixed(i64),
    Named(&'a str),
    Unknown,
}

/// Appends to a list that has a limit.
fn push<T>(list: &mut Vec<T>, value: T, what: &'static str, limit: usize) -> Result<(), LoadError> {
    if list.len() >= limit {
        return Err(LoadError::Limit { what, limit });
    }
    list.push(value);
    Ok(())
}

/// Reads a name.
fn name<'a>(field: &Field<'a>) -> Result<&'a str, LoadError> {
    let name = field.text()?;
    if name.len() > MAX_NAME {
        return Err(LoadError::LongName { length: name.len(), limit: MAX_NAME });
    }
    Ok(name)
}

/// Reads a pair of texts: `key` and `value`.
fn entry(bytes: &[u8]) -> Result<(&str, &str), LoadError> {
    let mut entry = ("", "");
    for field in fields("StringStringEntryProto", bytes) {
        let field = field?;
        match field.number {
            1 => entry.0 = name(&field)?,
            2 => entry.1 = field.text()?,
            _ => {}
        }
    }
    Ok(entry)
}

impl<'a> ModelProto<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let mut model = Self::default();
        for field in fields("ModelProto", bytes) {
            let field = field?;
            match field.number {
                1 => model.ir_version = field.integer()?,
                2 => model.producer_name = name(&field)?,
                3 => model.producer_version = name(&field)?,
                4 => model.domain = name(&field)?,
                5 => model.model_version = field.integer()?,
                7 => model.graph = Some(GraphProto::read(field.bytes()?)?),
                8 => push(&mut model.opsets, Opset::read(field.bytes()?)?, "opsets", MAX_OPSETS)?,
                14 => push(&mut model.metadata, entry(field.bytes()?)?, "entries of metadata", MAX_ENTRIES)?,
                25 => push(&mut model.functions, FunctionProto::read(field.bytes()?)?, "functions", MAX_ENTRIES)?,
                _ => {}
            }
        }
        Ok(model)
    }
}

impl<'a> Opset<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let mut opset = Self::default();
        for field in fields("OperatorSetIdProto", bytes) {
            let field = field?;
            match field.number {
                1 => opset.domain = name(&field)?,
                2 => opset.version = field.integer()?,
                _ => {}
            }
        }
        Ok(opset)
    }
}

impl<'a> GraphProto<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let mut graph = Self::default();
        for field in fields("GraphProto", bytes) {
            let field = field?;
            match field.number {
                1 => push(&mut graph.nodes, NodeProto::read(field.bytes()?)?, "nodes", MAX_NODES)?,
                5 => push(&mut graph.initializers, TensorProto::read(field.bytes()?)?, "initializers", MAX_ENTRIES)?,
                11 => push(&mut graph.inputs, ValueProto::read(field.bytes()?)?, "inputs", MAX_ENTRIES)?,
                12 => push(&mut graph.outputs, ValueProto::read(field.bytes()?)?, "outputs", MAX_ENTRIES)?,
                15 => {
                    let problem = TensorFault::Layout;
                    return Err(LoadError::Tensor { name: "sparse initializer".to_owned(), problem });
                }
                _ => {}
            }
        }
        Ok(graph)
    }
}

impl<'a> FunctionProto<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let mut function = Self::default();
        for field in fields("FunctionProto", bytes) {
            let field = field?;
            match field.number {
                1 => function.name = name(&field)?,
                4 => push(&mut function.inputs, name(&field)?, "inputs", MAX_ENTRIES)?,
                5 => push(&mut function.outputs, name(&field)?, "outputs", MAX_ENTRIES)?,
                7 => push(&mut function.nodes, NodeProto::read(field.bytes()?)?, "nodes", MAX_NODES)?,
                9 => push(&mut function.opsets, Opset::read(field.bytes()?)?, "opsets", MAX_OPSETS)?,
                10 => function.domain = name(&field)?,
                11 => {
                    let attribute = AttributeProto::read(field.bytes()?)?;
                    push(&mut function.defaults, attribute, "attributes of a function", MAX_ATTRIBUTES)?;
                }
                _ => {}
            }
        }
        Ok(function)
    }
}

impl<'a> NodeProto<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let mut node = Self::default();
        for field in fields("NodeProto", bytes) {
            let field = field?;
            match field.number {
                1 => push(&mut node.inputs, name(&field)?, "inputs", MAX_ENTRIES)?,
                2 => push(&mut node.outputs, name(&field)?, "outputs", MAX_ENTRIES)?,
                3 => node.name = name(&field)?,
                4 => node.operator = name(&field)?,
                5 => {
                    let attribute = AttributeProto::read(field.bytes()?)?;
                    push(&mut node.attributes, attribute, "attributes of a node", MAX_ATTRIBUTES)?;
                }
                7 => node.domain = name(&field)?,
                _ => {}
            }
        }
        Ok(node)
    }
}

impl AttributeProto<'_> {
    /// Returns about how many bytes the value takes.
    pub(super) fn size(&self) -> usize {
        match &self.value {
            AttributeValue::Text(text) => text.len(),
            AttributeValue::Floats(values) => size_of_val(&values[..]),
            AttributeValue::Ints(values) => size_of_val(&values[..]),
            AttributeValue::Texts(values) => {
                values.iter().map(|text| text.len() + size_of::<&[u8]>()).fold(0, usize::saturating_add)
            }
            AttributeValue::Tensor(tensor) => match &tensor.data {
                TensorData::Raw(bytes) => bytes.len(),
                TensorData::Floats(values) => size_of_val(&values[..]),
                TensorData::Doubles(values) => size_of_val(&values[..]),
                TensorData::Integers(values) => size_of_val(&values[..]),
                TensorData::Texts(values) => {
                    values.iter().map(|text| text.len() + size_of::<&[u8]>()).fold(0, usize::saturating_add)
                }
                TensorData::None => 0,
            },
            AttributeValue::None | AttributeValue::Float(_) | AttributeValue::Int(_) | AttributeValue::Other => 0,
        }
    }
}

impl<'a> AttributeProto<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let mut attribute = Self::default();
        let (mut kind, mut float, mut int, mut text, mut tensor) = (0, 0.0, 0, &[][..], None);
        let (mut floats, mut ints, mut texts) = (Vec::new(), Vec::new(), Vec::new());
        let mut has_other = false;
        for field in fields("AttributeProto", bytes) {
            let field = field?;
            match field.number {
                1 => attribute.name = name(&field)?,
                2 => float = field.float()?,
                3 => int = field.integer()?,
                4 => text = field.bytes()?,
                5 => tensor = Some(TensorProto::read(field.bytes()?)?),
                7 => field.floats(&mut floats)?,
                8 => field.integers(&mut ints)?,
                9 => texts.push(field.bytes()?),
                6 | 10 | 11 | 14 | 15 | 22 | 23 => has_other = true,
                20 => kind = field.integer()?,
                21 => attribute.reference = Some(name(&field)?),
                _ => {}
            }
        }
        attribute.value = match (kind, tensor) {
            (1, _) => AttributeValue::Float(float),
            (2, _) => AttributeValue::Int(int),
            (3, _) => AttributeValue::Text(text),
            (6, _) => AttributeValue::Floats(floats),
            (7, _) => AttributeValue::Ints(ints),
            (8, _) => AttributeValue::Texts(texts),
            // Files of IR version 1 and 2 do not say which one it is: their number is 0.
            (0 | 4, Some(tensor)) => AttributeValue::Tensor(tensor),
            (0, None) if has_other => AttributeValue::Other,
            (0, None) if !floats.is_empty() => AttributeValue::Floats(floats),
            (0, None) if !ints.is_empty() => AttributeValue::Ints(ints),
            (0, None) if !texts.is_empty() => AttributeValue::Texts(texts),
            (0, None) => AttributeValue::None,
            _ => AttributeValue::Other,
        };
        Ok(attribute)
    }
}

impl<'a> TensorProto<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let mut tensor = Self::default();
        let (mut raw, mut is_external, mut external) = (None, false, Vec::new());
        let (mut floats, mut doubles, mut integers, mut texts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for field in fields("TensorProto", bytes) {
            let field = field?;
            match field.number {
                1 => field.integers(&mut tensor.dimensions)?,
                2 => tensor.data_type = field.integer()?,
                3 => tensor.is_segmented = true,
                4 => field.floats(&mut floats)?,
                5 | 7 | 11 => field.integers(&mut integers)?,
                6 => texts.push(field.bytes()?),
                8 => tensor.name = name(&field)?,
                9 => raw = Some(field.bytes()?),
                10 => field.doubles(&mut doubles)?,
                13 => push(&mut external, entry(field.bytes()?)?, "entries of external data", MAX_ATTRIBUTES)?,
                14 => is_external = field.integer()? == 1,
                _ => {}
            }
        }
        tensor.external = is_external.then_some(external);
        tensor.data = match raw {
            Some(raw) => TensorData::Raw(raw),
            None if !floats.is_empty() => TensorData::Floats(floats),
            None if !doubles.is_empty() => TensorData::Doubles(doubles),
            None if !integers.is_empty() => TensorData::Integers(integers),
            None if !texts.is_empty() => TensorData::Texts(texts),
            None => TensorData::None,
        };
        Ok(tensor)
    }
}

impl<'a> ValueProto<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let mut value = Self::default();
        for field in fields("ValueInfoProto", bytes) {
            let field = field?;
            match field.number {
                1 => value.name = name(&field)?,
                2 => value.value = ValueType::read(field.bytes()?)?,
                _ => {}
            }
        }
        Ok(value)
    }
}

impl<'a> ValueType<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let mut value = Self::None;
        for field in fields("TypeProto", bytes) {
            let field = field?;
            match field.number {
                1 => value = Self::tensor(field.bytes()?)?,
                4 => value = Self::sequence(field.bytes()?)?,
                5 => value = Self::Other("map"),
                8 => value = Self::Other("sparse tensor"),
                9 => value = Self::Other("optional"),
                _ => {}
            }
        }
        Ok(value)
    }

    fn tensor(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let (mut element, mut dimensions) = (0, None);
        for field in fields("TypeProto.Tensor", bytes) {
            let field = field?;
            match field.number {
                1 => element = field.integer()?,
                2 => {
                    let mut list = Vec::new();
                    for field in fields("TensorShapeProto", field.bytes()?) {
                        let field = field?;
                        if field.number == 1 {
                            push(
                                &mut list,
                                Dimension::read(field.bytes()?)?,
                                "dimensions of a tensor",
                                MAX_ATTRIBUTES,
                            )?;
                        }
                    }
                    dimensions = Some(list);
                }
                _ => {}
            }
        }
        Ok(Self::Tensor(element, dimensions))
    }

    fn sequence(bytes: &'a [u8]) -> Result<Self, LoadError> {
        for field in fields("TypeProto.Sequence", bytes) {
            let field = field?;
            if field.number == 1 {
                let is_map =
                    fields("TypeProto", field.bytes()?).any(|field| field.is_ok_and(|field| field.number == 5));
                return Ok(if is_map { Self::SequenceOfMaps } else { Self::Other("sequence") });
            }
        }
        Ok(Self::Other("sequence"))
    }
}

impl<'a> Dimension<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut dimension = Self::Unknown;
        for field in fields("TensorShapeProto.Dimension", bytes) {
            let field = field?;
            match field.number {
                1 => dimension = Self::Fixed(field.integer()?),
                2 if !field.text()?.is_empty() => dimension = Self::Named(field.text()?),
                _ => {}
            }
        }
        Ok(dimension)
    }
}
