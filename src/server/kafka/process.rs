//! What happens with a record: attempts until it is answered, becomes a dead letter or is abandoned.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::poll;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::answer::{self, Answer, dead_letter_topic};
use super::errors::{RecordError, Verdict};
use super::outgoing::{Outgoing, RecordFailure};
use super::record::Record;
use super::session::Session;
use super::{Shared, TARGET};
use crate::server::panic_boundary;
use crate::settings::KafkaOrdering;
use crate::telemetry::traces::Span;

/// The waits after failures.
mod wait {
    use std::time::Duration;

    use crate::types::Backoff;

    /// After the model failed.
    pub(super) const RETRY: Backoff = Backoff { first: Duration::from_millis(200), longest: Duration::from_secs(10) };
    /// While the server or the model cannot answer.
    pub(super) const BUSY: Backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_secs(1) };
    /// A record that has waited this long is worth a line in the log.
    pub(super) const LONG: Duration = Duration::from_secs(10);
    /// Before a record is sent again that the brokers have rejected.
    pub(super) const REJECTED: Duration = Duration::from_secs(1);
    /// The longest wait before a record is sent again whose batch was too large.
    pub(super) const TOO_LARGE: Duration = Duration::from_millis(500);
    /// While the producer's queue is full.
    pub(super) const FULL: Duration = Duration::from_millis(5);
}

/// How often a record is sent that the brokers find too large. They reject all records of a batch together, so one is only known
/// to be too large when it has been rejected at several times.
const MAX_REJECTIONS: u32 = 3;

/// The lane of a record: its partition, and its key if keys are ordered.
pub(super) type Lane = (Arc<str>, i32, Option<Bytes>);

/// Processes records, each until it first has to wait; those that have to wait go on as tasks of their own.
pub(super) async fn run(session: Arc<Session>, records: Vec<Record>) {
    for record in records {
        let lane = match session.shared.options.settings.ordering {
            KafkaOrdering::None => None,
            KafkaOrdering::Partition => Some((Arc::clone(&record.source.topic), record.partition(), None)),
            // Records without a key have no order.
            KafkaOrdering::Key => {
                let of_key = |key| (Arc::clone(&record.source.topic), record.partition(), Some(key));
                record.key.clone().map(of_key)
            }
        };
        let record = match &lane {
            None => Some(record),
            Some(lane) => session.lanes.lock().enter(lane.clone(), record),
        };
        if let Some(record) = record {
            let mut work = Box::pin(run_lane(Arc::clone(&session), record, lane));
            if poll!(&mut work).is_pending() {
                tokio::spawn(work);
            }
        }
    }
}

/// Processes a record, and then those that wait for it.
async fn run_lane(session: Arc<Session>, record: Record, lane: Option<Lane>) {
    let mut next = Some(record);
    let mut has_waited = false;
    while let Some(record) = next.take() {
        process(&session, record, has_waited).await;
        has_waited = true;
        next = lane.as_ref().and_then(|lane| session.lanes.lock().next(lane));
    }
}

/// Processes a record until it has been handed to the producer, or abandoned.
///
/// A record that `has_waited` for others of its lane is not started if its partition is leaving: the lane may be long.
async fn process(session: &Arc<Session>, record: Record, has_waited: bool) {
    let source = Arc::clone(&record.source);
    let offset = record.offset;
    let started = Instant::now();
    let outgoing = if !(has_waited && source.leaving.is_cancelled()) && source.start(offset) {
        tokio::select! {
            biased;
            () = source.lost.cancelled() => None,
            outgoing = outgoing(&session.shared, record) => outgoing,
        }
    } else {
        None
    };
    if let Some(outgoing) = outgoing {
        session.shared.metrics.processed(started.elapsed());
        session.send(outgoing).await;
    } else {
        source.abandon(offset);
        session.in_flight.settle();
    }
}

/// Returns what a record leaves, or `None` if it has been abandoned.
async fn outgoing(shared: &Shared, record: Record) -> Option<Outgoing> {
    let headers = record.header_map();
    let mut span = shared.inference.traces().request(|| format!("{} process", record.topic()), &headers);
    let trace = span.as_ref().map(Span::context);
    let since = Instant::now();
    let (mut attempts, mut times_busy, mut is_logged) = (0, 0, false);
    // Whether this record may be the one that ends the processes of its model. Such records are tried one at a time, so that they
    // do not take others with them again and again.
    let mut is_suspect = false;
    loop {
        if attempts + times_busy > 0 && record.source.leaving.is_cancelled() {
            return None;
        }
        attempts += 1;
        let alone = if is_suspect { Some(shared.suspects.lock().await) } else { None };
        let attempt = answer::answer(shared, &record, &headers, trace);
        let result = panic_boundary::contain("kafka", attempt).await.map_err(RecordError::from).flatten();
        drop(alone);
        let error = match result {
            Ok(Answer { id, value, headers }) => {
                let topic = Arc::clone(&shared.topic_output);
                return Some(Outgoing::answer(topic, record, &id, value, headers));
            }
            Err(error) => error,
        };
        is_suspect |= error.is_worker_lost();
        let pause = match error.verdict() {
            Verdict::Abandon => return None,
            Verdict::Wait => {
                attempts -= 1;
                if !is_logged && since.elapsed() >= wait::LONG {
                    is_logged = true;
                    log_waiting(shared, &record, &error);
                }
                times_busy += 1;
                with_jitter(wait::BUSY.after(times_busy - 1))
            }
            Verdict::Retry if attempts < shared.options.settings.max_attempts.get() => {
                with_jitter(wait::RETRY.after(attempts - 1))
            }
            Verdict::Retry | Verdict::DeadLetter => {
                if let Some(span) = &mut span {
                    span.fail();
                }
                let (reason, status) = (error.to_string(), error.status().as_u16());
                log_dead_letter(shared, &record, status, &reason, attempts);
                let topic = dead_letter_topic(shared, record.topic());
                return Some(Outgoing::dead_letter(topic, record, RecordFailure { reason, status, attempts }));
            }
        };
        tokio::select! {
            () = record.source.leaving.cancelled() => return None,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Returns a wait less a jitter of up to 50 %.
fn with_jitter(wait: Duration) -> Duration {
    wait.mul_f64(1.0 - fastrand::f64() / 2.0)
}

fn log_waiting(shared: &Shared, record: &Record, error: &RecordError) {
    let (topic, partition, offset) = (record.topic(), record.partition(), record.offset);
    let summarize = |count| warn!(target: TARGET, "{count} more Kafka records are waiting.");
    if shared.log.allows("waiting", summarize) {
        warn!(target: TARGET, topic, partition, offset, reason = %error, "A Kafka record is waiting.");
    }
}

/// Logs a dead letter in the form of the original's errors.
fn log_dead_letter(shared: &Shared, record: &Record, status: u16, reason: &str, attempts: u32) {
    let (topic, partition, offset) = (record.topic(), record.partition(), record.offset);
    let summarize = |count| warn!(target: TARGET, "{count} more Kafka records became dead letters.");
    if shared.log.allows("dead letter", summarize) {
        warn!(target: TARGET, topic, partition, offset, attempts, "ERROR {status} - {reason}");
    }
}

impl Session {
    /// Hands a record to the producer, or to the next transaction.
    pub(super) async fn send(self: &Arc<Self>, outgoing: Outgoing) {
        if self.is_transactional {
            let source = Arc::clone(&outgoing.record.source);
            let offset = outgoing.record.offset;
            source.complete(offset, Some(outgoing));
            self.in_flight.settle();
            return;
        }
        let mut next = Some(outgoing);
        while let Some(outgoing) = next.take() {
            if outgoing.record.source.lost.is_cancelled() {
                return;
            }
            let Err((error, outgoing)) = self.producer.send(outgoing) else { return };
            match error {
                KafkaError::MessageProduction(code) if code == super::QUEUE_FULL => {
                    next = Some(outgoing);
                    tokio::time::sleep(wait::FULL).await;
                }
                error => next = self.after_rejection(&error, outgoing).await,
            }
        }
    }

    /// Returns what to send in place of a record that the producer or the brokers have rejected, after a pause.
    pub(super) async fn after_rejection(&self, error: &KafkaError, mut outgoing: Outgoing) -> Option<Outgoing> {
        if super::is_too_large(error) {
            outgoing.rejections += 1;
            if outgoing.rejections < MAX_REJECTIONS {
                tokio::time::sleep(wait::TOO_LARGE.mul_f64(fastrand::f64())).await;
                return Some(outgoing);
            }
            let topic = dead_letter_topic(&self.shared, outgoing.record.topic());
            return Some(outgoing.smaller(topic));
        }
        if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
            self.fail(format!("the producer failed: {error}"));
        }
        if self.has_ended() {
            return None;
        }
        let topic = &outgoing.topic;
        let summarize = |count| warn!(target: TARGET, "Kafka rejected {count} more records; they are sent again.");
        if self.shared.log.allows("rejected", summarize) {
            warn!(target: TARGET, topic = %topic, reason = %error, "Kafka rejected a record; it is sent again.");
        }
        debug!(target: TARGET, topic = %topic, offset = outgoing.record.offset, reason = %error, "Rejected by Kafka.");
        tokio::time::sleep(wait::REJECTED).await;
        Some(outgoing)
    }
}
