//! How long requests take, as percentiles, without keeping every one of them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets to each power of two, so that a percentile is right to within 7 %.
const STEPS: usize = 8;
/// Powers of two, from a microsecond: up to 71 minutes.
const POWERS: usize = 32;

/// A histogram that many threads add to.
#[derive(Debug)]
pub struct LatencyHistogram {
    buckets: Box<[AtomicU64]>,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { buckets: (0..STEPS * POWERS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl LatencyHistogram {
    /// Adds how long one request took.
    pub fn add(&self, time: Duration) {
        self.buckets[bucket(time)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the times which these shares of the requests did not exceed; zero when there was none.
    pub fn percentiles<const N: usize>(&self, shares: [f64; N]) -> [Duration; N] {
        let counts: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect();
        let all: u64 = counts.iter().sum();
        shares.map(|share| {
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a rank among fewer than 2^52 requests"
            )]
            let rank = ((all as f64 * share).ceil() as u64).max(1);
            let mut seen = 0;
            let found = counts.iter().position(|count| {
                seen += count;
                seen >= rank
            });
            found.map_or(Duration::ZERO, middle)
        })
    }
}

fn bucket(time: Duration) -> usize {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1);
    let power = micros.ilog2() as usize;
    // The bits behind the first, as far as there are so many.
    let step = if power >= 3 { micros >> (power - 3) } else { micros << (3 - power) };
    let step = usize::try_from(step).unwrap_or_default() & (STEPS - 1);
    (power * STEPS + step).min(STEPS * POWERS - 1)
}

fn middle(bucket: usize) -> Duration {
    let (power, step) = (bucket / STEPS, bucket % STEPS);
    let eighths = (STEPS + step) as u64 * 2 + 1;
    Duration::from_nanos(((eighths * 1000) << power) / (2 * STEPS as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_within_a_bucket() {
        let latencies = LatencyHistogram::default();
        assert_eq!(latencies.percentiles([0.5]), [Duration::ZERO]);
        for micros in 1..=100_000 {
            latencies.add(Duration::from_micros(micros));
        }
        for (share, found) in [0.01, 0.5, 0.99].into_iter().zip(latencies.percentiles([0.01, 0.5, 0.99])) {
            let expected = 0.1 * share;
            assert!((found.as_secs_f64() / expected - 1.0).abs() < 0.07, "{share}: {found:?}");
        }
    }

    #[test]
    fn any_time_has_a_bucket() {
        let latencies = LatencyHistogram::default();
        for time in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(100_000), Duration::MAX] {
            latencies.add(time);
        }
        let [least, most] = latencies.percentiles([0.0, 1.0]);
        assert!(least < Duration::from_micros(2) && most > Duration::from_hours(1), "{least:?} {most:?}");
    }
}
