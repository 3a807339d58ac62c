//! The model repository API: index, load, unload.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::body::LONG_BODY;
use super::errors::RequestError;
use super::respond::{self, Response};
use super::route::Route;
use super::{App, BodyFailure, body};
use crate::admin::{AdminError, IndexEntry};
use crate::settings;

/// Why a body does not say what to list.
#[derive(Debug, thiserror::Error)]
pub(super) enum IndexError {
    #[error("the body is not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the body must be a JSON object, such as {{}} or {{\"ready\": true}}")]
    NoObject,
    #[error("`ready`: expected true or false, found `{found}`")]
    Ready { found: String },
}

/// A version of a model, as the protocol's index shows it.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    state: &'static str,
    reason: &'a str,
}

impl<'a> From<&'a IndexEntry> for Line<'a> {
    fn from(entry: &'a IndexEntry) -> Self {
        let IndexEntry { name, version, state, reason } = entry;
        Self { name, version: version.as_deref(), state: state.name(), reason }
    }
}

pub(super) async fn index<B>(app: &App, headers: &HeaderMap, body: B) -> Response
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    list(app, headers, body).await.unwrap_or_else(|error| error.response())
}

async fn list<B>(app: &App, headers: &HeaderMap, body: B) -> Result<Response, RequestError>
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    let text = body::read(headers, body, app.max_body_bytes, &app.compute).await?.json;
    let ready =
        if text.len() < LONG_BODY { only_ready(&text)? } else { app.compute.run(move || only_ready(&text)).await?? };
    let entries = app.admin.index(ready).await?;
    let lines: Vec<Line<'_>> = entries.iter().map(Line::from).collect();
    Ok(respond::json(StatusCode::OK, &lines))
}

/// What an index may ask for.
#[derive(Deserialize)]
struct Question<'a> {
    #[serde(borrow, default)]
    ready: Option<&'a RawValue>,
}

/// Reads `{"ready": …}`. No body at all asks for everything, as Triton's client does.
fn only_ready(text: &[u8]) -> Result<bool, IndexError> {
    match text.trim_ascii_start().first() {
        None => return Ok(false),
        Some(b'{') => {}
        Some(_) => return Err(IndexError::NoObject),
    }
    let Some(ready) = serde_json::from_slice::<Question<'_>>(text)?.ready else { return Ok(false) };
    // No text that means a truth value is longer, and none that is longer need become a value.
    let short: String = ready.get().chars().take(100).collect();
    let value = serde_json::from_str(&short).ok();
    value.as_ref().and_then(settings::lenient_bool).ok_or(IndexError::Ready { found: short })
}

/// Loads the model's versions. The body means nothing and is only taken off the connection.
pub(super) async fn load<B>(app: &App, route: &Route<'_>, body: B) -> Response
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    match body::discard(body, app.max_body_bytes).await {
        Ok(()) => done(app.admin.load(&route.name).await),
        Err(error) => RequestError::from(error).response(),
    }
}

/// Unloads the model's versions. The body means nothing, as for [`load`].
pub(super) async fn unload<B>(app: &App, route: &Route<'_>, body: B) -> Response
where
    B: http_body::Body<Data = Bytes, Error: Into<BodyFailure>>,
{
    match body::discard(body, app.max_body_bytes).await {
        Ok(()) => done(app.admin.unload(&route.name).await),
        Err(error) => RequestError::from(error).response(),
    }
}

fn done(result: Result<(), AdminError>) -> Response {
    match result {
        Ok(()) => respond::empty(StatusCode::OK),
        Err(error) => RequestError::from(error).response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_may_be_asked_in_many_ways() {
        for all in ["", " ", "{}", r#"{"ready":null}"#, r#"{"ready":false,"x":[1]}"#, r#"{"ready":"No"}"#] {
            assert!(!only_ready(all.as_bytes()).unwrap(), "{all}");
        }
        for ready in ["true", "1", "1.0", r#""yes""#, r#""T""#] {
            assert!(only_ready(format!("{{\"ready\": {ready}}}").as_bytes()).unwrap(), "{ready}");
        }
        for bad in ["[]", "null", "[true]", "{", r#"{"ready":5}"#, r#"{"ready":[]}"#, r#"{"ready":true,"ready":true}"#]
        {
            assert!(only_ready(bad.as_bytes()).is_err(), "{bad}");
        }
        let long = format!(r#"{{"ready":[{}]}}"#, "1,".repeat(1000) + "1");
        let error = only_ready(long.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("`ready`: expected true or false, found `[1,1") && error.len() < 200, "{error}");
    }
}
