//! Metrics of inference, the same for every transport.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::metrics::{FINE_BUCKETS, REQUEST_BUCKETS, Registry, SIZE_BUCKETS, Summary};

/// What stands in the `version` label when the caller asked for none, as in the original.
const NO_VERSION: &str = "None";

/// The `model` label of requests for models that do not exist. They share it, so that clients cannot make label sets
/// without end.
const UNKNOWN_MODEL: &str = "<unknown>";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
    version: String,
}

/// The inference metrics of all models.
#[derive(Debug, Clone)]
pub struct InferenceMetrics {
    success: Family<ModelLabels, Counter>,
    failure: Family<ModelLabels, Counter>,
    duration: Family<ModelLabels, Summary>,
    latency: Family<ModelLabels, Histogram, fn() -> Histogram>,
    cache_hits: Family<ModelLabels, Counter>,
    cache_misses: Family<ModelLabels, Counter>,
    batch_queue: Family<BatchLabels, Histogram, fn() -> Histogram>,
    batch_size: Family<BatchLabels, Histogram, fn() -> Histogram>,
    batch_rows: Family<BatchLabels, Histogram, fn() -> Histogram>,
    batch_failures: Family<BatchLabels, Counter>,
}

/// The labels of the original's metric of batching.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BatchLabels {
    model_name: String,
    model_version: String,
}

impl BatchLabels {
    fn new(model: &str, version: Option<&str>) -> Self {
        Self { model_name: model.to_owned(), model_version: version.unwrap_or_default().to_owned() }
    }
}

/// The metrics of one model's batches.
#[derive(Debug, Clone)]
pub struct BatchMetrics {
    queue: Histogram,
    size: Histogram,
    rows: Histogram,
    failures: Counter,
}

/// The inference metrics of one model, as asked for with or without its version.
#[derive(Debug, Clone)]
pub struct ModelMetrics {
    success: Counter,
    failure: Counter,
    duration: Summary,
    latency: Histogram,
    /// Hits and misses; nothing for a model whose answers are not cached.
    cache: Option<(Counter, Counter)>,
}

impl InferenceMetrics {
    /// Makes the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            success: Family::default(),
            failure: Family::default(),
            duration: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(FINE_BUCKETS)),
            cache_hits: Family::default(),
            cache_misses: Family::default(),
            batch_queue: Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
            batch_size: Family::new_with_constructor(|| Histogram::new(SIZE_BUCKETS)),
            batch_rows: Family::new_with_constructor(|| Histogram::new(SIZE_BUCKETS)),
            batch_failures: Family::default(),
        };
        registry.register("model_infer_request_success", "Model infer request success count", metrics.success.clone());
        registry.register("model_infer_request_failure", "Model infer request failure count", metrics.failure.clone());
        registry.register("model_infer_request_duration", "Model infer request duration", metrics.duration.clone());
        registry.register(
            "model_infer_request_duration_seconds",
            "Time from admission to the model's answer, in seconds",
            metrics.latency.clone(),
        );
        registry.register(
            "model_infer_cache_hits",
            "Requests answered from the cache or together with an identical one",
            metrics.cache_hits.clone(),
        );
        registry.register(
            "model_infer_cache_misses",
            "Requests that looked into the cache and asked the model",
            metrics.cache_misses.clone(),
        );
        metrics.register_batches(registry);
        metrics
    }

    fn register_batches(&self, registry: &mut Registry) {
        registry.register("batch_request_queue", "counter of request queue batch size", self.batch_queue.clone());
        registry.register("model_infer_batch_size", "Requests predicted together", self.batch_size.clone());
        registry.register("model_infer_batch_rows", "Rows predicted together", self.batch_rows.clone());
        registry.register(
            "model_infer_batch_failures",
            "Batches that failed and were predicted again request by request",
            self.batch_failures.clone(),
        );
    }

    /// Returns the metrics of a model's batches.
    pub fn of_batches(&self, model: &str, version: Option<&str>) -> BatchMetrics {
        let labels = BatchLabels::new(model, version);
        BatchMetrics {
            queue: self.batch_queue.get_or_create_owned(&labels),
            size: self.batch_size.get_or_create_owned(&labels),
            rows: self.batch_rows.get_or_create_owned(&labels),
            failures: self.batch_failures.get_or_create_owned(&labels),
        }
    }

    /// Returns the metrics of a model that callers ask for with this version, or with none.
    pub fn of_model(&self, model: &str, version: Option<&str>, cached: bool) -> ModelMetrics {
        let labels = ModelLabels { model: model.to_owned(), version: version.unwrap_or(NO_VERSION).to_owned() };
        ModelMetrics {
            success: self.success.get_or_create_owned(&labels),
            failure: self.failure.get_or_create_owned(&labels),
            duration: self.duration.get_or_create_owned(&labels),
            latency: self.latency.get_or_create_owned(&labels),
            cache: cached.then(|| {
                (self.cache_hits.get_or_create_owned(&labels), self.cache_misses.get_or_create_owned(&labels))
            }),
        }
    }

    /// Counts a request for a model that does not exist.
    pub fn count_unknown_model(&self) {
        let labels = ModelLabels { model: UNKNOWN_MODEL.to_owned(), version: NO_VERSION.to_owned() };
        self.failure.get_or_create(&labels).inc();
    }

    /// Forgets a model that has gone, so that its label sets go too.
    pub fn forget_model(&self, model: &str, version: Option<&str>) {
        let labels = ModelLabels { model: model.to_owned(), version: version.unwrap_or(NO_VERSION).to_owned() };
        self.success.remove(&labels);
        self.failure.remove(&labels);
        self.duration.remove(&labels);
        self.latency.remove(&labels);
        self.cache_hits.remove(&labels);
        self.cache_misses.remove(&labels);
        let labels = BatchLabels::new(model, version);
        self.batch_queue.remove(&labels);
        self.batch_size.remove(&labels);
        self.batch_rows.remove(&labels);
        self.batch_failures.remove(&labels);
    }
}

impl BatchMetrics {
    /// Records how many requests wait when another comes, as the original does.
    pub fn observe_queue(&self, waiting: usize) {
        self.queue.observe(count(waiting));
    }

    /// Records a batch that is sent.
    pub fn observe_batch(&self, requests: usize, rows: usize) {
        self.size.observe(count(requests));
        self.rows.observe(count(rows));
    }

    /// Counts a batch whose requests are predicted again one by one.
    pub fn count_failure(&self) {
        self.failures.inc();
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^52")]
fn count(number: usize) -> f64 {
    number as f64
}

impl ModelMetrics {
    /// Records one request that was answered or failed.
    pub fn record(&self, duration: Duration, success: bool) {
        if success { &self.success } else { &self.failure }.inc();
        self.duration.observe(duration);
        self.latency.observe(duration.as_secs_f64());
    }

    /// Records one request that looked into the cache.
    pub fn record_cache(&self, hit: bool) {
        if let Some((hits, misses)) = &self.cache {
            if hit { hits } else { misses }.inc();
        }
    }
}
