//! What all estimators have in common.

use std::fmt;
use std::sync::Arc;

use super::concatenate;
use super::data::{Data, Matrix};
use super::error::PredictError;
use super::sparse::Sparse;

/// How many numbers of sparse rows are made dense at once: 8 MiB.
const DENSE_CELLS: usize = 1 << 20;

/// What an estimator can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Predict,
    PredictProba,
    DecisionFunction,
    Transform,
}

impl Method {
    pub const ALL: [Self; 4] = [Self::Predict, Self::PredictProba, Self::DecisionFunction, Self::Transform];

    /// Returns the name of the method in Python, and of the output in requests.
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

/// A set of methods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Methods(u8);

impl Methods {
    pub(super) const NONE: Self = Self(0);
    pub(super) const PREDICT: Self = Self::NONE.and(Method::Predict);
    pub(super) const TRANSFORM: Self = Self::NONE.and(Method::Transform);

    /// The set with one method more.
    pub(super) const fn and(self, method: Method) -> Self {
        Self(self.0 | method.bit())
    }

    /// The set with one method more, if `there`.
    pub(super) const fn and_if(self, there: bool, method: Method) -> Self {
        if there { self.and(method) } else { self }
    }

    pub const fn contains(self, method: Method) -> bool {
        self.0 & method.bit() != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Method> {
        Method::ALL.into_iter().filter(move |&method| self.contains(method))
    }
}

/// The arithmetic of one family of estimators.
pub(super) trait Evaluate: fmt::Debug + Send + Sync {
    /// Answers `method`, one of those that the estimator has, for rows of as many features as it was fitted with.
    fn call(&self, method: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError>;

    /// Whether sparse rows are taken as they are; others get them a few at a time, with all their zeros.
    fn takes_sparse(&self) -> bool {
        false
    }

    /// What stands for the numbers that sparse rows do not have: zero, or NaN where these count as missing.
    fn absent(&self) -> f64 {
        0.0
    }

    /// Estimates the work for one row, in nanoseconds on one thread, within a factor of a few.
    fn cost(&self) -> u64;

    /// How a transformation is undone, where that is known.
    fn inverse(&self) -> Option<&dyn Inverse> {
        None
    }
}

/// The way back from what a transformer answers.
pub(super) trait Inverse {
    /// Undoes the transformation of rows of so many numbers, as many as the transformer answers.
    fn undo(&self, values: &mut [f64], columns: usize);
}

/// What an estimator says about itself.
#[derive(Debug)]
pub(super) struct About {
    /// The class without its module: `LogisticRegression`.
    pub(super) class: Arc<str>,
    /// The class in full: `sklearn.linear_model._logistic.LogisticRegression`.
    pub(super) path: Arc<str>,
    pub(super) features: Option<usize>,
    /// What the features were called, if this matters to the version that wrote the file.
    pub(super) names: Option<Vec<String>>,
    pub(super) methods: Methods,
}

/// An estimator of any family.
#[derive(Debug)]
pub(super) struct Estimator {
    pub(super) about: About,
    pub(super) evaluate: Box<dyn Evaluate>,
}

impl Estimator {
    /// Answers `method` for every row.
    pub(super) fn call(&self, method: Method, data: &Data<'_>) -> Result<Data<'static>, PredictError> {
        let class = || Arc::clone(&self.about.class);
        if !self.about.methods.contains(method) {
            return Err(PredictError::Method { class: class(), method });
        }
        if let Some(wanted) = self.about.features
            && wanted != data.columns()
        {
            return Err(PredictError::Features { class: class(), wanted, found: data.columns() });
        }
        if let (Some(names), Data::Frame(frame)) = (&self.about.names, data) {
            let mut pairs = names.iter().zip(&frame.names).enumerate();
            if let Some((index, (wanted, found))) = pairs.find(|(_, (wanted, found))| *wanted != found.as_ref()) {
                let (found, wanted) = (found.clone().into_owned(), wanted.clone());
                return Err(PredictError::FeatureName { class: class(), index, found, wanted });
            }
        }
        match data {
            Data::Sparse(sparse) if !self.evaluate.takes_sparse() => self.call_dense(method, sparse),
            _ => self.evaluate.call(method, data, &self.about),
        }
    }

    /// Answers for sparse rows, of which only so many are made dense at once as memory is good for.
    fn call_dense(&self, method: Method, sparse: &Sparse) -> Result<Data<'static>, PredictError> {
        let step = (DENSE_CELLS / sparse.columns().max(1)).max(1);
        let starts = (0..sparse.rows().max(1)).step_by(step);
        let parts = starts.map(|start| {
            let dense = sparse.filled(start..sparse.rows().min(start + step), self.evaluate.absent());
            self.evaluate.call(method, &Data::Table(dense), &self.about)
        });
        let parts = parts.collect::<Result<Vec<_>, _>>()?;
        Ok(concatenate::below(parts).unwrap_or_else(|| Data::Sparse(sparse.clone())))
    }
}

impl About {
    /// Checks that numbers of sparse rows are finite.
    pub(super) fn finite_sparse(&self, sparse: &Sparse) -> Result<(), PredictError> {
        if sparse.is_finite() { Ok(()) } else { Err(PredictError::NotFinite { class: Arc::clone(&self.class) }) }
    }

    /// Checks that the data is finite numbers.
    pub(super) fn check(&self, data: &Data<'_>) -> Result<(), PredictError> {
        match data {
            Data::Sparse(sparse) => self.finite_sparse(sparse),
            _ => self.finite(data).map(drop),
        }
    }

    /// The data as finite numbers.
    pub(super) fn finite<'d>(&self, data: &'d Data<'_>) -> Result<Matrix<'d>, PredictError> {
        self.numbers(data, false)
    }

    /// The data as numbers of which some may be infinite or missing.
    pub(super) fn unchecked<'d>(&self, data: &'d Data<'_>) -> Result<Matrix<'d>, PredictError> {
        data.matrix().ok_or_else(|| PredictError::Text { class: Arc::clone(&self.class) })
    }

    /// The data as numbers that are not infinite, and not missing either unless `nan`.
    pub(super) fn numbers<'d>(&self, data: &'d Data<'_>, nan: bool) -> Result<Matrix<'d>, PredictError> {
        let matrix = self.unchecked(data)?;
        self.check_finite(&matrix, nan)?;
        Ok(matrix)
    }

    /// Checks that numbers are not infinite, and not missing either unless `nan`.
    pub(super) fn check_finite(&self, matrix: &Matrix<'_>, nan: bool) -> Result<(), PredictError> {
        if matrix.is_finite(nan) { Ok(()) } else { Err(PredictError::NotFinite { class: Arc::clone(&self.class) }) }
    }
}
