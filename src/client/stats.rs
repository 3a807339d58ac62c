//! The counters of a run.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::LatencyHistogram;

/// The counters that all tasks of a run share.
#[derive(Debug, Default)]
pub struct RunStats {
    /// Rows whose answers have been written, of this run.
    pub(super) rows: AtomicU64,
    /// How many of them failed.
    pub(super) failed: AtomicU64,
    /// How many of the failed rows have different answers of two servers.
    pub(super) different: AtomicU64,
    /// Bytes of the input that these rows took.
    pub(super) bytes: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) retries: AtomicU64,
    /// Rows that were answered by an earlier run and have been read again,
    pub(super) skipped_rows: AtomicU64,
    /// and the bytes of the input that they took.
    pub(super) skipped_bytes: AtomicU64,
    /// Requests that have been sent and have no answer yet.
    pub(super) in_flight: AtomicUsize,
    /// The current limit on requests in flight.
    pub(super) concurrency: AtomicUsize,
    pub(super) latencies: LatencyHistogram,
}

/// The values of the counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatsSnapshot {
    pub rows: u64,
    pub failed: u64,
    pub different: u64,
    pub bytes: u64,
    pub requests: u64,
    pub retries: u64,
    pub skipped_rows: u64,
    pub skipped_bytes: u64,
    pub in_flight: usize,
    pub concurrency: usize,
    /// The 50th, 95th and 99th percentile of the latency of answered requests.
    pub latencies: [Duration; 3],
}

impl RunStats {
    /// Returns the current values.
    pub fn snapshot(&self) -> StatsSnapshot {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        StatsSnapshot {
            rows: load(&self.rows),
            failed: load(&self.failed),
            different: load(&self.different),
            bytes: load(&self.bytes),
            requests: load(&self.requests),
            retries: load(&self.retries),
            skipped_rows: load(&self.skipped_rows),
            skipped_bytes: load(&self.skipped_bytes),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            concurrency: self.concurrency.load(Ordering::Relaxed),
            latencies: self.latencies.percentiles([0.5, 0.95, 0.99]),
        }
    }
}

/// A request in flight, until it is dropped.
pub(super) struct RequestInFlight<'a>(&'a RunStats);

impl<'a> RequestInFlight<'a> {
    /// Counts a request that is sent now.
    pub(super) fn count(stats: &'a RunStats) -> Self {
        stats.requests.fetch_add(1, Ordering::Relaxed);
        stats.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(stats)
    }
}

impl Drop for RequestInFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stats_count_requests_in_flight() {
        let stats = RunStats::default();
        let (first, second) = (RequestInFlight::count(&stats), RequestInFlight::count(&stats));
        assert_eq!(stats.snapshot().in_flight, 2);
        drop(first);
        assert_eq!(stats.snapshot().in_flight, 1, "a request that is given up is not in flight");
        drop(second);
        assert_eq!((stats.snapshot().in_flight, stats.snapshot().requests), (0, 2));
    }
}
