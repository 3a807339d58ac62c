//! What the log says of the connection to the brokers: each fault once, until it is over.

use std::sync::Arc;

use parking_lot::Mutex;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use tracing::{debug, info, warn};

use super::TARGET;

/// The state of a connection in reasons of librdkafka.
const HANDSHAKE: &str = "SSL_HANDSHAKE";

/// The faults that have been logged. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct ConnectionLog(Arc<ConnectionLogState>);

#[derive(Debug)]
struct ConnectionLogState {
    servers: String,
    faults: Mutex<Faults>,
}

#[derive(Debug, Default)]
struct Faults {
    logged: Vec<RDKafkaErrorCode>,
    /// Why the last connection to one broker failed.
    last_reason: String,
    /// Whether a failed handshake has been logged as the reason why no broker can be reached.
    has_handshake: bool,
}

impl Faults {
    /// Returns what the log says of an error: nothing, if it has been said or will end by itself.
    fn warning(&mut self, code: RDKafkaErrorCode, reason: &str, servers: &str) -> Option<String> {
        match code {
            // One broker of several: the client connects to another one.
            RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::Resolve => {
                reason.clone_into(&mut self.last_reason);
                None
            }
            RDKafkaErrorCode::AllBrokersDown => {
                // If the brokers reject the connection, that has been said.
                let is_explained = !self.logged.is_empty();
                if !self.is_new(code) || is_explained {
                    return None;
                }
                let reason = if self.last_reason.is_empty() { reason } else { &self.last_reason };
                self.has_handshake = reason.contains(HANDSHAKE);
                Some(format!("Kafka cannot be reached at {servers}: {reason}. Retrying until it responds."))
            }
            // Expected while records are read to the end, or while the group changes.
            RDKafkaErrorCode::PartitionEOF | RDKafkaErrorCode::RebalanceInProgress => None,
            // librdkafka reports the handshakes of several connections, some as failures of the transport.
            RDKafkaErrorCode::SSL if self.has_handshake => None,
            code => self.is_new(code).then(|| format!("Kafka at {servers} reports: {reason} ({code}). Retrying.")),
        }
    }

    /// Reports whether a fault has not been logged, and records it.
    fn is_new(&mut self, code: RDKafkaErrorCode) -> bool {
        let is_new = !self.logged.contains(&code);
        if is_new {
            self.logged.push(code);
        }
        is_new
    }
}

impl ConnectionLog {
    pub(super) fn new(servers: &str) -> Self {
        Self(Arc::new(ConnectionLogState { servers: servers.to_owned(), faults: Mutex::default() }))
    }

    /// Records an error that librdkafka reports, which it recovers from by itself.
    pub(super) fn error(&self, error: &KafkaError, reason: &str) {
        debug!(target: TARGET, reason, "librdkafka: {error}");
        let Some(code) = error.rdkafka_error_code() else { return };
        if let Some(warning) = self.0.faults.lock().warning(code, reason, &self.0.servers) {
            warn!(target: TARGET, "{warning}");
        }
    }

    /// Records that a broker is connected.
    pub(super) fn connected(&self) {
        let mut faults = self.0.faults.lock();
        if faults.logged.contains(&RDKafkaErrorCode::AllBrokersDown) {
            info!(target: TARGET, "Kafka at {} can be reached again.", self.0.servers);
        }
        *faults = Faults::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOWN: &str = "1/1 brokers are down";
    const TRANSPORT: &str = "ssl://kafka:9093/bootstrap: certificate verify failed (after 2ms in state SSL_HANDSHAKE)";
    const SSL: &str = "ssl://kafka:9093/bootstrap: SSL handshake failed: certificate verify failed";

    fn warnings(errors: &[(RDKafkaErrorCode, &str)]) -> Vec<String> {
        let mut faults = Faults::default();
        errors.iter().filter_map(|(code, reason)| faults.warning(*code, reason, "kafka:9093")).collect()
    }

    #[test]
    fn failed_handshake_is_one_warning_in_any_order() {
        let transport = (RDKafkaErrorCode::BrokerTransportFailure, TRANSPORT);
        let ssl = (RDKafkaErrorCode::SSL, SSL);
        let down = (RDKafkaErrorCode::AllBrokersDown, DOWN);
        for errors in [[transport, down, ssl, ssl], [ssl, transport, down, ssl], [ssl, down, transport, down]] {
            let found = warnings(&errors);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains("certificate verify failed"), "{found:?}");
        }
    }

    #[test]
    fn other_faults_are_logged_beside_each_other() {
        let down = (RDKafkaErrorCode::AllBrokersDown, DOWN);
        let found = warnings(&[
            (RDKafkaErrorCode::BrokerTransportFailure, "connection refused"),
            down,
            (RDKafkaErrorCode::SSL, SSL),
            (RDKafkaErrorCode::TopicAuthorizationFailed, "not allowed"),
            down,
        ]);
        let starts = ["Kafka cannot be reached at kafka:9093: connection refused", "Kafka at kafka:9093 reports: ssl"];
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found.iter().zip(starts).all(|(warning, start)| warning.starts_with(start)), "{found:?}");
    }
}
