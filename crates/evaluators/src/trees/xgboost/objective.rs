//! Objectives, which map a base score to a margin and a margin to a prediction.

use super::raw::XgboostVersion;
use crate::trees::error::{LoadError, quote};

/// The function that maps the sum over all trees to a prediction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Identity,
    Sigmoid,
    Exp,
    /// 1 above zero, else 0.
    Hinge,
    /// Probabilities that add up to one.
    Softmax,
    /// The index of the largest margin.
    Argmax,
}

impl Link {
    /// Returns the link function of an objective by its name in the file.
    pub(super) fn of(objective: &str) -> Result<Self, LoadError> {
        Ok(match objective {
            "reg:squarederror"
            | "reg:linear"
            | "reg:squaredlogerror"
            | "reg:pseudohubererror"
            | "reg:absoluteerror"
            | "reg:quantileerror"
            | "rank:pairwise"
            | "rank:ndcg"
            | "rank:map"
            | "binary:logitraw" => Self::Identity,
            "binary:logistic" | "reg:logistic" => Self::Sigmoid,
            "count:poisson" | "reg:gamma" | "reg:tweedie" | "survival:cox" | "survival:aft" => Self::Exp,
            "binary:hinge" => Self::Hinge,
            "multi:softprob" => Self::Softmax,
            "multi:softmax" => Self::Argmax,
            _ => return Err(LoadError::Unsupported { what: "objective", name: quote(objective) }),
        })
    }

    /// Maps a base score of a file to a margin.
    pub(super) fn margin(self, base_score: f32, version: XgboostVersion) -> f32 {
        match self {
            _ if version < XgboostVersion(1, 0) => base_score,
            Self::Sigmoid => {
                let clamp = version >= XgboostVersion(3, 2);
                let probability = if clamp { base_score.clamp(1e-6, 1.0 - 1e-6) } else { base_score };
                -(1.0 / probability - 1.0).ln()
            }
            Self::Exp => base_score.ln(),
            Self::Identity | Self::Hinge | Self::Softmax | Self::Argmax => base_score,
        }
    }

    /// Transforms margins in place, `outputs` to a row. The caller handles [`Link::Argmax`].
    pub(super) fn apply(self, margins: &mut [f32], outputs: usize, version: XgboostVersion) {
        // The cap keeps the exponential finite, so that nothing becomes exactly zero.
        let cap = if version >= XgboostVersion(1, 6) { 88.7 } else { f32::INFINITY };
        match self {
            Self::Identity | Self::Argmax => {}
            Self::Sigmoid => margins.iter_mut().for_each(|margin| *margin = sigmoid(*margin, cap)),
            Self::Exp => margins.iter_mut().for_each(|margin| *margin = margin.exp()),
            Self::Hinge => margins.iter_mut().for_each(|margin| *margin = if *margin > 0.0 { 1.0 } else { 0.0 }),
            Self::Softmax => margins.chunks_exact_mut(outputs).for_each(softmax),
        }
    }
}

/// Returns the logistic function of a margin.
fn sigmoid(margin: f32, cap: f32) -> f32 {
    1.0 / (1.0 + (-margin).min(cap).exp())
}

/// Replaces margins by probabilities. The sum has double precision, as in the library.
#[expect(clippy::cast_possible_truncation, reason = "the library divides in single precision")]
pub(super) fn softmax(margins: &mut [f32]) {
    let largest = margins.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for margin in &mut *margins {
        *margin = (*margin - largest).exp();
        sum += f64::from(*margin);
    }
    for margin in margins {
        *margin /= sum as f32;
    }
}

/// Returns the index of the first of the largest values.
pub(super) fn argmax(values: &[f32]) -> usize {
    let mut best = 0;
    for (index, value) in values.iter().enumerate() {
        if *value > values[best] {
            best = index;
        }
    }
    best
}
