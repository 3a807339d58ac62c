//! The bare loop of a Kafka server: copies records from one topic to another with the same client, and does nothing else.
//!
//! Usage: `cargo run --profile dist --features kafka --example kafka_loop -- SERVERS GROUP INPUT OUTPUT`. Runs until it is killed.
//! `kafka.py` compares the server with it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, DefaultConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;

/// How often offsets are committed.
const COMMITS: Duration = Duration::from_secs(1);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut argument = || arguments.next().context("usage: kafka_loop SERVERS GROUP INPUT OUTPUT");
    let (servers, group, input, output) = (argument()?, argument()?, argument()?, argument()?);
    let consumer: BaseConsumer<DefaultConsumerContext> = ClientConfig::new()
        .set("bootstrap.servers", &servers)
        .set("group.id", &group)
        .set("auto.offset.reset", "earliest")
        .set("enable.auto.commit", "false")
        // As the server sets them.
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("queued.max.messages.kbytes", "16384")
        .set("fetch.queue.backoff.ms", "10")
        .create()?;
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", &servers)
        .set("enable.idempotence", "true")
        .set("queue.buffering.max.kbytes", "65536")
        .set("linger.ms", "5")
        .set("batch.size", "262144")
        .create()?;
    consumer.subscribe(&[&input])?;
    let mut committed = Instant::now();
    loop {
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            let message = message?;
            let mut record = BaseRecord::<[u8], [u8]>::to(&output);
            record.key = message.key();
            record.payload = message.payload();
            while let Err((error, returned)) = producer.send(record) {
                if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                    return Err(error.into());
                }
                producer.poll(Duration::from_millis(1));
                record = returned;
            }
        }
        if committed.elapsed() >= COMMITS {
            match consumer.commit_consumer_state(CommitMode::Async) {
                // Nothing has been read yet.
                Ok(()) | Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => committed = Instant::now(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
