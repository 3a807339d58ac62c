//! Steps: requests to other models of the server, as a part of one request.
//!
//! A graph answers with its steps, and a transformer asks its predictor. A step takes the ordinary path of a request (queue, timeouts, batches, cache,
//! metrics), but shares the admission, the deadline, the priority and the trace of the request that it belongs to.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use tokio::time::Instant;

use super::{BoxFuture, RequestStream, ResponseStream, RuntimeError};
use crate::types::{ByteReservation, CustomReply, InferenceRequest, InferenceResponse, ModelMetadata};

/// The maximum number of requests of which each is a step of the one before: how deep graphs may be nested.
pub const MAX_STEP_DEPTH: usize = 16;

/// The most steps of one request, over all graphs and models that it leads to on this server.
pub const MAX_STEPS: usize = 10_000;

/// Names a model that a step asks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepModel {
    pub name: String,
    /// `None` for the default version at the time of each request.
    pub version: Option<String>,
}

impl StepModel {
    /// Names the default version of a model.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), version: None }
    }
}

impl fmt::Display for StepModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            None => formatter.write_str(&self.name),
            Some(version) => write!(formatter, "{}@{version}", self.name),
        }
    }
}

/// Sends the request of a step to another server, and waits for the answer until the deadline. Dropping the future cancels it. The
/// reservation grows as bytes arrive, and is returned with the answer.
pub type RemoteCall =
    Box<dyn FnOnce(InferenceRequest, Option<Instant>, ByteReservation) -> BoxFuture<'static, RemoteAnswer> + Send>;

/// The answer of another server, and the memory that it takes.
pub type RemoteAnswer = Result<(InferenceResponse, ByteReservation), RuntimeError>;

/// Answers the steps of one request. Dropping a future or a stream cancels the step.
///
/// The errors of steps keep the kinds, and so the statuses, that they would have as requests of their own.
pub trait Steps: fmt::Debug + Send + Sync + 'static {
    /// Answers a step. Its priority and trace are those of the request that it belongs to.
    fn infer(
        self: Arc<Self>,
        model: &StepModel,
        request: InferenceRequest,
    ) -> BoxFuture<'static, Result<InferenceResponse, RuntimeError>>;

    /// Answers a step with a model of another server: within the deadline, the trace and the memory of the request.
    fn infer_remote(
        self: Arc<Self>,
        step: String,
        request: InferenceRequest,
        call: RemoteCall,
    ) -> BoxFuture<'static, Result<InferenceResponse, RuntimeError>>;

    /// Answers a step with a stream of responses.
    fn infer_stream(self: Arc<Self>, model: StepModel, requests: RequestStream) -> ResponseStream;

    /// Answers a step whose body is a request of KServe's V1 protocol.
    fn predict_v1(
        self: Arc<Self>,
        model: StepModel,
        headers: HeaderMap,
        body: Bytes,
    ) -> BoxFuture<'static, Result<CustomReply, RuntimeError>>;

    /// Returns the HTTP status of the error of a step.
    fn status(&self, error: &RuntimeError) -> u16;

    /// Lets steps run on after the answer of their request. They hold its slot until they have ended.
    fn detach(&self);

    /// Returns whether the request has been answered or cancelled. It then has no more steps.
    fn has_ended(&self) -> bool;

    /// Returns when the client stops waiting, if there is a deadline.
    fn deadline(&self) -> Option<Instant>;

    /// Returns whether responses report how long their steps took.
    fn reports_timing(&self) -> bool;

    /// Checks that the request has not had more than [`MAX_STEPS`], and that its deadline has not passed. A graph that tolerates failures
    /// of its steps does not tolerate that: its answer would lack what there was no time for.
    ///
    /// # Errors
    ///
    /// Fails if the request has had more, or if the deadline has passed.
    fn check_limits(&self) -> Result<(), RuntimeError>;

    /// Returns an empty reservation of the budget of the request.
    fn reservation(&self) -> ByteReservation;
}

/// A step without which a graph cannot answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequiredStep {
    pub name: String,
    pub model: StepModel,
}

/// The models of the server.
pub trait ModelDirectory: fmt::Debug + Send + Sync + 'static {
    /// Returns the metadata of a model, or `None` if the server does not have it.
    fn metadata(&self, model: &StepModel) -> Option<ModelMetadata>;

    /// Returns why one of these steps cannot answer now, or `None` if all can.
    ///
    /// Each model is asked once, however many steps of graphs inside of graphs lead to it.
    fn unavailable(&self, steps: &[RequiredStep]) -> Option<String>;
}
