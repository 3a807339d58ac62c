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
use super::table::{MODEL, MODEL_PREFIX, PARAMETERS, TENSOR, settings};
use crate::types::{ModelMetadata, Parameters, TensorMetadata};

/// The file that makes a folder the folder of a model.
pub const MODEL_SETTINGS_FILE: &str = "model-settings.json";

settings! {
    /// The effective settings of one version of a model.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ModelSettings {
        /// Name of the model; defaults to the name of its folder
        ///
        /// Empty only if the model is described by the environment and has no name.
        name: String = [Text, Text("")],
        /// Import path of the runtime, for example `mlserver_xgboost.XGBoostModel`
        implementation: String = [Text, Required],
        /// Platform in the model metadata
        platform: String = [Text, Text("")],
        /// Versions of dependencies in the model metadata
        versions: Vec<String> = [TextList, TextList(&[])],
        /// Inputs in the model metadata
        inputs: Vec<TensorMetadata> = [GroupList(&TENSOR), TextList(&[])],
        /// Outputs in the model metadata
        outputs: Vec<TensorMetadata> = [GroupList(&TENSOR), TextList(&[])],
        /// Maximum number of requests in a batch; 0 and 1 disable batching
        max_batch_size: usize = [COUNT, Int(0)],
        /// Maximum seconds that a request waits for a batch to fill; 0 disables batching
        #[serde(deserialize_with = "convert::seconds")]
        max_batch_time: Duration = [seconds(f64::NEG_INFINITY), Float(0.0)],
        /// Location of the model, and parameters of its runtime
        parameters: ModelParameters = [Group(&PARAMETERS), EmptyObject, null_is_preset],
        /// Cache responses of the model, if the server's cache is enabled
        cache_enabled: bool = [Bool, Bool(false)],
        /// Sample requests that the model must answer before it is ready
        ///
        /// Inference requests in their JSON form.
        warmup: Vec<Value> = [ObjectList, TextList(&[]), new_here],
        /// Deprecated; 0 gives the model a worker that runs plain functions inline
        parallel_workers: Option<i64> = [
            ANY_INT, Null, in_original("0 or less runs the model in the server's process"),
            positive_has_no_effect("the server's `parallel_workers` is that of every pool")
        ],
        /// Deprecated
        warm_workers: bool = [Bool, Bool(false), no_effect("workers are always warm")],
        internal {
            /// The absolute path of the file; `None` for a model that is described by the environment.
            #[serde(skip)]
            pub source: Option<PathBuf>,
            /// Environment variables of its workers, in addition to the server's: those of a step's container.
            #[serde(skip)]
            pub variables: BTreeMap<String, String>,
            /// The models that were created for the steps of a graph and do not have the names of their steps, by the paths of the steps in
            /// the manifest.
            #[serde(skip)]
            pub step_models: BTreeMap<String, String>,
        }
    }
}

settings! {
    /// The location of a model, and the parameters of its runtime.
    #[derive(Debug, Clone, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct ModelParameters {
        /// File or folder of the artifact; defaults to the folder of the settings file
        #[serde(deserialize_with = "convert::non_empty")]
        uri: Option<String> = [Text, Null],
        /// Version of the model
        ///
        /// `None` for an unversioned model.
        #[serde(deserialize_with = "convert::non_empty")]
        version: Option<String> = [Text, Null],
        /// Default content type of requests
        content_type: Option<String> = [Text, Null],
        /// Format of an MLlib model
        format: Option<String> = [Text, Null],
        /// Packed Python environment, relative to the settings file
        environment_tarball: Option<PathBuf> = [Text, Null],
        /// Folder of a Python environment, relative to the working directory
        environment_path: Option<PathBuf> = [Text, Null],
        /// Group of models that share a worker pool
        inference_pool_gid: Option<String> = [Text, Null],
        /// Give the model its own worker pool
        autogenerate_inference_pool_gid: bool = [Bool, Bool(false)],
        /// Number of workers that load the model; all workers of its pool by default
        workers: Option<usize> = [POSITIVE, Null, new_here],
        /// Predictions that a worker runs at a time; in Python, calls of a plain `predict`
        ///
        /// `None` is 1 in Python, and in a native worker the cores that others leave.
        threads: Option<usize> = [int(1, 64), Null, new_here],
        /// Evaluate a native model in a process of its own, so that its end is not that of the server
        isolate: bool = [Bool, Bool(false), new_here],
        /// Memory of a worker of the model in bytes; defaults to the server's `worker_memory_limit`
        worker_memory_limit: Option<u64> = [POSITIVE, Null, new_here],
        /// Reject requests that do not match the declared inputs
        ///
        /// Whether requests must have the inputs that the settings, or the model itself, declare.
        validate_inputs: bool = [Bool, Bool(false), new_here],
        /// Maximum number of queued requests; more are rejected with 503
        ///
        /// `None` if the server's `max_in_flight` is the only limit.
        max_queue_requests: Option<usize> = [POSITIVE, Null, new_here],
        /// Maximum size of all queued inputs in bytes; more are rejected with 503
        max_queue_bytes: usize = [POSITIVE, Int(1 << 30), new_here],
        /// Memory of the model in bytes, for `models_max_bytes`; defaults to the size of its artifact
        memory_bytes: Option<u64> = [POSITIVE, Null, new_here],
        /// Never evict the model from memory, regardless of `models_max_bytes`
        pinned: bool = [Bool, Bool(false), new_here],
        /// Maximum seconds in the queue; then the request fails with 503
        #[serde(deserialize_with = "convert::optional_seconds")]
        queue_timeout: Option<Duration> = [TIMEOUT, Null, new_here],
        /// Maximum seconds that requests should wait under sustained load; more are rejected with 503; 0 disables it
        #[serde(deserialize_with = "convert::seconds")]
        queue_target: Duration = [SECONDS, Float(0.5), new_here],
        /// Maximum seconds of a prediction; then it fails with 504, and a stuck worker is replaced
        #[serde(deserialize_with = "convert::optional_seconds")]
        predict_timeout: Option<Duration> = [TIMEOUT, Null, new_here],
        /// Maximum seconds from request to response; then it fails with 504
        #[serde(deserialize_with = "convert::optional_seconds")]
        request_timeout: Option<Duration> = [TIMEOUT, Null, new_here],
        /// Settings that only the runtime reads
        extra: Map<String, Value> = [Object, EmptyObject, null_is_preset],
        internal {
            /// The keys that are in no table, as they are in the file.
            pub extras: Map<String, Value>,
        }
    }
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
