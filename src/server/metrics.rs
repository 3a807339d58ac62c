//! The metrics server: its own port, one path.

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Request, StatusCode, Uri};

use super::panic_boundary::{self, RequestPanicked};
use super::{HttpService, PacedRequestBody, access_control, head, respond};
use crate::access::{Access, Grant, Scope};
use crate::telemetry::exposition::{Expositions, MetricsSource};
use crate::telemetry::metrics::{self, Registry};

/// The metrics that a scrape returns.
pub struct Metrics {
    /// The server's own metrics.
    pub registry: Registry,
    /// Metrics that models maintain themselves, and the source that they are refreshed from before each scrape.
    pub models: Expositions,
    pub source: Arc<dyn MetricsSource>,
}

/// A service that exposes metrics as text at one path. Clones share its state.
#[derive(Clone)]
pub struct MetricsService {
    path: Arc<str>,
    metrics: Arc<Metrics>,
    access: Option<Access>,
}

impl MetricsService {
    /// Creates the service of `metrics` at `endpoint`.
    pub fn new(endpoint: &str, metrics: Metrics, access: Option<Access>) -> Self {
        Self { path: endpoint.into(), metrics: Arc::new(metrics), access }
    }
}

impl<B: PacedRequestBody + 'static> HttpService<B> for MetricsService {
    type Body = respond::BodyChunks;

    fn call(&self, request: Request<B>) -> impl Future<Output = respond::Response> + Send + use<B> {
        let Self { path, metrics, access } = self.clone();
        async move {
            let (parts, mut body) = request.into_parts();
            if let Err(error) = head::check(&parts.uri, &parts.headers) {
                return respond::error(error.status(), &error.to_string());
            }
            let grant = match &access {
                None => Ok(None),
                Some(access) => {
                    let scope = Scope::Metrics;
                    access_control::authorize(access, &parts, &mut body, scope, "").await
                }
            };
            let mut grant = match grant {
                Ok(grant) => grant,
                Err(refusal) => {
                    let mut response = access_control::refuse(&refusal);
                    access_control::hold_mark(&mut response, body.without_right());
                    return response;
                }
            };
            let answered = panic_boundary::contain(&path, answer(&parts.method, &parts.uri, &path, &metrics)).await;
            let failed =
                |panicked: RequestPanicked| respond::error(StatusCode::INTERNAL_SERVER_ERROR, &panicked.to_string());
            let mut response = answered.unwrap_or_else(failed);
            access_control::hold_permit(&mut response, grant.as_mut().and_then(Grant::take_permit));
            response
        }
    }
}

async fn answer(method: &Method, uri: &Uri, path: &str, metrics: &Metrics) -> respond::Response {
    if uri.path() != path {
        return respond::not_found(uri.path(), uri, "");
    }
    if method != Method::GET && method != Method::HEAD {
        return respond::method_not_allowed(method, uri, "GET,HEAD");
    }
    metrics.source.refresh().await;
    match metrics::text(&metrics.registry) {
        Ok(mut text) => {
            let models = metrics.models.text(&metrics::names(&text));
            text.push_str(&models);
            let mut response = respond::Response::new(text.into());
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
            response
        }
        Err(_) => respond::error(StatusCode::INTERNAL_SERVER_ERROR, "cannot encode the metrics"),
    }
}
