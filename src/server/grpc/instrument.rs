//! Metrics and the access log of the gRPC server.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use http::HeaderMap;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use tonic::Code;
use tracing::debug;

use super::App;
use super::method::{METHODS, Method};
use super::status::code_name;
use crate::access::{Grant, Principal};
use crate::telemetry::metrics::{REQUEST_BUCKETS, Registry};
use crate::telemetry::traces::Span;
use crate::types::TraceContext;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
#[expect(clippy::struct_field_names, reason = "the names are those of the labels")]
struct MethodLabels {
    grpc_method: &'static str,
    grpc_service: &'static str,
    grpc_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    grpc_code: &'static str,
    #[prometheus(flatten)]
    method: MethodLabels,
}

impl From<Method> for MethodLabels {
    fn from(method: Method) -> Self {
        let spec = method.spec;
        Self { grpc_method: spec.name, grpc_service: spec.service, grpc_type: spec.kind.label() }
    }
}

/// Counts and durations of calls by method. The labels are bounded: the known methods and the codes of the protocol.
#[derive(Debug, Clone)]
pub struct GrpcMetrics {
    started: Family<MethodLabels, Counter>,
    handled: Family<CodeLabels, Counter>,
    handling: Family<MethodLabels, Histogram, fn() -> Histogram>,
    received: Family<MethodLabels, Counter>,
    sent: Family<MethodLabels, Counter>,
    /// The series of each method's successful calls, looked up once.
    common: Arc<[OnceLock<CommonSeries>; METHODS]>,
}

/// The series of a method and of its code `OK`.
#[derive(Debug)]
struct CommonSeries {
    started: Counter,
    handled: Counter,
    handling: Histogram,
}

impl GrpcMetrics {
    /// Creates the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            started: Family::default(),
            handled: Family::default(),
            handling: Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
            received: Family::default(),
            sent: Family::default(),
            common: Arc::default(),
        };
        let Self { started, handled, handling, received, sent, .. } = metrics.clone();
        registry.register("grpc_server_started", "Total number of RPCs started on the server.", started);
        let help = "Total number of RPCs completed on the server, regardless of success or failure.";
        registry.register("grpc_server_handled", help, handled);
        let help =
            "Histogram of response latency (seconds) of gRPC that had been application-level handled by the server.";
        registry.register("grpc_server_handling_seconds", help, handling);
        let help = "Total number of RPC stream messages received on the server.";
        registry.register("grpc_server_msg_received", help, received);
        registry.register("grpc_server_msg_sent", "Total number of gRPC stream messages sent by the server.", sent);
        metrics
    }

    fn common(&self, method: Method) -> &CommonSeries {
        self.common[method.index].get_or_init(|| CommonSeries {
            started: self.started.get_or_create_owned(&method.into()),
            handled: self.handled.get_or_create_owned(&code_labels(method, Code::Ok)),
            handling: self.handling.get_or_create_owned(&method.into()),
        })
    }
}

fn code_labels(method: Method, code: Code) -> CodeLabels {
    CodeLabels { grpc_code: code_name(code), method: method.into() }
}

/// Observes a call in flight. A call whose observation is dropped without [`Observation::end`] was cancelled by the client.
#[derive(Debug)]
pub(super) struct Observation {
    method: Method,
    started: Instant,
    metrics: Option<GrpcMetrics>,
    ended: bool,
    span: Option<Span>,
    /// The caller, if there is access control.
    principal: Option<Arc<Principal>>,
}

impl Observation {
    /// Starts observing a call.
    pub(super) fn start(app: &App, method: Method, headers: &HeaderMap, grant: Option<&Grant>) -> Self {
        let metrics = app.metrics.clone();
        if let Some(metrics) = &metrics {
            metrics.common(method).started.inc();
        }
        let name = || format!("{}/{}", method.spec.service, method.spec.name);
        let mut span = if method.spec.is_probe { None } else { app.inference.traces().request(name, headers) };
        let principal = grant.map(|grant| Arc::clone(grant.principal()));
        if let (Some(span), Some(principal)) = (&mut span, &principal) {
            span.set_text("enduser.id", principal.name());
        }
        Self { method, started: Instant::now(), metrics, ended: false, span, principal }
    }

    /// Returns the name of the method.
    pub(super) const fn method(&self) -> &'static str {
        self.method.spec.name
    }

    /// Returns the context that spans of the call's steps belong to.
    pub(super) fn trace(&self) -> Option<TraceContext> {
        self.span.as_ref().map(Span::context)
    }

    /// Returns the counter of messages that the client streams.
    pub(super) fn received(&self) -> Option<Counter> {
        Some(self.metrics.as_ref()?.received.get_or_create_owned(&self.method.into()))
    }

    /// Counts a message that is streamed to the client.
    pub(super) fn sent(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.sent.get_or_create(&self.method.into()).inc();
        }
    }

    /// Records the result of the call.
    pub(super) fn end(mut self, code: Code) {
        self.record(code);
        self.ended = true;
    }

    fn record(&mut self, code: Code) {
        let elapsed = self.started.elapsed();
        if let Some(span) = &mut self.span {
            span.set("rpc.grpc.status_code", (code as i32).into());
            if matches!(code, Code::Internal | Code::Unknown | Code::Unavailable | Code::DeadlineExceeded) {
                span.fail();
            }
        }
        let method = self.method;
        if let Some(metrics) = &self.metrics {
            let common = metrics.common(method);
            common.handling.observe(elapsed.as_secs_f64());
            if code == Code::Ok {
                common.handled.inc();
            } else {
                metrics.handled.get_or_create(&code_labels(method, code)).inc();
            }
        }
        let (spec, milliseconds) = (method.spec, elapsed.as_secs_f64() * 1e3);
        let principal = self.principal.as_deref().map(Principal::name);
        let (service, name, scope) = (spec.service, spec.name, spec.scope.name());
        debug!(target: "mlserver.grpc", service, method = name, scope, principal, code = code_name(code), milliseconds, "Answered.");
    }
}

impl Drop for Observation {
    fn drop(&mut self) {
        if !self.ended {
            self.record(Code::Cancelled);
        }
    }
}
