//! `grpc.reflection`, in both of its versions, for clients without the `proto/` files.

use std::convert::Infallible;

use http::{Request, Response};
use tonic::body::Body;
use tonic_reflection::server::Builder;
use tower::util::BoxCloneSyncService;
use tower::{Service, ServiceExt};

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
        let reason = "the descriptors are those that the build wrote";
        Self {
            v1: BoxCloneSyncService::new(builder().build_v1().expect(reason)),
            v1alpha: BoxCloneSyncService::new(builder().build_v1alpha().expect(reason)),
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

/// Calls a service, which is always ready.
pub(super) async fn answer(mut service: Reflect, request: Request<Body>) -> Response<Body> {
    let Ok(service) = service.ready().await;
    let Ok(response) = service.call(request).await;
    response
}
