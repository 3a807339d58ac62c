//! The `gblinear` booster.

use crate::trees::error::LoadError;

/// A weight for each feature and output, and a bias for each output.
#[derive(Debug)]
pub(in crate::trees) struct LinearBooster {
    /// Ordered by feature, then output; the biases come last.
    weights: Vec<f32>,
    features: usize,
    outputs: usize,
    /// Added to every output.
    base: f32,
}

impl LinearBooster {
    pub(super) fn new(weights: Vec<f32>, features: usize, outputs: usize, base: f32) -> Result<Self, LoadError> {
        let wanted = features.saturating_add(1).saturating_mul(outputs);
        if weights.len() != wanted {
            return Err(LoadError::Count { field: "weights", wanted, found: weights.len() });
        }
        Ok(Self { weights, features, outputs, base })
    }

    pub(super) fn outputs(&self) -> usize {
        self.outputs
    }

    /// Computes all margins of one row. A missing value contributes nothing.
    pub(super) fn margins<S: Copy>(&self, row: &[S], convert: impl Fn(S) -> f32, margins: &mut [f32]) {
        let bias = &self.weights[self.features * self.outputs..];
        for (output, margin) in margins.iter_mut().enumerate() {
            let mut sum = bias[output] + self.base;
            let weights = self.weights[output..].iter().step_by(self.outputs);
            for (value, weight) in row.iter().map(|value| convert(*value)).zip(weights) {
                if !value.is_nan() {
                    sum += value * weight;
                }
            }
            *margin = sum;
        }
    }

    /// Appends what each feature of a row contributes to each margin, and then the bias, as the library computes them.
    pub(super) fn contribute<S: Copy>(&self, row: &[S], convert: impl Fn(S) -> f32, contributions: &mut Vec<f32>) {
        let bias = &self.weights[self.features * self.outputs..];
        for (output, bias) in bias.iter().enumerate() {
            let weights = self.weights[output..].iter().step_by(self.outputs);
            let values = row.iter().map(|value| convert(*value));
            contributions
                .extend(values.zip(weights).map(|(value, weight)| if value.is_nan() { 0.0 } else { value * weight }));
            contributions.push(bias + self.base);
        }
    }

    /// Estimates how many nanoseconds one row takes.
    pub(super) fn cost(&self) -> usize {
        self.features * self.outputs
    }
}
