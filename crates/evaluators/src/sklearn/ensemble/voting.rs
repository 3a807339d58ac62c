//! Voting: different estimators, each with one vote or with the votes of its weight.

use crate::pickle::PickleValue;
use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{Estimator, EstimatorInfo, Evaluate};
use crate::sklearn::fitted::FittedObject;
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::numerics::{argmax, divide};
use crate::sklearn::spec::EstimatorSpec;
use crate::sklearn::sub_estimators::{self, sub_estimators};
use crate::table::{DenseTable, Elements, IntType, TableData};

#[derive(Debug)]
struct Voting {
    members: Vec<Estimator>,
    /// One weight for each estimator; all ones if the model has no weights.
    weights: Vec<f64>,
    /// Classifiers only.
    labels: Option<Elements<'static>>,
    /// Whether probabilities are averaged. Otherwise, votes are counted.
    soft: bool,
}

pub(super) fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let labels = fitted.labels("classes_")?;
    let soft = match fitted.text("voting")? {
        "soft" => true,
        "hard" => false,
        _ => return Err(fitted.unsupported("voting")),
    };
    if soft && !fitted.flag("flatten_transform")? {
        return Err(fitted.unsupported("flatten_transform"));
    }
    let methods = MethodSet::PREDICT.with(EstimatorMethod::Transform).with_if(soft, EstimatorMethod::PredictProba);
    voting(fitted, methods, Some(labels), soft)
}

pub(super) fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    voting(fitted, MethodSet::PREDICT.with(EstimatorMethod::Transform), None, false)
}

fn voting(
    fitted: &FittedObject<'_>,
    methods: MethodSet,
    labels: Option<Elements<'static>>,
    soft: bool,
) -> Result<EstimatorSpec, LoadError> {
    let members = sub_estimators(fitted, "estimators_")?;
    let asked = if soft { EstimatorMethod::PredictProba } else { EstimatorMethod::Predict };
    if members.iter().any(|member| !member.info.methods.contains(asked)) {
        return Err(fitted.unexpected("estimators_", "estimators that can vote"));
    }
    let weights = if fitted.get("weights").is_some() { weights(fitted)? } else { vec![1.0; members.len()] };
    fitted.check_count("weights", members.len(), weights.len())?;
    let features = members.first().and_then(|member| member.info.features);
    Ok(EstimatorSpec::composed(methods, features, None, Voting { members, weights, labels, soft }))
}

/// Reads the weights of the estimators that vote. The file has a weight for every estimator of the constructor,
/// including those that were dropped.
fn weights(fitted: &FittedObject<'_>) -> Result<Vec<f64>, LoadError> {
    let all = fitted.floats("weights")?;
    let named = fitted.items("estimators")?;
    fitted.check_count("weights", named.len(), all.len())?;
    let dropped = |step: &PickleValue<'_>| {
        let estimator = step.items().and_then(|parts| parts.get(1).copied());
        estimator.is_some_and(|estimator| estimator.as_str() == Some("drop"))
    };
    let kept = all.into_iter().zip(&named).filter(|(_, step)| !dropped(step));
    Ok(kept.map(|(weight, _)| weight).collect())
}

impl Voting {
    /// Returns the weighted mean of tables with the same number of columns.
    fn average(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        columns: usize,
    ) -> Result<sub_estimators::NumericAnswer, PredictError> {
        let mut sums = vec![0.0; data.rows().saturating_mul(columns)];
        let mut single = true;
        for (member, weight) in self.members.iter().zip(&self.weights) {
            let own = member.numbers_of(method, data, columns)?;
            single &= own.single;
            sums.iter_mut().zip(own.values).for_each(|(sum, own)| *sum += own * weight);
        }
        let total: f64 = self.weights.iter().sum();
        divide(&mut sums, total);
        Ok(sub_estimators::NumericAnswer { values: sums, columns, single })
    }

    /// Returns the positions of the labels that every estimator predicts, estimator by estimator.
    fn votes(&self, data: &TableData<'_>, labels: &Elements<'_>) -> Result<Vec<Vec<usize>>, PredictError> {
        let all: Vec<i64> = (0..labels.len()).filter_map(|label| i64::try_from(label).ok()).collect();
        let all = Elements::Int(all.into(), IntType::I64);
        self.members.iter().map(|member| member.predicted_positions(data, &all)).collect()
    }

    fn predict(&self, data: &TableData<'_>, labels: &Elements<'_>) -> Result<TableData<'static>, PredictError> {
        let places: Vec<usize> = if self.soft {
            let columns = labels.len();
            self.average(EstimatorMethod::PredictProba, data, columns)?
                .values
                .chunks_exact(columns.max(1))
                .map(argmax)
                .collect()
        } else {
            let votes = self.votes(data, labels)?;
            let winner = |row: usize| {
                let mut counts = vec![0.0; labels.len()];
                votes.iter().zip(&self.weights).for_each(|(votes, weight)| counts[votes[row]] += weight);
                argmax(&counts)
            };
            (0..data.rows()).map(winner).collect()
        };
        Ok(TableData::Table(DenseTable::of_column(labels.take(places.into_iter()))))
    }

    /// Returns the predictions of all estimators, concatenated by column.
    fn transform(&self, data: &TableData<'_>) -> Result<TableData<'static>, PredictError> {
        if let Some(labels) = self.labels.as_ref().filter(|_| !self.soft) {
            let votes = self.votes(data, labels)?;
            let rows = (0..data.rows()).flat_map(|row| votes.iter().map(move |votes| votes[row]));
            let values = rows.filter_map(|place| i64::try_from(place).ok()).collect();
            let (rows, columns) = (data.rows(), votes.len());
            return Ok(TableData::Table(DenseTable { elements: Elements::Int(values, IntType::I64), rows, columns }));
        }
        let method = if self.soft { EstimatorMethod::PredictProba } else { EstimatorMethod::Predict };
        let columns = if self.soft { self.labels.as_ref().map_or(1, Elements::len) } else { 1 };
        let answers = self.members.iter().map(|member| member.numbers_of(method, data, columns));
        let answers: Vec<_> = answers.collect::<Result<_, _>>()?;
        Ok(sub_estimators::hstack(&answers, data.rows()).table())
    }
}

impl Evaluate for Voting {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        _: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        match (method, &self.labels) {
            (EstimatorMethod::Transform, _) => self.transform(data),
            (EstimatorMethod::PredictProba, Some(labels)) => Ok(self.average(method, data, labels.len())?.table()),
            (_, Some(labels)) => self.predict(data, labels),
            (_, None) => Ok(self.average(EstimatorMethod::Predict, data, 1)?.table()),
        }
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(&self.members)
    }
}
