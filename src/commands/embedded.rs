//! Runs a model in this process, without a server.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, interval};

use super::CommandError;
use super::start::{ServeTarget, python_options};
use crate::compute::ComputePool;
use crate::families::{ModelFamily, NativeEvaluator};
use crate::inference::{Admission, Inference, InferenceError};
use crate::registry::{
    FetchingLoader, LoadError, ModelFetcher, RegisteredModel, Registry, RegistryDirectory, RuntimeLoader, chain,
};
use crate::remote::{FailureKind, InferenceTarget, RequestFailure};
use crate::repository::{Repository, is_store_uri};
use crate::runtimes::python::Python;
use crate::runtimes::{GraphResources, StepModel};
use crate::server::rest;
use crate::settings::{Environment, LoadedSettings, MODEL_SETTINGS_FILE, ModelSettings, Settings, SettingsSources};
use crate::telemetry::graphs::GraphMetrics;
use crate::telemetry::inference::InferenceMetrics;
use crate::telemetry::metrics::Registry as MetricsRegistry;
use crate::types::{
    ForwardedCredentials, InferenceRequest, InferenceResponse, RequestErrorKind, TensorRule, without_credentials,
};
use crate::ui::progress::TerminalProgress;

/// How long a model without workers has to recover.
const RECOVERY: Duration = Duration::from_secs(30);

/// What is loaded, and how.
pub(super) struct EmbeddedOptions<'a> {
    /// A folder, a model file, or the URI of either.
    pub(super) location: &'a Path,
    /// The model, if the folder has several.
    pub(super) name: Option<&'a str>,
    pub(super) version: Option<&'a str>,
    pub(super) environment: &'a dyn Environment,
    /// The threads that evaluate native models.
    pub(super) compute: ComputePool,
    pub(super) progress: &'a dyn LoadProgress,
}

/// Is told how a load goes.
pub(super) trait LoadProgress: Sync {
    /// Reports a problem that does not stop the load.
    fn warn(&self, message: &str);

    /// Reports how much of a model has been fetched.
    fn fetched(&self, message: fmt::Arguments<'_>);

    /// Returns how often to report that.
    fn interval(&self) -> Duration;
}

impl LoadProgress for TerminalProgress {
    fn warn(&self, message: &str) {
        Self::warn(self, format_args!("{message}"));
    }

    fn fetched(&self, message: fmt::Arguments<'_>) {
        self.wait(message);
    }

    fn interval(&self) -> Duration {
        Self::interval(self)
    }
}

/// A loaded model. The processes that its code starts are below this one: see [`Orphans`](super::start::Orphans).
pub(super) struct EmbeddedModel {
    inference: Inference,
    model: String,
    version: Option<String>,
    /// The family of its implementation, if it is not a class of the user.
    family: Option<&'static ModelFamily>,
    python: Python,
}

impl EmbeddedModel {
    /// Loads a model of a folder, as `start` does: the one with the given name, or the only one. Or loads a model file. Models that
    /// it asks, such as the steps of a graph, are loaded with it.
    ///
    /// # Errors
    ///
    /// Fails if there is no such model, or if it or one of its steps cannot be loaded.
    pub(super) async fn load(options: EmbeddedOptions<'_>) -> Result<Self, CommandError> {
        let EmbeddedOptions { location, name, version, environment, compute, progress } = options;
        let shown = shown(location);
        let target = ServeTarget::new(Some(location), environment)?;
        let sources = SettingsSources::read(environment)?;
        let LoadedSettings { settings, .. } = Settings::load(&target.folder, &sources, false)?;
        let mut metrics = MetricsRegistry::default();
        let repository = target.repository(sources, false);
        let mut python = python_options(&settings, &repository, environment, &mut metrics);
        python.workers.compute = compute;
        let python = Python::new(python);
        let mut fetcher = ModelFetcher::new(&settings.storage, python.variables().clone());
        let repository = target.open_store(repository, &mut fetcher, |warning| progress.warn(warning)).await?;
        let discovery = match repository.custom() {
            Some(file) => repository.read(file.list().await?),
            None => repository.discover(),
        };
        if let Some(problem) = discovery.errors.first()
            && discovery.models.is_empty()
        {
            return Err(anyhow!("{}", chain(problem)).into());
        }
        let models: Vec<_> = discovery.models.into_iter().map(|model| model.settings).collect();
        if models.is_empty() {
            let file = target.suggested_file().map(|file| format!(", such as `{}`", file.display()));
            return Err(anyhow!(
                "no model found in `{shown}`: pass a folder with `{MODEL_SETTINGS_FILE}`, or a model file{}",
                file.unwrap_or_default()
            )
            .into());
        }
        let (models, others) = choose_versions(models, &shown, name, version)?;
        let model = models[0].name.clone();
        let family = ModelFamily::of(&models[0].implementation);
        let registry = registry(&python, &repository, &fetcher, &mut metrics);
        if let Err((failed, error)) = load_with_steps(&registry, models, others, &fetcher, progress).await {
            // There may be workers of other models.
            python.workers().stop().await;
            return Err(anyhow!("cannot load model `{failed}` of `{shown}`: {}", chain(&error)).into());
        }
        let inference = Inference::new(registry, NonZeroUsize::MAX);
        Ok(Self { inference, model, version: version.map(str::to_owned), family, python })
    }

    /// Returns the model as it is registered.
    ///
    /// # Errors
    ///
    /// Fails after [`EmbeddedModel::stop`].
    pub(super) fn registered(&self) -> Result<Arc<RegisteredModel>, InferenceError> {
        Ok(self.inference.target(&self.model, self.version.as_deref())?.model)
    }

    /// Reports whether the model is a graph of ONNX.
    pub(super) fn is_onnx(&self) -> bool {
        self.family.is_some_and(|family| family.native == Some(NativeEvaluator::Onnx))
    }

    /// Returns which tensors the model takes.
    pub(super) fn tensor_rule(&self, model: &RegisteredModel) -> TensorRule {
        self.inference.tensor_rule(model)
    }

    /// Answers a request.
    ///
    /// # Errors
    ///
    /// Fails if the model cannot answer.
    pub(super) async fn predict(&self, request: InferenceRequest) -> Result<InferenceResponse, InferenceError> {
        let target = self.inference.target(&self.model, self.version.as_deref())?;
        self.inference.infer(&target, request, &mut Admission::new()).await
    }

    /// Stops the workers of a Python model.
    pub(super) async fn stop(&self) {
        self.python.workers().stop().await;
    }
}

/// Creates the registry of the model and its steps.
fn registry(
    python: &Python,
    repository: &Repository,
    fetcher: &ModelFetcher,
    metrics: &mut MetricsRegistry,
) -> Registry {
    let compute = python.workers().compute();
    let directory = RegistryDirectory::default();
    let graphs = GraphMetrics::register(metrics);
    let credentials = ForwardedCredentials::default();
    let loader = RuntimeLoader {
        compute: compute.clone(),
        loading: ComputePool::for_this_machine(),
        working_directory: repository.working_directory().to_owned(),
        python: python.clone(),
        graphs: GraphResources::new(Arc::new(directory.clone()), graphs, compute.clone(), credentials),
        is_reserved: rest::is_reserved,
        // No route is served.
        is_openai: |_, _| false,
        openai_prefix: String::new(),
    };
    let registry = Registry::new(FetchingLoader::new(loader, fetcher.clone()), InferenceMetrics::register(metrics));
    directory.connect(&registry);
    registry
}

/// Loads models, and those of `others` that they ask: the steps of graphs, and what models in Python declare. Fails with the
/// name of the model that cannot be loaded.
async fn load_with_steps(
    registry: &Registry,
    models: Vec<ModelSettings>,
    mut others: Vec<ModelSettings>,
    fetcher: &ModelFetcher,
    progress: &dyn LoadProgress,
) -> Result<(), (String, LoadError)> {
    // A graph is loaded before its steps, and is rejected if there are no such models.
    for other in &others {
        registry.announce_optional(other);
    }
    let mut waiting = VecDeque::from(models);
    while let Some(mut settings) = waiting.pop_front() {
        // The client limits the requests in flight, and would rather wait.
        settings.parameters.queue_target = Duration::ZERO;
        let name = settings.name.clone();
        let loaded = load(registry, settings, fetcher, progress).await.map_err(|error| (name, error))?;
        let is_step = |other: &mut ModelSettings| loaded.steps().iter().any(|step| answers(other, step));
        waiting.extend(others.extract_if(.., is_step));
    }
    for other in &others {
        registry.withdraw(other);
    }
    Ok(())
}

/// Reports whether a model may be the one that a step asks: without a version, the step asks the default one of all versions.
fn answers(model: &ModelSettings, step: &StepModel) -> bool {
    model.name == step.name && (step.version.is_none() || step.version == model.parameters.version)
}

/// Loads a model, and reports how much of it has been fetched.
async fn load(
    registry: &Registry,
    settings: ModelSettings,
    fetcher: &ModelFetcher,
    progress: &dyn LoadProgress,
) -> Result<Arc<RegisteredModel>, LoadError> {
    let (model, version) = (settings.name.clone(), settings.version().map(str::to_owned));
    let loading = registry.load(settings);
    tokio::pin!(loading);
    let mut ticks = interval(progress.interval());
    loop {
        tokio::select! {
            done = &mut loading => return done,
            _ = ticks.tick() => {
                if let Some(text) = fetcher.progress(&model, version.as_deref()) {
                    progress.fetched(format_args!("model `{model}`: {text}"));
                }
            }
        }
    }
}

/// Returns a path as it may be shown: a URI may have credentials.
pub(super) fn shown(folder: &Path) -> String {
    let shown = folder.display().to_string();
    if is_store_uri(&shown) { without_credentials(&shown) } else { shown }
}

/// Returns the wanted versions of one model, and the other models.
fn choose_versions(
    models: Vec<ModelSettings>,
    folder: &str,
    name: Option<&str>,
    version: Option<&str>,
) -> Result<(Vec<ModelSettings>, Vec<ModelSettings>), CommandError> {
    let names: BTreeSet<String> = models.iter().map(|model| model.name.clone()).collect();
    let listed = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let name = match (name, &names.iter().collect::<Vec<_>>()[..]) {
        (Some(name), _) => name,
        (None, [one]) => one.as_str(),
        (None, _) => {
            return Err(anyhow!("`{folder}` has several models: choose one with --model-name ({listed})").into());
        }
    };
    let is_wanted = |model: &ModelSettings| {
        model.name == name && version.is_none_or(|version| model.parameters.version.as_deref() == Some(version))
    };
    let (models, others): (Vec<_>, Vec<_>) = models.into_iter().partition(is_wanted);
    if models.is_empty() {
        let version = version.map(|version| format!(" with version `{version}`")).unwrap_or_default();
        return Err(anyhow!("`{folder}` has no model `{name}`{version}; it has {listed}").into());
    }
    Ok((models, others))
}

impl InferenceTarget for EmbeddedModel {
    fn infer<'a>(&'a self, request: &'a InferenceRequest) -> BoxFuture<'a, Result<InferenceResponse, RequestFailure>> {
        async move { self.predict(request.clone()).await.map_err(|error| failure(&error)) }.boxed()
    }

    fn check_available(&self) -> BoxFuture<'_, Result<(), RequestFailure>> {
        async {
            let deadline = Instant::now() + RECOVERY;
            loop {
                if self.registered().map_err(|error| failure(&error))?.state.is_ready() {
                    return Ok(());
                }
                if Instant::now() > deadline {
                    let message = format!("model `{}` has no running worker", self.model);
                    return Err(RequestFailure::new(FailureKind::Unavailable, message));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        .boxed()
    }
}

/// Converts an inference error into a failure of the request.
fn failure(error: &InferenceError) -> RequestFailure {
    let kind = match error.kind() {
        RequestErrorKind::OverBudget | RequestErrorKind::Overloaded => FailureKind::Overloaded,
        RequestErrorKind::Timeout => FailureKind::TimedOut,
        RequestErrorKind::NotReady => FailureKind::Unavailable,
        RequestErrorKind::Stopping | RequestErrorKind::WorkerLost | RequestErrorKind::Unavailable => {
            FailureKind::ConnectionLost
        }
        RequestErrorKind::NotFound => FailureKind::AllRequests,
        _ => FailureKind::Rejected,
    };
    RequestFailure::new(kind, chain(error))
}
