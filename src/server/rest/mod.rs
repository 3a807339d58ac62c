//! The V2 (Open Inference) protocol over HTTP.
//!
//! Routes, bodies and headers are those of the original. What differs on purpose: every failure is `{"error": …}`,
//! readiness says which model is not ready and why, and the health routes answer with a body, which `KServe`'s client reads.

mod body;
mod compress;
mod cors;
mod custom;
mod deadline;
mod errors;
mod health;
mod infer;
mod instrument;
mod metadata;
mod openapi;
mod repository;
mod route;
mod stream;

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderValue, Request, Version};
use tower::util::option_layer;
use tower::{ServiceBuilder, service_fn};
use tower_http::cors::CorsLayer;

pub use super::respond::ResponseBody;
pub use cors::layer as cors_layer;
pub use custom::is_reserved;
pub use instrument::RestMetrics;

use super::cloud_events::CloudEvents;
use super::{BodyFailure, HttpService, respond};
use crate::admin::Admin;
use crate::compute::ComputePool;
use crate::inference::{Admission, Inference};
use crate::types::ServerMetadata;
use crate::types::json::NonFinite;
use instrument::Observation;
use respond::Response;
use route::{Action, Route};

/// What the REST server needs to know.
#[derive(Debug)]
pub struct RestOptions {
    pub metadata: ServerMetadata,
    /// The prefix of all paths, such as `/serving`; empty for none. Paths without it are served too, because a proxy in
    /// front may have taken it away.
    pub root_path: String,
    /// The largest body, in bytes, before and after decompression.
    pub max_body_bytes: usize,
    /// Compress long answers for clients that accept gzip.
    pub gzip: bool,
    pub cors: Option<CorsLayer>,
    /// What stands for NaN and infinities in JSON.
    pub non_finite: NonFinite,
    /// Refuse what is too much with 429 instead of 503.
    pub overload_as_429: bool,
}

/// What handlers share.
#[derive(Debug)]
struct App {
    inference: Inference,
    admin: Admin,
    compute: ComputePool,
    metrics: Option<RestMetrics>,
    metadata: ServerMetadata,
    max_body_bytes: usize,
    root_path: String,
    gzip: bool,
    non_finite: NonFinite,
    overload_as_429: bool,
    cloud_events: CloudEvents,
}

/// Makes the REST service.
pub fn service<B>(
    inference: Inference,
    admin: Admin,
    compute: ComputePool,
    metrics: Option<RestMetrics>,
    options: RestOptions,
) -> impl HttpService<B, Body = ResponseBody>
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>> + Send + Unpin + 'static,
{
    let app = Arc::new(App {
        inference,
        admin,
        compute,
        metrics,
        cloud_events: CloudEvents::new(&options.metadata.name),
        metadata: options.metadata,
        max_body_bytes: options.max_body_bytes,
        root_path: normal_root_path(&options.root_path),
        gzip: options.gzip,
        non_finite: options.non_finite,
        overload_as_429: options.overload_as_429,
    });
    let routes = service_fn(move |request| {
        let app = Arc::clone(&app);
        async move { Ok::<_, Infallible>(app.answer(request).await) }
    });
    ServiceBuilder::new().layer(option_layer(options.cors)).service(routes)
}

impl App {
    async fn answer<B>(self: Arc<Self>, request: Request<B>) -> http::Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>> + Unpin,
    {
        let (parts, mut body) = request.into_parts();
        let mut response = self.respond(&parts, &mut body).await;
        // Streams of HTTP/2 end without their connection.
        if parts.version < Version::HTTP_2 && !body::release(body).await {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn respond<B>(self: Arc<Self>, parts: &Parts, body: &mut B) -> http::Response<ResponseBody>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>> + Unpin,
    {
        let path = without_prefix(parts.uri.path(), &self.root_path);
        let mut admission = Admission::new();
        let Some(route) = Route::find(path, &parts.uri) else {
            let (response, observation) = custom::answer(&self, parts, path, body, &mut admission).await;
            return self.end(response, parts, observation, admission).await;
        };
        if !route.allows(&parts.method) {
            return respond::method_not_allowed(&parts.method, &parts.uri, route.allow()).map(ResponseBody::from);
        }
        let observation = Observation::start(&self, &route, parts);
        let trace = observation.as_ref().and_then(Observation::trace);
        let response = match route.spec.action {
            Action::Live => health::live(),
            Action::Ready => health::ready(&self),
            Action::Server => metadata::server(&self),
            Action::Model => metadata::model(&self, &route),
            Action::ModelReady => health::model_ready(&self, &route),
            Action::Infer => infer::infer(&self, &route, &parts.headers, body, trace, &mut admission).await,
            Action::Docs
            | Action::DocsDocument
            | Action::DocsAsset
            | Action::ModelDocs
            | Action::ModelDocsDocument
            | Action::OpenApi => openapi::answer(&self, &route, path, &parts.headers).await,
            Action::InferStream => match stream::open(&self, &route, &parts.headers, body, trace).await {
                Ok(events) => return events.respond(self, observation, parts.uri.clone()),
                Err(error) => error.answer(self.overload_as_429),
            },
            Action::Index => repository::index(&self, &parts.headers, body).await,
            Action::Load => repository::load(&self, &route, body).await,
            Action::Unload => repository::unload(&self, &route, body).await,
        };
        self.end(response, parts, observation, admission).await
    }

    /// Compresses a response if the client accepts that, and records it. `admission` ends when the response has been sent.
    async fn end(
        &self,
        response: Response,
        parts: &Parts,
        observation: Option<Observation>,
        admission: Admission,
    ) -> http::Response<ResponseBody> {
        let response =
            if self.gzip { compress::compress(response, &parts.headers, &self.compute).await } else { response };
        if let Some(observation) = observation {
            observation.end(self.metrics.as_ref(), &parts.uri, response.status());
        }
        response.map(|body| ResponseBody::from(body.with_admission(admission)))
    }
}

/// A root path with one slash in front and none behind, or nothing.
fn normal_root_path(path: &str) -> String {
    let path = path.trim_matches('/');
    if path.is_empty() { String::new() } else { format!("/{path}") }
}

/// Takes the root path off, when it is there and ends where a segment does.
fn without_prefix<'a>(path: &'a str, root_path: &str) -> &'a str {
    path.strip_prefix(root_path).filter(|rest| rest.starts_with('/')).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_path_is_taken_off_whole_segments_only() {
        assert_eq!(without_prefix("/pre/v2", "/pre"), "/v2");
        assert_eq!(without_prefix("/v2", "/pre"), "/v2");
        assert_eq!(without_prefix("/prefix/v2", "/pre"), "/prefix/v2");
        assert_eq!(without_prefix("/v2", ""), "/v2");
        assert_eq!(normal_root_path("pre/"), "/pre");
        assert_eq!(normal_root_path("/"), "");
    }
}
