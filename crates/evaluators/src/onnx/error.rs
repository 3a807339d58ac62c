//! Why a file is not evaluated natively, and why inputs cannot be evaluated.

use thiserror::Error;

use super::tensor::{ElementType, Shape};
use super::wire::WireError;
use crate::trees;

/// A file that is damaged, or that contains something that is not evaluated natively.
#[derive(Debug, Error)]
pub enum LoadError {
    #[error("the file is not an ONNX model: {0}")]
    Wire(#[from] WireError),
    #[error("the file is not an ONNX model: it has no graph")]
    NoGraph,
    #[error("the file has {bytes} bytes; at most {limit} are read")]
    FileSize { bytes: usize, limit: usize },
    /// A limit that protects the server.
    #[error("the model has more than {limit} {what}")]
    Limit { what: &'static str, limit: usize },
    #[error("a name has {length} bytes; at most {limit} are allowed")]
    LongName { length: usize, limit: usize },
    #[error("the name `{name}` is that of two {what}")]
    Duplicate { what: &'static str, name: String },
    #[error("the value `{name}` is used, but nothing computes it")]
    Undefined { name: String },
    #[error("the nodes that compute `{name}` depend on each other")]
    Cycle { name: String },
    #[error("the graph has no {what}")]
    Empty { what: &'static str },
    #[error("opset {version} of the domain `{domain}` is not evaluated natively; {supported} are")]
    Opset { domain: String, version: i64, supported: &'static str },
    #[error("the model has nodes of the domain `{domain}`, but does not import an opset of it")]
    NoOpset { domain: String },
    #[error("tensor `{name}`: {problem}")]
    Tensor { name: String, problem: TensorFault },
    #[error("{what} `{name}` is of type {found}, which is not evaluated natively")]
    ValueType { what: &'static str, name: String, found: String },
    #[error("node `{node}` ({operator}, opset {opset}): {problem}")]
    Node { node: String, operator: String, opset: i64, problem: Box<NodeFault> },
    #[error("constant nodes take more than {limit} {what} to evaluate")]
    Folding { what: &'static str, limit: u64 },
    /// The engine of networks refused a graph that passed our own checks.
    #[error("the network cannot be evaluated natively: {0}")]
    Network(String),
}

impl LoadError {
    /// Returns whether another runtime may be able to load the file: it is not damaged, only not supported natively.
    pub const fn is_refusal(&self) -> bool {
        match self {
            Self::Opset { .. } | Self::ValueType { .. } | Self::Folding { .. } | Self::Network(_) => true,
            Self::Tensor { problem, .. } => problem.is_refusal(),
            Self::Node { problem, .. } => problem.is_refusal(),
            _ => false,
        }
    }
}

/// What is wrong with a tensor of a file.
#[derive(Debug, Error)]
pub enum TensorFault {
    #[error("elements of type {found} are not evaluated natively")]
    Type { found: String },
    #[error("its shape is negative or too large: {dimensions:?}")]
    Shape { dimensions: Vec<i64> },
    #[error("tensors of {found} dimensions are not evaluated natively")]
    Rank { found: usize },
    #[error("it has {found} {unit} instead of {wanted}")]
    Count { unit: &'static str, found: usize, wanted: usize },
    #[error("it has a number outside of its type")]
    Range,
    #[error("sparse or segmented tensors are not supported")]
    Layout,
    #[error("its data lies in another file, and {0}")]
    External(String),
    /// Networks compute integers in 32 bits.
    #[error("its number {value} is outside of int32, which is not evaluated natively")]
    Wide { value: i64 },
}

impl TensorFault {
    const fn is_refusal(&self) -> bool {
        matches!(self, Self::Type { .. } | Self::Rank { .. } | Self::Wide { .. })
    }
}

/// What is wrong with a node.
#[derive(Debug, Error)]
pub enum NodeFault {
    #[error("the operator is not evaluated natively")]
    Operator,
    #[error("attribute `{name}`: {problem}")]
    Attribute { name: String, problem: String },
    #[error("attribute `{name}` is not evaluated natively")]
    UnknownAttribute { name: String },
    #[error("input {index} is missing")]
    MissingInput { index: usize },
    #[error("inputs of type {found} are not evaluated natively")]
    InputType { found: String },
    #[error("it has {found} {what} instead of {wanted}")]
    Count { what: &'static str, found: usize, wanted: usize },
    /// The attributes or constant inputs contradict each other.
    #[error("{0}")]
    Damaged(String),
    /// A combination that is not evaluated exactly.
    #[error("{0} is not evaluated natively")]
    Unsupported(String),
    #[error(transparent)]
    Trees(Box<trees::LoadError>),
    /// Constants to which the operator cannot be applied.
    #[error(transparent)]
    Constants(#[from] Fault),
}

impl From<trees::LoadError> for NodeFault {
    fn from(error: trees::LoadError) -> Self {
        Self::Trees(Box::new(error))
    }
}

impl NodeFault {
    pub(super) const fn is_refusal(&self) -> bool {
        matches!(self, Self::Operator | Self::UnknownAttribute { .. } | Self::InputType { .. } | Self::Unsupported(_))
    }
}

/// Why an operator cannot be applied to its inputs.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    #[error("the shapes {} and {} cannot be broadcast together", .0[0], .0[1])]
    Broadcast(Box<[Shape; 2]>),
    #[error("expected {wanted}, found an input of shape {found}")]
    Shape { found: Shape, wanted: String },
    #[error("axis {axis} does not exist in a tensor of {rank} dimensions")]
    Axis { axis: i64, rank: usize },
    #[error("index {index} is outside of a dimension of {size}")]
    Index { index: i64, size: usize },
    #[error("the result would have too many elements or dimensions")]
    ShapeOverflow,
    #[error("{0}")]
    Value(String),
    #[error("division by zero")]
    DivisionByZero,
    /// A result whose size depends on data.
    #[error("the results of the model exceed {limit} bytes of memory")]
    TooLarge { limit: usize },
    #[error("the prediction was cancelled")]
    Cancelled,
    /// An operator broke a promise of its own; see `tests` of the operator.
    #[error("the operator does not fit its inputs: {0}")]
    Inconsistent(&'static str),
}

/// Why inputs cannot be evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EvaluateError {
    #[error("node `{node}` ({operator}): {fault}")]
    Node { node: String, operator: String, fault: Box<Fault> },
    #[error("input `{name}` has the shape {found}, but the model has {wanted}")]
    InputShape { name: String, found: Box<Shape>, wanted: String },
    #[error("input `{name}` is of type {found}, but the model has {wanted}")]
    InputType { name: String, found: ElementType, wanted: ElementType },
    #[error("the model has {wanted} inputs, but {found} were given")]
    InputCount { found: usize, wanted: usize },
    #[error("the prediction was cancelled")]
    Cancelled,
    /// Networks compute integers in 32 bits.
    #[error(
        "input `{name}` has the number {value}, but the model is evaluated natively for numbers up to {limit} (set backend: python for others)"
    )]
    InputRange { name: String, value: i64, limit: i64 },
    #[error(
        "output `{name}` has numbers outside of int32, which are not evaluated natively (set backend: python for them)"
    )]
    OutputRange { name: String },
    /// The keys of `ZipMap` do not fit its input.
    #[error("output `{name}` has {labels} labels, but its tensor has the shape {found}")]
    Labels { name: String, labels: usize, found: Box<Shape> },
    /// The engine of networks cannot apply an operator to the data.
    #[error("the network cannot be evaluated: {0}")]
    Network(String),
}

impl EvaluateError {
    /// Returns whether the results were too large for the memory that a request may use.
    pub const fn is_too_large(&self) -> bool {
        matches!(self, Self::Node { fault, .. } if matches!(**fault, Fault::TooLarge { .. }))
    }
}
