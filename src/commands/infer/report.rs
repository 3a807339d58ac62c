//! Reports progress and results of a run to the user.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::CommandError;
use crate::client::{Observer, OutputState, OutputTarget, RunStats, StatsSnapshot, Verbosity};
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
    /// Bytes of the input that were skipped.
    skipped: u64,
    size: Option<u64>,
    output: String,
    start: Instant,
    recent: VecDeque<(Instant, u64)>,
}

impl RunReport {
    pub(super) fn new(stats: Arc<RunStats>, resumed: OutputState, size: Option<u64>, output: &OutputTarget) -> Self {
        let output = match output {
            OutputTarget::Stdout => "-".to_owned(),
            OutputTarget::File(path) => path.display().to_string(),
        };
        Self { stats, resumed, skipped: 0, size, output, start: Instant::now(), recent: VecDeque::new() }
    }

    /// Records how many bytes of the input were skipped, and starts the clock.
    pub(super) fn skipped(&mut self, bytes: u64) {
        (self.skipped, self.start) = (bytes, Instant::now());
    }

    /// Returns how many rows have a line in the output, including those of earlier runs.
    pub(super) fn rows(&self) -> u64 {
        self.resumed.rows + self.stats.snapshot().rows
    }

    /// Returns how many of them failed.
    pub(super) fn failed(&self) -> u64 {
        self.resumed.failed + self.stats.snapshot().failed
    }

    /// Shows the progress.
    pub(super) fn show(&mut self, progress: &TerminalProgress) {
        let (now, snapshot) = (Instant::now(), self.stats.snapshot());
        self.recent.push_back((now, snapshot.rows));
        while self.recent.len() > 2 && now - self.recent[0].0 > RECENT {
            self.recent.pop_front();
        }
        let (since, before) = self.recent[0];
        let speed = per_second(snapshot.rows - before, now - since);
        let share = self.size.map(|size| share(self.skipped + snapshot.bytes, size));
        let left = self.size.and_then(|size| self.left(&snapshot, size));
        let eta = left.map_or_else(String::new, |left| format!(", {} left", clock(left)));
        let text = format!(
            "{} rows, {speed:.0} rows/s, {} failed, {} in flight, {}{eta}",
            self.rows(),
            self.failed(),
            snapshot.concurrency,
            latencies(&snapshot)
        );
        progress.show(&ProgressUpdate { share, text });
    }

    /// Estimates how long the rest will take at the throughput so far.
    fn left(&self, snapshot: &StatsSnapshot, size: u64) -> Option<Duration> {
        let left = size.saturating_sub(self.skipped + snapshot.bytes);
        let speed = per_second(snapshot.bytes, self.start.elapsed());
        #[expect(clippy::cast_precision_loss, reason = "an error of one byte in 2^52 does not matter")]
        (speed > 0.0).then(|| Duration::try_from_secs_f64(left as f64 / speed).ok()).flatten()
    }

    /// Returns the summary as text.
    pub(super) fn text(&self) -> String {
        let (snapshot, time) = (self.stats.snapshot(), self.start.elapsed());
        let (rows, failed) = (self.rows(), self.failed());
        let resumed =
            if self.resumed.rows > 0 { format!(" ({} of them resumed)", self.resumed.rows) } else { String::new() };
        format!(
            "{rows} rows{resumed}, {failed} failed, in {:.2} s ({:.0} rows/s); {} requests, {} retries; {}",
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
        json!({
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
        })
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

fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
