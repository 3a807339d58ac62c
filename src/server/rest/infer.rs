//! Inference.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

use super::errors::RequestError;
use super::events::Event;
use super::respond::{self, BodyChunks};
use super::route::{RouteSpec, RouteSubject};
use super::wide::{self, WIDE};
use super::{App, Call, Handled, body};
use crate::access::Scope::Infer;
use crate::compute::LONG_WORK;
use crate::inference::ModelTarget;
use crate::server::exchange::{Exchange, new_id};
use crate::server::payload::{JSON_LENGTH, Payload};
use crate::types::json::{self, AnswerForm, BinaryOutputs, JsonBody, JsonRequest, WriteOptions};
use crate::types::{Datatype, InferenceRequest, InferenceResponse, Tensor};

/// The path that GET and HEAD do not find, since they belong to the model of that name.
pub(super) const ONLY_POST: &str = "/v2/models/infer";

pub(super) const ROUTES: &[RouteSpec] = &[
    // Of Seldon Core, for the only graph of the server.
    RouteSpec::post(ONLY_POST, Infer, infer).about(RouteSubject::Graph),
    RouteSpec::post("/v2/models/{model_name}/infer", Infer, infer),
    RouteSpec::post("/v2/models/{model_name}/versions/{model_version}/infer", Infer, infer),
    // Of Seldon Core, whose deployments have one graph.
    RouteSpec::post("/seldon/{namespace}/{deployment}/v2/models/infer", Infer, infer).about(RouteSubject::Graph),
    RouteSpec::post("/seldon/{namespace}/{deployment}/v2/models/{model_name}/infer", Infer, infer),
    RouteSpec::post("/v2/models/{model_name}/generate", Infer, infer),
    RouteSpec::post("/v2/models/{model_name}/versions/{model_version}/generate", Infer, infer),
];

/// Handles an inference request.
fn infer(mut call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let app = call.app;
        if call.name.is_empty() {
            let message = "the server has no inference graph, or several: name a model in the path";
            return Err(RequestError::other(StatusCode::NOT_FOUND, message));
        }
        let mut exchange = call.exchange()?;
        let ParsedRequest { target, request, binary_outputs, event } = read(&mut call, &mut exchange).await?;
        let request_bytes = call.admission.reservation.bytes();
        let mut response = app.inference.infer(&target, request, call.admission).await?;

        let sets_headers = !response.headers.is_empty();
        let mut headers = app.cloud_events.take_response_headers(&mut response, &target.model);
        if sets_headers {
            // It would describe another body.
            headers.remove(JSON_LENGTH);
        }
        let size = encoding_work(&response, &binary_outputs);
        if size >= LONG_WORK {
            let memory = text_memory(&response, &binary_outputs);
            if memory >= WIDE && !is_event_of_bytes(event.as_deref(), &response, &binary_outputs) {
                let form = AnswerForm::V2(binary_outputs);
                let enclose = |headers: &mut HeaderMap| match event {
                    None => (Bytes::new(), Bytes::new()),
                    Some(event) => event.enclose_v2(&app.options.events, &target.model.name, headers),
                };
                // Boxed, so that the futures of other requests stay small.
                return Box::pin(wide::answer(&mut call, &mut exchange, response, form, headers, enclose)).await;
            }
            call.admission.reservation.grow(memory)?;
        }
        let JsonBody { json, binary } = write(app, &mut exchange, response, binary_outputs, size).await?;
        let bytes = json.len() + binary.iter().map(Bytes::len).sum::<usize>();
        // Binary outputs may be slices of the request.
        call.admission.reservation.resize(if binary.is_empty() { bytes } else { bytes.max(request_bytes) })?;
        let response = if binary.is_empty() {
            respond::response(StatusCode::OK, headers, json.into())
        } else {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
            headers.insert(JSON_LENGTH, HeaderValue::from(json.len()));
            respond::response(StatusCode::OK, headers, BodyChunks::new(json, binary))
        };
        Ok(match event {
            None => response.into(),
            Some(event) => event.answer_v2(&app.options.events, &target.model.name, response).into(),
        })
    })
}

/// Estimates what it takes to encode a response, in bytes: binary data is sent without encoding, except BYTES, and JSON is about twice as
/// long as the data.
pub(super) fn encoding_work(response: &InferenceResponse, binary: &BinaryOutputs) -> usize {
    let work = |output: &Tensor| match output.datatype {
        Datatype::Bytes => 2 * output.byte_len(),
        _ if binary.wants(&output.name) => 0,
        _ => 2 * output.byte_len(),
    };
    response.outputs.iter().map(work).sum()
}

/// Estimates the memory that the text of a long response takes beside its tensors.
pub(super) fn text_memory(response: &InferenceResponse, binary: &BinaryOutputs) -> usize {
    let as_text = response.outputs.iter().filter(|output| !binary.wants(&output.name));
    as_text.map(json::data_text_memory).sum()
}

/// Reports whether an answer has binary data that becomes the data of an event, as a whole.
fn is_event_of_bytes(event: Option<&Event>, response: &InferenceResponse, binary: &BinaryOutputs) -> bool {
    event.is_some_and(Event::is_structured) && response.outputs.iter().any(|output| binary.wants(&output.name))
}

/// Encodes a response, which takes this much `work`.
pub(super) async fn write(
    app: &App,
    exchange: &mut Exchange<'_>,
    response: InferenceResponse,
    binary: BinaryOutputs,
    work: usize,
) -> Result<JsonBody, RequestError> {
    let options = WriteOptions { binary, non_finite: app.options.non_finite };
    Ok(exchange.write(work, move || json::write_response(&response, &options)).await??)
}

/// A request, the model that it is for, and the outputs that it wants as binary data.
pub(super) struct ParsedRequest {
    pub(super) target: ModelTarget,
    pub(super) request: InferenceRequest,
    pub(super) binary_outputs: BinaryOutputs,
    /// The `CloudEvent` that the request is.
    pub(super) event: Option<Box<Event>>,
}

/// Finds the model of a request and reads the request, with the headers that this model sees. The admission of the call holds its
/// bytes.
pub(super) async fn read(call: &mut Call<'_>, exchange: &mut Exchange<'_>) -> Result<ParsedRequest, RequestError> {
    let (app, headers) = (call.app, &call.parts.headers);
    // Reject an unknown model before reading the body.
    let target = exchange.target(call.name, call.version)?;
    let mut event = Event::of(headers)?;
    let Payload { mut json, binary } = exchange.receive(|| body::read(call)).await??;
    if let Some(event) = &mut event {
        json = event.open(json)?;
    }
    let rule = app.inference.tensor_rule(&target.model);
    let size = json.len() + binary.as_ref().map_or(0, Bytes::len);
    let parse = move || json::read_request_with(&json, binary, rule);
    let JsonRequest { mut request, id, binary_outputs } = exchange.read(size, parse).await??;
    call.admission.reservation.resize(request.memory_bytes())?;
    request.id = id.unwrap_or_else(new_id);
    exchange.prepare(&mut request);
    app.cloud_events.set_request_headers(&mut request, headers, &target.model);
    Ok(ParsedRequest { target, request, binary_outputs, event })
}
