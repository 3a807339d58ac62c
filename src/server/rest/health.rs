//! Liveness and readiness.

use std::borrow::Cow;
use std::sync::Arc;

use http::StatusCode;
use serde::Serialize;
use serde_json::json;

use super::App;
use super::errors::RequestError;
use super::respond::{self, Response};
use super::route::Route;
use crate::inference::InferenceError;
use crate::registry::{self, RegisteredModel};

/// The reason why nothing is ready during shutdown.
const SHUTTING_DOWN: &str = "the server is shutting down";

/// The reason why the server is not ready although all its models are.
const NOT_JOINED: &str = "the Kafka consumer has not joined its group (`kafka_readiness`)";

/// A model in the response of a readiness check.
#[derive(Serialize)]
struct ModelReadiness<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    state: &'static str,
    reason: Cow<'a, str>,
}

impl<'a> From<&'a RegisteredModel> for ModelReadiness<'a> {
    fn from(model: &'a RegisteredModel) -> Self {
        let reason = match &model.state {
            registry::ModelState::Ready(runtime) => runtime.status().into_reason().unwrap_or_default().into(),
            registry::ModelState::Loading => "the model is loading".into(),
            registry::ModelState::Failed { reason } => reason.into(),
        };
        Self { name: &model.name, version: model.version.as_deref(), state: model.state.name(), reason }
    }
}

pub(super) fn live() -> Response {
    respond::json(StatusCode::OK, &json!({ "live": true }))
}

/// Reports the server as ready if all models that it was started with are ready, and a consumer that readiness includes has joined.
pub(super) async fn ready(app: &App) -> Response {
    if app.inference.is_shutting_down() {
        let body = json!({ "ready": false, "error": SHUTTING_DOWN, "models": [] });
        return respond::json(StatusCode::BAD_REQUEST, &body);
    }
    let models = app.inference.registry().models();
    let obstacles = app.inference.own_obstacles().await;
    let waiting = models.iter().filter(|model| model.delays_readiness()).count() + obstacles.len();
    if waiting == 0 && app.inference.has_joined() {
        return respond::json(StatusCode::OK, &json!({ "ready": true }));
    }
    if waiting == 0 {
        let body = json!({ "ready": false, "error": NOT_JOINED, "models": [] });
        return respond::json(StatusCode::BAD_REQUEST, &body);
    }
    let error = format!("{waiting} of {} models are not ready", models.len());
    let readiness = |model| match obstacles.iter().find(|(asked, _)| Arc::ptr_eq(asked, model)) {
        Some((model, reason)) => ModelReadiness { reason: reason.to_string().into(), ..model.as_ref().into() },
        None => model.as_ref().into(),
    };
    let models: Vec<ModelReadiness<'_>> = models.iter().map(readiness).collect();
    respond::json(StatusCode::BAD_REQUEST, &json!({ "ready": false, "error": error, "models": models }))
}

pub(super) async fn model_ready(app: &App, route: &Route<'_>) -> Response {
    let model = match app.inference.registry().find(&route.name, route.version.as_deref()) {
        Ok(model) => model,
        Err(error) => return RequestError::from(InferenceError::from(error)).response(),
    };
    let obstacle = app.inference.own_obstacle(&model).await;
    if obstacle.is_none() && app.inference.is_model_ready(&model) {
        return respond::json(StatusCode::OK, &json!({ "name": model.name, "ready": true }));
    }
    let mut readiness = ModelReadiness::from(model.as_ref());
    if app.inference.is_shutting_down() {
        readiness.reason = SHUTTING_DOWN.into();
    } else if let Some(reason) = obstacle {
        readiness.reason = reason.to_string().into();
    }
    let error = format!("Model {} is not ready yet.", model.name);
    let body = json!({ "name": model.name, "ready": false, "error": error, "state": readiness.state, "reason": readiness.reason });
    respond::json(StatusCode::BAD_REQUEST, &body)
}
