//! Audit records in the log: who changes models, from where, and with what result. Access control logs refusals.

use std::net::SocketAddr;

use tracing::field::display;
use tracing::info;

/// What the record of a call says whose caller has left: the change goes on.
const LEFT: &str = "the caller has left";

/// A call that changes models. Dropping it writes its record, so that a caller that leaves does not avoid that.
#[derive(Debug)]
pub(super) struct AdminCall {
    /// `load` or `unload`.
    action: String,
    model: String,
    /// `None` without access control.
    principal: Option<String>,
    address: Option<SocketAddr>,
    status: Option<String>,
}

impl AdminCall {
    pub(super) fn begin(action: &str, model: &str, principal: Option<&str>, address: Option<SocketAddr>) -> Self {
        let (action, model) = (action.to_owned(), model.to_owned());
        Self { action, model, principal: principal.map(str::to_owned), address, status: None }
    }

    /// Records the call with its status.
    pub(super) fn record(mut self, status: &str) {
        self.status = Some(status.to_owned());
    }
}

impl Drop for AdminCall {
    fn drop(&mut self) {
        let Self { action, model, principal, address, status } = self;
        let (model, principal, address) = (model.as_str(), principal.as_deref(), address.map(display));
        let status = status.as_deref().unwrap_or(LEFT);
        info!(model, principal, address, status, "Audit: {action} of model '{model}'.");
    }
}
