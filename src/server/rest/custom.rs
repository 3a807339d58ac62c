//! Calls of the models' own routes.
//!
//! A call is passed to the model with any method and any body within the limit, decompressed. The response has the status,
//! the headers and the body that the model chose. Paths of the protocol take precedence.

use http::request;
use percent_encoding::percent_decode_str;

use super::errors::RequestError;
use super::instrument::Observation;
use super::respond::{self, BodyChunks, Response};
use super::route;
use super::{App, RequestBody, body};
use crate::access::Grant;
use crate::inference::Admission;
use crate::registry::{CustomMatch, CustomTarget};
use crate::server::{deadline, model_headers, panic_boundary};
use crate::types::{CustomCall, CustomReply, PathTemplate};

/// Reports whether the server itself serves every path of a template, so that a model's route would be unreachable.
pub fn is_reserved(template: &PathTemplate) -> bool {
    route::is_taken(template.sample())
}

/// Handles a request whose path is not one of the protocol's.
pub(super) async fn answer<B: RequestBody>(
    app: &App,
    parts: &request::Parts,
    path: &str,
    body: B,
    grant: Option<&Grant>,
    admission: &mut Admission,
) -> (Response, Option<Observation>) {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    match find(app, parts, &decoded, grant) {
        CustomMatch::NoRoute => (not_found(app, parts, path, &decoded, grant), None),
        CustomMatch::OtherMethods { allow } => (respond::method_not_allowed(&parts.method, &parts.uri, &allow), None),
        CustomMatch::Found(target) => {
            let template = target.template().to_owned();
            let observation = Observation::of_custom(app, template.clone(), parts, grant);
            let work = call(app, parts, &decoded, target, body, admission);
            let response =
                panic_boundary::contain(&template, work).await.unwrap_or_else(|panicked| Err(panicked.into()));
            (response.unwrap_or_else(|error| error.response()), Some(observation))
        }
    }
}

/// Finds the route of a path. The routes of models that the sender may not use do not exist for it.
fn find(app: &App, parts: &request::Parts, path: &str, grant: Option<&Grant>) -> CustomMatch {
    let found = app.inference.registry().custom_route(&parts.method, path);
    match (&found, grant) {
        (CustomMatch::Found(target), Some(grant)) if !grant.allows(&target.model.name) => CustomMatch::NoRoute,
        (CustomMatch::OtherMethods { .. }, Some(grant)) if !grant.allows_all() => CustomMatch::NoRoute,
        _ => found,
    }
}

/// Creates the response for an unknown path: 404, or a redirect if a model serves the path with a trailing slash.
fn not_found(app: &App, parts: &request::Parts, path: &str, decoded: &str, grant: Option<&Grant>) -> Response {
    let with_slash = find(app, parts, &format!("{decoded}/"), grant);
    let redirect = match with_slash {
        CustomMatch::NoRoute => None,
        _ => respond::redirect(&format!("{path}/"), &parts.uri, &app.root_path),
    };
    redirect.unwrap_or_else(|| respond::not_found(path, &parts.uri, &app.root_path))
}

async fn call<B: RequestBody>(
    app: &App,
    parts: &request::Parts,
    path: &str,
    target: CustomTarget,
    body: B,
    admission: &mut Admission,
) -> Result<Response, RequestError> {
    let body = {
        let limit = app.max_body_bytes;
        body::read_any(&parts.headers, body, limit, &app.compute, &mut admission.reservation).await?
    };
    let CustomTarget { model, index, parameters } = target;
    let mut headers = parts.headers.clone();
    app.forwarded.hide_others(&mut headers);
    // A header that means something else to the model is not an error.
    let deadline = deadline::of(&parts.headers).ok().flatten();
    let target = app.inference.custom_target(model).with_deadline(deadline);
    let call = CustomCall {
        method: parts.method.clone(),
        path: path.to_owned(),
        parameters,
        query: parts.uri.query().unwrap_or_default().to_owned(),
        headers,
        body,
    };
    let CustomReply { status, mut headers, body } = app.inference.call(&target, index, call, admission).await?;
    model_headers::filter_custom(&mut headers);
    Ok(respond::response(status, headers, BodyChunks::from(body)))
}
