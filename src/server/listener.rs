//! Listeners as data: each serves a transport on an address, and stops in a stage of the shutdown.

use std::fmt;

use futures_util::future::{BoxFuture, FutureExt};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::shutdown::supervised;

/// The stages in which listeners stop, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DrainStage {
    /// The listener accepts requests: it stops first, once those in flight have been answered.
    Requests,
    /// The listener exposes observability, so it serves until everything else has stopped.
    Observers,
}

/// Serves until its token is cancelled, and then until the requests in flight have ended.
type Serve = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Something that is bound and ready to serve: a port with its transport, or a consumer of a queue.
pub struct Listener {
    name: &'static str,
    /// The log lines that announce it.
    announcements: Vec<String>,
    drain: DrainStage,
    serve: Serve,
}

impl Listener {
    /// Creates a listener. `serve` is called when all listeners of the server are bound.
    pub fn new<F>(
        name: &'static str,
        drain: DrainStage,
        announcements: Vec<String>,
        serve: impl FnOnce(CancellationToken) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { name, announcements, drain, serve: Box::new(move |stop| serve(stop).boxed()) }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, drain, announcements, .. } = self;
        formatter
            .debug_struct("Listener")
            .field("name", name)
            .field("drain", drain)
            .field("announcements", announcements)
            .finish_non_exhaustive()
    }
}

/// The listeners of a running server.
#[derive(Debug, Default)]
pub struct RunningListeners {
    stages: Vec<Stage>,
}

/// The listeners that stop together.
#[derive(Debug)]
struct Stage {
    drain: DrainStage,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl RunningListeners {
    /// Announces and serves every listener.
    pub fn start(listeners: Vec<Listener>) -> Self {
        let mut running = Self::default();
        for Listener { name, announcements, drain, serve } in listeners {
            for announcement in announcements {
                info!("{announcement}");
            }
            let stage = running.stage(drain);
            stage.tasks.spawn(supervised(name, serve(stage.stop.clone())));
        }
        running
    }

    fn stage(&mut self, drain: DrainStage) -> &mut Stage {
        let index = self.stages.iter().position(|stage| stage.drain == drain).unwrap_or_else(|| {
            self.stages.push(Stage { drain, stop: CancellationToken::new(), tasks: JoinSet::new() });
            self.stages.len() - 1
        });
        &mut self.stages[index]
    }

    /// Signals the listeners of a stage to stop, without waiting.
    pub fn stop(&self, drain: DrainStage) {
        for stage in self.stages.iter().filter(|stage| stage.drain == drain) {
            stage.stop.cancel();
        }
    }

    /// Stops the listeners stage by stage, and waits until each has drained.
    pub async fn drain(&mut self) {
        self.stages.sort_by_key(|stage| stage.drain);
        for stage in &mut self.stages {
            stage.stop.cancel();
            // Fails only if it is cancelled, and then there is nothing left to wait for.
            while stage.tasks.join_next().await.is_some() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn listeners_drain_stops_observers_after_requests() {
        let stopped = Arc::new(Mutex::new(Vec::new()));
        let listener = |name: &'static str, drain| {
            let stopped = Arc::clone(&stopped);
            Listener::new(name, drain, Vec::new(), move |stop| async move {
                stop.cancelled().await;
                tokio::task::yield_now().await;
                stopped.lock().push(name);
            })
        };
        let mut running = RunningListeners::start(vec![
            listener("metrics", DrainStage::Observers),
            listener("HTTP", DrainStage::Requests),
            listener("gRPC", DrainStage::Requests),
        ]);
        running.drain().await;
        let mut stopped = std::mem::take(&mut *stopped.lock());
        assert_eq!(stopped.pop(), Some("metrics"));
        stopped.sort_unstable();
        assert_eq!(stopped, ["HTTP", "gRPC"]);
    }
}
