//! `mlserver config show`: prints the effective settings, as the server would read them at startup.

use std::collections::HashSet;
use std::fmt;

use anyhow::anyhow;
use serde_json::{Value, json};

use crate::cli::OutputFormat;
use crate::cli::config::ShowArgs;
use crate::registry::ModelFetcher;
use crate::repository::Discovery;
use crate::settings::{Environment, LoadedSettings, ModelSettings, SettingEntry, Settings};
use crate::telemetry::logging;
use crate::ui::Ui;

use crate::commands::setting_arguments::sources;
use crate::commands::start::ServeTarget;
use crate::commands::{CommandError, async_runtime};

/// Prints the settings on standard output, and their problems on standard error.
///
/// A model that cannot be read is reported as an error, but fails the command only in strict mode.
pub(super) fn run(args: &ShowArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let target = ServeTarget::of_folder(&args.folder, environment)?;
    let sources = sources(&args.settings, environment)?;
    let server = Settings::load(&target.folder, &sources, args.strict)?;
    let repository = target.repository(sources, args.strict);
    let repository = if target.is_in_store() {
        let variables = environment.variables().into_iter().collect();
        let mut fetcher = ModelFetcher::for_diagnosis(&server.settings.storage, variables);
        let warnings = logging::collect_warnings();
        let opened = target.open_store(repository, &mut fetcher, |warning| ui.warning(warning));
        let opened = async_runtime(environment)?.block_on(opened);
        for warning in warnings.take() {
            ui.warning(warning);
        }
        opened?
    } else {
        repository
    };
    let mut discovery = repository.discover();
    target.show_uris(&mut discovery);
    report(&server, &discovery, ui);
    match args.format {
        OutputFormat::Text => text(&server, &discovery, ui)?,
        OutputFormat::Json => ui.line(format_args!("{:#}", to_json(&server, &discovery)))?,
    }
    match discovery.errors.len() {
        1.. if args.strict => Err(anyhow!("not every model in `{}` can be read", args.folder.display()).into()),
        _ => Ok(()),
    }
}

/// Reports each warning once: an environment variable applies to every model, and so does its warning.
fn report(server: &LoadedSettings<Settings>, discovery: &Discovery, ui: &mut Ui) {
    let of_models = discovery.models.iter().flat_map(|model| &model.warnings);
    let mut reported = HashSet::new();
    for warning in server.warnings.iter().chain(of_models) {
        let message = warning.to_string();
        if !reported.contains(&message) {
            ui.warning(&message);
            reported.insert(message);
        }
    }
    for error in &discovery.errors {
        ui.problem(error);
    }
}

fn text(server: &LoadedSettings<Settings>, discovery: &Discovery, ui: &mut Ui) -> std::io::Result<()> {
    ui.line("server")?;
    entries(&server.entries, ui)?;
    for model in &discovery.models {
        ui.line(format_args!("\n{}", ModelTitle(&model.settings)))?;
        entries(&model.entries, ui)?;
    }
    Ok(())
}

/// Prints a line per value, with the sources aligned.
fn entries(entries: &[SettingEntry], ui: &mut Ui) -> std::io::Result<()> {
    /// The source of a longer value is not aligned.
    const WIDEST: usize = 48;
    let lines: Vec<String> = entries.iter().map(|entry| format!("{} = {}", entry.key, entry.value)).collect();
    let lengths = lines.iter().map(|line| line.chars().count());
    let width = lengths.filter(|length| *length <= WIDEST).max().unwrap_or(0);
    for (line, entry) in lines.iter().zip(entries) {
        ui.line(format_args!("  {line:width$}  ({})", entry.source))?;
    }
    Ok(())
}

/// Displays a model's name, version and settings file.
struct ModelTitle<'a>(&'a ModelSettings);

impl fmt::Display for ModelTitle<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model `{}`", self.0.name)?;
        if let Some(version) = self.0.version() {
            write!(f, " version `{version}`")?;
        }
        match &self.0.source {
            Some(path) => write!(f, " in {}", path.display()),
            None => f.write_str(" from the environment"),
        }
    }
}

fn to_json(server: &LoadedSettings<Settings>, discovery: &Discovery) -> Value {
    let models: Vec<Value> = discovery.models.iter().map(model_to_json).collect();
    let errors: Vec<String> = discovery.errors.iter().map(ToString::to_string).collect();
    json!({
        "server": {"settings": entries_to_json(&server.entries), "warnings": messages(&server.warnings)},
        "models": models,
        "errors": errors,
    })
}

fn model_to_json(model: &LoadedSettings<ModelSettings>) -> Value {
    json!({
        "name": model.settings.name,
        "version": model.settings.version(),
        "file": model.settings.source.as_ref().map(|path| path.to_string_lossy()),
        "settings": entries_to_json(&model.entries),
        "warnings": messages(&model.warnings),
    })
}

fn entries_to_json(entries: &[SettingEntry]) -> Value {
    let fields = entries.iter().map(|entry| {
        let shown = json!({"value": entry.value, "source": entry.source.to_json()});
        (entry.key.clone(), shown)
    });
    Value::Object(fields.collect())
}

fn messages(warnings: &[impl ToString]) -> Vec<String> {
    warnings.iter().map(ToString::to_string).collect()
}
