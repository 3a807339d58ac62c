//! The methods of estimators.

use std::fmt;

/// A method of an estimator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EstimatorMethod {
    Predict,
    PredictProba,
    DecisionFunction,
    Transform,
}

impl EstimatorMethod {
    pub const ALL: [Self; 4] = [Self::Predict, Self::PredictProba, Self::DecisionFunction, Self::Transform];

    /// Returns the name of the method in Python, which is also the name of the output in requests.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Predict => "predict",
            Self::PredictProba => "predict_proba",
            Self::DecisionFunction => "decision_function",
            Self::Transform => "transform",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for EstimatorMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MethodSet(u8);

impl MethodSet {
    pub(super) const NONE: Self = Self(0);
    pub(super) const PREDICT: Self = Self::NONE.with(EstimatorMethod::Predict);
    pub(super) const TRANSFORM: Self = Self::NONE.with(EstimatorMethod::Transform);

    /// Returns the set with one more method.
    pub(super) const fn with(self, method: EstimatorMethod) -> Self {
        Self(self.0 | method.bit())
    }

    /// Returns the set with one more method if `there`.
    pub(super) const fn with_if(self, there: bool, method: EstimatorMethod) -> Self {
        if there { self.with(method) } else { self }
    }

    pub const fn contains(self, method: EstimatorMethod) -> bool {
        self.0 & method.bit() != 0
    }

    pub fn iter(self) -> impl Iterator<Item = EstimatorMethod> {
        EstimatorMethod::ALL.into_iter().filter(move |&method| self.contains(method))
    }
}
