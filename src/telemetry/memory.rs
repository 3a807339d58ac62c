//! Metrics of the memory budget of models.

use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::metrics::Registry;

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
