//! Loads the runtime of a model from its settings.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::{info, warn};

use super::{LoadError, OpenAiTensors, chain};
use crate::compute::ComputePool;
use crate::families::NativeEvaluator;
use crate::repository::Artifact;
use crate::runtimes::python::Python;
use crate::runtimes::{self, Backend, BoxFuture, GraphResources, Implementation, Runtime};
use crate::settings::ModelSettings;
use crate::types::PathTemplate;

/// A runtime that is being loaded.
pub type RuntimeFuture<'a> = BoxFuture<'a, Result<Arc<dyn Runtime>, LoadError>>;

/// Loads runtimes.
pub trait Loader: fmt::Debug + Send + Sync {
    /// Loads the model that `settings` describe. Dropping the future cancels the load.
    fn load(&self, settings: ModelSettings) -> RuntimeFuture<'_>;
}

/// The loader of all runtimes.
#[derive(Debug)]
pub struct RuntimeLoader {
    /// The threads of predictions.
    pub compute: ComputePool,
    /// The threads that load models, so that requests do not wait for loads.
    pub loading: ComputePool,
    /// The folder that paths of models without a settings file are relative to.
    pub working_directory: PathBuf,
    pub python: Python,
    pub graphs: GraphResources,
    /// Returns whether a model's own route is unreachable because the server serves its paths itself.
    pub is_reserved: fn(&PathTemplate) -> bool,
    /// Returns whether a model's own route replaces one of the server for OpenAI's API below the prefix.
    pub is_openai: fn(&str, &PathTemplate) -> bool,
    pub openai_prefix: String,
}

impl Loader for RuntimeLoader {
    fn load(&self, settings: ModelSettings) -> RuntimeFuture<'_> {
        Box::pin(async move {
            OpenAiTensors::from_settings(&settings).map_err(LoadError::OpenAi)?;
            match Implementation::of(&settings)? {
                Implementation::Python => {
                    let reason = Implementation::python_reason(&settings);
                    let python = self.python.load(&settings, reason.as_deref()).await;
                    let python = python.map_err(runtimes::LoadError::from)?;
                    self.check_routes(&settings.name, python)
                }
                Implementation::Native(evaluator) => {
                    let native = if settings.parameters.isolate {
                        self.isolated(evaluator, &settings).await
                    } else {
                        let native = self.native(evaluator, settings.clone()).await;
                        self.native_or_network(native, evaluator, &settings).await
                    };
                    self.native_or_python(native, &settings).await
                }
            }
        })
    }
}

impl RuntimeLoader {
    /// Loads a model for native evaluation from its artifact.
    async fn native(&self, evaluator: NativeEvaluator, settings: ModelSettings) -> Result<Arc<dyn Runtime>, LoadError> {
        let path = self.artifact(evaluator, &settings)?;
        let (compute, graphs) = (self.compute.clone(), self.graphs.clone());
        let load = move || match evaluator {
            NativeEvaluator::Graph => runtimes::load_graph(&settings, &path, graphs),
            _ => runtimes::load_native(evaluator, &settings, &path, &compute),
        };
        Ok(self.loading.run(load).await.map_err(LoadError::Panicked)??)
    }

    /// Loads a model for native evaluation in a process of its own.
    async fn isolated(
        &self,
        evaluator: NativeEvaluator,
        settings: &ModelSettings,
    ) -> Result<Arc<dyn Runtime>, LoadError> {
        if evaluator == NativeEvaluator::Graph {
            return Err(LoadError::IsolatedGraph);
        }
        let path = self.artifact(evaluator, settings)?;
        let memory_limit = (evaluator == NativeEvaluator::Onnx).then(|| network_memory(&path));
        let loaded = self.python.workers().load_native(settings, &path, memory_limit).await;
        let model = loaded.map_err(runtimes::LoadError::from)?;
        self.check_routes(&settings.name, model)
    }

    /// Loads a model that the server has refused in a process of its own, if it is a network.
    async fn native_or_network(
        &self,
        native: Result<Arc<dyn Runtime>, LoadError>,
        evaluator: NativeEvaluator,
        settings: &ModelSettings,
    ) -> Result<Arc<dyn Runtime>, LoadError> {
        let refused = match native {
            Err(LoadError::Runtime(error)) if error.is_unsupported() => error,
            result => return result,
        };
        let path = self.artifact(evaluator, settings)?;
        let check = move || runtimes::or_network(evaluator, &path, refused);
        self.loading.run(check).await.map_err(LoadError::Panicked)??;
        self.isolated(evaluator, settings).await
    }

    /// Returns the file or folder that an evaluator reads. Empty if it reads none.
    fn artifact(&self, evaluator: NativeEvaluator, settings: &ModelSettings) -> Result<PathBuf, LoadError> {
        if !evaluator.needs_artifact() {
            return Ok(PathBuf::new());
        }
        match Artifact::resolve(settings, &self.working_directory)? {
            Artifact::Path(path) => Ok(path),
            Artifact::Remote(uri) => Err(LoadError::Remote { uri }),
        }
    }

    /// Falls back to Python for a model that the native runtime does not support, unless the settings choose a backend.
    async fn native_or_python(
        &self,
        native: Result<Arc<dyn Runtime>, LoadError>,
        settings: &ModelSettings,
    ) -> Result<Arc<dyn Runtime>, LoadError> {
        let unsupported = match native {
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
            result => return result,
        };
        let (model, version) = (settings.name.as_str(), settings.version());
        info!(model, version, reason = unsupported, "Model '{model}' is served in Python.");
        match self.python.load(settings, Some(&unsupported)).await {
            Ok(python) => self.check_routes(&settings.name, python),
            Err(source) => Err(LoadError::Neither { unsupported, source: source.into() }),
        }
    }

    /// Rejects a model with a route that would be unreachable.
    fn check_routes(&self, name: &str, model: Arc<dyn Runtime>) -> Result<Arc<dyn Runtime>, LoadError> {
        for route in &model.description().routes {
            if (self.is_reserved)(&route.template) {
                return Err(LoadError::Reserved { route: route.template.to_string() });
            }
            if (self.is_openai)(&self.openai_prefix, &route.template) {
                let (method, path) = (&route.method, &route.template);
                warn!(
                    model = name,
                    "The model's route `{method} {path}` replaces that of the server for OpenAI's API, for all models."
                );
            }
        }
        Ok(model)
    }
}

/// Returns the memory of a worker for a network whose settings do not limit it, in bytes: its weights in several forms, and what one
/// prediction of an ordinary network needs.
fn network_memory(model: &Path) -> u64 {
    const BASE: u64 = 512 << 20;
    const FORMS: u64 = 4;
    // Weights may be in other files of the folder.
    let files = model.parent().and_then(|folder| std::fs::read_dir(folder).ok());
    let files = files.into_iter().flatten().flatten().filter_map(|entry| entry.metadata().ok());
    let size: u64 = files.filter(std::fs::Metadata::is_file).map(|file| file.len()).sum();
    size.saturating_mul(FORMS).saturating_add(BASE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::RegistryDirectory;
    use crate::runtimes::python::PythonOptions;
    use crate::runtimes::workers::WorkerOptions;
    use crate::telemetry::graphs::GraphMetrics;
    use crate::telemetry::metrics::Registry as MetricsRegistry;
    use crate::types::ForwardedCredentials;
    use std::time::Duration;

    #[tokio::test]
    async fn models_load_while_all_threads_of_requests_are_busy() {
        let compute = ComputePool::for_this_machine();
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let gate = Arc::new(parking_lot::Mutex::new(gate));
        let busy: Vec<_> = (0..compute.width())
            .map(|_| {
                let (compute, gate) = (compute.clone(), Arc::clone(&gate));
                tokio::spawn(async move { compute.run(move || gate.lock().recv().is_ok()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let workers = WorkerOptions { compute: compute.clone(), ..WorkerOptions::default() };
        let python = PythonOptions { workers, ..PythonOptions::default() };
        let loader = RuntimeLoader {
            compute: compute.clone(),
            loading: ComputePool::for_this_machine(),
            working_directory: PathBuf::from("/"),
            python: Python::new(python),
            graphs: GraphResources::new(
                Arc::new(RegistryDirectory::default()),
                GraphMetrics::register(&mut MetricsRegistry::default()),
                compute,
                ForwardedCredentials::default(),
            ),
            is_reserved: |_| false,
            is_openai: |_, _| false,
            openai_prefix: String::new(),
        };
        let settings = ModelSettings::new("m", "mlserver_identity.IdentityModel");
        let outcome = tokio::time::timeout(Duration::from_secs(10), loader.load(settings)).await;
        outcome.expect("it does not wait for them").unwrap();
        drop(release);
        for busy in busy {
            busy.await.unwrap().unwrap();
        }
    }
}
