//! Ensembles of any estimators: bagging, boosting by weights, voting and stacking, and isolation forests.

use std::borrow::Cow;

use super::classes::{Classes, Family};
use super::data::{Data, Elements, Int, Table};
use super::error::{LoadError, PredictError};
use super::estimator::{About, Estimator, Evaluate, Method, Methods};
use super::fitted::{Fitted, Version};
use super::members::{self, Answer};
use super::numerics::{argmax, divide};
use super::tree;

mod boosting;
mod stacking;
mod voting;

pub(super) const CLASSES: Classes = &[
    ("ensemble.AdaBoostClassifier", boosting::classifier),
    ("ensemble.AdaBoostRegressor", boosting::regressor),
    ("ensemble.BaggingClassifier", bagging_classifier),
    ("ensemble.BaggingRegressor", bagging_regressor),
    ("ensemble.IsolationForest", isolation),
    ("ensemble.StackingClassifier", stacking::classifier),
    ("ensemble.StackingRegressor", stacking::regressor),
    ("ensemble.VotingClassifier", voting::classifier),
    ("ensemble.VotingRegressor", voting::regressor),
];

/// One estimator of a bag.
#[derive(Debug)]
struct Member {
    estimator: Estimator,
    /// The features that it sees; all of them, in their order, if there is nothing.
    features: Option<Vec<usize>>,
    /// Its classes among those of the whole, if it knows fewer.
    classes: Option<Vec<usize>>,
}

/// `BaggingClassifier` and `BaggingRegressor`.
#[derive(Debug)]
struct Bagging {
    members: Vec<Member>,
    /// What sums are divided by.
    count: f64,
    labels: Option<Elements<'static>>,
}

fn bagging_classifier(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let labels = fitted.labels("classes_")?;
    let scores = |bagging: &Bagging| {
        bagging.members.iter().all(|member| member.estimator.about.methods.contains(Method::DecisionFunction))
    };
    let (features, bagging) = bagging(fitted, Some(labels))?;
    let methods = Methods::PREDICT.and(Method::PredictProba).and_if(scores(&bagging), Method::DecisionFunction);
    Ok(Family::new(methods, features, bagging))
}

fn bagging_regressor(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let (features, bagging) = bagging(fitted, None)?;
    Ok(Family::new(Methods::PREDICT, features, bagging))
}

fn bagging(fitted: &Fitted<'_>, labels: Option<Elements<'static>>) -> Result<(usize, Bagging), LoadError> {
    let features = features(fitted)?;
    let estimators = fitted.items("estimators_")?;
    let subsets = fitted.items("estimators_features_")?;
    fitted.count("estimators_features_", estimators.len(), subsets.len())?;
    if estimators.is_empty() {
        return Err(fitted.unexpected("estimators_", "at least one estimator"));
    }
    let mut members = Vec::with_capacity(estimators.len());
    for (value, subset) in estimators.into_iter().zip(subsets) {
        let subset = fitted.indices("estimators_features_", subset, features)?;
        let classes = match &labels {
            None => None,
            Some(labels) => {
                let own = members::numbered(fitted, members::labels(fitted, value), labels.len());
                let own = own.ok_or_else(|| fitted.unexpected("estimators_", "classifiers of numbered classes"))?;
                Some(own).filter(|own| own.len() != labels.len())
            }
        };
        let subset = Some(subset).filter(|subset| !subset.iter().copied().eq(0..features));
        members.push(Member { estimator: fitted.estimator(value)?, features: subset, classes });
    }
    let count = fitted.number("n_estimators")?;
    Ok((features, Bagging { members, count, labels }))
}

/// Reads `n_features_in_`, which older versions call otherwise.
fn features(fitted: &Fitted<'_>) -> Result<usize, LoadError> {
    let name = if fitted.get("n_features_in_").is_some() { "n_features_in_" } else { "n_features_" };
    match fitted.size(name)? {
        0 => Err(fitted.unexpected(name, "at least one feature")),
        features => Ok(features),
    }
}

impl Member {
    fn view<'d>(&self, data: &'d Data<'d>) -> Cow<'d, Data<'d>> {
        match &self.features {
            Some(features) => Cow::Owned(data.select(features)),
            None => Cow::Borrowed(data),
        }
    }

    /// Adds its probabilities, or a vote where it has none, to those of all classes.
    fn vote(&self, data: &Data<'_>, labels: usize, sums: &mut [f64]) -> Result<(), PredictError> {
        let view = self.view(data);
        if !self.estimator.about.methods.contains(Method::PredictProba) {
            let all: Vec<i64> = (0..labels).filter_map(|label| i64::try_from(label).ok()).collect();
            let votes = self.estimator.places(&view, &Elements::Int(all.into(), Int::I64))?;
            sums.chunks_exact_mut(labels).zip(votes).for_each(|(sums, vote)| sums[vote] += 1.0);
            return Ok(());
        }
        let wanted = self.classes.as_ref().map_or(labels, Vec::len);
        let own = self.estimator.numbers_of(Method::PredictProba, &view, wanted)?.values;
        match &self.classes {
            None => sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own),
            Some(classes) => {
                for (sums, own) in sums.chunks_exact_mut(labels).zip(own.chunks_exact(wanted)) {
                    classes.iter().zip(own).for_each(|(&class, own)| sums[class] += own);
                }
            }
        }
        Ok(())
    }
}

impl Bagging {
    fn probabilities(&self, data: &Data<'_>, labels: usize) -> Result<Vec<f64>, PredictError> {
        let mut sums = vec![0.0; data.rows() * labels];
        for member in &self.members {
            member.vote(data, labels, &mut sums)?;
        }
        divide(&mut sums, self.count);
        Ok(sums)
    }

    /// The mean of what all answer.
    fn mean(&self, method: Method, data: &Data<'_>) -> Result<Answer, PredictError> {
        let mut total: Option<Answer> = None;
        for member in &self.members {
            let view = member.view(data);
            total = Some(match total {
                None => member.estimator.numbers(method, &view)?,
                Some(mut total) => {
                    let own = member.estimator.numbers_of(method, &view, total.columns)?;
                    total.values.iter_mut().zip(own.values).for_each(|(total, own)| *total += own);
                    total.single &= own.single;
                    total
                }
            });
        }
        let mut total = total.unwrap_or(Answer { values: Vec::new(), columns: 1, single: false });
        divide(&mut total.values, self.count);
        Ok(total)
    }
}

impl Evaluate for Bagging {
    fn call(&self, method: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let data = members::plain(data, about)?;
        let Some(labels) = self.labels.as_ref().filter(|_| method != Method::DecisionFunction) else {
            return Ok(self.mean(method, &data)?.table());
        };
        let probabilities = self.probabilities(&data, labels.len())?;
        Ok(Data::Table(match method {
            Method::PredictProba => Table::of_f64(probabilities, labels.len()),
            _ => Table::of_column(labels.take(probabilities.chunks_exact(labels.len().max(1)).map(argmax))),
        }))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        members::cost(self.members.iter().map(|member| &member.estimator))
    }
}

/// `IsolationForest`: rows that are soon alone are outliers.
#[derive(Debug)]
struct Isolation {
    paths: tree::Trees,
    /// What the lengths of all paths together are measured by.
    expected: f64,
    offset: f64,
    version: Version,
}

fn isolation(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let features = features(fitted)?;
    let estimators = fitted.items("estimators_")?;
    let subsets = fitted.items("estimators_features_")?;
    fitted.count("estimators_features_", estimators.len(), subsets.len())?;
    let subsets = subsets.into_iter().map(|subset| fitted.indices("estimators_features_", subset, features));
    let subsets: Vec<Vec<usize>> = subsets.collect::<Result<_, _>>()?;
    let name = if fitted.get("_max_samples").is_some() { "_max_samples" } else { "max_samples_" };
    #[expect(clippy::cast_precision_loss, reason = "as NumPy multiplies")]
    let expected = estimators.len() as f64 * tree::expected_path(fitted.number(name)?);
    let paths = tree::Trees::paths(fitted, estimators, &subsets, features)?;
    let (offset, version) = (fitted.number("offset_")?, fitted.version());
    let methods = Methods::PREDICT.and(Method::DecisionFunction);
    Ok(Family::new(methods, features, Isolation { paths, expected, offset, version }))
}

impl Evaluate for Isolation {
    fn call(&self, method: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let x =
            if self.version >= Version(1, 6) { tree::unchecked(data, about)? } else { tree::rows(data, about, false)? };
        let mut depths = vec![0.0; data.rows()];
        self.paths.add(&x, &mut depths, 1.0);
        let score = |depth: f64| {
            let ratio = if self.expected == 0.0 { 1.0 } else { depth / self.expected };
            -(-ratio).exp2() - self.offset
        };
        let scores = depths.into_iter().map(score);
        if method == Method::DecisionFunction {
            return Ok(Data::Table(Table::of_f64(scores.collect(), 1)));
        }
        let inside = scores.map(|score| if score < 0.0 { -1 } else { 1 }).collect();
        Ok(Data::Table(Table::of_column(Elements::Int(inside, Int::I64))))
    }

    fn cost(&self) -> u64 {
        self.paths.cost()
    }
}
