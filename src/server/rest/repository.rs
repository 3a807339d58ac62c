//! The model repository API: index, load, unload.

use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::body::LONG_BODY;
use super::errors::{IndexError, RequestError};
use super::respond::{self, Response};
use super::route::Route;
use super::{App, RequestBody, body};
use crate::access::Grant;
use crate::admin::{AdminError, IndexEntry};
use crate::inference::Admission;
use crate::settings;
use crate::types::text;

/// A version of a model, as the index of the protocol shows it.
#[derive(Serialize)]
struct IndexLine<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    state: &'static str,
    reason: &'a str,
}

impl<'a> From<&'a IndexEntry> for IndexLine<'a> {
    fn from(entry: &'a IndexEntry) -> Self {
        let IndexEntry { name, version, state, reason } = entry;
        Self { name, version: version.as_deref(), state: state.name(), reason }
    }
}

pub(super) async fn index<B: RequestBody>(app: &App, headers: &HeaderMap, body: B, grant: Option<&Grant>) -> Response {
    let mut admission = app.inference.admission();
    list(app, headers, body, grant, &mut admission).await.unwrap_or_else(|error| error.response())
}

async fn list<B: RequestBody>(
    app: &App,
    headers: &HeaderMap,
    body: B,
    grant: Option<&Grant>,
    admission: &mut Admission,
) -> Result<Response, RequestError> {
    let text = body::read(headers, body, app.max_body_bytes, &app.compute, &mut admission.reservation).await?.json;
    let ready =
        if text.len() < LONG_BODY { only_ready(&text)? } else { app.compute.run(move || only_ready(&text)).await?? };
    let entries = app.admin.index(ready).await?;
    let visible = entries.iter().filter(|entry| grant.is_none_or(|grant| grant.allows(&entry.name)));
    let lines: Vec<IndexLine<'_>> = visible.map(IndexLine::from).collect();
    Ok(respond::json(StatusCode::OK, &lines))
}

/// The body of an index request.
#[derive(Deserialize)]
struct IndexRequest<'a> {
    #[serde(borrow, default)]
    ready: Option<&'a RawValue>,
}

/// Reads `{"ready": …}`. An empty body, as Triton's client sends it, requests all models.
fn only_ready(text: &[u8]) -> Result<bool, IndexError> {
    let text = text::without_mark(text).map_err(IndexError::Encoding)?;
    match text.trim_ascii_start().first() {
        None => return Ok(false),
        Some(b'{') => {}
        Some(_) => return Err(IndexError::NoObject),
    }
    let Some(ready) = serde_json::from_slice::<IndexRequest<'_>>(text)?.ready else { return Ok(false) };
    // No spelling of a boolean is longer, so longer texts need not be parsed.
    let short: String = ready.get().chars().take(100).collect();
    let value = serde_json::from_str(&short).ok();
    value.as_ref().and_then(settings::lenient_bool).ok_or(IndexError::Ready { found: short })
}

/// Loads the model's versions. The body is read and ignored.
pub(super) async fn load<B: RequestBody>(app: &App, route: &Route<'_>, parts: &Parts, body: B) -> Response {
    change(app, parts, body, app.admin.load(&route.name)).await
}

/// Unloads the model's versions. The body is read and ignored.
pub(super) async fn unload<B: RequestBody>(app: &App, route: &Route<'_>, parts: &Parts, body: B) -> Response {
    change(app, parts, body, app.admin.unload(&route.name)).await
}

/// Runs an operation that changes models, if the caller may do that.
async fn change<B: RequestBody>(
    app: &App,
    parts: &Parts,
    body: B,
    operation: impl Future<Output = Result<(), AdminError>>,
) -> Response {
    let work = async {
        app.callers.check(parts)?;
        body::discard(body, app.max_body_bytes).await?;
        operation.await.map_err(RequestError::from)
    };
    match work.await {
        Ok(()) => respond::empty(StatusCode::OK),
        Err(error) => error.response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_request_accepts_lenient_booleans() {
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
