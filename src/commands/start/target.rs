//! What a command serves: a folder of models, or one model file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use futures_util::future::{self, BoxFuture, FutureExt};
use serde_json::{Map, Value, json};

use super::script::Script;
use crate::cli::is_script;
use crate::commands::{CommandError, USAGE};
use crate::families::{MLMODEL, ModelFamily};
use crate::repository::{
    CustomError, CustomRepository, Listed, Repository, UnconfiguredModel, is_store_uri, path_of_file_uri,
};
use crate::settings::env::{KSERVE_MODELS_DIR, MODELS_DIR};
use crate::settings::{Environment, MODEL_SETTINGS_FILE, SETTINGS_FILE, SettingsSources};
use crate::types::{Secret, without_credentials};

/// What is served.
#[derive(Debug, Clone)]
pub(in crate::commands) struct ServeTarget {
    /// The folder with `settings.json`: the folder of the models, or that of the model file.
    pub(in crate::commands) folder: PathBuf,
    /// The only model, if the target is a file.
    pub(in crate::commands) file: Option<ModelFile>,
    /// The script that starts the models, if the target is one.
    pub(super) script: Option<Script>,
    /// Where the models are, if not on this machine. The folder only has their settings.
    pub(super) store: Option<StoreTarget>,
}

/// A repository in an object store.
#[derive(Debug, Clone)]
pub(super) struct StoreTarget {
    /// The URI, which may have credentials.
    pub(super) uri: Secret,
    /// Removes the folder at the end.
    _folder: Arc<TemporaryFolder>,
}

#[derive(Debug)]
struct TemporaryFolder(PathBuf);

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // Links in it are not followed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A model without settings, which is served from its file.
#[derive(Debug, Clone)]
pub(in crate::commands) struct ModelFile {
    /// The path as it was typed.
    path: PathBuf,
    /// The artifact, as an absolute path.
    artifact: PathBuf,
    /// The file's name without its extension, or the name of an MLflow model's folder.
    pub(in crate::commands) name: String,
    pub(in crate::commands) family: &'static ModelFamily,
}

impl ServeTarget {
    /// Takes the folder or file from the arguments, else the folder from the environment variables that images set.
    ///
    /// # Errors
    ///
    /// Fails if there is neither, if the path does not exist, or if it is a file that is not a model file.
    pub(in crate::commands) fn new(
        argument: Option<&Path>,
        environment: &dyn Environment,
    ) -> Result<Self, CommandError> {
        let variables = environment.variables();
        let variable = |name: &'static str| {
            let found = variables.iter().find(|(n, value)| n == name && !value.is_empty());
            found.map(|(_, path)| (PathBuf::from(path), format!(", which `{name}` names,")))
        };
        let argument = argument.map(|path| (path.to_owned(), String::new()));
        let target = argument.or_else(|| variable(MODELS_DIR)).or_else(|| variable(KSERVE_MODELS_DIR));
        let Some((path, origin)) = target else {
            let error = anyhow!(
                "missing FOLDER: neither `{MODELS_DIR}` nor `{KSERVE_MODELS_DIR}` is set; pass a folder or a model file"
            );
            return Err(CommandError { error, code: USAGE });
        };
        let path = local_path(&path, environment)?;
        let absolute: PathBuf = environment.working_directory().join(&path).components().collect();
        match absolute.metadata() {
            Ok(metadata) if metadata.is_dir() => Ok(Self { folder: path, file: None, script: None, store: None }),
            Ok(_) => {
                let file = ModelFile::new(path.clone(), absolute)?;
                Ok(Self { folder: parent(&path), file: Some(file), script: None, store: None })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let shown = path.display();
                Err(anyhow!("`{shown}`{origin} does not exist: pass the folder of the models, or a model file").into())
            }
            Err(error) => Err(anyhow!("cannot open `{}`{origin}: {error}", path.display()).into()),
        }
    }

    /// Takes a repository in an object store.
    pub(super) fn of_store(uri: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("mlserver-{}", uuid::Uuid::new_v4()));
        let models = folder.join("models");
        let store = StoreTarget { uri: Secret::from(uri), _folder: Arc::new(TemporaryFolder(folder)) };
        Self { folder: models, file: None, script: None, store: Some(store) }
    }

    /// Returns what is served, for messages.
    pub(in crate::commands) fn shown(&self) -> String {
        match &self.store {
            Some(store) => without_credentials(&store.uri),
            None => self.folder.display().to_string(),
        }
    }

    /// Takes a folder, a model file, or a script.
    ///
    /// # Errors
    ///
    /// Fails if the path does not exist, or if it is a file that cannot be served.
    pub(in crate::commands) fn of_any(path: &Path, environment: &dyn Environment) -> Result<Self, CommandError> {
        if is_script(path.as_os_str()) && !path.is_dir() {
            Self::of_script(path, Vec::new(), environment)
        } else {
            Self::new(Some(path), environment)
        }
    }

    /// Returns the path of the script as it was typed, if the target is one.
    pub(in crate::commands) fn script(&self) -> Option<&Path> {
        self.script.as_ref().map(|script| script.path.as_path())
    }

    /// Takes a script, and its arguments.
    ///
    /// # Errors
    ///
    /// Fails if there is no such file.
    pub(super) fn of_script(
        path: &Path,
        arguments: Vec<String>,
        environment: &dyn Environment,
    ) -> Result<Self, CommandError> {
        let absolute: PathBuf = environment.working_directory().join(path).components().collect();
        let shown = path.display();
        match absolute.metadata() {
            Ok(metadata) if metadata.is_file() => {}
            Ok(_) => return Err(anyhow!("`{shown}` is not a file: pass a script").into()),
            Err(error) => return Err(anyhow!("cannot open the script `{shown}`: {error}").into()),
        }
        let script = Script { path: path.to_owned(), absolute, arguments };
        Ok(Self { folder: parent(path), file: None, script: Some(script), store: None })
    }

    /// Returns a model file in the folder, as a path to pass instead of a folder that has no settings.
    pub(in crate::commands) fn suggested_file(&self) -> Option<PathBuf> {
        UnconfiguredModel::suggestion(&self.folder)
    }

    /// Names the model of a model file as the command line or the environment does, if one of them does.
    #[must_use]
    pub(in crate::commands) fn with_model_name(mut self, sources: &SettingsSources) -> Self {
        if let (Some(file), Some(name)) = (&mut self.file, sources.model_name()) {
            name.clone_into(&mut file.name);
        }
        self
    }

    /// Returns the repository of the folder, or of the model file.
    pub(in crate::commands) fn repository(&self, sources: SettingsSources, strict: bool) -> Repository {
        let repository = Repository::new(&self.folder, sources, strict);
        match &self.file {
            Some(file) => repository.with_custom(Arc::new(file.clone())),
            None => repository,
        }
    }
}

/// Returns the path that a command was given as a path or as a `file:` URI.
///
/// # Errors
///
/// Fails for a URI of a store, whose repositories only `mlserver start` reads there.
pub(in crate::commands) fn local_path(path: &Path, environment: &dyn Environment) -> Result<PathBuf, CommandError> {
    let exists = environment.working_directory().join(path).exists();
    let Some(text) = path.to_str().filter(|_| !exists) else { return Ok(path.to_owned()) };
    if is_store_uri(text) {
        let shown = without_credentials(text);
        return Err(anyhow!(
            "`{shown}` is in an object store: fetch it with `mlserver pull URI FOLDER`, and pass the folder (only `mlserver start` \
             reads repositories there)"
        )
        .into());
    }
    Ok(path_of_file_uri(text).map_or_else(|| path.to_owned(), PathBuf::from))
}

/// Returns the folder of a file, which is relative if its path is.
fn parent(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

impl ModelFile {
    fn new(path: PathBuf, absolute: PathBuf) -> Result<Self, CommandError> {
        let shown = path.display();
        let file_name = absolute.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if file_name == MODEL_SETTINGS_FILE || file_name == SETTINGS_FILE {
            return Err(anyhow!("`{shown}` contains settings, not a model: pass its folder").into());
        }
        if is_script(absolute.as_os_str()) {
            return Err(anyhow!("`{shown}` is a script: only `mlserver start` can find its models").into());
        }
        let family = ModelFamily::of_file(&absolute).map_err(|error| anyhow!("cannot serve `{shown}`: {error}"))?;
        let (artifact, name) = if file_name == MLMODEL {
            let folder = absolute.parent().unwrap_or(Path::new("/")).to_owned();
            let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
            (folder, name.unwrap_or_else(|| "model".to_owned()))
        } else {
            let stem = absolute.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            (absolute, stem.unwrap_or_default())
        };
        Ok(Self { path, artifact, name, family })
    }

    /// Returns the import path of the runtime.
    pub(in crate::commands) fn implementation(&self) -> &'static str {
        self.family.implementations[0]
    }

    /// Describes what is served, for the log.
    pub(in crate::commands) fn description(&self) -> String {
        format!(
            "Serving `{}` as model `{}` with `{}`: it is a file of {}.",
            self.path.display(),
            self.name,
            self.implementation(),
            self.family.title
        )
    }

    fn listed(&self) -> Listed {
        let settings: [(&str, Value); 3] = [
            ("name", self.name.as_str().into()),
            ("implementation", self.implementation().into()),
            ("parameters", json!({"uri": self.artifact.to_string_lossy()})),
        ];
        let settings: Map<String, Value> = settings.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Listed { settings, source: None }
    }
}

impl CustomRepository for ModelFile {
    fn list(&self) -> BoxFuture<'_, Result<Vec<Listed>, CustomError>> {
        future::ready(Ok(vec![self.listed()])).boxed()
    }

    fn find<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Vec<Listed>, CustomError>> {
        let found = if name == self.name { vec![self.listed()] } else { Vec::new() };
        future::ready(Ok(found)).boxed()
    }
}
