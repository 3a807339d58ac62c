//! Support vector machines, as LIBSVM evaluates them.

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::kernels::{Kernel, KernelRows};
use super::linear_model;
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{argmax, dot, lanes};
use super::spec::{ClassTable, EstimatorSpec};
use crate::table::{DenseTable, Elements, IntType, TableData};
use crate::wide::wide;

pub(super) const CLASSES: ClassTable = &[
    ("svm.LinearSVC", linear_model::classifier),
    ("svm.LinearSVR", linear_model::regressor),
    ("svm.NuSVC", classifier),
    ("svm.NuSVR", regressor),
    ("svm.OneClassSVM", one_class),
    ("svm.SVC", classifier),
    ("svm.SVR", regressor),
];

/// Kernels with each support vector, and their weights.
#[derive(Debug)]
struct SupportVectors {
    rows: KernelRows,
    /// One row for each class but one, one column for each support vector.
    weights: Vec<f64>,
    intercept: Vec<f64>,
}

impl SupportVectors {
    fn load(fitted: &FittedObject<'_>) -> Result<Self, LoadError> {
        if fitted.flag("_sparse")? {
            return Err(fitted.unsupported("_sparse"));
        }
        let vectors = fitted.matrix("support_vectors_")?;
        if vectors.columns == 0 {
            return Err(fitted.unexpected("support_vectors_", "at least one feature"));
        }
        let weights = fitted.matrix("_dual_coef_")?;
        fitted.check_count("_dual_coef_", vectors.rows, weights.columns)?;
        let intercept = fitted.floats("_intercept_")?;
        Ok(Self { rows: KernelRows::new(Kernel::of_svm(fitted)?, &vectors), weights: weights.values, intercept })
    }
}

/// `SVR`, `NuSVR` and `OneClassSVM`, which have one sum.
#[derive(Debug)]
struct SingleSum {
    vectors: SupportVectors,
    /// Whether `predict` returns the sign of the sum.
    novelty: bool,
}

fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    one(fitted, MethodSet::PREDICT, false)
}

fn one_class(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    one(fitted, MethodSet::PREDICT.with(EstimatorMethod::DecisionFunction), true)
}

fn one(fitted: &FittedObject<'_>, methods: MethodSet, novelty: bool) -> Result<EstimatorSpec, LoadError> {
    let vectors = SupportVectors::load(fitted)?;
    fitted.check_count("_dual_coef_", vectors.rows.len(), vectors.weights.len())?;
    fitted.check_count("_intercept_", 1, vectors.intercept.len())?;
    Ok(EstimatorSpec::new(methods, vectors.rows.features(), SingleSum { vectors, novelty }))
}

impl Evaluate for SingleSum {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let vectors = &self.vectors;
        let sum = |row| dot(&vectors.rows.of(row), &vectors.weights) + vectors.intercept[0];
        let sums: Vec<f64> = x.to_f64().chunks_exact(vectors.rows.features()).map(sum).collect();
        if self.novelty && method == EstimatorMethod::Predict {
            let inside = sums.iter().map(|&sum| if sum > 0.0 { 1 } else { -1 }).collect();
            return Ok(TableData::Table(DenseTable::of_column(Elements::Int(inside, IntType::I64))));
        }
        Ok(TableData::Table(DenseTable::of_f64(sums, 1)))
    }

    fn cost(&self) -> u64 {
        self.vectors.rows.cost()
    }
}

/// `SVC` and `NuSVC`, which have a sum for each pair of classes.
#[derive(Debug)]
struct ClassPairs {
    vectors: SupportVectors,
    /// Where the support vectors of each class start, and where the last ones end.
    starts: Vec<usize>,
    labels: Elements<'static>,
    /// Whether `decision_function` returns the scores of pairs if there are more than two classes.
    one_vs_one: bool,
    break_ties: bool,
    /// The slope and offset of each pair's probability.
    sigmoids: Option<Vec<(f64, f64)>>,
}

fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let vectors = SupportVectors::load(fitted)?;
    let labels = fitted.labels("classes_")?;
    let classes = labels.len();
    if classes < 2 {
        return Err(fitted.unexpected("classes_", "at least two classes"));
    }
    let pairs = classes.saturating_mul(classes - 1) / 2;
    fitted.check_count("_dual_coef_", (classes - 1).saturating_mul(vectors.rows.len()), vectors.weights.len())?;
    fitted.check_count("_intercept_", pairs, vectors.intercept.len())?;
    let mut starts = vec![0];
    for size in fitted.sizes("_n_support", classes)? {
        let next = starts.last().copied().unwrap_or(0_usize).saturating_add(size);
        starts.push(next);
    }
    fitted.check_count("_n_support", vectors.rows.len(), starts.last().copied().unwrap_or(0))?;
    // The newest version writes `deprecated` if the parameter was not set.
    let sigmoids = if fitted.text_if("probability").is_none() && fitted.flag("probability")? {
        let slopes = fitted.floats_of("_probA", pairs)?;
        Some(slopes.into_iter().zip(fitted.floats_of("_probB", pairs)?).collect())
    } else {
        None
    };
    let methods = MethodSet::PREDICT
        .with(EstimatorMethod::DecisionFunction)
        .with_if(sigmoids.is_some(), EstimatorMethod::PredictProba);
    let one_vs_one = match fitted.text("decision_function_shape")? {
        "ovo" => true,
        "ovr" => false,
        _ => return Err(fitted.unsupported("decision_function_shape")),
    };
    let break_ties = fitted.flag("break_ties")? && !one_vs_one && classes > 2;
    let features = vectors.rows.features();
    Ok(EstimatorSpec::new(methods, features, ClassPairs { vectors, starts, labels, one_vs_one, break_ties, sigmoids }))
}

impl ClassPairs {
    const fn classes(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the classes of each pair, in LIBSVM's order.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let classes = self.classes();
        (0..classes).flat_map(move |one| (one + 1..classes).map(move |other| (one, other)))
    }

    /// Returns the sum of each pair. A positive sum is a vote for the first class.
    fn sums(&self, row: &[f64]) -> Vec<f64> {
        let kernels = self.vectors.rows.of(row);
        let count = kernels.len();
        let mut sums = self.vectors.intercept.clone();
        wide(
            #[inline(always)]
            || {
                for ((one, other), sum) in self.pairs().zip(&mut sums) {
                    let mut both = 0.0;
                    for (class, weights) in [(one, other - 1), (other, one)] {
                        let range = self.starts[class]..self.starts[class + 1];
                        let weights = &self.vectors.weights[weights * count..(weights + 1) * count];
                        both += lanes(&kernels[range.clone()], &weights[range], |x, y| x * y);
                    }
                    *sum += both;
                }
            },
        );
        sums
    }

    /// Returns the class with the most votes.
    fn vote(&self, sums: &[f64]) -> usize {
        let mut votes = vec![0_u32; self.classes()];
        for ((one, other), &sum) in self.pairs().zip(sums) {
            votes[if sum > 0.0 { one } else { other }] += 1;
        }
        let mut best = 0;
        for class in 1..votes.len() {
            if votes[class] > votes[best] {
                best = class;
            }
        }
        best
    }

    /// Returns a score for each class: its votes, with the confidence as a tie-breaker.
    fn one_vs_rest(&self, sums: &[f64]) -> Vec<f64> {
        let mut votes = vec![0.0; self.classes()];
        let mut confidences = vec![0.0; self.classes()];
        for ((one, other), &sum) in self.pairs().zip(sums) {
            confidences[one] += sum;
            confidences[other] -= sum;
            votes[if sum < 0.0 { other } else { one }] += 1.0;
        }
        let score = |(votes, confidence): (f64, f64)| votes + confidence / (3.0 * (confidence.abs() + 1.0));
        votes.into_iter().zip(confidences).map(score).collect()
    }

    fn scores(&self, sums: Vec<f64>) -> Vec<f64> {
        if self.classes() == 2 {
            return vec![-sums[0]];
        }
        if self.one_vs_one { sums } else { self.one_vs_rest(&sums) }
    }

    fn probabilities(&self, sums: &[f64], sigmoids: &[(f64, f64)]) -> Vec<f64> {
        let classes = self.classes();
        let mut pairwise = vec![0.0; classes * classes];
        for (((one, other), &sum), &(slope, offset)) in self.pairs().zip(sums).zip(sigmoids) {
            let probability = sigmoid(slope * sum + offset).clamp(1e-7, 1.0 - 1e-7);
            pairwise[one * classes + other] = probability;
            pairwise[other * classes + one] = 1.0 - probability;
        }
        couple(&pairwise, classes)
    }
}

/// Returns the logistic function of `-x`.
fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 { (-x).exp() / (1.0 + (-x).exp()) } else { 1.0 / (1.0 + x.exp()) }
}

/// Finds the class probabilities that fit those of the pairs best, by LIBSVM's iteration.
#[expect(clippy::cast_precision_loss, reason = "classes are few")]
fn couple(pairwise: &[f64], classes: usize) -> Vec<f64> {
    let r = |one: usize, other: usize| pairwise[one * classes + other];
    let mut q = vec![0.0; classes * classes];
    for t in 0..classes {
        for j in (0..classes).filter(|&j| j != t) {
            q[t * classes + t] += r(j, t) * r(j, t);
            q[t * classes + j] = -r(j, t) * r(t, j);
        }
    }
    let mut p = vec![1.0 / classes as f64; classes];
    let tolerance = 0.005 / classes as f64;
    for _ in 0..classes.max(100) {
        let mut qp: Vec<f64> = q.chunks_exact(classes).map(|q| q.iter().zip(&p).map(|(q, p)| q * p).sum()).collect();
        let mut pqp: f64 = p.iter().zip(&qp).map(|(p, qp)| p * qp).sum();
        if qp.iter().all(|qp| (qp - pqp).abs() < tolerance) {
            break;
        }
        for t in 0..classes {
            let own = q[t * classes + t];
            let step = (pqp - qp[t]) / own;
            p[t] += step;
            pqp = (pqp + step * (step * own + 2.0 * qp[t])) / (1.0 + step) / (1.0 + step);
            for j in 0..classes {
                qp[j] = (qp[j] + step * q[t * classes + j]) / (1.0 + step);
                p[j] /= 1.0 + step;
            }
        }
    }
    p
}

impl Evaluate for ClassPairs {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let x = info.finite(data)?;
        let x = x.to_f64();
        let sums = x.chunks_exact(self.vectors.rows.features()).map(|row| self.sums(row));
        Ok(TableData::Table(match (method, &self.sigmoids) {
            (EstimatorMethod::DecisionFunction, _) => {
                let columns = match self.classes() {
                    2 => 1,
                    classes if self.one_vs_one => classes * (classes - 1) / 2,
                    classes => classes,
                };
                DenseTable::of_f64(sums.flat_map(|sums| self.scores(sums)).collect(), columns)
            }
            (EstimatorMethod::PredictProba, Some(sigmoids)) => {
                DenseTable::of_f64(sums.flat_map(|sums| self.probabilities(&sums, sigmoids)).collect(), self.classes())
            }
            _ if self.break_ties => {
                DenseTable::of_column(self.labels.take(sums.map(|sums| argmax(&self.one_vs_rest(&sums)))))
            }
            _ => DenseTable::of_column(self.labels.take(sums.map(|sums| self.vote(&sums)))),
        }))
    }

    fn cost(&self) -> u64 {
        self.vectors.rows.cost()
    }
}
