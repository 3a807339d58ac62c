//! How clients connect to brokers, as librdkafka's properties.

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

/// Properties that decide which records are read, committed and answered. They have settings or options of their own.
const RESERVED: [&str; 9] = [
    "bootstrap.servers",
    "metadata.broker.list",
    "group.id",
    "enable.auto.commit",
    "auto.commit.enable",
    "enable.auto.offset.store",
    "auto.offset.reset",
    "enable.idempotence",
    "transactional.id",
];

/// Parts of the names of properties whose values are never shown.
const SECRET: [&str; 7] = ["password", "secret", "token", "pem", "jaas", "credential", "oauthbearer.config"];

/// The brokers, and the properties of every client that connects to them.
#[derive(Clone, PartialEq, Eq)]
pub struct KafkaConnection {
    /// Addresses of some brokers, `host:port`, separated by commas.
    pub servers: String,
    /// librdkafka's properties: security, and what users add.
    pub properties: BTreeMap<String, String>,
}

/// A connection that cannot be configured.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    #[error("the Kafka property `{property}` cannot be set, because the server depends on its value")]
    Reserved { property: String },
    /// librdkafka rejects a property.
    #[error("invalid Kafka configuration: {reason}")]
    Invalid { reason: String },
}

impl KafkaConnection {
    /// Returns the configuration of a client, for consumers and producers alike.
    ///
    /// # Errors
    ///
    /// Fails if the properties contain one that has a setting of its own. Others are checked by librdkafka when a client is
    /// created.
    pub fn client_config(&self) -> Result<ClientConfig, ConnectionError> {
        let reserved = |name: &&String| RESERVED.contains(&name.as_str());
        if let Some(property) = self.properties.keys().find(reserved) {
            return Err(ConnectionError::Reserved { property: property.clone() });
        }
        let mut config = ClientConfig::new();
        config.set_log_level(RDKafkaLogLevel::Info);
        config.set("bootstrap.servers", &self.servers);
        config.set("client.id", "mlserver");
        // OpenSSL is built in, and knows the folders of no distribution.
        config.set("ssl.ca.location", "probe");
        // The longest a client waits before it connects again, in milliseconds.
        config.set("reconnect.backoff.max.ms", "2000");
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        Ok(config)
    }
}

/// Hides the values of secret properties.
impl fmt::Debug for KafkaConnection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |(name, value): (&String, &String)| {
            let value = if is_secret(name) { "<hidden>".to_owned() } else { value.clone() };
            (name.clone(), value)
        };
        let properties: BTreeMap<_, _> = self.properties.iter().map(shown).collect();
        let servers = &self.servers;
        formatter.debug_struct("KafkaConnection").field("servers", servers).field("properties", &properties).finish()
    }
}

/// Reports whether the value of a property is a secret.
fn is_secret(property: &str) -> bool {
    SECRET.iter().any(|part| property.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(properties: &[(&str, &str)]) -> KafkaConnection {
        let properties = properties.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        KafkaConnection { servers: "localhost:9092".to_owned(), properties }
    }

    #[test]
    fn secret_properties_are_hidden() {
        let shown = format!(
            "{:?}",
            connection(&[
                ("sasl.password", "hush"),
                ("ssl.key.pem", "hush"),
                ("sasl.oauthbearer.client.secret", "hush"),
                ("sasl.username", "user"),
            ])
        );
        assert!(!shown.contains("hush") && shown.contains("user"), "{shown}");
    }

    #[test]
    fn properties_with_settings_of_their_own_are_rejected() {
        let error = connection(&[("enable.auto.commit", "true")]).client_config().unwrap_err();
        assert!(error.to_string().contains("`enable.auto.commit` cannot be set"), "{error}");
    }

    #[test]
    fn properties_override_the_defaults() {
        let config = connection(&[("client.id", "mine")]).client_config().unwrap();
        assert_eq!(config.get("client.id"), Some("mine"));
        assert_eq!(config.get("bootstrap.servers"), Some("localhost:9092"));
    }
}
