//! `mlserver graph show`: prints inference graphs, without loading their models.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use serde_json::{Value, json};

use super::CommandError;
use crate::cli::graph::{GraphArgs, GraphCommand, GraphFormat, ShowArgs};
use crate::graphs::{
    self, Edge, Endpoint, GRAPH_IMPLEMENTATION, Graph, GraphFileError, GraphKind, GraphManifest, ModelReference, Step,
};
use crate::remote::RemoteAddress;
use crate::repository::{Artifact, Repository};
use crate::settings::{Environment, MODEL_SETTINGS_FILE, ModelSettings, SETTINGS_FILE, SettingsSources};
use crate::types::without_credentials;
use crate::ui::{Highlight, Ui};

/// Runs `mlserver graph`.
pub fn run(args: &GraphArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    match &args.command {
        GraphCommand::Show(args) => show(args, environment, ui),
    }
}

/// Prints the graphs on standard output, and their problems on standard error.
fn show(args: &ShowArgs, environment: &dyn Environment, ui: &mut Ui) -> Result<(), CommandError> {
    let folder: PathBuf = environment.working_directory().join(&args.folder).components().collect();
    let shown = args.folder.display();
    if !folder.is_dir() {
        let why = if folder.exists() { "is not a folder" } else { "does not exist" };
        return Err(anyhow!("`{shown}` {why}: pass the folder of a graph, or a folder above it").into());
    }
    let sources = SettingsSources::read(environment)?;
    let working_directory = sources.working_directory().to_owned();
    let discovery = Repository::new(repository_of(&folder), sources, false).discover();
    let models: Vec<&ModelSettings> = discovery.models.iter().map(|model| &model.settings).collect();
    let is_inside = |model: &ModelSettings| model.source.as_ref().is_some_and(|source| source.starts_with(&folder));
    let graphs = models.iter().filter(|model| model.implementation == GRAPH_IMPLEMENTATION && is_inside(model));
    let graphs: Vec<ShownGraph> =
        graphs.map(|settings| ShownGraph::read(settings, &models, &folder, &working_directory)).collect();
    let has_problems = graphs.is_empty() || graphs.iter().any(|graph| !graph.problems.is_empty());
    // A model may be missing because its settings cannot be read.
    for error in discovery.errors.iter().filter(|_| has_problems) {
        ui.warning(error);
    }
    if graphs.is_empty() {
        return Err(anyhow!(
            "no inference graph in `{shown}`: a graph has the implementation `{GRAPH_IMPLEMENTATION}`"
        )
        .into());
    }
    for graph in &graphs {
        for warning in &graph.warnings {
            ui.warning(format_args!("graph \"{}\": {}", graph.name, printable(warning)));
        }
        for problem in &graph.problems {
            ui.problem(format_args!("graph \"{}\": {}", graph.name, printable(problem)));
        }
    }
    match args.format {
        GraphFormat::Text => text(&graphs, ui)?,
        GraphFormat::Json => {
            let graphs: Vec<Value> = graphs.iter().map(ShownGraph::to_json).collect();
            ui.line(format_args!("{:#}", json!({"graphs": graphs})))?;
        }
        GraphFormat::Mermaid => mermaid(&graphs, ui)?,
    }
    let unusable: Vec<String> =
        graphs.iter().filter(|graph| !graph.problems.is_empty()).map(|graph| format!("`{}`", graph.name)).collect();
    match unusable.as_slice() {
        [] => Ok(()),
        [one] => Err(anyhow!("the graph {one} cannot be served").into()),
        several => Err(anyhow!("the graphs {} cannot be served", several.join(", ")).into()),
    }
}

/// Returns the folder with the models of the graphs in `folder`. The models of a single graph are beside it: in the nearest folder with
/// server settings, or in the folder above it.
fn repository_of(folder: &Path) -> &Path {
    if !folder.join(MODEL_SETTINGS_FILE).is_file() {
        return folder;
    }
    let with_settings = folder.ancestors().find(|ancestor| ancestor.join(SETTINGS_FILE).is_file());
    with_settings.or_else(|| folder.parent()).unwrap_or(folder)
}

/// A graph that is shown.
struct ShownGraph {
    name: String,
    /// The manifest, relative to the folder of the command if it is below it.
    file: String,
    /// `None` if the manifest cannot be used.
    graph: Option<Graph>,
    /// The model of each step of the graph.
    models: Vec<ShownModel>,
    warnings: Vec<String>,
    problems: Vec<String>,
}

/// The model of a step.
enum ShownModel {
    /// A model of the repository.
    Local,
    /// A model of another server.
    Remote(RemoteAddress),
    /// The repository lacks the model, or the address of the model is invalid.
    Missing,
}

impl ShownGraph {
    /// Reads the manifest of a graph, and looks for the models of its steps.
    fn read(settings: &ModelSettings, models: &[&ModelSettings], folder: &Path, working_directory: &Path) -> Self {
        let mut shown = Self {
            name: settings.name.clone(),
            file: String::new(),
            graph: None,
            models: Vec::new(),
            warnings: Vec::new(),
            problems: Vec::new(),
        };
        let manifest = match Artifact::resolve(settings, working_directory) {
            Ok(Artifact::Path(path)) => path,
            Ok(Artifact::Remote(uri)) => {
                shown.problems.push(format!("the manifest `{}` is not on this machine", without_credentials(&uri)));
                return shown;
            }
            Err(error) => {
                shown.problems.push(error.to_string());
                return shown;
            }
        };
        shown.file = manifest.strip_prefix(folder).unwrap_or(&manifest).display().to_string();
        match graphs::read_manifest(settings, &manifest) {
            Ok(GraphManifest { mut graph, warnings, .. }) => {
                let has_model = |name: &str| models.iter().any(|model| model.name == name);
                graph.resolve_models(has_model, &settings.step_models);
                shown.warnings.extend(warnings.iter().map(ToString::to_string));
                shown.find_models(&graph, models);
                shown.graph = Some(graph);
            }
            Err(GraphFileError::Manifest(errors)) => {
                shown.problems.extend(errors.0.iter().map(ToString::to_string));
            }
            Err(error) => shown.problems.push(error.to_string()),
        }
        shown
    }

    fn find_models(&mut self, graph: &Graph, models: &[&ModelSettings]) {
        let mut outputs = BTreeMap::new();
        for step in graph.steps() {
            let ModelReference { name, version } = &step.model;
            let at = format!("{}: {}: step \"{}\"", graph.file(), step.path, step.name);
            if let Some(url) = &step.url {
                let address = RemoteAddress::parse(url, name, version.as_deref());
                self.models.push(match address {
                    Ok(address) => ShownModel::Remote(address),
                    Err(error) => {
                        self.problems.push(format!("{at}: {error}"));
                        ShownModel::Missing
                    }
                });
                continue;
            }
            let is_model = |model: &&&ModelSettings| {
                model.name == *name && (version.is_none() || model.version() == version.as_deref())
            };
            let Some(model) = models.iter().find(is_model) else {
                self.problems.push(format!("{at}: the model `{}` is missing", model_name(step)));
                self.models.push(ShownModel::Missing);
                continue;
            };
            if !model.outputs.is_empty() {
                let names: Vec<String> = model.outputs.iter().map(|output| output.name.clone()).collect();
                outputs.insert(&step.name, names);
            }
            self.models.push(ShownModel::Local);
        }
        let tensors = graph.check_tensors(|step| outputs.get(&step.name).cloned());
        self.problems.extend(tensors.iter().map(ToString::to_string));
    }

    /// Returns the steps and their models.
    fn steps(&self) -> impl Iterator<Item = (&Step, &ShownModel)> {
        self.graph.iter().flat_map(Graph::steps).zip(&self.models)
    }

    fn kind(&self) -> Option<&'static str> {
        Some(match self.graph.as_ref()?.kind() {
            GraphKind::Pipeline => "Pipeline",
            GraphKind::InferenceGraph => "InferenceGraph",
            GraphKind::SeldonDeployment => "SeldonDeployment",
        })
    }

    fn edges(&self) -> Vec<Edge> {
        self.graph.as_ref().map(Graph::edges).unwrap_or_default()
    }

    fn to_json(&self) -> Value {
        let index = |endpoint| match endpoint {
            Endpoint::Step(step) => Some(step),
            Endpoint::Input | Endpoint::Output => None,
        };
        let steps = self.steps().map(|(step, model)| {
            json!({
                "name": step.name,
                "model": step.model.name,
                "version": step.model.version,
                "url": if let ShownModel::Remote(address) = model { Some(address.to_string()) } else { None },
                "required": step.required,
                "missing": matches!(model, ShownModel::Missing),
            })
        });
        let edges = self.edges();
        let edges =
            edges.iter().map(|edge| json!({"from": index(edge.from), "to": index(edge.to), "label": edge.label}));
        json!({
            "name": self.name,
            "kind": self.kind(),
            "file": self.file,
            "steps": steps.collect::<Vec<_>>(),
            "edges": edges.collect::<Vec<_>>(),
            "problems": self.problems,
            "warnings": self.warnings,
        })
    }
}

/// Returns the name and the version of a step's model.
fn model_name(step: &Step) -> String {
    let ModelReference { name, version } = &step.model;
    version.as_ref().map_or_else(|| name.clone(), |version| format!("{name}@{version}"))
}

/// Returns what a reader needs to know of a step besides its name.
fn remarks(step: &Step, model: &ShownModel) -> Vec<String> {
    let name = model_name(step);
    let of_model = match model {
        ShownModel::Remote(address) => Some(address.to_string()),
        ShownModel::Local if name == step.name => None,
        ShownModel::Local => Some(format!("model {name}")),
        ShownModel::Missing => Some(format!("model {name} is missing")),
    };
    let optional = (!step.required).then(|| "optional".to_owned());
    of_model.into_iter().chain(optional).collect()
}

fn text(graphs: &[ShownGraph], ui: &mut Ui) -> io::Result<()> {
    for (number, graph) in graphs.iter().enumerate() {
        if number > 0 {
            ui.line("")?;
        }
        let name = Highlight::Strong.paint(printable(&graph.name));
        let file = printable(&graph.file);
        let Some(kind) = graph.kind() else {
            ui.line(format_args!("{name}: {}", if file.is_empty() { "no manifest" } else { &file }))?;
            continue;
        };
        ui.line(format_args!("{name}: {kind} in {file}"))?;
        let edges = graph.edges();
        for (index, (step, model)) in graph.steps().enumerate() {
            let remarks = remarks(step, model);
            let remarks = if remarks.is_empty() { String::new() } else { format!(" ({})", remarks.join(", ")) };
            let line = printable(&format!("{}{remarks}", step.name));
            match model {
                ShownModel::Missing => ui.line(format_args!("  {}. {}", index + 1, Highlight::Error.paint(line)))?,
                ShownModel::Local | ShownModel::Remote(_) => ui.line(format_args!("  {}. {line}", index + 1))?,
            }
            sources(graph, &edges, Endpoint::Step(index), ui)?;
        }
        ui.line("  outputs")?;
        sources(graph, &edges, Endpoint::Output, ui)?;
    }
    Ok(())
}

/// Prints what a step or the output depends on, a line each.
fn sources(graph: &ShownGraph, edges: &[Edge], to: Endpoint, ui: &mut Ui) -> io::Result<()> {
    let steps: Vec<&Step> = graph.steps().map(|(step, _)| step).collect();
    for edge in edges.iter().filter(|edge| edge.to == to) {
        let from = match edge.from {
            Endpoint::Step(step) => steps[step].name.as_str(),
            Endpoint::Input | Endpoint::Output => "inputs",
        };
        let label = if edge.label.is_empty() { String::new() } else { format!(": {}", edge.label) };
        ui.line(format_args!("     <- {}", printable(&format!("{from}{label}"))))?;
    }
    Ok(())
}

/// Prints one flowchart with all graphs.
fn mermaid(graphs: &[ShownGraph], ui: &mut Ui) -> io::Result<()> {
    ui.line("flowchart LR")?;
    ui.line("  classDef missing stroke:#c00,stroke-dasharray:4")?;
    for (number, graph) in graphs.iter().enumerate() {
        ui.line(format_args!("  subgraph g{number}[\"{}\"]", mermaid_text(&graph.name)))?;
        ui.line("    direction LR")?;
        ui.line(format_args!("    g{number}i([inputs])"))?;
        for (index, (step, model)) in graph.steps().enumerate() {
            let lines = std::iter::once(step.name.clone()).chain(remarks(step, model));
            let lines: Vec<String> = lines.map(|line| mermaid_text(&line)).collect();
            let class = if matches!(model, ShownModel::Missing) { ":::missing" } else { "" };
            ui.line(format_args!("    g{number}s{index}[\"{}\"]{class}", lines.join("<br/>")))?;
        }
        ui.line(format_args!("    g{number}o([outputs])"))?;
        for Edge { from, to, label } in graph.edges() {
            let node = |endpoint| match endpoint {
                Endpoint::Input => format!("g{number}i"),
                Endpoint::Step(index) => format!("g{number}s{index}"),
                Endpoint::Output => format!("g{number}o"),
            };
            let label = if label.is_empty() { String::new() } else { format!("|\"{}\"|", mermaid_text(&label)) };
            ui.line(format_args!("    {} -->{label} {}", node(from), node(to)))?;
        }
        ui.line("  end")?;
    }
    Ok(())
}

/// Returns text for quotes in Mermaid's language. Characters that may mean something else there are written as their numbers.
fn mermaid_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in printable(text).chars() {
        if character.is_alphanumeric() || " _-.,/:@=".contains(character) {
            escaped.push(character);
        } else {
            // Writing to a text does not fail.
            let _ = write!(escaped, "#{};", u32::from(character));
        }
    }
    escaped
}

/// Returns text without control characters, which may change more of a terminal than the text.
fn printable(text: &str) -> String {
    text.chars()
        .flat_map(|character| {
            let escaped = character.is_control().then(|| character.escape_default());
            let plain = escaped.is_none().then_some(character);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mermaid_text_escapes_what_has_a_meaning() {
        assert_eq!(mermaid_text("if x.#(a>\"1\")"), "if x.#35;#40;a#62;#34;1#34;#41;");
        assert_eq!(mermaid_text("%%{init}%%`\n]é"), "#37;#37;#123;init#125;#37;#37;#96;#92;n#93;é");
    }
}
