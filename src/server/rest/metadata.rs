//! What the server and its models say about themselves.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;

use super::errors::RequestError;
use super::route::ModelRoute;
use super::{Shared, respond};
use crate::inference::InferenceError;

pub(super) async fn server(State(app): State<Shared>) -> Response {
    respond::json(StatusCode::OK, &app.metadata)
}

pub(super) async fn model(State(app): State<Shared>, route: ModelRoute) -> Response {
    match app.inference.registry().find(&route.name, route.version.as_deref()) {
        Ok(model) => respond::json(StatusCode::OK, &model.metadata),
        Err(error) => RequestError::from(InferenceError::from(error)).response(),
    }
}
