//! Reports when a prediction begins.

use std::fmt;

use super::RuntimeError;
use crate::types::TraceContext;

/// Receives the progress of a request.
pub trait Progress: fmt::Debug + Send + Sync + 'static {
    /// The request no longer waits: its prediction begins. May be called more than once.
    fn begin(&self);

    /// Reserves memory for the response, before it is computed.
    ///
    /// # Errors
    ///
    /// Fails if the requests in flight would take too much memory.
    fn reserve(&self, bytes: usize) -> Result<(), RuntimeError>;

    /// The prediction waits for something other than the runtime, which can begin another one in the meantime.
    fn yielded(&self) {}

    /// The prediction came to nothing, and the request waits for another one.
    fn wait_again(&self);

    /// The request is in a batch, which has a span of its own.
    fn joined(&self, _batch: TraceContext) {}
}

/// Ignores the progress.
impl Progress for () {
    fn begin(&self) {}

    fn reserve(&self, _bytes: usize) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn wait_again(&self) {}
}
