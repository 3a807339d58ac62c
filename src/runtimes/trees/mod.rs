//! Tree ensembles of `XGBoost` and `LightGBM`, evaluated natively.
//!
//! A [`Model`] is made from the bytes of a model file and answers matrices of numbers; files, tensors and requests are
//! other modules' business. Each loader turns its format into the same compiled form, see `forest`; what it cannot answer
//! exactly as the library that wrote the file, it refuses by name. Files are untrusted: whatever they hold, loading ends in
//! a model or in a [`LoadError`], with memory in proportion to the file's size, and a model that has loaded can be
//! evaluated on any matrix.

mod compile;
mod data;
mod error;
mod forest;
mod lightgbm;
mod planes;
mod scalar;
mod xgboost;

use std::fmt;

pub use self::data::{Matrix, Output, Prediction, Scores, Values};
pub use self::error::{LoadError, PredictError, TreeFault};

/// A compiled model of either library.
#[derive(Debug)]
pub struct Model {
    features: usize,
    feature_names: Option<Vec<String>>,
    evaluator: Evaluator,
}

/// What a model is to the Python runtime of its library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An `XGBRegressor`, or an `XGBoost` model that says nothing about itself: values, no probabilities.
    Regressor,
    /// An `XGBClassifier`: labels, and probabilities on demand.
    Classifier,
    /// A `LightGBM` booster, whose `predict` answers values or probabilities by its objective.
    Booster,
}

#[derive(Debug)]
enum Evaluator {
    Xgboost(xgboost::Evaluator),
    Lightgbm(Box<lightgbm::Evaluator>),
}

impl Model {
    /// Loads an `XGBoost` model: JSON, UBJSON or the old binary form, whichever the content is.
    pub fn load_xgboost(bytes: &[u8]) -> Result<Self, LoadError> {
        let mut raw = xgboost::read(bytes)?;
        let features = raw.num_feature();
        let feature_names = raw.take_feature_names()?;
        let evaluator = Evaluator::Xgboost(xgboost::Evaluator::new(&raw, bytes.len())?);
        Ok(Self { features, feature_names, evaluator })
    }

    /// Loads a `LightGBM` text model.
    pub fn load_lightgbm(bytes: &[u8]) -> Result<Self, LoadError> {
        let (evaluator, feature_names) = lightgbm::load(bytes)?;
        let features = feature_names.len();
        Ok(Self { features, feature_names: Some(feature_names), evaluator: Evaluator::Lightgbm(Box::new(evaluator)) })
    }

    /// How many features a row has.
    pub fn n_features(&self) -> usize {
        self.features
    }

    /// The features' names in order, if the file has them.
    pub fn feature_names(&self) -> Option<&[String]> {
        self.feature_names.as_deref()
    }

    /// What the model is to the Python runtime.
    pub fn kind(&self) -> Kind {
        match &self.evaluator {
            Evaluator::Xgboost(evaluator) => evaluator.kind(),
            Evaluator::Lightgbm(_) => Kind::Booster,
        }
    }

    /// Steps through nodes that one row takes at most; each takes a nanosecond or less.
    pub fn steps_per_row(&self) -> usize {
        match &self.evaluator {
            Evaluator::Xgboost(evaluator) => evaluator.steps(),
            Evaluator::Lightgbm(evaluator) => evaluator.steps(),
        }
    }

    /// Evaluates the model on every row.
    pub fn predict(&self, rows: Matrix<'_>, output: Output) -> Result<Prediction, PredictError> {
        if rows.columns() != self.features {
            return Err(PredictError::FeatureCount { expected: self.features, found: rows.columns() });
        }
        match (&self.evaluator, output) {
            (Evaluator::Xgboost(evaluator), Output::Predict) => Ok(evaluator.predict(rows)),
            (Evaluator::Xgboost(evaluator), Output::PredictProba) if self.kind() == Kind::Classifier => {
                Ok(evaluator.probabilities(rows))
            }
            (Evaluator::Xgboost(evaluator), Output::Margin) => Ok(evaluator.margins(rows)),
            (Evaluator::Lightgbm(evaluator), Output::Predict) => Ok(evaluator.predict(rows)),
            (Evaluator::Lightgbm(evaluator), Output::Margin) => Ok(evaluator.margins(rows)),
            (_, Output::PredictProba) => Err(PredictError::NoProbabilities { kind: self.kind() }),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Regressor => "regressor",
            Self::Classifier => "classifier",
            Self::Booster => "booster",
        })
    }
}
