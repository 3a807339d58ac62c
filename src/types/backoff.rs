//! How long to wait after failures in a row.

use std::time::Duration;

/// Waits that double with each failure in a row, up to a longest one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub longest: Duration,
}

impl Backoff {
    /// Returns the wait after a failure that `earlier` others precede.
    pub fn after(self, earlier: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(earlier)).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(first: u64, longest: u64) -> Vec<u64> {
        let backoff = Backoff { first: Duration::from_secs(first), longest: Duration::from_secs(longest) };
        (0..5).map(|earlier| backoff.after(earlier).as_secs()).collect()
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        assert_eq!(waits(1, 10), [1, 2, 4, 8, 10]);
        assert_eq!(waits(3, 12), [3, 6, 12, 12, 12]);
        assert_eq!(waits(5, 5), [5; 5]);
        assert_eq!(waits(7, 5), [5; 5], "also the first");
        assert_eq!(waits(0, 5), [0; 5]);
    }

    #[test]
    fn any_number_of_failures_has_a_wait() {
        let backoff = Backoff { first: Duration::from_millis(10), longest: Duration::from_secs(1) };
        for earlier in [7, 31, 32, 64, u32::MAX] {
            assert_eq!(backoff.after(earlier), Duration::from_secs(1), "{earlier}");
        }
        let endless = Backoff { first: Duration::MAX, longest: Duration::MAX };
        assert_eq!(endless.after(1), Duration::MAX);
    }
}
