//! The bounds of the requests that wait for a model.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::settings::ModelSettings;

/// Counts the requests that wait for a model's prediction to begin, and their bytes.
#[derive(Debug)]
pub struct RequestQueue {
    requests: AtomicUsize,
    bytes: AtomicUsize,
    max_requests: usize,
    max_bytes: usize,
}

/// The queue of a model is full, according to its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QueueFull {
    #[error("the model's queue is full: {limit} requests are waiting (`max_queue_requests`); try again later")]
    Requests { limit: usize },
    #[error(
        "the model's queue is full: with this request, {found} bytes exceed the limit of {limit} (`max_queue_bytes`); try again later"
    )]
    Bytes { found: usize, limit: usize },
}

impl QueueFull {
    /// Returns the reason for metrics.
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

    /// Adds a request to the queue, which [`RequestQueue::leave`] removes.
    ///
    /// An empty queue accepts a request of any length: the length of requests has its own limit.
    ///
    /// # Errors
    ///
    /// Fails if the queue is full.
    pub fn enter(&self, bytes: usize) -> Result<(), QueueFull> {
        let before = self.requests.fetch_add(1, Ordering::AcqRel);
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        let full = if before >= self.max_requests {
            Some(QueueFull::Requests { limit: self.max_requests })
        } else if before > 0 && bytes_before.saturating_add(bytes) > self.max_bytes {
            Some(QueueFull::Bytes { found: bytes_before.saturating_add(bytes), limit: self.max_bytes })
        } else {
            None
        };
        full.map_or(Ok(()), |full| {
            self.leave(bytes);
            Err(full)
        })
    }

    /// Returns a request to the queue that has been in it before, even if the queue is full.
    pub fn return_to(&self, bytes: usize) {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Removes a request of `bytes` bytes.
    pub fn leave(&self, bytes: usize) {
        self.requests.fetch_sub(1, Ordering::AcqRel);
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
    }

    /// Returns the number of waiting requests.
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
    fn request_queue_limits_requests_and_bytes() {
        let queue = queue(2, 100);
        assert_eq!(queue.enter(500), Ok(()), "the queue is empty");
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
