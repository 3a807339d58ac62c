//! Stacking: an estimator that is given what others answer.

use crate::evaluators::sklearn::classes::Family;
use crate::evaluators::sklearn::concatenate;
use crate::evaluators::sklearn::data::{Data, Elements, Int, Table};
use crate::evaluators::sklearn::error::{LoadError, PredictError};
use crate::evaluators::sklearn::estimator::{About, Estimator, Evaluate, Method, Methods};
use crate::evaluators::sklearn::fitted::Fitted;
use crate::evaluators::sklearn::sub_estimators::{self, Answer, sub_estimators};

#[derive(Debug)]
struct Stacking {
    /// Each with what it is asked for.
    members: Vec<(Estimator, Method)>,
    last: Estimator,
    /// Of classifiers.
    labels: Option<Elements<'static>>,
    /// Whether the last one sees the input as well.
    passthrough: bool,
}

pub(super) fn classifier(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    // Several targets have a list of labels, which is refused.
    stacking(fitted, Some(fitted.labels("classes_")?))
}

pub(super) fn regressor(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    stacking(fitted, None)
}

fn stacking(fitted: &Fitted<'_>, labels: Option<Elements<'static>>) -> Result<Family, LoadError> {
    let all = sub_estimators(fitted, "estimators_")?;
    let asked = fitted.texts("stack_method_")?;
    fitted.count("stack_method_", all.len(), asked.len())?;
    let mut stacked = Vec::with_capacity(all.len());
    for (member, asked) in all.into_iter().zip(asked) {
        let method = Method::ALL.into_iter().find(|method| method.name() == asked);
        let method = method.filter(|&method| member.about.methods.contains(method));
        stacked.push((member, method.ok_or_else(|| fitted.unsupported("stack_method_"))?));
    }
    let last = fitted.estimator(fitted.need("final_estimator_")?)?;
    if !last.about.methods.contains(Method::Predict) {
        return Err(fitted.unexpected("final_estimator_", "an estimator that predicts"));
    }
    let passthrough = fitted.flag("passthrough")?;
    let own = |method| labels.is_some() && last.about.methods.contains(method);
    let methods = Methods::PREDICT
        .and(Method::Transform)
        .and_if(own(Method::PredictProba), Method::PredictProba)
        .and_if(own(Method::DecisionFunction), Method::DecisionFunction);
    let features = stacked.first().and_then(|(member, _)| member.about.features);
    Ok(Family::composed(methods, features, None, Stacking { members: stacked, last, labels, passthrough }))
}

impl Stacking {
    /// What the last estimator sees.
    fn transform(&self, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let two = self.labels.as_ref().is_some_and(|labels| labels.len() == 2);
        let mut answers = Vec::with_capacity(self.members.len() + 1);
        let mut whole = !self.passthrough;
        for (member, method) in &self.members {
            let answer = member.call(*method, data)?;
            whole &= matches!(&answer, Data::Table(Table { elements: Elements::Int(_, Int::I64), .. }));
            answers.push(if two && *method == Method::PredictProba {
                member.score(*method, data)?
            } else {
                sub_estimators::numbers(&answer, member, data.rows())?
            });
        }
        if let (true, Data::Sparse(_)) = (self.passthrough, data) {
            let mut blocks: Vec<_> = answers.into_iter().map(Answer::table).collect();
            blocks.push(data.clone().into_static());
            return Ok(concatenate::beside(&blocks, data.rows()));
        }
        if self.passthrough {
            let input = about.unchecked(data)?;
            let (values, columns) = (input.to_f64().into_owned(), input.columns);
            answers.push(Answer { values, columns, single: input.is_single() });
        }
        let beside = sub_estimators::beside(&answers, data.rows());
        if !whole {
            return Ok(beside.table());
        }
        // Nothing but labels, which are whole numbers and stay that.
        #[expect(clippy::cast_possible_truncation, reason = "they were whole numbers before")]
        let values = beside.values.iter().map(|&value| value as i64).collect();
        let (rows, columns) = (data.rows(), beside.columns);
        Ok(Data::Table(Table { elements: Elements::Int(values, Int::I64), rows, columns }))
    }
}

impl Evaluate for Stacking {
    fn call(&self, method: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let stacked = self.transform(data, about)?;
        match (method, &self.labels) {
            (Method::Transform, _) => Ok(stacked),
            (Method::Predict, Some(labels)) => {
                let all: Vec<i64> = (0..labels.len()).filter_map(|label| i64::try_from(label).ok()).collect();
                let places = self.last.places(&stacked, &Elements::Int(all.into(), Int::I64))?;
                Ok(Data::Table(Table::of_column(labels.take(places.into_iter()))))
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
