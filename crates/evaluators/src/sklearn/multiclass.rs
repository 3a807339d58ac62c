//! Multiclass classifiers made of binary ones: one-vs-rest, one-vs-one, and output codes.

use super::error::{LoadError, PredictError};
use super::estimator::{Estimator, EstimatorInfo, Evaluate};
use super::fitted::{FittedObject, SklearnVersion};
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::{argmax, divide};
use super::spec::{ClassTable, EstimatorSpec};
use super::sub_estimators::{self, NumericAnswer, sub_estimators};
use crate::table::{DenseTable, Elements, IntType, TableData};

pub(super) const CLASSES: ClassTable = &[
    ("multiclass.OneVsOneClassifier", one_vs_one),
    ("multiclass.OneVsRestClassifier", one_vs_rest),
    ("multiclass.OutputCodeClassifier", output_code),
    ("multiclass._ConstantPredictor", constant),
];

/// Returns the score above which an estimator predicts the second class.
fn threshold(estimator: &Estimator) -> f64 {
    if estimator.info.methods.contains(EstimatorMethod::DecisionFunction) { 0.0 } else { 0.5 }
}

/// Returns the scores of every estimator, estimator by estimator.
fn scores(estimators: &[Estimator], data: &TableData<'_>) -> Result<Vec<NumericAnswer>, PredictError> {
    estimators.iter().map(|estimator| estimator.score(estimator.scoring(), data)).collect()
}

/// The type of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TargetType {
    Two,
    Several,
    /// Any number of the classes.
    Labels,
}

#[derive(Debug)]
struct OneVsRest {
    estimators: Vec<Estimator>,
    labels: Elements<'static>,
    target: TargetType,
    version: SklearnVersion,
}

fn one_vs_rest(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let estimators = sub_estimators(fitted, "estimators_")?;
    let binarizer = fitted.part(fitted.require("label_binarizer_")?)?;
    let labels = binarizer.labels("classes_")?;
    let target = match binarizer.text("y_type_")? {
        "multiclass" => TargetType::Several,
        "binary" => TargetType::Two,
        "multilabel-indicator" if !binarizer.flag("sparse_input_")? => TargetType::Labels,
        _ => return Err(binarizer.unsupported("y_type_")),
    };
    let wanted = if target == TargetType::Two { 1 } else { labels.len() };
    fitted.check_count("estimators_", wanted, estimators.len())?;
    if target == TargetType::Two && labels.len() != 2 {
        return Err(binarizer.unexpected("classes_", "two classes"));
    }
    let first = &estimators[0];
    let methods = first.info.methods;
    let methods = MethodSet::PREDICT
        .with_if(methods.contains(EstimatorMethod::PredictProba), EstimatorMethod::PredictProba)
        .with_if(methods.contains(EstimatorMethod::DecisionFunction), EstimatorMethod::DecisionFunction);
    let features = first.info.features;
    let version = fitted.version();
    Ok(EstimatorSpec::composed(methods, features, None, OneVsRest { estimators, labels, target, version }))
}

impl OneVsRest {
    fn predict(&self, data: &TableData<'_>) -> Result<TableData<'static>, PredictError> {
        let scores = scores(&self.estimators, data)?;
        if self.target == TargetType::Several {
            let best = (0..data.rows()).map(|row| self.best(scores.iter().map(|scores| scores.values[row])));
            return Ok(TableData::Table(DenseTable::of_column(self.labels.take(best))));
        }
        let threshold = threshold(&self.estimators[0]);
        if self.target == TargetType::Two {
            let positive = scores[0].values.iter().map(|&score| usize::from(score > threshold));
            return Ok(TableData::Table(DenseTable::of_column(self.labels.take(positive))));
        }
        let flags = sub_estimators::hstack(&scores, data.rows());
        let (rows, columns) = (data.rows(), flags.columns);
        let flags = flags.values.iter().map(|&score| i64::from(score > threshold)).collect();
        Ok(TableData::Table(DenseTable { elements: Elements::Int(flags, IntType::I64), rows, columns }))
    }

    /// Returns the class with the highest score. Of equal ones it was the last until 1.7, and has been the first since.
    fn best(&self, scores: impl Iterator<Item = f64>) -> usize {
        let (mut best, mut largest) = (0, f64::NEG_INFINITY);
        for (class, score) in scores.enumerate() {
            if score > largest || score >= largest && self.version < SklearnVersion(1, 8) {
                (best, largest) = (class, score);
            }
        }
        best
    }

    fn probabilities(&self, data: &TableData<'_>) -> Result<TableData<'static>, PredictError> {
        let own = self.estimators.iter().map(|estimator| estimator.score(EstimatorMethod::PredictProba, data));
        let own: Vec<NumericAnswer> = own.collect::<Result<_, _>>()?;
        let mut all = sub_estimators::hstack(&own, data.rows());
        if self.target == TargetType::Two {
            all.values = all.values.iter().flat_map(|&positive| [1.0 - positive, positive]).collect();
            all.columns = 2;
        }
        if self.target != TargetType::Labels {
            for row in all.values.chunks_exact_mut(all.columns) {
                let sum: f64 = row.iter().sum();
                if sum != 0.0 || self.version < SklearnVersion(1, 7) {
                    divide(row, sum);
                }
            }
        }
        Ok(all.table())
    }
}

impl Evaluate for OneVsRest {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        _: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        match method {
            EstimatorMethod::PredictProba => self.probabilities(data),
            EstimatorMethod::DecisionFunction => {
                let own = self.estimators.iter().map(|estimator| estimator.score(method, data));
                Ok(sub_estimators::hstack(&own.collect::<Result<Vec<_>, _>>()?, data.rows()).table())
            }
            _ => self.predict(data),
        }
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(&self.estimators)
    }
}

#[derive(Debug)]
struct OneVsOne {
    /// One for each pair, in the order (0, 1), (0, 2), …
    estimators: Vec<Estimator>,
    labels: Elements<'static>,
    version: SklearnVersion,
}

fn one_vs_one(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let estimators = sub_estimators(fitted, "estimators_")?;
    let labels = fitted.labels("classes_")?;
    if labels.len() < 2 {
        return Err(fitted.unexpected("classes_", "at least two classes"));
    }
    fitted.check_count("estimators_", labels.len().saturating_mul(labels.len() - 1) / 2, estimators.len())?;
    if fitted.get("pairwise_indices_").is_some() {
        return Err(fitted.unsupported("pairwise_indices_"));
    }
    let features = estimators[0].info.features;
    let methods = MethodSet::PREDICT.with(EstimatorMethod::DecisionFunction);
    Ok(EstimatorSpec::composed(methods, features, None, OneVsOne { estimators, labels, version: fitted.version() }))
}

impl OneVsOne {
    /// Returns the votes for each class, with the confidence as a tie-breaker.
    fn sums(&self, data: &TableData<'_>) -> Result<Vec<f64>, PredictError> {
        let classes = self.labels.len();
        let mut votes = vec![0.0; data.rows() * classes];
        let mut confidences = vec![0.0; data.rows() * classes];
        let pairs = (0..classes).flat_map(|one| (one + 1..classes).map(move |other| (one, other)));
        let both = Elements::Int(vec![0, 1].into(), IntType::I64);
        for ((one, other), estimator) in pairs.zip(&self.estimators) {
            let scores = estimator.score(estimator.scoring(), data)?.values;
            let places = estimator.predicted_positions(data, &both)?;
            for (row, (score, place)) in scores.into_iter().zip(places).enumerate() {
                let at = row * classes;
                confidences[at + one] -= score;
                confidences[at + other] += score;
                votes[at + if place == 0 { one } else { other }] += 1.0;
            }
        }
        for (vote, confidence) in votes.iter_mut().zip(confidences) {
            *vote += confidence / (3.0 * (confidence.abs() + 1.0));
        }
        Ok(votes)
    }
}

impl Evaluate for OneVsOne {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let sums = self.sums(&sub_estimators::check_array(data, info)?)?;
        let classes = self.labels.len();
        if classes > 2 {
            return Ok(TableData::Table(match method {
                EstimatorMethod::DecisionFunction => DenseTable::of_f64(sums, classes),
                _ => DenseTable::of_column(self.labels.take(sums.chunks_exact(classes).map(argmax))),
            }));
        }
        let scores = sums.chunks_exact(2).map(|pair| pair[1]);
        if method == EstimatorMethod::DecisionFunction {
            return Ok(TableData::Table(DenseTable::of_f64(scores.collect(), 1)));
        }
        let threshold = if self.version < SklearnVersion(1, 1) { 0.0 } else { threshold(&self.estimators[0]) };
        Ok(TableData::Table(DenseTable::of_column(
            self.labels.take(scores.map(|score| usize::from(score > threshold))),
        )))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(&self.estimators)
    }
}

#[derive(Debug)]
struct OutputCode {
    estimators: Vec<Estimator>,
    labels: Elements<'static>,
    /// One row for each class.
    codes: Vec<f64>,
}

fn output_code(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let estimators = sub_estimators(fitted, "estimators_")?;
    let labels = fitted.labels("classes_")?;
    let codes = fitted.matrix("code_book_")?;
    fitted.check_count("code_book_", labels.len(), codes.rows)?;
    fitted.check_count("estimators_", codes.columns, estimators.len())?;
    if labels.is_empty() {
        return Err(fitted.unexpected("classes_", "at least one class"));
    }
    let features = estimators[0].info.features;
    Ok(EstimatorSpec::composed(
        MethodSet::PREDICT,
        features,
        None,
        OutputCode { estimators, labels, codes: codes.values },
    ))
}

impl Evaluate for OutputCode {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        _: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let scores = sub_estimators::hstack(&scores(&self.estimators, data)?, data.rows());
        let nearest = |row: &[f64]| {
            let distance = |code: &[f64]| -> f64 { row.iter().zip(code).map(|(x, y)| (x - y) * (x - y)).sum() };
            let distances: Vec<f64> = self.codes.chunks_exact(scores.columns).map(|code| -distance(code)).collect();
            argmax(&distances)
        };
        Ok(TableData::Table(DenseTable::of_column(
            self.labels.take(scores.values.chunks_exact(scores.columns).map(nearest)),
        )))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(&self.estimators)
    }
}

/// A classifier that was fitted with only one class.
#[derive(Debug)]
struct ConstantPredictor {
    /// The class as a number, 0 or 1, or a bit of an output code.
    class: f64,
}

fn constant(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let class = fitted.floats_of("y_", 1)?[0];
    let methods = MethodSet::PREDICT.with(EstimatorMethod::PredictProba).with(EstimatorMethod::DecisionFunction);
    Ok(EstimatorSpec::composed(methods, None, None, ConstantPredictor { class }))
}

impl Evaluate for ConstantPredictor {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        _: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let rows = data.rows();
        Ok(TableData::Table(match method {
            EstimatorMethod::PredictProba => DenseTable::of_f64([1.0 - self.class, self.class].repeat(rows), 2),
            _ => DenseTable::of_f64(vec![self.class; rows], 1),
        }))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        10
    }
}
