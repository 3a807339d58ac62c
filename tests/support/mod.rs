//! Helpers that tests share: model folders, the running server, clients, and connections that misbehave.

mod command;
pub(crate) mod damage;
mod doubles;
mod embedded;
#[path = "../../src/fixtures.rs"]
mod fixtures;
mod folder;
pub(crate) mod frames;
pub(crate) mod goldens;
pub(crate) mod grpc;
mod http;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
pub(crate) mod process_models;
pub(crate) mod python;
pub(crate) mod scripted;
mod server;
mod wait;
pub(crate) mod worker_models;

pub(crate) use command::{mlserver_command, run_mlserver};
pub(crate) use doubles::FnLoader;
pub(crate) use embedded::EmbeddedServer;
pub(crate) use fixtures::{deflate, gzip};
pub(crate) use folder::{BREAST_CANCER, Folder, IRIS, repository_path};
pub(crate) use http::{Answer, Client, Connection};
pub(crate) use mlserver::runtimes::FnRuntime;
pub(crate) use server::{ServerBuilder, ServerExit, TestServer, announced_address};
pub(crate) use wait::{eventually, pause, wait_until};

use std::time::Duration;

/// How long a test waits for anything before it gives up. Never waited for in a test that passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Reports that a test does not run, and why.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
pub(crate) fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}
