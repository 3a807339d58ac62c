//! `mlserver doctor`: finds what would fail at startup, without starting.

mod findings;
mod models;
mod security;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use super::setting_arguments::sources;
use super::start::{ServeTarget, check_kafka, python_options};
use super::{CommandError, async_runtime};
use crate::cli::OutputFormat;
use crate::cli::doctor::DoctorArgs;
#[cfg(feature = "image")]
use crate::image::docker::DockerEngine;
use crate::platform;
use crate::registry::{ModelFetcher, chain};
use crate::repository::DiscoveryError;
use crate::runtimes::python::Python;
use crate::server::{ForwardedHeaders, Port, rest};
use crate::settings::{Environment, LoadedSettings, MODEL_SETTINGS_FILE, ModelSettings, SettingSource, Settings};
use crate::telemetry::logging;
use crate::telemetry::metrics::Registry as MetricsRegistry;
use crate::ui::Ui;
use findings::{FindingLevel, Findings};

/// Runs `mlserver doctor`. Reads settings, artifacts and interpreters, and runs no model code.
///
/// # Errors
///
/// Fails if a problem would keep the server from becoming ready.
pub fn run(args: &DoctorArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let runtime = async_runtime(environment)?;
    let mut findings = Findings::default();
    let warnings = logging::collect_warnings();
    runtime.block_on(examine(args, environment, &mut findings));
    for warning in warnings.take() {
        findings.warning(warning);
    }
    match args.format {
        OutputFormat::Text => findings.print(ui)?,
        OutputFormat::Json => ui.line(format_args!("{:#}", findings.to_json()))?,
    }
    match findings.count(FindingLevel::Problem) {
        0 => Ok(()),
        1 => Err(anyhow!("found 1 problem").into()),
        count => Err(anyhow!("found {count} problems").into()),
    }
}

/// Says what the settings file of the operator sets.
fn of_operator(loaded: &LoadedSettings<Settings>, findings: &mut Findings) {
    let mut keys = Vec::new();
    let mut file = None;
    for entry in &loaded.entries {
        if let SettingSource::Operator(path) = &entry.source {
            keys.push(format!("`{}`", entry.key));
            file = Some(path);
        }
    }
    if let Some(file) = file {
        findings.ok(format_args!("`{}`, the settings file of the operator, sets {}", file.display(), keys.join(", ")));
    }
}

async fn examine(args: &DoctorArgs, environment: &dyn Environment, findings: &mut Findings) {
    let target = match ServeTarget::of_any(&args.target, environment) {
        Ok(target) => target,
        Err(failure) => return findings.problem(failure.error),
    };
    let folder = target.shown();
    let loaded = sources(&args.settings, environment)
        .and_then(|sources| Ok((Settings::load(&target.folder, &sources, false)?, sources)));
    let (loaded, sources) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return findings.problem(format_args!("settings: {}", chain(&error))),
    };
    for warning in &loaded.warnings {
        findings.warning(format_args!("settings: {warning}"));
    }
    of_operator(&loaded, findings);
    let settings = loaded.settings;
    findings.models_are_optional = !settings.load_models_at_startup;
    let place = if target.is_in_store() { "of this machine".to_owned() } else { format!("in `{folder}`") };
    findings.ok(format_args!("server settings {place} (`mlserver config show` prints them)"));
    if let Some(Err(error)) = settings.cors_settings.as_ref().map(rest::Cors::new) {
        findings.problem(format_args!("settings: {}", chain(&error)));
    }
    if let Err(error) = check_kafka(&settings) {
        findings.problem(format_args!("settings: {error}"));
    }
    security::examine(&settings, &environment.working_directory(), findings);
    ports(&settings, findings).await;
    other_executable(environment, findings);
    let repository = target.repository(sources, false);
    let mut metrics = MetricsRegistry::default();
    let python = Python::new(python_options(&settings, &repository, environment, &mut metrics));
    let mut fetcher = ModelFetcher::for_diagnosis(&settings.storage, python.variables().clone());
    let opened = target.open_store(repository, &mut fetcher, |warning| findings.warning(warning)).await;
    let repository = match opened {
        Ok(repository) => repository,
        Err(failure) => return findings.problem(failure.error),
    };
    if let Some(class) = &settings.model_repository_implementation {
        if let Err(failure) = target.check_repository_class(class) {
            return findings.problem(failure.error);
        }
        // Only the class knows the models.
        let mut model = ModelSettings::new("model repository", class);
        model.source = Some(repository.root().join(MODEL_SETTINGS_FILE));
        models::examine_class(&model, &python, findings).await;
    } else if let Some(script) = target.script() {
        models::examine_script(script, &python, findings).await;
    } else {
        let discovery = match repository.custom() {
            Some(custom) => match custom.list().await {
                Ok(listed) => repository.read(listed),
                Err(error) => return findings.problem(chain(&error)),
            },
            None => repository.discover(),
        };
        for error in &discovery.errors {
            if error.is_of_model() {
                findings.model_problem(chain(error));
            } else {
                findings.warning(chain(error));
            }
        }
        if discovery.models.is_empty() && !discovery.errors.iter().any(DiscoveryError::is_of_model) {
            let file = target.suggested_file();
            let file = file.map(|file| format!(", such as `{}`", file.display())).unwrap_or_default();
            findings.model_problem(format_args!(
                "no models found: create one with `mlserver init {folder}`, add a `{MODEL_SETTINGS_FILE}` next to your own, or pass \
                 a model file{file}"
            ));
        }
        let hidden =
            ForwardedHeaders::of(&settings.access, &settings.tls).map(ForwardedHeaders::hidden).unwrap_or_default();
        let mut examined = Vec::new();
        let last: HashMap<_, _> =
            discovery.models.iter().enumerate().map(|(index, model)| (key(model), index)).collect();
        for (index, model) in discovery.models.into_iter().enumerate() {
            if last.get(&key(&model)) != Some(&index) {
                let ignored = model.settings.source.as_deref().unwrap_or(Path::new("")).display();
                findings
                    .warning(format_args!("ignoring `{ignored}`: a later file describes the same model and version"));
                continue;
            }
            for warning in &model.warnings {
                findings.warning(format_args!("model `{}`: {warning}", model.settings.name));
            }
            let folder = repository.working_directory();
            // Large, since it may fetch the model.
            let examination = models::examine(&model.settings, folder, &python, &fetcher, &hidden, findings);
            let place = Box::pin(examination).await;
            models::changes(&model.settings, folder, place, findings);
            examined.push((place, model.settings));
        }
        models::memory(&examined, repository.working_directory(), &settings, findings);
    }
    if args.image {
        #[cfg(feature = "image")]
        engine(environment, findings).await;
        #[cfg(not(feature = "image"))]
        findings.warning(format_args!("`mlserver build` does not work: {}", super::WITHOUT_IMAGE));
    }
}

/// Looks for a Docker engine.
#[cfg(feature = "image")]
async fn engine(environment: &dyn Environment, findings: &mut Findings) {
    let variables: HashMap<String, String> = environment.variables().into_iter().collect();
    match DockerEngine::connect(&variables).await {
        Ok(_) => findings.ok("a Docker engine is available for `mlserver build`"),
        Err(error) => findings.warning(format_args!("`mlserver build` does not work: {error}")),
    }
}

/// Returns the name and the version of a model.
fn key(model: &LoadedSettings<ModelSettings>) -> (String, Option<String>) {
    (model.settings.name.clone(), model.settings.version().map(ToString::to_string))
}

/// Binds every port that the server would bind, all at once.
async fn ports(settings: &Settings, findings: &mut Findings) {
    let mut ports = vec![("HTTP", "http_port", settings.http_port), ("gRPC", "grpc_port", settings.grpc_port)];
    if let Some(port) = settings.admin_port.filter(|_| settings.repository_api) {
        ports.push(("admin", "admin_port", port));
    }
    if settings.metrics_endpoint.is_some() {
        ports.push(("metrics", "metrics_port", settings.metrics_port));
    }
    let mut bound = Vec::new();
    for (what, name, port) in ports {
        match Port::bind(what, &settings.host, port, None).await {
            Ok(listener) => {
                bound.push((port, name, listener));
                findings.ok(if port == 0 {
                    format!("any free port is used for {what}")
                } else {
                    format!("port {port} for {what} is free")
                });
            }
            Err(error) => {
                let same = bound.iter().find(|(other, ..)| *other == port).map(|(_, other, _)| *other);
                let advice = match (same, platform::port_owner(port)) {
                    (Some(other), _) => format!("`{other}` is the same port: change `{name}`"),
                    (None, Some(owner)) => {
                        format!("`{}` (process {}) uses it: stop it, or change `{name}`", owner.name, owner.id)
                    }
                    (None, None) => format!("stop the process that uses it, or change `{name}` or `host`"),
                };
                findings.problem(format_args!("{}; {advice}", chain(&error)));
            }
        }
    }
}

/// Warns if the command `mlserver` is that of Seldon's Python package.
fn other_executable(environment: &dyn Environment, findings: &mut Findings) {
    let variables = environment.variables();
    let Some((_, path)) = variables.iter().find(|(name, _)| name == "PATH") else { return };
    let found =
        path.split(':').filter(|folder| !folder.is_empty()).map(|folder| PathBuf::from(folder).join("mlserver"));
    let Some(first) = found.into_iter().find(|path| path.is_file()) else { return };
    // Scripts that pip makes are short, and import what they run.
    let is_script = first.metadata().is_ok_and(|metadata| metadata.len() < 4096);
    if is_script && std::fs::read_to_string(&first).is_ok_and(|text| text.contains("from mlserver.cli import")) {
        let shown = first.display();
        findings.warning(format_args!(
            "the command `mlserver` is `{shown}`, a script of Seldon's Python package: uninstall it, or put this server first in PATH"
        ));
    }
}
