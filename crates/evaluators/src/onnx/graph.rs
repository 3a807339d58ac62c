//! A graph of operators: what it takes to evaluate it, and its evaluation.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::error::{EvaluateError, Fault};
use super::node::{Known, Operator};
use super::run::Run;
use super::tensor::{ElementType, Shape, Tensor};

/// The most elements of a value that is computed before the evaluation, because sizes may depend on it.
const EARLY: usize = 4096;
/// The most nanoseconds that such a value takes.
const EARLY_COST: u64 = 100_000;
/// Nanoseconds that every node takes, besides its elements.
const NODE_COST: u64 = 120;
/// Bytes that values whose size depends on data may have, besides a multiple of the inputs.
const UNKNOWN_BYTES: usize = 16 << 20;
/// How many times the size of the inputs such values may have, too.
const UNKNOWN_TIMES: usize = 16;
/// What the content of a text counts before it is known, in bytes.
const TEXT_BYTES: usize = 32;

/// Where a node finds an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A value of the evaluation: an input of the graph, or the output of a node.
    Slot(usize),
    Constant(usize),
}

/// A node of a compiled graph.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) title: String,
    pub(super) operator: Box<dyn Operator>,
    pub(super) inputs: Vec<Option<Source>>,
    pub(super) outputs: Vec<(usize, ElementType)>,
    /// The slots that no later step reads.
    pub(super) last_used: Vec<usize>,
}

/// A compiled graph.
#[derive(Debug)]
pub(super) struct Graph {
    /// In the order in which they are computed.
    pub(super) steps: Vec<Step>,
    pub(super) constants: Vec<Tensor<'static>>,
    /// The number of slots. The first are those of the inputs.
    pub(super) slots: usize,
    pub(super) inputs: Vec<ElementType>,
    pub(super) outputs: Vec<Source>,
}

/// What it takes to evaluate some outputs of a graph.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The most bytes that values take, with those of the outputs.
    pub bytes: usize,
    /// The estimated time on one thread.
    pub cost: Duration,
    /// The outputs to compute.
    outputs: Vec<usize>,
    /// Whether each step is needed for them.
    needed: Vec<bool>,
    /// The shape of each output, if it does not depend on data.
    shapes: Vec<Option<Shape>>,
}

impl Plan {
    /// Returns the positions of the outputs to compute.
    pub(super) fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// Returns the shapes of the outputs, `None` where they depend on data.
    pub fn shapes(&self) -> &[Option<Shape>] {
        &self.shapes
    }
}

/// What is known of a value before the evaluation.
#[derive(Debug, Clone)]
struct Expected {
    shape: Shape,
    value: Option<Tensor<'static>>,
}

impl Graph {
    /// Plans the evaluation of outputs for inputs of these shapes.
    pub(super) fn plan(&self, inputs: &[Shape], outputs: &[usize]) -> Result<Plan, EvaluateError> {
        let needed = self.needed(outputs);
        let mut expected: Vec<Option<Expected>> = vec![None; self.slots];
        let sizes = inputs.iter().zip(&self.inputs).map(|(shape, element)| bytes_of(shape, *element));
        let input_bytes = sizes.fold(0, usize::saturating_add);
        for (slot, shape) in expected.iter_mut().zip(inputs) {
            *slot = Some(Expected { shape: *shape, value: None });
        }
        let (mut bytes, mut cost, mut is_unknown) = (0_usize, 0_u64, false);
        for (step, _) in self.steps.iter().zip(&needed).filter(|(_, needed)| **needed) {
            cost = cost.saturating_add(NODE_COST);
            let Some(found) = self.expect(step, &expected).map_err(|fault| step.error(fault))? else {
                is_unknown = true;
                continue;
            };
            let shapes: Vec<Option<Shape>> = step.inputs.iter().map(|source| self.shape(*source, &expected)).collect();
            let mut elements = 0_usize;
            for ((slot, element), expectation) in step.outputs.iter().zip(found) {
                is_unknown |= expectation.is_none();
                if let Some(Expected { shape, .. }) = &expectation {
                    elements = elements.saturating_add(shape.count());
                    if !step.operator.is_view() {
                        bytes = bytes.saturating_add(bytes_of(shape, *element));
                    }
                }
                expected[*slot] = expectation;
            }
            cost = cost.saturating_add(step.operator.cost(&shapes, elements));
        }
        if is_unknown {
            let times = input_bytes.saturating_mul(UNKNOWN_TIMES);
            bytes = bytes.saturating_add(UNKNOWN_BYTES).saturating_add(times);
        }
        let shapes = outputs.iter().map(|output| self.shape(Some(self.outputs[*output]), &expected)).collect();
        Ok(Plan { bytes, cost: Duration::from_nanos(cost), outputs: outputs.to_vec(), needed, shapes })
    }

    /// Evaluates what was planned. The inputs have the shapes that were given to [`Self::plan`].
    pub(super) fn evaluate<'v>(
        &'v self,
        plan: &Plan,
        inputs: Vec<Tensor<'v>>,
        stop: &AtomicBool,
    ) -> Result<Vec<Tensor<'v>>, EvaluateError> {
        let run = Run::new(plan.bytes, stop);
        let mut slots: Vec<Option<Tensor<'v>>> = inputs.into_iter().map(Some).collect();
        slots.resize(self.slots, None);
        let mut arguments = Vec::new();
        for (step, _) in self.steps.iter().zip(&plan.needed).filter(|(_, needed)| **needed) {
            run.check().map_err(|_| EvaluateError::Cancelled)?;
            arguments.clear();
            arguments.extend(step.inputs.iter().map(|source| self.value((*source)?, &slots)));
            for slot in &step.last_used {
                slots[*slot] = None;
            }
            let outputs = step.operator.evaluate(&arguments, &run).map_err(|fault| step.error(fault))?;
            for ((slot, element), output) in step.outputs.iter().zip(outputs) {
                if output.element_type() != *element {
                    return Err(step.error(Fault::Inconsistent("an output has another type")));
                }
                slots[*slot] = Some(output);
            }
        }
        let missing = EvaluateError::Node {
            node: String::new(),
            operator: "output".to_owned(),
            fault: Box::new(Fault::Inconsistent("an output was not computed")),
        };
        let of = |output: &usize| self.value(self.outputs[*output], &slots);
        plan.outputs.iter().map(of).collect::<Option<Vec<_>>>().ok_or(missing)
    }

    fn value<'v>(&'v self, source: Source, slots: &[Option<Tensor<'v>>]) -> Option<Tensor<'v>> {
        match source {
            Source::Slot(slot) => slots[slot].clone(),
            Source::Constant(constant) => Some(self.constants[constant].borrowed()),
        }
    }

    /// Returns which steps are needed for outputs.
    fn needed(&self, outputs: &[usize]) -> Vec<bool> {
        let mut wanted = vec![false; self.slots];
        let slot = |source: &Source| if let Source::Slot(slot) = source { Some(*slot) } else { None };
        for slot in outputs.iter().filter_map(|output| slot(&self.outputs[*output])) {
            wanted[slot] = true;
        }
        let mut needed = vec![false; self.steps.len()];
        for (step, needed) in self.steps.iter().zip(&mut needed).rev() {
            *needed = step.outputs.iter().any(|(slot, _)| wanted[*slot]);
            if *needed {
                for slot in step.inputs.iter().flatten().filter_map(slot) {
                    wanted[slot] = true;
                }
            }
        }
        needed
    }

    fn shape(&self, source: Option<Source>, expected: &[Option<Expected>]) -> Option<Shape> {
        match source? {
            Source::Slot(slot) => expected[slot].as_ref().map(|expected| expected.shape),
            Source::Constant(constant) => Some(*self.constants[constant].shape()),
        }
    }

    /// Returns what is known of the outputs of a step, or `None` if the shape of an input is not known.
    fn expect(&self, step: &Step, expected: &[Option<Expected>]) -> Result<Option<Vec<Option<Expected>>>, Fault> {
        let mut known = Vec::with_capacity(step.inputs.len());
        let mut is_early = true;
        for source in &step.inputs {
            known.push(match source {
                None => None,
                Some(Source::Constant(constant)) => {
                    let value = &self.constants[*constant];
                    Some(Known { shape: *value.shape(), value: Some(value) })
                }
                Some(Source::Slot(slot)) => {
                    let Some(expected) = &expected[*slot] else { return Ok(None) };
                    is_early &= expected.value.is_some();
                    Some(Known { shape: expected.shape, value: expected.value.as_ref() })
                }
            });
        }
        let shapes = step.operator.shapes(&known)?;
        if shapes.len() < step.outputs.len() {
            return Err(Fault::Inconsistent("a shape is missing"));
        }
        let is_small = |shape: &Option<Shape>| shape.is_some_and(|shape| shape.count() <= EARLY);
        let values = if let Some(values) = step.operator.of_shapes(&known) {
            values
        } else if is_early && shapes.iter().all(is_small) && is_quick(step, &known, &shapes) {
            let inputs: Vec<Option<Tensor<'_>>> =
                known.iter().map(|known| known.and_then(|known| known.value).map(Tensor::borrowed)).collect();
            early(step.operator.as_ref(), &inputs)?
        } else {
            Vec::new()
        };
        let mut values = values.into_iter();
        let outputs = shapes.into_iter().map(|shape| {
            let value = values.next();
            shape.map(|shape| Expected { shape, value })
        });
        Ok(Some(outputs.collect()))
    }
}

/// Returns whether a step is computed so quickly that a plan may do it.
fn is_quick(step: &Step, known: &[Option<Known<'_, '_>>], outputs: &[Option<Shape>]) -> bool {
    let inputs: Vec<Option<Shape>> = known.iter().map(|known| known.map(|known| known.shape)).collect();
    let elements = outputs.iter().flatten().map(Shape::count).fold(0, usize::saturating_add);
    step.operator.cost(&inputs, elements) <= EARLY_COST
}

/// Computes small values before the evaluation, which takes less than [`EARLY_COST`].
fn early(operator: &dyn Operator, inputs: &[Option<Tensor<'_>>]) -> Result<Vec<Tensor<'static>>, Fault> {
    let never = AtomicBool::new(false);
    let run = Run::new(UNKNOWN_BYTES, &never);
    Ok(operator.evaluate(inputs, &run)?.into_iter().map(Tensor::into_static).collect())
}

impl Step {
    fn error(&self, fault: Fault) -> EvaluateError {
        match fault {
            Fault::Cancelled => EvaluateError::Cancelled,
            fault => {
                EvaluateError::Node { node: self.name.clone(), operator: self.title.clone(), fault: Box::new(fault) }
            }
        }
    }
}

/// Returns how many bytes a tensor counts before it is computed.
fn bytes_of(shape: &Shape, element: ElementType) -> usize {
    let content = if element == ElementType::Text { TEXT_BYTES } else { 0 };
    shape.count().saturating_mul(element.width() + content)
}
