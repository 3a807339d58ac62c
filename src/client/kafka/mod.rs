//! Topics on librdkafka: what the reader and the writer share.

mod reader;
mod writer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::client::{Client, ClientContext};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::metadata::{MetadataPartition, MetadataTopic};

use super::topic::{TopicAddress, TopicError, TopicOptions};
use crate::kafka::{ConnectionError, KafkaConnection};
use crate::remote::{Observer, Verbosity};

pub(super) use reader::TopicReader;
pub(super) use writer::TopicWriter;

/// How long a run waits for brokers that have gone.
const BROKER_TIMEOUT: Duration = Duration::from_mins(5);
/// How long to wait before a warning says so.
const QUIET: Duration = Duration::from_secs(3);
/// The timeout of one attempt to query the brokers.
const ATTEMPT: Duration = Duration::from_secs(1);
/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a topic may take to appear: brokers may create it on demand.
const CREATION: Duration = Duration::from_secs(5);

/// Watches the connection of a client.
struct BrokerWatch {
    servers: String,
    observer: Arc<dyn Observer>,
    state: Mutex<WatchState>,
}

#[derive(Default)]
struct WatchState {
    /// Why the last connection has failed.
    reason: Option<String>,
    /// Why a broker has rejected the client, which another attempt does not change.
    refused: Option<String>,
    /// The user knows that the run waits.
    warned: bool,
}

impl BrokerWatch {
    fn new(servers: &str, observer: Arc<dyn Observer>) -> Self {
        Self { servers: servers.to_owned(), observer, state: Mutex::default() }
    }

    /// Records an error of librdkafka, which it handles itself, if it can.
    fn error(&self, error: &KafkaError, reason: &str) {
        let mut state = self.state.lock();
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL) => {
                state.refused.get_or_insert_with(|| reason.to_owned());
            }
            // It has only the number of brokers.
            Some(RDKafkaErrorCode::AllBrokersDown) if state.reason.is_some() => {}
            _ => state.reason = Some(reason.to_owned()),
        }
        drop(state);
        self.trace(format_args!("Kafka: {reason}"));
    }

    fn log(&self, facility: &str, message: &str) {
        self.trace(format_args!("Kafka: {facility}: {message}"));
    }

    fn trace(&self, message: std::fmt::Arguments<'_>) {
        if self.observer.verbosity() >= Verbosity::Verbose {
            self.observer.trace(message);
        }
    }

    /// Warns once that the run waits for a broker, if it does so for a while because of a lost connection.
    fn waiting(&self, since: Instant, limit: Duration) {
        let mut state = self.state.lock();
        let Some(reason) = state.reason.clone().filter(|_| !state.warned && since.elapsed() >= QUIET) else { return };
        state.warned = true;
        drop(state);
        let (servers, seconds) = (&self.servers, limit.as_secs());
        self.observer.warn(format_args!("no connection to Kafka at `{servers}`: {reason}; waiting up to {seconds} s"));
    }

    /// Records that a broker has answered.
    fn answered(&self) {
        let mut state = self.state.lock();
        (state.reason, state.refused) = (None, None);
        if std::mem::take(&mut state.warned) {
            drop(state);
            self.observer.trace(format_args!("connected to Kafka at `{}` again", self.servers));
        }
    }

    /// Returns the error of a connection that no broker accepts.
    fn refused(&self) -> Option<TopicError> {
        let reason = self.state.lock().refused.clone()?;
        Some(TopicError::Refused { servers: self.servers.clone(), reason })
    }

    fn unreachable(&self, time: Duration) -> TopicError {
        let state = self.state.lock();
        let reason = state.refused.clone().or_else(|| state.reason.clone());
        let reason = reason.unwrap_or_else(|| "no response".to_owned());
        TopicError::Unreachable { servers: self.servers.clone(), seconds: time.as_secs(), reason }
    }

    /// Repeats a query until the brokers answer. `serve` handles the client's events.
    fn retry<T>(
        &self,
        timeout: Duration,
        action: &str,
        serve: impl Fn(),
        mut query: impl FnMut() -> Result<T, KafkaError>,
    ) -> Result<T, TopicError> {
        let start = Instant::now();
        loop {
            match query() {
                Ok(found) => {
                    self.answered();
                    return Ok(found);
                }
                Err(error) if is_transient(error.rdkafka_error_code()) => {}
                Err(error) => return Err(failed(action, &error)),
            }
            serve();
            if let Some(refused) = self.refused() {
                return Err(refused);
            }
            if start.elapsed() >= timeout {
                return Err(self.unreachable(timeout));
            }
            self.waiting(start, timeout);
            crate::kafka::pause(PAUSE);
        }
    }

    /// Returns the partitions of a topic.
    fn partitions<C: ClientContext>(
        &self,
        client: &Client<C>,
        address: &TopicAddress,
        timeout: Duration,
        serve: impl Fn(),
    ) -> Result<Vec<i32>, TopicError> {
        let (start, topic, action) = (Instant::now(), &address.topic, format!("look up the topic `{}`", address.topic));
        loop {
            let metadata = self.retry(timeout, &action, &serve, || client.fetch_metadata(Some(topic), ATTEMPT))?;
            let found = metadata.topics().iter().find(|found| found.name() == topic);
            let error = found.and_then(MetadataTopic::error).map(RDKafkaErrorCode::from);
            let partitions: Vec<i32> =
                found.map(|found| found.partitions().iter().map(MetadataPartition::id).collect()).unwrap_or_default();
            match error {
                None if !partitions.is_empty() => return Ok(partitions),
                None | Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                    if start.elapsed() >= CREATION {
                        let (servers, topic) = (address.servers.clone(), topic.clone());
                        return Err(TopicError::UnknownTopic { servers, topic });
                    }
                }
                Some(code) if is_transient(Some(code)) => {
                    if start.elapsed() >= timeout {
                        return Err(failed(&action, &KafkaError::MetadataFetch(code)));
                    }
                }
                Some(code) => return Err(failed(&action, &KafkaError::MetadataFetch(code))),
            }
            crate::kafka::pause(PAUSE);
        }
    }
}

/// Returns the configuration of a client. `defaults` are properties that users may override.
fn client_config(
    address: &TopicAddress,
    options: &TopicOptions,
    defaults: &[(&str, &str)],
) -> Result<ClientConfig, TopicError> {
    let properties = defaults.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let mut properties: BTreeMap<String, String> = properties.collect();
    properties.extend(options.properties.clone());
    let connection = KafkaConnection { servers: address.servers.clone(), properties };
    let mut config = connection.client_config().map_err(|error| configuration(&error))?;
    config.set_log_level(RDKafkaLogLevel::Info);
    Ok(config)
}

fn configuration(error: &ConnectionError) -> TopicError {
    let reason = match error {
        ConnectionError::Reserved { property, .. } => {
            let instead = match *property {
                "bootstrap.servers" | "metadata.broker.list" => {
                    "the address names the brokers: `kafka://HOST:PORT/TOPIC`"
                }
                "group.id" => "use `--kafka-group`",
                _ => "runs read from the committed offsets of their group, and commit answered records",
            };
            format!("the Kafka property `{property}` cannot be set: {instead}")
        }
        ConnectionError::Invalid { .. } => error.to_string(),
    };
    TopicError::Configuration { reason }
}

/// Returns the error of a client that cannot be created.
fn not_created(error: &KafkaError) -> TopicError {
    let reason = match error {
        // The value may be secret.
        KafkaError::ClientConfig(_, reason, property, _) => format!("{reason} (`{property}`)"),
        KafkaError::ClientCreation(reason) => reason.clone(),
        error => error.to_string(),
    };
    configuration(&ConnectionError::Invalid { reason })
}

/// Reports whether an error may go away by itself.
fn is_transient(code: Option<RDKafkaErrorCode>) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Some(
            Code::BrokerTransportFailure
                | Code::AllBrokersDown
                | Code::Resolve
                | Code::OperationTimedOut
                | Code::RequestTimedOut
                | Code::TimedOutQueue
                | Code::NodeUpdate
                | Code::WaitingForCoordinator
                | Code::InProgress
                | Code::PreviousInProgress
                | Code::Retry
                | Code::LeaderNotAvailable
                | Code::NotLeaderForPartition
                | Code::BrokerNotAvailable
                | Code::ReplicaNotAvailable
                | Code::NetworkException
                | Code::CoordinatorLoadInProgress
                | Code::CoordinatorNotAvailable
                | Code::NotCoordinator
                | Code::KafkaStorageError
                | Code::FencedLeaderEpoch
                | Code::UnknownLeaderEpoch
                | Code::OffsetNotAvailable
                | Code::WaitCache
                | Code::UnstableOffsetCommit
                // Reported apart from these, as global errors.
                | Code::Authentication
                | Code::SSL
        )
    )
}

/// Converts an error that ends the run.
fn failed(action: &str, error: &KafkaError) -> TopicError {
    use RDKafkaErrorCode as Code;
    let code = error.rdkafka_error_code();
    let (action, reason) = (action.to_owned(), code.map_or_else(|| error.to_string(), |code| code.to_string()));
    match code {
        Some(
            Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::TransactionalIdAuthorizationFailed,
        ) => TopicError::Denied { action, reason },
        _ => TopicError::Failed { action, reason },
    }
}
