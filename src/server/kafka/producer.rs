//! The producer of answers and dead letters, and what the brokers say of each.

use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use tokio::runtime::Handle;
use tracing::debug;

use super::TARGET;
use super::assignment::AssignedPartition;
use super::connection_log::ConnectionLog;
use super::in_flight::InFlight;
use super::metrics::{KafkaMetrics, RecordOutcome};
use super::outgoing::Outgoing;
use super::session::Session;

/// What the producer returns with the delivery report of a record.
#[derive(Debug)]
pub(super) enum Delivery {
    /// The offset of its record can be committed then.
    Single(Outgoing),
    /// Its transaction fails if it fails.
    InTransaction(Arc<AssignedPartition>, i64),
}

/// A record of a transaction that the brokers have rejected.
#[derive(Debug)]
pub(super) struct RejectedRecord {
    pub(super) partition: Arc<AssignedPartition>,
    pub(super) offset: i64,
    pub(super) error: KafkaError,
}

/// Receives delivery reports and errors.
pub(super) struct ProducerEvents {
    session: OnceLock<Weak<Session>>,
    runtime: Handle,
    in_flight: InFlight,
    metrics: KafkaMetrics,
    connection: ConnectionLog,
    rejected: Mutex<Vec<RejectedRecord>>,
}

impl ClientContext for ProducerEvents {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        debug!(target: TARGET, ?level, facility, "librdkafka: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.connection.error(&error, reason);
    }
}

impl ProducerContext for ProducerEvents {
    type DeliveryOpaque = Box<Delivery>;

    fn delivery(&self, result: &DeliveryResult<'_>, delivery: Self::DeliveryOpaque) {
        let error = result.as_ref().err().map(|(error, _)| error.clone());
        match (*delivery, error) {
            (Delivery::InTransaction(..), None) => {}
            (Delivery::InTransaction(partition, offset), Some(error)) => {
                self.rejected.lock().push(RejectedRecord { partition, offset, error });
            }
            (Delivery::Single(outgoing), None) => {
                count(&self.metrics, &outgoing);
                outgoing.record.source.complete(outgoing.record.offset, None);
                self.in_flight.settle();
            }
            (Delivery::Single(outgoing), Some(error)) => {
                // The session is upgraded on the runtime, because the producer cannot be dropped on its own thread.
                let Some(session) = self.session.get().cloned() else { return };
                self.runtime.spawn(async move {
                    let Some(session) = session.upgrade() else { return };
                    if let Some(outgoing) = session.after_rejection(&error, outgoing).await {
                        session.send(outgoing).await;
                    }
                });
            }
        }
    }
}

/// Counts what a record has become.
pub(super) fn count(metrics: &KafkaMetrics, outgoing: &Outgoing) {
    let outcome = if outgoing.failure.is_some() { RecordOutcome::DeadLetter } else { RecordOutcome::Answered };
    metrics.count(&outgoing.record.source.topic, outcome);
}

/// The producer of a session.
pub(super) struct RecordProducer {
    client: ThreadedProducer<ProducerEvents>,
}

impl RecordProducer {
    /// Creates a producer, which connects in the background. Must be called in a tokio runtime.
    pub(super) fn new(
        config: &ClientConfig,
        in_flight: InFlight,
        metrics: KafkaMetrics,
        connection: ConnectionLog,
    ) -> KafkaResult<Self> {
        let events = ProducerEvents {
            session: OnceLock::new(),
            runtime: Handle::current(),
            in_flight,
            metrics,
            connection,
            rejected: Mutex::default(),
        };
        Ok(Self { client: config.create_with_context(events)? })
    }

    /// Sets the session that sends records again that the brokers reject.
    pub(super) fn attach(&self, session: &Arc<Session>) {
        // It is attached once.
        let _ = self.client.context().session.set(Arc::downgrade(session));
    }

    /// Returns the client, for its transactions.
    pub(super) const fn client(&self) -> &ThreadedProducer<ProducerEvents> {
        &self.client
    }

    /// Hands a record to the producer.
    ///
    /// # Errors
    ///
    /// Returns the record if the producer does not take it.
    #[expect(clippy::result_large_err, reason = "the caller gets the record back")]
    pub(super) fn send(&self, outgoing: Outgoing) -> Result<(), (KafkaError, Outgoing)> {
        let topic = Arc::clone(&outgoing.topic);
        let headers = outgoing.owned_headers();
        let delivery = Box::new(Delivery::Single(outgoing));
        // The client copies key and value before it returns.
        let (key, value) = match &*delivery {
            Delivery::Single(outgoing) => (outgoing.key.clone(), outgoing.value.clone()),
            Delivery::InTransaction(..) => (None, None),
        };
        let record = BaseRecord {
            key: key.as_deref(),
            payload: value.as_deref(),
            ..BaseRecord::with_opaque_to(&topic, delivery)
        };
        match self.client.send(record.headers(headers)) {
            Ok(()) => Ok(()),
            Err((error, record)) => match *record.delivery_opaque {
                Delivery::Single(outgoing) => Err((error, outgoing)),
                Delivery::InTransaction(..) => Ok(()),
            },
        }
    }

    /// Hands a record to the current transaction.
    pub(super) fn send_in_transaction(&self, outgoing: &Outgoing) -> Result<(), KafkaError> {
        let record = &outgoing.record;
        let delivery = Box::new(Delivery::InTransaction(Arc::clone(&record.source), record.offset));
        let base = BaseRecord::<[u8], [u8], _>::with_opaque_to(&outgoing.topic, delivery);
        let base = BaseRecord { key: outgoing.key.as_deref(), payload: outgoing.value.as_deref(), ..base };
        self.client.send(base.headers(outgoing.owned_headers())).map_err(|(error, _)| error)
    }

    /// Records that the producer does not take a record of a transaction.
    pub(super) fn reject(&self, outgoing: &Outgoing, error: KafkaError) {
        let record = &outgoing.record;
        let rejected = RejectedRecord { partition: Arc::clone(&record.source), offset: record.offset, error };
        self.client.context().rejected.lock().push(rejected);
    }

    /// Takes the records that were rejected since the last call.
    pub(super) fn take_rejected(&self) -> Vec<RejectedRecord> {
        std::mem::take(&mut *self.client.context().rejected.lock())
    }
}
