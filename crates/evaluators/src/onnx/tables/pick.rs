//! Operators that pick elements by positions, join and split tensors.

use std::marker::PhantomData;

use super::Constructor;
use super::elementwise::values;
use super::layout::{check_integers, list, shape_of_sizes, strided, to_i64, to_usize};
use super::number::{Number, numeric};
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, axis, position, required};
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{Element, ElementType, MAX_RANK, Shape, Tensor, with_elements, with_type};

/// The operators of this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[
    ("Concat", |node| with_type!(node.same_type()?, T => concat::<T>(node))),
    ("Split", |node| with_type!(node.input(0)?, T => split::<T>(node))),
    ("Slice", slice),
    ("Expand", |node| {
        check_integers(node, 1)?;
        with_type!(node.input(0)?, T => Ok(Built::one(Expand::<T>(PhantomData), T::TYPE)))
    }),
    ("Tile", |node| {
        check_integers(node, 1)?;
        with_type!(node.input(0)?, T => Ok(Built::one(Tile::<T>(PhantomData), T::TYPE)))
    }),
    ("Pad", pad),
    ("Gather", |node| {
        check_integers(node, 1)?;
        let axis = node.int("axis")?.unwrap_or(0);
        with_type!(node.input(0)?, T => Ok(Built::one(Gather::<T> { axis, element: PhantomData }, T::TYPE)))
    }),
    ("Compress", compress),
    ("NonZero", |node| {
        node.check_inputs(1, 1)?;
        match node.input(0)? {
            ElementType::Text => Err(NodeSpec::type_fault(ElementType::Text)),
            element => with_type!(element, T => Ok(Built::one(NonZero::<T>(PhantomData), ElementType::I64))),
        }
    }),
    ("OneHot", one_hot),
];

/// Tensors joined along a dimension.
#[derive(Debug)]
struct Concat<T> {
    axis: i64,
    element: PhantomData<fn() -> T>,
}

fn concat<T: Element>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    let axis = node.int("axis")?.ok_or_else(|| NodeFault::Damaged("it has no axis".to_owned()))?;
    if let Some(index) = node.inputs.iter().position(Option::is_none) {
        return Err(NodeFault::MissingInput { index });
    }
    Ok(Built::one(Concat::<T> { axis, element: PhantomData }, T::TYPE))
}

impl<T: Element> Concat<T> {
    fn shape<'s>(&self, mut shapes: impl Iterator<Item = &'s Shape>) -> Result<(usize, Shape), Fault> {
        let first = shapes.next().ok_or(Fault::Inconsistent("there are no inputs"))?;
        let axis = axis(self.axis, first.rank())?;
        let mut sizes = first.dimensions().to_vec();
        for shape in shapes {
            let fits = |(index, (size, other)): (usize, (&usize, &usize))| index == axis || size == other;
            let fits = shape.rank() == first.rank() && sizes.iter().zip(shape.dimensions()).enumerate().all(fits);
            if !fits {
                let wanted = format!("one that is like {first} except for axis {axis}");
                return Err(Fault::Shape { found: *shape, wanted });
            }
            sizes[axis] = sizes[axis].checked_add(shape.dimensions()[axis]).ok_or(Fault::ShapeOverflow)?;
        }
        Ok((axis, Shape::new(&sizes).ok_or(Fault::ShapeOverflow)?))
    }
}

impl<T: Element> Operator for Concat<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(self.shape(inputs.iter().flatten().map(|input| &input.shape))?.1)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (axis, shape) = self.shape(inputs.iter().flatten().map(Tensor::shape))?;
        let mut parts = Vec::with_capacity(inputs.len());
        for index in 0..inputs.len() {
            let (shape, elements) = values::<T>(inputs, index)?;
            let (_, size, inner) = shape.around(axis);
            parts.push((size * inner, elements));
        }
        let (outer, ..) = shape.around(axis);
        let mut joined = run.list::<T>(&shape)?;
        for row in 0..outer {
            for (length, elements) in &parts {
                joined.extend_from_slice(&elements[row * length..][..*length]);
            }
        }
        Ok(vec![finish(shape, joined)?])
    }
}

/// A tensor divided along a dimension.
#[derive(Debug)]
struct Split<T> {
    axis: i64,
    /// The sizes of the parts, if an attribute gives them.
    sizes: Vec<i64>,
    outputs: usize,
    element: PhantomData<fn() -> T>,
}

fn split<T: Element>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 2)?;
    if node.optional(1).is_some() {
        check_integers(node, 1)?;
    }
    let outputs = node.outputs;
    if let Some(count) = node.int("num_outputs")?
        && usize::try_from(count) != Ok(outputs)
    {
        return Err(NodeFault::Damaged(format!("`num_outputs` is {count}, but it has {outputs} outputs")));
    }
    let (axis, sizes) = (node.int("axis")?.unwrap_or(0), node.ints("split")?.to_vec());
    let operator = Box::new(Split::<T> { axis, sizes, outputs, element: PhantomData });
    Ok(Built { operator, outputs: vec![T::TYPE; outputs] })
}

impl<T: Element> Split<T> {
    /// Returns the axis, and the sizes of the parts.
    fn parts(&self, shape: &Shape, given: Option<Vec<i64>>) -> Result<(usize, Vec<usize>), Fault> {
        let axis = axis(self.axis, shape.rank())?;
        let size = shape.dimensions()[axis];
        let given = given.unwrap_or_else(|| self.sizes.clone());
        if given.is_empty() {
            // Equal parts, of which the last may be smaller.
            let part = size.div_ceil(self.outputs.max(1));
            let left = |index: usize| size.saturating_sub(index * part).min(part);
            return Ok((axis, (0..self.outputs).map(left).collect()));
        }
        let parts = given.iter().map(|part| to_usize(*part)).collect::<Result<Vec<_>, _>>()?;
        let sum = parts.iter().try_fold(0_usize, |sum, part| sum.checked_add(*part));
        if parts.len() != self.outputs || sum != Some(size) {
            let wanted = format!("one that can be split into {given:?} along axis {axis}");
            return Err(Fault::Shape { found: *shape, wanted });
        }
        Ok((axis, parts))
    }

    fn shape(shape: &Shape, axis: usize, part: usize) -> Result<Shape, Fault> {
        let mut sizes = shape.dimensions().to_vec();
        sizes[axis] = part;
        Shape::new(&sizes).ok_or(Fault::ShapeOverflow)
    }
}

impl<T: Element> Operator for Split<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let shape = &required(inputs, 0)?.shape;
        let given = match inputs.get(1).and_then(Option::as_ref).map(Known::integers) {
            Some(None) => return Ok(vec![None; self.outputs]),
            given => given.flatten(),
        };
        let (axis, parts) = self.parts(shape, given)?;
        parts.iter().map(|part| Self::shape(shape, axis, *part).map(Some)).collect()
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let given = inputs.get(1).and_then(Option::as_ref).and_then(Tensor::integers);
        let (axis, parts) = self.parts(shape, given)?;
        let (outer, size, inner) = shape.around(axis);
        let mut start = 0;
        let mut outputs = Vec::with_capacity(parts.len());
        for part in parts {
            let shape = Self::shape(shape, axis, part)?;
            let mut list = run.list::<T>(&shape)?;
            for row in 0..outer {
                list.extend_from_slice(&elements[(row * size + start) * inner..][..part * inner]);
            }
            start += part;
            outputs.push(finish(shape, list)?);
        }
        Ok(outputs)
    }
}

/// A part of each dimension.
#[derive(Debug)]
struct Slice {
    /// The starts, ends and axes of files up to opset 9, which have them as attributes.
    given: Option<[Vec<i64>; 3]>,
}

fn slice(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    let element = node.input(0)?;
    if node.opset < 10 {
        node.check_inputs(1, 1)?;
        let given = [node.ints("starts")?.to_vec(), node.ints("ends")?.to_vec(), node.ints("axes")?.to_vec()];
        return Ok(Built::one(Slice { given: Some(given) }, element));
    }
    node.check_inputs(3, 5)?;
    for index in 1..node.inputs.len() {
        if node.optional(index).is_some() || index < 3 {
            check_integers(node, index)?;
        }
    }
    Ok(Built::one(Slice { given: None }, element))
}

/// Which elements of a dimension a slice has.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: i64,
    step: i64,
    count: usize,
}

impl Slice {
    fn spans(shape: &Shape, [starts, ends, axes, steps]: [&[i64]; 4]) -> Result<Vec<Span>, Fault> {
        let whole = |size: &usize| Span { start: 0, step: 1, count: *size };
        let mut spans: Vec<Span> = shape.dimensions().iter().map(whole).collect();
        let default: Vec<i64> = (0..to_i64(starts.len())).collect();
        let axes = if axes.is_empty() { &default } else { axes };
        let count = |list: &[i64]| list.len() == starts.len();
        if !count(ends) || !count(axes) || !(steps.is_empty() || count(steps)) {
            return Err(Fault::Value("the lists of a slice have different lengths".to_owned()));
        }
        for (index, ((start, end), position)) in starts.iter().zip(ends).zip(axes).enumerate() {
            let at = axis(*position, shape.rank())?;
            let size = to_i64(shape.dimensions()[at]);
            let step = steps.get(index).copied().unwrap_or(1);
            let place = |position: i64| if position < 0 { position.saturating_add(size) } else { position };
            let (start, end) = if step > 0 {
                (place(*start).clamp(0, size), place(*end).clamp(0, size))
            } else {
                (place(*start).clamp(0, (size - 1).max(0)), place(*end).clamp(-1, size - 1))
            };
            let distance = if step > 0 { end - start } else { start - end };
            let step_size = step.checked_abs().filter(|step| *step > 0);
            let step_size = step_size.ok_or_else(|| Fault::Value(format!("a slice has the step {step}")))?;
            let count = if size == 0 { 0 } else { (distance.max(0) - 1).div_euclid(step_size) + 1 };
            spans[at] = Span { start, step, count: to_usize(count)? };
        }
        Ok(spans)
    }

    fn shape(spans: &[Span]) -> Result<Shape, Fault> {
        Shape::new(&spans.iter().map(|span| span.count).collect::<Vec<_>>()).ok_or(Fault::ShapeOverflow)
    }
}

impl Operator for Slice {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let shape = &required(inputs, 0)?.shape;
        let spans = if let Some([starts, ends, axes]) = &self.given {
            Self::spans(shape, [starts, ends, axes, &[]])?
        } else {
            let mut lists = [const { Vec::new() }; 4];
            for (list, input) in lists.iter_mut().zip(inputs.iter().skip(1)) {
                match input.as_ref().map(Known::integers) {
                    Some(None) => return Ok(vec![None]),
                    Some(Some(given)) => *list = given,
                    None => {}
                }
            }
            Self::spans(shape, lists.each_ref().map(Vec::as_slice))?
        };
        Ok(vec![Some(Self::shape(&spans)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let input = required(inputs, 0)?;
        let spans = if let Some([starts, ends, axes]) = &self.given {
            Self::spans(input.shape(), [starts, ends, axes, &[]])?
        } else {
            let mut lists = [const { Vec::new() }; 4];
            for (index, slot) in lists.iter_mut().enumerate() {
                if inputs.get(index + 1).is_some_and(Option::is_some) {
                    *slot = list(inputs, index + 1)?;
                }
            }
            Self::spans(input.shape(), lists.each_ref().map(Vec::as_slice))?
        };
        let shape = Self::shape(&spans)?;
        let strides = input.shape().strides();
        let of_axis = |(span, stride): (&Span, &usize)| -> Option<i64> { span.start.checked_mul(to_i64(*stride)) };
        let base = spans.iter().zip(&strides).map(of_axis).try_fold(0_i64, |sum, next| sum.checked_add(next?));
        let base = base.ok_or(Fault::ShapeOverflow)?;
        with_elements!(input.elements(), |elements| Ok(vec![picked(elements, shape, base, &spans, &strides, run)?]))
    }
}

/// Returns the elements of spans.
fn picked<T: Element>(
    elements: &[T],
    shape: Shape,
    base: i64,
    spans: &[Span],
    strides: &[usize],
    run: &Run<'_>,
) -> Result<Tensor<'static>, Fault> {
    if shape.count() == 0 {
        return run.collect::<T>(shape, []);
    }
    if spans.iter().all(|span| span.step > 0) {
        let start = to_usize(base)?;
        let steps: Vec<usize> = spans
            .iter()
            .zip(strides)
            .map(
                |(span, stride)| {
                    if span.count > 1 { usize::try_from(span.step).unwrap_or(0).saturating_mul(*stride) } else { 0 }
                },
            )
            .collect();
        return strided(&elements[start..], shape, &steps, run);
    }
    // A span backwards.
    let mut list = run.list::<T>(&shape)?;
    for place in 0..shape.count() {
        let mut rest = place;
        let mut at = base;
        for ((span, stride), size) in spans.iter().zip(strides).zip(shape.dimensions()).rev() {
            at += to_i64(rest % size) * span.step * to_i64(*stride);
            rest /= size;
        }
        list.push(elements[to_usize(at)?].clone());
    }
    finish(shape, list)
}

/// Repeats dimensions of size 1.
#[derive(Debug)]
struct Expand<T>(PhantomData<fn() -> T>);

impl<T: Element> Operator for Expand<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let Some(sizes) = required(inputs, 1)?.integers() else { return Ok(vec![None]) };
        Ok(vec![Some(super::broadcast::broadcast(&required(inputs, 0)?.shape, &shape_of_sizes(&sizes)?)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let wanted = super::broadcast::broadcast(shape, &shape_of_sizes(&list(inputs, 1)?)?)?;
        let own = shape.strides();
        let mut strides = [0; MAX_RANK];
        for (index, size) in shape.dimensions().iter().enumerate() {
            strides[index + wanted.rank() - shape.rank()] = if *size == 1 { 0 } else { own[index] };
        }
        Ok(vec![strided(elements, wanted, &strides[..wanted.rank()], run)?])
    }
}

/// Repeats whole dimensions.
#[derive(Debug)]
struct Tile<T>(PhantomData<fn() -> T>);

impl<T: Element> Tile<T> {
    fn shape(shape: &Shape, repeats: &[i64]) -> Result<Shape, Fault> {
        if repeats.len() != shape.rank() {
            return Err(Fault::Shape { found: *shape, wanted: format!("{} dimensions", repeats.len()) });
        }
        let size = |(size, repeats): (&usize, &i64)| size.checked_mul(to_usize(*repeats)?).ok_or(Fault::ShapeOverflow);
        let sizes = shape.dimensions().iter().zip(repeats).map(size).collect::<Result<Vec<_>, _>>()?;
        Shape::new(&sizes).ok_or(Fault::ShapeOverflow)
    }
}

impl<T: Element> Operator for Tile<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let Some(repeats) = required(inputs, 1)?.integers() else { return Ok(vec![None]) };
        Ok(vec![Some(Self::shape(&required(inputs, 0)?.shape, &repeats)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let wanted = Self::shape(shape, &list(inputs, 1)?)?;
        let (strides, sizes) = (shape.strides(), wanted.strides());
        let mut repeated = run.list::<T>(&wanted)?;
        for place in 0..wanted.count() {
            if place % 4096 == 0 {
                run.check()?;
            }
            let axes = (0..wanted.rank())
                .map(|axis| place / sizes[axis] % wanted.dimensions()[axis] % shape.dimensions()[axis] * strides[axis]);
            repeated.push(elements[axes.sum::<usize>()].clone());
        }
        Ok(vec![finish(wanted, repeated)?])
    }
}

/// How the elements around a tensor are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Padding {
    Constant,
    Edge,
    Reflect,
    Wrap,
}

/// Elements around a tensor.
#[derive(Debug)]
struct Pad<T> {
    mode: Padding,
    /// The sizes and the value of files up to opset 10, which have them as attributes.
    given: Option<(Vec<i64>, T)>,
}

fn pad(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    let modes = [
        ("constant", Padding::Constant),
        ("edge", Padding::Edge),
        ("reflect", Padding::Reflect),
        ("wrap", Padding::Wrap),
    ];
    let mode = node.choice("mode", &modes, Padding::Constant)?;
    if node.opset < 11 {
        node.check_inputs(1, 1)?;
        let pads = node.ints("pads")?.to_vec();
        let value = f64::from(node.float("value")?.unwrap_or_default());
        return super::number::floating!(node.input(0)?, T => {
            Ok(Built::one(Pad { mode, given: Some((pads, T::of_f64(value))) }, T::TYPE))
        });
    }
    node.check_inputs(2, 4)?;
    check_integers(node, 1)?;
    if node.optional(3).is_some() {
        check_integers(node, 3)?;
    }
    let element = node.input(0)?;
    if node.optional(2).is_some_and(|value| value.element != element) {
        return Err(NodeFault::Damaged("its value is of another type".to_owned()));
    }
    with_type!(element, T => Ok(Built::one(Pad::<T> { mode, given: None }, T::TYPE)))
}

impl<T: Element> Pad<T> {
    /// Returns how much is before and after each dimension; negative sizes remove elements.
    fn sizes(shape: &Shape, pads: &[i64], axes: Option<&[i64]>) -> Result<Vec<(i64, i64)>, Fault> {
        let all: Vec<i64> = (0..to_i64(shape.rank())).collect();
        let axes = axes.unwrap_or(&all);
        if pads.len() != 2 * axes.len() {
            return Err(Fault::Value(format!("{} sizes for {} dimensions", pads.len(), axes.len())));
        }
        let mut sizes = vec![(0, 0); shape.rank()];
        for (index, position) in axes.iter().enumerate() {
            sizes[axis(*position, shape.rank())?] = (pads[index], pads[index + axes.len()]);
        }
        Ok(sizes)
    }

    fn shape(shape: &Shape, pads: &[(i64, i64)]) -> Result<Shape, Fault> {
        let size = |(size, (before, after)): (&usize, &(i64, i64))| {
            let size = to_i64(*size).checked_add(*before).and_then(|size| size.checked_add(*after));
            to_usize(size.ok_or(Fault::ShapeOverflow)?)
        };
        let sizes = shape.dimensions().iter().zip(pads).map(size).collect::<Result<Vec<_>, _>>()?;
        Shape::new(&sizes).ok_or(Fault::ShapeOverflow)
    }

    /// Returns which element of a dimension stands at a place, `None` for the value.
    fn place(&self, place: i64, size: i64) -> Result<Option<i64>, Fault> {
        if (0..size).contains(&place) {
            return Ok(Some(place));
        }
        if size == 0 {
            let wanted = || Fault::Value("an empty dimension has no elements to pad with".to_owned());
            return if self.mode == Padding::Constant { Ok(None) } else { Err(wanted()) };
        }
        Ok(match self.mode {
            Padding::Constant => None,
            Padding::Edge => Some(place.clamp(0, size - 1)),
            Padding::Wrap => Some(place.rem_euclid(size)),
            Padding::Reflect if size == 1 => Some(0),
            Padding::Reflect => {
                let place = place.rem_euclid(2 * (size - 1));
                Some(if place < size { place } else { 2 * (size - 1) - place })
            }
        })
    }
}

impl<T: Element> Operator for Pad<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let shape = &required(inputs, 0)?.shape;
        let sizes = if let Some((pads, _)) = &self.given {
            Self::sizes(shape, pads, None)?
        } else {
            let axes = inputs.get(3).and_then(Option::as_ref).map(Known::integers);
            let (Some(pads), false) = (required(inputs, 1)?.integers(), matches!(axes, Some(None))) else {
                return Ok(vec![None]);
            };
            Self::sizes(shape, &pads, axes.flatten().as_deref())?
        };
        Ok(vec![Some(Self::shape(shape, &sizes)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let (pads, value) = if let Some((pads, value)) = &self.given {
            (Self::sizes(shape, pads, None)?, value.clone())
        } else {
            let axes = inputs.get(3).and_then(Option::as_ref).and_then(Tensor::integers);
            let value = match inputs.get(2) {
                Some(Some(_)) => values::<T>(inputs, 2)?.1.first().cloned().unwrap_or_default(),
                _ => T::default(),
            };
            (Self::sizes(shape, &list(inputs, 1)?, axes.as_deref())?, value)
        };
        let wanted = Self::shape(shape, &pads)?;
        let (strides, steps) = (shape.strides(), wanted.strides());
        let mut padded = run.list::<T>(&wanted)?;
        for place in 0..wanted.count() {
            if place % 4096 == 0 {
                run.check()?;
            }
            let mut at = Some(0_usize);
            for axis in 0..wanted.rank() {
                let index = to_i64(place / steps[axis] % wanted.dimensions()[axis]).wrapping_sub(pads[axis].0);
                let index = self.place(index, to_i64(shape.dimensions()[axis]))?;
                at = match (at, index) {
                    (Some(at), Some(index)) => Some(at + to_usize(index)? * strides[axis]),
                    _ => None,
                };
            }
            padded.push(at.map_or_else(|| value.clone(), |at| elements[at].clone()));
        }
        Ok(vec![finish(wanted, padded)?])
    }
}

/// Elements of a dimension by their positions.
#[derive(Debug)]
struct Gather<T> {
    axis: i64,
    element: PhantomData<fn() -> T>,
}

impl<T: Element> Gather<T> {
    fn shape(&self, shape: &Shape, positions: &Shape) -> Result<(usize, Shape), Fault> {
        let axis = axis(self.axis, shape.rank())?;
        let mut sizes = shape.dimensions()[..axis].to_vec();
        sizes.extend_from_slice(positions.dimensions());
        sizes.extend_from_slice(&shape.dimensions()[axis + 1..]);
        Ok((axis, Shape::new(&sizes).ok_or(Fault::ShapeOverflow)?))
    }
}

impl<T: Element> Operator for Gather<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(self.shape(&required(inputs, 0)?.shape, &required(inputs, 1)?.shape)?.1)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let (axis, result) = self.shape(shape, required(inputs, 1)?.shape())?;
        let (outer, size, inner) = shape.around(axis);
        let positions = list(inputs, 1)?;
        let positions = positions.iter().map(|index| position(*index, size)).collect::<Result<Vec<_>, _>>()?;
        let mut gathered = run.list::<T>(&result)?;
        for row in 0..outer {
            run.check()?;
            for index in &positions {
                let start = (row * size + index) * inner;
                if inner == 1 {
                    gathered.push(elements[start].clone());
                } else {
                    gathered.extend_from_slice(&elements[start..start + inner]);
                }
            }
        }
        Ok(vec![finish(result, gathered)?])
    }
}

/// The slices of a dimension for which a condition holds.
#[derive(Debug)]
struct Compress<T> {
    /// The dimension, or `None` for a list of all elements.
    axis: Option<i64>,
    element: PhantomData<fn() -> T>,
}

fn compress(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(2, 2)?;
    if node.input(1)? != ElementType::Bool {
        return Err(NodeFault::Damaged("its condition is not of type bool".to_owned()));
    }
    let axis = node.int("axis")?;
    with_type!(node.input(0)?, T => Ok(Built::one(Compress::<T> { axis, element: PhantomData }, T::TYPE)))
}

impl<T: Element> Operator for Compress<T> {
    fn shapes(&self, _: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![None])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let (_, condition) = values::<bool>(inputs, 1)?;
        let (shape, axis) = match self.axis {
            Some(position) => (*shape, axis(position, shape.rank())?),
            None => (Shape::of_list(shape.count()).ok_or(Fault::ShapeOverflow)?, 0),
        };
        let (outer, size, inner) = shape.around(axis);
        if let Some(index) = condition.iter().skip(size).position(|holds| *holds) {
            return Err(Fault::Index { index: to_i64(size + index), size });
        }
        let chosen: Vec<usize> = condition.iter().enumerate().filter(|(_, holds)| **holds).map(|(at, _)| at).collect();
        let mut sizes = shape.dimensions().to_vec();
        sizes[axis] = chosen.len();
        let result = Shape::new(&sizes).ok_or(Fault::ShapeOverflow)?;
        let mut list = run.list::<T>(&result)?;
        for row in 0..outer {
            for index in &chosen {
                list.extend_from_slice(&elements[(row * size + index) * inner..][..inner]);
            }
        }
        Ok(vec![finish(result, list)?])
    }
}

/// The positions of elements that are not zero.
#[derive(Debug)]
struct NonZero<T>(PhantomData<fn() -> T>);

impl<T: Element> Operator for NonZero<T> {
    fn shapes(&self, _: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![None])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let zero = T::default();
        let count = elements.iter().filter(|value| **value != zero).count();
        let result = Shape::of_matrix(shape.rank(), count).ok_or(Fault::ShapeOverflow)?;
        let strides = shape.strides();
        let mut list = run.list::<i64>(&result)?;
        for (size, stride) in shape.dimensions().iter().zip(strides) {
            let found = elements.iter().enumerate().filter(|(_, value)| **value != zero);
            list.extend(found.map(|(place, _)| to_i64(place / stride % size)));
        }
        Ok(vec![finish(result, list)?])
    }
}

/// A dimension in which one element has another value.
#[derive(Debug)]
struct OneHot {
    axis: i64,
}

fn one_hot(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(3, 3)?;
    for index in 0..2 {
        numeric!(node.input(index)?, T => Ok(T::TYPE))?;
    }
    Ok(Built::one(OneHot { axis: node.int("axis")?.unwrap_or(-1) }, node.input(2)?))
}

/// Returns numbers of any type as integers, truncated.
fn truncated(tensor: &Tensor<'_>) -> Result<Vec<i64>, Fault> {
    if let Some(list) = tensor.integers() {
        return Ok(list);
    }
    let numbers = numeric!(tensor.element_type(), T => {
        Ok(tensor.values::<T>().map(|values| values.iter().map(|value| i64::of_f64(value.to_f64())).collect()))
    });
    numbers.ok().flatten().ok_or(Fault::Inconsistent("an input has another type"))
}

impl OneHot {
    fn shape(&self, shape: &Shape, depth: &[i64]) -> Result<(usize, Shape), Fault> {
        let [depth] = depth else { return Err(Fault::Value("the number of classes is not one number".to_owned())) };
        let axis = axis(self.axis, shape.rank() + 1)?;
        let mut sizes = shape.dimensions().to_vec();
        sizes.insert(axis, to_usize(*depth)?);
        Ok((axis, Shape::new(&sizes).ok_or(Fault::ShapeOverflow)?))
    }
}

impl Operator for OneHot {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let Some(depth) = required(inputs, 1)?.value else { return Ok(vec![None]) };
        Ok(vec![Some(self.shape(&required(inputs, 0)?.shape, &truncated(depth)?)?.1)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let positions = required(inputs, 0)?;
        let (axis, result) = self.shape(positions.shape(), &truncated(required(inputs, 1)?)?)?;
        let (outer, depth, inner) = result.around(axis);
        let positions = truncated(positions)?;
        with_elements!(required(inputs, 2)?.elements(), |values| {
            Ok(vec![marked(result, [outer, depth, inner], &positions, values, run)?])
        })
    }
}

/// Returns a tensor of the first of two values, with the second at the given positions of the dimension in the middle.
fn marked<T: Element>(
    shape: Shape,
    [outer, depth, inner]: [usize; 3],
    positions: &[i64],
    values: &[T],
    run: &Run<'_>,
) -> Result<Tensor<'static>, Fault> {
    let [off, on] = values else { return Err(Fault::Value("there are not two values".to_owned())) };
    let mut list = run.filled(shape, off)?;
    for row in 0..outer {
        for column in 0..inner {
            // Positions outside of the dimension leave it as it is.
            if let Ok(index) = position(positions[row * inner + column], depth) {
                list[(row * depth + index) * inner + column] = on.clone();
            }
        }
    }
    finish(shape, list)
}
