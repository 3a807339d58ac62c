//! Reports progress and results of a run to the user.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::CommandError;
use crate::client::{OutputState, OutputTarget, RunStats, StatsSnapshot};
use crate::remote::{Observer, Verbosity};
use crate::repository::is_store_uri;
use crate::types::without_credentials;
use crate::ui::progress::{ProgressUpdate, TerminalProgress};

/// The time over which the current throughput is measured.
const RECENT: Duration = Duration::from_secs(5);

/// Passes the events of a run to the terminal.
pub(super) struct RunObserver {
    progress: Arc<TerminalProgress>,
    verbosity: Verbosity,
}

impl RunObserver {
    pub(super) const fn new(progress: Arc<TerminalProgress>, verbosity: Verbosity) -> Self {
        Self { progress, verbosity }
    }
}

impl Observer for RunObserver {
    fn verbosity(&self) -> Verbosity {
        self.verbosity
    }

    fn warn(&self, message: fmt::Arguments<'_>) {
        self.progress.warn(message);
    }

    fn trace(&self, message: fmt::Arguments<'_>) {
        self.progress.say(message);
    }
}

/// The progress and the throughput of a run.
pub(super) struct RunReport {
    stats: Arc<RunStats>,
    resumed: OutputState,
    /// The input and the output are open, and answered rows have been skipped.
    prepared: bool,
    size: Option<u64>,
    output: Option<String>,
    /// The answers of two servers are compared.
    is_comparison: bool,
    start: Instant,
    recent: VecDeque<(Instant, u64)>,
}

impl RunReport {
    /// Starts with a run that has done nothing. `output` is `None` if it is not known.
    pub(super) fn new(stats: Arc<RunStats>, output: Option<&OutputTarget>, is_comparison: bool) -> Self {
        let output = output.map(|output| match output {
            OutputTarget::Stdout => "-".to_owned(),
            // The query of a URI may be a signature.
            OutputTarget::File(path) if is_store_uri(&path.to_string_lossy()) => {
                without_credentials(&path.to_string_lossy())
            }
            OutputTarget::File(path) => path.display().to_string(),
            OutputTarget::Topic(address) => address.to_string(),
        });
        let resumed = OutputState::default();
        let (start, recent) = (Instant::now(), VecDeque::new());
        Self { stats, resumed, prepared: false, size: None, output, is_comparison, start, recent }
    }

    /// Records the rows of an earlier run and the size of all inputs, and starts the clock at the first of them.
    pub(super) fn prepared(&mut self, resumed: &OutputState, size: Option<u64>) {
        self.resumed.rows += resumed.rows;
        self.resumed.failed += resumed.failed;
        self.size = size;
        if !std::mem::replace(&mut self.prepared, true) {
            self.start = Instant::now();
        }
    }

    /// Returns how many rows have a line in the output, including those of earlier runs.
    pub(super) fn rows(&self) -> u64 {
        self.resumed.rows + self.stats.snapshot().rows
    }

    /// Returns how many of them failed.
    pub(super) fn failed(&self) -> u64 {
        self.resumed.failed + self.stats.snapshot().failed
    }

    /// Returns how many of them have different answers of two servers.
    pub(super) fn different(&self) -> u64 {
        self.stats.snapshot().different
    }

    /// Returns the numbers of rows that were not answered, or whose answers differ.
    fn failures(&self) -> String {
        let (failed, different) = (self.failed(), self.different());
        if self.is_comparison {
            format!("{different} differ, {} failed", failed - different)
        } else {
            format!("{failed} failed")
        }
    }

    /// Shows the progress.
    pub(super) fn show(&mut self, progress: &TerminalProgress) {
        let (now, snapshot) = (Instant::now(), self.stats.snapshot());
        if !self.prepared {
            match snapshot.skipped_rows {
                0 => progress.wait(format_args!("reading the input")),
                rows => progress.wait(format_args!("skipped {rows} rows that have been answered")),
            }
            return;
        }
        self.recent.push_back((now, snapshot.rows));
        while self.recent.len() > 2 && now - self.recent[0].0 > RECENT {
            self.recent.pop_front();
        }
        let (since, before) = self.recent[0];
        let rows = self.rows();
        let done = snapshot.skipped_bytes + snapshot.bytes;
        progress.show(&ProgressUpdate {
            done: rows,
            total: self.size.and_then(|size| estimate(rows, done, size)),
            share: self.size.map(|size| share(done, size)),
            rate: per_second(snapshot.rows - before, now - since),
            left: self.size.and_then(|size| self.left(&snapshot, size.saturating_sub(done))),
            text: format!(
                "{}, {} of {} requests in flight, {}",
                self.failures(),
                snapshot.in_flight,
                snapshot.concurrency,
                latencies(&snapshot)
            ),
        });
    }

    /// Estimates how long the rest, in bytes, will take at the throughput so far.
    fn left(&self, snapshot: &StatsSnapshot, rest: u64) -> Option<Duration> {
        let speed = per_second(snapshot.bytes, self.start.elapsed());
        #[expect(clippy::cast_precision_loss, reason = "an error of one byte in 2^52 does not matter")]
        (speed > 0.0).then(|| Duration::try_from_secs_f64(rest as f64 / speed).ok()).flatten()
    }

    /// Reports whether there is anything to sum up.
    pub(super) fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// Returns the summary as text.
    pub(super) fn text(&self) -> String {
        let (snapshot, time) = (self.stats.snapshot(), self.start.elapsed());
        let rows = self.rows();
        let resumed =
            if self.resumed.rows > 0 { format!(" ({} of them resumed)", self.resumed.rows) } else { String::new() };
        format!(
            "{rows} rows{resumed}, {}, in {:.2} s ({:.0} rows/s); {} requests, {} retries; {}",
            self.failures(),
            time.as_secs_f64(),
            per_second(snapshot.rows, time),
            snapshot.requests,
            snapshot.retries,
            latencies(&snapshot)
        )
    }

    /// Returns the summary as JSON.
    pub(super) fn json(&self, outcome: &Result<(), CommandError>) -> Value {
        let (snapshot, time) = (self.stats.snapshot(), self.start.elapsed());
        let [p50, p95, p99] = snapshot.latencies.map(|latency| latency.as_secs_f64() * 1000.0);
        let mut summary = json!({
            "rows": self.rows(),
            "answered": self.rows() - self.failed(),
            "failed": self.failed(),
            "resumed": self.resumed.rows,
            "requests": snapshot.requests,
            "retries": snapshot.retries,
            "seconds": time.as_secs_f64(),
            "rows_per_second": per_second(snapshot.rows, time),
            "latency_ms": {"p50": p50, "p95": p95, "p99": p99},
            "exit_code": outcome.as_ref().map_or_else(|failure| failure.code, |()| super::super::SUCCESS),
            "error": outcome.as_ref().err().map(|failure| format!("{:#}", failure.error)),
            "output": self.output,
        });
        if self.is_comparison {
            summary["failed"] = (self.failed() - self.different()).into();
            summary["different"] = self.different().into();
        }
        summary
    }
}

fn latencies(snapshot: &StatsSnapshot) -> String {
    let [p50, p95, p99] = snapshot.latencies.map(|latency| latency.as_secs_f64() * 1000.0);
    format!("p50 {p50:.1} p95 {p95:.1} p99 {p99:.1} ms")
}

fn per_second(count: u64, time: Duration) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "no run has 2^52 rows or bytes")]
    let count = count as f64;
    if time.is_zero() { 0.0 } else { count / time.as_secs_f64() }
}

fn share(done: u64, all: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "an error of one byte in 2^52 does not matter")]
    let share = done as f64 / all.max(1) as f64;
    share.min(1.0)
}

/// Estimates the number of rows of an input of `size` bytes, of which `done` had `rows`.
fn estimate(rows: u64, done: u64, size: u64) -> Option<u64> {
    let total = u128::from(rows) * u128::from(size.max(done)) / u128::from(done.max(1));
    (done > 0).then(|| u64::try_from(total).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_estimates_the_number_of_rows() {
        assert_eq!(estimate(0, 0, 100), None);
        assert_eq!(estimate(10, 50, 100), Some(20));
        assert_eq!(estimate(10, 120, 100), Some(10), "the input has grown");
    }
}
