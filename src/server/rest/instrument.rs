//! Metrics and the access log of the REST server.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::extract::MatchedPath;
use axum::response::Response;
use http::{Method, Request};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tower::{Layer, Service};
use tracing::debug;

use super::route;
use crate::telemetry::metrics::{REQUEST_BUCKETS, Registry};

/// The `app_name` label of the original.
const APP_NAME: &str = "mlserver";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    app_name: &'static str,
    method: &'static str,
    path: Arc<str>,
    status_code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    app_name: &'static str,
    method: &'static str,
}

/// Counts and times of requests by route. Health routes are left out, as in the original.
#[derive(Debug, Clone)]
pub struct RestMetrics {
    requests: Family<RequestLabels, Counter>,
    duration: Family<RequestLabels, Histogram, fn() -> Histogram>,
    in_progress: Family<MethodLabels, Gauge>,
}

impl RestMetrics {
    /// Makes the metrics and registers them under `prefix`.
    pub fn register(registry: &mut Registry, prefix: &str) -> Self {
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
            in_progress: Family::default(),
        };
        registry.register(format!("{prefix}_requests"), "Total HTTP requests", metrics.requests.clone());
        registry.register(
            format!("{prefix}_request_duration_seconds"),
            "HTTP request duration, in seconds",
            metrics.duration.clone(),
        );
        registry.register(
            format!("{prefix}_requests_in_progress"),
            "Total HTTP requests currently in progress",
            metrics.in_progress.clone(),
        );
        metrics
    }
}

/// Wraps the routes.
#[derive(Debug, Clone)]
pub(super) struct InstrumentLayer {
    metrics: Option<RestMetrics>,
}

impl InstrumentLayer {
    pub(super) const fn new(metrics: Option<RestMetrics>) -> Self {
        Self { metrics }
    }
}

impl<S> Layer<S> for InstrumentLayer {
    type Service = Instrument<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Instrument { inner, metrics: self.metrics.clone() }
    }
}

/// A route with its metrics.
#[derive(Debug, Clone)]
pub(super) struct Instrument<S> {
    inner: S,
    metrics: Option<RestMetrics>,
}

impl<S, B> Service<Request<B>> for Instrument<S>
where
    S: Service<Request<B>, Response = Response>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let matched = request.extensions().get::<MatchedPath>();
        let health = matched.is_none_or(|path| [route::LIVE, route::READY].contains(&path.as_str()));
        if health {
            return Box::pin(self.inner.call(request));
        }
        let path: Arc<str> = matched.map_or("", MatchedPath::as_str).into();
        let method = method_name(request.method());
        let access = tracing::enabled!(tracing::Level::DEBUG).then(|| request.uri().path().to_owned());
        let metrics = self.metrics.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let started = Instant::now();
            let in_progress = metrics.as_ref().map(|metrics| InProgress::start(metrics, method));
            let response = answer.await?;
            drop(in_progress);
            let elapsed = started.elapsed();
            let status_code = response.status().as_u16();
            if let Some(uri) = access {
                let milliseconds = elapsed.as_secs_f64() * 1e3;
                debug!(target: "mlserver.rest", method, uri, status_code, milliseconds, "Answered.");
            }
            if let Some(metrics) = metrics {
                let labels = RequestLabels { app_name: APP_NAME, method, path, status_code };
                metrics.requests.get_or_create(&labels).inc();
                metrics.duration.get_or_create(&labels).observe(elapsed.as_secs_f64());
            }
            Ok(response)
        })
    }
}

/// Counts a request as in progress until it is dropped, however it ends.
struct InProgress(Gauge);

impl InProgress {
    fn start(metrics: &RestMetrics, method: &'static str) -> Self {
        let gauge = metrics.in_progress.get_or_create_owned(&MethodLabels { app_name: APP_NAME, method });
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The method as a label; whatever routes do not serve shares one.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::HEAD => "HEAD",
        _ => "OTHER",
    }
}
