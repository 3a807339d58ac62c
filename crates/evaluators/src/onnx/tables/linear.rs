//! Linear models.

use std::marker::PhantomData;

use super::Constructor;
use super::elementwise::values;
use super::features::single;
use super::layout::to_usize;
use super::number::{Number, numeric};
use super::scores::{ClassLabels, PostTransform, SecondScore, largest, probit, two_scores};
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, required};
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{ElementType, Shape, Tensor};

/// The operators of this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[
    ("LinearRegressor", regressor),
    (
        "LinearClassifier",
        |node| numeric!(node.input(0)?, [F32 f32, F64 f64, I32 i32, I64 i64], T => classifier::<T>(node)),
    ),
];

/// Returns the rows and features of an input.
pub(super) fn rows_of(shape: &Shape, features: usize) -> Result<usize, Fault> {
    let rows = match shape.dimensions() {
        [found] if *found == features => Some(1),
        [rows, found] if *found == features => Some(*rows),
        _ => None,
    };
    rows.ok_or_else(|| Fault::Shape { found: *shape, wanted: format!("rows of {features} features") })
}

/// Returns the numbers of an input in single precision.
pub(super) fn singles<T: Number>(elements: &[T]) -> Vec<f32> {
    elements.iter().map(|value| single(value.to_f64())).collect()
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

    /// Computes the sums of each row.
    fn sums(&self, rows: &[f32], sums: &mut Vec<f32>, run: &Run<'_>) -> Result<(), Fault> {
        for (index, row) in rows.chunks_exact(self.features).enumerate() {
            if index % 256 == 0 {
                run.check()?;
            }
            for (target, coefficients) in self.coefficients.chunks_exact(self.features).enumerate() {
                let intercept = self.intercepts.get(target).copied().unwrap_or_default();
                sums.push(dot(row, coefficients) + intercept);
            }
        }
        Ok(())
    }

    fn cost(&self, inputs: &[Option<Shape>]) -> u64 {
        let elements = inputs.first().copied().flatten().map_or(0, |shape| shape.count());
        u64::try_from(elements.saturating_mul(self.targets)).unwrap_or(u64::MAX)
    }
}

/// Returns the sum of products, in eight partial sums, as matrix products of several lanes do it.
pub(super) fn dot(first: &[f32], second: &[f32]) -> f32 {
    const LANES: usize = 8;
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

/// Transforms the only score of a row.
fn transform_one(score: &mut f32, transform: PostTransform) {
    match transform {
        PostTransform::Probit => *score = probit(*score),
        PostTransform::None => {}
        transform => transform.apply(std::slice::from_mut(score)),
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
        let mut sums = run.list::<f32>(&result)?;
        self.linear.sums(elements, &mut sums, run)?;
        for sums in sums.chunks_mut(self.linear.targets) {
            match sums {
                [sum] => transform_one(sum, self.transform),
                sums => self.transform.apply(sums),
            }
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
        let mut sums = Vec::with_capacity(rows.saturating_mul(self.linear.targets));
        match first_singles(inputs) {
            Some(elements) => self.linear.sums(elements, &mut sums, run)?,
            None => self.linear.sums(&singles(elements), &mut sums, run)?,
        }
        let mut scores = run.list::<f32>(&result)?;
        let mut positions = Vec::with_capacity(rows);
        for sums in sums.chunks(self.linear.targets) {
            if let ([score], true) = (sums, classes == 2) {
                positions.push(usize::from(*score > 0.0));
                scores.extend(match self.transform {
                    PostTransform::Probit => [probit(*score), 0.0],
                    PostTransform::Logistic => {
                        let score = super::scores::logistic(*score);
                        [1.0 - score, score]
                    }
                    transform => two_scores(*score, SecondScore::Complement, transform),
                });
                continue;
            }
            positions.push(if classes == 1 { 0 } else { largest(sums) });
            let start = scores.len();
            scores.extend_from_slice(sums);
            match &mut scores[start..] {
                [score] => transform_one(score, self.transform),
                scores => self.transform.apply(scores),
            }
        }
        Ok(vec![self.labels.pick(&positions, run)?, finish(result, scores)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], _: usize) -> u64 {
        self.linear.cost(inputs)
    }
}

/// Returns the first input, if it is in single precision.
pub(super) fn first_singles<'a>(inputs: &'a [Option<Tensor<'_>>]) -> Option<&'a [f32]> {
    inputs.first()?.as_ref()?.values::<f32>().map(|values| &values[..])
}
