//! `SeldonDeployment`s of Seldon Core.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::super::graph::{
    Choice, Gate, Graph, GraphBuilder, GraphKind, INPUT, Join, Naming, Node, NodeAction, NodeId, Source,
};
use super::report::{KnownFields, Report, field, optional, plain};
use super::{GraphOptions, MAX_STEPS};

const SPEC: KnownFields = KnownFields {
    read: &["predictors"],
    cluster: &["name", "annotations", "oauth_key", "oauth_secret", "protocol", "replicas", "serverType", "transport"],
};

const PREDICTOR: KnownFields = KnownFields {
    read: &["name", "graph", "componentSpecs", "traffic", "shadow"],
    cluster: &[
        "annotations",
        "engineResources",
        "explainer",
        "labels",
        "progressDeadlineSeconds",
        "replicas",
        "ssl",
        "svcOrchSpec",
    ],
};

const UNIT: KnownFields = KnownFields {
    read: &["name", "type", "children", "implementation", "methods", "parameters"],
    cluster: &["endpoint", "envSecretRefName", "logger", "modelUri", "serviceAccountName", "storageInitializerImage"],
};

const COMPONENT: KnownFields =
    KnownFields { read: &["spec"], cluster: &["hpaSpec", "kedaSpec", "metadata", "pdbSpec", "replicas"] };

const CONTAINER: KnownFields = KnownFields {
    read: &["name", "env"],
    cluster: &[
        "args",
        "command",
        "envFrom",
        "image",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "ports",
        "readinessProbe",
        "resizePolicy",
        "resources",
        "restartPolicy",
        "securityContext",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "volumeDevices",
        "volumeMounts",
        "workingDir",
    ],
};

const VARIABLE: KnownFields = KnownFields { read: &["name", "value", "valueFrom"], cluster: &[] };

/// Implementations that Seldon's own executor runs, without a model.
const BUILT_IN: [&str; 4] = ["AVERAGE_COMBINER", "RANDOM_ABTEST", "SIMPLE_MODEL", "SIMPLE_ROUTER"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnitType {
    Model,
    Transformer,
    OutputTransformer,
    Combiner,
    Router,
}

const TYPES: [(&str, UnitType); 6] = [
    ("MODEL", UnitType::Model),
    ("TRANSFORMER", UnitType::Transformer),
    ("OUTPUT_TRANSFORMER", UnitType::OutputTransformer),
    ("COMBINER", UnitType::Combiner),
    ("ROUTER", UnitType::Router),
    ("UNKNOWN_TYPE", UnitType::Model),
];

/// The environment variables of each container.
type Environments<'a> = HashMap<&'a str, Vec<(String, String)>>;

/// Compiles the graph of one predictor.
struct UnitCompiler<'a> {
    builder: &'a mut GraphBuilder,
    options: &'a GraphOptions,
    report: &'a mut Report,
    environments: Environments<'a>,
    names: HashSet<&'a str>,
    steps: &'a mut usize,
}

/// A node, and the name of the step whose answer it holds.
#[derive(Clone, Copy)]
struct Producer<'a> {
    node: NodeId,
    label: &'a str,
}

pub(super) fn compile(root: &Map<String, Value>, options: &GraphOptions, report: &mut Report) -> Option<Graph> {
    let (name, spec) = report.head(root, &SPEC)?;
    let predictors: Vec<_> = report
        .list(spec, "spec", "predictors")
        .into_iter()
        .filter_map(|(path, value)| report.object(value, &path).map(|predictor| (path, predictor)))
        .collect();
    if predictors.is_empty() {
        report.problem("spec.predictors", "expected at least one predictor");
    }
    let mut builder = GraphBuilder::new(name.to_owned(), GraphKind::SeldonDeployment, report.file());
    let weights = weights(&predictors, report);
    let split = (predictors.len() > 1)
        .then(|| builder.node(Node::new(NodeAction::Choose(Choice::Split { weights }), Vec::new())));
    let mut steps = 0;
    let mut results = Vec::new();
    for (index, (path, predictor)) in predictors.iter().enumerate() {
        report.check_fields(predictor, path, &PREDICTOR);
        let environments = environments(predictor, path, report);
        let graph_path = field(path, "graph");
        let Some(unit) = report.required(predictor, path, "graph").and_then(|unit| report.object(unit, &graph_path))
        else {
            continue;
        };
        let gate = split.map(|control| Gate { control, branch: index });
        let mut compiler = UnitCompiler {
            builder: &mut builder,
            options,
            report,
            environments,
            names: HashSet::new(),
            steps: &mut steps,
        };
        let input = Producer { node: INPUT, label: name };
        let result = compiler.unit(unit, &graph_path, input, gate);
        results.extend(result.map(|result| Source::outputs(result.node, result.label, &graph_path)));
    }
    if report.has_problems() {
        return None;
    }
    let output = builder.node(Node { join: Join::First, ..Node::new(NodeAction::Collect, results) });
    Some(builder.finish(output))
}

/// Reads the shares of the predictors in the traffic.
fn weights(predictors: &[(String, &Map<String, Value>)], report: &mut Report) -> Vec<u32> {
    let mut weights = Vec::new();
    for (path, predictor) in predictors {
        if optional(predictor, "shadow").is_some_and(|shadow| *shadow != Value::Bool(false)) {
            report.problem(&field(path, "shadow"), "shadow predictors are not supported");
        }
        weights.push(report.percentage(predictor, path, "traffic").unwrap_or_default());
    }
    let total: u32 = weights.iter().sum();
    if predictors.len() > 1 && total != 100 {
        report.problem("spec.predictors", format!("the `traffic` of the predictors adds up to {total}, expected 100"));
    }
    weights
}

/// Reads the environment variables of the containers of a predictor.
fn environments<'a>(predictor: &'a Map<String, Value>, path: &str, report: &mut Report) -> Environments<'a> {
    let mut environments = Environments::new();
    for (path, component) in report.list(predictor, path, "componentSpecs") {
        let Some(component) = report.object(component, &path) else { continue };
        report.check_fields(component, &path, &COMPONENT);
        let path = field(&path, "spec");
        let Some(spec) = optional(component, "spec").and_then(|spec| report.object(spec, &path)) else { continue };
        report.ignore_all_but(spec, &path, "containers");
        for (path, container) in report.list(spec, &path, "containers") {
            let Some(container) = report.object(container, &path) else { continue };
            report.check_fields(container, &path, &CONTAINER);
            let name = report.required_name(container, &path, "name");
            let variables = variables(container, &path, report);
            if let Some(name) = name
                && environments.insert(name, variables).is_some()
            {
                report.problem(&field(&path, "name"), format!("a container named `{name}` already exists"));
            }
        }
    }
    environments
}

fn variables(container: &Map<String, Value>, path: &str, report: &mut Report) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    for (path, variable) in report.list(container, path, "env") {
        let Some(variable) = report.object(variable, &path) else { continue };
        report.check_fields(variable, &path, &VARIABLE);
        let name = report.required_name(variable, &path, "name");
        if name.is_some_and(|name| name.contains('=')) {
            report.problem(&field(&path, "name"), "the name of an environment variable has no `=`");
        }
        if optional(variable, "valueFrom").is_some() {
            let message = "values from the cluster are not available; the environment variable is not set";
            report.warn(&field(&path, "valueFrom"), message);
            continue;
        }
        let value = report.string(variable, &path, "value").unwrap_or_default();
        if value.contains('\0') {
            report.problem(&field(&path, "value"), "the value has a null character");
        }
        variables.extend(name.map(|name| (name.to_owned(), value.to_owned())));
    }
    variables
}

impl<'a> UnitCompiler<'a> {
    /// Compiles a unit and its children, and returns the node of the unit's answer.
    fn unit(
        &mut self,
        unit: &'a Map<String, Value>,
        path: &str,
        input: Producer<'a>,
        gate: Option<Gate>,
    ) -> Option<Producer<'a>> {
        self.report.check_fields(unit, path, &UNIT);
        self.check_unit(unit, path);
        let name = self.report.required_name(unit, path, "name");
        let kind = self.report.choice(unit, path, "type", &TYPES).unwrap_or(UnitType::Model);
        let children: Vec<_> = self
            .report
            .list(unit, path, "children")
            .into_iter()
            .filter_map(|(path, child)| self.report.object(child, &path).map(|child| (path, child)))
            .collect();
        *self.steps += 1;
        if *self.steps == MAX_STEPS + 1 {
            self.report.problem("spec.predictors", format!("more than {MAX_STEPS} steps"));
        }
        if *self.steps > MAX_STEPS {
            return None;
        }
        let Some(name) = name else {
            // Their problems are reported, too.
            self.children(children, input, |_| gate);
            return None;
        };
        if !self.names.insert(name) {
            self.report.problem(&field(path, "name"), format!("a step named `{name}` already exists"));
        }
        if children.is_empty() && matches!(kind, UnitType::Combiner | UnitType::Router) {
            self.report.problem(&field(path, "children"), "expected at least one child");
        }
        if children.len() > 1 && !matches!(kind, UnitType::Combiner | UnitType::Router) {
            let message = "several children without a `COMBINER`; the answer of the first one is used";
            self.report.warn(&field(path, "children"), message);
        }
        match kind {
            UnitType::Model | UnitType::Transformer => {
                let own = self.step(name, path, &[input], gate, Naming::Unique);
                let results = self.children(children, own, |_| gate);
                Some(Producer { label: name, ..results.first().copied().unwrap_or(own) })
            }
            UnitType::OutputTransformer => {
                let results = self.children(children, input, |_| gate);
                let answer = results.first().copied().unwrap_or(input);
                Some(self.step(name, path, &[answer], gate, Naming::Unique))
            }
            UnitType::Combiner => {
                let results = self.children(children, input, |_| gate);
                Some(self.step(name, path, &results, gate, Naming::Prefix))
            }
            UnitType::Router => {
                let own = self.step(name, path, &[input], gate, Naming::Unique);
                let choice = Choice::Route { step: name.to_owned(), children: children.len() };
                let source = Source::outputs(own.node, name, path);
                let control = self.builder.node(Node::new(NodeAction::Choose(choice), vec![source]));
                let results = self.children(children, input, |branch| Some(Gate { control, branch }));
                let sources = results.iter().map(|child| Source::outputs(child.node, child.label, path)).collect();
                let node = self.builder.node(Node { join: Join::First, ..Node::new(NodeAction::Collect, sources) });
                Some(Producer { node, label: name })
            }
        }
    }

    fn children(
        &mut self,
        children: Vec<(String, &'a Map<String, Value>)>,
        input: Producer<'a>,
        gate: impl Fn(usize) -> Option<Gate>,
    ) -> Vec<Producer<'a>> {
        let children = children.into_iter().enumerate();
        children.filter_map(|(index, (path, child))| self.unit(child, &path, input, gate(index))).collect()
    }

    fn step(
        &mut self,
        name: &'a str,
        path: &str,
        inputs: &[Producer<'a>],
        gate: Option<Gate>,
        naming: Naming,
    ) -> Producer<'a> {
        let mut step = self.report.step(name, name, path, self.options);
        step.environment = self.environments.get(name).cloned().unwrap_or_default();
        let action = self.builder.step(step);
        let sources = inputs.iter().map(|input| Source::outputs(input.node, input.label, path)).collect();
        let node = self.builder.node(Node { gate, naming, ..Node::new(action, sources) });
        Producer { node, label: name }
    }

    /// Reports settings that would change answers.
    fn check_unit(&mut self, unit: &Map<String, Value>, path: &str) {
        if optional(unit, "methods").is_some() {
            let message = "`methods` is not supported; set `type` instead";
            self.report.problem(&field(path, "methods"), message);
        }
        let implementation = self.report.string(unit, path, "implementation");
        if let Some(name) = implementation.filter(|name| BUILT_IN.contains(name)) {
            let message = format!("`{}` is not supported; use a model instead", plain(name));
            self.report.problem(&field(path, "implementation"), message);
        }
        if optional(unit, "parameters").is_some() {
            let message = "the parameters are not passed to the model; set them in the settings of the model";
            self.report.warn(&field(path, "parameters"), message);
        }
    }
}
