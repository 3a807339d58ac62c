//! The filter for headers that models set: those of the connection, the body and the client's identity never leave the server.
//!
//! Models often answer with the parameters of their request, which contain the headers of the client.

use http::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderName};

/// Headers that describe one connection, or that only requests have.
const NEVER: [HeaderName; 9] =
    [AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HOST, TE, TRAILER, TRANSFER_ENCODING, UPGRADE];

/// The credentials of clients that models see, besides all other headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ForwardedHeaders {
    authorization: bool,
    cookie: bool,
}

/// A header that models see anyway.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`forward_headers`: expected `authorization` or `cookie`, found `{0}`: models see all other headers anyway")]
pub struct UnknownForwardedHeader(String);

impl ForwardedHeaders {
    /// Takes the headers that are forwarded to models.
    ///
    /// # Errors
    ///
    /// Fails if one of them is not a header with credentials.
    pub fn new(names: &[String]) -> Result<Self, UnknownForwardedHeader> {
        let mut forwarded = Self::default();
        for name in names {
            match name.to_ascii_lowercase().as_str() {
                "authorization" => forwarded.authorization = true,
                "cookie" => forwarded.cookie = true,
                _ => return Err(UnknownForwardedHeader(name.clone())),
            }
        }
        Ok(forwarded)
    }

    /// Returns the names of the headers that models do not see.
    pub fn hidden(self) -> Vec<&'static str> {
        [(self.authorization, "authorization"), (self.cookie, "cookie")]
            .into_iter()
            .filter_map(|(is_forwarded, name)| (!is_forwarded).then_some(name))
            .collect()
    }

    /// Removes the credentials that models do not see.
    pub(super) fn hide_others(self, headers: &mut HeaderMap) {
        if !self.authorization {
            headers.remove(AUTHORIZATION);
        }
        if !self.cookie {
            headers.remove(COOKIE);
        }
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
        let kept = |forwarded: &[&str]| {
            let mut headers = HeaderMap::new();
            for name in ["authorization", "cookie", "x-own"] {
                headers.append(name, HeaderValue::from_static("a"));
                headers.append(name, HeaderValue::from_static("b"));
            }
            ForwardedHeaders::new(&names(forwarded)).unwrap().hide_others(&mut headers);
            headers.keys().map(|name| name.as_str().to_owned()).collect::<std::collections::BTreeSet<_>>()
        };
        let set = |list: &[&str]| names(list).into_iter().collect();
        assert_eq!(kept(&[]), set(&["x-own"]));
        assert_eq!(kept(&["Authorization"]), set(&["authorization", "x-own"]));
        assert_eq!(kept(&["cookie", "authorization"]), set(&["authorization", "cookie", "x-own"]));
        let error = ForwardedHeaders::new(&names(&["x-own"])).unwrap_err().to_string();
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
