//! Integration tests: a module per subcommand or protocol.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod admin;
mod bad_input;
mod bad_wire;
mod batching;
mod binary;
mod cache;
mod config;
mod custom_repository;
mod datatypes;
mod dockerfile;
mod doctor;
mod environments;
mod generated;
mod grpc;
mod handlers;
mod image;
mod infer;
mod init;
mod layers;
mod load;
mod memory;
mod metrics;
mod mlflow;
mod openapi;
mod pools;
mod pressure;
mod priority;
mod readme;
mod repository;
mod rest;
mod sklearn;
mod sklearn_serving;
mod start;
mod stream;
mod support;
#[cfg(feature = "otel")]
mod traces;
mod trees;
mod validation;
mod worker_faults;
mod workers;
