//! Audit records in the log: who changes models, from where, and with what result. Access control logs refusals.

use std::net::SocketAddr;

use tracing::field::display;
use tracing::info;

/// A call that changes models.
#[derive(Debug, Clone, Copy)]
pub(super) struct AdminCall<'a> {
    /// `load` or `unload`.
    pub(super) action: &'a str,
    pub(super) model: &'a str,
    /// `None` without access control.
    pub(super) principal: Option<&'a str>,
    pub(super) address: Option<SocketAddr>,
}

impl AdminCall<'_> {
    /// Records the call with its status.
    pub(super) fn record(self, status: &str) {
        let Self { action, model, principal, address } = self;
        let address = address.map(display);
        info!(model, principal, address, status, "Audit: {action} of model '{model}'.");
    }
}
