//! Running the server: startup and shutdown, loading, overload, memory, caches, batches, metrics and traces.

mod admin;
mod batching;
mod byte_budget;
mod cache;
mod clock;
mod connections;
mod load;
mod logging;
mod memory;
mod metrics;
mod panics;
mod pressure;
mod priority;
mod repository;
mod repository_access;
mod signals;
mod start;
mod start_arguments;
mod start_unconfigured;
mod streams;
#[cfg(feature = "otel")]
mod traces;
