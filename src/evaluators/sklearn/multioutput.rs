//! Several targets: an estimator for each, by itself or in a chain.

use std::sync::Arc;

use super::classes::{Classes, Family};
use super::concatenate;
use super::data::{Data, Elements, Table};
use super::error::{LoadError, PredictError};
use super::estimator::{About, Estimator, Evaluate, Method, Methods};
use super::fitted::Fitted;
use super::sub_estimators::{self, Answer, sub_estimators};

pub(super) const CLASSES: Classes = &[
    ("multioutput.ClassifierChain", classifier_chain),
    ("multioutput.MultiOutputClassifier", classifier),
    ("multioutput.MultiOutputRegressor", regressor),
    ("multioutput.RegressorChain", regressor_chain),
];

/// An estimator for each target.
#[derive(Debug)]
struct Each {
    estimators: Vec<Estimator>,
}

fn regressor(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    each(fitted, false)
}

fn classifier(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    each(fitted, true)
}

fn each(fitted: &Fitted<'_>, classifier: bool) -> Result<Family, LoadError> {
    let estimators = sub_estimators(fitted, "estimators_")?;
    let all = |method| estimators.iter().all(|estimator| estimator.about.methods.contains(method));
    if !all(Method::Predict) {
        return Err(fitted.unexpected("estimators_", "estimators that predict"));
    }
    let methods = Methods::PREDICT.and_if(classifier && all(Method::PredictProba), Method::PredictProba);
    let features = estimators[0].about.features;
    Ok(Family::composed(methods, features, None, Each { estimators }))
}

impl Evaluate for Each {
    fn call(&self, method: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        if method != Method::Predict {
            return Err(PredictError::Several { class: Arc::clone(&about.class), method });
        }
        let mut columns = Vec::with_capacity(self.estimators.len());
        for estimator in &self.estimators {
            match estimator.call(method, data)? {
                Data::Table(table) if table.columns == 1 && table.rows == data.rows() => columns.push(table.elements),
                other => {
                    let class = Arc::clone(&estimator.about.class);
                    return Err(PredictError::Part { class, wanted: 1, found: other.columns() });
                }
            }
        }
        let class = || PredictError::Text { class: Arc::clone(&about.class) };
        let elements = across(&columns, data.rows()).ok_or_else(class)?;
        Ok(Data::Table(Table { elements, rows: data.rows(), columns: self.estimators.len() }))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(&self.estimators)
    }
}

/// Columns as rows. Numbers of several types become those of double precision; text does not stand beside numbers.
fn across(columns: &[Elements<'static>], rows: usize) -> Option<Elements<'static>> {
    let (first, rest) = columns.split_first()?;
    let mut all = first.clone();
    if !rest.iter().all(|column| append(&mut all, column)) {
        let numbers = columns.iter().map(Elements::floats).collect::<Option<Vec<_>>>()?;
        all = Elements::F64(numbers.concat().into());
    }
    Some(all.take((0..rows).flat_map(|row| (0..columns.len()).map(move |column| column * rows + row))))
}

/// Appends elements of the same type.
fn append(all: &mut Elements<'static>, more: &Elements<'static>) -> bool {
    match (all, more) {
        (Elements::F32(all), Elements::F32(more)) => all.to_mut().extend_from_slice(more),
        (Elements::F64(all), Elements::F64(more)) => all.to_mut().extend_from_slice(more),
        (Elements::Int(all, kind), Elements::Int(more, own)) if kind == own => all.to_mut().extend_from_slice(more),
        (Elements::Text(all), Elements::Text(more)) => all.extend_from_slice(more),
        _ => return false,
    }
    true
}

/// Each estimator sees the input and what those before it said.
#[derive(Debug)]
struct Chain {
    estimators: Vec<Estimator>,
    /// Which target each estimator is for.
    order: Vec<usize>,
    /// What is said to those that follow.
    said: Method,
    features: usize,
}

fn regressor_chain(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    chain(fitted, false)
}

fn classifier_chain(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    chain(fitted, true)
}

fn chain(fitted: &Fitted<'_>, classifier: bool) -> Result<Family, LoadError> {
    let estimators = sub_estimators(fitted, "estimators_")?;
    let order = fitted.indices("order_", fitted.need("order_")?, estimators.len())?;
    fitted.count("order_", estimators.len(), order.len())?;
    let said = match fitted.text_if("chain_method_") {
        None => Method::Predict,
        Some(name) => Method::ALL
            .into_iter()
            .find(|method| method.name() == name && *method != Method::Transform)
            .ok_or_else(|| fitted.unsupported("chain_method_"))?,
    };
    let all = |method| estimators.iter().all(|estimator| estimator.about.methods.contains(method));
    if !all(Method::Predict) || !all(said) {
        return Err(fitted.unexpected("estimators_", "estimators that predict"));
    }
    let methods = Methods::PREDICT
        .and_if(classifier && all(Method::PredictProba), Method::PredictProba)
        .and_if(classifier && all(Method::DecisionFunction), Method::DecisionFunction);
    let features = fitted.size("n_features_in_")?;
    Ok(Family::new(methods, features, Chain { estimators, order, said, features }))
}

impl Evaluate for Chain {
    fn call(&self, method: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let (rows, targets) = (data.rows(), self.estimators.len());
        let mut seen = if let Data::Sparse(sparse) = data {
            about.finite_sparse(sparse)?;
            Data::Sparse(sparse.clone())
        } else {
            let x = about.finite(data)?;
            Data::Table(Table::of_f64(x.to_f64().into_owned(), self.features))
        };
        let mut answers = vec![0.0; rows * targets];
        for (estimator, &target) in self.estimators.iter().zip(&self.order) {
            let own = estimator.score(method, &seen)?;
            answers.iter_mut().skip(target).step_by(targets).zip(&own.values).for_each(|(slot, &own)| *slot = own);
            let said = if self.said == method { own } else { estimator.score(self.said, &seen)? };
            seen = concatenate::beside(&[seen, Answer { single: false, ..said }.table()], rows);
        }
        Ok(Data::Table(Table::of_f64(answers, targets)))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(&self.estimators)
    }
}
