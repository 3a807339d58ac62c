//! Requests for `CatBoost`'s models: from tensors to the evaluator and back.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tracing::warn;

use super::native::{NativeModel, Plan};
use super::sklearn::{data, elements, tensor};
use super::tree_explanations::{self, CONTRIBUTIONS, ExplanationSettings, TreeOutput};
use super::{Explanation, OutputError, RuntimeError};
use crate::codecs::{self, DecodedInputs};
use crate::evaluators::catboost::{CatBoostModel, CatBoostOutput, LoadError, PredictError};
use crate::evaluators::table::{Elements, TableData};
use crate::evaluators::trees::{EnsembleOutput, PredictedValues, Prediction};
use crate::settings::ModelSettings;
use crate::types::{Datatype, InferenceRequest, InferenceResponse, Parameters, Tensor};

/// The names of outputs. Others are ignored, as the original ignores all names.
const OUTPUTS: [(&str, CatBoostOutput); 6] = [
    ("predict", CatBoostOutput::Predict),
    ("predict_proba", CatBoostOutput::Probability),
    ("raw", CatBoostOutput::Raw),
    // As other tree models name it.
    ("margin", CatBoostOutput::Raw),
    (CONTRIBUTIONS, CatBoostOutput::Contributions),
    ("leaf", CatBoostOutput::Leaf),
];

/// What a text counts in the size of a response that is estimated before it is computed: most labels are short.
const TEXT_BYTES: usize = 64;

/// An output to compute, with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NamedOutput {
    name: &'static str,
    output: CatBoostOutput,
    /// How many of the largest contributions to return in place of all.
    top: Option<usize>,
}

impl From<TreeOutput> for NamedOutput {
    fn from(output: TreeOutput) -> Self {
        let (name, top) = match output {
            TreeOutput::Whole(output) => (tree_explanations::name(output).unwrap_or("predict"), None),
            TreeOutput::LargestContributions(count) => (CONTRIBUTIONS, Some(count)),
        };
        Self { name, output: evaluated(output.evaluated()), top }
    }
}

/// Returns what the evaluator computes for an output that all models of trees have.
pub(super) const fn evaluated(output: EnsembleOutput) -> CatBoostOutput {
    match output {
        EnsembleOutput::Contributions => CatBoostOutput::Contributions,
        EnsembleOutput::Margin => CatBoostOutput::Raw,
        EnsembleOutput::Leaf => CatBoostOutput::Leaf,
        EnsembleOutput::PredictProba => CatBoostOutput::Probability,
        EnsembleOutput::Predict => CatBoostOutput::Predict,
    }
}

/// A loaded model.
#[derive(Debug)]
pub(super) struct CatBoostRuntime {
    model: CatBoostModel,
    name: String,
    content_type: Option<String>,
    explanations: ExplanationSettings,
    /// Whether columns have been ignored, which is logged once.
    has_warned: AtomicBool,
}

impl CatBoostRuntime {
    /// Loads a file of either format.
    pub(super) fn load(
        file: &Bytes,
        settings: &ModelSettings,
        explanations: ExplanationSettings,
    ) -> Result<Self, LoadError> {
        let mut model = CatBoostModel::load(file)?;
        model.set_contribution_limit(explanations.max_bytes);
        Ok(Self {
            model,
            name: settings.name.clone(),
            content_type: settings.parameters.content_type.clone(),
            explanations,
            has_warned: AtomicBool::new(false),
        })
    }

    /// Returns how the model explains its predictions.
    pub(super) fn explanation(&self) -> Explanation {
        let is_on = self.explanations.is_on && self.model.check_contributions().is_ok();
        Explanation {
            space: is_on.then_some("margin".into()),
            feature_names: self.model.feature_names().map(Into::into),
        }
    }

    /// Returns the outputs to compute, in the requested order.
    fn outputs(&self, request: &InferenceRequest) -> Result<Vec<NamedOutput>, RuntimeError> {
        let mut outputs = Vec::new();
        for requested in &request.outputs {
            let Some(&(name, output)) = OUTPUTS.iter().find(|(name, _)| *name == requested.name) else { continue };
            if self.model.columns(output).is_none() {
                return Err(OutputError::Missing { model: "CatBoostRegressor".into(), output: name }.into());
            }
            let output = NamedOutput { name, output, top: None };
            if !outputs.contains(&output) {
                outputs.push(output);
            }
        }
        if outputs.is_empty() {
            let default = self.explanations.default_output.unwrap_or(EnsembleOutput::Predict);
            outputs.push(TreeOutput::Whole(default).into());
        }
        let outputs = self.explanations.outputs_of(request, outputs, self.model.n_columns())?;
        if outputs.iter().any(|output| output.output == CatBoostOutput::Contributions) {
            self.model
                .check_contributions()
                .map_err(|reason| RuntimeError::invalid_request(PredictError::NoContributions(reason)))?;
        }
        Ok(outputs)
    }

    /// Returns the size of a row of an output, in bytes.
    fn row_bytes(&self, NamedOutput { output, top, .. }: NamedOutput) -> usize {
        let width = match output {
            CatBoostOutput::Predict if self.model.has_text_labels() => TEXT_BYTES,
            CatBoostOutput::Leaf => 4,
            _ => 8,
        };
        let all = self.model.columns(output).unwrap_or(usize::MAX).saturating_mul(width);
        // All contributions are computed first.
        let top = top.unwrap_or(0).saturating_mul(self.model.n_outputs()).saturating_mul(size_of::<i32>() + width);
        all.max(top)
    }

    /// Evaluates an output, and appends its tensors.
    fn append(
        &self,
        data: &TableData<'_>,
        NamedOutput { name, output, top }: NamedOutput,
        stop: &AtomicBool,
        tensors: &mut Vec<Tensor>,
    ) -> Result<(), RuntimeError> {
        let prediction = self.model.predict(data, output, stop).map_err(RuntimeError::invalid_request)?;
        let (rows, groups, columns) = (data.rows(), self.model.n_outputs(), self.model.n_columns());
        let shape = match (output, top) {
            (CatBoostOutput::Contributions, Some(count)) => {
                let Elements::F64(values) = prediction.elements else {
                    return Err(RuntimeError::inconsistent("contributions are no numbers"));
                };
                let values = PredictedValues::F64(values.into_owned());
                let all = Prediction { values, columns: prediction.columns };
                tensors.extend(tree_explanations::largest(&all, [rows, groups, columns], count)?);
                return Ok(());
            }
            (CatBoostOutput::Contributions, None) => tree_explanations::shape(rows, groups, columns + 1),
            _ => vec![rows, prediction.columns],
        };
        let mut tensor = tensor(name, shape, prediction.elements)?;
        tensor.parameters = Parameters::with_content_type("np");
        tensors.push(tensor);
        Ok(())
    }

    /// Converts the tensors of a request.
    fn data<'r>(&self, decoded: &DecodedInputs<'r>) -> Result<TableData<'r>, RuntimeError> {
        let data = data(decoded, Some(self.model.n_columns()), values)?;
        self.warn_of_further(match &data {
            TableData::Table(table) => table.columns(),
            TableData::Frame(frame) => frame.columns().len(),
            TableData::Sparse(_) => 0,
        });
        Ok(data)
    }

    /// Logs once that a request has columns that are ignored.
    fn warn_of_further(&self, columns: usize) {
        if columns > self.model.n_columns() && !self.has_warned.swap(true, Ordering::Relaxed) {
            warn!(
                model = self.name,
                "A request has {columns} columns, but this model has {} features. Further columns are ignored, as by CatBoost. This is \
                 logged once.",
                self.model.n_columns()
            );
        }
    }
}

impl NativeModel for CatBoostRuntime {
    type Prepared<'r> = (Vec<NamedOutput>, DecodedInputs<'r>);

    /// Raw values, and what becomes of them.
    const COPIES: usize = 2;

    fn plan<'r>(&self, request: &'r InferenceRequest) -> Result<Plan<Self::Prepared<'r>>, RuntimeError> {
        let outputs = self.outputs(request)?;
        let decoded = codecs::decode_with_text(request, self.content_type.as_deref())?;
        let rows = decoded.rows();
        let row = outputs.iter().map(|output| self.row_bytes(*output)).fold(0, usize::saturating_add);
        Ok(Plan {
            cost: outputs.iter().map(|output| self.model.estimate(rows, output.output)).sum(),
            bytes: row.saturating_mul(rows),
            prepared: (outputs, decoded),
        })
    }

    fn is_unprepared(&self, (outputs, _): &Self::Prepared<'_>) -> bool {
        let wanted = outputs.iter().any(|output| output.output == CatBoostOutput::Contributions);
        wanted && !self.model.has_prepared_contributions()
    }

    fn preparation_bytes(&self) -> usize {
        self.model.contribution_bytes()
    }

    fn answer(
        &self,
        _: &InferenceRequest,
        (outputs, decoded): Self::Prepared<'_>,
        stop: &AtomicBool,
    ) -> Result<InferenceResponse, RuntimeError> {
        let data = self.data(&decoded)?;
        let mut tensors = Vec::with_capacity(outputs.len());
        for output in outputs {
            self.append(&data, output, stop, &mut tensors)?;
        }
        Ok(InferenceResponse { outputs: tensors, ..InferenceResponse::default() })
    }
}

/// Returns the elements of a tensor. Integers beyond the range of `i64` are rounded once, to single precision.
fn values(tensor: &Tensor) -> Elements<'_> {
    match tensor.elements::<u64>() {
        Some(found)
            if tensor.datatype == Datatype::Uint64 && found.iter().any(|&value| i64::try_from(value).is_err()) =>
        {
            Elements::F32(found.iter().map(|&value| to_f32(value)).collect())
        }
        _ => elements(tensor),
    }
}

#[expect(clippy::cast_precision_loss, reason = "as the library reads integers")]
const fn to_f32(value: u64) -> f32 {
    value as f32
}
