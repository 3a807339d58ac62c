//! The models that inference graphs create from folders, one for each step.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Artifact;
use crate::graphs;
use crate::settings::{MODEL_SETTINGS_FILE, ModelSettings};

/// The variable in which a container finds the name of its model.
const MODEL_NAME: &str = "MLSERVER_MODEL_NAME";

/// A step with a folder.
#[derive(Debug)]
pub(super) struct StepFolder {
    /// The name of the step, which is that of its model.
    pub(super) name: String,
    pub(super) version: Option<String>,
    /// The settings file in the folder.
    pub(super) path: PathBuf,
    /// The environment variables of the step's container.
    pub(super) variables: BTreeMap<String, String>,
}

/// Returns the steps of a graph that have a folder. Relative folders begin at that of the graph's settings. None for a graph without a
/// valid manifest, which fails to load.
pub(super) fn step_folders(
    graph: &ModelSettings,
    working_directory: &Path,
    has_model: impl Fn(&str) -> bool,
) -> Vec<StepFolder> {
    if !graph.parameters.extra.contains_key("steps") {
        return Vec::new();
    }
    let Ok(Artifact::Path(manifest)) = Artifact::resolve(graph, working_directory) else { return Vec::new() };
    let Ok(mut manifest) = graphs::read_manifest(graph, &manifest) else { return Vec::new() };
    manifest.graph.resolve_models(has_model);
    let base = working_directory.join(graph.folder().unwrap_or(working_directory));
    let steps = manifest.graph.steps().iter().filter_map(|step| {
        let folder = base.join(step.folder.as_ref()?);
        let mut variables: BTreeMap<String, String> = step.environment.iter().cloned().collect();
        variables.insert(MODEL_NAME.to_owned(), step.model.name.clone());
        Some(StepFolder {
            name: step.model.name.clone(),
            version: step.model.version.clone(),
            path: folder.join(MODEL_SETTINGS_FILE),
            variables,
        })
    });
    steps.collect()
}
