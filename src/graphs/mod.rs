//! Inference graphs: models that are made of other models.
//!
//! [`GraphManifest::parse`] reads the manifests of Seldon Core 2, `KServe` and Seldon Core under limits and compiles each of them to
//! a [`Graph`]. [`Schedule`](schedule::Schedule) decides which steps may run, without a clock and without I/O. [`execute`] runs
//! them through a [`StepRunner`], and moves tensors between them without a copy. Nothing here knows the server.

mod condition;
mod drawing;
mod execute;
mod graph;
mod load;
mod manifest;
#[cfg(test)]
mod nested_properties;
#[cfg(test)]
mod properties;
mod schedule;
#[cfg(test)]
mod tests;

pub use drawing::draw;
pub use execute::{
    BackgroundSteps, BoxFuture, ConditionFailure, ConditionWork, Execution, FoundCondition, GraphError, LastStep,
    Prepared, SkippedStep, StepOutcome, StepRunner, execute, prepare,
};
pub use graph::{Edge, Endpoint, Graph, GraphKind, ModelReference, Step};
pub use load::{GRAPH_IMPLEMENTATION, GraphFileError, read_manifest};
pub use manifest::{GraphManifest, GraphOptions, ManifestErrors, ManifestProblem, StepOptions};
