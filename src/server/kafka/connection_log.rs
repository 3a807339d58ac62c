//! What the log says of the connection to the brokers: each fault once, until it is over.

use std::sync::Arc;

use parking_lot::Mutex;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use tracing::{debug, info, warn};

use super::TARGET;

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
}

impl Faults {
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
        let servers = &self.0.servers;
        let mut faults = self.0.faults.lock();
        match code {
            // One broker of several: the client connects to another one.
            RDKafkaErrorCode::BrokerTransportFailure | RDKafkaErrorCode::Resolve => {
                reason.clone_into(&mut faults.last_reason);
            }
            RDKafkaErrorCode::AllBrokersDown => {
                // If the brokers reject the connection, that has been said.
                let is_explained = !faults.logged.is_empty();
                if faults.is_new(code) && !is_explained {
                    let reason = if faults.last_reason.is_empty() { reason } else { &faults.last_reason };
                    warn!(target: TARGET, "Kafka cannot be reached at {servers}: {reason}. Retrying until it responds.");
                }
            }
            // Expected while records are read to the end, or while the group changes.
            RDKafkaErrorCode::PartitionEOF | RDKafkaErrorCode::RebalanceInProgress => {}
            code => {
                if faults.is_new(code) {
                    warn!(target: TARGET, "Kafka at {servers} reports: {reason} ({code}). Retrying.");
                }
            }
        }
    }

    /// Records that a broker is connected.
    pub(super) fn connected(&self) {
        let mut faults = self.0.faults.lock();
        if faults.logged.contains(&RDKafkaErrorCode::AllBrokersDown) {
            info!(target: TARGET, "Kafka at {} can be reached again.", self.0.servers);
        }
        faults.logged.clear();
        faults.last_reason.clear();
    }
}
