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
