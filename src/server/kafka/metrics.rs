//! The metrics of Kafka.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use crate::telemetry::metrics::{FINE_BUCKETS, REQUEST_BUCKETS, Registry};

/// The most topics, and the most partitions, that have series of their own. A regular expression may match any number.
const MAX_SERIES: usize = 1000;

/// The label of topics beyond [`MAX_SERIES`].
const OTHER: &str = "(other)";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PartitionLabels {
    topic: Arc<str>,
    partition: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    topic: Arc<str>,
    outcome: &'static str,
}

/// How a record ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordOutcome {
    Answered,
    DeadLetter,
}

/// The metrics of the consumer and its records. Clones share them.
#[derive(Debug, Clone)]
pub struct KafkaMetrics {
    lag: Family<PartitionLabels, Gauge>,
    records: Family<OutcomeLabels, Counter>,
    duration: Histogram,
    age: Histogram,
    in_flight: Gauge,
    partitions: Gauge,
    topics: Arc<Mutex<Vec<TopicCounters>>>,
    /// The partitions that have a series.
    lags: Arc<Mutex<HashSet<PartitionLabels>>>,
}

/// The counters of one topic, looked up once.
#[derive(Debug, Clone)]
struct TopicCounters {
    topic: Arc<str>,
    answered: Counter,
    dead_letters: Counter,
}

impl KafkaMetrics {
    /// Creates and registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            lag: Family::default(),
            records: Family::default(),
            duration: Histogram::new(FINE_BUCKETS),
            age: Histogram::new(REQUEST_BUCKETS.into_iter().chain([30.0, 60.0, 300.0, 1800.0, 3600.0, 86400.0])),
            in_flight: Gauge::default(),
            partitions: Gauge::default(),
            topics: Arc::default(),
            lags: Arc::default(),
        };
        registry.register(
            "kafka_consumer_lag",
            "Records of an assigned partition that are not committed yet",
            metrics.lag.clone(),
        );
        registry.register("kafka_records", "Records by outcome", metrics.records.clone());
        registry.register(
            "kafka_record_duration_seconds",
            "Time from reading a record until its answer is handed to the producer",
            metrics.duration.clone(),
        );
        registry.register(
            "kafka_record_age_seconds",
            "Time from writing a record until it is read",
            metrics.age.clone(),
        );
        registry.register(
            "kafka_records_in_flight",
            "Records that have been read and are not committed yet",
            metrics.in_flight.clone(),
        );
        registry.register(
            "kafka_assigned_partitions",
            "Partitions that the consumer group has assigned to this server",
            metrics.partitions.clone(),
        );
        metrics
    }

    /// Records a record that has been read.
    pub(super) fn read(&self, age: Option<Duration>) {
        if let Some(age) = age {
            self.age.observe(age.as_secs_f64());
        }
    }

    /// Records that what a record leaves has been handed to the producer.
    pub(super) fn processed(&self, duration: Duration) {
        self.duration.observe(duration.as_secs_f64());
    }

    /// Counts a record that has ended.
    pub(super) fn count(&self, topic: &Arc<str>, outcome: RecordOutcome) {
        let mut topics = self.topics.lock();
        let index = topics.iter().position(|counters| counters.topic == *topic).or_else(|| {
            // Records beyond the limit share the last entry.
            (topics.len() > MAX_SERIES).then_some(MAX_SERIES)
        });
        let index = index.unwrap_or_else(|| {
            let label = if topics.len() < MAX_SERIES { Arc::clone(topic) } else { OTHER.into() };
            let counter =
                |outcome| self.records.get_or_create_owned(&OutcomeLabels { topic: Arc::clone(&label), outcome });
            let (answered, dead_letters) = (counter("answered"), counter("dead_letter"));
            topics.push(TopicCounters { topic: label, answered, dead_letters });
            topics.len() - 1
        });
        match outcome {
            RecordOutcome::Answered => topics[index].answered.inc(),
            RecordOutcome::DeadLetter => topics[index].dead_letters.inc(),
        };
    }

    /// Sets how many records of a partition are not committed yet.
    pub(super) fn set_lag(&self, topic: &Arc<str>, partition: i32, lag: i64) {
        let mut lags = self.lags.lock();
        let labels = PartitionLabels { topic: Arc::clone(topic), partition };
        if lags.len() < MAX_SERIES || lags.contains(&labels) {
            self.lag.get_or_create(&labels).set(lag);
            lags.insert(labels);
        }
    }

    /// Removes the series of a partition that is not assigned any more.
    pub(super) fn forget(&self, topic: &Arc<str>, partition: i32) {
        let labels = PartitionLabels { topic: Arc::clone(topic), partition };
        self.lag.remove(&labels);
        self.lags.lock().remove(&labels);
    }

    pub(super) fn set_partitions(&self, count: usize) {
        self.partitions.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(super) fn set_in_flight(&self, count: usize) {
        self.in_flight.set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_topics_and_partitions_are_limited() {
        let mut registry = Registry::default();
        let metrics = KafkaMetrics::register(&mut registry);
        for index in 0..MAX_SERIES + 500 {
            let topic: Arc<str> = format!("t{index}").into();
            metrics.count(&topic, RecordOutcome::Answered);
            metrics.set_lag(&topic, 0, 1);
        }
        metrics.count(&"t0".into(), RecordOutcome::DeadLetter);
        metrics.forget(&"t1".into(), 0);
        metrics.set_lag(&"later".into(), 1, 2);
        let text = crate::telemetry::metrics::text(&registry).unwrap();
        let lines = |start: &str| text.lines().filter(|line| line.starts_with(start)).count();
        assert_eq!((lines("kafka_consumer_lag{"), lines("kafka_records_total{")), (MAX_SERIES, 2 * MAX_SERIES + 2));
        assert!(text.contains("kafka_records_total{topic=\"(other)\",outcome=\"answered\"} 500\n"), "{text}");
        assert!(text.contains("kafka_records_total{topic=\"t0\",outcome=\"dead_letter\"} 1\n"));
        assert!(text.contains("kafka_consumer_lag{topic=\"later\",partition=\"1\"} 2\n"));
    }
}
