//! The credentials of callers, and who gets them.

use http::HeaderMap;
use http::header::{AUTHORIZATION, COOKIE};

/// The headers with credentials of a caller that other servers get, and models that pass requests on to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForwardedCredentials {
    pub authorization: bool,
    pub cookie: bool,
}

impl ForwardedCredentials {
    /// Removes the credentials that are not forwarded.
    pub fn remove_others(self, headers: &mut HeaderMap) {
        if !self.authorization {
            headers.remove(AUTHORIZATION);
        }
        if !self.cookie {
            headers.remove(COOKIE);
        }
    }
}
