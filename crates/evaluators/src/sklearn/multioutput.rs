//! Multiple targets: one estimator for each, independent or in a chain.

use std::sync::Arc;

use super::concatenate;
use super::error::{LoadError, PredictError};
use super::estimator::{Estimator, EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::spec::{ClassTable, EstimatorSpec};
use super::sub_estimators::{self, NumericAnswer, sub_estimators};
use crate::table::{DenseTable, Elements, TableData};

pub(super) const CLASSES: ClassTable = &[
    ("multioutput.ClassifierChain", classifier_chain),
    ("multioutput.MultiOutputClassifier", classifier),
    ("multioutput.MultiOutputRegressor", regressor),
    ("multioutput.RegressorChain", regressor_chain),
];

/// One estimator for each target.
#[derive(Debug)]
struct MultiOutput {
    estimators: Vec<Estimator>,
}

fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    each(fitted, false)
}

fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    each(fitted, true)
}

fn each(fitted: &FittedObject<'_>, classifier: bool) -> Result<EstimatorSpec, LoadError> {
    let estimators = sub_estimators(fitted, "estimators_")?;
    let all = |method| estimators.iter().all(|estimator| estimator.info.methods.contains(method));
    if !all(EstimatorMethod::Predict) {
        return Err(fitted.unexpected("estimators_", "estimators that predict"));
    }
    let methods =
        MethodSet::PREDICT.with_if(classifier && all(EstimatorMethod::PredictProba), EstimatorMethod::PredictProba);
    let features = estimators[0].info.features;
    Ok(EstimatorSpec::composed(methods, features, None, MultiOutput { estimators }))
}

impl Evaluate for MultiOutput {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        if method != EstimatorMethod::Predict {
            return Err(PredictError::Several { class: Arc::clone(&info.class), method });
        }
        let mut columns = Vec::with_capacity(self.estimators.len());
        for estimator in &self.estimators {
            match estimator.call(method, data)? {
                TableData::Table(table) if table.columns == 1 && table.rows == data.rows() => {
                    columns.push(table.elements);
                }
                other => {
                    let class = Arc::clone(&estimator.info.class);
                    return Err(PredictError::Part { class, wanted: 1, found: other.columns() });
                }
            }
        }
        let class = || PredictError::Text { class: Arc::clone(&info.class) };
        let elements = transpose_columns(&columns, data.rows()).ok_or_else(class)?;
        Ok(TableData::Table(DenseTable { elements, rows: data.rows(), columns: self.estimators.len() }))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(&self.estimators)
    }
}

/// Transposes columns to rows. Numbers of different types become double precision; returns `None` if only some are
/// text.
fn transpose_columns(columns: &[Elements<'static>], rows: usize) -> Option<Elements<'static>> {
    let (first, rest) = columns.split_first()?;
    let mut all = first.clone();
    if !rest.iter().all(|column| append(&mut all, column)) {
        let numbers = columns.iter().map(Elements::floats).collect::<Option<Vec<_>>>()?;
        all = Elements::F64(numbers.concat().into());
    }
    Some(all.take((0..rows).flat_map(|row| (0..columns.len()).map(move |column| column * rows + row))))
}

/// Appends elements of the same type. Returns false for another type.
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

/// Each estimator receives the input and the predictions of those before it.
#[derive(Debug)]
struct Chain {
    estimators: Vec<Estimator>,
    /// The target of each estimator.
    order: Vec<usize>,
    /// The method whose results are passed on in the chain.
    link_method: EstimatorMethod,
    features: usize,
}

fn regressor_chain(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    chain(fitted, false)
}

fn classifier_chain(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    chain(fitted, true)
}

fn chain(fitted: &FittedObject<'_>, classifier: bool) -> Result<EstimatorSpec, LoadError> {
    let estimators = sub_estimators(fitted, "estimators_")?;
    let order = fitted.indices("order_", fitted.require("order_")?, estimators.len())?;
    fitted.check_count("order_", estimators.len(), order.len())?;
    let link_method = match fitted.text_if("chain_method_") {
        None => EstimatorMethod::Predict,
        Some(name) => EstimatorMethod::ALL
            .into_iter()
            .find(|method| method.name() == name && *method != EstimatorMethod::Transform)
            .ok_or_else(|| fitted.unsupported("chain_method_"))?,
    };
    let all = |method| estimators.iter().all(|estimator| estimator.info.methods.contains(method));
    if !all(EstimatorMethod::Predict) || !all(link_method) {
        return Err(fitted.unexpected("estimators_", "estimators that predict"));
    }
    let methods = MethodSet::PREDICT
        .with_if(classifier && all(EstimatorMethod::PredictProba), EstimatorMethod::PredictProba)
        .with_if(classifier && all(EstimatorMethod::DecisionFunction), EstimatorMethod::DecisionFunction);
    let features = fitted.size("n_features_in_")?;
    Ok(EstimatorSpec::new(methods, features, Chain { estimators, order, link_method, features }))
}

impl Evaluate for Chain {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let (rows, targets) = (data.rows(), self.estimators.len());
        let mut seen = if let TableData::Sparse(sparse) = data {
            info.finite_sparse(sparse)?;
            TableData::Sparse(sparse.clone())
        } else {
            let x = info.finite(data)?;
            TableData::Table(DenseTable::of_f64(x.to_f64().into_owned(), self.features))
        };
        let mut answers = vec![0.0; rows * targets];
        for (estimator, &target) in self.estimators.iter().zip(&self.order) {
            let own = estimator.score(method, &seen)?;
            answers.iter_mut().skip(target).step_by(targets).zip(&own.values).for_each(|(slot, &own)| *slot = own);
            let passed_on = if self.link_method == method { own } else { estimator.score(self.link_method, &seen)? };
            seen = concatenate::hstack(&[seen, NumericAnswer { single: false, ..passed_on }.table()], rows);
        }
        Ok(TableData::Table(DenseTable::of_f64(answers, targets)))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        sub_estimators::cost(&self.estimators)
    }
}
