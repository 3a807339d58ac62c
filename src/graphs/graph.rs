//! The compiled form of a graph: one form for all manifests.
//!
//! A graph is a list of nodes. Each node depends only on nodes before it, so a graph has no cycles by construction. Node 0 holds
//! the graph's inputs, and one node collects its outputs. In between, nodes run steps, collect tensors, or choose between branches.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::condition::Condition;
use super::manifest::ManifestProblem;

/// The index of a node.
pub(super) type NodeId = usize;

/// The index of a scope.
pub(super) type ScopeId = usize;

/// The node that holds the graph's inputs.
pub(super) const INPUT: NodeId = 0;

/// A compiled graph.
#[derive(Debug)]
pub struct Graph {
    name: String,
    kind: GraphKind,
    file: String,
    steps: Vec<Step>,
    nodes: Vec<Node>,
    /// The enclosing scope of each scope.
    scopes: Vec<Option<ScopeId>>,
    output: NodeId,
    /// The nodes that depend on each node, without duplicates.
    consumers: Vec<Vec<NodeId>>,
    usage: Vec<NodeUsage>,
    last_steps: Vec<NodeId>,
}

/// The kind of manifest that declares a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraphKind {
    /// Seldon Core 2.
    Pipeline,
    /// `KServe`.
    InferenceGraph,
    /// Seldon Core.
    SeldonDeployment,
}

/// A step: a model that the graph calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The name of the step in the manifest.
    pub name: String,
    pub model: ModelReference,
    /// The URL of another server that has the model.
    pub url: Option<String>,
    /// The folder from which the model is created if the server has no model of that name.
    pub folder: Option<String>,
    /// The environment variables of the step's container in a `SeldonDeployment`.
    pub environment: Vec<(String, String)>,
    /// Whether a failure of the step can fail the graph. The graph is ready when all of these steps are.
    pub required: bool,
    /// The path of the step inside the manifest, such as `spec.steps[2]`.
    pub path: String,
    /// The index of the step in [`Graph::steps`].
    pub index: usize,
}

/// A model's name, with a version if the manifest pins one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReference {
    pub name: String,
    pub version: Option<String>,
}

impl ModelReference {
    /// Returns the model and the version of `model:v1`, for a name without a model of its own.
    pub fn with_version_of_name(&self) -> Option<Self> {
        let (name, version) = self.name.rsplit_once(':').filter(|_| self.version.is_none())?;
        let is_complete = !name.is_empty() && !version.is_empty();
        is_complete.then(|| Self { name: name.to_owned(), version: Some(version.to_owned()) })
    }
}

/// A dependency between two steps, for drawings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    pub from: Endpoint,
    pub to: Endpoint,
    /// The tensors that are passed, the condition, the weight, or `trigger`. Empty if all tensors are passed unconditionally.
    pub label: String,
}

/// One end of an [`Edge`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Endpoint {
    /// The graph's inputs.
    Input,
    /// The index of a step in [`Graph::steps`].
    Step(usize),
    /// The graph's outputs.
    Output,
}

/// A node of the compiled form.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) action: NodeAction,
    pub(super) sources: Vec<Source>,
    pub(super) join: Join,
    pub(super) triggers: Vec<Source>,
    pub(super) triggers_join: Join,
    /// The node runs only if this branch is chosen.
    pub(super) gate: Option<Gate>,
    /// The node runs only after this node has ended, successfully or not.
    pub(super) after: Option<NodeId>,
    /// The innermost scope that contains failures of the node. Without one, a failure fails the graph.
    pub(super) scope: Option<ScopeId>,
    pub(super) naming: Naming,
}

impl Node {
    /// Creates a node that needs all of its sources.
    pub(super) const fn new(action: NodeAction, sources: Vec<Source>) -> Self {
        Self {
            action,
            sources,
            join: Join::Inner,
            triggers: Vec::new(),
            triggers_join: Join::Inner,
            gate: None,
            after: None,
            scope: None,
            naming: Naming::Unique,
        }
    }

    /// Returns the nodes that this node depends on, possibly with duplicates.
    pub(super) fn dependencies(&self) -> impl Iterator<Item = NodeId> + '_ {
        let sources = self.sources.iter().chain(&self.triggers).map(|source| source.node);
        sources.chain(self.gate.map(|gate| gate.control)).chain(self.after)
    }
}

/// The action of a node.
#[derive(Debug)]
pub(super) enum NodeAction {
    /// Holds the graph's inputs.
    Input,
    /// Runs the step of this index.
    Step(usize),
    /// Passes on its sources.
    Collect,
    /// Chooses between branches.
    Choose(Choice),
}

/// How a node chooses a branch.
#[derive(Debug)]
pub(super) enum Choice {
    /// The first condition that matches the sources as a request. It is an error if none matches.
    Switch { node: String, conditions: Vec<Condition> },
    /// The only branch, if the condition matches the sources as a response.
    Match(Condition),
    /// Random, by weight.
    Split { weights: Vec<u32> },
    /// The integer that the step of this name answers.
    Route { step: String, children: usize },
}

/// A branch of a node that chooses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gate {
    pub(super) control: NodeId,
    pub(super) branch: usize,
}

/// Tensors of another node.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) node: NodeId,
    pub(super) port: Port,
    /// One tensor, or all.
    pub(super) tensor: Option<String>,
    /// Tensors and their new names.
    pub(super) renames: Vec<(String, String)>,
    /// The name of the producer, for prefixes and messages.
    pub(super) label: String,
    /// The path inside the manifest.
    pub(super) path: String,
    /// Whether a later source of the same node has the same origin.
    pub(super) is_repeated: bool,
}

impl Source {
    /// Creates a source of all outputs of a node.
    pub(super) fn outputs(node: NodeId, label: &str, path: &str) -> Self {
        let (label, path) = (label.to_owned(), path.to_owned());
        Self { node, port: Port::Outputs, tensor: None, renames: Vec::new(), label, path, is_repeated: false }
    }

    /// Returns the name that the consumer sees for a tensor.
    pub(super) fn renamed<'a>(&'a self, tensor: &'a str) -> &'a str {
        self.renames.iter().find(|(from, _)| from == tensor).map_or(tensor, |(_, to)| to)
    }
}

/// Which tensors of a node a source refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Port {
    /// The tensors that the node returned.
    Outputs,
    /// The tensors that the node was given.
    Inputs,
}

/// How the rest of the graph uses a node.
#[derive(Debug, Default)]
pub(super) struct NodeUsage {
    /// Whether the node has no path to the output.
    pub(super) is_background: bool,
    /// Whether the node runs even if no other node needs it.
    pub(super) is_sink: bool,
    /// Whether other nodes read the inputs of the node.
    pub(super) has_input_readers: bool,
    /// Whether other nodes read or need single tensors.
    pub(super) has_selectors: bool,
    /// The number of nodes that read tensors of the node.
    pub(super) readers: usize,
    /// The nodes of which the node reads tensors, without duplicates.
    pub(super) reads: Vec<NodeId>,
    /// The number of nodes that must have returned tensors, of a node that needs nothing else: all outputs of other steps, without
    /// triggers or branches. `None` for other nodes.
    pub(super) awaits: Option<usize>,
}

/// How sources are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Join {
    /// All of them are required.
    Inner,
    /// Those that are there when all have ended; at least one.
    Outer,
    /// Those of the node that has tensors first. The others are no longer needed.
    Any,
    /// The first in their order that has tensors. The others still run.
    First,
    /// Those that are there when all have ended, even if none is.
    Gather,
}

/// The names of the tensors that a node collects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// Two producers of one name are an error.
    Unique,
    /// Names that clash are prefixed with the producer.
    PrefixClashes,
    /// All names are prefixed with the producer.
    Prefix,
}

impl Graph {
    /// Returns the name in the manifest.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the kind of the manifest.
    pub const fn kind(&self) -> GraphKind {
        self.kind
    }

    /// Returns the steps in an order in which they can run.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the name of the manifest's file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Decides whether names such as `model:v1` have a version. A model of this very name takes precedence. The name of a model of
    /// another server is not known, so it has one.
    ///
    /// `created` has the names of the models that were created for steps and have another name, by the paths of the steps.
    pub fn resolve_models(&mut self, has_model: impl Fn(&str) -> bool, created: &BTreeMap<String, String>) {
        for step in &mut self.steps {
            let is_model = step.url.is_none() && has_model(&step.model.name);
            if let Some(model) = step.model.with_version_of_name().filter(|_| !is_model) {
                step.model = model;
            }
            if let Some(name) = created.get(&step.path) {
                step.model.name.clone_from(name);
            }
        }
    }

    /// Returns the dependencies between steps, for drawings, without duplicates.
    pub fn edges(&self) -> Vec<Edge> {
        let mut edges = BTreeSet::new();
        for (id, node) in self.nodes.iter().enumerate() {
            let to = match node.action {
                NodeAction::Step(step) => Endpoint::Step(step),
                _ if id == self.output => Endpoint::Output,
                _ => continue,
            };
            let gate = self.gate_label(node);
            for source in &node.sources {
                let label = match (&source.tensor, source.port) {
                    (Some(tensor), _) if source.renamed(tensor) != tensor => {
                        format!("{tensor} as {}", source.renamed(tensor))
                    }
                    (Some(tensor), _) => tensor.clone(),
                    (None, Port::Inputs) => "inputs".to_owned(),
                    (None, Port::Outputs) => String::new(),
                };
                let label = [label.as_str(), &gate].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>();
                self.add_edges(source.node, to, &label.join(", "), &mut edges);
            }
            for trigger in &node.triggers {
                let label =
                    trigger.tensor.as_ref().map_or_else(|| "trigger".to_owned(), |tensor| format!("trigger {tensor}"));
                self.add_edges(trigger.node, to, &label, &mut edges);
            }
            if let Some(Gate { control, branch }) = node.gate
                && let NodeAction::Choose(Choice::Route { .. }) = self.nodes[control].action
            {
                for source in &self.nodes[control].sources {
                    self.add_edges(source.node, to, &format!("child {branch}"), &mut edges);
                }
            }
            if let Some(after) = node.after {
                self.add_edges(after, to, "after", &mut edges);
            }
        }
        edges.into_iter().collect()
    }

    /// Adds the edges from the steps whose tensors a node passes on, or from the node itself.
    fn add_edges(&self, from: NodeId, to: Endpoint, label: &str, edges: &mut BTreeSet<Edge>) {
        let mut waiting = vec![from];
        let mut seen = BTreeSet::new();
        while let Some(id) = waiting.pop() {
            if !seen.insert(id) {
                continue;
            }
            let from = match self.nodes[id].action {
                NodeAction::Input => Endpoint::Input,
                NodeAction::Step(step) => Endpoint::Step(step),
                NodeAction::Collect | NodeAction::Choose(_) => {
                    waiting.extend(self.nodes[id].sources.iter().map(|source| source.node));
                    continue;
                }
            };
            edges.insert(Edge { from, to, label: label.to_owned() });
        }
    }

    /// Describes the conditions and weights under which a node runs.
    fn gate_label(&self, node: &Node) -> String {
        let mut labels = Vec::new();
        let mut gate = node.gate;
        while let Some(Gate { control, branch }) = gate {
            let control = &self.nodes[control];
            match &control.action {
                NodeAction::Choose(Choice::Switch { conditions, .. }) => {
                    labels.extend(conditions.get(branch).map(|condition| format!("if {condition}")));
                }
                NodeAction::Choose(Choice::Match(condition)) => labels.push(format!("if {condition}")),
                NodeAction::Choose(Choice::Split { weights }) => {
                    labels.extend(weights.get(branch).map(|weight| format!("{weight} %")));
                }
                _ => {}
            }
            gate = control.gate;
        }
        labels.reverse();
        labels.join(", ")
    }

    /// Checks the names of tensors that the manifest mentions.
    ///
    /// `outputs` returns the names of the outputs that a step's model declares, or `None` if it declares none. Finds tensors that
    /// a step does not return, and two producers of one input.
    pub fn check_tensors(&self, outputs: impl Fn(&Step) -> Option<Vec<String>>) -> Vec<ManifestProblem> {
        let mut problems = Vec::new();
        let problem = |path: &str, message| ManifestProblem { file: self.file.clone(), path: path.to_owned(), message };
        // The names of the outputs and of the inputs of each node, where they are known.
        let mut known: [Vec<Option<Vec<String>>>; 2] = [Vec::new(), Vec::new()];
        for node in &self.nodes {
            let mut inputs = Some(Vec::new());
            let mut producers: HashMap<String, &str> = HashMap::new();
            for source in node.sources.iter().chain(&node.triggers) {
                let names = match source.port {
                    Port::Outputs => known[0][source.node].as_ref(),
                    Port::Inputs => known[1][source.node].as_ref(),
                };
                let mentioned = source.tensor.iter().chain(source.renames.iter().map(|(from, _)| from));
                for tensor in mentioned.collect::<BTreeSet<_>>() {
                    if let Some(names) = names.filter(|names| !names.contains(tensor)) {
                        let known = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
                        let expected = if known.is_empty() {
                            "it has none".to_owned()
                        } else {
                            format!("expected one of {known}")
                        };
                        let message = format!("`{}` has no tensor `{tensor}`, {expected}", source.label);
                        problems.push(problem(&source.path, message));
                    }
                }
            }
            for source in &node.sources {
                let names = match (&source.tensor, source.port) {
                    (Some(tensor), _) => Some(vec![tensor.clone()]),
                    (None, Port::Outputs) => known[0][source.node].clone(),
                    (None, Port::Inputs) => known[1][source.node].clone(),
                };
                for name in names.iter().flatten() {
                    let name = match node.naming {
                        Naming::Prefix => format!("{}.{name}", source.label),
                        Naming::Unique | Naming::PrefixClashes => source.renamed(name).to_owned(),
                    };
                    let earlier = producers.insert(name.clone(), &source.label);
                    if let Some(earlier) =
                        earlier.filter(|_| node.naming != Naming::PrefixClashes && node.join == Join::Inner)
                    {
                        let message = format!(
                            "`{earlier}` and `{}` both provide the input `{name}`; rename one with `tensorMap`",
                            source.label
                        );
                        problems.push(problem(&source.path, message));
                    }
                }
                let all = inputs.take().zip(names);
                inputs = all.map(|(mut inputs, names)| {
                    inputs.extend(names.iter().map(|name| source.renamed(name).to_owned()));
                    inputs
                });
            }
            // Which sources of other joins are there differs between requests.
            let inputs = inputs.filter(|_| node.join == Join::Inner && node.naming == Naming::Unique);
            let outputs = match node.action {
                NodeAction::Step(step) => outputs(&self.steps[step]),
                NodeAction::Collect => inputs.clone(),
                NodeAction::Input | NodeAction::Choose(_) => None,
            };
            let is_input = matches!(node.action, NodeAction::Input);
            known[0].push(outputs);
            known[1].push(inputs.filter(|_| !is_input));
        }
        problems
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(super) const fn output(&self) -> NodeId {
        self.output
    }

    /// Returns the nodes that depend on a node.
    pub(super) fn consumers(&self, node: NodeId) -> &[NodeId] {
        &self.consumers[node]
    }

    pub(super) fn usage(&self, node: NodeId) -> &NodeUsage {
        &self.usage[node]
    }

    /// Returns whether a node is in a scope, or in a scope inside of it.
    pub(super) fn is_in_scope(&self, node: NodeId, scope: ScopeId) -> bool {
        let mut current = self.nodes[node].scope;
        while let Some(inner) = current {
            if inner == scope {
                return true;
            }
            current = self.scopes[inner];
        }
        false
    }

    /// Returns the number of scopes.
    pub(super) const fn scope_count(&self) -> usize {
        self.scopes.len()
    }

    /// Returns the steps of which one is the last, whose answer is the graph's as it is. Empty if the answer is made of several
    /// answers, or of a part of one.
    pub fn last_steps(&self) -> impl Iterator<Item = &Step> {
        self.last_steps.iter().filter_map(|&node| match self.nodes[node].action {
            NodeAction::Step(step) => Some(&self.steps[step]),
            _ => None,
        })
    }

    /// Returns the position of a last step in the order of preference.
    pub(super) fn last_step_position(&self, node: NodeId) -> Option<usize> {
        self.last_steps.iter().position(|last| *last == node)
    }

    pub(super) fn is_last_step(&self, node: NodeId) -> bool {
        self.last_step_position(node).is_some()
    }

    /// Returns whether the parameters of a response are passed on with its tensors. Otherwise, each step has the request's.
    pub(super) fn passes_parameters(&self) -> bool {
        self.kind != GraphKind::Pipeline
    }
}

/// Builds a graph from nodes in an order in which each depends only on earlier ones.
#[derive(Debug)]
pub(super) struct GraphBuilder {
    name: String,
    kind: GraphKind,
    file: String,
    steps: Vec<Step>,
    nodes: Vec<Node>,
    scopes: Vec<Option<ScopeId>>,
}

impl GraphBuilder {
    pub(super) fn new(name: String, kind: GraphKind, file: &str) -> Self {
        let nodes = vec![Node::new(NodeAction::Input, Vec::new())];
        Self { name, kind, file: file.to_owned(), steps: Vec::new(), nodes, scopes: Vec::new() }
    }

    /// Adds a scope that contains failures.
    pub(super) fn scope(&mut self, outer: Option<ScopeId>) -> ScopeId {
        self.scopes.push(outer);
        self.scopes.len() - 1
    }

    /// Adds a step, which `node` runs.
    pub(super) fn step(&mut self, step: Step) -> NodeAction {
        let index = self.steps.len();
        self.steps.push(Step { index, ..step });
        NodeAction::Step(index)
    }

    /// Adds a node.
    ///
    /// # Panics
    ///
    /// Panics if it depends on itself or on a later node.
    pub(super) fn node(&mut self, node: Node) -> NodeId {
        let id = self.nodes.len();
        assert!(node.dependencies().all(|dependency| dependency < id), "nodes are added after their dependencies");
        self.nodes.push(node);
        id
    }

    /// Finishes the graph. The node `output` collects its answer.
    pub(super) fn finish(mut self, output: NodeId) -> Graph {
        let mut consumers = vec![Vec::new(); self.nodes.len()];
        for (id, node) in self.nodes.iter().enumerate() {
            for dependency in node.dependencies().collect::<BTreeSet<_>>() {
                consumers[dependency].push(id);
            }
        }
        let usage = usage(&self.nodes, &consumers, output);
        for (id, node) in self.nodes.iter().enumerate() {
            if let NodeAction::Step(step) = node.action {
                self.steps[step].required = !usage[id].is_background && node.scope.is_none();
            }
        }
        let last_steps = last_steps(&self.nodes, &consumers, output);
        for node in &mut self.nodes {
            let mut later = HashSet::new();
            for source in node.sources.iter_mut().rev() {
                source.is_repeated = !later.insert((source.node, source.port));
            }
        }
        let Self { name, kind, file, steps, nodes, scopes } = self;
        Graph { name, kind, file, steps, nodes, scopes, output, consumers, usage, last_steps }
    }
}

fn usage(nodes: &[Node], consumers: &[Vec<NodeId>], output: NodeId) -> Vec<NodeUsage> {
    let mut usage: Vec<NodeUsage> = nodes.iter().map(|_| NodeUsage { is_sink: true, ..NodeUsage::default() }).collect();
    for (id, node) in nodes.iter().enumerate() {
        for source in node.sources.iter().chain(&node.triggers) {
            let used = &mut usage[source.node];
            used.has_selectors |= source.tensor.is_some();
            match source.port {
                Port::Inputs => used.has_input_readers = true,
                Port::Outputs => used.is_sink = false,
            }
        }
        for control in node.gate.map(|gate| gate.control).into_iter().chain(node.after) {
            usage[control].is_sink = false;
        }
        let reads: BTreeSet<_> = node.sources.iter().map(|source| source.node).collect();
        for &read in &reads {
            usage[read].readers += 1;
        }
        let is_whole = |source: &Source| source.port == Port::Outputs && source.tensor.is_none();
        let needs_no_more = node.triggers.is_empty() && node.gate.is_none() && node.after.is_none();
        if needs_no_more && node.join == Join::Inner && node.sources.iter().all(is_whole) {
            usage[id].awaits = Some(reads.iter().filter(|read| **read != INPUT).count());
        }
        usage[id].reads = reads.into_iter().collect();
    }
    for id in (0..nodes.len()).rev() {
        usage[id].is_background = id != output && consumers[id].iter().all(|&consumer| usage[consumer].is_background);
    }
    usage
}

/// Returns the steps whose answers only pass through to the output, or none if anything else contributes to the answer.
fn last_steps(nodes: &[Node], consumers: &[Vec<NodeId>], output: NodeId) -> Vec<NodeId> {
    let mut found = Vec::new();
    let mut waiting = vec![output];
    while let Some(id) = waiting.pop() {
        let node = &nodes[id];
        if id != output && consumers[id].len() != 1 {
            return Vec::new();
        }
        match node.action {
            NodeAction::Step(_) => found.push(id),
            NodeAction::Collect if node.sources.len() == 1 || node.join == Join::First => {
                let is_whole = |source: &Source| {
                    source.port == Port::Outputs && source.tensor.is_none() && source.renames.is_empty()
                };
                if !node.sources.iter().all(is_whole) {
                    return Vec::new();
                }
                waiting.extend(node.sources.iter().rev().map(|source| source.node));
            }
            NodeAction::Input | NodeAction::Collect | NodeAction::Choose(_) => return Vec::new(),
        }
    }
    found
}

/// Returns the candidate that is most likely meant by a misspelled name.
pub(super) fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut distances = BTreeMap::new();
    for candidate in candidates {
        distances.entry(strsim::osa_distance(name, candidate)).or_insert(candidate);
    }
    let most = name.chars().count() / 3;
    distances.into_iter().next().filter(|(distance, _)| *distance <= most).map(|(_, candidate)| candidate)
}
