//! Stops evaluations that nobody waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag when it is dropped, which happens if a client disconnects or a request times out.
#[derive(Debug, Default)]
pub(super) struct CancelOnDrop(Arc<AtomicBool>);

impl CancelOnDrop {
    /// Returns the flag, for the evaluation on another thread.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A flag that is never set, for evaluations on the thread of the request.
pub(super) static NEVER: AtomicBool = AtomicBool::new(false);
