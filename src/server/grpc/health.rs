//! `grpc.health.v1.Health`: the server under the empty name and the names of its services, each model under its own name.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;
use tonic_health::pb::HealthCheckResponse;
use tonic_health::pb::health_check_response::ServingStatus;

use super::message::MessageLimit;
use super::method::{INFERENCE, REPOSITORY};
use super::reply::{self, Reply};
use super::status::Status;
use super::stream::MessageSource;
use super::{App, PacedRequestBody};
use crate::registry::Registry;
use crate::server::TooManyWatches;
use crate::shutdown::spawn_supervised;

/// Answers `Check`.
pub(super) async fn check(app: &App, service: &str, limit: MessageLimit) -> Result<Reply, Status> {
    let mut status = status_of(app, service)
        .ok_or_else(|| Status::new(Code::NotFound, format!("no model or service is named `{service}`")))?;
    let is_ready = match service {
        "" | INFERENCE | REPOSITORY => app.inference.is_ready_now().await,
        name => match app.inference.registry().find(name, None) {
            Ok(model) => app.inference.is_model_ready_now(&model).await,
            Err(_) => false,
        },
    };
    if !is_ready {
        status = ServingStatus::NotServing;
    }
    Reply::new(&HealthCheckResponse { status: status.into() }, limit)
}

/// Returns the health of a service or model. `None` if no service or model has the name.
fn status_of(app: &App, service: &str) -> Option<ServingStatus> {
    let ready = match service {
        "" | INFERENCE | REPOSITORY => app.inference.is_ready(),
        model => app.inference.is_model_ready(&*app.inference.registry().find(model, None).ok()?),
    };
    Some(if ready { ServingStatus::Serving } else { ServingStatus::NotServing })
}

/// How often the health of models is checked while there are watchers.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Announces changes of health that are not changes of the registry: workers that die and return, and models that cannot be
/// brought back into memory.
#[derive(Debug)]
pub(super) struct HealthMonitor {
    _task: AbortOnDropHandle<()>,
}

impl HealthMonitor {
    fn start(registry: Registry) -> Self {
        Self { _task: AbortOnDropHandle::new(spawn_supervised("health monitor", monitor(registry))) }
    }
}

async fn monitor(registry: Registry) {
    let ready = || registry.models().iter().map(|model| model.state.is_ready()).collect::<Vec<_>>();
    let mut last = Vec::new();
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        if registry.has_watchers() {
            let now = ready();
            if now != last {
                last = now;
                registry.announce_change();
            }
        }
    }
}

/// The most watches of the server. Beyond them, the oldest one of the address with the most ends, so that nobody can keep others from
/// watching.
const MAX_WATCHES: usize = 1024;

/// What ends the watches that are open, and the addresses of their clients, by their age.
#[derive(Debug, Default)]
pub(super) struct Watches(Arc<Mutex<OpenWatches>>);

#[derive(Debug, Default)]
struct OpenWatches {
    ended: BTreeMap<u64, (Arc<Notify>, Option<IpAddr>)>,
    opened: u64,
}

/// A watch that counts against the limits until it is dropped.
pub(super) struct OpenWatch {
    watches: Arc<Mutex<OpenWatches>>,
    number: u64,
    ended: Arc<Notify>,
}

impl Watches {
    /// Adds a watch, and ends one if there are too many.
    ///
    /// # Errors
    ///
    /// Fails if the connection has too many.
    pub(super) fn add(&self, body: &impl PacedRequestBody) -> Result<OpenWatch, TooManyWatches> {
        let ended = Arc::new(Notify::new());
        body.add_watch(&ended)?;
        let mut open = self.0.lock();
        if open.ended.len() >= MAX_WATCHES {
            open.end_one();
        }
        let number = open.opened;
        open.opened += 1;
        let address = body.peer().map(|peer| peer.ip());
        open.ended.insert(number, (Arc::clone(&ended), address));
        Ok(OpenWatch { watches: Arc::clone(&self.0), number, ended })
    }
}

impl OpenWatches {
    /// Ends the oldest watch of the address that has the most.
    fn end_one(&mut self) {
        let mut counts = HashMap::new();
        for (_, address) in self.ended.values() {
            *counts.entry(*address).or_insert(0_usize) += 1;
        }
        let most = counts.into_iter().max_by_key(|&(_, count)| count).map(|(address, _)| address);
        let oldest = self.ended.iter().find(|(_, (_, address))| Some(*address) == most).map(|(&number, _)| number);
        if let Some((ended, _)) = oldest.and_then(|number| self.ended.remove(&number)) {
            ended.notify_one();
        }
    }
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.watches.lock().ended.remove(&self.number);
    }
}

/// The responses of `Watch`: the current health, and the new one after each change.
pub(super) struct Watch {
    app: Arc<App>,
    service: String,
    changes: watch::Receiver<()>,
    last: Option<ServingStatus>,
    open: OpenWatch,
    limit: MessageLimit,
}

impl Watch {
    pub(super) fn new(app: Arc<App>, service: String, open: OpenWatch, limit: MessageLimit) -> Self {
        let registry = app.inference.registry();
        app.health.get_or_init(|| HealthMonitor::start(registry.clone()));
        let changes = registry.changes();
        Self { app, service, changes, last: None, open, limit }
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
            let changed = async { !stopping && self.changes.changed().await.is_ok() };
            let message = tokio::select! {
                biased;
                () = self.open.ended.notified() => "the server has too many watches or connections; try again later",
                continues = changed => {
                    if continues {
                        continue;
                    }
                    "the server is shutting down; try another one"
                }
            };
            return Some(Err(Status::new(Code::Unavailable, message)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_watches_end_one_of_the_address_with_the_most() {
        let address = |last| Some(IpAddr::from([127, 0, 0, last]));
        let mut open = OpenWatches::default();
        for (number, last) in [(0, 1), (1, 2), (2, 2), (3, 3), (4, 2)] {
            open.ended.insert(number, (Arc::default(), address(last)));
        }
        open.end_one();
        assert_eq!(open.ended.keys().copied().collect::<Vec<_>>(), [0, 2, 3, 4], "the oldest of the second address");
    }
}
