//! Access control: who sends a request, and what the sender may do.
//!
//! A request has credentials: a key or a token (`authorization: Bearer …`), or a client certificate. They belong to a [`Principal`], which has
//! scopes, models and limits. The policy has no I/O: transports pass headers and names of certificates, and translate a [`Refusal`] into their
//! status. Files are read again when they change.

mod credentials;
mod editor;
mod issuer;
mod key;
mod key_file;
mod keyring;
mod limits;
mod metrics;
mod pattern;
mod principal;
mod refusal;
mod scope;
mod setup;
mod stream_right;
mod token;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use http::HeaderMap;
use tokio::sync::watch;
use tracing::field::display;
use tracing::warn;

pub use editor::KeyEditError;
pub use key::{ApiKey, KeyHash};
pub use key_file::{KeyEntry, KeyFile, KeyFileError, MAX_KEY_FILE};
pub use keyring::Keyring;
pub use limits::{InFlightPermit, RateLimit};
pub use metrics::AccessMetrics;
pub use pattern::ModelPatterns;
pub use principal::{Grant, Principal};
pub use refusal::{Refusal, RefusalKind};
pub use scope::{Scope, ScopeSet};
pub use setup::{AccessFiles, AccessSetupError};
pub use stream_right::StreamRight;
pub use token::{TokenClaims, TokenError, TokenKeySet, TokenRules, verify_token};

use crate::telemetry::limit::LogLimiter;
use issuer::Issuer;

/// The longest path in a log line, in bytes.
const MAX_PATH: usize = 256;

/// What access control needs to know of a request.
#[derive(Debug, Clone, Copy)]
pub struct AccessRequest<'a> {
    pub headers: &'a HeaderMap,
    /// The names of the client's certificate.
    pub certificate: &'a [String],
    pub scope: Scope,
    /// The model that the request concerns, or an empty string.
    pub model: &'a str,
    pub path: &'a str,
    /// The address of the client.
    pub address: Option<SocketAddr>,
}

/// Decides about requests. Clones share everything.
#[derive(Debug, Clone)]
pub struct Access(Arc<AccessState>);

#[derive(Debug)]
struct AccessState {
    /// `None` if there are no keys.
    keys: Option<Arc<ArcSwap<Keyring>>>,
    /// The principals of client certificates, by their names.
    certificates: HashMap<String, Arc<Principal>>,
    /// `None` if there are no tokens.
    issuer: Option<Arc<Issuer>>,
    /// Changes with the keys of principals and of the issuer, for streams.
    changes: watch::Sender<()>,
    metrics: AccessMetrics,
    log: LogLimiter,
    /// What limits measure time from.
    began: Instant,
}

impl Access {
    /// Decides whether a request may do what it asks for. `None` if everybody may.
    ///
    /// Waits only for the keys of a token that names an unknown one, for a short time, and holds the result of `begin_wait` meanwhile.
    ///
    /// # Errors
    ///
    /// Fails if the request has to be refused.
    pub async fn authorize<M>(
        &self,
        request: AccessRequest<'_>,
        begin_wait: impl FnOnce() -> M,
    ) -> Result<Option<Grant>, Refusal> {
        let AccessRequest { headers, certificate, scope, model, path, address } = request;
        if scope == Scope::Open {
            return Ok(None);
        }
        let mut found = self.principal(headers, certificate);
        if let (Err(Refusal::Token(TokenError::UnknownKey)), Some(issuer)) = (&found, &self.0.issuer) {
            // Boxed, so that the futures of other requests stay small.
            let fetched = Box::pin(async {
                let _waiting = begin_wait();
                issuer.fetch().await
            });
            found = fetched.await.and_then(|()| self.principal(headers, certificate));
        }
        let decided = found.and_then(|principal| {
            let grant = Grant::new(principal, scope, address)?;
            if !model.is_empty() {
                grant.check_model(model)?;
            }
            grant.admit(|| self.0.began.elapsed())
        });
        match decided {
            Ok(grant) => {
                grant.count();
                Ok(Some(grant))
            }
            Err(refusal) => {
                self.report(&refusal, scope, Some(path), address);
                Err(refusal)
            }
        }
    }

    /// Checks the model of a request that is only known once its message has been read.
    ///
    /// # Errors
    ///
    /// Fails if the sender may not use the model.
    pub fn check_model(&self, grant: &Grant, model: &str) -> Result<(), Refusal> {
        grant.check_model(model).inspect_err(|refusal| self.report(refusal, Scope::Infer, None, grant.address()))
    }

    /// Reports whether the credentials of a request, which need not have any, have a scope.
    pub fn has_scope(&self, headers: &HeaderMap, certificate: &[String], scope: Scope) -> bool {
        self.principal(headers, certificate).is_ok_and(|principal| principal.scopes.contains(scope))
    }

    /// Finds out who sends a request.
    fn principal(&self, headers: &HeaderMap, certificate: &[String]) -> Result<Arc<Principal>, Refusal> {
        if let Some(presented) = credentials::bearer(headers)? {
            if let Some(issuer) = self.0.issuer.as_ref().filter(|_| token::is_token(presented)) {
                return Ok(issuer.find(presented, now())?);
            }
            let keys = self.0.keys.as_ref().ok_or(Refusal::UnknownKey)?;
            let principal = keys.load().find(presented).ok_or(Refusal::UnknownKey)?;
            if principal.expires.is_some_and(|expires| now() >= expires) {
                return Err(Refusal::Expired { principal: principal.name.clone() });
            }
            return Ok(principal);
        }
        let of_certificate = certificate.iter().find_map(|name| self.0.certificates.get(name));
        of_certificate.cloned().ok_or(if certificate.is_empty() || self.0.certificates.is_empty() {
            Refusal::MissingCredentials
        } else {
            Refusal::UnknownCertificate
        })
    }

    fn report(&self, refusal: &Refusal, scope: Scope, path: Option<&str>, address: Option<SocketAddr>) {
        self.0.metrics.count_refused(refusal.reason());
        // Others must not keep refused calls of administrators out of the log.
        let kind = if scope == Scope::Admin { "refused calls that need `admin`" } else { "refused requests" };
        let summarize = move |suppressed| warn!("Audit: {suppressed} more {kind}.");
        if self.0.log.allows(kind, summarize) {
            let (reason, principal, address) = (refusal.reason(), refusal.principal(), address.map(display));
            let path = path.map(|path| &path[..path.floor_char_boundary(MAX_PATH)]);
            warn!(reason, principal, address, path, "Refused a request: {refusal}.");
        }
    }
}

/// Returns the time in seconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
