//! Support vector machines.

use std::marker::PhantomData;

use super::Constructor;
use super::elementwise::values;
use super::features::single;
use super::layout::to_usize;
use super::linear::{dot, rows_of};
use super::number::{Number, numeric};
use super::scores::{ClassLabels, PostTransform, SecondScore, largest, logistic, two_scores};
use crate::exp::exp_single;
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::{Built, Known, NodeSpec, Operator, required};
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{ElementType, Shape, Tensor};
use crate::panels::{down, panels};
use crate::wide::wide;

/// The operators of this file.
pub(super) const OPERATORS: &[(&str, Constructor)] = &[
    ("SVMRegressor", regressor),
    (
        "SVMClassifier",
        |node| numeric!(node.input(0)?, [F32 f32, F64 f64, I32 i32, I64 i64], T => classifier::<T>(node)),
    ),
];

/// How many vectors are side by side: two registers of AVX2.
const WIDTH: usize = 16;

/// The function of a row and a support vector.
#[derive(Debug, Clone, Copy)]
enum Kernel {
    Linear,
    Polynomial { gamma: f32, constant: f32, degree: f32 },
    Radial { gamma: f32 },
    Sigmoid { gamma: f32, constant: f32 },
}

impl Kernel {
    fn of(node: &NodeSpec<'_, '_>) -> Result<Self, NodeFault> {
        let parameters = node.floats("kernel_params")?;
        let (gamma, constant, degree) = match parameters {
            [gamma, constant, degree] => (*gamma, *constant, *degree),
            [] => (0.0, 0.0, 0.0),
            other => return Err(NodeFault::Count { what: "parameters of the kernel", found: other.len(), wanted: 3 }),
        };
        let choices = [
            ("LINEAR", Self::Linear),
            ("POLY", Self::Polynomial { gamma, constant, degree }),
            ("RBF", Self::Radial { gamma }),
            ("SIGMOID", Self::Sigmoid { gamma, constant }),
        ];
        node.choice("kernel_type", &choices, Self::Linear)
    }

    /// Computes the kernels of a row and the vectors of panels, with those of the padding.
    fn apply(self, row: &[f32], panels: &[[f32; WIDTH]], kernels: &mut [f32]) {
        let (sums, _) = kernels.as_chunks_mut();
        let is_radial = matches!(self, Self::Radial { .. });
        wide(
            #[inline(always)]
            || {
                if is_radial {
                    down::<_, WIDTH, 1>(row, panels, sums, |a, b| (a - b) * (a - b));
                } else {
                    down::<_, WIDTH, 1>(row, panels, sums, |a, b| a * b);
                }
            },
        );
        match self {
            Self::Linear => {}
            Self::Polynomial { gamma, constant, degree } => {
                for product in kernels {
                    *product = (gamma * *product + constant).powf(degree);
                }
            }
            Self::Sigmoid { gamma, constant } => {
                for product in kernels {
                    *product = (gamma * *product + constant).tanh();
                }
            }
            Self::Radial { gamma } => {
                for distance in &mut *kernels {
                    *distance *= -gamma;
                }
                exp_single(kernels);
            }
        }
    }

    /// Estimates the nanoseconds of a row and a vector of features.
    const fn cost(self, features: usize) -> usize {
        match self {
            Self::Linear => features / 8 + 1,
            Self::Radial { .. } => features / 6 + 2,
            Self::Polynomial { .. } | Self::Sigmoid { .. } => features / 8 + 25,
        }
    }
}

/// Vectors, in panels.
#[derive(Debug)]
struct Vectors {
    panels: Vec<[f32; WIDTH]>,
    count: usize,
    features: usize,
    kernel: Kernel,
}

impl Vectors {
    fn new(values: &[f32], count: usize, kernel: Kernel) -> Result<Self, NodeFault> {
        let features = values.len().checked_div(count).unwrap_or_default();
        if features == 0 || features * count != values.len() {
            return Err(NodeFault::Count { what: "values of vectors", found: values.len(), wanted: count });
        }
        Ok(Self { panels: panels(values, features), count, features, kernel })
    }

    /// Computes the kernel of a row and each vector.
    fn kernels(&self, row: &[f32], kernels: &mut Vec<f32>) {
        kernels.resize(self.panels.len() / self.features * WIDTH, 0.0);
        self.kernel.apply(row, &self.panels, kernels);
        kernels.truncate(self.count);
    }

    fn cost(&self, inputs: &[Option<Shape>]) -> u64 {
        let elements = inputs.first().copied().flatten().map_or(0, |shape| shape.count());
        let rows = elements / self.features;
        let cost = rows.saturating_mul(self.count).saturating_mul(self.kernel.cost(self.features));
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

/// Rows in single precision.
fn singles<T: Number>(
    elements: &[T],
    features: usize,
    mut visit: impl FnMut(&[f32]) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let mut row = Vec::with_capacity(features);
    for elements in elements.chunks_exact(features) {
        row.clear();
        row.extend(elements.iter().map(|value| single(value.to_f64())));
        visit(&row)?;
    }
    Ok(())
}

/// Regression, or the detection of outliers.
#[derive(Debug)]
struct Regressor {
    vectors: Vectors,
    /// One for each vector; none if the only vector is that of the coefficients.
    coefficients: Vec<f32>,
    rho: f32,
    one_class: bool,
    transform: PostTransform,
}

fn regressor(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    if node.input(0)? != ElementType::F32 {
        return Err(NodeSpec::type_fault(node.input(0)?));
    }
    let count = to_usize(node.int("n_supports")?.unwrap_or(0))?;
    let (kernel, coefficients) = (Kernel::of(node)?, node.floats("coefficients")?);
    let supports = node.floats("support_vectors")?;
    let (vectors, coefficients) = if count == 0 {
        // A linear machine has the sum of its vectors.
        (Vectors::new(coefficients, 1, Kernel::Linear)?, Vec::new())
    } else if coefficients.len() == count {
        (Vectors::new(supports, count, kernel)?, coefficients.to_vec())
    } else {
        return Err(NodeFault::Count { what: "coefficients", found: coefficients.len(), wanted: count });
    };
    let [rho] = node.floats("rho")? else {
        return Err(NodeFault::Count { what: "values of `rho`", found: node.floats("rho")?.len(), wanted: 1 });
    };
    let (one_class, transform) = (node.flag("one_class", false)?, PostTransform::of(node)?);
    if transform != PostTransform::None {
        return Err(NodeFault::Unsupported("a `post_transform` of one score".to_owned()));
    }
    let regressor = Regressor { vectors, coefficients, rho: *rho, one_class, transform };
    Ok(Built::one(regressor, ElementType::F32))
}

impl Operator for Regressor {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let rows = rows_of(&required(inputs, 0)?.shape, self.vectors.features)?;
        Ok(vec![Some(Shape::of_matrix(rows, 1).ok_or(Fault::ShapeOverflow)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<f32>(inputs, 0)?;
        let rows = rows_of(shape, self.vectors.features)?;
        let result = Shape::of_matrix(rows, 1).ok_or(Fault::ShapeOverflow)?;
        let mut scores = run.list::<f32>(&result)?;
        let mut kernels = Vec::with_capacity(self.vectors.count);
        for row in elements.chunks_exact(self.vectors.features) {
            run.check()?;
            self.vectors.kernels(row, &mut kernels);
            let sum = match self.coefficients.as_slice() {
                [] => kernels.first().copied().unwrap_or_default(),
                coefficients => dot(&kernels, coefficients),
            };
            let score = sum + self.rho;
            scores.push(match self.one_class {
                true if score > 0.0 => 1.0,
                true => -1.0,
                false => score,
            });
        }
        debug_assert_eq!(self.transform, PostTransform::None, "checked when it was made");
        Ok(vec![finish(result, scores)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], _: usize) -> u64 {
        self.vectors.cost(inputs)
    }
}

/// Classification, by votes of the machines for each two classes, or by a linear machine for each class.
#[derive(Debug)]
struct Classifier<T> {
    vectors: Vectors,
    /// A row for each class but one, with a value for each vector; none for a linear machine.
    coefficients: Vec<f32>,
    /// Where the vectors of each class start, and the end.
    starts: Vec<usize>,
    rho: Vec<f32>,
    /// The sigmoid of each machine, if it gives probabilities.
    sigmoids: Vec<(f32, f32)>,
    labels: ClassLabels,
    transform: PostTransform,
    element: PhantomData<fn() -> T>,
}

/// Returns how many machines tell so many classes apart.
const fn pairs(classes: usize) -> usize {
    classes * classes.saturating_sub(1) / 2
}

/// The most classes: probabilities need a matrix of them for each row.
const MAX_CLASSES: usize = 1024;

fn classifier<T: Number>(node: &NodeSpec<'_, '_>) -> Result<Built, NodeFault> {
    node.check_inputs(1, 1)?;
    let labels = ClassLabels::of(node, "classlabels_ints", "classlabels_strings")?;
    let classes = labels.len();
    if classes > MAX_CLASSES {
        return Err(NodeFault::Unsupported(format!("{classes} classes")));
    }
    let (kernel, coefficients) = (Kernel::of(node)?, node.floats("coefficients")?);
    let per_class = node.ints("vectors_per_class")?.iter().map(|count| to_usize(*count));
    let per_class = per_class.collect::<Result<Vec<_>, _>>()?;
    let mut starts = vec![0_usize];
    for count in &per_class {
        let end = starts.last().copied().unwrap_or_default().checked_add(*count).ok_or(Fault::ShapeOverflow)?;
        starts.push(end);
    }
    let count = starts.last().copied().unwrap_or_default();
    let rho = node.floats("rho")?.to_vec();
    let (a, b) = (node.floats("prob_a")?, node.floats("prob_b")?);
    let transform = PostTransform::of(node)?;
    if count == 0 {
        return Err(NodeFault::Unsupported("a machine without support vectors".to_owned()));
    }
    let lengths = [
        ("classes with vectors", per_class.len(), classes),
        ("values of `rho`", rho.len(), pairs(classes)),
        ("coefficients", coefficients.len(), count.saturating_mul(classes.saturating_sub(1))),
        ("values of `prob_b`", b.len(), a.len()),
    ];
    if let Some((what, found, wanted)) = lengths.into_iter().find(|(_, found, wanted)| found != wanted) {
        return Err(NodeFault::Count { what, found, wanted });
    }
    if !a.is_empty() && a.len() != rho.len() {
        return Err(NodeFault::Count { what: "values of `prob_a`", found: a.len(), wanted: rho.len() });
    }
    let vectors = Vectors::new(node.floats("support_vectors")?, count, kernel)?;
    let outputs = vec![labels.element_type(), ElementType::F32];
    let operator = Classifier::<T> {
        vectors,
        coefficients: coefficients.to_vec(),
        starts,
        rho,
        sigmoids: a.iter().copied().zip(b.iter().copied()).collect(),
        labels,
        transform,
        element: PhantomData,
    };
    Ok(Built { operator: Box::new(operator), outputs })
}

impl<T: Number> Classifier<T> {
    /// Returns the number of scores of a row.
    fn width(&self) -> usize {
        let classes = self.labels.len();
        match (self.sigmoids.is_empty(), classes) {
            (false, _) | (true, 2) => classes,
            (true, _) => pairs(classes),
        }
    }

    /// Computes the score of each machine, and the votes for each class.
    fn decide(&self, kernels: &[f32], scores: &mut Vec<f32>, votes: &mut [usize]) {
        let classes = self.labels.len();
        scores.clear();
        votes.fill(0);
        let count = self.vectors.count;
        let sum = |row: usize, class: usize| {
            let part = self.starts[class]..self.starts[class + 1];
            // Summed in double precision, as onnxruntime does it.
            let products = self.coefficients[row * count..][part.clone()].iter().zip(&kernels[part]);
            products.fold(0.0_f64, |sum, (a, b)| sum + f64::from(a * b))
        };
        for first in 0..classes {
            for second in first + 1..classes {
                let score = single(sum(second - 1, first) + sum(first, second) + f64::from(self.rho[scores.len()]));
                scores.push(score);
                votes[if score > 0.0 { first } else { second }] += 1;
            }
        }
    }

    /// Returns the probabilities of the classes, by those of each two.
    fn probabilities(&self, scores: &[f32]) -> Vec<f32> {
        /// Probabilities are this far from 0 and 1 at least.
        const LEAST: f32 = 1e-7;
        let classes = self.labels.len();
        let mut pairwise = vec![0.0_f32; classes * classes];
        let mut machines = scores.iter().zip(&self.sigmoids);
        for first in 0..classes {
            for second in first + 1..classes {
                let Some((score, (a, b))) = machines.next() else { continue };
                let value = sigmoid(*score, *a, *b).clamp(LEAST, 1.0 - LEAST);
                pairwise[first * classes + second] = value;
                pairwise[second * classes + first] = 1.0 - value;
            }
        }
        couple(&pairwise, classes)
    }
}

/// Returns the probability of a machine's score, rounded as in onnxruntime: the coupling stops early, so that a digit matters.
fn sigmoid(score: f32, a: f32, b: f32) -> f32 {
    1.0 - logistic(score * a + b)
}

/// Makes probabilities of classes of those of each two, by the second method of Wu, Lin and Weng (2004).
fn couple(pairwise: &[f32], classes: usize) -> Vec<f32> {
    const ROUNDS: usize = 100;
    #[expect(clippy::cast_precision_loss, reason = "there are few classes")]
    let count = classes as f32;
    let limit = 0.005 / count;
    let at = |row: usize, column: usize| pairwise[row * classes + column];
    let mut products = vec![0.0_f32; classes * classes];
    for row in 0..classes {
        for column in 0..classes {
            products[row * classes + column] = if row == column {
                (0..classes).filter(|other| *other != row).map(|other| at(other, row) * at(other, row)).sum()
            } else {
                -at(column, row) * at(row, column)
            };
        }
    }
    let mut shares = vec![1.0 / count; classes];
    let mut sums = vec![0.0_f32; classes];
    for _ in 0..ROUNDS.max(classes) {
        let mut total = 0.0;
        for (row, sum) in sums.iter_mut().enumerate() {
            *sum = (0..classes).map(|column| products[row * classes + column] * shares[column]).sum();
            total += shares[row] * *sum;
        }
        let worst = sums.iter().map(|sum| (sum - total).abs()).fold(0.0, f32::max);
        if worst < limit {
            break;
        }
        for row in 0..classes {
            let own = products[row * classes + row];
            let change = (total - sums[row]) / own;
            shares[row] += change;
            total = (total + change * (change * own + 2.0 * sums[row])) / (1.0 + change) / (1.0 + change);
            for (column, (sum, share)) in sums.iter_mut().zip(&mut shares).enumerate() {
                *sum = (*sum + change * products[row * classes + column]) / (1.0 + change);
                *share /= 1.0 + change;
            }
        }
    }
    shares
}

impl<T: Number> Operator for Classifier<T> {
    fn shapes(&self, inputs: &[Option<Known<'_, '_>>]) -> Result<Vec<Option<Shape>>, Fault> {
        let rows = rows_of(&required(inputs, 0)?.shape, self.vectors.features)?;
        Ok(vec![Shape::of_list(rows), Some(Shape::of_matrix(rows, self.width()).ok_or(Fault::ShapeOverflow)?)])
    }

    fn evaluate<'v>(&self, inputs: &[Option<Tensor<'v>>], run: &Run<'_>) -> Result<Vec<Tensor<'v>>, Fault> {
        let (shape, elements) = values::<T>(inputs, 0)?;
        let rows = rows_of(shape, self.vectors.features)?;
        let classes = self.labels.len();
        let result = Shape::of_matrix(rows, self.width()).ok_or(Fault::ShapeOverflow)?;
        let mut all = run.list::<f32>(&result)?;
        let mut positions = Vec::with_capacity(rows);
        let (mut kernels, mut scores, mut votes) = (Vec::new(), Vec::new(), vec![0; classes]);
        singles(elements, self.vectors.features, |row| {
            run.check()?;
            self.vectors.kernels(row, &mut kernels);
            self.decide(&kernels, &mut scores, &mut votes);
            let position = largest(&votes);
            let start = all.len();
            if !self.sigmoids.is_empty() {
                all.extend(self.probabilities(&scores));
                positions.push(position);
            } else if let ([score], 2) = (&scores[..], classes) {
                positions.push(position);
                let is_plain = self.transform == PostTransform::None;
                let second = if is_plain { SecondScore::Opposite } else { SecondScore::Complement };
                all.extend(two_scores(*score, second, self.transform));
                return Ok(());
            } else {
                positions.push(position);
                all.extend_from_slice(&scores);
            }
            self.transform.apply(&mut all[start..], self.width().max(1));
            Ok(())
        })?;
        Ok(vec![self.labels.pick(&positions, run)?, finish(result, all)?])
    }

    fn cost(&self, inputs: &[Option<Shape>], _: usize) -> u64 {
        self.vectors.cost(inputs)
    }
}
