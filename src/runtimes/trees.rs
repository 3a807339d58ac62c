//! Requests for tree ensembles: from tensors to the evaluator and back.

use std::sync::atomic::AtomicBool;

use super::columns::ColumnArranger;
use super::native::{NativeModel, Plan};
use super::tree_explanations::{self, ExplanationSettings, TreeOutput};
use super::{Explanation, OutputError, RuntimeError};
use crate::codecs::{self, DecodedInputs, NumericMatrix};
use crate::evaluators::trees::{
    EnsembleOutput, FeatureMatrix, FeatureValues, LoadError, PredictError, Prediction, TreeEnsemble, WrapperKind,
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
    /// The size of a row of each output in bytes, 0 if the model does not have it.
    row_bytes: [(EnsembleOutput, usize); 5],
    columns: ColumnArranger,
    explanations: ExplanationSettings,
}

/// The outputs to compute, in the requested order, and the inputs.
#[derive(Debug)]
pub(super) struct Prepared<'r> {
    outputs: Vec<TreeOutput>,
    decoded: DecodedInputs<'r>,
}

impl TreeModel {
    /// Loads a model from the bytes of its file, by the rules of `library`.
    pub(super) fn load(
        library: TreeLibrary,
        bytes: &[u8],
        settings: &ModelSettings,
        explanations: ExplanationSettings,
    ) -> Result<Self, LoadError> {
        let mut model = match library {
            TreeLibrary::LightGbm => TreeEnsemble::load_lightgbm(bytes)?,
            TreeLibrary::XgBoost => TreeEnsemble::load_xgboost(bytes)?,
        };
        model.set_contribution_limit(explanations.max_bytes);
        let outputs = [
            EnsembleOutput::Predict,
            EnsembleOutput::PredictProba,
            EnsembleOutput::Margin,
            EnsembleOutput::Contributions,
            EnsembleOutput::Leaf,
        ];
        Ok(Self {
            library,
            row_bytes: outputs.map(|output| (output, model.row_bytes(output).unwrap_or_default())),
            model,
            content_type: settings.parameters.content_type.clone(),
            columns: ColumnArranger::new(&settings.name),
            explanations,
        })
    }

    /// Returns how the model explains its predictions.
    pub(super) fn explanation(&self) -> Explanation {
        let is_on = self.explanations.is_on && self.model.check_contributions().is_ok();
        Explanation {
            space: is_on.then_some("margin".into()),
            feature_names: self.model.feature_names().map(<[String]>::to_vec).map(Into::into),
        }
    }

    /// Returns the outputs to compute, in the requested order.
    fn outputs(&self, request: &InferenceRequest) -> Result<Vec<TreeOutput>, RuntimeError> {
        let outputs = self.requested(request)?.into_iter().map(TreeOutput::Whole).collect();
        self.explanations.outputs_of(request, outputs, self.model.n_features())
    }

    /// Returns the outputs that a request names, or the default one.
    fn requested(&self, request: &InferenceRequest) -> Result<Vec<EnsembleOutput>, RuntimeError> {
        let is_new = |output: &RequestedOutput| tree_explanations::output(&output.name).is_some();
        // LightGBM's runtime ignores the requested outputs and returns `predict`, as in the original, which had no other.
        if request.outputs.is_empty() || self.library == TreeLibrary::LightGbm && !request.outputs.iter().any(is_new) {
            return Ok(vec![self.explanations.default_output.unwrap_or(EnsembleOutput::Predict)]);
        }
        let is_classifier = self.model.kind() == WrapperKind::Classifier;
        let of_original = if is_classifier { 2 } else { 1 };
        OutputError::check_count(&request.outputs, of_original + tree_explanations::count(&request.outputs))?;
        let of_name = |RequestedOutput { name, .. }: &RequestedOutput| match name.as_str() {
            "predict" => Ok(EnsembleOutput::Predict),
            "predict_proba" if is_classifier => Ok(EnsembleOutput::PredictProba),
            "predict_proba" if self.library == TreeLibrary::XgBoost => {
                Err(OutputError::Missing { model: "XGBRegressor".into(), output: "predict_proba" })
            }
            other => tree_explanations::output(other).ok_or_else(|| self.unsupported(other)),
        };
        Ok(request.outputs.iter().map(of_name).collect::<Result<_, _>>()?)
    }

    fn unsupported(&self, name: &str) -> OutputError {
        match self.library {
            TreeLibrary::XgBoost => OutputError::unsupported(
                "XGBoostModel",
                "'predict', 'predict_proba', 'contributions', 'margin' and 'leaf'",
                name,
            ),
            TreeLibrary::LightGbm => {
                OutputError::unsupported("LightGBMModel", "'predict', 'contributions', 'margin' and 'leaf'", name)
            }
        }
    }

    /// Returns the size of outputs for so many rows, in bytes.
    fn size_of(&self, outputs: &[TreeOutput], rows: usize) -> usize {
        let whole = |wanted| self.row_bytes.iter().find(|(output, _)| *output == wanted).map_or(0, |(_, bytes)| *bytes);
        let row = outputs.iter().map(|output| match output {
            TreeOutput::Whole(output) => whole(*output),
            TreeOutput::LargestContributions(count) => {
                let (features, sums) = (self.model.n_features(), self.model.n_outputs());
                let width = whole(EnsembleOutput::Contributions) / (features + 1).saturating_mul(sums).max(1);
                tree_explanations::largest_bytes(features, sums, width, *count)
            }
        });
        row.fold(0, usize::saturating_add).saturating_mul(rows)
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
        let cost = outputs.iter().map(|output| self.model.estimate(rows, output.evaluated()));
        Ok(Plan { cost: cost.sum(), bytes: self.size_of(&outputs, rows), prepared: Prepared { outputs, decoded } })
    }

    fn is_unprepared(&self, prepared: &Prepared<'_>) -> bool {
        let wanted = prepared.outputs.iter().any(|output| output.evaluated() == EnsembleOutput::Contributions);
        wanted && !self.model.has_prepared_contributions()
    }

    fn preparation_bytes(&self) -> usize {
        self.model.contribution_bytes()
    }

    fn answer(
        &self,
        _: &InferenceRequest,
        Prepared { outputs, decoded }: Prepared<'_>,
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
        // Where the tensors of each output start.
        let mut starts = Vec::with_capacity(outputs.len());
        for (index, &output) in outputs.iter().enumerate() {
            starts.push(tensors.len());
            let same = outputs[..index].iter().position(|earlier| *earlier == output).map(|same| starts[same]);
            match output {
                // Shares the elements.
                TreeOutput::Whole(_) if let Some(same) = same => tensors.push(tensors[same].clone()),
                TreeOutput::Whole(output) => tensors.push(self.tensor(rows, output)?),
                TreeOutput::LargestContributions(_) if let Some(same) = same => {
                    tensors.extend_from_within(same..same + 2);
                }
                TreeOutput::LargestContributions(count) => {
                    let all = self.model.predict(rows, EnsembleOutput::Contributions).map_err(refusal)?;
                    let shape = [rows.rows(), self.model.n_outputs(), self.model.n_features()];
                    tensors.extend(tree_explanations::largest(&all, shape, count)?);
                }
            }
        }
        Ok(InferenceResponse { outputs: tensors, ..InferenceResponse::default() })
    }
}

impl TreeModel {
    /// Evaluates an output.
    fn tensor(&self, rows: FeatureMatrix<'_>, output: EnsembleOutput) -> Result<Tensor, RuntimeError> {
        let Prediction { values, columns } = self.model.predict(rows, output).map_err(refusal)?;
        let name = match output {
            EnsembleOutput::PredictProba => "predict_proba",
            output => tree_explanations::name(output).unwrap_or("predict"),
        };
        let shape = match output {
            EnsembleOutput::Contributions => {
                tree_explanations::shape(rows.rows(), self.model.n_outputs(), self.model.n_features() + 1)
            }
            _ => vec![rows.rows(), columns],
        };
        tree_explanations::tensor(name, shape, values)
    }
}

/// Returns what clients get if the evaluator refuses a checked request.
fn refusal(error: PredictError) -> RuntimeError {
    match error {
        PredictError::NoContributions(_) | PredictError::NoLeaves => RuntimeError::invalid_request(error),
        error => RuntimeError::inconsistent(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtimes::native::NEVER;

    fn iris() -> TreeModel {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/quickstart/iris-xgboost/model.json");
        let settings = ModelSettings::new("iris", "mlserver_xgboost.XGBoostModel");
        let bytes = std::fs::read(path).unwrap();
        let explanations = ExplanationSettings::of(&settings).unwrap();
        TreeModel::load(TreeLibrary::XgBoost, &bytes, &settings, explanations).unwrap()
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
        for outputs in [
            &[][..],
            &["predict"],
            &["predict_proba", "predict"],
            &["predict_proba", "predict_proba"],
            &["contributions", "margin"],
            &["leaf", "leaf"],
        ] {
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
