//! `OpenAPI` documents, and the pages of Swagger UI that show them.
//!
//! `api.json` describes everything that is served; each document is derived from it. Pages and documents contain only
//! relative URLs, so that they work under any prefix, and load nothing from other servers.

mod assets;
mod document;
mod tensors;

use bytes::Bytes;
use flate2::Crc;
use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};

use super::App;
use super::compress::accepts_gzip;
use super::errors::RequestError;
use super::respond::{self, Response};
use super::route::{Route, RouteAction};
use crate::inference::InferenceError;
use crate::registry::RegisteredModel;
use crate::types::html::escape;
use assets::AssetContent;
use document::Document;

/// A page may only load files from this server and send requests to it. Swagger UI's style sheet contains images as data.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
);

/// For content that may change: clients may store it, but must revalidate it each time.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

/// For content that never changes under its name.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// Handles a route of the documentation. `path` is without the root path.
pub(super) async fn answer(app: &App, route: &Route<'_>, path: &str, headers: &HeaderMap) -> Response {
    let version = route.version.as_deref();
    let find = || app.inference.registry().find(&route.name, version);
    let response = match route.spec.action {
        RouteAction::DocsAsset => return asset(app, path, headers).await,
        RouteAction::OpenApi => Ok(document(Document::everything(), path)),
        RouteAction::DocsDocument => Ok(document(Document::data_plane(), path)),
        RouteAction::ModelDocsDocument => {
            find().map(|model| document(Document::of_model(&model.metadata, version), path))
        }
        RouteAction::ModelDocs => find().map(|model| page(path, &title(&model, version), model.drawing())),
        _ => Ok(page(path, "MLServer API Docs", None)),
    };
    match response {
        Ok(response) => revalidate(response, headers),
        Err(error) => RequestError::from(InferenceError::from(error)).response(),
    }
}

fn title(model: &RegisteredModel, version: Option<&str>) -> String {
    let version = version.map(|version| format!(" ({version})")).unwrap_or_default();
    format!("MLServer API Docs - {}{version}", model.name)
}

fn document(document: Document, path: &str) -> Response {
    let text = document.served_at(path);
    generated(text, HeaderValue::from_static("application/json"))
}

/// Creates a page. `drawing` is HTML, and shown above the document.
fn page(path: &str, title: &str, drawing: Option<&str>) -> Response {
    let files = format!("{}docs/assets/", "../".repeat(path.matches('/').count().saturating_sub(2)));
    let section = if drawing.is_some() { include_str!("graph.html") } else { "" };
    let mut page = include_str!("page.html").replace("{graph}", section);
    for asset in assets::all() {
        page = page.replace(&format!("{{{}}}", asset.original), &format!("{files}{}", asset.name));
    }
    // Names may contain placeholders, so each part is filled in on its own, and last.
    let (before, after) = page.split_once("{drawing}").unwrap_or((&page, ""));
    let page = [&before.replace("{title}", &escape(title)), drawing.unwrap_or_default(), after].concat();
    let mut response = generated(page, HeaderValue::from_static("text/html; charset=utf-8"));
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, PAGE_POLICY);
    response
}

/// Creates a response with a text, and its checksum as the entity tag.
fn generated(text: String, content_type: HeaderValue) -> Response {
    // Weak, because compression may follow.
    let tag = format!("W/\"{:08x}\"", checksum(text.as_bytes()));
    let mut response = Response::new(text.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, REVALIDATE);
    if let Ok(tag) = HeaderValue::try_from(tag) {
        headers.insert(ETAG, tag);
    }
    response
}

/// Replaces the response with 304 if the client already has this version (RFC 9110, section 13.1.2).
fn revalidate(mut response: Response, request: &HeaderMap) -> Response {
    let weak = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let Some(tag) = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(weak) else { return response };
    let known = request.get_all(IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    if known.flat_map(|tags| tags.split(',')).any(|known| known.trim() == "*" || weak(known) == tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Bytes::new().into();
        response.headers_mut().remove(CONTENT_TYPE);
        // A 304 has the header that the full response would have (RFC 9110, section 15.4.5).
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    response
}

async fn asset(app: &App, path: &str, headers: &HeaderMap) -> Response {
    let name = path.rsplit('/').next().unwrap_or_default();
    let Some(asset) = assets::find(name) else {
        return respond::error(StatusCode::NOT_FOUND, &format!("no such path: {path}"));
    };
    let (body, gzip) = match &asset.content {
        AssetContent::Plain(bytes) => (Bytes::from_static(bytes), false),
        AssetContent::Gzip(bytes) if app.gzip && accepts_gzip(headers) => (bytes.clone(), true),
        AssetContent::Gzip(bytes) => match app.compute.run(move || assets::decompress(bytes)).await {
            Ok(body) => (body, false),
            Err(panic) => return RequestError::from(panic).response(),
        },
    };
    let mut response = Response::new(body.into());
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, IMMUTABLE);
    if gzip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    response
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut checksum = Crc::new();
    checksum.update(bytes);
    checksum.sum()
}
