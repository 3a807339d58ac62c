//! The models that are served: name and version to a loaded model, and whether each is ready.
//!
//! Requests read a snapshot without locks. Every change makes a new snapshot, so a request that holds a model keeps it
//! whatever happens to the registry. A reload replaces a model only when the new one has been loaded.

mod loader;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;

use crate::repository::{self, ArtefactError};
use crate::runtimes::{self, Runtime};
use crate::settings::ModelSettings;
use crate::telemetry::inference::{InferenceMetrics, ModelMetrics};
use crate::types::{ModelMetadata, Parameters, TensorMetadata};

pub use loader::{Loader, RuntimeLoader};

/// A name or version that is not in the registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    #[error("Model {name} not found")]
    Model { name: String },
    #[error("Model {name} with version {version} not found")]
    Version { name: String, version: String },
}

/// Why a model is not in the registry as ready.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Artefact(#[from] ArtefactError),
    #[error("the artefact `{uri}` is not on this machine; native runtimes read local files")]
    Remote { uri: String },
    #[error(transparent)]
    Runtime(#[from] runtimes::LoadError),
    #[error("loading ended unexpectedly; this is a bug in mlserver")]
    Panicked(#[source] tokio::task::JoinError),
}

/// What a model is doing.
#[derive(Debug, Clone)]
pub enum State {
    Loading,
    Ready(Arc<dyn Runtime>),
    Failed { reason: String },
}

impl State {
    /// Returns the name that readiness shows.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Loading => "LOADING",
            Self::Ready(_) => "READY",
            Self::Failed { .. } => "FAILED",
        }
    }

    pub const fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(_))
    }
}

/// One version of a model.
#[derive(Debug)]
pub struct Model {
    pub name: String,
    pub version: Option<String>,
    pub state: State,
    pub metadata: ModelMetadata,
    metrics: ModelMetrics,
    metrics_as_default: ModelMetrics,
    /// The name as transports send it in headers; nothing when no header can hold it.
    header: Option<HeaderValue>,
    /// The headers that all answers of this model share, as the transport with headers makes them once.
    pub answer_headers: OnceLock<HeaderMap>,
}

impl Model {
    fn new(settings: &ModelSettings, state: State, metrics: &InferenceMetrics) -> Self {
        let version = settings.parameters.version.clone();
        Self {
            metadata: metadata(settings, &state),
            metrics: metrics.of_model(&settings.name, version.as_deref()),
            metrics_as_default: metrics.of_model(&settings.name, None),
            header: HeaderValue::from_bytes(settings.name.as_bytes()).ok(),
            answer_headers: OnceLock::new(),
            name: settings.name.clone(),
            version,
            state,
        }
    }

    /// Returns the metrics of requests that asked for this model with or without its version.
    pub const fn metrics(&self, with_version: bool) -> &ModelMetrics {
        if with_version { &self.metrics } else { &self.metrics_as_default }
    }

    /// Returns the name as a header's value, when it can be one.
    pub const fn header(&self) -> Option<&HeaderValue> {
        self.header.as_ref()
    }

    /// Tells whether the model looks at the headers of requests.
    pub fn reads_headers(&self) -> bool {
        matches!(&self.state, State::Ready(runtime) if runtime.reads_headers())
    }

    /// Returns how log lines and messages call it: the name, or name and version.
    pub fn label(&self) -> String {
        self.version.as_ref().map_or_else(|| self.name.clone(), |version| format!("{}:{version}", self.name))
    }
}

fn metadata(settings: &ModelSettings, state: &State) -> ModelMetadata {
    let tensors = |tensors: &[crate::settings::TensorMetadata]| {
        tensors
            .iter()
            .map(|tensor| TensorMetadata {
                name: tensor.name.clone(),
                datatype: tensor.datatype.clone(),
                shape: tensor.shape.clone(),
                parameters: Parameters::from(tensor.parameters.clone()),
            })
            .collect()
    };
    let mut parameters =
        settings.parameters.content_type.clone().map(Parameters::with_content_type).unwrap_or_default();
    if let State::Ready(runtime) = state {
        parameters.others.insert("backend".to_owned(), runtime.backend().into());
    }
    ModelMetadata {
        name: settings.name.clone(),
        versions: settings.versions.clone(),
        platform: settings.platform.clone(),
        inputs: tensors(&settings.inputs),
        outputs: tensors(&settings.outputs),
        parameters,
    }
}

/// The versions of one name.
#[derive(Debug, Clone, Default)]
struct Versions {
    all: BTreeMap<Option<String>, Arc<Model>>,
    default: Option<Arc<Model>>,
}

impl Versions {
    fn put(&mut self, model: Arc<Model>) {
        self.all.insert(model.version.clone(), model);
        let versions = self.all.keys().map(Option::as_deref);
        let default = repository::default_version(versions).map(|version| version.map(str::to_owned));
        self.default = default.and_then(|version| self.all.get(&version)).cloned();
    }
}

type Snapshot = BTreeMap<String, Versions>;

/// All models of the server. Clones share it.
#[derive(Debug, Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    snapshot: ArcSwap<Snapshot>,
    /// Held while a new snapshot is made from the current one.
    edit: Mutex<()>,
    loader: Box<dyn Loader>,
    metrics: InferenceMetrics,
}

impl Registry {
    /// Makes an empty registry.
    pub fn new(loader: impl Loader + 'static, metrics: InferenceMetrics) -> Self {
        let snapshot = ArcSwap::from_pointee(Snapshot::new());
        let (edit, loader) = (Mutex::new(()), Box::new(loader));
        Self { shared: Arc::new(Shared { snapshot, edit, loader, metrics }) }
    }

    /// Finds a model by name, and by version or the name's default version.
    ///
    /// # Errors
    ///
    /// Fails in the original's words when there is none.
    pub fn find(&self, name: &str, version: Option<&str>) -> Result<Arc<Model>, NotFound> {
        let snapshot = self.shared.snapshot.load();
        let versions = snapshot.get(name);
        let found = match version {
            None => versions.and_then(|versions| versions.default.as_ref()),
            // A plain scan spares the key's allocation; a name has few versions.
            Some(version) => versions
                .and_then(|versions| versions.all.values().find(|model| model.version.as_deref() == Some(version))),
        };
        found.cloned().ok_or_else(|| match version {
            None => NotFound::Model { name: name.to_owned() },
            Some(version) => NotFound::Version { name: name.to_owned(), version: version.to_owned() },
        })
    }

    /// Returns every version of every model, by name and version.
    pub fn models(&self) -> Vec<Arc<Model>> {
        self.shared.snapshot.load().values().flat_map(|versions| versions.all.values().cloned()).collect()
    }

    /// Counts a request for a model that does not exist.
    pub fn count_unknown_model(&self) {
        self.shared.metrics.count_unknown_model();
    }

    /// Lists a model as loading, so that readiness waits for it.
    pub fn announce(&self, settings: &ModelSettings) {
        if self.find_exact(settings).is_none() {
            self.put(settings, State::Loading);
        }
    }

    /// Loads a model, or loads it again and replaces it when that has worked.
    ///
    /// # Errors
    ///
    /// A model that was ready stays as it was. Any other is listed as failed, with the reason.
    pub async fn load(&self, settings: ModelSettings) -> Result<Arc<Model>, LoadError> {
        self.announce(&settings);
        match self.shared.loader.load(settings.clone()).await {
            Ok(runtime) => Ok(self.put(&settings, State::Ready(runtime))),
            Err(error) => {
                if self.find_exact(&settings).is_none_or(|model| !model.state.is_ready()) {
                    self.put(&settings, State::Failed { reason: chain(&error) });
                }
                Err(error)
            }
        }
    }

    fn find_exact(&self, settings: &ModelSettings) -> Option<Arc<Model>> {
        let snapshot = self.shared.snapshot.load();
        snapshot.get(&settings.name)?.all.get(&settings.parameters.version).cloned()
    }

    fn put(&self, settings: &ModelSettings, state: State) -> Arc<Model> {
        let model = Arc::new(Model::new(settings, state, &self.shared.metrics));
        let edit = self.shared.edit.lock();
        let mut snapshot = Snapshot::clone(&self.shared.snapshot.load());
        snapshot.entry(settings.name.clone()).or_default().put(Arc::clone(&model));
        self.shared.snapshot.store(Arc::new(snapshot));
        drop(edit);
        model
    }
}

/// Returns an error and its causes as one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
