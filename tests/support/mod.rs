//! Helpers that tests share: model folders, the running server, clients, and connections that misbehave.

mod command;
mod embedded;
mod folder;
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
pub(crate) use embedded::EmbeddedServer;
pub(crate) use folder::{BREAST_CANCER, Folder, IRIS, repository_path};
pub(crate) use http::{Answer, Client, Connection};
pub(crate) use server::{ServerBuilder, ServerExit, TestServer, announced_address};
pub(crate) use wait::{eventually, pause, wait_until};

use std::time::Duration;

use mlserver::runtimes::Description;
use mlserver::types::TensorRule;

/// The description of runtimes that tests bring along.
pub(crate) static TEST_RUNTIME: Description = Description {
    backend: "test",
    tensor_rule: TensorRule::Strict,
    reads_headers: true,
    answers_warmup: false,
    metadata: None,
    routes: Vec::new(),
    v1: None,
    steps: Vec::new(),
    required_steps: Vec::new(),
    has_remote_steps: false,
    drawing: None,
};

/// How long a test waits for anything before it gives up. Never waited for in a test that passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Reports that a test does not run, and why.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
pub(crate) fn skipped(why: &str) {
    eprintln!("SKIPPED: {why}");
}
