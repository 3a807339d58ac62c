//! `mlserver infer` sends the requests of a file or a topic to a server or a model, and writes the answers in order.
//!
//! An [`InputSource`] reads the file in batches of as many rows as a request has. [`Run`] keeps several batches in flight, as many
//! as [`Concurrency`] finds useful, and writes the answers to a [`RunOutput`] in the order of the file. Between them, [`exchange`]
//! turns a batch into requests, sends them to the [`InferenceTarget`](crate::remote::InferenceTarget), retries where that may help, and splits a rejected request
//! until it has found the rows that cause the failure. The lines of OpenAI's batch files (`openai_batch`) are sent as they are. Memory is bounded: rows that have been read and not yet written hold a part
//! of [`MEMORY`]. Requests are merged and responses split by `types::merge`, as in the server. Tables (`table`) become columns on the
//! threads that send them; the reader only splits rows. The output's columns (`convert`) are created from its lines at the end.

mod comparison;
mod concurrency;
mod convert;
mod exchange;
mod fingerprint;
#[cfg(feature = "kafka")]
mod kafka;
mod latency;
mod lines;
mod open_topic;
mod openai_batch;
mod output;
mod pace;
mod ranged;
mod request;
mod row;
mod run;
mod source;
mod stats;
mod table;
mod topic;

pub use comparison::{ComparedServer, ComparedServers, Tolerance};
pub use concurrency::Concurrency;
pub use exchange::RowTarget;
pub use latency::LatencyHistogram;
pub use lines::MAX_LINE;
pub use openai_batch::is_openai_batch;
pub use output::{AnsweredIds, OutputError, OutputState, OutputTarget, RunOutput, has_columns, output_files};
pub use pace::RequestSpacing;
pub use ranged::RangedInput;
pub use run::{Run, RunError, RunOptions, RunOutcome};
pub use source::{InputError, InputOrigin, InputSource, SourceFormat};
pub use stats::{RunStats, StatsSnapshot};
pub use topic::{PartitionOffsets, TopicAddress, TopicError, TopicOptions};

/// The memory limit for rows that have been read and whose answers have not been written, in bytes.
pub const MEMORY: usize = 32 << 20;
