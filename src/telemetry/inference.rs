//! Metrics of inference, the same for every transport.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::metrics::{FINE_BUCKETS, Registry, Summary};

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
        metrics
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
    }
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
