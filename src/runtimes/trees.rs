//! Requests for tree ensembles: from tensors to the evaluator and back.

use std::sync::atomic::AtomicBool;

use super::columns::ColumnArranger;
use super::native::{NativeModel, Plan};
use super::{OutputError, RuntimeError};
use crate::codecs::{self, DecodedInputs, NumericMatrix};
use crate::evaluators::trees::{
    EnsembleOutput, FeatureMatrix, FeatureValues, LoadError, PredictError, PredictedValues, Prediction, TreeEnsemble,
    WrapperKind,
};
use crate::families::TreeLibrary;
use crate::settings::ModelSettings;
use crate::types::{InferenceRequest, InferenceResponse, Parameters, RequestedOutput, Tensor};

/// Models with more features are not warmed up: a row would need memory for a number of features that the file merely declares.
const WARM_UP_FEATURES: usize = 1 << 20;

/// A loaded tree ensemble.
#[derive(Debug)]
pub(super) struct TreeModel {
    library: TreeLibrary,
    model: TreeEnsemble,
    content_type: Option<String>,
    /// The size of a row of the outputs `predict` and `predict_proba`, in bytes.
    row_bytes: [usize; 2],
    columns: ColumnArranger,
}

/// The outputs to compute, in the requested order, and the inputs.
type Prepared<'r> = (Vec<EnsembleOutput>, DecodedInputs<'r>);

impl TreeModel {
    /// Loads a model from the bytes of its file, by the rules of `library`.
    pub(super) fn load(library: TreeLibrary, bytes: &[u8], settings: &ModelSettings) -> Result<Self, LoadError> {
        let model = if library == TreeLibrary::LightGbm {
            TreeEnsemble::load_lightgbm(bytes)
        } else {
            TreeEnsemble::load_xgboost(bytes)
        };
        let model = model?;
        let row_bytes = [EnsembleOutput::Predict, EnsembleOutput::PredictProba];
        Ok(Self {
            library,
            row_bytes: row_bytes.map(|output| model.row_bytes(output).unwrap_or_default()),
            model,
            content_type: settings.parameters.content_type.clone(),
            columns: ColumnArranger::new(&settings.name),
        })
    }

    /// Returns the outputs to compute, in the requested order.
    fn outputs(&self, request: &InferenceRequest) -> Result<Vec<EnsembleOutput>, RuntimeError> {
        // LightGBM's runtime ignores the requested outputs and returns `predict`, as in the original.
        if self.library == TreeLibrary::LightGbm || request.outputs.is_empty() {
            return Ok(vec![EnsembleOutput::Predict]);
        }
        let available = if self.model.kind() == WrapperKind::Classifier { 2 } else { 1 };
        OutputError::check_count(&request.outputs, available)?;
        let mut outputs = Vec::new();
        for RequestedOutput { name, .. } in &request.outputs {
            let output = match name.as_str() {
                "predict" => EnsembleOutput::Predict,
                "predict_proba" if self.model.kind() == WrapperKind::Classifier => EnsembleOutput::PredictProba,
                "predict_proba" => {
                    return Err(OutputError::Missing { model: "XGBRegressor".into(), output: "predict_proba" }.into());
                }
                other => {
                    return Err(OutputError::unsupported("XGBoostModel", "'predict' and 'predict_proba'", other).into());
                }
            };
            outputs.push(output);
        }
        Ok(outputs)
    }

    /// Returns the size of outputs for so many rows, in bytes.
    fn size_of(&self, outputs: &[EnsembleOutput], rows: usize) -> usize {
        let row: usize =
            outputs.iter().map(|&output| self.row_bytes[usize::from(output == EnsembleOutput::PredictProba)]).sum();
        row.saturating_mul(rows)
    }

    /// Decodes a request and checks that it fits the model.
    fn decode<'r>(&self, request: &'r InferenceRequest) -> Result<DecodedInputs<'r>, RuntimeError> {
        let decoded = codecs::decode(request, self.content_type.as_deref())?;
        let names = self.model.feature_names();
        if self.library == TreeLibrary::XgBoost {
            decoded.check(self.model.n_features(), names)?;
            return Ok(decoded);
        }
        decoded.check(self.model.n_features(), None)?;
        self.columns.arrange(decoded, names, request)
    }
}

impl NativeModel for TreeModel {
    type Prepared<'r> = Prepared<'r>;

    /// The results of the blocks, and their join.
    const COPIES: usize = 2;

    /// Returns a row of zeros, which walks every tree.
    fn sample(&self) -> Option<InferenceRequest> {
        let columns = self.model.n_features();
        if columns == 0 || columns > WARM_UP_FEATURES {
            return None;
        }
        let zeros = Tensor::from_elements("x", vec![1, columns], &vec![0.0_f32; columns]).ok()?;
        let parameters = Parameters::with_content_type("np");
        Some(InferenceRequest { parameters, inputs: vec![zeros], ..InferenceRequest::default() })
    }

    fn plan<'r>(&self, request: &'r InferenceRequest) -> Result<Plan<Prepared<'r>>, RuntimeError> {
        let outputs = self.outputs(request)?;
        let decoded = self.decode(request)?;
        let rows = decoded.rows();
        let count = u32::try_from(outputs.len()).unwrap_or(u32::MAX);
        Ok(Plan {
            cost: self.model.estimate(rows).saturating_mul(count),
            bytes: self.size_of(&outputs, rows),
            prepared: (outputs, decoded),
        })
    }

    fn answer(
        &self,
        _: &InferenceRequest,
        (outputs, decoded): Prepared<'_>,
        stop: &AtomicBool,
    ) -> Result<InferenceResponse, RuntimeError> {
        let matrix = match self.library {
            TreeLibrary::XgBoost => NumericMatrix::F32(decoded.to_f32()),
            TreeLibrary::LightGbm => decoded.to_widest(),
        };
        let inconsistent = |error: PredictError| RuntimeError::inconsistent(error);
        let rows = match &matrix {
            NumericMatrix::F32(array) => {
                FeatureMatrix::new(FeatureValues::F32(&array.values), array.rows, array.columns)
            }
            NumericMatrix::F64(array) => {
                FeatureMatrix::new(FeatureValues::F64(&array.values), array.rows, array.columns)
            }
        };
        let rows = rows.map_err(inconsistent)?.until(stop);
        let mut tensors: Vec<Tensor> = Vec::with_capacity(outputs.len());
        for (index, &output) in outputs.iter().enumerate() {
            if let Some(same) = outputs[..index].iter().position(|earlier| *earlier == output) {
                // Shares the elements.
                tensors.push(tensors[same].clone());
                continue;
            }
            let prediction = self.model.predict(rows, output).map_err(inconsistent)?;
            let name = if output == EnsembleOutput::PredictProba { "predict_proba" } else { "predict" };
            tensors.push(tensor(name, rows.rows(), &prediction)?);
        }
        Ok(InferenceResponse { outputs: tensors, ..InferenceResponse::default() })
    }
}

fn tensor(name: &str, rows: usize, prediction: &Prediction) -> Result<Tensor, RuntimeError> {
    let shape = vec![rows, prediction.columns];
    let tensor = match &prediction.values {
        PredictedValues::I32(values) => Tensor::from_elements(name, shape, values),
        PredictedValues::I64(values) => Tensor::from_elements(name, shape, values),
        PredictedValues::F32(values) => Tensor::from_elements(name, shape, values),
        PredictedValues::F64(values) => Tensor::from_elements(name, shape, values),
    };
    let mut tensor = tensor.map_err(RuntimeError::inconsistent)?;
    tensor.parameters = Parameters::with_content_type("np");
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::native::NEVER;

    fn iris() -> TreeModel {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/quickstart/iris-xgboost/model.json");
        let settings = ModelSettings::new("iris", "mlserver_xgboost.XGBoostModel");
        let bytes = std::fs::read(path).unwrap();
        TreeModel::load(TreeLibrary::XgBoost, &bytes, &settings).unwrap()
    }

    fn request(rows: usize, outputs: &[&str]) -> InferenceRequest {
        let input = Tensor::from_elements("x", vec![rows, 4], &vec![1.5_f32; rows * 4]).unwrap();
        let output = |name: &&str| RequestedOutput { name: (*name).to_owned(), ..RequestedOutput::default() };
        let outputs = outputs.iter().map(output).collect();
        InferenceRequest { inputs: vec![input], outputs, ..InferenceRequest::default() }
    }

    #[test]
    fn plan_knows_the_size_of_the_response_and_repeated_outputs_share_elements() {
        let model = iris();
        for outputs in [&[][..], &["predict"], &["predict_proba", "predict"], &["predict_proba", "predict_proba"]] {
            for rows in [1, 3, 1000] {
                let request = request(rows, outputs);
                let plan = model.plan(&request).unwrap();
                let response = model.answer(&request, plan.prepared, &NEVER).unwrap();
                let size: usize = response.outputs.iter().map(Tensor::byte_len).sum();
                assert_eq!(plan.bytes, size, "{outputs:?} of {rows} rows");
                if let [first, second] = &response.outputs[..]
                    && outputs[0] == outputs[1]
                {
                    let [first, second] = [first, second].map(|output| output.to_raw().unwrap().as_ptr());
                    assert_eq!(first, second);
                }
            }
        }
        assert!(model.plan(&request(1, &["nope"])).is_err());
    }

    #[test]
    fn stopped_prediction_is_an_error_and_the_sample_is_answered() {
        let model = iris();
        let sample = model.sample().unwrap();
        let answer = |stop| model.answer(&sample, model.plan(&sample).unwrap().prepared, stop);
        assert_eq!(answer(&NEVER).unwrap().outputs.len(), 1);
        let error = answer(&AtomicBool::new(true)).unwrap_err().to_string();
        assert!(error.ends_with("the prediction was cancelled"), "{error}");
    }
}
