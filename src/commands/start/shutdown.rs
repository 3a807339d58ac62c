//! Graceful shutdown.

use std::time::Duration;

use anyhow::anyhow;
use tracing::{info, warn};

use super::assembly::RunningServer;
use crate::commands::{CommandError, FORCED};
use crate::server::DrainStage;
use crate::settings::Settings;
use crate::shutdown::Signals;

/// The time limits of a shutdown.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShutdownLimits {
    /// How long the server continues to answer while it is not ready, so that load balancers notice in time.
    pub(super) delay: Duration,
    /// How long the requests in flight may take after that.
    pub(super) grace_period: Duration,
}

impl ShutdownLimits {
    pub(super) fn of(settings: &Settings) -> Self {
        Self { delay: settings.shutdown_delay, grace_period: settings.shutdown_grace_period }
    }

    /// Logs the start of the shutdown after a signal.
    pub(super) fn announce(self, signal: &str) {
        let (delay, grace) = (self.delay.as_secs_f64(), self.grace_period.as_secs_f64());
        if self.delay.is_zero() {
            info!("Received {signal}: answering the requests in flight, for at most {grace} s.");
        } else {
            info!(
                "Received {signal}: not ready; answering requests for {delay} s, then those in flight for at most {grace} s."
            );
        }
    }
}

/// Shuts the server down: it is not ready at once, rejects new requests after the delay, and answers those in flight.
///
/// # Errors
///
/// A second signal stops the server at once, which is an error because requests may be lost.
pub(super) async fn shut_down(
    mut server: RunningServer,
    limits: ShutdownLimits,
    signals: &mut Signals,
) -> Result<(), CommandError> {
    let inference = server.inference.clone();
    let graceful = async {
        server.inference.announce_shutdown();
        server.admin.stop();
        tokio::time::sleep(limits.delay).await;
        server.inference.stop();
        server.listeners.stop(DrainStage::Requests);
        let drained = async {
            server.listeners.drain().await;
            server.python.workers().stop().await;
            let traces = server.inference.traces().clone();
            // Fails only if it panics, and then the spans are lost.
            let _ = tokio::task::spawn_blocking(move || traces.end()).await;
        };
        tokio::time::timeout(limits.grace_period, drained).await
    };
    tokio::select! {
        result = graceful => match result {
            Ok(()) => info!("Stopped."),
            Err(_) => {
                warn!("Stopped with {} requests in flight: `shutdown_grace_period` exceeded.", inference.in_flight());
            }
        },
        signal = signals.next() => {
            let error = anyhow!("stopped at once by a second signal ({signal}), with {} requests in flight", inference.in_flight());
            return Err(CommandError { error, code: FORCED });
        }
    }
    Ok(())
}
