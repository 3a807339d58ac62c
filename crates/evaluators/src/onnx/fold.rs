//! Computes the nodes whose inputs are constants, within limits.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::error::{Fault, NodeFault};
use super::node::{Known, Operator};
use super::run::Run;
use super::tensor::{Shape, Tensor};

/// The most bytes that constant nodes may compute.
const FOLDED_BYTES: usize = 64 << 20;
/// The longest time that they may take.
const FOLDING_TIME: Duration = Duration::from_secs(1);

/// What is left for the constant nodes of a model.
#[derive(Debug)]
pub(super) struct Folding {
    bytes: usize,
    until: Instant,
}

impl Folding {
    pub(super) fn new() -> Self {
        Self { bytes: FOLDED_BYTES, until: Instant::now() + FOLDING_TIME }
    }

    /// Computes a node. Inputs that it leaves out are `None`.
    pub(super) fn fold(
        &mut self,
        operator: &dyn Operator,
        inputs: &[Option<&Tensor<'static>>],
    ) -> Result<Vec<Tensor<'static>>, NodeFault> {
        let known: Vec<_> =
            inputs.iter().map(|input| input.map(|value| Known { shape: *value.shape(), value: Some(value) })).collect();
        let outputs = operator.shapes(&known)?;
        let elements = outputs.iter().flatten().map(Shape::count).fold(0, usize::saturating_add);
        let shapes: Vec<Option<Shape>> = known.iter().map(|known| known.map(|known| known.shape)).collect();
        let left = self.until.saturating_duration_since(Instant::now());
        if Duration::from_nanos(operator.cost(&shapes, elements)) > left {
            return Err(NodeFault::Unsupported("to compute constants for more than 1 s".to_owned()));
        }
        let never = AtomicBool::new(false);
        let run = Run::new(self.bytes, &never);
        let inputs: Vec<Option<Tensor<'_>>> = inputs.iter().map(|input| input.map(Tensor::borrowed)).collect();
        let outputs = operator.evaluate(&inputs, &run).map_err(|fault| match fault {
            Fault::TooLarge { .. } => NodeFault::Unsupported("to compute constants of more than 64 MiB".to_owned()),
            fault => NodeFault::Constants(fault),
        })?;
        let outputs: Vec<Tensor<'static>> = outputs.into_iter().map(Tensor::into_static).collect();
        let bytes = outputs.iter().map(Tensor::byte_len).fold(0, usize::saturating_add);
        self.bytes = self.bytes.saturating_sub(bytes);
        Ok(outputs)
    }
}
