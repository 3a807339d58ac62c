//! `mlserver start`: serve the models of a folder until a signal.

mod assembly;
mod descriptors;
mod orphans;
mod shutdown;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tracing::{error, warn};

use super::custom_repository::PythonRepository;
use super::{CommandError, FAILURE, USAGE};
use crate::cli::start::StartArgs;
use crate::registry::chain;
use crate::repository::{Discovery, Repository};
use crate::runtimes::python::Python;
use crate::settings::env::{KSERVE_MODELS_DIR, MODELS_DIR};
use crate::settings::{Environment, LoadedSettings, ModelSettings, Settings, SettingsSources, SettingsWarning};
use crate::shutdown::{Signals, task_failure};
use crate::telemetry::logging::{self, LogFormat};
use crate::telemetry::metrics::Registry as MetricsRegistry;
pub(super) use assembly::python_options;
use shutdown::{ShutdownLimits, shut_down};

/// The folder to serve, and how strictly its settings are read.
struct StartOptions {
    folder: PathBuf,
    strict: bool,
}

impl StartOptions {
    /// Takes the folder from the arguments, else from the environment variables that images set.
    fn new(args: &StartArgs, environment: &dyn Environment) -> Result<Self, CommandError> {
        let variables = environment.variables();
        let variable = |name: &str| variables.iter().find(|(n, value)| n == name && !value.is_empty());
        let image_folder = || variable(MODELS_DIR).or_else(|| variable(KSERVE_MODELS_DIR)).map(|(_, path)| path.into());
        let Some(folder) = args.folder.clone().or_else(image_folder) else {
            let error = anyhow!("missing FOLDER: neither `{MODELS_DIR}` nor `{KSERVE_MODELS_DIR}` is set");
            return Err(CommandError { error, code: USAGE });
        };
        Ok(Self { folder, strict: args.strict })
    }
}

/// Runs `mlserver start`.
pub fn run(args: &StartArgs, environment: &dyn Environment) -> Result<(), CommandError> {
    let options = &StartOptions::new(args, environment)?;
    let sources = SettingsSources::read(environment)?;
    let loaded = Settings::load(&options.folder, &sources, options.strict)?;
    let _log =
        logging::start(LogFormat { structured: loaded.settings.use_structured_logging, debug: loaded.settings.debug });
    let repository = Repository::new(&options.folder, sources, options.strict);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let outcome = runtime.block_on(serve(loaded, repository, options));
    // The callers of computations that are still running have been dropped.
    runtime.shutdown_background();
    outcome
}

async fn serve(
    loaded: LoadedSettings<Settings>,
    repository: Repository,
    options: &StartOptions,
) -> Result<(), CommandError> {
    let LoadedSettings { settings, warnings, .. } = loaded;
    let mut metrics = MetricsRegistry::default();
    let python = Python::new(python_options(&settings, &repository, &mut metrics));
    let repository = with_custom_repository(repository, &settings, &python).await?;
    let models = discover(&repository, &settings, &warnings, options).await?;
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    orphans::reap_if_first();
    let limits = ShutdownLimits::of(&settings);
    let server = assembly::start(&settings, &models, repository, python, metrics).await?;

    let loading = server.admin.load_at_start(models);
    let reason = tokio::select! {
        failed = loading => {
            if failed > 0 {
                error!("Some of the models failed to load during startup!");
                if settings.exit_on_load_failure {
                    let limits = ShutdownLimits { delay: Duration::ZERO, ..limits };
                    shut_down(server, limits, &mut signals).await?;
                    let error = anyhow!("{failed} of the models failed to load; `exit_on_load_failure` false serves the others");
                    return Err(CommandError { error, code: FAILURE });
                }
            }
            stop_reason(&mut signals).await
        }
        reason = stop_reason(&mut signals) => reason,
    };
    // Announced before the log line.
    server.inference.announce_shutdown();
    match reason {
        Ok(signal) => {
            limits.announce(signal);
            shut_down(server, limits, &mut signals).await
        }
        Err(failure) => {
            shut_down(server, ShutdownLimits { delay: Duration::ZERO, ..limits }, &mut signals).await?;
            Err(CommandError { error: anyhow!(failure), code: FAILURE })
        }
    }
}

/// Waits until the server has to stop: returns the name of the signal, or why it cannot continue.
async fn stop_reason(signals: &mut Signals) -> Result<&'static str, String> {
    tokio::select! {
        signal = signals.next() => Ok(signal),
        failure = task_failure() => Err(failure),
    }
}

/// Replaces the folder by the repository class that the settings name, if any.
async fn with_custom_repository(
    repository: Repository,
    settings: &Settings,
    python: &Python,
) -> Result<Repository, CommandError> {
    let Some(class) = &settings.model_repository_implementation else { return Ok(repository) };
    let custom = PythonRepository::start(python, class, settings).await;
    let custom = custom.with_context(|| format!("cannot use the model repository `{class}`"))?;
    Ok(repository.with_custom(Arc::new(custom)))
}

/// Finds the models, and logs the warnings of their settings and the server's.
async fn discover(
    repository: &Repository,
    settings: &Settings,
    warnings: &[SettingsWarning],
    options: &StartOptions,
) -> Result<Vec<ModelSettings>, CommandError> {
    let discovery = match repository.custom() {
        _ if !settings.load_models_at_startup => Discovery::default(),
        Some(custom) => repository.read(custom.list().await?),
        None => repository.discover(),
    };
    let of_models = discovery.models.iter().flat_map(|model| &model.warnings);
    let mut reported = Vec::new();
    for warning in warnings.iter().chain(of_models) {
        let message = warning.to_string();
        if !reported.contains(&message) {
            warn!("{message}");
            reported.push(message);
        }
    }
    for problem in &discovery.errors {
        error!("{}", chain(problem));
    }
    if options.strict && !discovery.errors.is_empty() {
        return Err(anyhow!("not every model in `{}` can be read", options.folder.display()).into());
    }
    if discovery.models.is_empty() && settings.load_models_at_startup {
        let reason = if options.folder.exists() { "holds no model settings" } else { "does not exist" };
        warn!("`{}` {reason}: no model is served.", options.folder.display());
    }
    Ok(discovery.models.into_iter().map(|model| model.settings).collect())
}
