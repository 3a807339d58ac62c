//! Logs and metrics: what the server tells about itself.

pub mod logging;
pub mod metrics;
