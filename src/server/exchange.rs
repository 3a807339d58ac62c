//! What surrounds a prediction, whatever the protocol: the deadline and the priority of the client, long work on the compute pool,
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

    /// Returns the exchange of a later message of a stream, which has no deadline or priority of its own.
    pub(super) const fn later(inference: &'a Inference, compute: &'a ComputePool, trace: Option<TraceContext>) -> Self {
        Self { inference, compute, deadline: None, priority: None, trace }
    }

    /// Finds the model that the client asks for.
    ///
    /// # Errors
    ///
    /// Fails if it does not exist, or if the server is stopping.
    pub(super) fn target(&self, name: &str, version: Option<&str>) -> Result<ModelTarget, InferenceError> {
        Ok(self.inference.target(name, version)?.with_deadline(self.deadline))
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
        self.compute.run_sized(bytes, self.priority.unwrap_or_default(), parse)
    }

    /// Sets what the client's headers and the server's span say about a request.
    pub(super) fn prepare(&mut self, request: &mut InferenceRequest) {
        let priority = self.priority.or_else(|| Priority::of(&request.parameters)).unwrap_or_default();
        self.priority = Some(priority);
        (request.priority, request.trace) = (priority, self.trace);
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
        let encoded = self.compute.run_sized(bytes, self.priority.unwrap_or_default(), encode);
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
