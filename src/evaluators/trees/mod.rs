//! Tree ensembles of `XGBoost` and `LightGBM`, evaluated natively.
//!
//! A [`TreeEnsemble`] is made from the bytes of a model file and answers matrices of numbers; files, tensors and requests are
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
use std::time::Duration;

pub use self::data::{EnsembleOutput, FeatureMatrix, FeatureValues, PredictedValues, Prediction};
pub use self::error::{LoadError, PredictError, TreeFault};

/// A compiled model of either library.
#[derive(Debug)]
pub struct TreeEnsemble {
    features: usize,
    feature_names: Option<Vec<String>>,
    evaluator: Evaluator,
}

/// What a model is to the Python runtime of its library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrapperKind {
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

impl TreeEnsemble {
    /// Loads an `XGBoost` model: JSON, UBJSON or the old binary form, whichever the content is.
    pub fn load_xgboost(bytes: &[u8]) -> Result<Self, LoadError> {
        let mut raw = xgboost::read(bytes)?;
        let features = raw.num_feature();
        let feature_names = raw.take_feature_names()?;
        let evaluator = Evaluator::Xgboost(xgboost::Evaluator::new(&raw, bytes.len())?);
        Ok(Self { features, feature_names, evaluator })
    }

    /// Loads an `XGBoost` model that is known to be of this kind, whatever it says about itself.
    pub fn load_xgboost_as(bytes: &[u8], kind: WrapperKind) -> Result<Self, LoadError> {
        let mut model = Self::load_xgboost(bytes)?;
        if let Evaluator::Xgboost(evaluator) = &mut model.evaluator {
            evaluator.set_kind(kind);
        }
        Ok(model)
    }

    /// Loads an `XGBoost` model as a booster, which predicts with all its rounds and knows nothing of classes.
    pub fn load_xgboost_booster(bytes: &[u8]) -> Result<Self, LoadError> {
        let mut raw = xgboost::read(bytes)?;
        raw.forget_wrapper();
        let features = raw.num_feature();
        let feature_names = raw.take_feature_names()?;
        let evaluator = Evaluator::Xgboost(xgboost::Evaluator::new(&raw, bytes.len())?);
        Ok(Self { features, feature_names, evaluator })
    }

    /// Loads a `LightGBM` text model.
    pub fn load_lightgbm(bytes: &[u8]) -> Result<Self, LoadError> {
        Self::load_lightgbm_until(bytes, None)
    }

    /// Loads a `LightGBM` text model, of which only so many rounds are used, if there are more.
    pub fn load_lightgbm_until(bytes: &[u8], rounds: Option<usize>) -> Result<Self, LoadError> {
        let (evaluator, feature_names) = lightgbm::load(bytes, rounds)?;
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
    pub fn kind(&self) -> WrapperKind {
        match &self.evaluator {
            Evaluator::Xgboost(evaluator) => evaluator.kind(),
            Evaluator::Lightgbm(_) => WrapperKind::Booster,
        }
    }

    /// Estimates how long the evaluation of so many rows takes on one thread, within a factor of a few.
    pub fn estimate(&self, rows: usize) -> Duration {
        let nanoseconds = match &self.evaluator {
            Evaluator::Xgboost(evaluator) => evaluator.cost(rows),
            Evaluator::Lightgbm(evaluator) => evaluator.cost(rows),
        };
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Evaluates the model on every row.
    pub fn predict(&self, rows: FeatureMatrix<'_>, output: EnsembleOutput) -> Result<Prediction, PredictError> {
        if rows.columns() != self.features {
            return Err(PredictError::FeatureCount { expected: self.features, found: rows.columns() });
        }
        match (&self.evaluator, output) {
            (Evaluator::Xgboost(evaluator), EnsembleOutput::Predict) => Ok(evaluator.predict(rows)),
            (Evaluator::Xgboost(evaluator), EnsembleOutput::PredictProba) if self.kind() == WrapperKind::Classifier => {
                Ok(evaluator.probabilities(rows))
            }
            (Evaluator::Xgboost(evaluator), EnsembleOutput::Margin) => Ok(evaluator.margins(rows)),
            (Evaluator::Lightgbm(evaluator), EnsembleOutput::Predict) => Ok(evaluator.predict(rows)),
            (Evaluator::Lightgbm(evaluator), EnsembleOutput::Margin) => Ok(evaluator.margins(rows)),
            (_, EnsembleOutput::PredictProba) => Err(PredictError::NoProbabilities { kind: self.kind() }),
        }
    }
}

impl fmt::Display for WrapperKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Regressor => "regressor",
            Self::Classifier => "classifier",
            Self::Booster => "booster",
        })
    }
}
