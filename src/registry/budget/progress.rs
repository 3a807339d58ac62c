//! Requests for a model under the memory budget, which may need more memory than the model was loaded with.

use std::sync::Arc;

use super::{BudgetedModel, GrowthError};
use crate::runtimes::{BoxFuture, ModelMemory, Progress, RuntimeError, Steps};
use crate::types::{RequestErrorKind, TokenUsage, TraceContext};

/// Forwards to the progress of a request, and has the memory of its model.
#[derive(Debug)]
pub(super) struct BudgetedProgress {
    pub(super) request: Arc<dyn Progress>,
    pub(super) model: Arc<BudgetedModel>,
}

impl Progress for BudgetedProgress {
    fn begin(&self) {
        self.request.begin();
    }

    fn reserve(&self, bytes: usize) -> Result<(), RuntimeError> {
        self.request.reserve(bytes)
    }

    fn yielded(&self) {
        self.request.yielded();
    }

    fn wait_again(&self) {
        self.request.wait_again();
    }

    fn joined(&self, batch: TraceContext) {
        self.request.joined(batch);
    }

    fn used(&self, tokens: TokenUsage) {
        self.request.used(tokens);
    }

    fn steps(&self) -> Option<Arc<dyn Steps>> {
        self.request.steps()
    }

    fn memory(&self) -> Option<Arc<dyn ModelMemory>> {
        Some(Arc::clone(&self.model) as Arc<dyn ModelMemory>)
    }
}

impl ModelMemory for BudgetedModel {
    fn grow(&self, bytes: usize) -> BoxFuture<'_, Result<(), RuntimeError>> {
        Box::pin(async move {
            let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
            Self::grow(self, bytes).await.map_err(|error| {
                let kind = match error {
                    GrowthError::TooLarge { .. } => RequestErrorKind::BadRequest,
                    GrowthError::InUse { .. } => RequestErrorKind::Overloaded,
                };
                RuntimeError::new(kind, format!("the requested output cannot be prepared: {error}"))
            })
        })
    }
}
