//! Metrics and the access log of the REST server.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use http::request::Parts;
use http::{Method, StatusCode, Uri};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tracing::debug;

use super::App;
use super::router::{self, Route};
use crate::access::{Grant, Principal, Scope};
use crate::telemetry::metrics::{REQUEST_BUCKETS, Registry};
use crate::telemetry::traces::Span;
use crate::types::TraceContext;

/// The `app_name` label of the original.
const APP_NAME: &str = "mlserver";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    app_name: &'static str,
    method: &'static str,
    path: Cow<'static, str>,
    status_code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabels {
    app_name: &'static str,
    method: &'static str,
}

/// Counts and durations of requests by route. Health routes are not included, as in the original.
#[derive(Debug, Clone)]
pub struct RestMetrics {
    requests: Family<RequestLabels, Counter>,
    duration: Family<RequestLabels, Histogram, fn() -> Histogram>,
    in_progress: Family<MethodLabels, Gauge>,
    /// The series of each route's most common response, looked up once.
    common: Arc<[OnceLock<CommonSeries>]>,
}

/// The series of a route with its usual method and status 200.
#[derive(Debug)]
struct CommonSeries {
    method: &'static str,
    requests: Counter,
    duration: Histogram,
    in_progress: Gauge,
}

impl RestMetrics {
    /// Creates the metrics and registers them under `prefix`.
    pub fn register(registry: &mut Registry, prefix: &str) -> Self {
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
            in_progress: Family::default(),
            common: router::table().map(|_| OnceLock::new()).collect(),
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

    fn gauge(&self, method: &'static str) -> Gauge {
        self.in_progress.get_or_create_owned(&MethodLabels { app_name: APP_NAME, method })
    }

    fn record(&self, series: &RequestSeries, status: StatusCode, elapsed: Duration) {
        let method = series.method;
        let seconds = elapsed.as_secs_f64();
        let labels = |status: StatusCode| RequestLabels {
            app_name: APP_NAME,
            method,
            path: series.path.clone(),
            status_code: status.as_u16(),
        };
        if status == StatusCode::OK
            && let Some(index) = series.index
        {
            let common = self.common[index].get_or_init(|| CommonSeries {
                method,
                requests: self.requests.get_or_create_owned(&labels(status)),
                duration: self.duration.get_or_create_owned(&labels(status)),
                in_progress: self.gauge(method),
            });
            if common.method == method {
                common.requests.inc();
                common.duration.observe(seconds);
                return;
            }
        }
        self.requests.get_or_create(&labels(status)).inc();
        self.duration.get_or_create(&labels(status)).observe(seconds);
    }

    fn start(&self, series: &RequestSeries) -> InProgress {
        let common =
            series.index.and_then(|index| self.common[index].get()).filter(|common| common.method == series.method);
        let gauge = common.map_or_else(|| self.gauge(series.method), |common| common.in_progress.clone());
        gauge.inc();
        InProgress(gauge)
    }
}

/// Identifies the series that count a request.
#[derive(Debug, Clone)]
struct RequestSeries {
    /// The index of the route. `None` for a model's own route.
    index: Option<usize>,
    path: Cow<'static, str>,
    method: &'static str,
    /// The permission that a caller needs; a model's own route counts as inference.
    scope: Scope,
}

/// Observes a request in flight. It is dropped without [`Observation::end`] if the client disconnects.
#[derive(Debug)]
pub(super) struct Observation {
    series: RequestSeries,
    started: Instant,
    in_progress: Option<InProgress>,
    span: Option<Span>,
    /// The sender, if there is access control.
    principal: Option<Arc<Principal>>,
}

impl Observation {
    /// Starts observing a request. `None` for health checks.
    pub(super) fn start(app: &App, route: &Route<'_>, parts: &Parts, grant: Option<&Grant>) -> Option<Self> {
        if !route.spec.observed {
            return None;
        }
        Some(Self::of(app, Some(route), route.spec.template.into(), parts, grant))
    }

    /// Starts observing a call of a model's own route.
    pub(super) fn of_custom(app: &App, template: String, parts: &Parts, grant: Option<&Grant>) -> Self {
        Self::of(app, None, template.into(), parts, grant)
    }

    fn of(app: &App, route: Option<&Route<'_>>, path: Cow<'static, str>, parts: &Parts, grant: Option<&Grant>) -> Self {
        let series = RequestSeries {
            index: route.map(|route| route.index),
            path,
            method: method_name(&parts.method),
            scope: route.map_or(Scope::Infer, |route| route.spec.scope),
        };
        let in_progress = app.metrics.as_ref().map(|metrics| metrics.start(&series));
        let name = || format!("{} {}", series.method, series.path);
        let mut span = app.inference.traces().request(name, &parts.headers);
        let principal = grant.map(|grant| Arc::clone(grant.principal()));
        if let (Some(span), Some(principal)) = (&mut span, &principal) {
            span.set_text("enduser.id", principal.name());
        }
        Self { series, started: Instant::now(), in_progress, span, principal }
    }

    /// Returns the context that spans of the request's steps belong to.
    pub(super) fn trace(&self) -> Option<TraceContext> {
        self.span.as_ref().map(Span::context)
    }

    /// Records the response in `metrics`, the ones that the observation was started with.
    pub(super) fn end(self, metrics: Option<&RestMetrics>, uri: &Uri, status: StatusCode) {
        let elapsed = self.started.elapsed();
        drop(self.in_progress);
        if let Some(mut span) = self.span {
            span.set("http.response.status_code", status.as_u16().into());
            if status.is_server_error() {
                span.fail();
            }
        }
        if let Some(metrics) = metrics {
            metrics.record(&self.series, status, elapsed);
        }
        let RequestSeries { method, scope, .. } = self.series;
        let principal = self.principal.as_deref().map(Principal::name);
        let (scope, status_code, milliseconds) = (scope.name(), status.as_u16(), elapsed.as_secs_f64() * 1e3);
        debug!(target: "mlserver.rest", method, scope, principal, uri = uri.path(), status_code, milliseconds, "Answered.");
    }
}

/// Counts a request as in progress until it is dropped, however it ends.
#[derive(Debug)]
struct InProgress(Gauge);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Returns the method as a label; methods that no route serves share one.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::HEAD => "HEAD",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        _ => "OTHER",
    }
}
