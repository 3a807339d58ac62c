//! `mlserver score`: evaluates models for the process that has started it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tracing::{info, warn};

use super::CommandError;
use super::embedded::{EmbeddedModel, EmbeddedOptions, LoadProgress};
use super::start::Orphans;
use crate::compute::ComputePool;
use crate::inference::InferenceError;
use crate::registry::{ModelState, chain};
use crate::runtimes::workers::score::{
    self, LocatedDescription, LocatedModel, ModelLocation, ModelOpener, PredictionFailure,
};
use crate::settings::SystemEnvironment;
use crate::types::{InferenceRequest, InferenceResponse};

/// How often the log says how much of a model has been fetched.
const FETCH_INTERVAL: Duration = Duration::from_secs(5);

/// Evaluates models for the process at the other end of standard input.
///
/// # Errors
///
/// Fails if that process does not speak the protocol of workers.
pub fn run_worker() -> Result<(), CommandError> {
    let opener = Arc::new(EmbeddedOpener::default());
    let ended = score::run(Arc::clone(&opener) as Arc<dyn ModelOpener>);
    // What the code of models has left is killed now.
    drop(opener.orphans.lock().take());
    Ok(ended.map_err(anyhow::Error::from)?)
}

/// Opens models as `mlserver infer --embedded` does.
#[derive(Debug, Default)]
struct EmbeddedOpener {
    /// The processes below this one, once there is a model that may start some.
    orphans: Mutex<Option<Orphans>>,
}

impl ModelOpener for EmbeddedOpener {
    fn open(
        &self,
        location: ModelLocation,
        compute: ComputePool,
    ) -> BoxFuture<'_, Result<Arc<dyn LocatedModel>, String>> {
        async move {
            self.orphans.lock().get_or_insert_with(Orphans::adopt);
            let ModelLocation { location, name, version } = location;
            let threads = compute.width();
            let options = EmbeddedOptions {
                location: Path::new(&location),
                name: name.as_deref(),
                version: version.as_deref(),
                environment: &SystemEnvironment,
                compute,
                progress: &LogProgress,
            };
            let model = EmbeddedModel::load(options).await.map_err(|failure| format!("{:#}", failure.error))?;
            let description = describe(&model, threads).map_err(|error| chain(&error))?;
            Ok(Arc::new(OpenModel { model, description }) as Arc<dyn LocatedModel>)
        }
        .boxed()
    }
}

/// Returns what the parent gets to know of a model.
fn describe(model: &EmbeddedModel, threads: usize) -> Result<LocatedDescription, InferenceError> {
    let registered = model.registered()?;
    let runtime = match &registered.state {
        ModelState::Ready(runtime) => Some(runtime.description()),
        ModelState::Loading | ModelState::Failed { .. } => None,
    };
    let is_native = runtime.is_some_and(|runtime| runtime.backend == "native");
    let splits_rows = !registered.is_graph && runtime.is_some_and(|runtime| runtime.not_batched.is_none());
    Ok(LocatedDescription {
        metadata: registered.metadata.clone(),
        version: registered.version.clone(),
        tensor_rule: model.tensor_rule(&registered),
        splits_rows,
        has_independent_rows: is_native && !model.is_onnx(),
        threads,
        features: runtime.and_then(|runtime| runtime.features.clone()),
    })
}

/// A model that has been opened.
struct OpenModel {
    model: EmbeddedModel,
    description: LocatedDescription,
}

impl fmt::Debug for OpenModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("OpenModel").field(&self.description).finish()
    }
}

impl LocatedModel for OpenModel {
    fn description(&self) -> &LocatedDescription {
        &self.description
    }

    fn predict(&self, request: InferenceRequest) -> BoxFuture<'_, Result<InferenceResponse, PredictionFailure>> {
        async move {
            let failure = |error: InferenceError| PredictionFailure { kind: error.kind(), message: chain(&error) };
            self.model.predict(request).await.map_err(failure)
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.model.stop().boxed()
    }
}

/// Writes to the log how a load goes.
struct LogProgress;

impl LoadProgress for LogProgress {
    fn warn(&self, message: &str) {
        warn!("{message}");
    }

    fn fetched(&self, message: fmt::Arguments<'_>) {
        info!("{message}");
    }

    fn interval(&self) -> Duration {
        FETCH_INTERVAL
    }
}
