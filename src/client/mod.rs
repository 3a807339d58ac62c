//! The client of other servers. `mlserver infer` sends the requests of a file or a topic to a server or a model, and writes the
//! answers in order. A [`RemoteModel`] answers a step of an inference graph.
//!
//! An [`InputSource`] reads the file in batches of as many rows as a request has. [`Run`] keeps several batches in flight, as many
//! as [`Concurrency`] finds useful, and writes the answers to a [`RunOutput`] in the order of the file. Between them, [`exchange`]
//! turns a batch into requests, sends them to the [`InferenceTarget`], retries where that may help, and splits a rejected request
//! until it has found the rows that cause the failure. Memory is bounded: rows that have been read and not yet written hold a part
//! of [`MEMORY`].

mod backoff;
mod comparison;
mod concurrency;
mod convert;
mod endpoint;
mod exchange;
mod failure;
mod grpc;
#[cfg(feature = "kafka")]
mod kafka;
mod latency;
mod lines;
mod output;
mod pace;
mod printable;
mod remote;
mod request;
mod rest;
mod row;
mod run;
mod source;
mod stats;
mod status;
mod table;
mod topic;

use std::fmt;

use futures_util::future::BoxFuture;

use crate::types::{InferenceRequest, InferenceResponse};

pub use backoff::RetryPolicy;
pub use comparison::{ComparedServer, ComparedServers, Tolerance};
pub use concurrency::Concurrency;
pub use endpoint::{Endpoint, EndpointError};
pub use failure::{FailureKind, RequestFailure};
pub use grpc::GrpcClient;
pub use latency::LatencyHistogram;
pub use lines::MAX_LINE;
pub use output::{AnsweredIds, OutputError, OutputState, OutputTarget, RunOutput, output_files};
pub use pace::RequestSpacing;
pub use remote::{REMOTE_TIMEOUT, RemoteAddress, RemoteAddressError, RemoteError, RemoteModel, RemoteServers};
pub use rest::{RestClient, TransportOptions};
pub use run::{Run, RunError, RunOptions, RunOutcome};
pub use source::{InputError, InputOrigin, InputSource, SourceFormat};
pub use stats::{RunStats, StatsSnapshot};
pub use status::ResponseStatus;
pub use topic::{PartitionOffsets, TopicAddress, TopicError, TopicOptions};

/// The memory limit for rows that have been read and whose answers have not been written, in bytes.
pub const MEMORY: usize = 32 << 20;

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
