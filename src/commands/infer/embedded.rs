//! Runs a model in this process, without a server.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::anyhow;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, interval};

use crate::commands::CommandError;
use crate::commands::start::{Orphans, ServeTarget, python_options};
use crate::compute::ComputePool;
use crate::inference::{Admission, Inference, InferenceError};
use crate::registry::{FetchingLoader, LoadError, ModelFetcher, Registry, RegistryDirectory, RuntimeLoader, chain};
use crate::remote::{FailureKind, InferenceTarget, RequestFailure};
use crate::repository::is_store_uri;
use crate::runtimes::GraphResources;
use crate::runtimes::python::Python;
use crate::server::rest;
use crate::settings::{Environment, LoadedSettings, MODEL_SETTINGS_FILE, ModelSettings, Settings, SettingsSources};
use crate::telemetry::graphs::GraphMetrics;
use crate::telemetry::inference::InferenceMetrics;
use crate::telemetry::metrics::Registry as MetricsRegistry;
use crate::types::{ForwardedCredentials, InferenceRequest, InferenceResponse, RequestErrorKind, without_credentials};
use crate::ui::progress::TerminalProgress;

/// How long a model without workers has to recover.
const RECOVERY: Duration = Duration::from_secs(30);

/// A loaded model.
pub(super) struct EmbeddedModel {
    inference: Inference,
    model: String,
    version: Option<String>,
    python: Python,
    /// What its code has left is killed at the end.
    _orphans: Orphans,
}

impl EmbeddedModel {
    /// Loads a model of a folder, as `start` does: the one with the given name, or the only one. Or loads a model file.
    ///
    /// # Errors
    ///
    /// Fails if there is no such model, or it cannot be loaded.
    pub(super) async fn load(
        folder: &Path,
        name: Option<&str>,
        version: Option<&str>,
        environment: &dyn Environment,
        progress: &TerminalProgress,
    ) -> Result<Self, CommandError> {
        let shown = shown(folder);
        let target = ServeTarget::new(Some(folder), environment)?;
        let sources = SettingsSources::read(environment)?;
        let LoadedSettings { settings, .. } = Settings::load(&target.folder, &sources, false)?;
        let mut metrics = MetricsRegistry::default();
        let repository = target.repository(sources, false);
        let python = Python::new(python_options(&settings, &repository, environment, &mut metrics));
        let mut fetcher = ModelFetcher::new(&settings.storage, python.variables().clone());
        let warn = |warning: &str| progress.warn(format_args!("{warning}"));
        let repository = target.open_store(repository, &mut fetcher, warn).await?;
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
        let models = choose_versions(models, &shown, name, version)?;
        let orphans = Orphans::adopt();
        let directory = RegistryDirectory::default();
        let loader = RuntimeLoader {
            compute: python.workers().compute().clone(),
            loading: ComputePool::for_this_machine(),
            working_directory: repository.working_directory().to_owned(),
            python: python.clone(),
            graphs: GraphResources::new(
                Arc::new(directory.clone()),
                GraphMetrics::register(&mut metrics),
                python.workers().compute().clone(),
                ForwardedCredentials::default(),
            ),
            is_reserved: rest::is_reserved,
            // No route is served.
            is_openai: |_, _| false,
            openai_prefix: String::new(),
        };
        let registry =
            Registry::new(FetchingLoader::new(loader, fetcher.clone()), InferenceMetrics::register(&mut metrics));
        directory.connect(&registry);
        let model = models[0].name.clone();
        for mut settings in models {
            // The client limits the requests in flight, and would rather wait.
            settings.parameters.queue_target = Duration::ZERO;
            let done = load(&registry, settings, &fetcher, progress).await;
            done.map_err(|error| anyhow!("cannot load model `{model}` of `{shown}`: {}", chain(&error)))?;
        }
        let inference = Inference::new(registry, NonZeroUsize::MAX);
        Ok(Self { inference, model, version: version.map(str::to_owned), python, _orphans: orphans })
    }

    /// Stops the workers of a Python model.
    pub(super) async fn stop(&self) {
        self.python.workers().stop().await;
    }
}

/// Loads a model, and shows how much of it has been fetched.
async fn load(
    registry: &Registry,
    settings: ModelSettings,
    fetcher: &ModelFetcher,
    progress: &TerminalProgress,
) -> Result<(), LoadError> {
    let (model, version) = (settings.name.clone(), settings.version().map(str::to_owned));
    let loading = registry.load(settings);
    tokio::pin!(loading);
    let mut ticks = interval(progress.interval());
    loop {
        tokio::select! {
            done = &mut loading => return done.map(drop),
            _ = ticks.tick() => {
                if let Some(text) = fetcher.progress(&model, version.as_deref()) {
                    progress.wait(format_args!("model `{model}`: {text}"));
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

/// Returns the wanted versions of one model.
fn choose_versions(
    models: Vec<ModelSettings>,
    folder: &str,
    name: Option<&str>,
    version: Option<&str>,
) -> Result<Vec<ModelSettings>, CommandError> {
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
    let models: Vec<_> = models.into_iter().filter(is_wanted).collect();
    if models.is_empty() {
        let version = version.map(|version| format!(" with version `{version}`")).unwrap_or_default();
        return Err(anyhow!("`{folder}` has no model `{name}`{version}; it has {listed}").into());
    }
    Ok(models)
}

impl InferenceTarget for EmbeddedModel {
    fn infer<'a>(&'a self, request: &'a InferenceRequest) -> BoxFuture<'a, Result<InferenceResponse, RequestFailure>> {
        async move {
            let target =
                self.inference.target(&self.model, self.version.as_deref()).map_err(|error| failure(&error))?;
            let mut admission = Admission::new();
            self.inference.infer(&target, request.clone(), &mut admission).await.map_err(|error| failure(&error))
        }
        .boxed()
    }

    fn check_available(&self) -> BoxFuture<'_, Result<(), RequestFailure>> {
        async {
            let deadline = Instant::now() + RECOVERY;
            loop {
                let target =
                    self.inference.target(&self.model, self.version.as_deref()).map_err(|error| failure(&error))?;
                if target.model.state.is_ready() {
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
