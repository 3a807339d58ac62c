//! A session: one consumer with one producer, from joining the group until it is left or something fails for good.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::assignment::Assignment;
use super::consumer::{self, RecordConsumer};
use super::in_flight::InFlight;
use super::lanes::Lanes;
use super::process::Lane;
use super::producer::RecordProducer;
use super::record::Record;
use super::{KafkaServerError, Shared, committer, transactions};
use crate::types::{HIDDEN, is_secret_property};

const TOPICS_FOUND: &str = "all topics exist now";

/// Why a session cannot go on. Another one takes its place.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct SessionFailure(String);

impl SessionFailure {
    /// Ends a session because a topic that was missing exists now.
    pub(super) fn topics_found() -> Self {
        Self(TOPICS_FOUND.to_owned())
    }

    /// Reports whether the next session is expected to go on at once.
    pub(super) fn is_expected(&self) -> bool {
        self.0 == TOPICS_FOUND
    }

    pub(super) fn new(what: &str, error: &KafkaError) -> Self {
        Self(format!("{what}: {error}"))
    }
}

/// The state of a session that its threads and tasks share.
pub(super) struct Session {
    pub(super) shared: Shared,
    pub(super) in_flight: InFlight,
    pub(super) assignment: Assignment,
    pub(super) lanes: Mutex<Lanes<Lane, Record>>,
    pub(super) producer: RecordProducer,
    /// Whether answers wait for a transaction.
    pub(super) is_transactional: bool,
    /// Set when the session has ended: nothing more is sent or committed. Holds the reason if it has failed.
    ended: OnceLock<Option<String>>,
}

impl Session {
    /// Reports whether the session has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Ends the session because something failed for good.
    pub(super) fn fail(&self, reason: String) {
        // The first reason counts.
        let _ = self.ended.set(Some(reason));
    }

    fn end(&self) {
        // It may have failed.
        let _ = self.ended.set(None);
    }

    fn failure(&self) -> Result<(), SessionFailure> {
        self.ended.get().cloned().flatten().map_or(Ok(()), |reason| Err(SessionFailure(reason)))
    }
}

/// The clients of a session that has not begun.
pub(super) struct Clients {
    session: Arc<Session>,
    consumer: RecordConsumer,
    /// Cancelled when the session is to stop reading.
    stop: CancellationToken,
}

impl Clients {
    /// Creates the clients, which checks their configuration. Must be called in a tokio runtime.
    pub(super) fn new(
        shared: &Shared,
        consumer: &ClientConfig,
        producer: &ClientConfig,
    ) -> Result<Self, KafkaServerError> {
        let invalid = |error: KafkaError| KafkaServerError::Invalid {
            reason: reason(&error, &shared.options.settings.properties()),
        };
        let connection = shared.connection.clone();
        let in_flight = InFlight::new(shared.options.settings.max_in_flight.get());
        let stop = CancellationToken::new();
        let assignment = Assignment::new(in_flight.clone(), stop.clone(), shared.metrics.clone());
        let (joined, flag) = (assignment.clone(), shared.clone());
        let changed = move || flag.set_joined(joined.has_joined());
        let metrics = shared.metrics.clone();
        let consumer = RecordConsumer::new(consumer, assignment.clone(), connection.clone(), metrics.clone(), changed)
            .map_err(invalid)?;
        let producer = RecordProducer::new(producer, in_flight.clone(), metrics, connection).map_err(invalid)?;
        let session = Arc::new(Session {
            shared: shared.clone(),
            in_flight,
            assignment,
            lanes: Mutex::default(),
            producer,
            is_transactional: shared.options.settings.delivery == super::KafkaDelivery::ExactlyOnce,
            ended: OnceLock::new(),
        });
        session.producer.attach(&session);
        Ok(Self { session, consumer, stop })
    }

    /// Reads, answers and commits until `stop`, and then until the records in flight have been answered.
    pub(super) async fn run(self, stop: &CancellationToken) -> Result<(), SessionFailure> {
        let Self { session, consumer, stop: session_stop } = self;
        let _cancel_with_caller = session_stop.clone().drop_guard();
        let runtime = Handle::current();
        let (sender, ended) = oneshot::channel();
        let threads = {
            let (session, session_stop) = (Arc::clone(&session), session_stop.clone());
            move || {
                let result = run_threads(&session, consumer, &runtime, &session_stop);
                session.shared.set_joined(false);
                // Fails only if the server does not wait for it.
                let _ = sender.send(result);
            }
        };
        let thread = std::thread::Builder::new().name("kafka".to_owned()).spawn(threads);
        thread.map_err(|error| SessionFailure(format!("cannot start a thread: {error}")))?;
        let mut ended = ended;
        let result = tokio::select! {
            result = &mut ended => result,
            () = stop.cancelled() => {
                session_stop.cancel();
                ended.await
            }
        };
        // The sender is dropped without a result only by a panic.
        result.unwrap_or_else(|_| Err(SessionFailure("a thread panicked".to_owned())))
    }
}

/// Runs the consumer on this thread and the committer on another one.
fn run_threads(
    session: &Arc<Session>,
    consumer: RecordConsumer,
    runtime: &Handle,
    stop: &CancellationToken,
) -> Result<(), SessionFailure> {
    if session.is_transactional {
        transactions::begin(session, stop)?;
    }
    let finished = CancellationToken::new();
    std::thread::scope(|scope| {
        let committing = scope.spawn(|| {
            committer::run(session, &consumer, &finished).unwrap_or_else(|failure| session.fail(failure.to_string()));
        });
        consumer::run(session, &consumer, runtime, stop).unwrap_or_else(|failure| session.fail(failure.to_string()));
        finished.cancel();
        if committing.join().is_err() {
            session.fail("a thread panicked".to_owned());
        }
    });
    session.end();
    session.assignment.clear();
    // Leaves the group.
    drop(consumer);
    session.failure()
}

/// Returns why librdkafka rejects a configuration.
fn reason(error: &KafkaError, properties: &BTreeMap<String, String>) -> String {
    let text = match error {
        KafkaError::ClientConfig(_, description, property, value) => {
            let value = if is_secret_property(property) { HIDDEN } else { value };
            format!("`{property}` is `{value}`: {description}")
        }
        KafkaError::ClientCreation(description) => description.clone(),
        error => error.to_string(),
    };
    // Some of librdkafka's texts have several lines, and name a property but not its value.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let named = properties.iter().find(|(name, value)| text.contains(*name) && !text.contains(*value));
    named.map_or_else(
        || text.clone(),
        |(name, value)| format!("{text} (`{name}` is `{}`)", if is_secret_property(name) { HIDDEN } else { value }),
    )
}
