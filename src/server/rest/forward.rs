//! Requests that are passed on to handlers in a model's code, and their responses.

use bytes::Bytes;
use futures_util::{StreamExt, stream};

use super::errors::RequestError;
use super::respond::{self, BodyChunks, Response};
use super::streamed::{LastChunk, Streamed};
use super::{Answer, Call};
use crate::inference::{HandlerReply, InferenceError};
use crate::registry::RegisteredModel;
use crate::server::model_headers;
use crate::types::{CustomCall, CustomReply};

/// Returns a call as a handler of a model sees it.
pub(super) fn request(
    call: &Call<'_>,
    model: &RegisteredModel,
    path: &str,
    parameters: Vec<(String, String)>,
    body: Bytes,
) -> CustomCall {
    let parts = call.parts;
    let mut headers = parts.headers.clone();
    call.app.options.forward_headers.hide_from(model, &mut headers);
    let query = parts.uri.query().unwrap_or_default().to_owned();
    CustomCall { method: parts.method.clone(), path: path.to_owned(), parameters, query, headers, body }
}

/// Returns what a handler of a model has answered, whole or while it makes it. `last` writes an error that comes too late for a status.
pub(super) fn answer(
    call: &Call<'_>,
    model: &str,
    reply: HandlerReply,
    last: LastChunk,
) -> Result<Answer, RequestError> {
    let HandlerReply { reply, rest } = reply;
    let Some(rest) = rest else { return Ok(response(reply).into()) };
    let right = call.stream_right(model)?;
    let CustomReply { status, mut headers, body } = reply;
    model_headers::filter_custom(&mut headers);
    let inference = call.app.inference.clone();
    let hold = move |chunk: Result<Bytes, InferenceError>| {
        let chunk = chunk?;
        let mut reservation = inference.admission().reservation;
        reservation.grow(chunk.len())?;
        Ok(reservation.attach(chunk))
    };
    let chunks = stream::iter((!body.is_empty()).then_some(Ok(body))).chain(rest).map(hold);
    Ok(Answer::Streamed(Streamed { status, headers, chunks: Box::pin(chunks), right, last }))
}

/// Returns the response that a handler of a model has chosen.
pub(super) fn response(reply: CustomReply) -> Response {
    let CustomReply { status, mut headers, body } = reply;
    model_headers::filter_custom(&mut headers);
    respond::response(status, headers, BodyChunks::from(body))
}
