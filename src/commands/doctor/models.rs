//! What keeps models from loading, and how much memory they need.

use std::path::Path;

use super::findings::Findings;
use crate::families::ModelFamily;
use crate::image::PythonReason;
use crate::inference::BatchOptions;
use crate::platform;
use crate::registry::{Availability, ModelFetcher, RemoteModel, artifact_size, chain};
use crate::repository::Artifact;
use crate::runtimes::FileDescription;
use crate::runtimes::python::{Python, SCRIPT_IMPLEMENTATION, StaticFindingLevel};
use crate::settings::{ModelSettings, Settings};

/// Where a model runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModelPlace {
    Server,
    Workers,
    /// It cannot be loaded.
    Nowhere,
}

/// Examines a model as the server would load it, without running its code.
pub(super) async fn examine(
    model: &ModelSettings,
    folder: &Path,
    python: &Python,
    fetcher: &ModelFetcher,
    hidden_headers: &[&str],
    findings: &mut Findings,
) -> ModelPlace {
    let name = &model.name;
    let family = ModelFamily::of(&model.implementation);
    let is_remote = match fetcher.look(model).await {
        Ok(None) => false,
        Ok(Some(RemoteModel { uri, files, bytes, availability })) => match availability {
            Availability::Store { credentials } => {
                findings.ok(format_args!(
                    "model `{name}` is fetched from `{uri}` when it is loaded: {files} files, {bytes} bytes, with {credentials}"
                ));
                true
            }
            // Only a start uses the cache without its store.
            Availability::Cache { outage } if findings.models_are_optional => {
                findings.model_problem(format_args!("model `{name}`: {outage}"));
                return ModelPlace::Nowhere;
            }
            Availability::Cache { outage } => {
                findings.warning(format_args!(
                    "model `{name}`: {outage}; a start uses the last fetch in the cache, {files} files, {bytes} bytes (`storage_offline`)"
                ));
                true
            }
        },
        Err(error) => {
            findings.model_problem(format_args!("model `{name}`: {}", chain(&error)));
            return ModelPlace::Nowhere;
        }
    };
    if is_remote && family.is_some_and(|family| family.native.is_some()) {
        return ModelPlace::Server;
    }
    // The code of users is checked, and is fetched for that.
    let localized = match fetcher.localize(model.clone(), None) {
        fetch if is_remote && family.is_none() => match fetch.await {
            Ok(found) => Some(found),
            Err(error) => {
                findings.model_problem(format_args!("model `{name}`: {}", chain(&error)));
                return ModelPlace::Nowhere;
            }
        },
        _ => None,
    };
    let model = localized.as_ref().map_or(model, |found| &found.0);
    let why = match PythonReason::of(model, folder) {
        Ok(None) => {
            findings.ok(format_args!("model `{name}` is native"));
            return ModelPlace::Server;
        }
        Ok(Some(why)) => why,
        Err(error) => {
            findings.model_problem(chain(&error));
            return ModelPlace::Nowhere;
        }
    };
    // The runtimes of families read the artifact; the code of users may do without.
    let is_here = !is_remote || localized.is_some();
    if is_here && let Err(error) = Artifact::resolve(model, folder) {
        if ModelFamily::of_package(&model.implementation).is_some_and(|family| !family.artifact_names.is_empty()) {
            findings.model_problem(format_args!("model `{name}`: {error}"));
        } else if model.parameters.uri.is_some() {
            findings.warning(format_args!("model `{name}`: {error}"));
        }
    }
    if in_python(model, &why.to_string(), python, hidden_headers, findings).await {
        ModelPlace::Workers
    } else {
        ModelPlace::Nowhere
    }
}

/// Looks for the interpreter of a script. What the script starts is only known when it runs.
pub(super) async fn examine_script(script: &Path, python: &Python, findings: &mut Findings) {
    let shown = script.display();
    match python.interpreter(&ModelSettings::new("script", SCRIPT_IMPLEMENTATION)).await {
        Ok(interpreter) => {
            findings.ok(format_args!("script `{shown}` runs in Python: `{}`", interpreter.display()));
            findings
                .warning(format_args!("the script's models are not checked: only `mlserver start {shown}` finds them"));
        }
        Err(error) => findings.problem(format_args!("script `{shown}` runs in Python: {}", chain(&error))),
    }
}

/// Examines the class of a model repository.
pub(super) async fn examine_class(model: &ModelSettings, python: &Python, findings: &mut Findings) {
    let why = format!("model repository `{}` runs in Python", model.implementation);
    in_python(model, &why, python, &[], findings).await;
}

/// Looks for the interpreter and the modules of a model; returns whether it would be loaded.
async fn in_python(
    model: &ModelSettings,
    why: &str,
    python: &Python,
    hidden_headers: &[&str],
    findings: &mut Findings,
) -> bool {
    let interpreter = match python.interpreter(model).await {
        Ok(path) => path,
        Err(error) => {
            findings.model_problem(format_args!("{why}: {}", chain(&error)));
            return false;
        }
    };
    let found = match python.check(model, hidden_headers).await {
        Ok(found) => found,
        Err(error) => {
            findings.warning(format_args!("{why}: {}", chain(&error)));
            return true;
        }
    };
    let mut loads = true;
    for finding in found {
        match finding.level {
            StaticFindingLevel::Problem => {
                loads = false;
                let hint = install_hint(model, &finding.text);
                findings.model_problem(format_args!("model `{}`: {}{hint}", model.name, finding.text));
            }
            StaticFindingLevel::Warning => findings.warning(finding.text),
            StaticFindingLevel::Note => findings.note(format_args!("model `{}`: {}", model.name, finding.text)),
        }
    }
    if loads {
        findings.ok(format_args!("{why}, with `{}`", interpreter.display()));
    }
    loads
}

/// Reports what this server does differently for a model than MLServer 1.7.1, as far as its settings and its file tell.
pub(super) fn changes(model: &ModelSettings, folder: &Path, place: ModelPlace, findings: &mut Findings) {
    let name = &model.name;
    let family = ModelFamily::of_package(&model.implementation);
    if place != ModelPlace::Nowhere
        && let Some(family) = family
        && let Ok(Artifact::Path(path)) = Artifact::resolve(model, folder)
        && let Ok(file) = FileDescription::read(family, &path)
        && let Some(first) = file.found_by_name.first()
    {
        findings.note(format_args!(
            "model `{name}`: columns of tables are found by the names of its features, such as `{first}`, in any order; MLServer 1.7.1 takes them \
             by position"
        ));
    }
    if place == ModelPlace::Workers
        && family.is_none()
        && let Some(batches) = BatchOptions::of(model)
    {
        findings.note(format_args!(
            "model `{name}`: with `max_batch_size` {}, the data of its answers is flat and must have their datatype; without adaptive \
             batching, answers have the nesting that the model gives them",
            batches.max_size
        ));
    }
}

/// Returns how to install what a family's runtime needs.
fn install_hint(model: &ModelSettings, text: &str) -> String {
    let extra = ModelFamily::of_package(&model.implementation).and_then(|family| family.extra);
    match extra {
        Some(extra) if text.starts_with("its runtime needs") => format!(": `pip install 'mlserver[{extra}]'`"),
        _ => String::new(),
    }
}

/// Compares the size of the models on disk, once for each process that loads them, with the memory of this machine.
pub(super) fn memory(
    models: &[(ModelPlace, ModelSettings)],
    working_directory: &Path,
    settings: &Settings,
    findings: &mut Findings,
) {
    let workers = settings.workers.parallel_workers.max(1);
    let mut total = 0_u64;
    for (place, model) in models {
        let Ok(Artifact::Path(path)) = Artifact::resolve(model, working_directory) else { continue };
        let copies = match place {
            ModelPlace::Server => 1,
            ModelPlace::Workers => workers as u64,
            ModelPlace::Nowhere => 0,
        };
        total = total.saturating_add(artifact_size(&path).saturating_mul(copies));
    }
    let Some(limit) = platform::memory_limit() else { return };
    let count = |place| models.iter().filter(|(of, _)| *of == place).count();
    let text = format!(
        "the files of {} native models and {} models in {workers} worker processes take {} of {} MiB of memory",
        count(ModelPlace::Server),
        count(ModelPlace::Workers),
        total.div_ceil(1 << 20),
        limit >> 20,
    );
    if settings.models_max_bytes.is_none() && total > limit {
        findings.warning(format_args!("{text}: use fewer `parallel_workers`, or set `models_max_bytes`"));
    }
}
