//! The settings of a model: `model-settings.json`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::convert;
use super::env::SettingsSources;
use super::file;
use super::problem::{FileError, SettingsError, SettingsProblem, SettingsWarning};
use super::resolve::{Layer, LoadedSettings, Resolver};
use super::source::SettingSource;
use super::table::{MODEL, MODEL_PREFIX};
use crate::types::{ModelMetadata, Parameters, TensorMetadata};

/// The file that makes a folder the folder of a model.
pub const MODEL_SETTINGS_FILE: &str = "model-settings.json";

/// The effective settings of one version of a model. The table `MODEL` describes each of them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelSettings {
    /// Empty only if the model is described by the environment and has no name.
    pub name: String,
    pub implementation: String,
    pub platform: String,
    pub versions: Vec<String>,
    pub inputs: Vec<TensorMetadata>,
    pub outputs: Vec<TensorMetadata>,
    #[serde(deserialize_with = "convert::count")]
    pub max_batch_size: usize,
    #[serde(deserialize_with = "convert::seconds")]
    pub max_batch_time: Duration,
    pub parameters: ModelParameters,
    pub cache_enabled: bool,
    /// Inference requests in their JSON form.
    pub warmup: Vec<Value>,
    pub parallel_workers: Option<i64>,
    pub warm_workers: bool,
    /// The absolute path of the file; `None` for a model that is described by the environment.
    #[serde(skip)]
    pub source: Option<PathBuf>,
    /// Environment variables of its workers, in addition to the server's: those of a step's container.
    #[serde(skip)]
    pub variables: BTreeMap<String, String>,
    /// The models that were created for the steps of a graph and do not have the names of their steps, by the paths of the steps in the
    /// manifest.
    #[serde(skip)]
    pub step_models: BTreeMap<String, String>,
}

/// The location of a model, and the parameters of its runtime. The table `PARAMETERS` describes each of them.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelParameters {
    #[serde(deserialize_with = "convert::non_empty")]
    pub uri: Option<String>,
    /// `None` for an unversioned model.
    #[serde(deserialize_with = "convert::non_empty")]
    pub version: Option<String>,
    pub content_type: Option<String>,
    pub format: Option<String>,
    pub environment_tarball: Option<PathBuf>,
    pub environment_path: Option<PathBuf>,
    pub inference_pool_gid: Option<String>,
    pub autogenerate_inference_pool_gid: bool,
    /// The number of workers of its pool that load the model; `None` for all of them.
    pub workers: Option<usize>,
    /// How many calls of a plain function a worker runs at a time.
    pub threads: usize,
    /// Whether requests must have the inputs that the settings, or the model itself, declare.
    pub validate_inputs: bool,
    /// `None` if the server's `max_in_flight` is the only limit.
    pub max_queue_requests: Option<usize>,
    pub max_queue_bytes: usize,
    /// `None` if the size of the artifact is used instead.
    pub memory_bytes: Option<u64>,
    /// Whether the model is never evicted from memory.
    pub pinned: bool,
    /// How long requests should wait at most under sustained load. Zero means that none are shed.
    #[serde(deserialize_with = "convert::seconds")]
    pub queue_target: Duration,
    #[serde(deserialize_with = "convert::optional_seconds")]
    pub queue_timeout: Option<Duration>,
    #[serde(deserialize_with = "convert::optional_seconds")]
    pub predict_timeout: Option<Duration>,
    #[serde(deserialize_with = "convert::optional_seconds")]
    pub request_timeout: Option<Duration>,
    pub extra: Map<String, Value>,
    /// The keys that are in no table, as they are in the file.
    pub extras: Map<String, Value>,
}

impl ModelSettings {
    /// Creates the settings of a model with defaults for everything else.
    pub fn new(name: &str, implementation: &str) -> Self {
        let layer = Layer {
            object: Map::from_iter([
                ("name".to_owned(), Value::from(name)),
                ("implementation".to_owned(), Value::from(implementation)),
            ]),
            source: SettingSource::Default,
        };
        Resolver::new(&SettingsSources::empty(), false)
            .finish(&MODEL, &[layer])
            .expect("the defaults of the table are valid")
            .settings
    }

    /// Reads a settings file. The name and the artifact default to its folder.
    pub fn load(path: &Path, sources: &SettingsSources, strict: bool) -> Result<LoadedSettings<Self>, SettingsError> {
        let path: PathBuf = sources.working_directory().join(path).components().collect();
        let missing = || FileError::Read { path: path.clone(), error: io::ErrorKind::NotFound.into() };
        let object =
            file::read_object(&path).and_then(|object| object.ok_or_else(missing)).map_err(SettingsProblem::File)?;
        let layer = Layer { object, source: SettingSource::File(path.as_path().into()) };
        let mut loaded: LoadedSettings<Self> = Resolver::new(sources, strict).finish(&MODEL, &[layer])?;
        loaded.set_folder_defaults(path);
        Ok(loaded)
    }

    /// Reads the model that the environment describes, or returns `None` if no implementation is set.
    pub fn from_environment(
        sources: &SettingsSources,
        strict: bool,
    ) -> Result<Option<LoadedSettings<Self>>, SettingsError> {
        let implementation = format!("{MODEL_PREFIX}IMPLEMENTATION");
        if sources.lookup(&implementation).next().is_none_or(|(name, _)| name.is_empty()) {
            return Ok(None);
        }
        Resolver::new(sources, strict).finish(&MODEL, &[]).map(Some)
    }

    /// Reads the model that is found in a folder without a settings file. The environment describes the rest.
    pub fn from_artifact(
        implementation: Option<&str>,
        name: Option<&str>,
        artifact: &Path,
        sources: &SettingsSources,
        strict: bool,
    ) -> Result<LoadedSettings<Self>, SettingsError> {
        let mut object = Map::from_iter([("parameters".to_owned(), json!({"uri": artifact.to_string_lossy()}))]);
        object.extend(implementation.map(|value| ("implementation".to_owned(), Value::from(value))));
        object.extend(name.map(|value| ("name".to_owned(), Value::from(value))));
        let layer = Layer { object, source: SettingSource::Folder };
        Resolver::new(sources, strict).finish(&MODEL, &[layer])
    }

    /// Reads settings that a custom repository class returned. Their paths are relative to the folder of `source`.
    pub fn from_repository(
        object: Map<String, Value>,
        source: Option<PathBuf>,
        sources: &SettingsSources,
        strict: bool,
    ) -> Result<LoadedSettings<Self>, SettingsError> {
        let layer = Layer { object, source: SettingSource::Repository };
        let mut loaded: LoadedSettings<Self> = Resolver::new(sources, strict).finish(&MODEL, &[layer])?;
        loaded.settings.source = source.map(|path| sources.working_directory().join(path).components().collect());
        Ok(loaded)
    }

    /// Returns the version, or `None` for an unversioned model.
    pub fn version(&self) -> Option<&str> {
        self.parameters.version.as_deref()
    }

    /// Returns the folder of the settings file, against which its paths are resolved.
    pub fn folder(&self) -> Option<&Path> {
        self.source.as_deref().and_then(Path::parent)
    }
}

impl ModelMetadata {
    /// Returns the metadata that a model's settings declare.
    pub fn declared(settings: &ModelSettings) -> Self {
        let content_type = settings.parameters.content_type.clone();
        Self {
            name: settings.name.clone(),
            versions: settings.versions.clone(),
            platform: settings.platform.clone(),
            inputs: settings.inputs.clone(),
            outputs: settings.outputs.clone(),
            parameters: content_type.map(Parameters::with_content_type).unwrap_or_default(),
        }
    }
}

impl LoadedSettings<ModelSettings> {
    /// Sets the values that default to the folder of the settings file.
    fn set_folder_defaults(&mut self, path: PathBuf) {
        let Some(folder) = path.parent().map(Path::to_owned) else {
            return;
        };
        let folder_name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
        if self.settings.name.is_empty() {
            if let Some(name) = folder_name {
                self.show("name", name.as_str(), SettingSource::Folder);
                self.settings.name = name;
            }
        } else {
            let name = Some(self.settings.name.as_str());
            if name != folder_name.as_deref() && self.settings.version() != folder_name.as_deref() {
                self.warnings
                    .push(SettingsWarning::NameDiffers { name: self.settings.name.clone(), folder: folder.clone() });
            }
        }
        if self.settings.parameters.uri.is_none() {
            let uri = folder.to_string_lossy().into_owned();
            self.show("parameters.uri", uri.as_str(), SettingSource::Folder);
            self.settings.parameters.uri = Some(uri);
        }
        self.settings.source = Some(path);
    }
}
