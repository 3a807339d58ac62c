//! The partitions that the consumer group has assigned to this server, and their records in flight.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::TopicPartitionList;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::in_flight::InFlight;
use super::metrics::KafkaMetrics;
use super::offsets::{DoneRecords, OffsetTracker};
use super::outgoing::Outgoing;

/// How long the records in flight of a partition that another consumer gets are waited for. Meanwhile, the group cannot continue.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to wait between looks at a partition that is about to be revoked, unless something changes.
const REVOKE_STEP: Duration = Duration::from_millis(50);

/// A partition from its assignment to its revocation.
#[derive(Debug)]
pub(super) struct AssignedPartition {
    pub(super) topic: Arc<str>,
    pub(super) number: i32,
    /// No record of it is started any more, and those that wait for a model are abandoned.
    pub(super) leaving: CancellationToken,
    /// Another consumer reads its records: those in flight are cancelled.
    pub(super) lost: CancellationToken,
    offsets: Mutex<OffsetTracker<Option<Outgoing>>>,
    /// The offset that has been committed last. Negative if none has.
    next_offset: AtomicI64,
}

/// Records of one partition that are committed together.
#[derive(Debug)]
pub(super) struct DonePartition {
    pub(super) partition: Arc<AssignedPartition>,
    pub(super) done: DoneRecords<Option<Outgoing>>,
}

impl AssignedPartition {
    fn new(topic: &str, number: i32, session: &CancellationToken) -> Self {
        Self {
            topic: topic.into(),
            number,
            leaving: session.child_token(),
            lost: CancellationToken::new(),
            offsets: Mutex::default(),
            next_offset: AtomicI64::new(-1),
        }
    }

    #[cfg(test)]
    pub(super) fn for_test(topic: &str, number: i32) -> Arc<Self> {
        Arc::new(Self::new(topic, number, &CancellationToken::new()))
    }

    /// Adds a record that has been read.
    pub(super) fn begin(&self, offset: i64) {
        self.offsets.lock().begin(offset);
    }

    /// Starts a record that has been read, or abandons it if the partition is leaving and no record after it has been started.
    /// Returns whether it has been started.
    pub(super) fn start(&self, offset: i64) -> bool {
        // Asked for under the lock: once a record has been abandoned, none after it is started.
        let mut offsets = self.offsets.lock();
        offsets.start(offset, self.leaving.is_cancelled())
    }

    /// Records that a record has been answered. Its transaction is still to send what it leaves.
    pub(super) fn complete(&self, offset: i64, left: Option<Outgoing>) {
        self.offsets.lock().complete(offset, left);
    }

    /// Records that a record will not be answered here.
    pub(super) fn abandon(&self, offset: i64) {
        self.offsets.lock().abandon(offset);
    }

    /// Records that the offsets of `count` records have been committed, up to `next_offset`. Returns how many of them were still
    /// tracked.
    pub(super) fn committed(&self, count: usize, next_offset: i64) -> usize {
        self.next_offset.store(next_offset, Ordering::Relaxed);
        self.offsets.lock().committed(count)
    }

    /// Returns how many records there are before the offset `end` that are not committed. `position` is where reading begins.
    pub(super) fn lag(&self, end: i64, position: i64) -> i64 {
        let next_offset = self.next_offset.load(Ordering::Relaxed);
        let next_offset = if next_offset < 0 { position } else { next_offset };
        end.saturating_sub(next_offset).max(0)
    }
}

/// Partitions by topic and number.
type PartitionTable = HashMap<Arc<str>, HashMap<i32, Arc<AssignedPartition>>>;

/// The partitions of one consumer. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Assignment(Arc<AssignmentState>);

#[derive(Debug)]
struct AssignmentState {
    partitions: Mutex<PartitionTable>,
    in_flight: InFlight,
    /// Cancelled when the session stops reading.
    stop: CancellationToken,
    /// Whether the consumer has joined the group.
    joined: AtomicBool,
    metrics: KafkaMetrics,
}

impl Assignment {
    pub(super) fn new(in_flight: InFlight, stop: CancellationToken, metrics: KafkaMetrics) -> Self {
        let (partitions, joined) = (Mutex::default(), AtomicBool::new(false));
        Self(Arc::new(AssignmentState { partitions, in_flight, stop, joined, metrics }))
    }

    /// Reports whether the consumer is a member of the group.
    pub(super) fn has_joined(&self) -> bool {
        self.0.joined.load(Ordering::Acquire)
    }

    /// Reports whether the session stops reading.
    pub(super) fn is_stopping(&self) -> bool {
        self.0.stop.is_cancelled()
    }

    /// Returns a partition, if it is assigned.
    pub(super) fn find(&self, topic: &str, partition: i32) -> Option<Arc<AssignedPartition>> {
        self.0.partitions.lock().get(topic)?.get(&partition).cloned()
    }

    /// Returns all partitions.
    pub(super) fn all(&self) -> Vec<Arc<AssignedPartition>> {
        self.0.partitions.lock().values().flat_map(HashMap::values).cloned().collect()
    }

    /// Adds partitions.
    pub(super) fn add(&self, assigned: &TopicPartitionList) {
        let mut partitions = self.0.partitions.lock();
        for element in assigned.elements() {
            let partition = Arc::new(AssignedPartition::new(element.topic(), element.partition(), &self.0.stop));
            partitions.entry(Arc::clone(&partition.topic)).or_default().insert(partition.number, partition);
        }
        let count: usize = partitions.values().map(HashMap::len).sum();
        drop(partitions);
        self.0.metrics.set_partitions(count);
        self.0.joined.store(true, Ordering::Release);
        info!(target: "mlserver.kafka", "Kafka assigned {} partitions; {count} in all.", assigned.count());
    }

    /// Removes partitions that another consumer gets, when their records in flight have been answered and committed, or after
    /// [`REVOKE_TIMEOUT`]. If they are `lost`, another consumer has them already.
    pub(super) fn revoke(&self, revoked: &TopicPartitionList, lost: bool) {
        let partitions: Vec<_> =
            revoked.elements().iter().filter_map(|element| self.find(element.topic(), element.partition())).collect();
        for partition in &partitions {
            partition.leaving.cancel();
        }
        if lost {
            self.0.joined.store(false, Ordering::Release);
        } else if !self.settle(&partitions, REVOKE_TIMEOUT) {
            let count: usize = partitions.iter().map(|partition| partition.offsets.lock().len()).sum();
            warn!(
                target: "mlserver.kafka",
                "Kafka assigns {} partitions to another consumer, but {count} records are still in flight after {} s; the other \
                 consumer answers them again.",
                partitions.len(),
                REVOKE_TIMEOUT.as_secs()
            );
        }
        self.remove(&partitions);
        if !partitions.is_empty() {
            let verb = if lost { "has given" } else { "gives" };
            info!(target: "mlserver.kafka", "Kafka {verb} {} partitions to other consumers.", partitions.len());
        }
    }

    /// Waits until partitions have nothing in flight, and returns whether that was in time.
    fn settle(&self, partitions: &[Arc<AssignedPartition>], timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        while !partitions.iter().all(|partition| partition.offsets.lock().is_settled()) {
            if Instant::now() > until {
                return false;
            }
            self.0.in_flight.wait(REVOKE_STEP);
        }
        true
    }

    /// Reports whether no partition has a record that is worth waiting for.
    pub(super) fn is_settled(&self) -> bool {
        self.all().iter().all(|partition| partition.offsets.lock().is_settled())
    }

    fn remove(&self, removed: &[Arc<AssignedPartition>]) {
        let mut partitions = self.0.partitions.lock();
        for partition in removed {
            partition.lost.cancel();
            if let Some(topic) = partitions.get_mut(&partition.topic) {
                topic.remove(&partition.number);
                if topic.is_empty() {
                    partitions.remove(&partition.topic);
                }
            }
            self.0.in_flight.end(partition.offsets.lock().close());
            self.0.metrics.forget(&partition.topic, partition.number);
        }
        self.0.metrics.set_partitions(partitions.values().map(HashMap::len).sum());
    }

    /// Takes the records that can be committed.
    pub(super) fn take_done(&self) -> Vec<DonePartition> {
        let done = |partition: Arc<AssignedPartition>| {
            let done = partition.offsets.lock().take_done()?;
            Some(DonePartition { partition, done })
        };
        self.all().into_iter().filter_map(done).collect()
    }

    /// Removes all partitions: the session has ended.
    pub(super) fn clear(&self) {
        self.remove(&self.all());
        self.0.joined.store(false, Ordering::Release);
    }
}
