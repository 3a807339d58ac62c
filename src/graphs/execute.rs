//! Runs the steps of a graph.
//!
//! All steps of a request run concurrently in one task. If the future is dropped, every running step is cancelled. Tensors move
//! from step to step as their buffers, and are cloned only if another step still needs them.
//!
//! Native models answer at once, so a graph of them would run without a pause. Each node takes from the budget that tokio gives a task
//! for one poll, and each step takes in proportion to its time, in nested graphs, too. Conditions run elsewhere if their document is long.

mod conditions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::FuturesUnordered;
use http::{HeaderMap, StatusCode};
use tokio::task::coop;

use super::condition::{MAX_VISITED, WalkError};
use super::graph::{Choice, Graph, INPUT, Join, Naming, NodeAction, NodeId, Port, Source, Step};
use super::schedule::{Branch, FailureEffect, NodeEnd, Schedule, ScheduleEvent, ScheduleStatus, SkipReason};
use crate::types::{
    ByteReservation, Datatype, Element, InferenceRequest, InferenceResponse, OverBudget, Parameters, Priority,
    RequestedOutput, Seldom, Tensor, short,
};
use conditions::ConditionDocument;

/// The maximum number of steps or conditions that an error lists.
const MAX_LISTED: usize = 10;

/// The time of a step that takes as much of the task's budget as a node does: a task has 128 of these before it pauses.
const BUDGET_UNIT: Duration = Duration::from_micros(8);

/// A schedule of so many nodes takes as long as a node does to run.
const NODES_OF_A_UNIT: usize = 16;

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The steps that the answer does not wait for. They run while this is polled, and are cancelled when it is dropped.
pub type BackgroundSteps = BoxFuture<'static, ()>;

/// Runs single steps, and observes them.
pub trait StepRunner: Send + Sync + 'static {
    type Error: Send + 'static;

    /// Runs a step. Dropping the future cancels the step.
    fn run(
        self: &Arc<Self>,
        step: &Step,
        request: InferenceRequest,
    ) -> BoxFuture<'static, Result<InferenceResponse, Self::Error>>;

    /// Observes the end of a step.
    fn observe(&self, step: &Step, duration: Duration, outcome: StepOutcome<'_, Self::Error>);

    /// Returns a random number from 0 to `below - 1`, with which splitters choose.
    fn random(&self, below: u32) -> u32;

    /// Runs long work on other threads than those that serve. Dropping the future cancels it.
    fn compute(
        self: &Arc<Self>,
        priority: Priority,
        work: ConditionWork,
    ) -> BoxFuture<'static, Result<FoundCondition, Self::Error>>;
}

/// Finds the index of the first condition that matches. It reserves the memory of its document, and ends soon after the flag is true.
pub type ConditionWork = Box<dyn FnOnce(ByteReservation, &AtomicBool) -> FoundCondition + Send>;

/// The index of the first condition that matches, if one does.
pub type FoundCondition = Result<Option<usize>, ConditionFailure>;

/// Why conditions could not be evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConditionFailure {
    #[error(
        "the conditions would visit more than {MAX_VISITED} elements and members; use a smaller tensor, or a parameter of the request"
    )]
    TooMany,
    #[error("the request was cancelled")]
    Cancelled,
    #[error(transparent)]
    OverBudget(#[from] OverBudget),
}

impl From<WalkError> for ConditionFailure {
    fn from(error: WalkError) -> Self {
        match error {
            WalkError::TooMany => Self::TooMany,
            WalkError::Stopped => Self::Cancelled,
        }
    }
}

/// How a step ended.
#[derive(Debug)]
pub enum StepOutcome<'a, E> {
    Succeeded,
    Failed {
        error: &'a GraphError<E>,
        /// Whether the failure fails the graph. Otherwise the outputs of the step are missing.
        fails_graph: bool,
    },
    Cancelled,
}

/// Why a graph has no answer.
#[derive(Debug, thiserror::Error)]
pub enum GraphError<E> {
    /// A step failed. The error determines the status.
    #[error("step \"{step}\": {error}")]
    Step { step: String, error: E },
    /// No step that the answer is made of has run.
    #[error("the graph has no output for this request{}", listed(.skipped))]
    NoOutput { skipped: Vec<SkippedStep> },
    /// A `Switch` has no condition that matches.
    #[error("node \"{node}\": no condition matches the request, expected one of: {}", join_first(.conditions, ", "))]
    NoMatch { node: String, conditions: Vec<String> },
    /// The conditions of a node could not be evaluated.
    #[error("node \"{node}\": {failure}")]
    Conditions { node: String, failure: ConditionFailure },
    /// The conditions of a node could not be computed. The error determines the status.
    #[error("node \"{node}\": {error}")]
    Compute { node: String, error: E },
    /// A router did not answer the index of a child.
    #[error("step \"{step}\": expected one integer from -1 to {last}, the index of a child, found {found}", last = .children.saturating_sub(1))]
    RouterIndex { step: String, found: String, children: usize },
    /// Two steps returned a tensor of the same name for the same consumer.
    #[error("\"{}\" and \"{}\" both provide the tensor `{}` for {consumer}; rename one of them", .producers[0], .producers[1], short(.name))]
    Conflict { consumer: String, name: String, producers: [String; 2] },
}

impl<E> GraphError<E> {
    /// Returns the HTTP status of the error, or `None` for the error of a step, or of the memory or the threads, which have their own.
    pub const fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Step { .. }
            | Self::Compute { .. }
            | Self::Conditions { failure: ConditionFailure::OverBudget(_), .. } => None,
            Self::NoOutput { .. } | Self::NoMatch { .. } | Self::Conditions { .. } | Self::Conflict { .. } => {
                Some(StatusCode::UNPROCESSABLE_ENTITY)
            }
            Self::RouterIndex { .. } => Some(StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

/// A step that did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedStep {
    /// The name of the step, or `None` for the output of the graph.
    pub step: Option<String>,
    pub reason: String,
}

impl fmt::Display for SkippedStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.step {
            Some(step) => write!(f, "step \"{step}\" did not run, {}", self.reason),
            None => write!(f, "the output is missing, {}", self.reason),
        }
    }
}

fn listed(skipped: &[SkippedStep]) -> String {
    if skipped.is_empty() { String::new() } else { format!(": {}", join_first(skipped, "; ")) }
}

/// Joins the first items, and counts the others.
fn join_first(items: &[impl ToString], separator: &str) -> String {
    let mut parts: Vec<_> = items.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    if items.len() > MAX_LISTED {
        parts.push(format!("and {} more", items.len() - MAX_LISTED));
    }
    parts.join(separator)
}

/// The answer of a graph.
pub struct Execution<E> {
    /// The answer, without a model's name.
    pub answer: Result<InferenceResponse, GraphError<E>>,
    /// Steps that are still running although the answer does not need them.
    pub background: Option<BackgroundSteps>,
}

/// The result of [`prepare`].
pub enum Prepared<E> {
    /// All steps have run but the last one.
    LastStep(LastStep),
    /// The graph has an answer already: it failed, or its last step cannot run on its own.
    Answered(Execution<E>),
}

/// The last step of a graph, whose answers are the graph's, and its request.
pub struct LastStep {
    graph: Arc<Graph>,
    step: usize,
    pub request: InferenceRequest,
    pub background: Option<BackgroundSteps>,
}

impl LastStep {
    pub fn step(&self) -> &Step {
        &self.graph.steps()[self.step]
    }
}

/// Runs a graph.
pub async fn execute<R: StepRunner>(
    graph: Arc<Graph>,
    runner: Arc<R>,
    request: InferenceRequest,
) -> Execution<R::Error> {
    let mut run = GraphRun::new(graph, runner, request, false);
    run.pause_if_large().await;
    run.advance().await;
    run.finish()
}

/// Runs all steps of a graph but the last one, for a last step that streams. See [`Graph::last_steps`].
pub async fn prepare<R: StepRunner>(
    graph: Arc<Graph>,
    runner: Arc<R>,
    request: InferenceRequest,
) -> Prepared<R::Error> {
    let mut run = GraphRun::new(graph, runner, request, true);
    run.advance().await;
    let Some(held) = run.take_last_step() else {
        return Prepared::Answered(run.finish());
    };
    let graph = Arc::clone(&run.graph);
    Prepared::LastStep(LastStep { graph, step: held.0, request: held.1, background: run.into_background() })
}

/// Tensors on their way between steps, and the rest of the request or response that they came with.
#[derive(Debug, Clone, Default)]
struct Bundle {
    tensors: Vec<Tensor>,
    parameters: Parameters,
    headers: Seldom<HeaderMap>,
}

impl Bundle {
    /// Adds tensors. Later parameters and headers replace earlier ones.
    fn add(&mut self, later: Self) {
        if self.tensors.is_empty() && self.parameters.is_empty() && self.headers.is_empty() {
            *self = later;
            return;
        }
        self.tensors.extend(later.tensors);
        if later.parameters.content_type.is_some() {
            self.parameters.content_type = later.parameters.content_type;
        }
        if !later.parameters.others.is_empty() {
            self.parameters.others.extend(later.parameters.others.into_inner());
        }
        if !later.headers.is_empty() {
            self.headers.extend(later.headers.into_inner());
        }
    }
}

/// A node that runs.
enum RunningNode<R: StepRunner> {
    Step {
        node: NodeId,
        /// `None` once the step has ended.
        timer: Option<StepTimer<R>>,
        answer: BoxFuture<'static, Result<InferenceResponse, R::Error>>,
    },
    Choice {
        node: NodeId,
        found: BoxFuture<'static, Result<FoundCondition, R::Error>>,
    },
}

impl<R: StepRunner> Future for RunningNode<R> {
    type Output = RunningEnd<R>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<RunningEnd<R>> {
        match self.get_mut() {
            Self::Step { node, timer, answer } => {
                let result = ready!(answer.as_mut().poll(context));
                let timer = timer.take().expect("a step ends once");
                Poll::Ready(RunningEnd::Step(StepEnd { node: *node, duration: timer.start.elapsed(), timer, result }))
            }
            Self::Choice { node, found } => {
                let found = ready!(found.as_mut().poll(context));
                Poll::Ready(RunningEnd::Choice { node: *node, found })
            }
        }
    }
}

/// The end of a node that has run.
enum RunningEnd<R: StepRunner> {
    Step(StepEnd<R>),
    Choice { node: NodeId, found: Result<FoundCondition, R::Error> },
}

impl<R: StepRunner> RunningEnd<R> {
    const fn node(&self) -> NodeId {
        match self {
            Self::Step(end) => end.node,
            Self::Choice { node, .. } => *node,
        }
    }
}

/// The end of a step, which counts as cancelled if nothing takes it.
struct StepEnd<R: StepRunner> {
    node: NodeId,
    duration: Duration,
    timer: StepTimer<R>,
    result: Result<InferenceResponse, R::Error>,
}

/// One request on its way through a graph.
struct GraphRun<R: StepRunner> {
    graph: Arc<Graph>,
    runner: Arc<R>,
    schedule: Schedule,
    /// The steps that ended as they started. Their ends have not been reported to the schedule.
    ended: VecDeque<StepEnd<R>>,
    /// The other running nodes, if there have been any.
    running: Option<FuturesUnordered<Abortable<RunningNode<R>>>>,
    /// Of the nodes in `running`, without those that have been cancelled.
    abort_handles: BTreeMap<NodeId, AbortHandle>,
    /// The tensors that each node has returned, until the last one has read them.
    outputs: Vec<Option<Bundle>>,
    /// The tensors that each node was given, if other nodes read them, until the last one has read them.
    inputs: BTreeMap<NodeId, Option<Bundle>>,
    scope_errors: Vec<Option<GraphError<R::Error>>>,
    error: Option<GraphError<R::Error>>,
    /// The request without its inputs, outputs and parameters.
    envelope: InferenceRequest,
    parameters: Parameters,
    requested: Vec<RequestedOutput>,
    /// Whether last steps are held, and those that are.
    holds_last: bool,
    held: Vec<(NodeId, InferenceRequest)>,
}

impl<R: StepRunner> GraphRun<R> {
    fn new(graph: Arc<Graph>, runner: Arc<R>, mut request: InferenceRequest, holds_last: bool) -> Self {
        let tensors = std::mem::take(&mut request.inputs);
        let parameters = std::mem::take(&mut request.parameters);
        let requested = std::mem::take(&mut request.outputs);
        let names = names_if(graph.usage(INPUT).has_selectors, &tensors);
        let mut outputs = vec![None; graph.nodes().len()];
        let passed = if graph.passes_parameters() { parameters.clone() } else { Parameters::new() };
        outputs[INPUT] = Some(Bundle { tensors, parameters: passed, headers: Seldom::default() });
        Self {
            schedule: Schedule::new(Arc::clone(&graph), names),
            ended: VecDeque::new(),
            running: None,
            abort_handles: BTreeMap::new(),
            outputs,
            inputs: BTreeMap::new(),
            scope_errors: (0..graph.scope_count()).map(|_| None).collect(),
            error: None,
            envelope: request,
            parameters,
            requested,
            holds_last,
            held: Vec::new(),
            graph,
            runner,
        }
    }

    /// Takes from the task's budget for the schedule, which has been made at once.
    async fn pause_if_large(&mut self) {
        let units = self.graph.nodes().len() / NODES_OF_A_UNIT;
        poll_fn(|context| {
            // If there is less left, the first node pauses.
            let _ = take_budget(context, units as u128);
            Poll::Ready(())
        })
        .await;
    }

    /// Runs steps until the answer is known, or until only a held step is missing.
    async fn advance(&mut self) {
        loop {
            poll_fn(|context| self.start_steps(context)).await;
            if self.schedule.status() != ScheduleStatus::Running || !self.held.is_empty() || !self.wait().await {
                return;
            }
        }
    }

    /// Follows the schedule until it waits for a step. Pauses when the task has no budget left.
    fn start_steps(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(take_budget(context, 1));
            let Some(event) = self.schedule.next() else { return Poll::Ready(()) };
            match event {
                ScheduleEvent::Start(node) => {
                    self.start(node, context);
                    // If it has failed already, the steps beside it do not start.
                    if let Some(end) = self.ended.pop_back_if(|end| end.result.is_err()) {
                        self.step_ended(end);
                    }
                }
                ScheduleEvent::Cancel(node) => {
                    if let Some(handle) = self.abort_handles.remove(&node) {
                        handle.abort();
                    }
                    self.ended.retain(|end| end.node != node);
                }
            }
        }
    }

    /// Waits for the end of a node. Returns false if none is running.
    async fn wait(&mut self) -> bool {
        if let Some(end) = self.ended.pop_front() {
            self.step_ended(end);
            return true;
        }
        let Some(running) = &mut self.running else { return false };
        // Without budget, the nodes would only be polled in order to pause.
        let next = poll_fn(|context| {
            // Taken for good: a unit that is given back later would bring back with it all that the nodes have taken in between.
            ready!(take_budget(context, 1));
            running.poll_next_unpin(context)
        });
        match next.await {
            Some(Ok(end)) => {
                self.abort_handles.remove(&end.node());
                match end {
                    RunningEnd::Step(end) => self.step_ended(end),
                    RunningEnd::Choice { node, found } => self.conditions_ended(node, found),
                }
                true
            }
            // A step that has been cancelled.
            Some(Err(_)) => true,
            None => false,
        }
    }

    fn step_ended(&mut self, StepEnd { node, duration, timer, result }: StepEnd<R>) {
        timer.stop();
        match result {
            Ok(response) => {
                if let Some(step) = self.step_of(node) {
                    self.runner.observe(step, duration, StepOutcome::Succeeded);
                }
                let InferenceResponse { parameters, headers, outputs, .. } = response;
                self.end(node, Bundle { tensors: outputs, parameters, headers });
            }
            Err(error) => {
                let step = self.step_of(node).map(|step| step.name.clone()).unwrap_or_default();
                self.fail(node, duration, GraphError::Step { step, error });
            }
        }
    }

    fn step_of(&self, node: NodeId) -> Option<&Step> {
        match &self.graph.nodes()[node].action {
            NodeAction::Step(step) => Some(&self.graph.steps()[*step]),
            _ => None,
        }
    }

    /// Records the tensors of a node.
    fn end(&mut self, node: NodeId, bundle: Bundle) {
        let names = names_if(self.graph.usage(node).has_selectors, &bundle.tensors);
        if node == self.graph.output() || self.schedule.is_read(node) {
            self.outputs[node] = Some(bundle);
        }
        self.schedule.ended(node, NodeEnd::Tensors(names));
    }

    fn fail(&mut self, node: NodeId, duration: Duration, error: GraphError<R::Error>) {
        let effect = self.schedule.ended(node, NodeEnd::Failed);
        if let Some(step) = self.step_of(node) {
            let fails_graph = effect == Some(FailureEffect::Graph);
            self.runner.observe(step, duration, StepOutcome::Failed { error: &error, fails_graph });
        }
        match effect {
            Some(FailureEffect::Graph) => self.error = Some(error),
            Some(FailureEffect::Scope(scope)) => {
                self.scope_errors[scope].get_or_insert(error);
            }
            Some(FailureEffect::Warning) | None => {}
        }
    }

    fn start(&mut self, node: NodeId, context: &mut Context<'_>) {
        let graph = Arc::clone(&self.graph);
        let bundle = match self.collect(node) {
            Ok(bundle) => bundle,
            Err(error) => return self.fail(node, Duration::ZERO, error),
        };
        if graph.usage(node).has_input_readers {
            self.schedule.has_inputs(node, names_if(true, &bundle.tensors));
            self.inputs.insert(node, Some(bundle.clone()));
        }
        match &graph.nodes()[node].action {
            NodeAction::Step(step) => self.start_step(node, *step, bundle, context),
            NodeAction::Collect if graph.nodes()[node].join == Join::Gather => match self.gathered_error(node) {
                Some(error) => self.fail(node, Duration::ZERO, error),
                None => self.end(node, bundle),
            },
            NodeAction::Input | NodeAction::Collect => self.end(node, bundle),
            NodeAction::Choose(Choice::Switch { .. } | Choice::Match(_)) => {
                let document = ConditionDocument { graph: Arc::clone(&graph), node, bundle };
                self.evaluate_conditions(node, document);
            }
            NodeAction::Choose(Choice::Split { weights }) => {
                let branch = self.split(weights);
                self.schedule.ended(node, NodeEnd::Chosen(branch));
            }
            NodeAction::Choose(Choice::Route { step, children }) => match route(step, *children, &bundle) {
                Ok(branch) => {
                    self.schedule.ended(node, NodeEnd::Chosen(branch));
                }
                Err(error) => self.fail(node, Duration::ZERO, error),
            },
        }
    }

    fn start_step(&mut self, node: NodeId, step: usize, bundle: Bundle, context: &mut Context<'_>) {
        let is_last = self.graph.is_last_step(node);
        let parameters = if self.graph.passes_parameters() { bundle.parameters } else { self.parameters.clone() };
        let InferenceRequest { id, headers, priority, trace, .. } = &self.envelope;
        let request = InferenceRequest {
            id: id.clone(),
            parameters,
            headers: headers.clone(),
            inputs: bundle.tensors,
            outputs: if is_last { self.requested.clone() } else { Vec::new() },
            priority: *priority,
            trace: *trace,
            ..InferenceRequest::default()
        };
        if is_last && self.holds_last {
            self.held.push((node, request));
        } else {
            self.run_step(node, step, request, context);
        }
    }

    fn running_step(&self, node: NodeId, step: usize, request: InferenceRequest) -> RunningNode<R> {
        let (graph, runner) = (Arc::clone(&self.graph), Arc::clone(&self.runner));
        let timer = Some(StepTimer { graph, runner, step, start: Instant::now(), is_over: false });
        RunningNode::Step { node, timer, answer: self.runner.run(&self.graph.steps()[step], request) }
    }

    /// Starts a step. Most native models answer at once, and need no task of their own.
    fn run_step(&mut self, node: NodeId, step: usize, request: InferenceRequest, context: &mut Context<'_>) {
        let mut running = self.running_step(node, step, request);
        match Pin::new(&mut running).poll(context) {
            Poll::Ready(RunningEnd::Step(end)) => {
                let units = end.duration.as_micros() / BUDGET_UNIT.as_micros();
                // If there is less left, the next node pauses.
                let _ = take_budget(context, units);
                self.ended.push_back(end);
            }
            Poll::Ready(RunningEnd::Choice { node, found }) => self.conditions_ended(node, found),
            Poll::Pending => self.run_node(node, running),
        }
    }

    fn run_node(&mut self, node: NodeId, running: RunningNode<R>) {
        let (running, handle) = futures_util::future::abortable(running);
        self.abort_handles.insert(node, handle);
        self.running.get_or_insert_default().push(running);
    }

    /// Collects the tensors of a node's sources.
    fn collect(&mut self, node: NodeId) -> Result<Bundle, GraphError<R::Error>> {
        let graph = Arc::clone(&self.graph);
        let this = &graph.nodes()[node];
        let mut collected = Bundle::default();
        // The index of the source of each tensor.
        let mut producers = Vec::new();
        for index in self.schedule.sources(node) {
            let source = &this.sources[index];
            let slot = match source.port {
                Port::Outputs => Some(&mut self.outputs[source.node]),
                Port::Inputs => self.inputs.get_mut(&source.node),
            };
            let keeps = source.is_repeated || self.schedule.is_read(source.node);
            let Some(mut bundle) = slot.and_then(|slot| read(slot, source.tensor.as_deref(), keeps)) else { continue };
            for tensor in &mut bundle.tensors {
                if let Some((_, new)) = source.renames.iter().find(|(from, _)| *from == tensor.name) {
                    tensor.name.clone_from(new);
                }
            }
            producers.extend(std::iter::repeat_n(index, bundle.tensors.len()));
            collected.add(bundle);
        }
        let clash = separate_names(this.naming, &this.sources, &mut collected.tensors, &producers);
        if let Some([earlier, later]) = clash {
            let consumer = match self.step_of(node) {
                Some(step) => format!("step \"{}\"", step.name),
                None => "the output".to_owned(),
            };
            let producers = [earlier, later].map(|tensor| this.sources[producers[tensor]].label.clone());
            let name = collected.tensors[later].name.clone();
            return Err(GraphError::Conflict { consumer, name, producers });
        }
        Ok(collected)
    }

    /// Returns the error of an ensemble of which all steps have failed.
    fn gathered_error(&mut self, node: NodeId) -> Option<GraphError<R::Error>> {
        let graph = Arc::clone(&self.graph);
        let sources = &graph.nodes()[node].sources;
        if !sources.iter().all(|source| self.schedule.has_failed(source.node)) {
            return None;
        }
        let mut scopes = sources.iter().filter_map(|source| graph.nodes()[source.node].scope);
        scopes.find_map(|scope| self.scope_errors[scope].take())
    }

    fn split(&self, weights: &[u32]) -> Branch {
        let mut random = self.runner.random(weights.iter().sum());
        let chosen = weights.iter().position(|&weight| match random.checked_sub(weight) {
            Some(left) => {
                random = left;
                false
            }
            None => true,
        });
        Branch::One(chosen.unwrap_or(weights.len().saturating_sub(1)))
    }

    /// Returns the last step that is held, and its request. If several are held, the others run in the background.
    fn take_last_step(&mut self) -> Option<(usize, InferenceRequest)> {
        let mut held = std::mem::take(&mut self.held);
        held.sort_by_key(|(node, _)| self.graph.last_step_position(*node));
        let mut held = held.into_iter().filter_map(|(node, request)| match self.graph.nodes()[node].action {
            NodeAction::Step(step) => Some((node, step, request)),
            _ => None,
        });
        let (_, step, request) = held.next()?;
        for (node, step, request) in held.collect::<Vec<_>>() {
            let running = self.running_step(node, step, request);
            self.run_node(node, running);
        }
        Some((step, request))
    }

    fn finish(mut self) -> Execution<R::Error> {
        if let Some(error) = self.error.take() {
            return Execution { answer: Err(error), background: None };
        }
        let answer = match self.outputs[self.graph.output()].take() {
            Some(Bundle { mut tensors, parameters, headers }) => {
                let wants = |name: &str| self.requested.iter().any(|output| output.name == name);
                if !self.requested.is_empty() {
                    tensors.retain(|tensor| wants(&tensor.name));
                }
                let id = std::mem::take(&mut self.envelope.id);
                Ok(InferenceResponse { id, parameters, headers, outputs: tensors, ..InferenceResponse::default() })
            }
            None => Err(GraphError::NoOutput { skipped: self.skipped() }),
        };
        Execution { answer, background: self.into_background() }
    }

    /// Returns the steps that could have contributed to the answer but did not run.
    fn skipped(&self) -> Vec<SkippedStep> {
        let describe = |(node, reason, source): (NodeId, SkipReason, Option<&Source>)| {
            let step = self.step_of(node).map(|step| step.name.clone());
            let is_named = step.is_some() || node == self.graph.output();
            if !is_named || self.graph.usage(node).is_background {
                return None;
            }
            let reason = match (reason, source) {
                (SkipReason::Gate, _) | (_, None) => "because another branch was chosen".to_owned(),
                (_, Some(source)) => self.describe_missing(source),
            };
            Some(SkippedStep { step, reason })
        };
        let mut skipped: Vec<_> = self.schedule.skipped().filter_map(describe).collect();
        // The output is missing because of these steps.
        if skipped.iter().any(|skipped| skipped.step.is_some()) {
            skipped.retain(|skipped| skipped.step.is_some());
        }
        skipped
    }

    fn describe_missing(&self, source: &Source) -> String {
        let label = self.step_of(source.node).map_or(&source.label, |step| &step.name);
        match &source.tensor {
            Some(tensor) if source.node == INPUT => format!("because the request has no input `{tensor}`"),
            Some(tensor) if source.port == Port::Outputs && self.schedule.has_ended(source.node) => {
                format!("because step \"{label}\" returned no tensor `{tensor}`")
            }
            Some(tensor) if self.inputs.contains_key(&source.node) => {
                format!("because step \"{label}\" got no tensor `{tensor}`")
            }
            _ if self.schedule.has_failed(source.node) => format!("because step \"{label}\" failed"),
            _ => format!("because step \"{label}\" did not run"),
        }
    }

    /// Returns the steps that are still running.
    fn into_background(mut self) -> Option<BackgroundSteps> {
        self.schedule.settle();
        // `running` may still hold steps that have been cancelled.
        let is_running = !self.ended.is_empty() || !self.abort_handles.is_empty();
        if !is_running || self.schedule.status() == ScheduleStatus::Failed {
            return None;
        }
        Some(Box::pin(async move {
            while self.wait().await {
                poll_fn(|context| self.start_steps(context)).await;
            }
        }))
    }
}

/// Observes a step that is cancelled.
struct StepTimer<R: StepRunner> {
    graph: Arc<Graph>,
    runner: Arc<R>,
    step: usize,
    start: Instant,
    is_over: bool,
}

impl<R: StepRunner> StepTimer<R> {
    fn stop(mut self) {
        self.is_over = true;
    }
}

impl<R: StepRunner> Drop for StepTimer<R> {
    fn drop(&mut self) {
        if !self.is_over {
            self.runner.observe(&self.graph.steps()[self.step], self.start.elapsed(), StepOutcome::Cancelled);
        }
    }
}

/// Returns the names of tensors, if they are needed.
fn names_if(is_needed: bool, tensors: &[Tensor]) -> BTreeSet<String> {
    if is_needed { tensors.iter().map(|tensor| tensor.name.clone()).collect() } else { BTreeSet::new() }
}

/// Reads all tensors of a node, or one of them. They are moved unless they are kept for others.
fn read(slot: &mut Option<Bundle>, tensor: Option<&str>, keeps: bool) -> Option<Bundle> {
    let Some(name) = tensor else {
        return if keeps { slot.clone() } else { slot.take() };
    };
    let is_selected = |tensor: &Tensor| tensor.name == name;
    if !keeps {
        let mut bundle = slot.take()?;
        bundle.tensors.retain(is_selected);
        return Some(bundle);
    }
    let Bundle { tensors, parameters, headers } = slot.as_ref()?;
    let tensors = tensors.iter().filter(|tensor| is_selected(tensor)).cloned().collect();
    Some(Bundle { tensors, parameters: parameters.clone(), headers: headers.clone() })
}

/// Prefixes names of tensors with their producers, and returns two tensors of different producers that have the same name
/// nevertheless. `producers` has the index of the source of each tensor.
fn separate_names(
    naming: Naming,
    sources: &[Source],
    tensors: &mut [Tensor],
    producers: &[usize],
) -> Option<[usize; 2]> {
    let prefix = |tensor: &mut Tensor, producer: usize| {
        tensor.name = [&sources[producer].label, ".", &tensor.name].concat();
    };
    if naming == Naming::Prefix {
        for (tensor, &producer) in tensors.iter_mut().zip(producers) {
            prefix(tensor, producer);
        }
    }
    // The tensors of one producer do not clash with each other.
    if producers.first() == producers.last() {
        return None;
    }
    let mut is_prefixed = vec![naming != Naming::PrefixClashes; tensors.len()];
    loop {
        let clashes = clashes(tensors, producers);
        let mut is_changed = false;
        // A prefixed name may clash with another name, which then is prefixed, too.
        for &tensor in clashes.iter().filter(|tensor| !std::mem::replace(&mut is_prefixed[**tensor], true)) {
            prefix(&mut tensors[tensor], producers[tensor]);
            is_changed = true;
        }
        if !is_changed {
            let first = *clashes.first()?;
            let has_same_name = |tensor: &&usize| tensors[**tensor].name == tensors[first].name;
            return clashes.iter().rfind(has_same_name).map(|&last| [first, last]);
        }
    }
}

/// Returns the tensors that have the name of a tensor of another producer, ordered by name and producer.
fn clashes(tensors: &[Tensor], producers: &[usize]) -> Vec<usize> {
    let mut ordered: Vec<usize> = (0..tensors.len()).collect();
    ordered.sort_unstable_by_key(|&tensor| (&tensors[tensor].name, producers[tensor]));
    let groups = ordered.chunk_by(|&one, &other| tensors[one].name == tensors[other].name);
    let is_clash =
        |group: &&[usize]| group.first().map(|&one| producers[one]) != group.last().map(|&one| producers[one]);
    groups.filter(is_clash).flatten().copied().collect()
}

/// Takes from the budget that the task has for one poll, as far as it goes. Pending, if it has none.
fn take_budget(context: &mut Context<'_>, units: u128) -> Poll<()> {
    for _ in 0..units {
        ready!(coop::poll_proceed(context)).made_progress();
    }
    Poll::Ready(())
}

/// Returns the branch that a router has chosen.
fn route<E>(step: &str, children: usize, bundle: &Bundle) -> Result<Branch, GraphError<E>> {
    let found = match router_index(&bundle.tensors) {
        Ok(-1) => return Ok(Branch::All),
        Ok(index) => match usize::try_from(index) {
            Ok(index) if index < children => return Ok(Branch::One(index)),
            _ => index.to_string(),
        },
        Err(found) => found,
    };
    Err(GraphError::RouterIndex { step: step.to_owned(), found, children })
}

/// Returns the only element of the only tensor of a router, or a description of its tensors.
fn router_index(tensors: &[Tensor]) -> Result<i64, String> {
    fn first<T: Element + Into<i64>>(tensor: &Tensor) -> Option<i64> {
        tensor.elements::<T>().and_then(|elements| elements.first().copied()).map(Into::into)
    }
    let [tensor] = tensors else { return Err(format!("{} tensors", tensors.len())) };
    let described = || match tensor.len() {
        1 => format!("one element of {}", tensor.datatype),
        length => format!("{length} elements of {}", tensor.datatype),
    };
    if tensor.len() != 1 {
        return Err(described());
    }
    let unsigned = || tensor.elements::<u64>().and_then(|elements| elements.first().copied());
    let index = match tensor.datatype {
        Datatype::Int8 => first::<i8>(tensor),
        Datatype::Int16 => first::<i16>(tensor),
        Datatype::Int32 => first::<i32>(tensor),
        Datatype::Int64 => first::<i64>(tensor),
        Datatype::Uint8 => first::<u8>(tensor),
        Datatype::Uint16 => first::<u16>(tensor),
        Datatype::Uint32 => first::<u32>(tensor),
        Datatype::Uint64 => {
            return unsigned()
                .ok_or_else(described)
                .and_then(|index| i64::try_from(index).map_err(|_| index.to_string()));
        }
        _ => None,
    };
    index.ok_or_else(described)
}
