//! Decides when to retry a request. Pure except for the jitter.

use std::num::NonZeroU32;
use std::time::Duration;

use super::{FailureKind, RequestFailure};
use crate::types::Backoff;

/// The waits that the client chooses, without jitter.
const WAITS: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(30) };
/// The longest wait that a server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// How often to try, and how long to wait between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in total.
    pub attempts: NonZeroU32,
}

impl RetryPolicy {
    /// Returns how long to wait after failure number `attempt` (from 1), or `None` if the request is not to be retried.
    ///
    /// The wait doubles with each failure, up to 30 seconds, less a jitter of up to 50 %, so that clients do not retry in unison.
    /// A longer `Retry-After` of the server is respected, up to 5 minutes.
    pub fn wait(&self, attempt: u32, failure: &RequestFailure) -> Option<Duration> {
        self.wait_at(attempt, failure, fastrand::f64())
    }

    fn wait_at(self, attempt: u32, failure: &RequestFailure, jitter: f64) -> Option<Duration> {
        if !failure.kind.is_retryable() || attempt >= self.attempts.get() {
            return None;
        }
        let full = WAITS.after(attempt.saturating_sub(1));
        // A single broken connection is retried almost at once; only a second one indicates a problem.
        let full = if failure.kind == FailureKind::ConnectionLost && attempt == 1 { WAITS.first / 10 } else { full };
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

    fn policy(attempts: u32) -> RetryPolicy {
        RetryPolicy { attempts: NonZeroU32::new(attempts).unwrap() }
    }

    #[test]
    fn backoff_doubles_up_to_the_limit() {
        let failure = failure(FailureKind::Unreachable);
        let waits: Vec<u128> =
            (1..9).map(|attempt| policy(100).wait_at(attempt, &failure, 0.0).unwrap().as_millis()).collect();
        assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        assert_eq!(policy(100).wait_at(99, &failure, 1.0), Some(Duration::from_secs(15)), "jitter is up to 50 %");
        assert_eq!(policy(3).wait_at(3, &failure, 0.0), None, "three attempts are two waits");
    }

    #[test]
    fn backoff_only_a_lost_connection_is_retried_at_once() {
        let wait = |kind, attempt| policy(3).wait_at(attempt, &failure(kind), 0.0).unwrap().as_millis();
        assert_eq!((wait(FailureKind::ConnectionLost, 1), wait(FailureKind::ConnectionLost, 2)), (50, 1000));
        assert_eq!((wait(FailureKind::TimedOut, 1), wait(FailureKind::TimedOut, 2)), (500, 1000));
    }

    #[test]
    fn backoff_respects_retry_after() {
        let asked = |seconds| RequestFailure {
            retry_after: Some(Duration::from_secs(seconds)),
            ..failure(FailureKind::Overloaded)
        };
        assert_eq!(policy(3).wait_at(1, &asked(7), 0.0), Some(Duration::from_secs(7)));
        assert_eq!(policy(3).wait_at(1, &asked(0), 0.0), Some(Duration::from_millis(500)));
        assert_eq!(policy(3).wait_at(1, &asked(86400), 0.0), Some(Duration::from_mins(5)));
    }

    #[test]
    fn backoff_never_retries_rejected_requests() {
        for kind in [FailureKind::Rejected, FailureKind::AllRequests, FailureKind::Fatal] {
            assert_eq!(policy(3).wait_at(1, &failure(kind), 0.0), None);
        }
    }
}
