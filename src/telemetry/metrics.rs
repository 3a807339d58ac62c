//! The metrics registry and its text format.
//!
//! There is no global registry: the command that starts the server creates a [`Registry`] and passes it to the subsystems.
//! Names and labels are those of the original. The text has the classic Prometheus format, as in the original.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};
pub use prometheus_client::registry::Registry;

/// The content type of [`text`].
pub const CONTENT_TYPE: &str = "text/plain; version=1.0.0; charset=utf-8";

/// The original's histogram buckets, in seconds.
pub const REQUEST_BUCKETS: [f64; 14] =
    [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0];

/// Buckets for work that takes microseconds, in seconds.
pub const FINE_BUCKETS: [f64; 18] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    0.5, 1.0, 2.5, 10.0,
];

/// Buckets for numbers of requests and rows.
pub const SIZE_BUCKETS: [f64; 12] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0];

/// A count and a sum of durations in seconds: a Prometheus summary without quantiles.
#[derive(Debug, Clone, Default)]
pub struct Summary(Arc<SummaryState>);

#[derive(Debug, Default)]
struct SummaryState {
    count: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Summary {
    /// Adds one duration. The sum overflows after 584 years.
    pub fn observe(&self, duration: Duration) {
        self.0.count.fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

impl TypedMetric for Summary {
    const TYPE: MetricType = MetricType::Unknown;
}

impl EncodeMetric for Summary {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let count = self.0.count.load(Ordering::Relaxed);
        let sum = Duration::from_nanos(self.0.nanoseconds.load(Ordering::Relaxed)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &[], None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

/// Writes all metrics in the classic text format.
///
/// The library writes `OpenMetrics`, whose type lines omit the `_total` of counters, whose help texts end with a full stop,
/// and which has no summaries without quantiles. Scrapers parse the classic format differently, so those lines are rewritten.
pub fn text(registry: &Registry) -> Result<String, fmt::Error> {
    let mut open_metrics = String::new();
    encode(&mut open_metrics, registry)?;
    let mut classic = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = Some(rest.strip_suffix('.').unwrap_or(rest));
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let suffix = if kind == "counter" { "_total" } else { "" };
            let kind = if kind == "unknown" { "summary" } else { kind };
            if let Some((_, help)) = help.take().and_then(|help| help.split_once(' ')) {
                push_line(&mut classic, &["# HELP ", name, suffix, " ", help]);
            }
            push_line(&mut classic, &["# TYPE ", name, suffix, " ", kind]);
        } else {
            push_line(&mut classic, &[line]);
        }
    }
    Ok(classic)
}

/// Returns the names of the metrics in the output of [`text`].
pub fn names(text: &str) -> BTreeSet<&str> {
    text.lines().filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split_once(' ')?.0)).collect()
}

fn push_line(text: &mut String, parts: &[&str]) {
    for part in parts {
        text.push_str(part);
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::histogram::Histogram;

    #[test]
    fn text_has_the_classic_format() {
        let mut registry = Registry::default();
        let counter = Family::<Vec<(String, String)>, Counter>::default();
        registry.register("hits", "How many", counter.clone());
        counter.get_or_create(&vec![("model".to_owned(), "a \"b\"\n".to_owned())]).inc();
        let summary = Summary::default();
        registry.register("wait", "How long", summary.clone());
        summary.observe(Duration::from_millis(1500));
        let histogram = Histogram::new([0.5]);
        registry.register("size_seconds", "How big", histogram.clone());
        histogram.observe(0.1);
        let expected = concat!(
            "# HELP hits_total How many\n",
            "# TYPE hits_total counter\n",
            "hits_total{model=\"a \\\"b\\\"\\n\"} 1\n",
            "# HELP wait How long\n",
            "# TYPE wait summary\n",
            "wait_sum 1.5\n",
            "wait_count 1\n",
            "# HELP size_seconds How big\n",
            "# TYPE size_seconds histogram\n",
            "size_seconds_sum 0.1\n",
            "size_seconds_count 1\n",
            "size_seconds_bucket{le=\"0.5\"} 1\n",
            "size_seconds_bucket{le=\"+Inf\"} 1\n",
        );
        assert_eq!(text(&registry).unwrap(), expected);
    }
}
