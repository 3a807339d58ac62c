//! `InferenceGraph`s of `KServe`.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::super::condition::Condition;
use super::super::graph::{
    Choice, Gate, Graph, GraphBuilder, GraphKind, INPUT, Join, Naming, Node, NodeAction, NodeId, ScopeId, Source,
};
use super::report::{KnownFields, Report, field, optional};
use super::{GraphOptions, MAX_STEPS};

/// The name of the node at which requests enter.
const ROOT: &str = "root";
/// How deep nodes may be nested.
const MAX_NESTED: usize = 64;

const SPEC: KnownFields = KnownFields {
    read: &["nodes"],
    cluster: &[
        "affinity",
        "maxReplicas",
        "minReplicas",
        "nodeName",
        "nodeSelector",
        "resources",
        "routerTimeouts",
        "scaleMetric",
        "scaleTarget",
        "serviceAccountName",
        "timeout",
        "tolerations",
    ],
};

const NODE: KnownFields = KnownFields { read: &["routerType", "steps"], cluster: &[] };

const STEP: KnownFields = KnownFields {
    read: &["name", "serviceName", "nodeName", "serviceUrl", "data", "weight", "condition", "dependency"],
    cluster: &[],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RouterType {
    Sequence,
    Switch,
    Ensemble,
    Splitter,
}

const ROUTERS: [(&str, RouterType); 4] = [
    ("Sequence", RouterType::Sequence),
    ("Switch", RouterType::Switch),
    ("Ensemble", RouterType::Ensemble),
    ("Splitter", RouterType::Splitter),
];

/// A node as it is declared.
struct RouterNode<'a> {
    path: String,
    router: RouterType,
    steps: Vec<RouterStep<'a>>,
}

/// A step as it is declared.
struct RouterStep<'a> {
    path: String,
    /// The name, else that of the service, else the index.
    label: String,
    target: Target<'a>,
    url: Option<&'a str>,
    /// Whether the input is the answer of the step before.
    reads_response: bool,
    weight: u32,
    condition: Option<Condition>,
    is_hard: bool,
}

enum Target<'a> {
    Node(&'a str),
    Model(String),
}

/// The properties that a nested node passes on to its steps.
#[derive(Clone, Copy)]
struct Context {
    input: NodeId,
    gate: Option<Gate>,
    after: Option<NodeId>,
    scope: Option<ScopeId>,
}

/// Compiles nodes, once for each step that refers to them.
struct NodeCompiler<'a> {
    nodes: &'a HashMap<&'a str, RouterNode<'a>>,
    options: &'a GraphOptions,
    report: &'a mut Report,
    builder: GraphBuilder,
    steps: usize,
    /// The nodes that are being compiled, from the root.
    path: Vec<&'a str>,
    reached: HashSet<&'a str>,
}

pub(super) fn compile(root: &Map<String, Value>, options: &GraphOptions, report: &mut Report) -> Option<Graph> {
    let (name, spec) = report.head(root, &SPEC)?;
    let listed = report.required(spec, "spec", "nodes").and_then(|nodes| report.object(nodes, "spec.nodes"))?;
    let mut nodes = HashMap::new();
    for (name, node) in listed {
        let path = field("spec.nodes", name);
        if report.is_name(name, &path) {
            nodes.extend(router_node(&path, node, report).map(|node| (name.as_str(), node)));
        }
    }
    if !listed.contains_key(ROOT) {
        report.problem("spec.nodes", format!("expected a node named `{ROOT}`, at which requests enter"));
    }
    for (path, target) in nodes.values().flat_map(|node| &node.steps).map(|step| (&step.path, &step.target)) {
        if let Target::Node(target) = target
            && !listed.contains_key(*target)
        {
            report.unknown_name(&field(path, "nodeName"), "node", target, listed.keys().map(String::as_str));
        }
    }
    if report.has_problems() {
        return None;
    }
    let builder = GraphBuilder::new(name.to_owned(), GraphKind::InferenceGraph, report.file());
    let (path, reached) = (Vec::new(), HashSet::new());
    let mut compiler = NodeCompiler { nodes: &nodes, options, report, builder, steps: 0, path, reached };
    let context = Context { input: INPUT, gate: None, after: None, scope: None };
    let result = compiler.node(ROOT, "spec.nodes", context)?;
    let NodeCompiler { mut builder, reached, report, .. } = compiler;
    for name in listed.keys().filter(|name| !reached.contains(name.as_str())) {
        report.warn(&field("spec.nodes", name), "no step refers to this node");
    }
    let output = builder.node(Node::new(NodeAction::Collect, vec![Source::outputs(result, ROOT, "spec.nodes.root")]));
    Some(builder.finish(output))
}

fn router_node<'a>(path: &str, node: &'a Value, report: &mut Report) -> Option<RouterNode<'a>> {
    let node = report.object(node, path)?;
    report.check_fields(node, path, &NODE);
    report.required(node, path, "routerType");
    let router = report.choice(node, path, "routerType", &ROUTERS);
    let listed = report.list(node, path, "steps");
    let steps_path = field(path, "steps");
    if listed.is_empty() {
        report.problem(&steps_path, "expected at least one step");
    }
    let router = router?;
    let has_weights = listed.iter().all(|(_, step)| step.get("weight").is_some_and(|weight| !weight.is_null()));
    let steps: Vec<_> = listed
        .into_iter()
        .enumerate()
        .filter_map(|(index, (path, value))| router_step(index, path, value, router, report))
        .collect();
    let mut labels = HashSet::new();
    for step in &steps {
        if !labels.insert(step.label.as_str()) {
            report.problem(&step.path, format!("a step named `{}` already exists in this node", step.label));
        }
    }
    let total: u32 = steps.iter().map(|step| step.weight).sum();
    if router == RouterType::Splitter && has_weights && total != 100 {
        report.problem(&steps_path, format!("the weights add up to {total}, expected 100"));
    }
    Some(RouterNode { path: path.to_owned(), router, steps })
}

fn router_step<'a>(
    index: usize,
    path: String,
    value: &'a Value,
    router: RouterType,
    report: &mut Report,
) -> Option<RouterStep<'a>> {
    let step = report.object(value, &path)?;
    report.check_fields(step, &path, &STEP);
    let name = report.name(step, &path, "name");
    let service = report.name(step, &path, "serviceName");
    let node = report.name(step, &path, "nodeName");
    let url = report.string(step, &path, "serviceUrl");
    if let Some(url) = url {
        report.check_url(url, &field(&path, "serviceUrl"));
    }
    let label = name.or(service).map_or_else(|| index.to_string(), str::to_owned);
    let target = match (node, service, url) {
        (Some(node), None, None) => Some(Target::Node(node)),
        (None, _, Some(_)) => Some(Target::Model(label.clone())),
        (None, Some(service), None) => Some(Target::Model(service.to_owned())),
        (Some(_), _, _) => {
            report.problem(&path, "`nodeName` and a service are set, expected one of them");
            None
        }
        (None, None, None) => {
            report.problem(&path, "expected `serviceName`, `nodeName` or `serviceUrl`");
            None
        }
    };
    let reads_response =
        report.choice(step, &path, "data", &[("$request", false), ("$response", true)]).unwrap_or_default();
    let is_hard = report.choice(step, &path, "dependency", &[("Soft", false), ("Hard", true)]).unwrap_or_default();
    let weight = report.percentage(step, &path, "weight").unwrap_or_default();
    if router == RouterType::Splitter && optional(step, "weight").is_none() {
        let message = "missing field; each step of a `Splitter` has its share of the requests, in percent";
        report.problem(&field(&path, "weight"), message);
    }
    let condition = condition(step, &path, index, router, report);
    for (name, routers) in [
        ("data", &[RouterType::Sequence][..]),
        ("weight", &[RouterType::Splitter]),
        ("condition", &[RouterType::Sequence, RouterType::Switch]),
        ("dependency", &[RouterType::Sequence, RouterType::Ensemble]),
    ] {
        if optional(step, name).is_some() && !routers.contains(&router) {
            let router = ROUTERS.iter().find(|(_, kind)| *kind == router).map_or("", |(name, _)| name);
            report.warn(&field(&path, name), format!("the field has no effect in a `{router}`"));
        }
    }
    Some(RouterStep { path, label, target: target?, url, reads_response, weight, condition, is_hard })
}

fn condition(
    step: &Map<String, Value>,
    path: &str,
    index: usize,
    router: RouterType,
    report: &mut Report,
) -> Option<Condition> {
    let text = report.string(step, path, "condition").filter(|text| !text.is_empty());
    let path = field(path, "condition");
    let Some(text) = text else {
        if router == RouterType::Switch {
            report.problem(&path, "expected a condition, without which the step of a `Switch` never runs");
        }
        return None;
    };
    if router == RouterType::Sequence && index == 0 {
        let message = "the first step of a `Sequence` has no previous answer that the condition could match";
        report.problem(&path, message);
    }
    match Condition::parse(text) {
        Ok(condition) => Some(condition),
        Err(error) => {
            report.problem(&path, error.to_string());
            None
        }
    }
}

impl<'a> NodeCompiler<'a> {
    /// Compiles a node, and returns the node of its answer. `path` is the place of the reference.
    fn node(&mut self, name: &'a str, path: &str, context: Context) -> Option<NodeId> {
        if self.path.contains(&name) {
            let cycle = self.path.iter().skip_while(|node| **node != name).chain([&name]);
            let cycle = cycle.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" -> ");
            self.report.problem(path, format!("the nodes form a cycle: {cycle}"));
            return None;
        }
        if self.path.len() == MAX_NESTED {
            self.report.problem(path, format!("the nodes are nested deeper than {MAX_NESTED} levels"));
            return None;
        }
        let nodes = self.nodes;
        let node = nodes.get(name)?;
        self.reached.insert(name);
        self.path.push(name);
        let result = match node.router {
            RouterType::Sequence => self.sequence(node, context),
            RouterType::Switch => {
                let conditions = node.steps.iter().filter_map(|step| step.condition.clone()).collect();
                let sources = vec![Source::outputs(context.input, name, &node.path)];
                let choice = Choice::Switch { node: name.to_owned(), conditions };
                self.branches(node, choice, sources, context)
            }
            RouterType::Splitter => {
                let weights = node.steps.iter().map(|step| step.weight).collect();
                self.branches(node, Choice::Split { weights }, Vec::new(), context)
            }
            RouterType::Ensemble => self.ensemble(node, context),
        };
        self.path.pop();
        result
    }

    /// Compiles a step, and returns the node of its answer.
    fn step(&mut self, step: &'a RouterStep<'a>, context: Context) -> Option<NodeId> {
        let model = match &step.target {
            Target::Node(node) => return self.node(node, &field(&step.path, "nodeName"), context),
            Target::Model(model) => model,
        };
        self.steps += 1;
        if self.steps > MAX_STEPS {
            self.report.problem("spec.nodes", format!("more than {MAX_STEPS} steps, nested nodes included"));
            return None;
        }
        let mut compiled = self.report.step(&step.label, model, &step.path, self.options);
        compiled.url = compiled.url.or_else(|| step.url.map(str::to_owned));
        let action = self.builder.step(compiled);
        Some(self.add(action, vec![Source::outputs(context.input, &step.label, &step.path)], context))
    }

    fn add(&mut self, action: NodeAction, sources: Vec<Source>, context: Context) -> NodeId {
        let Context { gate, after, scope, .. } = context;
        self.builder.node(Node { gate, after, scope, ..Node::new(action, sources) })
    }

    fn sequence(&mut self, node: &'a RouterNode<'a>, context: Context) -> Option<NodeId> {
        let mut current = context;
        let mut before: Option<Source> = None;
        // The answers with which the sequence may end, from the first.
        let mut answers = Vec::new();
        for (index, step) in node.steps.iter().enumerate() {
            if let (Some(condition), Some(before)) = (&step.condition, &before) {
                let choice = NodeAction::Choose(Choice::Match(condition.clone()));
                let control = self.add(choice, vec![before.clone()], Context { scope: context.scope, ..current });
                current.gate = Some(Gate { control, branch: 0 });
                answers.push(before.clone());
            }
            current.input = match &before {
                Some(before) if step.reads_response => before.node,
                _ => context.input,
            };
            // A failure cannot be skipped if the answer is the sequence's, or the next step needs it.
            let is_needed =
                node.steps.get(index + 1).is_none_or(|next| next.reads_response || next.condition.is_some());
            let is_soft = !step.is_hard && !is_needed;
            current.scope = if is_soft { Some(self.builder.scope(context.scope)) } else { context.scope };
            let result = self.step(step, current)?;
            current.after = Some(result);
            before = Some(Source::outputs(result, &step.label, &step.path));
        }
        let last = before?;
        if answers.is_empty() {
            return Some(last.node);
        }
        answers.push(last);
        answers.reverse();
        Some(self.first(answers, context))
    }

    /// Compiles a node of which one step runs.
    fn branches(
        &mut self,
        node: &'a RouterNode<'a>,
        choice: Choice,
        sources: Vec<Source>,
        context: Context,
    ) -> Option<NodeId> {
        let control = self.add(NodeAction::Choose(choice), sources, context);
        let mut answers = Vec::new();
        for (branch, step) in node.steps.iter().enumerate() {
            let result = self.step(step, Context { gate: Some(Gate { control, branch }), ..context })?;
            answers.push(Source::outputs(result, &step.label, &step.path));
        }
        Some(self.first(answers, context))
    }

    /// Adds a node that passes on the first answer that is there.
    fn first(&mut self, answers: Vec<Source>, context: Context) -> NodeId {
        let node = Node { join: Join::First, scope: context.scope, ..Node::new(NodeAction::Collect, answers) };
        self.builder.node(node)
    }

    fn ensemble(&mut self, node: &'a RouterNode<'a>, context: Context) -> Option<NodeId> {
        let mut answers = Vec::new();
        for step in &node.steps {
            let scope = if step.is_hard { context.scope } else { Some(self.builder.scope(context.scope)) };
            let result = self.step(step, Context { scope, ..context })?;
            answers.push(Source::outputs(result, &step.label, &step.path));
        }
        let Context { gate, scope, .. } = context;
        let node = Node {
            gate,
            scope,
            join: Join::Gather,
            naming: Naming::PrefixClashes,
            ..Node::new(NodeAction::Collect, answers)
        };
        Some(self.builder.node(node))
    }
}
