//! KServe's V1 protocol: `:predict` and `:explain`, for every model.
//!
//! A `kserve.Model` gets the body as it is. For other models, instances become tensors, and the request takes the same path as one of
//! the V2 protocol.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::{CONTENT_TYPE, VARY};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use super::errors::RequestError;
use super::events::{self, Event};
use super::respond;
use super::route::RouteSpec;
use super::wide::{self, WIDE};
use super::{Answer, Call, Handled, body, console, forward, openai};
use crate::access::Scope::{Infer, Open, Read};
use crate::compute::LONG_WORK;
use crate::inference::ModelTarget;
use crate::registry::{RegisteredModel, V1Explainer};
use crate::server::exchange::{Exchange, new_id};
use crate::server::{model_headers, payload};
use crate::types::json::{
    AnswerForm, V1Error, data_text_memory, read_v1_request, write_v1_explanations, write_v1_response,
};
use crate::types::{
    InferenceRequest, InferenceResponse, RequestErrorKind, RequestedOutput, Tensor, TensorData, TensorRule, V1Verb,
};

pub(super) const ROUTES: &[RouteSpec] = &[
    // A model may serve it instead.
    RouteSpec::check("/", alive).shadowable(),
    // Of KServe.
    RouteSpec::get("/v2/models", Read, models),
    RouteSpec::get("/v1/models", Read, models).shadowable(),
    // Before the row of the model, whose name would include the verb.
    RouteSpec::post("/v1/models/{model_name}:predict", Infer, predict),
    RouteSpec::post("/v1/models/{model_name}:explain", Infer, explain),
    RouteSpec::get("/v1/models/{model_name}", Open, model),
];

/// The outputs of a model that explains its predictions by itself.
const OWN_EXPLANATION: [&str; 2] = ["contributions", "margin"];

/// The output of explainers: the explanation as JSON.
const EXPLANATION: &str = "explanation";

/// Reports the server as alive, as KServe's clients ask.
/// Answers browsers with the console, if it is on, and other clients as KServe does.
fn alive(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        if let Some(page) = console::page_for_root(&call) {
            return Ok(page.into());
        }
        let mut alive = respond::json(StatusCode::OK, &json!({ "status": "alive" }));
        if call.app.options.console.is_some() {
            alive.headers_mut().insert(VARY, HeaderValue::from_static("accept"));
        }
        Ok(alive.into())
    })
}

/// Lists the names of the models that are ready.
fn models(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let Call { app, grant, .. } = call;
        let models = app.inference.registry().models();
        let visible = models.iter().filter(|model| grant.is_none_or(|grant| grant.allows(&model.name)));
        let ready =
            visible.map(async |model| app.inference.is_model_ready_now(model).await.then_some(model.name.as_str()));
        let mut names: Vec<&str> = join_all(ready).await.into_iter().flatten().collect();
        names.sort_unstable();
        names.dedup();
        if !app.options.openai_prefix.is_empty() {
            return Ok(Answer::json(&json!({ "models": names })));
        }
        // The path is also that of OpenAI's API, whose clients read `data`.
        let visible = models.iter().filter(|model| grant.is_none_or(|grant| grant.allows(&model.name)));
        let data = openai::listed(visible.map(|model| &**model));
        Ok(Answer::json(&json!({ "object": "list", "data": data, "models": names })))
    })
}

/// Reports a model as ready, or why it is not.
fn model(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let model = call.find_model().map_err(|error| in_words_of_kserve(error, call.name))?;
        if !call.app.inference.is_model_ready_now(&model).await {
            return Err(not_ready(&model.name));
        }
        let mut answer = json!({ "name": model.name, "ready": true });
        // The same of one model, which the handler of that API shows to callers with the right to read.
        if call.app.options.openai_prefix.is_empty() && model.answers_openai() && call.may(Read) {
            answer.as_object_mut().into_iter().for_each(|fields| fields.append(&mut openai::described(&model)));
        }
        Ok(Answer::json(&answer))
    })
}

fn predict(call: Call<'_>) -> Handled<'_> {
    Box::pin(answer(call, V1Verb::Predict))
}

fn explain(call: Call<'_>) -> Handled<'_> {
    Box::pin(answer(call, V1Verb::Explain))
}

/// Returns an error with KServe's words and status, where it has some for a model.
fn in_words_of_kserve(error: RequestError, name: &str) -> RequestError {
    match &error {
        RequestError::Inference(failure) => match failure.kind() {
            RequestErrorKind::NotFound => {
                RequestError::other(StatusCode::NOT_FOUND, format!("Model with name {name} does not exist."))
            }
            RequestErrorKind::NotReady => not_ready(name),
            _ => error,
        },
        _ => error,
    }
}

fn not_ready(name: &str) -> RequestError {
    RequestError::other(StatusCode::SERVICE_UNAVAILABLE, format!("Model with name {name} is not ready."))
}

/// Handles `:predict` and `:explain`.
async fn answer(mut call: Call<'_>, verb: V1Verb) -> Result<Answer, RequestError> {
    let name = call.name;
    let result = try_answer(&mut call, verb).await;
    result.map_err(|error| in_words_of_kserve(error, name))
}

async fn try_answer(call: &mut Call<'_>, verb: V1Verb) -> Result<Answer, RequestError> {
    let headers = &call.parts.headers;
    let exchange = call.exchange()?;
    // Reject an unknown model before reading the body.
    let target = exchange.target(call.name, call.version)?;
    let mut event = Event::of(headers)?;
    let handlers = target.model.v1_handlers();
    if handlers.is_none() && !is_from_curl(headers) {
        payload::check_content_type(headers).map_err(body::BodyError::from)?;
    }
    let mut body = exchange.receive(|| body::read_any(call)).await??;
    if let Some(event) = &mut event {
        body = event.open(body)?;
    }
    let answer = match handlers {
        Some(handlers) => {
            let handler = if verb == V1Verb::Predict { handlers.predict } else { handlers.explain };
            let mut request = forward::request(call, &target.model, call.parts.uri.path(), Vec::new(), body);
            if let Some(event) = &event {
                event.add_headers(&mut request.headers);
            }
            let reply = call.app.inference.call_as_request(&target, handler, request, call.admission).await?;
            if event.is_none() {
                return forward::answer(call, &target.model.name, reply, |_, _| None);
            }
            // An event is one body, with attributes of its own.
            let held = &mut call.admission.reservation;
            forward::response(reply.whole(|bytes| Ok(held.grow(bytes)?)).await?).into()
        }
        None => answer_tensors(call, verb, exchange, &target, event.as_deref(), body).await?,
    };
    Ok(match (event, answer) {
        (Some(event), Answer::Complete(response)) => {
            event.answer(&call.app.options.events, &target.model.name, response).into()
        }
        // What is sent while it is written is an event already.
        (_, answer) => answer,
    })
}

/// Reports whether a request has the content type that curl sends unless it is told otherwise. No model takes forms.
fn is_from_curl(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|value| value == "application/x-www-form-urlencoded")
}

/// Converts the instances to tensors for the model or its explainer, and the outputs to predictions.
async fn answer_tensors(
    call: &mut Call<'_>,
    verb: V1Verb,
    exchange: Exchange<'_>,
    target: &ModelTarget,
    event: Option<&Event>,
    body: Bytes,
) -> Result<Answer, RequestError> {
    let explainer = match (verb, &target.model.explainer) {
        (V1Verb::Explain, V1Explainer::Model(explainer)) => explainer,
        (V1Verb::Explain, V1Explainer::None) if call.app.inference.explanation(&target.model).is_none() => {
            let message = format!(
                "Could not find explainer_host.: the model {} has no explainer; name one in its setting \
                 `parameters.extra.explainer`",
                target.model.name
            );
            return Err(RequestError::other(StatusCode::NOT_IMPLEMENTED, message));
        }
        _ => return infer(call, verb, exchange, target, event, body).await,
    };
    let asked = async {
        let target = exchange.target(explainer, None)?;
        infer(call, verb, exchange, &target, event, body).await
    };
    // Errors name the explainer, not the model that was asked for.
    asked.await.map_err(|error| in_words_of_kserve(error, explainer))
}

async fn infer(
    call: &mut Call<'_>,
    verb: V1Verb,
    mut exchange: Exchange<'_>,
    target: &ModelTarget,
    event: Option<&Event>,
    body: Bytes,
) -> Result<Answer, RequestError> {
    let app = call.app;
    let mut request = read(call, &mut exchange, target, event, body).await?;
    // A model that explains its predictions by itself does so in outputs that V2 has, too.
    let own = app.inference.explanation(&target.model).filter(|_| verb == V1Verb::Explain);
    let names = own.map(|explanation| explanation.feature_names.clone());
    if names.is_some() {
        request.outputs =
            OWN_EXPLANATION.map(|name| RequestedOutput { name: name.to_owned(), ..RequestedOutput::default() }).into();
    }
    let mut response = app.inference.infer(target, request, call.admission).await?;
    let mut headers = std::mem::take(&mut response.headers).into_inner();
    model_headers::filter(&mut headers);
    let text = if verb == V1Verb::Explain
        && let Some(explanation) = explanation(&response)
    {
        explanation.to_vec()
    } else {
        let non_finite = app.options.non_finite;
        // JSON is about twice as long as the data.
        let size = response.outputs.iter().map(|output| 2 * output.byte_len()).sum();
        if size >= LONG_WORK {
            let memory = response.outputs.iter().map(data_text_memory).sum();
            if memory >= WIDE && names.is_none() {
                // Errors and events name the model of the path, also if its explainer has answered.
                let (options, name) = (&app.options.events, call.name);
                let enclose = |headers: &mut HeaderMap| {
                    event.map_or_else(Default::default, |event| event.enclose(options, name, headers))
                };
                // Boxed, so that the futures of other requests stay small.
                let answer = wide::answer(call, &mut exchange, response, AnswerForm::V1, headers, enclose);
                return Box::pin(answer).await;
            }
            call.admission.reservation.grow(memory)?;
        }
        let write = move || match (names, &response.outputs[..]) {
            (Some(names), [contributions, margin]) => {
                write_v1_explanations(contributions, margin, names.as_deref(), non_finite)
            }
            _ => write_v1_response(&response, non_finite),
        };
        exchange.write(size, write).await??
    };
    call.admission.reservation.resize(text.len())?;
    Ok(respond::json_text(StatusCode::OK, headers, text).into())
}

async fn read(
    call: &mut Call<'_>,
    exchange: &mut Exchange<'_>,
    target: &ModelTarget,
    event: Option<&Event>,
    body: Bytes,
) -> Result<InferenceRequest, RequestError> {
    let app = call.app;
    let rule = app.inference.tensor_rule(&target.model);
    let model = Arc::clone(&target.model);
    let mut request = exchange.read(body.len(), move || read_request(&model, &body, rule)).await??;
    call.admission.reservation.resize(request.memory_bytes())?;
    request.id = new_id();
    exchange.prepare(&mut request);
    if target.model.reads_headers() {
        let mut headers = call.parts.headers.clone();
        if let Some(event) = event {
            event.add_headers(&mut headers);
        }
        app.cloud_events.set_request_headers(&mut request, &headers, &target.model);
    }
    Ok(request)
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
