//! Operators that reduce dimensions, or look along one.

use std::fmt;
use std::marker::PhantomData;

use super::Constructor;
use super::elementwise::values;
use super::number::{Float, Number, floating, numeric};
use super::sums::Layout;
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, axis, required};
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{ElementType, MAX_RANK, Shape, Tensor};

/// The operators of this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[
    ("ReduceSum", |node| {
        numeric!(node.input(0)?, T => {
            reduce::<T>(node, Reduction { is_ordered: true, ..plain(T::ZERO, T::plus) })
        })
    }),
    ("ReduceProd", |node| numeric!(node.input(0)?, T => reduce::<T>(node, plain(T::ONE, T::times)))),
    ("ReduceMax", |node| numeric!(node.input(0)?, T => reduce::<T>(node, plain(T::LOWEST, T::larger)))),
    ("ReduceMin", |node| numeric!(node.input(0)?, T => reduce::<T>(node, plain(T::HIGHEST, T::smaller)))),
    ("ReduceMean", |node| {
        numeric!(node.input(0)?, T => {
            let sum = plain(T::ZERO, T::plus);
            reduce::<T>(node, Reduction { is_ordered: true, end: |sum, count| mean(sum, count), ..sum })
        })
    }),
    ("ReduceSumSquare", |node| {
        numeric!(node.input(0)?, T => {
            reduce::<T>(node, Reduction { map: |value, _| value.times(value), ..plain(T::ZERO, T::plus) })
        })
    }),
    ("ReduceL1", |node| {
        numeric!(node.input(0)?, T => {
            reduce::<T>(node, Reduction { map: |value, _| value.absolute(), ..plain(T::ZERO, T::plus) })
        })
    }),
    ("ReduceL2", |node| {
        floating!(node.input(0)?, T => {
            reduce::<T>(node, Reduction { map: |value, _| value.times(value), end: |sum, _| sum.root(), ..plain(T::ZERO, T::plus) })
        })
    }),
    ("ReduceLogSum", |node| {
        floating!(node.input(0)?, T => {
            reduce::<T>(node, Reduction { end: |sum, _| sum.logarithm(), ..plain(T::ZERO, T::plus) })
        })
    }),
    ("ReduceLogSumExp", |node| {
        floating!(node.input(0)?, T => {
            reduce::<T>(node, Reduction {
                // The largest value is subtracted, so that no power overflows.
                shift: true,
                map: |value, largest| value.minus(largest).exponential(),
                end: |sum, _| sum.logarithm(),
                ..plain(T::ZERO, T::plus)
            })
        })
    }),
    ("ArgMax", |node| numeric!(node.input(0)?, T => extreme::<T>(node, |value, best| value > best))),
    ("ArgMin", |node| numeric!(node.input(0)?, T => extreme::<T>(node, |value, best| value < best))),
    ("CumSum", |node| numeric!(node.input(0)?, T => cumulative::<T>(node))),
    ("Softmax", |node| floating!(node.input(0)?, T => softmax::<T>(node, false))),
    ("LogSoftmax", |node| floating!(node.input(0)?, T => softmax::<T>(node, true))),
    ("LpNormalization", |node| floating!(node.input(0)?, T => normalization::<T>(node))),
    ("TopK", |node| numeric!(node.input(0)?, T => top::<T>(node))),
];

/// How the elements along some dimensions become one.
struct Reduction<T> {
    start: T,
    /// Whether `map` gets the largest of the elements; otherwise it gets `start`.
    shift: bool,
    /// Whether floating-point numbers are added in the order of `sums`, whose bits are those of onnxruntime.
    is_ordered: bool,
    map: fn(T, T) -> T,
    add: fn(T, T) -> T,
    /// Gets the number of elements.
    end: fn(T, i64) -> T,
}

/// Returns a mean. That of no integers is 0.
fn mean<T: Number>(sum: T, count: i64) -> T {
    if count == 0 && !T::IS_FLOAT {
        return T::ZERO;
    }
    sum.over(T::of_i64(count).unwrap_or(T::ONE))
}

fn plain<T: Number>(start: T, add: fn(T, T) -> T) -> Reduction<T> {
    Reduction { start, shift: false, is_ordered: false, map: |value, _| value, add, end: |sum, _| sum }
}

/// Which dimensions are reduced.
#[derive(Debug)]
enum Axes {
    Attribute(Vec<i64>),
    /// The second input, if there is one.
    Input,
}

struct Reduce<T> {
    reduction: Reduction<T>,
    axes: Axes,
    keep: bool,
    /// Whether nothing is reduced if there are no axes; otherwise everything is.
    empty_is_none: bool,
}

impl<T: Number> fmt::Debug for Reduce<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Reduce({}, {:?})", T::TYPE, self.axes)
    }
}

fn reduce<T: Number>(node: &NodeSpec<'_, '_>, reduction: Reduction<T>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 2)?;
    if let Some(input) = node.optional(1)
        && input.element != ElementType::I64
    {
        return Err(NodeFault::Damaged(format!("its axes are of type {}", input.element)));
    }
    let axes = if node.inputs.len() > 1 { Axes::Input } else { Axes::Attribute(node.ints("axes")?.to_vec()) };
    let keep = node.flag("keepdims", true)?;
    let empty_is_none = node.flag("noop_with_empty_axes", false)?;
    Ok(Built::one(Reduce { reduction, axes, keep, empty_is_none }, T::TYPE))
}

impl<T: Number> Reduce<T> {
    /// Returns whether each dimension is reduced.
    fn reduced(&self, shape: &Shape, given: Option<Vec<i64>>) -> Result<[bool; MAX_RANK], Fault> {
        let axes = match &self.axes {
            Axes::Attribute(axes) => axes.clone(),
            Axes::Input => given.unwrap_or_default(),
        };
        if axes.is_empty() {
            return Ok([!self.empty_is_none; MAX_RANK]);
        }
        let mut reduced = [false; MAX_RANK];
        for position in axes {
            reduced[axis(position, shape.rank())?] = true;
        }
        Ok(reduced)
    }

    fn shape(&self, shape: &Shape, reduced: [bool; MAX_RANK]) -> Result<Shape, Fault> {
        let sizes = shape.dimensions().iter().zip(reduced).filter_map(|(size, reduced)| match (reduced, self.keep) {
            (false, _) => Some(*size),
            (true, true) => Some(1),
            (true, false) => None,
        });
        Shape::new(&sizes.collect::<Vec<_>>()).ok_or(Fault::ShapeOverflow)
    }

    /// Reduces elements that lie `step` apart.
    fn along(&self, values: impl Iterator<Item = T> + Clone, count: usize) -> T {
        let Reduction { start, shift, map, add, end, .. } = &self.reduction;
        let mut largest = *start;
        if *shift {
            largest = values.clone().fold(T::LOWEST, T::larger);
            if largest == T::LOWEST || largest == T::HIGHEST {
                // The sum of nothing, or of infinity.
                return largest;
            }
        }
        let sum = values.fold(*start, |sum, value| add(sum, map(value, largest)));
        let sum = end(sum, i64::try_from(count).unwrap_or(i64::MAX));
        if *shift { sum.plus(largest) } else { sum }
    }
}

impl<T: Number> Operator for Reduce<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let input = required(inputs, 0)?;
        let given = match inputs.get(1) {
            Some(Some(axes)) => match axes.integers() {
                Some(axes) => Some(axes),
                None => return Ok(vec![None]),
            },
            _ => None,
        };
        Ok(vec![Some(self.shape(&input.shape, self.reduced(&input.shape, given)?)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let given = inputs.get(1).and_then(Option::as_ref).and_then(Tensor::integers);
        let reduced = self.reduced(shape, given)?;
        let result = self.shape(shape, reduced)?;
        let (rank, strides) = (shape.rank(), shape.strides());
        let kept: Vec<usize> = (0..rank).filter(|axis| !reduced[*axis]).collect();
        let gone: Vec<usize> = (0..rank).filter(|axis| reduced[*axis]).collect();
        let sizes = |axes: &[usize]| axes.iter().map(|axis| shape.dimensions()[*axis]).collect::<Vec<_>>();
        let (kept_sizes, gone_sizes) = (sizes(&kept), sizes(&gone));
        let count: usize = gone_sizes.iter().product();
        let mut list = run.list::<T>(&result)?;
        if self.reduction.is_ordered
            && let Some(layout) = Layout::of::<T>(shape.dimensions(), &reduced[..rank])
        {
            layout.add(elements, run, &mut list)?;
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            for sum in &mut list {
                *sum = (self.reduction.end)(*sum, count);
            }
            return Ok(vec![finish(result, list)?]);
        }
        let offset = |axes: &[usize], sizes: &[usize], mut position: usize| {
            let mut offset = 0;
            for (axis, size) in axes.iter().zip(sizes).rev() {
                offset += position % size * strides[*axis];
                position /= size;
            }
            offset
        };
        // Dimensions that lie side by side are one.
        let is_block = gone.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let step = gone.last().map_or(1, |last| strides[*last]);
        for position in 0..result.count() {
            if position % 1024 == 0 {
                run.check()?;
            }
            let base = offset(&kept, &kept_sizes, position);
            list.push(if is_block {
                self.along((0..count).map(|index| elements[base + index * step]), count)
            } else {
                self.along((0..count).map(|index| elements[base + offset(&gone, &gone_sizes, index)]), count)
            });
        }
        Ok(vec![finish(result, list)?])
    }
}

/// The position of the largest or smallest element along a dimension.
struct Extreme<T> {
    axis: i64,
    keep: bool,
    last: bool,
    is_better: fn(T, T) -> bool,
}

impl<T: Number> fmt::Debug for Extreme<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Extreme({}, axis {})", T::TYPE, self.axis)
    }
}

fn extreme<T: Number>(node: &NodeSpec<'_, '_>, is_better: fn(T, T) -> bool) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    let axis = node.int("axis")?.unwrap_or(0);
    let keep = node.flag("keepdims", true)?;
    let last = node.flag("select_last_index", false)?;
    Ok(Built::one(Extreme { axis, keep, last, is_better }, ElementType::I64))
}

impl<T: Number> Extreme<T> {
    fn shape(&self, shape: &Shape) -> Result<(usize, Shape), Fault> {
        let axis = axis(self.axis, shape.rank())?;
        let mut sizes = shape.dimensions().to_vec();
        if sizes[axis] == 0 {
            return Err(Fault::Shape { found: *shape, wanted: "a dimension that is not empty".to_owned() });
        }
        if self.keep {
            sizes[axis] = 1;
        } else {
            sizes.remove(axis);
        }
        Ok((axis, Shape::new(&sizes).ok_or(Fault::ShapeOverflow)?))
    }
}

impl<T: Number> Operator for Extreme<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(self.shape(&required(inputs, 0)?.shape)?.1)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let (axis, result) = self.shape(shape)?;
        let (outer, size, inner) = shape.around(axis);
        let mut list = run.list::<i64>(&result)?;
        for row in 0..outer {
            run.check()?;
            for column in 0..inner {
                let start = row * size * inner + column;
                let (mut best, mut found) = (elements[start], 0);
                for index in 1..size {
                    let value = elements[start + index * inner];
                    if (self.is_better)(value, best) || self.last && value == best {
                        (best, found) = (value, index);
                    }
                }
                list.push(i64::try_from(found).unwrap_or(i64::MAX));
            }
        }
        Ok(vec![finish(result, list)?])
    }
}

/// Sums up to each element along a dimension.
#[derive(Debug)]
struct Cumulative<T> {
    exclusive: bool,
    reverse: bool,
    element: PhantomData<fn() -> T>,
}

fn cumulative<T: Number>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(2, 2)?;
    if !matches!(node.input(1)?, ElementType::I32 | ElementType::I64) {
        return Err(NodeFault::Damaged("its axis is not an integer".to_owned()));
    }
    let (exclusive, reverse) = (node.flag("exclusive", false)?, node.flag("reverse", false)?);
    Ok(Built::one(Cumulative::<T> { exclusive, reverse, element: PhantomData }, T::TYPE))
}

impl<T: Number> Operator for Cumulative<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(required(inputs, 0)?.shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let axes = required(inputs, 1)?;
        let given = axes.integers().filter(|axes| axes.len() == 1);
        let given = given.ok_or_else(|| Fault::Shape { found: *axes.shape(), wanted: "one axis".to_owned() })?;
        let (outer, size, inner) = shape.around(axis(given[0], shape.rank())?);
        let mut list = run.filled(*shape, &T::ZERO)?;
        for row in 0..outer {
            run.check()?;
            for column in 0..inner {
                let start = row * size * inner + column;
                let mut sum = T::ZERO;
                for index in 0..size {
                    let place = start + if self.reverse { size - 1 - index } else { index } * inner;
                    let next = sum.plus(elements[place]);
                    list[place] = if self.exclusive { sum } else { next };
                    sum = next;
                }
            }
        }
        Ok(vec![finish(*shape, list)?])
    }
}

/// Powers in relation to their sum.
#[derive(Debug)]
struct Softmax<T> {
    axis: i64,
    /// Whether all dimensions from the axis on are one, as up to opset 12.
    flattens: bool,
    logarithm: bool,
    element: PhantomData<fn() -> T>,
}

fn softmax<T: Float>(node: &NodeSpec<'_, '_>, logarithm: bool) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    let flattens = node.opset < 13;
    let axis = node.int("axis")?.unwrap_or(if flattens { 1 } else { -1 });
    Ok(Built::one(Softmax::<T> { axis, flattens, logarithm, element: PhantomData }, T::TYPE))
}

impl<T: Float> Operator for Softmax<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(required(inputs, 0)?.shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let (outer, size, inner) = if self.flattens && self.axis == i64::try_from(shape.rank()).unwrap_or(i64::MAX) {
            (shape.count(), 1, 1)
        } else {
            let axis = axis(self.axis, shape.rank())?;
            match shape.around(axis) {
                (outer, size, inner) if self.flattens => (outer, size * inner, 1),
                around => around,
            }
        };
        let mut list = run.filled(*shape, &T::ZERO)?;
        for row in 0..outer {
            run.check()?;
            for column in 0..inner {
                let places = (0..size).map(|index| (row * size + index) * inner + column);
                let largest = places.clone().fold(T::LOWEST, |largest, place| largest.larger(elements[place]));
                let mut sum = T::ZERO;
                for place in places.clone() {
                    let shifted = elements[place].minus(largest);
                    let power = shifted.exponential();
                    sum = sum.plus(power);
                    list[place] = if self.logarithm { shifted } else { power };
                }
                let logarithm = sum.logarithm();
                for place in places {
                    list[place] = if self.logarithm { list[place].minus(logarithm) } else { list[place].over(sum) };
                }
            }
        }
        Ok(vec![finish(*shape, list)?])
    }

    fn cost(&self, _: &[Option<Shape>], elements: usize) -> u64 {
        u64::try_from(elements).unwrap_or(u64::MAX).saturating_mul(8)
    }
}

/// Elements in relation to their norm along a dimension.
#[derive(Debug)]
struct Normalization<T> {
    axis: i64,
    squares: bool,
    element: PhantomData<fn() -> T>,
}

fn normalization<T: Float>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    let squares = match node.int("p")?.unwrap_or(2) {
        1 => false,
        2 => true,
        other => return Err(NodeFault::Unsupported(format!("`p` = {other}"))),
    };
    let axis = node.int("axis")?.unwrap_or(-1);
    Ok(Built::one(Normalization::<T> { axis, squares, element: PhantomData }, T::TYPE))
}

impl<T: Float> Operator for Normalization<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(required(inputs, 0)?.shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let (outer, size, inner) = shape.around(axis(self.axis, shape.rank())?);
        let mut list = run.filled(*shape, &T::ZERO)?;
        for row in 0..outer {
            run.check()?;
            for column in 0..inner {
                let places = (0..size).map(|index| (row * size + index) * inner + column);
                let sum = places.clone().map(|place| elements[place]).fold(T::ZERO, |sum, value| {
                    sum.plus(if self.squares { value.times(value) } else { value.absolute() })
                });
                let norm = if self.squares { sum.root() } else { sum };
                for place in places {
                    // A norm of 0 leaves zeros.
                    list[place] = if norm == T::ZERO { T::ZERO } else { elements[place].over(norm) };
                }
            }
        }
        Ok(vec![finish(*shape, list)?])
    }
}

/// The largest or smallest elements along a dimension, and their positions.
#[derive(Debug)]
struct Top<T> {
    axis: i64,
    largest: bool,
    /// The number of elements in files up to opset 9, which have it as an attribute.
    count: Option<i64>,
    element: PhantomData<fn() -> T>,
}

fn top<T: Number>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    let count = node.int("k")?;
    let wanted = if count.is_some() { 1 } else { 2 };
    node.check_inputs(wanted, wanted)?;
    if node.optional(1).is_some_and(|count| count.element != ElementType::I64) {
        return Err(NodeFault::Damaged("the number of elements is not of type int64".to_owned()));
    }
    // Sorted output is a valid form of output in any order, and what onnxruntime returns then is not reproducible.
    if !node.flag("sorted", true)? {
        return Err(NodeFault::Unsupported("`sorted` = 0".to_owned()));
    }
    let (axis, largest) = (node.int("axis")?.unwrap_or(-1), node.flag("largest", true)?);
    let operator = Box::new(Top::<T> { axis, largest, count, element: PhantomData });
    Ok(Built { operator, outputs: vec![T::TYPE, ElementType::I64] })
}

impl<T: Number> Top<T> {
    fn shape(&self, shape: &Shape, given: Option<&[i64]>) -> Result<(usize, Shape), Fault> {
        let axis = axis(self.axis, shape.rank())?;
        let given = match (self.count, given) {
            (Some(count), _) => count,
            (None, Some([count])) => *count,
            _ => return Err(Fault::Value("the number of elements is not one integer".to_owned())),
        };
        let size = shape.dimensions()[axis];
        let count = usize::try_from(given).ok().filter(|count| *count <= size);
        let mut sizes = shape.dimensions().to_vec();
        sizes[axis] = count.ok_or(Fault::Index { index: given, size })?;
        Ok((axis, Shape::new(&sizes).ok_or(Fault::ShapeOverflow)?))
    }
}

impl<T: Number> Operator for Top<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let given = inputs.get(1).and_then(Option::as_ref).map(Known::integers);
        if let Some(None) = given {
            return Ok(vec![None, None]);
        }
        let (_, shape) = self.shape(&required(inputs, 0)?.shape, given.flatten().as_deref())?;
        Ok(vec![Some(shape), Some(shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let given = inputs.get(1).and_then(Option::as_ref).and_then(Tensor::integers);
        let (axis, result) = self.shape(shape, given.as_deref())?;
        let (outer, size, inner) = shape.around(axis);
        let count = result.dimensions()[axis];
        let mut found = run.filled(result, &T::ZERO)?;
        let mut positions = run.filled(result, &0_i64)?;
        let mut order: Vec<usize> = Vec::with_capacity(size);
        for row in 0..outer {
            run.check()?;
            for column in 0..inner {
                let value = |index: usize| elements[(row * size + index) * inner + column];
                order.clear();
                order.extend(0..size);
                // Equal elements stay in their order. NaN, which no order has, goes behind all others.
                order.sort_by(|a, b| {
                    let (a, b) = if self.largest { (value(*b), value(*a)) } else { (value(*a), value(*b)) };
                    a.partial_cmp(&b).unwrap_or_else(|| {
                        let order = a.is_nan().cmp(&b.is_nan());
                        if self.largest { order.reverse() } else { order }
                    })
                });
                for (place, index) in order.iter().take(count).enumerate() {
                    let at = (row * count + place) * inner + column;
                    found[at] = value(*index);
                    positions[at] = i64::try_from(*index).unwrap_or(i64::MAX);
                }
            }
        }
        Ok(vec![finish(result, found)?, finish(result, positions)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], _: usize) -> u64 {
        let elements = inputs.first().copied().flatten().map_or(0, |shape| shape.count());
        u64::try_from(elements).unwrap_or(u64::MAX).saturating_mul(30)
    }
}
