//! Makes sure that INT64 can be computed in 32 bits.
//!
//! The largest absolute value of each integer follows from those of the inputs. If the inputs may be all of INT32, sums and
//! products may not fit; then the inputs of requests are limited to smaller numbers.

use super::plan::{EngineNode, State, Value, is_float, is_integer};
use super::rules::Effect;
use crate::onnx::error::{LoadError, NodeFault};
use crate::onnx::flatten::ValueId;
use crate::onnx::tensor::ElementType;

const MAX: i64 = i32::MAX as i64;
/// The limits of inputs, of which the first that fits is used.
const INPUT_LIMITS: [i64; 4] = [MAX, 1 << 30, 1 << 24, 1 << 16];
/// The largest size of a tensor that is added to other numbers.
const MAX_SIZE: i64 = 1 << 24;

/// How large the integers of a value are.
#[derive(Debug, Clone, Copy)]
struct Bound {
    /// The largest absolute value.
    most: i64,
    /// Whether larger numbers became the largest or smallest of 32 bits: such numbers are not computed with.
    is_cut: bool,
}

/// Returns the largest absolute value that INT64 inputs may have.
pub(super) fn input_limit(nodes: &[EngineNode<'_>], values: &[Option<Value<'_, '_>>]) -> Result<i64, LoadError> {
    let mut result = Err(LoadError::NoGraph);
    for limit in INPUT_LIMITS {
        result = check(nodes, values, limit).map(|()| limit);
        if result.is_ok() {
            break;
        }
    }
    result
}

fn check(nodes: &[EngineNode<'_>], values: &[Option<Value<'_, '_>>], limit: i64) -> Result<(), LoadError> {
    let mut bounds: Vec<Bound> = values.iter().map(|value| given(value.as_ref(), limit)).collect();
    for node in nodes {
        let problem = |problem: &str| {
            Err(LoadError::Node {
                node: node.name.clone(),
                operator: node.title.to_owned(),
                opset: node.opset,
                problem: Box::new(NodeFault::Unsupported(problem.to_owned())),
            })
        };
        let numbers = || node.numbers.iter().map(|id| bounds[*id]);
        let element = |id: &ValueId| values[*id].as_ref().map(|value| value.element);
        let is_cut = node.numbers.iter().any(|id| element(id) == Some(ElementType::I64) && bounds[*id].is_cut);
        let Some(output) = node.outputs.iter().flatten().next() else { continue };
        let Some(value) = values[*output].as_ref() else { continue };
        if is_cut && (is_float(value.element) || value.element == ElementType::I32) {
            return problem("to convert numbers that were floating-point numbers to int64 and back");
        }
        if !is_integer(value.element) {
            continue;
        }
        let is_wide = value.element == ElementType::I64;
        if value.is_size {
            // Products of sizes count elements, and so are small.
            let is_large = numbers().any(|bound| bound.most > MAX_SIZE);
            if is_wide && is_large && matches!(node.effect, Effect::Add | Effect::Multiply | Effect::Total) {
                return problem("to compute with sizes and numbers that may not fit in int32");
            }
            continue;
        }
        if is_cut && !matches!(node.effect, Effect::Keep | Effect::Sizes) {
            return problem("to compute with int64 that were floating-point numbers");
        }
        let largest = numbers().map(|bound| bound.most).max().unwrap_or(0);
        let comes_from_floats = node.numbers.iter().any(|id| element(id).is_some_and(is_float));
        let most = match node.effect {
            Effect::Keep | Effect::Compute => largest,
            Effect::Add => numbers().map(|bound| bound.most).fold(0, i64::saturating_add),
            Effect::Multiply => numbers().map(|bound| bound.most).fold(1, i64::saturating_mul),
            Effect::Total if largest <= 1 => MAX_SIZE,
            Effect::Total => i64::MAX,
            Effect::Sizes => MAX_SIZE,
        };
        // INT32 wraps in onnxruntime, too.
        if is_wide && most > MAX && !comes_from_floats {
            return problem("to compute with int64 that may not fit in int32");
        }
        for output in node.outputs.iter().flatten() {
            bounds[*output] = Bound { most: most.min(MAX), is_cut: is_wide && (is_cut || comes_from_floats) };
        }
    }
    Ok(())
}

/// Returns the bound of a value that no node computes, or of one that only depends on sizes.
fn given(value: Option<&Value<'_, '_>>, limit: i64) -> Bound {
    let most = match value {
        Some(Value { state: State::Constant(tensor), element, .. }) if is_integer(*element) => {
            let numbers = tensor.integers().unwrap_or_default();
            numbers.iter().map(|number| number.saturating_abs()).max().unwrap_or(0)
        }
        Some(Value { is_size: true, .. }) => MAX_SIZE,
        Some(Value { element: ElementType::Bool, .. }) => 1,
        Some(Value { element: ElementType::I8 | ElementType::U8, .. }) => 255,
        Some(Value { element: ElementType::I64, .. }) => limit,
        _ => MAX,
    };
    Bound { most: most.min(MAX), is_cut: false }
}
