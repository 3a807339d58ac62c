//! Operators that change shapes, or read them.

use std::marker::PhantomData;

use super::Constructor;
use super::elementwise::values;
use super::number::{Number, numeric};
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, axis, required};
use crate::onnx::run::Run;
use crate::onnx::tensor::{Element, ElementType, MAX_RANK, Shape, Tensor, with_elements, with_type};

/// The operators of this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[
    ("Shape", |node| {
        node.check_inputs(1, 1)?;
        let (start, end) = (node.int("start")?.unwrap_or(0), node.int("end")?);
        Ok(Built::one(ShapeOf { start, end }, ElementType::I64))
    }),
    ("Size", |node| {
        node.check_inputs(1, 1)?;
        Ok(Built::one(SizeOf, ElementType::I64))
    }),
    ("Reshape", |node| {
        node.check_inputs(2, 2)?;
        view(node, View::Reshape { zero_is_size: node.flag("allowzero", false)? }, Some(1))
    }),
    ("Flatten", |node| {
        node.check_inputs(1, 1)?;
        view(node, View::Flatten(node.int("axis")?.unwrap_or(1)), None)
    }),
    ("Squeeze", |node| axes_view(node, View::Squeeze)),
    ("Unsqueeze", |node| axes_view(node, View::Unsqueeze)),
    ("Transpose", |node| with_type!(node.input(0)?, T => transpose::<T>(node))),
    ("Constant", constant),
    ("ConstantOfShape", constant_of_shape),
    ("Range", |node| numeric!(node.same_type()?, T => range::<T>(node))),
];

/// Returns the one input that is a list of sizes or positions, if its value is known.
fn known_list(inputs: &[Option<Known<'_, '_>>], index: usize) -> Result<Option<Vec<i64>>, Fault> {
    Ok(required(inputs, index)?.integers())
}

/// Returns an input that is a list of sizes or positions.
pub(super) fn list(inputs: &[Option<Tensor<'_>>], index: usize) -> Result<Vec<i64>, Fault> {
    required(inputs, index)?.integers().ok_or(Fault::Inconsistent("an input has another type"))
}

/// Checks that an input is a list of integers.
pub(super) fn check_integers(node: &NodeSpec<'_, '_>, index: usize) -> Result<(), NodeFault> {
    match node.input(index)? {
        ElementType::I32 | ElementType::I64 => Ok(()),
        other => Err(NodeFault::Damaged(format!("input {index} is of type {other} instead of int64"))),
    }
}

/// Returns a size as an integer of the format.
pub(super) fn to_i64(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Returns a size of the format.
pub(super) fn to_usize(size: i64) -> Result<usize, Fault> {
    usize::try_from(size).map_err(|_| Fault::Value(format!("{size} is not a size")))
}

/// The dimensions of the input.
#[derive(Debug)]
struct ShapeOf {
    start: i64,
    end: Option<i64>,
}

impl ShapeOf {
    fn slice<'s>(&self, shape: &'s Shape) -> &'s [usize] {
        let rank = to_i64(shape.rank());
        let place = |position: i64| {
            let position = if position < 0 { position.saturating_add(rank) } else { position };
            usize::try_from(position.clamp(0, rank)).unwrap_or_default()
        };
        let (start, end) = (place(self.start), place(self.end.unwrap_or(rank)));
        shape.dimensions().get(start..end).unwrap_or_default()
    }
}

impl Operator for ShapeOf {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Shape::of_list(self.slice(&required(inputs, 0)?.shape).len())])
    }

    fn of_shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Option<Vec<Tensor<'static>>> {
        let input = inputs.first().copied().flatten()?;
        Some(vec![Tensor::list(self.slice(&input.shape).iter().map(|size| to_i64(*size)).collect())?])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let sizes = self.slice(required(inputs, 0)?.shape());
        let shape = Shape::of_list(sizes.len()).ok_or(Fault::ShapeOverflow)?;
        Ok(vec![run.collect(shape, sizes.iter().map(|size| to_i64(*size)))?])
    }

    fn cost(&self, _: &[Option<Shape>], _: usize) -> u64 {
        0
    }
}

/// The number of elements of the input.
#[derive(Debug)]
struct SizeOf;

impl Operator for SizeOf {
    fn shapes(&self, _: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(Shape::default())])
    }

    fn of_shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Option<Vec<Tensor<'static>>> {
        let input = inputs.first().copied().flatten()?;
        Some(vec![Tensor::of(Shape::default(), vec![to_i64(input.shape.count())])?])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        Ok(vec![run.collect(Shape::default(), [to_i64(required(inputs, 0)?.shape().count())])?])
    }

    fn cost(&self, _: &[Option<Shape>], _: usize) -> u64 {
        0
    }
}

/// The same elements in another shape.
#[derive(Debug)]
enum View {
    Reshape {
        /// Whether a 0 is the size 0; otherwise it is the size that the input has there.
        zero_is_size: bool,
    },
    Flatten(i64),
    Squeeze,
    Unsqueeze,
}

#[derive(Debug)]
struct Viewed {
    view: View,
    /// Where the sizes or axes are.
    list: ViewList,
}

#[derive(Debug)]
enum ViewList {
    Given(Option<Vec<i64>>),
    Input(usize),
}

fn view(node: &NodeSpec<'_, '_>, view: View, input: Option<usize>) -> Result<Built, NodeFault> {
    let list = match input {
        Some(index) => {
            check_integers(node, index)?;
            ViewList::Input(index)
        }
        None => ViewList::Given(None),
    };
    Ok(Built::one(Viewed { view, list }, node.input(0)?))
}

/// Makes a view whose axes are an attribute up to opset 12, and then an input.
fn axes_view(node: &NodeSpec<'_, '_>, of: View) -> Result<Built, NodeFault> {
    node.check_inputs(1, 2)?;
    if node.optional(1).is_some() {
        return view(node, of, Some(1));
    }
    let axes = if node.has("axes") { Some(node.ints("axes")?.to_vec()) } else { None };
    Ok(Built::one(Viewed { view: of, list: ViewList::Given(axes) }, node.input(0)?))
}

impl Viewed {
    fn shape(&self, shape: &Shape, list: Option<&[i64]>) -> Result<Shape, Fault> {
        let sizes = match (&self.view, list) {
            (View::Reshape { zero_is_size }, Some(list)) => reshape(shape, list, *zero_is_size)?,
            (View::Flatten(position), _) => {
                let axis =
                    if *position == to_i64(shape.rank()) { shape.rank() } else { axis(*position, shape.rank())? };
                let (before, after) = shape.dimensions().split_at(axis);
                vec![before.iter().product(), after.iter().product()]
            }
            (View::Squeeze, None) => shape.dimensions().iter().copied().filter(|size| *size != 1).collect(),
            (View::Squeeze, Some(axes)) => squeeze(shape, axes)?,
            (View::Unsqueeze, Some(axes)) => unsqueeze(shape, axes)?,
            (View::Reshape { .. } | View::Unsqueeze, None) => {
                return Err(Fault::Value("the sizes or axes are missing".to_owned()));
            }
        };
        Shape::new(&sizes).ok_or(Fault::ShapeOverflow)
    }
}

fn reshape(shape: &Shape, list: &[i64], zero_is_size: bool) -> Result<Vec<usize>, Fault> {
    let wanted = || Fault::Shape { found: *shape, wanted: format!("one that fits {list:?}") };
    if list.len() > MAX_RANK {
        return Err(Fault::ShapeOverflow);
    }
    let mut sizes = Vec::with_capacity(list.len());
    for (index, size) in list.iter().enumerate() {
        sizes.push(match size {
            0 if !zero_is_size => *shape.dimensions().get(index).ok_or_else(wanted)?,
            -1 => 1,
            size => to_usize(*size)?,
        });
    }
    let known = sizes.iter().try_fold(1_usize, |count, size| count.checked_mul(*size)).ok_or(Fault::ShapeOverflow)?;
    let mut unknown = list.iter().enumerate().filter(|(_, size)| **size == -1).map(|(index, _)| index);
    match (unknown.next(), unknown.next()) {
        (None, _) if known == shape.count() => {}
        (Some(at), None) if known > 0 && shape.count().is_multiple_of(known) => sizes[at] = shape.count() / known,
        _ => return Err(wanted()),
    }
    Ok(sizes)
}

fn squeeze(shape: &Shape, axes: &[i64]) -> Result<Vec<usize>, Fault> {
    let mut gone = [false; MAX_RANK];
    for position in axes {
        let at = axis(*position, shape.rank())?;
        if shape.dimensions()[at] != 1 {
            return Err(Fault::Shape { found: *shape, wanted: format!("size 1 at axis {position}") });
        }
        gone[at] = true;
    }
    Ok(shape.dimensions().iter().zip(gone).filter(|(_, gone)| !gone).map(|(size, _)| *size).collect())
}

fn unsqueeze(shape: &Shape, axes: &[i64]) -> Result<Vec<usize>, Fault> {
    let rank = shape.rank() + axes.len();
    if rank > MAX_RANK {
        return Err(Fault::ShapeOverflow);
    }
    let mut is_new = [false; MAX_RANK];
    for position in axes {
        let at = axis(*position, rank)?;
        if std::mem::replace(&mut is_new[at], true) {
            return Err(Fault::Value(format!("axis {position} is given twice")));
        }
    }
    let mut old = shape.dimensions().iter();
    Ok(is_new[..rank].iter().map(|new| if *new { 1 } else { old.next().copied().unwrap_or(1) }).collect())
}

impl Operator for Viewed {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let shape = &required(inputs, 0)?.shape;
        let list = match &self.list {
            ViewList::Given(list) => list.clone(),
            ViewList::Input(index) => match known_list(inputs, *index)? {
                Some(list) => Some(list),
                None => return Ok(vec![None]),
            },
        };
        Ok(vec![Some(self.shape(shape, list.as_deref())?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], _: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let input = required(inputs, 0)?;
        let list = match &self.list {
            ViewList::Given(list) => list.clone(),
            ViewList::Input(index) => Some(list(inputs, *index)?),
        };
        let shape = self.shape(input.shape(), list.as_deref())?;
        Ok(vec![input.reshaped(shape).ok_or(Fault::Inconsistent("a view has another size"))?])
    }

    fn is_view(&self) -> bool {
        true
    }

    fn cost(&self, _: &[Option<Shape>], _: usize) -> u64 {
        0
    }
}

/// Another order of dimensions.
#[derive(Debug)]
struct Transpose<T> {
    order: Vec<i64>,
    element: PhantomData<fn() -> T>,
}

fn transpose<T: Element>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    Ok(Built::one(Transpose::<T> { order: node.ints("perm")?.to_vec(), element: PhantomData }, T::TYPE))
}

impl<T: Element> Transpose<T> {
    fn order(&self, shape: &Shape) -> Result<Vec<usize>, Fault> {
        if self.order.is_empty() {
            return Ok((0..shape.rank()).rev().collect());
        }
        let order = self.order.iter().map(|position| axis(*position, shape.rank())).collect::<Result<Vec<_>, _>>()?;
        let is_permutation = order.len() == shape.rank() && (0..shape.rank()).all(|axis| order.contains(&axis));
        let wanted = || format!("one whose dimensions can be ordered as {:?}", self.order);
        if is_permutation { Ok(order) } else { Err(Fault::Shape { found: *shape, wanted: wanted() }) }
    }

    fn shape(shape: &Shape, order: &[usize]) -> Result<Shape, Fault> {
        let sizes: Vec<usize> = order.iter().map(|axis| shape.dimensions()[*axis]).collect();
        Shape::new(&sizes).ok_or(Fault::ShapeOverflow)
    }
}

/// Returns elements in the order of positions that `strides` describe for each dimension of `shape`.
pub(super) fn strided<T: Element>(
    elements: &[T],
    shape: Shape,
    strides: &[usize],
    run: &Run<'_>,
) -> Result<Tensor<'static>, Fault> {
    let mut list = run.list::<T>(&shape)?;
    let (dimensions, rank) = (shape.dimensions(), shape.rank());
    if shape.count() > 0 {
        let (length, step) = rank.checked_sub(1).map_or((1, 0), |last| (dimensions[last], strides[last]));
        let mut index = [0; MAX_RANK];
        let mut offset = 0;
        'all: loop {
            list.extend((0..length).map(|place| elements[offset + place * step].clone()));
            run.check()?;
            let mut axis = rank.saturating_sub(1);
            loop {
                let Some(next) = axis.checked_sub(1) else { break 'all };
                axis = next;
                index[axis] += 1;
                offset += strides[axis];
                if index[axis] < dimensions[axis] {
                    break;
                }
                offset -= strides[axis] * dimensions[axis];
                index[axis] = 0;
            }
        }
    }
    crate::onnx::run::finish(shape, list)
}

impl<T: Element> Operator for Transpose<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let shape = &required(inputs, 0)?.shape;
        Ok(vec![Some(Self::shape(shape, &self.order(shape)?)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let order = self.order(shape)?;
        let strides = shape.strides();
        let moved: Vec<usize> = order.iter().map(|axis| strides[*axis]).collect();
        Ok(vec![strided(elements, Self::shape(shape, &order)?, &moved, run)?])
    }
}

/// A value of the file.
#[derive(Debug)]
struct Constant(Tensor<'static>);

fn constant(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(0, 0)?;
    let missing = || NodeFault::Unsupported("a value that is not a tensor, number or text".to_owned());
    let scalar = Shape::default();
    let texts = |texts: &[&[u8]]| texts.iter().map(|text| bytes::Bytes::copy_from_slice(text)).collect();
    let tensor = if let Some(tensor) = node.tensor("value")? {
        Some(tensor)
    } else if let Some(value) = node.float("value_float")? {
        Tensor::of(scalar, vec![value])
    } else if let Some(value) = node.int("value_int")? {
        Tensor::of(scalar, vec![value])
    } else if let Some(value) = node.text("value_string")? {
        Tensor::of(scalar, texts(&[value.as_bytes()]))
    } else if node.has("value_floats") {
        Tensor::list(node.floats("value_floats")?.to_vec())
    } else if node.has("value_ints") {
        Tensor::list(node.ints("value_ints")?.to_vec())
    } else if node.has("value_strings") {
        Tensor::list(texts(node.texts("value_strings")?))
    } else {
        None
    };
    let tensor = tensor.ok_or_else(missing)?;
    let element = tensor.element_type();
    Ok(Built::one(Constant(tensor), element))
}

impl Operator for Constant {
    fn shapes(&self, _: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(*self.0.shape())])
    }

    fn evaluate<'v>(&self, _: &[Option<Tensor<'v>>], _: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        Ok(vec![self.0.clone()])
    }

    fn is_view(&self) -> bool {
        true
    }
}

/// Equal values in a shape that is given as an input.
#[derive(Debug)]
struct ConstantOfShape(Tensor<'static>);

fn constant_of_shape(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    check_integers(node, 0)?;
    let zero = || Tensor::of(Shape::default(), vec![0.0_f32]).ok_or(Fault::ShapeOverflow);
    let value = node.tensor("value")?.map_or_else(zero, Ok)?;
    if value.shape().count() != 1 {
        return Err(NodeFault::Count { what: "values", found: value.shape().count(), wanted: 1 });
    }
    let element = value.element_type();
    Ok(Built::one(ConstantOfShape(value), element))
}

/// Returns the shape of sizes that are an input.
pub(super) fn shape_of_sizes(sizes: &[i64]) -> Result<Shape, Fault> {
    let sizes = sizes.iter().map(|size| to_usize(*size)).collect::<Result<Vec<_>, _>>()?;
    Shape::new(&sizes).ok_or(Fault::ShapeOverflow)
}

impl Operator for ConstantOfShape {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![known_list(inputs, 0)?.map(|sizes| shape_of_sizes(&sizes)).transpose()?])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let shape = shape_of_sizes(&list(inputs, 0)?)?;
        with_elements!(self.0.elements(), |value| {
            let value = value.first().ok_or(Fault::Inconsistent("there is no value"))?;
            Ok(vec![crate::onnx::run::finish(shape, run.filled(shape, value)?)?])
        })
    }
}

/// Numbers at equal distances.
#[derive(Debug)]
struct Sequence<T>(PhantomData<fn() -> T>);

fn range<T: Number>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(3, 3)?;
    Ok(Built::one(Sequence::<T>(PhantomData), T::TYPE))
}

impl<T: Number> Sequence<T> {
    fn arguments(inputs: [Option<&Tensor<'_>>; 3]) -> Result<Option<[T; 3]>, Fault> {
        let mut arguments = [T::ZERO; 3];
        for (slot, input) in arguments.iter_mut().zip(inputs) {
            let Some(input) = input else { return Ok(None) };
            let values = input.values::<T>().ok_or(Fault::Inconsistent("an input has another type"))?;
            *slot = match values[..] {
                [value] => value,
                _ => return Err(Fault::Shape { found: *input.shape(), wanted: "a scalar".to_owned() }),
            };
        }
        Ok(Some(arguments))
    }

    fn shape([start, limit, delta]: [T; 3]) -> Result<Shape, Fault> {
        let count = ((limit.to_f64() - start.to_f64()) / delta.to_f64()).ceil();
        if count.is_nan() || count.is_infinite() {
            return Err(Fault::Value("the distance between numbers is 0 or not a number".to_owned()));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at least 0, and the cast saturates"
        )]
        Shape::of_list(count.max(0.0) as usize).ok_or(Fault::ShapeOverflow)
    }
}

impl<T: Number> Operator for Sequence<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let value = |index| Ok(required(inputs, index)?.value);
        let arguments = Self::arguments([value(0)?, value(1)?, value(2)?])?;
        Ok(vec![arguments.map(Self::shape).transpose()?])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let value = |index| required(inputs, index).map(Some);
        let missing = Fault::Inconsistent("an input is missing");
        let arguments = Self::arguments([value(0)?, value(1)?, value(2)?])?.ok_or(missing)?;
        let [start, _, delta] = arguments;
        let shape = Self::shape(arguments)?;
        let numbers = (0..shape.count()).map(|index| {
            let steps = T::of_i64(to_i64(index)).unwrap_or(T::ZERO);
            start.plus(steps.times(delta))
        });
        Ok(vec![run.collect(shape, numbers)?])
    }
}
