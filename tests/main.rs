//! Integration tests: a module per area, as `tests/README.md` lists them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod cli;
mod docs;
mod grpc;
mod image;
mod models;
mod operations;
mod python;
mod rest;
mod support;
