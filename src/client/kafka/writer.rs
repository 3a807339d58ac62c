//! Writes answers to a topic.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use tokio::sync::Notify;

use super::reader::ID_HEADER;
use super::{BROKER_TIMEOUT, BrokerWatch, client_config, failed, not_created};
use crate::client::topic::{Delivery, OutputRecord, RecordWriter, TopicAddress, TopicError, TopicOptions};
use crate::remote::Observer;

/// Defaults of librdkafka that do not suit a run.
const DEFAULTS: [(&str, &str); 4] = [
    ("queue.buffering.max.kbytes", "65536"),
    // The one of Java's clients, so that a key has the same partition in topics that have as many.
    ("partitioner", "murmur2_random"),
    ("message.max.bytes", "1000000"),
    ("message.timeout.ms", "300000"),
];
/// What a record needs beside its key, value and id.
const RECORD_OVERHEAD: usize = 1024;
/// How long to wait for space in the queue before the next attempt.
const QUEUE_PAUSE: Duration = Duration::from_millis(5);

/// Writes records to a topic.
pub(in crate::client) struct TopicWriter {
    producer: ThreadedProducer<WriterContext>,
    topic: String,
    partitions: Vec<i32>,
    limit: usize,
}

struct WriterContext {
    watch: BrokerWatch,
    topic: String,
    /// How long a record may wait for the brokers.
    timeout: Duration,
    state: Mutex<WriterState>,
    delivered: Arc<Notify>,
}

struct WriterState {
    failure: Option<TopicError>,
    /// When a record was delivered, or the queue was empty.
    progress: Instant,
}

impl ClientContext for WriterContext {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        self.watch.log(facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.watch.error(&error, reason);
        if let KafkaError::Global(RDKafkaErrorCode::Fatal) = error {
            let (action, reason) = (format!("write to the topic `{}`", self.topic), reason.to_owned());
            self.fail(TopicError::Failed { action, reason });
        }
    }
}

impl ProducerContext for WriterContext {
    /// The records of a block that have not been delivered.
    type DeliveryOpaque = Arc<AtomicUsize>;

    fn delivery(&self, result: &DeliveryResult<'_>, open: Arc<AtomicUsize>) {
        match result {
            Ok(_) => {
                if open.fetch_sub(1, Ordering::AcqRel) == 1 {
                    self.state.lock().progress = Instant::now();
                    self.watch.answered();
                    self.delivered.notify_one();
                }
            }
            Err((error, _)) => self.fail(self.explain(error)),
        }
    }
}

impl WriterContext {
    fn fail(&self, failure: TopicError) {
        self.state.lock().failure.get_or_insert(failure);
        self.delivered.notify_one();
    }

    fn explain(&self, error: &KafkaError) -> TopicError {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::MessageTimedOut) => self.watch.unreachable(self.timeout),
            Some(RDKafkaErrorCode::MessageSizeTooLarge) => TopicError::TooLarge { topic: self.topic.clone() },
            _ => failed(&format!("write to the topic `{}`", self.topic), error),
        }
    }
}

impl TopicWriter {
    pub(in crate::client) fn open(
        address: &TopicAddress,
        options: &TopicOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, TopicError> {
        let mut config = client_config(address, options, &DEFAULTS)?;
        // Attempts repeat no record, and keep the order.
        config.set("enable.idempotence", "true");
        let number = |property: &str| config.get(property).and_then(|value| value.parse::<u32>().ok());
        let limit = number("message.max.bytes").and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let timeout = number("message.timeout.ms").map_or(BROKER_TIMEOUT, |time| Duration::from_millis(time.into()));
        let context = WriterContext {
            watch: BrokerWatch::new(&address.servers, observer),
            topic: address.topic.clone(),
            timeout,
            state: Mutex::new(WriterState { failure: None, progress: Instant::now() }),
            delivered: Arc::default(),
        };
        let producer: ThreadedProducer<_> = config.create_with_context(context).map_err(|error| not_created(&error))?;
        // The producer's thread handles events.
        let watch = &producer.context().watch;
        let partitions = watch.partitions(producer.client(), address, options.timeout, || {})?;
        let limit = limit.saturating_sub(RECORD_OVERHEAD);
        Ok(Self { producer, topic: address.topic.clone(), partitions, limit })
    }

    /// Returns the partition of a record without a key, so that these keep the order of the partition that they come from.
    fn partition(&self, of_input: i32) -> Option<i32> {
        let index = usize::try_from(of_input).ok()?.checked_rem(self.partitions.len())?;
        self.partitions.get(index).copied()
    }
}

impl RecordWriter for TopicWriter {
    fn write(&mut self, lines: &[u8], records: &[OutputRecord]) -> Result<Delivery, TopicError> {
        let context = self.producer.context();
        if self.producer.in_flight_count() == 0 {
            context.state.lock().progress = Instant::now();
        }
        let open = Arc::new(AtomicUsize::new(records.len()));
        for (line, OutputRecord { id, key, partition }) in lines.split(|byte| *byte == b'\n').zip(records) {
            let mut record = BaseRecord::<[u8], [u8], _>::with_opaque_to(&self.topic, Arc::clone(&open)).payload(line);
            record.key = key.as_deref();
            record.partition = partition.and_then(|partition| self.partition(partition));
            record.headers = id.as_ref().map(|id| {
                OwnedHeaders::new_with_capacity(1).insert(Header { key: ID_HEADER, value: Some(id.as_str()) })
            });
            while let Err((error, rejected)) = self.producer.send(record) {
                if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                    return Err(context.explain(&error));
                }
                self.check()?;
                crate::kafka::pause(QUEUE_PAUSE);
                record = rejected;
            }
        }
        Ok(Delivery { open: Some(open) })
    }

    fn check(&self) -> Result<(), TopicError> {
        let context = self.producer.context();
        let (failure, progress) = {
            let state = context.state.lock();
            (state.failure.clone(), state.progress)
        };
        if self.producer.in_flight_count() > 0 {
            context.watch.waiting(progress, context.timeout);
        }
        failure.map_or(Ok(()), Err)
    }

    fn delivered(&self) -> Arc<Notify> {
        Arc::clone(&self.producer.context().delivered)
    }

    fn limit(&self) -> usize {
        self.limit
    }
}
