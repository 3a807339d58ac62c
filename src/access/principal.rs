//! Who sends a request, and the right that one request has.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;

use super::limits::PrincipalLimits;
use super::{InFlightPermit, ModelPatterns, Refusal, Scope, ScopeSet};

/// What the names of principals begin with that have a token.
pub(super) const TOKEN_PREFIX: &str = "token:";
/// What the names of principals begin with that have a client certificate.
pub(super) const CERTIFICATE_PREFIX: &str = "certificate:";

/// The sender of requests: the owner of a key, a certificate or a token.
#[derive(Debug)]
pub struct Principal {
    /// The name of the key; the prefix and `sub` of a token, or the name in a certificate. Principals of different kinds have
    /// different names.
    pub(super) name: String,
    pub(super) scopes: ScopeSet,
    pub(super) models: ModelPatterns,
    /// In seconds since 1970.
    pub(super) expires: Option<i64>,
    pub(super) limits: Arc<PrincipalLimits>,
    /// Counts its requests.
    pub(super) requests: Counter,
}

/// The right of one request, which counts as in flight until the permit is dropped.
#[derive(Debug)]
pub struct Grant {
    principal: Arc<Principal>,
    permit: Option<InFlightPermit>,
    address: Option<SocketAddr>,
}

impl Principal {
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reports whether it may use a model.
    pub fn allows(&self, model: &str) -> bool {
        self.models.matches(model)
    }

    /// Reports whether another principal has the same name and rights.
    pub(super) fn has_rights_of(&self, other: &Self) -> bool {
        let rights = |principal: &Self| (principal.scopes, principal.expires);
        self.name == other.name
            && rights(self) == rights(other)
            && self.models == other.models
            && self.limits.is_like(&other.limits)
    }
}

impl Grant {
    /// Gives a principal the right to what needs a scope.
    pub(super) fn new(principal: Arc<Principal>, scope: Scope, address: Option<SocketAddr>) -> Result<Self, Refusal> {
        if principal.scopes.contains(scope) {
            Ok(Self { principal, permit: None, address })
        } else {
            Err(Refusal::Scope { principal: principal.name.clone(), scope })
        }
    }

    /// Checks the limits at a time since the start.
    pub(super) fn admit(self, now: impl FnOnce() -> Duration) -> Result<Self, Refusal> {
        let Principal { name, limits, .. } = &*self.principal;
        let permit = limits.enter().map_err(|limit| Refusal::InFlight { principal: name.clone(), limit })?;
        limits.take(now).map_err(|retry_after| Refusal::Rate { principal: name.clone(), retry_after })?;
        Ok(Self { permit, ..self })
    }

    pub(super) fn count(&self) {
        self.principal.requests.inc();
    }

    pub(super) fn check_model(&self, model: &str) -> Result<(), Refusal> {
        if self.allows(model) {
            Ok(())
        } else {
            Err(Refusal::Model { principal: self.principal.name.clone(), model: model.to_owned() })
        }
    }

    /// Reports whether the principal may use a model.
    pub fn allows(&self, model: &str) -> bool {
        self.principal.allows(model)
    }

    /// Reports whether the principal may use all models.
    pub fn allows_all(&self) -> bool {
        self.principal.models == ModelPatterns::All
    }

    pub const fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// Returns the address that the request comes from.
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Reports whether the principal has a scope.
    pub fn has_scope(&self, scope: Scope) -> bool {
        self.principal.scopes.contains(scope)
    }

    /// Returns what has to be kept until the response has been sent.
    pub const fn take_permit(&mut self) -> Option<InFlightPermit> {
        self.permit.take()
    }
}
