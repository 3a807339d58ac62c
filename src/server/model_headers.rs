//! The filter for headers that models set: those of the connection, the body and the client's identity never leave the server.
//!
//! Models often answer with the parameters of their request, which contain the headers of the client.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName};

use crate::registry::RegisteredModel;
use crate::settings::{AccessSettings, TlsSettings};
use crate::types::ForwardedCredentials;

/// Headers that describe one connection, or that only requests have.
const NEVER: [HeaderName; 9] =
    [AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// The credentials of clients that models see, besides all other headers, and those that other servers get.
///
/// Without access control, models on this server see all headers, as in the original: a model that reads the token of a user must not
/// silently get none. With it, the credentials are for this server, and models see those that the setting `forward_headers` lists. Other
/// servers, and models that pass requests on to them, get only those in any case.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForwardedHeaders {
    listed: ForwardedCredentials,
    /// Whether there is no access control.
    is_open: bool,
}

/// A header that models see anyway.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`forward_headers`: expected `authorization` or `cookie`, found `{0}`: models see all other headers anyway")]
pub struct UnknownForwardedHeader(String);

impl ForwardedHeaders {
    /// Reads the headers from the settings.
    ///
    /// # Errors
    ///
    /// Fails if one of them is not a header with credentials.
    pub fn of(access: &AccessSettings, tls: &TlsSettings) -> Result<Self, UnknownForwardedHeader> {
        let is_open = access.api_keys_file.is_none() && access.jwt_issuer.is_none() && tls.client_scopes.is_empty();
        Self::new(&access.forward_headers, is_open)
    }

    fn new(names: &[String], is_open: bool) -> Result<Self, UnknownForwardedHeader> {
        let mut forwarded = Self { is_open, ..Self::default() };
        for name in names {
            match name.to_ascii_lowercase().as_str() {
                "authorization" => forwarded.listed.authorization = true,
                "cookie" => forwarded.listed.cookie = true,
                _ => return Err(UnknownForwardedHeader(name.clone())),
            }
        }
        Ok(forwarded)
    }

    /// Returns the credentials that other servers get.
    pub const fn to_servers(self) -> ForwardedCredentials {
        self.listed
    }

    /// Returns the names of the headers that models do not see.
    pub fn hidden(self) -> Vec<&'static str> {
        [(self.listed.authorization, "authorization"), (self.listed.cookie, "cookie")]
            .into_iter()
            .filter_map(|(is_listed, name)| (!self.is_open && !is_listed).then_some(name))
            .collect()
    }

    /// Removes the credentials that a model does not see.
    pub(super) fn hide_from(self, model: &RegisteredModel, headers: &mut HeaderMap) {
        self.hide(model.asks_servers, headers);
    }

    fn hide(self, asks_servers: bool, headers: &mut HeaderMap) {
        if self.is_open && !asks_servers {
            return;
        }
        self.listed.remove_others(headers);
    }
}

/// Removes the headers that a response to an inference request cannot have: besides those of [`filter_custom`], all that
/// describe the body, which the server encodes, and cookies.
pub(super) fn filter(headers: &mut HeaderMap) {
    filter_custom(headers);
    headers.remove(SET_COOKIE);
    remove_matching(headers, |name| name.starts_with("content-"));
}

/// Removes the headers that the response of a model's own route cannot have: the connection decides how it is framed.
pub(super) fn filter_custom(headers: &mut HeaderMap) {
    if headers.is_empty() {
        return;
    }
    // A client or proxy would remove the headers that `connection` lists, so they are not meant for the caller.
    let listed = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let listed: Vec<HeaderName> =
        listed.flat_map(|names| names.split(',')).filter_map(|name| name.trim().parse().ok()).collect();
    for name in NEVER.iter().chain(&listed) {
        headers.remove(name);
    }
    remove_matching(headers, |name| name.starts_with("proxy-") || name == "keep-alive" || name == "http2-settings");
}

/// Removes the headers whose names match.
pub(super) fn remove_matching(headers: &mut HeaderMap, matches: impl Fn(&str) -> bool) {
    let found: Vec<_> = headers.keys().filter(|name| matches(name.as_str())).cloned().collect();
    for name in found {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn kept(filter: fn(&mut HeaderMap)) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for name in [
            "authorization",
            "connection",
            "content-disposition",
            "content-encoding",
            "content-length",
            "content-type",
            "cookie",
            "host",
            "keep-alive",
            "proxy-authorization",
            "server-timing",
            "set-cookie",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
            "user-agent",
            "x-listed",
            "x-own",
        ] {
            headers.insert(name, HeaderValue::from_static("a"));
        }
        headers.insert(CONNECTION, HeaderValue::from_static("close, X-Listed"));
        filter(&mut headers);
        let mut names: Vec<_> = headers.keys().map(|name| name.as_str().to_owned()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn forwarded_headers_are_credentials_only() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let kept_by = |forwarded: &[&str], is_open: bool, asks_servers: bool| {
            let mut headers = HeaderMap::new();
            for name in ["authorization", "cookie", "x-own"] {
                headers.append(name, HeaderValue::from_static("a"));
                headers.append(name, HeaderValue::from_static("b"));
            }
            ForwardedHeaders::new(&names(forwarded), is_open).unwrap().hide(asks_servers, &mut headers);
            headers.keys().map(|name| name.as_str().to_owned()).collect::<std::collections::BTreeSet<_>>()
        };
        let kept = |forwarded: &[&str], is_open: bool| kept_by(forwarded, is_open, false);
        let set = |list: &[&str]| names(list).into_iter().collect();
        assert_eq!(kept(&[], false), set(&["x-own"]));
        assert_eq!(kept(&["Authorization"], false), set(&["authorization", "x-own"]));
        assert_eq!(kept(&["cookie", "authorization"], false), set(&["authorization", "cookie", "x-own"]));
        assert_eq!(kept(&[], true), set(&["authorization", "cookie", "x-own"]));
        assert_eq!(kept_by(&[], true, true), set(&["x-own"]), "it may pass them on");
        assert_eq!(kept_by(&["authorization"], true, true), set(&["authorization", "x-own"]));
        let forwards =
            |list: &[&str], is_open| ForwardedHeaders::new(&names(list), is_open).unwrap().to_servers().authorization;
        for is_open in [false, true] {
            assert!(!forwards(&[], is_open) && !forwards(&["cookie"], is_open));
            assert!(forwards(&["authorization"], is_open));
        }
        let error = ForwardedHeaders::new(&names(&["x-own"]), true).unwrap_err().to_string();
        assert!(error.contains("found `x-own`"), "{error}");
    }

    #[test]
    fn headers_of_the_connection_and_credentials_are_removed() {
        assert_eq!(kept(filter), ["server-timing", "user-agent", "x-own"]);
        assert_eq!(
            kept(filter_custom),
            [
                "content-disposition",
                "content-encoding",
                "content-type",
                "server-timing",
                "set-cookie",
                "user-agent",
                "x-own"
            ]
        );
    }
}
