//! Metrics of the steps of inference graphs.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::metrics::{FINE_BUCKETS, Registry};

/// The labels of a step. Each loaded graph has as many label sets as steps.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StepLabels {
    graph: String,
    step: String,
}

/// The metrics of the steps of all graphs. Clones share them.
#[derive(Debug, Clone)]
pub struct GraphMetrics {
    duration: Family<StepLabels, Histogram, fn() -> Histogram>,
    tolerated: Family<StepLabels, Counter>,
    users: Arc<Mutex<HashMap<StepLabels, StepUsers>>>,
}

/// What the loaded graphs share that have the same step: while a graph is reloaded, two have it.
#[derive(Debug, Default)]
struct StepUsers {
    count: usize,
    /// How long the step took when it last ran, in microseconds. 0 if it has not run.
    latest: Arc<AtomicU64>,
}

/// The metrics of one step. They are removed with the last graph that has the step.
#[derive(Debug)]
pub struct StepMetrics {
    labels: StepLabels,
    duration: Histogram,
    latest: Arc<AtomicU64>,
    tolerated: Counter,
    all: GraphMetrics,
}

impl GraphMetrics {
    /// Creates and registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            duration: Family::new_with_constructor(|| Histogram::new(FINE_BUCKETS)),
            tolerated: Family::default(),
            users: Arc::default(),
        };
        registry.register(
            "graph_step_duration_seconds",
            "Duration of the steps of inference graphs, including the time that they wait",
            metrics.duration.clone(),
        );
        registry.register(
            "graph_step_tolerated_failures",
            "Failed steps of inference graphs that did not fail their graph",
            metrics.tolerated.clone(),
        );
        metrics
    }

    /// Returns the metrics of a step.
    pub fn of_step(&self, graph: &str, step: &str) -> StepMetrics {
        let labels = StepLabels { graph: graph.to_owned(), step: step.to_owned() };
        let latest = {
            let mut users = self.users.lock();
            let step = users.entry(labels.clone()).or_default();
            step.count += 1;
            Arc::clone(&step.latest)
        };
        let duration = self.duration.get_or_create(&labels).clone();
        let tolerated = self.tolerated.get_or_create(&labels).clone();
        StepMetrics { labels, duration, latest, tolerated, all: self.clone() }
    }

    /// Returns how long each step of a graph took when it last ran, by its name. Steps that have not run are missing.
    pub fn latest(&self, graph: &str) -> BTreeMap<String, Duration> {
        let users = self.users.lock();
        let of_graph = users.iter().filter(|(labels, _)| labels.graph == graph);
        let times = of_graph.map(|(labels, step)| (labels.step.clone(), step.latest.load(Ordering::Relaxed)));
        times.filter(|(_, micros)| *micros > 0).map(|(step, micros)| (step, Duration::from_micros(micros))).collect()
    }
}

impl StepMetrics {
    pub fn observe(&self, duration: Duration) {
        self.duration.observe(duration.as_secs_f64());
        let micros = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.latest.store(micros.max(1), Ordering::Relaxed);
    }

    pub fn count_tolerated(&self) {
        self.tolerated.inc();
    }
}

impl Drop for StepMetrics {
    fn drop(&mut self) {
        let mut users = self.all.users.lock();
        let Some(step) = users.get_mut(&self.labels) else { return };
        step.count -= 1;
        if step.count == 0 {
            users.remove(&self.labels);
            self.all.duration.remove(&self.labels);
            self.all.tolerated.remove(&self.labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics;

    #[test]
    fn step_metrics_are_removed_with_the_last_graph() {
        let mut exposed = Registry::default();
        let metrics = GraphMetrics::register(&mut exposed);
        let first = metrics.of_step("g", "a");
        let reloaded = metrics.of_step("g", "a");
        assert!(metrics.latest("g").is_empty());
        first.observe(Duration::from_millis(1));
        drop(first);
        assert_eq!(metrics.latest("g"), [("a".to_owned(), Duration::from_millis(1))].into());
        assert!(metrics.latest("other").is_empty());
        let text = metrics::text(&exposed).unwrap();
        assert!(text.contains("graph_step_duration_seconds_count{graph=\"g\",step=\"a\"} 1"), "{text}");
        drop(reloaded);
        let text = metrics::text(&exposed).unwrap();
        assert!(!text.contains("step=\"a\""), "{text}");
        assert!(metrics.latest("g").is_empty());
    }
}
