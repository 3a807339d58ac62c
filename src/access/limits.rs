//! The limits of one principal: requests per second, and requests in flight.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How many requests per second a principal may send.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    pub requests_per_second: f64,
    /// How many requests may come at once; as many as in one second by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<NonZeroU32>,
}

/// The limits of a principal, and what it has used of them.
#[derive(Debug)]
pub(super) struct PrincipalLimits {
    rate: Option<RateLimit>,
    max_in_flight: Option<NonZeroU32>,
    /// The time between two requests at the limit, and between the first and the last of a burst, in nanoseconds.
    interval: u64,
    tolerance: u64,
    /// When the next request would come if all so far had come at the limit, in nanoseconds.
    expected: AtomicU64,
    in_flight: AtomicU32,
}

/// Counts a request as in flight until it is dropped.
#[derive(Debug)]
pub struct InFlightPermit(Arc<PrincipalLimits>);

impl RateLimit {
    /// Checks the numbers.
    ///
    /// # Errors
    ///
    /// Fails with what is expected.
    pub fn check(&self) -> Result<(), &'static str> {
        let per_second = self.requests_per_second;
        if per_second.is_finite() && (0.001..=1e6).contains(&per_second) {
            Ok(())
        } else {
            Err("`requests_per_second`: expected a number from 0.001 to 1000000")
        }
    }

    fn burst(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number is positive and small")]
        let of_second = self.requests_per_second.ceil() as u32;
        self.burst.map_or(of_second.max(1), NonZeroU32::get)
    }
}

impl PrincipalLimits {
    pub(super) fn new(rate: Option<RateLimit>, max_in_flight: Option<NonZeroU32>) -> Self {
        let interval = rate.map_or(0, |rate| nanoseconds(Duration::from_secs_f64(1.0 / rate.requests_per_second)));
        let tolerance = rate.map_or(0, |rate| interval.saturating_mul(u64::from(rate.burst() - 1)));
        let (expected, in_flight) = (AtomicU64::new(0), AtomicU32::new(0));
        Self { rate, max_in_flight, interval, tolerance, expected, in_flight }
    }

    /// Reports whether the limits are equal. Their current use does not count.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.rate == other.rate && self.max_in_flight == other.max_in_flight
    }

    /// Takes a request from the rate, at a time since the start, which is only looked up if there is a rate. Fails with the time
    /// until there is room for it.
    ///
    /// This is the generic cell rate algorithm: a token bucket of one number.
    pub(super) fn take(&self, now: impl FnOnce() -> Duration) -> Result<(), Duration> {
        if self.rate.is_none() {
            return Ok(());
        }
        let now = nanoseconds(now());
        let next = |expected: u64| {
            let early = expected.saturating_sub(now);
            (early <= self.tolerance).then(|| expected.max(now).saturating_add(self.interval))
        };
        let taken = self.expected.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        taken.map(drop).map_err(|expected| Duration::from_nanos(expected.saturating_sub(now) - self.tolerance))
    }

    /// Counts a request as in flight; `None` without such a limit. Fails with the limit if it is reached.
    pub(super) fn enter(self: &Arc<Self>) -> Result<Option<InFlightPermit>, NonZeroU32> {
        let Some(limit) = self.max_in_flight else { return Ok(None) };
        let next = |in_flight: u32| (in_flight < limit.get()).then_some(in_flight + 1);
        let entered = self.in_flight.fetch_update(Ordering::AcqRel, Ordering::Relaxed, next);
        entered.map(|_| Some(InFlightPermit(Arc::clone(self)))).map_err(|_| limit)
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(requests_per_second: f64, burst: Option<u32>) -> PrincipalLimits {
        let burst = burst.and_then(NonZeroU32::new);
        PrincipalLimits::new(Some(RateLimit { requests_per_second, burst }), None)
    }

    #[test]
    fn rate_limit_allows_a_burst_and_then_the_rate() {
        let limits = limits(10.0, Some(3));
        let at = |milliseconds| limits.take(|| Duration::from_millis(milliseconds));
        assert_eq!([at(0), at(0), at(0)], [Ok(()); 3]);
        assert_eq!(at(0), Err(Duration::from_millis(100)));
        assert_eq!(at(40), Err(Duration::from_millis(60)));
        assert_eq!(at(100), Ok(()));
        assert!(at(101).is_err());
        assert_eq!([at(10_000), at(10_000), at(10_000)], [Ok(()); 3], "the burst is never larger");
        assert!(at(10_000).is_err());
    }

    #[test]
    fn rate_limit_allows_no_more_than_the_rate_over_time() {
        for (rate, burst, expected) in [(0.5, None, 6), (1.5, None, 17), (1000.0, Some(1), 10_000)] {
            let limits = limits(rate, burst);
            let taken = (0..10_000).filter(|&time| limits.take(|| Duration::from_millis(time)).is_ok()).count();
            assert!((expected - 1..=expected).contains(&taken), "{rate}: {taken}");
        }
    }

    #[test]
    fn in_flight_limit_counts_until_permits_are_dropped() {
        let limits = Arc::new(PrincipalLimits::new(None, NonZeroU32::new(2)));
        let first = limits.enter().unwrap().unwrap();
        let _second = limits.enter().unwrap().unwrap();
        assert_eq!(limits.enter().unwrap_err().get(), 2);
        drop(first);
        assert!(limits.enter().is_ok());
    }

    #[test]
    fn rate_limit_rejects_numbers_out_of_range() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e7] {
            assert!(RateLimit { requests_per_second: bad, burst: None }.check().is_err(), "{bad}");
        }
        assert!(RateLimit { requests_per_second: 0.1, burst: None }.check().is_ok());
    }
}
