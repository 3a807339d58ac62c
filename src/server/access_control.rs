//! Access control of a request, for all transports.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderValue, StatusCode};

use super::respond::{self, Response};
use super::{PacedRequestBody, ResponseHold, WaitingMark};
use crate::access::{Access, AccessRequest, Grant, InFlightPermit, Refusal, RefusalKind, Scope, StreamRight};
use crate::tls::ClientNames;

/// Decides whether a request may do what needs a scope, for a model if it concerns one. While that waits for the keys of an issuer, the
/// request is marked as waiting.
pub(super) async fn authorize(
    access: &Access,
    parts: &Parts,
    body: &mut impl PacedRequestBody,
    scope: Scope,
    model: &str,
) -> Result<Option<Grant>, Refusal> {
    let request = AccessRequest {
        headers: &parts.headers,
        certificate: certificate_names(&parts.extensions),
        scope,
        model,
        path: parts.uri.path(),
        address: body.peer(),
    };
    access.authorize(request, move || body.mark_waiting()).await
}

/// Returns the names of the client's certificate.
pub(super) fn certificate_names(extensions: &Extensions) -> &[String] {
    extensions.get::<Arc<ClientNames>>().map_or(&[], |client| client.names())
}

/// Returns the right of a stream of a model, if there is access control.
pub(super) fn stream_right(
    access: Option<&Access>,
    grant: Option<&Grant>,
    headers: &HeaderMap,
    certificate: &[String],
    scope: Scope,
    model: &str,
) -> Result<Option<StreamRight>, Refusal> {
    let granted = access.zip(grant);
    granted.map(|(access, grant)| access.stream_right(grant, headers, certificate, scope, model)).transpose()
}

/// Returns a future that waits until a stream has lost its right, possibly forever. A stream polls the same one with each of its messages, so
/// that it registers for changes once.
pub(super) fn right_lost(right: Option<StreamRight>) -> BoxFuture<'static, Refusal> {
    match right {
        Some(mut right) => Box::pin(async move { right.lost().await }),
        None => Box::pin(std::future::pending()),
    }
}

/// Reports whether the credentials of a request have a scope, for answers of methods that need none.
pub(super) fn has_scope(access: &Access, headers: &HeaderMap, extensions: &Extensions, scope: Scope) -> bool {
    access.has_scope(headers, certificate_names(extensions), scope)
}

/// Attaches the mark of a request without a right to its response.
pub(super) fn hold_mark<B>(response: &mut http::Response<B>, mark: Option<Arc<WaitingMark>>) {
    if let Some(mark) = mark {
        response.extensions_mut().insert(ResponseHold::WithoutRight(mark));
    }
}

/// Attaches what a principal has in flight to a response, until it has been sent.
pub(super) fn hold_permit<B>(response: &mut http::Response<B>, permit: Option<InFlightPermit>) {
    if let Some(permit) = permit {
        response.extensions_mut().insert(ResponseHold::Permit(Arc::new(permit)));
    }
}

/// Creates the response over HTTP to a request that is refused.
pub(super) fn refuse(refusal: &Refusal) -> Response {
    let mut response = respond::error(status(refusal), &refusal.to_string());
    explain(refusal, response.headers_mut());
    response
}

/// Adds the headers that say what a refused client can do.
pub(super) fn explain(refusal: &Refusal, headers: &mut HeaderMap) {
    if let Some(challenge) = refusal.challenge().and_then(|challenge| HeaderValue::try_from(challenge).ok()) {
        headers.insert(WWW_AUTHENTICATE, challenge);
    }
    if let RefusalKind::Limited { retry_after: wait } | RefusalKind::Unavailable { retry_after: wait } = refusal.kind()
    {
        headers.insert(RETRY_AFTER, retry_after(wait));
    }
}

/// Returns the status of a refusal over HTTP.
pub(super) const fn status(refusal: &Refusal) -> StatusCode {
    match refusal.kind() {
        RefusalKind::Unauthenticated { .. } => StatusCode::UNAUTHORIZED,
        RefusalKind::Forbidden { .. } => StatusCode::FORBIDDEN,
        RefusalKind::Limited { .. } => StatusCode::TOO_MANY_REQUESTS,
        RefusalKind::Unavailable { .. } => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Returns the header for a wait, in whole seconds of at least one.
pub(super) fn retry_after(wait: Duration) -> HeaderValue {
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    HeaderValue::from(seconds.clamp(1, 86_400))
}
