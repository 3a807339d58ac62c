//! The V2 (Open Inference) protocol over HTTP.
//!
//! Routes, bodies and headers are those of the original. What differs on purpose: every failure is `{"error": …}`,
//! readiness says which model is not ready and why, and the health routes answer with a body, which `KServe`'s client reads.

mod body;
mod cloud_events;
mod cors;
mod errors;
mod health;
mod infer;
mod instrument;
mod metadata;
mod route;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};
use http::{Method, Request, Uri};
use tower::{Layer, ServiceExt, util::MapRequestLayer};
use tower_http::compression::{CompressionLayer, predicate::SizeAbove};

pub use cors::layer as cors_layer;
pub use instrument::RestMetrics;

use super::respond;
use crate::compute::ComputePool;
use crate::inference::Inference;
use crate::types::ServerMetadata;
use cloud_events::CloudEvents;

/// Answers shorter than this many bytes are not compressed.
const COMPRESSED_FROM: u64 = 500;

/// What the REST server needs to know.
#[derive(Debug)]
pub struct Options {
    pub metadata: ServerMetadata,
    /// The prefix of all paths, such as `/serving`; empty for none. Paths without it are served too, because a proxy in
    /// front may have taken it away.
    pub root_path: String,
    /// The largest body, in bytes, before and after decompression.
    pub max_body_bytes: usize,
    /// Compress long answers for clients that accept gzip.
    pub gzip: bool,
    pub cors: Option<tower_http::cors::CorsLayer>,
}

/// What handlers share.
#[derive(Debug)]
struct App {
    inference: Inference,
    compute: ComputePool,
    metadata: ServerMetadata,
    max_body_bytes: usize,
    root_path: String,
    cloud_events: CloudEvents,
}

type Shared = Arc<App>;

/// Makes the REST service.
pub fn router(inference: Inference, compute: ComputePool, metrics: Option<RestMetrics>, options: Options) -> Router {
    let root_path = normal_root_path(&options.root_path);
    let app = Arc::new(App {
        inference,
        compute,
        cloud_events: CloudEvents::new(&options.metadata.name),
        metadata: options.metadata,
        max_body_bytes: options.max_body_bytes,
        root_path: root_path.clone(),
    });
    let instrument = instrument::InstrumentLayer::new(metrics);
    let mut router = Router::new()
        .route(route::LIVE, get(health::live))
        .route(route::READY, get(health::ready))
        .route("/v2", get(metadata::server));
    for model in ["/v2/models/{model_name}", "/v2/models/{model_name}/versions/{model_version}"] {
        router = router
            .route(model, get(metadata::model))
            .route(&format!("{model}/ready"), get(health::model_ready))
            .route(&format!("{model}/infer"), post(infer::infer))
            .route(&format!("{model}/generate"), post(infer::infer));
    }
    let mut router = router
        .route_layer(instrument)
        .fallback(route::not_found)
        .method_not_allowed_fallback(async |method: Method, uri: Uri| respond::method_not_allowed(&method, &uri))
        .with_state(app);
    if options.gzip {
        router = router.layer(CompressionLayer::new().gzip(true).compress_when(SizeAbove::new(COMPRESSED_FROM)));
    }
    if let Some(cors) = options.cors {
        router = router.layer(cors);
    }
    if root_path.is_empty() {
        return router;
    }
    // Routing happens inside the router, so the path is changed around it.
    let strip = MapRequestLayer::new(move |request| strip_prefix(request, &root_path));
    Router::new().fallback_service(strip.layer(router).map_request(std::convert::identity))
}

/// A root path with one slash in front and none behind, or nothing.
fn normal_root_path(path: &str) -> String {
    let path = path.trim_matches('/');
    if path.is_empty() { String::new() } else { format!("/{path}") }
}

fn strip_prefix<B>(mut request: Request<B>, prefix: &str) -> Request<B> {
    let stripped = request.uri().path_and_query().and_then(|path| {
        let rest = path.as_str().strip_prefix(prefix)?;
        rest.starts_with('/').then(|| rest.parse::<Uri>().ok())?
    });
    if let Some(uri) = stripped {
        *request.uri_mut() = uri;
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_path_is_taken_off_whole_segments_only() {
        let strip = |path: &str| {
            let request = Request::builder().uri(path).body(()).unwrap();
            strip_prefix(request, "/pre").uri().to_string()
        };
        assert_eq!(strip("/pre/v2?a=1"), "/v2?a=1");
        assert_eq!(strip("/v2"), "/v2");
        assert_eq!(strip("/prefix/v2"), "/prefix/v2");
        assert_eq!(normal_root_path("pre/"), "/pre");
        assert_eq!(normal_root_path("/"), "");
    }
}
