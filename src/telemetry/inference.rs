//! Inference metrics, which are the same for every transport.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::history::ModelTotals;
use super::latency::{LatencyHistogram, SizeHistogram};
use super::metrics::{FINE_BUCKETS, REQUEST_BUCKETS, Registry, SIZE_BUCKETS, Summary};
use crate::types::TokenUsage;

/// The `version` label of requests without a version, as in the original.
const NO_VERSION: &str = "None";

/// The `model` label of requests for models that do not exist. They share it, so that clients cannot create an unlimited
/// number of label sets.
const UNKNOWN_MODEL: &str = "<unknown>";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: String,
    version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DropLabels {
    model: String,
    reason: &'static str,
    version: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    kind: &'static str,
    model: String,
    version: String,
}

/// What tokens are for: the text that a model is given, and the text that it makes.
const TOKEN_KINDS: [&str; 2] = ["prompt", "completion"];

/// The reasons for which requests are dropped.
const DROP_REASONS: [&str; 12] = [
    "max_in_flight",
    "max_request_bytes_in_flight",
    "max_streams",
    "stream_idle_timeout",
    "queue_requests",
    "queue_bytes",
    "queue_target",
    "queue_timeout",
    "predict_timeout",
    "request_timeout",
    "deadline",
    "client_disconnected",
];

/// The inference metrics of all models.
#[derive(Debug, Clone)]
pub struct InferenceMetrics {
    success: Family<ModelLabels, Counter>,
    failure: Family<ModelLabels, Counter>,
    duration: Family<ModelLabels, Summary>,
    latency: Family<ModelLabels, LatencyHistogram>,
    cache_hits: Family<ModelLabels, Counter>,
    cache_misses: Family<ModelLabels, Counter>,
    queue_time: Family<ModelLabels, Histogram, fn() -> Histogram>,
    predict_time: Family<ModelLabels, Histogram, fn() -> Histogram>,
    waiting: Family<ModelLabels, Gauge>,
    in_flight: Family<ModelLabels, Gauge>,
    dropped: Family<DropLabels, Counter>,
    first_chunk: Family<ModelLabels, Histogram, fn() -> Histogram>,
    tokens: Family<TokenLabels, Counter>,
    batch_queue: Family<BatchLabels, Histogram, fn() -> Histogram>,
    batch_size: Family<BatchLabels, SizeHistogram>,
    batch_rows: Family<BatchLabels, Histogram, fn() -> Histogram>,
    batch_failures: Family<BatchLabels, Counter>,
}

impl ModelLabels {
    fn dropped(&self, reason: &'static str) -> DropLabels {
        DropLabels { model: self.model.clone(), reason, version: self.version.clone() }
    }

    fn tokens(&self, kind: &'static str) -> TokenLabels {
        TokenLabels { kind, model: self.model.clone(), version: self.version.clone() }
    }
}

/// The labels of the original's metric for batching.
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
    size: SizeHistogram,
    rows: Histogram,
    failures: Counter,
}

/// The inference metrics of one model, for requests either with or without its version.
#[derive(Debug, Clone)]
pub struct ModelMetrics {
    success: Counter,
    failure: Counter,
    duration: Summary,
    latency: LatencyHistogram,
    queue_time: Histogram,
    predict_time: Histogram,
    waiting: Gauge,
    in_flight: Gauge,
    labels: ModelLabels,
    dropped: Family<DropLabels, Counter>,
    first_chunk: Family<ModelLabels, Histogram, fn() -> Histogram>,
    tokens: Family<TokenLabels, Counter>,
    /// Whether the model has been unloaded, so that its label sets must not be created again.
    retired: Arc<AtomicBool>,
    /// Hits and misses; `None` if the responses of the model are not cached.
    cache: Option<(Counter, Counter)>,
}

impl InferenceMetrics {
    /// Creates and registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            success: Family::default(),
            failure: Family::default(),
            duration: Family::default(),
            latency: Family::default(),
            cache_hits: Family::default(),
            cache_misses: Family::default(),
            queue_time: Family::new_with_constructor(|| Histogram::new(FINE_BUCKETS)),
            predict_time: Family::new_with_constructor(|| Histogram::new(FINE_BUCKETS)),
            waiting: Family::default(),
            in_flight: Family::default(),
            dropped: Family::default(),
            first_chunk: Family::new_with_constructor(|| Histogram::new(FINE_BUCKETS)),
            tokens: Family::default(),
            batch_queue: Family::new_with_constructor(|| Histogram::new(REQUEST_BUCKETS)),
            batch_size: Family::default(),
            batch_rows: Family::new_with_constructor(|| Histogram::new(SIZE_BUCKETS)),
            batch_failures: Family::default(),
        };
        registry.register("model_infer_request_success", "Model infer request success count", metrics.success.clone());
        registry.register("model_infer_request_failure", "Model infer request failure count", metrics.failure.clone());
        registry.register("model_infer_request_duration", "Model infer request duration", metrics.duration.clone());
        registry.register(
            "model_infer_request_duration_seconds",
            "Time from admission to the response of the model, in seconds",
            metrics.latency.clone(),
        );
        registry.register(
            "model_infer_cache_hits",
            "Requests answered from the cache or coalesced with an identical one",
            metrics.cache_hits.clone(),
        );
        registry.register(
            "model_infer_cache_misses",
            "Requests that were not in the cache and were predicted",
            metrics.cache_misses.clone(),
        );
        metrics.register_load(registry);
        metrics.register_batches(registry);
        metrics
    }

    fn register_load(&self, registry: &mut Registry) {
        registry.register(
            "model_infer_queue_seconds",
            "Time from admission to the start of the prediction, in seconds",
            self.queue_time.clone(),
        );
        registry.register(
            "model_infer_predict_seconds",
            "Duration of predictions, in seconds",
            self.predict_time.clone(),
        );
        registry.register("model_infer_waiting", "Requests that wait for their prediction", self.waiting.clone());
        registry.register("model_infer_in_flight", "Requests in flight", self.in_flight.clone());
        registry.register(
            "model_infer_dropped",
            "Requests dropped because of overload, a timeout or a disconnected client, by reason",
            self.dropped.clone(),
        );
        registry.register(
            "model_infer_first_chunk_seconds",
            "Time from admission to the first piece of a reply that is sent while it is made, in seconds",
            self.first_chunk.clone(),
        );
        registry.register(
            "model_infer_tokens",
            "Tokens of prompts and completions, as models report them",
            self.tokens.clone(),
        );
    }

    fn register_batches(&self, registry: &mut Registry) {
        registry.register("batch_request_queue", "counter of request queue batch size", self.batch_queue.clone());
        registry.register("model_infer_batch_size", "Requests predicted together", self.batch_size.clone());
        registry.register("model_infer_batch_rows", "Rows predicted together", self.batch_rows.clone());
        registry.register(
            "model_infer_batch_failures",
            "Batches that failed and were retried in parts",
            self.batch_failures.clone(),
        );
    }

    /// Returns how many requests were predicted together on average. `None` if the model does not batch, or has not yet.
    pub fn mean_batch(&self, model: &str, version: Option<&str>) -> Option<f64> {
        self.batch_size.get(&BatchLabels::new(model, version))?.mean()
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

    /// Returns the metrics of a model, for requests with this version or with none.
    pub fn of_model(&self, model: &str, version: Option<&str>, cached: bool) -> ModelMetrics {
        let labels = ModelLabels { model: model.to_owned(), version: version.unwrap_or(NO_VERSION).to_owned() };
        ModelMetrics {
            success: self.success.get_or_create_owned(&labels),
            failure: self.failure.get_or_create_owned(&labels),
            duration: self.duration.get_or_create_owned(&labels),
            latency: self.latency.get_or_create_owned(&labels),
            queue_time: self.queue_time.get_or_create_owned(&labels),
            predict_time: self.predict_time.get_or_create_owned(&labels),
            waiting: self.waiting.get_or_create_owned(&labels),
            in_flight: self.in_flight.get_or_create_owned(&labels),
            dropped: self.dropped.clone(),
            first_chunk: self.first_chunk.clone(),
            tokens: self.tokens.clone(),
            retired: Arc::default(),
            cache: cached.then(|| {
                (self.cache_hits.get_or_create_owned(&labels), self.cache_misses.get_or_create_owned(&labels))
            }),
            labels,
        }
    }

    /// Counts a request for a model that does not exist.
    pub fn count_unknown_model(&self) {
        let labels = ModelLabels { model: UNKNOWN_MODEL.to_owned(), version: NO_VERSION.to_owned() };
        self.failure.get_or_create(&labels).inc();
    }

    /// Removes the label sets of a model that has been unloaded.
    pub fn forget_model(&self, model: &str, version: Option<&str>) {
        let labels = ModelLabels { model: model.to_owned(), version: version.unwrap_or(NO_VERSION).to_owned() };
        self.success.remove(&labels);
        self.failure.remove(&labels);
        self.duration.remove(&labels);
        self.latency.remove(&labels);
        self.cache_hits.remove(&labels);
        self.cache_misses.remove(&labels);
        self.queue_time.remove(&labels);
        self.predict_time.remove(&labels);
        self.waiting.remove(&labels);
        self.in_flight.remove(&labels);
        for reason in DROP_REASONS {
            self.dropped.remove(&labels.dropped(reason));
        }
        self.first_chunk.remove(&labels);
        for kind in TOKEN_KINDS {
            self.tokens.remove(&labels.tokens(kind));
        }
        let labels = BatchLabels::new(model, version);
        self.batch_queue.remove(&labels);
        self.batch_size.remove(&labels);
        self.batch_rows.remove(&labels);
        self.batch_failures.remove(&labels);
    }
}

impl BatchMetrics {
    /// Records the number of waiting requests when another arrives, as the original does.
    pub fn observe_queue(&self, waiting: usize) {
        self.queue.observe(count(waiting));
    }

    /// Records a batch that is sent to the model.
    pub fn observe_batch(&self, requests: usize, rows: usize) {
        self.size.observe(requests);
        self.rows.observe(count(rows));
    }

    /// Counts a batch that is retried in parts.
    pub fn count_failure(&self) {
        self.failures.inc();
    }
}

#[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^52")]
fn count(number: usize) -> f64 {
    number as f64
}

impl ModelMetrics {
    /// Records a request that has been answered or has failed.
    pub fn record(&self, duration: Duration, success: bool) {
        if success { &self.success } else { &self.failure }.inc();
        self.duration.observe(duration);
        self.latency.observe(duration);
    }

    /// Returns what the console samples.
    pub fn totals(&self) -> ModelTotals {
        let (failures, waiting) = (self.failure.get(), self.waiting.get());
        ModelTotals {
            requests: self.success.get() + failures,
            failures,
            waiting: u64::try_from(waiting).unwrap_or_default(),
            latency: self.latency.counts(),
        }
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> u64 {
        u64::try_from(self.in_flight.get()).unwrap_or_default()
    }

    /// Returns the cache hits and misses. `None` if the responses of the model are not cached.
    pub fn cache_counts(&self) -> Option<(u64, u64)> {
        self.cache.as_ref().map(|(hits, misses)| (hits.get(), misses.get()))
    }

    /// Counts a request as in flight, until [`ModelMetrics::end`].
    pub fn begin(&self) {
        self.in_flight.inc();
    }

    pub fn end(&self) {
        self.in_flight.dec();
    }

    /// Counts a request as waiting for its prediction, until [`ModelMetrics::leave_queue`].
    pub fn enter_queue(&self) {
        self.waiting.inc();
    }

    pub fn leave_queue(&self) {
        self.waiting.dec();
    }

    /// Records how long a request waited for its prediction.
    pub fn record_queue(&self, waited: Duration) {
        self.queue_time.observe(waited.as_secs_f64());
    }

    /// Records how long a prediction took.
    pub fn record_predict(&self, took: Duration) {
        self.predict_time.observe(took.as_secs_f64());
    }

    /// Counts a dropped request.
    pub fn count_dropped(&self, reason: &'static str) {
        if self.retired.load(Ordering::Relaxed) {
            return;
        }
        self.dropped.get_or_create(&self.labels.dropped(reason)).inc();
    }

    /// Records how long a client waited for the first piece of a reply.
    pub fn record_first_chunk(&self, waited: Duration) {
        if !self.retired.load(Ordering::Relaxed) {
            self.first_chunk.get_or_create(&self.labels).observe(waited.as_secs_f64());
        }
    }

    /// Counts the tokens of a request.
    pub fn record_tokens(&self, tokens: TokenUsage) {
        if self.retired.load(Ordering::Relaxed) {
            return;
        }
        let counts = [tokens.prompt_tokens, tokens.completion_tokens];
        for (kind, count) in TOKEN_KINDS.into_iter().zip(counts).filter(|(_, count)| *count > 0) {
            self.tokens.get_or_create(&self.labels.tokens(kind)).inc_by(count);
        }
    }

    /// Creates no label sets from now on, because the model has been unloaded. Requests that are still in flight count in those
    /// that were removed.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
    }

    /// Records a cache hit or miss.
    pub fn record_cache(&self, hit: bool) {
        if let Some((hits, misses)) = &self.cache {
            if hit { hits } else { misses }.inc();
        }
    }
}
