//! The client behind `mlserver infer`: many requests from a file, to a server or a model, and their answers in order.
//!
//! A [`InputSource`] reads the file, in pieces of as many rows as a request has ([`InputBatch`]). [`Run`] keeps several of them under way,
//! as many as [`Concurrency`] finds useful, and writes what comes back to an [`RunOutput`] in the order of the file. Between them,
//! [`exchange`] turns a piece into requests, sends them to the [`InferenceTarget`] again where that may help, and takes a request that
//! is refused apart until it has the rows that are to blame. Memory is bounded: whatever has been read and not been written
//! holds a part of [`MEMORY`].

mod backoff;
mod concurrency;
mod connection;
mod convert;
mod endpoint;
mod exchange;
mod failure;
mod grpc;
mod latency;
mod lines;
mod output;
mod pace;
mod request;
mod rest;
mod row;
mod run;
mod source;
mod stats;
mod table;

use std::fmt;

use futures_util::future::BoxFuture;

use crate::types::{InferenceRequest, InferenceResponse};

pub use backoff::Backoff;
pub use concurrency::Concurrency;
pub use endpoint::{Endpoint, EndpointError};
pub use failure::{FailureKind, RequestFailure};
pub use grpc::GrpcClient;
pub use latency::LatencyHistogram;
pub use lines::MAX_LINE;
pub use output::{OutputError, OutputState, OutputTarget, RunOutput};
pub use pace::RequestSpacing;
pub use rest::{RestClient, TransportOptions};
pub use run::{Run, RunError, RunOptions, RunOutcome};
pub use source::{InputError, InputSource, SourceFormat};
pub use stats::{RunStats, StatsSnapshot};

/// The bytes that rows may take which have been read and whose answers have not been written.
pub const MEMORY: usize = 32 << 20;

/// The longest answer to one request, in bytes.
pub const MAX_ANSWER: usize = 64 << 20;

/// What answers requests: a server, or a model in this process.
pub trait InferenceTarget: Send + Sync + 'static {
    /// Sends a request once.
    fn infer<'a>(&'a self, request: &'a InferenceRequest) -> BoxFuture<'a, Result<InferenceResponse, RequestFailure>>;

    /// Asks whether the model is there at all and we may use it, which the failure of one request does not tell.
    ///
    /// # Errors
    ///
    /// Fails when no request will be answered, however it looks.
    fn reachable(&self) -> BoxFuture<'_, Result<(), RequestFailure>>;
}

/// How much the user wants to hear.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verbosity {
    /// What went wrong.
    #[default]
    Normal,
    /// Each request.
    Verbose,
    /// What is sent and received, too.
    Extra,
}

/// Hears what happens, from any thread.
pub trait Observer: Send + Sync + 'static {
    /// Tells how much is worth saying.
    fn verbosity(&self) -> Verbosity;

    /// Says something that does not end the run.
    fn warn(&self, message: fmt::Arguments<'_>);

    /// Says something that only who asked for it wants to hear.
    fn trace(&self, message: fmt::Arguments<'_>);
}
