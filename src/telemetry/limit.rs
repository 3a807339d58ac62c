//! Limits how often similar lines are logged, so that failing requests cannot flood the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How many lines of one kind are written within [`WINDOW`]; the others are counted.
const MAX_LINES: u32 = 10;
const WINDOW: Duration = Duration::from_secs(10);

/// Counts lines by kind. Clones share the counts.
#[derive(Debug, Clone, Default)]
pub struct LogLimiter(Arc<Mutex<BTreeMap<&'static str, LogWindow>>>);

/// The lines of one kind since the first of them.
#[derive(Debug, Clone, Copy)]
struct LogWindow {
    since: Instant,
    written: u32,
    suppressed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogDecision {
    Write,
    Suppress,
    /// The same; the number of suppressed lines is to be logged at this time.
    SuppressUntil(Instant),
}

impl LogLimiter {
    /// Reports whether a line of a kind may be written. Calls `summarize` with the number of lines that were suppressed,
    /// some seconds after the first of them.
    pub fn allows(&self, kind: &'static str, summarize: impl FnOnce(u64) + Send + 'static) -> bool {
        let now = Instant::now();
        let decision = self.0.lock().entry(kind).or_insert_with(|| LogWindow::new(now)).record(now);
        if let LogDecision::SuppressUntil(until) = decision
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let windows = Arc::clone(&self.0);
            runtime.spawn(async move {
                tokio::time::sleep_until(until).await;
                let window = windows.lock().remove(kind);
                summarize(window.map_or(0, |window| window.suppressed));
            });
        }
        decision == LogDecision::Write
    }
}

impl LogWindow {
    const fn new(since: Instant) -> Self {
        Self { since, written: 0, suppressed: 0 }
    }

    fn record(&mut self, now: Instant) -> LogDecision {
        let end = self.since + WINDOW;
        if now >= end && self.suppressed == 0 {
            *self = Self::new(now);
        }
        if self.written < MAX_LINES {
            self.written += 1;
            return LogDecision::Write;
        }
        self.suppressed += 1;
        if self.suppressed == 1 { LogDecision::SuppressUntil(end) } else { LogDecision::Suppress }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn log_limiter_suppresses_and_counts_lines_of_one_kind() {
        let limiter = LogLimiter::default();
        let (sender, summaries) = std::sync::mpsc::channel();
        let log = |kind, count: u32| {
            let allowed = |_: &u32| {
                let sender = sender.clone();
                limiter.allows(kind, move |suppressed| sender.send((kind, suppressed)).unwrap())
            };
            (0..count).filter(allowed).count()
        };
        assert_eq!((log("a", 1000), log("b", 3)), (10, 3));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!((log("a", 5), log("b", 9)), (0, 7));
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(summaries.try_iter().collect::<Vec<_>>(), [("a", 995), ("b", 2)]);
        assert_eq!((log("a", 1), log("b", 20)), (1, 10));
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!((log("a", 12), summaries.try_iter().collect::<Vec<_>>()), (10, vec![("b", 10)]));
    }
}
