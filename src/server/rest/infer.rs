//! Inference.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use tracing::warn;
use uuid::Uuid;

use super::body::{self, LONG_BODY};
use super::errors::RequestError;
use super::respond::{self, Response};
use super::route::Route;
use super::{App, BodyFailure};
use crate::inference::Target;
use crate::types::json::{self, ReadError};
use crate::types::{InferenceRequest, InferenceResponse, Tensor};

/// Answers whose outputs hold more bytes than this are written on the compute pool.
const LONG_ANSWER: usize = 32 * 1024;

pub(super) async fn infer<B>(app: &App, route: &Route<'_>, headers: &HeaderMap, body: B) -> Response
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    answer(app, route, headers, body).await.unwrap_or_else(|error| error.response())
}

async fn answer<B>(app: &App, route: &Route<'_>, headers: &HeaderMap, body: B) -> Result<Response, RequestError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    let (target, request) = read(app, route, headers, body).await?;
    let mut response = app.inference.infer(&target, request).await?;

    let mut headers = app.cloud_events.of_answer(&target.model, &response.id);
    if !response.headers.is_empty() {
        // Ours replace those of the model that have the same name.
        let ours = std::mem::replace(&mut headers, std::mem::take(&mut response.headers));
        headers.extend(ours);
    }
    let text = write(app, response).await?;
    Ok(respond::json_text(StatusCode::OK, headers, text))
}

/// Writes an answer as JSON, where its length says.
pub(super) async fn write(app: &App, response: InferenceResponse) -> Result<Vec<u8>, RequestError> {
    let size: usize = response.outputs.iter().map(Tensor::byte_len).sum();
    if size < LONG_ANSWER {
        return Ok(json::write_response(&response)?);
    }
    Ok(app.compute.run(move || json::write_response(&response)).await??)
}

/// Finds the model of a request and reads the request as that model sees it.
pub(super) async fn read<B>(
    app: &App,
    route: &Route<'_>,
    headers: &HeaderMap,
    body: B,
) -> Result<(Target, InferenceRequest), RequestError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    // An unknown model is told before its body is read.
    let target = app.inference.target(&route.name, route.version.as_deref())?;
    let text = body::read(headers, body, app.max_body_bytes, &app.compute).await?;
    let mut request =
        if text.len() < LONG_BODY { parse(&text)? } else { app.compute.run(move || parse(&text)).await?? };

    if request.parameters.others.shift_remove("headers").is_some() {
        warn!(
            model = route.name.as_ref(),
            request_id = request.id,
            "Ignored the request's parameter `headers`: it is the transport's."
        );
    }
    if target.model.reads_headers() {
        request.headers = headers.clone();
        app.cloud_events.add_to_request(&mut request.headers, &target.model, &request.id);
    }
    Ok((target, request))
}

/// Reads a request and gives it an id when it has none.
fn parse(text: &Bytes) -> Result<InferenceRequest, ReadError> {
    let (mut request, id) = json::read_request(text)?;
    request.id = id.unwrap_or_else(|| Uuid::new_v4().to_string());
    Ok(request)
}
