//! The web console: a page with its modules, which hold no data, and the routes of its data.
//!
//! The page is served to everybody, and asks for a key if the server has access control. It works under any prefix, because it contains
//! only relative URLs.

mod assets;
mod data;

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::errors::RequestError;
use super::openapi::{IMMUTABLE, generated, revalidate};
use super::respond::Response;
use super::route::{RouteSpec, RouteSubject};
use super::{Answer, Call, Handled};
use crate::access::Scope::{Open, Read};

/// The page may only load files from this server, show images that it makes itself, and send requests to this server, and no other page may show it in a frame, where a user
/// could be made to click a button.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data: blob:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'",
);

pub(super) const ROUTES: &[RouteSpec] = &[
    RouteSpec::get("/v2/console", Open, page).about(RouteSubject::Server).unobserved(),
    RouteSpec::get("/v2/console/assets/{file}", Open, asset).about(RouteSubject::Server).unobserved(),
    RouteSpec::get("/v2/console/data", Read, data::overview).about(RouteSubject::Server).unobserved(),
    RouteSpec::get("/v2/console/log", Read, data::log).about(RouteSubject::Server).unobserved(),
    RouteSpec::get("/v2/console/models/{model_name}", Read, data::model).about(RouteSubject::Server).unobserved(),
];

/// Reports whether a route belongs to the console, so that it is only served if the console is on.
pub(super) fn is_console(template: &str) -> bool {
    template.starts_with("/v2/console")
}

fn page(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move { Ok(page_below("console/", call.parts).into()) })
}

/// Returns the page for `/`, if the console is on and the client is a browser that asks for a page.
pub(super) fn page_for_root(call: &Call<'_>) -> Option<Response> {
    call.app.options.console.as_ref().filter(|_| prefers_html(&call.parts.headers))?;
    let mut page = page_below("v2/console/", call.parts);
    page.headers_mut().append(VARY, HeaderValue::from_static("accept"));
    Some(page)
}

/// Creates the page. `base` is where its files are, relative to the page.
fn page_below(base: &str, request: &Parts) -> Response {
    let text = assets::page(base);
    let mut response = generated(text, HeaderValue::from_static("text/html; charset=utf-8"));
    let headers = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    revalidate(response, request)
}

fn asset(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let path = call.path();
        let name = path.rsplit('/').next().unwrap_or_default();
        let unknown = || RequestError::other(StatusCode::NOT_FOUND, format!("no such path: {path}"));
        let asset = assets::find(name).ok_or_else(unknown)?;
        let mut response = Response::new(Bytes::from_static(asset.content.as_bytes()).into());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(CACHE_CONTROL, IMMUTABLE);
        Ok(Answer::from(response))
    })
}

/// Reports whether `Accept` names HTML, as browsers do for pages. Other clients name JSON, or accept anything.
fn prefers_html(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_html = parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("text/html"));
        let is_refused = parts
            .filter_map(|parameter| parameter.split_once('='))
            .any(|(name, quality)| name.trim().eq_ignore_ascii_case("q") && quality.trim().parse() == Ok(0.0_f32));
        is_html && !is_refused
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_that_name_html_get_the_page() {
        let prefers =
            |accept: &'static str| prefers_html(&HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(accept))]));
        for browser in ["text/html", "text/html,application/xhtml+xml,*/*;q=0.8", "image/png, Text/HTML;q=0.1"] {
            assert!(prefers(browser), "{browser}");
        }
        for other in ["*/*", "application/json", "text/*", "text/html;q=0", "text/html ; Q = 0.0", ""] {
            assert!(!prefers(other), "{other}");
        }
        assert!(!prefers_html(&HeaderMap::new()));
    }
}
