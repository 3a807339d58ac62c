//! Protects routes that change something from web pages that a user's browser shows.
//!
//! Browsers send some requests to any server without asking it first, but say which page sent them. A page may also point its
//! own name at a loopback address (DNS rebinding), so a server that listens there expects a local name.

use std::net::IpAddr;

use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderValue, StatusCode};

use super::cors::AllowedOrigins;

/// The types of bodies that pages of other sites may send without asking the server first.
const FORM_TYPES: [&str; 3] = ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];

/// The longest value that a message shows, in characters.
const MAX_SHOWN: usize = 100;

/// A request that may come from a page of another site.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallerError {
    #[error(
        "the origin `{origin}` may not change models: it is neither that of this server nor in `cors_settings.allow_origins`"
    )]
    Origin { origin: String },
    #[error(
        "the host `{host}` may not change models: the server listens on a loopback address; use `localhost`, or add \
         `http://{host}` to `cors_settings.allow_origins`"
    )]
    Host { host: String },
    #[error("the content type `{found}` is not supported: send application/json, or no body")]
    ContentType { found: String },
}

impl CallerError {
    pub(super) const fn status(&self) -> StatusCode {
        match self {
            Self::Origin { .. } | Self::Host { .. } => StatusCode::FORBIDDEN,
            Self::ContentType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }
}

/// Decides which callers may change something.
#[derive(Debug)]
pub(super) struct CallerCheck {
    origins: Option<AllowedOrigins>,
    /// The address that the server listens on, if it is a loopback address.
    loopback: Option<String>,
}

impl CallerCheck {
    pub(super) fn new(listens_on: &str, origins: Option<AllowedOrigins>) -> Self {
        Self { origins, loopback: is_loopback(listens_on).then(|| listens_on.to_owned()) }
    }

    /// Checks a request that changes something.
    pub(super) fn check(&self, parts: &Parts) -> Result<(), CallerError> {
        if let Some(found) = parts.headers.get(CONTENT_TYPE) {
            let text = String::from_utf8_lossy(found.as_bytes());
            let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            if FORM_TYPES.contains(&essence.as_str()) {
                return Err(CallerError::ContentType { found: shown(&text) });
            }
        }
        let header = parts.headers.get(HOST).and_then(|host| host.to_str().ok());
        let host = parts.uri.authority().map(Authority::as_str).or(header);
        if let (Some(listens_on), Some(host)) = (&self.loopback, host)
            && !self.is_local(listens_on, host)
        {
            return Err(CallerError::Host { host: shown(host) });
        }
        let Some(origin) = parts.headers.get(ORIGIN) else { return Ok(()) };
        let text = origin.to_str().unwrap_or_default();
        let of_server = text.split_once("://").zip(host).is_some_and(|((_, of), host)| of.eq_ignore_ascii_case(host));
        if of_server || self.allows(origin) {
            return Ok(());
        }
        Err(CallerError::Origin { origin: shown(text) })
    }

    fn is_local(&self, listens_on: &str, host: &str) -> bool {
        let name = host.parse::<Authority>().map_or_else(|_| host.to_owned(), |authority| authority.host().to_owned());
        let is_allowed = |scheme: &str| {
            HeaderValue::from_str(&format!("{scheme}://{host}")).is_ok_and(|origin| self.allows(&origin))
        };
        is_loopback(&name) || name.eq_ignore_ascii_case(listens_on) || is_allowed("http") || is_allowed("https")
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        self.origins.as_ref().is_some_and(|origins| origins.allows(origin))
    }
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::CorsSettings;
    use http::Request;
    use std::time::Duration;

    fn cors(origins: &[&str]) -> AllowedOrigins {
        AllowedOrigins::new(&CorsSettings {
            allow_origins: origins.iter().map(|&origin| origin.to_owned()).collect(),
            allow_origin_regex: Some("https://.*[.]trusted".to_owned()),
            allow_credentials: false,
            allow_methods: Vec::new(),
            allow_headers: Vec::new(),
            expose_headers: Vec::new(),
            max_age: Duration::ZERO,
        })
        .unwrap()
    }

    fn status(check: &CallerCheck, headers: &[(&str, &str)]) -> Option<u16> {
        let mut request = Request::post("/v2/repository/models/m/load");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        check.check(&request.body(()).unwrap().into_parts().0).err().map(|error| error.status().as_u16())
    }

    #[test]
    fn origin_must_be_that_of_the_server_or_allowed() {
        let check = CallerCheck::new("0.0.0.0", Some(cors(&["https://console"])));
        let of = |origin: &str| status(&check, &[("host", "models:8080"), ("origin", origin)]);
        assert_eq!(status(&check, &[("host", "models:8080")]), None);
        assert_eq!(of("http://models:8080"), None);
        assert_eq!(of("https://console"), None);
        assert_eq!(of("https://a.trusted"), None);
        for other in ["http://models", "http://evil", "null", "https://console.evil", "http://models:8080.evil"] {
            assert_eq!(of(other), Some(403), "{other}");
        }
        let without = CallerCheck::new("0.0.0.0", None);
        assert_eq!(status(&without, &[("host", "m"), ("origin", "https://console")]), Some(403));
    }

    #[test]
    fn loopback_server_expects_a_local_host() {
        let check = CallerCheck::new("127.0.0.1", Some(cors(&["http://proxied"])));
        for host in ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "127.8.8.8", "proxied"] {
            assert_eq!(status(&check, &[("host", host)]), None, "{host}");
        }
        for host in ["evil", "evil:8080", "localhost.evil", "127.0.0.1.evil:8080"] {
            assert_eq!(status(&check, &[("host", host)]), Some(403), "{host}");
            assert_eq!(status(&CallerCheck::new("0.0.0.0", None), &[("host", host)]), None, "{host}");
        }
    }

    #[test]
    fn form_types_are_rejected() {
        let check = CallerCheck::new("0.0.0.0", None);
        for found in
            ["text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "Multipart/Form-Data; boundary=x"]
        {
            assert_eq!(status(&check, &[("content-type", found)]), Some(415), "{found}");
        }
        for found in ["application/json", "application/json; charset=utf-8", "application/octet-stream"] {
            assert_eq!(status(&check, &[("content-type", found)]), None, "{found}");
        }
    }
}
