//! What an operator is, and what it is made from.

use std::cell::Cell;
use std::fmt;

use super::constant;
use super::error::{Fault, LoadError, NodeFault};
use super::proto::{AttributeProto, AttributeValue};
use super::run::Run;
use super::tensor::{ElementType, Shape, Tensor};

/// An operator with its attributes.
pub(super) trait Operator: fmt::Debug + Send + Sync {
    /// Returns the shapes of the outputs, `None` where they depend on data that is not known yet.
    ///
    /// Inputs that the node leaves out are `None`.
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault>;

    /// Computes the outputs. Memory for them is counted by `run`, which creates their tensors.
    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault>;

    /// Returns the outputs, if they depend on nothing but the shapes of the inputs.
    fn of_shapes(&self, _inputs: &[Option<Known<'_, '_>>]) -> Option<Vec<Tensor<'static>>> {
        None
    }

    /// Estimates how many nanoseconds it takes to compute `elements` outputs of inputs with these shapes.
    fn cost(&self, inputs: &[Option<Shape>], elements: usize) -> u64 {
        let largest = inputs.iter().flatten().map(Shape::count).max().unwrap_or(0);
        u64::try_from(largest.max(elements)).unwrap_or(u64::MAX)
    }

    /// Returns whether outputs share the memory of the inputs.
    fn is_view(&self) -> bool {
        false
    }
}

/// What is known of an input before an operator runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known<'k, 'v> {
    pub(super) shape: Shape,
    /// Its value, if it is a constant or small enough to be computed early.
    pub(super) value: Option<&'k Tensor<'v>>,
}

impl Known<'_, '_> {
    /// Returns the value as sizes or positions, if it is known.
    pub(super) fn integers(&self) -> Option<Vec<i64>> {
        self.value.and_then(Tensor::integers)
    }
}

/// An operator that a node became, and the types of its outputs.
pub(super) struct Built {
    pub(super) operator: Box<dyn Operator>,
    pub(super) outputs: Vec<ElementType>,
}

impl Built {
    /// Creates an operator with one output.
    pub(super) fn one(operator: impl Operator + 'static, output: ElementType) -> Self {
        Self { operator: Box::new(operator), outputs: vec![output] }
    }
}

/// An input of a node.
#[derive(Debug, Clone, Copy)]
pub(super) struct InputSpec<'n> {
    pub(super) element: ElementType,
    /// Its value, if it is a constant of the model.
    pub(super) value: Option<&'n Tensor<'static>>,
}

/// A node that becomes an operator.
#[derive(Debug)]
pub(super) struct NodeSpec<'n, 'a> {
    pub(super) operator: &'a str,
    /// The version of the node's domain.
    pub(super) opset: i64,
    pub(super) inputs: Vec<Option<InputSpec<'n>>>,
    /// The number of outputs, with those that have no name.
    pub(super) outputs: usize,
    attributes: &'n [AttributeProto<'a>],
    /// Which attributes were asked for.
    used: Vec<Cell<bool>>,
}

impl<'n, 'a> NodeSpec<'n, 'a> {
    pub(super) fn new(
        operator: &'a str,
        opset: i64,
        inputs: Vec<Option<InputSpec<'n>>>,
        outputs: usize,
        attributes: &'n [AttributeProto<'a>],
    ) -> Self {
        Self { operator, opset, inputs, outputs, attributes, used: vec![Cell::new(false); attributes.len()] }
    }

    /// Returns the type of an input that must be there.
    pub(super) fn input(&self, index: usize) -> Result<ElementType, NodeFault> {
        self.optional(index).map(|input| input.element).ok_or(NodeFault::MissingInput { index })
    }

    /// Returns an input that may be left out.
    pub(super) fn optional(&self, index: usize) -> Option<InputSpec<'n>> {
        self.inputs.get(index).copied().flatten()
    }

    /// Checks that all inputs have the same type, and returns it.
    pub(super) fn same_type(&self) -> Result<ElementType, NodeFault> {
        let first = self.input(0)?;
        match self.inputs.iter().flatten().find(|input| input.element != first) {
            Some(other) => Err(NodeFault::Damaged(format!("its inputs have the types {first} and {}", other.element))),
            None => Ok(first),
        }
    }

    /// Checks the number of inputs, with those that are left out. The first `least` must be there.
    pub(super) fn check_inputs(&self, least: usize, most: usize) -> Result<(), NodeFault> {
        let found = self.inputs.len();
        if found < least || found > most {
            return Err(NodeFault::Count { what: "inputs", found, wanted: if found < least { least } else { most } });
        }
        match self.inputs[..least].iter().position(Option::is_none) {
            Some(index) => Err(NodeFault::MissingInput { index }),
            None => Ok(()),
        }
    }

    /// Returns the fault of a type that no operator of this name takes natively.
    pub(super) fn type_fault(found: ElementType) -> NodeFault {
        NodeFault::InputType { found: found.to_string() }
    }

    /// Returns the first attribute that was not asked for.
    pub(super) fn unused_attribute(&self) -> Option<&'a str> {
        self.used.iter().position(|used| !used.get()).map(|index| self.attributes[index].name)
    }

    /// Ignores an attribute on purpose.
    pub(super) fn ignore(&self, name: &str) {
        let _ = self.attribute(name);
    }

    /// Returns whether the node has an attribute.
    pub(super) fn has(&self, name: &str) -> bool {
        self.attribute(name).is_some()
    }

    fn attribute(&self, name: &str) -> Option<&'n AttributeValue<'a>> {
        let index = self.attributes.iter().position(|attribute| attribute.name == name)?;
        self.used[index].set(true);
        Some(&self.attributes[index].value)
    }

    fn wrong(name: &str, wanted: &str) -> NodeFault {
        NodeFault::Attribute { name: name.to_owned(), problem: format!("it is not {wanted}") }
    }

    pub(super) fn int(&self, name: &str) -> Result<Option<i64>, NodeFault> {
        match self.attribute(name) {
            None => Ok(None),
            Some(AttributeValue::Int(value)) => Ok(Some(*value)),
            Some(_) => Err(Self::wrong(name, "an integer")),
        }
    }

    pub(super) fn float(&self, name: &str) -> Result<Option<f32>, NodeFault> {
        match self.attribute(name) {
            None => Ok(None),
            Some(AttributeValue::Float(value)) => Ok(Some(*value)),
            Some(_) => Err(Self::wrong(name, "a number")),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, NodeFault> {
        match self.attribute(name) {
            None => Ok(None),
            Some(AttributeValue::Text(value)) => {
                std::str::from_utf8(value).map(Some).map_err(|_| Self::wrong(name, "UTF-8"))
            }
            Some(_) => Err(Self::wrong(name, "a text")),
        }
    }

    /// Returns a list, which is empty if the node does not have it.
    pub(super) fn ints(&self, name: &str) -> Result<&'n [i64], NodeFault> {
        match self.attribute(name) {
            None | Some(AttributeValue::None) => Ok(&[]),
            Some(AttributeValue::Ints(values)) => Ok(values),
            Some(_) => Err(Self::wrong(name, "a list of integers")),
        }
    }

    /// Returns a list, which is empty if the node does not have it.
    pub(super) fn floats(&self, name: &str) -> Result<&'n [f32], NodeFault> {
        match self.attribute(name) {
            None | Some(AttributeValue::None) => Ok(&[]),
            Some(AttributeValue::Floats(values)) => Ok(values),
            Some(_) => Err(Self::wrong(name, "a list of numbers")),
        }
    }

    /// Returns a list, which is empty if the node does not have it.
    pub(super) fn texts(&self, name: &str) -> Result<&'n [&'a [u8]], NodeFault> {
        match self.attribute(name) {
            None | Some(AttributeValue::None) => Ok(&[]),
            Some(AttributeValue::Texts(values)) => Ok(values),
            Some(_) => Err(Self::wrong(name, "a list of texts")),
        }
    }

    pub(super) fn tensor(&self, name: &str) -> Result<Option<Tensor<'static>>, NodeFault> {
        match self.attribute(name) {
            None => Ok(None),
            Some(AttributeValue::Tensor(tensor)) => {
                let no_file = |_: &constant::ExternalRange<'_>| Err("attributes have no other files".to_owned());
                let tensor = constant::read(tensor, &no_file);
                let problem =
                    |error: LoadError| NodeFault::Attribute { name: name.to_owned(), problem: error.to_string() };
                tensor.map(Some).map_err(problem)
            }
            Some(_) => Err(Self::wrong(name, "a tensor")),
        }
    }

    /// Returns a flag, which is 0 or 1 in the file.
    pub(super) fn flag(&self, name: &str, default: bool) -> Result<bool, NodeFault> {
        Ok(self.int(name)?.map_or(default, |value| value != 0))
    }

    /// Returns a text that must be one of those that are known.
    pub(super) fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)], default: T) -> Result<T, NodeFault> {
        let Some(found) = self.text(name)? else { return Ok(default) };
        let choice = choices.iter().find(|(choice, _)| *choice == found).map(|(_, choice)| *choice);
        choice.ok_or_else(|| NodeFault::Unsupported(format!("`{name}` = `{}`", found.escape_debug())))
    }
}

/// Returns the position of an axis, which counts from the end if it is negative.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, Fault> {
    let fault = Fault::Axis { axis, rank };
    let position = if axis < 0 { i64::try_from(rank).ok().and_then(|rank| axis.checked_add(rank)) } else { Some(axis) };
    position.and_then(|position| usize::try_from(position).ok()).filter(|position| *position < rank).ok_or(fault)
}

/// Returns the position of an element of a dimension, which counts from the end if it is negative.
pub(super) fn position(index: i64, size: usize) -> Result<usize, Fault> {
    axis(index, size).map_err(|_| Fault::Index { index, size })
}

/// Returns an input that the operator's constructor has checked to be there.
pub(super) fn required<T>(inputs: &[Option<T>], index: usize) -> Result<&T, Fault> {
    inputs.get(index).and_then(Option::as_ref).ok_or(Fault::Inconsistent("an input is missing"))
}
