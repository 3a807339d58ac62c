//! HTTP servers.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::variables::Variables;
use crate::http_client::Url;
use crate::storage::error::CredentialsError;

/// Reads the headers for a server: KServe's variable `HOST-headers`, a JSON object.
pub(super) fn web_headers(url: &Url, variables: &Variables) -> Result<HeaderMap, CredentialsError> {
    let variable = format!("{}-headers", url.host_str().unwrap_or_default());
    let Some(text) = variables.get(&variable) else { return Ok(HeaderMap::new()) };
    let invalid = |reason: &str| CredentialsError::Variable { variable: variable.clone(), reason: reason.to_owned() };
    let Ok(Value::Object(object)) = serde_json::from_str(text) else {
        return Err(invalid("expected a JSON object of headers"));
    };
    let mut headers = HeaderMap::new();
    for (name, value) in object {
        let pair = value
            .as_str()
            .and_then(|value| Some((name.parse::<HeaderName>().ok()?, value.parse::<HeaderValue>().ok()?)));
        let (name, mut value) = pair.ok_or_else(|| invalid("it has a header with an invalid name or value"))?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        Variables(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn headers_are_secrets() {
        let url = Url::parse("https://h.example/x").unwrap();
        let headers = web_headers(&url, &variables(&[("h.example-headers", r#"{"Authorization":"hush"}"#)])).unwrap();
        assert!(headers["authorization"].is_sensitive());
        assert!(web_headers(&url, &variables(&[("h.example-headers", "[]")])).is_err());
    }
}
