//! Products of matrices.

use std::marker::PhantomData;
use std::sync::atomic::AtomicBool;

use super::Constructor;
use super::broadcast::{broadcast, for_each_run};
use super::elementwise::values;
use super::layout::strided;
use super::number::{Number, numeric};
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, required};
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{Element, MAX_RANK, Shape, Tensor};
use crate::wide::wide;

/// The operators of this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[
    ("MatMul", |node| {
        numeric!(node.same_type()?, [F32 f32, F64 f64, I32 i32, I64 i64], T => {
            node.check_inputs(2, 2)?;
            Ok(Built::one(MatMul::<T>(PhantomData), T::TYPE))
        })
    }),
    ("Gemm", |node| numeric!(node.same_type()?, [F32 f32, F64 f64], T => gemm::<T>(node))),
    ("Einsum", |node| numeric!(node.same_type()?, [F32 f32, F64 f64, I32 i32, I64 i64], T => einsum::<T>(node))),
];

/// How many columns of a result are computed at once.
const BLOCK: usize = 64;

/// Adds the product of two row-major matrices to a third: `rows` x `inner`, `inner` x `columns`.
///
/// Each element is the sum of its products in order, so that it does not depend on the other rows.
fn multiply<T: Number>(
    [first, second]: [&[T]; 2],
    sums: &mut [T],
    [rows, inner, columns]: [usize; 3],
    run: &Run<'_>,
) -> Result<(), Fault> {
    if columns == 0 || inner == 0 {
        return Ok(());
    }
    for row in 0..rows {
        if row % 16 == 0 {
            run.check()?;
        }
        let sums = &mut sums[row * columns..][..columns];
        let factors = &first[row * inner..][..inner];
        if columns == 1 {
            sums[0] = dot(factors, &second[..inner], sums[0]);
            continue;
        }
        wide(
            #[inline(always)]
            || {
                for start in (0..columns).step_by(BLOCK) {
                    let end = (start + BLOCK).min(columns);
                    let sums = &mut sums[start..end];
                    for (factor, row) in factors.iter().zip(second.chunks_exact(columns)) {
                        for (sum, value) in sums.iter_mut().zip(&row[start..end]) {
                            *sum = sum.plus(factor.times(*value));
                        }
                    }
                }
            },
        );
    }
    Ok(())
}

/// Adds the products of two lists to a sum, in order.
fn dot<T: Number>(first: &[T], second: &[T], start: T) -> T {
    first.iter().zip(second).fold(start, |sum, (a, b)| sum.plus(a.times(*b)))
}

/// Estimates how long a product takes.
fn cost_of(rows: usize, inner: usize, columns: usize) -> u64 {
    let products = rows.saturating_mul(inner).saturating_mul(columns);
    u64::try_from(products / 2).unwrap_or(u64::MAX)
}

/// The product of two stacks of matrices, as in NumPy.
#[derive(Debug)]
struct MatMul<T>(PhantomData<fn() -> T>);

/// The sizes of a product of stacks of matrices.
struct Stacks {
    /// The shapes of the stacks.
    outer: [Shape; 2],
    all: Shape,
    sizes: [usize; 3],
    result: Shape,
}

fn stacks(first: &Shape, second: &Shape) -> Result<Stacks, Fault> {
    let fault = || Fault::Shape { found: *second, wanted: format!("one that {first} can be multiplied with") };
    let (a, b) = (first.dimensions(), second.dimensions());
    let (outer_a, rows, inner) = match a {
        [] => return Err(fault()),
        [inner] => (&a[..0], 1, *inner),
        [outer @ .., rows, inner] => (outer, *rows, *inner),
    };
    let (outer_b, inner_b, columns) = match b {
        [] => return Err(fault()),
        [inner] => (&b[..0], *inner, 1),
        [outer @ .., inner, columns] => (outer, *inner, *columns),
    };
    if inner != inner_b {
        return Err(fault());
    }
    let shape = |sizes: &[usize]| Shape::new(sizes).ok_or(Fault::ShapeOverflow);
    let outer = [shape(outer_a)?, shape(outer_b)?];
    let all = broadcast(&outer[0], &outer[1])?;
    let mut sizes = all.dimensions().to_vec();
    if a.len() > 1 {
        sizes.push(rows);
    }
    if b.len() > 1 {
        sizes.push(columns);
    }
    Ok(Stacks { outer, all, sizes: [rows, inner, columns], result: shape(&sizes)? })
}

impl<T: Number> Operator for MatMul<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(stacks(&required(inputs, 0)?.shape, &required(inputs, 1)?.shape)?.result)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (first, a) = values::<T>(inputs, 0)?;
        let (second, b) = values::<T>(inputs, 1)?;
        let Stacks { outer, all, sizes, result } = stacks(first, second)?;
        let [rows, inner, columns] = sizes;
        let mut sums = run.filled(result, &T::ZERO)?;
        let mut done = 0;
        for_each_run(&all, [&outer[0], &outer[1]], |[at_a, at_b], [step_a, step_b], length| {
            for index in 0..length {
                let a = &a[(at_a + index * step_a) * rows * inner..][..rows * inner];
                let b = &b[(at_b + index * step_b) * inner * columns..][..inner * columns];
                multiply([a, b], &mut sums[done..done + rows * columns], sizes, run)?;
                done += rows * columns;
            }
            Ok(())
        })?;
        Ok(vec![finish(result, sums)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], elements: usize) -> u64 {
        let inner = inputs.first().copied().flatten().and_then(|shape| shape.dimensions().last().copied());
        cost_of(elements, inner.unwrap_or(1), 1)
    }
}

/// A product of matrices, plus a matrix.
#[derive(Debug)]
struct Gemm<T> {
    alpha: T,
    beta: T,
    transposed: [bool; 2],
    /// The second matrix the other way round, if it is a constant that is transposed.
    second: Option<Tensor<'static>>,
}

fn gemm<T: Number>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(2, 3)?;
    let factor = |name| node.float(name).map(|factor| T::of_f64(factor.unwrap_or(1.0).into()));
    let transposed = [node.flag("transA", false)?, node.flag("transB", false)?];
    let constant = node.optional(1).and_then(|input| input.value).filter(|_| transposed[1]);
    let second = constant.and_then(|tensor| Some((tensor.shape(), tensor.values::<T>()?)));
    let never = AtomicBool::new(false);
    let second = second.map(|(shape, elements)| flipped(shape, elements, &never)).transpose()?;
    let gemm = Gemm { alpha: factor("alpha")?, beta: factor("beta")?, transposed, second };
    Ok(Built::one(gemm, T::TYPE))
}

impl<T: Number> Gemm<T> {
    fn sizes(&self, first: &Shape, second: &Shape) -> Result<[usize; 3], Fault> {
        let of = |shape: &Shape, transposed: bool| match shape.dimensions() {
            [rows, columns] if transposed => Ok([*columns, *rows]),
            [rows, columns] => Ok([*rows, *columns]),
            _ => Err(Fault::Shape { found: *shape, wanted: "a matrix".to_owned() }),
        };
        let ([rows, inner], [other, columns]) = (of(first, self.transposed[0])?, of(second, self.transposed[1])?);
        let wanted = || format!("one that {first} can be multiplied with");
        if inner == other { Ok([rows, inner, columns]) } else { Err(Fault::Shape { found: *second, wanted: wanted() }) }
    }
}

/// Returns a matrix with its dimensions exchanged.
fn flipped<T: Number>(shape: &Shape, elements: &[T], stop: &AtomicBool) -> Result<Tensor<'static>, Fault> {
    let [rows, columns] = shape.dimensions() else {
        return Err(Fault::Shape { found: *shape, wanted: "a matrix".to_owned() });
    };
    let result = Shape::of_matrix(*columns, *rows).ok_or(Fault::ShapeOverflow)?;
    // No output of the graph, so it is not part of what the run may use; it is as large as the input.
    let scratch = Run::new(size_of_val(elements), stop);
    strided(elements, result, &[1, *columns], &scratch)
}

impl<T: Number> Operator for Gemm<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let [rows, _, columns] = self.sizes(&required(inputs, 0)?.shape, &required(inputs, 1)?.shape)?;
        let shape = Shape::of_matrix(rows, columns).ok_or(Fault::ShapeOverflow)?;
        if let Some(Some(added)) = inputs.get(2)
            && broadcast(&shape, &added.shape)? != shape
        {
            return Err(Fault::Broadcast(Box::new([shape, added.shape])));
        }
        Ok(vec![Some(shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (first, a) = values::<T>(inputs, 0)?;
        let (second, b) = values::<T>(inputs, 1)?;
        let [rows, inner, columns] = self.sizes(first, second)?;
        let shape = Shape::of_matrix(rows, columns).ok_or(Fault::ShapeOverflow)?;
        let first = if self.transposed[0] { Some(flipped(first, a, run.stop())?) } else { None };
        let second = match &self.second {
            None if self.transposed[1] => Some(flipped(second, b, run.stop())?),
            constant => constant.as_ref().map(Tensor::borrowed),
        };
        let a = first.as_ref().and_then(Tensor::values).unwrap_or(a);
        let b = second.as_ref().and_then(Tensor::values).unwrap_or(b);
        let mut sums = run.filled(shape, &T::ZERO)?;
        multiply([a, b], &mut sums, [rows, inner, columns], run)?;
        if self.alpha != T::ONE {
            for sum in &mut sums {
                *sum = sum.times(self.alpha);
            }
        }
        if let Some(Some(_)) = inputs.get(2) {
            let (added, c) = values::<T>(inputs, 2)?;
            if broadcast(&shape, added)? != shape {
                return Err(Fault::Broadcast(Box::new([shape, *added])));
            }
            let mut done = 0;
            for_each_run(&shape, [added], |[start], [step], length| {
                for (index, sum) in sums[done..done + length].iter_mut().enumerate() {
                    *sum = sum.plus(c[start + index * step].times(self.beta));
                }
                done += length;
                Ok(())
            })?;
        }
        Ok(vec![finish(shape, sums)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], elements: usize) -> u64 {
        let shape = inputs.first().copied().flatten().unwrap_or_default();
        let inner = shape.dimensions().get(usize::from(!self.transposed[0])).copied();
        cost_of(elements, inner.unwrap_or(1), 1)
    }
}

/// Sums of products over dimensions with names.
#[derive(Debug)]
struct Einsum<T> {
    /// The names of the dimensions of each input.
    inputs: Vec<Vec<u8>>,
    output: Vec<u8>,
    element: PhantomData<fn() -> T>,
}

fn einsum<T: Number>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    let equation = node.text("equation")?.ok_or_else(|| NodeFault::Damaged("it has no equation".to_owned()))?;
    let unsupported = || NodeFault::Unsupported(format!("the equation `{}`", equation.escape_debug()));
    let text: String = equation.chars().filter(|letter| !letter.is_whitespace()).collect();
    let (left, right) = text.split_once("->").map_or((&text[..], None), |(left, right)| (left, Some(right)));
    let names = |part: &str| part.bytes().collect::<Vec<u8>>();
    let inputs: Vec<Vec<u8>> = left.split(',').map(names).collect();
    let output = right.map_or_else(
        || {
            // Without an output, those that occur once, in alphabetical order.
            let all: Vec<u8> = inputs.concat();
            let is_single = |name: &u8| all.iter().filter(|other| *other == name).nth(1).is_none();
            let mut once: Vec<u8> = all.iter().copied().filter(is_single).collect();
            once.sort_unstable();
            once
        },
        names,
    );
    let is_known = |name: &u8| inputs.iter().any(|input| input.contains(name));
    let is_letter = inputs.iter().flatten().all(u8::is_ascii_alphabetic);
    let mut distinct = output.clone();
    distinct.sort_unstable();
    distinct.dedup();
    let fits = inputs.len() == node.inputs.len() && inputs.iter().all(|input| input.len() <= MAX_RANK);
    if !is_letter || !fits || !output.iter().all(is_known) || distinct.len() != output.len() {
        return Err(unsupported());
    }
    Ok(Built::one(Einsum::<T> { inputs, output, element: PhantomData }, T::TYPE))
}

impl<T: Number> Einsum<T> {
    /// Returns the names of all dimensions, those of the output first, and their sizes.
    fn sizes(&self, shapes: &[Shape]) -> Result<Vec<(u8, usize)>, Fault> {
        let mut sizes: Vec<(u8, usize)> = Vec::new();
        for (names, shape) in self.inputs.iter().zip(shapes) {
            if names.len() != shape.rank() {
                return Err(Fault::Shape { found: *shape, wanted: format!("{} dimensions", names.len()) });
            }
            for (name, size) in names.iter().zip(shape.dimensions()) {
                match sizes.iter().find(|(other, _)| other == name) {
                    Some((_, other)) if other == size => {}
                    Some((_, other)) => {
                        let wanted = format!("{other} elements in `{}`", char::from(*name));
                        return Err(Fault::Shape { found: *shape, wanted });
                    }
                    None => sizes.push((*name, *size)),
                }
            }
        }
        let place = |name: u8| self.output.iter().position(|other| *other == name).unwrap_or(usize::MAX);
        sizes.sort_by_key(|(name, _)| place(*name));
        Ok(sizes)
    }

    fn shape(&self, sizes: &[(u8, usize)]) -> Result<Shape, Fault> {
        let sizes: Vec<usize> = sizes[..self.output.len()].iter().map(|(_, size)| *size).collect();
        Shape::new(&sizes).ok_or(Fault::ShapeOverflow)
    }
}

impl<T: Number> Operator for Einsum<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let shapes: Vec<Shape> = inputs.iter().flatten().map(|input| input.shape).collect();
        Ok(vec![Some(self.shape(&self.sizes(&shapes)?)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let shapes: Vec<Shape> = inputs.iter().flatten().map(|input| *input.shape()).collect();
        let sizes = self.sizes(&shapes)?;
        let result = self.shape(&sizes)?;
        let elements =
            (0..inputs.len()).map(|index| Ok(values::<T>(inputs, index)?.1)).collect::<Result<Vec<_>, Fault>>()?;
        // How far each input moves with each name.
        let strides: Vec<Vec<usize>> = sizes
            .iter()
            .map(|(name, _)| {
                let of_input = |(names, shape): (&Vec<u8>, &Shape)| {
                    let strides = shape.strides();
                    names.iter().zip(strides).filter(|(other, _)| *other == name).map(|(_, stride)| stride).sum()
                };
                self.inputs.iter().zip(&shapes).map(of_input).collect()
            })
            .collect();
        let outer = self.output.len();
        let inner = sizes[outer..].iter().fold(1_usize, |all, (_, size)| all.saturating_mul(*size));
        let mut sums = run.list::<T>(&result)?;
        let offsets = |place: usize, names: std::ops::Range<usize>, offsets: &mut [usize]| {
            let mut rest = place;
            for name in names.rev() {
                let size = sizes[name].1;
                for (offset, stride) in offsets.iter_mut().zip(&strides[name]) {
                    *offset += rest % size * stride;
                }
                rest /= size;
            }
        };
        let (mut base, mut at) = (vec![0; elements.len()], vec![0; elements.len()]);
        for place in 0..result.count() {
            base.fill(0);
            offsets(place, 0..outer, &mut base);
            let mut sum = T::ZERO;
            for index in 0..inner {
                if index % 4096 == 0 {
                    run.check()?;
                }
                at.copy_from_slice(&base);
                offsets(index, outer..sizes.len(), &mut at);
                let factors = elements.iter().zip(&at).map(|(elements, at)| elements[*at]);
                sum = sum.plus(factors.fold(T::ONE, T::times));
            }
            sums.push(sum);
        }
        Ok(vec![finish(result, sums)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], _: usize) -> u64 {
        let shapes: Vec<Shape> = inputs.iter().copied().flatten().collect();
        let products =
            self.sizes(&shapes).unwrap_or_default().iter().fold(10_usize, |all, (_, size)| all.saturating_mul(*size));
        u64::try_from(products).unwrap_or(u64::MAX)
    }
}
