//! Exactly once: answers and the offsets of their records become visible together, in one transaction.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::consumer::{Consumer as _, ConsumerGroupMetadata};
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer as _;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::answer::dead_letter_topic;
use super::assignment::DonePartition;
use super::committer::offsets;
use super::consumer::RecordConsumer;
use super::outgoing::Outgoing;
use super::producer::{self, RejectedRecord};
use super::session::{Session, SessionFailure};
use super::{QUEUE_FULL, TARGET, is_too_large, pause};

/// How long one step of a transaction may take before it is tried again.
const STEP_TIMEOUT: Duration = Duration::from_secs(10);
/// The wait before a failed transaction is tried again, and while the producer's queue is full.
const PAUSE: Duration = Duration::from_millis(100);
const FULL_PAUSE: Duration = Duration::from_millis(5);

/// Why a transaction failed.
#[derive(Debug)]
enum TransactionError {
    /// It has to be aborted, and can be tried again.
    Abort(KafkaError),
    /// The producer cannot go on.
    Fatal(KafkaError),
}

impl From<KafkaError> for TransactionError {
    fn from(error: KafkaError) -> Self {
        match &error {
            KafkaError::Transaction(reason) if !reason.is_fatal() && reason.txn_requires_abort() => Self::Abort(error),
            _ => Self::Fatal(error),
        }
    }
}

/// Makes the producer ready for transactions, which ends those of an earlier process with the same name.
pub(super) fn begin(session: &Session, stop: &CancellationToken) -> Result<(), SessionFailure> {
    let result = steps(|| session.producer.client().init_transactions(STEP_TIMEOUT), || stop.is_cancelled());
    result.map_err(|error| SessionFailure::new("cannot begin transactions", &error))
}

/// Sends the answers of records and commits their offsets in one transaction, which is tried until it succeeds.
pub(super) fn commit(
    session: &Session,
    consumer: &RecordConsumer,
    mut batch: Vec<DonePartition>,
) -> Result<(), SessionFailure> {
    loop {
        // Before the check below: a partition that is lost after it belongs to a later generation of the group, and the brokers
        // reject this one.
        let metadata = consumer.client().group_metadata();
        // Another consumer answers the records of a partition that has been lost.
        batch.retain(|partition| !partition.partition.lost.is_cancelled());
        if batch.is_empty() {
            return Ok(());
        }
        match attempt(session, metadata, &batch) {
            Ok(()) => break,
            Err(TransactionError::Fatal(error)) => return Err(SessionFailure::new("a transaction failed", &error)),
            Err(TransactionError::Abort(error)) => {
                debug!(target: TARGET, reason = %error, "A Kafka transaction is aborted and retried.");
                let summarize = |count| warn!(target: TARGET, "{count} more Kafka transactions were retried.");
                if session.shared.log.allows("transaction", summarize) {
                    warn!(target: TARGET, reason = %error, "A Kafka transaction failed and is retried.");
                }
                let abort = || session.producer.client().abort_transaction(STEP_TIMEOUT);
                steps(abort, || session.has_ended())
                    .map_err(|error| SessionFailure::new("a transaction cannot be aborted", &error))?;
                replace_rejected(session, &mut batch);
                pause(PAUSE);
            }
        }
        if session.has_ended() {
            return Ok(());
        }
    }
    for DonePartition { partition, done } in batch {
        done.records.iter().filter_map(|(_, left)| left.as_ref()).for_each(|outgoing| {
            producer::count(&session.shared.metrics, outgoing);
        });
        session.in_flight.end(partition.committed(done.records.len(), done.next_offset));
    }
    Ok(())
}

fn attempt(
    session: &Session,
    metadata: Option<ConsumerGroupMetadata>,
    batch: &[DonePartition],
) -> Result<(), TransactionError> {
    let client = session.producer.client();
    client.begin_transaction()?;
    for outgoing in batch.iter().flat_map(|partition| &partition.done.records).filter_map(|(_, left)| left.as_ref()) {
        while let Err(error) = session.producer.send_in_transaction(outgoing) {
            match error {
                KafkaError::MessageProduction(code) if code == QUEUE_FULL => pause(FULL_PAUSE),
                error => {
                    session.producer.reject(outgoing, error.clone());
                    return Err(TransactionError::Abort(error));
                }
            }
        }
    }
    let no_group = || TransactionError::Fatal(KafkaError::ClientCreation("the consumer has no group".to_owned()));
    let metadata = metadata.ok_or_else(no_group)?;
    let offsets = offsets(batch).map_err(TransactionError::Fatal)?;
    steps(|| client.send_offsets_to_transaction(&offsets, &metadata, STEP_TIMEOUT), || session.has_ended())?;
    steps(|| client.commit_transaction(STEP_TIMEOUT), || session.has_ended())?;
    Ok(())
}

/// Repeats a step while it says that this helps.
fn steps(step: impl Fn() -> Result<(), KafkaError>, is_over: impl Fn() -> bool) -> Result<(), KafkaError> {
    loop {
        match step() {
            Err(KafkaError::Transaction(reason)) if reason.is_retriable() && !is_over() => pause(PAUSE),
            result => return result,
        }
    }
}

/// Replaces the largest of the records that the brokers found too large, so that a later attempt can succeed. They reject all
/// records of a batch together.
fn replace_rejected(session: &Session, batch: &mut [DonePartition]) {
    let rejected = session.producer.take_rejected();
    let mut found: Vec<&mut Option<Outgoing>> = Vec::new();
    for DonePartition { partition, done } in batch {
        let is_rejected = |offset: i64| {
            let of_record =
                |rejected: &&RejectedRecord| rejected.offset == offset && Arc::ptr_eq(&rejected.partition, partition);
            rejected.iter().find(of_record).is_some_and(|rejected| is_too_large(&rejected.error))
        };
        found.extend(done.records.iter_mut().filter(|(offset, _)| is_rejected(*offset)).map(|(_, left)| left));
    }
    let bytes = |left: &Option<Outgoing>| left.as_ref().map_or(0, Outgoing::bytes);
    let largest = found.iter().map(|left| bytes(left)).max().unwrap_or_default();
    for left in found.into_iter().filter(|left| bytes(left) > largest / 2) {
        *left = left.take().map(|outgoing| {
            let topic = dead_letter_topic(&session.shared, outgoing.record.topic());
            outgoing.smaller(topic)
        });
    }
}
