//! Logs and metrics: what the server tells about itself.

pub mod exposition;
pub mod inference;
pub mod logging;
pub mod memory;
pub mod metrics;
pub mod traces;
pub mod workers;
