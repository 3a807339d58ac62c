//! Answers that every HTTP server of ours gives alike.

use axum::body::Body;
use axum::response::Response;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderValue, Method, StatusCode, Uri};
use serde::Serialize;
use serde_json::json;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Answers with text that is JSON already.
pub(super) fn json_text(status: StatusCode, text: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, JSON);
    response
}

/// Answers with a value as compact JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let text = serde_json::to_vec(value).expect("plain data with string keys always serialises");
    json_text(status, text)
}

/// Answers `{"error": …}`, the one shape of every failure.
pub(super) fn error(status: StatusCode, message: &str) -> Response {
    json(status, &json!({ "error": message }))
}

/// Answers a path that is not served: without its trailing slash it might be.
pub(super) fn not_found(uri: &Uri, root_path: &str) -> Response {
    let path = uri.path();
    let trimmed = path.trim_end_matches('/');
    // Two slashes in front would name another host.
    if trimmed.len() < path.len() && trimmed.starts_with('/') && !trimmed.starts_with("//") {
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        if let Ok(location) = HeaderValue::from_str(&format!("{root_path}{trimmed}{query}")) {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            response.headers_mut().insert(LOCATION, location);
            return response;
        }
    }
    error(StatusCode::NOT_FOUND, &format!("there is nothing at {path}"))
}

/// Answers a path that is served for other methods.
pub(super) fn method_not_allowed(method: &Method, uri: &Uri) -> Response {
    error(StatusCode::METHOD_NOT_ALLOWED, &format!("{} does not answer {method}", uri.path()))
}
