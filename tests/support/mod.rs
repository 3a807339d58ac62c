//! What tests share: model folders, the running server, a client, and connections that misbehave.

mod embedded;
mod folder;
pub(crate) mod grpc;
mod http;
pub(crate) mod scripted;
mod server;
pub(crate) mod where_models;

pub(crate) use embedded::Embedded;
pub(crate) use folder::{BREAST_CANCER, Folder, IRIS, repository_path};
pub(crate) use http::{Answer, Client, Connection};
pub(crate) use server::{Ended, Starting, TestServer};

use std::time::Duration;

use mlserver::runtimes::Description;

/// The description of runtimes that tests bring along.
pub(crate) static TEST_RUNTIME: Description =
    Description { backend: "test", reads_headers: true, answers_warmup: false, metadata: None, routes: Vec::new() };

/// How long a test waits for anything before it gives up. Never waited for in a test that passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
