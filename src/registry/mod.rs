//! The models that are served, by name and version, and the state of each.
//!
//! Requests read a snapshot without locks. Every change creates a new snapshot, so a request keeps the model that it found,
//! whatever happens to the registry. A model is loaded and warmed up before it is reachable, and then replaces its predecessor
//! in one step; until then, the predecessor keeps serving.

mod budget;
mod fetch;
#[cfg(test)]
mod fn_loader;
mod loader;
mod openai;
mod queue;
mod routes;
mod snapshot;
mod steps;
#[cfg(feature = "storage")]
mod store_repository;
mod warm_up;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue, Method};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinError;
use tracing::warn;

use crate::compute::ComputeError;
use crate::families::{ModelFamily, NativeEvaluator};
use crate::lock_file::LockError;
use crate::repository::ArtifactError;
#[cfg(test)]
use crate::runtimes::FnRuntime;
use crate::runtimes::{self, Runtime};
use crate::settings::ModelSettings;
use crate::telemetry::inference::{InferenceMetrics, ModelMetrics};
use crate::telemetry::limit::LogLimiter;
use crate::types::{ModelMetadata, OpenAiApi, V1Handlers, without_credentials};

pub use crate::families::V1Explainer;
pub use crate::runtimes::RuntimeStatus;
pub use crate::types::chain;
pub use budget::{BudgetLoader, TooLarge, artifact_size};
#[cfg(feature = "storage")]
pub use fetch::storage_options;
pub use fetch::{Availability, FetchedModel, FetchingLoader, ModelFetcher, RemoteModel};
#[cfg(test)]
pub(crate) use fn_loader::FnLoader;
pub use loader::{Loader, RuntimeFuture, RuntimeLoader};
pub use openai::{CompletionTensors, EmbeddingTensors, OpenAiTensors, RerankTensors};
pub use queue::{QueueFull, RequestQueue};
pub use routes::{CustomMatch, CustomTarget};
pub use steps::{RegistryDirectory, StepsError};
pub use warm_up::SampleError;

use routes::CustomRoutes;
use snapshot::{ByVersion, ModelVersions, Snapshot};

/// The registry has no such name or version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    #[error("Model {name} not found")]
    Model { name: String },
    #[error("Model {name} with version {version} not found")]
    Version { name: String, version: String },
}

/// The reasons why a model cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// A route of the model belongs to the protocol.
    #[error("the model's route `{route}` is served by the server itself: choose another path")]
    Reserved { route: String },
    #[error("the artifact `{}` is not on this machine; native runtimes read local files", without_credentials(uri))]
    Remote { uri: String },
    #[error(
        "`parameters.isolate` is not for inference graphs, which run in the server: set it for the models of their steps"
    )]
    IsolatedGraph,
    /// The files are not those of `mlserver.lock`.
    #[error(transparent)]
    Lock(LockError),
    /// The artifact is in an object store.
    #[cfg(feature = "storage")]
    #[error(transparent)]
    Fetch { source: Box<crate::storage::StorageError> },
    #[cfg(feature = "storage")]
    #[error("the path `{uri}` leads out of the repository: name another place with its whole URI")]
    Outside { uri: String },
    #[cfg(not(feature = "storage"))]
    #[error(
        "cannot fetch `{}`: this executable was built without the feature `storage`; install a wheel or a release, or build it with `cargo \
         build --release --features storage`",
        without_credentials(uri)
    )]
    WithoutStorage { uri: String },
    #[error(transparent)]
    Runtime(#[from] runtimes::LoadError),
    /// The native runtime does not support the artifact, and Python cannot serve it either.
    #[error("{unsupported}; Python cannot serve it either")]
    Neither { unsupported: String, source: runtimes::LoadError },
    /// The model does not fit into the memory budget.
    #[error(transparent)]
    TooLarge(#[from] TooLarge),
    #[error("invalid setting `parameters.extra.openai`")]
    OpenAi(#[source] serde_json::Error),
    /// The steps of the model lead back to it, or too deep.
    #[error(transparent)]
    Steps(#[from] StepsError),
    /// All callers were cancelled before there was room for the model.
    #[error("the load was cancelled: no request waits for the model")]
    Cancelled,
    #[error("loading ended unexpectedly; this is a bug in mlserver")]
    Panicked(#[source] ComputeError),
    #[error("the model was loaded but cannot answer")]
    WarmUp(#[source] runtimes::RuntimeError),
    /// A request of the setting `warmup` failed.
    #[error("the model was loaded but does not answer `warmup[{index}]` of its settings")]
    Sample { index: usize, source: SampleError },
}

impl LoadError {
    /// The task that was loading the model panicked.
    pub const fn panicked(error: JoinError) -> Self {
        Self::Panicked(ComputeError::Panicked(error))
    }
}

/// The state of a model.
#[derive(Debug, Clone)]
pub enum ModelState {
    Loading,
    Ready(Arc<dyn Runtime>),
    Failed { reason: String },
}

impl ModelState {
    /// Returns the name that readiness reports.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Loading => "LOADING",
            Self::Ready(runtime) if runtime.status().is_available() => "READY",
            Self::Ready(_) => "UNAVAILABLE",
            Self::Failed { .. } => "FAILED",
        }
    }

    /// Reports whether the model can answer now.
    pub fn is_ready(&self) -> bool {
        matches!(self, Self::Ready(runtime) if runtime.status().is_available())
    }
}

/// The timeouts of a model's requests. `None` means no limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct ModelTimeouts {
    /// From admission until the prediction begins.
    pub queue: Option<Duration>,
    /// From the beginning of the prediction until its end.
    pub predict: Option<Duration>,
    /// From admission to the response.
    pub request: Option<Duration>,
}

impl ModelTimeouts {
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
    /// Whether the server is ready only if this model is. A model that is being loaded by request is not required, so that a
    /// load that takes long, or fails, does not take the other models out of service.
    pub required: bool,
    /// Different for every load, so that cached results of one load are not used for another.
    pub generation: u64,
    /// Whether its responses are cached.
    pub cached: bool,
    /// Whether its requests are validated against the inputs of its metadata.
    pub validated: bool,
    /// What answers `:explain` of the V1 protocol.
    pub explainer: V1Explainer,
    /// What answers OpenAI's API, besides the handlers of the runtime.
    pub openai_tensors: Option<OpenAiTensors>,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
    /// The requests that wait for it.
    pub queue: RequestQueue,
    pub timeouts: ModelTimeouts,
    /// The settings file. `None` for a model that the environment configures.
    pub source: Option<PathBuf>,
    /// Whether it is an inference graph.
    pub is_graph: bool,
    /// Whether its code passes requests on to other servers: a transformer or an explainer of KServe.
    pub asks_servers: bool,
    metrics: ModelMetrics,
    metrics_as_default: ModelMetrics,
    /// The name as a header value. `None` if it is not a valid one.
    header: Option<HeaderValue>,
    /// The headers that all responses of this model share, created once by the transport.
    pub response_headers: OnceLock<HeaderMap>,
    /// Limits the lines about failed requests.
    pub failure_log: LogLimiter,
}

impl RegisteredModel {
    /// Returns the metrics of requests that name the version of this model, or of those that do not.
    pub const fn metrics(&self, with_version: bool) -> &ModelMetrics {
        if with_version { &self.metrics } else { &self.metrics_as_default }
    }

    /// Reports whether the server is not ready because of this model.
    pub fn delays_readiness(&self) -> bool {
        self.required && !self.state.is_ready()
    }

    /// Returns the name as a header value. `None` if it is not a valid one.
    pub const fn header(&self) -> Option<&HeaderValue> {
        self.header.as_ref()
    }

    /// Reports whether the model reads the headers of requests.
    pub fn reads_headers(&self) -> bool {
        matches!(&self.state, ModelState::Ready(runtime) if runtime.description().reads_headers)
    }

    /// Returns where the model takes bodies of KServe's V1 protocol. `None` if it only takes tensors, or is not loaded.
    pub fn v1_handlers(&self) -> Option<V1Handlers> {
        match &self.state {
            ModelState::Ready(runtime) => runtime.description().v1,
            ModelState::Loading | ModelState::Failed { .. } => None,
        }
    }

    /// Returns the index of its handler for an endpoint of OpenAI's API, if it has one and is loaded.
    pub fn openai_handler(&self, api: OpenAiApi) -> Option<usize> {
        match &self.state {
            ModelState::Ready(runtime) => runtime.description().openai.get(api),
            ModelState::Loading | ModelState::Failed { .. } => None,
        }
    }

    /// Reports whether it answers an endpoint of OpenAI's API.
    pub fn answers_openai(&self) -> bool {
        let answers = |api| {
            self.openai_handler(api).is_some()
                || self.openai_tensors.as_ref().is_some_and(|tensors| tensors.answers(api))
        };
        self.state.is_ready() && OpenAiApi::ALL.into_iter().any(answers)
    }

    /// Returns the label for log lines and messages: the name, or the name and the version.
    pub fn label(&self) -> String {
        self.version.as_ref().map_or_else(|| self.name.clone(), |version| format!("{}:{version}", self.name))
    }
}

/// Returns the metadata that the model itself provides, or else that of the settings.
fn metadata(settings: &ModelSettings, state: &ModelState) -> ModelMetadata {
    let ModelState::Ready(runtime) = state else { return ModelMetadata::declared(settings) };
    let description = runtime.description();
    let mut metadata = description.metadata.clone().unwrap_or_else(|| ModelMetadata::declared(settings));
    metadata.parameters.others.insert("backend".to_owned(), description.backend.into());
    if let Some(space) = description.explanation.as_ref().and_then(|explanation| explanation.space.as_deref()) {
        metadata.parameters.others.insert("contributions".to_owned(), space.into());
    }
    metadata
}

/// A model that is loaded and warmed up, but not yet reachable. Dropping it unloads it.
#[derive(Debug)]
pub struct PreparedModel {
    settings: ModelSettings,
    runtime: Arc<dyn Runtime>,
}

/// All models of the server. Clones share it.
#[derive(Debug, Clone)]
pub struct Registry {
    shared: Arc<RegistryShared>,
}

#[derive(Debug)]
struct RegistryShared {
    snapshot: ArcSwap<Snapshot>,
    /// Held while a new snapshot is derived from the current one.
    edit: Mutex<()>,
    /// Counts the models that have been created.
    generations: AtomicU64,
    loader: Box<dyn Loader>,
    metrics: InferenceMetrics,
    changes: watch::Sender<()>,
}

impl Registry {
    /// Creates an empty registry.
    pub fn new(loader: impl Loader + 'static, metrics: InferenceMetrics) -> Self {
        let snapshot = ArcSwap::from_pointee(Snapshot::default());
        let (edit, generations, loader) = (Mutex::new(()), AtomicU64::new(0), Box::new(loader));
        let changes = watch::Sender::new(());
        Self { shared: Arc::new(RegistryShared { snapshot, edit, generations, loader, metrics, changes }) }
    }

    /// Returns a receiver that is notified of every change, so that watchers of readiness know when to check again.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.shared.changes.subscribe()
    }

    /// Reports whether [`Registry::changes`] has receivers.
    pub fn has_watchers(&self) -> bool {
        self.shared.changes.receiver_count() > 0
    }

    /// Notifies the watchers of readiness.
    pub fn announce_change(&self) {
        self.shared.changes.send_replace(());
    }

    /// Finds a model by name, and by version or the name's default version.
    ///
    /// # Errors
    ///
    /// Fails with the original's message if there is none.
    pub fn find(&self, name: &str, version: Option<&str>) -> Result<Arc<RegisteredModel>, NotFound> {
        let snapshot = self.shared.snapshot.load();
        let versions = snapshot.versions(name);
        let found = match version {
            None => versions.and_then(|versions| versions.default.as_ref()),
            // A scan avoids allocating a key; a name has few versions.
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
        let snapshot = self.shared.snapshot.load();
        let mut names: Vec<_> = snapshot.named().collect();
        names.sort_unstable_by_key(|(name, _)| *name);
        names.into_iter().flat_map(|(_, versions)| versions.all.values().cloned()).collect()
    }

    /// Returns the number of versions of all models.
    pub fn len(&self) -> usize {
        self.shared.snapshot.load().all().map(|versions| versions.all.len()).sum()
    }

    /// Reports whether there are no models.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the name of the inference graph, if the server has exactly one.
    pub fn only_graph(&self) -> Option<String> {
        let snapshot = self.shared.snapshot.load();
        let has_graph = |versions: &&Arc<ModelVersions>| versions.all.values().any(|model| model.is_graph);
        let mut graphs = snapshot.all().filter(has_graph);
        let only = graphs.next().filter(|_| graphs.next().is_none())?;
        only.all.values().next().map(|model| model.name.clone())
    }

    /// Finds the model with a route of its own for a path, which must be decoded.
    pub fn custom_route(&self, method: &Method, path: &str) -> CustomMatch {
        self.shared.snapshot.load().routes.find(method, path)
    }

    /// Returns how many requests of a model were predicted together on average. `None` if it does not batch, or has not yet.
    pub fn mean_batch(&self, model: &RegisteredModel) -> Option<f64> {
        self.shared.metrics.mean_batch(&model.name, model.version.as_deref())
    }

    /// Counts a request for a model that does not exist.
    pub fn count_unknown_model(&self) {
        self.shared.metrics.count_unknown_model();
    }

    /// Returns the versions of one name.
    pub fn versions(&self, name: &str) -> Vec<Arc<RegisteredModel>> {
        let snapshot = self.shared.snapshot.load();
        snapshot.versions(name).map(|versions| versions.all.values().cloned().collect()).unwrap_or_default()
    }

    /// Reports whether every model that the server was started with can answer.
    pub fn is_ready(&self) -> bool {
        let snapshot = self.shared.snapshot.load();
        let mut models = snapshot.all().flat_map(|versions| versions.all.values());
        models.all(|model| !model.delays_readiness())
    }

    /// Reports whether a model that the server was started with is being loaded.
    pub fn is_loading(&self) -> bool {
        let snapshot = self.shared.snapshot.load();
        let mut models = snapshot.all().flat_map(|versions| versions.all.values());
        models.any(|model| model.delays_readiness() && matches!(model.state, ModelState::Loading))
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

    /// Reverts [`Registry::announce_optional`].
    pub fn withdraw(&self, settings: &ModelSettings) {
        self.edit(&settings.name, |versions| {
            let unused = |model: &Arc<RegisteredModel>| !model.required && matches!(model.state, ModelState::Loading);
            if versions.get(&settings.parameters.version).is_some_and(unused) {
                versions.remove(&settings.parameters.version);
            }
        });
    }

    /// Loads a model and warms it up, next to the models that serve.
    ///
    /// Dropping the future cancels the load.
    ///
    /// # Errors
    ///
    /// Fails if the model cannot be loaded. The models that serve are not affected.
    pub async fn prepare(&self, settings: ModelSettings) -> Result<PreparedModel, LoadError> {
        let runtime = self.shared.loader.load(settings.clone()).await?;
        warm_up::warm_up(runtime.as_ref(), &settings, &(Arc::new(()) as _)).await?;
        Ok(PreparedModel { settings, runtime })
    }

    /// Replaces all versions of `name` with the prepared models, in one step. Requests that hold a replaced version finish with
    /// it.
    ///
    /// # Errors
    ///
    /// Fails without a change if the steps of a model would lead back to it.
    pub fn replace(&self, name: &str, prepared: Vec<PreparedModel>) -> Result<(), StepsError> {
        let replace = |versions: &mut ByVersion| {
            *versions = prepared.into_iter().map(|prepared| self.ready(prepared)).collect();
        };
        self.try_edit(name, replace, |snapshot| steps::check(snapshot, name))
    }

    /// Removes all versions of a name and returns whether there were any. Requests that hold one finish with it; the last of
    /// them frees its memory.
    pub fn remove(&self, name: &str) -> bool {
        self.edit(name, |versions| !std::mem::take(versions).is_empty())
    }

    /// Loads one version of a model without affecting the others.
    ///
    /// # Errors
    ///
    /// If the load fails, a model that was ready keeps serving. Any other is listed as failed, with the reason.
    pub async fn load(&self, settings: ModelSettings) -> Result<Arc<RegisteredModel>, LoadError> {
        self.announce(&settings);
        match self.prepare(settings.clone()).await {
            Ok(prepared) => self.add(prepared).map_err(LoadError::from),
            Err(error) => Err(error),
        }
        .inspect_err(|error| self.fail(&settings, chain(error)))
    }

    /// Adds one prepared version, or replaces it.
    fn add(&self, prepared: PreparedModel) -> Result<Arc<RegisteredModel>, StepsError> {
        let name = prepared.settings.name.clone();
        let add = |versions: &mut ByVersion| {
            let (version, model) = self.ready(prepared);
            versions.insert(version, Arc::clone(&model));
            model
        };
        self.try_edit(&name, add, |snapshot| steps::check(snapshot, &name))
    }

    /// Lists a required model as failed, unless it is ready.
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
            // A graph has the routes of its steps because its settings ask for them.
            let is_step =
                |other: &RegisteredModel| runtime.description().steps.iter().any(|step| step.name == other.name);
            if let Some(other) = snapshot.routes.find_duplicate(&settings.name, route).filter(|other| !is_step(other)) {
                let (method, path, other) = (route.method.as_str(), route.template.as_str(), other.label());
                warn!(
                    model = settings.name,
                    "`{method} {path}` is already served by model '{other}', which was loaded earlier."
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
            explainer: V1Explainer::from_settings(settings),
            // The loader has reported an invalid one.
            openai_tensors: OpenAiTensors::from_settings(settings).ok().flatten(),
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            queue: RequestQueue::new(settings),
            timeouts: ModelTimeouts::of(settings),
            source: settings.source.clone(),
            is_graph: ModelFamily::of(&settings.implementation)
                .is_some_and(|family| family.native == Some(NativeEvaluator::Graph)),
            metrics: metrics.of_model(&settings.name, version.as_deref(), cached),
            metrics_as_default: metrics.of_model(&settings.name, None, cached),
            asks_servers: asks_servers(settings)
                || matches!(&state, ModelState::Ready(runtime) if runtime.description().asks_servers),
            header: HeaderValue::from_bytes(settings.name.as_bytes()).ok(),
            response_headers: OnceLock::new(),
            failure_log: LogLimiter::default(),
            name: settings.name.clone(),
            version,
            state,
        }
    }

    /// Changes the versions of a name, in a new snapshot. Metrics of removed versions are removed as well.
    fn edit<T>(&self, name: &str, change: impl FnOnce(&mut ByVersion) -> T) -> T {
        match self.try_edit(name, change, |_| Ok::<(), Infallible>(())) {
            Ok(result) => result,
            Err(never) => match never {},
        }
    }

    /// Does the same, unless `check` rejects the new snapshot.
    fn try_edit<T, E>(
        &self,
        name: &str,
        change: impl FnOnce(&mut ByVersion) -> T,
        check: impl FnOnce(&Snapshot) -> Result<(), E>,
    ) -> Result<T, E> {
        let edit = self.shared.edit.lock();
        let mut snapshot = Snapshot::clone(&self.shared.snapshot.load());
        let before = snapshot.versions(name).map(|versions| versions.all.clone()).unwrap_or_default();
        let mut after = before.clone();
        let result = change(&mut after);
        let is_removed = after.is_empty();
        snapshot.set(name, after.clone());
        check(&snapshot)?;
        for (version, model) in &before {
            if version.is_some() && !after.contains_key(version) {
                model.metrics.retire();
                self.shared.metrics.forget_model(name, version.as_deref());
            }
        }
        let has_routes = before.values().chain(after.values()).any(|model| !routes::routes_of(model).is_empty());
        if is_removed {
            for model in before.values() {
                model.metrics_as_default.retire();
            }
            self.shared.metrics.forget_model(name, None);
        }
        if has_routes {
            snapshot.routes = Arc::new(CustomRoutes::of(snapshot.all().map(Arc::as_ref)));
        }
        self.shared.snapshot.store(Arc::new(snapshot));
        drop(edit);
        self.announce_change();
        Ok(result)
    }
}

/// Returns whether a model has a predictor or an explainer on another server: in its settings, or in the arguments of its script.
fn asks_servers(settings: &ModelSettings) -> bool {
    const HOSTS: [&str; 2] = ["predictor_host", "explainer_host"];
    let extra = &settings.parameters.extra;
    let arguments = extra.get("arguments").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let mut names = arguments.filter_map(|argument| argument.strip_prefix("--")?.split('=').next());
    HOSTS.iter().any(|host| extra.get(*host).is_some_and(|host| !host.is_null()))
        || names.any(|name| HOSTS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::{self, Registry as MetricsRegistry};
    use crate::types::InferenceResponse;
    use std::time::Instant;

    fn empty_models() -> FnLoader {
        FnLoader::fixed(FnRuntime::new(|_| std::future::ready(Ok(InferenceResponse::default()))))
    }

    /// It takes about two seconds, and with quadratic work a minute or more.
    #[tokio::test]
    async fn registry_loads_ten_thousand_models_without_quadratic_work() {
        let registry = Registry::new(empty_models(), InferenceMetrics::register(&mut MetricsRegistry::default()));
        let template = ModelSettings::new("m", "tests.Model");
        let named = |index| ModelSettings { name: format!("model-{index:05}"), ..template.clone() };
        let models: Vec<ModelSettings> = (0..10_000).map(named).collect();
        let started = Instant::now();
        for settings in &models {
            registry.announce(settings);
        }
        for settings in &models {
            registry.load(settings.clone()).await.unwrap();
        }
        let listed = registry.models();
        assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
        assert!(listed.len() == 10_000 && listed.is_sorted_by_key(|model| &model.name) && registry.is_ready());
        assert_eq!(registry.find("model-09999", None).unwrap().name, "model-09999");
        assert!(registry.remove("model-00000") && registry.find("model-00000", None).is_err());
    }

    #[tokio::test]
    async fn unloaded_model_creates_no_label_sets() {
        let mut exposed = MetricsRegistry::default();
        let registry = Registry::new(empty_models(), InferenceMetrics::register(&mut exposed));
        let mut settings = ModelSettings::new("gone", "tests.Model");
        settings.parameters.version = Some("v1".to_owned());
        let model = registry.load(settings).await.unwrap();
        registry.remove("gone");
        // A client of a request that was in flight disconnects.
        for with_version in [true, false] {
            model.metrics(with_version).count_dropped("client_disconnected");
        }
        let text = metrics::text(&exposed).unwrap();
        assert!(!text.contains("gone"), "{text}");
    }
}
