//! Where a server is.

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};

/// A server's address, and what stands before the protocol's paths there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    scheme: Scheme,
    authority: Authority,
    /// Without a slash at its end; mostly empty.
    base: String,
}

/// An address that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("`{found}` is no address: expected HOST:PORT, as in `localhost:8080`, with a path if the server has one")]
    Invalid { found: String },
    #[error("`{found}` has the scheme `{scheme}`: expected `http`, `https`, or none")]
    Scheme { found: String, scheme: String },
    #[error("`{found}` has a query: an address ends with its path")]
    Query { found: String },
}

impl Endpoint {
    /// Reads `HOST:PORT`, with or without `http://` or `https://` before it and a path behind it. `tls` asks for TLS where no
    /// scheme is given.
    ///
    /// # Errors
    ///
    /// Fails when it is anything else.
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

    /// Tells whether the connection is encrypted.
    pub fn is_tls(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Returns the address of a path, which begins with a slash and has nothing that needs escaping.
    pub(super) fn uri(&self, path: &str) -> Uri {
        let path = format!("{}{path}", self.base);
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(path)
            .build()
            .expect("scheme, authority and path were checked each")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uri(text: &str, tls: bool) -> String {
        Endpoint::parse(text, tls).unwrap().uri("/v2").to_string()
    }

    #[test]
    fn addresses_are_read() {
        assert_eq!(uri("localhost:8080", false), "http://localhost:8080/v2");
        assert_eq!(uri("localhost:8080", true), "https://localhost:8080/v2");
        assert_eq!(uri("http://localhost:8080/", true), "https://localhost:8080/v2");
        assert_eq!(uri("HTTPS://h/seldon/a/", false), "https://h/seldon/a/v2");
        assert_eq!(uri("[::1]:80", false), "http://[::1]:80/v2");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in ["", ":8080", "a b:80", "ftp://h", "h?a=b", "h/#x", "h/\u{7f}"] {
            assert!(Endpoint::parse(text, false).is_err(), "{text}");
        }
        let error = Endpoint::parse("ftp://h", false).unwrap_err();
        assert_eq!(error.to_string(), "`ftp://h` has the scheme `ftp`: expected `http`, `https`, or none");
    }
}
