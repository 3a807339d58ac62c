//! SIGHUP: a request to read keys and certificates again, or the news that the terminal of the server is gone.
//!
//! The kernel and shells send SIGHUP when a terminal is closed; administrators and systemd send it to daemons. The server can
//! tell them apart: a terminal that is gone cannot be opened.

use std::fs::File;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

use crate::{platform, reload};

/// Receives SIGHUP.
#[derive(Debug)]
pub(super) struct Hangups {
    signal: Signal,
    /// Whether the server ends when its terminal is gone.
    on_terminal: bool,
}

impl Hangups {
    /// Starts listening, so that the signal no longer ends the process.
    ///
    /// # Errors
    ///
    /// Fails if the system rejects the handler.
    pub(super) fn listen() -> io::Result<Self> {
        // `nohup` has the signal ignored, which a handler overrides.
        let on_terminal = !platform::ignores_hangup() && terminal().is_ok();
        Ok(Self { signal: signal(SignalKind::hangup())?, on_terminal })
    }

    /// Waits until the terminal of the server is gone. Other hangups have files read again.
    pub(super) async fn terminal_gone(&mut self) {
        while self.signal.recv().await.is_some() {
            if self.on_terminal && terminal().is_err() {
                return;
            }
            info!("Received SIGHUP: reading keys and certificates again.");
            reload::request();
        }
        // The runtime ends.
        std::future::pending::<()>().await;
    }
}

/// Opens the terminal that controls the process.
fn terminal() -> io::Result<File> {
    File::open("/dev/tty")
}
