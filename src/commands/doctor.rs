//! `mlserver doctor`: finds what would fail at startup, without starting.

use std::collections::HashMap;
use std::fmt::Display;
use std::io;

use anyhow::{Context, anyhow};

use super::CommandError;
use super::start::python_options;
use crate::cli::doctor::DoctorArgs;
use crate::image::{DockerEngine, PythonReason};
use crate::registry::chain;
use crate::repository::Repository;
use crate::runtimes::python::Python;
use crate::server::bind;
use crate::settings::{Environment, ModelSettings, Settings, SettingsSources};
use crate::telemetry::metrics::Registry as MetricsRegistry;
use crate::ui::Ui;

/// Prints findings and counts the problems.
struct Findings<'a> {
    ui: &'a mut Ui,
    problems: usize,
}

impl Findings<'_> {
    fn ok(&mut self, what: impl Display) -> io::Result<()> {
        self.ui.line(format_args!("ok       {what}"))
    }

    /// Reports something that does not stop the server.
    fn warning(&mut self, what: impl Display) -> io::Result<()> {
        self.ui.line(format_args!("warning  {what}"))
    }

    fn problem(&mut self, what: impl Display) -> io::Result<()> {
        self.problems += 1;
        self.ui.line(format_args!("problem  {what}"))
    }
}

/// Runs `mlserver doctor`. Reads settings, artifacts and interpreters, and runs no model code.
///
/// # Errors
///
/// Fails if a problem would keep the server from starting or a model from loading.
pub fn run(args: &DoctorArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let mut findings = Findings { ui, problems: 0 };
    runtime.block_on(examine(args, environment, &mut findings))?;
    match findings.problems {
        0 => Ok(()),
        1 => Err(anyhow!("found 1 problem").into()),
        count => Err(anyhow!("found {count} problems").into()),
    }
}

async fn examine(args: &DoctorArgs, environment: &dyn Environment, findings: &mut Findings<'_>) -> io::Result<()> {
    let folder = args.folder.display();
    if !args.folder.is_dir() {
        return findings.problem(format_args!("`{folder}` is not a folder: pass the folder with the models"));
    }
    let loaded = SettingsSources::read(environment)
        .and_then(|sources| Ok((Settings::load(&args.folder, &sources, false)?, sources)));
    let (loaded, sources) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return findings.problem(format_args!("settings: {}", chain(&error))),
    };
    for warning in &loaded.warnings {
        findings.warning(format_args!("settings: {warning}"))?;
    }
    let settings = loaded.settings;
    findings.ok(format_args!("server settings in `{folder}` (`mlserver config show` prints them)"))?;
    ports(&settings, findings).await?;
    let repository = Repository::new(&args.folder, sources, false);
    let discovery = repository.discover();
    for error in &discovery.errors {
        findings.problem(chain(error))?;
    }
    if discovery.models.is_empty() && discovery.errors.is_empty() && settings.model_repository_implementation.is_none()
    {
        findings.warning(format_args!(
            "no models found: create one with `mlserver init {folder}`, or add a `model-settings.json` next to your own"
        ))?;
    }
    let python = Python::new(python_options(&settings, &repository, environment, &mut MetricsRegistry::default()));
    for model in &discovery.models {
        for warning in &model.warnings {
            findings.warning(format_args!("model `{}`: {warning}", model.settings.name))?;
        }
        examine_model(&model.settings, &repository, &python, findings).await?;
    }
    let variables: HashMap<String, String> = environment.variables().into_iter().collect();
    match DockerEngine::connect(&variables).await {
        Ok(_) => findings.ok("a Docker engine is available for `mlserver build`"),
        Err(error) => findings.warning(format_args!("`mlserver build` does not work: {error}")),
    }
}

async fn ports(settings: &Settings, findings: &mut Findings<'_>) -> io::Result<()> {
    let mut ports = vec![("HTTP", "http_port", settings.http_port), ("gRPC", "grpc_port", settings.grpc_port)];
    if settings.metrics_endpoint.is_some() {
        ports.push(("metrics", "metrics_port", settings.metrics_port));
    }
    for (what, name, port) in ports {
        match bind(what, &settings.host, port).await {
            Ok(_) => findings.ok(format_args!("port {port} for {what} is free"))?,
            Err(error) => {
                findings.problem(format_args!("{}; stop the process using it, or change `{name}`", chain(&error)))?;
            }
        }
    }
    Ok(())
}

async fn examine_model(
    model: &ModelSettings,
    repository: &Repository,
    python: &Python,
    findings: &mut Findings<'_>,
) -> io::Result<()> {
    let name = &model.name;
    let why = match PythonReason::of(model, repository.working_directory()) {
        Ok(None) => return findings.ok(format_args!("model `{name}` is native")),
        Ok(Some(why)) => why,
        Err(error) => return findings.problem(chain(&error)),
    };
    match python.interpreter(model).await {
        Ok(path) => findings.ok(format_args!("{why}, with `{}`", path.display())),
        Err(error) => findings.problem(format_args!("{why}: {}", chain(&error))),
    }
}
