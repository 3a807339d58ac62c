//! Classifiers of two classes that tell several apart: one against the rest, one against one, and by codes.

use super::classes::{Classes, Family};
use super::data::{Data, Elements, Int, Table};
use super::error::{LoadError, PredictError};
use super::estimator::{About, Estimator, Evaluate, Method, Methods};
use super::fitted::{Fitted, Version};
use super::numerics::{argmax, divide};
use super::sub_estimators::{self, Answer, sub_estimators};

pub(super) const CLASSES: Classes = &[
    ("multiclass.OneVsOneClassifier", one_vs_one),
    ("multiclass.OneVsRestClassifier", one_vs_rest),
    ("multiclass.OutputCodeClassifier", output_code),
    ("multiclass._ConstantPredictor", constant),
];

/// Above what a score speaks for the second class.
fn threshold(estimator: &Estimator) -> f64 {
    if estimator.about.methods.contains(Method::DecisionFunction) { 0.0 } else { 0.5 }
}

/// The score of every estimator, estimator by estimator.
fn scores(estimators: &[Estimator], data: &Data<'_>) -> Result<Vec<Answer>, PredictError> {
    estimators.iter().map(|estimator| estimator.score(estimator.scoring(), data)).collect()
}

/// How targets were told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    Two,
    Several,
    /// Any of the classes, or none.
    Labels,
}

#[derive(Debug)]
struct OneVsRest {
    estimators: Vec<Estimator>,
    labels: Elements<'static>,
    target: Target,
    version: Version,
}

fn one_vs_rest(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let estimators = sub_estimators(fitted, "estimators_")?;
    let binarizer = fitted.part(fitted.need("label_binarizer_")?)?;
    let labels = binarizer.labels("classes_")?;
    let target = match binarizer.text("y_type_")? {
        "multiclass" => Target::Several,
        "binary" => Target::Two,
        "multilabel-indicator" if !binarizer.flag("sparse_input_")? => Target::Labels,
        _ => return Err(binarizer.unsupported("y_type_")),
    };
    let wanted = if target == Target::Two { 1 } else { labels.len() };
    fitted.count("estimators_", wanted, estimators.len())?;
    if target == Target::Two && labels.len() != 2 {
        return Err(binarizer.unexpected("classes_", "two classes"));
    }
    let first = &estimators[0];
    let methods = first.about.methods;
    let methods = Methods::PREDICT
        .and_if(methods.contains(Method::PredictProba), Method::PredictProba)
        .and_if(methods.contains(Method::DecisionFunction), Method::DecisionFunction);
    let features = first.about.features;
    let version = fitted.version();
    Ok(Family::composed(methods, features, None, OneVsRest { estimators, labels, target, version }))
}

impl OneVsRest {
    fn predict(&self, data: &Data<'_>) -> Result<Data<'static>, PredictError> {
        let scores = scores(&self.estimators, data)?;
        if self.target == Target::Several {
            let best = (0..data.rows()).map(|row| self.best(scores.iter().map(|scores| scores.values[row])));
            return Ok(Data::Table(Table::of_column(self.labels.take(best))));
        }
        let threshold = threshold(&self.estimators[0]);
        if self.target == Target::Two {
            let positive = scores[0].values.iter().map(|&score| usize::from(score > threshold));
            return Ok(Data::Table(Table::of_column(self.labels.take(positive))));
        }
        let flags = sub_estimators::beside(&scores, data.rows());
        let (rows, columns) = (data.rows(), flags.columns);
        let flags = flags.values.iter().map(|&score| i64::from(score > threshold)).collect();
        Ok(Data::Table(Table { elements: Elements::Int(flags, Int::I64), rows, columns }))
    }

    /// The best of equals was the last one until 1.7, and is the first one since.
    fn best(&self, scores: impl Iterator<Item = f64>) -> usize {
        let (mut best, mut largest) = (0, f64::NEG_INFINITY);
        for (class, score) in scores.enumerate() {
            if score > largest || score >= largest && self.version < Version(1, 8) {
                (best, largest) = (class, score);
            }
        }
        best
    }

    fn probabilities(&self, data: &Data<'_>) -> Result<Data<'static>, PredictError> {
        let own = self.estimators.iter().map(|estimator| estimator.score(Method::PredictProba, data));
        let own: Vec<Answer> = own.collect::<Result<_, _>>()?;
        let mut all = sub_estimators::beside(&own, data.rows());
        if self.target == Target::Two {
            all.values = all.values.iter().flat_map(|&positive| [1.0 - positive, positive]).collect();
            all.columns = 2;
        }
        if self.target != Target::Labels {
            for row in all.values.chunks_exact_mut(all.columns) {
                let sum: f64 = row.iter().sum();
                if sum != 0.0 || self.version < Version(1, 7) {
                    divide(row, sum);
                }
            }
        }
        Ok(all.table())
    }
}

impl Evaluate for OneVsRest {
    fn call(&self, method: Method, data: &Data<'_>, _: &About) -> Result<Data<'static>, PredictError> {
        match method {
            Method::PredictProba => self.probabilities(data),
            Method::DecisionFunction => {
                let own = self.estimators.iter().map(|estimator| estimator.score(method, data));
                Ok(sub_estimators::beside(&own.collect::<Result<Vec<_>, _>>()?, data.rows()).table())
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
    version: Version,
}

fn one_vs_one(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let estimators = sub_estimators(fitted, "estimators_")?;
    let labels = fitted.labels("classes_")?;
    if labels.len() < 2 {
        return Err(fitted.unexpected("classes_", "at least two classes"));
    }
    fitted.count("estimators_", labels.len().saturating_mul(labels.len() - 1) / 2, estimators.len())?;
    if fitted.get("pairwise_indices_").is_some() {
        return Err(fitted.unsupported("pairwise_indices_"));
    }
    let features = estimators[0].about.features;
    let methods = Methods::PREDICT.and(Method::DecisionFunction);
    Ok(Family::composed(methods, features, None, OneVsOne { estimators, labels, version: fitted.version() }))
}

impl OneVsOne {
    /// Votes for each class, and how clear they were.
    fn sums(&self, data: &Data<'_>) -> Result<Vec<f64>, PredictError> {
        let classes = self.labels.len();
        let mut votes = vec![0.0; data.rows() * classes];
        let mut confidences = vec![0.0; data.rows() * classes];
        let pairs = (0..classes).flat_map(|one| (one + 1..classes).map(move |other| (one, other)));
        let both = Elements::Int(vec![0, 1].into(), Int::I64);
        for ((one, other), estimator) in pairs.zip(&self.estimators) {
            let scores = estimator.score(estimator.scoring(), data)?.values;
            let places = estimator.places(data, &both)?;
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
    fn call(&self, method: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let sums = self.sums(&sub_estimators::plain(data, about)?)?;
        let classes = self.labels.len();
        if classes > 2 {
            return Ok(Data::Table(match method {
                Method::DecisionFunction => Table::of_f64(sums, classes),
                _ => Table::of_column(self.labels.take(sums.chunks_exact(classes).map(argmax))),
            }));
        }
        let scores = sums.chunks_exact(2).map(|pair| pair[1]);
        if method == Method::DecisionFunction {
            return Ok(Data::Table(Table::of_f64(scores.collect(), 1)));
        }
        let threshold = if self.version < Version(1, 1) { 0.0 } else { threshold(&self.estimators[0]) };
        Ok(Data::Table(Table::of_column(self.labels.take(scores.map(|score| usize::from(score > threshold))))))
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
    /// A row of scores for each class.
    codes: Vec<f64>,
}

fn output_code(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let estimators = sub_estimators(fitted, "estimators_")?;
    let labels = fitted.labels("classes_")?;
    let codes = fitted.matrix("code_book_")?;
    fitted.count("code_book_", labels.len(), codes.rows)?;
    fitted.count("estimators_", codes.columns, estimators.len())?;
    if labels.is_empty() {
        return Err(fitted.unexpected("classes_", "at least one class"));
    }
    let features = estimators[0].about.features;
    Ok(Family::composed(Methods::PREDICT, features, None, OutputCode { estimators, labels, codes: codes.values }))
}

impl Evaluate for OutputCode {
    fn call(&self, _: Method, data: &Data<'_>, _: &About) -> Result<Data<'static>, PredictError> {
        let scores = sub_estimators::beside(&scores(&self.estimators, data)?, data.rows());
        let nearest = |row: &[f64]| {
            let distance = |code: &[f64]| -> f64 { row.iter().zip(code).map(|(x, y)| (x - y) * (x - y)).sum() };
            let distances: Vec<f64> = self.codes.chunks_exact(scores.columns).map(|code| -distance(code)).collect();
            argmax(&distances)
        };
        Ok(Data::Table(Table::of_column(self.labels.take(scores.values.chunks_exact(scores.columns).map(nearest)))))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(&self.estimators)
    }
}

/// What stands for a classifier where there was one class only.
#[derive(Debug)]
struct Constant {
    /// The class as a number, 0 or 1, or a bit of a code.
    class: f64,
}

fn constant(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let class = fitted.floats_of("y_", 1)?[0];
    let methods = Methods::PREDICT.and(Method::PredictProba).and(Method::DecisionFunction);
    Ok(Family::composed(methods, None, None, Constant { class }))
}

impl Evaluate for Constant {
    fn call(&self, method: Method, data: &Data<'_>, _: &About) -> Result<Data<'static>, PredictError> {
        let rows = data.rows();
        Ok(Data::Table(match method {
            Method::PredictProba => Table::of_f64([1.0 - self.class, self.class].repeat(rows), 2),
            _ => Table::of_f64(vec![self.class; rows], 1),
        }))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        10
    }
}
