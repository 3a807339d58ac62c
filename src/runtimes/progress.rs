//! The request behind a prediction: hears when the prediction begins, and answers its steps.

use std::fmt;
use std::sync::Arc;

use super::{BoxFuture, RuntimeError, Steps};
use crate::types::{TokenUsage, TraceContext};

/// Receives the progress of a request.
///
/// No method has a default, as in [`Runtime`](super::Runtime): a batch forwards to its requests.
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
    fn yielded(&self);

    /// The prediction came to nothing, and the request waits for another one.
    fn wait_again(&self);

    /// The request is in a batch, which has a span of its own.
    fn joined(&self, batch: TraceContext);

    /// The model says how many tokens the request took.
    fn used(&self, tokens: TokenUsage);

    /// Returns what answers the steps of the request. `None` unless the model's description has steps.
    fn steps(&self) -> Option<Arc<dyn Steps>>;

    /// Returns the memory of the model. `None` if models may take as much as they need.
    fn memory(&self) -> Option<Arc<dyn ModelMemory>>;
}

/// The memory of a loaded model, under a budget.
pub trait ModelMemory: fmt::Debug + Send + Sync + 'static {
    /// Waits until the model may take this many bytes beside those that it was loaded with. They count until it is unloaded.
    ///
    /// # Errors
    ///
    /// Fails if the budget is too small, or if other models that are in use need it.
    fn grow(&self, bytes: usize) -> BoxFuture<'_, Result<(), RuntimeError>>;
}

/// Ignores the progress, and has no steps: for predictions without a request.
impl Progress for () {
    fn begin(&self) {}

    fn reserve(&self, _bytes: usize) -> Result<(), RuntimeError> {
        Ok(())
    }

    fn yielded(&self) {}

    fn wait_again(&self) {}

    fn joined(&self, _batch: TraceContext) {}

    fn used(&self, _tokens: TokenUsage) {}

    fn steps(&self) -> Option<Arc<dyn Steps>> {
        None
    }

    fn memory(&self) -> Option<Arc<dyn ModelMemory>> {
        None
    }
}
