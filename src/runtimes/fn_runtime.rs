//! A runtime made of a function.

use std::fmt;
use std::sync::Arc;

use super::{
    BoxFuture, Description, Progress, RequestStream, ResponseStream, Runtime, RuntimeError, RuntimeStatus,
    answer_first, ready,
};
use crate::types::{CustomCall, CustomReply, InferenceRequest, InferenceResponse};

type Predict = dyn Fn(InferenceRequest, Arc<dyn Progress>) -> BoxFuture<'static, Result<InferenceResponse, RuntimeError>>
    + Send
    + Sync;
type PredictStream = dyn Fn(RequestStream) -> ResponseStream + Send + Sync;

/// A runtime that answers with a function, is always available, and begins predictions at once.
///
/// For what needs no evaluator or worker, and for tests.
pub struct FnRuntime {
    description: Description,
    parallelism: usize,
    predict: Box<Predict>,
    stream: Option<Box<PredictStream>>,
}

impl FnRuntime {
    /// Creates a runtime that answers one request at a time, and of a stream the first.
    pub fn new<F>(
        description: Description,
        predict: impl Fn(InferenceRequest, Arc<dyn Progress>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<InferenceResponse, RuntimeError>> + Send + 'static,
    {
        let predict =
            Box::new(move |request, progress| -> BoxFuture<'static, _> { Box::pin(predict(request, progress)) });
        Self { description, parallelism: 1, predict, stream: None }
    }

    /// Sets how many predictions run concurrently without waiting for each other.
    #[must_use]
    pub fn with_parallelism(self, parallelism: usize) -> Self {
        Self { parallelism, ..self }
    }

    /// Sets the function that answers streams.
    #[must_use]
    pub fn with_stream(self, stream: impl Fn(RequestStream) -> ResponseStream + Send + Sync + 'static) -> Self {
        Self { stream: Some(Box::new(stream)), ..self }
    }
}

impl fmt::Debug for FnRuntime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FnRuntime").field("description", &self.description).finish_non_exhaustive()
    }
}

impl Runtime for FnRuntime {
    fn description(&self) -> &Description {
        &self.description
    }

    fn status(&self) -> RuntimeStatus {
        RuntimeStatus::AVAILABLE
    }

    fn parallelism(&self) -> usize {
        self.parallelism
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), RuntimeError>> {
        ready(Ok(()))
    }

    fn predict(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
        progress.begin();
        (self.predict)(request, progress)
    }

    fn predict_stream(self: Arc<Self>, requests: RequestStream, progress: Arc<dyn Progress>) -> ResponseStream {
        match &self.stream {
            Some(stream) => stream(requests),
            None => answer_first(self, requests, progress),
        }
    }

    fn unload(self: Arc<Self>) -> BoxFuture<'static, ()> {
        drop(self);
        ready(())
    }

    fn call(
        &self,
        route: usize,
        _: CustomCall,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<CustomReply, RuntimeError>> {
        progress.begin();
        ready(Err(RuntimeError::no_route(route)))
    }
}
