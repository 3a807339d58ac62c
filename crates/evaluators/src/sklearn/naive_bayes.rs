//! Naive Bayes: the log-likelihood of each class is a sum over features.

use std::sync::Arc;

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{affine, argmax, exp_normalize, transpose};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, TableData};

pub(super) const CLASSES: ClassTable = &[
    ("naive_bayes.BernoulliNB", bernoulli),
    ("naive_bayes.CategoricalNB", categorical),
    ("naive_bayes.ComplementNB", complement),
    ("naive_bayes.GaussianNB", gaussian),
    ("naive_bayes.MultinomialNB", multinomial),
];

#[derive(Debug)]
struct NaiveBayes {
    likelihood: Likelihood,
    labels: Elements<'static>,
    features: usize,
}

#[derive(Debug)]
enum Likelihood {
    /// Means and variances, one row for each class, and the terms that do not depend on the input.
    Gaussian { means: Vec<f64>, variances: Vec<f64>, constants: Vec<f64> },
    /// A weight for each feature and class, and a constant for each class. Inputs may be compared with a threshold
    /// first.
    Linear { weights: Vec<f64>, constants: Vec<f64>, binarize: Option<f64> },
    /// For each feature, a row of logarithms for each category. Inputs are the numbers of categories.
    Categories { tables: Vec<Vec<f64>>, constants: Vec<f64> },
}

fn family(fitted: &FittedObject<'_>, likelihood: Likelihood, features: usize) -> Result<EstimatorSpec, LoadError> {
    let labels = fitted.labels("classes_")?;
    let classes = match &likelihood {
        Likelihood::Gaussian { constants, .. }
        | Likelihood::Linear { constants, .. }
        | Likelihood::Categories { constants, .. } => constants.len(),
    };
    fitted.check_count("classes_", classes, labels.len())?;
    if features == 0 || classes == 0 {
        return Err(fitted.unexpected("classes_", "at least one class and feature"));
    }
    let methods = MethodSet::PREDICT.with(EstimatorMethod::PredictProba);
    Ok(EstimatorSpec::new(methods, features, NaiveBayes { likelihood, labels, features }))
}

fn gaussian(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let means = fitted.matrix("theta_")?;
    let name = if fitted.get("var_").is_some() { "var_" } else { "sigma_" };
    let variances = fitted.floats_of(name, means.values.len())?;
    let prior = fitted.floats_of("class_prior_", means.rows)?;
    let constant = |(prior, variances): (&f64, &[f64])| {
        let logs: f64 = variances.iter().map(|variance| (std::f64::consts::TAU * variance).ln()).sum();
        prior.ln() - 0.5 * logs
    };
    let constants = prior.iter().zip(variances.chunks(means.columns.max(1))).map(constant).collect();
    family(fitted, Likelihood::Gaussian { means: means.values, variances, constants }, means.columns)
}

fn multinomial(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let logs = fitted.matrix("feature_log_prob_")?;
    let constants = fitted.floats_of("class_log_prior_", logs.rows)?;
    let weights = transpose(&logs.values, logs.rows, logs.columns);
    family(fitted, Likelihood::Linear { weights, constants, binarize: None }, logs.columns)
}

fn complement(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let logs = fitted.matrix("feature_log_prob_")?;
    let prior = fitted.floats_of("class_log_prior_", logs.rows)?;
    // With more than one class the prior is ignored.
    let constants = if logs.rows == 1 { prior } else { vec![0.0; logs.rows] };
    let weights = transpose(&logs.values, logs.rows, logs.columns);
    family(fitted, Likelihood::Linear { weights, constants, binarize: None }, logs.columns)
}

fn bernoulli(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let logs = fitted.matrix("feature_log_prob_")?;
    let prior = fitted.floats_of("class_log_prior_", logs.rows)?;
    let binarize = match fitted.get("binarize") {
        Some(_) => Some(fitted.number("binarize")?),
        None => None,
    };
    let absent: Vec<f64> = logs.values.iter().map(|log| (1.0 - log.exp()).ln()).collect();
    let sums = absent.chunks(logs.columns.max(1)).map(|row| row.iter().sum::<f64>());
    let constants = prior.iter().zip(sums).map(|(prior, sum)| prior + sum).collect();
    let differences: Vec<f64> = logs.values.iter().zip(&absent).map(|(present, absent)| present - absent).collect();
    let weights = transpose(&differences, logs.rows, logs.columns);
    family(fitted, Likelihood::Linear { weights, constants, binarize }, logs.columns)
}

fn categorical(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let constants = fitted.floats("class_log_prior_")?;
    let table = |value| {
        let logs = fitted.matrix_of("feature_log_prob_", value)?;
        fitted.check_count("feature_log_prob_", constants.len(), logs.rows)?;
        Ok(transpose(&logs.values, logs.rows, logs.columns))
    };
    let tables = fitted.items("feature_log_prob_")?.into_iter().map(table).collect::<Result<Vec<_>, LoadError>>()?;
    let features = tables.len();
    family(fitted, Likelihood::Categories { tables, constants }, features)
}

/// Returns the log-likelihood of each class for the categories of each row.
fn of_categories(
    tables: &[Vec<f64>],
    constants: &[f64],
    x: &[f64],
    info: &EstimatorInfo,
) -> Result<Vec<f64>, PredictError> {
    let classes = constants.len();
    let mut logs = Vec::with_capacity(x.len() / tables.len() * classes);
    for row in x.chunks_exact(tables.len()) {
        let first = logs.len();
        logs.resize(first + classes, 0.0);
        for (column, (&value, table)) in row.iter().zip(tables).enumerate() {
            // As in the original, numbers are truncated to integers.
            #[expect(clippy::cast_possible_truncation, reason = "numbers out of range are not in the table either")]
            let category = usize::try_from(value as i64).ok();
            let start = category.and_then(|category| category.checked_mul(classes));
            let known = start.and_then(|start| table.get(start..start.checked_add(classes)?));
            let known =
                known.ok_or_else(|| PredictError::UnknownCategory { class: Arc::clone(&info.class), column })?;
            logs[first..].iter_mut().zip(known).for_each(|(sum, log)| *sum += log);
        }
        logs[first..].iter_mut().zip(constants).for_each(|(sum, constant)| *sum += constant);
    }
    Ok(logs)
}

impl Likelihood {
    /// Returns the log-likelihood of each class for each row.
    fn logs(&self, x: &[f64], features: usize, info: &EstimatorInfo) -> Result<Vec<f64>, PredictError> {
        Ok(match self {
            Self::Categories { tables, constants } => of_categories(tables, constants, x, info)?,
            Self::Gaussian { means, variances, constants } => {
                let mut logs = Vec::with_capacity(x.len() / features * constants.len());
                for row in x.chunks_exact(features) {
                    let classes = means.chunks_exact(features).zip(variances.chunks_exact(features)).zip(constants);
                    logs.extend(classes.map(|((means, variances), constant)| {
                        let terms = row.iter().zip(means).zip(variances);
                        constant - 0.5 * terms.map(|((x, mean), var)| (x - mean) * (x - mean) / var).sum::<f64>()
                    }));
                }
                logs
            }
            Self::Linear { weights, constants, binarize: None } => affine(x, features, weights, constants),
            Self::Linear { weights, constants, binarize: Some(threshold) } => {
                let binary: Vec<f64> = x.iter().map(|x| f64::from(u8::from(x > threshold))).collect();
                affine(&binary, features, weights, constants)
            }
        })
    }
}

impl Evaluate for NaiveBayes {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let mut logs = match (data, &self.likelihood) {
            (TableData::Sparse(sparse), Likelihood::Linear { weights, constants, binarize }) => {
                info.finite_sparse(sparse)?;
                match binarize {
                    None => sparse.affine(weights, constants),
                    Some(threshold) => {
                        sparse.map(sparse.numeric(), |x| f64::from(u8::from(x > *threshold))).affine(weights, constants)
                    }
                }
            }
            _ => self.likelihood.logs(&info.finite(data)?.to_f64(), self.features, info)?,
        };
        let classes = self.labels.len();
        if method == EstimatorMethod::Predict {
            return Ok(TableData::Table(DenseTable::of_column(
                self.labels.take(logs.chunks_exact(classes).map(argmax)),
            )));
        }
        for row in logs.chunks_exact_mut(classes) {
            exp_normalize(row);
        }
        Ok(TableData::Table(DenseTable::of_f64(logs, classes)))
    }

    fn takes_sparse(&self) -> bool {
        // If the threshold is negative, zeros exceed it, too.
        matches!(&self.likelihood, Likelihood::Linear { binarize, .. } if binarize.is_none_or(|threshold| threshold >= 0.0))
    }

    fn cost(&self) -> u64 {
        50 + 2 * (self.features * self.labels.len()) as u64
    }
}
