//! The thread that reads records, and what the consumer group says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::TopicPartitionListElem;
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::assignment::{AssignedPartition, Assignment};
use super::connection_log::ConnectionLog;
use super::metrics::KafkaMetrics;
use super::process;
use super::record::Record;
use super::session::{Session, SessionFailure};
use super::{TARGET, pause};

/// How long one poll waits for a record: how late a signal to stop is noticed.
const POLL: Duration = Duration::from_millis(100);
/// The most records that one task begins.
const CHUNK: usize = 64;
/// How long to wait for room before the partitions are paused, which discards what has been fetched.
const PAUSE_AFTER: Duration = Duration::from_secs(1);
/// How long one request for committed offsets may take, and the wait before the next one.
const COMMITTED_TIMEOUT: Duration = Duration::from_secs(5);
const COMMITTED_PAUSE: Duration = Duration::from_millis(100);
/// How long one request for topics may take.
const METADATA_TIMEOUT: Duration = Duration::from_secs(1);
/// How often to look for a topic that does not exist.
const MISSING_PAUSE: Duration = Duration::from_secs(2);
/// How often to look whether everything in flight has ended.
const DRAIN_POLL: Duration = Duration::from_millis(20);

/// Receives rebalances, statistics and errors.
pub(super) struct ConsumerEvents {
    assignment: Assignment,
    connection: ConnectionLog,
    metrics: KafkaMetrics,
    /// Called when the consumer has joined the group, or has left it.
    changed: Box<dyn Fn() + Send + Sync>,
}

impl ClientContext for ConsumerEvents {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        debug!(target: TARGET, ?level, facility, "librdkafka: {message}");
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.connection.error(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        if statistics.brokers.values().any(|broker| broker.state == "UP") {
            self.connection.connected();
        }
        for partition in self.assignment.all() {
            let found =
                statistics.topics.get(&*partition.topic).and_then(|topic| topic.partitions.get(&partition.number));
            let Some(found) = found.filter(|found| found.hi_offset >= 0) else { continue };
            let position = [found.committed_offset, found.lo_offset].into_iter().find(|offset| *offset >= 0);
            let lag = partition.lag(found.hi_offset, position.unwrap_or(found.hi_offset));
            self.metrics.set_lag(&partition.topic, partition.number, lag);
        }
    }
}

impl ConsumerContext for ConsumerEvents {
    fn rebalance(&self, consumer: &BaseConsumer<Self>, event: RDKafkaRespErr, partitions: &mut TopicPartitionList) {
        let is_cooperative = matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative);
        let result = if event == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            self.set_committed(consumer, partitions);
            self.assignment.add(partitions);
            if is_cooperative { consumer.incremental_assign(partitions) } else { consumer.assign(partitions) }
        } else {
            self.assignment.revoke(partitions, consumer.assignment_lost());
            // Partitions that are paused stay so if they are assigned again (version 2.12.1 resets only its own pauses), and the reader
            // may have room before that.
            if let Err(error) = consumer.resume(partitions) {
                self.connection.error(&error, "partitions that are given up cannot be resumed");
            }
            if is_cooperative { consumer.incremental_unassign(partitions) } else { consumer.unassign() }
        };
        if let Err(error) = result {
            self.connection.error(&error, "the partitions of the consumer group cannot be changed");
        }
        (self.changed)();
    }
}

impl ConsumerEvents {
    /// Sets the offsets at which newly assigned partitions are read to the committed ones.
    ///
    /// librdkafka fetches them itself, too. But if the assignment changes while the offsets of a transaction are pending, it takes
    /// the partition for one without a committed offset, and reads it from its beginning or end (version 2.12.1, in
    /// `rd_kafka_assignment_apply_offsets`).
    fn set_committed(&self, consumer: &BaseConsumer<Self>, partitions: &mut TopicPartitionList) {
        while partitions.count() > 0 && !self.assignment.is_stopping() && !consumer.assignment_lost() {
            let committed = consumer.committed_offsets(partitions.clone(), COMMITTED_TIMEOUT);
            // One is pending if the transaction of a server that was killed has not been rolled back.
            let committed = committed.and_then(|committed| {
                committed.elements().iter().try_for_each(TopicPartitionListElem::error)?;
                Ok(committed)
            });
            match committed {
                Ok(committed) => {
                    for element in committed.elements() {
                        // A partition without a committed offset is read from where `kafka_auto_offset_reset` says.
                        if let offset @ Offset::Offset(_) = element.offset()
                            && let Err(error) =
                                partitions.set_partition_offset(element.topic(), element.partition(), offset)
                        {
                            self.connection.error(&error, "an offset cannot be set");
                        }
                    }
                    return;
                }
                Err(error) => {
                    debug!(target: TARGET, reason = %error, "The committed offsets are not known yet.");
                    pause(COMMITTED_PAUSE);
                }
            }
        }
    }
}

/// The consumer of a session.
pub(super) struct RecordConsumer {
    client: BaseConsumer<ConsumerEvents>,
}

impl RecordConsumer {
    /// Creates a consumer, which connects in the background and joins its group when it [reads](run).
    pub(super) fn new(
        config: &ClientConfig,
        assignment: Assignment,
        connection: ConnectionLog,
        metrics: KafkaMetrics,
        changed: impl Fn() + Send + Sync + 'static,
    ) -> KafkaResult<Self> {
        let events = ConsumerEvents { assignment, connection, metrics, changed: Box::new(changed) };
        Ok(Self { client: config.create_with_context(events)? })
    }

    pub(super) const fn client(&self) -> &BaseConsumer<ConsumerEvents> {
        &self.client
    }
}

/// Reads records and has them processed, until `stop`, and then waits for those in flight.
pub(super) fn run(
    session: &Arc<Session>,
    consumer: &RecordConsumer,
    runtime: &Handle,
    stop: &CancellationToken,
) -> Result<(), SessionFailure> {
    let topics: Vec<&str> = session.shared.options.settings.topic_input.iter().map(String::as_str).collect();
    let mut reader = Reader { session, consumer, last: None, paused: false, missing_since: None };
    reader.look_for_topics(stop);
    consumer.client().subscribe(&topics).map_err(|error| SessionFailure::new("cannot subscribe", &error))?;
    while !stop.is_cancelled() {
        if session.has_ended() {
            return Ok(());
        }
        if reader.has_found_missing_topics() {
            drain(session, consumer)?;
            return Err(SessionFailure::topics_found());
        }
        let chunk = reader.read()?;
        if !chunk.is_empty() {
            runtime.spawn(process::run(Arc::clone(session), chunk));
        }
    }
    drain(session, consumer)
}

/// Waits for the records in flight, while rebalances go on.
fn drain(session: &Session, consumer: &RecordConsumer) -> Result<(), SessionFailure> {
    while !session.assignment.is_settled() && !session.has_ended() {
        // Newly assigned partitions are not paused yet.
        pause_partitions(consumer)?;
        // A record that is read now is not tracked, and so never committed.
        consumer.client().poll(DRAIN_POLL);
        session.in_flight.wait(DRAIN_POLL);
    }
    Ok(())
}

fn pause_partitions(consumer: &RecordConsumer) -> Result<(), SessionFailure> {
    let client = consumer.client();
    client
        .assignment()
        .and_then(|assignment| client.pause(&assignment))
        .map_err(|error| SessionFailure::new("cannot pause partitions", &error))
}

fn resume_partitions(consumer: &RecordConsumer) -> Result<(), SessionFailure> {
    let client = consumer.client();
    client
        .assignment()
        .and_then(|assignment| client.resume(&assignment))
        .map_err(|error| SessionFailure::new("cannot resume partitions", &error))
}

/// Reads records while there is room for them.
struct Reader<'a> {
    session: &'a Session,
    consumer: &'a RecordConsumer,
    /// The partition of the last record, as most records follow one of the same partition.
    last: Option<Arc<AssignedPartition>>,
    /// Whether partitions are paused because there is no room.
    paused: bool,
    /// When a topic did not exist. librdkafka 2.12.1 does not find it when it is created later, so
    /// another session does.
    missing_since: Option<Instant>,
}

impl Reader<'_> {
    /// Waits for an answer of the brokers, and notes whether a topic is missing. Later errors do not say it if the brokers create
    /// topics.
    fn look_for_topics(&mut self, stop: &CancellationToken) {
        while !stop.is_cancelled() && !self.session.has_ended() {
            match self.missing_topic() {
                Ok(None) => return,
                Ok(Some(topic)) => {
                    warn!(target: TARGET, topic, "A Kafka topic does not exist yet. Waiting for it.");
                    self.missing_since = Some(Instant::now());
                    return;
                }
                // Delivers the errors of connections to the context.
                Err(_) => drop(self.consumer.client().poll(POLL)),
            }
        }
    }

    /// Reports whether a topic was missing, and all exist now.
    fn has_found_missing_topics(&mut self) -> bool {
        if self.missing_since.is_none_or(|since| since.elapsed() < MISSING_PAUSE) {
            return false;
        }
        self.missing_since = Some(Instant::now());
        self.missing_topic().is_ok_and(|missing| missing.is_none())
    }

    /// Asks the brokers for a topic that does not exist. Asking for one creates it, if they and the configuration allow that.
    fn missing_topic(&self) -> KafkaResult<Option<&str>> {
        for topic in self.session.shared.options.settings.topic_input.iter().filter(|topic| !topic.starts_with('^')) {
            let metadata = self.consumer.client().fetch_metadata(Some(topic), METADATA_TIMEOUT)?;
            if metadata.topics().iter().all(|topic| topic.partitions().is_empty()) {
                return Ok(Some(topic));
            }
        }
        Ok(None)
    }

    /// Returns the next records, or none if there are none for a while.
    fn read(&mut self) -> Result<Vec<Record>, SessionFailure> {
        let in_flight = &self.session.in_flight;
        if !in_flight.wait_for_room(PAUSE_AFTER) && !self.paused {
            debug!(target: TARGET, "Kafka partitions are paused: too many records in flight.");
            pause_partitions(self.consumer)?;
            self.paused = true;
        } else if self.paused && in_flight.has_much_room() {
            debug!(target: TARGET, "Kafka partitions are resumed.");
            resume_partitions(self.consumer)?;
            self.paused = false;
        }
        let mut records = Vec::new();
        let mut timeout = POLL;
        while records.len() < CHUNK {
            let Some(polled) = self.consumer.client().poll(timeout) else { break };
            match polled {
                Ok(message) => {
                    records.extend(self.begin(&message));
                    if self.paused {
                        // Its partition was assigned meanwhile. All of them are resumed when there is room.
                        pause_partitions(self.consumer)?;
                        break;
                    }
                }
                Err(KafkaError::MessageConsumptionFatal(code)) => {
                    return Err(SessionFailure::new("the consumer failed", &KafkaError::MessageConsumptionFatal(code)));
                }
                Err(KafkaError::MessageConsumption(RDKafkaErrorCode::UnknownTopicOrPartition)) => {
                    self.missing_since.get_or_insert_with(Instant::now);
                }
                // The context has seen it, and the client recovers from it.
                Err(error) => debug!(target: TARGET, reason = %error, "Reading from Kafka failed."),
            }
            if !in_flight.wait_for_room(Duration::ZERO) {
                break;
            }
            timeout = Duration::ZERO;
        }
        Ok(self.track(records))
    }

    /// Tracks the records that are handed over now, and drops those whose partition has been given up since they were read.
    ///
    /// Not before: a rebalance within a read waits for the tracked records of its partitions, and these cannot start before its end.
    fn track(&self, mut records: Vec<Record>) -> Vec<Record> {
        let read = records.len();
        records.retain(|record| !record.source.lost.is_cancelled());
        self.session.in_flight.end(read - records.len());
        for record in &records {
            record.source.begin(record.offset);
        }
        records
    }

    /// Copies a record. `None` if its partition is not assigned any more.
    fn begin(&mut self, message: &BorrowedMessage<'_>) -> Option<Record> {
        let (topic, number) = (message.topic(), message.partition());
        let is_last = |last: &Arc<AssignedPartition>| {
            *last.topic == *topic && last.number == number && !last.leaving.is_cancelled()
        };
        if !self.last.as_ref().is_some_and(is_last) {
            self.last = self.session.assignment.find(topic, number);
        }
        let source = Arc::clone(self.last.as_ref()?);
        let bytes = message.payload_len() + message.key_len();
        let held = self.session.in_flight.begin(bytes);
        let record = Record::read(message, source, held);
        self.session.shared.metrics.read(record.age());
        Some(record)
    }
}
