//! A model in this process, without a server.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use crate::client::{Failure, FailureKind, Target};
use crate::commands::CommandError;
use crate::commands::start::python_options;
use crate::compute::ComputePool;
use crate::inference::{Admission, Inference, InferenceError, InferenceErrorKind};
use crate::registry::{Registry, RuntimeLoader, chain};
use crate::repository::Repository;
use crate::runtimes::python::Python;
use crate::server::rest;
use crate::settings::{Environment, Loaded, ModelSettings, Settings, Sources};
use crate::telemetry::inference::InferenceMetrics;
use crate::telemetry::metrics::Registry as MetricsRegistry;
use crate::types::{InferenceRequest, InferenceResponse};

/// How long a model that has lost its workers has to come back.
const RECOVERY: Duration = Duration::from_secs(30);

/// A model that was loaded.
pub(super) struct Embedded {
    inference: Inference,
    model: String,
    version: Option<String>,
    python: Python,
}

impl Embedded {
    /// Loads a model of a folder, as `start` does: the one of that name, or the only one.
    ///
    /// # Errors
    ///
    /// Fails when there is no such model, or it does not load.
    pub(super) async fn load(
        folder: &Path,
        (name, version): (Option<&str>, Option<&str>),
        environment: &dyn Environment,
    ) -> Result<Self, CommandError> {
        let sources = Sources::read(environment)?;
        let Loaded { settings, .. } = Settings::load(folder, &sources, false)?;
        let repository = Repository::new(folder, sources, false);
        let discovery = repository.discover();
        if let Some(problem) = discovery.errors.first()
            && discovery.models.is_empty()
        {
            return Err(anyhow!("{}", chain(problem)).into());
        }
        let models = discovery.models.into_iter().map(|model| model.settings).collect();
        let models = chosen(models, folder, name, version)?;
        let mut metrics = MetricsRegistry::default();
        let python = Python::new(python_options(&settings, &repository, &mut metrics));
        let loader = RuntimeLoader {
            compute: ComputePool::for_this_machine(),
            working_directory: repository.working_directory().to_owned(),
            python: python.clone(),
            is_reserved: rest::is_reserved,
        };
        let registry = Registry::new(loader, InferenceMetrics::register(&mut metrics));
        let model = models[0].name.clone();
        for settings in models {
            registry.load(settings).await.map_err(|error| {
                anyhow!("model `{model}` of `{}` cannot be loaded: {}", folder.display(), chain(&error))
            })?;
        }
        // What is under way is limited by who asks.
        let inference = Inference::new(registry, NonZeroUsize::MAX);
        Ok(Self { inference, model, version: version.map(str::to_owned), python })
    }

    /// Ends the processes of a model in Python.
    pub(super) async fn stop(&self) {
        self.python.stop().await;
    }
}

/// Chooses the versions of one model.
fn chosen(
    models: Vec<ModelSettings>,
    folder: &Path,
    name: Option<&str>,
    version: Option<&str>,
) -> Result<Vec<ModelSettings>, CommandError> {
    let names: BTreeSet<String> = models.iter().map(|model| model.name.clone()).collect();
    let listed = names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let name = match (name, &names.iter().collect::<Vec<_>>()[..]) {
        (_, []) => return Err(anyhow!("`{}` holds no model", folder.display()).into()),
        (Some(name), _) => name,
        (None, [one]) => one.as_str(),
        (None, _) => {
            return Err(anyhow!(
                "`{}` holds several models: choose one with --model-name of {listed}",
                folder.display()
            )
            .into());
        }
    };
    let is_wanted = |model: &ModelSettings| {
        model.name == name && version.is_none_or(|version| model.parameters.version.as_deref() == Some(version))
    };
    let models: Vec<_> = models.into_iter().filter(is_wanted).collect();
    if models.is_empty() {
        let version = version.map(|version| format!(" with version `{version}`")).unwrap_or_default();
        return Err(anyhow!("`{}` holds no model `{name}`{version}; it holds {listed}", folder.display()).into());
    }
    Ok(models)
}

impl Target for Embedded {
    fn infer<'a>(&'a self, request: &'a InferenceRequest) -> BoxFuture<'a, Result<InferenceResponse, Failure>> {
        async move {
            let target =
                self.inference.target(&self.model, self.version.as_deref()).map_err(|error| failure(&error))?;
            let mut admission = Admission::new();
            self.inference.infer(&target, request.clone(), &mut admission).await.map_err(|error| failure(&error))
        }
        .boxed()
    }

    fn reachable(&self) -> BoxFuture<'_, Result<(), Failure>> {
        async {
            let deadline = Instant::now() + RECOVERY;
            loop {
                let target =
                    self.inference.target(&self.model, self.version.as_deref()).map_err(|error| failure(&error))?;
                if target.model.state.is_ready() {
                    return Ok(());
                }
                if Instant::now() > deadline {
                    let message = format!("model `{}` has no worker, nor will it have one soon", self.model);
                    return Err(Failure::new(FailureKind::Unavailable, message));
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        .boxed()
    }
}

/// Says what a failure means for the next request.
fn failure(error: &InferenceError) -> Failure {
    let kind = match error.kind() {
        InferenceErrorKind::Overloaded => FailureKind::Overloaded,
        InferenceErrorKind::Timeout | InferenceErrorKind::NotReady => FailureKind::Unavailable,
        InferenceErrorKind::Stopping | InferenceErrorKind::WorkerLost => FailureKind::Lost,
        InferenceErrorKind::NotFound => FailureKind::Everyone,
        _ => FailureKind::Refused,
    };
    Failure::new(kind, chain(error))
}
