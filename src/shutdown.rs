//! Signals, and how the server ends.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end the server: SIGINT, SIGTERM and SIGQUIT.
///
/// The first one asks for an orderly end, the second for an immediate one; telling them apart is the caller's part.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    quit: Signal,
}

impl Signals {
    /// Starts listening, so that none is missed from here on.
    ///
    /// # Errors
    ///
    /// Fails when the system refuses the handlers.
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
