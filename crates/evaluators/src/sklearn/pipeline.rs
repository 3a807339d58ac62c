//! `Pipeline` and `FeatureUnion`.

use std::borrow::Cow;

use super::concatenate;
use super::error::{LoadError, PredictError, Unexplained};
use super::estimator::{Estimator, EstimatorInfo, Evaluate, Explain};
use super::fitted::FittedObject;
use super::method::{EstimatorMethod, MethodSet};
use super::spec::{ClassTable, EstimatorSpec};
use crate::pickle::PickleValue;
use crate::table::{DenseTable, NumericType, TableData};

pub(super) const CLASSES: ClassTable = &[("pipeline.FeatureUnion", union), ("pipeline.Pipeline", pipeline)];

/// Transformers that are applied one after the other, and a final step.
#[derive(Debug)]
struct Pipeline {
    transformers: Vec<Estimator>,
    last: FinalStep,
}

/// The last step of a pipeline.
#[derive(Debug)]
enum FinalStep {
    Estimator(Estimator),
    /// The result of the transformers is returned.
    Nothing,
}

/// Returns whether a step passes its input unchanged.
pub(super) fn is_passthrough(step: PickleValue<'_>) -> bool {
    step.is_none() || step.as_str() == Some("passthrough")
}

/// The name of a step, its estimator, and all elements of its tuple.
pub(super) type NamedStep<'a> = (&'a str, PickleValue<'a>, Vec<PickleValue<'a>>);

/// Reads an attribute that is a list of named steps.
pub(super) fn named_steps<'a>(
    fitted: &FittedObject<'a>,
    attribute: &'static str,
) -> Result<Vec<NamedStep<'a>>, LoadError> {
    let wanted = || fitted.unexpected(attribute, "names and estimators");
    let step = |step: PickleValue<'a>| {
        let parts = step.items().ok_or_else(wanted)?;
        match parts[..] {
            [name, estimator, ..] => Ok((name.as_str().ok_or_else(wanted)?, estimator, parts)),
            _ => Err(wanted()),
        }
    };
    fitted.items(attribute)?.into_iter().map(step).collect()
}

fn pipeline(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let mut steps = named_steps(fitted, "steps")?;
    let (_, last, _) = steps.pop().ok_or_else(|| fitted.unexpected("steps", "at least one step"))?;
    let steps = steps.into_iter().filter(|(_, step, _)| !is_passthrough(*step));
    let transformers: Vec<Estimator> = steps.map(|(_, step, _)| fitted.estimator(step)).collect::<Result<_, _>>()?;
    if let Some(step) = transformers.iter().find(|step| !step.info.methods.contains(EstimatorMethod::Transform)) {
        return Err(LoadError::Parameter {
            class: fitted.class().to_owned(),
            parameter: "steps",
            value: step.info.path.to_string(),
        });
    }
    let last = if is_passthrough(last) { FinalStep::Nothing } else { FinalStep::Estimator(fitted.estimator(last)?) };
    let (methods, path) = match &last {
        FinalStep::Estimator(estimator) => (estimator.info.methods, Some(estimator.info.path.as_ref().into())),
        FinalStep::Nothing => (MethodSet::TRANSFORM, None),
    };
    let first = transformers.first().or(match &last {
        FinalStep::Estimator(estimator) => Some(estimator),
        FinalStep::Nothing => None,
    });
    let features = first.and_then(|first| first.info.features);
    Ok(EstimatorSpec::composed(methods, features, path, Pipeline { transformers, last }))
}

impl Evaluate for Pipeline {
    fn call(
        &self,
        method: EstimatorMethod,
        data: &TableData<'_>,
        _: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let mut data = Cow::Borrowed(data);
        for transformer in &self.transformers {
            data = Cow::Owned(transformer.call(EstimatorMethod::Transform, &data)?);
        }
        match &self.last {
            FinalStep::Estimator(estimator) => estimator.call(method, &data),
            FinalStep::Nothing => Ok(data.into_owned().into_static()),
        }
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn unread_columns(&self) -> Vec<String> {
        match (self.transformers.first(), &self.last) {
            (Some(first), _) | (None, FinalStep::Estimator(first)) => first.evaluate.unread_columns(),
            (None, FinalStep::Nothing) => Vec::new(),
        }
    }

    fn features_by_position(&self) -> Option<&[String]> {
        match (self.transformers.first(), &self.last) {
            (Some(first), _) | (None, FinalStep::Estimator(first)) => first.evaluate.features_by_position(),
            (None, FinalStep::Nothing) => None,
        }
    }

    fn explained<'a>(&'a self, _: &'a EstimatorInfo) -> Result<(&'a dyn Explain, &'a EstimatorInfo), Unexplained> {
        let FinalStep::Estimator(last) = &self.last else { return Err(Unexplained::Class) };
        let explained = last.evaluate.explained(&last.info)?;
        if self.transformers.is_empty() { Ok(explained) } else { Err(Unexplained::Pipeline) }
    }

    fn limit_contributions(&mut self, bytes: usize) {
        if let FinalStep::Estimator(last) = &mut self.last {
            last.evaluate.limit_contributions(bytes);
        }
    }

    fn cost(&self) -> u64 {
        let last = match &self.last {
            FinalStep::Estimator(estimator) => estimator.evaluate.cost(),
            FinalStep::Nothing => 0,
        };
        last + self.transformers.iter().map(|step| step.evaluate.cost()).sum::<u64>()
    }
}

/// Concatenates the results of several transformers.
#[derive(Debug)]
struct FeatureUnion {
    /// Transformers with the weight of their columns. `None` passes the input unchanged.
    parts: Vec<(Option<Estimator>, Option<f64>)>,
}

fn union(fitted: &FittedObject<'_>) -> Result<EstimatorSpec, LoadError> {
    let weights = fitted.get("transformer_weights");
    let mut parts = Vec::new();
    for (name, step, _) in named_steps(fitted, "transformer_list")? {
        if step.as_str() == Some("drop") || step.is_none() {
            continue;
        }
        let weight = weights.and_then(|weights| weights.get(name)).and_then(PickleValue::as_f64);
        let part = if is_passthrough(step) { None } else { Some(fitted.estimator(step)?) };
        parts.push((part, weight));
    }
    let whole = parts
        .iter()
        .all(|(part, _)| part.as_ref().is_none_or(|part| part.info.methods.contains(EstimatorMethod::Transform)));
    if !whole || parts.is_empty() {
        return Err(fitted.unexpected("transformer_list", "transformers"));
    }
    let features = parts.iter().find_map(|(part, _)| part.as_ref()?.info.features);
    Ok(EstimatorSpec::composed(MethodSet::TRANSFORM, features, None, FeatureUnion { parts }))
}

impl Evaluate for FeatureUnion {
    fn call(
        &self,
        _: EstimatorMethod,
        data: &TableData<'_>,
        info: &EstimatorInfo,
    ) -> Result<TableData<'static>, PredictError> {
        let mut blocks = Vec::with_capacity(self.parts.len());
        for (part, weight) in &self.parts {
            let block = match part {
                Some(part) => part.call(EstimatorMethod::Transform, data)?,
                None => concatenate::hstack(std::slice::from_ref(data), data.rows()),
            };
            blocks.push(match weight {
                Some(weight) => weighted(&block, *weight, info)?,
                None => block,
            });
        }
        Ok(concatenate::hstack(&blocks, data.rows()))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        100 + self.parts.iter().flat_map(|(part, _)| part).map(|part| part.evaluate.cost()).sum::<u64>()
    }
}

/// Multiplies a result by a weight.
fn weighted(block: &TableData<'_>, weight: f64, info: &EstimatorInfo) -> Result<TableData<'static>, PredictError> {
    if let TableData::Sparse(sparse) = block {
        return Ok(TableData::Sparse(sparse.map(sparse.numeric().with(NumericType::F32), |value| value * weight)));
    }
    let matrix = info.unchecked(block)?;
    let values = matrix.to_f64().iter().map(|value| value * weight).collect();
    let numeric = if matrix.is_single() { NumericType::F32 } else { NumericType::F64 };
    Ok(TableData::Table(DenseTable { elements: numeric.elements(values), rows: matrix.rows, columns: matrix.columns }))
}
