//! Waiting for a condition, and for time to pass.

use std::thread;
use std::time::{Duration, Instant};

use super::PATIENCE;

/// How long to wait before a condition is checked again.
const BETWEEN_CHECKS: Duration = Duration::from_millis(1);

/// Blocks until `condition` holds. Fails the test with `what` if it does not hold in time.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}");
        pause(BETWEEN_CHECKS);
    }
}

/// Does the same as [`wait_until`] without blocking the test's async runtime.
pub(crate) async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !condition() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(BETWEEN_CHECKS).await;
    }
}

/// Blocks the thread of a test, or of its scripted server.
#[expect(clippy::disallowed_methods, reason = "threads of tests may block")]
pub(crate) fn pause(time: Duration) {
    thread::sleep(time);
}
