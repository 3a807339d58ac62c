//! The address of a server.

use std::fmt;

use http::HeaderValue;

use crate::http_client::{Url, take_credentials};
use crate::types::without_credentials;

/// A server's address, and the path in front of the protocol's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Without user name and password, and without a trailing slash in its path.
    url: Url,
    /// The user name and password of the address, as the value of `Authorization`.
    authorization: Option<HeaderValue>,
}

/// Why an address is invalid. Its user name and password are hidden.
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
    /// Parses `HOST:PORT`, optionally with a scheme (`http://`, `https://`), `USER:PASSWORD@` and a path. `tls` asks for TLS in any
    /// case.
    ///
    /// # Errors
    ///
    /// Fails if the text is not an address.
    pub fn parse(text: &str, tls: bool) -> Result<Self, EndpointError> {
        let found = || without_credentials(text);
        let (scheme, rest) = match text.split_once("://") {
            None => (if tls { "https" } else { "http" }, text),
            Some((scheme, rest)) => match scheme.to_ascii_lowercase().as_str() {
                "https" => ("https", rest),
                "http" if tls => ("https", rest),
                "http" => ("http", rest),
                _ => return Err(EndpointError::Scheme { found: found(), scheme: scheme.to_owned() }),
            },
        };
        if rest.contains(['?', '#']) {
            return Err(EndpointError::Query { found: found() });
        }
        let is_address = |c: char| c.is_ascii_graphic() || !c.is_ascii();
        let url = Some(rest).filter(|rest| !rest.starts_with('/') && rest.chars().all(is_address));
        let url = url.and_then(|rest| Url::parse(&format!("{scheme}://{rest}")).ok());
        let Some(mut url) = url else { return Err(EndpointError::Invalid { found: found() }) };
        let authorization = take_credentials(&mut url);
        Ok(Self { url, authorization })
    }

    /// Reports whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Returns the user name and password of the address, as the value of `Authorization`.
    pub(super) const fn authorization(&self) -> Option<&HeaderValue> {
        self.authorization.as_ref()
    }

    /// Returns the URL of a path, which starts with a slash and needs no escaping.
    pub(super) fn url(&self, path: &str) -> Url {
        self.with_path(&format!("{}{path}", self.path()))
    }

    /// Returns the path in front of the protocol's own, without a trailing slash.
    pub(super) fn path(&self) -> &str {
        self.url.path().trim_end_matches('/')
    }

    /// Returns the URL of a path of the server, which starts with a slash and needs no escaping.
    pub(super) fn with_path(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(path);
        url
    }

    /// Returns the address for messages, without what may be a password.
    pub fn shown(&self) -> String {
        self.url.as_str().trim_end_matches('/').to_owned()
    }
}

impl fmt::Display for Endpoint {
    /// Writes the address without user name and password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str, tls: bool) -> String {
        Endpoint::parse(text, tls).unwrap().url("/v2").to_string()
    }

    #[test]
    fn endpoint_parse_accepts_addresses() {
        assert_eq!(url("localhost:8080", false), "http://localhost:8080/v2");
        assert_eq!(url("localhost:8080", true), "https://localhost:8080/v2");
        assert_eq!(url("http://localhost:8080/", true), "https://localhost:8080/v2");
        assert_eq!(url("HTTPS://h/seldon/a/", false), "https://h/seldon/a/v2");
        assert_eq!(url("[::1]:81", false), "http://[::1]:81/v2");
        let name = Endpoint::parse("h", false).unwrap().url("/v2/models/a%20b%2Fc/infer");
        assert_eq!(name.as_str(), "http://h/v2/models/a%20b%2Fc/infer");
    }

    #[test]
    fn endpoint_credentials_are_taken_out_of_the_url() {
        let endpoint = Endpoint::parse("me:s3cret@localhost:8080", false).unwrap();
        assert_eq!(endpoint.url("/v2").as_str(), "http://localhost:8080/v2");
        assert_eq!(endpoint.authorization().unwrap(), "Basic bWU6czNjcmV0");
        assert_eq!(endpoint.to_string(), "http://localhost:8080");
        assert!(!format!("{endpoint:?}").contains("bWU6"), "{endpoint:?}");
        let error = Endpoint::parse("ftp://me:s3cret@h", false).unwrap_err().to_string();
        assert_eq!(error, "unsupported scheme `ftp` in `ftp://<hidden>@h`: expected `http`, `https`, or none");
        let shown = |text| Endpoint::parse(text, false).unwrap().shown();
        assert_eq!(
            (shown("[::1]:81/a/"), shown("https://u:p@h")),
            ("http://[::1]:81/a".to_owned(), "https://h".to_owned())
        );
    }

    #[test]
    fn endpoint_parse_rejects_invalid_addresses() {
        for text in ["", ":8080", "a b:80", "ftp://h", "h?a=b", "h/#x", "h/\u{7f}", "h:99999", "http:///h"] {
            assert!(Endpoint::parse(text, false).is_err(), "{text}");
        }
        let error = Endpoint::parse("ftp://h", false).unwrap_err();
        assert_eq!(error.to_string(), "unsupported scheme `ftp` in `ftp://h`: expected `http`, `https`, or none");
    }
}
