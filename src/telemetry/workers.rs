//! Metrics of worker processes, and metrics that the code of models records in them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tracing::warn;

use super::exposition::Expositions;
use super::metrics::REQUEST_BUCKETS;

/// The maximum number of metrics of models, and of label sets of each. Further ones are ignored.
pub(super) const MAX_METRICS: usize = 1000;
pub(super) const MAX_SERIES: usize = 10_000;

/// A process that runs models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerReport {
    pub name: String,
    /// `starting`, `running`, `draining`, or `stopped` until it is started again.
    pub state: &'static str,
    pub pid: Option<u32>,
    /// The names of the models that it has loaded.
    pub models: Vec<String>,
    /// As of the last measurement, which is at most some seconds ago.
    pub resident_bytes: Option<u64>,
    /// How many processes of this worker have ended since its pool was started.
    pub ended: u64,
    pub last_end: Option<WorkerEndReport>,
}

/// The last end of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerEndReport {
    /// In seconds since 1970.
    pub at: u64,
    /// The reason, with the last line that the process wrote, which may contain secrets.
    pub reason: String,
}

/// Lists the processes that run models.
pub trait WorkerSource: fmt::Debug + Send + Sync {
    fn reports(&self) -> Vec<WorkerReport>;
}

/// The metrics of workers. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct WorkerMetrics {
    restarts: Family<RestartLabels, Counter>,
    resident: Family<WorkerLabels, Gauge>,
    queue: Option<Histogram>,
    user: Arc<Mutex<BTreeMap<String, UserMetric>>>,
    expositions: Expositions,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RestartLabels {
    pool: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabels {
    worker: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, EncodeLabelSet)]
struct ModelLabels {
    model_name: String,
    model_version: String,
}

#[derive(Debug)]
struct UserMetric {
    help: String,
    series: BTreeMap<ModelLabels, Histogram>,
}

impl WorkerMetrics {
    /// Creates and registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let queue = Histogram::new(REQUEST_BUCKETS);
        let metrics = Self { queue: Some(queue.clone()), ..Self::default() };
        registry.register("parallel_request_queue", "counter of request queue size for workers", queue);
        registry.register("worker_restarts", "Workers that ended, by pool and reason", metrics.restarts.clone());
        registry.register("worker_resident_memory_bytes", "Resident memory of each worker", metrics.resident.clone());
        registry.register_collector(Box::new(UserMetrics(Arc::clone(&metrics.user))));
        metrics
    }

    /// Counts a worker that ended.
    pub fn count_restart(&self, pool: &str, reason: &'static str) {
        self.restarts.get_or_create(&RestartLabels { pool: pool.to_owned(), reason }).inc();
    }

    /// Records a worker's resident memory.
    pub fn set_resident(&self, worker: &str, bytes: u64) {
        let labels = WorkerLabels { worker: worker.to_owned() };
        self.resident.get_or_create(&labels).set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Returns a worker's resident memory, if it has been measured.
    pub fn resident(&self, worker: &str) -> Option<u64> {
        let resident = self.resident.get(&WorkerLabels { worker: worker.to_owned() })?;
        u64::try_from(resident.get()).ok()
    }

    /// Removes the metrics of a worker that has ended.
    pub fn forget_worker(&self, worker: &str) {
        self.resident.remove(&WorkerLabels { worker: worker.to_owned() });
        self.expositions.forget(worker);
    }

    /// Returns the metrics that the code of models records.
    pub const fn expositions(&self) -> &Expositions {
        &self.expositions
    }

    /// Records the number of calls of a pool, as the original does for each call.
    #[expect(clippy::cast_precision_loss, reason = "there are far fewer calls than 2^52")]
    pub fn observe_queue(&self, calls: usize) {
        if let Some(queue) = &self.queue {
            queue.observe(calls as f64);
        }
    }

    /// Adds values that the code of models has observed: name, description, model, version and value of each.
    pub fn observe(&self, observed: Vec<(String, String, String, String, f64)>) {
        let mut user = self.user.lock();
        for (name, help, model_name, model_version, value) in observed {
            if !user.contains_key(&name) {
                if user.len() >= MAX_METRICS || !is_name(&name) {
                    warn!(
                        metric = name,
                        model = model_name,
                        "Ignoring a metric of the model: its name is invalid, or there are too many metrics."
                    );
                    continue;
                }
                user.insert(name.clone(), UserMetric { help, series: BTreeMap::new() });
            }
            let Some(metric) = user.get_mut(&name) else { continue };
            let labels = ModelLabels { model_name, model_version };
            if metric.series.len() < MAX_SERIES || metric.series.contains_key(&labels) {
                metric.series.entry(labels).or_insert_with(|| Histogram::new(REQUEST_BUCKETS)).observe(value);
            }
        }
    }
}

/// Returns whether the name is valid for a Prometheus metric.
pub(super) fn is_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == ':') && name.chars().all(legal)
}

#[derive(Debug)]
struct UserMetrics(Arc<Mutex<BTreeMap<String, UserMetric>>>);

impl Collector for UserMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, metric) in &*self.0.lock() {
            let kind = prometheus_client::metrics::MetricType::Histogram;
            let mut family = encoder.encode_descriptor(name, &metric.help, None, kind)?;
            for (labels, histogram) in &metric.series {
                histogram.encode(family.encode_family(labels)?)?;
            }
        }
        Ok(())
    }
}
