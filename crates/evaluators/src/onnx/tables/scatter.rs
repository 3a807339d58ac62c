//! Operators that read or write elements at places that a tensor of positions gives.

use std::fmt;
use std::marker::PhantomData;

use super::Constructor;
use super::elementwise::values;
use super::layout::{check_integers, list, to_usize};
use super::number::{Number, numeric};
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, axis, position, required};
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{Element, Shape, Tensor, with_type};

/// The operators of this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[
    ("GatherElements", |node| {
        check_integers(node, 1)?;
        let axis = node.int("axis")?.unwrap_or(0);
        with_type!(node.input(0)?, T => Ok(Built::one(GatherElements::<T> { axis, element: PhantomData }, T::TYPE)))
    }),
    ("GatherND", |node| {
        check_integers(node, 1)?;
        let batch = node.int("batch_dims")?.unwrap_or(0);
        with_type!(node.input(0)?, T => Ok(Built::one(GatherNd::<T> { batch, element: PhantomData }, T::TYPE)))
    }),
    ("Scatter", |node| scatter(node, false)),
    ("ScatterElements", |node| scatter(node, false)),
    ("ScatterND", |node| scatter(node, true)),
];

/// An element for each position, along a dimension.
#[derive(Debug)]
struct GatherElements<T> {
    axis: i64,
    element: PhantomData<fn() -> T>,
}

/// Checks that positions lie within a tensor in all dimensions but one.
fn check_inside(shape: &Shape, positions: &Shape, axis: usize) -> Result<(), Fault> {
    let pairs = shape.dimensions().iter().zip(positions.dimensions()).enumerate();
    let fits = shape.rank() == positions.rank()
        && pairs.into_iter().all(|(index, (size, found))| index == axis || found <= size);
    let wanted = || format!("one that is at most {shape} except for axis {axis}");
    if fits { Ok(()) } else { Err(Fault::Shape { found: *positions, wanted: wanted() }) }
}

/// Returns where the element stands that the position at `place` of `positions` refers to.
fn place_of(place: usize, positions: &Shape, shape: &Shape, axis: usize, index: usize) -> usize {
    let (steps, strides) = (positions.strides(), shape.strides());
    let offsets = (0..shape.rank()).map(|at| {
        let index = if at == axis { index } else { place / steps[at] % positions.dimensions()[at] };
        index * strides[at]
    });
    offsets.sum()
}

impl<T: Element> Operator for GatherElements<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let (shape, positions) = (&required(inputs, 0)?.shape, &required(inputs, 1)?.shape);
        check_inside(shape, positions, axis(self.axis, shape.rank())?)?;
        Ok(vec![Some(*positions)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let axis = axis(self.axis, shape.rank())?;
        let size = shape.dimensions()[axis];
        let of_positions = *required(inputs, 1)?.shape();
        check_inside(shape, &of_positions, axis)?;
        let mut gathered = run.list::<T>(&of_positions)?;
        for (place, index) in list(inputs, 1)?.into_iter().enumerate() {
            let at = place_of(place, &of_positions, shape, axis, position(index, size)?);
            gathered.push(elements[at].clone());
        }
        Ok(vec![finish(of_positions, gathered)?])
    }

    fn cost(&self, _: &[Option<Shape>], elements: usize) -> u64 {
        u64::try_from(elements).unwrap_or(u64::MAX).saturating_mul(10)
    }
}

/// Where the blocks of elements are to which lists of positions refer.
struct Blocks {
    /// Where each block starts.
    starts: Vec<usize>,
    /// The elements of a block.
    length: usize,
}

/// Returns the blocks of a tensor to which the last dimension of `positions` refers.
fn blocks(shape: &Shape, positions: &Shape, indices: &[i64], batch: usize) -> Result<Blocks, Fault> {
    let depth = positions.dimensions().last().copied().unwrap_or_default();
    let strides = shape.strides();
    let length = shape.dimensions()[batch + depth..].iter().product();
    let count = positions.dimensions()[..positions.rank() - 1].iter().product::<usize>();
    let of_batches: usize = positions.dimensions()[..batch].iter().product();
    let in_batch = count.checked_div(of_batches).unwrap_or(0);
    let batch_length: usize = shape.dimensions()[batch..].iter().product();
    let mut starts = Vec::with_capacity(count);
    for number in 0..count {
        let mut start = number.checked_div(in_batch).unwrap_or(0) * batch_length;
        for (index, at) in indices[number * depth..][..depth].iter().zip(batch..) {
            start += position(*index, shape.dimensions()[at])? * strides[at];
        }
        starts.push(start);
    }
    // A tensor without elements has no blocks to refer to, but lists of no positions do.
    let fits = shape.count() > 0 || length == 0 || starts.is_empty();
    if fits { Ok(Blocks { starts, length }) } else { Err(Fault::Index { index: 0, size: 0 }) }
}

/// Checks lists of positions, and returns the shape of the blocks that they refer to.
fn block_shape(shape: &Shape, positions: &Shape, batch: usize) -> Result<Shape, Fault> {
    let wanted =
        || Fault::Shape { found: *positions, wanted: format!("lists of positions in a tensor of shape {shape}") };
    let (depth, outer) = positions.dimensions().split_last().ok_or_else(wanted)?;
    let fits = batch < positions.rank()
        && batch + depth <= shape.rank()
        && shape.dimensions().get(..batch) == positions.dimensions().get(..batch);
    if !fits {
        return Err(wanted());
    }
    let sizes: Vec<usize> = outer.iter().chain(&shape.dimensions()[batch + depth..]).copied().collect();
    Shape::new(&sizes).ok_or(Fault::ShapeOverflow)
}

/// Blocks of elements by lists of positions.
#[derive(Debug)]
struct GatherNd<T> {
    batch: i64,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Operator for GatherNd<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let (shape, positions) = (&required(inputs, 0)?.shape, &required(inputs, 1)?.shape);
        Ok(vec![Some(block_shape(shape, positions, to_usize(self.batch)?)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let positions = required(inputs, 1)?.shape();
        let batch = to_usize(self.batch)?;
        let result = block_shape(shape, positions, batch)?;
        let mut gathered = run.list::<T>(&result)?;
        let Blocks { starts, length } = blocks(shape, positions, &list(inputs, 1)?, batch)?;
        for start in starts {
            gathered.extend_from_slice(&elements[start..start + length]);
        }
        Ok(vec![finish(result, gathered)?])
    }
}

/// A tensor in which elements are replaced.
struct Scatter<T> {
    /// The dimension, or `None` if positions are lists for all dimensions.
    axis: Option<i64>,
    combine: fn(&T, &T) -> T,
}

impl<T: Element> fmt::Debug for Scatter<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Scatter({}, axis {:?})", T::TYPE, self.axis)
    }
}

/// How an element is combined with the one that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Combination {
    Replace,
    Add,
    Multiply,
    Max,
    Min,
}

fn replaced<T: Element>(_: &T, new: &T) -> T {
    new.clone()
}

fn scatter(node: &NodeSpec<'_, '_>, lists: bool) -> Result<Built, NodeFault> {
    node.check_inputs(3, 3)?;
    check_integers(node, 1)?;
    let element = node.input(0)?;
    if node.input(2)? != element {
        return Err(NodeFault::Damaged("its elements have two types".to_owned()));
    }
    let axis = if lists { None } else { Some(node.int("axis")?.unwrap_or(0)) };
    let combinations = [
        ("none", Combination::Replace),
        ("add", Combination::Add),
        ("mul", Combination::Multiply),
        ("max", Combination::Max),
        ("min", Combination::Min),
    ];
    let combination = node.choice("reduction", &combinations, Combination::Replace)?;
    if combination == Combination::Replace {
        return with_type!(element, T => {
            Ok(Built::one(Scatter::<T> { axis, combine: replaced::<T> }, T::TYPE))
        });
    }
    numeric!(element, T => {
        let combine: fn(&T, &T) -> T = match combination {
            Combination::Replace => |_, new| *new,
            Combination::Add => |old, new| old.plus(*new),
            Combination::Multiply => |old, new| old.times(*new),
            Combination::Max => |old, new| old.larger(*new),
            Combination::Min => |old, new| old.smaller(*new),
        };
        Ok(Built::one(Scatter::<T> { axis, combine }, T::TYPE))
    })
}

impl<T: Element> Scatter<T> {
    fn check(&self, shape: &Shape, positions: &Shape, updates: &Shape) -> Result<(), Fault> {
        let wanted = match self.axis {
            Some(position) => {
                check_inside(shape, positions, axis(position, shape.rank())?)?;
                *positions
            }
            None => block_shape(shape, positions, 0)?,
        };
        if *updates == wanted { Ok(()) } else { Err(Fault::Shape { found: *updates, wanted: wanted.to_string() }) }
    }
}

impl<T: Element> Operator for Scatter<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let shape = required(inputs, 0)?.shape;
        self.check(&shape, &required(inputs, 1)?.shape, &required(inputs, 2)?.shape)?;
        Ok(vec![Some(shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let of_positions = required(inputs, 1)?.shape();
        let (of_updates, updates) = values::<T>(inputs, 2)?;
        self.check(shape, of_positions, of_updates)?;
        let indices = list(inputs, 1)?;
        let mut result = run.list::<T>(shape)?;
        result.extend_from_slice(elements);
        if let Some(given) = self.axis {
            let axis = axis(given, shape.rank())?;
            for ((place, index), update) in indices.into_iter().enumerate().zip(updates.iter()) {
                let index = position(index, shape.dimensions()[axis])?;
                let at = place_of(place, of_positions, shape, axis, index);
                result[at] = (self.combine)(&result[at], update);
            }
        } else {
            let Blocks { starts, length } = blocks(shape, of_positions, &indices, 0)?;
            for (start, updates) in starts.into_iter().zip(updates.chunks(length.max(1))) {
                for (slot, update) in result[start..start + length].iter_mut().zip(updates) {
                    *slot = (self.combine)(slot, update);
                }
            }
        }
        Ok(vec![finish(*shape, result)?])
    }

    fn cost(&self, _: &[Option<Shape>], elements: usize) -> u64 {
        u64::try_from(elements).unwrap_or(u64::MAX).saturating_mul(10)
    }
}
