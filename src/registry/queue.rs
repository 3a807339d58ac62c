//! What waits for a model, and how much of it may.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::settings::ModelSettings;

/// Counts the requests of a model that wait for their prediction to begin.
#[derive(Debug)]
pub struct RequestQueue {
    requests: AtomicUsize,
    bytes: AtomicUsize,
    max_requests: usize,
    max_bytes: usize,
}

/// More waits for a model already than its settings let.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueFull {
    #[error("{limit} requests wait for the model already, as many as `max_queue_requests` lets; try again later")]
    Requests { limit: usize },
    #[error(
        "the requests that wait for the model have {found} bytes with this one, more than the {limit} that `max_queue_bytes` lets; try again later"
    )]
    Bytes { found: usize, limit: usize },
}

impl QueueFull {
    /// Returns a word for metrics.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Requests { .. } => "queue_requests",
            Self::Bytes { .. } => "queue_bytes",
        }
    }
}

impl RequestQueue {
    pub(super) fn new(settings: &ModelSettings) -> Self {
        let max_requests = settings.parameters.max_queue_requests.unwrap_or(usize::MAX);
        let max_bytes = settings.parameters.max_queue_bytes;
        Self { requests: AtomicUsize::new(0), bytes: AtomicUsize::new(0), max_requests, max_bytes }
    }

    /// Lets a request wait. Whoever enters leaves again.
    ///
    /// A request that finds nobody waiting may enter however long it is: its length has a limit of its own.
    ///
    /// # Errors
    ///
    /// Fails when too much waits already.
    pub fn enter(&self, bytes: usize) -> Result<(), QueueFull> {
        let before = self.requests.fetch_add(1, Ordering::AcqRel);
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        let refused = if before >= self.max_requests {
            Some(QueueFull::Requests { limit: self.max_requests })
        } else if before > 0 && bytes_before.saturating_add(bytes) > self.max_bytes {
            Some(QueueFull::Bytes { found: bytes_before.saturating_add(bytes), limit: self.max_bytes })
        } else {
            None
        };
        refused.map_or(Ok(()), |refused| {
            self.leave(bytes);
            Err(refused)
        })
    }

    /// Lets a request wait again that has been admitted before.
    pub fn return_to(&self, bytes: usize) {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Takes a request out that has entered with so many bytes.
    pub fn leave(&self, bytes: usize) {
        self.requests.fetch_sub(1, Ordering::AcqRel);
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Returns the number of requests that wait.
    pub fn len(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(max_requests: usize, max_bytes: usize) -> RequestQueue {
        let mut settings = ModelSettings::new("m", "tests.Model");
        settings.parameters.max_queue_requests = Some(max_requests);
        settings.parameters.max_queue_bytes = max_bytes;
        RequestQueue::new(&settings)
    }

    #[test]
    fn requests_and_bytes_are_bounded() {
        let queue = queue(2, 100);
        assert_eq!(queue.enter(500), Ok(()), "nobody waits");
        assert_eq!(queue.enter(1), Err(QueueFull::Bytes { found: 501, limit: 100 }));
        queue.leave(500);
        assert_eq!((queue.enter(60), queue.enter(40)), (Ok(()), Ok(())));
        assert_eq!(queue.enter(0), Err(QueueFull::Requests { limit: 2 }));
        queue.leave(60);
        assert_eq!(queue.enter(61), Err(QueueFull::Bytes { found: 101, limit: 100 }));
        queue.leave(40);
        assert!(queue.is_empty());
    }
}
