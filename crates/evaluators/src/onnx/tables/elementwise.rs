//! Operators that compute each element on its own.

use std::fmt;
use std::marker::PhantomData;

use super::Constructor;
use super::broadcast::{broadcast, for_each_run, zip};
use super::number::{Float, Number, Rounding, floating, numeric};
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, required};
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{Buffer, Element, ElementType, Shape, Tensor, with_type};
use crate::sklearn::erf;
use crate::wide::wide;

/// The operators of this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[
    ("Identity", identity),
    ("Dropout", dropout),
    ("Abs", |node| numeric!(node.input(0)?, T => unary(node, |x: &T| x.absolute()))),
    ("Neg", |node| numeric!(node.input(0)?, T => unary(node, |x: &T| x.negated()))),
    ("Sign", |node| numeric!(node.input(0)?, T => unary(node, |x: &T| x.sign()))),
    ("Reciprocal", |node| floating!(node.input(0)?, T => unary(node, |x: &T| T::ONE / *x))),
    ("Sqrt", |node| floating!(node.input(0)?, T => unary(node, |x: &T| x.root()))),
    ("Exp", |node| floating!(node.input(0)?, T => unary(node, |x: &T| x.exponential()))),
    ("Log", |node| floating!(node.input(0)?, T => unary(node, |x: &T| x.logarithm()))),
    ("Tanh", |node| floating!(node.input(0)?, T => unary(node, |x: &T| x.hyperbolic_tangent()))),
    ("Erf", |node| floating!(node.input(0)?, T => unary(node, |x: &T| T::of_f64(erf(x.to_f64()))))),
    ("Sigmoid", sigmoid),
    ("Relu", |node| numeric!(node.input(0)?, T => unary(node, |x: &T| x.larger(T::ZERO)))),
    ("Floor", |node| floating!(node.input(0)?, T => unary(node, |x: &T| x.rounded(Rounding::Down)))),
    ("Ceil", |node| floating!(node.input(0)?, T => unary(node, |x: &T| x.rounded(Rounding::Up)))),
    ("Round", |node| floating!(node.input(0)?, T => unary(node, |x: &T| x.rounded(Rounding::Even)))),
    ("IsNaN", |node| floating!(node.input(0)?, T => unary(node, |x: &T| x.is_nan()))),
    ("Not", |node| match node.input(0)? {
        ElementType::Bool => unary(node, |x: &bool| !*x),
        other => Err(NodeSpec::type_fault(other)),
    }),
    ("Clip", clip),
    ("Add", |node| numeric!(node.same_type()?, T => binary(node, |a: &T, b: &T| a.plus(*b)))),
    ("Sub", |node| numeric!(node.same_type()?, T => binary(node, |a: &T, b: &T| a.minus(*b)))),
    ("Mul", |node| numeric!(node.same_type()?, T => binary(node, |a: &T, b: &T| a.times(*b)))),
    ("Div", |node| numeric!(node.same_type()?, T => divide(node, |a: &T, b: &T| a.over(*b)))),
    ("Mod", modulo),
    ("Pow", power),
    ("Less", |node| numeric!(node.same_type()?, T => binary(node, |a: &T, b: &T| a < b))),
    ("LessOrEqual", |node| numeric!(node.same_type()?, T => binary(node, |a: &T, b: &T| a <= b))),
    ("Greater", |node| numeric!(node.same_type()?, T => binary(node, |a: &T, b: &T| a > b))),
    ("GreaterOrEqual", |node| numeric!(node.same_type()?, T => binary(node, |a: &T, b: &T| a >= b))),
    ("Equal", |node| with_type!(node.same_type()?, T => binary::<T, bool>(node, PartialEq::eq))),
    ("And", |node| logic(node, |a: &bool, b: &bool| *a && *b)),
    ("Or", |node| logic(node, |a: &bool, b: &bool| *a || *b)),
    ("Xor", |node| logic(node, |a: &bool, b: &bool| a != b)),
    ("Max", |node| numeric!(node.same_type()?, T => reduce_inputs(node, T::larger))),
    ("Min", |node| numeric!(node.same_type()?, T => reduce_inputs(node, T::smaller))),
    ("Sum", |node| floating!(node.same_type()?, T => reduce_inputs(node, T::plus))),
    ("Where", |node| with_type!(node.input(1)?, T => choose::<T>(node))),
];

/// Returns its input.
#[derive(Debug)]
struct Identity;

fn identity(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    Ok(Built::one(Identity, node.input(0)?))
}

/// Makes an operator that returns its first input.
pub(super) fn unchanged(element: ElementType) -> Built {
    Built::one(Identity, element)
}

/// Drops nothing: only training does.
fn dropout(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.ignore("ratio");
    node.ignore("seed");
    if node.inputs.len() > 2 || node.outputs > 1 {
        return Err(NodeFault::Unsupported("training".to_owned()));
    }
    Ok(Built::one(Identity, node.input(0)?))
}

impl Operator for Identity {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(required(inputs, 0)?.shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], _: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        Ok(vec![required(inputs, 0)?.clone()])
    }

    fn is_view(&self) -> bool {
        true
    }
}

/// Returns the elements of an input whose type the constructor has checked.
pub(super) fn values<'a, 'v, T: Element>(
    inputs: &'a [Option<Tensor<'v>>],
    index: usize,
) -> Result<(&'a Shape, &'a Buffer<'v, T>), Fault> {
    let input = required(inputs, index)?;
    let values = input.values().ok_or(Fault::Inconsistent("an input has another type"))?;
    Ok((input.shape(), values))
}

/// A function of each element.
struct Unary<T, U, F> {
    function: F,
    types: PhantomData<fn(T) -> U>,
}

impl<T: Element, U: Element, F> fmt::Debug for Unary<T, U, F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Unary({} -> {})", T::TYPE, U::TYPE)
    }
}

/// Makes an operator of a function of each element.
pub(super) fn unary<T: Element, U: Element>(
    node: &NodeSpec<'_, '_>,
    function: impl Fn(&T) -> U + Send + Sync + 'static,
) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    Ok(Built::one(Unary { function, types: PhantomData }, U::TYPE))
}

impl<T: Element, U: Element, F: Fn(&T) -> U + Send + Sync> Operator for Unary<T, U, F> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(required(inputs, 0)?.shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, values) = values::<T>(inputs, 0)?;
        Ok(vec![run.collect(*shape, values.iter().map(&self.function))?])
    }
}

fn sigmoid(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    match node.input(0)? {
        ElementType::F32 => {
            node.check_inputs(1, 1)?;
            Ok(Built::one(Sigmoid, ElementType::F32))
        }
        ElementType::F64 => unary(node, |x: &f64| 1.0 / (1.0 + (-x).exp())),
        other => Err(NodeSpec::type_fault(other)),
    }
}

/// The sigmoid of single precision.
#[derive(Debug)]
struct Sigmoid;

impl Operator for Sigmoid {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(required(inputs, 0)?.shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, values) = values::<f32>(inputs, 0)?;
        let values: &[f32] = values;
        let mut list = run.filled(*shape, &0.0_f32)?;
        wide(
            #[inline(always)]
            || {
                for (result, value) in list.iter_mut().zip(values) {
                    *result = single_sigmoid(*value);
                }
            },
        );
        Ok(vec![finish(*shape, list)?])
    }
}

/// Computes the quotient of two polynomials that onnxruntime computes, with its bits on processors with fused multiplication and
/// addition. Values beyond 18 have the sigmoid of 18.
#[inline(always)]
#[expect(clippy::inline_always, reason = "it is called by a loop of `wide`")]
fn single_sigmoid(value: f32) -> f32 {
    let x = value.clamp(-18.0, 18.0);
    let square = x * x;
    let odd = 4.370_31e-11_f32
        .mul_add(square, 1.156_273_2e-7)
        .mul_add(square, 6.085_749e-5)
        .mul_add(square, 8.513_771e-3)
        .mul_add(square, 0.248_287_95);
    let even = 6.102_473_7e-13_f32
        .mul_add(square, 5.761_021_4e-9)
        .mul_add(square, 6.291_068e-6)
        .mul_add(square, 1.701_988_2e-3)
        .mul_add(square, 0.116_817_65)
        .mul_add(square, 0.993_151_9);
    let result = odd * x / even + 0.5;
    if result < 0.0 { 0.0 } else { result }
}

/// A function of two elements.
struct Binary<T, U, F> {
    function: F,
    /// Whether a second operand of 0 is an error, for integers.
    divides: bool,
    types: PhantomData<fn(T) -> U>,
}

impl<T: Element, U: Element, F> fmt::Debug for Binary<T, U, F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Binary({} -> {})", T::TYPE, U::TYPE)
    }
}

/// Makes an operator of a function of two elements.
fn binary<T: Element, U: Element>(
    node: &NodeSpec<'_, '_>,
    function: impl Fn(&T, &T) -> U + Send + Sync + 'static,
) -> Result<Built, NodeFault> {
    node.check_inputs(2, 2)?;
    Ok(Built::one(Binary { function, divides: false, types: PhantomData }, U::TYPE))
}

/// Makes an operator that divides by its second input.
fn divide<T: Number>(
    node: &NodeSpec<'_, '_>,
    function: impl Fn(&T, &T) -> T + Send + Sync + 'static,
) -> Result<Built, NodeFault> {
    node.check_inputs(2, 2)?;
    Ok(Built::one(Binary { function, divides: !T::IS_FLOAT, types: PhantomData }, T::TYPE))
}

fn logic(
    node: &NodeSpec<'_, '_>,
    function: impl Fn(&bool, &bool) -> bool + Send + Sync + 'static,
) -> Result<Built, NodeFault> {
    match node.same_type()? {
        ElementType::Bool => binary(node, function),
        other => Err(NodeSpec::type_fault(other)),
    }
}

impl<T: Element, U: Element, F: Fn(&T, &T) -> U + Send + Sync> Operator for Binary<T, U, F> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(broadcast(&required(inputs, 0)?.shape, &required(inputs, 1)?.shape)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (first, a) = values::<T>(inputs, 0)?;
        let (second, b) = values::<T>(inputs, 1)?;
        if self.divides && b.contains(&T::default()) {
            return Err(Fault::DivisionByZero);
        }
        Ok(vec![zip((first, a), (second, b), run, &self.function)?])
    }
}

/// The remainder: with the sign of the divisor, or with `fmod` with that of the dividend.
fn modulo(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    let fmod = node.flag("fmod", false)?;
    let element = node.same_type()?;
    if !fmod && matches!(element, ElementType::F32 | ElementType::F64) {
        return Err(NodeFault::Damaged("numbers that are not whole need `fmod`".to_owned()));
    }
    numeric!(element, T => divide(node, move |a: &T, b: &T| {
        let rest = a.remainder(*b);
        if !fmod && rest != T::ZERO && rest.is_below_zero() != b.is_below_zero() { rest.plus(*b) } else { rest }
    }))
}

/// A power, whose exponent may be of another type.
#[derive(Debug)]
struct Power {
    base: ElementType,
    exponent: ElementType,
}

fn power(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(2, 2)?;
    let (base, exponent) = (node.input(0)?, node.input(1)?);
    for element in [base, exponent] {
        numeric!(element, [F32 f32, F64 f64, I32 i32, I64 i64], T => Ok(T::TYPE))?;
    }
    Ok(Built::one(Power { base, exponent }, base))
}

impl Power {
    fn of<A: Number, B: Number>(inputs: &[Option<Tensor<'_>>], run: &Run<'_>) -> Result<Tensor<'static>, Fault> {
        let (first, a) = values::<A>(inputs, 0)?;
        let (second, b) = values::<B>(inputs, 1)?;
        let is_single = A::TYPE == ElementType::F32 && B::TYPE != ElementType::F64;
        // As onnxruntime computes the two most frequent exponents.
        match b.first().map(|exponent| exponent.to_f64()).filter(|_| b.len() == 1 && is_single) {
            Some(2.0) => return zip((first, a), (second, b), run, |a, _| a.times(*a)),
            Some(3.0) => return zip((first, a), (second, b), run, |a, _| a.times(*a).times(*a)),
            _ => {}
        }
        zip((first, a), (second, b), run, |a, b| {
            if is_single {
                // Exact in both directions.
                #[expect(clippy::cast_possible_truncation, reason = "both are single precision")]
                let power = (a.to_f64() as f32).powf(b.to_f64() as f32);
                A::of_f64(power.into())
            } else {
                A::of_f64(a.to_f64().powf(b.to_f64()))
            }
        })
    }
}

impl Operator for Power {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(broadcast(&required(inputs, 0)?.shape, &required(inputs, 1)?.shape)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        use ElementType::{F32, F64, I32, I64};
        Ok(vec![match (self.base, self.exponent) {
            (F32, F32) => Self::of::<f32, f32>(inputs, run),
            (F32, F64) => Self::of::<f32, f64>(inputs, run),
            (F32, I32) => Self::of::<f32, i32>(inputs, run),
            (F32, I64) => Self::of::<f32, i64>(inputs, run),
            (F64, F32) => Self::of::<f64, f32>(inputs, run),
            (F64, F64) => Self::of::<f64, f64>(inputs, run),
            (F64, I32) => Self::of::<f64, i32>(inputs, run),
            (F64, I64) => Self::of::<f64, i64>(inputs, run),
            (I32, F32) => Self::of::<i32, f32>(inputs, run),
            (I32, F64) => Self::of::<i32, f64>(inputs, run),
            (I32, I32) => Self::of::<i32, i32>(inputs, run),
            (I32, I64) => Self::of::<i32, i64>(inputs, run),
            (I64, F32) => Self::of::<i64, f32>(inputs, run),
            (I64, F64) => Self::of::<i64, f64>(inputs, run),
            (I64, I32) => Self::of::<i64, i32>(inputs, run),
            (I64, I64) => Self::of::<i64, i64>(inputs, run),
            _ => Err(Fault::Inconsistent("an input has another type")),
        }?])
    }

    fn cost(&self, _: &[Option<Shape>], elements: usize) -> u64 {
        u64::try_from(elements).unwrap_or(u64::MAX).saturating_mul(15)
    }
}

/// Limits of values.
#[derive(Debug)]
struct Clip<T> {
    /// The limits that attributes give.
    limits: (T, T),
}

fn clip(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 3)?;
    if node.opset < 11 {
        let (min, max) = (node.float("min")?.unwrap_or(f32::MIN), node.float("max")?.unwrap_or(f32::MAX));
        return match node.input(0)? {
            ElementType::F32 => Ok(Built::one(Clip { limits: (min, max) }, ElementType::F32)),
            other => Err(NodeSpec::type_fault(other)),
        };
    }
    numeric!(node.same_type()?, T => Ok(Built::one(Clip { limits: (T::LOWEST, T::HIGHEST) }, T::TYPE)))
}

impl<T: Number> Operator for Clip<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(required(inputs, 0)?.shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let limit = |index, default| match inputs.get(index) {
            Some(Some(_)) => {
                let (shape, limit) = values::<T>(inputs, index)?;
                let wanted = || Fault::Shape { found: *shape, wanted: "a scalar".to_owned() };
                if limit.len() == 1 { Ok(limit[0]) } else { Err(wanted()) }
            }
            _ => Ok(default),
        };
        let (min, max) = (limit(1, self.limits.0)?, limit(2, self.limits.1)?);
        let clip = |value: &T| {
            let value = if *value < min { min } else { *value };
            if value > max { max } else { value }
        };
        Ok(vec![run.collect(*shape, elements.iter().map(clip))?])
    }
}

/// A function of the elements of any number of inputs, two at a time.
struct ReduceInputs<T> {
    function: fn(T, T) -> T,
}

impl<T: Element> fmt::Debug for ReduceInputs<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "ReduceInputs({})", T::TYPE)
    }
}

fn reduce_inputs<T: Number>(node: &NodeSpec<'_, '_>, function: fn(T, T) -> T) -> Result<Built, NodeFault> {
    if node.inputs.iter().any(Option::is_none) {
        return Err(NodeFault::MissingInput { index: 0 });
    }
    Ok(Built::one(ReduceInputs { function }, T::TYPE))
}

impl<T: Number> Operator for ReduceInputs<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let mut shape = required(inputs, 0)?.shape;
        for index in 1..inputs.len() {
            shape = broadcast(&shape, &required(inputs, index)?.shape)?;
        }
        Ok(vec![Some(shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let mut shape = *required(inputs, 0)?.shape();
        for input in inputs.iter().flatten() {
            shape = broadcast(&shape, input.shape())?;
        }
        let (first, elements) = values::<T>(inputs, 0)?;
        let mut all = run.list::<T>(&shape)?;
        for_each_run(&shape, [first], |[start], [step], length| {
            all.extend((0..length).map(|index| elements[start + index * step]));
            Ok(())
        })?;
        for index in 1..inputs.len() {
            let (other, elements) = values::<T>(inputs, index)?;
            let mut done = 0;
            for_each_run(&shape, [other], |[start], [step], length| {
                for (index, value) in all[done..done + length].iter_mut().enumerate() {
                    *value = (self.function)(*value, elements[start + index * step]);
                }
                done += length;
                run.check()
            })?;
        }
        Ok(vec![finish(shape, all)?])
    }
}

/// One of two elements.
#[derive(Debug)]
struct Choose<T>(PhantomData<fn() -> T>);

fn choose<T: Element>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(3, 3)?;
    if node.input(0)? != ElementType::Bool || node.input(2)? != T::TYPE {
        return Err(NodeFault::Damaged("it needs a condition, and two inputs of one type".to_owned()));
    }
    Ok(Built::one(Choose::<T>(PhantomData), T::TYPE))
}

impl<T: Element> Operator for Choose<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let values = broadcast(&required(inputs, 1)?.shape, &required(inputs, 2)?.shape)?;
        Ok(vec![Some(broadcast(&required(inputs, 0)?.shape, &values)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (of_condition, condition) = values::<bool>(inputs, 0)?;
        let (of_first, first) = values::<T>(inputs, 1)?;
        let (of_second, second) = values::<T>(inputs, 2)?;
        let shape = broadcast(of_condition, &broadcast(of_first, of_second)?)?;
        let mut chosen = run.list::<T>(&shape)?;
        for_each_run(&shape, [of_condition, of_first, of_second], |[c, a, b], [dc, da, db], length| {
            chosen.extend((0..length).map(|index| {
                if condition[c + index * dc] { first[a + index * da].clone() } else { second[b + index * db].clone() }
            }));
            run.check()
        })?;
        Ok(vec![finish(shape, chosen)?])
    }
}
