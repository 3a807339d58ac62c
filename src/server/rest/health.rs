//! Liveness and readiness.

use std::borrow::Cow;
use std::sync::Arc;

use http::StatusCode;
use serde::Serialize;
use serde_json::json;

use super::respond;
use super::route::{RouteSpec, RouteSubject};
use super::{Answer, Call, Handled};
use crate::access::Scope::Open;
use crate::registry::{self, RegisteredModel};

pub(super) const ROUTES: &[RouteSpec] = &[
    RouteSpec::check("/v2/health/live", live).about(RouteSubject::Server),
    RouteSpec::check("/v2/health/ready", ready).about(RouteSubject::Server),
    RouteSpec::get("/v2/models/{model_name}/ready", Open, model_ready),
    RouteSpec::get("/v2/models/{model_name}/versions/{model_version}/ready", Open, model_ready),
];

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

fn live(_: Call<'_>) -> Handled<'_> {
    Box::pin(async { Ok(Answer::json(&json!({ "live": true }))) })
}

/// Reports the server as ready if all models that it was started with are ready, and a consumer that readiness includes has joined.
fn ready(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let app = call.app;
        let unready = |body| Ok(respond::json(StatusCode::BAD_REQUEST, &body).into());
        if app.inference.is_shutting_down() {
            return unready(json!({ "ready": false, "error": SHUTTING_DOWN, "models": [] }));
        }
        let models = app.inference.registry().models();
        let obstacles = app.inference.own_obstacles().await;
        let waiting = models.iter().filter(|model| model.delays_readiness()).count() + obstacles.len();
        if waiting == 0 && app.inference.has_joined() {
            return Ok(Answer::json(&json!({ "ready": true })));
        }
        if waiting == 0 {
            return unready(json!({ "ready": false, "error": NOT_JOINED, "models": [] }));
        }
        let error = format!("{waiting} of {} models are not ready", models.len());
        let readiness = |model| match obstacles.iter().find(|(asked, _)| Arc::ptr_eq(asked, model)) {
            Some((model, reason)) => ModelReadiness { reason: reason.to_string().into(), ..model.as_ref().into() },
            None => model.as_ref().into(),
        };
        let mut models: Vec<ModelReadiness<'_>> = models.iter().map(readiness).collect();
        if !call.sees_reasons() {
            for model in &mut models {
                model.reason = "".into();
            }
        }
        unready(json!({ "ready": false, "error": error, "models": models }))
    })
}

fn model_ready(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let app = call.app;
        let model = call.find_model()?;
        let obstacle = app.inference.own_obstacle(&model).await;
        if obstacle.is_none() && app.inference.is_model_ready(&model) {
            return Ok(Answer::json(&json!({ "name": model.name, "ready": true })));
        }
        let mut readiness = ModelReadiness::from(model.as_ref());
        if app.inference.is_shutting_down() {
            readiness.reason = SHUTTING_DOWN.into();
        } else if let Some(reason) = obstacle {
            readiness.reason = reason.to_string().into();
        }
        if !call.sees_reasons() {
            readiness.reason = "".into();
        }
        let error = format!("Model {} is not ready yet.", model.name);
        let ModelReadiness { state, reason, .. } = readiness;
        let body = json!({ "name": model.name, "ready": false, "error": error, "state": state, "reason": reason });
        Ok(respond::json(StatusCode::BAD_REQUEST, &body).into())
    })
}
