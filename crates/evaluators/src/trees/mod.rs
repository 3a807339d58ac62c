//! Tree ensembles of `XGBoost` and `LightGBM`, evaluated natively.
//!
//! A [`TreeEnsemble`] is loaded from the bytes of a model file and makes predictions from matrices of numbers. It knows
//! nothing about files, tensors and requests. Each loader converts its format to the same compiled form, see `forest`;
//! what cannot be evaluated exactly as by the library that wrote the file is rejected by name. Files are untrusted:
//! loading any file returns a model or a [`LoadError`], with memory in proportion to the size of the file, and a loaded
//! model can be evaluated on any matrix. Links between nodes are checked to form trees, so that the walk needs no check.
//!
//! The loaders know formats and versions. The evaluators know objectives, and the results of `predict` of the library's
//! Python wrapper. One row walks six trees in lockstep, so that their memory accesses overlap. Many rows are evaluated in
//! blocks of 64: each value becomes a byte, its rank among the thresholds of its feature, and each split is tested for all
//! rows of a block at once (`planes`). Sums keep the order and the precision of the library version that wrote the file.

mod compile;
mod data;
pub(crate) mod error;
mod explain;
mod forest;
mod lightgbm;
pub(crate) mod onnx;
mod planes;
pub(crate) mod scalar;
mod xgboost;

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

pub use self::data::{EnsembleOutput, FeatureMatrix, FeatureValues, PredictedValues, Prediction};
pub use self::error::{LoadError, NoContributions, PredictError, TreeFault};
use self::forest::Forest;
use self::scalar::Scalar;
use crate::contributions::{ContributionTable, TableExtent};

/// A compiled model of either library.
#[derive(Debug)]
pub struct TreeEnsemble {
    features: usize,
    feature_names: Option<Vec<String>>,
    evaluator: Evaluator,
    /// Prepared by the first request for contributions.
    contributions: OnceLock<Result<ContributionTable, NoContributions>>,
    /// The most bytes of it.
    contribution_limit: usize,
}

/// The most bytes that are prepared for contributions, unless [`TreeEnsemble::set_contribution_limit`] sets another number.
pub const DEFAULT_CONTRIBUTION_LIMIT: usize = 1 << 30;

/// The class of the library's Python API that the model was saved from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WrapperKind {
    /// An `XGBRegressor`, or an `XGBoost` model that does not name its class: values, no probabilities.
    Regressor,
    /// An `XGBClassifier`: labels, and optionally probabilities.
    Classifier,
    /// A `LightGBM` booster, whose `predict` returns values or probabilities, depending on its objective.
    Booster,
}

#[derive(Debug)]
enum Evaluator {
    Xgboost(xgboost::Evaluator),
    Lightgbm(Box<lightgbm::Evaluator>),
}

impl TreeEnsemble {
    /// Loads an `XGBoost` model. Whether it is JSON, UBJSON or the old binary format is detected from the content.
    pub fn load_xgboost(bytes: &[u8]) -> Result<Self, LoadError> {
        let mut raw = xgboost::read(bytes)?;
        let features = raw.num_feature();
        let feature_names = raw.take_feature_names()?;
        let evaluator = Evaluator::Xgboost(xgboost::Evaluator::new(&raw, bytes.len())?);
        Ok(Self::new(features, feature_names, evaluator))
    }

    /// Loads an `XGBoost` model as this kind, overriding what the file says.
    pub fn load_xgboost_as(bytes: &[u8], kind: WrapperKind) -> Result<Self, LoadError> {
        let mut model = Self::load_xgboost(bytes)?;
        if let Evaluator::Xgboost(evaluator) = &mut model.evaluator {
            evaluator.set_kind(kind);
        }
        Ok(model)
    }

    /// Loads an `XGBoost` model as a booster, which predicts with all rounds and has no classes.
    pub fn load_xgboost_booster(bytes: &[u8]) -> Result<Self, LoadError> {
        let mut raw = xgboost::read(bytes)?;
        raw.forget_wrapper();
        let features = raw.num_feature();
        let feature_names = raw.take_feature_names()?;
        let evaluator = Evaluator::Xgboost(xgboost::Evaluator::new(&raw, bytes.len())?);
        Ok(Self::new(features, feature_names, evaluator))
    }

    /// Loads a `LightGBM` text model.
    pub fn load_lightgbm(bytes: &[u8]) -> Result<Self, LoadError> {
        Self::load_lightgbm_until(bytes, None)
    }

    /// Loads a `LightGBM` text model, of which at most this many rounds are used.
    pub fn load_lightgbm_until(bytes: &[u8], rounds: Option<usize>) -> Result<Self, LoadError> {
        let (evaluator, feature_names) = lightgbm::load(bytes, rounds)?;
        let features = feature_names.len();
        Ok(Self::new(features, Some(feature_names), Evaluator::Lightgbm(Box::new(evaluator))))
    }

    fn new(features: usize, feature_names: Option<Vec<String>>, evaluator: Evaluator) -> Self {
        let (contributions, contribution_limit) = (OnceLock::new(), DEFAULT_CONTRIBUTION_LIMIT);
        Self { features, feature_names, evaluator, contributions, contribution_limit }
    }

    /// Sets how many bytes may be prepared for contributions: about 110 for each split, and 50 for each split and point of the
    /// quadrature, of which there are half as many as a path has features. A model that needs more has no contributions.
    pub fn set_contribution_limit(&mut self, bytes: usize) {
        self.contribution_limit = bytes;
    }

    /// Checks quickly whether the model may have contributions.
    ///
    /// # Errors
    ///
    /// Names what it lacks. Covers of nodes and the limit are only checked by the first prediction of contributions.
    pub fn check_contributions(&self) -> Result<(), NoContributions> {
        match &self.evaluator {
            // A linear booster has the contributions in its weights.
            Evaluator::Xgboost(evaluator) => evaluator.forest().map_or(Ok(()), Forest::check_contributions),
            Evaluator::Lightgbm(evaluator) => evaluator.forest().check_contributions(),
        }
    }

    /// Returns whether contributions have been prepared, or need not be.
    pub fn has_prepared_contributions(&self) -> bool {
        let is_linear = matches!(&self.evaluator, Evaluator::Xgboost(evaluator) if evaluator.forest().is_err());
        is_linear || self.contributions.get().is_some()
    }

    /// Returns how many bytes contributions take once they are prepared, 0 if the model has none. Takes as long as preparing them.
    pub fn contribution_bytes(&self) -> usize {
        let (features, limit) = (self.features, self.contribution_limit);
        let table = match &self.evaluator {
            Evaluator::Xgboost(evaluator) => match evaluator.forest() {
                Ok(forest) => forest.contribution_table(features, limit, TableExtent::Bytes),
                Err(_) => return 0,
            },
            Evaluator::Lightgbm(evaluator) => {
                evaluator.forest().contribution_table(features, limit, TableExtent::Bytes)
            }
        };
        table.map_or(0, |table| table.bytes)
    }

    fn contribution_table<T: Scalar>(&self, forest: &Forest<T>) -> Result<&ContributionTable, NoContributions> {
        let (features, limit) = (self.features, self.contribution_limit);
        let table = self.contributions.get_or_init(|| forest.contribution_table(features, limit, TableExtent::Whole));
        table.as_ref().map_err(Clone::clone)
    }

    /// Returns the number of sums that a row has.
    pub fn n_outputs(&self) -> usize {
        match &self.evaluator {
            Evaluator::Xgboost(evaluator) => evaluator.n_outputs(),
            Evaluator::Lightgbm(evaluator) => evaluator.forest().outputs,
        }
    }

    /// Returns the number of features of a row.
    pub fn n_features(&self) -> usize {
        self.features
    }

    /// Returns the names of the features in order, if the file has them.
    pub fn feature_names(&self) -> Option<&[String]> {
        self.feature_names.as_deref()
    }

    /// Returns the version of `XGBoost` that wrote the file, as exactly as the file tells. `LightGBM` writes only that of its format.
    pub fn library_version(&self) -> Option<String> {
        match &self.evaluator {
            Evaluator::Xgboost(evaluator) => Some(evaluator.version().to_string()),
            Evaluator::Lightgbm(_) => None,
        }
    }

    /// Returns the class of the Python API.
    pub fn kind(&self) -> WrapperKind {
        match &self.evaluator {
            Evaluator::Xgboost(evaluator) => evaluator.kind(),
            Evaluator::Lightgbm(_) => WrapperKind::Booster,
        }
    }

    /// Estimates how long an output of this many rows takes on one thread, within a factor of a few.
    pub fn estimate(&self, rows: usize, output: EnsembleOutput) -> Duration {
        let nanoseconds = match (&self.evaluator, output) {
            (Evaluator::Xgboost(evaluator), EnsembleOutput::Contributions) => {
                evaluator.forest().map_or_else(|_| evaluator.cost(rows), |forest| forest.contribution_cost(rows))
            }
            (Evaluator::Lightgbm(evaluator), EnsembleOutput::Contributions) => {
                evaluator.forest().contribution_cost(rows)
            }
            (Evaluator::Xgboost(evaluator), _) => evaluator.cost(rows),
            (Evaluator::Lightgbm(evaluator), _) => evaluator.cost(rows),
        };
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Evaluates the model on every row.
    ///
    /// # Errors
    ///
    /// Fails if rows have another number of features, if the model lacks the output, or if the flag of
    /// [`FeatureMatrix::until`] is set. The first request for contributions prepares them.
    pub fn predict(&self, rows: FeatureMatrix<'_>, output: EnsembleOutput) -> Result<Prediction, PredictError> {
        if rows.columns() != self.features {
            return Err(PredictError::FeatureCount { expected: self.features, found: rows.columns() });
        }
        if rows.is_stopped() {
            return Err(PredictError::Cancelled);
        }
        let prediction = match (&self.evaluator, output) {
            (Evaluator::Xgboost(evaluator), EnsembleOutput::Predict) => Ok(evaluator.predict(rows)),
            (Evaluator::Xgboost(evaluator), EnsembleOutput::PredictProba) if self.kind() == WrapperKind::Classifier => {
                Ok(evaluator.probabilities(rows))
            }
            (Evaluator::Xgboost(evaluator), EnsembleOutput::Margin) => Ok(evaluator.margins(rows)),
            (Evaluator::Lightgbm(evaluator), EnsembleOutput::Predict) => Ok(evaluator.predict(rows)),
            (Evaluator::Lightgbm(evaluator), EnsembleOutput::Margin) => Ok(evaluator.margins(rows)),
            (Evaluator::Lightgbm(evaluator), EnsembleOutput::Contributions) => {
                Ok(evaluator.contributions(self.contribution_table(evaluator.forest())?, rows))
            }
            (Evaluator::Xgboost(evaluator), EnsembleOutput::Contributions) => match evaluator.forest() {
                Ok(forest) => Ok(evaluator.contributions(forest, self.contribution_table(forest)?, rows)),
                Err(linear) => Ok(xgboost::Evaluator::linear_contributions(linear, rows)),
            },
            (Evaluator::Lightgbm(evaluator), EnsembleOutput::Leaf) => Ok(evaluator.leaves(rows)),
            (Evaluator::Xgboost(evaluator), EnsembleOutput::Leaf) => {
                let forest = evaluator.forest().map_err(|_| PredictError::NoLeaves)?;
                Ok(xgboost::Evaluator::leaves(forest, rows))
            }
            (_, EnsembleOutput::PredictProba) => Err(PredictError::NoProbabilities { kind: self.kind() }),
        };
        if rows.is_stopped() { Err(PredictError::Cancelled) } else { prediction }
    }

    /// Returns the size in bytes of a row in the response with this output, or `None` if the model does not have it.
    pub fn row_bytes(&self, output: EnsembleOutput) -> Option<usize> {
        if output == EnsembleOutput::Contributions {
            // Known before they are prepared.
            let width =
                if matches!(self.evaluator, Evaluator::Xgboost(_)) { size_of::<f32>() } else { size_of::<f64>() };
            return self.features.checked_add(1)?.checked_mul(self.n_outputs())?.checked_mul(width);
        }
        // The columns of a prediction are known without any row.
        let none = FeatureMatrix::new(FeatureValues::F32(&[]), 0, self.features).ok()?;
        self.predict(none, output).ok().map(|prediction| prediction.row_width())
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
