//! Models that the server evaluates itself, against the answers of the real libraries.

mod catboost;
mod catboost_serving;
pub(crate) mod columns;
mod explanations;
mod graph_manifests;
mod graphs;
pub(crate) mod graphs_remote;
mod isolated;
mod mlflow;
mod onnx;
mod scoring;
mod shapes;
mod sklearn;
mod sklearn_explanations;
mod sklearn_serving;
mod steps;
mod trees;
