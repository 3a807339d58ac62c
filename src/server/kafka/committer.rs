//! The thread that commits: the offsets of answered records, or transactions.

use std::time::Duration;

use rdkafka::consumer::{CommitMode, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::{Offset, TopicPartitionList};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::assignment::DonePartition;
use super::consumer::RecordConsumer;
use super::session::{Session, SessionFailure};
use super::{TARGET, pause, transactions};

/// How long answered records wait for others, so that they are committed together.
const INTERVAL: Duration = Duration::from_millis(100);
/// How often to look whether the session has ended.
const LOOK: Duration = Duration::from_secs(1);
/// The wait before a failed commit is tried again.
const PAUSE: Duration = Duration::from_millis(200);

/// Commits until `finished`, or until the session has failed.
pub(super) fn run(
    session: &Session,
    consumer: &RecordConsumer,
    finished: &CancellationToken,
) -> Result<(), SessionFailure> {
    loop {
        let is_last = finished.is_cancelled();
        if !is_last {
            session.in_flight.wait_for_commit(INTERVAL, LOOK);
        }
        session.shared.metrics.set_in_flight(session.in_flight.records());
        let batch = session.assignment.take_done();
        if batch.is_empty() {
            if is_last || session.has_ended() {
                return Ok(());
            }
        } else if session.is_transactional {
            transactions::commit(session, consumer, batch)?;
        } else {
            commit(session, consumer, batch);
        }
    }
}

/// Commits the offsets of records, until that succeeds or they are not this consumer's any more.
fn commit(session: &Session, consumer: &RecordConsumer, mut batch: Vec<DonePartition>) {
    loop {
        batch.retain(|partition| !partition.partition.lost.is_cancelled());
        if batch.is_empty() {
            return;
        }
        let result = offsets(&batch).and_then(|offsets| consumer.client().commit(&offsets, CommitMode::Sync));
        let Err(error) = result else { break };
        debug!(target: TARGET, reason = %error, "A commit to Kafka failed.");
        if session.has_ended() {
            return;
        }
        let summarize = |count| warn!(target: TARGET, "{count} more commits to Kafka failed.");
        if session.shared.log.allows("commit", summarize) {
            warn!(target: TARGET, reason = %error, "A commit to Kafka failed and is retried.");
        }
        pause(PAUSE);
    }
    for DonePartition { partition, done } in batch {
        session.in_flight.end(partition.committed(done.records.len(), done.next_offset));
    }
}

/// Returns the offsets to commit.
pub(super) fn offsets(batch: &[DonePartition]) -> Result<TopicPartitionList, KafkaError> {
    let mut offsets = TopicPartitionList::with_capacity(batch.len());
    for DonePartition { partition, done } in batch {
        offsets.add_partition_offset(&partition.topic, partition.number, Offset::Offset(done.next_offset))?;
    }
    Ok(offsets)
}
