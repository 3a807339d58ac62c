//! Audit records in the log: who changes models, from where, and with what result. Access control logs refusals.

use std::net::SocketAddr;

use tracing::field::display;
use tracing::{info, warn};

use crate::telemetry::limit::LogLimiter;

/// What the record of a call says whose caller has left: the change goes on.
const LEFT: &str = "the caller has left";

/// The most bytes of a model's name that a record repeats.
const MAX_NAME: usize = 256;

/// The records of one transport.
///
/// Without access control, everybody may send changes that fail, so their records are limited, and so are those of changes whose callers do not
/// wait for the result.
#[derive(Debug, Default)]
pub(super) struct AuditLog(LogLimiter);

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
    has_succeeded: bool,
    limiter: LogLimiter,
}

impl AuditLog {
    /// Begins the record of a call.
    pub(super) fn begin(
        &self,
        action: &str,
        model: &str,
        principal: Option<&str>,
        address: Option<SocketAddr>,
    ) -> AdminCall {
        AdminCall {
            action: action.to_owned(),
            model: model[..model.floor_char_boundary(MAX_NAME)].to_owned(),
            principal: principal.map(str::to_owned),
            address,
            status: None,
            has_succeeded: false,
            limiter: self.0.clone(),
        }
    }
}

impl AdminCall {
    /// Records the call with its status.
    pub(super) fn record(mut self, status: &str, has_succeeded: bool) {
        (self.status, self.has_succeeded) = (Some(status.to_owned()), has_succeeded);
    }
}

impl Drop for AdminCall {
    fn drop(&mut self) {
        let Self { action, model, principal, address, status, has_succeeded, limiter } = self;
        let summarize = |suppressed| warn!("Audit: {suppressed} more changes of models failed.");
        if principal.is_none() && !*has_succeeded && !limiter.allows("changes", summarize) {
            return;
        }
        let (model, principal, address) = (model.as_str(), principal.as_deref(), address.map(display));
        let status = status.as_deref().unwrap_or(LEFT);
        info!(model, principal, address, status, "Audit: {action} of model '{model}'.");
    }
}
