//! How clients connect to brokers, as librdkafka's properties.

use std::collections::BTreeMap;
use std::fmt;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::types::Properties;

/// Properties that decide which records are read, committed and answered, and the settings that decide it instead.
const RESERVED: [(&str, &str); 8] = [
    ("bootstrap.servers", "kafka_servers"),
    ("metadata.broker.list", "kafka_servers"),
    ("group.id", "kafka_group_id"),
    ("enable.auto.commit", "kafka_delivery"),
    ("auto.commit.enable", "kafka_delivery"),
    ("enable.auto.offset.store", "kafka_delivery"),
    ("auto.offset.reset", "kafka_auto_offset_reset"),
    ("transactional.id", "kafka_transactional_id"),
];

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
    #[error(
        "the Kafka property `{property}` cannot be set, because the server depends on its value: set `{setting}` instead"
    )]
    Reserved { property: &'static str, setting: &'static str },
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
        if let Some((property, setting)) = RESERVED.iter().find(|(name, _)| self.properties.contains_key(*name)) {
            return Err(ConnectionError::Reserved { property, setting });
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
        let properties = Properties(self.properties.clone());
        formatter
            .debug_struct("KafkaConnection")
            .field("servers", &self.servers)
            .field("properties", &properties)
            .finish()
    }
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
        assert!(error.to_string().contains("set `kafka_delivery` instead"), "{error}");
    }

    #[test]
    fn properties_override_the_defaults() {
        let config = connection(&[("client.id", "mine")]).client_config().unwrap();
        assert_eq!(config.get("client.id"), Some("mine"));
        assert_eq!(config.get("bootstrap.servers"), Some("localhost:9092"));
    }
}
