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
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use serde_json::Value;

use super::compress::accepts_gzip;
use super::errors::RequestError;
use super::respond::Response;
use super::route::RouteSpec;
use super::{Answer, Call, Handled};
use crate::access::Scope::Read;
use crate::registry::RegisteredModel;
use crate::types::ModelMetadata;
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
pub(super) const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

pub(super) const ROUTES: &[RouteSpec] = &[
    RouteSpec::get("/v2/docs", Read, server_page),
    RouteSpec::get("/v2/docs/dataplane.json", Read, data_plane),
    RouteSpec::get("/v2/docs/assets/{file}", Read, asset),
    RouteSpec::get("/openapi.json", Read, everything),
    RouteSpec::get("/v2/models/{model_name}/docs", Read, model_page),
    RouteSpec::get("/v2/models/{model_name}/versions/{model_version}/docs", Read, model_page),
    RouteSpec::get("/v2/models/{model_name}/docs/dataplane.json", Read, model_document),
    RouteSpec::get("/v2/models/{model_name}/versions/{model_version}/docs/dataplane.json", Read, model_document),
];

fn server_page(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move { Ok(revalidate(page(call.path(), "MLServer API Docs", None), call.parts).into()) })
}

fn data_plane(call: Call<'_>) -> Handled<'_> {
    Box::pin(
        async move { Ok(document(Document::data_plane().with_openai_prefix(&call.app.options.openai_prefix), &call)) },
    )
}

fn everything(call: Call<'_>) -> Handled<'_> {
    Box::pin(
        async move { Ok(document(Document::everything().with_openai_prefix(&call.app.options.openai_prefix), &call)) },
    )
}

fn model_page(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let model = call.find_model()?;
        let title = title(&model, call.version);
        Ok(revalidate(page(call.path(), &title, model.drawing()), call.parts).into())
    })
}

fn model_document(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let model = call.find_model()?;
        Ok(document(Document::of_model(&model.metadata, call.version), &call))
    })
}

/// Creates a request that a model can answer. `None` if it declares no inputs, or if the request would be too long.
pub(super) fn example(model: &ModelMetadata) -> Option<Value> {
    if model.inputs.is_empty() { None } else { tensors::example(&model.inputs) }
}

fn title(model: &RegisteredModel, version: Option<&str>) -> String {
    let version = version.map(|version| format!(" ({version})")).unwrap_or_default();
    format!("MLServer API Docs - {}{version}", model.name)
}

fn document(document: Document, call: &Call<'_>) -> Answer {
    let text = document.served_at(call.path());
    revalidate(generated(text, HeaderValue::from_static("application/json")), call.parts).into()
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
pub(super) fn generated(text: String, content_type: HeaderValue) -> Response {
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
pub(super) fn revalidate(mut response: Response, request: &Parts) -> Response {
    let weak = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let Some(tag) = response.headers().get(ETAG).and_then(|tag| tag.to_str().ok()).map(weak) else { return response };
    let known = request.headers.get_all(IF_NONE_MATCH).iter().filter_map(|tags| tags.to_str().ok());
    if known.flat_map(|tags| tags.split(',')).any(|known| known.trim() == "*" || weak(known) == tag) {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        *response.body_mut() = Bytes::new().into();
        response.headers_mut().remove(CONTENT_TYPE);
        // A 304 has the header that the full response would have (RFC 9110, section 15.4.5).
        response.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    }
    response
}

fn asset(call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let (app, path) = (call.app, call.path());
        let name = path.rsplit('/').next().unwrap_or_default();
        let unknown = || RequestError::other(StatusCode::NOT_FOUND, format!("no such path: {path}"));
        let asset = assets::find(name).ok_or_else(unknown)?;
        let (body, gzip) = match &asset.content {
            AssetContent::Plain(bytes) => (Bytes::from_static(bytes), false),
            AssetContent::Gzip(bytes) if app.options.gzip && accepts_gzip(&call.parts.headers) => (bytes.clone(), true),
            AssetContent::Gzip(bytes) => (app.compute.run(move || assets::decompress(bytes)).await?, false),
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
        Ok(response.into())
    })
}

pub(super) fn checksum(bytes: &[u8]) -> u32 {
    let mut checksum = Crc::new();
    checksum.update(bytes);
    checksum.sum()
}
