//! Products of 8-bit integers, which must be exact on every processor.
//!
//! Without VNNI, the engine adds pairs of products in 16 bits, which is only exact if weights use 7 bits. Other weights are the
//! sum of two that do. Convolutions are computed in FP32, in which their sums are exact up to 2^24: the engine's own pad with
//! numbers that are not zero.

use rten_gemm::GemmExecutor;

use super::plan::{EngineAttribute, EngineNode, Planner, State, Value, inconsistent};
use super::rules::Effect;
use crate::onnx::error::NodeFault;
use crate::onnx::tensor::{ElementType, Elements, Shape, Tensor};

/// The largest weight whose products are exact: 2 * 255 * 64 fits in 16 bits.
const EXACT: i8 = 64;
/// The number of FP32, and of INT32, in the format.
const TO_FLOAT: (&str, EngineAttribute<'static>) = ("to", EngineAttribute::Int(1));
const TO_INT32: (&str, EngineAttribute<'static>) = ("to", EngineAttribute::Int(6));

/// Returns numbers as INT8, with those of UINT8 moved by 128.
fn signed(tensor: &Tensor<'_>) -> Result<Vec<i8>, NodeFault> {
    match tensor.elements() {
        Elements::I8(values) => Ok(values.to_vec()),
        Elements::U8(values) => Ok(values.iter().map(|value| (value ^ 0x80).cast_signed()).collect()),
        _ => Err(inconsistent()),
    }
}

fn computed_weights() -> NodeFault {
    NodeFault::Unsupported("with weights that are computed, it".to_owned())
}

impl<'m, 'a> Planner<'m, 'a, '_> {
    /// Reads the weights of a node and their zero points, of which there is one by default.
    fn weights(&self, values: &[Option<Value<'m, 'a>>]) -> Result<(Tensor<'static>, Tensor<'static>), NodeFault> {
        let weights = values.get(1).and_then(Option::as_ref).ok_or(NodeFault::MissingInput { index: 1 })?;
        let weights = self.tensor(weights)?.ok_or_else(computed_weights)?;
        let zero = match values.get(3).and_then(Option::as_ref) {
            Some(zero) => self.tensor(zero)?.ok_or_else(computed_weights)?,
            None if weights.element_type() == ElementType::U8 => {
                Tensor::of(Shape::default(), vec![0_u8]).ok_or_else(inconsistent)?
            }
            None => Tensor::of(Shape::default(), vec![0_i8]).ok_or_else(inconsistent)?,
        };
        if zero.element_type() != weights.element_type() {
            return Err(NodeFault::Damaged("its weights and their zero points are of two types".to_owned()));
        }
        Ok((weights, zero))
    }

    /// Adds a product of matrices.
    pub(super) fn mat_mul_integer(
        &mut self,
        mut engine: EngineNode<'a>,
        values: &[Option<Value<'m, 'a>>],
    ) -> Result<(), NodeFault> {
        if !self.reads_weights {
            let constant = |index: usize| {
                values
                    .get(index)
                    .and_then(Option::as_ref)
                    .is_none_or(|value| matches!(value.state, State::Constant(_) | State::Weight(..)))
            };
            return if constant(1) && constant(3) { Ok(()) } else { Err(computed_weights()) };
        }
        let (weights, zero) = self.weights(values)?;
        let shape = *weights.shape();
        let zero_shape = if zero.elements().len() == 1 { Shape::default() } else { *zero.shape() };
        let (weights, zero) = (signed(&weights)?, signed(&zero)?);
        let may_saturate = GemmExecutor::<u8, i8, i32>::default().may_saturate();
        let is_exact = !may_saturate || weights.iter().all(|weight| (-EXACT..=EXACT).contains(weight));
        let parts: Vec<fn(i8) -> i8> =
            if is_exact { vec![|value| value] } else { vec![|value| value >> 1, |value| value - (value >> 1)] };
        let mut products = Vec::new();
        engine.inputs.resize(4, None);
        let output = engine.outputs.clone();
        for part in parts {
            engine.inputs[1] = Some(self.constant_of(shape, weights.iter().copied().map(part).collect())?);
            engine.inputs[3] = Some(self.constant_of(zero_shape, zero.iter().copied().map(part).collect())?);
            let product = self.new_value(ElementType::I32, State::Computed, false);
            products.push(Some(product));
            self.nodes.push(EngineNode {
                name: engine.name.clone(),
                inputs: engine.inputs.clone(),
                outputs: if is_exact { output.clone() } else { vec![Some(product)] },
                attributes: Vec::new(),
                numbers: Vec::new(),
                ..engine
            });
        }
        if !is_exact {
            engine.operator = "Add";
            engine.inputs = products;
            self.nodes.push(engine);
        }
        Ok(())
    }

    /// Adds a convolution.
    pub(super) fn conv_integer(
        &mut self,
        mut engine: EngineNode<'a>,
        values: &[Option<Value<'m, 'a>>],
    ) -> Result<(), NodeFault> {
        let (Some(Some(input)), zero) = (engine.inputs.first().copied(), engine.inputs.get(2).copied().flatten())
        else {
            return Err(NodeFault::MissingInput { index: 0 });
        };
        if !self.reads_weights {
            return Ok(());
        }
        let (weights, zeros) = self.weights(values)?;
        let shape = *weights.shape();
        let (weights, zeros) = (signed(&weights)?, signed(&zeros)?);
        let channels = shape.dimensions().first().copied().unwrap_or(1).max(1);
        if zeros.len() != 1 && zeros.len() != channels {
            return Err(NodeFault::Damaged("it has another number of zero points than channels".to_owned()));
        }
        let size = (weights.len() / channels).max(1);
        let float = |(index, weight): (usize, &i8)| {
            let zero = zeros[if zeros.len() == 1 { 0 } else { index / size }];
            f32::from(i16::from(*weight) - i16::from(zero))
        };
        let weights = self.constant_of(shape, weights.iter().enumerate().map(float).collect())?;
        let mut input = self.step(&engine, "Cast", &[input], ElementType::F32, vec![TO_FLOAT]);
        if let Some(zero) = zero {
            let zero = self.step(&engine, "Cast", &[zero], ElementType::F32, vec![TO_FLOAT]);
            input = self.step(&engine, "Sub", &[input, zero], ElementType::F32, Vec::new());
        }
        let attributes = std::mem::take(&mut engine.attributes);
        let sums = self.step(&engine, "Conv", &[input, weights], ElementType::F32, attributes);
        engine.operator = "Cast";
        engine.inputs = vec![Some(sums)];
        engine.attributes = vec![TO_INT32];
        engine.effect = Effect::Keep;
        self.nodes.push(engine);
        Ok(())
    }
}
