//! `Pipeline`s of Seldon Core 2.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value};

use super::super::graph::{
    Graph, GraphBuilder, GraphKind, INPUT, Join, Naming, Node, NodeAction, NodeId, Port, Source, nearest,
};
use super::report::{KnownFields, Report, field, optional, plain};
use super::{GraphOptions, MAX_STEPS};

/// The maximum number of inputs, triggers and outputs in a pipeline.
const MAX_REFERENCES: usize = 10_000;

const SPEC: KnownFields = KnownFields {
    read: &["steps", "output", "input", "allowCycles"],
    cluster: &["dataflow", "maxStepRevisits", "availability"],
};

const STEP: KnownFields = KnownFields {
    read: &["name", "inputs", "inputsJoinType", "joinType", "tensorMap", "triggers", "triggersJoinType"],
    cluster: &["batch", "joinWindowMs", "triggersJoinWindowMs"],
};

const OUTPUT: KnownFields =
    KnownFields { read: &["steps", "stepsJoin", "joinType", "tensorMap"], cluster: &["joinWindowMs"] };

const JOINS: [(&str, Join); 3] = [("inner", Join::Inner), ("outer", Join::Outer), ("any", Join::Any)];

/// A step, or the output, as it is declared.
struct PipelineStep<'a> {
    name: &'a str,
    path: String,
    inputs: Vec<Reference<'a>>,
    join: Join,
    triggers: Vec<Reference<'a>>,
    triggers_join: Join,
    renames: Vec<(Reference<'a>, &'a str)>,
}

/// A reference to tensors of a step or of the pipeline.
struct Reference<'a> {
    origin: Origin,
    port: Port,
    tensor: Option<&'a str>,
    path: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Origin {
    Pipeline,
    /// The index of a step.
    Step(usize),
}

/// The names that references are resolved with.
struct Names<'a> {
    pipeline: &'a str,
    steps: HashMap<&'a str, usize>,
    references: usize,
}

pub(super) fn compile(root: &Map<String, Value>, options: &GraphOptions, report: &mut Report) -> Option<Graph> {
    let (pipeline, spec) = report.head(root, &SPEC)?;
    refuse(spec, report);
    let listed = report.list(spec, "spec", "steps");
    if listed.is_empty() {
        report.problem("spec.steps", "expected at least one step");
    }
    if listed.len() > MAX_STEPS {
        report.problem("spec.steps", format!("{} steps, more than the limit of {MAX_STEPS}", listed.len()));
        return None;
    }
    let objects: Vec<_> = listed
        .into_iter()
        .filter_map(|(path, value)| {
            let object = report.object(value, &path)?;
            report.check_fields(object, &path, &STEP);
            let name = report.required_name(object, &path, "name")?;
            Some((path, object, name))
        })
        .collect();
    let mut names = Names { pipeline, steps: HashMap::new(), references: 0 };
    for (index, (path, _, name)) in objects.iter().enumerate() {
        let path = field(path, "name");
        if names.steps.insert(name, index).is_some() {
            report.problem(&path, format!("a step named `{name}` already exists"));
        }
        if *name == pipeline {
            report.problem(&path, format!("the step has the name of the pipeline, `{name}`; rename one of them"));
        }
    }
    let steps: Vec<_> =
        objects.iter().map(|(path, object, name)| step(name, path, object, &mut names, report)).collect();
    let output = output(spec, &mut names, report);
    if report.has_problems() {
        return None;
    }
    let order = order(&steps, report)?;
    let mut builder = GraphBuilder::new(pipeline.to_owned(), GraphKind::Pipeline, report.file());
    let mut nodes: Vec<NodeId> = vec![INPUT; steps.len()];
    let sources = |references: &[Reference<'_>], renames: &[(Reference<'_>, &str)], nodes: &[NodeId]| {
        references.iter().map(|reference| source(reference, renames, pipeline, &steps, nodes)).collect::<Vec<_>>()
    };
    for index in order {
        let step = &steps[index];
        let action = builder.step(report.step(step.name, step.name, &step.path, options));
        let inputs = sources(&step.inputs, &step.renames, &nodes);
        let triggers = sources(&step.triggers, &[], &nodes);
        let node = Node { join: step.join, triggers, triggers_join: step.triggers_join, ..Node::new(action, inputs) };
        nodes[index] = builder.node(node);
    }
    let inputs = sources(&output.inputs, &output.renames, &nodes);
    let node = Node { join: output.join, naming: Naming::PrefixClashes, ..Node::new(NodeAction::Collect, inputs) };
    let output = builder.node(node);
    Some(builder.finish(output))
}

/// Reports settings that would change answers.
fn refuse(spec: &Map<String, Value>, report: &mut Report) {
    if optional(spec, "input").is_some_and(|input| input.as_object().is_none_or(|input| !input.is_empty())) {
        report.problem(
            "spec.input",
            "inputs of other pipelines are not supported; send requests to this pipeline instead",
        );
    }
    if optional(spec, "allowCycles").is_some_and(|value| *value != Value::Bool(false)) {
        report.problem("spec.allowCycles", "cycles are not supported, expected `false`");
    }
}

fn step<'a>(
    name: &'a str,
    path: &str,
    object: &'a Map<String, Value>,
    names: &mut Names<'a>,
    report: &mut Report,
) -> PipelineStep<'a> {
    let mut inputs = references(object, path, "inputs", names, report);
    check_overlaps(&inputs, report);
    if inputs.is_empty() {
        inputs.push(Reference { origin: Origin::Pipeline, port: Port::Inputs, tensor: None, path: path.to_owned() });
    }
    let triggers = references(object, path, "triggers", names, report);
    for trigger in &triggers {
        if let Origin::Step(step) = trigger.origin
            && inputs.iter().any(|input| input.origin == Origin::Step(step))
        {
            report.problem(&trigger.path, "the step is also an input; a step may be an input or a trigger, not both");
        }
    }
    let join = join(object, path, "inputsJoinType", report);
    let renames = renames(object, path, &inputs, join, names, report);
    let triggers_join = report.choice(object, path, "triggersJoinType", &JOINS).unwrap_or(Join::Inner);
    PipelineStep { name, path: path.to_owned(), inputs, join, triggers, triggers_join, renames }
}

fn output<'a>(spec: &'a Map<String, Value>, names: &mut Names<'a>, report: &mut Report) -> PipelineStep<'a> {
    let path = "spec.output";
    let empty = PipelineStep {
        name: "",
        path: path.to_owned(),
        inputs: Vec::new(),
        join: Join::Inner,
        triggers: Vec::new(),
        triggers_join: Join::Inner,
        renames: Vec::new(),
    };
    let Some(object) = report.required(spec, "spec", "output").and_then(|output| report.object(output, path)) else {
        return empty;
    };
    report.check_fields(object, path, &OUTPUT);
    let inputs = references(object, path, "steps", names, report);
    check_overlaps(&inputs, report);
    if inputs.is_empty() {
        report.problem("spec.output.steps", "expected at least one step");
    }
    let join = join(object, path, "stepsJoin", report);
    let renames = renames(object, path, &inputs, join, names, report);
    PipelineStep { inputs, join, renames, ..empty }
}

/// Reads a join from the field of this name or from `joinType`.
fn join(object: &Map<String, Value>, path: &str, name: &str, report: &mut Report) -> Join {
    let join = report.choice(object, path, name, &JOINS);
    let other = report.choice(object, path, "joinType", &JOINS);
    if optional(object, name).is_some() && optional(object, "joinType").is_some() {
        report.problem(&field(path, "joinType"), format!("`{name}` is set too, expected one of them"));
    }
    join.or(other).unwrap_or(Join::Inner)
}

fn references<'a>(
    object: &'a Map<String, Value>,
    path: &str,
    name: &str,
    names: &mut Names<'a>,
    report: &mut Report,
) -> Vec<Reference<'a>> {
    let mut seen = HashSet::new();
    let listed = report.list(object, path, name);
    if !names.count(listed.len(), report) {
        return Vec::new();
    }
    listed
        .into_iter()
        .filter_map(|(path, value)| {
            let text = report.text(value, &path)?;
            if !report.is_name(text, &path) {
                return None;
            }
            let reference = names.resolve(text, path, report)?;
            if !seen.insert((reference.origin, reference.port, reference.tensor)) {
                report.problem(&reference.path, format!("`{}` is listed twice", plain(text)));
            }
            Some(reference)
        })
        .collect()
}

/// Reports tensors that are listed on their own and with all tensors of their step, which would be two tensors of one name.
fn check_overlaps(inputs: &[Reference<'_>], report: &mut Report) {
    let whole = inputs.iter().filter(|input| input.tensor.is_none()).map(|input| (input.origin, input.port));
    let whole: HashSet<_> = whole.collect();
    for input in inputs.iter().filter(|input| input.tensor.is_some()) {
        if whole.contains(&(input.origin, input.port)) {
            report.problem(&input.path, "the tensor is listed twice: all tensors of the step are listed, too");
        }
    }
}

/// Reads `tensorMap`, whose keys are tensors of the inputs. Tensors that may be there together have different names.
fn renames<'a>(
    object: &'a Map<String, Value>,
    path: &str,
    inputs: &[Reference<'a>],
    join: Join,
    names: &mut Names<'a>,
    report: &mut Report,
) -> Vec<(Reference<'a>, &'a str)> {
    let path = field(path, "tensorMap");
    let Some(map) = optional(object, "tensorMap").and_then(|map| report.object(map, &path)) else {
        return Vec::new();
    };
    if !names.count(map.len(), report) {
        return Vec::new();
    }
    let mut mapped: HashMap<&str, Vec<(Origin, &str)>> = HashMap::new();
    map.iter()
        .filter_map(|(key, value)| {
            let path = field(&path, key);
            let new = report.text(value, &path).filter(|new| report.is_name(new, &path));
            if !report.is_name(key, &path) {
                return None;
            }
            let reference = names.resolve(key, path, report)?;
            if reference.tensor.is_none() {
                report.problem(&reference.path, "expected a tensor, such as `step.outputs.tensor`");
                return None;
            }
            if !inputs.iter().any(|input| reference.is_of(input)) {
                report.problem(&reference.path, "the tensor is not one of the inputs");
            }
            let earlier = mapped.entry(new.unwrap_or_default()).or_default();
            let clash = earlier.iter().find(|(origin, _)| join == Join::Inner || *origin == reference.origin);
            if let Some((_, earlier)) = clash.filter(|_| new.is_some()) {
                let (earlier, new) = (plain(earlier), new.unwrap_or_default());
                report
                    .problem(&reference.path, format!("`{earlier}` has the new name `{new}`, too; choose another one"));
            }
            earlier.push((reference.origin, key));
            Some((reference, new?))
        })
        .collect()
}

impl Reference<'_> {
    /// Returns whether a tensor is one of those that another reference selects.
    fn is_of(&self, input: &Reference<'_>) -> bool {
        let is_selected = input.tensor.is_none() || input.tensor == self.tensor;
        self.origin == input.origin && self.port == input.port && is_selected
    }
}

impl<'a> Names<'a> {
    /// Counts references, and returns whether they are within the limit.
    fn count(&mut self, references: usize, report: &mut Report) -> bool {
        self.references += references;
        if self.references > MAX_REFERENCES {
            report.problem("spec", format!("more than {MAX_REFERENCES} inputs, triggers, outputs and renamed tensors"));
        }
        self.references <= MAX_REFERENCES
    }

    /// Resolves a reference. Names may contain dots, so the longest name that fits is used.
    fn resolve(&self, text: &'a str, path: String, report: &mut Report) -> Option<Reference<'a>> {
        let ends = std::iter::once(text.len()).chain(text.rmatch_indices('.').map(|(index, _)| index));
        let mut is_known = false;
        for end in ends {
            let (name, rest) = text.split_at(end);
            let origin = match self.steps.get(name) {
                Some(step) => Origin::Step(*step),
                None if name == self.pipeline => Origin::Pipeline,
                None => continue,
            };
            is_known = true;
            let (port, tensor) = match rest.strip_prefix('.').unwrap_or(rest) {
                "" | "outputs" => (Port::Outputs, None),
                "inputs" => (Port::Inputs, None),
                rest => match rest.split_once('.') {
                    Some(("outputs", tensor)) if !tensor.is_empty() => (Port::Outputs, Some(tensor)),
                    Some(("inputs", tensor)) if !tensor.is_empty() => (Port::Inputs, Some(tensor)),
                    _ => continue,
                },
            };
            match origin {
                Origin::Pipeline if port == Port::Inputs => {}
                Origin::Pipeline => continue,
                Origin::Step(_) => {}
            }
            return Some(Reference { origin, port, tensor, path });
        }
        let shown = plain(text);
        if is_known {
            report.problem(
                &path,
                format!(
                    "invalid reference `{shown}`, expected `step`, `step.outputs`, `step.outputs.tensor`, `step.inputs`, \
                     `step.inputs.tensor`, `{0}.inputs` or `{0}.inputs.tensor`",
                    self.pipeline
                ),
            );
        } else {
            let name =
                text.split_once(".outputs").or_else(|| text.split_once(".inputs")).map_or(text, |(name, _)| name);
            let mut known: Vec<_> = self.steps.keys().copied().chain([self.pipeline]).collect();
            known.sort_unstable();
            let hint = nearest(name, known).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
            report.problem(&path, format!("`{shown}` refers to an unknown step{hint}"));
        }
        None
    }
}

/// Returns the steps in an order in which each depends only on earlier ones, and otherwise in the order of the manifest.
fn order(steps: &[PipelineStep<'_>], report: &mut Report) -> Option<Vec<usize>> {
    let dependencies: Vec<BTreeSet<usize>> = steps
        .iter()
        .map(|step| {
            let origins = step.inputs.iter().chain(&step.triggers).map(|reference| reference.origin);
            origins.filter_map(|origin| if let Origin::Step(step) = origin { Some(step) } else { None }).collect()
        })
        .collect();
    let mut consumers = vec![Vec::new(); steps.len()];
    for (index, dependencies) in dependencies.iter().enumerate() {
        for &dependency in dependencies {
            consumers[dependency].push(index);
        }
    }
    let mut open: Vec<usize> = dependencies.iter().map(BTreeSet::len).collect();
    let mut ready: BTreeSet<usize> = (0..steps.len()).filter(|&index| open[index] == 0).collect();
    let mut order = Vec::with_capacity(steps.len());
    while let Some(index) = ready.pop_first() {
        order.push(index);
        for &consumer in &consumers[index] {
            open[consumer] -= 1;
            if open[consumer] == 0 {
                ready.insert(consumer);
            }
        }
    }
    let Some(start) = (0..steps.len()).find(|&index| open[index] > 0) else { return Some(order) };
    // Each step that is left depends on another one that is left, so following the dependencies leads into a cycle.
    let mut path = vec![start];
    let cycle = loop {
        let last = path[path.len() - 1];
        let next = dependencies[last].iter().copied().find(|&index| open[index] > 0).unwrap_or(last);
        if let Some(position) = path.iter().position(|&index| index == next) {
            break path.split_off(position);
        }
        path.push(next);
    };
    // The tensors flow in the other direction.
    let flow = cycle[..1].iter().chain(cycle.iter().rev());
    let names: Vec<_> = flow.map(|&index| format!("`{}`", steps[index].name)).collect();
    report.problem(&steps[cycle[0]].path, format!("the steps form a cycle: {}", names.join(" -> ")));
    None
}

fn source(
    reference: &Reference<'_>,
    renames: &[(Reference<'_>, &str)],
    pipeline: &str,
    steps: &[PipelineStep<'_>],
    nodes: &[NodeId],
) -> Source {
    let (node, port, label) = match reference.origin {
        Origin::Pipeline => (INPUT, Port::Outputs, pipeline.to_owned()),
        Origin::Step(step) => {
            let name = steps[step].name;
            let label = if reference.port == Port::Inputs { format!("{name}.inputs") } else { name.to_owned() };
            (nodes[step], reference.port, label)
        }
    };
    let renames = renames
        .iter()
        .filter(|(tensor, _)| tensor.is_of(reference))
        .filter_map(|(tensor, new)| Some((tensor.tensor?.to_owned(), (*new).to_owned())))
        .collect();
    let tensor = reference.tensor.map(str::to_owned);
    Source { node, port, tensor, renames, label, path: reference.path.clone(), is_repeated: false }
}
