//! The address of a server.

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

/// A server's address, and the path in front of the protocol's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    scheme: Scheme,
    authority: Authority,
    /// Without a trailing slash; usually empty.
    base: String,
}

/// Why an address is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("invalid address `{found}`: expected HOST:PORT, such as `localhost:8080`, with an optional path")]
    Invalid { found: String },
    #[error("unsupported scheme `{scheme}` in `{found}`: expected `http`, `https`, or none")]
    Scheme { found: String, scheme: String },
    #[error("unexpected query in `{found}`: expected HOST:PORT with an optional path")]
    Query { found: String },
}

impl Endpoint {
    /// Parses `HOST:PORT`, optionally with a scheme (`http://`, `https://`) and a path. `tls` asks for TLS in any case.
    ///
    /// # Errors
    ///
    /// Fails if the text is not an address.
    pub fn parse(text: &str, tls: bool) -> Result<Self, EndpointError> {
        let found = text.to_owned();
        let (scheme, rest) = match text.split_once("://") {
            None => (if tls { Scheme::HTTPS } else { Scheme::HTTP }, text),
            Some((scheme, rest)) => match scheme.to_ascii_lowercase().as_str() {
                "https" => (Scheme::HTTPS, rest),
                "http" if tls => (Scheme::HTTPS, rest),
                "http" => (Scheme::HTTP, rest),
                _ => return Err(EndpointError::Scheme { found, scheme: scheme.to_owned() }),
            },
        };
        let (authority, base) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if rest.contains(['?', '#']) {
            return Err(EndpointError::Query { found });
        }
        let base = base.trim_end_matches('/').to_owned();
        match authority.parse::<Authority>() {
            Ok(authority) if !authority.host().is_empty() && Self::is_path(&base) => {
                Ok(Self { scheme, authority, base })
            }
            _ => Err(EndpointError::Invalid { found }),
        }
    }

    fn is_path(base: &str) -> bool {
        base.is_empty() || base.parse::<PathAndQuery>().is_ok()
    }

    /// Reports whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Returns the address for messages, without what may be a password.
    pub fn shown(&self) -> String {
        let port = self.authority.port().map(|port| format!(":{port}")).unwrap_or_default();
        format!("{}://{}{port}{}", self.scheme, self.authority.host(), self.base)
    }

    /// Returns the address of a path, which starts with a slash and needs no escaping.
    pub(super) fn uri(&self, path: &str) -> Uri {
        let path = format!("{}{path}", self.base);
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
            .expect("scheme, authority and path have been checked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str, tls: bool) -> String {
        Endpoint::parse(text, tls).unwrap().uri("/v2").to_string()
    }

    #[test]
    fn endpoint_parse_accepts_addresses() {
        assert_eq!(uri("localhost:8080", false), "http://localhost:8080/v2");
        assert_eq!(uri("localhost:8080", true), "https://localhost:8080/v2");
        assert_eq!(uri("http://localhost:8080/", true), "https://localhost:8080/v2");
        assert_eq!(uri("HTTPS://h/seldon/a/", false), "https://h/seldon/a/v2");
        assert_eq!(uri("[::1]:80", false), "http://[::1]:80/v2");
        let shown = |text| Endpoint::parse(text, false).unwrap().shown();
        assert_eq!(
            (shown("[::1]:80/a/"), shown("https://h")),
            ("http://[::1]:80/a".to_owned(), "https://h".to_owned())
        );
    }

    #[test]
    fn endpoint_parse_rejects_invalid_addresses() {
        for text in ["", ":8080", "a b:80", "ftp://h", "h?a=b", "h/#x", "h/\u{7f}"] {
            assert!(Endpoint::parse(text, false).is_err(), "{text}");
        }
        let error = Endpoint::parse("ftp://h", false).unwrap_err();
        assert_eq!(error.to_string(), "unsupported scheme `ftp` in `ftp://h`: expected `http`, `https`, or none");
    }
}
