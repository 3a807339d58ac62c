//! `mlserver start`: serve the models of a folder until a signal.

mod assembly;
mod descriptors;
mod hangup;
mod kafka;
mod orphans;
mod parts;
mod port_file;
mod script;
mod shutdown;
mod target;
mod welcome;

use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tracing::level_filters::LevelFilter;
use tracing::{error, info, warn};

use super::custom_repository::PythonRepository;
use super::setting_arguments::sources;
use super::{CommandError, FAILURE, USAGE, async_runtime, shell_quoted};
use crate::admin::Poller;
use crate::cli::is_script;
use crate::cli::start::StartArgs;
use crate::registry::{ModelFetcher, chain};
use crate::repository::{Discovery, DiscoveryError, Repository};
use crate::runtimes::python::Python;
use crate::settings::{
    CloudEventVariables, Environment, LoadedSettings, LogLevel, MODEL_SETTINGS_FILE, ModelSettings, Settings,
    SettingsSources, SettingsWarning, openai_route_prefix,
};
use crate::shutdown::{Signals, spawn_supervised, task_failure};
use crate::telemetry::logging::{self, LogFormat};
use crate::telemetry::metrics::Registry as MetricsRegistry;
use crate::types::without_credentials;
pub(super) use assembly::python_options;
use hangup::Hangups;
pub(super) use kafka::check as check_kafka;
pub(super) use orphans::Orphans;
use port_file::PortFile;
use script::Script;
use shutdown::{ShutdownLimits, shut_down};
pub(super) use target::ServeTarget;
use welcome::{ExampleModel, welcome};

/// What is served, and how.
struct StartOptions {
    target: ServeTarget,
    strict: bool,
    allow_empty: bool,
    port_file: Option<PortFile>,
}

/// Runs `mlserver start`.
pub fn run(args: &StartArgs, environment: &dyn Environment) -> Result<(), CommandError> {
    let target = target(args, environment)?;
    let sources = sources(&args.settings, environment)?.with_model_name(args.model_name.as_deref());
    let target = target.with_model_name(&sources);
    let loaded = Settings::load(&target.folder, &sources, args.strict)?;
    kafka::check(&loaded.settings)?;
    let port_file = args.port_file.as_deref().map(PortFile::create).transpose()?;
    let _log = logging::start(log_format(&loaded.settings));
    let runtime = async_runtime(environment)?;
    let outcome = runtime.block_on(async {
        let hangups = Hangups::listen().context("cannot listen for signals")?;
        let _orphans = Orphans::adopt();
        let repository = target.repository(sources.clone(), args.strict);
        let (loaded, repository) = match &target.script {
            Some(script) => with_script(script, loaded, repository, sources, args.strict, environment).await?,
            None => (loaded, repository),
        };
        let options = StartOptions { target, strict: args.strict, allow_empty: args.allow_empty, port_file };
        Box::pin(serve(loaded, repository, options, hangups, environment)).await
    });
    // The callers of computations that are still running have been dropped.
    runtime.shutdown_background();
    outcome
}

/// Returns the target of the command line.
fn target(args: &StartArgs, environment: &dyn Environment) -> Result<ServeTarget, CommandError> {
    let usage = |error: anyhow::Error| CommandError { error, code: USAGE };
    match &args.target {
        Some(path)
            if is_script(path.as_os_str()) && !path.is_dir() && target::store_uri(path, environment).is_none() =>
        {
            if args.model_name.is_some() {
                let shown = path.display();
                return Err(usage(anyhow!(
                    "`--model-name` has no effect on a script; pass options of `{shown}` after `--`"
                )));
            }
            ServeTarget::of_script(path, args.script_arguments.clone(), environment)
        }
        path if !args.script_arguments.is_empty() => {
            let shown = path.as_deref().map(|path| without_credentials(&path.to_string_lossy()));
            let shown = shown.map(|path| format!(", and `{path}` is not a script")).unwrap_or_default();
            Err(usage(anyhow!("arguments after `--` are those of a script{shown}")))
        }
        path => ServeTarget::new(path.as_deref(), environment),
    }
}

/// Runs a script to find its models. Returns its settings, below those of all other sources, and a repository of its models.
async fn with_script(
    script: &Script,
    loaded: LoadedSettings<Settings>,
    repository: Repository,
    sources: SettingsSources,
    strict: bool,
    environment: &dyn Environment,
) -> Result<(LoadedSettings<Settings>, Repository), CommandError> {
    let python = python_options(&loaded.settings, &repository, environment, &mut MetricsRegistry::default());
    let (models, settings) = script.describe(&Python::new(python)).await?;
    let sources = sources.with_script(&script.path, settings);
    let loaded = Settings::load(&loaded.settings.model_repository_root, &sources, strict)?;
    Ok((loaded, repository.with_custom(Arc::new(models))))
}

fn log_format(settings: &Settings) -> LogFormat {
    let level = match settings.effective_log_level() {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    };
    LogFormat { structured: settings.use_structured_logging, level }
}

async fn serve(
    loaded: LoadedSettings<Settings>,
    repository: Repository,
    options: StartOptions,
    mut hangups: Hangups,
    environment: &dyn Environment,
) -> Result<(), CommandError> {
    let LoadedSettings { mut settings, warnings, .. } = loaded;
    let openai_prefix = openai_route_prefix(settings.openai_route_prefix.as_deref(), environment);
    settings.openai_route_prefix = Some(openai_prefix);
    let mut metrics = MetricsRegistry::default();
    let python = Python::new(python_options(&settings, &repository, environment, &mut metrics));
    let mut fetcher = ModelFetcher::new(&settings.storage, python.variables().clone()).with_metrics(&mut metrics);
    let repository = options.target.open_store(repository, &mut fetcher, |warning| warn!("{warning}")).await?;
    let repository = with_custom_repository(repository, &settings, &options.target, &python).await?;
    let StartupModels { models, unreadable } = discover(&repository, &settings, &warnings, &options).await?;
    let mut signals = Signals::listen().context("cannot listen for signals")?;
    let limits = ShutdownLimits::of(&settings);
    let events = CloudEventVariables::read(environment);
    let server = assembly::start(&settings, &models, repository, python, fetcher.clone(), events, metrics).await?;

    let (readable, unreadable_count) = (models.len(), unreadable.len());
    for UnreadableModel { settings, reason } in unreadable {
        server.admin.list_failed(&settings, reason);
    }
    if let Some(every) = settings.repository_poll_interval {
        // What changes while models load is noticed, too.
        let poller = Poller::new(server.admin.clone(), settings.load_models_at_startup).await;
        spawn_supervised("polls of the repository", poller.run(every));
    }
    let examples: Vec<_> = models.iter().filter_map(ExampleModel::of).collect();
    let loading = server.admin.load_at_start(models);
    let reason = tokio::select! {
        failed = loading => {
            fetcher.end_start();
            let others = readable > failed;
            let failed = failed + unreadable_count;
            if failed > 0 {
                error!("Some of the models failed to load during startup!");
                if settings.exit_on_load_failure {
                    let limits = ShutdownLimits { delay: Duration::ZERO, ..limits };
                    shut_down(server, limits, &mut signals).await?;
                    let advice = if others { "; `exit_on_load_failure` false serves the others" } else { "" };
                    let error = anyhow!("{}{advice}", failed_models(failed));
                    return Err(CommandError { error, code: FAILURE });
                }
            }
            if let Some(file) = options.port_file
                && let Err(failure) = file.publish(&server.addresses)
            {
                shut_down(server, ShutdownLimits { delay: Duration::ZERO, ..limits }, &mut signals).await?;
                return Err(failure);
            }
            if io::stdout().is_terminal()
                && let example = examples.iter().find(|model| model.is_native(&server.inference))
                && let Some(line) = welcome(&server.addresses, &settings, example)
            {
                info!("{line}");
            }
            stop_reason(&mut signals, &mut hangups).await
        }
        reason = stop_reason(&mut signals, &mut hangups) => reason,
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
async fn stop_reason(signals: &mut Signals, hangups: &mut Hangups) -> Result<&'static str, String> {
    tokio::select! {
        signal = signals.next() => Ok(signal),
        () = hangups.terminal_gone() => Ok("SIGHUP, and the terminal is gone"),
        failure = task_failure() => Err(failure),
    }
}

/// Replaces the folder by the repository class that the settings name, if any.
async fn with_custom_repository(
    repository: Repository,
    settings: &Settings,
    target: &ServeTarget,
    python: &Python,
) -> Result<Repository, CommandError> {
    let Some(class) = &settings.model_repository_implementation else { return Ok(repository) };
    target.check_repository_class(class)?;
    let custom = PythonRepository::start(python, class, settings).await;
    let custom = custom.with_context(|| format!("cannot use the model repository `{class}`"))?;
    Ok(repository.with_custom(Arc::new(custom)))
}

/// The models that the server starts with.
struct StartupModels {
    models: Vec<ModelSettings>,
    unreadable: Vec<UnreadableModel>,
}

/// A model whose settings cannot be read: a failed load, under the name of its folder.
struct UnreadableModel {
    settings: ModelSettings,
    reason: String,
}

impl UnreadableModel {
    /// Returns the model that an error concerns, or `None` if it concerns none: a folder that cannot be searched may hold no model.
    fn of(error: &DiscoveryError) -> Option<Self> {
        let (name, source) = match error {
            DiscoveryError::Settings { path, .. } => {
                let folder = path.parent().and_then(Path::file_name)?;
                (folder.to_string_lossy().into_owned(), Some(path.clone()))
            }
            DiscoveryError::Listed { name, .. } => (name.clone(), None),
            DiscoveryError::Environment { .. } => ("environment".to_owned(), None),
            _ => return None,
        };
        let settings = ModelSettings { source, ..ModelSettings::new(&name, "") };
        Some(Self { settings, reason: chain(error) })
    }
}

fn failed_models(count: usize) -> String {
    if count == 1 { "1 model failed to load".to_owned() } else { format!("{count} models failed to load") }
}

/// Finds the models, and logs the warnings of their settings and the server's.
async fn discover(
    repository: &Repository,
    settings: &Settings,
    warnings: &[SettingsWarning],
    options: &StartOptions,
) -> Result<StartupModels, CommandError> {
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
    let mut discovery = discovery;
    let ambiguous = discovery.errors.iter().position(|problem| matches!(problem, DiscoveryError::Unconfigured(_)));
    if let Some(index) = ambiguous.filter(|_| !options.allow_empty) {
        return Err(discovery.errors.swap_remove(index).into());
    }
    for problem in &discovery.errors {
        error!("{}", chain(problem));
    }
    let folder = options.target.shown();
    if options.strict && !discovery.errors.is_empty() {
        return Err(anyhow!("not every model in `{folder}` can be read").into());
    }
    let unreadable: Vec<_> = discovery.errors.iter().filter_map(UnreadableModel::of).collect();
    // A custom repository may be filled later.
    let required = settings.load_models_at_startup && settings.model_repository_implementation.is_none();
    if discovery.models.is_empty() && unreadable.is_empty() && required {
        if !options.allow_empty {
            let file = options.target.suggested_file();
            let file = file.map(|file| {
                format!("`mlserver start {}` serves a model file; ", shell_quoted(&file.to_string_lossy()))
            });
            return Err(anyhow!(
                "no model found in `{folder}`: each model needs a folder with `{MODEL_SETTINGS_FILE}` (`mlserver init` creates one); \
                 {}`--allow-empty` starts without models",
                file.unwrap_or_default()
            )
            .into());
        }
        warn!("`{folder}` contains no model settings: no model is served.");
    }
    if let Some(file) = &options.target.file {
        info!("{}", file.description());
    }
    Ok(StartupModels { models: discovery.models.into_iter().map(|model| model.settings).collect(), unreadable })
}
