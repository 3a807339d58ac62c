//! The metadata of the server and its models.

use http::StatusCode;

use super::App;
use super::errors::RequestError;
use super::respond::{self, Response};
use super::route::Route;
use crate::inference::InferenceError;

pub(super) fn server(app: &App) -> Response {
    respond::json(StatusCode::OK, &app.metadata)
}

pub(super) fn model(app: &App, route: &Route<'_>) -> Response {
    match app.inference.registry().find(&route.name, route.version.as_deref()) {
        Ok(model) => respond::json(StatusCode::OK, &model.metadata),
        Err(error) => RequestError::from(InferenceError::from(error)).response(),
    }
}
