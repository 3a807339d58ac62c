//! Connections with passwords and certificates.

use serde_json::{Value, json};

use crate::support::kafka::{Broker, KAFKA_USER, KafkaListener, KafkaRecord, kafka_wait_until};
use crate::support::{Folder, ServerBuilder, TestServer, repository_path};

fn tls_file(name: &str) -> String {
    repository_path("tests/fixtures/tls").join(name).to_str().unwrap().to_owned()
}

/// The topics of a test, and the settings that use them.
struct Topics {
    input: String,
    output: String,
    settings: Value,
}

impl Topics {
    fn new(broker: &Broker, listener: KafkaListener) -> Self {
        let (input, output) = (broker.topic("secure", 1), broker.topic("answers", 1));
        let settings = json!({
            "kafka_enabled": true,
            "kafka_servers": broker.listener(listener),
            "kafka_topic_input": input,
            "kafka_topic_output": output,
            "kafka_topic_models": {input.as_str(): "iris"},
            "kafka_group_id": Broker::unique("group"),
        });
        Self { input, output, settings }
    }

    fn serve(&self, security: &Value) -> TestServer {
        let mut settings = self.settings.clone();
        settings.as_object_mut().unwrap().extend(security.as_object().unwrap().clone());
        ServerBuilder::new(Folder::new().with_iris("iris", &json!({"name": "iris"})).settings(&settings)).listen()
    }
}

/// Asserts that a server answers a record through a listener.
#[track_caller]
fn answers(listener: KafkaListener, security: &Value) {
    let Some(broker) = Broker::shared() else { return };
    let topics = Topics::new(broker, listener);
    let request = json!({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [5.1, 3.5, 1.4, 0.2]}]});
    broker.produce(&topics.input, &[KafkaRecord::json(&request)]);
    let server = topics.serve(security);
    let answered = broker.consume(&topics.output, 1);
    assert_eq!(answered[0].value_json()["model_name"], "iris");
    assert_without_secrets(&server.terminate().stdout);
}

/// Asserts that a server warns once that the brokers reject it, with these words, and goes on.
#[track_caller]
fn is_rejected(listener: KafkaListener, security: &Value, words: &[&str]) {
    let Some(broker) = Broker::shared() else { return };
    let server = Topics::new(broker, listener).serve(security);
    let warnings = || {
        let log = server.log();
        log.lines()
            .filter(|line| line.contains("WARN") || line.contains("ERROR"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    kafka_wait_until("the server does not warn", || !warnings().is_empty());
    // A second attempt is not logged.
    let attempts = || server.log().matches("librdkafka: ").count();
    let before = attempts();
    kafka_wait_until("the server does not try again", || attempts() > before + 4);
    let warned = warnings();
    assert_eq!(warned.len(), 1, "{warned:#?}");
    assert!(words.iter().all(|word| warned[0].contains(word)), "{warned:#?}");
    assert_eq!((server.get("/v2/health/live").status, server.get("/v2/health/ready").status), (200, 400));
    assert_without_secrets(&server.terminate().stdout);
}

#[track_caller]
fn assert_without_secrets(log: &str) {
    for secret in [KAFKA_USER.1, "not-the-password"] {
        assert!(!log.contains(secret), "{log}");
    }
}

fn sasl(protocol: &str, mechanism: &str) -> Value {
    json!({
        "kafka_security_protocol": protocol,
        "kafka_sasl_mechanism": mechanism,
        "kafka_sasl_username": KAFKA_USER.0,
        "kafka_sasl_password": KAFKA_USER.1,
        "debug": true,
    })
}

fn and(mut settings: Value, more: &Value) -> Value {
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

#[test]
fn records_are_answered_through_sasl_plain() {
    answers(KafkaListener::SaslPlaintext, &sasl("sasl_plaintext", "PLAIN"));
}

#[test]
fn records_are_answered_through_sasl_scram() {
    answers(KafkaListener::SaslPlaintext, &sasl("sasl_plaintext", "SCRAM-SHA-256"));
    answers(KafkaListener::SaslPlaintext, &sasl("sasl_plaintext", "SCRAM-SHA-512"));
}

#[test]
fn records_are_answered_through_tls() {
    let settings = json!({"kafka_security_protocol": "ssl", "kafka_ssl_ca": tls_file("certificate.pem")});
    answers(KafkaListener::Ssl, &settings);
}

#[test]
fn records_are_answered_through_sasl_over_tls() {
    let tls = json!({"kafka_ssl_ca": tls_file("certificate.pem")});
    answers(KafkaListener::SaslSsl, &and(sasl("sasl_ssl", "SCRAM-SHA-512"), &tls));
}

#[test]
fn records_are_answered_through_tls_with_a_certificate_of_the_client() {
    let certificate = json!({
        "kafka_security_protocol": "ssl",
        "kafka_ssl_ca": tls_file("certificate.pem"),
        "kafka_ssl_certificate": tls_file("certificate.pem"),
        "debug": true,
    });
    answers(KafkaListener::Mutual, &and(certificate.clone(), &json!({"kafka_ssl_key": tls_file("key.pem")})));
    let encrypted = json!({"kafka_ssl_key": tls_file("encrypted-key.pem"), "kafka_ssl_key_password": "opensesame"});
    answers(KafkaListener::Mutual, &and(certificate, &encrypted));
}

#[test]
fn security_of_kafka_config_works_like_the_settings() {
    let config = json!({
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": KAFKA_USER.0,
        "sasl.password": KAFKA_USER.1,
    });
    answers(KafkaListener::SaslPlaintext, &json!({"kafka_config": config, "debug": true}));
}

#[test]
fn wrong_password_is_one_warning_without_the_password() {
    for mechanism in ["PLAIN", "SCRAM-SHA-512"] {
        let wrong = and(sasl("sasl_plaintext", mechanism), &json!({"kafka_sasl_password": "not-the-password"}));
        is_rejected(KafkaListener::SaslPlaintext, &wrong, &["uthentication failed"]);
    }
}

#[test]
fn unknown_certificate_authority_is_one_warning() {
    let settings = json!({"kafka_security_protocol": "ssl", "debug": true});
    is_rejected(KafkaListener::Ssl, &settings, &["certificate"]);
}

#[test]
fn missing_certificate_of_the_client_is_one_warning() {
    let settings =
        json!({"kafka_security_protocol": "ssl", "kafka_ssl_ca": tls_file("certificate.pem"), "debug": true});
    is_rejected(KafkaListener::Mutual, &settings, &["certificate"]);
}

#[test]
fn invalid_security_fails_the_start_without_secrets() {
    let cases = [
        (json!({"kafka_security_protocol": "ssl", "kafka_ssl_ca": "/missing/ca.pem"}), "/missing/ca.pem"),
        (and(sasl("sasl_plaintext", "PLAIN"), &json!({"kafka_config": {"sasl.mechanism": "NONE"}})), "NONE"),
        (and(sasl("sasl_plaintext", "SCRAM-SHA-256"), &json!({"kafka_sasl_username": null})), "username"),
    ];
    for (settings, words) in cases {
        let settings = and(settings, &json!({"kafka_enabled": true, "kafka_servers": "127.0.0.1:1"}));
        let exit = ServerBuilder::new(Folder::iris().settings(&settings)).run();
        let shown = exit.stdout + &exit.stderr;
        assert_ne!(exit.code, Some(0), "{shown}");
        assert!(shown.contains(words), "{settings}: {shown}");
        assert_without_secrets(&shown);
    }
}
