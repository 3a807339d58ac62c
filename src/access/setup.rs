//! Access control from the settings of the server.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use serde_json::{Map, Value};

use super::limits::PrincipalLimits;
use super::{
    Access, AccessMetrics, AccessState, KeyFile, Keyring, MAX_KEY_FILE, ModelPatterns, Principal, RateLimit, Scope,
    ScopeSet,
};
use crate::reload::{self, SettingFile, SettingFileError};
use crate::settings::Settings;
use crate::telemetry::limit::LogLimiter;

/// The setting with the file of keys.
const KEYS: &str = "api_keys_file";

/// What the settings say about access control.
#[derive(Debug, Clone)]
pub struct AccessFiles {
    keys: Option<SettingFile>,
    certificates: Vec<(String, ScopeSet)>,
    default_rate: Option<RateLimit>,
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
}

impl AccessFiles {
    /// Takes what the settings say. Files are relative to a folder. `None` if there is no access control.
    ///
    /// # Errors
    ///
    /// Fails if a setting is invalid, or needs another one.
    pub fn new(settings: &Settings, folder: &Path) -> Result<Option<Self>, AccessSetupError> {
        let default_rate = settings.key_rate_limit.as_ref().map(rate_limit).transpose()?;
        let certificates = certificate_scopes(&settings.tls_client_scopes)?;
        if !certificates.is_empty() && settings.tls_client_ca.is_none() {
            return Err(AccessSetupError::NoAuthority);
        }
        let keys = settings.api_keys_file.as_deref();
        let keys = keys.map(|path| SettingFile::new(KEYS, folder, path, MAX_KEY_FILE));
        let is_on = keys.is_some() || !certificates.is_empty();
        Ok(is_on.then_some(Self { keys, certificates, default_rate }))
    }

    /// Returns the file of keys.
    pub const fn key_file(&self) -> Option<&SettingFile> {
        self.keys.as_ref()
    }

    /// Reads the keys. `None` if there is no file of keys.
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
        let Self { keys, certificates, default_rate } = self;
        let keys = keys.map(|file| watched_keys(file, default_rate, &metrics)).transpose()?;
        let principal = |(name, scopes): (String, ScopeSet)| {
            let principal = Principal {
                requests: metrics.requests_of(&name),
                name: name.clone(),
                scopes,
                models: ModelPatterns::All,
                expires: None,
                limits: Arc::new(PrincipalLimits::new(default_rate, None)),
            };
            (name, Arc::new(principal))
        };
        let certificates = certificates.into_iter().map(principal).collect();
        let log = LogLimiter::default();
        Ok(Access(Arc::new(AccessState { keys, certificates, metrics, log, began: Instant::now() })))
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
) -> Result<Arc<ArcSwap<Keyring>>, SettingFileError> {
    let contents = vec![file.read()?];
    let keys = parse(&file, &contents[0])?;
    let shared = Arc::new(ArcSwap::from_pointee(Keyring::new(&keys, &Keyring::default(), default_rate, metrics)));
    let (of_watch, metrics) = (Arc::clone(&shared), metrics.clone());
    reload::watch(vec![file.clone()], &contents, move |contents| {
        let keys = parse(&file, contents.first().map(Vec::as_slice).unwrap_or_default())?;
        of_watch.store(Arc::new(Keyring::new(&keys, &of_watch.load(), default_rate, &metrics)));
        Ok(())
    });
    Ok(shared)
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
    fn access_settings_are_checked() {
        let with = |scopes: Value, rate: Option<Value>, ca: bool| {
            let object = |value: Value| value.as_object().unwrap().clone();
            let settings = Settings {
                tls_client_scopes: object(scopes),
                key_rate_limit: rate.map(object),
                tls_client_ca: ca.then(|| "ca.pem".into()),
                ..Settings::default()
            };
            AccessFiles::new(&settings, Path::new("/")).map(|files| files.is_some()).map_err(|error| error.to_string())
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
