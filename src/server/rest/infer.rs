//! Inference.

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use http::{Request, StatusCode};
use tracing::warn;
use uuid::Uuid;

use super::body::{self, LONG_BODY};
use super::cloud_events::Message;
use super::errors::RequestError;
use super::route::ModelRoute;
use super::{App, Shared, respond};
use crate::types::InferenceRequest;
use crate::types::json::{self, ReadError};

/// Answers whose outputs hold more bytes than this are written on the compute pool.
const LONG_ANSWER: usize = 32 * 1024;

pub(super) async fn infer(State(app): State<Shared>, route: ModelRoute, request: Request<Body>) -> Response {
    answer(&app, &route, request).await.unwrap_or_else(|error| error.response())
}

async fn answer(app: &App, route: &ModelRoute, request: Request<Body>) -> Result<Response, RequestError> {
    let (parts, body) = request.into_parts();
    // An unknown model is told before its body is read.
    let target = app.inference.target(&route.name, route.version.as_deref())?;
    let text = body::read(&parts.headers, body, app.max_body_bytes, &app.compute).await?;
    let mut request =
        if text.len() < LONG_BODY { read(&text)? } else { app.compute.run(move || read(&text)).await?? };

    request.headers = parts.headers;
    if request.parameters.0.shift_remove("headers").is_some() {
        warn!(
            model = route.name,
            request_id = request.id,
            "Ignored the request's parameter `headers`: it is the transport's."
        );
    }
    if target.model.reads_headers() {
        app.cloud_events.add(&mut request.headers, Message::Request, &route.name, &request.id);
    }
    let mut response = app.inference.infer(&target, request).await?;

    let mut headers = std::mem::take(&mut response.headers);
    app.cloud_events.add(&mut headers, Message::Response, &response.model_name, &response.id);
    let size: usize = response.outputs.iter().map(crate::types::Tensor::byte_len).sum();
    let text = if size < LONG_ANSWER {
        json::write_response(&response)?
    } else {
        app.compute.run(move || json::write_response(&response)).await??
    };
    let mut response = respond::json_text(StatusCode::OK, text);
    headers.extend(std::mem::take(response.headers_mut()));
    *response.headers_mut() = headers;
    Ok(response)
}

/// Reads a request and gives it an id when it has none.
fn read(text: &Bytes) -> Result<InferenceRequest, ReadError> {
    let (mut request, id) = json::read_request(text)?;
    request.id = id.unwrap_or_else(|| Uuid::new_v4().to_string());
    Ok(request)
}
