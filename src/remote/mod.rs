//! Models of other servers. A [`RestClient`] or a [`GrpcClient`] sends the requests of `mlserver infer`, an [`OpenAiClient`] those of its
//! batch files. A [`RemoteModel`] answers a step of an inference graph.

mod backoff;
mod endpoint;
mod failure;
mod grpc;
mod model;
mod openai;
mod printable;
mod rest;
mod status;

use std::fmt;

use futures_util::future::BoxFuture;

use crate::types::{InferenceRequest, InferenceResponse};

pub use backoff::RetryPolicy;
pub use endpoint::{Endpoint, EndpointError};
pub use failure::{FailureKind, RequestFailure};
pub use grpc::GrpcClient;
pub use model::{REMOTE_TIMEOUT, RemoteAddress, RemoteAddressError, RemoteError, RemoteModel, RemoteServers};
pub use openai::{OpenAiAnswer, OpenAiClient, OpenAiRequest};
pub use printable::{server_bytes, server_text};
pub use rest::{RestClient, TransportOptions};
pub use status::ResponseStatus;

/// The longest answer to one request, in bytes.
pub const MAX_ANSWER: usize = 64 << 20;

/// Answers requests: a server, or a model in this process.
pub trait InferenceTarget: Send + Sync + 'static {
    /// Sends a request once.
    fn infer<'a>(&'a self, request: &'a InferenceRequest) -> BoxFuture<'a, Result<InferenceResponse, RequestFailure>>;

    /// Checks that the model exists and may be used, which the failure of a single request does not show.
    ///
    /// # Errors
    ///
    /// Fails if no request would be answered, regardless of its content.
    fn check_available(&self) -> BoxFuture<'_, Result<(), RequestFailure>>;
}

/// How much to report to the user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// Failures only.
    #[default]
    Normal,
    /// Each request.
    Verbose,
    /// Each request, and what is sent and received.
    Extra,
}

/// Receives events of a run, from any thread.
pub trait Observer: Send + Sync + 'static {
    /// Returns how much to report.
    fn verbosity(&self) -> Verbosity;

    /// Reports a problem that does not end the run.
    fn warn(&self, message: fmt::Arguments<'_>);

    /// Reports a detail that is only of interest if [`Observer::verbosity`] asks for it.
    fn trace(&self, message: fmt::Arguments<'_>);
}
