//! Requests that are passed on to handlers in a model's code, and their responses.

use bytes::Bytes;

use super::Call;
use super::respond::{self, BodyChunks, Response};
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
    call.app.forwarded.hide_from(model, &mut headers);
    let query = parts.uri.query().unwrap_or_default().to_owned();
    CustomCall { method: parts.method.clone(), path: path.to_owned(), parameters, query, headers, body }
}

/// Returns the response that a handler of a model has chosen.
pub(super) fn response(reply: CustomReply) -> Response {
    let CustomReply { status, mut headers, body } = reply;
    model_headers::filter_custom(&mut headers);
    respond::response(status, headers, BodyChunks::from(body))
}
