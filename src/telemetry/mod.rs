//! Logs, metrics and traces of the server.

pub mod exposition;
pub mod graphs;
pub mod inference;
pub mod limit;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod traces;
pub mod workers;
