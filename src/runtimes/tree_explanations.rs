//! Explanations of tree models: the outputs `contributions`, `margin` and `leaf`.

use serde_json::Value;

use super::{LoadError, RuntimeError};
use crate::evaluators::sklearn::{ContributionSpace, EstimatorExplanation};
use crate::evaluators::trees::{DEFAULT_CONTRIBUTION_LIMIT, EnsembleOutput, PredictedValues, Prediction};
use crate::settings::ModelSettings;
use crate::types::{InferenceRequest, Parameters, RequestedOutput, Tensor};

/// The contributions of features to the margin.
pub(super) const CONTRIBUTIONS: &str = "contributions";
/// The outputs that every tree model has beside those of the original.
const OUTPUTS: [(&str, EnsembleOutput); 3] = [
    (CONTRIBUTIONS, EnsembleOutput::Contributions),
    ("margin", EnsembleOutput::Margin),
    ("leaf", EnsembleOutput::Leaf),
];
/// The parameter of a request that asks for the largest contributions only.
const TOP: &str = "contributions_top";

/// An output of a model of trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TreeOutput {
    /// A tensor.
    Whole(EnsembleOutput),
    /// Two tensors: the indexes and values of so many contributions.
    LargestContributions(usize),
}

impl TreeOutput {
    pub(super) const CONTRIBUTIONS: Self = Self::Whole(EnsembleOutput::Contributions);

    /// Returns the output that is evaluated for it.
    pub(super) const fn evaluated(self) -> EnsembleOutput {
        match self {
            Self::Whole(output) => output,
            Self::LargestContributions(_) => EnsembleOutput::Contributions,
        }
    }
}

/// What the settings of a model say of explanations.
#[derive(Debug, Clone)]
pub(super) struct ExplanationSettings {
    /// `parameters.extra.explain`
    pub(super) is_on: bool,
    /// `parameters.extra.explain_max_bytes`
    pub(super) max_bytes: usize,
    /// `parameters.extra.predict_fn`, if it is one of the outputs here: the output of requests that name none.
    pub(super) default_output: Option<EnsembleOutput>,
}

impl ExplanationSettings {
    /// Reads the settings of a model.
    pub(super) fn of(settings: &ModelSettings) -> Result<Self, LoadError> {
        let extra = &settings.parameters.extra;
        let wrong = |setting, found: &Value, expected| LoadError::Extra { setting, found: found.to_string(), expected };
        let is_on = match extra.get("explain") {
            None | Some(Value::Null) => true,
            Some(Value::Bool(is_on)) => *is_on,
            Some(found) => return Err(wrong("explain", found, "`true` or `false`")),
        };
        let max_bytes = match extra.get("explain_max_bytes") {
            None | Some(Value::Null) => DEFAULT_CONTRIBUTION_LIMIT,
            Some(found) => match found.as_u64().and_then(|bytes| usize::try_from(bytes).ok()) {
                Some(bytes) => bytes,
                None => return Err(wrong("explain_max_bytes", found, "a number of bytes")),
            },
        };
        // The original's runtimes of these libraries do not read it, so it may have any other value.
        let default_output = extra.get("predict_fn").and_then(Value::as_str).and_then(output);
        Ok(Self { is_on, max_bytes, default_output })
    }
}

impl ExplanationSettings {
    /// Returns the outputs to compute for a request: those that it names, or only the largest contributions.
    pub(super) fn outputs_of<O: From<TreeOutput> + PartialEq>(
        &self,
        request: &InferenceRequest,
        mut outputs: Vec<O>,
        features: usize,
    ) -> Result<Vec<O>, RuntimeError> {
        let contributions = O::from(TreeOutput::CONTRIBUTIONS);
        if outputs.contains(&contributions) && !self.is_on {
            return Err(switched_off());
        }
        let Some(count) = top(request, features)? else { return Ok(outputs) };
        if request.outputs.is_empty() {
            if !self.is_on {
                return Err(switched_off());
            }
            return Ok(vec![TreeOutput::LargestContributions(count).into()]);
        }
        if !outputs.contains(&contributions) {
            return Err(top_of_nothing());
        }
        for output in outputs.iter_mut().filter(|output| **output == contributions) {
            *output = TreeOutput::LargestContributions(count).into();
        }
        Ok(outputs)
    }
}

/// Returns the output of a name that every tree model has beside those of the original.
pub(super) fn output(name: &str) -> Option<EnsembleOutput> {
    OUTPUTS.iter().find(|(known, _)| *known == name).map(|(_, output)| *output)
}

/// Returns how many such outputs are requested, each once.
pub(super) fn count(requested: &[RequestedOutput]) -> usize {
    OUTPUTS.iter().filter(|(name, _)| requested.iter().any(|output| output.name == *name)).count()
}

/// Returns the name of such an output.
pub(super) fn name(output: EnsembleOutput) -> Option<&'static str> {
    OUTPUTS.iter().find(|(_, known)| *known == output).map(|(name, _)| *name)
}

/// Returns how many of the largest contributions a request asks for, at most the number of features. `None` if it asks for all.
pub(super) fn top(request: &InferenceRequest, features: usize) -> Result<Option<usize>, RuntimeError> {
    let Some(value) = request.parameters.others.get(TOP) else { return Ok(None) };
    let count = value.as_u64().and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let count = count.ok_or_else(|| {
        let message =
            format!("parameter `{TOP}` is `{value}`: expected how many of the largest contributions to return, from 1");
        RuntimeError::invalid_request(message)
    })?;
    Ok(Some(count.min(features)))
}

/// Explains that a request for the largest contributions does not ask for contributions.
pub(super) fn top_of_nothing() -> RuntimeError {
    let message = format!("parameter `{TOP}` is set, but `{CONTRIBUTIONS}` is not among the requested outputs: add it");
    RuntimeError::invalid_request(message)
}

/// Refuses contributions of a model whose settings switch them off.
pub(super) fn switched_off() -> RuntimeError {
    let message = "explanations are switched off for this model, by its setting `parameters.extra.explain`";
    RuntimeError::invalid_request(message)
}

/// The shape of contributions: rows, then groups if there are several, then values.
pub(super) fn shape(rows: usize, groups: usize, values: usize) -> Vec<usize> {
    if groups == 1 { vec![rows, values] } else { vec![rows, groups, values] }
}

/// Returns the size of a row of the largest contributions to some sums, of which all are computed first.
pub(super) fn largest_bytes(features: usize, sums: usize, width: usize, count: usize) -> usize {
    let all = features.saturating_add(1).saturating_mul(sums).saturating_mul(width);
    all.max((size_of::<i32>() + width).saturating_mul(count).saturating_mul(sums))
}

/// Returns the name of what contributions add up to, for metadata.
pub(super) const fn space(space: ContributionSpace) -> &'static str {
    match space {
        ContributionSpace::Margin => "margin",
        ContributionSpace::Probability => "probability",
        ContributionSpace::Prediction => "prediction",
    }
}

/// Returns the size of a row of an output in bytes, 0 if the model has no such outputs.
pub(super) fn row_bytes(explained: Option<EstimatorExplanation>, output: TreeOutput) -> usize {
    let Some(EstimatorExplanation { features, sums, leaves, is_single, .. }) = explained else { return 0 };
    let width = if is_single { size_of::<f32>() } else { size_of::<f64>() };
    match output {
        TreeOutput::Whole(EnsembleOutput::Leaf) => {
            leaves.iter().flatten().fold(size_of::<i32>(), |bytes, count| bytes.saturating_mul(*count))
        }
        TreeOutput::Whole(EnsembleOutput::Contributions) => largest_bytes(features, sums, width, 0),
        TreeOutput::Whole(_) => sums.saturating_mul(width),
        TreeOutput::LargestContributions(count) => largest_bytes(features, sums, width, count),
    }
}

/// Makes tensors of what a model found for an output.
pub(super) fn tensors(
    explained: Option<EstimatorExplanation>,
    output: TreeOutput,
    rows: usize,
    found: Prediction,
) -> Result<Vec<Tensor>, RuntimeError> {
    let Some(EstimatorExplanation { features, sums, leaves, .. }) = explained else {
        return Err(RuntimeError::inconsistent("the model does not explain its predictions"));
    };
    let whole = match output {
        TreeOutput::LargestContributions(count) => return Ok(largest(&found, [rows, sums, features], count)?.into()),
        TreeOutput::Whole(whole) => whole,
    };
    let shape = match (whole, leaves) {
        (EnsembleOutput::Contributions, _) => shape(rows, sums, features + 1),
        // The library's order: rounds, then the trees of a round.
        (EnsembleOutput::Leaf, Some([rounds, trees])) if trees > 1 => vec![rows, rounds, trees],
        _ => vec![rows, found.columns],
    };
    Ok(vec![tensor(name(whole).unwrap_or_default(), shape, found.values)?])
}

/// Makes a tensor of an output.
pub(super) fn tensor(name: &str, shape: Vec<usize>, values: PredictedValues) -> Result<Tensor, RuntimeError> {
    let tensor = match values {
        PredictedValues::I32(values) => Tensor::from_values(name, shape, values.into()),
        PredictedValues::I64(values) => Tensor::from_values(name, shape, values.into()),
        PredictedValues::F32(values) => Tensor::from_values(name, shape, values.into()),
        PredictedValues::F64(values) => Tensor::from_values(name, shape, values.into()),
    };
    let mut tensor = tensor.map_err(RuntimeError::inconsistent)?;
    tensor.parameters = Parameters::with_content_type("np");
    Ok(tensor)
}

/// Returns the indexes and the values of the contributions of largest magnitude, the largest first, without the bias. Of equal ones,
/// the first features come first, and NaN comes last.
pub(super) fn largest(
    contributions: &Prediction,
    [rows, groups, features]: [usize; 3],
    count: usize,
) -> Result<[Tensor; 2], RuntimeError> {
    let mut indexes: Vec<i32> = Vec::with_capacity(rows * groups * count);
    let shape = shape(rows, groups, count);
    let values = match &contributions.values {
        PredictedValues::F32(values) => {
            let largest = pick(values, features, count, &mut indexes, f64::from);
            Tensor::from_values("contributions_value", shape.clone(), largest.into())
        }
        PredictedValues::F64(values) => {
            let largest = pick(values, features, count, &mut indexes, |value| value);
            Tensor::from_values("contributions_value", shape.clone(), largest.into())
        }
        PredictedValues::I32(_) | PredictedValues::I64(_) => {
            return Err(RuntimeError::inconsistent("contributions are integers"));
        }
    };
    let indexes = Tensor::from_values("contributions_index", shape, indexes.into());
    let mut tensors = [indexes, values].map(|tensor| tensor.map_err(RuntimeError::inconsistent));
    for tensor in tensors.iter_mut().flatten() {
        tensor.parameters = Parameters::with_content_type("np");
    }
    let [indexes, values] = tensors;
    Ok([indexes?, values?])
}

/// Appends the indexes of the largest values of each group, and returns the values.
fn pick<T: Copy>(
    values: &[T],
    features: usize,
    count: usize,
    indexes: &mut Vec<i32>,
    widen: impl Fn(T) -> f64,
) -> Vec<T> {
    let magnitude = |value: T| {
        let magnitude = widen(value).abs();
        if magnitude.is_nan() { -1.0 } else { magnitude }
    };
    let mut picked = Vec::with_capacity(values.len() / (features + 1) * count);
    let mut order: Vec<usize> = Vec::with_capacity(features);
    for group in values.chunks_exact(features + 1) {
        order.clear();
        order.extend(0..features);
        let by_magnitude = |a: &usize, b: &usize| magnitude(group[*b]).total_cmp(&magnitude(group[*a])).then(a.cmp(b));
        if count < features {
            order.select_nth_unstable_by(count, by_magnitude);
            order.truncate(count);
        }
        order.sort_unstable_by(by_magnitude);
        indexes.extend(order.iter().map(|index| i32::try_from(*index).unwrap_or(i32::MAX)));
        picked.extend(order.iter().map(|index| group[*index]));
    }
    picked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_contributions_are_in_order_of_magnitude() {
        let values = vec![0.5, -2.0, 2.0, f64::NAN, 9.0, 0.0, 0.0, 0.25, -0.5, 9.0];
        let contributions = Prediction { values: PredictedValues::F64(values), columns: 5 };
        let [indexes, values] = largest(&contributions, [2, 1, 4], 3).unwrap();
        assert_eq!(indexes.elements::<i32>().unwrap()[..], [1, 2, 0, 3, 2, 0]);
        assert_eq!(values.elements::<f64>().unwrap()[..], [-2.0, 2.0, 0.5, -0.5, 0.25, 0.0]);
        assert_eq!((indexes.shape, values.shape), (vec![2, 3], vec![2, 3]));
        let [indexes, values] = largest(&contributions, [1, 2, 4], 4).unwrap();
        assert_eq!(indexes.elements::<i32>().unwrap()[..], [1, 2, 0, 3, 3, 2, 0, 1]);
        assert!(values.elements::<f64>().unwrap()[3].is_nan());
        assert_eq!(values.shape, [1, 2, 4]);
    }
}
