//! Why a request is refused. Transports translate its kind into their status.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{Scope, TokenError};

/// A request that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("no credentials: send `authorization: Bearer KEY`")]
    MissingCredentials,
    #[error("expected one header `authorization` of the form `Bearer KEY`")]
    MalformedCredentials,
    #[error("the key is unknown")]
    UnknownKey,
    #[error("the key `{principal}` has expired")]
    Expired { principal: String },
    #[error("the token is invalid: {0}")]
    Token(#[from] TokenError),
    #[error("the keys of the issuer (`jwks_url`) cannot be fetched now; try again")]
    KeysUnavailable { retry_after: Duration },
    #[error("the client certificate has no entry in the setting `tls_client_scopes`")]
    UnknownCertificate,
    #[error("`{principal}` does not have the scope `{}`", scope.name())]
    Scope { principal: String, scope: Scope },
    #[error("`{principal}` may not use the model `{model}`")]
    Model { principal: String, model: String },
    #[error("`{principal}` has exceeded its rate limit")]
    Rate { principal: String, retry_after: Duration },
    #[error("`{principal}` has {limit} requests in flight, which is its limit")]
    InFlight { principal: String, limit: NonZeroU32 },
}

/// What a refusal means to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// It is not known who sends the request. `presented` is false if there are no credentials at all.
    Unauthenticated { presented: bool },
    /// The sender does not have the right. Names the missing scope, if it is one.
    Forbidden { scope: Option<Scope> },
    /// The sender may try again after this time.
    Limited { retry_after: Duration },
    /// It cannot be found out now who sends the request. The sender may try again after this time.
    Unavailable { retry_after: Duration },
}

/// When to try again if too many requests are in flight.
const RETRY_IN_FLIGHT: Duration = Duration::from_secs(1);

impl Refusal {
    pub const fn kind(&self) -> RefusalKind {
        match self {
            Self::MissingCredentials => RefusalKind::Unauthenticated { presented: false },
            Self::MalformedCredentials
            | Self::UnknownKey
            | Self::Expired { .. }
            | Self::Token(_)
            | Self::UnknownCertificate => RefusalKind::Unauthenticated { presented: true },
            Self::KeysUnavailable { retry_after } => RefusalKind::Unavailable { retry_after: *retry_after },
            Self::Scope { scope, .. } => RefusalKind::Forbidden { scope: Some(*scope) },
            Self::Model { .. } => RefusalKind::Forbidden { scope: None },
            Self::Rate { retry_after, .. } => RefusalKind::Limited { retry_after: *retry_after },
            Self::InFlight { .. } => RefusalKind::Limited { retry_after: RETRY_IN_FLIGHT },
        }
    }

    /// Returns the label of the metric.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::MissingCredentials => "missing_credentials",
            Self::MalformedCredentials => "malformed_credentials",
            Self::UnknownKey => "unknown_key",
            Self::Expired { .. } | Self::Token(TokenError::Expired) => "expired",
            Self::Token(_) => "invalid_token",
            Self::KeysUnavailable { .. } => "keys_unavailable",
            Self::UnknownCertificate => "unknown_certificate",
            Self::Scope { .. } => "scope",
            Self::Model { .. } => "model",
            Self::Rate { .. } => "rate_limit",
            Self::InFlight { .. } => "max_in_flight",
        }
    }

    /// Returns the name of the principal, if it is known.
    pub fn principal(&self) -> Option<&str> {
        match self {
            Self::Expired { principal }
            | Self::Scope { principal, .. }
            | Self::Model { principal, .. }
            | Self::Rate { principal, .. }
            | Self::InFlight { principal, .. } => Some(principal),
            Self::MissingCredentials
            | Self::MalformedCredentials
            | Self::UnknownKey
            | Self::Token(_)
            | Self::KeysUnavailable { .. }
            | Self::UnknownCertificate => None,
        }
    }

    /// Returns the `WWW-Authenticate` header of HTTP (RFC 6750); `None` if other credentials would not help.
    pub fn challenge(&self) -> Option<String> {
        match self.kind() {
            RefusalKind::Unauthenticated { presented: false } => Some("Bearer realm=\"mlserver\"".to_owned()),
            RefusalKind::Unauthenticated { presented: true } => {
                Some("Bearer realm=\"mlserver\", error=\"invalid_token\"".to_owned())
            }
            RefusalKind::Forbidden { scope: Some(scope) } => {
                let name = scope.name();
                Some(format!("Bearer realm=\"mlserver\", error=\"insufficient_scope\", scope=\"{name}\""))
            }
            RefusalKind::Forbidden { scope: None } | RefusalKind::Limited { .. } | RefusalKind::Unavailable { .. } => {
                None
            }
        }
    }
}
