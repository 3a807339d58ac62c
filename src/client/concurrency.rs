//! How many requests to keep under way. Pure: the caller brings the time.
//!
//! More requests at once help until the server is busy; from there on they only wait. So the number grows while the rows per
//! second grow with it, and a step that brings nothing is taken back. When the server says that it has too much to do, the
//! number falls at once.

use std::num::NonZeroUsize;
use std::time::Duration;

/// The shortest time over which rows per second are measured.
const MIN_WINDOW: Duration = Duration::from_millis(200);
/// How many answers a window has at least, for each request under way.
const MIN_ANSWERS: usize = 2;
/// The part of what a step could bring, if the speed grew as the number does, that it must bring to be kept.
const MIN_GAIN: f64 = 0.1;
/// How many windows pass after a step that brought nothing before another is tried.
const HOLD_WINDOWS: u32 = 25;

/// The number of requests under way.
#[derive(Debug, Clone)]
pub struct Concurrency {
    limit: usize,
    max: usize,
    window: MeasurementWindow,
    /// The limit and the rows per second before the last step up, until it is judged.
    before: Option<(usize, f64)>,
    /// Windows to wait before the next step up.
    hold: u32,
    /// No overload counts before this time: it is about requests that were sent before the last cut.
    ignore_overload_until: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
struct MeasurementWindow {
    start: Duration,
    rows: usize,
    answers: usize,
    /// Whether ever as many requests were under way as may be.
    full: bool,
}

impl Concurrency {
    /// Starts with `start` requests, and never has more than `max`.
    pub fn new(start: NonZeroUsize, max: NonZeroUsize) -> Self {
        let (limit, max) = (start.get().min(max.get()), max.get());
        let (window, before, hold, ignore_overload_until) = (MeasurementWindow::default(), None, 0, Duration::ZERO);
        Self { limit, max, window, before, hold, ignore_overload_until }
    }

    /// Returns how many requests may be under way.
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Notes that as many requests are under way as may be.
    pub const fn full(&mut self) {
        self.window.full = true;
    }

    /// Notes an answer with this many rows.
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
            self.judge(rows as f64 / elapsed.as_secs_f64());
        } else {
            // The input, and not the server, decides how fast it goes.
            self.before = None;
        }
    }

    fn judge(&mut self, speed: f64) {
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

    /// Notes that the server has too much to do.
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

    /// Lets a server that answers up to `width` requests beside each other, each in 10 ms, answer for so long.
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
    fn it_grows_while_that_helps() {
        let mut wide = concurrency(4, 64);
        serve(&mut wide, 1000, 5);
        assert_eq!(wide.limit(), 64, "the most that is allowed");
        let mut narrow = concurrency(4, 64);
        serve(&mut narrow, 12, 60);
        assert!((12..=24).contains(&narrow.limit()), "{}", narrow.limit());
        let mut fixed = concurrency(3, 3);
        serve(&mut fixed, 1000, 5);
        assert_eq!(fixed.limit(), 3);
    }

    #[test]
    fn it_shrinks_when_the_server_is_overloaded_and_recovers() {
        let mut concurrency = concurrency(64, 64);
        let now = Duration::from_secs(1);
        for _ in 0..64 {
            concurrency.overloaded(now);
        }
        assert_eq!(concurrency.limit(), 48, "one cut for all that were under way");
        for second in 2..100 {
            concurrency.overloaded(Duration::from_secs(second));
        }
        assert_eq!(concurrency.limit(), 1);
        serve(&mut concurrency, 1000, 60);
        assert_eq!(concurrency.limit(), 64);
    }

    #[test]
    fn an_input_that_is_slow_says_nothing_about_the_server() {
        let mut concurrency = concurrency(4, 64);
        for tick in 1..1000 {
            concurrency.answered(Duration::from_millis(tick * 100), 1);
        }
        assert_eq!(concurrency.limit(), 4);
    }
}
