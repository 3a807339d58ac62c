//! Responses as a stream of server-sent events.
//!
//! Each response of the model is one event, `data:` and the JSON of the response, as in the original; its headers stay in
//! `parameters.headers`. An error before the first event becomes an ordinary error response. A later error becomes an event
//! `event: error` with `{"error": …, "status": …}`, which ends the stream.
//!
//! The stream also ends with such an event when its key is removed or expires.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::errors::RequestError;
use super::infer::{self, ParsedRequest};
use super::route::RouteSpec;
use super::streamed::Streamed;
use super::{Answer, App, Call, Handled, event_stream};
use crate::access::Scope::Infer;
use crate::compute::LONG_WORK;
use crate::inference::ModelTarget;
use crate::server::exchange::Exchange;
use crate::server::model_headers;
use crate::types::json::BinaryOutputs;
use crate::types::{InferenceResponse, Priority};

pub(super) const ROUTES: &[RouteSpec] = &[
    RouteSpec::post("/v2/models/{model_name}/infer_stream", Infer, infer_stream),
    RouteSpec::post("/v2/models/{model_name}/versions/{model_version}/infer_stream", Infer, infer_stream),
    RouteSpec::post("/v2/models/{model_name}/generate_stream", Infer, infer_stream),
    RouteSpec::post("/v2/models/{model_name}/versions/{model_version}/generate_stream", Infer, infer_stream),
];

/// Reads a request and waits for the model's first response.
fn infer_stream(mut call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let app = Arc::clone(call.app);
        let mut exchange = call.exchange()?;
        // Events are text, so a request for binary outputs is ignored.
        let ParsedRequest { target, request, .. } = infer::read(&mut call, &mut exchange).await?;
        let right = call.stream_right(call.name)?;
        let id = request.id.clone();
        let admission = std::mem::take(call.admission);
        let mut responses = app.inference.infer_stream(&target, id, stream::iter([request]), admission)?;
        let first = match responses.next().await {
            Some(response) => Some(event(&app, &mut exchange, &target, response?).await),
            None => None,
        };
        let later = responses.then(move |response| {
            let (app, target) = (Arc::clone(&app), target.clone());
            async move {
                let mut exchange = Exchange::later(&app.inference, &app.compute, Priority::default(), None);
                event(&app, &mut exchange, &target, response?).await
            }
        });
        let first = stream::iter(first.transpose()?.map(Ok));
        Ok(Answer::Streamed(Streamed {
            status: StatusCode::OK,
            headers: event_stream::headers(),
            chunks: Box::pin(first.chain(later)),
            right,
            last: |error, overload_as_429| Some(error_event(error, overload_as_429)),
        }))
    })
}

/// Encodes a response as an event, with its headers in the body.
async fn event(
    app: &App,
    exchange: &mut Exchange<'_>,
    target: &ModelTarget,
    mut response: InferenceResponse,
) -> Result<Bytes, RequestError> {
    model_headers::filter(&mut response.headers);
    let of_model = response.headers.drain().filter_map(|(name, value)| {
        let value = value.to_str().ok()?.to_owned();
        Some((name?.as_str().to_owned(), value))
    });
    let mut headers: Map<String, Value> = of_model.map(|(name, value)| (name, Value::from(value))).collect();
    let ours = app.cloud_events.headers_in_body(&target.model, &response.id);
    headers.extend(ours.map(|(name, value)| (name.to_owned(), Value::from(value))));
    response.parameters.others.shift_insert(0, "headers".to_owned(), Value::Object(headers));
    let mut reservation = app.inference.admission().reservation;
    let binary = BinaryOutputs::default();
    let work = infer::encoding_work(&response, &binary);
    if work >= LONG_WORK {
        reservation.grow(infer::text_memory(&response, &binary))?;
    }
    let event = event_stream::data(&infer::write(app, exchange, response, binary, work).await?.json);
    reservation.resize(event.len())?;
    Ok(reservation.attach(event))
}

/// Encodes an error as an event, with the status that an ordinary response would have had.
fn error_event(error: &RequestError, overload_as_429: bool) -> Bytes {
    let text = json!({ "error": error.to_string(), "status": error.status(overload_as_429).as_u16() }).to_string();
    [b"event: error\n", event_stream::data(text.as_bytes()).as_ref()].concat().into()
}
