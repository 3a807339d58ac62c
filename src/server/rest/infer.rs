//! Inference.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use tokio::time::Instant;
use uuid::Uuid;

use super::body::{self, JSON_LENGTH, LONG_BODY, RequestBody};
use super::deadline;
use super::errors::RequestError;
use super::respond::{self, BodyChunks, Response};
use super::route::Route;
use super::{App, BodyFailure};
use crate::inference::{Admission, ModelTarget};
use crate::server::priority;
use crate::telemetry::traces::RequestPhase;
use crate::types::json::{self, BinaryOutputs, JsonBody, JsonRequest, ReadError, WriteOptions};
use crate::types::{Datatype, InferenceRequest, InferenceResponse, Tensor, TraceContext};

/// Answers with more bytes to write than this are written on the compute pool.
const LONG_ANSWER: usize = 32 * 1024;

/// Answers a request, whose span is `trace` when traces are taken.
pub(super) async fn infer<B>(
    app: &App,
    route: &Route<'_>,
    headers: &HeaderMap,
    body: B,
    trace: Option<TraceContext>,
    admission: &mut Admission,
) -> Response
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    answer(app, route, headers, body, trace, admission).await.unwrap_or_else(|error| error.answer(app.overload_as_429))
}

async fn answer<B>(
    app: &App,
    route: &Route<'_>,
    headers: &HeaderMap,
    body: B,
    trace: Option<TraceContext>,
    admission: &mut Admission,
) -> Result<Response, RequestError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    let Received { target, request, binary_outputs } = read(app, route, headers, body, trace).await?;
    let mut response = app.inference.infer(&target, request, admission).await?;

    let mut headers = app.cloud_events.take_headers(&mut response, &target.model);
    // A model's would be that of another body.
    headers.remove(JSON_LENGTH);
    let since = trace.map(|_| Instant::now());
    let JsonBody { json, binary } = write(app, response, binary_outputs).await?;
    if let Some(since) = since {
        app.inference
            .traces()
            .record_phase(trace, RequestPhase { name: "encode", since, until: Instant::now(), batch: None });
    }
    if binary.is_empty() {
        return Ok(respond::json_text(StatusCode::OK, headers, json));
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(JSON_LENGTH, HeaderValue::from(json.len()));
    Ok(respond::whole(StatusCode::OK, headers, BodyChunks::new(json, binary)))
}

/// Writes an answer, where its length says.
pub(super) async fn write(
    app: &App,
    response: InferenceResponse,
    binary: BinaryOutputs,
) -> Result<JsonBody, RequestError> {
    // Binary data is not written but sent as it is, except BYTES.
    let work = |output: &Tensor| match output.datatype {
        Datatype::Bytes => output.byte_len(),
        _ if binary.wants(&output.name) => 0,
        _ => output.byte_len(),
    };
    let size: usize = response.outputs.iter().map(work).sum();
    let options = WriteOptions { binary, non_finite: app.non_finite };
    if size < LONG_ANSWER {
        return Ok(json::write_response(&response, &options)?);
    }
    Ok(app.compute.run(move || json::write_response(&response, &options)).await??)
}

/// A request, whose model it is for, and what it asks of the answer's form.
pub(super) struct Received {
    pub(super) target: ModelTarget,
    pub(super) request: InferenceRequest,
    pub(super) binary_outputs: BinaryOutputs,
}

/// Finds the model of a request and reads the request as that model sees it.
pub(super) async fn read<B>(
    app: &App,
    route: &Route<'_>,
    headers: &HeaderMap,
    body: B,
    trace: Option<TraceContext>,
) -> Result<Received, RequestError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    // An unknown model is told before its body is read.
    let target = app.inference.target(&route.name, route.version.as_deref())?;
    let target = target.with_deadline(deadline::of(headers)?);
    let body = body::read(headers, body, app.max_body_bytes, &app.compute).await?;
    let size = body.json.len() + body.binary.as_ref().map_or(0, Bytes::len);
    let JsonRequest { mut request, id, binary_outputs } =
        if size < LONG_BODY { parse(body)? } else { app.compute.run(move || parse(body)).await?? };
    request.id = id.unwrap_or_else(|| Uuid::new_v4().to_string());
    priority::give(&mut request, headers)?;
    request.trace = trace;

    app.cloud_events.give_headers(&mut request, headers, &target.model);
    Ok(Received { target, request, binary_outputs })
}

fn parse(body: RequestBody) -> Result<JsonRequest, ReadError> {
    json::read_request(&body.json, body.binary)
}
