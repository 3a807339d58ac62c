//! scikit-learn's estimators, evaluated natively.
//!
//! A [`FittedEstimator`] is made from the bytes of a pickle or joblib file and answers tables of numbers or data frames; requests are
//! other modules' business. `classes` lists what is evaluated; each family has a module that reads the attributes of its
//! classes and computes. An artifact answers as the version of scikit-learn that wrote it would have. What cannot be
//! answered so is refused by name.
//!
//! Files are untrusted: whatever they hold, loading ends in a model or in a [`LoadError`], with memory in proportion to the
//! file's size, and a model that has loaded can be asked for anything.

mod boosters;
mod calibration;
mod classes;
mod cluster;
mod compose;
mod concatenate;
mod data;
mod decomposition;
mod delegate;
mod discriminant_analysis;
mod ensemble;
mod error;
mod estimator;
mod feature_extraction;
mod feature_selection;
mod fitted;
mod frozen;
mod impute;
mod inspect;
mod isotonic;
mod linear_model;
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
mod semi_supervised;
mod sparse;
mod sub_estimators;
mod svm;
mod tree;

use std::time::Duration;

use bytes::Bytes;

pub use self::data::{DataFrame, DenseTable, Elements, IntType, TableData};
pub use self::error::{LoadError, PredictError};
use self::estimator::Estimator;
pub use self::estimator::{EstimatorMethod, MethodSet};
use self::fitted::{LoadBudget, LoadContext};
pub use self::inspect::ArtifactReport;
pub use self::sparse::{NumericType, SparseRows};
use crate::pickle::{self, PickleValue};

/// A loaded estimator.
#[derive(Debug)]
pub struct FittedEstimator {
    root: Estimator,
}

impl FittedEstimator {
    /// Loads what `pickle` or `joblib` wrote.
    ///
    /// # Errors
    ///
    /// [`LoadError`] says where the file is damaged, or names what is not evaluated natively.
    pub fn load(file: Bytes) -> Result<Self, LoadError> {
        let pickle = pickle::read(file)?;
        let budget = LoadBudget::new(pickle.bytes());
        let context = LoadContext { budget: &budget, depth: 0 };
        let root = classes::estimator(pickle.root(), context, None)?;
        let answers_frames = root.info.methods.contains(EstimatorMethod::Transform);
        if let Some(library) = frames(pickle.root()).filter(|_| answers_frames) {
            let (class, value) = (root.info.path.to_string(), library.to_owned());
            return Err(LoadError::Parameter { class, parameter: "set_output", value });
        }
        Ok(Self { root })
    }

    /// The class in full, such as `sklearn.linear_model._logistic.LogisticRegression`.
    pub fn class_path(&self) -> &str {
        &self.root.info.path
    }

    /// How many features a row has, where that matters.
    pub const fn n_features(&self) -> Option<usize> {
        self.root.info.features
    }

    /// What the model can be asked for.
    pub const fn methods(&self) -> MethodSet {
        self.root.info.methods
    }

    /// Estimates how long the answer for so many rows takes on one thread, within a factor of a few.
    pub fn estimate(&self, rows: usize) -> Duration {
        let rows = u64::try_from(rows).unwrap_or(u64::MAX);
        Duration::from_nanos(self.root.evaluate.cost().saturating_mul(rows))
    }

    /// Answers `method` for every row.
    ///
    /// # Errors
    ///
    /// Fails when the model does not have the method, or cannot take the data.
    pub fn call(&self, method: EstimatorMethod, data: &TableData<'_>) -> Result<TableData<'static>, PredictError> {
        self.root.call(method, data)
    }
}

/// The library of the data frames that `set_output` makes of what an estimator transforms, if it was asked to.
fn frames(mut estimator: PickleValue<'_>) -> Option<&str> {
    // Pipelines transform as their last step does, searches as the best estimator. The nesting is limited where they are built.
    while let Some(inner) = estimator.attribute("best_estimator_").or_else(|| last_step(estimator)) {
        estimator = inner;
    }
    let library = estimator.attribute("_sklearn_output_config")?.get("transform")?.as_str()?;
    Some(library).filter(|library| *library != "default")
}

/// The last step of a pipeline that is an estimator.
fn last_step(pipeline: PickleValue<'_>) -> Option<PickleValue<'_>> {
    let steps = pipeline.attribute("steps")?.items()?.into_iter().rev();
    steps.filter_map(|step| step.items()?.get(1).copied()).find(|step| step.class().is_some())
}
