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

/// Cross-origin requests: the layer that answers browsers, and the origins that it allows.
#[derive(Debug, Clone)]
pub struct Cors {
    pub(super) layer: CorsLayer,
    pub(super) origins: AllowedOrigins,
}

impl Cors {
    /// Reads the settings.
    ///
    /// # Errors
    ///
    /// Fails on the first value that is not a valid origin, method, header or regular expression.
    pub fn new(settings: &CorsSettings) -> Result<Self, CorsError> {
        let origins = AllowedOrigins::new(settings)?;
        Ok(Self { layer: layer(settings, origins.clone())?, origins })
    }
}

/// The origins that may send requests.
#[derive(Debug, Clone)]
pub(super) struct AllowedOrigins {
    any: bool,
    list: Vec<HeaderValue>,
    pattern: Option<Regex>,
}

impl AllowedOrigins {
    pub(super) fn new(settings: &CorsSettings) -> Result<Self, CorsError> {
        let any = settings.allow_origins.iter().any(|origin| origin == "*");
        let list =
            parse("allow_origins", &settings.allow_origins, "an origin", |origin| HeaderValue::from_str(origin).ok())?;
        let pattern = settings.allow_origin_regex.as_ref().map(|pattern| {
            // The original matches the whole origin.
            Regex::new(&format!("^(?:{pattern})$")).map_err(|_| CorsError {
                field: "allow_origin_regex",
                value: pattern.clone(),
                expected: "a regular expression",
            })
        });
        Ok(Self { any, list, pattern: pattern.transpose()? })
    }

    /// Reports whether every origin is allowed.
    pub(super) const fn allow_any(&self) -> bool {
        self.any
    }

    pub(super) fn allows(&self, origin: &HeaderValue) -> bool {
        let matches = |pattern: &Regex| origin.to_str().is_ok_and(|origin| pattern.is_match(origin));
        self.any || self.list.contains(origin) || self.pattern.as_ref().is_some_and(matches)
    }
}

/// Creates the layer that the settings describe.
fn layer(settings: &CorsSettings, origins: AllowedOrigins) -> Result<CorsLayer, CorsError> {
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
        headers => {
            // With credentials, browsers read `*` as the name of a header, which none has.
            let names: Vec<String> = headers.iter().filter(|name| *name != "*").cloned().collect();
            ExposeHeaders::list(header_names("expose_headers", &names)?)
        }
    };
    Ok(CorsLayer::new()
        .allow_origin(allow_origin(origins, credentials))
        .allow_methods(methods)
        .allow_headers(headers)
        .expose_headers(expose)
        .allow_credentials(credentials)
        .max_age(settings.max_age))
}

fn allow_origin(origins: AllowedOrigins, credentials: bool) -> AllowOrigin {
    match origins {
        AllowedOrigins { any: true, .. } if credentials => AllowOrigin::mirror_request(),
        AllowedOrigins { any: true, .. } => AllowOrigin::any(),
        AllowedOrigins { list, pattern: None, .. } => AllowOrigin::list(list),
        origins => AllowOrigin::predicate(move |origin, _| origins.allows(origin)),
    }
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
