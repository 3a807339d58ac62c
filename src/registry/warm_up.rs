//! What a model does before it is ready, so that its first callers do not pay for it.

use std::sync::Arc;

use super::LoadError;
use crate::runtimes::{Runtime, RuntimeError};
use crate::settings::ModelSettings;
use crate::types::json::{self, ReadError};

/// Why a model does not answer a sample.
#[derive(Debug, thiserror::Error)]
pub enum SampleError {
    #[error("the sample is no inference request")]
    Read(#[from] ReadError),
    #[error(transparent)]
    Predict(#[from] RuntimeError),
}

/// Warms a runtime as it likes, then with the requests of the setting `warmup`, one after the other.
pub(super) async fn warm_up(runtime: &dyn Runtime, settings: &ModelSettings) -> Result<(), LoadError> {
    runtime.warm_up().await.map_err(LoadError::WarmUp)?;
    if runtime.description().answers_warmup {
        return Ok(());
    }
    for (index, sample) in settings.warmup.iter().enumerate() {
        answer(runtime, sample).await.map_err(|source| LoadError::Sample { index, source })?;
    }
    Ok(())
}

async fn answer(runtime: &dyn Runtime, sample: &serde_json::Value) -> Result<(), SampleError> {
    let sample = json::read_request(sample.to_string().as_bytes(), None)?;
    runtime.predict(sample.request, Arc::new(())).await?;
    Ok(())
}
