//! Conversions between types of elements.

use std::marker::PhantomData;

use bytes::Bytes;
use half::f16;

use super::Constructor;
use super::elementwise::{unary, unchanged, values};
use super::number::{Convert, Float, Number, numeric};
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, required};
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{Element, ElementType, Shape, Tensor};

/// The operators of this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[("Cast", cast), ("CastLike", cast_like)];

fn cast(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    // Only conversions to 8-bit floating-point numbers depend on it.
    node.ignore("saturate");
    node.ignore("round_mode");
    let number = node.int("to")?.ok_or_else(|| NodeFault::Damaged("it has no type".to_owned()))?;
    let to = ElementType::of_number(number);
    to_type(node, to.ok_or_else(|| NodeFault::Unsupported(format!("`to` = {}", ElementType::name_of(number))))?)
}

fn cast_like(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(2, 2)?;
    node.ignore("saturate");
    node.ignore("round_mode");
    let first = NodeSpec::new(node.operator, node.opset, node.inputs[..1].to_vec(), node.outputs, &[]);
    to_type(&first, node.input(1)?)
}

/// Makes the operator that converts the only input of a node.
fn to_type(node: &NodeSpec<'_, '_>, to: ElementType) -> Result<Built, NodeFault> {
    let from = node.input(0)?;
    if from == to {
        return Ok(unchanged(to));
    }
    match (from, to) {
        (ElementType::Text, ElementType::Bool) => Err(NodeFault::Unsupported("text as bool".to_owned())),
        (ElementType::Text, ElementType::F16) => Err(NodeFault::Unsupported("text as float16".to_owned())),
        (ElementType::Text, to) => numeric!(to, T => Ok(Built::one(Parse::<T>(PhantomData), to))),
        (from, ElementType::Text) => match from {
            ElementType::Bool => unary(node, |value: &bool| Bytes::from_static(if *value { b"1" } else { b"0" })),
            ElementType::F32 => unary(node, |value: &f32| Bytes::from(text(*value, DIGITS))),
            ElementType::F64 => unary(node, |value: &f64| Bytes::from(text(*value, DIGITS))),
            ElementType::F16 => Err(NodeSpec::type_fault(from)),
            ElementType::I8 => unary(node, |value: &i8| Bytes::from(value.to_string())),
            ElementType::I16 => unary(node, |value: &i16| Bytes::from(value.to_string())),
            ElementType::I32 => unary(node, |value: &i32| Bytes::from(value.to_string())),
            ElementType::I64 => unary(node, |value: &i64| Bytes::from(value.to_string())),
            ElementType::U8 => unary(node, |value: &u8| Bytes::from(value.to_string())),
            ElementType::U16 => unary(node, |value: &u16| Bytes::from(value.to_string())),
            ElementType::U32 => unary(node, |value: &u32| Bytes::from(value.to_string())),
            ElementType::U64 => unary(node, |value: &u64| Bytes::from(value.to_string())),
            ElementType::Text => Ok(unchanged(to)),
        },
        (ElementType::Bool, to) => of::<bool>(node, to),
        (ElementType::F16, to) => of::<f16>(node, to),
        (from, to) => numeric!(from, T => of::<T>(node, to)),
    }
}

macro_rules! convertible {
    ($($type:ty),*) => {
        /// A type that converts to all types but text.
        trait Convertible: Element + Copy $(+ Convert<$type>)* {}

        impl<T: Element + Copy $(+ Convert<$type>)*> Convertible for T {}
    };
}

convertible!(f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool);

/// Makes the operator that converts from a type.
fn of<T: Convertible>(node: &NodeSpec<'_, '_>, to: ElementType) -> Result<Built, NodeFault> {
    match to {
        ElementType::Bool => unary(node, |value: &T| Convert::<bool>::convert(*value)),
        ElementType::F16 => unary(node, |value: &T| Convert::<f16>::convert(*value)),
        to => numeric!(to, U => unary(node, |value: &T| Convert::<U>::convert(*value))),
    }
}

/// The significant digits of a number as text, in both precisions, as in onnxruntime.
const DIGITS: usize = 8;

/// Writes a number with so many significant digits, without trailing zeros, as `%g` of C does.
fn text<T: Float>(value: T, digits: usize) -> String {
    let value = value.to_f64();
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "INF".to_owned() } else { "-INF".to_owned() };
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0".to_owned() } else { "0".to_owned() };
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else { return scientific };
    let trimmed = |text: &str| {
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text.to_owned() }
    };
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let places = i32::try_from(digits).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= places {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(places - 1 - exponent).unwrap_or_default();
    trimmed(&format!("{value:.decimals$}"))
}

/// Reads numbers from text.
#[derive(Debug)]
struct Parse<T>(PhantomData<fn() -> T>);

impl<T: Number> Parse<T> {
    fn parse(text: &Bytes) -> Result<T, Fault> {
        let fault = || Fault::Value(format!("the text `{}` is not a number of type {}", short(text), T::TYPE));
        let text = std::str::from_utf8(text).map_err(|_| fault())?.trim_start();
        let value = if T::IS_FLOAT {
            // As `strtof` of C, which stops at the first character that does not belong to the number.
            let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c))).unwrap_or(text.len());
            let number = &text[..end];
            if T::TYPE == ElementType::F32 { number.parse::<f32>().map(f64::from) } else { number.parse::<f64>() }
                .map_err(|_| fault())?
        } else {
            let number: i64 = text.parse().map_err(|_| fault())?;
            return T::of_i64(number).ok_or_else(fault);
        };
        Ok(T::of_f64(value))
    }
}

/// Returns the beginning of a text for a message.
pub(super) fn short(text: &[u8]) -> String {
    const SHOWN: usize = 40;
    let text = String::from_utf8_lossy(&text[..text.len().min(SHOWN)]);
    text.escape_debug().to_string()
}

impl<T: Number> Operator for Parse<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        Ok(vec![Some(required(inputs, 0)?.shape)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, texts) = values::<Bytes>(inputs, 0)?;
        let mut numbers = run.list::<T>(shape)?;
        for text in texts.iter() {
            numbers.push(Self::parse(text)?);
        }
        Ok(vec![finish(*shape, numbers)?])
    }

    fn cost(&self, _: &[Option<Shape>], elements: usize) -> u64 {
        u64::try_from(elements).unwrap_or(u64::MAX).saturating_mul(50)
    }
}

#[cfg(test)]
mod tests {
    use super::{DIGITS, text};

    #[test]
    fn numbers_become_text_as_in_c() {
        for (value, expected) in [
            (1.0_f32, "1"),
            (0.1, "0.1"),
            (-2.5, "-2.5"),
            (1e-5, "9.9999997e-06"),
            (1.5e-5, "1.5e-05"),
            (123_456_789.0, "1.2345679e+08"),
            (12_345_678.0, "12345678"),
            (0.000_123_456_78, "0.00012345678"),
            (f32::NAN, "NaN"),
            (f32::NEG_INFINITY, "-INF"),
            (0.0, "0"),
        ] {
            assert_eq!(text(value, DIGITS), expected);
        }
        assert_eq!(text(0.123_456_789_f64, DIGITS), "0.12345679");
    }
}
