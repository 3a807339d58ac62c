//! Finds out what a folder needs to be served: only the server, or Python as well.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::compute::ComputePool;
use crate::families::{ModelFamily, NativeEvaluator};
use crate::graphs;
use crate::repository::{Artifact, DiscoveryError, Repository, check_on_disk, is_store_uri};
use crate::runtimes::{self, Backend, Implementation};
use crate::settings::env::MapEnvironment;
use crate::settings::{ModelSettings, Settings, SettingsError, SettingsSources};
use crate::types::without_credentials;

/// The files that describe a conda environment. If there are several, the last one is used.
const CONDA_FILES: [&str; 4] = ["environment.yml", "environment.yaml", "conda.yml", "conda.yaml"];
const REQUIREMENTS: &str = "requirements.txt";

/// What an image contains besides the folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImagePlan {
    /// Only the server, which evaluates this many native models.
    Native(usize),
    Python(PythonImage),
}

/// An image with Python.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PythonImage {
    pub why: PythonReason,
    /// The folder has a `requirements.txt`.
    pub requirements: bool,
    /// The requirements name other files of the folder.
    pub requirements_name_files: bool,
    /// The file that describes a conda environment.
    pub conda: Option<String>,
    /// The packed environments of the models, of which the base image should have the version.
    pub packed: Vec<PathBuf>,
}

/// Why an image needs Python.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PythonReason {
    /// A model's implementation is a class in Python, or the settings ask for it.
    Model(String),
    /// The server cannot evaluate a model's artifact natively.
    Unsupported { model: String, reason: String },
    /// The server's settings name a class for the model repository.
    Repository(String),
    /// The folder has no models, but Python code or files with its requirements.
    Code,
}

/// Returns what to do with a path that is a file.
fn file_advice(path: &Path) -> String {
    let advice = || format!(": `mlserver init --from {}` creates a folder for a model file", path.display());
    if path.is_file() { advice() } else { String::new() }
}

/// Why the needs of a folder cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("`{}` is not a folder{}", path.display(), file_advice(path))]
    NoFolder { path: PathBuf },
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot load model `{model}`")]
    Model { model: String, source: Box<dyn std::error::Error + Send + Sync> },
}

impl fmt::Display for ImagePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native(0) => f.write_str("no models, so only the server"),
            Self::Native(1) => f.write_str("native model, no Python needed"),
            Self::Native(count) => write!(f, "{count} native models, no Python needed"),
            Self::Python(python) => python.why.fmt(f),
        }
    }
}

impl fmt::Display for PythonReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Model(model) => write!(f, "model `{model}` runs in Python"),
            Self::Unsupported { model, reason } => write!(f, "model `{model}` runs in Python: {reason}"),
            Self::Repository(class) => write!(f, "model repository `{class}` runs in Python"),
            Self::Code => f.write_str("the folder has Python code"),
        }
    }
}

impl ImagePlan {
    /// Plans the image of a folder from its settings and models. Reads the artifacts of native models, and runs no code.
    ///
    /// Ignores the environment variables of this process, which the image does not have.
    ///
    /// # Errors
    ///
    /// Fails if settings cannot be read, or the artifact of a native model is missing or damaged.
    pub fn of(folder: &Path) -> Result<Self, PlanError> {
        Self::with_models(folder, &BTreeMap::new())
    }

    /// Plans the image of a folder, some of whose models have their artifacts elsewhere, by the paths of their settings files.
    ///
    /// # Errors
    ///
    /// Fails as [`Self::of`] does.
    pub fn with_models(folder: &Path, artifacts: &BTreeMap<PathBuf, PathBuf>) -> Result<Self, PlanError> {
        let absolute = fs::canonicalize(folder).map_err(|_| PlanError::NoFolder { path: folder.to_owned() })?;
        if !absolute.is_dir() {
            return Err(PlanError::NoFolder { path: folder.to_owned() });
        }
        let sources = SettingsSources::read(&MapEnvironment::new(&absolute))?;
        let settings = Settings::load(&absolute, &sources, false)?.settings;
        let mut discovery = Repository::new(&absolute, sources, false).discover();
        for model in &mut discovery.models {
            let artifact = model.settings.source.as_ref().and_then(|source| artifacts.get(source));
            if let Some(artifact) = artifact {
                model.settings.parameters.uri = Some(artifact.to_string_lossy().into_owned());
            }
        }
        if let Some(error) = discovery.errors.into_iter().next() {
            return Err(error.into());
        }
        let present = |name: &str| absolute.join(name).is_file();
        let conda = CONDA_FILES.into_iter().rfind(|name| present(name)).map(str::to_owned);
        let packed = discovery.models.iter().filter_map(|model| {
            let archive = model.settings.parameters.environment_tarball.as_ref()?;
            Some(model.settings.folder().unwrap_or(&absolute).join(archive))
        });
        let packed = packed.collect();
        let mut why = settings.model_repository_implementation.map(PythonReason::Repository);
        for model in &discovery.models {
            why = why.map_or_else(|| PythonReason::of(&model.settings, &absolute), |why| Ok(Some(why)))?;
        }
        if discovery.models.is_empty()
            && why.is_none()
            && (conda.is_some() || present(REQUIREMENTS) || has_code(&absolute)?)
        {
            why = Some(PythonReason::Code);
        }
        let Some(why) = why else { return Ok(Self::Native(discovery.models.len())) };
        let path = absolute.join(REQUIREMENTS);
        let requirements = path.is_file();
        let requirements_name_files = requirements && {
            let text = super::read_own(&absolute, &path).map_err(|source| PlanError::Read { path, source })?;
            refer_to_files(&String::from_utf8_lossy(&text))
        };
        Ok(Self::Python(PythonImage { why, requirements, requirements_name_files, conda, packed }))
    }

    /// Returns the packed environments of the models that need Python.
    pub fn packed(&self) -> &[PathBuf] {
        match self {
            Self::Native(_) => &[],
            Self::Python(python) => &python.packed,
        }
    }

    /// Reports whether the folder lists packages that the image does not install.
    pub fn omits_packages(&self, folder: &Path) -> bool {
        matches!(self, Self::Native(_))
            && CONDA_FILES.iter().chain([&REQUIREMENTS]).any(|name| folder.join(name).is_file())
    }
}

/// Returns the models of a folder that the server fetches from object stores.
///
/// # Errors
///
/// Fails if the settings of the folder cannot be read.
pub fn remote_models(folder: &Path) -> Result<Vec<ModelSettings>, PlanError> {
    let absolute = fs::canonicalize(folder).map_err(|_| PlanError::NoFolder { path: folder.to_owned() })?;
    let sources = SettingsSources::read(&MapEnvironment::new(&absolute))?;
    let models = Repository::new(&absolute, sources, false).discover().models.into_iter().map(|model| model.settings);
    let is_remote = |model: &ModelSettings| {
        let uri = model.parameters.uri.as_deref();
        uri.is_some_and(is_store_uri) && ModelFamily::of(&model.implementation).is_some()
    };
    Ok(models.filter(is_remote).collect())
}

impl PythonReason {
    /// Returns why a model needs Python, or `None` if it does not, as loading it would decide. Reads the artifact of a native model.
    ///
    /// The paths of models without a settings file are relative to `folder`.
    ///
    /// # Errors
    ///
    /// Fails if the model cannot be loaded, with or without Python.
    pub fn of(settings: &ModelSettings, folder: &Path) -> Result<Option<Self>, PlanError> {
        let model = || settings.name.clone();
        let failed = |source| PlanError::Model { model: model(), source };
        let implementation = Implementation::of(settings).map_err(|error| failed(error.into()))?;
        let Implementation::Native(evaluator) = implementation else { return Ok(Some(Self::Model(model()))) };
        let artifact = if evaluator.needs_artifact() {
            Artifact::resolve(settings, folder).map_err(|error| failed(error.into()))?
        } else {
            Artifact::Path(PathBuf::new())
        };
        let path = match artifact {
            Artifact::Path(path) => path,
            // MLflow itself resolves its URIs.
            Artifact::Remote(_)
                if evaluator == NativeEvaluator::Mlflow && matches!(Backend::of(settings), Ok(Backend::Auto)) =>
            {
                return Ok(Some(Self::Model(model())));
            }
            // It is fetched when the image runs. Only then is known whether the server can evaluate it.
            Artifact::Remote(uri) if is_store_uri(&uri) => return Ok(None),
            Artifact::Remote(uri) => {
                return Err(failed(
                    format!("its artifact `{}` is not in the folder", without_credentials(&uri)).into(),
                ));
            }
        };
        check_on_disk(&path).map_err(|error| failed(error.into()))?;
        if evaluator == NativeEvaluator::Graph {
            // The models of its steps decide for themselves.
            return graphs::read_manifest(settings, &path).map(|_| None).map_err(|error| failed(error.into()));
        }
        let compute = ComputePool::for_this_machine();
        let loaded = runtimes::load_native(evaluator, settings, &path, &compute).map(drop);
        match loaded.or_else(|error| runtimes::or_network(evaluator, &path, error).map(drop)) {
            Ok(()) => Ok(None),
            Err(error) if error.is_unsupported() && matches!(Backend::of(settings), Ok(Backend::Auto)) => {
                let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
                Ok(Some(Self::Unsupported { model: model(), reason }))
            }
            Err(error) => Err(failed(error.into())),
        }
    }
}

/// Reports whether the folder has Python files at its top level.
fn has_code(folder: &Path) -> Result<bool, PlanError> {
    let failed = |source| PlanError::Read { path: folder.to_owned(), source };
    let mut entries = fs::read_dir(folder).map_err(failed)?;
    Ok(entries
        .any(|entry| entry.is_ok_and(|entry| Path::new(&entry.file_name()).extension().is_some_and(|e| e == "py"))))
}

/// Reports whether requirements refer to local files.
fn refer_to_files(requirements: &str) -> bool {
    requirements.lines().map(str::trim).any(|line| {
        let flags = ["-r", "-c", "-e", "-f", "--requirement", "--constraint", "--editable", "--find-links"];
        let is_file = |word: &str| {
            word.starts_with('.') || word.starts_with('/') || word.contains("file:") || {
                [".whl", ".tar.gz"].iter().any(|suffix| word.ends_with(suffix)) && !word.contains("://")
            }
        };
        !line.starts_with('#')
            && (flags.iter().any(|flag| line.starts_with(flag)) || line.split_whitespace().any(is_file))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_with_local_files_are_detected() {
        for text in
            ["-r base.txt", "numpy\n  --constraint=c.txt", "./wheels/a.whl", "a @ file:a.tar.gz", "-e .", "b.whl"]
        {
            assert!(refer_to_files(text), "{text}");
        }
        let plain = "# -r base.txt\nnumpy>=1.21,<3\nscipy ; python_version < '3.9'\na @ https://host/a.whl\n--pre\n--extra-index-url https://h/s";
        assert!(!refer_to_files(plain));
    }
}
