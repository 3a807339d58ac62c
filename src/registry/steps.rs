//! The models that models ask: whether their steps end, and what the server knows of each.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock, Weak};

use super::snapshot::Snapshot;
use super::{ModelState, RegisteredModel, Registry, RegistryShared};
use crate::runtimes::{MAX_STEP_DEPTH, ModelDirectory, RequiredStep, StepModel};
use crate::types::ModelMetadata;

/// Why a model with steps cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StepsError {
    /// A request would never end.
    #[error("its steps form a cycle: {path}")]
    Cycle { path: String },
    #[error("its steps are nested {depth} levels deep, more than the limit of {MAX_STEP_DEPTH}")]
    TooDeep { depth: usize },
}

impl RegisteredModel {
    /// Returns the models that it asks.
    pub fn steps(&self) -> &[StepModel] {
        match &self.state {
            ModelState::Ready(runtime) => &runtime.description().steps,
            ModelState::Loading | ModelState::Failed { .. } => &[],
        }
    }

    /// Returns HTML that shows how it is made of other models, if it is.
    pub fn drawing(&self) -> Option<&str> {
        match &self.state {
            ModelState::Ready(runtime) => runtime.description().drawing.as_deref(),
            ModelState::Loading | ModelState::Failed { .. } => None,
        }
    }
}

impl Snapshot {
    fn find_step(&self, step: &StepModel) -> Option<&Arc<RegisteredModel>> {
        let versions = self.versions(&step.name)?;
        match &step.version {
            None => versions.default.as_ref(),
            version => versions.all.get(version),
        }
    }
}

/// Checks that the steps of each version of `name` end, within [`MAX_STEP_DEPTH`].
pub(super) fn check(snapshot: &Snapshot, name: &str) -> Result<(), StepsError> {
    let Some(versions) = snapshot.versions(name) else { return Ok(()) };
    let mut heights = Heights { snapshot, known: HashMap::new(), path: Vec::new() };
    for model in versions.all.values().filter(|model| !model.steps().is_empty()) {
        let depth = heights.of(model)?;
        if depth > MAX_STEP_DEPTH {
            return Err(StepsError::TooDeep { depth });
        }
    }
    Ok(())
}

/// How many levels of models are below each, itself included. Looks at each model once.
struct Heights<'a> {
    snapshot: &'a Snapshot,
    known: HashMap<*const RegisteredModel, usize>,
    path: Vec<&'a Arc<RegisteredModel>>,
}

impl<'a> Heights<'a> {
    fn of(&mut self, model: &'a Arc<RegisteredModel>) -> Result<usize, StepsError> {
        if let Some(height) = self.known.get(&Arc::as_ptr(model)) {
            return Ok(*height);
        }
        if let Some(start) = self.path.iter().position(|other| Arc::ptr_eq(other, model)) {
            let cycle = self.path[start..].iter().chain([&model]).map(|model| model.label());
            return Err(StepsError::Cycle { path: cycle.collect::<Vec<_>>().join(" -> ") });
        }
        self.path.push(model);
        // Also bounds the recursion.
        if self.path.len() > MAX_STEP_DEPTH {
            return Err(StepsError::TooDeep { depth: self.path.len() });
        }
        let mut height = 1;
        for step in model.steps() {
            if let Some(step) = self.snapshot.find_step(step) {
                height = height.max(1 + self.of(step)?);
            }
        }
        self.path.pop();
        self.known.insert(Arc::as_ptr(model), height);
        Ok(height)
    }
}

/// Looks models up in a registry that is created later, because its loader needs this. Clones share the registry.
#[derive(Debug, Clone, Default)]
pub struct RegistryDirectory(Arc<OnceLock<Weak<RegistryShared>>>);

impl RegistryDirectory {
    /// Looks models up in `registry` from now on.
    pub fn connect(&self, registry: &Registry) {
        // A directory belongs to the loader of one registry.
        let _ = self.0.set(Arc::downgrade(&registry.shared));
    }
}

impl RegistryDirectory {
    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        Some(self.0.get()?.upgrade()?.snapshot.load_full())
    }
}

impl ModelDirectory for RegistryDirectory {
    fn metadata(&self, model: &StepModel) -> Option<ModelMetadata> {
        Some(self.snapshot()?.find_step(model)?.metadata.clone())
    }

    fn unavailable(&self, steps: &[RequiredStep]) -> Option<String> {
        let Some(snapshot) = self.snapshot() else { return Some("the server is shutting down".to_owned()) };
        Readiness { snapshot: &snapshot, asked: HashSet::new() }.missing(steps)
    }
}

/// Finds out whether steps are ready. The first model that is not decides, so a model that has been asked before is ready.
struct Readiness<'a> {
    snapshot: &'a Snapshot,
    asked: HashSet<*const RegisteredModel>,
}

impl Readiness<'_> {
    /// Returns the first step that cannot answer, with the reason.
    fn missing(&mut self, steps: &[RequiredStep]) -> Option<String> {
        steps.iter().find_map(|RequiredStep { name, model }| {
            let reason = match self.snapshot.find_step(model) {
                None => Some(format!("the server has no model `{model}`")),
                Some(found) => self.reason(found),
            };
            reason.map(|reason| format!("step \"{name}\": {reason}"))
        })
    }

    fn reason(&mut self, model: &Arc<RegisteredModel>) -> Option<String> {
        if !self.asked.insert(Arc::as_ptr(model)) {
            return None;
        }
        match &model.state {
            ModelState::Ready(runtime) => match &runtime.description().required_steps[..] {
                [] => runtime.status().into_reason(),
                // The depth of the steps of served models is limited.
                steps => self.missing(steps),
            },
            ModelState::Loading => Some("it is being loaded".to_owned()),
            ModelState::Failed { reason } => Some(format!("it could not be loaded: {reason}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crate::registry::{LoadError, Loader};
    use crate::runtimes::{
        Asked, BoxFuture, CallReply, Description, Progress, RequestStream, ResponseStream, Runtime, RuntimeError,
        RuntimeStatus,
    };
    use crate::settings::ModelSettings;
    use crate::telemetry::inference::InferenceMetrics;
    use crate::telemetry::metrics::Registry as MetricsRegistry;
    use crate::types::{CustomCall, InferenceRequest, InferenceResponse};

    /// Has the steps of `parameters.extra.steps`, each a name or `name@version`.
    #[derive(Debug)]
    struct Graph {
        description: Description,
        asked: Arc<AtomicUsize>,
    }

    impl Runtime for Graph {
        fn description(&self) -> &Description {
            self.asked.fetch_add(1, Ordering::Relaxed);
            &self.description
        }

        fn status(&self) -> RuntimeStatus {
            RuntimeStatus::AVAILABLE
        }

        fn parallelism(&self) -> usize {
            1
        }

        fn warm_up(&self) -> BoxFuture<'_, Result<(), RuntimeError>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn predict(
            &self,
            _: InferenceRequest,
            _: Arc<dyn Progress>,
        ) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
            Box::pin(std::future::ready(Ok(InferenceResponse::default())))
        }

        fn predict_stream(self: Arc<Self>, _: RequestStream, _: Arc<dyn Progress>) -> ResponseStream {
            Box::pin(futures_util::stream::empty())
        }

        fn answers_at_once(&self, _: Asked<'_>) -> bool {
            false
        }

        fn unload(self: Arc<Self>) -> BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }

        fn call(
            &self,
            route: usize,
            _: CustomCall,
            _: Arc<dyn Progress>,
        ) -> BoxFuture<'_, Result<CallReply, RuntimeError>> {
            Box::pin(std::future::ready(Err(RuntimeError::no_route(route))))
        }
    }

    /// Counts how often the models are asked for their description.
    #[derive(Debug, Default)]
    struct GraphLoader(Arc<AtomicUsize>);

    impl Loader for GraphLoader {
        fn load(&self, settings: ModelSettings) -> BoxFuture<'_, Result<Arc<dyn Runtime>, LoadError>> {
            let names = settings.parameters.extra.get("steps").and_then(|steps| steps.as_array()).cloned();
            let steps = names.into_iter().flatten().filter_map(|name| {
                let (name, version) = name
                    .as_str()?
                    .split_once('@')
                    .map_or((name.as_str()?, None), |(name, version)| (name, Some(version.to_owned())));
                Some(StepModel { name: name.to_owned(), version })
            });
            let steps: Vec<_> = steps.collect();
            let required = |model: &StepModel| RequiredStep { name: model.name.clone(), model: model.clone() };
            let required_steps = steps.iter().map(required).collect();
            let description = Description { steps, required_steps, ..Description::native() };
            let graph = Graph { description, asked: Arc::clone(&self.0) };
            Box::pin(std::future::ready(Ok(Arc::new(graph) as Arc<dyn Runtime>)))
        }
    }

    fn registry() -> Registry {
        Registry::new(GraphLoader::default(), InferenceMetrics::register(&mut MetricsRegistry::default()))
    }

    async fn load(registry: &Registry, name: &str, version: Option<&str>, steps: &[&str]) -> Result<(), String> {
        let mut settings = ModelSettings::new(name, "tests.Graph");
        settings.parameters.version = version.map(str::to_owned);
        settings.parameters.extra.insert("steps".to_owned(), steps.into());
        registry.load(settings).await.map(drop).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn steps_that_lead_back_are_rejected_by_the_load_that_closes_the_cycle() {
        let registry = registry();
        load(&registry, "a", None, &["b", "leaf"]).await.unwrap();
        load(&registry, "leaf", None, &[]).await.unwrap();
        load(&registry, "b", None, &["c", "leaf"]).await.unwrap();
        let error = load(&registry, "c", None, &["leaf", "a"]).await.unwrap_err();
        assert_eq!(error, "its steps form a cycle: c -> a -> b -> c");
        assert_eq!(registry.find("c", None).unwrap().state.name(), "FAILED");
        load(&registry, "c", None, &["leaf"]).await.unwrap();
        assert!(load(&registry, "self", None, &["self"]).await.is_err());
        // A failed reload keeps what serves.
        assert!(load(&registry, "c", None, &["a"]).await.is_err());
        assert_eq!(registry.find("c", None).unwrap().steps(), [StepModel::new("leaf")]);
    }

    #[tokio::test]
    async fn versions_of_a_step_are_told_apart() {
        let registry = registry();
        load(&registry, "a", Some("1"), &[]).await.unwrap();
        load(&registry, "a", Some("2"), &["a@1"]).await.unwrap();
        let error = load(&registry, "a", Some("1"), &["a"]).await.unwrap_err();
        assert!(error.contains("a:1 -> a:2 -> a:1"), "{error}");
    }

    #[tokio::test]
    async fn steps_nest_up_to_the_limit() {
        let registry = registry();
        load(&registry, "level-1", None, &[]).await.unwrap();
        for level in 2..=MAX_STEP_DEPTH {
            let below = format!("level-{}", level - 1);
            // Twice, so that looking at each path would take 2^16 steps.
            load(&registry, &format!("level-{level}"), None, &[&below, &below]).await.unwrap();
        }
        let top = format!("level-{MAX_STEP_DEPTH}");
        let error = load(&registry, "top", None, &[&top]).await.unwrap_err();
        assert!(error.contains("17 levels deep"), "{error}");
    }

    #[tokio::test]
    async fn directory_knows_models_once_it_is_connected() {
        let (registry, directory) = (registry(), RegistryDirectory::default());
        assert!(directory.metadata(&StepModel::new("a")).is_none());
        let step = |name: &str| RequiredStep { name: "s".to_owned(), model: StepModel::new(name) };
        directory.connect(&registry);
        registry.announce(&ModelSettings::new("a", "tests.Graph"));
        assert_eq!(directory.unavailable(&[step("a")]).unwrap(), "step \"s\": it is being loaded");
        load(&registry, "a", None, &[]).await.unwrap();
        assert_eq!(directory.unavailable(&[step("a")]), None);
        assert_eq!(directory.unavailable(&[step("a"), step("b")]).unwrap(), "step \"s\": the server has no model `b`");
        assert!(directory.metadata(&StepModel::new("b")).is_none());
    }

    #[tokio::test]
    async fn readiness_of_nested_graphs_asks_each_graph_once() {
        let loader = GraphLoader::default();
        let asked = Arc::clone(&loader.0);
        let registry = Registry::new(loader, InferenceMetrics::register(&mut MetricsRegistry::default()));
        let directory = RegistryDirectory::default();
        directory.connect(&registry);
        for name in ["a1", "b1"] {
            load(&registry, name, None, &[]).await.unwrap();
        }
        for level in 2..=MAX_STEP_DEPTH {
            let below = [format!("a{}", level - 1), format!("b{}", level - 1)];
            for name in ["a", "b"] {
                load(&registry, &format!("{name}{level}"), None, &[&below[0], &below[1]]).await.unwrap();
            }
        }
        let top = StepModel::new(format!("a{MAX_STEP_DEPTH}"));
        let top = RequiredStep { name: "top".to_owned(), model: top };
        let before = asked.load(Ordering::Relaxed);
        assert_eq!(directory.unavailable(std::slice::from_ref(&top)), None);
        // Two on each level but the highest.
        assert_eq!(asked.load(Ordering::Relaxed) - before, 2 * MAX_STEP_DEPTH - 1);
        assert!(registry.remove("b1"));
        let reason = directory.unavailable(&[top]).unwrap();
        assert!(reason.ends_with("step \"a2\": step \"b1\": the server has no model `b1`"), "{reason}");
    }
}
