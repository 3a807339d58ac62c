//! Serves machine-learning models over the Open Inference (V2) protocol.
//!
//! `ARCHITECTURE.md` describes the modules and which of them may use which; `tests/docs/layers.rs` enforces it.

pub mod access;
pub mod admin;
pub mod archives;
pub mod cli;
pub mod client;
pub mod codecs;
pub mod commands;
pub mod compute;
pub mod console;
pub mod families;
pub mod file_access;
#[cfg(test)]
mod fixtures;
pub mod graphs;
pub mod http_client;
pub mod image;
pub mod inference;
#[cfg(feature = "kafka")]
pub mod kafka;
pub mod lock_file;
pub mod platform;
pub mod processes;
pub mod registry;
pub mod reload;
pub mod remote;
pub mod repository;
pub mod runtimes;
pub mod scaffold;
pub mod server;
pub mod settings;
pub mod shutdown;
#[cfg(feature = "storage")]
pub mod storage;
pub mod telemetry;
pub mod templates;
pub mod tls;
pub mod types;
pub mod ui;

/// Predictions from model files, which have a crate of their own.
pub use mlserver_evaluators as evaluators;
