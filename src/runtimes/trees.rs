//! Requests for tree ensembles: from tensors to the evaluator and back.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::cancellation::{CancelOnDrop, NEVER};
use super::columns::ColumnArranger;
use super::{BoxFuture, OutputError, Predictor, Progress, RuntimeError};
use crate::codecs::{self, DecodedInputs, NumericMatrix};
use crate::compute::ComputePool;
use crate::evaluators::trees::{
    EnsembleOutput, FeatureMatrix, FeatureValues, LoadError, PredictError, PredictedValues, Prediction, TreeEnsemble,
    WrapperKind,
};
use crate::families::TreeLibrary;
use crate::settings::ModelSettings;
use crate::types::{InferenceRequest, InferenceResponse, Parameters, RequestedOutput, Tensor};

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
    /// The size of a row of the outputs `predict` and `predict_proba`, in bytes.
    row_bytes: [usize; 2],
    compute: ComputePool,
    columns: ColumnArranger,
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
        let model = model?;
        let row_bytes = [EnsembleOutput::Predict, EnsembleOutput::PredictProba];
        Ok(Self {
            library,
            row_bytes: row_bytes.map(|output| model.row_bytes(output).unwrap_or_default()),
            model: Arc::new(model),
            content_type: settings.parameters.content_type.as_deref().map(Arc::from),
            compute,
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

    fn answer(
        &self,
        request: &InferenceRequest,
        outputs: &[EnsembleOutput],
        stop: &AtomicBool,
    ) -> Result<InferenceResponse, RuntimeError> {
        self.evaluate(&self.decode(request)?, outputs, stop)
    }

    fn evaluate(
        &self,
        decoded: &DecodedInputs<'_>,
        outputs: &[EnsembleOutput],
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

    fn response_bytes(&self, request: &InferenceRequest) -> usize {
        let (Ok(outputs), Ok(decoded)) = (self.outputs(request), self.decode(request)) else { return 0 };
        self.size_of(&outputs, decoded.rows())
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
            progress.reserve(self.size_of(&outputs, decoded.rows()))?;
            let outputs_count = u32::try_from(outputs.len()).unwrap_or(u32::MAX);
            if self.model.estimate(decoded.rows()).saturating_mul(outputs_count) <= INLINE {
                progress.begin();
                return self.evaluate(&decoded, &outputs, &NEVER);
            }
            let cancel = CancelOnDrop::default();
            let (model, priority, stop) = (self.clone(), request.priority, cancel.flag());
            let work = move || model.answer(&request, &outputs, &stop);
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
    use std::num::NonZeroUsize;
    use std::time::Instant;

    use super::*;

    fn iris(compute: &ComputePool) -> TreeModel {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/quickstart/iris-xgboost/model.json");
        let settings = ModelSettings::new("iris", "mlserver_xgboost.XGBoostModel");
        let bytes = std::fs::read(path).unwrap();
        TreeModel::load(TreeLibrary::XgBoost, &bytes, &settings, compute.clone()).unwrap()
    }

    fn request(rows: usize, outputs: &[&str]) -> InferenceRequest {
        let input = Tensor::from_elements("x", vec![rows, 4], &vec![1.5_f32; rows * 4]).unwrap();
        let output = |name: &&str| RequestedOutput { name: (*name).to_owned(), ..RequestedOutput::default() };
        let outputs = outputs.iter().map(output).collect();
        InferenceRequest { inputs: vec![input], outputs, ..InferenceRequest::default() }
    }

    #[tokio::test]
    async fn response_bytes_is_the_size_of_the_response_and_repeated_outputs_share_elements() {
        let model = iris(&ComputePool::for_this_machine());
        for outputs in [&[][..], &["predict"], &["predict_proba", "predict"], &["predict_proba", "predict_proba"]] {
            for rows in [1, 3, 1000] {
                let expected = model.response_bytes(&request(rows, outputs));
                let response = Predictor::predict(&model, request(rows, outputs)).await.unwrap();
                let size: usize = response.outputs.iter().map(Tensor::byte_len).sum();
                assert_eq!(expected, size, "{outputs:?} of {rows} rows");
                if let [first, second] = &response.outputs[..]
                    && outputs[0] == outputs[1]
                {
                    let [first, second] = [first, second].map(|output| output.to_raw().unwrap().as_ptr());
                    assert_eq!(first, second);
                }
            }
        }
        assert_eq!(model.response_bytes(&request(1, &["nope"])), 0);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn prediction_stops_when_its_future_is_dropped() {
        let compute = ComputePool::new(NonZeroUsize::MIN);
        let model = iris(&compute);
        let (first, second) = (request(500_000, &[]), request(500_000, &[]));
        let began = Instant::now();
        Predictor::predict(&model, first).await.unwrap();
        let whole = began.elapsed();

        let dropped = tokio::spawn({
            let model = model.clone();
            async move { Predictor::predict(&model, second).await.map(drop) }
        });
        tokio::time::sleep(whole / 5).await;
        dropped.abort();
        let began = Instant::now();
        compute.run(|| ()).await.unwrap();
        let waited = began.elapsed();
        assert!(waited < whole / 2, "the only thread was busy for {waited:?} of {whole:?}");
    }
}
