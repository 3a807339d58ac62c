//! Bagging: estimators of the same kind, each fitted with a part of the data.

use std::borrow::Cow;

use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{Estimator, EstimatorInfo, Evaluate};
use crate::sklearn::fitted::FittedObject;
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::numerics::{argmax, divide};
use crate::sklearn::spec::EstimatorSpec;
use crate::sklearn::sub_estimators::{self, NumericAnswer};
use crate::table::{DenseTable, Elements, IntType, TableData};

/// One estimator of the ensemble.
#[derive(Debug)]
struct Member {
    estimator: Estimator,
    /// The features that it receives. `None` means all of them, in order.
    features: Option<Vec<usize>>,
    /// The positions of its classes among those of the ensemble, if it knows fewer.
    classes: Option<Vec<usize>>,
}

/// `BaggingClassifier` and `BaggingRegressor`.
#[derive(Debug)]
struct Bagging {
    members: Vec<Member>,
    /// The number that sums are divided by.
    count: f64,
    labels: Option<Elements<'static>>,
}

pub(super) fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let labels = fitted.labels("classes_")?;
    let scores = |bagging: &Bagging| {
        bagging.members.iter().all(|member| member.estimator.info.methods.contains(EstimatorMethod::DecisionFunction))
    };
    let (features, bagging) = bagging(fitted, Some(labels))?;
    let methods = MethodSet::PREDICT
        .with(EstimatorMethod::PredictProba)
        .with_if(scores(&bagging), EstimatorMethod::DecisionFunction);
    Ok(EstimatorSpec::new(methods, features, bagging))
}

pub(super) fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let (features, bagging) = bagging(fitted, None)?;
    Ok(EstimatorSpec::new(MethodSet::PREDICT, features, bagging))
}

fn bagging(fitted: &FittedObject<'_>, labels: Option<Elements<'static>>) -> Result<(usize, Bagging), LoadError> {
    let features = fitted.n_features()?;
    let estimators = fitted.items("estimators_")?;
    let subsets = fitted.items("estimators_features_")?;
    fitted.check_count("estimators_features_", estimators.len(), subsets.len())?;
    if estimators.is_empty() {
        return Err(fitted.unexpected("estimators_", "at least one estimator"));
    }
    let mut members = Vec::with_capacity(estimators.len());
    for (value, subset) in estimators.into_iter().zip(subsets) {
        let subset = fitted.indices("estimators_features_", subset, features)?;
        let classes = match &labels {
            None => None,
            Some(labels) => {
                let own = sub_estimators::numbered_labels(fitted, sub_estimators::labels(fitted, value), labels.len());
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

impl Member {
    fn view<'d>(&self, data: &'d TableData<'d>) -> Cow<'d, TableData<'d>> {
        match &self.features {
            Some(features) => Cow::Owned(data.select(features)),
            None => Cow::Borrowed(data),
        }
    }

    /// Adds the estimator's probabilities, or a vote if it has none, to those of all classes.
    fn vote(&self, data: &TableData<'_>, labels: usize, sums: &mut [f64]) -> Result<(), PredictError> {
        let view = self.view(data);
        if !self.estimator.info.methods.contains(EstimatorMethod::PredictProba) {
            let all: Vec<i64> = (0..labels).filter_map(|label| i64::try_from(label).ok()).collect();
            let votes = self.estimator.predicted_positions(&view, &Elements::Int(all.into(), IntType::I64))?;
            sums.chunks_exact_mut(labels).zip(votes).for_each(|(sums, vote)| sums[vote] += 1.0);
            return Ok(());
        }
        let wanted = self.classes.as_ref().map_or(labels, Vec::len);
        let own = self.estimator.numbers_of(EstimatorMethod::PredictProba, &view, wanted)?.values;
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
    fn probabilities(&self, data: &TableData<'_>, labels: usize) -> Result<Vec<f64>, PredictError> {
        let mut sums = vec![0.0; data.rows() * labels];
        for member in &self.members {
            member.vote(data, labels, &mut sums)?;
        }
        divide(&mut sums, self.count);
        Ok(sums)
    }

    /// Returns the mean over all estimators.
    fn mean(&self, method: EstimatorMethod, data: &TableData<'_>) -> Result<NumericAnswer, PredictError> {
        let mut total: Option<NumericAnswer> = None;
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
        let mut total = total.unwrap_or(NumericAnswer { values: Vec::new(), columns: 1, single: false });
        divide(&mut total.values, self.count);
        Ok(total)
    }
}

impl Evaluate for Bagging {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let data = sub_estimators::check_array(data, info)?;
        let Some(labels) = self.labels.as_ref().filter(|_| method != EstimatorMethod::DecisionFunction) else {
            return Ok(self.mean(method, &data)?.table());
        };
        let probabilities = self.probabilities(&data, labels.len())?;
        Ok(TableData::Table(match method {
            EstimatorMethod::PredictProba => DenseTable::of_f64(probabilities, labels.len()),
            _ => DenseTable::of_column(labels.take(probabilities.chunks_exact(labels.len().max(1)).map(argmax))),
        }))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(self.members.iter().map(|member| &member.estimator))
    }
}
