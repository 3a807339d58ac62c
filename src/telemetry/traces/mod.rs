//! Traces of requests, for the setting `tracing_server`.
//!
//! Each request has a server span, which is a child of the span in its `traceparent` header. Its phases (queue, predict,
//! encode) are recorded when they end, as children of the server span. A batch has a separate span, linked to all of its
//! requests. Without the feature `otel`, the types below are empty.

#[cfg(not(feature = "otel"))]
mod off;
#[cfg(feature = "otel")]
mod otel;

#[cfg(not(feature = "otel"))]
pub use off::{Span, Traces};
#[cfg(feature = "otel")]
pub use otel::{Span, Traces};

use tokio::time::Instant;

use crate::types::TraceContext;

/// The error for an invalid endpoint in `tracing_server`.
#[derive(Debug, thiserror::Error)]
#[error("cannot send traces to `{endpoint}` (`tracing_server`): {reason}")]
pub struct TracesError {
    pub endpoint: String,
    pub reason: String,
}

/// A phase of a request that has ended.
#[derive(Debug, Clone, Copy)]
pub struct RequestPhase {
    pub name: &'static str,
    pub since: Instant,
    pub until: Instant,
    /// The span of the batch that the request was in.
    pub batch: Option<TraceContext>,
}
