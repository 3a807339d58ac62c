//! `mlserver doctor`: what would go wrong at start, found without starting.

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
use crate::settings::{Environment, ModelSettings, Settings, Sources};
use crate::telemetry::metrics::Registry as MetricsRegistry;
use crate::ui::Ui;

/// What has been found so far.
struct Findings<'a> {
    ui: &'a mut Ui,
    problems: usize,
}

impl Findings<'_> {
    fn good(&mut self, what: impl Display) -> io::Result<()> {
        self.ui.line(format_args!("ok       {what}"))
    }

    /// Something that does not stop the server.
    fn odd(&mut self, what: impl Display) -> io::Result<()> {
        self.ui.line(format_args!("warning  {what}"))
    }

    fn bad(&mut self, what: impl Display) -> io::Result<()> {
        self.problems += 1;
        self.ui.line(format_args!("problem  {what}"))
    }
}

/// Runs `mlserver doctor`. Reads settings, artifacts and interpreters; no code of models is run.
///
/// # Errors
///
/// Fails when something is found that would keep the server from starting, or a model from loading.
pub fn run(args: &DoctorArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let mut findings = Findings { ui, problems: 0 };
    runtime.block_on(examine(args, environment, &mut findings))?;
    match findings.problems {
        0 => Ok(()),
        1 => Err(anyhow!("there is a problem").into()),
        count => Err(anyhow!("there are {count} problems").into()),
    }
}

async fn examine(args: &DoctorArgs, environment: &dyn Environment, findings: &mut Findings<'_>) -> io::Result<()> {
    let folder = args.folder.display();
    if !args.folder.is_dir() {
        return findings.bad(format_args!("`{folder}` is not a folder: name the one with the models"));
    }
    let loaded =
        Sources::read(environment).and_then(|sources| Ok((Settings::load(&args.folder, &sources, false)?, sources)));
    let (loaded, sources) = match loaded {
        Ok(loaded) => loaded,
        Err(error) => return findings.bad(format_args!("settings: {}", chain(&error))),
    };
    for warning in &loaded.warnings {
        findings.odd(format_args!("settings: {warning}"))?;
    }
    let settings = loaded.settings;
    findings.good(format_args!("settings of the server in `{folder}`; `mlserver config show` prints them"))?;
    ports(&settings, findings).await?;
    let repository = Repository::new(&args.folder, sources, false);
    let discovery = repository.discover();
    for error in &discovery.errors {
        findings.bad(chain(error))?;
    }
    if discovery.models.is_empty() && discovery.errors.is_empty() && settings.model_repository_implementation.is_none()
    {
        findings.odd(format_args!(
            "no model: `mlserver init {folder}` makes one, or put a `model-settings.json` beside yours"
        ))?;
    }
    let python = Python::new(python_options(&settings, &repository, &mut MetricsRegistry::default()));
    for model in &discovery.models {
        for warning in &model.warnings {
            findings.odd(format_args!("model `{}`: {warning}", model.settings.name))?;
        }
        examine_model(&model.settings, &repository, &python, findings).await?;
    }
    let variables: HashMap<String, String> = environment.variables().into_iter().collect();
    match DockerEngine::connect(&variables).await {
        Ok(_) => findings.good("a Docker engine answers, for `mlserver build`"),
        Err(error) => findings.odd(format_args!("`mlserver build` cannot work: {error}")),
    }
}

async fn ports(settings: &Settings, findings: &mut Findings<'_>) -> io::Result<()> {
    let mut ports = vec![("HTTP", "http_port", settings.http_port), ("gRPC", "grpc_port", settings.grpc_port)];
    if settings.metrics_endpoint.is_some() {
        ports.push(("metrics", "metrics_port", settings.metrics_port));
    }
    for (what, name, port) in ports {
        match bind(what, &settings.host, port).await {
            Ok(_) => findings.good(format_args!("port {port} for {what} is free"))?,
            Err(error) => findings.bad(format_args!("{}; end who has it, or set `{name}`", chain(&error)))?,
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
        Ok(None) => return findings.good(format_args!("model `{name}` is evaluated by the server")),
        Ok(Some(why)) => why,
        Err(error) => return findings.bad(chain(&error)),
    };
    match python.interpreter(model).await {
        Ok(path) => findings.good(format_args!("{why}, with `{}`", path.display())),
        Err(error) => findings.bad(format_args!("{why}: {}", chain(&error))),
    }
}
