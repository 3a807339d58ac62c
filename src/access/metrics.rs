//! Metrics of access control.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::telemetry::metrics::Registry;

/// The most principals with a series of their own. The others share one.
const MAX_PRINCIPALS: usize = 1000;
/// The name of the series that the others share.
const OTHERS: &str = "other";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PrincipalLabels {
    principal: String,
}

/// Counts of requests by principal, and of those that were refused.
#[derive(Debug, Clone, Default)]
pub struct AccessMetrics {
    refused: Family<ReasonLabels, Counter>,
    requests: Family<PrincipalLabels, Counter>,
    /// The counters of principals, also across reloads of keys.
    counters: Arc<Mutex<HashMap<String, Counter>>>,
}

impl AccessMetrics {
    /// Creates the metrics and registers them.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("access_refused", "Requests that access control refused, by reason", metrics.refused.clone());
        registry.register(
            "access_requests",
            "Requests that access control allowed, by principal",
            metrics.requests.clone(),
        );
        metrics
    }

    pub(super) fn count_refused(&self, reason: &'static str) {
        self.refused.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Returns the counter of a principal.
    pub(super) fn requests_of(&self, principal: &str) -> Counter {
        let mut counters = self.counters.lock();
        if let Some(counter) = counters.get(principal) {
            return counter.clone();
        }
        let is_full = counters.len() >= MAX_PRINCIPALS;
        let label = if is_full { OTHERS } else { principal };
        let counter = self.requests.get_or_create_owned(&PrincipalLabels { principal: label.to_owned() });
        if !is_full {
            counters.insert(label.to_owned(), counter.clone());
        }
        counter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_metrics_have_a_bounded_number_of_principals() {
        let mut registry = Registry::default();
        let metrics = AccessMetrics::register(&mut registry);
        for index in 0..MAX_PRINCIPALS + 500 {
            metrics.requests_of(&format!("key-{index}")).inc();
        }
        metrics.requests_of("key-0").inc();
        let text = crate::telemetry::metrics::text(&registry).unwrap();
        let series = text.lines().filter(|line| line.starts_with("access_requests_total{")).count();
        assert_eq!(series, MAX_PRINCIPALS + 1);
        assert!(text.contains("access_requests_total{principal=\"key-0\"} 2"), "{text}");
        assert!(text.contains("access_requests_total{principal=\"other\"} 500"), "{text}");
    }
}
