//! Protects the server from web pages of other sites that a user's browser shows.
//!
//! Browsers send some requests to any server without asking it first, but say which page sent them. A page may also point its
//! own name at a loopback address (DNS rebinding), so a server that listens there expects a local name from pages. Clients other than
//! browsers say nothing of a page, and are not affected.

use std::collections::BTreeSet;
use std::net::IpAddr;

use http::header::{CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderName, HeaderValue, StatusCode};

use super::cors::AllowedOrigins;
use crate::server::head::SEC_FETCH_SITE;

/// The host that a proxy was asked for. Pages of other sites cannot set it.
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The names of this machine.
const HOSTS_FILE: &str = "/etc/hosts";

/// The types of bodies that pages of other sites may send without asking the server first.
const FORM_TYPES: [&str; 3] = ["application/x-www-form-urlencoded", "multipart/form-data", "text/plain"];

/// The longest value that a message shows, in characters.
const MAX_SHOWN: usize = 100;

/// A request that may come from a page of another site.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallerError {
    #[error(
        "pages of the origin `{origin}` may not send this request: it is neither that of this server nor in \
         `cors_settings.allow_origins`"
    )]
    Origin { origin: String },
    #[error("pages of other sites may not send this request; list their origins in `cors_settings.allow_origins`")]
    CrossSite,
    #[error(
        "the host `{host}` is refused, because the server listens on a loopback address: use `localhost`, or add \
         `http://{host}` to `cors_settings.allow_origins`"
    )]
    Host { host: String },
    #[error("the content type `{found}` is not supported: send application/json, or no body")]
    ContentType { found: String },
}

impl CallerError {
    pub(super) const fn status(&self) -> StatusCode {
        match self {
            Self::Origin { .. } | Self::CrossSite | Self::Host { .. } => StatusCode::FORBIDDEN,
            Self::ContentType { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        }
    }
}

/// Decides which requests of web pages are answered.
#[derive(Debug)]
pub(super) struct CallerCheck {
    origins: Option<AllowedOrigins>,
    /// The names of the server, if it listens on a loopback address only.
    local: Option<BTreeSet<String>>,
}

impl CallerCheck {
    /// `listens_on` is the host of the settings.
    pub(super) fn new(listens_on: &str, origins: Option<AllowedOrigins>) -> Self {
        // Without the file, this machine has no other names.
        let hosts = || std::fs::read_to_string(HOSTS_FILE).unwrap_or_default();
        Self::with_hosts(listens_on, origins, hosts)
    }

    fn with_hosts(listens_on: &str, origins: Option<AllowedOrigins>, hosts: impl FnOnce() -> String) -> Self {
        let local = is_loopback(listens_on).then(|| {
            let mut names = loopback_names(&hosts());
            names.insert(listens_on.to_ascii_lowercase());
            names
        });
        Self { origins, local }
    }

    /// Checks a request that changes models, of any client.
    pub(super) fn check_change(&self, parts: &Parts) -> Result<(), CallerError> {
        if let Some(found) = parts.headers.get(CONTENT_TYPE) {
            let text = String::from_utf8_lossy(found.as_bytes());
            let essence = text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
            if FORM_TYPES.contains(&essence.as_str()) {
                return Err(CallerError::ContentType { found: shown(&text) });
            }
        }
        self.check_host(parts)
    }

    /// Checks a request that a browser sent for a page, unless it only reads.
    pub(super) fn check_page(&self, parts: &Parts) -> Result<(), CallerError> {
        self.check_host(parts)?;
        let site = parts.headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes);
        let Some(origin) = parts.headers.get(ORIGIN) else {
            let is_foreign =
                matches!(site, Some(b"cross-site")) && !self.origins.as_ref().is_some_and(AllowedOrigins::allow_any);
            return if is_foreign { Err(CallerError::CrossSite) } else { Ok(()) };
        };
        let text = origin.to_str().unwrap_or_default();
        let asked = [host(parts), forwarded_host(parts)];
        let is_own = |(_, of): (&str, &str)| asked.iter().flatten().any(|host| of.eq_ignore_ascii_case(host));
        // Behind a proxy, only the browser knows which host it asked.
        if matches!(site, Some(b"same-origin")) || text.split_once("://").is_some_and(is_own) || self.allows(origin) {
            return Ok(());
        }
        Err(CallerError::Origin { origin: shown(text) })
    }

    fn check_host(&self, parts: &Parts) -> Result<(), CallerError> {
        match (&self.local, host(parts)) {
            (Some(names), Some(host)) if !self.is_local(names, host) => Err(CallerError::Host { host: shown(host) }),
            _ => Ok(()),
        }
    }

    fn is_local(&self, names: &BTreeSet<String>, host: &str) -> bool {
        let name = host.parse::<Authority>().map_or_else(|_| host.to_owned(), |authority| authority.host().to_owned());
        let is_allowed = |scheme: &str| {
            HeaderValue::from_str(&format!("{scheme}://{host}")).is_ok_and(|origin| self.allows(&origin))
        };
        is_loopback(&name) || names.contains(&name.to_ascii_lowercase()) || is_allowed("http") || is_allowed("https")
    }

    fn allows(&self, origin: &HeaderValue) -> bool {
        self.origins.as_ref().is_some_and(|origins| origins.allows(origin))
    }
}

/// Reports whether a request asks for a loopback address by its number or as `localhost`, and no proxy has passed it on.
pub(super) fn is_local(parts: &Parts) -> bool {
    const PROXIES: [&str; 4] = ["forwarded", "via", "x-forwarded-for", "x-forwarded-host"];
    let name = host(parts).and_then(|host| host.parse::<Authority>().ok());
    name.is_some_and(|authority| is_loopback(authority.host()))
        && !PROXIES.iter().any(|header| parts.headers.contains_key(*header))
}

/// Returns the host and port that a request asks for.
fn host(parts: &Parts) -> Option<&str> {
    let header = || parts.headers.get(HOST).and_then(|host| host.to_str().ok());
    parts.uri.authority().map(Authority::as_str).or_else(header)
}

fn forwarded_host(parts: &Parts) -> Option<&str> {
    let first = parts.headers.get(X_FORWARDED_HOST)?.to_str().ok()?.split(',').next();
    first.map(str::trim)
}

/// Returns the names of loopback addresses in a file of hosts.
fn loopback_names(hosts: &str) -> BTreeSet<String> {
    let names = hosts.lines().flat_map(|line| {
        let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
        let is_loopback = words.next().is_some_and(is_loopback);
        words.filter(move |_| is_loopback)
    });
    names.map(str::to_ascii_lowercase).collect()
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let bare = bare.trim_end_matches('.').to_ascii_lowercase();
    bare == "localhost"
        || bare.ends_with(".localhost")
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
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

    fn request(headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::post("/v2/models/m/infer");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn page(check: &CallerCheck, headers: &[(&str, &str)]) -> Option<u16> {
        check.check_page(&request(headers)).err().map(|error| error.status().as_u16())
    }

    fn change(check: &CallerCheck, headers: &[(&str, &str)]) -> Option<u16> {
        check.check_change(&request(headers)).err().map(|error| error.status().as_u16())
    }

    #[test]
    fn origin_must_be_that_of_the_server_or_allowed() {
        let check = CallerCheck::new("0.0.0.0", Some(cors(&["https://console"])));
        let of = |origin: &str| page(&check, &[("host", "models:8080"), ("origin", origin)]);
        for own in ["http://models:8080", "https://MODELS:8080", "https://console", "https://a.trusted"] {
            assert_eq!(of(own), None, "{own}");
        }
        for other in ["http://models", "http://evil", "null", "https://console.evil", "http://models:8080.evil", ""] {
            assert_eq!(of(other), Some(403), "{other}");
        }
        let without = CallerCheck::new("0.0.0.0", None);
        assert_eq!(page(&without, &[("host", "m"), ("origin", "https://console")]), Some(403));
        assert_eq!(page(&CallerCheck::new("0.0.0.0", Some(cors(&["*"]))), &[("host", "m"), ("origin", "null")]), None);
        assert_eq!(
            page(&CallerCheck::new("0.0.0.0", Some(cors(&["null"]))), &[("host", "m"), ("origin", "null")]),
            None
        );
    }

    #[test]
    fn page_behind_a_proxy_is_that_of_the_server() {
        let check = CallerCheck::new("0.0.0.0", None);
        let with = |name: &str, value: &str| {
            page(&check, &[("host", "upstream:8080"), ("origin", "https://models.example"), (name, value)])
        };
        assert_eq!(with("x-other", ""), Some(403));
        assert_eq!(with("x-forwarded-host", "models.example"), None);
        assert_eq!(with("x-forwarded-host", "models.example, inner"), None);
        assert_eq!(with("sec-fetch-site", "same-origin"), None);
        for site in ["cross-site", "same-site", "none"] {
            assert_eq!(with("sec-fetch-site", site), Some(403), "{site}");
        }
    }

    #[test]
    fn request_of_another_site_without_an_origin_is_refused() {
        let check = CallerCheck::new("0.0.0.0", Some(cors(&["https://console"])));
        let of = |site: &str| page(&check, &[("host", "models"), ("sec-fetch-site", site)]);
        assert_eq!(of("cross-site"), Some(403));
        assert_eq!((of("same-origin"), of("same-site"), of("none")), (None, None, None));
        let any = CallerCheck::new("0.0.0.0", Some(cors(&["*"])));
        assert_eq!(page(&any, &[("host", "models"), ("sec-fetch-site", "cross-site")]), None);
    }

    #[test]
    fn loopback_server_expects_a_local_host() {
        let hosts =
            || "# names\n127.0.0.1 localhost\n127.0.1.1\tbox box.example # me\n::1 six\n10.0.0.1 evil\n".to_owned();
        let check = CallerCheck::with_hosts("127.0.0.1", Some(cors(&["http://proxied"])), hosts);
        let names = [
            "localhost",
            "localhost:8080",
            "LOCALHOST.",
            "app.localhost",
            "127.0.0.1:8080",
            "[::1]:8080",
            "127.8.8.8",
            "proxied",
            "box",
            "Box:8080",
            "box.example:8080",
            "six",
        ];
        for host in names {
            assert_eq!(change(&check, &[("host", host)]), None, "{host}");
            assert_eq!(page(&check, &[("host", host), ("origin", &format!("http://{host}"))]), None, "{host}");
        }
        for host in ["evil", "evil:8080", "localhost.evil", "127.0.0.1.evil:8080", "notlocalhost", "me"] {
            assert_eq!(change(&check, &[("host", host)]), Some(403), "{host}");
            let same = [("host", host), ("origin", &format!("http://{host}")), ("sec-fetch-site", "same-origin")];
            assert_eq!(page(&check, &same), Some(403), "{host}");
            assert_eq!(change(&CallerCheck::new("0.0.0.0", None), &[("host", host)]), None, "{host}");
        }
    }

    #[test]
    fn form_types_may_not_change_models() {
        let check = CallerCheck::new("0.0.0.0", None);
        for found in
            ["text/plain;charset=UTF-8", "application/x-www-form-urlencoded", "Multipart/Form-Data; boundary=x"]
        {
            assert_eq!(change(&check, &[("content-type", found)]), Some(415), "{found}");
        }
        for found in ["application/json", "application/json; charset=utf-8", "application/octet-stream"] {
            assert_eq!(change(&check, &[("content-type", found)]), None, "{found}");
        }
    }
}
