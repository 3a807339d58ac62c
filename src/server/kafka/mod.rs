//! Requests from Kafka: a consumer in a group, the path of all requests, and a producer of answers.
//!
//! A record is committed when its answer has been delivered, so that none is lost: at least once, or exactly once with
//! transactions. What cannot be answered becomes a dead letter.
//!
//! Three threads serve a [session](session): librdkafka's events and records (`consumer`), commits (`committer`), and delivery
//! reports (`producer`). Records are processed as tasks. Headers and values are those of the original.

mod answer;
mod assignment;
mod committer;
mod connection_log;
mod consumer;
mod errors;
mod in_flight;
mod lanes;
mod metrics;
mod offsets;
mod outgoing;
mod process;
mod producer;
mod record;
mod session;
mod transactions;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};
use uuid::Uuid;

pub use metrics::KafkaMetrics;

use super::cloud_events::CloudEvents;
use super::model_headers::ForwardedHeaders;
use crate::compute::ComputePool;
use crate::inference::Inference;
use crate::kafka::{ConnectionError, KafkaConnection, pause};
use crate::settings::{DEAD_LETTERS, KafkaDelivery, KafkaOffsetReset, KafkaSettings};
use crate::telemetry::limit::LogLimiter;
use crate::types::Backoff;
use crate::types::json::NonFinite;
use connection_log::ConnectionLog;
use session::Clients;

/// The target of the log lines: the original's logger.
const TARGET: &str = "mlserver.kafka";

/// The producer's queue is full.
const QUEUE_FULL: RDKafkaErrorCode = RDKafkaErrorCode::QueueFull;

/// The waits before a new session after one that failed.
const RESTARTS: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(30) };

/// librdkafka's properties of consumers that users can override.
const CONSUMER: [(&str, &str); 7] = [
    // Partitions move one by one, and the others go on meanwhile.
    ("partition.assignment.strategy", "cooperative-sticky"),
    // Records that are fetched ahead, in KiB: memory is bounded whatever the backlog.
    ("queued.max.messages.kbytes", "16384"),
    // How long to wait before more is fetched when that much has been, in milliseconds. The default of a second is as long as
    // thousands of records take.
    ("fetch.queue.backoff.ms", "10"),
    ("allow.auto.create.topics", "true"),
    // How late new topics and partitions are found, in milliseconds.
    ("topic.metadata.refresh.interval.ms", "10000"),
    ("statistics.interval.ms", "2000"),
    ("session.timeout.ms", "10000"),
];

/// librdkafka's properties of producers that users can override.
const PRODUCER: [(&str, &str); 6] = [
    ("enable.idempotence", "true"),
    // Answers wait for a broker however long that takes.
    ("message.timeout.ms", "0"),
    ("queue.buffering.max.kbytes", "65536"),
    // The brokers decide how large a record may be.
    ("message.max.bytes", "100000000"),
    // Topics limit batches (`max.message.bytes`, 1 MiB by default), so a batch has to be smaller than most topics allow.
    ("batch.size", "262144"),
    ("linger.ms", "5"),
];

/// How long a transaction of a server that was killed may block readers, in milliseconds.
const TRANSACTION_TIMEOUT: &str = "15000";

/// The configuration of the Kafka server.
#[derive(Debug)]
pub struct KafkaOptions {
    pub settings: KafkaSettings,
    /// The most requests in flight in the server, on all transports. Records take at most half of them.
    pub max_requests: NonZeroUsize,
    /// The name in the headers of answers.
    pub server_name: String,
    pub forward_headers: ForwardedHeaders,
    pub non_finite: NonFinite,
}

/// The Kafka server cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum KafkaServerError {
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error("invalid Kafka configuration: {reason}")]
    Invalid { reason: String },
}

/// What all sessions share. Clones are cheap.
#[derive(Clone)]
struct Shared {
    inference: Inference,
    compute: ComputePool,
    cloud_events: Arc<CloudEvents>,
    options: Arc<KafkaOptions>,
    topic_output: Arc<str>,
    metrics: KafkaMetrics,
    log: LogLimiter,
    connection: ConnectionLog,
    joined: Arc<AtomicBool>,
    /// The requests that records may have in flight, so that a backlog does not take all slots of the server.
    slots: Arc<Semaphore>,
    /// Held by the record that is tried alone, because the process that ran it has ended.
    suspects: Arc<tokio::sync::Mutex<()>>,
}

impl Shared {
    /// Sets whether the consumer is a member of its group.
    fn set_joined(&self, joined: bool) {
        if self.joined.swap(joined, Ordering::AcqRel) != joined {
            self.inference.registry().announce_change();
        }
    }
}

/// A consumer and a producer whose configuration is valid.
pub struct KafkaServer {
    shared: Shared,
    consumer: ClientConfig,
    producer: ClientConfig,
}

impl KafkaServer {
    /// Checks the configuration. `joined` is kept true while the consumer is a member of its group. Must be called in a tokio
    /// runtime.
    ///
    /// # Errors
    ///
    /// Fails if librdkafka rejects a property. That the brokers cannot be reached is no error: they may come later.
    pub fn new(
        inference: Inference,
        compute: ComputePool,
        metrics: KafkaMetrics,
        joined: Arc<AtomicBool>,
        options: KafkaOptions,
    ) -> Result<Self, KafkaServerError> {
        let (consumer, producer) = (consumer_config(&options.settings)?, producer_config(&options.settings)?);
        let slots = options.max_requests.get().div_ceil(2).min(Semaphore::MAX_PERMITS);
        let shared = Shared {
            connection: ConnectionLog::new(&options.settings.servers),
            slots: Arc::new(Semaphore::new(slots)),
            suspects: Arc::default(),
            inference,
            compute,
            cloud_events: Arc::new(CloudEvents::new(&options.server_name).with_forwarded(options.forward_headers)),
            topic_output: options.settings.topic_output.as_str().into(),
            options: Arc::new(options),
            metrics,
            log: LogLimiter::default(),
            joined,
        };
        // The clients of the first session are other ones, which connect when the models have been loaded.
        Clients::new(&shared, &consumer, &producer)?;
        Ok(Self { shared, consumer, producer })
    }

    /// Serves until `stop`, and then until the records in flight have been answered.
    pub async fn serve(self, stop: CancellationToken) {
        // A member of the group without models would hold partitions that others could serve.
        if stop.run_until_cancelled(self.models_loaded()).await.is_none() {
            return;
        }
        let mut failures = 0;
        while !stop.is_cancelled() {
            let session = Clients::new(&self.shared, &self.consumer, &self.producer);
            let started = std::time::Instant::now();
            let failure = match session {
                Ok(clients) => match clients.run(&stop).await {
                    Ok(()) => continue,
                    Err(failure) if failure.is_expected() => {
                        info!(target: TARGET, "All Kafka topics exist now.");
                        continue;
                    }
                    Err(failure) => failure.to_string(),
                },
                Err(error) => error.to_string(),
            };
            if started.elapsed() > RESTARTS.longest {
                failures = 0;
            }
            let wait = RESTARTS.after(failures);
            failures += 1;
            error!(target: TARGET, "The Kafka server failed: {failure}. It starts again in {} s.", wait.as_secs());
            // Ends early at the stop.
            let _ = stop.run_until_cancelled(tokio::time::sleep(wait)).await;
        }
        info!(target: TARGET, "Left the Kafka consumer group.");
    }

    /// Waits until no model that the server was started with is being loaded.
    async fn models_loaded(&self) {
        let registry = self.shared.inference.registry();
        let mut changes = registry.changes();
        while registry.is_loading() {
            // Fails only if the registry is gone.
            if changes.changed().await.is_err() {
                return;
            }
        }
    }
}

fn consumer_config(settings: &KafkaSettings) -> Result<ClientConfig, KafkaServerError> {
    let mut config = client_config(settings, &CONSUMER)?;
    let reset = match settings.auto_offset_reset {
        KafkaOffsetReset::Earliest => "earliest",
        KafkaOffsetReset::Latest => "latest",
        KafkaOffsetReset::Error => "error",
    };
    config.set("group.id", &settings.group_id);
    config.set("enable.auto.commit", "false");
    config.set("enable.auto.offset.store", "false");
    config.set("auto.offset.reset", reset);
    if settings.topic_input.iter().any(|topic| topic.starts_with('^')) {
        // Answers and dead letters never become requests, whatever the expression matches.
        let dead_letters = settings.topic_dead_letters.as_deref().map_or(format!("^.*{DEAD_LETTERS}$"), exactly);
        config.set("topic.blacklist", format!("{},{dead_letters}", exactly(&settings.topic_output)));
    }
    Ok(config)
}

/// Returns a regular expression of one topic, whose name may contain full stops.
fn exactly(topic: &str) -> String {
    format!("^{}$", topic.replace('.', "\\."))
}

fn producer_config(settings: &KafkaSettings) -> Result<ClientConfig, KafkaServerError> {
    let mut config = client_config(settings, &PRODUCER)?;
    if settings.delivery == KafkaDelivery::ExactlyOnce {
        let random = || format!("mlserver-{}-{}", settings.group_id, Uuid::new_v4());
        config.set("transactional.id", settings.transactional_id.clone().unwrap_or_else(random));
        config.set("enable.idempotence", "true");
        if config.get("transaction.timeout.ms").is_none() {
            config.set("transaction.timeout.ms", TRANSACTION_TIMEOUT);
        }
        // No record may outlive its transaction.
        config.remove("message.timeout.ms");
    }
    Ok(config)
}

/// Returns how clients connect with these settings.
pub fn connection(settings: &KafkaSettings) -> KafkaConnection {
    KafkaConnection { servers: settings.servers.clone(), properties: settings.properties() }
}

/// Returns the configuration of a client: the connection's, and defaults that it does not override.
fn client_config(settings: &KafkaSettings, defaults: &[(&str, &str)]) -> Result<ClientConfig, KafkaServerError> {
    let connection = connection(settings);
    let mut config = connection.client_config()?;
    for (name, value) in defaults {
        if !connection.properties.contains_key(*name) {
            config.set(*name, *value);
        }
    }
    Ok(config)
}

/// Reports whether a record is larger than the brokers or the client allow.
fn is_too_large(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidMessageSize)
    )
}
