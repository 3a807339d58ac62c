//! Runtimes that evaluate models by themselves.

use std::fmt;
use std::sync::Arc;

use super::{
    BoxFuture, Description, Progress, RequestStream, ResponseStream, Runtime, RuntimeError, RuntimeStatus,
    answer_first, ready,
};
use crate::types::{CustomCall, CustomReply, InferenceRequest, InferenceResponse};

static NATIVE: Description = Description::native();

/// A runtime that is always available and does not stream, as those of native evaluators.
///
/// Only for runtimes that evaluate models. One that wraps another one implements [`Runtime`], which has no defaults.
pub trait Predictor: fmt::Debug + Send + Sync + 'static {
    /// See [`Runtime::description`].
    fn description(&self) -> &Description {
        &NATIVE
    }

    /// See [`Runtime::parallelism`].
    fn parallelism(&self) -> usize {
        1
    }

    /// See [`Runtime::warm_up`].
    fn warm_up(&self) -> BoxFuture<'_, Result<(), RuntimeError>> {
        ready(Ok(()))
    }

    /// Returns the size of the tensors in the response to a request, in bytes, before it is computed. 0 if it is not known, or if
    /// the request will be rejected.
    ///
    /// Takes time in proportion to the number of inputs, not of rows. Texts are estimated.
    fn response_bytes(&self, _request: &InferenceRequest) -> usize {
        0
    }

    /// See [`Runtime::call`].
    fn call(&self, route: usize, _call: CustomCall) -> BoxFuture<'_, Result<CustomReply, RuntimeError>> {
        ready(Err(RuntimeError::no_route(route)))
    }

    /// Answers one request.
    fn predict(&self, request: InferenceRequest) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>>;

    /// Answers one request, reports when its prediction begins, and reserves the memory of the response. By default it begins at
    /// once.
    fn predict_with(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
        progress.begin();
        match progress.reserve(self.response_bytes(&request)) {
            Ok(()) => self.predict(request),
            Err(error) => ready(Err(error)),
        }
    }

    /// See [`Runtime::predict_stream`].
    fn predict_stream(self: Arc<Self>, requests: RequestStream, progress: Arc<dyn Progress>) -> ResponseStream
    where
        Self: Sized,
    {
        answer_first(self, requests, progress)
    }
}

impl<P: Predictor> Runtime for P {
    fn description(&self) -> &Description {
        Predictor::description(self)
    }

    fn status(&self) -> RuntimeStatus {
        RuntimeStatus::AVAILABLE
    }

    fn parallelism(&self) -> usize {
        Predictor::parallelism(self)
    }

    fn warm_up(&self) -> BoxFuture<'_, Result<(), RuntimeError>> {
        Predictor::warm_up(self)
    }

    fn predict(
        &self,
        request: InferenceRequest,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<InferenceResponse, RuntimeError>> {
        Predictor::predict_with(self, request, progress)
    }

    fn predict_stream(self: Arc<Self>, requests: RequestStream, progress: Arc<dyn Progress>) -> ResponseStream {
        Predictor::predict_stream(self, requests, progress)
    }

    fn unload(self: Arc<Self>) -> BoxFuture<'static, ()> {
        drop(self);
        ready(())
    }

    fn call(
        &self,
        route: usize,
        call: CustomCall,
        progress: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<CustomReply, RuntimeError>> {
        progress.begin();
        Predictor::call(self, route, call)
    }
}
