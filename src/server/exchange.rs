//! What surrounds a prediction, the same for every protocol: the deadline and the priority of the client, long work on the compute pool,
//! and the trace.
//!
//! A protocol only says how a request is parsed and how a response is encoded.

use http::HeaderMap;
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::priority::{self, PriorityError};
use crate::compute::{ComputeError, ComputePool};
use crate::inference::{Inference, InferenceError, ModelTarget};
use crate::telemetry::traces::RequestPhase;
use crate::types::{InferenceRequest, Priority, TraceContext};

/// The exchange of one request for its response.
#[derive(Debug)]
pub(super) struct Exchange<'a> {
    inference: &'a Inference,
    compute: &'a ComputePool,
    deadline: Option<Instant>,
    /// From the headers, and then from the parameters of the request.
    priority: Option<Priority>,
    trace: Option<TraceContext>,
}

impl<'a> Exchange<'a> {
    /// Begins an exchange with a client that stops waiting at `deadline`. Its span is `trace`, if it is traced.
    ///
    /// # Errors
    ///
    /// Fails if the priority in the headers is not an integer.
    pub(super) fn new(
        inference: &'a Inference,
        compute: &'a ComputePool,
        headers: &HeaderMap,
        deadline: Option<Instant>,
        trace: Option<TraceContext>,
    ) -> Result<Self, PriorityError> {
        Ok(Self { inference, compute, deadline, priority: priority::read(headers)?, trace })
    }

    /// Returns the exchange of a later message of a stream, whose deadline is that of the stream.
    pub(super) const fn later(
        inference: &'a Inference,
        compute: &'a ComputePool,
        priority: Priority,
        trace: Option<TraceContext>,
    ) -> Self {
        Self { inference, compute, deadline: None, priority: Some(priority), trace }
    }

    /// Finds the model that the client asks for.
    ///
    /// # Errors
    ///
    /// Fails if it does not exist, or if the server is stopping.
    pub(super) fn target(&self, name: &str, version: Option<&str>) -> Result<ModelTarget, InferenceError> {
        Ok(self.inference.target(name, version)?.with_deadline(self.deadline))
    }

    /// Finds the model of a request that counts as in flight already, so that a server that stops still answers it.
    ///
    /// # Errors
    ///
    /// Fails if it does not exist.
    #[cfg(feature = "kafka")]
    pub(super) fn target_in_flight(&self, name: &str, version: Option<&str>) -> Result<ModelTarget, InferenceError> {
        Ok(self.inference.target_in_flight(name, version)?.with_deadline(self.deadline))
    }

    /// Waits for what the client sends, until its deadline.
    ///
    /// # Errors
    ///
    /// Fails if the deadline passes.
    pub(super) async fn receive<F: Future>(&self, receive: impl FnOnce() -> F) -> Result<F::Output, InferenceError> {
        match self.deadline {
            None => Ok(receive().await),
            // Boxed, so that the futures of requests without a deadline stay small.
            Some(deadline) => timeout_at(deadline, Box::pin(receive())).await.map_err(|_| InferenceError::Deadline),
        }
    }

    /// Parses about `bytes` bytes: on the compute pool if they are many, and otherwise at once.
    ///
    /// # Errors
    ///
    /// Fails if the pool cannot do the work.
    pub(super) fn read<T: Send + 'static>(
        &self,
        bytes: usize,
        parse: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, ComputeError>> + Send {
        self.compute.run_sized(bytes, self.priority(), parse)
    }

    /// Sets what the client's headers and the server's span say about a request.
    pub(super) fn prepare(&mut self, request: &mut InferenceRequest) {
        let priority = self.priority.or_else(|| Priority::of(&request.parameters)).unwrap_or_default();
        self.priority = Some(priority);
        (request.priority, request.trace) = (priority, self.trace);
    }

    /// Returns the priority of the request.
    pub(super) fn priority(&self) -> Priority {
        self.priority.unwrap_or_default()
    }

    /// Encodes a response of about `bytes` bytes: on the compute pool if they are many, and otherwise at once. The trace shows how long
    /// the first one took.
    ///
    /// # Errors
    ///
    /// Fails if the pool cannot do the work.
    pub(super) fn write<T: Send + 'static>(
        &mut self,
        bytes: usize,
        encode: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, ComputeError>> + Send {
        let trace = self.trace.take();
        let since = trace.map(|_| Instant::now());
        let encoded = self.compute.run_sized(bytes, self.priority(), encode);
        async move {
            let encoded = encoded.await?;
            if let Some(since) = since {
                let phase = RequestPhase { name: "encode", since, until: Instant::now(), batch: None };
                self.inference.traces().record_phase(trace, phase);
            }
            Ok(encoded)
        }
    }
}

/// Returns a random id, without the detour of `to_string` through the formatter.
pub(super) fn new_id() -> String {
    Uuid::new_v4().hyphenated().encode_lower(&mut Uuid::encode_buffer()).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::LONG_WORK;
    use crate::inference::Admission;
    use crate::registry::{FnLoader, Registry};
    use crate::settings::ModelSettings;
    use crate::telemetry::inference::InferenceMetrics;
    use crate::telemetry::metrics::Registry as MetricsRegistry;
    use crate::types::RequestErrorKind;
    use http::HeaderValue;
    use serde_json::{Map, Value};
    use std::num::NonZeroUsize;
    use std::thread;
    use std::time::Duration;

    /// Returns the path to one model, `m`, which never answers.
    async fn inference() -> Inference {
        let metrics = InferenceMetrics::register(&mut MetricsRegistry::default());
        let registry = Registry::new(FnLoader::silent(), metrics);
        registry.load(ModelSettings::new("m", "tests.Model")).await.unwrap();
        Inference::new(registry, NonZeroUsize::MIN)
    }

    fn priority(number: Option<&'static str>) -> HeaderMap {
        number.map(|text| ("request-priority".parse().unwrap(), HeaderValue::from_static(text))).into_iter().collect()
    }

    #[tokio::test]
    async fn exchange_takes_the_priority_of_headers_before_that_of_parameters() {
        let (inference, compute) = (inference().await, ComputePool::for_this_machine());
        let given = |header: Option<&'static str>, parameter: Option<u64>| {
            let parameters: Map<String, Value> =
                parameter.map(|number| ("priority".to_owned(), number.into())).into_iter().collect();
            let mut request = InferenceRequest { parameters: parameters.into(), ..InferenceRequest::default() };
            Exchange::new(&inference, &compute, &priority(header), None, None).unwrap().prepare(&mut request);
            request.priority
        };
        assert_eq!(given(None, None), Priority::default());
        assert_eq!(given(None, Some(2)), Priority::new(2));
        assert_eq!(given(Some("1"), Some(2)), Priority::new(1));
        let refused = Exchange::new(&inference, &compute, &priority(Some("high")), None, None).unwrap_err();
        assert_eq!(refused.found, "high");
    }

    #[tokio::test(start_paused = true)]
    async fn exchange_ends_at_the_deadline_of_its_client() {
        let (inference, compute) = (inference().await, ComputePool::for_this_machine());
        let deadline = Instant::now() + Duration::from_secs(2);
        let exchange = Exchange::new(&inference, &compute, &priority(None), Some(deadline), None).unwrap();
        assert_eq!(exchange.receive(|| std::future::ready(1)).await.unwrap(), 1);
        let error = exchange.receive(std::future::pending::<()>).await.unwrap_err();
        assert!(error.is_deadline() && Instant::now() >= deadline, "{error}");

        let deadline = Instant::now() + Duration::from_secs(2);
        let exchange = Exchange::new(&inference, &compute, &priority(None), Some(deadline), None).unwrap();
        let target = exchange.target("m", None).unwrap();
        let error = inference.infer(&target, InferenceRequest::default(), &mut Admission::new()).await.unwrap_err();
        assert!(error.is_deadline() && Instant::now() >= deadline, "{error}");
        assert_eq!(exchange.target("other", None).unwrap_err().kind(), RequestErrorKind::NotFound);
    }

    #[tokio::test]
    async fn request_that_is_in_flight_already_finds_its_model_although_the_server_stops() {
        let inference = inference().await;
        inference.stop();
        assert_eq!(inference.target("m", None).unwrap_err().kind(), RequestErrorKind::Stopping);
        assert_eq!(inference.target_in_flight("m", None).unwrap().model.name, "m");
        assert_eq!(inference.target_in_flight("other", None).unwrap_err().kind(), RequestErrorKind::NotFound);
    }

    #[tokio::test]
    async fn exchange_does_long_work_on_the_pool() {
        let (inference, compute) = (inference().await, ComputePool::for_this_machine());
        let mut exchange = Exchange::new(&inference, &compute, &priority(None), None, None).unwrap();
        let here = thread::current().id();
        let is_here = move || thread::current().id() == here;
        assert!(exchange.read(LONG_WORK - 1, is_here).await.unwrap());
        assert!(!exchange.read(LONG_WORK, is_here).await.unwrap());
        assert!(exchange.write(LONG_WORK - 1, is_here).await.unwrap());
        assert!(!exchange.write(LONG_WORK, is_here).await.unwrap());
        let panics = || -> u8 { unreachable!("it panics") };
        let error = exchange.read(LONG_WORK, panics).await.unwrap_err();
        assert!(!error.is_overload(), "{error}");
    }
}
