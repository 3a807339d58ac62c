//! Reads a topic from the offsets that a group has committed up to the end.
//!
//! Partitions are assigned by hand rather than by the group: a run that was killed leaves no member behind whose timeout the next
//! run would have to wait for. Brokers reject the commits of such a run if the group has members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{Headers, Message};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList, TopicPartitionListElem};

use super::{ATTEMPT, BROKER_TIMEOUT, BrokerWatch, client_config, failed, is_transient, not_created};
use crate::client::lines::{InputLine, MAX_LINE};
use crate::client::topic::{
    OffsetCommits, OpenTopic, PartitionOffsets, RecordBatch, RecordOrigin, RecordOrigins, RecordReader, RecordRow,
    TopicAddress, TopicError, TopicOptions,
};
use crate::remote::Observer;

/// The header with the id of a request.
pub(super) const ID_HEADER: &str = "mlserver-request-id";

/// How long to wait for the next record before a batch goes out as it is.
const POLL: Duration = Duration::from_millis(200);

/// How long the last commit waits for the one before it, and how often it looks.
const COMMIT_WAIT: Duration = Duration::from_secs(10);
const COMMIT_PAUSE: Duration = Duration::from_millis(5);

/// How many events are handled between two attempts to query the brokers.
const EVENTS: usize = 50;

/// Bounds on what librdkafka reads ahead.
const DEFAULTS: [(&str, &str); 2] = [("queued.max.messages.kbytes", "16384"), ("fetch.max.bytes", "16777216")];

/// Reads the records of a topic.
pub(in crate::client) struct TopicReader {
    input: Arc<OpenInput>,
    /// The partitions that have records left.
    unfinished: BTreeMap<i32, PartitionRange>,
}

/// The part of a partition that has not been read, in offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct PartitionRange {
    next: i64,
    end: i64,
}

/// The consumer, which the reader and the commits share.
struct OpenInput {
    consumer: Arc<BaseConsumer<ReaderContext>>,
    topic: Arc<str>,
    group: String,
    closed: AtomicBool,
}

struct ReaderContext {
    watch: BrokerWatch,
    /// The failure of a commit that nobody waited for, and its offsets.
    commit_failure: Mutex<Option<(KafkaError, PartitionOffsets)>>,
    /// Such a commit has no answer yet. While no broker is there, librdkafka keeps commits, and does not keep their order.
    is_committing: AtomicBool,
}

impl ClientContext for ReaderContext {
    fn log(&self, _: RDKafkaLogLevel, facility: &str, message: &str) {
        self.watch.log(facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.watch.error(&error, reason);
    }
}

impl ConsumerContext for ReaderContext {}

impl TopicReader {
    /// Opens a topic. Each partition is read from the offset that the group has committed, from that in `answered` or from its
    /// beginning if these are later.
    pub(in crate::client) fn open(
        address: &TopicAddress,
        options: &TopicOptions,
        answered: &PartitionOffsets,
        observer: &Arc<dyn Observer>,
    ) -> Result<OpenTopic, TopicError> {
        let input = OpenInput::connect(address, options, Arc::clone(observer))?;
        let mut unfinished = input.ranges(address, options, answered, observer.as_ref())?;
        let starts = |ranges: &BTreeMap<i32, PartitionRange>| -> PartitionOffsets {
            ranges.iter().map(|(partition, range)| (*partition, range.next)).collect()
        };
        // This fails at once if the group has members, or the user no permission.
        input.commit(&starts(&unfinished), true)?;
        unfinished.retain(|_, range| range.next < range.end);
        let starts = starts(&unfinished);
        let assigned = input.list(&starts).and_then(|list| input.consumer.assign(&list));
        assigned.map_err(|error| failed(&input.action(), &error))?;
        let count = |range: &PartitionRange| u64::try_from(range.end - range.next).unwrap_or_default();
        let offsets = unfinished.values().map(count).sum();
        let input = Arc::new(input);
        let commits = Arc::clone(&input) as Arc<dyn OffsetCommits>;
        Ok(OpenTopic { reader: Box::new(Self { input, unfinished }), commits, offsets })
    }

    /// Passes everything before an offset. Returns how many offsets these are.
    fn pass(&mut self, partition: i32, next: i64) -> u64 {
        let Some(range) = self.unfinished.get_mut(&partition) else { return 0 };
        let next = next.clamp(range.next, range.end);
        let passed = u64::try_from(next - range.next).unwrap_or_default();
        range.next = next;
        if range.next == range.end {
            self.unfinished.remove(&partition);
            let list = self.input.list(&[(partition, next)].into());
            // If this fails, records behind the end are read and ignored.
            let _ = list.and_then(|list| self.input.consumer.pause(&list));
        }
        passed
    }

    /// Handles an error that librdkafka reports in place of a record.
    fn check(&self, error: &KafkaError) -> Result<(), TopicError> {
        let topic = || self.input.topic.to_string();
        match error.rdkafka_error_code() {
            code if is_transient(code) => Ok(()),
            Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => {
                let partition = self.unfinished.keys().next().copied().unwrap_or_default();
                Err(TopicError::Deleted { topic: topic(), partition })
            }
            _ => Err(failed(&self.input.action(), error)),
        }
    }
}

impl RecordReader for TopicReader {
    fn next(&mut self, max_rows: usize, max_text: usize) -> Result<Option<RecordBatch>, TopicError> {
        let origins = RecordOrigins { topic: Arc::clone(&self.input.topic), records: Vec::new() };
        let mut batch = RecordBatch { rows: Vec::new(), origins, offsets: 0, memory: 0 };
        let (input, start, mut text) = (Arc::clone(&self.input), Instant::now(), 0);
        let watch = &input.consumer.context().watch;
        while batch.rows.len() < max_rows && text < max_text && !self.unfinished.is_empty() {
            if input.closed.load(Ordering::Relaxed) {
                return Ok(None);
            }
            match input.consumer.poll(POLL) {
                Some(Ok(message)) => {
                    let (partition, offset) = (message.partition(), message.offset());
                    let Some(range) = self.unfinished.get(&partition) else { continue };
                    let is_wanted = offset < range.end;
                    batch.offsets += self.pass(partition, offset.saturating_add(1));
                    if !is_wanted {
                        continue;
                    }
                    let key = message.key().map(<[u8]>::to_vec);
                    let line = match message.payload().unwrap_or_default() {
                        value if value.len() > MAX_LINE => InputLine::TooLong(value.len() as u64),
                        value => InputLine::Text(value.to_vec()),
                    };
                    text += message.payload_len();
                    batch.memory += (message.payload_len() + 2 * message.key_len()) as u64;
                    let header = message.headers().and_then(id_header);
                    let id = header.or_else(|| String::from_utf8(key.clone()?).ok()).filter(|id| !id.is_empty());
                    batch.rows.push(RecordRow { id, line });
                    batch.origins.records.push(RecordOrigin { partition, offset, key });
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    batch.offsets += self.pass(partition, i64::MAX);
                }
                Some(Err(error)) => self.check(&error)?,
                // The rows should not wait for those that do not come.
                None if !batch.rows.is_empty() => break,
                None => {
                    if let Some(refused) = watch.refused().filter(|_| start.elapsed() >= BROKER_TIMEOUT) {
                        return Err(refused);
                    }
                    if start.elapsed() >= BROKER_TIMEOUT {
                        return Err(watch.unreachable(BROKER_TIMEOUT));
                    }
                    watch.waiting(start, BROKER_TIMEOUT);
                }
            }
        }
        if !batch.rows.is_empty() {
            watch.answered();
        }
        Ok((!batch.rows.is_empty()).then_some(batch))
    }
}

/// Returns the id that a record's header has.
fn id_header(headers: &impl Headers) -> Option<String> {
    let header = headers.iter().find(|header| header.key == ID_HEADER)?;
    String::from_utf8(header.value?.to_vec()).ok().filter(|id| !id.is_empty())
}

impl OpenInput {
    fn connect(
        address: &TopicAddress,
        options: &TopicOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, TopicError> {
        let mut config = client_config(address, options, &DEFAULTS)?;
        config.set("group.id", &options.group);
        config.set("enable.auto.commit", "false");
        config.set("enable.auto.offset.store", "false");
        config.set("auto.offset.reset", "error");
        config.set("enable.partition.eof", "true");
        let watch = BrokerWatch::new(&address.servers, observer);
        let context = ReaderContext { watch, commit_failure: Mutex::default(), is_committing: AtomicBool::new(false) };
        let consumer = config.create_with_context(context).map_err(|error| not_created(&error))?;
        let (topic, group) = (address.topic.as_str().into(), options.group.clone());
        Ok(Self { consumer: Arc::new(consumer), topic, group, closed: AtomicBool::new(false) })
    }

    /// What a failure to read has prevented.
    fn action(&self) -> String {
        format!("read the topic `{}` as group `{}`", self.topic, self.group)
    }

    fn list(&self, offsets: &PartitionOffsets) -> KafkaResult<TopicPartitionList> {
        let mut list = TopicPartitionList::with_capacity(offsets.len());
        for (partition, offset) in offsets {
            list.add_partition_offset(&self.topic, *partition, Offset::Offset(*offset))?;
        }
        Ok(list)
    }

    /// Returns what is left of each partition that has records left, or has answers that are not committed.
    fn ranges(
        &self,
        address: &TopicAddress,
        options: &TopicOptions,
        answered: &PartitionOffsets,
        observer: &dyn Observer,
    ) -> Result<BTreeMap<i32, PartitionRange>, TopicError> {
        let (watch, topic, timeout) = (&self.consumer.context().watch, &*self.topic, options.timeout);
        // Each call handles one event.
        let serve = || (0..EVENTS).for_each(|_| drop(self.consumer.poll(Duration::ZERO)));
        let partitions = watch.partitions(self.consumer.client(), address, timeout, serve)?;
        let mut list = TopicPartitionList::with_capacity(partitions.len());
        for partition in &partitions {
            list.add_partition(topic, *partition);
        }
        let committed = watch.retry(timeout, &self.action(), serve, || {
            let found = self.consumer.committed_offsets(list.clone(), ATTEMPT)?;
            found.elements().iter().try_for_each(TopicPartitionListElem::error)?;
            Ok(found)
        })?;
        let mut ranges = BTreeMap::new();
        for partition in partitions {
            let query = || self.consumer.fetch_watermarks(topic, partition, ATTEMPT);
            let (first, end) = watch.retry(timeout, &self.action(), serve, query)?;
            let committed = committed.find_partition(topic, partition).and_then(|found| found.offset().to_raw());
            // Negative numbers stand for no offset.
            let committed = committed.filter(|offset| *offset >= 0);
            let wanted = committed.max(answered.get(&partition).copied());
            if let Some(offset) = wanted.filter(|offset| *offset > end) {
                let (group, topic) = (self.group.clone(), topic.to_owned());
                return Err(TopicError::BeyondEnd { group, topic, partition, offset, end });
            }
            if let Some(lost) = wanted.filter(|wanted| *wanted < first) {
                observer.warn(format_args!(
                    "the records {lost} to {} of partition {partition} of `{topic}` were deleted before they were read",
                    first - 1
                ));
            }
            let next = wanted.unwrap_or(first).max(first);
            if next < end || wanted > committed {
                ranges.insert(partition, PartitionRange { next, end });
            }
        }
        if let Some(unknown) = answered
            .keys()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .find(|found| committed.find_partition(topic, **found).is_none())
        {
            let (group, topic, offset) = (self.group.clone(), topic.to_owned(), answered[unknown]);
            return Err(TopicError::BeyondEnd { group, topic, partition: *unknown, offset, end: 0 });
        }
        Ok(ranges)
    }

    /// Commits on a thread of its own. librdkafka can commit in the background, too, but does not report the result to clients that
    /// receive events, as those of its Rust binding do.
    fn commit_on_thread(&self, list: TopicPartitionList, offsets: PartitionOffsets) -> Result<(), TopicError> {
        let consumer = Arc::clone(&self.consumer);
        consumer.context().is_committing.store(true, Ordering::Release);
        let commit = move || {
            let context = consumer.context();
            if let Err(error) = consumer.commit(&list, CommitMode::Sync) {
                *context.commit_failure.lock() = Some((error, offsets));
            }
            context.is_committing.store(false, Ordering::Release);
        };
        let spawned = std::thread::Builder::new().name("commit".to_owned()).spawn(commit);
        spawned
            .map(drop)
            .map_err(|error| TopicError::Failed { action: self.commit_action(), reason: error.to_string() })
    }

    fn commit_action(&self) -> String {
        format!("commit offsets of `{}` as group `{}`", self.topic, self.group)
    }

    fn commit_failed(&self, error: &KafkaError) -> TopicError {
        use RDKafkaErrorCode as Code;
        let is_in_use = matches!(
            error.rdkafka_error_code(),
            Some(
                Code::UnknownMemberId
                    | Code::IllegalGeneration
                    | Code::RebalanceInProgress
                    | Code::FencedInstanceId
                    | Code::StaleMemberEpoch
                    | Code::FencedMemberEpoch
            )
        );
        if is_in_use {
            return TopicError::GroupInUse { group: self.group.clone() };
        }
        failed(&self.commit_action(), error)
    }
}

impl OffsetCommits for OpenInput {
    fn commit(&self, offsets: &PartitionOffsets, wait: bool) -> Result<bool, TopicError> {
        let (context, start) = (self.consumer.context(), Instant::now());
        while context.is_committing.load(Ordering::Acquire) {
            if !wait {
                return Ok(false);
            }
            if start.elapsed() >= COMMIT_WAIT {
                break;
            }
            // The reader has ended, or its records are not needed any more.
            drop(self.consumer.poll(COMMIT_PAUSE));
            context.watch.waiting(start, BROKER_TIMEOUT);
        }
        let mut offsets = offsets.clone();
        if let Some((error, failed)) = context.commit_failure.lock().take() {
            if !is_transient(error.rdkafka_error_code()) {
                return Err(self.commit_failed(&error));
            }
            for (partition, offset) in failed {
                // Those that were answered since are larger.
                offsets.entry(partition).or_insert(offset);
            }
        }
        if offsets.is_empty() {
            return Ok(true);
        }
        let list = self.list(&offsets).map_err(|error| self.commit_failed(&error))?;
        if !wait {
            return self.commit_on_thread(list, offsets).map(|()| true);
        }
        loop {
            match self.consumer.commit(&list, CommitMode::Sync) {
                Ok(()) => return Ok(true),
                Err(error) if is_transient(error.rdkafka_error_code()) => {}
                Err(error) => return Err(self.commit_failed(&error)),
            }
            if start.elapsed() >= BROKER_TIMEOUT {
                return Err(context.watch.unreachable(BROKER_TIMEOUT));
            }
            context.watch.waiting(start, BROKER_TIMEOUT);
            crate::kafka::pause(super::PAUSE);
        }
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }
}
