//! Finds the models below a folder.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;
use thiserror::Error;

use super::custom::{CustomError, CustomRepository, Listed};
use super::source::FolderSource;
use super::steps::{StepFolder, StepFolders, step_folders};
use super::unconfigured::{UnconfiguredError, UnconfiguredModel};
use super::{Artifact, ArtifactError};
use crate::families::{ModelFamily, NativeEvaluator};
use crate::graphs::GRAPH_IMPLEMENTATION;
use crate::settings::{LoadedSettings, MODEL_SETTINGS_FILE, ModelSettings, SettingsError, SettingsSources};

/// The maximum depth of folders that are searched; deeper ones are a mistake or an attack.
const MAX_DEPTH: usize = 64;
/// The maximum number of folders that are searched: links can multiply them.
const MAX_FOLDERS: usize = 100_000;

/// The folder that holds the models, and how their settings are read.
#[derive(Debug, Clone)]
pub struct Repository {
    root: PathBuf,
    sources: SettingsSources,
    strict: bool,
    /// Replaces the folder.
    custom: Option<Arc<dyn CustomRepository>>,
    /// Fills the folder.
    source: Option<Arc<dyn FolderSource>>,
}

/// The result of searching the repository.
#[derive(Debug, Default)]
pub struct Discovery {
    /// The models, in the order in which they are loaded.
    ///
    /// A name may occur several times, with different versions or even the same: the later entry then replaces the earlier.
    pub models: Vec<LoadedSettings<ModelSettings>>,
    /// The files and folders that could not be read and were skipped.
    pub errors: Vec<DiscoveryError>,
}

/// The reasons why a part of the repository was skipped.
#[derive(Debug, Error)]
pub enum DiscoveryError {
    #[error("failed to load the model settings at `{}`: {error}", path.display())]
    Settings { path: PathBuf, error: SettingsError },
    #[error("failed to load the model settings of the environment: {error}")]
    Environment { error: SettingsError },
    #[error("invalid settings of a model of the repository: {error}")]
    Listed { name: String, error: SettingsError },
    #[error(transparent)]
    Custom(#[from] CustomError),
    #[error(transparent)]
    Unconfigured(#[from] UnconfiguredError),
    #[error("cannot search `{}`: {error}", path.display())]
    Folder { path: PathBuf, error: io::Error },
    #[error("`{}` is nested deeper than {MAX_DEPTH} folders and is not searched", path.display())]
    TooDeep { path: PathBuf },
    #[error("more than {MAX_FOLDERS} folders in `{}`: the rest is not searched", path.display())]
    TooMany { path: PathBuf },
}

impl DiscoveryError {
    /// Reports whether a model is missing because of it. A folder that cannot be searched may hold none.
    pub fn is_of_model(&self) -> bool {
        matches!(self, Self::Settings { .. } | Self::Listed { .. } | Self::Environment { .. } | Self::Unconfigured(_))
    }

    /// Returns the file or folder that could not be read. `None` for other sources of models.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Settings { path, .. }
            | Self::Folder { path, .. }
            | Self::TooDeep { path }
            | Self::TooMany { path } => Some(path),
            Self::Unconfigured(error) => Some(error.path()),
            Self::Environment { .. } | Self::Listed { .. } | Self::Custom(_) => None,
        }
    }
}

impl Repository {
    /// Returns the repository in a folder, which need not exist.
    pub fn new(root: &Path, sources: SettingsSources, strict: bool) -> Self {
        let root = sources.working_directory().join(root).components().collect();
        Self { root, sources, strict, custom: None, source: None }
    }

    /// Takes the models from `custom` instead of the folder.
    #[must_use]
    pub fn with_custom(self, custom: Arc<dyn CustomRepository>) -> Self {
        Self { custom: Some(custom), ..self }
    }

    /// Lets `source` fill the folder.
    #[must_use]
    pub fn with_source(self, source: Arc<dyn FolderSource>) -> Self {
        Self { source: Some(source), ..self }
    }

    /// Returns what fills the folder, if its models are in a store.
    pub fn source(&self) -> Option<&dyn FolderSource> {
        self.source.as_deref()
    }

    /// Returns the repository that replaces the folder, if any.
    pub fn custom(&self) -> Option<&dyn CustomRepository> {
        self.custom.as_deref()
    }

    /// Reads the settings that a custom repository returned.
    pub fn read(&self, listed: Vec<Listed>) -> Discovery {
        let mut discovery = Discovery::default();
        for Listed { settings, source } in listed {
            let name = settings.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
            match ModelSettings::from_repository(settings, source, &self.sources, self.strict) {
                Ok(model) => discovery.models.push(model),
                Err(error) => discovery.errors.push(DiscoveryError::Listed { name, error }),
            }
        }
        discovery
    }

    /// Returns the absolute path of the folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the folder against which the paths of models without a settings file are resolved.
    pub fn working_directory(&self) -> &Path {
        self.sources.working_directory()
    }

    /// Searches the folder. If no model in it has settings, reads a model from the environment, or finds the folder's only one.
    pub fn discover(&self) -> Discovery {
        let mut walk = Walk::default();
        if self.root.exists() {
            walk.folder(&self.root);
            if walk.folders > MAX_FOLDERS {
                walk.errors.push(DiscoveryError::TooMany { path: self.root.clone() });
            }
        }
        let mut discovery = Discovery { models: Vec::new(), errors: walk.errors };
        let has_settings = !walk.files.is_empty();
        for path in walk.files {
            match ModelSettings::load(&path, &self.sources, self.strict) {
                Ok(model) => discovery.models.push(model),
                Err(error) => discovery.errors.push(DiscoveryError::Settings { path, error }),
            }
        }
        self.add_steps(&mut discovery);
        if discovery.models.is_empty() {
            match self.unconfigured(has_settings) {
                Ok(model) => discovery.models.extend(model),
                Err(error) => discovery.errors.push(error),
            }
        }
        discovery
    }

    /// Adds the models that graphs create from folders: `parameters.extra.steps.NAME.folder`. Models of the folder take precedence.
    fn add_steps(&self, discovery: &mut Discovery) {
        let names: BTreeSet<String> = discovery.models.iter().map(|model| model.settings.name.clone()).collect();
        let has_model = |name: &str| names.contains(name);
        let mut folders = StepFolders::default();
        let is_graph =
            |model: &&mut LoadedSettings<ModelSettings>| model.settings.implementation == GRAPH_IMPLEMENTATION;
        for graph in discovery.models.iter_mut().filter(is_graph) {
            for step in step_folders(&graph.settings, self.working_directory(), has_model) {
                let (place, own) = (step.step.clone(), step.name.clone());
                let name = folders.add(step, &graph.settings.name, has_model);
                if name != own {
                    graph.settings.step_models.insert(place, name);
                }
            }
        }
        for StepFolder { name, version, path, variables, .. } in folders.0 {
            match ModelSettings::load(&path, &self.sources, self.strict) {
                Ok(mut model) => {
                    let settings = &mut model.settings;
                    (settings.name, settings.variables) = (name, variables);
                    settings.parameters.version = version.or(settings.parameters.version.take());
                    discovery.models.push(model);
                }
                Err(error) => discovery.errors.push(DiscoveryError::Settings { path, error }),
            }
        }
    }

    /// Searches the folder, and the folders of `names` that have no settings.
    pub fn discover_with(&self, names: impl IntoIterator<Item = String>) -> Discovery {
        let mut discovery = self.discover();
        for name in names {
            let folder = self.root.join(&name);
            let is_described = discovery.models.iter().any(|model| {
                let source = model.settings.source.as_ref();
                model.settings.name == name || source.is_some_and(|source| source.starts_with(&folder))
            });
            match if is_described { Ok(None) } else { self.find_unconfigured(&name) } {
                Ok(model) => discovery.models.extend(model),
                Err(error) => discovery.errors.push(error),
            }
        }
        discovery
    }

    /// Returns the model that the environment describes. Its artifact, and if only its name is set, its runtime, are those of the
    /// folder's only model, unless the folder has settings of models.
    fn unconfigured(&self, has_settings: bool) -> Result<Option<LoadedSettings<ModelSettings>>, DiscoveryError> {
        let described = ModelSettings::from_environment(&self.sources, self.strict)
            .map_err(|error| DiscoveryError::Environment { error })?;
        if self.sources.model_name().is_none() || has_settings || !self.root.is_dir() {
            return Ok(described);
        }
        let uri = self.sources.model_uri().filter(|uri| !uri.contains("://"));
        let folder = uri.map(|uri| self.working_directory().join(uri).components().collect());
        let folder: PathBuf = folder.unwrap_or_else(|| self.root.clone());
        let Some(described) = described else { return self.only_model(&folder, None) };
        let family = ModelFamily::of_package(&described.settings.implementation);
        if family.is_some_and(|family| family.native.is_some_and(|native| !native.needs_artifact())) {
            return Ok(Some(described));
        }
        match Artifact::resolve(&described.settings, self.working_directory()) {
            Err(ArtifactError::NoUri { .. }) => self.only_model(&folder, None),
            Ok(Artifact::Path(path)) if path.is_dir() => self.only_model(&folder, None),
            Ok(_) | Err(ArtifactError::Missing { .. }) => Ok(Some(described)),
        }
    }

    /// Finds the model of a folder of the repository that has no settings, as a puller of models downloads it.
    ///
    /// # Errors
    ///
    /// Fails if the folder has more than one model, or cannot be read.
    fn find_unconfigured(&self, name: &str) -> Result<Option<LoadedSettings<ModelSettings>>, DiscoveryError> {
        let mut components = Path::new(name).components();
        let only = components.next().filter(|first| components.next().is_none() && first.as_os_str() == name);
        let folder = self.root.join(name);
        let is_below = matches!(only, Some(Component::Normal(_))) && !name.starts_with('.');
        if is_below && folder.is_dir() { self.only_model(&folder, Some(name)) } else { Ok(None) }
    }

    /// Returns the only model of a folder, of the runtime that the environment names, if it does.
    fn only_model(
        &self,
        folder: &Path,
        name: Option<&str>,
    ) -> Result<Option<LoadedSettings<ModelSettings>>, DiscoveryError> {
        let Some(implementation) = self.sources.model_implementation() else {
            let Some(model) = UnconfiguredModel::find(folder, None)? else { return Ok(None) };
            return self.with_artifact(Some(model.implementation()), name, &model.artifact).map(Some);
        };
        let family = ModelFamily::of_package(implementation)
            .filter(|family| !family.extensions.is_empty() || family.native == Some(NativeEvaluator::Mlflow));
        let artifact = match family {
            Some(family) => {
                // Of MLServer's names, the first counts.
                let named = family.artifact_names.iter().map(|name| folder.join(name)).find(|path| path.is_file());
                match named {
                    Some(named) => Some(named),
                    None => UnconfiguredModel::find(folder, Some(family))?.map(|model| model.artifact),
                }
            }
            None => None,
        };
        self.with_artifact(None, name, artifact.as_deref().unwrap_or(folder)).map(Some)
    }

    fn with_artifact(
        &self,
        implementation: Option<&str>,
        name: Option<&str>,
        artifact: &Path,
    ) -> Result<LoadedSettings<ModelSettings>, DiscoveryError> {
        ModelSettings::from_artifact(implementation, name, artifact, &self.sources, self.strict)
            .map_err(|error| DiscoveryError::Environment { error })
    }
}

/// A walk in a fixed order: the settings file of a folder, then its folders by name.
#[derive(Default)]
struct Walk {
    files: Vec<PathBuf>,
    errors: Vec<DiscoveryError>,
    /// The canonical paths of the parent folders, to detect links to one of them.
    above: Vec<PathBuf>,
    folders: usize,
}

impl Walk {
    fn folder(&mut self, path: &Path) {
        self.folders += 1;
        if self.folders > MAX_FOLDERS {
            return;
        }
        if self.above.len() >= MAX_DEPTH {
            self.errors.push(DiscoveryError::TooDeep { path: path.to_owned() });
            return;
        }
        let children = match path.canonicalize() {
            // A link to a parent folder, whose content is found anyway.
            Ok(real) if self.above.contains(&real) => return,
            Ok(real) => {
                self.above.push(real);
                children(path)
            }
            Err(error) => Err(error),
        };
        match children {
            Ok(children) => self.children(path, children),
            Err(error) => self.errors.push(DiscoveryError::Folder { path: path.to_owned(), error }),
        }
        self.above.pop();
    }

    fn children(&mut self, path: &Path, children: Vec<PathBuf>) {
        let settings = path.join(MODEL_SETTINGS_FILE);
        // A dangling link counts as a file, so that it is reported.
        if settings.symlink_metadata().is_ok() && !settings.is_dir() {
            self.files.push(settings);
        }
        for child in children {
            self.folder(&child);
        }
    }
}

/// Returns the visible folders of a folder, sorted by name.
fn children(path: &Path) -> io::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let child = entry.path();
        if !hidden && child.is_dir() {
            folders.push(child);
        }
    }
    folders.sort();
    Ok(folders)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use crate::settings::env::MapEnvironment;

    use super::*;

    const XGBOOST: &str = r#"{"implementation": "mlserver_xgboost.XGBoostModel"}"#;

    fn tree(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, content) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn discover_with(root: &TempDir, environment: &MapEnvironment) -> Discovery {
        Repository::new(root.path(), SettingsSources::read(environment).unwrap(), false).discover()
    }

    fn discover(root: &TempDir) -> Discovery {
        discover_with(root, &MapEnvironment::new(root.path()))
    }

    fn names(discovery: &Discovery) -> Vec<&str> {
        discovery.models.iter().map(|model| model.settings.name.as_str()).collect()
    }

    fn versioned(name: &str, version: &str) -> String {
        format!(r#"{{"name": "{name}", "implementation": "a.B", "parameters": {{"version": "{version}"}}}}"#)
    }

    #[test]
    fn discovery_searches_folders_by_name_without_hidden_ones() {
        let root = tree(&[
            ("model-settings.json", r#"{"name": "root", "implementation": "a.B"}"#),
            ("b/model-settings.json", XGBOOST),
            ("a/deep/er/model-settings.json", XGBOOST),
            ("a/model-settings.json", XGBOOST),
            (".hidden/model-settings.json", XGBOOST),
            ("a/.git/model-settings.json", XGBOOST),
            ("c/.model-settings.json", XGBOOST),
            ("c/other.json", XGBOOST),
        ]);
        let discovery = discover(&root);
        assert_eq!(names(&discovery), ["root", "a", "er", "b"]);
        assert!(discovery.errors.is_empty());
        let source = discovery.models[2].settings.source.clone().unwrap();
        assert_eq!(source, root.path().join("a/deep/er/model-settings.json"));
    }

    #[test]
    fn discovery_searches_hidden_root() {
        let root = tree(&[(".models/a/model-settings.json", XGBOOST)]);
        let sources = SettingsSources::read(&MapEnvironment::new(root.path())).unwrap();
        let discovery = Repository::new(Path::new(".models"), sources, false).discover();
        assert_eq!(names(&discovery), ["a"]);
    }

    #[test]
    fn discovery_finds_all_versions_of_a_name() {
        let (one, two) = (versioned("m", "1"), versioned("m", "2"));
        let root = tree(&[("m/1/model-settings.json", &one), ("m/2/model-settings.json", &two)]);
        let discovery = discover(&root);
        let versions: Vec<_> = discovery.models.iter().map(|model| model.settings.version()).collect();
        assert_eq!(versions, [Some("1"), Some("2")]);
        assert_eq!(names(&discovery), ["m", "m"]);
        // The folder is named after the version.
        assert!(discovery.models.iter().all(|model| model.warnings.is_empty()));
    }

    #[test]
    fn discovery_reports_and_skips_invalid_files() {
        let root = tree(&[
            ("a/model-settings.json", "{"),
            ("b/model-settings.json", "{}"),
            ("c/model-settings.json", XGBOOST),
        ]);
        let discovery = discover(&root);
        assert_eq!(names(&discovery), ["c"]);
        let errors: Vec<String> = discovery
            .errors
            .iter()
            .map(|error| error.to_string().replace(root.path().to_str().unwrap(), "[DIR]"))
            .collect();
        insta::assert_snapshot!(errors.join("\n"), @r"
        failed to load the model settings at `[DIR]/a/model-settings.json`: `[DIR]/a/model-settings.json` is not valid JSON: EOF while parsing an object at line 1 column 1
        failed to load the model settings at `[DIR]/b/model-settings.json`: `implementation` is missing in `[DIR]/b/model-settings.json`, and `MLSERVER_MODEL_IMPLEMENTATION` is not set
        ");
    }

    #[test]
    fn discovery_uses_model_of_environment_only_without_valid_files() {
        let root = tree(&[("a/model-settings.json", "{")]);
        let environment = MapEnvironment::new(root.path())
            .with("MLSERVER_MODEL_IMPLEMENTATION", "mlserver_xgboost.XGBoostModel")
            .with("MLSERVER_MODEL_NAME", "env");
        let discovery = discover_with(&root, &environment);
        assert_eq!((names(&discovery), discovery.errors.len()), (vec!["env"], 1));

        let root = tree(&[("a/model-settings.json", r#"{"name": "a"}"#)]);
        let discovery = discover_with(&root, &environment);
        assert_eq!((names(&discovery), discovery.errors.len()), (vec!["a"], 0));
    }

    #[test]
    fn discovery_of_missing_folder_is_empty() {
        let root = tree(&[]);
        let sources = SettingsSources::read(&MapEnvironment::new(root.path())).unwrap();
        let discovery = Repository::new(Path::new("none"), sources, false).discover();
        assert!(discovery.models.is_empty() && discovery.errors.is_empty());
    }

    #[test]
    fn discovery_reports_file_instead_of_folder() {
        let root = tree(&[("model.json", "{}")]);
        let sources = SettingsSources::read(&MapEnvironment::new(root.path())).unwrap();
        let discovery = Repository::new(Path::new("model.json"), sources, false).discover();
        assert!(matches!(discovery.errors.as_slice(), [DiscoveryError::Folder { .. }]));
    }

    #[test]
    fn discovery_reports_folders_beyond_depth_limit() {
        let deep = format!("{}model-settings.json", "d/".repeat(MAX_DEPTH));
        let root = tree(&[("a/model-settings.json", XGBOOST), (&deep, XGBOOST)]);
        let discovery = discover(&root);
        assert_eq!(names(&discovery), ["a"]);
        assert!(matches!(discovery.errors.as_slice(), [DiscoveryError::TooDeep { .. }]));
    }

    #[cfg(unix)]
    mod links {
        use std::os::unix::fs::symlink;

        use super::*;

        #[test]
        fn discovery_follows_links_to_folders_without_loops() {
            let root = tree(&[("real/model-settings.json", XGBOOST)]);
            let other = tree(&[("far/model-settings.json", XGBOOST)]);
            symlink(root.path().join("real"), root.path().join("alias")).unwrap();
            symlink(other.path(), root.path().join("other")).unwrap();
            symlink(root.path(), root.path().join("real/loop")).unwrap();
            symlink("itself", root.path().join("itself")).unwrap();
            let discovery = discover(&root);
            assert_eq!(names(&discovery), ["alias", "far", "real"]);
            assert!(discovery.errors.is_empty());
        }

        /// Kubernetes mounts a config map as links through a hidden folder.
        #[test]
        fn discovery_reads_linked_files() {
            let root = tree(&[("m/..data/model-settings.json", XGBOOST)]);
            symlink("..data/model-settings.json", root.path().join("m/model-settings.json")).unwrap();
            assert_eq!(names(&discover(&root)), ["m"]);
        }

        #[test]
        fn discovery_reports_dangling_links() {
            let root = tree(&[("m/weights", "")]);
            symlink("gone.json", root.path().join("m/model-settings.json")).unwrap();
            let discovery = discover(&root);
            assert!(matches!(discovery.errors.as_slice(), [DiscoveryError::Settings { .. }]));
        }
    }
}
