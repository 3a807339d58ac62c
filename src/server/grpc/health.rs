//! `grpc.health.v1.Health`: the server under the empty name and the names of its services, each model under its own name.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use tonic::Code;
use tonic_health::pb::HealthCheckResponse;
use tonic_health::pb::health_check_response::ServingStatus;

use super::message::MessageLimit;
use super::method::{INFERENCE, REPOSITORY};
use super::reply::{self, Reply};
use super::status::Status;
use super::stream::MessageSource;
use super::{App, metadata};

/// Answers `Check`.
pub(super) fn check(app: &App, service: &str, limit: MessageLimit) -> Result<Reply, Status> {
    let status = status_of(app, service)
        .ok_or_else(|| Status::new(Code::NotFound, format!("no model or service is named `{service}`")))?;
    Reply::new(&HealthCheckResponse { status: status.into() }, limit)
}

/// Returns the health of a service or model. `None` if no service or model has the name.
fn status_of(app: &App, service: &str) -> Option<ServingStatus> {
    let ready = match service {
        "" | INFERENCE | REPOSITORY => metadata::is_ready(app),
        model => app.inference.registry().find(model, None).ok()?.state.is_ready() && !app.inference.is_shutting_down(),
    };
    Some(if ready { ServingStatus::Serving } else { ServingStatus::NotServing })
}

/// The responses of `Watch`: the current health, and the new one after each change.
pub(super) struct Watch {
    app: Arc<App>,
    service: String,
    changes: watch::Receiver<()>,
    last: Option<ServingStatus>,
    limit: MessageLimit,
}

impl Watch {
    pub(super) fn new(app: Arc<App>, service: String, limit: MessageLimit) -> Self {
        let changes = app.inference.registry().changes();
        Self { app, service, changes, last: None, limit }
    }
}

impl MessageSource for Watch {
    async fn next(&mut self) -> Option<Result<Vec<Bytes>, Status>> {
        loop {
            // Mark before reading the status, so that no later change is missed.
            self.changes.mark_unchanged();
            let stopping = self.app.inference.is_stopping();
            let now = status_of(&self.app, &self.service).unwrap_or(ServingStatus::ServiceUnknown);
            if self.last != Some(now) {
                self.last = Some(now);
                let message = HealthCheckResponse { status: now.into() };
                return Some(reply::encode(&message, self.limit).map(|bytes| vec![bytes]));
            }
            // The watcher has received the last status; waiting for another change would delay shutdown.
            if stopping || self.changes.changed().await.is_err() {
                return Some(Err(Status::new(Code::Unavailable, "the server is shutting down; try another one")));
            }
        }
    }
}
