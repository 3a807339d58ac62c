//! A runtime made of closures: for what needs no evaluator or worker, and for tests.

use std::fmt;
use std::sync::Arc;

use futures_util::StreamExt;

use super::{
    Asked, BoxFuture, CallReply, Description, Progress, RequestStream, ResponseStream, Runtime, RuntimeError,
    RuntimeStatus, ready,
};
use crate::types::{CustomCall, InferenceRequest, InferenceResponse};

type Predict = dyn Fn(InferenceRequest, Arc<dyn Progress>) -> BoxFuture<'static, Result<InferenceResponse, RuntimeError>>
    + Send
    + Sync;

type PredictStream = dyn Fn(RequestStream, Arc<dyn Progress>) -> ResponseStream + Send + Sync;

/// Answers requests with a closure. By default, it is always available, reads headers, and answers each request of a stream.
pub struct FnRuntime {
    predict: Box<Predict>,
    description: Description,
    parallelism: usize,
    status: Box<dyn Fn() -> RuntimeStatus + Send + Sync>,
    stream: Option<Box<PredictStream>>,
    unload: Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
}

impl FnRuntime {
    /// Answers a request with a future. Its prediction begins at once.
    pub fn new<F>(predict: impl Fn(InferenceRequest) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<InferenceResponse, RuntimeError>> + Send + 'static,
    {
        Self::with_progress(move |request, progress| {
            progress.begin();
            predict(request)
        })
    }

    /// Answers a request with a future that reports its progress itself.
    pub fn with_progress<F>(predict: impl Fn(InferenceRequest, Arc<dyn Progress>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<InferenceResponse, RuntimeError>> + Send + 'static,
    {
        Self {
            predict: Box::new(move |request, progress| Box::pin(predict(request, progress))),
            description: Description { backend: "test", reads_headers: true, ..Description::native() },
            parallelism: 1,
            status: Box::new(|| RuntimeStatus::AVAILABLE),
            stream: None,
            unload: Box::new(|| Box::pin(std::future::ready(()))),
        }
    }

    /// Sets the description.
    #[must_use]
    pub fn description(self, description: Description) -> Self {
        Self { description, ..self }
    }

    /// Sets how many predictions run concurrently without waiting for each other.
    #[must_use]
    pub fn parallelism(self, parallelism: usize) -> Self {
        Self { parallelism, ..self }
    }

    /// Sets what tells the status.
    #[must_use]
    pub fn status(self, status: impl Fn() -> RuntimeStatus + Send + Sync + 'static) -> Self {
        Self { status: Box::new(status), ..self }
    }

    /// Sets what answers streams.
    #[must_use]
    pub fn stream(
        self,
        stream: impl Fn(RequestStream, Arc<dyn Progress>) -> ResponseStream + Send + Sync + 'static,
    ) -> Self {
        Self { stream: Some(Box::new(stream)), ..self }
    }

    /// Sets what unloads the model.
    #[must_use]
    pub fn unload<F>(self, unload: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { unload: Box::new(move || Box::pin(unload())), ..self }
    }
}

impl fmt::Debug for FnRuntime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FnRuntime")
    }
}

impl Runtime for FnRuntime {
    fn description(&self) -> &Description {
        &self.description
    }

    fn status(&self) -> RuntimeStatus {
        (self.status)()
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
        (self.predict)(request, progress)
    }

    fn answers_at_once(&self, _: Asked<'_>) -> bool {
        false
    }

    fn unload(self: Arc<Self>) -> BoxFuture<'static, ()> {
        (self.unload)()
    }

    fn predict_stream(self: Arc<Self>, requests: RequestStream, progress: Arc<dyn Progress>) -> ResponseStream {
        match &self.stream {
            Some(stream) => stream(requests, progress),
            None => Box::pin(requests.then(move |request| (self.predict)(request, Arc::clone(&progress)))),
        }
    }

    fn call(
        &self,
        route: usize,
        _: CustomCall,
        _: Arc<dyn Progress>,
    ) -> BoxFuture<'_, Result<CallReply, RuntimeError>> {
        ready(Err(RuntimeError::no_route(route)))
    }
}
