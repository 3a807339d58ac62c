//! Pipelines and unions of transformers.

use std::borrow::Cow;

use super::classes::{Classes, Family};
use super::concatenate;
use super::data::{Data, Table};
use super::error::{LoadError, PredictError};
use super::estimator::{About, Estimator, Evaluate, Method, Methods};
use super::fitted::Fitted;
use super::sparse::Numeric;
use crate::pickle::Value;

pub(super) const CLASSES: Classes = &[("pipeline.FeatureUnion", union), ("pipeline.Pipeline", pipeline)];

/// One after the other.
#[derive(Debug)]
struct Pipeline {
    transformers: Vec<Estimator>,
    last: Last,
}

/// What ends a pipeline.
#[derive(Debug)]
enum Last {
    Estimator(Estimator),
    /// The transformers' result is the answer.
    Nothing,
}

/// Whether a step does nothing.
pub(super) fn passes(step: Value<'_>) -> bool {
    step.is_none() || step.as_str() == Some("passthrough")
}

/// A name, an estimator, and all that stands with them.
pub(super) type Step<'a> = (&'a str, Value<'a>, Vec<Value<'a>>);

/// The estimators of named steps.
pub(super) fn named<'a>(fitted: &Fitted<'a>, attribute: &'static str) -> Result<Vec<Step<'a>>, LoadError> {
    let wanted = || fitted.unexpected(attribute, "names and estimators");
    let step = |step: Value<'a>| {
        let parts = step.items().ok_or_else(wanted)?;
        match parts[..] {
            [name, estimator, ..] => Ok((name.as_str().ok_or_else(wanted)?, estimator, parts)),
            _ => Err(wanted()),
        }
    };
    fitted.items(attribute)?.into_iter().map(step).collect()
}

fn pipeline(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let mut steps = named(fitted, "steps")?;
    let (_, last, _) = steps.pop().ok_or_else(|| fitted.unexpected("steps", "at least one step"))?;
    let steps = steps.into_iter().filter(|(_, step, _)| !passes(*step));
    let transformers: Vec<Estimator> = steps.map(|(_, step, _)| fitted.estimator(step)).collect::<Result<_, _>>()?;
    if let Some(step) = transformers.iter().find(|step| !step.about.methods.contains(Method::Transform)) {
        return Err(LoadError::Parameter {
            class: fitted.class().to_owned(),
            parameter: "steps",
            value: step.about.path.to_string(),
        });
    }
    let last = if passes(last) { Last::Nothing } else { Last::Estimator(fitted.estimator(last)?) };
    let (methods, path) = match &last {
        Last::Estimator(estimator) => (estimator.about.methods, Some(estimator.about.path.as_ref().into())),
        Last::Nothing => (Methods::TRANSFORM, None),
    };
    let first = transformers.first().or(match &last {
        Last::Estimator(estimator) => Some(estimator),
        Last::Nothing => None,
    });
    let features = first.and_then(|first| first.about.features);
    Ok(Family::composed(methods, features, path, Pipeline { transformers, last }))
}

impl Evaluate for Pipeline {
    fn call(&self, method: Method, data: &Data<'_>, _: &About) -> Result<Data<'static>, PredictError> {
        let mut data = Cow::Borrowed(data);
        for transformer in &self.transformers {
            data = Cow::Owned(transformer.call(Method::Transform, &data)?);
        }
        match &self.last {
            Last::Estimator(estimator) => estimator.call(method, &data),
            Last::Nothing => Ok(data.into_owned().into_static()),
        }
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        let last = match &self.last {
            Last::Estimator(estimator) => estimator.evaluate.cost(),
            Last::Nothing => 0,
        };
        last + self.transformers.iter().map(|step| step.evaluate.cost()).sum::<u64>()
    }
}

/// Transformers side by side.
#[derive(Debug)]
struct Union {
    /// Each with the weight of its columns; `None` passes its input on.
    parts: Vec<(Option<Estimator>, Option<f64>)>,
}

fn union(fitted: &Fitted<'_>) -> Result<Family, LoadError> {
    let weights = fitted.get("transformer_weights");
    let mut parts = Vec::new();
    for (name, step, _) in named(fitted, "transformer_list")? {
        if step.as_str() == Some("drop") || step.is_none() {
            continue;
        }
        let weight = weights.and_then(|weights| weights.get(name)).and_then(Value::as_f64);
        let part = if passes(step) { None } else { Some(fitted.estimator(step)?) };
        parts.push((part, weight));
    }
    let whole =
        parts.iter().all(|(part, _)| part.as_ref().is_none_or(|part| part.about.methods.contains(Method::Transform)));
    if !whole || parts.is_empty() {
        return Err(fitted.unexpected("transformer_list", "transformers"));
    }
    let features = parts.iter().find_map(|(part, _)| part.as_ref()?.about.features);
    Ok(Family::composed(Methods::TRANSFORM, features, None, Union { parts }))
}

impl Evaluate for Union {
    fn call(&self, _: Method, data: &Data<'_>, about: &About) -> Result<Data<'static>, PredictError> {
        let mut blocks = Vec::with_capacity(self.parts.len());
        for (part, weight) in &self.parts {
            let block = match part {
                Some(part) => part.call(Method::Transform, data)?,
                None => concatenate::beside(std::slice::from_ref(data), data.rows()),
            };
            blocks.push(match weight {
                Some(weight) => weighted(&block, *weight, about)?,
                None => block,
            });
        }
        Ok(concatenate::beside(&blocks, data.rows()))
    }

    fn takes_sparse(&self) -> bool {
        true
    }

    fn cost(&self) -> u64 {
        100 + self.parts.iter().flat_map(|(part, _)| part).map(|part| part.evaluate.cost()).sum::<u64>()
    }
}

/// A result times a weight.
fn weighted(block: &Data<'_>, weight: f64, about: &About) -> Result<Data<'static>, PredictError> {
    if let Data::Sparse(sparse) = block {
        return Ok(Data::Sparse(sparse.map(sparse.numeric().with(Numeric::F32), |value| value * weight)));
    }
    let matrix = about.unchecked(block)?;
    let values = matrix.to_f64().iter().map(|value| value * weight).collect();
    let numeric = if matrix.is_single() { Numeric::F32 } else { Numeric::F64 };
    Ok(Data::Table(Table { elements: numeric.elements(values), rows: matrix.rows, columns: matrix.columns }))
}
