//! The metrics server: its own port, one path.

use std::convert::Infallible;
use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, StatusCode, Uri};

use super::{HttpService, respond};
use crate::telemetry::metrics::{self, Registry};

/// Serves the text form of `registry` at `endpoint`.
pub fn service<B: Send + 'static>(
    endpoint: &str,
    registry: Arc<Registry>,
) -> impl HttpService<B, Body = respond::Parts> {
    let path: Arc<str> = endpoint.into();
    tower::service_fn(move |request: Request<B>| {
        let response = answer(request.method(), request.uri(), &path, &registry);
        std::future::ready(Ok::<_, Infallible>(response))
    })
}

fn answer(method: &Method, uri: &Uri, path: &str, registry: &Registry) -> respond::Response {
    if uri.path() != path {
        return respond::not_found(uri.path(), uri, "");
    }
    if method != Method::GET && method != Method::HEAD {
        return respond::method_not_allowed(method, uri, "GET,HEAD");
    }
    match metrics::text(registry) {
        Ok(text) => {
            let mut response = respond::Response::new(text.into());
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
            response
        }
        Err(_) => respond::error(StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written"),
    }
}
