//! Limits the rate of requests.

use std::time::Duration;

use tokio::time::Instant;

/// The minimum time between the starts of two requests in one slot.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RequestSpacing {
    pub interval: Duration,
    /// The maximum of the random time that is added.
    pub jitter: Duration,
}

impl RequestSpacing {
    /// Returns how long the slot stays taken after a request that took `elapsed`.
    pub(super) fn rest(&self, elapsed: Duration) -> Duration {
        if self.interval.is_zero() && self.jitter.is_zero() {
            return Duration::ZERO;
        }
        (self.interval + self.jitter.mul_f64(fastrand::f64())).saturating_sub(elapsed)
    }
}

/// Limits the rows per second.
#[derive(Debug)]
pub(super) struct RateLimiter {
    /// The time per row, or `None` without a limit.
    per_row: Option<Duration>,
    next: Instant,
}

impl RateLimiter {
    /// Creates a limit of `rows_per_second`, or none.
    pub(super) fn new(rows_per_second: Option<f64>) -> Self {
        Self { per_row: rows_per_second.map(|rate| Duration::from_secs_f64(1.0 / rate)), next: Instant::now() }
    }

    /// Waits until these rows may be sent. Unused time is not saved up: no burst follows a pause.
    pub(super) async fn wait(&mut self, rows: usize) {
        let Some(per_row) = self.per_row else { return };
        tokio::time::sleep_until(self.next).await;
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        self.next = self.next.max(Instant::now()) + per_row.saturating_mul(rows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn rate_limiter_spreads_rows_over_time() {
        let start = Instant::now();
        let mut pace = RateLimiter::new(Some(100.0));
        for _ in 0..11 {
            pace.wait(10).await;
        }
        assert_eq!(start.elapsed().as_millis(), 1000);
        tokio::time::sleep(Duration::from_secs(10)).await;
        pace.wait(1).await;
        pace.wait(1).await;
        assert_eq!(start.elapsed().as_millis(), 11_010, "a pause is not made up for");
        let mut free = RateLimiter::new(None);
        free.wait(1 << 40).await;
        assert_eq!(start.elapsed().as_millis(), 11_010);
    }

    #[test]
    fn request_spacing_keeps_the_slot_until_the_interval_is_over() {
        let second = Duration::from_secs(1);
        let spacing = RequestSpacing { interval: second, jitter: Duration::ZERO };
        assert_eq!(spacing.rest(second / 4), second * 3 / 4);
        assert_eq!(spacing.rest(second * 2), Duration::ZERO);
        let spacing = RequestSpacing { interval: second, jitter: second };
        let rests: Vec<_> = (0..50).map(|_| spacing.rest(Duration::ZERO)).collect();
        assert!(rests.iter().all(|rest| (second..second * 2).contains(rest)));
        assert!(rests.iter().any(|rest| *rest != rests[0]));
    }
}
