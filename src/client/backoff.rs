//! When to send a request again. Pure but for the jitter.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{FailureKind, RequestFailure};

/// The wait after the first failure, before jitter.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// The longest wait of our own choice.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// The longest wait that a server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// How often to try, and how long to wait in between.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// Attempts in total.
    pub attempts: NonZeroU32,
}

impl Backoff {
    /// Returns how long to wait after the `attempt`th failure (from 1), or nothing when there is no point in another attempt.
    ///
    /// The wait doubles with each failure, up to 30 seconds, of which a random half is taken off so that clients do not come
    /// back at the same time. What the server asks for in `Retry-After` is kept, up to 5 minutes.
    pub fn wait(&self, attempt: u32, failure: &RequestFailure) -> Option<Duration> {
        self.wait_at(attempt, failure, fastrand::f64())
    }

    fn wait_at(self, attempt: u32, failure: &RequestFailure, jitter: f64) -> Option<Duration> {
        if !failure.kind.is_retryable() || attempt >= self.attempts.get() {
            return None;
        }
        let full = FIRST_WAIT.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(MAX_WAIT);
        // A connection that broke is worth another one at once; only then something is wrong.
        let full = if failure.kind == FailureKind::ConnectionLost && attempt == 1 { FIRST_WAIT / 10 } else { full };
        let own = full.mul_f64(1.0 - jitter / 2.0);
        Some(failure.retry_after.map_or(own, |asked| own.max(asked.min(MAX_RETRY_AFTER))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(kind: FailureKind) -> RequestFailure {
        RequestFailure::new(kind, "no")
    }

    fn backoff(attempts: u32) -> Backoff {
        Backoff { attempts: NonZeroU32::new(attempts).unwrap() }
    }

    #[test]
    fn waits_double_and_are_bounded() {
        let failure = failure(FailureKind::Unreachable);
        let waits: Vec<u128> =
            (1..9).map(|attempt| backoff(100).wait_at(attempt, &failure, 0.0).unwrap().as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        assert_eq!(backoff(100).wait_at(99, &failure, 1.0), Some(Duration::from_secs(15)), "jitter takes up to a half");
        assert_eq!(backoff(3).wait_at(3, &failure, 0.0), None, "three attempts are two waits");
    }

    #[test]
    fn servers_are_left_alone_as_long_as_they_ask() {
        let asked = |seconds| RequestFailure {
            retry_after: Some(Duration::from_secs(seconds)),
            ..failure(FailureKind::Overloaded)
        };
        assert_eq!(backoff(3).wait_at(1, &asked(7), 0.0), Some(Duration::from_secs(7)));
        assert_eq!(backoff(3).wait_at(1, &asked(0), 0.0), Some(Duration::from_millis(500)));
        assert_eq!(backoff(3).wait_at(1, &asked(86400), 0.0), Some(Duration::from_mins(5)));
    }

    #[test]
    fn what_will_never_be_answered_is_not_sent_again() {
        for kind in [FailureKind::Rejected, FailureKind::AllRequests] {
            assert_eq!(backoff(3).wait_at(1, &failure(kind), 0.0), None);
        }
    }
}
