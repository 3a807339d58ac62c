//! S3, and what speaks its protocol.

use std::path::PathBuf;
use std::str::FromStr;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use serde_json::{Map, Value};

use super::bucket::{bucket_source, no_retries, store_error};
use super::files::ini_section;
use super::variables::{Variables, is_false, is_true};
use crate::storage::clients::TlsOptions;
use crate::storage::error::CredentialsError;
use crate::storage::source::Source;
use crate::storage::transport::Transport;
use crate::types::Secret;

/// What the crate knows by the names of the variables: web identity, ECS, EKS, and the like.
const S3_VARIABLES: [&str; 9] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_ENDPOINT_URL_STS",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_METADATA_ENDPOINT",
    "AWS_REQUEST_PAYER",
];

/// The keys of S3, and where they come from.
#[derive(Default)]
struct S3Keys {
    id: Option<String>,
    secret: Option<Secret>,
    token: Option<Secret>,
    source: String,
}

pub(super) fn s3(
    bucket: &str,
    key: &str,
    variables: &Variables,
    transport: impl Fn(TlsOptions) -> Transport,
) -> Result<Source, CredentialsError> {
    let config = storage_config(variables)?;
    let of_config = |name: &str| config.get(name).and_then(as_text).filter(|value| !value.is_empty());
    let mut builder = AmazonS3Builder::new().with_bucket_name(bucket);
    for name in S3_VARIABLES {
        if let (Some(value), Ok(key)) = (variables.get(name), AmazonS3ConfigKey::from_str(&name.to_ascii_lowercase())) {
            builder = builder.with_config(key, value);
        }
    }
    let region = of_config("region")
        .or_else(|| variables.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]).map(|(_, region)| region.to_owned()));
    builder = builder.with_region(region.unwrap_or_else(|| "us-east-1".to_owned()));
    let endpoint = of_config("endpoint_url").or_else(|| {
        let found = variables.first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"]);
        // KServe's variable has no scheme.
        let bare = variables.get("S3_ENDPOINT").map(|host| {
            let scheme = if variables.get("S3_USE_HTTPS").is_some_and(is_false) { "http" } else { "https" };
            format!("{scheme}://{host}")
        });
        found.map(|(_, endpoint)| endpoint.to_owned()).or(bare)
    });
    let accelerated = variables.is_set("S3_USE_ACCELERATE");
    let virtual_hosted = accelerated || variables.is_set("S3_USER_VIRTUAL_BUCKET");
    builder = builder.with_virtual_hosted_style_request(virtual_hosted);
    match endpoint {
        Some(endpoint) => {
            let endpoint = endpoint.trim_end_matches('/');
            let endpoint = match endpoint.split_once("://") {
                Some((scheme, host)) if virtual_hosted => format!("{scheme}://{bucket}.{host}"),
                _ => endpoint.to_owned(),
            };
            builder = builder.with_allow_http(endpoint.starts_with("http://")).with_endpoint(endpoint);
        }
        None if accelerated => {
            builder = builder.with_endpoint(format!("https://{bucket}.s3-accelerate.amazonaws.com"));
        }
        None => {}
    }
    let anonymous = of_config("anonymous").as_deref().is_some_and(is_true)
        || ["awsAnonymousCredential", "AWS_ANONYMOUS_CREDENTIAL", "AWS_SKIP_SIGNATURE"]
            .iter()
            .any(|name| variables.is_set(name));
    let keys = if anonymous { None } else { s3_keys(variables, &of_config)? };
    let credentials = match (&keys, anonymous) {
        (_, true) => "no credentials (anonymous)".to_owned(),
        (Some(keys), _) => keys.source.clone(),
        (None, _) if variables.get("AWS_WEB_IDENTITY_TOKEN_FILE").is_some() => {
            "the web identity of `AWS_ROLE_ARN`".to_owned()
        }
        (None, _) => "the role of this machine (no keys in the environment)".to_owned(),
    };
    builder = builder.with_skip_signature(anonymous);
    if let Some(keys) = keys {
        if let Some(id) = keys.id {
            builder = builder.with_access_key_id(id);
        }
        if let Some(secret) = keys.secret {
            builder = builder.with_secret_access_key(&*secret);
        }
        if let Some(token) = keys.token {
            builder = builder.with_token(&*token);
        }
    }
    let mut tls = TlsOptions::of(variables);
    let bundle = of_config("ca_bundle").or_else(|| variables.get("AWS_CA_BUNDLE").map(str::to_owned));
    tls.ca = bundle.map(PathBuf::from).or(tls.ca);
    let verify = of_config("verify_ssl").or_else(|| variables.get("S3_VERIFY_SSL").map(str::to_owned));
    tls.insecure = verify.as_deref().is_some_and(is_false);
    let store = builder
        .with_http_connector(transport(tls))
        .with_retry(no_retries())
        .build()
        .map_err(|error| store_error(&error))?;
    Ok(bucket_source(store, key, credentials))
}

/// Finds the keys of S3: those of KServe's variable, of the environment, or of a profile.
fn s3_keys(
    variables: &Variables,
    of_config: &impl Fn(&str) -> Option<String>,
) -> Result<Option<S3Keys>, CredentialsError> {
    if let Some(id) = of_config("access_key_id") {
        let secret = of_config("secret_access_key").map(|secret| Secret::from(secret.as_str()));
        let source = "the keys of `STORAGE_CONFIG`".to_owned();
        return Ok(Some(S3Keys { id: Some(id), secret, token: None, source }));
    }
    let profile = variables.get("AWS_PROFILE");
    if let Some(id) = variables.get("AWS_ACCESS_KEY_ID") {
        return Ok(Some(S3Keys {
            id: Some(id.to_owned()),
            secret: variables.get("AWS_SECRET_ACCESS_KEY").map(Secret::from),
            token: variables.get("AWS_SESSION_TOKEN").map(Secret::from),
            source: "`AWS_ACCESS_KEY_ID`".to_owned(),
        }));
    }
    let path = match (variables.get("AWS_SHARED_CREDENTIALS_FILE"), variables.home()) {
        (Some(path), _) => PathBuf::from(path),
        (None, Some(home)) => home.join(".aws/credentials"),
        (None, None) => return Ok(None),
    };
    let name = profile.unwrap_or("default");
    let Some(section) = ini_section(&path, name)? else {
        return match profile {
            Some(profile) => Err(CredentialsError::NoProfile { profile: profile.to_owned(), path }),
            None => Ok(None),
        };
    };
    let Some(id) = section.get("aws_access_key_id") else {
        let indirect = [
            ("sso_session", "uses single sign-on"),
            ("sso_start_url", "uses single sign-on"),
            ("credential_process", "has a `credential_process`"),
            ("source_profile", "takes a role"),
            ("role_arn", "takes a role"),
        ];
        let found = indirect.into_iter().find(|(key, _)| section.contains_key(*key));
        return match (found, profile) {
            (Some((_, what)), _) => Err(CredentialsError::Profile { profile: name.to_owned(), path, what }),
            (None, Some(profile)) => Err(CredentialsError::NoProfile { profile: profile.to_owned(), path }),
            (None, None) => Ok(None),
        };
    };
    Ok(Some(S3Keys {
        id: Some(id.clone()),
        secret: section.get("aws_secret_access_key").map(|secret| Secret::from(secret.as_str())),
        token: section.get("aws_session_token").map(|token| Secret::from(token.as_str())),
        source: format!("the profile `{name}` of `{}`", path.display()),
    }))
}

/// Reads KServe's `STORAGE_CONFIG`, and `STORAGE_OVERRIDE_CONFIG` above it, if their type is S3.
fn storage_config(variables: &Variables) -> Result<Map<String, Value>, CredentialsError> {
    let mut merged = Map::new();
    for variable in ["STORAGE_CONFIG", "STORAGE_OVERRIDE_CONFIG"] {
        let Some(text) = variables.get(variable) else { continue };
        let invalid =
            |reason: &str| CredentialsError::Variable { variable: variable.to_owned(), reason: reason.to_owned() };
        match serde_json::from_str(text) {
            Ok(Value::Object(object)) => merged.extend(object),
            _ => return Err(invalid("expected a JSON object")),
        }
    }
    let kind = merged.get("type").and_then(Value::as_str);
    if kind.is_some_and(|kind| kind != "s3") {
        merged.clear();
    }
    Ok(merged)
}

fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        _ => None,
    }
}
