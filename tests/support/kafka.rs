//! A real Kafka broker, which `tests/kafka/broker` runs, and what tests do with its topics.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, Headers, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::{ClientConfig, ClientContext};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{pause, repository_path, skipped};

/// How long a test waits for Kafka before it gives up: several tests start brokers at once, on two cores.
pub(crate) const KAFKA_PATIENCE: Duration = Duration::from_mins(2);

/// How long to wait before asking Kafka again.
const BETWEEN_QUESTIONS: Duration = Duration::from_millis(20);

/// The user of the broker, and the password.
pub(crate) const KAFKA_USER: (&str, &str) = ("mlserver", "opensesame");

/// The listeners of a broker, in the order in which `tests/kafka/broker` prints their addresses.
#[derive(Clone, Copy)]
pub(crate) enum KafkaListener {
    Plaintext,
    SaslPlaintext,
    Ssl,
    SaslSsl,
    /// TLS that requires a certificate of the client.
    Mutual,
}

/// A running broker, which is killed on drop, with its records.
pub(crate) struct Broker {
    process: Option<Child>,
    /// The addresses of its listeners.
    addresses: Vec<String>,
    options: Vec<String>,
    data: tempfile::TempDir,
}

/// A record that is to be produced, or that was consumed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KafkaRecord {
    /// The partition; when producing, `None` means the one that the key selects.
    pub(crate) partition: Option<i32>,
    /// `None` before it was produced.
    pub(crate) offset: Option<i64>,
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) value: Option<Vec<u8>>,
    pub(crate) headers: Vec<(String, Option<Vec<u8>>)>,
    /// Milliseconds since 1970; when producing, `None` means now.
    pub(crate) timestamp: Option<i64>,
}

impl KafkaRecord {
    pub(crate) fn new(value: impl Into<Vec<u8>>) -> Self {
        Self { value: Some(value.into()), ..Self::default() }
    }

    pub(crate) fn json(value: &Value) -> Self {
        Self::new(value.to_string())
    }

    pub(crate) fn key(self, key: impl Into<Vec<u8>>) -> Self {
        Self { key: Some(key.into()), ..self }
    }

    pub(crate) fn with_header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_owned(), Some(value.into())));
        self
    }

    pub(crate) fn partition(self, partition: i32) -> Self {
        Self { partition: Some(partition), ..self }
    }

    pub(crate) fn timestamp(self, milliseconds: i64) -> Self {
        Self { timestamp: Some(milliseconds), ..self }
    }

    /// Returns the last header with this name as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().rev().find(|(given, _)| given == name)?;
        Some(str::from_utf8(value.as_deref()?).unwrap())
    }

    pub(crate) fn key_text(&self) -> Option<&str> {
        self.key.as_deref().map(|key| str::from_utf8(key).unwrap())
    }

    /// Returns the value as JSON.
    #[track_caller]
    pub(crate) fn value_json(&self) -> Value {
        serde_json::from_slice(self.value.as_deref().unwrap()).unwrap()
    }

    fn received(message: &impl Message) -> Self {
        let headers = message.headers().into_iter().flat_map(Headers::iter);
        Self {
            partition: Some(message.partition()),
            offset: Some(message.offset()),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers.map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec))).collect(),
            timestamp: message.timestamp().to_millis(),
        }
    }
}

impl Broker {
    /// Returns the broker that all tests share, or `None` if this machine cannot run one. Tests create topics and groups of their own.
    pub(crate) fn shared() -> Option<&'static Self> {
        static SHARED: OnceLock<Option<Broker>> = OnceLock::new();
        SHARED.get_or_init(Self::own).as_ref()
    }

    /// Starts a broker for a test that stops it, or `None` if this machine cannot run one.
    pub(crate) fn own() -> Option<Self> {
        Self::with_options(&[])
    }

    /// Starts a broker with options of `tests/kafka/broker run`.
    pub(crate) fn with_options(options: &[&str]) -> Option<Self> {
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut broker =
            Self { process: None, addresses: Vec::new(), options, data: tempfile::tempdir_in(folder()).unwrap() };
        broker.launch().then_some(broker)
    }

    /// Starts two brokers of one cluster, whose internal topics have two replicas. The first one is the controller, too: only the
    /// second one may end.
    pub(crate) fn cluster() -> Option<(Self, Self)> {
        let replicas = ["default", "offsets.topic", "transaction.state.log"];
        let properties = replicas.map(|kind| format!("{kind}.replication.factor=2"));
        let options: Vec<_> = properties.iter().flat_map(|property| ["--property", property]).collect();
        let first = Self::with_options(&options)?;
        let controller = fs::read_to_string(first.data.path().join("controller")).unwrap();
        let joins = ["--node", "2", "--controller", controller.trim()];
        let second = Self::with_options(&[options.as_slice(), &joins].concat())?;
        Some((first, second))
    }

    /// Returns the address of the listener without security.
    pub(crate) fn address(&self) -> &str {
        self.listener(KafkaListener::Plaintext)
    }

    pub(crate) fn listener(&self, listener: KafkaListener) -> &str {
        &self.addresses[listener as usize]
    }

    /// Stops the broker as an operator does.
    pub(crate) fn stop(&mut self) {
        self.end(Signal::TERM);
    }

    /// Ends the broker without a chance to write anything.
    pub(crate) fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    /// Starts the broker again, on the same ports and with the same records.
    pub(crate) fn start_again(&mut self) {
        assert!(self.process.is_none() && self.launch());
    }

    /// Suspends or resumes the process (`STOP`, `CONT`): clients stay connected and get no answers.
    pub(crate) fn signal(&self, signal: Signal) {
        let process = fs::read_to_string(self.data.path().join("pid")).unwrap();
        kill_process(Pid::from_raw(process.trim().parse().unwrap()).unwrap(), signal).unwrap();
    }

    fn end(&mut self, signal: Signal) {
        self.signal(signal);
        self.process.take().unwrap().wait().unwrap();
    }

    /// Runs the script until the broker answers. Returns `false` if this machine cannot run a broker.
    fn launch(&mut self) -> bool {
        let mut command = Command::new(repository_path("tests/kafka/broker"));
        command.arg("run").arg(folder()).arg("--data").arg(self.data.path()).args(&self.options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut why = String::new();
            process.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            let code = process.wait().unwrap().code();
            let must_run = std::env::vars_os().any(|(name, _)| name == "CI");
            assert!(code == Some(3) && !must_run, "the broker did not start ({code:?}): {why}");
            skipped(&format!("no Kafka broker: {}", why.trim()));
            return false;
        }
        self.addresses = line.split_whitespace().map(str::to_owned).collect();
        self.process = Some(process);
        true
    }

    /// Returns the configuration of a client of this broker.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.address());
        config
    }

    /// Returns a new name that begins with `prefix`, without creating a topic. It serves for groups, too.
    pub(crate) fn unique(prefix: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        format!("{prefix}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Creates a topic with a new name that begins with `prefix`, and returns the name.
    #[track_caller]
    pub(crate) fn topic(&self, prefix: &str, partitions: i32) -> String {
        let name = Self::unique(prefix);
        self.create_topic(&name, partitions, 1);
        name
    }

    /// Creates a topic, and returns once it has its partitions.
    #[track_caller]
    pub(crate) fn create_topic(&self, name: &str, partitions: i32, replicas: i32) {
        self.create(&NewTopic::new(name, partitions, TopicReplication::Fixed(replicas)));
        let consumer: BaseConsumer = self.client().create().unwrap();
        let has_leaders = || {
            let metadata = consumer.fetch_metadata(Some(name), KAFKA_PATIENCE).unwrap();
            let found = metadata.topics()[0].partitions();
            found.len() == usize::try_from(partitions).unwrap() && found.iter().all(|partition| partition.leader() >= 0)
        };
        kafka_wait_until("the topic has no leaders", has_leaders);
    }

    #[track_caller]
    pub(crate) fn create(&self, topic: &NewTopic<'_>) {
        let admin: AdminClient<DefaultClientContext> = self.client().create().unwrap();
        let options = AdminOptions::new().operation_timeout(Some(KAFKA_PATIENCE)).request_timeout(Some(KAFKA_PATIENCE));
        let created = block_on(admin.create_topics([topic], &options)).unwrap();
        assert!(created.iter().all(Result::is_ok), "{created:?}");
    }

    /// Produces records in this order, and returns once the broker has them.
    #[track_caller]
    pub(crate) fn produce(&self, topic: &str, records: &[KafkaRecord]) {
        let mut config = self.client();
        config.set("enable.idempotence", "true").set("linger.ms", "5").set("queue.buffering.max.messages", "1000000");
        // The topic decides.
        config.set("message.max.bytes", "100000000");
        let context = Deliveries::default();
        let producer: BaseProducer<Deliveries> = config.create_with_context(context).unwrap();
        for record in records {
            producer.send(record.for_producer(topic)).map_err(|(error, _)| error).unwrap();
        }
        producer.flush(KAFKA_PATIENCE).unwrap();
        let failed = producer.context().failed.lock();
        assert!(failed.is_empty(), "{failed:?}");
    }

    /// Consumes all committed records of a topic, from its beginning: waits until there are `count`, and fails if there are more at
    /// that time. The records of a partition are in their order.
    #[track_caller]
    pub(crate) fn consume(&self, topic: &str, count: usize) -> Vec<KafkaRecord> {
        let records = self.consume_at_least(topic, count, "read_committed");
        let mut places: BTreeMap<_, Vec<usize>> = BTreeMap::new();
        for (place, record) in records.iter().enumerate() {
            let value = String::from_utf8_lossy(record.value.as_deref().unwrap_or_default());
            places.entry((record.key_text(), value)).or_default().push(place);
        }
        let repeated = || places.iter().filter(|(_, places)| places.len() > 1).collect::<Vec<_>>();
        let shown = || if repeated().is_empty() { places.iter().collect() } else { repeated() };
        assert_eq!(
            records.len(),
            count,
            "in {topic}, with their places, those that are repeated if any is: {:?}",
            shown()
        );
        records
    }

    /// Consumes all records of a topic from its beginning, waiting until there are `count`. `isolation` is `read_committed` or
    /// `read_uncommitted`; the latter includes records of open and aborted transactions.
    #[track_caller]
    pub(crate) fn consume_at_least(&self, topic: &str, count: usize, isolation: &str) -> Vec<KafkaRecord> {
        let mut config = self.client();
        config.set("group.id", Self::unique("tests")).set("enable.auto.commit", "false");
        config.set("enable.partition.eof", "true").set("isolation.level", isolation).set("fetch.wait.max.ms", "100");
        // A topic may not exist yet, and is not created by those who look for it.
        let consumer: BaseConsumer = config.create().unwrap();
        let deadline = Instant::now() + KAFKA_PATIENCE;
        let mut assigned = TopicPartitionList::new();
        let partitions = loop {
            let partitions = self.partitions(topic);
            if partitions > 0 || count == 0 {
                break partitions;
            }
            assert!(Instant::now() < deadline, "there is no topic {topic}");
            pause(BETWEEN_QUESTIONS);
        };
        for partition in 0..partitions {
            assigned.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&assigned).unwrap();
        let mut records = Vec::new();
        let mut at_end = HashSet::new();
        while records.len() < count || at_end.len() < usize::try_from(partitions).unwrap() {
            assert!(Instant::now() < deadline, "{} of {count} records in {topic}: {records:#?}", records.len());
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => {
                    at_end.remove(&message.partition());
                    records.push(KafkaRecord::received(&message));
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => drop(at_end.insert(partition)),
                // librdkafka tries again by itself.
                Some(Err(_)) | None => {}
            }
        }
        records
    }

    /// Returns the number of partitions of a topic; 0 if it does not exist.
    #[track_caller]
    pub(crate) fn partitions(&self, topic: &str) -> i32 {
        let consumer: BaseConsumer = self.client().set("allow.auto.create.topics", "false").create().unwrap();
        let metadata = consumer.fetch_metadata(Some(topic), KAFKA_PATIENCE).unwrap();
        metadata.topics().iter().map(|topic| i32::try_from(topic.partitions().len()).unwrap()).sum()
    }

    /// Returns the offset after the last record of each partition.
    #[track_caller]
    pub(crate) fn end_offsets(&self, topic: &str) -> Vec<i64> {
        let consumer: BaseConsumer = self.client().create().unwrap();
        let ends = |partition| consumer.fetch_watermarks(topic, partition, KAFKA_PATIENCE).unwrap().1;
        (0..self.partitions(topic)).map(ends).collect()
    }

    /// Returns the offsets that a group has committed, for each partition of a topic.
    #[track_caller]
    pub(crate) fn committed(&self, group: &str, topic: &str) -> Vec<Option<i64>> {
        let consumer: BaseConsumer = self.client().set("group.id", group).create().unwrap();
        self.committed_as_seen_by(&consumer, topic)
    }

    fn committed_as_seen_by(&self, consumer: &BaseConsumer, topic: &str) -> Vec<Option<i64>> {
        let mut asked = TopicPartitionList::new();
        asked.add_partition_range(topic, 0, self.partitions(topic) - 1);
        // While the group has no coordinator yet, or a transaction of it is about to be complete.
        let deadline = Instant::now() + KAFKA_PATIENCE;
        loop {
            match consumer.committed_offsets(asked.clone(), KAFKA_PATIENCE) {
                Ok(committed) => {
                    let offset = |offset| if let Offset::Offset(offset) = offset { Some(offset) } else { None };
                    return committed.elements().iter().map(|element| offset(element.offset())).collect();
                }
                Err(error) => assert!(Instant::now() < deadline, "no committed offsets: {error}"),
            }
            pause(BETWEEN_QUESTIONS);
        }
    }

    /// Waits until a group has committed all records that a topic has now. Empty partitions count as committed.
    #[track_caller]
    pub(crate) fn wait_until_committed(&self, group: &str, topic: &str) {
        let ends = self.end_offsets(topic);
        let consumer: BaseConsumer = self.client().set("group.id", group).create().unwrap();
        let is_committed = || {
            let committed = self.committed_as_seen_by(&consumer, topic);
            committed.iter().zip(&ends).all(|(committed, end)| committed.unwrap_or(0) >= *end)
        };
        kafka_wait_until(&format!("{group} has not committed {ends:?} of {topic}"), is_committed);
    }

    /// Returns how many members a group has, or `None` while its members are being assigned partitions.
    #[track_caller]
    pub(crate) fn members(&self, group: &str) -> Option<usize> {
        let consumer: BaseConsumer = self.client().create().unwrap();
        let groups = consumer.fetch_group_list(Some(group), KAFKA_PATIENCE).unwrap();
        let found = groups.groups().iter().find(|found| found.name() == group)?;
        (found.state() == "Stable").then(|| found.members().len())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.stdin.take());
            let _ = process.wait();
        }
    }
}

impl KafkaRecord {
    fn for_producer<'a>(&'a self, topic: &'a str) -> BaseRecord<'a, [u8], [u8]> {
        let mut record = BaseRecord::to(topic);
        record.key = self.key.as_deref();
        record.payload = self.value.as_deref();
        record.partition = self.partition;
        record.timestamp = self.timestamp;
        let header = |headers: OwnedHeaders, (name, value): &(String, Option<Vec<u8>>)| {
            headers.insert(Header { key: name, value: value.as_deref() })
        };
        record.headers(self.headers.iter().fold(OwnedHeaders::new(), header))
    }
}

/// Keeps what could not be delivered.
#[derive(Default)]
struct Deliveries {
    failed: Mutex<Vec<KafkaError>>,
}

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, _)) = result {
            self.failed.lock().push(error.clone());
        }
    }
}

/// Waits for something in Kafka, which takes longer than anything in the server.
#[track_caller]
pub(crate) fn kafka_wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + KAFKA_PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        pause(BETWEEN_QUESTIONS);
    }
}

/// Where Kafka itself is kept, beside what cargo builds.
fn folder() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("kafka");
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}
