//! The layer for cross-origin resource sharing (CORS).

use http::header::{ACCEPT, ACCEPT_LANGUAGE, CONTENT_LANGUAGE, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method};
use regex_lite::Regex;
use tower_http::cors::{AllowHeaders, AllowMethods, AllowOrigin, CorsLayer, ExposeHeaders};

use crate::settings::CorsSettings;

/// An invalid value in `cors_settings`.
#[derive(Debug, thiserror::Error)]
#[error("`cors_settings.{field}`: `{value}` is not {expected}")]
pub struct CorsError {
    field: &'static str,
    value: String,
    expected: &'static str,
}

/// Headers that the original always allows.
const ALWAYS: [HeaderName; 4] = [ACCEPT, ACCEPT_LANGUAGE, CONTENT_LANGUAGE, CONTENT_TYPE];

/// Creates the layer that the settings describe.
///
/// # Errors
///
/// Fails on the first value that is not a valid origin, method, header or regular expression.
pub fn layer(settings: &CorsSettings) -> Result<CorsLayer, CorsError> {
    // Browsers reject a wildcard together with credentials, so the requested value is mirrored instead.
    let credentials = settings.allow_credentials;
    let any = |values: &[String]| values.iter().any(|value| value == "*");
    let methods = match &settings.allow_methods {
        methods if any(methods) && credentials => AllowMethods::mirror_request(),
        methods if any(methods) => AllowMethods::any(),
        methods => {
            parse("allow_methods", methods, "a method", |method| Method::from_bytes(method.as_bytes()).ok())?.into()
        }
    };
    let headers = match &settings.allow_headers {
        headers if any(headers) && credentials => AllowHeaders::mirror_request(),
        headers if any(headers) => AllowHeaders::any(),
        headers => AllowHeaders::list(ALWAYS.into_iter().chain(header_names("allow_headers", headers)?)),
    };
    let expose = match &settings.expose_headers {
        headers if any(headers) && !credentials => ExposeHeaders::any(),
        headers => ExposeHeaders::list(header_names("expose_headers", headers)?),
    };
    Ok(CorsLayer::new()
        .allow_origin(origins(settings, any(&settings.allow_origins))?)
        .allow_methods(methods)
        .allow_headers(headers)
        .expose_headers(expose)
        .allow_credentials(credentials)
        .max_age(settings.max_age))
}

fn origins(settings: &CorsSettings, any: bool) -> Result<AllowOrigin, CorsError> {
    if any {
        return Ok(if settings.allow_credentials { AllowOrigin::mirror_request() } else { AllowOrigin::any() });
    }
    let list =
        parse("allow_origins", &settings.allow_origins, "an origin", |origin| HeaderValue::from_str(origin).ok())?;
    let Some(pattern) = &settings.allow_origin_regex else { return Ok(AllowOrigin::list(list)) };
    // The original matches the whole origin.
    let regex = Regex::new(&format!("^(?:{pattern})$")).map_err(|_| CorsError {
        field: "allow_origin_regex",
        value: pattern.clone(),
        expected: "a regular expression",
    })?;
    Ok(AllowOrigin::predicate(move |origin, _| {
        list.contains(origin) || origin.to_str().is_ok_and(|origin| regex.is_match(origin))
    }))
}

fn header_names(field: &'static str, values: &[String]) -> Result<Vec<HeaderName>, CorsError> {
    parse(field, values, "a header name", |name| HeaderName::from_bytes(name.as_bytes()).ok())
}

fn parse<T>(
    field: &'static str,
    values: &[String],
    expected: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Vec<T>, CorsError> {
    let one = |value: &String| parse(value).ok_or_else(|| CorsError { field, value: value.clone(), expected });
    values.iter().map(one).collect()
}
