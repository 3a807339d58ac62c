//! What all estimators have in common.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::concatenate;
use super::error::{PredictError, Unexplained};
use super::method::{EstimatorMethod, MethodSet};
use crate::table::{FloatMatrix, SparseRows, TableData};
use crate::trees::{EnsembleOutput, NoContributions, Prediction};

/// How many numbers of sparse rows are made dense at once (8 MiB).
const DENSE_CELLS: usize = 1 << 20;

/// The computation of one family of estimators.
pub(super) trait Evaluate: fmt::Debug + Send + Sync {
    /// Calls `method`, which the estimator has, for rows with as many features as it was fitted with.
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError>;

    /// Returns whether sparse rows are passed as they are. Otherwise, a few rows at a time are made dense.
    fn takes_sparse(&self) -> bool {
        false
    }

    /// Returns the value of cells that sparse rows do not store: zero, or NaN if they count as missing.
    fn absent(&self) -> f64 {
        0.0
    }

    /// Estimates the time for one row in nanoseconds on one thread, within a factor of a few.
    fn cost(&self) -> u64;

    /// Returns the names of the features of a library that takes the columns of a frame by position, and does not compare names.
    fn features_by_position(&self) -> Option<&[String]> {
        None
    }

    /// Returns the columns of the fit that a data frame may lack.
    fn unread_columns(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns what explains the predictions, and the estimator that it belongs to. `info` is that of this one.
    ///
    /// # Errors
    ///
    /// Says why there is nothing.
    fn explained<'a>(&'a self, _info: &'a EstimatorInfo) -> Result<(&'a dyn Explain, &'a EstimatorInfo), Unexplained> {
        Err(Unexplained::Class)
    }

    /// Sets how many bytes the contributions may be prepared with.
    fn limit_contributions(&mut self, _bytes: usize) {}

    /// Returns the inverse of the transformation, if it is supported.
    fn inverse(&self) -> Option<&dyn InverseTransform> {
        None
    }
}

/// What the contributions of an estimator add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContributionSpace {
    /// The sum of the trees, before a link makes probabilities or a prediction of it.
    Margin,
    /// The probabilities of the classes.
    Probability,
    /// The prediction.
    Prediction,
}

/// An estimator that explains its predictions. Its outputs are those of tree ensembles.
pub(super) trait Explain {
    fn space(&self) -> ContributionSpace;

    /// Returns how many features contribute.
    fn features(&self) -> usize;

    /// Returns how many sums a row has, to each of which the features contribute.
    fn sums(&self) -> usize;

    /// Returns how many rounds of trees there are, and how many trees a round has. `None` if leaves have no numbers.
    fn leaves(&self) -> Option<[usize; 2]>;

    /// Returns whether sums have single precision.
    fn is_single(&self) -> bool {
        false
    }

    /// Returns the names of the features, if it knows them better than its [`EstimatorInfo`] does.
    fn feature_names(&self) -> Option<&[String]> {
        None
    }

    /// Checks quickly whether there may be contributions.
    fn check(&self) -> Result<(), NoContributions>;

    /// Returns whether contributions have been prepared, or are known not to exist.
    fn is_prepared(&self) -> bool;

    /// Returns how many bytes contributions take once they are prepared, 0 if there are none. Takes as long as preparing them.
    fn contribution_bytes(&self) -> usize;

    /// Estimates the time for the contributions of a row in nanoseconds, within a factor of a few.
    fn cost(&self) -> u64;

    /// Evaluates contributions, margins or leaves. Contributions stop soon after `stop` is set, and are of no use then.
    fn explain(
        &self,
        output: EnsembleOutput,
        data: &TableData<'_>,
        info: &EstimatorInfo,
        stop: &AtomicBool,
    ) -> Result<Prediction, PredictError>;
}

/// The inverse of a transformation.
pub(super) trait InverseTransform {
    /// Undoes the transformation of rows with `columns` numbers, as many as the transformer returns.
    fn undo(&self, values: &mut [f64], columns: usize);
}

/// What errors and checks need to know about an estimator.
#[derive(Debug)]
pub(super) struct EstimatorInfo {
    /// The class without its module, such as `LogisticRegression`.
    pub(super) class: Arc<str>,
    /// The full path of the class, such as `sklearn.linear_model._logistic.LogisticRegression`.
    pub(super) path: Arc<str>,
    pub(super) features: Option<usize>,
    /// The names of the features, if the version that wrote the file checks them.
    pub(super) names: Option<Vec<String>>,
    pub(super) methods: MethodSet,
}

/// An estimator of any family.
#[derive(Debug)]
pub(super) struct Estimator {
    pub(super) info: EstimatorInfo,
    pub(super) evaluate: Box<dyn Evaluate>,
}

impl Estimator {
    /// Calls `method` for every row.
    pub(super) fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
    ) -> Result<TableData<'static>, PredictError> {
        if !self.info.methods.contains(method) {
            return Err(PredictError::Method { class: Arc::clone(&self.info.class), method });
        }
        self.info.check_columns(data)?;
        match data {
            TableData::Sparse(sparse) if !self.evaluate.takes_sparse() => self.call_dense(method, sparse),
            _ => self.evaluate.call(method, data, &self.info),
        }
    }

    /// Calls `method` for sparse rows. Only [`DENSE_CELLS`] numbers are made dense at once, to bound the memory.
    fn call_dense(&self, method: EstimatorMethod, sparse: &SparseRows) -> Result<TableData<'static>, PredictError> {
        let step = (DENSE_CELLS / sparse.columns().max(1)).max(1);
        let starts = (0..sparse.rows().max(1)).step_by(step);
        let parts = starts.map(|start| {
            let dense = sparse.filled(start..sparse.rows().min(start + step), self.evaluate.absent());
            self.evaluate.call(method, &TableData::Table(dense), &self.info)
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        Ok(concatenate::vstack(parts).unwrap_or_else(|| TableData::Sparse(sparse.clone())))
    }
}

impl EstimatorInfo {
    /// Checks the number of columns, and their names.
    pub(super) fn check_columns(&self, data: &TableData<'_>) -> Result<(), PredictError> {
        let class = || Arc::clone(&self.class);
        if let Some(wanted) = self.features
            && wanted != data.columns()
        {
            return Err(PredictError::Features { class: class(), wanted, found: data.columns() });
        }
        if let (Some(names), TableData::Frame(frame)) = (&self.names, data) {
            let mut pairs = names.iter().zip(&frame.names).enumerate();
            if let Some((index, (wanted, found))) = pairs.find(|(_, (wanted, found))| *wanted != found.as_ref()) {
                let (found, wanted) = (found.clone().into_owned(), wanted.clone());
                return Err(PredictError::FeatureName { class: class(), index, found, wanted });
            }
        }
        Ok(())
    }

    /// Creates the error for a model without contributions.
    pub(super) fn no_contributions(&self, error: NoContributions) -> PredictError {
        PredictError::NoContributions { class: Arc::clone(&self.class), error }
    }

    /// Checks that all numbers of sparse rows are finite.
    pub(super) fn finite_sparse(&self, sparse: &SparseRows) -> Result<(), PredictError> {
        if sparse.is_finite() { Ok(()) } else { Err(PredictError::NotFinite { class: Arc::clone(&self.class) }) }
    }

    /// Checks that the data consists of finite numbers.
    pub(super) fn check(&self, data: &TableData<'_>) -> Result<(), PredictError> {
        match data {
            TableData::Sparse(sparse) => self.finite_sparse(sparse),
            _ => self.finite(data).map(drop),
        }
    }

    /// Returns the data as finite numbers.
    pub(super) fn finite<'d>(&self, data: &'d TableData<'_>) -> Result<FloatMatrix<'d>, PredictError> {
        self.numbers(data, false)
    }

    /// Returns the data as numbers, some of which may be infinite or missing.
    pub(super) fn unchecked<'d>(&self, data: &'d TableData<'_>) -> Result<FloatMatrix<'d>, PredictError> {
        data.matrix().ok_or_else(|| PredictError::Text { class: Arc::clone(&self.class) })
    }

    /// Returns the data as numbers that are not infinite and, unless `nan` is set, not missing.
    pub(super) fn numbers<'d>(&self, data: &'d TableData<'_>, nan: bool) -> Result<FloatMatrix<'d>, PredictError> {
        let matrix = self.unchecked(data)?;
        self.check_finite(&matrix, nan)?;
        Ok(matrix)
    }

    /// Checks that numbers are not infinite and, unless `nan` is set, not missing.
    pub(super) fn check_finite(&self, matrix: &FloatMatrix<'_>, nan: bool) -> Result<(), PredictError> {
        if matrix.is_finite(nan) { Ok(()) } else { Err(PredictError::NotFinite { class: Arc::clone(&self.class) }) }
    }
}
