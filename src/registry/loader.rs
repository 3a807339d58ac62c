//! From a model's settings to its runtime.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use tracing::info;

use super::{LoadError, chain};
use crate::compute::ComputePool;
use crate::families::NativeEvaluator;
use crate::repository::Artifact;
use crate::runtimes::python::Python;
use crate::runtimes::{self, Backend, BoxFuture, Implementation, Runtime};
use crate::settings::ModelSettings;
use crate::types::PathTemplate;

/// A runtime that is being loaded.
pub type Loading<'a> = BoxFuture<'a, Result<Arc<dyn Runtime>, LoadError>>;

/// Makes runtimes.
pub trait Loader: fmt::Debug + Send + Sync {
    /// Loads what `settings` describe. Dropping the future abandons the runtime.
    fn load(&self, settings: ModelSettings) -> Loading<'_>;
}

/// The loader of every runtime that this server has.
#[derive(Debug)]
pub struct RuntimeLoader {
    pub compute: ComputePool,
    /// Where the paths of models without a settings file start.
    pub working_directory: PathBuf,
    pub python: Python,
    /// Tells whether a model's own route could never be reached, because its paths are the server's.
    pub is_reserved: fn(&PathTemplate) -> bool,
}

impl Loader for RuntimeLoader {
    fn load(&self, settings: ModelSettings) -> Loading<'_> {
        Box::pin(async move {
            match Implementation::of(&settings)? {
                Implementation::Python => {
                    let python = self.python.load(&settings, None).await.map_err(runtimes::LoadError::from)?;
                    self.reachable(python)
                }
                Implementation::Native(evaluator) => {
                    let native = self.native(evaluator, settings.clone()).await;
                    self.native_or_python(native, &settings).await
                }
            }
        })
    }
}

impl RuntimeLoader {
    /// Loads a model that the server evaluates itself, from its artifact.
    async fn native(&self, evaluator: NativeEvaluator, settings: ModelSettings) -> Result<Arc<dyn Runtime>, LoadError> {
        let path = if evaluator.needs_artifact() {
            match Artifact::resolve(&settings, &self.working_directory)? {
                Artifact::Path(path) => path,
                Artifact::Remote(uri) => return Err(LoadError::Remote { uri }),
            }
        } else {
            PathBuf::new()
        };
        let compute = self.compute.clone();
        let load = move || runtimes::load_native(evaluator, &settings, &path, &compute);
        Ok(self.compute.run(load).await.map_err(LoadError::Panicked)??)
    }

    /// Gives a model that the native runtime refuses to Python, unless the settings want a backend of their choice.
    async fn native_or_python(
        &self,
        native: Result<Arc<dyn Runtime>, LoadError>,
        settings: &ModelSettings,
    ) -> Result<Arc<dyn Runtime>, LoadError> {
        let refusal = match native {
            Err(LoadError::Runtime(error)) if error.is_unsupported() && Backend::of(settings)? == Backend::Auto => {
                chain(&error)
            }
            // MLflow resolves URIs of its own.
            Err(error @ LoadError::Remote { .. })
                if Implementation::of(settings)? == Implementation::Native(NativeEvaluator::Mlflow)
                    && Backend::of(settings)? == Backend::Auto =>
            {
                chain(&error)
            }
            outcome => return outcome,
        };
        let (model, version) = (settings.name.as_str(), settings.version());
        info!(model, version, reason = refusal, "Model '{model}' is served in Python: {refusal}.");
        match self.python.load(settings, Some(&refusal)).await {
            Ok(python) => self.reachable(python),
            Err(source) => Err(LoadError::Neither { refusal, source: source.into() }),
        }
    }

    /// Refuses a model of which a route could never be reached.
    fn reachable(&self, model: Arc<dyn Runtime>) -> Result<Arc<dyn Runtime>, LoadError> {
        match model.description().routes.iter().find(|route| (self.is_reserved)(&route.template)) {
            Some(route) => Err(LoadError::Reserved { route: route.template.to_string() }),
            None => Ok(model),
        }
    }
}
