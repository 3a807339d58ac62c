//! Logs, metrics and traces of the server.

#[cfg(feature = "storage")]
pub mod downloads;
pub mod exposition;
pub mod graphs;
pub mod history;
pub mod inference;
pub mod latency;
pub mod limit;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod traces;
pub mod workers;
