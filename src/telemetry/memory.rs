//! Metrics of the memory budget of models, and of the byte budget of requests.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::{MetricType, TypedMetric};

use super::metrics::Registry;
use crate::types::ByteBudget;

/// The metrics of models that are loaded on demand and evicted. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct MemoryMetrics {
    budget: Gauge<u64, AtomicU64>,
    used: Gauge<u64, AtomicU64>,
    loaded: Counter,
    evicted: Counter,
}

impl MemoryMetrics {
    /// Creates and registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("models_memory_budget_bytes", "Memory budget of models", metrics.budget.clone());
        registry.register("models_memory_bytes", "Memory of loaded models", metrics.used.clone());
        registry.register("models_loaded_on_demand", "Models loaded because of a request", metrics.loaded.clone());
        registry.register(
            "models_evicted",
            "Models evicted from memory to make room for others",
            metrics.evicted.clone(),
        );
        metrics
    }

    pub fn set_budget(&self, bytes: u64) {
        self.budget.set(bytes);
    }

    pub fn set_used(&self, bytes: u64) {
        self.used.set(bytes);
    }

    pub fn count_loaded(&self) {
        self.loaded.inc();
    }

    pub fn count_evicted(&self, models: usize) {
        self.evicted.inc_by(models as u64);
    }
}

/// A byte budget as a metric: what is reserved when the metrics are read.
#[derive(Debug)]
struct ByteBudgetGauge(ByteBudget);

/// Registers the metrics of the byte budget of requests.
pub fn register_byte_budget(registry: &mut Registry, budget: ByteBudget) {
    let limit = Gauge::<u64, AtomicU64>::default();
    limit.set(budget.limit() as u64);
    registry.register("request_bytes_limit", "Limit on the memory of requests in flight and their responses", limit);
    let help = "Memory of requests in flight and their responses";
    registry.register("request_bytes_in_flight", help, ByteBudgetGauge(budget));
}

impl TypedMetric for ByteBudgetGauge {
    const TYPE: MetricType = MetricType::Gauge;
}

impl EncodeMetric for ByteBudgetGauge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.encode_gauge(&(self.0.in_use() as u64))
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}
