//! Warms models up before they are ready, so that the first requests are not slow.

use std::sync::Arc;

use tracing::warn;

use super::LoadError;
use crate::runtimes::{Progress, Runtime, RuntimeError};
use crate::settings::ModelSettings;
use crate::types::json::{self, ReadError};

/// The reasons why a sample request failed.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    #[error("the sample is not a valid inference request")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Predict(#[from] RuntimeError),
}

/// Runs the runtime's own warm-up, then the requests of the setting `warmup`, one after the other.
///
/// A sample that needs more memory than the other models in use leave is skipped.
pub(super) async fn warm_up(
    runtime: &dyn Runtime,
    settings: &ModelSettings,
    progress: &Arc<dyn Progress>,
) -> Result<(), LoadError> {
    runtime.warm_up().await.map_err(LoadError::WarmUp)?;
    if runtime.description().answers_warmup {
        return Ok(());
    }
    for (index, sample) in settings.warmup.iter().enumerate() {
        match predict_sample(runtime, sample, progress).await {
            Err(SampleError::Predict(error)) if error.kind().is_overload() && progress.memory().is_some() => {
                warn!(model = settings.name, "Skipping sample {index} of `warmup`: {error}");
            }
            result => result.map_err(|source| LoadError::Sample { index, source })?,
        }
    }
    Ok(())
}

async fn predict_sample(
    runtime: &dyn Runtime,
    sample: &serde_json::Value,
    progress: &Arc<dyn Progress>,
) -> Result<(), SampleError> {
    let rule = runtime.description().tensor_rule;
    let sample = json::read_request_with(sample.to_string().as_bytes(), None, rule)?;
    runtime.predict(sample.request, Arc::clone(progress)).await?;
    Ok(())
}
