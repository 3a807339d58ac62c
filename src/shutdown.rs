//! The signals that shut the server down.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that shut the server down: SIGINT, SIGTERM and SIGQUIT.
///
/// The first one requests a graceful shutdown, the second an immediate one; the caller distinguishes them.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
}

impl Signals {
    /// Starts listening, so that no later signal is missed.
    ///
    /// # Errors
    ///
    /// Fails if the system rejects the handlers.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Waits for the next signal and returns its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.quit.recv() => "SIGQUIT",
        }
    }
}
