//! Metrics of the models that are fetched from object stores.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::metrics::Registry;

/// The most models with label sets. The oldest are dropped for others.
const MAX_MODELS: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FetchLabels {
    model: String,
}

/// The metrics of fetches, by model. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct DownloadMetrics {
    bytes: Family<FetchLabels, Counter>,
    seconds: Family<FetchLabels, Gauge<f64, AtomicU64>>,
    /// The models with label sets, in the order of their first fetches.
    models: Arc<Mutex<Vec<FetchLabels>>>,
}

impl DownloadMetrics {
    /// Creates and registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("model_download_bytes", "Bytes of models fetched from object stores", metrics.bytes.clone());
        registry.register(
            "model_download_seconds",
            "Duration of the last fetch of a model from an object store",
            metrics.seconds.clone(),
        );
        metrics
    }

    /// Counts a fetch, also one that failed.
    pub fn count(&self, model: &str, bytes: u64, duration: Duration) {
        let labels = FetchLabels { model: model.to_owned() };
        let mut models = self.models.lock();
        if !models.contains(&labels) {
            if models.len() == MAX_MODELS {
                let oldest = models.remove(0);
                self.drop_labels(&oldest);
            }
            models.push(labels.clone());
        }
        self.bytes.get_or_create(&labels).inc_by(bytes);
        self.seconds.get_or_create(&labels).set(duration.as_secs_f64());
    }

    /// Drops the label sets of a model that has been unloaded.
    pub fn remove(&self, model: &str) {
        let labels = FetchLabels { model: model.to_owned() };
        self.models.lock().retain(|other| *other != labels);
        self.drop_labels(&labels);
    }

    fn drop_labels(&self, labels: &FetchLabels) {
        self.bytes.remove(labels);
        self.seconds.remove(labels);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics;

    #[test]
    fn fetches_are_counted_for_a_limited_number_of_models() {
        let mut exposed = Registry::default();
        let metrics = DownloadMetrics::register(&mut exposed);
        for number in 0..=MAX_MODELS {
            metrics.count(&format!("m{number}"), 10, Duration::from_secs(2));
        }
        metrics.count("m1", 5, Duration::from_secs(3));
        let text = metrics::text(&exposed).unwrap();
        assert!(text.contains("model_download_bytes_total{model=\"m1\"} 15"), "{text}");
        assert!(text.contains("model_download_seconds{model=\"m1\"} 3"), "{text}");
        assert!(!text.contains("model=\"m0\""));
        metrics.remove("m1");
        assert!(!metrics::text(&exposed).unwrap().contains("model=\"m1\""));
    }
}
