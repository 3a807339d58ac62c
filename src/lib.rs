//! Serves machine-learning models over the Open Inference (V2) protocol.
//!
//! The modules in reading order, from the outside in: a module may use those listed below it, never those above.

pub mod cli;
pub mod codecs;
pub mod commands;
pub mod compute;
pub mod repository;
pub mod runtimes;
pub mod settings;
pub mod telemetry;
pub mod types;
pub mod ui;
