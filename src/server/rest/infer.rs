//! Inference.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use super::body::{self, LONG_BODY};
use super::errors::RequestError;
use super::events::Event;
use super::respond::{self, BodyChunks, Response};
use super::route::Route;
use super::{App, RequestBody};
use crate::inference::{Admission, InferenceError, ModelTarget};
use crate::server::payload::{JSON_LENGTH, Payload};
use crate::server::{deadline, priority};
use crate::telemetry::traces::RequestPhase;
use crate::types::json::{self, BinaryOutputs, JsonBody, JsonRequest, ReadError, WriteOptions};
use crate::types::{Datatype, InferenceRequest, InferenceResponse, Priority, Tensor, TensorRule, TraceContext};

/// Responses with at least this many bytes of tensors to write as JSON are encoded on the compute pool.
pub(super) const LONG_RESPONSE: usize = 32 * 1024;

/// Handles an inference request, whose span is `trace` if it is traced.
pub(super) async fn infer<B: RequestBody>(
    app: &App,
    route: &Route<'_>,
    headers: &HeaderMap,
    body: B,
    trace: Option<TraceContext>,
    admission: &mut Admission,
) -> Response {
    let result = try_infer(app, route, headers, body, trace, admission).await;
    result.unwrap_or_else(|error| error.inference_response(app.overload_as_429))
}

async fn try_infer<B: RequestBody>(
    app: &App,
    route: &Route<'_>,
    headers: &HeaderMap,
    body: B,
    trace: Option<TraceContext>,
    admission: &mut Admission,
) -> Result<Response, RequestError> {
    let ParsedRequest { target, request, binary_outputs, event } =
        read(app, route, headers, body, trace, admission).await?;
    let (request_bytes, priority) = (admission.reservation.bytes(), request.priority);
    let mut response = app.inference.infer(&target, request, admission).await?;

    let mut headers = app.cloud_events.take_response_headers(&mut response, &target.model);
    // If the model sets it, it describes another body.
    headers.remove(JSON_LENGTH);
    let since = trace.map(|_| Instant::now());
    let JsonBody { json, binary } = write(app, response, binary_outputs, priority).await?;
    if let Some(since) = since {
        app.inference
            .traces()
            .record_phase(trace, RequestPhase { name: "encode", since, until: Instant::now(), batch: None });
    }
    let bytes = json.len() + binary.iter().map(Bytes::len).sum::<usize>();
    // Binary outputs may be slices of the request.
    admission.reservation.resize(if binary.is_empty() { bytes } else { bytes.max(request_bytes) })?;
    let answer = |response| match event {
        None => response,
        Some(event) => event.answer_v2(&app.events, &target.model.name, response),
    };
    if binary.is_empty() {
        return Ok(answer(respond::json_text(StatusCode::OK, headers, json)));
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(JSON_LENGTH, HeaderValue::from(json.len()));
    Ok(answer(respond::response(StatusCode::OK, headers, BodyChunks::new(json, binary))))
}

/// Encodes a response, on the compute pool if it is large.
pub(super) async fn write(
    app: &App,
    response: InferenceResponse,
    binary: BinaryOutputs,
    priority: Priority,
) -> Result<JsonBody, RequestError> {
    // Binary data is sent without encoding, except BYTES.
    let work = |output: &Tensor| match output.datatype {
        Datatype::Bytes => output.byte_len(),
        _ if binary.wants(&output.name) => 0,
        _ => output.byte_len(),
    };
    let size: usize = response.outputs.iter().map(work).sum();
    let options = WriteOptions { binary, non_finite: app.non_finite };
    if size < LONG_RESPONSE {
        return Ok(json::write_response(&response, &options)?);
    }
    Ok(app.compute.run_at(priority, move || json::write_response(&response, &options)).await??)
}

/// A request, the model that it is for, and the outputs that it wants as binary data.
pub(super) struct ParsedRequest {
    pub(super) target: ModelTarget,
    pub(super) request: InferenceRequest,
    pub(super) binary_outputs: BinaryOutputs,
    /// The `CloudEvent` that the request is.
    pub(super) event: Option<Box<Event>>,
}

/// Finds the model of a request and reads the request, with the headers that this model sees. `admission` holds its bytes.
pub(super) async fn read<B: RequestBody>(
    app: &App,
    route: &Route<'_>,
    headers: &HeaderMap,
    body: B,
    trace: Option<TraceContext>,
    admission: &mut Admission,
) -> Result<ParsedRequest, RequestError> {
    // Reject an unknown model before reading the body.
    let target = app.inference.target(&route.name, route.version.as_deref())?;
    let mut event = Event::of(headers)?;
    let until = deadline::of(headers)?;
    let target = target.with_deadline(until);
    let reservation = &mut admission.reservation;
    let (limit, compute) = (app.max_body_bytes, &app.compute);
    let mut body = match until {
        None => body::read(headers, body, limit, compute, reservation).await?,
        // Boxed, so that the futures of requests without a deadline stay small.
        Some(until) => {
            let received = Box::pin(body::read(headers, body, limit, compute, reservation));
            timeout_at(until, received).await.map_err(|_| InferenceError::Deadline)??
        }
    };
    if let Some(event) = &mut event {
        body.json = event.open(body.json)?;
    }
    let rule = app.inference.tensor_rule(&target.model);
    let size = body.json.len() + body.binary.as_ref().map_or(0, Bytes::len);
    let JsonRequest { mut request, id, binary_outputs } = if size < LONG_BODY {
        parse(body, rule)?
    } else {
        app.compute.run_at(priority::of_headers(headers), move || parse(body, rule)).await??
    };
    reservation.resize(request.memory_bytes())?;
    request.id = id.unwrap_or_else(new_id);
    priority::assign(&mut request, headers)?;
    request.trace = trace;

    app.cloud_events.set_request_headers(&mut request, headers, &target.model);
    Ok(ParsedRequest { target, request, binary_outputs, event })
}

/// Returns a random id, without the detour of `to_string` through the formatter.
pub(super) fn new_id() -> String {
    Uuid::new_v4().hyphenated().encode_lower(&mut Uuid::encode_buffer()).to_owned()
}

fn parse(body: Payload, rule: TensorRule) -> Result<JsonRequest, ReadError> {
    json::read_request_with(&body.json, body.binary, rule)
}
