//! Traces with the OpenTelemetry SDK, exported to a collector over gRPC.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt, TraceFlags, TraceId,
    TraceState, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tokio::time::Instant;

use super::{RequestPhase, TracesError};
use crate::types::TraceContext;

/// The time limit for exporting the last spans at shutdown.
const LAST_EXPORT: Duration = Duration::from_secs(3);

/// Exports spans; none without an endpoint. Clones share the exporter.
#[derive(Debug, Clone, Default)]
pub struct Traces(Option<Arc<Exporting>>);

#[derive(Debug)]
struct Exporting {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

/// An open span, which ends when it is dropped.
#[derive(Debug)]
pub struct Span(opentelemetry_sdk::trace::Span);

impl Traces {
    /// Starts exporting spans to `endpoint`, for a service with this name and version. Must be called in a tokio runtime.
    ///
    /// # Errors
    ///
    /// Fails if the endpoint is invalid. If the collector is unreachable, this is logged later.
    pub fn start(endpoint: Option<&str>, name: &str, version: &str) -> Result<Self, TracesError> {
        let Some(endpoint) = endpoint.filter(|endpoint| !endpoint.is_empty()) else { return Ok(Self(None)) };
        let refused = |reason: String| TracesError { endpoint: endpoint.to_owned(), reason };
        if endpoint.starts_with("https:") {
            return Err(refused("TLS is not supported; run a collector on the same host to add it".to_owned()));
        }
        // Like the original, this also accepts a host and port without a scheme.
        let url = if endpoint.contains("://") { endpoint.to_owned() } else { format!("http://{endpoint}") };
        let exporter = SpanExporter::builder().with_tonic().with_endpoint(url).build();
        let exporter = exporter.map_err(|error| refused(error.to_string()))?;
        let resource = Resource::builder()
            .with_service_name(name.to_owned())
            .with_attribute(KeyValue::new("service.version", version.to_owned()))
            .build();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        let tracer = provider.tracer("mlserver");
        Ok(Self(Some(Arc::new(Exporting { provider, tracer }))))
    }

    /// Starts the server span of a request with these headers.
    pub fn request(&self, name: impl FnOnce() -> String, headers: &HeaderMap) -> Option<Span> {
        let Exporting { tracer, .. } = &**self.0.as_ref()?;
        let parent = parent(headers).map_or_else(Context::new, |parent| within(parent, true));
        Some(Span(SpanBuilder::from_name(name()).with_kind(SpanKind::Server).start_with_context(tracer, &parent)))
    }

    /// Starts the span of a batch, in the trace of the first of its sampled requests and linked to all of them.
    pub fn batch(&self, of: impl Iterator<Item = TraceContext>, requests: usize, rows: usize) -> Option<Span> {
        let Exporting { tracer, .. } = &**self.0.as_ref()?;
        let members: Vec<TraceContext> = of.filter(|member| member.sampled).collect();
        let parent = within(*members.first()?, false);
        let links = members.into_iter().map(|member| Link::with_context(span_context(member, false))).collect();
        let builder = SpanBuilder::from_name("batch").with_links(links);
        let mut span = Span(builder.start_with_context(tracer, &parent));
        span.set("mlserver.batch.requests", i64::try_from(requests).unwrap_or(i64::MAX));
        span.set("mlserver.batch.rows", i64::try_from(rows).unwrap_or(i64::MAX));
        Some(span)
    }

    /// Starts the span of a step, as a child of the span `of` of its request.
    pub fn step(&self, of: Option<TraceContext>, name: impl FnOnce() -> String) -> Option<Span> {
        let Exporting { tracer, .. } = &**self.0.as_ref()?;
        Some(Span(SpanBuilder::from_name(name()).start_with_context(tracer, &within(of?, false))))
    }

    /// Records a phase of a request as a child of the span `of`.
    pub fn record_phase(&self, of: Option<TraceContext>, phase: RequestPhase) {
        let (Some(exporting), Some(of)) = (&self.0, of) else { return };
        let RequestPhase { name, since, until, batch } = phase;
        let mut builder = SpanBuilder::from_name(name).with_start_time(to_system_time(since));
        if let Some(batch) = batch {
            builder = builder.with_links(vec![Link::with_context(span_context(batch, false))]);
        }
        let mut span = builder.start_with_context(&exporting.tracer, &within(of, false));
        span.end_with_timestamp(to_system_time(until));
    }

    /// Exports the remaining spans, for a limited time. Blocks.
    pub fn end(&self) {
        if let Some(exporting) = &self.0 {
            // The SDK logs failures.
            let _ = exporting.provider.shutdown_with_timeout(LAST_EXPORT);
        }
    }
}

impl Span {
    /// Returns the context for children of the span.
    pub fn context(&self) -> TraceContext {
        let context = self.0.span_context();
        TraceContext {
            trace: u128::from_be_bytes(context.trace_id().to_bytes()),
            span: u64::from_be_bytes(context.span_id().to_bytes()),
            sampled: context.is_sampled(),
        }
    }

    /// Sets an attribute.
    pub fn set(&mut self, key: &'static str, value: i64) {
        self.0.set_attribute(KeyValue::new(key, value));
    }

    /// Sets an attribute that is text.
    pub fn set_text(&mut self, key: &'static str, value: &str) {
        self.0.set_attribute(KeyValue::new(key, value.to_owned()));
    }

    /// Marks the span as failed because of an error of the server.
    pub fn fail(&mut self) {
        self.0.set_status(Status::error(""));
    }
}

/// Returns the span that the headers of a request name as its parent.
fn parent(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get(TraceContext::HEADER).and_then(|value| TraceContext::parse(value.to_str().ok()?))
}

fn span_context(context: TraceContext, remote: bool) -> SpanContext {
    let flags = if context.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    let (trace, span) = (TraceId::from(context.trace), SpanId::from(context.span));
    SpanContext::new(trace, span, flags, remote, TraceState::default())
}

fn within(parent: TraceContext, remote: bool) -> Context {
    Context::new().with_remote_span_context(span_context(parent, remote))
}

/// Converts an instant to wall-clock time.
fn to_system_time(instant: Instant) -> SystemTime {
    SystemTime::now() - instant.elapsed()
}
