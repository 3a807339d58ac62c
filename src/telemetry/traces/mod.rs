//! Traces: what a request did when, for the setting `tracing_server`.
//!
//! The server's span of a request begins with it, as a child of the span that its `traceparent` names. What happens on the
//! way (waiting, predicting, encoding) is noted when it is over, as children of that. A batch is a span of its own, linked to
//! all of its requests. Without the feature `otel` there is none of this: the types below are empty.

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

/// Spans cannot be exported to where the setting says.
#[derive(Debug, thiserror::Error)]
#[error("cannot send traces to `{endpoint}` (`tracing_server`): {reason}")]
pub struct TracesError {
    pub endpoint: String,
    pub reason: String,
}

/// A part of a request's way that is over.
#[derive(Debug, Clone, Copy)]
pub struct RequestPhase {
    pub name: &'static str,
    pub since: Instant,
    pub until: Instant,
    /// The batch in which it happened.
    pub batch: Option<TraceContext>,
}
