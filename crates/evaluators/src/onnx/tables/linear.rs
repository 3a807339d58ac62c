//! Linear models.

use std::borrow::Cow;
use std::marker::PhantomData;

use super::Constructor;
use super::elementwise::values;
use super::features::single;
use super::layout::to_usize;
use super::number::{Number, numeric};
use super::scores::{ClassLabels, PostTransform, largest};
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, required};
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{ElementType, Shape, Tensor};
use crate::panels::{down, lay_out};
use crate::wide::wide;

/// The operators of this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[
    ("LinearRegressor", regressor),
    (
        "LinearClassifier",
        |node| numeric!(node.input(0)?, [F32 f32, F64 f64, I32 i32, I64 i64], T => classifier::<T>(node)),
    ),
];

/// How many rows are side by side: two registers of AVX2.
const WIDTH: usize = 16;
/// How many partial sums a sum has.
const LANES: usize = 8;

/// Returns the rows and features of an input.
pub(super) fn rows_of(shape: &Shape, features: usize) -> Result<usize, Fault> {
    let rows = match shape.dimensions() {
        [found] if *found == features => Some(1),
        [rows, found] if *found == features => Some(*rows),
        _ => None,
    };
    rows.ok_or_else(|| Fault::Shape { found: *shape, wanted: format!("rows of {features} features") })
}

/// Returns the numbers of the first input in single precision.
fn singles<'a, T: Number>(inputs: &'a [Option<Tensor<'_>>], elements: &[T]) -> Cow<'a, [f32]> {
    match inputs.first().and_then(Option::as_ref).and_then(Tensor::values::<f32>) {
        Some(elements) => Cow::Borrowed(elements),
        None => elements.iter().map(|value| single(value.to_f64())).collect(),
    }
}

/// Coefficients of features for each target.
#[derive(Debug)]
struct Linear {
    /// One row for each target.
    coefficients: Vec<f32>,
    intercepts: Vec<f32>,
    targets: usize,
    features: usize,
}

impl Linear {
    fn new(coefficients: &[f32], intercepts: &[f32], targets: usize) -> Result<Self, NodeFault> {
        let features = coefficients.len().checked_div(targets).unwrap_or_default();
        if features == 0 || features * targets != coefficients.len() {
            return Err(NodeFault::Count { what: "coefficients", found: coefficients.len(), wanted: targets });
        }
        if !intercepts.is_empty() && intercepts.len() != targets {
            return Err(NodeFault::Count { what: "intercepts", found: intercepts.len(), wanted: targets });
        }
        let (coefficients, intercepts) = (coefficients.to_vec(), intercepts.to_vec());
        Ok(Self { coefficients, intercepts, targets, features })
    }

    /// Computes the sums of each row, which do not depend on the other rows.
    fn sums(&self, rows: &[f32], sums: &mut [f32], run: &Run<'_>) -> Result<(), Fault> {
        /// How many rows are computed before it is checked whether the run is to end.
        const BLOCK: usize = 256;
        let (features, targets) = (self.features, self.targets);
        let mut panel = vec![[0.0; WIDTH]; if rows.len() < WIDTH * features { 0 } else { features }];
        for (rows, sums) in rows.chunks(BLOCK * features).zip(sums.chunks_mut(BLOCK * targets)) {
            run.check()?;
            let panels = rows.len() / features / WIDTH;
            let (whole, rest) = rows.split_at(panels * WIDTH * features);
            let (whole_sums, rest_sums) = sums.split_at_mut(panels * WIDTH * targets);
            wide(
                #[inline(always)]
                || {
                    for (rows, sums) in
                        whole.chunks_exact(WIDTH * features).zip(whole_sums.chunks_exact_mut(WIDTH * targets))
                    {
                        self.panel_sums(rows, &mut panel, sums);
                    }
                },
            );
            for (row, sums) in rest.chunks_exact(features).zip(rest_sums.chunks_exact_mut(targets)) {
                for (sum, coefficients) in sums.iter_mut().zip(self.coefficients.chunks_exact(features)) {
                    *sum = dot(row, coefficients);
                }
            }
            if !self.intercepts.is_empty() {
                for sums in sums.chunks_exact_mut(targets) {
                    sums.iter_mut().zip(&self.intercepts).for_each(|(sum, intercept)| *sum += intercept);
                }
            }
        }
        Ok(())
    }

    /// Computes the sums of as many rows as a panel has, each in the order of [`dot`].
    // Inlined, because `wide` selects the instruction set.
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "code that is not inlined is compiled for the baseline processor")]
    fn panel_sums(&self, rows: &[f32], panel: &mut [[f32; WIDTH]], sums: &mut [f32]) {
        lay_out(rows, panel);
        for (target, coefficients) in self.coefficients.chunks_exact(self.features).enumerate() {
            let mut found = [[0.0; WIDTH]];
            down::<_, WIDTH, LANES>(coefficients, panel, &mut found, |a, b| a * b);
            for (sums, found) in sums.chunks_exact_mut(self.targets).zip(found.as_flattened()) {
                sums[target] = *found;
            }
        }
    }

    fn cost(&self, inputs: &[Option<Shape>]) -> u64 {
        let elements = inputs.first().copied().flatten().map_or(0, |shape| shape.count());
        u64::try_from(elements.saturating_mul(self.targets)).unwrap_or(u64::MAX)
    }
}

/// Returns the sum of products, in eight partial sums, as matrix products of several lanes do it.
pub(super) fn dot(first: &[f32], second: &[f32]) -> f32 {
    let mut lanes = [0.0_f32; LANES];
    let (first, first_rest) = first.as_chunks::<LANES>();
    let (second, second_rest) = second.as_chunks::<LANES>();
    for (a, b) in first.iter().zip(second) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    let rest = first_rest.iter().zip(second_rest).fold(0.0, |sum, (a, b)| sum + a * b);
    lanes.iter().sum::<f32>() + rest
}

/// Linear regression.
#[derive(Debug)]
struct Regressor {
    linear: Linear,
    transform: PostTransform,
}

fn regressor(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    let targets = to_usize(node.int("targets")?.unwrap_or(1))?;
    let linear = Linear::new(node.floats("coefficients")?, node.floats("intercepts")?, targets)?;
    let transform = PostTransform::of(node)?;
    match node.input(0)? {
        ElementType::F32 => Ok(Built::one(Regressor { linear, transform }, ElementType::F32)),
        other => Err(NodeSpec::type_fault(other)),
    }
}

impl Operator for Regressor {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let rows = rows_of(&required(inputs, 0)?.shape, self.linear.features)?;
        Ok(vec![Some(Shape::of_matrix(rows, self.linear.targets).ok_or(Fault::ShapeOverflow)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<f32>(inputs, 0)?;
        let rows = rows_of(shape, self.linear.features)?;
        let result = Shape::of_matrix(rows, self.linear.targets).ok_or(Fault::ShapeOverflow)?;
        let mut sums = run.filled::<f32>(result, &0.0)?;
        self.linear.sums(elements, &mut sums, run)?;
        // One score has nothing to be compared with.
        if self.linear.targets > 1 {
            self.transform.apply(&mut sums, self.linear.targets);
        }
        Ok(vec![finish(result, sums)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], _: usize) -> u64 {
        self.linear.cost(inputs)
    }
}

/// Linear classification.
#[derive(Debug)]
struct Classifier<T> {
    linear: Linear,
    labels: ClassLabels,
    transform: PostTransform,
    element: PhantomData<fn() -> T>,
}

fn classifier<T: Number>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    // Whether it was trained for each class alone; onnxruntime does not use it.
    node.ignore("multi_class");
    let labels = ClassLabels::of(node, "classlabels_ints", "classlabels_strings")?;
    let intercepts = node.floats("intercepts")?;
    let targets = if intercepts.is_empty() { labels.len() } else { intercepts.len() };
    let linear = Linear::new(node.floats("coefficients")?, intercepts, targets)?;
    let is_known = targets == labels.len() || targets == 1 && labels.len() == 2;
    if !is_known {
        return Err(NodeFault::Unsupported(format!("{targets} scores for {} classes", labels.len())));
    }
    let transform = PostTransform::of(node)?;
    let outputs = vec![labels.element_type(), ElementType::F32];
    let operator = Box::new(Classifier::<T> { linear, labels, transform, element: PhantomData });
    Ok(Built { operator, outputs })
}

impl<T: Number> Operator for Classifier<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let rows = rows_of(&required(inputs, 0)?.shape, self.linear.features)?;
        Ok(vec![Shape::of_list(rows), Some(Shape::of_matrix(rows, self.labels.len()).ok_or(Fault::ShapeOverflow)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let rows = rows_of(shape, self.linear.features)?;
        let classes = self.labels.len();
        let result = Shape::of_matrix(rows, classes).ok_or(Fault::ShapeOverflow)?;
        let elements = singles(inputs, elements);
        let mut scores = run.filled::<f32>(result, &0.0)?;
        let positions: Vec<usize> = if self.linear.targets < classes {
            // One score tells two classes apart.
            let mut sums = run.scratch(rows, 1, 0.0)?;
            self.linear.sums(&elements, &mut sums, run)?;
            let positions = sums.iter().map(|score| usize::from(*score > 0.0)).collect();
            if self.transform == PostTransform::Logistic {
                self.transform.apply(&mut sums, 1);
            }
            for (scores, sum) in scores.as_chunks_mut().0.iter_mut().zip(sums) {
                *scores = [1.0 - sum, sum];
            }
            positions
        } else {
            self.linear.sums(&elements, &mut scores, run)?;
            let positions = scores.chunks_exact(classes).map(largest).collect();
            if classes > 1 {
                self.transform.apply(&mut scores, classes);
            }
            positions
        };
        Ok(vec![self.labels.pick(&positions, run)?, finish(result, scores)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], _: usize) -> u64 {
        self.linear.cost(inputs)
    }
}
