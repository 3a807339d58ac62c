//! URLs: their credentials, and the server in them.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use percent_encoding::percent_decode_str;
use reqwest::Url;

/// Removes the user name and the password from a URL, and returns them as the value of `Authorization`.
pub fn take_credentials(url: &mut Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let decode = |text: &str| percent_decode_str(text).collect::<Vec<u8>>();
    let pair = [decode(url.username()), decode(url.password().unwrap_or_default())].join(&b':');
    // Both fail only for URLs without a host, which have no credentials either.
    let _ = (url.set_username(""), url.set_password(None));
    let mut value = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Returns the host and port of a URL.
pub fn server_name(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_credentials_become_basic_auth() {
        let mut url = Url::parse("http://me:p%40ss%3A@localhost:8080/a").unwrap();
        let value = take_credentials(&mut url).unwrap();
        assert_eq!(value, format!("Basic {}", BASE64_STANDARD.encode("me:p@ss:")));
        assert!(value.is_sensitive());
        assert_eq!(url.as_str(), "http://localhost:8080/a");
        assert_eq!(take_credentials(&mut url), None);
    }

    #[test]
    fn server_name_has_the_port() {
        assert_eq!(server_name(&Url::parse("https://h/a").unwrap()), "h:443");
        assert_eq!(server_name(&Url::parse("http://[::1]:8080").unwrap()), "[::1]:8080");
    }
}
