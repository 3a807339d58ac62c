//! Serves machine-learning models over the Open Inference (V2) protocol.
//!
//! The modules from the outside in; which may use which is in `ARCHITECTURE.md`, and `tests/docs/layers.rs` holds it.

pub mod admin;
pub mod cli;
pub mod client;
pub mod codecs;
pub mod commands;
pub mod compute;
pub mod evaluators;
pub mod families;
pub mod image;
pub mod inference;
pub mod pickle;
pub mod registry;
pub mod repository;
pub mod runtimes;
pub mod scaffold;
pub mod server;
pub mod settings;
pub mod shutdown;
pub mod telemetry;
pub mod templates;
pub mod types;
pub mod ui;
