//! Topics of documents: `LatentDirichletAllocation`.

use std::sync::Arc;

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::transpose;
use super::spec::EstimatorSpec;
use crate::table::{DenseTable, TableData};

/// The most iterations for a row. Files that ask for more may be damaged.
const MOST_ITERATIONS: usize = 100_000;

/// How often words occur in each topic, and how the topics of a document are found.
#[derive(Debug)]
struct LatentDirichlet {
    /// For each feature, one number for each topic.
    words: Vec<f64>,
    topics: usize,
    features: usize,
    prior: f64,
    iterations: usize,
    /// The mean change of a document's topics below which the iteration ends.
    tolerance: f64,
}

/// Loads `LatentDirichletAllocation` in double precision.
pub(super) fn load(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let words = fitted.double_matrix("exp_dirichlet_component_")?;
    let components = fitted.double_matrix("components_")?;
    let (topics, features) = (words.rows, words.columns);
    if topics == 0 || features == 0 {
        return Err(fitted.unexpected("exp_dirichlet_component_", "at least one topic and feature"));
    }
    fitted.check_count("components_", topics, components.rows)?;
    let iterations = fitted.size("max_doc_update_iter")?;
    if iterations > MOST_ITERATIONS {
        return Err(fitted.unsupported("max_doc_update_iter"));
    }
    let (prior, tolerance) = (fitted.number("doc_topic_prior_")?, fitted.number("mean_change_tol")?);
    let words = transpose(&words.values, topics, features);
    let model = LatentDirichlet { words, topics, features, prior, iterations, tolerance };
    Ok(EstimatorSpec::new(MethodSet::TRANSFORM, features, model))
}

impl LatentDirichlet {
    /// Appends the topics of a document, in which the words of some features occur so often.
    fn extend_with_topics(&self, counts: &[(usize, f64)], found: &mut Vec<f64>) {
        let topics = self.topics;
        let mut document = vec![1.0; topics];
        let start = digamma(1.0) - digamma(to_f64(topics));
        let mut weights = vec![start.exp(); topics];
        let mut next = vec![0.0; topics];
        for _ in 0..self.iterations {
            next.fill(0.0);
            for &(feature, count) in counts {
                let words = &self.words[feature * topics..][..topics];
                let sum: f64 = weights.iter().zip(words).map(|(weight, word)| weight * word).sum();
                let share = count / (sum + f64::EPSILON);
                next.iter_mut().zip(words).for_each(|(next, word)| *next += share * word);
            }
            next.iter_mut().zip(&weights).for_each(|(next, weight)| *next = weight * *next + self.prior);
            let whole = digamma(next.iter().sum());
            weights.iter_mut().zip(&next).for_each(|(weight, topic)| *weight = (digamma(*topic) - whole).exp());
            let change: f64 = document.iter().zip(&next).map(|(before, now)| (before - now).abs()).sum();
            std::mem::swap(&mut document, &mut next);
            if change / to_f64(topics) < self.tolerance {
                break;
            }
        }
        let sum: f64 = document.iter().sum();
        found.extend(document.iter().map(|topic| topic / sum));
    }
}

impl Evaluate for LatentDirichlet {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let mut found = Vec::with_capacity(data.rows() * self.topics);
        let mut extend = |counts: &[(usize, f64)]| {
            if counts.iter().any(|(_, count)| *count < 0.0) {
                return Err(PredictError::Negative { class: Arc::clone(&info.class) });
            }
            self.extend_with_topics(counts, &mut found);
            Ok(())
        };
        let mut counts = Vec::new();
        if let TableData::Sparse(sparse) = data {
            info.finite_sparse(sparse)?;
            for row in 0..sparse.rows() {
                counts.clear();
                counts.extend(sparse.row(row));
                extend(&counts)?;
            }
        } else {
            let x = info.finite(data)?;
            for row in x.to_f64().chunks_exact(self.features) {
                counts.clear();
                counts.extend(row.iter().copied().enumerate().filter(|(_, count)| *count != 0.0));
                extend(&counts)?;
            }
        }
        Ok(TableData::Table(DenseTable::of_f64(found, self.topics)))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        // Most documents need some ten iterations, and have few of the words.
        let topics = self.topics as u64;
        10 * topics * (50 + 2 * (self.features as u64).min(100))
    }
}

/// The library's own approximation of the logarithmic derivative of the gamma function, which has fewer digits than `SciPy`'s.
fn digamma(mut x: f64) -> f64 {
    const EULER: f64 = 0.577_215_664_901_532_9;
    if x <= 1e-6 {
        return -EULER - 1.0 / x;
    }
    let mut sum = 0.0;
    while x < 6.0 {
        sum -= 1.0 / x;
        x += 1.0;
    }
    let inverse = 1.0 / x;
    sum += x.ln() - 0.5 * inverse;
    let square = inverse * inverse;
    sum - square * (1.0 / 12.0 - square * (1.0 / 120.0 - square * (1.0 / 252.0)))
}

#[expect(clippy::cast_precision_loss, reason = "a number of topics is far below 2^52")]
fn to_f64(topics: usize) -> f64 {
    topics as f64
}
