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
    /// The path of the step inside the manifest.
    pub(super) step: String,
    /// The name of the step's model, which is that of the step if no other step has it.
    pub(super) name: String,
    pub(super) version: Option<String>,
    /// The settings file in the folder.
    pub(super) path: PathBuf,
    /// The same without links and `..`, so that two ways to one folder lead to one model.
    canonical: PathBuf,
    /// The environment variables of the step's container.
    pub(super) variables: BTreeMap<String, String>,
}

impl StepFolder {
    /// Returns whether one model can serve both steps.
    fn is_same_model(&self, other: &Self) -> bool {
        self.version == other.version && self.is_same_code(other)
    }

    fn is_same_code(&self, other: &Self) -> bool {
        self.canonical == other.canonical && self.variables == other.variables
    }

    /// Returns whether the models of both steps cannot have one name: they would be the same version, or the default version of the name
    /// would be that of the other step.
    fn conflicts_with(&self, other: &Self) -> bool {
        let is_ambiguous = self.version == other.version || self.version.is_none() || other.version.is_none();
        is_ambiguous && !self.is_same_code(other)
    }
}

/// The models of steps, each with a name and a version of its own.
#[derive(Debug, Default)]
pub(super) struct StepFolders(pub(super) Vec<StepFolder>);

impl StepFolders {
    /// Adds a step of a graph, and returns the name of its model: that of the step, or if a different model has it, another one.
    pub(super) fn add(&mut self, mut step: StepFolder, graph: &str, is_taken: impl Fn(&str) -> bool) -> String {
        let own = step.name.clone();
        let others = (1..).map(|number| match number {
            1 => format!("{graph}.{own}"),
            _ => format!("{graph}.{own}.{number}"),
        });
        let names = std::iter::once(own.clone()).chain(others.filter(|name| !is_taken(name)));
        for name in names {
            if !self.0.iter().any(|other| other.name == name && step.conflicts_with(other)) {
                step.name = name;
                break;
            }
        }
        let name = step.name.clone();
        if !self.0.iter().any(|other| other.name == name && step.is_same_model(other)) {
            self.0.push(step);
        }
        name
    }
}

/// Returns the steps of a graph that have a folder, but no model of the repository. Relative folders begin at that of the graph's
/// settings. None for a graph without a valid manifest, which fails to load.
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
    manifest.graph.resolve_models(&has_model, &BTreeMap::new());
    let base = working_directory.join(graph.folder().unwrap_or(working_directory));
    let steps = manifest.graph.steps().iter().filter(|step| !has_model(&step.model.name)).filter_map(|step| {
        let folder = base.join(step.folder.as_ref()?);
        let mut variables: BTreeMap<String, String> = step.environment.iter().cloned().collect();
        variables.insert(MODEL_NAME.to_owned(), step.model.name.clone());
        Some(StepFolder {
            step: step.path.clone(),
            name: step.model.name.clone(),
            version: step.model.version.clone(),
            canonical: folder.canonicalize().unwrap_or_else(|_| folder.clone()),
            path: folder.join(MODEL_SETTINGS_FILE),
            variables,
        })
    });
    steps.collect()
}
