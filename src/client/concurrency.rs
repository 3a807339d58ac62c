//! Decides how many requests to keep in flight. Pure: the caller provides the time.
//!
//! More concurrency helps until the server is busy; beyond that, requests only wait. So the number grows while the throughput grows
//! with it, and a step without a gain is rolled back. If the server reports overload, the number falls at once.

use std::num::NonZeroUsize;
use std::time::Duration;

/// The minimum time over which throughput is measured.
const MIN_WINDOW: Duration = Duration::from_millis(200);
/// The minimum number of answers in a window, for each request in flight.
const MIN_ANSWERS: usize = 2;
/// The fraction of a proportional gain in throughput that a step must bring to be kept.
const MIN_GAIN: f64 = 0.1;
/// How many windows pass after a step without a gain before another one is tried.
const HOLD_WINDOWS: u32 = 25;

/// The limit on requests in flight.
#[derive(Debug, Clone)]
pub struct Concurrency {
    limit: usize,
    max: usize,
    window: MeasurementWindow,
    /// The limit and the rows per second before the last step up, until that step has been evaluated.
    before: Option<(usize, f64)>,
    /// Windows to wait before the next step up.
    hold: u32,
    /// Overload before this time is ignored: it concerns requests that were sent before the last reduction.
    ignore_overload_until: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
struct MeasurementWindow {
    start: Duration,
    rows: usize,
    answers: usize,
    /// Whether the limit was reached.
    full: bool,
}

impl Concurrency {
    /// Starts with a limit of `start`, which never exceeds `max`.
    pub fn new(start: NonZeroUsize, max: NonZeroUsize) -> Self {
        let (limit, max) = (start.get().min(max.get()), max.get());
        let (window, before, hold, ignore_overload_until) = (MeasurementWindow::default(), None, 0, Duration::ZERO);
        Self { limit, max, window, before, hold, ignore_overload_until }
    }

    /// Returns how many requests may be in flight.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Records that the limit is reached.
    pub const fn full(&mut self) {
        self.window.full = true;
    }

    /// Records an answer with this many rows.
    pub fn answered(&mut self, now: Duration, rows: usize) {
        self.window.rows += rows;
        self.window.answers += 1;
        let elapsed = now.saturating_sub(self.window.start);
        if elapsed < MIN_WINDOW || self.window.answers < self.limit * MIN_ANSWERS {
            return;
        }
        let (rows, full) = (self.window.rows, self.window.full);
        self.window = MeasurementWindow { start: now, ..MeasurementWindow::default() };
        if full {
            #[expect(clippy::cast_precision_loss, reason = "no window has that many rows")]
            self.evaluate(rows as f64 / elapsed.as_secs_f64());
        } else {
            // The input limits the throughput, not the server.
            self.before = None;
        }
    }

    fn evaluate(&mut self, speed: f64) {
        #[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
        let grown = |limit: usize| self.limit as f64 / limit as f64 - 1.0;
        if let Some((limit, old)) = self.before.take()
            && speed < old * (1.0 + MIN_GAIN * grown(limit))
        {
            (self.limit, self.hold) = (limit, HOLD_WINDOWS);
            return;
        }
        if self.hold > 0 {
            self.hold -= 1;
        } else if self.limit < self.max {
            self.before = Some((self.limit, speed));
            self.limit = (self.limit + (self.limit / 2).max(1)).min(self.max);
        }
    }

    /// Records that the server is overloaded.
    pub fn overloaded(&mut self, now: Duration) {
        if now < self.ignore_overload_until {
            return;
        }
        self.limit = (self.limit * 3 / 4).max(1);
        (self.before, self.hold) = (None, HOLD_WINDOWS);
        self.ignore_overload_until = now + MIN_WINDOW;
        self.window = MeasurementWindow { start: now, ..MeasurementWindow::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a server that answers up to `width` concurrent requests, each in 10 ms, for some seconds.
    fn serve(concurrency: &mut Concurrency, width: usize, seconds: u64) {
        let (mut now, end) = (concurrency.window.start, concurrency.window.start + Duration::from_secs(seconds));
        while now < end {
            concurrency.full();
            now += Duration::from_millis(10);
            for _ in 0..concurrency.limit().min(width) {
                concurrency.answered(now, 5);
            }
        }
    }

    fn concurrency(start: usize, max: usize) -> Concurrency {
        Concurrency::new(NonZeroUsize::new(start).unwrap(), NonZeroUsize::new(max).unwrap())
    }

    #[test]
    fn concurrency_grows_while_throughput_grows() {
        let mut wide = concurrency(4, 64);
        serve(&mut wide, 1000, 5);
        assert_eq!(wide.limit(), 64, "the maximum");
        let mut narrow = concurrency(4, 64);
        serve(&mut narrow, 12, 60);
        assert!((12..=24).contains(&narrow.limit()), "{}", narrow.limit());
        let mut fixed = concurrency(3, 3);
        serve(&mut fixed, 1000, 5);
        assert_eq!(fixed.limit(), 3);
    }

    #[test]
    fn concurrency_shrinks_on_overload_and_recovers() {
        let mut concurrency = concurrency(64, 64);
        let now = Duration::from_secs(1);
        for _ in 0..64 {
            concurrency.overloaded(now);
        }
        assert_eq!(concurrency.limit(), 48, "one reduction for all requests in flight");
        for second in 2..100 {
            concurrency.overloaded(Duration::from_secs(second));
        }
        assert_eq!(concurrency.limit(), 1);
        serve(&mut concurrency, 1000, 60);
        assert_eq!(concurrency.limit(), 64);
    }

    #[test]
    fn concurrency_slow_input_keeps_the_limit() {
        let mut concurrency = concurrency(4, 64);
        for tick in 1..1000 {
            concurrency.answered(Duration::from_millis(tick * 100), 1);
        }
        assert_eq!(concurrency.limit(), 4);
    }
}
