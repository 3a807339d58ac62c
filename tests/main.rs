//! Integration tests: a module per subcommand or protocol.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod bad_input;
mod binary;
mod config;
mod datatypes;
mod layers;
mod metrics;
mod readme;
mod rest;
mod start;
mod stream;
mod support;
mod trees;
