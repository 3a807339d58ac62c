//! The V2 (Open Inference) protocol over gRPC, with health and reflection.
//!
//! Services, messages and metadata are those of the original. The wire format is read and written here rather than by
//! tonic's server, because that way messages stay slices of the received buffers, errors name the setting of a limit, headers
//! of responses go into the trailers, where the original has them, and a call allocates no boxes. Reflection needs none of
//! this and is tonic's.

mod body;
mod deadline;
mod errors;
mod health;
mod infer;
mod infer_stream;
mod instrument;
mod message;
mod metadata;
mod method;
mod reflection;
mod reply;
mod repository;
mod status;
mod stream;

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Method as HttpMethod, Request, Response, StatusCode};
use prost::Message;
use tokio::time::Instant;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;

pub use body::GrpcBody;
pub use instrument::GrpcMetrics;

use super::audit::{AdminCall, AuditLog};
use super::cloud_events::CloudEvents;
use super::{
    BodyPace, ForwardedHeaders, HttpService, PacedRequestBody, RepositoryAccess, RequestBody, access_control, head,
    panic_boundary, respond,
};
use crate::access::{Access, Grant, Scope};
use crate::admin::Admin;
use crate::compute::ComputePool;
use crate::inference::{Admission, Inference};
use crate::types::protobuf::messages::{ServerLiveResponse, ServerReadyResponse};
use crate::types::{ByteBudget, ByteReservation, ServerMetadata, TraceContext};
use body::BufferedBody;
use health::{HealthMonitor, Watch, Watches};
use infer_stream::{StreamInfer, StreamRights};
use instrument::Observation;
use message::{MessageLimit, Messages};
use method::{CallKind, Method, MethodAction};
use reflection::Reflection;
use reply::Reply;
use status::Status;

/// The limit on the messages of methods without tensors.
const CONTROL_MESSAGE_LIMIT: MessageLimit = MessageLimit { bytes: 1 << 20, reason: "that this method allows" };

/// The limit on the messages of methods that need no right, and of reflection. They have a name at most.
const OPEN_MESSAGE_LIMIT: MessageLimit = MessageLimit { bytes: 4096, reason: "that this method allows" };

/// The bytes of all messages of such methods that have arrived in part. A message that arrives in one piece does not count.
const OPEN_BYTES: usize = 1 << 20;

/// The configuration of the gRPC server.
#[derive(Debug)]
pub struct GrpcOptions {
    pub metadata: ServerMetadata,
    /// The longest message in either direction, in bytes, before and after decompression; `usize::MAX` means no limit.
    pub max_message_length: usize,
    pub repository: RepositoryAccess,
    /// `None` if everybody may do everything.
    pub access: Option<Access>,
    pub forward_headers: ForwardedHeaders,
}

/// The state that calls share.
#[derive(Debug)]
struct App {
    inference: Inference,
    admin: Admin,
    compute: ComputePool,
    metrics: Option<GrpcMetrics>,
    metadata: ServerMetadata,
    limit: MessageLimit,
    cloud_events: CloudEvents,
    repository: RepositoryAccess,
    access: Option<Access>,
    reflection: Reflection,
    /// Started by the first watcher.
    health: OnceLock<HealthMonitor>,
    watches: Watches,
    open_bytes: ByteBudget,
    audit: AuditLog,
}

/// The context of a call with one message.
#[derive(Debug, Clone, Copy)]
struct Call<'a> {
    headers: &'a HeaderMap,
    /// When the client stops waiting. `None` if it sets no deadline.
    until: Option<Instant>,
    /// The span of the call, if it is traced.
    trace: Option<TraceContext>,
    /// The right of the call, if there is access control.
    grant: Option<&'a Grant>,
    /// The address of the client, of calls that change models.
    address: Option<SocketAddr>,
}

impl Call<'_> {
    /// Begins the audit record of a call that changes a model.
    fn begin_record(&self, app: &App, action: &str, model: &str) -> AdminCall {
        let principal = self.grant.map(|grant| grant.principal().name());
        app.audit.begin(action, model, principal, self.address)
    }
}

/// Returns the path and the scope of every method.
pub fn methods() -> impl Iterator<Item = (String, Scope)> {
    method::TABLE.iter().map(|spec| (format!("/{}/{}", spec.service, spec.name), spec.scope))
}

/// The gRPC service. Clones share its state.
#[derive(Debug, Clone)]
pub struct GrpcService(Arc<App>);

impl GrpcService {
    /// Creates the service.
    pub fn new(
        inference: Inference,
        admin: Admin,
        compute: ComputePool,
        metrics: Option<GrpcMetrics>,
        options: GrpcOptions,
    ) -> Self {
        Self(Arc::new(App {
            inference,
            admin,
            compute,
            metrics,
            cloud_events: CloudEvents::new(&options.metadata.name).with_forwarded(options.forward_headers),
            metadata: options.metadata,
            limit: MessageLimit {
                bytes: options.max_message_length,
                reason: "that the setting `grpc_max_message_length` allows",
            },
            repository: options.repository,
            access: options.access,
            reflection: Reflection::new(),
            health: OnceLock::new(),
            watches: Watches::default(),
            open_bytes: ByteBudget::new(OPEN_BYTES),
            audit: AuditLog::default(),
        }))
    }
}

impl<B: PacedRequestBody + 'static> HttpService<B> for GrpcService {
    type Body = GrpcBody;

    fn call(&self, request: Request<B>) -> impl Future<Output = Response<GrpcBody>> + Send + use<B> {
        Arc::clone(&self.0).answer(request)
    }
}

impl App {
    async fn answer<B: PacedRequestBody + 'static>(self: Arc<Self>, mut request: Request<B>) -> Response<GrpcBody> {
        if !is_grpc(&request) {
            let message = "this port speaks gRPC: HTTP/2, POST, content type application/grpc";
            let rejection = respond::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
            return rejection.map(|chunks| GrpcBody::Buffered(BufferedBody { chunks, trailers: None }));
        }
        if let Err(error) = head::check(request.uri(), request.headers()) {
            let code = match error {
                head::HeadError::Hosts { .. } => Code::InvalidArgument,
                _ => Code::ResourceExhausted,
            };
            return Status::new(code, error.to_string()).response();
        }
        let method = Method::find(request.uri().path());
        let mark = if method.is_some_and(Method::is_open) { request.body_mut().without_right() } else { None };
        let mut grant = match &self.access {
            None => None,
            Some(access) => {
                let scope = method.map_or(Scope::Read, |method| method.spec.scope);
                let (parts, mut body) = request.into_parts();
                let authorized = access_control::authorize(access, &parts, &mut body, scope, "").await;
                request = Request::from_parts(parts, body);
                match authorized {
                    Ok(grant) => grant,
                    Err(refusal) => {
                        let mut response = Status::refused(refusal);
                        access_control::hold_mark(&mut response, request.body_mut().without_right());
                        return response;
                    }
                }
            }
        };
        let permit = grant.as_mut().and_then(Grant::take_permit);
        let mut response = self.perform(method, grant, request).await;
        access_control::hold_permit(&mut response, permit);
        access_control::hold_mark(&mut response, mark);
        response
    }

    /// Answers a call that may be made.
    async fn perform<B: PacedRequestBody + 'static>(
        self: Arc<Self>,
        method: Option<Method>,
        grant: Option<Grant>,
        mut request: Request<B>,
    ) -> Response<GrpcBody> {
        match method {
            Some(method) if method.spec.kind == CallKind::BidiStreaming => {
                request.body_mut().set_pace(BodyPace::FirstMessage);
            }
            Some(_) => {}
            None => request.body_mut().set_pace(BodyPace::Steady { idle: self.inference.stream_idle_timeout() }),
        }
        let path = request.uri().path();
        let Some(method) = method else {
            let Some(service) = self.reflection.find(path) else {
                return Status::new(Code::Unimplemented, format!("unknown method {path}")).response();
            };
            let certificate = access_control::certificate_names(request.extensions());
            let (access, headers) = (self.access.as_ref(), request.headers());
            let right = access_control::stream_right(access, grant.as_ref(), headers, certificate, Scope::Read, "");
            let right = match right {
                Ok(right) => right,
                Err(refusal) => return Status::refused(refusal),
            };
            let request = request.map(|body| reflection::body(body, self.inference.clone(), right));
            return reflection::answer(service, request).await.map(GrpcBody::Tonic);
        };
        let observation = Observation::start(&self, method, request.headers(), grant.as_ref());
        let trace = observation.trace();
        let (Parts { headers, extensions, .. }, body) = request.into_parts();
        let address = if method.spec.scope == Scope::Admin { body.peer() } else { None };
        let watch = if method.spec.action == MethodAction::HealthWatch { Some(self.watches.add(&body)) } else { None };
        let opened = deadline::of(&headers).and_then(|deadline| {
            let compute = self.compute.clone();
            let messages = if method.is_open() {
                let none = ByteReservation::default();
                Messages::new(&headers, body, OPEN_MESSAGE_LIMIT, compute, none)?
                    .reserved_in_parts(self.open_bytes.reservation())
            } else {
                let limit = if method.is_inference() { self.limit } else { CONTROL_MESSAGE_LIMIT };
                Messages::new(&headers, body, limit, compute, self.inference.admission().reservation)?
            };
            Ok((deadline, messages))
        });
        let (deadline, messages) = match opened {
            Ok(opened) => opened,
            Err(status) => return refuse(&status, observation),
        };
        match method.spec.action {
            MethodAction::ModelStreamInfer => {
                let messages = messages.counted(observation.received());
                let until = deadline.and_then(|deadline| Instant::now().checked_add(deadline));
                let certificate = access_control::certificate_names(&extensions).to_vec();
                let rights = StreamRights { grant, certificate };
                stream::open(StreamInfer::new(self, messages, headers, until, trace, rights), None, observation)
            }
            MethodAction::HealthWatch => {
                let opened = match watch {
                    Some(Ok(watch)) => service_of(messages).await.map(|service| (service, watch)),
                    Some(Err(error)) => Err(Status::new(Code::ResourceExhausted, error.to_string())),
                    None => Err(Status::new(Code::Internal, "the watch has not been counted")),
                };
                match opened {
                    Ok((service, watch)) => {
                        stream::open(Watch::new(self, service, watch, CONTROL_MESSAGE_LIMIT), deadline, observation)
                    }
                    Err(status) => refuse(&status, observation),
                }
            }
            _ => {
                // A deadline that the clock cannot express is never reached.
                let until = deadline.and_then(|deadline| Instant::now().checked_add(deadline));
                let work = self.reply(
                    method,
                    Call { headers: &headers, until, trace, grant: grant.as_ref(), address },
                    messages,
                );
                let work = panic_boundary::contain(method.spec.name, work);
                let result = match until {
                    None => work.await,
                    Some(until) => {
                        tokio::time::timeout_at(until, work).await.unwrap_or_else(|_| Ok(Err(deadline::exceeded())))
                    }
                };
                match result.unwrap_or_else(|panicked| Err(panicked.into())) {
                    Ok(reply) => {
                        observation.end(Code::Ok);
                        reply.response()
                    }
                    Err(status) => refuse(&status, observation),
                }
            }
        }
    }

    /// Checks the model of a call, which its message names.
    fn check_model(&self, grant: Option<&Grant>, model: &str) -> Result<(), Status> {
        match (&self.access, grant) {
            (Some(access), Some(grant)) => Ok(access.check_model(grant, model)?),
            _ => Ok(()),
        }
    }

    /// Handles a call with one message in each direction.
    async fn reply<B: RequestBody + 'static>(
        &self,
        method: Method,
        call: Call<'_>,
        messages: Messages<B>,
    ) -> Result<Reply, Status> {
        let (message, held) = messages.only().await?;
        let limit = self.limit;
        if let Some(refusal) = self.repository.refusal().filter(|_| method.is_repository()) {
            let status = Status::new(Code::Unimplemented, refusal);
            repository::record_refused(self, call, method.spec.action, message, &status);
            return Err(status);
        }
        match method.spec.action {
            MethodAction::ModelInfer => infer::infer(self, call, message, Admission::holding(held)).await,
            MethodAction::ServerLive => Reply::new(&ServerLiveResponse { live: true }, limit),
            MethodAction::ServerReady => {
                Reply::new(&ServerReadyResponse { ready: self.inference.is_ready_now().await }, limit)
            }
            MethodAction::ModelReady => {
                Reply::new(&metadata::model_ready(self, call, &Message::decode(message)?).await?, limit)
            }
            MethodAction::ServerMetadata => Reply::new(&metadata::server(self), limit),
            MethodAction::ModelMetadata => Reply::new(&metadata::model(self, call, &Message::decode(message)?)?, limit),
            MethodAction::Index => Reply::new(&repository::index(self, call, &Message::decode(message)?).await?, limit),
            MethodAction::Load => Reply::new(&repository::load(self, call, &Message::decode(message)?).await?, limit),
            MethodAction::Unload => {
                Reply::new(&repository::unload(self, call, &Message::decode(message)?).await?, limit)
            }
            MethodAction::HealthCheck => {
                health::check(self, &HealthCheckRequest::decode(message)?.service, limit).await
            }
            MethodAction::ModelStreamInfer | MethodAction::HealthWatch => {
                Err(Status::new(Code::Internal, format!("{} is a streaming method", method.spec.name)))
            }
        }
    }
}

/// Reads the name of the service to watch.
async fn service_of<B: RequestBody + 'static>(messages: Messages<B>) -> Result<String, Status> {
    Ok(HealthCheckRequest::decode(messages.only().await?.0)?.service)
}

fn refuse(status: &Status, observation: Observation) -> Response<GrpcBody> {
    observation.end(status.code);
    status.response()
}

/// Reports whether a request is a gRPC call with protobuf messages.
fn is_grpc<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let is_protobuf = match content_type.strip_prefix(b"application/grpc") {
        Some(rest) => rest.is_empty() || rest.starts_with(b"+proto") || rest.starts_with(b";"),
        None => false,
    };
    is_protobuf && request.method() == HttpMethod::POST && request.version() == http::Version::HTTP_2
}
