//! The model that a request has found.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::time::Instant;

use super::InferenceError;
use crate::registry::{ModelState, RegisteredModel};
use crate::runtimes::Runtime;
use crate::telemetry::traces::Traces;
use crate::types::InferenceResponse;

/// The model that a request has found, with the request's own constraints.
#[derive(Debug, Clone)]
pub struct ModelTarget {
    pub model: Arc<RegisteredModel>,
    /// Whether the request named the version instead of taking the default.
    pub(super) with_version: bool,
    /// When the client stops waiting. `None` if it sets no deadline.
    pub(super) deadline: Option<Instant>,
    pub(super) traces: Traces,
    /// How many requests this one is a step of.
    pub(super) depth: usize,
    /// Counts the steps of the request that this one is a step of.
    pub(super) steps: Option<Arc<AtomicUsize>>,
}

impl ModelTarget {
    /// Sets the time when the client stops waiting.
    #[must_use]
    pub fn with_deadline(self, deadline: Option<Instant>) -> Self {
        Self { deadline, ..self }
    }

    /// Returns the deadline for the response, and the error if it passes.
    pub(super) fn deadline(&self, started: Instant) -> Option<(Instant, InferenceError)> {
        let limit = self.model.timeouts.request;
        let by_setting = limit.map(|limit| (started + limit, InferenceError::RequestTimeout { limit }));
        let by_client = self.deadline.map(|deadline| (deadline, InferenceError::Deadline));
        by_setting.into_iter().chain(by_client).min_by_key(|(deadline, _)| *deadline)
    }

    /// Returns the deadline of work that begins now.
    pub(super) fn deadline_now(&self) -> Option<Instant> {
        self.deadline(Instant::now()).map(|(deadline, _)| deadline)
    }

    /// Records how long a client waited for the first piece of a response that is sent while it is made.
    pub fn record_first_chunk(&self, waited: Duration) {
        self.model.metrics(self.with_version).record_first_chunk(waited);
    }

    pub(super) fn runtime(&self) -> Result<&Arc<dyn Runtime>, InferenceError> {
        let Self { model, with_version, .. } = self;
        match &model.state {
            ModelState::Ready(runtime) => Ok(runtime),
            ModelState::Loading | ModelState::Failed { .. } => {
                let version = model.version.clone().filter(|_| *with_version);
                Err(InferenceError::NotReady { name: model.name.clone(), version })
            }
        }
    }

    /// Sets the fields of a response that the runtime leaves to the server.
    pub(super) fn complete(&self, id: String, response: &mut InferenceResponse) {
        if response.model_name.is_empty() {
            response.model_name.clone_from(&self.model.name);
        }
        if self.model.version.is_some() || response.model_version.is_none() {
            response.model_version.clone_from(&self.model.version);
        }
        response.id = id;
    }
}
