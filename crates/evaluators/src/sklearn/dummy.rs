//! Dummy estimators, which answer every row in the same way and look at none of its values.

use super::error::{LoadError, PredictError};
use super::estimator::{EstimatorInfo, Evaluate};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::numerics::argmax;
use super::spec::{ClassTable, EstimatorSpec};
use crate::pickle::PickleValue;
use crate::table::{DenseTable, Elements, IntType, TableData};

pub(super) const CLASSES: ClassTable = &[("dummy.DummyClassifier", classifier), ("dummy.DummyRegressor", regressor)];

/// The answers for one row.
#[derive(Debug)]
struct SameForAll {
    prediction: Elements<'static>,
    /// The probability of each class; regressors have none.
    probabilities: Elements<'static>,
}

fn same_for_all(methods: MethodSet, prediction: Elements<'static>, probabilities: Vec<f64>) -> EstimatorSpec {
    let probabilities = Elements::F64(probabilities.into());
    EstimatorSpec::composed(methods, None, None, SameForAll { prediction, probabilities }).without_names()
}

fn classifier(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    if fitted.size("n_outputs_")? != 1 {
        return Err(fitted.unsupported("n_outputs_"));
    }
    if fitted.flag("sparse_output_")? {
        return Err(fitted.unsupported("sparse_output_"));
    }
    let labels = fitted.labels("classes_")?;
    let prior = fitted.floats_of("class_prior_", labels.len())?;
    if labels.is_empty() {
        return Err(fitted.unexpected("classes_", "at least one class"));
    }
    let certain = |class: usize| (0..labels.len()).map(|other| f64::from(u8::from(other == class))).collect();
    // The strategies "stratified" and "uniform" draw random numbers.
    let (prediction, probabilities) = match fitted.text("_strategy")? {
        "prior" => (labels.take(std::iter::once(argmax(&prior))), prior),
        "most_frequent" => (labels.take(std::iter::once(argmax(&prior))), certain(argmax(&prior))),
        "constant" => {
            let label = constant(fitted)?;
            let class = (0..labels.len()).find(|&class| is_same(&labels, class, &label));
            (label, certain(class.ok_or_else(|| fitted.unexpected("constant", "one of `classes_`"))?))
        }
        _ => return Err(fitted.unsupported("_strategy")),
    };
    Ok(same_for_all(MethodSet::PREDICT.with(EstimatorMethod::PredictProba), prediction, probabilities))
}

/// Returns the parameter `constant`, which is predicted in its own type instead of that of the classes.
fn constant(fitted: &FittedObject<'_>) -> Result<Elements<'static>, LoadError> {
    let value = fitted.require("constant")?;
    let integer = |value: PickleValue<'_>| Some(Elements::Int(vec![value.as_i64()?].into(), IntType::I64));
    let text = |value: PickleValue<'_>| Some(Elements::Text(vec![value.as_str()?.into()]));
    if value.as_bool().is_some() || value.as_array().is_some() {
        return Err(fitted.unsupported("constant"));
    }
    integer(value).or_else(|| text(value)).ok_or_else(|| fitted.unsupported("constant"))
}

/// Returns whether a class has this label.
fn is_same(labels: &Elements<'_>, class: usize, label: &Elements<'_>) -> bool {
    match (labels, label) {
        (Elements::Int(labels, _), Elements::Int(label, _)) => labels.get(class) == label.first(),
        (Elements::Text(labels), Elements::Text(label)) => labels.get(class) == label.first(),
        _ => false,
    }
}

fn regressor(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let prediction = fitted.labels("constant_")?;
    fitted.check_count("constant_", fitted.size("n_outputs_")?, prediction.len())?;
    if prediction.is_empty() || prediction.numeric().is_none() {
        return Err(fitted.unexpected("constant_", "a number for each output"));
    }
    Ok(same_for_all(MethodSet::PREDICT, prediction, Vec::new()))
}

impl Evaluate for SameForAll {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        _: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let one = if method == EstimatorMethod::PredictProba { &self.probabilities } else { &self.prediction };
        let (rows, columns) = (data.rows(), one.len());
        let elements = one.take((0..rows).flat_map(|_| 0..columns));
        Ok(TableData::Table(DenseTable { elements, rows, columns }))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        20
    }
}
