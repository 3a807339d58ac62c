//! Requests for tree ensembles: from tensors to the evaluator and back.

use std::sync::Arc;
use std::time::Duration;

use super::{BoxFuture, OutputError, Predictor, Progress, RuntimeError};
use crate::codecs::{self, DecodedInputs, NumericMatrix};
use crate::compute::ComputePool;
use crate::evaluators::trees::{
    EnsembleOutput, FeatureMatrix, FeatureValues, LoadError, PredictError, PredictedValues, Prediction, TreeEnsemble,
    WrapperKind,
};
use crate::families::TreeLibrary;
use crate::settings::ModelSettings;
use crate::types::{InferenceRequest, InferenceResponse, Parameters, Tensor};

/// Predictions that are estimated to take no longer run on the thread of the connection: handing them to another thread takes
/// up to as long, and the other work of a connection can wait that long.
const INLINE: Duration = Duration::from_micros(50);

/// Models with more features are not warmed up: a row would need memory for a number of features that the file merely declares.
const WARM_UP_FEATURES: usize = 1 << 20;

/// A loaded tree ensemble. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct TreeModel {
    library: TreeLibrary,
    model: Arc<TreeEnsemble>,
    content_type: Option<Arc<str>>,
    compute: ComputePool,
}

impl TreeModel {
    /// Loads a model from the bytes of its file, by the rules of `library`.
    pub(super) fn load(
        library: TreeLibrary,
        bytes: &[u8],
        settings: &ModelSettings,
        compute: ComputePool,
    ) -> Result<Self, LoadError> {
        let model = if library == TreeLibrary::LightGbm {
            TreeEnsemble::load_lightgbm(bytes)
        } else {
            TreeEnsemble::load_xgboost(bytes)
        };
        Ok(Self {
            library,
            model: Arc::new(model?),
            content_type: settings.parameters.content_type.as_deref().map(Arc::from),
            compute,
        })
    }

    /// Returns the outputs to compute, in the requested order.
    fn outputs(&self, request: &InferenceRequest) -> Result<Vec<EnsembleOutput>, RuntimeError> {
        // LightGBM's runtime ignores the requested outputs and returns `predict`, as in the original.
        if self.library == TreeLibrary::LightGbm || request.outputs.is_empty() {
            return Ok(vec![EnsembleOutput::Predict]);
        }
        let named = request.outputs.iter().map(|output| match output.name.as_str() {
            "predict" => Ok(EnsembleOutput::Predict),
            "predict_proba" if self.model.kind() == WrapperKind::Classifier => Ok(EnsembleOutput::PredictProba),
            "predict_proba" => {
                Err(OutputError::Missing { model: "XGBRegressor".into(), output: "predict_proba" }.into())
            }
            other => Err(OutputError::Unsupported {
                runtime: "XGBoostModel",
                supported: "'predict' and 'predict_proba'",
                found: other.to_owned(),
            }
            .into()),
        });
        named.collect()
    }

    /// Decodes a request and checks that it fits the model.
    fn decode<'r>(&self, request: &'r InferenceRequest) -> Result<DecodedInputs<'r>, RuntimeError> {
        let decoded = codecs::decode(request, self.content_type.as_deref())?;
        let names = match self.library {
            TreeLibrary::XgBoost => self.model.feature_names(),
            // LightGBM takes the columns of a frame by position.
            TreeLibrary::LightGbm => None,
        };
        decoded.check(self.model.n_features(), names)?;
        Ok(decoded)
    }

    fn answer(
        &self,
        request: &InferenceRequest,
        outputs: &[EnsembleOutput],
    ) -> Result<InferenceResponse, RuntimeError> {
        evaluate(&self.model, self.library, &self.decode(request)?, outputs)
    }
}

impl Predictor for TreeModel {
    /// Evaluates a row of zeros, which walks every tree.
    fn warm_up(&self) -> BoxFuture<'_, Result<(), RuntimeError>> {
        let model = Arc::clone(&self.model);
        Box::pin(async move {
            if model.n_features() > WARM_UP_FEATURES {
                return Ok(());
            }
            self.compute.run(move || evaluate_zeros(&model)).await?
        })
    }

    fn parallelism(&self) -> usize {
        self.compute.width()
    }

    fn predict(&self, request: InferenceRequest) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
        self.predict_with(request, Arc::new(()))
    }

    fn predict_with(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
        Box::pin(async move {
            let outputs = self.outputs(&request)?;
            let decoded = self.decode(&request)?;
            let outputs_count = u32::try_from(outputs.len()).unwrap_or(u32::MAX);
            if self.model.estimate(decoded.rows()).saturating_mul(outputs_count) <= INLINE {
                progress.begin();
                return evaluate(&self.model, self.library, &decoded, &outputs);
            }
            let (model, priority) = (self.clone(), request.priority);
            let work = move || model.answer(&request, &outputs);
            self.compute.run_after(priority, || progress.begin(), work).await?
        })
    }
}

fn evaluate_zeros(model: &TreeEnsemble) -> Result<(), RuntimeError> {
    let inconsistent = |error: PredictError| RuntimeError::inconsistent(error);
    let columns = model.n_features();
    let zeros = vec![0.0; columns];
    let row = FeatureMatrix::new(FeatureValues::F32(&zeros), 1, columns).map_err(inconsistent)?;
    model.predict(row, EnsembleOutput::Predict).map_err(inconsistent)?;
    Ok(())
}

fn evaluate(
    model: &TreeEnsemble,
    library: TreeLibrary,
    decoded: &DecodedInputs<'_>,
    outputs: &[EnsembleOutput],
) -> Result<InferenceResponse, RuntimeError> {
    let matrix = match library {
        TreeLibrary::XgBoost => NumericMatrix::F32(decoded.to_f32()),
        TreeLibrary::LightGbm => decoded.to_widest(),
    };
    let inconsistent = |error: PredictError| RuntimeError::inconsistent(error);
    let rows = match &matrix {
        NumericMatrix::F32(array) => FeatureMatrix::new(FeatureValues::F32(&array.values), array.rows, array.columns),
        NumericMatrix::F64(array) => FeatureMatrix::new(FeatureValues::F64(&array.values), array.rows, array.columns),
    }
    .map_err(inconsistent)?;
    let mut tensors = Vec::with_capacity(outputs.len());
    for &output in outputs {
        let prediction = model.predict(rows, output).map_err(inconsistent)?;
        let name = if output == EnsembleOutput::PredictProba { "predict_proba" } else { "predict" };
        tensors.push(tensor(name, rows.rows(), &prediction)?);
    }
    Ok(InferenceResponse { outputs: tensors, ..InferenceResponse::default() })
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
