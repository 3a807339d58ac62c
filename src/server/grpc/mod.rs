//! The V2 (Open Inference) protocol over gRPC, with health and reflection beside it.
//!
//! Services, messages and metadata are those of the original. What is on the wire is read and written here, rather than
//! by tonic's own server: messages stay slices of what was received, limits are told by the name of their setting, headers
//! of answers go into the trailers, where the original has them, and a call costs no boxes. Reflection, which is none of
//! these, is tonic's.

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

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Method as HttpMethod, Request, Response, StatusCode};
use prost::Message;
use tokio::time::Instant;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tower::service_fn;

pub use body::GrpcBody;
pub use instrument::GrpcMetrics;

use super::cloud_events::CloudEvents;
use super::{BodyFailure, HttpService, respond};
use crate::admin::Admin;
use crate::compute::ComputePool;
use crate::inference::Inference;
use crate::types::protobuf::messages::{ServerLiveResponse, ServerReadyResponse};
use crate::types::{ServerMetadata, TraceContext};
use body::WholeBody;
use health::Watch;
use infer_stream::StreamInfer;
use instrument::Observation;
use message::{Limit, Messages};
use method::{Action, Method};
use reflection::Reflection;
use reply::Reply;
use status::Status;

/// The longest message of a call that carries no tensors.
const SHORT: Limit = Limit { bytes: 1 << 20, reason: "that this call takes" };

/// What the gRPC server needs to know.
#[derive(Debug)]
pub struct GrpcOptions {
    pub metadata: ServerMetadata,
    /// The longest message in either direction, in bytes, before and after decompression; `usize::MAX` is no limit.
    pub max_message_length: usize,
}

/// The body of a request.
pub trait RequestBody: http_body::Body<Data = Bytes, Error: Into<BodyFailure>> + Send + Unpin + 'static {}

impl<B> RequestBody for B where B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>> + Send + Unpin + 'static {}

/// What calls share.
#[derive(Debug)]
struct App {
    inference: Inference,
    admin: Admin,
    compute: ComputePool,
    metrics: Option<GrpcMetrics>,
    metadata: ServerMetadata,
    limit: Limit,
    cloud_events: CloudEvents,
    reflection: Reflection,
}

/// What a call of one message brings along.
#[derive(Debug, Clone, Copy)]
struct Call<'a> {
    headers: &'a HeaderMap,
    /// When its client stops waiting, if it says so.
    until: Option<Instant>,
    /// Its span, when traces are taken.
    trace: Option<TraceContext>,
}

/// Makes the gRPC service.
pub fn service<B: RequestBody>(
    inference: Inference,
    admin: Admin,
    compute: ComputePool,
    metrics: Option<GrpcMetrics>,
    options: GrpcOptions,
) -> impl HttpService<B, Body = GrpcBody> {
    let app = Arc::new(App {
        inference,
        admin,
        compute,
        metrics,
        cloud_events: CloudEvents::new(&options.metadata.name),
        metadata: options.metadata,
        limit: Limit { bytes: options.max_message_length, reason: "that the setting `grpc_max_message_length` allows" },
        reflection: Reflection::new(),
    });
    service_fn(move |request| {
        let app = Arc::clone(&app);
        async move { Ok::<_, Infallible>(app.answer(request).await) }
    })
}

impl App {
    async fn answer<B: RequestBody>(self: Arc<Self>, request: Request<B>) -> Response<GrpcBody> {
        if !is_grpc(&request) {
            let message = "this port speaks gRPC: HTTP/2, POST, content type application/grpc";
            let refusal = respond::error(StatusCode::UNSUPPORTED_MEDIA_TYPE, message);
            return refusal.map(|parts| GrpcBody::WholeBody(WholeBody { parts, trailers: None }));
        }
        let path = request.uri().path();
        let Some(method) = Method::find(path) else {
            let Some(service) = self.reflection.find(path) else {
                return Status::new(Code::Unimplemented, format!("there is no method {path}")).response();
            };
            return reflection::answer(service, request.map(tonic::body::Body::new)).await.map(GrpcBody::Tonic);
        };
        let observation = Observation::start(&self, method, request.headers());
        let trace = observation.trace();
        let (Parts { headers, .. }, body) = request.into_parts();
        let limit = if method.is_inference() { self.limit } else { SHORT };
        let opened = deadline::of(&headers)
            .and_then(|deadline| Ok((deadline, Messages::new(&headers, body, limit, self.compute.clone())?)));
        let (deadline, messages) = match opened {
            Ok(opened) => opened,
            Err(status) => return refuse(&status, observation),
        };
        match method.spec.action {
            Action::ModelStreamInfer => {
                let messages = messages.counted(observation.received());
                stream::open(StreamInfer::new(self, messages, headers, trace), deadline, observation)
            }
            Action::HealthWatch => {
                let service = match service_of(messages).await {
                    Ok(service) => service,
                    Err(status) => return refuse(&status, observation),
                };
                stream::open(Watch::new(self, service, SHORT), deadline, observation)
            }
            _ => {
                // Beyond what a clock can say, nobody waits.
                let until = deadline.and_then(|deadline| Instant::now().checked_add(deadline));
                let work = self.reply(method, Call { headers: &headers, until, trace }, messages);
                let result = match until {
                    None => work.await,
                    Some(until) => {
                        tokio::time::timeout_at(until, work).await.unwrap_or_else(|_| Err(deadline::exceeded()))
                    }
                };
                match result {
                    Ok(reply) => {
                        observation.end(Code::Ok);
                        reply.response()
                    }
                    Err(status) => refuse(&status, observation),
                }
            }
        }
    }

    /// Answers a call of one message with one message.
    async fn reply<B: RequestBody>(
        &self,
        method: Method,
        call: Call<'_>,
        messages: Messages<B>,
    ) -> Result<Reply, Status> {
        let message = messages.only().await?;
        let limit = self.limit;
        match method.spec.action {
            Action::ModelInfer => infer::infer(self, call, message).await,
            Action::ServerLive => Reply::new(&ServerLiveResponse { live: true }, limit),
            Action::ServerReady => Reply::new(&ServerReadyResponse { ready: metadata::is_ready(self) }, limit),
            Action::ModelReady => Reply::new(&metadata::model_ready(self, &Message::decode(message)?)?, limit),
            Action::ServerMetadata => Reply::new(&metadata::server(self), limit),
            Action::ModelMetadata => Reply::new(&metadata::model(self, &Message::decode(message)?)?, limit),
            Action::Index => Reply::new(&repository::index(self, &Message::decode(message)?).await?, limit),
            Action::Load => Reply::new(&repository::load(self, &Message::decode(message)?).await?, limit),
            Action::Unload => Reply::new(&repository::unload(self, &Message::decode(message)?).await?, limit),
            Action::HealthCheck => health::check(self, &HealthCheckRequest::decode(message)?.service, limit),
            Action::ModelStreamInfer | Action::HealthWatch => {
                Err(Status::new(Code::Internal, format!("{} answers a stream", method.spec.name)))
            }
        }
    }
}

/// Reads which service is to be watched.
async fn service_of<B: RequestBody>(messages: Messages<B>) -> Result<String, Status> {
    Ok(HealthCheckRequest::decode(messages.only().await?)?.service)
}

fn refuse(status: &Status, observation: Observation) -> Response<GrpcBody> {
    observation.end(status.code);
    status.response()
}

/// Tells whether a request is one of gRPC, whose messages are in protobuf.
fn is_grpc<B>(request: &Request<B>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map(http::HeaderValue::as_bytes).unwrap_or_default();
    let is_protobuf = match content_type.strip_prefix(b"application/grpc") {
        Some(rest) => rest.is_empty() || rest.starts_with(b"+proto") || rest.starts_with(b";"),
        None => false,
    };
    is_protobuf && request.method() == HttpMethod::POST && request.version() == http::Version::HTTP_2
}
