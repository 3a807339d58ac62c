//! Reads the manifests of inference graphs, and compiles them.
//!
//! Manifests are untrusted: their size, depth, aliases and numbers of nodes are limited. All problems are found and reported
//! together. Fields that only make sense in a cluster are listed, and unknown fields are warnings.

mod inference_graph;
mod pipeline;
mod report;
mod seldon_deployment;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use serde_saphyr::options::{AliasLimits, DuplicateKeyPolicy};

use self::report::Report;
use super::graph::Graph;
use crate::types::text;

/// The maximum size of a manifest, in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// The maximum depth of a manifest.
const MAX_DEPTH: usize = 64;
/// The maximum number of aliases that are expanded.
const MAX_ALIASES: usize = 1000;
/// The maximum number of values in a manifest, aliases expanded.
const MAX_VALUES: usize = 100_000;
/// The maximum number of steps of a graph, nested nodes expanded.
const MAX_STEPS: usize = 1000;

/// A manifest that has been read and compiled.
#[derive(Debug)]
pub struct GraphManifest {
    pub graph: Graph,
    /// Unknown fields, and settings without effect.
    pub warnings: Vec<ManifestProblem>,
    /// The paths of fields that only make sense in a cluster, such as `spec.predictors[0].replicas`.
    pub ignored: Vec<String>,
}

/// Settings of the model that complete its manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GraphOptions {
    /// The options of each step, by its name: `parameters.extra.steps` of the settings.
    pub steps: BTreeMap<String, StepOptions>,
}

/// The options of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepOptions {
    /// The URL of another server that has the step's model.
    pub url: Option<String>,
    /// The folder from which the step's model is created.
    pub folder: Option<String>,
}

/// A problem, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestProblem {
    pub file: String,
    /// The path inside the file, such as `spec.steps[2].inputs[0]`. Empty if the problem concerns the whole file.
    pub path: String,
    pub message: String,
}

impl fmt::Display for ManifestProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Why a manifest cannot be used: all problems, of which there is at least one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ManifestErrors(pub Vec<ManifestProblem>);

impl fmt::Display for ManifestErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl GraphManifest {
    /// Parses a manifest in YAML or JSON, and compiles it.
    ///
    /// `origin` is the name of the file, for messages.
    ///
    /// # Errors
    ///
    /// Fails with all problems of the manifest.
    pub fn parse(bytes: &[u8], origin: &str, options: &GraphOptions) -> Result<Self, ManifestErrors> {
        let mut report = Report::new(origin);
        let graph = document(bytes, &mut report).and_then(|document| compile(&document, options, &mut report));
        let (problems, warnings, ignored) = report.finish();
        match graph {
            Some(graph) if problems.is_empty() => Ok(Self { graph, warnings, ignored }),
            _ => Err(ManifestErrors(problems)),
        }
    }
}

/// Reads the only document of a file.
fn document(bytes: &[u8], report: &mut Report) -> Option<Value> {
    if bytes.len() > MAX_BYTES {
        report.problem("", format!("the file has {} bytes, more than the limit of {MAX_BYTES}", bytes.len()));
        return None;
    }
    let text = match text::utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            report.problem("", error.to_string());
            return None;
        }
    };
    let mut aliases = AliasLimits::default();
    aliases.max_total_replayed_events = MAX_VALUES;
    aliases.max_replay_stack_depth = MAX_DEPTH;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_aliases: MAX_ALIASES,
            max_nodes: MAX_VALUES,
            max_documents: 1,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: aliases,
        duplicate_keys: DuplicateKeyPolicy::Error,
        // Names such as `y`, `no` and `on` are strings, as in YAML 1.2.
        strict_booleans: true,
        with_snippet: false,
    };
    match serde_saphyr::from_str_with_options(text, options) {
        Ok(document) => Some(document),
        Err(error) => {
            report.problem("", format!("cannot read the file: {error}"));
            None
        }
    }
}

/// Compiles a document of any of the kinds.
fn compile(document: &Value, options: &GraphOptions, report: &mut Report) -> Option<Graph> {
    let root = report.object(document, "")?;
    let version = report.required_string(root, "", "apiVersion");
    let kind = report.required_string(root, "", "kind");
    let (version, kind) = (version?, kind?);
    let graph = match (kind, version) {
        ("Pipeline", "mlops.seldon.io/v1alpha1") => pipeline::compile(root, options, report),
        ("InferenceGraph", "serving.kserve.io/v1alpha1") => inference_graph::compile(root, options, report),
        (
            "SeldonDeployment",
            "machinelearning.seldon.io/v1"
            | "machinelearning.seldon.io/v1alpha2"
            | "machinelearning.seldon.io/v1alpha3",
        ) => seldon_deployment::compile(root, options, report),
        _ => {
            let message = format!(
                "`{}` of `{}` is not supported, expected a `Pipeline` of `mlops.seldon.io/v1alpha1`, an `InferenceGraph` of \
                 `serving.kserve.io/v1alpha1`, or a `SeldonDeployment` of `machinelearning.seldon.io/v1`, `v1alpha2` or \
                 `v1alpha3`",
                report::plain(kind),
                report::plain(version)
            );
            report.problem("kind", message);
            None
        }
    }?;
    for problem in graph.check_tensors(|_| None) {
        report.problem(&problem.path, problem.message);
    }
    for name in options.steps.keys().filter(|name| !graph.steps().iter().any(|step| step.name == **name)) {
        let names = graph.steps().iter().map(|step| step.name.as_str());
        report.unknown_name(&format!("parameters.extra.steps.{}", report::plain(name)), "step", name, names);
    }
    Some(graph)
}
