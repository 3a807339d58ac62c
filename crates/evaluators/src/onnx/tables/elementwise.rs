//! Operators that compute each element on its own.

use super::Constructor;
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, required};
use crate::onnx::run::Run;
use crate::onnx::tensor::{Shape, Tensor};

/// The operators of this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[("Identity", identity)];

/// Returns its input.
#[derive(Debug)]
struct Identity;

fn identity(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
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
