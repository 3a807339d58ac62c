//! A histogram of request latencies, for percentiles in constant memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets per power of two, so that percentiles are accurate to within 7 %.
const BUCKETS_PER_POWER: usize = 8;
/// Powers of two, from one microsecond up to 71 minutes.
const POWERS: usize = 32;

/// A histogram that many threads add to.
#[derive(Debug)]
pub struct LatencyHistogram {
    buckets: Box<[AtomicU64]>,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self { buckets: (0..BUCKETS_PER_POWER * POWERS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl LatencyHistogram {
    /// Adds the latency of a request.
    pub fn add(&self, time: Duration) {
        self.buckets[bucket(time)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the latencies that these shares of the requests did not exceed, or zero if there were no requests.
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
    // The three bits after the leading one.
    let step = if power >= 3 { micros >> (power - 3) } else { micros << (3 - power) };
    let step = usize::try_from(step).unwrap_or_default() & (BUCKETS_PER_POWER - 1);
    (power * BUCKETS_PER_POWER + step).min(BUCKETS_PER_POWER * POWERS - 1)
}

fn middle(bucket: usize) -> Duration {
    let (power, step) = (bucket / BUCKETS_PER_POWER, bucket % BUCKETS_PER_POWER);
    let eighths = (BUCKETS_PER_POWER + step) as u64 * 2 + 1;
    Duration::from_nanos(((eighths * 1000) << power) / (2 * BUCKETS_PER_POWER as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_percentiles_are_accurate_to_a_bucket() {
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
    fn latency_every_duration_has_a_bucket() {
        let latencies = LatencyHistogram::default();
        for time in [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(100_000), Duration::MAX] {
            latencies.add(time);
        }
        let [least, most] = latencies.percentiles([0.0, 1.0]);
        assert!(least < Duration::from_micros(2) && most > Duration::from_hours(1), "{least:?} {most:?}");
    }
}
