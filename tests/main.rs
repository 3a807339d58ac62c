//! Integration tests, with a module per area; see `tests/README.md`.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod cli;
mod docs;
mod grpc;
#[cfg(feature = "image")]
mod image;
#[cfg(feature = "kafka")]
mod kafka;
mod models;
mod operations;
mod python;
mod rest;
mod security;
mod support;
