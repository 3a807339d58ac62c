//! Histograms that the metrics port and the console read.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

use super::metrics::{FINE_BUCKETS, SIZE_BUCKETS};

/// The numbers of buckets, with the one beyond the last limit.
const BUCKETS: usize = FINE_BUCKETS.len() + 1;
const SIZES: usize = SIZE_BUCKETS.len() + 1;

/// How many durations were within each bucket of [`FINE_BUCKETS`], and how many were longer than the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LatencyCounts([u64; BUCKETS]);

/// A histogram of durations, with the buckets [`FINE_BUCKETS`]. Clones share it. It has no lock: observing takes two additions.
#[derive(Debug, Clone, Default)]
pub struct LatencyHistogram(Arc<HistogramState<BUCKETS>>);

/// A histogram of numbers of requests, with the buckets [`SIZE_BUCKETS`]. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct SizeHistogram(Arc<HistogramState<SIZES>>);

#[derive(Debug)]
struct HistogramState<const N: usize> {
    buckets: [AtomicU64; N],
    sum: AtomicU64,
}

impl<const N: usize> Default for HistogramState<N> {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl<const N: usize> HistogramState<N> {
    /// Adds `value` to the bucket that its limit in `limits` has, and `amount` to the sum.
    fn add(&self, limits: &[f64], value: f64, amount: u64) {
        let bucket = limits.iter().position(|&limit| value <= limit).unwrap_or(limits.len());
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(amount, Ordering::Relaxed);
    }

    fn counts(&self) -> [u64; N] {
        std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed))
    }

    fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    fn encode(&self, limits: &[f64], sum: f64, encoder: &mut MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self.counts();
        let buckets: Vec<(f64, u64)> = limits.iter().copied().chain([f64::INFINITY]).zip(counts).collect();
        encoder.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }
}

impl LatencyHistogram {
    /// Adds one duration. The sum overflows after 584 years.
    pub fn observe(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.0.add(&FINE_BUCKETS, duration.as_secs_f64(), nanoseconds);
    }

    /// Returns the counts of all buckets so far.
    pub fn counts(&self) -> LatencyCounts {
        LatencyCounts(self.0.counts())
    }
}

impl SizeHistogram {
    #[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^52")]
    pub fn observe(&self, size: usize) {
        self.0.add(&SIZE_BUCKETS, size as f64, size as u64);
    }

    /// Returns the mean. `None` if nothing has been observed.
    #[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^52")]
    pub fn mean(&self) -> Option<f64> {
        let count: u64 = self.0.counts().iter().sum();
        (count > 0).then(|| self.0.sum() as f64 / count as f64)
    }
}

impl TypedMetric for LatencyHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for LatencyHistogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.encode(&FINE_BUCKETS, Duration::from_nanos(self.0.sum()).as_secs_f64(), &mut encoder)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for SizeHistogram {
    const TYPE: MetricType = MetricType::Histogram;
}

impl EncodeMetric for SizeHistogram {
    #[expect(clippy::cast_precision_loss, reason = "there are far fewer than 2^52")]
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.encode(&SIZE_BUCKETS, self.0.sum() as f64, &mut encoder)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl LatencyCounts {
    /// Returns the counts since `earlier`. Counts that have become smaller began again at 0.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let restarted = self.0.iter().zip(&earlier.0).any(|(now, before)| now < before);
        let before = if restarted { Self::default() } else { *earlier };
        Self(std::array::from_fn(|bucket| self.0[bucket] - before.0[bucket]))
    }

    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|bucket| self.0[bucket].saturating_add(other.0[bucket])))
    }

    /// Estimates a quantile in seconds, as Prometheus does: durations are spread evenly over their bucket, and those beyond the last
    /// limit have the last limit. `None` without durations.
    #[expect(clippy::cast_precision_loss, reason = "an estimate, and there are far fewer than 2^52")]
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let total: u64 = self.0.iter().sum();
        if total == 0 {
            return None;
        }
        let rank = quantile * total as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (&count, limit) in self.0.iter().zip(FINE_BUCKETS) {
            let count = count as f64;
            if count > 0.0 && below + count >= rank {
                return Some(lower + (limit - lower) * ((rank - below) / count).clamp(0.0, 1.0));
            }
            (below, lower) = (below + count, limit);
        }
        Some(lower)
    }
}

#[cfg(test)]
mod tests {
    use super::super::metrics::{Registry, text};
    use super::*;
    use prometheus_client::metrics::histogram::Histogram;

    #[test]
    fn latency_histogram_is_exposed_like_that_of_the_library() {
        let exposed = |observe: &dyn Fn(&mut Registry)| {
            let mut registry = Registry::default();
            observe(&mut registry);
            text(&registry).unwrap()
        };
        let durations = [0, 10, 11, 1_500_000, 10_000_000, 11_000_000].map(Duration::from_micros);
        let ours = exposed(&|registry| {
            let histogram = LatencyHistogram::default();
            registry.register("a_seconds", "Time", histogram.clone());
            for duration in durations {
                histogram.observe(duration);
            }
        });
        let theirs = exposed(&|registry| {
            let histogram = Histogram::new(FINE_BUCKETS);
            registry.register("a_seconds", "Time", histogram.clone());
            for duration in durations {
                histogram.observe(duration.as_secs_f64());
            }
        });
        assert_eq!(ours, theirs);
    }

    #[test]
    fn size_histogram_has_the_mean_of_its_sizes() {
        let histogram = SizeHistogram::default();
        assert_eq!(histogram.mean(), None);
        for size in [1, 2, 9000] {
            histogram.observe(size);
        }
        assert_eq!(histogram.mean(), Some(3001.0));
        let mut registry = Registry::default();
        registry.register("b", "Sizes", histogram);
        let exposed = text(&registry).unwrap();
        assert!(exposed.contains("b_sum 9003.0\n") && exposed.contains("b_bucket{le=\"4096.0\"} 2\n"), "{exposed}");
        assert!(exposed.contains("b_bucket{le=\"+Inf\"} 3\n"), "{exposed}");
    }

    #[test]
    fn latency_quantile_is_within_the_bucket_of_its_rank() {
        let histogram = LatencyHistogram::default();
        assert_eq!(histogram.counts().quantile(0.5), None);
        for _ in 0..99 {
            histogram.observe(Duration::from_micros(700));
        }
        histogram.observe(Duration::from_mins(1));
        let counts = histogram.counts();
        let median = counts.quantile(0.5).unwrap();
        assert!((0.000_5..=0.001).contains(&median), "{median}");
        assert_eq!(counts.quantile(1.0), Some(10.0));
        assert_eq!(counts.since(&counts).quantile(0.5), None);
        assert_eq!(counts.since(&LatencyCounts::default()), counts);
        assert_eq!(LatencyCounts::default().plus(&counts), counts);
        let restarted = LatencyHistogram::default();
        restarted.observe(Duration::from_millis(3));
        assert_eq!(restarted.counts().since(&counts), restarted.counts());
    }
}
