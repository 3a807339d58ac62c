//! scikit-learn's estimators, evaluated natively.
//!
//! A [`FittedEstimator`] is loaded from the bytes of a pickle, joblib or skops file and makes predictions from tables of
//! numbers or data frames. It knows nothing about requests. Each module of scikit-learn has a module here, with a table
//! of its classes (see `classes`), that reads the attributes of the estimators and computes. Predictions are those of
//! the scikit-learn version that wrote the file; what cannot be reproduced exactly is rejected by name.
//!
//! Each family reads fitted attributes through `fitted`, whose errors name class and attribute, and implements `Evaluate`.
//! `estimator` checks methods, features and names of columns once for all of them. The results of nested estimators are
//! checked when they are used (`sub_estimators`). Trees are walked by eight rows, or eight trees by one row, in lockstep;
//! loops over numbers run with the processor's widest instructions (`wide`), in the same order and with the same
//! rounding.
//!
//! Files are untrusted: loading any file returns a model or a [`LoadError`], with memory in proportion to the size of
//! the file, and every method of a loaded model can be called safely. A budget limits the expansion of objects that are
//! referenced many times.

mod boosters;
mod calibration;
mod classes;
mod cluster;
mod compose;
mod concatenate;
mod covariance;
mod cross_decomposition;
mod decomposition;
mod delegate;
mod discriminant_analysis;
mod dummy;
mod ensemble;
mod error;
mod estimator;
mod explain;
mod feature_extraction;
mod feature_selection;
mod fitted;
mod frozen;
mod gaussian_process;
mod impute;
mod inspect;
mod isotonic;
mod kernel_approximation;
mod kernel_ridge;
mod kernels;
mod latent_dirichlet;
mod linear_model;
mod manifold;
mod method;
mod mixture;
mod model_selection;
mod multiclass;
mod multioutput;
mod naive_bayes;
mod neighbors;
mod neural_network;
mod numerics;
mod numpy_functions;
mod pipeline;
mod preprocessing;
mod random_projection;
mod semi_supervised;
mod spec;
mod sub_estimators;
mod svm;
mod tree;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;

pub use self::error::{LoadError, PredictError, Unexplained};
pub use self::estimator::ContributionSpace;
use self::estimator::{Estimator, EstimatorInfo, Explain};
use self::fitted::{LoadBudget, LoadContext};
pub use self::inspect::{ArtifactReport, ExampleValue};
pub use self::method::{EstimatorMethod, MethodSet};
pub(crate) use self::numerics::erf;
use crate::pickle::{self, Pickle, PickleValue};
use crate::skops;
use crate::table::TableData;
use crate::trees::{EnsembleOutput, Prediction};

/// The estimated time between two checks whether a call is to stop. Shorter calls are not divided: joining the blocks copies
/// the results.
const BLOCK: Duration = Duration::from_millis(50);

/// How an estimator explains its predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EstimatorExplanation {
    /// What contributions add up to.
    pub space: ContributionSpace,
    /// How many features contribute.
    pub features: usize,
    /// To how many sums of a row the features contribute.
    pub sums: usize,
    /// How many rounds of trees there are, and how many trees a round has. `None` if leaves have no numbers.
    pub leaves: Option<[usize; 2]>,
    /// Whether contributions and margins have single precision.
    pub is_single: bool,
}

/// A loaded estimator.
#[derive(Debug)]
pub struct FittedEstimator {
    root: Estimator,
}

impl FittedEstimator {
    /// Loads a file that `pickle`, `joblib` or `skops` wrote.
    ///
    /// # Errors
    ///
    /// Returns a [`LoadError`] if the file is damaged, or contains something that is not evaluated natively.
    pub fn load(file: Bytes) -> Result<Self, LoadError> {
        let pickle = read(file)?;
        let budget = LoadBudget::new(pickle.bytes());
        let context = LoadContext { budget: &budget, load: classes::estimator, depth: 0 };
        let root = classes::estimator(pickle.root(), context, None)?;
        let answers_frames = root.info.methods.contains(EstimatorMethod::Transform);
        if let Some(library) = frames(pickle.root()).filter(|_| answers_frames) {
            let (class, value) = (root.info.path.to_string(), library.to_owned());
            return Err(LoadError::Parameter { class, parameter: "set_output", value });
        }
        Ok(Self { root })
    }

    /// Returns the full path of the class, such as `sklearn.linear_model._logistic.LogisticRegression`.
    pub fn class_path(&self) -> &str {
        &self.root.info.path
    }

    /// Returns how many features a row has, or `None` if any number is accepted.
    pub const fn n_features(&self) -> Option<usize> {
        self.root.info.features
    }

    /// Returns the names of the features of a `LightGBM` model, which takes the columns of a frame by position.
    pub fn features_by_position(&self) -> Option<&[String]> {
        self.root.evaluate.features_by_position()
    }

    /// Returns the columns of the fit that a data frame may lack, because the model drops them.
    pub fn unread_columns(&self) -> Vec<String> {
        self.root.evaluate.unread_columns()
    }

    /// Returns the names of the features, if the version that wrote the file checks them.
    pub fn feature_names(&self) -> Option<&[String]> {
        self.root.info.names.as_deref()
    }

    /// Returns the methods that can be called.
    pub const fn methods(&self) -> MethodSet {
        self.root.info.methods
    }

    /// Estimates how long a call with this many rows takes on one thread, within a factor of a few.
    pub fn estimate(&self, rows: usize) -> Duration {
        let rows = u64::try_from(rows).unwrap_or(u64::MAX);
        Duration::from_nanos(self.root.evaluate.cost().saturating_mul(rows))
    }

    /// Calls `method` for every row.
    ///
    /// # Errors
    ///
    /// Fails if the model does not have the method, or cannot take the data.
    pub fn call(&self, method: EstimatorMethod, data: &TableData<'_>) -> Result<TableData<'static>, PredictError> {
        self.root.call(method, data)
    }

    /// Calls `method` for every row, and stops soon after `stop` is set.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::call`] does, and with [`PredictError::Cancelled`] if it stops.
    pub fn call_until(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        stop: &AtomicBool,
    ) -> Result<TableData<'static>, PredictError> {
        self.call_in_blocks(method, data, self.block(), stop)
    }

    /// Returns how many rows are evaluated between two checks whether a call is to stop.
    fn block(&self) -> usize {
        let nanoseconds = usize::try_from(BLOCK.as_nanos()).unwrap_or(usize::MAX);
        (nanoseconds / usize::try_from(self.root.evaluate.cost()).unwrap_or(usize::MAX).max(1)).max(1)
    }

    /// Calls `method` for at most `block` rows at a time, and stops before the next ones when `stop` is set.
    ///
    /// # Errors
    ///
    /// See [`Self::call_until`].
    pub fn call_in_blocks(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        block: usize,
        stop: &AtomicBool,
    ) -> Result<TableData<'static>, PredictError> {
        let (rows, block) = (data.rows(), block.max(1));
        if rows <= block {
            return self.call(method, data);
        }
        let mut parts = Vec::with_capacity(rows.div_ceil(block));
        for start in (0..rows).step_by(block) {
            if stop.load(Ordering::Relaxed) {
                return Err(PredictError::Cancelled);
            }
            parts.push(self.call(method, &data.range(start..rows.min(start + block)))?);
        }
        match concatenate::vstack(parts) {
            Some(whole) if whole.rows() == rows => Ok(whole),
            // The blocks had different types.
            _ => self.call(method, data),
        }
    }

    /// Returns how predictions are explained, which takes contributions, margins and leaves.
    ///
    /// # Errors
    ///
    /// Says why they are not. What an output needs beside that is checked by [`Self::explain`].
    pub fn explanation(&self) -> Result<EstimatorExplanation, Unexplained> {
        let (explained, _) = self.root.evaluate.explained(&self.root.info)?;
        Ok(EstimatorExplanation {
            space: explained.space(),
            features: explained.features(),
            sums: explained.sums(),
            leaves: explained.leaves(),
            is_single: explained.is_single(),
        })
    }

    /// Checks quickly whether the model may have contributions.
    ///
    /// # Errors
    ///
    /// Names what it lacks. The covers of nodes and the limit are only checked by the first contributions.
    pub fn check_contributions(&self) -> Result<(), PredictError> {
        let (explained, info) = self.explained(EnsembleOutput::Contributions)?;
        explained.check().map_err(|error| info.no_contributions(error))
    }

    /// Checks whether the model has an output of explanations.
    ///
    /// # Errors
    ///
    /// Says why it has not.
    pub fn check_explained(&self, output: EnsembleOutput) -> Result<(), PredictError> {
        let (explained, info) = self.explained(output)?;
        match output {
            EnsembleOutput::Leaf if explained.leaves().is_none() => {
                Err(PredictError::NoLeaves { class: Arc::clone(&info.class) })
            }
            _ => Ok(()),
        }
    }

    /// Returns the names of the features that contribute, if the file has them.
    pub fn explained_names(&self) -> Option<&[String]> {
        let (explained, info) = self.root.evaluate.explained(&self.root.info).ok()?;
        explained.feature_names().or(info.names.as_deref())
    }

    /// Sets how many bytes may be prepared for contributions: see
    /// [`TreeEnsemble::set_contribution_limit`](crate::trees::TreeEnsemble::set_contribution_limit).
    pub fn set_contribution_limit(&mut self, bytes: usize) {
        self.root.evaluate.limit_contributions(bytes);
    }

    /// Returns whether contributions have been prepared, or are known not to exist.
    pub fn has_prepared_contributions(&self) -> bool {
        let explained = self.root.evaluate.explained(&self.root.info);
        explained.map_or(true, |(explained, _)| explained.is_prepared())
    }

    /// Returns how many bytes contributions take once they are prepared, 0 if the model has none. Takes as long as preparing them.
    pub fn contribution_bytes(&self) -> usize {
        let explained = self.root.evaluate.explained(&self.root.info);
        explained.map_or(0, |(explained, _)| explained.contribution_bytes())
    }

    /// Estimates how long an output of explanations with this many rows takes on one thread, within a factor of a few.
    pub fn estimate_explained(&self, rows: usize, output: EnsembleOutput) -> Duration {
        match self.root.evaluate.explained(&self.root.info) {
            Ok((explained, _)) if output == EnsembleOutput::Contributions => {
                Duration::from_nanos(explained.cost().saturating_mul(u64::try_from(rows).unwrap_or(u64::MAX)))
            }
            _ => self.estimate(rows),
        }
    }

    /// Evaluates contributions, margins or leaves of every row, and stops soon after `stop` is set. The first contributions prepare the
    /// model for them.
    ///
    /// # Errors
    ///
    /// Fails if the model does not have the output, or cannot take the data, and with [`PredictError::Cancelled`] if it stops.
    pub fn explain(
        &self,
        output: EnsembleOutput,
        data: &TableData<'_>,
        stop: &AtomicBool,
    ) -> Result<Prediction, PredictError> {
        let (explained, info) = self.explained(output)?;
        self.root.info.check_columns(data)?;
        info.check_columns(data)?;
        // Contributions look at `stop` themselves.
        let block = if output == EnsembleOutput::Contributions { usize::MAX } else { self.block() };
        let check = || if stop.load(Ordering::Relaxed) { Err(PredictError::Cancelled) } else { Ok(()) };
        check()?;
        let mut found = explained.explain(output, &data.range(0..data.rows().min(block)), info, stop)?;
        let mut start = block;
        while start < data.rows() {
            check()?;
            let end = data.rows().min(start.saturating_add(block));
            found.append(explained.explain(output, &data.range(start..end), info, stop)?);
            start = end;
        }
        check()?;
        Ok(found)
    }

    fn explained(&self, output: EnsembleOutput) -> Result<(&dyn Explain, &EstimatorInfo), PredictError> {
        let output = match output {
            EnsembleOutput::Margin => "margin",
            EnsembleOutput::Leaf => "leaf",
            _ => "contributions",
        };
        let root = &self.root.info;
        let refused = |reason| PredictError::Unexplained { class: Arc::clone(&root.class), output, reason };
        self.root.evaluate.explained(root).map_err(refused)
    }

    /// Returns the size in bytes of a row in the response to `method`, if all its values are sent: a sparse result counts with its
    /// zeros, and a text as 64 bytes. `data` is a request; only the types and names of its columns matter.
    ///
    /// Returns `None` if the model rejects the columns.
    pub fn row_bytes(&self, method: EstimatorMethod, data: &TableData<'_>) -> Option<usize> {
        // The columns of a result are known without any row.
        self.call(method, &data.range(0..0)).ok().map(|result| result.row_width())
    }
}

/// Reads a file of any format as data. Its name does not matter.
fn read(file: Bytes) -> Result<Pickle, LoadError> {
    if skops::is_archive(&file) { Ok(skops::read(file)?) } else { Ok(pickle::read(file)?) }
}

/// Returns the library of the data frames that an estimator transforms to, if `set_output` requests one.
fn frames(mut estimator: PickleValue<'_>) -> Option<&str> {
    // A pipeline transforms as its last step, a search as its best estimator. The nesting was limited when they were
    // built.
    while let Some(inner) = estimator.attribute("best_estimator_").or_else(|| last_step(estimator)) {
        estimator = inner;
    }
    let library = estimator.attribute("_sklearn_output_config")?.get("transform")?.as_str()?;
    Some(library).filter(|library| *library != "default")
}

/// Returns the last step of a pipeline that is an estimator.
fn last_step(pipeline: PickleValue<'_>) -> Option<PickleValue<'_>> {
    let steps = pipeline.attribute("steps")?.items()?.into_iter().rev();
    steps.filter_map(|step| step.items()?.get(1).copied()).find(|step| step.class().is_some())
}
