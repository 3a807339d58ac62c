//! `grpc.reflection`, in both of its versions, for clients without the `proto/` files.

use std::convert::Infallible;

use futures_util::StreamExt;
use http::{Request, Response};
use http_body_util::{BodyStream, StreamBody};
use tonic::body::Body;
use tonic_reflection::server::Builder;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

use super::OPEN_MESSAGE_LIMIT;
use crate::access::StreamRight;
use crate::inference::Inference;
use crate::server::{RequestBody, access_control};
use crate::types::protobuf::DESCRIPTORS;

type Reflect = BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>;

/// The two versions, which have the same messages.
#[derive(Debug, Clone)]
pub(super) struct Reflection {
    v1: Reflect,
    v1alpha: Reflect,
}

impl Reflection {
    pub(super) fn new() -> Self {
        let builder = || {
            let builder = Builder::configure().register_encoded_file_descriptor_set(DESCRIPTORS);
            builder.register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        };
        let limit = OPEN_MESSAGE_LIMIT.bytes;
        let reason = "the descriptors are those that the build wrote";
        Self {
            v1: BoxCloneSyncService::new(builder().build_v1().expect(reason).max_decoding_message_size(limit)),
            v1alpha: BoxCloneSyncService::new(
                builder().build_v1alpha().expect(reason).max_decoding_message_size(limit),
            ),
        }
    }

    /// Returns the service of a path, if it belongs to reflection.
    pub(super) fn find(&self, path: &str) -> Option<Reflect> {
        match path {
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo" => Some(self.v1.clone()),
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => Some(self.v1alpha.clone()),
            _ => None,
        }
    }
}

/// Returns the body of a request that ends when the server stops, so that a stream that a tool keeps open does not delay that, and
/// when the call has lost its right.
pub(super) fn body<B: RequestBody + 'static>(body: B, inference: Inference, right: Option<StreamRight>) -> Body {
    let stopped = async move {
        let mut changes = inference.registry().changes();
        let stopping = async { while !inference.is_stopping() && changes.changed().await.is_ok() {} };
        tokio::select! {
            () = stopping => {}
            _ = access_control::right_lost(right) => {}
        }
    };
    let frames = StreamExt::take_until(BodyStream::new(body), Box::pin(stopped));
    Body::new(StreamBody::new(frames))
}

/// Calls a service, which is always ready.
pub(super) async fn answer(mut service: Reflect, request: Request<Body>) -> Response<Body> {
    let Ok(service) = service.ready().await;
    let Ok(response) = service.call(request).await;
    response
}
