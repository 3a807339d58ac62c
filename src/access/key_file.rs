//! The file with the hashes of keys: a JSON list.

use std::collections::HashSet;
use std::num::NonZeroU32;

use chrono::DateTime;
use serde::{Deserialize, Serialize};

use super::pattern::{MAX_PATTERN, MAX_PATTERNS};
use super::principal::{CERTIFICATE_PREFIX, TOKEN_PREFIX};
use super::{KeyHash, RateLimit, Scope};
use crate::types::text::{self, TextError, is_deceptive};

/// The most bytes of a file of keys.
pub const MAX_KEY_FILE: u64 = 64 << 20;
/// The most keys of a file.
const MAX_KEYS: usize = 100_000;
/// The longest name, in bytes.
const MAX_NAME: usize = 128;

/// The keys of a file, in its order.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyFile(pub Vec<KeyEntry>);

/// A key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEntry {
    /// Its owner, as logs and metrics show it.
    pub name: String,
    pub hash: KeyHash,
    pub scopes: Vec<Scope>,
    /// Patterns for names of models; all models by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub models: Option<Vec<String>>,
    /// RFC 3339, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<RateLimit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_in_flight: Option<NonZeroU32>,
}

/// Why a file of keys is invalid.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    #[error(transparent)]
    Text(#[from] TextError),
    #[error("it is not a JSON list of keys: {0}")]
    Syntax(#[from] serde_json::Error),
    #[error("it has more than {MAX_KEYS} keys")]
    TooMany,
    #[error("the key `{name}`: {reason}")]
    Entry { name: String, reason: &'static str },
    #[error("two keys have the name `{name}`")]
    SameName { name: String },
    #[error("the keys `{name}` and `{other}` are the same")]
    SameKey { name: String, other: String },
}

impl KeyFile {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// Fails if it is not a list of valid keys with unique names.
    pub fn parse(text: &[u8]) -> Result<Self, KeyFileError> {
        let file: Self = serde_json::from_slice(text::without_mark(text)?)?;
        file.check()?;
        Ok(file)
    }

    /// Returns the text of the file.
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data with string keys always serializes") + "\n"
    }

    /// Checks the keys.
    ///
    /// # Errors
    ///
    /// Fails if one of them is invalid, or two have the same name.
    pub fn check(&self) -> Result<(), KeyFileError> {
        if self.0.len() > MAX_KEYS {
            return Err(KeyFileError::TooMany);
        }
        let mut names = HashSet::new();
        let mut owners = std::collections::HashMap::new();
        for entry in &self.0 {
            let name = &entry.name;
            entry.check().map_err(|reason| KeyFileError::Entry { name: shown(name), reason })?;
            if !names.insert(name) {
                return Err(KeyFileError::SameName { name: name.clone() });
            }
            if let Some(other) = owners.insert(entry.hash, name) {
                return Err(KeyFileError::SameKey { name: other.clone(), other: name.clone() });
            }
        }
        Ok(())
    }
}

impl KeyEntry {
    fn check(&self) -> Result<(), &'static str> {
        if self.name.is_empty() || self.name.len() > MAX_NAME || self.name.chars().any(is_deceptive) {
            return Err("`name`: expected up to 128 bytes without control characters and marks of direction");
        }
        if [TOKEN_PREFIX, CERTIFICATE_PREFIX].iter().any(|prefix| self.name.starts_with(prefix)) {
            return Err("`name`: `token:` and `certificate:` begin the names of other principals");
        }
        if self.scopes.is_empty() {
            return Err("`scopes`: expected at least one of `infer`, `read`, `admin`, `metrics`");
        }
        let patterns = self.models.as_deref().unwrap_or_default();
        if patterns.len() > MAX_PATTERNS || patterns.iter().any(|pattern| pattern.len() > MAX_PATTERN) {
            return Err("`models`: expected up to 1000 patterns of up to 256 bytes");
        }
        if let Some(text) = &self.expires {
            utc_seconds(text).ok_or("`expires`: expected a time in UTC, such as `2030-01-31T00:00:00Z`")?;
        }
        self.rate_limit.as_ref().map_or(Ok(()), RateLimit::check)
    }

    /// Returns when the key expires, in seconds since 1970.
    pub fn expires_at(&self) -> Option<i64> {
        utc_seconds(self.expires.as_deref()?)
    }
}

/// Reads an RFC 3339 time in UTC.
fn utc_seconds(text: &str) -> Option<i64> {
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    (time.offset().local_minus_utc() == 0).then(|| time.timestamp())
}

/// Shortens a name that is invalid.
fn shown(name: &str) -> String {
    name.escape_debug().take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn key(name: &str) -> Value {
        json!({"name": name, "hash": KeyHash::of(name.as_bytes()).to_string(), "scopes": ["infer"]})
    }

    fn parse(list: &Value) -> Result<KeyFile, String> {
        KeyFile::parse(list.to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn key_file_reads_and_writes_every_field() {
        let mut full = key("ci");
        full["scopes"] = json!(["infer", "read", "admin", "metrics"]);
        full["models"] = json!(["iris-*"]);
        full["expires"] = json!("2030-01-31T00:00:00Z");
        full["rate_limit"] = json!({"requests_per_second": 2.5, "burst": 10});
        full["max_in_flight"] = json!(3);
        let list = json!([full, key("other")]);
        let file = parse(&list).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&file.to_text()).unwrap(), list);
        assert_eq!(file.0[0].expires_at(), Some(1_896_048_000));
        assert_eq!(KeyFile::parse(format!("\u{feff}{list}").as_bytes()).unwrap(), file, "a byte-order mark");
        assert_eq!(parse(&json!([])).unwrap(), KeyFile::default());
    }

    #[test]
    fn key_file_rejects_invalid_keys_with_the_name() {
        let with = |field: &str, value: Value| {
            let mut entry = key("ci");
            entry[field] = value;
            parse(&json!([entry])).unwrap_err()
        };
        let cases = [
            ("name", json!(""), "`name`"),
            ("name", json!("a\nb"), "`name`"),
            ("name", json!("a".repeat(129)), "`name`"),
            ("hash", json!("mls_plain"), "64 hexadecimal digits"),
            ("scopes", json!([]), "`scopes`"),
            ("scopes", json!(["open"]), "unknown variant `open`"),
            ("scopes", json!("infer"), "expected a sequence"),
            ("models", json!(["a".repeat(257)]), "`models`"),
            ("expires", json!("2030-01-31"), "`expires`"),
            ("expires", json!("2030-01-31T00:00:00+02:00"), "`expires`"),
            ("rate_limit", json!({"requests_per_second": 0}), "`requests_per_second`"),
            ("rate_limit", json!({"requests_per_second": 1, "burst": 0}), "nonzero"),
            ("max_in_flight", json!(0), "nonzero"),
            ("scope", json!(["infer"]), "unknown field `scope`"),
        ];
        for (field, value, expected) in cases {
            let error = with(field, value.clone());
            assert!(error.contains(expected) && !error.contains("mls_plain"), "{field} {value}: {error}");
        }
        assert!(parse(&json!({})).is_err() && KeyFile::parse(b"").is_err());
        assert_eq!(parse(&json!([key("a"), key("a")])).unwrap_err(), "two keys have the name `a`");
        let mut copy = key("a");
        copy["name"] = json!("b");
        assert_eq!(parse(&json!([key("a"), copy])).unwrap_err(), "the keys `a` and `b` are the same");
    }
}
