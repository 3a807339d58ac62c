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
    /// Bytes of the input that these rows took.
    pub(super) bytes: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) retries: AtomicU64,
    /// The current limit on requests in flight.
    pub(super) concurrency: AtomicUsize,
    pub(super) latencies: LatencyHistogram,
}

/// The values of the counters at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatsSnapshot {
    pub rows: u64,
    pub failed: u64,
    pub bytes: u64,
    pub requests: u64,
    pub retries: u64,
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
            bytes: load(&self.bytes),
            requests: load(&self.requests),
            retries: load(&self.retries),
            concurrency: self.concurrency.load(Ordering::Relaxed),
            latencies: self.latencies.percentiles([0.5, 0.95, 0.99]),
        }
    }
}
