//! The settings of Kafka as a connection, and what is wrong with them together.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::anyhow;

use super::assembly::ServerParts;
use crate::server::Listener;
#[cfg(feature = "kafka")]
use crate::server::{
    DrainStage, ForwardedHeaders,
    kafka::{DEAD_LETTERS, KafkaMetrics, KafkaOptions, KafkaServer},
};
use crate::settings::Settings;
use crate::telemetry::metrics::Registry;

/// Creates no listener: [`check`] has failed if Kafka is enabled.
///
/// # Errors
///
/// Never fails.
#[cfg(not(feature = "kafka"))]
#[expect(clippy::unnecessary_wraps, reason = "it may fail with the feature")]
pub(super) fn listener(
    _: &Settings,
    _: &ServerParts,
    _: Arc<AtomicBool>,
    _: &mut Registry,
) -> anyhow::Result<Option<Listener>> {
    Ok(None)
}

/// Creates the consumer of requests, if Kafka is enabled. `joined` is true while it is a member of its group.
///
/// # Errors
///
/// Fails if librdkafka rejects a property.
#[cfg(feature = "kafka")]
pub(super) fn listener(
    settings: &Settings,
    parts: &ServerParts,
    joined: Arc<AtomicBool>,
    metrics: &mut Registry,
) -> anyhow::Result<Option<Listener>> {
    if !settings.kafka_enabled {
        return Ok(None);
    }
    let options = KafkaOptions {
        connection: checks::connection(settings),
        topics: settings.kafka_topic_input.clone(),
        topic_output: settings.kafka_topic_output.clone(),
        topic_dead_letters: settings.kafka_topic_dead_letters.clone(),
        topic_models: settings.kafka_topic_models.clone(),
        group_id: settings.kafka_group_id.clone(),
        offset_reset: settings.kafka_auto_offset_reset,
        delivery: settings.kafka_delivery,
        transactional_id: settings.kafka_transactional_id.clone(),
        ordering: settings.kafka_ordering,
        max_in_flight: settings.kafka_max_in_flight,
        max_attempts: settings.kafka_max_attempts,
        max_requests: settings.limits.max_in_flight,
        server_name: settings.server_name.clone(),
        forward_headers: ForwardedHeaders::new(&settings.access.forward_headers)?,
        non_finite: settings.non_finite_json,
    };
    let metrics = KafkaMetrics::register(metrics);
    let announcement = format!("Kafka server consuming messages from {}.", settings.kafka_servers);
    let server = KafkaServer::new(parts.inference.clone(), parts.compute.clone(), metrics, joined, options)?;
    let serve = move |stop| server.serve(stop);
    Ok(Some(Listener::new("Kafka", DrainStage::Requests, vec![announcement], serve)))
}

/// Checks what the settings of Kafka mean together; each one alone has been checked when it was read.
///
/// # Errors
///
/// Fails if Kafka is enabled but cannot be served with these settings, or by this build.
#[cfg(not(feature = "kafka"))]
pub(in crate::commands) fn check(settings: &Settings) -> anyhow::Result<()> {
    if settings.kafka_enabled {
        return Err(anyhow!(
            "`kafka_enabled` is true, but this `mlserver` was built without the feature `kafka`: use the one of the Python wheel or \
             of the container image, or build it with `cargo build --release --features kafka`"
        ));
    }
    Ok(())
}

#[cfg(feature = "kafka")]
pub(in crate::commands) use checks::check;

#[cfg(feature = "kafka")]
mod checks {
    use regex_lite::Regex;

    use super::{DEAD_LETTERS, Settings, anyhow};
    use crate::kafka::KafkaConnection;
    use crate::types::{LONGEST_TOPIC, Properties};

    /// Checks what the settings of Kafka mean together; each one alone has been checked when it was read.
    ///
    /// # Errors
    ///
    /// Fails if Kafka is enabled but cannot be served with these settings.
    pub(in crate::commands) fn check(settings: &Settings) -> anyhow::Result<()> {
        if !settings.kafka_enabled {
            return Ok(());
        }
        topics(settings)?;
        security(settings)?;
        connection(settings).client_config()?;
        Ok(())
    }

    /// Returns the brokers and the properties that the settings describe. Those of `kafka_config` override the others.
    pub(super) fn connection(settings: &Settings) -> KafkaConnection {
        let named = [
            ("security.protocol", Some(settings.kafka_security_protocol.as_str())),
            ("sasl.mechanism", settings.kafka_sasl_mechanism.as_deref()),
            ("sasl.username", settings.kafka_sasl_username.as_deref()),
            ("sasl.password", settings.kafka_sasl_password.as_deref()),
            ("ssl.ca.location", settings.kafka_ssl_ca.as_deref()),
            ("ssl.certificate.location", settings.kafka_ssl_certificate.as_deref()),
            ("ssl.key.location", settings.kafka_ssl_key.as_deref()),
            ("ssl.key.password", settings.kafka_ssl_key_password.as_deref()),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
        let Properties(further) = settings.kafka_config.clone();
        KafkaConnection { servers: settings.kafka_servers.clone(), properties: named.chain(further).collect() }
    }

    /// Fails if records that the server writes would be read by it, too, or if a topic is named in vain.
    fn topics(settings: &Settings) -> anyhow::Result<()> {
        let is_pattern = |topic: &&String| topic.starts_with('^');
        let patterns: Vec<&String> = settings.kafka_topic_input.iter().filter(is_pattern).collect();
        // librdkafka reads them in its own way, and rejects what it cannot read.
        let compiled: Vec<Regex> = patterns.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect();
        let is_input =
            |topic: &str| settings.kafka_topic_input.iter().any(|input| input == topic) || matches(&compiled, topic);
        let loops = |setting: &str, topic: &str| {
            anyhow!(
                "`{setting}` is `{topic}`, which `kafka_topic_input` reads: the server would read what it writes; use another topic"
            )
        };
        if is_input(&settings.kafka_topic_output) {
            return Err(loops("kafka_topic_output", &settings.kafka_topic_output));
        }
        match &settings.kafka_topic_dead_letters {
            Some(topic) if is_input(topic) => return Err(loops("kafka_topic_dead_letters", topic)),
            Some(_) => {}
            None => {
                for input in settings.kafka_topic_input.iter().filter(|topic| !is_pattern(topic)) {
                    let topic = format!("{input}{DEAD_LETTERS}");
                    if is_input(&topic) {
                        return Err(anyhow!(
                            "the dead letters of the topic `{input}` go to `{topic}`, which `kafka_topic_input` reads: set \
                             `kafka_topic_dead_letters` to another topic"
                        ));
                    }
                    if topic.len() > LONGEST_TOPIC {
                        return Err(anyhow!(
                            "the topic `{topic}` for dead letters has more than {LONGEST_TOPIC} characters: set \
                             `kafka_topic_dead_letters`"
                        ));
                    }
                }
            }
        }
        let unread = settings.kafka_topic_models.keys().find(|topic| !is_input(topic));
        match unread {
            Some(topic) if compiled.len() == patterns.len() => {
                Err(anyhow!("`kafka_topic_models` has the topic `{topic}`, which `kafka_topic_input` does not read"))
            }
            _ => Ok(()),
        }
    }

    fn matches(patterns: &[Regex], topic: &str) -> bool {
        patterns.iter().any(|pattern| pattern.is_match(topic))
    }

    /// Fails if credentials are set that would not be used, or if none can be.
    fn security(settings: &Settings) -> anyhow::Result<()> {
        let is_set = |property: &str| settings.kafka_config.contains_key(property);
        if is_set("security.protocol") {
            return Ok(());
        }
        let protocol = settings.kafka_security_protocol.as_str();
        let authenticates = protocol.starts_with("sasl");
        let credentials = [
            ("kafka_sasl_mechanism", settings.kafka_sasl_mechanism.is_some()),
            ("kafka_sasl_username", settings.kafka_sasl_username.is_some()),
            ("kafka_sasl_password", settings.kafka_sasl_password.is_some()),
        ];
        if let Some((setting, _)) = credentials.iter().find(|(_, is_set)| *is_set && !authenticates) {
            return Err(anyhow!(
                "`{setting}` is set, but `kafka_security_protocol` is `{protocol}`: set it to `sasl_ssl`, or to `sasl_plaintext` \
                 without encryption"
            ));
        }
        let encrypts = protocol.ends_with("ssl");
        let certificates = [
            ("kafka_ssl_ca", settings.kafka_ssl_ca.is_some()),
            ("kafka_ssl_certificate", settings.kafka_ssl_certificate.is_some()),
            ("kafka_ssl_key", settings.kafka_ssl_key.is_some()),
            ("kafka_ssl_key_password", settings.kafka_ssl_key_password.is_some()),
        ];
        if let Some((setting, _)) = certificates.iter().find(|(_, is_set)| *is_set && !encrypts) {
            return Err(anyhow!(
                "`{setting}` is set, but `kafka_security_protocol` is `{protocol}`: set it to `ssl` or `sasl_ssl`"
            ));
        }
        let has_mechanism =
            settings.kafka_sasl_mechanism.is_some() || is_set("sasl.mechanism") || is_set("sasl.mechanisms");
        if authenticates && !has_mechanism {
            return Err(anyhow!("`kafka_security_protocol` is `{protocol}`: set `kafka_sasl_mechanism`, too"));
        }
        Ok(())
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::types::Secret;

        fn topics_of(inputs: &[&str]) -> Settings {
            let inputs = inputs.iter().map(|topic| (*topic).to_owned()).collect();
            Settings { kafka_enabled: true, kafka_topic_input: inputs, ..Settings::default() }
        }

        #[track_caller]
        fn refused(settings: &Settings, words: &[&str]) {
            let error = check(settings).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
            check(&Settings { kafka_enabled: false, ..settings.clone() }).unwrap();
        }

        #[test]
        fn the_server_does_not_read_what_it_writes() {
            check(&topics_of(&["a", "^b.*"])).unwrap();
            refused(&topics_of(&["a", "mlserver-output"]), &["`kafka_topic_output` is `mlserver-output`"]);
            refused(&topics_of(&["^mlserver-.*"]), &["`kafka_topic_output` is `mlserver-output`"]);
            let with_dead_letters = |inputs| {
                let topic = Some("lost".to_owned());
                Settings { kafka_topic_dead_letters: topic, ..topics_of(inputs) }
            };
            refused(&with_dead_letters(&["lost"]), &["`kafka_topic_dead_letters` is `lost`"]);
            refused(&topics_of(&["a-dead-letters", "a"]), &["of the topic `a`", "`a-dead-letters`"]);
            refused(&topics_of(&["a", "^.*-dead"]), &["of the topic `a`", "set `kafka_topic_dead_letters`"]);
            check(&with_dead_letters(&["a-dead-letters", "a"])).unwrap();
            let long = "a".repeat(240);
            refused(&topics_of(&[&long]), &["more than 249 characters"]);
            check(&with_dead_letters(&[&long])).unwrap();
        }

        #[test]
        fn models_have_topics_that_are_read() {
            let with_model = |topic: &str, inputs| {
                let models = [(topic.to_owned(), "iris".to_owned())].into();
                Settings { kafka_topic_models: models, ..topics_of(inputs) }
            };
            check(&with_model("a", &["a"])).unwrap();
            check(&with_model("a", &["^a"])).unwrap();
            refused(&with_model("b", &["a", "^c"]), &["`kafka_topic_models`", "`b`"]);
        }

        #[test]
        fn credentials_are_used() {
            let password = || Some(Secret::from("hush"));
            let with_password = |protocol: &str| {
                let kafka_security_protocol = protocol.to_owned();
                Settings { kafka_sasl_password: password(), kafka_security_protocol, ..topics_of(&["a"]) }
            };
            for protocol in ["plaintext", "ssl"] {
                refused(&with_password(protocol), &["`kafka_sasl_password`", protocol, "`sasl_ssl`"]);
            }
            refused(&with_password("sasl_ssl"), &["`kafka_sasl_mechanism`"]);
            let mechanism = Some("PLAIN".to_owned());
            check(&Settings { kafka_sasl_mechanism: mechanism, ..with_password("sasl_ssl") }).unwrap();
            let of_config = |name: &str, value: &str| Properties([(name.to_owned(), value.to_owned())].into());
            check(&Settings { kafka_config: of_config("security.protocol", "sasl_ssl"), ..with_password("ssl") })
                .unwrap();
            let config = of_config("sasl.mechanisms", "PLAIN");
            check(&Settings { kafka_config: config, ..with_password("sasl_plaintext") }).unwrap();
            let with_ca = Settings { kafka_ssl_ca: Some("ca.pem".to_owned()), ..topics_of(&["a"]) };
            refused(&with_ca, &["`kafka_ssl_ca`", "`plaintext`"]);
        }

        #[test]
        fn settings_become_properties() {
            let config = [("linger.ms", "7"), ("sasl.username", "other")];
            let config = Properties(config.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
            let settings = Settings {
                kafka_servers: "kafka-1:9093,kafka-2:9093".to_owned(),
                kafka_security_protocol: "sasl_ssl".to_owned(),
                kafka_sasl_mechanism: Some("SCRAM-SHA-512".to_owned()),
                kafka_sasl_username: Some("user".to_owned()),
                kafka_sasl_password: Some(Secret::from("hush")),
                kafka_ssl_ca: Some("ca.pem".to_owned()),
                kafka_ssl_certificate: Some("client.pem".to_owned()),
                kafka_ssl_key: Some("client.key".to_owned()),
                kafka_ssl_key_password: Some(Secret::from("quiet")),
                kafka_config: config,
                ..topics_of(&["a"])
            };
            check(&settings).unwrap();
            let config = connection(&settings).client_config().unwrap();
            let expected = [
                ("bootstrap.servers", "kafka-1:9093,kafka-2:9093"),
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
                assert_eq!(config.get(name), Some(value), "{name}");
            }
        }

        #[test]
        fn properties_with_settings_of_their_own_are_refused() {
            let config = Properties([("group.id".to_owned(), "mine".to_owned())].into());
            refused(&Settings { kafka_config: config, ..topics_of(&["a"]) }, &["`group.id`", "`kafka_group_id`"]);
        }
    }
}
