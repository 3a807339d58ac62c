//! Calls of the models' own routes.
//!
//! A call is passed to the model with any method and any body within the limit, decompressed. The response has the status,
//! the headers and the body that the model chose. Paths of the protocol take precedence.

use std::sync::Arc;

use http::request;
use percent_encoding::percent_decode_str;

use super::errors::RequestError;
use super::instrument::Observation;
use super::respond::{self, Response};
use super::{Answer, App, Call, DynBody, body, forward};
use crate::access::Grant;
use crate::inference::Admission;
use crate::registry::{CustomMatch, CustomTarget};
use crate::server::{deadline, panic_boundary};

/// Handles a request whose path is not one of the protocol's.
pub(super) async fn answer(
    app: &Arc<App>,
    parts: &request::Parts,
    path: &str,
    body: DynBody<'_>,
    grant: Option<&Grant>,
    admission: &mut Admission,
) -> (Result<Answer, RequestError>, Option<Observation>) {
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    match find(app, parts, &decoded, grant) {
        CustomMatch::NoRoute => (Ok(not_found(app, parts, path, &decoded, grant).into()), None),
        CustomMatch::OtherMethods { allow } => {
            (Ok(respond::method_not_allowed(&parts.method, &parts.uri, &allow).into()), None)
        }
        CustomMatch::Found(target) => {
            let template = target.template().to_owned();
            let observation = Observation::of_custom(app, template.clone(), parts, grant);
            let call = Call { app, name: "", version: None, parts, grant, peer: None, body, trace: None, admission };
            let response = panic_boundary::contain(&template, pass_on(call, &decoded, target)).await;
            (response.map_err(RequestError::from).flatten(), Some(observation))
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
        _ => respond::redirect(&format!("{path}/"), &parts.uri, &app.options.root_path),
    };
    redirect.unwrap_or_else(|| respond::not_found(path, &parts.uri, &app.options.root_path))
}

/// Passes a call on to the route of a model.
async fn pass_on(mut call: Call<'_>, path: &str, target: CustomTarget) -> Result<Answer, RequestError> {
    let body = body::read_any(&mut call).await?;
    let CustomTarget { model, index, parameters } = target;
    // A header that means something else to the model is not an error.
    let deadline = deadline::of(&call.parts.headers).ok().flatten();
    let inference = &call.app.inference;
    let target = inference.custom_target(model).with_deadline(deadline);
    let request = forward::request(&call, &target.model, path, parameters, body);
    let reply = inference.call(&target, index, request, call.admission).await?;
    // The body has a form of its own, of which the server does not know how it reports an error.
    forward::answer(&call, &target.model.name, reply, |_, _| None)
}
