//! Stacking: a final estimator that receives the predictions of other estimators.

use crate::sklearn::concatenate;
use crate::sklearn::error::{LoadError, PredictError};
use crate::sklearn::estimator::{Estimator, EstimatorInfo, Evaluate};
use crate::sklearn::fitted::FittedObject;
use crate::sklearn::method::{EstimatorMethod, MethodSet};
use crate::sklearn::spec::EstimatorSpec;
use crate::sklearn::sub_estimators::{self, NumericAnswer, sub_estimators};
use crate::table::{DenseTable, Elements, IntType, TableData};

#[derive(Debug)]
struct Stacking {
    /// The estimators, with the method that is called on each.
    members: Vec<(Estimator, EstimatorMethod)>,
    last: Estimator,
    /// Classifiers only.
    labels: Option<Elements<'static>>,
    /// Whether the final estimator receives the input as well.
    passthrough: bool,
}

pub(super) fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    // With several targets this is a list of arrays, which is not supported.
    stacking(fitted, Some(fitted.labels("classes_")?))
}

pub(super) fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    stacking(fitted, None)
}

fn stacking(fitted: &FittedObject<'_>, labels: Option<Elements<'static>>) -> Result<EstimatorSpec, LoadError> {
    let all = sub_estimators(fitted, "estimators_")?;
    let asked = fitted.texts("stack_method_")?;
    fitted.check_count("stack_method_", all.len(), asked.len())?;
    let mut stacked = Vec::with_capacity(all.len());
    for (member, asked) in all.into_iter().zip(asked) {
        let method = EstimatorMethod::ALL.into_iter().find(|method| method.name() == asked);
        let method = method.filter(|&method| member.info.methods.contains(method));
        stacked.push((member, method.ok_or_else(|| fitted.unsupported("stack_method_"))?));
    }
    let last = fitted.estimator(fitted.require("final_estimator_")?)?;
    if !last.info.methods.contains(EstimatorMethod::Predict) {
        return Err(fitted.unexpected("final_estimator_", "an estimator that predicts"));
    }
    let passthrough = fitted.flag("passthrough")?;
    let own = |method| labels.is_some() && last.info.methods.contains(method);
    let methods = MethodSet::PREDICT
        .with(EstimatorMethod::Transform)
        .with_if(own(EstimatorMethod::PredictProba), EstimatorMethod::PredictProba)
        .with_if(own(EstimatorMethod::DecisionFunction), EstimatorMethod::DecisionFunction);
    let features = stacked.first().and_then(|(member, _)| member.info.features);
    Ok(EstimatorSpec::composed(methods, features, None, Stacking { members: stacked, last, labels, passthrough }))
}

impl Stacking {
    /// Returns the input of the final estimator.
    fn transform(&self, data: &TableData<'_>, info: &EstimatorInfo) -> Result<TableData<'static>, PredictError> {
        let two = self.labels.as_ref().is_some_and(|labels| labels.len() == 2);
        let mut answers = Vec::with_capacity(self.members.len() + 1);
        let mut whole = !self.passthrough;
        for (member, method) in &self.members {
            let answer = member.call(*method, data)?;
            whole &= matches!(&answer, TableData::Table(DenseTable { elements: Elements::Int(_, IntType::I64), .. }));
            answers.push(if two && *method == EstimatorMethod::PredictProba {
                member.score(*method, data)?
            } else {
                sub_estimators::numbers(&answer, member, data.rows())?
            });
        }
        if let (true, TableData::Sparse(_)) = (self.passthrough, data) {
            let mut blocks: Vec<_> = answers.into_iter().map(NumericAnswer::table).collect();
            blocks.push(data.clone().into_static());
            return Ok(concatenate::hstack(&blocks, data.rows()));
        }
        if self.passthrough {
            let input = info.unchecked(data)?;
            let (values, columns) = (input.to_f64().into_owned(), input.columns);
            answers.push(NumericAnswer { values, columns, single: input.is_single() });
        }
        let combined = sub_estimators::hstack(&answers, data.rows());
        if !whole {
            return Ok(combined.table());
        }
        // All predictions are labels, which are integers and stay integers.
        #[expect(clippy::cast_possible_truncation, reason = "they were integers before")]
        let values = combined.values.iter().map(|&value| value as i64).collect();
        let (rows, columns) = (data.rows(), combined.columns);
        Ok(TableData::Table(DenseTable { elements: Elements::Int(values, IntType::I64), rows, columns }))
    }
}

impl Evaluate for Stacking {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let stacked = self.transform(data, info)?;
        match (method, &self.labels) {
            (EstimatorMethod::Transform, _) => Ok(stacked),
            (EstimatorMethod::Predict, Some(labels)) => {
                let all: Vec<i64> = (0..labels.len()).filter_map(|label| i64::try_from(label).ok()).collect();
                let places = self.last.predicted_positions(&stacked, &Elements::Int(all.into(), IntType::I64))?;
                Ok(TableData::Table(DenseTable::of_column(labels.take(places.into_iter()))))
            }
            _ => self.last.call(method, &stacked),
        }
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(self.members.iter().map(|(member, _)| member).chain([&self.last]))
    }
}
