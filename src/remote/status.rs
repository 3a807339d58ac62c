//! The status of a response, and what it and the headers mean for a run.

use std::fmt;
use std::time::{Duration, SystemTime};

use http::header::{AUTHORIZATION, COOKIE, DATE, LOCATION, PROXY_AUTHORIZATION, RETRY_AFTER, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use tonic::Code;

use super::FailureKind;
use super::printable::server_text;
use crate::http_client::Url;
use crate::types::without_credentials;

/// What is printed in place of secrets.
const HIDDEN: &str = "<hidden>";

/// The status of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseStatus {
    Http(u16),
    Grpc(Code),
}

impl ResponseStatus {
    /// Returns the HTTP status that means the same.
    pub(super) const fn http(self) -> u16 {
        match self {
            Self::Http(status) => status,
            Self::Grpc(code) => match code {
                Code::Ok => 200,
                Code::InvalidArgument | Code::OutOfRange => 400,
                Code::Unauthenticated => 401,
                Code::PermissionDenied => 403,
                Code::NotFound => 404,
                Code::AlreadyExists | Code::Aborted => 409,
                // As MLServer and this server use it.
                Code::FailedPrecondition => 422,
                Code::Unknown | Code::Internal | Code::DataLoss => 500,
                Code::Unimplemented => 501,
                Code::ResourceExhausted | Code::Unavailable | Code::Cancelled => 503,
                Code::DeadlineExceeded => 504,
            },
        }
    }
}

/// Writes the number of an HTTP status, or the name of a gRPC code as the gRPC specification spells it.
impl fmt::Display for ResponseStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = match self {
            Self::Http(status) => return status.fmt(formatter),
            Self::Grpc(code) => code,
        };
        for (index, character) in format!("{code:?}").chars().enumerate() {
            let separator = if index > 0 && character.is_uppercase() { "_" } else { "" };
            write!(formatter, "{separator}{}", character.to_ascii_uppercase())?;
        }
        Ok(())
    }
}

/// Returns what a status other than 200 means for the next request.
pub(super) const fn kind_of_status(status: u16) -> FailureKind {
    match status {
        429 | 503 => FailureKind::Overloaded,
        408 | 425 | 502 => FailureKind::Unavailable,
        504 => FailureKind::TimedOut,
        401 | 403 | 404 | 405 => FailureKind::AllRequests,
        300..=399 | 407 | 501 | 505 | 511 => FailureKind::Fatal,
        _ => FailureKind::Rejected,
    }
}

/// Returns what the user has to change if no request can be answered, because of a status that says nothing about its rows.
pub(super) fn fatal_message(status: u16, headers: &HeaderMap, url: &Url) -> Option<String> {
    Some(match status {
        300..=399 => match target_of_redirect(headers, url) {
            Some(target) => format!("the server redirects to {target}: use that address"),
            None => "the server redirects, but does not say where to".to_owned(),
        },
        407 => "the proxy requires authentication: add USER:PASSWORD@ to its address in HTTP_PROXY or HTTPS_PROXY"
            .to_owned(),
        501 => {
            "the server does not implement this request: is it a server of the Open Inference (V2) protocol?".to_owned()
        }
        505 => "the server does not support this version of HTTP: try without --http2".to_owned(),
        511 => "the network requires a login: open a web page in a browser and log in first".to_owned(),
        _ => return None,
    })
}

/// Returns the address that a redirect leads to, as `--url` takes it if the path below it stays the same.
fn target_of_redirect(headers: &HeaderMap, url: &Url) -> Option<String> {
    let target = url.join(headers.get(LOCATION)?.to_str().ok()?).ok()?;
    let target = without_credentials(target.as_str());
    let protocol_path = &url.path()[url.path().find("/v2/").unwrap_or_default()..];
    Some(server_text(target.strip_suffix(protocol_path).unwrap_or(&target)))
}

/// Returns how long the server asks to wait: seconds, or a date, which is compared with the date of the response.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let asked = text(RETRY_AFTER)?;
    if let Ok(seconds) = asked.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = httpdate::parse_http_date(asked).ok()?;
    // The clocks of client and server may differ.
    let now = text(DATE).and_then(|date| httpdate::parse_http_date(date).ok()).unwrap_or_else(SystemTime::now);
    Some(until.duration_since(now).unwrap_or_default())
}

/// Returns the value of a header for the terminal, or `<hidden>` if it is a secret.
pub(super) fn header_text(name: &HeaderName, value: &HeaderValue) -> String {
    if value.is_sensitive() || [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, SET_COOKIE].contains(name) {
        return HIDDEN.to_owned();
    }
    let text = String::from_utf8_lossy(value.as_bytes());
    server_text(&if *name == LOCATION { without_credentials(&text) } else { text.into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn redirect_names_the_address_to_use() {
        let url = Url::parse("http://h:80/seldon/v2/models/m/infer").unwrap();
        let message = |location| fatal_message(308, &headers(&[(LOCATION, location)]), &url).unwrap();
        let expected = "the server redirects to https://h/seldon: use that address";
        assert_eq!(message("https://h/seldon/v2/models/m/infer"), expected);
        assert_eq!(message("/login?next=1"), "the server redirects to http://h/login?<hidden>: use that address");
        assert_eq!(message("//me:pw@x/a"), "the server redirects to http://<hidden>@x/a: use that address");
        let nowhere = fatal_message(302, &HeaderMap::new(), &url).unwrap();
        assert_eq!(nowhere, "the server redirects, but does not say where to");
    }

    #[test]
    fn status_that_concerns_no_row_is_fatal() {
        let url = Url::parse("http://h/").unwrap();
        for status in [301, 302, 307, 308, 407, 501, 505, 511] {
            assert_eq!(kind_of_status(status), FailureKind::Fatal, "{status}");
            assert!(fatal_message(status, &HeaderMap::new(), &url).is_some(), "{status}");
        }
        assert_eq!((kind_of_status(504), kind_of_status(502)), (FailureKind::TimedOut, FailureKind::Unavailable));
        assert_eq!(fatal_message(500, &HeaderMap::new(), &url), None);
    }

    #[test]
    fn grpc_codes_have_http_statuses_and_names() {
        let shown = |code| (ResponseStatus::Grpc(code).http(), ResponseStatus::Grpc(code).to_string());
        assert_eq!(shown(Code::NotFound), (404, "NOT_FOUND".to_owned()));
        assert_eq!(shown(Code::Ok), (200, "OK".to_owned()));
        for code in (1..17).map(Code::from_i32) {
            assert!((400..600).contains(&ResponseStatus::Grpc(code).http()), "{code:?}");
        }
    }

    #[test]
    fn retry_after_may_be_a_date() {
        let asked = |pairs: &[_]| retry_after(&headers(pairs));
        assert_eq!(asked(&[(RETRY_AFTER, "7")]), Some(Duration::from_secs(7)));
        let dates = [(RETRY_AFTER, "Fri, 01 Jan 2027 00:00:09 GMT"), (DATE, "Fri, 01 Jan 2027 00:00:02 GMT")];
        assert_eq!(asked(&dates), Some(Duration::from_secs(7)));
        assert_eq!(asked(&[(RETRY_AFTER, "Fri, 01 Jan 1999 00:00:00 GMT")]), Some(Duration::ZERO));
        assert_eq!(asked(&[(RETRY_AFTER, "soon")]), None);
        assert_eq!(asked(&[]), None);
    }

    #[test]
    fn header_secrets_are_hidden() {
        let mut key = HeaderValue::from_static("s3cret");
        assert_eq!(header_text(&HeaderName::from_static("x-api-key"), &key), "s3cret");
        key.set_sensitive(true);
        assert_eq!(header_text(&HeaderName::from_static("x-api-key"), &key), HIDDEN);
        for name in [AUTHORIZATION, COOKIE, SET_COOKIE, PROXY_AUTHORIZATION] {
            assert_eq!(header_text(&name, &HeaderValue::from_static("s3cret")), HIDDEN);
        }
        assert_eq!(header_text(&LOCATION, &HeaderValue::from_static("http://a:b@h/")), "http://<hidden>@h/");
    }
}
