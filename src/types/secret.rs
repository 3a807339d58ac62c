//! Values that are never shown: not by commands, not in errors, not in debug output.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use serde::Deserialize;
use serde_json::Value;

/// What is shown instead of a secret.
pub const HIDDEN: &str = "<hidden>";

/// Parts of the names of properties whose values are secrets.
const SECRET: [&str; 8] =
    ["password", "passphrase", "secret", "token", "pem", "jaas", "credential", "oauthbearer.config"];

/// Reports whether the value of a property, such as librdkafka's `sasl.password`, is a secret.
pub fn is_secret_property(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|part| name.contains(part))
}

/// Returns an address as it may be shown: `<hidden>` in place of the user name and the password, and of the query, which may be a
/// signature.
pub fn without_credentials(address: &str) -> String {
    let start = address.find("://").map_or(0, |scheme| scheme + 3);
    let end = address[start..].find(['/', '?', '#']).map_or(address.len(), |length| start + length);
    let host = address[start..end].rfind('@').map(|at| start + at);
    let user = host.map_or(String::new(), |_| format!("{}{HIDDEN}", &address[..start]));
    let rest = &address[host.unwrap_or(0)..];
    match rest.find('?') {
        Some(query) => format!("{user}{}?{HIDDEN}", &rest[..query]),
        None => format!("{user}{rest}"),
    }
}

/// Returns a value as it may be shown: the URLs in it are without credentials.
pub fn with_hidden_credentials(value: &Value) -> Value {
    match value {
        Value::String(text) if text.contains("://") => Value::from(without_credentials(text)),
        Value::Array(items) => items.iter().map(with_hidden_credentials).collect(),
        Value::Object(object) => {
            object.iter().map(|(name, value)| (name.clone(), with_hidden_credentials(value))).collect()
        }
        value => value.clone(),
    }
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl Deref for Secret {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(HIDDEN)
    }
}

/// Properties by name, of which the secret ones are never shown.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Properties(pub BTreeMap<String, String>);

impl Deref for Properties {
    type Target = BTreeMap<String, String>;

    fn deref(&self) -> &BTreeMap<String, String> {
        &self.0
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value)| (name, if is_secret_property(name) { HIDDEN } else { value });
        let properties = self.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        formatter.debug_map().entries(properties.map(shown)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_properties_of_librdkafka_are_known() {
        let secrets = [
            "sasl.password",
            "ssl.key.password",
            "ssl.key.pem",
            "ssl.certificate.pem",
            "ssl.keystore.password",
            "sasl.oauthbearer.config",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.jaas.config",
            "SASL.PASSWORD",
        ];
        for name in secrets {
            assert!(is_secret_property(name), "{name}");
        }
        for name in ["sasl.username", "ssl.key.location", "linger.ms", "sasl.mechanism"] {
            assert!(!is_secret_property(name), "{name}");
        }
    }

    #[test]
    fn url_credentials_are_hidden() {
        let cases = [
            ("http://me:pw@h:1/a@b", "http://<hidden>@h:1/a@b"),
            ("me:p@w@h:1", "<hidden>@h:1"),
            ("@h", "<hidden>@h"),
            ("ftp://h/a@b", "ftp://h/a@b"),
            ("https://a.blob/c/m.ubj?sv=1&sig=hush", "https://a.blob/c/m.ubj?<hidden>"),
            ("s3://me:pw@b/m?x=1#f", "s3://<hidden>@b/m?<hidden>"),
            ("https://h?a@b", "https://h?<hidden>"),
            ("", ""),
        ];
        for (address, shown) in cases {
            assert_eq!(without_credentials(address), shown);
        }
        let nested = serde_json::json!({"a": ["https://h/m?sig=1", "is it?", 1], "b": {"c": "http://u:p@h"}});
        let shown = serde_json::json!({"a": ["https://h/m?<hidden>", "is it?", 1], "b": {"c": "http://<hidden>@h"}});
        assert_eq!(with_hidden_credentials(&nested), shown);
    }

    #[test]
    fn secrets_are_not_in_debug_output() {
        assert_eq!(format!("{:?}", Some(Secret::from("hush"))), "Some(<hidden>)");
        let properties = [("sasl.password", "hush"), ("linger.ms", "5")];
        let properties = Properties(properties.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        assert_eq!(format!("{properties:?}"), r#"{"linger.ms": "5", "sasl.password": "<hidden>"}"#);
    }
}
