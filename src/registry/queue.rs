//! The bounds of the requests that wait for a model.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::settings::ModelSettings;
use crate::types::{LoadShedder, Overload, Priority};

/// Counts the requests that wait for a model's prediction to begin, and their bytes.
#[derive(Debug)]
pub struct RequestQueue {
    requests: AtomicUsize,
    bytes: AtomicUsize,
    max_requests: usize,
    max_bytes: usize,
    shedding: Option<QueueShedding>,
}

/// Sheds requests while the queue is overloaded.
#[derive(Debug)]
struct QueueShedding {
    target: Duration,
    /// The first time at which a waiting request asks whether it may continue to wait.
    min_patience: Duration,
    /// Whether requests arrive while others wait. Until then, nothing is measured.
    busy: AtomicBool,
    state: Mutex<LoadShedder>,
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
    #[error(
        "the model is overloaded: the waiting requests take {:.1} s, more than `queue_target` ({} s) allows; try again later",
        backlog.as_secs_f64(), target.as_secs_f64()
    )]
    Overloaded { backlog: Duration, target: Duration },
}

impl QueueFull {
    /// Returns the reason for metrics.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Requests { .. } => "queue_requests",
            Self::Bytes { .. } => "queue_bytes",
            Self::Overloaded { .. } => "queue_target",
        }
    }
}

impl RequestQueue {
    pub(super) fn new(settings: &ModelSettings) -> Self {
        let max_requests = settings.parameters.max_queue_requests.unwrap_or(usize::MAX);
        let max_bytes = settings.parameters.max_queue_bytes;
        let target = settings.parameters.queue_target;
        let shedding = (!target.is_zero()).then(|| {
            let state = LoadShedder::new(target, Instant::now());
            let (min_patience, busy) = (state.min_patience(), AtomicBool::new(false));
            QueueShedding { target, min_patience, busy, state: Mutex::new(state) }
        });
        Self { requests: AtomicUsize::new(0), bytes: AtomicUsize::new(0), max_requests, max_bytes, shedding }
    }

    /// Adds a request to the queue, which [`RequestQueue::leave`] removes.
    ///
    /// An empty queue accepts a request of any length: the length of requests has its own limit.
    ///
    /// # Errors
    ///
    /// Fails if the queue is full or overloaded.
    pub fn enter(&self, bytes: usize, priority: Priority) -> Result<(), QueueFull> {
        let before = self.requests.fetch_add(1, Ordering::AcqRel);
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        let full = if before >= self.max_requests {
            Some(QueueFull::Requests { limit: self.max_requests })
        } else if before > 0 && bytes_before.saturating_add(bytes) > self.max_bytes {
            Some(QueueFull::Bytes { found: bytes_before.saturating_add(bytes), limit: self.max_bytes })
        } else {
            self.shedding.as_ref().filter(|_| before > 0).and_then(|shedding| shedding.admit(priority).err())
        };
        full.map_or(Ok(()), |full| {
            self.remove(bytes);
            Err(full)
        })
    }

    /// Adds a request even if the queue is full: one that has been in it before, or that does not wait.
    pub fn enter_anyway(&self, bytes: usize, priority: Priority) {
        self.requests.fetch_add(1, Ordering::AcqRel);
        self.bytes.fetch_add(bytes, Ordering::AcqRel);
        if let Some(shedding) = self.busy_shedding() {
            shedding.state.lock().entered(priority);
        }
    }

    /// Removes a request of `bytes` bytes without a prediction.
    pub fn leave(&self, bytes: usize, priority: Priority) {
        if let Some(shedding) = self.busy_shedding() {
            shedding.state.lock().left(priority);
        }
        self.remove(bytes);
    }

    /// Removes a request of `bytes` bytes whose prediction begins now.
    pub fn begin(&self, bytes: usize, priority: Priority, now: Instant) {
        if let Some(shedding) = self.busy_shedding() {
            shedding.state.lock().departed(priority, now);
        }
        self.remove(bytes);
    }

    fn remove(&self, bytes: usize) {
        let remaining = self.requests.fetch_sub(1, Ordering::AcqRel) - 1;
        self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        if remaining == 0
            && let Some(shedding) = self.busy_shedding()
        {
            shedding.busy.store(false, Ordering::Relaxed);
        }
    }

    /// Records the time of a prediction.
    pub fn served(&self, took: Duration) {
        if let Some(shedding) = self.busy_shedding() {
            shedding.state.lock().served(took);
        }
    }

    /// Returns after which time a waiting request asks for the first time whether it may continue to wait. `None` if requests
    /// are not shed.
    pub fn min_patience(&self) -> Option<Duration> {
        self.shedding.as_ref().map(|shedding| shedding.min_patience)
    }

    /// Returns when a request that has waited for some time asks again.
    ///
    /// # Errors
    ///
    /// Fails if the queue is overloaded and the request has waited for too long.
    pub fn keep(&self, waited: Duration) -> Result<Duration, QueueFull> {
        match self.busy_shedding() {
            Some(shedding) => {
                let kept = shedding.state.lock().keep(waited, Instant::now());
                kept.map_err(|overload| shedding.error(overload))
            }
            None => Ok(self.min_patience().unwrap_or(Duration::MAX)),
        }
    }

    fn busy_shedding(&self) -> Option<&QueueShedding> {
        self.shedding.as_ref().filter(|shedding| shedding.busy.load(Ordering::Relaxed))
    }

    /// Returns the number of waiting requests.
    pub fn len(&self) -> usize {
        self.requests.load(Ordering::Acquire)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl QueueShedding {
    /// Decides about a request that arrives while others wait.
    fn admit(&self, priority: Priority) -> Result<(), QueueFull> {
        let now = Instant::now();
        let mut state = self.state.lock();
        if !self.busy.swap(true, Ordering::Relaxed) {
            state.start(now);
        }
        state.admit(priority, now).map_err(|overload| self.error(overload))
    }

    const fn error(&self, Overload { backlog }: Overload) -> QueueFull {
        QueueFull::Overloaded { backlog, target: self.target }
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
        let enter = |bytes| queue.enter(bytes, Priority::default());
        assert_eq!(enter(500), Ok(()), "the queue is empty");
        assert_eq!(enter(1), Err(QueueFull::Bytes { found: 501, limit: 100 }));
        queue.leave(500, Priority::default());
        assert_eq!((enter(60), enter(40)), (Ok(()), Ok(())));
        assert_eq!(enter(0), Err(QueueFull::Requests { limit: 2 }));
        queue.leave(60, Priority::default());
        assert_eq!(enter(61), Err(QueueFull::Bytes { found: 101, limit: 100 }));
        queue.leave(40, Priority::default());
        assert!(queue.is_empty());
    }
}
