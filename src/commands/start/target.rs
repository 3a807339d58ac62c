//! What a command serves: a folder of models, here or in an object store, or one model file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::anyhow;
use futures_util::future::{self, BoxFuture, FutureExt};
use serde_json::{Map, Value, json};

use super::script::Script;
use crate::cli::is_script;
use crate::commands::{CommandError, USAGE};
use crate::families::{MLMODEL, ModelFamily};
use crate::registry::{ModelFetcher, chain};
use crate::repository::{
    CustomError, CustomRepository, Discovery, Listed, Repository, UnconfiguredModel, is_store_uri, path_of_file_uri,
};
use crate::settings::env::{KSERVE_MODELS_DIR, MODELS_DIR};
use crate::settings::{Environment, MODEL_SETTINGS_FILE, SETTINGS_FILE, SettingSource, SettingsSources};
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
    /// Takes the folder, file or URI from the arguments, else from the environment variables that images set.
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
        let advice = "pass the folder of the models, or a model file";
        match Located::find(&path, &origin, advice, environment)? {
            Located::Store(target) => Ok(target),
            Located::Folder(path) => Ok(Self { folder: path, file: None, script: None, store: None }),
            Located::File { path, absolute } => {
                let file = ModelFile::new(path.clone(), absolute)?;
                Ok(Self { folder: parent(&path), file: Some(file), script: None, store: None })
            }
        }
    }

    /// Takes a folder, which may be in a store.
    ///
    /// # Errors
    ///
    /// Fails if the path is not a folder.
    pub(in crate::commands) fn of_folder(path: &Path, environment: &dyn Environment) -> Result<Self, CommandError> {
        let advice = "pass the folder with the models and their settings";
        match Located::find(path, "", advice, environment)? {
            Located::Store(target) => Ok(target),
            Located::Folder(path) => Ok(Self { folder: path, file: None, script: None, store: None }),
            Located::File { path, .. } => Err(anyhow!("`{}` is not a folder: {advice}", path.display()).into()),
        }
    }

    /// Takes a repository in an object store.
    fn of_store(uri: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("mlserver-{}", uuid::Uuid::new_v4()));
        let models = folder.join("models");
        let store = StoreTarget { uri: Secret::from(uri), _folder: Arc::new(TemporaryFolder(folder)) };
        Self { folder: models, file: None, script: None, store: Some(store) }
    }

    /// Reports whether the models are in a store.
    pub(in crate::commands) const fn is_in_store(&self) -> bool {
        self.store.is_some()
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
        if is_script(path.as_os_str()) && !path.is_dir() && store_uri(path, environment).is_none() {
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
        // The folder of a store only has its settings files.
        if self.is_in_store() { None } else { UnconfiguredModel::suggestion(&self.folder) }
    }

    /// Names the model of a model file as the command line or the environment does, if one of them does.
    #[must_use]
    pub(in crate::commands) fn with_model_name(mut self, sources: &SettingsSources) -> Self {
        if let (Some(file), Some(name)) = (&mut self.file, sources.model_name()) {
            name.clone_into(&mut file.name);
        }
        self
    }

    /// Fails if a class that replaces the folder cannot find the models of this target.
    ///
    /// # Errors
    ///
    /// Fails unless the target is a folder of this machine.
    pub(in crate::commands) fn check_repository_class(&self, class: &str) -> Result<(), CommandError> {
        let what = match self {
            Self { file: Some(_), .. } => "a model file",
            Self { script: Some(_), .. } => "a script",
            Self { store: Some(_), .. } => "a store",
            _ => return Ok(()),
        };
        Err(anyhow!("cannot serve {what} with `model_repository_implementation` (`{class}`): pass a folder").into())
    }

    /// Opens the store that the models are in, if they are not on this machine. `warn` is told what is not read there.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be listed.
    pub(in crate::commands) async fn open_store(
        &self,
        repository: Repository,
        fetcher: &mut ModelFetcher,
        warn: impl FnOnce(&str),
    ) -> Result<Repository, CommandError> {
        let Some(store) = &self.store else { return Ok(repository) };
        let source = fetcher.open_repository(&store.uri, &self.folder).await;
        let source = source.map_err(|error| anyhow!("{}", chain(&error)))?;
        if let Some(warning) = fetcher.repository_warning() {
            warn(&warning);
        }
        Ok(repository.with_source(source))
    }

    /// Names the settings files of a store by their URIs instead of their copies on this machine.
    pub(in crate::commands) fn show_uris(&self, discovery: &mut Discovery) {
        let Some(store) = &self.store else { return };
        let uri = without_credentials(&store.uri);
        let uri_of = |path: &Path| path.strip_prefix(&self.folder).ok().map(|below| Path::new(&uri).join(below));
        for model in &mut discovery.models {
            if let Some(shown) = model.settings.source.as_deref().and_then(uri_of) {
                model.settings.source = Some(shown);
            }
            for entry in &mut model.entries {
                if let SettingSource::File(path) = &mut entry.source
                    && let Some(shown) = uri_of(path)
                {
                    *path = shown.into();
                }
            }
        }
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

/// What is at a path.
enum Located {
    Store(ServeTarget),
    Folder(PathBuf),
    File { path: PathBuf, absolute: PathBuf },
}

impl Located {
    /// Finds what a path or a URI names. `origin` is where it comes from, for errors, and `advice` what else to pass.
    fn find(path: &Path, origin: &str, advice: &str, environment: &dyn Environment) -> Result<Self, CommandError> {
        if let Some(uri) = store_uri(path, environment) {
            return Ok(Self::Store(ServeTarget::of_store(uri)));
        }
        let is_here = environment.working_directory().join(path).exists();
        let of_uri = path.to_str().filter(|_| !is_here).and_then(path_of_file_uri);
        let path = of_uri.map_or_else(|| path.to_owned(), PathBuf::from);
        let absolute: PathBuf = environment.working_directory().join(&path).components().collect();
        match absolute.metadata() {
            Ok(metadata) if metadata.is_dir() => Ok(Self::Folder(path)),
            Ok(_) => Ok(Self::File { path, absolute }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Err(anyhow!("`{}`{origin} does not exist: {advice}", path.display()).into())
            }
            Err(error) => Err(anyhow!("cannot open `{}`{origin}: {error}", path.display()).into()),
        }
    }
}

/// Returns the URI of a store that a command was given instead of a path.
pub(super) fn store_uri<'a>(path: &'a Path, environment: &dyn Environment) -> Option<&'a str> {
    let uri = path.to_str().filter(|text| is_store_uri(text))?;
    (!environment.working_directory().join(path).exists()).then_some(uri)
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
