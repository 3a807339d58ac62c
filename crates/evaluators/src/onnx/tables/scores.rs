//! What classifiers make of the scores of classes, as onnxruntime does it.

use bytes::Bytes;

use crate::exp::exp_single;
use crate::onnx::error::{Fault, NodeFault};
use crate::onnx::node::NodeSpec;
use crate::onnx::run::{Run, finish};
use crate::onnx::tensor::{ElementType, Shape, Tensor};

/// The transformation of scores. `PROBIT` is refused: of one score of two classes, onnxruntime leaves the other one as it is in memory,
/// and its approximation depends on the last digit of logarithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PostTransform {
    None,
    Softmax,
    Logistic,
    SoftmaxZero,
}

impl PostTransform {
    /// Reads the attribute of most operators.
    pub(super) fn of(node: &NodeSpec<'_, '_>) -> Result<Self, NodeFault> {
        let choices = [
            ("NONE", Self::None),
            ("SOFTMAX", Self::Softmax),
            ("LOGISTIC", Self::Logistic),
            ("SOFTMAX_ZERO", Self::SoftmaxZero),
        ];
        node.choice("post_transform", &choices, Self::None)
    }

    /// Transforms the scores of rows that have `width` scores each, more than one unless it is `Logistic`.
    pub(super) fn apply(self, scores: &mut [f32], width: usize) {
        match self {
            Self::None => {}
            Self::Logistic => logistic_of_all(scores),
            Self::Softmax => softmax(scores, width),
            Self::SoftmaxZero => {
                for scores in scores.chunks_exact_mut(width) {
                    softmax_zero(scores);
                }
            }
        }
    }
}

/// Returns the logistic function of a score.
pub(super) fn logistic(score: f32) -> f32 {
    let value = 1.0 / (1.0 + (-score.abs()).exp());
    if score < 0.0 { 1.0 - value } else { value }
}

/// Computes the logistic function of scores.
fn logistic_of_all(scores: &mut [f32]) {
    const BLOCK: usize = 64;
    for scores in scores.chunks_mut(BLOCK) {
        let mut powers = [0.0; BLOCK];
        powers.iter_mut().zip(&*scores).for_each(|(power, score)| *power = -score.abs());
        exp_single(&mut powers[..scores.len()]);
        for (score, power) in scores.iter_mut().zip(powers) {
            let value = 1.0 / (1.0 + power);
            *score = if *score < 0.0 { 1.0 - value } else { value };
        }
    }
}

fn softmax(scores: &mut [f32], width: usize) {
    for scores in scores.chunks_exact_mut(width) {
        let largest = scores.iter().copied().fold(f32::MIN, f32::max);
        for score in scores {
            *score -= largest;
        }
    }
    exp_single(scores);
    for scores in scores.chunks_exact_mut(width) {
        let sum: f32 = scores.iter().sum();
        for score in scores {
            *score /= sum;
        }
    }
}

/// The softmax in which scores of 0 do not count.
fn softmax_zero(scores: &mut [f32]) {
    const ZERO: f32 = 1e-7;
    let largest = scores.iter().copied().fold(f32::MIN, f32::max);
    let scale = (-largest).exp();
    let mut sum = 0.0;
    for score in &mut *scores {
        if score.abs() > ZERO {
            *score = (*score - largest).exp();
            sum += *score;
        } else {
            *score *= scale;
        }
    }
    for score in scores {
        *score /= sum;
    }
}

/// Returns the position of the largest score, the first of equal ones.
pub(super) fn largest<T: PartialOrd + Copy>(scores: &[T]) -> usize {
    let mut best = 0;
    for (place, score) in scores.iter().enumerate() {
        if *score > scores[best] {
            best = place;
        }
    }
    best
}

/// The labels of classes.
#[derive(Debug, Clone)]
pub(super) enum ClassLabels {
    Integers(Vec<i64>),
    Texts(Vec<Bytes>),
}

impl ClassLabels {
    /// Reads the labels of a node, which has either integers or texts.
    pub(super) fn of(node: &NodeSpec<'_, '_>, integers: &str, texts: &str) -> Result<Self, NodeFault> {
        let texts = node.texts(texts)?;
        let integers = node.ints(integers)?;
        match (integers, texts) {
            (integers, []) if !integers.is_empty() => Ok(Self::Integers(integers.to_vec())),
            ([], texts) if !texts.is_empty() => {
                Ok(Self::Texts(texts.iter().map(|text| Bytes::copy_from_slice(text)).collect()))
            }
            _ => Err(NodeFault::Damaged("it needs either integers or texts as labels".to_owned())),
        }
    }

    /// Returns the number of labels.
    pub(super) const fn len(&self) -> usize {
        match self {
            Self::Integers(labels) => labels.len(),
            Self::Texts(labels) => labels.len(),
        }
    }

    /// Returns the type of the labels.
    pub(super) const fn element_type(&self) -> ElementType {
        match self {
            Self::Integers(_) => ElementType::I64,
            Self::Texts(_) => ElementType::Text,
        }
    }

    /// Returns 0 and 1 in place of integer labels: what onnxruntime returns for trees that score both of two classes.
    pub(super) fn places(&self) -> Option<Self> {
        matches!(self, Self::Integers(_)).then(|| Self::Integers(vec![0, 1]))
    }

    /// Returns the labels at positions, as a list.
    pub(super) fn pick(&self, positions: &[usize], run: &Run<'_>) -> Result<Tensor<'static>, Fault> {
        let shape = Shape::of_list(positions.len()).ok_or(Fault::ShapeOverflow)?;
        let beyond = |position: usize| Fault::Index { index: super::layout::to_i64(position), size: self.len() };
        match self {
            Self::Integers(labels) => {
                let mut list = run.list::<i64>(&shape)?;
                for position in positions {
                    list.push(*labels.get(*position).ok_or_else(|| beyond(*position))?);
                }
                finish(shape, list)
            }
            Self::Texts(labels) => {
                let mut list = run.list::<Bytes>(&shape)?;
                for position in positions {
                    list.push(labels.get(*position).ok_or_else(|| beyond(*position))?.clone());
                }
                finish(shape, list)
            }
        }
    }
}

/// How the second score of a row is made of its only one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SecondScore {
    /// The first class has what is left of 1.
    Complement,
    /// The first class has the opposite.
    Opposite,
}

/// Makes two scores of one, and transforms them.
pub(super) fn two_scores(score: f32, second: SecondScore, transform: PostTransform) -> [f32; 2] {
    match (second, transform) {
        (SecondScore::Complement, PostTransform::Logistic) => [1.0 - logistic(score), logistic(score)],
        (SecondScore::Complement, _) => [1.0 - score, score],
        (SecondScore::Opposite, PostTransform::Logistic) => [logistic(-score), logistic(score)],
        (SecondScore::Opposite, _) => [-score, score],
    }
}
