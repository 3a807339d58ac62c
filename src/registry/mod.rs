//! The models that are served: name and version to a loaded model, and whether each is ready.
//!
//! Requests read a snapshot without locks. Every change makes a new snapshot, so a request that holds a model keeps it
//! whatever happens to the registry. A model is loaded and warmed where nobody can reach it, and then takes its place in
//! one step; until then, what it replaces goes on serving.

mod budget;
mod loader;
mod queue;
mod routes;
mod warm_up;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, Method};
use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::warn;

use crate::repository::{self, ArtifactError};
use crate::runtimes::{self, Runtime};
use crate::settings::ModelSettings;
use crate::telemetry::inference::{InferenceMetrics, ModelMetrics};
use crate::types::{ModelMetadata, Parameters, TensorMetadata};

pub use crate::runtimes::RuntimeStatus;
pub use budget::{BudgetLoader, TooLarge};
pub use loader::{Loader, Loading, RuntimeLoader};
pub use queue::{QueueFull, RequestQueue};
pub use routes::{CustomMatch, CustomTarget};
pub use warm_up::SampleError;

use routes::Routes;

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
    Artifact(#[from] ArtifactError),
    /// The model has a route of its own that the protocol has already, or that lies below a reserved prefix.
    #[error("the model's route `{route}` is reserved by the server: choose another path")]
    Reserved { route: String },
    #[error("the artifact `{uri}` is not on this machine; native runtimes read local files")]
    Remote { uri: String },
    #[error(transparent)]
    Runtime(#[from] runtimes::LoadError),
    /// The native runtime refuses the artifact, and Python cannot serve it either.
    #[error("{refusal}; nor does Python serve it")]
    Neither { refusal: String, source: runtimes::LoadError },
    /// There is no room for it in the memory of models.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    /// Whoever wanted it has left before there was room.
    #[error("nobody waits for the model any more")]
    NotWanted,
    #[error("loading ended unexpectedly; this is a bug in mlserver")]
    Panicked(#[source] tokio::task::JoinError),
    #[error("the model was loaded but cannot answer")]
    WarmUp(#[source] runtimes::RuntimeError),
    /// One of the requests of the setting `warmup` was not answered.
    #[error("the model was loaded but does not answer `warmup[{index}]` of its settings")]
    Sample { index: usize, source: SampleError },
}

/// What a model is doing.
#[derive(Debug, Clone)]
pub enum ModelState {
    Loading,
    Ready(Arc<dyn Runtime>),
    Failed { reason: String },
}

impl ModelState {
    /// Returns the name that readiness shows.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Loading => "LOADING",
            Self::Ready(runtime) if runtime.status().is_available() => "READY",
            Self::Ready(_) => "UNAVAILABLE",
            Self::Failed { .. } => "FAILED",
        }
    }

    /// Tells whether the model can answer now.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(runtime) if runtime.status().is_available())
    }
}

/// How long a model's requests may take; nothing is for ever.
#[derive(Debug, Clone, Copy, Default)]
pub struct Timeouts {
    /// From admission until the prediction begins.
    pub queue: Option<Duration>,
    /// From there until it ends.
    pub predict: Option<Duration>,
    /// From admission to the answer.
    pub request: Option<Duration>,
}

impl Timeouts {
    fn of(settings: &ModelSettings) -> Self {
        let parameters = &settings.parameters;
        let (queue, predict, request) =
            (parameters.queue_timeout, parameters.predict_timeout, parameters.request_timeout);
        Self { queue, predict, request }
    }
}

/// One version of a model.
#[derive(Debug)]
pub struct RegisteredModel {
    pub name: String,
    pub version: Option<String>,
    pub state: ModelState,
    pub metadata: ModelMetadata,
    /// The server is ready only when this model is. A model that it was told to load, and that is not there yet, is not
    /// required: a load that takes long, or fails, is no reason to take the others out of service.
    pub required: bool,
    /// Differs for every load: what was remembered of one load holds for no other.
    pub generation: u64,
    /// Its answers may be given again.
    pub cached: bool,
    /// Its requests are held against the inputs of its metadata.
    pub validated: bool,
    /// What waits for it.
    pub queue: RequestQueue,
    pub timeouts: Timeouts,
    /// The settings file; nothing for a model of the environment.
    pub source: Option<PathBuf>,
    metrics: ModelMetrics,
    metrics_as_default: ModelMetrics,
    /// The name as transports send it in headers; nothing when no header can hold it.
    header: Option<HeaderValue>,
    /// The headers that all answers of this model share, as the transport with headers makes them once.
    pub response_headers: OnceLock<HeaderMap>,
}

impl RegisteredModel {
    /// Returns the metrics of requests that asked for this model with or without its version.
    pub const fn metrics(&self, with_version: bool) -> &ModelMetrics {
        if with_version { &self.metrics } else { &self.metrics_as_default }
    }

    /// Tells whether the server is not ready because of this model.
    pub fn delays_readiness(&self) -> bool {
        self.required && !self.state.is_ready()
    }

    /// Returns the name as a header's value, when it can be one.
    pub const fn header(&self) -> Option<&HeaderValue> {
        self.header.as_ref()
    }

    /// Tells whether the model looks at the headers of requests.
    pub fn reads_headers(&self) -> bool {
        matches!(&self.state, ModelState::Ready(runtime) if runtime.description().reads_headers)
    }

    /// Returns how log lines and messages call it: the name, or name and version.
    pub fn label(&self) -> String {
        self.version.as_ref().map_or_else(|| self.name.clone(), |version| format!("{}:{version}", self.name))
    }
}

/// What the settings say, or the model itself where it has something to say.
fn metadata(settings: &ModelSettings, state: &ModelState) -> ModelMetadata {
    let ModelState::Ready(runtime) = state else { return metadata_of(settings) };
    let description = runtime.description();
    let mut metadata = description.metadata.clone().unwrap_or_else(|| metadata_of(settings));
    metadata.parameters.others.insert("backend".to_owned(), description.backend.into());
    metadata
}

fn metadata_of(settings: &ModelSettings) -> ModelMetadata {
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
    let parameters = settings.parameters.content_type.clone().map(Parameters::with_content_type).unwrap_or_default();
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
type ByVersion = BTreeMap<Option<String>, Arc<RegisteredModel>>;

/// The versions of one name, and the one that answers when none is asked for.
#[derive(Debug, Clone, Default)]
struct Versions {
    all: ByVersion,
    default: Option<Arc<RegisteredModel>>,
}

impl From<ByVersion> for Versions {
    fn from(all: ByVersion) -> Self {
        let default = repository::default_version(all.keys().map(Option::as_deref));
        let default = default.map(|version| version.map(str::to_owned));
        let default = default.and_then(|version| all.get(&version)).cloned();
        Self { all, default }
    }
}

/// What requests see at one moment.
#[derive(Debug, Clone, Default)]
struct Snapshot {
    models: BTreeMap<String, Versions>,
    routes: Routes,
}

/// A model that is loaded and warm, and that nobody can reach yet. Dropped, it is gone.
#[derive(Debug)]
pub struct PreparedModel {
    settings: ModelSettings,
    runtime: Arc<dyn Runtime>,
}

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
    /// How many models have been made.
    generations: AtomicU64,
    loader: Box<dyn Loader>,
    metrics: InferenceMetrics,
    changes: watch::Sender<()>,
}

impl Registry {
    /// Makes an empty registry.
    pub fn new(loader: impl Loader + 'static, metrics: InferenceMetrics) -> Self {
        let snapshot = ArcSwap::from_pointee(Snapshot::default());
        let (edit, generations, loader) = (Mutex::new(()), AtomicU64::new(0), Box::new(loader));
        let changes = watch::Sender::new(());
        Self { shared: Arc::new(Shared { snapshot, edit, generations, loader, metrics, changes }) }
    }

    /// Returns what tells of every change from now on, so that whoever follows readiness knows when to look again.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.shared.changes.subscribe()
    }

    /// Tells those who follow readiness to look again.
    pub fn announce_change(&self) {
        self.shared.changes.send_replace(());
    }

    /// Finds a model by name, and by version or the name's default version.
    ///
    /// # Errors
    ///
    /// Fails in the original's words when there is none.
    pub fn find(&self, name: &str, version: Option<&str>) -> Result<Arc<RegisteredModel>, NotFound> {
        let snapshot = self.shared.snapshot.load();
        let versions = snapshot.models.get(name);
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
    pub fn models(&self) -> Vec<Arc<RegisteredModel>> {
        self.shared.snapshot.load().models.values().flat_map(|versions| versions.all.values().cloned()).collect()
    }

    /// Finds the model that has a route of its own for a path, which is decoded already.
    pub fn custom_route(&self, method: &Method, path: &str) -> CustomMatch {
        self.shared.snapshot.load().routes.find(method, path)
    }

    /// Counts a request for a model that does not exist.
    pub fn count_unknown_model(&self) {
        self.shared.metrics.count_unknown_model();
    }

    /// Returns the versions of one name.
    pub fn versions(&self, name: &str) -> Vec<Arc<RegisteredModel>> {
        let snapshot = self.shared.snapshot.load();
        snapshot.models.get(name).map(|versions| versions.all.values().cloned().collect()).unwrap_or_default()
    }

    /// Tells whether every model that the server was started with can answer.
    pub fn is_ready(&self) -> bool {
        let snapshot = self.shared.snapshot.load();
        let mut models = snapshot.models.values().flat_map(|versions| versions.all.values());
        models.all(|model| !model.delays_readiness())
    }

    /// Lists a model as loading unless it is listed already, so that readiness waits for it.
    pub fn announce(&self, settings: &ModelSettings) {
        self.list(settings, true);
    }

    /// Lists a model as loading unless it is listed already. Readiness does not wait for it.
    pub fn announce_optional(&self, settings: &ModelSettings) {
        self.list(settings, false);
    }

    fn list(&self, settings: &ModelSettings, required: bool) {
        self.edit(&settings.name, |versions| {
            let version = settings.parameters.version.clone();
            versions.entry(version).or_insert_with(|| Arc::new(self.model(settings, ModelState::Loading, required)));
        });
    }

    /// Takes back what [`Registry::announce_optional`] listed.
    pub fn withdraw(&self, settings: &ModelSettings) {
        self.edit(&settings.name, |versions| {
            let unused = |model: &Arc<RegisteredModel>| !model.required && matches!(model.state, ModelState::Loading);
            if versions.get(&settings.parameters.version).is_some_and(unused) {
                versions.remove(&settings.parameters.version);
            }
        });
    }

    /// Loads a model and warms it, beside whatever serves now.
    ///
    /// Dropping the future abandons the model.
    ///
    /// # Errors
    ///
    /// [`LoadError`] says what is wrong with it. Nothing that serves is touched.
    pub async fn prepare(&self, settings: ModelSettings) -> Result<PreparedModel, LoadError> {
        let runtime = self.shared.loader.load(settings.clone()).await?;
        warm_up::warm_up(runtime.as_ref(), &settings).await?;
        Ok(PreparedModel { settings, runtime })
    }

    /// Makes the prepared models the versions of `name`, all at once: those that it has and that are not among them are
    /// gone, and requests that hold one of them finish with it.
    pub fn replace(&self, name: &str, prepared: Vec<PreparedModel>) {
        self.edit(name, |versions| {
            *versions = prepared.into_iter().map(|prepared| self.ready(prepared)).collect();
        });
    }

    /// Removes all versions of a name and tells whether there were any. Requests that hold one finish with it; the last
    /// of them frees its memory.
    pub fn remove(&self, name: &str) -> bool {
        self.edit(name, |versions| !std::mem::take(versions).is_empty())
    }

    /// Loads one version of a model, and leaves the others as they are.
    ///
    /// # Errors
    ///
    /// A model that was ready stays as it was. Any other is listed as failed, with the reason.
    pub async fn load(&self, settings: ModelSettings) -> Result<Arc<RegisteredModel>, LoadError> {
        self.announce(&settings);
        match self.prepare(settings.clone()).await {
            Ok(prepared) => Ok(self.edit(&settings.name, |versions| {
                let (version, model) = self.ready(prepared);
                versions.insert(version, Arc::clone(&model));
                model
            })),
            Err(error) => {
                self.fail(&settings, chain(&error));
                Err(error)
            }
        }
    }

    /// Lists a model that the server was started with as failed, unless it is ready.
    pub fn fail(&self, settings: &ModelSettings, reason: String) {
        self.edit(&settings.name, |versions| {
            let listed = versions.get(&settings.parameters.version);
            if listed.is_some_and(|model| model.delays_readiness()) {
                let model = Arc::new(self.model(settings, ModelState::Failed { reason }, true));
                versions.insert(model.version.clone(), model);
            }
        });
    }

    fn ready(&self, prepared: PreparedModel) -> (Option<String>, Arc<RegisteredModel>) {
        let PreparedModel { settings, runtime } = prepared;
        let snapshot = self.shared.snapshot.load();
        for route in &runtime.description().routes {
            if let Some(other) = snapshot.routes.same_of_other(&settings.name, route) {
                let (method, path, other) = (route.method.as_str(), route.template.as_str(), other.label());
                warn!(
                    model = settings.name,
                    "`{method} {path}` is answered by model '{other}', which was loaded before."
                );
            }
        }
        let model = self.model(&settings, ModelState::Ready(runtime), true);
        (model.version.clone(), Arc::new(model))
    }

    fn model(&self, settings: &ModelSettings, state: ModelState, required: bool) -> RegisteredModel {
        let metrics = &self.shared.metrics;
        let (version, cached) = (settings.parameters.version.clone(), settings.cache_enabled);
        RegisteredModel {
            metadata: metadata(settings, &state),
            required,
            generation: self.shared.generations.fetch_add(1, Ordering::Relaxed),
            cached,
            validated: settings.parameters.validate_inputs,
            queue: RequestQueue::new(settings),
            timeouts: Timeouts::of(settings),
            source: settings.source.clone(),
            metrics: metrics.of_model(&settings.name, version.as_deref(), cached),
            metrics_as_default: metrics.of_model(&settings.name, None, cached),
            header: HeaderValue::from_bytes(settings.name.as_bytes()).ok(),
            response_headers: OnceLock::new(),
            name: settings.name.clone(),
            version,
            state,
        }
    }

    /// Changes the versions of a name, in a new snapshot. What has gone is forgotten by the metrics too.
    fn edit<T>(&self, name: &str, change: impl FnOnce(&mut ByVersion) -> T) -> T {
        let edit = self.shared.edit.lock();
        let mut snapshot = Snapshot::clone(&self.shared.snapshot.load());
        let before = snapshot.models.remove(name).unwrap_or_default().all;
        let mut after = before.clone();
        let result = change(&mut after);
        for version in before.keys().filter(|version| version.is_some() && !after.contains_key(*version)) {
            self.shared.metrics.forget_model(name, version.as_deref());
        }
        if after.is_empty() {
            self.shared.metrics.forget_model(name, None);
        } else {
            snapshot.models.insert(name.to_owned(), after.into());
        }
        snapshot.routes = Routes::of(snapshot.models.values());
        self.shared.snapshot.store(Arc::new(snapshot));
        drop(edit);
        self.announce_change();
        result
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
