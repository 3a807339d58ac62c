//! The model repository API: index, load, unload.

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::errors::{IndexError, RequestError};
use super::respond;
use super::route::{RouteSpec, RouteSubject};
use super::{Answer, Call, Handled, body};
use crate::access::Scope::{Admin, Read};
use crate::admin::{AdminError, IndexEntry};
use crate::settings;
use crate::types::Priority;
use crate::types::text;

pub(super) const ROUTES: &[RouteSpec] = &[
    RouteSpec::post("/v2/repository/index", Read, index).about(RouteSubject::Repository),
    RouteSpec::post("/v2/repository/models/{model_name}/load", Admin, load).about(RouteSubject::Repository),
    RouteSpec::post("/v2/repository/models/{model_name}/unload", Admin, unload).about(RouteSubject::Repository),
];

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

fn index(mut call: Call<'_>) -> Handled<'_> {
    Box::pin(async move {
        let text = body::read(&mut call).await?.json;
        let sees_reasons = call.sees_reasons();
        let Call { app, grant, .. } = call;
        let ready = app.compute.run_sized(text.len(), Priority::default(), move || only_ready(&text)).await??;
        let entries = app.admin.index(ready).await?;
        let visible = entries.iter().filter(|entry| grant.is_none_or(|grant| grant.allows(&entry.name)));
        let mut lines: Vec<IndexLine<'_>> = visible.map(IndexLine::from).collect();
        if !sees_reasons {
            for line in &mut lines {
                line.reason = "";
            }
        }
        Ok(Answer::json(&lines))
    })
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
fn load(call: Call<'_>) -> Handled<'_> {
    let operation = call.app.admin.load(call.name);
    Box::pin(change(call, operation))
}

/// Unloads the model's versions. The body is read and ignored.
fn unload(call: Call<'_>) -> Handled<'_> {
    let operation = call.app.admin.unload(call.name);
    Box::pin(change(call, operation))
}

/// Runs an operation that changes models, if the caller may do that.
async fn change(
    call: Call<'_>,
    operation: impl Future<Output = Result<(), AdminError>>,
) -> Result<Answer, RequestError> {
    call.app.callers.check_change(call.parts)?;
    body::discard(call.body, call.app.options.max_body_bytes).await?;
    operation.await?;
    Ok(respond::empty(StatusCode::OK).into())
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
