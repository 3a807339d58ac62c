//! The settings of Kafka, and what is wrong with them together.

use std::collections::BTreeMap;
use std::num::{NonZeroU32, NonZeroUsize};

use regex_lite::Regex;
use serde::Deserialize;
use thiserror::Error;

use super::table::settings;
use super::topics::{TOPIC, TOPIC_MODELS, TOPICS};
use crate::types::{LONGEST_TOPIC, Properties, Secret};

/// What the default topic of dead letters adds to the topic of the record.
pub const DEAD_LETTERS: &str = "-dead-letters";

settings! {
    /// Requests from Kafka.
    #[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct KafkaSettings with prefix "kafka_" {
        /// Process requests from Kafka
        enabled: bool = [Bool, Bool(false), of_operator],
        /// Addresses of Kafka brokers, separated by commas
        servers: String = [NonEmptyText, Text("localhost:9092"), of_operator],
        /// Kafka topics to read requests from
        ///
        /// Topics, and regular expressions that begin with `^`. At least one.
        topic_input: Vec<String> = [Custom(&TOPICS), TextList(&["mlserver-input"]), in_original("one topic")],
        /// Kafka topic to write responses to
        topic_output: String = [Custom(&TOPIC), Text("mlserver-output")],
        /// Model by input topic, for records without the header `mlserver-model`
        topic_models: BTreeMap<String, String> = [Custom(&TOPIC_MODELS), EmptyObject, new_here],
        /// Kafka topic for records that cannot be answered; null means the topic of the record followed by `-dead-letters`
        topic_dead_letters: Option<String> = [Custom(&TOPIC), Null, new_here],
        /// Consumer group; servers with the same group share the records
        group_id: String = [NonEmptyText, Text("mlserver"), new_here],
        /// First record to read if the group has no committed offset
        auto_offset_reset: KafkaOffsetReset = [Choice(&["earliest", "latest", "error"]), Text("earliest"), new_here],
        /// Whether a record may be answered again after a failure; `exactly_once` uses transactions
        delivery: KafkaDelivery = [Choice(&["at_least_once", "exactly_once"]), Text("at_least_once"), new_here],
        /// Identity of the producer for `exactly_once`, one per server; null means a random one
        transactional_id: Option<String> = [NonEmptyText, Null, new_here],
        /// Records that are answered in order: those with the same key, or all of a partition
        ordering: KafkaOrdering = [Choice(&["none", "key", "partition"]), Text("none"), new_here],
        /// Maximum number of records that are read and not committed yet
        max_in_flight: NonZeroUsize = [int(1, 1_000_000), Int(4096), new_here],
        /// Attempts at a record whose model fails, before it becomes a dead letter
        max_attempts: NonZeroU32 = [int(1, 1000), Int(3), new_here],
        /// Report ready only once the consumer has joined its group
        readiness: bool = [Bool, Bool(true), new_here],
        /// Encryption and authentication of connections to Kafka
        security_protocol: String =
            [Choice(&["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"]), Text("plaintext"), new_here],
        /// SASL mechanism for authentication
        sasl_mechanism: Option<String> = [Choice(&["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]), Null, new_here],
        /// User name for SASL
        sasl_username: Option<String> = [Text, Null, new_here],
        /// Password for SASL
        sasl_password: Option<Secret> = [Text, Null, secret, new_here],
        /// PEM file with the authorities of the brokers' certificates; null means those of the system
        ssl_ca: Option<String> = [NonEmptyText, Null, new_here],
        /// PEM file with the client's certificate
        ssl_certificate: Option<String> = [NonEmptyText, Null, new_here],
        /// PEM file with the client's private key
        ssl_key: Option<String> = [NonEmptyText, Null, new_here],
        /// Password of the client's private key
        ssl_key_password: Option<Secret> = [Text, Null, secret, new_here],
        /// Further properties of librdkafka, which override those of other settings
        config: Properties = [Properties, EmptyObject, new_here],
    }
}

/// Where a consumer group without committed offsets begins to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KafkaOffsetReset {
    /// At the first record that the topic holds.
    Earliest,
    /// At the records that are written from now on.
    Latest,
    /// Nowhere: the server fails.
    Error,
}

/// How often a record is answered if a server or a broker fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KafkaDelivery {
    /// Once, or several times.
    AtLeastOnce,
    /// Once, for consumers that read committed records only.
    ExactlyOnce,
}

/// Which records are answered in the order in which they were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KafkaOrdering {
    /// None of them.
    None,
    /// Those with the same key.
    Key,
    /// Those of the same partition.
    Partition,
}

/// Settings of Kafka that contradict each other.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct KafkaSettingsError(String);

impl KafkaSettings {
    /// Checks what the settings mean together; each one alone has been checked when it was read.
    ///
    /// # Errors
    ///
    /// Fails if Kafka cannot be served with these settings.
    pub fn check(&self) -> Result<(), KafkaSettingsError> {
        self.check_topics().and_then(|()| self.check_security()).map_err(KafkaSettingsError)
    }

    /// Returns the properties of librdkafka that the settings describe. Those of `kafka_config` override the others.
    pub fn properties(&self) -> BTreeMap<String, String> {
        let named = [
            ("security.protocol", Some(self.security_protocol.as_str())),
            ("sasl.mechanism", self.sasl_mechanism.as_deref()),
            ("sasl.username", self.sasl_username.as_deref()),
            ("sasl.password", self.sasl_password.as_deref()),
            ("ssl.ca.location", self.ssl_ca.as_deref()),
            ("ssl.certificate.location", self.ssl_certificate.as_deref()),
            ("ssl.key.location", self.ssl_key.as_deref()),
            ("ssl.key.password", self.ssl_key_password.as_deref()),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        let Properties(further) = self.config.clone();
        named.chain(further).collect()
    }

    /// Fails if records that the server writes would be read by it, too, or if a topic is named in vain.
    fn check_topics(&self) -> Result<(), String> {
        let is_pattern = |topic: &&String| topic.starts_with('^');
        let patterns: Vec<&String> = self.topic_input.iter().filter(is_pattern).collect();
        // librdkafka reads them in its own way, and rejects what it cannot read.
        let compiled: Vec<Regex> = patterns.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect();
        let is_input = |topic: &str| self.topic_input.iter().any(|input| input == topic) || matches(&compiled, topic);
        let loops = |setting: &str, topic: &str| {
            format!(
                "`{setting}` is `{topic}`, which `kafka_topic_input` reads: the server would read what it writes; use another topic"
            )
        };
        if is_input(&self.topic_output) {
            return Err(loops("kafka_topic_output", &self.topic_output));
        }
        match &self.topic_dead_letters {
            Some(topic) if is_input(topic) => return Err(loops("kafka_topic_dead_letters", topic)),
            Some(_) => {}
            None => {
                for input in self.topic_input.iter().filter(|topic| !is_pattern(topic)) {
                    let topic = format!("{input}{DEAD_LETTERS}");
                    if is_input(&topic) {
                        return Err(format!(
                            "the dead letters of the topic `{input}` go to `{topic}`, which `kafka_topic_input` reads: set \
                             `kafka_topic_dead_letters` to another topic"
                        ));
                    }
                    if topic.len() > LONGEST_TOPIC {
                        return Err(format!(
                            "the topic `{topic}` for dead letters has more than {LONGEST_TOPIC} characters: set \
                             `kafka_topic_dead_letters`"
                        ));
                    }
                }
            }
        }
        let unread = self.topic_models.keys().find(|topic| !is_input(topic));
        match unread {
            Some(topic) if compiled.len() == patterns.len() => {
                Err(format!("`kafka_topic_models` has the topic `{topic}`, which `kafka_topic_input` does not read"))
            }
            _ => Ok(()),
        }
    }

    /// Fails if credentials are set that would not be used, or if none can be.
    fn check_security(&self) -> Result<(), String> {
        let is_set = |property: &str| self.config.contains_key(property);
        if is_set("security.protocol") {
            return Ok(());
        }
        let protocol = self.security_protocol.as_str();
        let authenticates = protocol.starts_with("sasl");
        let credentials = [
            ("kafka_sasl_mechanism", self.sasl_mechanism.is_some()),
            ("kafka_sasl_username", self.sasl_username.is_some()),
            ("kafka_sasl_password", self.sasl_password.is_some()),
        ];
        if let Some((setting, _)) = credentials.iter().find(|(_, is_set)| *is_set && !authenticates) {
            return Err(format!(
                "`{setting}` is set, but `kafka_security_protocol` is `{protocol}`: set it to `sasl_ssl`, or to `sasl_plaintext` \
                 without encryption"
            ));
        }
        let encrypts = protocol.ends_with("ssl");
        let certificates = [
            ("kafka_ssl_ca", self.ssl_ca.is_some()),
            ("kafka_ssl_certificate", self.ssl_certificate.is_some()),
            ("kafka_ssl_key", self.ssl_key.is_some()),
            ("kafka_ssl_key_password", self.ssl_key_password.is_some()),
        ];
        if let Some((setting, _)) = certificates.iter().find(|(_, is_set)| *is_set && !encrypts) {
            return Err(format!(
                "`{setting}` is set, but `kafka_security_protocol` is `{protocol}`: set it to `ssl` or `sasl_ssl`"
            ));
        }
        let has_mechanism = self.sasl_mechanism.is_some() || is_set("sasl.mechanism") || is_set("sasl.mechanisms");
        if authenticates && !has_mechanism {
            return Err(format!("`kafka_security_protocol` is `{protocol}`: set `kafka_sasl_mechanism`, too"));
        }
        Ok(())
    }
}

fn matches(patterns: &[Regex], topic: &str) -> bool {
    patterns.iter().any(|pattern| pattern.is_match(topic))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Secret;

    fn topics_of(inputs: &[&str]) -> KafkaSettings {
        let inputs = inputs.iter().map(|topic| (*topic).to_owned()).collect();
        KafkaSettings { topic_input: inputs, ..KafkaSettings::default() }
    }

    #[track_caller]
    fn refused(settings: &KafkaSettings, words: &[&str]) {
        let error = settings.check().unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }

    #[test]
    fn the_server_does_not_read_what_it_writes() {
        topics_of(&["a", "^b.*"]).check().unwrap();
        refused(&topics_of(&["a", "mlserver-output"]), &["`kafka_topic_output` is `mlserver-output`"]);
        refused(&topics_of(&["^mlserver-.*"]), &["`kafka_topic_output` is `mlserver-output`"]);
        let with_dead_letters = |inputs| {
            let topic = Some("lost".to_owned());
            KafkaSettings { topic_dead_letters: topic, ..topics_of(inputs) }
        };
        refused(&with_dead_letters(&["lost"]), &["`kafka_topic_dead_letters` is `lost`"]);
        refused(&topics_of(&["a-dead-letters", "a"]), &["of the topic `a`", "`a-dead-letters`"]);
        refused(&topics_of(&["a", "^.*-dead"]), &["of the topic `a`", "set `kafka_topic_dead_letters`"]);
        with_dead_letters(&["a-dead-letters", "a"]).check().unwrap();
        let long = "a".repeat(240);
        refused(&topics_of(&[&long]), &["more than 249 characters"]);
        with_dead_letters(&[&long]).check().unwrap();
    }

    #[test]
    fn models_have_topics_that_are_read() {
        let with_model = |topic: &str, inputs| {
            let models = [(topic.to_owned(), "iris".to_owned())].into();
            KafkaSettings { topic_models: models, ..topics_of(inputs) }
        };
        with_model("a", &["a"]).check().unwrap();
        with_model("a", &["^a"]).check().unwrap();
        refused(&with_model("b", &["a", "^c"]), &["`kafka_topic_models`", "`b`"]);
    }

    #[test]
    fn credentials_are_used() {
        let password = || Some(Secret::from("hush"));
        let with_password = |protocol: &str| {
            let security_protocol = protocol.to_owned();
            KafkaSettings { sasl_password: password(), security_protocol, ..topics_of(&["a"]) }
        };
        for protocol in ["plaintext", "ssl"] {
            refused(&with_password(protocol), &["`kafka_sasl_password`", protocol, "`sasl_ssl`"]);
        }
        refused(&with_password("sasl_ssl"), &["`kafka_sasl_mechanism`"]);
        let mechanism = Some("PLAIN".to_owned());
        KafkaSettings { sasl_mechanism: mechanism, ..with_password("sasl_ssl") }.check().unwrap();
        let of_config = |name: &str, value: &str| Properties([(name.to_owned(), value.to_owned())].into());
        KafkaSettings { config: of_config("security.protocol", "sasl_ssl"), ..with_password("ssl") }.check().unwrap();
        let config = of_config("sasl.mechanisms", "PLAIN");
        KafkaSettings { config, ..with_password("sasl_plaintext") }.check().unwrap();
        let with_ca = KafkaSettings { ssl_ca: Some("ca.pem".to_owned()), ..topics_of(&["a"]) };
        refused(&with_ca, &["`kafka_ssl_ca`", "`plaintext`"]);
    }

    #[test]
    fn settings_become_properties() {
        let config = [("linger.ms", "7"), ("sasl.username", "other")];
        let config = Properties(config.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        let settings = KafkaSettings {
            security_protocol: "sasl_ssl".to_owned(),
            sasl_mechanism: Some("SCRAM-SHA-512".to_owned()),
            sasl_username: Some("user".to_owned()),
            sasl_password: Some(Secret::from("hush")),
            ssl_ca: Some("ca.pem".to_owned()),
            ssl_certificate: Some("client.pem".to_owned()),
            ssl_key: Some("client.key".to_owned()),
            ssl_key_password: Some(Secret::from("quiet")),
            config,
            ..topics_of(&["a"])
        };
        settings.check().unwrap();
        let properties = settings.properties();
        let expected = [
            ("security.protocol", "sasl_ssl"),
            ("sasl.mechanism", "SCRAM-SHA-512"),
            ("sasl.username", "other"),
            ("sasl.password", "hush"),
            ("ssl.ca.location", "ca.pem"),
            ("ssl.certificate.location", "client.pem"),
            ("ssl.key.location", "client.key"),
            ("ssl.key.password", "quiet"),
            ("linger.ms", "7"),
        ];
        for (name, value) in expected {
            assert_eq!(properties[name], value);
        }
    }
}
