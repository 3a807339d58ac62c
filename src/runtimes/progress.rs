//! When a prediction begins.

use std::fmt;

use crate::types::TraceContext;

/// Is told how far a request has come.
pub trait Progress: fmt::Debug + Send + Sync + 'static {
    /// The request waits for nothing any more: its prediction begins. May be told more than once.
    fn begin(&self);

    /// The prediction waits for something else than the runtime, which can begin another one meanwhile.
    fn yielded(&self) {}

    /// What has begun came to nothing, and the request waits for another prediction.
    fn wait_again(&self);

    /// The request is in a batch, which has a span of its own.
    fn joined(&self, _batch: TraceContext) {}
}

/// Nobody wants to know.
impl Progress for () {
    fn begin(&self) {}

    fn wait_again(&self) {}
}
