//! Access control from the settings of the server.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tracing::info;

use super::issuer::{Issuer, KeySource, MAX_JWKS};
use super::limits::PrincipalLimits;
use super::principal::CERTIFICATE_PREFIX;
use super::{
    Access, AccessMetrics, AccessState, KeyFile, Keyring, MAX_KEY_FILE, ModelPatterns, Principal, RateLimit, Scope,
    ScopeSet, TokenKeySet, TokenRules,
};
use crate::http_client::Url;
use crate::reload::{self, SettingFile, SettingFileError};
use crate::settings::{AccessSettings, TlsSettings};
use crate::telemetry::limit::LogLimiter;

/// The setting with the file of keys.
const KEYS: &str = "api_keys_file";

/// What the settings say about access control.
#[derive(Debug, Clone)]
pub struct AccessFiles {
    keys: Option<SettingFile>,
    certificates: Vec<(String, ScopeSet)>,
    tokens: Option<TokenSettings>,
    default_rate: Option<RateLimit>,
}

/// What the settings say about tokens.
#[derive(Debug, Clone)]
struct TokenSettings {
    rules: TokenRules,
    keys: KeysOfIssuer,
}

/// Where the keys of the issuer are.
#[derive(Debug, Clone)]
enum KeysOfIssuer {
    File(SettingFile),
    Url(Url),
}

/// Why access control cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AccessSetupError {
    #[error(transparent)]
    File(#[from] SettingFileError),
    #[error("`tls_client_scopes`: {0}")]
    Certificates(String),
    #[error("`tls_client_ca` is not set: `tls_client_scopes` needs it")]
    NoAuthority,
    #[error("`key_rate_limit`: {0}")]
    Rate(String),
    #[error("`{missing}` is not set: tokens need it")]
    Missing { missing: &'static str },
    #[error("`jwks_url` and `jwks_file` are both set: tokens need one of them")]
    TwoSources,
    #[error("`jwks_url`: {0}")]
    Url(String),
}

/// The most names of keys in a line of the log.
const MAX_NAMED: usize = 100;

impl AccessFiles {
    /// Reads the settings of access control. Files are relative to a folder. `None` if access is open.
    ///
    /// # Errors
    ///
    /// Fails if a setting is invalid, or needs another one.
    pub fn new(settings: &AccessSettings, tls: &TlsSettings, folder: &Path) -> Result<Option<Self>, AccessSetupError> {
        let default_rate = settings.key_rate_limit.as_ref().map(rate_limit).transpose()?;
        let certificates = certificate_scopes(&tls.client_scopes)?;
        if !certificates.is_empty() && tls.client_ca.is_none() {
            return Err(AccessSetupError::NoAuthority);
        }
        let keys = settings.api_keys_file.as_deref();
        let keys = keys.map(|path| SettingFile::new(KEYS, folder, path, MAX_KEY_FILE));
        let tokens = token_settings(settings, folder)?;
        let is_on = keys.is_some() || !certificates.is_empty() || tokens.is_some();
        Ok(is_on.then_some(Self { keys, certificates, tokens, default_rate }))
    }

    /// Returns the file of keys.
    pub const fn key_file(&self) -> Option<&SettingFile> {
        self.keys.as_ref()
    }

    /// Reads the keys. `None` if the settings name no file of keys.
    ///
    /// # Errors
    ///
    /// Fails if the file is missing or invalid.
    pub fn read_keys(&self) -> Result<Option<KeyFile>, SettingFileError> {
        self.keys.as_ref().map(|file| parse(file, &file.read()?)).transpose()
    }

    /// Reads the files, and reads them again when they change.
    ///
    /// # Errors
    ///
    /// Fails if one of them is missing or invalid.
    pub fn start(self, metrics: AccessMetrics) -> Result<Access, AccessSetupError> {
        let Self { keys, certificates, tokens, default_rate } = self;
        let changes = watch::Sender::new(());
        let issuer = tokens.map(|tokens| issuer(tokens, default_rate, &metrics, &changes)).transpose()?;
        let keys = keys.map(|file| watched_keys(file, default_rate, &metrics, &changes)).transpose()?;
        let principal = |(of_certificate, scopes): (String, ScopeSet)| {
            let name = format!("{CERTIFICATE_PREFIX}{of_certificate}");
            let principal = Principal {
                requests: metrics.requests_of(&name),
                name,
                scopes,
                models: ModelPatterns::All,
                expires: None,
                limits: Arc::new(PrincipalLimits::new(default_rate, None)),
            };
            (of_certificate, Arc::new(principal))
        };
        let certificates = certificates.into_iter().map(principal).collect();
        let log = LogLimiter::default();
        let began = Instant::now();
        Ok(Access(Arc::new(AccessState { keys, certificates, issuer, changes, metrics, log, began })))
    }
}

/// Reads the file of keys.
///
/// # Errors
///
/// Fails if it is missing or invalid.
fn parse(file: &SettingFile, text: &[u8]) -> Result<KeyFile, SettingFileError> {
    KeyFile::parse(text).map_err(|error| file.error(&error))
}

fn watched_keys(
    file: SettingFile,
    default_rate: Option<RateLimit>,
    metrics: &AccessMetrics,
    changes: &watch::Sender<()>,
) -> Result<Arc<ArcSwap<Keyring>>, SettingFileError> {
    let contents = vec![file.read()?];
    let keys = parse(&file, &contents[0])?;
    let shared = Arc::new(ArcSwap::from_pointee(Keyring::new(&keys, &Keyring::default(), default_rate, metrics)));
    let (of_watch, metrics, changes) = (Arc::clone(&shared), metrics.clone(), changes.clone());
    reload::watch(vec![file.clone()], &contents, move |contents| {
        let keys = parse(&file, contents.first().map(Vec::as_slice).unwrap_or_default())?;
        let previous = of_watch.load_full();
        let current = Arc::new(Keyring::new(&keys, &previous, default_rate, &metrics));
        let (added, removed) = (named(&current.names_not_in(&previous)), named(&previous.names_not_in(&current)));
        // A key whose rights have changed is in both lists.
        info!(added, removed, "Audit: the keys of `api_keys_file` have changed.");
        of_watch.store(current);
        changes.send_replace(());
        Ok(())
    });
    Ok(shared)
}

/// Returns names for the log, up to a limit.
fn named(names: &[&str]) -> String {
    let more = names.len().saturating_sub(MAX_NAMED);
    let text = names[..names.len() - more].join(",");
    if more > 0 { format!("{text} and {more} more") } else { text }
}

/// Sets up the issuer of tokens, whose keys are in a file that is watched, or fetched.
fn issuer(
    settings: TokenSettings,
    default_rate: Option<RateLimit>,
    metrics: &AccessMetrics,
    changes: &watch::Sender<()>,
) -> Result<Arc<Issuer>, AccessSetupError> {
    let TokenSettings { rules, keys } = settings;
    let new = |keys, source| Arc::new(Issuer::new(rules, default_rate, keys, source, metrics.clone(), changes.clone()));
    match keys {
        KeysOfIssuer::File(file) => {
            let read = |file: &SettingFile, text: &[u8]| TokenKeySet::parse(text).map_err(|error| file.error(&error));
            let contents = vec![file.read()?];
            let issuer = new(read(&file, &contents[0])?, None);
            let of_watch = Arc::clone(&issuer);
            reload::watch(vec![file.clone()], &contents, move |contents| {
                of_watch.replace(read(&file, contents.first().map(Vec::as_slice).unwrap_or_default())?);
                Ok(())
            });
            Ok(issuer)
        }
        KeysOfIssuer::Url(url) => {
            let source = KeySource::new(url).map_err(|error| AccessSetupError::Url(error.to_string()))?;
            let issuer = new(TokenKeySet::default(), Some(source));
            issuer.refresh_regularly();
            Ok(issuer)
        }
    }
}

fn token_settings(settings: &AccessSettings, folder: &Path) -> Result<Option<TokenSettings>, AccessSetupError> {
    let AccessSettings { jwt_issuer, jwt_audience, jwks_url, jwks_file, jwt_scope_claim, .. } = settings;
    if jwt_issuer.is_none() && jwt_audience.is_none() && jwks_url.is_none() && jwks_file.is_none() {
        return Ok(None);
    }
    let missing = |missing| AccessSetupError::Missing { missing };
    let rules = TokenRules {
        issuer: jwt_issuer.clone().ok_or_else(|| missing("jwt_issuer"))?,
        audience: jwt_audience.clone().ok_or_else(|| missing("jwt_audience"))?,
        scope_claim: jwt_scope_claim.clone(),
    };
    let keys = match (jwks_url, jwks_file) {
        (Some(_), Some(_)) => return Err(AccessSetupError::TwoSources),
        (Some(url), None) => KeysOfIssuer::Url(checked_url(url)?),
        (None, Some(path)) => KeysOfIssuer::File(SettingFile::new("jwks_file", folder, path, MAX_JWKS)),
        (None, None) => return Err(missing("jwks_url")),
    };
    Ok(Some(TokenSettings { rules, keys }))
}

/// Reads a URL that nobody between the issuer and the server can answer for.
fn checked_url(text: &str) -> Result<Url, AccessSetupError> {
    let invalid = || AccessSetupError::Url("expected a URL that begins with `https://`".to_owned());
    let url = Url::parse(text).map_err(|_| invalid())?;
    let is_local = || matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
    let is_safe = url.scheme() == "https" || url.scheme() == "http" && is_local();
    if is_safe { Ok(url) } else { Err(invalid()) }
}

fn rate_limit(object: &Map<String, Value>) -> Result<RateLimit, AccessSetupError> {
    let limit: RateLimit = serde_json::from_value(Value::Object(object.clone()))
        .map_err(|error| AccessSetupError::Rate(error.to_string()))?;
    limit.check().map_err(|expected| AccessSetupError::Rate(expected.to_owned()))?;
    Ok(limit)
}

fn certificate_scopes(object: &Map<String, Value>) -> Result<Vec<(String, ScopeSet)>, AccessSetupError> {
    let scopes = |(name, value): (&String, &Value)| {
        let expected = || {
            AccessSetupError::Certificates(format!("`{name}`: expected a list of `infer`, `read`, `admin`, `metrics`"))
        };
        let list = value.as_array().ok_or_else(expected)?;
        let scopes = list.iter().map(|scope| scope.as_str().and_then(Scope::find).ok_or_else(expected));
        Ok((name.clone(), scopes.collect::<Result<ScopeSet, _>>()?))
    };
    object.iter().map(scopes).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn token_settings_are_checked() {
        let text = |text: &str| Some(text.to_owned());
        let full = || AccessSettings {
            jwt_issuer: text("https://issuer"),
            jwt_audience: text("mlserver"),
            jwks_file: Some("jwks.json".into()),
            ..AccessSettings::default()
        };
        let check = |settings: AccessSettings| {
            AccessFiles::new(&settings, &TlsSettings::default(), Path::new("/")).map_err(|error| error.to_string())
        };
        assert!(check(full()).unwrap().is_some());
        let refused = |settings, expected: &str| assert_eq!(check(settings).unwrap_err(), expected);
        refused(AccessSettings { jwt_issuer: None, ..full() }, "`jwt_issuer` is not set: tokens need it");
        refused(AccessSettings { jwt_audience: None, ..full() }, "`jwt_audience` is not set: tokens need it");
        refused(AccessSettings { jwks_file: None, ..full() }, "`jwks_url` is not set: tokens need it");
        let url = |url: &str| AccessSettings { jwks_url: text(url), ..full() };
        refused(url("https://issuer/keys"), "`jwks_url` and `jwks_file` are both set: tokens need one of them");
        let only_url = |url: &str| AccessSettings { jwks_file: None, jwks_url: text(url), ..full() };
        for bad in ["http://issuer/keys", "ftp://localhost", "issuer"] {
            refused(only_url(bad), "`jwks_url`: expected a URL that begins with `https://`");
        }
        assert!(check(only_url("https://issuer/keys")).is_ok() && check(only_url("http://127.0.0.1:1/")).is_ok());
    }

    #[test]
    fn access_settings_are_checked() {
        let with = |scopes: Value, rate: Option<Value>, ca: bool| {
            let object = |value: Value| value.as_object().unwrap().clone();
            let access = AccessSettings { key_rate_limit: rate.map(object), ..AccessSettings::default() };
            let tls = TlsSettings {
                client_scopes: object(scopes),
                client_ca: ca.then(|| "ca.pem".into()),
                ..TlsSettings::default()
            };
            AccessFiles::new(&access, &tls, Path::new("/"))
                .map(|files| files.is_some())
                .map_err(|error| error.to_string())
        };
        assert_eq!(with(json!({}), None, true), Ok(false));
        assert_eq!(with(json!({"ci": ["infer", "read"]}), Some(json!({"requests_per_second": 5})), true), Ok(true));
        let refused = |result: Result<bool, String>, expected: &str| assert!(result.unwrap_err().contains(expected));
        refused(with(json!({"ci": ["infer"]}), None, false), "`tls_client_ca` is not set");
        for bad in [json!("infer"), json!(["open"]), json!([1])] {
            refused(with(json!({"ci": bad}), None, true), "`tls_client_scopes`: `ci`: expected a list");
        }
        refused(with(json!({}), Some(json!({})), true), "`key_rate_limit`: missing field");
        refused(
            with(json!({}), Some(json!({"requests_per_second": -1})), true),
            "`key_rate_limit`: `requests_per_second`",
        );
    }
}
