//! Requests for `CatBoost`'s models: from tensors to the evaluator and back.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use tracing::warn;

use super::native::{NativeModel, Plan};
use super::sklearn::{data, elements, tensor};
use super::{OutputError, RuntimeError};
use crate::codecs::{self, DecodedInputs};
use crate::evaluators::catboost::{CatBoostModel, CatBoostOutput, LoadError};
use crate::evaluators::table::{Elements, TableData};
use crate::settings::ModelSettings;
use crate::types::{Datatype, InferenceRequest, InferenceResponse, Parameters, Tensor};

/// The names of outputs. Others are ignored, as the original ignores all names.
const OUTPUTS: [(&str, CatBoostOutput); 4] = [
    ("predict", CatBoostOutput::Predict),
    ("predict_proba", CatBoostOutput::Probability),
    ("raw", CatBoostOutput::Raw),
    ("leaf", CatBoostOutput::Leaf),
];

/// What a text counts in the size of a response that is estimated before it is computed: most labels are short.
const TEXT_BYTES: usize = 64;

/// A loaded model.
#[derive(Debug)]
pub(super) struct CatBoostRuntime {
    model: CatBoostModel,
    name: String,
    content_type: Option<String>,
    /// Whether columns have been ignored, which is logged once.
    has_warned: AtomicBool,
}

impl CatBoostRuntime {
    /// Loads a file of either format.
    pub(super) fn load(file: &Bytes, settings: &ModelSettings) -> Result<Self, LoadError> {
        Ok(Self {
            model: CatBoostModel::load(file)?,
            name: settings.name.clone(),
            content_type: settings.parameters.content_type.clone(),
            has_warned: AtomicBool::new(false),
        })
    }

    /// Returns the outputs to compute with their names, in the requested order.
    fn outputs(&self, request: &InferenceRequest) -> Result<Vec<(&'static str, CatBoostOutput)>, RuntimeError> {
        let mut outputs = Vec::new();
        for requested in &request.outputs {
            let Some(&(name, output)) = OUTPUTS.iter().find(|(name, _)| *name == requested.name) else { continue };
            if self.model.columns(output).is_none() {
                return Err(OutputError::Missing { model: "CatBoostRegressor".into(), output: name }.into());
            }
            if !outputs.contains(&(name, output)) {
                outputs.push((name, output));
            }
        }
        if outputs.is_empty() {
            outputs.push(OUTPUTS[0]);
        }
        Ok(outputs)
    }

    /// Returns the size of a row of an output, in bytes.
    fn row_bytes(&self, output: CatBoostOutput) -> usize {
        let width = match output {
            CatBoostOutput::Predict if self.model.has_text_labels() => TEXT_BYTES,
            CatBoostOutput::Leaf => 4,
            _ => 8,
        };
        self.model.columns(output).unwrap_or_default().saturating_mul(width)
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
    type Prepared<'r> = (Vec<(&'static str, CatBoostOutput)>, DecodedInputs<'r>);

    /// Raw values, and what becomes of them.
    const COPIES: usize = 2;

    fn plan<'r>(&self, request: &'r InferenceRequest) -> Result<Plan<Self::Prepared<'r>>, RuntimeError> {
        let outputs = self.outputs(request)?;
        let decoded = codecs::decode_with_text(request, self.content_type.as_deref())?;
        let rows = decoded.rows();
        let row: usize = outputs.iter().map(|(_, output)| self.row_bytes(*output)).sum();
        Ok(Plan {
            cost: outputs.iter().map(|(_, output)| self.model.estimate(rows, *output)).sum(),
            bytes: row.saturating_mul(rows),
            prepared: (outputs, decoded),
        })
    }

    fn answer(
        &self,
        _: &InferenceRequest,
        (outputs, decoded): Self::Prepared<'_>,
        stop: &AtomicBool,
    ) -> Result<InferenceResponse, RuntimeError> {
        let data = self.data(&decoded)?;
        let mut tensors = Vec::with_capacity(outputs.len());
        for (name, output) in outputs {
            let prediction = self.model.predict(&data, output, stop).map_err(RuntimeError::invalid_request)?;
            let mut tensor = tensor(name, vec![data.rows(), prediction.columns], prediction.elements)?;
            tensor.parameters = Parameters::with_content_type("np");
            tensors.push(tensor);
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
