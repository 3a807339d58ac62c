//! What a path says about the model it means.

use axum::extract::{FromRequestParts, Path, Query, State};
use axum::response::Response;
use http::request::Parts;
use http::{StatusCode, Uri};
use serde::Deserialize;

use super::{Shared, respond};

pub(super) const LIVE: &str = "/v2/health/live";
pub(super) const READY: &str = "/v2/health/ready";

/// A model's name and version, from the path or, as the original allows, the version from `?model_version=`.
#[derive(Debug, Deserialize)]
pub(super) struct ModelRoute {
    #[serde(rename = "model_name")]
    pub(super) name: String,
    #[serde(rename = "model_version", default)]
    pub(super) version: Option<String>,
}

#[derive(Debug, Deserialize)]
struct VersionQuery {
    model_version: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for ModelRoute {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Self::Rejection> {
        let bad_request = |message: String| respond::error(StatusCode::BAD_REQUEST, &message);
        let Path(mut route) = Path::<Self>::from_request_parts(parts, state)
            .await
            .map_err(|rejection| bad_request(rejection.body_text()))?;
        if route.version.is_none() && parts.uri.query().is_some() {
            let Query(query) = Query::<VersionQuery>::try_from_uri(&parts.uri)
                .map_err(|rejection| bad_request(rejection.body_text()))?;
            route.version = query.model_version;
        }
        Ok(route)
    }
}

pub(super) async fn not_found(State(app): State<Shared>, uri: Uri) -> Response {
    respond::not_found(&uri, &app.root_path)
}
