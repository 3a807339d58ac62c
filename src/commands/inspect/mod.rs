//! `mlserver inspect`: shows what a model file contains, without executing it.

mod example;

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde_json::{Value, json};

use super::{CommandError, async_runtime};
use crate::cli::OutputFormat;
use crate::cli::inspect::InspectArgs;
use crate::families::{ModelFamily, NativeEvaluator};
use crate::registry::{FetchedModel, ModelFetcher, chain};
use crate::repository::{Artifact, check_on_disk};
use crate::runtimes::FileDescription;
use crate::settings::{Environment, MODEL_SETTINGS_FILE, ModelSettings, Settings, SettingsSources};
use crate::telemetry::logging;
use crate::types::{TensorMetadata, without_credentials};
use crate::ui::{Highlight, Ui};
pub(super) use example::{AnsweredExample, NoExample, answer};

/// The file that makes a folder an MLflow model.
const MLMODEL: &str = "MLmodel";

/// A model on disk.
pub(super) struct InspectedModel {
    pub(super) name: String,
    pub(super) family: &'static ModelFamily,
    /// The file, or the folder of an MLflow model, as an absolute path.
    pub(super) artifact: PathBuf,
}

/// Runs `mlserver inspect`.
pub fn run(args: &InspectArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let fetched = fetched(&args.path, environment, ui)?;
    let path = fetched.as_ref().map_or(&args.path, |model| &model.path);
    let model = InspectedModel::find(path, environment)?;
    if model.family.native.is_none() {
        return Err(anyhow!(
            "cannot inspect `{}`: files of {} are read by Python only, in `{}`",
            args.path.display(),
            model.family.title,
            model.family.implementations[0]
        )
        .into());
    }
    let description =
        FileDescription::read(model.family, &model.artifact).map_err(|error| anyhow!("{}", chain(&error)))?;
    let answered = match description.not_native {
        Some(_) => Err(NoExample::NotTried),
        None => answer(model.family, &model.artifact, &description.examples)?,
    };
    if args.example {
        let shown = args.path.display();
        let why = description.not_native.as_deref().map(|reason| format!("the model is not served natively: {reason}"));
        let answered = answered
            .map_err(|error| anyhow!("no example for `{shown}`: {}", why.unwrap_or_else(|| error.to_string())))?;
        return Ok(ui.line(answered.request)?);
    }
    match args.format {
        OutputFormat::Text => print(&model, &description, answered.as_ref(), ui)?,
        OutputFormat::Json => ui.line(format_args!("{:#}", to_json(&model, &description, answered.as_ref().ok())))?,
    }
    Ok(())
}

/// Fetches a model into the cache, if the path is the URI of an object store.
fn fetched(path: &Path, environment: &dyn Environment, ui: &mut Ui) -> Result<Option<FetchedModel>, CommandError> {
    let Some(uri) = path.to_str() else { return Ok(None) };
    let settings = Settings::load(Path::new("."), &SettingsSources::read(environment)?, false)?.settings;
    let fetcher = ModelFetcher::for_diagnosis(&settings.storage, environment.variables().into_iter().collect());
    if !fetcher.is_store(uri) {
        return Ok(None);
    }
    let warnings = logging::collect_warnings();
    let model = async_runtime(environment)?.block_on(fetcher.fetch(uri, None));
    for warning in warnings.take() {
        ui.warning(warning);
    }
    Ok(Some(model.map_err(|error| anyhow!("{}", chain(&error)))?))
}

impl InspectedModel {
    /// Finds the model of a file, of a folder that MLflow wrote, or of a folder with settings.
    ///
    /// # Errors
    ///
    /// Fails if there is none.
    pub(super) fn find(path: &Path, environment: &dyn Environment) -> Result<Self, CommandError> {
        let absolute: PathBuf = environment.working_directory().join(path).components().collect();
        let settings = absolute.join(MODEL_SETTINGS_FILE);
        if absolute.is_dir() && !absolute.join(MLMODEL).is_file() && settings.is_file() {
            return Self::of_settings(&settings, environment);
        }
        let mlmodel = if absolute.is_dir() { absolute.join(MLMODEL) } else { absolute.clone() };
        if !mlmodel.exists() && absolute.is_dir() {
            return Err(anyhow!(
                "`{}` is a folder without `{MLMODEL}` or `{MODEL_SETTINGS_FILE}`: pass a model file, or the folder of one model",
                path.display()
            )
            .into());
        }
        check_on_disk(&mlmodel)?;
        let family =
            ModelFamily::of_file(&mlmodel).map_err(|error| anyhow!("cannot inspect `{}`: {error}", path.display()))?;
        let is_folder = mlmodel.file_name().is_some_and(|name| name == MLMODEL);
        let artifact = if is_folder { mlmodel.parent().map(Path::to_owned).unwrap_or(mlmodel) } else { mlmodel };
        let name = if is_folder { artifact.file_name() } else { artifact.file_stem() };
        let name = name.map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned());
        Ok(Self { name, family, artifact })
    }

    /// Finds the artifact of a model with settings.
    fn of_settings(settings: &Path, environment: &dyn Environment) -> Result<Self, CommandError> {
        let sources = SettingsSources::read(environment)?;
        let model = ModelSettings::load(settings, &sources, false)?.settings;
        let family = ModelFamily::of(&model.implementation)
            .filter(|family| family.native.is_none_or(NativeEvaluator::needs_artifact));
        let family = family.ok_or_else(|| {
            let (folder, implementation) = (settings.parent().unwrap_or(settings).display(), &model.implementation);
            anyhow!(
                "cannot inspect `{folder}`: its implementation `{implementation}` is not the runtime of a model file; `mlserver \
                 doctor {folder}` checks it"
            )
        })?;
        let artifact =
            match Artifact::resolve(&model, sources.working_directory()).context("cannot find the model file")? {
                Artifact::Path(path) => check_on_disk(&path).map(|()| path)?,
                Artifact::Remote(uri) => {
                    let uri = without_credentials(&uri);
                    return Err(anyhow!("the model file `{uri}` is not on this machine").into());
                }
            };
        Ok(Self { name: model.name, family, artifact })
    }
}

fn print(
    model: &InspectedModel,
    description: &FileDescription,
    answered: Result<&AnsweredExample, &NoExample>,
    ui: &mut Ui,
) -> std::io::Result<()> {
    let title = |text: &str| Highlight::Strong.paint(text.to_owned());
    ui.line(description.title.trim_end())?;
    if let Some(version) = &description.version {
        ui.line(format_args!("{} {version}", title("written by:")))?;
    }
    if let Some(reason) = &description.not_native {
        return ui.line(format_args!("{} no, {reason}", title("served natively:")));
    }
    if !description.outputs.is_empty() {
        ui.line(format_args!("{} {}", title("outputs:"), description.outputs.join(", ")))?;
    }
    ui.line(format_args!("{} yes", title("served natively:")))?;
    let answered = match answered {
        Ok(answered) => answered,
        Err(reason) => {
            tensors("inputs:", &description.inputs, ui)?;
            return ui.line(format_args!("no example: {reason}"));
        }
    };
    if let Some(bytes) = answered.memory {
        ui.line(format_args!("{} about {} KiB", title("memory:"), bytes.div_ceil(1 << 10)))?;
    }
    let inputs = if description.inputs.is_empty() { &answered.inputs } else { &description.inputs };
    tensors("inputs:", inputs, ui)?;
    if !description.columns.is_empty() {
        ui.line(format_args!("  with the columns {}", shortened(&description.columns)))?;
    }
    if !description.unread_columns.is_empty() {
        ui.line(format_args!("  of which a data frame may lack {}", shortened(&description.unread_columns)))?;
    }
    tensors("outputs of the example:", &answered.outputs, ui)?;
    ui.line(title("example:"))?;
    let (name, request) =
        (crate::commands::shell_quoted(&format!("localhost:8080/v2/models/{}/infer", model.name)), &answered.request);
    let request = crate::commands::shell_quoted(&request.to_string());
    ui.line(format_args!("  curl {name} -H 'Content-Type: application/json' -d {request}"))
}

/// Prints tensors, a line each.
fn tensors(title: &str, tensors: &[TensorMetadata], ui: &mut Ui) -> std::io::Result<()> {
    ui.line(Highlight::Strong.paint(title))?;
    for tensor in tensors.iter().take(SHOWN) {
        ui.line(format_args!("  {} {} {:?}", tensor.name, tensor.datatype, tensor.shape))?;
    }
    match tensors.len().saturating_sub(SHOWN) {
        0 => Ok(()),
        more => ui.line(format_args!("  and {more} more")),
    }
}

/// The most tensors and columns that are printed as text.
const SHOWN: usize = 50;

fn shortened(names: &[String]) -> String {
    let text = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

fn to_json(model: &InspectedModel, description: &FileDescription, answered: Option<&AnsweredExample>) -> Value {
    json!({
        "name": model.name,
        "family": model.family.title,
        "implementation": model.family.implementations[0],
        "title": description.title.lines().next(),
        "written_by": description.version,
        "native": description.not_native.is_none(),
        "not_native_because": description.not_native,
        "inputs": answered.filter(|_| description.inputs.is_empty()).map_or(&description.inputs, |answered| &answered.inputs),
        "columns": description.columns,
        "unread_columns": description.unread_columns,
        "outputs": description.outputs,
        "memory_bytes": answered.and_then(|answered| answered.memory),
        "example": answered.map(|answered| &answered.request),
        "example_outputs": answered.map(|answered| &answered.outputs),
    })
}
