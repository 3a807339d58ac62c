//! KServe's V1 protocol: `:predict` and `:explain`, for every model.
//!
//! A `kserve.Model` gets the body as it is. For other models, instances become tensors, and the request takes the same path as one of
//! the V2 protocol.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use serde_json::json;
use tokio::time::timeout_at;

use super::errors::RequestError;
use super::events::{self, Event};
use super::respond::{self, BodyChunks, Response};
use super::route::Route;
use super::{App, RequestBody, body, infer};
use crate::access::Grant;
use crate::inference::{Admission, InferenceError, ModelTarget};
use crate::registry::{RegisteredModel, V1Explainer};
use crate::server::payload;
use crate::server::{deadline, model_headers, priority};
use crate::types::json::{V1Error, read_v1_request, write_v1_response};
use crate::types::{
    CustomCall, CustomReply, InferenceRequest, InferenceResponse, RequestErrorKind, Tensor, TensorData, TensorRule,
    TraceContext, V1Handlers,
};

/// The output of explainers: the explanation as JSON.
const EXPLANATION: &str = "explanation";

/// What a request asks a model for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Predict,
    Explain,
}

/// Reports the server as alive, as KServe's clients ask.
pub(super) fn alive() -> Response {
    respond::json(StatusCode::OK, &json!({ "status": "alive" }))
}

/// Lists the names of the models that are ready.
pub(super) async fn models(app: &App, grant: Option<&Grant>) -> Response {
    let models = app.inference.registry().models();
    let visible = models.iter().filter(|model| grant.is_none_or(|grant| grant.allows(&model.name)));
    let ready = visible.map(async |model| app.inference.is_model_ready_now(model).await.then_some(model.name.as_str()));
    let mut names: Vec<&str> = join_all(ready).await.into_iter().flatten().collect();
    names.sort_unstable();
    names.dedup();
    respond::json(StatusCode::OK, &json!({ "models": names }))
}

/// Reports a model as ready, or why it is not.
pub(super) async fn model(app: &App, route: &Route<'_>) -> Response {
    match app.inference.registry().find(&route.name, route.version.as_deref()) {
        Err(error) => response_to(&RequestError::from(InferenceError::from(error)), &route.name, app),
        Ok(model) if app.inference.is_model_ready_now(&model).await => {
            respond::json(StatusCode::OK, &json!({ "name": model.name, "ready": true }))
        }
        Ok(model) => not_ready(&model.name),
    }
}

/// Creates the response to a request that failed, with KServe's words and statuses where it has some.
fn response_to(error: &RequestError, name: &str, app: &App) -> Response {
    match error {
        RequestError::Inference(failure) => match failure.kind() {
            RequestErrorKind::NotFound => {
                respond::error(StatusCode::NOT_FOUND, &format!("Model with name {name} does not exist."))
            }
            RequestErrorKind::NotReady => not_ready(name),
            _ => error.inference_response(app.overload_as_429),
        },
        _ => error.inference_response(app.overload_as_429),
    }
}

fn not_ready(name: &str) -> Response {
    let mut response =
        respond::error(StatusCode::SERVICE_UNAVAILABLE, &format!("Model with name {name} is not ready."));
    response.headers_mut().insert(http::header::RETRY_AFTER, http::HeaderValue::from_static("1"));
    response
}

/// Handles `:predict` and `:explain`.
pub(super) async fn answer<B: RequestBody>(
    app: &App,
    route: &Route<'_>,
    verb: Verb,
    parts: &Parts,
    body: B,
    trace: Option<TraceContext>,
    admission: &mut Admission,
) -> Response {
    let result = try_answer(app, route, verb, parts, body, trace, admission).await;
    result.unwrap_or_else(|error| response_to(&error, &route.name, app))
}

async fn try_answer<B: RequestBody>(
    app: &App,
    route: &Route<'_>,
    verb: Verb,
    parts: &Parts,
    body: B,
    trace: Option<TraceContext>,
    admission: &mut Admission,
) -> Result<Response, RequestError> {
    // Reject an unknown model before reading the body.
    let target = app.inference.target(&route.name, route.version.as_deref())?;
    let until = deadline::of(&parts.headers)?;
    let target = target.with_deadline(until);
    let mut event = Event::of(&parts.headers)?;
    let handlers = target.model.v1_handlers();
    if handlers.is_none() && !is_from_curl(&parts.headers) {
        payload::check_content_type(&parts.headers).map_err(body::BodyError::from)?;
    }
    let received = body::read_any(&parts.headers, body, app.max_body_bytes, &app.compute, &mut admission.reservation);
    let mut body = match until {
        None => received.await?,
        Some(until) => timeout_at(until, received).await.map_err(|_| InferenceError::Deadline)??,
    };
    if let Some(event) = &mut event {
        body = event.open(body)?;
    }
    let call = V1Call { app, verb, parts, event: event.as_deref(), trace };
    let response = match handlers {
        Some(handlers) => call.of_handler(&target, handlers, body, admission).await?,
        None => call.of_tensors(&target, body, admission).await?,
    };
    Ok(match event {
        Some(event) => event.answer(&app.events, &target.model.name, response),
        None => response,
    })
}

/// Reports whether a request has the content type that curl sends unless it is told otherwise. No model takes forms.
fn is_from_curl(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value == "application/x-www-form-urlencoded")
}

/// A request whose body has been read.
struct V1Call<'a> {
    app: &'a App,
    verb: Verb,
    parts: &'a Parts,
    event: Option<&'a Event>,
    trace: Option<TraceContext>,
}

impl V1Call<'_> {
    /// Passes the body to a model that reads it.
    async fn of_handler(
        &self,
        target: &ModelTarget,
        handlers: V1Handlers,
        body: Bytes,
        admission: &mut Admission,
    ) -> Result<Response, RequestError> {
        let handler = match self.verb {
            Verb::Predict => handlers.predict,
            Verb::Explain => handlers.explain,
        };
        let mut headers = self.parts.headers.clone();
        self.app.forwarded.hide_others(&mut headers);
        if let Some(event) = self.event {
            event.add_headers(&mut headers);
        }
        let call = CustomCall {
            method: Method::POST,
            path: self.parts.uri.path().to_owned(),
            parameters: Vec::new(),
            query: self.parts.uri.query().unwrap_or_default().to_owned(),
            headers,
            body,
        };
        let reply = self.app.inference.call_as_request(target, handler, call, admission).await?;
        let CustomReply { status, mut headers, body } = reply;
        model_headers::filter_custom(&mut headers);
        Ok(respond::response(status, headers, BodyChunks::from(body)))
    }

    /// Converts the instances to tensors, and the outputs to predictions.
    async fn of_tensors(
        &self,
        target: &ModelTarget,
        body: Bytes,
        admission: &mut Admission,
    ) -> Result<Response, RequestError> {
        let explainer = match (self.verb, &target.model.explainer) {
            (Verb::Predict, _) | (Verb::Explain, V1Explainer::Itself) => {
                return self.infer(target, body, admission).await;
            }
            (Verb::Explain, V1Explainer::Model(explainer)) => explainer,
            (Verb::Explain, V1Explainer::None) => {
                let message = format!(
                    "Could not find explainer_host.: the model {} has no explainer; name one in its setting \
                     `parameters.extra.explainer`",
                    target.model.name
                );
                return Ok(respond::error(StatusCode::NOT_IMPLEMENTED, &message));
            }
        };
        let asked = async {
            let until = deadline::of(&self.parts.headers)?;
            let target = self.app.inference.target(explainer, None)?.with_deadline(until);
            self.infer(&target, body, admission).await
        };
        // Errors name the explainer, not the model that was asked for.
        Ok(asked.await.unwrap_or_else(|error| response_to(&error, explainer, self.app)))
    }

    async fn infer(
        &self,
        target: &ModelTarget,
        body: Bytes,
        admission: &mut Admission,
    ) -> Result<Response, RequestError> {
        let app = self.app;
        let request = self.read(target, body, admission).await?;
        let mut response = app.inference.infer(target, request, admission).await?;
        let mut headers = std::mem::take(&mut response.headers).into_inner();
        model_headers::filter(&mut headers);
        if self.verb == Verb::Explain
            && let Some(explanation) = explanation(&response)
        {
            let text = explanation.to_vec();
            admission.reservation.resize(text.len())?;
            return Ok(respond::json_text(StatusCode::OK, headers, text));
        }
        let non_finite = app.non_finite;
        let size: usize = response.outputs.iter().map(Tensor::byte_len).sum();
        let write = move || write_v1_response(&response, non_finite);
        let text = if size < infer::LONG_RESPONSE {
            write()?
        } else {
            app.compute.run_at(priority::of_headers(&self.parts.headers), write).await??
        };
        admission.reservation.resize(text.len())?;
        Ok(respond::json_text(StatusCode::OK, headers, text))
    }

    async fn read(
        &self,
        target: &ModelTarget,
        body: Bytes,
        admission: &mut Admission,
    ) -> Result<InferenceRequest, RequestError> {
        let app = self.app;
        let rule = app.inference.tensor_rule(&target.model);
        let model = Arc::clone(&target.model);
        let is_long = body.len() >= body::LONG_BODY;
        let read = move || read_request(&model, &body, rule);
        let mut request =
            if is_long { app.compute.run_at(priority::of_headers(&self.parts.headers), read).await?? } else { read()? };
        admission.reservation.resize(request.memory_bytes())?;
        request.id = infer::new_id();
        priority::assign(&mut request, &self.parts.headers)?;
        request.trace = self.trace;
        if target.model.reads_headers() {
            let mut headers: HeaderMap = self.parts.headers.clone();
            if let Some(event) = self.event {
                event.add_headers(&mut headers);
            }
            app.cloud_events.set_request_headers(&mut request, &headers, &target.model);
        }
        Ok(request)
    }
}

fn read_request(model: &RegisteredModel, body: &Bytes, rule: TensorRule) -> Result<InferenceRequest, V1Error> {
    let declared = &model.metadata.inputs;
    match read_v1_request(body, declared, rule) {
        Err(V1Error::Missing) => match events::data_of_untyped(body) {
            Some(data) => read_v1_request(&data, declared, rule),
            None => Err(V1Error::Missing),
        },
        result => result,
    }
}

/// Returns the JSON of an explainer's answer.
fn explanation(response: &InferenceResponse) -> Option<&[u8]> {
    let [Tensor { name, data: TensorData::Variable(elements), .. }] = &response.outputs[..] else { return None };
    let text = elements.iter().next().filter(|_| name == EXPLANATION && elements.len() == 1)?;
    // The model's code wrote it.
    serde_json::from_slice::<serde::de::IgnoredAny>(text).ok().map(|_| text)
}
