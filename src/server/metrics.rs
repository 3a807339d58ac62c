//! The metrics server: its own port, one path.

use std::sync::Arc;

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode, Uri};

use super::respond;
use crate::telemetry::metrics::{self, Registry};

/// Serves the text form of `registry` at `endpoint`.
pub fn router(endpoint: &str, registry: Arc<Registry>) -> Router {
    let path = format!("/{}", endpoint.trim_start_matches('/'));
    let scrape = move || std::future::ready(scrape(&registry));
    Router::new()
        .route(&path, get(scrape))
        .fallback(async |uri: Uri| respond::not_found(&uri, ""))
        .method_not_allowed_fallback(async |method: Method, uri: Uri| respond::method_not_allowed(&method, &uri))
}

fn scrape(registry: &Registry) -> Response {
    match metrics::text(registry) {
        Ok(text) => {
            let mut response = Response::new(text.into());
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
            response
        }
        Err(_) => respond::error(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written"),
    }
}
