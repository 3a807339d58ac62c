//! The runtime of inference graphs: a model that answers with the answers of other models.
//!
//! [`graphs`](crate::graphs) compiles manifests and runs them; the steps take the ordinary path of requests, as [`Steps`] of the graph's
//! request.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use http::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

use super::mlflow::MlflowProtocol;
use super::native::CancelOnDrop;
use super::{
    Asked, BoxFuture, CallReply, Description, LoadError, ModelDirectory, Progress, RemoteCall, RequestStream,
    RequiredStep, ResponseStream, Runtime, RuntimeError, RuntimeStatus, StepModel, Steps, ready,
};
use crate::compute::ComputePool;
use crate::graphs::{
    self, ConditionFailure, ConditionWork, Execution, FoundCondition, Graph, GraphError, GraphManifest, LastStep,
    ModelReference, Prepared, Step, StepOutcome, StepRunner,
};
use crate::remote::{RemoteAddress, RemoteError, RemoteModel, RemoteServers};
use crate::settings::ModelSettings;
use crate::shutdown::catch_panic;
use crate::telemetry::graphs::{GraphMetrics, StepMetrics};
use crate::telemetry::limit::LogLimiter;
use crate::types::{
    CustomCall, CustomReply, ForwardedCredentials, InferenceRequest, InferenceResponse, ModelMetadata, Priority,
    RequestErrorKind, TensorRule,
};

/// The header with the timing of steps.
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// What all graphs of a server share.
#[derive(Debug, Clone)]
pub struct GraphResources {
    /// The models that steps may ask.
    directory: Arc<dyn ModelDirectory>,
    /// The other servers that steps may ask.
    servers: RemoteServers,
    metrics: GraphMetrics,
    /// Reads and writes long bodies of MLflow's protocol.
    compute: ComputePool,
}

impl GraphResources {
    /// Long requests to other servers are written, and their answers are read, on `compute`. `forwarded` are the
    /// credentials of callers that other servers get.
    pub fn new(
        directory: Arc<dyn ModelDirectory>,
        metrics: GraphMetrics,
        compute: ComputePool,
        forwarded: ForwardedCredentials,
    ) -> Self {
        Self { directory, servers: RemoteServers::new(compute.clone(), forwarded), metrics, compute }
    }
}

/// Why a graph cannot be loaded.
#[derive(Debug, thiserror::Error)]
enum GraphLoadError {
    #[error("{}: `warmup` has no effect on a graph; set it for the models of its steps", place(file.as_ref()))]
    Warmup { file: Option<PathBuf> },
    #[error("{}: invalid `parameters.extra.mlflow`: expected true or false, found {found}", place(file.as_ref()))]
    Mlflow { file: Option<PathBuf>, found: String },
    #[error("invalid route of MLflow's protocol: {0}")]
    Route(String),
    #[error("{}", .0.join("\n"))]
    Problems(Vec<String>),
}

fn place(file: Option<&PathBuf>) -> String {
    file.map_or_else(|| "the settings".to_owned(), |file| format!("`{}`", file.display()))
}

impl From<GraphLoadError> for LoadError {
    fn from(error: GraphLoadError) -> Self {
        Self::Graph(error.into())
    }
}

/// The model that answers a step.
#[derive(Debug)]
enum StepTarget {
    Local(StepModel),
    /// A model of another server.
    Remote(Arc<RemoteModel>),
}

/// A loaded graph.
#[derive(Debug)]
pub(super) struct GraphModel {
    shared: Arc<GraphShared>,
    description: Description,
}

#[derive(Debug)]
struct GraphShared {
    name: String,
    version: Option<String>,
    graph: Arc<Graph>,
    /// By the index of the step, as the following.
    metrics: Vec<StepMetrics>,
    models: Vec<StepTarget>,
    resources: GraphResources,
    /// Limits the warnings about steps whose failures are tolerated.
    failure_log: LogLimiter,
}

/// Reads and checks the manifest of a graph.
///
/// # Errors
///
/// Fails with all problems of the manifest, and with its steps that name models that the server does not have.
pub fn load_graph(
    settings: &ModelSettings,
    manifest: &Path,
    resources: GraphResources,
) -> Result<Arc<dyn Runtime>, LoadError> {
    let file = || settings.source.clone();
    if !settings.warmup.is_empty() {
        return Err(GraphLoadError::Warmup { file: file() }.into());
    }
    let read = graphs::read_manifest(settings, manifest).map_err(|error| LoadError::Graph(error.into()))?;
    let GraphManifest { mut graph, warnings, ignored } = read;
    let has_model = |name: &str| resources.directory.metadata(&StepModel::new(name)).is_some();
    graph.resolve_models(has_model, &settings.step_models);
    let (model, version) = (settings.name.as_str(), settings.version());
    for warning in &warnings {
        warn!(model, version, "{warning}");
    }
    if !ignored.is_empty() {
        info!(
            model,
            version,
            fields = ignored.join(", "),
            "Fields of the manifest that only concern clusters are ignored."
        );
    }
    let targets = check_models(&graph, &resources)?;
    let local = || graph.steps().iter().filter(|step| step.url.is_none());
    let models: BTreeSet<StepModel> = local().map(|step| step_model(&step.model)).collect();
    let required = local().filter(|step| step.required);
    let required = required.map(|step| RequiredStep { name: step.name.clone(), model: step_model(&step.model) });
    let metadata = metadata(settings, &graph, &targets);
    let routes = if has_mlflow_protocol(settings)? {
        MlflowProtocol::routes().map_err(GraphLoadError::Route)?
    } else {
        Vec::new()
    };
    let description = Description {
        reads_headers: true,
        metadata: Some(metadata),
        routes,
        steps: models.into_iter().collect(),
        required_steps: required.collect(),
        has_remote_steps: targets.iter().any(|target| matches!(target, StepTarget::Remote(_))),
        drawing: Some(graphs::draw(&graph).into()),
        ..Description::native_with(TensorRule::AsSent)
    };
    let metrics = graph.steps().iter().map(|step| resources.metrics.of_step(model, &step.name));
    let shared = GraphShared {
        name: model.to_owned(),
        version: version.map(str::to_owned),
        metrics: metrics.collect(),
        graph: Arc::new(graph),
        models: targets,
        resources,
        failure_log: LogLimiter::default(),
    };
    Ok(Arc::new(GraphModel { shared: Arc::new(shared), description }))
}

/// Returns whether `parameters.extra.mlflow` asks for MLflow's protocol.
fn has_mlflow_protocol(settings: &ModelSettings) -> Result<bool, GraphLoadError> {
    match settings.parameters.extra.get("mlflow") {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(is_set)) => Ok(*is_set),
        Some(other) => Err(GraphLoadError::Mlflow { file: settings.source.clone(), found: other.to_string() }),
    }
}

fn step_model(ModelReference { name, version }: &ModelReference) -> StepModel {
    StepModel { name: name.clone(), version: version.clone() }
}

/// Checks that the server has the models of the steps, and that they return the tensors that others need. Returns the model of each
/// step. Does not connect to other servers.
fn check_models(graph: &Graph, resources: &GraphResources) -> Result<Vec<StepTarget>, GraphLoadError> {
    let (mut problems, mut targets) = (Vec::new(), Vec::new());
    let mut outputs = BTreeMap::new();
    for step in graph.steps() {
        let at = format!("{}: {}: step \"{}\"", graph.file(), step.path, step.name);
        if let Some(url) = &step.url {
            let ModelReference { name, version } = &step.model;
            let address = RemoteAddress::parse(url, name, version.as_deref()).map_err(|error| error.to_string());
            match address.and_then(|address| resources.servers.model(address).map_err(|error| error.to_string())) {
                Ok(model) => targets.push(StepTarget::Remote(Arc::new(model))),
                Err(error) => problems.push(format!("{at}: {error}")),
            }
            continue;
        }
        targets.push(StepTarget::Local(step_model(&step.model)));
        match resources.directory.metadata(&step_model(&step.model)) {
            None => problems.push(format!(
                "{at}: the server has no model `{}`; add its folder, or a URL with `parameters.extra.steps`",
                step_model(&step.model)
            )),
            Some(found) if !found.outputs.is_empty() => {
                let names: Vec<String> = found.outputs.into_iter().map(|output| output.name).collect();
                outputs.insert(step.name.clone(), names);
            }
            Some(_) => {}
        }
    }
    problems.extend(graph.check_tensors(|step| outputs.get(&step.name).cloned()).iter().map(ToString::to_string));
    if problems.is_empty() { Ok(targets) } else { Err(GraphLoadError::Problems(problems)) }
}

/// Returns the metadata of the settings, with the steps.
fn metadata(settings: &ModelSettings, graph: &Graph, targets: &[StepTarget]) -> ModelMetadata {
    let steps: Vec<Value> = graph
        .steps()
        .iter()
        .zip(targets)
        .map(|(step, target)| match target {
            StepTarget::Local(model) => json!({"name": step.name, "model": model.to_string()}),
            StepTarget::Remote(remote) => {
                json!({"name": step.name, "model": step_model(&step.model).to_string(), "url": remote.address().to_string()})
            }
        })
        .collect();
    let mut metadata = ModelMetadata::declared(settings);
    metadata.parameters.others.insert("steps".to_owned(), steps.into());
    metadata
}

impl GraphModel {
    /// Runs the graph for one request.
    async fn answer(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> Result<InferenceResponse, RuntimeError> {
        progress.begin();
        // A graph waits only for its steps, whose models have limits of their own.
        progress.yielded();
        let run = GraphRun::start(&self.shared, progress.as_ref())?;
        let Execution { answer, background } =
            graphs::execute(Arc::clone(&self.shared.graph), Arc::clone(&run), request).await;
        if let Some(background) = background {
            run.finish_later(background);
        }
        run.steps.check_limits()?;
        let mut response = answer.map_err(|error| runtime_error(&error))?;
        // The graph reports the timing of its steps itself.
        if let Some(headers) = response.headers.written() {
            headers.remove(SERVER_TIMING);
        }
        run.add_timing(&mut response);
        Ok(response)
    }

    /// Returns MLflow's protocol for the inputs that the settings declare, or else those of the first step, which may have been loaded
    /// after the graph.
    fn mlflow_protocol(&self) -> MlflowProtocol {
        let own = self.description.metadata.as_ref().filter(|own| !own.inputs.is_empty());
        let first = || {
            let step = self.shared.graph.steps().first().filter(|step| step.url.is_none())?;
            self.shared.resources.directory.metadata(&step_model(&step.model))
        };
        match own.cloned().or_else(first) {
            Some(declared) => MlflowProtocol::new(&declared.inputs, declared.parameters.content_type()),
            None => MlflowProtocol::new(&[], None),
        }
    }

    /// Answers a call of MLflow's `/invocations`.
    async fn invocations(&self, call: CustomCall, progress: Arc<dyn Progress>) -> Result<CustomReply, RuntimeError> {
        let compute = &self.shared.resources.compute;
        let protocol = self.mlflow_protocol();
        // A byte of JSON, or an element, takes as long as four bytes of other work.
        let size = 4 * call.body.len();
        let request = match compute.run_sized(size, Priority::default(), move || protocol.read(&call)).await? {
            Ok(request) => request,
            Err(reply) => return Ok(*reply),
        };
        let response = match self.answer(request, progress).await {
            Ok(response) => response,
            Err(error) => match error.kind() {
                RequestErrorKind::BadRequest
                | RequestErrorKind::NothingRan
                | RequestErrorKind::Rejected { status: 400..=499 } => {
                    return Ok(MlflowProtocol::rejected(&error));
                }
                _ => return Err(error),
            },
        };
        let size = response.outputs.iter().map(|output| 4 * output.len()).sum();
        Ok(compute.run_sized(size, Priority::default(), move || MlflowProtocol::write(&response)).await?)
    }
}

impl Runtime for GraphModel {
    fn description(&self) -> &Description {
        &self.description
    }

    fn status(&self) -> RuntimeStatus {
        match self.shared.resources.directory.unavailable(&self.description.required_steps) {
            Some(reason) => RuntimeStatus::Unavailable { reason },
            None => RuntimeStatus::AVAILABLE,
        }
    }

    /// Returns 1, so that requests gather while a batch runs. The next batch does not wait for its end, because a graph yields.
    fn parallelism(&self) -> usize {
        1
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), RuntimeError>> {
        ready(Ok(()))
    }

    fn predict(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
        Box::pin(self.answer(request, progress))
    }

    /// Returns false: its steps have queues of their own.
    fn answers_at_once(&self, _: Asked<'_>) -> bool {
        false
    }

    fn unload(self: Arc<Self>) -> BoxFuture<'static, ()> {
        drop(self);
        ready(())
    }

    /// Answers the requests one after the other, each with the stream of its last step.
    fn predict_stream(self: Arc<Self>, requests: RequestStream, progress: Arc<dyn Progress>) -> ResponseStream {
        let shared = Arc::clone(&self.shared);
        Box::pin(requests.flat_map(move |request| {
            let (shared, progress) = (Arc::clone(&shared), Arc::clone(&progress));
            stream::once(answer_stream(shared, request, progress)).flatten()
        }))
    }

    fn call(
        &self,
        route: usize,
        call: CustomCall,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<CallReply, RuntimeError>> {
        match MlflowProtocol::is_probe(route) {
            _ if self.description.routes.is_empty() => ready(Err(RuntimeError::no_route(route))),
            Some(true) => ready(match self.status().into_reason() {
                None => Ok(MlflowProtocol::ready().into()),
                Some(reason) => Err(RuntimeError::new(RequestErrorKind::Unavailable, reason)),
            }),
            Some(false) => Box::pin(async move { Ok(self.invocations(call, progress).await?.into()) }),
            None => ready(Err(RuntimeError::no_route(route))),
        }
    }
}

/// Runs all steps but the last one, and returns the stream of the last one.
async fn answer_stream(
    shared: Arc<GraphShared>,
    request: InferenceRequest,
    progress: Arc<dyn Progress>,
) -> ResponseStream {
    let run = match GraphRun::start(&shared, progress.as_ref()) {
        Ok(run) => run,
        Err(error) => return one(Err(error)),
    };
    let prepared = graphs::prepare(Arc::clone(&shared.graph), Arc::clone(&run), request).await;
    if let Err(error) = run.steps.check_limits() {
        return one(Err(error));
    }
    let (last, background) = match prepared {
        Prepared::Answered(Execution { answer, background }) => {
            if let Some(background) = background {
                run.finish_later(background);
            }
            return one(answer.map_err(|error| runtime_error(&error)));
        }
        Prepared::LastStep(mut last) => {
            let background = last.background.take();
            (last, background)
        }
    };
    if let Some(background) = background {
        run.finish_later(background);
    }
    let streamed = StreamedStep { run: Arc::clone(&run), last, started: Instant::now() };
    let responses = run.stream(&streamed.last);
    Box::pin(responses.map(move |response| {
        let named = |error| runtime_error(&GraphError::Step { step: streamed.last.step().name.clone(), error });
        // The answer is that of the graph.
        let unnamed = |response| InferenceResponse { model_name: String::new(), model_version: None, ..response };
        response.map(unnamed).map_err(named)
    }))
}

fn one(response: Result<InferenceResponse, RuntimeError>) -> ResponseStream {
    Box::pin(stream::iter([response]))
}

/// A last step that streams. Its metrics are recorded when its stream is dropped, at the latest when it has ended.
struct StreamedStep {
    run: Arc<GraphRun>,
    last: LastStep,
    started: Instant,
}

impl Drop for StreamedStep {
    fn drop(&mut self) {
        self.run.shared.metrics[self.last.step().index].observe(self.started.elapsed());
    }
}

/// Runs the steps of one request.
struct GraphRun {
    shared: Arc<GraphShared>,
    steps: Arc<dyn Steps>,
    /// How long each step took, if the response reports it.
    timing: Option<Mutex<Vec<(String, Duration)>>>,
}

impl GraphRun {
    fn start(shared: &Arc<GraphShared>, progress: &dyn Progress) -> Result<Arc<Self>, RuntimeError> {
        let no_request = || RuntimeError::inconsistent("the steps of a graph run only as a part of a request");
        let steps = progress.steps().ok_or_else(no_request)?;
        let timing = steps.reports_timing().then(Mutex::default);
        Ok(Arc::new(Self { shared: Arc::clone(shared), steps, timing }))
    }

    /// Runs the steps that the answer does not wait for. They hold the slot of the request until they end.
    fn finish_later(self: &Arc<Self>, background: graphs::BackgroundSteps) {
        self.steps.detach();
        let run = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(reason) = catch_panic(background).await {
                let model = run.shared.name.as_str();
                tracing::error!(model, reason, "A step panicked. This is a bug in mlserver.");
            }
        });
    }

    /// Streams what the last step answers. A model of another server answers once.
    fn stream(&self, last: &LastStep) -> ResponseStream {
        let request = last.request.clone();
        match &self.shared.models[last.step().index] {
            StepTarget::Remote(remote) => Box::pin(stream::once(self.ask(remote, last.step(), request))),
            StepTarget::Local(model) => {
                Arc::clone(&self.steps).infer_stream(model.clone(), Box::pin(stream::iter([request])))
            }
        }
    }

    fn ask(
        &self,
        model: &Arc<RemoteModel>,
        step: &Step,
        request: InferenceRequest,
    ) -> BoxFuture<'static, Result<InferenceResponse, RuntimeError>> {
        let model = Arc::clone(model);
        let call: RemoteCall = Box::new(move |request, deadline, mut reservation| {
            Box::pin(async move {
                let response = model.infer(request, deadline, &mut reservation).await.map_err(remote_error)?;
                Ok((response, reservation))
            })
        });
        Arc::clone(&self.steps).infer_remote(step.name.clone(), request, call)
    }

    fn add_timing(&self, response: &mut InferenceResponse) {
        let Some(timing) = &self.timing else { return };
        let mut text = String::new();
        for (step, duration) in timing.lock().iter() {
            let separator = if text.is_empty() { "" } else { ", " };
            let name: String =
                step.chars().filter(|character| !character.is_control() && !"\"\\".contains(*character)).collect();
            // Writing to a text does not fail.
            let _ = write!(text, "{separator}step;desc=\"{name}\";dur={:.3}", duration.as_secs_f64() * 1e3);
        }
        if let Ok(value) = HeaderValue::try_from(text) {
            response.headers.append(SERVER_TIMING, value);
        }
    }
}

impl StepRunner for GraphRun {
    type Error = RuntimeError;

    fn run(
        self: &Arc<Self>,
        step: &Step,
        request: InferenceRequest,
    ) -> BoxFuture<'static, Result<InferenceResponse, RuntimeError>> {
        match &self.shared.models[step.index] {
            StepTarget::Remote(remote) => self.ask(remote, step, request),
            StepTarget::Local(model) => Arc::clone(&self.steps).infer(model, request),
        }
    }

    fn observe(&self, step: &Step, duration: Duration, outcome: StepOutcome<'_, RuntimeError>) {
        let metrics = &self.shared.metrics[step.index];
        metrics.observe(duration);
        if let Some(timing) = &self.timing {
            timing.lock().push((step.name.clone(), duration));
        }
        let StepOutcome::Failed { error, fails_graph: false } = outcome else { return };
        metrics.count_tolerated();
        let shared = &self.shared;
        let (model, version) = (shared.name.clone(), shared.version.clone());
        let summarize =
            move |suppressed| warn!(model, version, "{suppressed} more steps failed, which the graph tolerates.");
        if shared.failure_log.allows("tolerated", summarize) {
            let (model, version) = (shared.name.as_str(), shared.version.as_deref());
            warn!(model, version, reason = %error, "A step failed, which the graph tolerates.");
        } else {
            debug!(model = shared.name.as_str(), reason = %error, "A step failed, which the graph tolerates.");
        }
    }

    fn random(&self, below: u32) -> u32 {
        fastrand::u32(0..below.max(1))
    }

    fn compute(
        self: &Arc<Self>,
        priority: Priority,
        work: ConditionWork,
    ) -> BoxFuture<'static, Result<FoundCondition, RuntimeError>> {
        let run = Arc::clone(self);
        Box::pin(async move {
            let cancel = CancelOnDrop::default();
            let (stop, reservation) = (Arc::clone(&cancel.0), run.steps.reservation());
            Ok(run.shared.resources.compute.run_at(priority, move || work(reservation, &stop)).await?)
        })
    }
}

/// Returns the error of a model of another server. An error in its answer keeps its status.
fn remote_error(error: RemoteError) -> RuntimeError {
    let kind = match error {
        RemoteError::Compute(error) => return error.into(),
        RemoteError::OverBudget(error) => return error.into(),
        RemoteError::Unreachable(_) => RequestErrorKind::Unavailable,
        RemoteError::TimedOut(_) | RemoteError::Answer { status: 504, .. } => RequestErrorKind::Timeout,
        RemoteError::Answer { status: 413, .. } => RequestErrorKind::TooLarge,
        RemoteError::Answer { status: 503, .. } => RequestErrorKind::Overloaded,
        RemoteError::Answer { status, .. } => RequestErrorKind::Rejected { status },
        RemoteError::InvalidAnswer(_) => RequestErrorKind::Rejected { status: 502 },
        RemoteError::InvalidRequest(_) => RequestErrorKind::BadRequest,
    };
    RuntimeError::new(kind, error)
}

/// Returns the error of a graph. The error of a step keeps its kind.
fn runtime_error(error: &GraphError<RuntimeError>) -> RuntimeError {
    match (error, error.status()) {
        (GraphError::Step { error: of_step, .. } | GraphError::Compute { error: of_step, .. }, _) => {
            let (kind, is_logged) = (of_step.kind(), of_step.is_logged());
            let named = RuntimeError::new(kind, error.to_string());
            if is_logged { named.logged() } else { named }
        }
        (GraphError::Conditions { failure: ConditionFailure::OverBudget(over), .. }, _) => (*over).into(),
        (GraphError::NoOutput { .. } | GraphError::NoMatch { .. } | GraphError::Conditions { .. }, _) => {
            RuntimeError::new(RequestErrorKind::NothingRan, error.to_string())
        }
        (_, Some(status)) => RuntimeError::rejected(status.as_u16(), error.to_string()),
        (_, None) => RuntimeError::exception(error.to_string()),
    }
}
