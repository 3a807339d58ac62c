//! Responses as a stream of server-sent events.
//!
//! Each response of the model is one event, `data:` and the JSON of the response, as in the original; its headers stay in
//! `parameters.headers`. An error before the first event becomes an ordinary error response. A later error becomes an event
//! `event: error` with `{"error": …, "status": …}`, which ends the stream.
//!
//! The stream also ends with such an event when its key is removed or expires.
//!
//! The next event is produced when the connection has room for it, so a slow client slows down the model, and a client that
//! disconnects ends the stream.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, StatusCode, Uri};
use serde_json::{Map, Value, json};

use super::errors::RequestError;
use super::infer::{self, ParsedRequest};
use super::instrument::Observation;
use super::respond::ResponseBody;
use super::route::RouteSpec;
use super::{Answer, App, Call, Handled};
use crate::access::Scope::Infer;
use crate::access::StreamRight;
use crate::inference::{InferenceStream, ModelTarget};
use crate::server::exchange::Exchange;
use crate::server::{access_control, model_headers, panic_boundary};
use crate::types::json::BinaryOutputs;
use crate::types::{InferenceResponse, Priority};

pub(super) const ROUTES: &[RouteSpec] = &[
    RouteSpec::post("/v2/models/{model_name}/infer_stream", Infer, infer_stream),
    RouteSpec::post("/v2/models/{model_name}/versions/{model_version}/infer_stream", Infer, infer_stream),
    RouteSpec::post("/v2/models/{model_name}/generate_stream", Infer, infer_stream),
    RouteSpec::post("/v2/models/{model_name}/versions/{model_version}/generate_stream", Infer, infer_stream),
];

/// A stream whose first event is available.
pub(super) struct EventStream {
    /// `None` if the model ends without a response.
    first: Option<Bytes>,
    target: ModelTarget,
    responses: InferenceStream,
    right: Option<StreamRight>,
}

/// Reads a request and waits for the model's first response.
fn infer_stream(mut call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let app = call.app;
        let mut exchange = call.exchange()?;
        // Events are text, so a request for binary outputs is ignored.
        let ParsedRequest { target, request, .. } = infer::read(&mut call, &mut exchange).await?;
        let Parts { headers, extensions, .. } = call.parts;
        let certificate = access_control::certificate_names(extensions);
        let right =
            access_control::stream_right(app.access.as_ref(), call.grant, headers, certificate, Infer, call.name)?;
        let id = request.id.clone();
        let admission = std::mem::take(call.admission);
        let mut responses = app.inference.infer_stream(&target, id, stream::iter([request]), admission)?;
        let first = match responses.next().await {
            Some(response) => Some(event(app, &mut exchange, &target, response?).await?),
            None => None,
        };
        Ok(Answer::Events(EventStream { first, target, responses, right }))
    })
}

impl EventStream {
    /// Creates the response that sends the events. The observation of the request ends with the last event.
    pub(super) fn respond(
        self,
        app: Arc<App>,
        observation: Option<Observation>,
        uri: Uri,
    ) -> http::Response<ResponseBody> {
        let Self { first, target, responses, right } = self;
        let later = LaterEvents { app, target, responses: Some(responses), right, observation, uri };
        let events = stream::iter(first).chain(stream::unfold(later, LaterEvents::next));
        let mut response = http::Response::new(ResponseBody::Stream(Box::pin(events)));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }
}

/// The events after the first.
struct LaterEvents {
    app: Arc<App>,
    target: ModelTarget,
    /// `None` after an error.
    responses: Option<InferenceStream>,
    right: Option<StreamRight>,
    observation: Option<Observation>,
    uri: Uri,
}

impl LaterEvents {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        let Self { app, target, responses, right, uri, .. } = &mut self;
        let work = async {
            let responses = responses.as_mut()?;
            let response = tokio::select! {
                biased;
                refusal = access_control::right_lost(right.as_mut()) => return Some(Err(refusal.into())),
                response = responses.next() => response?,
            };
            Some(match response {
                Ok(response) => {
                    event(
                        app,
                        &mut Exchange::later(&app.inference, &app.compute, Priority::default(), None),
                        target,
                        response,
                    )
                    .await
                }
                Err(error) => Err(error.into()),
            })
        };
        let next = panic_boundary::contain(uri.path(), work).await;
        let Some(event) = next.unwrap_or_else(|panicked| Some(Err(panicked.into()))) else {
            // The status has been sent: it was 200 even if an error followed.
            if let Some(observation) = self.observation {
                observation.end(self.app.metrics.as_ref(), &self.uri, StatusCode::OK);
            }
            return None;
        };
        let event = event.unwrap_or_else(|error| {
            self.responses = None;
            error_event(&error, self.app.overload_as_429)
        });
        Some((event, self))
    }
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
    let event = data(&infer::write(app, exchange, response, BinaryOutputs::default(), &mut reservation).await?.json);
    reservation.resize(event.len())?;
    Ok(reservation.attach(event))
}

/// Encodes an error as an event, with the status that an ordinary response would have had.
fn error_event(error: &RequestError, overload_as_429: bool) -> Bytes {
    let text = json!({ "error": error.to_string(), "status": error.status(overload_as_429).as_u16() }).to_string();
    [b"event: error\n", data(text.as_bytes()).as_ref()].concat().into()
}

/// Frames a line of JSON, which contains no line breaks.
fn data(text: &[u8]) -> Bytes {
    [b"data: ".as_slice(), text, b"\n\n"].concat().into()
}
