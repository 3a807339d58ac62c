//! The V2 (Open Inference) protocol over HTTP.
//!
//! Routes, bodies and headers are those of the original, with three deliberate differences: every error is `{"error": …}`,
//! readiness reports which model is not ready and why, and the health routes return a body, which `KServe`'s client reads.

#![expect(clippy::needless_pass_by_value, reason = "all handlers have one signature")]

mod body;
mod caller;
mod compress;
mod console;
mod cors;
mod custom;
mod errors;
mod event_stream;
mod events;
mod forward;
mod health;
mod infer;
mod instrument;
mod metadata;
mod openai;
mod openapi;
mod repository;
mod route;
mod router;
mod stream;
mod streamed;
mod v1;
mod wide;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either};
use http::header::{CONNECTION, EXPECT};
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode, Version};
use http_body::Body;
use serde::Serialize;
use tower::{Layer, ServiceExt, service_fn};
use tower_http::cors::CorsLayer;

pub use super::respond::ResponseBody;
pub use cors::Cors;
pub use instrument::RestMetrics;
pub use router::{is_openai, is_reserved};

use super::audit::AuditLog;
use super::cloud_events::CloudEvents;
use super::exchange::Exchange;
use super::{
    BodyFailure, ForwardedHeaders, HttpService, PacedRequestBody, RepositoryAccess, access_control, deadline, head,
    panic_boundary, respond,
};
use crate::access::{Access, Grant, Refusal, Scope, StreamRight};
use crate::admin::Admin;
use crate::compute::ComputePool;
use crate::console::Console;
use crate::inference::{Admission, Inference, InferenceError};
use crate::registry::{CustomMatch, RegisteredModel};
use crate::settings::CloudEventVariables;
use crate::types::json::NonFinite;
use crate::types::{ServerMetadata, TraceContext};
use caller::CallerCheck;
use errors::{ErrorFormat, RequestError};
use instrument::Observation;
use respond::Response;
use route::RouteSubject;
use router::Route;
use streamed::Streamed;

/// How long the rest of a body that nothing reads is discarded once its request has been answered, so that the client receives the answer
/// and can reuse its connection.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// The configuration of the REST server.
#[derive(Debug)]
pub struct RestOptions {
    pub metadata: ServerMetadata,
    /// The prefix of all paths, such as `/serving`; empty for none. Paths without it are served too, because a proxy may have
    /// removed it.
    pub root_path: String,
    /// The prefix of the routes of OpenAI's API, such as `/openai`; empty for none.
    pub openai_prefix: String,
    /// The largest body, in bytes, before and after decompression.
    pub max_body_bytes: usize,
    /// Whether long responses are compressed for clients that accept gzip.
    pub gzip: bool,
    pub cors: Option<Cors>,
    /// The address that the server listens on, as it is configured.
    pub host: String,
    pub repository: RepositoryAccess,
    /// How NaN and infinities are written in JSON.
    pub non_finite: NonFinite,
    /// Whether overload is answered with 429 instead of 503.
    pub overload_as_429: bool,
    /// The attributes of answers to CloudEvents.
    pub events: CloudEventVariables,
    /// `None` if everybody may do everything.
    pub access: Option<Access>,
    pub forward_headers: ForwardedHeaders,
    /// `None` if the console is off.
    pub console: Option<Console>,
}

/// The state that handlers share.
#[derive(Debug)]
struct App {
    inference: Inference,
    admin: Admin,
    compute: ComputePool,
    metrics: Option<RestMetrics>,
    options: RestOptions,
    cloud_events: CloudEvents,
    callers: CallerCheck,
    audit: AuditLog,
}

/// Returns the method, the path and the scope of every route.
pub fn routes() -> impl Iterator<Item = (Method, &'static str, Scope)> {
    router::table().map(|spec| {
        let method = match spec.methods {
            route::RouteMethods::Get => Method::GET,
            route::RouteMethods::Post => Method::POST,
        };
        (method, spec.template, spec.scope)
    })
}

/// The answer of a route.
enum Answer {
    Complete(Response),
    Streamed(Streamed),
}

impl Answer {
    /// Returns a value as JSON.
    fn json(value: &impl Serialize) -> Self {
        Self::Complete(respond::json(StatusCode::OK, value))
    }
}

impl From<Response> for Answer {
    fn from(response: Response) -> Self {
        Self::Complete(response)
    }
}

/// The body of a request from any kind of connection.
type DynBody<'a> = &'a mut (dyn Body<Data = Bytes, Error = BodyFailure> + Send + Unpin);

/// A request that a route answers.
struct Call<'a> {
    app: &'a Arc<App>,
    /// The name of the model; empty for paths without a model.
    name: &'a str,
    version: Option<&'a str>,
    parts: &'a Parts,
    /// The right of the caller, if there is access control.
    grant: Option<&'a Grant>,
    /// The address that the connection comes from, if it is known.
    peer: Option<SocketAddr>,
    body: DynBody<'a>,
    /// The span of the request, if it is traced.
    trace: Option<TraceContext>,
    admission: &'a mut Admission,
}

/// The future of an answer. It is boxed once for each request.
type Handled<'a> = BoxFuture<'a, Result<Answer, RequestError>>;

/// Answers the requests of a route.
type Handler = for<'a> fn(Call<'a>) -> Handled<'a>;

impl<'a> Call<'a> {
    /// Reports whether the caller needs no right, and has none that is known.
    fn is_open(&self) -> bool {
        self.app.options.access.is_some() && self.grant.is_none()
    }

    /// Reports whether the caller may see why a model has failed. The reason may be an exception of its `load`, with secrets.
    fn sees_reasons(&self) -> bool {
        self.may(Scope::Admin)
    }

    /// Reports whether the console shows the caller reasons of failures and the workers: with access control, those with the scope `admin`,
    /// and without it, browsers and other clients on this machine.
    fn sees_details(&self) -> bool {
        if self.app.options.access.is_some() {
            return self.may(Scope::Admin);
        }
        // A page of another site that has pointed its own name at this machine is not local, nor is what a proxy passes on.
        self.peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
            && caller::is_local(self.parts)
            && self.app.callers.check_page(self.parts).is_ok()
    }

    /// Reports whether the caller has a scope, also on a route that needs none.
    fn may(&self, scope: Scope) -> bool {
        match (&self.app.options.access, self.grant) {
            (None, _) => true,
            (Some(_), Some(grant)) => grant.has_scope(scope),
            (Some(access), None) => {
                access_control::has_scope(access, &self.parts.headers, &self.parts.extensions, scope)
            }
        }
    }

    /// Returns the path, without the prefix of the server.
    fn path(&self) -> &'a str {
        without_prefix(self.parts.uri.path(), &self.app.options.root_path)
    }

    /// Returns the right of a response of a model that is sent while it is made, if there is access control.
    fn stream_right(&self, model: &str) -> Result<Option<StreamRight>, Refusal> {
        let Parts { headers, extensions, .. } = self.parts;
        let certificate = access_control::certificate_names(extensions);
        access_control::stream_right(
            self.app.options.access.as_ref(),
            self.grant,
            headers,
            certificate,
            Scope::Infer,
            model,
        )
    }

    /// Begins the exchange of an inference request.
    fn exchange(&self) -> Result<Exchange<'a>, RequestError> {
        let headers = &self.parts.headers;
        let deadline = deadline::of(headers)?;
        Ok(Exchange::new(&self.app.inference, &self.app.compute, headers, deadline, self.trace)?)
    }

    /// Finds the model that the path names.
    fn find_model(&self) -> Result<Arc<RegisteredModel>, RequestError> {
        let found = self.app.inference.registry().find(self.name, self.version);
        Ok(found.map_err(InferenceError::from)?)
    }
}

/// The REST service. Clones share its state.
#[derive(Debug, Clone)]
pub struct RestService {
    app: Arc<App>,
    cors: Option<CorsLayer>,
}

impl RestService {
    /// Creates the service.
    pub fn new(
        inference: Inference,
        admin: Admin,
        compute: ComputePool,
        metrics: Option<RestMetrics>,
        mut options: RestOptions,
    ) -> Self {
        options.root_path = normalize_root_path(&options.root_path);
        let (cors, origins) = options.cors.take().map(|Cors { layer, origins }| (layer, origins)).unzip();
        let app = Arc::new(App {
            inference,
            admin,
            compute,
            metrics,
            cloud_events: CloudEvents::new(&options.metadata.name).with_forwarded(options.forward_headers),
            callers: CallerCheck::new(&options.host, origins),
            options,
            audit: AuditLog::default(),
        });
        Self { app, cors }
    }
}

impl<B: PacedRequestBody + 'static> HttpService<B> for RestService {
    type Body = ResponseBody;

    fn call(&self, request: Request<B>) -> impl Future<Output = http::Response<ResponseBody>> + Send + use<B> {
        let app = Arc::clone(&self.app);
        // Boxed, because hyper moves the future of a request four times.
        let Some(layer) = &self.cors else { return Either::Left(Box::pin(app.answer(request))) };
        let routes = service_fn(move |request| {
            let app = Arc::clone(&app);
            async move { Ok::<_, Infallible>(app.answer(request).await) }
        });
        let answered = Box::pin(layer.layer(routes).oneshot(request));
        Either::Right(answered.map(|response| response.unwrap_or_else(|never| match never {})))
    }
}

impl App {
    async fn answer<B: PacedRequestBody + 'static>(
        self: Arc<Self>,
        request: Request<B>,
    ) -> http::Response<ResponseBody> {
        let (mut parts, mut body) = request.into_parts();
        let head = match head::check(&parts.uri, &parts.headers) {
            Ok(head) => head,
            Err(error) => {
                let mut response = respond::error(error.status(), &error.to_string()).map(ResponseBody::from);
                access_control::hold_mark(&mut response, body.without_right());
                release(body, &parts, &mut response);
                if error == head::HeadError::TransferEncoding {
                    // A proxy may have read another end of the body.
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                return response;
            }
        };
        let path = without_prefix(parts.uri.path(), &self.options.root_path);
        let canonical = openai::canonical(&self.options.openai_prefix, path);
        let route = canonical.as_deref().and_then(|path| Route::find(&parts.method, path, &parts.uri));
        let is_on = |route: &Route<'_>| self.options.console.is_some() || !console::is_console(route.spec.template);
        let route = route.filter(|route| is_on(route) && !self.is_shadowed(route, &parts, path));
        let route = route.map(|route| self.with_graph(route));
        let errors = route.as_ref().map(|route| route.spec.errors).unwrap_or_default();
        let id = (errors == ErrorFormat::OpenAi).then(|| openai::identify(&mut parts.headers));
        let (scope, model) = needs(&parts, path, route.as_ref());
        let mark = if scope == Scope::Open { body.without_right() } else { None };
        let authorized = match &self.options.access {
            None => Ok(None),
            Some(access) => access_control::authorize(access, &parts, &mut body, scope, model).await,
        };
        let mut response = match authorized {
            Ok(mut grant) => {
                let is_change = head.from_page && !parts.method.is_safe();
                let checked = if is_change { self.callers.check_page(&parts) } else { Ok(()) };
                let change = (scope == Scope::Admin).then(|| {
                    let action = path.rsplit('/').next().unwrap_or_default();
                    let principal = grant.as_ref().map(|grant| grant.principal().name());
                    // Boxed, because most requests change nothing.
                    Box::new(self.audit.begin(action, model, principal, body.peer()))
                });
                let mut response = match checked {
                    Ok(()) => {
                        let peer = body.peer();
                        self.respond(&parts, path, route, grant.as_ref(), peer, &mut body).await
                    }
                    Err(error) => errors.error(error.status(), &error.to_string()).map(ResponseBody::from),
                };
                if let Some(change) = change {
                    change.record(response.status().as_str(), response.status().is_success());
                }
                access_control::hold_permit(&mut response, grant.as_mut().and_then(Grant::take_permit));
                access_control::hold_mark(&mut response, mark);
                response
            }
            Err(refusal) => {
                let refused = errors.error(access_control::status(&refusal), &refusal.to_string());
                let mut response = refused.map(ResponseBody::from);
                access_control::explain(&refusal, response.headers_mut());
                access_control::hold_mark(&mut response, body.without_right());
                response
            }
        };
        if let Some(id) = id {
            response.headers_mut().insert(openai::REQUEST_ID, id);
        }
        release(body, &parts, &mut response);
        response
    }

    async fn respond(
        self: Arc<Self>,
        parts: &Parts,
        path: &str,
        found: Option<Route<'_>>,
        grant: Option<&Grant>,
        peer: Option<SocketAddr>,
        body: DynBody<'_>,
    ) -> http::Response<ResponseBody> {
        let mut admission = self.inference.admission();
        let only_repository = self.options.repository == RepositoryAccess::Only;
        let is_served = |route: &Route<'_>| {
            !only_repository || matches!(route.spec.subject, RouteSubject::Repository | RouteSubject::Server)
        };
        let Some(route) = found.filter(is_served) else {
            if only_repository {
                return respond::not_found(path, &parts.uri, &self.options.root_path).map(ResponseBody::from);
            }
            // Boxed, so that the futures of the protocol's routes stay small.
            let (result, observation) = Box::pin(custom::answer(&self, parts, path, body, grant, &mut admission)).await;
            return self.end(result, ErrorFormat::V2, parts, observation, admission).await;
        };
        let errors = route.spec.errors;
        if !route.allows(&parts.method) {
            let message = respond::no_such_method(&parts.method, &parts.uri);
            let refused = errors.error(StatusCode::METHOD_NOT_ALLOWED, &message);
            return respond::with_allow(refused, route.allow()).map(ResponseBody::from);
        }
        if let Some(refusal) =
            self.options.repository.refusal().filter(|_| route.spec.subject == RouteSubject::Repository)
        {
            return respond::error(StatusCode::NOT_FOUND, refusal).map(ResponseBody::from);
        }
        let observation = Observation::start(&self, &route, parts, grant);
        let trace = observation.as_ref().and_then(Observation::trace);
        let (name, version) = (&*route.name, route.version.as_deref());
        let call = Call { app: &self, name, version, parts, grant, peer, body, trace, admission: &mut admission };
        let answered = panic_boundary::contain(route.spec.template, (route.spec.handler)(call)).await;
        self.end(answered.map_err(RequestError::from).flatten(), errors, parts, observation, admission).await
    }

    /// Reports whether a model has taken the path of a route that models may take.
    fn is_shadowed(&self, route: &Route<'_>, parts: &Parts, path: &str) -> bool {
        let custom = || self.inference.registry().custom_route(&parts.method, path);
        route.spec.shadowable && !matches!(custom(), CustomMatch::NoRoute)
    }

    /// Names the graph that a route without a name is for, if the server has one and no other.
    fn with_graph<'a>(&self, route: Route<'a>) -> Route<'a> {
        if route.spec.subject != RouteSubject::Graph {
            return route;
        }
        Route { name: self.inference.registry().only_graph().unwrap_or_default().into(), ..route }
    }

    /// Compresses a response if the client accepts that, and records it. `admission` is held until the response has been sent.
    async fn end(
        self: Arc<Self>,
        result: Result<Answer, RequestError>,
        errors: ErrorFormat,
        parts: &Parts,
        observation: Option<Observation>,
        admission: Admission,
    ) -> http::Response<ResponseBody> {
        let response = match result {
            Ok(Answer::Streamed(streamed)) => {
                let (overload_as_429, uri) = (self.options.overload_as_429, parts.uri.clone());
                return streamed.respond(overload_as_429, uri.clone(), move |status| {
                    if let Some(observation) = observation {
                        observation.end(self.metrics.as_ref(), &uri, status);
                    }
                });
            }
            Ok(Answer::Complete(response)) => response,
            Err(error) => error.response(errors, self.options.overload_as_429),
        };
        let response = if self.options.gzip && compress::is_long(&response) {
            // Boxed, because most responses are short, and are not moved then.
            Box::pin(compress::compress(response, &parts.headers, &self.compute)).await
        } else {
            response
        };
        if let Some(observation) = observation {
            observation.end(self.metrics.as_ref(), &parts.uri, response.status());
        }
        response.map(|body| ResponseBody::from(body.with_admission(admission)))
    }
}

/// Discards the rest of a request's body while the response is sent, or has the response close the connection.
///
/// A client may miss the response if its connection or stream is reset while it sends (curl 7.88 over HTTP/2, and everybody over HTTP/1.1).
fn release<B: PacedRequestBody + 'static>(mut body: B, parts: &Parts, response: &mut http::Response<ResponseBody>) {
    if body.is_end_stream() {
        return;
    }
    let is_http1 = parts.version < Version::HTTP_2;
    let waits_to_be_asked = is_http1 && parts.headers.contains_key(EXPECT) && !body.is_asked_for();
    body.begin_discard(RELEASE_TIMEOUT);
    let (may_continue, is_kept) = if waits_to_be_asked {
        (false, false)
    } else {
        match body::discard_now(&mut body) {
            Some(true) => return,
            // One of unknown length is not worth waiting for with the next request.
            Some(false) => (body::is_short(&body), true),
            None => (false, true),
        }
    };
    if is_http1 && !may_continue {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if is_kept {
        tokio::spawn(body::discard_rest(body, RELEASE_TIMEOUT));
    }
}

/// Returns the scope that a request needs, and its model. A path without a route may be one of a model's own.
fn needs<'a>(parts: &Parts, path: &str, route: Option<&'a Route<'_>>) -> (Scope, &'a str) {
    let is_probe = || path == "/ping" && (parts.method == Method::GET || parts.method == Method::HEAD);
    match route {
        Some(route) => (route.spec.scope, &*route.name),
        None if is_probe() => (Scope::Open, ""),
        None => (Scope::Infer, ""),
    }
}

/// Normalizes a root path to one leading and no trailing slash; empty if there is none.
fn normalize_root_path(path: &str) -> String {
    let path = path.trim_matches('/');
    if path.is_empty() { String::new() } else { format!("/{path}") }
}

/// Strips the root path, if it is present and ends at the end of a segment.
fn without_prefix<'a>(path: &'a str, root_path: &str) -> &'a str {
    path.strip_prefix(root_path).filter(|rest| rest.starts_with('/')).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_path_is_stripped_only_at_segment_ends() {
        assert_eq!(without_prefix("/pre/v2", "/pre"), "/v2");
        assert_eq!(without_prefix("/v2", "/pre"), "/v2");
        assert_eq!(without_prefix("/prefix/v2", "/pre"), "/prefix/v2");
        assert_eq!(without_prefix("/v2", ""), "/v2");
        assert_eq!(normalize_root_path("pre/"), "/pre");
        assert_eq!(normalize_root_path("/"), "");
    }
}
