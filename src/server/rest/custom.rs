//! Calls of the routes that models bring along.
//!
//! They pass as they are: any method, any body within the limit, decompressed, and an answer with the status, the headers
//! and the body that the model chose. Paths of the protocol come first.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING, UPGRADE};
use http::request;
use percent_encoding::percent_decode_str;

use super::errors::RequestError;
use super::instrument::Observation;
use super::respond::{self, BodyChunks, Response};
use super::route;
use super::{App, BodyFailure, body};
use crate::inference::Admission;
use crate::registry::{CustomMatch, CustomTarget};
use crate::types::{CustomCall, CustomReply, PathTemplate};

/// Reports whether every path of a template is taken by the server, so that a model's own route could never be reached.
pub fn is_reserved(template: &PathTemplate) -> bool {
    route::is_taken(template.sample())
}

/// Answers a call whose path is none of the protocol's.
pub(super) async fn answer<B>(
    app: &App,
    parts: &request::Parts,
    path: &str,
    body: B,
    admission: &mut Admission,
) -> (Response, Option<Observation>)
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    match app.inference.registry().custom_route(&parts.method, &decoded) {
        CustomMatch::Nothing => (nothing(app, parts, path, &decoded), None),
        CustomMatch::OtherMethods { allow } => (respond::method_not_allowed(&parts.method, &parts.uri, &allow), None),
        CustomMatch::Found(target) => {
            let template = target.template().to_owned();
            let observation = Observation::of_custom(app, template, parts);
            let response = call(app, parts, &decoded, target, body, admission).await;
            (response.unwrap_or_else(|error| error.response()), Some(observation))
        }
    }
}

/// Answers a path that nothing has, unless a model has it with a slash behind.
fn nothing(app: &App, parts: &request::Parts, path: &str, decoded: &str) -> Response {
    let with_slash = app.inference.registry().custom_route(&parts.method, &format!("{decoded}/"));
    let redirect = match with_slash {
        CustomMatch::Nothing => None,
        _ => respond::redirect(&format!("{path}/"), &parts.uri, &app.root_path),
    };
    redirect.unwrap_or_else(|| respond::not_found(path, &parts.uri, &app.root_path))
}

async fn call<B>(
    app: &App,
    parts: &request::Parts,
    path: &str,
    target: CustomTarget,
    body: B,
    admission: &mut Admission,
) -> Result<Response, RequestError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    let body = body::read_any(&parts.headers, body, app.max_body_bytes, &app.compute).await?;
    let CustomTarget { model, place, parameters } = target;
    let call = CustomCall {
        method: parts.method.clone(),
        path: path.to_owned(),
        parameters,
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers: parts.headers.clone(),
        body,
    };
    let CustomReply { status, mut headers, body } = app.inference.call(&model, place, call, admission).await?;
    // How the body is framed is the connection's affair.
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION, UPGRADE] {
        headers.remove(name);
    }
    Ok(respond::whole(status, headers, BodyChunks::from(body)))
}
