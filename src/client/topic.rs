//! Kafka topics as input and output: addresses, options, records and errors.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::lines::InputLine;
use crate::types::LONGEST_TOPIC;

const SCHEME: &str = "kafka://";
/// The port of brokers whose address has none.
const PORT: u16 = 9092;

/// A topic, and brokers that know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicAddress {
    /// As `HOST:PORT`, separated by commas.
    pub servers: String,
    pub topic: String,
}

/// How to connect to topics.
#[derive(Clone, PartialEq, Eq)]
pub struct TopicOptions {
    /// The consumer group whose committed offsets are the progress of a run.
    pub group: String,
    /// librdkafka's properties.
    pub properties: BTreeMap<String, String>,
    /// How long to wait for the brokers before the run starts.
    pub timeout: Duration,
}

/// Shows no values of properties, as some are secret.
impl fmt::Debug for TopicOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&String> = self.properties.keys().collect();
        f.debug_struct("TopicOptions")
            .field("group", &self.group)
            .field("properties", &names)
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// The offset of the next record, by partition.
pub type PartitionOffsets = BTreeMap<i32, i64>;

/// Why a topic cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    #[error("this executable was built without Kafka support: install a release, or build it with the feature `kafka`")]
    WithoutKafka,
    #[error("{reason} (set by --kafka-config or MLSERVER_INFER_KAFKA_CONFIG)")]
    Configuration { reason: String },
    #[error(
        "no connection to Kafka at `{servers}` within {seconds} s: {reason}; check the address, and set `security.protocol` with \
         --kafka-config if the brokers require TLS or SASL"
    )]
    Unreachable { servers: String, seconds: u64, reason: String },
    #[error(
        "cannot connect to Kafka at `{servers}`: {reason}; check `security.protocol`, `sasl.*` and `ssl.*` of --kafka-config"
    )]
    Refused { servers: String, reason: String },
    #[error("the topic `{topic}` does not exist at `{servers}`: create it, or check its name")]
    UnknownTopic { servers: String, topic: String },
    #[error("no permission to {action}: {reason}; the brokers have to grant it to the user of --kafka-config")]
    Denied { action: String, reason: String },
    #[error(
        "the group `{group}` has active members, such as a server: stop them, or choose another group with --kafka-group"
    )]
    GroupInUse { group: String },
    #[error(
        "the group `{group}` has read up to offset {offset} of partition {partition} of `{topic}`, which ends at {end}: if the topic \
         was created again, choose another group with --kafka-group"
    )]
    BeyondEnd { group: String, topic: String, partition: i32, offset: i64, end: i64 },
    #[error(
        "records of partition {partition} of `{topic}` were deleted before they were read; repeat the command to continue with those \
         that are left"
    )]
    Deleted { topic: String, partition: i32 },
    #[error("the answer is larger than `{topic}` allows: raise `max.message.bytes` of the topic")]
    TooLarge { topic: String },
    #[error("cannot {action}: {reason}")]
    Failed { action: String, reason: String },
}

impl TopicAddress {
    /// Reads the address of a topic. Returns `None` for the path of a file.
    ///
    /// # Errors
    ///
    /// Fails if it begins with `kafka://`, but is no address.
    pub fn of_path(path: &Path) -> Option<Result<Self, String>> {
        let text = path.to_str()?.strip_prefix(SCHEME)?;
        Some(Self::parse(text))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let expected = "expected kafka://HOST:PORT/TOPIC";
        if text.contains('@') {
            // The text may contain a password.
            return Err(format!(
                "{expected}, without a user name; set `sasl.username` and `sasl.password` as properties"
            ));
        }
        let wrong = |reason: &str| format!("`{SCHEME}{text}`: {reason}");
        let (servers, topic) = text.split_once('/').ok_or_else(|| wrong(expected))?;
        let servers = servers.split(',').map(|server| with_port(server).ok_or_else(|| wrong(expected)));
        let servers = servers.collect::<Result<Vec<_>, _>>()?.join(",");
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if topic.is_empty() || topic.len() > LONGEST_TOPIC || !topic.chars().all(is_valid) {
            return Err(wrong("the name of a topic consists of letters, digits, `.`, `_` and `-`"));
        }
        Ok(Self { servers, topic: topic.to_owned() })
    }

    /// Reports whether this may be the topic at another address.
    pub fn is_same(&self, other: &Self) -> bool {
        self.topic == other.topic
            && self.servers.split(',').any(|server| other.servers.split(',').any(|it| it == server))
    }
}

impl fmt::Display for TopicAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.servers, self.topic)
    }
}

/// Returns `HOST:PORT` with the default port if there is none, or `None` for anything else.
fn with_port(server: &str) -> Option<String> {
    let is_host = |host: &str| {
        let name = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        name.map_or_else(|| host.chars().all(is_name), |name| name.parse::<std::net::Ipv6Addr>().is_ok())
            && !host.is_empty()
    };
    if is_host(server) {
        return Some(format!("{server}:{PORT}"));
    }
    let (host, port) = server.rsplit_once(':')?;
    (is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0)).then(|| server.to_owned())
}

/// Where a record was read from, and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordOrigin {
    pub(super) partition: i32,
    pub(super) offset: i64,
    pub(super) key: Option<Vec<u8>>,
}

/// Where the records of a batch were read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RecordOrigins {
    pub(super) topic: Arc<str>,
    pub(super) records: Vec<RecordOrigin>,
}

/// The value of a record, which is a request.
#[derive(Debug)]
pub(super) struct RecordRow {
    /// The id that the record's header or its key give to the request.
    pub(super) id: Option<String>,
    pub(super) line: InputLine,
}

/// Records that were read together.
#[derive(Debug)]
pub(super) struct RecordBatch {
    pub(super) rows: Vec<RecordRow>,
    pub(super) origins: RecordOrigins,
    /// How many offsets were passed, including those without a record.
    pub(super) offsets: u64,
    /// How many bytes the records take in memory.
    pub(super) memory: u64,
}

/// Reads the records of a topic up to the end that it had when the run started.
pub(super) trait RecordReader: Send {
    /// Returns the next records, at most `max_rows` of them, or `None` at the end. A batch whose text reaches `max_text` ends.
    fn next(&mut self, max_rows: usize, max_text: usize) -> Result<Option<RecordBatch>, TopicError>;
}

/// Commits the offsets of answered records to the group.
pub(super) trait OffsetCommits: Send + Sync {
    /// Commits offsets. Without `wait`, failures are reported by a later call, and nothing is committed while an earlier commit has
    /// no answer. Returns whether these offsets were taken.
    fn commit(&self, offsets: &PartitionOffsets, wait: bool) -> Result<bool, TopicError>;

    /// Stops the reader.
    fn close(&self);
}

/// An answer that becomes a record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct OutputRecord {
    /// The row's id, unless it is empty.
    pub(super) id: Option<String>,
    pub(super) key: Option<Vec<u8>>,
    /// The partition of the record that was answered, if that has no key.
    pub(super) partition: Option<i32>,
}

/// The answers that have been handed over together, until all of them have been delivered.
#[derive(Debug, Clone, Default)]
pub(super) struct Delivery {
    /// `None` if they were written at once.
    pub(super) open: Option<Arc<AtomicUsize>>,
}

impl Delivery {
    pub(super) fn is_done(&self) -> bool {
        self.open.as_ref().is_none_or(|open| open.load(Ordering::Acquire) == 0)
    }
}

/// Writes records to a topic.
pub(super) trait RecordWriter: Send {
    /// Hands over one record for each line, in order.
    fn write(&mut self, lines: &[u8], records: &[OutputRecord]) -> Result<Delivery, TopicError>;

    /// Returns the failure of a delivery, if there was one, and reports what `waiting` records wait for.
    fn check(&self) -> Result<(), TopicError>;

    /// Notified when a delivery is done or has failed.
    fn delivered(&self) -> Arc<Notify>;

    /// Returns the limit on a record, in bytes.
    fn limit(&self) -> usize;
}

/// A topic that was opened for reading.
pub(super) struct OpenTopic {
    pub(super) reader: Box<dyn RecordReader>,
    pub(super) commits: Arc<dyn OffsetCommits>,
    /// The number of offsets up to the end.
    pub(super) offsets: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_address_is_read_from_a_path() {
        let read = |text: &str| TopicAddress::of_path(Path::new(text));
        for (text, servers, topic) in [
            ("kafka://h:1/a.b_c-D", "h:1", "a.b_c-D"),
            ("kafka://h/t", "h:9092", "t"),
            ("kafka://a.example:1,b/t", "a.example:1,b:9092", "t"),
            ("kafka://[::1]:5,[::2]/t", "[::1]:5,[::2]:9092", "t"),
        ] {
            let address = read(text).unwrap().unwrap();
            assert_eq!((address.servers.as_str(), address.topic.as_str()), (servers, topic));
            assert_eq!(read(&address.to_string()), Some(Ok(address)));
        }
        for wrong in ["", "h:1", "h:1/", "/t", "h:0/t", "h:x/t", "h:1,/t", "h:1/a/b", "h:1/a b", "h:1/^t", "::1/t"] {
            let error = read(&format!("kafka://{wrong}")).unwrap().unwrap_err();
            assert!(error.starts_with(&format!("`kafka://{wrong}`: ")), "{error}");
        }
        let error = read("kafka://user:hush@h:1/t").unwrap().unwrap_err();
        assert!(!error.contains("hush"), "{error}");
        for file in ["t", "-", "kafka:/h/t", "/kafka://h/t", "http://h/t"] {
            assert_eq!(read(file), None, "{file}");
        }
    }

    #[test]
    fn topic_address_is_compared_by_server_and_topic() {
        let address = |text: &str| TopicAddress::parse(text).unwrap();
        assert!(address("a,b/t").is_same(&address("b:9092/t")));
        assert!(!address("a/t").is_same(&address("b/t")));
        assert!(!address("a/t").is_same(&address("a/u")));
    }

    #[test]
    fn topic_options_hide_all_values() {
        let properties = [("x.y".to_owned(), "hush".to_owned())].into();
        let options = TopicOptions { group: "g".to_owned(), properties, timeout: Duration::from_secs(1) };
        let shown = format!("{options:?}");
        assert!(shown.contains("x.y") && !shown.contains("hush"), "{shown}");
    }
}
